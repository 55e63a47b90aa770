/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

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

bool cgroup_has_word(const char *text, const char *word)
{
	size_t length = strlen(word);
	while (*text) {
		size_t part = strcspn(text, ", \n");
		if (part == length && memcmp(text, word, length) == 0)
			return true;
		text += part + (text[part] != '\0');
	}
	return false;
}

/* Is it the line of mountinfo of the cgroup2 file system (NULL), or of that v1 controller's hierarchy? */
static bool is_mount_of(const char *line, const char *controller)
{
	const char *type = strstr(line, " - ");
	if (!type || !controller)
		return type && strncmp(type, " - cgroup2 ", 11) == 0;
	return strncmp(type, " - cgroup ", 10) == 0 && cgroup_has_word(strrchr(type, ' ') + 1, controller);
}

/* Mount point and root of the hierarchy: /sys/fs/cgroup, or .../unified, .../memory on a hybrid host. */
static bool find_mount(const char *controller, char *mount_point, char *root, size_t size)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t capacity = 0;
	bool found = false;
	while (mounts && !found && getline(&line, &capacity, mounts) > 0) {
		char *fields[5], *save = NULL;
		if (!is_mount_of(line, controller))
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

/* The own path in the hierarchy: the line "0::/path" of /proc/self/cgroup, or "NUMBER:CONTROLLERS:/path". */
static bool find_own(const char *controller, char *path, size_t size)
{
	FILE *groups = fopen("/proc/self/cgroup", "re");
	char *line = NULL;
	size_t capacity = 0;
	bool found = false;
	while (groups && !found && getline(&line, &capacity, groups) > 0) {
		line[strcspn(line, "\n")] = '\0';
		char *names = strchr(line, ':'), *own = names ? strchr(names + 1, ':') : NULL;
		if (!own || own[1] != '/' || strlen(own + 1) >= size || strstr(own, "/.."))
			continue;
		*own++ = '\0';
		if (controller ? !cgroup_has_word(names + 1, controller) : strcmp(line, "0:") != 0)
			continue;
		strcpy(path, own);
		found = true;
	}
	free(line);
	if (groups)
		fclose(groups);
	return found;
}

/* The own cgroup as a folder, and what of it is the mount point's. False with the reason. */
static bool find_folder(const char *controller, char *path, size_t path_size, size_t *ret_mount, char *reason,
			size_t reason_size)
{
	char mount_point[512], root[512], own[512];
	if (!find_mount(controller, mount_point, root, sizeof(root))) {
		if (controller)
			snprintf(reason, reason_size, "no cgroup v1 %s hierarchy is mounted", controller);
		else
			snprintf(reason, reason_size,
				 "no cgroup v2 file system is mounted: mount one (mount -t cgroup2 none "
				 "/sys/fs/cgroup)");
		return false;
	}
	if (!find_own(controller, own, sizeof(own))) {
		snprintf(reason, reason_size, "this process has no visible cgroup %s (see /proc/self/cgroup)",
			 controller ? controller : "v2");
		return false;
	}
	size_t skip = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (skip && (strncmp(own, root, skip) != 0 || (own[skip] && own[skip] != '/'))) {
		snprintf(reason, reason_size, "the own cgroup %.80s is outside of what is mounted on %.80s", own,
			 mount_point);
		return false;
	}
	const char *rest = strcmp(own + skip, "/") == 0 ? "" : own + skip;
	int length = snprintf(path, path_size, "%s%s", mount_point, rest);
	*ret_mount = strlen(mount_point);
	if (length > 0 && (size_t)length < path_size)
		return true;
	snprintf(reason, reason_size, "the path of the own cgroup is too long");
	return false;
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

/*
 * Only a cgroup without processes of its own can give controllers to its children. A host that was handed a whole
 * subtree sits in a leaf of it, and the scopes' leaves are made beside it. Who marks it: systemd (Delegate=yes), or
 * whoever delegates by hand.
 */
static bool has_mark(const char *path)
{
	char value[2];
	return (getxattr(path, "user.delegate", value, sizeof(value)) == 1 && value[0] == '1') ||
	       (getxattr(path, "trusted.delegate", value, sizeof(value)) == 1 && value[0] == '1');
}

static bool ends_in(const char *name, const char *const *endings)
{
	const char *ending = strrchr(name, '.');
	for (; ending && *endings; endings++)
		if (strcmp(ending, *endings) == 0)
			return true;
	return false;
}

/*
 * An ordinary user's manager sets no mark in Debian 12 (systemd 252). But systemd puts the processes of a unit into the
 * unit's own cgroup: who is below that, and in no unit there, was put there by the unit's programs, which only a
 * delegated unit may do.
 */
static bool is_below_a_unit(const char *above, const char *own)
{
	static const char *const units[] = {".service", ".scope", ".slice", ".socket", ".mount", ".swap", ".control", NULL};
	static const char *const with_programs[] = {".service", ".scope", NULL};
	return geteuid() != 0 && ends_in(above, with_programs) && !ends_in(own, units);
}

bool cgroup_base(const char *controller, char *path, size_t size, char *reason, size_t reason_size)
{
	size_t mount_length;
	if (!find_folder(controller, path, size, &mount_length, reason, reason_size))
		return false;
	char *last = strrchr(path, '/');
	if (controller || !last || (size_t)(last - path) < mount_length)
		return true;
	*last = '\0';
	if ((!has_mark(path) && !is_below_a_unit(strrchr(path, '/') + 1, last + 1)) || access(path, W_OK) < 0)
		*last = '/';
	return true;
}
