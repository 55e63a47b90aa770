/* SPDX-License-Identifier: Apache-2.0 */
/* hello-journal FILE: greets once, however often it is started and wherever it was killed. */
#include <stdio.h>

#include <orch/journal.h>

int main(int argc, char **argv)
{
	struct orch_journal_opts opts;
	struct orch_action_opts greeting;
	orch_journal *journal = NULL;
	orch_action *action = NULL;
	orch_error *error = NULL;
	uint32_t outcome;

	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = argc == 2 ? argv[1] : "hello.journal";
	orch_action_opts_init(&greeting, sizeof(greeting)); /* never_repeat */
	greeting.kind = "hello.print";
	greeting.key = "greeting";

	int32_t r = orch_journal_open(&opts, &journal, &error);
	if (r == 0)
		r = orch_journal_begin(journal, &greeting, &outcome, &action, &error);
	if (r == 0 && outcome == ORCH_BEGIN_FRESH) {
		r = orch_action_dispatch(action, &error); /* durable before anything happens */
		if (r == 0) {
			puts("hello");
			r = orch_action_observe(action, "hello", 5, &error);
		}
	}
	if (r == 0)
		printf("%s\n", orch_action_state_name(orch_action_state(action)));
	else
		fprintf(stderr, "hello-journal: %s\n", orch_error_message(error));
	orch_error_free(error);
	orch_action_unref(action);
	orch_journal_unref(journal);
	return r < 0;
}
