/* SPDX-License-Identifier: Apache-2.0 */
#include "../sandbox-private.h"

/* RLIMIT_AS is not looked at by macOS, and the kernel's own memory limits are for launchd. Required: refused before. */
int32_t orch_sandbox_limit_memory(orch_sandbox *sandbox, orch_error **reterr)
{
	(void)reterr;
	if (sandbox->opts.max_memory_mib > 0 && sandbox->levels[PROTECT_MEMORY] != ORCH_PROTECT_OFF)
		orch_ctx_logf(sandbox->ctx, ORCH_LOG_NOTICE, "sandbox: memory is not limited, macOS has no cap for it");
	return 0;
}
