/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

struct orch_permit {
	atomic_uint references;
	struct permit_row row;
};

const char *orch_permit_state_name(uint32_t state)
{
	switch (state) {
	case ORCH_PERMIT_ISSUED:
		return "ISSUED";
	case ORCH_PERMIT_USED:
		return "USED";
	case ORCH_PERMIT_EXPIRED:
		return "EXPIRED";
	case ORCH_PERMIT_REVOKED:
		return "REVOKED";
	case ORCH_PERMIT_VOID:
		return "VOID";
	default:
		return "?";
	}
}

/* --- rows
 * ------------------------------------------------------------------------------------------- */

#define PERMIT_COLUMNS                                                                             \
	"id, sequence, name, kind, fingerprint, state, epoch, expires_at_ms, action, note,"        \
	" created_at_ms, updated_at_ms"

static const char select_by_name[] = "SELECT " PERMIT_COLUMNS " FROM permit WHERE name = ?1";
static const char select_by_id[] = "SELECT " PERMIT_COLUMNS " FROM permit WHERE id = ?1";
static const char select_next[] = "SELECT " PERMIT_COLUMNS " FROM permit WHERE id > ?1 AND id <= ?2"
				  " ORDER BY id LIMIT 1";
static const char select_issued[] =
	"SELECT " PERMIT_COLUMNS " FROM permit WHERE id > ?1 AND state = 1 ORDER BY id LIMIT 1";
static const char select_last[] = "SELECT max(id) FROM permit";
static const char insert_row[] = "INSERT INTO permit (sequence, state, action, updated_at_ms, "
				 "name, kind, fingerprint, epoch,"
				 " expires_at_ms, note, created_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, "
				 "?6, ?7, ?8, ?9, ?10, ?11)";
static const char update_row[] =
	"UPDATE permit SET sequence = ?1, state = ?2, action = ?3,"
	" updated_at_ms = ?4 WHERE id = ?5 AND state = ?6 AND sequence = ?7";

/* Absent is NULL: an empty blob is nobody's who writes here. */
static bool load_bytes(sqlite3_stmt *statement, int column, void *bytes, size_t size,
		       size_t *ret_length)
{
	*ret_length = 0;
	if (sqlite3_column_type(statement, column) == SQLITE_NULL)
		return true;
	const void *stored = sqlite3_column_blob(statement, column);
	size_t length = (size_t)sqlite3_column_bytes(statement, column);
	if (!stored || length < 1 || length > size)
		return false;
	memcpy(bytes, stored, length);
	*ret_length = length;
	return true;
}

static bool load_permit(sqlite3_stmt *statement, struct permit_row *row)
{
	row->id = (uint64_t)sqlite3_column_int64(statement, 0);
	row->sequence = (uint64_t)sqlite3_column_int64(statement, 1);
	row->state = (uint32_t)sqlite3_column_int64(statement, 5);
	row->epoch = (uint64_t)sqlite3_column_int64(statement, 6);
	row->expires_at_ms = sqlite3_column_int64(statement, 7);
	row->action = (uint64_t)sqlite3_column_int64(statement, 8);
	row->created_at_ms = sqlite3_column_int64(statement, 10);
	row->updated_at_ms = sqlite3_column_int64(statement, 11);
	return store_load_text(statement, 2, row->name, sizeof(row->name)) &&
	       store_load_text(statement, 3, row->kind, sizeof(row->kind)) &&
	       load_bytes(statement, 4, row->fingerprint, sizeof(row->fingerprint),
			  &row->fingerprint_length) &&
	       load_bytes(statement, 9, row->note, sizeof(row->note), &row->note_length);
}

static int32_t find_permit(orch_journal *journal, sqlite3_stmt *statement,
			   struct permit_row *ret_row, orch_error **reterr)
{
	int32_t r = 0;
	int result = sqlite3_step(statement);
	if (result == SQLITE_DONE)
		r = ORCH_ENOENT;
	else if (result != SQLITE_ROW)
		r = store_fail(journal, result, "permit", reterr);
	else if (!load_permit(statement, ret_row))
		/* A column that could not be read for want of memory looks like a damaged one. */
		r = sqlite3_errcode(journal->db) == SQLITE_NOMEM
			    ? orch_fail_memory(reterr)
			    : orch_fail(reterr, ORCH_ECORRUPT, 0, "permit",
					"%s: permit %llu is damaged: restore a copy", journal->path,
					(unsigned long long)sqlite3_column_int64(statement, 0));
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

int32_t permit_by_name(orch_journal *journal, const char *name, struct permit_row *ret_row,
		       orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, select_by_name, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_text(statement, 1, name);
	return find_permit(journal, statement, ret_row, reterr);
}

static int32_t permit_by_id(orch_journal *journal, uint64_t id, struct permit_row *ret_row,
			    orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, select_by_id, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, id);
	return find_permit(journal, statement, ret_row, reterr);
}

int32_t permit_last(orch_journal *journal, uint64_t *ret_id, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, select_last, &statement, reterr);
	if (r < 0)
		return r;
	int result = sqlite3_step(statement);
	if (result == SQLITE_ROW)
		*ret_id = (uint64_t)sqlite3_column_int64(statement, 0);
	else
		r = store_fail(journal, result, "permits", reterr);
	sqlite3_reset(statement);
	return r;
}

int32_t permit_next(orch_journal *journal, uint64_t after, uint64_t last,
		    struct permit_row *ret_row, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, select_next, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, after);
	store_bind_number(statement, 2, last);
	return find_permit(journal, statement, ret_row, reterr);
}

static void row_digest(const struct permit_row *row, unsigned char digest[DIGEST_SIZE])
{
	struct field_hash hash;
	hash_start(&hash, JOURNAL_FORMAT, "permit");
	hash_number(&hash, row->id);
	hash_number(&hash, row->sequence);
	hash_text(&hash, row->name);
	hash_text(&hash, row->kind);
	hash_bytes(&hash, row->fingerprint, row->fingerprint_length);
	hash_number(&hash, row->state);
	hash_number(&hash, row->epoch);
	hash_number(&hash, (uint64_t)row->expires_at_ms);
	hash_number(&hash, row->action);
	hash_bytes(&hash, row->note, row->note_length);
	hash_number(&hash, (uint64_t)row->created_at_ms);
	hash_number(&hash, (uint64_t)row->updated_at_ms);
	hash_end(&hash, digest);
}

int32_t permit_digest(orch_journal *journal, uint64_t id, uint64_t *ret_sequence,
		      unsigned char digest[DIGEST_SIZE], orch_error **reterr)
{
	struct permit_row row;
	int32_t r = permit_by_id(journal, id, &row, reterr);
	if (r < 0)
		return r;
	*ret_sequence = row.sequence;
	row_digest(&row, digest);
	return 0;
}

static void bind_optional(sqlite3_stmt *statement, int index, const void *bytes, size_t length)
{
	if (length)
		store_bind_blob(statement, index, bytes, length);
}

static int32_t store_permit(orch_journal *journal, struct permit_row *row, uint32_t expected,
			    uint64_t former, orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, expected ? update_row : insert_row, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, row->sequence);
	store_bind_number(statement, 2, row->state);
	store_bind_number(statement, 3, row->action);
	store_bind_number(statement, 4, (uint64_t)row->updated_at_ms);
	if (expected) {
		store_bind_number(statement, 5, row->id);
		store_bind_number(statement, 6, expected);
		store_bind_number(statement, 7, former);
	} else {
		store_bind_text(statement, 5, row->name);
		store_bind_text(statement, 6, row->kind);
		bind_optional(statement, 7, row->fingerprint, row->fingerprint_length);
		store_bind_number(statement, 8, row->epoch);
		store_bind_number(statement, 9, (uint64_t)row->expires_at_ms);
		bind_optional(statement, 10, row->note, row->note_length);
		store_bind_number(statement, 11, (uint64_t)row->created_at_ms);
	}
	int result = store_run(statement);
	if (result != SQLITE_OK)
		return store_write_failed(journal, result, "permit", reterr);
	if (expected && sqlite3_changes(journal->db) != 1)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the permit %s is not %s any more: look it up again", row->name,
				 orch_permit_state_name(expected));
	if (!expected)
		row->id = (uint64_t)sqlite3_last_insert_rowid(journal->db);
	return 0;
}

int32_t permit_put(orch_journal *journal, struct permit_row *row, uint32_t expected,
		   orch_error **reterr)
{
	uint64_t former = row->sequence;
	row->sequence = journal->draft + 1;
	row->updated_at_ms = orch_realtime_ms();
	if (!expected)
		row->created_at_ms = row->updated_at_ms;
	int32_t r = store_permit(journal, row, expected, former, reterr);
	if (r < 0)
		return r;
	struct event_row event = {
		.at_ms = row->updated_at_ms,
		.noun = NOUN_PERMIT,
		.subject = row->id,
		.state = row->state,
	};
	row_digest(row, event.digest);
	return chain_put_event(journal, &event, reterr);
}

/* --- what begin asks
 * -------------------------------------------------------------------------------- */

int32_t permit_lapsed(const char *name, int64_t expires_at_ms, orch_error **reterr)
{
	return orch_fail(reterr, ORCH_EPERMIT, 0, "permit",
			 "the permit %s expired at %lld (milliseconds since 1970), and nothing is "
			 "begun under it: issue another one, under a new name",
			 name, (long long)expires_at_ms);
}

static int32_t refuse_state(const struct permit_row *permit, const char *key, orch_error **reterr)
{
	switch (permit->state) {
	case ORCH_PERMIT_USED:
		return orch_fail(
			reterr, ORCH_EPERMIT, 0, "permit",
			"the permit %s was used by another action, number %llu, so %s is not "
			"begun: a permit is for one, issue another for this one",
			permit->name, (unsigned long long)permit->action, key);
	case ORCH_PERMIT_EXPIRED:
		return permit_lapsed(permit->name, permit->expires_at_ms, reterr);
	case ORCH_PERMIT_REVOKED:
		return orch_fail(
			reterr, ORCH_EPERMIT, 0, "permit",
			"the permit %s was revoked, so %s is not begun: ask whoever revoked "
			"it, and issue another one if it is wanted all the same",
			permit->name, key);
	default:
		return orch_fail(reterr, ORCH_EPERMIT, 0, "permit",
				 "the permit %s became void when the journal was restored from a "
				 "backup, so %s is not begun: find out whether it was used since, "
				 "then issue another one",
				 permit->name, key);
	}
}

static int32_t check_terms(const orch_journal *journal, const struct permit_row *permit,
			   const struct action_row *asked, orch_error **reterr)
{
	if (permit->epoch != journal->epoch)
		return orch_fail(
			reterr, ORCH_EPERMIT, 0, "permit",
			"the permit %s was issued before the journal was restored from a "
			"backup (epoch %llu, now %llu), so %s is not begun: find out whether "
			"it was done since, then issue another one",
			permit->name, (unsigned long long)permit->epoch,
			(unsigned long long)journal->epoch, asked->key);
	if (strcmp(permit->kind, asked->kind) != 0)
		return orch_fail(
			reterr, ORCH_EPERMIT, 0, "permit",
			"the permit %s is for a %s, and %s is a %s: issue one for that kind",
			permit->name, permit->kind, asked->key, asked->kind);
	if (permit->fingerprint_length &&
	    (permit->fingerprint_length != asked->fingerprint_length ||
	     memcmp(permit->fingerprint, asked->fingerprint, asked->fingerprint_length) != 0))
		return orch_fail(reterr, ORCH_EPERMIT, 0, "permit",
				 "the permit %s is for another request than that of %s (the "
				 "fingerprints differ): issue one for this request",
				 permit->name, asked->key);
	return 0;
}

int32_t permit_ask(orch_journal *journal, const char *name, const struct action_row *asked,
		   uint64_t action, struct permit_row *ret_permit, orch_error **reterr)
{
	int32_t r = permit_by_name(journal, name, ret_permit, reterr);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, ORCH_EPERMIT, 0, "permit",
				 "%s has no permit %s, so %s is not begun: issue it first",
				 journal->path, name, asked->key);
	if (r < 0)
		return r;
	struct permit_row *permit = ret_permit;
	bool own = permit->state == ORCH_PERMIT_USED && action && permit->action == action;
	if (permit->state != ORCH_PERMIT_ISSUED && !own)
		return refuse_state(permit, asked->key, reterr);
	if (permit->expires_at_ms && orch_realtime_ms() >= permit->expires_at_ms) {
		uint32_t expected = permit->state;
		permit->state = ORCH_PERMIT_EXPIRED;
		return permit_put(journal, permit, expected, reterr);
	}
	return check_terms(journal, permit, asked, reterr);
}

int32_t permit_use(orch_journal *journal, struct permit_row *permit, uint64_t action,
		   orch_error **reterr)
{
	if (permit->state == ORCH_PERMIT_USED)
		return 0;
	permit->state = ORCH_PERMIT_USED;
	permit->action = action;
	return permit_put(journal, permit, ORCH_PERMIT_ISSUED, reterr);
}

/* --- restored from a backup
 * ------------------------------------------------------------------------- */

static int32_t next_issued(orch_journal *journal, uint64_t after, struct permit_row *ret_permit,
			   orch_error **reterr)
{
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, select_issued, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, after);
	return find_permit(journal, statement, ret_permit, reterr);
}

int32_t permit_void_all(orch_journal *journal, uint32_t *ret_count, orch_error **reterr)
{
	struct permit_row permit = {0};
	*ret_count = 0;
	for (;;) {
		int32_t r = next_issued(journal, permit.id, &permit, reterr);
		if (r < 0)
			return r == ORCH_ENOENT ? 0 : r;
		permit.state = ORCH_PERMIT_VOID;
		r = permit_put(journal, &permit, ORCH_PERMIT_ISSUED, reterr);
		if (r < 0)
			return r;
		++*ret_count;
	}
}

/* --- issue
 * ------------------------------------------------------------------------------------------ */

void orch_permit_opts_init(struct orch_permit_opts *opts, uint32_t size)
{
	const struct orch_permit_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static int32_t check_name(const char *name, orch_error **reterr)
{
	return key_is_valid(name)
		       ? 0
		       : orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				   "the name of a permit is not 1 to %d bytes of UTF-8", KEY_MAX);
}

static int32_t check_opts(const struct orch_permit_opts *opts, orch_error **reterr)
{
	if (opts->flags)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_permit_opts.flags has to be 0");
	int32_t r = check_name(opts->name, reterr);
	if (r < 0)
		return r;
	if (!kind_is_valid(opts->kind))
		return orch_fail(
			reterr, ORCH_EINVAL, 0, NULL,
			"the kind \"%s\" of the permit %s is not 1 to %d characters of a-z "
			"0-9 . _ -",
			opts->kind ? opts->kind : "(NULL)", opts->name, KIND_MAX);
	if (opts->fingerprint
		    ? opts->fingerprint_length < 1 || opts->fingerprint_length > FINGERPRINT_MAX
		    : opts->fingerprint_length != 0)
		return orch_fail(
			reterr, ORCH_EINVAL, 0, NULL,
			"orch_permit_opts.fingerprint_length is %zu: 1 to %d bytes, or 0 with NULL",
			opts->fingerprint_length, FINGERPRINT_MAX);
	if (opts->expires_at_ms < 0)
		return orch_fail(
			reterr, ORCH_EINVAL, 0, NULL,
			"orch_permit_opts.expires_at_ms is %lld: milliseconds since 1970, or "
			"0 for a permit that does not expire",
			(long long)opts->expires_at_ms);
	if (opts->note_length > PERMIT_NOTE_MAX)
		return orch_fail(
			reterr, ORCH_ETOOBIG, 0, NULL,
			"the note of the permit %s has %zu bytes, and %d is the most: shorten "
			"it, or tell where it is",
			opts->name, opts->note_length, PERMIT_NOTE_MAX);
	if (opts->note_length && !opts->note)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the note of the permit %s is NULL with a length of %zu",
				 opts->name, opts->note_length);
	return 0;
}

static void fill_row(const orch_journal *journal, const struct orch_permit_opts *opts,
		     struct permit_row *row)
{
	memset(row, 0, sizeof(*row));
	row->state = ORCH_PERMIT_ISSUED;
	row->epoch = journal->epoch;
	row->expires_at_ms = opts->expires_at_ms;
	strcpy(row->name, opts->name);
	strcpy(row->kind, opts->kind);
	row->fingerprint_length = opts->fingerprint_length;
	if (opts->fingerprint_length)
		memcpy(row->fingerprint, opts->fingerprint, opts->fingerprint_length);
	row->note_length = opts->note_length;
	if (opts->note_length)
		memcpy(row->note, opts->note, opts->note_length);
}

/* The note is for people and may tell a time: asked for again, it is no other permit. */
static bool same_terms(const struct permit_row *recorded, const struct permit_row *asked)
{
	return strcmp(recorded->kind, asked->kind) == 0 &&
	       recorded->expires_at_ms == asked->expires_at_ms &&
	       recorded->fingerprint_length == asked->fingerprint_length &&
	       memcmp(recorded->fingerprint, asked->fingerprint, asked->fingerprint_length) == 0;
}

struct issue {
	struct request request;
	struct permit_row asked, permit;
};

static int32_t issue_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct issue *issue = (struct issue *)request;
	int32_t r = permit_by_name(journal, issue->asked.name, &issue->permit, reterr);
	if (r == ORCH_ENOENT) {
		issue->permit = issue->asked;
		return permit_put(journal, &issue->permit, 0, reterr);
	}
	if (r < 0 || same_terms(&issue->permit, &issue->asked))
		return r;
	return orch_fail(
		reterr, ORCH_ECONFLICT, 0, NULL,
		"a permit %s was issued for other terms and is %s: new terms need a new name",
		issue->permit.name, orch_permit_state_name(issue->permit.state));
}

static orch_permit *permit_new(const struct permit_row *row)
{
	orch_permit *permit = calloc(1, sizeof(*permit));
	if (!permit)
		return NULL;
	atomic_init(&permit->references, 1);
	permit->row = *row;
	return permit;
}

int32_t orch_permit_issue(orch_journal *journal, const struct orch_permit_opts *opts,
			  orch_permit **ret_permit, orch_error **reterr)
{
	struct orch_permit_opts known;
	int32_t r = store_check_writable(journal, reterr);
	if (r == 0)
		r = orch_opts_read(opts, &known, sizeof(known), "orch_permit_opts", reterr);
	if (r == 0)
		r = check_opts(&known, reterr);
	if (r < 0)
		return r;
	_cleanup_free_ struct issue *issue = calloc(1, sizeof(*issue));
	/* What it is told in is made first: afterwards the permit would be there all the same. */
	_cleanup_free_ orch_permit *permit = calloc(1, sizeof(*permit));
	if (!issue || !permit)
		return orch_fail_memory(reterr);
	issue->request.write = issue_write;
	fill_row(journal, &known, &issue->asked);
	r = chain_run(journal, &issue->request, reterr);
	if (r < 0 || !ret_permit)
		return r;
	atomic_init(&permit->references, 1);
	permit->row = issue->permit;
	*ret_permit = ORCH_STEAL(permit);
	return 0;
}

/* --- revoke
 * ----------------------------------------------------------------------------------------- */

struct revoke {
	struct request request;
	const char *name;
};

static int32_t revoke_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	const struct revoke *revoke = (const struct revoke *)request;
	struct permit_row permit;
	int32_t r = permit_by_name(journal, revoke->name, &permit, reterr);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, r, 0, NULL, "%s has no permit %s", journal->path,
				 revoke->name);
	if (r < 0)
		return r;
	if (permit.state != ORCH_PERMIT_ISSUED)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the permit %s is %s: there is nothing to take back", revoke->name,
				 orch_permit_state_name(permit.state));
	permit.state = ORCH_PERMIT_REVOKED;
	return permit_put(journal, &permit, ORCH_PERMIT_ISSUED, reterr);
}

int32_t orch_permit_revoke(orch_journal *journal, const char *name, orch_error **reterr)
{
	struct revoke revoke = {
		.request = {.write = revoke_write, .completes = true},
		.name = name,
	};
	int32_t r = store_check_writable(journal, reterr);
	if (r == 0)
		r = check_name(name, reterr);
	return r < 0 ? r : chain_run(journal, &revoke.request, reterr);
}

/* --- looking up
 * ------------------------------------------------------------------------------------- */

int32_t orch_permit_find(orch_journal *journal, const char *name, orch_permit **ret_permit,
			 orch_error **reterr)
{
	struct permit_row row;
	int32_t r = store_check(journal, reterr);
	if (r == 0)
		r = check_name(name, reterr);
	if (r < 0)
		return r;
	if (!ret_permit)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_permit is NULL");
	store_lock(journal);
	r = permit_by_name(journal, name, &row, reterr);
	store_unlock(journal);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, r, 0, NULL, "%s has no permit %s", journal->path, name);
	if (r < 0)
		return r;
	orch_permit *permit = permit_new(&row);
	if (!permit)
		return orch_fail_memory(reterr);
	*ret_permit = permit;
	return 0;
}

int32_t orch_permit_each(orch_journal *journal, orch_permit_fn fn, void *userdata,
			 orch_error **reterr)
{
	struct permit_row row = {0};
	uint64_t last = 0;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	store_lock(journal);
	r = permit_last(journal, &last, reterr);
	store_unlock(journal);
	/* One by one, so that the callback may issue and use permits: new ones are not walked. */
	while (r == 0) {
		r = store_check(journal, reterr);
		if (r < 0)
			return r;
		store_lock(journal);
		r = permit_next(journal, row.id, last, &row, reterr);
		store_unlock(journal);
		if (r == ORCH_ENOENT)
			return 0;
		if (r < 0)
			return r;
		orch_permit *permit = permit_new(&row);
		if (!permit)
			return orch_fail_memory(reterr);
		r = fn(userdata, permit);
		orch_permit_unref(permit);
	}
	return r;
}

/* --- getters
 * ---------------------------------------------------------------------------------------- */

orch_permit *orch_permit_ref(orch_permit *permit)
{
	if (permit)
		atomic_fetch_add(&permit->references, 1);
	return permit;
}

orch_permit *orch_permit_unref(orch_permit *permit)
{
	if (permit && atomic_fetch_sub(&permit->references, 1) == 1)
		free(permit);
	return NULL;
}

uint64_t orch_permit_id(const orch_permit *permit)
{
	return permit ? permit->row.id : 0;
}

const char *orch_permit_name(const orch_permit *permit)
{
	return permit ? permit->row.name : "";
}

const char *orch_permit_kind(const orch_permit *permit)
{
	return permit ? permit->row.kind : "";
}

uint32_t orch_permit_state(const orch_permit *permit)
{
	return permit ? permit->row.state : 0;
}

int64_t orch_permit_expires_at_ms(const orch_permit *permit)
{
	return permit ? permit->row.expires_at_ms : 0;
}

uint64_t orch_permit_epoch(const orch_permit *permit)
{
	return permit ? permit->row.epoch : 0;
}

uint64_t orch_permit_action(const orch_permit *permit)
{
	return permit ? permit->row.action : 0;
}

const void *orch_permit_note(const orch_permit *permit, size_t *ret_length)
{
	size_t length = permit ? permit->row.note_length : 0;
	if (ret_length)
		*ret_length = length;
	return length ? permit->row.note : NULL;
}
