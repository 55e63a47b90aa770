/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_LINEAGE_H
#define ORCH_LINEAGE_H

/*
 * Who descends from a scope's programs, worked out from lists of all processes. macOS has neither PID namespaces nor
 * subreapers, so this is best effort: who is in it is known, that nobody else is can not be known. A process that starts
 * a session of its own and whose parent ends between two lists is never seen as a member.
 *
 * lineage.c makes no call of the system. Compiled into the library and into orch-reaper.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One line of a list of processes. */
struct process {
	pid_t pid, parent, group, session;
	uint64_t start_us; /* since 1970: with the pid an identity, as far as macOS has one */
	char state;	   /* 'Z': a zombie */
	uint32_t uid, real_uid;
};

struct lineage_member {
	pid_t pid;
	uint64_t start_us;
};

struct lineage {
	struct lineage_member *members; /* alive in the last list, zombies included */
	size_t count, capacity;
	struct lineage_member *sessions; /* begun by members, and not empty in the last list */
	size_t session_count, session_capacity;
};

/* A program, started as the leader of a session of its own. -ENOMEM. */
int lineage_add(struct lineage *lineage, pid_t pid, uint64_t start_us);
/*
 * Takes in a list. Member is: who was one already and is the same process; whose parent is one (and is not older than
 * it, which would be another's number used again); who is in a session that a member began. Those who are in none of
 * the list any more are forgotten. -ENOMEM: the members are as before.
 */
int lineage_absorb(struct lineage *lineage, const struct process *list, size_t count);
/* A member in this list? By number and start. */
bool lineage_has(const struct lineage *lineage, const struct process *process);
/* Members that are no zombies, by the list that was absorbed last. */
size_t lineage_living(const struct lineage *lineage, const struct process *list, size_t count);
void lineage_free(struct lineage *lineage);

#endif
