/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What verify and the anchor notice: flipped bytes, changed rows, older copies, damaged logs and
 * anchors.
 */
#include <stdbool.h>

#include <orch/permit.h>

#include "journal-kit.h"

static int32_t describe(void *userdata, orch_action *action)
{
	struct file *text = userdata;
	size_t request_length = 0, result_length = 0;
	const void *request = orch_action_request(action, &request_length);
	const void *result = orch_action_result(action, &result_length);
	FILE *stream = fmemopen(text->bytes + text->length, 65536 - text->length, "w");
	fprintf(stream, "%s %s %u %u %u %llu %lld ", orch_action_kind(action),
		orch_action_key(action), orch_action_state(action), orch_action_policy(action),
		orch_action_attempt(action), (unsigned long long)orch_action_generation(action),
		(long long)orch_action_updated_at_ms(action));
	if (request)
		fwrite(request, 1, request_length, stream);
	if (result)
		fwrite(result, 1, result_length, stream);
	text->length += (size_t)ftell(stream);
	fclose(stream);
	return 0;
}

/* 0 if the journal opens, verifies and then tells `text`; otherwise what refused it. */
static int32_t read_all(struct file *text)
{
	orch_journal *journal = NULL;
	text->length = 0;
	int32_t r = kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, NULL);
	if (r == 0)
		r = orch_journal_verify(journal, NULL, NULL);
	if (r == 0)
		r = orch_journal_each(journal, NULL, describe, text, NULL);
	orch_journal_unref(journal);
	return r;
}

/* Whatever byte is flipped: it is noticed, or it was one that says nothing (free space). */
START_TEST(each_flipped_byte)
{
	orch_journal *journal = open_journal();
	for (uint32_t state = 1; state <= 8; state++) {
		char key[8] = {(char)('a' + state)};
		orch_action_unref(make(journal, key, 0, state));
	}
	orch_journal_unref(journal);
	static unsigned char before_bytes[65536], after_bytes[65536];
	struct file good = slurp(journal_path);
	struct file before = {.bytes = before_bytes}, after = {.bytes = after_bytes};
	ck_assert_int_eq(read_all(&before), 0);
	ck_assert_uint_gt(before.length, 300);
	unsigned noticed = 0, silent = 0;
	for (size_t i = 0; i < good.length; i += 11) {
		good.bytes[i] ^= 0x10;
		spill(journal_path, &good);
		good.bytes[i] ^= 0x10;
		int32_t r = read_all(&after);
		noticed += r < 0;
		silent += r == 0;
		if (r == 0)
			ck_assert_msg(after.length == before.length &&
					      memcmp(after.bytes, before.bytes, before.length) == 0,
				      "byte %zu changed what is told and was not noticed", i);
	}
	ck_assert_uint_gt(noticed, 300);
	ck_assert_uint_gt(silent, 0);
}
END_TEST

START_TEST(each_changed_row)
{
	static const char *const changes[] = {
		"UPDATE action SET state = 4 WHERE key = 'open'",
		"UPDATE action SET attempt = 9 WHERE key = 'done'",
		"UPDATE action SET policy = 1 WHERE key = 'open'",
		/* Or recovery would not look at it any more. */
		"UPDATE action SET open = 0 WHERE key = 'open'",
		"UPDATE action SET open = 1 WHERE key = 'done'",
		"UPDATE action SET format = 3 WHERE key = 'open'",
		"UPDATE action SET sequence = 1 WHERE key = 'done'",
		"UPDATE action SET result_digest = zeroblob(32) WHERE key = 'done'",
		"UPDATE body SET bytes = x'726573756C75' WHERE id = 3",
		"DELETE FROM body WHERE id = 3; INSERT INTO body VALUES (99, x'00')",
		"INSERT INTO body VALUES (5, x'00')",
		"DELETE FROM action WHERE key = 'done'",
		"INSERT INTO action SELECT 77, sequence, kind, 'new', policy, fingerprint, state, "
		"attempt, generation, created_at_ms, updated_at_ms, request_length, "
		"request_digest, "
		"result_length, result_digest, format, stored, permit, decision, open FROM action "
		"WHERE key = 'done'",
		"DELETE FROM event WHERE sequence = 3",
		"DELETE FROM event WHERE sequence = 7",
		"UPDATE event SET state = 5 WHERE sequence = 4",
		"UPDATE event SET digest = zeroblob(32) WHERE sequence = 2",
		"UPDATE event SET hash = zeroblob(32) WHERE sequence = 7",
		"UPDATE event SET sequence = 9 WHERE sequence = 7",
		"UPDATE event SET noun = 1 WHERE sequence = 4",
		"UPDATE event SET format = 1 WHERE sequence = 4",
		"UPDATE event SET format = 3 WHERE sequence = 4",
		"UPDATE event SET format = 1 WHERE sequence = 1",
		"UPDATE instance SET pid = pid + 1",
		"INSERT INTO instance SELECT generation + 5, 'x', 'x', 'x', 1, 1 FROM instance",
		"DELETE FROM instance",
		"UPDATE journal SET id = zeroblob(16)",
		"DELETE FROM journal",
	};
	orch_journal *journal = open_journal();
	fill(journal);
	orch_journal_unref(journal);
	static unsigned char bytes[65536];
	struct file good = slurp(journal_path), text = {.bytes = bytes};
	ck_assert_int_eq(read_all(&text), 0);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		sql(changes[i]);
		ck_assert_msg(read_all(&text) == ORCH_ECORRUPT, "not noticed: %s", changes[i]);
		unlink(wal_path);
		spill(journal_path, &good);
	}
	ck_assert_int_eq(read_all(&text), 0);
	/* A last record that does not follow is refused at open, also by a writer. */
	sql("UPDATE event SET hash = zeroblob(32) WHERE sequence = 7");
	FAILS(ORCH_ECORRUPT, kit_open(&journal, &error));
	unlink(wal_path);
	spill(journal_path, &good);
	/* The first record that does not fit is named. */
	sql("UPDATE action SET state = 4 WHERE key = 'open'");
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	orch_error *named = NULL;
	ck_assert_int_eq(orch_journal_verify(journal, NULL, &named), ORCH_ECORRUPT);
	ck_assert_ptr_nonnull(strstr(orch_error_message(named), "record 7"));
	orch_error_free(named);
	orch_journal_unref(journal);
}
END_TEST

/* --- every column of what is no action
 * --------------------------------------------------------------- */

/* Changes that a row might not show: one for each column, of the type that it has. */
static int list_changes(const char *table, char changes[][200], int most)
{
	static const char query[] =
		"SELECT format('UPDATE %s SET %s = %s WHERE id = %d', ?1, c.name, CASE c.type"
		" WHEN 'INTEGER' THEN c.name || ' + 7' WHEN 'TEXT' THEN c.name || '||' || c.name"
		" ELSE 'zeroblob(1 + ifnull(length(' || c.name || '), 0))' END, r.value)"
		" FROM pragma_table_info(?1) AS c, json_each('[1, 2]') AS r UNION ALL"
		" SELECT format('UPDATE %s SET %s = zeroblob(0) WHERE id = 2', ?1, name)"
		" FROM pragma_table_info(?1) WHERE type = 'BLOB' UNION ALL"
		" SELECT format('DELETE FROM %s WHERE id = %d', ?1, value) FROM json_each('[1, "
		"2]')";
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	int count = 0;
	ck_assert_int_eq(sqlite3_open_v2(journal_path, &db, SQLITE_OPEN_READWRITE, NULL),
			 SQLITE_OK);
	sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	ck_assert_int_eq(sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL),
			 SQLITE_OK);
	ck_assert_int_eq(sqlite3_prepare_v2(db, query, -1, &statement, NULL), SQLITE_OK);
	sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
	while (sqlite3_step(statement) == SQLITE_ROW) {
		ck_assert_int_lt(count, most);
		snprintf(changes[count++], 200, "%s",
			 (const char *)sqlite3_column_text(statement, 0));
	}
	sqlite3_finalize(statement);
	sqlite3_close(db);
	return count;
}

/* A permit and a decision with all there can be, and one of each with as little. */
static void fill_beside(orch_journal *journal)
{
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = "full";
	opts.kind = "test.action";
	opts.fingerprint = "print";
	opts.fingerprint_length = 5;
	opts.expires_at_ms = 4000000000000;
	opts.note = "note";
	opts.note_length = 4;
	OK(orch_permit_issue(journal, &opts, NULL, &error));
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = "bare";
	opts.kind = "test.action";
	OK(orch_permit_issue(journal, &opts, NULL, &error));
	struct orch_action_opts asked;
	orch_action_opts_init(&asked, sizeof(asked));
	asked.kind = "test.action";
	asked.key = "permitted";
	asked.fingerprint = "print";
	asked.fingerprint_length = 5;
	asked.permit = "full";
	uint32_t outcome;
	orch_action *action = NULL;
	OK(orch_journal_begin(journal, &asked, &outcome, &action, &error));
	for (int i = 0; i < 2; i++) {
		OK(orch_action_hand_over(action, NULL, 0, &error));
		OK(orch_action_decide(action, ORCH_DECISION_NOT_APPLIED, "ann", i ? NULL : "note",
				      i ? 0 : 4, &error));
	}
	orch_action_unref(action);
}

START_TEST(each_changed_column_beside_the_actions)
{
	static const char *const tables[] = {"permit", "decision"};
	static const int least[] = {28, 19}; /* two for each column, and more */
	static char changes[64][200];
	static unsigned char bytes[65536];
	struct file text = {.bytes = bytes};
	orch_journal *journal = open_journal();
	fill_beside(journal);
	orch_journal_unref(journal);
	struct file good = slurp(journal_path);
	ck_assert_int_eq(read_all(&text), 0);
	for (int i = 0; i < 2; i++) {
		int count = list_changes(tables[i], changes, 64);
		ck_assert_int_ge(count, least[i]);
		for (int j = 0; j < count; j++) {
			sql(changes[j]);
			ck_assert_msg(read_all(&text) == ORCH_ECORRUPT, "not noticed: %s",
				      changes[j]);
			unlink(wal_path);
			spill(journal_path, &good);
		}
	}
	static const char *const others[] = {
		"UPDATE action SET permit = 0 WHERE key = 'permitted'",
		"UPDATE action SET permit = 2 WHERE key = 'permitted'",
		"UPDATE action SET decision = 0 WHERE key = 'permitted'",
		"UPDATE action SET decision = 1 WHERE key = 'permitted'",
		"UPDATE action SET decision = 3 WHERE key = 'permitted'",
		"INSERT INTO permit SELECT 3, sequence, 'third', kind, fingerprint, state, epoch, "
		"expires_at_ms, action, note, created_at_ms, updated_at_ms FROM permit WHERE id = "
		"2",
		"INSERT INTO decision SELECT 3, sequence, action, attempt, decision, decided_by, "
		"note, at_ms FROM decision WHERE id = 2",
		/* Two permits exchanged, all but their ids. */
		"UPDATE permit SET id = 9 WHERE id = 1; UPDATE permit SET id = 1 WHERE id = 2; "
		"UPDATE permit SET id = 2 WHERE id = 9",
	};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		sql(others[i]);
		ck_assert_msg(read_all(&text) == ORCH_ECORRUPT, "not noticed: %s", others[i]);
		unlink(wal_path);
		spill(journal_path, &good);
	}
	ck_assert_int_eq(read_all(&text), 0);
}
END_TEST

static int32_t reopen_anchored(uint32_t flags)
{
	orch_journal *journal = NULL;
	int32_t r = kit_open_with(&journal, flags, anchor_path, NULL, NULL, NULL);
	orch_journal_unref(journal);
	return r;
}

START_TEST(an_older_copy_is_noticed)
{
	/* The copy is taken from a dead coordinator's files, log included. */
	ck_assert_int_eq(WTERMSIG(in_child(fill_and_die, folder)), SIGKILL);
	struct file database = slurp(journal_path), wal = slurp(wal_path),
		    early = slurp(anchor_path);
	for (int records = 1; records <= 300; records += 299) {
		orch_journal *journal = open_anchored();
		for (int i = 0; i < records; i++) {
			char key[16];
			snprintf(key, sizeof(key), "%d/%d", records, i);
			OK(orch_journal_record(journal, "k", key, NULL, 0, NULL, &error));
		}
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
		struct file newer = slurp(journal_path), anchor = slurp(anchor_path);
		spill(journal_path, &database);
		spill(wal_path, &wal);
		for (int i = 0; i < 2; i++) {
			ck_assert_int_eq(reopen_anchored(i ? ORCH_JOURNAL_READ_ONLY : 0),
					 ORCH_ECORRUPT);
			same_file(journal_path, &database);
			same_file(wal_path, &wal);
			same_file(anchor_path, &anchor);
		}
		/* Written to until it is as long again: it is another history. */
		journal = open_journal();
		for (int i = 0; i < records + 5; i++) {
			char key[16];
			snprintf(key, sizeof(key), "other/%d", i);
			OK(orch_journal_record(journal, "k", key, NULL, 0, NULL, &error));
		}
		orch_journal_unref(journal);
		ck_assert_int_eq(reopen_anchored(0), ORCH_ECORRUPT);
		/* Gone altogether. */
		unlink(journal_path);
		ck_assert_int_eq(reopen_anchored(0), ORCH_ECORRUPT);
		ck_assert_int_ne(access(journal_path, F_OK), 0);
		spill(journal_path, &newer);
		ck_assert_int_eq(reopen_anchored(0), 0);
	}
	/* A file ahead of its anchor is what a kill between commit and anchor leaves. */
	spill(anchor_path, &early);
	ck_assert_int_eq(reopen_anchored(0), 0);
	unlink(anchor_path);
	ck_assert_int_eq(reopen_anchored(0), 0);
	ck_assert_int_eq(reopen_anchored(ORCH_JOURNAL_READ_ONLY), 0);
}
END_TEST

/* SQLite drops a log's tail from the first frame that does not fit, and calls the rest sound. */
START_TEST(a_damaged_log_is_noticed)
{
	ck_assert_int_eq(WTERMSIG(in_child(fill_and_die, folder)), SIGKILL);
	struct file database = slurp(journal_path), wal = slurp(wal_path);
	ck_assert_uint_gt(wal.length, 3000);
	unsigned char *byte = wal.bytes + wal.length - 3000;
	*byte ^= 1;
	spill(wal_path, &wal);
	ck_assert_int_eq(reopen_anchored(ORCH_JOURNAL_READ_ONLY), ORCH_ECORRUPT);
	ck_assert_int_eq(reopen_anchored(0), ORCH_ECORRUPT);
	same_file(journal_path, &database);
	same_file(wal_path, &wal);
	*byte ^= 1;
	spill(wal_path, &wal);
	ck_assert_int_eq(reopen_anchored(0), 0);
	/* The log left behind: what was acknowledged is not in the file. */
	spill(journal_path, &database);
	unlink(wal_path);
	ck_assert_int_eq(reopen_anchored(0), ORCH_ECORRUPT);
}
END_TEST

START_TEST(damaged_anchors)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	struct file living = slurp(anchor_path);
	orch_journal_unref(journal);
	/* Torn second line: what a power loss may leave. The first still counts. */
	struct file torn = living;
	torn.length -= 10;
	spill(anchor_path, &torn);
	ck_assert_int_eq(reopen_anchored(0), 0);
	spill(anchor_path, &living);
	for (size_t i = 0; i < living.length / 2; i += 3) {
		living.bytes[i] ^= 1;
		spill(anchor_path, &living);
		ck_assert_msg(reopen_anchored(0) == ORCH_ECORRUPT, "byte %zu", i);
		living.bytes[i] ^= 1;
	}
	struct file empty = {.exists = true};
	spill(anchor_path, &empty);
	ck_assert_int_eq(reopen_anchored(0), ORCH_ECORRUPT);
	spill(anchor_path, &living);
	ck_assert_int_eq(reopen_anchored(0), 0);
}
END_TEST

START_TEST(places_for_anchors)
{
	orch_journal *journal = NULL;
	char inside[110];
	snprintf(inside, sizeof(inside), "%s/anchor", folder);
	FAILS(ORCH_EINVAL, kit_open_with(&journal, 0, inside, NULL, NULL, &error));
	char through[110];
	snprintf(through, sizeof(through), "%s/link", anchor_folder);
	ck_assert_int_eq(symlink(folder, through), 0);
	strcat(through, "/anchor");
	FAILS(ORCH_EINVAL, kit_open_with(&journal, 0, through, NULL, NULL, &error));
	FAILS(ORCH_ENOENT, kit_open_with(&journal, 0, "/tmp/no such folder/a", NULL, NULL, &error));
	ck_assert_int_ne(access(journal_path, F_OK), 0);
	orch_journal_unref(open_anchored());
	/* Another journal's anchor. */
	unlink(journal_path);
	orch_journal_unref(open_journal());
	FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-verify");
	TCase *tests = tcase_create("verify");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, each_flipped_byte);
	tcase_add_test(tests, each_changed_row);
	tcase_add_test(tests, each_changed_column_beside_the_actions);
	tcase_add_test(tests, an_older_copy_is_noticed);
	tcase_add_test(tests, a_damaged_log_is_noticed);
	tcase_add_test(tests, damaged_anchors);
	tcase_add_test(tests, places_for_anchors);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
