/* SPDX-License-Identifier: Apache-2.0 */
/* journal-log JOURNAL [NUMBER]: what happened after record NUMBER, of a journal that nobody has open. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <orch/journal.h>

static int32_t line(void *userdata, const orch_record *record)
{
	(void)userdata;
	printf("%" PRIu64 " %" PRId64 " generation %" PRIu64 ": %s %" PRIu64, orch_record_sequence(record),
	       orch_record_at_ms(record), orch_record_generation(record),
	       orch_record_type_name(orch_record_type(record)), orch_record_subject(record));
	if (*orch_record_name(record))
		printf(" %s %s", orch_record_name(record), orch_record_state_name(record));
	putchar('\n');
	return 0;
}

int main(int argc, char **argv)
{
	struct orch_journal_opts opts = {.size = sizeof(opts), .flags = ORCH_JOURNAL_READ_ONLY};
	orch_journal *journal = NULL;
	orch_error *error = NULL;

	opts.path = argc > 1 ? argv[1] : "hello.journal";
	int32_t r = orch_journal_open(&opts, &journal, &error);
	if (r == 0)
		r = orch_journal_records(journal, argc > 2 ? strtoull(argv[2], NULL, 10) : 0, line, NULL,
					 &error);
	if (r < 0)
		fprintf(stderr, "journal-log: %s\n", orch_error_message(error));
	orch_error_free(error);
	orch_journal_unref(journal);
	return r < 0;
}
