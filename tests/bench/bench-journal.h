/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_JOURNAL_H
#define BENCH_JOURNAL_H

#include <orch/journal.h>

/* Each gives 0, or -1 with a line on stderr. */

int journal_fail(const char *what, orch_error *error);
/* `anchor` may be NULL. */
int journal_open(const char *path, const char *anchor, orch_journal **ret_journal);
/* A new action as far as `state`; up to CONFIRMED it has a durable record for each state. */
int journal_action(orch_journal *journal, const char *key, uint32_t state);

int bench_journal_recovery(const struct bench_options *options, const char *folder,
			   struct bench_report *report);

#endif
