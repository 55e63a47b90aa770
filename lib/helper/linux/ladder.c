/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <orch/error.h>

#include "ladder.h"
#include "linux.h"

#define NEED(need) (1u << (need))

/* Best first. */
static const struct {
	uint32_t rung;
	const char *name;
	uint32_t needs;
} rungs[] = {
    {ORCH_RUNG_CGROUP_PIDNS, "CGROUP_PIDNS", NEED(NEED_CGROUP) | NEED(NEED_PIDNS)},
    {ORCH_RUNG_PIDNS, "PIDNS", NEED(NEED_PIDNS)},
    {ORCH_RUNG_CGROUP, "CGROUP", NEED(NEED_CGROUP)},
    {ORCH_RUNG_SUBREAPER, "SUBREAPER", NEED(NEED_DESCENT)},
};
#define RUNGS (sizeof(rungs) / sizeof(*rungs))

static uint32_t missing(const struct ladder *ladder)
{
	uint32_t needs = 0;
	for (unsigned need = 0; need < NEEDS; need++)
		if (ladder->missing[need].code)
			needs |= NEED(need);
	return needs;
}

static const char *name_of(uint32_t rung)
{
	for (size_t i = 0; i < RUNGS; i++)
		if (rungs[i].rung == rung)
			return rungs[i].name;
	return "?";
}

bool rung_needs(uint32_t rung, enum need need)
{
	for (size_t i = 0; i < RUNGS; i++)
		if (rungs[i].rung == rung)
			return rungs[i].needs & NEED(need);
	return false;
}

uint32_t ladder_next(const struct ladder *ladder)
{
	uint32_t without = missing(ladder);
	for (size_t i = 0; i < RUNGS; i++)
		if (rungs[i].rung <= ladder->best && rungs[i].rung >= ladder->least && !(rungs[i].needs & without))
			return rungs[i].rung;
	return 0;
}

void ladder_miss(struct ladder *ladder, enum need need, const struct setup_error *why)
{
	ladder->missing[need] = *why;
	if (!ladder->missing[need].code)
		ladder->missing[need].code = ORCH_EUNENFORCEABLE;
}

/* What keeps a rung of the range away, or 0: it is none of the range. */
static uint32_t lacks(const struct ladder *ladder, size_t i)
{
	bool in_range = rungs[i].rung <= ladder->best && rungs[i].rung >= ladder->least;
	return in_range ? rungs[i].needs & missing(ladder) : 0;
}

/* Of the range's rungs above this one. */
static uint32_t causes(const struct ladder *ladder, uint32_t above)
{
	uint32_t needs = 0;
	for (size_t i = 0; i < RUNGS; i++)
		if (rungs[i].rung > above)
			needs |= lacks(ladder, i);
	return needs;
}

/* The same without what would not have to be there for one of them. */
static uint32_t least_causes(const struct ladder *ladder)
{
	uint32_t needs = 0;
	for (size_t i = 0; i < RUNGS; i++) {
		bool more_than_another = false;
		for (size_t j = 0; j < RUNGS; j++) {
			uint32_t fewer = lacks(ladder, j);
			more_than_another |= fewer && fewer != lacks(ladder, i) && !(fewer & ~lacks(ladder, i));
		}
		if (!more_than_another)
			needs |= lacks(ladder, i);
	}
	return needs;
}

static void list_causes(const struct ladder *ladder, uint32_t needs, char *text, size_t size)
{
	size_t length = strlen(text);
	for (unsigned need = 0; need < NEEDS && length < size; need++)
		if (needs & NEED(need)) {
			snprintf(text + length, size - length, "%s%s", text[length ? length - 1 : 0] == ' ' ? "" : "; ",
				 ladder->missing[need].message);
			length = strlen(text);
		}
}

void ladder_refusal(const struct ladder *ladder, struct setup_error *error)
{
	uint32_t needs = least_causes(ladder);
	if (!needs) {
		/* No rung between the two: the host checks that, so this is a host of another mind. */
		setup_fail(error, ORCH_EUNENFORCEABLE, 0, "rung", "no rung is between least_rung %u and best_rung %u",
			   ladder->least, ladder->best);
		return;
	}
	unsigned first = 0;
	while (!(needs & NEED(first)))
		first++;
	*error = ladder->missing[first];
	/* One cause speaks for itself; the set-up's own error goes through as it is. */
	if (needs == NEED(NEED_PIDNS))
		return;
	char text[sizeof(error->message)];
	snprintf(text, sizeof(text), "least_rung %s can not be had: ", name_of(ladder->least));
	list_causes(ladder, needs, text, sizeof(text));
	memcpy(error->message, text, sizeof(text));
}

void ladder_note(const struct ladder *ladder, uint32_t rung, char *text, size_t size)
{
	uint32_t needs = causes(ladder, rung);
	text[0] = '\0';
	if (!needs)
		return;
	snprintf(text, size, "rung %s, not", name_of(rung));
	for (size_t i = 0; i < RUNGS && rungs[i].rung > rung; i++)
		if (rungs[i].rung <= ladder->best) {
			size_t length = strlen(text);
			snprintf(text + length, size - length, " %s", rungs[i].name);
		}
	size_t length = strlen(text);
	snprintf(text + length, size - length, ": ");
	list_causes(ladder, needs, text, size);
}
