/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CENSUS_LINUX_H
#define ORCH_CENSUS_LINUX_H

/*
 * Who is in a scope, as seen from outside: by PID namespace inode and by cgroup. And the few
 * operations on a cgroup v2 leaf. Nothing here blocks. Compiled into the library and into
 * orch-reaper.
 */

#include "../census.h"

/* How long a count without descriptions may take. */
#define CENSUS_COUNT_US 50000

/*
 * Looks for members in the PID namespace `pidns_inode` (0: not looked for) and in the leaf
 * `cgroup_fd` (-1: none), without `but`. At most `most` of them are described; with
 * 0 they are only counted, for CENSUS_COUNT_US at most.
 */
void census_take(struct census *census, uint64_t pidns_inode, int cgroup_fd, pid_t but,
		 uint32_t most);

/* One more member, if it lives and is not in it; as census_take(). */
void census_add(struct census *census, pid_t pid, uint32_t most);
/*
 * Only zombies are left, and perhaps an init that waits in its exit for them. Never true when somebody may be missing
 * in the census: it was cut short, or there are processes of this user of which /proc does not say where they are,
 * because they are not dumpable.
 */
bool census_is_unreaped(const struct census *census, pid_t init);

/* Counts who lives in a PID namespace besides its init, by its own /proc; for CENSUS_COUNT_US at most. */
void census_count_inside(struct census *census, int proc_fd);

/* Counts the lines of a cgroup.procs without `but`, for CENSUS_COUNT_US at most. False: it can not be read. */
bool census_count_list(const char *path, pid_t but, uint32_t *ret_count);

/* 1, 0, or a negative errno: "populated" of cgroup.events. -ENODEV: the leaf is gone. */
int leaf_populated(int cgroup_fd);
/* 0 or a negative errno. Kills what is in the leaf and below now: repeat until it is not populated.
 */
int leaf_kill(int cgroup_fd);
/*
 * Removes the leaf `name` below `base_fd` with what the load made below it. 0 (also when it is
 * gone), or a negative errno: -EBUSY while something is in it.
 */
int leaf_remove(int base_fd, const char *name);

#endif
