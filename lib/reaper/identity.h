/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_IDENTITY_H
#define ORCH_IDENTITY_H

/* Who a process is beyond its number, so that another process which got the number later is never taken for it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct identity {
	pid_t pid;	      /* 0: nobody */
	uint64_t start_time;  /* as in struct census_entry; 0: not known */
	uint64_t pidfs_inode; /* never given twice in a boot; 0: the system has none (Linux before 6.9) */
};

/*
 * Where numbers and times mean what was written down. Inode numbers of namespaces are used again, but not before the
 * old namespace is gone, and a PID namespace stays as long as those inside of it: where number and boot agree it is
 * either the same namespace, or what was recorded in the old one is dead.
 */
struct place {
	char boot_id[40];	/* "": not known */
	uint64_t pidns, timens; /* inodes; 0: the system has none, or they are not known */
};

enum identity_is {
	IDENTITY_SAME,	  /* lives, or is a zombie */
	IDENTITY_GONE,	  /* nobody has the number */
	IDENTITY_OTHER,	  /* somebody else has the number */
	IDENTITY_UNKNOWN, /* somebody has it, and who can not be found out */
};

/*
 * identity.c of the system. `watch`: a pidfd of it, or -1 (an own child that nobody reaps meanwhile). If it was reaped by now,
 * the number is another's, and the start time stays unknown.
 */
void identity_take(pid_t pid, int watch, struct identity *ret_identity);
/* Of a program that was reported as started below `supervisor`. False: it is gone, and who has the number is not it. */
bool identity_take_program(pid_t pid, pid_t supervisor, struct identity *ret_identity);
void identity_own(struct identity *ret_identity);
void place_own(struct place *ret_place);
/* Do numbers and times of there mean the same here? The boot is not compared. */
bool place_is(const struct place *recorded, const struct place *here);
/* The folder in which a scope made by this process would get its cgroup leaf, and its inode; "" and 0: none. */
void place_of_leaves(char *path, size_t size, uint64_t *ret_inode);
/*
 * Looks now; compares after the process is pinned, not before. SAME: *ret_watch is its pidfd (-1 where the system has
 * none), which is the caller's; else -1.
 */
enum identity_is identity_find(const struct identity *identity, int *ret_watch);

#endif
