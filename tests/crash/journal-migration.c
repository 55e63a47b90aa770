/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals of every released schema: what they tell is told, also after a kill in the midst of
 * their migration, and whoever refuses one leaves its bytes alone. The journals are
 * tests/journal/fixtures/NAME.tar.xz, written by the libraries of those releases; `make` beside
 * them says how.
 */
#include <inttypes.h>

#include "journal-strike.h"

/* Adding a release is adding its fixture here. */
static const char *const released[] = {"schema-1"};
static const char *const situations[] = {"cleanly-closed", "killed", "killed-at-once", "empty"};

/* --- the fixtures
 * --------------------------------------------------------------------------------------------- */

static char unpacked[64]; /* all of them, once for each test */

static void setup(void)
{
	char command[600];
	const char *source = getenv("ORCH_SOURCE_ROOT");
	ck_assert_msg(source != NULL, "ORCH_SOURCE_ROOT is not set");
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm"; /* hundreds of runs, none of which loses power */
	kit_setup();
	snprintf(unpacked, sizeof(unpacked), "%s/orch-test-fixtures-XXXXXX", kit_base);
	ck_assert_ptr_nonnull(mkdtemp(unpacked));
	for (size_t i = 0; i < sizeof(released) / sizeof(released[0]); i++) {
		snprintf(command, sizeof(command),
			 "mkdir %s/%s && python3 -m tarfile -e %s/tests/journal/fixtures/%s.tar.xz "
			 "%s/%s",
			 unpacked, released[i], source, released[i], unpacked, released[i]);
		ck_assert_int_eq(system(command), 0);
	}
}

static void teardown(void)
{
	kit_teardown();
	nftw(unpacked, kit_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static struct fixture {
	struct file database, wal, anchor, expected;
} fixture;

static struct file part(const char *release, const char *situation, const char *name)
{
	char path[200];
	snprintf(path, sizeof(path), "%s/%s/%s/%s", unpacked, release, situation, name);
	return slurp(path);
}

static void load(const char *release, const char *situation)
{
	fixture.database = part(release, situation, "j");
	fixture.wal = part(release, situation, "j-wal");
	fixture.anchor = part(release, situation, "a");
	fixture.expected = part(release, situation, "expected");
	ck_assert(fixture.database.exists && fixture.anchor.exists && fixture.expected.exists);
}

static void put(void)
{
	spill(journal_path, &fixture.database);
	spill(wal_path, &fixture.wal);
	spill(anchor_path, &fixture.anchor);
}

static void is_untouched(void)
{
	same_file(journal_path, &fixture.database);
	same_file(wal_path, &fixture.wal);
}

#define EACH_FIXTURE                                                                               \
	for (size_t release = 0; release < sizeof(released) / sizeof(released[0]); release++)      \
		for (size_t situation = 0; situation < sizeof(situations) / sizeof(situations[0]); \
		     situation++)

/* --- what a journal tells
 * ----------------------------------------------------------------------------------- */

static void add_payload(FILE *stream, const void *bytes, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
	fprintf(stream, " %zu:%016" PRIx64, length, hash);
}

static uint32_t outcome_of(orch_journal *journal, orch_action *action)
{
	struct orch_action_opts opts;
	orch_action *begun = NULL;
	uint32_t outcome = 0;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = orch_action_kind(action);
	opts.key = orch_action_key(action);
	opts.policy = orch_action_policy(action);
	opts.request = orch_action_request(action, &opts.request_length);
	if (strcmp(opts.kind, "test.default") != 0) {
		opts.fingerprint = opts.key;
		opts.fingerprint_length = strlen(opts.key);
	}
	OK(orch_journal_begin(journal, &opts, &outcome, &begun, &error));
	orch_action_unref(begun);
	return outcome;
}

static int32_t add_action(void *userdata, orch_action *action)
{
	FILE *stream = userdata;
	size_t length;
	fprintf(stream, "%" PRIu64 " %s %s %u %u %u %" PRIu64 " %" PRId64, orch_action_id(action),
		orch_action_kind(action), orch_action_key(action), orch_action_policy(action),
		orch_action_state(action), orch_action_attempt(action),
		orch_action_generation(action), orch_action_updated_at_ms(action));
	const void *request = orch_action_request(action, &length);
	add_payload(stream, request, length);
	const void *result = orch_action_result(action, &length);
	add_payload(stream, result, length);
	fputc('\n', stream);
	return 0;
}

/* As the fixture expects it, with the outcomes cut off. */
static char *expected_text(void)
{
	char *text = (char *)kit_allocate(fixture.expected.length + 1), *to = text;
	const char *from = (const char *)fixture.expected.bytes,
		   *end = from + fixture.expected.length;
	while (from < end) {
		const char *line = memchr(from, '\n', (size_t)(end - from)), *last = line;
		while (*last != ' ')
			last--;
		memcpy(to, from, (size_t)(last - from));
		to += last - from;
		*to++ = '\n';
		from = line + 1;
	}
	*to = '\0';
	return text;
}

static void tells_the_same(orch_journal *journal)
{
	char *text = NULL;
	size_t length = 0;
	FILE *stream = open_memstream(&text, &length);
	OK(orch_journal_each(journal, NULL, add_action, stream, &error));
	fclose(stream);
	ck_assert_str_eq(text, expected_text());
	free(text);
}

/* Changes it: what may be begun is. */
static void begins_the_same(orch_journal *journal)
{
	const char *from = (const char *)fixture.expected.bytes,
		   *end = from + fixture.expected.length;
	while (from < end) {
		const char *line = memchr(from, '\n', (size_t)(end - from));
		char key[64];
		ck_assert_int_eq(sscanf(from, "%*s %*s %63s", key), 1);
		orch_action *action = find(journal, key);
		ck_assert_msg(outcome_of(journal, action) == (uint32_t)(line[-1] - '0'), "%s", key);
		orch_action_unref(action);
		from = line + 1;
	}
}

static uint32_t stored_schema(void)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	ck_assert_int_eq(sqlite3_open_v2(journal_path, &db, SQLITE_OPEN_READWRITE, NULL),
			 SQLITE_OK);
	sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
	ck_assert_int_eq(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &statement, NULL),
			 SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	uint32_t schema = (uint32_t)sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	sqlite3_close(db);
	return schema;
}

/* --- tests
 * ---------------------------------------------------------------------------------------------------
 */

START_TEST(each_is_brought_up)
{
	EACH_FIXTURE
	{
		load(released[release], situations[situation]);
		put();
		ck_assert_uint_eq(stored_schema(), release + 1);
		put();
		orch_journal *journal = open_anchored();
		uint64_t generation = orch_journal_generation(journal);
		ck_assert_uint_eq(orch_journal_epoch(journal), 1);
		tells_the_same(journal);
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
		ck_assert_uint_eq(stored_schema(), sizeof(released) / sizeof(released[0]) + 1);
		journal = open_anchored();
		ck_assert_uint_eq(orch_journal_generation(journal), generation + 1);
		begins_the_same(journal);
		OK(orch_journal_verify(journal, NULL, &error));
		OK(kit_recover(journal, NULL, NULL, NULL, NULL, &error));
		fill(journal);
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
	}
}
END_TEST

/* Nothing is brought up for a reader, also where the folder is read-only. */
START_TEST(a_reader_leaves_it_alone)
{
	EACH_FIXTURE
	{
		load(released[release], situations[situation]);
		put();
		orch_journal *journal = NULL;
		chmod(folder, 0500);
		OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, anchor_path, NULL, NULL,
				 &error));
		chmod(folder, 0700);
		tells_the_same(journal);
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
		is_untouched();
		same_file(anchor_path, &fixture.anchor);
	}
}
END_TEST

static void open_and_say(void *userdata)
{
	orch_journal *journal = NULL;
	faults.armed = true;
	int32_t r = kit_open_with(&journal, 0, anchor_path, NULL, NULL, NULL);
	faults.armed = false;
	orch_journal_unref(journal);
	*(int32_t *)userdata = r;
}

START_TEST(killed_at_each_write)
{
	unsigned kills = 0, old = 0;
	int32_t unused;
	EACH_FIXTURE
	{
		for (unsigned at = 1;; at++) {
			load(released[release], situations[situation]);
			put();
			faults.fault = KILL;
			faults.error = EIO;
			faults.at = at;
			faults.seen = 0;
			int status = in_child(open_and_say, &unused);
			if (status == 0)
				break;
			ck_assert_int_eq(WTERMSIG(status), SIGKILL);
			kills++;
			struct file database = slurp(journal_path), wal = slurp(wal_path);
			old += stored_schema() == release + 1;
			spill(journal_path, &database);
			spill(wal_path, &wal);
			orch_journal *journal = open_anchored();
			tells_the_same(journal);
			OK(orch_journal_verify(journal, NULL, &error));
			orch_journal_unref(journal);
			unlink(lock_path);
		}
	}
	ck_assert_uint_gt(kills, 40);
	ck_assert_uint_gt(old, 20);
	ck_assert_uint_lt(old, kills);
	fprintf(stderr, "killed %u times, %u of them before it counted\n", kills, old);
}
END_TEST

/* What an open answered whose calls from `at` on fail, and how many there were. */
struct strike {
	int32_t code;
	unsigned seen;
};

static void open_and_count(void *userdata)
{
	struct strike *strike = userdata;
	open_and_say(&strike->code);
	strike->seen = faults.seen;
}

static struct strike strike_at(int fault, unsigned at)
{
	struct strike *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	/* Of allocations just one: none after it would be the same as this one. */
	faults.fault = fault == ENOMEM ? FAIL_ONCE : FAIL_FROM;
	faults.error = fault;
	faults.at = at;
	faults.seen = 0;
	put();
	ck_assert_int_eq(in_child(open_and_count, shared), 0);
	struct strike strike = *shared;
	munmap(shared, sizeof(*shared));
	return strike;
}

/* The open says what failed; the journal is whole in one schema or the other, and opens when the
 * fault is gone. */
static void strike_each(int fault, unsigned points, bool untouched)
{
	unsigned struck = 0, refusals = 0;
	EACH_FIXTURE
	{
		load(released[release], situations[situation]);
		unsigned calls = strike_at(fault, UINT32_MAX).seen;
		unlink(lock_path);
		for (unsigned at = 1; at <= calls; at += 1 + calls / points) {
			struct strike strike = strike_at(fault, at);
			struck++;
			refusals += strike.code < 0;
			if (strike.code < 0 && strike.code != ORCH_EPOISONED && untouched)
				is_untouched();
			orch_journal *journal = open_anchored();
			tells_the_same(journal);
			OK(orch_journal_verify(journal, NULL, &error));
			orch_journal_unref(journal);
			unlink(lock_path);
		}
	}
	ck_assert_uint_gt(refusals, 20);
	fprintf(stderr, "%s at %u calls, %u refusals\n", strerror(fault), struck, refusals);
}

START_TEST(each_write_fails)
{
	strike_each(EIO, 1000, false);
}
END_TEST

START_TEST(each_write_finds_the_disk_full)
{
	strike_each(ENOSPC, 1000, false);
}
END_TEST

START_TEST(each_allocation_fails)
{
	strike_each(ENOMEM, getenv("ORCH_TEST_ALL") ? UINT32_MAX : 60, true);
}
END_TEST

static void open_unprivileged(void *userdata)
{
	int32_t code = *(int32_t *)userdata;
	orch_journal *journal = NULL;
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(folder, 65534, 65534), 0);
		ck_assert_int_eq(chown(anchor_folder, 65534, 65534), 0);
		ck_assert_int_eq(chown(anchor_path, 65534, 65534), 0);
		ck_assert_int_eq(chown(journal_path, 65534, 65534), 0);
		if (fixture.wal.exists)
			ck_assert_int_eq(chown(wal_path, 65534, 65534), 0);
		ck_assert_int_eq(setgid(65534), 0);
		ck_assert_int_eq(setuid(65534), 0);
	}
	FAILS(code, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
}

START_TEST(who_refuses_leaves_it_alone)
{
	EACH_FIXTURE
	{
		load(released[release], situations[situation]);
		put();
		orch_journal *journal = NULL;
		/* An anchor that knows more, or another journal's. */
		struct file none = {0};
		orch_journal *other = NULL;
		struct file database = fixture.database, wal = fixture.wal;
		spill(journal_path, &none);
		spill(wal_path, &none);
		spill(anchor_path, &none);
		other = open_anchored();
		fill(other);
		orch_journal_unref(other);
		unlink(lock_path);
		spill(journal_path, &database);
		spill(wal_path, &wal);
		FAILS(ORCH_ECORRUPT, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
		is_untouched();
		unlink(lock_path);

		/* Another coordinator. */
		put();
		ck_assert_int_eq(
			close(open(lock_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)), 0);
		int fd = open(lock_path, O_RDWR | O_CLOEXEC);
		struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &range), 0);
		FAILS(ORCH_ELOCKED, kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
		FAILS(ORCH_ELOCKED, kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, anchor_path,
						  NULL, NULL, &error));
		close(fd);
		is_untouched();
		unlink(lock_path);

		/* No right to write to the folder, or to the file. */
		int32_t code = ORCH_ESYS;
		put();
		ck_assert_int_eq(chmod(folder, 0500), 0);
		ck_assert_int_eq(in_child(open_unprivileged, &code), 0);
		ck_assert_int_eq(chmod(folder, 0700), 0);
		is_untouched();
		ck_assert_int_eq(chmod(journal_path, 0400), 0);
		ck_assert_int_eq(in_child(open_unprivileged, &code), 0);
		ck_assert_int_eq(chmod(journal_path, 0600), 0);
		is_untouched();
		unlink(lock_path);
		put();
		orch_journal_unref(open_anchored());
	}
}
END_TEST

/* Written by a version that is not known yet. */
START_TEST(a_newer_one_is_refused)
{
	orch_journal *journal = open_anchored();
	fill(journal);
	orch_journal_unref(journal);
	sql("PRAGMA user_version = 9");
	fixture.database = slurp(journal_path);
	fixture.wal = slurp(wal_path);
	FAILS(ORCH_ESCHEMA, kit_open(&journal, &error));
	FAILS(ORCH_ESCHEMA,
	      kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	is_untouched();
	sql("PRAGMA user_version = 2");
	orch_journal_unref(open_anchored());
}
END_TEST

/* Tables, columns with types and defaults, indexes. */
static char *structure(void)
{
	static const char query[] =
		"SELECT 'column', m.name, c.name, c.type, c.\"notnull\", coalesce(c.dflt_value, "
		"''), c.pk"
		" FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'"
		" UNION ALL SELECT 'index', m.name, i.name, i.origin, i.\"unique\", i.partial,"
		"  (SELECT group_concat(x.name) FROM pragma_index_info(i.name) x)"
		" FROM sqlite_schema m, pragma_index_list(m.name) i WHERE m.type = 'table'"
		" UNION ALL SELECT 'strict', t.name, t.strict, t.wr, '', '', '' FROM "
		"pragma_table_list t"
		" ORDER BY 1, 2, 3";
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	char *text = NULL;
	size_t length = 0;
	FILE *stream = open_memstream(&text, &length);
	ck_assert_int_eq(sqlite3_open_v2(journal_path, &db, SQLITE_OPEN_READWRITE, NULL),
			 SQLITE_OK);
	sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
	ck_assert_msg(sqlite3_prepare_v2(db, query, -1, &statement, NULL) == SQLITE_OK, "%s",
		      sqlite3_errmsg(db));
	while (sqlite3_step(statement) == SQLITE_ROW) {
		for (int i = 0; i < 7; i++)
			fprintf(stream, "%s|", (const char *)sqlite3_column_text(statement, i));
		fputc('\n', stream);
	}
	sqlite3_finalize(statement);
	sqlite3_close(db);
	fclose(stream);
	return text;
}

START_TEST(a_new_one_is_the_same)
{
	orch_journal_unref(open_journal());
	char *fresh = structure();
	ck_assert_ptr_nonnull(strstr(fresh, "column|permit|"));
	EACH_FIXTURE
	{
		load(released[release], situations[situation]);
		put();
		char *old = structure();
		ck_assert_str_ne(old, fresh);
		free(old);
		put();
		orch_journal_unref(open_anchored());
		char *brought_up = structure();
		ck_assert_str_eq(brought_up, fresh);
		free(brought_up);
	}
	free(fresh);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-migration");
	TCase *tests = tcase_create("migration");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 240);
	tcase_add_test(tests, each_is_brought_up);
	tcase_add_test(tests, a_reader_leaves_it_alone);
	tcase_add_test(tests, killed_at_each_write);
	tcase_add_test(tests, each_write_fails);
	tcase_add_test(tests, each_write_finds_the_disk_full);
	tcase_add_test(tests, each_allocation_fails);
	tcase_add_test(tests, who_refuses_leaves_it_alone);
	tcase_add_test(tests, a_newer_one_is_refused);
	tcase_add_test(tests, a_new_one_is_the_same);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
