/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* Records as they are read back: an event, and the names that its row has. */

uint64_t orch_record_sequence(const orch_record *record)
{
	return record ? record->sequence : 0;
}

int64_t orch_record_at_ms(const orch_record *record)
{
	return record ? record->at_ms : 0;
}

uint64_t orch_record_generation(const orch_record *record)
{
	return record ? record->generation : 0;
}

uint32_t orch_record_type(const orch_record *record)
{
	return record ? record->type : 0;
}

const char *orch_record_type_name(uint32_t type)
{
	switch (type) {
	case ORCH_RECORD_GENERATION:
		return "generation";
	case ORCH_RECORD_ACTION:
		return "action";
	case ORCH_RECORD_PERMIT:
		return "permit";
	case ORCH_RECORD_TIMER:
		return "timer";
	case ORCH_RECORD_DECISION:
		return "decision";
	case ORCH_RECORD_EPOCH:
		return "epoch";
	default:
		return "?";
	}
}

uint64_t orch_record_subject(const orch_record *record)
{
	return record ? record->subject : 0;
}

const char *orch_record_name(const orch_record *record)
{
	return record ? record->name : "";
}

const char *orch_record_kind(const orch_record *record)
{
	return record ? record->kind : "";
}

uint32_t orch_record_state(const orch_record *record)
{
	return record ? record->state : 0;
}

static const char *decision_name(uint32_t decision)
{
	switch (decision) {
	case ORCH_DECISION_APPLIED:
		return "APPLIED";
	case ORCH_DECISION_NOT_APPLIED:
		return "NOT_APPLIED";
	case ORCH_DECISION_ABANDON:
		return "ABANDON";
	default:
		return "?";
	}
}

const char *orch_record_state_name(const orch_record *record)
{
	switch (record ? record->type : 0) {
	case ORCH_RECORD_ACTION:
		return orch_action_state_name(record->state);
	case ORCH_RECORD_PERMIT:
		return orch_permit_state_name(record->state);
	case ORCH_RECORD_TIMER:
		return orch_timer_state_name(record->state);
	case ORCH_RECORD_DECISION:
		return decision_name(record->state);
	default:
		return "";
	}
}

uint32_t orch_record_attempt(const orch_record *record)
{
	return record ? record->attempt : 0;
}

/* --- reading
 * ---------------------------------------------------------------------------------------------- */

static const char records_after[] =
	"SELECT e.sequence, e.at_ms, e.generation, e.noun, e.action, e.attempt, e.state,"
	" coalesce(a.key, p.name, t.name), coalesce(a.kind, p.kind) FROM event e"
	" LEFT JOIN decision d ON e.noun = 3 AND d.id = e.action"
	" LEFT JOIN action a ON a.id = CASE e.noun WHEN 0 THEN e.action WHEN 3 THEN d.action END"
	" LEFT JOIN permit p ON e.noun = 1 AND p.id = e.action"
	" LEFT JOIN timer t ON e.noun = 2 AND t.id = e.action"
	" WHERE e.sequence > ?1 AND e.sequence <= ?2 ORDER BY e.sequence LIMIT ?3";

static bool record_load_names(sqlite3_stmt *statement, orch_record *record)
{
	record->name[0] = record->kind[0] = '\0';
	switch (record->type) {
	case ORCH_RECORD_ACTION:
	case ORCH_RECORD_DECISION:
	case ORCH_RECORD_PERMIT:
		return store_load_text(statement, 7, record->name, sizeof(record->name)) &&
		       store_load_text(statement, 8, record->kind, sizeof(record->kind));
	case ORCH_RECORD_TIMER:
		return store_load_text(statement, 7, record->name, sizeof(record->name));
	default:
		return true;
	}
}

/* False: damaged. */
static bool record_load(sqlite3_stmt *statement, orch_record *record)
{
	int64_t noun = sqlite3_column_int64(statement, 3);
	uint64_t subject = (uint64_t)sqlite3_column_int64(statement, 4);
	record->sequence = (uint64_t)sqlite3_column_int64(statement, 0);
	record->at_ms = sqlite3_column_int64(statement, 1);
	record->generation = (uint64_t)sqlite3_column_int64(statement, 2);
	record->subject = subject;
	record->attempt = record->state = 0;
	switch (noun) {
	case NOUN_ACTION:
		record->type = subject ? ORCH_RECORD_ACTION : ORCH_RECORD_GENERATION;
		if (!subject)
			record->subject = record->generation;
		break;
	case NOUN_PERMIT:
		record->type = ORCH_RECORD_PERMIT;
		break;
	case NOUN_TIMER:
		record->type = ORCH_RECORD_TIMER;
		break;
	case NOUN_DECISION:
		record->type = ORCH_RECORD_DECISION;
		break;
	case NOUN_EPOCH:
		record->type = ORCH_RECORD_EPOCH;
		break;
	default:
		return false;
	}
	if (record->type == ORCH_RECORD_ACTION || record->type == ORCH_RECORD_TIMER)
		record->attempt = (uint32_t)sqlite3_column_int64(statement, 5);
	if (record->type != ORCH_RECORD_GENERATION && record->type != ORCH_RECORD_EPOCH)
		record->state = (uint32_t)sqlite3_column_int64(statement, 6);
	return record_load_names(statement, record);
}

static int32_t damaged(orch_journal *journal, uint64_t sequence, orch_error **reterr)
{
	/* A column that could not be read for want of memory looks like one that is damaged. */
	if (sqlite3_errcode(journal->db) == SQLITE_NOMEM)
		return orch_fail_memory(reterr);
	return orch_fail(reterr, ORCH_ECORRUPT, 0, "record",
			 "%s: record %llu is missing or damaged: restore a copy", journal->path,
			 (unsigned long long)sequence);
}

int32_t record_read(orch_journal *journal, uint64_t after, uint64_t last, orch_record *records,
		    uint32_t room, uint32_t *ret_count, orch_error **reterr)
{
	sqlite3_stmt *statement;
	uint32_t count = 0;
	int result;
	int32_t r = store_sql(journal, records_after, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, after);
	store_bind_number(statement, 2, last);
	store_bind_number(statement, 3, room);
	while (r == 0 && (result = sqlite3_step(statement)) == SQLITE_ROW) {
		orch_record *record = &records[count];
		if (record_load(statement, record) && record->sequence == after + count + 1)
			count++;
		else
			r = damaged(journal, after + count + 1, reterr);
	}
	if (r == 0 && result != SQLITE_DONE)
		r = store_fail(journal, result, "record", reterr);
	/* The sequence has no gaps up to what was committed last. */
	if (r == 0 && count < room && after + count < last)
		r = damaged(journal, after + count + 1, reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	if (r == 0)
		*ret_count = count;
	return r;
}

static int32_t tell_batch(orch_record *records, uint32_t count, orch_record_fn fn, void *userdata,
			  uint64_t *after)
{
	int32_t r = 0;
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		*after = records[i].sequence;
		r = fn(userdata, &records[i]);
	}
	return r;
}

int32_t orch_journal_records(orch_journal *journal, uint64_t after_sequence, orch_record_fn fn,
			     void *userdata, orch_error **reterr)
{
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	/* What the callback itself records is not for this walk, or it would not end. */
	uint64_t last = journal->sequence;
	_cleanup_free_ orch_record *records = calloc(RECORD_BATCH, sizeof(*records));
	if (!records)
		return orch_fail_memory(reterr);
	while (r == 0 && after_sequence < last) {
		uint32_t count = 0;
		r = store_check(journal, reterr);
		if (r < 0)
			return r;
		store_lock(journal);
		r = record_read(journal, after_sequence, last, records, RECORD_BATCH, &count, reterr);
		store_unlock(journal);
		/* Not under the lock: the callback may use the journal. */
		if (r == 0)
			r = tell_batch(records, count, fn, userdata, &after_sequence);
	}
	return r;
}
