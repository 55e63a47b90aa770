/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_SCOPE_LIMITS_H
#define ORCH_HELPER_SCOPE_LIMITS_H

/*
 * The limits of a scope: which mechanism there is for each, made before anything of the scope runs. Memory, processes
 * and processor time by a cgroup (v2: the scope's leaf; v1: a leaf for each), processes of an ordinary user by
 * RLIMIT_NPROC in its user namespace, wall time by the helper's own clock.
 */

#include "linux.h"

struct scope;

enum limit_index { LIMIT_MEMORY, LIMIT_PROCESSES, LIMIT_CPU, LIMIT_TIME, LIMITS };

struct limits {
	/* As asked for; 0: not. */
	uint64_t memory_bytes;
	uint32_t processes, cpu_percent, time_ms;
	uint32_t required; /* ORCH_LIMIT_* */

	uint32_t state[LIMITS];		/* ORCH_LIMIT_ENFORCED and so on */
	char mechanism[LIMITS][768];	/* or the cause of its absence */
	int leaf_fd[CGROUP_V1];		/* v1 leaves; -1 */
	int join_fd[CGROUP_V1];		/* their cgroup.procs, until the set-up process has them */
	int counter_fd;			/* memory.events, or memory.oom_control; -1 */
	int event_fd;			/* v1: readable when the limit was reached; -1 */
	uint64_t kills, ooms;		/* as counted last */
	int64_t look_us;		/* the counter has to be read again then; 0: no need */
	int64_t look_end_us;
	int64_t end_us;			/* of the wall time; 0: it does not run */
	uint64_t data_bytes;		/* RLIMIT_DATA, for want of better; 0: none */
};

/* Takes over what the host asks for. */
void limits_read(struct limits *limits, const struct wire_message *request);
/* Makes what there is. -1 with *error if one of the required ones can not be had. */
int limits_prepare(struct helper *helper, struct scope *scope, struct setup_error *error);
/* Takes it back: the scope's leaf could not be used. */
void limits_undo(struct helper *helper, struct scope *scope);
/* The set-up process has what it needs. */
void limits_joined(struct limits *limits);
/* In the set-up process, first. 0, or -1 with *error. */
int limits_join(const int join_fd[CGROUP_V1], struct setup_error *error);
/* The scope stands: says what was made of each, and the time begins to run. */
void limits_begin(struct helper *helper, struct scope *scope);
/* Ends the scope if a limit that ends it was exceeded. */
void limits_check(struct helper *helper, struct scope *scope);
/* Of the next look, or -1. */
int64_t limits_due(const struct scope *scope);
/* What to wait for. */
struct pollfd limits_poll(const struct scope *scope);
/* After the scope's death. 0, or -EBUSY. */
int limits_remove(struct helper *helper, struct scope *scope);
void limits_close(struct limits *limits);

#endif
