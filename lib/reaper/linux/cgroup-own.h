/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CGROUP_OWN_H
#define ORCH_CGROUP_OWN_H

/* Compiled into the library and into orch-reaper. */

#include <stdbool.h>
#include <stddef.h>

/*
 * Where leaves are made: the folder of this process's own cgroup, v2 (NULL) or in the v1 hierarchy of a controller; the
 * delegated v2 cgroup around it, if it is in one. False: `reason` says why there is none, and what to do.
 */
bool cgroup_base(const char *controller, char *path, size_t size, char *reason, size_t reason_size);
/* Is it one of the words in `text`, which commas, spaces or line ends separate? */
bool cgroup_has_word(const char *text, const char *word);
/* "orch-" and 16 hexadecimal digits: no other folder is ever killed or removed. */
bool cgroup_is_leaf_name(const char *name);

#endif
