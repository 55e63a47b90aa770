/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery with a host that decides and is told: what it may choose, who else may move an action
 * meanwhile, kills between a record and the call that tells of it. The table itself is in
 * test-journal.c.
 */
#include <stdbool.h>

#include "journal/journal-private.h"

#include "../crash/journal-kit.h"

/* --- what decide() may choose
 * ----------------------------------------------------------------------- */

/* The answer of the probe; 0: it drops the reply. */
#define CHOICES 7u /* 0 and 6 are none */

/*
 * By the header, written down apart from the library's own rules. In `reached`, for CONTINUE,
 * VERIFY, RETRY, HAND_OVER and ABANDON: the first letter of the state that it ends in ("W": as it
 * was); ".": not taken.
 */
static const struct situation {
	uint32_t state, policy, answer;
	uint32_t outcome, proposed;
	const char *reached;
} situations[] = {
	/* clang-format off */
	{ORCH_ACTION_INTENT, ORCH_POLICY_REPEATABLE, 1, 0, ORCH_RECOVER_RETRY, "..FHA"},
	{ORCH_ACTION_INTENT, ORCH_POLICY_NEVER_REPEAT, 1, 0, ORCH_RECOVER_RETRY, "..FHA"},
	{ORCH_ACTION_OBSERVED, ORCH_POLICY_REPEATABLE, 2, 0, ORCH_RECOVER_CONTINUE, "C...."},
	{ORCH_ACTION_OBSERVED, ORCH_POLICY_NEVER_REPEAT, 2, 0, ORCH_RECOVER_CONTINUE, "C...."},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_REPEATABLE, 1, 0, ORCH_RECOVER_RETRY, ".UFHA"},
	{ORCH_ACTION_UNKNOWN, ORCH_POLICY_REPEATABLE, 1, 0, ORCH_RECOVER_RETRY, ".WFHA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_PROBE_FIRST, 1, 1, ORCH_RECOVER_CONTINUE, "CU.HA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_PROBE_FIRST, 2, 2, ORCH_RECOVER_RETRY, ".UFHA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_PROBE_FIRST, 3, 3, ORCH_RECOVER_VERIFY, ".W.HA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_PROBE_FIRST, 4, 4, ORCH_RECOVER_VERIFY, ".U.HA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_PROBE_FIRST, 0, 4, ORCH_RECOVER_VERIFY, ".U.HA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_NEVER_REPEAT, 1, 1, ORCH_RECOVER_CONTINUE, "CU.HA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_NEVER_REPEAT, 2, 2, ORCH_RECOVER_RETRY, ".UFHA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_NEVER_REPEAT, 3, 3, ORCH_RECOVER_VERIFY, ".W.HA"},
	{ORCH_ACTION_DISPATCHED, ORCH_POLICY_NEVER_REPEAT, 4, 4, ORCH_RECOVER_HAND_OVER, ".U.HA"},
	{ORCH_ACTION_UNKNOWN, ORCH_POLICY_PROBE_FIRST, 1, 1, ORCH_RECOVER_CONTINUE, "CW.HA"},
	{ORCH_ACTION_UNKNOWN, ORCH_POLICY_PROBE_FIRST, 2, 2, ORCH_RECOVER_RETRY, ".WFHA"},
	{ORCH_ACTION_UNKNOWN, ORCH_POLICY_PROBE_FIRST, 3, 3, ORCH_RECOVER_VERIFY, ".W.HA"},
	{ORCH_ACTION_UNKNOWN, ORCH_POLICY_NEVER_REPEAT, 4, 4, ORCH_RECOVER_HAND_OVER, ".W.HA"},
	{ORCH_ACTION_UNKNOWN, ORCH_POLICY_NEVER_REPEAT, 0, 4, ORCH_RECOVER_HAND_OVER, ".W.HA"},
	/* clang-format on */
};
#define SITUATIONS (sizeof(situations) / sizeof(situations[0]))

static void key_of(char key[16], size_t situation, uint32_t choice)
{
	snprintf(key, 16, "%zu/%u", situation, choice);
}

static const struct situation *read_key(const orch_action *action, uint32_t *choice)
{
	size_t index = 0;
	ck_assert_int_eq(sscanf(orch_action_key(action), "%zu/%u", &index, choice), 2);
	ck_assert_uint_lt(index, SITUATIONS);
	return &situations[index];
}

struct host {
	unsigned probed, asked, told;
	orch_journal *journal;
};

static void situation_probe(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	uint32_t choice;
	const struct situation *situation = read_key(action, &choice);
	ck_assert_uint_ne(situation->outcome, 0);
	if (situation->answer)
		ck_assert_int_eq(orch_probe_reply_answer(reply, situation->answer, "probed", 6), 0);
	((struct host *)userdata)->probed++;
}

static uint32_t situation_decide(void *userdata, orch_action *action, uint32_t outcome,
				 uint32_t proposed)
{
	uint32_t choice;
	const struct situation *situation = read_key(action, &choice);
	ck_assert_msg(outcome == situation->outcome && proposed == situation->proposed,
		      "%s: decide() was given %u and %u", orch_action_key(action), outcome,
		      proposed);
	ck_assert_uint_eq(orch_action_state(action), situation->state);
	((struct host *)userdata)->asked++;
	return choice;
}

static void count_told(void *userdata, orch_action *action)
{
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_HANDED_OVER);
	((struct host *)userdata)->told++;
}

static uint32_t reached_by(const struct situation *situation, uint32_t choice, bool *taken)
{
	char letter = choice < 1 || choice > 5 ? '.' : situation->reached[choice - 1];
	*taken = letter != '.';
	if (!*taken)
		letter = situation->reached[situation->proposed - 1];
	switch (letter) {
	case 'C':
		return ORCH_ACTION_CONFIRMED;
	case 'U':
		return ORCH_ACTION_UNKNOWN;
	case 'F':
		return ORCH_ACTION_FAILED;
	case 'H':
		return ORCH_ACTION_HANDED_OVER;
	case 'A':
		return ORCH_ACTION_ABANDONED;
	default:
		return situation->state;
	}
}

static void judge_row(const orch_recovery *recovery, uint32_t index)
{
	static const char *const names[] = {"what is no", "continue", "verify",	   "retry",
					    "hand over",  "abandon",  "what is no"};
	orch_action *action = NULL;
	uint32_t before = 0, probe = 0, choice;
	const char *decision = NULL;
	bool taken;
	ck_assert_int_eq(orch_recovery_row(recovery, index, &action, &before, &probe, &decision),
			 0);
	const struct situation *situation = read_key(action, &choice);
	uint32_t reached = reached_by(situation, choice, &taken);
	ck_assert_uint_eq(before, situation->state);
	ck_assert_uint_eq(probe, situation->outcome);
	ck_assert_msg(orch_action_state(action) == reached, "situation %s is %s: %s",
		      orch_action_key(action), orch_action_state_name(orch_action_state(action)),
		      decision);
	ck_assert_ptr_nonnull(strstr(orch_recovery_text(recovery), decision));
	bool told = strstr(decision, "decide()") != NULL;
	ck_assert_msg(told == (choice != situation->proposed), "%s: %s", orch_action_key(action),
		      decision);
	if (told)
		ck_assert_msg(strstr(decision, names[choice]) &&
				      (strstr(decision, "chosen by") != NULL) == taken,
			      "%s: %s", orch_action_key(action), decision);
	/* What the probe brought is kept, whatever was chosen. */
	if (situation->answer && situation->outcome && reached != situation->state)
		ck_assert_mem_eq(orch_action_result(action, NULL), "probed", 6);
	else if (reached != situation->state && reached != ORCH_ACTION_CONFIRMED)
		ck_assert_ptr_nonnull(orch_action_result(action, NULL));
}

START_TEST(each_choice_in_each_situation)
{
	char key[16];
	orch_journal *journal = open_journal();
	for (size_t i = 0; i < SITUATIONS; i++)
		for (uint32_t choice = 0; choice < CHOICES; choice++) {
			key_of(key, i, choice);
			orch_action_unref(
				make(journal, key, situations[i].policy, situations[i].state));
		}
	orch_journal_unref(journal);
	journal = open_journal();
	struct host host = {0};
	struct orch_recover_opts opts;
	orch_recover_opts_init(&opts, sizeof(opts));
	opts.probe = situation_probe;
	opts.decide = situation_decide;
	opts.hand_over = count_told;
	opts.userdata = &host;
	orch_recovery *recovery = NULL;
	OK(orch_journal_recover(journal, &opts, &recovery, &error));
	ck_assert_uint_eq(orch_recovery_count(recovery), SITUATIONS * CHOICES);
	ck_assert_uint_eq(host.asked, SITUATIONS * CHOICES);
	unsigned handed_over = 0;
	for (uint32_t i = 0; i < orch_recovery_count(recovery); i++)
		judge_row(recovery, i);
	for (size_t i = 0; i < SITUATIONS; i++)
		for (uint32_t choice = 0; choice < CHOICES; choice++) {
			bool taken;
			key_of(key, i, choice);
			uint32_t reached = reached_by(&situations[i], choice, &taken);
			ck_assert_uint_eq(state_of(journal, key), reached);
			handed_over += reached == ORCH_ACTION_HANDED_OVER;
		}
	ck_assert_uint_gt(handed_over, 20);
	ck_assert_uint_eq(host.told, handed_over);
	orch_recovery_unref(recovery);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* --- who waits for a person
 * ------------------------------------------------------------------------- */

static int32_t recover(orch_journal *journal, const char *kind_prefix, orch_decide_fn decide,
		       orch_hand_over_fn hand_over, void *userdata, orch_recovery **recovery,
		       orch_error **reterr)
{
	struct orch_recover_opts opts;
	orch_recover_opts_init(&opts, sizeof(opts));
	opts.kind_prefix = kind_prefix;
	opts.decide = decide;
	opts.hand_over = hand_over;
	opts.userdata = userdata;
	return orch_journal_recover(journal, &opts, recovery, reterr);
}

static uint32_t never_asked(void *userdata, orch_action *action, uint32_t outcome,
			    uint32_t proposed)
{
	(void)userdata;
	(void)outcome;
	(void)proposed;
	ck_abort_msg("decide() was asked about %s", orch_action_key(action));
}

START_TEST(who_waits_is_told_each_time)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "waits", 0, ORCH_ACTION_HANDED_OVER));
	orch_action_unref(make(journal, "done", 0, ORCH_ACTION_CONFIRMED));
	orch_action_unref(make(journal, "late", 0, ORCH_ACTION_DISPATCHED));
	struct host host = {0};
	orch_recovery *recovery = NULL;
	/* Also those of this very generation, and nobody is asked about them. */
	OK(recover(journal, NULL, never_asked, count_told, &host, &recovery, &error));
	ck_assert_uint_eq(host.told, 1);
	ck_assert_uint_eq(orch_recovery_count(recovery), 1);
	orch_recovery_unref(recovery);
	orch_journal_unref(journal);
	journal = open_journal();
	OK(recover(journal, "other", NULL, count_told, &host, &recovery, &error));
	ck_assert_uint_eq(host.told, 1);
	ck_assert_uint_eq(orch_recovery_count(recovery), 0);
	orch_recovery_unref(recovery);
	/* "late" becomes one of them in this recovery, and is told once. */
	OK(recover(journal, "test.", NULL, count_told, &host, &recovery, &error));
	ck_assert_uint_eq(host.told, 3);
	ck_assert_uint_eq(orch_recovery_count(recovery), 2);
	orch_action *action = NULL;
	uint32_t before = 0, probe = 9;
	const char *decision = NULL;
	ck_assert_int_eq(orch_recovery_row(recovery, 1, &action, &before, &probe, &decision), 0);
	ck_assert_str_eq(orch_action_key(action), "waits");
	ck_assert_uint_eq(before, ORCH_ACTION_HANDED_OVER);
	ck_assert_uint_eq(probe, 0);
	ck_assert_ptr_nonnull(strstr(decision, "a person decides"));
	ck_assert_ptr_nonnull(strstr(orch_recovery_text(recovery), "2 waiting for a person"));
	orch_recovery_unref(recovery);
	uint64_t sequence = orch_journal_sequence(journal);
	OK(recover(journal, NULL, NULL, count_told, &host, NULL, &error));
	ck_assert_uint_eq(host.told, 5);
	OK(recover(journal, NULL, NULL, NULL, NULL, NULL, &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	/* Until somebody decided. */
	action = find(journal, "waits");
	OK(orch_action_decide(action, ORCH_DECISION_APPLIED, "ann", NULL, 0, &error));
	orch_action_unref(action);
	OK(recover(journal, NULL, NULL, count_told, &host, NULL, &error));
	ck_assert_uint_eq(host.told, 6);
	orch_journal_unref(journal);
}
END_TEST

static void die(void *userdata, orch_action *action)
{
	(void)userdata;
	(void)action;
	kill(getpid(), SIGKILL);
}

static void die_at_record(void *userdata, uint64_t sequence)
{
	if (sequence == *(uint64_t *)userdata)
		kill(getpid(), SIGKILL);
}

/* `userdata`: the record to die at, or NULL for the call. */
static void recover_and_die(void *userdata)
{
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, NULL, userdata ? die_at_record : NULL, userdata, &error));
	OK(recover(journal, NULL, NULL, die, NULL, NULL, &error));
}

START_TEST(killed_between_the_record_and_the_call)
{
	for (int at_call = 0; at_call < 2; at_call++) {
		orch_journal *journal = open_journal();
		orch_action_unref(make(journal, "k", 0, ORCH_ACTION_DISPATCHED));
		/* The next is the generation's, then the one of HANDED_OVER. */
		uint64_t record = orch_journal_sequence(journal) + 2;
		orch_journal_unref(journal);
		ck_assert_int_eq(WTERMSIG(in_child(recover_and_die, at_call ? NULL : &record)),
				 SIGKILL);
		journal = open_journal();
		ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_HANDED_OVER);
		struct host host = {0};
		OK(recover(journal, NULL, NULL, count_told, &host, NULL, &error));
		ck_assert_uint_eq(host.told, 1);
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
		kit_teardown();
		kit_setup();
	}
}
END_TEST

/* --- killed at each record, and run again
 * ----------------------------------------------------------- */

struct killing {
	uint64_t at, last;
	unsigned told;
};

static void count_and_die(void *userdata, uint64_t sequence)
{
	struct killing *killing = userdata;
	killing->last = sequence;
	if (sequence == killing->at)
		kill(getpid(), SIGKILL);
}

static uint32_t choose_by_key(void *userdata, orch_action *action, uint32_t outcome,
			      uint32_t proposed)
{
	(void)userdata;
	(void)outcome;
	uint32_t choice = (uint32_t)(orch_action_key(action)[0] - '0');
	return choice ? choice : proposed;
}

static void applied(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	(void)userdata;
	(void)action;
	orch_probe_reply_answer(reply, ORCH_OUTCOME_APPLIED, "probed", 6);
}

static void tell(void *userdata, orch_action *action)
{
	(void)action;
	((struct killing *)userdata)->told++;
}

static void recover_until_killed(void *userdata)
{
	struct killing *killing = userdata;
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, NULL, count_and_die, killing, &error));
	killing->told = 0;
	struct orch_recover_opts opts;
	orch_recover_opts_init(&opts, sizeof(opts));
	opts.probe = applied;
	opts.decide = choose_by_key;
	opts.hand_over = tell;
	opts.userdata = killing;
	OK(orch_journal_recover(journal, &opts, NULL, &error));
	orch_journal_unref(journal);
}

START_TEST(killed_at_each_record_and_run_again)
{
	static const struct {
		const char *key;
		uint32_t before, after;
	} actions[] = {
		{"0/intent", ORCH_ACTION_INTENT, ORCH_ACTION_FAILED},
		{"4/intent", ORCH_ACTION_INTENT, ORCH_ACTION_HANDED_OVER},
		{"1/sent", ORCH_ACTION_DISPATCHED, ORCH_ACTION_CONFIRMED},
		{"2/sent", ORCH_ACTION_DISPATCHED, ORCH_ACTION_UNKNOWN},
		{"5/sent", ORCH_ACTION_DISPATCHED, ORCH_ACTION_ABANDONED},
		{"3/sent", ORCH_ACTION_DISPATCHED, ORCH_ACTION_CONFIRMED}, /* not taken */
		{"5/seen", ORCH_ACTION_OBSERVED, ORCH_ACTION_CONFIRMED},   /* not taken */
		{"4/unknown", ORCH_ACTION_UNKNOWN, ORCH_ACTION_HANDED_OVER},
		{"0/waits", ORCH_ACTION_HANDED_OVER, ORCH_ACTION_HANDED_OVER},
	};
	const size_t count = sizeof(actions) / sizeof(actions[0]);
	struct killing *killing = mmap(NULL, sizeof(*killing), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(killing, MAP_FAILED);
	unsigned kills = 0;
	for (uint64_t at = 1;; at++) {
		orch_journal *journal = open_journal();
		for (size_t i = 0; i < count; i++)
			orch_action_unref(make(journal, actions[i].key, 0, actions[i].before));
		uint64_t filled = orch_journal_sequence(journal);
		orch_journal_unref(journal);
		killing->at = filled + at;
		bool killed = in_child(recover_until_killed, killing) != 0;
		kills += killed;
		killing->at = UINT64_MAX;
		ck_assert_int_eq(in_child(recover_until_killed, killing), 0);
		ck_assert_uint_eq(killing->told, 3);
		journal = open_journal();
		for (size_t i = 0; i < count; i++)
			ck_assert_msg(state_of(journal, actions[i].key) == actions[i].after,
				      "killed at record %llu: %s", (unsigned long long)at,
				      actions[i].key);
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
		kit_teardown();
		kit_setup();
		if (!killed)
			break;
	}
	ck_assert_uint_eq(kills,
			  11); /* a generation, 8 actions with a move, and two of them with two */
	munmap(killing, sizeof(*killing));
}
END_TEST

/* --- callbacks that move actions
 * -------------------------------------------------------------------- */

enum meddling { BY_THIS_HANDLE, BY_ANOTHER, BY_RECOVERY, MEDDLINGS };

static struct meddler {
	orch_journal *journal;
	enum meddling how;
	uint32_t answer; /* of the probe */
	bool in_decide;
} meddler;

static void meddle(orch_action *action)
{
	if (meddler.how == BY_RECOVERY) {
		/* Without a probe: nobody can tell. */
		OK(orch_journal_recover(meddler.journal, NULL, NULL, &error));
		return;
	}
	orch_action *moved = meddler.how == BY_THIS_HANDLE ? orch_action_ref(action)
							   : find(meddler.journal, "k");
	OK(orch_action_observe(moved, "meddled", 7, &error));
	orch_action_unref(moved);
}

static void meddling_probe(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	(void)userdata;
	if (!meddler.in_decide)
		meddle(action);
	orch_probe_reply_answer(reply, meddler.answer, "probed", 6);
}

static uint32_t meddling_decide(void *userdata, orch_action *action, uint32_t outcome,
				uint32_t proposed)
{
	(void)userdata;
	(void)outcome;
	if (meddler.in_decide)
		meddle(action);
	return proposed;
}

/* It is left to who moved it, and the report tells how it is. */
START_TEST(moved_on_by_a_callback)
{
	for (int i = 0; i < MEDDLINGS * 2 * 4; i++) {
		meddler.how = (enum meddling)(i % MEDDLINGS);
		meddler.in_decide = i / MEDDLINGS % 2;
		meddler.answer = (uint32_t)(i / MEDDLINGS / 2 + 1);
		orch_journal *journal = open_journal();
		orch_action_unref(make(journal, "k", 0, ORCH_ACTION_DISPATCHED));
		orch_journal_unref(journal);
		journal = meddler.journal = open_journal();
		struct orch_recover_opts opts;
		orch_recover_opts_init(&opts, sizeof(opts));
		opts.probe = meddling_probe;
		opts.decide = meddling_decide;
		orch_recovery *recovery = NULL;
		OK(orch_journal_recover(journal, &opts, &recovery, &error));
		uint32_t expected =
			meddler.how == BY_RECOVERY ? ORCH_ACTION_HANDED_OVER : ORCH_ACTION_OBSERVED;
		ck_assert_uint_eq(state_of(journal, "k"), expected);
		orch_action *action = NULL;
		const char *decision = NULL;
		ck_assert_int_eq(orch_recovery_row(recovery, 0, &action, NULL, NULL, &decision), 0);
		ck_assert_msg(strcmp(decision, "none: it was moved on while it was probed") == 0,
			      "case %d: %s", i, decision);
		ck_assert_uint_eq(orch_action_state(action), expected);
		if (expected == ORCH_ACTION_OBSERVED)
			ck_assert_mem_eq(orch_action_result(action, NULL), "meddled", 7);
		orch_recovery_unref(recovery);
		OK(orch_journal_verify(journal, NULL, &error));
		orch_journal_unref(journal);
		kit_teardown();
		kit_setup();
	}
}
END_TEST

static void decide_at_once(void *userdata, orch_action *action)
{
	orch_action *decided = userdata ? orch_action_ref(action) : find(meddler.journal, "k");
	OK(orch_action_decide(decided, ORCH_DECISION_APPLIED, "ann", "seen", 4, &error));
	orch_action_unref(decided);
}

START_TEST(decided_in_the_call_that_tells)
{
	for (int own = 0; own < 2; own++)
		for (int earlier = 0; earlier < 2; earlier++) {
			orch_journal *journal = open_journal();
			orch_action_unref(
				make(journal, "k", 0,
				     earlier ? ORCH_ACTION_HANDED_OVER : ORCH_ACTION_DISPATCHED));
			orch_journal_unref(journal);
			journal = meddler.journal = open_journal();
			orch_recovery *recovery = NULL;
			OK(recover(journal, NULL, NULL, decide_at_once, own ? &own : NULL,
				   &recovery, &error));
			orch_action *action = NULL;
			ck_assert_int_eq(orch_recovery_row(recovery, 0, &action, NULL, NULL, NULL),
					 0);
			ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
			ck_assert_uint_eq(orch_action_decision(action, NULL, NULL),
					  ORCH_DECISION_APPLIED);
			ck_assert_ptr_nonnull(
				strstr(orch_recovery_text(recovery), "0 waiting for a person"));
			orch_recovery_unref(recovery);
			orch_journal_unref(journal);
			kit_teardown();
			kit_setup();
		}
}
END_TEST

/* --- how much is read, arguments
 * -------------------------------------------------------------------- */

/* Steps of SQLite's machine for what recovery asks first. */
static int steps_of_a_recovery(int closed)
{
	orch_journal *journal = open_journal();
	char key[16];
	orch_action_unref(make(journal, "open", 0, ORCH_ACTION_DISPATCHED));
	for (int i = 0; i < closed; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		OK(orch_journal_record(journal, "k", key, NULL, 0, NULL, &error));
	}
	orch_action_unref(make(journal, "waits", 0, ORCH_ACTION_HANDED_OVER));
	orch_journal_unref(journal);
	journal = open_journal();
	orch_recovery *recovery = NULL;
	OK(orch_journal_recover(journal, NULL, &recovery, &error));
	ck_assert_uint_eq(orch_recovery_count(recovery), 2);
	orch_recovery_unref(recovery);
	int steps = sqlite3_stmt_status(journal->statements[STATEMENT_OPEN_ACTIONS],
					SQLITE_STMTSTATUS_VM_STEP, 0);
	ck_assert_int_gt(steps, 0);
	ck_assert_int_eq(sqlite3_stmt_status(journal->statements[STATEMENT_OPEN_ACTIONS],
					     SQLITE_STMTSTATUS_SORT, 0),
			 0);
	orch_journal_unref(journal);
	kit_teardown();
	kit_setup();
	return steps;
}

START_TEST(closed_actions_are_not_read)
{
	ck_assert_int_eq(steps_of_a_recovery(3000), steps_of_a_recovery(0));
}
END_TEST

static void recover_in_a_child(void *userdata)
{
	FAILS(ORCH_EFORKED, orch_journal_recover(userdata, NULL, NULL, &error));
}

START_TEST(arguments)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "k", 0, ORCH_ACTION_UNKNOWN));
	uint64_t sequence = orch_journal_sequence(journal);
	orch_recovery *recovery = (void *)1;
	struct {
		struct orch_recover_opts known;
		uint64_t tail;
	} newer = {.known = {.size = sizeof(newer)}, .tail = 1};
	FAILS(ORCH_E2BIG, orch_journal_recover(journal, &newer.known, &recovery, &error));
	newer.tail = 0;
	newer.known.flags = 1;
	FAILS(ORCH_EINVAL, orch_journal_recover(journal, &newer.known, &recovery, &error));
	FAILS(ORCH_EINVAL, orch_journal_recover(NULL, NULL, &recovery, &error));
	ck_assert_int_eq(in_child(recover_in_a_child, journal), 0);
	ck_assert_ptr_eq(recovery, (void *)1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	orch_journal_unref(journal);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	FAILS(ORCH_ESTATE, orch_journal_recover(journal, NULL, &recovery, &error));
	ck_assert_ptr_eq(recovery, (void *)1);
	orch_journal_unref(journal);
	/* What is left out, and what is given as newer than the library, but zero. */
	journal = open_journal();
	newer.known.flags = 0;
	OK(orch_journal_recover(journal, &newer.known, &recovery, &error));
	ck_assert_uint_eq(orch_recovery_count(recovery), 1);
	orch_recovery_unref(recovery);
	OK(orch_journal_recover(journal, NULL, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("recovery");
	TCase *tests = tcase_create("recovery");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, each_choice_in_each_situation);
	tcase_add_test(tests, who_waits_is_told_each_time);
	tcase_add_test(tests, killed_between_the_record_and_the_call);
	tcase_add_test(tests, killed_at_each_record_and_run_again);
	tcase_add_test(tests, moved_on_by_a_callback);
	tcase_add_test(tests, decided_in_the_call_that_tells);
	tcase_add_test(tests, closed_actions_are_not_read);
	tcase_add_test(tests, arguments);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
