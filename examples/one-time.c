/* SPDX-License-Identifier: Apache-2.0 */
/* one-time JOURNAL PERMIT: allows one opening. one-time JOURNAL PERMIT VISIT: opens the gate for it. */
#include <stdio.h>

#include <orch/permit.h>

int main(int argc, char **argv)
{
	struct orch_journal_opts opts = {.size = sizeof(opts), .path = argv[1]};
	struct orch_permit_opts permit = {.size = sizeof(permit), .kind = "gate.open"};
	struct orch_action_opts visit = {.size = sizeof(visit), .kind = "gate.open"};
	orch_journal *journal = NULL;
	orch_action *action = NULL;
	orch_error *error = NULL;
	uint32_t outcome = 0;

	if (argc < 3 || argc > 4)
		return 2;
	int32_t r = orch_journal_open(&opts, &journal, &error);
	if (r == 0 && argc == 3) {
		permit.name = argv[2];
		r = orch_permit_issue(journal, &permit, NULL, &error);
	} else if (r == 0) {
		visit.key = argv[3];
		visit.permit = argv[2]; /* used up by the commit that records the intent */
		r = orch_journal_begin(journal, &visit, &outcome, &action, &error);
		if (r == 0 && outcome == ORCH_BEGIN_FRESH)
			r = orch_action_dispatch(action, &error);
		if (r == 0 && outcome == ORCH_BEGIN_FRESH) {
			puts("the gate opens");
			r = orch_action_observe(action, NULL, 0, &error);
		}
	}
	if (r < 0)
		fprintf(stderr, "one-time: %s\n", orch_error_message(error));
	orch_error_free(error);
	orch_action_unref(action);
	orch_journal_unref(journal);
	return r < 0;
}
