/* SPDX-License-Identifier: Apache-2.0 */
#include <orch/scope.h>

#include "../../core/core-private.h"
#include "../leftover.h"
#include "processes.h"

/*
 * The recorded programs and who descends from them now. What left its parents before is not found, so a scope in which
 * programs ran is never DEAD before the machine was started again.
 */

#define SURVIVORS_MAX 64

static void decide(struct leftover *leftover, uint32_t verdict, const char *reason)
{
	leftover->verdict = verdict;
	leftover->reason = reason;
}

static bool is_same(const struct identity *identity)
{
	int watch;
	return identity->pid && identity_find(identity, &watch) == IDENTITY_SAME;
}

/* Kills whom it finds; how many lived, or -1: there is no list. */
static int kill_members(const struct identity *roots, uint32_t count, struct census *survivors)
{
	struct lineage lineage = {0};
	struct process *list;
	size_t length;
	int living = -1;
	if (processes_list(&list, &length) < 0)
		return -1;
	int error = 0;
	for (uint32_t i = 0; i < count && !error; i++)
		if (is_same(&roots[i]))
			error = lineage_add(&lineage, roots[i].pid, roots[i].start_time);
	if (!error && lineage_absorb(&lineage, list, length) == 0) {
		living = (int)processes_signal(&lineage, list, length, 9);
		if (survivors && living > 0)
			processes_census(survivors, &lineage, list, length, SURVIVORS_MAX);
	}
	lineage_free(&lineage);
	free(list);
	return living;
}

void leftover_strike(struct leftover *leftover)
{
	int living = kill_members(leftover->scope->programs, leftover->scope->program_count, NULL);
	if (living > 0) {
		leftover->alive = (uint32_t)living;
		leftover->flags |= WIRE_DEATH_LINEAGE_KILLED;
	}
	/* After its programs: their descent from it ends with it. */
	kill_members(&leftover->scope->helper, 1, NULL);
}

void leftover_look(struct leftover *leftover, bool last)
{
	const struct record_scope *scope = leftover->scope;
	bool named = !scope->rung;
	int living = named ? kill_members(&scope->helper, 1, last ? &leftover->survivors : NULL)
			   : kill_members(scope->programs, scope->program_count, last ? &leftover->survivors : NULL);
	if (living == 0 && named) {
		/* The host asks for the first program after it recorded that the scope stands. */
		leftover->flags |= WIRE_DEATH_NEVER_STOOD | WIRE_DEATH_HELPER_GONE;
		decide(leftover, ORCH_DEATH_DEAD, "");
	} else if (living == 0) {
		decide(leftover, ORCH_DEATH_UNVERIFIABLE,
		       "lineage can be left, and the host that knew it is dead: every recorded program and who descends "
		       "from it now is dead; starting the machine again rules out the rest");
	} else if (last && living > 0 && leftover->survivors.stored) {
		decide(leftover, ORCH_DEATH_SURVIVORS, "");
	} else if (last) {
		decide(leftover, ORCH_DEATH_UNVERIFIABLE, "the list of processes can not be had");
	}
}
