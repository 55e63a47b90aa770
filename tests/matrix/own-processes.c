/* SPDX-License-Identifier: Apache-2.0 */
/* What shells, debuggers and language runtimes do with processes of their own. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <time.h>

#include "own.h"

#define THREADS 16

static bool and_kill(pid_t child, bool works)
{
	kill(child, SIGKILL);
	return waitpid(child, NULL, 0) == child && works;
}

static bool own_spawn(void)
{
	extern char **environ;
	char *const argv[] = {"sh", "-c", "echo spawned; exit 0", NULL};
	posix_spawn_file_actions_t actions;
	char text[16] = "";
	pid_t child = -1;
	int fds[2];

	return pipe2(fds, O_CLOEXEC) == 0 && posix_spawn_file_actions_init(&actions) == 0 &&
	       posix_spawn_file_actions_adddup2(&actions, fds[1], 1) == 0 &&
	       posix_spawnp(&child, "sh", &actions, NULL, argv, environ) == 0 && ends_well(child) &&
	       read(fds[0], text, sizeof(text) - 1) == 8 && strcmp(text, "spawned\n") == 0;
}

/* What has no parent any more is this process's, as a supervisor of builds wants it. */
static bool own_subreaper(void)
{
	int report[2], status = 1;
	pid_t me = getpid(), orphan = 0;

	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 || pipe2(report, O_CLOEXEC) < 0)
		return false;
	pid_t child = fork();

	if (child == 0) {
		pid_t parent = getpid();

		orphan = fork();
		while (orphan == 0 && getppid() == parent)
			usleep(1000);
		if (orphan == 0)
			_exit(getppid() == me ? 7 : 1);
		_exit(write(report[1], &orphan, sizeof(orphan)) == (ssize_t)sizeof(orphan) ? 0 : 1);
	}
	return ends_well(child) &&
	       read(report[0], &orphan, sizeof(orphan)) == (ssize_t)sizeof(orphan) &&
	       waitpid(orphan, &status, 0) == orphan && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 7;
}

/* It has a session of its own, whose leader has ended, and no terminal. */
static bool own_daemon(void)
{
	int report[2];
	pid_t session = 0;

	if (pipe2(report, O_CLOEXEC) < 0)
		return false;
	pid_t child = fork();

	if (child == 0) {
		pid_t daemon = setsid() < 0 ? -1 : fork();

		if (daemon == 0) {
			session = open("/dev/tty", O_RDWR | O_CLOEXEC) < 0 ? getsid(0) : -1;
			_exit(write(report[1], &session, sizeof(session)) ==
					      (ssize_t)sizeof(session)
				      ? 0
				      : 1);
		}
		_exit(daemon > 0 ? 0 : 1);
	}
	return ends_well(child) &&
	       read(report[0], &session, sizeof(session)) == (ssize_t)sizeof(session) &&
	       session == child;
}

static bool own_job(void)
{
	int status = 0;
	pid_t child = child_that_waits();
	bool works = setpgid(child, child) == 0 && kill(-child, SIGSTOP) == 0 &&
		     waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) &&
		     kill(-child, SIGCONT) == 0 && waitpid(child, &status, WCONTINUED) == child &&
		     WIFCONTINUED(status);

	return and_kill(child, works);
}

static bool own_queued_signal(void)
{
	union sigval value = {.sival_int = 4711};
	struct timespec wait = {.tv_sec = 120};
	siginfo_t found = {0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	return sigprocmask(SIG_BLOCK, &set, NULL) == 0 &&
	       sigqueue(getpid(), SIGRTMIN, value) == 0 &&
	       sigtimedwait(&set, &found, &wait) == SIGRTMIN && found.si_value.sival_int == 4711 &&
	       found.si_pid == getpid();
}

static bool own_signalfd(void)
{
	struct signalfd_siginfo found = {0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return false;
	int fd = signalfd(-1, &set, SFD_CLOEXEC);
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	bool told = fd >= 0 && read(fd, &found, sizeof(found)) == (ssize_t)sizeof(found) &&
		    found.ssi_pid == (uint32_t)child;

	return ends_well(child) && told;
}

static bool own_interval(void)
{
	struct itimerval soon = {.it_value.tv_usec = 1000};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec sooner = {.it_value.tv_nsec = 1000};
	struct timespec wait = {.tv_sec = 100};
	timer_t timer;
	sigset_t set;

	/* Which there is one of: the attempt's own end is put off by what is waited for. */
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR1);
	return sigprocmask(SIG_BLOCK, &set, NULL) == 0 &&
	       timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
	       setitimer(ITIMER_REAL, &soon, NULL) == 0 &&
	       timer_settime(timer, 0, &sooner, NULL) == 0 &&
	       sigtimedwait(&set, NULL, &wait) + sigtimedwait(&set, NULL, &wait) ==
		       SIGALRM + SIGUSR1;
}

static bool own_clocks(void)
{
	static const clockid_t clocks[] = {CLOCK_REALTIME,	     CLOCK_MONOTONIC,
					   CLOCK_BOOTTIME,	     CLOCK_MONOTONIC_RAW,
					   CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
	struct timespec now, nap = {.tv_nsec = 1000};

	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++)
		if (clock_gettime(clocks[i], &now) < 0 || clock_getres(clocks[i], &now) < 0)
			return false;
	return clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL) == 0;
}

/* As a debugger starts a program: it stops at its beginning, is read and changed, and goes on. */
static bool own_debug(void)
{
	static volatile long word = 1;
	struct user_regs_struct registers;
	struct iovec all = {&registers, sizeof(registers)};
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
			_exit(2);
		raise(SIGSTOP);
		_exit(word == 5 ? 0 : 1);
	}
	return waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
	       ptrace(PTRACE_GETREGSET, child, 1 /* NT_PRSTATUS */, &all) == 0 &&
	       ptrace(PTRACE_POKEDATA, child, &word, 5L) == 0 &&
	       ptrace(PTRACE_CONT, child, 0, 0) == 0 && ends_well(child);
}

static bool own_look_at_child(void)
{
	static const char *const files[] = {"status", "maps", "environ", "cmdline", "stat"};
	pid_t child = child_that_waits();
	bool works = child > 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[64], byte;

		snprintf(path, sizeof(path), "/proc/%d/%s", (int)child, files[i]);
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		works = works && fd >= 0 && read(fd, &byte, 1) >= 0;
	}
	return and_kill(child, works);
}

static bool own_rule_child(void)
{
	struct rlimit limit = {20, 20};
	cpu_set_t set;
	pid_t child = child_that_waits();
	bool works = prlimit(child, RLIMIT_NOFILE, &limit, NULL) == 0 &&
		     setpriority(PRIO_PROCESS, (id_t)child, 19) == 0 &&
		     sched_getaffinity(child, sizeof(set), &set) == 0 &&
		     sched_setaffinity(child, sizeof(set), &set) == 0 &&
		     getpriority(PRIO_PROCESS, (id_t)child) == 19;

	return and_kill(child, works);
}

/* To get what nobody else wants is everybody's right. */
static bool own_idle(void)
{
	struct sched_param param = {0};

	/* IOPRIO_WHO_PROCESS, idle class */
	return sched_setscheduler(0, SCHED_IDLE, &param) == 0 &&
	       sched_getscheduler(0) == SCHED_IDLE && syscall(SYS_ioprio_set, 1, 0, 3 << 13) == 0 &&
	       sched_yield() == 0;
}

static bool own_wait_pidfd(void)
{
	siginfo_t end = {0};
	pid_t child = fork();

	if (child == 0)
		_exit(9);
	struct pollfd ready = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};

	return ready.fd >= 0 && poll(&ready, 1, 120000) == 1 &&
	       waitid(P_PIDFD, (id_t)ready.fd, &end, WEXITED) == 0 && end.si_status == 9;
}

static bool own_run_descriptor(void)
{
	extern char **environ;
	char *const argv[] = {"tool", "--nothing", NULL};
	int fd = open(expand("%W/tool"), O_PATH | O_CLOEXEC);
	pid_t child = fork();

	if (child == 0) {
		fexecve(fd, argv, environ);
		_exit(1);
	}
	return ends_well(child);
}

static pthread_barrier_t barrier;
static __thread int own_number;

static void *meets(void *argument)
{
	own_number = (int)(size_t)argument;
	pthread_barrier_wait(&barrier);
	return (void *)(size_t)(own_number == (int)(size_t)argument);
}

static bool own_threads(void)
{
	pthread_t threads[THREADS];
	size_t good = 0;

	if (pthread_barrier_init(&barrier, NULL, THREADS) != 0)
		return false;
	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, meets, (void *)(i + 1)) != 0)
			_exit(1); /* the others wait for it */
	for (size_t i = 0; i < THREADS; i++) {
		void *result = NULL;

		pthread_join(threads[i], &result);
		good += (size_t)result;
	}
	return good == THREADS;
}

/* What the runtimes of Go, Java and C themselves call. */
static bool own_runtime(void)
{
	unsigned cpu = 0, node = 0;

	return syscall(SYS_membarrier, 0 /* MEMBARRIER_CMD_QUERY */, 0, 0) >= 0 &&
	       getcpu(&cpu, &node) == 0 && syscall(SYS_set_robust_list, NULL, 24) == 0;
}

static bool own_fixed_addresses(void)
{
	int before = personality(0xffffffff);

	return before >= 0 && personality((unsigned long)before | ADDR_NO_RANDOMIZE) == before &&
	       personality(0xffffffff) & ADDR_NO_RANDOMIZE;
}

/* Runtimes reserve much more than they will ever use. */
static bool own_reserve(void)
{
	const size_t size = (size_t)4 << 30;
	char *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at != MAP_FAILED && mprotect(at + size / 2, 4096, PROT_READ | PROT_WRITE) == 0 &&
	       (at[size / 2] = 1) == 1 && madvise(at + size / 2, 4096, MADV_DONTNEED) == 0 &&
	       at[size / 2] == 0 && munmap(at, size) == 0;
}

/* One to write, one to run, of the same pages. */
static bool own_two_views(void)
{
	int fd = memfd_create("code", MFD_CLOEXEC);
	char *written = fd < 0 || ftruncate(fd, 4096) < 0
				? MAP_FAILED
				: mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	const char *run = written == MAP_FAILED
				  ? MAP_FAILED
				  : mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);

	return run != MAP_FAILED && (*written = 'x') == 'x' && *run == 'x';
}

/* Likely to be killed first, as build tools ask for their jobs. */
static bool own_first_victim(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, "1000", 4) == 4;
}

/* ^C on a terminal of one's own ends what runs there; and that has it as /dev/tty. */
static bool own_interrupt(void)
{
	char byte = 0;
	int master = -1, status = 0;
	pid_t child = forkpty(&master, NULL, NULL, NULL);

	if (child == 0) {
		int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);

		if (tty < 0 || !isatty(tty) || write(tty, "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	return child > 0 && read(master, &byte, 1) == 1 && byte == 'r' &&
	       write(master, "\003", 1) == 1 && waitpid(child, &status, 0) == child &&
	       WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
}

int attempt_own_process(const struct row *row)
{
	static const struct own all[] = {
		{"own.spawn", own_spawn},
		{"own.subreaper", own_subreaper},
		{"own.daemon", own_daemon},
		{"own.job", own_job},
		{"own.signal.queue", own_queued_signal},
		{"own.signal.descriptor", own_signalfd},
		{"own.interval", own_interval},
		{"own.clocks", own_clocks},
		{"own.debug", own_debug},
		{"own.proc.child", own_look_at_child},
		{"own.limit.child", own_rule_child},
		{"own.idle", own_idle},
		{"own.pidfd.wait", own_wait_pidfd},
		{"own.exec.descriptor", own_run_descriptor},
		{"own.threads", own_threads},
		{"own.runtime", own_runtime},
		{"own.personality", own_fixed_addresses},
		{"own.reserve", own_reserve},
		{"own.code.views", own_two_views},
		{"own.proc.oom", own_first_victim},
		{"own.terminal.interrupt", own_interrupt},
	};

	return attempt_one_of(all, sizeof(all) / sizeof(all[0]), row);
}
