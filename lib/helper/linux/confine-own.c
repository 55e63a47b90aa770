/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing a folder over to the uid of a scope, as root, in a tree that an earlier load may have
 * filled: nothing is followed, no mount is crossed, and a file that has another name elsewhere
 * keeps its owner.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine-private.h"

/* Each level keeps one descriptor open. */
#define DEEPEST 256

struct walk {
	uid_t uid;
	const char *path;
	struct setup_error *error;
};

static int open_below(int folder, const char *name, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH,
	};

	return (int)syscall(SYS_openat2, folder, name, &how, sizeof(how));
}

static int take(struct walk *walk, int fd, const char *name, const struct stat *st)
{
	if (st->st_uid == walk->uid && st->st_gid == walk->uid)
		return 0;
	/*
	 * The other name may be anywhere on the file system, /etc/shadow included. Where everybody
	 * may read it anyway (objects of a local git clone) the load can use it as it is.
	 */
	if (S_ISREG(st->st_mode) && st->st_nlink > 1) {
		if (st->st_mode & S_IROTH)
			return 0;
		return confine_fail(
			walk->error, ORCH_EDENIED, 0, "mount.own",
			"%s in %s has %lu hard links and can not be handed to the sandbox: "
			"replace it by a copy",
			name, walk->path, (unsigned long)st->st_nlink);
	}
	if (fchownat(fd, "", walk->uid, walk->uid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
		return confine_fail(walk->error, ORCH_ESYS, errno, "mount.own",
				    "%s in %s can not be handed to uid %u", name, walk->path,
				    walk->uid);
	return 0;
}

/* `folder` is closed. */
static int take_entries(struct walk *walk, int folder, int depth);

static int take_entry(struct walk *walk, int folder, const char *name, int depth)
{
	struct stat st;
	int fd = open_below(folder, name, O_PATH), result = -1;

	/* Gone meanwhile, or a mount: not ours. */
	if (fd < 0 && (errno == ENOENT || errno == EXDEV))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0) {
		setup_fail(walk->error, ORCH_ESYS, errno, "mount.own", "%s in %s", name,
			   walk->path);
		goto out;
	}
	result = take(walk, fd, name, &st);
	if (result == 0 && S_ISDIR(st.st_mode)) {
		int below = open_below(fd, ".", O_RDONLY | O_DIRECTORY);

		if (below < 0)
			result = confine_fail(walk->error, ORCH_ESYS, errno, "mount.own",
					      "folder %s in %s", name, walk->path);
		else
			result = take_entries(walk, below, depth + 1);
	}
out:
	if (fd >= 0)
		close(fd);
	return result;
}

static int take_entries(struct walk *walk, int folder, int depth)
{
	struct dirent *entry;
	int result = 0;
	DIR *dir = fdopendir(folder);

	if (!dir) {
		close(folder);
		return confine_fail(walk->error, ORCH_ESYS, errno, "mount.own", "%s", walk->path);
	}
	if (depth > DEEPEST)
		result = confine_fail(walk->error, ORCH_ETOOBIG, 0, "mount.own",
				      "%s has folders nested deeper than %d: flatten it",
				      walk->path, DEEPEST);
	while (result == 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			result = take_entry(walk, dirfd(dir), entry->d_name, depth);
	closedir(dir);
	return result;
}

int confine_own(int fd, const char *path, uid_t uid, struct setup_error *error)
{
	struct walk walk = {.uid = uid, .path = path, .error = error};
	struct stat st;

	if (fstat(fd, &st) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "mount.own", "%s", path);
	if (take(&walk, fd, "it", &st) < 0)
		return -1;
	if (!S_ISDIR(st.st_mode))
		return 0;
	int folder = open_below(fd, ".", O_RDONLY | O_DIRECTORY);

	if (folder < 0)
		return confine_fail(error, ORCH_ESYS, errno, "mount.own", "%s", path);
	return take_entries(&walk, folder, 1);
}
