/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "census.h"
#include "descent.h"

/* A chain of parents that is longer is not believed. */
#define DEPTH_MOST 64

static int64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

bool descent_is_visible(void)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	return access(path, R_OK) == 0;
}

void descent_free(struct descent *descent)
{
	free(descent->entries);
	memset(descent, 0, sizeof(*descent));
}

/* Parent, state and name from /proc/PID/stat. */
bool descent_describe(pid_t pid, struct descendant *ret_entry)
{
	char path[64], text[512];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return false;
	text[length] = '\0';
	/* The name may hold spaces and parentheses: the last ')' ends it (proc(5)). */
	const char *first = strchr(text, '('), *last = strrchr(text, ')');
	int parent;
	if (!first || !last || sscanf(last + 1, " %c %d", &ret_entry->state, &parent) != 2)
		return false;
	ret_entry->pid = pid;
	ret_entry->parent = parent;
	snprintf(ret_entry->name, sizeof(ret_entry->name), "%.*s", (int)(last - first - 1), first + 1);
	return true;
}

static void add(struct descent *descent, pid_t pid, pid_t parent)
{
	if (descent->count == descent->capacity) {
		uint32_t capacity = descent->capacity ? 2 * descent->capacity : 64;
		struct descendant *grown = realloc(descent->entries, capacity * sizeof(*grown));
		if (!grown)
			return;
		descent->entries = grown;
		descent->capacity = capacity;
	}
	struct descendant entry = {0};
	if (!descent_describe(pid, &entry))
		entry.state = '?';
	entry.pid = pid;
	entry.parent = parent;
	descent->entries[descent->count++] = entry;
}

static bool is_one_of(pid_t pid, const pid_t *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] == pid)
			return true;
	return false;
}

/* The children of one thread. */
static void add_children(struct descent *descent, int tasks_fd, const char *thread, pid_t parent, const pid_t *but,
			 size_t but_count)
{
	char path[300];
	int child;
	snprintf(path, sizeof(path), "%s/children", thread);
	int fd = openat(tasks_fd, path, O_RDONLY | O_CLOEXEC);
	FILE *list = fd >= 0 ? fdopen(fd, "re") : NULL;
	if (!list) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (descent->count < DESCENT_MOST && fscanf(list, "%d", &child) == 1)
		if (child > 0 && !is_one_of(child, but, but_count))
			add(descent, child, parent);
	fclose(list);
}

static void add_children_of(struct descent *descent, pid_t parent, const pid_t *but, size_t but_count)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/task", (int)parent);
	DIR *tasks = opendir(path);
	struct dirent *entry;
	while (tasks && (entry = readdir(tasks)))
		if (isdigit((unsigned char)entry->d_name[0]))
			add_children(descent, dirfd(tasks), entry->d_name, parent, but, but_count);
	if (tasks)
		closedir(tasks);
}

size_t descent_children(pid_t *children, size_t most)
{
	char path[64];
	size_t count = 0;
	int child;
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	FILE *list = fopen(path, "re");
	while (list && count < most && fscanf(list, "%d", &child) == 1)
		children[count++] = child;
	if (list)
		fclose(list);
	return count;
}

void descent_take(struct descent *descent, pid_t root, const pid_t *but, size_t but_count, int64_t limit_us)
{
	int64_t end_us = limit_us ? now_us() + limit_us : INT64_MAX;
	memset(descent, 0, sizeof(*descent));
	add_children_of(descent, root, but, but_count);
	for (uint32_t i = 0; i < descent->count && descent->count < DESCENT_MOST && now_us() < end_us; i++)
		if (descent->entries[i].state != 'Z')
			add_children_of(descent, descent->entries[i].pid, but, but_count);
}

/* The pids from `pid` up to `root`. Their number, or 0: it does not lead there. */
static unsigned read_chain(pid_t pid, pid_t root, pid_t chain[DEPTH_MOST])
{
	struct descendant entry;
	for (unsigned length = 0; length < DEPTH_MOST && pid > 1; length++) {
		chain[length] = pid;
		if (pid == root)
			return length;
		if (!descent_describe(pid, &entry))
			return 0;
		pid = entry.parent;
	}
	return 0;
}

bool descends_from(pid_t pid, pid_t root)
{
	pid_t chain[DEPTH_MOST], again[DEPTH_MOST];
	unsigned length = read_chain(pid, root, chain);
	return length && read_chain(pid, root, again) == length && memcmp(chain, again, length * sizeof(*chain)) == 0;
}

static bool known(const struct census *census, pid_t pid)
{
	for (uint32_t i = 0; i < census->stored; i++)
		if (census->entries[i].pid == pid)
			return true;
	return false;
}

void census_take_descent(struct census *census, pid_t root, const pid_t *but, size_t but_count, uint32_t most)
{
	struct descent descent;
	memset(census, 0, sizeof(*census));
	descent_take(&descent, root, but, but_count, most ? 0 : CENSUS_COUNT_US);
	if (most)
		census->entries = calloc(most, sizeof(*census->entries));
	for (uint32_t i = 0; i < descent.count; i++) {
		struct census_entry entry;
		if (!most)
			census->count += descent.entries[i].state != 'Z';
		else if (!known(census, descent.entries[i].pid) && census_describe(descent.entries[i].pid, &entry)) {
			census->count++;
			if (census->entries && census->stored < most)
				census->entries[census->stored++] = entry;
		}
	}
	descent_free(&descent);
}
