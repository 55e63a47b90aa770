/* SPDX-License-Identifier: Apache-2.0 */
#include "../scope-private.h"
#include "processes.h"

/*
 * What the host does itself when orch-reaper is dead or silent: it knows the programs that ran, and finds and kills their
 * descendants as orch-reaper does. Without a closed set the answer is never DEAD.
 */

#define SURVIVORS_MAX 64
#define LOOK_MS 5

static void certify(struct orch_scope *scope, uint32_t verdict, uint32_t flags, const char *reason)
{
	struct death_facts facts = {
	    .verdict = verdict,
	    .flags = flags,
	    .reason = reason,
	    .last_death_us = scope->last_death_us ? scope->last_death_us - scope->requested_us : -1,
	    .confirmed_us = orch_monotonic_us() - scope->requested_us,
	    .requested_ms = scope->requested_ms};
	scope_over(scope, death_new(scope, &facts));
}

void judge_note_program(struct orch_scope *scope, int32_t pid)
{
	struct process process;
	if (!scope->lineage)
		scope->lineage = calloc(1, sizeof(*scope->lineage));
	/* Without memory, or when it is gone already, it is missing: the verdict can not be DEAD anyhow. */
	if (scope->lineage && process_find(pid, &process) && process.session == pid)
		(void)lineage_add(scope->lineage, pid, process.start_us);
}

void judge_free(struct orch_scope *scope)
{
	if (scope->lineage)
		lineage_free(scope->lineage);
	free(scope->lineage);
	scope->lineage = NULL;
}

/* Who is a member has to be looked for, which is the helper's work. */
bool judge_members(const struct orch_scope *scope, uint32_t *ret_alive)
{
	(void)scope;
	(void)ret_alive;
	return false;
}

void judge_strike(const struct orch_scope *scope)
{
	(void)scope;
}

/* Kills whom it finds. How many lived; -1: there is no list. With `last` the survivors are kept. */
static int kill_members(struct orch_scope *scope, bool last)
{
	struct lineage none = {0};
	struct lineage *lineage = scope->lineage ? scope->lineage : &none;
	struct process *list;
	size_t count;
	if (processes_list(&list, &count) < 0)
		return -1;
	int living = -1;
	if (lineage_absorb(lineage, list, count) == 0)
		living = (int)processes_signal(lineage, list, count, 9);
	if (last && living > 0) {
		struct census census;
		processes_census(&census, lineage, list, count, SURVIVORS_MAX);
		free(scope->survivors);
		scope->survivors = census.entries;
		scope->survivor_count = census.stored;
	}
	free(list);
	return living;
}

void judge_look(struct orch_scope *scope)
{
	int64_t now = orch_monotonic_us();
	bool last = now >= scope->deadline_us;
	bool was_empty = scope->last_death_us != 0;
	int living = kill_members(scope, last);

	if (living == 0 && !was_empty)
		scope->last_death_us = now;
	else if (living != 0)
		scope->last_death_us = 0;
	if (living == 0 && was_empty && !scope->connected)
		certify(scope, ORCH_DEATH_UNVERIFIABLE, WIRE_DEATH_LINEAGE_KILLED,
			"orch-reaper died; " WIRE_BY_DESCENT);
	else if (last && living > 0)
		certify(scope, ORCH_DEATH_SURVIVORS, WIRE_DEATH_LINEAGE_KILLED, "");
	else if (last)
		certify(scope, ORCH_DEATH_UNVERIFIABLE, WIRE_DEATH_LINEAGE_KILLED,
			scope->connected ? "orch-reaper did not answer by the deadline"
					 : "orch-reaper died, and the list of processes can not be had");
	else
		scope_watch(scope, LOOK_MS);
}

void judge_begin(struct orch_scope *scope)
{
	scope_expect_death(scope, DEFAULT_DEADLINE_MS);
	judge_look(scope);
}

uint32_t judge_confined_rung(void)
{
	return ORCH_RUNG_SUBREAPER;
}

/* Nothing is known there of who stopped it. */
void judge_wake(const struct orch_scope *scope)
{
	(void)scope;
}
