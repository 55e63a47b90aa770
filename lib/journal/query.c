/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* How many ids a walk holds at a time: its memory is the same for any number of actions. */
#define WALK_BATCH 256
/* From so many keys on, asking the index of the keys for each batch costs more than reading the
 * actions in order. */
#define KEY_INDEX_MAX (16 * WALK_BATCH)

#define STATE_BIT(state) (1u << (state))
#define ALL_STATES (STATE_BIT(ORCH_ACTION_ABANDONED + 1) - STATE_BIT(ORCH_ACTION_INTENT))
/* As the index of open actions has them: action.open = 1, and 2. */
#define OPEN_STATES                                                                                \
	(STATE_BIT(ORCH_ACTION_INTENT) | STATE_BIT(ORCH_ACTION_DISPATCHED) |                       \
	 STATE_BIT(ORCH_ACTION_OBSERVED) | STATE_BIT(ORCH_ACTION_UNKNOWN))
#define WAITING_STATES STATE_BIT(ORCH_ACTION_HANDED_OVER)

int32_t orch_journal_find(orch_journal *journal, const char *key, orch_action **ret_action,
			  orch_error **reterr)
{
	struct action_row row;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!key || !ret_action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "key or ret_action is NULL");
	store_lock(journal);
	r = store_action_by_key(journal, key, &row, reterr);
	store_unlock(journal);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, r, 0, NULL, "%s has no action with the key %s",
				 journal->path, key);
	if (r < 0)
		return r;
	orch_action *action = action_new(journal, &row);
	if (!action)
		return orch_fail_memory(reterr);
	*ret_action = action;
	return 0;
}

/* --- which ids, in batches
 * ------------------------------------------------------------------------------------ */

/*
 * ?1 after this id, ?2 up to this id, ?3 how many, ?4 states, ?5 and ?6 times of the last
 * transition, ?7 start of the kind, ?8 start of the key. Prefixes are compared as bytes.
 */
#define MATCHES                                                                                    \
	" AND (?4 = 0 OR (?4 >> state) & 1) AND (?5 = 0 OR updated_at_ms >= ?5)"                   \
	" AND (?6 = 0 OR updated_at_ms < ?6)"                                                      \
	" AND (?7 IS NULL OR substr(CAST(kind AS BLOB), 1, length(?7)) = ?7)"                      \
	" AND (?8 IS NULL OR substr(CAST(key AS BLOB), 1, length(?8)) = ?8)"
#define IN_ORDER(order) " ORDER BY id " order " LIMIT ?3"

#define BY_ID(order) "SELECT id FROM action WHERE id > ?1 AND id <= ?2" MATCHES IN_ORDER(order)
/* The keys from ?9 to before ?10. The index of the ids is kept out: it would be taken for a better
 * one. */
#define BY_KEY(order)                                                                              \
	"SELECT id FROM action WHERE key >= ?9 AND key < ?10 AND +id > ?1 AND +id <= ?2" MATCHES   \
	IN_ORDER(order)
/* ?9 and ?10: whether to look at all. "open > 0" is what tells SQLite that its partial index will
 * do. */
#define OPEN_ONES(which, class, order)                                                             \
	"SELECT id FROM (SELECT id FROM action WHERE " which                                       \
	" AND open = " class " AND open > 0 AND id > ?1 AND id <= ?2" MATCHES                      \
	IN_ORDER(order) ")"
#define BY_OPEN(order)                                                                             \
	OPEN_ONES("?9", "1", order) " UNION ALL " OPEN_ONES("?10", "2", order) IN_ORDER(order)

enum route { ROUTE_ID, ROUTE_KEY, ROUTE_OPEN };

static const char *const route_sql[][2] = {
	[ROUTE_ID] = {BY_ID("ASC"), BY_ID("DESC")},
	[ROUTE_KEY] = {BY_KEY("ASC"), BY_KEY("DESC")},
	[ROUTE_OPEN] = {BY_OPEN("ASC"), BY_OPEN("DESC")},
};
static const char last_id_sql[] = "SELECT ifnull(max(id), 0) FROM action";
static const char count_keys_sql[] = "SELECT count(*) FROM (SELECT 1 FROM action"
				     " WHERE key >= ?1 AND key < ?2 LIMIT ?3)";

struct walk {
	struct orch_query_opts asked;
	enum route route;
	char *key_end; /* the first text behind all keys with the prefix; NULL: there is none, or no
			  prefix */
	uint64_t after, up_to; /* ids that are left */
	uint64_t left;	       /* how many may still be told */
	uint64_t ids[WALK_BATCH];
	size_t count;
};

/* Asks for one number. */
static int32_t ask_number(orch_journal *journal, sqlite3_stmt *statement, uint64_t *ret_number,
			  orch_error **reterr)
{
	int result = sqlite3_step(statement);
	if (result == SQLITE_ROW)
		*ret_number = (uint64_t)sqlite3_column_int64(statement, 0);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return result == SQLITE_ROW ? 0 : store_fail(journal, result, "actions", reterr);
}

/* "ab" -> "ac". False: out of memory. */
static bool set_key_end(struct walk *walk)
{
	const char *prefix = walk->asked.key_prefix;
	size_t length = prefix ? strlen(prefix) : 0;
	while (length && (unsigned char)prefix[length - 1] == 0xff)
		length--;
	if (!length)
		return true;
	walk->key_end = strndup(prefix, length);
	if (!walk->key_end)
		return false;
	walk->key_end[length - 1] = (char)((unsigned char)walk->key_end[length - 1] + 1);
	return true;
}

static int32_t choose_route(orch_journal *journal, struct walk *walk, orch_error **reterr)
{
	uint32_t states = walk->asked.states;
	if (states && !(states & ~(OPEN_STATES | WAITING_STATES)))
		walk->route = ROUTE_OPEN;
	if (!walk->key_end)
		return 0;
	sqlite3_stmt *statement;
	uint64_t keys = 0;
	int32_t r = store_sql(journal, count_keys_sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_text(statement, 1, walk->asked.key_prefix);
	store_bind_text(statement, 2, walk->key_end);
	store_bind_number(statement, 3, KEY_INDEX_MAX + 1);
	r = ask_number(journal, statement, &keys, reterr);
	if (r == 0 && keys <= KEY_INDEX_MAX)
		walk->route = ROUTE_KEY;
	return r;
}

/* What is begun from here on is not told: a callback that begins actions has to come to an end. */
static int32_t start_walk(orch_journal *journal, struct walk *walk, orch_error **reterr)
{
	sqlite3_stmt *statement;
	if (!set_key_end(walk))
		return orch_fail_memory(reterr);
	int32_t r = store_sql(journal, last_id_sql, &statement, reterr);
	if (r == 0)
		r = ask_number(journal, statement, &walk->up_to, reterr);
	if (r < 0)
		return r;
	uint64_t after = walk->asked.after_id;
	if (!(walk->asked.flags & ORCH_QUERY_NEWEST_FIRST))
		walk->after = after < walk->up_to ? after : walk->up_to;
	else if (after && after <= walk->up_to)
		walk->up_to = after - 1;
	walk->left = walk->asked.limit ? walk->asked.limit : UINT64_MAX;
	return choose_route(journal, walk, reterr);
}

static void bind_prefix(sqlite3_stmt *statement, int index, const char *prefix)
{
	if (prefix && *prefix)
		store_bind_blob(statement, index, prefix, strlen(prefix));
}

static int32_t next_batch(orch_journal *journal, struct walk *walk, orch_error **reterr)
{
	const struct orch_query_opts *asked = &walk->asked;
	bool newest_first = asked->flags & ORCH_QUERY_NEWEST_FIRST;
	sqlite3_stmt *statement;
	walk->count = 0;
	int32_t r = store_sql(journal, route_sql[walk->route][newest_first], &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, walk->after);
	store_bind_number(statement, 2, walk->up_to);
	store_bind_number(statement, 3, walk->left < WALK_BATCH ? walk->left : WALK_BATCH);
	store_bind_number(statement, 4, asked->states);
	store_bind_number(statement, 5, (uint64_t)asked->updated_from_ms);
	store_bind_number(statement, 6, (uint64_t)asked->updated_before_ms);
	bind_prefix(statement, 7, asked->kind_prefix);
	bind_prefix(statement, 8, asked->key_prefix);
	if (walk->route == ROUTE_KEY) {
		store_bind_text(statement, 9, asked->key_prefix);
		store_bind_text(statement, 10, walk->key_end);
	} else if (walk->route == ROUTE_OPEN) {
		store_bind_number(statement, 9, asked->states & OPEN_STATES);
		store_bind_number(statement, 10, asked->states & WAITING_STATES);
	}
	int result;
	while ((result = sqlite3_step(statement)) == SQLITE_ROW)
		walk->ids[walk->count++] = (uint64_t)sqlite3_column_int64(statement, 0);
	if (result != SQLITE_DONE)
		r = store_fail(journal, result, "actions", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	if (walk->count && newest_first)
		walk->up_to = walk->ids[walk->count - 1] - 1;
	else if (walk->count)
		walk->after = walk->ids[walk->count - 1];
	return r;
}

/* --- telling them
 * ------------------------------------------------------------------------------------------- */

/* A callback, or another thread, may have moved it on since its id was found. */
static bool still_matches(const struct orch_query_opts *asked, const struct action_row *row)
{
	return (!asked->states || (row->state < 32 && asked->states & STATE_BIT(row->state))) &&
	       (!asked->updated_from_ms || row->updated_at_ms >= asked->updated_from_ms) &&
	       (!asked->updated_before_ms || row->updated_at_ms < asked->updated_before_ms);
}

static int32_t tell_one(orch_journal *journal, struct walk *walk, uint64_t id, orch_action_fn fn,
			void *userdata, orch_error **reterr)
{
	struct action_row row;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	store_lock(journal);
	r = store_action_by_id(journal, id, &row, reterr);
	store_unlock(journal);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "actions",
				 "%s: action %llu is not there any more: restore a copy",
				 journal->path, (unsigned long long)id);
	if (r < 0)
		return r;
	if (!still_matches(&walk->asked, &row)) {
		action_row_clear(&row);
		return 0;
	}
	orch_action *action = action_new(journal, &row);
	if (!action)
		return orch_fail_memory(reterr);
	walk->left--;
	r = fn(userdata, action);
	orch_action_unref(action);
	return r;
}

static int32_t walk_actions(orch_journal *journal, struct walk *walk, orch_action_fn fn,
			    void *userdata, orch_error **reterr)
{
	store_lock(journal);
	int32_t r = start_walk(journal, walk, reterr);
	store_unlock(journal);
	while (r == 0 && walk->left) {
		r = store_check(journal, reterr);
		if (r < 0)
			break;
		store_lock(journal);
		r = next_batch(journal, walk, reterr);
		store_unlock(journal);
		if (r < 0 || !walk->count)
			break;
		for (size_t i = 0; r == 0 && walk->left && i < walk->count; i++)
			r = tell_one(journal, walk, walk->ids[i], fn, userdata, reterr);
	}
	free(walk->key_end);
	return r;
}

int32_t orch_journal_each(orch_journal *journal, const char *kind_prefix, orch_action_fn fn,
			  void *userdata, orch_error **reterr)
{
	struct walk walk = {.asked = {.kind_prefix = kind_prefix}};
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	return walk_actions(journal, &walk, fn, userdata, reterr);
}

void orch_query_opts_init(struct orch_query_opts *opts, uint32_t size)
{
	const struct orch_query_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static int32_t check_query(const struct orch_query_opts *asked, orch_error **reterr)
{
	if (asked->flags & ~ORCH_QUERY_NEWEST_FIRST)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_query_opts.flags 0x%x is not known", asked->flags);
	if (asked->states & ~ALL_STATES)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_query_opts.states 0x%x has bits that are no 1 << "
				 "ORCH_ACTION_*",
				 asked->states);
	if (asked->updated_from_ms < 0 || asked->updated_before_ms < 0)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_query_opts.updated_from_ms or .updated_before_ms is before "
				 "1970");
	return 0;
}

int32_t orch_journal_query(orch_journal *journal, const struct orch_query_opts *opts,
			   orch_action_fn fn, void *userdata, orch_error **reterr)
{
	struct walk walk = {0};
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	r = orch_opts_read(opts, &walk.asked, sizeof(walk.asked), "orch_query_opts", reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	r = check_query(&walk.asked, reterr);
	return r < 0 ? r : walk_actions(journal, &walk, fn, userdata, reterr);
}
