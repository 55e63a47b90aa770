/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HOLDERS_LINUX_H
#define ORCH_HOLDERS_LINUX_H

/*
 * What keeps a process alive that was killed: a freezer of cgroup v1, a tracer. Nothing here blocks. Compiled into the
 * library and into orch-reaper.
 */

#include "census.h"

#define FREEZER_PATH_SIZE 512

/* The v1 hierarchy with the freezer, as this process sees it. */
struct freezer {
	char mount_point[FREEZER_PATH_SIZE];
	char own[FREEZER_PATH_SIZE]; /* this process's group; "" for the root */
};

/* False: there is none, or its root is not what is mounted, so that the paths of /proc/PID/cgroup are no paths in it. */
bool freezer_find(struct freezer *ret_freezer);
/* The group of a process. */
bool freezer_group(pid_t pid, char *ret_path, size_t size);
/* A descriptor of the group's folder, or -1. */
int freezer_open(const struct freezer *freezer, const char *group);
/* Does the group's file begin so? */
bool freezer_says(int group_fd, const char *name, const char *what);

/* Adds to `text` what holds those in the census, as far as it can be seen. */
void census_holders(const struct census *census, char *text, size_t size);

#endif
