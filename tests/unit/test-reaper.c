/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes: programs in them and their end. The judge looks from outside (liveness-judge.h). The
 * helper and the host's side are in tests/crash/liveness-host.c.
 */
#include <sched.h>
#include <sys/ptrace.h>

#include "../crash/liveness-fixture.h"

/* --- programs -------------------------------------------------------------------------- */

START_TEST(exit_codes)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	orch_proc *procs[256];
	ck_assert_int_eq(run(scope, ARGV("true")), 0);
	ck_assert_int_eq(run(scope, ARGV("false")), 1);
	for (int code = 0; code < 256; code++) {
		char text[32];
		snprintf(text, sizeof(text), "exit %d", code);
		procs[code] = spawn(scope, ARGV("/bin/sh", "-c", text));
	}
	for (int code = 0; code < 256; code++)
		ck_assert_int_eq(wait_status(procs[code]), code);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(ended_by_signals)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	static const int signals[] = {SIGKILL, SIGTERM, SIGUSR1, SIGHUP, SIGALRM};
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		char text[32];
		snprintf(text, sizeof(text), "kill -%d $$; sleep 5", signals[i]);
		ck_assert_int_eq(run(scope, ARGV("sh", "-c", text)), 256 + signals[i]);
	}
	orch_proc *proc = spawn(scope, ARGV("sleep", "100"));
	OK(orch_proc_signal(proc, SIGINT, e));
	int32_t status = 0;
	OK(orch_proc_wait(proc, 20000, &status, e));
	ck_assert_int_eq(status, 256 + SIGINT);
	ck_assert_int_eq(orch_proc_term_signal(proc), SIGINT);
	ck_assert_int_eq(orch_proc_exit_code(proc), -1);
	ck_assert_int_eq(orch_proc_signal(proc, SIGINT, NULL), ORCH_ESTATE);
	ck_assert_int_eq(orch_proc_signal(proc, 0, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_proc_signal(proc, 1000, NULL), ORCH_EINVAL);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static void assert_spawn_fails(orch_scope *scope, struct orch_proc_opts *opts,
			       const char *const *argv, int os_errno, const char *step)
{
	orch_error *error = NULL;
	orch_proc *proc = spawn_opts(scope, opts, argv);
	ck_assert_int_eq(orch_proc_wait(proc, 20000, NULL, &error), ORCH_ESPAWN);
	ck_assert_int_eq(orch_error_errno(error), os_errno);
	ck_assert_str_eq(orch_error_step(error), step);
	ck_assert_str_eq(orch_error_message(orch_proc_error(proc)), orch_error_message(error));
	ck_assert_int_eq(orch_proc_exit_code(proc), -1);
	orch_error_free(error);
	orch_proc_unref(proc);
}

START_TEST(programs_that_can_not_start)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	assert_spawn_fails(scope, &opts, ARGV("/nowhere/program"), ENOENT, "exec");
	assert_spawn_fails(scope, &opts, ARGV("no-such-program-anywhere"), ENOENT, "exec");
	assert_spawn_fails(scope, &opts, ARGV("/etc/passwd"), EACCES, "exec");
	opts.cwd = "/nowhere";
	assert_spawn_fails(scope, &opts, ARGV("true"), ENOENT, "cwd");
	opts.cwd = NULL;
	/* A scope goes on after that, and exit 127 is a program's own. */
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", "exit 127")), 127);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static void read_all(int fd, char *text, size_t size)
{
	size_t length = 0;
	ssize_t got;
	while (length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
}

START_TEST(stdio_environment_and_folder)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct orch_proc_opts opts;
	int in[2], out[2];
	char text[1024];
	ck_assert(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdin_fd = in[0];
	opts.stdout_fd = opts.stderr_fd = out[1];
	opts.cwd = "/usr";
	opts.envp = ARGV("PATH=/bin:/usr/bin", "COLOUR=red");
	orch_proc *proc =
	    spawn_opts(scope, &opts, ARGV("sh", "-c", "cat; pwd; env | sort; echo e >&2"));
	close(in[0]);
	close(out[1]);
	ck_assert(write(in[1], "hello\n", 6) == 6);
	close(in[1]);
	ck_assert_int_eq(wait_status(proc), 0);
	read_all(out[0], text, sizeof(text));
	close(out[0]);
	ck_assert_str_eq(text, "hello\n/usr\nCOLOUR=red\nPATH=/bin:/usr/bin\nPWD=/usr\ne\n");

	/* Nothing of the host's environment comes through. */
	setenv("SECRET_OF_THE_HOST", "1", 1);
	ck_assert_int_eq(
	    run(scope, ARGV("sh", "-c", "test -z \"$SECRET_OF_THE_HOST\" && test -n \"$PATH\"")),
	    0);
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", "test \"$(cat | wc -c)\" = 0")), 0);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(programs_start_clean)
{
	/* What a host may have left: ignored and blocked signals, descriptors without
	 * close-on-exec. */
	sigset_t blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	for (int i = 0; i < 20; i++)
		ck_assert(dup(1) >= 0);
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	ck_assert_int_eq(run(scope, LOAD("fds")), 0);
	ck_assert_int_eq(run(scope, LOAD("state")), 0);
	/* Control: a shell that is given one descriptor more is found out. */
	ck_assert_int_eq(
	    run(scope, ARGV("sh", "-c", "exec 5</dev/null; exec $0 --load fds", self_path)), 1);
	/* /proc inside is the namespace's own. */
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", "test \"$(cat /proc/1/comm)\" = orch-init")),
			 0);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(events_come_once_each)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct events good = {0}, bad = {0}, stopped = {0}, refused = {0};
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.event = on_event;
	opts.destroy = on_events_destroyed;
	opts.userdata = &good;
	opts.argv = ARGV("true");
	OK(orch_scope_spawn(scope, &opts, NULL, e));
	opts.userdata = &bad;
	opts.argv = ARGV("/nowhere");
	OK(orch_scope_spawn(scope, &opts, NULL, e));
	loop_until(ctx, &bad.destroyed);
	loop_until(ctx, &good.destroyed);
	ck_assert_int_eq(good.count, 2);
	ck_assert_uint_eq(good.seen[0], ORCH_PROC_STARTED);
	ck_assert_uint_eq(good.seen[1], ORCH_PROC_EXITED);
	ck_assert_int_eq(bad.count, 1);
	ck_assert_uint_eq(bad.seen[0], ORCH_PROC_FAILED);
	opts.userdata = &stopped;
	opts.argv = ARGV("sleep", "100");
	OK(orch_scope_spawn(scope, &opts, NULL, e));
	loop_until(ctx, &stopped.count);
	orch_death_unref(stop(scope, 0));
	ck_assert_int_eq(stopped.count, 2);
	ck_assert_uint_eq(stopped.seen[1], ORCH_PROC_EXITED);
	opts.userdata = &refused;
	ck_assert_int_eq(orch_scope_spawn(scope, &opts, NULL, NULL), ORCH_ECLOSED);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	ck_assert_int_eq(good.destroyed, 1);
	ck_assert_int_eq(bad.destroyed, 1);
	ck_assert_int_eq(stopped.destroyed, 1);
	ck_assert_int_eq(refused.destroyed, 1);
	ck_assert_int_eq(refused.count, 0);
}
END_TEST

START_TEST(bad_arguments)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = NULL;
	struct orch_scope_opts scope_opts;
	struct orch_proc_opts opts;
	struct orch_stop_opts stop_opts;
	orch_error *error = NULL;
	ck_assert_int_eq(orch_scope_new(NULL, NULL, &scope, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_scope_new(ctx, NULL, NULL, NULL), ORCH_EINVAL);
	orch_scope_opts_init(&scope_opts, sizeof(scope_opts));
	scope_opts.least_rung = 9;
	ck_assert_int_eq(orch_scope_new(ctx, &scope_opts, &scope, NULL), ORCH_EINVAL);
	ck_assert_ptr_null(scope);
	scope = scope_new(ctx);
	orch_proc_opts_init(&opts, sizeof(opts));
	ck_assert_int_eq(orch_scope_spawn(scope, NULL, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_scope_spawn(scope, &opts, NULL, NULL), ORCH_EINVAL);
	opts.argv = ARGV("true");
	opts.stdout_fd = 999;
	ck_assert_int_eq(orch_scope_spawn(scope, &opts, NULL, &error), ORCH_EINVAL);
	ck_assert(strstr(orch_error_message(error), "stdout_fd 999"));
	orch_error_free(error);
	opts.stdout_fd = -1;
	opts.cwd = "relative";
	ck_assert_int_eq(orch_scope_spawn(scope, &opts, NULL, NULL), ORCH_EINVAL);
	opts.cwd = NULL;
	opts.envp = ARGV("NOTHING");
	ck_assert_int_eq(orch_scope_spawn(scope, &opts, NULL, NULL), ORCH_EINVAL);
	opts.envp = NULL;
	char *large = malloc(1024 * 1024 + 1);
	memset(large, 'x', 1024 * 1024);
	large[1024 * 1024] = '\0';
	opts.argv = ARGV("true", large);
	ck_assert_int_eq(orch_scope_spawn(scope, &opts, NULL, NULL), ORCH_ETOOBIG);
	/* The kernel's own limit for one string is 128 KiB: many of them are fine. */
	const char *many[10] = {"true"};
	large[100 * 1024] = '\0';
	for (int i = 1; i < 9; i++)
		many[i] = large;
	ck_assert_int_eq(run(scope, many), 0);
	free(large);
	orch_stop_opts_init(&stop_opts, sizeof(stop_opts));
	stop_opts.grace_ms = 5000;
	stop_opts.deadline_ms = 4000;
	ck_assert_int_eq(orch_scope_stop_wait(scope, &stop_opts, NULL, NULL), ORCH_EINVAL);
	orch_scope_unref(scope);
	orch_scope_unref(NULL);
	orch_proc_unref(NULL);
	orch_death_unref(NULL);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- stopping -------------------------------------------------------------------------- */

/* Without a cgroup it counts for 50 ms, and a slow or crowded machine may have shown it nobody by then. */
static void assert_alive_at_request(orch_death *death, unsigned least)
{
	ck_assert_uint_ge(orch_death_alive_at_request(death), has_delegation() ? least : 0);
}

static void stop_load(const char *load, unsigned least, int settle_ms, uint32_t grace_ms)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 10000, e));
	ck_assert_uint_eq(orch_scope_rung(scope),
			  has_delegation() ? ORCH_RUNG_CGROUP_PIDNS : ORCH_RUNG_PIDNS);
	struct watched watched = watch(scope);
	orch_proc *proc = spawn(scope, LOAD(load, watched.word));
	pause_ms(settle_ms);
	/* Control: the judge sees the load before the stop. */
	unsigned seen = 0, members = 0;
	for (int i = 0; i < 500 && (seen < least || members < least); i++) {
		pause_ms(i ? 10 : 0);
		seen = with_word(watched.word);
		members = in_pidns(watched.inode, watched.init_pid);
		if (least == 1)
			look_at_newest(watched.word, &seen, watched.inode, watched.init_pid, &members);
	}
	ck_assert_uint_ge(seen, least);
	ck_assert_uint_ge(members, least);
	orch_death *death = stop(scope, grace_ms);
	assert_nothing_left(&watched);
	assert_dead(death);
	assert_alive_at_request(death, least);
	ck_assert_uint_eq(orch_death_pidns_inode(death), watched.inode);
	ck_assert_str_eq(orch_death_scope(death), orch_scope_name(scope));
	ck_assert(!!strstr(orch_death_proof(death), "populated 0") == has_delegation());
	ck_assert(llabs(orch_death_requested_at_ms(death) - orch_realtime_ms()) < 20000);
	ck_assert(strstr(orch_death_text(death), "DEAD  scope orch-"));
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

START_TEST(detached_and_deaf_is_dead)
{
	stop_load("awkward", 1, 20, 0);
	stop_load("awkward", 1, 20, 50);
}
END_TEST

START_TEST(fork_and_exit_is_dead)
{
	stop_load("hoppers", 1, 100, 0);
}
END_TEST

START_TEST(three_hundred_are_dead)
{
	stop_load("grow", 250, 0, 0);
}
END_TEST

/* Zombies of a fork storm were seen to take every pid of the machine. For root there is no such limit: the control. */
START_TEST(processes_of_a_user_are_limited)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	ck_assert_int_eq(run(scope, LOAD("fill")), is_root() ? 2 : 0);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(grace_is_used_and_ends_early)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct orch_proc_opts opts;
	int out[2];
	char ready[6];
	ck_assert(pipe2(out, O_CLOEXEC) == 0);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdout_fd = out[1];
	orch_proc *proc = spawn_opts(scope, &opts, LOAD("polite"));
	OK(orch_scope_start_wait(scope, 10000, e));
	ck_assert(read(out[0], ready, 6) == 6);
	orch_death *death = stop(scope, 5000);
	assert_dead(death);
	ck_assert(orch_death_confirmed_us(death) < 2000000);
	ck_assert(strstr(orch_death_mechanism(death), "SIGTERM"));
	ck_assert_int_eq(wait_status(proc), 3);
	orch_death_unref(death);
	orch_scope_unref(scope);

	/* And one that does not listen is killed when it is over. */
	scope = scope_new(ctx);
	proc = spawn_opts(scope, &opts, LOAD("stubborn"));
	OK(orch_scope_start_wait(scope, 10000, e));
	ck_assert(read(out[0], ready, 6) == 6);
	death = stop(scope, 300);
	assert_dead(death);
	ck_assert(orch_death_last_death_us(death) >= 300000);
	ck_assert_int_eq(wait_status(proc), 256 + SIGKILL);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	close(out[0]);
	close(out[1]);
}
END_TEST

START_TEST(leader_ends_the_scope)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct deaths deaths = {0};
	struct orch_proc_opts opts;
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
	orch_proc *other = spawn(scope, LOAD("awkward", watched.word));
	ck_assert_int_eq(wait_status(other), 0);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_PROC_LEADER;
	/* A leader that could not start is no leader. */
	assert_spawn_fails(scope, &opts, ARGV("/nowhere"), ENOENT, "exec");
	/* Still there, without its parents. */
	ck_assert(word_is_seen(watched.word, 1));
	ck_assert_int_eq(deaths.count, 0);
	orch_proc *leader = spawn_opts(scope, &opts, ARGV("sh", "-c", "exit 9"));
	ck_assert_int_eq(wait_status(leader), 9);
	loop_until(ctx, &deaths.count);
	assert_dead(deaths.last);
	assert_nothing_left(&watched);
	ck_assert_int_eq(deaths.destroyed, 1);
	assert_alive_at_request(deaths.last, 1);
	/* A late stop answers with the same certificate. */
	orch_death *again = stop(scope, 0);
	ck_assert_ptr_eq(again, deaths.last);
	ck_assert_int_eq(deaths.count, 1);
	orch_death_unref(again);
	orch_death_unref(deaths.last);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(grandchild_holds_stdout)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct orch_proc_opts opts;
	int out[2];
	ck_assert(pipe2(out, O_CLOEXEC) == 0);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdout_fd = out[1];
	orch_proc *proc = spawn_opts(scope, &opts, LOAD("holder"));
	close(out[1]);
	ck_assert_int_eq(wait_status(proc), 5);
	struct pollfd open_end = {.fd = out[0], .events = POLLIN};
	ck_assert_int_eq(poll(&open_end, 1, 0), 0);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	ck_assert_int_eq(poll(&open_end, 1, 1000), 1);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	close(out[0]);
}
END_TEST

START_TEST(stopped_twice_and_early)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct deaths first = {0}, second = {0}, third = {0};
	struct orch_stop_opts opts;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.grace_ms = 8000;
	orch_proc *proc = spawn(scope, LOAD("stubborn"));
	OK(orch_scope_start_wait(scope, 10000, e));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	pause_ms(50);
	OK(orch_scope_stop(scope, &opts, on_death, &first, on_deaths_destroyed, e));
	/* The second is in more of a hurry. */
	OK(orch_scope_stop(scope, NULL, on_death, &second, on_deaths_destroyed, e));
	ck_assert_int_eq(
	    orch_scope_spawn(scope,
			     &(struct orch_proc_opts){.size = sizeof(struct orch_proc_opts),
						      .argv = ARGV("true")},
			     NULL, NULL),
	    ORCH_ECLOSED);
	loop_until(ctx, &second.count);
	ck_assert_int_eq(first.count, 1);
	assert_dead(first.last);
	ck_assert(orch_death_confirmed_us(first.last) < 5000000);
	OK(orch_scope_stop(scope, NULL, on_death, &third, on_deaths_destroyed, e));
	ck_assert_int_eq(third.count, 0);
	loop_until(ctx, &third.destroyed);
	ck_assert_int_eq(third.count, 1);
	ck_assert_ptr_eq(third.last, first.last);
	ck_assert_int_eq(first.destroyed + second.destroyed, 2);
	ck_assert_int_eq(wait_status(proc), 256 + SIGKILL);
	orch_scope_unref(scope);

	/* Before it stands. */
	orch_error *error = NULL;
	scope = scope_new(ctx);
	proc = spawn(scope, ARGV("true"));
	orch_death *death = stop(scope, 0);
	ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_DEAD);
	ck_assert_int_eq(orch_scope_start_wait(scope, 1000, NULL), ORCH_ECANCELED);
	ck_assert_int_eq(orch_proc_wait(proc, 1000, NULL, &error), ORCH_ECANCELED);
	orch_error_free(error);
	orch_proc_unref(proc);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_death_unref(first.last);
	orch_death_unref(second.last);
	orch_death_unref(third.last);
	orch_ctx_unref(ctx);
}
END_TEST

/* A tracer outside holds the killed process in its exit: nothing that we could do about it but say
 * so. */
START_TEST(survivors_are_named)
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
	pid_t victim = pid_with_word(watched.word);
	ck_assert_int_gt(victim, 0);
	ck_assert_int_eq(ptrace(PTRACE_SEIZE, victim, 0, PTRACE_O_TRACEEXIT), 0);
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = 400;
	int64_t before = orch_monotonic_us();
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	int64_t took = orch_monotonic_us() - before;
	ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_SURVIVORS, "%s",
		      orch_death_text(death));
	ck_assert_int_le(took, 2000000);
	bool named = false;
	for (uint32_t i = 0; i < orch_death_survivor_count(death); i++) {
		int32_t pid;
		uint64_t start;
		const char *state, *wchan;
		ck_assert_int_eq(orch_death_survivor(death, i, &pid, &start, &state, &wchan), 0);
		if (pid == victim) {
			named = true;
			ck_assert_uint_gt(start, 0);
			ck_assert_str_eq(state, "t");
		}
	}
	ck_assert(named);
	ck_assert_int_eq(orch_death_survivor(death, 1000, NULL, NULL, NULL, NULL), ORCH_EINVAL);
	ck_assert(strstr(orch_death_text(death), "survivor   pid"));
	ck_assert_int_eq(orch_death_last_death_us(death), -1);
	ck_assert_int_eq(orch_proc_wait(proc, 0, NULL, NULL), ORCH_ETIMEDOUT);
	ck_assert(exists(victim));
	/* Once it is let go the helper finishes the work. */
	ck_assert_int_eq(ptrace(PTRACE_DETACH, victim, 0, 0) == 0 || errno == ESRCH, 1);
	for (int i = 0; i < 200 && (exists(watched.init_pid) || access(watched.cgroup, F_OK) == 0);
	     i++)
		pause_ms(10);
	assert_nothing_left(&watched);
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(init_killed_from_outside)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct deaths deaths = {0};
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
	ck_assert_int_eq(kill(watched.init_pid, SIGKILL), 0);
	loop_until(ctx, &deaths.count);
	assert_dead(deaths.last);
	assert_nothing_left(&watched);
	ck_assert_int_eq(wait_status(proc), 256 + SIGKILL);
	ck_assert_int_eq(deaths.destroyed, 1);
	orch_death_unref(deaths.last);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* Where there is a cgroup the host kills itself: a helper that gets no processor, here stopped, delays the certificate only. */
START_TEST(killed_while_the_helper_is_stopped)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct deaths deaths = {0};
	struct orch_stop_opts opts;
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	bool leaf = orch_scope_rung(scope) == ORCH_RUNG_CGROUP_PIDNS;
	ck_assert(leaf || !is_root());
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	pid_t helper = parent_of(watched.init_pid);
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = 60000;
	ck_assert_int_eq(kill(helper, SIGSTOP), 0);
	OK(orch_scope_stop(scope, &opts, on_death, &deaths, on_deaths_destroyed, e));
	for (int i = 0; i < (leaf ? 1000 : 20) && with_word(watched.word); i++)
		pause_ms(10);
	bool killed = !with_word(watched.word);
	bool reaped = !exists(watched.init_pid);
	ck_assert_int_eq(kill(helper, SIGCONT), 0);
	ck_assert(!reaped);
	/* The control: without one it lives until the helper kills. */
	ck_assert_int_eq(killed, leaf);
	loop_until(ctx, &deaths.count);
	assert_dead(deaths.last);
	assert_nothing_left(&watched);
	ck_assert_uint_eq(orch_death_alive_at_request(deaths.last), 1);
	/* The request was there before the deaths: nobody takes them for an end that nobody asked for. */
	ck_assert(!strstr(orch_death_mechanism(deaths.last), "init ended"));
	ck_assert(!!strstr(orch_death_mechanism(deaths.last), "cgroup.kill") == leaf);
	ck_assert_int_eq(wait_status(proc), 256 + SIGKILL);
	orch_death_unref(deaths.last);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(unref_kills)
{
	unsigned fds = open_fds();
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 10000, e));
	struct watched watched = watch(scope);
	struct events events = {0};
	struct deaths deaths = {0};
	struct orch_proc_opts opts;
	OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = LOAD("stubborn", watched.word);
	opts.event = on_event;
	opts.userdata = &events;
	opts.destroy = on_events_destroyed;
	OK(orch_scope_spawn(scope, &opts, NULL, e));
	loop_until(ctx, &events.count);
	ck_assert_uint_eq(with_word(watched.word), 1);
	orch_scope_unref(scope);
	for (int i = 0; i < 500 && exists(watched.init_pid); i++)
		pause_ms(10);
	assert_nothing_left(&watched);
	loop_until(ctx, &events.destroyed);
	ck_assert_int_eq(deaths.count, 0);
	ck_assert_int_eq(deaths.destroyed, 1);

	/* The same when the loop is never run again: the end of the context is the end of its load.
	 */
	scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 10000, e));
	watched = watch(scope);
	pid_t helper = parent_of(watched.init_pid);
	memset(&events, 0, sizeof(events));
	opts.argv = LOAD("stubborn", watched.word);
	OK(orch_scope_spawn(scope, &opts, NULL, e));
	loop_until(ctx, &events.count);
	orch_ctx_unref(ctx);
	ck_assert(exists(watched.init_pid));
	orch_scope_unref(scope);
	assert_nothing_left(&watched);
	ck_assert(!exists(helper));
	ck_assert_int_eq(events.destroyed, 1);
	ck_assert_uint_eq(open_fds(), fds);
}
END_TEST

START_TEST(scopes_and_contexts_are_apart)
{
	orch_ctx *ctx[2] = {ctx_new(), ctx_new()};
	orch_scope *scope[6];
	struct watched watched[6];
	for (int i = 0; i < 6; i++) {
		scope[i] = scope_new(ctx[i % 2]);
		OK(orch_scope_start_wait(scope[i], 10000, e));
		watched[i] = watch(scope[i]);
		orch_proc *proc = spawn(scope[i], LOAD("awkward", watched[i].word));
		ck_assert_int_eq(wait_status(proc), 0);
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(watched[i].inode, watched[j].inode);
	}
	for (int i = 0; i < 6; i++) {
		orch_death *death = stop(scope[i], 0);
		assert_dead(death);
		assert_nothing_left(&watched[i]);
		orch_death_unref(death);
		orch_scope_unref(scope[i]);
		for (int j = i + 1; j < 6; j++)
			ck_assert(word_is_seen(watched[j].word, 1));
	}
	orch_ctx_unref(ctx[0]);
	orch_ctx_unref(ctx[1]);
}
END_TEST

START_TEST(rungs)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	struct orch_scope_opts opts;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = ORCH_RUNG_CGROUP_PIDNS;
	opts.label = "rung test";
	OK(orch_scope_new(ctx, &opts, &scope, e));
	if (has_delegation()) {
		OK(orch_scope_start_wait(scope, 10000, e));
		ck_assert_uint_eq(orch_scope_rung(scope), ORCH_RUNG_CGROUP_PIDNS);
		ck_assert_int_eq(access(orch_scope_cgroup(scope), F_OK), 0);
		ck_assert(strstr(orch_scope_cgroup(scope), orch_scope_name(scope)));
	} else {
		ck_assert_int_eq(orch_scope_start_wait(scope, 10000, &error), ORCH_EUNENFORCEABLE);
		ck_assert(strstr(orch_error_message(error), "Delegate=yes"));
		ck_assert_str_eq(orch_error_step(error), "cgroup");
		ck_assert_uint_eq(orch_scope_rung(scope), 0);
		orch_error_free(error);
	}
	orch_death *death = stop(scope, 0);
	ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_DEAD);
	ck_assert(strstr(orch_death_text(death), "(rung test)"));
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	ck_assert_msg(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s",
		      path);
	close(fd);
}

START_TEST(no_user_namespaces)
{
	/* In a user namespace that allows no further one this is like sysctl
	 * user.max_user_namespaces=0. */
	char map[64], group_map[64];
	orch_error *error = NULL;
	snprintf(map, sizeof(map), "%d %d 1", USER, (int)geteuid());
	snprintf(group_map, sizeof(group_map), "%d %d 1", USER, (int)getegid());
	ck_assert_int_eq(unshare(CLONE_NEWUSER), 0);
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/uid_map", map);
	write_file("/proc/self/gid_map", group_map);
	write_file("/proc/sys/user/max_user_namespaces", "0");
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	orch_proc *proc = spawn(scope, ARGV("true"));
	ck_assert_int_eq(orch_scope_start_wait(scope, 10000, &error), ORCH_EUNENFORCEABLE);
	ck_assert_msg(strstr(orch_error_message(error), "user.max_user_namespaces") != NULL, "%s",
		      orch_error_message(error));
	ck_assert_int_eq(orch_error_errno(error), ENOSPC);
	orch_error_free(error);
	ck_assert_int_eq(orch_proc_wait(proc, 1000, NULL, NULL), ORCH_EUNENFORCEABLE);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- running --------------------------------------------------------------------------- */

int fake_helper(const char *name)
{
	(void)name;
	return 99;
}

Suite *suite(void)
{
	Suite *all = suite_create("reaper");
	TCase *programs = tcase_create("programs");
	TCase *stopping = tcase_create("stopping");
	TCase *thousands = tcase_create("thousands");
	tcase_add_test(programs, exit_codes);
	tcase_add_test(programs, ended_by_signals);
	tcase_add_test(programs, programs_that_can_not_start);
	tcase_add_test(programs, stdio_environment_and_folder);
	tcase_add_test(programs, programs_start_clean);
	tcase_add_test(programs, events_come_once_each);
	tcase_add_test(programs, bad_arguments);
	tcase_add_test(stopping, detached_and_deaf_is_dead);
	tcase_add_test(stopping, fork_and_exit_is_dead);
	tcase_add_test(stopping, three_hundred_are_dead);
	tcase_add_test(stopping, grace_is_used_and_ends_early);
	tcase_add_test(stopping, leader_ends_the_scope);
	tcase_add_test(stopping, grandchild_holds_stdout);
	tcase_add_test(stopping, stopped_twice_and_early);
	tcase_add_test(stopping, survivors_are_named);
	tcase_add_test(stopping, init_killed_from_outside);
	tcase_add_test(stopping, killed_while_the_helper_is_stopped);
	tcase_add_test(stopping, unref_kills);
	tcase_add_test(stopping, scopes_and_contexts_are_apart);
	tcase_add_test(stopping, rungs);
	tcase_add_test(stopping, no_user_namespaces);
	tcase_add_test(thousands, processes_of_a_user_are_limited);
	/* Minutes where the processor is emulated: CK_EXCLUDE_TAGS=thousands leaves it out. */
	tcase_set_tags(thousands, "thousands");
	TCase *cases[] = {programs, stopping, thousands};
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
