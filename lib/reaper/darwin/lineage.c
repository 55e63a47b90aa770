/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lineage.h"

static int append(struct lineage_member **list, size_t *count, size_t *capacity, pid_t pid,
		  uint64_t start_us)
{
	if (*count == *capacity) {
		size_t more = *capacity ? 2 * *capacity : 16;
		struct lineage_member *grown = realloc(*list, more * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		*list = grown;
		*capacity = more;
	}
	(*list)[(*count)++] = (struct lineage_member){.pid = pid, .start_us = start_us};
	return 0;
}

int lineage_add(struct lineage *lineage, pid_t pid, uint64_t start_us)
{
	int error = append(&lineage->sessions, &lineage->session_count, &lineage->session_capacity, pid,
			   start_us);
	if (!error)
		error = append(&lineage->members, &lineage->count, &lineage->capacity, pid, start_us);
	return error;
}

static const struct process *find(const struct process *list, size_t count, pid_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].pid == pid)
			return &list[i];
	return NULL;
}

static bool is_member(const struct lineage_member *members, size_t count, const struct process *process)
{
	for (size_t i = 0; i < count; i++)
		if (members[i].pid == process->pid && members[i].start_us == process->start_us)
			return true;
	return false;
}

bool lineage_has(const struct lineage *lineage, const struct process *process)
{
	return is_member(lineage->members, lineage->count, process);
}

/*
 * A session's number is not used again while anybody is in it. Once it is empty, a stranger may get the pid and begin a
 * session of the same number: then a leader is there who is not the one that was known.
 */
static bool session_is_ours(const struct lineage *lineage, size_t session, const struct process *list, size_t count)
{
	const struct lineage_member *known = &lineage->sessions[session];
	const struct process *leader = find(list, count, known->pid);
	if (leader && leader->start_us != known->start_us)
		return false;
	for (size_t i = 0; i < count; i++)
		if (list[i].session == known->pid)
			return true;
	return false;
}

static void drop_sessions(struct lineage *lineage, const struct process *list, size_t count)
{
	size_t kept = 0;
	for (size_t i = 0; i < lineage->session_count; i++)
		if (session_is_ours(lineage, i, list, count))
			lineage->sessions[kept++] = lineage->sessions[i];
	lineage->session_count = kept;
}

static bool in_session(const struct lineage *lineage, pid_t session)
{
	for (size_t i = 0; i < lineage->session_count; i++)
		if (lineage->sessions[i].pid == session)
			return true;
	return false;
}

static bool belongs(const struct lineage *lineage, const struct lineage *next, const struct process *list,
		    size_t count, const struct process *process)
{
	if (lineage_has(lineage, process) || in_session(lineage, process->session) ||
	    in_session(next, process->session))
		return true;
	const struct process *parent = find(list, count, process->parent);
	return parent && lineage_has(next, parent) && parent->start_us <= process->start_us;
}

static int add_session(struct lineage *next, const struct lineage *lineage, const struct process *process)
{
	if (process->session != process->pid || in_session(lineage, process->pid) ||
	    in_session(next, process->pid))
		return 0;
	return append(&next->sessions, &next->session_count, &next->session_capacity, process->pid,
		      process->start_us);
}

int lineage_absorb(struct lineage *lineage, const struct process *list, size_t count)
{
	struct lineage next = {0};
	int error = 0;
	bool grew = true;

	drop_sessions(lineage, list, count);
	/* A child may come before its parent in the list. */
	while (grew && !error) {
		grew = false;
		for (size_t i = 0; i < count && !error; i++) {
			if (lineage_has(&next, &list[i]) || !belongs(lineage, &next, list, count, &list[i]))
				continue;
			grew = true;
			error = append(&next.members, &next.count, &next.capacity, list[i].pid,
				       list[i].start_us);
			if (!error)
				error = add_session(&next, lineage, &list[i]);
		}
	}
	for (size_t i = 0; i < lineage->session_count && !error; i++)
		error = append(&next.sessions, &next.session_count, &next.session_capacity,
			       lineage->sessions[i].pid, lineage->sessions[i].start_us);
	if (error) {
		lineage_free(&next);
		return error;
	}
	lineage_free(lineage);
	*lineage = next;
	return 0;
}

size_t lineage_living(const struct lineage *lineage, const struct process *list, size_t count)
{
	size_t living = 0;
	for (size_t i = 0; i < count; i++)
		living += list[i].state != 'Z' && lineage_has(lineage, &list[i]);
	return living;
}

void lineage_free(struct lineage *lineage)
{
	free(lineage->members);
	free(lineage->sessions);
	memset(lineage, 0, sizeof(*lineage));
}
