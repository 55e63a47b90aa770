/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <sodium.h>

#include "journal-private.h"

void orch_journal_opts_init(struct orch_journal_opts *opts, uint32_t size)
{
	const struct orch_journal_opts defaults = {.payload_limit = JOURNAL_DEFAULT_PAYLOAD_LIMIT};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

void orch_action_opts_init(struct orch_action_opts *opts, uint32_t size)
{
	const struct orch_action_opts defaults = {.policy = ORCH_POLICY_NEVER_REPEAT};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

/* --- open and close
 * ------------------------------------------------------------------------------------- */

static void journal_free(orch_journal *journal)
{
	lock_release(&journal->lock);
	anchor_close(&journal->anchor);
	free(journal->path);
	free(journal->wal_path);
	free(journal->headroom_path);
	free(journal->poison);
	free(journal);
}

static struct anchor_point journal_point(const orch_journal *journal)
{
	struct anchor_point point = {.epoch = journal->epoch, .sequence = journal->sequence};
	memcpy(point.hash, journal->head, DIGEST_SIZE);
	return point;
}

orch_journal *orch_journal_ref(orch_journal *journal)
{
	if (journal)
		atomic_fetch_add(&journal->references, 1);
	return journal;
}

orch_journal *orch_journal_unref(orch_journal *journal)
{
	if (!journal || atomic_fetch_sub(&journal->references, 1) != 1)
		return NULL;
	/* Closing SQLite in a forked child would delete the parent's write-ahead log. */
	if (journal->pid == getpid()) {
		bool well = !journal->read_only && !journal->poisoned;
		struct anchor_point point = journal_point(journal);
		store_close(journal, well);
		if (well)
			anchor_sync(&journal->anchor, &point, NULL);
	}
	if (journal->destroy)
		journal->destroy(journal->userdata);
	journal_free(journal);
	return NULL;
}

/*
 * The one name of a file: absolute and without symbolic links, because log and lock go by name. The
 * file itself need not exist.
 */
static int32_t resolve_path(const char *path, const char *what, char **ret_path, char **ret_folder,
			    orch_error **reterr)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s \"%s\" does not name a file",
				 what, path);
	_cleanup_free_ char *full = realpath(path, NULL);
	_cleanup_free_ char *folder = NULL;
	if (full) {
		slash = strrchr(full, '/');
		folder = strndup(full, slash == full ? 1 : (size_t)(slash - full));
	} else if (errno == ENOENT) {
		_cleanup_free_ char *parent =
			slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path))
			      : strdup(".");
		if (!parent)
			return orch_fail_memory(reterr);
		folder = realpath(parent, NULL);
		if (!folder)
			return orch_fail(reterr, journal_code(errno), errno, "folder",
					 "cannot find the folder of %s %s", what, path);
		full = orch_strdup_printf("%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
	} else {
		return orch_fail(reterr, journal_code(errno), errno, "folder", "cannot find %s %s",
				 what, path);
	}
	if (!full || !folder)
		return orch_fail_memory(reterr);
	*ret_path = ORCH_STEAL(full);
	*ret_folder = ORCH_STEAL(folder);
	return 0;
}

static int32_t set_anchor(orch_journal *journal, const char *anchor_path,
			  const char *journal_folder, orch_error **reterr)
{
	_cleanup_free_ char *path = NULL, *folder = NULL;
	int32_t r = resolve_path(anchor_path, "the anchor", &path, &folder, reterr);
	if (r < 0)
		return r;
	size_t length = strlen(journal_folder);
	if (strncmp(folder, journal_folder, length) == 0 &&
	    (folder[length] == '\0' || folder[length] == '/'))
		return orch_fail(
			reterr, ORCH_EINVAL, 0, "anchor",
			"the anchor %s is inside the journal's folder: put it elsewhere, or it is "
			"rolled back together with the journal",
			path);
	journal->anchor.path = ORCH_STEAL(path);
	return 0;
}

static int32_t create_if_missing(orch_journal *journal, orch_error **reterr)
{
	orch_error *error = NULL;
	int32_t r = store_check_file(journal->path, &error);
	if (r != ORCH_ENOENT)
		return pass_error(r, error, reterr);
	orch_error_free(error);
	struct file_identity wal;
	if (file_identity_read(journal->wal_path, &wal))
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, NULL,
			"%s is missing, and its write-ahead log %s is there: put it back beside it",
			journal->path, journal->wal_path);
	if (journal->anchor.path) {
		struct anchor_point point;
		bool found;
		r = anchor_read(journal->anchor.path, &found, &point, reterr);
		if (r < 0)
			return r;
		if (found)
			return orch_fail(reterr, ORCH_ECORRUPT, 0, "anchor",
					 "%s is missing, and its anchor %s knows of %llu records: "
					 "put it back, "
					 "or remove the anchor to accept the loss",
					 journal->path, journal->anchor.path,
					 (unsigned long long)point.sequence);
	}
	return store_create(journal->path, reterr);
}

/* The first record of a generation. On a full disk the headroom is for this, too. */
static int32_t register_generation(orch_journal *journal, orch_error **reterr)
{
	struct instance_row instance;
	instance_fill(&instance, journal->generation + 1);
	int32_t r = lock_sign(&journal->lock, &instance, reterr);
	if (r < 0)
		return r;
	store_headroom_take(journal); /* without it nothing is dispatched; recovery still runs */
	orch_error *error = NULL;
	while ((r = chain_write_instance(journal, &instance, &error)) == ORCH_ENOSPC &&
	       store_headroom_release(journal, JOURNAL_RECORD_BYTES))
		error = orch_error_free(error);
	return pass_error(r, error, reterr);
}

static int32_t open_writable(orch_journal *journal, const char *lock_path, orch_error **reterr)
{
	int32_t r = lock_take(&journal->lock, lock_path, false, reterr);
	if (r < 0)
		return r;
	r = create_if_missing(journal, reterr);
	if (r < 0)
		return r;
	if (!file_identity_read(journal->path, &journal->file))
		return orch_fail(reterr, ORCH_ESYS, errno, NULL, "cannot find %s any more",
				 journal->path);
	r = store_open(journal, journal->path, reterr);
	if (r == 0 && journal->anchor.path)
		r = chain_check_anchor(journal, journal->anchor.path, reterr);
	if (r == 0) {
		/* Before the registration, so that an anchor that cannot be written leaves the file
		 * alone. */
		struct anchor_point point = journal_point(journal);
		r = anchor_sync(&journal->anchor, &point, reterr);
	}
	if (r == 0)
		r = register_generation(journal, reterr);
	if (r < 0) {
		store_close(journal, false);
		struct stat status;
		if (stat(journal->wal_path, &status) == 0 && status.st_size == 0)
			unlink(journal->wal_path); /* SQLite made it when it looked */
	}
	return r;
}

static int32_t open_read_only(orch_journal *journal, const char *lock_path, orch_error **reterr)
{
	int32_t r = store_check_file(journal->path, reterr);
	if (r < 0)
		return r;
	/* Held while the files are copied only: a reader does not keep a coordinator out. */
	r = lock_take(&journal->lock, lock_path, true, reterr);
	if (r < 0)
		return r;
	struct snapshot snapshot;
	r = snapshot_take(&snapshot, journal->path, journal->wal_path, reterr);
	if (r == 0) {
		r = store_open(journal, snapshot.path, reterr);
		snapshot_remove(&snapshot);
	}
	if (r == 0 && journal->anchor.path)
		r = chain_check_anchor(journal, journal->anchor.path, reterr);
	lock_release(&journal->lock);
	if (r < 0)
		store_close(journal, false);
	return r;
}

static int32_t journal_open(const struct orch_journal_opts *opts, orch_journal *journal,
			    orch_error **reterr)
{
	_cleanup_free_ char *folder = NULL, *lock_path = NULL;
	if (!opts->path || !*opts->path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_journal_opts.path is not set");
	if (opts->flags & ~ORCH_JOURNAL_READ_ONLY)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_journal_opts.flags 0x%x is not known", opts->flags);
	if (opts->payload_limit > JOURNAL_MAX_PAYLOAD_LIMIT)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_journal_opts.payload_limit is over %u bytes",
				 JOURNAL_MAX_PAYLOAD_LIMIT);
	if (sodium_init() < 0)
		return orch_fail(reterr, ORCH_ESYS, 0, NULL,
				 "libsodium found no source of randomness");
	int32_t r = resolve_path(opts->path, "the journal", &journal->path, &folder, reterr);
	if (r == 0)
		r = filesystem_check(folder, reterr);
	if (r == 0 && opts->anchor_path)
		r = set_anchor(journal, opts->anchor_path, folder, reterr);
	if (r < 0)
		return r;
	journal->wal_path = orch_strdup_printf("%s-wal", journal->path);
	journal->headroom_path = orch_strdup_printf("%s.reserve", journal->path);
	lock_path = orch_strdup_printf("%s.lock", journal->path);
	if (!journal->wal_path || !journal->headroom_path || !lock_path)
		return orch_fail_memory(reterr);
	journal->read_only = opts->flags & ORCH_JOURNAL_READ_ONLY;
	journal->payload_limit =
		opts->payload_limit ? opts->payload_limit : JOURNAL_DEFAULT_PAYLOAD_LIMIT;
	journal->on_record = opts->on_record;
	journal->userdata = opts->userdata;
	return journal->read_only ? open_read_only(journal, lock_path, reterr)
				  : open_writable(journal, lock_path, reterr);
}

int32_t orch_journal_open(const struct orch_journal_opts *opts, orch_journal **ret_journal,
			  orch_error **reterr)
{
	struct orch_journal_opts known;
	int32_t r = orch_opts_read(opts, &known, sizeof(known), "orch_journal_opts", reterr);
	orch_journal *journal = NULL;
	if (r == 0 && !ret_journal)
		r = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_journal is NULL");
	if (r == 0) {
		journal = calloc(1, sizeof(*journal));
		r = journal ? 0 : orch_fail_memory(reterr);
	}
	if (r == 0) {
		atomic_init(&journal->references, 1);
		journal->pid = getpid();
		journal->lock.fd = -1;
		journal->anchor.fd = -1;
		r = journal_open(&known, journal, reterr);
	}
	if (r < 0) {
		if (journal)
			journal_free(journal);
		if (known.destroy)
			known.destroy(known.userdata);
		return r;
	}
	journal->destroy = known.destroy;
	*ret_journal = journal;
	return 0;
}

uint64_t orch_journal_generation(const orch_journal *journal)
{
	return journal ? journal->generation : 0;
}

uint64_t orch_journal_sequence(const orch_journal *journal)
{
	return journal ? journal->sequence : 0;
}

/* --- begin and record
 * ------------------------------------------------------------------------------------- */

/* RFC 3629: shortest form, no surrogates, nothing above U+10FFFF. */
static bool is_utf8(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	while (*at) {
		unsigned char lead = *at++;
		if (lead < 0x80)
			continue;
		int more = lead >= 0xc2 && lead <= 0xdf	  ? 1
			   : lead >= 0xe0 && lead <= 0xef ? 2
			   : lead >= 0xf0 && lead <= 0xf4 ? 3
							  : 0;
		if (!more || (lead == 0xe0 && *at < 0xa0) || (lead == 0xed && *at > 0x9f) ||
		    (lead == 0xf0 && *at < 0x90) || (lead == 0xf4 && *at > 0x8f))
			return false;
		for (; more; more--)
			if ((*at++ & 0xc0) != 0x80)
				return false;
	}
	return true;
}

static int32_t check_names(const char *kind, const char *key, orch_error **reterr)
{
	size_t length = kind ? strlen(kind) : 0;
	if (length < 1 || length > KIND_MAX ||
	    strspn(kind, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the kind \"%s\" is not 1 to %d characters of a-z 0-9 . _ -",
				 kind ? kind : "(NULL)", KIND_MAX);
	length = key ? strlen(key) : 0;
	if (length < 1 || length > KEY_MAX || !is_utf8(key))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the key of a %s is not 1 to %d bytes of UTF-8", kind, KEY_MAX);
	return 0;
}

/* Turns what a caller gives into the row of a first attempt. */
static int32_t prepare_row(orch_journal *journal, const struct orch_action_opts *opts,
			   uint32_t state, struct action_row *row, orch_error **reterr)
{
	memset(row, 0, sizeof(*row));
	int32_t r = check_names(opts->kind, opts->key, reterr);
	if (r < 0)
		return r;
	if (opts->request_length && !opts->request)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the request is NULL with a length of %zu", opts->request_length);
	if (opts->request_length > journal->payload_limit)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL,
				 "the request of %s has %zu bytes, the journal's payload_limit is "
				 "%llu: store "
				 "it elsewhere and journal its digest",
				 opts->key, opts->request_length,
				 (unsigned long long)journal->payload_limit);
	strcpy(row->kind, opts->kind);
	strcpy(row->key, opts->key);
	row->policy = opts->policy ? opts->policy : ORCH_POLICY_NEVER_REPEAT;
	row->state = state;
	row->attempt = 1;
	if (opts->fingerprint) {
		row->fingerprint_length = opts->fingerprint_length;
		memcpy(row->fingerprint, opts->fingerprint, opts->fingerprint_length);
	} else {
		row->fingerprint_length = DIGEST_SIZE;
		chain_fingerprint(opts->kind, opts->request, opts->request_length,
				  row->fingerprint);
	}
	if (!payload_set(&row->request, opts->request, opts->request_length,
			 journal->payload_limit))
		return orch_fail_memory(reterr);
	row->request_changed = row->request.length > 0;
	return 0;
}

static bool same_request(const struct action_row *recorded, const struct action_row *asked)
{
	return strcmp(recorded->kind, asked->kind) == 0 &&
	       recorded->fingerprint_length == asked->fingerprint_length &&
	       memcmp(recorded->fingerprint, asked->fingerprint, asked->fingerprint_length) == 0;
}

static int32_t conflict(const struct action_row *recorded, orch_error **reterr)
{
	return orch_fail(reterr, ORCH_ECONFLICT, 0, NULL,
			 "the key %s is taken by another %s (%s): a new request needs a new key",
			 recorded->key, recorded->kind, orch_action_state_name(recorded->state));
}

static uint32_t outcome_of(const orch_journal *journal, const struct action_row *recorded)
{
	bool own = recorded->generation == journal->generation;
	switch (recorded->state) {
	case ORCH_ACTION_INTENT: /* an earlier generation's was never dispatched */
		return own ? ORCH_BEGIN_ATTACHED : ORCH_BEGIN_FRESH;
	case ORCH_ACTION_DISPATCHED:
		return own ? ORCH_BEGIN_ATTACHED : ORCH_BEGIN_AMBIGUOUS;
	case ORCH_ACTION_OBSERVED:
	case ORCH_ACTION_CONFIRMED:
		return ORCH_BEGIN_REPLAY;
	case ORCH_ACTION_FAILED:
		return ORCH_BEGIN_FRESH;
	default: /* UNKNOWN, HANDED_OVER, ABANDONED: not for the caller to do again */
		return ORCH_BEGIN_AMBIGUOUS;
	}
}

/* The next attempt of what is known not to have happened. The policy stays as it was recorded. */
static void next_attempt(struct action_row *recorded, struct action_row *asked)
{
	recorded->state = ORCH_ACTION_INTENT;
	recorded->attempt++;
	payload_clear(&recorded->result);
	recorded->result_changed = true;
	payload_clear(&recorded->request);
	recorded->request = asked->request;
	recorded->request_changed = true;
	memset(&asked->request, 0, sizeof(asked->request));
}

/* Inside the transaction; ends it. `row` is what was asked for and becomes what is recorded. */
static int32_t begin_row(orch_journal *journal, struct action_row *row, uint32_t *outcome,
			 orch_error **reterr)
{
	struct action_row recorded = {0};
	int32_t r = store_action_by_key(journal, row->key, &recorded, reterr);
	bool found = r == 0;
	if (r < 0 && r != ORCH_ENOENT)
		goto abort;
	if (found && !same_request(&recorded, row)) {
		*outcome = ORCH_BEGIN_CONFLICT;
		r = conflict(&recorded, reterr);
		goto abort;
	}
	*outcome = found ? outcome_of(journal, &recorded) : ORCH_BEGIN_FRESH;
	if (*outcome == ORCH_BEGIN_FRESH) {
		if (!store_headroom_take(journal)) {
			r = orch_fail(reterr, ORCH_ENOSPC, 0, "headroom",
				      "%s: the disk has no room left for the outcome, so %s is not "
				      "begun: "
				      "free some",
				      journal->path, row->key);
			goto abort;
		}
		struct expectation expected = {recorded.state, recorded.attempt,
					       recorded.generation};
		if (found)
			next_attempt(&recorded, row);
		r = chain_write(journal, found ? &recorded : row, found ? &expected : NULL, true,
				false, reterr);
	} else {
		r = 0;
		store_abort(journal);
	}
	if (r == 0 && found) {
		action_row_clear(row);
		*row = recorded;
	} else {
		action_row_clear(&recorded);
	}
	return r;
abort:
	store_abort(journal);
	action_row_clear(&recorded);
	return r;
}

static int32_t check_action_opts(const struct orch_action_opts *opts, orch_error **reterr)
{
	if (opts->flags || opts->reserved)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_action_opts.flags and .reserved have to be 0");
	if (opts->policy > ORCH_POLICY_NEVER_REPEAT)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_action_opts.policy %u is not an ORCH_POLICY_*",
				 opts->policy);
	if (opts->fingerprint
		    ? opts->fingerprint_length < 1 || opts->fingerprint_length > FINGERPRINT_MAX
		    : opts->fingerprint_length != 0)
		return orch_fail(
			reterr, ORCH_EINVAL, 0, NULL,
			"orch_action_opts.fingerprint_length is %zu: 1 to %d bytes, or 0 with NULL",
			opts->fingerprint_length, FINGERPRINT_MAX);
	return 0;
}

int32_t orch_journal_begin(orch_journal *journal, const struct orch_action_opts *opts,
			   uint32_t *ret_outcome, orch_action **ret_action, orch_error **reterr)
{
	struct orch_action_opts known;
	struct action_row row;
	uint32_t outcome = 0;
	int32_t r = store_check_writable(journal, reterr);
	if (r < 0)
		return r;
	r = orch_opts_read(opts, &known, sizeof(known), "orch_action_opts", reterr);
	if (r < 0)
		return r;
	if (!ret_outcome || !ret_action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_outcome or ret_action is NULL");
	r = check_action_opts(&known, reterr);
	if (r < 0)
		return r;
	r = prepare_row(journal, &known, ORCH_ACTION_INTENT, &row, reterr);
	if (r < 0)
		return r;
	r = store_begin(journal, reterr);
	if (r == 0)
		r = begin_row(journal, &row, &outcome, reterr);
	if (r < 0) {
		action_row_clear(&row);
		if (outcome == ORCH_BEGIN_CONFLICT)
			*ret_outcome = outcome;
		return r;
	}
	orch_action *action = action_new(journal, &row);
	if (!action)
		return orch_fail_memory(reterr);
	*ret_outcome = outcome;
	*ret_action = action;
	return 0;
}

int32_t orch_journal_record(orch_journal *journal, const char *kind, const char *key,
			    const void *payload, size_t payload_length, int32_t *ret_fresh,
			    orch_error **reterr)
{
	struct orch_action_opts opts;
	struct action_row row, recorded;
	bool found = false;
	int32_t r = store_check_writable(journal, reterr);
	if (r < 0)
		return r;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = kind;
	opts.key = key;
	opts.request = payload;
	opts.request_length = payload_length;
	r = prepare_row(journal, &opts, ORCH_ACTION_CONFIRMED, &row, reterr);
	if (r < 0)
		return r;
	r = store_begin(journal, reterr);
	if (r < 0)
		goto out;
	r = store_action_by_key(journal, key, &recorded, reterr);
	found = r == 0;
	if (found) {
		r = same_request(&recorded, &row) ? 0 : conflict(&recorded, reterr);
		action_row_clear(&recorded);
	} else if (r == ORCH_ENOENT) {
		r = chain_write(journal, &row, NULL, true, false, reterr);
		goto out;
	}
	store_abort(journal);
out:
	action_row_clear(&row);
	if (r == 0 && ret_fresh)
		*ret_fresh = !found;
	return r;
}

/* --- look up
 * ------------------------------------------------------------------------------------------------
 */

int32_t orch_journal_find(orch_journal *journal, const char *key, orch_action **ret_action,
			  orch_error **reterr)
{
	struct action_row row;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!key || !ret_action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "key or ret_action is NULL");
	r = store_action_by_key(journal, key, &row, reterr);
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

int32_t orch_journal_each(orch_journal *journal, const char *kind_prefix, orch_action_fn fn,
			  void *userdata, orch_error **reterr)
{
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	_cleanup_free_ uint64_t *ids = NULL;
	size_t count = 0;
	r = store_ids(journal, STATEMENT_ACTIONS, kind_prefix, &ids, &count, reterr);
	/* One by one, so that the callback may move actions on. */
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct action_row row;
		r = store_check(journal, reterr);
		if (r == 0)
			r = store_action_by_id(journal, ids[i], &row, reterr);
		if (r < 0)
			return r;
		orch_action *action = action_new(journal, &row);
		if (!action)
			return orch_fail_memory(reterr);
		r = fn(userdata, action);
		orch_action_unref(action);
	}
	return r;
}
