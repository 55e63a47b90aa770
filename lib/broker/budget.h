/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_BROKER_BUDGET_H
#define ORCH_BROKER_BUDGET_H

/*
 * Budgets: reserved before a call, settled after it. Reservations count as spent, so parallel calls
 * cannot beat a cap; one call may always go when nothing else is in flight and the cap is not
 * reached, so spending ends at the cap plus one call at most.
 */

#include "../core/core-private.h"

enum budget_kind { BUDGET_REQUESTS, BUDGET_TOKENS, BUDGET_MONEY, BUDGET_KINDS };

struct amounts {
	uint64_t of[BUDGET_KINDS];
};

struct budget {
	struct amounts caps; /* 0: none of that kind */
	struct amounts spent;
	struct amounts reserved;
	unsigned in_flight;
	bool hit;
};

/* -1: there is room; else the kind that stands in the way. `ret_final`: waiting for others would
 * not help. */
int budget_check(const struct budget *budget, const struct amounts *want, bool *ret_final);
void budget_reserve(struct budget *budget, const struct amounts *want);
/* `spent` NULL: nothing happened, the reservation is given back. */
void budget_settle(struct budget *budget, const struct amounts *reserved,
		   const struct amounts *spent);
void budget_add(struct amounts *total, const struct amounts *more);

#endif
