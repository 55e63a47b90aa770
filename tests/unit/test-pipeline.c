/* SPDX-License-Identifier: Apache-2.0 */
/* Documents, questions, ends and bad input of runs with roles played by functions; see
 * pipeline-fixture.h. */
#include "pipeline-fixture.h"

/* A job that is finished later, or never. */
static orch_job *waiting;

/* --- documents ------------------------------------------------------------------------------- */

static const struct answer bad_spec[] = {
	{"planner-specify.1", "out/spec.xml", "<spec xmlns=\"urn:orch:spec:1\">\n<oops/></spec>\n"},
	{NULL, NULL, NULL},
};
static const struct answer no_checks_file[] = {
	{"checker-check.1", "out/checks.xml", CHECKS},
	{NULL, NULL, NULL},
};
static const struct answer idle_check[] = {
	{"checker-check.1", "out/checks.xml", CHECKS},
	{"checker-check.1", "out/checks/c1.py", CHECK("/health", "healthy")},
	{"checker-check.1", "out/checks/c2.py", "print('1..1')\nprint('ok 1')\n"},
	{"checker-check.1", "out/checks/secret.py", CHECK("/a?n=3", "AAA")},
	{"checker-check.1", "out/checks/c3.py", CHECK("/b", "B")},
	{NULL, NULL, NULL},
};
static const struct answer stub_check[] = {
	{"checker-check.1", "out/checks.xml", CHECKS},
	{"checker-check.1", "out/checks/c1.py", CHECK("/health", "healthy")},
	{"checker-check.1", "out/checks/c2.py", CHECK("/a", "ok")},
	{"checker-check.1", "out/checks/secret.py", CHECK("/a?n=3", "AAA")},
	{"checker-check.1", "out/checks/c3.py", CHECK("/b", "B")},
	{NULL, NULL, NULL},
};
static const struct answer bad_plan[] = {
	{"planner-plan.1", "out/plan.xml", PLAN_HEAD PLAN_T2 PLAN_TAIL},
	{NULL, NULL, NULL},
};
static const struct answer operation_plan[] = {
	{"planner-plan.1", "out/plan.xml",
	 PLAN_HEAD PLAN_T2
	 "  <task id=\"T3\" title=\"B\"><description>B.</description><requirement "
	 "ref=\"R3\"/><after "
	 "ref=\"T1\"/>"
	 "<write path=\"parts/b.py\"/><operation type=\"notify.send\" "
	 "key=\"x\"/></task>\n" PLAN_TAIL},
	{NULL, NULL, NULL},
};
static const struct {
	const struct answer *rows;
	const char *second, *evidence;
} sent_back[] = {
	{bad_spec, "planner-specify--.2", "spec.xml:"},
	{no_checks_file, "checker-check--.2", "checks/c1.py"},
	{idle_check, "checker-check--.2", "check C2 of R2 passes against an empty product"},
	{stub_check, "checker-check--.2", "check C2 of R2 passes against a stub"},
	{bad_plan, "planner-plan--.2", "R3"},
	{operation_plan, "planner-plan--.2", "notify.send"},
};

START_TEST(sends_back)
{
	struct host host;
	host_init(&host, sent_back[_i].rows);
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_DELIVERED);
	const char *packet = json_string_value(json_object_get(host.packets, sent_back[_i].second));
	ck_assert_ptr_nonnull(packet);
	ck_assert_msg(strstr(packet, sent_back[_i].evidence) != NULL, "%s", packet);
	host_end(&host);
}
END_TEST

START_TEST(blocks_a_stage)
{
	static const struct answer rows[] = {
		{"planner-specify", "out/spec.xml", "this is no XML"},
		{NULL, NULL, NULL},
	};
	struct host host;
	host_init(&host, rows);
	host.opts.max_attempts = 2;
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_ABORTED);
	json_t *report = host_report(&host);
	ck_assert_ptr_nonnull(
		strstr(member(report, "reason"), "specify is BLOCKED after 2 attempts: spec.xml"));
	ck_assert_uint_eq(json_array_size(json_object_get(report, "attempts")), 3);
	json_decref(report);
	host_end(&host);
}
END_TEST

/* --- questions ------------------------------------------------------------------------------- */

#define QUESTION(id, kind)                                                                         \
	"{\"id\":\"" id "\",\"text\":\"" id "?\",\"recommended\":\"yes " id                        \
	"\",\"options\":[],\"kind\":\"" kind "\"}"

static const struct answer two_questions[] = {
	{"planner-clarify", "out/questions.json",
	 "{\"questions\":[" QUESTION("Q1", "text") "," QUESTION("Q2", "text") "]}"},
	{NULL, NULL, NULL},
};
static const struct answer money_question[] = {
	{"planner-clarify", "out/questions.json",
	 "{\"questions\":[" QUESTION("Q1", "text") "," QUESTION("Q2", "money") "]}"},
	{NULL, NULL, NULL},
};

static void assert_answer(const struct host *host, const char *id, const char *text, const char *by)
{
	json_t *report = host_report(host);
	const json_t *row = row_of(report, "questions", "id", id);
	ck_assert_str_eq(member(row, "answer"), text);
	ck_assert_str_eq(member(row, "by"), by);
	json_decref(report);
}

START_TEST(takes_recommendations)
{
	struct host host;
	host_init(&host, two_questions);
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_DELIVERED);
	assert_answer(&host, "Q2", "yes Q2", "default");
	host_end(&host);
}
END_TEST

START_TEST(waits_for_a_person)
{
	struct host host;
	host_init(&host, two_questions);
	host.opts.answer_timeout_ms = -1;
	host_open(&host);
	REFUSED(ORCH_ENEEDHUMAN, "questions.json",
		orch_pipeline_run(host.pipeline, RUN_TIMEOUT_MS, NULL, e));
	ck_assert_uint_eq(orch_pipeline_overlays(host.pipeline), ORCH_OVERLAY_NEEDS_HUMAN);
	char *questions = read_text(host.state, "questions.json");
	ck_assert_ptr_nonnull(strstr(questions, "\"Q1\""));
	free(questions);
	host_close(&host);

	/* A later instance goes on with the answers. */
	const char *answers = "{\"answers\":{\"Q1\":\"no\"}}",
		   *stranger = "{\"answers\":{\"Q9\":\"x\"}}";
	host.opts.flags = ORCH_PIPELINE_RESUME;
	host_open(&host);
	REFUSED(ORCH_EPARSE, "answers.json:1",
		orch_pipeline_answer(host.pipeline, "{\"answers\"", 10, e));
	REFUSED(ORCH_ENOENT, "Q9",
		orch_pipeline_answer(host.pipeline, stranger, strlen(stranger), e));
	OK(orch_pipeline_answer(host.pipeline, answers, strlen(answers), e));
	uint32_t state = 0;
	OK(orch_pipeline_run(host.pipeline, RUN_TIMEOUT_MS, &state, e));
	ck_assert_uint_eq(state, ORCH_RUN_DELIVERED);
	assert_answer(&host, "Q1", "no", "user");
	assert_answer(&host, "Q2", "yes Q2", "default");
	REFUSED(ORCH_ESTATE, "already",
		orch_pipeline_answer(host.pipeline, answers, strlen(answers), e));
	host_end(&host);
}
END_TEST

START_TEST(never_decides_about_money)
{
	struct host host;
	host_init(&host, money_question);
	host_open(&host);
	OK(orch_pipeline_accept_recommended(host.pipeline, e));
	REFUSED(ORCH_ENEEDHUMAN, "answers",
		orch_pipeline_run(host.pipeline, RUN_TIMEOUT_MS, NULL, e));
	const char *answers = "{\"answers\":{\"Q2\":\"10 euros\"}}";
	OK(orch_pipeline_answer(host.pipeline, answers, strlen(answers), e));
	uint32_t state = 0;
	OK(orch_pipeline_run(host.pipeline, RUN_TIMEOUT_MS, &state, e));
	ck_assert_uint_eq(state, ORCH_RUN_DELIVERED);
	assert_answer(&host, "Q1", "yes Q1", "user");
	assert_answer(&host, "Q2", "10 euros", "user");
	host_end(&host);
}
END_TEST

START_TEST(keeps_early_answers)
{
	struct host host;
	const char *answers = "{\"answers\":{\"Q2\":\"perhaps\",\"Q7\":\"of another idea\"}}";
	host_init(&host, two_questions);
	host.opts.answer_timeout_ms = -1;
	host_open(&host);
	OK(orch_pipeline_answer(host.pipeline, answers, strlen(answers), e));
	uint32_t state = 0;
	OK(orch_pipeline_run(host.pipeline, RUN_TIMEOUT_MS, &state, e));
	ck_assert_uint_eq(state, ORCH_RUN_DELIVERED);
	assert_answer(&host, "Q2", "perhaps", "user");
	assert_answer(&host, "Q1", "yes Q1", "default");
	host_end(&host);
}
END_TEST

/* --- ends ------------------------------------------------------------------------------------ */

static void hold_t1(struct host *host, orch_job *job, const char *place)
{
	if (!strcmp(place, "executor-execute-T1.1")) {
		waiting = orch_job_ref(job);
		OK(orch_pipeline_stop(host->pipeline, "enough", e));
	} else {
		OK(orch_job_finish(job, 0, "", e));
	}
}

START_TEST(stops)
{
	struct host host;
	host_init(&host, NULL);
	host.on_job = hold_t1;
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_ABORTED);
	waiting = orch_job_unref(waiting);
	json_t *report = host_report(&host);
	ck_assert_str_eq(member(report, "reason"), "enough");
	const json_t *attempt = row_of(report, "attempts", "task", "T1");
	ck_assert_str_eq(member(attempt, "end"), "STOPPED");
	ck_assert_str_eq(member(attempt, "verdict"), "DEAD");
	json_decref(report);
	host_close(&host);

	/* An ended run says its end again, and makes its report again if that is gone. */
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/report", host.state);
	remove_all(path);
	host.opts.flags = ORCH_PIPELINE_RESUME;
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_ABORTED);
	ck_assert_int_eq(access(orch_pipeline_report_path(host.pipeline), R_OK), 0);
	host_end(&host);
}
END_TEST

static void never_finish(struct host *host, orch_job *job, const char *place)
{
	(void)host;
	if (!strncmp(place, "executor-execute-T", 18) && !waiting)
		waiting = orch_job_ref(job);
	else
		OK(orch_job_finish(job, 0, "", e));
}

/* The host lets go of a job later: it must not be waited for until its time is over. */
START_TEST(a_dropped_job_is_a_failed_attempt)
{
	struct host host;
	host_init(&host, NULL);
	host.on_job = never_finish;
	host_open(&host);
	OK(orch_pipeline_start(host.pipeline, e));
	while (!waiting)
		orch_ctx_run(host.ctx, 20, NULL);
	waiting = orch_job_unref(waiting);
	host.on_job = NULL;
	uint32_t state = 0;
	OK(orch_pipeline_run(host.pipeline, 60000, &state, e));
	ck_assert_uint_eq(state, ORCH_RUN_DELIVERED);
	ck_assert_ptr_nonnull(json_object_get(host.packets, "executor-execute-T1.2"));
	host_end(&host);
}
END_TEST

START_TEST(runs_out_of_time)
{
	struct host host;
	host_init(&host, NULL);
	host.on_job = never_finish;
	host.opts.max_seconds = 6;
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_PARTIAL);
	waiting = orch_job_unref(waiting);
	json_t *report = host_report(&host);
	ck_assert_ptr_nonnull(strstr(member(report, "reason"), "time over"));
	json_decref(report);
	host_end(&host);
}
END_TEST

/* The last reference is dropped with an attempt, a sandbox and a verification under way. */
START_TEST(is_dropped_at_any_moment)
{
	for (uint64_t steps = 1; steps < 60; steps += 7) {
		struct host host;
		host_init(&host, NULL);
		host_open(&host);
		OK(orch_pipeline_start(host.pipeline, e));
		while (host.records < steps * 2 && !find_event(&host, "end", NULL, NULL))
			orch_ctx_run(host.ctx, 5, NULL);
		host_end(&host);
		/* Neither the context nor its helper outlives its last handle, though nobody runs it. */
		ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
		ck_assert_int_eq(errno, ECHILD);
	}
}
END_TEST

/* --- bad input ------------------------------------------------------------------------------- */

START_TEST(refuses_bad_input)
{
	struct host host;
	orch_pipeline *pipeline = NULL;
	host_init(&host, NULL);
	host_open(&host);
	REFUSED(ORCH_EINVAL, "does not exist",
		orch_pipeline_set_executor(host.pipeline, 9, (orch_executor *)(uintptr_t)1, e));
	host_close(&host);
	struct orch_ctx_opts ctx_opts;
	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	OK(orch_ctx_new(&ctx_opts, &host.ctx, e));

	struct orch_pipeline_opts opts = host.opts;
	opts.idea = "  \n";
	REFUSED(ORCH_EINVAL, "idea", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	opts = host.opts;
	opts.idea = "\xff\xfe";
	REFUSED(ORCH_EINVAL, "UTF-8", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	opts = host.opts;
	opts.state_dir = "/nowhere/at/all";
	REFUSED(ORCH_ENOENT, "parent", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	opts.state_dir = "/proc/orch-state";
	ck_assert_int_lt(orch_pipeline_new(host.ctx, &opts, &pipeline, NULL), 0);
	opts = host.opts;
	opts.repo_dir = "/nowhere/at/all";
	REFUSED(ORCH_ENOENT, "repository", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	opts = host.opts;
	opts.schema_dir = "/tmp";
	REFUSED(ORCH_ENOENT, "schema_dir", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	opts = host.opts;
	opts.flags = ORCH_PIPELINE_RESUME;
	opts.idea = NULL;
	char empty[PATH_MAX];
	snprintf(empty, sizeof(empty), "%s/none", host.folder);
	opts.state_dir = empty;
	REFUSED(ORCH_ENOENT, "to be resumed", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	ck_assert_int_lt(access(empty, F_OK), 0);
	write_text(host.folder, "none/product/keep", "mine");
	opts = host.opts;
	opts.state_dir = empty;
	REFUSED(ORCH_EEXIST, "not a state folder",
		orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	ck_assert_ptr_null(pipeline);
	char *status = NULL;
	REFUSED(ORCH_ENOENT, "no run", orch_pipeline_status_of(empty, &status, e));
	host_end(&host);
}
END_TEST

START_TEST(refuses_a_second_run)
{
	struct host host;
	char *status = NULL;
	orch_pipeline *pipeline = NULL;
	host_init(&host, two_questions);
	host.opts.answer_timeout_ms = -1;
	host_open(&host);
	REFUSED(ORCH_ENEEDHUMAN, "", orch_pipeline_run(host.pipeline, RUN_TIMEOUT_MS, NULL, e));
	REFUSED(ORCH_ELOCKED, "", orch_pipeline_status_of(host.state, &status, e));
	OK(orch_pipeline_status(host.pipeline, &status, e));
	ck_assert_ptr_nonnull(strstr(status, "\"NEEDS_HUMAN\""));
	status = orch_string_free(status);
	host_close(&host);
	struct orch_ctx_opts ctx_opts;
	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	OK(orch_ctx_new(&ctx_opts, &host.ctx, e));
	REFUSED(ORCH_EEXIST, "resume it", orch_pipeline_new(host.ctx, &host.opts, &pipeline, e));
	OK(orch_pipeline_status_of(host.state, &status, e));
	json_t *json = json_loads(status, 0, NULL);
	ck_assert_str_eq(member(json, "state"), "CLARIFY");
	ck_assert_uint_eq(json_array_size(json_object_get(json, "questions")), 2);
	json_decref(json);
	orch_string_free(status);
	host_end(&host);
}
END_TEST

/* A sealed document that somebody changed is never judged by. */
static void count_destroy(void *userdata)
{
	++*(unsigned *)userdata;
}

START_TEST(destroys_once)
{
	struct host host;
	unsigned destroyed = 0;
	struct orch_pipeline_opts opts;
	orch_pipeline *pipeline = NULL;
	host_init(&host, NULL);
	host_open(&host);
	orch_pipeline_opts_init(&opts, sizeof(opts));
	opts.on_record_userdata = &destroyed;
	opts.on_record_destroy = count_destroy;
	/* Refused before, at, and after the journal was opened. */
	REFUSED(ORCH_EINVAL, "state_dir", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	ck_assert_uint_eq(destroyed, 1);
	opts.state_dir = host.state;
	opts.idea = "Another.";
	REFUSED(ORCH_ELOCKED, "", orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	ck_assert_uint_eq(destroyed, 2);
	char other[PATH_MAX];
	snprintf(other, sizeof(other), "%s/other", host.folder);
	opts.state_dir = other;
	opts.size = sizeof(opts);
	REFUSED(ORCH_EINVAL, "context is NULL", orch_pipeline_new(NULL, &opts, &pipeline, e));
	ck_assert_uint_eq(destroyed, 3);
	OK(orch_pipeline_new(host.ctx, &opts, &pipeline, e));
	ck_assert_uint_eq(destroyed, 3);
	orch_pipeline_unref(pipeline);
	ck_assert_uint_eq(destroyed, 4);
	host_close(&host);
	host_end(&host);
	ck_assert_uint_eq(destroyed, 4);
}
END_TEST

START_TEST(notices_a_broken_seal)
{
	struct host host;
	host_init(&host, NULL);
	host.on_job = never_finish;
	host_open(&host);
	OK(orch_pipeline_start(host.pipeline, e));
	while (!waiting)
		orch_ctx_run(host.ctx, 20, NULL);
	host_close(&host);
	waiting = orch_job_unref(waiting);
	char sealed[PATH_MAX];
	snprintf(sealed, sizeof(sealed), "%s/sealed", host.state);
	write_text(sealed, "checks/c2.py", "print('1..1')\nprint('ok 1')\n");
	host.opts.flags = ORCH_PIPELINE_RESUME;
	host.on_job = NULL;
	host_open(&host);
	REFUSED(ORCH_ECORRUPT, "checks/c2.py was changed", orch_pipeline_start(host.pipeline, e));
	host_close(&host);
	write_text(sealed, "checks/c2.py", CHECK("/a", "A"));
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_DELIVERED);
	host_end(&host);
}
END_TEST

/* A case for each test, so that CK_RUN_CASE can pick one. */
static void add(Suite *all, const char *name, const TTest *test, size_t times)
{
	TCase *one = tcase_create(name);
	tcase_set_timeout(one, 150);
	tcase_add_loop_test(one, test, 0, (int)times);
	suite_add_tcase(all, one);
}

static Suite *suite(void)
{
	Suite *all = suite_create("pipeline");
	add(all, "sends_back", sends_back, sizeof(sent_back) / sizeof(sent_back[0]));
	add(all, "blocks_a_stage", blocks_a_stage, 1);
	add(all, "takes_recommendations", takes_recommendations, 1);
	add(all, "waits_for_a_person", waits_for_a_person, 1);
	add(all, "never_decides_about_money", never_decides_about_money, 1);
	add(all, "keeps_early_answers", keeps_early_answers, 1);
	add(all, "stops", stops, 1);
	add(all, "a_dropped_job_is_a_failed_attempt", a_dropped_job_is_a_failed_attempt, 1);
	add(all, "runs_out_of_time", runs_out_of_time, 1);
	add(all, "is_dropped_at_any_moment", is_dropped_at_any_moment, 1);
	add(all, "refuses_bad_input", refuses_bad_input, 1);
	add(all, "refuses_a_second_run", refuses_a_second_run, 1);
	add(all, "destroys_once", destroys_once, 1);
	add(all, "notices_a_broken_seal", notices_a_broken_seal, 1);
	return all;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
