/* SPDX-License-Identifier: Apache-2.0 */
/* Records read back in their order, and told to who watches: from where, how slowly, and until when. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include <orch/ctx.h>

#include "../crash/journal-kit.h"

static atomic_int sync_error;

/* Stands before libc's function, for SQLite. */
ORCH_API int fdatasync(int fd)
{
	int error = atomic_load(&sync_error);
	errno = error;
	return error ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static orch_ctx *ctx;
static int destroyed;

static void setup(void)
{
	kit_setup();
	destroyed = 0;
	atomic_store(&sync_error, 0);
	OK(orch_ctx_new(NULL, &ctx, &error));
}

static void teardown(void)
{
	ctx = orch_ctx_unref(ctx);
	kit_teardown();
}

static void on_destroy(void *userdata)
{
	(void)userdata;
	destroyed++;
}

static void record(orch_journal *journal, const char *key)
{
	OK(orch_journal_record(journal, "test.record", key, NULL, 0, NULL, &error));
}

static void record_many(orch_journal *journal, const char *prefix, int count)
{
	char key[64];
	for (int i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s%d", prefix, i);
		record(journal, key);
	}
}

/* --- reading
 * ---------------------------------------------------------------------------------------------- */

static int32_t write_down(void *userdata, const orch_record *record)
{
	char *text = userdata;
	size_t length = strlen(text);
	snprintf(text + length, 4096 - length, "%llu %s %llu %s/%s %s %u\n",
		 (unsigned long long)orch_record_sequence(record),
		 orch_record_type_name(orch_record_type(record)),
		 (unsigned long long)orch_record_subject(record), orch_record_kind(record),
		 orch_record_name(record), orch_record_state_name(record),
		 orch_record_attempt(record));
	ck_assert_int_gt(orch_record_at_ms(record), 1600000000000);
	ck_assert_uint_ge(orch_record_generation(record), 1);
	return 0;
}

START_TEST(records_say_what_happened)
{
	static char text[4096];
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_DISPATCHED);
	OK(orch_action_fail(action, "r", 1, &error));
	orch_action_unref(action);
	orch_action_unref(begin(journal, "k", 0, ORCH_BEGIN_FRESH));
	orch_journal_unref(journal);
	journal = open_journal();
	record(journal, "r");
	text[0] = '\0';
	OK(orch_journal_records(journal, 0, write_down, text, &error));
	ck_assert_str_eq(text, "1 generation 1 /  0\n"
			       "2 action 1 test.action/k INTENT 1\n"
			       "3 action 1 test.action/k DISPATCHED 1\n"
			       "4 action 1 test.action/k FAILED 1\n"
			       "5 action 1 test.action/k INTENT 2\n"
			       "6 generation 2 /  0\n"
			       "7 action 2 test.record/r CONFIRMED 1\n");
	text[0] = '\0';
	OK(orch_journal_records(journal, 6, write_down, text, &error));
	ck_assert_str_eq(text, "7 action 2 test.record/r CONFIRMED 1\n");
	text[0] = '\0';
	OK(orch_journal_records(journal, 7, write_down, text, &error));
	OK(orch_journal_records(journal, UINT64_MAX, write_down, text, &error));
	ck_assert_str_eq(text, "");
	FAILS(ORCH_EINVAL, orch_journal_records(journal, 0, NULL, NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_records(NULL, 0, write_down, text, &error));
	ck_assert_str_eq(orch_record_name(NULL), "");
	ck_assert_str_eq(orch_record_type_name(77), "?");
	orch_journal_unref(journal);
	/* A file that nobody owns is read the same way. */
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	OK(orch_journal_records(journal, 6, write_down, text, &error));
	ck_assert_str_eq(text, "7 action 2 test.record/r CONFIRMED 1\n");
	orch_journal_unref(journal);
}
END_TEST

struct count {
	orch_journal *journal;
	uint64_t last, stop_at;
	unsigned calls;
	orch_watch **unref_at_stop; /* instead of the return value */
};

static int32_t count_one(void *userdata, const orch_record *record)
{
	struct count *count = userdata;
	ck_assert_int_eq(destroyed, 0);
	ck_assert_uint_eq(orch_record_sequence(record), count->last + 1);
	count->last++;
	count->calls++;
	if (count->last != count->stop_at)
		return 0;
	if (!count->unref_at_stop)
		return 42;
	*count->unref_at_stop = orch_watch_unref(*count->unref_at_stop);
	ck_assert_int_eq(destroyed, 0); /* not beneath its own feet */
	return 0;
}

static int32_t record_another(void *userdata, const orch_record *record)
{
	struct count *count = userdata;
	char key[32];
	snprintf(key, sizeof(key), "within-%llu", (unsigned long long)orch_record_sequence(record));
	OK(orch_journal_record(count->journal, "k", key, NULL, 0, NULL, &error));
	return count_one(userdata, record);
}

START_TEST(a_walk_ends)
{
	orch_journal *journal = open_journal();
	struct count count = {.journal = journal, .stop_at = 100};
	record_many(journal, "k", 200);
	ck_assert_int_eq(orch_journal_records(journal, 0, count_one, &count, NULL), 42);
	ck_assert_uint_eq(count.calls, 100);
	/* What the callback records is not part of the walk. */
	count = (struct count){.journal = journal};
	OK(orch_journal_records(journal, 0, record_another, &count, &error));
	ck_assert_uint_eq(count.calls, 201);
	ck_assert_uint_eq(orch_journal_sequence(journal), 402);
	orch_journal_unref(journal);
}
END_TEST

/* An event without its action, or one that is missing. */
START_TEST(a_damaged_record_is_named)
{
	static const char *const damage[] = {
		"DELETE FROM event WHERE sequence = 3",
		"PRAGMA foreign_keys = OFF; DELETE FROM action WHERE key = 'k1'",
		"UPDATE event SET noun = 9 WHERE sequence = 3",
		"UPDATE event SET noun = 1 WHERE sequence = 3",
	};
	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
		orch_journal *journal = open_journal();
		struct count count = {0};
		record_many(journal, "k", 5);
		OK(orch_journal_records(journal, 0, count_one, &count, &error));
		ck_assert_uint_eq(count.calls, 6);
		orch_journal_unref(journal);
		sql(damage[i]);
		journal = open_journal();
		orch_error *error = NULL;
		count = (struct count){0};
		ck_assert_int_eq(orch_journal_records(journal, 0, count_one, &count, &error),
				 ORCH_ECORRUPT);
		ck_assert_msg(strstr(orch_error_message(error), "record 3 ") != NULL, "%s",
			      orch_error_message(error));
		orch_error_free(error);
		orch_journal_unref(journal);
		kit_teardown();
		kit_setup();
	}
}
END_TEST

/* --- watching
 * --------------------------------------------------------------------------------------------- */

static orch_watch *watch(orch_journal *journal, uint64_t after, struct count *count)
{
	orch_watch *watch = NULL;
	count->last = after == UINT64_MAX ? orch_journal_sequence(journal) : after;
	OK(orch_journal_watch(journal, ctx, after, count_one, count, on_destroy, &watch, &error));
	return watch;
}

/* The context is embedded: its fd says that there is something to do. */
static bool turn(void)
{
	struct pollfd entry = {.fd = orch_ctx_fd(ctx), .events = POLLIN};
	bool ready = poll(&entry, 1, 0) == 1;
	OK(orch_ctx_process(ctx, &error));
	return ready;
}

static void turn_all(void)
{
	while (turn())
		;
}

START_TEST(a_watch_tells_what_was_and_what_comes)
{
	orch_journal *journal = open_journal();
	record_many(journal, "k", 9);
	struct count all = {0}, some = {0}, new = {0}, later = {0};
	orch_watch *watches[] = {watch(journal, 0, &all), watch(journal, 7, &some),
				 watch(journal, UINT64_MAX, &new), watch(journal, 12, &later)};
	ck_assert_uint_eq(all.calls, 0); /* never inside the call */
	turn_all();
	ck_assert_uint_eq(all.calls, 10);
	ck_assert_uint_eq(some.calls, 3);
	ck_assert_uint_eq(new.calls, 0);
	ck_assert(!turn());
	record(journal, "new");
	ck_assert(turn());
	ck_assert_uint_eq(all.calls, 11);
	ck_assert_uint_eq(some.calls, 4);
	ck_assert_uint_eq(new.calls, 1);
	record_many(journal, "more", 3);
	turn_all();
	ck_assert_uint_eq(new.calls, 4);
	ck_assert_uint_eq(later.calls, 2); /* 13 and 14 */
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(destroyed, i);
		orch_watch_unref(watches[i]);
	}
	ck_assert_int_eq(destroyed, 4);
	record(journal, "unwatched");
	turn_all();
	ck_assert_uint_eq(all.calls, 14);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(a_slow_watcher_misses_nothing)
{
	orch_journal *journal = open_journal();
	struct count count = {0};
	orch_watch *slow = watch(journal, 0, &count);
	for (int round = 0; round < 5; round++) {
		char prefix[16];
		snprintf(prefix, sizeof(prefix), "r%d-", round);
		record_many(journal, prefix, 300);
		turn(); /* one batch of them */
		ck_assert_uint_gt(count.calls, 0);
		ck_assert_uint_lt(count.calls, orch_journal_sequence(journal));
	}
	turn_all();
	ck_assert_uint_eq(count.last, 1501);
	ck_assert_uint_eq(count.calls, 1501);
	orch_watch_unref(slow);
	orch_journal_unref(journal);
}
END_TEST

static void *write_many(void *userdata)
{
	char prefix[32];
	snprintf(prefix, sizeof(prefix), "%lx-", (unsigned long)pthread_self());
	record_many(userdata, prefix, 150);
	return NULL;
}

START_TEST(records_of_many_threads_come_in_order)
{
	orch_journal *journal = open_journal();
	struct count count = {0};
	orch_watch *watching = watch(journal, 0, &count);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_many, journal), 0);
	for (int tries = 0; count.last < 601 && tries < 100000; tries++)
		OK(orch_ctx_process(ctx, &error));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	turn_all();
	ck_assert_uint_eq(count.last, 601);
	orch_watch_unref(watching);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(a_watch_ended_inside_its_callback)
{
	for (int unref = 0; unref < 2; unref++) {
		orch_journal *journal = open_journal();
		record_many(journal, "k", 9);
		struct count count = {.stop_at = 5};
		orch_watch *ending = watch(journal, 0, &count);
		if (unref)
			count.unref_at_stop = &ending;
		turn_all();
		ck_assert_uint_eq(count.calls, 5);
		ck_assert_int_eq(destroyed, 1);
		record(journal, "new");
		turn_all();
		ck_assert_uint_eq(count.calls, 5);
		orch_watch_unref(ending);
		ck_assert_int_eq(destroyed, 1);
		orch_journal_unref(journal);
		teardown();
		setup();
	}
}
END_TEST

static void *unref_elsewhere(void *userdata)
{
	return orch_watch_unref(userdata);
}

START_TEST(a_watch_dropped_by_another_thread)
{
	orch_journal *journal = open_journal();
	struct count count = {0};
	orch_watch *watching = watch(journal, 0, &count);
	turn_all();
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, unref_elsewhere, watching), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(destroyed, 0); /* its context does it */
	record(journal, "new");
	turn_all();
	ck_assert_int_eq(destroyed, 1);
	ck_assert_uint_eq(count.calls, 1);
	orch_journal_unref(journal);
}
END_TEST

/* With something to tell, and without; its handle dropped before or after the context. */
START_TEST(a_watch_and_its_context)
{
	for (int variant = 0; variant < 8; variant++) {
		orch_journal *journal = open_journal();
		struct count count = {0};
		orch_watch *watching = watch(journal, 0, &count);
		if (variant & 1)
			turn_all();
		if (variant & 4)
			watching = orch_watch_unref(watching);
		if (variant & 2) {
			orch_journal_unref(journal); /* the watch keeps it */
			journal = NULL;
		}
		ctx = orch_ctx_unref(ctx);
		orch_watch_unref(watching);
		ck_assert_int_eq(destroyed, 1);
		orch_journal_unref(journal);
		journal = open_journal(); /* nothing holds it any more */
		orch_journal_unref(journal);
		teardown();
		setup();
	}
}
END_TEST

START_TEST(a_watch_keeps_the_journal)
{
	orch_journal *journal = open_journal(), *second = NULL;
	struct count count = {0};
	orch_watch *watching = watch(journal, 0, &count);
	orch_journal_unref(journal);
	FAILS(ORCH_ELOCKED, kit_open(&second, &error));
	turn_all();
	ck_assert_uint_eq(count.calls, 1);
	orch_watch_unref(watching);
	second = open_journal();
	orch_journal_unref(second);
}
END_TEST

START_TEST(a_poisoned_journal_tells_nothing_more)
{
	orch_journal *journal = open_journal();
	struct count count = {0}, late = {0};
	orch_watch *watching = watch(journal, 0, &count), *refused = NULL;
	turn_all();
	atomic_store(&sync_error, EIO);
	FAILS(ORCH_EPOISONED, orch_journal_record(journal, "k", "k", NULL, 0, NULL, &error));
	atomic_store(&sync_error, 0);
	turn_all();
	ck_assert_uint_eq(count.calls, 1);
	FAILS(ORCH_EPOISONED, orch_journal_records(journal, 0, count_one, &late, &error));
	FAILS(ORCH_EPOISONED, orch_journal_watch(journal, ctx, 0, count_one, &late, on_destroy,
						 &refused, &error));
	ck_assert_int_eq(destroyed, 1);
	ck_assert_ptr_null(refused);
	orch_watch_unref(watching);
	ck_assert_int_eq(destroyed, 2);
	orch_journal_unref(journal);
}
END_TEST

static void use_in_child(void *userdata)
{
	struct count count = {0};
	orch_watch *second = NULL;
	orch_watch **watching = userdata;
	destroyed = 0;
	FAILS(ORCH_EINVAL, orch_journal_watch(NULL, ctx, 0, count_one, &count, on_destroy, &second,
					      &error));
	ck_assert_int_eq(destroyed, 1);
	ck_assert_ptr_null(orch_watch_unref(*watching));
	ck_assert_ptr_null(orch_watch_unref(NULL));
	ck_assert_int_eq(destroyed, 1);
}

START_TEST(a_forked_child_has_no_watch)
{
	orch_journal *journal = open_journal();
	struct count count = {0};
	orch_watch *watching = watch(journal, 0, &count);
	ck_assert_int_eq(in_child(use_in_child, &watching), 0);
	turn_all();
	ck_assert_uint_eq(count.calls, 1);
	orch_watch_unref(watching);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-watch");
	TCase *tests = tcase_create("journal-watch");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, records_say_what_happened);
	tcase_add_test(tests, a_walk_ends);
	tcase_add_test(tests, a_damaged_record_is_named);
	tcase_add_test(tests, a_watch_tells_what_was_and_what_comes);
	tcase_add_test(tests, a_slow_watcher_misses_nothing);
	tcase_add_test(tests, records_of_many_threads_come_in_order);
	tcase_add_test(tests, a_watch_ended_inside_its_callback);
	tcase_add_test(tests, a_watch_dropped_by_another_thread);
	tcase_add_test(tests, a_watch_and_its_context);
	tcase_add_test(tests, a_watch_keeps_the_journal);
	tcase_add_test(tests, a_poisoned_journal_tells_nothing_more);
	tcase_add_test(tests, a_forked_child_has_no_watch);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
