/* SPDX-License-Identifier: Apache-2.0 */
#include "../../core/core-private.h"
#include "../../core/os.h"
#include "../identity.h"
#include "processes.h"

void identity_take(pid_t pid, int watch, struct identity *ret_identity)
{
	struct process process;
	(void)watch;
	*ret_identity = (struct identity){.pid = pid};
	if (process_find(pid, &process))
		ret_identity->start_time = process.start_us;
}

/* A program leads a session of its own. */
bool identity_take_program(pid_t pid, pid_t supervisor, struct identity *ret_identity)
{
	struct process process;
	(void)supervisor;
	if (!process_find(pid, &process) || process.session != pid)
		return false;
	*ret_identity = (struct identity){.pid = pid, .start_time = process.start_us};
	return true;
}

void identity_own(struct identity *ret_identity)
{
	identity_take(getpid(), -1, ret_identity);
}

void place_own(struct place *ret_place)
{
	*ret_place = (struct place){0};
	orch_boot_id(ret_place->boot_id, sizeof(ret_place->boot_id));
}

/* One process table for all. */
bool place_is(const struct place *recorded, const struct place *here)
{
	(void)recorded, (void)here;
	return true;
}

void place_of_leaves(char *path, size_t size, uint64_t *ret_inode)
{
	if (size)
		*path = '\0';
	*ret_inode = 0;
}

/* There is no pidfd to pin it with; a start time in microseconds is hardly another's. */
enum identity_is identity_find(const struct identity *identity, int *ret_watch)
{
	struct process process;
	*ret_watch = -1;
	if (!process_find(identity->pid, &process))
		return IDENTITY_GONE;
	if (!identity->start_time)
		return IDENTITY_UNKNOWN;
	return process.start_us == identity->start_time ? IDENTITY_SAME : IDENTITY_OTHER;
}
