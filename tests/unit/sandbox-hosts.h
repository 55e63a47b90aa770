/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_SANDBOX_HOSTS_H
#define TEST_SANDBOX_HOSTS_H

/* This process, and all that it starts, on a host that lacks something. */

#include <linux/sched.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "sandbox-fixture.h"

/* The system call is unknown. */
static inline void host_without(int call)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

	ck_assert_int_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EOPNOTSUPP), call, 0), 0);
	ck_assert_int_eq(seccomp_load(filter), 0);
	seccomp_release(filter);
}

/* As a container's filter does it: every call that would make a namespace. */
static inline void host_without_namespaces(void)
{
	static const uint64_t flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
					 CLONE_NEWIPC,	CLONE_NEWUTS, CLONE_NEWCGROUP};
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int result = 0;

	/* Its flags are in memory, which a filter can not read; orch-reaper asks it for a user's namespaces last of all. */
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
					   SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
	ck_assert(result == 0 && seccomp_load(filter) == 0);
	seccomp_release(filter);
}

/* Puts this process into a user namespace of its own; uid 0 there is `outer`. */
static inline void enter_outer_userns(unsigned outer, unsigned count)
{
	int ready[2], go[2];
	char byte, path[64], map[64];

	/* After a change of uid /proc/self belongs to root. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	ck_assert(pipe(ready) == 0 && pipe(go) == 0);
	pid_t me = getpid(), child = fork();

	if (child == 0) {
		/* The mapper has this namespace's privileges. */
		if (read(ready[0], &byte, 1) != 1)
			_exit(1);
		snprintf(map, sizeof(map), "0 %u %u\n", outer, count);
		static const char *const files[] = {"setgroups", "gid_map", "uid_map"};

		for (int i = count == 1 ? 0 : 1; i < 3; i++) {
			snprintf(path, sizeof(path), "/proc/%d/%s", me, files[i]);
			int fd = open(path, O_WRONLY);
			const char *text = i == 0 ? "deny" : map;

			if (fd < 0 || write(fd, text, strlen(text)) < 0)
				_exit(1);
			close(fd);
		}
		_exit(write(go[1], "x", 1) == 1 ? 0 : 1);
	}
	ck_assert(unshare(CLONE_NEWUSER) == 0 && write(ready[1], "x", 1) == 1);
	close(go[1]);
	ck_assert_msg(read(go[0], &byte, 1) == 1, "no map");
	waitpid(child, NULL, 0);
	close(ready[0]), close(ready[1]), close(go[0]);
	ck_assert(setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

/* In this user namespace, which has to be one of our own. */
static inline void forbid_user_namespaces(void)
{
	int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY);

	ck_assert(fd >= 0 && write(fd, "0", 1) == 1);
	close(fd);
}

/* As root. */
static inline void host_without_cgroups(void)
{
	ck_assert(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	ck_assert(mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0);
}

#endif
