/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_DARWIN_H
#define ORCH_HELPER_DARWIN_H

/*
 * macOS has nothing that closes a set of processes for an ordinary user. A scope stands as soon as it is asked for; its
 * programs are orch-reaper's own children, and their descendants are found by descent (lib/reaper/darwin/lineage.h). Only
 * as root, a sandbox has a uid of its own, and that closes the set.
 *
 * Between posix_spawn() and the program stands orch-reaper itself once more ("--program"): working directory, limits, uid
 * and Seatbelt profile have to be set by the process that they are for, and may block; orch-reaper's loop must not.
 */

#include "../helper.h"

/* program-start.c */

/*
 * Starts the program of a WIRE_SPAWN. `spec_fd`: the confinement, or -1. *ret_error_fd gives a struct setup_error, or its
 * end when the program runs. 0 or a negative errno.
 */
int program_start(const struct helper *helper, const struct wire_packet *request, int spec_fd, pid_t *ret_pid,
		  int *ret_error_fd);
/* A process of this uid that kills all of that uid, and then ends or is killed. 0 or a negative errno. */
int sweeper_start(uint32_t uid, pid_t *ret_pid);
/* Is it one that root gives to a load? No other is ever swept. */
bool is_load_uid(uint32_t uid);
/* The two of them, after exec. */
int program_main(int argc, char **argv);
int sweeper_main(int argc, char **argv);

#endif
