/* SPDX-License-Identifier: Apache-2.0 */
/* Work on the host that ends with its scope, and is part of the certificate. */
#include "../crash/liveness-fixture.h"

struct work {
	orch_ctx *ctx;
	orch_settlement *kept;
	const char *outcome;  /* NULL: no answer */
	bool keeps;	      /* answers later */
	int asked, destroyed;
	int ended_programs;   /* how many had ended when it was asked */
	int *ended;
	orch_scope *drops;    /* lets go in the callback */
};

static void on_settle(void *userdata, orch_scope *scope, orch_settlement *settlement)
{
	struct work *work = userdata;
	ck_assert_ptr_nonnull(scope);
	work->asked++;
	work->ended_programs = work->ended ? *work->ended : 0;
	if (work->keeps)
		work->kept = orch_settlement_ref(settlement);
	else if (work->outcome)
		OK(orch_settlement_done(settlement, work->outcome, e));
	if (work->drops)
		work->drops = orch_scope_unref(work->drops);
}

static void on_destroyed(void *userdata)
{
	((struct work *)userdata)->destroyed++;
}

static void add(orch_scope *scope, const char *what, struct work *work)
{
	OK(orch_scope_add_work(scope, what, on_settle, work, on_destroyed, e));
}

static orch_death *stop_by(orch_scope *scope, uint32_t deadline_ms)
{
	struct orch_stop_opts opts;
	orch_death *death = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = deadline_ms;
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	return death;
}

static void assert_work(orch_death *death, uint32_t index, const char *what, const char *outcome)
{
	const char *told_what = NULL, *told_outcome = NULL;
	uint32_t settled = 7;
	ck_assert_int_eq(orch_death_work(death, index, &told_what, &settled, &told_outcome), 0);
	ck_assert_str_eq(told_what, what);
	ck_assert_str_eq(told_outcome, outcome ? outcome : "");
	ck_assert_uint_eq(settled, outcome != NULL);
	ck_assert_ptr_nonnull(strstr(orch_death_text(death), what));
	ck_assert_ptr_nonnull(strstr(orch_death_text(death), outcome ? outcome : "did not settle"));
}

START_TEST(settled_at_once)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct work first = {.outcome = "closed"}, second = {.outcome = "2 observed, 1 unknown"};
	add(scope, "listener 7", &first);
	add(scope, "principal p", &second);
	ck_assert_int_eq(run(scope, ARGV("true")), 0);
	ck_assert_int_eq(first.asked, 0);
	struct watched watched = watch(scope);
	spawn(scope, ARGV("sh", "-c", "setsid sleep 1000 & sleep 1000"));
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	ck_assert_uint_eq(orch_death_work_count(death), 2);
	assert_work(death, 0, "listener 7", "closed");
	assert_work(death, 1, "principal p", "2 observed, 1 unknown");
	ck_assert_int_eq(orch_death_work(death, 2, NULL, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_death_work(NULL, 0, NULL, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(first.asked + second.asked, 2);
	ck_assert_int_eq(first.destroyed + second.destroyed, 2);
	assert_nothing_left(&watched);
	/* Asked again it is the same certificate, and nobody is asked twice. */
	orch_death *again = stop(scope, 0);
	ck_assert_ptr_eq(again, death);
	ck_assert_int_eq(first.asked, 1);
	orch_death_unref(again);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* It may be stopped before it ran. */
static void on_exit_event(void *userdata, orch_proc *proc, uint32_t event)
{
	(void)proc;
	*(int *)userdata += event != ORCH_PROC_STARTED;
}

START_TEST(certificate_waits_for_the_answer)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct work work = {.keeps = true};
	struct deaths deaths = {0};
	struct orch_proc_opts opts;
	int ended = 0;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.event = on_exit_event;
	opts.userdata = &ended;
	orch_proc_unref(spawn_opts(scope, &opts, ARGV("sleep", "1000")));
	OK(orch_scope_start_wait(scope, 20000, e));
	pid_t init = orch_scope_init_pid(scope);
	add(scope, "operations", &work);
	OK(orch_scope_stop(scope, NULL, on_death, &deaths, on_deaths_destroyed, e));
	/* Never inside the setter. */
	ck_assert_int_eq(work.asked, 0);
	loop_until(ctx, &ended);
	ck_assert_int_eq(work.asked, 1);
	ck_assert_int_eq(orch_ctx_run(ctx, 200, NULL), ORCH_ETIMEDOUT);
	/* The processes are dead, their program is told, and the certificate is not there. */
	ck_assert(!exists(init));
	ck_assert_int_eq(deaths.count, 0);
	OK(orch_settlement_done(work.kept, "all observed", e));
	ck_assert_int_eq(deaths.count, 0);
	ck_assert_int_eq(orch_settlement_done(work.kept, "again", NULL), ORCH_ESTATE);
	loop_until(ctx, &deaths.destroyed);
	ck_assert_int_eq(deaths.count, 1);
	assert_dead(deaths.last);
	assert_work(deaths.last, 0, "operations", "all observed");
	ck_assert_int_ge(orch_death_confirmed_us(deaths.last), 200000);
	work.kept = orch_settlement_unref(work.kept);
	ck_assert_int_eq(work.destroyed, 1);
	orch_death_unref(deaths.last);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* The first time without an answer at all, then with one that is kept past the deadline. */
START_TEST(unsettled_is_not_dead)
{
	for (int keeps = 0; keeps < 2; keeps++) {
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_new(ctx);
		struct work good = {.outcome = "closed"}, bad = {.keeps = keeps};
		add(scope, "listener", &good);
		add(scope, "server of MCP", &bad);
		ck_assert_int_eq(run(scope, ARGV("true")), 0);
		struct watched watched = watch(scope);
		int64_t before = orch_monotonic_us();
		orch_death *death = stop_by(scope, keeps ? 700 : 8000);
		int64_t took = orch_monotonic_us() - before;
		ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_UNVERIFIABLE);
		ck_assert_ptr_nonnull(strstr(orch_death_reason(death), "server of MCP"));
		ck_assert_ptr_nonnull(strstr(orch_death_reason(death), "every process is dead"));
		assert_work(death, 0, "listener", "closed");
		assert_work(death, 1, "server of MCP", NULL);
		assert_nothing_left(&watched);
		if (keeps) {
			ck_assert_int_ge(took, 690000);
			ck_assert_int_eq(orch_settlement_done(bad.kept, "too late", NULL), ORCH_ESTATE);
			orch_settlement_unref(bad.kept);
		} else {
			/* Nobody can answer any more: nothing is waited for. */
			ck_assert_int_lt(took, 7000000);
		}
		ck_assert_int_eq(good.destroyed + bad.destroyed, 2);
		orch_death_unref(death);
		orch_scope_unref(scope);
		orch_ctx_unref(ctx);
	}
}
END_TEST

/* Ends that nobody asked for: the leader's exit, init killed, the helper killed. */
START_TEST(asked_at_every_end)
{
	for (int end = 0; end < 3; end++) {
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_new(ctx);
		struct work work = {.outcome = "closed"};
		struct deaths deaths = {0};
		struct orch_proc_opts opts;
		orch_proc_opts_init(&opts, sizeof(opts));
		opts.flags = end == 0 ? ORCH_PROC_LEADER : 0;
		OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
		add(scope, "listener", &work);
		orch_proc_unref(spawn_opts(scope, &opts, end == 0 ? ARGV("true") : ARGV("sleep", "1000")));
		OK(orch_scope_start_wait(scope, 20000, e));
		if (end == 1)
			kill(orch_scope_init_pid(scope), SIGKILL);
		if (end == 2)
			kill(parent_of(orch_scope_init_pid(scope)), SIGKILL);
		loop_until(ctx, &deaths.destroyed);
		ck_assert_int_eq(deaths.count, 1);
		ck_assert_int_eq(work.asked, 1);
		/* Of a dead helper's init somebody else is the parent. */
		if (end == 2)
			ck_assert_uint_le(orch_death_verdict(deaths.last), ORCH_DEATH_DEAD_UNREAPED);
		else
			assert_dead(deaths.last);
		assert_work(deaths.last, 0, "listener", "closed");
		orch_death_unref(deaths.last);
		orch_scope_unref(scope);
		orch_ctx_unref(ctx);
	}
}
END_TEST

START_TEST(dropped_at_every_moment)
{
	/* In the callback, with the answer due, with the context, and before anything. */
	for (int moment = 0; moment < 4; moment++) {
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_new(ctx);
		struct work work = {.keeps = moment == 1 || moment == 2, .outcome = "closed"};
		add(scope, "listener", &work);
		if (moment < 3) {
			ck_assert_int_eq(run(scope, ARGV("true")), 0);
			if (moment == 0)
				work.drops = orch_scope_ref(scope);
			OK(orch_scope_stop(scope, NULL, NULL, NULL, NULL, e));
			scope = orch_scope_unref(scope);
			loop_until(ctx, &work.asked);
			if (moment == 1) {
				OK(orch_settlement_done(work.kept, "closed", e));
				loop_until(ctx, &work.destroyed);
			} else if (moment == 0) {
				loop_until(ctx, &work.destroyed);
			}
		}
		orch_scope_unref(scope);
		orch_ctx_unref(ctx);
		/* It keeps the context, as every handle does. */
		if (moment == 2)
			ck_assert_int_eq(work.destroyed, 0);
		orch_settlement_unref(work.kept);
		ck_assert_int_eq(work.destroyed, 1);
		ck_assert_int_eq(work.asked, moment < 3);
	}
}
END_TEST

START_TEST(bad_arguments)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct work work = {.outcome = "closed"};
	char longest[257];
	memset(longest, 'w', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	ck_assert_int_eq(orch_scope_add_work(NULL, "w", on_settle, &work, on_destroyed, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_scope_add_work(scope, NULL, on_settle, &work, on_destroyed, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_scope_add_work(scope, "", on_settle, &work, on_destroyed, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_scope_add_work(scope, longest, on_settle, &work, on_destroyed, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_scope_add_work(scope, "w", NULL, &work, on_destroyed, NULL), ORCH_EINVAL);
	ck_assert_int_eq(work.destroyed, 5);
	ck_assert_int_eq(orch_settlement_done(NULL, "x", NULL), ORCH_EINVAL);
	ck_assert_ptr_null(orch_settlement_unref(NULL));
	for (int i = 0; i < 64; i++)
		add(scope, longest + 1 + i, &work);
	ck_assert_int_eq(orch_scope_add_work(scope, "one more", on_settle, &work, on_destroyed, NULL), ORCH_EBUSY);
	ck_assert_int_eq(run(scope, ARGV("true")), 0);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	ck_assert_uint_eq(orch_death_work_count(death), 64);
	ck_assert_int_eq(work.asked, 64);
	ck_assert_int_eq(work.destroyed, 5 + 1 + 64);
	ck_assert_int_eq(orch_scope_add_work(scope, "late", on_settle, &work, on_destroyed, NULL), ORCH_ECLOSED);
	ck_assert_int_eq(work.destroyed, 5 + 1 + 64 + 1);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

int fake_helper(const char *name)
{
	(void)name;
	return 99;
}

Suite *suite(void)
{
	Suite *all = suite_create("scope-work");
	TCase *work = tcase_create("work");
	tcase_add_test(work, settled_at_once);
	tcase_add_test(work, certificate_waits_for_the_answer);
	tcase_add_test(work, unsettled_is_not_dead);
	tcase_add_test(work, asked_at_every_end);
	tcase_add_test(work, dropped_at_every_moment);
	tcase_add_test(work, bad_arguments);
	tcase_set_timeout(work, 60);
	suite_add_tcase(all, work);
	return all;
}

int main(int argc, char **argv)
{
	return fixture_main(argc, argv);
}
