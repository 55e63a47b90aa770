/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs in a scope that stands: beside posix_spawn() from the same process; from a host with much dirty memory
 * beside one with little; what many of them leave behind.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench-reaper.h"

#define TURN_SPAWNS 50u
#define WARM_SPAWNS 200u
#define AT_ONCE 16u

extern char **environ;

static unsigned spawns_per_turn(const struct bench_options *options)
{
	return options->spawns / 10 < TURN_SPAWNS ? (unsigned)(options->spawns / 10) : TURN_SPAWNS;
}

/* --- beside posix_spawn() -------------------------------------------------------------- */

static int spawn_row(const struct bench_options *options, struct host *host, struct bench_report *report)
{
	struct bench_series own = {0}, bare = {0};
	double own_us[TURN_SPAWNS], bare_us[TURN_SPAWNS];
	unsigned times = spawns_per_turn(options);
	while (own.count < options->pairs) {
		for (unsigned i = 0; i < times; i++) {
			if (bench_stopped())
				return bench_fail("interrupted");
			if (host_spawn(host, &own_us[i]) < 0 || peer_spawn(&bare_us[i]) < 0)
				return -1;
		}
		own.values[own.count++] = bench_median(own_us, times);
		bare.values[bare.count++] = bench_median(bare_us, times);
	}
	bench_goal(bench_add(report, "spawn", "us", &own, "posix_spawn", &bare), BENCH_GOAL_RATIO_AT_MOST, 1.5);
	return 0;
}

/* --- dirty memory ---------------------------------------------------------------------- */

/* worker-spawn MIB: a host with so much dirty memory; a byte on stdin is an order, a double on stdout the answer. */
int bench_reaper_worker(int argc, char **argv)
{
	struct host host;
	char byte;
	int r = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	size_t size = argc == 2 ? (size_t)strtoul(argv[1], NULL, 10) << 20 : 0;
	char *memory = NULL;
	if (size) {
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			return 1;
		/* In small pages, which cost most. */
		madvise(memory, size, MADV_NOHUGEPAGE);
		for (size_t i = 0; i < size; i += 4096)
			memory[i] = (char)i | 1;
	}
	if (host_open(&host) < 0)
		r = 1;
	while (r == 0 && read(STDIN_FILENO, &byte, 1) == 1) {
		double us;
		if (host_spawn(&host, &us) < 0 || write(STDOUT_FILENO, &us, sizeof(us)) != (ssize_t)sizeof(us))
			r = 1;
	}
	host_close(&host);
	return r;
}

struct worker {
	pid_t pid;
	int fd;
};

static int worker_start(struct worker *worker, unsigned mib)
{
	char number[16];
	char *argv[] = {"orch-bench", "worker-spawn", number, NULL};
	int pair[2];
	posix_spawn_file_actions_t actions;
	snprintf(number, sizeof(number), "%u", mib);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return bench_fail("socketpair: %s", strerror(errno));
	worker->fd = pair[0];
	int error = posix_spawn_file_actions_init(&actions);
	if (error == 0) {
		posix_spawn_file_actions_adddup2(&actions, pair[1], STDIN_FILENO);
		posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
		error = posix_spawn(&worker->pid, "/proc/self/exe", &actions, NULL, argv, environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	close(pair[1]);
	return error ? bench_fail("a worker: %s", strerror(error)) : 0;
}

static void worker_end(struct worker *worker)
{
	if (worker->fd > 0)
		close(worker->fd);
	if (worker->pid > 0)
		while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR)
			;
}

static int worker_spawn(struct worker *worker, double *ret_us)
{
	ssize_t got = -1;
	if (send(worker->fd, "s", 1, MSG_NOSIGNAL) == 1)
		while ((got = recv(worker->fd, ret_us, sizeof(*ret_us), MSG_WAITALL)) < 0 && errno == EINTR)
			;
	return got == (ssize_t)sizeof(*ret_us) ? 0 : bench_fail("a worker ended");
}

static long available_mib(void)
{
	char line[128];
	long kib = -1;
	FILE *file = fopen("/proc/meminfo", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %ld", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib < 0 ? -1 : kib / 1024;
}

static int dirty_turns(const struct bench_options *options, struct worker *clean, struct worker *dirty,
		       struct bench_series *own, struct bench_series *peer)
{
	double own_us[TURN_SPAWNS], peer_us[TURN_SPAWNS];
	unsigned times = spawns_per_turn(options);
	/* The first of each is not like the others. */
	if (worker_spawn(dirty, &own_us[0]) < 0 || worker_spawn(clean, &peer_us[0]) < 0)
		return -1;
	while (own->count < options->pairs) {
		for (unsigned i = 0; i < times; i++) {
			if (bench_stopped())
				return bench_fail("interrupted");
			if (worker_spawn(dirty, &own_us[i]) < 0 || worker_spawn(clean, &peer_us[i]) < 0)
				return -1;
		}
		own->values[own->count++] = bench_median(own_us, times);
		peer->values[peer->count++] = bench_median(peer_us, times);
	}
	return 0;
}

static int dirty_row(const struct bench_options *options, struct bench_report *report)
{
	struct bench_series own = {0}, peer = {0};
	struct worker clean = {0}, dirty = {0};
	struct bench_result *result;
	if (available_mib() < 2 * (long)options->dirty_mib) {
		result = bench_add_missing(report, "spawn-dirty", "us", "less than twice --dirty-mib is available");
		bench_goal(result, BENCH_GOAL_RATIO_AT_MOST, 1.2);
		return 0;
	}
	int r = worker_start(&clean, 0);
	if (r == 0)
		r = worker_start(&dirty, options->dirty_mib);
	if (r == 0)
		r = dirty_turns(options, &clean, &dirty, &own, &peer);
	worker_end(&dirty);
	worker_end(&clean);
	if (r < 0)
		return -1;
	result = bench_add(report, "spawn-dirty", "us", &own, "a clean host", &peer);
	bench_goal(result, BENCH_GOAL_RATIO_AT_MOST, 1.2);
	return 0;
}

/* --- what they leave ------------------------------------------------------------------- */

struct trace {
	long fds, memory_kib, zombies; /* -1: can not be seen */
};

static long count_entries(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	long count = 0;
	if (!folder)
		return -1;
	while ((entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

/* Of anonymous pages: what a leak grows. */
static long memory_of(pid_t pid)
{
	char path[64], line[128];
	long kib = -1;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib;
}

/* Parent and state of a process; 0: gone. */
static pid_t parent_of(pid_t pid, char *ret_state)
{
	char path[64], text[512];
	int parent = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	size_t length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	text[length] = '\0';
	const char *rest = strrchr(text, ')');
	if (!rest || sscanf(rest, ") %c %d", ret_state, &parent) != 2)
		parent = 0;
	if (file)
		fclose(file);
	return parent;
}

/* Whose children were not reaped: this process's, the helper's, init's. */
static long count_zombies(pid_t helper, pid_t init)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	long count = 0;
	while (folder && (entry = readdir(folder))) {
		char state = 0;
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		pid_t parent = parent_of(atoi(entry->d_name), &state);
		count += state == 'Z' && (parent == getpid() || parent == helper || parent == init);
	}
	if (folder)
		closedir(folder);
	return count;
}

static void add_seen(long *sum, long part)
{
	*sum = *sum < 0 || part < 0 ? -1 : *sum + part;
}

static struct trace look(const struct host *host)
{
	struct trace trace = {0};
	char state, path[64];
	pid_t init = orch_scope_init_pid(host->scope), helper = parent_of(init, &state);
	pid_t all[] = {getpid(), helper, init};
	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/proc/%d/fd", (int)all[i]);
		add_seen(&trace.fds, count_entries(path));
		add_seen(&trace.memory_kib, memory_of(all[i]));
	}
	trace.zombies = count_zombies(helper, init);
	return trace;
}

/* Many under way at once, as an orchestrator has them. */
static int spawn_many(struct host *host, uint64_t count)
{
	static const char *const argv[] = {"/bin/true", NULL};
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	for (uint64_t made = 0; made < count;) {
		orch_proc *procs[AT_ONCE] = {0};
		orch_error *error = NULL;
		int32_t code = 0;
		if (bench_stopped())
			return bench_fail("interrupted");
		for (unsigned i = 0; i < AT_ONCE && code == 0; i++)
			code = orch_scope_spawn(host->scope, &opts, &procs[i], &error);
		for (unsigned i = 0; i < AT_ONCE; i++) {
			int32_t status = -1;
			if (code == 0)
				code = orch_proc_wait(procs[i], 60000, &status, &error);
			orch_proc_unref(procs[i]);
			if (code == 0 && status != 0)
				return bench_fail("/bin/true gave %d", status);
		}
		if (code < 0)
			return reaper_fail("a spawn", error);
		made += AT_ONCE;
	}
	return 0;
}

/* *cgroups: how many leaves are still there behind the certificate. */
static int scope_many(struct host *host, uint64_t count, long *cgroups)
{
	for (uint64_t i = 0; i < count; i++) {
		char path[PATH_MAX];
		orch_scope *scope = NULL;
		orch_error *error = NULL;
		double ignored;
		if (bench_stopped())
			return bench_fail("interrupted");
		if (host_scope(host, ORCH_RUNG_PIDNS, &scope, &error) < 0)
			return reaper_fail("a scope", error);
		snprintf(path, sizeof(path), "%s", orch_scope_cgroup(scope));
		if (host_stop(scope, &ignored) < 0)
			return -1;
		*cgroups += path[0] && access(path, F_OK) == 0;
	}
	return 0;
}

static void add_growth(struct bench_report *report, const char *name, const char *unit, long before, long after,
		       double goal)
{
	struct bench_series growth = {.count = 1, .values = {(double)(after - before)}};
	struct bench_result *result =
		before < 0 || after < 0
			? bench_add_missing(report, name, unit, "/proc does not show it to this user")
			: bench_add(report, name, unit, &growth, NULL, NULL);
	bench_goal(result, BENCH_GOAL_VALUE_AT_MOST, goal);
}

static int leak_rows(const struct bench_options *options, struct host *host, struct bench_report *report)
{
	uint64_t warm = options->spawns < WARM_SPAWNS ? options->spawns : WARM_SPAWNS;
	long cgroups = 0;
	if (spawn_many(host, warm) < 0 || scope_many(host, 3, &cgroups) < 0)
		return -1;
	struct trace before = look(host);
	double start = bench_now();
	if (spawn_many(host, options->spawns) < 0)
		return -1;
	struct bench_series rate = {.count = 1,
				    .values = {(bench_now() - start) * 1e6 / (double)options->spawns}};
	if (scope_many(host, 1 + options->spawns / 100, &cgroups) < 0)
		return -1;
	struct trace after = look(host);
	bench_add(report, "spawns-16", "us", &rate, NULL, NULL);
	add_growth(report, "leak-fds", "fds", before.fds, after.fds, 0);
	add_growth(report, "leak-zombies", "processes", 0, after.zombies, 0);
	add_growth(report, "leak-cgroups", "cgroups", 0, cgroups, 0);
	add_growth(report, "leak-memory", "KiB", before.memory_kib, after.memory_kib, 256);
	return 0;
}

int bench_reaper_spawns(const struct bench_options *options, struct bench_report *report)
{
	struct host host;
	int r = host_open(&host);
	if (r == 0)
		r = spawn_row(options, &host, report);
	if (r == 0)
		r = dirty_row(options, report);
	if (r == 0)
		r = leak_rows(options, &host, report);
	host_close(&host);
	bench_note(report, "leak-*: growth of host, helper and init over --spawns programs, 16 at once, and a hundredth "
			   "as many scopes. spawns-16 is the time of one of them.");
	return r;
}
