/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CONFINE_H
#define ORCH_CONFINE_H

/*
 * The seam inside orch-reaper between process supervision (main loop, scope init) and confinement (namespaces,
 * root, Landlock, seccomp). lib/sandbox writes the specification, confine-*.c reads it; supervision does not look
 * inside.
 */

#include <stdbool.h>
#include <stdint.h>

struct setup_error {
	int32_t code;      /* ORCH_E* */
	int32_t os_errno;
	char step[48];     /* "mount.proc", "userns.map" */
	char message[512]; /* what, to what, what to do; without the errno's text */
};

struct confine;

/* Maps and checks the specification. NULL with *error filled in. */
struct confine *confine_load(int spec_fd, struct setup_error *error);

/*
 * Called in the child that becomes the program right before exec, after its stdio was put in place. Linux: rlimits,
 * session keyring, no_new_privs, Landlock, seccomp. 0, or -1 with *error.
 */
int confine_program(struct confine *confine, struct setup_error *error);

/* Tests only, and false but in a test build: the specification wants that left out (ORCH_SPEC_WITHOUT_*). */
bool confine_leaves_out(const struct confine *confine, uint64_t protection);

/* The default working directory and environment of programs ("NAME=value", NULL-terminated). */
const char *confine_cwd(const struct confine *confine);
const char *const *confine_environment(const struct confine *confine);

/*
 * Runs the named probe in this (confined) process: tries what should be denied, writes one line to stdout, returns
 * the exit code (see lib/sandbox/probe.h).
 */
int confine_probe(const char *name);

#endif
