/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an overlay's upper side. All that is there was made by programs that are not trusted, and
 * may change meanwhile: nothing is followed, no mount is crossed, only regular files are opened for
 * reading.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "../changes.h"
#include "changes-open.h"

#define BLOCK 65536

struct walk {
	struct orch_changes *changes;
	uint32_t visited;
	struct orch_buf path; /* of the entry that is looked at */
	orch_error **reterr;
};

/* Two sides of one folder. The lower one is -1 where it has none. */
struct pair {
	int upper, lower;
	bool hides; /* what is only below is deleted */
	uint32_t depth;
};

int32_t orch_sandbox_check_overlay(orch_error **reterr)
{
	(void)reterr;
	return 0;
}

int changes_open(int folder, const char *name, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	int fd;

	/* EAGAIN: something was renamed meanwhile, and the kernel can not say that the path stayed
	 * below. */
	for (int tries = 0; tries < 32; tries++) {
		fd = (int)syscall(SYS_openat2, folder, name, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	return fd;
}

int changes_open_file(int folder, const char *name)
{
	struct stat st;
	int fd = changes_open(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);

	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
		close(fd);
		errno = ESTALE; /* it was one a moment ago */
		return -1;
	}
	return fd;
}

/* Through the descriptor: a name could be another file's by now. */
static bool set_mode(int path, mode_t mode)
{
	char own[64];

	snprintf(own, sizeof(own), "/proc/self/fd/%d", path);
	return chmod(own, mode & 07777) == 0;
}

static bool loosen(int path, const struct stat *st, mode_t needed)
{
	return geteuid() != 0 && st->st_uid == geteuid() && (st->st_mode & needed) != needed &&
	       set_mode(path, st->st_mode | needed);
}

bool changes_loosen(int path, const struct stat *st)
{
	return loosen(path, st, S_IRUSR | S_IXUSR);
}

void changes_restore(int path, const struct stat *st)
{
	set_mode(path, st->st_mode);
}

int changes_open_folder_anyway(int folder, const char *name, int path, const struct stat *st)
{
	bool loose = loosen(path, st, S_IRUSR);
	int fd = changes_open(folder, name, O_RDONLY | O_DIRECTORY), err = errno;

	if (loose)
		set_mode(path, st->st_mode);
	errno = err;
	return fd;
}

int changes_open_file_anyway(int folder, const char *name, int path, const struct stat *st)
{
	bool loose = loosen(path, st, S_IRUSR);
	int fd = changes_open_file(folder, name), err = errno;

	if (loose)
		set_mode(path, st->st_mode);
	errno = err;
	return fd;
}

static int32_t fail_at(const struct walk *walk, int os_errno)
{
	return orch_fail(walk->reterr, ORCH_ESYS, os_errno, "changes",
			 "%s can not be read in the overlay",
			 walk->path.length > 0 ? walk->path.data : ".");
}

/* --- rows ------------------------------------------------------------------------------------ */

static size_t enter(struct walk *walk, const char *name)
{
	size_t before = walk->path.length;

	if (before > 0)
		orch_buf_puts(&walk->path, "/");
	orch_buf_puts(&walk->path, name);
	return before;
}

static void leave(struct walk *walk, size_t before)
{
	if (walk->path.failed)
		return;
	walk->path.length = before;
	if (walk->path.data)
		walk->path.data[before] = '\0';
}

static int32_t visit(struct walk *walk, uint32_t depth)
{
	if (++walk->visited > CHANGES_MOST)
		return orch_fail(walk->reterr, ORCH_ETOOBIG, 0, "changes",
				 "the overlay holds more than %u paths", CHANGES_MOST);
	if (depth > CHANGES_DEEPEST)
		return orch_fail(walk->reterr, ORCH_ETOOBIG, 0, "changes",
				 "the overlay has folders deeper than %u", CHANGES_DEEPEST);
	return 0;
}

/* `st`: as it is now; NULL: deleted. */
static int32_t add(struct walk *walk, uint32_t kind, const struct stat *st)
{
	struct change change = {.kind = kind, .mode = st ? st->st_mode : 0};

	if (st && S_ISREG(st->st_mode))
		change.bytes = (uint64_t)st->st_size;
	const char *path = walk->path.length > 0 ? walk->path.data : ".";

	return changes_add(walk->changes, path, &change) ? 0 : orch_fail_memory(walk->reterr);
}

/* --- what is the same --------------------------------------------------------------------------
 */

static bool same_bytes(int one, int other)
{
	char *blocks = malloc(2 * BLOCK);
	bool same = blocks != NULL;

	for (off_t at = 0; same;) {
		ssize_t n = pread(one, blocks, BLOCK, at);

		if (n <= 0 || pread(other, blocks + BLOCK, BLOCK, at) != n ||
		    memcmp(blocks, blocks + BLOCK, (size_t)n) != 0) {
			same = n == 0;
			break;
		}
		at += n;
	}
	free(blocks);
	return same;
}

/* What can not be read to compare it counts as changed. */
static bool same_file(const struct pair *pair, const char *name, int upper_path,
		      const struct stat *upper)
{
	struct stat now;
	int lower_fd = changes_open_file(pair->lower, name);
	int upper_fd = changes_open_file_anyway(pair->upper, name, upper_path, upper);
	bool same = false;

	if (lower_fd >= 0 && upper_fd >= 0 && fstat(upper_fd, &now) == 0 &&
	    now.st_ino == upper->st_ino)
		same = same_bytes(upper_fd, lower_fd);
	orch_close_fd(&lower_fd);
	orch_close_fd(&upper_fd);
	return same;
}

static bool same_link(const struct pair *pair, const char *name)
{
	char one[4096], other[4096];
	ssize_t n = readlinkat(pair->upper, name, one, sizeof(one));

	return n >= 0 && readlinkat(pair->lower, name, other, sizeof(other)) == n &&
	       memcmp(one, other, (size_t)n) == 0;
}

static bool is_same(const struct pair *pair, const char *name, int upper_path,
		    const struct stat *upper, const struct stat *lower)
{
	if (upper->st_mode != lower->st_mode)
		return false;
	if (S_ISREG(upper->st_mode))
		return upper->st_size == lower->st_size && same_file(pair, name, upper_path, upper);
	if (S_ISLNK(upper->st_mode))
		return same_link(pair, name);
	return upper->st_rdev == lower->st_rdev;
}

/* --- the walk ----------------------------------------------------------------------------------
 */

typedef int32_t (*entry_fn)(struct walk *walk, const struct pair *pair, const char *name);

/* NUL-terminated, one behind the other. Read first: what stays open while inner folders are walked
 * is one descriptor less. */
static int32_t read_names(struct walk *walk, int folder, uint32_t depth, struct orch_buf *names)
{
	struct dirent *entry;
	int32_t code = 0;
	int copy = changes_open(folder, ".", O_RDONLY | O_DIRECTORY);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);

	if (!dir) {
		code = fail_at(walk, errno);
		orch_close_fd(&copy);
		return code;
	}
	while (code == 0 && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		orch_buf_add(names, entry->d_name, strlen(entry->d_name) + 1);
		code = visit(walk, depth);
	}
	closedir(dir);
	return code == 0 && names->failed ? orch_fail_memory(walk->reterr) : code;
}

/* The names in `folder`, one of the pair; both stay open. */
static int32_t for_each(struct walk *walk, const struct pair *pair, int folder, entry_fn fn)
{
	_cleanup_buf_ struct orch_buf names = {0};
	int32_t code = read_names(walk, folder, pair->depth, &names);

	for (size_t at = 0; code == 0 && at < names.length; at += strlen(names.data + at) + 1) {
		size_t before = enter(walk, names.data + at);

		code = walk->path.failed ? orch_fail_memory(walk->reterr)
					 : fn(walk, pair, names.data + at);
		leave(walk, before);
	}
	return code;
}

/* It was below, and everything in it. */
static int32_t add_deleted(struct walk *walk, const struct pair *pair, const char *name)
{
	struct stat st;
	struct pair inner = {.upper = -1, .depth = pair->depth + 1};

	if (fstatat(pair->lower, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail_at(walk, errno);
	int32_t code = add(walk, ORCH_CHANGE_DELETED, NULL);

	if (code < 0 || !S_ISDIR(st.st_mode))
		return code;
	inner.lower = changes_open(pair->lower, name, O_RDONLY | O_DIRECTORY);
	/* Programs saw nothing of a folder that may not be read. */
	if (inner.lower < 0)
		return errno == EACCES || errno == ENOENT ? 0 : fail_at(walk, errno);
	code = for_each(walk, &inner, inner.lower, add_deleted);
	orch_close_fd(&inner.lower);
	return code;
}

static int32_t add_hidden(struct walk *walk, const struct pair *pair, const char *name)
{
	struct stat st;

	if (fstatat(pair->upper, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return errno == ENOENT ? add_deleted(walk, pair, name) : fail_at(walk, errno);
}

static bool is_opaque(int folder)
{
	char value[2];

	return fgetxattr(folder, "user.overlay.opaque", value, sizeof(value)) == 1 &&
	       value[0] == 'y';
}

static int32_t compare_entry(struct walk *walk, const struct pair *pair, const char *name);

/* Takes pair->lower. */
static int32_t compare_folder(struct walk *walk, struct pair *pair, const struct stat *st)
{
	bool loose = changes_loosen(pair->upper, st);

	pair->hides = pair->hides || is_opaque(pair->upper);
	int32_t code = for_each(walk, pair, pair->upper, compare_entry);

	if (code == 0 && pair->hides && pair->lower >= 0)
		code = for_each(walk, pair, pair->lower, add_hidden);
	if (loose)
		changes_restore(pair->upper, st);
	orch_close_fd(&pair->lower);
	return code;
}

/* Closes `path`: the descriptors of one level are the two of its pair. */
static int32_t compare_inner(struct walk *walk, const struct pair *pair, const char *name,
			     int *path, const struct stat *upper, const struct stat *lower)
{
	struct pair inner = {
		.upper = -1, .lower = -1, .hides = pair->hides, .depth = pair->depth + 1};
	int32_t code = 0;

	if (!lower)
		code = add(walk, ORCH_CHANGE_ADDED, upper);
	else if (lower->st_mode != upper->st_mode)
		code = add(walk, ORCH_CHANGE_MODIFIED, upper);
	if (code < 0)
		return code;
	inner.upper = changes_open_folder_anyway(pair->upper, name, *path, upper);
	int err = errno;

	orch_close_fd(path);
	errno = err;
	if (inner.upper < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : fail_at(walk, errno);
	if (lower && S_ISDIR(lower->st_mode)) {
		inner.lower = changes_open(pair->lower, name, O_RDONLY | O_DIRECTORY);
		if (inner.lower < 0 && errno != EACCES)
			code = fail_at(walk, errno);
	}
	if (code == 0)
		code = compare_folder(walk, &inner, upper);
	orch_close_fd(&inner.upper);
	return code;
}

/* A folder that something else replaced: its own row is there. */
static int32_t add_inner_deleted(struct walk *walk, const struct pair *pair, const char *name)
{
	struct pair inner = {.upper = -1, .depth = pair->depth + 1};
	int32_t code;

	inner.lower = changes_open(pair->lower, name, O_RDONLY | O_DIRECTORY);
	if (inner.lower < 0)
		return errno == EACCES ? 0 : fail_at(walk, errno);
	code = for_each(walk, &inner, inner.lower, add_deleted);
	orch_close_fd(&inner.lower);
	return code;
}

static int32_t compare_opened(struct walk *walk, const struct pair *pair, const char *name,
			      int *path)
{
	struct stat upper, lower;
	bool below =
		pair->lower >= 0 && fstatat(pair->lower, name, &lower, AT_SYMLINK_NOFOLLOW) == 0;

	if (fstat(*path, &upper) < 0)
		return fail_at(walk, errno);
	/* How overlayfs writes down that a name is no more. Nobody inside can make any device. */
	if (S_ISCHR(upper.st_mode) && upper.st_rdev == makedev(0, 0))
		return below ? add_deleted(walk, pair, name) : 0;
	if (S_ISDIR(upper.st_mode))
		return compare_inner(walk, pair, name, path, &upper, below ? &lower : NULL);
	if (!below)
		return add(walk, ORCH_CHANGE_ADDED, &upper);
	if (is_same(pair, name, *path, &upper, &lower))
		return 0;
	int32_t code = add(walk, ORCH_CHANGE_MODIFIED, &upper);

	return code == 0 && S_ISDIR(lower.st_mode) ? add_inner_deleted(walk, pair, name) : code;
}

static int32_t compare_entry(struct walk *walk, const struct pair *pair, const char *name)
{
	int path = changes_open(pair->upper, name, O_PATH);
	int32_t code;

	if (path < 0)
		return errno == ENOENT ? 0 : fail_at(walk, errno);
	code = compare_opened(walk, pair, name, &path);
	orch_close_fd(&path);
	return code;
}

int32_t changes_read(struct orch_changes *changes, int private_fd, int lower_fd,
		     orch_error **reterr)
{
	struct walk walk = {.changes = changes, .reterr = reterr};
	struct stat upper, lower;
	_cleanup_close_ int path = changes_open(private_fd, "upper", O_PATH);
	struct pair pair = {.upper = -1, .lower = -1, .depth = 1};
	int32_t code = 0;

	if (path < 0 || fstat(path, &upper) < 0 || fstat(lower_fd, &lower) < 0)
		return fail_at(&walk, errno);
	if (upper.st_mode != lower.st_mode)
		code = add(&walk, ORCH_CHANGE_MODIFIED, &upper);
	pair.upper = changes_open_folder_anyway(private_fd, "upper", path, &upper);
	pair.lower = changes_open(lower_fd, ".", O_RDONLY | O_DIRECTORY);
	if (code == 0 && (pair.upper < 0 || pair.lower < 0))
		code = fail_at(&walk, errno);
	if (code == 0)
		code = compare_folder(&walk, &pair, &upper);
	orch_close_fd(&pair.lower);
	orch_close_fd(&pair.upper);
	orch_buf_free(&walk.path);
	return code;
}
