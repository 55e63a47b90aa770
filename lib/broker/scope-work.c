/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "broker-private.h"

/*
 * A principal whose end is part of a scope's. The scope does not keep the principal: that keeps its broker and the
 * context, and then nothing would end when the host drops them all.
 */

struct principal_tie {
	struct principal_tie *next; /* in principal->ties */
	orch_principal *principal;  /* NULL: it is gone, and with it all that it had open */
};

static void untie_all(orch_principal *principal)
{
	for (struct principal_tie *tie = principal->ties; tie; tie = tie->next)
		tie->principal = NULL;
}

static void tie_free(void *userdata)
{
	struct principal_tie *tie = userdata;
	if (tie->principal) {
		struct principal_tie **link = &tie->principal->ties;
		while (*link != tie)
			link = &(*link)->next;
		*link = tie->next;
	}
	free(tie);
}

/* It may be revoked already: then the counts are of that time. */
static void on_settle(void *userdata, orch_scope *scope, orch_settlement *settlement)
{
	orch_principal *principal = ((struct principal_tie *)userdata)->principal;
	char outcome[160];
	(void)scope;
	if (!principal) {
		orch_settlement_done(settlement, "gone before, with all that it had open", NULL);
		return;
	}
	if (!principal->revoked && !principal->broker->closed)
		orch_principal_revoke(principal, NULL, NULL, NULL, NULL);
	if (principal->revoked)
		snprintf(outcome, sizeof(outcome),
			 "revoked, its listeners closed, its connections cut; of what was in flight %u settled, of "
			 "%u the outcome is unknown",
			 principal->settled, principal->unknown);
	else if (principal->broker->closed)
		snprintf(outcome, sizeof(outcome), "its broker was closed before, and what it had open ended then");
	else
		return; /* it could not be revoked, and that is what the certificate says */
	orch_settlement_done(settlement, outcome, NULL);
}

int32_t orch_principal_attach(orch_principal *principal, orch_scope *scope, orch_error **reterr)
{
	int32_t code = principal_check(principal, reterr);
	if (code < 0)
		return code;
	_cleanup_free_ char *what = orch_strdup_printf("principal %s", principal->name);
	struct principal_tie *tie = calloc(1, sizeof(*tie));
	if (!what || !tie) {
		free(tie);
		return orch_fail_memory(reterr);
	}
	tie->principal = principal;
	tie->next = principal->ties;
	principal->ties = tie;
	principal->untie = untie_all;
	return orch_scope_add_work(scope, what, on_settle, tie, tie_free, reterr);
}
