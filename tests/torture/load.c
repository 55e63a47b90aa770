/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load MODE COUNT INIT HELPER DECOY CGROUPS LEAF FOLDER: awkward processes, and attempts to leave the scope or to
 * hurt those who watch it. Static, and nothing but libc.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define FEW 8
#define CHAIN 16
#define HOPPERS 64
#define ZOMBIES 300
/* What forks without end ends sooner, should nobody stop it. */
#define HOP_S 40

static time_t end_s;

static time_t now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

_Noreturn void stay(void)
{
	time_t now;
	while ((now = now_s()) < end_s)
		nanosleep(&(struct timespec){.tv_sec = end_s - now}, NULL);
	_exit(0);
}

static void deaf(void)
{
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_IGN);
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

int sleeper(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		deaf();
		stay();
	}
	return pid < 0 ? -errno : 0;
}

void say_try(const char *name, long result, long control)
{
	char line[256], own[48];
	int length;
	if (control >= 0)
		snprintf(own, sizeof(own), "works");
	else
		snprintf(own, sizeof(own), "%s", strerrorname_np((int)-control));
	if (result >= 0)
		length = snprintf(line, sizeof(line), "try %s|allowed|%s\n", name, own);
	else
		length = snprintf(line, sizeof(line), "try %s|%s|%s\n", name, strerrorname_np((int)-result), own);
	(void)!write(1, line, (size_t)length);
}

void say_made(unsigned count)
{
	char line[32];
	int length = snprintf(line, sizeof(line), "made %u\n", count);
	(void)!write(1, line, (size_t)length);
}

int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int error = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

pid_t clone_again(uint64_t flags, int exit_signal, int cgroup_fd)
{
	struct clone_args arguments = {.flags = flags, .exit_signal = (uint64_t)exit_signal};
	if (cgroup_fd >= 0) {
		arguments.flags |= CLONE_INTO_CGROUP;
		arguments.cgroup = (uint64_t)cgroup_fd;
	}
	return (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
}

/* --- loads: how many stand, the caller included ------------------------------------------- */

static unsigned sessions(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			setsid();
			stay();
		}
		made += pid > 0;
	}
	return made;
}

static unsigned daemons(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			setsid();
			if (sleeper() < 0)
				_exit(1);
			_exit(0);
		}
		int status = 1;
		waitpid(pid, &status, 0);
		made += status == 0;
	}
	return made;
}

static unsigned groups(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			setpgid(0, 0);
			stay();
		}
		made += pid > 0;
	}
	return made;
}

static unsigned deaf_ones(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++)
		made += sleeper() == 0;
	return made;
}

/* No descriptor, no environment, no arguments, no folder. */
static unsigned bare(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			clearenv();
			prctl(PR_SET_PDEATHSIG, 0);
			setsid();
			(void)!chdir("/");
			close_range(0, ~0u, 0);
			deaf();
			stay();
		}
		made += pid > 0;
	}
	return made;
}

/* Chains of fork and exit: no list of processes shows them all. */
static unsigned hoppers(unsigned count)
{
	time_t last = now_s() + HOP_S;
	(void)count;
	for (int i = 0; i < HOPPERS; i++)
		if (fork() == 0) {
			while (now_s() < last) {
				pid_t pid = fork();
				if (pid > 0)
					_exit(0);
				if (pid < 0)
					usleep(1000);
			}
			_exit(0);
		}
	/* One look may miss most of them. Their zombies count. */
	return 4;
}

static int chain_link(void *left)
{
	unsigned more = (unsigned)(uintptr_t)left;
	if (more > 0) {
		char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (stack != MAP_FAILED)
			clone(chain_link, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(uintptr_t)(more - 1));
	}
	stay();
}

/* Each waits in the kernel for the next one's exec or end. */
static unsigned vfork_chain(unsigned count)
{
	pid_t pid = fork();
	if (pid == 0)
		chain_link((void *)(uintptr_t)count);
	return pid > 0 ? 2 + count : 1;
}

/* Brothers instead of children: nobody in the load is their parent. */
static unsigned brothers(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = clone_again(CLONE_PARENT, 0, -1);
		if (pid == 0) {
			deaf();
			stay();
		}
		made += pid > 0;
	}
	return made;
}

static int stay_on(void *unused)
{
	(void)unused;
	stay();
}

/* Processes with one memory, each with two threads. */
static unsigned one_memory(unsigned count)
{
	static const int flags[] = {CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD,
				    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD};
	unsigned made = 1;
	for (unsigned i = 0; i < 2 * count; i++) {
		char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (stack == MAP_FAILED)
			continue;
		if (clone(stay_on, stack + 65536, flags[i % 2], NULL) > 0)
			made += i % 2 == 0;
	}
	return made;
}

/* An end without a signal: only wait with __WALL sees it. */
static unsigned silent_ends(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = clone_again(i % 2 ? CLONE_UNTRACED : CLONE_CLEAR_SIGHAND, 0, -1);
		if (pid == 0)
			stay();
		made += pid > 0;
	}
	return made;
}

static unsigned stopped(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			raise(SIGSTOP);
			stay();
		}
		made += pid > 0;
	}
	return made;
}

/* A tracer keeps its victims in their exit until it lets them go; it does not. */
static unsigned traced(unsigned count)
{
	unsigned made = 1;
	pid_t victims[64];
	for (unsigned i = 0; i < count; i++) {
		victims[i] = fork();
		if (victims[i] == 0) {
			if (i % 2)
				ptrace(PTRACE_TRACEME, 0, NULL, NULL);
			if (i % 2)
				raise(SIGSTOP);
			stay();
		}
		made += victims[i] > 0;
		if (victims[i] > 0 && i % 2 == 0)
			ptrace(PTRACE_SEIZE, victims[i], NULL, (void *)PTRACE_O_TRACEEXIT);
	}
	return made;
}

static unsigned zombies(unsigned count)
{
	unsigned made = 1;
	(void)count;
	for (unsigned i = 0; i < ZOMBIES; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		made += pid > 0;
	}
	return made;
}

/* Pairs: whoever sees the other's end makes it again. */
static void guard(pid_t other, unsigned left)
{
	while (left-- > 0) {
		int fd = (int)syscall(SYS_pidfd_open, other, 0);
		if (fd >= 0) {
			struct pollfd watch = {.fd = fd, .events = POLLIN};
			poll(&watch, 1, STAY_S * 1000);
			close(fd);
		}
		pid_t self = getpid();
		other = fork();
		if (other == 0)
			other = self;
		if (other < 0)
			usleep(1000);
	}
	_exit(0);
}

static unsigned guards(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (fork() == 0) {
			pid_t self = getpid();
			deaf();
			pid_t pid = fork();
			guard(pid == 0 ? self : pid, 100);
		}
	return 1 + 2 * count;
}

/* Grows while it is being stopped; the counter bounds it. */
static unsigned growing(unsigned count)
{
	unsigned *left = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (left == MAP_FAILED)
		return 0;
	*left = count;
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			while (now_s() < end_s) {
				unsigned before = __atomic_load_n(left, __ATOMIC_RELAXED);
				if (!before)
					stay();
				if (__atomic_compare_exchange_n(left, &before, before - 1, false, __ATOMIC_RELAXED,
								__ATOMIC_RELAXED) && fork() < 0)
					usleep(1000);
			}
			_exit(0);
		}
	return 5;
}

static unsigned mass(unsigned count)
{
	unsigned made = 1;
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (i % 4 == 1)
				setsid();
			if (i % 4 == 2)
				deaf();
			if (i % 4 == 3)
				raise(SIGSTOP);
			stay();
		}
		made += pid > 0;
		if (pid < 0)
			usleep(1000);
	}
	return made;
}

/* The first of a new PID namespace: with mounts of its own, and in a user namespace if it has to. */
static pid_t enter_nested(const struct targets *targets, const char *name)
{
	int flags = CLONE_NEWPID | CLONE_NEWNS;
	pid_t pid = clone_again((uint64_t)flags, SIGCHLD, -1);
	if (pid < 0 && errno == EPERM)
		pid = clone_again((uint64_t)flags | CLONE_NEWUSER, SIGCHLD, -1);
	if (pid != 0) {
		say_try(name, pid < 0 ? -errno : 0, 0);
		return pid;
	}
	(void)targets;
	/* On the rungs without a mount namespace the host's would come to see these. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0)
		mount("proc", "/proc", "proc", 0, NULL);
	return 0;
}

static unsigned nested(const struct targets *targets)
{
	int tell[2];
	unsigned made = 0;
	if (pipe(tell) < 0)
		return 0;
	pid_t pid = enter_nested(targets, "nested PID and mount namespace");
	if (pid == 0) {
		mount("torture", targets->folder, "tmpfs", 0, NULL);
		made = deaf_ones(FEW);
		(void)!write(tell[1], &made, sizeof(made));
		stay();
	}
	close(tell[1]);
	(void)!read(tell[0], &made, sizeof(made));
	return 1 + made;
}

/* Before 6.14 the number is the whole machine's. */
static bool own_pid_max(void)
{
	struct utsname system;
	unsigned major = 0, minor = 0;
	return uname(&system) == 0 && sscanf(system.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 14));
}

/* The numbers of dead ones come again at once: 3,000 forks where 300 numbers are. */
static unsigned reused(const struct targets *targets)
{
	int tell[2];
	unsigned made = 0;
	if (pipe(tell) < 0)
		return 0;
	pid_t pid = enter_nested(targets, "nested PID namespace with few numbers");
	if (pid == 0) {
		int wraps = 0, error = own_pid_max() ? write_text("/proc/sys/kernel/pid_max", "400") : -ENOSYS;
		pid_t last = 0;
		for (int i = 0; i < 3000; i++) {
			pid_t child = fork();
			if (child == 0)
				_exit(0);
			wraps += child > 0 && child < last;
			last = child > 0 ? child : last;
			waitpid(child, NULL, 0);
		}
		say_try("small pid_max in it", error, 0);
		say_try("numbers came again", wraps > 1 ? 0 : -EAGAIN, 0);
		made = deaf_ones(FEW);
		(void)!write(tell[1], &made, sizeof(made));
		stay();
	}
	close(tell[1]);
	(void)!read(tell[0], &made, sizeof(made));
	return 1 + made;
}

static unsigned everything(unsigned count);

static const struct {
	const char *name;
	unsigned (*run)(unsigned count);
	bool mixed; /* part of "everything" */
} loads[] = {
    {"sessions", sessions, true},	{"daemons", daemons, true},	{"groups", groups, true},
    {"deaf", deaf_ones, true},		{"bare", bare, true},		{"hoppers", hoppers, true},
    {"vfork-chain", vfork_chain, true}, {"brothers", brothers, false},	{"one-memory", one_memory, true},
    {"silent-ends", silent_ends, true}, {"stopped", stopped, true},	{"traced", traced, true},
    {"zombies", zombies, true},		{"guards", guards, true},	{"growing", growing, false},
    {"mass", mass, false},		{"everything", everything, false},
};

static unsigned everything(unsigned count)
{
	unsigned made = 1;
	for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++) {
		int tell[2];
		unsigned got = 0;
		if (!loads[i].mixed || pipe(tell) < 0)
			continue;
		pid_t pid = fork();
		if (pid == 0) {
			got = loads[i].run(FEW);
			(void)!write(tell[1], &got, sizeof(got));
			stay();
		}
		close(tell[1]);
		(void)!read(tell[0], &got, sizeof(got));
		close(tell[0]);
		made += got;
	}
	return made + mass(count) - 1;
}

static const struct {
	const char *name;
	unsigned (*run)(const struct targets *targets);
} attacks[] = {
    {"nested", nested},		    {"reused", reused},		  {"leave-cgroup", attack_cgroups},
    {"leave-parent", attack_subreaper}, {"on-init", attack_init},	  {"on-helper", attack_helper},
    {"uncover", attack_uncovered},  {"kill-init", kill_init},	  {"kill-helper", kill_helper},
    {"freeze-init", freeze_init},   {"freeze-helper", freeze_helper}, {"hold-init", hold_init},
    {"hold-helper", hold_helper},   {"starve-init", starve_init}, {"starve-helper", starve_helper},
};

/* Should the cage have no memory left, then it is this that the kernel ends, and not the host that is looked at. */
static void be_the_victim(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t ignored = write(fd, "1000", 4);
	(void)ignored;
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 9)
		return 100;
	be_the_victim();
	struct targets targets = {.init = atoi(argv[3]),
				  .helper = atoi(argv[4]),
				  .decoy = atoi(argv[5]),
				  .cgroups = argv[6],
				  .leaf = argv[7],
				  .folder = argv[8]};
	end_s = now_s() + STAY_S;
	for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++)
		if (strcmp(loads[i].name, argv[1]) == 0) {
			say_made(loads[i].run((unsigned)atoi(argv[2])));
			stay();
		}
	for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++)
		if (strcmp(attacks[i].name, argv[1]) == 0) {
			say_made(attacks[i].run(&targets));
			stay();
		}
	return 100;
}
