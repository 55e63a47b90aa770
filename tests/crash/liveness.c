/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liveness [ROUNDS]: a host with two scopes full of awkward load is SIGKILLed, or its helper, or
 * both at the same moment; then nothing of it may be left within BOUND_MS. For root ROUNDS on the
 * rung "cgroup and PID namespace" and as many as uid 1000 on the rung "PID namespace". Every fifth
 * host is hit while it still sets up.
 *
 * The judge looks from outside: members of the recorded PID namespaces, the process table by words
 * in argv (the load's, and the helper's own path, which its inits and its keeper share), cgroup
 * leaves without a living owner.
 */
#include <errno.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <orch.h>

#include "core/core-private.h"
#include "liveness-judge.h"
#include "reaper/linux/census.h"

#define USER 1000
#define SCOPES 2
#define BOUND_MS 3000
#define LOOKS 3
/* A host lives this long at most, should the judge die. */
#define HOST_MS 30000

enum victim { BOTH, HOST, HELPER, VICTIMS };

static char folder[64], self_path[96], helper_path[96];

/* --- the host -------------------------------------------------------------------------- */

static void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	(void)userdata, (void)scope;
	printf("death %s\n", orch_death_verdict_name(death));
	fflush(stdout);
}

static void host_spawn(orch_scope *scope, const char *load, const char *word)
{
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = (const char *const[]){self_path, "--load", load, word, NULL};
	if (orch_scope_spawn(scope, &opts, &proc, NULL) < 0)
		exit(3);
	while (!orch_proc_pid(proc) && orch_proc_wait(proc, 1, NULL, NULL) == ORCH_ETIMEDOUT)
		;
	orch_proc_unref(proc);
}

/* Says "scope INODE INIT HELPER CGROUP" for each scope, then "ready"; certificates when they come.
 */
static int host_main(const char *word, bool worker)
{
	static const char *const host_loads[SCOPES][3] = {{"awkward", "hoppers", "stubborn"},
							  {"stubborn", "awkward", "polite"}};
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	orch_scope *scopes[SCOPES];
	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = helper_path;
	if (orch_ctx_new(&opts, &ctx, NULL) < 0)
		return 2;
	for (int i = 0; i < SCOPES; i++)
		if (orch_scope_new(ctx, NULL, &scopes[i], NULL) < 0 ||
		    orch_scope_on_death(scopes[i], on_death, NULL, NULL, NULL) < 0)
			return 2;
	/* A forked worker keeps every descriptor of the host's open. */
	pid_t pid = worker ? fork() : -1;
	if (pid == 0) {
		poll(NULL, 0, HOST_MS);
		_exit(0);
	}
	printf("worker %d\n", (int)pid);
	for (int i = 0; i < SCOPES; i++) {
		if (orch_scope_start_wait(scopes[i], 10000, NULL) < 0)
			return 2;
		for (int j = 0; j < 3; j++)
			host_spawn(scopes[i], host_loads[i][j], word);
		printf(
		    "scope %llu %d %d %s\n", (unsigned long long)orch_scope_pidns_inode(scopes[i]),
		    (int)orch_scope_init_pid(scopes[i]),
		    (int)parent_of(orch_scope_init_pid(scopes[i])), orch_scope_cgroup(scopes[i]));
	}
	printf("ready\n");
	fflush(stdout);
	orch_ctx_run(ctx, HOST_MS, NULL);
	return 0;
}

/* --- one round ------------------------------------------------------------------------- */

struct round {
	char word[48];
	bool user, early, worker;
	enum victim victim;
	FILE *reports;
	pid_t host, worker_pid, helper;
	uint64_t inode[SCOPES];
	pid_t init[SCOPES];
	char base[256]; /* folder of the cgroup leaves */
	int scopes;
	unsigned load; /* seen before the kill */
	unsigned deaths;
};

static void reap_orphans(const struct round *round)
{
	siginfo_t status;
	/* This process is the subreaper of all of it. The host is waited for by its pid. */
	for (int i = 0; i < 1000; i++) {
		memset(&status, 0, sizeof(status));
		if (waitid(P_ALL, 0, &status, WEXITED | WNOHANG | WNOWAIT) < 0 || !status.si_pid)
			return;
		if (status.si_pid == round->host && round->victim == HELPER)
			return;
		waitpid(status.si_pid, NULL, 0);
	}
}

static bool read_report(struct round *round)
{
	char line[512];
	while (fgets(line, sizeof(line), round->reports)) {
		unsigned long long inode;
		int init, helper, worker;
		char cgroup[300] = "";
		if (sscanf(line, "worker %d", &worker) == 1)
			round->worker_pid = worker;
		else if (sscanf(line, "scope %llu %d %d %299s", &inode, &init, &helper, cgroup) >=
			     3 &&
			 round->scopes < SCOPES) {
			round->init[round->scopes] = init;
			round->inode[round->scopes++] = inode;
			round->helper = helper;
			char *slash = strrchr(cgroup, '/');
			if (slash)
				*slash = '\0';
			snprintf(round->base, sizeof(round->base), "%s", cgroup);
		} else if (strcmp(line, "ready\n") == 0) {
			return true;
		}
	}
	return false;
}

static void start_host(struct round *round)
{
	int out[2];
	if (pipe2(out, O_CLOEXEC) < 0)
		exit(99);
	round->host = fork();
	if (round->host == 0) {
		setpriority(PRIO_PROCESS, 0, 0);
		dup2(out[1], 1);
		if (round->user && geteuid() == 0 &&
		    (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 ||
		     setresuid(USER, USER, USER) < 0))
			_exit(99);
		execl(self_path, self_path, "--host", round->word,
		      round->worker ? "worker" : "alone", NULL);
		_exit(99);
	}
	close(out[1]);
	round->reports = fdopen(out[0], "r");
	/* So that poll() on the descriptor tells the truth. */
	setvbuf(round->reports, NULL, _IONBF, 0);
}

/* Leaves whose owner's lock is free: nobody would remove them. */
static unsigned orphaned_leaves(const char *base)
{
	DIR *groups = base[0] ? opendir(base) : NULL;
	struct dirent *entry;
	unsigned count = 0;
	while (groups && (entry = readdir(groups))) {
		if (strncmp(entry->d_name, "orch-", 5) != 0)
			continue;
		int fd = openat(dirfd(groups), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			continue;
		count += flock(fd, LOCK_EX | LOCK_NB) == 0;
		close(fd);
	}
	if (groups)
		closedir(groups);
	return count;
}

static unsigned left(const struct round *round, const char *base, bool host_too)
{
	unsigned count = with_word(round->word) + with_word(helper_path) + orphaned_leaves(base);
	for (int i = 0; i < round->scopes; i++)
		count += in_pidns(round->inode[i], round->init[i]);
	/* The host itself carries the word. */
	return host_too || !count ? count : count - 1;
}

static void strike(struct round *round)
{
	pid_t helper = round->helper;
	if (!helper && round->victim != HOST)
		helper = pid_with_word(helper_path); /* early: the helper or one of its children */
	switch (round->victim) {
	case BOTH:
		if (helper > 0)
			kill(helper, SIGSTOP);
		kill(round->host, SIGSTOP);
		if (helper > 0)
			kill(helper, SIGKILL);
		kill(round->host, SIGKILL);
		break;
	case HELPER:
		if (helper > 0)
			kill(helper, SIGKILL);
		break;
	default:
		kill(round->host, SIGKILL);
		break;
	}
}

/* The host outlives its helper: it has to get a certificate for each scope. */
static bool read_deaths(struct round *round)
{
	char line[512];
	struct pollfd ready = {.fd = fileno(round->reports), .events = POLLIN};
	int64_t start = orch_monotonic_us();
	while (round->deaths < SCOPES && orch_monotonic_us() - start < BOUND_MS * 1000) {
		/* What the helper leaves behind is this process's to reap: the certificate waits
		 * for it. */
		reap_orphans(round);
		if (poll(&ready, 1, 1) == 0)
			continue;
		if (!fgets(line, sizeof(line), round->reports))
			return false;
		if (strcmp(line, "death DEAD\n") == 0 || strcmp(line, "death DEAD_UNREAPED\n") == 0)
			round->deaths++;
		else
			return false;
	}
	return round->deaths == SCOPES;
}

/* Milliseconds until nothing was left, or -1. */
static int64_t judge(struct round *round, const char *base)
{
	int64_t start = orch_monotonic_us();
	bool host_alive = round->victim == HELPER;
	int64_t gone = 0;
	for (int clean = 0;;) {
		/* Only a look that began after the bound counts against it: on a busy machine
		 * looking takes its time too. */
		int64_t looked = orch_monotonic_us() - start;
		reap_orphans(round);
		if (left(round, base, !host_alive) == 0) {
			gone = clean++ ? gone : looked;
			/* One look can miss what forks and ends: see word_is_seen(). */
			if (clean == LOOKS)
				return gone / 1000;
			continue;
		}
		clean = 0;
		if (looked > BOUND_MS * 1000)
			return -1;
		poll(NULL, 0, 1);
	}
}

/* States of the members of a PID namespace, and where the helper's own processes are. */
static void describe_processes(uint64_t inode)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	unsigned states[128] = {0};
	while ((entry = readdir(proc))) {
		struct census_entry process;
		char path[300];
		struct stat status;
		pid_t pid = atoi(entry->d_name);
		snprintf(path, sizeof(path), "/proc/%s/ns/pid", entry->d_name);
		if (pid <= 0 || !census_describe(pid, &process))
			continue;
		if (stat(path, &status) == 0 && status.st_ino == inode)
			states[process.state[0] & 127]++;
		if (has_word(pid, helper_path) ||
		    (status.st_ino == inode && process.state[0] != 'Z'))
			printf("  pid %d parent %d state %s in %s\n", (int)pid, (int)parent_of(pid),
			       process.state, process.wchan);
	}
	closedir(proc);
	for (int state = 0; state < 128; state++)
		if (states[state])
			printf("  %u in state %c\n", states[state], state);
}

static void describe(const struct round *round, const char *base)
{
	printf("LEFT after %d ms (%s, %s%s): word %u, helper %u, leaves %u", BOUND_MS,
	       round->user ? "user" : "root",
	       round->victim == BOTH   ? "both"
	       : round->victim == HOST ? "host"
				       : "helper",
	       round->early ? ", early" : "", with_word(round->word), with_word(helper_path),
	       orphaned_leaves(base));
	for (int i = 0; i < round->scopes; i++)
		printf(", pidns %llu: %u", (unsigned long long)round->inode[i],
		       in_pidns(round->inode[i], round->init[i]));
	printf("\n");
	for (int i = 0; i < round->scopes; i++)
		describe_processes(round->inode[i]);
}

/* One look can come before the load has spread, or between a fork and an exit; an ordinary user does not see init. */
static bool members_are_seen(uint64_t inode, pid_t init)
{
	for (int look = 0; look < 100; look++) {
		if (in_pidns(inode, init) >= 3)
			return true;
		poll(NULL, 0, 5);
	}
	return false;
}

/* -1: failed, else ms. */
static int64_t run_round(int number, bool user, char *base, size_t base_size)
{
	struct round round = {.user = user,
			      .victim = (enum victim)(number % VICTIMS),
			      .early = number % 5 == 4,
			      .worker = number % 4 == 1 && number % 5 != 4};
	snprintf(round.word, sizeof(round.word), "liveness-%d-%d-%d", (int)getpid(), user, number);
	/* Without a report the judge does not know who is the helper: early hits are on the host.
	 */
	if (round.early && round.victim == HELPER)
		round.victim = HOST;
	start_host(&round);
	bool failed = false;
	if (round.early) {
		poll(NULL, 0, number * 7 % 23);
	} else {
		failed = !read_report(&round);
		if (round.base[0])
			snprintf(base, base_size, "%s", round.base);
		/* The positive control: the judge sees all of it before. */
		bool seen = word_is_seen(round.word, 5);
		round.load = with_word(round.word);
		for (int i = 0; i < round.scopes; i++)
			failed |= !members_are_seen(round.inode[i], round.init[i]);
		failed |= !seen || round.scopes != SCOPES;
		failed |= !user && !round.base[0];
		if (failed)
			printf("round %d: the load did not stand (%u processes, %d scopes)\n",
			       number, round.load, round.scopes);
	}
	strike(&round);
	if (round.victim == HELPER && !failed && !read_deaths(&round)) {
		printf("round %d: the host got %u certificates of %d\n", number, round.deaths,
		       SCOPES);
		failed = true;
	}
	/* The worker is the host's business: it was there to hold the socket. */
	int64_t ms = -1;
	if (round.worker_pid > 0) {
		poll(NULL, 0, 20);
		unsigned others = 0;
		for (int i = 0;
		     i < 100 && (others = with_word(helper_path)) && round.victim != HELPER; i++) {
			reap_orphans(&round);
			poll(NULL, 0, 10);
		}
		if (others && round.victim != HELPER)
			printf("round %d: a worker with the socket kept the helper alive\n",
			       number);
		failed |= others && round.victim != HELPER;
		kill(round.worker_pid, SIGKILL);
	}
	ms = judge(&round, base);
	if (ms < 0)
		describe(&round, base);
	kill(round.host, SIGKILL);
	waitpid(round.host, NULL, 0);
	round.victim = HOST;
	reap_orphans(&round);
	fclose(round.reports);
	return failed ? -1 : ms;
}

static int by_value(const void *one, const void *other)
{
	int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
	return (a > b) - (a < b);
}

static int run_rounds(int rounds, bool user, const char *title)
{
	int64_t *times = calloc((size_t)rounds, sizeof(*times));
	char base[256] = "";
	int failed = 0, good = 0;
	int64_t start = orch_monotonic_us();
	for (int i = 0; i < rounds && failed < 5; i++) {
		int64_t ms = run_round(i, user, base, sizeof(base));
		if (ms < 0)
			failed++;
		else
			times[good++] = ms;
	}
	qsort(times, (size_t)good, sizeof(*times), by_value);
	printf("%s: %d rounds, %d with something left or wrong; all gone after %lld ms (median), "
	       "%lld ms "
	       "(worst), bound %d ms; %lld s\n",
	       title, good + failed, failed, good ? (long long)times[good / 2] : -1,
	       good ? (long long)times[good - 1] : -1, BOUND_MS,
	       (long long)(orch_monotonic_us() - start) / 1000000);
	fflush(stdout);
	free(times);
	return failed;
}

/* --- running --------------------------------------------------------------------------- */

static void copy(const char *from, char *to, size_t size, const char *name)
{
	char command[1200];
	snprintf(to, size, "%s/%s", folder, name);
	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 755 '%s'", from, to, to);
	if (system(command) != 0)
		exit(99);
}

static void make_folder(void)
{
	char path[600], self[512];
	const char *build = getenv("ORCH_BUILD_ROOT");
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	snprintf(folder, sizeof(folder), "/tmp/liveness-XXXXXX");
	if (!build || length < 0 || !mkdtemp(folder) || chmod(folder, 0755) < 0) {
		fprintf(stderr, "ORCH_BUILD_ROOT must name the build folder\n");
		exit(99);
	}
	self[length] = '\0';
	snprintf(path, sizeof(path), "%s/lib/helper/orch-reaper", build);
	copy(path, helper_path, sizeof(helper_path), "orch-reaper");
	copy(self, self_path, sizeof(self_path), "liveness");
}

int main(int argc, char **argv)
{
	if (argc >= 3 && strcmp(argv[1], "--load") == 0)
		return load_main(argv[2]);
	if (argc == 4 && strcmp(argv[1], "--host") == 0) {
		snprintf(self_path, sizeof(self_path), "%s", argv[0]);
		snprintf(helper_path, sizeof(helper_path), "%.*s/orch-reaper",
			 (int)(strrchr(argv[0], '/') - argv[0]), argv[0]);
		return host_main(argv[2], strcmp(argv[3], "worker") == 0);
	}
	int rounds = argc > 1 ? atoi(argv[1]) : 200;
	if (rounds < 1)
		return 2;
	make_folder();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* The judge should see what happens when it happens. Without the privilege it sees it
	 * later. */
	if (geteuid() == 0)
		setpriority(PRIO_PROCESS, 0, -10);
	int failed = 0;
	if (geteuid() == 0) {
		failed += run_rounds(rounds, false, "cgroup and PID namespace (root)");
		failed += run_rounds(rounds, true, "PID namespace (uid 1000)");
	} else {
		printf("skipped: the rung with a cgroup (not root)\n");
		failed += run_rounds(rounds, true, "PID namespace");
	}
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	failed += system(command) != 0;
	return failed ? 1 : 0;
}
