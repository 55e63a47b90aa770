/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_CHANGES_H
#define ORCH_SANDBOX_CHANGES_H

/* What an overlay holds. changes.c keeps the rows, changes.c and changes-export.c of the system read and write files. */

#include "sandbox-private.h"

#define CHANGES_MOST 1000000u
/* Each level keeps two descriptors open. */
#define CHANGES_DEEPEST 256u

struct change {
	char *path;
	uint32_t kind; /* ORCH_CHANGE_* */
	uint32_t mode;
	uint64_t bytes;
};

struct orch_changes {
	struct sandbox_link *link; /* counted */
	struct change *rows;
	uint32_t count, capacity;
	struct orch_buf text;
};

/* False without memory. */
bool changes_add(struct orch_changes *changes, const char *path, const struct change *change);

/*
 * Adds what differs between the folder `lower_fd` and what programs saw in its place, from the private file system below
 * `private_fd`. In any order.
 */
int32_t changes_read(struct orch_changes *changes, int private_fd, int lower_fd, orch_error **reterr);
/* orch_changes_export(), whose arguments are right. */
int32_t changes_write(const struct orch_changes *changes, int private_fd, const char *path, orch_error **reterr);

#endif
