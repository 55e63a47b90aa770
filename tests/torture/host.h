/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TORTURE_HOST_H
#define ORCH_TORTURE_HOST_H

/*
 * The host: a program that links liborch and does what it is told on standard input, one line at a time, with one line
 * as the answer. It believes nothing and judges nothing.
 *
 *	new RUNG			up RUNG INIT HELPER PIDNS LEAF | refused CODE TEXT
 *	load FILE OUT MODE COUNT DECOY CGROUPS FOLDER	spawned | failed TEXT
 *	probe				probe STATUS TEXT
 *	stop DEADLINE_MS		death VERDICT ALIVE SURVIVORS MECHANISM; PROOF; REASON
 *	over				over
 */
int host_main(const char *helper_path);
/* A process of the same user that nobody may touch: counts signals, and says how many at each line. */
int canary_main(void);
/* Init of a foreign PID (and, for an ordinary user, user) namespace: says "ready". */
int decoy_main(void);

#endif
