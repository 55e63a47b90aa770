/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "timer.h"

/* The rows of timers: read, written, chained. What their clocks mean is in timer.c. */

/* Far above what any sum of times comes to, and far below where sums overflow. */
#define SANE_MAX (INT64_C(1) << 60)

bool timer_set_payload(struct timer_row *row, const void *bytes, size_t length)
{
	if (!length)
		return true;
	row->payload = malloc(length + 1);
	if (!row->payload)
		return false;
	memcpy(row->payload, bytes, length);
	row->payload[length] = '\0';
	row->payload_length = length;
	return true;
}

static int32_t load_payload(sqlite3_stmt *statement, int column, struct timer_row *row)
{
	if (sqlite3_column_type(statement, column) == SQLITE_NULL)
		return 0;
	const void *bytes = sqlite3_column_blob(statement, column);
	int length = sqlite3_column_bytes(statement, column);
	if (!bytes || length < 1 || length > TIMER_PAYLOAD_MAX)
		return ORCH_ECORRUPT;
	return timer_set_payload(row, bytes, (size_t)length) ? 0 : ORCH_ENOMEM;
}

static bool is_sane(int64_t ms)
{
	return ms >= 0 && ms <= SANE_MAX;
}

/* 0, ORCH_ENOMEM, ORCH_ECORRUPT; no error text. */
static int32_t load_row(sqlite3_stmt *statement, struct timer_row *row)
{
	int64_t state = sqlite3_column_int64(statement, 3),
		round = sqlite3_column_int64(statement, 4);
	*row = (struct timer_row){
		.id = (uint64_t)sqlite3_column_int64(statement, 0),
		.sequence = (uint64_t)sqlite3_column_int64(statement, 1),
		.state = (uint32_t)state,
		.round = (uint32_t)round,
		.due_at_ms = sqlite3_column_int64(statement, 5),
		.delay_ms = sqlite3_column_int64(statement, 6),
		.boot_due_ms = sqlite3_column_int64(statement, 8),
		.created_at_ms = sqlite3_column_int64(statement, 10),
		.updated_at_ms = sqlite3_column_int64(statement, 11),
	};
	if (state < ORCH_TIMER_PENDING || state > ORCH_TIMER_CANCELED || round < 1 ||
	    round > UINT32_MAX)
		return ORCH_ECORRUPT;
	if (!is_sane(row->due_at_ms) || !is_sane(row->delay_ms) || !is_sane(row->boot_due_ms) ||
	    !is_sane(row->created_at_ms) || !is_sane(row->updated_at_ms) ||
	    !store_load_text(statement, 2, row->name, sizeof(row->name)) ||
	    !store_load_text(statement, 7, row->boot_id, sizeof(row->boot_id)))
		return ORCH_ECORRUPT;
	return load_payload(statement, 9, row);
}

void timer_row_clear(struct timer_row *row)
{
	free(row->payload);
	row->payload = NULL;
}

int32_t timer_read(orch_journal *journal, sqlite3_stmt *statement, struct timer_row *ret_row,
		   orch_error **reterr)
{
	int32_t r = load_row(statement, ret_row);
	/* A column that could not be read for want of memory looks like one that is damaged. */
	if (r == ORCH_ECORRUPT && sqlite3_errcode(journal->db) == SQLITE_NOMEM)
		r = ORCH_ENOMEM;
	if (r == ORCH_ENOMEM)
		return orch_fail_memory(reterr);
	return r == 0 ? 0
		      : orch_fail(reterr, r, 0, "timer",
				  "%s: timer %" PRIu64 " is damaged: restore a copy", journal->path,
				  ret_row->id);
}

int32_t timer_first(orch_journal *journal, sqlite3_stmt *statement, struct timer_row *ret_row,
		    orch_error **reterr)
{
	int32_t r;
	int result = sqlite3_step(statement);
	if (result == SQLITE_ROW)
		r = timer_read(journal, statement, ret_row, reterr);
	else if (result == SQLITE_DONE)
		r = ORCH_ENOENT;
	else
		r = store_fail(journal, result, "timer", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

int32_t timer_by_name(orch_journal *journal, const char *name, struct timer_row *ret_row,
		      orch_error **reterr)
{
	static const char sql[] = TIMER_SELECT " WHERE name = ?1";
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_text(statement, 1, name);
	return timer_first(journal, statement, ret_row, reterr);
}

int32_t timer_by_id(orch_journal *journal, uint64_t id, struct timer_row *ret_row,
		    orch_error **reterr)
{
	static const char sql[] = TIMER_SELECT " WHERE id = ?1";
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, id);
	return timer_first(journal, statement, ret_row, reterr);
}

static void row_digest(const struct timer_row *row, unsigned char digest[DIGEST_SIZE])
{
	struct field_hash hash;
	hash_start(&hash, JOURNAL_FORMAT, "timer");
	hash_number(&hash, row->id);
	hash_number(&hash, row->sequence);
	hash_text(&hash, row->name);
	hash_number(&hash, row->state);
	hash_number(&hash, row->round);
	hash_number(&hash, (uint64_t)row->due_at_ms);
	hash_number(&hash, (uint64_t)row->delay_ms);
	hash_text(&hash, row->boot_id);
	hash_number(&hash, (uint64_t)row->boot_due_ms);
	hash_bytes(&hash, row->payload, row->payload_length);
	hash_number(&hash, (uint64_t)row->created_at_ms);
	hash_number(&hash, (uint64_t)row->updated_at_ms);
	hash_end(&hash, digest);
}

int32_t timer_digest(orch_journal *journal, uint64_t id, uint64_t *ret_sequence,
		     unsigned char digest[DIGEST_SIZE], orch_error **reterr)
{
	struct timer_row row;
	int32_t r = timer_by_id(journal, id, &row, reterr);
	if (r < 0)
		return r;
	row_digest(&row, digest);
	*ret_sequence = row.sequence;
	timer_row_clear(&row);
	return 0;
}

static int32_t write_row(orch_journal *journal, struct timer_row *row, uint64_t before,
			 orch_error **reterr)
{
	static const char insert[] =
		"INSERT INTO timer (sequence, state, round, due_at_ms, delay_ms, boot_id,"
		" boot_due_ms, payload, updated_at_ms, name, created_at_ms)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
	static const char update[] =
		"UPDATE timer SET sequence = ?1, state = ?2, round = ?3, due_at_ms = ?4,"
		" delay_ms = ?5, boot_id = ?6, boot_due_ms = ?7, payload = ?8, updated_at_ms = ?9"
		" WHERE id = ?10 AND sequence = ?11";
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, before ? update : insert, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, row->sequence);
	store_bind_number(statement, 2, row->state);
	store_bind_number(statement, 3, row->round);
	store_bind_number(statement, 4, (uint64_t)row->due_at_ms);
	store_bind_number(statement, 5, (uint64_t)row->delay_ms);
	store_bind_text(statement, 6, row->boot_id);
	store_bind_number(statement, 7, (uint64_t)row->boot_due_ms);
	if (row->payload_length)
		store_bind_blob(statement, 8, row->payload, row->payload_length);
	store_bind_number(statement, 9, (uint64_t)row->updated_at_ms);
	if (before) {
		store_bind_number(statement, 10, row->id);
		store_bind_number(statement, 11, before);
	} else {
		store_bind_text(statement, 10, row->name);
		store_bind_number(statement, 11, (uint64_t)row->created_at_ms);
	}
	int result = store_run(statement);
	if (result != SQLITE_OK)
		return store_write_failed(journal, result, "timer", reterr);
	if (before && sqlite3_changes(journal->db) != 1)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "timer %s changed meanwhile: look it up again", row->name);
	if (!before)
		row->id = (uint64_t)sqlite3_last_insert_rowid(journal->db);
	return 0;
}

int32_t timer_put(orch_journal *journal, struct timer_row *row, uint64_t before,
		  orch_error **reterr)
{
	row->sequence = journal->draft + 1;
	int32_t r = write_row(journal, row, before, reterr);
	if (r < 0)
		return r;
	struct event_row event = {
		.at_ms = orch_realtime_ms(),
		.noun = NOUN_TIMER,
		.subject = row->id,
		.attempt = row->round,
		.state = row->state,
	};
	row_digest(row, event.digest);
	return chain_put_event(journal, &event, reterr);
}
