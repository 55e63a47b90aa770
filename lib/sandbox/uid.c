/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uids of loads. Two sandboxes of one uid could signal each other's set-up and read each other's
 * files; uid 0 could write /proc/sys. So root gives each its own, from a range that no distribution
 * uses.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>

#include "sandbox-private.h"

#define FIRST 0x60000000u
#define COUNT 0x10000000u
/* A container's map is rarely larger than 65536 uids; a handful of them is no choice at all. */
#define LEAST_COUNT 1000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *taken;
static size_t taken_count;

struct uid_range {
	uint32_t first, count;
};

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
		if (first <= FIRST && first + usable >= FIRST + COUNT) {
			first = FIRST;
			usable = COUNT;
		}
		if (usable > best.count)
			best = (struct uid_range){(uint32_t)first, (uint32_t)usable};
	}
	fclose(file);
	*ret_range = best;
	return 0;
}

static bool is_taken(uint32_t uid)
{
	for (size_t i = 0; i < taken_count; i++)
		if (taken[i] == uid)
			return true;
	return false;
}

static int32_t take_from(struct uid_range range, uint32_t *ret_uid, orch_error **reterr)
{
	uint32_t uid = 0;
	int32_t code = 0;

	pthread_mutex_lock(&lock);
	uint32_t *grown = reallocarray(taken, taken_count + 1, sizeof(*taken));

	if (grown)
		taken = grown;
	do {
		if (!grown || getrandom(&uid, sizeof(uid), 0) != sizeof(uid)) {
			code = orch_fail_memory(reterr);
			goto out;
		}
		uid = range.first + uid % range.count;
	} while (is_taken(uid) && taken_count < range.count);
	taken[taken_count++] = uid;
	*ret_uid = uid;
out:
	pthread_mutex_unlock(&lock);
	return code;
}

int32_t orch_sandbox_uid_take(uint32_t *ret_uid, orch_error **reterr)
{
	struct uid_range range = {0};
	bool outer_zero;

	if (geteuid() != 0) {
		*ret_uid = geteuid();
		return 0;
	}
	if (usable_range(&range, &outer_zero) < 0)
		return orch_fail(reterr, ORCH_EUNENFORCEABLE, 0, "uid",
				 "/proc/self/uid_map can not be read: mount /proc");
	if (range.count >= LEAST_COUNT)
		return take_from(range, ret_uid, reterr);
	if (outer_zero)
		return orch_fail(reterr, ORCH_EUNENFORCEABLE, 0, "uid",
				 "this user namespace has no uid but 0, which is root outside too: "
				 "a load must "
				 "not have it. Run as an ordinary user, or map at least %u uids",
				 LEAST_COUNT);
	*ret_uid = 0; /* an ordinary user outside */
	return 0;
}

void orch_sandbox_uid_release(uint32_t uid)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < taken_count; i++)
		if (taken[i] == uid) {
			taken[i] = taken[--taken_count];
			break;
		}
	if (taken_count == 0) {
		free(taken);
		taken = NULL;
	}
	pthread_mutex_unlock(&lock);
}
