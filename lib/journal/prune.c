/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* So many actions share a commit, and so many are looked at for it: others get in between. */
#define PRUNE_BATCH 256
#define PRUNE_LOOK 8192

/* Rows of schema 1 do not say what they keep. */
static const char closed_sql[] =
	"SELECT id FROM action WHERE id > ?1 AND id <= ?2 AND updated_at_ms < ?3 AND state IN (4, "
	"5, 8)"
	" AND (stored & 3 OR (format = 1 AND EXISTS (SELECT 1 FROM body"
	" WHERE body.id IN (2 * action.id, 2 * action.id + 1)))) ORDER BY id LIMIT ?4";
static const char last_id_sql[] = "SELECT ifnull(max(id), 0) FROM action";

_Static_assert(ORCH_ACTION_CONFIRMED == 4 && ORCH_ACTION_FAILED == 5 && ORCH_ACTION_ABANDONED == 8,
	       "the states of closed_sql");
_Static_assert((STORED_REQUEST | STORED_RESULT) == 3, "the bodies of closed_sql");

/* One commit's part. */
struct prune {
	struct request request;
	int64_t before_ms;
	uint64_t after; /* ids up to here are done */
	uint64_t ids[PRUNE_BATCH];
	size_t count; /* of ids */
	uint64_t actions, bytes;
};

static int32_t find_closed(orch_journal *journal, struct prune *prune, orch_error **reterr)
{
	sqlite3_stmt *statement;
	prune->count = 0;
	int32_t r = store_sql(journal, closed_sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, prune->after);
	store_bind_number(statement, 2, prune->after + PRUNE_LOOK);
	store_bind_number(statement, 3, (uint64_t)prune->before_ms);
	store_bind_number(statement, 4, PRUNE_BATCH);
	int result;
	while ((result = sqlite3_step(statement)) == SQLITE_ROW)
		prune->ids[prune->count++] = (uint64_t)sqlite3_column_int64(statement, 0);
	if (result != SQLITE_DONE)
		r = store_fail(journal, result, "prune", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

/* False: out of memory. */
static bool drop_body(struct payload *payload, bool *changed, uint64_t *bytes)
{
	if (!payload->kept)
		return true;
	*changed = true;
	*bytes += payload->length;
	return payload_cut(payload);
}

/* The time of its last transition stays: a record of pruning is none. */
static int32_t prune_one(orch_journal *journal, struct prune *prune, uint64_t id,
			 orch_error **reterr)
{
	struct action_row row;
	int32_t r = store_action_by_id(journal, id, &row, reterr);
	if (r < 0)
		return r;
	struct expectation expected = {row.state, row.attempt, row.generation, row.sequence};
	uint64_t bytes = 0;
	if (drop_body(&row.request, &row.request_changed, &bytes) &&
	    drop_body(&row.result, &row.result_changed, &bytes)) {
		row.stored |= STORED_PRUNED;
		r = chain_put_action(journal, &row, &expected, row.updated_at_ms, reterr);
	} else {
		r = orch_fail_memory(reterr);
	}
	action_row_clear(&row);
	prune->actions++;
	prune->bytes += bytes;
	return r;
}

static int32_t prune_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct prune *prune = (struct prune *)request;
	prune->actions = prune->bytes = 0;
	int32_t r = find_closed(journal, prune, reterr);
	for (size_t i = 0; r == 0 && i < prune->count; i++)
		r = prune_one(journal, prune, prune->ids[i], reterr);
	return r;
}

static int32_t last_id(orch_journal *journal, uint64_t *ret_id, orch_error **reterr)
{
	sqlite3_stmt *statement;
	store_lock(journal);
	int32_t r = store_sql(journal, last_id_sql, &statement, reterr);
	if (r == 0) {
		int result = sqlite3_step(statement);
		if (result == SQLITE_ROW)
			*ret_id = (uint64_t)sqlite3_column_int64(statement, 0);
		else
			r = store_fail(journal, result, "prune", reterr);
		sqlite3_reset(statement);
	}
	store_unlock(journal);
	return r;
}

int32_t orch_journal_prune(orch_journal *journal, int64_t closed_before_ms, uint64_t *ret_actions,
			   uint64_t *ret_bytes, orch_error **reterr)
{
	struct prune prune = {.request = {.write = prune_write}, .before_ms = closed_before_ms};
	uint64_t last = 0, actions = 0, bytes = 0;
	int32_t r = store_check_writable(journal, reterr);
	if (r < 0)
		return r;
	if (closed_before_ms < 0)
		return orch_fail(
			reterr, ORCH_EINVAL, 0, NULL,
			"closed_before_ms %lld is before 1970: give milliseconds since then",
			(long long)closed_before_ms);
	r = last_id(journal, &last, reterr);
	while (r == 0 && prune.after < last) {
		r = store_check(journal, reterr);
		if (r == 0)
			r = chain_run(journal, &prune.request, reterr);
		if (r < 0)
			break;
		actions += prune.actions;
		bytes += prune.bytes;
		/* A full batch may have left some of those that it looked at. */
		prune.after = prune.count == PRUNE_BATCH ? prune.ids[PRUNE_BATCH - 1]
							 : prune.after + PRUNE_LOOK;
	}
	if (r < 0)
		return r;
	if (ret_actions)
		*ret_actions = actions;
	if (ret_bytes)
		*ret_bytes = bytes;
	return 0;
}
