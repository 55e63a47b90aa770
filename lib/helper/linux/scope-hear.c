/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <orch/error.h>

#include "scope.h"

static void take_proc(struct scope *scope, struct wire_packet *ready)
{
	struct statfs system;
	if (!(ready->message.flags & WIRE_PROC) || !ready->fd_count || scope->proc_fd >= 0)
		return;
	scope->proc_fd = ready->fds[--ready->fd_count];
	/* A sandbox may have another folder there. */
	if (fstatfs(scope->proc_fd, &system) < 0 || system.f_type != PROC_SUPER_MAGIC)
		close_fd(&scope->proc_fd);
}

static void scope_up(struct helper *helper, struct scope *scope, struct wire_packet *ready)
{
	char path[64];
	struct stat status;
	scope_adopt_init(scope);
	take_proc(scope, ready);
	scope->pidns_inode = rung_needs(scope->rung, NEED_PIDNS) ? ready->message.number[0] : 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)scope->init_pid);
	/* Init is not dumpable, so an ordinary user's helper has only its word. */
	if (scope->pidns_inode && stat(path, &status) == 0)
		scope->pidns_inode = status.st_ino;
	scope_unmap_page(scope);
	close_fd(&scope->spec_fd);
	if (scope->state != SETTING_UP)
		return;

	char note[WIRE_TEXT_MAX];
	ladder_note(&scope->ladder, scope->rung, note, sizeof(note));
	if (note[0])
		answer_note(helper, scope->id, note);
	struct wire_packet packet = wire_packet(WIRE_SCOPE_UP, scope->id, 0);
	int init_fd = fcntl(scope->init_fd, F_DUPFD_CLOEXEC, 3);
	if (init_fd < 0) {
		struct setup_error error;
		setup_fail(&error, ORCH_ESYS, errno, "pidfd", "the scope's init has no pidfd");
		scope_fail(helper, scope, &error);
		return;
	}
	packet.message.value = scope->init_pid;
	packet.message.number[0] = scope->rung;
	packet.message.number[1] = scope->pidns_inode;
	packet.message.number[WIRE_UP_START_TIME] = scope->init_start_time;
	packet.message.number[WIRE_UP_PIDFS_INODE] = scope->init_pidfs_inode;
	if (scope->has_cgroup)
		snprintf(packet.message.text, WIRE_TEXT_MAX, "%s/%.30s", helper->ground->cgroups.path,
			 scope->name);
	packet.fds[packet.fd_count++] = init_fd;
	packet.message.flags = ready->message.flags & (WIRE_LISTENER | WIRE_PRIVATE | WIRE_LOWER);
	for (uint32_t i = 0; i < ready->fd_count; i++)
		packet.fds[packet.fd_count++] = ready->fds[i];
	ready->fd_count = 0;
	scope->state = STANDING;
	limits_begin(helper, scope);
	host_send(helper, &packet);
}

/* What no lower rung has either. */
static bool is_of_all_rungs(const struct setup_error *why)
{
	return strcmp(why->step, "landlock") == 0 || strcmp(why->step, "seccomp") == 0;
}

/* The namespaces can not be had. False: nothing lower is accepted. */
static bool next_rung(struct scope *scope, const struct setup_error *why)
{
	if (scope->state != SETTING_UP || why->code != ORCH_EUNENFORCEABLE || is_of_all_rungs(why) ||
	    !rung_needs(scope->rung, NEED_PIDNS))
		return false;
	ladder_miss(&scope->ladder, NEED_PIDNS, why);
	scope->retry = ladder_next(&scope->ladder) != 0;
	return scope->retry;
}

/*
 * A limit of processes counts the set-up process as long as it is not reaped, so no program starts before that. It
 * ends as soon as it made init.
 */
static void hear_ready(struct helper *helper, struct scope *scope, struct wire_packet *packet)
{
	bool in_the_way = scope->limits.processes && scope->setup_fd >= 0;
	if (!in_the_way) {
		scope_up(helper, scope, packet);
	} else if (!scope->has_ready) {
		scope->ready = *packet;
		scope->has_ready = true;
		packet->fd_count = 0;
	}
}

void scope_hear_held(struct helper *helper, struct scope *scope)
{
	if (!scope->has_ready)
		return;
	scope->has_ready = false;
	scope_up(helper, scope, &scope->ready);
	wire_packet_close(&scope->ready);
}

/* Whose program's end it was: its own, or that of its scope. */
static uint32_t exit_flags(struct helper *helper, struct scope *scope)
{
	limits_check(helper, scope);
	if (scope->proof & WIRE_DEATH_MEMORY)
		return WIRE_EXIT_MEMORY;
	if (scope->proof & WIRE_DEATH_TIME)
		return WIRE_EXIT_TIME;
	return scope->state == STANDING ? 0 : WIRE_EXIT_STOPPED;
}

/* What was tried last does not tell why nothing better was to be had. */
static void explain_refusal(const struct scope *scope, struct setup_error *error)
{
	const struct setup_error *missing = &scope->ladder.missing[NEED_PIDNS];
	const struct setup_error tried = *error;
	if (missing->code && !scope->confined)
		ladder_refusal(&scope->ladder, error);
	else if (missing->code && !rung_needs(scope->rung, NEED_PIDNS))
		setup_fail(error, tried.code, tried.os_errno, tried.step, "%s. Not with namespaces: %s", tried.message,
			   missing->message);
}

static void scope_hear(struct helper *helper, struct scope *scope, struct wire_packet *packet)
{
	struct setup_error error;
	packet->message.scope = scope->id;
	switch (packet->message.type) {
	case WIRE_READY:
		hear_ready(helper, scope, packet);
		break;
	case WIRE_SETUP_FAILED:
		setup_fail(&error, packet->message.code, packet->message.os_errno,
			   packet->message.step, "%s", packet->message.text);
		if (!next_rung(scope, &error)) {
			explain_refusal(scope, &error);
			scope_fail(helper, scope, &error);
		}
		break;
	case WIRE_EMPTY:
		if (scope->state == TERMINATING)
			scope_kill(scope);
		else if (scope->state >= KILLING && scope->rung == ORCH_RUNG_SUBREAPER)
			scope->proof |= WIRE_DEATH_CHILDLESS;
		break;
	case WIRE_EXITED:
		packet->message.flags = exit_flags(helper, scope);
		host_send(helper, packet);
		if (scope->has_leader && scope->leader == packet->message.subject &&
		    scope->state == STANDING)
			scope_end_unrequested(scope);
		break;
	case WIRE_FAILED:
		if (scope->has_leader && scope->leader == packet->message.subject)
			scope->has_leader = false;
		host_send(helper, packet);
		break;
	case WIRE_STARTED:
	case WIRE_CONNECTED:
		host_send(helper, packet);
		break;
	default:
		break;
	}
}

bool scope_listen(struct helper *helper, struct scope *scope)
{
	for (int i = 0; i < 64 && scope->control_fd >= 0; i++) {
		struct wire_packet packet;
		int error = wire_receive(scope->control_fd, NULL, &packet);
		if (error == -EAGAIN)
			return false;
		if (error == -EMFILE) {
			struct setup_error failure;
			setup_fail(&failure, ORCH_ESYS, EMFILE, "helper",
				   "orch-reaper has no file descriptor left");
			scope_fail(helper, scope, &failure);
			continue;
		}
		if (error) {
			close_fd(&scope->control_fd);
			wire_queue_clear(&scope->to_init);
			return false;
		}
		scope_hear(helper, scope, &packet);
		wire_packet_close(&packet);
	}
	return scope->control_fd >= 0;
}
