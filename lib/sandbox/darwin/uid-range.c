/* SPDX-License-Identifier: Apache-2.0 */
#include "../sandbox-private.h"
#include "../spec.h"

int32_t orch_sandbox_uid_range(struct uid_range *ret_range, orch_error **reterr)
{
	(void)reterr;
	*ret_range = (struct uid_range){ORCH_SPEC_UID_FIRST, ORCH_SPEC_UID_COUNT};
	return 0;
}
