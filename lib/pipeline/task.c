/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "pipeline-private.h"

#define CHANGES_SHOWN 20

const struct task_plan *task_of_plan(const orch_pipeline *p, const char *id)
{
	for (size_t i = 0; p->plan && i < p->plan->count; i++)
		if (!strcmp(p->plan->tasks[i].id, id))
			return &p->plan->tasks[i];
	return NULL;
}

/* --- transitions ----------------------------------------------------------------------------- */

/* `more` is taken over and may be NULL. */
static bool move(orch_pipeline *p, const struct model_task *task, uint32_t state, uint32_t attempt,
		 const char *reason, json_t *more)
{
	json_t *record = json_pack("{s:s, s:I, s:s, s:o*}", "task", task->id, "attempt",
				   (json_int_t)attempt, "state", task_state_name(state), "reason",
				   reason ? json_foreign(reason, 4000) : NULL);
	if (record && more)
		json_object_update(record, more);
	json_decref(more);
	return run_store(p, "task.state", record, "task/%s/attempt/%u/%s", task->id, attempt,
			 task_state_name(state));
}

/* `reasons` is taken over. The first of them is the reason in short. */
static bool refuse(orch_pipeline *p, const struct model_task *task, uint32_t state, json_t *reasons)
{
	const char *first = json_string_value(json_array_get(reasons, 0));
	json_t *evidence = json_pack("{s:I, s:s, s:O}", "attempt", (json_int_t)task->attempt,
				     "result", task_state_name(state), "reasons", reasons);
	bool done = move(p, task, state, task->attempt, first ? first : "",
			 json_pack("{s:o}", "evidence", evidence));
	json_decref(reasons);
	return done;
}

static bool refuse_text(orch_pipeline *p, const struct model_task *task, uint32_t state,
			const char *text)
{
	json_t *reasons = json_array();
	json_array_append_new(reasons, json_foreign(text, 4000));
	return refuse(p, task, state, reasons);
}

/* --- which checks ---------------------------------------------------------------------------- */

static bool task_has(const struct task_plan *task, const char *requirement)
{
	for (size_t i = 0; task->requirements && task->requirements[i]; i++)
		if (!strcmp(task->requirements[i], requirement))
			return true;
	return false;
}

/* How many merges are in `tree`: the base of an attempt has those that were made before it, and no
 * later ones. */
static size_t merges_in(const orch_pipeline *p, const char *tree)
{
	for (size_t count = json_array_size(p->model->merges); count > 0; count--)
		if (!strcmp(json_text(json_array_get(p->model->merges, count - 1), "tree"), tree))
			return count;
	return 0;
}

static bool is_merged(const orch_pipeline *p, const char *id, size_t merges)
{
	for (size_t i = 0; i < merges; i++)
		if (!strcmp(json_text(json_array_get(p->model->merges, i), "task"), id))
			return true;
	return false;
}

char **task_check_ids(const orch_pipeline *p, const char *own, const char *base)
{
	char **ids = calloc(p->checks->count + 1, sizeof(*ids));
	size_t count = 0, merges = merges_in(p, base);
	for (size_t i = 0; ids && i < p->checks->count; i++) {
		bool wanted = false;
		for (size_t k = 0; k < p->plan->count && !wanted; k++) {
			const struct task_plan *task = &p->plan->tasks[k];
			wanted = (!strcmp(task->id, own) || is_merged(p, task->id, merges)) &&
				 task_has(task, p->checks->checks[i].requirement);
		}
		if (wanted)
			ids[count++] = p->checks->checks[i].id;
	}
	return ids;
}

/* `base`: the merged tree that `tree` is built on. */
static void verify_task(orch_pipeline *p, const struct model_task *task, const char *purpose,
			const char *tree, const char *base)
{
	if (judge_in_flight(p, purpose, task->id))
		return;
	char **ids = task_check_ids(p, task->id, base), **earlier = NULL;
	struct judge_set sets[2];
	size_t count = judge_sets(p, ids, sets, &earlier);
	judge_start(p, purpose, task->id, task->attempt, tree, sets, count, false, NULL);
	free(ids);
	free(earlier);
}

/* --- before an attempt ----------------------------------------------------------------------- */

static void step_pending(orch_pipeline *p, struct model_task *task)
{
	const struct task_plan *plan = task_of_plan(p, task->id);
	bool ready = true;
	for (size_t i = 0; plan->after && plan->after[i]; i++) {
		const struct model_task *before = model_find_task(p->model, plan->after[i]);
		if (before->state == TASK_BLOCKED) {
			_cleanup_free_ char *reason = orch_strdup_printf(
				"it comes after %s, which is BLOCKED", before->id);
			move(p, task, TASK_BLOCKED, task->attempt, reason, NULL);
			return;
		}
		ready = ready && before->state == TASK_MERGED;
	}
	if (ready)
		move(p, task, TASK_READY, task->attempt + 1, NULL, NULL);
}

/* --- an attempt is over ---------------------------------------------------------------------- */

static void attempt_ended(orch_pipeline *p, struct model_task *task, const json_t *attempt)
{
	const char *end = json_text(attempt, "end"), *message = json_text(attempt, "message");
	_cleanup_free_ char *text =
		orch_strdup_printf("the executor ended as %s: %s", end, message);
	if (end_is_uncounted(end)) {
		move(p, task, TASK_READY, task->attempt + 1, text, NULL);
	} else if (!strcmp(end, "STALLED") && task->state == TASK_RUNNING) {
		refuse_text(p, task, TASK_STALLED, text ? text : end);
	} else if (!strcmp(end, "FAILED") || !strcmp(end, "TIMED_OUT") || !strcmp(end, "STALLED")) {
		refuse_text(p, task, TASK_REJECTED, text ? text : end);
	} else if (json_text(attempt, "refused")[0] || !json_text(attempt, "tree")[0]) {
		refuse_text(p, task, TASK_REJECTED,
			    json_text(attempt, "refused")[0] ? json_text(attempt, "refused")
							     : "no tree was left");
	} else {
		move(p, task, TASK_SUBMITTED, task->attempt, NULL,
		     json_pack("{s:s}", "tree", json_text(attempt, "tree")));
	}
}

static void step_leased(orch_pipeline *p, struct model_task *task)
{
	const json_t *attempt =
		model_attempt(p->model, "executor", "execute", task->id, task->attempt);
	if (!attempt) {
		if (step_may_start_attempt(p))
			attempt_start(p, ORCH_ROLE_EXECUTOR, "execute", task->id, task->base);
	} else if (json_bool(attempt, "ended")) {
		attempt_ended(p, task, attempt);
	}
}

/* --- a new attempt --------------------------------------------------------------------------- */

/* READY, or refused and to be done again: a new attempt on the tree as it is now. */
static void step_ready(orch_pipeline *p, struct model_task *task)
{
	uint32_t limit = p->model->max_attempts;
	if (task->rejections >= limit || task->conflicts >= limit) {
		_cleanup_free_ char *reason =
			orch_strdup_printf("%u attempts: %s", task->rejections + task->conflicts,
					   task->reason ? task->reason : "");
		move(p, task, TASK_BLOCKED, task->attempt, reason, NULL);
		return;
	}
	if (!step_may_start_attempt(p) || attempt_count(p) >= p->model->jobs)
		return;
	if (move(p, task, TASK_LEASED, task->attempt + 1, NULL,
		 json_pack("{s:s}", "base", p->model->main_tree)))
		step_leased(p, task);
}

/* --- what was submitted ---------------------------------------------------------------------- */

struct changes {
	const struct task_plan *task;
	json_t *reasons;
	size_t count, outside;
};

static int32_t judge_change(void *userdata, char change, const char *path)
{
	struct changes *changes = userdata;
	changes->count++;
	bool sealed = !strcmp(path, ORCH_FOLDER) ||
		      !strncmp(path, ORCH_FOLDER "/", strlen(ORCH_FOLDER) + 1);
	if (!sealed && write_set_covers(changes->task->writes, path))
		return 0;
	if (changes->outside++ >= CHANGES_SHOWN)
		return 0;
	static const char *const words[] = {"added", "modified", "deleted"};
	const char *word = words[change == TREE_ADDED ? 0 : change == TREE_MODIFIED ? 1 : 2];
	_cleanup_buf_ struct orch_buf text = {0};
	orch_buf_puts(&text, path);
	orch_buf_printf(&text, " was %s, which is outside of what the task may change", word);
	json_array_append_new(changes->reasons, json_foreign(text.data ? text.data : path, 2000));
	return 0;
}

/* What the executor itself says of a task that can not be done. It proves nothing, but the user
 * should read it. */
static void add_impossible(orch_pipeline *p, const json_t *attempt, json_t *reasons)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	if (workspace_answer(p, attempt, "impossible.txt", &bytes, &length, NULL) < 0)
		return;
	_cleanup_free_ char *said = strndup(bytes, length);
	_cleanup_free_ char *text =
		orch_strdup_printf("the executor says that it is impossible: %s", said ? said : "");
	json_array_append_new(reasons, json_foreign(text, 2000));
}

/*
 * 0: fine; 1: the task was refused or blocked. An operation counts when the journal has it, whoever
 * says what.
 */
static int check_operation(orch_pipeline *p, struct model_task *task,
			   const struct task_operation *operation)
{
	orch_error *error = NULL;
	orch_action *action = NULL;
	_cleanup_free_ char *key = orch_strdup_printf("%s/%s", p->model->run, operation->key);
	int32_t code = key ? orch_journal_find(p->journal, key, &action, &error)
			   : orch_fail_memory(&error);
	if (code < 0 && code != ORCH_ENOENT) {
		pipeline_fail(p, error);
		return 1;
	}
	error = orch_error_free(error);
	uint32_t state = action ? orch_action_state(action) : 0;
	bool right = action && !strcmp(orch_action_kind(action), operation->type);
	if (right && state == ORCH_ACTION_OBSERVED) {
		if (orch_action_confirm(action, &error) < 0 &&
		    orch_error_code(error) != ORCH_ESTATE) {
			pipeline_fail(p, error);
			orch_action_unref(action);
			return 1;
		}
		error = orch_error_free(error);
		state = ORCH_ACTION_CONFIRMED;
	}
	orch_action_unref(action);
	if (right && state == ORCH_ACTION_CONFIRMED)
		return 0;
	_cleanup_free_ char *text = orch_strdup_printf(
		"the operation %s with key %s is not recorded as done (%s)", operation->type,
		operation->key, right ? orch_action_state_name(state) : "it was never asked for");
	/* Nobody can tell whether it happened: to do the task again would be to do that again. */
	if (right && (state == ORCH_ACTION_UNKNOWN || state == ORCH_ACTION_HANDED_OVER ||
		      state == ORCH_ACTION_DISPATCHED))
		move(p, task, TASK_BLOCKED, task->attempt, text, NULL);
	else
		refuse_text(p, task, TASK_REJECTED,
			    text ? text : "an operation is not recorded as done");
	return 1;
}

static void step_submitted(orch_pipeline *p, struct model_task *task)
{
	const struct task_plan *plan = task_of_plan(p, task->id);
	const json_t *attempt =
		model_attempt(p->model, "executor", "execute", task->id, task->attempt);
	struct changes changes = {.task = plan, .reasons = json_array()};
	orch_error *error = NULL;
	if (tree_changes(p->trees_dir, task->base, task->tree, judge_change, &changes, &error) <
	    0) {
		json_decref(changes.reasons);
		pipeline_fail(p, error);
		return;
	}
	if (!changes.count && attempt)
		add_impossible(p, attempt, changes.reasons);
	if (json_array_size(changes.reasons)) {
		refuse(p, task, TASK_REJECTED, changes.reasons);
		return;
	}
	json_decref(changes.reasons);
	for (size_t i = 0; i < plan->operation_count; i++)
		if (check_operation(p, task, &plan->operations[i]))
			return;
	move(p, task, TASK_VERIFYING, task->attempt, NULL, NULL);
}

static void step_verifying(orch_pipeline *p, struct model_task *task)
{
	const json_t *record =
		model_verification(p->model, "task", task->id, task->attempt, task->tree);
	if (!record)
		verify_task(p, task, "task", task->tree, task->base);
	else if (json_bool(record, "all_passed"))
		move(p, task, TASK_VERIFIED, task->attempt, NULL, NULL);
	else
		refuse(p, task, TASK_REJECTED, judge_evidence(record, false));
}

/* --- review ---------------------------------------------------------------------------------- */

static const json_t *find_review(const orch_pipeline *p, const struct model_task *task)
{
	for (size_t i = json_array_size(p->model->reviews); i-- > 0;) {
		const json_t *review = json_array_get(p->model->reviews, i);
		if (!strcmp(json_text(review, "task"), task->id) &&
		    json_int(review, "attempt") == task->attempt)
			return review;
	}
	return NULL;
}

/* Review attempts of this very submission that left nothing usable. */
static uint32_t failed_reviews(const orch_pipeline *p, const struct model_task *task)
{
	uint32_t count = 0;
	for (size_t i = 0; i < json_array_size(p->model->attempts); i++) {
		const json_t *attempt = json_array_get(p->model->attempts, i);
		if (!strcmp(json_text(attempt, "stage"), "review") &&
		    !strcmp(json_text(attempt, "task"), task->id) &&
		    json_int(attempt, "of") == task->attempt &&
		    json_is_false(json_object_get(attempt, "accepted")))
			count++;
	}
	return count;
}

static void take_review(orch_pipeline *p, struct model_task *task, const json_t *attempt)
{
	_cleanup_free_ void *bytes = NULL;
	_cleanup_free_ char *reasons = NULL;
	size_t length = 0;
	bool veto = false;
	orch_error *error = NULL;
	int32_t code = workspace_answer(p, attempt, "review.json", &bytes, &length, &error);
	if (code == 0)
		code = review_parse("review.json", bytes, length, &veto, &reasons, &error);
	if (code == 0) {
		run_store(p, "review",
			  json_pack("{s:s, s:s, s:I, s:O*, s:b, s:o}", "stage", "review", "task",
				    task->id, "attempt", (json_int_t)task->attempt, "review",
				    json_object_get(attempt, "attempt"), "veto", veto, "reasons",
				    json_foreign(reasons ? reasons : "", 8000)),
			  "review/%s/%u", task->id, task->attempt);
		return;
	}
	if (code == ORCH_ENOMEM) {
		pipeline_fail(p, error);
		return;
	}
	json_t *list = json_array();
	json_array_append_new(list, json_foreign(orch_error_message(error), 4000));
	orch_error_free(error);
	run_store(p, "judgement",
		  json_pack("{s:s, s:s, s:s, s:O*, s:b, s:o}", "role", "reviewer", "stage",
			    "review", "task", task->id, "attempt",
			    json_object_get(attempt, "attempt"), "accepted", 0, "evidence",
			    json_pack("{s:O*, s:s, s:o}", "attempt",
				      json_object_get(attempt, "attempt"), "result", "sent back",
				      "reasons", list)),
		  "attempt/reviewer-review-%s/%lld/JUDGED", task->id,
		  (long long)json_int(attempt, "attempt"));
}

/* True when the review says nothing against it. */
static bool is_reviewed(orch_pipeline *p, struct model_task *task)
{
	const json_t *review = find_review(p, task);
	if (review && !json_bool(review, "veto"))
		return true;
	if (review) {
		_cleanup_free_ char *text =
			orch_strdup_printf("the reviewer's veto: %s", json_text(review, "reasons"));
		refuse_text(p, task, TASK_REJECTED, text ? text : "the reviewer's veto");
		return false;
	}
	const json_t *attempt = model_attempt(p->model, "reviewer", "review", task->id, 0);
	if (attempt && json_int(attempt, "of") == task->attempt) {
		if (!json_bool(attempt, "ended"))
			return false;
		if (!json_object_get(attempt, "accepted") &&
		    !end_is_uncounted(json_text(attempt, "end"))) {
			take_review(p, task, attempt);
			return false;
		}
	}
	if (failed_reviews(p, task) >= p->model->max_attempts) {
		move(p, task, TASK_BLOCKED, task->attempt,
		     "the reviewer left no usable review; that approves nothing", NULL);
		return false;
	}
	if (step_may_start_attempt(p) && attempt_count(p) < p->model->jobs)
		attempt_start(p, ORCH_ROLE_REVIEWER, "review", task->id, task->tree);
	return false;
}

/* --- merge ----------------------------------------------------------------------------------- */

static void record_merge(orch_pipeline *p, struct model_task *task, const char *tree,
			 const char *purpose)
{
	if (run_store(p, "merge",
		      json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "task", task->id, "title",
				task->title, "attempt", (json_int_t)task->attempt, "tree", tree,
				"onto", p->model->main_tree, "verify", purpose),
		      "merge/%s", task->id))
		move(p, task, TASK_MERGED, task->attempt, NULL, NULL);
}

static const json_t *find_merge(const orch_pipeline *p, const char *task)
{
	for (size_t i = 0; i < json_array_size(p->model->merges); i++)
		if (!strcmp(json_text(json_array_get(p->model->merges, i), "task"), task))
			return json_array_get(p->model->merges, i);
	return NULL;
}

static void conflict(orch_pipeline *p, struct model_task *task, const char *what, json_t *reasons)
{
	json_array_insert_new(reasons, 0, json_string(what));
	refuse(p, task, TASK_CONFLICT, reasons);
}

/*
 * One at a time: the tree moved on since this task's base, so what is verified is the merged tree,
 * and exactly that is merged.
 */
static void integrate(orch_pipeline *p, struct model_task *task)
{
	char merged[TREE_HASH_SIZE];
	orch_error *error = NULL;
	int32_t code = tree_merge(p->trees_dir, task->base, p->model->main_tree, task->tree, merged,
				  &error);
	if (code == ORCH_ECONFLICT) {
		json_t *reasons = json_array();
		json_array_append_new(reasons, json_foreign(orch_error_message(error), 4000));
		orch_error_free(error);
		conflict(p, task,
			 "another task changed the same files meanwhile: do it again on the new "
			 "base",
			 reasons);
		return;
	}
	if (code < 0) {
		pipeline_fail(p, error);
		return;
	}
	const json_t *record =
		model_verification(p->model, "merged", task->id, task->attempt, merged);
	if (!record)
		verify_task(p, task, "merged", merged, p->model->main_tree);
	else if (json_bool(record, "all_passed"))
		record_merge(p, task, merged, "merged");
	else
		conflict(p, task,
			 "on the tree that others changed meanwhile it does not pass: do it again "
			 "on the new base",
			 judge_evidence(record, false));
}

static void step_verified(orch_pipeline *p, struct model_task *task)
{
	if (find_merge(p, task->id)) {
		move(p, task, TASK_MERGED, task->attempt, NULL, NULL);
		return;
	}
	if (p->model->review && !is_reviewed(p, task))
		return;
	if (p->integrating && strcmp(p->integrating, task->id))
		return;
	if (!p->integrating && !(p->integrating = strdup(task->id)))
		return;
	if (!strcmp(p->model->main_tree, task->base))
		record_merge(p, task, task->tree, "task");
	else
		integrate(p, task);
	if (task->state != TASK_VERIFIED) {
		free(p->integrating);
		p->integrating = NULL;
	}
}

/* --- all of them ----------------------------------------------------------------------------- */

static void step_task(orch_pipeline *p, struct model_task *task)
{
	switch (task->state) {
	case TASK_PENDING:
		step_pending(p, task);
		break;
	case TASK_READY:
	case TASK_STALLED:
	case TASK_REJECTED:
	case TASK_CONFLICT:
		step_ready(p, task);
		break;
	case TASK_LEASED:
	case TASK_RUNNING:
		step_leased(p, task);
		break;
	case TASK_SUBMITTED:
		step_submitted(p, task);
		break;
	case TASK_VERIFYING:
		step_verifying(p, task);
		break;
	case TASK_VERIFIED:
		step_verified(p, task);
		break;
	case TASK_MERGED:
	case TASK_BLOCKED:
		break;
	}
}

void task_step(orch_pipeline *p)
{
	/* What is furthest goes first: a merge frees others, and a review should not wait for new
	 * work. */
	static const uint32_t order[] = {
		TASK_VERIFIED, TASK_VERIFYING, TASK_SUBMITTED, TASK_RUNNING, TASK_LEASED,
		TASK_CONFLICT, TASK_REJECTED,  TASK_STALLED,   TASK_READY,   TASK_PENDING};
	for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++)
		for (size_t i = 0; i < p->model->task_count && !p->failure; i++)
			if (p->model->tasks[i].state == order[k])
				step_task(p, &p->model->tasks[i]);
}
