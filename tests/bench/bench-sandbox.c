/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes: from nothing to the exit of a program, beside bubblewrap with the same mounts; a program in one that was
 * ready, beside posix_spawn(); what a thousand rules add.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench-sandbox.h"

#define WAIT_MS 60000
#define TURN_MOST 20u
#define TURN_RULES 5u
#define RULES 1000u
#define BWRAP "/usr/bin/bwrap"

extern char **environ;

static const char *const true_argv[] = {"/bin/true", NULL};

unsigned times_of_turn(const struct bench_options *options, unsigned most)
{
	return options->spawns / 10 < most ? (unsigned)(options->spawns / 10) : most;
}

/* --- the own side --- */

int sandbox_spawn(orch_sandbox *sandbox, const char *const *argv, const char *const *envp, double *ret_us)
{
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	orch_error *error = NULL;
	int32_t status = -1;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.envp = envp;
	double start = bench_now();
	int32_t code = orch_sandbox_spawn(sandbox, &opts, &proc, &error);
	if (code == 0)
		code = orch_proc_wait(proc, WAIT_MS, &status, &error);
	*ret_us = (bench_now() - start) * 1e6;
	orch_proc_unref(proc);
	if (code < 0)
		return reaper_fail("a spawn in a sandbox", error);
	return status == 0 ? 0 : bench_fail("%s gave %d in a sandbox", argv[0], status);
}

int sandbox_stop(orch_sandbox *sandbox, double *ret_us)
{
	orch_scope *scope = orch_scope_ref(orch_sandbox_scope(sandbox));
	int r = host_stop(scope, ret_us);
	orch_sandbox_unref(sandbox);
	return r;
}

/* With `rules` files of `folder`, which are named by their number. */
static int sandbox_make(orch_ctx *ctx, const char *folder, unsigned rules, orch_sandbox **ret_sandbox)
{
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	int32_t code = orch_sandbox_new(ctx, NULL, &sandbox, &error);
	for (unsigned i = 0; code == 0 && i < rules; i++) {
		char host[PATH_MAX + 16], inner[32];
		snprintf(host, sizeof(host), "%s/%u", folder, i);
		snprintf(inner, sizeof(inner), "/rules/%u", i);
		code = orch_sandbox_add_path(sandbox, host, inner, ORCH_PATH_READ, &error);
	}
	if (code < 0) {
		orch_sandbox_unref(sandbox);
		return reaper_fail("a sandbox", error);
	}
	*ret_sandbox = sandbox;
	return 0;
}

/* *exit_us: to the exit of `true`; *end_us: to the certificate. */
static int cold(orch_ctx *ctx, const char *folder, unsigned rules, double *exit_us, double *end_us)
{
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	double part_us;
	double start = bench_now();
	if (sandbox_make(ctx, folder, rules, &sandbox) < 0)
		return -1;
	if (orch_sandbox_start_wait(sandbox, WAIT_MS, &error) < 0) {
		orch_sandbox_unref(sandbox);
		return reaper_fail("the start of a sandbox", error);
	}
	int r = sandbox_spawn(sandbox, true_argv, NULL, &part_us);
	*exit_us = (bench_now() - start) * 1e6;
	if (sandbox_stop(sandbox, &part_us) < 0)
		r = -1;
	*end_us = (bench_now() - start) * 1e6;
	return r;
}

/* `true` in one that was ready; what is left of it ends, and another one is made ready, when the clock is off. */
static int warm(orch_ctx *ctx, orch_sandbox_pool *pool, double *ret_us)
{
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	double part_us;
	double end = bench_now() + WAIT_MS / 1e3;
	while (orch_sandbox_pool_ready(pool) == 0 && bench_now() < end)
		orch_ctx_run(ctx, 1, NULL);
	double start = bench_now();
	if (orch_sandbox_pool_take(pool, &sandbox, &error) < 0)
		return reaper_fail("a sandbox of the pool", error);
	int r = sandbox_spawn(sandbox, true_argv, NULL, &part_us);
	*ret_us = (bench_now() - start) * 1e6;
	return sandbox_stop(sandbox, &part_us) < 0 ? -1 : r;
}

/* One ready: more would be made while the peer is measured. */
static int pool_make(orch_ctx *ctx, const char *folder, unsigned rules, orch_sandbox_pool **ret_pool)
{
	orch_sandbox *pattern = NULL;
	orch_error *error = NULL;
	if (sandbox_make(ctx, folder, rules, &pattern) < 0)
		return -1;
	int32_t code = orch_sandbox_pool_new(pattern, 1, ret_pool, &error);
	orch_sandbox_unref(pattern);
	return code < 0 ? reaper_fail("a pool", error) : 0;
}

static int pool_settle(orch_ctx *ctx, orch_sandbox_pool *pool)
{
	double end = bench_now() + WAIT_MS / 1e3;
	while (orch_sandbox_pool_ready(pool) == 0 && bench_now() < end)
		orch_ctx_run(ctx, 1, NULL);
	return orch_sandbox_pool_ready(pool) ? 0 : bench_fail("no sandbox of the pool gets ready");
}

/* --- the other side --- */

int peer_run(const char *const *argv, const char *const *envp, double *ret_us)
{
	pid_t pid;
	int status;
	double start = bench_now();
	int error = posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)argv, envp ? (char *const *)envp : environ);
	if (error)
		return bench_fail("%s: %s", argv[0], strerror(error));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return bench_fail("waitpid: %s", strerror(errno));
	*ret_us = (bench_now() - start) * 1e6;
	return status == 0 ? 0 : bench_fail("%s ended with status 0x%x", argv[0], (unsigned)status);
}

#define BWRAP_ARGS 96

struct bwrap {
	const char *argv[BWRAP_ARGS];
	unsigned count;
	char links[6][64];
};

static void add(struct bwrap *bwrap, const char *a, const char *b, const char *c)
{
	const char *const words[] = {a, b, c};
	for (unsigned i = 0; i < 3 && words[i] && bwrap->count < BWRAP_ARGS - 1; i++)
		bwrap->argv[bwrap->count++] = words[i];
}

/* The mounts of ORCH_ROOT_TOOLS: lib/helper/linux/confine-tree.c. */
static void bwrap_make(struct bwrap *bwrap)
{
	static const char *const tops[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
	static const char *const files[] = {
		"/etc/alternatives",  "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
		"/etc/ssl/certs", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/nsswitch.conf"};
	memset(bwrap, 0, sizeof(*bwrap));
	add(bwrap, BWRAP, "--unshare-all", "--die-with-parent");
	add(bwrap, "--ro-bind", "/usr", "/usr");
	for (unsigned i = 0; i < sizeof(tops) / sizeof(tops[0]); i++) {
		ssize_t length = readlink(tops[i], bwrap->links[i], sizeof(bwrap->links[i]) - 1);
		if (length > 0)
			add(bwrap, "--symlink", bwrap->links[i], tops[i]);
		else if (access(tops[i], F_OK) == 0)
			add(bwrap, "--ro-bind", tops[i], tops[i]);
	}
	for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (access(files[i], F_OK) == 0)
			add(bwrap, "--ro-bind", files[i], files[i]);
	add(bwrap, "--proc", "/proc", NULL);
	add(bwrap, "--dev", "/dev", NULL);
	add(bwrap, "--tmpfs", "/tmp", NULL);
	add(bwrap, "--chdir", "/", NULL);
	add(bwrap, true_argv[0], NULL, NULL);
}

/* --- rows --- */

struct bench {
	const struct bench_options *options;
	struct bench_report *report;
	orch_ctx *ctx;
	const char *folder; /* with the files of rules */
};

struct cold_series {
	struct bench_series exit, end, bwrap, bare;
};

static int cold_turn(struct bench *bench, const struct bwrap *bwrap, struct cold_series *series)
{
	unsigned times = times_of_turn(bench->options, TURN_MOST), turn = series->exit.count;
	double exit_us[TURN_MOST], end_us[TURN_MOST], bwrap_us[TURN_MOST], bare_us[TURN_MOST];
	for (unsigned i = 0; i < times; i++) {
		if (bench_stopped())
			return bench_fail("interrupted");
		if (cold(bench->ctx, bench->folder, 0, &exit_us[i], &end_us[i]) < 0 ||
		    (bwrap && peer_run(bwrap->argv, NULL, &bwrap_us[i]) < 0) || peer_spawn(&bare_us[i]) < 0)
			return -1;
	}
	series->exit.values[turn] = bench_median(exit_us, times);
	series->end.values[turn] = bench_median(end_us, times);
	series->bwrap.values[turn] = bwrap ? bench_median(bwrap_us, times) : 0;
	series->bare.values[turn] = bench_median(bare_us, times);
	series->exit.count = series->end.count = series->bwrap.count = series->bare.count = turn + 1;
	return 0;
}

static int cold_rows(struct bench *bench)
{
	struct cold_series series = {0};
	struct bench_result *result;
	struct bwrap bwrap;
	const char *why = access(BWRAP, X_OK) == 0 ? NULL : BWRAP " is not installed";
	double ignored;
	bwrap_make(&bwrap);
	/* The first of all starts the helper. */
	if (cold(bench->ctx, bench->folder, 0, &ignored, &ignored) < 0)
		return -1;
	while (series.exit.count < bench->options->pairs)
		if (cold_turn(bench, why ? NULL : &bwrap, &series) < 0)
			return -1;
	if (why) {
		result = bench_add_missing(bench->report, "cold", "us", why);
		bench_add_missing(bench->report, "cold-certificate", "us", why);
	} else {
		result = bench_add(bench->report, "cold", "us", &series.exit, "bwrap", &series.bwrap);
		bench_add(bench->report, "cold-certificate", "us", &series.end, "bwrap", &series.bwrap);
	}
	bench_goal(result, BENCH_GOAL_RATIO_AT_MOST, 0.5);
	bench_add(bench->report, "cold-bare", "us", &series.exit, "posix_spawn", &series.bare);
	return 0;
}

static int warm_row(struct bench *bench)
{
	struct bench_series own = {0}, bare = {0};
	unsigned times = times_of_turn(bench->options, TURN_MOST);
	double own_us[TURN_MOST], bare_us[TURN_MOST];
	orch_sandbox_pool *pool = NULL;
	int r = pool_make(bench->ctx, bench->folder, 0, &pool);
	while (r == 0 && own.count < bench->options->pairs) {
		for (unsigned i = 0; r == 0 && i < times; i++) {
			if (bench_stopped())
				r = bench_fail("interrupted");
			if (r == 0)
				r = warm(bench->ctx, pool, &own_us[i]);
			if (r == 0)
				r = pool_settle(bench->ctx, pool);
			if (r == 0)
				r = peer_spawn(&bare_us[i]);
		}
		own.values[own.count++] = bench_median(own_us, times);
		bare.values[bare.count++] = bench_median(bare_us, times);
	}
	orch_sandbox_pool_unref(pool);
	if (r == 0)
		bench_goal(bench_add(bench->report, "warm", "us", &own, "posix_spawn", &bare),
			   BENCH_GOAL_RATIO_AT_MOST, 1.6);
	return r;
}

static int files_make(const char *folder)
{
	char path[PATH_MAX + 16];
	for (unsigned i = 0; i < RULES; i++) {
		snprintf(path, sizeof(path), "%s/%u", folder, i);
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			return bench_fail("%s: %s", path, strerror(errno));
		close(fd);
	}
	return 0;
}

struct rules_series {
	struct bench_series spawn_many, spawn_one, cold_many, cold_one, each;
};

static int rules_turn(struct bench *bench, orch_sandbox_pool *many, orch_sandbox_pool *one, struct rules_series *series)
{
	unsigned times = times_of_turn(bench->options, TURN_RULES), turn = series->each.count;
	double spawn_many[TURN_RULES], spawn_one[TURN_RULES], cold_many[TURN_RULES], cold_one[TURN_RULES];
	double ignored;
	for (unsigned i = 0; i < times; i++) {
		if (bench_stopped())
			return bench_fail("interrupted");
		if (warm(bench->ctx, many, &spawn_many[i]) < 0 || pool_settle(bench->ctx, many) < 0 ||
		    warm(bench->ctx, one, &spawn_one[i]) < 0 || pool_settle(bench->ctx, one) < 0 ||
		    cold(bench->ctx, bench->folder, RULES, &cold_many[i], &ignored) < 0 ||
		    cold(bench->ctx, bench->folder, 1, &cold_one[i], &ignored) < 0)
			return -1;
	}
	series->spawn_many.values[turn] = bench_median(spawn_many, times);
	series->spawn_one.values[turn] = bench_median(spawn_one, times);
	series->cold_many.values[turn] = bench_median(cold_many, times);
	series->cold_one.values[turn] = bench_median(cold_one, times);
	series->each.values[turn] = (series->cold_many.values[turn] - series->cold_one.values[turn]) / (RULES - 1);
	series->spawn_many.count = series->spawn_one.count = series->cold_many.count = series->cold_one.count =
		series->each.count = turn + 1;
	return 0;
}

static int rules_rows(struct bench *bench)
{
	struct rules_series series = {0};
	orch_sandbox_pool *many = NULL, *one = NULL;
	int r = files_make(bench->folder);
	if (r == 0)
		r = pool_make(bench->ctx, bench->folder, RULES, &many);
	if (r == 0)
		r = pool_make(bench->ctx, bench->folder, 1, &one);
	while (r == 0 && series.each.count < bench->options->pairs)
		r = rules_turn(bench, many, one, &series);
	orch_sandbox_pool_unref(many);
	orch_sandbox_pool_unref(one);
	if (r < 0)
		return -1;
	bench_goal(bench_add(bench->report, "rules-1000", "us", &series.spawn_many, "one rule", &series.spawn_one),
		   BENCH_GOAL_RATIO_AT_MOST, 1.5);
	bench_add(bench->report, "rules-1000-cold", "us", &series.cold_many, "one rule", &series.cold_one);
	bench_add(bench->report, "rules-1000-each", "us", &series.each, NULL, NULL);
	return 0;
}

int bench_sandbox(const struct bench_options *options, struct bench_report *report)
{
	char folder[PATH_MAX];
	orch_error *error = NULL;
	struct bench bench = {.options = options, .report = report, .folder = folder};
	bench_note(report, "cold: /bin/true from orch_sandbox_new() to its exit, the helper runs already; -certificate: to the "
			   "certificate. bwrap has the same mounts, but no Landlock and no seccomp.");
	bench_note(report, "warm: from orch_sandbox_pool_take() to the exit of /bin/true. rules-1000: the same with a thousand "
			   "rules; -cold: its whole start; -each: what one of them adds to a start.");
	if (snprintf(folder, sizeof(folder), "%s/orch-bench-XXXXXX", options->dir) >= (int)sizeof(folder) ||
	    !mkdtemp(folder))
		return bench_fail("%s: %s", options->dir, strerror(errno));
	int r = orch_ctx_new(NULL, &bench.ctx, &error) < 0 ? reaper_fail("orch_ctx_new", error) : 0;
	if (r == 0)
		r = cold_rows(&bench);
	if (r == 0)
		r = warm_row(&bench);
	if (r == 0)
		r = rules_rows(&bench);
	if (r == 0)
		r = bench_sandbox_work(options, report, bench.ctx);
	orch_ctx_unref(bench.ctx);
	bench_remove_folder(folder);
	return r;
}
