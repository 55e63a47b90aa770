/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_PROBE_H
#define ORCH_SANDBOX_PROBE_H

/*
 * Live probes: each tries one thing that a sandbox denies. The same code runs inside (compiled into
 * orch-reaper) and outside as the positive control. A probe is named "channel" or
 * "channel:argument:argument"; see the table in probe.c.
 */

#include <stddef.h>
#include <stdint.h>

#define ORCH_TRY_REACHED 0 /* the attempt succeeded */
#define ORCH_TRY_DENIED 1
#define ORCH_TRY_PARTLY 3 /* some of it succeeded: the detail says what */
#define ORCH_TRY_UNTRIED 2 /* unknown probe, bad arguments, or the attempt could not be made */

/* Runs a probe; `detail` gets a line for people without a newline. ORCH_TRY_*. May change this
 * process. */
int orch_probe_try(const char *probe, char *detail, size_t size);
/* The same for a child that ends with the result: writes "DETAIL\n" to stdout, returns ORCH_TRY_*.
 */
int orch_probe_main(const char *probe);

/* Start time of a process in ticks since boot (field 22 of /proc/PID/stat), 0 if it is not visible.
 */
uint64_t orch_probe_start_time(int32_t pid);

#endif
