/* SPDX-License-Identifier: Apache-2.0 */
/* remind JOURNAL [NAME SECONDS]: sets a reminder, and tells all when they are due; killed, it tells them later. */
#include <stdio.h>
#include <stdlib.h>

#include <orch/timer.h>

static void due(void *ctx, orch_timer *timer)
{
	printf("%s, round %u\n", orch_timer_name(timer), (unsigned)orch_timer_round(timer));
	orch_timer_done(timer, NULL); /* until this it is due again after a restart */
	orch_ctx_quit(ctx);
}

int main(int argc, char **argv)
{
	struct orch_journal_opts opts = {.size = sizeof(opts), .path = argv[1]};
	struct orch_timer_opts reminder = {.size = sizeof(reminder), .name = argc > 2 ? argv[2] : NULL};
	orch_ctx *ctx = NULL;
	orch_journal *journal = NULL;
	orch_timer_watch *watch = NULL;
	orch_timer *next = NULL;
	int64_t wait_ms;

	int32_t r = argc > 1 ? orch_journal_open(&opts, &journal, NULL) : ORCH_EINVAL;
	if (r == 0 && argc > 3) {
		reminder.delay_ms = atol(argv[3]) * 1000;
		r = orch_timer_set(journal, &reminder, NULL, NULL);
	}
	r = r < 0 ? r : orch_ctx_new(NULL, &ctx, NULL);
	r = r < 0 ? r : orch_timer_watch_new(journal, ctx, due, ctx, NULL, &watch, NULL);
	while (r == 0 && !(r = orch_timer_next(journal, &next, &wait_ms, NULL)) && next) {
		next = orch_timer_unref(next);
		r = orch_ctx_run(ctx, -1, NULL); /* until one was due */
	}
	orch_timer_watch_unref(watch);
	orch_ctx_unref(ctx);
	orch_journal_unref(journal);
	return r < 0;
}
