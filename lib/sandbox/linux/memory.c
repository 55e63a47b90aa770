/* SPDX-License-Identifier: Apache-2.0 */
#include "../sandbox-private.h"

int32_t orch_sandbox_limit_memory(orch_sandbox *sandbox, orch_error **reterr)
{
	uint32_t state = ORCH_LIMIT_ABSENT;
	const char *mechanism = "";

	if (sandbox->opts.max_memory_mib == 0 || sandbox->levels[PROTECT_MEMORY] == ORCH_PROTECT_OFF)
		return 0;
	orch_scope_limit(sandbox->scope, ORCH_LIMIT_MEMORY, &state, &mechanism);
	/* The text lives with the scope, which lives with the sandbox. */
	if (state == ORCH_LIMIT_ENFORCED)
		sandbox->memory_mechanism = mechanism;
	if (sandbox->memory_mechanism || sandbox->levels[PROTECT_MEMORY] != ORCH_PROTECT_REQUIRED)
		return 0;
	return orch_fail(reterr, ORCH_EUNENFORCEABLE, 0, "memory",
			 "protection memory can not be enforced: %s. Delegate a cgroup with a memory controller (systemd: "
			 "Delegate=memory), or make the protection degradable",
			 mechanism);
}
