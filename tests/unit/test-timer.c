/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: rounds, both clocks, restarts and reboots, arguments, what verify notices.
 */
#include "timer-kit.h"

/* --- rounds
 * ----------------------------------------------------------------------------------------- */

START_TEST(a_whole_life)
{
	own_machine();
	orch_journal *journal = open_journal();
	next_is(journal, NULL, -1);
	orch_timer *timer = set_due(journal, "t", machine.wall_ms + 500);
	ck_assert_uint_eq(orch_timer_id(timer), 1);
	ck_assert_str_eq(orch_timer_name(timer), "t");
	ck_assert_uint_eq(orch_timer_state(timer), ORCH_TIMER_PENDING);
	ck_assert_uint_eq(orch_timer_round(timer), 1);
	ck_assert_int_eq(orch_timer_due_at_ms(timer), machine.wall_ms + 500);
	ck_assert_int_eq(orch_timer_delay_ms(timer), 0);
	size_t length = 0;
	ck_assert_mem_eq(orch_timer_payload(timer, &length), "due", 4);
	ck_assert_uint_eq(length, 3);
	ck_assert_uint_eq(orch_journal_sequence(journal), 2);
	next_is(journal, "t", 500);
	pass(499);
	next_is(journal, "t", 1);
	pass(1);
	next_is(journal, "t", 0);
	pass(HOUR);
	next_is(journal, "t", 0); /* due it stays */
	OK(orch_timer_done(timer, &error));
	ck_assert_uint_eq(orch_timer_state(timer), ORCH_TIMER_DONE);
	ck_assert_uint_eq(orch_journal_sequence(journal), 3);
	next_is(journal, NULL, -1);
	is_in(journal, "t", ORCH_TIMER_DONE, 1);
	FAILS(ORCH_ESTATE, orch_timer_done(timer, &error));
	FAILS(ORCH_ESTATE, orch_timer_cancel(timer, &error));
	orch_timer_unref(timer);

	timer = set_delay(journal, "d", 2000);
	ck_assert_int_eq(orch_timer_delay_ms(timer), 2000);
	ck_assert_int_eq(orch_timer_due_at_ms(timer), machine.wall_ms + 2000);
	next_is(journal, "d", 2000);
	OK(orch_timer_cancel(timer, &error));
	ck_assert_uint_eq(orch_timer_state(timer), ORCH_TIMER_CANCELED);
	FAILS(ORCH_ESTATE, orch_timer_done(timer, &error));
	is_in(journal, "d", ORCH_TIMER_CANCELED, 1);
	next_is(journal, NULL, -1);
	ck_assert_uint_eq(orch_journal_sequence(journal), 5);
	orch_timer_unref(timer);
	verifies(journal);
	orch_journal_unref(journal);

	journal = open_journal();
	is_in(journal, "t", ORCH_TIMER_DONE, 1);
	is_in(journal, "d", ORCH_TIMER_CANCELED, 1);
	verifies(journal);
	orch_journal_unref(journal);
}
END_TEST

/* What is known of an earlier round can do nothing to a later one, whatever became of either. */
START_TEST(an_earlier_round_ends_nothing)
{
	static int32_t (*const ends[])(orch_timer *, orch_error **) = {orch_timer_done,
								       orch_timer_cancel};
	own_machine();
	orch_journal *journal = open_journal();
	for (int before = 0; before < 3; before++)
		for (int late = 0; late < 2; late++) {
			char name[16];
			snprintf(name, sizeof(name), "t%d%d", before, late);
			orch_timer *first = set_due(journal, name, machine.wall_ms + 100);
			orch_timer *same = look_up(journal, name);
			if (before < 2)
				OK(ends[before](first, &error));
			orch_timer *second = set_delay(journal, name, 300);
			ck_assert_uint_eq(orch_timer_round(second), 2);
			ck_assert_uint_eq(orch_timer_id(second), orch_timer_id(first));
			uint64_t sequence = orch_journal_sequence(journal);
			FAILS(ORCH_ESTATE, ends[late](first, &error));
			FAILS(ORCH_ESTATE, ends[late](same, &error));
			ck_assert_uint_eq(orch_timer_state(same), ORCH_TIMER_PENDING);
			ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
			is_in(journal, name, ORCH_TIMER_PENDING, 2);
			/* The control: of this round it can be ended. */
			OK(ends[late](second, &error));
			is_in(journal, name, late ? ORCH_TIMER_CANCELED : ORCH_TIMER_DONE, 2);
			orch_timer_unref(first);
			orch_timer_unref(same);
			orch_timer_unref(second);
		}
	verifies(journal);
	orch_journal_unref(journal);
}
END_TEST

/* A new round has nothing of the one before but its name. */
START_TEST(set_anew)
{
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer *first = set_due(journal, "t", machine.wall_ms + 100);
	orch_timer *second = NULL;
	OK(try_set(journal, "t", 0, 5000, NULL, &second, &error));
	ck_assert_int_eq(orch_timer_delay_ms(second), 5000);
	ck_assert_ptr_null(orch_timer_payload(second, NULL));
	next_is(journal, "t", 5000);
	orch_timer *third = set_due(journal, "t", machine.wall_ms + 7000);
	ck_assert_int_eq(orch_timer_delay_ms(third), 0);
	ck_assert_uint_eq(orch_timer_round(third), 3);
	next_is(journal, "t", 7000);
	/* The handles tell what was. */
	ck_assert_uint_eq(orch_timer_round(first), 1);
	ck_assert_mem_eq(orch_timer_payload(first, NULL), "due", 3);
	orch_timer_unref(first);
	orch_timer_unref(second);
	orch_timer_unref(third);
	OK(try_set(journal, "t", 1, 0, "x", NULL, &error)); /* 1970 */
	next_is(journal, "t", 0);
	is_in(journal, "t", ORCH_TIMER_PENDING, 4);
	orch_journal_unref(journal);

	/* As if it had been set 2^32 - 1 times. */
	sql("UPDATE timer SET round = 4294967295");
	journal = open_journal();
	FAILS(ORCH_ESTATE, try_set(journal, "t", 1, 0, "x", NULL, &error));
	OK(try_set(journal, "u", 1, 0, "x", NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* --- clocks
 * ----------------------------------------------------------------------------------------- */

START_TEST(the_wall_clock_decides_of_due_at)
{
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer_unref(set_due(journal, "t", machine.wall_ms + HOUR));
	step(-YEAR);
	next_is(journal, "t", YEAR + HOUR);
	step(YEAR + HOUR - 1);
	next_is(journal, "t", 1);
	step(50 * YEAR);
	next_is(journal, "t", 0);
	step(-50 * YEAR);
	next_is(journal, "t", 1);
	orch_journal_unref(journal);
	reboot_after(1, "second-boot");
	journal = open_journal();
	uint64_t sequence = orch_journal_sequence(journal);
	next_is(journal, "t", 0);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(no_step_moves_a_delay)
{
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer_unref(set_delay(journal, "t", HOUR));
	static const int64_t steps[] = {-YEAR, 3 * YEAR, -2 * YEAR + 1, -30 * YEAR, 60 * YEAR};
	for (int i = 0; i < 5; i++) {
		step(steps[i]);
		next_is(journal, "t", HOUR - i * 1000);
		pass(1000);
		/* A killed coordinator comes back in the same boot. */
		orch_journal_unref(journal);
		journal = open_journal();
		next_is(journal, "t", HOUR - (i + 1) * 1000);
	}
	pass(HOUR - 5000);
	next_is(journal, "t", 0);
	step(-20 * YEAR);
	next_is(journal, "t", 0);
	/* Not even one that is due at once waits for a clock that is behind. */
	orch_timer *now = set_delay(journal, "now", 0);
	step(-YEAR);
	orch_timer *next = look_up(journal, "t");
	OK(orch_timer_done(next, &error));
	next_is(journal, "now", 0);
	OK(orch_timer_done(now, &error));
	orch_timer_unref(next);
	orch_timer_unref(now);
	verifies(journal);
	orch_journal_unref(journal);
}
END_TEST

static void reboots_to(int64_t down_ms, int64_t expected_ms)
{
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer *timer = set_delay(journal, "t", HOUR);
	orch_timer_unref(set_delay(journal, "done", HOUR / 2));
	orch_timer *done = look_up(journal, "done");
	OK(orch_timer_done(done, &error));
	orch_timer_unref(done);
	pass(HOUR / 4);
	orch_timer_unref(timer);
	orch_journal_unref(journal);
	reboot_after(down_ms, "second-boot");
	journal = open_journal();
	uint64_t sequence = orch_journal_sequence(journal);
	next_is(journal, "t", expected_ms);
	/* One record for the one that is pending, and its round is the same. */
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	is_in(journal, "t", ORCH_TIMER_PENDING, 1);
	timer = look_up(journal, "t");
	ck_assert_int_eq(orch_timer_due_at_ms(timer), machine.wall_ms + expected_ms);
	ck_assert_int_eq(orch_timer_delay_ms(timer), HOUR);
	/* From here on steps are nothing to it. */
	step(-YEAR);
	next_is(journal, "t", expected_ms);
	step(2 * YEAR);
	next_is(journal, "t", expected_ms);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 1);
	pass(expected_ms);
	next_is(journal, "t", 0);
	OK(orch_timer_done(timer, &error));
	orch_timer_unref(timer);
	verifies(journal);
	orch_journal_unref(journal);
}

START_TEST(after_a_reboot_the_wall_clock_says_what_is_left)
{
	reboots_to(HOUR / 4, HOUR / 2);
	kit_teardown();
	kit_setup();
	reboots_to(5 * HOUR, 0); /* it was due while the machine was off */
	kit_teardown();
	kit_setup();
	reboots_to(-YEAR, HOUR); /* a clock that is behind: the whole delay again at most */
}
END_TEST

/* However often, and whatever the clock says each time: what is left never grows. */
START_TEST(repeated_reboots_do_not_make_a_delay_longer)
{
	static const char *const boots[] = {"b1", "b2", "b3", "b4", "b5", "b6", "b7"};
	static const int64_t downs[] = {-YEAR, -YEAR, 1000, -5 * YEAR, 0, -HOUR, 600000};
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer_unref(set_delay(journal, "t", HOUR));
	orch_timer_unref(set_delay(journal, "later", 30 * DAY));
	orch_journal_unref(journal);
	int64_t left = HOUR;
	for (int i = 0; i < 7; i++) {
		int64_t before = left;
		reboot_after(downs[i], boots[i]);
		/* What the wall clock knows of went by since the last look; nothing, where it says
		 * less. */
		int64_t gone = (i ? 120000 : 0) + downs[i];
		left -= gone > 0 ? gone : 0;
		journal = open_journal();
		next_is(journal, "t", left);
		ck_assert_int_le(left, before);
		pass(60000);
		step(i % 2 ? YEAR : -YEAR);
		next_is(journal, "t", left - 60000);
		step(i % 2 ? -YEAR : YEAR);
		/* And over restarts within the boot. */
		orch_journal_unref(journal);
		journal = open_journal();
		next_is(journal, "t", left - 60000);
		orch_journal_unref(journal);
		pass(60000); /* nobody is there */
	}
	ck_assert_int_eq(left, HOUR - 121000 - 120000 - 720000);
	journal = open_journal();
	next_is(journal, "t", left - 120000);
	verifies(journal);
	orch_journal_unref(journal);
}
END_TEST

/* The first look may come late, and may not be able to write: then memory stands in. */
START_TEST(reading_after_a_reboot_writes_nothing)
{
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer_unref(set_delay(journal, "t", HOUR));
	orch_timer_unref(set_delay(journal, "later", 2 * HOUR));
	orch_timer_unref(set_due(journal, "wall", machine.wall_ms + DAY));
	orch_journal_unref(journal);
	struct file before = slurp(journal_path);
	reboot_after(-YEAR, "second-boot");
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	next_is(journal, "t", HOUR);
	pass(1000);
	step(-YEAR);
	next_is(journal, "t", HOUR - 1000);
	orch_timer *timer = look_up(journal, "t");
	FAILS(ORCH_ESTATE, orch_timer_done(timer, &error));
	FAILS(ORCH_ESTATE, try_set(journal, "n", 1, 0, NULL, NULL, &error));
	orch_timer_unref(timer);
	orch_journal_unref(journal);
	same_file(journal_path, &before);
}
END_TEST

/* A system that does not tell its boots apart: each coordinator counts as one. */
START_TEST(a_boot_without_a_name)
{
	own_machine();
	machine.boot_id = "";
	orch_journal *journal = open_journal();
	orch_timer_unref(set_delay(journal, "t", HOUR));
	step(YEAR);
	next_is(journal, "t", HOUR);
	step(-YEAR);
	pass(60000);
	next_is(journal, "t", HOUR - 60000);
	orch_journal_unref(journal);
	machine.boot_ms = 5; /* and it was another boot */
	journal = open_journal();
	next_is(journal, "t", HOUR - 60000);
	orch_journal_unref(journal);
	step(-YEAR);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	next_is(journal, "t", HOUR - 60000);
	orch_journal_unref(journal);
}
END_TEST

/* More than one transaction takes. */
START_TEST(many_after_a_reboot)
{
	own_machine();
	orch_journal *journal = open_journal();
	for (int i = 0; i < 600; i++) {
		char name[16];
		snprintf(name, sizeof(name), "t%d", i);
		orch_timer_unref(set_delay(journal, name, HOUR + 600 - i));
	}
	orch_journal_unref(journal);
	reboot_after(HOUR / 2, "second-boot");
	journal = open_journal();
	uint64_t sequence = orch_journal_sequence(journal);
	next_is(journal, "t599", HOUR / 2 + 1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 600);
	next_is(journal, "t599", HOUR / 2 + 1);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 600);
	verifies(journal);
	orch_journal_unref(journal);
}
END_TEST

/* The real clocks, here and now. */
START_TEST(by_the_real_clocks)
{
	orch_journal *journal = open_journal();
	orch_timer_unref(set_delay(journal, "t", 60000));
	struct timespec boot;
	char id[64] = "";
	clock_gettime(CLOCK_BOOTTIME, &boot);
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	ck_assert_int_eq(fscanf(file, "%36s", id), 1);
	fclose(file);
	orch_timer *timer = NULL;
	int64_t wait = 0;
	OK(orch_timer_next(journal, &timer, &wait, &error));
	ck_assert_int_gt(wait, 0);
	ck_assert_int_le(wait, 60000);
	orch_timer_unref(timer);
	orch_journal_unref(journal);
	char check[256];
	snprintf(check, sizeof(check),
		 "CREATE TEMP TABLE ok (one CHECK (one = 1)); INSERT INTO ok SELECT boot_id LIKE "
		 "'%s%%' AND boot_due_ms BETWEEN %lld AND %lld FROM timer",
		 id, (long long)boot.tv_sec * 1000, (long long)boot.tv_sec * 1000 + 61000);
	sql(check);
}
END_TEST

/* --- restarts
 * --------------------------------------------------------------------------------------- */

static void fire_and_die(void *userdata)
{
	orch_journal *journal = open_journal();
	orch_timer *timer = NULL;
	int64_t wait = -1;
	(void)userdata;
	orch_timer_unref(set_due(journal, "t", 1));
	OK(orch_timer_next(journal, &timer, &wait, &error));
	ck_assert_int_eq(wait, 0);
	orch_timer *other = set_due(journal, "ended", 2);
	OK(orch_timer_done(other, &error));
	kill(getpid(), SIGKILL);
}

START_TEST(killed_between_due_and_done)
{
	ck_assert_int_eq(WTERMSIG(in_child(fire_and_die, NULL)), SIGKILL);
	for (int i = 0; i < 2; i++) {
		orch_journal *journal = open_journal();
		next_is(journal, "t", 0);
		is_in(journal, "ended", ORCH_TIMER_DONE, 1);
		verifies(journal);
		orch_journal_unref(journal);
	}
	orch_journal *journal = open_journal();
	orch_timer *timer = look_up(journal, "t");
	OK(orch_timer_done(timer, &error));
	orch_timer_unref(timer);
	orch_journal_unref(journal);
	journal = open_journal();
	next_is(journal, NULL, -1);
	orch_journal_unref(journal);
}
END_TEST

/* --- many
 * ------------------------------------------------------------------------------------------- */

struct walk {
	int count;
	int stop_at;
	orch_journal *journal; /* sets another one in each step */
	uint64_t last;
};

static int32_t step_walk(void *userdata, orch_timer *timer)
{
	struct walk *walk = userdata;
	ck_assert_uint_gt(orch_timer_id(timer), walk->last);
	walk->last = orch_timer_id(timer);
	walk->count++;
	if (walk->journal) {
		char name[32];
		snprintf(name, sizeof(name), "new%d", walk->count);
		OK(try_set(walk->journal, name, 1, 0, NULL, NULL, &error));
	}
	return walk->count == walk->stop_at ? 42 : 0;
}

START_TEST(walking)
{
	own_machine();
	orch_journal *journal = open_journal();
	struct walk none = {0};
	OK(orch_timer_each(journal, step_walk, &none, &error));
	ck_assert_int_eq(none.count, 0);
	for (int i = 0; i < 5; i++) {
		char name[2] = {(char)('e' - i)};
		orch_timer *timer = set_due(journal, name, 1000 - i);
		if (i == 2)
			OK(orch_timer_done(timer, &error));
		orch_timer_unref(timer);
	}
	/* Set anew it keeps its place. */
	orch_timer_unref(set_delay(journal, "e", 3));
	struct walk all = {0}, some = {.stop_at = 2}, more = {.journal = journal};
	OK(orch_timer_each(journal, step_walk, &all, &error));
	ck_assert_int_eq(all.count, 5);
	ck_assert_int_eq(orch_timer_each(journal, step_walk, &some, NULL), 42);
	ck_assert_int_eq(some.count, 2);
	OK(orch_timer_each(journal, step_walk, &more, &error));
	ck_assert_int_eq(more.count, 5);
	FAILS(ORCH_EINVAL, orch_timer_each(journal, NULL, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* Ten thousand; each is the next one once, in the order of their moments. */
START_TEST(ten_thousand)
{
	enum { COUNT = 10000 };
	own_machine();
	orch_journal *journal = open_journal();
	for (int i = 0; i < COUNT; i++) {
		char name[16];
		int64_t after = 1 + (int64_t)i * 7919 % COUNT;
		snprintf(name, sizeof(name), "t%d", i);
		OK(try_set(journal, name, i % 2 ? machine.wall_ms + after : 0, i % 2 ? 0 : after,
			   NULL, NULL, &error));
	}
	for (int i = 1; i <= COUNT; i++) {
		orch_timer *timer = NULL;
		int64_t wait = -1;
		OK(orch_timer_next(journal, &timer, &wait, &error));
		ck_assert_int_eq(wait, 1);
		pass(1);
		OK(orch_timer_done(timer, &error));
		orch_timer_unref(timer);
	}
	next_is(journal, NULL, -1);
	struct walk all = {0};
	OK(orch_timer_each(journal, step_walk, &all, &error));
	ck_assert_int_eq(all.count, COUNT);
	verifies(journal);
	orch_journal_unref(journal);
}
END_TEST

/* --- arguments
 * -------------------------------------------------------------------------------------- */

START_TEST(payloads)
{
	static const unsigned char bytes[] = {0, 0xff, 0, 0xfe, 'x', 0};
	static char big[4097];
	own_machine();
	orch_journal *journal = open_journal();
	struct orch_timer_opts opts;
	orch_timer_opts_init(&opts, sizeof(opts));
	opts.name = "bytes";
	opts.delay_ms = 1;
	opts.payload = bytes;
	opts.payload_length = sizeof(bytes);
	OK(orch_timer_set(journal, &opts, NULL, &error));
	memset(big, 'b', sizeof(big));
	opts.name = "big";
	opts.payload = big;
	opts.payload_length = 4096;
	OK(orch_timer_set(journal, &opts, NULL, &error));
	uint64_t sequence = orch_journal_sequence(journal);
	opts.payload_length = 4097;
	FAILS(ORCH_ETOOBIG, orch_timer_set(journal, &opts, NULL, &error));
	opts.payload_length = SIZE_MAX;
	FAILS(ORCH_ETOOBIG, orch_timer_set(journal, &opts, NULL, &error));
	opts.payload = NULL;
	opts.payload_length = 1;
	FAILS(ORCH_EINVAL, orch_timer_set(journal, &opts, NULL, &error));
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	opts.name = "empty";
	opts.payload = big;
	opts.payload_length = 0;
	OK(orch_timer_set(journal, &opts, NULL, &error));
	orch_journal_unref(journal);

	journal = open_journal();
	size_t length = 1;
	orch_timer *timer = look_up(journal, "bytes");
	ck_assert_mem_eq(orch_timer_payload(timer, &length), bytes, sizeof(bytes));
	ck_assert_uint_eq(length, sizeof(bytes));
	orch_timer_unref(timer);
	timer = look_up(journal, "big");
	ck_assert_mem_eq(orch_timer_payload(timer, &length), big, 4096);
	ck_assert_uint_eq(length, 4096);
	orch_timer_unref(timer);
	timer = look_up(journal, "empty");
	ck_assert_ptr_null(orch_timer_payload(timer, &length));
	ck_assert_uint_eq(length, 0);
	orch_timer_unref(timer);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(names_and_times)
{
	own_machine();
	orch_journal *journal = open_journal();
	char long_name[257];
	memset(long_name, 'n', 256);
	long_name[256] = '\0';
	const char *const bad[] = {NULL, "", long_name, "\xff", "\xc0\xaf", "\xed\xa0\x80"};
	uint64_t sequence = orch_journal_sequence(journal);
	orch_timer *timer = (orch_timer *)&sequence;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		FAILS(ORCH_EINVAL, try_set(journal, bad[i], 0, 1, NULL, &timer, &error));
		FAILS(ORCH_EINVAL, orch_timer_find(journal, bad[i], &timer, &error));
	}
	static const int64_t times[][2] = {{1, 1},
					   {-1, 0},
					   {0, -1},
					   {INT64_MIN, 0},
					   {0, INT64_MIN},
					   {253402300800000, 0},
					   {0, 3155760000001},
					   {INT64_MAX, 0},
					   {0, INT64_MAX}};
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		FAILS(ORCH_EINVAL,
		      try_set(journal, "t", times[i][0], times[i][1], NULL, &timer, &error));
	FAILS(ORCH_ENOENT, orch_timer_find(journal, "t", &timer, &error));
	ck_assert_ptr_eq(timer, &sequence);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	/* The ends of what is allowed. */
	OK(try_set(journal, "far", 253402300799999, 0, NULL, NULL, &error));
	OK(try_set(journal, "long", 0, 3155760000000, NULL, NULL, &error));
	long_name[255] = '\0';
	OK(try_set(journal, long_name, 0, 0, NULL, NULL, &error));
	OK(try_set(journal, "\xf0\x9f\x98\x80", 1, 0, NULL, NULL, &error));
	is_in(journal, long_name, ORCH_TIMER_PENDING, 1);
	is_in(journal, "\xf0\x9f\x98\x80", ORCH_TIMER_PENDING, 1);
	verifies(journal);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(arguments)
{
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer *timer = NULL;
	int64_t wait = 5;
	struct orch_timer_opts opts;
	orch_timer_opts_init(&opts, sizeof(opts));
	opts.name = "t";
	FAILS(ORCH_EINVAL, orch_timer_set(NULL, &opts, &timer, &error));
	FAILS(ORCH_EINVAL, orch_timer_set(journal, NULL, &timer, &error));
	opts.flags = 1;
	FAILS(ORCH_EINVAL, orch_timer_set(journal, &opts, &timer, &error));
	opts.flags = 0;
	struct {
		struct orch_timer_opts opts;
		uint64_t more;
	} newer = {.opts = opts, .more = 1};
	newer.opts.size = sizeof(newer);
	FAILS(ORCH_E2BIG, orch_timer_set(journal, &newer.opts, &timer, &error));
	newer.more = 0;
	OK(orch_timer_set(journal, &newer.opts, &timer, &error));
	FAILS(ORCH_EINVAL, orch_timer_done(NULL, &error));
	FAILS(ORCH_EINVAL, orch_timer_cancel(NULL, &error));
	FAILS(ORCH_EINVAL, orch_timer_find(NULL, "t", &timer, &error));
	FAILS(ORCH_EINVAL, orch_timer_find(journal, "t", NULL, &error));
	FAILS(ORCH_EINVAL, orch_timer_next(NULL, &timer, &wait, &error));
	FAILS(ORCH_EINVAL, orch_timer_next(journal, NULL, &wait, &error));
	FAILS(ORCH_EINVAL, orch_timer_next(journal, &timer, NULL, &error));
	ck_assert_int_eq(wait, 5);
	ck_assert_int_eq(orch_timer_done(NULL, NULL), ORCH_EINVAL);
	ck_assert_str_eq(orch_timer_name(NULL), "");
	ck_assert_uint_eq(orch_timer_id(NULL) + orch_timer_state(NULL) + orch_timer_round(NULL), 0);
	ck_assert_int_eq(orch_timer_due_at_ms(NULL) + orch_timer_delay_ms(NULL), 0);
	size_t length = 3;
	ck_assert_ptr_null(orch_timer_payload(NULL, &length));
	ck_assert_uint_eq(length, 0);
	ck_assert_str_eq(orch_timer_state_name(0), "?");
	ck_assert_str_eq(orch_timer_state_name(ORCH_TIMER_PENDING), "PENDING");
	ck_assert_str_eq(orch_timer_state_name(ORCH_TIMER_DONE), "DONE");
	ck_assert_str_eq(orch_timer_state_name(ORCH_TIMER_CANCELED), "CANCELED");
	ck_assert_ptr_null(orch_timer_ref(NULL));
	ck_assert_ptr_null(orch_timer_unref(NULL));
	ck_assert_ptr_null(orch_timer_watch_unref(NULL));
	/* The last handle closes the journal. */
	orch_journal_unref(journal);
	OK(orch_timer_done(timer, &error));
	FAILS(ORCH_ELOCKED, kit_open(&journal, &error));
	orch_timer_ref(timer);
	orch_timer_unref(timer);
	orch_timer_unref(timer);
	journal = open_journal();
	is_in(journal, "t", ORCH_TIMER_DONE, 1);
	orch_journal_unref(journal);
}
END_TEST

/* --- what verify notices
 * ---------------------------------------------------------------------------- */

START_TEST(each_changed_column)
{
	static const char *const changes[] = {
		"UPDATE timer SET sequence = sequence + 1 WHERE id = 1",
		"UPDATE timer SET sequence = 1 WHERE id = 1",
		"UPDATE timer SET name = 'other' WHERE id = 1",
		"UPDATE timer SET state = 2 WHERE id = 1",
		"UPDATE timer SET state = 4294967297 WHERE id = 1",
		"UPDATE timer SET round = 2 WHERE id = 1",
		"UPDATE timer SET round = 4294967297 WHERE id = 1",
		"UPDATE timer SET due_at_ms = due_at_ms + 1 WHERE id = 1",
		"UPDATE timer SET due_at_ms = -1 WHERE id = 1",
		"UPDATE timer SET delay_ms = delay_ms + 1 WHERE id = 1",
		"UPDATE timer SET boot_id = boot_id || 'x' WHERE id = 1",
		"UPDATE timer SET boot_id = '' WHERE id = 1",
		"UPDATE timer SET boot_due_ms = boot_due_ms + 1 WHERE id = 1",
		"UPDATE timer SET payload = NULL WHERE id = 1",
		"UPDATE timer SET payload = x'' WHERE id = 1",
		"UPDATE timer SET payload = x'64656c617900' WHERE id = 1",
		"UPDATE timer SET payload = zeroblob(5000) WHERE id = 1",
		"UPDATE timer SET payload = x'00' WHERE id = 3",
		"UPDATE timer SET created_at_ms = created_at_ms - 1 WHERE id = 1",
		"UPDATE timer SET updated_at_ms = updated_at_ms - 1 WHERE id = 1",
		"UPDATE timer SET state = 1 WHERE id = 2",
		"UPDATE timer SET id = 77 WHERE id = 1",
		"DELETE FROM timer WHERE id = 1",
		"INSERT INTO timer SELECT 9, sequence, 'copy', state, round, due_at_ms, delay_ms,"
		" boot_id, boot_due_ms, payload, created_at_ms, updated_at_ms FROM timer WHERE id "
		"= 1",
		"UPDATE event SET noun = 1 WHERE sequence = 2",
	};
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer_unref(set_delay(journal, "t", HOUR));
	orch_timer *timer = set_due(journal, "ended", 1);
	OK(orch_timer_done(timer, &error));
	orch_timer_unref(timer);
	OK(try_set(journal, "plain", 7, 0, NULL, NULL, &error));
	verifies(journal);
	orch_journal_unref(journal);
	struct file good = slurp(journal_path);
	for (size_t i = 0; i <= sizeof(changes) / sizeof(changes[0]); i++) {
		bool change = i < sizeof(changes) / sizeof(changes[0]);
		if (change)
			sql(changes[i]);
		OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
		int32_t r = orch_journal_verify(journal, NULL, NULL);
		ck_assert_msg(r == (change ? ORCH_ECORRUPT : 0), "%s: %s",
			      change ? changes[i] : "nothing changed", orch_code_name(r));
		orch_journal_unref(journal);
		unlink(wal_path);
		spill(journal_path, &good);
	}
	/* What cannot be read is told as that, and the rest goes on. */
	sql("UPDATE timer SET due_at_ms = -1 WHERE id = 3");
	journal = open_journal();
	FAILS(ORCH_ECORRUPT, orch_timer_find(journal, "plain", &timer, &error));
	is_in(journal, "t", ORCH_TIMER_PENDING, 1);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timer");
	TCase *tests = tcase_create("timer");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, a_whole_life);
	tcase_add_test(tests, an_earlier_round_ends_nothing);
	tcase_add_test(tests, set_anew);
	tcase_add_test(tests, the_wall_clock_decides_of_due_at);
	tcase_add_test(tests, no_step_moves_a_delay);
	tcase_add_test(tests, after_a_reboot_the_wall_clock_says_what_is_left);
	tcase_add_test(tests, repeated_reboots_do_not_make_a_delay_longer);
	tcase_add_test(tests, reading_after_a_reboot_writes_nothing);
	tcase_add_test(tests, a_boot_without_a_name);
	tcase_add_test(tests, many_after_a_reboot);
	tcase_add_test(tests, by_the_real_clocks);
	tcase_add_test(tests, killed_between_due_and_done);
	tcase_add_test(tests, walking);
	tcase_add_test(tests, payloads);
	tcase_add_test(tests, names_and_times);
	tcase_add_test(tests, arguments);
	tcase_add_test(tests, each_changed_column);
	suite_add_tcase(suite, tests);
	TCase *many = tcase_create("many");
	tcase_add_checked_fixture(many, setup_in_memory, kit_teardown);
	tcase_set_timeout(many, 120);
	tcase_add_test(many, ten_thousand);
	suite_add_tcase(suite, many);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
