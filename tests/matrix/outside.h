/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_MATRIX_OUTSIDE_H
#define TEST_MATRIX_OUTSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the kernel holds of a scope and counts of it: read in the scope's cgroups, by who is
 * outside, while its load runs. */
struct outside {
	uint64_t memory, swap; /* bytes that it may have; OUTSIDE_NONE: as much as there is */
	bool swap_is_counted;  /* or nothing here says how much of it a scope may have */
	uint64_t swapped;      /* bytes of it, at most */
	uint64_t throttled;    /* periods in which it had to wait for the next one */

	/* private */
	char folders[8][320];
	unsigned count;
	uint64_t throttled_before;
	const char *enough;
	atomic_bool over;
	pthread_t thread;
	bool has_thread;
};

#define OUTSIDE_NONE UINT64_MAX

/*
 * From here on, of the standing scope `name`. When it had to wait often, the file `enough` (which
 * lives as long) is made, for a load that runs until then.
 */
void outside_begin(struct outside *outside, const char *name, const char *enough);
void outside_end(struct outside *outside);

#endif
