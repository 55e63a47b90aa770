/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permits and decisions asked for at the same time: by threads, and in one commit. Whoever loses
 * leaves nothing, and spoils nothing of those that share the commit.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <orch/ctx.h>
#include <orch/permit.h>

#include "../crash/journal-kit.h"

/* --- the gate
 * --------------------------------------------------------------------------------------- */

/*
 * Linked with --wrap=orch_realtime_ms: a request that is being written asks for the time, and waits
 * here until the test has queued what is to share the commit after it. Also a clock that is
 * stepped.
 */
int64_t __real_orch_realtime_ms(void);
int64_t __wrap_orch_realtime_ms(void);

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool closed, reached;
	pthread_t tester;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static atomic_llong stopped_at; /* 0: the clock goes */

int64_t __wrap_orch_realtime_ms(void)
{
	if (!pthread_equal(pthread_self(), gate.tester)) {
		pthread_mutex_lock(&gate.mutex);
		gate.reached = true;
		pthread_cond_broadcast(&gate.changed);
		while (gate.closed)
			pthread_cond_wait(&gate.changed, &gate.mutex);
		pthread_mutex_unlock(&gate.mutex);
	}
	int64_t stopped = atomic_load(&stopped_at);
	return stopped ? stopped : __real_orch_realtime_ms();
}

static void gate_close(void)
{
	pthread_mutex_lock(&gate.mutex);
	gate.closed = true;
	gate.reached = false;
	pthread_mutex_unlock(&gate.mutex);
}

static void gate_wait(void)
{
	pthread_mutex_lock(&gate.mutex);
	while (!gate.reached)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
}

static void gate_open(void)
{
	pthread_mutex_lock(&gate.mutex);
	gate.closed = false;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
}

/* --- short forms
 * ------------------------------------------------------------------------------------ */

static orch_ctx *ctx;

static void setup(void)
{
	gate.tester = pthread_self();
	atomic_store(&stopped_at, 0);
	kit_setup();
	OK(orch_ctx_new(NULL, &ctx, &error));
}

static void teardown(void)
{
	ctx = orch_ctx_unref(ctx);
	kit_teardown();
}

static void issue(orch_journal *journal, const char *name, int64_t expires_at_ms)
{
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.kind = "test.action";
	opts.expires_at_ms = expires_at_ms;
	OK(orch_permit_issue(journal, &opts, NULL, &error));
}

static struct orch_action_opts asking(const char *key, const char *permit)
{
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = key;
	opts.request = "request";
	opts.request_length = 7;
	opts.permit = permit;
	return opts;
}

static void is(orch_journal *journal, const char *name, uint32_t state, uint64_t action)
{
	orch_permit *permit = NULL;
	OK(orch_permit_find(journal, name, &permit, &error));
	ck_assert_uint_eq(orch_permit_state(permit), state);
	ck_assert_uint_eq(orch_permit_action(permit), action);
	orch_permit_unref(permit);
}

static void sound(orch_journal *journal)
{
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}

/* --- threads
 * ---------------------------------------------------------------------------------------- */

enum rivals { BEGIN_BEGIN, BEGIN_REVOKE, DECIDE_OBSERVE, DECIDE_DECIDE, RIVALS };

static struct race {
	orch_journal *journal;
	pthread_barrier_t barrier;
	enum rivals rivals;
	char permit[16], keys[2][16];
	orch_action *handles[2];
	int32_t codes[2];
} race;

static int32_t rival(int which)
{
	if (race.rivals >= DECIDE_OBSERVE)
		return which && race.rivals == DECIDE_OBSERVE
			       ? orch_action_observe(race.handles[1], "late", 4, NULL)
			       : orch_action_decide(race.handles[which], ORCH_DECISION_NOT_APPLIED,
						    which ? "bob" : "ann", NULL, 0, NULL);
	if (which && race.rivals == BEGIN_REVOKE)
		return orch_permit_revoke(race.journal, race.permit, NULL);
	struct orch_action_opts opts = asking(race.keys[which], race.permit);
	orch_action *action = NULL;
	uint32_t outcome = 0;
	int32_t r = orch_journal_begin(race.journal, &opts, &outcome, &action, NULL);
	orch_action_unref(action);
	return r;
}

static void *racer(void *userdata)
{
	int which = (int)(intptr_t)userdata;
	pthread_barrier_wait(&race.barrier);
	race.codes[which] = rival(which);
	return NULL;
}

static void run_race(void)
{
	pthread_t threads[2];
	for (intptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, racer, (void *)i), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static void race_for_a_permit(void)
{
	issue(race.journal, race.permit, 0);
	run_race();
	bool revokes = race.rivals == BEGIN_REVOKE;
	int winner = race.codes[1] == 0;
	ck_assert_int_eq(race.codes[winner], 0);
	ck_assert_int_eq(race.codes[!winner], revokes && !winner ? ORCH_ESTATE : ORCH_EPERMIT);
	bool revoked = revokes && winner;
	orch_action *action = NULL;
	if (!revoked)
		OK(orch_journal_find(race.journal, race.keys[winner], &action, &error));
	is(race.journal, race.permit, revoked ? ORCH_PERMIT_REVOKED : ORCH_PERMIT_USED,
	   orch_action_id(action));
	orch_action_unref(action);
	FAILS(ORCH_ENOENT, orch_journal_find(race.journal, race.keys[!winner], &action, &error));
}

static void race_for_an_action(void)
{
	race.handles[0] = make(race.journal, race.keys[0], 0, ORCH_ACTION_HANDED_OVER);
	race.handles[1] = find(race.journal, race.keys[0]);
	run_race();
	int winner = race.codes[1] == 0;
	ck_assert_int_eq(race.codes[winner], 0);
	ck_assert_int_eq(race.codes[!winner], ORCH_ESTATE);
	bool observed = race.rivals == DECIDE_OBSERVE && winner;
	orch_action *action = find(race.journal, race.keys[0]);
	const char *by = "nobody";
	ck_assert_uint_eq(orch_action_decision(action, &by, NULL),
			  observed ? 0 : ORCH_DECISION_NOT_APPLIED);
	ck_assert_str_eq(by, observed ? "nobody" : winner ? "bob" : "ann");
	ck_assert_uint_eq(orch_action_state(action),
			  observed ? ORCH_ACTION_OBSERVED : ORCH_ACTION_FAILED);
	orch_action_unref(action);
	orch_action_unref(race.handles[0]);
	orch_action_unref(race.handles[1]);
}

START_TEST(one_of_two_gets_it)
{
	race.journal = open_journal();
	race.rivals = (enum rivals)_i;
	pthread_barrier_init(&race.barrier, NULL, 2);
	for (int round = 0; round < 150; round++) {
		snprintf(race.permit, sizeof(race.permit), "p%d", round);
		snprintf(race.keys[0], sizeof(race.keys[0]), "a%d", round);
		snprintf(race.keys[1], sizeof(race.keys[1]), "b%d", round);
		if (race.rivals < DECIDE_OBSERVE)
			race_for_a_permit();
		else
			race_for_an_action();
	}
	pthread_barrier_destroy(&race.barrier);
	sound(race.journal);
}
END_TEST

/* --- one commit
 * ------------------------------------------------------------------------------------- */

#define ASKED 60 /* fewer than share a commit at most */

static struct answer {
	char key[16];
	const char *permit;
	int called, destroyed;
	int32_t code;
	uint32_t outcome;
	uint64_t action;
} answers[ASKED + 1];
static int answered;

static void on_begin(void *userdata, uint32_t outcome, orch_action *action, const orch_error *error)
{
	struct answer *answer = userdata;
	answer->called++;
	answered++;
	answer->code = error ? orch_error_code(error) : 0;
	answer->outcome = outcome;
	answer->action = orch_action_id(action);
	ck_assert_int_eq(action != NULL, error == NULL);
	if (error)
		ck_assert_uint_gt(strlen(orch_error_message(error)), 10);
}

static void on_destroy(void *userdata)
{
	((struct answer *)userdata)->destroyed++;
}

static void ask(orch_journal *journal, int place, const char *permit)
{
	struct answer *answer = &answers[place];
	answer->permit = permit;
	struct orch_action_opts opts = asking(answer->key, permit);
	OK(orch_journal_begin_async(journal, ctx, &opts, on_begin, answer, on_destroy, &error));
}

static void turn_until(int count)
{
	for (int tries = 0; answered < count && tries < 2000; tries++) {
		struct pollfd entry = {.fd = orch_ctx_fd(ctx), .events = POLLIN};
		poll(&entry, 1, 100);
		OK(orch_ctx_process(ctx, &error));
	}
	ck_assert_int_eq(answered, count);
}

/* Asks for all of `permits`, in turn, in one commit behind another one; NULL among them is without
 * a permit. */
static void ask_at_once(orch_journal *journal, const char *const *permits, int count)
{
	memset(answers, 0, sizeof(answers));
	answered = 0;
	for (int i = 0; i <= ASKED; i++)
		snprintf(answers[i].key, sizeof(answers[i].key), "k%d", i);
	gate_close();
	ask(journal, ASKED, NULL);
	gate_wait();
	for (int i = 0; i < ASKED; i++)
		ask(journal, i, permits[i % count]);
	gate_open();
	turn_until(ASKED + 1);
	for (int i = 0; i <= ASKED; i++)
		ck_assert(answers[i].called == 1 && answers[i].destroyed == 1);
}

START_TEST(one_of_a_group_gets_it)
{
	static const char *const permits[] = {"p", NULL, "q", "p", "no such permit"};
	orch_journal *journal = open_journal();
	issue(journal, "p", 0);
	issue(journal, "q", 0);
	uint64_t sequence = orch_journal_sequence(journal);
	ask_at_once(journal, permits, 5);
	uint64_t users[2] = {0};
	for (int i = 0; i < ASKED; i++) {
		const struct answer *answer = &answers[i];
		/* The first that asks for each gets it; who asks for none is not spoiled. */
		bool gets = !answer->permit || i == 0 || i == 2;
		ck_assert_int_eq(answer->code, gets ? 0 : ORCH_EPERMIT);
		ck_assert_uint_eq(answer->outcome, gets ? ORCH_BEGIN_FRESH : 0);
		orch_action *action = NULL;
		ck_assert_int_eq(orch_journal_find(journal, answer->key, &action, NULL),
				 gets ? 0 : ORCH_ENOENT);
		ck_assert_uint_eq(orch_action_id(action), answer->action);
		orch_action_unref(action);
		if (gets && answer->permit)
			users[i / 2] = answer->action;
	}
	is(journal, "p", ORCH_PERMIT_USED, users[0]);
	is(journal, "q", ORCH_PERMIT_USED, users[1]);
	/* The one before, two with their permits, and those without. */
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1 + 4 + ASKED / 5);
	sound(journal);
}
END_TEST

START_TEST(found_expired_in_a_group)
{
	static const char *const permits[] = {"late", NULL, "good"};
	orch_journal *journal = open_journal();
	atomic_store(&stopped_at, 1800000000000);
	issue(journal, "late", 1800000000000);
	issue(journal, "good", 1800000000001);
	uint64_t sequence = orch_journal_sequence(journal);
	ask_at_once(journal, permits, 3);
	for (int i = 0; i < ASKED; i++) {
		bool gets = !answers[i].permit || i == 2;
		ck_assert_int_eq(answers[i].code, gets ? 0 : ORCH_EPERMIT);
		if (!gets)
			FAILS(ORCH_ENOENT, orch_journal_find(journal, answers[i].key,
							     &(orch_action *){NULL}, &error));
	}
	/* The one before, once that it has expired, the one with its permit, and those without. */
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1 + 1 + 2 + ASKED / 3);
	is(journal, "late", ORCH_PERMIT_EXPIRED, 0);
	sound(journal);
}
END_TEST

static void on_moved(void *userdata, orch_action *action, const orch_error *error)
{
	(void)userdata;
	ck_assert_ptr_null(error);
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_UNKNOWN);
	answered++;
}

START_TEST(no_decision_while_a_move_is_queued)
{
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_DISPATCHED);
	answered = 0;
	gate_close();
	OK(orch_action_move_async(action, ctx, ORCH_ACTION_UNKNOWN, NULL, 0, on_moved, NULL, NULL,
				  &error));
	gate_wait();
	FAILS(ORCH_EBUSY,
	      orch_action_decide(action, ORCH_DECISION_APPLIED, "ann", NULL, 0, &error));
	gate_open();
	turn_until(1);
	ck_assert_uint_eq(orch_action_decision(action, NULL, NULL), 0);
	OK(orch_action_decide(action, ORCH_DECISION_APPLIED, "ann", NULL, 0, &error));
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
	orch_action_unref(action);
	sound(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("permit-race");
	TCase *tests = tcase_create("permit-race");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, one_of_two_gets_it, 0, RIVALS);
	tcase_add_test(tests, one_of_a_group_gets_it);
	tcase_add_test(tests, found_expired_in_a_group);
	tcase_add_test(tests, no_decision_while_a_move_is_queued);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
