/* SPDX-License-Identifier: Apache-2.0 */
/*
 * macOS has neither openat2(2) nor O_PATH. A path is walked by its components here, each opened
 * without following links and compared with the file system that the walk began on;
 * O_RESOLVE_BENEATH would be shorter, but a kernel that does not know it ignores it. What stands
 * for an entry is the entry opened for reading, after a look at its kind: a pipe, socket or device
 * is never opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "../tree-private.h"

/* How often an entry may be exchanged while it is looked at. */
#define LOOK_TRIES 100

/* Takes `fd`. A link that O_DIRECTORY and O_NOFOLLOW refused is told apart from a file: ELOOP. */
static int check_opened(int fd, int parent, const char *name, dev_t device)
{
	struct stat status;
	int error = errno;
	if (fd < 0) {
		if (error == ENOTDIR && fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISLNK(status.st_mode))
			error = ELOOP;
		errno = error;
		return -1;
	}
	if (fstat(fd, &status) == 0 && status.st_dev == device)
		return fd;
	close(fd);
	errno = EXDEV;
	return -1;
}

/* The folder that the last component of `path` is in; `name` has room for NAME_MAX + 1. */
static int open_parent(int dir_fd, const char *path, char *name, dev_t *ret_device)
{
	struct stat status;
	if (fstat(dir_fd, &status) < 0)
		return -1;
	*ret_device = status.st_dev;
	_cleanup_close_ int parent = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	while (parent >= 0) {
		size_t length = strcspn(path, "/");
		bool last = !path[length];
		if (length > NAME_MAX) {
			errno = ENAMETOOLONG;
			return -1;
		}
		/* As openat2() answers for what is not beneath. */
		if (!length || (length == 2 && !strncmp(path, "..", 2))) {
			errno = EXDEV;
			return -1;
		}
		memcpy(name, path, length);
		name[length] = '\0';
		if (last)
			return orch_steal_fd(&parent);
		int inner = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		inner = check_opened(inner, parent, name, status.st_dev);
		if (inner < 0)
			return -1;
		close(parent);
		parent = inner;
		path += length + 1;
	}
	return -1;
}

int tree_open(int dir_fd, const char *path, int flags, mode_t mode)
{
	char name[NAME_MAX + 1];
	dev_t device;
	_cleanup_close_ int parent = open_parent(dir_fd, path, name, &device);
	if (parent < 0)
		return -1;
	int fd = openat(parent, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, mode);
	return check_opened(fd, parent, name, device);
}

/* 0 with -1 for what has no descriptor; -1 with EAGAIN if another entry came in between. */
static int open_as_seen(int parent, const char *name, int *ret_fd, struct stat *status)
{
	struct stat opened;
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	if (fstatat(parent, name, status, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	switch (status->st_mode & S_IFMT) {
	case S_IFREG:
		flags |= O_NOFOLLOW;
		break;
	case S_IFDIR:
		flags |= O_NOFOLLOW | O_DIRECTORY;
		break;
	case S_IFLNK:
		flags |= O_SYMLINK;
		break;
	default:
		*ret_fd = -1;
		return 0;
	}
	_cleanup_close_ int fd = openat(parent, name, flags);
	if (fd < 0 && errno != ENOENT && errno != ELOOP && errno != ENOTDIR)
		return -1;
	if (fd < 0 || fstat(fd, &opened) < 0 || opened.st_dev != status->st_dev ||
	    opened.st_ino != status->st_ino ||
	    (opened.st_mode & S_IFMT) != (status->st_mode & S_IFMT)) {
		errno = EAGAIN;
		return -1;
	}
	*status = opened;
	*ret_fd = orch_steal_fd(&fd);
	return 0;
}

int tree_look(int dir_fd, const char *path, int *ret_fd, struct stat *status)
{
	char name[NAME_MAX + 1];
	dev_t device;
	_cleanup_close_ int parent = open_parent(dir_fd, path, name, &device);
	if (parent < 0)
		return -1;
	int r = -1;
	for (int tries = 0; tries < LOOK_TRIES; tries++) {
		r = open_as_seen(parent, name, ret_fd, status);
		if (r == 0 || errno != EAGAIN)
			break;
	}
	if (r == 0 && status->st_dev != device) {
		orch_close_fd(ret_fd);
		errno = EXDEV;
		return -1;
	}
	return r;
}

int tree_look_root(const char *path, int *ret_fd, struct stat *status)
{
	return open_as_seen(AT_FDCWD, path, ret_fd, status);
}

int tree_read_looked(int look_fd, bool quietly)
{
	/* It is open for reading, and nobody has read from it. There is no O_NOATIME. */
	(void)quietly;
	return fcntl(look_fd, F_DUPFD_CLOEXEC, 3);
}

ssize_t tree_read_link(int look_fd, char *target, size_t size)
{
	return freadlink(look_fd, target, size);
}

int tree_open_to_empty(int dir_fd, const char *name)
{
	struct stat status, folder;
	if (fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || fstat(dir_fd, &folder) < 0)
		return -1;
	if (status.st_dev != folder.st_dev) {
		errno = EXDEV;
		return -1;
	}
	if ((status.st_mode & 0700) != 0700 && S_ISDIR(status.st_mode) &&
	    fchmodat(dir_fd, name, 0700, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM)
		return -1;
	return tree_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
}
