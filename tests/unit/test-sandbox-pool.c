/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: what is taken is what the pattern says and lives, and what is not taken leaves nothing. */
#include <dirent.h>
#include <signal.h>

#include "sandbox-fixture.h"

#define MANY 1000

/* --- uids that are taken and not given back: the linker puts these in between ----------------- */

static int uids;

int32_t __real_orch_sandbox_uid_take(uint32_t *ret_uid, orch_error **reterr);
void __real_orch_sandbox_uid_release(uint32_t uid);
int32_t __wrap_orch_sandbox_uid_take(uint32_t *ret_uid, orch_error **reterr);
void __wrap_orch_sandbox_uid_release(uint32_t uid);

int32_t __wrap_orch_sandbox_uid_take(uint32_t *ret_uid, orch_error **reterr)
{
	int32_t code = __real_orch_sandbox_uid_take(ret_uid, reterr);

	uids += code == 0;
	return code;
}

void __wrap_orch_sandbox_uid_release(uint32_t uid)
{
	uids--;
	__real_orch_sandbox_uid_release(uid);
}

/* -------------------------------------------------------------------------------------------- */

static orch_sandbox_pool *pool_of(orch_sandbox *pattern, uint32_t ready)
{
	orch_sandbox_pool *pool = NULL;

	OK(orch_sandbox_pool_new(pattern, ready, &pool, e));
	return pool;
}

static orch_sandbox *wait_for_one(orch_sandbox_pool *pool)
{
	orch_sandbox *sandbox = NULL;

	OK(orch_sandbox_pool_take_wait(pool, 20000, &sandbox, e));
	return sandbox;
}

static void run_until_ready(orch_ctx *ctx, const orch_sandbox_pool *pool, uint32_t count)
{
	int64_t end = now_ms() + 20000;

	while (orch_sandbox_pool_ready(pool) != count && now_ms() < end)
		orch_ctx_run(ctx, 5, NULL);
	ck_assert_uint_eq(orch_sandbox_pool_ready(pool), count);
}

static pid_t helper_pid(void)
{
	char command[96];

	snprintf(command, sizeof(command), "pgrep -P %d orch-reaper", (int)getpid());
	return (pid_t)count_lines(command);
}

/* The children of the helper that are PID 1 of their own, through `filter` ("wc -l": how many). */
static unsigned inits_of(pid_t helper, const char *filter)
{
	char command[192];

	snprintf(command, sizeof(command),
		 "for p in $(pgrep -P %d); do grep -qs '^NSpid:.*[[:space:]]1$' /proc/$p/status && echo $p; done | %s",
		 (int)helper, filter);
	return count_lines(command);
}

static unsigned scopes_of(pid_t helper)
{
	return inits_of(helper, "wc -l");
}

static void wait_for_scopes(orch_ctx *ctx, pid_t helper, unsigned count)
{
	int64_t end = now_ms() + 20000;

	while (scopes_of(helper) != count && now_ms() < end)
		orch_ctx_run(ctx, 5, NULL);
	ck_assert_uint_eq(scopes_of(helper), count);
}

/* --- what is taken ---------------------------------------------------------------------------- */

START_TEST(each_is_the_pattern)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL), *taken[3], *none = NULL;
	char *files = new_folder();

	ck_assert(chmod(files, 0755) == 0);
	put(in(files, "word"), "hello");
	OK(orch_sandbox_add_path(pattern, files, "/files", ORCH_PATH_READ, e));
	OK(orch_sandbox_set_env(pattern, "WORD", "pattern", e));
	orch_sandbox_pool *pool = pool_of(pattern, 3);

	/* As it was then. */
	OK(orch_sandbox_set_env(pattern, "WORD", "later", e));
	orch_sandbox_unref(pattern);
	run_until_ready(ctx, pool, 3);
	for (int i = 0; i < 3; i++)
		OK(orch_sandbox_pool_take(pool, &taken[i], e));
	ck_assert_uint_eq(orch_sandbox_pool_ready(pool), 0);
	REFUSED(ORCH_EBUSY, "no sandbox", orch_sandbox_pool_take(pool, &none, e));
	ck_assert_ptr_null(none);
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < i; j++) {
			ck_assert_ptr_ne(orch_sandbox_scope(taken[i]), orch_sandbox_scope(taken[j]));
			if (geteuid() == 0)
				ck_assert_uint_ne(orch_sandbox_host_uid(taken[i]), orch_sandbox_host_uid(taken[j]));
		}
	for (int i = 0; i < 3; i++) {
		struct outcome outcome = run(taken[i], SH("echo $WORD $(cat /files/word); pwd; echo x > /files/y"));

		ck_assert_str_eq(outcome.out, "pattern hello\n/\n");
		ck_assert_int_ne(outcome.status, 0);
	}
	run_until_ready(ctx, pool, 3);
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
}
END_TEST

/* Each over the same folder, with what it wrote for itself. */
START_TEST(each_has_its_own_overlay)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL), *taken[2];
	char *files = new_folder();

	ck_assert(chmod(files, 0755) == 0);
	put(in(files, "word"), "hello");
	OK(orch_sandbox_set_overlay(pattern, files, NULL, e));
	orch_sandbox_pool *pool = pool_of(pattern, 2);

	orch_sandbox_unref(pattern);
	if (NO_OVERLAYS) {
		OVERLAY_REFUSED(orch_sandbox_pool_take_wait(pool, 20000, &taken[0], e));
		orch_sandbox_pool_unref(pool);
		orch_ctx_unref(ctx);
		return;
	}
	for (int i = 0; i < 2; i++)
		taken[i] = wait_for_one(pool);
	for (int i = 0; i < 2; i++) {
		orch_changes *changes = NULL;
		orch_proc *proc = NULL;
		struct orch_proc_opts opts;
		int32_t status = -1;

		orch_proc_opts_init(&opts, sizeof(opts));
		opts.argv = SH("pwd; grep -q hello word && test \"$(ls)\" = word && echo x > new");
		OK(orch_sandbox_spawn(taken[i], &opts, &proc, e));
		OK(orch_proc_wait(proc, 20000, &status, e));
		ck_assert_int_eq(status, 0);
		orch_proc_unref(proc);
		OK(orch_sandbox_changes(taken[i], &changes, e));
		ck_assert_str_eq(orch_changes_text(changes), "A new\n");
		orch_changes_unref(changes);
	}
	ck_assert(access(in(files, "new"), F_OK) < 0);
	for (int i = 0; i < 2; i++)
		orch_sandbox_unref(taken[i]);
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(more_than_are_ready)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL), *taken[9], *none = NULL;
	orch_sandbox_pool *pool = pool_of(pattern, 2);

	REFUSED(ORCH_ETIMEDOUT, "not done", orch_sandbox_pool_take_wait(pool, 0, &none, e));
	for (int i = 0; i < 9; i++)
		taken[i] = wait_for_one(pool);
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(run(taken[i], SH("exit 3")).status, 3);
	orch_sandbox_unref(pattern);
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
}
END_TEST

struct inside {
	orch_sandbox_pool *pool;
	orch_sandbox *taken;
	bool called;
};

static void take_inside(void *userdata, orch_sandbox *sandbox, const orch_error *error)
{
	struct inside *inside = userdata;
	orch_sandbox *none = NULL;

	(void)sandbox;
	ck_assert_ptr_null(error);
	REFUSED(ORCH_EDEADLK, "callback", orch_sandbox_pool_take_wait(inside->pool, 1000, &none, e));
	OK(orch_sandbox_pool_take(inside->pool, &inside->taken, e));
	inside->called = true;
}

START_TEST(in_a_callback)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL), *other = sandbox_new(ctx, NULL);
	struct inside inside = {.pool = pool_of(pattern, 1)};
	int64_t end = now_ms() + 20000;

	run_until_ready(ctx, inside.pool, 1);
	OK(orch_sandbox_start(other, take_inside, &inside, NULL, e));
	ck_assert(!inside.called);
	while (!inside.called && now_ms() < end)
		orch_ctx_run(ctx, 5, NULL);
	ck_assert_int_eq(run(inside.taken, SH("exit 4")).status, 4);
	orch_sandbox_unref(other);
	orch_sandbox_unref(pattern);
	orch_sandbox_pool_unref(inside.pool);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(patterns_that_are_refused)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL), *own = sandbox_new(ctx, NULL);
	orch_sandbox_pool *pool = NULL;

	REFUSED(ORCH_EINVAL, "pattern", orch_sandbox_pool_new(NULL, 1, &pool, e));
	REFUSED(ORCH_EINVAL, "ret_pool", orch_sandbox_pool_new(pattern, 1, NULL, e));
	REFUSED(ORCH_EINVAL, "1 to 256", orch_sandbox_pool_new(pattern, 0, &pool, e));
	REFUSED(ORCH_EINVAL, "1 to 256", orch_sandbox_pool_new(pattern, 257, &pool, e));
	OK(orch_sandbox_set_workspace(own, new_folder(), NULL, e));
	REFUSED(ORCH_EINVAL, "ORCH_PATH_OWN", orch_sandbox_pool_new(own, 1, &pool, e));
	ck_assert_ptr_null(pool);
	ck_assert_ptr_null(orch_sandbox_pool_unref(pool_of(pattern, 256)));
	OK(orch_sandbox_start_wait(pattern, 20000, e));
	REFUSED(ORCH_ESTATE, "started", orch_sandbox_pool_new(pattern, 1, &pool, e));
	ck_assert_ptr_null(pool);
	ck_assert_int_eq(orch_sandbox_pool_take(NULL, &own, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_sandbox_pool_take_wait(NULL, 0, &own, NULL), ORCH_EINVAL);
	ck_assert_uint_eq(orch_sandbox_pool_ready(NULL), 0);
	ck_assert_ptr_null(orch_sandbox_pool_ref(NULL));
	ck_assert_ptr_null(orch_sandbox_pool_unref(NULL));
	orch_sandbox_unref(own);
	orch_sandbox_unref(pattern);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- ends ------------------------------------------------------------------------------------- */

START_TEST(the_pool_goes_first)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL), *taken = NULL;
	orch_sandbox_pool *pool = pool_of(pattern, 3);

	orch_sandbox_unref(pattern);
	run_until_ready(ctx, pool, 3);
	pid_t helper = helper_pid();

	ck_assert_uint_eq(scopes_of(helper), 3);
	OK(orch_sandbox_pool_take(pool, &taken, e));
	orch_sandbox_pool_ref(pool);
	orch_sandbox_pool_unref(pool);
	ck_assert_uint_eq(orch_sandbox_pool_ready(pool), 2);
	orch_sandbox_pool_unref(pool);
	/* Those that nobody took are ended, and no others started. */
	wait_for_scopes(ctx, helper, 1);
	ck_assert_int_eq(run(taken, SH("exit 5")).status, 5);
	/* In the middle of a start. */
	pattern = sandbox_new(ctx, NULL);
	pool = pool_of(pattern, 4);
	orch_sandbox_unref(pattern);
	orch_sandbox_pool_unref(pool);
	wait_for_scopes(ctx, helper, 0);
	orch_ctx_unref(ctx);
	ck_assert_int_eq(uids, 0);
}
END_TEST

START_TEST(the_helper_is_killed)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL), *taken = NULL;
	orch_sandbox_pool *pool = pool_of(pattern, 2);
	siginfo_t status;

	orch_sandbox_unref(pattern);
	run_until_ready(ctx, pool, 2);
	pid_t helper = helper_pid();

	ck_assert(kill(helper, SIGKILL) == 0 && waitid(P_PID, (id_t)helper, &status, WEXITED | WNOWAIT) == 0);
	/* The loop does not know yet. */
	ck_assert_uint_eq(orch_sandbox_pool_ready(pool), 0);
	ck_assert_int_eq(orch_sandbox_pool_take(pool, &taken, NULL), ORCH_EBUSY);
	ck_assert_ptr_null(taken);
	taken = wait_for_one(pool);
	ck_assert_int_ne(helper_pid(), helper);
	ck_assert_int_eq(run(taken, SH("exit 6")).status, 6);
	run_until_ready(ctx, pool, 2);
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
}
END_TEST

/* By itself, without a take. */
START_TEST(one_dies_and_is_replaced)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL);
	orch_sandbox_pool *pool = pool_of(pattern, 1);

	orch_sandbox_unref(pattern);
	run_until_ready(ctx, pool, 1);
	pid_t helper = helper_pid(), init = (pid_t)inits_of(helper, "cat");

	ck_assert(kill(init, SIGKILL) == 0);
	run_until_ready(ctx, pool, 0);
	run_until_ready(ctx, pool, 1);
	ck_assert_int_ne((pid_t)inits_of(helper, "cat"), init);
	ck_assert_int_eq(run(wait_for_one(pool), SH("exit 7")).status, 7);
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
}
END_TEST

static void count_line(void *userdata, uint32_t level, const char *message)
{
	unsigned *lines = userdata;

	*lines += level <= ORCH_LOG_WARNING && strstr(message, "can not be opened");
}

START_TEST(a_failed_start_is_told_and_tried_again)
{
	become(_i);
	unsigned failures = 0;
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	const char *file = in(new_folder(), "file");
	orch_sandbox *taken = NULL;
	int64_t end = now_ms() + 20000;

	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = helper_path;
	opts.log = count_line;
	opts.log_userdata = &failures;
	OK(orch_ctx_new(&opts, &ctx, e));
	orch_sandbox *pattern = sandbox_new(ctx, NULL);

	OK(orch_sandbox_add_path(pattern, file, "/file", ORCH_PATH_READ, e));
	orch_sandbox_pool *pool = pool_of(pattern, 8);

	orch_sandbox_unref(pattern);
	while (failures == 0 && now_ms() < end)
		orch_ctx_run(ctx, 5, NULL);
	/* Those that were begun together, and then none. */
	orch_ctx_run(ctx, 300, NULL);
	ck_assert_uint_ge(failures, 1);
	ck_assert_uint_le(failures, 2);
	REFUSED(ORCH_ENOENT, file, orch_sandbox_pool_take(pool, &taken, e));
	REFUSED(ORCH_ENOENT, file, orch_sandbox_pool_take_wait(pool, 20000, &taken, e));
	ck_assert_ptr_null(taken);
	put(file, "there");
	while (orch_sandbox_pool_take(pool, &taken, NULL) < 0 && now_ms() < end)
		orch_ctx_run(ctx, 5, NULL);
	ck_assert_int_eq(run(taken, SH("grep -q there /file")).status, 0);
	run_until_ready(ctx, pool, 8);
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
	ck_assert_int_eq(uids, 0);
}
END_TEST

/* What was begun before may fail for what is no more so. */
START_TEST(who_waits_is_told_how_it_goes_now)
{
	become(_i);
	orch_ctx *ctx = ctx_new();

	for (int i = 0; i < 20; i++) {
		const char *file = in(new_folder(), "file");
		orch_sandbox *pattern = sandbox_new(ctx, NULL), *taken = NULL;

		OK(orch_sandbox_add_path(pattern, file, "/file", ORCH_PATH_READ, e));
		orch_sandbox_pool *pool = pool_of(pattern, 2);

		orch_sandbox_unref(pattern);
		/* They are on their way, and found nothing; the host has not heard of it. */
		orch_ctx_process(ctx, NULL);
		usleep(i < 10 ? 20000 : 0);
		put(file, "there");
		OK(orch_sandbox_pool_take_wait(pool, 20000, &taken, e));
		ck_assert_int_eq(run(taken, SH("grep -q there /file")).status, 0);
		orch_sandbox_pool_unref(pool);
	}
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(in_a_forked_child)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL);
	orch_sandbox_pool *pool = pool_of(pattern, 2);
	int status = 0;

	run_until_ready(ctx, pool, 2);
	pid_t child = fork();

	if (child == 0) {
		orch_sandbox *sandbox = NULL;
		orch_sandbox_pool *other = NULL;
		bool right = orch_sandbox_pool_take(pool, &sandbox, NULL) == ORCH_EFORKED &&
			     orch_sandbox_pool_take_wait(pool, 0, &sandbox, NULL) == ORCH_EFORKED &&
			     orch_sandbox_pool_new(pattern, 1, &other, NULL) == ORCH_EFORKED &&
			     orch_sandbox_pool_ready(pool) == 0 && !sandbox && !other;

		orch_sandbox_pool_unref(pool);
		orch_sandbox_unref(pattern);
		orch_ctx_unref(ctx);
		_exit(right ? 0 : 1);
	}
	ck_assert(child > 0 && waitpid(child, &status, 0) == child);
	ck_assert_int_eq(status, 0);
	/* The parent's are whole. */
	ck_assert_uint_eq(orch_sandbox_pool_ready(pool), 2);
	ck_assert_int_eq(run(wait_for_one(pool), SH("exit 8")).status, 8);
	orch_sandbox_unref(pattern);
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- a thousand ------------------------------------------------------------------------------- */

struct trace {
	long fds, helper_fds, memory_kib, helper_memory_kib;
	int uids;
};

static long count_fds(pid_t pid)
{
	char path[64];
	long count = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *fds = opendir(path);

	/* As a user the helper's can not be seen: it is the same program, and root's run looks. */
	while (fds && readdir(fds))
		count++;
	if (fds)
		closedir(fds);
	return count;
}

static long anonymous_kib(pid_t pid)
{
	char path[64], line[128];
	long kib = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

static struct trace look(pid_t helper)
{
	return (struct trace){count_fds(getpid()), count_fds(helper), anonymous_kib(getpid()), anonymous_kib(helper),
			      uids};
}

/* Leaves that are not there any more are asked for by name: others' may be beside them. */
static char leaves[MANY][160];

static unsigned leaves_left(void)
{
	unsigned left = 0;

	for (int i = 0; i < MANY; i++)
		left += leaves[i][0] && access(leaves[i], F_OK) == 0;
	return left;
}

static void take_many(orch_sandbox_pool *pool, int count)
{
	for (int i = 0; i < count; i++) {
		orch_sandbox *sandbox = wait_for_one(pool);

		snprintf(leaves[i], sizeof(leaves[i]), "%s", orch_scope_cgroup(orch_sandbox_scope(sandbox)));

		if (i % 50 == 0)
			ck_assert_int_eq(run(sandbox, ARGV("/bin/true")).status, 0);
		else
			orch_sandbox_unref(sandbox);
	}
}

static void leave_nothing(int warm, int many)
{
	orch_ctx *ctx = ctx_new();
	orch_sandbox *pattern = sandbox_new(ctx, NULL);
	orch_sandbox_pool *pool = pool_of(pattern, 4);

	orch_sandbox_unref(pattern);
	take_many(pool, warm);
	run_until_ready(ctx, pool, 4);
	pid_t helper = helper_pid();

	wait_for_scopes(ctx, helper, 4);
	struct trace before = look(helper);

	take_many(pool, many);
	run_until_ready(ctx, pool, 4);
	wait_for_scopes(ctx, helper, 4);
	struct trace after = look(helper);

	ck_assert_int_eq(after.fds, before.fds);
	ck_assert_int_eq(after.helper_fds, before.helper_fds);
	ck_assert_int_eq(after.uids, before.uids);
	ck_assert_uint_eq(leaves_left(), 0);
	ck_assert_int_le(after.memory_kib, before.memory_kib + 256);
	ck_assert_int_le(after.helper_memory_kib, before.helper_memory_kib + 256);
	orch_sandbox_pool_unref(pool);
	wait_for_scopes(ctx, helper, 0);
	ck_assert_int_eq(uids, 0);
	orch_ctx_unref(ctx);
	ck_assert(kill(helper, 0) < 0 && errno == ESRCH);
}

START_TEST(some_leave_nothing)
{
	become(_i);
	leave_nothing(10, 30);
}
END_TEST

/* Minutes where the processor is emulated: CK_EXCLUDE_TAGS=thousands leaves it out. */
START_TEST(a_thousand_leave_nothing)
{
	become(_i);
	leave_nothing(100, MANY);
}
END_TEST

#define BOTH(test) tcase_add_loop_test(both, test, 0, ids)

int main(int argc, char **argv)
{
	(void)argc;
	Suite *suite = suite_create("sandbox pool");
	TCase *both = tcase_create("as root and as a user"), *many = tcase_create("many");
	int ids = identities();

	tcase_set_timeout(both, 60);
	tcase_set_timeout(many, 240);
	BOTH(each_is_the_pattern);
	BOTH(each_has_its_own_overlay);
	BOTH(more_than_are_ready);
	BOTH(in_a_callback);
	BOTH(patterns_that_are_refused);
	BOTH(the_pool_goes_first);
	BOTH(the_helper_is_killed);
	BOTH(one_dies_and_is_replaced);
	BOTH(a_failed_start_is_told_and_tried_again);
	BOTH(who_waits_is_told_how_it_goes_now);
	BOTH(in_a_forked_child);
	BOTH(some_leave_nothing);
	tcase_set_tags(many, "thousands");
	tcase_add_loop_test(many, a_thousand_leave_nothing, 0, ids);
	suite_add_tcase(suite, both);
	suite_add_tcase(suite, many);
	return fixture_main(argv, suite);
}
