/* SPDX-License-Identifier: Apache-2.0 */
/* Records in, model out: no journal, no context. */
#include <check.h>
#include <stdio.h>

#include "pipeline/fold.h"

static struct model *model;

static void setup(void)
{
	ck_assert_int_eq(model_new(&model, NULL), 0);
}

static void teardown(void)
{
	model = model_free(model);
}

static int32_t fold(const char *kind, const char *text)
{
	orch_error *error = NULL;
	int32_t code = fold_record(model, kind, kind, text, strlen(text), &error);
	if (code < 0)
		ck_assert_ptr_nonnull(strstr(orch_error_message(error), kind));
	orch_error_free(error);
	return code;
}

#define GOOD(kind, text) ck_assert_int_eq(fold(kind, text), 0)
#define CORRUPT(kind, text) ck_assert_int_eq(fold(kind, text), ORCH_ECORRUPT)

static void take_in(void)
{
	GOOD("run.instance", "{\"generation\":1,\"resumed\":false,\"time_ms\":1000}");
	GOOD("run.intake",
	     "{\"run\":\"r1\",\"idea\":\"x\",\"jobs\":2,\"max_attempts\":3,\"review\":true,\"max_"
	     "tokens\":500,"
	     "\"max_requests\":0,\"answer_timeout_ms\":-1,\"grants\":[],\"time_ms\":1001}");
	GOOD("run.base", "{\"tree\":\"t0\",\"deaths\":\"\",\"time_ms\":1002}");
}

static void plan(void)
{
	take_in();
	GOOD("seal", "{\"document\":\"plan\",\"sha256\":\"x\",\"attempt\":1,\"tasks\":[{\"id\":"
		     "\"T1\",\"title\":\"One\","
		     "\"requirements\":[\"R1\"]},{\"id\":\"T2\",\"title\":\"Two\",\"requirements\":"
		     "[\"R2\"]}],\"time_ms\":1003}");
}

static void task(const char *id, const char *state, int attempt, const char *more)
{
	char text[512];
	snprintf(text, sizeof(text),
		 "{\"task\":\"%s\",\"state\":\"%s\",\"attempt\":%d%s,\"time_ms\":1004}", id, state,
		 attempt, more);
	GOOD("task.state", text);
}

START_TEST(takes_in)
{
	ck_assert_uint_eq(model->state, 0);
	take_in();
	ck_assert_uint_eq(model->state, ORCH_RUN_INTAKE);
	ck_assert_str_eq(model->run, "r1");
	ck_assert_uint_eq(model->max_tokens, 500);
	ck_assert_int_eq(model->answer_timeout_ms, -1);
	ck_assert_str_eq(model->main_tree, "t0");
	ck_assert_int_eq(model->started_ms, 1001);
	ck_assert_uint_eq(model->records, 3);
	CORRUPT("run.intake", "{\"run\":\"r2\",\"time_ms\":1}");
	ck_assert_str_eq(model->run, "r1");
}
END_TEST

START_TEST(refuses_what_does_not_fit)
{
	plan();
	CORRUPT("run.state", "{\"state\":\"DELIVERED\",\"time_ms\":1}");
	CORRUPT("run.state", "{\"state\":\"NOWHERE\",\"time_ms\":1}");
	CORRUPT("task.state", "{\"task\":\"T9\",\"state\":\"READY\",\"attempt\":1}");
	/* What an executor says can not make it so: only VERIFYING leads to VERIFIED. */
	task("T1", "READY", 1, "");
	task("T1", "LEASED", 1, ",\"base\":\"t0\"");
	task("T1", "RUNNING", 1, "");
	CORRUPT("task.state", "{\"task\":\"T1\",\"state\":\"VERIFIED\",\"attempt\":1}");
	CORRUPT("task.state", "{\"task\":\"T1\",\"state\":\"MERGED\",\"attempt\":1}");
	task("T1", "SUBMITTED", 1, ",\"tree\":\"t1\"");
	CORRUPT("merge", "{\"task\":\"T1\",\"tree\":\"t1\",\"onto\":\"t0\"}");
	CORRUPT("seal", "{\"document\":\"plan\",\"tasks\":[]}");
	CORRUPT("seal", "{\"document\":\"diary\"}");
	CORRUPT("run.overlay", "{\"overlay\":\"FOG\",\"on\":true}");
	CORRUPT("attempt", "{\"role\":\"planner\",\"stage\":\"plan\",\"task\":\"-\",\"attempt\":1,"
			   "\"end\":\"FINISHED\"}");
	CORRUPT("task.state", "no JSON");
	CORRUPT("task.state", "[]");
	CORRUPT("task.state", "{\"task\":\"T2\",\"task\":\"T1\",\"state\":\"READY\"}");
	ck_assert_int_eq(fold_record(model, "run.state", "k", NULL, 0, NULL), ORCH_ECORRUPT);
	ck_assert_uint_eq(model->tasks[0].state, TASK_SUBMITTED);
	ck_assert_uint_eq(model->tasks[1].state, TASK_PENDING);
	/* Another's records are another's. */
	GOOD("ai.anthropic", "no JSON either");
	GOOD("notify.send", "");
}
END_TEST

START_TEST(follows_a_task)
{
	plan();
	struct model_task *one = model_find_task(model, "T1");
	task("T1", "READY", 1, "");
	task("T1", "LEASED", 1, ",\"base\":\"t0\"");
	/* The coordinator died: not counted. */
	task("T1", "READY", 2, "");
	ck_assert_uint_eq(one->rejections, 0);
	task("T1", "LEASED", 2, ",\"base\":\"t0\"");
	task("T1", "RUNNING", 2, "");
	task("T1", "SUBMITTED", 2, ",\"tree\":\"t1\"");
	ck_assert_str_eq(one->tree, "t1");
	task("T1", "VERIFYING", 2, "");
	task("T1", "REJECTED", 2, ",\"reason\":\"no\",\"evidence\":{\"reasons\":[\"no\"]}");
	ck_assert_uint_eq(one->rejections, 1);
	ck_assert_str_eq(one->reason, "no");
	ck_assert_ptr_nonnull(one->evidence);
	task("T1", "LEASED", 3, ",\"base\":\"t0\"");
	ck_assert_ptr_null(one->tree);
	ck_assert_ptr_nonnull(one->evidence);
	ck_assert_uint_eq(one->attempt, 3);
	task("T1", "RUNNING", 3, "");
	task("T1", "STALLED", 3, "");
	ck_assert_uint_eq(one->rejections, 2);
	task("T1", "LEASED", 4, ",\"base\":\"t0\"");
	task("T1", "RUNNING", 4, "");
	task("T1", "SUBMITTED", 4, ",\"tree\":\"t4\"");
	task("T1", "VERIFYING", 4, "");
	task("T1", "VERIFIED", 4, "");
	CORRUPT("merge", "{\"task\":\"T1\",\"tree\":\"t4\",\"onto\":\"elsewhere\"}");
	GOOD("merge", "{\"task\":\"T1\",\"tree\":\"t4\",\"onto\":\"t0\",\"time_ms\":1}");
	ck_assert_str_eq(model->main_tree, "t4");
	task("T1", "MERGED", 4, "");
	CORRUPT("task.state", "{\"task\":\"T1\",\"state\":\"LEASED\",\"attempt\":5}");
}
END_TEST

START_TEST(follows_attempts)
{
	take_in();
	const char *const start = "{\"id\":\"%s\",\"role\":\"planner\",\"stage\":\"specify\","
				  "\"task\":\"-\",\"attempt\":%d,"
				  "\"time_ms\":%d}";
	char text[256];
	for (int i = 1; i <= 3; i++) {
		snprintf(text, sizeof(text), start, "a", i, 1000 * i);
		GOOD("attempt", text);
	}
	snprintf(text, sizeof(text), start, "a", 2, 5000);
	CORRUPT("attempt", text);
	GOOD("death", "{\"role\":\"planner\",\"stage\":\"specify\",\"task\":\"-\",\"attempt\":2,"
		      "\"verdict\":\"DEAD\",\"end\":"
		      "\"FINISHED\",\"time_ms\":2100}");
	GOOD("attempt", "{\"role\":\"planner\",\"stage\":\"specify\",\"task\":\"-\",\"attempt\":2,"
			"\"end\":\"FINISHED\",\"out\":"
			"\"o2\",\"time_ms\":2500}");
	GOOD("judgement", "{\"role\":\"planner\",\"stage\":\"specify\",\"task\":\"-\",\"attempt\":"
			  "2,\"accepted\":false,\"evidence\":"
			  "{\"reasons\":[\"x\"]},\"time_ms\":2600}");
	const json_t *second = model_attempt(model, "planner", "specify", "-", 2);
	ck_assert(json_bool(second, "ended"));
	ck_assert_str_eq(json_text(second, "verdict"), "DEAD");
	ck_assert_str_eq(json_text(second, "out"), "o2");
	ck_assert_int_eq(json_int(second, "started_ms"), 2000);
	ck_assert_int_eq(json_int(second, "ended_ms"), 2500);
	ck_assert(!json_bool(model_attempt(model, "planner", "specify", "-", 0), "ended"));
	ck_assert_uint_eq(model_rejections(model, "planner", "specify", "-"), 1);
	ck_assert_uint_eq(model_rejections(model, "planner", "plan", "-"), 0);
	/* The seal says which of them was accepted. */
	GOOD("seal", "{\"document\":\"spec\",\"attempt\":3,\"sha256\":\"x\",\"time_ms\":3000}");
	ck_assert(json_bool(model_attempt(model, "planner", "specify", "-", 3), "accepted"));
}
END_TEST

START_TEST(knows_what_is_answered)
{
	take_in();
	ck_assert(!model_answered(model));
	GOOD("seal", "{\"document\":\"questions\",\"attempt\":1,\"questions\":[{\"id\":\"Q1\"},{"
		     "\"id\":\"Q2\"}],\"time_ms\":7}");
	ck_assert_int_eq(model->questions_ms, 7);
	GOOD("answer", "{\"answers\":{\"Q1\":{\"text\":\"a\",\"by\":\"user\"}},\"time_ms\":8}");
	ck_assert(!model_answered(model));
	GOOD("answer", "{\"answers\":{\"Q2\":{\"text\":\"b\",\"by\":\"default\"}},\"time_ms\":9}");
	ck_assert(model_answered(model));
}
END_TEST

START_TEST(counts_time_of_living_instances)
{
	GOOD("run.instance", "{\"time_ms\":1000}");
	GOOD("run.intake", "{\"run\":\"r1\",\"max_seconds\":60,\"time_ms\":1000}");
	GOOD("run.overlay",
	     "{\"overlay\":\"QUOTA_WAIT\",\"on\":true,\"resets_at_ms\":99,\"time_ms\":4000}");
	ck_assert_uint_eq(model->overlays, ORCH_OVERLAY_QUOTA_WAIT);
	ck_assert_int_eq(model->quota_until_ms, 99);
	/* A day in between is nobody's. Budgets that are given again take the place of the old
	 * ones. */
	GOOD("run.instance", "{\"max_seconds\":90,\"time_ms\":90000000}");
	ck_assert_int_eq(model->active_ms, 3000);
	ck_assert_uint_eq(model->max_seconds, 90);
	GOOD("run.overlay", "{\"overlay\":\"QUOTA_WAIT\",\"on\":false,\"time_ms\":90000500}");
	ck_assert_uint_eq(model->overlays, 0);
	GOOD("run.instance", "{\"time_ms\":91000000}");
	ck_assert_int_eq(model->active_ms, 3500);
}
END_TEST

/* Each state's name leads back to it, and nothing leaves an end. */
START_TEST(has_closed_tables)
{
	for (uint32_t state = TASK_PENDING; state <= TASK_BLOCKED; state++) {
		ck_assert_uint_eq(task_state_by_name(task_state_name(state)), state);
		ck_assert(!task_may_change(TASK_MERGED, state));
		ck_assert(!task_may_change(TASK_BLOCKED, state));
		ck_assert_uint_eq(task_may_change(state, TASK_VERIFIED), state == TASK_VERIFYING);
		ck_assert_uint_eq(task_may_change(state, TASK_MERGED), state == TASK_VERIFIED);
	}
	for (uint32_t state = ORCH_RUN_INTAKE; state <= ORCH_RUN_ABORTED; state++) {
		ck_assert_uint_eq(run_state_by_name(orch_run_state_name(state)), state);
		ck_assert(!run_may_change(ORCH_RUN_DELIVERED, state));
		ck_assert_uint_eq(run_may_change(state, ORCH_RUN_DELIVERED),
				  state == ORCH_RUN_ACCEPTING);
		ck_assert(run_is_over(state) || run_may_change(state, ORCH_RUN_ABORTED));
	}
	ck_assert_str_eq(task_state_name(99), "?");
	ck_assert_str_eq(orch_run_state_name(99), "?");
	ck_assert_uint_eq(task_state_by_name("DONE"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fold");
	TCase *tests = tcase_create("fold");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, takes_in);
	tcase_add_test(tests, refuses_what_does_not_fit);
	tcase_add_test(tests, follows_a_task);
	tcase_add_test(tests, follows_attempts);
	tcase_add_test(tests, knows_what_is_answered);
	tcase_add_test(tests, counts_time_of_living_instances);
	tcase_add_test(tests, has_closed_tables);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
