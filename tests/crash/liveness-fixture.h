/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_LIVENESS_FIXTURE_H
#define ORCH_LIVENESS_FIXTURE_H

/*
 * What test-reaper.c and liveness-host.c have in common: libcheck programs that run their suite as
 * the calling user and, for root, again as uid 1000 (unless ORCH_TEST_ONCE is set). A program that
 * includes this defines suite() and fake_helper().
 */

#include <check.h>
#include <errno.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <orch.h>

#include "../unit/controllers.h"
#include "core/core-private.h"
#include "liveness-judge.h"
#include "reaper/reaper-private.h"

#define USER 1000

static char folder[64];	     /* holds copies that every uid can run */
static char helper_path[96]; /* orch-reaper */
static char self_path[96];   /* this program */

static inline unsigned open_fds(void)
{
	unsigned count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static inline bool is_root(void)
{
	return geteuid() == 0;
}

/* Whether scopes can have cgroup leaves here: the own one is this user's to write. */
static inline bool has_delegation(void)
{
	char path[600];
	own_cgroup(path, sizeof(path));
	return path[0] && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

/* --- common ---------------------------------------------------------------------------- */

#define OK(call)                                                                                   \
	do {                                                                                       \
		orch_error *error_ = NULL;                                                         \
		orch_error **e = &error_;                                                          \
		int32_t code_ = (call);                                                            \
		ck_assert_msg(code_ == 0, "%s: %s", #call, orch_error_message(error_));            \
		(void)e;                                                                           \
	} while (0)

static inline orch_ctx *ctx_new_with(const char *helper)
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = helper;
	OK(orch_ctx_new(&opts, &ctx, e));
	return ctx;
}

static inline orch_ctx *ctx_new(void)
{
	return ctx_new_with(helper_path);
}

static inline orch_scope *scope_new(orch_ctx *ctx)
{
	orch_scope *scope = NULL;
	OK(orch_scope_new(ctx, NULL, &scope, e));
	return scope;
}

static inline orch_proc *spawn_opts(orch_scope *scope, struct orch_proc_opts *opts,
				    const char *const *argv)
{
	orch_proc *proc = NULL;
	opts->argv = argv;
	OK(orch_scope_spawn(scope, opts, &proc, e));
	return proc;
}

static inline orch_proc *spawn(orch_scope *scope, const char *const *argv)
{
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	return spawn_opts(scope, &opts, argv);
}

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LOAD(...) ARGV(self_path, "--load", __VA_ARGS__)

static inline int32_t wait_status(orch_proc *proc)
{
	int32_t status = -1000;
	/* Its test's own limit ends what hangs, and knows how slow the machine is. */
	OK(orch_proc_wait(proc, 600000, &status, e));
	orch_proc_unref(proc);
	return status;
}

static inline int32_t run(orch_scope *scope, const char *const *argv)
{
	return wait_status(spawn(scope, argv));
}

static inline orch_death *stop(orch_scope *scope, uint32_t grace_ms)
{
	struct orch_stop_opts opts;
	orch_death *death = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.grace_ms = grace_ms;
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	return death;
}

static inline void assert_dead(orch_death *death)
{
	ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_DEAD, "%s", orch_death_text(death));
	ck_assert_str_eq(orch_death_reason(death), "");
	ck_assert_uint_eq(orch_death_survivor_count(death), 0);
	ck_assert(strstr(orch_death_proof(death), "PID namespace is empty"));
	ck_assert(orch_death_last_death_us(death) >= 0);
	ck_assert(orch_death_confirmed_us(death) >= orch_death_last_death_us(death));
}

/* Keeps what the judge needs of a scope that will be over. */
struct watched {
	uint64_t inode;
	pid_t init_pid;
	char cgroup[256];
	char word[32];
};

static inline struct watched watch(orch_scope *scope)
{
	static unsigned number;
	struct watched watched = {.inode = orch_scope_pidns_inode(scope),
				  .init_pid = orch_scope_init_pid(scope)};
	snprintf(watched.cgroup, sizeof(watched.cgroup), "%s", orch_scope_cgroup(scope));
	snprintf(watched.word, sizeof(watched.word), "word-%d-%u", (int)getpid(), number++);
	ck_assert_uint_ne(watched.inode, 0);
	ck_assert(exists(watched.init_pid));
	return watched;
}

static inline void assert_nothing_left(const struct watched *watched)
{
	/* One look can miss what forks and ends: see word_is_seen(). */
	for (int look = 0; look < 3; look++) {
		ck_assert_uint_eq(in_pidns(watched->inode, watched->init_pid), 0);
		ck_assert_uint_eq(with_word(watched->word), 0);
	}
	ck_assert(!exists(watched->init_pid));
	if (watched->cgroup[0])
		ck_assert_int_eq(access(watched->cgroup, F_OK), -1);
}

static inline void pause_ms(int ms)
{
	poll(NULL, 0, ms);
}

/* Runs the loop until *flag or for 20 s. */
static inline bool flag_is_set(void *userdata)
{
	return *(int *)userdata != 0;
}

static inline void loop_until(orch_ctx *ctx, int *flag)
{
	OK(orch_ctx_wait(ctx, 20000, flag_is_set, flag, e));
}

static inline void count(void *userdata)
{
	++*(int *)userdata;
}

struct events {
	uint32_t seen[8];
	int count;
	int destroyed;
};

static inline void on_event(void *userdata, orch_proc *proc, uint32_t event)
{
	struct events *events = userdata;
	(void)proc;
	if (events->count < 8)
		events->seen[events->count++] = event;
}

static inline void on_events_destroyed(void *userdata)
{
	((struct events *)userdata)->destroyed++;
}

struct deaths {
	int count;
	int destroyed;
	orch_death *last;
};

static inline void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	struct deaths *deaths = userdata;
	(void)scope;
	deaths->count++;
	orch_death_unref(deaths->last);
	deaths->last = orch_death_ref(death);
}

static inline void on_deaths_destroyed(void *userdata)
{
	((struct deaths *)userdata)->destroyed++;
}

Suite *suite(void);
int fake_helper(const char *name);

static inline int run_all(void)
{
	SRunner *runner = srunner_create(suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed;
}

static inline int run_as_user(void)
{
	int status = -1;
	pid_t child = fork();
	if (child == 0) {
		if (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 ||
		    setresuid(USER, USER, USER) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0)
			_exit(99);
		printf("as uid %d:\n", USER);
		fflush(stdout);
		exit(run_all() ? 1 : 0);
	}
	waitpid(child, &status, 0);
	return status;
}

static inline void copy(const char *from, char *to, size_t size, const char *name)
{
	char command[1200];
	snprintf(to, size, "%s/%s", folder, name);
	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 755 '%s'", from, to, to);
	if (system(command) != 0)
		exit(99);
}

static inline void make_folder(void)
{
	char path[600], self[512];
	const char *build = getenv("ORCH_BUILD_ROOT");
	static const char *const fakes[] = {"fake-other-version", "fake-garbage", "fake-silent"};
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	snprintf(folder, sizeof(folder), "/tmp/test-reaper-XXXXXX");
	if (!build || length < 0 || !mkdtemp(folder) || chmod(folder, 0755) < 0)
		exit(99);
	self[length] = '\0';
	snprintf(path, sizeof(path), "%s/lib/helper/orch-reaper", build);
	copy(path, helper_path, sizeof(helper_path), "orch-reaper");
	copy(self, self_path, sizeof(self_path), "test-reaper");
	for (size_t i = 0; i < sizeof(fakes) / sizeof(*fakes); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, fakes[i]);
		if (symlink("test-reaper", path) < 0)
			exit(99);
	}
}

static char hoppers_cgroup[128]; /* "": there is no such hierarchy, or it is not ours to change */

/* For cap_processes(). Where cgroups are pure v2 the machine is a guest's own. */
static inline void hoppers_begin(void)
{
	char path[200], text[160];
	snprintf(hoppers_cgroup, sizeof(hoppers_cgroup), "/sys/fs/cgroup/pids/test-hoppers-%d", (int)getpid());
	if (!is_root() || mkdir(hoppers_cgroup, 0755) < 0) {
		hoppers_cgroup[0] = '\0';
		return;
	}
	snprintf(path, sizeof(path), "%s/pids.max", hoppers_cgroup);
	FILE *file = fopen(path, "we");
	if (!file || fprintf(file, "%d", HOPPERS_MOST) < 0 || fclose(file) != 0)
		exit(99);
	snprintf(path, sizeof(path), "%s/" HOPPERS_CGROUP, folder);
	snprintf(text, sizeof(text), "%s/cgroup.procs", hoppers_cgroup);
	file = fopen(path, "we");
	if (!file || fputs(text, file) < 0 || fclose(file) != 0)
		exit(99);
}

static inline int hoppers_end(void)
{
	for (int i = 0; hoppers_cgroup[0] && rmdir(hoppers_cgroup) < 0; i++) {
		if (i == 1000)
			return 1;
		poll(NULL, 0, 10);
	}
	return 0;
}

static inline int fixture_main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	if (strncmp(name, "fake-", 5) == 0)
		return fake_helper(name);
	if (argc >= 3 && strcmp(argv[1], "--load") == 0)
		return load_main(argv[2]);
	make_folder();
	hoppers_begin();
	int failed = run_all();
	if (is_root() && !getenv("ORCH_TEST_ONCE"))
		failed += run_as_user() != 0;
	else if (!is_root())
		printf("not root: the cgroup rung was not tested\n");
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	failed += system(command) != 0;
	failed += hoppers_end();
	return failed ? 1 : 0;
}

#endif
