/* SPDX-License-Identifier: Apache-2.0 */
/* Many actions in flight: a thread for each that waits, or one loop that is called back. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench-journal.h"

#define TURN_MAX_MS 60000

/* --- threads --- */

struct waiter {
	struct side *side;
	double until;
	int result;
};

static void *wait_for_each(void *userdata)
{
	struct waiter *waiter = userdata;
	do {
		waiter->result = one_action(waiter->side);
	} while (waiter->result == 0 && bench_now() < waiter->until && !bench_stopped());
	return NULL;
}

int turn_threads(struct side *side, double until, uint64_t *ret_count)
{
	struct waiter *waiters = calloc(side->in_flight, sizeof(*waiters));
	pthread_t *threads = calloc(side->in_flight, sizeof(*threads));
	unsigned started = 0;
	int r = waiters && threads ? 0 : bench_fail("out of memory");
	uint64_t before = orch_journal_sequence(side->journal);
	while (r == 0 && started < side->in_flight) {
		waiters[started] = (struct waiter){.side = side, .until = until};
		int os_errno =
			pthread_create(&threads[started], NULL, wait_for_each, &waiters[started]);
		if (os_errno)
			r = bench_fail("thread %u: %s", started, strerror(os_errno));
		else
			started++;
	}
	for (unsigned i = 0; i < started; i++) {
		pthread_join(threads[i], NULL);
		if (waiters[i].result < 0)
			r = -1;
	}
	*ret_count = orch_journal_sequence(side->journal) - before;
	free(waiters);
	free(threads);
	return r;
}

/* --- one loop --- */

struct loop {
	struct side *side;
	double until;
	unsigned flying;
	int result;
};

struct slot {
	struct loop *loop;
	orch_action *action;
};

static void start(struct slot *slot);

static void land(struct slot *slot)
{
	slot->action = orch_action_unref(slot->action);
	if (--slot->loop->flying == 0)
		orch_ctx_quit(slot->loop->side->ctx);
}

static void crash(struct slot *slot, const char *what, const orch_error *error)
{
	bench_fail("%s: %s", what, orch_error_message(error));
	slot->loop->result = -1;
	land(slot);
}

static void move(struct slot *slot, uint32_t state);

static void on_moved(void *userdata, orch_action *action, const orch_error *error)
{
	struct slot *slot = userdata;
	uint32_t state = orch_action_state(action);
	if (error) {
		crash(slot, "move", error);
	} else if (state != ORCH_ACTION_CONFIRMED) {
		move(slot, state == ORCH_ACTION_DISPATCHED ? ORCH_ACTION_OBSERVED
							   : ORCH_ACTION_CONFIRMED);
	} else if (bench_now() < slot->loop->until && slot->loop->result == 0 && !bench_stopped()) {
		slot->action = orch_action_unref(slot->action);
		start(slot);
	} else {
		land(slot);
	}
}

static void move(struct slot *slot, uint32_t state)
{
	char payload[PAYLOAD];
	orch_error *error = NULL;
	size_t length = state == ORCH_ACTION_OBSERVED ? sizeof(payload) : 0;
	memset(payload, 'p', sizeof(payload));
	if (orch_action_move_async(slot->action, slot->loop->side->ctx, state,
				   length ? payload : NULL, length, on_moved, slot, NULL,
				   &error) < 0) {
		crash(slot, "move", error);
		orch_error_free(error);
	}
}

static void on_begun(void *userdata, uint32_t outcome, orch_action *action, const orch_error *error)
{
	struct slot *slot = userdata;
	if (error || outcome != ORCH_BEGIN_FRESH) {
		crash(slot, error ? "begin" : "begun before", error);
		return;
	}
	slot->action = orch_action_ref(action);
	move(slot, ORCH_ACTION_DISPATCHED);
}

static void start(struct slot *slot)
{
	char key[64], payload[PAYLOAD];
	struct side *side = slot->loop->side;
	struct orch_action_opts opts;
	orch_error *error = NULL;
	next_key(side, key, sizeof(key));
	memset(payload, 'p', sizeof(payload));
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "notify.send";
	opts.key = key;
	opts.request = payload;
	opts.request_length = sizeof(payload);
	if (orch_journal_begin_async(side->journal, side->ctx, &opts, on_begun, slot, NULL,
				     &error) < 0) {
		crash(slot, "begin", error);
		orch_error_free(error);
	}
}

int turn_callbacks(struct side *side, double until, uint64_t *ret_count)
{
	struct loop loop = {.side = side, .until = until, .flying = side->in_flight};
	struct slot *slots = calloc(side->in_flight, sizeof(*slots));
	orch_error *error = NULL;
	if (!slots)
		return bench_fail("out of memory");
	if (!side->ctx && orch_ctx_new(NULL, &side->ctx, &error) < 0) {
		free(slots);
		return journal_fail("context", error);
	}
	uint64_t before = orch_journal_sequence(side->journal);
	for (unsigned i = 0; i < side->in_flight; i++) {
		slots[i].loop = &loop;
		start(&slots[i]);
	}
	while (loop.flying && orch_ctx_run(side->ctx, TURN_MAX_MS, &error) == 0)
		;
	*ret_count = orch_journal_sequence(side->journal) - before;
	if (error) {
		/* Callbacks may still come for the slots: they are not freed, and the bench ends. */
		return journal_fail("loop", error);
	}
	free(slots);
	return loop.result;
}
