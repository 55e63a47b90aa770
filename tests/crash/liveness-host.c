/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the helper, helpers that are none, and awkward hosts: SIGCHLD ignored, a thread in
 * waitpid(-1), fork, waiting inside callbacks. Also connections into a scope.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#include "liveness-fixture.h"
#include "hung-mount.h"
#include "reaper/wire.h"

/* --- the helper ------------------------------------------------------------------------ */

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
	ck_assert_int_eq(
	    orch_scope_spawn(scope,
			     &(struct orch_proc_opts){.size = sizeof(struct orch_proc_opts),
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
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = 300;
	int64_t before = orch_monotonic_us();
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	ck_assert_int_le(orch_monotonic_us() - before, 2000000);
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
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.setup_timeout_ms = 100;
	int32_t code = orch_scope_new(ctx, &opts, &scope, &error);
	if (code == 0)
		code = orch_scope_start_wait(scope, 10000, &error);
	ck_assert_msg(code == ORCH_EHELPER || code == ORCH_ETIMEDOUT, "%d", code);
	ck_assert_msg(strstr(orch_error_message(error), message) != NULL, "%s",
		      orch_error_message(error));
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

/* --- the messages ---------------------------------------------------------------------- */

START_TEST(frames)
{
	uint8_t frame[WIRE_FRAME_SIZE], broken[WIRE_FRAME_SIZE];
	struct wire_message message;
	struct wire_packet packet = wire_packet(WIRE_SCOPE_UP, 7, 9);
	packet.message.flags = WIRE_LISTENER;
	packet.message.code = -5;
	packet.message.value = -70000;
	packet.message.number[WIRE_NUMBERS - 1] = 0x1122334455667788u;
	wire_copy(packet.message.step, WIRE_STEP_MAX, "mount.proc");
	wire_copy(packet.message.text, WIRE_TEXT_MAX, "text");
	wire_encode(&packet.message, 2, frame);
	ck_assert_int_eq(wire_decode(frame, sizeof(frame), 2, &message), 0);
	ck_assert_mem_eq(&message, &packet.message, sizeof(message));
	/* Descriptors: as many as declared, and as many as the type may have. */
	ck_assert_int_eq(wire_decode(frame, sizeof(frame), 1, &message), -EPROTO);
	ck_assert_int_eq(wire_decode(frame, sizeof(frame), WIRE_ANY_FDS, &message), 0);
	packet.message.type = WIRE_CONNECTED;
	wire_encode(&packet.message, 2, frame);
	ck_assert_int_eq(wire_decode(frame, sizeof(frame), 2, &message), -EPROTO);
	packet.message.type = WIRE_SCOPE_UP;
	wire_encode(&packet.message, 5, frame);
	ck_assert_int_eq(wire_decode(frame, sizeof(frame), 5, &message), -EPROTO);
	wire_encode(&packet.message, 1, frame);
	for (size_t length = 0; length < sizeof(frame); length++)
		ck_assert_int_eq(wire_decode(frame, length, 1, &message), -EPROTO);
	memcpy(broken, frame, sizeof(frame));
	broken[4]++;
	ck_assert_int_eq(wire_decode(broken, sizeof(broken), 1, &message), -EPROTONOSUPPORT);
	memcpy(broken, frame, sizeof(frame));
	memset(broken + sizeof(broken) - WIRE_TEXT_MAX, 'x', WIRE_TEXT_MAX);
	ck_assert_int_eq(wire_decode(broken, sizeof(broken), 1, &message), -EPROTO);
	/* Whatever comes, what is accepted is terminated and of a known type. */
	srandom(1);
	for (int round = 0; round < 20000; round++) {
		memcpy(broken, frame, sizeof(frame));
		for (int i = 0; i < 4; i++)
			broken[(size_t)random() % (round % 2 ? 40 : sizeof(broken))] =
			    (uint8_t)random();
		if (wire_decode(broken, sizeof(broken), 1, &message) < 0)
			continue;
		ck_assert(message.type > 0 && message.type < WIRE_TYPES);
		ck_assert_ptr_nonnull(memchr(message.text, 0, WIRE_TEXT_MAX));
		ck_assert_ptr_nonnull(memchr(message.step, 0, WIRE_STEP_MAX));
	}
}
END_TEST

/* --- hosts ----------------------------------------------------------------------------- */

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
	orch_proc_opts_init(&opts, sizeof(opts));
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
	/* It was not stopped by the refused call, and a late registration is served in the next
	 * turn. */
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
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 5), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct connection good = {0}, bad = {0};
	uint16_t port = ntohs(address.sin_port);
	ck_assert_int_eq(orch_scope_connect(scope, port, on_connect, &good, NULL, NULL),
			 ORCH_ESTATE);
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

/* Handles may be dropped by any thread; the owner does the work. */
static void *drop_all(void *argument)
{
	void **handles = argument;
	orch_proc_unref(handles[0]);
	orch_scope_unref(handles[1]);
	return NULL;
}

START_TEST(unref_in_another_thread)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	pthread_t thread;
	void *handles[] = {proc, scope};
	ck_assert_int_eq(pthread_create(&thread, NULL, drop_all, handles), 0);
	pthread_join(thread, NULL);
	ck_assert(exists(watched.init_pid));
	for (int i = 0; i < 500 && exists(watched.init_pid); i++) {
		OK(orch_ctx_process(ctx, e));
		pause_ms(10);
	}
	assert_nothing_left(&watched);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- what only root can arrange -------------------------------------------------------- */

START_TEST(load_that_makes_cgroups)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	char command[1200];
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	snprintf(command, sizeof(command),
		 "cd %s && mkdir -p a/b c && echo 0 >a/b/cgroup.procs && test -n \"$(cat "
		 "a/b/cgroup.procs)\"; r=$?; "
		 "sleep 1000 & exit $r",
		 watched.cgroup);
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", command)), 0);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	assert_nothing_left(&watched);
	ck_assert(strstr(orch_death_proof(death), "leaf is removed"));
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static int in_delegated_group(void *unused)
{
	struct orch_scope_opts opts;
	orch_scope *scope = NULL;
	(void)unused;
	if (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 ||
	    setresuid(USER, USER, USER) < 0)
		return 1;
	orch_ctx *ctx = ctx_new();
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = ORCH_RUNG_CGROUP_PIDNS;
	OK(orch_scope_new(ctx, &opts, &scope, e));
	OK(orch_scope_start_wait(scope, 10000, e));
	ck_assert_uint_eq(orch_scope_rung(scope), ORCH_RUNG_CGROUP_PIDNS);
	struct watched watched = watch(scope);
	ck_assert_int_eq(run(scope, LOAD("awkward", watched.word)), 0);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	ck_assert(strstr(orch_death_proof(death), "populated 0"));
	assert_nothing_left(&watched);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	return 0;
}

/* What systemd-run --user --scope -p Delegate=yes gives an ordinary user. */
START_TEST(user_in_a_delegated_cgroup)
{
	char group[300], path[400];
	static const char *const files[] = {".", "cgroup.procs", "cgroup.threads",
					    "cgroup.subtree_control"};
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 10000, e));
	snprintf(group, sizeof(group), "%s", orch_scope_cgroup(scope));
	snprintf(strrchr(group, '/'), 64, "/delegated-%d", (int)getpid());
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	ck_assert_int_eq(mkdir(group, 0755), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "%s/%s", group, files[i]);
		ck_assert_int_eq(chown(path, USER, USER), 0);
	}
	pid_t child = fork();
	if (child == 0) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", group);
		FILE *procs = fopen(path, "w");
		if (!procs || fprintf(procs, "0") < 0 || fclose(procs) != 0)
			_exit(98);
		exit(in_delegated_group(NULL));
	}
	int status = -1;
	waitpid(child, &status, 0);
	for (int i = 0; i < 300 && rmdir(group) < 0 && errno == EBUSY; i++)
		pause_ms(10);
	ck_assert_int_eq(access(group, F_OK), -1);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(hung_mount)
{
	struct hung_mount hole;
	char below[160];
	struct orch_proc_opts opts;
	struct orch_stop_opts stop_opts;
	orch_death *death = NULL;
	if (!hung_mount_make(&hole, folder)) {
		printf("skipped: hung_mount: no /dev/fuse here\n");
		return;
	}

	orch_ctx *ctx = ctx_new();
	orch_scope *hung = scope_new(ctx), *free_one = scope_new(ctx);
	OK(orch_scope_start_wait(hung, 10000, e));
	OK(orch_scope_start_wait(free_one, 10000, e));
	struct watched watched = watch(hung);
	snprintf(below, sizeof(below), "%s/below", hole.where);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.cwd = below;
	orch_proc *proc = spawn_opts(hung, &opts, ARGV("true"));
	ck_assert_int_eq(orch_proc_wait(proc, 300, NULL, NULL), ORCH_ETIMEDOUT);
	/* Nobody else waits for it: not another program of the scope, not another scope's end. */
	ck_assert_int_eq(run(hung, ARGV("sh", "-c", "exit 3")), 3);
	orch_stop_opts_init(&stop_opts, sizeof(stop_opts));
	stop_opts.deadline_ms = 3000;
	OK(orch_scope_stop(hung, &stop_opts, NULL, NULL, NULL, e));
	int64_t before = orch_monotonic_us();
	OK(orch_scope_stop_wait(free_one, NULL, &death, e));
	assert_dead(death);
	ck_assert_int_lt(orch_monotonic_us() - before, 2000000);
	orch_death_unref(death);
	OK(orch_scope_stop_wait(hung, &stop_opts, &death, e));
	ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_SURVIVORS, "%s",
		      orch_death_text(death));
	bool sleeps = false;
	for (uint32_t i = 0; i < orch_death_survivor_count(death); i++) {
		const char *state, *wchan;
		orch_death_survivor(death, i, NULL, NULL, &state, &wchan);
		sleeps |= strcmp(state, "D") == 0 && strstr(wchan, "request_wait");
	}
	ck_assert_msg(sleeps, "%s", orch_death_text(death));
	orch_death_unref(death);
	hung_mount_release(&hole);
	for (int i = 0; i < 300 && (exists(watched.init_pid) || access(watched.cgroup, F_OK) == 0);
	     i++)
		pause_ms(10);
	assert_nothing_left(&watched);
	hung_mount_end(&hole);
	orch_proc_unref(proc);
	orch_scope_unref(hung);
	orch_scope_unref(free_one);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- running --------------------------------------------------------------------------- */

Suite *suite(void)
{
	Suite *all = suite_create("liveness-host");
	TCase *helpers = tcase_create("helpers");
	TCase *hosts = tcase_create("hosts");
	tcase_add_test(helpers, helper_killed);
	tcase_add_test(helpers, helper_that_does_not_answer);
	tcase_add_test(helpers, helpers_that_are_none);
	tcase_add_test(helpers, helper_is_found_beside_the_library);
	tcase_add_test(helpers, frames);
	tcase_add_test(hosts, host_that_ignores_sigchld);
	tcase_add_test(hosts, host_with_a_thread_in_waitpid);
	tcase_add_test(hosts, after_fork);
	tcase_add_test(hosts, waiting_in_callbacks);
	tcase_add_test(hosts, connections_into_the_scope);
	tcase_add_test(hosts, unref_in_another_thread);
	if (is_root()) {
		tcase_add_test(hosts, load_that_makes_cgroups);
		tcase_add_test(hosts, user_in_a_delegated_cgroup);
		tcase_add_test(hosts, hung_mount);
	} else {
		printf("not root: cgroups of the load, delegated cgroup, hung mount not tried\n");
	}
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
