/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forked children, poisoned journals, and watches of timers in a context: what is told when, how
 * they end, among threads.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "timer-kit.h"

/* --- forked, poisoned
 * ------------------------------------------------------------------------------- */

struct inherited {
	orch_journal *journal;
	orch_timer *timer;
};

static void use_in_child(void *userdata)
{
	struct inherited *inherited = userdata;
	orch_timer *timer = NULL;
	int64_t wait;
	FAILS(ORCH_EFORKED, try_set(inherited->journal, "n", 1, 0, NULL, &timer, &error));
	FAILS(ORCH_EFORKED, orch_timer_done(inherited->timer, &error));
	FAILS(ORCH_EFORKED, orch_timer_cancel(inherited->timer, &error));
	FAILS(ORCH_EFORKED, orch_timer_find(inherited->journal, "t", &timer, &error));
	FAILS(ORCH_EFORKED,
	      orch_timer_each(inherited->journal, (orch_timer_each_fn)abort, NULL, &error));
	FAILS(ORCH_EFORKED, orch_timer_next(inherited->journal, &timer, &wait, &error));
	ck_assert_str_eq(orch_timer_name(inherited->timer), "t");
	orch_timer_unref(inherited->timer);
	orch_journal_unref(inherited->journal);
}

START_TEST(a_forked_child_touches_nothing)
{
	own_machine();
	struct inherited inherited = {.journal = open_journal()};
	inherited.timer = set_due(inherited.journal, "t", 1);
	ck_assert_int_eq(in_child(use_in_child, &inherited), 0);
	OK(orch_timer_done(inherited.timer, &error));
	verifies(inherited.journal);
	orch_timer_unref(inherited.timer);
	orch_journal_unref(inherited.journal);
}
END_TEST

START_TEST(a_poisoned_journal)
{
	own_machine();
	orch_journal *journal = open_journal();
	orch_timer *timer = set_due(journal, "t", 1), *other = NULL;
	int64_t wait;
	poison(journal);
	FAILS(ORCH_EPOISONED, try_set(journal, "n", 1, 0, NULL, &other, &error));
	FAILS(ORCH_EPOISONED, orch_timer_done(timer, &error));
	FAILS(ORCH_EPOISONED, orch_timer_find(journal, "t", &other, &error));
	FAILS(ORCH_EPOISONED, orch_timer_each(journal, (orch_timer_each_fn)abort, NULL, &error));
	FAILS(ORCH_EPOISONED, orch_timer_next(journal, &other, &wait, &error));
	ck_assert_ptr_null(other);
	orch_timer_unref(timer);
	orch_journal_unref(journal);
	journal = open_journal();
	next_is(journal, "t", 0);
	orch_journal_unref(journal);
}
END_TEST

/* --- watches
 * ---------------------------------------------------------------------------------------- */

#define SEEN_MAX 1200

/* What a watch told. */
struct seen {
	int count, destroyed, in_turn;
	char names[SEEN_MAX][16];
	uint32_t rounds[SEEN_MAX];
	void (*then)(struct seen *seen, orch_timer *timer);
	orch_journal *journal;
	orch_ctx *ctx;
	orch_timer_watch *watch;
};

static void on_due(void *userdata, orch_timer *timer)
{
	struct seen *seen = userdata;
	ck_assert_int_eq(seen->destroyed, 0);
	ck_assert_int_lt(seen->count, SEEN_MAX);
	ck_assert_uint_eq(orch_timer_state(timer), ORCH_TIMER_PENDING);
	snprintf(seen->names[seen->count], 16, "%s", orch_timer_name(timer));
	seen->rounds[seen->count++] = orch_timer_round(timer);
	seen->in_turn++;
	if (seen->then)
		seen->then(seen, timer);
}

static void on_destroy(void *userdata)
{
	((struct seen *)userdata)->destroyed++;
}

static orch_ctx *new_ctx(void)
{
	orch_ctx *ctx = NULL;
	OK(orch_ctx_new(NULL, &ctx, &error));
	return ctx;
}

static orch_timer_watch *watch_it(orch_journal *journal, orch_ctx *ctx, struct seen *seen)
{
	orch_timer_watch *watch = NULL;
	seen->journal = journal;
	seen->ctx = ctx;
	int count = seen->count;
	OK(orch_timer_watch_new(journal, ctx, on_due, seen, on_destroy, &watch, &error));
	ck_assert_int_eq(seen->count, count); /* never inside a setter */
	seen->watch = watch;
	return watch;
}

/* Turns until there is nothing to do any more, which has to come. */
static int settle(orch_ctx *ctx)
{
	struct pollfd wanted = {.fd = orch_ctx_fd(ctx), .events = POLLIN};
	int turns = 0;
	while (poll(&wanted, 1, 20) == 1) {
		OK(orch_ctx_process(ctx, &error));
		ck_assert_int_lt(++turns, 2000);
	}
	return turns;
}

static void saw(const struct seen *seen, int place, const char *name, uint32_t round)
{
	ck_assert_int_gt(seen->count, place);
	ck_assert_str_eq(seen->names[place], name);
	ck_assert_uint_eq(seen->rounds[place], round);
}

static void end_it(orch_journal *journal, const char *name,
		   int32_t (*end)(orch_timer *, orch_error **))
{
	orch_timer *timer = look_up(journal, name);
	OK(end(timer, &error));
	orch_timer_unref(timer);
}

START_TEST(each_round_is_told_once_to_each_watch)
{
	own_machine();
	static struct seen seen, other;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	orch_timer_unref(set_due(journal, "wall", machine.wall_ms - 5));
	orch_timer_unref(set_delay(journal, "boot", 0));
	orch_timer_unref(set_due(journal, "ended", 1));
	end_it(journal, "ended", orch_timer_done);
	orch_timer_unref(set_delay(journal, "later", 1000));
	watch_it(journal, ctx, &seen);
	settle(ctx);
	ck_assert_int_eq(seen.count, 2);
	saw(&seen, 0, "wall", 1);
	saw(&seen, 1, "boot", 1);
	ck_assert_int_eq(settle(ctx), 0);
	/* Set by somebody else in this process, due and not. */
	orch_timer_unref(set_due(journal, "now", machine.wall_ms));
	orch_timer_unref(set_due(journal, "soon", machine.wall_ms + 500));
	settle(ctx);
	ck_assert_int_eq(seen.count, 3);
	saw(&seen, 2, "now", 1);
	ck_assert_int_eq(machine.wall_due_ms, machine.wall_ms + 500);
	ck_assert_int_eq(machine.boot_due_ms, machine.boot_ms + 1000);
	pass(499);
	settle(ctx);
	ck_assert_int_eq(seen.count, 3);
	pass(1);
	settle(ctx);
	saw(&seen, 3, "soon", 1);
	/* The next round is another one, whether the last was ended or not. */
	end_it(journal, "wall", orch_timer_cancel);
	orch_timer_unref(set_due(journal, "wall", 1));
	orch_timer_unref(set_due(journal, "boot", 1));
	settle(ctx);
	ck_assert_int_eq(seen.count, 6);
	saw(&seen, 4, "wall", 2);
	saw(&seen, 5, "boot", 2);
	pass(500);
	settle(ctx);
	saw(&seen, 6, "later", 1);
	ck_assert_int_eq(machine.wall_due_ms, -1);
	ck_assert_int_eq(machine.boot_due_ms, -1);
	/* Another watch is told all that are due, this one nothing again. */
	watch_it(journal, ctx, &other);
	settle(ctx);
	ck_assert_int_eq(seen.count, 7);
	ck_assert_int_eq(other.count, 5);
	orch_timer_watch_unref(other.watch);
	ck_assert_int_eq(other.destroyed, 1);
	orch_timer_watch_unref(seen.watch);
	ck_assert_int_eq(seen.destroyed, 1);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(a_watch_notices_steps)
{
	own_machine();
	static struct seen seen;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	orch_timer_unref(set_due(journal, "wall", machine.wall_ms + HOUR));
	orch_timer_unref(set_due(journal, "far", machine.wall_ms + 3 * HOUR));
	orch_timer_unref(set_delay(journal, "boot", 2 * HOUR));
	watch_it(journal, ctx, &seen);
	settle(ctx);
	step(-YEAR);
	settle(ctx);
	ck_assert_int_eq(seen.count, 0);
	ck_assert_int_eq(machine.wall_due_ms, machine.wall_ms + YEAR + HOUR);
	/* Only the step makes it look. */
	step(YEAR + HOUR);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	saw(&seen, 0, "wall", 1);
	/* Back before it and over it again: it was told. */
	step(-HOUR);
	settle(ctx);
	pass(HOUR);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	pass(HOUR - 1);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	step(-YEAR);
	settle(ctx);
	pass(1);
	settle(ctx);
	ck_assert_int_eq(seen.count, 2);
	saw(&seen, 1, "boot", 1);
	step(10 * YEAR);
	settle(ctx);
	ck_assert_int_eq(seen.count, 3);
	saw(&seen, 2, "far", 1);
	orch_timer_watch_unref(seen.watch);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(a_watch_after_a_reboot)
{
	own_machine();
	static struct seen seen;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	orch_timer_unref(set_delay(journal, "t", HOUR));
	orch_timer_unref(set_delay(journal, "gone", 1000));
	orch_journal_unref(journal);
	reboot_after(5000, "second-boot");
	journal = open_journal();
	watch_it(journal, ctx, &seen);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	saw(&seen, 0, "gone", 1);
	ck_assert_int_eq(machine.boot_due_ms, machine.boot_ms + HOUR - 5000);
	step(-YEAR);
	pass(HOUR - 5000);
	settle(ctx);
	ck_assert_int_eq(seen.count, 2);
	verifies(journal);
	orch_timer_watch_unref(seen.watch);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

static void done_and_quit(struct seen *seen, orch_timer *timer)
{
	OK(orch_timer_done(timer, &error));
	if (seen->count == 3)
		OK(orch_ctx_quit(seen->ctx));
}

static void *set_by_thread(void *userdata)
{
	orch_journal *journal = userdata;
	usleep(20000);
	OK(try_set(journal, "thread", 0, 10, NULL, NULL, &error));
	return NULL;
}

/* Nothing is replaced here. */
START_TEST(a_watch_by_the_real_clocks)
{
	static struct seen seen = {.then = done_and_quit};
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	pthread_t thread;
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	orch_timer_unref(
		set_due(journal, "wall", (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 60));
	orch_timer_unref(set_delay(journal, "boot", 50));
	watch_it(journal, ctx, &seen);
	ck_assert_int_eq(pthread_create(&thread, NULL, set_by_thread, journal), 0);
	OK(orch_ctx_run(ctx, 60000, &error));
	pthread_join(thread, NULL);
	settle(ctx);
	ck_assert_int_eq(settle(ctx), 0);
	ck_assert_int_eq(seen.count, 3);
	next_is(journal, NULL, -1);
	orch_timer_watch_unref(seen.watch);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(a_thousand_at_once_leave_room_for_others)
{
	enum { COUNT = 1000 };
	own_machine();
	static struct seen seen;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	for (int i = 0; i < COUNT; i++) {
		char name[16];
		snprintf(name, sizeof(name), "t%d", i);
		/* The later it was set the longer it is overdue. */
		OK(try_set(journal, name, machine.wall_ms + COUNT - i, 0, NULL, NULL, &error));
	}
	watch_it(journal, ctx, &seen);
	settle(ctx);
	pass(DAY);
	int turns = 0;
	while (seen.count < COUNT && turns++ < 2 * COUNT) {
		seen.in_turn = 0;
		OK(orch_ctx_process(ctx, &error));
		ck_assert_int_le(seen.in_turn, 32);
	}
	ck_assert_int_eq(seen.count, COUNT);
	settle(ctx);
	ck_assert_int_eq(seen.count, COUNT);
	for (int i = 0; i < COUNT; i++) {
		char name[16];
		snprintf(name, sizeof(name), "t%d", COUNT - 1 - i);
		saw(&seen, i, name, 1);
	}
	orch_timer_watch_unref(seen.watch);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

static void change_the_others(struct seen *seen, orch_timer *timer)
{
	if (seen->count > 1)
		return;
	ck_assert_str_eq(orch_timer_name(timer), "a");
	end_it(seen->journal, "b", orch_timer_done);
	end_it(seen->journal, "c", orch_timer_cancel);
	orch_timer_unref(set_due(seen->journal, "d", 1));
	orch_timer_unref(set_delay(seen->journal, "e", HOUR));
}

/* All are due; what is told first changes the others. */
START_TEST(what_changed_meanwhile_is_not_told)
{
	own_machine();
	static struct seen seen = {.then = change_the_others};
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
	for (int i = 0; i < 6; i++)
		orch_timer_unref(set_due(journal, names[i], 10 + i));
	watch_it(journal, ctx, &seen);
	settle(ctx);
	ck_assert_int_eq(seen.count, 3);
	saw(&seen, 1, "f", 1);
	saw(&seen, 2, "d", 2);
	orch_timer_watch_unref(seen.watch);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

static void end_watch(struct seen *seen, orch_timer *timer)
{
	(void)timer;
	orch_timer_watch_unref(seen->watch);
}

START_TEST(a_watch_ended_in_its_callback)
{
	own_machine();
	static struct seen seen = {.then = end_watch}, other;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('a' + i)};
		orch_timer_unref(set_due(journal, name, 1 + i));
	}
	watch_it(journal, ctx, &seen);
	watch_it(journal, ctx, &other);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	ck_assert_int_eq(seen.destroyed, 1);
	ck_assert_int_eq(other.count, 3);
	orch_timer_unref(set_due(journal, "d", 5));
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	ck_assert_int_eq(other.count, 4);
	/* A letter to it is on its way when it goes. */
	orch_timer_unref(set_due(journal, "e", 5));
	orch_timer_watch_unref(other.watch);
	ck_assert_int_eq(other.destroyed, 1);
	settle(ctx);
	ck_assert_int_eq(other.count, 4);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

static int open_fds(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void *unref_by_thread(void *userdata)
{
	orch_timer_watch_unref(userdata);
	return NULL;
}

/* Journal, context and watch, dropped in each order. */
START_TEST(dropped_in_each_order)
{
	static const char *const orders[] = {"jcw", "jwc", "cjw", "cwj", "wcj", "wjc"};
	own_machine();
	int before = open_fds();
	for (int i = 0; i < 24; i++) {
		static struct seen seen;
		seen = (struct seen){0};
		orch_journal *journal = open_journal(), *second = NULL;
		orch_ctx *ctx = new_ctx();
		orch_timer_unref(set_due(journal, "t", 1));
		watch_it(journal, ctx, &seen);
		if (i / 6 & 1) {
			settle(ctx);
			ck_assert_int_eq(seen.count, 1);
		}
		if (i / 6 & 2) /* with a letter on its way */
			orch_timer_unref(set_due(journal, "t", 2));
		bool watched = true;
		for (int k = 0; k < 3; k++) {
			switch (orders[i % 6][k]) {
			case 'j':
				orch_journal_unref(journal);
				if (watched)
					FAILS(ORCH_ELOCKED, kit_open(&second, &error));
				break;
			case 'c':
				orch_ctx_unref(ctx);
				break;
			default:
				ck_assert_int_eq(seen.destroyed, 0);
				orch_timer_watch_unref(seen.watch);
				ck_assert_int_eq(seen.destroyed, 1);
				watched = false;
				break;
			}
		}
		ck_assert_int_eq(seen.destroyed, 1);
		ck_assert_int_eq(open_fds(), before);
	}
	/* From another thread: in the owner's next turn. */
	static struct seen seen;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	pthread_t thread;
	watch_it(journal, ctx, &seen);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	orch_timer_unref(set_due(journal, "t", 1));
	ck_assert_int_eq(pthread_create(&thread, NULL, unref_by_thread, seen.watch), 0);
	pthread_join(thread, NULL);
	orch_journal_unref(journal);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	ck_assert_int_eq(seen.destroyed, 1);
	orch_ctx_unref(ctx);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

static void watch_in_child(void *userdata)
{
	struct seen *seen = userdata, other = {0};
	orch_timer_watch *watch = NULL;
	FAILS(ORCH_EFORKED, orch_timer_watch_new(seen->journal, seen->ctx, on_due, &other,
						 on_destroy, &watch, &error));
	ck_assert_int_eq(other.destroyed, 1);
	/* Descriptors that are other files by now have to stay. */
	int fds[64], count = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 3; fd < 64; fd++)
		if (fd != null && fcntl(fd, F_GETFD) >= 0) {
			ck_assert_int_eq(dup3(null, fd, O_CLOEXEC), fd);
			fds[count++] = fd;
		}
	orch_timer_watch_unref(seen->watch);
	ck_assert_int_eq(seen->destroyed, 1);
	orch_journal_unref(seen->journal);
	orch_ctx_unref(seen->ctx);
	for (int i = 0; i < count; i++)
		ck_assert_int_ge(fcntl(fds[i], F_GETFD), 0);
}

START_TEST(a_watch_in_a_forked_child)
{
	own_machine();
	static struct seen seen;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	watch_it(journal, ctx, &seen);
	settle(ctx);
	orch_timer_unref(set_due(journal, "t", 1)); /* a letter on its way */
	ck_assert_int_eq(in_child(watch_in_child, &seen), 0);
	ck_assert_int_eq(seen.destroyed, 0);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	pass(1);
	orch_timer_unref(set_delay(journal, "d", 5));
	settle(ctx);
	pass(5);
	settle(ctx);
	ck_assert_int_eq(seen.count, 2);
	verifies(journal);
	orch_timer_watch_unref(seen.watch);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(a_watch_on_a_poisoned_journal)
{
	own_machine();
	static struct seen seen, other;
	orch_journal *journal = open_journal();
	orch_ctx *ctx = new_ctx();
	orch_timer_watch *watch = NULL;
	orch_timer_unref(set_due(journal, "t", machine.wall_ms + 5));
	orch_timer_unref(set_due(journal, "u", machine.wall_ms));
	watch_it(journal, ctx, &seen);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	poison(journal);
	pass(5);
	settle(ctx);
	step(YEAR);
	settle(ctx);
	ck_assert_int_eq(seen.count, 1);
	FAILS(ORCH_EPOISONED,
	      orch_timer_watch_new(journal, ctx, on_due, &other, on_destroy, &watch, &error));
	ck_assert_int_eq(other.destroyed, 1);
	orch_timer_watch_unref(seen.watch);
	ck_assert_int_eq(seen.destroyed, 1);
	orch_journal_unref(journal);
	journal = open_journal();
	seen = (struct seen){0};
	watch_it(journal, ctx, &seen);
	settle(ctx);
	ck_assert_int_eq(seen.count, 2);
	orch_timer_watch_unref(seen.watch);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(arguments_of_a_watch)
{
	own_machine();
	static struct seen seen;
	orch_journal *journal = open_journal(), *reader = NULL;
	orch_ctx *ctx = new_ctx();
	orch_timer_watch *watch = (orch_timer_watch *)&seen;
	int expected = 0;
#define REFUSED(code, ...)                                                                         \
	do {                                                                                       \
		FAILS(code, orch_timer_watch_new(__VA_ARGS__, &error));                            \
		ck_assert_int_eq(seen.destroyed, ++expected);                                      \
	} while (0)
	REFUSED(ORCH_EINVAL, NULL, ctx, on_due, &seen, on_destroy, &watch);
	REFUSED(ORCH_EINVAL, journal, NULL, on_due, &seen, on_destroy, &watch);
	REFUSED(ORCH_EINVAL, journal, ctx, NULL, &seen, on_destroy, &watch);
	REFUSED(ORCH_EINVAL, journal, ctx, on_due, &seen, on_destroy, NULL);
	/* No descriptors: whatever there are, one of them is missing. */
	struct rlimit limit, none;
	machine.own = false;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	int fd = dup(0);
	close(fd);
	for (int more = 0; more < 2; more++) {
		none.rlim_cur = (rlim_t)(fd + more);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
		REFUSED(ORCH_ESYS, journal, ctx, on_due, &seen, on_destroy, &watch);
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	machine.own = true;
	orch_journal_unref(journal);
	OK(kit_open_with(&reader, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	REFUSED(ORCH_ESTATE, reader, ctx, on_due, &seen, on_destroy, &watch);
	ck_assert_ptr_eq(watch, &seen);
	orch_journal_unref(reader);
	/* The control, also without `destroy`. */
	journal = open_journal();
	OK(orch_timer_watch_new(journal, ctx, on_due, &seen, NULL, &watch, &error));
	orch_timer_watch_unref(watch);
	ck_assert_int_eq(seen.destroyed, expected);
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- a watch among threads
 * -------------------------------------------------------------------------- */

enum { THREADS = 4, NAMES = 8, ROUNDS = 40 };

static struct {
	orch_journal *journal;
	orch_ctx *ctx;
	atomic_int told[THREADS][NAMES][ROUNDS + 1];
	atomic_int threads;
	bool ended[THREADS][NAMES][ROUNDS + 1]; /* by its thread, and maybe before it was told */
} race;

static void on_race(void *userdata, orch_timer *timer)
{
	unsigned thread, name;
	(void)userdata;
	ck_assert_int_eq(sscanf(orch_timer_name(timer), "r%u.%u", &thread, &name), 2);
	atomic_fetch_add(&race.told[thread][name][orch_timer_round(timer)], 1);
	if (orch_timer_round(timer) % 3 == 0)
		orch_timer_done(timer, NULL); /* ORCH_ESTATE where the next round began already */
}

static void *race_thread(void *userdata)
{
	unsigned thread = (unsigned)(uintptr_t)userdata;
	for (unsigned round = 1; round <= ROUNDS; round++)
		for (unsigned name = 0; name < NAMES; name++) {
			char text[16];
			orch_timer *timer = NULL;
			snprintf(text, sizeof(text), "r%u.%u", thread, name);
			OK(try_set(race.journal, text, name % 2, name % 2 ? 0 : round % 3, NULL,
				   &timer, &error));
			ck_assert_uint_eq(orch_timer_round(timer), round);
			if ((round + name) % 4 == 0)
				race.ended[thread][name][round] =
					orch_timer_cancel(timer, NULL) == 0;
			orch_timer_unref(timer);
		}
	if (atomic_fetch_sub(&race.threads, 1) == 1)
		orch_ctx_wakeup(race.ctx);
	return NULL;
}

START_TEST(threads_set_and_cancel_under_a_watch)
{
	pthread_t threads[THREADS];
	orch_timer_watch *watch = NULL;
	race.journal = open_journal();
	race.ctx = new_ctx();
	race.threads = THREADS;
	OK(orch_timer_watch_new(race.journal, race.ctx, on_race, NULL, NULL, &watch, &error));
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, race_thread, (void *)i), 0);
	while (race.threads > 0) {
		struct pollfd wanted = {.fd = orch_ctx_fd(race.ctx), .events = POLLIN};
		poll(&wanted, 1, 100);
		OK(orch_ctx_process(race.ctx, &error));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	settle(race.ctx);
	int told = 0;
	for (int thread = 0; thread < THREADS; thread++)
		for (int name = 0; name < NAMES; name++)
			for (int round = 1; round <= ROUNDS; round++) {
				int count = race.told[thread][name][round];
				ck_assert_int_le(count, 1);
				told += count;
				/* The last round is nobody's to replace. */
				if (round == ROUNDS)
					ck_assert_int_eq(count || race.ended[thread][name][round],
							 1);
			}
	ck_assert_int_ge(told, THREADS * NAMES / 2);
	orch_timer_watch_unref(watch);
	verifies(race.journal);
	orch_journal_unref(race.journal);
	orch_ctx_unref(race.ctx);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timer-watch");
	TCase *tests = tcase_create("timer-watch");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, each_round_is_told_once_to_each_watch);
	tcase_add_test(tests, a_watch_notices_steps);
	tcase_add_test(tests, a_watch_after_a_reboot);
	tcase_add_test(tests, what_changed_meanwhile_is_not_told);
	tcase_add_test(tests, a_watch_ended_in_its_callback);
	tcase_add_test(tests, dropped_in_each_order);
	tcase_add_test(tests, a_watch_in_a_forked_child);
	tcase_add_test(tests, a_watch_on_a_poisoned_journal);
	tcase_add_test(tests, arguments_of_a_watch);
	tcase_add_test(tests, a_forked_child_touches_nothing);
	tcase_add_test(tests, a_poisoned_journal);
	suite_add_tcase(suite, tests);
	TCase *many = tcase_create("many");
	tcase_add_checked_fixture(many, setup_in_memory, kit_teardown);
	tcase_set_timeout(many, 120);
	tcase_add_test(many, a_thousand_at_once_leave_room_for_others);
	suite_add_tcase(suite, many);
	/* With the clocks of another system as well: see tests/darwin. */
	TCase *real = tcase_create("real");
	tcase_add_checked_fixture(real, setup_in_memory, kit_teardown);
	tcase_set_timeout(real, 120);
	tcase_add_test(real, a_watch_by_the_real_clocks);
	tcase_add_test(real, threads_set_and_cancel_under_a_watch);
	suite_add_tcase(suite, real);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
