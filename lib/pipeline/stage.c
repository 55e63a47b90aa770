/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "pipeline-private.h"

/* --- sending an answer back ------------------------------------------------------------------ */

/* One reason per line. */
static json_t *reasons_of(const char *text)
{
	json_t *reasons = json_array();
	while (*text) {
		size_t length = strcspn(text, "\n");
		_cleanup_free_ char *line = strndup(text, length);
		if (line && length)
			json_array_append_new(reasons, json_foreign(line, 4000));
		text += length + (text[length] == '\n');
	}
	return reasons;
}

/* `reasons` is taken over. */
static void send_back(orch_pipeline *p, const json_t *attempt, json_t *reasons)
{
	json_t *evidence =
		json_pack("{s:O*, s:s, s:o}", "attempt", json_object_get(attempt, "attempt"),
			  "result", "sent back", "reasons", reasons);
	run_store(p, "judgement",
		  json_pack("{s:O*, s:O*, s:O*, s:O*, s:b, s:o}", "role",
			    json_object_get(attempt, "role"), "stage",
			    json_object_get(attempt, "stage"), "task",
			    json_object_get(attempt, "task"), "attempt",
			    json_object_get(attempt, "attempt"), "accepted", 0, "evidence",
			    evidence),
		  "attempt/%s-%s-%s/%lld/JUDGED", json_text(attempt, "role"),
		  json_text(attempt, "stage"), json_text(attempt, "task"),
		  (long long)json_int(attempt, "attempt"));
}

/* An error of the answer is sent back; one of this host ends the instance. Frees the error. */
static void answer_failed(orch_pipeline *p, const json_t *attempt, orch_error *error)
{
	switch (orch_error_code(error)) {
	case ORCH_EPARSE:
	case ORCH_ETOOBIG:
	case ORCH_EDENIED:
	case ORCH_ENOENT:
	case ORCH_EINVAL:
		send_back(p, attempt, reasons_of(orch_error_message(error)));
		orch_error_free(error);
		break;
	default:
		pipeline_fail(p, error);
	}
}

/* --- judging answers ------------------------------------------------------------------------- */

static int32_t take_questions(orch_pipeline *p, const json_t *attempt, orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	struct questions *questions = NULL;
	int32_t code = workspace_answer(p, attempt, "questions.json", &bytes, &length, reterr);
	if (code == 0)
		code = questions_parse("questions.json", bytes, length, &questions, reterr);
	if (code == 0)
		code = seal_questions(p, attempt, bytes, length, questions, reterr);
	if (code < 0) {
		questions_free(questions);
		return code;
	}
	p->questions = questions;
	return 0;
}

/* Requirement ids go on where the earlier ones end. */
static int32_t refuse_taken_ids(orch_pipeline *p, const struct spec *spec, orch_error **reterr)
{
	for (size_t i = 0; p->earlier_spec && i < spec->requirement_count; i++)
		for (size_t k = 0; k < p->earlier_spec->requirement_count; k++)
			if (!strcmp(spec->requirements[i].id, p->earlier_spec->requirements[k].id))
				return orch_fail(reterr, ORCH_EPARSE, 0, NULL,
						 "spec.xml: requirement id %s is that of an "
						 "earlier requirement (%s): "
						 "take new ids after the highest of those",
						 spec->requirements[i].id,
						 p->earlier_spec->requirements[k].title);
	return 0;
}

static int32_t take_spec(orch_pipeline *p, const json_t *attempt, orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	struct spec *spec = NULL;
	int32_t code = workspace_answer(p, attempt, "spec.xml", &bytes, &length, reterr);
	if (code == 0)
		code = spec_parse(p->schema_dir, "spec.xml", bytes, length, &spec, reterr);
	if (code == 0)
		code = refuse_taken_ids(p, spec, reterr);
	if (code == 0)
		code = seal_spec(p, attempt, bytes, length, spec, reterr);
	if (code < 0) {
		spec_free(spec);
		return code;
	}
	p->spec = spec;
	return 0;
}

static int32_t read_checks(orch_pipeline *p, const json_t *attempt, void **ret_bytes,
			   size_t *ret_length, struct checks **ret_checks, orch_error **reterr)
{
	int32_t code = workspace_answer(p, attempt, "checks.xml", ret_bytes, ret_length, reterr);
	if (code == 0)
		code = checks_parse(p->schema_dir, "checks.xml", *ret_bytes, *ret_length, p->spec,
				    ret_checks, reterr);
	for (size_t i = 0; code == 0 && i < (*ret_checks)->count; i++) {
		_cleanup_free_ void *content = NULL;
		size_t length = 0;
		code = workspace_answer(p, attempt, (*ret_checks)->checks[i].file, &content,
					&length, reterr);
	}
	if (code < 0)
		*ret_checks = checks_free(*ret_checks);
	return code;
}

/* Shows on the base tree (or the stub) that every check can fail. */
static int32_t try_checks(orch_pipeline *p, const json_t *attempt, const char *purpose, bool stub,
			  orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	_cleanup_free_ char *dir = path_join(p->trees_dir, json_text(attempt, "out"));
	size_t length = 0;
	struct checks *checks = NULL;
	int32_t code = dir ? read_checks(p, attempt, &bytes, &length, &checks, reterr)
			   : orch_fail_memory(reterr);
	if (code < 0)
		return code;
	const struct judge_set set = {.spec = p->spec, .checks = checks, .sealed_dir = dir};
	judge_start(p, purpose, NO_TASK, (uint32_t)json_int(attempt, "attempt"),
		    p->model->base_tree, &set, 1, stub, checks);
	return 0;
}

static void add_not_failing(json_t *reasons, const json_t *verification, const char *where)
{
	if (json_text(verification, "error")[0]) {
		_cleanup_free_ char *text =
			orch_strdup_printf("the checks could not be run against %s: %s", where,
					   json_text(verification, "error"));
		json_array_append_new(reasons, json_string(text ? text : where));
	}
	size_t i;
	json_t *result;
	json_array_foreach(json_object_get(verification, "results"), i, result)
	{
		const char *verdict = json_text(result, "verdict");
		_cleanup_free_ char *text = NULL;
		if (!strcmp(verdict, "pass"))
			text = orch_strdup_printf("check %s of %s passes against %s: it tests "
						  "nothing that the product must add",
						  json_text(result, "check"),
						  json_text(result, "requirement"), where);
		else if (!strcmp(verdict, "error"))
			text = orch_strdup_printf("check %s could not be run against %s: %s",
						  json_text(result, "check"), where,
						  json_text(result, "detail"));
		if (text)
			json_array_append_new(reasons, json_string(text));
	}
}

static int32_t take_checks(orch_pipeline *p, const json_t *attempt, orch_error **reterr)
{
	uint32_t number = (uint32_t)json_int(attempt, "attempt");
	const json_t *base = model_verification(p->model, "base", NO_TASK, number, NULL);
	const json_t *stub = model_verification(p->model, "stub", NO_TASK, number, NULL);
	int32_t code = 0;
	if (!base && !judge_in_flight(p, "base", NO_TASK))
		code = try_checks(p, attempt, "base", false, reterr);
	if (code == 0 && !stub && !judge_in_flight(p, "stub", NO_TASK))
		code = try_checks(p, attempt, "stub", true, reterr);
	if (code < 0 || !base || !stub)
		return code;
	json_t *reasons = json_array();
	add_not_failing(reasons, base,
			p->model->repo ? "the product as it was" : "an empty product");
	add_not_failing(reasons, stub, "a stub that answers everything with 200");
	if (json_array_size(reasons)) {
		send_back(p, attempt, reasons);
		return 0;
	}
	json_decref(reasons);
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	struct checks *checks = NULL;
	code = read_checks(p, attempt, &bytes, &length, &checks, reterr);
	if (code == 0)
		code = seal_checks(p, attempt, bytes, length, checks, reterr);
	if (code < 0) {
		checks_free(checks);
		return code;
	}
	p->checks = checks;
	return 0;
}

static bool operation_allowed(void *userdata, const char *type)
{
	return pipeline_grant(userdata, type) != NULL;
}

/* A task that nothing would verify could be "done" by doing nothing. */
static int32_t refuse_unverifiable(const struct plan *plan, orch_error **reterr)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct task_plan *task = &plan->tasks[i];
		if (!task->requirements || !task->requirements[0])
			return orch_fail(
				reterr, ORCH_EPARSE, 0, NULL,
				"plan.xml: task %s has no requirement: nothing would verify it",
				task->id);
	}
	return 0;
}

static int32_t take_plan(orch_pipeline *p, const json_t *attempt, orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	struct plan *plan = NULL;
	int32_t code = workspace_answer(p, attempt, "plan.xml", &bytes, &length, reterr);
	if (code == 0)
		code = plan_parse(p->schema_dir, "plan.xml", bytes, length, p->spec, p->checks,
				  operation_allowed, p, &plan, reterr);
	if (code == 0)
		code = refuse_unverifiable(plan, reterr);
	if (code == 0)
		code = seal_plan(p, attempt, bytes, length, plan, reterr);
	if (code < 0) {
		plan_free(plan);
		return code;
	}
	p->plan = plan;
	return 0;
}

/* --- one stage ------------------------------------------------------------------------------- */

static void block_stage(orch_pipeline *p, const char *stage, const json_t *attempt)
{
	const json_t *reasons = json_object_get(json_object_get(attempt, "evidence"), "reasons");
	const char *last = json_string_value(json_array_get(reasons, 0));
	_cleanup_free_ char *reason = orch_strdup_printf(
		"%s is BLOCKED after %u attempts: %s", stage, p->model->max_attempts,
		last ? last : json_text(attempt, "message"));
	event_emit(p, json_pack("{s:s, s:s, s:s, s:s*}", "event", "stage", "stage", stage, "state",
				"BLOCKED", "reason", reason));
	run_close(p, true, false, reason ? reason : stage);
}

/* True if the attempt's end says already that there is no answer. */
static bool has_no_answer(orch_pipeline *p, const json_t *attempt)
{
	const char *end = json_text(attempt, "end");
	if (strcmp(end, "STALLED") && strcmp(end, "TIMED_OUT") && strcmp(end, "FAILED"))
		return false;
	_cleanup_free_ char *reason = orch_strdup_printf("the executor ended as %s: %s", end,
							 json_text(attempt, "message"));
	json_t *reasons = json_array();
	json_array_append_new(reasons, json_foreign(reason, 4000));
	send_back(p, attempt, reasons);
	return true;
}

static void stage_run(orch_pipeline *p, uint32_t role, const char *stage,
		      int32_t (*take)(orch_pipeline *p, const json_t *attempt, orch_error **reterr))
{
	const json_t *attempt = model_attempt(p->model, role_name(role), stage, NO_TASK, 0);
	if (attempt && !json_bool(attempt, "ended"))
		return;
	if (attempt && !json_object_get(attempt, "accepted") &&
	    !end_is_uncounted(json_text(attempt, "end"))) {
		orch_error *error = NULL;
		if (!has_no_answer(p, attempt) && take(p, attempt, &error) < 0)
			answer_failed(p, attempt, error);
		return;
	}
	if (model_rejections(p->model, role_name(role), stage, NO_TASK) >= p->model->max_attempts) {
		block_stage(p, stage, attempt);
		return;
	}
	if (step_may_start_attempt(p)) {
		event_emit(p, json_pack("{s:s, s:s, s:s}", "event", "stage", "stage", stage,
					"state", "RUNNING"));
		attempt_start(p, role, stage, NO_TASK, p->model->base_tree);
	}
}

/* --- questions and answers ------------------------------------------------------------------- */

static int32_t record_answers(orch_pipeline *p, json_t *answers, orch_error **reterr)
{
	if (!json_object_size(answers)) {
		json_decref(answers);
		return 0;
	}
	int32_t code = run_record(p, "answer", json_pack("{s:o}", "answers", answers), reterr,
				  "answer/%llu",
				  (unsigned long long)orch_journal_sequence(p->journal) + 1);
	p->waits_for_person = false;
	if (code == 0)
		pipeline_schedule(p);
	return code;
}

/*
 * Answers for the questions that are open. `given`: what the user said (NULL: nothing). The rest
 * takes the recommendation, but for what only a person may decide.
 */
static json_t *resolve_answers(orch_pipeline *p, const json_t *given, const char *rest_by)
{
	json_t *answers = json_object();
	for (size_t i = 0; i < p->questions->count; i++) {
		const struct question *question = &p->questions->questions[i];
		const char *text = json_text(given, question->id);
		if (json_object_get(p->model->answers, question->id))
			continue;
		if (text[0])
			json_object_set_new(answers, question->id,
					    json_pack("{s:s, s:s}", "text", text, "by", "user"));
		else if (!question->needs_person)
			json_object_set_new(answers, question->id,
					    json_pack("{s:s, s:s}", "text", question->recommended,
						      "by", rest_by));
	}
	return answers;
}

int32_t stage_answer(orch_pipeline *p, const char *json, size_t length, orch_error **reterr)
{
	if (!p->questions)
		return run_record(p, "run.answers",
				  json_pack("{s:o}", "json", json_stringn(json, length)), reterr,
				  "run/answers/%llu",
				  (unsigned long long)orch_journal_sequence(p->journal) + 1);
	json_t *given = NULL;
	int32_t code = answers_parse("answers.json", json, length, p->questions, &given, reterr);
	if (code < 0)
		return code;
	json_t *answers = resolve_answers(p, given, "default");
	json_decref(given);
	return record_answers(p, answers, reterr);
}

int32_t stage_accept_recommended(orch_pipeline *p, const char *by, orch_error **reterr)
{
	if (!p->questions)
		return run_record(p, "run.answers", json_pack("{s:b}", "accept", 1), reterr,
				  "run/answers/%llu",
				  (unsigned long long)orch_journal_sequence(p->journal) + 1);
	return record_answers(p, resolve_answers(p, NULL, by), reterr);
}

/* Answers that were handed in before anybody knew the questions: ids that do not exist are
 * nobody's. */
static bool apply_early(orch_pipeline *p, orch_error **reterr)
{
	if (!json_array_size(p->model->early) || json_object_size(p->model->answers))
		return false;
	json_t *given = json_object();
	const char *rest_by = "default";
	size_t i;
	json_t *row;
	json_array_foreach(p->model->early, i, row)
	{
		if (json_bool(row, "accept"))
			rest_by = "user";
		json_t *answers = NULL, *text = json_object_get(row, "json");
		if (text && answers_parse("answers.json", json_string_value(text),
					  json_string_length(text), NULL, &answers, NULL) == 0) {
			json_object_update(given, answers);
			json_decref(answers);
		}
	}
	json_t *answers = resolve_answers(p, given, rest_by);
	json_decref(given);
	bool any = json_object_size(answers) > 0;
	if (record_answers(p, answers, reterr) < 0)
		return false;
	return any;
}

static bool only_persons_left(const orch_pipeline *p)
{
	for (size_t i = 0; i < p->questions->count; i++) {
		const struct question *question = &p->questions->questions[i];
		if (!question->needs_person && !json_object_get(p->model->answers, question->id))
			return false;
	}
	return true;
}

static void wait_for_answers(orch_pipeline *p)
{
	orch_error *error = NULL;
	if (apply_early(p, &error) || error) {
		if (error)
			pipeline_fail(p, error);
		return;
	}
	int64_t timeout_ms = p->model->answer_timeout_ms;
	int64_t left_ms =
		timeout_ms < 0 ? -1 : p->model->questions_ms + timeout_ms - orch_realtime_ms();
	/* A clock that was set back does not make the user wait longer than was said. */
	if (left_ms > timeout_ms)
		left_ms = timeout_ms;
	bool persons = only_persons_left(p);
	if (timeout_ms >= 0 && left_ms <= 0 && !persons) {
		if (stage_accept_recommended(p, "default", &error) < 0)
			pipeline_fail(p, error);
		return;
	}
	p->waits_for_person = timeout_ms < 0 || (persons && left_ms <= 0);
	if (timeout_ms >= 0 && left_ms > 0)
		step_wake_in(p, left_ms);
	if (p->waits_for_person)
		run_overlay(p, ORCH_OVERLAY_NEEDS_HUMAN, true,
			    persons ? "a question that is never answered by default is open"
				    : "questions are open",
			    0);
}

/* What the later roles and the user read; made again from the records if it is lost. */
static int32_t write_answers(orch_pipeline *p, orch_error **reterr)
{
	json_t *rows = json_object();
	const char *id;
	json_t *answer;
	json_object_foreach(p->model->answers, id, answer)
	{
		json_object_set(rows, id, json_object_get(answer, "text"));
	}
	json_t *document = json_pack("{s:o}", "answers", rows);
	_cleanup_free_ char *text = document ? json_dumps(document, JSON_INDENT(2)) : NULL;
	_cleanup_free_ char *path = path_join(p->state_dir, "answers.json");
	json_decref(document);
	return text && path ? tree_write_file(path, text, strlen(text), 0600, reterr)
			    : orch_fail_memory(reterr);
}

void stage_clarify(orch_pipeline *p)
{
	if (!model_seal(p->model, "questions")) {
		stage_run(p, ORCH_ROLE_PLANNER, "clarify", take_questions);
		return;
	}
	p->waits_for_person = false;
	if (!model_answered(p->model)) {
		wait_for_answers(p);
		return;
	}
	if (!run_overlay(p, ORCH_OVERLAY_NEEDS_HUMAN, false, "", 0))
		return;
	if (model_seal(p->model, "spec")) {
		run_enter(p, ORCH_RUN_FROZEN, NULL);
		return;
	}
	orch_error *error = NULL;
	if (!model_attempt(p->model, "planner", "specify", NO_TASK, 0) &&
	    write_answers(p, &error) < 0) {
		pipeline_fail(p, error);
		return;
	}
	stage_run(p, ORCH_ROLE_PLANNER, "specify", take_spec);
}

/* --- frozen ---------------------------------------------------------------------------------- */

/* Which of the earlier checks pass on the base tree: those must go on passing. */
static bool earlier_is_known(orch_pipeline *p)
{
	if (!p->earlier_checks ||
	    model_verification(p->model, "earlier", NO_TASK, 0, p->model->base_tree))
		return true;
	const struct judge_set set = {.spec = p->spec,
				      .checks = p->earlier_checks,
				      .sealed_dir = p->earlier_dir,
				      .earlier = true};
	judge_start(p, "earlier", NO_TASK, 0, p->model->base_tree, &set, 1, false, NULL);
	return false;
}

void stage_frozen(orch_pipeline *p)
{
	if (!earlier_is_known(p))
		return;
	if (!model_seal(p->model, "checks"))
		stage_run(p, ORCH_ROLE_CHECKER, "check", take_checks);
	else if (!model_seal(p->model, "plan"))
		stage_run(p, ORCH_ROLE_PLANNER, "plan", take_plan);
	else
		run_enter(p, ORCH_RUN_PLANNED, NULL);
}
