/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and checks are files in tests/unit/verify. The judge of what is left alive is the host's
 * process table, not a certificate.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "pipeline/verify-private.h"

#define UNPRIVILEGED_ENV "ORCH_TEST_UNPRIVILEGED"
#define RUN_TIMEOUT_MS 60000

/* --- a place to verify in ------------------------------------------------------------------ */

static char root[64];
static orch_ctx *ctx;
static char *trees, *scratch, *sealed;

static char *path_of(const char *format, const char *name)
{
	char *path = orch_strdup_printf(format, name);
	ck_assert_ptr_nonnull(path);
	return path;
}

static const char *source_root(void)
{
	const char *folder = getenv("ORCH_SOURCE_ROOT");
	ck_assert_msg(folder != NULL, "ORCH_SOURCE_ROOT is not set: run this by meson test");
	return folder;
}

static void setup(void)
{
	sealed = path_of("%s/tests/unit/verify/checks", source_root());
	snprintf(root, sizeof(root), "/tmp/orch-verify-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	trees = path_of("%s/trees", root);
	scratch = path_of("%s/scratch", root);
	ck_assert_int_eq(mkdir(trees, 0755), 0);
	orch_error *error = NULL;
	ck_assert_msg(orch_ctx_new(NULL, &ctx, &error) == 0, "%s", orch_error_message(error));
}

static void teardown(void)
{
	orch_ctx_unref(ctx);
	tree_remove(root, NULL);
	free(trees), free(scratch), free(sealed);
}

static void import_product(const char *name, char hash[TREE_HASH_SIZE])
{
	_cleanup_free_ char *products = path_of("%s/tests/unit/verify/products", source_root());
	_cleanup_free_ char *product = orch_strdup_printf("%s/%s", products, name);
	orch_error *error = NULL;
	ck_assert_msg(tree_import(product, trees, NULL, hash, &error) == 0, "%s",
		      orch_error_message(error));
}

/* What a callback was given, kept. */
struct outcome {
	uint32_t calls;
	orch_error *error;
	char tree_hash[TREE_HASH_SIZE];
	struct check_result results[16];
	size_t count;
	bool all_passed;
	uint32_t deaths_not_dead;
	int64_t ms;
};

static char *copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

static void on_verified(void *userdata, const struct verify_result *result, const orch_error *error)
{
	struct outcome *outcome = userdata;
	outcome->calls++;
	outcome->error = orch_error_copy(error);
	if (result) {
		memcpy(outcome->tree_hash, result->tree_hash, TREE_HASH_SIZE);
		outcome->count = result->count;
		outcome->all_passed = result->all_passed;
		outcome->deaths_not_dead = result->deaths_not_dead;
		for (size_t i = 0; i < result->count; i++) {
			outcome->results[i] = result->results[i];
			outcome->results[i].check_id = copy(result->results[i].check_id);
			outcome->results[i].detail = copy(result->results[i].detail);
			outcome->results[i].check_death = copy(result->results[i].check_death);
			outcome->results[i].product_death = copy(result->results[i].product_death);
		}
	}
	orch_ctx_quit(ctx);
}

static void outcome_free(struct outcome *outcome)
{
	for (size_t i = 0; i < outcome->count; i++) {
		free(outcome->results[i].check_id), free(outcome->results[i].detail);
		free(outcome->results[i].check_death), free(outcome->results[i].product_death);
	}
	orch_error_free(outcome->error);
}

static char *server_start[] = {"python3", "server.py", NULL};
static char *tool_start[] = {"python3", "tool.py", NULL};
static struct spec server_spec = {
    .name = "test", .product_kind = PRODUCT_HTTP, .start = server_start};
static struct spec tool_spec = {.name = "test", .product_kind = PRODUCT_CLI, .start = tool_start};

static struct check check_of(char *file)
{
	return (struct check){.id = file, .requirement = "R1", .file = file, .timeout_s = 20};
}

static int32_t start(const struct verify_opts *given, struct outcome *outcome,
		     struct verify **ret_verify, orch_error **reterr)
{
	struct verify_opts opts = *given;
	opts.trees_dir = trees;
	opts.sealed_dir = sealed;
	opts.work_dir = scratch;
	if (!opts.spec)
		opts.spec = &server_spec;
	return verify_start(ctx, &opts, on_verified, outcome, ret_verify, reterr);
}

static void verify_with(const struct verify_opts *opts, struct outcome *outcome)
{
	struct verify *verify = NULL;
	orch_error *error = NULL;
	int64_t begin = orch_monotonic_us();
	memset(outcome, 0, sizeof(*outcome));
	ck_assert_msg(start(opts, outcome, &verify, &error) == 0, "%s", orch_error_message(error));
	ck_assert_uint_eq(outcome->calls, 0); /* never inside the call */
	ck_assert_msg(orch_ctx_run(ctx, RUN_TIMEOUT_MS, &error) == 0, "%s",
		      orch_error_message(error));
	outcome->ms = (orch_monotonic_us() - begin) / 1000;
	verify_free(verify);
	ck_assert_uint_eq(outcome->calls, 1);
	ck_assert_int_ne(access(scratch, F_OK), 0);
	for (size_t i = 0; i < outcome->count; i++)
		ck_assert_msg(outcome->results[i].verdict != VERDICT_ERROR, "%s: %s",
			      outcome->results[i].check_id, outcome->results[i].detail);
}

static void verify_one(const char *product, char *file, struct outcome *outcome)
{
	char hash[TREE_HASH_SIZE];
	import_product(product, hash);
	struct check check = check_of(file);
	struct checks checks = {&check, 1};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks, .start_timeout_ms = 5000};
	verify_with(&opts, outcome);
	ck_assert_ptr_null(outcome->error);
	ck_assert_uint_eq(outcome->count, 1);
	ck_assert_str_eq(outcome->results[0].check_id, file);
	ck_assert_str_eq(outcome->tree_hash, hash);
}

static void expect_verdict(const struct outcome *outcome, size_t index, uint32_t verdict)
{
	const struct check_result *result = &outcome->results[index];
	ck_assert_msg(result->verdict == verdict, "%s: verdict %u instead of %u: %s",
		      result->check_id, result->verdict, verdict, result->detail);
}

static void expect_detail(const struct outcome *outcome, const char *words)
{
	ck_assert_msg(strstr(outcome->results[0].detail, words) != NULL, "no \"%s\" in: %s", words,
		      outcome->results[0].detail);
}

static pid_t parent_of(pid_t pid)
{
	char path[64], line[512] = {0};
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof(line) - 1);
	if (fd >= 0)
		close(fd);
	const char *name_end = length > 0 ? strrchr(line, ')') : NULL;
	int parent = 0;
	char state;
	return name_end && sscanf(name_end + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

/* By the host's process table: nothing in a PID namespace can leave the line of descent from the
 * helper. */
static bool is_ours(pid_t pid)
{
	for (int depth = 0; depth < 32 && pid > 1; depth++, pid = parent_of(pid))
		if (pid == getpid())
			return true;
	return false;
}

static bool has_argument(const char *line, size_t length, const char *pattern)
{
	for (const char *word = line; word < line + length; word += strlen(word) + 1)
		if (fnmatch(pattern, word, FNM_PATHNAME) == 0)
			return true;
	return false;
}

/* How many processes that come from this one have an argument that matches `pattern` as a path: the
 * folder that this program itself was started from may have any name. */
static unsigned alive_with(const char *pattern)
{
	unsigned count = 0;
	DIR *processes = opendir("/proc");
	ck_assert_ptr_nonnull(processes);
	for (struct dirent *entry; (entry = readdir(processes));) {
		char path[300], line[4096] = {0};
		snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof(line) - 1);
		if (length > 0 && has_argument(line, (size_t)length, pattern) &&
		    is_ours(atoi(entry->d_name)))
			count++;
		if (fd >= 0)
			close(fd);
	}
	closedir(processes);
	return count;
}

/* --- honest and worthless ------------------------------------------------------------------ */

START_TEST(honest_product_passes)
{
	struct outcome outcome;
	verify_one("shelf", "honest.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_PASS);
	ck_assert(outcome.all_passed);
	ck_assert_uint_eq(outcome.results[0].passed, 3);
	ck_assert_uint_eq(outcome.results[0].failed, 0);
	ck_assert_uint_eq(outcome.deaths_not_dead, 0);
	ck_assert_ptr_nonnull(strstr(outcome.results[0].check_death, "DEAD"));
	ck_assert_ptr_nonnull(strstr(outcome.results[0].product_death, "DEAD"));
	ck_assert_str_eq(outcome.results[0].detail, "");
	if (geteuid() == 0) {
		ck_assert_uint_ne(outcome.results[0].check_uid, outcome.results[0].product_uid);
		ck_assert_uint_ne(outcome.results[0].check_uid, 0);
		ck_assert_uint_ne(outcome.results[0].product_uid, 0);
	}
	outcome_free(&outcome);
}
END_TEST

START_TEST(restart_keeps_data_or_fails)
{
	static const char *const products[] = {"shelf", "memory"};
	static const uint32_t verdicts[] = {VERDICT_PASS, VERDICT_FAIL};
	for (size_t i = 0; i < 2; i++) {
		char hash[TREE_HASH_SIZE];
		import_product(products[i], hash);
		struct check check = check_of("restart.py");
		check.restart = true;
		struct checks checks = {&check, 1};
		struct verify_opts opts = {.tree_hash = hash, .checks = &checks};
		struct outcome outcome;
		verify_with(&opts, &outcome);
		expect_verdict(&outcome, 0, verdicts[i]);
		/* One certificate for each life. */
		ck_assert_ptr_nonnull(
		    strstr(outcome.results[0].product_death, "before the restart"));
		ck_assert_ptr_nonnull(
		    strstr(outcome.results[0].product_death, "after the restart"));
		ck_assert_uint_eq(outcome.results[0].passed, i == 0 ? 2 : 1);
		if (i == 1)
			expect_detail(&outcome, "after the restart");
		outcome_free(&outcome);
	}
}
END_TEST

START_TEST(check_is_alone)
{
	struct outcome outcome;
	setenv("ORCH_TEST_OF_THE_HOST", "1", 1);
	verify_one("shelf", "alone.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_PASS);
	ck_assert_uint_eq(outcome.results[0].passed, 10);
	outcome_free(&outcome);
}
END_TEST

START_TEST(output_is_read_to_its_end)
{
	char hash[TREE_HASH_SIZE];
	import_product("shelf", hash);
	struct check list[8];
	for (size_t i = 0; i < 8; i++)
		list[i] = check_of("long.py");
	struct checks checks = {list, 8};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks};
	struct outcome outcome;
	verify_with(&opts, &outcome);
	for (size_t i = 0; i < 8; i++) {
		expect_verdict(&outcome, i, VERDICT_PASS);
		ck_assert_uint_eq(outcome.results[i].passed, 2);
	}
	outcome_free(&outcome);
}
END_TEST

START_TEST(stub_exposes_worthless_checks)
{
	struct check list[] = {check_of("honest.py"), check_of("worthless.py")};
	struct checks checks = {list, 2};
	struct verify_opts opts = {.stub = true, .checks = &checks};
	struct outcome outcome;
	verify_with(&opts, &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	expect_verdict(&outcome, 1, VERDICT_PASS);
	ck_assert(!outcome.all_passed);
	ck_assert_ptr_null(outcome.results[0].product_death);
	outcome_free(&outcome);
}
END_TEST

START_TEST(checks_fail_on_the_empty_tree)
{
	struct check list[] = {check_of("honest.py"), check_of("worthless.py")};
	struct checks checks = {list, 2};
	struct verify_opts opts = {.tree_hash = tree_empty_hash, .checks = &checks};
	struct outcome outcome;
	verify_with(&opts, &outcome);
	ck_assert_str_eq(outcome.tree_hash, tree_empty_hash);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	expect_verdict(&outcome, 1, VERDICT_FAIL);
	expect_detail(&outcome, "product did not start: exit 2");
	outcome_free(&outcome);
}
END_TEST

/* --- liars --------------------------------------------------------------------------------- */

START_TEST(liar_gains_nothing)
{
	struct outcome outcome;
	/* Everything it prints, writes and forges says success: what is counted is the check's. */
	verify_one("liar", "honest.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	ck_assert_uint_eq(outcome.results[0].passed, 0);
	ck_assert_uint_eq(outcome.results[0].failed, 3);
	outcome_free(&outcome);
	/* Each act against the check fails, while the same act on what is its own works. */
	verify_one("liar", "tries.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_PASS);
	ck_assert_uint_eq(outcome.results[0].passed, 12);
	outcome_free(&outcome);
	/* A careless check that prints what it gets passes an honest product, and no forger. */
	verify_one("liar", "prints.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	outcome_free(&outcome);
	verify_one("shelf", "prints.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_PASS);
	outcome_free(&outcome);
}
END_TEST

struct bad_check {
	char *file;
	uint32_t verdict;
	const char *detail;
};

static const struct bad_check bad_checks[] = {
    {"zero.py", VERDICT_FAIL, "nothing was tested"},
    {"none-planned.py", VERDICT_FAIL, "1..0"},
    {"no-plan.py", VERDICT_FAIL, "no plan"},
    {"too-few.py", VERDICT_FAIL, "fewer points"},
    {"exit-1.py", VERDICT_FAIL, "exit code is 1"},
    {"killed.py", VERDICT_FAIL, "signal"},
    {"skips.py", VERDICT_FAIL, "1 of 1 points"},
    {"sleeps.py", VERDICT_TIMEOUT, "not done after 1 s"},
    {"flood.py", VERDICT_FAIL, "256 KiB"},
    {"daemon.py", VERDICT_FAIL, "nothing was tested"},
};
#define BAD_CHECKS (sizeof(bad_checks) / sizeof(bad_checks[0]))

START_TEST(bad_checks_fail_and_are_dead)
{
	struct check list[BAD_CHECKS];
	struct outcome outcome;
	for (size_t i = 0; i < BAD_CHECKS; i++) {
		list[i] = check_of(bad_checks[i].file);
		if (bad_checks[i].verdict == VERDICT_TIMEOUT)
			list[i].timeout_s = 1;
	}
	char hash[TREE_HASH_SIZE];
	import_product("shelf", hash);
	struct checks checks = {list, BAD_CHECKS};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks, .parallel = 4};
	verify_with(&opts, &outcome);
	ck_assert_uint_eq(outcome.count, BAD_CHECKS);
	for (size_t i = 0; i < BAD_CHECKS; i++) {
		expect_verdict(&outcome, i, bad_checks[i].verdict);
		ck_assert_str_eq(outcome.results[i].check_id, bad_checks[i].file);
		ck_assert_msg(strstr(outcome.results[i].detail, bad_checks[i].detail) != NULL,
			      "%s: %s", bad_checks[i].file, outcome.results[i].detail);
		ck_assert_ptr_nonnull(strstr(outcome.results[i].check_death, "DEAD"));
	}
	ck_assert_uint_eq(outcome.deaths_not_dead, 0);
	ck_assert(!outcome.all_passed);
	ck_assert_uint_eq(alive_with("orch-test-daemon"), 0);
	ck_assert_uint_eq(alive_with("/check/*.py"), 0);
	outcome_free(&outcome);
}
END_TEST

/* --- products in trouble ------------------------------------------------------------------- */

START_TEST(product_that_hangs_at_its_start)
{
	char hash[TREE_HASH_SIZE];
	struct check check = check_of("honest.py");
	struct checks checks = {&check, 1};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks, .start_timeout_ms = 700};
	struct outcome outcome;
	import_product("hangs", hash);
	verify_with(&opts, &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	expect_detail(
	    &outcome,
	    "product did not start: nothing accepted connections on 127.0.0.1:8000 within 700 ms");
	expect_detail(&outcome, "still thinking");
	ck_assert_int_lt(outcome.ms, 10000);
	ck_assert_uint_eq(outcome.deaths_not_dead, 0);
	outcome_free(&outcome);
}
END_TEST

START_TEST(product_that_fails_at_its_start)
{
	struct outcome outcome;
	verify_one("fails", "honest.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	expect_detail(&outcome, "product did not start: exit 3");
	expect_detail(&outcome, "no module named shelf\xef\xbf\xbd[31m");
	ck_assert_int_lt(outcome.ms,
			 5000); /* its end is seen: no waiting for the start's timeout */
	outcome_free(&outcome);
}
END_TEST

START_TEST(product_that_cannot_be_executed)
{
	static char *missing[] = {"./no-such-program", NULL};
	struct spec spec = server_spec;
	spec.start = missing;
	char hash[TREE_HASH_SIZE];
	import_product("shelf", hash);
	struct check check = check_of("honest.py");
	struct checks checks = {&check, 1};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks, .spec = &spec};
	struct outcome outcome;
	verify_with(&opts, &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	expect_detail(&outcome, "product did not start: ");
	expect_detail(&outcome, "no-such-program");
	outcome_free(&outcome);
}
END_TEST

START_TEST(product_that_dies_during_the_check)
{
	struct outcome outcome;
	verify_one("dies", "honest.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	ck_assert_uint_eq(outcome.results[0].passed, 1);
	expect_detail(&outcome, "product ended during the check: exit 7");
	expect_detail(&outcome, "out of luck");
	outcome_free(&outcome);
}
END_TEST

/* --- commands, joint ----------------------------------------------------------------------- */

START_TEST(command_is_run_by_argv)
{
	char hash[TREE_HASH_SIZE];
	import_product("tool", hash);
	struct check list[] = {check_of("tool.py"), check_of("tool-restart.py")};
	list[1].restart = true;
	struct checks checks = {list, 2};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks, .spec = &tool_spec};
	struct outcome outcome;
	verify_with(&opts, &outcome);
	expect_verdict(&outcome, 0, VERDICT_PASS);
	expect_verdict(&outcome, 1, VERDICT_PASS);
	ck_assert_uint_eq(outcome.deaths_not_dead, 0);
	outcome_free(&outcome);
	/* The control: the stub gives the same shape of answer, and fails them. */
	struct verify_opts stub = {.stub = true, .checks = &checks, .spec = &tool_spec};
	verify_with(&stub, &outcome);
	expect_verdict(&outcome, 0, VERDICT_FAIL);
	expect_verdict(&outcome, 1, VERDICT_FAIL);
	outcome_free(&outcome);
}
END_TEST

START_TEST(joint_carries_bytes_both_ways)
{
	struct outcome outcome;
	verify_one("echo", "joint.py", &outcome);
	expect_verdict(&outcome, 0, VERDICT_PASS);
	outcome_free(&outcome);
}
END_TEST

/* --- ends ---------------------------------------------------------------------------------- */

static void on_timer(void *userdata)
{
	(void)userdata;
	orch_ctx_quit(ctx);
}

static void run_for(int64_t ms)
{
	orch_source *timer = NULL;
	ck_assert_int_eq(orch_source_timer(ctx, ms, on_timer, NULL, &timer, NULL), 0);
	ck_assert_int_eq(orch_ctx_run(ctx, RUN_TIMEOUT_MS, NULL), 0);
	orch_source_remove(timer);
}

START_TEST(freed_while_running)
{
	/* At many moments: before the checkout, during the sandboxes' start, while product and
	 * check run. */
	static const int64_t moments_ms[] = {0, 5, 20, 50, 100, 150, 200, 300, 500, 900};
	char hash[TREE_HASH_SIZE];
	import_product("hangs", hash);
	struct check list[] = {check_of("sleeps.py"), check_of("daemon.py")};
	struct checks checks = {list, 2};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks, .start_timeout_ms = 200};
	unsigned seen = 0;
	for (size_t i = 0; i < sizeof(moments_ms) / sizeof(moments_ms[0]); i++) {
		struct outcome outcome = {0};
		struct verify *verify = NULL;
		ck_assert_int_eq(start(&opts, &outcome, &verify, NULL), 0);
		if (moments_ms[i])
			run_for(moments_ms[i]);
		seen += alive_with("/check/sleeps.py");
		verify_free(verify);
		unsigned alive = 1;
		for (int turn = 0; turn < 50 && alive; turn++) {
			run_for(20);
			alive = alive_with("/check/*.py") + alive_with("server.py") +
				alive_with("orch-test-daemon");
		}
		ck_assert_uint_eq(alive, 0);
		ck_assert_uint_eq(outcome.calls, 0);
		tree_remove(scratch, NULL);
	}
	ck_assert_uint_gt(seen, 0); /* the control: there was something to kill */
}
END_TEST

static unsigned open_descriptors(void)
{
	unsigned count = 0;
	DIR *folder = opendir("/proc/self/fd");
	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

START_TEST(no_descriptor_is_left)
{
	/* The first one starts the helper, which stays. */
	static const char *const products[] = {"shelf", "shelf", "dies", "fails", "echo"};
	unsigned before = 0;
	for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
		struct outcome outcome;
		verify_one(products[i], strcmp(products[i], "echo") == 0 ? "joint.py" : "honest.py",
			   &outcome);
		outcome_free(&outcome);
		/* The library closes a scope's own sockets in its next turns. */
		run_for(200);
		if (i == 0)
			before = open_descriptors();
		ck_assert_uint_eq(open_descriptors(), before);
	}
}
END_TEST

START_TEST(tree_that_is_not_what_it_says)
{
	char hash[TREE_HASH_SIZE];
	import_product("shelf", hash);
	_cleanup_free_ char *file = orch_strdup_printf("%s/%s/server.py", trees, hash);
	int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "#\n", 2), 2);
	close(fd);
	struct check check = check_of("honest.py");
	struct checks checks = {&check, 1};
	struct verify_opts opts = {.tree_hash = hash, .checks = &checks};
	struct outcome outcome;
	verify_with(&opts, &outcome);
	ck_assert_int_eq(orch_error_code(outcome.error), ORCH_ECORRUPT);
	ck_assert_uint_eq(outcome.count, 0);
	outcome_free(&outcome);
}
END_TEST

START_TEST(bad_orders_are_refused)
{
	struct check check = check_of("honest.py");
	struct checks checks = {&check, 1}, none = {NULL, 0};
	static const char *const unknown[] = {"C99", NULL};
	struct outcome outcome = {0};
	struct verify *verify = NULL;
	orch_error *error = NULL;

	struct verify_opts opts = {.tree_hash = tree_empty_hash, .checks = &none};
	ck_assert_int_eq(start(&opts, &outcome, &verify, NULL), ORCH_EINVAL);
	opts.checks = &checks;
	opts.check_ids = unknown;
	ck_assert_int_eq(start(&opts, &outcome, &verify, &error), ORCH_ENOENT);
	ck_assert_ptr_nonnull(strstr(orch_error_message(error), "C99"));
	orch_error_free(error);
	opts.check_ids = NULL;
	opts.tree_hash = "abc";
	ck_assert_int_eq(start(&opts, &outcome, &verify, NULL), ORCH_EINVAL);
	ck_assert_ptr_null(verify);

	/* A check's file that is missing is no verdict on the product. */
	struct check missing = check_of("no-such-check.py");
	struct checks with_missing = {&missing, 1};
	opts.tree_hash = tree_empty_hash;
	opts.checks = &with_missing;
	ck_assert_int_eq(start(&opts, &outcome, &verify, NULL), 0);
	ck_assert_int_eq(orch_ctx_run(ctx, RUN_TIMEOUT_MS, NULL), 0);
	ck_assert_uint_eq(outcome.results[0].verdict, VERDICT_ERROR);
	ck_assert(!outcome.all_passed);
	expect_detail(&outcome, "no-such-check.py");
	verify_free(verify);
	outcome_free(&outcome);
}
END_TEST

/* --- as an ordinary user ------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to)
{
	char bytes[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC),
	    out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	ck_assert_msg(in >= 0 && out >= 0, "%s, %s", from, to);
	for (ssize_t count; (count = read(in, bytes, sizeof(bytes))) > 0;)
		ck_assert_int_eq(write(out, bytes, (size_t)count), count);
	close(in);
	ck_assert_int_eq(close(out), 0);
}

/* This program again, where uid 1000 can read it, with only the tests that say something there. */
START_TEST(works_for_an_ordinary_user)
{
	_cleanup_free_ char *program = path_of("%s/test-verify", root),
			    *helper = path_of("%s/orch-reaper", root);
	_cleanup_free_ char *built =
	    path_of("%s/lib/helper/orch-reaper", getenv("ORCH_BUILD_ROOT"));
	char self[PATH_MAX] = {0}, products[PATH_MAX], command[3 * PATH_MAX];
	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	copy_file(self, program);
	copy_file(built, helper);
	snprintf(products, sizeof(products), "%s/tests/unit", root);
	snprintf(command, sizeof(command),
		 "mkdir -p %s && cp -r %s/tests/unit/verify %s && chmod -R a+rX %s", products,
		 source_root(), products, root);
	ck_assert_int_eq(system(command), 0);

	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		if (setgroups(0, NULL) < 0 || setresgid(1000, 1000, 1000) < 0 ||
		    setresuid(1000, 1000, 1000) < 0)
			_exit(99);
		setenv("ORCH_SOURCE_ROOT", root, 1);
		setenv(UNPRIVILEGED_ENV, "1", 1);
		execl(program, program, (char *)NULL);
		_exit(98);
	}
	int status = 0;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}
END_TEST

static void add_tests_for_everybody(TCase *tcase)
{
	tcase_add_test(tcase, honest_product_passes);
	tcase_add_test(tcase, restart_keeps_data_or_fails);
	tcase_add_test(tcase, liar_gains_nothing);
	tcase_add_test(tcase, command_is_run_by_argv);
}

int main(void)
{
	bool unprivileged = getenv(UNPRIVILEGED_ENV) != NULL;
	Suite *suite = suite_create(unprivileged ? "verify as an ordinary user" : "verify");
	TCase *run = tcase_create("run");
	tcase_set_timeout(run, 120);
	tcase_add_checked_fixture(run, setup, teardown);
	add_tests_for_everybody(run);
	if (!unprivileged) {
		tcase_add_test(run, check_is_alone);
		tcase_add_test(run, output_is_read_to_its_end);
		tcase_add_test(run, stub_exposes_worthless_checks);
		tcase_add_test(run, checks_fail_on_the_empty_tree);
		tcase_add_test(run, bad_checks_fail_and_are_dead);
		tcase_add_test(run, product_that_hangs_at_its_start);
		tcase_add_test(run, product_that_fails_at_its_start);
		tcase_add_test(run, product_that_cannot_be_executed);
		tcase_add_test(run, product_that_dies_during_the_check);
		tcase_add_test(run, joint_carries_bytes_both_ways);
		tcase_add_test(run, freed_while_running);
		tcase_add_test(run, no_descriptor_is_left);
		tcase_add_test(run, tree_that_is_not_what_it_says);
		tcase_add_test(run, bad_orders_are_refused);
		if (geteuid() == 0)
			tcase_add_test(run, works_for_an_ordinary_user);
	}
	suite_add_tcase(suite, run);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
