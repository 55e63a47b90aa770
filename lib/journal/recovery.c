/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

struct recovery_row {
	orch_action *action;
	uint32_t state_before;
	uint32_t probe;
	const char *decision;
};

struct orch_recovery {
	uint32_t count;
	struct recovery_row *rows;
	char *text;
};

struct orch_probe_reply {
	uint32_t verdict; /* 0: not answered */
	void *result;
	size_t length;
	bool failed; /* no memory for the result */
};

int32_t orch_probe_reply_answer(orch_probe_reply *reply, uint32_t verdict, const void *result,
				size_t length)
{
	if (!reply || verdict < ORCH_OUTCOME_APPLIED || verdict > ORCH_OUTCOME_UNKNOWN ||
	    (length && !result))
		return ORCH_EINVAL;
	if (reply->verdict)
		return ORCH_ESTATE;
	if (length) {
		reply->result = malloc(length);
		if (!reply->result) {
			reply->failed = true;
			return ORCH_ENOMEM;
		}
		memcpy(reply->result, result, length);
	}
	reply->length = length;
	reply->verdict = verdict;
	return 0;
}

static const char *outcome_name(uint32_t outcome)
{
	switch (outcome) {
	case ORCH_OUTCOME_APPLIED:
		return "APPLIED";
	case ORCH_OUTCOME_NOT_APPLIED:
		return "NOT_APPLIED";
	case ORCH_OUTCOME_IN_FLIGHT:
		return "IN_FLIGHT";
	case ORCH_OUTCOME_UNKNOWN:
		return "UNKNOWN";
	default:
		return "none";
	}
}

static const char *decision_for(const struct recovery_row *row)
{
	switch (row->probe) {
	case ORCH_OUTCOME_APPLIED:
		return "done: the probe found it applied";
	case ORCH_OUTCOME_NOT_APPLIED:
		return "retry: the probe found it not applied";
	case ORCH_OUTCOME_IN_FLIGHT:
		return "verify: it is still in flight, ask again later";
	case ORCH_OUTCOME_UNKNOWN:
		return orch_action_state(row->action) == ORCH_ACTION_HANDED_OVER
			       ? "hand over: nobody can tell and it must never be repeated, a "
				 "person "
				 "decides"
			       : "verify: nobody can tell, ask again before any retry";
	default:
		break;
	}
	switch (row->state_before) {
	case ORCH_ACTION_INTENT:
		return "retry: it was never dispatched";
	case ORCH_ACTION_OBSERVED:
		return "done: its result had been observed";
	default:
		return "retry: it may be repeated";
	}
}

/* Asks, then decides. ORCH_ESTATE: the probe itself, or who it called, moved the action on. */
static int32_t probe_and_resolve(struct recovery_row *row, orch_probe_fn probe, void *userdata,
				 orch_error **reterr)
{
	orch_probe_reply reply = {0};
	if (probe)
		probe(userdata, row->action, &reply);
	row->probe = reply.verdict ? reply.verdict : ORCH_OUTCOME_UNKNOWN;
	int32_t r = reply.failed ? orch_fail_memory(reterr)
				 : orch_action_resolve(row->action, row->probe, reply.result,
						       reply.length, reterr);
	free(reply.result);
	return r;
}

static int32_t decide(struct recovery_row *row, orch_probe_fn probe, void *userdata,
		      orch_error **reterr)
{
	static const char never[] = "never dispatched", again[] = "may be repeated";
	switch (row->state_before) {
	case ORCH_ACTION_INTENT:
		return orch_action_fail(row->action, never, sizeof(never) - 1, reterr);
	case ORCH_ACTION_OBSERVED:
		return orch_action_confirm(row->action, reterr);
	default:
		if (orch_action_policy(row->action) == ORCH_POLICY_REPEATABLE)
			return orch_action_fail(row->action, again, sizeof(again) - 1, reterr);
		return probe_and_resolve(row, probe, userdata, reterr);
	}
}

/* A probe may have called the host, which may have moved other actions on. */
static bool still_open(const orch_journal *journal, const struct action_row *row)
{
	switch (row->state) {
	case ORCH_ACTION_UNKNOWN:
		return true;
	case ORCH_ACTION_INTENT:
	case ORCH_ACTION_DISPATCHED:
	case ORCH_ACTION_OBSERVED:
		return row->generation < journal->generation;
	default:
		return false;
	}
}

/* Control characters of a key must not forge lines. */
static void add_key(struct orch_buf *text, const char *key)
{
	for (; *key; key++) {
		unsigned char byte = (unsigned char)*key;
		if (byte < 0x20 || byte == 0x7f)
			orch_buf_printf(text, "\\x%02x", byte);
		else
			orch_buf_add(text, key, 1);
	}
}

static int32_t write_text(orch_recovery *recovery, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf text = {0};
	orch_buf_printf(&text, "%u action%s left open by earlier generations\n", recovery->count,
			recovery->count == 1 ? "" : "s");
	for (uint32_t i = 0; i < recovery->count; i++) {
		const struct recovery_row *row = &recovery->rows[i];
		add_key(&text, orch_action_key(row->action));
		orch_buf_printf(&text, " (%s): %s -> %s, probe %s; %s\n",
				orch_action_kind(row->action),
				orch_action_state_name(row->state_before),
				orch_action_state_name(orch_action_state(row->action)),
				outcome_name(row->probe), row->decision);
	}
	if (text.failed)
		return orch_fail_memory(reterr);
	recovery->text = ORCH_STEAL(text.data);
	return 0;
}

void orch_recover_opts_init(struct orch_recover_opts *opts, uint32_t size)
{
	const struct orch_recover_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

int32_t orch_journal_recover(orch_journal *journal, const struct orch_recover_opts *opts,
			     orch_recovery **ret_recovery, orch_error **reterr)
{
	struct orch_recover_opts known;
	int32_t r = store_check_writable(journal, reterr);
	if (r == 0)
		r = orch_opts_read(opts, &known, sizeof(known), "orch_recover_opts", reterr);
	if (r < 0)
		return r;
	const char *kind_prefix = known.kind_prefix;
	orch_probe_fn probe = known.probe;
	void *userdata = known.userdata;
	_cleanup_free_ uint64_t *ids = NULL;
	size_t count = 0;
	store_lock(journal);
	r = store_ids(journal, STATEMENT_OPEN_ACTIONS, kind_prefix, &ids, &count, reterr);
	store_unlock(journal);
	if (r < 0)
		return r;
	orch_recovery *recovery = calloc(1, sizeof(*recovery));
	if (recovery && count)
		recovery->rows = calloc(count, sizeof(*recovery->rows));
	if (!recovery || (count && !recovery->rows)) {
		r = orch_fail_memory(reterr);
		goto failed;
	}
	for (size_t i = 0; i < count; i++) {
		struct action_row loaded;
		r = store_check(journal, reterr);
		if (r == 0) {
			store_lock(journal);
			r = store_action_by_id(journal, ids[i], &loaded, reterr);
			store_unlock(journal);
		}
		if (r < 0)
			goto failed;
		if (!still_open(journal, &loaded)) {
			action_row_clear(&loaded);
			continue;
		}
		struct recovery_row *row = &recovery->rows[recovery->count];
		row->state_before = loaded.state;
		row->action = action_new(journal, &loaded);
		if (!row->action) {
			r = orch_fail_memory(reterr);
			goto failed;
		}
		recovery->count++;
		orch_error *error = NULL;
		r = decide(row, probe, userdata, &error);
		if (r == ORCH_ESTATE) {
			row->decision = "none: it was moved on while it was probed";
			orch_error_free(error);
			continue;
		}
		if (r < 0) {
			pass_error(r, error, reterr);
			goto failed;
		}
		row->decision = decision_for(row);
	}
	r = write_text(recovery, reterr);
	if (r < 0)
		goto failed;
	if (ret_recovery)
		*ret_recovery = recovery;
	else
		orch_recovery_unref(recovery);
	return 0;
failed:
	orch_recovery_unref(recovery);
	return r;
}

orch_recovery *orch_recovery_unref(orch_recovery *recovery)
{
	if (!recovery)
		return NULL;
	for (uint32_t i = 0; i < recovery->count; i++)
		orch_action_unref(recovery->rows[i].action);
	free(recovery->rows);
	free(recovery->text);
	free(recovery);
	return NULL;
}

uint32_t orch_recovery_count(const orch_recovery *recovery)
{
	return recovery ? recovery->count : 0;
}

int32_t orch_recovery_row(const orch_recovery *recovery, uint32_t index, orch_action **ret_action,
			  uint32_t *ret_state_before, uint32_t *ret_probe,
			  const char **ret_decision)
{
	if (!recovery || index >= recovery->count)
		return ORCH_EINVAL;
	const struct recovery_row *row = &recovery->rows[index];
	if (ret_action)
		*ret_action = row->action;
	if (ret_state_before)
		*ret_state_before = row->state_before;
	if (ret_probe)
		*ret_probe = row->probe;
	if (ret_decision)
		*ret_decision = row->decision;
	return 0;
}

const char *orch_recovery_text(const orch_recovery *recovery)
{
	return recovery && recovery->text ? recovery->text : "";
}
