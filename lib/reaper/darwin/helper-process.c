/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "../scope-private.h"
#include "processes.h"

#define HELPER_SOCKET 3

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
	/* CLOEXEC_DEFAULT: the helper gets what is named here and nothing that the host forgot to mark. */
	error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
							  POSIX_SPAWN_SETSID | POSIX_SPAWN_CLOEXEC_DEFAULT);
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
	if (error)
		return orch_fail(reterr, ORCH_EHELPER, error, "helper", "%s could not be started",
				 path);
	int watch = process_watch(*ret_pid);
	*ret_watch = watch < 0 ? -1 : watch;
	return 0;
}

/* It knows its parent, and watches that. */
int32_t helper_hello(struct wire_packet *hello, orch_error **reterr)
{
	(void)reterr;
	hello->message.value = (int32_t)getpid();
	return 0;
}

/* poll(), because kevent() would take the event out. */
bool watch_has_ended(int watch)
{
	struct pollfd entry = {.fd = watch, .events = POLLIN};
	return poll(&entry, 1, 0) > 0;
}

void helper_reap(pid_t pid, int watch, int timeout_ms)
{
	struct pollfd entry = {.fd = watch, .events = POLLIN};
	if (watch < 0)
		return;
	int64_t end_us = orch_monotonic_us() + (int64_t)timeout_ms * 1000;
	while (poll(&entry, 1, timeout_ms) < 0 && errno == EINTR && orch_monotonic_us() < end_us)
		;
	/*
	 * Our child: its pid is not used again before somebody waits for it. Where the host ignores SIGCHLD or another of its
	 * threads was faster, this gives ECHILD.
	 */
	int status;
	waitpid(pid, &status, WNOHANG);
}
