/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"

void close_cleanup(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

void close_fd(int *fd)
{
	close_cleanup(fd);
	*fd = -1;
}

static void close_from_to(unsigned first, unsigned last)
{
	if (first <= last)
		close_range(first, last, 0);
}

void close_others(int one, int two)
{
	int low = one < two ? one : two, high = one < two ? two : one;
	unsigned next = 3;
	if (low >= 3) {
		close_from_to(next, (unsigned)low - 1);
		next = (unsigned)low + 1;
	}
	if (high >= 3 && high != low) {
		close_from_to(next, (unsigned)high - 1);
		next = (unsigned)high + 1;
	}
	close_from_to(next, ~0u);
}

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

int64_t realtime_ms(void)
{
	return clock_us(CLOCK_REALTIME) / 1000;
}

void setup_fail(struct setup_error *error, int32_t code, int os_errno, const char *step,
		const char *format, ...)
{
	memset(error, 0, sizeof(*error));
	error->code = code;
	error->os_errno = os_errno;
	snprintf(error->step, sizeof(error->step), "%s", step);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
}

int pidfd_open_(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

int pidfd_signal(int pidfd, int signal)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

pid_t clone_process(uint64_t flags, int exit_signal, int cgroup_fd, int *ret_pidfd,
		    pid_t *parent_tid)
{
	struct clone_args arguments = {.flags = flags, .exit_signal = (uint64_t)exit_signal};
	if (ret_pidfd) {
		arguments.flags |= CLONE_PIDFD;
		arguments.pidfd = (uint64_t)(uintptr_t)ret_pidfd;
	}
	if (parent_tid) {
		arguments.flags |= CLONE_PARENT_SETTID;
		arguments.parent_tid = (uint64_t)(uintptr_t)parent_tid;
	}
	if (cgroup_fd >= 0) {
		arguments.flags |= CLONE_INTO_CGROUP;
		arguments.cgroup = (uint64_t)cgroup_fd;
	}
	return (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
}
