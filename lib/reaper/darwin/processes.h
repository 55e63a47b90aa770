/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_PROCESSES_H
#define ORCH_PROCESSES_H

/* The kernel's answers (libproc.h) for lineage.c, and signals. Nothing here blocks. Compiled into the library and into
 * orch-reaper. */

#include "../census.h"
#include "lineage.h"

/*
 * All processes that this user may look at, of which no two need have lived at the same time. Caller frees. A negative
 * errno.
 */
int processes_list(struct process **ret_list, size_t *ret_count);
/* False if it is gone, or another user's. */
bool process_find(pid_t pid, struct process *ret_process);
/*
 * Signals every member in the list, and with SIGKILL also the process groups that it is certain of, for children that
 * are younger than the list. Between the list and the signal a number may pass to another process: macOS has no pidfd;
 * so lists are taken right before. Returns how many members live.
 */
size_t processes_signal(const struct lineage *lineage, const struct process *list, size_t count, int signal);
/* Members that live, described, at most `most`; the count is whole. */
void processes_census(struct census *census, const struct lineage *lineage, const struct process *list,
		      size_t count, uint32_t most);

/*
 * Pids of the living whose effective or real uid this is: the closed set of a uid that is a scope's own. At most `most`
 * are stored; the number found, or a negative errno. *ret_zombies: how many more are dead and not reaped.
 */
int processes_of_uid(uint32_t uid, pid_t *pids, int most, int *ret_zombies);

/* A descriptor that is readable once the process has ended; close-on-exec. Only poll() it. A negative errno. */
int process_watch(pid_t pid);

#endif
