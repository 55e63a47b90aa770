/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "broker-private.h"

/* A principal whose end is part of a scope's. */

static void unref_principal(void *userdata)
{
	orch_principal_unref(userdata);
}

/* It may be revoked already: then the counts are of that time. */
static void on_settle(void *userdata, orch_scope *scope, orch_settlement *settlement)
{
	orch_principal *principal = userdata;
	char outcome[160];
	(void)scope;
	if (!principal->revoked)
		orch_principal_revoke(principal, NULL, NULL, NULL, NULL);
	/* Not with a broker that is gone: what it had in flight was settled when it went. */
	if (!principal->revoked)
		return;
	snprintf(outcome, sizeof(outcome),
		 "revoked, its listeners closed, its connections cut; of what was in flight %u settled, of %u the "
		 "outcome is unknown",
		 principal->settled, principal->unknown);
	orch_settlement_done(settlement, outcome, NULL);
}

int32_t orch_principal_attach(orch_principal *principal, orch_scope *scope, orch_error **reterr)
{
	int32_t code = principal_check(principal, reterr);
	if (code < 0)
		return code;
	_cleanup_free_ char *what = orch_strdup_printf("principal %s", principal->name);
	if (!what)
		return orch_fail_memory(reterr);
	return orch_scope_add_work(scope, what, on_settle, orch_principal_ref(principal), unref_principal, reterr);
}
