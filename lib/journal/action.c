/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

struct orch_action {
	atomic_uint references;
	orch_journal *journal;
	struct action_row row;
	struct body *former; /* results that were replaced: whoever read them may still hold them */
	/* Under the writer's lock. */
	atomic_bool moving; /* a move was queued: it holds a reference, and no other move may begin */
	bool orphan;	    /* the move has the last one, and the journal is not referenced any more */
};

#define STATE_BIT(state) (1u << (state))

orch_action *action_reserve(void)
{
	return calloc(1, sizeof(orch_action));
}

void action_fill(orch_action *action, orch_journal *journal, struct action_row *row)
{
	atomic_init(&action->references, 1);
	action->journal = orch_journal_ref(journal);
	action->row = *row;
	action->row.request_changed = action->row.result_changed = false;
}

orch_action *action_new(orch_journal *journal, struct action_row *row)
{
	orch_action *action = action_reserve();
	if (action)
		action_fill(action, journal, row);
	else
		action_row_clear(row);
	return action;
}

orch_action *orch_action_ref(orch_action *action)
{
	if (action)
		atomic_fetch_add(&action->references, 1);
	return action;
}

static void action_free(orch_action *action)
{
	while (action->former) {
		struct body *next = action->former->next;
		free(action->former);
		action->former = next;
	}
	action_row_clear(&action->row);
	free(action);
}

/*
 * A queued move keeps the action, but must not keep the journal: it is closed with the last reference of the host.
 * True if only the move is left.
 */
static bool leave_to_move(orch_action *action)
{
	if (!action->moving || action->journal->pid != getpid())
		return false;
	orch_journal *journal = action->journal;
	pthread_mutex_lock(&journal->writer.mutex);
	bool left = action->moving && atomic_load(&action->references) == 2;
	if (left) {
		action->orphan = true;
		atomic_fetch_sub(&action->references, 1);
	}
	pthread_mutex_unlock(&journal->writer.mutex);
	if (left)
		orch_journal_unref(journal);
	return left;
}

orch_action *orch_action_unref(orch_action *action)
{
	if (!action || leave_to_move(action) || atomic_fetch_sub(&action->references, 1) != 1)
		return NULL;
	orch_journal *journal = action->orphan ? NULL : action->journal;
	action_free(action);
	orch_journal_unref(journal);
	return NULL;
}

const char *orch_action_state_name(uint32_t state)
{
	switch (state) {
	case ORCH_ACTION_INTENT:
		return "INTENT";
	case ORCH_ACTION_DISPATCHED:
		return "DISPATCHED";
	case ORCH_ACTION_OBSERVED:
		return "OBSERVED";
	case ORCH_ACTION_CONFIRMED:
		return "CONFIRMED";
	case ORCH_ACTION_FAILED:
		return "FAILED";
	case ORCH_ACTION_UNKNOWN:
		return "UNKNOWN";
	case ORCH_ACTION_HANDED_OVER:
		return "HANDED_OVER";
	case ORCH_ACTION_ABANDONED:
		return "ABANDONED";
	default:
		return "?";
	}
}

/* --- transitions
 * -------------------------------------------------------------------------------------- */

/* What each state may be reached from. OBSERVED and CONFIRMED are final but for the one step
 * between. */
static uint32_t sources_of(uint32_t state)
{
	const uint32_t intent = STATE_BIT(ORCH_ACTION_INTENT);
	const uint32_t dispatched = STATE_BIT(ORCH_ACTION_DISPATCHED);
	const uint32_t failed = STATE_BIT(ORCH_ACTION_FAILED);
	const uint32_t unknown = STATE_BIT(ORCH_ACTION_UNKNOWN);
	const uint32_t handed_over = STATE_BIT(ORCH_ACTION_HANDED_OVER);
	switch (state) {
	case ORCH_ACTION_DISPATCHED:
		return intent;
	case ORCH_ACTION_OBSERVED: /* late answers, and what a person found out, count */
		return dispatched | unknown | handed_over;
	case ORCH_ACTION_CONFIRMED:
		return STATE_BIT(ORCH_ACTION_OBSERVED);
	case ORCH_ACTION_FAILED:
		return intent | dispatched | unknown | handed_over;
	case ORCH_ACTION_UNKNOWN:
		return dispatched;
	case ORCH_ACTION_HANDED_OVER:
		return intent | dispatched | unknown | failed;
	case ORCH_ACTION_ABANDONED:
		return intent | dispatched | unknown | failed | handed_over;
	default:
		return 0;
	}
}

struct transition {
	struct request request;
	struct action_row next;
	struct expectation expected;
	bool sets_result;
	uint32_t decision; /* ORCH_DECISION_*, and who took it; 0: nobody did */
	const char *by;
};

/* True for the states that come with a payload. */
static bool sets_result(uint32_t state)
{
	return state != ORCH_ACTION_DISPATCHED && state != ORCH_ACTION_CONFIRMED;
}

static int32_t transition_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct transition *transition = (struct transition *)request;
	const struct action_row *next = &transition->next;
	if (!(sources_of(next->state) & STATE_BIT(transition->expected.state)))
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "action %s is %s: it cannot become %s", next->key,
				 orch_action_state_name(transition->expected.state),
				 orch_action_state_name(next->state));
	if (next->state == ORCH_ACTION_DISPATCHED && !store_headroom_take(journal))
		return orch_fail(
			reterr, ORCH_ENOSPC, 0, "headroom",
			"%s: the disk has no room left for the outcome, so nothing is dispatched: "
			"free some",
			journal->path);
	return chain_put_action(journal, &transition->next, &transition->expected,
				orch_realtime_ms(), reterr);
}

/* Checks what can be checked outside the transaction, and copies the payload. */
static int32_t transition_prepare(orch_action *action, uint32_t state, const void *result,
				  size_t length, struct transition *transition, orch_error **reterr)
{
	if (!action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the action is NULL");
	if (length && !result)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the payload is NULL with a length of %zu", length);
	orch_journal *journal = action->journal;
	int32_t r = store_check_writable(journal, reterr);
	if (r < 0)
		return r;
	if (action->moving)
		return orch_fail(reterr, ORCH_EBUSY, 0, NULL,
				 "a move of action %s was queued and is not answered yet: wait for "
				 "its callback",
				 action->row.key);
	*transition = (struct transition){
		.request = {.write = transition_write,
			    .completes = state != ORCH_ACTION_DISPATCHED},
		.next = action->row,
		/* With the sequence: a handle must not bring back what was pruned under it. */
		.expected = {action->row.state, action->row.attempt, action->row.generation,
			     action->row.sequence},
		.sets_result = sets_result(state),
	};
	transition->next.state = state;
	if (!transition->sets_result)
		return 0;
	if (!payload_set(&transition->next.result, result, length, journal->payload_limit))
		return orch_fail_memory(reterr);
	transition->next.result_changed = true;
	transition->request.result = &transition->next.result;
	transition->request.bytes = length;
	return 0;
}

/* After the commit, or with `failed` instead of it. */
static void transition_settle(orch_action *action, struct transition *transition, bool failed)
{
	if (failed) {
		if (transition->sets_result)
			payload_clear(&transition->next.result);
		return;
	}
	struct body *former = transition->sets_result ? action->row.result.body : NULL;
	if (former) {
		former->next = action->former;
		action->former = former;
	}
	transition->next.result_changed = false;
	action->row = transition->next;
}

static int32_t transition(orch_action *action, uint32_t state, const void *result, size_t length,
			  orch_error **reterr)
{
	struct transition transition;
	int32_t r = transition_prepare(action, state, result, length, &transition, reterr);
	if (r < 0)
		return r;
	r = chain_run(action->journal, &transition.request, reterr);
	transition_settle(action, &transition, r < 0);
	return r;
}

int32_t orch_action_dispatch(orch_action *action, orch_error **reterr)
{
	return transition(action, ORCH_ACTION_DISPATCHED, NULL, 0, reterr);
}

int32_t orch_action_observe(orch_action *action, const void *result, size_t length,
			    orch_error **reterr)
{
	return transition(action, ORCH_ACTION_OBSERVED, result, length, reterr);
}

int32_t orch_action_confirm(orch_action *action, orch_error **reterr)
{
	return transition(action, ORCH_ACTION_CONFIRMED, NULL, 0, reterr);
}

int32_t orch_action_fail(orch_action *action, const void *reason, size_t length,
			 orch_error **reterr)
{
	return transition(action, ORCH_ACTION_FAILED, reason, length, reterr);
}

int32_t orch_action_unknown(orch_action *action, const void *reason, size_t length,
			    orch_error **reterr)
{
	return transition(action, ORCH_ACTION_UNKNOWN, reason, length, reterr);
}

int32_t orch_action_hand_over(orch_action *action, const void *reason, size_t length,
			      orch_error **reterr)
{
	return transition(action, ORCH_ACTION_HANDED_OVER, reason, length, reterr);
}

int32_t orch_action_abandon(orch_action *action, const void *reason, size_t length,
			    orch_error **reterr)
{
	return transition(action, ORCH_ACTION_ABANDONED, reason, length, reterr);
}

/* --- the callback form
 * ------------------------------------------------------------------------------------- */

struct move_call {
	struct call call;
	struct transition transition;
	orch_action *action; /* referenced */
	orch_move_fn fn;
};

static void move_settle(struct call *call, bool alive)
{
	orch_action *action = ((struct move_call *)call)->action;
	action->moving = false;
	if (action->orphan && alive) {
		orch_journal_ref(action->journal);
		action->orphan = false;
	}
}

static void move_answer(struct call *call)
{
	struct move_call *move = (struct move_call *)call;
	transition_settle(move->action, &move->transition, call->ticket.code < 0);
	move->transition.sets_result = false; /* it is the action's now, or freed */
	move->fn(call->userdata, move->action, call->ticket.error);
}

static void move_clear(struct call *call)
{
	struct move_call *move = (struct move_call *)call;
	transition_settle(move->action, &move->transition, true);
	orch_action_unref(move->action);
}

static const struct call_kind move_kind = {
	.settle = move_settle, .answer = move_answer, .clear = move_clear};

static int32_t move_async(orch_action *action, orch_ctx *ctx, uint32_t state, const void *payload,
			  size_t length, orch_move_fn fn, void *userdata, orch_destroy_fn destroy,
			  orch_error **reterr)
{
	if (!action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the action is NULL");
	int32_t r = call_check(action->journal, ctx, fn != NULL, reterr);
	if (r < 0)
		return r;
	if (!sources_of(state))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "%u is not an ORCH_ACTION_* that an action can become", state);
	if ((payload || length) && !sets_result(state))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "an action becomes %s without a payload",
				 orch_action_state_name(state));
	struct move_call *move = calloc(1, sizeof(*move));
	if (!move)
		return orch_fail_memory(reterr);
	r = transition_prepare(action, state, payload, length, &move->transition, reterr);
	if (r < 0) {
		free(move);
		return r;
	}
	move->action = orch_action_ref(action);
	move->fn = fn;
	move->call.ticket.request = &move->transition.request;
	move->call.kind = &move_kind;
	move->call.userdata = userdata;
	move->call.destroy = destroy;
	action->moving = true;
	r = call_submit(&move->call, action->journal, ctx, reterr);
	if (r < 0) {
		action->moving = false;
		move_clear(&move->call);
		free(move);
	}
	return r;
}

int32_t orch_action_move_async(orch_action *action, orch_ctx *ctx, uint32_t state,
			       const void *payload, size_t length, orch_move_fn fn, void *userdata,
			       orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t r = move_async(action, ctx, state, payload, length, fn, userdata, destroy, reterr);
	if (r < 0 && destroy)
		destroy(userdata);
	return r;
}

/* --- what a person found out
 * -------------------------------------------------------------------------- */

static uint32_t reached_by(uint32_t decision)
{
	switch (decision) {
	case ORCH_DECISION_APPLIED: /* and from there CONFIRMED, in the same transaction */
		return ORCH_ACTION_OBSERVED;
	case ORCH_DECISION_NOT_APPLIED:
		return ORCH_ACTION_FAILED;
	case ORCH_DECISION_ABANDON:
		return ORCH_ACTION_ABANDONED;
	default:
		return 0;
	}
}

static int32_t decide_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct transition *transition = (struct transition *)request;
	struct action_row *row = &transition->next;
	uint32_t from = transition->expected.state;
	if (from != ORCH_ACTION_HANDED_OVER && from != ORCH_ACTION_UNKNOWN)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "action %s is %s: there is nothing for a person to decide, that is "
				 "for HANDED_OVER and UNKNOWN",
				 row->key, orch_action_state_name(from));
	row->state = reached_by(transition->decision);
	row->result_changed = true;
	int32_t r = decision_put(journal, row, transition->decision, transition->by, reterr);
	if (r == 0)
		r = chain_put_action(journal, row, &transition->expected, orch_realtime_ms(),
				     reterr);
	if (r < 0 || transition->decision != ORCH_DECISION_APPLIED)
		return r;
	struct expectation observed = {row->state, row->attempt, row->generation};
	row->state = ORCH_ACTION_CONFIRMED;
	row->result_changed = false;
	return chain_put_action(journal, row, &observed, orch_realtime_ms(), reterr);
}

int32_t orch_action_decide(orch_action *action, uint32_t decision, const char *by, const void *note,
			   size_t length, orch_error **reterr)
{
	struct transition transition;
	if (!action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the action is NULL");
	if (!reached_by(decision))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%u is not an ORCH_DECISION_*",
				 decision);
	if (!key_is_valid(by))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "who decided about %s is not told in 1 to %d bytes of UTF-8",
				 action->row.key, KEY_MAX);
	int32_t r = transition_prepare(action, reached_by(decision), note, length, &transition,
				       reterr);
	if (r < 0)
		return r;
	transition.request.write = decide_write;
	transition.decision = decision;
	transition.by = by;
	r = chain_run(action->journal, &transition.request, reterr);
	transition_settle(action, &transition, r < 0);
	return r;
}

uint32_t orch_action_decision(const orch_action *action, const char **ret_by, int64_t *ret_at_ms)
{
	if (!action || !action->row.decided)
		return 0;
	if (ret_by)
		*ret_by = action->row.decided_by;
	if (ret_at_ms)
		*ret_at_ms = action->row.decided_at_ms;
	return action->row.decided;
}

/* --- what a probe found out
 * --------------------------------------------------------------------------- */

static int32_t resolve_unknown(orch_action *action, const void *result, size_t length,
			       orch_error **reterr)
{
	static const char reason[] = "the outcome could not be found out";
	if (!length) {
		result = reason;
		length = sizeof(reason) - 1;
	}
	switch (action->row.policy) {
	case ORCH_POLICY_REPEATABLE:
		return orch_action_fail(action, result, length, reterr);
	case ORCH_POLICY_PROBE_FIRST:
		if (action->row.state == ORCH_ACTION_UNKNOWN)
			return store_check_writable(action->journal, reterr);
		return orch_action_unknown(action, result, length, reterr);
	default:
		return orch_action_hand_over(action, result, length, reterr);
	}
}

int32_t orch_action_resolve(orch_action *action, uint32_t outcome, const void *result,
			    size_t length, orch_error **reterr)
{
	if (!action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the action is NULL");
	if (length && !result)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the payload is NULL with a length of %zu", length);
	int32_t r = store_check_writable(action->journal, reterr);
	if (r < 0)
		return r;
	if (action->row.state != ORCH_ACTION_DISPATCHED && action->row.state != ORCH_ACTION_UNKNOWN)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "action %s is %s: there is nothing to resolve", action->row.key,
				 orch_action_state_name(action->row.state));
	switch (outcome) {
	case ORCH_OUTCOME_APPLIED:
		r = orch_action_observe(action, result, length, reterr);
		return r < 0 ? r : orch_action_confirm(action, reterr);
	case ORCH_OUTCOME_NOT_APPLIED:
		return orch_action_fail(action, result, length, reterr);
	case ORCH_OUTCOME_IN_FLIGHT:
		return 0;
	case ORCH_OUTCOME_UNKNOWN:
		return resolve_unknown(action, result, length, reterr);
	default:
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%u is not an ORCH_OUTCOME_*",
				 outcome);
	}
}

/* --- getters
 * ------------------------------------------------------------------------------------------ */

uint64_t orch_action_id(const orch_action *action)
{
	return action ? action->row.id : 0;
}

uint64_t action_sequence(const orch_action *action)
{
	return action->row.sequence;
}

const char *orch_action_kind(const orch_action *action)
{
	return action ? action->row.kind : "";
}

const char *orch_action_key(const orch_action *action)
{
	return action ? action->row.key : "";
}

uint32_t orch_action_state(const orch_action *action)
{
	return action ? action->row.state : 0;
}

uint32_t orch_action_policy(const orch_action *action)
{
	return action ? action->row.policy : 0;
}

uint32_t orch_action_attempt(const orch_action *action)
{
	return action ? action->row.attempt : 0;
}

uint64_t orch_action_generation(const orch_action *action)
{
	return action ? action->row.generation : 0;
}

int64_t orch_action_created_at_ms(const orch_action *action)
{
	return action ? action->row.created_at_ms : 0;
}

int32_t orch_action_pruned(const orch_action *action)
{
	return action && action->row.stored & STORED_PRUNED ? 1 : 0;
}

int64_t orch_action_updated_at_ms(const orch_action *action)
{
	return action ? action->row.updated_at_ms : 0;
}

static const void *payload_bytes(const struct payload *payload, size_t *ret_length)
{
	if (ret_length)
		*ret_length = payload && payload->body ? payload->body->length : 0;
	return payload && payload->body ? payload->body->bytes : NULL;
}

const void *orch_action_request(const orch_action *action, size_t *ret_length)
{
	return payload_bytes(action ? &action->row.request : NULL, ret_length);
}

const void *orch_action_result(const orch_action *action, size_t *ret_length)
{
	return payload_bytes(action ? &action->row.result : NULL, ret_length);
}
