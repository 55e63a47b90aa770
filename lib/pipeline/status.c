/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "pipeline-private.h"

static json_t *overlay_names(uint32_t overlays)
{
	json_t *names = json_array();
	for (uint32_t bit = ORCH_OVERLAY_QUOTA_WAIT; bit <= ORCH_OVERLAY_RECOVERING; bit <<= 1)
		if (overlays & bit)
			json_array_append_new(names, json_string(overlay_name(bit)));
	return names;
}

static json_t *stage_rows(const struct model *model)
{
	static const struct {
		const char *stage, *role, *document;
	} stages[] = {
		{"clarify", "planner", "questions"},
		{"specify", "planner", "spec"},
		{"check", "checker", "checks"},
		{"plan", "planner", "plan"},
	};
	json_t *rows = json_array();
	for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
		const json_t *attempt =
			model_attempt(model, stages[i].role, stages[i].stage, "-", 0);
		const char *state = model_seal(model, stages[i].document) ? "SEALED"
				    : !attempt				  ? "PENDING"
				    : json_bool(attempt, "ended")	  ? "JUDGED"
									  : "RUNNING";
		json_array_append_new(rows,
				      json_pack("{s:s, s:s, s:s, s:I}", "stage", stages[i].stage,
						"role", stages[i].role, "state", state, "attempts",
						(json_int_t)json_int(attempt, "attempt")));
	}
	return rows;
}

static json_t *task_rows(const struct model *model)
{
	json_t *rows = json_array();
	for (size_t i = 0; i < model->task_count; i++) {
		const struct model_task *task = &model->tasks[i];
		json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:I, s:O*, s:s}", "id",
						      task->id, "title", task->title, "state",
						      task_state_name(task->state), "attempts",
						      (json_int_t)task->attempt, "requirements",
						      task->requirements, "reason",
						      task->reason ? task->reason : ""));
	}
	return rows;
}

static json_t *question_rows(const struct model *model)
{
	json_t *rows = json_deep_copy(json_object_get(model_seal(model, "questions"), "questions"));
	size_t i;
	json_t *row;
	if (!rows)
		return json_array();
	json_array_foreach(rows, i, row)
	{
		const json_t *answer = json_object_get(model->answers, json_text(row, "id"));
		if (!answer)
			continue;
		json_object_set_new(row, "answer", json_string(json_text(answer, "text")));
		json_object_set_new(row, "by", json_string(json_text(answer, "by")));
	}
	return rows;
}

/* Without an instance in hand nothing runs: what has no end is lost, and a new instance will say
 * so. */
static json_t *running_rows(const struct model *model)
{
	json_t *rows = json_array();
	size_t i;
	json_t *attempt;
	json_array_foreach(model->attempts, i, attempt)
	{
		if (json_bool(attempt, "ended"))
			continue;
		json_array_append_new(
			rows,
			json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "id", json_text(attempt, "id"),
				  "role", json_text(attempt, "role"), "stage",
				  json_text(attempt, "stage"), "task", json_text(attempt, "task"),
				  "attempt", (json_int_t)json_int(attempt, "attempt"),
				  "started_at_ms", (json_int_t)json_int(attempt, "started_ms")));
	}
	return rows;
}

int32_t status_json(const struct model *model, orch_journal *journal, char **ret_json,
		    orch_error **reterr)
{
	struct spending spent;
	int32_t code = run_spending(journal, &spent, reterr);
	if (code < 0)
		return code;
	uint32_t state = model->state ? model->state : ORCH_RUN_INTAKE;
	json_t *status = json_pack(
		"{s:s, s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:{s:I, s:I, "
		"s:I}, "
		"s:{s:I, s:I, s:I, s:I}, "
		"s:O*}",
		"run", model->run ? model->run : "", "state", orch_run_state_name(state), "reason",
		model->reason  ? model->reason
		: model->stop  ? model->stop
		: model->close ? model->close
			       : "",
		"idea", model->idea ? model->idea : "", "description",
		model->description ? model->description : "", "overlays",
		overlay_names(model->overlays), "started_at_ms", (json_int_t)model->started_ms,
		"ended_at_ms", (json_int_t)model->ended_ms, "records", (json_int_t)model->records,
		"stages", stage_rows(model), "tasks", task_rows(model), "questions",
		question_rows(model), "attempts", running_rows(model), "spent", "requests",
		(json_int_t)spent.requests, "tokens", (json_int_t)spent.tokens, "micro_usd",
		(json_int_t)spent.micro_usd, "budget", "requests", (json_int_t)model->max_requests,
		"tokens", (json_int_t)model->max_tokens, "micro_usd",
		(json_int_t)model->max_micro_usd, "seconds", (json_int_t)model->max_seconds,
		"delivery", model->delivery);
	char *text = status ? json_dumps(status, JSON_COMPACT) : NULL;
	json_decref(status);
	if (!text)
		return orch_fail_memory(reterr);
	*ret_json = text;
	return 0;
}

int32_t orch_pipeline_status_of(const char *state_dir, char **ret_json, orch_error **reterr)
{
	if (!state_dir || !ret_json)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL",
				 state_dir ? "ret_json" : "state_dir");
	_cleanup_free_ char *path = path_join(state_dir, "journal.db");
	if (!path)
		return orch_fail_memory(reterr);
	if (access(path, F_OK) < 0)
		return orch_fail(reterr, ORCH_ENOENT, errno, NULL, "there is no run in %s",
				 state_dir);
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_JOURNAL_READ_ONLY;
	opts.path = path;
	orch_journal *journal = NULL;
	struct model *model = NULL;
	int32_t code = model_new(&model, reterr);
	if (code == 0)
		code = orch_journal_open(&opts, &journal, reterr);
	if (code == 0)
		code = run_load(journal, model, reterr);
	if (code == 0 && !model->state)
		code = orch_fail(reterr, ORCH_ENOENT, 0, NULL, "the journal in %s has no run yet",
				 state_dir);
	if (code == 0)
		code = status_json(model, journal, ret_json, reterr);
	orch_journal_unref(journal);
	model_free(model);
	return code;
}
