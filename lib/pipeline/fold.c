/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "fold.h"

static const char *const task_state_names[] = {
	[TASK_PENDING] = "PENDING",	[TASK_READY] = "READY",
	[TASK_LEASED] = "LEASED",	[TASK_RUNNING] = "RUNNING",
	[TASK_SUBMITTED] = "SUBMITTED", [TASK_VERIFYING] = "VERIFYING",
	[TASK_VERIFIED] = "VERIFIED",	[TASK_MERGED] = "MERGED",
	[TASK_STALLED] = "STALLED",	[TASK_REJECTED] = "REJECTED",
	[TASK_CONFLICT] = "CONFLICT",	[TASK_BLOCKED] = "BLOCKED",
};
#define TASK_STATES (sizeof(task_state_names) / sizeof(task_state_names[0]))

#define TO(state) (1u << (state))
static const uint32_t task_changes[TASK_STATES] = {
	[TASK_PENDING] = TO(TASK_READY) | TO(TASK_BLOCKED),
	[TASK_READY] = TO(TASK_LEASED) | TO(TASK_BLOCKED),
	/* READY again: an attempt that says nothing about the work, such as one whose coordinator
	 * died.
	 */
	[TASK_LEASED] = TO(TASK_RUNNING) | TO(TASK_READY) | TO(TASK_REJECTED) | TO(TASK_BLOCKED),
	[TASK_RUNNING] = TO(TASK_SUBMITTED) | TO(TASK_READY) | TO(TASK_STALLED) |
			 TO(TASK_REJECTED) | TO(TASK_BLOCKED),
	[TASK_SUBMITTED] = TO(TASK_VERIFYING) | TO(TASK_REJECTED) | TO(TASK_BLOCKED),
	[TASK_VERIFYING] = TO(TASK_VERIFIED) | TO(TASK_REJECTED) | TO(TASK_BLOCKED),
	[TASK_VERIFIED] =
		TO(TASK_MERGED) | TO(TASK_REJECTED) | TO(TASK_CONFLICT) | TO(TASK_BLOCKED),
	[TASK_MERGED] = 0,
	[TASK_STALLED] = TO(TASK_LEASED) | TO(TASK_BLOCKED),
	[TASK_REJECTED] = TO(TASK_LEASED) | TO(TASK_BLOCKED),
	[TASK_CONFLICT] = TO(TASK_LEASED) | TO(TASK_BLOCKED),
	[TASK_BLOCKED] = 0,
};

static const char *const run_state_names[] = {
	[ORCH_RUN_INTAKE] = "INTAKE",	    [ORCH_RUN_CLARIFY] = "CLARIFY",
	[ORCH_RUN_FROZEN] = "FROZEN",	    [ORCH_RUN_PLANNED] = "PLANNED",
	[ORCH_RUN_EXECUTING] = "EXECUTING", [ORCH_RUN_ACCEPTING] = "ACCEPTING",
	[ORCH_RUN_DELIVERED] = "DELIVERED", [ORCH_RUN_PARTIAL] = "PARTIAL",
	[ORCH_RUN_ABORTED] = "ABORTED",
};
#define RUN_STATES (sizeof(run_state_names) / sizeof(run_state_names[0]))

#define ENDED (TO(ORCH_RUN_PARTIAL) | TO(ORCH_RUN_ABORTED))
static const uint32_t run_changes[RUN_STATES] = {
	[0] = TO(ORCH_RUN_INTAKE),
	[ORCH_RUN_INTAKE] = TO(ORCH_RUN_CLARIFY) | ENDED,
	[ORCH_RUN_CLARIFY] = TO(ORCH_RUN_FROZEN) | ENDED,
	[ORCH_RUN_FROZEN] = TO(ORCH_RUN_PLANNED) | ENDED,
	[ORCH_RUN_PLANNED] = TO(ORCH_RUN_EXECUTING) | ENDED,
	[ORCH_RUN_EXECUTING] = TO(ORCH_RUN_ACCEPTING) | ENDED,
	[ORCH_RUN_ACCEPTING] = TO(ORCH_RUN_DELIVERED) | ENDED,
};

const char *task_state_name(uint32_t state)
{
	return state < TASK_STATES && task_state_names[state] ? task_state_names[state] : "?";
}

static uint32_t state_by_name(const char *const *names, size_t count, const char *name)
{
	for (uint32_t i = 1; i < count; i++)
		if (names[i] && !strcmp(names[i], name))
			return i;
	return 0;
}

uint32_t task_state_by_name(const char *name)
{
	return state_by_name(task_state_names, TASK_STATES, name);
}

bool task_may_change(uint32_t from, uint32_t to)
{
	return from < TASK_STATES && to < TASK_STATES && (task_changes[from] & TO(to));
}

const char *orch_run_state_name(uint32_t state)
{
	return state < RUN_STATES && run_state_names[state] ? run_state_names[state] : "?";
}

uint32_t run_state_by_name(const char *name)
{
	return state_by_name(run_state_names, RUN_STATES, name);
}

bool run_may_change(uint32_t from, uint32_t to)
{
	return from < RUN_STATES && to < RUN_STATES && (run_changes[from] & TO(to));
}

bool run_is_over(uint32_t state)
{
	return state == ORCH_RUN_DELIVERED || state == ORCH_RUN_PARTIAL ||
	       state == ORCH_RUN_ABORTED;
}

const char *overlay_name(uint32_t overlay)
{
	switch (overlay) {
	case ORCH_OVERLAY_QUOTA_WAIT:
		return "QUOTA_WAIT";
	case ORCH_OVERLAY_BUDGET_STOP:
		return "BUDGET_STOP";
	case ORCH_OVERLAY_NEEDS_HUMAN:
		return "NEEDS_HUMAN";
	case ORCH_OVERLAY_RECOVERING:
		return "RECOVERING";
	default:
		return "?";
	}
}

static uint32_t overlay_by_name(const char *name)
{
	for (uint32_t bit = ORCH_OVERLAY_QUOTA_WAIT; bit <= ORCH_OVERLAY_RECOVERING; bit <<= 1)
		if (!strcmp(overlay_name(bit), name))
			return bit;
	return 0;
}

bool end_is_uncounted(const char *end)
{
	static const char *const ends[] = {"LOST",    "QUOTA",	     "BUDGET",
					   "STOPPED", "UNREACHABLE", "NO_SPACE"};
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!strcmp(end, ends[i]))
			return true;
	return false;
}

/* --- JSON helpers ---------------------------------------------------------------------------- */

const char *json_text(const json_t *object, const char *member)
{
	const char *text = json_string_value(json_object_get(object, member));
	return text ? text : "";
}

int64_t json_int(const json_t *object, const char *member)
{
	return json_integer_value(json_object_get(object, member));
}

bool json_bool(const json_t *object, const char *member)
{
	return json_is_true(json_object_get(object, member));
}

/* --- the model ------------------------------------------------------------------------------- */

int32_t model_new(struct model **ret_model, orch_error **reterr)
{
	struct model *model = calloc(1, sizeof(*model));
	if (!model)
		return orch_fail_memory(reterr);
	model->grants = json_array();
	model->recovery = json_array();
	model->seals = json_object();
	model->early = json_array();
	model->answers = json_object();
	model->attempts = json_array();
	model->verifications = json_array();
	model->reviews = json_array();
	model->merges = json_array();
	model->owntests = json_array();
	if (!model->grants || !model->recovery || !model->seals || !model->early ||
	    !model->answers || !model->attempts || !model->verifications || !model->reviews ||
	    !model->merges || !model->owntests) {
		model_free(model);
		return orch_fail_memory(reterr);
	}
	*ret_model = model;
	return 0;
}

static void free_tasks(struct model_task *tasks, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct model_task *task = &tasks[i];
		free(task->id);
		free(task->title);
		free(task->base);
		free(task->tree);
		free(task->reason);
		json_decref(task->requirements);
		json_decref(task->evidence);
	}
	free(tasks);
}

struct model *model_free(struct model *model)
{
	if (!model)
		return NULL;
	free_tasks(model->tasks, model->task_count);
	json_t *const values[] = {model->grants,	model->channels, model->recovery,
				  model->seals,		model->answers,	 model->attempts,
				  model->reviews,	model->merges,	 model->accept,
				  model->verifications, model->owntests, model->delivery,
				  model->early};
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		json_decref(values[i]);
	char *const texts[] = {model->run,	 model->idea,	     model->repo,
			       model->base_rev,	 model->description, model->reason,
			       model->stop,	 model->close,	     model->base_tree,
			       model->repo_tree, model->base_commit, model->main_tree};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(texts[i]);
	free(model);
	return NULL;
}

struct model_task *model_find_task(const struct model *model, const char *id)
{
	for (size_t i = 0; i < model->task_count; i++)
		if (!strcmp(model->tasks[i].id, id))
			return &model->tasks[i];
	return NULL;
}

static bool attempt_is_at(const json_t *attempt, const char *role, const char *stage,
			  const char *task)
{
	return !strcmp(json_text(attempt, "role"), role) &&
	       !strcmp(json_text(attempt, "stage"), stage) &&
	       !strcmp(json_text(attempt, "task"), task);
}

json_t *model_attempt(const struct model *model, const char *role, const char *stage,
		      const char *task, uint32_t number)
{
	for (size_t i = json_array_size(model->attempts); i-- > 0;) {
		json_t *attempt = json_array_get(model->attempts, i);
		if (attempt_is_at(attempt, role, stage, task) &&
		    (!number || json_int(attempt, "attempt") == (int64_t)number))
			return attempt;
	}
	return NULL;
}

uint32_t model_rejections(const struct model *model, const char *role, const char *stage,
			  const char *task)
{
	uint32_t count = 0;
	for (size_t i = 0; i < json_array_size(model->attempts); i++) {
		const json_t *attempt = json_array_get(model->attempts, i);
		if (attempt_is_at(attempt, role, stage, task) &&
		    json_is_false(json_object_get(attempt, "accepted")))
			count++;
	}
	return count;
}

json_t *model_verification(const struct model *model, const char *purpose, const char *task,
			   uint32_t attempt, const char *tree)
{
	for (size_t i = json_array_size(model->verifications); i-- > 0;) {
		json_t *record = json_array_get(model->verifications, i);
		if (!strcmp(json_text(record, "purpose"), purpose) &&
		    !strcmp(json_text(record, "task"), task) &&
		    (!attempt || json_int(record, "attempt") == (int64_t)attempt) &&
		    (!tree || !strcmp(json_text(record, "tree"), tree)))
			return record;
	}
	return NULL;
}

json_t *model_seal(const struct model *model, const char *document)
{
	return json_object_get(model->seals, document);
}

bool model_answered(const struct model *model)
{
	const json_t *seal = model_seal(model, "questions");
	if (!seal)
		return false;
	const json_t *questions = json_object_get(seal, "questions");
	for (size_t i = 0; i < json_array_size(questions); i++)
		if (!json_object_get(model->answers, json_text(json_array_get(questions, i), "id")))
			return false;
	return true;
}

/* --- folding --------------------------------------------------------------------------------- */

static int32_t corrupt(orch_error **reterr, const char *key, const char *why)
{
	return orch_fail(reterr, ORCH_ECORRUPT, 0, "journal", "record %s does not fit: %s", key,
			 why);
}

static int32_t set_text(char **target, const json_t *record, const char *member,
			orch_error **reterr)
{
	const char *text = json_string_value(json_object_get(record, member));
	char *copy = NULL;
	if (text && !(copy = strdup(text)))
		return orch_fail_memory(reterr);
	free(*target);
	*target = copy;
	return 0;
}

static void set_budget(uint64_t *target, const json_t *record, const char *member)
{
	int64_t value = json_int(record, member);
	if (value > 0)
		*target = (uint64_t)value;
}

static void set_value(json_t **target, json_t *value)
{
	json_incref(value);
	json_decref(*target);
	*target = value;
}

static int32_t fold_intake(struct model *model, const char *key, json_t *record,
			   orch_error **reterr)
{
	if (model->state)
		return corrupt(reterr, key, "the run was taken in already");
	if (!json_text(record, "run")[0])
		return corrupt(reterr, key, "no run id");
	static const struct {
		const char *member;
		size_t offset;
	} texts[] = {
		{"run", offsetof(struct model, run)},
		{"idea", offsetof(struct model, idea)},
		{"repo", offsetof(struct model, repo)},
		{"base_rev", offsetof(struct model, base_rev)},
		{"description", offsetof(struct model, description)},
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char **target = (char **)(void *)((char *)model + texts[i].offset);
		int32_t code = set_text(target, record, texts[i].member, reterr);
		if (code < 0)
			return code;
	}
	model->jobs = (uint32_t)json_int(record, "jobs");
	model->max_attempts = (uint32_t)json_int(record, "max_attempts");
	model->review = json_bool(record, "review");
	model->answer_timeout_ms = json_int(record, "answer_timeout_ms");
	set_budget(&model->max_requests, record, "max_requests");
	set_budget(&model->max_tokens, record, "max_tokens");
	set_budget(&model->max_micro_usd, record, "max_micro_usd");
	set_budget(&model->max_seconds, record, "max_seconds");
	json_t *grants = json_object_get(record, "grants");
	if (json_is_array(grants))
		set_value(&model->grants, grants);
	model->state = ORCH_RUN_INTAKE;
	model->started_ms = json_int(record, "time_ms");
	return 0;
}

static int32_t fold_instance(struct model *model, json_t *record)
{
	set_budget(&model->max_requests, record, "max_requests");
	set_budget(&model->max_tokens, record, "max_tokens");
	set_budget(&model->max_micro_usd, record, "max_micro_usd");
	set_budget(&model->max_seconds, record, "max_seconds");
	/* What an instance that died had on stays off until the new one finds it again. */
	model->overlays &= ~ORCH_OVERLAY_RECOVERING;
	model->active_ms += model->last_ms > model->instance_first_ms
				    ? model->last_ms - model->instance_first_ms
				    : 0;
	model->instance_first_ms = json_int(record, "time_ms");
	return 0;
}

static int32_t fold_run_state(struct model *model, const char *key, json_t *record,
			      orch_error **reterr)
{
	uint32_t state = run_state_by_name(json_text(record, "state"));
	if (!run_may_change(model->state, state))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "journal",
				 "record %s does not fit: the run is %s", key,
				 orch_run_state_name(model->state));
	if (run_is_over(state)) {
		int32_t code = set_text(&model->reason, record, "reason", reterr);
		if (code < 0)
			return code;
		model->ended_ms = json_int(record, "time_ms");
		model->overlays &= ORCH_OVERLAY_BUDGET_STOP;
	}
	model->state = state;
	return 0;
}

static int32_t fold_overlay(struct model *model, const char *key, json_t *record,
			    orch_error **reterr)
{
	uint32_t overlay = overlay_by_name(json_text(record, "overlay"));
	if (!overlay)
		return corrupt(reterr, key, "no such overlay");
	if (json_bool(record, "on"))
		model->overlays |= overlay;
	else
		model->overlays &= ~overlay;
	if (overlay == ORCH_OVERLAY_QUOTA_WAIT)
		model->quota_until_ms =
			json_bool(record, "on") ? json_int(record, "resets_at_ms") : 0;
	return 0;
}

static int32_t fold_close(struct model *model, json_t *record, orch_error **reterr)
{
	int32_t code = set_text(&model->close, record, "reason", reterr);
	if (code < 0)
		return code;
	if (!model->close && !(model->close = strdup("")))
		return orch_fail_memory(reterr);
	model->close_abort = json_bool(record, "abort");
	model->close_now = json_bool(record, "now");
	return 0;
}

static int32_t fold_base(struct model *model, const char *key, json_t *record, orch_error **reterr)
{
	if (!json_text(record, "tree")[0])
		return corrupt(reterr, key, "no tree");
	int32_t code = set_text(&model->base_tree, record, "tree", reterr);
	if (code == 0)
		code = set_text(&model->main_tree, record, "tree", reterr);
	if (code == 0)
		code = set_text(&model->repo_tree, record, "repo_tree", reterr);
	if (code == 0)
		code = set_text(&model->base_commit, record, "commit", reterr);
	return code;
}

static int32_t make_tasks(const json_t *list, struct model_task **ret_tasks, size_t *ret_count,
			  orch_error **reterr)
{
	size_t count = json_array_size(list);
	struct model_task *tasks = calloc(count ? count : 1, sizeof(*tasks));
	if (!tasks)
		return orch_fail_memory(reterr);
	for (size_t i = 0; i < count; i++) {
		json_t *row = json_array_get(list, i);
		json_t *requirements = json_object_get(row, "requirements");
		tasks[i].id = strdup(json_text(row, "id"));
		tasks[i].title = strdup(json_text(row, "title"));
		tasks[i].requirements = requirements ? json_incref(requirements) : json_array();
		tasks[i].state = TASK_PENDING;
		if (!tasks[i].id || !tasks[i].title || !tasks[i].requirements) {
			free_tasks(tasks, count);
			return orch_fail_memory(reterr);
		}
	}
	*ret_tasks = tasks;
	*ret_count = count;
	return 0;
}

static int32_t fold_seal(struct model *model, const char *key, json_t *record, orch_error **reterr)
{
	static const struct {
		const char *document, *role, *stage;
	} sealed_by[] = {
		{"questions", "planner", "clarify"},
		{"spec", "planner", "specify"},
		{"checks", "checker", "check"},
		{"plan", "planner", "plan"},
	};
	const char *document = json_text(record, "document");
	size_t i = 0;
	while (i < sizeof(sealed_by) / sizeof(sealed_by[0]) &&
	       strcmp(sealed_by[i].document, document))
		i++;
	if (i == sizeof(sealed_by) / sizeof(sealed_by[0]))
		return corrupt(reterr, key, "no such document");
	if (model_seal(model, document))
		return corrupt(reterr, key, "it is sealed already");
	if (!strcmp(document, "plan")) {
		int32_t code = make_tasks(json_object_get(record, "tasks"), &model->tasks,
					  &model->task_count, reterr);
		if (code < 0)
			return code;
	}
	if (!strcmp(document, "questions"))
		model->questions_ms = json_int(record, "time_ms");
	json_t *attempt = model_attempt(model, sealed_by[i].role, sealed_by[i].stage, "-",
					(uint32_t)json_int(record, "attempt"));
	if (attempt)
		json_object_set_new(attempt, "accepted", json_true());
	return json_object_set(model->seals, document, record) < 0 ? orch_fail_memory(reterr) : 0;
}

static int32_t fold_attempt(struct model *model, const char *key, json_t *record,
			    orch_error **reterr)
{
	const char *role = json_text(record, "role"), *stage = json_text(record, "stage");
	const char *task = json_text(record, "task");
	json_t *attempt =
		model_attempt(model, role, stage, task, (uint32_t)json_int(record, "attempt"));
	if (json_object_get(record, "id")) {
		if (attempt)
			return corrupt(reterr, key, "the attempt exists already");
		json_t *copy = json_copy(record);
		if (!copy ||
		    json_object_set(copy, "started_ms", json_object_get(record, "time_ms")) < 0 ||
		    json_array_append_new(model->attempts, copy) < 0)
			return orch_fail_memory(reterr);
		return 0;
	}
	if (!attempt)
		return corrupt(reterr, key, "there is no such attempt");
	/* DEATH, END or JUDGED: more members of the same attempt. */
	if (json_object_update(attempt, record) < 0)
		return orch_fail_memory(reterr);
	return 0;
}

static int32_t fold_attempt_end(struct model *model, const char *key, json_t *record,
				orch_error **reterr)
{
	int32_t code = fold_attempt(model, key, record, reterr);
	if (code < 0 || json_object_get(record, "id"))
		return code;
	json_t *attempt =
		model_attempt(model, json_text(record, "role"), json_text(record, "stage"),
			      json_text(record, "task"), (uint32_t)json_int(record, "attempt"));
	json_object_set(attempt, "ended_ms", json_object_get(record, "time_ms"));
	return json_object_set_new(attempt, "ended", json_true()) < 0 ? orch_fail_memory(reterr)
								      : 0;
}

static int32_t fold_task_state(struct model *model, const char *key, json_t *record,
			       orch_error **reterr)
{
	struct model_task *task = model_find_task(model, json_text(record, "task"));
	if (!task)
		return corrupt(reterr, key, "the plan has no such task");
	uint32_t state = task_state_by_name(json_text(record, "state"));
	if (!task_may_change(task->state, state))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "journal",
				 "record %s does not fit: the task is %s", key,
				 task_state_name(task->state));
	int32_t code = 0;
	if (state == TASK_LEASED) {
		task->attempt = (uint32_t)json_int(record, "attempt");
		code = set_text(&task->base, record, "base", reterr);
		free(task->tree);
		task->tree = NULL;
	} else if (state == TASK_SUBMITTED) {
		code = set_text(&task->tree, record, "tree", reterr);
	}
	if (code == 0)
		code = set_text(&task->reason, record, "reason", reterr);
	if (code < 0)
		return code;
	if (state == TASK_REJECTED || state == TASK_STALLED)
		task->rejections++;
	if (state == TASK_CONFLICT)
		task->conflicts++;
	json_t *evidence = json_object_get(record, "evidence");
	if (evidence)
		set_value(&task->evidence, evidence);
	task->state = state;
	task->time_ms = json_int(record, "time_ms");
	return 0;
}

static int32_t fold_merge(struct model *model, const char *key, json_t *record, orch_error **reterr)
{
	struct model_task *task = model_find_task(model, json_text(record, "task"));
	if (!task || task->state != TASK_VERIFIED)
		return corrupt(reterr, key, "only a verified task can be merged");
	if (!model->main_tree || strcmp(json_text(record, "onto"), model->main_tree))
		return corrupt(reterr, key, "it is not onto the tree that was merged last");
	int32_t code = set_text(&model->main_tree, record, "tree", reterr);
	if (code < 0)
		return code;
	return json_array_append(model->merges, record) < 0 ? orch_fail_memory(reterr) : 0;
}

static int32_t fold_append(json_t *array, json_t *record, orch_error **reterr)
{
	return json_array_append(array, record) < 0 ? orch_fail_memory(reterr) : 0;
}

static int32_t fold_review(struct model *model, json_t *record, orch_error **reterr)
{
	json_t *attempt = model_attempt(model, "reviewer", "review", json_text(record, "task"),
					(uint32_t)json_int(record, "review"));
	if (attempt)
		json_object_set_new(attempt, "accepted", json_true());
	return fold_append(model->reviews, record, reterr);
}

static int32_t fold_known(struct model *model, const char *kind, const char *key, json_t *record,
			  orch_error **reterr)
{
	if (!strcmp(kind, "run.intake"))
		return fold_intake(model, key, record, reterr);
	if (!strcmp(kind, "run.instance"))
		return fold_instance(model, record);
	if (!strcmp(kind, "run.state"))
		return fold_run_state(model, key, record, reterr);
	if (!strcmp(kind, "run.overlay"))
		return fold_overlay(model, key, record, reterr);
	if (!strcmp(kind, "run.base"))
		return fold_base(model, key, record, reterr);
	if (!strcmp(kind, "run.stop"))
		return set_text(&model->stop, record, "reason", reterr);
	if (!strcmp(kind, "run.close"))
		return fold_close(model, record, reterr);
	if (!strcmp(kind, "seal"))
		return fold_seal(model, key, record, reterr);
	if (!strcmp(kind, "attempt"))
		return fold_attempt_end(model, key, record, reterr);
	if (!strcmp(kind, "death") || !strcmp(kind, "judgement"))
		return fold_attempt(model, key, record, reterr);
	if (!strcmp(kind, "task.state"))
		return fold_task_state(model, key, record, reterr);
	if (!strcmp(kind, "merge"))
		return fold_merge(model, key, record, reterr);
	if (!strcmp(kind, "verify"))
		return fold_append(model->verifications, record, reterr);
	if (!strcmp(kind, "run.answers"))
		return fold_append(model->early, record, reterr);
	if (!strcmp(kind, "review"))
		return fold_review(model, record, reterr);
	if (!strcmp(kind, "owntests"))
		return fold_append(model->owntests, record, reterr);
	if (!strcmp(kind, "run.channels")) {
		set_value(&model->channels, json_object_get(record, "channels"));
	} else if (!strcmp(kind, "recovery")) {
		if (json_array_extend(model->recovery, json_object_get(record, "rows")) < 0)
			return corrupt(reterr, key, "no rows");
	} else if (!strcmp(kind, "answer")) {
		if (json_object_update(model->answers, json_object_get(record, "answers")) < 0)
			return corrupt(reterr, key, "no answers");
	} else if (!strcmp(kind, "accept")) {
		set_value(&model->accept, record);
	} else if (!strcmp(kind, "delivery")) {
		set_value(&model->delivery, record);
	}
	return 0;
}

static bool kind_is_ours(const char *kind)
{
	static const char *const kinds[] = {
		"run.intake",  "run.instance", "run.channels", "run.base", "run.state",
		"run.overlay", "run.stop",     "run.close",    "recovery", "answer",
		"run.answers", "seal",	       "attempt",      "death",	   "judgement",
		"task.state",  "verify",       "review",       "merge",	   "owntests",
		"accept",      "delivery"};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i], kind))
			return true;
	return false;
}

int32_t fold_record(struct model *model, const char *kind, const char *key, const void *payload,
		    size_t length, orch_error **reterr)
{
	if (!kind_is_ours(kind))
		return 0;
	json_t *record = payload ? json_loadb(payload, length, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (!json_is_object(record)) {
		json_decref(record);
		return corrupt(reterr, key, "it is not a JSON object");
	}
	int32_t code = fold_known(model, kind, key, record, reterr);
	if (code == 0) {
		model->last_ms = json_int(record, "time_ms");
		model->records++;
	}
	json_decref(record);
	return code;
}
