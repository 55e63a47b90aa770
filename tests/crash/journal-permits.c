/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permits and decisions, struck at each write, sync and allocation: an intent is there if and only
 * if its permit is used, and a decision if and only if its transitions are. One scripted history
 * runs in a child; a model that is written apart tells what each whole number of its steps leaves.
 */
#include <orch/permit.h>

#include "journal-strike.h"

/* --- the history and its model
 * ---------------------------------------------------------------------- */

enum verb { ISSUE, REVOKE, BEGIN, REFUSED, MOVE, DECIDE };

/* Each step is one commit. */
static const struct step {
	enum verb verb;
	char key, permit;
	uint32_t value; /* state to move to, or decision */
} steps[] = {
	{ISSUE, 0, 'p', 0},
	{ISSUE, 0, 'q', 0},
	{ISSUE, 0, 'r', 0},
	{ISSUE, 0, 's', 1}, /* when it expires */
	{BEGIN, 'a', 'p', 0},
	{REVOKE, 0, 'r', 0},
	{REFUSED, 'c', 's', 0}, /* found expired, which is recorded */
	{MOVE, 'a', 0, ORCH_ACTION_FAILED},
	{BEGIN, 'a', 'p', 0},
	{MOVE, 'a', 0, ORCH_ACTION_DISPATCHED},
	{MOVE, 'a', 0, ORCH_ACTION_UNKNOWN},
	{DECIDE, 'a', 0, ORCH_DECISION_APPLIED},
	{BEGIN, 'b', 'q', 0},
	{MOVE, 'b', 0, ORCH_ACTION_HANDED_OVER},
	{DECIDE, 'b', 0, ORCH_DECISION_NOT_APPLIED},
	{BEGIN, 'b', 'q', 0},
	{MOVE, 'b', 0, ORCH_ACTION_HANDED_OVER},
	{DECIDE, 'b', 0, ORCH_DECISION_ABANDON},
};
#define STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

/* What can be told from outside. Zero: there is none. */
struct world {
	struct {
		uint32_t state, attempt, decision;
	} actions[3]; /* 'a', 'b', 'c' */
	struct {
		uint32_t state;
		char user; /* key of the action that has it */
	} permits[4];	   /* 'p' to 's' */
};

static struct world after(int count)
{
	static const uint32_t reached[] = {0, ORCH_ACTION_CONFIRMED, ORCH_ACTION_FAILED,
					   ORCH_ACTION_ABANDONED};
	struct world world = {0};
	for (int i = 0; i < count; i++) {
		const struct step *step = &steps[i];
		int action = step->key ? step->key - 'a' : 0, permit = step->permit - 'p';
		switch (step->verb) {
		case ISSUE:
			world.permits[permit].state = ORCH_PERMIT_ISSUED;
			break;
		case REVOKE:
			world.permits[permit].state = ORCH_PERMIT_REVOKED;
			break;
		case REFUSED:
			world.permits[permit].state = ORCH_PERMIT_EXPIRED;
			break;
		case BEGIN:
			world.actions[action].state = ORCH_ACTION_INTENT;
			world.actions[action].attempt++;
			world.permits[permit].state = ORCH_PERMIT_USED;
			world.permits[permit].user = step->key;
			break;
		case MOVE:
			world.actions[action].state = step->value;
			break;
		case DECIDE:
			world.actions[action].state = reached[step->value];
			world.actions[action].decision = step->value;
			break;
		}
	}
	return world;
}

static struct world read_world(orch_journal *journal)
{
	struct world world = {0};
	uint64_t ids[3] = {0};
	for (int i = 0; i < 3; i++) {
		const char key[] = {(char)('a' + i), '\0'};
		orch_action *action = NULL;
		int32_t r = orch_journal_find(journal, key, &action, NULL);
		ck_assert(r == 0 || r == ORCH_ENOENT);
		ids[i] = orch_action_id(action);
		world.actions[i].state = orch_action_state(action);
		world.actions[i].attempt = orch_action_attempt(action);
		world.actions[i].decision = orch_action_decision(action, NULL, NULL);
		orch_action_unref(action);
	}
	for (int i = 0; i < 4; i++) {
		const char name[] = {(char)('p' + i), '\0'};
		orch_permit *permit = NULL;
		int32_t r = orch_permit_find(journal, name, &permit, NULL);
		ck_assert(r == 0 || r == ORCH_ENOENT);
		world.permits[i].state = orch_permit_state(permit);
		uint64_t user = orch_permit_action(permit);
		for (int j = 0; user && j < 3; j++)
			if (ids[j] == user)
				world.permits[i].user = (char)('a' + j);
		/* Used if and only if the intent is there, of whatever the model knows. */
		ck_assert_int_eq(orch_permit_state(permit) == ORCH_PERMIT_USED, user != 0);
		ck_assert_int_eq(user != 0, world.permits[i].user != 0);
		orch_permit_unref(permit);
	}
	ck_assert_int_eq(world.actions[0].state != 0, world.permits[0].user == 'a');
	ck_assert_int_eq(world.actions[1].state != 0, world.permits[1].user == 'b');
	return world;
}

/* --- the child
 * -------------------------------------------------------------------------------------- */

static struct shared {
	int acknowledged; /* steps that came to what they should */
	int32_t code, told;
	char message[200];
	unsigned calls; /* that could have been struck */
	int done;
} * shared;

/* Nothing is asserted in the child: that takes memory of its own. */
#define WRONG (-1000)

static int32_t issue(orch_journal *journal, const char *name, int64_t expires_at_ms,
		     orch_error **error)
{
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.kind = "test.action";
	opts.expires_at_ms = expires_at_ms;
	opts.note = "a note";
	opts.note_length = 6;
	orch_permit *permit = NULL;
	int32_t r = orch_permit_issue(journal, &opts, &permit, error);
	orch_permit_unref(permit);
	return r;
}

static int32_t begin_with(orch_journal *journal, const char *key, const char *permit,
			  orch_error **error)
{
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = key;
	opts.request = "request";
	opts.request_length = 7;
	opts.permit = permit;
	orch_action *action = NULL;
	uint32_t outcome = 0;
	int32_t r = orch_journal_begin(journal, &opts, &outcome, &action, error);
	orch_action_unref(action);
	return r == 0 && outcome != ORCH_BEGIN_FRESH ? WRONG : r;
}

static int32_t play(orch_journal *journal, const struct step *step, orch_error **error)
{
	const char key[] = {step->key, '\0'}, permit[] = {step->permit, '\0'};
	orch_action *action = NULL;
	int32_t r;
	switch (step->verb) {
	case ISSUE:
		return issue(journal, permit, step->value, error);
	case REVOKE:
		return orch_permit_revoke(journal, permit, error);
	case BEGIN:
		return begin_with(journal, key, permit, error);
	case REFUSED:
		r = begin_with(journal, key, permit, error);
		if (r != ORCH_EPERMIT)
			return r == 0 ? WRONG : r;
		*error = orch_error_free(*error);
		return 0;
	default:
		r = orch_journal_find(journal, key, &action, error);
		if (r == 0)
			r = step->verb == MOVE ? move(action, step->value, error)
					       : orch_action_decide(action, step->value, "ann",
								    "note", 4, error);
		orch_action_unref(action);
		return r;
	}
}

static int32_t count_permit(void *userdata, orch_permit *permit)
{
	(void)permit;
	++*(int *)userdata;
	return 0;
}

static uint32_t give_up(void *userdata, orch_action *action, uint32_t outcome, uint32_t proposed)
{
	(void)userdata;
	(void)action;
	(void)outcome;
	(void)proposed;
	return ORCH_RECOVER_ABANDON;
}

static void listen(void *userdata, orch_action *action)
{
	(void)userdata;
	(void)action;
}

/* What reads, and what decides: no memory for it leaves all as it was, or the step whole. */
static int32_t look(orch_journal *journal, orch_error **error)
{
	struct orch_recover_opts opts;
	int walked = 0;
	orch_recovery *recovery = NULL;
	orch_recover_opts_init(&opts, sizeof(opts));
	opts.kind_prefix = "test.left";
	opts.decide = give_up;
	opts.hand_over = listen;
	int32_t r = orch_permit_each(journal, count_permit, &walked, error);
	if (r == 0)
		r = orch_journal_recover(journal, &opts, &recovery, error);
	uint32_t count = orch_recovery_count(recovery);
	orch_recovery_unref(recovery);
	/* One of them is given up. */
	return r == 0 && (count < 1 || count > 2 || walked != 4) ? WRONG : r;
}

static void history(void *userdata)
{
	(void)userdata;
	orch_journal *journal = open_anchored();
	orch_error *error = NULL;
	faults.armed = faults.at > 0;
	int32_t r = 0;
	for (int i = 0; r == 0 && i < STEPS; i++) {
		r = play(journal, &steps[i], &error);
		if (r == 0)
			shared->acknowledged = i + 1;
	}
	if (r == 0)
		r = look(journal, &error);
	faults.armed = false;
	shared->code = r;
	shared->told = orch_error_code(error);
	snprintf(shared->message, sizeof(shared->message), "%s", orch_error_message(error));
	orch_error_free(error);
	orch_journal_unref(journal);
	shared->calls = faults.seen;
	shared->done = 1;
}

/* What an earlier generation left for look() to recover. */
static void leave(void)
{
	orch_journal *journal = open_anchored();
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.left";
	for (int i = 0; i < 2; i++) {
		uint32_t outcome = 0;
		orch_action *action = NULL;
		opts.key = i ? "left" : "waits";
		OK(orch_journal_begin(journal, &opts, &outcome, &action, &error));
		if (i)
			OK(orch_action_dispatch(action, &error));
		else
			OK(orch_action_hand_over(action, NULL, 0, &error));
		orch_action_unref(action);
	}
	orch_journal_unref(journal);
}

/* --- the judge
 * -------------------------------------------------------------------------------------- */

static bool same(const struct world *one, const struct world *other)
{
	for (int i = 0; i < 3; i++)
		if (one->actions[i].state != other->actions[i].state ||
		    one->actions[i].attempt != other->actions[i].attempt ||
		    one->actions[i].decision != other->actions[i].decision)
			return false;
	for (int i = 0; i < 4; i++)
		if (one->permits[i].state != other->permits[i].state ||
		    one->permits[i].user != other->permits[i].user)
			return false;
	return true;
}

/* Every acknowledged step, at most one more, and each of them whole. */
static void judge(const char *what, unsigned at)
{
	orch_journal *journal = open_anchored();
	OK(orch_journal_verify(journal, NULL, &error));
	struct world now = read_world(journal);
	int count = shared->acknowledged;
	struct world before = after(count), next = after(count < STEPS ? count + 1 : count);
	ck_assert_msg(same(&now, &before) || same(&now, &next),
		      "%s at %u: acknowledged %d steps, and the file tells others", what, at,
		      count);
	/* And the history can be gone on with, from where it is. */
	for (int i = same(&now, &before) ? count : count + 1; i < STEPS; i++)
		OK(play(journal, &steps[i], &error));
	now = read_world(journal);
	next = after(STEPS);
	ck_assert_msg(same(&now, &next), "%s at %u: not gone on with", what, at);
	OK(look(journal, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}

static void renew(void)
{
	kit_teardown();
	kit_setup();
	leave();
}

static void setup(void)
{
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm"; /* hundreds of runs, none of which loses power */
	kit_setup();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	leave();
}

static int run_history(void)
{
	memset(shared, 0, sizeof(*shared));
	return in_child(history, NULL);
}

START_TEST(killed_at_each_write_and_sync)
{
	unsigned at = 1;
	for (;; at++) {
		faults.fault = KILL;
		faults.error = EIO;
		faults.at = at;
		int status = run_history();
		if (status == 0)
			break;
		ck_assert_int_eq(WTERMSIG(status), SIGKILL);
		judge("killed", at);
		renew();
	}
	ck_assert_int_eq(shared->acknowledged, STEPS);
	ck_assert_int_eq(shared->code, 0);
	judge("not killed", 0);
	/* A commit writes at least a frame, and syncs. */
	ck_assert_uint_gt(at, 2 * STEPS);
}
END_TEST

static void strike_each(enum fault fault, int error, int32_t code, int32_t other)
{
	unsigned at = 1, failed = 0;
	for (;; at++) {
		faults.fault = fault;
		faults.error = error;
		faults.at = at;
		ck_assert_int_eq(run_history(), 0);
		ck_assert_int_eq(shared->done, 1);
		ck_assert_int_eq(shared->told, shared->code);
		if (shared->calls < at)
			break;
		ck_assert_msg(shared->code == 0 || shared->code == code || shared->code == other,
			      "%s at call %u: %s: %s", strerror(error), at,
			      orch_code_name(shared->code), shared->message);
		ck_assert(shared->code || shared->acknowledged == STEPS);
		failed += shared->code != 0;
		judge(strerror(error), at);
		renew();
	}
	ck_assert_int_eq(shared->code, 0);
	ck_assert_int_eq(shared->acknowledged, STEPS);
	ck_assert_uint_gt(failed, STEPS);
}

START_TEST(each_write_and_sync_fails)
{
	strike_each(FAIL_ONCE, EIO, ORCH_EPOISONED, ORCH_ESYS);
}
END_TEST

START_TEST(each_write_finds_the_disk_full)
{
	strike_each(FAIL_FROM, ENOSPC, ORCH_ENOSPC, ORCH_EPOISONED);
}
END_TEST

START_TEST(each_allocation_fails)
{
	strike_each(FAIL_ONCE, ENOMEM, ORCH_ENOMEM, ORCH_EPOISONED);
}
END_TEST

/* What a person found out, and what is taken back, is written down on a full disk. */
START_TEST(a_full_disk_keeps_no_decision_out)
{
	orch_journal *journal = open_anchored();
	orch_action *action = make(journal, "a", 0, ORCH_ACTION_HANDED_OVER);
	OK(issue(journal, "p", 0, &error));
	OK(issue(journal, "q", 0, &error));
	static char note[900000];
	memset(note, 'n', sizeof(note));
	faults.fault = FAIL_ONCE;
	faults.error = ENOSPC;
	faults.at = 1;
	faults.armed = true;
	/* The control: what starts something is refused. */
	FAILS(ORCH_ENOSPC, begin_with(journal, "b", "p", &error));
	faults.seen = 0;
	OK(orch_permit_revoke(journal, "q", &error));
	ck_assert_uint_ge(faults.seen, 2);
	faults.seen = 0;
	OK(orch_action_decide(action, ORCH_DECISION_APPLIED, "ann", note, sizeof(note), &error));
	ck_assert_uint_ge(faults.seen, 2);
	faults.armed = false;
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
	/* Too long for what was kept back: cut, and it still counts. */
	ck_assert_ptr_nonnull(strstr(orch_action_result(action, NULL), "bytes:900000"));
	OK(orch_journal_verify(journal, NULL, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-permits");
	TCase *tests = tcase_create("permits");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 240);
	tcase_add_test(tests, killed_at_each_write_and_sync);
	tcase_add_test(tests, each_write_and_sync_fails);
	tcase_add_test(tests, each_write_finds_the_disk_full);
	tcase_add_test(tests, each_allocation_fails);
	tcase_add_test(tests, a_full_disk_keeps_no_decision_out);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
