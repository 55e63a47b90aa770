/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <libproc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/proc.h>
#include <sys/proc_info.h>
#include <unistd.h>

#include "processes.h"

/* Processes that are made between asking for the size and asking for the list. */
#define LIST_MORE 64
#define LIST_TRIES 5

static char state_letter(uint32_t status)
{
	switch (status) {
	case SIDL:
		return 'I';
	case SRUN:
		return 'R';
	case SSLEEP:
		return 'S';
	case SSTOP:
		return 'T';
	case SZOMB:
		return 'Z';
	default:
		return '?';
	}
}

bool process_find(pid_t pid, struct process *ret_process)
{
	struct proc_bsdinfo found;
	/* With 1 as argument a zombie is found too (proc_info.c of XNU, proc_pidinfo). */
	if (proc_pidinfo(pid, PROC_PIDTBSDINFO, 1, &found, (int)sizeof(found)) != (int)sizeof(found))
		return false;
	*ret_process = (struct process){
	    .pid = (pid_t)found.pbi_pid,
	    .parent = (pid_t)found.pbi_ppid,
	    .group = (pid_t)found.pbi_pgid,
	    .session = getsid(pid),
	    .start_us = found.pbi_start_tvsec * 1000000 + found.pbi_start_tvusec,
	    .state = state_letter(found.pbi_status),
	    .uid = found.pbi_uid,
	    .real_uid = found.pbi_ruid};
	return true;
}

/* All pids. A list that fills its buffer may be cut: then with more room. A negative errno. */
static int list_pids(uint32_t type, uint32_t of, pid_t **ret_pids)
{
	pid_t *pids = NULL;
	for (int attempt = 0; attempt < LIST_TRIES; attempt++) {
		int size = proc_listpids(type, of, NULL, 0);
		/* libproc gives 0 for an error. */
		if (size <= 0)
			break;
		size += (LIST_MORE << attempt) * (int)sizeof(pid_t);
		free(pids);
		pids = malloc((size_t)size);
		if (!pids)
			return -ENOMEM;
		errno = 0;
		int got = proc_listpids(type, of, pids, size);
		if (got < 0 || (got == 0 && errno))
			break;
		if (got < size) {
			*ret_pids = pids;
			return got / (int)sizeof(pid_t);
		}
	}
	int error = errno ? errno : EAGAIN;
	free(pids);
	return -error;
}

int processes_list(struct process **ret_list, size_t *ret_count)
{
	pid_t *pids;
	int count = list_pids(PROC_ALL_PIDS, 0, &pids);
	if (count < 0)
		return count;
	struct process *list = calloc((size_t)count + 1, sizeof(*list));
	size_t found = 0;
	for (int i = 0; list && i < count; i++)
		if (pids[i] > 0 && process_find(pids[i], &list[found]))
			found++;
	free(pids);
	if (!list)
		return -ENOMEM;
	*ret_list = list;
	*ret_count = found;
	return 0;
}

/* A group is named by a member that leads it; the caller's own is never one (its programs have sessions of their own). */
static bool is_own_group(const struct lineage *lineage, const struct process *process)
{
	if (process->group <= 1 || process->group == getpgrp())
		return false;
	for (size_t i = 0; i < lineage->session_count; i++)
		if (lineage->sessions[i].pid == process->session)
			return true;
	return false;
}

size_t processes_signal(const struct lineage *lineage, const struct process *list, size_t count, int signal)
{
	size_t living = 0;
	for (size_t i = 0; i < count; i++) {
		if (list[i].state == 'Z' || list[i].pid <= 1 || list[i].pid == getpid() ||
		    !lineage_has(lineage, &list[i]))
			continue;
		living++;
		if (signal == SIGKILL && is_own_group(lineage, &list[i]))
			kill(-list[i].group, SIGKILL);
		kill(list[i].pid, signal);
	}
	return living;
}

static void describe(const struct process *process, struct census_entry *entry)
{
	memset(entry, 0, sizeof(*entry));
	entry->pid = process->pid;
	entry->start_time = process->start_us;
	entry->state[0] = process->state;
	/* What it waits for can not be asked; its name says more than nothing. */
	char name[sizeof(entry->wchan)] = "";
	if (proc_name(process->pid, name, sizeof(name) - 1) > 0)
		memcpy(entry->wchan, name, sizeof(name));
}

bool census_describe(pid_t pid, struct census_entry *ret_entry)
{
	struct process process;
	if (!process_find(pid, &process))
		return false;
	describe(&process, ret_entry);
	return true;
}

void processes_census(struct census *census, const struct lineage *lineage, const struct process *list,
		      size_t count, uint32_t most)
{
	memset(census, 0, sizeof(*census));
	if (most)
		census->entries = calloc(most, sizeof(*census->entries));
	for (size_t i = 0; i < count; i++) {
		if (list[i].state == 'Z' || !lineage_has(lineage, &list[i]))
			continue;
		census->count++;
		if (census->entries && census->stored < most)
			describe(&list[i], &census->entries[census->stored++]);
	}
}

void census_free(struct census *census)
{
	free(census->entries);
	memset(census, 0, sizeof(*census));
}

int processes_of_uid(uint32_t uid, pid_t *pids, int most, int *ret_zombies)
{
	static const uint32_t kinds[] = {PROC_UID_ONLY, PROC_RUID_ONLY};
	int stored = 0, total = 0;
	*ret_zombies = 0;
	for (size_t kind = 0; kind < 2; kind++) {
		pid_t *found;
		int count = list_pids(kinds[kind], uid, &found);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			struct process process;
			bool known = found[i] <= 0;
			for (int j = 0; !known && j < stored; j++)
				known = pids[j] == found[i];
			if (known)
				continue;
			/* One that ended since it was listed was there all the same: it counts, to be looked for again. */
			if (process_find(found[i], &process) && process.state == 'Z') {
				*ret_zombies += 1;
				continue;
			}
			total++;
			if (stored < most)
				pids[stored++] = found[i];
		}
		free(found);
	}
	return total;
}

/* The end of a pipe that nobody writes to: readable at once. A zombie can not be watched any more (ESRCH). */
static int ended_already(void)
{
	int ends[2];
	if (pipe(ends) < 0)
		return -errno;
	close(ends[1]);
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	return ends[0];
}

int process_watch(pid_t pid)
{
	struct kevent event;
	int fd = kqueue();
	if (fd < 0)
		return -errno;
	/* No form of kqueue() sets it at birth. A child made by fork() in between does not inherit a kqueue. */
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	EV_SET(&event, (uintptr_t)pid, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL);
	if (kevent(fd, &event, 1, NULL, 0, NULL) == 0)
		return fd;
	int error = errno;
	close(fd);
	return error == ESRCH ? ended_already() : -error;
}
