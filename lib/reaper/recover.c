/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include <orch/reaper.h>

#include "leftover.h"
#include "scope-private.h"

#define LOOK_MS 2

struct orch_leftovers {
	uint32_t count;
	orch_death **deaths;
};

orch_leftovers *orch_leftovers_unref(orch_leftovers *leftovers)
{
	for (uint32_t i = 0; leftovers && leftovers->deaths && i < leftovers->count; i++)
		orch_death_unref(leftovers->deaths[i]);
	if (leftovers)
		free(leftovers->deaths);
	free(leftovers);
	return NULL;
}

uint32_t orch_leftovers_count(const orch_leftovers *leftovers)
{
	return leftovers ? leftovers->count : 0;
}

int32_t orch_leftovers_death(const orch_leftovers *leftovers, uint32_t index, orch_death **ret_death)
{
	if (!leftovers || index >= leftovers->count || !ret_death)
		return ORCH_EINVAL;
	*ret_death = orch_death_ref(leftovers->deaths[index]);
	return 0;
}

/* --- recovery -------------------------------------------------------------------------- */

/* What follows from the boot alone. */
static void compare_place(struct leftover *leftover, const struct place *here)
{
	const struct place *there = &leftover->scope->place;
	if (!*there->boot_id || !*here->boot_id) {
		/* At another boot the same number and time may be a stranger's: nothing is touched. */
		leftover->verdict = ORCH_DEATH_UNVERIFIABLE;
		leftover->reason = "the boot can not be told from others: its id can not be read";
	} else if (strcmp(there->boot_id, here->boot_id) != 0) {
		leftover->verdict = ORCH_DEATH_DEAD;
		leftover->flags = WIRE_DEATH_ANOTHER_BOOT;
		leftover->last_death_us = -1;
	}
	leftover->foreign = !place_is(there, here);
}

/* By the helper: all scopes of a host have one, until it died. */
static void spare(struct leftover *leftovers, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct record_scope *scope = leftovers[i].scope;
		if (!scope->rung || scope->rung >= ORCH_RUNG_PIDNS)
			continue;
		for (uint32_t j = 0; j < count; j++) {
			const struct identity *helper = &leftovers[j].scope->helper;
			leftovers[j].spared |= helper->pid == scope->helper.pid &&
					       helper->start_time == scope->helper.start_time &&
					       helper->pidfs_inode == scope->helper.pidfs_inode;
		}
	}
}

static void find_all(struct leftover *leftovers, uint32_t count, int64_t start_us, int64_t deadline_us)
{
	spare(leftovers, count);
	for (uint32_t i = 0; i < count; i++)
		if (!leftovers[i].verdict)
			leftover_strike(&leftovers[i]);
	for (bool last = false, open = true; open && !last;) {
		int64_t now = orch_monotonic_us();
		last = now >= deadline_us;
		open = false;
		for (uint32_t i = 0; i < count; i++) {
			leftovers[i].spared &= now < start_us + (deadline_us - start_us) / 2;
			if (!leftovers[i].verdict)
				leftover_look(&leftovers[i], last);
			open |= !leftovers[i].verdict;
		}
		if (open)
			poll(NULL, 0, LOOK_MS);
	}
}

static orch_death *certify(struct leftover *leftover, int64_t start_us, int64_t start_ms)
{
	const struct record_scope *recorded = leftover->scope;
	/* What a certificate takes from a scope and its reaper. */
	struct reaper reaper = {0};
	struct orch_scope scope = {.label = recorded->label,
				   .reaper = &reaper,
				   .init_pid = recorded->init.pid,
				   .init_start_time = recorded->init.start_time,
				   .init_pidfs_inode = recorded->init.pidfs_inode,
				   .rung = recorded->rung,
				   .pidns_inode = recorded->pidns_inode,
				   .survivors = leftover->survivors.entries,
				   .survivor_count = leftover->survivors.stored};
	memcpy(scope.name, recorded->name, sizeof(scope.name));
	snprintf(reaper.boot_id, sizeof(reaper.boot_id), "%s", recorded->place.boot_id);
	leftover->flags |= WIRE_DEATH_RECOVERED;
	uint32_t verdict = death_verdict(recorded->rung, leftover->verdict,
					 leftover->flags & WIRE_DEATH_ANOTHER_BOOT ? WIRE_DEATH_NEVER_STOOD
										   : leftover->flags);
	int64_t last = leftover->last_death_us;
	struct death_facts facts = {.verdict = verdict,
				    .flags = leftover->flags,
				    .reason = verdict == leftover->verdict ? leftover->reason : WIRE_BY_DESCENT,
				    .last_death_us = last > 0 ? last - start_us : -1,
				    .confirmed_us = orch_monotonic_us() - start_us,
				    .alive = leftover->alive,
				    .requested_ms = start_ms};
	orch_death *death = death_new(&scope, &facts);
	leftover->verdict = verdict;
	/* They were taken, or there was no memory. */
	leftover->survivors = (struct census){.entries = scope.survivors};
	return death;
}

static int32_t recover(struct record *record, uint32_t deadline_ms, orch_leftovers *result, orch_error **reterr)
{
	_cleanup_free_ struct leftover *leftovers = calloc(record->count + 1, sizeof(*leftovers));
	result->deaths = calloc(record->count + 1, sizeof(*result->deaths));
	if (!leftovers || !result->deaths)
		return orch_fail_memory(reterr);
	int64_t start_us = orch_monotonic_us(), start_ms = orch_realtime_ms();
	struct place here;
	uint32_t count = 0;
	place_own(&here);
	for (const struct record_scope *scope = record->scopes; scope; scope = scope->next) {
		leftovers[count] = (struct leftover){.scope = scope, .reason = ""};
		compare_place(&leftovers[count++], &here);
	}
	find_all(leftovers, count, start_us, start_us + (int64_t)deadline_ms * 1000);
	bool memory = true;
	for (uint32_t i = 0; i < count; i++) {
		result->deaths[i] = certify(&leftovers[i], start_us, start_ms);
		census_free(&leftovers[i].survivors);
		result->count++;
		memory &= result->deaths[i] != NULL;
	}
	if (!memory)
		return orch_fail_memory(reterr);
	/* Backwards through names that go with their entries. A record that can not be written tells them again. */
	for (uint32_t i = count; i-- > 0;)
		if (leftovers[i].verdict == ORCH_DEATH_DEAD || leftovers[i].verdict == ORCH_DEATH_DEAD_UNREAPED) {
			char name[RECORD_NAME_SIZE];
			memcpy(name, leftovers[i].scope->name, sizeof(name));
			record_end(record, name, NULL);
		}
	record_write_anew(record, NULL);
	return 0;
}

void orch_reaper_recover_opts_init(struct orch_reaper_recover_opts *opts, uint32_t size)
{
	const struct orch_reaper_recover_opts defaults = {.deadline_ms = DEFAULT_DEADLINE_MS};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

int32_t orch_reaper_recover(const struct orch_reaper_recover_opts *opts, orch_leftovers **ret_leftovers,
			    orch_error **reterr)
{
	struct orch_reaper_recover_opts known;
	struct record *record;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_reaper_recover_opts", reterr);
	if (code < 0)
		return code;
	if (!ret_leftovers)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_leftovers is NULL");
	if (!known.path || !*known.path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_reaper_recover_opts.path names no record of scopes");
	if (known.flags || known.reserved)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_reaper_recover_opts.flags and .reserved have to be 0");
	if (orch_in_callback())
		return orch_fail(reterr, ORCH_EDEADLK, 0, NULL,
				 "orch_reaper_recover() waits and was called inside a callback: call it before the loop runs");
	code = record_open(known.path, false, &record, reterr);
	if (code < 0)
		return code;
	orch_leftovers *result = calloc(1, sizeof(*result));
	if (!result) {
		record_close(record);
		return orch_fail_memory(reterr);
	}
	code = recover(record, known.deadline_ms ? known.deadline_ms : DEFAULT_DEADLINE_MS, result, reterr);
	record_close(record);
	if (code < 0)
		orch_leftovers_unref(result);
	else
		*ret_leftovers = result;
	return code;
}
