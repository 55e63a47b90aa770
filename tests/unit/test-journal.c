/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's meaning: states, what begin finds, policies, recovery, payloads, arguments. Files,
 * locks and faults are in tests/crash/journal-files.c and journal-faults.c.
 */
#include <stdbool.h>

#include "../crash/journal-kit.h"

#define STATES 8

static const uint32_t all_policies[] = {ORCH_POLICY_REPEATABLE, ORCH_POLICY_PROBE_FIRST,
					ORCH_POLICY_NEVER_REPEAT};

START_TEST(a_whole_life)
{
	orch_journal *journal = open_journal();
	ck_assert_uint_eq(orch_journal_generation(journal), 1);
	ck_assert_uint_eq(orch_journal_sequence(journal), 1);
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	ck_assert_str_eq(orch_action_kind(action), "test.action");
	ck_assert_str_eq(orch_action_key(action), "k");
	ck_assert_uint_eq(orch_action_policy(action), ORCH_POLICY_NEVER_REPEAT);
	ck_assert_uint_eq(orch_action_attempt(action), 1);
	ck_assert_uint_eq(orch_action_generation(action), 1);
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_INTENT);
	OK(orch_action_dispatch(action, &error));
	OK(orch_action_observe(action, "seen", 4, &error));
	OK(orch_action_confirm(action, &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), 5);
	ck_assert_int_gt(orch_action_updated_at_ms(action), 1600000000000);

	size_t length = 0;
	ck_assert_mem_eq(orch_action_request(action, &length), "request", 7);
	ck_assert_uint_eq(length, 7);
	ck_assert_mem_eq(orch_action_result(action, &length), "seen", 4);
	ck_assert_uint_eq(length, 4);
	orch_action_unref(action);
	orch_journal_unref(journal);

	journal = open_journal();
	ck_assert_uint_eq(orch_journal_generation(journal), 2);
	action = begin(journal, "k", 0, ORCH_BEGIN_REPLAY);
	ck_assert_mem_eq(orch_action_result(action, &length), "seen", 4);
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
	ck_assert_uint_eq(orch_action_generation(action), 1);
	orch_action_unref(action);
	uint64_t records = 0;
	OK(orch_journal_verify(journal, &records, &error));
	ck_assert_uint_eq(records, 6);
	orch_journal_unref(journal);
}
END_TEST

/* clang-format off */
/* Row: state; column: what it is asked to become. Written down apart from the library's own table. */
static const char *const allowed[STATES + 1] = {
	/*                              I D O C F U H A */
	[ORCH_ACTION_INTENT] =        ".x..x.xx",
	[ORCH_ACTION_DISPATCHED] =    "..x.xxxx",
	[ORCH_ACTION_OBSERVED] =      "...x....",
	[ORCH_ACTION_CONFIRMED] =     "........",
	[ORCH_ACTION_FAILED] =        "......xx",
	[ORCH_ACTION_UNKNOWN] =       "..x.x.xx",
	[ORCH_ACTION_HANDED_OVER] =   "..x.x..x",
	[ORCH_ACTION_ABANDONED] =     "........",
};
/* clang-format on */

START_TEST(each_transition_from_each_state)
{
	orch_journal *journal = open_journal();
	for (uint32_t from = 1; from <= STATES; from++) {
		for (uint32_t to = 2; to <= STATES; to++) {
			char key[32];
			snprintf(key, sizeof(key), "%u-%u", from, to);
			orch_action *action = make(journal, key, 0, from);
			uint64_t sequence = orch_journal_sequence(journal);
			if (allowed[from][to - 1] == 'x') {
				OK(move(action, to, &error));
				ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
			} else {
				FAILS(ORCH_ESTATE, move(action, to, &error));
				ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
			}
			uint32_t now = allowed[from][to - 1] == 'x' ? to : from;
			ck_assert_uint_eq(orch_action_state(action), now);
			ck_assert_uint_eq(state_of(journal, key), now);
			orch_action_unref(action);
		}
	}
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

START_TEST(what_begin_finds)
{
	static const struct {
		uint32_t state, own, later;
	} finds[] = {
		{ORCH_ACTION_INTENT, ORCH_BEGIN_ATTACHED, ORCH_BEGIN_FRESH},
		{ORCH_ACTION_DISPATCHED, ORCH_BEGIN_ATTACHED, ORCH_BEGIN_AMBIGUOUS},
		{ORCH_ACTION_OBSERVED, ORCH_BEGIN_REPLAY, ORCH_BEGIN_REPLAY},
		{ORCH_ACTION_CONFIRMED, ORCH_BEGIN_REPLAY, ORCH_BEGIN_REPLAY},
		{ORCH_ACTION_FAILED, ORCH_BEGIN_FRESH, ORCH_BEGIN_FRESH},
		{ORCH_ACTION_UNKNOWN, ORCH_BEGIN_AMBIGUOUS, ORCH_BEGIN_AMBIGUOUS},
		{ORCH_ACTION_HANDED_OVER, ORCH_BEGIN_AMBIGUOUS, ORCH_BEGIN_AMBIGUOUS},
		{ORCH_ACTION_ABANDONED, ORCH_BEGIN_AMBIGUOUS, ORCH_BEGIN_AMBIGUOUS},
	};
	for (int later = 0; later < 2; later++)
		for (size_t p = 0; p < 3; p++)
			for (size_t i = 0; i < sizeof(finds) / sizeof(finds[0]); i++) {
				char key[32];
				snprintf(key, sizeof(key), "%d-%zu-%zu", later, p, i);
				orch_journal *journal = open_journal();
				orch_action_unref(
					make(journal, key, all_policies[p], finds[i].state));
				if (later) {
					orch_journal_unref(journal);
					journal = open_journal();
				}
				uint64_t sequence = orch_journal_sequence(journal);
				uint32_t expected = later ? finds[i].later : finds[i].own;
				orch_action *action = begin(journal, key, 0, expected);
				bool fresh = expected == ORCH_BEGIN_FRESH;
				ck_assert_uint_eq(orch_journal_sequence(journal), sequence + fresh);
				ck_assert_uint_eq(orch_action_attempt(action), 1 + fresh);
				ck_assert_uint_eq(orch_action_policy(action), all_policies[p]);
				ck_assert_uint_eq(orch_action_state(action),
						  fresh ? ORCH_ACTION_INTENT : finds[i].state);
				orch_action_unref(action);
				orch_journal_unref(journal);
			}
}
END_TEST

START_TEST(another_request_under_the_same_key)
{
	orch_journal *journal = open_journal();
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH), *untouched = (void *)1;
	uint64_t sequence = orch_journal_sequence(journal);
	uint32_t outcome = 77;
	FAILS(ORCH_ECONFLICT, kit_begin(journal, "k", 0, "other", &outcome, &untouched, &error));
	ck_assert_uint_eq(outcome, ORCH_BEGIN_CONFLICT);
	ck_assert_ptr_eq(untouched, (void *)1);

	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.other";
	opts.key = "k";
	opts.request = "request";
	opts.request_length = 7;
	FAILS(ORCH_ECONFLICT, orch_journal_begin(journal, &opts, &outcome, &untouched, &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_INTENT);

	/* A given fingerprint decides alone: a request may differ in what does not matter. */
	opts.kind = "test.action";
	opts.key = "f";
	opts.fingerprint = "same";
	opts.fingerprint_length = 4;
	orch_action *first = NULL, *second = NULL;
	OK(orch_journal_begin(journal, &opts, &outcome, &first, &error));
	opts.request = "request at another time";
	opts.request_length = 23;
	OK(orch_journal_begin(journal, &opts, &outcome, &second, &error));
	ck_assert_uint_eq(outcome, ORCH_BEGIN_ATTACHED);
	opts.fingerprint = "sama";
	FAILS(ORCH_ECONFLICT, orch_journal_begin(journal, &opts, &outcome, &untouched, &error));
	/* The next attempt is recorded with the request that it will send. */
	OK(orch_action_fail(first, "refused", 7, &error));
	opts.fingerprint = "same";
	orch_action *third = NULL;
	OK(orch_journal_begin(journal, &opts, &outcome, &third, &error));
	ck_assert_uint_eq(outcome, ORCH_BEGIN_FRESH);
	size_t length = 0;
	ck_assert_mem_eq(orch_action_request(third, &length), "request at another time", 23);
	ck_assert_ptr_null(orch_action_result(third, &length));
	ck_assert_uint_eq(length, 0);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_action_unref(first);
	orch_action_unref(second);
	orch_action_unref(third);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(the_first_observation_wins)
{
	orch_journal *journal = open_journal();
	orch_action *first = make(journal, "k", 0, ORCH_ACTION_DISPATCHED);
	orch_action *second = find(journal, "k"), *third = find(journal, "k");
	OK(orch_action_observe(first, "first", 5, &error));
	uint64_t sequence = orch_journal_sequence(journal);
	FAILS(ORCH_ESTATE, orch_action_observe(second, "second", 6, &error));
	FAILS(ORCH_ESTATE, orch_action_fail(third, "late", 4, &error));
	FAILS(ORCH_ESTATE, orch_action_resolve(third, ORCH_OUTCOME_NOT_APPLIED, NULL, 0, &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	orch_action *now = find(journal, "k");
	size_t length = 0;
	ck_assert_mem_eq(orch_action_result(now, &length), "first", 5);
	ck_assert_uint_eq(orch_action_state(now), ORCH_ACTION_OBSERVED);
	orch_action_unref(now);
	orch_action_unref(first);
	orch_action_unref(second);
	orch_action_unref(third);
	orch_journal_unref(journal);
}
END_TEST

/* A handle of attempt 1 must not finish attempt 2, though both are DISPATCHED in this generation.
 */
START_TEST(an_earlier_attempt_cannot_write)
{
	orch_journal *journal = open_journal();
	orch_action *first = make(journal, "k", 0, ORCH_ACTION_DISPATCHED),
		    *stale = find(journal, "k");
	OK(orch_action_fail(first, NULL, 0, &error));
	orch_action *second = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	OK(orch_action_dispatch(second, &error));
	ck_assert_uint_eq(orch_action_attempt(second), 2);
	FAILS(ORCH_ESTATE, orch_action_observe(stale, "late", 4, &error));
	OK(orch_action_observe(second, "right", 5, &error));
	orch_action_unref(first);
	orch_action_unref(stale);
	orch_action_unref(second);
	orch_journal_unref(journal);
}
END_TEST

/* A result that was read stays readable while its action lives, whatever replaces it. */
START_TEST(payloads_live_as_long_as_the_action)
{
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_UNKNOWN);
	size_t length = 0;
	const char *reason = orch_action_result(action, &length);
	OK(orch_action_observe(action, "result", 6, &error));
	ck_assert_mem_eq(reason, "unknown", 7);
	ck_assert_mem_eq(orch_action_result(action, NULL), "result", 6);
	orch_journal_unref(journal); /* the action keeps the journal */
	OK(orch_action_confirm(action, &error));
	ck_assert_mem_eq(reason, "unknown", 7);
	orch_action_unref(action);
}
END_TEST

START_TEST(records)
{
	orch_journal *journal = open_journal();
	int32_t fresh = 9;
	OK(orch_journal_record(journal, "run.state", "r/1", "a\0b", 3, &fresh, &error));
	ck_assert_int_eq(fresh, 1);
	uint64_t sequence = orch_journal_sequence(journal);
	OK(orch_journal_record(journal, "run.state", "r/1", "a\0b", 3, &fresh, &error));
	ck_assert_int_eq(fresh, 0);
	fresh = 9;
	FAILS(ORCH_ECONFLICT,
	      orch_journal_record(journal, "run.state", "r/1", "a\0c", 3, &fresh, &error));
	FAILS(ORCH_ECONFLICT,
	      orch_journal_record(journal, "run.stat", "r/1", "a\0b", 3, &fresh, &error));
	ck_assert_int_eq(fresh, 9);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	OK(orch_journal_record(journal, "run.state", "r/2", NULL, 0, NULL, &error));
	orch_action *action = find(journal, "r/1");
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
	size_t length = 0;
	ck_assert_mem_eq(orch_action_request(action, &length), "a\0b", 3);
	ck_assert_uint_eq(length, 3);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

static void count_record(void *userdata, uint64_t sequence)
{
	uint64_t *last = userdata;
	ck_assert_uint_eq(sequence, *last + 1);
	*last = sequence;
}

START_TEST(one_call_per_record)
{
	uint64_t last = 0;
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, NULL, count_record, &last, &error));
	ck_assert_uint_eq(last, 1);
	orch_action *action = make(journal, "k", ORCH_POLICY_PROBE_FIRST, ORCH_ACTION_DISPATCHED);
	OK(orch_action_resolve(action, ORCH_OUTCOME_APPLIED, "r", 1, &error));
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
	ck_assert_uint_eq(last, 5); /* registered, intent, dispatched, observed, confirmed */
	OK(orch_journal_record(journal, "x", "x", NULL, 0, NULL, &error));
	OK(orch_journal_record(journal, "x", "x", NULL, 0, NULL, &error));
	orch_action_unref(begin(journal, "k", 0, ORCH_BEGIN_REPLAY));
	ck_assert_uint_eq(last, 6);
	ck_assert_uint_eq(orch_journal_sequence(journal), 6);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

/* --- recovery
 * ----------------------------------------------------------------------------------------- */

struct probing {
	uint32_t answer; /* 0: drops the reply */
	int calls;
};

static void probe(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	struct probing *probing = userdata;
	probing->calls++;
	ck_assert_uint_ne(orch_action_policy(action), ORCH_POLICY_REPEATABLE);
	ck_assert_int_eq(orch_probe_reply_answer(reply, 99, NULL, 0), ORCH_EINVAL);
	if (!probing->answer)
		return;
	ck_assert_int_eq(orch_probe_reply_answer(reply, probing->answer, "probed", 6), 0);
	ck_assert_int_eq(orch_probe_reply_answer(reply, ORCH_OUTCOME_UNKNOWN, NULL, 0),
			 ORCH_ESTATE);
}

/* From the table in journal.h. 0: left alone and not in the recovery. */
static uint32_t decided(uint32_t state, uint32_t policy, uint32_t answer, bool own)
{
	if (state == ORCH_ACTION_HANDED_OVER)
		return state;
	if (own && state != ORCH_ACTION_UNKNOWN)
		return 0;
	switch (state) {
	case ORCH_ACTION_INTENT:
		return ORCH_ACTION_FAILED;
	case ORCH_ACTION_OBSERVED:
		return ORCH_ACTION_CONFIRMED;
	case ORCH_ACTION_DISPATCHED:
	case ORCH_ACTION_UNKNOWN:
		break;
	default:
		return 0;
	}
	if (policy == ORCH_POLICY_REPEATABLE || answer == ORCH_OUTCOME_NOT_APPLIED)
		return ORCH_ACTION_FAILED;
	if (answer == ORCH_OUTCOME_APPLIED)
		return ORCH_ACTION_CONFIRMED;
	if (answer == ORCH_OUTCOME_IN_FLIGHT)
		return state;
	return policy == ORCH_POLICY_NEVER_REPEAT ? ORCH_ACTION_HANDED_OVER : ORCH_ACTION_UNKNOWN;
}

static void recover_one(uint32_t state, uint32_t policy, uint32_t answer, bool own)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "k", policy, state));
	if (!own) {
		orch_journal_unref(journal);
		journal = open_journal();
	}
	struct probing probing = {.answer = answer};
	orch_recovery *recovery = NULL;
	OK(kit_recover(journal, NULL, probe, &probing, &recovery, &error));
	uint32_t expected = decided(state, policy, answer, own);
	bool probes = expected && policy != ORCH_POLICY_REPEATABLE &&
		      (state == ORCH_ACTION_DISPATCHED || state == ORCH_ACTION_UNKNOWN);
	ck_assert_int_eq(probing.calls, probes);
	ck_assert_uint_eq(orch_recovery_count(recovery), expected != 0);
	ck_assert_uint_eq(state_of(journal, "k"), expected ? expected : state);
	if (expected) {
		orch_action *action = NULL;
		uint32_t before = 0, verdict = 9;
		const char *decision = NULL;
		ck_assert_int_eq(
			orch_recovery_row(recovery, 0, &action, &before, &verdict, &decision), 0);
		ck_assert_uint_eq(before, state);
		ck_assert_uint_eq(orch_action_state(action), expected);
		ck_assert_uint_eq(verdict, !probes ? 0 : answer ? answer : ORCH_OUTCOME_UNKNOWN);
		ck_assert_ptr_nonnull(strstr(orch_recovery_text(recovery), decision));
		if (expected == ORCH_ACTION_CONFIRMED && probes)
			ck_assert_mem_eq(orch_action_result(action, NULL), "probed", 6);
		if (expected == ORCH_ACTION_FAILED)
			orch_action_unref(begin(journal, "k", 0, ORCH_BEGIN_FRESH));
	}
	ck_assert_int_eq(orch_recovery_row(recovery, 1, NULL, NULL, NULL, NULL), ORCH_EINVAL);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_recovery_unref(recovery);
	orch_journal_unref(journal);
}

START_TEST(recovery_decides_by_the_table)
{
	for (uint32_t state = 1; state <= STATES; state++)
		for (size_t p = 0; p < 3; p++)
			for (uint32_t answer = 0; answer <= ORCH_OUTCOME_UNKNOWN; answer++)
				for (int own = 0; own < 2; own++) {
					recover_one(state, all_policies[p], answer, own);
					kit_teardown();
					kit_setup();
				}
}
END_TEST

START_TEST(recovery_of_one_kind_and_without_a_probe)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "k\n2 fake lines", 0, ORCH_ACTION_DISPATCHED));
	orch_journal_unref(journal);
	journal = open_journal();
	orch_recovery *recovery = NULL;
	OK(kit_recover(journal, "other", NULL, NULL, &recovery, &error));
	ck_assert_uint_eq(orch_recovery_count(recovery), 0);
	orch_recovery_unref(recovery);
	OK(kit_recover(journal, "test.", NULL, NULL, &recovery, &error));
	ck_assert_uint_eq(orch_recovery_count(recovery), 1);
	ck_assert_uint_eq(state_of(journal, "k\n2 fake lines"), ORCH_ACTION_HANDED_OVER);
	ck_assert_ptr_null(strstr(orch_recovery_text(recovery), "\n2 fake"));
	orch_recovery_unref(recovery);
	OK(kit_recover(journal, NULL, NULL, NULL, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* The probe of one action finishes another one that recovery is going to come to. */
static void meddle(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	orch_journal *journal = userdata;
	const char *keys[] = {"a", "b"};
	for (int i = 0; i < 2; i++) {
		orch_action *found = find(journal, keys[i]);
		if (orch_action_state(found) == ORCH_ACTION_DISPATCHED)
			OK(orch_action_observe(found, "meddled", 7, &error));
		orch_action_unref(found);
	}
	ck_assert_int_eq(orch_probe_reply_answer(reply, ORCH_OUTCOME_NOT_APPLIED, NULL, 0), 0);
	ck_assert_str_eq(orch_action_key(action), "a");
}

START_TEST(recovery_yields_to_who_was_first)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "a", 0, ORCH_ACTION_DISPATCHED));
	orch_action_unref(make(journal, "b", 0, ORCH_ACTION_DISPATCHED));
	orch_journal_unref(journal);
	journal = open_journal();
	OK(kit_recover(journal, NULL, meddle, journal, NULL, &error));
	ck_assert_uint_eq(state_of(journal, "a"), ORCH_ACTION_OBSERVED);
	ck_assert_uint_eq(state_of(journal, "b"), ORCH_ACTION_OBSERVED);
	orch_journal_unref(journal);
}
END_TEST

/* --- payloads, look-up, arguments
 * --------------------------------------------------------------------- */

START_TEST(payloads_are_bytes)
{
	static const char odd[] = "\0\xff\xfe\xc0\x80 \xed\xa0\x80\r\n\0";
	orch_journal *journal = open_journal();
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "k";
	opts.key = "\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87";
	opts.request = odd;
	opts.request_length = sizeof(odd);
	orch_action *action = NULL;
	uint32_t outcome;
	OK(orch_journal_begin(journal, &opts, &outcome, &action, &error));
	OK(orch_action_dispatch(action, &error));
	OK(orch_action_observe(action, odd, sizeof(odd) - 1, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	action = find(journal, opts.key);
	size_t length = 0;
	ck_assert_mem_eq(orch_action_request(action, &length), odd, sizeof(odd));
	ck_assert_uint_eq(length, sizeof(odd));
	ck_assert_mem_eq(orch_action_result(action, &length), odd, sizeof(odd) - 1);
	ck_assert_uint_eq(length, sizeof(odd) - 1);
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(payloads_have_a_limit)
{
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = journal_path;
	opts.payload_limit = 100;
	orch_journal *journal = NULL;
	OK(orch_journal_open(&opts, &journal, &error));
	char big[102];
	memset(big, 'x', sizeof(big));
	struct orch_action_opts action_opts;
	orch_action_opts_init(&action_opts, sizeof(action_opts));
	action_opts.kind = action_opts.key = "k";
	action_opts.request = big;
	action_opts.request_length = 101;
	orch_action *action = (void *)1;
	uint32_t outcome = 77;
	uint64_t sequence = orch_journal_sequence(journal);
	FAILS(ORCH_ETOOBIG, orch_journal_begin(journal, &action_opts, &outcome, &action, &error));
	FAILS(ORCH_ETOOBIG, orch_journal_record(journal, "k", "k", big, 101, NULL, &error));
	ck_assert_uint_eq(outcome, 77);
	ck_assert_ptr_eq(action, (void *)1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	FAILS(ORCH_ENOENT, orch_journal_find(journal, "k", &action, &error));

	action_opts.request_length = 100;
	OK(orch_journal_begin(journal, &action_opts, &outcome, &action, &error));
	OK(orch_action_dispatch(action, &error));
	OK(orch_action_observe(action, big, 101, &error));
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_OBSERVED);
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	action = find(journal, "k");
	/* printf 'x%.0s' {1..101} | sha256sum */
	static const char digest[] =
		"sha256:c675a2e604b0cd1229c036e3ce0c87422980a245e295bbc605a507a2299752db bytes:101";
	size_t length = 0;
	const char *result = orch_action_result(action, &length);
	ck_assert_str_eq(result, digest);
	ck_assert_uint_eq(length, strlen(digest));
	OK(orch_journal_verify(journal, NULL, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

static int32_t collect(void *userdata, orch_action *action)
{
	char *keys = userdata;
	strcat(strcat(keys, orch_action_key(action)), " ");
	return strcmp(orch_action_key(action), "stop") == 0 ? 42 : 0;
}

static int32_t advance(void *userdata, orch_action *action)
{
	(void)userdata;
	return orch_action_state(action) == ORCH_ACTION_INTENT ? orch_action_dispatch(action, NULL)
							       : 0;
}

START_TEST(walking)
{
	orch_journal *journal = open_journal();
	OK(orch_journal_record(journal, "b.x", "2", NULL, 0, NULL, &error));
	OK(orch_journal_record(journal, "a.y", "1", NULL, 0, NULL, &error));
	OK(orch_journal_record(journal, "b", "0", NULL, 0, NULL, &error));
	orch_action_unref(begin(journal, "t", 0, ORCH_BEGIN_FRESH));
	char keys[64] = "";
	OK(orch_journal_each(journal, NULL, collect, keys, &error));
	ck_assert_str_eq(keys, "2 1 0 t ");
	*keys = '\0';
	OK(orch_journal_each(journal, "b.", collect, keys, &error));
	ck_assert_str_eq(keys, "2 ");
	OK(orch_journal_each(journal, "test.", advance, NULL, &error));
	ck_assert_uint_eq(state_of(journal, "t"), ORCH_ACTION_DISPATCHED);
	OK(orch_journal_record(journal, "a", "stop", NULL, 0, NULL, &error));
	OK(orch_journal_record(journal, "a", "after", NULL, 0, NULL, &error));
	*keys = '\0';
	ck_assert_int_eq(orch_journal_each(journal, NULL, collect, keys, NULL), 42);
	ck_assert_str_eq(keys, "2 1 0 t stop ");
	FAILS(ORCH_EINVAL, orch_journal_each(journal, NULL, NULL, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

static void count_destroy(void *userdata)
{
	++*(int *)userdata;
}

START_TEST(options)
{
	int destroyed = 0;
	orch_journal *journal = (void *)1;
	struct {
		struct orch_journal_opts known;
		uint64_t tail;
	} newer = {
		.known = {.size = sizeof(newer), .path = journal_path, .destroy = count_destroy}};
	newer.known.userdata = &destroyed;
	newer.tail = 1;
	FAILS(ORCH_E2BIG, orch_journal_open(&newer.known, &journal, &error));
	ck_assert_int_eq(destroyed, 1);
	struct orch_journal_opts opts = {.size = sizeof(opts), .userdata = &destroyed};
	opts.destroy = count_destroy;
	FAILS(ORCH_EINVAL, orch_journal_open(&opts, &journal, &error));
	ck_assert_int_eq(destroyed, 2);
	opts.path = journal_path;
	opts.flags = 1u << 31;
	FAILS(ORCH_EINVAL, orch_journal_open(&opts, &journal, &error));
	opts.flags = 0;
	opts.payload_limit = UINT64_MAX;
	FAILS(ORCH_EINVAL, orch_journal_open(&opts, &journal, &error));
	FAILS(ORCH_EINVAL, orch_journal_open(NULL, &journal, &error));
	ck_assert_int_eq(destroyed, 4);
	ck_assert_ptr_eq(journal, (void *)1);
	opts.payload_limit = 0;
	FAILS(ORCH_EINVAL, orch_journal_open(&opts, NULL, &error));
	ck_assert_int_eq(destroyed, 5);
	newer.tail = 0;
	OK(orch_journal_open(&newer.known, &journal, &error));
	ck_assert_ptr_eq(orch_journal_ref(journal), journal);
	ck_assert_ptr_null(orch_journal_unref(journal));
	ck_assert_int_eq(destroyed, 5);
	ck_assert_ptr_null(orch_journal_unref(journal));
	ck_assert_int_eq(destroyed, 6);
}
END_TEST

static void begin_refused(orch_journal *journal, const struct orch_action_opts *opts)
{
	uint64_t sequence = orch_journal_sequence(journal);
	uint32_t outcome = 77;
	orch_action *action = (void *)1;
	FAILS(ORCH_EINVAL, orch_journal_begin(journal, opts, &outcome, &action, &error));
	ck_assert_uint_eq(outcome, 77);
	ck_assert_ptr_eq(action, (void *)1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
}

START_TEST(arguments)
{
	orch_journal *journal = open_journal();
	char long_kind[66], long_key[258];
	memset(long_kind, 'k', sizeof(long_kind));
	memset(long_key, 'k', sizeof(long_key));
	long_kind[64] = long_key[256] = '\0';
	struct orch_action_opts good, opts;
	orch_action_opts_init(&good, sizeof(good));
	good.kind = "k";
	good.key = "k";
	const char *const kinds[] = {NULL, "", "K", "a b", "a/b", "\xc3\xa9", long_kind};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		opts = good;
		opts.kind = kinds[i];
		begin_refused(journal, &opts);
	}
	/* Not UTF-8: a stray byte, a cut sequence, an overlong one, a surrogate, above U+10FFFF. */
	const char *const keys[] = {NULL,
				    "",
				    long_key,
				    "\x80",
				    "a\xc3",
				    "\xc0\xaf",
				    "\xe0\x80\xaf",
				    "\xed\xa0\x80",
				    "\xf4\x90\x80\x80",
				    "\xff",
				    "\xf0\x9f\x98"};
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		opts = good;
		opts.key = keys[i];
		begin_refused(journal, &opts);
	}
	opts = good;
	opts.policy = 4;
	begin_refused(journal, &opts);
	opts = good;
	opts.reserved = 1;
	begin_refused(journal, &opts);
	opts = good;
	opts.request_length = 1;
	begin_refused(journal, &opts);
	opts = good;
	opts.fingerprint = long_key;
	opts.fingerprint_length = 65;
	begin_refused(journal, &opts);
	begin_refused(journal, NULL);

	long_kind[63] = long_key[255] = '\0';
	good.kind = long_kind;
	good.key = long_key;
	good.fingerprint = long_key;
	good.fingerprint_length = 64;
	uint32_t outcome;
	orch_action *action = NULL;
	OK(orch_journal_begin(journal, &good, &outcome, &action, &error));
	orch_action *again = find(journal, long_key);
	ck_assert_uint_eq(orch_action_id(again), orch_action_id(action));
	orch_action_unref(again);
	good.key = "\xf0\x9f\x98\x80";
	again = NULL;
	OK(orch_journal_begin(journal, &good, &outcome, &again, &error));
	orch_action_unref(again);

	FAILS(ORCH_EINVAL, orch_action_fail(action, NULL, 3, &error));
	FAILS(ORCH_EINVAL, orch_action_dispatch(NULL, &error));
	FAILS(ORCH_EINVAL, orch_action_resolve(NULL, 1, NULL, 0, &error));
	FAILS(ORCH_EINVAL, orch_journal_verify(NULL, NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_find(journal, NULL, &again, &error));
	FAILS(ORCH_ESTATE, orch_action_resolve(action, ORCH_OUTCOME_APPLIED, NULL, 0, &error));
	OK(orch_action_dispatch(action, &error));
	FAILS(ORCH_EINVAL, orch_action_resolve(action, 5, NULL, 0, &error));
	ck_assert_int_eq(orch_action_dispatch(NULL, NULL), ORCH_EINVAL);
	ck_assert_str_eq(orch_action_key(NULL), "");
	ck_assert_str_eq(orch_action_state_name(0), "?");
	ck_assert_ptr_null(orch_action_unref(NULL));
	ck_assert_ptr_null(orch_recovery_unref(NULL));
	ck_assert_ptr_null(orch_journal_unref(NULL));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal");
	TCase *tests = tcase_create("journal");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, a_whole_life);
	tcase_add_test(tests, each_transition_from_each_state);
	tcase_add_test(tests, what_begin_finds);
	tcase_add_test(tests, another_request_under_the_same_key);
	tcase_add_test(tests, the_first_observation_wins);
	tcase_add_test(tests, an_earlier_attempt_cannot_write);
	tcase_add_test(tests, payloads_live_as_long_as_the_action);
	tcase_add_test(tests, records);
	tcase_add_test(tests, one_call_per_record);
	tcase_add_test(tests, recovery_decides_by_the_table);
	tcase_add_test(tests, recovery_of_one_kind_and_without_a_probe);
	tcase_add_test(tests, recovery_yields_to_who_was_first);
	tcase_add_test(tests, payloads_are_bytes);
	tcase_add_test(tests, payloads_have_a_limit);
	tcase_add_test(tests, walking);
	tcase_add_test(tests, options);
	tcase_add_test(tests, arguments);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
