/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>

#include "stream-private.h"

/* What the helper gets less than the host, so that its certificate is there at the deadline. */
#define MARGIN_MS(deadline_ms) ((deadline_ms) / 5 < 250 ? (deadline_ms) / 5 : 250)
/* What the helper's own set-up deadline gets before the host doubts the helper. */
#define SETUP_MARGIN_MS 2000
/* Set-up process and init, with what the kernel keeps for them. */
#define LEAST_MEMORY (4u << 20)
/* PID_MAX_LIMIT of a 64-bit kernel. */
#define MOST_PROCESSES (4u << 20)

/* --- life ------------------------------------------------------------------------------ */

void callback_free(struct callback *callback)
{
	if (callback->destroy)
		callback->destroy(callback->userdata);
	free(callback);
}

struct callback *callback_pop(struct callback **list)
{
	struct callback *first = *list;
	if (first)
		*list = first->next;
	return first;
}

static void free_all(struct callback **list)
{
	struct callback *callback;
	while ((callback = callback_pop(list)))
		callback_free(callback);
}

void orch_scope_at_end(orch_scope *scope, orch_destroy_fn fn, void *userdata)
{
	scope->at_end = fn;
	scope->at_end_userdata = userdata;
}

static void at_end(struct orch_scope *scope)
{
	orch_destroy_fn fn = scope->at_end;

	scope->at_end = NULL;
	if (fn)
		fn(scope->at_end_userdata);
}

static void scope_free(struct orch_scope *scope)
{
	at_end(scope);
	free_all(&scope->starts);
	free_all(&scope->connects);
	free_all(&scope->stops);
	free_all(&scope->on_death);
	wire_queue_clear(&scope->pending);
	orch_source_remove(scope->watchdog);
	orch_source_remove(scope->init_watch);
	orch_source_remove(scope->later);
	orch_close_fd(&scope->init_fd);
	orch_close_fd(&scope->listener_fd);
	orch_scope_close_private(scope);
	judge_free(scope);
	host_work_free(scope);
	orch_death_unref(scope->death);
	orch_death_unref(scope->unsettled);
	orch_error_free(scope->start_error);
	free(scope->survivors);
	for (size_t i = 0; i < SCOPE_LIMITS; i++)
		free(scope->limits[i].mechanism);
	free(scope->cgroup);
	free(scope->label);
	free(scope);
}

static void attach(struct orch_scope *scope)
{
	if (scope->attached)
		return;
	scope->attached = true;
	scope->next = scope->reaper->scopes;
	scope->reaper->scopes = scope;
}

static void detach(struct orch_scope *scope)
{
	struct orch_scope **link = &scope->reaper->scopes;
	while (*link != scope)
		link = &(*link)->next;
	*link = scope->next;
	scope->attached = false;
	if (scope->released)
		scope_free(scope);
}

orch_scope *orch_scope_ref(orch_scope *scope)
{
	if (scope && atomic_fetch_add(&scope->references, 1) == 0) {
		/* In a callback of a scope whose handles are all gone. */
		scope->released = false;
		orch_ctx_ref(scope->ctx);
	}
	return scope;
}

static void scope_release(void *object)
{
	struct orch_scope *scope = object;
	orch_ctx *ctx = scope->ctx;
	bool forked = orch_ctx_forked(ctx);
	if (atomic_load(&scope->references) == 0) {
		scope->released = true;
		if (!forked && scope->phase != SCOPE_OVER && !scope->requested) {
			scope->requested = true;
			scope_begin_stop(scope, 0, DEFAULT_DEADLINE_MS);
			orch_ctx_logf(ctx, ORCH_LOG_DEBUG, "%s: dropped without a stop: killed",
				      scope->name);
		}
		if (!scope->attached)
			scope_free(scope);
	}
	orch_ctx_unref(ctx);
}

orch_scope *orch_scope_unref(orch_scope *scope)
{
	if (scope && atomic_fetch_sub(&scope->references, 1) == 1)
		orch_ctx_destroy_later(scope->ctx, scope_release, scope);
	return NULL;
}

void scope_abandon(struct orch_scope *scope)
{
	while (scope->procs)
		proc_abandon(scope->procs);
	streams_abandon(scope);
	free_all(&scope->starts);
	free_all(&scope->connects);
	free_all(&scope->stops);
	free_all(&scope->on_death);
	host_work_free(scope);
	scope->phase = SCOPE_OVER;
	scope->watchdog = orch_source_remove(scope->watchdog);
	scope->init_watch = orch_source_remove(scope->init_watch);
	scope->later = orch_source_remove(scope->later);
	detach(scope);
}

/* --- telling --------------------------------------------------------------------------- */

void scope_tell_starts(struct orch_scope *scope)
{
	struct callback *callback;
	while ((callback = callback_pop(&scope->starts))) {
		callback->start(callback->userdata, scope,
				scope->stood ? NULL : scope->start_error);
		callback_free(callback);
	}
}

static void tell_death(struct orch_scope *scope)
{
	struct callback *callback;
	while ((callback = callback_pop(&scope->stops))) {
		if (callback->death && scope->death)
			callback->death(callback->userdata, scope, scope->death);
		callback_free(callback);
	}
	if (scope->requested || scope->death_told || !scope->on_death || !scope->death)
		return;
	scope->death_told = true;
	callback = callback_pop(&scope->on_death);
	callback->death(callback->userdata, scope, scope->death);
	callback_free(callback);
}

static void on_later(void *userdata)
{
	struct orch_scope *scope = userdata;
	/* What a callback drops is still needed here. */
	orch_ctx *ctx = orch_ctx_ref(scope->ctx);
	orch_scope_ref(scope);
	if (scope->stood || scope->start_error)
		scope_tell_starts(scope);
	if (scope->stopping)
		host_work_ask(scope);
	if (scope->certified_us)
		scope_work_answered(scope);
	if (scope->phase == SCOPE_OVER) {
		tell_death(scope);
		if (!scope->stops && scope->attached)
			detach(scope);
	}
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

/* For what is known already: the callback comes in the next turn. */
int32_t scope_tell_later(struct orch_scope *scope, orch_error **reterr)
{
	attach(scope);
	if (scope->later) {
		orch_source_timer_set(scope->later, 0);
		return 0;
	}
	return orch_source_timer(scope->ctx, 0, on_later, scope, &scope->later, reterr);
}

/* --- the record ------------------------------------------------------------------------ */

/* A recovery has nothing more to say. By descent it never has, and the host was told. */
static void record_over(struct orch_scope *scope, uint32_t verdict)
{
	orch_error *error = NULL;
	bool is_over = verdict == ORCH_DEATH_DEAD || verdict == ORCH_DEATH_DEAD_UNREAPED ||
		       (verdict == ORCH_DEATH_UNVERIFIABLE && scope->rung == ORCH_RUNG_SUBREAPER);
	if (is_over && scope->reaper->record && record_end(scope->reaper->record, scope->name, &error) < 0)
		orch_ctx_logf(scope->ctx, ORCH_LOG_WARNING, "%s: %s", scope->name, orch_error_message(error));
	orch_error_free(error);
}

/* --- the end --------------------------------------------------------------------------- */

/* Of a program that ran until its scope was over. */
static uint32_t end_reason(const struct orch_scope *scope, const orch_death *death, bool dead)
{
	if (!scope->connected || !dead)
		return ORCH_REASON_LOST;
	switch (orch_death_limit(death)) {
	case ORCH_LIMIT_MEMORY:
		return ORCH_REASON_MEMORY;
	case ORCH_LIMIT_TIME:
		return ORCH_REASON_TIME;
	default:
		return ORCH_REASON_STOPPED;
	}
}

static void end_procs(struct orch_scope *scope, const orch_death *death)
{
	uint32_t verdict = orch_death_verdict(death);
	bool dead = verdict == ORCH_DEATH_DEAD || verdict == ORCH_DEATH_DEAD_UNREAPED;
	uint32_t reason = end_reason(scope, death, dead);
	uint32_t unstarted = scope->stood ? ORCH_REASON_STOPPED : ORCH_REASON_SETUP;
	if (!scope->connected)
		unstarted = ORCH_REASON_LOST;
	else if (dead && orch_death_limit(death) == ORCH_LIMIT_TIME)
		unstarted = ORCH_REASON_TIME;
	else if (scope->start_error && orch_error_code(scope->start_error) == ORCH_ECANCELED)
		unstarted = ORCH_REASON_STOPPED;
	orch_error *error = NULL;
	if (!scope->connected)
		orch_fail(&error, ORCH_EHELPER, 0, "helper",
			  "orch-reaper died: how the program ended is not known");
	else if (!dead)
		orch_fail(&error, ORCH_ETIMEDOUT, 0, "stop",
			  "the program is not known to have ended by the scope's deadline: see the "
			  "certificate");
	orch_error *never = NULL;
	if (unstarted == ORCH_REASON_TIME)
		orch_fail(&never, ORCH_ECANCELED, 0, "stop",
			  "the scope's time limit was over before the program ran");
	else if (scope->start_error)
		never = orch_error_copy(scope->start_error);
	else
		orch_fail(&never, ORCH_ECANCELED, 0, "stop",
			  "the scope was stopped before the program ran");
	while (scope->procs) {
		if (scope->procs->started && !error)
			proc_exited(scope->procs, reason, -1, 9); /* by SIGKILL, with the namespace */
		else if (scope->procs->started)
			proc_failed(scope->procs, reason, error);
		else
			proc_failed(scope->procs, unstarted, never);
	}
	orch_error_free(error);
	orch_error_free(never);
}

static void end_connects(struct orch_scope *scope)
{
	struct callback *callback;
	orch_error *error = NULL;
	if (scope->connects)
		orch_fail(&error, ORCH_ECLOSED, 0, "connect", "the scope %s is over", scope->name);
	while ((callback = callback_pop(&scope->connects))) {
		callback->connect(callback->userdata, -1, error);
		callback_free(callback);
	}
	orch_error_free(error);
}

/* The end of the end. */
static void over(struct orch_scope *scope)
{
	orch_death *death = ORCH_STEAL(scope->unsettled);
	if (death && scope->works &&
	    !death_add_works(death, scope->works, orch_monotonic_us() - scope->certified_us))
		death = orch_death_unref(death);
	scope->phase = SCOPE_OVER;
	scope->death = death;
	scope->watchdog = orch_source_remove(scope->watchdog);
	host_work_free(scope);
	tell_death(scope);
	if (scope->attached)
		detach(scope);
}

void scope_work_answered(struct orch_scope *scope)
{
	if (!scope->certified_us || scope->phase == SCOPE_OVER)
		return;
	int64_t left_us = scope->deadline_us - orch_monotonic_us();
	if (host_work_is_due(scope) && left_us > 0)
		scope_watch(scope, left_us / 1000 + 1);
	else
		over(scope);
}

/*
 * The programs are told first: the work on the host may wait for that. It is asked now at the latest, and has until the
 * deadline.
 */
void scope_over(struct orch_scope *scope, orch_death *death)
{
	if (scope->certified_us) {
		orch_death_unref(death);
		return;
	}
	orch_ctx *ctx = orch_ctx_ref(scope->ctx);
	orch_scope_ref(scope);
	scope->stopping = true;
	scope->certified_us = orch_monotonic_us();
	scope->unsettled = death;
	uint32_t verdict = orch_death_verdict(death);
	record_over(scope, verdict);
	if (verdict == ORCH_DEATH_DEAD || verdict == ORCH_DEATH_DEAD_UNREAPED)
		at_end(scope);
	if (!scope->requested_us) {
		/* Nobody had asked for this end. */
		scope->requested_us = orch_monotonic_us();
		scope->deadline_us = scope->requested_us + DEFAULT_DEADLINE_MS * 1000;
	}
	scope->init_watch = orch_source_remove(scope->init_watch);
	orch_close_fd(&scope->listener_fd);
	wire_queue_clear(&scope->pending);
	if (!scope->stood && !scope->start_error)
		orch_fail(&scope->start_error, ORCH_ECANCELED, 0, "stop",
			  "the scope was stopped before it stood");
	scope_tell_starts(scope);
	end_procs(scope, death);
	end_connects(scope);
	streams_scope_over(scope);
	orch_close_fd(&scope->init_fd);
	host_work_ask(scope);
	scope_work_answered(scope);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

/* --- the watch over the helper --------------------------------------------------------- */

static void on_watchdog(void *userdata)
{
	struct orch_scope *scope = userdata;
	/* What the helper said in the meantime may only not have been read yet. The read may end
	 * the scope. */
	orch_ctx *ctx = orch_ctx_ref(scope->ctx);
	orch_scope_ref(scope);
	if (scope->connected)
		reaper_read(scope->reaper);
	if (scope->certified_us)
		scope_work_answered(scope);
	else if (scope->phase == SCOPE_STARTING && !scope->stopping) {
		orch_error *error = NULL;
		orch_fail(&error, ORCH_ETIMEDOUT, 0, "setup", "orch-reaper does not answer");
		scope_fail_start(scope, error);
		orch_error_free(error);
		scope_begin_stop(scope, 0, DEFAULT_DEADLINE_MS);
	} else if (scope->phase != SCOPE_OVER && scope->stopping) {
		judge_look(scope);
	}
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

void scope_watch(struct orch_scope *scope, int64_t delay_ms)
{
	if (scope->watchdog)
		orch_source_timer_set(scope->watchdog, delay_ms);
	else
		orch_source_timer(scope->ctx, delay_ms, on_watchdog, scope, &scope->watchdog, NULL);
}

bool scope_expect_death(struct orch_scope *scope, uint32_t deadline_ms)
{
	int64_t now = orch_monotonic_us();
	int64_t deadline_us = now + (int64_t)deadline_ms * 1000;
	bool first = !scope->requested_us;
	if (first) {
		scope->requested_us = now;
		scope->requested_ms = orch_realtime_ms();
	}
	if (!first && deadline_us >= scope->deadline_us)
		return false;
	scope->deadline_us = deadline_us;
	scope_watch(scope, deadline_ms);
	return true;
}

void scope_fail_start(struct orch_scope *scope, const orch_error *error)
{
	if (scope->stood || scope->start_error)
		return;
	scope->start_error = orch_error_copy(error);
	scope->stopping = true;
	scope_expect_death(scope, DEFAULT_DEADLINE_MS + SETUP_MARGIN_MS);
	orch_ctx_logf(scope->ctx, ORCH_LOG_WARNING, "%s: %s", scope->name,
		      orch_error_message(error));
	scope_tell_starts(scope);
}

void scope_helper_lost(struct orch_scope *scope, const orch_error *error)
{
	if (scope->phase == SCOPE_OVER || scope->certified_us)
		return;
	scope->stopping = true;
	scope_fail_start(scope, error);
	judge_begin(scope);
}

/* --- making and stopping --------------------------------------------------------------- */

void scope_begin_stop(struct orch_scope *scope, uint32_t grace_ms, uint32_t deadline_ms)
{
	bool first = !scope->stopping, at_once = grace_ms == 0 && scope->phase == SCOPE_STANDING;
	uint32_t alive;
	scope->stopping = true;
	orch_close_fd(&scope->listener_fd);
	wire_queue_clear(&scope->pending);
	/* A helper that has said nothing by then may have killed nobody: the judge does, and there is time to see it. */
	if (scope_expect_death(scope, deadline_ms))
		scope_watch(scope, grace_ms + (deadline_ms - grace_ms) / 2);
	/* At once and not after the deaths: who has rights would use them meanwhile. But not in a setter. */
	if (scope->works && !scope->works_asked)
		scope_tell_later(scope, NULL);
	if (!scope->connected)
		return;
	struct wire_packet packet = wire_packet(WIRE_STOP, scope->id, 0);
	packet.message.number[0] = grace_ms;
	packet.message.number[1] = deadline_ms - MARGIN_MS(deadline_ms);
	packet.message.number[2] = (uint64_t)orch_monotonic_us();
	packet.message.number[3] = (uint64_t)scope->requested_ms;
	judge_wake(scope);
	if (first && at_once && judge_members(scope, &alive))
		packet.message.number[4] = 1 + (uint64_t)alive;
	/* A request that still waits here could come behind the deaths, which then nobody would have asked for. */
	if (reaper_send(scope->reaper, &packet, NULL) == 0 && at_once && !scope->reaper->out.length)
		judge_strike(scope);
}

void orch_scope_opts_init(struct orch_scope_opts *opts, uint32_t size)
{
	const struct orch_scope_opts defaults = {
		.least_rung = ORCH_RUNG_PIDNS,
		.setup_timeout_ms = DEFAULT_SETUP_MS,
	};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static int32_t send_new(struct orch_scope *scope, const struct orch_scope_opts *opts,
			const struct orch_confinement *confinement, orch_error **reterr)
{
	struct wire_packet packet = wire_packet(WIRE_SCOPE_NEW, scope->id, 0);
	wire_copy(packet.message.step, WIRE_STEP_MAX, scope->name);
	packet.message.value = (int32_t)opts->least_rung;
	packet.message.number[0] = opts->setup_timeout_ms;
	packet.message.number[2] = opts->best_rung;
	packet.message.number[3] = opts->memory_limit_bytes;
	packet.message.number[4] = opts->process_limit;
	packet.message.number[5] = opts->cpu_limit_percent;
	packet.message.number[6] = opts->time_limit_ms;
	packet.message.number[7] = opts->required_limits;
	if (confinement) {
		packet.message.flags = WIRE_CONFINED;
		packet.message.number[1] = confinement->host_uid;
		packet.fds[0] = fcntl(confinement->spec_fd, F_DUPFD_CLOEXEC, 3);
		if (packet.fds[0] < 0)
			return orch_fail(reterr, ORCH_EINVAL, errno, "spec",
					 "the confinement's spec_fd is not usable");
		packet.fd_count = 1;
	}
	return reaper_send(scope->reaper, &packet, reterr);
}

const char *scope_limit_name(uint32_t limit)
{
	switch (limit) {
	case ORCH_LIMIT_MEMORY:
		return "memory";
	case ORCH_LIMIT_PROCESSES:
		return "process";
	case ORCH_LIMIT_CPU:
		return "cpu";
	default:
		return "time";
	}
}

static int32_t check_limits(const struct orch_scope_opts *opts, orch_error **reterr)
{
	uint32_t asked = (opts->memory_limit_bytes ? ORCH_LIMIT_MEMORY : 0) |
			 (opts->process_limit ? ORCH_LIMIT_PROCESSES : 0) |
			 (opts->cpu_limit_percent ? ORCH_LIMIT_CPU : 0) | (opts->time_limit_ms ? ORCH_LIMIT_TIME : 0);
	uint32_t missing = opts->required_limits & ~asked;
	if (missing)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.required_limits has the %s limit, which is not set",
				 scope_limit_name(missing & -missing));
	if (opts->memory_limit_bytes && opts->memory_limit_bytes < LEAST_MEMORY)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.memory_limit_bytes %llu is below %u: no scope stands in so little",
				 (unsigned long long)opts->memory_limit_bytes, LEAST_MEMORY);
	if (opts->memory_limit_bytes > INT64_MAX || opts->process_limit > MOST_PROCESSES)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.memory_limit_bytes %llu or .process_limit %u is more than a kernel counts",
				 (unsigned long long)opts->memory_limit_bytes, opts->process_limit);
	return 0;
}

/* And fills in what was left to be chosen. */
static int32_t check_opts(struct orch_scope_opts *opts, orch_error **reterr)
{
	const uint32_t limits = ORCH_LIMIT_MEMORY | ORCH_LIMIT_PROCESSES | ORCH_LIMIT_CPU | ORCH_LIMIT_TIME;
	if (opts->flags || opts->reserved)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.flags and .reserved have to be 0");
	if (opts->least_rung > ORCH_RUNG_CGROUP_PIDNS || opts->best_rung > ORCH_RUNG_CGROUP_PIDNS)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.least_rung %u or .best_rung %u is none of ORCH_RUNG_*",
				 opts->least_rung, opts->best_rung);
	if (!opts->least_rung)
		opts->least_rung = ORCH_RUNG_PIDNS;
	if (opts->best_rung && opts->best_rung < opts->least_rung)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.best_rung %u is below least_rung %u: nothing is between",
				 opts->best_rung, opts->least_rung);
	if (opts->required_limits & ~limits)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.required_limits 0x%x has bits that are no ORCH_LIMIT_*",
				 opts->required_limits);
	if (!opts->setup_timeout_ms)
		opts->setup_timeout_ms = DEFAULT_SETUP_MS;
	return check_limits(opts, reterr);
}

/* What confines stands on namespaces; macOS has none, and its one rung for all. */
static int32_t check_confined_rung(struct orch_scope_opts *opts, orch_error **reterr)
{
	if (opts->best_rung && opts->best_rung < judge_confined_rung())
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_scope_opts.best_rung %u has no PID namespace, and a sandbox needs one: "
				 "ORCH_RUNG_PIDNS or better",
				 opts->best_rung);
	if (opts->least_rung < judge_confined_rung())
		opts->least_rung = judge_confined_rung();
	return 0;
}

/* Before anybody is asked for the scope. */
static int32_t record_name(struct orch_scope *scope, orch_error **reterr)
{
	struct identity helper;
	if (!scope->reaper->record)
		return 0;
	identity_take(scope->reaper->helper_pid, scope->reaper->helper_watch, &helper);
	return record_named(scope->reaper->record, scope->name, scope->label, &helper, reterr);
}

int32_t orch_scope_new_confined(orch_ctx *ctx, const struct orch_scope_opts *opts,
				const struct orch_confinement *confinement, orch_scope **ret_scope,
				orch_error **reterr)
{
	struct orch_scope_opts known;
	struct reaper *reaper;
	int32_t code = orch_ctx_check(ctx, reterr);
	if (code == 0)
		code = orch_opts_read(opts, &known, sizeof(known), "orch_scope_opts", reterr);
	if (code < 0)
		return code;
	if (!ret_scope)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_scope is NULL");
	code = check_opts(&known, reterr);
	if (code == 0 && confinement && !confinement->without_namespaces)
		code = check_confined_rung(&known, reterr);
	if (code < 0)
		return code;
	code = reaper_get(ctx, &reaper, reterr);
	if (code < 0)
		return code;

	struct orch_scope *scope = calloc(1, sizeof(*scope));
	if (!scope)
		return orch_fail_memory(reterr);
	atomic_init(&scope->references, 1);
	scope->reaper = reaper;
	scope->init_fd = scope->listener_fd = scope->private_fd = scope->lower_fd = -1;
	scope->least_rung = known.least_rung;
	scope->id = ++reaper->last_scope;
	scope->connected = true;
	memcpy(scope->name, "orch-", 5);
	orch_random_hex(scope->name + 5, 8);
	scope->label = strdup(known.label ? known.label : scope->name);
	scope->load_uid = confinement ? confinement->host_uid : geteuid();
	scope->ctx = ctx;
	code = scope->label ? record_name(scope, reterr) : orch_fail_memory(reterr);
	if (code == 0)
		code = send_new(scope, &known, confinement, reterr);
	if (code < 0) {
		if (reaper->record)
			record_end(reaper->record, scope->name, NULL);
		scope_free(scope);
		return code;
	}
	orch_ctx_ref(ctx);
	attach(scope);
	scope_watch(scope, (int64_t)known.setup_timeout_ms + SETUP_MARGIN_MS);
	*ret_scope = scope;
	return 0;
}

int32_t orch_scope_new(orch_ctx *ctx, const struct orch_scope_opts *opts, orch_scope **ret_scope,
		       orch_error **reterr)
{
	return orch_scope_new_confined(ctx, opts, NULL, ret_scope, reterr);
}
