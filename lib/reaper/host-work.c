/* SPDX-License-Identifier: Apache-2.0 */
#include "scope-private.h"

/*
 * Work on the host that belongs to a scope. A work lives until the certificate is out, in its scope's list; a
 * settlement as long as somebody may answer, and knows its work only while that lives.
 */

#define WORKS_MAX 64
#define WHAT_MAX 255

struct orch_settlement {
	atomic_uint references;
	orch_ctx *ctx;
	struct host_work *work; /* NULL: too late, or answered */
};

static void work_free(struct host_work *work)
{
	if (work->settlement)
		work->settlement->work = NULL;
	if (work->destroy)
		work->destroy(work->userdata);
	free(work->what);
	free(work->outcome);
	free(work);
}

void host_work_free(struct orch_scope *scope)
{
	struct host_work *work;
	while ((work = scope->works)) {
		scope->works = work->next;
		work_free(work);
	}
}

bool host_work_is_due(const struct orch_scope *scope)
{
	for (const struct host_work *work = scope->works; work; work = work->next)
		if (!work->answered)
			return true;
	return false;
}

/* --- asking --- */

static orch_settlement *settlement_new(struct host_work *work)
{
	orch_settlement *settlement = calloc(1, sizeof(*settlement));
	if (!settlement)
		return NULL;
	atomic_init(&settlement->references, 1);
	settlement->ctx = orch_ctx_ref(work->scope->ctx);
	settlement->work = work;
	work->settlement = settlement;
	return settlement;
}

static void ask(struct host_work *work)
{
	orch_settlement *settlement = settlement_new(work);
	if (!settlement) {
		work->answered = true; /* and not settled: nobody can be asked */
		return;
	}
	work->fn(work->userdata, work->scope, settlement);
	orch_settlement_unref(settlement);
}

void host_work_ask(struct orch_scope *scope)
{
	/* A callback may end the context, and the works with it; then the list is empty. */
	scope->works_asked = true;
	for (;;) {
		struct host_work *work = scope->works;
		while (work && work->asked)
			work = work->next;
		if (!work)
			return;
		work->asked = true;
		ask(work);
	}
}

/* --- answering --- */

orch_settlement *orch_settlement_ref(orch_settlement *settlement)
{
	if (settlement)
		atomic_fetch_add(&settlement->references, 1);
	return settlement;
}

static void answered(orch_settlement *settlement, char *outcome)
{
	struct host_work *work = ORCH_STEAL(settlement->work);
	if (!work) {
		free(outcome);
		return;
	}
	work->settlement = NULL;
	work->outcome = outcome;
	work->answered = true;
	/* The certificate may be told by this: not inside a setter. */
	if (work->scope->certified_us)
		scope_tell_later(work->scope, NULL);
}

static void settlement_release(void *object)
{
	orch_settlement *settlement = object;
	orch_ctx *ctx = settlement->ctx;
	if (!orch_ctx_forked(ctx))
		answered(settlement, NULL);
	free(settlement);
	orch_ctx_unref(ctx);
}

orch_settlement *orch_settlement_unref(orch_settlement *settlement)
{
	if (settlement && atomic_fetch_sub(&settlement->references, 1) == 1)
		orch_ctx_destroy_later(settlement->ctx, settlement_release, settlement);
	return NULL;
}

int32_t orch_settlement_done(orch_settlement *settlement, const char *outcome, orch_error **reterr)
{
	if (!settlement || !outcome)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the %s is NULL",
				 settlement ? "outcome" : "settlement");
	int32_t code = orch_ctx_check(settlement->ctx, reterr);
	if (code < 0)
		return code;
	if (!settlement->work)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the settlement was answered before, or its scope's certificate is out");
	char *copy = strdup(outcome);
	if (!copy)
		return orch_fail_memory(reterr);
	answered(settlement, copy);
	return 0;
}

/* --- registering --- */

static int32_t check_work(orch_scope *scope, const char *what, bool has_fn, orch_error **reterr)
{
	unsigned count = 0;
	int32_t code = scope_check(scope, reterr);
	if (code < 0)
		return code;
	if (!what || !what[0] || strlen(what) > WHAT_MAX)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "what the work is has to be told in 1 to %d bytes", WHAT_MAX);
	if (!has_fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	if (scope->stopping || scope->phase == SCOPE_OVER)
		return orch_fail(reterr, ORCH_ECLOSED, 0, NULL,
				 "the end of scope %s has begun: %s can not be part of it any more",
				 scope->name, what);
	for (const struct host_work *work = scope->works; work; work = work->next)
		count++;
	return count < WORKS_MAX ? 0
				 : orch_fail(reterr, ORCH_EBUSY, 0, NULL,
					     "scope %s has %d pieces of work on the host already",
					     scope->name, WORKS_MAX);
}

int32_t orch_scope_add_work(orch_scope *scope, const char *what, orch_settle_fn fn, void *userdata,
			    orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = check_work(scope, what, fn != NULL, reterr);
	struct host_work *work = code == 0 ? calloc(1, sizeof(*work)) : NULL;
	if (code == 0 && (!work || !(work->what = strdup(what))))
		code = orch_fail_memory(reterr);
	if (code < 0) {
		free(work);
		if (destroy)
			destroy(userdata);
		return code;
	}
	work->scope = scope;
	work->fn = fn;
	work->userdata = userdata;
	work->destroy = destroy;
	struct host_work **link = &scope->works;
	while (*link)
		link = &(*link)->next;
	*link = work;
	return 0;
}
