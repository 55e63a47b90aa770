/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_JOURNAL_H
#define BENCH_JOURNAL_H

#include <sqlite3.h>
#include <stdatomic.h>

#include <orch/ctx.h>
#include <orch/journal.h>

#include "bench.h"

#define PAYLOAD 128u /* bytes of each request and of each result */

struct side {
	/* At least one, then until `until`; how many were durable. */
	int (*turn)(struct side *side, double until, uint64_t *ret_count);
	struct bench_series series, cpu_us;
	/* What this pair has so far. */
	uint64_t count, syncs;
	double seconds, cpu_seconds, sync_seconds;

	orch_journal *journal; /* of journals */
	const char *tag;       /* begins its keys: unique in the journal */
	unsigned in_flight;
	atomic_ullong next;
	orch_ctx *ctx;

	sqlite3 *db; /* of raw SQLite */
	sqlite3_stmt *insert;
	uint64_t rows;

	int fd; /* of the disk */
};

/* Each but next_key() gives 0, or -1 with a line on stderr. */

int journal_fail(const char *what, orch_error *error);
/* `anchor` may be NULL. */
int journal_open(const char *path, const char *anchor, orch_journal **ret_journal);
/* A new action as far as `state`; up to CONFIRMED it has a durable record for each state. */
int journal_action(orch_journal *journal, const char *key, uint32_t state);

void next_key(struct side *side, char *key, size_t size);
/* A new one through its four states: four durable records. */
int one_action(struct side *side);

/* Turns of bench-journal-many.c, which is built if the library takes many at once. */
int turn_threads(struct side *side, double until, uint64_t *ret_count);
int turn_callbacks(struct side *side, double until, uint64_t *ret_count);

int bench_journal_recovery(const struct bench_options *options, const char *folder,
			   struct bench_report *report);

#endif
