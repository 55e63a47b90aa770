/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts of every kind: what other code in the process does to children, threads, descriptors, memory, its root. Each
 * has to spawn, be told the exit code, stop, and get a certificate DEAD, and is left with no child and no descriptor.
 * SIGCHLD ignored and a thread in waitpid() are in liveness-host.c as well; here the flags are the other ones.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "liveness-fixture.h"

/* --- common ---------------------------------------------------------------------------- */

/* One whole life of a scope. */
static void live(orch_ctx *ctx)
{
	orch_scope *scope = scope_new(ctx);
	ck_assert_int_eq(run(scope, ARGV("sh", "-c", "true & wait; exit 6")), 6);
	struct watched watched = watch(scope);
	/* Several threads do this. */
	static atomic_uint number;
	snprintf(watched.word, sizeof(watched.word), "host-%d-%03u", (int)getpid(), atomic_fetch_add(&number, 1));
	orch_proc *proc = spawn(scope, LOAD("stubborn", watched.word));
	while (!orch_proc_pid(proc))
		OK(orch_ctx_process(ctx, e));
	ck_assert_uint_eq(with_word(watched.word), 1);
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	ck_assert_uint_eq(with_word(watched.word), 0);
	ck_assert(!exists(watched.init_pid));
	ck_assert_int_eq(wait_status(proc), 256 + SIGKILL);
	orch_death_unref(death);
	orch_scope_unref(scope);
}

/* A context's whole life leaves the process as it was. */
static void live_and_leave_nothing(void)
{
	unsigned fds = open_fds();
	orch_ctx *ctx = ctx_new();
	live(ctx);
	live(ctx);
	orch_ctx_unref(ctx);
	ck_assert_uint_eq(open_fds(), fds);
	siginfo_t status = {0};
	ck_assert_int_eq(waitid(P_ALL, 0, &status, WEXITED | WNOHANG | WNOWAIT | __WALL), -1);
	ck_assert_int_eq(errno, ECHILD);
}

/* --- children -------------------------------------------------------------------------- */

START_TEST(children_are_not_waited_for)
{
	struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT}, now;
	ck_assert_int_eq(sigaction(SIGCHLD, &action, NULL), 0);
	live_and_leave_nothing();
	/* And it is as it was set. */
	ck_assert_int_eq(sigaction(SIGCHLD, NULL, &now), 0);
	ck_assert_int_eq(now.sa_flags & SA_NOCLDWAIT, SA_NOCLDWAIT);
	/* Control: a child of the host's own leaves no zombie behind. */
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(child, NULL, 0), -1);
}
END_TEST

static atomic_bool thief_ends;

static void *steal(void *argument)
{
	atomic_int *stolen = argument;
	while (!atomic_load(&thief_ends))
		if (waitpid(-1, NULL, __WALL) > 0)
			atomic_fetch_add(stolen, 1);
		else
			usleep(100);
	return NULL;
}

START_TEST(thread_that_waits_for_every_kind_of_child)
{
	atomic_int stolen = 0;
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, steal, &stolen), 0);
	for (int round = 0; round < 3; round++)
		live_and_leave_nothing();
	/* Control: it does steal. */
	if (fork() == 0)
		_exit(0);
	for (int i = 0; i < 500 && !atomic_load(&stolen); i++)
		pause_ms(10);
	ck_assert_int_ge(atomic_load(&stolen), 1);
	atomic_store(&thief_ends, true);
	pthread_join(thread, NULL);
}
END_TEST

/* --- threads --------------------------------------------------------------------------- */

#define CONTEXTS 16

static void *live_in_thread(void *argument)
{
	orch_ctx *ctx = ctx_new();
	live(ctx);
	orch_ctx_unref(ctx);
	*(bool *)argument = true;
	return NULL;
}

START_TEST(many_contexts_in_threads)
{
	pthread_t threads[CONTEXTS];
	bool lived[CONTEXTS] = {false};
	unsigned fds = open_fds();
	sigset_t all, before;
	/* Threads that take no signal at all. */
	sigfillset(&all);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
	for (int i = 0; i < CONTEXTS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, live_in_thread, &lived[i]), 0);
	for (int i = 0; i < CONTEXTS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert(lived[i]);
	}
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	ck_assert_uint_eq(open_fds(), fds);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

struct short_lived {
	orch_ctx *ctx;
	orch_scope *scope;
	orch_proc *proc;
	struct watched watched;
};

static void *spawn_and_end(void *argument)
{
	struct short_lived *made = argument;
	made->ctx = ctx_new();
	made->scope = scope_new(made->ctx);
	OK(orch_scope_start_wait(made->scope, 10000, e));
	made->watched = watch(made->scope);
	made->proc = spawn(made->scope, LOAD("stubborn", made->watched.word));
	while (!orch_proc_pid(made->proc))
		OK(orch_ctx_process(made->ctx, e));
	return NULL;
}

/* A death signal is armed for the thread that forked, not for its process. */
START_TEST(load_outlives_the_thread_that_started_it)
{
	struct short_lived made = {0};
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, spawn_and_end, &made), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	/* Not only its pid, the thread itself is gone: then whatever was armed for it has come. */
	for (int i = 0; i < 20; i++) {
		pause_ms(5);
		ck_assert_uint_eq(with_word(made.watched.word), 1);
	}
	ck_assert_int_eq(run(made.scope, ARGV("sh", "-c", "exit 3")), 3);
	orch_death *death = stop(made.scope, 0);
	assert_dead(death);
	ck_assert_int_eq(wait_status(made.proc), 256 + SIGKILL);
	orch_death_unref(death);
	orch_scope_unref(made.scope);
	orch_ctx_unref(made.ctx);
}
END_TEST

/* --- descriptors ----------------------------------------------------------------------- */

static void allow_fds(rlim_t limit)
{
	struct rlimit files;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = limit;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}

/* With `spare` descriptors left either all of it works, or an error says why. */
static bool live_with_spare(rlim_t spare)
{
	struct rlimit before;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_proc *proc = NULL;
	orch_error *error = NULL;
	struct orch_ctx_opts ctx_opts;
	struct orch_proc_opts opts;
	int32_t status = -1;
	unsigned fds = open_fds();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	ctx_opts.helper_path = helper_path;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = ARGV("sh", "-c", "exit 6");
	allow_fds((rlim_t)fds + spare);
	int32_t code = orch_ctx_new(&ctx_opts, &ctx, &error);
	if (code == 0)
		code = orch_scope_new(ctx, NULL, &scope, &error);
	if (code == 0)
		code = orch_scope_start_wait(scope, 20000, &error);
	if (code == 0)
		code = orch_scope_spawn(scope, &opts, &proc, &error);
	if (code == 0)
		code = orch_proc_wait(proc, 20000, &status, &error);
	allow_fds(before.rlim_cur);
	if (code == 0) {
		ck_assert_int_eq(status, 6);
	} else {
		ck_assert_msg(code == ORCH_ESYS || code == ORCH_EHELPER || code == ORCH_ESPAWN, "%s: %s",
			      orch_code_name(code), orch_error_message(error));
		ck_assert_msg(strlen(orch_error_message(error)) > 10, "%s", orch_error_message(error));
	}
	orch_error_free(error);
	orch_proc_unref(proc);
	if (scope) {
		orch_death *death = stop(scope, 0);
		bool lost = code < 0 && strstr(orch_death_reason(death), "lost before the scope stood");
		ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_DEAD || lost, "%s", orch_death_text(death));
		orch_death_unref(death);
	}
	orch_scope_unref(scope);
	/* The same context works when there is room again. */
	if (ctx)
		live(ctx);
	orch_ctx_unref(ctx);
	ck_assert_uint_eq(open_fds(), fds);
	return code == 0;
}

START_TEST(few_descriptors)
{
	unsigned worked = 0, failed = 0;
	for (rlim_t spare = 0; spare < 24; spare++)
		live_with_spare(spare) ? worked++ : failed++;
	/* Controls: the limit was felt, and it was not always. */
	ck_assert_uint_ge(failed, 3);
	ck_assert_uint_ge(worked, 3);
	live_and_leave_nothing();
}
END_TEST

START_TEST(no_standard_streams)
{
	/* In a child: the test's own streams are needed to report. */
	pid_t child = fork();
	if (child == 0) {
		close(0);
		close(1);
		close(2);
		orch_ctx *ctx = ctx_new();
		live(ctx);
		orch_scope *scope = scope_new(ctx);
		/* What a program gets as 0, 1, 2 is /dev/null and no descriptor of the library's. */
		ck_assert_int_eq(run(scope, ARGV("sh", "-c",
						 "for n in 0 1 2; do test $(readlink /proc/$$/fd/$n) = /dev/null || exit 9; done")),
				 0);
		ck_assert_int_eq(run(scope, LOAD("fds")), 0);
		orch_scope_unref(scope);
		orch_ctx_unref(ctx);
		_exit(0);
	}
	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* --- memory, root, forks --------------------------------------------------------------- */

#define LARGE (1024u << 20)

/* fork() would copy its page tables, and each page that is written afterwards. */
START_TEST(large_host)
{
	struct rusage before, after;
	char *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	ck_assert_int_eq(madvise(memory, LARGE, MADV_NOHUGEPAGE), 0);
	for (size_t at = 0; at < LARGE; at += 4096)
		memory[at] = 1;
	orch_ctx *ctx = ctx_new();
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &before), 0);
	live(ctx);
	for (size_t at = 0; at < LARGE; at += 4096)
		memory[at] = 2;
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &after), 0);
	long faults = after.ru_minflt - before.ru_minflt;
	ck_assert_msg(faults < (long)(LARGE / 4096 / 20), "%ld page faults", faults);
	/* Control: after a fork every write is a fault. */
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	for (size_t at = 0; at < LARGE; at += 4096)
		memory[at] = 3;
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &before), 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ck_assert_int_ge(before.ru_minflt - after.ru_minflt, (long)(LARGE / 4096 / 2));
	orch_ctx_unref(ctx);
	munmap(memory, LARGE);
}
END_TEST

START_TEST(daemon_host)
{
	int report[2];
	char answer = 0;
	ck_assert_int_eq(pipe2(report, O_CLOEXEC), 0);
	pid_t child = fork();
	if (child == 0) {
		/* Twice, as daemons do; the context of the first one is of no use in the second. */
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_new(ctx);
		OK(orch_scope_start_wait(scope, 20000, e));
		if (fork() != 0)
			_exit(0);
		setsid();
		ck_assert_int_eq(orch_scope_new(ctx, NULL, &scope, NULL), ORCH_EFORKED);
		orch_ctx *own = ctx_new();
		live(own);
		orch_ctx_unref(own);
		_exit(write(report[1], "d", 1) == 1 ? 0 : 1);
	}
	int status = -1;
	close(report[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(report[0], &answer, 1), 1);
	ck_assert_int_eq(answer, 'd');
	close(report[0]);
}
END_TEST

/* A folder that is bind-mounted on itself, with what there is at home. */
START_TEST(host_in_a_chroot)
{
	char root[128];
	int status = -1;
	snprintf(root, sizeof(root), "%s/root-%d", folder, (int)getpid());
	ck_assert_int_eq(mkdir(root, 0755), 0);
	pid_t child = fork();
	if (child == 0) {
		ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
		ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
		ck_assert_int_eq(mount("/", root, NULL, MS_BIND | MS_REC, NULL), 0);
		ck_assert(chroot(root) == 0 && chdir("/") == 0);
		live_and_leave_nothing();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(rmdir(root), 0);
	ck_assert_int_eq(status, 0);
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
	Suite *all = suite_create("hosts");
	TCase *hosts = tcase_create("hosts");
	tcase_add_test(hosts, children_are_not_waited_for);
	tcase_add_test(hosts, thread_that_waits_for_every_kind_of_child);
	tcase_add_test(hosts, many_contexts_in_threads);
	tcase_add_test(hosts, load_outlives_the_thread_that_started_it);
	tcase_add_test(hosts, few_descriptors);
	tcase_add_test(hosts, no_standard_streams);
	tcase_add_test(hosts, large_host);
	tcase_add_test(hosts, daemon_host);
	if (is_root())
		tcase_add_test(hosts, host_in_a_chroot);
	else
		printf("not root: chroot not tried\n");
	tcase_set_timeout(hosts, 150);
	suite_add_tcase(all, hosts);
	return all;
}

int main(int argc, char **argv)
{
	return fixture_main(argc, argv);
}
