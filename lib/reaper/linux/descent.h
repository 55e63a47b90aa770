/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_DESCENT_LINUX_H
#define ORCH_DESCENT_LINUX_H

/*
 * Who descends from a process, by /proc/PID/task/TID/children (proc(5); CONFIG_PROC_CHILDREN): the only view of a
 * scope that has neither namespace nor cgroup. Nothing here blocks. Compiled into the library and into orch-reaper.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../census.h"

/* More are not looked at in one walk: what is left comes in the next one. */
#define DESCENT_MOST 16384u

struct descendant {
	pid_t pid, parent;
	char state; /* of /proc/PID/stat; '?' where that can not be read */
	char name[16];
};

struct descent {
	struct descendant *entries; /* parents before their children */
	uint32_t count, capacity;
};

/* False: this kernel has no such lists. */
bool descent_is_visible(void);
/* Of `root`, without the `but` and what descends from them. Ends after `limit_us` (0: no limit). */
void descent_take(struct descent *descent, pid_t root, const pid_t *but, size_t but_count, int64_t limit_us);
void descent_free(struct descent *descent);
/* Own children, dead ones included, of a process with one thread. At most `most`; their number. */
size_t descent_children(pid_t *children, size_t most);
/* False: it is gone, or hidden. */
bool descent_describe(pid_t pid, struct descendant *ret_entry);
/* Is `pid` below `root` at this moment? The pids on the way are read twice, so that none was another's in between. */
bool descends_from(pid_t pid, pid_t root);

/* Like census_take(): `root` itself is not counted. */
void census_take_descent(struct census *census, pid_t root, const pid_t *but, size_t but_count, uint32_t most);

#endif
