/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "../sandbox-private.h"
#include "../spec.h"

/* A container's map is rarely larger than 65536 uids; a handful of them is no choice at all. */
#define LEAST_COUNT 1000u

/* Which uids this user namespace has: `outer_zero` is set where its uid 0 is the outermost one. */
static int usable_range(struct uid_range *ret_range, bool *ret_outer_zero)
{
	FILE *file = fopen("/proc/self/uid_map", "re");
	unsigned long inner, outer, count;
	struct uid_range best = {0};

	*ret_outer_zero = false;
	if (!file)
		return -1;
	while (fscanf(file, "%lu %lu %lu", &inner, &outer, &count) == 3) {
		unsigned long first = inner == 0 ? 1 : inner;
		unsigned long usable = inner == 0 ? count - 1 : count;

		if (inner == 0 && outer == 0)
			*ret_outer_zero = true;
		if (first <= ORCH_SPEC_UID_FIRST && first + usable >= ORCH_SPEC_UID_FIRST + ORCH_SPEC_UID_COUNT) {
			first = ORCH_SPEC_UID_FIRST;
			usable = ORCH_SPEC_UID_COUNT;
		}
		if (usable > best.count)
			best = (struct uid_range){(uint32_t)first, (uint32_t)usable};
	}
	fclose(file);
	*ret_range = best;
	return 0;
}

int32_t orch_sandbox_uid_range(struct uid_range *ret_range, orch_error **reterr)
{
	struct uid_range range = {0};
	bool outer_zero;

	if (usable_range(&range, &outer_zero) < 0)
		return orch_fail(reterr, ORCH_EUNENFORCEABLE, 0, "uid",
				 "/proc/self/uid_map can not be read: mount /proc");
	if (range.count < LEAST_COUNT && outer_zero)
		return orch_fail(reterr, ORCH_EUNENFORCEABLE, 0, "uid",
				 "this user namespace has no uid but 0, which is root outside too: "
				 "a load must "
				 "not have it. Run as an ordinary user, or map at least %u uids",
				 LEAST_COUNT);
	if (range.count < LEAST_COUNT)
		range.count = 0;
	*ret_range = range;
	return 0;
}
