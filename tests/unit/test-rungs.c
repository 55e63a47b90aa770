/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rung of the ladder by force: as root, as an ordinary user, and as one whose cgroup was delegated. What a rung
 * proves is tried, and what it does not: programs that leave by descent, that leave the cgroup, that kill or stop their
 * supervisor.
 */
#include <sched.h>
#include <sys/ptrace.h>

#include "../crash/liveness-fixture.h"
#include "reaper/census.h"

static bool delegated; /* an ordinary user's run in a cgroup of his */
static char escape_to[16];
static char suid_path[96]; /* this program, set-user-ID for uid 1000 */

static const uint32_t all_rungs[] = {ORCH_RUNG_SUBREAPER, ORCH_RUNG_CGROUP, ORCH_RUNG_PIDNS, ORCH_RUNG_CGROUP_PIDNS};
static const uint32_t lower_rungs[] = {ORCH_RUNG_SUBREAPER, ORCH_RUNG_CGROUP};

static bool has_cgroup(uint32_t rung)
{
	return rung == ORCH_RUNG_CGROUP || rung == ORCH_RUNG_CGROUP_PIDNS;
}

static bool has_pidns(uint32_t rung)
{
	return rung >= ORCH_RUNG_PIDNS;
}

static bool is_there(uint32_t rung)
{
	return !has_cgroup(rung) || is_root() || delegated;
}

/* The own cgroup in the unified hierarchy, or "". */
static void find_own_cgroup(char *path, size_t size)
{
	char line[1024], mount_point[512] = "", own[512] = "";
	FILE *mounts = fopen("/proc/self/mountinfo", "re"), *groups = fopen("/proc/self/cgroup", "re");
	while (mounts && fgets(line, sizeof(line), mounts))
		if (strstr(line, " - cgroup2 "))
			sscanf(line, "%*s %*s %*s %*s %511s", mount_point);
	while (groups && fgets(line, sizeof(line), groups))
		sscanf(line, "0::%511s", own);
	if (mounts)
		fclose(mounts);
	if (groups)
		fclose(groups);
	snprintf(path, size, "%s%s", mount_point, mount_point[0] ? own : "");
}

/* --- loads of its own ------------------------------------------------------------------ */

static int enter(const char *pid, const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%s/ns/%s", pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -1 : setns(fd, 0);
}

/* Another's PID namespace, and two forks: the grandchild's parent is that one's init. */
static int load_escape(const char *pid)
{
	/* Root may be refused his way into a user namespace of his own user namespace: it needs only the other. */
	if (enter(pid, "user") < 0 && geteuid() != 0)
		return 1;
	if (enter(pid, "pid") < 0)
		return 2;
	pid_t child = fork();
	if (child < 0)
		return 3;
	if (child == 0) {
		if (fork() != 0)
			_exit(0);
		sleep_long();
	}
	return waitpid(child, NULL, 0) == child ? 0 : 4;
}

/* Out of its cgroup, into the one above. */
static int load_leave(const char *leaf)
{
	char path[300], text[16];
	snprintf(path, sizeof(path), "%s/../cgroup.procs", leaf);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int length = snprintf(text, sizeof(text), "%d", (int)getpid());
	if (fd < 0 || write(fd, text, (size_t)length) != length)
		return 1;
	if (fork() == 0)
		sleep_long();
	return 0;
}

/* Descendants that nothing but descent ties to the scope, then a signal to its supervisor. */
static int load_strike(const char *signal)
{
	load_awkward();
	for (int i = 0; i < 5; i++)
		if (fork() == 0) {
			setsid();
			sleep_long();
		}
	return kill(getppid(), atoi(signal)) < 0 ? 1 : 0;
}

/* Stops orch-reaper, whose child the supervisor is. */
static int load_halt(const char *unused)
{
	(void)unused;
	load_awkward();
	return kill(parent_of(getppid()), SIGSTOP) < 0 ? 1 : 0;
}

/* Exit code 0: neither can be traced, nor is what they have open to be seen; 9: not even a process of one's own can be. */
static int load_spy(const char *helper)
{
	char path[64];
	pid_t others[] = {getppid(), atoi(helper)};
	pid_t own = fork();
	if (own == 0)
		sleep_long();
	if (ptrace(PTRACE_SEIZE, own, 0, 0) < 0)
		return 9;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)own);
	if (access(path, R_OK | X_OK) < 0)
		return 9;
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/fd", (int)others[i]);
		if (ptrace(PTRACE_SEIZE, others[i], 0, 0) == 0 || access(path, R_OK) == 0)
			return 1 + i;
	}
	return 0;
}

/* As root, until the end of its stdin. */
static int load_root(const char *unused)
{
	char byte;
	(void)unused;
	if (setresuid(0, 0, 0) < 0)
		return 1;
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}

static const struct {
	const char *name;
	int (*run)(const char *argument);
} own_loads[] = {{"escape", load_escape}, {"leave", load_leave}, {"strike", load_strike}, {"spy", load_spy},
	       {"root", load_root},
	       {"halt", load_halt}};

/* --- scopes ---------------------------------------------------------------------------- */

static orch_scope *scope_between(orch_ctx *ctx, uint32_t least, uint32_t best)
{
	struct orch_scope_opts opts;
	orch_scope *scope = NULL;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = least;
	opts.best_rung = best;
	OK(orch_scope_new(ctx, &opts, &scope, e));
	return scope;
}

/* Stands; is watched. */
static orch_scope *scope_on(orch_ctx *ctx, uint32_t rung, struct watched *watched)
{
	static unsigned number;
	orch_scope *scope = scope_between(ctx, rung, rung);
	OK(orch_scope_start_wait(scope, 20000, e));
	ck_assert_uint_eq(orch_scope_rung(scope), rung);
	memset(watched, 0, sizeof(*watched));
	watched->init_pid = orch_scope_init_pid(scope);
	watched->inode = orch_scope_pidns_inode(scope);
	snprintf(watched->cgroup, sizeof(watched->cgroup), "%s", orch_scope_cgroup(scope));
	snprintf(watched->word, sizeof(watched->word), "rung-%d-%u", (int)getpid(), number++);
	ck_assert(exists(watched->init_pid));
	ck_assert_int_eq(has_pidns(rung), watched->inode != 0);
	ck_assert_int_eq(has_cgroup(rung), watched->cgroup[0] != 0);
	return scope;
}

/* Whose child it is once its parents are dead may be slow to reap it. */
static bool lives(pid_t pid)
{
	struct census_entry entry;
	return census_describe(pid, &entry) && entry.state[0] != 'Z';
}

static void assert_gone(const struct watched *watched)
{
	for (int look = 0; look < 3; look++)
		ck_assert_uint_eq(with_word(watched->word), 0);
	ck_assert(!lives(watched->init_pid));
	if (watched->cgroup[0])
		ck_assert_int_eq(access(watched->cgroup, F_OK), -1);
}

static bool becomes_gone(const struct watched *watched)
{
	for (int i = 0; i < 1500; i++) {
		if (!with_word(watched->word) && !lives(watched->init_pid) &&
		    (!watched->cgroup[0] || access(watched->cgroup, F_OK) < 0))
			return true;
		pause_ms(10);
	}
	return false;
}

#define HAS(text, part) ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in: %s", part, text)
#define HAS_NOT(text, part) ck_assert_msg(strstr(text, part) == NULL, "\"%s\" in: %s", part, text)

/* What each rung may say of an ordinary end. */
static void assert_certificate(orch_death *death, uint32_t rung)
{
	const char *text = orch_death_text(death);
	ck_assert_msg(orch_death_verdict(death) ==
			  (rung == ORCH_RUNG_SUBREAPER ? ORCH_DEATH_UNVERIFIABLE : ORCH_DEATH_DEAD),
		      "%s", text);
	ck_assert_uint_eq(orch_death_survivor_count(death), 0);
	ck_assert(orch_death_last_death_us(death) >= 0);
	ck_assert(orch_death_confirmed_us(death) >= orch_death_last_death_us(death));
	if (has_pidns(rung)) {
		HAS(orch_death_proof(death), "PID namespace is empty");
	} else {
		HAS(orch_death_proof(death), "supervisor is reaped and left no child behind");
		HAS_NOT(text, "PID namespace's init");
		HAS_NOT(text, "namespace is empty");
		ck_assert_uint_eq(orch_death_pidns_inode(death), 0);
	}
	if (has_cgroup(rung)) {
		HAS(orch_death_mechanism(death), "cgroup.kill");
		HAS(orch_death_proof(death), "populated 0");
		HAS(orch_death_proof(death), "leaf is removed");
	}
	if (rung == ORCH_RUNG_SUBREAPER) {
		HAS(orch_death_mechanism(death), "SIGKILL to its children");
		HAS(orch_death_proof(death), "no descendant was left");
		HAS(orch_death_reason(death), "setns");
		HAS(text, "found by descent");
	} else {
		ck_assert_str_eq(orch_death_reason(death), "");
	}
}

static void end_ctx(orch_ctx *ctx, orch_scope *scope, orch_death *death)
{
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

/* --- each rung by force ---------------------------------------------------------------- */

START_TEST(programs_run)
{
	uint32_t rung = all_rungs[_i];
	orch_ctx *ctx = ctx_new();
	struct watched watched;
	if (!is_there(rung))
		return;
	orch_scope *scope = scope_on(ctx, rung, &watched);
	orch_proc *procs[64];
	for (int code = 0; code < 64; code++) {
		char text[32];
		snprintf(text, sizeof(text), "exit %d", 4 * code + 3);
		procs[code] = spawn(scope, ARGV("/bin/sh", "-c", text));
	}
	for (int code = 0; code < 64; code++)
		ck_assert_int_eq(wait_status(procs[code]), 4 * code + 3);
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", "kill -9 $$")), 256 + SIGKILL);
	ck_assert_int_eq(run(scope, LOAD("fds")), 0);
	orch_proc *missing = spawn(scope, ARGV("/nowhere"));
	ck_assert_int_eq(orch_proc_wait(missing, 20000, NULL, NULL), ORCH_ESPAWN);
	orch_proc_unref(missing);

	/* The pid, and the namespace, that it was said to have. */
	struct stat own;
	char check[128];
	ck_assert_int_eq(stat("/proc/self/ns/pid", &own), 0);
	uint64_t inode = has_pidns(rung) ? watched.inode : own.st_ino;
	snprintf(check, sizeof(check), "test \"$(readlink /proc/self/ns/pid)\" = 'pid:[%llu]'", (unsigned long long)inode);
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", check)), 0);
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	ck_assert(word_is_seen(watched.word, 1));
	pid_t pid = pid_with_word(watched.word);
	ck_assert_int_eq(orch_proc_pid(proc) == pid, !has_pidns(rung));
	ck_assert_int_eq(parent_of(pid), watched.init_pid);
	OK(orch_proc_signal(proc, SIGUSR1, e));
	ck_assert_int_eq(wait_status(proc), 256 + SIGUSR1);
	orch_death *death = stop(scope, 0);
	assert_gone(&watched);
	assert_certificate(death, rung);
	end_ctx(ctx, scope, death);
}
END_TEST

START_TEST(what_is_not_there_is_refused)
{
	uint32_t rung = all_rungs[_i];
	orch_ctx *ctx = ctx_new();
	orch_error *error = NULL;
	if (!is_there(rung)) {
		orch_scope *scope = scope_between(ctx, rung, rung);
		orch_proc *proc = spawn(scope, ARGV("true"));
		ck_assert_int_eq(orch_scope_start_wait(scope, 20000, &error), ORCH_EUNENFORCEABLE);
		ck_assert_str_eq(orch_error_step(error), "cgroup");
		HAS(orch_error_message(error), rung == ORCH_RUNG_CGROUP ? "least_rung CGROUP can" : "least_rung CGROUP_PIDNS");
		HAS(orch_error_message(error), "Delegate=yes");
		ck_assert_uint_eq(orch_scope_rung(scope), 0);
		ck_assert_int_eq(orch_proc_wait(proc, 1000, NULL, NULL), ORCH_EUNENFORCEABLE);
		orch_proc_unref(proc);
		orch_error_free(error);
		orch_death *death = stop(scope, 0);
		ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_DEAD);
		orch_death_unref(death);
		orch_scope_unref(scope);
	}
	orch_ctx_unref(ctx);
}
END_TEST

static void stop_load(uint32_t rung, const char *load, unsigned least, uint32_t grace_ms)
{
	struct watched watched;
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	/* Nobody of the scope's; a supervisor that signals by a wrong number would hit such a one. */
	char other_word[48];
	snprintf(other_word, sizeof(other_word), "other-%s", watched.word);
	pid_t other = fork();
	if (other == 0) {
		execl(self_path, self_path, "--load", "polite", other_word, NULL);
		_exit(99);
	}
	orch_proc *proc = spawn(scope, LOAD(load, watched.word));
	unsigned seen = 0;
	for (int i = 0; i < 3000 && seen < least + 1; i++) {
		pause_ms(i ? 10 : 0);
		seen = with_word(watched.word);
	}
	/* Control: it was there. The word is also in the other's. */
	ck_assert_uint_ge(seen, least + 1);
	/* Hundreds take longer to end than they usually may where the processor is emulated and busy. */
	struct orch_stop_opts opts;
	orch_death *death = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.grace_ms = grace_ms;
	opts.deadline_ms = 60000;
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	ck_assert(word_is_seen(watched.word, 1));
	ck_assert_int_eq(waitpid(other, NULL, WNOHANG), 0);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	assert_gone(&watched);
	assert_certificate(death, rung);
	ck_assert_int_eq(strstr(orch_death_mechanism(death), "SIGTERM") != NULL, grace_ms != 0);
	orch_proc_unref(proc);
	end_ctx(ctx, scope, death);
}

START_TEST(detached_and_deaf_is_gone)
{
	stop_load(all_rungs[_i], "awkward", 1, 0);
	stop_load(all_rungs[_i], "awkward", 1, 50);
}
END_TEST

START_TEST(fork_and_exit_is_gone)
{
	stop_load(all_rungs[_i], "hoppers", 1, 0);
}
END_TEST

START_TEST(three_hundred_are_gone)
{
	stop_load(all_rungs[_i], "grow", 250, 0);
}
END_TEST

START_TEST(grace_reaches_grandchildren)
{
	uint32_t rung = all_rungs[_i];
	struct watched watched;
	struct orch_proc_opts opts;
	int out[2];
	char text[64];
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	ck_assert(pipe2(out, O_CLOEXEC) == 0);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdout_fd = out[1];
	/* One is an orphan in a session of its own, the other has a parent that does not listen. */
	static const char *const listens = "trap 'echo heard; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
	orch_proc *proc = spawn_opts(scope, &opts, ARGV("sh", "-c", "setsid sh -c \"$0\" & exit 0", listens));
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_int_eq(read(out[0], text, 6), 6);
	orch_proc *deaf = spawn_opts(scope, &opts, ARGV("sh", "-c", "trap '' TERM; setsid \"$1\" --load polite; exit 4",
							"sh", self_path));
	ck_assert_int_eq(read(out[0], text, 6), 6);
	close(out[1]);
	orch_death *death = stop(scope, 8000);
	ssize_t length = read(out[0], text, sizeof(text) - 1);
	text[length > 0 ? length : 0] = '\0';
	ck_assert_str_eq(text, "heard\n");
	ck_assert_int_eq(wait_status(deaf), 4);
	/* It ended early: nobody was left. */
	ck_assert(orch_death_confirmed_us(death) < 7000000);
	assert_certificate(death, rung);
	close(out[0]);
	end_ctx(ctx, scope, death);
}
END_TEST

START_TEST(unused_is_dead)
{
	uint32_t rung = all_rungs[_i];
	struct watched watched;
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	orch_death *death = stop(scope, 0);
	ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_DEAD, "%s", orch_death_text(death));
	assert_gone(&watched);
	end_ctx(ctx, scope, death);
}
END_TEST

static bool names(orch_death *death, pid_t victim)
{
	for (uint32_t i = 0; i < orch_death_survivor_count(death); i++) {
		int32_t pid;
		uint64_t start;
		ck_assert_int_eq(orch_death_survivor(death, i, &pid, &start, NULL, NULL), 0);
		if (pid == victim)
			return start > 0;
	}
	return false;
}

static orch_death *stop_within(orch_scope *scope, uint32_t deadline_ms)
{
	struct orch_stop_opts opts;
	orch_death *death = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = deadline_ms;
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	return death;
}

/* Held in its exit by a tracer outside. */
START_TEST(survivors_are_named)
{
	uint32_t rung = all_rungs[_i];
	struct watched watched;
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	ck_assert(word_is_seen(watched.word, 1));
	pid_t victim = pid_with_word(watched.word);
	ck_assert_int_eq(ptrace(PTRACE_SEIZE, victim, 0, PTRACE_O_TRACEEXIT), 0);
	orch_death *death = stop_within(scope, 500);
	const char *text = orch_death_text(death);
	ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_SURVIVORS, "%s", text);
	ck_assert_msg(names(death, victim), "%s", text);
	HAS(text, "started at tick");
	ck_assert_int_eq(orch_death_last_death_us(death), -1);
	ck_assert(ptrace(PTRACE_DETACH, victim, 0, 0) == 0 || errno == ESRCH);
	ck_assert(becomes_gone(&watched));
	orch_proc_unref(proc);
	end_ctx(ctx, scope, death);
}
END_TEST

/* A set-user-ID program is another's: only a cgroup reaches it, and a namespace does not let it be. */
START_TEST(another_users_process)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	struct orch_proc_opts opts;
	int in[2];
	struct stat suid;
	if (!is_there(rung) || is_root())
		return;
	if (stat(suid_path, &suid) < 0 || suid.st_uid != 0) {
		printf("not started by root: there is no set-user-ID program to try\n");
		return;
	}
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	ck_assert(pipe2(in, O_CLOEXEC) == 0);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdin_fd = in[0];
	orch_proc *proc = spawn_opts(scope, &opts, ARGV(suid_path, "--load", "root", "x", watched.word));
	close(in[0]);
	ck_assert(word_is_seen(watched.word, 1));
	pid_t victim = pid_with_word(watched.word);
	/* Control: it is out of this user's reach. */
	for (int i = 0; i < 500 && kill(victim, 0) == 0; i++)
		pause_ms(10);
	ck_assert(kill(victim, 0) < 0 && errno == EPERM);
	orch_death *death = stop_within(scope, 1000);
	if (rung == ORCH_RUNG_CGROUP) {
		assert_certificate(death, rung);
	} else {
		ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_SURVIVORS, "%s", orch_death_text(death));
		ck_assert(names(death, victim));
		ck_assert(exists(victim));
	}
	close(in[1]);
	ck_assert(becomes_gone(&watched));
	orch_proc_unref(proc);
	end_ctx(ctx, scope, death);
}
END_TEST

START_TEST(dropped_is_gone)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	ck_assert_int_eq(run(scope, LOAD("awkward", watched.word)), 0);
	ck_assert(word_is_seen(watched.word, 1));
	orch_scope_unref(scope);
	ck_assert(becomes_gone(&watched));
	/* And with the context. */
	scope = scope_on(ctx, rung, &watched);
	ck_assert_int_eq(run(scope, LOAD("awkward", watched.word)), 0);
	ck_assert(word_is_seen(watched.word, 1));
	orch_ctx_unref(ctx);
	orch_scope_unref(scope);
	ck_assert(becomes_gone(&watched));
}
END_TEST

START_TEST(leader_ends_the_scope)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	struct deaths deaths = {0};
	struct orch_proc_opts opts;
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
	ck_assert_int_eq(run(scope, LOAD("awkward", watched.word)), 0);
	ck_assert(word_is_seen(watched.word, 1));
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_PROC_LEADER;
	ck_assert_int_eq(wait_status(spawn_opts(scope, &opts, ARGV("sh", "-c", "exit 9"))), 9);
	loop_until(ctx, &deaths.count);
	assert_gone(&watched);
	assert_certificate(deaths.last, rung);
	end_ctx(ctx, scope, deaths.last);
}
END_TEST

/* Two of the same rung in one helper: what one leaves is not the other's. */
START_TEST(scopes_are_apart)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched[2];
	orch_scope *scopes[2];
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	for (int i = 0; i < 2; i++) {
		scopes[i] = scope_on(ctx, rung, &watched[i]);
		ck_assert_int_eq(run(scopes[i], LOAD("awkward", watched[i].word)), 0);
		ck_assert(word_is_seen(watched[i].word, 1));
	}
	/* The first one's supervisor is killed: its load is a stray's. */
	struct deaths deaths = {0};
	OK(orch_scope_on_death(scopes[0], on_death, &deaths, on_deaths_destroyed, e));
	ck_assert_int_eq(kill(watched[0].init_pid, SIGKILL), 0);
	loop_until(ctx, &deaths.count);
	assert_gone(&watched[0]);
	ck_assert(word_is_seen(watched[1].word, 1));
	ck_assert_int_eq(run(scopes[1], ARGV("true")), 0);
	orch_death *death = stop(scopes[1], 0);
	assert_gone(&watched[1]);
	assert_certificate(death, rung);
	orch_scope_unref(scopes[0]);
	orch_death_unref(deaths.last);
	end_ctx(ctx, scopes[1], death);
}
END_TEST

/* --- supervisors under attack ---------------------------------------------------------- */

START_TEST(killed_by_its_load)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	struct deaths deaths = {0};
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
	orch_proc *proc = spawn(scope, LOAD("strike", "9", watched.word));
	loop_until(ctx, &deaths.count);
	assert_gone(&watched);
	const char *text = orch_death_text(deaths.last);
	HAS(text, "supervisor was killed");
	if (rung == ORCH_RUNG_SUBREAPER) {
		ck_assert_uint_eq(orch_death_verdict(deaths.last), ORCH_DEATH_UNVERIFIABLE);
		HAS(text, "orch-reaper, which became the parent");
		HAS_NOT(text, "no descendant was left");
	} else {
		ck_assert_msg(orch_death_verdict(deaths.last) == ORCH_DEATH_DEAD, "%s", text);
	}
	orch_proc_unref(proc);
	end_ctx(ctx, scope, deaths.last);
}
END_TEST

static void assert_stopped(pid_t pid)
{
	struct census_entry entry = {0};
	for (int i = 0; i < 500 && entry.state[0] != 'T'; i++) {
		pause_ms(10);
		ck_assert(census_describe(pid, &entry));
	}
	ck_assert_str_eq(entry.state, "T");
}

START_TEST(helper_stopped_by_its_load)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	orch_proc *proc = spawn(scope, LOAD("halt", "x", watched.word));
	ck_assert(word_is_seen(watched.word, 1));
	assert_stopped(parent_of(watched.init_pid));
	orch_death *death = stop(scope, 0);
	assert_gone(&watched);
	assert_certificate(death, rung);
	orch_proc_unref(proc);
	end_ctx(ctx, scope, death);
}
END_TEST

START_TEST(stopped_by_its_load)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	char number[16];
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	snprintf(number, sizeof(number), "%d", SIGSTOP);
	orch_proc *proc = spawn(scope, LOAD("strike", number, watched.word));
	ck_assert(word_is_seen(watched.word, 6));
	assert_stopped(watched.init_pid);
	orch_death *death = stop(scope, 0);
	assert_gone(&watched);
	assert_certificate(death, rung);
	orch_proc_unref(proc);
	end_ctx(ctx, scope, death);
}
END_TEST

START_TEST(can_not_be_traced)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	char helper[16];
	if (!is_there(rung) || is_root())
		return; /* root traces everybody */
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	snprintf(helper, sizeof(helper), "%d", (int)parent_of(watched.init_pid));
	ck_assert_int_eq(run(scope, LOAD("spy", helper)), 0);
	/* A PID namespace is set up by a helper that hides itself as well as before. */
	orch_scope *above = scope_between(ctx, ORCH_RUNG_PIDNS, ORCH_RUNG_PIDNS);
	ck_assert_int_eq(run(above, ARGV("true")), 0);
	orch_death *death = stop(above, 0);
	assert_dead(death);
	orch_death_unref(death);
	orch_scope_unref(above);
	end_ctx(ctx, scope, stop(scope, 0));
}
END_TEST

/* --- leaving --------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(98);
	close(fd);
}

/* Somebody else's PID namespace of the same user. Host pid of its init. */
static pid_t foreign_namespace(pid_t *ret_maker)
{
	int ready[2];
	pid_t init = 0;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	ck_assert(pipe2(ready, O_CLOEXEC) == 0);
	*ret_maker = fork();
	if (*ret_maker == 0) {
		char map[64];
		if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWPID : CLONE_NEWPID) < 0)
			_exit(97);
		if (uid) {
			prctl(PR_SET_DUMPABLE, 1);
			write_file("/proc/self/setgroups", "deny");
			snprintf(map, sizeof(map), "%u %u 1", uid, uid);
			write_file("/proc/self/uid_map", map);
			snprintf(map, sizeof(map), "%u %u 1", gid, gid);
			write_file("/proc/self/gid_map", map);
		}
		init = fork();
		if (init == 0) {
			signal(SIGCHLD, SIG_IGN);
			sleep_long();
		}
		if (write(ready[1], &init, sizeof(init)) != sizeof(init))
			_exit(96);
		waitpid(init, NULL, 0);
		_exit(0);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &init, sizeof(init)), sizeof(init));
	close(ready[0]);
	return init;
}

/* By descent it is lost, and nobody says otherwise; in a cgroup it stays. */
START_TEST(escape_by_a_foreign_namespace)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	pid_t maker;
	if (!is_there(rung))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, rung, &watched);
	pid_t foreign = foreign_namespace(&maker);
	snprintf(escape_to, sizeof(escape_to), "%d", (int)foreign);
	ck_assert_int_eq(run(scope, LOAD("escape", escape_to, watched.word)), 0);
	ck_assert(word_is_seen(watched.word, 1));
	ck_assert_int_eq(parent_of(pid_with_word(watched.word)), foreign);
	orch_death *death = stop(scope, 0);
	unsigned left = with_word(watched.word);
	bool supervisor = exists(watched.init_pid);
	kill(foreign, SIGKILL);
	waitpid(maker, NULL, 0);
	ck_assert_uint_eq(left, rung == ORCH_RUNG_SUBREAPER ? 1 : 0);
	ck_assert(!supervisor);
	assert_certificate(death, rung);
	end_ctx(ctx, scope, death);
}
END_TEST

/* Whoever may write the cgroup above can leave: what only did that is found by descent. */
START_TEST(leaving_the_cgroup)
{
	struct watched watched;
	if (!is_there(ORCH_RUNG_CGROUP))
		return;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_on(ctx, ORCH_RUNG_CGROUP, &watched);
	ck_assert_int_eq(run(scope, LOAD("leave", watched.cgroup, watched.word)), 0);
	ck_assert(word_is_seen(watched.word, 1));
	orch_death *death = stop(scope, 0);
	assert_gone(&watched);
	ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_UNVERIFIABLE, "%s", orch_death_text(death));
	HAS(orch_death_mechanism(death), "had left the cgroup");
	HAS(orch_death_reason(death), "had left the scope's cgroup");
	end_ctx(ctx, scope, death);
}
END_TEST

/* --- host and helper killed ------------------------------------------------------------- */

START_TEST(helper_killed)
{
	uint32_t rung = lower_rungs[_i];
	struct watched watched;
	struct deaths deaths = {0};
	if (!is_there(rung))
		return;
	for (int round = 0; round < (getenv("ORCH_TEST_ALL") ? 40 : 4); round++) {
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_on(ctx, rung, &watched);
		deaths = (struct deaths){0};
		OK(orch_scope_on_death(scope, on_death, &deaths, on_deaths_destroyed, e));
		ck_assert_int_eq(run(scope, LOAD("awkward", watched.word)), 0);
		ck_assert(word_is_seen(watched.word, 1));
		ck_assert_int_eq(kill(parent_of(watched.init_pid), SIGKILL), 0);
		loop_until(ctx, &deaths.count);
		assert_gone(&watched);
		const char *text = orch_death_text(deaths.last);
		uint32_t verdict = orch_death_verdict(deaths.last);
		if (rung == ORCH_RUNG_CGROUP)
			ck_assert_msg(verdict == ORCH_DEATH_DEAD || verdict == ORCH_DEATH_DEAD_UNREAPED, "%s", text);
		else
			ck_assert_msg(verdict == ORCH_DEATH_UNVERIFIABLE && strstr(text, "left to the scope's supervisor"), "%s",
				      text);
		HAS_NOT(text, "namespace is empty");
		end_ctx(ctx, scope, deaths.last);
	}
}
END_TEST

static pid_t start_host(uint32_t rung, struct watched *watched)
{
	int out[2];
	ck_assert(pipe2(out, O_CLOEXEC) == 0);
	pid_t host = fork();
	if (host == 0) {
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_on(ctx, rung, watched);
		run(scope, LOAD("awkward", watched->word));
		spawn(scope, LOAD("hoppers", watched->word));
		if (!word_is_seen(watched->word, 2) || write(out[1], watched, sizeof(*watched)) < 0)
			_exit(1);
		for (;;)
			orch_ctx_run(ctx, 1000, NULL);
	}
	close(out[1]);
	ck_assert_int_eq(read(out[0], watched, sizeof(*watched)), sizeof(*watched));
	close(out[0]);
	return host;
}

/* Host, helper, both at once: 1, 2, 3. */
START_TEST(nobody_is_left_to_ask)
{
	uint32_t rung = lower_rungs[_i / 3];
	int who = _i % 3 + 1;
	struct watched watched;
	if (!is_there(rung))
		return;
	for (int round = 0; round < (getenv("ORCH_TEST_ALL") ? 40 : 3); round++) {
		pid_t host = start_host(rung, &watched);
		pid_t helper = parent_of(watched.init_pid);
		ck_assert_int_gt(helper, 1);
		if (who & 1)
			kill(host, SIGKILL);
		if (who & 2)
			kill(helper, SIGKILL);
		ck_assert_msg(becomes_gone(&watched), "rung %u, killed %d: left %u, supervisor %d, cgroup %s", rung, who,
			      with_word(watched.word), lives(watched.init_pid), watched.cgroup);
		kill(host, SIGKILL);
		waitpid(host, NULL, 0);
		for (int i = 0; i < 1000 && lives(helper); i++)
			pause_ms(10);
		ck_assert(!lives(helper));
	}
}
END_TEST

/* --- the ladder ------------------------------------------------------------------------- */

static char logged[2048];

static void on_log(void *userdata, uint32_t level, const char *message)
{
	(void)userdata;
	(void)level;
	snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", message);
}

static orch_ctx *ctx_with_log(void)
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = helper_path;
	opts.log = on_log;
	OK(orch_ctx_new(&opts, &ctx, e));
	return ctx;
}

START_TEST(best_of_what_is_there)
{
	orch_ctx *ctx = ctx_with_log();
	uint32_t best = is_there(ORCH_RUNG_CGROUP) ? ORCH_RUNG_CGROUP_PIDNS : ORCH_RUNG_PIDNS;
	orch_scope *scope = scope_between(ctx, ORCH_RUNG_SUBREAPER, 0);
	OK(orch_scope_start_wait(scope, 20000, e));
	ck_assert_uint_eq(orch_scope_rung(scope), best);
	if (best == ORCH_RUNG_PIDNS) {
		HAS(logged, "rung PIDNS, not CGROUP_PIDNS: ");
		HAS(logged, "Delegate=yes");
	} else {
		HAS_NOT(logged, "rung");
	}
	orch_scope_unref(scope);
	/* What was not wished is not missed. */
	logged[0] = '\0';
	scope = scope_between(ctx, ORCH_RUNG_SUBREAPER, ORCH_RUNG_SUBREAPER);
	OK(orch_scope_start_wait(scope, 20000, e));
	HAS_NOT(logged, "rung");
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* Like sysctl user.max_user_namespaces=0, and for root a container without CAP_SYS_ADMIN. */
static void forbid_namespaces(void)
{
	char map[64], group_map[64];
	snprintf(map, sizeof(map), "%d %d 1", USER, (int)geteuid());
	snprintf(group_map, sizeof(group_map), "%d %d 1", USER, (int)getegid());
	ck_assert_int_eq(unshare(CLONE_NEWUSER), 0);
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/uid_map", map);
	write_file("/proc/self/gid_map", group_map);
	write_file("/proc/sys/user/max_user_namespaces", "0");
}

START_TEST(without_namespaces)
{
	char own[1024];
	orch_error *error = NULL;
	forbid_namespaces();
	/* Root lost the right to override modes. */
	find_own_cgroup(own, sizeof(own));
	bool cgroup = own[0] && access(own, W_OK) == 0;
	ck_assert(!delegated || cgroup);
	orch_ctx *ctx = ctx_with_log();
	orch_scope *scope = scope_between(ctx, ORCH_RUNG_SUBREAPER, 0);
	orch_proc *proc = spawn(scope, ARGV("sh", "-c", "exit 7"));
	OK(orch_scope_start_wait(scope, 20000, e));
	uint32_t rung = orch_scope_rung(scope);
	ck_assert_uint_eq(rung, cgroup ? ORCH_RUNG_CGROUP : ORCH_RUNG_SUBREAPER);
	ck_assert_int_eq(wait_status(proc), 7);
	HAS(logged, cgroup ? "rung CGROUP, not CGROUP_PIDNS PIDNS: " : "rung SUBREAPER, not CGROUP_PIDNS PIDNS CGROUP: ");
	HAS(logged, "user.max_user_namespaces");
	orch_death *death = stop(scope, 0);
	assert_certificate(death, rung);
	orch_death_unref(death);
	orch_scope_unref(scope);

	/* Never silently lower: the default, and what only one of both causes keeps away. */
	scope = scope_between(ctx, 0, 0);
	ck_assert_int_eq(orch_scope_start_wait(scope, 20000, &error), ORCH_EUNENFORCEABLE);
	HAS(orch_error_message(error), "user.max_user_namespaces");
	ck_assert_int_eq(orch_error_errno(error), ENOSPC);
	orch_error_free(error);
	orch_scope_unref(scope);
	error = NULL;
	scope = scope_between(ctx, ORCH_RUNG_CGROUP, 0);
	if (cgroup) {
		OK(orch_scope_start_wait(scope, 20000, e));
		ck_assert_uint_eq(orch_scope_rung(scope), ORCH_RUNG_CGROUP);
	} else {
		ck_assert_int_eq(orch_scope_start_wait(scope, 20000, &error), ORCH_EUNENFORCEABLE);
		HAS(orch_error_message(error), "least_rung CGROUP can not be had");
		HAS(orch_error_message(error), "Delegate=yes");
		HAS(orch_error_message(error), "user.max_user_namespaces");
		orch_error_free(error);
	}
	end_ctx(ctx, scope, NULL);
}
END_TEST

START_TEST(a_sandbox_needs_a_namespace)
{
	orch_ctx *ctx = ctx_new();
	struct orch_scope_opts opts;
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	const struct orch_confinement confinement = {.spec_fd = 1, .host_uid = geteuid()};
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = ORCH_RUNG_SUBREAPER;
	opts.best_rung = ORCH_RUNG_CGROUP;
	ck_assert_int_eq(orch_scope_new_confined(ctx, &opts, &confinement, &scope, &error), ORCH_EINVAL);
	HAS(orch_error_message(error), "best_rung 2");
	ck_assert_ptr_null(scope);
	orch_error_free(error);
	error = NULL;
	opts.least_rung = ORCH_RUNG_PIDNS;
	ck_assert_int_eq(orch_scope_new(ctx, &opts, &scope, &error), ORCH_EINVAL);
	HAS(orch_error_message(error), "best_rung 2 is below least_rung 3");
	orch_error_free(error);
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
	Suite *all = suite_create(delegated ? "rungs, delegated" : "rungs");
	TCase *each = tcase_create("each rung");
	TCase *attacks = tcase_create("attacks");
	TCase *ladder = tcase_create("ladder");
	tcase_add_loop_test(each, programs_run, 0, 4);
	tcase_add_loop_test(each, what_is_not_there_is_refused, 0, 4);
	tcase_add_loop_test(each, detached_and_deaf_is_gone, 0, 4);
	tcase_add_loop_test(each, fork_and_exit_is_gone, 0, 4);
	tcase_add_loop_test(each, three_hundred_are_gone, 0, 4);
	tcase_add_loop_test(each, grace_reaches_grandchildren, 0, 4);
	tcase_add_loop_test(each, unused_is_dead, 0, 4);
	tcase_add_loop_test(each, survivors_are_named, 0, 4);
	tcase_add_loop_test(each, another_users_process, 0, 2);
	tcase_add_loop_test(each, dropped_is_gone, 0, 2);
	tcase_add_loop_test(each, leader_ends_the_scope, 0, 2);
	tcase_add_loop_test(each, scopes_are_apart, 0, 2);
	tcase_add_loop_test(attacks, killed_by_its_load, 0, 2);
	tcase_add_loop_test(attacks, stopped_by_its_load, 0, 2);
	tcase_add_loop_test(attacks, helper_stopped_by_its_load, 0, 2);
	tcase_add_loop_test(attacks, can_not_be_traced, 0, 2);
	tcase_add_loop_test(attacks, escape_by_a_foreign_namespace, 0, 2);
	tcase_add_test(attacks, leaving_the_cgroup);
	tcase_add_loop_test(attacks, helper_killed, 0, 2);
	tcase_add_loop_test(attacks, nobody_is_left_to_ask, 0, 6);
	tcase_add_test(ladder, best_of_what_is_there);
	tcase_add_test(ladder, without_namespaces);
	tcase_add_test(ladder, a_sandbox_needs_a_namespace);
	TCase *cases[] = {each, attacks, ladder};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		tcase_set_timeout(cases[i], 120);
		suite_add_tcase(all, cases[i]);
	}
	return all;
}

/* What systemd does for Delegate=yes. */
static int run_delegated(void)
{
	static const char *const files[] = {"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"};
	char above[1024], own[1100], path[1200], text[16];
	int status = -1;
	find_own_cgroup(above, sizeof(above));
	snprintf(own, sizeof(own), "%s/test-rungs-%d", above, (int)getpid());
	if (!above[0] || mkdir(own, 0755) < 0) {
		printf("no cgroup v2: the rungs in a delegated one were not tested\n");
		return getenv("CI") ? 1 : 0;
	}
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "%s%s", own, files[i]);
		if (chown(path, USER, USER) < 0)
			return 1;
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", own);
		snprintf(text, sizeof(text), "%d", (int)getpid());
		write_file(path, text);
		delegated = true;
		_exit(run_as_user() == 0 ? 0 : 1);
	}
	waitpid(child, &status, 0);
	/* Of a test that failed: everything of ours is in there. */
	if (rmdir(own) < 0) {
		snprintf(path, sizeof(path), "%s/cgroup.kill", own);
		write_file(path, "1");
		for (int i = 0; i < 200 && rmdir(own) < 0; i++)
			pause_ms(10);
		printf("something was left in the delegated cgroup\n");
		return 1;
	}
	return status;
}

int main(int argc, char **argv)
{
	/* As root's for everybody it is good for one thing only. */
	if (geteuid() != getuid())
		return argc >= 4 && strcmp(argv[2], "root") == 0 ? load_root(NULL) : 99;
	if (argc >= 4 && strcmp(argv[1], "--load") == 0)
		for (size_t i = 0; i < sizeof(own_loads) / sizeof(*own_loads); i++)
			if (strcmp(argv[2], own_loads[i].name) == 0)
				return own_loads[i].run(argv[3]);
	if (argc >= 3 && strcmp(argv[1], "--load") == 0)
		return load_main(argv[2]);
	make_folder();
	delegated = !is_root() && has_delegation();
	copy(self_path, suid_path, sizeof(suid_path), "suid");
	if (is_root() && (chown(suid_path, 0, USER) < 0 || chmod(suid_path, 04750) < 0))
		return 99;
	int failed = run_all();
	if (is_root() && !getenv("ORCH_TEST_ONCE")) {
		failed += run_as_user() != 0;
		failed += run_delegated() != 0;
	} else if (!is_root() && !delegated) {
		printf("not root: the cgroup rungs were not tested\n");
	}
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	failed += system(command) != 0;
	return failed ? 1 : 0;
}
