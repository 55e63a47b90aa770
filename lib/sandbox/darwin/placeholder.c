/* SPDX-License-Identifier: Apache-2.0 */
/* Seatbelt denies names, whether something has them or not. */
#include "../sandbox-private.h"

int32_t orch_placeholders_make(const orch_sandbox *sandbox, struct sandbox_placeholders **ret_placeholders,
			       orch_error **reterr)
{
	(void)sandbox, (void)reterr;
	*ret_placeholders = NULL;
	return 0;
}

void orch_placeholders_remove(void *placeholders)
{
	(void)placeholders;
}
