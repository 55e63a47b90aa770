/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "pipeline-private.h"

void orch_pipeline_opts_init(struct orch_pipeline_opts *opts, uint32_t size)
{
	const struct orch_pipeline_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

const char *role_name(uint32_t role)
{
	static const char *const names[] = {"any", "planner", "checker", "executor", "reviewer"};
	return role < sizeof(names) / sizeof(names[0]) ? names[role] : "?";
}

orch_executor *pipeline_executor(const orch_pipeline *p, uint32_t role)
{
	return p->executors[role] ? p->executors[role] : p->executors[0];
}

static void kill_work(orch_pipeline *p)
{
	attempt_drop_all(p);
	judge_drop_all(p);
	own_tests_drop(p);
	p->git = git_job_free(p->git);
}

void pipeline_fail(orch_pipeline *p, orch_error *error)
{
	if (p->failure) {
		orch_error_free(error);
		return;
	}
	p->failure = error;
	orch_ctx_logf(p->ctx, ORCH_LOG_ERROR, "run %s can not go on: %s",
		      p->model->run ? p->model->run : "?", orch_error_message(error));
	/* In the next turn: the caller may be inside what is dropped. */
	pipeline_schedule(p);
}

void pipeline_schedule(orch_pipeline *p)
{
	if (p->started)
		orch_source_timer_set(p->step_timer, 0);
}

/* --- handle ---------------------------------------------------------------------------------- */

static void pipeline_free(void *object)
{
	orch_pipeline *p = object;
	bool forked = orch_ctx_forked(p->ctx);
	if (!forked)
		kill_work(p);
	orch_source_remove(p->step_timer);
	orch_source_remove(p->wake_timer);
	orch_source_remove(p->event_timer);
	events_free(p);
	if (p->event_destroy)
		p->event_destroy(p->event_userdata);
	if (p->on_record_destroy)
		p->on_record_destroy(p->on_record_userdata);
	for (size_t i = 0; i < sizeof(p->executors) / sizeof(p->executors[0]); i++)
		orch_executor_unref(p->executors[i]);
	orch_broker_unref(p->broker);
	orch_journal_unref(p->journal);
	questions_free(p->questions);
	spec_free(p->spec);
	checks_free(p->checks);
	plan_free(p->plan);
	spec_free(p->earlier_spec);
	checks_free(p->earlier_checks);
	model_free(p->model);
	finish_free_delivery(p);
	json_decref(p->grants);
	json_decref(p->early_answers);
	orch_error_free(p->failure);
	char *const texts[] = {p->idea,		p->repo_dir,	 p->base_rev,	  p->description,
			       p->state_dir,	p->schema_dir,	 p->trees_dir,	  p->sealed_dir,
			       p->work_dir,	p->attempts_dir, p->report_dir,	  p->product_dir,
			       p->staging_dir,	p->report_path,	 p->product_path, p->earlier_dir,
			       p->earlier_note, p->integrating,	 p->product_tree};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(texts[i]);
	orch_ctx *ctx = p->ctx;
	free(p);
	orch_ctx_unref(ctx);
}

static int32_t pipeline_new(orch_ctx *ctx, const struct orch_pipeline_opts *opts,
			    orch_pipeline **ret_pipeline, orch_error **reterr)
{
	orch_pipeline *p = calloc(1, sizeof(*p));
	if (!p)
		return orch_fail_memory(reterr);
	atomic_init(&p->references, 1);
	p->ctx = orch_ctx_ref(ctx);
	p->on_record_destroy = opts->on_record_destroy;
	p->on_record_userdata = opts->on_record_userdata;
	p->grants = json_array();
	p->early_answers = json_array();
	int32_t code = p->grants && p->early_answers ? model_new(&p->model, reterr)
						     : orch_fail_memory(reterr);
	if (code == 0)
		code = orch_source_timer(ctx, -1, step_once, p, &p->step_timer, reterr);
	if (code == 0)
		code = orch_source_timer(ctx, -1, step_once, p, &p->wake_timer, reterr);
	if (code == 0)
		code = orch_source_timer(ctx, -1, events_flush, p, &p->event_timer, reterr);
	if (code == 0)
		code = start_open(p, opts, reterr);
	*ret_pipeline = p;
	return code;
}

int32_t orch_pipeline_new(orch_ctx *ctx, const struct orch_pipeline_opts *opts,
			  orch_pipeline **ret_pipeline, orch_error **reterr)
{
	struct orch_pipeline_opts known;
	orch_pipeline *p = NULL;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_pipeline_opts", reterr);
	if (code == 0)
		code = orch_ctx_check(ctx, reterr);
	if (code == 0 && !ret_pipeline)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_pipeline is NULL");
	if (code == 0)
		code = pipeline_new(ctx, &known, &p, reterr);
	if (code == 0)
		*ret_pipeline = p;
	else if (p)
		pipeline_free(p);
	else if (known.on_record_destroy)
		known.on_record_destroy(known.on_record_userdata);
	return code;
}

orch_pipeline *orch_pipeline_ref(orch_pipeline *p)
{
	if (p)
		atomic_fetch_add(&p->references, 1);
	return p;
}

orch_pipeline *orch_pipeline_unref(orch_pipeline *p)
{
	if (p && atomic_fetch_sub(&p->references, 1) == 1)
		orch_ctx_destroy_later(p->ctx, pipeline_free, p);
	return NULL;
}

static int32_t check(orch_pipeline *p, orch_error **reterr)
{
	if (!p)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the pipeline is NULL");
	return orch_ctx_check(p->ctx, reterr);
}

/* For what has to be said before the start. */
static int32_t check_not_started(orch_pipeline *p, const char *what, orch_error **reterr)
{
	int32_t code = check(p, reterr);
	if (code == 0 && p->started)
		return orch_fail(
			reterr, ORCH_ESTATE, 0, NULL,
			"the run was started already: set its %s before orch_pipeline_start()",
			what);
	return code;
}

orch_broker *orch_pipeline_broker(orch_pipeline *p)
{
	return p ? p->broker : NULL;
}

orch_journal *orch_pipeline_journal(orch_pipeline *p)
{
	return p ? p->journal : NULL;
}

int32_t orch_pipeline_set_executor(orch_pipeline *p, uint32_t role, orch_executor *executor,
				   orch_error **reterr)
{
	int32_t code = check_not_started(p, "executors", reterr);
	if (code < 0)
		return code;
	if (role > ORCH_ROLE_REVIEWER || !executor)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "role %u %s", role,
				 executor ? "does not exist: 0 is all, then ORCH_ROLE_*"
					  : "has no executor");
	orch_executor_ref(executor);
	orch_executor_unref(p->executors[role]);
	p->executors[role] = executor;
	return 0;
}

int32_t orch_pipeline_allow(orch_pipeline *p, const struct orch_grant_opts *grant,
			    orch_error **reterr)
{
	int32_t code = check_not_started(p, "allowed operations", reterr);
	if (code < 0)
		return code;
	struct orch_grant_opts known;
	code = grant ? orch_opts_read(grant, &known, sizeof(known), "orch_grant_opts", reterr)
		     : orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the grant is NULL");
	if (code < 0)
		return code;
	if (!known.operation || !known.operation[0])
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_grant_opts.operation is missing");
	/* A task's announcement must have somewhere to go, or its principal would be refused in the
	 * middle of the run. */
	if (!strcmp(known.operation, "notify.send") && (!known.url || !known.url[0]))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "a grant for notify.send needs a url");
	json_t *row = grant_json(&known);
	if (!row || json_array_append_new(p->grants, row) < 0)
		return orch_fail_memory(reterr);
	return 0;
}

int32_t orch_pipeline_on_event(orch_pipeline *p, orch_pipeline_event_fn fn, void *userdata,
			       orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = check(p, reterr);
	if (code < 0) {
		if (destroy)
			destroy(userdata);
		return code;
	}
	orch_destroy_fn old_destroy = p->event_destroy;
	void *old_userdata = p->event_userdata;
	p->event = fn;
	p->event_userdata = userdata;
	p->event_destroy = destroy;
	if (old_destroy)
		old_destroy(old_userdata);
	return 0;
}

int32_t orch_pipeline_start(orch_pipeline *p, orch_error **reterr)
{
	int32_t code = check_not_started(p, "options", reterr);
	if (code == 0)
		code = start_run(p, reterr);
	if (code < 0)
		return code;
	p->started = true;
	pipeline_schedule(p);
	return 0;
}

static bool run_is_done(void *userdata)
{
	const orch_pipeline *p = userdata;
	return (p->over || p->waits_for_person) && !p->events;
}

int32_t orch_pipeline_run(orch_pipeline *p, int64_t timeout_ms, uint32_t *ret_state,
			  orch_error **reterr)
{
	int32_t code = check(p, reterr);
	if (code == 0 && !p->started)
		code = orch_pipeline_start(p, reterr);
	if (code < 0)
		return code;
	orch_pipeline_ref(p);
	code = orch_ctx_wait(p->ctx, timeout_ms, run_is_done, p, reterr);
	if (code == 0 && p->failure) {
		code = orch_error_code(p->failure);
		if (reterr)
			*reterr = orch_error_copy(p->failure);
	} else if (code == 0 && !p->over) {
		code = orch_fail(reterr, ORCH_ENEEDHUMAN, 0, NULL,
				 "the run waits for answers: fill in %s/questions.json as "
				 "{\"answers\":{ID:TEXT}} and "
				 "resume with it, or accept the recommended answers",
				 p->state_dir);
	} else if (code == 0 && ret_state) {
		*ret_state = p->model->state;
	}
	orch_pipeline_unref(p);
	return code;
}

/* --- answers, stop --------------------------------------------------------------------------- */

static int32_t check_answerable(orch_pipeline *p, orch_error **reterr)
{
	int32_t code = check(p, reterr);
	if (code < 0)
		return code;
	if (p->model->state > ORCH_RUN_CLARIFY || model_answered(p->model))
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the questions were answered already, the run is %s",
				 orch_run_state_name(p->model->state));
	return 0;
}

int32_t orch_pipeline_answer(orch_pipeline *p, const char *json, size_t length, orch_error **reterr)
{
	int32_t code = check_answerable(p, reterr);
	if (code < 0)
		return code;
	if (!json)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the answers are NULL");
	json_t *answers = NULL;
	code = answers_parse("answers.json", json, length, p->questions, &answers, reterr);
	if (code < 0)
		return code;
	json_decref(answers);
	if (p->started)
		return stage_answer(p, json, length, reterr);
	json_t *text = json_stringn(json, length);
	return text && json_array_append_new(p->early_answers, text) == 0
		       ? 0
		       : orch_fail_memory(reterr);
}

int32_t orch_pipeline_accept_recommended(orch_pipeline *p, orch_error **reterr)
{
	int32_t code = check_answerable(p, reterr);
	if (code < 0)
		return code;
	if (p->started)
		return stage_accept_recommended(p, "user", reterr);
	p->accept_recommended = true;
	return 0;
}

int32_t orch_pipeline_stop(orch_pipeline *p, const char *reason, orch_error **reterr)
{
	int32_t code = check(p, reterr);
	if (code < 0)
		return code;
	if (!p->model->state)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "there is no run yet that could be stopped");
	if (run_is_over(p->model->state) || p->model->stop)
		return 0;
	code = run_record(
		p, "run.stop",
		json_pack("{s:o}", "reason",
			  json_foreign(reason && reason[0] ? reason : "stopped by the user", 4000)),
		reterr, "run/stop");
	if (code == 0)
		pipeline_schedule(p);
	return code;
}

/* --- what can be seen ------------------------------------------------------------------------ */

uint32_t orch_pipeline_state(const orch_pipeline *p)
{
	return p && p->model->state ? p->model->state : ORCH_RUN_INTAKE;
}

uint32_t orch_pipeline_overlays(const orch_pipeline *p)
{
	return p ? p->model->overlays : 0;
}

int32_t orch_pipeline_status(orch_pipeline *p, char **ret_json, orch_error **reterr)
{
	int32_t code = check(p, reterr);
	if (code == 0 && !ret_json)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_json is NULL");
	return code < 0 ? code : status_json(p->model, p->journal, ret_json, reterr);
}

char *orch_string_free(char *string)
{
	free(string);
	return NULL;
}

const char *orch_pipeline_report_path(const orch_pipeline *p)
{
	return p && p->report_path ? p->report_path : "";
}

const char *orch_pipeline_product_path(const orch_pipeline *p)
{
	return p && p->product_path ? p->product_path : "";
}
