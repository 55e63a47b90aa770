/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads dropped: of which actions, what stays, what a begin finds afterwards, handles of before,
 * a journal in use. Kills and failing calls are in tests/crash/journal-prune.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "../crash/journal-kit.h"

static const char digest_of_request[] =
	"sha256:1f58b9145b24d108d7ac38887338b3ea3229833b9c1e418250343f907bfd1047";

static void check_text(const void *bytes, size_t length, const char *start, size_t whole)
{
	char expected[120];
	snprintf(expected, sizeof(expected), "%s bytes:%zu", start, whole);
	ck_assert_uint_eq(length, strlen(expected));
	ck_assert_mem_eq(bytes, expected, length);
}

static bool reads_as_digest(orch_action *action, bool request)
{
	size_t length = 0;
	const char *text = request ? orch_action_request(action, &length)
				   : orch_action_result(action, &length);
	return length > 71 && strncmp(text, "sha256:", 7) == 0;
}

/* Later than any record so far. */
static int64_t soon(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + 60000;
}

static void prune(orch_journal *journal, int64_t before_ms, uint64_t expected_actions,
		  uint64_t expected_bytes)
{
	uint64_t actions = 77, bytes = 77, sequence = orch_journal_sequence(journal);
	OK(orch_journal_prune(journal, before_ms, &actions, &bytes, &error));
	ck_assert_uint_eq(actions, expected_actions);
	ck_assert_uint_eq(bytes, expected_bytes);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + expected_actions);
}

START_TEST(which_actions_lose_their_payloads)
{
	orch_journal *journal = open_journal();
	int64_t updated[9];
	for (uint32_t state = 1; state <= 8; state++) {
		char key[8];
		snprintf(key, sizeof(key), "%u", state);
		orch_action *action = make(journal, key, 0, state);
		updated[state] = orch_action_updated_at_ms(action);
		orch_action_unref(action);
	}
	prune(journal, 0, 0, 0);
	prune(journal, updated[1], 0, 0); /* nothing is older */
	/* CONFIRMED: request, result; FAILED: request, failed; ABANDONED: request, given up. */
	prune(journal, soon(), 3, 7 + 6 + 7 + 6 + 7 + 8);
	for (uint32_t state = 1; state <= 8; state++) {
		char key[8];
		snprintf(key, sizeof(key), "%u", state);
		orch_action *action = find(journal, key);
		bool closed = state == ORCH_ACTION_CONFIRMED || state == ORCH_ACTION_FAILED ||
			      state == ORCH_ACTION_ABANDONED;
		size_t length = 0;
		ck_assert_uint_eq(orch_action_state(action), state);
		ck_assert_int_eq(orch_action_pruned(action), closed);
		ck_assert_int_eq(orch_action_updated_at_ms(action), updated[state]);
		const void *request = orch_action_request(action, &length);
		if (closed)
			check_text(request, length, digest_of_request, 7);
		else
			ck_assert_mem_eq(request, "request", 7);
		ck_assert_int_eq(reads_as_digest(action, false), closed);
		orch_action_unref(action);
	}
	OK(orch_journal_verify(journal, NULL, &error));
	prune(journal, soon(), 0, 0); /* again */
	orch_journal_unref(journal);
	journal = open_journal();
	OK(orch_journal_verify(journal, NULL, &error));
	prune(journal, soon(), 0, 0);
	orch_action *action = find(journal, "4");
	ck_assert_int_eq(orch_action_pruned(action), 1);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(the_time_of_the_last_transition_decides)
{
	orch_journal *journal = open_journal();
	for (int i = 0; i < 3; i++) {
		orch_action_unref(make(journal, (const char[]){(char)('a' + i), 0}, 0,
				       ORCH_ACTION_CONFIRMED));
		struct timespec pause = {.tv_nsec = 3000000};
		nanosleep(&pause, NULL);
	}
	orch_action *second = find(journal, "b");
	prune(journal, orch_action_updated_at_ms(second), 1, 13);     /* before: a */
	prune(journal, orch_action_updated_at_ms(second) + 1, 1, 13); /* b */
	orch_action_unref(second);
	orch_action *third = find(journal, "c");
	ck_assert_int_eq(orch_action_pruned(third), 0);
	orch_action_unref(third);
	orch_journal_unref(journal);
}
END_TEST

/* No payload, or one that was cut when it came: nothing to drop, and nobody says that it was
 * dropped. */
START_TEST(nothing_to_drop)
{
	orch_journal *journal = NULL;
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = journal_path;
	opts.payload_limit = 4;
	OK(orch_journal_open(&opts, &journal, &error));
	OK(orch_journal_record(journal, "k", "none", NULL, 0, NULL, &error));
	orch_action *action = NULL;
	uint32_t outcome;
	OK(kit_begin(journal, "cut", 0, NULL, &outcome, &action, &error));
	OK(orch_action_dispatch(action, &error));
	OK(orch_action_observe(action, "over the limit", 14, &error));
	OK(orch_action_confirm(action, &error));
	orch_action_unref(action);
	prune(journal, soon(), 0, 0);
	action = find(journal, "cut");
	ck_assert_int_eq(orch_action_pruned(action), 0);
	ck_assert(reads_as_digest(action, false));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(what_begin_finds_afterwards)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "confirmed", 0, ORCH_ACTION_CONFIRMED));
	orch_action_unref(make(journal, "failed", 0, ORCH_ACTION_FAILED));
	orch_action_unref(make(journal, "abandoned", 0, ORCH_ACTION_ABANDONED));
	OK(orch_journal_record(journal, "k", "recorded", "body", 4, NULL, &error));
	prune(journal, soon(), 4, 13 + 13 + 15 + 4);

	orch_action *action = begin(journal, "confirmed", 0, ORCH_BEGIN_REPLAY);
	ck_assert(reads_as_digest(action, true) && reads_as_digest(action, false));
	orch_action_unref(action);
	orch_action_unref(begin(journal, "abandoned", 0, ORCH_BEGIN_AMBIGUOUS));
	uint32_t outcome = 0;
	action = NULL;
	FAILS(ORCH_ECONFLICT,
	      kit_begin(journal, "confirmed", 0, "another", &outcome, &action, &error));
	int32_t fresh = 77;
	OK(orch_journal_record(journal, "k", "recorded", "body", 4, &fresh, &error));
	ck_assert_int_eq(fresh, 0);
	FAILS(ORCH_ECONFLICT,
	      orch_journal_record(journal, "k", "recorded", "bode", 4, &fresh, &error));

	/* The next attempt of what failed is whole, and not pruned. */
	action = begin(journal, "failed", 0, ORCH_BEGIN_FRESH);
	ck_assert_uint_eq(orch_action_attempt(action), 2);
	ck_assert_int_eq(orch_action_pruned(action), 0);
	OK(orch_action_dispatch(action, &error));
	OK(orch_action_observe(action, "r", 1, &error));
	OK(orch_action_confirm(action, &error));
	orch_action_unref(action);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
	journal = open_journal();
	action = find(journal, "failed");
	size_t length = 0;
	ck_assert_mem_eq(orch_action_request(action, &length), "request", 7);
	ck_assert_mem_eq(orch_action_result(action, &length), "r", 1);
	ck_assert_int_eq(orch_action_pruned(action), 0);
	orch_action_unref(action);
	prune(journal, soon(), 1, 8); /* and may be pruned in its turn */
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* A handle still has the payloads: it must not write that they are stored. */
START_TEST(a_handle_of_before)
{
	orch_journal *journal = open_journal();
	orch_action *stale = make(journal, "k", 0, ORCH_ACTION_FAILED);
	orch_action *control = make(journal, "control", 0, ORCH_ACTION_FAILED);
	OK(orch_action_hand_over(control, "person", 6, &error));
	prune(journal, soon(), 1, 13);
	size_t length = 0;
	ck_assert_mem_eq(orch_action_request(stale, &length), "request", 7);
	uint64_t sequence = orch_journal_sequence(journal);
	FAILS(ORCH_ESTATE, orch_action_hand_over(stale, "person", 6, &error));
	FAILS(ORCH_ESTATE, orch_action_abandon(stale, "person", 6, &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	orch_action_unref(stale);
	orch_action *now = find(journal, "k");
	OK(orch_action_hand_over(now, "person", 6, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	OK(orch_action_abandon(now, "given up", 8, &error));
	OK(orch_action_abandon(control, "given up", 8, &error));
	orch_action_unref(now);
	orch_action_unref(control);
	prune(journal, soon(), 2, 8 + 7 + 8); /* what came since */
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* More than what one commit takes, and more than what it looks at; rows of schema 1 do not say what
 * they keep. */
START_TEST(very_many)
{
	orch_journal *journal = open_journal();
	orch_journal_unref(journal);
	sql("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)"
	    " INSERT INTO action (id, sequence, kind, key, policy, fingerprint, state, attempt, "
	    "generation,"
	    " created_at_ms, updated_at_ms, request_length, request_digest, result_length, format, "
	    "stored)"
	    " SELECT i, 1, 'k', 'key ' || i, 1, x'00', CASE WHEN i < 12000 OR i > 26000 THEN 4 "
	    "ELSE 2 END, 1, 1, 1, i,"
	    " 3, zeroblob(32), 0, 1 + i % 2, i % 2 FROM n;"
	    "INSERT INTO body SELECT 2 * id, x'616263' FROM action");
	journal = open_journal();
	prune(journal, 3, 2, 6);
	prune(journal, INT64_MAX, 11999 + 4000 - 2, 3 * (11999 + 4000 - 2));
	prune(journal, INT64_MAX, 0, 0);
	orch_action *closed = find(journal, "key 29999"), *open = find(journal, "key 15000");
	ck_assert_int_eq(orch_action_pruned(closed), 1);
	ck_assert(reads_as_digest(closed, true));
	ck_assert_int_eq(orch_action_pruned(open), 0);
	ck_assert_mem_eq(orch_action_request(open, NULL), "abc", 3);
	orch_action_unref(closed);
	orch_action_unref(open);
	orch_journal_unref(journal);
}
END_TEST

static void write_big(orch_journal *journal, char name)
{
	static char payload[200000];
	memset(payload, name, sizeof(payload));
	for (int i = 0; i < 20; i++) {
		char key[8];
		snprintf(key, sizeof(key), "%c%d", name, i);
		OK(orch_journal_record(journal, "k", key, payload, sizeof(payload), NULL, &error));
	}
}

START_TEST(the_place_is_used_again)
{
	struct stat first, later;
	orch_journal *journal = open_journal();
	write_big(journal, 'a');
	orch_journal_unref(journal);
	ck_assert_int_eq(stat(journal_path, &first), 0);
	ck_assert_int_gt(first.st_size, 4000000);
	for (char name = 'b'; name <= 'd'; name++) {
		journal = open_journal();
		prune(journal, soon(), 20, 4000000);
		write_big(journal, name);
		orch_journal_unref(journal);
	}
	ck_assert_int_eq(stat(journal_path, &later), 0);
	ck_assert_int_lt(later.st_size, first.st_size + 300000);
	journal = open_journal();
	write_big(journal, 'e'); /* the control: without pruning it grows */
	orch_journal_unref(journal);
	ck_assert_int_eq(stat(journal_path, &later), 0);
	ck_assert_int_gt(later.st_size, first.st_size + 3000000);
}
END_TEST

static atomic_uint pruned_meanwhile, work_is_over;

static void *prune_again_and_again(void *userdata)
{
	while (!atomic_load(&work_is_over)) {
		uint64_t actions = 0;
		if (orch_journal_prune(userdata, soon(), &actions, NULL, NULL) < 0)
			break;
		atomic_fetch_add(&pruned_meanwhile, (unsigned)actions);
	}
	return NULL;
}

/* Failed actions are begun again while another thread prunes them: nobody's payload is lost, none
 * comes back. */
START_TEST(while_others_write)
{
	orch_journal *journal = open_journal();
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, prune_again_and_again, journal), 0);
	for (int i = 0; i < 20000 && atomic_load(&pruned_meanwhile) < 100; i++) {
		char key[8];
		snprintf(key, sizeof(key), "%d", i % 20);
		orch_action *action = begin(journal, key, 0, ORCH_BEGIN_FRESH);
		ck_assert_mem_eq(orch_action_request(action, NULL), "request", 7);
		OK(orch_action_dispatch(action, &error));
		OK(orch_action_fail(action, "no", 2, &error));
		int32_t r = orch_action_hand_over(action, "person", 6, NULL);
		ck_assert(r == 0 || r == ORCH_ESTATE);
		if (r == 0)
			OK(orch_action_fail(action, "not done", 8, &error));
		orch_action_unref(action);
	}
	atomic_store(&work_is_over, 1);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_ge(atomic_load(&pruned_meanwhile), 100);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

static void as_a_child(void *userdata)
{
	FAILS(ORCH_EFORKED, orch_journal_prune(userdata, 1, NULL, NULL, &error));
}

START_TEST(arguments)
{
	orch_journal *journal = open_journal();
	uint64_t actions = 77, bytes = 77;
	orch_action_unref(make(journal, "k", 0, ORCH_ACTION_CONFIRMED));
	FAILS(ORCH_EINVAL, orch_journal_prune(NULL, 1, &actions, &bytes, &error));
	FAILS(ORCH_EINVAL, orch_journal_prune(journal, -1, &actions, &bytes, &error));
	ck_assert_int_eq(in_child(as_a_child, journal), 0);
	orch_journal_unref(journal);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	FAILS(ORCH_ESTATE, orch_journal_prune(journal, soon(), &actions, &bytes, &error));
	orch_journal_unref(journal);
	journal = open_journal();
	unlink(wal_path);
	FAILS(ORCH_EPOISONED, orch_journal_prune(journal, soon(), &actions, &bytes, &error));
	FAILS(ORCH_EPOISONED, orch_journal_prune(journal, soon(), &actions, &bytes, &error));
	ck_assert_uint_eq(actions, 77);
	ck_assert_uint_eq(bytes, 77);
	orch_journal_unref(journal);
	journal = open_journal();
	OK(orch_journal_prune(journal, soon(), NULL, NULL, &error)); /* the control */
	orch_action *action = find(journal, "k");
	ck_assert_int_eq(orch_action_pruned(action), 1);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("prune");
	TCase *tests = tcase_create("prune");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, which_actions_lose_their_payloads);
	tcase_add_test(tests, the_time_of_the_last_transition_decides);
	tcase_add_test(tests, nothing_to_drop);
	tcase_add_test(tests, what_begin_finds_afterwards);
	tcase_add_test(tests, a_handle_of_before);
	tcase_add_test(tests, very_many);
	tcase_add_test(tests, the_place_is_used_again);
	tcase_add_test(tests, while_others_write);
	tcase_add_test(tests, arguments);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
