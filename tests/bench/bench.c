/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orch-bench WHAT [--json] [--dir DIR] [--seconds N] [--pairs N] [--actions N] [--processes N] [--spawns N]
 *            [--dirty-mib N] [--files N]
 *
 * Exit code 0: measured, whether or not a goal holds. 1: could not be measured. 2: usage.
 */
#include <ftw.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

static const struct {
	const char *name, *text;
	int (*run)(const struct bench_options *options, struct bench_report *report);
} whats[] = {
#ifdef BENCH_JOURNAL
	{"journal", "durable actions, recovery after a kill", bench_journal},
#endif
#ifdef BENCH_REAPER
	{"reaper", "stops, spawns, what they leave", bench_reaper},
#endif
#ifdef BENCH_SANDBOX
	{"sandbox", "starts, spawns, rules, work inside", bench_sandbox},
#endif
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

bool bench_stopped(void)
{
	return stopped;
}

static double clock_now(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double bench_now(void)
{
	return clock_now(CLOCK_MONOTONIC);
}

double bench_cpu_now(void)
{
	return clock_now(CLOCK_PROCESS_CPUTIME_ID);
}

int bench_fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("orch-bench: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	return -1;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

void bench_remove_folder(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int usage(FILE *to)
{
	fputs("usage: orch-bench WHAT [--json] [--dir DIR] [--seconds N] [--pairs N]"
	      " [--actions N]\n"
	      "                  [--processes N] [--spawns N] [--dirty-mib N] [--files N]\n"
	      "  --dir DIR     where the files are made (TMPDIR, or /tmp)\n"
	      "  --seconds N   journal: for the turns of all sides together (30)\n"
	      "  --pairs N     turns of each side, at least 1 (7)\n"
	      "  --actions N   journal: how many recovery finds, at least 10 (100000)\n"
	      "  --processes N reaper: the most that one stop has (4000)\n"
	      "  --spawns N    reaper: after how many it is looked at what they left, at least 10 (10000)\n"
	      "  --dirty-mib N reaper: of a host that has much in memory (2048)\n"
	      "  --files N     sandbox: C files that are built, a tenth of those that are cloned (40)\n"
	      "WHAT:\n",
	      to);
	for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
		fprintf(to, "  %-12s  %s\n", whats[i].name, whats[i].text);
	return to == stdout ? 0 : 2;
}

/* The whole text is a number from `low` to `high`. */
static bool number(const char *text, double low, double high, double *ret_number)
{
	char *end;
	double found = strtod(text, &end);
	if (end == text || *end || !(found >= low && found <= high)) {
		bench_fail("\"%s\" is not a number from %.15g to %.15g", text, low, high);
		return false;
	}
	*ret_number = found;
	return true;
}

static bool whole_number(const char *text, double low, double high, double *ret_number)
{
	if (!number(text, low, high, ret_number))
		return false;
	if (*ret_number == floor(*ret_number))
		return true;
	bench_fail("\"%s\" is not a whole number", text);
	return false;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{"json", no_argument, NULL, 'j'},	 {"dir", required_argument, NULL, 'd'},
		{"seconds", required_argument, NULL, 's'}, {"pairs", required_argument, NULL, 'p'},
		{"actions", required_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'},
		{"processes", required_argument, NULL, 'n'}, {"spawns", required_argument, NULL, 'w'},
		{"dirty-mib", required_argument, NULL, 'm'}, {"files", required_argument, NULL, 'f'},
		{0}};
#ifdef BENCH_REAPER
	if (argc > 1 && strcmp(argv[1], "worker-spawn") == 0)
		return bench_reaper_worker(argc - 1, argv + 1);
#endif
#ifdef BENCH_JOURNAL
	if (argc > 1 && strncmp(argv[1], "worker-", 7) == 0)
		return bench_journal_worker(argc - 1, argv + 1);
#endif

	const char *dir = getenv("TMPDIR");
	struct bench_options options = {.dir = dir && *dir ? dir : "/tmp",
					.seconds = 30,
					.pairs = 7,
					.actions = 100000,
					.processes = 4000,
					.spawns = 10000,
					.dirty_mib = 2048,
					.files = 40};
	double given;
	int option;
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		bool good = true;
		switch (option) {
		case 'j':
			options.json = true;
			break;
		case 'd':
			options.dir = optarg;
			break;
		case 's':
			good = number(optarg, 0.1, 86400, &options.seconds);
			break;
		case 'p':
			good = whole_number(optarg, 1, BENCH_MAX_PAIRS, &given);
			options.pairs = good ? (unsigned)given : 0;
			break;
		case 'a':
			good = whole_number(optarg, 10, 1e8, &given);
			options.actions = good ? (uint64_t)given : 0;
			break;
		case 'n':
			good = whole_number(optarg, 1, 4000, &given);
			options.processes = good ? (unsigned)given : 0;
			break;
		case 'w':
			good = whole_number(optarg, 10, 1e7, &given);
			options.spawns = good ? (uint64_t)given : 0;
			break;
		case 'm':
			good = whole_number(optarg, 1, 65536, &given);
			options.dirty_mib = good ? (unsigned)given : 0;
			break;
		case 'f':
			good = whole_number(optarg, 1, 1000, &given);
			options.files = good ? (unsigned)given : 0;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
		if (!good)
			return 2;
	}
	if (optind != argc - 1)
		return usage(stderr);

	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++) {
		if (strcmp(whats[i].name, argv[optind]) != 0)
			continue;
		struct bench_report report = {.what = whats[i].name};
		if (whats[i].run(&options, &report) < 0)
			return 1;
		bench_print(&report, &options);
		return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
	}
	bench_fail("there is no \"%s\" to measure", argv[optind]);
	return usage(stderr);
}
