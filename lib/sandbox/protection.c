/* SPDX-License-Identifier: Apache-2.0 */
/* The protections by name, and how much each is insisted on. */
#include "sandbox-private.h"

static const struct {
	const char *name;
	uint32_t level; /* unless the policy says something else */
} protections[SANDBOX_PROTECTIONS] = {
	[PROTECT_NAMESPACES] = {"namespaces", ORCH_PROTECT_REQUIRED},
	[PROTECT_LANDLOCK] = {"landlock", ORCH_PROTECT_REQUIRED},
	[PROTECT_SECCOMP] = {"seccomp", ORCH_PROTECT_REQUIRED},
	[PROTECT_MEMORY] = {"memory", ORCH_PROTECT_DEGRADABLE},
	[PROTECT_CPU] = {"cpu", ORCH_PROTECT_DEGRADABLE},
};

void orch_sandbox_protections_init(orch_sandbox *sandbox)
{
	for (size_t i = 0; i < SANDBOX_PROTECTIONS; i++)
		sandbox->levels[i] = protections[i].level;
}

int32_t orch_sandbox_set_protection(orch_sandbox *sandbox, const char *protection, uint32_t level,
				    orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code < 0)
		return code;
	if (level < ORCH_PROTECT_REQUIRED || level > ORCH_PROTECT_OFF)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "level %u is not one of ORCH_PROTECT_*", level);
	for (size_t i = 0; protection && i < SANDBOX_PROTECTIONS; i++)
		if (strcmp(protections[i].name, protection) == 0) {
			sandbox->levels[i] = level;
			return 0;
		}
	return orch_fail(reterr, ORCH_ENOENT, 0, NULL,
			 "there is no protection \"%s\": namespaces, landlock, seccomp, memory, cpu",
			 protection ? protection : "");
}
