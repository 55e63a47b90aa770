/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_PIPELINE_H
#define ORCH_PIPELINE_H

/*
 * orch_pipeline: from an idea to a verified product. Roles do the work in sandboxes; every transition is a
 * record of the run's journal, from which a new instance resumes; nothing that an executor prints can make
 * a task verified. See ARCHITECTURE.md for stages, states and the state folder.
 */

#include <orch/executor.h>

ORCH_BEGIN_DECLS

typedef struct orch_pipeline orch_pipeline;

#define ORCH_ROLE_PLANNER 1u
#define ORCH_ROLE_CHECKER 2u
#define ORCH_ROLE_EXECUTOR 3u
#define ORCH_ROLE_REVIEWER 4u

#define ORCH_RUN_INTAKE 1u
#define ORCH_RUN_CLARIFY 2u
#define ORCH_RUN_FROZEN 3u
#define ORCH_RUN_PLANNED 4u
#define ORCH_RUN_EXECUTING 5u
#define ORCH_RUN_ACCEPTING 6u
#define ORCH_RUN_DELIVERED 7u
#define ORCH_RUN_PARTIAL 8u
#define ORCH_RUN_ABORTED 9u

#define ORCH_OVERLAY_QUOTA_WAIT 1u
#define ORCH_OVERLAY_BUDGET_STOP 2u
#define ORCH_OVERLAY_NEEDS_HUMAN 4u
#define ORCH_OVERLAY_RECOVERING 8u

struct orch_pipeline_opts {
	uint32_t size;
	uint32_t flags;            /* ORCH_PIPELINE_* */
	const char *state_dir;     /* made if missing (its parent must exist), mode 0700 */
	const char *anchor_path;   /* journal anchor, outside state_dir; NULL: none */
	const char *idea;          /* UTF-8 text; new runs */
	const char *repo_dir;      /* existing git repository; never touched; NULL: a new product */
	const char *base_rev;      /* revision in it; NULL: HEAD */
	const char *schema_dir;    /* NULL: build tree or installed data folder */
	uint32_t jobs;             /* tasks at once; 0: 2 */
	uint32_t max_attempts;     /* per task, and per answer of a role; 0: 3 */
	uint64_t max_requests;     /* 0: none; the three budgets of the whole run */
	uint64_t max_tokens;
	uint64_t max_micro_usd;
	uint64_t max_seconds;      /* wall time of the run; 0: none */
	int64_t answer_timeout_ms; /* CLARIFY: after it the recommended answers are taken; -1: wait for ever; 0: at once */
	/* Recorded in the journal; lets a person see in the report what did the work. NULL: "" */
	const char *description;
	/* See orch_journal_opts.on_record. */
	void (*on_record)(void *userdata, uint64_t sequence);
	void *on_record_userdata;
	orch_destroy_fn on_record_destroy;
};

/* Take up the run in state_dir (its idea, options and answers are in the journal). */
#define ORCH_PIPELINE_RESUME 1u
/* No reviewer role. */
#define ORCH_PIPELINE_NO_REVIEW 2u

ORCH_API void orch_pipeline_opts_init(struct orch_pipeline_opts *opts, uint32_t size);
/*
 * Opens the state folder and its journal; starts nothing.
 *
 * ORCH_EEXIST: state_dir holds a run (resume it, or choose another folder); ORCH_ENOENT: nothing to
 * resume, or repo_dir missing; ORCH_EINVAL; errors of orch_journal_open(). Since 0.1.
 */
ORCH_API int32_t orch_pipeline_new(orch_ctx *ctx, const struct orch_pipeline_opts *opts,
				   orch_pipeline **ret_pipeline, orch_error **reterr);
ORCH_API orch_pipeline *orch_pipeline_ref(orch_pipeline *pipeline);
ORCH_API orch_pipeline *orch_pipeline_unref(orch_pipeline *pipeline);

/* The broker of the run: set its upstreams before the start. Borrowed. Since 0.1. */
ORCH_API orch_broker *orch_pipeline_broker(orch_pipeline *pipeline);
ORCH_API orch_journal *orch_pipeline_journal(orch_pipeline *pipeline);
/* Who does a role; role 0: all roles that have none of their own. ORCH_EINVAL, ORCH_ESTATE. Since 0.1. */
ORCH_API int32_t orch_pipeline_set_executor(orch_pipeline *pipeline, uint32_t role,
					    orch_executor *executor, orch_error **reterr);
/*
 * Allows tasks whose plan asks for it an operation of that kind (see struct orch_grant_opts; key_prefix
 * and max_uses are set by the pipeline). Without it such a plan is refused. Since 0.1.
 */
ORCH_API int32_t orch_pipeline_allow(orch_pipeline *pipeline, const struct orch_grant_opts *grant,
				     orch_error **reterr);

/*
 * Each thing that happened, as one JSON object in one line (no newline): {"event":NAME,...}. Names and
 * members are listed in orch-demo(1) under EVENTS; the last is {"event":"end",...}.
 */
typedef void (*orch_pipeline_event_fn)(void *userdata, const char *json);
ORCH_API int32_t orch_pipeline_on_event(orch_pipeline *pipeline, orch_pipeline_event_fn fn, void *userdata,
					orch_destroy_fn destroy, orch_error **reterr);

/*
 * Starts or resumes: probes what is enforced on this host (seconds), takes the run in or recovers it; then it
 * goes on inside the context's loop.
 *
 * ORCH_ESTATE: started already, or a role has no executor; ORCH_EUNENFORCEABLE and other errors of
 * orch_sandbox_report_run(); ORCH_ECORRUPT: a sealed document was changed; ORCH_EDEADLK: called inside a
 * callback; errors of orch_journal_record() and orch_journal_recover(). Since 0.1.
 */
ORCH_API int32_t orch_pipeline_start(orch_pipeline *pipeline, orch_error **reterr);
/*
 * Starts if need be and waits for the end. `ret_state`: ORCH_RUN_DELIVERED, PARTIAL or ABORTED.
 * ORCH_ENEEDHUMAN: it waits for answers that nobody will give (answer_timeout_ms -1 and no answers):
 * questions.json in the state folder is the template. ORCH_ENOSPC, ORCH_EPOISONED and others: the instance
 * can not go on; everything that ran is killed, and the run can be resumed. ORCH_ETIMEDOUT, ORCH_EDEADLK.
 * Since 0.1.
 */
ORCH_API int32_t orch_pipeline_run(orch_pipeline *pipeline, int64_t timeout_ms, uint32_t *ret_state,
				   orch_error **reterr);
/*
 * Answers of the user as JSON {"answers":{ID:TEXT,...}}; "" or a missing id takes the recommendation.
 * Before CLARIFY they are kept for it. ORCH_EPARSE: line and reason; ORCH_ENOENT: no such question (known
 * only in CLARIFY); ORCH_ESTATE: too late. Since 0.1.
 */
ORCH_API int32_t orch_pipeline_answer(orch_pipeline *pipeline, const char *json, size_t length,
				      orch_error **reterr);
/* Takes the recommendation for each question that is still open. Since 0.1. */
ORCH_API int32_t orch_pipeline_accept_recommended(orch_pipeline *pipeline, orch_error **reterr);
/*
 * Stops: running attempts are killed (certificates in the report), the run ends ABORTED after its report is
 * written. Since 0.1.
 */
ORCH_API int32_t orch_pipeline_stop(orch_pipeline *pipeline, const char *reason, orch_error **reterr);

ORCH_API uint32_t orch_pipeline_state(const orch_pipeline *pipeline);
ORCH_API uint32_t orch_pipeline_overlays(const orch_pipeline *pipeline);
/* "INTAKE", "CLARIFY", ... Static storage. Since 0.1. */
ORCH_API const char *orch_run_state_name(uint32_t state);
/*
 * The living state as JSON (stages, tasks, spending, questions). The caller frees it with orch_string_free().
 * Since 0.1.
 */
ORCH_API int32_t orch_pipeline_status(orch_pipeline *pipeline, char **ret_json, orch_error **reterr);
/*
 * The same from the journal of a run that no instance has in hand. ORCH_ELOCKED: it runs; ORCH_ENOENT.
 * Since 0.1.
 */
ORCH_API int32_t orch_pipeline_status_of(const char *state_dir, char **ret_json, orch_error **reterr);
ORCH_API char *orch_string_free(char *string);
/* Paths of report.html and of the product; "" until there is one. Since 0.1. */
ORCH_API const char *orch_pipeline_report_path(const orch_pipeline *pipeline);
ORCH_API const char *orch_pipeline_product_path(const orch_pipeline *pipeline);

ORCH_END_DECLS

#endif
