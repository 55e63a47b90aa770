/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_PROFILE_H
#define ORCH_SANDBOX_PROFILE_H

/*
 * A sandbox's policy as text for Seatbelt (the profile language of sandbox_init(3)). A function of its input alone: no call
 * of the system, so that it is tested where there is no macOS.
 *
 * What it stands on: "(deny default)" is the answer where no rule matches; of those that match the last one counts; a path
 * is compared with the file's own, symbolic links resolved (/tmp is /private/tmp).
 */

#include <orch/sandbox.h>

#include "../../core/core-private.h"

struct profile_path {
	const char *path;   /* absolute, resolved, normalised */
	uint32_t access;    /* ORCH_PATH_*; 0: denied */
};

struct profile_policy {
	uint32_t root; /* ORCH_ROOT_* */
	uint32_t broker_port; /* the only address that may be connected to: this port of the loopback; 0: none */
	const struct profile_path *paths;
	size_t path_count;
};

/*
 * 0, or ORCH_EINVAL with the number of the path that can not be written: relative, with ".", ".." or an empty part, with
 * a control character other than newline, tab and carriage return, or not UTF-8 (no file system of macOS has such names).
 * Allocation failures are in the buffer.
 */
int32_t orch_profile_write(const struct profile_policy *policy, struct orch_buf *text, size_t *ret_path);

/*
 * What a policy asks for and macOS does not have, each with its remedy, separated by "; ". Empty: nothing. The workspace
 * and other paths have to keep their places, so `moved` is the first inner path that differs from its host path, or NULL.
 */
struct profile_wishes {
	uint32_t least_rung, net;
	uint32_t landlock, seccomp, memory; /* ORCH_PROTECT_* */
	uint64_t max_memory_mib;
	const char *moved;
	bool own_as_root; /* ORCH_PATH_OWN, and the caller is root */
};
void orch_profile_gaps(const struct profile_wishes *wishes, struct orch_buf *text);

#endif
