/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt at a path; the same inside and outside. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "matrix.h"

const char *expand(const char *text)
{
	static char buffers[8][256];
	static unsigned next;
	char *to = buffers[next++ % 8];
	size_t length = 0;

	for (; *text && length < 200; text++) {
		const char *part = NULL;
		char number[16];

		switch (*text == '%' ? *++text : '\0') {
		case 'P':
			part = place.folder;
			break;
		case 'W':
			part = place.inside ? "/work" : expand("%P/work");
			break;
		case 'R':
			part = place.inside ? "/ro" : expand("%P/ro");
			break;
		case 'X':
			part = place.inside ? "/programs" : NULL;
			break;
		case 'D':
			part = place.inside ? "/devices" : NULL;
			break;
		case 'T':
			part = place.inside ? "/tmp" : expand("%P/tmp");
			break;
		case 'V':
			snprintf(number, sizeof(number), "%d", place.victim);
			part = number;
			break;
		case 'I':
			snprintf(number, sizeof(number), "%d", place.inside ? 1 : place.victim);
			part = number;
			break;
		default:
			to[length++] = *text;
			continue;
		}
		length += (size_t)(part ? snprintf(to + length, 256 - length, "%s", part)
					: snprintf(to + length, 256 - length, "%s/%s", place.base,
						   *text == 'X' ? "programs" : "devices"));
	}
	to[length] = '\0';
	return to;
}

static int closed(int fd)
{
	if (fd >= 0)
		close(fd);
	return tried(fd >= 0);
}

static int read_one(int fd)
{
	char byte;
	ssize_t n = fd < 0 ? -1 : read(fd, &byte, 1);
	int err = errno;

	if (fd >= 0)
		close(fd);
	errno = err;
	return tried(n >= 0);
}

static int list(const char *path)
{
	DIR *folder = opendir(path);
	bool found = folder && readdir(folder);
	int err = errno;

	if (folder)
		closedir(folder);
	errno = err;
	return tried(found);
}

/* Its exit code is 0, or the errno of exec. */
static int execute(const char *path, const char *argument)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		execl(path, path, argument, NULL);
		_exit(errno);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return UNTRIED;
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
	return tried(errno == 0);
}

static int watch(const char *path)
{
	int fd = inotify_init1(IN_CLOEXEC), watched = fd < 0 ? -1 : inotify_add_watch(fd, path, IN_MODIFY);

	return tried(watched >= 0);
}

/* A name beside `path` that is gone afterwards. */
static const char *beside(const char *path)
{
	static char name[300];

	snprintf(name, sizeof(name), "%s/new-%d", path, (int)getpid());
	return name;
}

static int and_unlink(bool made, const char *path)
{
	int err = errno;

	if (made)
		remove(path);
	errno = err;
	return tried(made);
}

static int reopen(const char *path)
{
	char name[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return UNTRIED;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return closed(open(name, O_WRONLY | O_CLOEXEC));
}

/* From the workspace's descriptor upwards, as often as it takes, and down again to `path`. */
static int up(const char *path)
{
	char name[300];
	int fd = open(expand("%W"), O_PATH | O_CLOEXEC);

	if (fd < 0)
		return UNTRIED;
	snprintf(name, sizeof(name), "../../../../../../../..%s", path);
	return read_one(openat(fd, name, O_RDONLY | O_CLOEXEC));
}

static int bind_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	return and_unlink(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, path);
}

static int rename_there_and_back(const char *path)
{
	char other[300];

	snprintf(other, sizeof(other), "%s-moved", path);
	if (rename(path, other) < 0)
		return DENIED;
	return tried(rename(other, path) == 0);
}

int attempt_file(const struct row *row)
{
	const char *path = expand(row->text);
	struct stat st;
	struct statfs fs;
	char bytes[256];
	struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
	int fd;

	switch (row->a) {
	case FILE_READ:
		return read_one(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	case FILE_WRITE:
		return closed(open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK));
	case FILE_STAT:
		return tried(stat(path, &st) == 0);
	case FILE_ACCESS:
		return tried(access(path, R_OK) == 0);
	case FILE_LIST:
		return list(path);
	case FILE_LINK:
		return and_unlink(link(path, beside(expand("%W"))) == 0, beside(expand("%W")));
	case FILE_RENAME:
		return rename_there_and_back(path);
	case FILE_TRUNCATE:
		return tried(truncate(path, 6) == 0);
	case FILE_GETXATTR:
		return tried(getxattr(path, "user.matrix", bytes, sizeof(bytes)) >= 0);
	case FILE_SETXATTR:
		return tried(setxattr(path, "user.matrix", "2", 1, 0) == 0);
	case FILE_EXEC:
		return execute(path, "--nothing");
	case FILE_GAIN:
		return execute(path, "--gained");
	case FILE_CHMOD:
		return tried(chmod(path, 0666) == 0);
	case FILE_CHOWN:
		return tried(chown(path, (uid_t)-1, getegid()) == 0);
	case FILE_UTIMES:
		return tried(utimensat(AT_FDCWD, path, now, 0) == 0);
	case FILE_READLINK:
		return tried(readlink(path, bytes, sizeof(bytes)) > 0);
	case FILE_CHDIR:
		return tried(chdir(path) == 0);
	case FILE_WATCH:
		return watch(path);
	case FILE_CREATE:
		fd = open(beside(path), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		return and_unlink(fd >= 0, beside(path));
	case FILE_MKDIR:
		return and_unlink(mkdir(beside(path), 0700) == 0, beside(path));
	case FILE_SYMLINK:
		return and_unlink(symlink("to", beside(path)) == 0, beside(path));
	case FILE_FIFO:
		return and_unlink(mkfifo(beside(path), 0600) == 0, beside(path));
	case FILE_NODE:
		return and_unlink(mknod(beside(path), S_IFCHR | 0600, (dev_t)row->b) == 0, beside(path));
	case FILE_PATH:
		return closed(open(path, O_PATH | O_CLOEXEC));
	case FILE_STATFS:
		return tried(statfs(path, &fs) == 0);
	case FILE_REOPEN:
		return reopen(path);
	case FILE_UP:
		return up(path);
	case FILE_LOCK:
		fd = open(path, O_RDWR | O_CLOEXEC);
		return fd < 0 ? DENIED : tried(flock(fd, LOCK_EX | LOCK_NB) == 0);
	case FILE_TMPFILE:
		return closed(open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	case FILE_SOCKET:
		return bind_socket(beside(path));
	}
	return UNTRIED;
}
