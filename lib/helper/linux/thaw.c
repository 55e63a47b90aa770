/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A freezer of cgroup v1 keeps SIGKILL waiting for ever (cgroup v2 kills frozen tasks). What is in reach is thawed:
 * groups below the helper's own in which nobody is but members.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../reaper/linux/holders.h"
#include "scope.h"

#define MEMBERS_MAX 64
/* Of a frozen group: who is in it, and how deep it is looked into. */
#define GROUP_MAX 4096
#define GROUP_DEPTH 8

static bool is_below(const struct freezer *freezer, const char *group)
{
	size_t length = strlen(freezer->own);
	return strncmp(group, freezer->own, length) == 0 && group[length] == '/';
}

struct frozen {
	const struct scope *scope;
	const struct freezer *freezer;
	const struct census *census;
	int room; /* of the group that is looked at */
};

/* The census names the first ones only; in a PID namespace the others can be told as well. */
static bool is_member(const struct frozen *frozen, pid_t pid)
{
	const struct scope *scope = frozen->scope;
	char path[64];
	struct stat status;
	for (uint32_t i = 0; i < frozen->census->stored; i++)
		if (frozen->census->entries[i].pid == pid)
			return true;
	if (scope->init_reaped)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	return pid == scope->init_pid || (scope->pidns_inode && stat(path, &status) == 0 &&
					  status.st_ino == scope->pidns_inode);
}

/* Nobody but members in it and below. */
static bool holds_only_members(struct frozen *frozen, int group_fd, int depth)
{
	int pid;
	bool only = depth > 0;
	int list_fd = openat(group_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *list = list_fd >= 0 ? fdopen(list_fd, "re") : NULL;
	if (!list) {
		close_fd(&list_fd);
		return false;
	}
	while (only && fscanf(list, "%d", &pid) == 1)
		only = --frozen->room > 0 && is_member(frozen, pid);
	fclose(list);
	int again = only ? openat(group_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *folder = again >= 0 ? fdopendir(again) : NULL;
	struct dirent *entry;
	if (!folder) {
		close_fd(&again);
		return false;
	}
	while (only && (entry = readdir(folder))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		_cleanup_fd_ int below =
		    openat(group_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		/* One that has just been removed has nobody in it. */
		only = below >= 0 ? holds_only_members(frozen, below, depth - 1) : errno == ENOENT;
	}
	closedir(folder);
	return only;
}

/* Whoever else is in a frozen group was frozen by somebody for a reason: then it stays as it is. */
static bool thaw_group(struct frozen *frozen, const char *group)
{
	_cleanup_fd_ int group_fd = freezer_open(frozen->freezer, group);
	frozen->room = GROUP_MAX;
	if (group_fd < 0 || !freezer_says(group_fd, "freezer.self_freezing", "1") ||
	    !holds_only_members(frozen, group_fd, GROUP_DEPTH))
		return false;
	_cleanup_fd_ int state_fd = openat(group_fd, "freezer.state", O_WRONLY | O_CLOEXEC);
	return state_fd >= 0 && write(state_fd, "THAWED", 6) == 6;
}

/* The group and those above it, up to the helper's own, which stays as it is. */
static bool thaw_path(struct frozen *frozen, char *group)
{
	bool thawed = false;
	while (is_below(frozen->freezer, group)) {
		thawed |= thaw_group(frozen, group);
		*strrchr(group, '/') = '\0';
	}
	return thawed;
}

bool scope_thaw(const struct scope *scope)
{
	struct freezer freezer;
	struct census census;
	struct frozen frozen = {.scope = scope, .freezer = &freezer, .census = &census};
	char last[FREEZER_PATH_SIZE] = "", group[FREEZER_PATH_SIZE];
	bool thawed = false;
	if (!freezer_find(&freezer))
		return false;
	scope_census(scope, &census, 0, MEMBERS_MAX);
	for (uint32_t i = 0; i < census.stored; i++) {
		if (census.entries[i].state[0] == 'Z' ||
		    !freezer_group(census.entries[i].pid, group, sizeof(group)) || strcmp(group, last) == 0)
			continue;
		strcpy(last, group);
		thawed |= thaw_path(&frozen, group);
	}
	census_free(&census);
	return thawed;
}
