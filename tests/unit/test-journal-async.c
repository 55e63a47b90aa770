/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The callback forms, and many callers at once: order, what a group does to those that are refused, who is told what
 * when something is dropped, fork. A gate in the sync holds a commit for as long as the test wants.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <orch/ctx.h>

#include "../crash/journal-kit.h"
#include "journal/journal-private.h"

/* --- the gate: stands before libc's function, for SQLite and the library
 * ------------------------------------------ */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool closed, somebody_waits;
	unsigned syncs;
	int fails_with;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

ORCH_API int fdatasync(int fd)
{
	pthread_mutex_lock(&gate.mutex);
	gate.syncs++;
	while (gate.closed) {
		gate.somebody_waits = true;
		pthread_cond_broadcast(&gate.changed);
		pthread_cond_wait(&gate.changed, &gate.mutex);
	}
	int error = gate.fails_with;
	pthread_mutex_unlock(&gate.mutex);
	errno = error;
	return error ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static void gate_set(bool closed)
{
	pthread_mutex_lock(&gate.mutex);
	gate.closed = closed;
	gate.somebody_waits = false;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
}

static void gate_reached(void)
{
	pthread_mutex_lock(&gate.mutex);
	while (!gate.somebody_waits)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
}

static unsigned gate_syncs(void)
{
	pthread_mutex_lock(&gate.mutex);
	unsigned syncs = gate.syncs;
	pthread_mutex_unlock(&gate.mutex);
	return syncs;
}

/* --- answers
 * ---------------------------------------------------------------------------------------------- */

#define ANSWERS_MAX 512

struct answer {
	int called, destroyed;
	unsigned place; /* among all answers */
	int32_t code;
	uint32_t outcome;
	int32_t fresh;
	uint32_t state;
	orch_action *action; /* a reference, where there is one */
};

static struct answer answers[ANSWERS_MAX];
static char big_payload[JOURNAL_DEFAULT_PAYLOAD_LIMIT + 1];
static unsigned answered;
static orch_ctx *ctx;
static atomic_ulong destroyed_total;

static void note(struct answer *answer, const orch_error *error)
{
	answer->called++;
	answer->place = answered++;
	answer->code = error ? orch_error_code(error) : 0;
	ck_assert_int_eq(answer->destroyed, 0);
}

static void on_begin(void *userdata, uint32_t outcome, orch_action *action, const orch_error *error)
{
	struct answer *answer = userdata;
	note(answer, error);
	answer->outcome = outcome;
	ck_assert_int_eq(action != NULL, error == NULL);
	answer->action = orch_action_ref(action);
	answer->state = orch_action_state(action);
}

static void on_recorded(void *userdata, int32_t fresh, const orch_error *error)
{
	struct answer *answer = userdata;
	note(answer, error);
	answer->fresh = fresh;
}

static void on_moved(void *userdata, orch_action *action, const orch_error *error)
{
	struct answer *answer = userdata;
	note(answer, error);
	answer->state = orch_action_state(action);
}

static void on_destroy(void *userdata)
{
	((struct answer *)userdata)->destroyed++;
	atomic_fetch_add(&destroyed_total, 1);
}

static int32_t begin_async_of(orch_journal *journal, const char *key, const char *request,
			      struct answer *answer, orch_error **reterr)
{
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = key;
	opts.request = request;
	opts.request_length = strlen(request);
	return orch_journal_begin_async(journal, ctx, &opts, on_begin, answer, on_destroy, reterr);
}

static void begin_async(orch_journal *journal, const char *key, struct answer *answer)
{
	OK(begin_async_of(journal, key, "request", answer, &error));
}

static int32_t move_async_of(orch_action *action, uint32_t state, struct answer *answer,
			     orch_error **reterr)
{
	bool bare = state == ORCH_ACTION_DISPATCHED || state == ORCH_ACTION_CONFIRMED;
	return orch_action_move_async(action, ctx, state, bare ? NULL : "result", bare ? 0 : 6,
				      on_moved, answer, on_destroy, reterr);
}

static void move_async(orch_action *action, uint32_t state, struct answer *answer)
{
	OK(move_async_of(action, state, answer, &error));
}

static void record_async(orch_journal *journal, const char *key, struct answer *answer)
{
	OK(orch_journal_record_async(journal, ctx, "test.record", key, "x", 1, on_recorded, answer,
				     on_destroy, &error));
}

/* Turns of the context until so many answers came. */
static void turn_until(unsigned count)
{
	for (int tries = 0; answered < count && tries < 2000; tries++) {
		struct pollfd entry = {.fd = orch_ctx_fd(ctx), .events = POLLIN};
		poll(&entry, 1, 100);
		OK(orch_ctx_process(ctx, &error));
	}
	ck_assert_uint_eq(answered, count);
}

static void setup(void)
{
	kit_setup();
	memset(answers, 0, sizeof(answers));
	answered = 0;
	atomic_store(&destroyed_total, 0);
	OK(orch_ctx_new(NULL, &ctx, &error));
}

static void teardown(void)
{
	for (int i = 0; i < ANSWERS_MAX; i++)
		orch_action_unref(answers[i].action);
	ctx = orch_ctx_unref(ctx);
	kit_teardown();
}

/* --- what is told
 * ----------------------------------------------------------------------------------------- */

START_TEST(a_whole_life_in_callbacks)
{
	orch_journal *journal = open_journal();
	begin_async(journal, "k", &answers[0]);
	ck_assert_int_eq(answers[0].called, 0); /* never inside the call */
	turn_until(1);
	ck_assert_uint_eq(answers[0].outcome, ORCH_BEGIN_FRESH);
	ck_assert_int_eq(answers[0].destroyed, 1);
	orch_action *action = answers[0].action;
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_INTENT);
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_INTENT);
	for (uint32_t state = ORCH_ACTION_DISPATCHED; state <= ORCH_ACTION_CONFIRMED; state++) {
		move_async(action, state, &answers[state]);
		ck_assert_uint_eq(orch_action_state(action), state - 1);
		turn_until(state);
		ck_assert_int_eq(answers[state].code, 0);
		ck_assert_uint_eq(answers[state].state, state);
		ck_assert_int_eq(answers[state].destroyed, 1);
	}
	ck_assert_mem_eq(orch_action_result(action, NULL), "result", 6);
	ck_assert_uint_eq(orch_journal_sequence(journal), 5);

	begin_async(journal, "k", &answers[5]);
	OK(begin_async_of(journal, "k", "another", &answers[6], &error));
	record_async(journal, "r", &answers[7]);
	record_async(journal, "r", &answers[8]);
	record_async(journal, "k", &answers[9]);
	turn_until(9);
	ck_assert_uint_eq(answers[5].outcome, ORCH_BEGIN_REPLAY);
	ck_assert_mem_eq(orch_action_result(answers[5].action, NULL), "result", 6);
	ck_assert_uint_eq(answers[6].outcome, ORCH_BEGIN_CONFLICT);
	ck_assert_int_eq(answers[6].code, ORCH_ECONFLICT);
	ck_assert_int_eq(answers[7].fresh, 1);
	ck_assert_int_eq(answers[8].fresh, 0);
	ck_assert_int_eq(answers[8].code, 0);
	ck_assert_int_eq(answers[9].code, ORCH_ECONFLICT);
	ck_assert_int_eq(answers[9].fresh, 0);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

START_TEST(one_move_at_a_time)
{
	orch_journal *journal = open_journal();
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	gate_set(true);
	move_async(action, ORCH_ACTION_DISPATCHED, &answers[0]);
	gate_reached();
	FAILS(ORCH_EBUSY, orch_action_fail(action, NULL, 0, &error));
	FAILS(ORCH_EBUSY, move_async_of(action, ORCH_ACTION_OBSERVED, &answers[1], &error));
	ck_assert_int_eq(answers[1].destroyed, 1);
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_INTENT);
	gate_set(false);
	turn_until(1);
	OK(orch_action_observe(action, "r", 1, &error));
	/* What is not possible any more is told, as by the waiting form, and the handle can be used again. */
	move_async(action, ORCH_ACTION_FAILED, &answers[2]);
	turn_until(2);
	ck_assert_int_eq(answers[2].code, ORCH_ESTATE);
	ck_assert_uint_eq(answers[2].state, ORCH_ACTION_OBSERVED);
	ck_assert_mem_eq(orch_action_result(action, NULL), "r", 1);
	OK(orch_action_confirm(action, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

static void refused(int32_t code, int32_t got, orch_error *error, struct answer *answer)
{
	ck_assert_int_eq(got, code);
	ck_assert_int_eq(orch_error_code(error), code);
	orch_error_free(error);
	ck_assert_int_eq(answer->destroyed, 1);
	answer->destroyed = 0;
}

#define REFUSED(code, call)                                                                        \
	do {                                                                                       \
		orch_error *error = NULL;                                                          \
		int32_t code_ = (call);                                                            \
		refused(code, code_, error, &answers[0]);                                          \
	} while (0)

START_TEST(what_cannot_be_queued)
{
	orch_journal *journal = open_journal(), *reader = NULL;
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	struct answer *answer = &answers[0];
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	REFUSED(ORCH_EINVAL, orch_journal_begin_async(journal, ctx, &opts, on_begin, answer,
						      on_destroy, &error));
	opts.key = "new";
	REFUSED(ORCH_EINVAL,
		orch_journal_begin_async(journal, ctx, &opts, NULL, answer, on_destroy, &error));
	REFUSED(ORCH_EINVAL, orch_journal_begin_async(journal, NULL, &opts, on_begin, answer,
						      on_destroy, &error));
	REFUSED(ORCH_EINVAL,
		orch_journal_begin_async(NULL, ctx, &opts, on_begin, answer, on_destroy, &error));
	REFUSED(ORCH_EINVAL, orch_journal_begin_async(journal, ctx, NULL, on_begin, answer,
						      on_destroy, &error));
	opts.request = big_payload;
	opts.request_length = sizeof(big_payload);
	REFUSED(ORCH_ETOOBIG, orch_journal_begin_async(journal, ctx, &opts, on_begin, answer,
						       on_destroy, &error));
	REFUSED(ORCH_ETOOBIG, orch_journal_record_async(journal, ctx, "k", "new", big_payload,
							sizeof(big_payload), on_recorded, answer,
							on_destroy, &error));
	REFUSED(ORCH_EINVAL, orch_journal_record_async(journal, ctx, "K", "new", NULL, 0,
						       on_recorded, answer, on_destroy, &error));
	REFUSED(ORCH_EINVAL, orch_journal_record_async(journal, ctx, "k", "new", NULL, 0, NULL,
						       answer, on_destroy, &error));
	const uint32_t bare[] = {ORCH_ACTION_DISPATCHED, ORCH_ACTION_CONFIRMED};
	for (int i = 0; i < 2; i++)
		REFUSED(ORCH_EINVAL, orch_action_move_async(action, ctx, bare[i], "x", 1, on_moved,
							    answer, on_destroy, &error));
	const uint32_t none[] = {0, ORCH_ACTION_INTENT, ORCH_ACTION_ABANDONED + 1, 32, UINT32_MAX};
	for (int i = 0; i < 5; i++)
		REFUSED(ORCH_EINVAL, orch_action_move_async(action, ctx, none[i], NULL, 0, on_moved,
							    answer, on_destroy, &error));
	REFUSED(ORCH_EINVAL, orch_action_move_async(NULL, ctx, ORCH_ACTION_DISPATCHED, NULL, 0,
						    on_moved, answer, on_destroy, &error));
	REFUSED(ORCH_EINVAL, orch_action_move_async(action, ctx, ORCH_ACTION_FAILED, NULL, 1,
						    on_moved, answer, on_destroy, &error));
	REFUSED(ORCH_EINVAL, orch_action_move_async(action, ctx, ORCH_ACTION_DISPATCHED, NULL, 0,
						    NULL, answer, on_destroy, &error));
	/* And it still works. */
	move_async(action, ORCH_ACTION_DISPATCHED, &answers[1]);
	turn_until(1);
	ck_assert_int_eq(answers[0].called, 0);
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_DISPATCHED);
	orch_action_unref(action);
	orch_journal_unref(journal);
	OK(kit_open_with(&reader, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	REFUSED(ORCH_ESTATE, orch_journal_record_async(reader, ctx, "k", "new", NULL, 0,
						       on_recorded, answer, on_destroy, &error));
	action = find(reader, "k");
	REFUSED(ORCH_ESTATE, move_async_of(action, ORCH_ACTION_OBSERVED, answer, &error));
	orch_action_unref(action);
	orch_journal_unref(reader);
}
END_TEST

static void without_threads(void *userdata)
{
	const struct rlimit none = {0, 0};
	(void)userdata;
	ctx = NULL; /* the parent's */
	OK(orch_ctx_new(NULL, &ctx, &error));
	ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &none), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(setuid(65534), 0);
	orch_journal *journal = open_journal();
	REFUSED(ORCH_ESYS, orch_journal_record_async(journal, ctx, "k", "k", NULL, 0, on_recorded,
						     &answers[0], on_destroy, &error));
	/* Whoever waits needs no thread. */
	OK(orch_journal_record(journal, "k", "k", NULL, 0, NULL, &error));
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}

START_TEST(no_thread_can_be_started)
{
	if (geteuid() == 0)
		ck_assert_int_eq(chown(folder, 65534, 65534), 0);
	ck_assert_int_eq(in_child(without_threads, NULL), 0);
}
END_TEST

START_TEST(the_thread_takes_no_signal)
{
	orch_journal *journal = open_journal();
	sigset_t one, pending;
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	record_async(journal, "a", &answers[0]);
	turn_until(1);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
	/* Its default action would end the process in any thread that takes it. */
	ck_assert_int_eq(kill(getpid(), SIGUSR1), 0);
	record_async(journal, "b", &answers[1]);
	turn_until(2);
	ck_assert_int_eq(sigpending(&pending), 0);
	ck_assert_int_eq(sigismember(&pending, SIGUSR1), 1);
	int taken;
	ck_assert_int_eq(sigwait(&one, &taken), 0);
	orch_journal_unref(journal);
}
END_TEST

/* --- groups
 * ----------------------------------------------------------------------------------------------- */

static void key_of(char key[16], const char *prefix, unsigned number)
{
	snprintf(key, 16, "%s%u", prefix, number);
}

START_TEST(what_is_queued_together_shares_a_commit)
{
	enum { COUNT = 60 };
	orch_journal *journal = open_journal();
	char key[16];
	unsigned before = gate_syncs();
	for (unsigned i = 0; i < COUNT; i++) {
		key_of(key, "alone", i);
		record_async(journal, key, &answers[i]);
		turn_until(i + 1);
	}
	unsigned alone = gate_syncs() - before;
	ck_assert_uint_ge(alone, COUNT);
	answered = 0;
	gate_set(true);
	record_async(journal, "first", &answers[COUNT]);
	gate_reached();
	for (unsigned i = 1; i < COUNT; i++) {
		key_of(key, "together", i);
		record_async(journal, key, &answers[COUNT + i]);
	}
	before = gate_syncs();
	ck_assert_uint_eq(orch_journal_sequence(journal), 1 + COUNT); /* nothing is told before it is durable */
	OK(orch_ctx_process(ctx, &error));
	ck_assert_uint_eq(answered, 0);
	gate_set(false);
	turn_until(COUNT);
	ck_assert_uint_le(gate_syncs() - before, 2);
	for (unsigned i = 0; i < COUNT; i++) {
		ck_assert_int_eq(answers[COUNT + i].fresh, 1);
		ck_assert_uint_eq(answers[COUNT + i].place, i);
	}
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

struct caller {
	pthread_t thread;
	orch_journal *journal;
	const char *key;
	int32_t code;
	uint32_t outcome;
};

static void *call_begin(void *userdata)
{
	struct caller *caller = userdata;
	orch_action *action = NULL;
	caller->code = kit_begin(caller->journal, caller->key, 0, "request", &caller->outcome,
				 &action, NULL);
	orch_action_unref(action);
	return NULL;
}

static void call_in_thread(struct caller *caller, orch_journal *journal, const char *key)
{
	caller->journal = journal;
	caller->key = key;
	ck_assert_int_eq(pthread_create(&caller->thread, NULL, call_begin, caller), 0);
}

static void await_queued(orch_journal *journal, int count)
{
	int queued = 0;
	while (queued < count) {
		sched_yield();
		pthread_mutex_lock(&journal->writer.mutex);
		queued = 0;
		for (struct ticket *ticket = journal->writer.first; ticket; ticket = ticket->next)
			queued++;
		pthread_mutex_unlock(&journal->writer.mutex);
	}
}

/* Each is refused inside the same transaction as those around it. */
START_TEST(who_is_refused_spoils_nothing)
{
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_DISPATCHED);
	orch_action *stale = find(journal, "k");
	uint64_t sequence = orch_journal_sequence(journal);
	struct caller callers[8] = {0};
	gate_set(true);
	record_async(journal, "hold", &answers[0]);
	gate_reached();
	unsigned before = gate_syncs();
	begin_async(journal, "new", &answers[1]);
	OK(begin_async_of(journal, "new", "another", &answers[2], &error)); /* of what is not durable yet */
	begin_async(journal, "new", &answers[3]);
	move_async(action, ORCH_ACTION_OBSERVED, &answers[4]);
	move_async(stale, ORCH_ACTION_FAILED, &answers[5]);
	record_async(journal, "hold", &answers[6]);
	for (int i = 0; i < 8; i++)
		call_in_thread(&callers[i], journal, "thread");
	await_queued(journal, 14);
	record_async(journal, "last", &answers[7]);
	gate_set(false);
	turn_until(8);
	unsigned fresh = 0;
	for (int i = 0; i < 8; i++) {
		pthread_join(callers[i].thread, NULL);
		ck_assert_int_eq(callers[i].code, 0);
		fresh += callers[i].outcome == ORCH_BEGIN_FRESH;
		ck_assert(callers[i].outcome == ORCH_BEGIN_FRESH ||
			  callers[i].outcome == ORCH_BEGIN_ATTACHED);
	}
	ck_assert_uint_eq(fresh, 1);
	ck_assert_uint_eq(answers[1].outcome, ORCH_BEGIN_FRESH);
	ck_assert_int_eq(answers[2].code, ORCH_ECONFLICT);
	ck_assert_uint_eq(answers[3].outcome, ORCH_BEGIN_ATTACHED);
	ck_assert_int_eq(answers[4].code, 0);
	ck_assert_int_eq(answers[5].code, ORCH_ESTATE);
	ck_assert_int_eq(answers[6].fresh, 0);
	ck_assert_int_eq(answers[7].fresh, 1);
	/* hold, new, observed, thread, last */
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence + 5);
	ck_assert_uint_lt(gate_syncs() - before, 5);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_action_unref(action);
	orch_action_unref(stale);
	orch_journal_unref(journal);
}
END_TEST

/* One that finds out after it has written: what it wrote must not stay with the others'. */
static int32_t write_and_refuse(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct record record;
	(void)request;
	int32_t r = record_prepare(journal, "test.record", "half", "x", 1, &record, reterr);
	if (r == 0)
		r = record.request.write(journal, &record.request, reterr);
	action_row_clear(&record.row);
	return r < 0 ? r : orch_fail(reterr, ORCH_EPERMIT, 0, NULL, "found out too late");
}

static void *call_half(void *userdata)
{
	struct request request = {.write = write_and_refuse};
	FAILS(ORCH_EPERMIT, chain_run(userdata, &request, &error));
	return NULL;
}

START_TEST(who_is_refused_after_writing_spoils_nothing)
{
	orch_journal *journal = open_journal();
	orch_action *action = NULL;
	pthread_t half;
	gate_set(true);
	record_async(journal, "hold", &answers[0]);
	gate_reached();
	record_async(journal, "a", &answers[1]);
	ck_assert_int_eq(pthread_create(&half, NULL, call_half, journal), 0);
	await_queued(journal, 2);
	record_async(journal, "b", &answers[2]);
	gate_set(false);
	turn_until(3);
	pthread_join(half, NULL);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(answers[i].fresh, 1);
	ck_assert_uint_eq(orch_journal_sequence(journal), 4);
	FAILS(ORCH_ENOENT, orch_journal_find(journal, "half", &action, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
	journal = open_journal();
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

START_TEST(a_failed_sync_is_everybodys)
{
	orch_journal *journal = open_journal();
	struct caller caller = {0};
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_DISPATCHED);
	gate_set(true);
	record_async(journal, "hold", &answers[0]);
	gate_reached();
	record_async(journal, "a", &answers[1]);
	move_async(action, ORCH_ACTION_OBSERVED, &answers[2]);
	call_in_thread(&caller, journal, "thread");
	record_async(journal, "b", &answers[3]);
	pthread_mutex_lock(&gate.mutex);
	gate.fails_with = EIO;
	pthread_mutex_unlock(&gate.mutex);
	gate_set(false);
	turn_until(4);
	pthread_join(caller.thread, NULL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(answers[i].code, ORCH_EPOISONED);
	ck_assert_int_eq(caller.code, ORCH_EPOISONED);
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_DISPATCHED);
	REFUSED(ORCH_EPOISONED, orch_journal_record_async(journal, ctx, "k", "c", NULL, 0, on_recorded,
							  (answers[0].destroyed = 0, &answers[0]),
							  on_destroy, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
	pthread_mutex_lock(&gate.mutex);
	gate.fails_with = 0;
	pthread_mutex_unlock(&gate.mutex);
	journal = open_journal();
	OK(orch_journal_verify(journal, NULL, &error));
	OK(orch_journal_record(journal, "k", "c", NULL, 0, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* --- order
 * ------------------------------------------------------------------------------------------------- */

static int32_t collect_names(void *userdata, const orch_record *record)
{
	char *names = userdata;
	strcat(strcat(names, orch_record_name(record)), " ");
	return 0;
}

START_TEST(the_order_of_one_thread_is_kept)
{
	orch_journal *journal = open_journal();
	static char names[4096], expected[4096];
	char key[16];
	names[0] = expected[0] = '\0';
	unsigned queued = 0;
	for (unsigned i = 0; i < 200; i++) {
		key_of(key, "k", i);
		if (i % 7 == 3) /* waits until it is durable, and so is all before it */
			OK(orch_journal_record(journal, "k", key, NULL, 0, NULL, &error));
		else
			record_async(journal, key, &answers[queued++]);
		strcat(strcat(expected, key), " ");
	}
	turn_until(queued);
	for (unsigned i = 0; i < queued; i++)
		ck_assert_uint_eq(answers[i].place, i);
	OK(orch_journal_records(journal, 1, collect_names, names, &error));
	ck_assert_str_eq(names, expected);
	orch_journal_unref(journal);
}
END_TEST

struct reports {
	pthread_mutex_t mutex;
	uint64_t last;
	unsigned strangers; /* calls on a thread that is not the test's */
	pthread_t own[16];
	unsigned owns;
};

static struct reports reports = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void on_record(void *userdata, uint64_t sequence)
{
	(void)userdata;
	bool known = false;
	pthread_mutex_lock(&reports.mutex);
	ck_assert_uint_eq(sequence, reports.last + 1);
	reports.last = sequence;
	for (unsigned i = 0; i < reports.owns; i++)
		known |= pthread_equal(reports.own[i], pthread_self());
	reports.strangers += !known;
	pthread_mutex_unlock(&reports.mutex);
}

static void reports_know_me(void)
{
	pthread_mutex_lock(&reports.mutex);
	reports.own[reports.owns++] = pthread_self();
	pthread_mutex_unlock(&reports.mutex);
}

static uint64_t reports_last(void)
{
	pthread_mutex_lock(&reports.mutex);
	uint64_t last = reports.last;
	pthread_mutex_unlock(&reports.mutex);
	return last;
}

static void *record_some(void *userdata)
{
	char key[32];
	reports_know_me();
	for (int i = 0; i < 50; i++) {
		snprintf(key, sizeof(key), "%lx-%d", (unsigned long)pthread_self(), i);
		OK(orch_journal_record(userdata, "k", key, NULL, 0, NULL, &error));
	}
	return NULL;
}

static void on_reported(void *userdata, int32_t fresh, const orch_error *error)
{
	(void)fresh;
	note(userdata, error);
	/* Of a key whose number is its place in the queue: at least so many records are known of. */
	ck_assert_uint_gt(reports_last(), answered);
}

START_TEST(each_record_is_reported_once_and_in_order)
{
	enum { THREADS = 4, CALLS = 100 };
	reports.last = 0;
	reports.strangers = reports.owns = 0;
	reports_know_me();
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, NULL, on_record, NULL, &error));
	ck_assert_uint_eq(reports_last(), 1);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, record_some, journal), 0);
	for (unsigned i = 0; i < CALLS; i++) {
		char key[16];
		key_of(key, "k", i);
		OK(orch_journal_record_async(journal, ctx, "k", key, NULL, 0, on_reported, &answers[i],
					     on_destroy, &error));
	}
	turn_until(CALLS);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(reports_last(), 1 + CALLS + THREADS * 50);
	/* Nobody turns the context any more: closing tells what was not told. */
	record_async(journal, "last", &answers[CALLS]);
	orch_journal_unref(journal);
	ck_assert_uint_eq(reports_last(), 2 + CALLS + THREADS * 50);
	ck_assert_uint_eq(reports.strangers, 0);
}
END_TEST

/* --- what is dropped
 * ---------------------------------------------------------------------------------------- */

enum { JOURNAL, CONTEXT, ACTION };

static const int orders[6][3] = {{JOURNAL, CONTEXT, ACTION}, {JOURNAL, ACTION, CONTEXT},
				 {CONTEXT, JOURNAL, ACTION}, {CONTEXT, ACTION, JOURNAL},
				 {ACTION, JOURNAL, CONTEXT}, {ACTION, CONTEXT, JOURNAL}};

static void *open_gate(void *userdata)
{
	(void)userdata;
	gate_set(false);
	return NULL;
}

enum moment { QUEUED, IN_COMMIT, ANSWERED, MOMENTS };

/* Everything was asked for; then it is dropped in some order, before, within or after the commit. */
static void drop_all(const int order[3], enum moment moment)
{
	orch_journal *journal = open_journal();
	orch_action *action = make(journal, "moved", 0, ORCH_ACTION_DISPATCHED);
	uint64_t sequence = orch_journal_sequence(journal);
	pthread_t opener;
	if (moment == IN_COMMIT)
		gate_set(true);
	begin_async(journal, "begun", &answers[0]);
	move_async(action, ORCH_ACTION_OBSERVED, &answers[1]);
	record_async(journal, "recorded", &answers[2]);
	if (moment == IN_COMMIT)
		gate_reached();
	while (moment == ANSWERED && orch_journal_sequence(journal) < sequence + 3)
		sched_yield();
	for (int i = 0; i < 3; i++) {
		/* Whoever closes the journal waits for the commit. */
		if (moment == IN_COMMIT && i == 1)
			ck_assert_int_eq(pthread_create(&opener, NULL, open_gate, NULL), 0);
		if (order[i] == JOURNAL)
			orch_journal_unref(journal);
		else if (order[i] == CONTEXT)
			ctx = orch_ctx_unref(ctx);
		else
			orch_action_unref(action);
	}
	if (moment == IN_COMMIT)
		pthread_join(opener, NULL);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(answers[i].called, 0);
		ck_assert_int_eq(answers[i].destroyed, 1);
	}
	journal = open_journal();
	ck_assert_uint_eq(state_of(journal, "begun"), ORCH_ACTION_INTENT);
	ck_assert_uint_eq(state_of(journal, "moved"), ORCH_ACTION_OBSERVED);
	ck_assert_uint_eq(state_of(journal, "recorded"), ORCH_ACTION_CONFIRMED);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}

START_TEST(everything_dropped_in_each_order)
{
	for (int moment = 0; moment < MOMENTS; moment++)
		for (int order = 0; order < 6; order++)
			for (int again = 0; again < (moment == QUEUED ? 10 : 1); again++) {
				drop_all(orders[order], moment);
				teardown();
				setup();
			}
}
END_TEST

/* With the last reference it is closed at once: another coordinator gets in before the context turns. */
START_TEST(a_context_that_lives_does_not_keep_the_journal)
{
	orch_journal *journal = open_journal();
	orch_action *action = begin(journal, "moved", 0, ORCH_BEGIN_FRESH);
	record_async(journal, "recorded", &answers[0]);
	begin_async(journal, "begun", &answers[1]);
	move_async(action, ORCH_ACTION_DISPATCHED, &answers[2]);
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(answers[i].destroyed, 1);
	OK(orch_ctx_process(ctx, &error));
	OK(orch_ctx_process(ctx, &error));
	ck_assert_uint_eq(answered, 0);
	ck_assert_uint_eq(state_of(journal, "moved"), ORCH_ACTION_DISPATCHED);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(a_queued_move_keeps_its_action)
{
	orch_journal *journal = open_journal();
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	move_async(action, ORCH_ACTION_DISPATCHED, &answers[0]);
	orch_action_unref(action);
	turn_until(1);
	ck_assert_uint_eq(answers[0].state, ORCH_ACTION_DISPATCHED);
	ck_assert_int_eq(answers[0].destroyed, 1);
	orch_journal_unref(journal);
	OK(kit_open(&journal, &error)); /* nothing holds it */
	orch_journal_unref(journal);
}
END_TEST

static void drop_the_journal(void *userdata, int32_t fresh, const orch_error *error)
{
	(void)fresh;
	note(&answers[0], error);
	orch_journal_unref(userdata);
}

START_TEST(the_journal_dropped_in_a_callback)
{
	orch_journal *journal = open_journal();
	OK(orch_journal_record_async(journal, ctx, "k", "a", NULL, 0, drop_the_journal, journal, NULL,
				     &error));
	record_async(journal, "b", &answers[1]);
	turn_until(1);
	OK(orch_ctx_process(ctx, &error));
	ck_assert_int_eq(answers[1].called, 0);
	ck_assert_int_eq(answers[1].destroyed, 1);
	journal = open_journal();
	ck_assert_uint_eq(state_of(journal, "b"), ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
}
END_TEST

/* --- fork
 * -------------------------------------------------------------------------------------------------- */

struct forked {
	orch_journal *journal;
	orch_action *action;
};

static void use_in_child(void *userdata)
{
	struct forked *forked = userdata;
	memset(answers, 0, sizeof(answers));
	REFUSED(ORCH_EFORKED,
		orch_journal_record_async(forked->journal, ctx, "k", "c", NULL, 0, on_recorded,
					  &answers[0], on_destroy, &error));
	REFUSED(ORCH_EFORKED, move_async_of(forked->action, ORCH_ACTION_FAILED, &answers[0], &error));
	FAILS(ORCH_EFORKED, orch_journal_record(forked->journal, "k", "c", NULL, 0, NULL, &error));
	orch_action_unref(forked->action);
	orch_journal_unref(forked->journal);
	orch_ctx_unref(ctx);
}

/* The child has neither the thread nor what it holds; the parent does not notice. */
START_TEST(a_fork_within_a_commit)
{
	orch_journal *journal = open_journal();
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	struct forked forked = {journal, action};
	gate_set(true);
	move_async(action, ORCH_ACTION_DISPATCHED, &answers[0]);
	gate_reached();
	record_async(journal, "a", &answers[1]);
	ck_assert_int_eq(in_child(use_in_child, &forked), 0);
	gate_set(false);
	turn_until(2);
	ck_assert_int_eq(in_child(use_in_child, &forked), 0); /* the thread waits for work */
	record_async(journal, "b", &answers[2]);
	turn_until(3);
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_DISPATCHED);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

/* --- many threads
 * ----------------------------------------------------------------------------------------------- */

enum { LIVES = 40, THREADS = 8 };

static void *live(void *userdata)
{
	char key[32];
	for (int i = 0; i < LIVES; i++) {
		snprintf(key, sizeof(key), "%lx-%d", (unsigned long)pthread_self(), i);
		orch_action *action = make(userdata, key, ORCH_POLICY_REPEATABLE, ORCH_ACTION_CONFIRMED);
		orch_action_unref(action);
		/* All threads want the same one. */
		snprintf(key, sizeof(key), "shared-%d", i);
		uint32_t outcome = 0;
		OK(kit_begin(userdata, key, 0, "request", &outcome, &action, &error));
		ck_assert(outcome == ORCH_BEGIN_FRESH || outcome == ORCH_BEGIN_ATTACHED);
		orch_action_unref(action);
	}
	return NULL;
}

static atomic_bool readers_stop;

static int32_t count_action(void *userdata, orch_action *action)
{
	++*(unsigned *)userdata;
	return orch_action_id(action) ? 0 : -1;
}

static int32_t count_record(void *userdata, const orch_record *record)
{
	uint64_t *last = userdata;
	ck_assert_uint_eq(orch_record_sequence(record), *last + 1);
	++*last;
	return 0;
}

static void *look(void *userdata)
{
	while (!atomic_load(&readers_stop)) {
		unsigned actions = 0;
		uint64_t last = 0, before = orch_journal_sequence(userdata), verified = 0;
		OK(orch_journal_records(userdata, 0, count_record, &last, &error));
		ck_assert_uint_ge(last, before);
		OK(orch_journal_each(userdata, "test.", count_action, &actions, &error));
		OK(orch_journal_verify(userdata, &verified, &error));
		ck_assert_uint_ge(verified, last);
		ck_assert_uint_eq(orch_journal_generation(userdata), 1);
	}
	return NULL;
}

START_TEST(many_threads_write_and_look)
{
	orch_journal *journal = open_journal();
	pthread_t writers[THREADS], readers[2];
	atomic_store(&readers_stop, false);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, look, journal), 0);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&writers[i], NULL, live, journal), 0);
	for (unsigned i = 0; i < 100; i++) {
		char key[16];
		key_of(key, "async", i);
		record_async(journal, key, &answers[i]);
	}
	turn_until(100);
	for (int i = 0; i < THREADS; i++)
		pthread_join(writers[i], NULL);
	atomic_store(&readers_stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	/* Each own action has four records, each shared one a single one. */
	ck_assert_uint_eq(orch_journal_sequence(journal), 1 + 100 + THREADS * LIVES * 4 + LIVES);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-async");
	TCase *tests = tcase_create("journal-async");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, a_whole_life_in_callbacks);
	tcase_add_test(tests, one_move_at_a_time);
	tcase_add_test(tests, what_cannot_be_queued);
	tcase_add_test(tests, no_thread_can_be_started);
	tcase_add_test(tests, the_thread_takes_no_signal);
	tcase_add_test(tests, what_is_queued_together_shares_a_commit);
	tcase_add_test(tests, who_is_refused_spoils_nothing);
	tcase_add_test(tests, who_is_refused_after_writing_spoils_nothing);
	tcase_add_test(tests, a_failed_sync_is_everybodys);
	tcase_add_test(tests, the_order_of_one_thread_is_kept);
	tcase_add_test(tests, each_record_is_reported_once_and_in_order);
	tcase_add_test(tests, everything_dropped_in_each_order);
	tcase_add_test(tests, a_context_that_lives_does_not_keep_the_journal);
	tcase_add_test(tests, a_queued_move_keeps_its_action);
	tcase_add_test(tests, the_journal_dropped_in_a_callback);
	tcase_add_test(tests, a_fork_within_a_commit);
	tcase_add_test(tests, many_threads_write_and_look);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
