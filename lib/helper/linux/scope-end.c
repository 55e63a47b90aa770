/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../../reaper/linux/descent.h"
#include "../../reaper/linux/holders.h"
#include "scope.h"

#define SURVIVORS_MAX 64

/* The supervisor knows whose parent it is; killing it would only make them all the helper's. */
static void ask_to_sweep(struct scope *scope)
{
	if (scope->control_fd < 0 || scope->init_fd < 0)
		return;
	struct wire_packet packet = wire_packet(WIRE_SWEEP, 0, 0);
	if (!(scope->proof & WIRE_DEATH_SWEPT) && wire_queue_add(&scope->to_init, &packet) == 0)
		scope->proof |= WIRE_DEATH_SWEPT;
	/* Its load may have stopped it. */
	pidfd_signal(scope->init_fd, SIGCONT);
}

static uint64_t number_in(pid_t pid, const char *key)
{
	char path[64], line[128];
	unsigned long long number = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &number) == 1)
			break;
	if (status)
		fclose(status);
	return number;
}

/*
 * A member with CAP_SYS_PTRACE, as root's have it, can trace init and hold it in its exit (PTRACE_O_TRACEEXIT), and
 * with it itself: nothing but its own death ends that. A tracer outside is not ours to kill.
 */
static void end_inner_tracer(const struct scope *scope)
{
	char path[64];
	struct stat namespace;
	if (scope->rung < ORCH_RUNG_PIDNS || scope->init_fd < 0 || !scope->pidns_inode)
		return;
	pid_t thread = (pid_t)number_in(scope->init_pid, "TracerPid:");
	pid_t tracer = thread ? (pid_t)number_in(thread, "Tgid:") : 0;
	_cleanup_fd_ int fd = tracer ? pidfd_open_(tracer) : -1;
	/* The descriptor first: what is a member now is what gets the signal. */
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)tracer);
	if (fd >= 0 && stat(path, &namespace) == 0 && namespace.st_ino == scope->pidns_inode)
		pidfd_signal(fd, SIGKILL);
}

/* The cgroup first: all of them die beside each other, and init, when it is run for its end, finds less to wait for. */
void scope_strike(struct scope *scope)
{
	scope_adopt_init(scope);
	if (scope->setup_fd >= 0)
		pidfd_signal(scope->setup_fd, SIGKILL);
	if (scope->cgroup_fd >= 0 && leaf_kill(scope->cgroup_fd) == 0)
		scope->proof |= WIRE_DEATH_CGROUP_KILL;
	if (scope_has_to_sweep(scope))
		ask_to_sweep(scope);
	else if (scope_kill_init(scope))
		scope->proof |= WIRE_DEATH_INIT_KILLED;
}

void scope_kill(struct scope *scope)
{
	scope_strike(scope);
	scope->state = KILLING;
	scope->due_us = now_us() + (scope_has_to_sweep(scope) ? WAKE_US : LOOK_US);
	scope->thaw_pause_us = THAW_LOOK_US;
	scope->thaw_due_us = now_us() + THAW_LOOK_US + (int64_t)scope->alive * THAW_LOOK_EACH_US;
}

void scope_look_for_frozen(struct scope *scope)
{
	end_inner_tracer(scope);
	if (scope_thaw(scope))
		scope->proof |= WIRE_DEATH_THAWED;
	if (scope->thaw_pause_us < THAW_PAUSE_US)
		scope->thaw_pause_us *= 2;
	scope->thaw_due_us = now_us() + scope->thaw_pause_us;
}

void scope_look_again(struct scope *scope, int64_t delay_us)
{
	bool sweeps = scope_has_to_sweep(scope) && !scope->init_reaped;
	/* It costs a file of /proc: once soon, and then as often as frozen members are looked for. */
	if (!scope->tracer_sought)
		end_inner_tracer(scope);
	scope->tracer_sought = true;
	if (sweeps)
		ask_to_sweep(scope);
	scope->due_us = now_us() + (sweeps && delay_us < WAKE_US ? WAKE_US : delay_us);
}

void scope_census(const struct scope *scope, struct census *census, pid_t but, uint32_t most)
{
	/* A namespace whose init was reaped is gone, and its number may be another's by now. */
	if (scope->rung == ORCH_RUNG_SUBREAPER)
		census_take_descent(census, scope->init_reaped ? 0 : scope->init_pid, NULL, 0, most);
	else if (!most && scope->proc_fd >= 0)
		census_count_inside(census, scope->proc_fd);
	else
		census_take(census, scope->init_reaped ? 0 : scope->pidns_inode, scope->cgroup_fd, but, most);
}

void scope_begin_end(struct scope *scope, int64_t grace_ms, int64_t deadline_us,
		      int64_t requested_us, int64_t requested_ms)
{
	bool first = scope->state == SETTING_UP || scope->state == STANDING;
	int64_t now = now_us();
	if (first) {
		struct census census;
		if (scope->state == SETTING_UP)
			scope->proof |= WIRE_DEATH_NEVER_STOOD;
		else if (!scope->counted) {
			scope_census(scope, &census, scope->init_pid, 0);
			scope->alive = census.count;
			census_free(&census);
		}
		scope->requested_us = requested_us;
		scope->requested_ms = requested_ms;
		scope->deadline_us = deadline_us;
	} else if (deadline_us < scope->deadline_us) {
		scope->deadline_us = deadline_us;
	}
	if (scope->state == STANDING && grace_ms > 0) {
		struct wire_packet packet = wire_packet(WIRE_TERMINATE, 0, 0);
		wire_queue_add(&scope->to_init, &packet);
		scope->proof |= WIRE_DEATH_TERMINATED;
		scope->state = TERMINATING;
		scope->due_us = now + grace_ms * 1000;
	} else if (scope->state == TERMINATING && now + grace_ms * 1000 < scope->due_us) {
		scope->due_us = now + grace_ms * 1000;
	} else if (scope->state == SETTING_UP || scope->state == STANDING) {
		scope_kill(scope);
	}
}

void scope_end_unrequested(struct scope *scope)
{
	int64_t now = now_us();
	scope_begin_end(scope, 0, now + DEFAULT_DEADLINE_MS * 1000LL, now, realtime_ms());
}

void scope_fail(struct helper *helper, struct scope *scope, const struct setup_error *error)
{
	if (scope->failed || scope->state != SETTING_UP)
		return;
	scope->failed = true;
	answer_failure(helper, WIRE_SCOPE_FAILED, scope->id, 0, error);
	scope_end_unrequested(scope);
}

void scope_send_death(struct helper *helper, struct scope *scope, uint32_t verdict,
		       const char *reason)
{
	struct wire_packet packet = wire_packet(WIRE_DEATH, scope->id, 0);
	int64_t now = now_us(), last_death = -1;
	/* An end that nobody requested begins with the death. */
	if (scope->last_death_us)
		last_death = scope->last_death_us > scope->requested_us
				 ? scope->last_death_us - scope->requested_us
				 : 0;
	packet.message.value = (int32_t)verdict;
	packet.message.flags = scope->proof;
	packet.message.number[0] = (uint64_t)last_death;
	packet.message.number[1] = (uint64_t)(now - scope->requested_us);
	packet.message.number[2] = scope->alive;
	packet.message.number[3] = (uint64_t)scope->requested_ms;
	packet.message.number[4] = scope->pidns_inode;
	wire_copy(packet.message.text, WIRE_TEXT_MAX, reason);
	host_send(helper, &packet);
}

void scope_certify_dead(struct helper *helper, struct scope *scope)
{
	const char *reason = "";
	uint32_t verdict = ORCH_DEATH_DEAD;
	if (scope->rung == ORCH_RUNG_SUBREAPER && !scope->used) {
		scope->proof |= scope->proof & WIRE_DEATH_NEVER_STOOD ? 0 : WIRE_DEATH_UNUSED;
	} else if (scope->rung == ORCH_RUNG_SUBREAPER) {
		verdict = ORCH_DEATH_UNVERIFIABLE;
		reason = WIRE_BY_SUBREAPER;
		if (!(scope->proof & WIRE_DEATH_CHILDLESS))
			scope->proof |= WIRE_DEATH_ADOPTED;
	} else if (scope->proof & WIRE_DEATH_LEFT) {
		verdict = ORCH_DEATH_UNVERIFIABLE;
		reason = "programs had left the scope's cgroup: those that were found, by descent, are dead; others "
			 "can not be ruled out";
	}
	scope_send_death(helper, scope, verdict, reason);
}

bool scope_is_dead(struct helper *helper, struct scope *scope)
{
	if (scope->setup_fd >= 0)
		return false;
	scope_adopt_init(scope);
	if (scope->init_pid && !scope->init_reaped)
		return false;
	if (scope->init_reaped)
		scope->proof |= WIRE_DEATH_INIT_REAPED;
	/* Whatever it left is ours by now. */
	if (scope->init_reaped && scope->rung < ORCH_RUNG_PIDNS && strays_hunt(helper, scope))
		return false;
	if (limits_remove(helper, scope) < 0 && now_us() < scope->deadline_us)
		return false;
	if (scope->cgroup_fd < 0)
		return true;
	int populated = leaf_populated(scope->cgroup_fd);
	if (populated > 0) {
		/* A fork may have raced the first kill (before kernel commit b69bb476dee9). */
		leaf_kill(scope->cgroup_fd);
		return false;
	}
	if (populated == 0)
		scope->proof |= WIRE_DEATH_CGROUP_EMPTY;
	int error = cgroup_leaf_remove(&helper->ground->cgroups, scope->name);
	if (error == -EBUSY && now_us() < scope->deadline_us)
		return false;
	if (error == 0)
		scope->proof |= WIRE_DEATH_CGROUP_GONE;
	close_fd(&scope->cgroup_fd);
	return true;
}

void scope_certify_alive(struct helper *helper, struct scope *scope)
{
	struct census census;
	scope_census(scope, &census, 0, SURVIVORS_MAX);
	if (!census.count && scope->init_reaped && scope->rung < ORCH_RUNG_PIDNS) {
		census_free(&census);
		strays_census(helper, &census, SURVIVORS_MAX);
	}
	/* In set-up there is no namespace to look into, and an ordinary user does not see into init: what is left may be
	 * one of these two. */
	if (scope->setup_fd >= 0)
		census_add(&census, scope->setup_pid, SURVIVORS_MAX);
	if (scope->init_fd >= 0)
		census_add(&census, scope->init_pid, SURVIVORS_MAX);
	char holders[WIRE_TEXT_MAX] = "";
	answer_survivors(helper, scope->id, &census);
	census_holders(&census, holders, sizeof(holders));
	if (census_is_unreaped(&census, scope->init_fd >= 0 ? scope->init_pid : 0))
		scope_send_death(helper, scope, ORCH_DEATH_DEAD_UNREAPED, "");
	else if (census.count)
		scope_send_death(helper, scope, ORCH_DEATH_SURVIVORS, holders);
	else
		scope_send_death(
		    helper, scope, ORCH_DEATH_UNVERIFIABLE,
		    "no proof by the deadline, and no member of the scope can be seen in /proc");
	census_free(&census);
	scope->state = LINGERING;
	scope->due_us = now_us() + LINGER_LOOK_US;
}
