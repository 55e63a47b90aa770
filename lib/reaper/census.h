/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CENSUS_H
#define ORCH_CENSUS_H

/*
 * Processes as a certificate names them. Who is in a scope, each system finds out in its own way: linux/census.h,
 * darwin/lineage.h. Compiled into the library and into orch-reaper.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct census_entry {
	pid_t pid;
	/* Linux: field 22 of /proc/PID/stat. macOS: microseconds since 1970 (proc_bsdinfo). */
	uint64_t start_time;
	char state[2];
	char wchan[64];
};

struct census {
	struct census_entry *entries;
	uint32_t count; /* members seen, entries or not */
	uint32_t stored;
};

void census_free(struct census *census);
/* False if the process is gone. */
bool census_describe(pid_t pid, struct census_entry *ret_entry);

#endif
