/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_LEFTOVER_H
#define ORCH_LEFTOVER_H

/* A scope that a dead host left: what is looked for, killed and proved. leftover.c of the system; nothing blocks. */

#include "census.h"
#include "record.h"
#include "wire.h"

struct leftover {
	const struct record_scope *scope;
	bool foreign; /* recorded where numbers mean something else: no process is touched by its number */
	/*
	 * The helper has a scope without a PID namespace: it and the supervisor, continued if they were stopped, may end
	 * what descends from them themselves; killed, they would leave it to nobody.
	 */
	bool spared;
	uint32_t verdict; /* 0: not decided */
	uint32_t flags;	  /* WIRE_DEATH_* */
	const char *reason;
	int64_t last_death_us; /* seen by this look; 0: not seen, -1: it was over before */
	int64_t ended_us;      /* since when init is known to have ended; 0: it is not */
	uint32_t alive;
	uint32_t clean; /* looks in a row that found nothing of a set-up */
	struct census survivors;
};

/* Kills what can be found, once; before any waiting, so that all loads end together. */
void leftover_strike(struct leftover *leftover);
/* The proof; kills again. With `last` the verdict is what can be said now. */
void leftover_look(struct leftover *leftover, bool last);

#endif
