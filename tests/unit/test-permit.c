/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permits: each refusal beside a begin that is let through, expiry under a clock that is stepped,
 * who gets it when two ask at once. Kills are in tests/crash/journal-permits.c.
 */
#include <stdbool.h>

#include <orch/permit.h>

#include "../crash/journal-kit.h"

/* Linked with --wrap=orch_realtime_ms: the wall clock as somebody steps it. */
int64_t __real_orch_realtime_ms(void);
int64_t __wrap_orch_realtime_ms(void);

static int64_t stopped_at; /* 0: the clock goes */

int64_t __wrap_orch_realtime_ms(void)
{
	return stopped_at ? stopped_at : __real_orch_realtime_ms();
}

static void setup(void)
{
	stopped_at = 0;
	kit_setup();
}

/* --- short forms
 * ------------------------------------------------------------------------------------ */

static int32_t try_issue(orch_journal *journal, const char *name, const char *kind,
			 const char *fingerprint, int64_t expires_at_ms, orch_permit **permit,
			 orch_error **reterr)
{
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.kind = kind;
	opts.fingerprint = fingerprint;
	opts.fingerprint_length = fingerprint ? strlen(fingerprint) : 0;
	opts.expires_at_ms = expires_at_ms;
	return orch_permit_issue(journal, &opts, permit, reterr);
}

static void issue(orch_journal *journal, const char *name)
{
	OK(try_issue(journal, name, "test.action", NULL, 0, NULL, &error));
}

static int32_t try_begin(orch_journal *journal, const char *key, const char *permit,
			 uint32_t *outcome, orch_action **action, orch_error **reterr)
{
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = key;
	opts.request = "request";
	opts.request_length = 7;
	opts.fingerprint = "print";
	opts.fingerprint_length = 5;
	opts.permit = permit;
	return orch_journal_begin(journal, &opts, outcome, action, reterr);
}

static orch_action *begin_with(orch_journal *journal, const char *key, const char *permit,
			       uint32_t expected)
{
	orch_action *action = NULL;
	uint32_t outcome = 0;
	OK(try_begin(journal, key, permit, &outcome, &action, &error));
	ck_assert_uint_eq(outcome, expected);
	return action;
}

/* Nothing is recorded, nothing is set, and the message tells `why`. */
static void refused(orch_journal *journal, const char *key, const char *permit, const char *why)
{
	orch_action *action = (void *)1, *recorded = NULL;
	uint32_t outcome = 77;
	orch_error *error = NULL;
	int32_t before = orch_journal_find(journal, key, &recorded, NULL);
	uint32_t state = orch_action_state(recorded), attempt = orch_action_attempt(recorded);
	orch_action_unref(recorded);
	ck_assert_int_eq(try_begin(journal, key, permit, &outcome, &action, &error), ORCH_EPERMIT);
	ck_assert_msg(strstr(orch_error_message(error), why) != NULL &&
			      strstr(orch_error_message(error), permit) != NULL,
		      "\"%s\" does not tell \"%s\"", orch_error_message(error), why);
	ck_assert_int_eq(orch_error_code(error), ORCH_EPERMIT);
	orch_error_free(error);
	ck_assert_uint_eq(outcome, 77);
	ck_assert_ptr_eq(action, (void *)1);
	recorded = NULL;
	ck_assert_int_eq(orch_journal_find(journal, key, &recorded, NULL), before);
	ck_assert_uint_eq(orch_action_state(recorded), state);
	ck_assert_uint_eq(orch_action_attempt(recorded), attempt);
	orch_action_unref(recorded);
}

static void is(orch_journal *journal, const char *name, uint32_t state, uint64_t action)
{
	orch_permit *permit = NULL;
	OK(orch_permit_find(journal, name, &permit, &error));
	ck_assert_msg(orch_permit_state(permit) == state, "%s is %s and not %s", name,
		      orch_permit_state_name(orch_permit_state(permit)),
		      orch_permit_state_name(state));
	ck_assert_uint_eq(orch_permit_action(permit), action);
	orch_permit_unref(permit);
}

static void sound(orch_journal *journal)
{
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}

/* --- a permit's life
 * -------------------------------------------------------------------------------- */

START_TEST(what_is_issued_is_told)
{
	orch_journal *journal = open_journal();
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = "deploy/\xd0\xb0";
	opts.kind = "deploy.prod";
	opts.fingerprint = "\0\xff";
	opts.fingerprint_length = 2;
	opts.expires_at_ms = 1900000000000;
	opts.note = "a\0b";
	opts.note_length = 3;
	orch_permit *permit = NULL;
	uint64_t sequence = orch_journal_sequence(journal);
	OK(orch_permit_issue(journal, &opts, &permit, &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	for (int again = 0; again < 2; again++) {
		size_t length = 0;
		ck_assert_uint_eq(orch_permit_id(permit), 1);
		ck_assert_str_eq(orch_permit_name(permit), opts.name);
		ck_assert_str_eq(orch_permit_kind(permit), opts.kind);
		ck_assert_uint_eq(orch_permit_state(permit), ORCH_PERMIT_ISSUED);
		ck_assert_int_eq(orch_permit_expires_at_ms(permit), opts.expires_at_ms);
		ck_assert_uint_eq(orch_permit_epoch(permit), 1);
		ck_assert_uint_eq(orch_permit_action(permit), 0);
		ck_assert_mem_eq(orch_permit_note(permit, &length), "a\0b", 3);
		ck_assert_uint_eq(length, 3);
		ck_assert_ptr_eq(orch_permit_ref(permit), permit);
		orch_permit_unref(permit);
		ck_assert_ptr_null(orch_permit_unref(permit));
		orch_journal_unref(journal);
		journal = open_journal();
		OK(orch_permit_find(journal, opts.name, &permit, &error));
	}
	orch_permit_unref(permit);
	sound(journal);
}
END_TEST

START_TEST(issuing_again)
{
	orch_journal *journal = open_journal();
	OK(try_issue(journal, "p", "test.action", "print", 1900000000000, NULL, &error));
	uint64_t sequence = orch_journal_sequence(journal);
	orch_permit *permit = NULL, *untouched = (void *)1;
	OK(try_issue(journal, "p", "test.action", "print", 1900000000000, &permit, &error));
	ck_assert_uint_eq(orch_permit_state(permit), ORCH_PERMIT_ISSUED);
	orch_permit_unref(permit);
	FAILS(ORCH_ECONFLICT,
	      try_issue(journal, "p", "test.other", "print", 1900000000000, &untouched, &error));
	FAILS(ORCH_ECONFLICT,
	      try_issue(journal, "p", "test.action", "prinT", 1900000000000, &untouched, &error));
	FAILS(ORCH_ECONFLICT,
	      try_issue(journal, "p", "test.action", NULL, 1900000000000, &untouched, &error));
	FAILS(ORCH_ECONFLICT,
	      try_issue(journal, "p", "test.action", "print", 1900000000001, &untouched, &error));
	ck_assert_ptr_eq(untouched, (void *)1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	/* Used, and issued once more after a restart: it is told as it is, and works no second
	 * time. */
	orch_action *action = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
	uint64_t id = orch_action_id(action);
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	OK(try_issue(journal, "p", "test.action", "print", 1900000000000, &permit, &error));
	ck_assert_uint_eq(orch_permit_state(permit), ORCH_PERMIT_USED);
	ck_assert_uint_eq(orch_permit_action(permit), id);
	orch_permit_unref(permit);
	refused(journal, "k2", "p", "used by another action");
	sound(journal);
}
END_TEST

/* A handle tells what was. */
START_TEST(a_handle_is_a_copy)
{
	orch_journal *journal = open_journal();
	issue(journal, "p");
	orch_permit *permit = NULL;
	OK(orch_permit_find(journal, "p", &permit, &error));
	OK(orch_permit_revoke(journal, "p", &error));
	orch_journal_unref(journal);
	ck_assert_uint_eq(orch_permit_state(permit), ORCH_PERMIT_ISSUED);
	orch_permit_unref(permit);
}
END_TEST

START_TEST(intent_and_use_are_one_transaction)
{
	orch_journal *journal = open_journal();
	issue(journal, "p");
	uint64_t sequence = orch_journal_sequence(journal);
	orch_action *action = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 2);
	is(journal, "p", ORCH_PERMIT_USED, orch_action_id(action));
	OK(orch_action_dispatch(action, &error));
	OK(orch_action_observe(action, "r", 1, &error));
	OK(orch_action_confirm(action, &error));
	is(journal, "p", ORCH_PERMIT_USED, orch_action_id(action));
	/* Without a permit a begin is what it was. */
	sequence = orch_journal_sequence(journal);
	orch_action_unref(begin_with(journal, "free", NULL, ORCH_BEGIN_FRESH));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	orch_action_unref(action);
	sound(journal);
}
END_TEST

/* --- refusals, each with its control
 * ---------------------------------------------------------------- */

static void make_used(orch_journal *journal)
{
	orch_action_unref(begin_with(journal, "other", "p", ORCH_BEGIN_FRESH));
}

static void make_revoked(orch_journal *journal)
{
	OK(orch_permit_revoke(journal, "p", &error));
}

static const struct refusal {
	const char *kind, *fingerprint;
	bool missing;
	void (*spoil)(orch_journal *journal);
	const char *damage; /* to the closed file */
	const char *why;
	uint32_t state;
} refusals[] = {
	{"test.action", NULL, true, NULL, NULL, "has no permit", 0},
	{"test.action", NULL, false, make_used, NULL, "used by another action", ORCH_PERMIT_USED},
	{"test.action", NULL, false, make_revoked, NULL, "was revoked", ORCH_PERMIT_REVOKED},
	{"test.action", NULL, false, NULL, "UPDATE permit SET state = 5", "became void",
	 ORCH_PERMIT_VOID},
	{"test.action", NULL, false, NULL, "UPDATE permit SET epoch = 0", "before the journal was",
	 ORCH_PERMIT_ISSUED},
	{"test.actio", NULL, false, NULL, NULL, "is for a test.actio,", ORCH_PERMIT_ISSUED},
	{"test.action", "prin", false, NULL, NULL, "another request", ORCH_PERMIT_ISSUED},
	{"test.action", "prinT", false, NULL, NULL, "another request", ORCH_PERMIT_ISSUED},
};

START_TEST(each_refusal)
{
	const struct refusal *refusal = &refusals[_i];
	orch_journal *journal = open_journal();
	if (!refusal->missing)
		OK(try_issue(journal, "p", refusal->kind, refusal->fingerprint, 0, NULL, &error));
	if (refusal->spoil)
		refusal->spoil(journal);
	if (refusal->damage) {
		orch_journal_unref(journal);
		sql(refusal->damage);
		journal = open_journal();
	}
	uint64_t sequence = orch_journal_sequence(journal);
	refused(journal, "k", "p", refusal->why);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	if (refusal->state)
		is(journal, "p", refusal->state, refusal->spoil == make_used);
	/* The same begin, with a permit that is as it should be. */
	OK(try_issue(journal, "good", "test.action", "print", 0, NULL, &error));
	orch_action_unref(begin_with(journal, "k", "good", ORCH_BEGIN_FRESH));
	if (!refusal->damage)
		OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

START_TEST(a_refused_next_attempt_leaves_the_last_one)
{
	orch_journal *journal = open_journal();
	orch_action *first = begin_with(journal, "k", NULL, ORCH_BEGIN_FRESH);
	OK(orch_action_fail(first, "no", 2, &error));
	refused(journal, "k", "p", "has no permit");
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_FAILED);
	issue(journal, "p");
	orch_action *second = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
	ck_assert_uint_eq(orch_action_attempt(second), 2);
	is(journal, "p", ORCH_PERMIT_USED, orch_action_id(first));
	orch_action_unref(first);
	orch_action_unref(second);
	sound(journal);
}
END_TEST

/* What is not FRESH needs none, and takes none. */
START_TEST(only_a_fresh_one_uses_it)
{
	static const struct {
		uint32_t state, outcome;
	} found[] = {
		{ORCH_ACTION_INTENT, ORCH_BEGIN_ATTACHED},
		{ORCH_ACTION_DISPATCHED, ORCH_BEGIN_ATTACHED},
		{ORCH_ACTION_OBSERVED, ORCH_BEGIN_REPLAY},
		{ORCH_ACTION_CONFIRMED, ORCH_BEGIN_REPLAY},
		{ORCH_ACTION_UNKNOWN, ORCH_BEGIN_AMBIGUOUS},
		{ORCH_ACTION_HANDED_OVER, ORCH_BEGIN_AMBIGUOUS},
		{ORCH_ACTION_ABANDONED, ORCH_BEGIN_AMBIGUOUS},
	};
	orch_journal *journal = open_journal();
	issue(journal, "p");
	for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
		char key[8];
		snprintf(key, sizeof(key), "k%zu", i);
		orch_action_unref(make(journal, key, 0, found[i].state));
		uint64_t sequence = orch_journal_sequence(journal);
		const char *const names[] = {"p", "no such permit"};
		for (int j = 0; j < 2; j++) {
			struct orch_action_opts opts;
			orch_action_opts_init(&opts, sizeof(opts));
			opts.kind = "test.action";
			opts.key = key;
			opts.request = "request";
			opts.request_length = 7;
			opts.permit = names[j];
			orch_action *action = NULL;
			uint32_t outcome = 0;
			OK(orch_journal_begin(journal, &opts, &outcome, &action, &error));
			ck_assert_uint_eq(outcome, found[i].outcome);
			orch_action_unref(action);
			opts.kind = "test.other";
			FAILS(ORCH_ECONFLICT,
			      orch_journal_begin(journal, &opts, &outcome, &action, &error));
		}
		ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
		is(journal, "p", ORCH_PERMIT_ISSUED, 0);
	}
	orch_action_unref(begin_with(journal, "fresh", "p", ORCH_BEGIN_FRESH));
	sound(journal);
}
END_TEST

/* --- further attempts
 * ------------------------------------------------------------------------------- */

START_TEST(a_further_attempt_goes_on_under_it)
{
	orch_journal *journal = open_journal();
	issue(journal, "p");
	/* Another one that failed, without a permit or with its own. */
	orch_action *other = begin_with(journal, "other", NULL, ORCH_BEGIN_FRESH);
	OK(orch_action_fail(other, "no", 2, &error));
	orch_action_unref(other);
	orch_action *action = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
	uint64_t id = orch_action_id(action);
	for (uint32_t attempt = 2; attempt < 5; attempt++) {
		OK(orch_action_dispatch(action, &error));
		OK(orch_action_fail(action, "no", 2, &error));
		orch_action_unref(action);
		refused(journal, "k2", "p", "used by another action");
		refused(journal, "other", "p", "used by another action");
		uint64_t sequence = orch_journal_sequence(journal);
		action = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
		ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
		ck_assert_uint_eq(orch_action_attempt(action), attempt);
		is(journal, "p", ORCH_PERMIT_USED, id);
	}
	/* An intent that an earlier generation left. */
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	action = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
	ck_assert_uint_eq(orch_action_attempt(action), 5);
	/* Under another one it goes on as well, and that one is used up. */
	OK(orch_action_fail(action, "no", 2, &error));
	orch_action_unref(action);
	issue(journal, "q");
	orch_action_unref(begin_with(journal, "k", "q", ORCH_BEGIN_FRESH));
	is(journal, "p", ORCH_PERMIT_USED, id);
	is(journal, "q", ORCH_PERMIT_USED, id);
	refused(journal, "k2", "q", "used by another action");
	sound(journal);
}
END_TEST

/* A further attempt is asked for later: the terms are looked at again. */
START_TEST(a_further_attempt_is_not_begun_after_the_expiry)
{
	orch_journal *journal = open_journal();
	stopped_at = 1800000000000;
	OK(try_issue(journal, "p", "test.action", NULL, stopped_at + 1000, NULL, &error));
	orch_action *action = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
	uint64_t id = orch_action_id(action);
	OK(orch_action_fail(action, "no", 2, &error));
	orch_action_unref(action);
	stopped_at += 999;
	action = begin_with(journal, "k", "p", ORCH_BEGIN_FRESH);
	OK(orch_action_fail(action, "no", 2, &error));
	orch_action_unref(action);
	stopped_at += 1;
	refused(journal, "k", "p", "expired");
	is(journal, "p", ORCH_PERMIT_EXPIRED, id);
	stopped_at -= 500;
	refused(journal, "k", "p", "expired");
	issue(journal, "q");
	orch_action_unref(begin_with(journal, "k", "q", ORCH_BEGIN_FRESH));
	sound(journal);
}
END_TEST

/* --- expiry
 * ----------------------------------------------------------------------------------------- */

START_TEST(a_clock_that_steps_back_revives_nothing)
{
	orch_journal *journal = open_journal();
	stopped_at = 1800000000000;
	const int64_t expiry = stopped_at + 60000;
	const char *const names[] = {"early", "asked", "unasked", "never"};
	for (int i = 0; i < 4; i++)
		OK(try_issue(journal, names[i], "test.action", NULL, i < 3 ? expiry : 0, NULL,
			     &error));
	stopped_at = expiry - 1;
	orch_action_unref(begin_with(journal, "k1", "early", ORCH_BEGIN_FRESH));
	stopped_at = expiry;
	uint64_t sequence = orch_journal_sequence(journal);
	refused(journal, "k2", "asked", "expired");
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	is(journal, "asked", ORCH_PERMIT_EXPIRED, 0);
	refused(journal, "k2", "asked", "expired");
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	stopped_at = expiry - 60000;
	refused(journal, "k2", "asked", "expired");
	orch_journal_unref(journal);
	journal = open_journal();
	refused(journal, "k2", "asked", "expired");
	FAILS(ORCH_ESTATE, orch_permit_revoke(journal, "asked", &error));
	/* Nobody asked while the clock was ahead: it was not found expired. */
	is(journal, "unasked", ORCH_PERMIT_ISSUED, 0);
	orch_action_unref(begin_with(journal, "k2", "unasked", ORCH_BEGIN_FRESH));
	stopped_at = INT64_MAX;
	orch_action_unref(begin_with(journal, "k3", "never", ORCH_BEGIN_FRESH));
	sound(journal);
}
END_TEST

/* Of two reasons the one that is recorded comes first: who asks for the wrong thing does not keep
 * it alive. */
START_TEST(expired_and_for_something_else)
{
	orch_journal *journal = open_journal();
	stopped_at = 1800000000000;
	OK(try_issue(journal, "p", "test.other", NULL, 1, NULL, &error));
	refused(journal, "k", "p", "expired");
	is(journal, "p", ORCH_PERMIT_EXPIRED, 0);
	/* Revoked stays revoked. */
	OK(try_issue(journal, "q", "test.action", NULL, 1, NULL, &error));
	OK(orch_permit_revoke(journal, "q", &error));
	refused(journal, "k", "q", "was revoked");
	sound(journal);
}
END_TEST

/* --- a restored backup
 * ------------------------------------------------------------------------------- */

START_TEST(a_restored_backup_revives_nothing)
{
	char backup[120];
	snprintf(backup, sizeof(backup), "%s/backup", anchor_folder);
	orch_journal *journal = open_journal();
	const char *const names[] = {"later", "used", "revoked", "idle"};
	for (int i = 0; i < 4; i++)
		issue(journal, names[i]);
	orch_action *action = begin_with(journal, "k", "used", ORCH_BEGIN_FRESH);
	uint64_t id = orch_action_id(action);
	OK(orch_action_fail(action, "no", 2, &error));
	orch_action_unref(action);
	OK(orch_permit_revoke(journal, "revoked", &error));
	OK(orch_journal_backup(journal, backup, NULL, &error));
	/* What the backup does not know: a permit that it has as issued was used. */
	orch_action_unref(begin_with(journal, "k2", "later", ORCH_BEGIN_FRESH));
	orch_journal_unref(journal);

	struct orch_restore_opts opts;
	orch_restore_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_RESTORE_REPLACE;
	opts.backup_path = backup;
	opts.path = journal_path;
	orch_restoration *restoration = NULL;
	OK(orch_journal_restore(&opts, &restoration, &error));
	ck_assert_uint_eq(orch_restoration_void(restoration), 2);
	orch_restoration_unref(restoration);
	journal = open_journal();
	is(journal, "later", ORCH_PERMIT_VOID, 0);
	is(journal, "idle", ORCH_PERMIT_VOID, 0);
	is(journal, "revoked", ORCH_PERMIT_REVOKED, 0);
	is(journal, "used", ORCH_PERMIT_USED, id);
	refused(journal, "k2", "later", "became void");
	refused(journal, "k2", "idle", "became void");
	orch_permit *permit = NULL;
	OK(try_issue(journal, "later", "test.action", NULL, 0, &permit, &error));
	ck_assert_uint_eq(orch_permit_state(permit), ORCH_PERMIT_VOID);
	orch_permit_unref(permit);
	FAILS(ORCH_ESTATE, orch_permit_revoke(journal, "later", &error));
	/* Once it is known again that it did not happen, it takes a permit of this epoch. */
	action = begin_with(journal, "k", "used", ORCH_BEGIN_AMBIGUOUS);
	OK(orch_action_resolve(action, ORCH_OUTCOME_NOT_APPLIED, NULL, 0, &error));
	orch_action_unref(action);
	refused(journal, "k", "used", "epoch 1, now 2");
	issue(journal, "new");
	orch_action_unref(begin_with(journal, "k", "new", ORCH_BEGIN_FRESH));
	sound(journal);
}
END_TEST

/* --- revoke, walk, arguments
 * ------------------------------------------------------------------------ */

START_TEST(revoking)
{
	orch_journal *journal = open_journal();
	issue(journal, "p");
	issue(journal, "used");
	orch_action *action = begin_with(journal, "k", "used", ORCH_BEGIN_FRESH);
	uint64_t sequence = orch_journal_sequence(journal);
	FAILS(ORCH_ENOENT, orch_permit_revoke(journal, "nobody's", &error));
	FAILS(ORCH_ESTATE, orch_permit_revoke(journal, "used", &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	OK(orch_permit_revoke(journal, "p", &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	FAILS(ORCH_ESTATE, orch_permit_revoke(journal, "p", &error));
	is(journal, "used", ORCH_PERMIT_USED, orch_action_id(action));
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	is(journal, "p", ORCH_PERMIT_REVOKED, 0);
	refused(journal, "k2", "p", "was revoked");
	sound(journal);
}
END_TEST

static int32_t collect(void *userdata, orch_permit *permit)
{
	char *names = userdata;
	strcat(strcat(names, orch_permit_name(permit)), " ");
	return strcmp(orch_permit_name(permit), "stop") == 0 ? 42 : 0;
}

static int32_t issue_more(void *userdata, orch_permit *permit)
{
	char name[32];
	snprintf(name, sizeof(name), "%s+", orch_permit_name(permit));
	issue(userdata, name);
	OK(orch_permit_revoke(userdata, orch_permit_name(permit), &error));
	return 0;
}

START_TEST(walking)
{
	orch_journal *journal = open_journal();
	char names[128] = "";
	OK(orch_permit_each(journal, collect, names, &error));
	ck_assert_str_eq(names, "");
	const char *const issued[] = {"z", "a", "stop", "m"};
	for (int i = 0; i < 4; i++)
		issue(journal, issued[i]);
	ck_assert_int_eq(orch_permit_each(journal, collect, names, NULL), 42);
	ck_assert_str_eq(names, "z a stop ");
	/* What the callback issues is not walked, or this would not end. */
	OK(orch_permit_each(journal, issue_more, journal, &error));
	is(journal, "m+", ORCH_PERMIT_ISSUED, 0);
	is(journal, "m", ORCH_PERMIT_REVOKED, 0);
	FAILS(ORCH_EINVAL, orch_permit_each(journal, NULL, NULL, &error));
	FAILS(ORCH_EINVAL, orch_permit_each(NULL, collect, names, &error));
	sound(journal);
}
END_TEST

static void issue_refused(orch_journal *journal, int32_t code, const struct orch_permit_opts *opts)
{
	orch_permit *permit = (void *)1;
	uint64_t sequence = orch_journal_sequence(journal);
	FAILS(code, orch_permit_issue(journal, opts, &permit, &error));
	ck_assert_ptr_eq(permit, (void *)1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
}

START_TEST(arguments)
{
	static char note[4097];
	char name[257], kind[65];
	memset(name, 'n', sizeof(name));
	memset(kind, 'k', sizeof(kind));
	name[256] = kind[64] = '\0';
	orch_journal *journal = open_journal();
	struct orch_permit_opts good, opts;
	orch_permit_opts_init(&good, sizeof(good));
	ck_assert_uint_eq(good.size, sizeof(good));
	good.name = "p";
	good.kind = "k";
	issue_refused(journal, ORCH_EINVAL, NULL);
	const char *const names[] = {NULL, "", "\xff", name};
	const char *const kinds[] = {NULL, "", "K", kind};
	for (int i = 0; i < 4; i++) {
		opts = good;
		opts.name = names[i];
		issue_refused(journal, ORCH_EINVAL, &opts);
		opts = good;
		opts.kind = kinds[i];
		issue_refused(journal, ORCH_EINVAL, &opts);
	}
	opts = good;
	opts.flags = 1;
	issue_refused(journal, ORCH_EINVAL, &opts);
	opts = good;
	opts.fingerprint_length = 1;
	issue_refused(journal, ORCH_EINVAL, &opts);
	opts.fingerprint = note;
	opts.fingerprint_length = 0;
	issue_refused(journal, ORCH_EINVAL, &opts);
	opts.fingerprint_length = 65;
	issue_refused(journal, ORCH_EINVAL, &opts);
	opts = good;
	opts.expires_at_ms = -1;
	issue_refused(journal, ORCH_EINVAL, &opts);
	opts = good;
	opts.note_length = 1;
	issue_refused(journal, ORCH_EINVAL, &opts);
	opts.note = note;
	opts.note_length = 4097;
	issue_refused(journal, ORCH_ETOOBIG, &opts);
	struct {
		struct orch_permit_opts known;
		uint64_t tail;
	} newer = {.known = good, .tail = 1};
	newer.known.size = sizeof(newer);
	issue_refused(journal, ORCH_E2BIG, &newer.known);
	issue_refused(journal, ORCH_EINVAL, &(struct orch_permit_opts){.size = sizeof(opts)});

	/* The longest of each. */
	name[255] = kind[63] = '\0';
	opts = (struct orch_permit_opts){sizeof(opts), 0, name, kind, note, 64, 0, note, 4096};
	OK(orch_permit_issue(journal, &opts, NULL, &error));
	orch_permit *permit = NULL;
	size_t length = 0;
	OK(orch_permit_find(journal, name, &permit, &error));
	ck_assert_mem_eq(orch_permit_note(permit, &length), note, 4096);
	ck_assert_uint_eq(length, 4096);
	ck_assert_str_eq(orch_permit_kind(permit), kind);
	orch_permit_unref(permit);

	permit = (void *)1;
	FAILS(ORCH_ENOENT, orch_permit_find(journal, "nobody's", &permit, &error));
	FAILS(ORCH_EINVAL, orch_permit_find(journal, NULL, &permit, &error));
	FAILS(ORCH_EINVAL, orch_permit_find(NULL, "p", &permit, &error));
	FAILS(ORCH_EINVAL, orch_permit_find(journal, name, NULL, &error));
	FAILS(ORCH_EINVAL, orch_permit_revoke(journal, "", &error));
	FAILS(ORCH_EINVAL, orch_permit_revoke(NULL, "p", &error));
	ck_assert_ptr_eq(permit, (void *)1);
	const char *const bad[] = {"", "\xff", "nnn"};
	for (int i = 0; i < 2; i++) {
		uint32_t outcome = 77;
		orch_action *action = (void *)1;
		FAILS(ORCH_EINVAL, try_begin(journal, "k", bad[i], &outcome, &action, &error));
		ck_assert_ptr_eq(action, (void *)1);
	}
	refused(journal, "k", bad[2], "has no permit");

	ck_assert_ptr_null(orch_permit_unref(NULL));
	ck_assert_ptr_null(orch_permit_ref(NULL));
	ck_assert_str_eq(orch_permit_name(NULL), "");
	ck_assert_str_eq(orch_permit_state_name(0), "?");
	ck_assert_str_eq(orch_permit_state_name(ORCH_PERMIT_VOID), "VOID");
	ck_assert_ptr_null(orch_permit_note(NULL, &length));
	ck_assert_uint_eq(length, 0);
	sound(journal);
}
END_TEST

static void use_in_a_child(void *userdata)
{
	orch_permit *permit = NULL;
	FAILS(ORCH_EFORKED, try_issue(userdata, "q", "k", NULL, 0, &permit, &error));
	FAILS(ORCH_EFORKED, orch_permit_revoke(userdata, "p", &error));
	FAILS(ORCH_EFORKED, orch_permit_find(userdata, "p", &permit, &error));
	FAILS(ORCH_EFORKED, orch_permit_each(userdata, collect, NULL, &error));
}

START_TEST(who_may_only_look)
{
	orch_journal *journal = open_journal();
	issue(journal, "p");
	ck_assert_int_eq(in_child(use_in_a_child, journal), 0);
	orch_journal_unref(journal);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	orch_permit *permit = NULL;
	FAILS(ORCH_ESTATE, try_issue(journal, "q", "k", NULL, 0, &permit, &error));
	FAILS(ORCH_ESTATE, orch_permit_revoke(journal, "p", &error));
	char names[16] = "";
	OK(orch_permit_each(journal, collect, names, &error));
	ck_assert_str_eq(names, "p ");
	is(journal, "p", ORCH_PERMIT_ISSUED, 0);
	sound(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("permit");
	TCase *tests = tcase_create("permit");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, what_is_issued_is_told);
	tcase_add_test(tests, issuing_again);
	tcase_add_test(tests, a_handle_is_a_copy);
	tcase_add_test(tests, intent_and_use_are_one_transaction);
	tcase_add_loop_test(tests, each_refusal, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(tests, a_refused_next_attempt_leaves_the_last_one);
	tcase_add_test(tests, only_a_fresh_one_uses_it);
	tcase_add_test(tests, a_further_attempt_goes_on_under_it);
	tcase_add_test(tests, a_further_attempt_is_not_begun_after_the_expiry);
	tcase_add_test(tests, a_clock_that_steps_back_revives_nothing);
	tcase_add_test(tests, expired_and_for_something_else);
	tcase_add_test(tests, a_restored_backup_revives_nothing);
	tcase_add_test(tests, revoking);
	tcase_add_test(tests, walking);
	tcase_add_test(tests, arguments);
	tcase_add_test(tests, who_may_only_look);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
