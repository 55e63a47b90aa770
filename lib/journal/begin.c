/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

void orch_action_opts_init(struct orch_action_opts *opts, uint32_t size)
{
	const struct orch_action_opts defaults = {.policy = ORCH_POLICY_NEVER_REPEAT};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

/* --- what a caller gives
 * ----------------------------------------------------------------------------------- */

bool key_is_valid(const char *key)
{
	size_t length = key ? strlen(key) : 0;
	return length >= 1 && length <= KEY_MAX && text_is_utf8(key, length);
}

bool kind_is_valid(const char *kind)
{
	size_t length = kind ? strlen(kind) : 0;
	return length >= 1 && length <= KIND_MAX &&
	       strspn(kind, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

static int32_t check_names(const char *kind, const char *key, orch_error **reterr)
{
	if (!kind_is_valid(kind))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the kind \"%s\" is not 1 to %d characters of a-z 0-9 . _ -",
				 kind ? kind : "(NULL)", KIND_MAX);
	if (!key_is_valid(key))
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

void begin_clear(struct begin *begin)
{
	action_row_clear(&begin->asked);
	action_row_clear(&begin->found);
	begin->is_found = false;
}

/* The next attempt of what is known not to have happened. The policy stays as it was recorded. */
static int32_t put_next_attempt(orch_journal *journal, struct begin *begin, orch_error **reterr)
{
	struct action_row *row = &begin->found;
	struct expectation expected = {row->state, row->attempt, row->generation};
	row->state = ORCH_ACTION_INTENT;
	row->attempt++;
	row->stored = 0; /* what it keeps from now on is new, also where the last one was pruned */
	payload_clear(&row->result);
	row->result_changed = true;
	payload_clear(&row->request);
	row->request_changed = true;
	if (!payload_copy(&row->request, &begin->asked.request))
		return orch_fail_memory(reterr);
	return chain_put_action(journal, row, &expected, orch_realtime_ms(), reterr);
}

static int32_t put_attempt(orch_journal *journal, struct begin *begin, orch_error **reterr)
{
	return begin->is_found
		       ? put_next_attempt(journal, begin, reterr)
		       : chain_put_action(journal, &begin->asked, NULL, orch_realtime_ms(), reterr);
}

/* Intent and permit are one transaction: neither is there without the other. */
static int32_t put_under_permit(orch_journal *journal, struct begin *begin, orch_error **reterr)
{
	struct permit_row permit;
	struct action_row *row = begin->is_found ? &begin->found : &begin->asked;
	/* Of a new one the id that an aborted turn left says nothing. */
	int32_t r = permit_ask(journal, begin->permit, row, begin->is_found ? row->id : 0, &permit,
			       reterr);
	if (r < 0)
		return r;
	if (permit.state == ORCH_PERMIT_EXPIRED) {
		begin->lapsed_at_ms = permit.expires_at_ms;
		return 0;
	}
	row->permit = permit.id;
	r = put_attempt(journal, begin, reterr);
	return r < 0 ? r : permit_use(journal, &permit, row->id, reterr);
}

static int32_t begin_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct begin *begin = (struct begin *)request;
	struct action_row *asked = &begin->asked;
	begin->outcome = 0;
	begin->lapsed_at_ms = 0;
	action_row_clear(&begin->found);
	int32_t r = store_action_by_key(journal, asked->key, &begin->found, reterr);
	begin->is_found = r == 0;
	if (r < 0 && r != ORCH_ENOENT)
		return r;
	if (begin->is_found && !same_request(&begin->found, asked)) {
		begin->outcome = ORCH_BEGIN_CONFLICT;
		return conflict(&begin->found, reterr);
	}
	begin->outcome = begin->is_found ? outcome_of(journal, &begin->found) : ORCH_BEGIN_FRESH;
	if (begin->outcome != ORCH_BEGIN_FRESH)
		return 0;
	if (!store_headroom_take(journal))
		return orch_fail(reterr, ORCH_ENOSPC, 0, "headroom",
				 "%s: the disk has no room left for the outcome, so %s is not "
				 "begun: free some",
				 journal->path, asked->key);
	return begin->permit[0] ? put_under_permit(journal, begin, reterr)
				: put_attempt(journal, begin, reterr);
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
	if (opts->permit && !key_is_valid(opts->permit))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_action_opts.permit is not 1 to %d bytes of UTF-8, or NULL",
				 KEY_MAX);
	return 0;
}

int32_t begin_prepare(orch_journal *journal, const struct orch_action_opts *opts,
		      struct begin *begin, orch_error **reterr)
{
	struct orch_action_opts known;
	int32_t r = orch_opts_read(opts, &known, sizeof(known), "orch_action_opts", reterr);
	if (r == 0)
		r = check_action_opts(&known, reterr);
	if (r < 0)
		return r;
	*begin = (struct begin){
		.request = {.write = begin_write, .bytes = known.request_length}};
	if (known.permit)
		strcpy(begin->permit, known.permit);
	return prepare_row(journal, &known, ORCH_ACTION_INTENT, &begin->asked, reterr);
}

int32_t begin_refusal(const struct begin *begin, orch_error **reterr)
{
	return begin->lapsed_at_ms ? permit_lapsed(begin->permit, begin->lapsed_at_ms, reterr) : 0;
}

struct action_row begin_take_row(struct begin *begin)
{
	struct action_row *source = begin->is_found ? &begin->found : &begin->asked;
	struct action_row row = *source;
	memset(source, 0, sizeof(*source));
	begin_clear(begin);
	return row;
}

int32_t orch_journal_begin(orch_journal *journal, const struct orch_action_opts *opts,
			   uint32_t *ret_outcome, orch_action **ret_action, orch_error **reterr)
{
	struct begin begin;
	int32_t r = store_check_writable(journal, reterr);
	if (r < 0)
		return r;
	if (!ret_outcome || !ret_action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_outcome or ret_action is NULL");
	r = begin_prepare(journal, opts, &begin, reterr);
	if (r < 0)
		return r;
	r = chain_run(journal, &begin.request, reterr);
	if (r == 0)
		r = begin_refusal(&begin, reterr);
	if (r < 0) {
		begin_clear(&begin);
		if (begin.outcome == ORCH_BEGIN_CONFLICT)
			*ret_outcome = begin.outcome;
		return r;
	}
	struct action_row row = begin_take_row(&begin);
	orch_action *action = action_new(journal, &row);
	if (!action)
		return orch_fail_memory(reterr);
	*ret_outcome = begin.outcome;
	*ret_action = action;
	return 0;
}

/* --- record
 * ------------------------------------------------------------------------------------------------
 */

static int32_t record_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct record *record = (struct record *)request;
	struct action_row recorded;
	int32_t r = store_action_by_key(journal, record->row.key, &recorded, reterr);
	record->is_found = r == 0;
	if (r == ORCH_ENOENT)
		return chain_put_action(journal, &record->row, NULL, orch_realtime_ms(), reterr);
	if (r < 0)
		return r;
	r = same_request(&recorded, &record->row) ? 0 : conflict(&recorded, reterr);
	action_row_clear(&recorded);
	return r;
}

int32_t record_prepare(orch_journal *journal, const char *kind, const char *key,
		       const void *payload, size_t payload_length, struct record *record,
		       orch_error **reterr)
{
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = kind;
	opts.key = key;
	opts.request = payload;
	opts.request_length = payload_length;
	*record = (struct record){.request = {.write = record_write, .bytes = payload_length}};
	return prepare_row(journal, &opts, ORCH_ACTION_CONFIRMED, &record->row, reterr);
}

int32_t orch_journal_record(orch_journal *journal, const char *kind, const char *key,
			    const void *payload, size_t payload_length, int32_t *ret_fresh,
			    orch_error **reterr)
{
	struct record record;
	int32_t r = store_check_writable(journal, reterr);
	if (r == 0)
		r = record_prepare(journal, kind, key, payload, payload_length, &record, reterr);
	if (r < 0)
		return r;
	r = chain_run(journal, &record.request, reterr);
	action_row_clear(&record.row);
	if (r == 0 && ret_fresh)
		*ret_fresh = !record.is_found;
	return r;
}
