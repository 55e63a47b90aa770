/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "../scope-private.h"
#include "descent.h"
#include "holders.h"
#include "pidfd.h"

#define SURVIVORS_MAX 64
#define LOOK_MS 2
/* While the helper lives and its certificate is still to come. */
#define SILENT_LOOK_MS 20
/* Between looks at a supervisor that ends its descendants. */
#define WAKE_MS 50
/* A dead init that its new parent does not reap (a container whose PID 1 does not) is reported as
 * that. */
#define REAPING_US 250000

static int open_leaf(const struct orch_scope *scope)
{
	if (!scope->cgroup || !scope->cgroup[0])
		return -1;
	return open(scope->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A file of it, by its path: these are opened between a request and the deaths. */
static bool leaf_file(const struct orch_scope *scope, const char *name, char *path, size_t size)
{
	if (!scope->cgroup || !scope->cgroup[0])
		return false;
	int length = snprintf(path, size, "%s/%s", scope->cgroup, name);
	return length > 0 && (size_t)length < size;
}

/* Its end would leave its programs to nobody: it ends them, and itself, when orch-reaper's end of its socket closes. */
static bool has_to_sweep(const struct orch_scope *scope)
{
	return scope->rung == ORCH_RUNG_SUBREAPER;
}

static void certify(struct orch_scope *scope, uint32_t verdict, uint32_t flags, const char *reason)
{
	uint32_t allowed = death_verdict(scope->rung, verdict, flags);
	struct death_facts facts = {
	    .verdict = allowed,
	    .flags = flags,
	    .host_proof = scope->last_death_us != 0,
	    .left_to_supervisor = has_to_sweep(scope),
	    .reason = allowed == verdict ? reason
				       : "orch-reaper died; the scope's supervisor ended, which by itself proves nothing "
					 "about what it started: descent can be left, and a supervisor can be killed",
	    .last_death_us = scope->last_death_us ? scope->last_death_us - scope->requested_us : -1,
	    .confirmed_us = orch_monotonic_us() - scope->requested_us,
	    .requested_ms = scope->requested_ms};
	scope_over(scope, death_new(scope, &facts));
}

/* Kills whatever is left in the leaf. True when it is empty or gone. */
static bool leaf_is_empty(struct orch_scope *scope, uint32_t *flags)
{
	_cleanup_close_ int leaf = open_leaf(scope);
	if (leaf < 0) {
		*flags |= scope->cgroup && scope->cgroup[0] ? WIRE_DEATH_CGROUP_GONE : 0;
		return true;
	}
	int populated = leaf_populated(leaf);
	if (populated > 0) {
		leaf_kill(leaf);
		return false;
	}
	if (populated == 0)
		*flags |= WIRE_DEATH_CGROUP_EMPTY;
	/* The dead helper's keeper may be faster: both mean that it is empty. */
	if (leaf_remove(AT_FDCWD, scope->cgroup) == 0)
		*flags |= WIRE_DEATH_CGROUP_GONE;
	return true;
}

static void certify_without_proof(struct orch_scope *scope, uint32_t flags)
{
	_cleanup_close_ int leaf = open_leaf(scope);
	struct census census;
	const char *reason = scope->connected
				 ? "orch-reaper did not answer by the deadline"
				 : "orch-reaper died, and the scope's init did not end by the "
				   "deadline";
	/* The number of a namespace that is gone may be another's by now. */
	if (has_to_sweep(scope))
		census_take_descent(&census, scope->last_death_us ? 0 : scope->init_pid, NULL, 0, SURVIVORS_MAX);
	else
		census_take(&census, scope->last_death_us ? 0 : scope->pidns_inode, leaf, 0, SURVIVORS_MAX);
	bool lives = scope->init_fd >= 0 && !watch_has_ended(scope->init_fd);
	if (lives)
		census_add(&census, scope->init_pid, SURVIVORS_MAX);
	bool unreaped = census_is_unreaped(&census, lives ? scope->init_pid : 0);
	char holders[WIRE_TEXT_MAX] = "";
	census_holders(&census, holders, sizeof(holders));
	free(scope->survivors);
	scope->survivors = census.entries;
	scope->survivor_count = census.stored;
	if ((scope->last_death_us && leaf_is_empty(scope, &flags)) || unreaped)
		certify(scope, ORCH_DEATH_DEAD_UNREAPED, flags, "");
	else if (census.count)
		certify(scope, ORCH_DEATH_SURVIVORS, flags, holders);
	else
		certify(scope, ORCH_DEATH_UNVERIFIABLE, flags, reason);
}

static int64_t next_look_ms(const struct orch_scope *scope, bool ended, int64_t now)
{
	int64_t left_ms = (scope->deadline_us - now) / 1000 + 1;
	int64_t pause_ms = left_ms;
	if (scope->connected)
		pause_ms = SILENT_LOOK_MS;
	else if (ended)
		pause_ms = LOOK_MS;
	else if (has_to_sweep(scope))
		pause_ms = WAKE_MS;
	return pause_ms < left_ms ? pause_ms : left_ms;
}

static void end_init(const struct orch_scope *scope)
{
	/* A supervisor may have been stopped by its load. */
	pidfd_kill(scope->init_fd, has_to_sweep(scope) ? SIGCONT : SIGKILL);
}

/* Its load may have stopped orch-reaper as well. */
void judge_wake(const struct orch_scope *scope)
{
	if (scope->connected && scope->rung && scope->rung < ORCH_RUNG_PIDNS)
		pidfd_kill(scope->reaper->helper_watch, SIGCONT);
}

void judge_look(struct orch_scope *scope)
{
	uint32_t flags = has_to_sweep(scope) ? 0 : WIRE_DEATH_INIT_KILLED;
	int64_t now = orch_monotonic_us();
	bool ended = scope->init_fd >= 0 && watch_has_ended(scope->init_fd);

	if (ended && !scope->last_death_us)
		scope->last_death_us = now;
	if (!ended && scope->init_fd >= 0)
		end_init(scope);
	judge_wake(scope);
	if (ended && !scope->connected && leaf_is_empty(scope, &flags)) {
		pidfd_reap(scope->init_fd);
		if (!pidfd_kill(scope->init_fd, 0)) {
			certify(scope, ORCH_DEATH_DEAD, flags, "");
			return;
		}
		if (now - scope->last_death_us > REAPING_US) {
			certify(scope, ORCH_DEATH_DEAD_UNREAPED, flags, "");
			return;
		}
	}
	if (now >= scope->deadline_us)
		certify_without_proof(scope, flags);
	else
		scope_watch(scope, next_look_ms(scope, ended, now));
}

static void on_init(void *userdata, uint32_t events)
{
	struct orch_scope *scope = userdata;
	(void)events;
	/* A pidfd stays readable. */
	scope->init_watch = orch_source_remove(scope->init_watch);
	judge_look(scope);
}

/* Init and the cgroup are all that has to be known. */
void judge_note_program(struct orch_scope *scope, int32_t pid)
{
	(void)scope;
	(void)pid;
}

uint32_t judge_confined_rung(void)
{
	return ORCH_RUNG_PIDNS;
}

void judge_free(struct orch_scope *scope)
{
	(void)scope;
}

/* Below it a program may have left the leaf, or init's end would leave its programs to nobody: orch-reaper's order matters. */
static bool may_strike(const struct orch_scope *scope)
{
	return scope->rung == ORCH_RUNG_CGROUP_PIDNS && scope->init_fd >= 0;
}

bool judge_members(const struct orch_scope *scope, uint32_t *ret_alive)
{
	char path[PATH_MAX];
	if (!may_strike(scope) || !leaf_file(scope, "cgroup.procs", path, sizeof(path)))
		return false;
	return census_count_list(path, scope->init_pid, ret_alive);
}

void judge_strike(const struct orch_scope *scope)
{
	char path[PATH_MAX];
	if (!may_strike(scope) || !leaf_file(scope, "cgroup.kill", path, sizeof(path)))
		return;
	_cleanup_close_ int kill_fd = open(path, O_WRONLY | O_CLOEXEC);
	/* Where it is refused there is the other one, and orch-reaper's. */
	ssize_t ignored = kill_fd >= 0 ? write(kill_fd, "1", 1) : 0;
	(void)ignored;
	pidfd_kill(scope->init_fd, SIGKILL);
}

void judge_begin(struct orch_scope *scope)
{
	scope_expect_death(scope, DEFAULT_DEADLINE_MS);
	if (scope->init_fd < 0) {
		certify(scope, ORCH_DEATH_UNVERIFIABLE, WIRE_DEATH_NEVER_STOOD,
			"orch-reaper was lost before the scope stood: no program had been started "
			"in it, and "
			"what was set up ends by itself");
		return;
	}
	/* Init ends by itself when the helper's end of its socket closes; this is for an init that
	 * is held. */
	end_init(scope);
	_cleanup_close_ int leaf = open_leaf(scope);
	if (leaf >= 0)
		leaf_kill(leaf);
	if (orch_source_io(scope->ctx, scope->init_fd, ORCH_IO_READ, on_init, scope,
			   &scope->init_watch, NULL) < 0 || has_to_sweep(scope))
		judge_look(scope);
}
