/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A denied path that is missing can only be covered where something is: an empty file or folder of a mode that nothing else
 * has is made for it on the host, and removed when the load is dead. Sandboxes over the same folder share them, and what a
 * host left that was killed is taken for one's own: each holds a shared lock on the folder (flock(2)), and who gets it
 * alone at its end removes.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../sandbox-private.h"
#include "../spec.h"

#define FILE_MODE (S_ISVTX | 0400)
#define FOLDER_MODE (S_ISVTX | 0700)
/* How often, and after how many ms again, another one that removes just now is waited for. */
#define LOCK_TRIES 50
#define LOCK_PAUSE_MS 2

struct placeholder {
	size_t base;
	char *path; /* below the base */
	dev_t device;
	ino_t inode;
};

/* A declared folder of the host, with a shared lock. */
struct base {
	int fd;
	char *host;
};

struct sandbox_placeholders {
	pid_t owner; /* not its forked children */
	struct base *bases;
	size_t base_count;
	size_t base; /* while they are made: the one that the denied path lies in */
	struct placeholder *entries; /* folders before what lies in them */
	size_t count;
};

static int open_below(int folder, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, folder, path, &how, sizeof(how));
}

/* The folder that `path` lies in; its last part in *ret_name. */
static int open_parent(int base, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	if (!slash)
		return fcntl(base, F_DUPFD_CLOEXEC, 0);
	_cleanup_free_ char *parent = strndup(path, (size_t)(slash - path));

	if (!parent) {
		errno = ENOMEM;
		return -1;
	}
	return open_below(base, parent, O_PATH | O_DIRECTORY);
}

static bool is_placeholder(const struct stat *st)
{
	return S_ISDIR(st->st_mode) ? (st->st_mode & 07777) == FOLDER_MODE
				    : S_ISREG(st->st_mode) && (st->st_mode & 07777) == FILE_MODE && st->st_size == 0 &&
					      st->st_nlink == 1;
}

/* --- removing ------------------------------------------------------------------------------- */

static void close_base(struct base *base)
{
	orch_close_in_child_no_more(&base->fd);
	orch_close_fd(&base->fd);
	free(base->host);
}

static void remove_entry(const struct sandbox_placeholders *all, const struct placeholder *entry)
{
	struct stat st;
	const char *name = NULL;
	_cleanup_close_ int parent = open_parent(all->bases[entry->base].fd, entry->path, &name);

	if (parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	/* Whatever else took its place stays, and so does a folder that something is in. */
	if (st.st_dev == entry->device && st.st_ino == entry->inode && is_placeholder(&st))
		unlinkat(parent, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

void orch_placeholders_remove(void *placeholders)
{
	struct sandbox_placeholders *all = placeholders;

	if (!all)
		return;
	bool mine = all->owner == getpid();

	for (size_t i = 0; mine && i < all->base_count; i++)
		if (flock(all->bases[i].fd, LOCK_EX | LOCK_NB) == 0)
			for (size_t j = all->count; j > 0; j--)
				if (all->entries[j - 1].base == i)
					remove_entry(all, &all->entries[j - 1]);
	for (size_t i = 0; i < all->base_count; i++)
		close_base(&all->bases[i]);
	for (size_t i = 0; i < all->count; i++)
		free(all->entries[i].path);
	free(all->bases);
	free(all->entries);
	free(all);
}

/* --- making --------------------------------------------------------------------------------- */

/* Without the lock goes on all the same: then somebody else's placeholders may be removed too early. */
static void lock(int fd)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};

	for (int i = 0; i < LOCK_TRIES && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK; i++)
		nanosleep(&pause, NULL);
}

/* Two locks of one process would be in each other's way. -1 with errno. */
static int find_base(struct sandbox_placeholders *all, const char *host)
{
	for (all->base = 0; all->base < all->base_count; all->base++)
		if (strcmp(all->bases[all->base].host, host) == 0)
			return 0;
	struct base *base = &all->bases[all->base];

	*base = (struct base){.fd = open(host, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .host = strdup(host)};
	if (base->fd < 0 || !base->host || !orch_close_in_child(&base->fd)) {
		int err = base->fd < 0 ? errno : ENOMEM;

		orch_close_fd(&base->fd);
		free(base->host);
		errno = err;
		return -1;
	}
	all->base_count++;
	lock(base->fd);
	return 0;
}

/* Nothing in it is held: a descriptor less. */
static void drop_idle_base(struct sandbox_placeholders *all)
{
	size_t last = all->base_count - 1;

	if (all->base_count == 0 || (all->count > 0 && all->entries[all->count - 1].base == last))
		return;
	for (size_t i = 0; i < all->count; i++)
		if (all->entries[i].base == last)
			return;
	close_base(&all->bases[last]);
	all->base_count = last;
}

static bool add_entry(struct sandbox_placeholders *all, const char *path, const struct stat *st)
{
	if ((all->count & (all->count + 1)) == 0) {
		struct placeholder *entries = realloc(all->entries, 2 * (all->count + 1) * sizeof(*entries));

		if (!entries)
			return false;
		all->entries = entries;
	}
	struct placeholder *entry = &all->entries[all->count];

	*entry = (struct placeholder){
		.base = all->base, .path = strdup(path), .device = st->st_dev, .inode = st->st_ino};
	if (!entry->path)
		return false;
	all->count++;
	return true;
}

/* In the folder of another user it is that one's, who can remove it then. */
static int make_entry(int parent, const char *name, bool folder)
{
	struct stat st;
	int made = folder ? mkdirat(parent, name, 0700) : mknodat(parent, name, S_IFREG | 0600, 0);

	if (made < 0)
		return errno == EEXIST ? 0 : -1;
	if (geteuid() == 0 && fstat(parent, &st) == 0 &&
	    fchownat(parent, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	return fchmodat(parent, name, folder ? FOLDER_MODE : FILE_MODE, 0);
}

/* Makes it if it is missing, and notes it if it is a placeholder. -1 with errno. */
static int hold(struct sandbox_placeholders *all, const char *path, bool folder, bool may_make)
{
	struct stat st;
	const char *name = NULL;
	_cleanup_close_ int parent = open_parent(all->bases[all->base].fd, path, &name);

	if (parent < 0)
		return -1;
	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT || !may_make)
			return -1;
		if (make_entry(parent, name, folder) < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -1;
	}
	if (is_placeholder(&st) && !add_entry(all, path, &st)) {
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

/* The folders on the way are placeholders too: whoever makes them inside makes the denied path next. */
static int hold_way(struct sandbox_placeholders *all, const char *path, bool folder, bool writable)
{
	char *way = strdup(path);
	int result = 0;

	if (!way) {
		errno = ENOMEM;
		return -1;
	}
	for (char *slash = strchr(way, '/'); result == 0 && slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		result = hold(all, way, true, writable);
		*slash = '/';
	}
	if (result == 0)
		result = hold(all, way, folder, true);
	int err = errno;

	free(way);
	errno = err;
	return result;
}

/* The declared folder that the denied path lies in, if it is one of the host's. */
static const struct sandbox_path *folder_of(const orch_sandbox *sandbox, const struct sandbox_path *denial)
{
	_cleanup_free_ char *parent = strndup(denial->inner, (size_t)(strrchr(denial->inner, '/') - denial->inner));
	const struct sandbox_path *folder = parent && *parent ? orch_rule_over(sandbox, parent) : NULL;

	return folder && folder->kind == ORCH_SPEC_BIND ? folder : NULL;
}

static int32_t hold_denial(struct sandbox_placeholders *all, const struct sandbox_path *folder,
			   const struct sandbox_path *denial, bool passed, orch_error **reterr)
{
	const char *path = denial->inner + strlen(folder->inner) + 1;
	bool writable = orch_rule_access(folder) & ORCH_PATH_WRITE;

	if (find_base(all, folder->host) < 0) {
		/* orch-reaper says it, or the denied path lies in a file. */
		if (errno == ENOENT || errno == ENOTDIR)
			return 0;
		return orch_fail(reterr, ORCH_ESYS, errno, "deny", "host path %s can not be opened", folder->host);
	}
	if (hold_way(all, path, passed || denial->kind == ORCH_SPEC_DENY_FOLDER, writable) == 0)
		return 0;
	if (errno == ENOMEM)
		return orch_fail_memory(reterr);
	/* A link or a file on the way: orch-reaper's to judge. Where nobody inside can make it, there is no promise. */
	if (errno == ELOOP || errno == ENOTDIR || errno == EROFS || !writable)
		return 0;
	return orch_fail(reterr, ORCH_EUNENFORCEABLE, errno, "deny",
			 "%s is denied and missing, and no placeholder can be made for it in %s: make it, or deny the folder "
			 "around it",
			 denial->inner, folder->host);
}

int32_t orch_placeholders_make(const orch_sandbox *sandbox, struct sandbox_placeholders **ret_placeholders,
			       orch_error **reterr)
{
	struct sandbox_rules rules = {0};
	int32_t code = orch_rules_resolve(sandbox, &rules, reterr);

	if (code < 0)
		return code;
	struct sandbox_placeholders *all = calloc(1, sizeof(*all));

	if (all)
		all->bases = calloc(rules.count + 1, sizeof(*all->bases));
	if (!all || !all->bases)
		code = orch_fail_memory(reterr);
	else
		all->owner = getpid();
	const struct sandbox_path *before = NULL;

	for (size_t i = 0; code == 0 && i < rules.count; i++) {
		const struct sandbox_path *rule = rules.rules[i];
		const struct sandbox_path *folder = orch_rule_denies(rule) ? folder_of(sandbox, rule) : NULL;
		bool passed = i + 1 < rules.count && orch_path_is_below(rules.rules[i + 1]->inner, rule->inner);

		if (!folder)
			continue;
		if (folder != before)
			drop_idle_base(all);
		before = folder;
		code = hold_denial(all, folder, rule, passed, reterr);
	}
	if (code == 0)
		drop_idle_base(all);
	free(rules.rules);
	if (code < 0) {
		orch_placeholders_remove(all);
		return code;
	}
	*ret_placeholders = all;
	return 0;
}
