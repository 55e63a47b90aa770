/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a coordinator waits for after a kill: a process fills a journal, leaves 100 actions open
 * and is killed; another one opens it and recovers. In turns with a journal of a tenth of the
 * actions.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench-journal.h"

#define OPEN_ACTIONS 100u
#define WORKER_MAX_S 3600u

extern char **environ;

/* --- in the workers --- */

static int add_action(orch_journal *journal, const char *tag, uint64_t number, uint32_t state)
{
	char key[64];
	snprintf(key, sizeof(key), "%s-%llu", tag, (unsigned long long)number);
	return journal_action(journal, key, state);
}

/*
 * worker-fill PATH COUNT TAG: COUNT actions to their end and 100 left open, then waits to be
 * killed. Nothing is synced: what a kill leaves is in the kernel, synced or not.
 */
static int fill(const char *path, uint64_t count, const char *tag)
{
	orch_journal *journal = NULL;
	bench_syncs_off();
	if (journal_open(path, NULL, &journal) < 0)
		return 1;
	for (uint64_t i = 0; i < count; i++)
		if (add_action(journal, tag, i, ORCH_ACTION_CONFIRMED) < 0)
			return 1;
	for (uint64_t i = count; i < count + OPEN_ACTIONS; i++)
		if (add_action(journal, tag, i,
			       i % 4 ? ORCH_ACTION_DISPATCHED : ORCH_ACTION_INTENT) < 0)
			return 1;
	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		return 1;
	for (;;)
		pause();
}

static void probe(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	static const uint32_t verdicts[] = {ORCH_OUTCOME_APPLIED, ORCH_OUTCOME_NOT_APPLIED,
					    ORCH_OUTCOME_UNKNOWN};
	uint64_t *asked = userdata;
	(void)action;
	orch_probe_reply_answer(reply, verdicts[(*asked)++ % 3], "found", 5);
}

/* The most memory that this process ever had: VmHWM of proc_pid_status(5). */
static unsigned long peak_kib(void)
{
	unsigned long kib = 0;
	char line[128];
	FILE *file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %lu kB", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib;
}

/* Those that wait for a person would be in each later recovery as well: whoever measured has looked at them. */
static int settle_handed_over(orch_recovery *recovery)
{
	orch_action *action = NULL;
	orch_error *error = NULL;
	for (uint32_t i = 0; i < orch_recovery_count(recovery); i++) {
		orch_recovery_row(recovery, i, &action, NULL, NULL, NULL);
		if (orch_action_state(action) == ORCH_ACTION_HANDED_OVER &&
		    orch_action_abandon(action, NULL, 0, &error) < 0)
			return journal_fail(orch_action_key(action), error);
	}
	return 0;
}

/* worker-recover PATH: opens, recovers, and prints what that took. */
static int recover(const char *path)
{
	orch_journal *journal = NULL;
	orch_recovery *recovery = NULL;
	orch_error *error = NULL;
	uint64_t asked = 0;
	double start = bench_now();
	if (journal_open(path, NULL, &journal) < 0)
		return 1;
	double opened = bench_now();
	uint64_t before = orch_journal_sequence(journal);
	struct orch_recover_opts opts;
	orch_recover_opts_init(&opts, sizeof(opts));
	opts.probe = probe;
	opts.userdata = &asked;
	if (orch_journal_recover(journal, &opts, &recovery, &error) < 0) {
		journal_fail(path, error);
		return 1;
	}
	double recovered = bench_now();
	struct bench_syncs syncs = bench_syncs_so_far();
	printf("%u %.9f %.9f %lu %llu %llu %.3f\n", orch_recovery_count(recovery), opened - start,
	       recovered - opened, peak_kib(),
	       (unsigned long long)(orch_journal_sequence(journal) - before),
	       (unsigned long long)syncs.count,
	       syncs.count ? syncs.seconds / (double)syncs.count * 1e6 : 0);
	int r = settle_handed_over(recovery);
	orch_recovery_unref(recovery);
	orch_journal_unref(journal);
	return r == 0 && fflush(stdout) == 0 ? 0 : 1;
}

int bench_journal_worker(int argc, char **argv)
{
	/* Whoever started this one may be killed. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(WORKER_MAX_S);
	if (argc == 4 && strcmp(argv[0], "worker-fill") == 0)
		return fill(argv[1], strtoull(argv[2], NULL, 10), argv[3]);
	if (argc == 2 && strcmp(argv[0], "worker-recover") == 0)
		return recover(argv[1]);
	return 2;
}

/* --- in the bench --- */

/* Starts `argv` and reads one line of what it prints; then kills it if `kills`. The line, or -1. */
static int run_worker(char *const argv[], bool kills, char *line, size_t size)
{
	int ends[2], status = 0;
	pid_t pid;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return bench_fail("pipe: %s", strerror(errno));
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	int os_errno = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	size_t length = 0;
	ssize_t got = 0;
	while (!os_errno && !bench_stopped() && length + 1 < size &&
	       !memchr(line, '\n', length) &&
	       (got = read(ends[0], line + length, size - 1 - length)) > 0)
		length += (size_t)got;
	line[length] = '\0';
	close(ends[0]);
	if (os_errno)
		return bench_fail("%s cannot be started: %s", argv[1], strerror(os_errno));
	bool whole = strchr(line, '\n') != NULL;
	if (kills || !whole)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (bench_stopped())
		return bench_fail("interrupted");
	bool ended_well = kills ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
				: WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return whole && ended_well ? 0 : bench_fail("%s did not end as it should", argv[1]);
}

/* What the killed one left goes to the disk now, and not at the expense of who recovers. */
static int sync_folder(const char *folder)
{
	DIR *dir = opendir(folder);
	int r = dir ? 0 : -1;
	struct dirent *entry;
	while (r == 0 && (entry = readdir(dir))) {
		int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fsync(fd) < 0)
			r = -1;
		if (fd >= 0)
			close(fd);
	}
	if (r < 0)
		bench_fail("%s: %s", folder, strerror(errno));
	if (dir)
		closedir(dir);
	return r;
}

struct size {
	char folder[PATH_MAX], path[PATH_MAX];
	uint64_t actions;
	unsigned fills;
	struct bench_series total_ms, open_ms, recover_ms, peak_kib;
};

static int fill_and_kill(struct size *size, uint64_t count)
{
	char number[24], tag[24], line[64];
	snprintf(number, sizeof(number), "%llu", (unsigned long long)count);
	snprintf(tag, sizeof(tag), "fill-%u", size->fills++);
	char *argv[] = {"orch-bench", "worker-fill", size->path, number, tag, NULL};
	return run_worker(argv, true, line, sizeof(line)) < 0 ? -1 : sync_folder(size->folder);
}

static void keep(struct bench_series *series, double value, double batch, double sync_us)
{
	unsigned index = series->count++;
	series->values[index] = value;
	series->batch[index] = batch;
	series->sync_us[index] = sync_us;
}

static int open_and_recover(struct size *size)
{
	char line[256];
	char *argv[] = {"orch-bench", "worker-recover", size->path, NULL};
	unsigned found = 0;
	double open_s, recover_s, sync_us;
	unsigned long kib;
	unsigned long long records, syncs;
	if (run_worker(argv, false, line, sizeof(line)) < 0)
		return -1;
	if (sscanf(line, "%u %lf %lf %lu %llu %llu %lf", &found, &open_s, &recover_s, &kib,
		   &records, &syncs, &sync_us) != 7 ||
	    found != OPEN_ACTIONS || syncs < records)
		return bench_fail("recovery did not find %u open actions, or did not sync: %s",
				  OPEN_ACTIONS, line);
	keep(&size->total_ms, (open_s + recover_s) * 1e3, (double)records / (double)syncs, sync_us);
	keep(&size->open_ms, open_s * 1e3, 0, 0);
	keep(&size->recover_ms, recover_s * 1e3, 0, 0);
	keep(&size->peak_kib, (double)kib, 0, 0);
	return 0;
}

static void report_recovery(const struct size *whole, const struct size *tenth,
			    struct bench_report *report)
{
	static struct bench_series times;
	struct bench_result *result;
	static const char peer[] = "with 1/10 of the actions";
	result = bench_add(report, "open-recover", "ms", &whole->total_ms, peer, &tenth->total_ms);
	bench_goal(result, BENCH_GOAL_VALUE_AT_MOST, 1000);
	bench_add(report, "open", "ms", &whole->open_ms, peer, &tenth->open_ms);
	bench_add(report, "recover", "ms", &whole->recover_ms, peer, &tenth->recover_ms);
	times = whole->total_ms;
	for (unsigned i = 0; i < times.count; i++) {
		times.values[i] /= tenth->total_ms.values[i];
		times.batch[i] = times.sync_us[i] = 0;
	}
	/* Flat: ten times the actions may cost half as much again, and nothing like ten times. */
	result = bench_add(report, "open-recover-flat", "times", &times, NULL, NULL);
	bench_goal(result, BENCH_GOAL_VALUE_AT_MOST, 1.5);
	result = bench_add(report, "memory-flat", "KiB", &whole->peak_kib, peer, &tenth->peak_kib);
	bench_goal(result, BENCH_GOAL_RATIO_AT_MOST, 1.5);
}

int bench_journal_recovery(const struct bench_options *options, const char *folder,
			   struct bench_report *report)
{
	static struct size sizes[2];
	static const char *const names[] = {"whole", "tenth"};
	sizes[0].actions = options->actions;
	sizes[1].actions = options->actions / 10;
	for (unsigned i = 0; i < 2; i++) {
		snprintf(sizes[i].folder, sizeof(sizes[i].folder), "%s/%s", folder, names[i]);
		snprintf(sizes[i].path, sizeof(sizes[i].path), "%s/%s/journal", folder,
			 names[i]);
		if (mkdir(sizes[i].folder, 0700) < 0)
			return bench_fail("%s: %s", sizes[i].folder, strerror(errno));
		if (fill_and_kill(&sizes[i], sizes[i].actions) < 0 ||
		    open_and_recover(&sizes[i]) < 0)
			return -1;
		/* The first one found other files than the next ones will. */
		sizes[i].total_ms.count = sizes[i].open_ms.count = 0;
		sizes[i].recover_ms.count = sizes[i].peak_kib.count = 0;
	}
	for (unsigned pair = 0; pair < options->pairs; pair++)
		for (unsigned i = 0; i < 2; i++) {
			struct size *size = &sizes[pair % 2 ? 1 - i : i];
			if (fill_and_kill(size, 0) < 0 || open_and_recover(size) < 0)
				return -1;
		}
	report_recovery(&sizes[0], &sizes[1], report);
	bench_note(report, "open-recover: 100 actions left open by a killed process, a quarter in "
			   "INTENT, the others DISPATCHED; the files are in the page cache.");
	return 0;
}
