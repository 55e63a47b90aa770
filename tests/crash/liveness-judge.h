/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_LIVENESS_JUDGE_H
#define ORCH_LIVENESS_JUDGE_H

/*
 * For the tests of scopes: awkward loads (a program runs itself with --load NAME [WORD]), and a
 * judge that looks from outside: PID namespace inodes in /proc, the process table by a unique word
 * in argv.
 */

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- loads ----------------------------------------------------------------------------- */

static inline void close_all(void)
{
	close_range(0, ~0u, 0);
}

static inline void sleep_long(void)
{
	for (int i = 0; i < 600; i++)
		usleep(100000);
	_exit(0);
}

/* Leaves its parent, its session, its streams, and does not mind SIGTERM. */
static inline int load_awkward(void)
{
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	pid_t pid = fork();
	if (pid != 0)
		return pid < 0 ? 50 : 0;
	setsid();
	while ((pid = fork()) < 0)
		usleep(1000);
	if (pid > 0)
		_exit(0);
	close_all();
	sleep_long();
	return 0;
}

/* So many processes, zombies included, a load that forks for ever may have; others need pids as well. */
#define HOPPERS_MOST 3000
/* Beside the program: the cgroup that such a load goes into where it is root, whom RLIMIT_NPROC does not bind. */
#define HOPPERS_CGROUP "hoppers-cgroup"

static inline void cap_processes(void)
{
	struct rlimit limit = {HOPPERS_MOST, HOPPERS_MOST};
	char path[600], cgroup[400] = "", *slash;
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - sizeof(HOPPERS_CGROUP) - 1);
	setrlimit(RLIMIT_NPROC, &limit);
	path[length < 0 ? 0 : length] = '\0';
	if (!(slash = strrchr(path, '/')))
		return;
	strcpy(slash + 1, HOPPERS_CGROUP);
	FILE *file = fopen(path, "re");
	if (file && !fgets(cgroup, sizeof(cgroup), file))
		cgroup[0] = '\0';
	if (file)
		fclose(file);
	int fd = cgroup[0] ? open(cgroup, O_WRONLY | O_CLOEXEC) : -1;
	if (fd >= 0 && write(fd, "0", 1) != 1)
		_exit(51);
	if (fd >= 0)
		close(fd);
}

/* Fork-and-exit chains: no snapshot of /proc ever shows them all. */
static inline int load_hoppers(void)
{
	cap_processes();
	time_t end = time(NULL) + 20;
	for (int i = 0; i < 12; i++)
		if (fork() == 0)
			while (time(NULL) < end) {
				pid_t pid = fork();
				if (pid > 0)
					_exit(0);
				if (pid < 0)
					usleep(1000);
			}
	return 0;
}

static inline int load_grow(void)
{
	printf("growing\n");
	fflush(stdout);
	for (int i = 0; i < 300; i++)
		if (fork() == 0)
			sleep_long();
	sleep_long();
	return 0;
}

static inline void on_term(int signal)
{
	(void)signal;
	_exit(3);
}

static inline int load_polite(void)
{
	signal(SIGTERM, on_term);
	(void)!write(1, "ready\n", 6);
	sleep_long();
	return 0;
}

static inline int load_stubborn(void)
{
	signal(SIGTERM, SIG_IGN);
	(void)!write(1, "ready\n", 6);
	sleep_long();
	return 0;
}

/* Exit code: descriptors above 2. */
static inline int load_fds(void)
{
	int count = 0;
	for (int fd = 3; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Exit code: what is not as a fresh program may expect. */
static inline int load_state(void)
{
	sigset_t mask;
	char cwd[128];
	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (int number = 1; number < 32; number++) {
		struct sigaction action;
		if (sigismember(&mask, number))
			return 1;
		if (number != SIGKILL && number != SIGSTOP &&
		    (sigaction(number, NULL, &action) < 0 || action.sa_handler == SIG_IGN))
			return 2;
	}
	if (getsid(0) != getpid())
		return 3;
	if (getppid() != 1)
		return 4;
	if (!getcwd(cwd, sizeof(cwd)) || strcmp(cwd, "/") != 0)
		return 5;
	if (kill(1, 0) < 0 && errno != EPERM)
		return 6;
	return 0;
}

/* The grandchild keeps stdout open. */
static inline int load_holder(void)
{
	if (fork() == 0)
		sleep_long();
	return 5;
}

/* Forks until it is refused; exit code 0: by a limit between 3000 and 4096. */
static inline int load_fill(void)
{
	int count = 0;
	while (count < 6000) {
		pid_t pid = fork();
		if (pid == 0)
			sleep_long();
		if (pid < 0)
			return count >= 3000 && count <= 4096 ? 0 : 1;
		count++;
	}
	return 2;
}

static const struct {
	const char *name;
	int (*run)(void);
} loads[] = {
    {"awkward", load_awkward}, {"hoppers", load_hoppers},   {"grow", load_grow},
    {"polite", load_polite},   {"stubborn", load_stubborn}, {"fds", load_fds},
    {"state", load_state},     {"holder", load_holder},
    {"fill", load_fill},
};

static inline int load_main(const char *name)
{
	for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++)
		if (strcmp(loads[i].name, name) == 0)
			return loads[i].run();
	return 100;
}

/* --- the judge ------------------------------------------------------------------------- */

/* The number in the innermost PID namespace, or 0. */
static inline int inner_pid(pid_t pid)
{
	char path[64], line[256];
	int inner = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "NSpid:", 6) == 0)
			inner = atoi(strrchr(line, '\t') + 1);
	if (file)
		fclose(file);
	return inner;
}

static inline bool exists(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	return access(path, F_OK) == 0;
}

static inline pid_t parent_of(pid_t pid)
{
	char path[64], line[256];
	int parent = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "PPid: %d", &parent) == 1)
			break;
	if (file)
		fclose(file);
	return parent;
}

/* False only if all its ancestors are seen and `init` is none of them. */
static inline bool may_descend(pid_t pid, pid_t init)
{
	while (pid > 1) {
		pid = parent_of(pid);
		if (pid == init || pid == 0)
			return true;
	}
	return false;
}

/*
 * Of the PID namespace `inode` whose init is, or was, `init`. The kernel gives the number
 * of a namespace that is gone to the next one at once: with another PID 1 it is a stranger's. An ordinary user does not
 * see PID 1, but whose descendants they are.
 */
static inline bool is_in_pidns(pid_t pid, uint64_t inode, pid_t init)
{
	char path[64];
	struct stat status;
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	return stat(path, &status) == 0 && status.st_ino == inode && (pid == init || may_descend(pid, init));
}

/* Members of it. */
static inline unsigned in_pidns(uint64_t inode, pid_t init)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	unsigned count = 0;
	bool reused = false;
	while ((entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name);
		if (pid <= 0 || !is_in_pidns(pid, inode, init))
			continue;
		count++;
		reused |= pid != init && inner_pid(pid) == 1;
	}
	closedir(proc);
	return reused ? 0 : count;
}

static inline bool has_word(pid_t pid, const char *word)
{
	char path[64], text[4096];
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t length = read(fd, text, sizeof(text) - 1);
	close(fd);
	return length > 0 && memmem(text, (size_t)length, word, strlen(word));
}

/* Processes with `word` among their arguments; one of them. */
static inline unsigned find_word(const char *word, pid_t *ret_pid)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	unsigned count = 0;
	while ((entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name);
		if (pid > 0 && has_word(pid, word)) {
			count++;
			*ret_pid = pid;
		}
	}
	closedir(proc);
	return count;
}

static inline unsigned with_word(const char *word)
{
	pid_t one;
	return find_word(word, &one);
}

/*
 * Those that fork and end are gone before it is their turn in a look at all, on a slow machine each time; but they are the
 * newest processes of the machine. Adds to *named those of them with `word`, to *inside those of a PID namespace.
 */
static inline void look_at_newest(const char *word, unsigned *named, uint64_t inode, pid_t init, unsigned *inside)
{
	int newest = 0;
	FILE *file = fopen("/proc/loadavg", "r");
	if (file && fscanf(file, "%*s %*s %*s %*s %d", &newest) != 1)
		newest = 0;
	if (file)
		fclose(file);
	for (int pid = newest; pid > 0 && pid > newest - 16; pid--) {
		*named += has_word(pid, word);
		*inside += is_in_pidns(pid, inode, init);
	}
}

/*
 * For controls that something is alive. A look is a list of pids first and their arguments later:
 * it misses a process that forked and ended in between, and its child as well.
 */
static inline bool word_is_seen(const char *word, unsigned least)
{
	for (int i = 0; i < 300; i++) {
		if (with_word(word) >= least)
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

static inline pid_t pid_with_word(const char *word)
{
	pid_t one = 0;
	find_word(word, &one);
	return one;
}

#endif
