/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "restore-private.h"

/* What a backup does not know about its rows, written down in it. */

struct rebirth {
	struct request request;
	struct restore *restore;
};

static const char next_action_sql[] =
	"SELECT id FROM action WHERE id > ?1 AND state IN (1, 2, 5) ORDER BY id LIMIT 1";

/* 0 with `ret_id` 0: there is none. */
static int32_t next_action(orch_journal *journal, uint64_t after, uint64_t *ret_id,
			   orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, next_action_sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, after);
	int result = sqlite3_step(statement);
	*ret_id = result == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
	sqlite3_reset(statement);
	return result == SQLITE_ROW || result == SQLITE_DONE
		       ? 0
		       : store_write_failed(journal, result, "actions", reterr);
}

/* An intent may have been dispatched since, and what had failed may have been begun again. */
static int32_t make_unknown(orch_journal *journal, const struct restore *restore, uint64_t id,
			    orch_error **reterr)
{
	struct action_row row;
	int32_t r = store_action_by_id(journal, id, &row, reterr);
	if (r < 0)
		return r;
	struct expectation expected = {row.state, row.attempt, row.generation};
	char reason[160];
	int length = snprintf(reason, sizeof(reason),
			      "restored from a backup of record %llu, where it was %s: what became "
			      "of it is not known",
			      (unsigned long long)restore->row.backup_sequence,
			      orch_action_state_name(row.state));
	row.state = ORCH_ACTION_UNKNOWN;
	payload_clear(&row.result);
	row.result_changed = true;
	r = payload_set(&row.result, reason, (size_t)length, JOURNAL_MAX_PAYLOAD_LIMIT)
		    ? chain_put_action(journal, &row, &expected, orch_realtime_ms(), reterr)
		    : orch_fail_memory(reterr);
	action_row_clear(&row);
	return r;
}

static int32_t unknown_actions(orch_journal *journal, struct restore *restore, orch_error **reterr)
{
	uint64_t id = 0;
	restore->unknown = 0;
	for (;;) {
		int32_t r = next_action(journal, id, &id, reterr);
		if (r < 0 || !id)
			return r;
		r = make_unknown(journal, restore, id, reterr);
		if (r < 0)
			return r;
		restore->unknown++;
	}
}

/* From here on it is a journal, if the transaction counts. */
static int32_t mark_as_journal(orch_journal *journal, orch_error **reterr)
{
	char mark[64];
	snprintf(mark, sizeof(mark), "PRAGMA application_id = %d", JOURNAL_APPLICATION_ID);
	int result = sqlite3_exec(journal->db, mark, NULL, NULL, NULL);
	return result == SQLITE_OK ? 0 : store_write_failed(journal, result, "identity", reterr);
}

static int32_t rebirth_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct restore *restore = ((struct rebirth *)request)->restore;
	int32_t r = chain_put_instance(journal, &restore->instance, reterr);
	if (r == 0)
		r = epoch_put(journal, &restore->row, reterr);
	if (r == 0)
		r = unknown_actions(journal, restore, reterr);
	if (r == 0)
		r = permit_void_all(journal, &restore->voided, reterr);
	if (r == 0)
		r = mark_as_journal(journal, reterr);
	return r;
}

int32_t restore_begin_epoch(struct restore *restore, orch_error **reterr)
{
	struct rebirth rebirth = {.request = {.write = rebirth_write}, .restore = restore};
	orch_journal *made = restore->made;
	made->epoch = restore->row.epoch;
	made->generation = restore->row.generation;
	made->read_only = false;
	int32_t r = chain_run(made, &rebirth.request, reterr);
	made->read_only = true;
	return r;
}
