/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_REAPER_H
#define BENCH_REAPER_H

#include <limits.h>
#include <orch/ctx.h>
#include <orch/scope.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "bench.h"

/* Each gives 0, or -1 with a line on stderr, where nothing else is said. */

int reaper_fail(const char *what, orch_error *error);
/* orch-bench-load, beside this program. */
int reaper_load_path(char *path, size_t size);
/* The load's byte on the read end of its stdout; `turn` (may be NULL) is called while it is waited for. */
int reaper_load_ready(int fd, void (*turn)(void *userdata), void *userdata);

/* --- the own side --- */

struct host {
	orch_ctx *ctx;
	orch_scope *scope; /* of spawns */
};

int host_open(struct host *host);
void host_close(struct host *host);
/* A scope that stands; `rung` is the least. */
int host_scope(struct host *host, uint32_t rung, orch_scope **ret_scope, orch_error **reterr);
/* Takes the scope; its certificate has to say DEAD. */
int host_stop(orch_scope *scope, double *ret_us);
/* `true` in the host's scope, from the call to the event of its exit. */
int host_spawn(struct host *host, double *ret_us);

/* --- the other side (bench-reaper-peer.c): a process of its own, so that it is as small as a host can be --- */

struct peer {
	pid_t pid;
	int fd;
	char leaf[PATH_MAX];
};

/* Before anything else is in this process. `base`: a cgroup v2 folder that leaves can be made in. */
int peer_open(struct peer *peer, const char *base, const char *load);
void peer_close(struct peer *peer);
/*
 * The same load in a bare leaf: from cgroup.kill to populated 0. With `pidns` below a bare init of a PID namespace: to its
 * end as well.
 */
int peer_stop(struct peer *peer, const char *mode, unsigned count, bool pidns, double *ret_us);
/* posix_spawn() and waitpid() of the same program. */
int peer_spawn(double *ret_us);

/* --- bench-reaper-spawn.c --- */

int bench_reaper_spawns(const struct bench_options *options, struct bench_report *report);

#endif
