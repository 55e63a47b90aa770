/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

struct recovery_row {
	orch_action *action;
	uint32_t state_before;
	uint32_t probe;
	const char *decision;
	char *composed; /* where `decision` is, if it is no constant */
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

/* --- deciding
 * --------------------------------------------------------------------------------------- */

/* What is known of one action, and what is done about it. */
struct turn {
	const struct orch_recover_opts *opts;
	orch_action *action;
	uint32_t state;	   /* when it was looked up */
	uint64_t sequence; /* of its last event then */
	struct orch_probe_reply reply;
	uint32_t outcome;  /* ORCH_OUTCOME_*; 0: nobody was asked */
	uint32_t proposed; /* ORCH_RECOVER_*, by the table */
	uint32_t chosen;   /* by the host's decide() */
	uint32_t taken;
};

static bool is_repeatable(const struct turn *turn)
{
	return orch_action_policy(turn->action) == ORCH_POLICY_REPEATABLE;
}

static bool was_dispatched(const struct turn *turn)
{
	return turn->state == ORCH_ACTION_DISPATCHED || turn->state == ORCH_ACTION_UNKNOWN;
}

static void ask_probe(struct turn *turn)
{
	if (!was_dispatched(turn) || is_repeatable(turn))
		return;
	if (turn->opts->probe)
		turn->opts->probe(turn->opts->userdata, turn->action, &turn->reply);
	turn->outcome = turn->reply.verdict ? turn->reply.verdict : ORCH_OUTCOME_UNKNOWN;
}

static uint32_t propose(const struct turn *turn)
{
	if (turn->state == ORCH_ACTION_OBSERVED)
		return ORCH_RECOVER_CONTINUE;
	switch (turn->outcome) {
	case ORCH_OUTCOME_APPLIED:
		return ORCH_RECOVER_CONTINUE;
	case ORCH_OUTCOME_IN_FLIGHT:
		return ORCH_RECOVER_VERIFY;
	case ORCH_OUTCOME_UNKNOWN:
		return orch_action_policy(turn->action) == ORCH_POLICY_NEVER_REPEAT
			       ? ORCH_RECOVER_HAND_OVER
			       : ORCH_RECOVER_VERIFY;
	default: /* NOT_APPLIED; or not asked: never dispatched, or repeatable */
		return ORCH_RECOVER_RETRY;
	}
}

/* What there is evidence for, and what the action's state allows. */
static bool may_take(const struct turn *turn, uint32_t choice)
{
	if (turn->state == ORCH_ACTION_OBSERVED)
		return choice == ORCH_RECOVER_CONTINUE;
	switch (choice) {
	case ORCH_RECOVER_CONTINUE:
		return turn->outcome == ORCH_OUTCOME_APPLIED;
	case ORCH_RECOVER_VERIFY:
		return was_dispatched(turn);
	case ORCH_RECOVER_RETRY:
		return !was_dispatched(turn) || is_repeatable(turn) ||
		       turn->outcome == ORCH_OUTCOME_NOT_APPLIED;
	case ORCH_RECOVER_HAND_OVER:
	case ORCH_RECOVER_ABANDON:
		return true;
	default:
		return false;
	}
}

static void choose(struct turn *turn)
{
	turn->proposed = turn->chosen = propose(turn);
	if (turn->opts->decide)
		turn->chosen = turn->opts->decide(turn->opts->userdata, turn->action, turn->outcome,
						  turn->proposed);
	turn->taken = may_take(turn, turn->chosen) ? turn->chosen : turn->proposed;
}

/* Why, where the probe gave no result to keep. */
static const char *reason_for(const struct turn *turn)
{
	if (turn->taken != turn->proposed)
		return "chosen by the host";
	if (turn->state == ORCH_ACTION_INTENT)
		return "never dispatched";
	if (is_repeatable(turn))
		return "may be repeated";
	return turn->outcome == ORCH_OUTCOME_UNKNOWN ? "the outcome could not be found out" : "";
}

/* It stays as it is: there is nothing to write. */
static bool is_left(const struct turn *turn)
{
	return turn->taken == ORCH_RECOVER_VERIFY &&
	       (turn->outcome == ORCH_OUTCOME_IN_FLIGHT || turn->state == ORCH_ACTION_UNKNOWN);
}

static int32_t take(const struct turn *turn, orch_error **reterr)
{
	const struct orch_probe_reply *reply = &turn->reply;
	const char *reason = reply->length ? reply->result : reason_for(turn);
	size_t length = reply->length ? reply->length : strlen(reason);
	switch (turn->taken) {
	case ORCH_RECOVER_CONTINUE: {
		int32_t r = turn->state == ORCH_ACTION_OBSERVED
				    ? 0
				    : orch_action_observe(turn->action, reply->result,
							  reply->length, reterr);
		return r < 0 ? r : orch_action_confirm(turn->action, reterr);
	}
	case ORCH_RECOVER_VERIFY:
		return is_left(turn) ? 0
				     : orch_action_unknown(turn->action, reason, length, reterr);
	case ORCH_RECOVER_RETRY:
		return orch_action_fail(turn->action, reason, length, reterr);
	case ORCH_RECOVER_HAND_OVER:
		return orch_action_hand_over(turn->action, reason, length, reterr);
	default:
		return orch_action_abandon(turn->action, reason, length, reterr);
	}
}

/* --- telling it
 * ------------------------------------------------------------------------------------- */

static const char moved_on[] = "none: it was moved on while it was probed";
static const char waits[] = "hand over: a person decides";

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

static const char *choice_name(uint32_t choice)
{
	switch (choice) {
	case ORCH_RECOVER_CONTINUE:
		return "continue";
	case ORCH_RECOVER_VERIFY:
		return "verify";
	case ORCH_RECOVER_RETRY:
		return "retry";
	case ORCH_RECOVER_HAND_OVER:
		return "hand over";
	case ORCH_RECOVER_ABANDON:
		return "abandon";
	default:
		return "what is no ORCH_RECOVER_*";
	}
}

static const char *proposal_text(const struct turn *turn)
{
	switch (turn->outcome) {
	case ORCH_OUTCOME_APPLIED:
		return "done: the probe found it applied";
	case ORCH_OUTCOME_NOT_APPLIED:
		return "retry: the probe found it not applied";
	case ORCH_OUTCOME_IN_FLIGHT:
		return "verify: it is still in flight, ask again later";
	case ORCH_OUTCOME_UNKNOWN:
		return turn->proposed == ORCH_RECOVER_HAND_OVER
			       ? "hand over: nobody can tell and it must never be repeated, a "
				 "person decides"
			       : "verify: nobody can tell, ask again before any retry";
	default:
		break;
	}
	switch (turn->state) {
	case ORCH_ACTION_INTENT:
		return "retry: it was never dispatched";
	case ORCH_ACTION_OBSERVED:
		return "done: its result had been observed";
	default:
		return "retry: it may be repeated";
	}
}

static int32_t tell_decision(struct recovery_row *row, const struct turn *turn, orch_error **reterr)
{
	const char *proposal = proposal_text(turn);
	row->decision = proposal;
	if (turn->chosen == turn->proposed)
		return 0;
	row->composed =
		turn->taken == turn->chosen
			? orch_strdup_printf("%s: chosen by decide(), and not %s",
					     choice_name(turn->chosen), choice_name(turn->proposed))
			: orch_strdup_printf("%s; decide() chose %s, and nothing that is known "
					     "allows that",
					     proposal, choice_name(turn->chosen));
	if (!row->composed)
		return orch_fail_memory(reterr);
	row->decision = row->composed;
	return 0;
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
	uint32_t waiting = 0;
	for (uint32_t i = 0; i < recovery->count; i++)
		waiting += orch_action_state(recovery->rows[i].action) == ORCH_ACTION_HANDED_OVER;
	orch_buf_printf(&text, "%u action%s left open, %u waiting for a person\n", recovery->count,
			recovery->count == 1 ? "" : "s", waiting);
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

/* --- one after the other
 * ---------------------------------------------------------------------------- */

static int32_t load(orch_journal *journal, uint64_t id, struct action_row *ret_row,
		    orch_error **reterr)
{
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	store_lock(journal);
	r = store_action_by_id(journal, id, ret_row, reterr);
	store_unlock(journal);
	return r == ORCH_ENOENT ? orch_fail(reterr, ORCH_ECORRUPT, 0, "recover",
					    "%s: action %llu is not there any more: restore a copy",
					    journal->path, (unsigned long long)id)
				: r;
}

/* Callbacks and other threads may have moved it on under another handle: the row is to tell how it
 * is. */
static int32_t refresh(orch_journal *journal, struct recovery_row *row, orch_error **reterr)
{
	struct action_row now;
	int32_t r = load(journal, orch_action_id(row->action), &now, reterr);
	if (r < 0)
		return r;
	if (now.sequence == action_sequence(row->action)) {
		action_row_clear(&now);
		return 0;
	}
	orch_action *action = action_new(journal, &now);
	if (!action)
		return orch_fail_memory(reterr);
	orch_action_unref(row->action);
	row->action = action;
	return 0;
}

/* A probe may have called the host, which may have moved other actions on. */
static bool still_open(const orch_journal *journal, const struct action_row *row)
{
	switch (row->state) {
	case ORCH_ACTION_UNKNOWN:
	case ORCH_ACTION_HANDED_OVER:
		return true;
	case ORCH_ACTION_INTENT:
	case ORCH_ACTION_DISPATCHED:
	case ORCH_ACTION_OBSERVED:
		return row->generation < journal->generation;
	default:
		return false;
	}
}

static int32_t decide_and_take(orch_journal *journal, struct recovery_row *row, struct turn *turn,
			       orch_error **reterr)
{
	ask_probe(turn);
	row->probe = turn->outcome;
	if (turn->reply.failed)
		return orch_fail_memory(reterr);
	choose(turn);
	/* The callbacks were given this handle: what it does now would be on top of what they did.
	 */
	bool moved = action_sequence(turn->action) != turn->sequence;
	orch_error *error = NULL;
	int32_t r = moved ? ORCH_ESTATE : take(turn, &error);
	if (r == ORCH_ESTATE || r == ORCH_EBUSY) {
		orch_error_free(error);
		row->decision = moved_on;
		return refresh(journal, row, reterr);
	}
	if (r < 0)
		return pass_error(r, error, reterr);
	r = tell_decision(row, turn, reterr);
	if (r < 0 || !is_left(turn))
		return r;
	r = refresh(journal, row, reterr);
	if (r == 0 && row->action != turn->action)
		row->decision = moved_on;
	return r;
}

static int32_t recover_one(orch_journal *journal, const struct orch_recover_opts *opts,
			   struct recovery_row *row, orch_error **reterr)
{
	orch_action *action = orch_action_ref(row->action);
	int32_t r = 0;
	if (row->state_before == ORCH_ACTION_HANDED_OVER) {
		row->decision = waits;
	} else {
		struct turn turn = {.opts = opts, .action = action, .state = row->state_before};
		turn.sequence = action_sequence(action);
		r = decide_and_take(journal, row, &turn, reterr);
		free(turn.reply.result);
	}
	/* After the record: a kill in between is why it is told again by the next recovery. */
	if (r == 0 && opts->hand_over &&
	    orch_action_state(row->action) == ORCH_ACTION_HANDED_OVER) {
		opts->hand_over(opts->userdata, row->action);
		r = refresh(journal, row, reterr);
	}
	orch_action_unref(action);
	return r;
}

static int32_t recover_all(orch_journal *journal, const struct orch_recover_opts *opts,
			   const uint64_t *ids, size_t count, orch_recovery *recovery,
			   orch_error **reterr)
{
	for (size_t i = 0; i < count; i++) {
		struct action_row loaded;
		int32_t r = load(journal, ids[i], &loaded, reterr);
		if (r < 0)
			return r;
		if (!still_open(journal, &loaded)) {
			action_row_clear(&loaded);
			continue;
		}
		struct recovery_row *row = &recovery->rows[recovery->count];
		row->state_before = loaded.state;
		row->action = action_new(journal, &loaded);
		if (!row->action)
			return orch_fail_memory(reterr);
		recovery->count++;
		r = recover_one(journal, opts, row, reterr);
		if (r < 0)
			return r;
	}
	return write_text(recovery, reterr);
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
	if (known.flags)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_recover_opts.flags has to be 0");
	_cleanup_free_ uint64_t *ids = NULL;
	size_t count = 0;
	store_lock(journal);
	r = store_ids(journal, STATEMENT_OPEN_ACTIONS, known.kind_prefix, &ids, &count, reterr);
	store_unlock(journal);
	if (r < 0)
		return r;
	orch_recovery *recovery = calloc(1, sizeof(*recovery));
	if (recovery && count)
		recovery->rows = calloc(count, sizeof(*recovery->rows));
	if (!recovery || (count && !recovery->rows))
		r = orch_fail_memory(reterr);
	else
		r = recover_all(journal, &known, ids, count, recovery, reterr);
	if (r == 0 && ret_recovery)
		*ret_recovery = recovery;
	else
		orch_recovery_unref(recovery);
	return r;
}

orch_recovery *orch_recovery_unref(orch_recovery *recovery)
{
	if (!recovery)
		return NULL;
	for (uint32_t i = 0; i < recovery->count; i++) {
		orch_action_unref(recovery->rows[i].action);
		free(recovery->rows[i].composed);
	}
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
