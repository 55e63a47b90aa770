/* SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

static uint64_t add(uint64_t one, uint64_t other)
{
	return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

void budget_add(struct amounts *total, const struct amounts *more)
{
	for (int kind = 0; kind < BUDGET_KINDS; kind++)
		total->of[kind] = add(total->of[kind], more->of[kind]);
}

int budget_check(const struct budget *budget, const struct amounts *want, bool *ret_final)
{
	for (int kind = 0; kind < BUDGET_KINDS; kind++) {
		uint64_t cap = budget->caps.of[kind], spent = budget->spent.of[kind];
		if (!cap || !want->of[kind])
			continue;
		if (spent >= cap) {
			*ret_final = true;
			return kind;
		}
		if (!budget->in_flight)
			continue;
		if (add(add(spent, budget->reserved.of[kind]), want->of[kind]) > cap) {
			*ret_final = false;
			return kind;
		}
	}
	return -1;
}

void budget_reserve(struct budget *budget, const struct amounts *want)
{
	budget_add(&budget->reserved, want);
	budget->in_flight++;
}

void budget_settle(struct budget *budget, const struct amounts *reserved,
		   const struct amounts *spent)
{
	for (int kind = 0; kind < BUDGET_KINDS; kind++)
		budget->reserved.of[kind] -= reserved->of[kind];
	budget->in_flight--;
	if (spent)
		budget_add(&budget->spent, spent);
}
