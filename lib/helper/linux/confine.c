/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a specification, and what each program gets right before its exec. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../sandbox/linux/probe.h"
#include "confine-private.h"

/* --- loading -------------------------------------------------------------------------------- */

static bool table_fits(const struct orch_spec_header *header, uint32_t offset, uint32_t count,
		       size_t size, size_t alignment)
{
	return offset >= sizeof(*header) && offset % alignment == 0 && offset <= header->length &&
	       count <= (header->length - offset) / size;
}

static bool path_is_clean(const char *path)
{
	if (path[0] != '/' || path[1] == '\0')
		return false;
	for (const char *part = path; *part;) {
		size_t length = strcspn(++part, "/");

		if (length == 0 || (length == 1 && part[0] == '.') ||
		    (length == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		part += length;
	}
	return true;
}

static const char *check_header(const struct orch_spec_header *header, size_t length)
{
	if (length < sizeof(*header) || memcmp(header->magic, ORCH_SPEC_MAGIC, 8) != 0)
		return "it is not a specification";
	if (header->version != ORCH_SPEC_VERSION)
		return "it is of another version";
	if (header->length != length)
		return "its length is wrong";
	if (header->mounts_count > ORCH_SPEC_MAX_RULES || header->env_count > ORCH_SPEC_MAX_ENV ||
	    header->filter_count > ORCH_SPEC_MAX_FILTER || header->bare_count > ORCH_SPEC_MAX_FILTER)
		return "a count is over its limit";
	if (!table_fits(header, header->mounts_offset, header->mounts_count,
			sizeof(struct orch_spec_mount), 4) ||
	    !table_fits(header, header->env_offset, header->env_count, sizeof(uint32_t), 4) ||
	    !table_fits(header, header->filter_offset, header->filter_count,
			sizeof(struct sock_filter), 8) ||
	    (header->bare_count &&
	     !table_fits(header, header->bare_offset, header->bare_count, sizeof(struct sock_filter), 8)) ||
	    !table_fits(header, header->strings_offset, header->strings_length, 1, 1))
		return "a table is outside of it";
	if (header->strings_length == 0 ||
	    ((const char *)header)[header->strings_offset + header->strings_length - 1] != '\0')
		return "its strings are not terminated";
	if (header->root != ORCH_ROOT_EMPTY && header->root != ORCH_ROOT_TOOLS)
		return "unknown root preset";
	if (header->net != ORCH_NET_NONE && header->net != ORCH_NET_BROKER)
		return "unknown network mode";
#ifndef ORCH_TEST_BUILD
	if (header->without || header->landlock_abi)
		return "it is for a test build";
#endif
	if (header->namespaces < ORCH_PROTECT_REQUIRED || header->namespaces > ORCH_PROTECT_OFF ||
	    header->landlock < ORCH_PROTECT_REQUIRED || header->landlock > ORCH_PROTECT_OFF ||
	    header->seccomp < ORCH_PROTECT_REQUIRED || header->seccomp > ORCH_PROTECT_OFF)
		return "unknown protection level";
	if ((header->seccomp != ORCH_PROTECT_OFF && header->filter_count == 0) ||
	    (header->namespaces != ORCH_PROTECT_REQUIRED && header->bare_count == 0))
		return "its seccomp program is missing";
	return NULL;
}

static const char *check_strings(const struct confine *confine, const uint32_t *env)
{
	const struct orch_spec_header *header = confine->header;
	uint32_t overlays = 0;

	if (header->hostname >= header->strings_length || header->cwd >= header->strings_length)
		return "a string is outside of it";
	for (uint32_t i = 0; i < header->env_count; i++)
		if (env[i] >= header->strings_length || !strchr(confine->strings + env[i], '='))
			return "a variable is malformed";
	for (uint32_t i = 0; i < header->mounts_count; i++) {
		const struct orch_spec_mount *mount = &confine->mounts[i];

		if (mount->host >= header->strings_length || mount->inner >= header->strings_length)
			return "a path is outside of it";
		bool denies = mount->kind == ORCH_SPEC_DENY || mount->kind == ORCH_SPEC_DENY_FOLDER;

		if (confine->strings[mount->host] != (denies ? '\0' : '/') ||
		    !path_is_clean(confine->strings + mount->inner))
			return "a path is malformed";
		if (denies && mount->access)
			return "a denial gives access";
		if (denies)
			continue;
		if (mount->kind != ORCH_SPEC_BIND && mount->kind != ORCH_SPEC_OVERLAY)
			return "a rule is of an unknown kind";
		if (mount->kind == ORCH_SPEC_OVERLAY && overlays++ > 0)
			return "it has two overlays";
		if (mount->access == 0 || mount->access & ~(ORCH_PATH_READ | ORCH_PATH_WRITE |
							    ORCH_PATH_EXEC | ORCH_PATH_OWN))
			return "an access is unknown";
	}
	if (confine->strings[header->cwd] != '/')
		return "its working directory is not absolute";
	return NULL;
}

static void *read_spec(int fd, size_t *ret_length, struct setup_error *error)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat st;
	int have = fcntl(fd, F_GET_SEALS);

	if (have < 0 || (have & seals) != seals || fstat(fd, &st) < 0) {
		setup_fail(error, ORCH_EPROTO, 0, "spec",
			   "the specification is not a sealed memfd");
		return NULL;
	}
	if (st.st_size < (off_t)sizeof(struct orch_spec_header) ||
	    st.st_size > (off_t)ORCH_SPEC_MAX_BYTES) {
		setup_fail(error, ORCH_EPROTO, 0, "spec", "the specification has %lld bytes",
			   (long long)st.st_size);
		return NULL;
	}
	size_t length = (size_t)st.st_size, done = 0;
	char *bytes = malloc(length);

	if (!bytes) {
		setup_fail(error, ORCH_ENOMEM, 0, "spec", "no memory for the specification");
		return NULL;
	}
	while (done < length) {
		ssize_t n = pread(fd, bytes + done, length - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			setup_fail(error, ORCH_ESYS, n < 0 ? errno : EIO, "spec",
				   "the specification can not be read");
			free(bytes);
			return NULL;
		}
		done += (size_t)n;
	}
	*ret_length = length;
	return bytes;
}

void confine_free(struct confine *confine)
{
	if (!confine)
		return;
	free(confine->spec);
	free(confine->environment);
	free(confine->trees);
	free(confine);
}

struct confine *confine_load(int spec_fd, struct setup_error *error)
{
	size_t length = 0;
	struct confine *confine = calloc(1, sizeof(*confine));

	if (!confine) {
		setup_fail(error, ORCH_ENOMEM, 0, "spec", "no memory for the specification");
		return NULL;
	}
	confine->root_fd = confine->masks_fd = confine->private_fd = confine->lower_fd = -1;
	confine->ruleset_fd = confine->listener_fd = -1;
	confine->spec = read_spec(spec_fd, &length, error);
	if (!confine->spec)
		goto fail;

	const struct orch_spec_header *header = confine->spec;
	const char *complaint = check_header(header, length);

	if (!complaint) {
		const char *bytes = confine->spec;
		const uint32_t *env = (const void *)(bytes + header->env_offset);

		confine->header = header;
		confine->strings = bytes + header->strings_offset;
		confine->mounts = (const void *)(bytes + header->mounts_offset);
		confine->filter = (const void *)(bytes + header->filter_offset);
		confine->bare_filter = (const void *)(bytes + header->bare_offset);
		complaint = check_strings(confine, env);
		confine->environment = calloc(header->env_count + 1, sizeof(char *));
		for (uint32_t i = 0; !complaint && confine->environment && i < header->env_count;
		     i++)
			confine->environment[i] = confine->strings + env[i];
	}
	if (complaint) {
		setup_fail(error, ORCH_EPROTO, 0, "spec", "the specification is refused: %s",
			   complaint);
		goto fail;
	}
	if (!confine->environment) {
		setup_fail(error, ORCH_ENOMEM, 0, "spec", "no memory for the specification");
		goto fail;
	}
	if (confine_trees_list(confine, error) < 0)
		goto fail;
	return confine;
fail:
	confine_free(confine);
	return NULL;
}

bool confine_leaves_out(const struct confine *confine, uint64_t protection)
{
#ifdef ORCH_TEST_BUILD
	return confine && confine->header->without & protection;
#else
	(void)confine, (void)protection;
	return false;
#endif
}

const char *confine_cwd(const struct confine *confine)
{
	return confine->strings + confine->header->cwd;
}

const char *const *confine_environment(const struct confine *confine)
{
	return confine->environment;
}

/* --- what programs inherit from init -------------------------------------------------------- */

int confine_no_seccomp(int os_errno, struct setup_error *error)
{
	return confine_fail(error, ORCH_EUNENFORCEABLE, os_errno, "seccomp",
			    "protection seccomp can not be enforced: use a kernel with "
			    "CONFIG_SECCOMP_FILTER, or make the protection degradable");
}

static int set_filter(const struct confine *confine, struct setup_error *error)
{
	struct sock_fprog program = {
		.len = (unsigned short)confine->header->filter_count,
		.filter = (struct sock_filter *)confine->filter,
	};

	if (confine->header->seccomp == ORCH_PROTECT_OFF ||
	    confine_leaves_out(confine, ORCH_SPEC_WITHOUT_SECCOMP))
		return 0;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
		return 0;
	if (confine->header->seccomp == ORCH_PROTECT_DEGRADABLE)
		return 0;
	return confine_no_seccomp(errno, error);
}

int confine_check_seccomp(struct setup_error *error)
{
	uint32_t action = SECCOMP_RET_ERRNO;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0 ? 0
									       : confine_no_seccomp(errno, error);
}

int confine_keyring(const struct confine *confine, struct setup_error *error)
{
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_KEYRING) ||
	    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0 || errno == ENOSYS ||
	    confine->header->seccomp != ORCH_PROTECT_OFF)
		return 0;
	return confine_fail(error, ORCH_ESYS, errno, "keyring", "a session keyring of its own can not be made");
}

int confine_inherited(const struct confine *confine, struct setup_error *error)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "no_new_privs",
				    "no_new_privs can not be set");
	return set_filter(confine, error);
}

/* --- right before exec ---------------------------------------------------------------------- */

/* Without CAP_SYS_RESOURCE a limit can only be lowered: the host's own limit stays where it is
 * less. */
static int limit(const struct confine *confine, uint64_t protection, int resource, uint64_t value, const char *name, struct setup_error *error)
{
	struct rlimit now;

	if (confine_leaves_out(confine, protection))
		return 0;
	if (getrlimit(resource, &now) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "rlimit", "%s can not be read", name);
	if (now.rlim_max == RLIM_INFINITY || value < now.rlim_max)
		now.rlim_max = value;
	now.rlim_cur = now.rlim_max;
	if (setrlimit(resource, &now) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "rlimit", "%s can not be set to %llu",
				    name, (unsigned long long)value);
	return 0;
}

int confine_limits(const struct confine *confine, uint64_t processes, struct setup_error *error)
{
	const struct orch_spec_header *header = confine->header;

	if (limit(confine, ORCH_SPEC_WITHOUT_PROCESSES, RLIMIT_NPROC, processes,
		  "RLIMIT_NPROC", error) < 0 ||
	    limit(confine, ORCH_SPEC_WITHOUT_OPEN_FILES, RLIMIT_NOFILE, header->max_open_files,
		  "RLIMIT_NOFILE", error) < 0 ||
	    limit(confine, ORCH_SPEC_WITHOUT_FILE_SIZE, RLIMIT_FSIZE, header->max_file_bytes,
		  "RLIMIT_FSIZE", error) < 0 ||
	    limit(confine, ORCH_SPEC_WITHOUT_NO_CORE, RLIMIT_CORE, 0, "RLIMIT_CORE", error) < 0)
		return -1;
	if (!confine_leaves_out(confine, ORCH_SPEC_WITHOUT_UMASK))
		umask(022);
	return 0;
}

int confine_program(struct confine *confine, struct setup_error *error)
{
	if (confine->bare)
		return confine_bare_program(confine, error);
	return confine_limits(confine, confine->header->max_processes, error);
}

int confine_probe(const char *name)
{
	return orch_probe_main(name);
}
