/* SPDX-License-Identifier: Apache-2.0 */
/*
 * macOS has no call that makes a pipe, a socket or a connection close-on-exec at birth. Between the
 * two calls a fork and exec by another thread of the host hands a copy on. What the library itself
 * starts has nothing of it: that is spawned with POSIX_SPAWN_CLOEXEC_DEFAULT.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <sys/un.h>
#include <unistd.h>

#include "../os.h"

static int close_with(int fd, int error)
{
	if (fd >= 0)
		close(fd);
	errno = error;
	return -1;
}

int orch_pipe(int ends[2])
{
	int made[2];
	if (pipe(made) < 0)
		return -1;
	if (fcntl(made[0], F_SETFD, FD_CLOEXEC) < 0 || fcntl(made[1], F_SETFD, FD_CLOEXEC) < 0) {
		close_with(made[0], errno);
		return close_with(made[1], errno);
	}
	ends[0] = made[0];
	ends[1] = made[1];
	return 0;
}

/* A SIGPIPE is sent to the whole process here, so that blocking it in one thread would not keep it
 * off the host. */
static int no_sigpipe(int fd)
{
	int on = 1;
	return setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
}

int orch_socket(int family, int type, int protocol)
{
	int fd = socket(family, type, protocol);
	if (fd < 0)
		return -1;
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || no_sigpipe(fd) < 0)
		return close_with(fd, errno);
	return fd;
}

int orch_accept(int listen_fd)
{
	int fd = accept(listen_fd, NULL, NULL);
	if (fd < 0)
		return -1;
	/* A connection inherits O_NONBLOCK from its listener here (accept(2)); nobody should have
	 * to know. */
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return close_with(fd, errno);
	/* EINVAL: the client is gone already, and the next read will say so. */
	if (no_sigpipe(fd) < 0 && errno != EINVAL)
		return close_with(fd, errno);
	return fd;
}

bool orch_socket_is_nameless(int fd)
{
	struct sockaddr_un address = {0};
	socklen_t size = sizeof(address);
	/* Here its address is given with a path, of no length. */
	return getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
	       address.sun_family == AF_UNIX && address.sun_path[0] == '\0';
}

ssize_t orch_send(int fd, const void *bytes, size_t length)
{
	/* MSG_NOSIGNAL is younger than the oldest macOS that this is for. The socket may be
	 * anybody's: set each time. */
	if (no_sigpipe(fd) < 0) {
		if (errno == EINVAL)
			errno = EPIPE;
		return -1;
	}
	return send(fd, bytes, length, 0);
}

/* In the folder that macOS keeps for this user alone (confstr(3)). */
static int open_draft(char path[PATH_MAX])
{
	static const char name[] = "orch-sealed-XXXXXXXX";
	size_t length = confstr(_CS_DARWIN_USER_TEMP_DIR, path, PATH_MAX - sizeof(name));
	if (length == 0 || length > PATH_MAX - sizeof(name))
		snprintf(path, PATH_MAX, "/tmp/");
	strlcat(path, name, PATH_MAX);
	return mkostemp(path, O_CLOEXEC);
}

int orch_sealed_file(const char *name, const void *bytes, size_t length)
{
	char path[PATH_MAX];
	(void)name;
	int draft = open_draft(path);
	if (draft < 0)
		return -1;
	/* No memfd and no seals: what is handed out was opened for reading, and has no name to open
	 * it by again. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	int error = fd < 0 ? errno : 0;
	if (unlink(path) < 0 && !error)
		error = errno;
	for (size_t done = 0; !error && done < length;) {
		ssize_t count = write(draft, (const char *)bytes + done, length - done);
		if (count < 0 && errno != EINTR)
			error = errno;
		done += count > 0 ? (size_t)count : 0;
	}
	close(draft);
	return error ? close_with(fd, error) : fd;
}

int orch_sync(int fd)
{
	/* fsync(2) leaves the data in the drive's cache. A file system that can do no more is
	 * refused: EINVAL. */
	return fcntl(fd, F_FULLFSYNC) < 0 ? -1 : 0;
}

int orch_sync_all(int fd)
{
	return fsync_volume_np(fd, SYNC_VOLUME_FULLSYNC | SYNC_VOLUME_WAIT);
}

int orch_rename_new(int from_dir, const char *from, int to_dir, const char *to)
{
	return renameatx_np(from_dir, from, to_dir, to, RENAME_EXCL);
}

int orch_rename_swap(const char *one, const char *other)
{
	return renameatx_np(AT_FDCWD, one, AT_FDCWD, other, RENAME_SWAP);
}

char *orch_program_path(void)
{
	char path[PATH_MAX];
	uint32_t size = sizeof(path);
	if (_NSGetExecutablePath(path, &size) < 0) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return realpath(path, NULL);
}

/* As dyld(1) knows it: a relative path is taken from the working directory of now. */
char *orch_code_path(const void *address)
{
	Dl_info origin;
	return dladdr(address, &origin) && origin.dli_fname ? realpath(origin.dli_fname, NULL) : NULL;
}

void orch_random_bytes(void *bytes, size_t length)
{
	arc4random_buf(bytes, length);
}

void orch_erase(void *bytes, size_t length)
{
	memset_s(bytes, length, 0, length);
}

void orch_take_back_signal(int signal)
{
	sigset_t pending, set;
	int taken;
	sigemptyset(&set);
	sigaddset(&set, signal);
	/* No sigtimedwait(2): asked first, so that the wait is over at once. */
	if (sigpending(&pending) == 0 && sigismember(&pending, signal) == 1)
		sigwait(&set, &taken);
}

const char *orch_errno_text(int number, char *room, size_t size)
{
	strerror_r(number, room, size);
	return room;
}

const char *orch_getenv_trusted(const char *name)
{
	return issetugid() ? NULL : getenv(name);
}

void orch_boot_id(char *id, size_t size)
{
	size_t length = size - 1;
	memset(id, 0, size);
	if (sysctlbyname("kern.bootsessionuuid", id, &length, NULL, 0) < 0)
		id[0] = '\0';
}

int orch_lock(int fd, bool shared)
{
	struct flock range = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
	return fcntl(fd, F_OFD_SETLK, &range);
}

void orch_unlock(int fd)
{
	struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	fcntl(fd, F_OFD_SETLK, &range);
}
