/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_PRESET_H
#define ORCH_SANDBOX_PRESET_H

/*
 * What a root has without any rule: preset.c of the system. One table for orch-reaper, which makes it, and for the answers
 * of orch_sandbox_why(). Links nothing but libc.
 */

#include <stddef.h>
#include <stdint.h>

#define PRESET_TOOLS 1u	   /* of ORCH_ROOT_TOOLS only */
#define PRESET_OPTIONAL 2u /* left out where the host has none; a symbolic link at the top level is made again as one */
#define PRESET_DEVICE 4u   /* device nodes are usable */
#define PRESET_MADE 8u	   /* the sandbox's own, nothing of the host's */

struct preset_path {
	const char *path;
	uint32_t access; /* ORCH_PATH_* */
	uint32_t flags;
};

const struct preset_path *orch_preset(size_t *ret_count);

#endif
