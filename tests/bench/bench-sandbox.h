/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_SANDBOX_H
#define BENCH_SANDBOX_H

#include <orch/sandbox.h>

#include "bench-reaper.h"

/* Each gives 0, or -1 with a line on stderr, where nothing else is said. */

/* From the call to the event of its exit; the program has to end with 0. NULL as envp: the sandbox's. */
int sandbox_spawn(orch_sandbox *sandbox, const char *const *argv, const char *const *envp, double *ret_us);
/* Takes the sandbox: stops it, to the certificate, which has to say DEAD. */
int sandbox_stop(orch_sandbox *sandbox, double *ret_us);
/* posix_spawn() and waitpid(); the program has to end with 0. */
int peer_run(const char *const *argv, const char *const *envp, double *ret_us);
/* How many times a turn does something of which it gives the median. */
unsigned times_of_turn(const struct bench_options *options, unsigned most);

/* --- bench-sandbox-work.c: the same work inside and outside --- */

int bench_sandbox_work(const struct bench_options *options, struct bench_report *report, orch_ctx *ctx);

#endif
