/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYNTH_SCENARIO_H
#define SYNTH_SCENARIO_H

/* A scenario: a folder of shell scripts, read whole and checked before anything is served. */

#include <stddef.h>

struct script {
	char *name;   /* "executor-execute-T2.1.sh" */
	char *folder; /* where it was found */
	char **steps;
	size_t step_count;
};

struct scenario {
	char *name, *idea;
	struct script *scripts;
	size_t script_count;
};

/* The machine-readable first line of a packet. */
struct packet {
	char run[128], role[32], stage[32], task[64];
	unsigned attempt;
};

/* NULL with "FILE:LINE: reason" in `error`. */
struct scenario *scenario_load(const char *folder, char *error, size_t error_size);
struct scenario *scenario_free(struct scenario *scenario);
/*
 * The most specific script for a packet, or NULL. `wanted` gets the name that would have served it (the
 * general one of its task).
 */
const struct script *scenario_find(const struct scenario *scenario, const struct packet *packet,
				   char *wanted, size_t wanted_size);

#endif
