/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/*
 * The tables, as a list of steps: step N makes schema N of schema N - 1, and a new file takes all of them, so that a new
 * file and one that was brought up are the same. A step that was released is never changed.
 */

static const char schema_1[] =
	"CREATE TABLE journal (one INTEGER PRIMARY KEY CHECK (one = 1), id BLOB NOT NULL,"
	" epoch INTEGER NOT NULL, created_at_ms INTEGER NOT NULL) STRICT;"
	"CREATE TABLE instance (generation INTEGER PRIMARY KEY, instance_id TEXT NOT NULL,"
	" boot_id TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,"
	" opened_at_ms INTEGER NOT NULL) STRICT;"
	"CREATE TABLE action (id INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, kind TEXT NOT "
	"NULL,"
	" key TEXT NOT NULL UNIQUE, policy INTEGER NOT NULL, fingerprint BLOB NOT NULL,"
	" state INTEGER NOT NULL, attempt INTEGER NOT NULL, generation INTEGER NOT NULL,"
	" created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL,"
	" request_length INTEGER NOT NULL, request_digest BLOB,"
	" result_length INTEGER NOT NULL, result_digest BLOB) STRICT;"
	/* Recovery looks at the open ones only: INTENT, DISPATCHED, OBSERVED, UNKNOWN. */
	"CREATE INDEX action_open ON action (id) WHERE state IN (1, 2, 3, 6);"
	/* The request of action N is 2 N, its result 2 N + 1. Apart, so that a transition does not
	 * write them again and they can be dropped without the mark that the action was done. */
	"CREATE TABLE body (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;"
	"CREATE TABLE event (sequence INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL,"
	" generation INTEGER NOT NULL, action INTEGER NOT NULL, attempt INTEGER NOT NULL,"
	" state INTEGER NOT NULL, digest BLOB NOT NULL, hash BLOB NOT NULL) STRICT;"
	"PRAGMA user_version = 1;";

/*
 * Rows get what they had not: nothing is written to the old ones but `open` of those that are not closed. `format` says
 * how digests and hashes were made. Rows beside the actions are chained as those are.
 */
static const char schema_2[] =
	"ALTER TABLE action ADD COLUMN format INTEGER NOT NULL DEFAULT 1;"
	"ALTER TABLE action ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE action ADD COLUMN permit INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE action ADD COLUMN decision INTEGER NOT NULL DEFAULT 0;"
	/* 1: recovery looks at it; 2: a person does; 0: closed. Apart from the state, so that a transition which does
	 * not change it leaves the index alone. */
	"ALTER TABLE action ADD COLUMN open INTEGER NOT NULL DEFAULT 0;"
	"UPDATE action SET open = 1 WHERE state IN (1, 2, 3, 6);"
	"UPDATE action SET open = 2 WHERE state = 7;"
	"DROP INDEX action_open;"
	"CREATE INDEX action_open ON action (open, id) WHERE open > 0;"
	"ALTER TABLE event ADD COLUMN noun INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE event ADD COLUMN format INTEGER NOT NULL DEFAULT 1;"
	"CREATE TABLE permit (id INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, name TEXT NOT NULL UNIQUE,"
	" kind TEXT NOT NULL, fingerprint BLOB, state INTEGER NOT NULL, epoch INTEGER NOT NULL,"
	" expires_at_ms INTEGER NOT NULL, action INTEGER NOT NULL, note BLOB,"
	" created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL) STRICT;"
	"CREATE TABLE timer (id INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, name TEXT NOT NULL UNIQUE,"
	" state INTEGER NOT NULL, round INTEGER NOT NULL, due_at_ms INTEGER NOT NULL,"
	" delay_ms INTEGER NOT NULL, boot_id TEXT NOT NULL, boot_due_ms INTEGER NOT NULL, payload BLOB,"
	" created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL) STRICT;"
	/* The next of each clock: see timer.c. */
	"CREATE INDEX timer_pending ON timer (boot_id, boot_due_ms) WHERE state = 1;"
	"CREATE TABLE decision (id INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, action INTEGER NOT NULL,"
	" attempt INTEGER NOT NULL, decision INTEGER NOT NULL, decided_by TEXT NOT NULL, note BLOB,"
	" at_ms INTEGER NOT NULL) STRICT;"
	/* What a restored journal replaced: the anchor's point, or zeros where there was none. */
	"CREATE TABLE epoch (epoch INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, generation INTEGER NOT NULL,"
	" at_ms INTEGER NOT NULL, backup_sequence INTEGER NOT NULL, anchor_epoch INTEGER NOT NULL,"
	" anchor_sequence INTEGER NOT NULL, anchor_hash BLOB) STRICT;"
	"PRAGMA user_version = 2;";

static const char *const steps[JOURNAL_SCHEMA] = {schema_1, schema_2};

int schema_migrate(sqlite3 *db, int64_t schema)
{
	int result = SQLITE_OK;
	for (int64_t step = schema; result == SQLITE_OK && step < JOURNAL_SCHEMA; step++)
		result = sqlite3_exec(db, steps[step], NULL, NULL, NULL);
	return result;
}

int schema_create(sqlite3 *db)
{
	return schema_migrate(db, 0);
}
