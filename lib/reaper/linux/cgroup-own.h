/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CGROUP_OWN_H
#define ORCH_CGROUP_OWN_H

/* Compiled into the library and into orch-reaper. */

#include <stdbool.h>
#include <stddef.h>

/* The folder of this process's cgroup v2. False: `reason` says why there is none, and what to do. */
bool cgroup_own(char *path, size_t size, char *reason, size_t reason_size);
/* "orch-" and 16 hexadecimal digits: no other folder is ever killed or removed. */
bool cgroup_is_leaf_name(const char *name);

#endif
