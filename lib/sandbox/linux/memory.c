/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "../sandbox-private.h"

static int write_cgroup(const char *cgroup, const char *name, const char *value)
{
	_cleanup_free_ char *path = orch_strdup_printf("%s/%s", cgroup, name);
	_cleanup_close_ int fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;

	return fd >= 0 && write(fd, value, strlen(value)) >= 0 ? 0 : -1;
}

int32_t orch_sandbox_limit_memory(orch_sandbox *sandbox, orch_error **reterr)
{
	const char *cgroup = orch_scope_cgroup(sandbox->scope);
	char bytes[32];

	if (sandbox->opts.max_memory_mib == 0 || sandbox->memory == ORCH_PROTECT_OFF)
		return 0;
	snprintf(bytes, sizeof(bytes), "%llu",
		 (unsigned long long)sandbox->opts.max_memory_mib << 20);
	errno = ENOTSUP;
	if (*cgroup && write_cgroup(cgroup, "memory.max", bytes) == 0) {
		/* Swap counts too, and one victim is none: where these files are missing there is
		 * no swap. */
		bool swap = write_cgroup(cgroup, "memory.swap.max", "0") == 0 || errno == ENOENT;

		write_cgroup(cgroup, "memory.oom.group", "1");
		sandbox->memory_mechanism = swap ? "cgroup v2 memory.max, no swap" : NULL;
	}
	if (sandbox->memory_mechanism)
		return 0;
	if (sandbox->memory == ORCH_PROTECT_REQUIRED)
		return orch_fail(reterr, ORCH_EUNENFORCEABLE, errno, "memory",
				 "protection memory can not be enforced: the scope's cgroup \"%s\" "
				 "has no memory "
				 "controller. Delegate one (systemd: Delegate=memory), or make the "
				 "protection "
				 "degradable",
				 cgroup);
	orch_ctx_logf(sandbox->ctx, ORCH_LOG_NOTICE,
		      "sandbox: memory is not limited, its cgroup has no memory controller");
	return 0;
}
