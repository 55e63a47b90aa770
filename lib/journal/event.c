/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "journal-private.h"

/* The table of events: one row for each record, only ever added to. */

#define COLUMNS "sequence, at_ms, generation, action, attempt, state, digest, hash, noun, format"
#define COLUMN_COUNT 10

static const char last_sql[] = "SELECT " COLUMNS " FROM event ORDER BY sequence DESC LIMIT 1";
static const char at_sql[] = "SELECT " COLUMNS " FROM event WHERE sequence = ?1";

/* --- writing
 * ---------------------------------------------------------------------------------------------- */

/* What a statement costs besides its row is more than the row. */
#define ADD "INSERT INTO event (" COLUMNS ") VALUES "
#define ROW "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
#define ROWS_4 ROW "," ROW "," ROW "," ROW
static const char add_sql[] = ADD ROW;
static const char add_batch_sql[] = ADD ROWS_4 "," ROWS_4 "," ROWS_4 "," ROWS_4;
_Static_assert(EVENT_BATCH == 16, "add_batch_sql has this many rows");

static void bind_event(sqlite3_stmt *statement, int column, const struct event_row *event)
{
	store_bind_number(statement, column + 1, event->sequence);
	store_bind_number(statement, column + 2, (uint64_t)event->at_ms);
	store_bind_number(statement, column + 3, event->generation);
	store_bind_number(statement, column + 4, event->subject);
	store_bind_number(statement, column + 5, event->attempt);
	store_bind_number(statement, column + 6, event->state);
	store_bind_blob(statement, column + 7, event->digest, DIGEST_SIZE);
	store_bind_blob(statement, column + 8, event->hash, DIGEST_SIZE);
	store_bind_number(statement, column + 9, event->noun);
	store_bind_number(statement, column + 10, event->format);
}

static int32_t add_rows(orch_journal *journal, const struct event_row *events, unsigned count,
			orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, count == EVENT_BATCH ? add_batch_sql : add_sql, &statement,
			      reterr);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < count; i++)
		bind_event(statement, (int)i * COLUMN_COUNT, &events[i]);
	int result = store_run(statement);
	return result == SQLITE_OK ? 0 : store_write_failed(journal, result, "event", reterr);
}

int32_t event_flush(orch_journal *journal, orch_error **reterr)
{
	unsigned count = journal->events_waiting;
	int32_t r = 0;
	journal->events_waiting = 0;
	if (count == EVENT_BATCH)
		return add_rows(journal, journal->events, count, reterr);
	for (unsigned i = 0; r == 0 && i < count; i++)
		r = add_rows(journal, &journal->events[i], 1, reterr);
	return r;
}

int32_t event_put(orch_journal *journal, const struct event_row *event, orch_error **reterr)
{
	assert(event->sequence == journal->draft + 1 && journal->events_waiting < EVENT_BATCH);
	journal->events[journal->events_waiting++] = *event;
	journal->draft = event->sequence;
	memcpy(journal->draft_head, event->hash, DIGEST_SIZE);
	return journal->events_waiting == EVENT_BATCH ? event_flush(journal, reterr) : 0;
}

/* --- reading
 * ---------------------------------------------------------------------------------------------- */

/* False: damaged. */
static bool load_event(sqlite3_stmt *statement, struct event_row *event)
{
	event->sequence = (uint64_t)sqlite3_column_int64(statement, 0);
	event->at_ms = sqlite3_column_int64(statement, 1);
	event->generation = (uint64_t)sqlite3_column_int64(statement, 2);
	event->subject = (uint64_t)sqlite3_column_int64(statement, 3);
	event->attempt = (uint32_t)sqlite3_column_int64(statement, 4);
	event->state = (uint32_t)sqlite3_column_int64(statement, 5);
	event->noun = (enum noun)sqlite3_column_int64(statement, 8);
	event->format = (uint32_t)sqlite3_column_int64(statement, 9);
	const void *digest = sqlite3_column_blob(statement, 6);
	const void *hash = sqlite3_column_blob(statement, 7);
	if (event->format < FORMAT_1 || event->format > JOURNAL_FORMAT ||
	    sqlite3_column_bytes(statement, 6) != DIGEST_SIZE ||
	    sqlite3_column_bytes(statement, 7) != DIGEST_SIZE || !digest || !hash)
		return false;
	memcpy(event->digest, digest, DIGEST_SIZE);
	memcpy(event->hash, hash, DIGEST_SIZE);
	return true;
}

int32_t event_at(orch_journal *journal, uint64_t sequence, struct event_row *ret_event,
		 orch_error **reterr)
{
	assert(journal->events_waiting == 0);
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, sequence == UINT64_MAX ? last_sql : at_sql, &statement, reterr);
	if (r < 0)
		return r;
	if (sequence != UINT64_MAX)
		store_bind_number(statement, 1, sequence);
	int result = sqlite3_step(statement);
	if (result == SQLITE_DONE)
		r = ORCH_ENOENT;
	else if (result != SQLITE_ROW)
		r = store_fail(journal, result, "event", reterr);
	else if (!load_event(statement, ret_event))
		r = sqlite3_errcode(journal->db) == SQLITE_NOMEM
			    ? orch_fail_memory(reterr)
			    : orch_fail(reterr, ORCH_ECORRUPT, 0, "event",
					"%s: record %llu is damaged", journal->path,
					(unsigned long long)sqlite3_column_int64(statement, 0));
	sqlite3_reset(statement);
	return r;
}
