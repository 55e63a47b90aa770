/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
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

/*
 * Whose memory the new process takes over must not touch its stack any more: it ends right where the kernel lets it go on,
 * and no signal has a handler here (main.c) that would run on it. -errno.
 */
#if defined(__x86_64__)
#define TAKES_OVER CLONE_VM
static long clone_and_exit(const struct clone_args *arguments)
{
	long result;
	__asm__ volatile("syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "jle 1f\n\t"
			 "xorl %%edi, %%edi\n\t"
			 "movl %[exit], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(result)
			 : "0"((long)SYS_clone3), "D"(arguments), "S"(sizeof(*arguments)), [exit] "i"(SYS_exit_group)
			 : "rcx", "r11", "cc", "memory");
	return result;
}
#elif defined(__aarch64__)
#define TAKES_OVER CLONE_VM
static long clone_and_exit(const struct clone_args *arguments)
{
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)arguments;
	register long x1 __asm__("x1") = sizeof(*arguments);
	__asm__ volatile("svc #0\n\t"
			 "cmp x0, #0\n\t"
			 "b.le 1f\n\t"
			 "mov x0, #0\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc #0\n\t"
			 "brk #1\n"
			 "1:"
			 : "+r"(x0), "+r"(x8)
			 : "r"(x1), [exit] "i"(SYS_exit_group)
			 : "cc", "memory");
	return x0;
}
#else
/* With a copy of the memory. */
#define TAKES_OVER 0
static long clone_and_exit(const struct clone_args *arguments)
{
	long result = syscall(SYS_clone3, arguments, sizeof(*arguments));
	if (result > 0)
		_exit(0);
	return result < 0 ? -errno : 0;
}
#endif

int clone_successor(uint64_t flags, pid_t *parent_tid)
{
	/* No signal at its end: the helper has a pidfd. */
	struct clone_args arguments = {.flags = TAKES_OVER | CLONE_PARENT | CLONE_PARENT_SETTID | flags,
				       .parent_tid = (uint64_t)(uintptr_t)parent_tid};
	long result = clone_and_exit(&arguments);
	if (result == 0)
		return 0;
	errno = (int)-result;
	return -1;
}
