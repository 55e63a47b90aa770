/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orch-bench-load idle|hop COUNT: so many processes, for orch-bench to stop. Writes a byte to stdout when all are
 * there. idle: they sleep. hop: each forks and ends, and so does its child, and so on. Nothing outlives LIFE_S.
 */
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LIFE_S 120
/* Hoppers leave zombies faster than anybody reaps them, and would take every pid of the machine. */
#define HOP_PROCESSES 1024
#define HOP_UID 61747

static _Noreturn void idle(void)
{
	alarm(LIFE_S); /* not inherited by fork() */
	for (;;)
		pause();
}

static time_t seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static _Noreturn void hop(time_t end)
{
	while (seconds() < end) {
		pid_t pid = fork();
		if (pid > 0)
			_exit(0);
		if (pid < 0)
			sched_yield(); /* at the limit: zombies have to go first */
	}
	_exit(0);
}

/* The limit does not bind root: as root they get a uid that nobody has. */
static int limit_processes(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NPROC, &limit) < 0)
		return -1;
	if (limit.rlim_cur > HOP_PROCESSES)
		limit.rlim_cur = limit.rlim_max = HOP_PROCESSES;
	if (setrlimit(RLIMIT_NPROC, &limit) < 0)
		return -1;
	if (geteuid() != 0)
		return 0;
	if (setgroups(0, NULL) < 0 || setgid(HOP_UID) < 0)
		return -1;
	return setuid(HOP_UID);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int hops = strcmp(argv[1], "hop") == 0;
	long count = strtol(argv[2], NULL, 10);
	time_t end = seconds() + LIFE_S;
	if (hops && limit_processes() < 0)
		return 1;
	/* Nobody hops before all are there: at the limit there would be no room for the last ones. */
	int go[2];
	if (pipe(go) < 0)
		return 1;
	for (long i = 1; i < count; i++) {
		pid_t pid = fork();
		if (pid < 0)
			return 1;
		if (pid == 0) {
			char byte;
			close(STDOUT_FILENO);
			close(go[1]);
			if (!hops)
				idle();
			while (read(go[0], &byte, 1) < 0 && errno == EINTR)
				;
			hop(end);
		}
	}
	if (write(STDOUT_FILENO, "r", 1) != 1)
		return 1;
	close(STDOUT_FILENO);
	close(go[1]);
	if (hops)
		hop(end);
	idle();
}
