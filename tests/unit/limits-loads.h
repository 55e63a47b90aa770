/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_LIMITS_LOADS_H
#define ORCH_LIMITS_LOADS_H

/* What the scopes of test-limits.c run: programs that take memory, processes, processor time. --load NAME NUMBER. */

#define MIB ((size_t)1 << 20)

/* Exit code 7: the memory was refused, without a kill. */
static inline int touch(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 7;
	for (size_t i = 0; i < size; i += 4096)
		memory[i] = 1;
	return 0;
}

static inline int load_memfd(size_t size)
{
	static const char block[65536] = {1};
	int fd = memfd_create("load", MFD_CLOEXEC);
	for (size_t done = 0; done < size; done += sizeof(block))
		if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			return 7;
	return 0;
}

/* Ten that have a tenth each at the same time. Exit code 9: not all of them came so far. */
static inline int load_many(size_t size)
{
	int ready[2];
	char byte;
	int count = 0;
	if (pipe(ready) < 0)
		return 50;
	for (int i = 0; i < 10; i++)
		if (fork() == 0) {
			if (touch(size / 10) != 0)
				_exit(7);
			(void)!write(ready[1], "x", 1);
			close(ready[1]);
			sleep_long();
		}
	close(ready[1]);
	while (count < 10 && read(ready[0], &byte, 1) == 1)
		count++;
	return count == 10 ? 0 : 9;
}

/* A program that lives on when its child was killed, and ends with a code of its own. */
static inline int load_parent(size_t size)
{
	pid_t pid = fork();
	int status;
	if (pid == 0)
		_exit(touch(size));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 5;
}

/* Exit code: how many forks succeeded; 200: all of `most`; 201: another error than EAGAIN. */
static inline int load_forks(size_t most)
{
	for (size_t i = 0; i < most; i++) {
		pid_t pid = fork();
		if (pid == 0)
			sleep_long();
		if (pid < 0)
			return errno == EAGAIN ? (int)i : 201;
	}
	return 200;
}

/* The same with children that have ended and are not reaped. */
static inline int load_zombies(size_t most)
{
	for (size_t i = 0; i < most; i++) {
		pid_t pid = fork();
		siginfo_t end;
		if (pid == 0)
			_exit(0);
		if (pid < 0)
			return errno == EAGAIN ? (int)i : 201;
		waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT);
	}
	return 200;
}

/* As `forks`, of so many that no exit code tells it: 0: there were exactly `most`, and one more was refused. */
static inline int load_until_full(size_t most)
{
	size_t made = 0;
	pid_t pid;
	while (made <= most && (pid = fork()) > 0)
		made++;
	if (made <= most && pid == 0)
		sleep_long();
	return made == most && errno == EAGAIN ? 0 : made < most ? 1 : 2;
}

static inline int64_t clock_of(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/*
 * Exit code 0: in one of `windows` windows of a second it had more than 15 % of a processor. A busy machine gives less,
 * never more.
 */
static inline int load_spin(size_t windows)
{
	for (size_t i = 0; i < windows; i++) {
		int64_t wall = clock_of(CLOCK_MONOTONIC), used = clock_of(CLOCK_PROCESS_CPUTIME_ID);
		while (clock_of(CLOCK_MONOTONIC) - wall < 1000000)
			;
		wall = clock_of(CLOCK_MONOTONIC) - wall;
		used = clock_of(CLOCK_PROCESS_CPUTIME_ID) - used;
		if (used * 100 > wall * 15)
			return 0;
	}
	return 1;
}

static inline int own_load(const char *name, const char *argument)
{
	size_t number = strtoul(argument, NULL, 10);
	if (strcmp(name, "anonymous") == 0)
		return touch(number * MIB);
	if (strcmp(name, "memfd") == 0)
		return load_memfd(number * MIB);
	if (strcmp(name, "many") == 0)
		return load_many(number * MIB);
	if (strcmp(name, "parent") == 0)
		return load_parent(number * MIB);
	if (strcmp(name, "forks") == 0)
		return load_forks(number);
	if (strcmp(name, "full") == 0)
		return load_until_full(number);
	if (strcmp(name, "zombies") == 0)
		return load_zombies(number);
	if (strcmp(name, "spin") == 0)
		return load_spin(number);
	return -1;
}

#endif
