/* SPDX-License-Identifier: Apache-2.0 */
/* What a person found out about an action, and how it stays told. */
#include <stdbool.h>

#include "../crash/journal-kit.h"

static const struct {
	uint32_t decision, reached;
	unsigned records; /* the decision's own, and one for each transition */
} decisions[] = {
	{ORCH_DECISION_APPLIED, ORCH_ACTION_CONFIRMED, 3},
	{ORCH_DECISION_NOT_APPLIED, ORCH_ACTION_FAILED, 2},
	{ORCH_DECISION_ABANDON, ORCH_ACTION_ABANDONED, 2},
};
#define DECISIONS (sizeof(decisions) / sizeof(decisions[0]))

static void decided(const orch_action *action, uint32_t decision, const char *by)
{
	const char *told = NULL;
	int64_t at_ms = 0;
	ck_assert_uint_eq(orch_action_decision(action, &told, &at_ms), decision);
	ck_assert_str_eq(told, by);
	ck_assert_int_gt(at_ms, 1600000000000);
	ck_assert_uint_eq(orch_action_decision(action, NULL, NULL), decision);
}

static void undecided(const orch_action *action)
{
	const char *by = "untouched";
	int64_t at_ms = 77;
	ck_assert_uint_eq(orch_action_decision(action, &by, &at_ms), 0);
	ck_assert_str_eq(by, "untouched");
	ck_assert_int_eq(at_ms, 77);
}

START_TEST(each_decision_from_each_state)
{
	orch_journal *journal = open_journal();
	for (uint32_t state = 1; state <= 8; state++)
		for (size_t i = 0; i < DECISIONS; i++) {
			char key[16];
			snprintf(key, sizeof(key), "%u-%zu", state, i);
			orch_action *action = make(journal, key, 0, state);
			uint64_t sequence = orch_journal_sequence(journal);
			bool may = state == ORCH_ACTION_HANDED_OVER || state == ORCH_ACTION_UNKNOWN;
			undecided(action);
			if (may) {
				OK(orch_action_decide(action, decisions[i].decision, "ann", "note",
						      4, &error));
				decided(action, decisions[i].decision, "ann");
				ck_assert_mem_eq(orch_action_result(action, NULL), "note", 4);
				sequence += decisions[i].records;
				/* One decision is enough. */
				FAILS(ORCH_ESTATE, orch_action_decide(action, ORCH_DECISION_ABANDON,
								      "bob", NULL, 0, &error));
				decided(action, decisions[i].decision, "ann");
			} else {
				FAILS(ORCH_ESTATE, orch_action_decide(action, decisions[i].decision,
								      "ann", "note", 4, &error));
				undecided(action);
			}
			ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
			uint32_t now = may ? decisions[i].reached : state;
			ck_assert_uint_eq(orch_action_state(action), now);
			ck_assert_uint_eq(state_of(journal, key), now);
			orch_action_unref(action);
		}
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

static int32_t decided_of_two(void *userdata, orch_action *action)
{
	++*(int *)userdata;
	if (strcmp(orch_action_key(action), "k") == 0)
		decided(action, ORCH_DECISION_NOT_APPLIED, "ann \xc3\xa4");
	else
		undecided(action);
	return 0;
}

/* After a restart, however the action is looked up, and beside one that nobody decided about. */
START_TEST(a_decision_stays)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "other", 0, ORCH_ACTION_HANDED_OVER));
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_HANDED_OVER);
	OK(orch_action_decide(action, ORCH_DECISION_NOT_APPLIED, "ann \xc3\xa4", "a\0b", 3,
			      &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	action = find(journal, "k");
	decided(action, ORCH_DECISION_NOT_APPLIED, "ann \xc3\xa4");
	size_t length = 0;
	ck_assert_mem_eq(orch_action_result(action, &length), "a\0b", 3);
	ck_assert_uint_eq(length, 3);
	orch_action_unref(action);
	int walked = 0;
	OK(orch_journal_each(journal, NULL, decided_of_two, &walked, &error));
	ck_assert_int_eq(walked, 2);
	/* It is the last one about the action, also in the attempts that follow. */
	action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	decided(action, ORCH_DECISION_NOT_APPLIED, "ann \xc3\xa4");
	ck_assert_ptr_null(orch_action_result(action, NULL));
	OK(orch_action_dispatch(action, &error));
	OK(orch_action_unknown(action, NULL, 0, &error));
	OK(orch_action_decide(action, ORCH_DECISION_APPLIED, "bob", NULL, 0, &error));
	decided(action, ORCH_DECISION_APPLIED, "bob");
	ck_assert_ptr_null(orch_action_result(action, NULL));
	orch_action_unref(action);
	action = begin(journal, "k", 0, ORCH_BEGIN_REPLAY);
	decided(action, ORCH_DECISION_APPLIED, "bob");
	orch_action_unref(action);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	action = find(journal, "k");
	decided(action, ORCH_DECISION_APPLIED, "bob");
	FAILS(ORCH_ESTATE, orch_action_decide(action, ORCH_DECISION_APPLIED, "b", NULL, 0, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

/* A late answer, another person, another attempt: who was first counts, and nothing is left of the
 * other. */
START_TEST(who_was_first_counts)
{
	orch_journal *journal = open_journal();
	orch_action *first = make(journal, "k", 0, ORCH_ACTION_HANDED_OVER);
	orch_action *second = find(journal, "k"), *third = find(journal, "k");
	OK(orch_action_decide(first, ORCH_DECISION_NOT_APPLIED, "ann", "a", 1, &error));
	uint64_t sequence = orch_journal_sequence(journal);
	FAILS(ORCH_ESTATE,
	      orch_action_decide(second, ORCH_DECISION_APPLIED, "bob", "b", 1, &error));
	FAILS(ORCH_ESTATE, orch_action_observe(third, "late", 4, &error));
	undecided(second);
	ck_assert_mem_eq(orch_action_result(second, NULL), "person", 6);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	orch_action_unref(first);
	first = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	OK(orch_action_dispatch(first, &error));
	OK(orch_action_hand_over(first, NULL, 0, &error));
	/* In the same state again, but in the next attempt. */
	FAILS(ORCH_ESTATE,
	      orch_action_decide(second, ORCH_DECISION_ABANDON, "bob", NULL, 0, &error));
	decided(first, ORCH_DECISION_NOT_APPLIED, "ann");
	OK(orch_action_observe(first, "late", 4, &error));
	FAILS(ORCH_ESTATE,
	      orch_action_decide(first, ORCH_DECISION_APPLIED, "bob", NULL, 0, &error));
	orch_action_unref(first);
	orch_action_unref(second);
	orch_action_unref(third);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* The reason that was read stays readable when the note takes its place. */
START_TEST(a_result_outlives_the_decision)
{
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_UNKNOWN);
	const char *reason = orch_action_result(action, NULL);
	OK(orch_action_decide(action, ORCH_DECISION_APPLIED, "ann", "note", 4, &error));
	ck_assert_mem_eq(reason, "unknown", 7);
	ck_assert_mem_eq(orch_action_result(action, NULL), "note", 4);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(a_note_over_the_limit_still_counts)
{
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = journal_path;
	opts.payload_limit = 100;
	orch_journal *journal = NULL;
	OK(orch_journal_open(&opts, &journal, &error));
	char note[101];
	memset(note, 'x', sizeof(note));
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_HANDED_OVER);
	OK(orch_action_decide(action, ORCH_DECISION_APPLIED, "ann", note, sizeof(note), &error));
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
	size_t length = 0;
	ck_assert_ptr_nonnull(strstr(orch_action_result(action, &length), "bytes:101"));
	orch_action_unref(action);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* Nobody is told another action's decision, or that there is none. */
START_TEST(a_damaged_decision_is_not_told)
{
	static const char *const damages[] = {
		"UPDATE decision SET action = 99",
		"UPDATE decision SET decided_by = ''||char(0)",
		"DELETE FROM decision",
	};
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_HANDED_OVER);
	OK(orch_action_decide(action, ORCH_DECISION_ABANDON, "ann", NULL, 0, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
	struct file good = slurp(journal_path);
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		sql(damages[i]);
		journal = open_journal();
		action = (void *)1;
		FAILS(ORCH_ECORRUPT, orch_journal_find(journal, "k", &action, &error));
		ck_assert_ptr_eq(action, (void *)1);
		orch_journal_unref(journal);
		unlink(wal_path);
		spill(journal_path, &good);
	}
	journal = open_journal();
	action = find(journal, "k");
	decided(action, ORCH_DECISION_ABANDON, "ann");
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

static void refused(orch_action *action, uint32_t decision, const char *by, const void *note,
		    size_t length)
{
	FAILS(ORCH_EINVAL, orch_action_decide(action, decision, by, note, length, &error));
	undecided(action);
}

START_TEST(arguments)
{
	char by[257];
	memset(by, 'b', sizeof(by));
	by[256] = '\0';
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_HANDED_OVER);
	uint64_t sequence = orch_journal_sequence(journal);
	refused(NULL, ORCH_DECISION_APPLIED, "ann", NULL, 0);
	refused(action, 0, "ann", NULL, 0);
	refused(action, 4, "ann", NULL, 0);
	refused(action, ORCH_DECISION_APPLIED, NULL, NULL, 0);
	refused(action, ORCH_DECISION_APPLIED, "", NULL, 0);
	refused(action, ORCH_DECISION_APPLIED, "\xff", NULL, 0);
	refused(action, ORCH_DECISION_APPLIED, by, NULL, 0);
	refused(action, ORCH_DECISION_APPLIED, "ann", NULL, 1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_HANDED_OVER);
	by[255] = '\0';
	OK(orch_action_decide(action, ORCH_DECISION_ABANDON, by, "", 0, &error));
	decided(action, ORCH_DECISION_ABANDON, by);
	orch_action_unref(action);
	action = find(journal, "k");
	decided(action, ORCH_DECISION_ABANDON, by);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

static void decide_in_a_child(void *userdata)
{
	FAILS(ORCH_EFORKED,
	      orch_action_decide(userdata, ORCH_DECISION_APPLIED, "ann", NULL, 0, &error));
}

START_TEST(a_forked_child_decides_nothing)
{
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_HANDED_OVER);
	ck_assert_int_eq(in_child(decide_in_a_child, action), 0);
	OK(orch_action_decide(action, ORCH_DECISION_APPLIED, "ann", NULL, 0, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("decision");
	TCase *tests = tcase_create("decision");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, each_decision_from_each_state);
	tcase_add_test(tests, a_decision_stays);
	tcase_add_test(tests, who_was_first_counts);
	tcase_add_test(tests, a_result_outlives_the_decision);
	tcase_add_test(tests, a_note_over_the_limit_still_counts);
	tcase_add_test(tests, a_damaged_decision_is_not_told);
	tcase_add_test(tests, arguments);
	tcase_add_test(tests, a_forked_child_decides_nothing);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
