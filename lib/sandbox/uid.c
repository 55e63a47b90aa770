/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uids of loads. Two sandboxes of one uid could signal each other's set-up and read each other's
 * files; uid 0 could write /proc/sys. So root gives each its own, from a range that no distribution
 * uses.
 */
#include <pthread.h>

#include "../core/os.h"
#include "sandbox-private.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *taken;
static size_t taken_count;

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
	uint32_t *grown = realloc(taken, (taken_count + 1) * sizeof(*taken));

	if (grown)
		taken = grown;
	do {
		if (!grown) {
			code = orch_fail_memory(reterr);
			goto out;
		}
		orch_random_bytes(&uid, sizeof(uid));
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

	if (geteuid() != 0) {
		*ret_uid = geteuid();
		return 0;
	}
	int32_t code = orch_sandbox_uid_range(&range, reterr);

	if (code < 0)
		return code;
	if (range.count > 0)
		return take_from(range, ret_uid, reterr);
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
