/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* Epochs: the lives of a journal between two restorations. The first one has no row. */

static const char load_sql[] =
	"SELECT sequence, generation, at_ms, backup_sequence, anchor_epoch, anchor_sequence,"
	" anchor_hash FROM epoch WHERE epoch = ?1";
static const char add_sql[] =
	"INSERT INTO epoch (epoch, sequence, generation, at_ms, backup_sequence, anchor_epoch,"
	" anchor_sequence, anchor_hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
static const char set_sql[] = "UPDATE journal SET epoch = ?1 WHERE one = 1";
static const char last_sql[] =
	"SELECT epoch, (SELECT coalesce(max(epoch), 1) FROM epoch) FROM journal WHERE one = 1";

static void row_digest(const struct epoch_row *row, unsigned char digest[DIGEST_SIZE])
{
	struct field_hash hash;
	hash_start(&hash, JOURNAL_FORMAT, "epoch");
	hash_number(&hash, row->epoch);
	hash_number(&hash, row->sequence);
	hash_number(&hash, row->generation);
	hash_number(&hash, (uint64_t)row->at_ms);
	hash_number(&hash, row->backup_sequence);
	hash_number(&hash, row->superseded.epoch);
	hash_number(&hash, row->superseded.sequence);
	hash_bytes(&hash, row->superseded.hash, row->superseded.epoch ? DIGEST_SIZE : 0);
	hash_end(&hash, digest);
}

static bool load_row(sqlite3_stmt *statement, struct epoch_row *row)
{
	row->sequence = (uint64_t)sqlite3_column_int64(statement, 0);
	row->generation = (uint64_t)sqlite3_column_int64(statement, 1);
	row->at_ms = sqlite3_column_int64(statement, 2);
	row->backup_sequence = (uint64_t)sqlite3_column_int64(statement, 3);
	row->superseded.epoch = (uint64_t)sqlite3_column_int64(statement, 4);
	row->superseded.sequence = (uint64_t)sqlite3_column_int64(statement, 5);
	const void *hash = sqlite3_column_blob(statement, 6);
	int length = sqlite3_column_bytes(statement, 6);
	if (length != (row->superseded.epoch ? DIGEST_SIZE : 0))
		return false;
	if (length)
		memcpy(row->superseded.hash, hash, DIGEST_SIZE);
	return true;
}

int32_t epoch_load(orch_journal *journal, uint64_t epoch, struct epoch_row *ret_row,
		   orch_error **reterr)
{
	struct epoch_row row = {.epoch = epoch};
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, load_sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, epoch);
	int result = sqlite3_step(statement);
	if (result == SQLITE_DONE)
		r = ORCH_ENOENT;
	else if (result != SQLITE_ROW)
		r = store_fail(journal, result, "epoch", reterr);
	else if (!load_row(statement, &row))
		r = sqlite3_errcode(journal->db) == SQLITE_NOMEM
			    ? orch_fail_memory(reterr)
			    : orch_fail(reterr, ORCH_ECORRUPT, 0, "epoch",
					"%s: the row of epoch %llu is damaged", journal->path,
					(unsigned long long)epoch);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	if (r == 0)
		*ret_row = row;
	return r;
}

int32_t epoch_digest(orch_journal *journal, uint64_t id, uint64_t *ret_sequence,
		     unsigned char digest[DIGEST_SIZE], orch_error **reterr)
{
	struct epoch_row row;
	int32_t r = epoch_load(journal, id, &row, reterr);
	if (r < 0)
		return r;
	*ret_sequence = row.sequence;
	row_digest(&row, digest);
	return 0;
}

static int32_t add_row(orch_journal *journal, const struct epoch_row *row, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, add_sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, row->epoch);
	store_bind_number(statement, 2, row->sequence);
	store_bind_number(statement, 3, row->generation);
	store_bind_number(statement, 4, (uint64_t)row->at_ms);
	store_bind_number(statement, 5, row->backup_sequence);
	store_bind_number(statement, 6, row->superseded.epoch);
	store_bind_number(statement, 7, row->superseded.sequence);
	if (row->superseded.epoch)
		store_bind_blob(statement, 8, row->superseded.hash, DIGEST_SIZE);
	int result = store_run(statement);
	return result == SQLITE_OK ? 0 : store_write_failed(journal, result, "epoch", reterr);
}

int32_t epoch_put(orch_journal *journal, struct epoch_row *row, orch_error **reterr)
{
	sqlite3_stmt *statement;
	row->sequence = journal->draft + 1;
	int32_t r = add_row(journal, row, reterr);
	if (r == 0)
		r = store_sql(journal, set_sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, row->epoch);
	int result = store_run(statement);
	if (result != SQLITE_OK)
		return store_write_failed(journal, result, "epoch", reterr);
	struct event_row event = {
		.at_ms = row->at_ms,
		.noun = NOUN_EPOCH,
		.subject = row->epoch,
	};
	row_digest(row, event.digest);
	return chain_put_event(journal, &event, reterr);
}

int32_t epoch_check(orch_journal *journal, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, last_sql, &statement, reterr);
	if (r < 0)
		return r;
	int result = sqlite3_step(statement);
	uint64_t epoch = 0, last = 0;
	if (result == SQLITE_ROW) {
		epoch = (uint64_t)sqlite3_column_int64(statement, 0);
		last = (uint64_t)sqlite3_column_int64(statement, 1);
	}
	sqlite3_reset(statement);
	if (result != SQLITE_ROW && result != SQLITE_DONE)
		return store_fail(journal, result, "epoch", reterr);
	if (epoch == last && epoch == journal->epoch)
		return 0;
	return orch_fail(
		reterr, ORCH_ECORRUPT, 0, "verify",
		"%s calls itself epoch %llu, and the last one that a record started is %llu",
		journal->path, (unsigned long long)epoch, (unsigned long long)last);
}

int32_t epoch_check_anchor(orch_journal *journal, const struct anchor_point *point,
			   const char *anchor_path, orch_error **reterr)
{
	struct epoch_row row;
	int32_t r = epoch_load(journal, journal->epoch, &row, reterr);
	if (r < 0 && r != ORCH_ENOENT)
		return r;
	/* Whoever restored it was killed before the anchor was written. */
	if (r == 0 && row.superseded.epoch == point->epoch &&
	    row.superseded.sequence == point->sequence &&
	    memcmp(row.superseded.hash, point->hash, DIGEST_SIZE) == 0)
		return 0;
	return orch_fail(reterr, ORCH_ECORRUPT, 0, "anchor",
			 "%s was restored from a backup (epoch %llu), and its anchor %s is at "
			 "record %llu of "
			 "epoch %llu, which that restoration did not know of: restore again with "
			 "this anchor, "
			 "or remove it to accept the loss",
			 journal->path, (unsigned long long)journal->epoch, anchor_path,
			 (unsigned long long)point->sequence, (unsigned long long)point->epoch);
}
