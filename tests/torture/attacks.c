/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts to leave the scope and to hurt its init (or supervisor) and the helper. Each is also made at a process of
 * one's own, which shows that the call works here.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

#define FDS 32
#define WAYS 64

static long answer(long result)
{
	return result < 0 ? -errno : result;
}

/* Stops, or ends, within a bounded time. */
static long await_stop(pid_t pid)
{
	for (int i = 0; i < 400; i++) {
		int status;
		pid_t got = waitpid(pid, &status, WNOHANG | __WALL);
		if (got == pid)
			return WIFSTOPPED(status) ? 0 : -ESRCH;
		if (got < 0)
			return -errno;
		usleep(5000);
	}
	return -ETIMEDOUT;
}

/* --- at one process: 0 or more it went, else a negative errno ------------------------------ */

static long try_attach(pid_t pid)
{
	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) < 0)
		return -errno;
	long stopped = await_stop(pid);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	return stopped;
}

static long try_seize(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0)
		return -errno;
	long stopped = await_stop(pid);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	return stopped;
}

/* Sockets can not be opened (ENXIO); everything else that opens is an open door. */
static long try_open_fds(pid_t pid)
{
	char path[64];
	long opened = 0, error = -ENOENT;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	if (!folder)
		return -errno;
	closedir(folder);
	for (int number = 0; number < FDS; number++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, number);
		int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0) {
			error = errno == ENOENT ? error : -errno;
			continue;
		}
		opened++;
		close(fd);
	}
	return opened ? opened : error;
}

static long try_list_fds(pid_t pid)
{
	char path[64], target[64];
	long seen = 0;
	for (int number = 0; number < FDS; number++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, number);
		if (readlink(path, target, sizeof(target)) >= 0)
			seen++;
		else if (errno != ENOENT || (number == 0 && access(path, F_OK) < 0 && errno != ENOENT))
			return -errno;
	}
	return seen ? seen : -ENOENT;
}

/* A byte that is there already is written again: an attempt must not need luck to do no harm. */
static long try_mem(pid_t pid)
{
	char path[64], line[256], byte;
	unsigned long from = 0;
	long result;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return -errno;
	while (!from && fgets(line, sizeof(line), maps))
		if (strstr(line, " rw-p ") && sscanf(line, "%lx-", &from) != 1)
			from = 0;
	fclose(maps);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || !from)
		return fd < 0 ? -errno : -EACCES;
	result = answer(pread(fd, &byte, 1, (off_t)from));
	if (result == 1)
		result = answer(pwrite(fd, &byte, 1, (off_t)from));
	close(fd);
	return result;
}

/* An address of one's own serves: the right is looked at before the address. */
static long try_vm_write(pid_t pid)
{
	static char byte;
	struct iovec here = {.iov_base = &byte, .iov_len = 1};
	struct iovec there = here;
	long result = answer(process_vm_readv(pid, &here, 1, &there, 1, 0));
	if (result == 1)
		result = answer(process_vm_writev(pid, &here, 1, &there, 1, 0));
	return result == -EFAULT ? 0 : result;
}

static long try_take_fds(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return -errno;
	long taken = 0, error = -ENOENT;
	for (int number = 0; number < FDS; number++) {
		int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
		if (fd >= 0) {
			taken++;
			close(fd);
		} else if (errno != EBADF) {
			error = -errno;
		}
	}
	close(pidfd);
	return taken ? taken : error;
}

static long try_limit(pid_t pid)
{
	struct rlimit limit;
	if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0)
		return -errno;
	return answer(prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
}

static long try_affinity(pid_t pid)
{
	cpu_set_t set;
	if (sched_getaffinity(pid, sizeof(set), &set) < 0)
		return -errno;
	return answer(sched_setaffinity(pid, sizeof(set), &set));
}

static long try_priority(pid_t pid)
{
	errno = 0;
	int now = getpriority(PRIO_PROCESS, (id_t)pid);
	if (errno)
		return -errno;
	return answer(setpriority(PRIO_PROCESS, (id_t)pid, now));
}

static long try_scheduler(pid_t pid)
{
	int policy = sched_getscheduler(pid);
	if (policy < 0)
		return -errno;
	return answer(sched_setscheduler(pid, policy, &(struct sched_param){0}));
}

static long try_oom(pid_t pid)
{
	char path[64], text[16] = "";
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t length = read(fd, text, sizeof(text) - 1);
	long result = length <= 0 ? -EIO : answer(pwrite(fd, text, (size_t)length, 0));
	close(fd);
	return result;
}

static long try_setns(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return -errno;
	pid_t child = fork();
	if (child == 0)
		_exit(setns(pidfd, CLONE_NEWNS) < 0 ? errno : 0);
	int status = 0;
	waitpid(child, &status, 0);
	close(pidfd);
	return -WEXITSTATUS(status);
}

/* The null signal: those that end something are modes of their own. */
static long try_signal(pid_t pid)
{
	return answer(kill(pid, 0));
}

static long try_pidfd_signal(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	long result = answer(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
	close(fd);
	return result;
}

static const struct {
	const char *name;
	long (*run)(pid_t pid);
} attempts[] = {
    {"null signal", try_signal},
    {"null signal through /proc", try_pidfd_signal},
    {"ptrace attach", try_attach},
    {"ptrace seize and interrupt", try_seize},
    {"see /proc/PID/fd", try_list_fds},
    {"open /proc/PID/fd for writing", try_open_fds},
    {"write /proc/PID/mem", try_mem},
    {"process_vm_writev", try_vm_write},
    {"pidfd_getfd", try_take_fds},
    {"prlimit", try_limit},
    {"sched_setaffinity", try_affinity},
    {"setpriority", try_priority},
    {"sched_setscheduler", try_scheduler},
    {"oom_score_adj", try_oom},
    {"setns into its mount namespace", try_setns},
};

/* A process of one's own, with the same memory layout and a few descriptors that can be opened. */
static pid_t own_child(void)
{
	int ready[2];
	char byte;
	if (pipe(ready) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		for (int number = 0; number < 3; number++)
			dup2(open("/dev/null", O_RDWR), number);
		(void)!write(ready[1], "r", 1);
		stay();
	}
	close(ready[1]);
	(void)!read(ready[0], &byte, 1);
	close(ready[0]);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, __WALL);
}

static unsigned attack_process(const char *victim, pid_t pid)
{
	for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++) {
		char name[96];
		pid_t own = own_child();
		snprintf(name, sizeof(name), "%s: %s", victim, attempts[i].name);
		long control = attempts[i].run(own);
		say_try(name, pid > 0 ? attempts[i].run(pid) : -ESRCH, control);
		end_child(own);
	}
	return 1;
}

unsigned attack_init(const struct targets *targets)
{
	return attack_process("init", targets->init);
}

unsigned attack_helper(const struct targets *targets)
{
	return attack_process("helper", targets->helper);
}

/* --- to the death: what the calls above may do, in earnest ---------------------------------- */

static long send_all(pid_t pid)
{
	long result = -ESRCH;
	for (int number = 1; number <= SIGRTMAX; number++) {
		if (number == SIGKILL || number == SIGSTOP)
			continue;
		long one = answer(kill(pid, number));
		if (one == 0 || result == -ESRCH)
			result = one;
	}
	long last = answer(kill(pid, SIGKILL));
	return last == 0 ? 0 : result;
}

static unsigned kill_process(const char *name, pid_t pid)
{
	pid_t own = own_child();
	long control = send_all(own);
	waitpid(own, NULL, 0);
	unsigned made = 1;
	/* They have to be there when the victim ends. */
	for (int i = 0; i < 4; i++)
		made += sleeper() == 0;
	say_try(name, pid > 0 ? send_all(pid) : -ESRCH, control);
	return made;
}

unsigned kill_init(const struct targets *targets)
{
	return kill_process("init: every signal", targets->init);
}

unsigned kill_helper(const struct targets *targets)
{
	return kill_process("helper: every signal", targets->helper);
}

static unsigned freeze_process(const char *name, pid_t pid)
{
	pid_t own = own_child();
	unsigned made = 1;
	for (int i = 0; i < 4; i++)
		made += sleeper() == 0;
	long control = answer(kill(own, SIGSTOP));
	end_child(own);
	say_try(name, pid > 0 ? answer(kill(pid, SIGSTOP)) : -ESRCH, control);
	return made;
}

unsigned freeze_init(const struct targets *targets)
{
	return freeze_process("init: SIGSTOP", targets->init);
}

unsigned freeze_helper(const struct targets *targets)
{
	return freeze_process("helper: SIGSTOP", targets->helper);
}

/* Held in its exit by a tracer that never lets go. */
static long seize_exit(pid_t pid)
{
	return answer(ptrace(PTRACE_SEIZE, pid, NULL, (void *)PTRACE_O_TRACEEXIT));
}

static unsigned hold_process(const char *name, pid_t pid)
{
	pid_t own = own_child();
	unsigned made = 1;
	long control = seize_exit(own);
	for (int i = 0; i < 4; i++)
		made += sleeper() == 0;
	say_try(name, pid > 0 ? seize_exit(pid) : -ESRCH, control);
	/* The own one is held by the same tracer: it stands too. */
	return made + 1;
}

unsigned hold_init(const struct targets *targets)
{
	return hold_process("init: held in its exit by a tracer", targets->init);
}

unsigned hold_helper(const struct targets *targets)
{
	return hold_process("helper: held in its exit by a tracer", targets->helper);
}

/* No descriptor more, no processor time while anybody else wants some, first to be killed for memory. */
static long starve(pid_t pid)
{
	char path[64];
	struct rlimit limit;
	cpu_set_t set;
	long result = answer(prlimit(pid, RLIMIT_NOFILE, NULL, &limit));
	limit.rlim_cur = 0;
	if (result >= 0)
		result = answer(prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(pid, sizeof(set), &set);
	setpriority(PRIO_PROCESS, (id_t)pid, 19);
	sched_setscheduler(pid, SCHED_IDLE, &(struct sched_param){0});
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	write_text(path, "1000");
	return result;
}

static unsigned starve_process(const char *name, pid_t pid)
{
	pid_t own = own_child();
	unsigned made = 1;
	long control = starve(own);
	end_child(own);
	for (int i = 0; i < 4; i++)
		made += sleeper() == 0;
	say_try(name, pid > 0 ? starve(pid) : -ESRCH, control);
	return made;
}

unsigned starve_init(const struct targets *targets)
{
	return starve_process("init: no descriptors, last in every queue", targets->init);
}

unsigned starve_helper(const struct targets *targets)
{
	return starve_process("helper: no descriptors, last in every queue", targets->helper);
}

/* --- leaving the cgroup -------------------------------------------------------------------- */

/* Makes one that goes there and, if it could, has a child there: 2 more stand. */
static long move_to(const char *procs)
{
	int tell[2];
	long result = -EIO;
	if (pipe(tell) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0) {
		result = write_text(procs, "0");
		if (result == 0 && sleeper() < 0)
			result = -EAGAIN;
		(void)!write(tell[1], &result, sizeof(result));
		if (result < 0)
			_exit(0);
		stay();
	}
	close(tell[1]);
	(void)!read(tell[0], &result, sizeof(result));
	close(tell[0]);
	if (result < 0)
		waitpid(pid, NULL, 0);
	return result;
}

/* The same without writing: born there. */
static long born_in(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	pid_t pid = clone_again(0, SIGCHLD, fd);
	if (pid == 0)
		stay();
	long result = answer(pid);
	close(fd);
	return result;
}

struct way {
	char name[64];
	char folder[256];
};

static unsigned add_way(struct way *ways, unsigned count, const char *name, const char *folder)
{
	if (count == WAYS)
		return count;
	snprintf(ways[count].name, sizeof(ways[count].name), "%s", name);
	snprintf(ways[count].folder, sizeof(ways[count].folder), "%s", folder);
	return count + 1;
}

/* Of the run's own subtree, the v2 root and the roots of v1; never into what belongs to others. */
static unsigned find_ways(const struct targets *targets, struct way *ways)
{
	static const char *const roots[] = {"cpu", "cpuset", "memory", "pids", "freezer", "systemd"};
	unsigned count = 0;
	char folder[256], root[256];
	snprintf(root, sizeof(root), "%s", targets->cgroups);
	char *last = strrchr(root, '/');
	if (last)
		*last = '\0';
	count = add_way(ways, count, "v2 root", root);
	count = add_way(ways, count, "v2 common parent", targets->cgroups);
	snprintf(folder, sizeof(folder), "%s/decoy", targets->cgroups);
	count = add_way(ways, count, "v2 foreign sibling", folder);
	if (targets->leaf[0] == '/') {
		snprintf(folder, sizeof(folder), "%s", targets->leaf);
		*strrchr(folder, '/') = '\0';
		count = add_way(ways, count, "v2 parent of the leaf", folder);
	}
	for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++) {
		char name[64];
		snprintf(folder, sizeof(folder), "/sys/fs/cgroup/%s", roots[i]);
		snprintf(name, sizeof(name), "v1 %s root", roots[i]);
		if (access(folder, F_OK) == 0)
			count = add_way(ways, count, name, folder);
	}
	return count;
}

/* Positive control: into a folder below the leaf, or the leaf itself. */
static long move_within(const struct targets *targets)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/cgroup.procs", targets->leaf);
	return write_text(path, "0");
}

unsigned attack_cgroups(const struct targets *targets)
{
	struct way ways[WAYS];
	unsigned made = 1, count = find_ways(targets, ways);
	long control = targets->leaf[0] == '/' ? move_within(targets) : 0;
	for (unsigned i = 0; i < count; i++) {
		char path[300], name[128];
		const struct way *way = &ways[i];
		snprintf(path, sizeof(path), "%s/cgroup.procs", way->folder);
		snprintf(name, sizeof(name), "cgroup: move to %.60s", way->name);
		long moved = move_to(path);
		say_try(name, moved, control);
		made += moved >= 0 ? 2 : 0;
		if (strncmp(way->name, "v2", 2) != 0)
			continue;
		snprintf(name, sizeof(name), "cgroup: be born in %.60s", way->name);
		moved = born_in(way->folder);
		say_try(name, moved, control);
		made += moved >= 0;
	}
	return made;
}

/* --- leaving the parent -------------------------------------------------------------------- */

/* In the namespaces of another: the orphan goes to that one's init. 1 stands then. */
static long join_and_leave(pid_t decoy)
{
	int tell[2], ended;
	long result = -EIO;
	int pidfd = (int)syscall(SYS_pidfd_open, decoy, 0);
	if (pidfd < 0 || pipe(tell) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0) {
		/* As root at once; else with the rights of the namespace's owner. */
		result = answer(setns(pidfd, CLONE_NEWPID));
		if (result < 0)
			result = answer(setns(pidfd, CLONE_NEWUSER | CLONE_NEWPID));
		if (result == 0)
			result = sleeper();
		(void)!write(tell[1], &result, sizeof(result));
		_exit(0);
	}
	close(tell[1]);
	(void)!read(tell[0], &result, sizeof(result));
	close(tell[0]);
	close(pidfd);
	waitpid(pid, &ended, 0);
	return result;
}

static long own_subreaper(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
			_exit(1);
		pid_t child = fork();
		if (child == 0) {
			if (sleeper() < 0)
				_exit(1);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		stay();
	}
	return pid < 0 ? -errno : 0;
}

unsigned attack_subreaper(const struct targets *targets)
{
	unsigned made = 1;
	long own = own_subreaper();
	say_try("parent: a subreaper of its own", own, own);
	made += own >= 0 ? 2 : 0;
	/* Control: setns into something of its own. */
	pid_t child = own_child();
	long control = try_setns(child);
	control = control == -EPERM ? 0 : control;
	end_child(child);
	long joined = targets->decoy > 0 ? join_and_leave(targets->decoy) : -ESRCH;
	say_try("parent: setns into a foreign PID namespace", joined, control);
	made += joined >= 0;
	return made;
}

/* --- what lies under the private /proc ------------------------------------------------------- */

static long see_outside(const struct targets *targets)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)targets->helper);
	DIR *folder = opendir(path);
	if (!folder)
		return -errno;
	closedir(folder);
	return 0;
}

unsigned attack_uncovered(const struct targets *targets)
{
	long result = answer(unshare(CLONE_NEWNS));
	if (result == 0)
		result = answer(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	if (result == 0 && targets->init == 1)
		result = answer(umount2("/proc", MNT_DETACH));
	say_try("proc: unmount the private one", result, 0);
	say_try("proc: the helper's descriptors", see_outside(targets), 0);
	say_try("proc: the helper's memory", targets->helper > 0 ? try_mem(targets->helper) : -ESRCH, 0);
	say_try("proc: a signal through it", try_pidfd_signal(targets->helper), 0);
	return 1;
}
