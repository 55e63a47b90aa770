/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "pipeline-private.h"

/* Attempts in a row that end without having reached the provider before the run gives up. */
#define UNREACHABLE_LIMIT 2

void step_wake_in(orch_pipeline *p, int64_t delay_ms)
{
	int64_t at_us = orch_monotonic_us() + (delay_ms < 0 ? 0 : delay_ms * 1000);
	if (at_us >= p->wake_at_us)
		return;
	p->wake_at_us = at_us;
	orch_source_timer_set(p->wake_timer, delay_ms < 0 ? 0 : delay_ms);
}

static int64_t active_ms(const orch_pipeline *p)
{
	int64_t now = orch_realtime_ms() - p->model->instance_first_ms;
	return p->model->active_ms + (now > 0 ? now : 0);
}

/* Left of the run's wall time, in which an instance lived; -1: no limit. */
static int64_t time_left_ms(const orch_pipeline *p)
{
	if (!p->model->max_seconds)
		return -1;
	int64_t left = (int64_t)p->model->max_seconds * 1000 - active_ms(p);
	return left > 0 ? left : 0;
}

bool step_may_start_attempt(const orch_pipeline *p)
{
	return !p->failure && !p->model->stop && !p->model->close &&
	       !(p->model->overlays & ORCH_OVERLAY_QUOTA_WAIT) &&
	       orch_monotonic_us() >= p->not_before_us;
}

/* --- the provider ---------------------------------------------------------------------------- */

void step_on_operation(void *userdata, orch_principal *principal, const char *operation,
		       uint32_t event, const char *code, int32_t http_status,
		       int64_t quota_resets_at_ms)
{
	orch_pipeline *p = userdata;
	attempt_operation(p, principal, operation, event, code ? code : "", http_status,
			  quota_resets_at_ms);
	/* No journal, no operation: that says nothing about the work, and another attempt would
	 * meet it again. */
	if (code && !strcmp(code, "journal") && !p->failure) {
		orch_error *error = NULL;
		orch_fail(&error, ORCH_ENOSPC, 0, "journal",
			  "the broker could not record an operation in the journal of %s (no space "
			  "left?): "
			  "make room and resume",
			  p->state_dir);
		pipeline_fail(p, error);
	}
	pipeline_schedule(p);
}

/* Nothing says so clearly that nobody is there as asking twice. */
static void check_unreachable(orch_pipeline *p)
{
	size_t count = json_array_size(p->model->attempts), misses = 0;
	const char *message = "";
	for (size_t i = count; i-- > 0 && misses < UNREACHABLE_LIMIT;) {
		const json_t *attempt = json_array_get(p->model->attempts, i);
		if (!json_bool(attempt, "ended"))
			continue;
		if (strcmp(json_text(attempt, "end"), "UNREACHABLE"))
			return;
		message = json_text(attempt, "message");
		misses++;
	}
	if (misses < UNREACHABLE_LIMIT)
		return;
	_cleanup_free_ char *reason = orch_strdup_printf(
		"the provider can not be used: %s (tried %d times)", message, UNREACHABLE_LIMIT);
	run_close(p, false, false, reason ? reason : "the provider can not be used");
}

static void check_quota(orch_pipeline *p)
{
	if (!(p->model->overlays & ORCH_OVERLAY_QUOTA_WAIT))
		return;
	int64_t wait_ms = p->model->quota_until_ms - orch_realtime_ms();
	int64_t left_ms = time_left_ms(p);
	if (wait_ms <= 0)
		run_overlay(p, ORCH_OVERLAY_QUOTA_WAIT, false, "the quota was to be reset by now",
			    0);
	else if (left_ms >= 0 && wait_ms > left_ms)
		run_close(p, false, true,
			  "the provider's quota is reset only after the run's time is over");
	else
		step_wake_in(p, wait_ms < 60000 ? wait_ms : 60000);
}

static void check_time(orch_pipeline *p)
{
	int64_t left_ms = time_left_ms(p);
	if (left_ms < 0 || p->model->close_now)
		return;
	if (left_ms > 0) {
		step_wake_in(p, left_ms < 60000 ? left_ms : 60000);
		return;
	}
	_cleanup_free_ char *reason = orch_strdup_printf("time over: the run may take %llu seconds",
							 (unsigned long long)p->model->max_seconds);
	run_close(p, false, true, reason ? reason : "time over");
}

/* --- closing --------------------------------------------------------------------------------- */

static bool in_flight(const orch_pipeline *p)
{
	return p->attempts || p->judgements || p->git || p->own_tests;
}

static bool has_merges(const orch_pipeline *p)
{
	return json_array_size(p->model->merges) > 0;
}

static void step_stopped(orch_pipeline *p)
{
	judge_drop_all(p);
	own_tests_drop(p);
	p->git = git_job_free(p->git);
	attempt_kill_all(p, "STOPPED", p->model->stop);
	/* Their certificates first: "over" is what was proved, not what was asked for. */
	if (!p->attempts)
		run_enter(p, ORCH_RUN_ABORTED, p->model->stop);
}

/* No new attempts. Before there are tasks nothing is left to be done. */
static void step_closed(orch_pipeline *p)
{
	if (p->model->close_now)
		attempt_kill_all(p, "STOPPED", p->model->close);
	if (p->model->state >= ORCH_RUN_EXECUTING)
		return;
	judge_drop_all(p);
	p->git = git_job_free(p->git);
	if (!p->attempts)
		run_enter(p, p->model->close_abort ? ORCH_RUN_ABORTED : ORCH_RUN_PARTIAL,
			  p->model->close);
}

/* --- execute --------------------------------------------------------------------------------- */

static bool tasks_are_over(const orch_pipeline *p)
{
	for (size_t i = 0; i < p->model->task_count; i++) {
		uint32_t state = p->model->tasks[i].state;
		if (state != TASK_MERGED && state != TASK_BLOCKED)
			return false;
	}
	return true;
}

static char *blocked_reason(const orch_pipeline *p)
{
	struct orch_buf text = {0};
	for (size_t i = 0; i < p->model->task_count; i++) {
		const struct model_task *task = &p->model->tasks[i];
		if (task->state != TASK_BLOCKED)
			continue;
		orch_buf_printf(&text, "%s%s is BLOCKED: %s", text.length ? "; " : "", task->id,
				task->reason ? task->reason : "");
	}
	return text.data;
}

static void step_executing(orch_pipeline *p)
{
	/* What was not merged in time is not merged. */
	if (p->model->close_now)
		judge_drop_all(p);
	else
		task_step(p);
	if (p->failure || in_flight(p))
		return;
	if (!tasks_are_over(p) && !p->model->close)
		return;
	if (has_merges(p)) {
		run_enter(p, ORCH_RUN_ACCEPTING, p->model->close);
		return;
	}
	_cleanup_free_ char *reason = blocked_reason(p);
	run_enter(p, ORCH_RUN_PARTIAL,
		  p->model->close ? p->model->close
		  : reason	  ? reason
				  : "no task was merged");
}

/* --- intake ---------------------------------------------------------------------------------- */

static json_t *base_record(const char *tree, const char *repo_tree, const char *commit,
			   const char *deaths)
{
	return json_pack("{s:s, s:s*, s:s*, s:o}", "tree", tree, "repo_tree", repo_tree, "commit",
			 commit, "deaths", json_foreign(deaths, 20000));
}

/* A repository that can not be used ends the run; a full disk only the instance. */
static void import_failed(orch_pipeline *p, const orch_error *error)
{
	if (orch_error_code(error) == ORCH_ENOMEM || orch_error_code(error) == ORCH_ENOSPC ||
	    orch_error_errno(error) == ENOSPC) {
		pipeline_fail(p, orch_error_copy(error));
		return;
	}
	_cleanup_free_ char *reason = orch_strdup_printf("the repository could not be imported: %s",
							 orch_error_message(error));
	run_close(p, true, true, reason ? reason : "the repository could not be imported");
}

static void on_imported(void *userdata, const char *tree_hash, const char *commit,
			const char *deaths, const orch_error *error)
{
	orch_pipeline *p = userdata;
	orch_error *stripping = NULL;
	char tree[TREE_HASH_SIZE];
	/* The job is freed in the next step: this is its callback. */
	if (error) {
		import_failed(p, error);
	} else if (earlier_strip(p, tree_hash, tree, &stripping) < 0) {
		pipeline_fail(p, stripping);
	} else {
		run_store(p, "run.base", base_record(tree, tree_hash, commit, deaths), "run/base");
	}
	pipeline_schedule(p);
}

static void step_intake(orch_pipeline *p)
{
	orch_error *error = NULL;
	if (p->model->base_tree) {
		p->git = git_job_free(p->git);
		if (p->model->repo_tree && !p->earlier_dir && earlier_load(p, &error) < 0) {
			pipeline_fail(p, error);
			return;
		}
		run_enter(p, ORCH_RUN_CLARIFY, NULL);
	} else if (!p->model->repo) {
		run_store(p, "run.base", base_record(tree_empty_hash, NULL, NULL, ""), "run/base");
		pipeline_schedule(p);
	} else if (!p->git) {
		int32_t code = tree_remove(p->staging_dir, &error);
		if (code == 0)
			code = repo_import_start(p->ctx, p->model->repo, p->model->base_rev,
						 p->staging_dir, p->trees_dir, on_imported, p,
						 &p->git, &error);
		if (code < 0)
			import_failed(p, error);
		orch_error_free(error);
	}
}

/* --- one step -------------------------------------------------------------------------------- */

static void step_failed(orch_pipeline *p)
{
	attempt_drop_all(p);
	judge_drop_all(p);
	own_tests_drop(p);
	p->git = git_job_free(p->git);
	if (p->over)
		return;
	p->over = true;
	event_emit(p, json_pack("{s:s, s:s, s:o, s:s, s:s}", "event", "end", "state",
				orch_run_state_name(orch_pipeline_state(p)), "reason",
				json_foreign(orch_error_message(p->failure), 4000), "report", "",
				"product", ""));
}

static void step_state(orch_pipeline *p)
{
	switch (p->model->state) {
	case ORCH_RUN_INTAKE:
		step_intake(p);
		break;
	case ORCH_RUN_CLARIFY:
		stage_clarify(p);
		break;
	case ORCH_RUN_FROZEN:
		stage_frozen(p);
		break;
	case ORCH_RUN_PLANNED:
		run_enter(p, ORCH_RUN_EXECUTING, NULL);
		break;
	case ORCH_RUN_EXECUTING:
		step_executing(p);
		break;
	case ORCH_RUN_ACCEPTING:
		finish_accepting(p);
		break;
	case ORCH_RUN_DELIVERED:
	case ORCH_RUN_PARTIAL:
	case ORCH_RUN_ABORTED:
		finish_end(p);
		break;
	}
}

void step_once(void *userdata)
{
	orch_pipeline *p = userdata;
	if (p->over && !p->failure)
		return;
	uint64_t records = p->model->records;
	p->wake_at_us = INT64_MAX;
	if (!p->failure && !run_is_over(p->model->state)) {
		check_unreachable(p);
		check_time(p);
		check_quota(p);
		int64_t pause_ms = (p->not_before_us - orch_monotonic_us()) / 1000;
		if (pause_ms >= 0)
			step_wake_in(p, pause_ms + 1);
	}
	if (!p->failure && !run_is_over(p->model->state)) {
		if (p->model->stop)
			step_stopped(p);
		else if (p->model->close)
			step_closed(p);
	}
	if (!p->failure && (!p->model->stop || run_is_over(p->model->state)) &&
	    (!p->model->close || p->model->state >= ORCH_RUN_EXECUTING))
		step_state(p);
	if (p->failure)
		step_failed(p);
	else if (p->model->records != records)
		pipeline_schedule(p); /* what was recorded may make more possible */
}
