/* SPDX-License-Identifier: Apache-2.0 */
#include "../changes.h"

/* Nothing of macOS lays one folder over another for a single process. */
int32_t orch_sandbox_check_overlay(orch_error **reterr)
{
	return orch_fail(
		reterr, ORCH_ENOTSUP, 0, "overlay",
		"macOS has no overlays: give a copy of the folder to orch_sandbox_set_workspace()");
}

int32_t changes_read(struct orch_changes *changes, int private_fd, int lower_fd,
		     orch_error **reterr)
{
	(void)changes, (void)private_fd, (void)lower_fd;
	return orch_sandbox_check_overlay(reterr);
}

int32_t changes_write(const struct orch_changes *changes, int private_fd, const char *path,
		      orch_error **reterr)
{
	(void)changes, (void)private_fd, (void)path;
	return orch_sandbox_check_overlay(reterr);
}
