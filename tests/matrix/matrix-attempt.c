/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes attempts of the table and says what came of each: "NUMBER RESULT ERRNO" on a line.
 *
 *   matrix-attempt inside|outside PLACE [NAME...]
 *   matrix-attempt again PLACE              inside, without those that take long
 *   matrix-attempt --spin PERCENT ENOUGH
 *
 * Each is made in a process of its own, which an alarm ends: none can spoil the next.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "matrix.h"

#define SECONDS 240
#define WINDOW_US 2000000
#define WINDOWS_MOST 90

struct place place;

/* What a set-id program or one with file capabilities says: 0 if it has more rights than who ran it. */
static int gained(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (geteuid() != getuid())
		return 0;
	return syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective || sets[1].effective) ? 0 : EPERM;
}

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/*
 * Exit code 0: in one window it had more than `percent` of a processor, which a busy machine gives
 * later, and never more than the limit. 1: in none, the last of which began before there was a file
 * `enough`.
 */
static int spin(long percent, const char *enough)
{
	const int64_t much = WINDOW_US / 100 * percent;
	int64_t most = 0;

	for (int i = 0; i < WINDOWS_MOST && most <= much && (i == 0 || access(enough, F_OK) < 0);
	     i++) {
		int64_t wall = clock_us(CLOCK_MONOTONIC),
			before = clock_us(CLOCK_PROCESS_CPUTIME_ID), used = 0;

		while (used <= much && clock_us(CLOCK_MONOTONIC) - wall < WINDOW_US)
			used = clock_us(CLOCK_PROCESS_CPUTIME_ID) - before;
		most = used > most ? used : most;
	}
	fprintf(stderr, "%lld us of %d\n", (long long)most, WINDOW_US);
	return most > much ? 0 : 1;
}

static void attempt(unsigned number)
{
	int report[2], status = 0;
	int result[2] = {KILLED, 0};

	/* What it started may live on, and have the pipe open. */
	if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	pid_t child = fork();

	if (child == 0) {
		close(report[0]);
		alarm(SECONDS);
		errno = 0;
		result[0] = rows[number].attempt(&rows[number]);
		result[1] = result[0] == DENIED ? errno : 0;
		_exit(write(report[1], result, sizeof(result)) == (ssize_t)sizeof(result) ? 0 : 1);
	}
	close(report[1]);
	if (child < 0)
		result[0] = UNTRIED;
	else if (waitpid(child, &status, 0) == child &&
		 read(report[0], result, sizeof(result)) != (ssize_t)sizeof(result))
		result[1] = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	close(report[0]);
	printf("%u %d %d\n", number, result[0], result[1]);
}

static bool is_wanted(char **names, const char *name)
{
	bool found = !*names;

	for (; *names && !found; names++)
		found = strcmp(*names, name) == 0;
	return found;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--nothing") == 0)
		return 0;
	if (argc == 2 && strcmp(argv[1], "--gained") == 0)
		return gained();
	if (argc == 4 && strcmp(argv[1], "--spin") == 0)
		return spin(atol(argv[2]), argv[3]);
	remember_beginning();
	if (argc < 3 || !place_read(argv[2]))
		return 2;
	bool again = strcmp(argv[1], "again") == 0;

	place.inside = again || strcmp(argv[1], "inside") == 0;
	for (unsigned i = 0; i < row_count; i++)
		if (is_wanted(argv + 3, rows[i].name) && !(again && rows[i].flags & LONG)) {
			fflush(stdout);
			attempt(i);
		}
	return fflush(stdout) == 0 ? 0 : 1;
}
