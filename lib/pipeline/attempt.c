/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "../executor/executor-private.h"
#include "pipeline-private.h"

/* So many failed connections, or so long without a success, and nobody is there. */
#define UNREACHABLE_REQUESTS 3
#define UNREACHABLE_MS 4000
/* A client that is to wait longer than this for its quota does not do it inside an attempt. */
#define QUOTA_PATIENCE_MS 3000
/* Before the provider is tried once more. */
#define UNREACHABLE_PAUSE_US 1000000
/* The broker's answer when a budget is spent for good. */
#define BUDGET_SPENT_STATUS 402
#define EVENTS_LIMIT (8u * 1024u * 1024u)
#define EVENT_TEXT_LIMIT 2000
#define AGENT_TEXT_LIMIT 400

enum phase { PHASE_NEW, PHASE_STARTING, PHASE_RUNNING, PHASE_STOPPING, PHASE_OVER };

struct attempt {
	unsigned references;	 /* the list's, and one for each callback that may still come */
	orch_pipeline *pipeline; /* NULL: abandoned */
	struct attempt *next;
	enum phase phase;
	uint32_t role, number;
	char *id, *stage, *task;

	struct workspace workspace;
	char *packet;
	orch_executor *executor;
	orch_sandbox *sandbox;
	orch_principal *principal;
	orch_job *job; /* borrowed until it is done */
	orch_source *timer;
	int events_fd;
	size_t events_bytes;

	bool revoked, stopped;
	char *end, *message;
	int32_t status;
	char *verdict, *certificate;
	uint32_t settled, unknown;

	bool reached; /* the provider answered at least once */
	uint32_t misses;
	int64_t first_miss_us;
	char *miss;		    /* what was wrong with the last */
	int64_t quota_resets_at_ms; /* of the last answer, if that was a refusal for quota */
};

static struct attempt *attempt_ref(struct attempt *attempt)
{
	attempt->references++;
	return attempt;
}

static void attempt_unref(void *object)
{
	struct attempt *attempt = object;
	if (--attempt->references > 0)
		return;
	char *const texts[] = {attempt->id,
			       attempt->stage,
			       attempt->task,
			       attempt->packet,
			       attempt->end,
			       attempt->message,
			       attempt->verdict,
			       attempt->certificate,
			       attempt->workspace.dir,
			       attempt->workspace.in_dir,
			       attempt->miss};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(texts[i]);
	orch_close_fd(&attempt->events_fd);
	free(attempt);
}

/* Lets go of everything that lives. What it still had in the sandbox dies with that. */
static void attempt_release(struct attempt *attempt)
{
	attempt->phase = PHASE_OVER;
	attempt->pipeline = NULL;
	attempt->timer = orch_source_remove(attempt->timer);
	executor_abandon(attempt->job);
	attempt->job = NULL;
	attempt->principal = orch_principal_unref(attempt->principal);
	attempt->sandbox = orch_sandbox_unref(attempt->sandbox);
	attempt->executor = orch_executor_unref(attempt->executor);
}

static void unlink_attempt(orch_pipeline *p, struct attempt *attempt)
{
	struct attempt **link = &p->attempts;
	while (*link && *link != attempt)
		link = &(*link)->next;
	if (*link)
		*link = attempt->next;
}

bool attempt_in_flight(const orch_pipeline *p, const char *stage, const char *task)
{
	for (const struct attempt *attempt = p->attempts; attempt; attempt = attempt->next)
		if (!strcmp(attempt->stage, stage) && !strcmp(attempt->task, task))
			return true;
	return false;
}

size_t attempt_count(const orch_pipeline *p)
{
	size_t count = 0;
	for (const struct attempt *attempt = p->attempts; attempt; attempt = attempt->next)
		count++;
	return count;
}

void attempt_drop_all(orch_pipeline *p)
{
	while (p->attempts) {
		struct attempt *attempt = p->attempts;
		p->attempts = attempt->next;
		if (attempt->principal)
			orch_principal_revoke(attempt->principal, NULL, NULL, NULL, NULL);
		attempt_release(attempt);
		attempt_unref(attempt);
	}
}

static const json_t *attempt_record(const struct attempt *attempt)
{
	return model_attempt(attempt->pipeline->model, role_name(attempt->role), attempt->stage,
			     attempt->task, attempt->number);
}

static json_t *attempt_row(const json_t *record)
{
	return json_pack("{s:O*, s:O*, s:O*, s:O*}", "role", json_object_get(record, "role"),
			 "stage", json_object_get(record, "stage"), "task",
			 json_object_get(record, "task"), "attempt",
			 json_object_get(record, "attempt"));
}

#define ATTEMPT_KEY "attempt/%s-%s-%s/%lld/"
#define ATTEMPT_KEY_OF(record)                                                                     \
	json_text(record, "role"), json_text(record, "stage"), json_text(record, "task"),          \
		(long long)json_int(record, "attempt")

/* --- the end --------------------------------------------------------------------------------- */

static void write_files(orch_pipeline *p, const json_t *record)
{
	_cleanup_free_ char *folder = path_join(p->attempts_dir, json_text(record, "id"));
	_cleanup_free_ char *death = folder ? path_join(folder, "death.txt") : NULL;
	_cleanup_free_ char *result = folder ? path_join(folder, "result.json") : NULL;
	_cleanup_free_ char *text = json_dumps(record, JSON_INDENT(2));
	if (!death || !result || !text)
		return;
	/* For people; the journal has it all. */
	orch_error *error = NULL;
	const char *certificate = json_text(record, "certificate");
	if (make_dir(folder, 0700, &error) < 0 ||
	    tree_write_file(death, certificate, strlen(certificate), 0600, &error) < 0 ||
	    tree_write_file(result, text, strlen(text), 0600, &error) < 0)
		orch_ctx_logf(p->ctx, ORCH_LOG_WARNING, "%s", orch_error_message(error));
	orch_error_free(error);
}

/* The load is over and that is recorded: take over what it left, record the end, then remove the
 * workspace. */
static int32_t record_end(orch_pipeline *p, const json_t *attempt, const char *end,
			  const char *message, orch_error **reterr)
{
	json_t *record = attempt_row(attempt);
	if (!record)
		return orch_fail_memory(reterr);
	json_object_set_new(record, "end", json_string(end));
	json_object_set_new(record, "message", json_foreign(message, 4000));
	int32_t code = 0;
	const char *verdict = json_text(attempt, "verdict");
	if (!end_is_uncounted(end) && strcmp(end, "FAILED")) {
		if (!strcmp(verdict, "DEAD"))
			code = workspace_import(p, attempt, record, reterr);
		else
			json_object_set_new(record, "refused",
					    json_string("its processes were not proved dead: what "
							"they left is not taken over"));
	}
	if (code < 0) {
		json_decref(record);
		return code;
	}
	code = run_record(p, "attempt", record, reterr, ATTEMPT_KEY "END", ATTEMPT_KEY_OF(attempt));
	if (code < 0)
		return code;
	workspace_remove(p, json_text(attempt, "id"));
	write_files(p, attempt);
	return 0;
}

static json_t *death_record(const struct attempt *attempt, const json_t *record)
{
	uint64_t requests = 0, tokens = 0, micro_usd = 0;
	if (attempt->principal)
		orch_principal_spent(attempt->principal, &requests, &tokens, &micro_usd);
	json_t *row = attempt_row(record);
	json_t *rest = json_pack(
		"{s:s, s:i, s:o, s:s, s:o, s:I, s:I, s:I, s:i, s:i}", "end", attempt->end, "status",
		attempt->status, "message", json_foreign(attempt->message, 4000), "verdict",
		attempt->verdict ? attempt->verdict : "NOT_STARTED", "certificate",
		json_foreign(attempt->certificate ? attempt->certificate : "", 20000), "requests",
		(json_int_t)requests, "tokens", (json_int_t)tokens, "micro_usd",
		(json_int_t)micro_usd, "settled", (int)attempt->settled, "unknown",
		(int)attempt->unknown);
	if (!row || !rest || json_object_update(row, rest) < 0) {
		json_decref(row);
		row = NULL;
	}
	json_decref(rest);
	return row;
}

/*
 * On a full disk an attempt's work is worth nothing, and judging it would be unjust: if it was the
 * attempt that filled it that is its end, otherwise it is the host's trouble, and the run waits for
 * room.
 */
static int32_t end_with_room(orch_pipeline *p, struct attempt *attempt, const json_t *record,
			     orch_error **reterr)
{
	if (workspace_check_room(p, NULL) == 0)
		return record_end(p, record, attempt->end, attempt->message, reterr);
	workspace_remove(p, attempt->id);
	if (workspace_check_room(p, NULL) == 0)
		return record_end(p, record, "FAILED", "it filled the disk", reterr);
	int32_t code = record_end(p, record, "NO_SPACE", "the disk is full", reterr);
	return code < 0 ? code : workspace_check_room(p, reterr);
}

static void attempt_over(struct attempt *attempt)
{
	orch_pipeline *p = attempt->pipeline;
	const json_t *record = attempt_record(attempt);
	orch_error *error = NULL;
	if (!strcmp(attempt->end, "UNREACHABLE"))
		p->not_before_us = orch_monotonic_us() + UNREACHABLE_PAUSE_US;
	int32_t code = run_record(p, "death", death_record(attempt, record), &error,
				  ATTEMPT_KEY "DEATH", ATTEMPT_KEY_OF(record));
	if (code == 0)
		code = end_with_room(p, attempt, record, &error);
	if (code < 0)
		pipeline_fail(p, error);
	unlink_attempt(p, attempt);
	attempt_release(attempt);
	attempt_unref(attempt);
	pipeline_schedule(p);
}

static void maybe_over(struct attempt *attempt)
{
	if (attempt->phase == PHASE_STOPPING && attempt->revoked && attempt->stopped)
		attempt_over(attempt);
}

static void on_revoked(void *userdata, orch_principal *principal, uint32_t settled,
		       uint32_t unknown)
{
	struct attempt *attempt = userdata;
	(void)principal;
	if (!attempt->pipeline)
		return;
	attempt->settled = settled;
	attempt->unknown = unknown;
	attempt->revoked = true;
	maybe_over(attempt);
}

static void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	struct attempt *attempt = userdata;
	(void)scope;
	if (!attempt->pipeline)
		return;
	free(attempt->verdict);
	free(attempt->certificate);
	attempt->verdict = strdup(orch_death_verdict_name(death));
	attempt->certificate = strdup(orch_death_text(death));
	attempt->stopped = true;
	maybe_over(attempt);
}

/* In the loop's next turn, so that nothing is freed under a caller. */
static void on_timer(void *userdata)
{
	struct attempt *attempt = userdata;
	if (attempt->phase == PHASE_STOPPING)
		maybe_over(attempt);
}

/*
 * Closes it: the principal first, so that nothing more goes out, then everything in the sandbox.
 * The certificate and the settled operations together make it over.
 */
static void attempt_stop(struct attempt *attempt, const char *end, int32_t status,
			 const char *message)
{
	if (attempt->phase >= PHASE_STOPPING)
		return;
	attempt->phase = PHASE_STOPPING;
	attempt->end = strdup(end);
	attempt->message = strdup(message ? message : "");
	attempt->status = status;
	if (!attempt->end || !attempt->message) {
		orch_error *error = NULL;
		orch_fail_memory(&error);
		pipeline_fail(attempt->pipeline, error);
		return;
	}
	if (!attempt->principal ||
	    orch_principal_revoke(attempt->principal, on_revoked, attempt_ref(attempt),
				  attempt_unref, NULL) < 0)
		attempt->revoked = true;
	orch_scope *scope = attempt->sandbox ? orch_sandbox_scope(attempt->sandbox) : NULL;
	struct orch_stop_opts stop;
	orch_stop_opts_init(&stop, sizeof(stop));
	if (!scope ||
	    orch_scope_stop(scope, &stop, on_death, attempt_ref(attempt), attempt_unref, NULL) < 0)
		attempt->stopped = true;
	if (attempt->timer)
		orch_source_timer_set(attempt->timer, 0);
}

void attempt_kill_all(orch_pipeline *p, const char *end, const char *message)
{
	for (struct attempt *attempt = p->attempts; attempt; attempt = attempt->next)
		attempt_stop(attempt, end, -1, message);
}

static char *principal_name(const struct attempt *attempt)
{
	return orch_strdup_printf("%s/%s-%s-%s/%u", attempt->pipeline->model->run,
				  role_name(attempt->role), attempt->stage, attempt->task,
				  attempt->number);
}

/* --- the provider ---------------------------------------------------------------------------- */

static const char *job_end_name(uint32_t end)
{
	switch (end) {
	case ORCH_JOB_FINISHED:
		return "FINISHED";
	case ORCH_JOB_STALLED:
		return "STALLED";
	case ORCH_JOB_TIMED_OUT:
		return "TIMED_OUT";
	case ORCH_JOB_HUNG:
		return "HUNG";
	default:
		return "FAILED";
	}
}

static void on_quota(struct attempt *attempt, int64_t resets_at_ms)
{
	int64_t wait_ms = resets_at_ms - orch_realtime_ms();
	attempt->quota_resets_at_ms = resets_at_ms;
	if (wait_ms <= QUOTA_PATIENCE_MS)
		return;
	run_overlay(attempt->pipeline, ORCH_OVERLAY_QUOTA_WAIT, true,
		    "the provider's quota is used up", resets_at_ms);
	attempt_stop(attempt, "QUOTA", -1, "the provider's quota is used up");
}

static void on_refused(struct attempt *attempt, const char *code, int32_t http_status)
{
	/* Other refusals for budget are only for as long as calls in flight reserve it. */
	if (strncmp(code, "budget", 6) || http_status != BUDGET_SPENT_STATUS)
		return;
	_cleanup_free_ char *reason = orch_strdup_printf("the budget is used up (%s)", code);
	orch_pipeline *p = attempt->pipeline;
	run_overlay(p, ORCH_OVERLAY_BUDGET_STOP, true, code, 0);
	run_close(p, false, false, reason ? reason : "the budget is used up");
	attempt_stop(attempt, "BUDGET", -1, reason);
}

/* Nobody there, or somebody who does not let us in or is out of order: nothing of that is the
 * attempt's fault. */
static void on_miss(struct attempt *attempt, const char *code, int32_t http_status)
{
	if (attempt->reached)
		return;
	free(attempt->miss);
	attempt->miss = http_status ? orch_strdup_printf("the provider answers with HTTP %d",
							 (int)http_status)
				    : strdup(code);
	if (!attempt->misses++)
		attempt->first_miss_us = orch_monotonic_us();
	if (attempt->misses >= UNREACHABLE_REQUESTS ||
	    orch_monotonic_us() - attempt->first_miss_us >= UNREACHABLE_MS * 1000)
		attempt_stop(attempt, "UNREACHABLE", -1, attempt->miss);
}

static bool is_refusal(int32_t http_status)
{
	return http_status == 401 || http_status == 403 || http_status == 404 || http_status >= 500;
}

static void emit_operation(orch_pipeline *p, const struct attempt *attempt, const char *operation,
			   uint32_t event, const char *code, int32_t http_status)
{
	static const char *const states[] = {"?",	 "REFUSED", "DISPATCHED",
					     "OBSERVED", "FAILED",  "UNKNOWN"};
	_cleanup_free_ char *principal = principal_name(attempt);
	event_emit(p, json_pack("{s:s, s:s, s:s, s:s*, s:s, s:s, s:I, s:s, s:i}", "event",
				"operation", "operation", operation, "state",
				states[event <= ORCH_OPERATION_UNKNOWN ? event : 0], "principal",
				principal, "stage", attempt->stage, "task", attempt->task,
				"attempt", (json_int_t)attempt->number, "code", code, "status",
				(int)http_status));
}

void attempt_operation(orch_pipeline *p, orch_principal *principal, const char *operation,
		       uint32_t event, const char *code, int32_t http_status,
		       int64_t quota_resets_at_ms)
{
	struct attempt *attempt = p->attempts;
	while (attempt && attempt->principal != principal)
		attempt = attempt->next;
	if (!attempt)
		return;
	emit_operation(p, attempt, operation, event, code, http_status);
	if (event == ORCH_OPERATION_REFUSED &&
	    (!strcmp(code, "no_upstream") || !strcmp(code, "no_price")))
		on_miss(attempt, code, 0);
	else if (event == ORCH_OPERATION_REFUSED)
		on_refused(attempt, code, http_status);
	if (strncmp(operation, "ai.", 3))
		return;
	if (quota_resets_at_ms) {
		on_quota(attempt, quota_resets_at_ms);
	} else if (event == ORCH_OPERATION_OBSERVED && is_refusal(http_status)) {
		on_miss(attempt, code, http_status);
	} else if (event == ORCH_OPERATION_OBSERVED) {
		attempt->reached = true;
		attempt->quota_resets_at_ms = 0;
	} else if (event == ORCH_OPERATION_FAILED && !strncmp(code, "upstream", 8)) {
		on_miss(attempt, code, 0);
	}
}

/* --- the job --------------------------------------------------------------------------------- */

static void note_event(struct attempt *attempt, const char *kind, const char *text)
{
	if (attempt->events_fd < 0 || attempt->events_bytes > EVENTS_LIMIT)
		return;
	json_t *row = json_pack("{s:I, s:s, s:o}", "time_ms", (json_int_t)orch_realtime_ms(),
				"kind", kind, "text", json_foreign(text, EVENT_TEXT_LIMIT));
	_cleanup_free_ char *line = row ? json_dumps(row, JSON_COMPACT) : NULL;
	json_decref(row);
	_cleanup_free_ char *ended = line ? orch_strdup_printf("%s\n", line) : NULL;
	if (!ended)
		return;
	ssize_t written = write(attempt->events_fd, ended, strlen(ended));
	attempt->events_bytes += written > 0 ? (size_t)written : EVENTS_LIMIT;
}

static void on_job_event(void *userdata, orch_job *job, uint32_t event, const char *text)
{
	static const char *const kinds[] = {"other", "text", "tool", "result", "other"};
	struct attempt *attempt = userdata;
	(void)job;
	if (!attempt->pipeline)
		return;
	const char *kind = kinds[event <= ORCH_JOB_EVENT_OTHER ? event : 0];
	note_event(attempt, kind, text ? text : "");
	if (event == ORCH_JOB_EVENT_OTHER)
		return;
	event_emit(attempt->pipeline,
		   json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:o}", "event", "agent", "id",
			     attempt->id, "role", role_name(attempt->role), "stage", attempt->stage,
			     "task", attempt->task, "attempt", (json_int_t)attempt->number, "kind",
			     kind, "text", json_foreign(text ? text : "", AGENT_TEXT_LIMIT)));
}

static void on_job_done(void *userdata, orch_job *job, uint32_t end, int32_t status,
			const char *message)
{
	struct attempt *attempt = userdata;
	(void)job;
	attempt->job = NULL;
	if (!attempt->pipeline || attempt->phase != PHASE_RUNNING)
		return;
	const char *word = job_end_name(end);
	/* An executor that gave up because nobody answered it did not fail at its task. */
	if (attempt->misses && !attempt->reached) {
		attempt_stop(attempt, "UNREACHABLE", status, attempt->miss);
		return;
	}
	if (attempt->quota_resets_at_ms) {
		word = "QUOTA";
		run_overlay(attempt->pipeline, ORCH_OVERLAY_QUOTA_WAIT, true,
			    "the provider's quota is used up", attempt->quota_resets_at_ms);
	}
	attempt_stop(attempt, word, status, message);
}

static int32_t add_grants(struct attempt *attempt, orch_error **reterr)
{
	orch_pipeline *p = attempt->pipeline;
	_cleanup_free_ char *prefix = orch_strdup_printf("%s/", p->model->run);
	struct orch_grant_opts grant;
	orch_grant_opts_init(&grant, sizeof(grant));
	grant.operation = orch_executor_operation(attempt->executor);
	int32_t code = prefix ? 0 : orch_fail_memory(reterr);
	if (code == 0 && grant.operation)
		code = orch_principal_grant(attempt->principal, &grant, reterr);
	const struct task_plan *task =
		attempt->role == ORCH_ROLE_EXECUTOR ? task_of_plan(p, attempt->task) : NULL;
	for (size_t i = 0; code == 0 && task && i < task->operation_count; i++) {
		const char *type = task->operations[i].type;
		uint64_t uses = 0;
		bool first = true;
		for (size_t k = 0; k < task->operation_count; k++) {
			if (strcmp(task->operations[k].type, type))
				continue;
			uses++;
			first = first && k >= i;
		}
		const json_t *allowed = pipeline_grant(p, type);
		if (!allowed || !first)
			continue;
		orch_grant_opts_init(&grant, sizeof(grant));
		grant.operation = type;
		grant.url = json_string_value(json_object_get(allowed, "url"));
		grant.probe_url = json_string_value(json_object_get(allowed, "probe_url"));
		grant.expires_at_ms = json_int(allowed, "expires_at_ms");
		grant.max_uses = uses;
		grant.key_prefix = prefix;
		code = orch_principal_grant(attempt->principal, &grant, reterr);
	}
	return code;
}

static int32_t run_job(struct attempt *attempt, orch_error **reterr)
{
	orch_pipeline *p = attempt->pipeline;
	int32_t code = add_grants(attempt, reterr);
	if (code == 0)
		code = orch_broker_add_listener(p->broker,
						orch_sandbox_listener_fd(attempt->sandbox),
						attempt->principal, reterr);
	if (code == 0)
		code = orch_principal_attach(attempt->principal, orch_sandbox_scope(attempt->sandbox), reterr);
	if (code < 0)
		return code;
	struct orch_job_opts job;
	orch_job_opts_init(&job, sizeof(job));
	job.packet = attempt->packet;
	job.event = on_job_event;
	job.done = on_job_done;
	job.userdata = attempt_ref(attempt);
	job.destroy = attempt_unref;
	return executor_run(attempt->executor, attempt->sandbox, &job, &attempt->job, reterr);
}

static void task_is_running(struct attempt *attempt)
{
	orch_pipeline *p = attempt->pipeline;
	if (strcmp(attempt->stage, "execute"))
		return;
	run_store(p, "task.state",
		  json_pack("{s:s, s:I, s:s}", "task", attempt->task, "attempt",
			    (json_int_t)attempt->number, "state", task_state_name(TASK_RUNNING)),
		  "task/%s/attempt/%u/RUNNING", attempt->task, attempt->number);
}

static void on_sandbox(void *userdata, orch_sandbox *sandbox, const orch_error *error)
{
	struct attempt *attempt = userdata;
	(void)sandbox;
	if (!attempt->pipeline || attempt->phase != PHASE_STARTING)
		return;
	if (error) {
		attempt_stop(attempt, "FAILED", -1, orch_error_message(error));
		return;
	}
	attempt->phase = PHASE_RUNNING;
	task_is_running(attempt);
	if (attempt->pipeline->failure)
		return;
	orch_error *failure = NULL;
	if (run_job(attempt, &failure) < 0)
		attempt_stop(attempt, "FAILED", -1, orch_error_message(failure));
	orch_error_free(failure);
}

/* --- the start ------------------------------------------------------------------------------- */

static int32_t make_principal(struct attempt *attempt, orch_error **reterr)
{
	orch_pipeline *p = attempt->pipeline;
	_cleanup_free_ char *name = principal_name(attempt);
	if (!name)
		return orch_fail_memory(reterr);
	struct orch_principal_opts opts;
	orch_principal_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.generation = orch_journal_generation(p->journal);
	return orch_principal_new(p->broker, &opts, &attempt->principal, reterr);
}

static int32_t make_sandbox(struct attempt *attempt, orch_error **reterr)
{
	orch_pipeline *p = attempt->pipeline;
	_cleanup_free_ char *label = orch_strdup_printf(
		"%s %s %s %u", p->model->run, attempt->stage, attempt->task, attempt->number);
	struct orch_sandbox_opts opts;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.net = ORCH_NET_BROKER;
	opts.label = label;
	int32_t code = orch_sandbox_new(p->ctx, &opts, &attempt->sandbox, reterr);
	if (code == 0)
		code = orch_sandbox_set_workspace(attempt->sandbox, attempt->workspace.dir, "/work",
						  reterr);
	if (code == 0)
		code = orch_sandbox_add_path(attempt->sandbox, attempt->workspace.in_dir, "/in",
					     ORCH_PATH_READ, reterr);
	if (code == 0)
		code = orch_sandbox_set_env(attempt->sandbox, "ORCH_BROKER",
					    "http://127.0.0.1:8080", reterr);
	if (code == 0)
		code = orch_executor_prepare(attempt->executor, attempt->sandbox, reterr);
	return code;
}

static void open_events(struct attempt *attempt)
{
	_cleanup_free_ char *folder = path_join(attempt->pipeline->attempts_dir, attempt->id);
	_cleanup_free_ char *path = folder ? path_join(folder, "events.ndjson") : NULL;
	if (path && make_dir(folder, 0700, NULL) == 0)
		attempt->events_fd =
			open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* A workspace that can not be laid out is the host's trouble: the run stops, and can be resumed. */
static int32_t begin(struct attempt *attempt, orch_error **reterr)
{
	orch_pipeline *p = attempt->pipeline;
	const json_t *record = attempt_record(attempt);
	int32_t code = packet_text(p, record, &attempt->packet, reterr);
	if (code == 0)
		code = workspace_make(p, record, attempt->packet, &attempt->workspace, reterr);
	if (code == 0)
		code = make_principal(attempt, reterr);
	if (code == 0)
		code = orch_source_timer(p->ctx, -1, on_timer, attempt, &attempt->timer, reterr);
	if (code < 0)
		return code;
	open_events(attempt);
	attempt->phase = PHASE_STARTING;
	orch_error *error = NULL;
	code = make_sandbox(attempt, &error);
	if (code == 0)
		code = orch_sandbox_start(attempt->sandbox, on_sandbox, attempt_ref(attempt),
					  attempt_unref, &error);
	if (code < 0)
		attempt_stop(attempt, "FAILED", -1, orch_error_message(error));
	orch_error_free(error);
	return 0;
}

static struct attempt *attempt_new(orch_pipeline *p, uint32_t role, const char *stage,
				   const char *task, uint32_t number)
{
	struct attempt *attempt = calloc(1, sizeof(*attempt));
	if (!attempt)
		return NULL;
	char random[17];
	orch_random_hex(random, 8);
	attempt->references = 1;
	attempt->pipeline = p;
	attempt->events_fd = -1;
	attempt->role = role;
	attempt->number = number;
	attempt->id = strdup(random);
	attempt->stage = strdup(stage);
	attempt->task = strdup(task);
	attempt->executor = orch_executor_ref(pipeline_executor(p, role));
	if (attempt->id && attempt->stage && attempt->task)
		return attempt;
	attempt_release(attempt);
	attempt_unref(attempt);
	return NULL;
}

static json_t *start_record(const struct attempt *attempt, const char *tree)
{
	const orch_pipeline *p = attempt->pipeline;
	const struct model_task *task = model_find_task(p->model, attempt->task);
	const char *base = task && attempt->role == ORCH_ROLE_REVIEWER ? task->base : tree;
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:I}", "id", attempt->id,
			 "role", role_name(attempt->role), "stage", attempt->stage, "task",
			 attempt->task, "attempt", (json_int_t)attempt->number, "base", base,
			 "tree_shown", tree, "executor",
			 orch_executor_kind_name(orch_executor_kind(attempt->executor)), "of",
			 (json_int_t)(task ? task->attempt : 0), "generation",
			 (json_int_t)orch_journal_generation(p->journal));
}

bool attempt_start(orch_pipeline *p, uint32_t role, const char *stage, const char *task,
		   const char *tree)
{
	const json_t *last = model_attempt(p->model, role_name(role), stage, task, 0);
	uint32_t number = (uint32_t)json_int(last, "attempt") + 1;
	orch_error *error = NULL;
	if (workspace_check_room(p, &error) < 0) {
		pipeline_fail(p, error);
		return false;
	}
	struct attempt *attempt = attempt_new(p, role, stage, task, number);
	if (!attempt) {
		orch_fail_memory(&error);
		pipeline_fail(p, error);
		return false;
	}
	attempt->next = p->attempts;
	p->attempts = attempt;
	/* Recorded before anything of it exists. */
	if (!run_store(p, "attempt", start_record(attempt, tree), "attempt/%s-%s-%s/%u/RUNNING",
		       role_name(role), stage, task, number))
		return false;
	if (begin(attempt, &error) < 0) {
		pipeline_fail(p, error);
		return false;
	}
	return true;
}

/* --- after a restart ------------------------------------------------------------------------- */

int32_t attempt_recover(orch_pipeline *p, orch_error **reterr)
{
	for (size_t i = 0; i < json_array_size(p->model->attempts); i++) {
		const json_t *attempt = json_array_get(p->model->attempts, i);
		if (json_bool(attempt, "ended"))
			continue;
		/* With its certificate it is over all the same, and its work is still there. */
		int32_t code =
			json_object_get(attempt, "verdict")
				? record_end(p, attempt, json_text(attempt, "end"),
					     json_text(attempt, "message"), reterr)
				: record_end(p, attempt, "LOST",
					     "the coordinator died; its load died with it", reterr);
		if (code < 0)
			return code;
	}
	return 0;
}
