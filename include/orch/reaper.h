/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_REAPER_H
#define ORCH_REAPER_H

/*
 * orch_reaper: what outlives a host. A record of scopes, and the recovery that finds, kills or rules out what a host
 * left which was killed, or whose orch-reaper was, or whose machine went down.
 */

#include <orch/scope.h>

ORCH_BEGIN_DECLS

/*
 * From now on each new scope of the context is written down in the file `path` before anything of it is started, then
 * who its init is, then its end. Made with mode 0600 if it is not there; "PATH.lock" beside it is locked as long as the
 * context lives. The path is copied. Leftovers of an earlier host in it stay: recover first. Nothing is synced to
 * the disk: a kill loses nothing of it, and a crash of the machine ends what it loses.
 *
 * With a record, orch_scope_new() also fails with ORCH_ENOSPC or ORCH_ESYS and orch_error_step() "record": nothing is
 * started that is not written down.
 *
 * ORCH_ELOCKED: a live host records in it (the message names it), or somebody recovers from it; ORCH_ECORRUPT: the
 * message names the line; ORCH_ESTATE: this context records already; ORCH_ENOENT: no such folder; ORCH_ETOOBIG;
 * ORCH_ENOSPC; ORCH_EINVAL; ORCH_ENOMEM; ORCH_EFORKED; ORCH_ESYS. Since 0.1.
 */
ORCH_API int32_t orch_reaper_record(orch_ctx *ctx, const char *path, orch_error **reterr);

struct orch_reaper_recover_opts {
	uint32_t size;
	uint32_t flags;       /* none defined: 0 */
	const char *path;     /* that orch_reaper_record() was given */
	uint32_t deadline_ms; /* for all scopes together; 0: 10000 */
	uint32_t reserved;
};

ORCH_API void orch_reaper_recover_opts_init(struct orch_reaper_recover_opts *opts, uint32_t size);

typedef struct orch_leftovers orch_leftovers;

/*
 * For each scope in the record that has no end: what is left of it is killed, and its certificate says how that is
 * proved. Another boot: DEAD. Else the processes of its cgroup leaf are killed and, by identity (number, start time
 * and, since Linux 6.9, pidfs inode, compared after the process is pinned), the old orch-reaper and the scope's
 * init: a process that got a number later is never touched. SURVIVORS names who lives at the deadline;
 * UNVERIFIABLE: there is no proof, see its reason (a scope of rung ORCH_RUNG_SUBREAPER: the machine was not started again;
 * another PID namespace than the host's).
 *
 * Blocks until all are proved or the deadline is over; needs no context and no orch-reaper. A scope that is dead is dropped
 * from the record, the others are told again the next time. May be killed and run again; who was dropped is not
 * told again.
 *
 * ORCH_ENOENT: there is no record; ORCH_ELOCKED: the host that records in it lives; ORCH_ECORRUPT; ORCH_ETOOBIG; ORCH_ENOSPC:
 * as orch_reaper_record(), and nothing was killed; ORCH_EDEADLK: called inside a callback; ORCH_EINVAL; ORCH_E2BIG;
 * ORCH_ENOMEM; ORCH_ESYS. Since 0.1.
 */
ORCH_API int32_t orch_reaper_recover(const struct orch_reaper_recover_opts *opts, orch_leftovers **ret_leftovers,
				     orch_error **reterr);
/* NULL is fine. Certificates that were taken stay. Since 0.1. */
ORCH_API orch_leftovers *orch_leftovers_unref(orch_leftovers *leftovers);
/* How many scopes had no end. Since 0.1. */
ORCH_API uint32_t orch_leftovers_count(const orch_leftovers *leftovers);
/*
 * Certificates by number, 0 .. count-1, in the order in which the scopes were made; *ret_death is the caller's.
 * ORCH_EINVAL past the end. Since 0.1.
 */
ORCH_API int32_t orch_leftovers_death(const orch_leftovers *leftovers, uint32_t index, orch_death **ret_death);

ORCH_END_DECLS

#endif
