/* SPDX-License-Identifier: Apache-2.0 */
/* The record of scopes: what is in it when, torn and damaged ones, full disks, who may use it; recovery of other boots. */
#include <sys/resource.h>
#include <sys/socket.h>

#include <orch/reaper.h>

#include "../crash/liveness-fixture.h"
#include "core/os.h"
#include "reaper/census.h"
#include "reaper/record.h"

#define HEAD "orch-scopes 1\n"
#define NAME "orch-0123456789abcdef"
#define OTHER "orch-fedcba9876543210"
#define NAMED(name) "named " name " another-boot 1 2 3 4 5 6 7 8 9 /base%20of a%0Alabel\n"
#define UP(name) "up " name " 3 11 12 13 14 %\n"

static char home[64], path[96];

static void begin(void)
{
	snprintf(home, sizeof(home), "/tmp/test-record-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(home));
	snprintf(path, sizeof(path), "%s/scopes", home);
}

static void end(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -r '%s'", home);
	ck_assert_int_eq(system(command), 0);
}

static void put(const char *text, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, text, length), (ssize_t)length);
	close(fd);
}

static char *get(void)
{
	static char text[65536];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = read(fd, text, sizeof(text) - 1);
	close(fd);
	ck_assert_int_ge(length, 0);
	text[length] = '\0';
	return text;
}

static int32_t recover(orch_leftovers **ret_leftovers, orch_error **reterr)
{
	struct orch_reaper_recover_opts opts;
	orch_reaper_recover_opts_init(&opts, sizeof(opts));
	opts.path = path;
	return orch_reaper_recover(&opts, ret_leftovers, reterr);
}

static uint32_t count_of(void)
{
	orch_leftovers *leftovers = NULL;
	OK(recover(&leftovers, e));
	uint32_t count = orch_leftovers_count(leftovers);
	orch_leftovers_unref(leftovers);
	return count;
}

START_TEST(arguments)
{
	struct orch_reaper_recover_opts opts;
	orch_leftovers *leftovers = NULL;
	orch_death *death = NULL;
	orch_error *error = NULL;
	begin();
	ck_assert_int_eq(recover(&leftovers, NULL), ORCH_ENOENT);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(recover(NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_reaper_recover(NULL, &leftovers, NULL), ORCH_EINVAL);
	orch_reaper_recover_opts_init(&opts, sizeof(opts));
	ck_assert_uint_eq(opts.deadline_ms, 10000);
	opts.path = path;
	opts.flags = 1;
	ck_assert_int_eq(orch_reaper_recover(&opts, &leftovers, &error), ORCH_EINVAL);
	ck_assert(strstr(orch_error_message(error), "flags"));
	orch_error_free(error);
	ck_assert_ptr_null(leftovers);
	ck_assert_ptr_null(orch_leftovers_unref(NULL));
	ck_assert_uint_eq(orch_leftovers_count(NULL), 0);
	ck_assert_int_eq(orch_leftovers_death(NULL, 0, &death), ORCH_EINVAL);

	orch_ctx *ctx = ctx_new();
	ck_assert_int_eq(orch_reaper_record(ctx, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_reaper_record(ctx, "", NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_reaper_record(NULL, path, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_reaper_record(ctx, "/nowhere/scopes", NULL), ORCH_ENOENT);
	OK(orch_reaper_record(ctx, path, e));
	ck_assert_int_eq(orch_reaper_record(ctx, path, &error), ORCH_ESTATE);
	ck_assert(strstr(orch_error_message(error), path));
	orch_error_free(error);
	orch_ctx_unref(ctx);
	end();
}
END_TEST

START_TEST(of_another_boot)
{
	orch_leftovers *leftovers = NULL;
	orch_death *death = NULL;
	begin();
	put(HEAD NAMED(NAME) UP(NAME) NAMED(OTHER), strlen(HEAD NAMED(NAME) UP(NAME) NAMED(OTHER)));
	OK(recover(&leftovers, e));
	ck_assert_uint_eq(orch_leftovers_count(leftovers), 2);
	ck_assert_int_eq(orch_leftovers_death(leftovers, 2, &death), ORCH_EINVAL);
	ck_assert_int_eq(orch_leftovers_death(leftovers, 0, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_leftovers_death(leftovers, 0, &death), 0);
	orch_leftovers_unref(leftovers);
	/* It stays when the list goes. */
	ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_DEAD);
	ck_assert_str_eq(orch_death_scope(death), NAME);
	ck_assert(strstr(orch_death_text(death), "a\nlabel"));
	ck_assert_str_eq(orch_death_proof(death), "the machine was started again since (another boot id)");
	ck_assert_str_eq(orch_death_mechanism(death), "nobody was found to be killed, in recovery after the host's end");
	ck_assert_int_eq(orch_death_last_death_us(death), -1);
	ck_assert_uint_eq(orch_death_pidns_inode(death), 14);
	int32_t pid = 0;
	uint64_t start_time = 0, inode = 0;
	OK(orch_death_init(death, &pid, &start_time, &inode));
	ck_assert_int_eq(pid, 11);
	ck_assert_uint_eq(start_time, 12);
	ck_assert_uint_eq(inode, 13);
	ck_assert_str_eq(orch_death_boot_id(death), "another-boot");
	orch_death_unref(death);
	ck_assert_str_eq(get(), HEAD);
	ck_assert_uint_eq(count_of(), 0);
	end();
}
END_TEST

/* Where the boot is not known, a number may be a stranger's: nothing is done by it. */
START_TEST(of_an_unknown_boot)
{
	orch_leftovers *leftovers = NULL;
	orch_death *death = NULL;
	char text[512];
	begin();
	pid_t stranger = fork();
	if (stranger == 0) {
		close_all();
		sleep_long();
	}
	struct identity identity;
	identity_take(stranger, -1, &identity);
	ck_assert_uint_ne(identity.start_time, 0);
	snprintf(text, sizeof(text), HEAD "named " NAME " %% 1 2 3 4 0 %d %llu 0 0 %% x\nup " NAME " 3 %d %llu 0 14 %%\n",
		 (int)stranger, (unsigned long long)identity.start_time, (int)stranger,
		 (unsigned long long)identity.start_time);
	put(text, strlen(text));
	OK(recover(&leftovers, e));
	ck_assert_uint_eq(orch_leftovers_count(leftovers), 1);
	OK(orch_leftovers_death(leftovers, 0, &death));
	ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_UNVERIFIABLE);
	ck_assert(strstr(orch_death_reason(death), "boot"));
	orch_death_unref(death);
	orch_leftovers_unref(leftovers);
	ck_assert_int_eq(waitpid(stranger, NULL, WNOHANG), 0);
	ck_assert_uint_eq(count_of(), 1);
	kill(stranger, SIGKILL);
	waitpid(stranger, NULL, 0);
	end();
}
END_TEST

/* Every length of a record that a kill can leave is read; what has no end of line was not done. */
START_TEST(torn_at_every_byte)
{
	static const char whole[] = HEAD NAMED(NAME) UP(NAME) NAMED(OTHER) "end " NAME "\n";
	static const char *const ends[] = {HEAD NAMED(NAME), HEAD NAMED(NAME) UP(NAME) NAMED(OTHER)};
	begin();
	for (size_t length = 0; length <= strlen(whole); length++) {
		put(whole, length);
		uint32_t expected = length >= strlen(ends[1]) ? 2 : length >= strlen(ends[0]) ? 1 : 0;
		ck_assert_msg(count_of() == (length == strlen(whole) ? 1 : expected), "cut at %zu", length);
		/* And written anew as a whole one. */
		ck_assert_str_eq(get(), HEAD);
	}
	end();
}
END_TEST

START_TEST(damaged)
{
	static const struct {
		const char *text;
		unsigned line;
	} records[] = {
	    {"orch-scopes 2\n", 1},
	    {"something else\n", 1},
	    {HEAD "named " NAME "\n", 2},
	    {HEAD NAMED(NAME) NAMED(NAME), 3},
	    {HEAD NAMED(NAME) UP(OTHER), 3},
	    {HEAD NAMED(NAME) UP(NAME) UP(NAME), 4},
	    {HEAD NAMED("orch-0123456789abcdeF"), 2},
	    {HEAD NAMED("orch-../../etc/passwd"), 2},
	    {HEAD NAMED(NAME) "\n", 3},
	    {HEAD NAMED(NAME) "end " OTHER "\n", 3},
	    {HEAD NAMED(NAME) "up " NAME " 9 11 12 13 14 %\n", 3},
	    {HEAD NAMED(NAME) "up " NAME " 3 -1 12 13 14 %\n", 3},
	    {HEAD NAMED(NAME) "up " NAME " 3 4294967297 12 13 14 %\n", 3},
	    {HEAD NAMED(NAME) "up " NAME " 3 11 99999999999999999999 13 14 %\n", 3},
	    {HEAD NAMED(NAME) "up " NAME " 3 11 12 13 14 %0\n", 3},
	    {HEAD NAMED(NAME) "up " NAME " 3 11 12 13 14 % more\n", 3},
	    {HEAD NAMED(NAME) "program " NAME " 0 1 2\n", 3},
	};
	begin();
	for (size_t i = 0; i < sizeof(records) / sizeof(*records); i++) {
		orch_leftovers *leftovers = NULL;
		orch_error *error = NULL;
		char line[32];
		put(records[i].text, strlen(records[i].text));
		ck_assert_msg(recover(&leftovers, &error) == ORCH_ECORRUPT, "record %zu", i);
		snprintf(line, sizeof(line), "line %u ", records[i].line);
		ck_assert_msg(strstr(orch_error_message(error), line) && strstr(orch_error_message(error), path), "%s",
			      orch_error_message(error));
		orch_error_free(error);
		/* A person can still look at it. */
		ck_assert_str_eq(get(), records[i].text);
	}
	/* A NUL in a line that would be good up to it. */
	static const char with_nul[] = HEAD NAMED(NAME) "end " NAME "\0more\n";
	orch_leftovers *none = NULL;
	put(with_nul, sizeof(with_nul) - 1);
	ck_assert_int_eq(recover(&none, NULL), ORCH_ECORRUPT);
	end();
}
END_TEST

START_TEST(scopes_are_written_down)
{
	orch_error *error = NULL;
	orch_leftovers *leftovers = NULL;
	struct stat status;
	char text[512];
	begin();
	orch_ctx *ctx = ctx_new();
	OK(orch_reaper_record(ctx, path, e));
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_uint_eq(status.st_mode & 0777, 0600);
	orch_scope *scope = scope_new(ctx);
	/* Before anything is set up: no turn of the loop has been. */
	snprintf(text, sizeof(text), "named %s ", orch_scope_name(scope));
	ck_assert(strstr(get(), text));
	ck_assert_ptr_null(strstr(get(), "\nup "));
	OK(orch_scope_start_wait(scope, 20000, e));
	snprintf(text, sizeof(text), "up %s %u %d ", orch_scope_name(scope), orch_scope_rung(scope),
		 (int)orch_scope_init_pid(scope));
	ck_assert_msg(strstr(get(), text) != NULL, "%s", get());
	ck_assert_int_eq(recover(&leftovers, &error), ORCH_ELOCKED);
	snprintf(text, sizeof(text), "pid %d", (int)getpid());
	ck_assert(strstr(orch_error_message(error), text));
	orch_error_free(error);
	/* It was not harmed. */
	ck_assert_int_eq(run(scope, ARGV("true")), 0);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	orch_death_unref(death);
	snprintf(text, sizeof(text), "end %s\n", orch_scope_name(scope));
	ck_assert(strstr(get(), text));
	orch_scope_unref(scope);
	/* Dropped without a stop, and the loop does not run any more: nobody has seen its end. */
	scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 20000, e));
	pid_t init = orch_scope_init_pid(scope);
	struct census_entry was, is;
	ck_assert(census_describe(init, &was));
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	ck_assert_uint_eq(count_of(), 1);
	ck_assert(!census_describe(init, &is) || is.start_time != was.start_time);
	ck_assert_uint_eq(count_of(), 0);
	end();
}
END_TEST

static void recover_inside(void *userdata, orch_scope *scope, orch_death *death)
{
	orch_leftovers *leftovers = NULL;
	(void)scope, (void)death;
	*(int32_t *)userdata = recover(&leftovers, NULL);
}

START_TEST(waits_only_outside_of_callbacks)
{
	int32_t code = 0;
	begin();
	put(HEAD, strlen(HEAD));
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_stop(scope, NULL, recover_inside, &code, NULL, e));
	loop_until(ctx, &code);
	ck_assert_int_eq(code, ORCH_EDEADLK);
	ck_assert_uint_eq(count_of(), 0);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	end();
}
END_TEST

/* The file can take so many more bytes. */
static void room(rlim_t bytes)
{
	struct rlimit limit;
	struct stat status;
	ck_assert_int_eq(stat(path, &status), 0);
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes == RLIM_INFINITY ? limit.rlim_max : (rlim_t)status.st_size + bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(what_can_not_be_written_is_not_started)
{
	orch_error *error = NULL;
	orch_scope *scope = NULL;
	orch_death *death = NULL;
	begin();
	signal(SIGXFSZ, SIG_IGN);
	orch_ctx *ctx = ctx_new();
	OK(orch_reaper_record(ctx, path, e));
	/* The helper lives already, with the limit as it was. */
	scope = scope_new(ctx);
	death = stop(scope, 0);
	orch_death_unref(death);
	orch_scope_unref(scope);
	char *before = strdup(get());
	room(20);
	scope = NULL;
	ck_assert_int_lt(orch_scope_new(ctx, NULL, &scope, &error), 0);
	ck_assert_ptr_null(scope);
	ck_assert_str_eq(orch_error_step(error), "record");
	orch_error_free(error);
	/* The half line is taken back. */
	ck_assert_str_eq(get(), before);
	free(before);

	/* Room for its name, not for its init. */
	room(RLIM_INFINITY);
	struct orch_scope_opts opts;
	orch_scope_opts_init(&opts, sizeof(opts));
	size_t length = strlen(get());
	OK(orch_scope_new(ctx, &opts, &scope, e));
	ck_assert_uint_gt(strlen(get()), length);
	room(5);
	orch_proc *proc = spawn(scope, ARGV("sleep", "1000"));
	error = NULL;
	ck_assert_int_lt(orch_scope_start_wait(scope, 20000, &error), 0);
	ck_assert_str_eq(orch_error_step(error), "record");
	orch_error_free(error);
	ck_assert_int_lt(orch_proc_wait(proc, 20000, NULL, NULL), 0);
	ck_assert_int_eq(orch_proc_pid(proc), 0);
	death = stop(scope, 0);
	ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_DEAD);
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	room(RLIM_INFINITY);
	orch_ctx_unref(ctx);
	/* It has no end: that could not be written either. */
	ck_assert_uint_eq(count_of(), 1);
	end();
}
END_TEST

/* A host that makes scopes for ever has no file that grows for ever. */
START_TEST(written_anew_when_it_has_grown)
{
	struct record *record = NULL;
	struct identity helper = {.pid = 1, .start_time = 2};
	struct stat status;
	char name[RECORD_NAME_SIZE], label[256];
	off_t most = 0;
	begin();
	memset(label, 'x', sizeof(label) - 1);
	label[sizeof(label) - 1] = '\0';
	OK(record_open(path, true, &record, e));
	OK(record_named(record, NAME, label, &helper, e));
	OK(record_up(record, NAME, ORCH_RUNG_PIDNS, &helper, 14, "", e));
	for (unsigned i = 0; i < 6000; i++) {
		snprintf(name, sizeof(name), "orch-%016x", i);
		OK(record_named(record, name, label, &helper, e));
		OK(record_end(record, name, e));
		ck_assert_int_eq(stat(path, &status), 0);
		most = status.st_size > most ? status.st_size : most;
	}
	ck_assert_int_lt(most, 1200 * 1024);
	ck_assert_int_gt(most, 1024 * 1024);
	record_close(record);
	OK(record_open(path, false, &record, e));
	ck_assert_uint_eq(record->count, 1);
	ck_assert_str_eq(record->scopes->name, NAME);
	ck_assert_uint_eq(record->scopes->rung, ORCH_RUNG_PIDNS);
	ck_assert_str_eq(record->scopes->label, label);
	record_close(record);
	end();
}
END_TEST

/* A worker that the host forks does not hold the record, and can not use it. */
START_TEST(forked_worker)
{
	int status;
	begin();
	orch_ctx *ctx = ctx_new();
	OK(orch_reaper_record(ctx, path, e));
	unsigned fds = open_fds();
	int ends[2];
	char byte;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	pid_t worker = fork();
	if (worker == 0) {
		/* Less its copy of the lock. */
		int good = open_fds() == fds + 2 - 1 && orch_reaper_record(ctx, path, NULL) == ORCH_EFORKED;
		close(ends[1]);
		_exit(!good || write(ends[0], "", 1) != 1 || read(ends[0], &byte, 1) != 0);
	}
	close(ends[0]);
	/* Its copy is closed on its way out of fork(). */
	ck_assert_int_eq(read(ends[1], &byte, 1), 1);
	orch_ctx_unref(ctx);
	ck_assert_uint_eq(count_of(), 0);
	close(ends[1]);
	ck_assert_int_eq(waitpid(worker, &status, 0), worker);
	ck_assert_int_eq(status, 0);
	end();
}
END_TEST

int fake_helper(const char *name)
{
	(void)name;
	return 2;
}

Suite *suite(void)
{
	Suite *all = suite_create("reaper-record");
	TCase *tests = tcase_create("all");
	tcase_add_test(tests, arguments);
	tcase_add_test(tests, of_another_boot);
	tcase_add_test(tests, of_an_unknown_boot);
	tcase_add_test(tests, torn_at_every_byte);
	tcase_add_test(tests, damaged);
	tcase_add_test(tests, scopes_are_written_down);
	tcase_add_test(tests, waits_only_outside_of_callbacks);
	tcase_add_test(tests, what_can_not_be_written_is_not_started);
	tcase_add_test(tests, written_anew_when_it_has_grown);
	tcase_add_test(tests, forked_worker);
	tcase_set_timeout(tests, 80);
	suite_add_tcase(all, tests);
	return all;
}

int main(int argc, char **argv)
{
	return fixture_main(argc, argv);
}
