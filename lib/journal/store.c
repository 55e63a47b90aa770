/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "journal-private.h"

#define ACTION_QUERY                                                                               \
	"SELECT a.id, a.sequence, a.kind, a.key, a.policy, a.fingerprint, a.state, a.attempt,"     \
	" a.generation, a.created_at_ms, a.updated_at_ms, a.request_length, a.request_digest,"     \
	" a.result_length, a.result_digest, q.bytes, r.bytes, a.format, a.stored, a.permit,"       \
	" a.decision FROM action a"                                                                \
	" LEFT JOIN body q ON q.id = 2 * a.id LEFT JOIN body r ON r.id = 2 * a.id + 1"

#define UPDATE_ACTION                                                                              \
	"UPDATE action SET sequence = ?1, state = ?2, attempt = ?3, generation = ?4,"              \
	" updated_at_ms = ?5, request_length = ?6, request_digest = ?7, result_length = ?8,"       \
	" result_digest = ?9, format = ?10, stored = ?11, permit = ?12, decision = ?13"
#define UPDATE_WHERE                                                                               \
	" WHERE id = ?15 AND state = ?16 AND attempt = ?17 AND generation = ?18"                   \
	" AND (?19 = 0 OR sequence = ?19)"

static const char *const statement_sql[STATEMENT_COUNT] = {
	[STATEMENT_BEGIN] = "BEGIN IMMEDIATE",
	[STATEMENT_COMMIT] = "COMMIT",
	[STATEMENT_ROLLBACK] = "ROLLBACK",
	[STATEMENT_ADD_INSTANCE] =
		"INSERT INTO instance (generation, instance_id, boot_id, host, pid,"
		" opened_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
	[STATEMENT_ADD_ACTION] =
		"INSERT INTO action (sequence, state, attempt, generation, updated_at_ms, "
		"request_length, request_digest, result_length, result_digest, format, stored, permit, "
		"decision, open, kind, key, policy, fingerprint, created_at_ms) VALUES (?1, ?2, ?3, ?4, "
		"?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
	[STATEMENT_UPDATE_ACTION] = UPDATE_ACTION UPDATE_WHERE,
	/* Naming `open` makes SQLite write its index as well. */
	[STATEMENT_UPDATE_OPEN_ACTION] = UPDATE_ACTION ", open = ?14" UPDATE_WHERE,
	[STATEMENT_SET_BODY] = "INSERT OR REPLACE INTO body (id, bytes) VALUES (?1, ?2)",
	[STATEMENT_DROP_BODY] = "DELETE FROM body WHERE id = ?1",
	[STATEMENT_ACTION_BY_KEY] = ACTION_QUERY " WHERE a.key = ?1",
	[STATEMENT_ACTION_BY_ID] = ACTION_QUERY " WHERE a.id = ?1",
	[STATEMENT_ACTION_SEQUENCE] = "SELECT sequence, open FROM action WHERE id = ?1",
	[STATEMENT_INSTANCE] = "SELECT instance_id, boot_id, host, pid, opened_at_ms FROM instance"
			       " WHERE generation = ?1",
	/* "open > 0" is what tells SQLite that its partial index will do. Those that wait for a
	 * person come last. */
	[STATEMENT_OPEN_ACTIONS] = "SELECT id, kind FROM action WHERE open > 0"
				   " AND (open = 2 OR state = 6 OR generation < ?1) ORDER BY open, id",
};

/* --- checks and errors
 * ------------------------------------------------------------------------------ */

int32_t store_check(orch_journal *journal, orch_error **reterr)
{
	if (!journal)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the journal is NULL");
	if (journal->pid != getpid())
		return orch_fail(
			reterr, ORCH_EFORKED, 0, NULL,
			"the journal %s belongs to process %d, this is its forked child %d: only "
			"the parent may use it",
			journal->path, (int)journal->pid, (int)getpid());
	if (journal->poisoned)
		return orch_fail(reterr, ORCH_EPOISONED, 0, NULL,
				 "%s: %s; close the journal, open it again and recover",
				 journal->path,
				 journal->poison ? journal->poison : "an earlier commit failed");
	return 0;
}

int32_t store_check_writable(orch_journal *journal, orch_error **reterr)
{
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (journal->read_only)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL, "%s is open for reading only",
				 journal->path);
	return 0;
}

void store_poison(orch_journal *journal, const char *why)
{
	if (journal->poisoned)
		return;
	journal->poison = strdup(why);
	journal->poisoned = true;
}

/*
 * The errno behind an I/O error. sqlite3_system_errno() may be that of a later call; the file that
 * failed, the log in nearly every case, keeps its own.
 */
static int io_errno(orch_journal *journal)
{
	sqlite3_file *file = NULL;
	int os_errno = 0;
	if (!journal->db)
		return 0;
	sqlite3_file_control(journal->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file);
	if (file && file->pMethods)
		file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &os_errno);
	if (!os_errno)
		sqlite3_file_control(journal->db, "main", SQLITE_FCNTL_LAST_ERRNO, &os_errno);
	return os_errno ? os_errno : sqlite3_system_errno(journal->db);
}

int32_t store_fail(orch_journal *journal, int result, const char *what, orch_error **reterr)
{
	const char *text = journal->db ? sqlite3_errmsg(journal->db) : sqlite3_errstr(result);
	switch (result & 0xff) {
	case SQLITE_NOMEM:
		return orch_fail_memory(reterr);
	case SQLITE_FULL:
		return orch_fail(reterr, ORCH_ENOSPC, ENOSPC, what,
				 "%s: no room on the disk, nothing is recorded: free some",
				 journal->path);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_CONSTRAINT:
	case SQLITE_SCHEMA:
	case SQLITE_ERROR:
		return orch_fail(reterr, ORCH_ECORRUPT, 0, what,
				 "%s is damaged (%s): restore a copy", journal->path, text);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return orch_fail(reterr, ORCH_ELOCKED, 0, what,
				 "%s is open in another program: close it there", journal->path);
	default:
		return orch_fail(reterr, ORCH_ESYS, io_errno(journal), what, "%s: SQLite says: %s",
				 journal->path, text);
	}
}

/* An answer inside a transaction. Only what certainly left the files alone leaves the handle well.
 */
int32_t store_write_failed(orch_journal *journal, int result, const char *what,
			   orch_error **reterr)
{
	int32_t r = store_fail(journal, result, what, reterr);
	if (r != ORCH_ENOSPC && r != ORCH_ENOMEM)
		store_poison(journal, "an earlier write failed");
	return r;
}

int32_t store_statement(orch_journal *journal, enum statement which, sqlite3_stmt **ret_statement,
			orch_error **reterr)
{
	assert(journal->locked || !journal->shared);
	sqlite3_stmt **slot = &journal->statements[which];
	*ret_statement = NULL;
	if (*slot) {
		sqlite3_reset(*slot);
		sqlite3_clear_bindings(*slot);
	} else {
		int result = sqlite3_prepare_v3(journal->db, statement_sql[which], -1,
						SQLITE_PREPARE_PERSISTENT, slot, NULL);
		if (result != SQLITE_OK)
			return store_fail(journal, result, "prepare", reterr);
	}
	*ret_statement = *slot;
	return 0;
}

int32_t store_sql(orch_journal *journal, const char *sql, sqlite3_stmt **ret_statement,
		  orch_error **reterr)
{
	assert(journal->locked || !journal->shared);
	struct cached_sql *slot = journal->sql;
	while (slot < journal->sql + STORE_SQL_MAX && slot->sql && slot->sql != sql)
		slot++;
	assert(slot < journal->sql + STORE_SQL_MAX);
	*ret_statement = NULL;
	if (slot->statement) {
		sqlite3_reset(slot->statement);
		sqlite3_clear_bindings(slot->statement);
	} else {
		int result = sqlite3_prepare_v3(journal->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
						&slot->statement, NULL);
		if (result != SQLITE_OK)
			return store_fail(journal, result, "prepare", reterr);
		slot->sql = sql;
	}
	*ret_statement = slot->statement;
	return 0;
}

int store_run(sqlite3_stmt *statement)
{
	int result = sqlite3_step(statement);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return result == SQLITE_DONE || result == SQLITE_ROW ? SQLITE_OK : result;
}

int store_finalize(sqlite3_stmt *statement, int result)
{
	int finalized = sqlite3_finalize(statement);
	return result != SQLITE_OK ? result : finalized;
}

/* --- transactions
 * ------------------------------------------------------------------------------------- */

static int32_t check_file(orch_journal *journal, const char *path, const struct file_identity *identity,
			  orch_error **reterr)
{
	if (file_identity_holds(path, identity))
		return 0;
	store_poison(journal, "its files were removed or replaced while it was open");
	return orch_fail(
		reterr, ORCH_EPOISONED, 0, "files",
		"%s was removed or replaced while the journal was open: what is written now "
		"would be lost, or another coordinator has taken over",
		path);
}

/*
 * Somebody may take the files away beneath us: then SQLite goes on writing to what has no name, and
 * a lock file that was replaced keeps nobody out. The lock is looked at before anything is written, for another
 * coordinator may have the file; all of them before the commit counts.
 */
static int32_t check_lock(orch_journal *journal, orch_error **reterr)
{
	return check_file(journal, journal->lock.path, &journal->lock.identity, reterr);
}

static int32_t check_files(orch_journal *journal, orch_error **reterr)
{
	int32_t r = check_lock(journal, reterr);
	if (r == 0)
		r = check_file(journal, journal->path, &journal->file, reterr);
	if (r == 0 && journal->wal_known)
		r = check_file(journal, journal->wal_path, &journal->wal, reterr);
	return r;
}

int32_t store_begin(orch_journal *journal, orch_error **reterr)
{
	int32_t r = check_lock(journal, reterr);
	if (r < 0)
		return r;
	journal->draft = journal->sequence;
	memcpy(journal->draft_head, journal->head, DIGEST_SIZE);
	/* The first record of a migrated journal goes into the transaction that migrates it. */
	if (journal->migrating && !sqlite3_get_autocommit(journal->db))
		return 0;
	sqlite3_stmt *statement;
	r = store_statement(journal, STATEMENT_BEGIN, &statement, reterr);
	if (r < 0)
		return r;
	int result = store_run(statement);
	return result == SQLITE_OK ? 0 : store_write_failed(journal, result, "begin", reterr);
}

void store_lock(orch_journal *journal)
{
	if (pthread_mutex_trylock(&journal->mutex) != 0) {
		atomic_fetch_add(&journal->readers, 1);
		pthread_mutex_lock(&journal->mutex);
		atomic_fetch_sub(&journal->readers, 1);
	}
	journal->locked++;
}

void store_unlock(orch_journal *journal)
{
	if (--journal->locked == 0 && journal->writer_yields) {
		journal->writer_yields = false;
		pthread_cond_signal(&journal->read);
	}
	pthread_mutex_unlock(&journal->mutex);
}

/* A mutex goes to who runs, and that is who let it go just now: without this a look-up waits for many commits. */
void store_lock_to_write(orch_journal *journal)
{
	pthread_mutex_lock(&journal->mutex);
	if (atomic_load(&journal->readers) > 0) {
		journal->writer_yields = true;
		while (journal->writer_yields)
			pthread_cond_wait(&journal->read, &journal->mutex);
	}
	journal->locked++;
}

void store_abort(orch_journal *journal)
{
	journal->events_waiting = 0;
	if (!journal->db || sqlite3_get_autocommit(journal->db))
		return;
	sqlite3_stmt *statement;
	if (store_statement(journal, STATEMENT_ROLLBACK, &statement, NULL) == 0)
		store_run(statement);
	if (!sqlite3_get_autocommit(journal->db))
		store_poison(journal, "a transaction could not be rolled back");
}

/* The log goes back into the database here and not inside SQLite's commit, which would hide its
 * failure. */
static void checkpoint(orch_journal *journal)
{
	if (journal->wal_frames < JOURNAL_CHECKPOINT_FRAMES)
		return;
	int result =
		sqlite3_wal_checkpoint_v2(journal->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	if ((result & 0xff) == SQLITE_IOERR || (result & 0xff) == SQLITE_CORRUPT)
		store_poison(journal, "the write-ahead log could not be carried over");
	/* A full disk is tried again after the next record: the log holds everything until then. */
}

int32_t store_commit(orch_journal *journal, orch_error **reterr)
{
	if (journal->draft == journal->sequence) {
		store_abort(journal);
		return 0;
	}
	sqlite3_stmt *statement;
	int32_t r = event_flush(journal, reterr);
	if (r == 0)
		r = store_statement(journal, STATEMENT_COMMIT, &statement, reterr);
	if (r < 0) {
		store_abort(journal);
		return r;
	}
	int result = store_run(statement);
	if ((result & 0xff) == SQLITE_FULL) {
		/* The write that failed came before the last frame of the transaction was complete,
		 * and before any sync: it does not count, now or after a crash. */
		r = store_fail(journal, result, "commit", reterr);
		store_abort(journal);
		return r;
	}
	if (result != SQLITE_OK) {
		r = orch_fail(reterr, ORCH_EPOISONED, io_errno(journal), "commit",
			      "%s: the commit failed (%s), and whether it is on the disk is not "
			      "known; close the journal, open it again and recover",
			      journal->path, sqlite3_errmsg(journal->db));
		store_poison(journal, "an earlier commit failed");
		store_abort(journal);
		return r;
	}
	journal->migrating = false;
	r = check_files(journal, reterr);
	if (r < 0)
		return r;

	uint32_t records = (uint32_t)(journal->draft - journal->sequence);
	journal->sequence = journal->draft;
	memcpy(journal->head, journal->draft_head, DIGEST_SIZE);
	if (!journal->wal_known)
		journal->wal_known = file_identity_read(journal->wal_path, &journal->wal);
	struct anchor_point point = {.epoch = journal->epoch, .sequence = journal->sequence};
	memcpy(point.hash, journal->head, DIGEST_SIZE);
	/* The record is durable, so the call succeeds; but nothing follows without the anchor. */
	if (journal->anchor.fd >= 0 && anchor_move(&journal->anchor, &point, records, NULL) < 0)
		store_poison(journal, "the anchor could not be written");
	checkpoint(journal);
	return 0;
}

/* --- rows
 * -----------------------------------------------------------------------------------------------
 */

void store_bind_number(sqlite3_stmt *statement, int index, uint64_t number)
{
	sqlite3_bind_int64(statement, index, (sqlite3_int64)number);
}

/* Without a copy: what is bound outlives the step, and store_run() takes the bindings off again. */
void store_bind_blob(sqlite3_stmt *statement, int index, const void *bytes, size_t length)
{
	sqlite3_bind_blob64(statement, index, bytes, length, SQLITE_STATIC);
}

void store_bind_text(sqlite3_stmt *statement, int index, const char *text)
{
	sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC);
}

static void bind_payload(sqlite3_stmt *statement, int index, const struct payload *payload)
{
	store_bind_number(statement, index, payload->length);
	if (payload->length)
		store_bind_blob(statement, index + 1, payload->digest, DIGEST_SIZE);
}

static int32_t put_body(orch_journal *journal, uint64_t id, const struct payload *payload,
			orch_error **reterr)
{
	enum statement which = payload->kept ? STATEMENT_SET_BODY : STATEMENT_DROP_BODY;
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, which, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, id);
	if (payload->kept)
		store_bind_blob(statement, 2, payload->body->bytes, payload->body->length);
	int result = store_run(statement);
	return result == SQLITE_OK ? 0 : store_write_failed(journal, result, "body", reterr);
}

uint64_t store_open_of(uint32_t state)
{
	switch (state) {
	case ORCH_ACTION_INTENT:
	case ORCH_ACTION_DISPATCHED:
	case ORCH_ACTION_OBSERVED:
	case ORCH_ACTION_UNKNOWN:
		return 1;
	case ORCH_ACTION_HANDED_OVER:
		return 2;
	default:
		return 0;
	}
}

static enum statement action_statement(const struct action_row *row,
				       const struct expectation *expected)
{
	if (!expected)
		return STATEMENT_ADD_ACTION;
	return store_open_of(expected->state) == store_open_of(row->state) ? STATEMENT_UPDATE_ACTION
							       : STATEMENT_UPDATE_OPEN_ACTION;
}

int32_t store_put_action(orch_journal *journal, struct action_row *row,
			 const struct expectation *expected, orch_error **reterr)
{
	enum statement which = action_statement(row, expected);
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, which, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, row->sequence);
	store_bind_number(statement, 2, row->state);
	store_bind_number(statement, 3, row->attempt);
	store_bind_number(statement, 4, row->generation);
	store_bind_number(statement, 5, (uint64_t)row->updated_at_ms);
	bind_payload(statement, 6, &row->request);
	bind_payload(statement, 8, &row->result);
	store_bind_number(statement, 10, row->format);
	store_bind_number(statement, 11, row->stored);
	store_bind_number(statement, 12, row->permit);
	store_bind_number(statement, 13, row->decision);
	if (which != STATEMENT_UPDATE_ACTION)
		store_bind_number(statement, 14, store_open_of(row->state));
	if (expected) {
		store_bind_number(statement, 15, row->id);
		store_bind_number(statement, 16, expected->state);
		store_bind_number(statement, 17, expected->attempt);
		store_bind_number(statement, 18, expected->generation);
		store_bind_number(statement, 19, expected->sequence);
	} else {
		store_bind_text(statement, 15, row->kind);
		store_bind_text(statement, 16, row->key);
		store_bind_number(statement, 17, row->policy);
		store_bind_blob(statement, 18, row->fingerprint, row->fingerprint_length);
		store_bind_number(statement, 19, (uint64_t)row->created_at_ms);
	}
	int result = store_run(statement);
	if (result != SQLITE_OK)
		return store_write_failed(journal, result, "action", reterr);
	if (expected && sqlite3_changes(journal->db) != 1)
		return orch_fail(
			reterr, ORCH_ESTATE, 0, NULL,
			"action %s is not %s in attempt %u of generation %llu any more, or was "
			"pruned: another was first, look it up again",
			row->key, orch_action_state_name(expected->state), expected->attempt,
			(unsigned long long)expected->generation);
	if (!expected)
		row->id = (uint64_t)sqlite3_last_insert_rowid(journal->db);
	r = row->request_changed ? put_body(journal, 2 * row->id, &row->request, reterr) : 0;
	if (r == 0 && row->result_changed)
		r = put_body(journal, 2 * row->id + 1, &row->result, reterr);
	return r;
}

int32_t store_put_instance(orch_journal *journal, const struct instance_row *instance,
			   orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, STATEMENT_ADD_INSTANCE, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, instance->generation);
	store_bind_text(statement, 2, instance->instance_id);
	store_bind_text(statement, 3, instance->boot_id);
	store_bind_text(statement, 4, instance->host);
	store_bind_number(statement, 5, (uint64_t)instance->pid);
	store_bind_number(statement, 6, (uint64_t)instance->opened_at_ms);
	int result = store_run(statement);
	return result == SQLITE_OK ? 0 : store_write_failed(journal, result, "instance", reterr);
}

void action_row_clear(struct action_row *row)
{
	payload_clear(&row->request);
	payload_clear(&row->result);
}

bool store_load_text(sqlite3_stmt *statement, int column, char *text, size_t size)
{
	const unsigned char *stored = sqlite3_column_text(statement, column);
	size_t length = (size_t)sqlite3_column_bytes(statement, column);
	if (!stored || length >= size || memchr(stored, '\0', length))
		return false;
	memcpy(text, stored, length + 1);
	return true;
}

/* 0, ORCH_ENOMEM, ORCH_ECORRUPT; no error text. */
static int32_t load_payload(sqlite3_stmt *statement, int column, int body_column,
			    struct payload *payload)
{
	sqlite3_int64 length = sqlite3_column_int64(statement, column);
	const void *digest = sqlite3_column_blob(statement, column + 1);
	int digest_length = sqlite3_column_bytes(statement, column + 1);
	bool kept = sqlite3_column_type(statement, body_column) != SQLITE_NULL;
	const void *bytes = kept ? sqlite3_column_blob(statement, body_column) : NULL;
	if (length < 0 || digest_length != (length ? DIGEST_SIZE : 0) ||
	    (kept && sqlite3_column_bytes(statement, body_column) != length) || (kept && !bytes))
		return ORCH_ECORRUPT;
	return payload_load(payload, bytes, (uint64_t)length, digest) ? 0 : ORCH_ENOMEM;
}

static int32_t load_action(sqlite3_stmt *statement, struct action_row *row)
{
	memset(row, 0, sizeof(*row));
	row->id = (uint64_t)sqlite3_column_int64(statement, 0);
	row->sequence = (uint64_t)sqlite3_column_int64(statement, 1);
	row->policy = (uint32_t)sqlite3_column_int64(statement, 4);
	row->state = (uint32_t)sqlite3_column_int64(statement, 6);
	row->attempt = (uint32_t)sqlite3_column_int64(statement, 7);
	row->generation = (uint64_t)sqlite3_column_int64(statement, 8);
	row->created_at_ms = sqlite3_column_int64(statement, 9);
	row->updated_at_ms = sqlite3_column_int64(statement, 10);
	const void *fingerprint = sqlite3_column_blob(statement, 5);
	row->fingerprint_length = (size_t)sqlite3_column_bytes(statement, 5);
	if (!store_load_text(statement, 2, row->kind, sizeof(row->kind)) ||
	    !store_load_text(statement, 3, row->key, sizeof(row->key)) || !fingerprint ||
	    row->fingerprint_length > FINGERPRINT_MAX)
		return ORCH_ECORRUPT;
	memcpy(row->fingerprint, fingerprint, row->fingerprint_length);
	row->format = (uint32_t)sqlite3_column_int64(statement, 17);
	row->stored = (uint32_t)sqlite3_column_int64(statement, 18);
	row->permit = (uint64_t)sqlite3_column_int64(statement, 19);
	row->decision = (uint64_t)sqlite3_column_int64(statement, 20);
	int32_t r = load_payload(statement, 11, 15, &row->request);
	return r < 0 ? r : load_payload(statement, 13, 16, &row->result);
}

static int32_t find_action(orch_journal *journal, sqlite3_stmt *statement,
			   struct action_row *ret_row, orch_error **reterr)
{
	struct action_row row;
	int32_t r;
	int result = sqlite3_step(statement);
	if (result == SQLITE_DONE) {
		r = ORCH_ENOENT;
	} else if (result != SQLITE_ROW) {
		r = store_fail(journal, result, "action", reterr);
	} else {
		r = load_action(statement, &row);
		/* A column that could not be read for want of memory looks like one that is
		 * damaged. */
		if (r == ORCH_ECORRUPT && sqlite3_errcode(journal->db) == SQLITE_NOMEM)
			r = ORCH_ENOMEM;
		if (r < 0)
			action_row_clear(&row);
		else
			*ret_row = row;
		if (r == ORCH_ENOMEM)
			orch_fail_memory(reterr);
		else if (r < 0)
			orch_fail(reterr, r, 0, "action", "%s: action %llu is damaged",
				  journal->path,
				  (unsigned long long)sqlite3_column_int64(statement, 0));
	}
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	if (r == 0 && ret_row->decision) {
		r = decision_load(journal, ret_row, reterr);
		if (r < 0)
			action_row_clear(ret_row);
	}
	return r;
}

int32_t store_action_by_key(orch_journal *journal, const char *key, struct action_row *ret_row,
			    orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, STATEMENT_ACTION_BY_KEY, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_text(statement, 1, key);
	return find_action(journal, statement, ret_row, reterr);
}

int32_t store_action_by_id(orch_journal *journal, uint64_t id, struct action_row *ret_row,
			   orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, STATEMENT_ACTION_BY_ID, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, id);
	return find_action(journal, statement, ret_row, reterr);
}

int32_t store_ids(orch_journal *journal, enum statement which, const char *kind_prefix,
		  uint64_t **ret_ids, size_t *ret_count, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, which, &statement, reterr);
	if (r < 0)
		return r;
	if (which == STATEMENT_OPEN_ACTIONS)
		store_bind_number(statement, 1, journal->generation);
	size_t prefix_length = kind_prefix ? strlen(kind_prefix) : 0, count = 0, capacity = 0;
	_cleanup_free_ uint64_t *ids = NULL;
	int result;
	while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
		const char *kind = (const char *)sqlite3_column_text(statement, 1);
		if (prefix_length && (!kind || strncmp(kind, kind_prefix, prefix_length) != 0))
			continue;
		if (count == capacity) {
			capacity = capacity ? 2 * capacity : 64;
			uint64_t *grown = realloc(ids, capacity * sizeof(*ids));
			if (!grown) {
				r = orch_fail_memory(reterr);
				break;
			}
			ids = grown;
		}
		ids[count++] = (uint64_t)sqlite3_column_int64(statement, 0);
	}
	if (r == 0 && result != SQLITE_DONE)
		r = store_fail(journal, result, "actions", reterr);
	sqlite3_reset(statement);
	if (r < 0)
		return r;
	*ret_ids = ORCH_STEAL(ids);
	*ret_count = count;
	return 0;
}
