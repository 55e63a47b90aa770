/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rung without namespaces. The host's root is there, and Landlock says what of it is in reach; what the namespaces
 * would have closed is denied by the stricter seccomp program. The supervisor stays who orch-reaper is, outside of the
 * domain: it has to see its descendants in /proc, and as root no program can signal it. Each program changes by itself,
 * right before its exec, into a domain of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine-private.h"

#define WITHOUT "without namespaces"

/* --- what the policy asks for --------------------------------------------------------------- */

static int check_wishes(const struct confine *confine, struct setup_error *error)
{
	const struct orch_spec_header *header = confine->header;

	if (header->net == ORCH_NET_BROKER)
		return confine_fail(error, ORCH_EUNENFORCEABLE, 0, "net",
				    "ORCH_NET_BROKER can not be had " WITHOUT ": its listener is in a network "
				    "namespace; take ORCH_NET_NONE");
	if (header->tmp_bytes != ORCH_SPEC_TMP_DEFAULT)
		return confine_fail(error, ORCH_EUNENFORCEABLE, 0, "tmp",
				    "tmp_mib can not be kept " WITHOUT ": there is no private /tmp; leave it at its "
				    "default, and limit the workspace by other means");
	for (uint32_t i = 0; i < header->mounts_count; i++) {
		const struct orch_spec_mount *mount = &confine->mounts[i];
		const char *host = confine->strings + mount->host, *inner = confine->strings + mount->inner;

		if (mount->kind == ORCH_SPEC_OVERLAY)
			return confine_fail(error, ORCH_EUNENFORCEABLE, 0, "overlay",
					    "the overlay at %s can not be had " WITHOUT ": give it a workspace", inner);
		if (mount->kind != ORCH_SPEC_BIND)
			return confine_fail(error, ORCH_EUNENFORCEABLE, 0, "deny",
					    "%s can not be denied " WITHOUT ": Landlock only allows; allow what is beside "
					    "it", inner);
		if (strcmp(host, inner) != 0)
			return confine_fail(error, ORCH_EUNENFORCEABLE, 0, "path",
					    "host path %s can not be at %s " WITHOUT ": give the same path for both", host,
					    inner);
	}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp((*(const struct confine_tree *const *)a)->host, (*(const struct confine_tree *const *)b)->host);
}

/* The nearest tree above `path`, or NULL. */
static const struct confine_tree *tree_above(const struct confine_tree *const *sorted, size_t count, const char *path)
{
	char *part = strdup(path);
	const struct confine_tree *found = NULL;

	for (char *slash; part && !found && (slash = strrchr(part, '/')) && slash != part;) {
		const struct confine_tree key = {.host = part}, *pointer = &key;

		*slash = '\0';
		const struct confine_tree *const *hit = bsearch(&pointer, sorted, count, sizeof(*sorted), by_path);

		found = hit ? *hit : NULL;
	}
	free(part);
	return found;
}

/* What is allowed of a folder is allowed of all below it: a deeper rule that takes some of it back would not hold. */
static int check_widening(const struct confine *confine, struct setup_error *error)
{
	const struct confine_tree **sorted = calloc(confine->tree_count + 1, sizeof(const struct confine_tree *));
	int result = 0;

	if (!sorted)
		return confine_fail(error, ORCH_ENOMEM, 0, "spec", "no memory for the rules");
	for (size_t i = 0; i < confine->tree_count; i++)
		sorted[i] = &confine->trees[i];
	qsort(sorted, confine->tree_count, sizeof(*sorted), by_path);
	for (size_t i = 0; result == 0 && i < confine->tree_count; i++) {
		const struct confine_tree *tree = sorted[i], *above = tree_above(sorted, confine->tree_count, tree->host);

		if (above && above->access & ~tree->access & ~ORCH_PATH_OWN)
			result = confine_fail(error, ORCH_EUNENFORCEABLE, 0, "path",
					      "the rule for %s allows less than that for %s, which can not be kept " WITHOUT
					      ": Landlock only allows; allow what is beside it", tree->host, above->host);
	}
	free(sorted);
	return result;
}

/* --- the set-up process --------------------------------------------------------------------- */

/*
 * With namespaces a path is bound to its place; here programs walk to it. The groups of this process stay: a folder that is
 * open to one of them is found out by the program.
 */
static int check_reach(const struct confine_tree *tree, uid_t uid, struct setup_error *error)
{
	uid_t own_uid = geteuid();
	gid_t own_gid = getegid();

	setfsgid(uid);
	setfsuid(uid);
	int fd = open(tree->host, O_PATH | O_CLOEXEC), open_errno = errno;

	setfsuid(own_uid);
	setfsgid(own_gid);
	if (fd < 0)
		return confine_fail(error, ORCH_EDENIED, open_errno, "path.host",
				    "host path %s can not be reached by the sandbox's uid %u, which is needed " WITHOUT
				    ": let others pass the folders above it (chmod o+x)", tree->host, uid);
	close(fd);
	return 0;
}

static int open_trees(struct confine *confine, uid_t own_uid, struct setup_error *error)
{
	for (size_t i = 0; i < confine->tree_count; i++) {
		struct confine_tree *tree = &confine->trees[i];

		tree->fd = open(tree->host, O_PATH | O_CLOEXEC);
		if (tree->fd < 0 && (tree->optional || (tree->device && errno == ENOENT)))
			continue;
		if (tree->fd < 0)
			return confine_fail(error, errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno, "path.host",
					    "host path %s can not be opened", tree->host);
		if (own_uid && tree->access & ORCH_PATH_OWN && confine_own(tree->fd, tree->host, own_uid, error) < 0)
			return -1;
		if (own_uid && !tree->optional && check_reach(tree, own_uid, error) < 0)
			return -1;
	}
	return 0;
}

static unsigned long status_number(FILE *status, const char *key)
{
	char line[256];
	size_t length = strlen(key);

	while (fgets(line, sizeof(line), status))
		if (strncmp(line, key, length) == 0)
			return strtoul(line + length, NULL, 10);
	return 0;
}

/*
 * The kernel counts all of a user's processes and threads against RLIMIT_NPROC. What the user has now is no part of
 * the scope; a sandbox's own uid (as root) has none.
 */
static uint64_t own_processes(void)
{
	struct dirent *entry;
	uint64_t count = 0;
	DIR *proc = opendir("/proc");

	while (proc && (entry = readdir(proc))) {
		char path[300];

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/status", entry->d_name);
		FILE *status = fopen(path, "re");

		if (status && status_number(status, "Uid:") == getuid())
			count += status_number(status, "Threads:");
		if (status)
			fclose(status);
	}
	if (proc)
		closedir(proc);
	return count;
}

int confine_bare(struct confine *confine, uint32_t host_uid, struct setup_error *error)
{
	bool as_root = geteuid() == 0 && host_uid != 0;

	confine->bare = true;
	confine->uid = host_uid;
	if (!as_root && host_uid != geteuid())
		return confine_fail(error, ORCH_EINVAL, 0, "uid", "uid %u can not become uid %u", geteuid(), host_uid);
	if (check_wishes(confine, error) < 0 || check_widening(confine, error) < 0 || confine_check_seccomp(error) < 0 ||
	    open_trees(confine, as_root ? host_uid : 0, error) < 0)
		return -1;
	confine->ruleset_fd = confine_landlock_bare(confine, error);
	if (confine->ruleset_fd < 0)
		return -1;
	confine->processes = confine->header->max_processes + (as_root ? 0 : own_processes());
	return 0;
}

/* --- in the child that becomes the program -------------------------------------------------- */

static int get_capabilities(struct __user_cap_data_struct *sets)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	return (int)syscall(SYS_capget, &header, sets);
}

static int set_capabilities(const struct __user_cap_data_struct *sets)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	return (int)syscall(SYS_capset, &header, sets);
}

/* Keeps the capabilities, for what comes after it. */
static int change_uid(uid_t uid, struct setup_error *error)
{
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	if (uid == geteuid())
		return 0;
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
	    setresuid(uid, uid, uid) < 0 || get_capabilities(sets) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "uid",
				    "the program can not change to uid %u (CAP_SETUID and CAP_SETGID needed)", uid);
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		sets[i].effective = sets[i].permitted;
	if (set_capabilities(sets) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "uid", "the capabilities of uid %u", uid);
	return 0;
}

/* An ordinary user has none and no right to empty the bounding set: no_new_privs keeps it from giving any. */
static int drop_capabilities(const struct confine *confine, struct setup_error *error)
{
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3], none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (get_capabilities(sets) == 0 && sets[0].effective & 1u << CAP_SETPCAP)
		return confine_bound_capabilities(confine, error) < 0 ? -1 : confine_drop_capabilities(confine, error);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || set_capabilities(none) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "capabilities", "the capabilities can not be dropped");
	return 0;
}

static int enter_filter(const struct confine *confine, struct setup_error *error)
{
	struct sock_fprog program = {
		.len = (unsigned short)confine->header->bare_count,
		.filter = (struct sock_filter *)confine->bare_filter,
	};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
		return 0;
	return confine_no_seccomp(errno, error);
}

int confine_bare_program(const struct confine *confine, struct setup_error *error)
{
	if (confine_limits(confine, confine->processes, error) < 0 || confine_keyring(confine, error) < 0 ||
	    change_uid(confine->uid, error) < 0 ||
	    drop_capabilities(confine, error) < 0)
		return -1;
	/* It was entered with the helper's rights. */
	if (chdir(".") < 0)
		return confine_fail(error, ORCH_ESPAWN, errno, "cwd",
				    "the working directory can not be entered by the sandbox's uid %u", confine->uid);
	return confine_landlock_enter(confine->ruleset_fd, error) < 0 ? -1 : enter_filter(confine, error);
}
