/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_LADDER_H
#define ORCH_HELPER_LADDER_H

/* Which rung a scope gets: the best between what is wished and the least that is accepted, by what the host has. */

#include <stdint.h>

#include "../confine.h"

/* What a rung needs of the host; each is missing for a reason. */
enum need { NEED_CGROUP, NEED_PIDNS, NEED_DESCENT, NEEDS };

struct ladder {
	uint32_t least, best; /* ORCH_RUNG_* */
	struct setup_error missing[NEEDS]; /* code 0: not known to be missing */
};

bool rung_needs(uint32_t rung, enum need need);
/* The best that is not known to be impossible, or 0. */
uint32_t ladder_next(const struct ladder *ladder);
void ladder_miss(struct ladder *ladder, enum need need, const struct setup_error *why);
/* Why none is left, and what to do. */
void ladder_refusal(const struct ladder *ladder, struct setup_error *error);
/* Which better ones were not had and why; "" if it is the best one. */
void ladder_note(const struct ladder *ladder, uint32_t rung, char *text, size_t size);

#endif
