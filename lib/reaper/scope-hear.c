/* SPDX-License-Identifier: Apache-2.0 */
/* What the helper says of a scope. */
#include <errno.h>
#include <sys/statvfs.h>

#include "stream-private.h"

/* --- the record ------------------------------------------------------------------------ */

/*
 * Before the first program is asked for: a recovery relies on it that none ran in a scope whose init is not recorded.
 */
static bool record_standing(struct orch_scope *scope, orch_error **reterr)
{
	struct identity init = {0};
	if (!scope->reaper->record)
		return true;
	if (scope->init_pid)
		identity_take(scope->init_pid, scope->init_fd, &init);
	return record_up(scope->reaper->record, scope->name, scope->rung, &init, scope->pidns_inode,
			 scope->cgroup ? scope->cgroup : "", reterr) == 0;
}

/* Where there is no closed set, the programs are all that a recovery can find. */
static void record_started(struct orch_scope *scope, pid_t pid)
{
	struct identity program;
	orch_error *error = NULL;
	if (!scope->reaper->record || scope->rung != ORCH_RUNG_SUBREAPER || pid <= 0)
		return;
	if (identity_take_program(pid, scope->init_pid, &program) &&
	    record_program(scope->reaper->record, scope->name, &program, &error) < 0)
		orch_ctx_logf(scope->ctx, ORCH_LOG_WARNING, "%s: %s", scope->name, orch_error_message(error));
	orch_error_free(error);
}

/* --- each message ---------------------------------------------------------------------- */

static orch_error *error_of(const struct wire_message *message)
{
	orch_error *error = NULL;
	orch_fail(&error, message->code < 0 ? message->code : ORCH_ESYS, message->os_errno,
		  message->step, "%s", message->text);
	return error;
}

/* Takes an error that makes an end of a scope which the helper believes to stand. */
static void refuse_up(struct orch_scope *scope, orch_error *error)
{
	scope_fail_start(scope, error);
	orch_error_free(error);
	scope_begin_stop(scope, 0, DEFAULT_DEADLINE_MS);
}

/* The next descriptor of the packet, if it came with the flag. */
static void take_fd(const struct wire_packet *packet, uint32_t flag, uint32_t *taken, int *ret_fd)
{
	if (packet->message.flags & flag && *taken < packet->fd_count)
		*ret_fd = packet->fds[(*taken)++];
}

/* The first ones belong to somebody else now. */
static void drop_taken(struct wire_packet *packet, uint32_t taken)
{
	packet->fd_count -= taken;
	memmove(packet->fds, packet->fds + taken, packet->fd_count * sizeof(packet->fds[0]));
}

static void hear_up(struct orch_scope *scope, struct wire_packet *packet)
{
	bool lineage = packet->message.flags & WIRE_LINEAGE;
	orch_error *error = NULL;
	if (scope->phase != SCOPE_STARTING || scope->init_fd >= 0)
		return;
	if (!packet->fd_count && !lineage) {
		orch_fail(&error, ORCH_ESYS, EMFILE, "pidfd",
			  "this process has no file descriptor left for the scope's init");
		refuse_up(scope, error);
		return;
	}
	if (packet->message.number[0] < scope->least_rung) {
		orch_fail(&error, ORCH_EUNENFORCEABLE, 0, "rung", "orch-reaper gave rung %u, least_rung is %u",
			  (uint32_t)packet->message.number[0], scope->least_rung);
		refuse_up(scope, error);
		return;
	}
	scope->rung = (uint32_t)packet->message.number[0];
	scope->pidns_inode = packet->message.number[1];
	scope->init_pid = packet->message.value;
	scope->init_start_time = packet->message.number[WIRE_UP_START_TIME];
	scope->init_pidfs_inode = packet->message.number[WIRE_UP_PIDFS_INODE];
	scope->cgroup = strdup(packet->message.text);
	if (!lineage) {
		uint32_t taken = 0;
		scope->init_fd = packet->fds[taken++];
		take_fd(packet, WIRE_LISTENER, &taken, &scope->listener_fd);
		take_fd(packet, WIRE_PRIVATE, &taken, &scope->private_fd);
		take_fd(packet, WIRE_LOWER, &taken, &scope->lower_fd);
		drop_taken(packet, taken);
	}
	if (!record_standing(scope, &error)) {
		refuse_up(scope, error);
		return;
	}
	if (scope->stopping)
		return; /* the stop passed this message on its way */
	scope->phase = SCOPE_STANDING;
	scope->stood = true;
	for (size_t i = 0; i < SCOPE_LIMITS; i++)
		if (!scope->limits[i].state)
			scope->limits[i].state = ORCH_LIMIT_UNASKED;
	scope->watchdog = orch_source_remove(scope->watchdog);
	struct wire_packet *entry;
	while ((entry = scope->pending.first)) {
		scope->pending.first = entry->next;
		reaper_send(scope->reaper, entry, NULL);
		free(entry);
	}
	scope->pending = (struct wire_queue){0};
	scope_tell_starts(scope);
}

static void hear_connected(struct orch_scope *scope, struct wire_packet *packet)
{
	struct callback **link = &scope->connects;
	while (*link && (*link)->subject != packet->message.subject)
		link = &(*link)->next;
	struct callback *callback = callback_pop(link);
	if (!callback)
		return;
	if (packet->fd_count == 1) {
		packet->fd_count = 0;
		callback->connect(callback->userdata, packet->fds[0], NULL);
	} else {
		if (!packet->message.code) {
			packet->message.os_errno = EMFILE;
			wire_copy(packet->message.text, WIRE_TEXT_MAX,
				  "this process has no file descriptor left for the connection");
		}
		orch_error *error = error_of(&packet->message);
		callback->connect(callback->userdata, -1, error);
		orch_error_free(error);
	}
	callback_free(callback);
}

static void hear_survivor(struct orch_scope *scope, const struct wire_message *message)
{
	struct census_entry *grown =
	    realloc(scope->survivors, (scope->survivor_count + 1) * sizeof(*scope->survivors));
	if (!grown)
		return;
	scope->survivors = grown;
	struct census_entry *entry = &grown[scope->survivor_count++];
	memset(entry, 0, sizeof(*entry));
	entry->pid = message->value;
	entry->start_time = message->number[0];
	wire_copy(entry->state, sizeof(entry->state), message->step);
	memcpy(entry->wchan, message->text, sizeof(entry->wchan) - 1);
}

static void hear_death(struct orch_scope *scope, const struct wire_message *message)
{
	struct death_facts facts = {.verdict = (uint32_t)message->value,
				    .flags = message->flags,
				    .reason = message->text,
				    .last_death_us = (int64_t)message->number[0],
				    .confirmed_us = (int64_t)message->number[1],
				    .alive = (uint32_t)message->number[2],
				    .requested_ms = (int64_t)message->number[3]};
	if (message->number[4])
		scope->pidns_inode = message->number[4];
	/* The kernel's answer to the host itself: it holds init's pidfd. */
	if (facts.verdict == ORCH_DEATH_DEAD && scope->init_fd >= 0) {
		facts.host_proof = watch_has_ended(scope->init_fd);
		if (!facts.host_proof) {
			facts.verdict = ORCH_DEATH_UNVERIFIABLE;
			facts.reason = "orch-reaper says dead, the host's pidfd of init says alive";
		}
	}
	uint32_t allowed = death_verdict(scope->rung, facts.verdict, facts.flags);
	if (allowed != facts.verdict) {
		facts.verdict = allowed;
		facts.reason = WIRE_BY_DESCENT;
	}
	orch_death *death = death_new(scope, &facts);
	scope_over(scope, death);
}

static void hear_limit(struct orch_scope *scope, const struct wire_message *message)
{
	for (size_t i = 0; i < SCOPE_LIMITS; i++) {
		struct scope_limit *limit = &scope->limits[i];
		if (message->value != 1 << i || limit->mechanism)
			continue;
		limit->state = (uint32_t)message->code;
		limit->mechanism = strdup(message->text);
		if (limit->state != ORCH_LIMIT_ENFORCED)
			orch_ctx_logf(scope->ctx, ORCH_LOG_NOTICE, "%s: %s limit %s: %s", scope->name,
				      scope_limit_name((uint32_t)message->value),
				      limit->state == ORCH_LIMIT_PARTIAL ? "partial" : "absent", message->text);
	}
}

/* Its load can write nothing more. Bytes that it freed before it ended are not seen. */
static bool disk_is_full(const struct orch_scope *scope)
{
	struct statvfs disk;
	return scope->private_fd >= 0 && fstatvfs(scope->private_fd, &disk) == 0 &&
	       (disk.f_bavail == 0 || disk.f_ffree == 0);
}

static uint32_t exit_reason(const struct orch_scope *scope, const struct wire_message *message)
{
	if (message->flags & WIRE_EXIT_MEMORY)
		return ORCH_REASON_MEMORY;
	if (message->flags & WIRE_EXIT_TIME)
		return ORCH_REASON_TIME;
	if (message->flags & WIRE_EXIT_STOPPED)
		return ORCH_REASON_STOPPED;
	if ((message->code || message->value) && disk_is_full(scope))
		return ORCH_REASON_DISK;
	return message->code ? ORCH_REASON_SIGNALED : ORCH_REASON_EXITED;
}

void scope_hear(struct orch_scope *scope, struct wire_packet *packet)
{
	const struct wire_message *message = &packet->message;
	struct orch_proc *proc = proc_find(scope, message->subject);
	orch_error *error;
	if (scope->phase == SCOPE_OVER || scope->certified_us)
		return;
	switch (message->type) {
	case WIRE_SCOPE_UP:
		hear_up(scope, packet);
		break;
	case WIRE_SCOPE_FAILED:
		error = error_of(message);
		scope_fail_start(scope, error);
		orch_error_free(error);
		break;
	case WIRE_STARTED:
		judge_note_program(scope, message->value);
		record_started(scope, message->value);
		if (proc)
			proc_started(proc, message->value);
		break;
	case WIRE_FAILED:
		/* Why the scope is closed, its end will say. */
		if (!proc || message->code == ORCH_ECLOSED)
			break;
		error = error_of(message);
		proc_failed(proc, ORCH_REASON_SETUP, error);
		orch_error_free(error);
		break;
	case WIRE_EXITED:
		if (proc)
			proc_exited(proc, exit_reason(scope, message), message->value, message->code);
		break;
	case WIRE_CONNECTED:
		hear_connected(scope, packet);
		break;
	case WIRE_SURVIVOR:
		hear_survivor(scope, message);
		break;
	case WIRE_DEATH:
		hear_death(scope, message);
		break;
	case WIRE_LIMIT:
		hear_limit(scope, message);
		break;
	case WIRE_NOTE:
		orch_ctx_logf(scope->ctx, ORCH_LOG_NOTICE, "%s: %s", scope->name, message->text);
		break;
	default:
		break;
	}
}
