/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/close_range.h>
#include <linux/sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "linux.h"

const rlim_t helper_open_files = 65536;

static void close_from_to(unsigned first, unsigned last)
{
	if (first <= last)
		close_range(first, last, 0);
}

void close_others(const int *but, size_t count)
{
	unsigned next = 3;
	for (;;) {
		unsigned lowest = ~0u;
		for (size_t i = 0; i < count; i++)
			if (but[i] >= 0 && (unsigned)but[i] >= next && (unsigned)but[i] < lowest)
				lowest = (unsigned)but[i];
		if (lowest == ~0u)
			break;
		close_from_to(next, lowest - 1);
		next = lowest + 1;
	}
	close_from_to(next, ~0u);
}

void close_others_at_exec(void)
{
	close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
}

bool other_use(int argc, char **argv, int *ret_status)
{
#ifdef ORCH_HAVE_CONFINE
	/* The positive control of a live probe (lib/sandbox/linux/report-run.c): the same attempt, outside. */
	if (argc == 3 && strcmp(argv[1], "--probe") == 0) {
		*ret_status = confine_probe(argv[2]);
		return true;
	}
#endif
	(void)argc;
	(void)argv;
	(void)ret_status;
	return false;
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
