/* SPDX-License-Identifier: Apache-2.0 */
/* Backups of a journal in use, and journals made of them. */
#include <stdbool.h>
#include <pthread.h>
#include <stdatomic.h>

#include <orch/permit.h>

#include "../crash/journal-kit.h"

static char backup_path[160], replaced_path[200];

static void setup(void)
{
	kit_setup();
	snprintf(backup_path, sizeof(backup_path), "%s/b", anchor_folder);
}

static int32_t restore_from(const char *backup, uint32_t flags, const char *anchor,
			    orch_restoration **ret, orch_error **reterr)
{
	struct orch_restore_opts opts;
	orch_restore_opts_init(&opts, sizeof(opts));
	opts.backup_path = backup;
	opts.path = journal_path;
	opts.flags = flags;
	opts.anchor_path = anchor;
	return orch_journal_restore(&opts, ret, reterr);
}

static orch_restoration *restore(uint32_t flags, const char *anchor)
{
	orch_restoration *restoration = NULL;
	OK(restore_from(backup_path, flags, anchor, &restoration, &error));
	ck_assert_ptr_nonnull(restoration);
	return restoration;
}

static void back_up(orch_journal *journal)
{
	uint64_t records = 0;
	OK(orch_journal_backup(journal, backup_path, &records, &error));
	ck_assert_uint_eq(records, orch_journal_sequence(journal));
}

static int32_t open_path(const char *path, uint32_t flags, const char *anchor,
			 orch_journal **journal, orch_error **reterr)
{
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = path;
	opts.flags = flags;
	opts.anchor_path = anchor;
	return orch_journal_open(&opts, journal, reterr);
}

static orch_journal *read_path(const char *path)
{
	orch_journal *journal = NULL;
	OK(open_path(path, ORCH_JOURNAL_READ_ONLY, NULL, &journal, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	return journal;
}

static void record(orch_journal *journal, const char *key)
{
	OK(orch_journal_record(journal, "test.record", key, "payload", 7, NULL, &error));
}

static bool has(orch_journal *journal, const char *key)
{
	orch_action *action = NULL;
	int32_t r = orch_journal_find(journal, key, &action, NULL);
	ck_assert(r == 0 || r == ORCH_ENOENT);
	orch_action_unref(action);
	return r == 0;
}

static bool is_there(const char *path)
{
	struct stat status;
	return lstat(path, &status) == 0;
}

static const char *beside(const char *path, const char *tail)
{
	static char names[4][220];
	static unsigned next;
	char *name = names[next++ % 4];
	snprintf(name, sizeof(names[0]), "%s%s", path, tail);
	return name;
}

/* Nothing but the backup is left in its folder. */
static void no_remains(void)
{
	ck_assert(!is_there(beside(backup_path, ".new")));
	ck_assert(!is_there(beside(backup_path, ".new-journal")));
	ck_assert(!is_there(beside(backup_path, ".new-wal")));
	ck_assert(!is_there(beside(backup_path, ".new.lock")));
}

/* --- backup
 * --------------------------------------------------------------------------------------------- */

START_TEST(it_is_the_journal_at_one_moment)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	for (int i = 0; i < 300; i++) {
		char key[16];
		snprintf(key, sizeof(key), "k%d", i);
		record(journal, key);
	}
	back_up(journal);
	record(journal, "later");
	orch_journal *copy = read_path(backup_path);
	ck_assert(has(copy, "k299"));
	ck_assert(!has(copy, "later"));
	ck_assert_uint_eq(state_of(copy, "open"), ORCH_ACTION_DISPATCHED);
	ck_assert_uint_eq(orch_journal_sequence(copy) + 1, orch_journal_sequence(journal));
	orch_journal_unref(copy);
	/* The journal goes on as if nothing was. */
	record(journal, "after");
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
	journal = open_anchored();
	ck_assert(has(journal, "after"));
	orch_journal_unref(journal);
	no_remains();
}
END_TEST

START_TEST(it_is_no_journal)
{
	orch_journal *journal = open_anchored(), *opened = NULL;
	orch_error *told = NULL;
	fill(journal);
	back_up(journal);
	orch_journal_unref(journal);
	struct file before = slurp(backup_path);
	ck_assert_int_eq(open_path(backup_path, 0, NULL, &opened, &told), ORCH_ECORRUPT);
	ck_assert_ptr_nonnull(strstr(orch_error_message(told), "orch_journal_restore()"));
	orch_error_free(told);
	same_file(backup_path, &before);
	/* Nor in the journal's place, where it would be an older one. */
	struct file sound = slurp(journal_path);
	spill(journal_path, &before);
	FAILS(ORCH_ECORRUPT, kit_open(&opened, &error));
	same_file(journal_path, &before);
	spill(journal_path, &sound);
	orch_journal_unref(open_journal());
	/* It can be read, and a log beside it is not its own. */
	spill(beside(backup_path, "-wal"), &sound);
	orch_journal_unref(read_path(backup_path));
}
END_TEST

START_TEST(where_it_cannot_be_written)
{
	orch_journal *journal = open_journal();
	char path[200];
	fill(journal);
	FAILS(ORCH_EINVAL, orch_journal_backup(journal, NULL, NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_backup(journal, "", NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_backup(journal, beside(anchor_folder, "/"), NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_backup(NULL, backup_path, NULL, &error));
	FAILS(ORCH_ENOENT,
	      orch_journal_backup(journal, beside(anchor_folder, "/none/b"), NULL, &error));
	FAILS(ORCH_EEXIST, orch_journal_backup(journal, journal_path, NULL, &error));
	FAILS(ORCH_EEXIST, orch_journal_backup(journal, wal_path, NULL, &error));
	FAILS(ORCH_EEXIST, orch_journal_backup(journal, folder, NULL, &error));
	snprintf(path, sizeof(path), "%s/link", anchor_folder);
	ck_assert_int_eq(symlink("nowhere", path), 0);
	FAILS(ORCH_EEXIST, orch_journal_backup(journal, path, NULL, &error));
	ck_assert(!is_there(beside(anchor_folder, "/nowhere")));
	uint64_t records = 77;
	FILE *taken = fopen(backup_path, "we");
	fputs("somebody's", taken);
	fclose(taken);
	struct file before = slurp(backup_path);
	FAILS(ORCH_EEXIST, orch_journal_backup(journal, backup_path, &records, &error));
	ck_assert_uint_eq(records, 77);
	same_file(backup_path, &before);
	no_remains();
	unlink(backup_path);
	/* What a killed one left is in nobody's way. */
	spill(beside(backup_path, ".new"), &before);
	spill(beside(backup_path, ".new-journal"), &before);
	back_up(journal);
	orch_journal_unref(journal);
	orch_journal_unref(read_path(backup_path));
	no_remains();
}
END_TEST

START_TEST(to_another_file_system)
{
	char elsewhere[64] = "/dev/shm/orch-test-backup-XXXXXX", path[80];
	struct stat here, there;
	if (!mkdtemp(elsewhere))
		return;
	ck_assert_int_eq(stat(folder, &here), 0);
	ck_assert_int_eq(stat(elsewhere, &there), 0);
	ck_assert(here.st_dev != there.st_dev);
	snprintf(path, sizeof(path), "%s/b", elsewhere);
	orch_journal *journal = open_journal();
	fill(journal);
	OK(orch_journal_backup(journal, path, NULL, &error));
	orch_journal_unref(journal);
	orch_journal_unref(read_path(path));
	OK(restore_from(path, ORCH_RESTORE_REPLACE, NULL, NULL, &error));
	orch_journal_unref(open_journal());
	nftw(elsewhere, kit_remove, 8, FTW_DEPTH | FTW_PHYS);
}
END_TEST

START_TEST(of_a_journal_that_is_read)
{
	orch_journal *journal = open_journal();
	fill(journal);
	orch_journal_unref(journal);
	struct file before = slurp(journal_path);
	journal = read_path(journal_path);
	back_up(journal);
	orch_journal_unref(journal);
	same_file(journal_path, &before);
	journal = read_path(backup_path);
	ck_assert_uint_eq(state_of(journal, "done"), ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
}
END_TEST

static void back_up_in_child(void *userdata)
{
	FAILS(ORCH_EFORKED, orch_journal_backup(userdata, backup_path, NULL, &error));
	ck_assert(!is_there(backup_path));
}

START_TEST(not_from_a_forked_child)
{
	orch_journal *journal = open_journal();
	ck_assert_int_eq(in_child(back_up_in_child, journal), 0);
	back_up(journal);
	orch_journal_unref(journal);
}
END_TEST

/* --- while others write
 * ----------------------------------------------------------------------------------- */

static struct load {
	orch_journal *journal;
	atomic_uint acknowledged; /* all below are */
	atomic_bool stop;
} load;

static void *write_on(void *userdata)
{
	(void)userdata;
	char key[16];
	for (unsigned i = 0; !atomic_load(&load.stop) && i < 100000; i++) {
		snprintf(key, sizeof(key), "n%u", i);
		if (orch_journal_record(load.journal, "test.record", key, "payload", 7, NULL,
					NULL) < 0)
			break;
		atomic_store(&load.acknowledged, i + 1);
	}
	return NULL;
}

START_TEST(while_others_write)
{
	pthread_t writer;
	static char big[200000];
	load.journal = open_journal();
	for (int i = 0; i < 40; i++) { /* several steps, so that the copy has to follow */
		char key[16];
		snprintf(key, sizeof(key), "big%d", i);
		OK(orch_journal_record(load.journal, "test.record", key, big, sizeof(big), NULL,
				       &error));
	}
	ck_assert_int_eq(pthread_create(&writer, NULL, write_on, NULL), 0);
	unsigned progress = 0;
	for (int i = 0; i < 8; i++) {
		while (atomic_load(&load.acknowledged) < progress + 20)
			usleep(1000);
		unsigned before = atomic_load(&load.acknowledged);
		OK(orch_journal_backup(load.journal, backup_path, NULL, &error));
		progress = atomic_load(&load.acknowledged);
		orch_journal *copy = read_path(backup_path);
		char key[16];
		for (unsigned j = 0; j < before; j++) {
			snprintf(key, sizeof(key), "n%u", j);
			ck_assert_msg(has(copy, key), "%s was acknowledged before the backup", key);
		}
		/* One may be durable and not acknowledged yet. */
		snprintf(key, sizeof(key), "n%u", progress + 1);
		ck_assert(!has(copy, key));
		orch_journal_unref(copy);
		unlink(backup_path);
	}
	atomic_store(&load.stop, true);
	pthread_join(writer, NULL);
	OK(orch_journal_verify(load.journal, NULL, &error));
	orch_journal_unref(load.journal);
}
END_TEST

static int32_t race_result[4];

static void *race_one(void *userdata)
{
	int32_t *result = userdata;
	*result = orch_journal_backup(load.journal, backup_path, NULL, NULL);
	return NULL;
}

START_TEST(two_to_one_path)
{
	load.journal = open_journal();
	fill(load.journal);
	for (int i = 0; i < 20; i++) {
		pthread_t threads[4];
		int won = 0;
		for (int j = 0; j < 4; j++)
			pthread_create(&threads[j], NULL, race_one, &race_result[j]);
		for (int j = 0; j < 4; j++) {
			pthread_join(threads[j], NULL);
			won += race_result[j] == 0;
			ck_assert(race_result[j] == 0 || race_result[j] == ORCH_EEXIST ||
				  race_result[j] == ORCH_ELOCKED);
		}
		ck_assert_int_eq(won, 1);
		orch_journal_unref(read_path(backup_path));
		no_remains();
		unlink(backup_path);
	}
	orch_journal_unref(load.journal);
}
END_TEST

/* --- restore
 * ---------------------------------------------------------------------------------------- */

static void not_applied(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	(void)action;
	++*(int *)userdata;
	orch_probe_reply_answer(reply, ORCH_OUTCOME_NOT_APPLIED, NULL, 0);
}

static const char *key_of(uint32_t state)
{
	static char key[32];
	snprintf(key, sizeof(key), "in %s", orch_action_state_name(state));
	return key;
}

static bool becomes_unknown(uint32_t state)
{
	return state == ORCH_ACTION_INTENT || state == ORCH_ACTION_DISPATCHED ||
	       state == ORCH_ACTION_FAILED;
}

START_TEST(what_is_open_is_unknown)
{
	orch_journal *journal = open_anchored();
	for (uint32_t state = ORCH_ACTION_INTENT; state <= ORCH_ACTION_ABANDONED; state++)
		orch_action_unref(make(journal, key_of(state), ORCH_POLICY_PROBE_FIRST, state));
	back_up(journal);
	/* After it two are done, which the backup does not know. */
	orch_action *action = find(journal, key_of(ORCH_ACTION_DISPATCHED));
	OK(orch_action_observe(action, "done", 4, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);

	orch_restoration *restoration = restore(ORCH_RESTORE_REPLACE, anchor_path);
	ck_assert_uint_eq(orch_restoration_unknown(restoration), 3);
	ck_assert_uint_eq(orch_restoration_lost(restoration), 1);
	ck_assert_uint_eq(orch_restoration_epoch(restoration), 2);
	ck_assert_ptr_nonnull(strstr(orch_restoration_text(restoration), "3 actions"));
	orch_restoration_unref(restoration);

	journal = open_anchored();
	OK(orch_journal_verify(journal, NULL, &error));
	for (uint32_t state = ORCH_ACTION_INTENT; state <= ORCH_ACTION_ABANDONED; state++) {
		uint32_t expected = becomes_unknown(state) ? ORCH_ACTION_UNKNOWN : state;
		action = find(journal, key_of(state));
		ck_assert_uint_eq(orch_action_state(action), expected);
		if (becomes_unknown(state)) {
			const char *reason = orch_action_result(action, NULL);
			ck_assert_ptr_nonnull(strstr(reason, "backup of record"));
			ck_assert_ptr_nonnull(strstr(reason, orch_action_state_name(state)));
		}
		orch_action_unref(action);
		orch_action_unref(
			begin(journal, key_of(state), 0,
			      state == ORCH_ACTION_OBSERVED || state == ORCH_ACTION_CONFIRMED
				      ? ORCH_BEGIN_REPLAY
				      : ORCH_BEGIN_AMBIGUOUS));
	}
	/* Recovery asks for each, and only then it may be begun again. */
	int probes = 0;
	OK(kit_recover(journal, NULL, not_applied, &probes, NULL, &error));
	ck_assert_int_eq(probes, 4);
	orch_action_unref(begin(journal, key_of(ORCH_ACTION_DISPATCHED), 0, ORCH_BEGIN_FRESH));
	orch_journal_unref(journal);
}
END_TEST

static void issue(orch_journal *journal, const char *name)
{
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.kind = "test.action";
	OK(orch_permit_issue(journal, &opts, NULL, &error));
}

static int32_t begin_under(orch_journal *journal, const char *permit, const char *key,
			   orch_error **reterr)
{
	struct orch_action_opts opts;
	orch_action *action = NULL;
	uint32_t outcome = 0;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = key;
	opts.permit = permit;
	int32_t r = orch_journal_begin(journal, &opts, &outcome, &action, reterr);
	ck_assert(r < 0 || outcome == ORCH_BEGIN_FRESH);
	orch_action_unref(action);
	return r;
}

static uint32_t permit_state(orch_journal *journal, const char *name)
{
	orch_permit *permit = NULL;
	OK(orch_permit_find(journal, name, &permit, &error));
	uint32_t state = orch_permit_state(permit);
	orch_permit_unref(permit);
	return state;
}

/* What was used after the backup is not used in it: nothing of it may be used a second time. */
START_TEST(permits_do_not_work_again)
{
	orch_journal *journal = open_anchored();
	issue(journal, "used before");
	issue(journal, "used after");
	issue(journal, "never used");
	issue(journal, "revoked");
	OK(orch_permit_revoke(journal, "revoked", &error));
	OK(begin_under(journal, "used before", "before", &error));
	back_up(journal);
	OK(begin_under(journal, "used after", "after", &error));
	orch_journal_unref(journal);
	orch_restoration *restoration = restore(ORCH_RESTORE_REPLACE, anchor_path);
	ck_assert_uint_eq(orch_restoration_void(restoration), 2);
	orch_restoration_unref(restoration);
	journal = open_anchored();
	OK(orch_journal_verify(journal, NULL, &error));
	ck_assert_uint_eq(permit_state(journal, "used before"), ORCH_PERMIT_USED);
	ck_assert_uint_eq(permit_state(journal, "used after"), ORCH_PERMIT_VOID);
	ck_assert_uint_eq(permit_state(journal, "never used"), ORCH_PERMIT_VOID);
	ck_assert_uint_eq(permit_state(journal, "revoked"), ORCH_PERMIT_REVOKED);
	FAILS(ORCH_EPERMIT, begin_under(journal, "used before", "x", &error));
	FAILS(ORCH_EPERMIT, begin_under(journal, "used after", "after", &error));
	FAILS(ORCH_EPERMIT, begin_under(journal, "never used", "x", &error));
	/* Issued again under the same name it is what it was. */
	issue(journal, "never used");
	FAILS(ORCH_EPERMIT, begin_under(journal, "never used", "x", &error));
	ck_assert(!has(journal, "x"));
	issue(journal, "of this epoch");
	OK(begin_under(journal, "of this epoch", "x", &error));
	orch_journal_unref(journal);
}
END_TEST

START_TEST(generations_and_epochs_rise)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	back_up(journal);
	orch_journal_unref(journal);
	for (uint64_t epoch = 2; epoch <= 5; epoch++) {
		for (int i = 0; i < 3; i++)
			orch_journal_unref(open_anchored());
		orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, anchor_path));
		journal = open_anchored();
		ck_assert_uint_eq(orch_journal_epoch(journal), epoch);
		ck_assert_uint_eq(orch_journal_generation(journal), ((epoch - 1) << 32) + 1);
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
	}
	/* With the anchor alone. */
	unlink(journal_path);
	orch_restoration_unref(restore(0, anchor_path));
	journal = open_anchored();
	ck_assert_uint_eq(orch_journal_epoch(journal), 6);
	ck_assert_uint_eq(orch_journal_generation(journal), (5ull << 32) + 1);
	orch_journal_unref(journal);
	/* With the journal alone. */
	unlink(anchor_path);
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, NULL));
	journal = open_journal();
	ck_assert_uint_eq(orch_journal_epoch(journal), 7);
	ck_assert_uint_eq(orch_journal_generation(journal), (6ull << 32) + 1);
	unlink(backup_path);
	back_up(journal);
	orch_journal_unref(journal);
	/* With the backup alone, which is of epoch 7. */
	unlink(journal_path);
	orch_restoration *restoration = restore(0, NULL);
	ck_assert_uint_eq(orch_restoration_epoch(restoration), 8);
	ck_assert_uint_eq(orch_restoration_lost(restoration), 0);
	ck_assert_str_eq(orch_restoration_replaced(restoration), "");
	orch_restoration_unref(restoration);
	journal = open_journal();
	ck_assert_uint_eq(orch_journal_generation(journal), (7ull << 32) + 1);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

static uint64_t lost(uint32_t flags, const char *anchor)
{
	orch_restoration *restoration = restore(flags, anchor);
	uint64_t records = orch_restoration_lost(restoration);
	snprintf(replaced_path, sizeof(replaced_path), "%s",
		 orch_restoration_replaced(restoration));
	orch_restoration_unref(restoration);
	return records;
}

START_TEST(what_is_lost_is_counted)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	back_up(journal);
	orch_journal_unref(journal);
	ck_assert_uint_eq(lost(ORCH_RESTORE_REPLACE, NULL), 0);
	unlink(journal_path);
	ck_assert_int_eq(rename(replaced_path, journal_path), 0);
	journal = open_anchored();
	for (int i = 0; i < 10; i++)
		record(journal, (char[]){(char)('a' + i), '\0'});
	orch_journal_unref(journal);
	struct file saved = slurp(journal_path), saved_anchor = slurp(anchor_path);
	/* 10 records, and that of the generation. */
	ck_assert_uint_eq(lost(ORCH_RESTORE_REPLACE, NULL), 11);
	unlink(journal_path);
	ck_assert_uint_eq(lost(0, anchor_path), 11);
	unlink(journal_path);
	spill(anchor_path, &saved_anchor);
	unlink(anchor_path);
	ck_assert_uint_eq(lost(0, NULL), 0);
	/* Of two branches only what the backup does not have: its generation, epoch, UNKNOWN, and
	 * one more. */
	journal = open_journal();
	record(journal, "branch");
	uint64_t last = orch_journal_sequence(journal);
	orch_journal_unref(journal);
	orch_journal *copy = read_path(backup_path);
	uint64_t common = orch_journal_sequence(copy);
	orch_journal_unref(copy);
	ck_assert_uint_eq(lost(ORCH_RESTORE_REPLACE, NULL), last - common);
	spill(journal_path, &saved);
	orch_journal_unref(open_journal());
}
END_TEST

START_TEST(the_replaced_one_is_kept)
{
	orch_journal *journal = open_journal();
	fill(journal);
	back_up(journal);
	record(journal, "later");
	uint64_t sequence = orch_journal_sequence(journal);
	orch_journal_unref(journal);
	FAILS(ORCH_EEXIST, restore_from(backup_path, 0, NULL, NULL, &error));
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, NULL));
	char expected[200];
	snprintf(expected, sizeof(expected), "%s.replaced-1-%u", journal_path, (unsigned)sequence);
	journal = read_path(expected);
	ck_assert(has(journal, "later"));
	orch_journal_unref(journal);
	journal = read_path(journal_path);
	ck_assert(!has(journal, "later"));
	orch_journal_unref(journal);
	/* A second one of that name gets a number. */
	struct file bytes = slurp(expected);
	spill(journal_path, &bytes);
	ck_assert_uint_eq(lost(ORCH_RESTORE_REPLACE, NULL), 1);
	ck_assert_str_eq(replaced_path, beside(expected, "-2"));
	same_file(expected, &bytes);
}
END_TEST

/* A coordinator was killed: what it acknowledged is in the log. */
START_TEST(the_replaced_ones_log_is_kept)
{
	orch_journal *journal = open_journal();
	back_up(journal);
	orch_journal_unref(journal);
	ck_assert_int_eq(WTERMSIG(in_child(fill_and_die, NULL)), SIGKILL);
	ck_assert(is_there(wal_path));
	ck_assert_uint_gt(lost(ORCH_RESTORE_REPLACE, NULL), 5);
	ck_assert(!is_there(wal_path));
	journal = read_path(replaced_path);
	ck_assert_uint_eq(state_of(journal, "done"), ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
	orch_journal_unref(open_journal());
}
END_TEST

START_TEST(a_damaged_one_is_moved_with_its_log)
{
	orch_journal *journal = open_anchored();
	back_up(journal);
	orch_journal_unref(journal);
	ck_assert_int_eq(WTERMSIG(in_child(fill_and_die, NULL)), SIGKILL);
	struct file database = slurp(journal_path), wal = slurp(wal_path);
	memset(database.bytes, 'x', 100);
	spill(journal_path, &database);
	FAILS(ORCH_ECORRUPT, kit_open(&journal, &error));
	FAILS(ORCH_EEXIST, restore_from(backup_path, 0, NULL, NULL, &error));
	same_file(wal_path, &wal);
	lost(ORCH_RESTORE_REPLACE, anchor_path);
	ck_assert_str_eq(replaced_path, beside(journal_path, ".replaced-0-0"));
	same_file(replaced_path, &database);
	same_file(beside(replaced_path, "-wal"), &wal);
	ck_assert(!is_there(wal_path));
	journal = open_anchored();
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
	/* A log without its database is in the way, too. */
	unlink(journal_path);
	spill(wal_path, &wal);
	FAILS(ORCH_EEXIST, restore_from(backup_path, 0, anchor_path, NULL, &error));
	lost(ORCH_RESTORE_REPLACE, anchor_path);
	same_file(beside(journal_path, ".replaced-0-0-2-wal"), &wal);
	orch_journal_unref(open_anchored());
}
END_TEST

START_TEST(not_while_a_coordinator_lives)
{
	orch_journal *journal = open_journal();
	fill(journal);
	back_up(journal);
	FAILS(ORCH_ELOCKED, restore_from(backup_path, ORCH_RESTORE_REPLACE, NULL, NULL, &error));
	record(journal, "goes on");
	orch_journal_unref(journal);
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, NULL));
}
END_TEST

/* Refused, and neither the journal nor its anchor nor the backup is another one afterwards. */
static void refused(int32_t code, const char *backup)
{
	struct file journal = slurp(journal_path), anchor = slurp(anchor_path), copy = {0};
	struct stat status;
	bool is_file = stat(backup, &status) == 0 && S_ISREG(status.st_mode);
	if (is_file)
		copy = slurp(backup);
	orch_restoration *restoration = (orch_restoration *)&code;
	FAILS(code, restore_from(backup, ORCH_RESTORE_REPLACE, anchor_path, &restoration, &error));
	ck_assert_ptr_eq(restoration, &code);
	same_file(journal_path, &journal);
	same_file(anchor_path, &anchor);
	if (is_file)
		same_file(backup, &copy);
	ck_assert(!is_there(beside(journal_path, ".new")));
	ck_assert(!is_there(beside(journal_path, ".new-wal")));
	ck_assert(!is_there(beside(journal_path, ".restored")));
	ck_assert(!is_there(wal_path));
}

START_TEST(what_is_no_backup)
{
	orch_journal *journal = open_anchored();
	char path[200];
	fill(journal);
	back_up(journal);
	orch_journal_unref(journal);
	struct file sound = slurp(backup_path);
	snprintf(path, sizeof(path), "%s/x", anchor_folder);
	refused(ORCH_ENOENT, path);
	refused(ORCH_EINVAL, journal_path);
	refused(ORCH_ECORRUPT, anchor_folder);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	refused(ORCH_ECORRUPT, path);
	unlink(path);
	/* A plain copy of the journal: without its log it may be any old state. */
	struct file copied = slurp(journal_path);
	spill(path, &copied);
	refused(ORCH_ECORRUPT, path);
	/* Whole pages and parts; zeros at the end of the last one are read as zeros when they are
	 * missing. */
	for (size_t length = 0; length < sound.length - 4096; length += 4096 - 7) {
		struct file cut = {sound.bytes, length, true};
		spill(path, &cut);
		refused(ORCH_ECORRUPT, path);
	}
	/* Each page has bytes that count. */
	unsigned noticed = 0, tried = 0;
	for (size_t at = 0; at < sound.length; at += 509, tried++) {
		sound.bytes[at] ^= 0x55;
		spill(path, &sound);
		sound.bytes[at] ^= 0x55;
		int32_t r = restore_from(path, ORCH_RESTORE_REPLACE, NULL, NULL, NULL);
		ck_assert(r == 0 || r == ORCH_ECORRUPT || r == ORCH_ESCHEMA);
		noticed += r < 0;
		if (r == 0) {
			journal = open_journal();
			OK(orch_journal_verify(journal, NULL, &error));
			ck_assert_uint_eq(state_of(journal, "done"), ORCH_ACTION_CONFIRMED);
			orch_journal_unref(journal);
		}
	}
	ck_assert_uint_gt(noticed, tried / 30);
	/* A backup may have other names: a folder of links to the latest is usual. */
	spill(journal_path, &copied);
	unlink(path);
	ck_assert_int_eq(link(backup_path, path), 0);
	OK(restore_from(path, ORCH_RESTORE_REPLACE, anchor_path, NULL, &error));
}
END_TEST

START_TEST(options)
{
	struct {
		struct orch_restore_opts known;
		uint64_t newer;
	} opts;
	orch_journal *journal = open_journal();
	back_up(journal);
	orch_journal_unref(journal);
	unlink(journal_path);
	FAILS(ORCH_EINVAL, orch_journal_restore(NULL, NULL, &error));
	memset(&opts, 0, sizeof(opts));
	orch_restore_opts_init(&opts.known, sizeof(opts));
	opts.known.path = journal_path;
	FAILS(ORCH_EINVAL, orch_journal_restore(&opts.known, NULL, &error));
	opts.known.backup_path = backup_path;
	opts.known.path = NULL;
	FAILS(ORCH_EINVAL, orch_journal_restore(&opts.known, NULL, &error));
	opts.known.path = "/proc/orch/none/j";
	FAILS(ORCH_ENOENT, orch_journal_restore(&opts.known, NULL, &error));
	opts.known.path = folder;
	opts.known.flags = ORCH_RESTORE_REPLACE;
	FAILS(ORCH_EINVAL, orch_journal_restore(&opts.known, NULL, &error));
	opts.known.path = journal_path;
	opts.known.flags = 2;
	FAILS(ORCH_EINVAL, orch_journal_restore(&opts.known, NULL, &error));
	opts.known.flags = 0;
	opts.known.anchor_path = beside(folder, "/anchor");
	FAILS(ORCH_EINVAL, orch_journal_restore(&opts.known, NULL, &error));
	opts.known.anchor_path = anchor_path;
	opts.newer = 1;
	FAILS(ORCH_E2BIG, orch_journal_restore(&opts.known, NULL, &error));
	ck_assert(!is_there(journal_path));
	opts.newer = 0;
	OK(orch_journal_restore(&opts.known, NULL, &error));
	orch_journal_unref(open_anchored());
	ck_assert_ptr_null(orch_restoration_unref(NULL));
	ck_assert_str_eq(orch_restoration_text(NULL), "");
	ck_assert_str_eq(orch_restoration_replaced(NULL), "");
	ck_assert_uint_eq(orch_restoration_lost(NULL), 0);
}
END_TEST

/* --- the anchor
 * ------------------------------------------------------------------------------------- */

START_TEST(anchors_of_other_epochs)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	struct file earlier_anchor = slurp(anchor_path);
	back_up(journal);
	record(journal, "later");
	orch_journal_unref(journal);
	struct file old = slurp(journal_path), old_anchor = slurp(anchor_path);
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, anchor_path));
	struct file made = slurp(journal_path), made_anchor = slurp(anchor_path);

	/* The journal of before, put back. */
	spill(journal_path, &old);
	FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	FAILS(ORCH_ECORRUPT,
	      kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, anchor_path, NULL, NULL, &error));
	same_file(journal_path, &old);
	same_file(anchor_path, &made_anchor);

	/* The anchor of before: whoever restored was killed before it wrote it. */
	spill(journal_path, &made);
	spill(anchor_path, &old_anchor);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, anchor_path, NULL, NULL, &error));
	orch_journal_unref(journal);
	same_file(anchor_path, &old_anchor);
	orch_journal_unref(open_anchored());
	ck_assert_int_ne(memcmp(slurp(anchor_path).bytes, old_anchor.bytes, old_anchor.length), 0);
	spill(journal_path, &old);
	FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));

	/* Any other one of that epoch is not what was superseded. */
	spill(journal_path, &made);
	spill(anchor_path, &earlier_anchor);
	FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	same_file(journal_path, &made);

	/* Restored without the anchor: the anchor knows what the restoration did not. */
	spill(journal_path, &old);
	spill(anchor_path, &old_anchor);
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, NULL));
	same_file(anchor_path, &old_anchor);
	FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, anchor_path));
	orch_journal_unref(open_anchored());
}
END_TEST

START_TEST(an_older_copy_of_the_new_epoch_is_noticed)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	back_up(journal);
	orch_journal_unref(journal);
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, anchor_path));
	struct file made = slurp(journal_path);
	journal = open_anchored();
	record(journal, "new");
	orch_journal_unref(journal);
	struct file newest = slurp(journal_path);
	spill(journal_path, &made);
	FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	spill(journal_path, &newest);
	orch_journal_unref(open_anchored());
}
END_TEST

START_TEST(an_anchor_of_another_journal)
{
	char other[200];
	orch_journal *journal = NULL;
	snprintf(other, sizeof(other), "%s/other", folder);
	OK(open_path(other, 0, NULL, &journal, &error));
	record(journal, "a");
	back_up(journal);
	orch_journal_unref(journal);
	orch_journal_unref(open_anchored());
	refused(ORCH_ECORRUPT, backup_path);
	/* A damaged one says nothing that could be gone by. */
	struct file anchor = slurp(anchor_path), damaged = {(unsigned char *)"anchor", 6, true};
	spill(anchor_path, &damaged);
	refused(ORCH_ECORRUPT, backup_path);
	unlink(anchor_path);
	OK(restore_from(backup_path, ORCH_RESTORE_REPLACE, anchor_path, NULL, &error));
	orch_journal_unref(open_anchored());
	spill(anchor_path, &anchor);
}
END_TEST

/* --- interrupted
 * -------------------------------------------------------------------------------------- */

START_TEST(between_two_names)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	back_up(journal);
	record(journal, "later");
	orch_journal_unref(journal);
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, anchor_path));
	const char *waiting = beside(journal_path, ".restored");

	/* The old one was moved away, and the new one is not there yet: nobody starts an empty
	 * journal. */
	unlink(anchor_path);
	ck_assert_int_eq(rename(journal_path, waiting), 0);
	orch_error *told = NULL;
	ck_assert_int_eq(kit_open(&journal, &told), ORCH_ECORRUPT);
	ck_assert_ptr_nonnull(strstr(orch_error_message(told), "again"));
	orch_error_free(told);
	ck_assert(!is_there(journal_path));
	orch_restoration *restoration = restore(0, NULL);
	ck_assert_uint_eq(orch_restoration_epoch(restoration), 3);
	orch_restoration_unref(restoration);
	ck_assert(!is_there(waiting));

	/* They have changed names, and the old one still has the wrong one. */
	journal = open_journal();
	record(journal, "of epoch 3");
	orch_journal_unref(journal);
	lost(ORCH_RESTORE_REPLACE, NULL);
	ck_assert_int_eq(rename(replaced_path, waiting), 0);
	orch_journal_unref(open_journal());
	restoration = restore(ORCH_RESTORE_REPLACE, NULL);
	ck_assert_uint_eq(orch_restoration_epoch(restoration), 5);
	orch_restoration_unref(restoration);
	ck_assert(!is_there(waiting));
	journal = read_path(replaced_path);
	ck_assert(has(journal, "of epoch 3"));
	orch_journal_unref(journal);
}
END_TEST

/* --- verify
 * -------------------------------------------------------------------------------------------- */

START_TEST(each_changed_column_is_noticed)
{
	static const char *const changes[] = {
		"UPDATE journal SET epoch = 1",
		"UPDATE journal SET epoch = 3",
		"UPDATE epoch SET epoch = 3",
		"UPDATE epoch SET sequence = sequence - 1",
		"UPDATE epoch SET generation = generation + 1",
		"UPDATE epoch SET at_ms = at_ms + 1",
		"UPDATE epoch SET backup_sequence = backup_sequence + 1",
		"UPDATE epoch SET anchor_epoch = 0",
		"UPDATE epoch SET anchor_sequence = anchor_sequence - 1",
		"UPDATE epoch SET anchor_hash = zeroblob(32)",
		"UPDATE epoch SET anchor_hash = NULL",
		"DELETE FROM epoch",
		"INSERT INTO epoch SELECT 1, sequence, generation, at_ms, backup_sequence, "
		"anchor_epoch,"
		" anchor_sequence, anchor_hash FROM epoch",
	};
	orch_journal *journal = open_anchored();
	fill(journal);
	back_up(journal);
	orch_journal_unref(journal);
	orch_restoration_unref(restore(ORCH_RESTORE_REPLACE, anchor_path));
	struct file sound = slurp(journal_path);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		spill(journal_path, &sound);
		unlink(wal_path);
		journal = read_path(journal_path); /* the control */
		orch_journal_unref(journal);
		sql(changes[i]);
		int32_t r = open_path(journal_path, ORCH_JOURNAL_READ_ONLY, NULL, &journal, NULL);
		if (r == 0) {
			r = orch_journal_verify(journal, NULL, NULL);
			orch_journal_unref(journal);
		}
		ck_assert_msg(r == ORCH_ECORRUPT, "%s: %s", changes[i], orch_code_name(r));
	}
}
END_TEST

/* --- what stands under a name
 * ----------------------------------------------------------------------------- */

START_TEST(a_fifo_is_answered)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	orch_journal_unref(journal);
	alarm(20);
	ck_assert_int_eq(mkfifo(wal_path, 0600), 0);
	FAILS(ORCH_ECORRUPT,
	      kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	unlink(wal_path);
	unlink(anchor_path);
	ck_assert_int_eq(mkfifo(anchor_path, 0600), 0);
	FAILS(ORCH_ECORRUPT,
	      kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, anchor_path, NULL, NULL, &error));
	FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	unlink(anchor_path);
	ck_assert_int_eq(mkfifo(beside(anchor_path, ".new"), 0600), 0);
	orch_journal_unref(open_anchored());
	alarm(0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backup");
	TCase *tests = tcase_create("backup");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, it_is_the_journal_at_one_moment);
	tcase_add_test(tests, it_is_no_journal);
	tcase_add_test(tests, where_it_cannot_be_written);
	tcase_add_test(tests, to_another_file_system);
	tcase_add_test(tests, of_a_journal_that_is_read);
	tcase_add_test(tests, not_from_a_forked_child);
	tcase_add_test(tests, while_others_write);
	tcase_add_test(tests, two_to_one_path);
	tcase_add_test(tests, what_is_open_is_unknown);
	tcase_add_test(tests, permits_do_not_work_again);
	tcase_add_test(tests, generations_and_epochs_rise);
	tcase_add_test(tests, what_is_lost_is_counted);
	tcase_add_test(tests, the_replaced_one_is_kept);
	tcase_add_test(tests, the_replaced_ones_log_is_kept);
	tcase_add_test(tests, a_damaged_one_is_moved_with_its_log);
	tcase_add_test(tests, not_while_a_coordinator_lives);
	tcase_add_test(tests, what_is_no_backup);
	tcase_add_test(tests, options);
	tcase_add_test(tests, anchors_of_other_epochs);
	tcase_add_test(tests, an_older_copy_of_the_new_epoch_is_noticed);
	tcase_add_test(tests, an_anchor_of_another_journal);
	tcase_add_test(tests, between_two_names);
	tcase_add_test(tests, each_changed_column_is_noticed);
	tcase_add_test(tests, a_fifo_is_answered);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
