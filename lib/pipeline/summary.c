/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "pipeline-private.h"

static json_t *attempt_rows(const orch_pipeline *p)
{
	json_t *rows = json_array();
	size_t i;
	json_t *attempt;
	json_array_foreach(p->model->attempts, i, attempt)
	{
		int64_t ms = json_int(attempt, "ended_ms") - json_int(attempt, "started_ms");
		const char *certificate = json_text(attempt, "certificate");
		bool lost = !strcmp(json_text(attempt, "end"), "LOST");
		json_array_append_new(
			rows,
			json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:f, "
				  "s:I, s:I, s:I, s:s*, s:b}",
				  "id", json_text(attempt, "id"), "role",
				  json_text(attempt, "role"), "stage", json_text(attempt, "stage"),
				  "task", json_text(attempt, "task"), "attempt",
				  (json_int_t)json_int(attempt, "attempt"), "end",
				  json_text(attempt, "end"), "message",
				  json_text(attempt, "message"), "verdict",
				  lost ? "LOST" : json_text(attempt, "verdict"), "certificate",
				  lost ? "The coordinator was killed during this attempt: no "
					 "certificate was made. Its "
					 "scope ends with the coordinator, by the kernel."
				       : certificate,
				  "started_at_ms", (json_int_t)json_int(attempt, "started_ms"),
				  "ended_at_ms", (json_int_t)json_int(attempt, "ended_ms"),
				  "seconds", ms > 0 ? (double)ms / 1000.0 : 0.0, "requests",
				  (json_int_t)json_int(attempt, "requests"), "tokens",
				  (json_int_t)json_int(attempt, "tokens"), "micro_usd",
				  (json_int_t)json_int(attempt, "micro_usd"), "executor",
				  json_string_value(json_object_get(attempt, "executor")),
				  "counted", !end_is_uncounted(json_text(attempt, "end"))));
	}
	return rows;
}

static json_t *certificate_texts(const json_t *certificates)
{
	json_t *texts = json_array();
	size_t i;
	json_t *row;
	json_array_foreach(certificates, i, row)
	{
		_cleanup_free_ char *text =
			orch_strdup_printf("%s, the %s's scope:\n%s", json_text(row, "check"),
					   json_text(row, "of"), json_text(row, "text"));
		json_array_append_new(texts, json_string(text ? text : ""));
	}
	return texts;
}

static json_t *verification_rows(const orch_pipeline *p)
{
	json_t *rows = json_array();
	size_t i;
	json_t *record;
	json_array_foreach(p->model->verifications, i, record)
	{
		const char *purpose = json_text(record, "purpose"),
			   *task = json_text(record, "task");
		bool of_task = strcmp(task, NO_TASK) != 0;
		_cleanup_free_ char *id = orch_strdup_printf("%s%s%s", purpose, of_task ? " " : "",
							     of_task ? task : "");
		json_array_append_new(
			rows,
			json_pack("{s:s*, s:s, s:s, s:s, s:I, s:b, s:s*, s:O*, s:o}", "id", id,
				  "purpose", purpose, "task", task, "tree",
				  json_text(record, "tree"), "attempt",
				  (json_int_t)json_int(record, "attempt"), "all_passed",
				  json_bool(record, "all_passed"), "error",
				  json_string_value(json_object_get(record, "error")), "results",
				  json_object_get(record, "results"), "certificates",
				  certificate_texts(json_object_get(record, "certificates"))));
	}
	return rows;
}

/* --- actions --------------------------------------------------------------------------------- */

struct unknown {
	json_t *rows;
	const json_t *recorded;
};

static bool is_recorded(const json_t *rows, const char *key)
{
	size_t i;
	json_t *row;
	json_array_foreach((json_t *)(uintptr_t)rows, i, row)
	{
		if (!strcmp(json_text(row, "key"), key))
			return true;
	}
	return false;
}

/* What is still open, or was found to be unknown without a restart. */
static int32_t add_unknown(void *userdata, orch_action *action)
{
	struct unknown *unknown = userdata;
	uint32_t state = orch_action_state(action);
	const char *key = orch_action_key(action);
	if ((state != ORCH_ACTION_UNKNOWN && state != ORCH_ACTION_HANDED_OVER) ||
	    is_recorded(unknown->recorded, key))
		return 0;
	json_array_append_new(unknown->rows,
			      json_pack("{s:s, s:o, s:s, s:s, s:s}", "kind",
					orch_action_kind(action), "key", json_foreign(key, 255),
					"state_before", orch_action_state_name(state), "probe", "",
					"decision",
					state == ORCH_ACTION_HANDED_OVER ? "a person decides"
									 : "open: not repeated"));
	return 0;
}

static json_t *unknown_rows(const orch_pipeline *p, orch_error **reterr)
{
	static const char *const kinds[] = {"notify.", "ai."};
	struct unknown unknown = {.rows = json_deep_copy(p->model->recovery),
				  .recorded = p->model->recovery};
	for (size_t i = 0; unknown.rows && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (orch_journal_each(p->journal, kinds[i], add_unknown, &unknown, reterr) < 0) {
			json_decref(unknown.rows);
			return NULL;
		}
	}
	return unknown.rows;
}

/* --- requirements, tasks --------------------------------------------------------------------- */

static json_t *checks_of(const orch_pipeline *p, const char *requirement)
{
	json_t *ids = json_array();
	size_t i;
	json_t *row;
	json_array_foreach(json_object_get(model_seal(p->model, "checks"), "checks"), i, row)
	{
		if (!strcmp(json_text(row, "requirement"), requirement))
			json_array_append(ids, json_object_get(row, "id"));
	}
	return ids;
}

static bool task_has(const struct model_task *task, const char *requirement)
{
	size_t i;
	json_t *id;
	json_array_foreach(task->requirements, i, id)
	{
		if (!strcmp(json_string_value(id), requirement))
			return true;
	}
	return false;
}

/* The cost of a task's attempts, shared by its requirements. */
static int64_t cost_of(const orch_pipeline *p, const struct model_task *task)
{
	int64_t sum = 0;
	size_t i;
	json_t *attempt;
	json_array_foreach(p->model->attempts, i, attempt)
	{
		if (!strcmp(json_text(attempt, "task"), task->id))
			sum += json_int(attempt, "micro_usd");
	}
	size_t count = json_array_size(task->requirements);
	return count ? sum / (int64_t)count : 0;
}

static json_t *requirement_rows(const orch_pipeline *p)
{
	json_t *rows = json_array();
	size_t i;
	json_t *requirement;
	json_array_foreach(json_object_get(model_seal(p->model, "spec"), "requirements"), i,
			   requirement)
	{
		const char *id = json_text(requirement, "id");
		_cleanup_buf_ struct orch_buf tasks = {0};
		int64_t cost = 0;
		for (size_t k = 0; k < p->model->task_count; k++) {
			if (!task_has(&p->model->tasks[k], id))
				continue;
			orch_buf_printf(&tasks, "%s%s", tasks.length ? ", " : "",
					p->model->tasks[k].id);
			cost += cost_of(p, &p->model->tasks[k]);
		}
		bool verified = finish_is_accepted(p, id);
		json_array_append_new(
			rows,
			json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:I}", "id", id, "title",
				  json_text(requirement, "title"), "state",
				  verified ? "verified" : "not verified", "checks",
				  checks_of(p, id), "tree",
				  verified ? json_text(p->model->accept, "product_tree") : "",
				  "commit", verified ? json_text(p->model->delivery, "commit") : "",
				  "task", tasks.data ? tasks.data : "", "micro_usd",
				  (json_int_t)cost));
	}
	return rows;
}

static json_t *task_rows(const orch_pipeline *p)
{
	json_t *rows = json_array();
	for (size_t i = 0; i < p->model->task_count; i++) {
		const struct model_task *task = &p->model->tasks[i];
		json_array_append_new(
			rows,
			json_pack("{s:s, s:s, s:s, s:I, s:O*, s:s}", "id", task->id, "title",
				  task->title, "state", task_state_name(task->state), "attempts",
				  (json_int_t)task->attempt, "requirements", task->requirements,
				  "reason",
				  task->state != TASK_MERGED && task->reason ? task->reason : ""));
	}
	return rows;
}

static json_t *question_rows(const orch_pipeline *p)
{
	json_t *rows = json_array();
	size_t i;
	json_t *question;
	json_array_foreach(json_object_get(model_seal(p->model, "questions"), "questions"), i,
			   question)
	{
		const json_t *answer =
			json_object_get(p->model->answers, json_text(question, "id"));
		json_array_append_new(
			rows, json_pack("{s:s, s:s, s:s, s:s}", "id", json_text(question, "id"),
					"text", json_text(question, "text"), "answer",
					json_text(answer, "text"), "by", json_text(answer, "by")));
	}
	return rows;
}

static json_t *seal_hashes(const orch_pipeline *p)
{
	json_t *hashes = json_object();
	const char *document;
	json_t *record;
	json_object_foreach(p->model->seals, document, record)
	{
		json_object_set(hashes, document, json_object_get(record, "sha256"));
	}
	return hashes;
}

/* A word that a shell reads as it is. */
static char *quoted(const char *word)
{
	struct orch_buf text = {0};
	orch_buf_puts(&text, "'");
	for (; *word; word++) {
		if (*word == '\'')
			orch_buf_puts(&text, "'\\''");
		else
			orch_buf_add(&text, word, 1);
	}
	orch_buf_puts(&text, "'");
	return text.data;
}

static json_t *product(const orch_pipeline *p)
{
	const json_t *delivery = p->model->delivery;
	if (!delivery)
		return json_null();
	const char *branch = json_text(delivery, "branch");
	_cleanup_free_ char *path = quoted(p->product_dir);
	_cleanup_free_ char *repo = p->model->repo ? quoted(p->model->repo) : NULL;
	json_t *commands = json_array();
	_cleanup_free_ char *first =
		repo ? orch_strdup_printf("git -C %s fetch %s %s:%s", repo, path, branch, branch)
		     : orch_strdup_printf("git clone %s", path);
	_cleanup_free_ char *second = repo ? orch_strdup_printf("git -C %s diff %s..%s", repo,
								p->model->base_commit, branch)
					   : orch_strdup_printf("git -C %s log --stat", path);
	json_array_append_new(commands, json_string(first ? first : ""));
	json_array_append_new(commands, json_string(second ? second : ""));
	json_t *start = json_array();
	for (char **word = p->spec ? p->spec->start : NULL; word && *word; word++)
		json_array_append_new(start, json_string(*word));
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "path", p->product_dir,
			 "commit", json_text(delivery, "commit"), "branch", branch, "tree",
			 json_text(delivery, "tree"), "title", p->spec ? p->spec->title : "",
			 "kind", p->spec && p->spec->product_kind == PRODUCT_HTTP ? "http" : "cli",
			 "start", start, "fetch", commands);
}

/* --- the whole ------------------------------------------------------------------------------- */

static void set(json_t *report, const char *name, json_t *value)
{
	json_object_set_new(report, name, value ? value : json_null());
}

int32_t summary_report(orch_pipeline *p, json_t **ret_report, orch_error **reterr)
{
	const struct model *model = p->model;
	struct spending spending;
	int32_t code = run_spending(p->journal, &spending, reterr);
	if (code < 0)
		return code;
	json_t *unknown = unknown_rows(p, reterr);
	if (!unknown)
		return orch_fail_memory(reterr);
	json_t *report = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "run", model->run,
				   "state", orch_run_state_name(model->state), "reason",
				   model->reason ? model->reason : "", "idea", model->idea,
				   "description", model->description ? model->description : "",
				   "started_at_ms", (json_int_t)model->started_ms, "ended_at_ms",
				   (json_int_t)model->ended_ms);
	if (!report) {
		json_decref(unknown);
		return orch_fail_memory(reterr);
	}
	set(report, "channels", model->channels ? json_incref(model->channels) : json_array());
	set(report, "attempts", attempt_rows(p));
	set(report, "verifications", verification_rows(p));
	set(report, "unknown_actions", unknown);
	set(report, "requirements", requirement_rows(p));
	set(report, "tasks", task_rows(p));
	set(report, "reviews", json_incref(model->reviews));
	set(report, "seals", seal_hashes(p));
	set(report, "questions", question_rows(p));
	set(report, "own_tests", json_incref(model->owntests));
	set(report, "earlier_note", p->earlier_note ? json_string(p->earlier_note) : NULL);
	set(report, "base",
	    json_pack("{s:s*, s:s*, s:s*}", "repo", model->repo, "commit", model->base_commit,
		      "tree", model->base_tree));
	set(report, "spent",
	    json_pack("{s:I, s:I, s:I}", "requests", (json_int_t)spending.requests, "tokens",
		      (json_int_t)spending.tokens, "micro_usd", (json_int_t)spending.micro_usd));
	set(report, "budget",
	    json_pack("{s:I, s:I, s:I, s:I}", "requests", (json_int_t)model->max_requests, "tokens",
		      (json_int_t)model->max_tokens, "micro_usd", (json_int_t)model->max_micro_usd,
		      "seconds", (json_int_t)model->max_seconds));
	set(report, "product", product(p));
	set(report, "records", json_integer((json_int_t)orch_journal_sequence(p->journal)));
	set(report, "invariants", invariants_check(p));
	*ret_report = report;
	return 0;
}
