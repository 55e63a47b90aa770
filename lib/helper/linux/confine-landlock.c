/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second layer: what the mounts allow is allowed again, by inode, in a Landlock domain that
 * init and with it every program of the scope lives in. TCP is left to the network namespace:
 * servers inside are reached at ports that nobody knows beforehand, and Landlock has no rule for
 * "any port but outside".
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine-private.h"

/* Newer than the kernel headers of Debian 12 (uapi/linux/landlock.h of Linux 6.12). */
#define FS_TRUNCATE (1ull << 14)	       /* ABI 3 */
#define FS_IOCTL_DEV (1ull << 15)	       /* ABI 5 */
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ull << 0) /* ABI 6 */
#define SCOPE_SIGNAL (1ull << 1)

struct ruleset_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net; /* ABI 4 */
	uint64_t scoped;	     /* ABI 6 */
};

#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_DEVICE                                                                                  \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_IOCTL_DEV | FS_TRUNCATE)
/* No MAKE_CHAR and MAKE_BLOCK: nobody inside has a use for them. */
#define FS_WRITE                                                                                   \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                           \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |                            \
	 LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |                              \
	 LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER |   \
	 FS_TRUNCATE | FS_IOCTL_DEV)
#define FS_OF_FILES                                                                                \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |                              \
	 LANDLOCK_ACCESS_FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

static uint64_t handled_fs(int abi)
{
	uint64_t handled = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

	if (abi >= 2)
		handled |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		handled |= FS_TRUNCATE;
	if (abi >= 5)
		handled |= FS_IOCTL_DEV;
	return handled;
}

static uint64_t wanted_fs(const struct confine_tree *tree)
{
	if (tree->device)
		return FS_DEVICE;
	return (tree->access & ORCH_PATH_READ ? FS_READ : 0) |
	       (tree->access & ORCH_PATH_WRITE ? FS_WRITE : 0) |
	       (tree->access & ORCH_PATH_EXEC ? LANDLOCK_ACCESS_FS_EXECUTE : 0);
}

/* Highest ABI that is used, 0 without Landlock: then errno says why. */
static int usable_abi(const struct confine *confine)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	uint32_t most = confine->header->landlock_abi;

	if (abi < 1)
		return 0;
	return most && abi > most ? (int)most : (int)abi;
}

static int new_ruleset(int abi, struct setup_error *error)
{
	struct ruleset_attr attr = {.handled_access_fs = handled_fs(abi)};

	if (abi >= 6)
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
	/* An older kernel takes a longer structure whose tail is zero. */
	int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	if (ruleset < 0)
		setup_fail(error, ORCH_ESYS, errno, "landlock", "no ruleset can be made");
	return ruleset;
}

static int allow_fd(int ruleset, uint64_t handled, int fd, const char *path, uint64_t access,
		    struct setup_error *error)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access & handled, .parent_fd = fd};
	struct stat st;

	if (fstat(fd, &st) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "landlock", "%s can not be opened", path);
	if (!S_ISDIR(st.st_mode))
		rule.allowed_access &= FS_OF_FILES;
	if (rule.allowed_access &&
	    syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "landlock", "no rule for %s", path);
	return 0;
}

static int allow(int ruleset, uint64_t handled, const char *path, uint64_t access,
		 struct setup_error *error)
{
	int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return confine_fail(error, ORCH_ESYS, errno, "landlock", "%s can not be opened", path);
	int result = allow_fd(ruleset, handled, fd, path, access, error);

	close(fd);
	return result;
}

static int allow_all(const struct confine *confine, int ruleset, uint64_t handled,
		     struct setup_error *error)
{
	/* /proc holds nothing but the load's own processes, and programs write there (comm,
	 * oom_score_adj). */
	const struct {
		const char *path;
		uint64_t access;
	} fixed[] = {
		{"/proc", FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE},
		{"/dev", LANDLOCK_ACCESS_FS_READ_DIR},
		{"/dev/pts", FS_READ | FS_DEVICE},
		{"/dev/shm", FS_READ | FS_WRITE},
		{"/tmp", FS_READ | FS_WRITE | LANDLOCK_ACCESS_FS_EXECUTE},
	};
	bool all_readable = true;

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (allow(ruleset, handled, fixed[i].path, fixed[i].access, error) < 0)
			return -1;
	/* Without the mount and its rule Landlock takes each queue for a file that is nowhere, and refuses it. */
	if (confine->queues && allow(ruleset, handled, "/dev/mqueue", FS_READ | FS_WRITE, error) < 0)
		return -1;
	if (confine->header->root == ORCH_ROOT_TOOLS &&
	    allow(ruleset, handled, "/etc", FS_READ, error) < 0)
		return -1;
	for (size_t i = 0; i < confine->tree_count; i++) {
		const struct confine_tree *tree = &confine->trees[i];

		if (!tree->attached || tree->surplus)
			continue;
		all_readable = all_readable && tree->access & ORCH_PATH_READ;
		/* The rule for /etc is theirs too. */
		if (tree->optional && tree->access == ORCH_PATH_READ && confine_is_below(tree->inner, "/etc"))
			continue;
		if (allow_fd(ruleset, handled, tree->fd, tree->inner, wanted_fs(tree), error) < 0)
			return -1;
	}
	/* Listing "/" would be inherited by everything below it. */
	if (all_readable)
		return allow(ruleset, handled, "/", LANDLOCK_ACCESS_FS_READ_DIR, error);
	return 0;
}

static int no_landlock(int os_errno, const char *remedy, struct setup_error *error)
{
	return confine_fail(error, ORCH_EUNENFORCEABLE, os_errno, "landlock",
			    "protection landlock can not be enforced: boot a kernel with "
			    "CONFIG_SECURITY_LANDLOCK and lsm=landlock,...%s", remedy);
}

int confine_landlock_enter(int ruleset, struct setup_error *error)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "landlock", "the domain can not be entered");
	return 0;
}

int confine_landlock(struct confine *confine, struct setup_error *error)
{
	if (confine->header->landlock == ORCH_PROTECT_OFF ||
	    confine_leaves_out(confine, ORCH_SPEC_WITHOUT_LANDLOCK))
		return 0;
	int abi = usable_abi(confine);

	if (abi < 1) {
		if (confine->header->landlock == ORCH_PROTECT_DEGRADABLE)
			return 0;
		return no_landlock(errno, ", or make the protection degradable", error);
	}
	confine->ruleset_fd = new_ruleset(abi, error);
	return confine->ruleset_fd < 0 ? -1 : allow_all(confine, confine->ruleset_fd, handled_fs(abi), error);
}

int confine_landlock_bare(const struct confine *confine, struct setup_error *error)
{
	int abi = usable_abi(confine);

	if (abi < 1)
		return no_landlock(errno, ": without namespaces it is required whatever its level", error);
	int ruleset = new_ruleset(abi, error);

	for (size_t i = 0; ruleset >= 0 && i < confine->tree_count; i++) {
		const struct confine_tree *tree = &confine->trees[i];

		if (tree->fd >= 0 &&
		    allow_fd(ruleset, handled_fs(abi), tree->fd, tree->host, wanted_fs(tree), error) < 0) {
			close(ruleset);
			return -1;
		}
	}
	return ruleset;
}
