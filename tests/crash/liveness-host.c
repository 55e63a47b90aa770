/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the helper, helpers that are none, and awkward hosts: SIGCHLD ignored, a thread in waitpid(-1), fork,
 * waiting inside callbacks. Also connections into a scope.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#include "liveness-fixture.h"
#include "reaper/wire.h"

/* --- the helper -------------------------------------------------------------------------------------------- */

static void helper_dies(int signal)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct deaths deaths = {0};
	orch_error *error = NULL;
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	pid_t helper = parent_of(watched.init_pid);
	ck_assert_int_gt(helper, 1);
	ck_assert_int_eq(kill(helper, signal), 0);
	ck_assert_int_eq(orch_proc_wait(proc, 15000, NULL, &error), ORCH_EHELPER);
	orch_error_free(error);
	orch_proc_unref(proc);
	loop_until(ctx, &deaths.count);
	ck_assert_msg(orch_death_verdict(deaths.last) == ORCH_DEATH_DEAD ||
			      orch_death_verdict(deaths.last) == ORCH_DEATH_DEAD_UNREAPED,
		      "%s", orch_death_text(deaths.last));
	ck_assert(strstr(orch_death_proof(deaths.last), "the host's pidfd of init"));
	ck_assert_uint_eq(with_word(watched.word), 0);
	if (watched.cgroup[0])
		ck_assert_int_eq(access(watched.cgroup, F_OK), -1);
	ck_assert_int_eq(deaths.destroyed, 1);
	/* The next scope gets a new helper. */
	orch_scope *next = scope_new(ctx);
	ck_assert_int_eq(run(next, ARGV("true")), 0);
	ck_assert_int_ne(parent_of(orch_scope_init_pid(next)), helper);
	ck_assert_int_eq(orch_scope_spawn(scope, &(struct orch_proc_opts){.size = sizeof(struct orch_proc_opts),
									    .argv = ARGV("true")},
					  NULL, NULL),
			 ORCH_EHELPER);
	orch_death_unref(deaths.last);
	orch_scope_unref(next);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

START_TEST(helper_killed)
{
	helper_dies(SIGKILL);
	helper_dies(SIGTERM);
}
END_TEST

START_TEST(helper_that_does_not_answer)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct orch_stop_opts opts;
	orch_death *death = NULL;
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	pid_t helper = parent_of(watched.init_pid);
	ck_assert_int_eq(kill(helper, SIGSTOP), 0);
	orch_stop_opts_init(&opts);
	opts.deadline_ms = 300;
	int64_t before = orch_monotonic_us();
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	ck_assert_int_le(orch_monotonic_us() - before, 400000);
	ck_assert_uint_ne(orch_death_verdict(death), ORCH_DEATH_DEAD);
	ck_assert_int_eq(kill(helper, SIGCONT), 0);
	for (int i = 0; i < 500 && exists(watched.init_pid); i++)
		pause_ms(10);
	assert_nothing_left(&watched);
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static void assert_helper_refused(const char *path, const char *message)
{
	orch_ctx *ctx = ctx_new_with(path);
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	struct orch_scope_opts opts;
	orch_scope_opts_init(&opts);
	opts.setup_timeout_ms = 100;
	int32_t code = orch_scope_new(ctx, &opts, &scope, &error);
	if (code == 0)
		code = orch_scope_start_wait(scope, 10000, &error);
	ck_assert_msg(code == ORCH_EHELPER || code == ORCH_ETIMEDOUT, "%d", code);
	ck_assert_msg(strstr(orch_error_message(error), message) != NULL, "%s", orch_error_message(error));
	orch_error_free(error);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

/* This program in the helper's place, chosen by the name it is called by. */
int fake_helper(const char *name)
{
	struct wire_packet packet = wire_packet(WIRE_HELLO, 0, 0);
	char byte[4096];
	if (strcmp(name, "fake-other-version") == 0)
		wire_copy(packet.message.text, WIRE_TEXT_MAX, "0.0.9");
	if (strcmp(name, "fake-garbage") == 0)
		(void)!send(3, "garbage", 7, MSG_NOSIGNAL);
	else if (strcmp(name, "fake-silent") != 0)
		wire_send(3, &packet);
	fcntl(3, F_SETFL, 0);
	while (recv(3, byte, sizeof(byte), 0) > 0)
		;
	return 0;
}

START_TEST(helpers_that_are_none)
{
	static const struct {
		const char *name, *message;
	} fakes[] = {{"fake-other-version", "is of version 0.0.9"},
		     {"fake-garbage", "speaks another protocol"},
		     {"fake-silent", "does not answer"}};
	char path[128];
	assert_helper_refused("/nowhere/orch-reaper", "/nowhere/orch-reaper");
	assert_helper_refused("/etc/passwd", "can not be executed");
	assert_helper_refused("/bin/true", "ended before it answered");
	for (size_t i = 0; i < sizeof(fakes) / sizeof(*fakes); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, fakes[i].name);
		assert_helper_refused(path, fakes[i].message);
	}
}
END_TEST

START_TEST(helper_is_found_beside_the_library)
{
	const char *build = getenv("ORCH_BUILD_ROOT");
	orch_ctx *ctx = ctx_new_with(NULL);
	char expected[512], *path = NULL;
	ck_assert_ptr_nonnull(build);
	OK(orch_reaper_find_helper(ctx, &path, e));
	snprintf(expected, sizeof(expected), "%s/lib/helper/orch-reaper", build);
	ck_assert_str_eq(path, is_root() ? expected : path);
	free(path);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- hosts ------------------------------------------------------------------------------------------------- */

START_TEST(host_that_ignores_sigchld)
{
	signal(SIGCHLD, SIG_IGN);
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", "true & wait; exit 6")), 6);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static atomic_bool waiter_ends;

static void *wait_for_everybody(void *argument)
{
	atomic_int *reaped = argument;
	while (!atomic_load(&waiter_ends))
		if (waitpid(-1, NULL, 0) > 0)
			atomic_fetch_add(reaped, 1);
		else
			usleep(200);
	return NULL;
}

START_TEST(host_with_a_thread_in_waitpid)
{
	static atomic_int reaped;
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_everybody, &reaped), 0);
	for (int round = 0; round < 3; round++) {
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_new(ctx);
		for (int i = 0; i < 20; i++)
			ck_assert_int_eq(run(scope, ARGV("sh", "-c", "exit 6")), 6);
		orch_death *death = stop(scope, 0);
		assert_dead(death);
		orch_death_unref(death);
		orch_scope_unref(scope);
		orch_ctx_unref(ctx);
	}
	if (fork() == 0)
		_exit(0);
	for (int i = 0; i < 200 && atomic_load(&reaped) == 0; i++)
		pause_ms(10);
	/* Control: the thread does steal. */
	ck_assert_int_ge(atomic_load(&reaped), 1);
	atomic_store(&waiter_ends, true);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(after_fork)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct orch_proc_opts opts;
	orch_proc *proc = spawn(scope, ARGV("sleep", "1000"));
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	orch_proc_opts_init(&opts);
	opts.argv = ARGV("true");
	pid_t child = fork();
	if (child == 0) {
		int wrong = 0;
		wrong += orch_scope_new(ctx, NULL, &(orch_scope *){NULL}, NULL) != ORCH_EFORKED;
		wrong += orch_scope_spawn(scope, &opts, NULL, NULL) != ORCH_EFORKED;
		wrong += orch_scope_stop(scope, NULL, NULL, NULL, NULL, NULL) != ORCH_EFORKED;
		wrong += orch_scope_stop_wait(scope, NULL, NULL, NULL) != ORCH_EFORKED;
		wrong += orch_scope_start_wait(scope, 10, NULL) != ORCH_EFORKED;
		wrong += orch_proc_signal(proc, SIGKILL, NULL) != ORCH_EFORKED;
		wrong += orch_proc_wait(proc, 10, NULL, NULL) != ORCH_EFORKED;
		orch_proc_unref(proc);
		orch_scope_unref(scope);
		orch_ctx_unref(ctx);
		_exit(wrong);
	}
	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert(exists(watched.init_pid));
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", "exit 4")), 4);
	orch_proc_unref(proc);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	assert_nothing_left(&watched);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

struct deadlock {
	orch_scope *scope;
	int done;
	int32_t codes[3];
};

static void on_start_in_callback(void *userdata, orch_scope *scope, const orch_error *error)
{
	struct deadlock *deadlock = userdata;
	ck_assert_ptr_null(error);
	deadlock->codes[0] = orch_scope_stop_wait(scope, NULL, NULL, NULL);
	deadlock->codes[1] = orch_scope_start_wait(scope, 10, NULL);
	deadlock->done++;
}

START_TEST(waiting_in_callbacks)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct deadlock deadlock = {.scope = scope};
	int destroyed = 0;
	OK(orch_scope_on_start(scope, on_start_in_callback, &deadlock, NULL, e));
	ck_assert_int_eq(orch_scope_on_start(scope, NULL, &destroyed, count, NULL), ORCH_EINVAL);
	ck_assert_int_eq(destroyed, 1);
	loop_until(ctx, &deadlock.done);
	ck_assert_int_eq(deadlock.codes[0], ORCH_EDEADLK);
	ck_assert_int_eq(deadlock.codes[1], ORCH_EDEADLK);
	/* It was not stopped by the refused call, and a late registration is served in the next turn. */
	OK(orch_scope_on_start(scope, on_start_in_callback, &deadlock, NULL, e));
	ck_assert_int_eq(deadlock.done, 1);
	ck_assert_int_eq(run(scope, ARGV("true")), 0);
	ck_assert_int_eq(deadlock.done, 2);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

struct connection {
	int done;
	int fd;
	int os_errno;
};

static void on_connect(void *userdata, int32_t fd, const orch_error *error)
{
	struct connection *connection = userdata;
	connection->fd = fd;
	connection->os_errno = orch_error_errno(error);
	connection->done++;
}

START_TEST(connections_into_the_scope)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 5), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct connection good = {0}, bad = {0};
	uint16_t port = ntohs(address.sin_port);
	ck_assert_int_eq(orch_scope_connect(scope, port, on_connect, &good, NULL, NULL), ORCH_ESTATE);
	OK(orch_scope_start_wait(scope, 10000, e));
	OK(orch_scope_connect(scope, port, on_connect, &good, NULL, e));
	loop_until(ctx, &good.done);
	ck_assert_int_ge(good.fd, 0);
	ck_assert_int_eq(fcntl(good.fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	ck_assert_int_eq(fcntl(good.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	int accepted = accept(listener, NULL, NULL);
	ck_assert_int_eq(write(good.fd, "ping", 4), 4);
	char text[5] = "";
	ck_assert_int_eq(read(accepted, text, 4), 4);
	ck_assert_str_eq(text, "ping");
	close(accepted);
	close(good.fd);
	close(listener);
	OK(orch_scope_connect(scope, port, on_connect, &bad, NULL, e));
	loop_until(ctx, &bad.done);
	ck_assert_int_eq(bad.fd, -1);
	ck_assert_int_eq(bad.os_errno, ECONNREFUSED);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- running ---------------------------------------------------------------------------------------------- */

Suite *suite(void)
{
	Suite *all = suite_create("liveness-host");
	TCase *helpers = tcase_create("helpers");
	TCase *hosts = tcase_create("hosts");
	tcase_add_test(helpers, helper_killed);
	tcase_add_test(helpers, helper_that_does_not_answer);
	tcase_add_test(helpers, helpers_that_are_none);
	tcase_add_test(helpers, helper_is_found_beside_the_library);
	tcase_add_test(hosts, host_that_ignores_sigchld);
	tcase_add_test(hosts, host_with_a_thread_in_waitpid);
	tcase_add_test(hosts, after_fork);
	tcase_add_test(hosts, waiting_in_callbacks);
	tcase_add_test(hosts, connections_into_the_scope);
	TCase *cases[] = {helpers, hosts};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(all, cases[i]);
	}
	return all;
}

int main(int argc, char **argv)
{
	return fixture_main(argc, argv);
}
