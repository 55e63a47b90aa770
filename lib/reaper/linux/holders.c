/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holders.h"

/* The group of a process in that hierarchy: the line "6:freezer:/path" of /proc/PID/cgroup. */
bool freezer_group(pid_t pid, char *path, size_t size)
{
	char name[64], *line = NULL;
	size_t capacity = 0;
	bool found = false;
	snprintf(name, sizeof(name), "/proc/%d/cgroup", (int)pid);
	FILE *groups = fopen(name, "re");
	while (groups && !found && getline(&line, &capacity, groups) > 0) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group || !memmem(controllers, (size_t)(group - controllers), "freezer", 7))
			continue;
		group[strcspn(group, "\n")] = '\0';
		found = strlen(group + 1) < size && !strstr(group, "/..");
		if (found)
			strcpy(path, strcmp(group + 1, "/") == 0 ? "" : group + 1);
	}
	free(line);
	if (groups)
		fclose(groups);
	return found;
}

bool freezer_find(struct freezer *freezer)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t capacity = 0;
	bool found = false;
	while (mounts && !found && getline(&line, &capacity, mounts) > 0) {
		char root[FREEZER_PATH_SIZE];
		const char *type = strstr(line, " - cgroup ");
		found = type && strstr(type, "freezer") &&
			sscanf(line, "%*s %*s %*s %511s %511s", root, freezer->mount_point) == 2 &&
			strcmp(root, "/") == 0;
	}
	free(line);
	if (mounts)
		fclose(mounts);
	return found && freezer_group(getpid(), freezer->own, sizeof(freezer->own));
}

int freezer_open(const struct freezer *freezer, const char *group)
{
	char path[2 * FREEZER_PATH_SIZE];
	snprintf(path, sizeof(path), "%s%s", freezer->mount_point, group);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

bool freezer_says(int group_fd, const char *name, const char *what)
{
	char text[32] = "";
	int fd = openat(group_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool said = read(fd, text, sizeof(text) - 1) > 0 && strncmp(text, what, strlen(what)) == 0;
	close(fd);
	return said;
}

static pid_t tracer_of(pid_t pid)
{
	char path[64], *line = NULL;
	size_t capacity = 0;
	int tracer = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *status = fopen(path, "re");
	while (status && getline(&line, &capacity, status) > 0)
		if (sscanf(line, "TracerPid: %d", &tracer) == 1)
			break;
	free(line);
	if (status)
		fclose(status);
	return tracer;
}

static bool is_frozen(const struct freezer *freezer, pid_t pid, char *group, size_t size)
{
	if (!freezer_group(pid, group, size))
		return false;
	int group_fd = freezer_open(freezer, group);
	if (group_fd < 0)
		return false;
	bool frozen = freezer_says(group_fd, "freezer.state", "FROZEN") ||
		      freezer_says(group_fd, "freezer.state", "FREEZING");
	close(group_fd);
	return frozen;
}

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;
	if (length && length + 3 < size)
		length = (size_t)(stpcpy(text + length, "; ") - text);
	va_start(arguments, format);
	vsnprintf(text + length, size - length, format, arguments);
	va_end(arguments);
}

void census_holders(const struct census *census, char *text, size_t size)
{
	struct freezer freezer;
	char last[FREEZER_PATH_SIZE] = "", group[FREEZER_PATH_SIZE];
	bool freezes = freezer_find(&freezer);
	for (uint32_t i = 0; i < census->stored; i++) {
		pid_t pid = census->entries[i].pid, tracer = tracer_of(pid);
		if (tracer)
			add(text, size, "pid %d is held by its tracer, pid %d", (int)pid, (int)tracer);
		if (!freezes || !is_frozen(&freezer, pid, group, sizeof(group)) || strcmp(group, last) == 0)
			continue;
		strcpy(last, group);
		add(text, size,
		    "pid %d is frozen in %s%s (not orch-reaper's to thaw, or others are in it): write THAWED to its "
		    "freezer.state",
		    (int)pid, freezer.mount_point, group);
	}
}
