/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../scope-private.h"
#include "pidfd.h"

#define HELPER_SOCKET 3

static int open_pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int spawn(const char *path, int socket_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t all, none;
	char *argv[] = {(char *)path, NULL};
	char *envp[] = {NULL};

	sigfillset(&all);
	sigemptyset(&none);
	int error = posix_spawn_file_actions_init(&actions);
	if (error)
		return error;
	error = posix_spawnattr_init(&attributes);
	if (error) {
		posix_spawn_file_actions_destroy(&actions);
		return error;
	}
	/* An ignored SIGCHLD would survive exec and make the helper's waitid() fail: SETSIGDEF. */
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
						  POSIX_SPAWN_SETSID);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setsigmask(&attributes, &none);
	for (int fd = 0; fd < 3 && !error; fd++)
		error = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
	if (!error)
		error = posix_spawn_file_actions_adddup2(&actions, socket_fd, HELPER_SOCKET);
	if (!error)
		error = posix_spawn(ret_pid, path, &actions, &attributes, argv, envp);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

int32_t helper_start(const char *path, int socket_fd, pid_t *ret_pid, int *ret_watch,
		     orch_error **reterr)
{
	/* Out of the way of 0..3, which the file actions fill. */
	_cleanup_close_ int high = fcntl(socket_fd, F_DUPFD_CLOEXEC, 10);
	if (high < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "helper",
				 "no file descriptor for orch-reaper");
	int error = spawn(path, high, ret_pid);
	/* Its place is for the pidfd: without one nobody would reap the helper. */
	orch_close_fd(&high);
	if (error)
		return orch_fail(reterr, ORCH_EHELPER, error, "helper", "%s could not be started",
				 path);
	/* For waiting only, never for a signal: if the host ignores SIGCHLD the pid is not pinned.
	 */
	*ret_watch = open_pidfd(*ret_pid);
	return 0;
}

int32_t helper_hello(struct wire_packet *hello, orch_error **reterr)
{
	int fd = open_pidfd(getpid());
	if (fd < 0)
		return orch_fail(reterr, ORCH_EHELPER, errno, "pidfd",
				 "pidfd_open failed: Linux 5.10 or newer is needed");
	hello->fds[hello->fd_count++] = fd;
	return 0;
}

bool watch_has_ended(int watch)
{
	struct pollfd entry = {.fd = watch, .events = POLLIN};
	return poll(&entry, 1, 0) > 0;
}

bool pidfd_kill(int pidfd, int signal)
{
	return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0;
}

void pidfd_reap(int pidfd)
{
	siginfo_t status = {0};
	waitid(P_PIDFD, (id_t)pidfd, &status, WEXITED | WNOHANG);
}

void helper_reap(pid_t pid, int watch, int timeout_ms)
{
	struct pollfd entry = {.fd = watch, .events = POLLIN};
	(void)pid;
	if (watch < 0)
		return;
	int64_t end_us = orch_monotonic_us() + (int64_t)timeout_ms * 1000;
	while (poll(&entry, 1, timeout_ms) < 0 && errno == EINTR && orch_monotonic_us() < end_us)
		;
	/* Another thread of the host in waitpid(-1) may have been faster: ECHILD is as good. */
	pidfd_reap(watch);
}
