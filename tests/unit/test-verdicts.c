/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The four verdicts, each brought about for real and beside a control (the same load without the obstacle is DEAD),
 * and everything that a certificate says. Freezers are in tests/crash/freezers.c.
 */
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "../crash/liveness-fixture.h"
#include "../crash/hung-mount.h"
#include "reaper/wire.h"

/* --- common ---------------------------------------------------------------------------- */

static orch_death *stop_within(orch_scope *scope, uint32_t deadline_ms)
{
	struct orch_stop_opts opts;
	orch_death *death = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = deadline_ms;
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	return death;
}

static void start(orch_ctx *ctx, orch_proc *proc)
{
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
}

/* A scope with one program in it that ends by SIGKILL only. */
struct loaded {
	orch_scope *scope;
	struct watched watched;
	orch_proc *proc;
	pid_t pid; /* as the host sees it */
	pid_t helper;
	int pidns_fd; /* the kernel gives the namespace's number to no other one while it is open */
};

static struct loaded load(orch_ctx *ctx)
{
	struct loaded loaded = {.scope = scope_new(ctx)};
	OK(orch_scope_start_wait(loaded.scope, 10000, e));
	loaded.watched = watch(loaded.scope);
	loaded.helper = parent_of(loaded.watched.init_pid);
	loaded.proc = spawn(loaded.scope, LOAD("stubborn", loaded.watched.word));
	start(ctx, loaded.proc);
	loaded.pid = pid_with_word(loaded.watched.word);
	ck_assert_int_gt(loaded.pid, 0);
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)loaded.pid);
	loaded.pidns_fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(loaded.pidns_fd, 0);
	return loaded;
}

static void unload(struct loaded *loaded)
{
	close(loaded->pidns_fd);
	orch_proc_unref(loaded->proc);
	orch_scope_unref(loaded->scope);
}

/* The same load with nothing in the way. */
static void assert_control_is_dead(orch_ctx *ctx)
{
	struct loaded loaded = load(ctx);
	orch_death *death = stop_within(loaded.scope, 0);
	assert_dead(death);
	assert_nothing_left(&loaded.watched);
	orch_death_unref(death);
	unload(&loaded);
}

static void assert_verdict(orch_death *death, uint32_t verdict)
{
	ck_assert_msg(orch_death_verdict(death) == verdict, "%s", orch_death_text(death));
}

/* The helper goes on after the certificate. */
static void await_end(const struct watched *watched)
{
	for (int i = 0; i < 1000 && (exists(watched->init_pid) ||
				     (watched->cgroup[0] && access(watched->cgroup, F_OK) == 0));
	     i++)
		pause_ms(10);
	assert_nothing_left(watched);
}

static uint64_t start_time(pid_t pid)
{
	char path[64], text[1024] = "";
	unsigned long long ticks = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_int_eq(sscanf(strrchr(text, ')') + 1,
				" %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
				&ticks),
			 1);
	return ticks;
}

/* 0 before Linux 6.9. */
static uint64_t pidfs_inode(pid_t pid)
{
	struct statfs system;
	struct stat status;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert(fstatfs(fd, &system) == 0 && fstat(fd, &status) == 0);
	close(fd);
	return system.f_type == 0x50494446 ? status.st_ino : 0;
}

/* Names it among the survivors, with this state; NULL: any. */
static const char *survivor_wchan(orch_death *death, pid_t wanted, const char *wanted_state)
{
	for (uint32_t i = 0; i < orch_death_survivor_count(death); i++) {
		int32_t pid;
		uint64_t ticks;
		const char *state, *wchan;
		ck_assert_int_eq(orch_death_survivor(death, i, &pid, &ticks, &state, &wchan), 0);
		if (pid != wanted || (wanted_state && strcmp(state, wanted_state) != 0))
			continue;
		ck_assert_uint_gt(ticks, 0);
		return wchan;
	}
	ck_abort_msg("pid %d in state %s is not named: %s", (int)wanted, wanted_state ? wanted_state : "any",
		     orch_death_text(death));
	return NULL;
}

/* --- what a certificate says ------------------------------------------------------------ */

struct identity {
	pid_t pid;
	uint64_t start_time, inode;
};

static struct identity identify(pid_t pid)
{
	return (struct identity){.pid = pid, .start_time = start_time(pid), .inode = pidfs_inode(pid)};
}

static void assert_identity(orch_death *death, const struct identity *expected)
{
	char boot_id[64] = "", line[200];
	int32_t pid = 0;
	uint64_t ticks = 0, inode = 0;
	ck_assert_int_eq(orch_death_init(death, &pid, &ticks, &inode), 0);
	ck_assert_int_eq(pid, expected->pid);
	ck_assert_uint_eq(ticks, expected->start_time);
	ck_assert_uint_eq(inode, expected->inode);
	ck_assert_int_eq(orch_death_init(death, NULL, NULL, NULL), 0);
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	ck_assert_int_eq(fscanf(file, "%63s", boot_id), 1);
	fclose(file);
	ck_assert_str_eq(orch_death_boot_id(death), boot_id);
	snprintf(line, sizeof(line), "init       pid %d, started at tick %llu", (int)pid, (unsigned long long)ticks);
	ck_assert_msg(strstr(orch_death_text(death), line) && strstr(orch_death_text(death), boot_id), "%s",
		      orch_death_text(death));
}

/* Request, last death and confirmation, in this order and within what the host itself saw. */
static void assert_times(orch_death *death, int64_t before_ms, int64_t before_us)
{
	int64_t most_us = orch_monotonic_us() - before_us;
	ck_assert_int_ge(orch_death_requested_at_ms(death), before_ms);
	ck_assert_int_le(orch_death_requested_at_ms(death), orch_realtime_ms());
	ck_assert_int_ge(orch_death_last_death_us(death), 0);
	ck_assert_int_ge(orch_death_confirmed_us(death), orch_death_last_death_us(death));
	ck_assert_int_le(orch_death_confirmed_us(death), most_us);
}

static void assert_says(orch_death *death, const char *what)
{
	ck_assert_msg(strstr(orch_death_text(death), what) != NULL, "%s is not in: %s", what, orch_death_text(death));
}

START_TEST(certificate_of_a_stop)
{
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	orch_proc *more[2] = {spawn(loaded.scope, LOAD("stubborn", loaded.watched.word)),
			      spawn(loaded.scope, LOAD("stubborn", loaded.watched.word))};
	start(ctx, more[0]);
	start(ctx, more[1]);
	struct identity init = identify(loaded.watched.init_pid);
	ck_assert(init.start_time > 0);
	bool leaf = orch_scope_rung(loaded.scope) == ORCH_RUNG_CGROUP_PIDNS;
	int64_t before_ms = orch_realtime_ms(), before_us = orch_monotonic_us();
	orch_death *death = stop_within(loaded.scope, 0);
	assert_dead(death);
	assert_times(death, before_ms, before_us);
	assert_identity(death, &init);
	ck_assert_uint_eq(orch_death_alive_at_request(death), 3);
	ck_assert_uint_eq(orch_death_pidns_inode(death), loaded.watched.inode);
	ck_assert_str_eq(orch_death_scope(death), orch_scope_name(loaded.scope));
	ck_assert_str_eq(orch_death_verdict_name(death), "DEAD");
	ck_assert_str_eq(orch_death_mechanism(death),
			 leaf ? "cgroup.kill, SIGKILL to the PID namespace's init by pidfd"
			      : "SIGKILL to the PID namespace's init by pidfd");
	assert_says(death, "3 alive besides init");
	assert_says(death, orch_death_mechanism(death));
	assert_says(death, orch_death_proof(death));
	if (leaf) {
		ck_assert(strstr(orch_death_proof(death), "cgroup.events says populated 0"));
		ck_assert(strstr(orch_death_proof(death), "the cgroup leaf is removed"));
	}
	assert_nothing_left(&loaded.watched);
	/* Without a certificate there is nothing to say. */
	ck_assert_int_eq(orch_death_init(NULL, NULL, NULL, NULL), ORCH_EINVAL);
	ck_assert_str_eq(orch_death_boot_id(NULL), "");
	orch_death_unref(death);
	orch_proc_unref(more[0]);
	orch_proc_unref(more[1]);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(certificate_of_the_leaders_exit)
{
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	struct deaths deaths = {0};
	struct orch_proc_opts opts;
	struct identity init = identify(loaded.watched.init_pid);
	OK(orch_scope_on_death(loaded.scope, on_death, &deaths, on_deaths_destroyed, e));
	int64_t before_ms = orch_realtime_ms(), before_us = orch_monotonic_us();
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_PROC_LEADER;
	orch_proc *leader = spawn_opts(loaded.scope, &opts, ARGV("true"));
	loop_until(ctx, &deaths.count);
	assert_dead(deaths.last);
	assert_times(deaths.last, before_ms, before_us);
	assert_identity(deaths.last, &init);
	ck_assert_uint_eq(orch_death_alive_at_request(deaths.last), 1);
	assert_nothing_left(&loaded.watched);
	orch_proc_unref(leader);
	orch_death_unref(deaths.last);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

#define ORPHANS 300

/* Each in a session of its own, and their parent is gone before the end begins. */
START_TEST(hundreds_of_orphans_after_the_leaders_exit)
{
	char command[200];
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	struct deaths deaths = {0};
	struct orch_proc_opts opts;
	OK(orch_scope_on_death(loaded.scope, on_death, &deaths, on_deaths_destroyed, e));
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_PROC_LEADER;
	snprintf(command, sizeof(command), "for n in $(seq %d); do setsid \"$0\" --load stubborn %s & done; read go",
		 ORPHANS, loaded.watched.word);
	int go[2];
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	opts.stdin_fd = go[0];
	orch_proc *leader = spawn_opts(loaded.scope, &opts, ARGV("sh", "-c", command, self_path));
	bool there = false;
	for (int i = 0; i < 3000 && !there; i++) {
		OK(orch_ctx_process(ctx, e));
		pause_ms(10);
		/* Looked at once: one that is amid its exec has no arguments for a moment. */
		there = with_word(loaded.watched.word) >= ORPHANS + 1;
	}
	/* Control: they are there. The shell, which has the word among its arguments as well, is let go. */
	ck_assert(there);
	ck_assert_int_eq(deaths.count, 0);
	close(go[1]);
	loop_until(ctx, &deaths.count);
	assert_dead(deaths.last);
	assert_nothing_left(&loaded.watched);
	if (is_root())
		ck_assert_uint_ge(orch_death_alive_at_request(deaths.last), ORPHANS);
	close(go[0]);
	orch_proc_unref(leader);
	orch_death_unref(deaths.last);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(certificate_of_an_init_killed_from_outside)
{
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	struct deaths deaths = {0};
	struct identity init = identify(loaded.watched.init_pid);
	OK(orch_scope_on_death(loaded.scope, on_death, &deaths, on_deaths_destroyed, e));
	int64_t before_ms = orch_realtime_ms(), before_us = orch_monotonic_us();
	ck_assert_int_eq(kill(loaded.watched.init_pid, SIGKILL), 0);
	loop_until(ctx, &deaths.count);
	assert_dead(deaths.last);
	assert_times(deaths.last, before_ms, before_us);
	assert_identity(deaths.last, &init);
	/* Nobody asked: it begins with the death. */
	ck_assert_int_eq(orch_death_last_death_us(deaths.last), 0);
	ck_assert_uint_eq(orch_death_alive_at_request(deaths.last), 0);
	assert_says(deaths.last, "init ended by itself or was killed from outside");
	assert_nothing_left(&loaded.watched);
	orch_death_unref(deaths.last);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

/* This process is the one that init is left to, and the library reaps it by its pidfd. */
START_TEST(certificate_of_a_helper_killed)
{
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	struct deaths deaths = {0};
	struct identity init = identify(loaded.watched.init_pid);
	OK(orch_scope_on_death(loaded.scope, on_death, &deaths, on_deaths_destroyed, e));
	int64_t before_ms = orch_realtime_ms(), before_us = orch_monotonic_us();
	ck_assert_int_eq(kill(loaded.helper, SIGKILL), 0);
	loop_until(ctx, &deaths.count);
	assert_verdict(deaths.last, ORCH_DEATH_DEAD);
	assert_times(deaths.last, before_ms, before_us);
	assert_identity(deaths.last, &init);
	ck_assert_uint_eq(orch_death_pidns_inode(deaths.last), loaded.watched.inode);
	ck_assert(strstr(orch_death_proof(deaths.last), "the host's pidfd of init"));
	assert_nothing_left(&loaded.watched);
	orch_death_unref(deaths.last);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(certificate_of_a_scope_that_never_stood)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	int64_t before_ms = orch_realtime_ms();
	orch_death *death = stop_within(scope, 0);
	assert_verdict(death, ORCH_DEATH_DEAD);
	ck_assert_int_ge(orch_death_requested_at_ms(death), before_ms);
	ck_assert_uint_eq(orch_death_alive_at_request(death), 0);
	ck_assert(strstr(orch_death_mechanism(death), "ended in set-up"));
	ck_assert(strstr(orch_death_proof(death), "no program had been started"));
	int32_t pid = -7;
	ck_assert_int_eq(orch_death_init(death, &pid, NULL, NULL), ORCH_ESTATE);
	ck_assert_int_eq(pid, -7);
	ck_assert_uint_eq(strlen(orch_death_boot_id(death)), 36);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- SURVIVORS --------------------------------------------------------------------------- */

START_TEST(uninterruptible_sleep)
{
	struct hung_mount hole;
	char below[160];
	struct orch_stop_opts opts;
	struct deaths deaths = {0};
	orch_death *death = NULL;
	if (!hung_mount_make(&hole, folder)) {
		printf("skipped: uninterruptible_sleep: no /dev/fuse here\n");
		return;
	}
	orch_ctx *ctx = ctx_new();
	struct loaded hung = load(ctx);
	snprintf(below, sizeof(below), "%s/below", hole.where);
	orch_proc *proc = spawn(hung.scope, ARGV("stat", below, "in-the-hole"));
	start(ctx, proc);
	pid_t sleeper = 0;
	for (int i = 0; i < 500 && !sleeper; i++) {
		sleeper = pid_with_word("in-the-hole");
		pause_ms(10);
	}
	/* It waits for the file system: otherwise it would have ended. */
	ck_assert_int_eq(orch_proc_wait(proc, 300, NULL, NULL), ORCH_ETIMEDOUT);
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = 60000;
	OK(orch_scope_stop(hung.scope, &opts, on_death, &deaths, on_deaths_destroyed, e));
	/* Another scope's end is not delayed: it comes while this one is still waited for. */
	assert_control_is_dead(ctx);
	ck_assert_int_eq(deaths.count, 0);
	/* A second stop is in more of a hurry. */
	opts.deadline_ms = 2000;
	OK(orch_scope_stop_wait(hung.scope, &opts, &death, e));
	assert_verdict(death, ORCH_DEATH_SURVIVORS);
	ck_assert_int_eq(deaths.count, 1);
	ck_assert_str_eq(orch_death_verdict_name(death), "SURVIVORS");
	ck_assert_msg(strstr(survivor_wchan(death, sleeper, "D"), "request_wait") != NULL, "%s",
		      orch_death_text(death));
	ck_assert_int_eq(orch_death_last_death_us(death), -1);
	ck_assert_uint_ge(orch_death_alive_at_request(death), 2);
	/* Only that one lives: the other load of the scope is dead. */
	ck_assert_uint_eq(with_word(hung.watched.word), 0);
	hung_mount_release(&hole);
	await_end(&hung.watched);
	ck_assert(!exists(sleeper));
	orch_death_unref(death);
	orch_death_unref(deaths.last);
	orch_proc_unref(proc);
	unload(&hung);
	orch_ctx_unref(ctx);
	hung_mount_end(&hole);
}
END_TEST

static void hold_exit(pid_t pid)
{
	ck_assert_int_eq(ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT), 0);
}

static void let_go(pid_t pid)
{
	ck_assert_int_eq(ptrace(PTRACE_DETACH, pid, 0, 0) == 0 || errno == ESRCH, 1);
}

START_TEST(tracer_holds_the_exit)
{
	char holder[80];
	orch_ctx *ctx = ctx_new();
	struct loaded held = load(ctx);
	hold_exit(held.pid);
	orch_death *death = stop_within(held.scope, 2000);
	assert_verdict(death, ORCH_DEATH_SURVIVORS);
	survivor_wchan(death, held.pid, "t");
	snprintf(holder, sizeof(holder), "pid %d is held by its tracer, pid %d", (int)held.pid, (int)getpid());
	ck_assert_msg(strstr(orch_death_reason(death), holder) != NULL, "%s", orch_death_text(death));
	assert_says(death, holder);
	assert_control_is_dead(ctx);
	ck_assert(exists(held.pid));
	let_go(held.pid);
	await_end(&held.watched);
	orch_death_unref(death);
	unload(&held);
	orch_ctx_unref(ctx);
}
END_TEST

/* Then the host makes the certificate. */
START_TEST(tracer_holds_the_exit_and_the_helper_is_killed)
{
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	orch_ctx *ctx = ctx_new();
	struct loaded held = load(ctx);
	hold_exit(held.pid);
	ck_assert_int_eq(kill(held.helper, SIGKILL), 0);
	orch_death *death = stop_within(held.scope, 2000);
	assert_verdict(death, ORCH_DEATH_SURVIVORS);
	survivor_wchan(death, held.pid, "t");
	let_go(held.pid);
	waitpid(held.watched.init_pid, NULL, 0);
	await_end(&held.watched);
	orch_death_unref(death);
	unload(&held);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- DEAD_UNREAPED ----------------------------------------------------------------------- */

/* Joins the PID namespace of `member`, forks a child into it, and reaps that only when it is told to. */
static _Noreturn void outsider(pid_t member, int ready_fd, int go_fd)
{
	char path[64], byte;
	int spaces[2];
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)member);
	spaces[0] = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)member);
	spaces[1] = open(path, O_RDONLY | O_CLOEXEC);
	if (spaces[0] < 0 || spaces[1] < 0 || (!is_root() && setns(spaces[0], CLONE_NEWUSER) < 0) ||
	    setns(spaces[1], CLONE_NEWPID) < 0)
		_exit(1);
	pid_t child = fork();
	if (child == 0)
		sleep_long();
	if (child < 0 || write(ready_fd, &child, sizeof(child)) != sizeof(child))
		_exit(2);
	(void)!read(go_fd, &byte, 1);
	int status = 0;
	_exit(waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : 3);
}

START_TEST(outsider_leaves_a_zombie)
{
	orch_ctx *ctx = ctx_new();
	struct loaded held = load(ctx);
	int ready[2], go[2], status = -1;
	pid_t inside;
	ck_assert(pipe2(ready, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
	pid_t holder = fork();
	if (holder == 0)
		outsider(held.pid, ready[1], go[0]);
	ck_assert_int_eq(read(ready[0], &inside, sizeof(inside)), sizeof(inside));
	/* `inside` is its own number for it: the host's is the other one. */
	orch_death *death = stop_within(held.scope, 2000);
	assert_verdict(death, ORCH_DEATH_DEAD_UNREAPED);
	ck_assert_str_eq(orch_death_verdict_name(death), "DEAD_UNREAPED");
	unsigned zombies = 0;
	for (uint32_t i = 0; i < orch_death_survivor_count(death); i++) {
		int32_t pid;
		const char *state;
		orch_death_survivor(death, i, &pid, NULL, &state, NULL);
		zombies += strcmp(state, "Z") == 0 && parent_of(pid) == holder;
		ck_assert(strcmp(state, "Z") == 0 || pid == held.watched.init_pid);
	}
	ck_assert_msg(zombies == 1, "%s", orch_death_text(death));
	ck_assert_uint_eq(with_word(held.watched.word), 0);
	ck_assert(exists(held.watched.init_pid));
	assert_control_is_dead(ctx);
	ck_assert_int_eq(write(go[1], "", 1), 1);
	ck_assert_int_eq(waitpid(holder, &status, 0), holder);
	ck_assert_int_eq(status, 0);
	await_end(&held.watched);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
	}
	orch_death_unref(death);
	unload(&held);
	orch_ctx_unref(ctx);
}
END_TEST

/* In a child, so that its parent is the one that init is left to, and does not reap. */
static _Noreturn void lose_helper(void)
{
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	struct deaths deaths = {0};
	OK(orch_scope_on_death(loaded.scope, on_death, &deaths, on_deaths_destroyed, e));
	ck_assert_int_eq(kill(loaded.helper, SIGKILL), 0);
	loop_until(ctx, &deaths.count);
	assert_verdict(deaths.last, ORCH_DEATH_DEAD_UNREAPED);
	ck_assert(strstr(orch_death_proof(deaths.last), "the host's pidfd of init"));
	ck_assert_uint_eq(with_word(loaded.watched.word), 0);
	ck_assert(exists(loaded.watched.init_pid));
	orch_death_unref(deaths.last);
	unload(&loaded);
	orch_ctx_unref(ctx);
	exit(0);
}

START_TEST(nobody_reaps_the_init_of_a_dead_helper)
{
	int status = -1;
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	pid_t child = fork();
	if (child == 0)
		lose_helper();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	/* What it left, init among it, is a zombie of this process and of no use to anybody. */
	int orphans = 0;
	while (waitpid(-1, NULL, 0) > 0)
		orphans++;
	ck_assert_int_ge(orphans, 1);
}
END_TEST

START_TEST(stopped_helper_does_not_reap)
{
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	ck_assert_int_eq(kill(loaded.helper, SIGSTOP), 0);
	orch_death *death = stop_within(loaded.scope, 5000);
	assert_verdict(death, ORCH_DEATH_DEAD_UNREAPED);
	ck_assert_uint_eq(with_word(loaded.watched.word), 0);
	ck_assert_int_eq(kill(loaded.helper, SIGCONT), 0);
	await_end(&loaded.watched);
	assert_control_is_dead(ctx);
	orch_death_unref(death);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- UNVERIFIABLE ------------------------------------------------------------------------ */

static void assert_unverifiable(orch_death *death, const char *reason)
{
	assert_verdict(death, ORCH_DEATH_UNVERIFIABLE);
	ck_assert_str_eq(orch_death_verdict_name(death), "UNVERIFIABLE");
	ck_assert_msg(strstr(orch_death_reason(death), reason) != NULL, "%s", orch_death_text(death));
	assert_says(death, orch_death_reason(death));
}

START_TEST(silent_helper_before_the_scope_stood)
{
	orch_ctx *ctx = ctx_new();
	struct loaded first = load(ctx);
	ck_assert_int_eq(kill(first.helper, SIGSTOP), 0);
	orch_scope *scope = scope_new(ctx);
	orch_death *death = stop_within(scope, 300);
	assert_unverifiable(death, "orch-reaper did not answer by the deadline");
	ck_assert_int_eq(orch_death_init(death, NULL, NULL, NULL), ORCH_ESTATE);
	orch_death_unref(death);
	orch_scope_unref(scope);
	ck_assert_int_eq(kill(first.helper, SIGCONT), 0);
	/* It was not lost on the way: the first scope and a new one work. */
	death = stop_within(first.scope, 0);
	assert_dead(death);
	assert_control_is_dead(ctx);
	orch_death_unref(death);
	unload(&first);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(helper_killed_before_the_scope_stood)
{
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	orch_ctx *ctx = ctx_new();
	struct loaded first = load(ctx);
	struct deaths deaths = {0};
	/* Stopped, so that it can not be faster. */
	ck_assert_int_eq(kill(first.helper, SIGSTOP), 0);
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
	ck_assert_int_eq(kill(first.helper, SIGKILL), 0);
	loop_until(ctx, &deaths.count);
	assert_unverifiable(deaths.last, "orch-reaper was lost before the scope stood");
	orch_death_unref(deaths.last);
	orch_scope_unref(scope);
	orch_death_unref(stop_within(first.scope, 0));
	assert_control_is_dead(ctx);
	unload(&first);
	orch_ctx_unref(ctx);
}
END_TEST

/* Says that a scope stands whose init is a child of its own, and that it is dead while it lives. */
int fake_helper(const char *name)
{
	struct pollfd host = {.fd = 3, .events = POLLIN};
	int victim_fd = -1;
	pid_t victim = -1;
	if (strcmp(name, "fake-liar") != 0)
		return 99;
	while (poll(&host, 1, 30000) == 1) {
		struct wire_packet packet, answer;
		int error = wire_receive(3, NULL, &packet);
		if (error == -EAGAIN)
			continue;
		if (error)
			break;
		answer = wire_packet(WIRE_HELLO, packet.message.scope, 0);
		wire_copy(answer.message.text, WIRE_TEXT_MAX, orch_version());
		if (packet.message.type == WIRE_SCOPE_NEW) {
			victim = fork();
			if (victim == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				sleep_long();
			}
			victim_fd = (int)syscall(SYS_pidfd_open, victim, 0);
			answer = wire_packet(WIRE_SCOPE_UP, packet.message.scope, 0);
			answer.message.value = victim;
			answer.message.number[0] = ORCH_RUNG_PIDNS;
			answer.message.number[1] = 1;
			answer.fds[answer.fd_count++] = victim_fd;
		} else if (packet.message.type == WIRE_STOP) {
			answer = wire_packet(WIRE_DEATH, packet.message.scope, 0);
			answer.message.value = (int32_t)ORCH_DEATH_DEAD;
			answer.message.flags = WIRE_DEATH_INIT_KILLED | WIRE_DEATH_INIT_REAPED;
		}
		wire_send(3, &answer);
		wire_packet_close(&packet);
	}
	if (victim > 0)
		kill(victim, SIGKILL);
	return 0;
}

START_TEST(helper_that_lies)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/fake-liar", folder);
	orch_ctx *ctx = ctx_new_with(path);
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 10000, e));
	ck_assert(exists(orch_scope_init_pid(scope)));
	orch_death *death = stop_within(scope, 0);
	assert_unverifiable(death, "orch-reaper says dead, the host's pidfd of init says alive");
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static void cover_proc(void)
{
	ck_assert_int_eq(mount("cover", "/proc", "tmpfs", 0, "size=64k"), 0);
}

static void uncover_proc(void)
{
	ck_assert_int_eq(umount2("/proc", MNT_DETACH), 0);
}

/* Somebody is held, and who is left can not be looked up: neither DEAD nor SURVIVORS may be said. */
static void hide_survivor(bool kill_helper, const char *reason)
{
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	orch_ctx *ctx = ctx_new();
	struct loaded held = load(ctx);
	hold_exit(held.pid);
	cover_proc();
	if (kill_helper)
		ck_assert_int_eq(kill(held.helper, SIGKILL), 0);
	orch_death *death = stop_within(held.scope, 2000);
	uncover_proc();
	assert_unverifiable(death, reason);
	ck_assert(exists(held.pid));
	let_go(held.pid);
	if (kill_helper)
		waitpid(held.watched.init_pid, NULL, 0);
	await_end(&held.watched);
	/* Without /proc, and nobody held: a proof needs no list. */
	struct loaded control = load(ctx);
	cover_proc();
	orch_death *dead = stop_within(control.scope, 0);
	uncover_proc();
	assert_verdict(dead, ORCH_DEATH_DEAD);
	orch_death_unref(dead);
	orch_death_unref(death);
	unload(&control);
	unload(&held);
	orch_ctx_unref(ctx);
}

START_TEST(survivors_that_can_not_be_seen)
{
	hide_survivor(false, "no member of the scope can be seen in /proc");
}
END_TEST

START_TEST(survivors_that_can_not_be_seen_and_the_helper_is_killed)
{
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	hide_survivor(true, "orch-reaper died, and the scope's init did not end by the deadline");
}
END_TEST

/* --- running ----------------------------------------------------------------------------- */

Suite *suite(void)
{
	char path[128];
	Suite *all = suite_create("verdicts");
	TCase *certificates = tcase_create("certificates");
	TCase *verdicts = tcase_create("verdicts");
	/* Minutes where the processor is emulated. */
	TCase *hundreds = tcase_create("hundreds");
	tcase_set_tags(hundreds, "thousands");
	snprintf(path, sizeof(path), "%s/fake-liar", folder);
	(void)!symlink("test-reaper", path);
	tcase_add_test(certificates, certificate_of_a_stop);
	tcase_add_test(certificates, certificate_of_the_leaders_exit);
	tcase_add_test(hundreds, hundreds_of_orphans_after_the_leaders_exit);
	tcase_add_test(certificates, certificate_of_an_init_killed_from_outside);
	tcase_add_test(certificates, certificate_of_a_helper_killed);
	tcase_add_test(certificates, certificate_of_a_scope_that_never_stood);
	tcase_add_test(verdicts, tracer_holds_the_exit);
	tcase_add_test(verdicts, tracer_holds_the_exit_and_the_helper_is_killed);
	tcase_add_test(verdicts, outsider_leaves_a_zombie);
	tcase_add_test(verdicts, nobody_reaps_the_init_of_a_dead_helper);
	tcase_add_test(verdicts, stopped_helper_does_not_reap);
	tcase_add_test(verdicts, silent_helper_before_the_scope_stood);
	tcase_add_test(verdicts, helper_killed_before_the_scope_stood);
	tcase_add_test(verdicts, helper_that_lies);
	if (is_root()) {
		tcase_add_test(verdicts, uninterruptible_sleep);
		tcase_add_test(verdicts, survivors_that_can_not_be_seen);
		tcase_add_test(verdicts, survivors_that_can_not_be_seen_and_the_helper_is_killed);
	} else {
		printf("not root: hung mount, hidden /proc not tried\n");
	}
	TCase *cases[] = {certificates, verdicts, hundreds};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		tcase_set_timeout(cases[i], 120);
		suite_add_tcase(all, cases[i]);
	}
	return all;
}

int main(int argc, char **argv)
{
	return fixture_main(argc, argv);
}
