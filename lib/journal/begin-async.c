/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* The callback forms of begin and record. */

/* A call that could not be made ends here: its callback does not come, its destroy does. */
static int32_t refuse(int32_t code, void *userdata, orch_destroy_fn destroy)
{
	if (destroy)
		destroy(userdata);
	return code;
}

/* --- begin
 * ------------------------------------------------------------------------------------------------ */

struct begin_call {
	struct call call;
	struct begin begin;
	orch_begin_fn fn;
	orch_action *action; /* made before, so that what is recorded can be told */
};

static void begin_answer(struct call *call)
{
	struct begin_call *asked = (struct begin_call *)call;
	struct ticket *ticket = &call->ticket;
	if (ticket->code == 0)
		ticket->code = begin_refusal(&asked->begin, &ticket->error);
	if (ticket->code < 0) {
		bool conflict = asked->begin.outcome == ORCH_BEGIN_CONFLICT &&
				ticket->code == ORCH_ECONFLICT;
		asked->fn(call->userdata, conflict ? ORCH_BEGIN_CONFLICT : 0, NULL, ticket->error);
		return;
	}
	orch_action *action = ORCH_STEAL(asked->action);
	struct action_row row = begin_take_row(&asked->begin);
	action_fill(action, call->journal, &row);
	asked->fn(call->userdata, asked->begin.outcome, action, NULL);
	orch_action_unref(action);
}

static void begin_call_clear(struct call *call)
{
	struct begin_call *asked = (struct begin_call *)call;
	begin_clear(&asked->begin);
	free(asked->action);
}

static const struct call_kind begin_kind = {.answer = begin_answer, .clear = begin_call_clear};

static int32_t begin_async(orch_journal *journal, orch_ctx *ctx,
			   const struct orch_action_opts *opts, orch_begin_fn fn, void *userdata,
			   orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t r = call_check(journal, ctx, fn != NULL, reterr);
	if (r < 0)
		return r;
	struct begin_call *asked = calloc(1, sizeof(*asked));
	if (!asked || !(asked->action = action_reserve())) {
		free(asked);
		return orch_fail_memory(reterr);
	}
	r = begin_prepare(journal, opts, &asked->begin, reterr);
	if (r == 0) {
		asked->fn = fn;
		asked->call.ticket.request = &asked->begin.request;
		asked->call.kind = &begin_kind;
		asked->call.userdata = userdata;
		asked->call.destroy = destroy;
		r = call_submit(&asked->call, journal, ctx, reterr);
	}
	if (r < 0) {
		begin_call_clear(&asked->call);
		free(asked);
	}
	return r;
}

int32_t orch_journal_begin_async(orch_journal *journal, orch_ctx *ctx,
				 const struct orch_action_opts *opts, orch_begin_fn fn,
				 void *userdata, orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t r = begin_async(journal, ctx, opts, fn, userdata, destroy, reterr);
	return r < 0 ? refuse(r, userdata, destroy) : r;
}

/* --- record
 * ----------------------------------------------------------------------------------------------- */

struct record_call {
	struct call call;
	struct record record;
	orch_recorded_fn fn;
};

static void record_answer(struct call *call)
{
	struct record_call *asked = (struct record_call *)call;
	int32_t fresh = call->ticket.code == 0 && !asked->record.is_found;
	asked->fn(call->userdata, fresh, call->ticket.error);
}

static void record_call_clear(struct call *call)
{
	action_row_clear(&((struct record_call *)call)->record.row);
}

static const struct call_kind record_kind = {.answer = record_answer, .clear = record_call_clear};

static int32_t record_async(orch_journal *journal, orch_ctx *ctx, const char *kind, const char *key,
			    const void *payload, size_t payload_length, orch_recorded_fn fn,
			    void *userdata, orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t r = call_check(journal, ctx, fn != NULL, reterr);
	if (r < 0)
		return r;
	struct record_call *asked = calloc(1, sizeof(*asked));
	if (!asked)
		return orch_fail_memory(reterr);
	r = record_prepare(journal, kind, key, payload, payload_length, &asked->record, reterr);
	if (r == 0) {
		asked->fn = fn;
		asked->call.ticket.request = &asked->record.request;
		asked->call.kind = &record_kind;
		asked->call.userdata = userdata;
		asked->call.destroy = destroy;
		r = call_submit(&asked->call, journal, ctx, reterr);
	}
	if (r < 0) {
		record_call_clear(&asked->call);
		free(asked);
	}
	return r;
}

int32_t orch_journal_record_async(orch_journal *journal, orch_ctx *ctx, const char *kind,
				  const char *key, const void *payload, size_t payload_length,
				  orch_recorded_fn fn, void *userdata, orch_destroy_fn destroy,
				  orch_error **reterr)
{
	int32_t r = record_async(journal, ctx, kind, key, payload, payload_length, fn, userdata,
				 destroy, reterr);
	return r < 0 ? refuse(r, userdata, destroy) : r;
}
