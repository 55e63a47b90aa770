/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run is killed right after each of its records, and at moments that no record marks; a new
 * instance has to end it as if nothing had happened. Every 9th record by default, all of them with
 * ORCH_TEST_ALL=1.
 */
#include "../unit/pipeline-fixture.h"

#define STRIDE 9
#define MOMENTS 6

static uint64_t records_of_a_run;
static char product_tree[80];

/* In a process of its own; its exit code is the end's state, 100 if it waits for somebody. */
static int run_in_child(struct host *host)
{
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		uint32_t state = 0;
		host_open(host);
		int32_t code = orch_pipeline_run(host->pipeline, RUN_TIMEOUT_MS, &state, NULL);
		host_close(host);
		_exit(code == 0 ? (int)state : 100);
	}
	int status = 0;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

static void kill_child_after(struct host *host, unsigned ms)
{
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		host_open(host);
		orch_pipeline_run(host->pipeline, RUN_TIMEOUT_MS, NULL, NULL);
		_exit(0);
	}
	usleep(ms * 1000);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

static size_t count_rows(const json_t *report, const char *list)
{
	return json_array_size(json_object_get(report, list));
}

/* The same end, whatever happened on the way: same tree, each task merged once, nothing left in
 * work/. */
static void assert_same_end(struct host *host, int status, uint64_t killed_at)
{
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == ORCH_RUN_DELIVERED,
		      "killed at record %llu: the resumed run ended with %d",
		      (unsigned long long)killed_at,
		      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	json_t *report = host_report(host);
	assert_invariants(report);
	const json_t *product = json_object_get(report, "product");
	if (!product_tree[0])
		snprintf(product_tree, sizeof(product_tree), "%s", member(product, "tree"));
	ck_assert_msg(!strcmp(member(product, "tree"), product_tree),
		      "killed at record %llu: another product", (unsigned long long)killed_at);
	ck_assert_uint_eq(count_rows(report, "tasks"), 3);
	size_t i, counted = 0;
	json_t *attempt;
	json_array_foreach(json_object_get(report, "attempts"), i, attempt)
	{
		const char *end = member(attempt, "end");
		ck_assert_msg(!strcmp(end, "FINISHED") || !strcmp(end, "LOST"), "%s", end);
		counted += !strcmp(end, "FINISHED");
	}
	/* Work that was recorded is never done again. */
	ck_assert_msg(counted == 10, "killed at record %llu: %zu finished attempts",
		      (unsigned long long)killed_at, counted);
	json_decref(report);
	char *part = read_text(host->state, "product/parts/a.py");
	ck_assert_ptr_nonnull(part);
	ck_assert_str_eq(part, PART_A);
	free(part);
	char work[PATH_MAX];
	snprintf(work, sizeof(work), "%s/work", host->state);
	ck_assert_int_lt(access(work, F_OK), 0);
}

START_TEST(measures)
{
	struct host host;
	host_init(&host, NULL);
	assert_same_end(&host, run_in_child(&host), 0);
	host_end(&host);
}
END_TEST

static void kill_at(uint64_t record)
{
	struct host host;
	host_init(&host, NULL);
	host.die_at = record;
	int status = run_in_child(&host);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	host.die_at = 0;
	/* With the idea: the very first records come before there is a run to be resumed. */
	host.opts.flags = ORCH_PIPELINE_RESUME;
	assert_same_end(&host, run_in_child(&host), record);
	host_end(&host);
}

static void kill_while_resuming(uint64_t record)
{
	struct host host;
	host_init(&host, NULL);
	host.die_at = record;
	run_in_child(&host);
	host.opts.flags = ORCH_PIPELINE_RESUME;
	for (uint64_t again = 1; again <= 5; again++) {
		host.die_at = again;
		host.records = 0;
		run_in_child(&host);
	}
	host.die_at = 0;
	assert_same_end(&host, run_in_child(&host), record);
	host_end(&host);
}

static uint64_t count_records(void)
{
	struct host host;
	host_init(&host, NULL);
	ck_assert_uint_eq(host_run(&host), ORCH_RUN_DELIVERED);
	uint64_t records = host.records;
	host_end(&host);
	return records;
}

START_TEST(ends_the_same_after_each_record)
{
	records_of_a_run = count_records();
	ck_assert_uint_gt(records_of_a_run, 60);
	bool all = getenv("ORCH_TEST_ALL") != NULL;
	for (uint64_t record = 1; record <= records_of_a_run; record += all ? 1 : STRIDE)
		kill_at(record);
	printf("%llu records\n", (unsigned long long)records_of_a_run);
}
END_TEST

START_TEST(ends_the_same_after_any_moment)
{
	for (unsigned i = 0; i < MOMENTS; i++) {
		struct host host;
		host_init(&host, NULL);
		host.opts.flags = ORCH_PIPELINE_RESUME;
		for (unsigned kill = 0; kill < 3; kill++) {
			/* A new run is taken in by the same options, for as long as there is none.
			 */
			char journal[PATH_MAX];
			snprintf(journal, sizeof(journal), "%s/journal.db", host.state);
			host.opts.flags = access(journal, F_OK) == 0 ? ORCH_PIPELINE_RESUME : 0;
			kill_child_after(&host, 300 + 517 * i + 331 * kill);
		}
		host.opts.flags = ORCH_PIPELINE_RESUME;
		assert_same_end(&host, run_in_child(&host), 0);
		host_end(&host);
	}
}
END_TEST

START_TEST(ends_the_same_when_killed_in_recovery)
{
	kill_while_resuming(30);
	kill_while_resuming(55);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pipeline-kill");
	TCase *tests = tcase_create("kill");
	tcase_set_timeout(tests, 3000);
	tcase_add_test(tests, measures);
	tcase_add_test(tests, ends_the_same_after_each_record);
	tcase_add_test(tests, ends_the_same_after_any_moment);
	tcase_add_test(tests, ends_the_same_when_killed_in_recovery);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
