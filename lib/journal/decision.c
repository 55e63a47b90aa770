/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/*
 * What a person found out about an action. A decision is written once and stays, also when a later
 * attempt of its action takes the place of the result that the note became.
 */

static const char insert_row[] =
	"INSERT INTO decision (sequence, action, attempt, decision, decided_by, note, at_ms)"
	" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
static const char select_row[] =
	"SELECT sequence, action, attempt, decision, decided_by, note, at_ms FROM decision"
	" WHERE id = ?1";

struct decision_row {
	uint64_t id;
	uint64_t sequence;
	uint64_t action;
	uint32_t attempt;
	uint32_t decision;
	const char *by;
	const void *note; /* NULL with length 0 */
	size_t note_length;
	int64_t at_ms;
};

static void row_digest(const struct decision_row *row, unsigned char digest[DIGEST_SIZE])
{
	struct field_hash hash;
	hash_start(&hash, JOURNAL_FORMAT, "decision");
	hash_number(&hash, row->id);
	hash_number(&hash, row->sequence);
	hash_number(&hash, row->action);
	hash_number(&hash, row->attempt);
	hash_number(&hash, row->decision);
	hash_text(&hash, row->by);
	hash_bytes(&hash, row->note, row->note_length);
	hash_number(&hash, (uint64_t)row->at_ms);
	hash_end(&hash, digest);
}

static int32_t put_row(orch_journal *journal, struct decision_row *row, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, insert_row, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, row->sequence);
	store_bind_number(statement, 2, row->action);
	store_bind_number(statement, 3, row->attempt);
	store_bind_number(statement, 4, row->decision);
	store_bind_text(statement, 5, row->by);
	if (row->note_length)
		store_bind_blob(statement, 6, row->note, row->note_length);
	store_bind_number(statement, 7, (uint64_t)row->at_ms);
	int result = store_run(statement);
	if (result != SQLITE_OK)
		return store_write_failed(journal, result, "decision", reterr);
	row->id = (uint64_t)sqlite3_last_insert_rowid(journal->db);
	return 0;
}

int32_t decision_put(orch_journal *journal, struct action_row *action, uint32_t decision,
		     const char *by, orch_error **reterr)
{
	const struct body *note = action->result.body;
	struct decision_row row = {
		.sequence = journal->draft + 1,
		.action = action->id,
		.attempt = action->attempt,
		.decision = decision,
		.by = by,
		.note = note && note->length ? note->bytes : NULL,
		.note_length = note ? note->length : 0,
		.at_ms = orch_realtime_ms(),
	};
	int32_t r = put_row(journal, &row, reterr);
	if (r < 0)
		return r;
	struct event_row event = {
		.at_ms = row.at_ms,
		.noun = NOUN_DECISION,
		.subject = row.id,
		.state = decision,
	};
	row_digest(&row, event.digest);
	r = chain_put_event(journal, &event, reterr);
	if (r < 0)
		return r;
	action->decision = row.id;
	action->decided = decision;
	action->decided_at_ms = row.at_ms;
	strcpy(action->decided_by, by);
	return 0;
}

/* Of the row that a statement stands at; valid until it moves on. False: damaged, or out of memory.
 */
static bool read_row(sqlite3_stmt *statement, struct decision_row *row, char by[KEY_MAX + 1])
{
	row->sequence = (uint64_t)sqlite3_column_int64(statement, 0);
	row->action = (uint64_t)sqlite3_column_int64(statement, 1);
	row->attempt = (uint32_t)sqlite3_column_int64(statement, 2);
	row->decision = (uint32_t)sqlite3_column_int64(statement, 3);
	row->at_ms = sqlite3_column_int64(statement, 6);
	if (!store_load_text(statement, 4, by, KEY_MAX + 1))
		return false;
	row->by = by;
	if (sqlite3_column_type(statement, 5) == SQLITE_NULL)
		return true;
	/* Absent is NULL: an empty blob is nobody's who writes here. */
	row->note = sqlite3_column_blob(statement, 5);
	row->note_length = (size_t)sqlite3_column_bytes(statement, 5);
	return row->note && row->note_length;
}

/* `digest` NULL: only the row is wanted, without its note. */
static int32_t load_row(orch_journal *journal, struct decision_row *row, char by[KEY_MAX + 1],
			unsigned char *digest, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, select_row, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, row->id);
	int result = sqlite3_step(statement);
	if (result == SQLITE_DONE)
		r = ORCH_ENOENT;
	else if (result != SQLITE_ROW)
		r = store_fail(journal, result, "decision", reterr);
	else if (!read_row(statement, row, by))
		r = sqlite3_errcode(journal->db) == SQLITE_NOMEM
			    ? orch_fail_memory(reterr)
			    : orch_fail(reterr, ORCH_ECORRUPT, 0, "decision",
					"%s: decision %llu is damaged: restore a copy",
					journal->path, (unsigned long long)row->id);
	else if (digest)
		row_digest(row, digest);
	row->note = NULL;
	sqlite3_reset(statement);
	return r;
}

int32_t decision_load(orch_journal *journal, struct action_row *action, orch_error **reterr)
{
	struct decision_row row = {.id = action->decision};
	int32_t r = load_row(journal, &row, action->decided_by, NULL, reterr);
	if (r == ORCH_ENOENT || (r == 0 && row.action != action->id))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "decision",
				 "%s: the decision about %s is missing: restore a copy",
				 journal->path, action->key);
	if (r < 0)
		return r;
	action->decided = row.decision;
	action->decided_at_ms = row.at_ms;
	return 0;
}

int32_t decision_digest(orch_journal *journal, uint64_t id, uint64_t *ret_sequence,
			unsigned char digest[DIGEST_SIZE], orch_error **reterr)
{
	struct decision_row row = {.id = id};
	char by[KEY_MAX + 1];
	int32_t r = load_row(journal, &row, by, digest, reterr);
	if (r == 0)
		*ret_sequence = row.sequence;
	return r;
}
