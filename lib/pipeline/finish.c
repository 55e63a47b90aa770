/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "pipeline-private.h"
#include "report.h"

/* Of report.txt. */
#define TEXT_COLUMNS 100u

/* --- accept ---------------------------------------------------------------------------------- */

static bool is_merged(const orch_pipeline *p, const char *requirement)
{
	for (size_t i = 0; i < p->model->task_count; i++) {
		const struct model_task *task = &p->model->tasks[i];
		size_t k;
		json_t *id;
		if (task->state != TASK_MERGED)
			continue;
		json_array_foreach(task->requirements, k, id)
		{
			if (!strcmp(json_string_value(id), requirement))
				return true;
		}
	}
	return false;
}

/* Every check of it passed, there is at least one, and a merged task stands for it. */
static bool is_verified(const orch_pipeline *p, const json_t *verification, const char *requirement)
{
	size_t i, passed = 0;
	json_t *result;
	if (json_text(verification, "error")[0])
		return false;
	json_array_foreach(json_object_get(verification, "results"), i, result)
	{
		if (json_bool(result, "earlier") ||
		    strcmp(json_text(result, "requirement"), requirement))
			continue;
		if (strcmp(json_text(result, "verdict"), "pass"))
			return false;
		passed++;
	}
	return passed > 0 && is_merged(p, requirement);
}

/* Earlier checks that passed before and do not now. */
static char *broken_earlier(const json_t *verification)
{
	struct orch_buf text = {0};
	size_t i;
	json_t *result;
	json_array_foreach(json_object_get(verification, "results"), i, result)
	{
		if (json_bool(result, "earlier") && strcmp(json_text(result, "verdict"), "pass"))
			orch_buf_printf(&text, "%s%s (%s)", text.length ? ", " : "",
					json_text(result, "requirement"),
					json_text(result, "check"));
	}
	return text.data;
}

static bool own_tests_got_worse(const orch_pipeline *p)
{
	if (!own_tests_there(p))
		return false;
	const json_t *base = own_tests_result(p, "base", p->model->base_tree);
	const json_t *final = own_tests_result(p, "final", p->model->main_tree);
	return json_bool(base, "passed") &&
	       (!json_bool(final, "passed") || json_int(final, "tests") < json_int(base, "tests"));
}

/* Why it is not all of what was asked for; NULL: it is. The caller frees. */
static char *what_is_missing(const orch_pipeline *p, const json_t *verification,
			     const json_t *verified)
{
	struct orch_buf text = {0};
	if (p->model->close)
		orch_buf_printf(&text, "%s", p->model->close);
	for (size_t i = 0; i < p->model->task_count; i++) {
		const struct model_task *task = &p->model->tasks[i];
		if (task->state == TASK_MERGED)
			continue;
		orch_buf_printf(&text, "%s%s is %s%s%s", text.length ? "; " : "", task->id,
				task_state_name(task->state),
				task->reason && task->reason[0] ? ": " : "",
				task->reason ? task->reason : "");
	}
	size_t missing = p->spec->requirement_count - json_array_size(verified);
	if (missing)
		orch_buf_printf(&text, "%s%zu of %zu requirements are not verified",
				text.length ? "; " : "", missing, p->spec->requirement_count);
	if (json_text(verification, "error")[0])
		orch_buf_printf(&text, "%sthe final tree could not be verified: %s",
				text.length ? "; " : "", json_text(verification, "error"));
	_cleanup_free_ char *broken = broken_earlier(verification);
	if (broken)
		orch_buf_printf(&text, "%searlier checks fail: %s", text.length ? "; " : "",
				broken);
	if (own_tests_got_worse(p))
		orch_buf_printf(&text, "%sthe repository's own tests passed before and do not now",
				text.length ? "; " : "");
	return text.data;
}

static bool record_accept(orch_pipeline *p, const json_t *verification)
{
	json_t *verified = json_array();
	for (size_t i = 0; i < p->spec->requirement_count; i++)
		if (is_verified(p, verification, p->spec->requirements[i].id))
			json_array_append_new(verified, json_string(p->spec->requirements[i].id));
	_cleanup_free_ char *missing = what_is_missing(p, verification, verified);
	return run_store(p, "accept",
			 json_pack("{s:s, s:s, s:o, s:b, s:o}", "tree", p->model->main_tree,
				   "product_tree", p->product_tree, "requirements", verified,
				   "complete", missing == NULL, "reason",
				   json_foreign(missing ? missing : "", 4000)),
			 "run/accept");
}

bool finish_is_accepted(const orch_pipeline *p, const char *requirement)
{
	size_t i;
	json_t *id;
	json_array_foreach(json_object_get(p->model->accept, "requirements"), i, id)
	{
		if (!strcmp(json_string_value(id), requirement))
			return true;
	}
	return false;
}

/* The tree that is delivered is made, then judged, and only that one is delivered. True once that
 * is recorded. */
static bool accept(orch_pipeline *p)
{
	orch_error *error = NULL;
	char hash[TREE_HASH_SIZE];
	if (!p->product_tree) {
		char inner[TREE_HASH_SIZE];
		int32_t code = 0;
		/* What else the repository had in .orch stays there. */
		if (p->model->repo_tree)
			code = earlier_restore(p, p->model->main_tree, inner, &error);
		if (code == 0)
			code = earlier_compose(p, p->model->repo_tree ? inner : p->model->main_tree,
					       hash, &error);
		if (code == 0)
			code = tree_verify(p->trees_dir, p->model->main_tree, &error);
		if (code == 0 && !(p->product_tree = strdup(hash)))
			code = orch_fail_memory(&error);
		if (code < 0) {
			pipeline_fail(p, error);
			return false;
		}
	}
	if (p->model->accept)
		return true;
	const json_t *verification =
		model_verification(p->model, "accept", NO_TASK, 0, p->product_tree);
	if (!verification) {
		struct judge_set sets[2];
		char **earlier = NULL;
		size_t count = judge_sets(p, NULL, sets, &earlier);
		judge_start(p, "accept", NO_TASK, 0, p->product_tree, sets, count, false, NULL);
		free(earlier);
		return false;
	}
	if (own_tests_there(p) && !own_tests_result(p, "base", p->model->base_tree)) {
		own_tests_start(p, "base", p->model->base_tree);
		return false;
	}
	if (own_tests_there(p) && !own_tests_result(p, "final", p->model->main_tree)) {
		own_tests_start(p, "final", p->model->main_tree);
		return false;
	}
	record_accept(p, verification);
	return false;
}

/* --- deliver --------------------------------------------------------------------------------- */

void finish_free_delivery(orch_pipeline *p)
{
	for (size_t i = 0; i < p->commit_count; i++) {
		free((char *)(uintptr_t)p->commits[i].tree_hash);
		free((char *)(uintptr_t)p->commits[i].message);
	}
	free(p->commits);
	free(p->branch);
	p->commits = NULL;
	p->branch = NULL;
	p->commit_count = 0;
}

static char *commit_message(const orch_pipeline *p, const json_t *merge)
{
	const struct task_plan *task = task_of_plan(p, json_text(merge, "task"));
	struct orch_buf text = {0};
	orch_buf_printf(&text, "%s: %s\n", json_text(merge, "task"), json_text(merge, "title"));
	for (size_t i = 0; task && task->requirements && task->requirements[i]; i++)
		orch_buf_printf(&text, "%s%s",
				i ? ", " : "\nRequirements: ", task->requirements[i]);
	orch_buf_puts(&text, "\n");
	return text.data;
}

static int32_t add_commit(orch_pipeline *p, const char *tree, char *message, int64_t time_ms,
			  orch_error **reterr)
{
	char *hash = strdup(tree);
	if (!hash || !message) {
		free(hash);
		free(message);
		return orch_fail_memory(reterr);
	}
	p->commits[p->commit_count++] = (struct delivery_commit){
		.tree_hash = hash, .message = message, .time_s = time_ms / 1000};
	return 0;
}

static int32_t make_commits(orch_pipeline *p, orch_error **reterr)
{
	size_t count = json_array_size(p->model->merges);
	finish_free_delivery(p);
	p->commits = calloc(count + 1, sizeof(*p->commits));
	p->branch = p->model->repo ? orch_strdup_printf("orch/%s", p->model->run) : strdup("main");
	if (!p->commits || !p->branch)
		return orch_fail_memory(reterr);
	int32_t code = 0;
	for (size_t i = 0; code == 0 && i < count; i++) {
		const json_t *merge = json_array_get(p->model->merges, i);
		char tree[TREE_HASH_SIZE];
		const char *hash = json_text(merge, "tree");
		if (p->model->repo_tree) {
			code = earlier_restore(p, hash, tree, reterr);
			hash = tree;
		}
		if (code == 0)
			code = add_commit(p, hash, commit_message(p, merge),
					  json_int(merge, "time_ms"), reterr);
	}
	if (code < 0)
		return code;
	return add_commit(
		p, p->product_tree,
		orch_strdup_printf("orch: specification and checks of run %s\n", p->model->run),
		json_int(p->model->accept, "time_ms"), reterr);
}

static void on_delivered(void *userdata, const char *head_commit, const char *deaths,
			 const orch_error *error)
{
	orch_pipeline *p = userdata;
	if (error) {
		/* Nothing of the host's trouble is decided here: the run can be resumed. */
		pipeline_fail(p, orch_error_copy(error));
		return;
	}
	run_store(p, "delivery",
		  json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "stage", "deliver", "state",
			    "DONE", "commit", head_commit, "branch", p->branch, "tree",
			    p->product_tree, "path", p->product_dir, "deaths",
			    json_foreign(deaths ? deaths : "", 20000)),
		  "run/delivery");
	pipeline_schedule(p);
}

static void deliver(orch_pipeline *p)
{
	if (p->git)
		return;
	orch_error *error = NULL;
	_cleanup_free_ char *work = path_join(p->work_dir, "deliver");
	int32_t code = work ? tree_remove(work, &error) : orch_fail_memory(&error);
	if (code == 0)
		code = make_commits(p, &error);
	if (code == 0) {
		const struct delivery delivery = {
			.trees_dir = p->trees_dir,
			.work_dir = work,
			.product_dir = p->product_dir,
			.staging_dir = p->model->repo ? p->staging_dir : NULL,
			.base_commit = p->model->base_commit,
			.branch = p->branch,
			.commits = p->commits,
			.commit_count = p->commit_count,
		};
		code = deliver_start(p->ctx, &delivery, on_delivered, p, &p->git, &error);
	}
	if (code < 0)
		pipeline_fail(p, error);
}

void finish_accepting(orch_pipeline *p)
{
	if (!accept(p) || p->failure)
		return;
	bool any = json_array_size(json_object_get(p->model->accept, "requirements")) > 0;
	if (any && !p->model->delivery) {
		deliver(p);
		return;
	}
	p->git = git_job_free(p->git);
	bool complete = json_bool(p->model->accept, "complete");
	run_enter(p, complete ? ORCH_RUN_DELIVERED : ORCH_RUN_PARTIAL,
		  json_text(p->model->accept, "reason"));
}

/* --- the end --------------------------------------------------------------------------------- */

/* For machines that read JUnit: what the product was judged by in the end, not what failed on the
 * way on purpose. */
static json_t *junit_model(const json_t *report)
{
	json_t *copy = json_copy((json_t *)(uintptr_t)report), *last = json_object();
	size_t i;
	json_t *row;
	json_array_foreach(json_object_get(report, "verifications"), i, row)
	{
		const char *purpose = json_text(row, "purpose");
		if (!strcmp(purpose, "accept"))
			json_object_clear(last);
		if (!strcmp(purpose, "accept") || !strcmp(purpose, "task") ||
		    !strcmp(purpose, "merged"))
			json_object_set(last, json_text(row, "task"), row);
	}
	json_t *rows = json_array();
	const char *task;
	json_object_foreach(last, task, row)
	{
		json_array_append(rows, row);
	}
	json_decref(last);
	if (copy)
		json_object_set_new(copy, "verifications", rows);
	return copy;
}

static int32_t write_report_file(orch_pipeline *p, const char *name, char *text,
				 orch_error **reterr)
{
	_cleanup_free_ char *path = path_join(p->report_dir, name);
	int32_t code = path && text ? tree_write_file(path, text, strlen(text), 0600, reterr)
				    : orch_fail_memory(reterr);
	free(text);
	return code;
}

static int32_t write_report(orch_pipeline *p, orch_error **reterr)
{
	json_t *report = NULL;
	int32_t code = make_dir(p->report_dir, 0700, reterr);
	if (code == 0)
		code = summary_report(p, &report, reterr);
	if (code < 0)
		return code;
	json_t *tests = junit_model(report);
	code = write_report_file(p, "report.json", json_dumps(report, JSON_INDENT(1)), reterr);
	if (code == 0)
		code = write_report_file(p, "junit.xml", tests ? report_junit(tests) : NULL,
					 reterr);
	if (code == 0)
		code = write_report_file(p, "report.html", report_html(report), reterr);
	if (code == 0)
		code = write_report_file(p, "report.txt", report_text(report, TEXT_COLUMNS),
					 reterr);
	json_decref(tests);
	json_decref(report);
	return code;
}

static bool has_report(const orch_pipeline *p)
{
	static const char *const names[] = {"report.json", "junit.xml", "report.html",
					    "report.txt"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		_cleanup_free_ char *path = path_join(p->report_dir, names[i]);
		if (!path || access(path, R_OK) < 0)
			return false;
	}
	return true;
}

void finish_end(orch_pipeline *p)
{
	orch_error *error = NULL;
	if (p->over)
		return;
	if (!has_report(p)) {
		int32_t code = seal_load(p, &error);
		if (code < 0) {
			/* The report says what is wrong with them; without them it is shorter. */
			orch_ctx_logf(p->ctx, ORCH_LOG_WARNING, "%s", orch_error_message(error));
			error = orch_error_free(error);
		}
		code = write_report(p, &error);
		if (code < 0) {
			pipeline_fail(p, error);
			return;
		}
	}
	tree_remove(p->work_dir, NULL);
	tree_remove(p->staging_dir, NULL);
	if (!p->report_path)
		p->report_path = path_join(p->report_dir, "report.html");
	if (!p->product_path && p->model->delivery)
		p->product_path = strdup(p->product_dir);
	p->over = true;
	event_emit(p, json_pack("{s:s, s:s}", "event", "report", "path",
				orch_pipeline_report_path(p)));
	event_emit(p, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*, s:s*, s:s*}", "event", "end",
				"state", orch_run_state_name(p->model->state), "reason",
				p->model->reason ? p->model->reason : "", "report",
				orch_pipeline_report_path(p), "product",
				orch_pipeline_product_path(p), "run", p->model->run, "commit",
				json_string_value(json_object_get(p->model->delivery, "commit")),
				"branch",
				json_string_value(json_object_get(p->model->delivery, "branch"))));
}
