/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_EXECUTOR_FIXTURE_H
#define TEST_EXECUTOR_FIXTURE_H

/* Attempts that are watched, each in a real sandbox. */

#include "sandbox-fixture.h"

/* --- watching a job --------------------------------------------------------------------------- */

struct watch {
	orch_ctx *ctx;
	orch_job *job;
	char events[16384]; /* "KIND:text\n" */
	unsigned event_count, done_count, destroyed;
	uint32_t end;
	int32_t status;
	char message[2048];
	bool inside_call;
};

static inline void on_event(void *userdata, orch_job *job, uint32_t event, const char *text)
{
	static const char *const names[] = {"?", "TEXT", "TOOL", "RESULT", "OTHER"};
	struct watch *watch = userdata;
	size_t length = strlen(watch->events);

	ck_assert_ptr_nonnull(job);
	watch->event_count++;
	snprintf(watch->events + length, sizeof(watch->events) - length, "%s:%.200s\n", names[event], text);
}

static inline void on_done(void *userdata, orch_job *job, uint32_t end, int32_t status, const char *message)
{
	struct watch *watch = userdata;

	ck_assert_ptr_nonnull(job);
	ck_assert(!watch->inside_call);
	watch->done_count++;
	watch->end = end;
	watch->status = status;
	snprintf(watch->message, sizeof(watch->message), "%s", message);
	orch_ctx_quit(watch->ctx);
}

static inline void on_destroy(void *userdata)
{
	struct watch *watch = userdata;

	watch->destroyed++;
}

static inline void job_opts(struct orch_job_opts *opts, struct watch *watch)
{
	orch_job_opts_init(opts, sizeof(*opts));
	opts->packet = "orch-packet/1 run=r role=executor stage=execute task=T1 attempt=1\nDo it.\n";
	opts->event = on_event;
	opts->done = on_done;
	opts->userdata = watch;
	opts->destroy = on_destroy;
}

/* Runs the loop until the job is done; then it is over for good. */
static inline void wait_done(struct watch *watch)
{
	OK(orch_ctx_run(watch->ctx, 30000, e));
	ck_assert_uint_eq(watch->done_count, 1);
	ck_assert_uint_eq(watch->destroyed, 1);
	watch->job = orch_job_unref(watch->job);
	orch_ctx_run(watch->ctx, 20, NULL);
	ck_assert_uint_eq(watch->done_count, 1);
	ck_assert_uint_eq(watch->destroyed, 1);
}

static inline orch_executor *executor_new(orch_ctx *ctx, uint32_t kind, const char *const *argv, const char *program)
{
	struct orch_executor_opts opts;
	orch_executor *executor = NULL;

	orch_executor_opts_init(&opts, sizeof(opts));
	opts.kind = kind;
	opts.argv = argv;
	opts.program = program;
	OK(orch_executor_new(ctx, &opts, &executor, e));
	ck_assert_uint_eq(orch_executor_kind(executor), kind);
	return executor;
}

static char workspace[96];

static inline orch_sandbox *started_sandbox(orch_ctx *ctx, orch_executor *executor)
{
	orch_sandbox *sandbox = NULL;

	OK(orch_sandbox_new(ctx, NULL, &sandbox, e));
	snprintf(workspace, sizeof(workspace), "%s", new_folder());
	OK(orch_sandbox_set_workspace(sandbox, workspace, NULL, e));
	OK(orch_executor_prepare(executor, sandbox, e));
	OK(orch_sandbox_start_wait(sandbox, 10000, e));
	return sandbox;
}

/* A whole attempt; the caller sees how it ended. `opts` may be NULL. Takes the executor. */
static inline struct watch attempt(orch_ctx *ctx, orch_executor *executor, const struct orch_job_opts *given)
{
	static struct watch watch;
	struct orch_job_opts opts;
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	orch_death *death = NULL;

	memset(&watch, 0, sizeof(watch));
	watch.ctx = ctx;
	job_opts(&opts, &watch);
	if (given) {
		opts.timeout_ms = given->timeout_ms;
		opts.stall_ms = given->stall_ms;
	}
	watch.inside_call = true;
	OK(orch_executor_run(executor, sandbox, &opts, &watch.job, e));
	watch.inside_call = false;
	ck_assert_str_eq(orch_job_packet(watch.job), opts.packet);
	ck_assert_str_eq(orch_job_workspace(watch.job), workspace);
	ck_assert_ptr_eq(orch_job_sandbox(watch.job), sandbox);
	orch_executor_unref(executor);
	wait_done(&watch);
	OK(orch_scope_stop_wait(orch_sandbox_scope(sandbox), NULL, &death, e));
	ck_assert_str_eq(orch_death_verdict_name(death), "DEAD");
	orch_death_unref(death);
	orch_sandbox_unref(sandbox);
	return watch;
}

static inline struct watch command(orch_ctx *ctx, const char *script, const struct orch_job_opts *opts)
{
	return attempt(ctx, executor_new(ctx, ORCH_EXECUTOR_COMMAND, SH(script), NULL), opts);
}

/* A program that plays a CLI. */
static inline struct watch agent(orch_ctx *ctx, uint32_t kind, const char *script)
{
	const char *path = in(new_folder(), "agent");
	char text[8192];

	snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);
	put(path, text);
	ck_assert(chmod(path, 0755) == 0);
	/* The sandbox's uid has to get there. */
	*strrchr(strcpy(text, path), '/') = '\0';
	ck_assert(chmod(text, 0755) == 0);
	return attempt(ctx, executor_new(ctx, kind, NULL, path), NULL);
}

#define ENDED(watch, wanted_end, wanted_status, words)                                                         \
	do {                                                                                                   \
		ck_assert_msg((watch).end == (wanted_end) && (watch).status == (wanted_status) &&              \
				      strstr((watch).message, words) != NULL,                                  \
			      "ended %u, status %d: %s\n%s", (watch).end, (watch).status, (watch).message,     \
			      (watch).events);                                                                 \
	} while (0)

#endif
