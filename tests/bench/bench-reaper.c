/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes: from orch_scope_stop() to the certificate, beside a bare cgroup with the same load; scopes from nothing to
 * their certificate. bench-reaper-spawn.c has the programs in them.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bench-reaper.h"

#define WAIT_MS 60000
#define READY_S 60
#define HOPPERS 64u
/* How many stops a turn has, of which it gives the median. */
#define TURN_PROCESSES 200u
#define TURN_MOST 20u
#define TURN_MOST_SMALL 2u /* with --processes below TURN_PROCESSES: it is only seen that it measures */

int reaper_fail(const char *what, orch_error *error)
{
	bench_fail("%s: %s", what, orch_error_message(error));
	orch_error_free(error);
	return -1;
}

int reaper_load_path(char *path, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", path, size - 1);
	if (length < 0)
		return bench_fail("/proc/self/exe: %s", strerror(errno));
	path[length] = '\0';
	size_t used = strlen(path);
	if (used + sizeof("-load") > size)
		return bench_fail("%s is too long", path);
	strcpy(path + used, "-load");
	return access(path, X_OK) == 0 ? 0 : bench_fail("%s: %s", path, strerror(errno));
}

int reaper_load_ready(int fd, void (*turn)(void *userdata), void *userdata)
{
	double end = bench_now() + READY_S;
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	while (bench_now() < end) {
		char byte;
		if (turn)
			turn(userdata);
		if (poll(&entry, 1, turn ? 0 : 100) <= 0)
			continue;
		return read(fd, &byte, 1) == 1 ? 0 : bench_fail("the load could not be made");
	}
	return bench_fail("the load was not there after %d s", READY_S);
}

/* --- the own side ---------------------------------------------------------------------- */

int host_scope(struct host *host, uint32_t rung, orch_scope **ret_scope, orch_error **reterr)
{
	struct orch_scope_opts opts;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = rung;
	int32_t code = orch_scope_new(host->ctx, &opts, ret_scope, reterr);
	if (code == 0 && (code = orch_scope_start_wait(*ret_scope, WAIT_MS, reterr)) < 0)
		*ret_scope = orch_scope_unref(*ret_scope);
	return code;
}

int host_open(struct host *host)
{
	orch_error *error = NULL;
	memset(host, 0, sizeof(*host));
	if (orch_ctx_new(NULL, &host->ctx, &error) < 0)
		return reaper_fail("orch_ctx_new", error);
	if (host_scope(host, ORCH_RUNG_PIDNS, &host->scope, &error) < 0)
		return reaper_fail("a scope", error);
	return 0;
}

void host_close(struct host *host)
{
	host->scope = orch_scope_unref(host->scope);
	host->ctx = orch_ctx_unref(host->ctx);
}

int host_stop(orch_scope *scope, double *ret_us)
{
	struct orch_stop_opts opts;
	orch_error *error = NULL;
	orch_death *death = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = WAIT_MS;
	double start = bench_now();
	int32_t code = orch_scope_stop_wait(scope, &opts, &death, &error);
	*ret_us = (bench_now() - start) * 1e6;
	orch_scope_unref(scope);
	if (code < 0)
		return reaper_fail("a stop", error);
	int r = orch_death_verdict(death) == ORCH_DEATH_DEAD ? 0 : bench_fail("%s", orch_death_text(death));
	orch_death_unref(death);
	return r;
}

int host_spawn(struct host *host, double *ret_us)
{
	static const char *const argv[] = {"/bin/true", NULL};
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	orch_error *error = NULL;
	int32_t status = -1;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	double start = bench_now();
	int32_t code = orch_scope_spawn(host->scope, &opts, &proc, &error);
	if (code == 0)
		code = orch_proc_wait(proc, WAIT_MS, &status, &error);
	*ret_us = (bench_now() - start) * 1e6;
	orch_proc_unref(proc);
	if (code < 0)
		return reaper_fail("a spawn", error);
	return status == 0 ? 0 : bench_fail("/bin/true gave %d", status);
}

static void turn_of_host(void *userdata)
{
	struct host *host = userdata;
	orch_ctx_run(host->ctx, 1, NULL);
}

static int add_load(struct host *host, orch_scope *scope, const char *load, const char *mode, unsigned count)
{
	char number[16];
	const char *argv[] = {load, mode, number, NULL};
	struct orch_proc_opts opts;
	orch_error *error = NULL;
	int ends[2];
	snprintf(number, sizeof(number), "%u", count);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return bench_fail("pipe2: %s", strerror(errno));
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.stdout_fd = ends[1];
	int r = 0;
	if (orch_scope_spawn(scope, &opts, NULL, &error) < 0)
		r = reaper_fail("the load", error);
	close(ends[1]);
	if (r == 0)
		r = reaper_load_ready(ends[0], turn_of_host, host);
	close(ends[0]);
	if (r == 0 && strcmp(mode, "hop") == 0)
		orch_ctx_run(host->ctx, 50, NULL);
	return r;
}

/* The leader's exit ends nothing here: it is no leader. */
static int own_stop(struct host *host, const char *load, const char *mode, unsigned count, double *ret_us)
{
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	if (host_scope(host, ORCH_RUNG_CGROUP_PIDNS, &scope, &error) < 0)
		return reaper_fail("a scope", error);
	if (add_load(host, scope, load, mode, count) < 0) {
		double ignored;
		host_stop(scope, &ignored);
		return -1;
	}
	return host_stop(scope, ret_us);
}

/* --- rows of stops --------------------------------------------------------------------- */

struct stops {
	const struct bench_options *options;
	struct bench_report *report;
	struct host *host;
	struct peer *peer;
	const char *load;
};

/* `pidns`: NULL, or for the same under a bare init. */
static int turn_stops(struct stops *stops, const char *mode, unsigned count, struct bench_series *own,
		      struct bench_series *bare, struct bench_series *pidns)
{
	double own_us[TURN_MOST], bare_us[TURN_MOST], pidns_us[TURN_MOST];
	unsigned most = stops->options->processes < TURN_PROCESSES ? TURN_MOST_SMALL : TURN_MOST;
	unsigned times = count >= TURN_PROCESSES ? 1 : TURN_PROCESSES / count;
	times = times > most ? most : times;
	for (unsigned i = 0; i < times; i++) {
		/* Each follows the other equally often: what a thousand dead leave to the kernel's threads is the next one's. */
		bool own_first = (i + own->count) % 2 == 0;
		if (bench_stopped())
			return bench_fail("interrupted");
		if ((own_first && own_stop(stops->host, stops->load, mode, count, &own_us[i]) < 0) ||
		    peer_stop(stops->peer, mode, count, false, &bare_us[i]) < 0 ||
		    (pidns && peer_stop(stops->peer, mode, count, true, &pidns_us[i]) < 0) ||
		    (!own_first && own_stop(stops->host, stops->load, mode, count, &own_us[i]) < 0))
			return -1;
	}
	own->values[own->count++] = bench_median(own_us, times);
	bare->values[bare->count++] = bench_median(bare_us, times);
	if (pidns)
		pidns->values[pidns->count++] = bench_median(pidns_us, times);
	return 0;
}

/* The number in a file, or -1: none, or "max". */
static long read_number(const char *path)
{
	long number = -1;
	FILE *file = fopen(path, "re");
	if (!file || fscanf(file, "%ld", &number) != 1)
		number = -1;
	if (file)
		fclose(file);
	return number;
}

/* Of the cgroup with the controller "pids", v1 and v2. */
static long pids_max(void)
{
	char line[PATH_MAX], path[PATH_MAX + 64];
	long least = -1;
	FILE *file = fopen("/proc/self/cgroup", "re");
	while (file && fgets(line, sizeof(line), file)) {
		char *own = strrchr(line, ':');
		if (!own || (!strstr(line, ":pids:") && strncmp(line, "0::", 3) != 0))
			continue;
		own[1 + strcspn(own + 1, "\n")] = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s%s/pids.max", line[0] == '0' ? "" : "/pids", own + 1);
		long most = read_number(path);
		if (most >= 0 && (least < 0 || most < least))
			least = most;
	}
	if (file)
		fclose(file);
	return least;
}

/* NULL, or why `count` processes are not to be made here. */
static const char *no_room(const struct bench_options *options, unsigned count)
{
	struct rlimit limit;
	long pids = read_number("/proc/sys/kernel/pid_max"), most = pids_max();
	if (count > options->processes)
		return "more than --processes";
	if (getrlimit(RLIMIT_NPROC, &limit) < 0 || limit.rlim_cur < count + 200)
		return "more than RLIMIT_NPROC allows";
	if (pids < 2 * (long)count + 2000)
		return "more than half of kernel.pid_max";
	if (most >= 0 && most < (long)count + 200)
		return "more than pids.max of the own cgroup allows";
	return NULL;
}

static const struct {
	const char *name, *pidns_name;
	unsigned count;
	enum bench_goal kind;
	double goal;
} stop_rows[] = {
	{"stop-1", "stop-1-pidns", 1, BENCH_GOAL_VALUE_AT_MOST, 500},
	{"stop-100", "stop-100-pidns", 100, BENCH_GOAL_RATIO_AT_MOST, 1.15},
	{"stop-1000", "stop-1000-pidns", 1000, BENCH_GOAL_RATIO_AT_MOST, 1.15},
	{"stop-4000", "stop-4000-pidns", 4000, BENCH_GOAL_RATIO_AT_MOST, 1.15},
};

static int stop_row(struct stops *stops, unsigned row)
{
	struct bench_series own = {0}, bare = {0}, pidns = {0};
	unsigned count = stop_rows[row].count;
	const char *why = no_room(stops->options, count);
	unsigned pairs = stops->options->pairs;
	while (!why && own.count < pairs)
		if (turn_stops(stops, "idle", count, &own, &bare, &pidns) < 0)
			return -1;
	struct bench_result *result =
		why ? bench_add_missing(stops->report, stop_rows[row].name, "us", why)
		    : bench_add(stops->report, stop_rows[row].name, "us", &own, "bare cgroup.kill", &bare);
	bench_goal(result, stop_rows[row].kind, stop_rows[row].goal);
	/* What the kernel itself takes for a PID namespace is in both sides of this one. */
	if (why)
		bench_add_missing(stops->report, stop_rows[row].pidns_name, "us", why);
	else
		bench_add(stops->report, stop_rows[row].pidns_name, "us", &own, "cgroup.kill under a bare init", &pidns);
	return 0;
}

static int hopper_rows(struct stops *stops)
{
	struct bench_series hop = {0}, idle = {0}, hop_bare = {0}, idle_bare = {0};
	while (hop.count < stops->options->pairs)
		if (turn_stops(stops, "hop", HOPPERS, &hop, &hop_bare, NULL) < 0 ||
		    turn_stops(stops, "idle", HOPPERS, &idle, &idle_bare, NULL) < 0)
			return -1;
	bench_goal(bench_add(stops->report, "stop-hoppers-64", "us", &hop, "64 idle ones", &idle),
		   BENCH_GOAL_RATIO_AT_MOST, 2);
	bench_add(stops->report, "stop-hoppers-64-bare", "us", &hop_bare, "64 idle ones, bare", &idle_bare);
	return 0;
}

static int scope_rows(struct stops *stops)
{
	struct bench_series start = {0}, life = {0};
	unsigned times = stops->options->processes < TURN_PROCESSES ? TURN_MOST_SMALL : TURN_MOST;
	while (start.count < stops->options->pairs) {
		double start_us[TURN_MOST], life_us[TURN_MOST];
		for (unsigned i = 0; i < times; i++) {
			orch_scope *scope = NULL;
			orch_error *error = NULL;
			double begin = bench_now(), stop;
			if (bench_stopped())
				return bench_fail("interrupted");
			if (host_scope(stops->host, ORCH_RUNG_PIDNS, &scope, &error) < 0)
				return reaper_fail("a scope", error);
			start_us[i] = (bench_now() - begin) * 1e6;
			if (host_stop(scope, &stop) < 0)
				return -1;
			life_us[i] = (bench_now() - begin) * 1e6;
		}
		start.values[start.count++] = bench_median(start_us, times);
		life.values[life.count++] = bench_median(life_us, times);
	}
	bench_add(stops->report, "scope-start", "us", &start, NULL, NULL);
	bench_add(stops->report, "scope-start-stop", "us", &life, NULL, NULL);
	return 0;
}

/* --- the whole ------------------------------------------------------------------------- */

/* The folder of the scopes' leaves. *why is set where there is none, and stays valid. */
static int find_base(char *base, size_t size, const char **why)
{
	static char reason[512];
	struct host host;
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	if (host_open(&host) < 0) {
		host_close(&host);
		return -1;
	}
	if (host_scope(&host, ORCH_RUNG_CGROUP_PIDNS, &scope, &error) < 0) {
		snprintf(reason, sizeof(reason), "%s", orch_error_message(error));
		orch_error_free(error);
		*why = reason;
	} else {
		snprintf(base, size, "%s", orch_scope_cgroup(scope));
		*strrchr(base, '/') = '\0';
	}
	orch_scope_unref(scope);
	host_close(&host);
	return 0;
}

static int measure_stops(struct stops *stops, const char *why)
{
	if (why) {
		for (unsigned i = 0; i < sizeof(stop_rows) / sizeof(stop_rows[0]); i++) {
			bench_goal(bench_add_missing(stops->report, stop_rows[i].name, "us", why), stop_rows[i].kind,
				   stop_rows[i].goal);
			bench_add_missing(stops->report, stop_rows[i].pidns_name, "us", why);
		}
		bench_goal(bench_add_missing(stops->report, "stop-hoppers-64", "us", why), BENCH_GOAL_RATIO_AT_MOST, 2);
		bench_add_missing(stops->report, "stop-hoppers-64-bare", "us", why);
		return scope_rows(stops);
	}
	for (unsigned i = 0; i < sizeof(stop_rows) / sizeof(stop_rows[0]); i++)
		if (stop_row(stops, i) < 0)
			return -1;
	return hopper_rows(stops) < 0 ? -1 : scope_rows(stops);
}

int bench_reaper(const struct bench_options *options, struct bench_report *report)
{
	char base[PATH_MAX], load[PATH_MAX];
	const char *why = NULL;
	struct host host = {0};
	struct peer peer = {0};
	struct stops stops = {.options = options, .report = report, .host = &host, .peer = &peer, .load = load};
	bench_note(report, "A stop: from orch_scope_stop_wait() to the certificate DEAD; bare: from cgroup.kill to "
			   "populated 0, read every 50 us. The load is made by the same program.");
	bench_note(report, "Rows -pidns: against the same in a PID namespace whose init does nothing, to its end: what the "
			   "kernel takes to reap a namespace.");
	bench_note(report, "A spawn: /bin/true, from the call to its exit; posix_spawn() and waitpid() from the same "
			   "process. Each turn gives the median of several.");
	if (reaper_load_path(load, sizeof(load)) < 0 || find_base(base, sizeof(base), &why) < 0)
		return -1;
	int r = why ? 0 : peer_open(&peer, base, load);
	if (r == 0)
		r = host_open(&host);
	if (r == 0)
		r = measure_stops(&stops, why);
	host_close(&host);
	peer_close(&peer);
	if (r == 0)
		r = bench_reaper_spawns(options, report);
	return r;
}
