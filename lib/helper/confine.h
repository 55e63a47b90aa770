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
	char message[256]; /* what, to what, what to do; without the errno's text */
};

struct confine;

/* Maps and checks the specification. NULL with *error filled in. */
struct confine *confine_load(int spec_fd, struct setup_error *error);

/*
 * Called in the scope's set-up process (child of the helper, in the scope's cgroup, privileges of the helper, no
 * namespaces yet). Opens host paths, changes to `host_uid`, makes the namespaces, and turns into PID 1 of the new
 * PID namespace by way of supervise_clone_init(). Returns 0 in PID 1 only, with the root, network and listener ready
 * and all privileges dropped; -1 with *error in whichever process failed. `control_fd` and nothing else must stay
 * open besides what confine itself needs later and what it puts in *ret_listener_fd (-1: none).
 */
int confine_enter(struct confine *confine, uint32_t host_uid, int control_fd, int *ret_listener_fd,
		  struct setup_error *error);

/*
 * Provided by supervision: clone3 with CLONE_PARENT and the namespace flags given (CLONE_NEWPID is added). Tells
 * the helper the new pid. Returns 0 in the new PID 1; in the old process it does not return unless it failed (-1,
 * errno set).
 */
int supervise_clone_init(uint64_t namespace_flags, int control_fd);

/*
 * Called in the forked child of init right before exec, after its stdio was put in place: rlimits, session keyring,
 * no_new_privs, Landlock, seccomp. 0, or -1 with *error.
 */
int confine_program(struct confine *confine, struct setup_error *error);

/* The default working directory and environment of programs ("NAME=value", NULL-terminated). */
const char *confine_cwd(const struct confine *confine);
const char *const *confine_environment(const struct confine *confine);

/*
 * Runs the named probe in this (confined) process: tries what should be denied, writes one line to stdout, returns
 * the exit code (see lib/sandbox/probe.h).
 */
int confine_probe(const char *name);

#endif
