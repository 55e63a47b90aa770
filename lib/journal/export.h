/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JOURNAL_EXPORT_H
#define JOURNAL_EXPORT_H

/* Between export.c, which walks, and export-rows.c, which knows what the rows are. */

#include "journal-private.h"

/* Lines that are made and were not told yet: they are made under the store's lock, where nobody is
 * called. */
struct lines {
	struct orch_buf text; /* each with its newline, the only one in it */
};

/* What is exported of rows. */
enum row_type {
	ROW_GENERATION,
	ROW_EPOCH,
	ROW_ACTION,
	ROW_DECISION,
	ROW_PERMIT,
	ROW_TIMER,
	ROW_COUNT
};

/* All of these are called under the store's lock. */

/* {"type":"journal",...} */
int32_t export_head(orch_journal *journal, struct lines *lines, orch_error **reterr);
/* Up to `limit` ids above `after` of rows that were not changed since record `until`. */
int32_t export_ids(orch_journal *journal, enum row_type type, uint64_t after, uint64_t until,
		   uint64_t *ids, size_t limit, size_t *ret_count, orch_error **reterr);
/* The line of one row. `sequence` not 0: only if that is its last record. */
int32_t export_row(orch_journal *journal, enum row_type type, uint64_t id, uint64_t sequence,
		   struct lines *lines, orch_error **reterr);
int32_t export_record(orch_journal *journal, const struct event_row *event, struct lines *lines,
		      orch_error **reterr);
/* The row that a record made; ROW_GENERATION for that of a generation. */
enum row_type export_type_of(const struct event_row *event);
/* `told`: lines before it; `digest`: over them. Not under the lock. */
int32_t export_end(uint64_t told, const struct event_row *last,
		   const unsigned char digest[DIGEST_SIZE], struct lines *lines,
		   orch_error **reterr);

#endif
