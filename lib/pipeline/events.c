/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline-private.h"

/* Events wait here until the loop runs: callbacks never come inside a call of the host. */
struct event_line {
	struct event_line *next;
	char *json;
};

void event_emit(orch_pipeline *p, json_t *event)
{
	if (!event || !p->event) {
		json_decref(event);
		return;
	}
	if (!json_object_get(event, "time_ms"))
		json_object_set_new(event, "time_ms", json_integer(orch_realtime_ms()));
	struct event_line *line = calloc(1, sizeof(*line));
	char *json = json_dumps(event, JSON_COMPACT);
	json_decref(event);
	if (!line || !json) {
		free(line);
		free(json);
		return;
	}
	line->json = json;
	if (!p->events_end)
		p->events_end = &p->events;
	*p->events_end = line;
	p->events_end = &line->next;
	orch_source_timer_set(p->event_timer, 0);
}

static struct event_line *pop(orch_pipeline *p)
{
	struct event_line *line = p->events;
	if (line) {
		p->events = line->next;
		if (!p->events)
			p->events_end = &p->events;
	}
	return line;
}

void events_flush(void *userdata)
{
	/* The host may drop its last reference in the callback. */
	orch_pipeline *p = orch_pipeline_ref(userdata);
	struct event_line *line;
	while ((line = pop(p))) {
		if (p->event)
			p->event(p->event_userdata, line->json);
		free(line->json);
		free(line);
	}
	orch_pipeline_unref(p);
}

void events_free(orch_pipeline *p)
{
	struct event_line *line;
	while ((line = pop(p))) {
		free(line->json);
		free(line);
	}
}

static json_t *event_new(const char *name, const json_t *record, const char *const *members)
{
	json_t *event = json_pack("{s:s}", "event", name);
	for (; event && *members; members++) {
		json_t *value = json_object_get(record, *members);
		if (value)
			json_object_set(event, *members, value);
	}
	return event;
}

#define EVENT(name, ...)                                                                           \
	event_new(name, record, (const char *const[]){__VA_ARGS__, "time_ms", NULL})

static void emit_seal(orch_pipeline *p, const json_t *record)
{
	event_emit(p, EVENT("stage", "stage", "document", "sha256", "state"));
	size_t i;
	json_t *question;
	json_array_foreach(json_object_get(record, "questions"), i, question)
	{
		json_t *event = json_copy(question);
		if (event) {
			json_object_set_new(event, "event", json_string("question"));
			event_emit(p, event);
		}
	}
}

static void emit_answers(orch_pipeline *p, json_t *record)
{
	const char *id;
	json_t *answer;
	json_object_foreach(json_object_get(record, "answers"), id, answer)
	{
		event_emit(p, json_pack("{s:s, s:s, s:O*, s:O*}", "event", "answer", "id", id,
					"text", json_object_get(answer, "text"), "by",
					json_object_get(answer, "by")));
	}
}

static void emit_task(orch_pipeline *p, const json_t *record)
{
	json_t *event = EVENT("task", "task", "state", "attempt", "reason");
	const struct model_task *task = model_find_task(p->model, json_text(record, "task"));
	if (event && task)
		json_object_set_new(event, "title", json_string(task->title));
	event_emit(p, event);
}

static void emit_attempt(orch_pipeline *p, const json_t *record)
{
	json_t *event = EVENT("attempt", "id", "role", "stage", "task", "attempt", "end", "message",
			      "refused");
	if (event && json_object_get(record, "end")) {
		const json_t *attempt = model_attempt(
			p->model, json_text(record, "role"), json_text(record, "stage"),
			json_text(record, "task"), (uint32_t)json_int(record, "attempt"));
		json_object_set(event, "id", json_object_get(attempt, "id"));
		json_t *verdict = json_object_get(attempt, "verdict");
		if (verdict)
			json_object_set(event, "verdict", verdict);
		json_object_set_new(event, "state", json_string("ENDED"));
	} else if (event) {
		json_object_set_new(event, "state", json_string("RUNNING"));
	}
	event_emit(p, event);
}

static void emit_verify(orch_pipeline *p, const json_t *record)
{
	json_t *event =
		EVENT("verify", "purpose", "task", "attempt", "tree", "all_passed", "error");
	int64_t passed = 0, failed = 0;
	size_t i;
	json_t *result;
	json_array_foreach(json_object_get(record, "results"), i, result)
	{
		if (!strcmp(json_text(result, "verdict"), "pass"))
			passed++;
		else
			failed++;
	}
	if (event) {
		json_object_set_new(event, "passed", json_integer(passed));
		json_object_set_new(event, "failed", json_integer(failed));
	}
	event_emit(p, event);
}

static void emit_stage(orch_pipeline *p, json_t *event, const char *state)
{
	if (event)
		json_object_set_new(event, "state", json_string(state));
	event_emit(p, event);
}

void event_of_record(orch_pipeline *p, const char *kind, const json_t *record)
{
	if (!strcmp(kind, "run.intake")) {
		json_t *event = EVENT("run", "run", "idea", "description");
		if (event)
			json_object_set_new(event, "state",
					    json_string(orch_run_state_name(ORCH_RUN_INTAKE)));
		event_emit(p, event);
		return;
	}
	if (!strcmp(kind, "run.state"))
		event_emit(p, EVENT("run", "state", "reason"));
	else if (!strcmp(kind, "run.overlay"))
		event_emit(p, EVENT("overlay", "overlay", "on", "reason", "resets_at_ms"));
	else if (!strcmp(kind, "recovery"))
		event_emit(p, EVENT("recovered", "rows"));
	else if (!strcmp(kind, "seal"))
		emit_seal(p, record);
	else if (!strcmp(kind, "answer"))
		emit_answers(p, (json_t *)(uintptr_t)record);
	else if (!strcmp(kind, "task.state"))
		emit_task(p, record);
	else if (!strcmp(kind, "attempt"))
		emit_attempt(p, record);
	else if (!strcmp(kind, "judgement"))
		emit_stage(
			p,
			EVENT("stage", "stage", "role", "task", "attempt", "accepted", "evidence"),
			"SENT_BACK");
	else if (!strcmp(kind, "verify"))
		emit_verify(p, record);
	else if (!strcmp(kind, "merge"))
		event_emit(p, EVENT("merge", "task", "attempt", "tree", "onto"));
	else if (!strcmp(kind, "review"))
		emit_stage(p, EVENT("stage", "stage", "task", "attempt", "veto", "reasons"),
			   json_bool(record, "veto") ? "VETO" : "NO_VETO");
	else if (!strcmp(kind, "delivery"))
		event_emit(p, EVENT("stage", "stage", "state", "commit", "branch", "tree", "path"));
}
