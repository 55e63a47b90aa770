/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes that were started before anybody asked. Those of a pool have no receiver of the host's until they are taken,
 * so nothing here calls back, and starting one is allowed in any call.
 */
#include "sandbox-private.h"

#define MOST_READY 256u
/* As many set-ups run at a time: `ready` at once would take the processors from everybody else. */
#define AT_ONCE 2u
/* What is taken is used at once, and a set-up beside it would make it slower. */
#define REFILL_MS 5
/* Those that die before they are taken are no reason for a loop of starts. */
#define RECOVER_MS 1000

struct orch_sandbox_pool {
	atomic_uint references;
	orch_ctx *ctx;
	orch_sandbox *pattern; /* the pool's own, never started */
	orch_source *timer;    /* of the next start */
	bool armed;
	orch_error *failure; /* of the last start; none is begun until somebody was told, or asks anew */
	bool lost;  /* a helper died with starts in it */
	bool again; /* they are tried again, once: it may be the start that kills it */
	orch_sandbox *starting[AT_ONCE];
	uint32_t starting_count;
	uint32_t earlier_count; /* the first of them: begun before somebody began to wait, whom their failure is not told */
	orch_sandbox **ready; /* the oldest first */
	uint32_t ready_count, wanted;
};

/* --- starting ------------------------------------------------------------------------------- */

static void remember_failure(orch_sandbox_pool *pool, orch_error *error)
{
	orch_error_free(pool->failure);
	pool->failure = error;
	if (!pool->failure)
		orch_fail_memory(&pool->failure);
}

static void forget_failure(orch_sandbox_pool *pool)
{
	orch_error_free(ORCH_STEAL(pool->failure));
}

static void arm(orch_sandbox_pool *pool, int64_t delay_ms)
{
	if (!pool->armed)
		orch_source_timer_set(pool->timer, delay_ms);
	pool->armed = true;
}

static void remove_at(orch_sandbox **list, uint32_t *count, uint32_t index)
{
	memmove(&list[index], &list[index + 1], (--*count - index) * sizeof(list[0]));
}

/* Leaves the pool: the reference is the caller's. */
static orch_sandbox *remove_ready(orch_sandbox_pool *pool, uint32_t index)
{
	orch_sandbox *sandbox = pool->ready[index];

	remove_at(pool->ready, &pool->ready_count, index);
	sandbox->pool = NULL;
	return sandbox;
}

/* Of one that nobody took, or no more. */
static void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	struct sandbox_link *link = userdata;
	orch_sandbox_pool *pool = link->sandbox ? link->sandbox->pool : NULL;

	(void)scope, (void)death;
	for (uint32_t i = 0; pool && i < pool->ready_count; i++)
		if (pool->ready[i] == link->sandbox) {
			orch_sandbox_unref(remove_ready(pool, i));
			arm(pool, RECOVER_MS);
			return;
		}
}

static int32_t watch(orch_sandbox *sandbox, orch_error **reterr)
{
	return orch_scope_on_death(sandbox->scope, on_death, orch_sandbox_link_ref(sandbox->link),
				   orch_sandbox_link_release, reterr);
}

static void fill(orch_sandbox_pool *pool);

static void on_started(void *userdata, orch_sandbox *sandbox, const orch_error *error)
{
	orch_sandbox_pool *pool = userdata;
	orch_error *own = NULL;
	bool earlier = false;

	for (uint32_t i = 0; i < pool->starting_count; i++)
		if (pool->starting[i] == sandbox) {
			earlier = i < pool->earlier_count;
			pool->earlier_count -= earlier;
			remove_at(pool->starting, &pool->starting_count, i);
			break;
		}
	if (error && orch_error_code(error) == ORCH_EHELPER && !pool->again) {
		pool->lost = true;
		arm(pool, RECOVER_MS);
		orch_sandbox_unref(sandbox);
		return;
	}
	if (error && earlier) {
		orch_sandbox_unref(sandbox);
		fill(pool);
		return;
	}
	if (error || watch(sandbox, &own) < 0) {
		remember_failure(pool, error ? orch_error_copy(error) : own);
		orch_sandbox_unref(sandbox);
		return;
	}
	sandbox->pool = pool;
	pool->ready[pool->ready_count++] = sandbox;
	pool->again = false;
	forget_failure(pool);
	fill(pool);
}

static void start_one(orch_sandbox_pool *pool)
{
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	int32_t code = orch_sandbox_copy(pool->pattern, &sandbox, &error);

	if (code == 0)
		code = orch_sandbox_start(sandbox, on_started, pool, NULL, &error);
	if (code == 0) {
		pool->starting[pool->starting_count++] = sandbox;
		return;
	}
	remember_failure(pool, error);
	orch_sandbox_unref(sandbox);
}

static void fill(orch_sandbox_pool *pool)
{
	pool->again = pool->again || pool->lost;
	pool->lost = false;
	while (!pool->failure && pool->starting_count < AT_ONCE &&
	       pool->starting_count + pool->ready_count < pool->wanted)
		start_one(pool);
}

static void on_timer(void *userdata)
{
	orch_sandbox_pool *pool = userdata;

	pool->armed = false;
	fill(pool);
}

/* --- life ----------------------------------------------------------------------------------- */

static void pool_destroy(void *object)
{
	orch_sandbox_pool *pool = object;
	orch_ctx *ctx = pool->ctx;

	orch_source_remove(pool->timer);
	for (uint32_t i = 0; i < pool->starting_count; i++) {
		pool->starting[i]->start_fn = NULL;
		orch_sandbox_unref(pool->starting[i]);
	}
	while (pool->ready_count > 0)
		orch_sandbox_unref(remove_ready(pool, pool->ready_count - 1));
	orch_sandbox_unref(pool->pattern);
	orch_error_free(pool->failure);
	free(pool->ready);
	free(pool);
	orch_ctx_unref(ctx);
}

static int32_t check_pattern(const orch_sandbox *pattern, orch_error **reterr)
{
	if (pattern->state != SANDBOX_NEW)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the pattern was started: a pool needs one that never was");
	for (size_t i = 0; i < pattern->path_count; i++)
		if (pattern->paths[i].access & ORCH_PATH_OWN)
			return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
					 "%s is ORCH_PATH_OWN in the pattern, and a folder has one owner: give an overlay, "
					 "or a path with ORCH_PATH_READ",
					 pattern->paths[i].host);
	return 0;
}

static int32_t fill_in(orch_sandbox_pool *pool, const orch_sandbox *pattern, orch_error **reterr)
{
	pool->ready = calloc(pool->wanted, sizeof(orch_sandbox *));
	if (!pool->ready)
		return orch_fail_memory(reterr);
	int32_t code = orch_sandbox_copy(pattern, &pool->pattern, reterr);

	return code < 0 ? code : orch_source_timer(pool->ctx, -1, on_timer, pool, &pool->timer, reterr);
}

int32_t orch_sandbox_pool_new(orch_sandbox *pattern, uint32_t ready, orch_sandbox_pool **ret_pool,
			      orch_error **reterr)
{
	if (!pattern || !ret_pool)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL",
				 pattern ? "ret_pool" : "the pattern");
	int32_t code = orch_ctx_check(pattern->ctx, reterr);

	if (code == 0 && (ready == 0 || ready > MOST_READY))
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ready is %u, not 1 to %u", ready, MOST_READY);
	if (code == 0)
		code = check_pattern(pattern, reterr);
	if (code < 0)
		return code;
	orch_sandbox_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return orch_fail_memory(reterr);
	atomic_init(&pool->references, 1);
	pool->ctx = orch_ctx_ref(pattern->ctx);
	pool->wanted = ready;
	code = fill_in(pool, pattern, reterr);
	if (code < 0) {
		pool_destroy(pool);
		return code;
	}
	fill(pool);
	*ret_pool = pool;
	return 0;
}

orch_sandbox_pool *orch_sandbox_pool_ref(orch_sandbox_pool *pool)
{
	if (pool)
		atomic_fetch_add(&pool->references, 1);
	return pool;
}

orch_sandbox_pool *orch_sandbox_pool_unref(orch_sandbox_pool *pool)
{
	if (pool && atomic_fetch_sub(&pool->references, 1) == 1)
		orch_ctx_destroy_later(pool->ctx, pool_destroy, pool);
	return NULL;
}

/* --- taking --------------------------------------------------------------------------------- */

static int32_t check_take(orch_sandbox_pool *pool, orch_sandbox **ret_sandbox, orch_error **reterr)
{
	if (!pool || !ret_sandbox)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL", pool ? "ret_sandbox" : "the pool");
	return orch_ctx_check(pool->ctx, reterr);
}

/* What the loop was not told of yet: a sandbox whose helper or init was killed is not handed out. */
static void drop_dead(orch_sandbox_pool *pool)
{
	for (uint32_t i = pool->ready_count; i-- > 0;)
		if (!orch_scope_stands(pool->ready[i]->scope))
			orch_sandbox_unref(remove_ready(pool, i));
}

static void hand_out(orch_sandbox_pool *pool, orch_sandbox **ret_sandbox)
{
	*ret_sandbox = remove_ready(pool, 0);
	forget_failure(pool);
	arm(pool, REFILL_MS);
}

static int32_t fail_start(orch_sandbox_pool *pool, orch_error **reterr)
{
	int32_t code = orch_error_code(pool->failure);

	if (reterr)
		*reterr = ORCH_STEAL(pool->failure);
	forget_failure(pool);
	return code;
}

int32_t orch_sandbox_pool_take(orch_sandbox_pool *pool, orch_sandbox **ret_sandbox, orch_error **reterr)
{
	int32_t code = check_take(pool, ret_sandbox, reterr);

	if (code < 0)
		return code;
	drop_dead(pool);
	if (pool->ready_count > 0) {
		hand_out(pool, ret_sandbox);
		return 0;
	}
	if (pool->failure)
		return fail_start(pool, reterr);
	fill(pool);
	return orch_fail(reterr, ORCH_EBUSY, 0, NULL, "no sandbox of the pool is ready: run the context, or wait for one");
}

static bool is_decided(void *userdata)
{
	orch_sandbox_pool *pool = userdata;

	drop_dead(pool);
	if (pool->ready_count == 0)
		fill(pool);
	return pool->ready_count > 0 || pool->failure;
}

static bool at_once(void *userdata)
{
	(void)userdata;
	return true;
}

int32_t orch_sandbox_pool_take_wait(orch_sandbox_pool *pool, int64_t timeout_ms, orch_sandbox **ret_sandbox,
				    orch_error **reterr)
{
	int32_t code = check_take(pool, ret_sandbox, reterr);

	if (code == 0)
		code = orch_ctx_wait(pool->ctx, 0, at_once, NULL, reterr);
	if (code < 0)
		return code;
	orch_sandbox_pool_ref(pool);
	/* Who waits is told how it goes now. */
	forget_failure(pool);
	pool->earlier_count = pool->starting_count;
	code = orch_ctx_wait(pool->ctx, timeout_ms, is_decided, pool, reterr);
	if (code == 0 && pool->ready_count > 0)
		hand_out(pool, ret_sandbox);
	else if (code == 0)
		code = fail_start(pool, reterr);
	orch_sandbox_pool_unref(pool);
	return code;
}

uint32_t orch_sandbox_pool_ready(const orch_sandbox_pool *pool)
{
	uint32_t standing = 0;

	for (uint32_t i = 0; pool && !orch_ctx_forked(pool->ctx) && i < pool->ready_count; i++)
		standing += orch_scope_stands(pool->ready[i]->scope);
	return standing;
}
