/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <sodium.h>

#include <orch/permit.h>
#include <orch/timer.h>

#include "export.h"

/* Rows as lines of JSON. Numbers are JSON integers of 64 bits; what is bytes is text where it can
 * be. */

/* --- values
 * -------------------------------------------------------------------------------------------------
 */

static json_t *hex_json(const void *bytes, size_t length)
{
	char hex[2 * 64 + 1];
	if (length > 64)
		return NULL;
	return json_string(sodium_bin2hex(hex, sizeof(hex), bytes, length));
}

static json_t *base64_json(const void *bytes, size_t length)
{
	size_t size = sodium_base64_ENCODED_LEN(length, sodium_base64_VARIANT_ORIGINAL);
	_cleanup_free_ char *text = malloc(size);
	if (!text)
		return NULL;
	sodium_bin2base64(text, size, bytes, length, sodium_base64_VARIANT_ORIGINAL);
	return json_pack("{s:s}", "base64", text);
}

static bool is_text(const void *bytes, size_t length)
{
	return (!length || !memchr(bytes, '\0', length)) && text_is_utf8(bytes, length);
}

static json_t *bytes_json(const void *bytes, size_t length)
{
	return is_text(bytes, length)
		       ? json_pack("{s:o}", "text", json_stringn_nocheck(bytes, length))
		       : base64_json(bytes, length);
}

/* A string; what cannot be one, in a file that was damaged, as bytes. */
static json_t *name_json(const void *bytes, size_t length)
{
	return is_text(bytes, length) ? json_stringn_nocheck(bytes, length)
				      : base64_json(bytes, length);
}

static json_t *payload_json(const struct payload *payload)
{
	char hex[2 * DIGEST_SIZE + 1];
	if (!payload->length)
		return json_null();
	if (payload->kept)
		return bytes_json(payload->body->bytes, payload->body->length);
	sodium_bin2hex(hex, sizeof(hex), payload->digest, DIGEST_SIZE);
	return json_pack("{s:s, s:I}", "sha256", hex, "bytes", (json_int_t)payload->length);
}

/* As SQLite's own memory: what it cannot hand out looks like an empty value. */
static json_t *blob_json(sqlite3_stmt *statement, int column, json_t *make(const void *, size_t))
{
	const void *bytes = sqlite3_column_blob(statement, column);
	size_t length = (size_t)sqlite3_column_bytes(statement, column);
	if (!bytes && (length || sqlite3_errcode(sqlite3_db_handle(statement)) == SQLITE_NOMEM))
		return NULL;
	return make(bytes ? bytes : "", length);
}

static int append(const char *text, size_t length, void *userdata)
{
	struct lines *lines = userdata;
	orch_buf_add(&lines->text, text, length);
	return lines->text.failed ? -1 : 0;
}

/* Takes the object over. NULL: there was no memory for it. */
static int32_t add_line(json_t *object, struct lines *lines, orch_error **reterr)
{
	bool failed = !object || json_dump_callback(object, append, lines, JSON_COMPACT) < 0;
	orch_buf_add(&lines->text, "\n", 1);
	json_decref(object);
	return failed || lines->text.failed ? orch_fail_memory(reterr) : 0;
}

/* --- actions
 * ------------------------------------------------------------------------------------------------
 */

static const char *policy_name(uint32_t policy)
{
	switch (policy) {
	case ORCH_POLICY_REPEATABLE:
		return "REPEATABLE";
	case ORCH_POLICY_PROBE_FIRST:
		return "PROBE_FIRST";
	case ORCH_POLICY_NEVER_REPEAT:
		return "NEVER_REPEAT";
	default:
		return "?";
	}
}

static json_t *action_json(const struct action_row *row)
{
	return json_pack(
		"{s:s, s:I, s:I, s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:b, s:o, "
		"s:o}",
		"type", "action", "id", (json_int_t)row->id, "sequence", (json_int_t)row->sequence,
		"kind", name_json(row->kind, strlen(row->kind)), "key",
		name_json(row->key, strlen(row->key)), "policy", policy_name(row->policy), "state",
		orch_action_state_name(row->state), "attempt", (json_int_t)row->attempt,
		"generation", (json_int_t)row->generation, "created_at_ms",
		(json_int_t)row->created_at_ms, "updated_at_ms", (json_int_t)row->updated_at_ms,
		"fingerprint", hex_json(row->fingerprint, row->fingerprint_length), "permit",
		(json_int_t)row->permit, "decision", (json_int_t)row->decision, "pruned",
		(row->stored & STORED_PRUNED) != 0, "request", payload_json(&row->request),
		"result", payload_json(&row->result));
}

static int32_t add_action(orch_journal *journal, uint64_t id, struct lines *lines,
			  orch_error **reterr)
{
	struct action_row row;
	int32_t r = store_action_by_id(journal, id, &row, reterr);
	if (r < 0)
		return r;
	r = add_line(action_json(&row), lines, reterr);
	action_row_clear(&row);
	return r;
}

/* --- other rows
 * --------------------------------------------------------------------------------------------- */

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

struct column {
	const char *name;
	enum { COLUMN_NUMBER, COLUMN_NAME, COLUMN_HEX, COLUMN_BYTES, COLUMN_STATE } as;
};

#define COLUMNS_MAX 12

/* The columns of `select` stand as in `columns`; its ?1 is the id. */
struct row_kind {
	const char *type;
	const char *ids;      /* after ?1, with no record after ?2, at most ?3 */
	const char *sequence; /* of the last record of ?1; NULL: rows that never change */
	const char *select;
	const char *(*state_name)(uint32_t state);
	struct column columns[COLUMNS_MAX];
};

#define IDS(table) "SELECT id FROM " table " WHERE id > ?1 AND sequence <= ?2 ORDER BY id LIMIT ?3"
#define SEQUENCE(table) "SELECT sequence FROM " table " WHERE id = ?1"

static const struct row_kind row_kinds[ROW_COUNT] = {
	[ROW_GENERATION] =
		{
			.type = "generation",
			.ids = "SELECT generation FROM instance WHERE generation > ?1 AND ?2 >= 0"
			       " ORDER BY generation LIMIT ?3",
			.select = "SELECT generation, instance_id, boot_id, host, pid, "
				  "opened_at_ms FROM instance"
				  " WHERE generation = ?1",
			.columns = {{"generation", COLUMN_NUMBER},
				    {"instance", COLUMN_NAME},
				    {"boot", COLUMN_NAME},
				    {"host", COLUMN_NAME},
				    {"pid", COLUMN_NUMBER},
				    {"opened_at_ms", COLUMN_NUMBER}},
		},
	[ROW_EPOCH] =
		{
			.type = "epoch",
			.ids = "SELECT epoch FROM epoch WHERE epoch > ?1 AND sequence <= ?2 ORDER "
			       "BY epoch LIMIT ?3",
			.sequence = "SELECT sequence FROM epoch WHERE epoch = ?1",
			.select = "SELECT epoch, sequence, generation, at_ms, backup_sequence, "
				  "anchor_epoch,"
				  " anchor_sequence, anchor_hash FROM epoch WHERE epoch = ?1",
			.columns = {{"epoch", COLUMN_NUMBER},
				    {"sequence", COLUMN_NUMBER},
				    {"generation", COLUMN_NUMBER},
				    {"at_ms", COLUMN_NUMBER},
				    {"backup_sequence", COLUMN_NUMBER},
				    {"anchor_epoch", COLUMN_NUMBER},
				    {"anchor_sequence", COLUMN_NUMBER},
				    {"anchor_hash", COLUMN_HEX}},
		},
	[ROW_ACTION] =
		{
			.type = "action",
			.ids = IDS("action"),
			.sequence = SEQUENCE("action"),
		},
	[ROW_DECISION] =
		{
			.type = "decision",
			.ids = IDS("decision"),
			.sequence = SEQUENCE("decision"),
			.select = "SELECT id, sequence, action, attempt, decision, decided_by, "
				  "note, at_ms"
				  " FROM decision WHERE id = ?1",
			.state_name = decision_name,
			.columns = {{"id", COLUMN_NUMBER},
				    {"sequence", COLUMN_NUMBER},
				    {"action", COLUMN_NUMBER},
				    {"attempt", COLUMN_NUMBER},
				    {"decision", COLUMN_STATE},
				    {"by", COLUMN_NAME},
				    {"note", COLUMN_BYTES},
				    {"at_ms", COLUMN_NUMBER}},
		},
	[ROW_PERMIT] =
		{
			.type = "permit",
			.ids = IDS("permit"),
			.sequence = SEQUENCE("permit"),
			.select = "SELECT id, sequence, name, kind, fingerprint, state, epoch, "
				  "expires_at_ms, action,"
				  " note, created_at_ms, updated_at_ms FROM permit WHERE id = ?1",
			.state_name = orch_permit_state_name,
			.columns = {{"id", COLUMN_NUMBER},
				    {"sequence", COLUMN_NUMBER},
				    {"name", COLUMN_NAME},
				    {"kind", COLUMN_NAME},
				    {"fingerprint", COLUMN_HEX},
				    {"state", COLUMN_STATE},
				    {"epoch", COLUMN_NUMBER},
				    {"expires_at_ms", COLUMN_NUMBER},
				    {"action", COLUMN_NUMBER},
				    {"note", COLUMN_BYTES},
				    {"created_at_ms", COLUMN_NUMBER},
				    {"updated_at_ms", COLUMN_NUMBER}},
		},
	[ROW_TIMER] =
		{
			.type = "timer",
			.ids = IDS("timer"),
			.sequence = SEQUENCE("timer"),
			.select = "SELECT id, sequence, name, state, round, due_at_ms, delay_ms, "
				  "payload,"
				  " created_at_ms, updated_at_ms FROM timer WHERE id = ?1",
			.state_name = orch_timer_state_name,
			.columns = {{"id", COLUMN_NUMBER},
				    {"sequence", COLUMN_NUMBER},
				    {"name", COLUMN_NAME},
				    {"state", COLUMN_STATE},
				    {"round", COLUMN_NUMBER},
				    {"due_at_ms", COLUMN_NUMBER},
				    {"delay_ms", COLUMN_NUMBER},
				    {"payload", COLUMN_BYTES},
				    {"created_at_ms", COLUMN_NUMBER},
				    {"updated_at_ms", COLUMN_NUMBER}},
		},
};

static json_t *column_json(sqlite3_stmt *statement, int column, const struct row_kind *kind)
{
	if (sqlite3_column_type(statement, column) == SQLITE_NULL)
		return json_null();
	switch (kind->columns[column].as) {
	case COLUMN_NUMBER:
		return json_integer(sqlite3_column_int64(statement, column));
	case COLUMN_STATE:
		return json_string(
			kind->state_name((uint32_t)sqlite3_column_int64(statement, column)));
	case COLUMN_NAME:
		return blob_json(statement, column, name_json);
	case COLUMN_HEX:
		return blob_json(statement, column, hex_json);
	default:
		return blob_json(statement, column, bytes_json);
	}
}

/* NULL: out of memory. */
static json_t *row_json(sqlite3_stmt *statement, const struct row_kind *kind)
{
	json_t *object = json_pack("{s:s}", "type", kind->type);
	for (int i = 0; object && i < COLUMNS_MAX && kind->columns[i].name; i++)
		if (json_object_set_new(object, kind->columns[i].name,
					column_json(statement, i, kind)) < 0) {
			json_decref(object);
			object = NULL;
		}
	return object;
}

static int32_t missing(orch_journal *journal, enum row_type type, uint64_t id, orch_error **reterr)
{
	return orch_fail(reterr, ORCH_ECORRUPT, 0, "export",
			 "%s: %s %llu is missing or damaged: restore a copy", journal->path,
			 row_kinds[type].type, (unsigned long long)id);
}

static int32_t add_row(orch_journal *journal, enum row_type type, uint64_t id, struct lines *lines,
		       orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, row_kinds[type].select, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, id);
	int result = sqlite3_step(statement);
	if (result == SQLITE_ROW)
		r = add_line(row_json(statement, &row_kinds[type]), lines, reterr);
	else if (result == SQLITE_DONE)
		r = ORCH_ENOENT;
	else
		r = store_fail(journal, result, "export", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

/* 0 if there is no such row. */
static int32_t last_record_of(orch_journal *journal, enum row_type type, uint64_t id,
			      uint64_t *ret_sequence, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, row_kinds[type].sequence, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, id);
	int result = sqlite3_step(statement);
	*ret_sequence = result == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
	if (result != SQLITE_ROW && result != SQLITE_DONE)
		r = store_fail(journal, result, "export", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

int32_t export_row(orch_journal *journal, enum row_type type, uint64_t id, uint64_t sequence,
		   struct lines *lines, orch_error **reterr)
{
	uint64_t last = sequence;
	int32_t r = type < ROW_COUNT ? 0 : missing(journal, ROW_ACTION, id, reterr);
	if (r == 0 && sequence)
		r = last_record_of(journal, type, id, &last, reterr);
	if (r < 0)
		return r;
	if (last > sequence)
		return 0; /* a later record tells it */
	if (last == sequence)
		r = type == ROW_ACTION ? add_action(journal, id, lines, reterr)
				       : add_row(journal, type, id, lines, reterr);
	return last < sequence || r == ORCH_ENOENT ? missing(journal, type, id, reterr) : r;
}

int32_t export_ids(orch_journal *journal, enum row_type type, uint64_t after, uint64_t until,
		   uint64_t *ids, size_t limit, size_t *ret_count, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, row_kinds[type].ids, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, after);
	store_bind_number(statement, 2, until);
	store_bind_number(statement, 3, limit);
	size_t count = 0;
	int result;
	while ((result = sqlite3_step(statement)) == SQLITE_ROW)
		ids[count++] = (uint64_t)sqlite3_column_int64(statement, 0);
	if (result != SQLITE_DONE)
		r = store_fail(journal, result, "export", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	*ret_count = count;
	return r;
}

/* --- first, records, last
 * ----------------------------------------------------------------------------------- */

int32_t export_head(orch_journal *journal, struct lines *lines, orch_error **reterr)
{
	return add_line(json_pack("{s:s, s:i, s:s, s:o, s:i, s:I, s:I, s:I}", "type", "journal",
				  "format", 1, "liborch", orch_version(), "id",
				  hex_json(journal->id, sizeof(journal->id)), "schema",
				  JOURNAL_SCHEMA, "epoch", (json_int_t)journal->epoch, "generation",
				  (json_int_t)journal->generation, "sequence",
				  (json_int_t)journal->sequence),
			lines, reterr);
}

static const enum row_type type_of_noun[NOUN_COUNT] = {
	[NOUN_ACTION] = ROW_ACTION,	[NOUN_PERMIT] = ROW_PERMIT, [NOUN_TIMER] = ROW_TIMER,
	[NOUN_DECISION] = ROW_DECISION, [NOUN_EPOCH] = ROW_EPOCH,
};

enum row_type export_type_of(const struct event_row *event)
{
	if (event->noun == NOUN_ACTION && !event->subject)
		return ROW_GENERATION;
	return event->noun < NOUN_COUNT ? type_of_noun[event->noun] : ROW_COUNT;
}

static const char *record_state(enum row_type type, uint32_t state)
{
	if (type == ROW_ACTION)
		return orch_action_state_name(state);
	return row_kinds[type].state_name ? row_kinds[type].state_name(state) : "";
}

int32_t export_record(orch_journal *journal, const struct event_row *event, struct lines *lines,
		      orch_error **reterr)
{
	enum row_type type = export_type_of(event);
	if (type == ROW_COUNT)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "export",
				 "%s: record %llu is about nothing that is known: restore a copy",
				 journal->path, (unsigned long long)event->sequence);
	uint64_t subject = type == ROW_GENERATION ? event->generation : event->subject;
	return add_line(
		json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:s, s:o, s:o}", "type", "record",
			  "sequence", (json_int_t)event->sequence, "at_ms",
			  (json_int_t)event->at_ms, "generation", (json_int_t)event->generation,
			  "of", row_kinds[type].type, "subject", (json_int_t)subject, "attempt",
			  (json_int_t)event->attempt, "state", record_state(type, event->state),
			  "digest", hex_json(event->digest, DIGEST_SIZE), "hash",
			  hex_json(event->hash, DIGEST_SIZE)),
		lines, reterr);
}

int32_t export_end(uint64_t told, const struct event_row *last,
		   const unsigned char digest[DIGEST_SIZE], struct lines *lines,
		   orch_error **reterr)
{
	return add_line(json_pack("{s:s, s:I, s:I, s:o, s:o}", "type", "end", "lines",
				  (json_int_t)told, "sequence", (json_int_t)last->sequence, "hash",
				  hex_json(last->hash, DIGEST_SIZE), "sha256",
				  hex_json(digest, DIGEST_SIZE)),
			lines, reterr);
}
