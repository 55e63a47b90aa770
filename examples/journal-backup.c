/* SPDX-License-Identifier: Apache-2.0 */
/* journal-backup JOURNAL COPY: makes a backup. journal-backup JOURNAL COPY ANCHOR: restores it. */
#include <inttypes.h>
#include <stdio.h>

#include <orch/journal.h>

int main(int argc, char **argv)
{
	struct orch_journal_opts opts = {.size = sizeof(opts), .path = argv[1]};
	struct orch_restore_opts restore = {.size = sizeof(restore), .flags = ORCH_RESTORE_REPLACE};
	orch_journal *journal = NULL;
	orch_restoration *restoration = NULL;
	orch_error *error = NULL;
	uint64_t records = 0;

	if (argc < 3 || argc > 4)
		return 2;
	int32_t r;
	if (argc == 3) {
		r = orch_journal_open(&opts, &journal, &error);
		r = r < 0 ? r : orch_journal_backup(journal, argv[2], &records, &error);
		if (r == 0)
			printf("%" PRIu64 " records in %s\n", records, argv[2]);
	} else {
		restore.path = argv[1];
		restore.backup_path = argv[2];
		restore.anchor_path = argv[3]; /* knows how far the lost journal got */
		r = orch_journal_restore(&restore, &restoration, &error);
		if (r == 0) /* then open it and recover, with a probe */
			fputs(orch_restoration_text(restoration), stdout);
	}
	if (r < 0)
		fprintf(stderr, "journal-backup: %s\n", orch_error_message(error));
	orch_error_free(error);
	orch_restoration_unref(restoration);
	orch_journal_unref(journal);
	return r < 0;
}
