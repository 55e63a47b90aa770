/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "../tree-private.h"

int tree_open(int dir_fd, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY)),
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};
	int fd;
	/* The kernel asks for a repetition when a rename elsewhere made it unsure that the path
	 * stayed beneath. */
	for (int tries = 0; tries < 100; tries++) {
		fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	return fd;
}

/* Takes `fd`, or an error that is in errno. */
static int looked(int fd, int *ret_fd, struct stat *status)
{
	_cleanup_close_ int own = fd;
	if (own < 0 || fstat(own, status) < 0)
		return -1;
	*ret_fd = orch_steal_fd(&own);
	return 0;
}

int tree_look(int dir_fd, const char *path, int *ret_fd, struct stat *status)
{
	return looked(tree_open(dir_fd, path, O_PATH | O_NOFOLLOW, 0), ret_fd, status);
}

int tree_look_root(const char *path, int *ret_fd, struct stat *status)
{
	return looked(open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), ret_fd, status);
}

static int reopen(int look_fd, int flags)
{
	char link[48];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", look_fd);
	return open(link, flags | O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

int tree_read_looked(int look_fd, bool quietly)
{
	int fd = reopen(look_fd, quietly ? O_NOATIME : 0);
	return fd < 0 && quietly && errno == EPERM ? reopen(look_fd, 0) : fd;
}

ssize_t tree_read_link(int look_fd, char *target, size_t size)
{
	return readlinkat(look_fd, "", target, size);
}

int tree_open_to_empty(int dir_fd, const char *name)
{
	_cleanup_close_ int fd = tree_open(dir_fd, name, O_PATH | O_NOFOLLOW | O_DIRECTORY, 0);
	struct stat status;
	if (fd < 0 || fstat(fd, &status) < 0)
		return -1;
	if ((status.st_mode & 0700) != 0700) {
		char link[48];
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (chmod(link, 0700) < 0 && errno != EPERM)
			return -1;
	}
	return openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}
