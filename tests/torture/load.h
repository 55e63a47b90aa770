/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TORTURE_LOAD_H
#define ORCH_TORTURE_LOAD_H

/*
 * The load: one static program with many modes. It says on its standard output what it tried, and then how many of its
 * processes stand; the judge counts for itself. Everything here ends by itself after STAY_S.
 *
 *	try NAME|allowed or refused ERRNO|the same call on a process of its own
 *	made N
 */

#include <stdint.h>
#include <sys/types.h>

#define STAY_S 240

struct targets {
	pid_t init;	     /* as seen from inside; 0: there is none */
	pid_t helper;	     /* the host's number */
	pid_t decoy;	     /* init of a foreign user and PID namespace of the same uid */
	const char *cgroups; /* the run's own subtree of cgroup v2, or "-" */
	const char *leaf;    /* the scope's, or "-" */
	const char *folder;  /* of the run */
};

/* Waits in the kernel until the end; deaf to nothing but what the mode asked for. */
_Noreturn void stay(void);
/* A child that stays, deaf to every signal that can be ignored. 0 if there is one. */
int sleeper(void);
/* 0 or more: allowed; a negative errno: refused. Outputs one line. */
void say_try(const char *name, long result, long control);
void say_made(unsigned count);
/* clone3() that returns twice, on the same stack. */
pid_t clone_again(uint64_t flags, int exit_signal, int cgroup_fd);
int write_text(const char *path, const char *text);

/* attacks.c: each returns how many processes stand afterwards, this one included. */
unsigned attack_cgroups(const struct targets *targets);
unsigned attack_subreaper(const struct targets *targets);
unsigned attack_init(const struct targets *targets);
unsigned attack_helper(const struct targets *targets);
unsigned attack_uncovered(const struct targets *targets);
unsigned kill_init(const struct targets *targets);
unsigned kill_helper(const struct targets *targets);
unsigned freeze_init(const struct targets *targets);
unsigned freeze_helper(const struct targets *targets);
unsigned hold_init(const struct targets *targets);
unsigned hold_helper(const struct targets *targets);
unsigned starve_init(const struct targets *targets);
unsigned starve_helper(const struct targets *targets);

#endif
