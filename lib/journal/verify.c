/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

struct walk {
	unsigned char hash[DIGEST_SIZE]; /* of the last event that fitted */
	uint64_t events;
	uint64_t instances; /* rows that an event accounts for */
	uint64_t rows[NOUN_COUNT];
	uint64_t bodies;
};

static int32_t misfit(orch_journal *journal, uint64_t sequence, const char *what,
		      orch_error **reterr)
{
	return orch_fail(reterr, ORCH_ECORRUPT, 0, "verify", "%s: record %llu does not fit: %s",
			 journal->path, (unsigned long long)sequence, what);
}

/* Nothing is known about the record then, least of all that it is damaged. */
static bool could_not_read(int result)
{
	return (result & 0xff) == SQLITE_NOMEM || (result & 0xff) == SQLITE_IOERR;
}

static bool payload_fits(const struct payload *payload)
{
	unsigned char digest[DIGEST_SIZE];
	if (!payload->kept)
		return true;
	crypto_hash_sha256(digest, payload->body->bytes, payload->body->length);
	return memcmp(digest, payload->digest, DIGEST_SIZE) == 0;
}

static bool load_copied_text(sqlite3_stmt *statement, int column, char *text, size_t size)
{
	const unsigned char *stored = sqlite3_column_text(statement, column);
	size_t length = (size_t)sqlite3_column_bytes(statement, column);
	if (!stored || length >= size)
		return false;
	memcpy(text, stored, length + 1);
	return true;
}

static int32_t check_instance(orch_journal *journal, const struct event_row *event,
			      struct walk *walk, orch_error **reterr)
{
	struct instance_row instance = {.generation = event->generation};
	unsigned char digest[DIGEST_SIZE];
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, STATEMENT_INSTANCE, &statement, reterr);
	if (r < 0)
		return r;
	sqlite3_bind_int64(statement, 1, (sqlite3_int64)event->generation);
	int result = sqlite3_step(statement);
	bool fits = result == SQLITE_ROW &&
		    load_copied_text(statement, 0, instance.instance_id,
				     sizeof(instance.instance_id)) &&
		    load_copied_text(statement, 1, instance.boot_id, sizeof(instance.boot_id)) &&
		    load_copied_text(statement, 2, instance.host, sizeof(instance.host));
	instance.pid = sqlite3_column_int64(statement, 3);
	instance.opened_at_ms = sqlite3_column_int64(statement, 4);
	if (!fits && sqlite3_errcode(journal->db) == SQLITE_NOMEM)
		result = SQLITE_NOMEM;
	sqlite3_reset(statement);
	if (could_not_read(result))
		return store_fail(journal, result, "verify", reterr);
	chain_instance_digest(&instance, event->format, digest);
	if (!fits || memcmp(digest, event->digest, DIGEST_SIZE) != 0)
		return misfit(journal, event->sequence, "its generation's row is another", reterr);
	walk->instances++;
	return 0;
}

/* An action's row is what its last event says; earlier events have no row any more. */
static int32_t check_action(orch_journal *journal, const struct event_row *event, struct walk *walk,
			    orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_statement(journal, STATEMENT_ACTION_SEQUENCE, &statement, reterr);
	if (r < 0)
		return r;
	sqlite3_bind_int64(statement, 1, (sqlite3_int64)event->subject);
	int result = sqlite3_step(statement);
	uint64_t last =
		result == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
	bool indexed =
		last && (uint64_t)sqlite3_column_int64(statement, 1) == store_open_of(event->state);
	sqlite3_reset(statement);
	if (could_not_read(result))
		return store_fail(journal, result, "verify", reterr);
	if (last < event->sequence)
		return misfit(journal, event->sequence,
			      last ? "its action is older than it" : "its action is missing",
			      reterr);
	if (last > event->sequence)
		return 0;

	struct action_row row;
	orch_error *error = NULL;
	r = store_action_by_id(journal, event->subject, &row, &error);
	if (r == ORCH_ECORRUPT || r == ORCH_ENOENT) {
		orch_error_free(error);
		return misfit(journal, event->sequence, "its action is damaged", reterr);
	}
	if (r < 0)
		return pass_error(r, error, reterr);
	unsigned char digest[DIGEST_SIZE];
	chain_row_digest(&row, digest);
	uint32_t kept = (row.request.kept ? STORED_REQUEST : 0) |
			(row.result.kept ? STORED_RESULT : 0);
	bool fits = memcmp(digest, event->digest, DIGEST_SIZE) == 0 && row.state == event->state &&
		    row.format == event->format && indexed &&
		    (row.format == FORMAT_1 || (row.stored & (STORED_REQUEST | STORED_RESULT)) == kept) &&
		    row.attempt == event->attempt && row.generation == event->generation &&
		    payload_fits(&row.request) && payload_fits(&row.result);
	walk->rows[NOUN_ACTION]++;
	walk->bodies += row.request.kept + row.result.kept;
	action_row_clear(&row);
	return fits ? 0 : misfit(journal, event->sequence, "its action was changed", reterr);
}

/* The same for what is no action. */
static int32_t check_row(orch_journal *journal, const struct event_row *event, struct walk *walk,
			 orch_error **reterr)
{
	static row_digest_fn *const digest_of[NOUN_COUNT] = {
		[NOUN_PERMIT] = permit_digest,
		[NOUN_TIMER] = timer_digest,
		[NOUN_DECISION] = decision_digest,
		[NOUN_EPOCH] = epoch_digest,
	};
	if (event->noun <= NOUN_ACTION || event->noun >= NOUN_COUNT)
		return misfit(journal, event->sequence, "what it is about is not known", reterr);
	unsigned char digest[DIGEST_SIZE];
	uint64_t last = 0;
	orch_error *error = NULL;
	int32_t r = digest_of[event->noun](journal, event->subject, &last, digest, &error);
	if (r == ORCH_ECORRUPT || r == ORCH_ENOENT || (r == 0 && last < event->sequence)) {
		orch_error_free(error);
		return misfit(journal, event->sequence,
			      r == 0 ? "its row is older than it" : "its row is missing or damaged",
			      reterr);
	}
	if (r < 0)
		return pass_error(r, error, reterr);
	if (last > event->sequence)
		return 0;
	walk->rows[event->noun]++;
	return memcmp(digest, event->digest, DIGEST_SIZE) == 0
		       ? 0
		       : misfit(journal, event->sequence, "its row was changed", reterr);
}

static int32_t check_subject(orch_journal *journal, const struct event_row *event,
			     struct walk *walk, orch_error **reterr)
{
	if (event->noun != NOUN_ACTION)
		return check_row(journal, event, walk, reterr);
	return event->subject ? check_action(journal, event, walk, reterr)
			      : check_instance(journal, event, walk, reterr);
}

static int32_t check_events(orch_journal *journal, struct walk *walk, orch_error **reterr)
{
	struct event_row event;
	unsigned char stored[DIGEST_SIZE];
	chain_genesis(journal->id, walk->hash);
	for (uint64_t sequence = 1; sequence <= journal->sequence; sequence++) {
		orch_error *error = NULL;
		int32_t r = event_at(journal, sequence, &event, &error);
		if (r == ORCH_ECORRUPT || r == ORCH_ENOENT) {
			orch_error_free(error);
			return misfit(journal, sequence, "it is missing or damaged", reterr);
		}
		if (r < 0)
			return pass_error(r, error, reterr);
		memcpy(stored, event.hash, DIGEST_SIZE);
		chain_event_hash(walk->hash, &event);
		if (memcmp(stored, event.hash, DIGEST_SIZE) != 0)
			return misfit(journal, sequence, "its hash is not that of its contents",
				      reterr);
		memcpy(walk->hash, stored, DIGEST_SIZE);
		walk->events++;
		r = check_subject(journal, &event, walk, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Rows that no event accounts for. */
static int32_t check_counts(orch_journal *journal, const struct walk *walk, orch_error **reterr)
{
	const uint64_t counted[] = {
		walk->events,		   walk->rows[NOUN_ACTION],   walk->instances,
		walk->bodies,		   walk->rows[NOUN_PERMIT],   walk->rows[NOUN_TIMER],
		walk->rows[NOUN_DECISION], walk->rows[NOUN_EPOCH],    1,
	};
	sqlite3_stmt *statement = NULL;
	int result = sqlite3_prepare_v2(
		journal->db,
		"SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM action),"
		" (SELECT count(*) FROM instance), (SELECT count(*) FROM body),"
		" (SELECT count(*) FROM permit), (SELECT count(*) FROM timer),"
		" (SELECT count(*) FROM decision), (SELECT count(*) FROM epoch),"
		" (SELECT count(*) FROM journal)",
		-1, &statement, NULL);
	bool fits = result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
	for (size_t i = 0; fits && i < sizeof(counted) / sizeof(counted[0]); i++)
		fits = (uint64_t)sqlite3_column_int64(statement, (int)i) == counted[i];
	result = store_finalize(statement, result);
	if (result != SQLITE_OK)
		return store_fail(journal, result, "verify", reterr);
	if (!fits)
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, "verify",
			"%s: record %llu is the last, and there are rows that no record made",
			journal->path, (unsigned long long)journal->sequence);
	return 0;
}

/* The pages and indexes, below what the chain knows of. */
static int32_t check_pages(orch_journal *journal, orch_error **reterr)
{
	sqlite3_stmt *statement = NULL;
	int32_t r = 0;
	int result =
		sqlite3_prepare_v2(journal->db, "PRAGMA integrity_check(1)", -1, &statement, NULL);
	if (result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW) {
		const char *answer = (const char *)sqlite3_column_text(statement, 0);
		if (!answer || strcmp(answer, "ok") != 0)
			r = orch_fail(reterr, ORCH_ECORRUPT, 0, "verify",
				      "%s: a record's page is damaged: %s", journal->path,
				      answer ? answer : "?");
	}
	result = store_finalize(statement, result);
	return r == 0 && result != SQLITE_OK ? store_fail(journal, result, "verify", reterr) : r;
}

static int32_t verify(orch_journal *journal, struct walk *walk, orch_error **reterr)
{
	/* What is on the disk is asked, not what the page cache remembers. */
	sqlite3_db_release_memory(journal->db);
	int32_t r = check_events(journal, walk, reterr);
	if (r == 0 && memcmp(walk->hash, journal->head, DIGEST_SIZE) != 0)
		r = misfit(journal, journal->sequence, "it is not the one that was written last",
			   reterr);
	if (r == 0)
		r = check_counts(journal, walk, reterr);
	if (r == 0)
		r = epoch_check(journal, reterr);
	if (r == 0)
		r = check_pages(journal, reterr);
	if (r == 0 && journal->anchor.path)
		r = chain_check_anchor(journal, journal->anchor.path, reterr);
	return r;
}

int32_t orch_journal_verify(orch_journal *journal, uint64_t *ret_records, orch_error **reterr)
{
	struct walk walk = {0};
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	store_lock(journal);
	r = verify(journal, &walk, reterr);
	store_unlock(journal);
	if (r < 0)
		return r;
	if (ret_records)
		*ret_records = walk.events;
	return 0;
}
