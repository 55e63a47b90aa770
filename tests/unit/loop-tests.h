/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_LOOP_TESTS_H
#define ORCH_LOOP_TESTS_H

/*
 * A context inside somebody else's event loop: what must hold in each of them. test-glib.c and
 * test-libuv.c define the functions host_*() below and include this file last.
 */

#include <pthread.h>

#include "../crash/liveness-fixture.h"

struct host_child {
	bool ended;
	int status; /* exit code, or -1 */
};

/* Takes the context into the loop: host_work() is called whenever its descriptor is readable. */
static void host_attach(orch_ctx *ctx);
static void host_detach(void);
/* Runs the loop until done() or until the time is over; false then. */
static bool host_until(bool (*done)(void *userdata), void *userdata, int timeout_ms);
/* A timer of the loop's own that counts. */
static void host_ticks_start(unsigned period_ms, unsigned *count);
static void host_ticks_stop(void);
/* Starts a child by the loop's own means and has it watched by the loop. */
static void host_start_child(const char *const *argv, struct host_child *child);

static struct {
	orch_ctx *ctx;
	unsigned turns;
	int64_t longest_us; /* CPU time of the longest turn: the clock would tell of others */
} host;

static int64_t cpu_us(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void host_work(void)
{
	int64_t before = cpu_us(CLOCK_THREAD_CPUTIME_ID);
	OK(orch_ctx_process(host.ctx, e));
	int64_t took = cpu_us(CLOCK_THREAD_CPUTIME_ID) - before;
	if (took > host.longest_us)
		host.longest_us = took;
	host.turns++;
}

static orch_ctx *attached_ctx(void)
{
	host.ctx = ctx_new();
	host.turns = 0;
	host.longest_us = 0;
	host_attach(host.ctx);
	return host.ctx;
}

static void drop_ctx(void)
{
	host_detach();
	host.ctx = orch_ctx_unref(host.ctx);
}

static bool never(void *userdata)
{
	(void)userdata;
	return false;
}

static bool is_set(void *userdata)
{
	return *(int *)userdata > 0;
}

/* For the judge: other tests run at the same time. */
static const char *own_word(void)
{
	static char word[32];
	snprintf(word, sizeof(word), "loop-%d", (int)getpid());
	return word;
}

/* --- a scope with one program, and what came of it ------------------------------------- */

struct task {
	orch_scope *scope;
	orch_proc *proc;
	struct watched watched;
	struct events events;
	struct deaths deaths;
};

static void task_start(struct task *task, const char *const *argv)
{
	struct orch_proc_opts opts;
	memset(task, 0, sizeof(*task));
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.event = on_event;
	opts.userdata = &task->events;
	opts.destroy = on_events_destroyed;
	task->scope = scope_new(host.ctx);
	task->proc = spawn_opts(task->scope, &opts, argv);
}

static void task_stop(struct task *task, uint32_t grace_ms)
{
	struct orch_stop_opts opts;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.grace_ms = grace_ms;
	OK(orch_scope_stop(task->scope, &opts, on_death, &task->deaths, on_deaths_destroyed, e));
}

static bool has_started(void *userdata)
{
	return ((struct task *)userdata)->events.count >= 1;
}

static bool has_ended(void *userdata)
{
	return ((struct task *)userdata)->events.count >= 2;
}

static bool is_dead(void *userdata)
{
	return ((struct task *)userdata)->deaths.count >= 1;
}

static void assert_events_came_once(const struct task *task)
{
	ck_assert_int_eq(task->events.count, 2);
	ck_assert_uint_eq(task->events.seen[0], ORCH_PROC_STARTED);
	ck_assert_uint_eq(task->events.seen[1], ORCH_PROC_EXITED);
	ck_assert_int_eq(task->deaths.count, 1);
	ck_assert_int_eq(task->deaths.destroyed, 1);
}

static void task_free(struct task *task)
{
	orch_death_unref(task->deaths.last);
	orch_proc_unref(task->proc);
	orch_scope_unref(task->scope);
	ck_assert_int_eq(task->events.destroyed, 1);
}

static void task_end(struct task *task)
{
	task_stop(task, 0);
	ck_assert(host_until(is_dead, task, 20000));
	assert_dead(task->deaths.last);
	task_free(task);
}

/* --- tests ----------------------------------------------------------------------------- */

START_TEST(programs_run_and_certificates_come)
{
	static const int codes[] = {0, 3, 7};
	struct host_child own = {0};
	struct task tasks[3];
	char text[64];

	attached_ctx();
	host_start_child(ARGV("/bin/sh", "-c", "exit 5"), &own);
	for (int i = 0; i < 3; i++) {
		snprintf(text, sizeof(text), "setsid sleep 1000 & exit %d", codes[i]);
		task_start(&tasks[i], ARGV("sh", "-c", text));
	}
	for (int i = 0; i < 3; i++) {
		ck_assert(host_until(has_ended, &tasks[i], 20000));
		tasks[i].watched = watch(tasks[i].scope);
		ck_assert_int_eq(orch_proc_exit_code(tasks[i].proc), codes[i]);
		/* Control: what it detached is there. An ordinary user does not see init's. */
		ck_assert_uint_ge(in_pidns(tasks[i].watched.inode, tasks[i].watched.init_pid),
				  is_root() ? 2 : 1);
		task_stop(&tasks[i], 0);
	}
	for (int i = 0; i < 3; i++) {
		ck_assert(host_until(is_dead, &tasks[i], 20000));
		assert_dead(tasks[i].deaths.last);
		assert_events_came_once(&tasks[i]);
		assert_nothing_left(&tasks[i].watched);
		task_free(&tasks[i]);
	}
	ck_assert(host_until((bool (*)(void *))is_set, &own.ended, 20000));
	ck_assert_int_eq(own.status, 5);
	drop_ctx();
}
END_TEST

struct rearmed {
	orch_source *timer;
	int fired;
};

static void fire_ten_times(void *userdata)
{
	struct rearmed *rearmed = userdata;
	if (++rearmed->fired < 10)
		orch_source_timer_set(rearmed->timer, 30);
}

static bool fired_ten_times(void *userdata)
{
	return ((struct rearmed *)userdata)->fired >= 10;
}

START_TEST(timers_of_the_library_fire)
{
	struct rearmed rearmed = {0};
	orch_ctx *ctx = attached_ctx();
	/* Armed outside of orch_ctx_process(), then inside; nothing else wakes the loop. */
	int64_t before = orch_monotonic_us();
	OK(orch_source_timer(ctx, 30, fire_ten_times, &rearmed, &rearmed.timer, e));
	ck_assert(host_until(fired_ten_times, &rearmed, 20000));
	int64_t took_ms = (orch_monotonic_us() - before) / 1000;
	ck_assert_msg(took_ms >= 295 && took_ms < 3000, "300 ms of timers took %lld ms",
		      (long long)took_ms);
	ck_assert_msg(host.turns <= 30, "%u turns for 10 timers", host.turns);
	/* A timer that has fired leaves nothing behind that keeps the loop awake. */
	unsigned turns = host.turns;
	ck_assert(!host_until(never, NULL, 200));
	ck_assert_int_eq(rearmed.fired, 10);
	ck_assert_msg(host.turns - turns <= 2, "%u turns after the last timer", host.turns - turns);

	/* One that was disarmed does not fire. */
	orch_source_timer_set(rearmed.timer, 20);
	orch_source_timer_set(rearmed.timer, -1);
	ck_assert(!host_until(never, NULL, 100));
	ck_assert_int_eq(rearmed.fired, 10);
	orch_source_remove(rearmed.timer);
	drop_ctx();
}
END_TEST

START_TEST(grace_is_counted_by_the_clock)
{
	struct task task;
	int out[2];
	struct orch_proc_opts opts;
	attached_ctx();
	ck_assert_int_eq(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
	memset(&task, 0, sizeof(task));
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdout_fd = out[1];
	opts.event = on_event;
	opts.userdata = &task.events;
	opts.destroy = on_events_destroyed;
	task.scope = scope_new(host.ctx);
	task.proc = spawn_opts(task.scope, &opts, LOAD("stubborn"));
	ck_assert(host_until(has_started, &task, 20000));
	/* From "ready" on it does not mind SIGTERM. */
	struct pollfd ready = {.fd = out[0], .events = POLLIN};
	ck_assert_int_eq(poll(&ready, 1, 20000), 1);
	int64_t before = orch_monotonic_us();
	task_stop(&task, 400);
	ck_assert(host_until(is_dead, &task, 20000));
	int64_t took_ms = (orch_monotonic_us() - before) / 1000;
	ck_assert_msg(took_ms >= 395 && took_ms < 5000, "a grace of 400 ms took %lld ms",
		      (long long)took_ms);
	assert_dead(task.deaths.last);
	assert_events_came_once(&task);
	ck_assert_int_eq(orch_proc_term_signal(task.proc), SIGKILL);
	task_free(&task);
	close(out[0]);
	close(out[1]);
	drop_ctx();
}
END_TEST

struct inside {
	struct task *task;
	orch_sandbox *sandbox;
	int calls;
};

static void wait_inside(void *userdata, orch_proc *proc, uint32_t event)
{
	struct inside *inside = userdata;
	orch_sandbox_result *result = NULL;
	orch_error *error = NULL;
	orch_death *death = NULL;
	int32_t status = -1000;

	if (event != ORCH_PROC_EXITED)
		return;
	ck_assert_int_eq(orch_ctx_process(host.ctx, NULL), ORCH_EDEADLK);
	ck_assert_int_eq(orch_ctx_run(host.ctx, 0, NULL), ORCH_EDEADLK);
	ck_assert_int_eq(orch_scope_start_wait(inside->task->scope, 0, NULL), ORCH_EDEADLK);
	ck_assert_int_eq(orch_scope_stop_wait(inside->task->scope, NULL, &death, NULL),
			 ORCH_EDEADLK);
	ck_assert_ptr_null(death);
	ck_assert_int_eq(orch_sandbox_start_wait(inside->sandbox, 0, NULL), ORCH_EDEADLK);
	ck_assert_int_eq(orch_sandbox_run(inside->sandbox, ARGV("true"), NULL, &result, &error),
			 ORCH_EDEADLK);
	ck_assert_ptr_null(result);
	ck_assert_int_eq(orch_error_code(error), ORCH_EDEADLK);
	orch_error_free(error);
	/* What needs no wait is answered: this very program has ended. */
	int32_t code = orch_proc_wait(proc, 0, &status, NULL);
	ck_assert(code == ORCH_EDEADLK || (code == 0 && status == 0));
	inside->calls++;
}

START_TEST(waiting_forms_inside_a_callback_are_refused)
{
	struct task task = {0};
	struct inside inside = {.task = &task};
	struct orch_proc_opts opts;
	orch_sandbox_result *result = NULL;
	orch_ctx *ctx = attached_ctx();

	OK(orch_sandbox_new(ctx, NULL, &inside.sandbox, e));
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.event = wait_inside;
	opts.userdata = &inside;
	task.scope = scope_new(ctx);
	task.proc = spawn_opts(task.scope, &opts, ARGV("true"));
	ck_assert(host_until(is_set, &inside.calls, 20000));

	/* Control: outside of a callback they work, also while the loop has the context. */
	OK(orch_sandbox_run(inside.sandbox, ARGV("sh", "-c", "exit 4"), NULL, &result, e));
	ck_assert_int_eq(orch_sandbox_result_status(result), 4);
	OK(orch_scope_stop_wait(task.scope, NULL, &task.deaths.last, e));
	assert_dead(task.deaths.last);
	orch_death_unref(task.deaths.last);
	orch_proc_unref(task.proc);
	orch_scope_unref(task.scope);
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(inside.sandbox);
	drop_ctx();
}
END_TEST

static void *wake_from_outside(void *userdata)
{
	pause_ms(100);
	orch_ctx_wakeup(userdata);
	return NULL;
}

static void *drop_from_outside(void *userdata)
{
	orch_scope_unref(userdata);
	return NULL;
}

static bool has_turned(void *userdata)
{
	return host.turns > *(unsigned *)userdata;
}

static bool init_is_gone(void *userdata)
{
	return !exists(((struct watched *)userdata)->init_pid);
}

START_TEST(another_thread_wakes_the_loop_and_drops_a_scope)
{
	pthread_t thread;
	struct task task;
	orch_ctx *ctx = attached_ctx();
	ck_assert(!host_until(never, NULL, 50));
	unsigned turns = host.turns;
	int64_t before = orch_monotonic_us();
	ck_assert_int_eq(pthread_create(&thread, NULL, wake_from_outside, ctx), 0);
	ck_assert(host_until(has_turned, &turns, 20000));
	ck_assert(orch_monotonic_us() - before >= 95000);
	pthread_join(thread, NULL);
	turns = host.turns;
	ck_assert(!host_until(never, NULL, 100));
	ck_assert_msg(host.turns - turns <= 2, "%u turns after one wake-up", host.turns - turns);

	task_start(&task, LOAD("awkward", own_word()));
	ck_assert(host_until(has_ended, &task, 20000));
	task.watched = watch(task.scope);
	ck_assert(word_is_seen(own_word(), 1));
	ck_assert_int_eq(pthread_create(&thread, NULL, drop_from_outside, task.scope), 0);
	pthread_join(thread, NULL);
	/* Only the owner destroys: nothing happens before the loop turns. */
	ck_assert(exists(task.watched.init_pid));
	orch_proc_unref(task.proc);
	host_ticks_start(10, &turns);
	ck_assert(host_until(init_is_gone, &task.watched, 20000));
	host_ticks_stop();
	assert_nothing_left(&task.watched);
	ck_assert_uint_eq(with_word(own_word()), 0);
	ck_assert_int_eq(task.events.destroyed, 1);
	drop_ctx();
}
END_TEST

START_TEST(waiting_costs_nothing)
{
	struct task tasks[3];
	attached_ctx();
	for (int i = 0; i < 3; i++)
		task_start(&tasks[i], ARGV("sleep", "1000"));
	for (int i = 0; i < 3; i++)
		ck_assert(host_until(has_started, &tasks[i], 20000));
	ck_assert(!host_until(never, NULL, 300));
	for (int round = 0; round < 2; round++) {
		unsigned turns = host.turns;
		int64_t before = cpu_us(CLOCK_PROCESS_CPUTIME_ID);
		ck_assert(!host_until(never, NULL, 1500));
		int64_t took = cpu_us(CLOCK_PROCESS_CPUTIME_ID) - before;
		printf("1.5 s of waiting %s: %u turns, %lld us CPU\n",
		       round ? "after the end" : "with three scopes", host.turns - turns,
		       (long long)took);
		ck_assert_msg(host.turns - turns <= 3, "%u turns in 1.5 s without work",
			      host.turns - turns);
		ck_assert_msg(took < 30000, "%lld us of CPU in 1.5 s without work",
			      (long long)took);
		for (int i = 0; i < 3 && round == 0; i++) {
			task_end(&tasks[i]);
			ck_assert_uint_gt(host.turns, turns); /* control: work is counted */
		}
	}
	drop_ctx();
}
END_TEST

#define MANY 50

START_TEST(the_host_ticks_while_fifty_scopes_work)
{
	static struct task tasks[MANY];
	unsigned ticks = 0;
	attached_ctx();
	host_ticks_start(20, &ticks);
	int64_t before = orch_monotonic_us();
	for (int i = 0; i < MANY; i++) {
		char text[96];
		snprintf(text, sizeof(text),
			 "for i in 1 2 3 4 5; do sleep 0.1; done; setsid sleep 1000 & exit %d", i);
		task_start(&tasks[i], ARGV("sh", "-c", text));
	}
	for (int i = 0; i < MANY; i++)
		ck_assert(host_until(has_ended, &tasks[i], 60000));
	for (int i = 0; i < MANY; i++)
		task_stop(&tasks[i], 0);
	for (int i = 0; i < MANY; i++)
		ck_assert(host_until(is_dead, &tasks[i], 60000));
	unsigned due = (unsigned)((orch_monotonic_us() - before) / 20000);
	host_ticks_stop();
	printf("50 scopes in %u ms: %u of %u ticks, %u turns, the longest %lld us\n", due * 20,
	       ticks, due, host.turns, (long long)host.longest_us);
	for (int i = 0; i < MANY; i++) {
		ck_assert_int_eq(orch_proc_exit_code(tasks[i].proc), i);
		assert_dead(tasks[i].deaths.last);
		assert_events_came_once(&tasks[i]);
		task_free(&tasks[i]);
	}
	/* Half, since others use this machine too; a starved loop would have a handful. */
	ck_assert_msg(ticks >= due / 2, "%u ticks of %u", ticks, due);
	ck_assert_msg(host.longest_us < 100000, "one turn used %lld us of CPU",
		      (long long)host.longest_us);
	drop_ctx();
}
END_TEST

START_TEST(a_host_that_ignores_its_children)
{
	struct task task;
	struct sigaction action;
	signal(SIGCHLD, SIG_IGN);
	attached_ctx();
	task_start(&task, ARGV("sh", "-c", "setsid sleep 1000 & exit 6"));
	ck_assert(host_until(has_ended, &task, 20000));
	task.watched = watch(task.scope);
	ck_assert_int_eq(orch_proc_exit_code(task.proc), 6);
	task_end(&task);
	assert_nothing_left(&task.watched);
	drop_ctx();
	sigaction(SIGCHLD, NULL, &action);
	ck_assert(action.sa_handler == SIG_IGN);
	ck_assert_int_eq(waitpid(-1, NULL, 0), -1);
}
END_TEST

#define CHILDREN 20

static bool all_ended(void *userdata)
{
	struct host_child *children = userdata;
	for (int i = 0; i < CHILDREN; i++)
		if (!children[i].ended)
			return false;
	return true;
}

START_TEST(children_of_the_host_are_its_own)
{
	struct host_child children[CHILDREN] = {0};
	unsigned fds = 0;
	for (int round = 0; round < 3; round++) {
		struct task task;
		attached_ctx();
		/* Some end while the helper starts, some while it works, some when it is gone. */
		for (int i = 0; i < 6; i++) {
			char text[64];
			snprintf(text, sizeof(text), "sleep 0.%d; exit %d", i, round * 6 + i);
			host_start_child(ARGV("/bin/sh", "-c", text), &children[round * 6 + i]);
		}
		task_start(&task, ARGV("sh", "-c", "sleep 0.2; setsid sleep 1000 & exit 8"));
		ck_assert(host_until(has_ended, &task, 20000));
		ck_assert_int_eq(orch_proc_exit_code(task.proc), 8);
		task_end(&task);
		drop_ctx();
		host_until(never, NULL, 50);
		if (round == 0)
			fds = open_fds();
	}
	/* A child of the host outlives a context. */
	host_start_child(ARGV("/bin/sh", "-c", "sleep 0.3; exit 18"), &children[18]);
	attached_ctx();
	host_start_child(ARGV("/bin/sh", "-c", "exit 19"), &children[19]);
	drop_ctx();
	ck_assert(host_until(all_ended, children, 20000));
	for (int i = 0; i < CHILDREN; i++)
		ck_assert_int_eq(children[i].status, i);
	/* No helper is left, not even as a zombie, and no descriptor. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	ck_assert_uint_le(open_fds(), fds);
}
END_TEST

START_TEST(the_death_of_the_helper_is_told)
{
	struct task task;
	attached_ctx();
	task_start(&task, LOAD("awkward", own_word()));
	OK(orch_scope_on_death(task.scope, on_death, &task.deaths, on_deaths_destroyed, e));
	ck_assert(host_until(has_ended, &task, 20000));
	task.watched = watch(task.scope);
	ck_assert(word_is_seen(own_word(), 1));
	ck_assert_int_eq(kill(parent_of(task.watched.init_pid), SIGKILL), 0);
	ck_assert(host_until(is_dead, &task, 20000));
	/* Init is the machine's child then, which may leave it a zombie for a while. */
	uint32_t verdict = orch_death_verdict(task.deaths.last);
	ck_assert_msg(verdict == ORCH_DEATH_DEAD || verdict == ORCH_DEATH_DEAD_UNREAPED, "%s",
		      orch_death_text(task.deaths.last));
	ck_assert_uint_eq(with_word(own_word()), 0);
	task_free(&task);
	drop_ctx();
}
END_TEST

START_TEST(a_loop_goes_on_without_the_context)
{
	unsigned ticks = 0;
	struct task task;
	host_ticks_start(10, &ticks);
	host_until(never, NULL, 100);
	attached_ctx();
	task_start(&task, ARGV("true"));
	ck_assert(host_until(has_ended, &task, 20000));
	task_end(&task);
	drop_ctx();
	unsigned before = ticks;
	ck_assert_uint_gt(before, 0);
	host_until(never, NULL, 300);
	ck_assert_uint_ge(ticks, before + 10);
	host_ticks_stop();
}
END_TEST

static const char *loop_name;

Suite *suite(void)
{
	Suite *suite = suite_create(loop_name);
	TCase *tests = tcase_create(loop_name);
	tcase_set_timeout(tests, 80);
	tcase_add_test(tests, programs_run_and_certificates_come);
	tcase_add_test(tests, timers_of_the_library_fire);
	tcase_add_test(tests, grace_is_counted_by_the_clock);
	tcase_add_test(tests, waiting_forms_inside_a_callback_are_refused);
	tcase_add_test(tests, another_thread_wakes_the_loop_and_drops_a_scope);
	tcase_add_test(tests, waiting_costs_nothing);
	tcase_add_test(tests, the_host_ticks_while_fifty_scopes_work);
	tcase_add_test(tests, a_host_that_ignores_its_children);
	tcase_add_test(tests, children_of_the_host_are_its_own);
	tcase_add_test(tests, the_death_of_the_helper_is_told);
	tcase_add_test(tests, a_loop_goes_on_without_the_context);
	suite_add_tcase(suite, tests);
	return suite;
}

int fake_helper(const char *name)
{
	(void)name; /* the fixture makes links to fake helpers, which these tests do not use */
	return 99;
}

#endif
