/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup-own.h"

/* mountinfo writes space, tab, newline and backslash in octal (proc(5)). */
static void unescape(char *text)
{
	char *to = text;
	for (const char *from = text; *from; to++) {
		unsigned value;
		if (*from == '\\' && sscanf(from + 1, "%3o", &value) == 1) {
			*to = (char)value;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* Mount point and root of the cgroup2 file system: /sys/fs/cgroup, or .../unified on a hybrid host.
 */
static bool find_mount(char *mount_point, char *root, size_t size)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t capacity = 0;
	bool found = false;
	while (mounts && !found && getline(&line, &capacity, mounts) > 0) {
		char *type = strstr(line, " - ");
		char *fields[5], *save = NULL;
		if (!type || strncmp(type, " - cgroup2 ", 11) != 0)
			continue;
		int count = 0;
		for (char *field = strtok_r(line, " ", &save); field && count < 5;
		     field = strtok_r(NULL, " ", &save))
			fields[count++] = field;
		if (count < 5 || strlen(fields[3]) >= size || strlen(fields[4]) >= size)
			continue;
		unescape(strcpy(root, fields[3]));
		unescape(strcpy(mount_point, fields[4]));
		found = true;
	}
	free(line);
	if (mounts)
		fclose(mounts);
	return found;
}

/* The own path in the unified hierarchy: the line "0::/path" of /proc/self/cgroup. */
static bool find_own(char *path, size_t size)
{
	FILE *groups = fopen("/proc/self/cgroup", "re");
	char *line = NULL;
	size_t capacity = 0;
	bool found = false;
	while (groups && !found && getline(&line, &capacity, groups) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::/", 4) == 0 && strlen(line + 3) < size &&
		    !strstr(line, "/..")) {
			strcpy(path, line + 3);
			found = true;
		}
	}
	free(line);
	if (groups)
		fclose(groups);
	return found;
}

bool cgroup_is_leaf_name(const char *name)
{
	if (strncmp(name, "orch-", 5) != 0 || strlen(name) != 5 + 16)
		return false;
	for (const char *digit = name + 5; *digit; digit++)
		if (!isxdigit((unsigned char)*digit))
			return false;
	return true;
}

bool cgroup_own(char *path, size_t size, char *reason, size_t reason_size)
{
	char mount_point[512], root[512], own[512];
	if (!find_mount(mount_point, root, sizeof(root))) {
		snprintf(reason, reason_size,
			 "no cgroup v2 file system is mounted: mount one (mount -t cgroup2 none "
			 "/sys/fs/cgroup)");
		return false;
	}
	if (!find_own(own, sizeof(own))) {
		snprintf(reason, reason_size, "this process has no visible cgroup v2 (see /proc/self/cgroup)");
		return false;
	}
	size_t skip = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (skip && (strncmp(own, root, skip) != 0 || (own[skip] && own[skip] != '/'))) {
		snprintf(reason, reason_size, "the own cgroup %.80s is outside of what is mounted on %.80s", own,
			 mount_point);
		return false;
	}
	const char *rest = strcmp(own + skip, "/") == 0 ? "" : own + skip;
	if ((size_t)snprintf(path, size, "%s%s", mount_point, rest) < size)
		return true;
	snprintf(reason, reason_size, "the path of the own cgroup is too long");
	return false;
}
