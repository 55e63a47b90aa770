/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_H
#define BENCH_H

/*
 * orch-bench: what something costs here, beside a peer that is measured in the same run, turn by
 * turn (A B A B ...), so that what else the machine does falls on both. One file per thing that
 * is measured.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_options {
	const char *dir;  /* where the files are */
	double seconds;   /* for the turns of all sides together; what has no turns comes on top */
	unsigned pairs;   /* turns of each side */
	uint64_t actions; /* journal: how many recovery finds */
	unsigned processes; /* reaper: the most that one stop has */
	uint64_t spawns;  /* reaper: after how many it is looked at what they left */
	unsigned dirty_mib; /* reaper: of a host that has much in memory */
	unsigned files; /* sandbox: C files that are built */
	bool json;
};

enum bench_goal {
	BENCH_GOAL_NONE,
	BENCH_GOAL_RATIO_AT_LEAST,
	BENCH_GOAL_RATIO_AT_MOST,
	BENCH_GOAL_VALUE_AT_MOST
};

#define BENCH_MAX_PAIRS 99u

/* One row. `value` and `against` are medians; `ratio` is the median of the pairs' ratios. */
struct bench_result {
	const char *name, *unit;
	const char *peer;     /* what it is compared with, or NULL */
	const char *missing;  /* why there is no value, or NULL */
	double value, low, high;
	double against;
	double ratio, ratio_low, ratio_high;
	enum bench_goal goal_kind;
	double goal;
	unsigned pairs;
	double batch;   /* records per sync of a file, or 0 */
	double sync_us; /* mean time of a sync in a turn, or 0 */
};

#define BENCH_MAX_RESULTS 32u

struct bench_report {
	const char *what;
	unsigned count;
	struct bench_result results[BENCH_MAX_RESULTS];
	unsigned notes_count;
	const char *notes[8]; /* how it was measured, where a reader could take it wrongly */
};

/* What one side did in its turns. */
struct bench_series {
	unsigned count;
	double values[BENCH_MAX_PAIRS];
	double batch[BENCH_MAX_PAIRS];
	double sync_us[BENCH_MAX_PAIRS];
};

double bench_median(const double *values, unsigned count);
/* A row from what `own` and `peer` did in the same turns; `peer` may be NULL. */
struct bench_result *bench_add(struct bench_report *report, const char *name, const char *unit,
			       const struct bench_series *own, const char *peer_name,
			       const struct bench_series *peer);
/* A row that this build has not. */
struct bench_result *bench_add_missing(struct bench_report *report, const char *name,
				       const char *unit, const char *why);
void bench_goal(struct bench_result *result, enum bench_goal kind, double goal);
void bench_note(struct bench_report *report, const char *text);
void bench_print(const struct bench_report *report, const struct bench_options *options);

double bench_now(void);
double bench_cpu_now(void); /* of this process */
/* SIGINT or SIGTERM came: end, and leave no files. */
bool bench_stopped(void);
/* "bench: " and a line on stderr; gives -1. */
int bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_remove_folder(const char *path);

/* --- syncs (bench-sync.c) --- */

struct bench_syncs {
	uint64_t count;
	double seconds;
};

/* Every fsync() and fdatasync() of this process, SQLite's among them. */
struct bench_syncs bench_syncs_so_far(void);
/* They do nothing any more: for a process that only makes files for another. */
void bench_syncs_off(void);

/* --- what can be measured: 0, or -1 with a line on stderr --- */

int bench_journal(const struct bench_options *options, struct bench_report *report);
/* What it starts as a process of its own; argv[0] is the name. Gives an exit code. */
int bench_journal_worker(int argc, char **argv);

int bench_reaper(const struct bench_options *options, struct bench_report *report);
int bench_reaper_worker(int argc, char **argv);

int bench_sandbox(const struct bench_options *options, struct bench_report *report);

#endif
