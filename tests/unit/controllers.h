/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CONTROLLERS_H
#define ORCH_CONTROLLERS_H

/* Which cgroup controllers this host has for scopes of this user: found out by the test itself, so
 * that it can be demanded. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The own cgroup v2, found without the library; "" if there is none. */
static inline void own_cgroup(char *path, size_t size)
{
	char line[512];
	bool hybrid = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0;
	FILE *groups = fopen("/proc/self/cgroup", "re");
	path[0] = '\0';
	while (groups && fgets(line, sizeof(line), groups)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::", 3) == 0)
			snprintf(path, size, "/sys/fs/cgroup%s%s", hybrid ? "/unified" : "",
				 line + 3);
	}
	if (groups)
		fclose(groups);
}

static inline bool file_has_word(const char *path, const char *word)
{
	char text[4096] = "";
	FILE *file = fopen(path, "re");
	size_t length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	if (file)
		fclose(file);
	text[length] = '\0';
	for (char *save = NULL, *part = strtok_r(text, ", \n", &save); part;
	     part = strtok_r(NULL, ", \n", &save))
		if (strcmp(part, word) == 0)
			return true;
	return false;
}

/* Delegated, or a unit of an ordinary user's systemd, which sets no mark in Debian 12. */
static inline bool is_delegated(const char *path)
{
	char value[2];
	const char *ending = strrchr(path, '.');
	return (getxattr(path, "user.delegate", value, 2) == 1 && value[0] == '1') ||
	       (geteuid() != 0 && ending &&
		(strcmp(ending, ".scope") == 0 || strcmp(ending, ".service") == 0));
}

/* In a leaf of a cgroup that was delegated to this user: the scopes' leaves are made beside the own
 * one. */
static inline bool has_controller_v2(const char *controller)
{
	char above[600], path[700];
	own_cgroup(above, sizeof(above));
	char *last = strrchr(above, '/');
	if (!last)
		return false;
	*last = '\0';
	snprintf(path, sizeof(path), "%s/cgroup.controllers", above);
	return faccessat(AT_FDCWD, above, W_OK, AT_EACCESS) == 0 && is_delegated(above) &&
	       file_has_word(path, controller);
}

static inline bool has_controller(const char *controller)
{
	/* Root's shell sits in a v1 cgroup, or in the root of v2 (a guest); where it is elsewhere,
	 * nothing is demanded. */
	return has_controller_v2(controller) ||
	       (geteuid() == 0 &&
		(file_has_word("/proc/self/mountinfo", controller) ||
		 (file_has_word("/sys/fs/cgroup/cgroup.controllers", controller) &&
		  file_has_word("/proc/self/cgroup", "0::/"))));
}

#endif
