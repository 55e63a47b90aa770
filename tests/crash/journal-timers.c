/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers that are acknowledged survive: a coordinator killed at each write and sync of setting,
 * setting anew, ending and of the first look after a reboot, each of these calls failing, each
 * allocation failing. One scripted history runs in a child; what it was told is in memory that the
 * judge shares. Clocks and boots are those of this program (--wrap).
 */
#include <orch/timer.h>

#include "journal-strike.h"

#define HOUR 3600000

static const char *boot_id = "boot-0";
static int64_t wall_ms = 1767225600000, boot_ms = 5000;

int64_t __wrap_orch_realtime_ms(void);
int64_t __wrap_clock_boot_ms(void);
void __wrap_orch_boot_id(char *id, size_t size);

int64_t __wrap_orch_realtime_ms(void)
{
	return wall_ms;
}

int64_t __wrap_clock_boot_ms(void)
{
	return boot_ms;
}

void __wrap_orch_boot_id(char *id, size_t size)
{
	snprintf(id, size, "%s", boot_id);
}

/* --- the history
 * -------------------------------------------------------------------------------------------- */

enum verb { SET_DELAY, SET_DUE, DONE, CANCEL, REBOOT, LOOK };

/* What SET and the ends do is one commit each. */
static const struct step {
	enum verb verb;
	const char *name;
	uint32_t state; /* after it */
	uint32_t round;
} steps[] = {
	{SET_DELAY, "a", ORCH_TIMER_PENDING, 1},
	{SET_DUE, "b", ORCH_TIMER_PENDING, 1},
	{SET_DELAY, "a", ORCH_TIMER_PENDING, 2},
	{DONE, "b", ORCH_TIMER_DONE, 1},
	{SET_DUE, "c", ORCH_TIMER_PENDING, 1},
	{CANCEL, "c", ORCH_TIMER_CANCELED, 1},
	{SET_DELAY, "d", ORCH_TIMER_PENDING, 1},
	{SET_DELAY, "b", ORCH_TIMER_PENDING, 2},
	{REBOOT, "", 0, 0},
	{LOOK, "", 0, 0},
	{DONE, "a", ORCH_TIMER_DONE, 2},
	{SET_DUE, "a", ORCH_TIMER_PENDING, 3},
	{CANCEL, "b", ORCH_TIMER_CANCELED, 2},
	{REBOOT, "", 0, 0},
	{LOOK, "", 0, 0},
	{DONE, "d", ORCH_TIMER_DONE, 1},
};
#define STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

static struct shared {
	int acknowledged; /* steps that returned 0 */
	int32_t code;	  /* of the call that did not */
	int32_t told;	  /* the same, from its orch_error */
	char message[200];
	unsigned calls; /* that could have been struck */
	int told_due[8], destroyed;
} * shared;

static int32_t set(orch_journal *journal, const char *name, int64_t due_at_ms, int64_t delay_ms,
		   orch_error **reterr)
{
	static const char payload[300] = "payload";
	struct orch_timer_opts opts;
	orch_timer_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.due_at_ms = due_at_ms;
	opts.delay_ms = delay_ms;
	opts.payload = payload;
	opts.payload_length = sizeof(payload);
	return orch_timer_set(journal, &opts, NULL, reterr);
}

static int32_t end(orch_journal *journal, const struct step *step, orch_error **reterr)
{
	orch_timer *timer = NULL;
	int32_t r = orch_timer_find(journal, step->name, &timer, reterr);
	if (r == 0)
		r = step->verb == DONE ? orch_timer_done(timer, reterr)
				       : orch_timer_cancel(timer, reterr);
	orch_timer_unref(timer);
	return r;
}

static int32_t look(orch_journal *journal, orch_error **reterr)
{
	orch_timer *timer = NULL;
	int64_t wait = -7;
	int32_t r = orch_timer_next(journal, &timer, &wait, reterr);
	/* Not ck_assert(), which wants memory. */
	if (r == 0 ? !timer || wait <= 0 || wait > HOUR : timer || wait != -7)
		abort();
	orch_timer_unref(timer);
	return r;
}

/* The clock is an hour behind afterwards. */
static void reboot_machine(void)
{
	static const char *const boots[] = {"boot-0", "boot-1", "boot-2", "boot-3"};
	boot_id = boots[boot_id[5] - '0' + 1];
	boot_ms = 1000;
	wall_ms -= HOUR;
}

static int32_t play(orch_journal **journal, const struct step *step, orch_error **reterr)
{
	switch (step->verb) {
	case SET_DELAY:
		return set(*journal, step->name, 0, HOUR, reterr);
	case SET_DUE:
		return set(*journal, step->name, 1800000000000, 0, reterr);
	case LOOK:
		return look(*journal, reterr);
	case REBOOT:
		faults.armed = false;
		*journal = orch_journal_unref(*journal);
		reboot_machine();
		*journal = open_anchored();
		faults.armed = faults.at > 0;
		return 0;
	default:
		return end(*journal, step, reterr);
	}
}

static void history(void *userdata)
{
	/* Opening and closing are struck in journal-faults.c. */
	orch_journal *journal = open_anchored();
	orch_error *error = NULL;
	int32_t r = 0;
	(void)userdata;
	faults.armed = faults.at > 0;
	for (int i = 0; r == 0 && i < STEPS; i++) {
		r = play(&journal, &steps[i], &error);
		if (r == 0)
			shared->acknowledged = i + 1;
	}
	shared->code = r;
	shared->told = orch_error_code(error);
	snprintf(shared->message, sizeof(shared->message), "%s", orch_error_message(error));
	orch_error_free(error);
	faults.armed = false;
	shared->calls = faults.seen;
	orch_journal_unref(journal);
}

static int run_history(void)
{
	memset(shared, 0, sizeof(*shared));
	return in_child(history, NULL);
}

/* --- the judge
 * ---------------------------------------------------------------------------------------------- */

/* What the first `count` steps made of it; NULL: nothing. */
static const struct step *last_of(const char *name, int count)
{
	const struct step *last = NULL;
	for (int i = 0; i < count; i++)
		if (strcmp(steps[i].name, name) == 0)
			last = &steps[i];
	return last;
}

static bool tells(orch_journal *journal, int count)
{
	for (int i = 0; i < STEPS; i++) {
		if (!steps[i].round)
			continue;
		const struct step *last = last_of(steps[i].name, count);
		orch_timer *timer = NULL;
		int32_t r = orch_timer_find(journal, steps[i].name, &timer, NULL);
		bool same = last ? r == 0 && orch_timer_state(timer) == last->state &&
					    orch_timer_round(timer) == last->round
				 : r == ORCH_ENOENT;
		orch_timer_unref(timer);
		if (!same)
			return false;
	}
	return true;
}

/* Each that is pending is due in its time, and can be ended once. */
static void finish(orch_journal *journal, int count)
{
	int pending = 0, ended = 0;
	for (const char *name = "abcd"; *name; name++) {
		char text[2] = {*name};
		const struct step *last = last_of(text, count);
		pending += last && last->state == ORCH_TIMER_PENDING;
	}
	for (;; ended++) {
		orch_timer *timer = NULL;
		int64_t wait = -7;
		OK(orch_timer_next(journal, &timer, &wait, &error));
		if (!timer)
			break;
		if (orch_timer_delay_ms(timer))
			ck_assert_int_le(wait, HOUR);
		else
			ck_assert_int_eq(wait, 1800000000000 - wall_ms);
		OK(orch_timer_done(timer, &error));
		FAILS(ORCH_ESTATE, orch_timer_done(timer, &error));
		orch_timer_unref(timer);
	}
	ck_assert_int_eq(ended, pending);
}

static void judge(int at_least, int at_most, const char *what, unsigned at)
{
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	int count = at_least;
	while (count <= at_most && !tells(journal, count))
		count++;
	ck_assert_msg(count <= at_most,
		      "%s at %u: acknowledged %d steps, and the file tells others", what, at,
		      at_least);
	finish(journal, count);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}

static void renew(void)
{
	kit_teardown();
	kit_setup();
}

static void setup(void)
{
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm";
	kit_setup();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

/* --- tests
 * ----------------------------------------------------------------------------------------------------
 */

START_TEST(killed_at_each_write)
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
		judge(shared->acknowledged, shared->acknowledged + 1, "killed at write", at);
		renew();
	}
	ck_assert_int_eq(shared->acknowledged, STEPS);
	judge(STEPS, STEPS, "not killed", 0);
	ck_assert_uint_gt(at, 3 * STEPS);
}
END_TEST

/* Every call that fails says so, and nothing that succeeded is lost. */
static void strike_each(enum fault fault, int error, int32_t code, int32_t other)
{
	unsigned at = 1, failed = 0;
	for (;; at++) {
		faults.fault = fault;
		faults.error = error;
		faults.at = at;
		ck_assert_int_eq(run_history(), 0);
		ck_assert_int_eq(shared->told, shared->code);
		if (shared->calls < at)
			break;
		if (shared->code == 0)
			ck_assert_int_eq(shared->acknowledged, STEPS);
		else
			ck_assert_msg(shared->code == code || shared->code == other,
				      "%s at call %u: %s: %s", strerror(error), at,
				      orch_code_name(shared->code), shared->message);
		failed += shared->code != 0;
		judge(shared->acknowledged, shared->acknowledged + 1, strerror(error), at);
		renew();
	}
	ck_assert_int_eq(shared->acknowledged, STEPS);
	ck_assert_uint_gt(failed, STEPS);
}

START_TEST(each_write_and_sync_fails_once)
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

/* What is left after a reboot cannot be written down: it counts from memory, until there is room.
 */
START_TEST(a_full_disk_after_a_reboot)
{
	orch_journal *journal = open_journal();
	OK(set(journal, "t", 0, HOUR, &error));
	orch_journal_unref(journal);
	reboot_machine();
	journal = open_journal();
	uint64_t sequence = orch_journal_sequence(journal);
	faults.fault = FAIL_FROM;
	faults.error = ENOSPC;
	faults.at = 1;
	for (int64_t left = HOUR; left > 0; left -= HOUR / 4) {
		orch_timer *timer = NULL;
		int64_t wait = -7;
		faults.armed = true;
		faults.seen = 0;
		OK(orch_timer_next(journal, &timer, &wait, &error));
		ck_assert_uint_gt(faults.seen, 0);
		faults.armed = false;
		ck_assert_int_eq(wait, left);
		ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
		orch_timer_unref(timer);
		boot_ms += HOUR / 4;
		wall_ms -= HOUR; /* stepped back all the time */
	}
	orch_timer *timer = NULL;
	int64_t wait = -7;
	OK(orch_timer_next(journal, &timer, &wait, &error));
	ck_assert_int_eq(wait, 0);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	orch_timer_unref(timer);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* --- a watch without memory
 * ---------------------------------------------------------------------------- */

static void on_due(void *userdata, orch_timer *timer)
{
	bool armed = faults.armed;
	(void)userdata;
	faults.armed = false;
	shared->told_due[orch_timer_name(timer)[0] - 'a']++;
	faults.armed = armed;
}

static void on_destroy(void *userdata)
{
	(void)userdata;
	shared->destroyed++;
}

static bool all_told(void)
{
	return shared->told_due[0] && shared->told_due[1] && shared->told_due[2];
}

/* What the loop needs of its own is there already: libev ends a program that has no memory for it.
 */
static void watch_history(void *userdata)
{
	orch_journal *journal = open_journal();
	orch_ctx *ctx = NULL;
	orch_timer_watch *watch = NULL, *earlier[4] = {0};
	bool in_new = *(bool *)userdata;
	OK(orch_ctx_new(NULL, &ctx, &error));
	OK(set(journal, "a", 1, 0, &error));
	for (int i = 0; i < 4; i++)
		OK(orch_timer_watch_new(journal, ctx, on_due, NULL, NULL, &earlier[i], &error));
	FAILS(ORCH_ETIMEDOUT, orch_ctx_run(ctx, 20, &error));
	ck_assert_int_eq(shared->told_due[0], 4);
	shared->told_due[0] = 0;
	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('a' + i)};
		OK(set(journal, name, 1 + i, 0, &error));
	}
	for (int i = 0; i < 4; i++)
		orch_timer_watch_unref(earlier[i]);
	faults.armed = in_new;
	int32_t code = orch_timer_watch_new(journal, ctx, on_due, NULL, on_destroy, &watch, NULL);
	faults.armed = !in_new;
	shared->code = code;
	if (code < 0)
		ck_assert_int_eq(shared->destroyed, 1);
	for (int i = 0; code == 0 && i < 1000 && !all_told(); i++)
		orch_ctx_run(ctx, 20, NULL);
	faults.armed = false;
	shared->calls = faults.seen;
	orch_timer_watch_unref(watch);
	ck_assert_int_eq(shared->destroyed, 1);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}

START_TEST(a_watch_without_memory)
{
	for (int in_new = 1; in_new >= 0; in_new--) {
		bool flag = in_new;
		unsigned at = 1, failed = 0;
		for (;; at++) {
			memset(shared, 0, sizeof(*shared));
			faults.fault = FAIL_ONCE;
			faults.error = ENOMEM;
			faults.at = at;
			ck_assert_int_eq(in_child(watch_history, &flag), 0);
			ck_assert(shared->code == 0 || (in_new && shared->code == ORCH_ENOMEM));
			failed += shared->code != 0;
			/* Once each, if not at once. */
			for (int i = 0; i < 3; i++)
				ck_assert_int_eq(shared->told_due[i], shared->code == 0);
			renew();
			if (shared->calls < at)
				break;
		}
		ck_assert_uint_gt(at, 3);
		ck_assert_int_eq(failed > 0, in_new);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-timers");
	TCase *tests = tcase_create("faults");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 240);
	tcase_add_test(tests, killed_at_each_write);
	tcase_add_test(tests, each_write_and_sync_fails_once);
	tcase_add_test(tests, each_write_finds_the_disk_full);
	tcase_add_test(tests, each_allocation_fails);
	tcase_add_test(tests, a_full_disk_after_a_reboot);
	tcase_add_test(tests, a_watch_without_memory);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
