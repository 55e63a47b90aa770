/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking actions up: each combination of what can be asked for against the same question asked of
 * a list in memory, pages, callbacks that change what is walked, memory and pages read with very
 * many actions.
 */
#include <malloc.h>
#include <stdbool.h>

#include "../crash/journal-kit.h"

/* --- a journal of many, and the same as a list
 * ----------------------------------------------------------------- */

#define MANY 1200

static struct known {
	char kind[64], key[256];
	uint32_t state;
	int64_t updated_at_ms;
} known[MANY + 1]; /* by id */

static const char *const kinds[] = {"notify.send", "notify", "ai.call", "ai.", "git-push"};
/* LIKE's and GLOB's signs, bytes above ASCII, a prefix of another. */
static const char *const key_forms[] = {
	"run/T1/%u", "run/T10/%u",  "run_T1/%u",   "%%/%u",
	"*/%u",	     "\xc3\xa9/%u", "\xc3\xaa/%u", "\xf4\x8f\xbf\xbf/%u"};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))
#define KEY_FORMS (sizeof(key_forms) / sizeof(key_forms[0]))

static uint32_t dice(uint32_t below)
{
	static uint64_t seed = 12345;
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static int32_t learn(void *userdata, orch_action *action)
{
	uint64_t id = orch_action_id(action);
	ck_assert_uint_eq(id, ++*(uint64_t *)userdata);
	strcpy(known[id].kind, orch_action_kind(action));
	strcpy(known[id].key, orch_action_key(action));
	known[id].state = orch_action_state(action);
	known[id].updated_at_ms = orch_action_updated_at_ms(action);
	return 0;
}

/* States and times are put in from outside, for speed: a query does not look at the chain. */
static orch_journal *make_many(void)
{
	orch_journal *journal = open_journal();
	for (unsigned i = 1; i <= MANY; i++) {
		char key[64];
		snprintf(key, sizeof(key), key_forms[dice(KEY_FORMS)], i);
		OK(orch_journal_record(journal, kinds[dice(KINDS)], key, NULL, 0, NULL, &error));
	}
	orch_journal_unref(journal);
	sql("UPDATE action SET state = 1 + (id * 7919) % 8, updated_at_ms = 1000 + (id * 104729) % "
	    "500;"
	    "UPDATE action SET open = CASE WHEN state IN (1, 2, 3, 6) THEN 1 WHEN state = 7 THEN 2 "
	    "ELSE 0 END");
	journal = open_journal();
	uint64_t count = 0;
	OK(orch_journal_each(journal, NULL, learn, &count, &error));
	ck_assert_uint_eq(count, MANY);
	return journal;
}

static bool starts(const char *text, const char *prefix)
{
	return !prefix || strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool matches(const struct orch_query_opts *opts, uint64_t id)
{
	const struct known *action = &known[id];
	bool newest_first = opts->flags & ORCH_QUERY_NEWEST_FIRST;
	return starts(action->kind, opts->kind_prefix) && starts(action->key, opts->key_prefix) &&
	       (!opts->states || opts->states & 1u << action->state) &&
	       (!opts->updated_from_ms || action->updated_at_ms >= opts->updated_from_ms) &&
	       (!opts->updated_before_ms || action->updated_at_ms < opts->updated_before_ms) &&
	       (!opts->after_id || (newest_first ? id < opts->after_id : id > opts->after_id));
}

struct answer {
	uint64_t ids[MANY];
	size_t count;
};

static int32_t collect(void *userdata, orch_action *action)
{
	struct answer *answer = userdata;
	ck_assert_uint_lt(answer->count, MANY);
	answer->ids[answer->count++] = orch_action_id(action);
	return 0;
}

static size_t check_answer(orch_journal *journal, const struct orch_query_opts *opts)
{
	struct answer answer = {.count = 0};
	OK(orch_journal_query(journal, opts, collect, &answer, &error));
	size_t expected = 0;
	for (uint64_t i = 1; i <= MANY && (!opts->limit || expected < opts->limit); i++) {
		uint64_t id = opts->flags & ORCH_QUERY_NEWEST_FIRST ? MANY + 1 - i : i;
		if (!matches(opts, id))
			continue;
		ck_assert_msg(expected < answer.count && answer.ids[expected] == id,
			      "%zu. is not %d but %d: kind %s, key %s, states %x, %d to %d, after "
			      "%d, flags %u",
			      expected, (int)id,
			      expected < answer.count ? (int)answer.ids[expected] : -1,
			      opts->kind_prefix, opts->key_prefix, opts->states,
			      (int)opts->updated_from_ms, (int)opts->updated_before_ms,
			      (int)opts->after_id, opts->flags);
		expected++;
	}
	ck_assert_uint_eq(answer.count, expected);
	return expected;
}

static const char *pick(const char *const *choices, uint32_t count)
{
	uint32_t one = dice(2 * count);
	return one < count ? choices[one] : NULL;
}

START_TEST(each_question_against_a_list)
{
	static const char *const kind_prefixes[] = {"",	       "n", "notify", "notify.", "ai.",
						    "ai.call", "z", "%",      "\xff"};
	static const char *const key_prefixes[] = {
		"",    "run/",	  "run/T1",   "run/T1/",	 "run_", "%",
		"*",   "\xc3",	  "\xc3\xa9", "\xf4\x8f",	 "\xff", "\xff\xff",
		"zzz", "run\xff", "run/T1/7", "\xf4\x8f\xbf\xbf"};
	orch_journal *journal = make_many();
	size_t found = 0, empty = 0;
	for (int i = 0; i < 3000; i++) {
		struct orch_query_opts opts;
		orch_query_opts_init(&opts, sizeof(opts));
		opts.flags = dice(2) ? ORCH_QUERY_NEWEST_FIRST : 0;
		opts.kind_prefix =
			pick(kind_prefixes, sizeof(kind_prefixes) / sizeof(kind_prefixes[0]));
		opts.key_prefix =
			pick(key_prefixes, sizeof(key_prefixes) / sizeof(key_prefixes[0]));
		switch (dice(4)) {
		case 0:
			opts.states = dice(256) << 1;
			break;
		case 1:
			opts.states = 1u << (1 + dice(8));
			break;
		case 2:
			opts.states = (dice(256) << 1) &
				      (1u << 1 | 1u << 2 | 1u << 3 | 1u << 6 | 1u << 7);
			break;
		default:
			break;
		}
		opts.updated_from_ms = dice(3) ? 0 : 1000 + dice(500);
		opts.updated_before_ms = dice(3) ? 0 : 1000 + dice(600);
		opts.limit = dice(3) ? 0 : 1 + dice(600);
		opts.after_id = dice(3) ? 0 : 1 + dice(MANY + 10);
		size_t count = check_answer(journal, &opts);
		found += count;
		empty += count == 0;
	}
	/* It asked about something. */
	ck_assert_uint_gt(found, 100000);
	ck_assert_uint_gt(empty, 100);
	ck_assert_uint_lt(empty, 2000);
	orch_journal_unref(journal);
}
END_TEST

/* Page after page is the whole, in both directions and on each way through the indexes. */
START_TEST(page_after_page)
{
	orch_journal *journal = make_many();
	static const uint32_t states[] = {
		0, 1u << ORCH_ACTION_INTENT | 1u << ORCH_ACTION_HANDED_OVER, 0};
	static const char *const keys[] = {NULL, NULL, "run/"};
	for (size_t way = 0; way < 6; way++)
		for (uint32_t limit = 1; limit <= 257; limit += 64) {
			struct orch_query_opts opts;
			struct answer whole = {.count = 0}, pages = {.count = 0};
			orch_query_opts_init(&opts, sizeof(opts));
			opts.states = states[way / 2];
			opts.key_prefix = keys[way / 2];
			opts.flags = way % 2 ? ORCH_QUERY_NEWEST_FIRST : 0;
			OK(orch_journal_query(journal, &opts, collect, &whole, &error));
			opts.limit = limit;
			size_t before;
			do {
				before = pages.count;
				OK(orch_journal_query(journal, &opts, collect, &pages, &error));
				ck_assert_uint_le(pages.count - before, limit);
				opts.after_id = pages.count ? pages.ids[pages.count - 1] : 0;
			} while (pages.count > before);
			ck_assert_uint_gt(whole.count, 200);
			ck_assert_uint_eq(pages.count, whole.count);
			ck_assert_mem_eq(pages.ids, whole.ids, whole.count * sizeof(whole.ids[0]));
		}
	orch_journal_unref(journal);
}
END_TEST

/* --- callbacks
 * -----------------------------------------------------------------------------------------------
 */

struct changing {
	orch_journal *journal;
	unsigned calls;
	orch_action *kept;
};

static int32_t confirm_the_next(void *userdata, orch_action *action)
{
	struct changing *changing = userdata;
	char key[16];
	changing->calls++;
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_OBSERVED);
	snprintf(key, sizeof(key), "%d", atoi(orch_action_key(action)) + 1);
	orch_action *next = NULL;
	OK(orch_action_confirm(action, &error));
	if (orch_journal_find(changing->journal, key, &next, NULL) == 0)
		OK(orch_action_confirm(next, &error));
	orch_action_unref(next);
	return 0;
}

/* The callback moves on what it is given, and what would have come next: that does not match any
 * more. */
START_TEST(a_callback_moves_actions_on)
{
	orch_journal *journal = open_journal();
	for (int i = 0; i < 20; i++) {
		char key[16];
		snprintf(key, sizeof(key), "%d", i);
		orch_action *action = make(journal, key, 0, ORCH_ACTION_DISPATCHED);
		OK(orch_action_observe(action, "r", 1, &error));
		orch_action_unref(action);
	}
	struct orch_query_opts opts;
	struct changing changing = {.journal = journal};
	orch_query_opts_init(&opts, sizeof(opts));
	opts.states = 1u << ORCH_ACTION_OBSERVED;
	OK(orch_journal_query(journal, &opts, confirm_the_next, &changing, &error));
	ck_assert_uint_eq(changing.calls, 10);
	OK(orch_journal_query(journal, &opts, (orch_action_fn)abort, NULL, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

static int32_t begin_another(void *userdata, orch_action *action)
{
	struct changing *changing = userdata;
	char key[32];
	snprintf(key, sizeof(key), "new %u", ++changing->calls);
	ck_assert_uint_le(changing->calls, 400);
	if (!changing->kept)
		changing->kept = orch_action_ref(action);
	return orch_journal_record(changing->journal, "test.new", key, NULL, 0, NULL, NULL);
}

/* 300 are more than one batch: the second one must not find what the callback began. */
START_TEST(what_a_callback_begins_is_not_walked)
{
	orch_journal *journal = open_journal();
	for (int i = 0; i < 300; i++) {
		char key[16];
		snprintf(key, sizeof(key), "%d", i);
		OK(orch_journal_record(journal, "test.old", key, NULL, 0, NULL, &error));
	}
	struct changing changing = {.journal = journal};
	OK(orch_journal_each(journal, NULL, begin_another, &changing, &error));
	ck_assert_uint_eq(changing.calls, 300);
	ck_assert_str_eq(orch_action_key(changing.kept), "0");
	orch_action_unref(changing.kept);
	struct answer answer = {.count = 0};
	OK(orch_journal_each(journal, "test.new", collect, &answer, &error));
	ck_assert_uint_eq(answer.count, 300);
	orch_journal_unref(journal);
}
END_TEST

static int32_t third_is_enough(void *userdata, orch_action *action)
{
	(void)action;
	return ++*(int *)userdata == 3 ? 42 : 0;
}

static int32_t take_files_away(void *userdata, orch_action *action)
{
	(void)action;
	unlink(wal_path);
	ck_assert_int_eq(orch_journal_record(userdata, "k", "late", NULL, 0, NULL, NULL),
			 ORCH_EPOISONED);
	return 0;
}

START_TEST(ends_of_a_walk)
{
	orch_journal *journal = open_journal();
	struct orch_query_opts opts;
	int calls = 0;
	orch_query_opts_init(&opts, sizeof(opts));
	OK(orch_journal_query(journal, &opts, (orch_action_fn)abort, NULL,
			      &error)); /* an empty journal */
	for (int i = 0; i < 5; i++)
		OK(orch_journal_record(journal, "k", (const char[]){(char)('a' + i), 0}, NULL, 0,
				       NULL, &error));
	ck_assert_int_eq(orch_journal_query(journal, &opts, third_is_enough, &calls, NULL), 42);
	ck_assert_int_eq(calls, 3);
	calls = 0;
	ck_assert_int_eq(orch_journal_each(journal, NULL, third_is_enough, &calls, NULL), 42);
	ck_assert_int_eq(calls, 3);
	FAILS(ORCH_EPOISONED, orch_journal_query(journal, &opts, take_files_away, journal, &error));
	FAILS(ORCH_EPOISONED,
	      orch_journal_query(journal, &opts, (orch_action_fn)abort, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

static void as_a_child(void *userdata)
{
	FAILS(ORCH_EFORKED,
	      orch_journal_query(userdata, NULL, (orch_action_fn)abort, NULL, &error));
}

START_TEST(arguments)
{
	orch_journal *journal = open_journal();
	struct orch_query_opts opts;
	struct answer answer = {.count = 0};
	OK(orch_journal_record(journal, "k", "a", NULL, 0, NULL, &error));
	OK(orch_journal_query(journal, NULL, collect, &answer, &error)); /* all */
	ck_assert_uint_eq(answer.count, 1);
	FAILS(ORCH_EINVAL, orch_journal_query(NULL, NULL, collect, &answer, &error));
	FAILS(ORCH_EINVAL, orch_journal_query(journal, NULL, NULL, NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_each(journal, NULL, NULL, NULL, &error));
#define REFUSED(member, value)                                                                     \
	do {                                                                                       \
		orch_query_opts_init(&opts, sizeof(opts));                                         \
		opts.member = value;                                                               \
		FAILS(ORCH_EINVAL, orch_journal_query(journal, &opts, collect, &answer, &error));  \
	} while (0)
	REFUSED(flags, 2);
	REFUSED(states, 1);
	REFUSED(states, 1u << 9);
	REFUSED(updated_from_ms, -1);
	REFUSED(updated_before_ms, -1);
	REFUSED(size, 4);
	struct {
		struct orch_query_opts opts;
		uint64_t later;
	} newer = {.later = 1};
	newer.opts.size = sizeof(newer);
	FAILS(ORCH_E2BIG, orch_journal_query(journal, &newer.opts, collect, &answer, &error));
	ck_assert_uint_eq(answer.count, 1);
	newer.later = 0;
	OK(orch_journal_query(journal, &newer.opts, collect, &answer, &error));
	ck_assert_uint_eq(answer.count, 2);
	ck_assert_int_eq(in_child(as_a_child, journal), 0);
	orch_journal_unref(journal);
}
END_TEST

/* --- with very many
 * ------------------------------------------------------------------------------------------ */

#define VERY_MANY 300000

static sqlite3 *opened_db;

/* Told by SQLite of each connection: for its counters. */
static int note_db(sqlite3 *db, char **message, const struct sqlite3_api_routines *api)
{
	(void)message;
	(void)api;
	opened_db = db;
	return SQLITE_OK;
}

static orch_journal *make_very_many(void)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "open", 0, ORCH_ACTION_DISPATCHED));
	orch_action_unref(make(journal, "waits", 0, ORCH_ACTION_HANDED_OVER));
	orch_journal_unref(journal);
	sql("WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 300007)"
	    " INSERT INTO action (id, sequence, kind, key, policy, fingerprint, state, attempt, "
	    "generation,"
	    " created_at_ms, updated_at_ms, request_length, result_length)"
	    " SELECT i, 1, 'test.closed', 'key ' || i, 1, x'00', 4, 1, 1, 1, i, 0, 0 FROM n");
	sqlite3_auto_extension((void (*)(void))note_db);
	journal = open_journal();
	sqlite3_reset_auto_extension();
	return journal;
}

struct footprint {
	size_t before, most;
	unsigned count;
};

static size_t allocated(void)
{
	struct mallinfo2 now = mallinfo2();
	return now.uordblks + now.hblkhd;
}

static int32_t measure(void *userdata, orch_action *action)
{
	struct footprint *footprint = userdata;
	(void)action;
	if (footprint->count++ % 1000 == 0) {
		size_t now = allocated();
		footprint->most = now > footprint->most ? now : footprint->most;
	}
	return 0;
}

static int pages_read(void)
{
	int current = 0, high = 0;
	ck_assert_int_eq(
		sqlite3_db_status(opened_db, SQLITE_DBSTATUS_CACHE_MISS, &current, &high, 1),
		SQLITE_OK);
	return current;
}

START_TEST(very_many)
{
	orch_journal *journal = make_very_many();
	struct footprint footprint = {.before = allocated()};
	OK(orch_journal_each(journal, NULL, measure, &footprint, &error));
	ck_assert_uint_eq(footprint.count, VERY_MANY);
	/* SQLite's page cache is 2 MB; the ids alone would be 2.4 MB. */
	ck_assert_msg(footprint.most < footprint.before + 2600000, "%zu bytes more than before",
		      footprint.most - footprint.before);

	/* What is open, and what a few keys say, is found without reading the rest. */
	struct orch_query_opts opts;
	struct answer answer = {.count = 0};
	orch_query_opts_init(&opts, sizeof(opts));
	pages_read();
	opts.states = 1u << ORCH_ACTION_DISPATCHED | 1u << ORCH_ACTION_HANDED_OVER |
		      1u << ORCH_ACTION_UNKNOWN;
	OK(orch_journal_query(journal, &opts, collect, &answer, &error));
	ck_assert_uint_eq(answer.count, 2);
	ck_assert_int_lt(pages_read(), 60);
	opts.states = 0;
	opts.key_prefix = "key 2999";
	OK(orch_journal_query(journal, &opts, collect, &answer, &error));
	ck_assert_uint_eq(answer.count, 2 + 111);
	ck_assert_int_lt(pages_read(), 60);
	OK(kit_recover(journal, NULL, NULL, NULL, NULL, &error));
	ck_assert_int_lt(pages_read(), 60);
	/* The control: this one has to read them all. */
	opts.key_prefix = NULL;
	opts.updated_from_ms = 1000000000;
	OK(orch_journal_query(journal, &opts, collect, &answer, &error));
	ck_assert_int_gt(pages_read(), 1000);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-query");
	TCase *tests = tcase_create("query");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, each_question_against_a_list);
	tcase_add_test(tests, page_after_page);
	tcase_add_test(tests, a_callback_moves_actions_on);
	tcase_add_test(tests, what_a_callback_begins_is_not_walked);
	tcase_add_test(tests, ends_of_a_walk);
	tcase_add_test(tests, arguments);
	tcase_add_test(tests, very_many);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
