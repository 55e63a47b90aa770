/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of scopes, each exceeded on purpose beside a control that stays below it, and the reasons of programs' ends.
 * What the host has is found out by the test itself and demanded: a cgroup controller for root, RLIMIT_NPROC for an
 * ordinary user. Which mechanism was used is printed.
 */
#include <ftw.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/xattr.h>

#include "../crash/liveness-fixture.h"
#include "limits-loads.h"

#define LIMIT_MIB 48
#define BELOW "16"
#define ABOVE "160"
/* For what hangs only: thousands of forks take an emulated processor minutes. */
#define END_MS 600000

int fake_helper(const char *name)
{
	(void)name;
	return 100;
}

/* --- what this host has ---------------------------------------------------------------- */

/* What has to be found for the limit here, printed once. */
static void demand(orch_scope *scope, uint32_t limit, uint32_t otherwise)
{
	static uint32_t printed;
	static const char *const controllers[] = {[1] = "memory", [2] = "pids", [4] = "cpu", [8] = ""};
	static const char *const states[] = {"?", "unasked", "enforced", "partial", "absent"};
	uint32_t state = 0;
	const char *mechanism = NULL;
	OK(orch_scope_start_wait(scope, 20000, e));
	ck_assert_int_eq(orch_scope_limit(scope, limit, &state, &mechanism), 0);
	bool enforced = limit == ORCH_LIMIT_TIME || has_controller(controllers[limit]);
	if (!(printed & limit))
		printf("limit %u: %s, %s\n", limit, states[state], mechanism);
	printed |= limit;
	fflush(stdout);
	ck_assert_uint_eq(state, enforced ? ORCH_LIMIT_ENFORCED : otherwise);
	ck_assert_str_ne(mechanism, "");
}

static bool is_enforced(orch_scope *scope, uint32_t limit)
{
	uint32_t state = 0;
	ck_assert_int_eq(orch_scope_limit(scope, limit, &state, NULL), 0);
	return state == ORCH_LIMIT_ENFORCED;
}

static const char *name_to_find;
static unsigned names_found;

static int look_at_name(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	(void)type;
	names_found += strcmp(path + place->base, name_to_find) == 0;
	return 0;
}

/* Folders of that name in all hierarchies. */
static unsigned cgroups_named(const char *name)
{
	name_to_find = name;
	names_found = 0;
	nftw("/sys/fs/cgroup", look_at_name, 32, FTW_PHYS);
	return names_found;
}

/* --- scopes with limits ---------------------------------------------------------------- */

struct limited {
	orch_ctx *ctx;
	orch_scope *scope;
	struct deaths deaths;
	char name[32];
};

static struct orch_scope_opts with_memory(void)
{
	struct orch_scope_opts opts;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.memory_limit_bytes = LIMIT_MIB * MIB;
	return opts;
}

static struct orch_scope_opts plain_opts(void)
{
	struct orch_scope_opts opts;
	orch_scope_opts_init(&opts, sizeof(opts));
	return opts;
}

static void limited_new(struct limited *limited, const struct orch_scope_opts *opts)
{
	*limited = (struct limited){.ctx = ctx_new()};
	OK(orch_scope_new(limited->ctx, opts, &limited->scope, e));
	OK(orch_scope_on_death(limited->scope, on_death, &limited->deaths, on_deaths_destroyed, e));
	snprintf(limited->name, sizeof(limited->name), "%s", orch_scope_name(limited->scope));
}

/* It ended by itself, for this limit: nobody had to stop it. */
static void assert_ended_by(struct limited *limited, uint32_t limit)
{
	loop_until(limited->ctx, &limited->deaths.count);
	ck_assert_msg(orch_death_limit(limited->deaths.last) == limit, "%s", orch_death_text(limited->deaths.last));
	assert_dead(limited->deaths.last);
	ck_assert_msg(strstr(orch_death_mechanism(limited->deaths.last),
			     limit == ORCH_LIMIT_TIME ? "its time limit was over" : "its memory limit was exceeded"),
		      "%s", orch_death_text(limited->deaths.last));
}

static void limited_drop(struct limited *limited)
{
	ck_assert_uint_eq(cgroups_named(limited->name), 0);
	orch_death_unref(limited->deaths.last);
	orch_scope_unref(limited->scope);
	orch_ctx_unref(limited->ctx);
}

static void limited_end(struct limited *limited)
{
	if (!limited->deaths.count) {
		orch_death *death = stop(limited->scope, 0);
		assert_dead(death);
		ck_assert_uint_eq(orch_death_limit(death), 0);
		orch_death_unref(death);
	}
	limited_drop(limited);
}

/* Runs it, and what came of it. */
static uint32_t end_of(struct limited *limited, const char *const *argv, int32_t *ret_status)
{
	orch_proc *proc = spawn(limited->scope, argv);
	ck_assert_uint_eq(orch_proc_reason(proc), 0);
	OK(orch_proc_wait(proc, END_MS, ret_status, e));
	uint32_t reason = orch_proc_reason(proc);
	orch_proc_unref(proc);
	return reason;
}

/* --- memory ---------------------------------------------------------------------------- */

static void exceed_memory(const char *load, int32_t refused)
{
	struct orch_scope_opts opts = with_memory();
	struct limited limited;
	int32_t status = -1;
	/* Control: below the limit it lives. */
	limited_new(&limited, &opts);
	demand(limited.scope, ORCH_LIMIT_MEMORY, ORCH_LIMIT_PARTIAL);
	ck_assert_uint_eq(end_of(&limited, LOAD(load, BELOW), &status), ORCH_REASON_EXITED);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(limited.deaths.count, 0);
	limited_end(&limited);
	/* Control: the load itself works, without a limit. */
	struct orch_scope_opts none = plain_opts();
	limited_new(&limited, &none);
	ck_assert_uint_eq(end_of(&limited, LOAD(load, ABOVE), &status), ORCH_REASON_EXITED);
	ck_assert_int_eq(status, 0);
	limited_end(&limited);

	limited_new(&limited, &opts);
	orch_proc *other = spawn(limited.scope, LOAD("stubborn"));
	OK(orch_scope_start_wait(limited.scope, 20000, e));
	if (is_enforced(limited.scope, ORCH_LIMIT_MEMORY)) {
		uint32_t reason = end_of(&limited, LOAD(load, ABOVE), &status);
		ck_assert_msg(reason == ORCH_REASON_MEMORY, "reason %u, status %d", reason, status);
		assert_ended_by(&limited, ORCH_LIMIT_MEMORY);
		/* One victim is none. */
		ck_assert_uint_eq(orch_proc_reason(other), ORCH_REASON_MEMORY);
		ck_assert_int_eq(orch_proc_term_signal(other), SIGKILL);
	} else {
		/* What partial means: each process alone, and no kill. */
		ck_assert_uint_eq(end_of(&limited, LOAD(load, ABOVE), &status), ORCH_REASON_EXITED);
		ck_assert_int_eq(status, refused);
		ck_assert_uint_eq(orch_proc_reason(other), 0);
	}
	orch_proc_unref(other);
	limited_end(&limited);
}

START_TEST(anonymous_memory)
{
	exceed_memory("anonymous", 7);
}
END_TEST

START_TEST(memory_in_files)
{
	exceed_memory("memfd", 0);
}
END_TEST

START_TEST(memory_of_many)
{
	exceed_memory("many", 0);
}
END_TEST

/* On v1 the kernel kills the child alone: the scope is over all the same, and its program's reason is the limit. */
START_TEST(memory_of_a_child)
{
	exceed_memory("parent", 5);
}
END_TEST

START_TEST(a_kill_is_not_memory)
{
	struct orch_scope_opts opts = with_memory();
	struct limited limited;
	limited_new(&limited, &opts);
	orch_proc *proc = spawn(limited.scope, LOAD("stubborn"));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(limited.ctx, e));
	OK(orch_proc_signal(proc, SIGKILL, e));
	OK(orch_proc_wait(proc, 20000, NULL, e));
	ck_assert_uint_eq(orch_proc_reason(proc), ORCH_REASON_SIGNALED);
	ck_assert_int_eq(limited.deaths.count, 0);
	orch_proc_unref(proc);
	limited_end(&limited);
}
END_TEST

/* The first of these folders that is there. */
static const char *first_folder(const char *const *paths)
{
	while (*paths && access(*paths, W_OK) < 0)
		paths++;
	return *paths;
}

static void write_file(const char *folder_path, const char *name, const char *text)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/%s", folder_path, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_msg(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s: %m", path);
	close(fd);
}

/* In a process of its own, whose cgroup the caller removes. */
static int in_child(void (*work)(const char *place), const char *place)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		work(place);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status;
}

/* The host is in a v1 cgroup of 96 MiB, the scope may have 1 GiB: the kernel kills, and not for the scope's limit. */
static void exceed_the_hosts_memory(const char *place)
{
	struct orch_scope_opts opts = with_memory();
	struct limited limited;
	int32_t status = -1;
	write_file(place, "memory.limit_in_bytes", "100663296");
	write_file(place, "cgroup.procs", "0");
	opts.memory_limit_bytes = (uint64_t)1 << 30;
	limited_new(&limited, &opts);
	orch_proc *other = spawn(limited.scope, LOAD("stubborn"));
	ck_assert_uint_eq(end_of(&limited, LOAD("anonymous", "300"), &status), ORCH_REASON_SIGNALED);
	ck_assert_int_eq(status, 256 + SIGKILL);
	/* The scope goes on, and its certificate says what happened. */
	ck_assert_uint_eq(orch_proc_reason(other), 0);
	ck_assert_int_eq(run(limited.scope, ARGV("true")), 0);
	orch_death *death = stop(limited.scope, 0);
	assert_dead(death);
	ck_assert_uint_eq(orch_death_limit(death), 0);
	ck_assert_msg(strstr(orch_death_mechanism(death), "want of memory outside"), "%s", orch_death_text(death));
	orch_death_unref(death);
	orch_proc_unref(other);
	orch_scope_unref(limited.scope);
	orch_ctx_unref(limited.ctx);
}

START_TEST(memory_elsewhere_is_not_the_scopes)
{
	static const char *const mounts[] = {"/sys/fs/cgroup/memory", NULL};
	const char *mount = first_folder(mounts);
	char place[256];
	if (!is_root() || !mount) {
		printf("no v1 memory controller for this user: a kill for the host's memory was not tried\n");
		return;
	}
	snprintf(place, sizeof(place), "%s/orch-test-%d", mount, (int)getpid());
	ck_assert_int_eq(mkdir(place, 0755), 0);
	int status = in_child(exceed_the_hosts_memory, place);
	for (int i = 0; i < 500 && rmdir(place) < 0; i++)
		pause_ms(10);
	ck_assert_int_eq(access(place, F_OK), -1);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* --- where a scope's leaf is ----------------------------------------------------------- */

static void assert_leaf_in(const char *folder_path)
{
	struct orch_scope_opts opts = with_memory();
	struct limited limited;
	char expected[400];
	limited_new(&limited, &opts);
	ck_assert_int_eq(run(limited.scope, ARGV("true")), 0);
	snprintf(expected, sizeof(expected), "%s/%s", folder_path, limited.name);
	ck_assert_str_eq(orch_scope_cgroup(limited.scope), expected);
	limited_end(&limited);
}

/* The host sits in a leaf "host" of `place`: with the mark of a delegation, scopes are made beside it. */
static void host_in_a_leaf(const char *place)
{
	char host[310];
	snprintf(host, sizeof(host), "%.256s/host", place);
	ck_assert_int_eq(mkdir(host, 0755), 0);
	write_file(host, "cgroup.procs", "0");
	/* Control: not delegated, so nothing beside it is touched. */
	assert_leaf_in(host);
	ck_assert_int_eq(setxattr(place, "user.delegate", "1", 1, 0), 0);
	assert_leaf_in(place);
}

/* The same for an ordinary user, whose systemd marks nothing: told by the names of units. */
static void user_below_a_unit(const char *place)
{
	static const char *const files[] = {"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"};
	static const char *const folders[] = {".", "run-1.scope", "run-1.scope/host", "run-1.slice",
					      "run-1.scope/other.service", "run-1.slice/host"};
	char path[400];
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", place, folders[i]);
		ck_assert(mkdir(path, 0755) == 0 || i == 0);
		for (size_t j = 0; j < sizeof(files) / sizeof(*files); j++) {
			snprintf(path, sizeof(path), "%s/%s%s", place, folders[i], files[j]);
			ck_assert_int_eq(chown(path, USER, USER), 0);
		}
	}
	snprintf(path, sizeof(path), "%s/run-1.scope/host", place);
	write_file(path, "cgroup.procs", "0");
	if (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 || setresuid(USER, USER, USER) < 0)
		_exit(99);
	*strrchr(path, '/') = '\0';
	assert_leaf_in(path);
	/* Controls: in a unit of its own, and below what is no unit with programs, nothing beside it is touched. */
	for (size_t i = 4; i < sizeof(folders) / sizeof(*folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", place, folders[i]);
		write_file(path, "cgroup.procs", "0");
		assert_leaf_in(path);
	}
}

START_TEST(leaf_below_a_users_unit)
{
	static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup", NULL};
	static const char *const inside[] = {"run-1.scope/host", "run-1.scope/other.service", "run-1.scope",
					     "run-1.slice/host", "run-1.slice", "."};
	const char *mount = first_folder(mounts);
	char place[256], path[400];
	if (!is_root()) {
		printf("not root: no units were made up\n");
		return;
	}
	ck_assert_ptr_nonnull(mount);
	snprintf(place, sizeof(place), "%s/orch-test-%d", mount, (int)getpid());
	ck_assert_int_eq(mkdir(place, 0755), 0);
	int status = in_child(user_below_a_unit, place);
	for (size_t i = 0; i < sizeof(inside) / sizeof(*inside); i++) {
		snprintf(path, sizeof(path), "%s/%s", place, strcmp(inside[i], ".") == 0 ? "" : inside[i]);
		for (int j = 0; j < 1500 && rmdir(path) < 0 && errno == EBUSY; j++)
			pause_ms(10);
	}
	ck_assert_int_eq(access(place, F_OK), -1);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(leaf_in_a_delegated_cgroup)
{
	static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup", NULL};
	const char *mount = first_folder(mounts);
	char place[256], host[310];
	if (!is_root()) {
		printf("not root: nothing was delegated\n");
		return;
	}
	ck_assert_ptr_nonnull(mount);
	snprintf(place, sizeof(place), "%s/orch-test-%d", mount, (int)getpid());
	snprintf(host, sizeof(host), "%.256s/host", place);
	ck_assert_int_eq(mkdir(place, 0755), 0);
	int status = in_child(host_in_a_leaf, place);
	/* The keeper of the last helper may still be there. */
	for (int i = 0; i < 500 && ((rmdir(host) < 0 && errno != ENOENT) || rmdir(place) < 0); i++)
		pause_ms(10);
	ck_assert_int_eq(access(place, F_OK), -1);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* --- processes ------------------------------------------------------------------------- */

static void exceed_processes(const char *load)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	int32_t status = -1;
	opts.process_limit = 20;
	opts.required_limits = ORCH_LIMIT_PROCESSES;
	limited_new(&limited, &opts);
	demand(limited.scope, ORCH_LIMIT_PROCESSES, ORCH_LIMIT_ENFORCED);
	/* Itself is the 20th. */
	ck_assert_uint_eq(end_of(&limited, LOAD(load, "40"), &status), ORCH_REASON_EXITED);
	ck_assert_int_eq(status, 19);
	limited_end(&limited);
	/* Controls: below it, and without it. */
	limited_new(&limited, &opts);
	end_of(&limited, LOAD(load, "19"), &status);
	ck_assert_int_eq(status, 200);
	limited_end(&limited);
	opts = plain_opts();
	limited_new(&limited, &opts);
	end_of(&limited, LOAD(load, "40"), &status);
	ck_assert_int_eq(status, 200);
	limited_end(&limited);
}

START_TEST(forks)
{
	exceed_processes("forks");
}
END_TEST

START_TEST(zombies)
{
	exceed_processes("zombies");
}
END_TEST

/* What its cgroup holds, in the folder that the mechanism names. */
static void assert_pids_max(const char *mechanism, const char *expected)
{
	const char *leaf = strchr(mechanism, '/');
	char path[700], line[32] = "";
	ck_assert_msg(leaf && strstr(mechanism, "pids.max in "), "%s", mechanism);
	snprintf(path, sizeof(path), "%s/pids.max", leaf);
	FILE *file = fopen(path, "re");
	ck_assert_msg(file && fgets(line, sizeof(line), file), "%s: %s", path, strerror(errno));
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	ck_assert_str_eq(line, expected);
}

/*
 * Without a PID namespace there is no user namespace either, and RLIMIT_NPROC would count what the user runs elsewhere: a
 * controller, or nothing, and that is told.
 */
static void default_of_processes(uint32_t rung, bool enforced, bool fill)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	uint32_t state = 0;
	int32_t status = -1;
	const char *mechanism = NULL;
	opts.least_rung = opts.best_rung = rung;
	limited_new(&limited, &opts);
	OK(orch_scope_start_wait(limited.scope, 20000, e));
	ck_assert_int_eq(orch_scope_limit(limited.scope, ORCH_LIMIT_PROCESSES, &state, &mechanism), 0);
	ck_assert_msg(state == (enforced ? ORCH_LIMIT_ENFORCED : ORCH_LIMIT_ABSENT), "rung %u: state %u: %s", rung, state,
		      mechanism);
	if (enforced) {
		ck_assert_msg(strstr(mechanism, "the default of 4096, "), "%s", mechanism);
		/* And what orch-reaper has in there. */
		assert_pids_max(mechanism, "4097");
	}
	if (enforced && fill) {
		/* Itself is one of them. */
		end_of(&limited, LOAD("full", "4095"), &status);
		ck_assert_int_eq(status, 0);
	}
	ck_assert_msg(enforced || strstr(mechanism, "cgroup"), "%s", mechanism);
	ck_assert_int_eq(run(limited.scope, ARGV("true")), 0);
	orch_death *death = stop(limited.scope, 0);
	ck_assert_msg(orch_death_verdict(death) == (rung == ORCH_RUNG_CGROUP ? ORCH_DEATH_DEAD : ORCH_DEATH_UNVERIFIABLE),
		      "%s", orch_death_text(death));
	orch_death_unref(death);
	limited_drop(&limited);
}

static void defaults_below_the_namespaces(bool fill)
{
	bool in_v1 = is_root() && file_has_word("/proc/self/mountinfo", "pids");
	default_of_processes(ORCH_RUNG_SUBREAPER, in_v1, fill);
	if (has_delegation() || has_controller_v2("pids"))
		default_of_processes(ORCH_RUNG_CGROUP, in_v1 || has_controller_v2("pids"), fill);
}

START_TEST(a_default_below_the_namespaces)
{
	defaults_below_the_namespaces(false);
}
END_TEST

/* The kernel's count is the one that was asked for: thousands of forks, minutes where the processor is emulated. */
START_TEST(a_default_is_reached)
{
	defaults_below_the_namespaces(true);
}
END_TEST

/* The outcome of a full scope, for one who wants to start something in it. */
START_TEST(a_full_scope_starts_nothing)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	orch_error *error = NULL;
	opts.process_limit = 1;
	limited_new(&limited, &opts);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(run(limited.scope, ARGV("true")), 0);
	orch_proc *first = spawn(limited.scope, LOAD("stubborn"));
	orch_proc *second = spawn(limited.scope, ARGV("true"));
	ck_assert_int_eq(orch_proc_wait(second, 20000, NULL, &error), ORCH_ESPAWN);
	ck_assert_int_eq(orch_error_errno(error), EAGAIN);
	ck_assert_str_eq(orch_error_step(error), "fork");
	ck_assert_uint_eq(orch_proc_reason(second), ORCH_REASON_SETUP);
	ck_assert_uint_eq(orch_proc_reason(first), 0);
	orch_error_free(error);
	orch_proc_unref(second);
	orch_proc_unref(first);
	limited_end(&limited);
}
END_TEST

/* --- processor time -------------------------------------------------------------------- */

START_TEST(processor_time)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	int32_t status = -1;
	opts.cpu_limit_percent = 5;
	limited_new(&limited, &opts);
	demand(limited.scope, ORCH_LIMIT_CPU, ORCH_LIMIT_ABSENT);
	if (is_enforced(limited.scope, ORCH_LIMIT_CPU)) {
		end_of(&limited, LOAD("spin", "3"), &status);
		ck_assert_int_eq(status, 1);
	}
	limited_end(&limited);
	/* Control: with more it gets more, on a busy machine in one of many tries. */
	opts.cpu_limit_percent = 150;
	limited_new(&limited, &opts);
	end_of(&limited, LOAD("spin", "50"), &status);
	ck_assert_int_eq(status, 0);
	limited_end(&limited);
}
END_TEST

/* --- time ------------------------------------------------------------------------------ */

START_TEST(wall_time)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited, control;
	opts.time_limit_ms = 600000;
	limited_new(&control, &opts);
	orch_proc *still = spawn(control.scope, LOAD("stubborn"));
	while (!orch_proc_pid(still))
		OK(orch_ctx_process(control.ctx, e));
	opts.time_limit_ms = 5000; /* in which a loaded or emulated machine starts a program */
	opts.required_limits = ORCH_LIMIT_TIME;
	limited_new(&limited, &opts);
	demand(limited.scope, ORCH_LIMIT_TIME, ORCH_LIMIT_ENFORCED);
	orch_proc *proc = spawn(limited.scope, LOAD("stubborn"));
	OK(orch_proc_wait(proc, 20000, NULL, e));
	ck_assert_uint_eq(orch_proc_reason(proc), ORCH_REASON_TIME);
	ck_assert_int_eq(orch_proc_term_signal(proc), SIGKILL);
	assert_ended_by(&limited, ORCH_LIMIT_TIME);
	orch_proc_unref(proc);
	limited_end(&limited);
	/* However early it is over: what had not come to run by then has no other reason. */
	for (uint32_t i = 0; i < 24; i++) {
		opts.time_limit_ms = 1 + i % 4;
		limited_new(&limited, &opts);
		proc = spawn(limited.scope, LOAD("stubborn"));
		int32_t code = orch_proc_wait(proc, 20000, NULL, NULL);
		ck_assert_msg(code == 0 || code == ORCH_ECANCELED, "%d", code);
		ck_assert_uint_eq(orch_proc_reason(proc), ORCH_REASON_TIME);
		orch_proc_unref(proc);
		assert_ended_by(&limited, ORCH_LIMIT_TIME);
		limited_end(&limited);
	}
	OK(orch_ctx_process(control.ctx, e));
	ck_assert_int_eq(control.deaths.count, 0);
	ck_assert_uint_eq(orch_proc_reason(still), 0);
	orch_proc_unref(still);
	limited_end(&control);
}
END_TEST

/* The clock is the helper's: the host does nothing meanwhile, and looks from outside. */
START_TEST(wall_time_of_a_host_that_hangs)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	opts.time_limit_ms = 3000;
	limited_new(&limited, &opts);
	OK(orch_scope_start_wait(limited.scope, 20000, e));
	struct watched watched = watch(limited.scope);
	orch_proc *proc = spawn(limited.scope, LOAD("awkward", watched.word));
	OK(orch_ctx_process(limited.ctx, e));
	ck_assert(word_is_seen(watched.word, 1));
	for (int i = 0; i < 3000 && exists(watched.init_pid); i++)
		pause_ms(10);
	assert_nothing_left(&watched);
	assert_ended_by(&limited, ORCH_LIMIT_TIME);
	orch_proc_unref(proc);
	limited_end(&limited);
}
END_TEST

/* --- reasons --------------------------------------------------------------------------- */

static uint32_t reason_at_end(orch_proc *proc)
{
	orch_proc_wait(proc, 20000, NULL, NULL);
	uint32_t reason = orch_proc_reason(proc);
	orch_proc_unref(proc);
	return reason;
}

START_TEST(reasons)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	limited_new(&limited, &opts);
	orch_proc *slow = spawn(limited.scope, LOAD("stubborn"));
	static const char *const codes[] = {"exit 0", "exit 1", "exit 126", "exit 127", "exit 137", "exit 255"};
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		ck_assert_uint_eq(reason_at_end(spawn(limited.scope, ARGV("sh", "-c", codes[i]))),
				  ORCH_REASON_EXITED);
	ck_assert_uint_eq(reason_at_end(spawn(limited.scope, ARGV("sh", "-c", "kill -9 $$"))), ORCH_REASON_SIGNALED);
	ck_assert_uint_eq(reason_at_end(spawn(limited.scope, ARGV("/nowhere/program"))), ORCH_REASON_SETUP);
	ck_assert_uint_eq(reason_at_end(spawn(limited.scope, ARGV("/etc/passwd"))), ORCH_REASON_SETUP);
	ck_assert_uint_eq(orch_proc_reason(slow), 0);
	ck_assert_uint_eq(orch_proc_reason(NULL), 0);
	ck_assert_uint_eq(orch_death_limit(NULL), 0);
	orch_death_unref(stop(limited.scope, 0));
	ck_assert_uint_eq(reason_at_end(slow), ORCH_REASON_STOPPED);
	orch_scope_unref(limited.scope);
	orch_ctx_unref(limited.ctx);
}
END_TEST

/* It has a code of its own, and it ended because it was told to. */
START_TEST(reason_of_a_polite_one)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	struct orch_proc_opts proc_opts;
	int out[2];
	char text[8];
	limited_new(&limited, &opts);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	orch_proc_opts_init(&proc_opts, sizeof(proc_opts));
	proc_opts.stdout_fd = out[1];
	orch_proc *proc = spawn_opts(limited.scope, &proc_opts, LOAD("polite"));
	orch_proc *leader = NULL;
	close(out[1]);
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(limited.ctx, e));
	ck_assert_int_gt(read(out[0], text, sizeof(text)), 0);
	close(out[0]);
	orch_death_unref(stop(limited.scope, 5000));
	ck_assert_int_eq(orch_proc_exit_code(proc), 3);
	ck_assert_uint_eq(reason_at_end(proc), ORCH_REASON_STOPPED);
	orch_scope_unref(limited.scope);
	orch_ctx_unref(limited.ctx);

	/* A leader's end is its own, the others' is the scope's. */
	limited_new(&limited, &opts);
	proc = spawn(limited.scope, LOAD("stubborn"));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(limited.ctx, e));
	orch_proc_opts_init(&proc_opts, sizeof(proc_opts));
	proc_opts.flags = ORCH_PROC_LEADER;
	leader = spawn_opts(limited.scope, &proc_opts, ARGV("sh", "-c", "exit 4"));
	ck_assert_uint_eq(reason_at_end(leader), ORCH_REASON_EXITED);
	ck_assert_uint_eq(reason_at_end(proc), ORCH_REASON_STOPPED);
	loop_until(limited.ctx, &limited.deaths.count);
	ck_assert_uint_eq(orch_death_limit(limited.deaths.last), 0);
	limited_end(&limited);
}
END_TEST

/* With all limits, so that every kind of leaf is there to be left behind. */
START_TEST(helper_killed_with_limits)
{
	struct orch_scope_opts opts = with_memory();
	struct limited limited;
	opts.process_limit = 50;
	opts.cpu_limit_percent = 100;
	opts.time_limit_ms = 600000;
	limited_new(&limited, &opts);
	OK(orch_scope_start_wait(limited.scope, 20000, e));
	struct watched watched = watch(limited.scope);
	orch_proc *proc = spawn(limited.scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(limited.ctx, e));
	ck_assert(!is_root() || cgroups_named(limited.name) > 0);
	ck_assert_int_eq(kill(parent_of(watched.init_pid), SIGKILL), 0);
	ck_assert_int_eq(orch_proc_wait(proc, 20000, NULL, NULL), ORCH_EHELPER);
	ck_assert_uint_eq(orch_proc_reason(proc), ORCH_REASON_LOST);
	loop_until(limited.ctx, &limited.deaths.count);
	ck_assert_uint_eq(with_word(watched.word), 0);
	/* The dead helper's keeper removes them. */
	for (int i = 0; i < 1000 && cgroups_named(limited.name); i++)
		pause_ms(10);
	orch_proc_unref(proc);
	limited_end(&limited);
}
END_TEST

/* --- what can not be had --------------------------------------------------------------- */

/* Nobody sees a cgroup any more: only in this process's mount namespace. */
static void hide_cgroups(void)
{
	if (!is_root())
		return;
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("none", "/sys/fs/cgroup", "tmpfs", MS_RDONLY, NULL), 0);
}

static void assert_refused(const struct orch_scope_opts *opts, const char *field)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	OK(orch_scope_new(ctx, opts, &scope, e));
	orch_proc *proc = spawn(scope, ARGV("true"));
	ck_assert_int_eq(orch_scope_start_wait(scope, 20000, &error), ORCH_EUNENFORCEABLE);
	ck_assert_str_eq(orch_error_step(error), "limits");
	ck_assert_msg(strstr(orch_error_message(error), field) && strstr(orch_error_message(error), "remedy"), "%s",
		      orch_error_message(error));
	ck_assert_uint_eq(reason_at_end(proc), ORCH_REASON_SETUP);
	ck_assert_int_eq(orch_scope_limit(scope, ORCH_LIMIT_CPU, NULL, NULL), ORCH_ESTATE);
	orch_error_free(error);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}

START_TEST(required_and_impossible)
{
	struct orch_scope_opts opts = plain_opts();
	struct limited limited;
	uint32_t state = 0;
	const char *mechanism = NULL;
	if (!is_root() && has_controller("cpu")) {
		printf("a user with controllers, who can not hide them: what is impossible was not tried\n");
		return;
	}
	hide_cgroups();
	opts.cpu_limit_percent = 50;
	/* Control: not required, it is started and told. */
	limited_new(&limited, &opts);
	ck_assert_int_eq(run(limited.scope, ARGV("true")), 0);
	ck_assert_int_eq(orch_scope_limit(limited.scope, ORCH_LIMIT_CPU, &state, &mechanism), 0);
	ck_assert_uint_eq(state, ORCH_LIMIT_ABSENT);
	ck_assert_str_ne(mechanism, "");
	ck_assert_int_eq(orch_scope_limit(limited.scope, ORCH_LIMIT_MEMORY, &state, &mechanism), 0);
	ck_assert_uint_eq(state, ORCH_LIMIT_UNASKED);
	ck_assert_str_eq(mechanism, "");
	ck_assert_int_eq(orch_scope_limit(limited.scope, 3, &state, &mechanism), ORCH_EINVAL);
	ck_assert_int_eq(orch_scope_limit(NULL, 1, &state, &mechanism), ORCH_EINVAL);
	limited_end(&limited);

	opts.required_limits = ORCH_LIMIT_CPU;
	assert_refused(&opts, "cpu_limit_percent");
	opts = with_memory();
	opts.required_limits = ORCH_LIMIT_MEMORY;
	assert_refused(&opts, "memory_limit_bytes");
	if (is_root()) {
		opts = plain_opts();
		opts.process_limit = 20;
		opts.required_limits = ORCH_LIMIT_PROCESSES;
		assert_refused(&opts, "process_limit");
	}
}
END_TEST

START_TEST(required_and_possible)
{
	struct orch_scope_opts opts = with_memory();
	struct limited limited;
	opts.process_limit = 20;
	opts.cpu_limit_percent = 90;
	opts.time_limit_ms = 600000;
	opts.required_limits = ORCH_LIMIT_TIME;
	opts.required_limits |= has_controller("memory") ? ORCH_LIMIT_MEMORY : 0;
	opts.required_limits |= has_controller("cpu") ? ORCH_LIMIT_CPU : 0;
	opts.required_limits |= has_controller("pids") || !is_root() ? ORCH_LIMIT_PROCESSES : 0;
	limited_new(&limited, &opts);
	ck_assert_int_eq(run(limited.scope, ARGV("true")), 0);
	limited_end(&limited);
}
END_TEST

static void assert_invalid(const struct orch_scope_opts *opts, const char *field)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	ck_assert_int_eq(orch_scope_new(ctx, opts, &scope, &error), ORCH_EINVAL);
	ck_assert_msg(strstr(orch_error_message(error), field), "%s", orch_error_message(error));
	ck_assert_ptr_null(scope);
	orch_error_free(error);
	orch_ctx_unref(ctx);
}

START_TEST(bad_limits)
{
	struct orch_scope_opts opts = plain_opts();
	opts.required_limits = ORCH_LIMIT_CPU;
	assert_invalid(&opts, "required_limits has the cpu limit");
	opts.required_limits = 16;
	assert_invalid(&opts, "required_limits 0x10");
	opts = plain_opts();
	opts.memory_limit_bytes = 1;
	assert_invalid(&opts, "memory_limit_bytes 1 ");
	opts.memory_limit_bytes = UINT64_MAX;
	assert_invalid(&opts, "memory_limit_bytes");
	opts = plain_opts();
	opts.process_limit = UINT32_MAX;
	assert_invalid(&opts, "process_limit");
}
END_TEST

Suite *suite(void)
{
	Suite *suite = suite_create("limits");
	TCase *tcase = tcase_create("limits");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, anonymous_memory);
	tcase_add_test(tcase, memory_in_files);
	tcase_add_test(tcase, memory_of_many);
	tcase_add_test(tcase, memory_of_a_child);
	tcase_add_test(tcase, a_kill_is_not_memory);
	tcase_add_test(tcase, memory_elsewhere_is_not_the_scopes);
	tcase_add_test(tcase, leaf_in_a_delegated_cgroup);
	tcase_add_test(tcase, leaf_below_a_users_unit);
	tcase_add_test(tcase, forks);
	tcase_add_test(tcase, zombies);
	tcase_add_test(tcase, a_default_below_the_namespaces);
	tcase_add_test(tcase, a_full_scope_starts_nothing);
	tcase_add_test(tcase, processor_time);
	tcase_add_test(tcase, wall_time);
	tcase_add_test(tcase, wall_time_of_a_host_that_hangs);
	tcase_add_test(tcase, reasons);
	tcase_add_test(tcase, reason_of_a_polite_one);
	tcase_add_test(tcase, helper_killed_with_limits);
	tcase_add_test(tcase, required_and_impossible);
	tcase_add_test(tcase, required_and_possible);
	tcase_add_test(tcase, bad_limits);
	suite_add_tcase(suite, tcase);
	TCase *thousands = tcase_create("thousands");
	tcase_set_timeout(thousands, 600);
	/* CK_EXCLUDE_TAGS=thousands leaves it out. */
	tcase_set_tags(thousands, "thousands");
	tcase_add_test(thousands, a_default_is_reached);
	suite_add_tcase(suite, thousands);
	return suite;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "--load") == 0) {
		int status = own_load(argv[2], argv[3]);
		if (status >= 0)
			return status;
	}
	return fixture_main(argc, argv);
}
