/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orch_sandbox: builder, start, run, spawn, listener, connect, limits, ownership, refusals, report.
 * What is tried against the walls is in test-sandbox-attacks.c.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "sandbox-fixture.h"

/* --- running -------------------------------------------------------------------------------- */

START_TEST(every_exit_code_passes)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	for (int code = 0; code < 256; code++) {
		struct orch_proc_opts opts;
		orch_proc *proc = NULL;
		char script[32];
		int32_t status = -1;

		snprintf(script, sizeof(script), "exit %d", code);
		orch_proc_opts_init(&opts, sizeof(opts));
		opts.argv = SH(script);
		OK(orch_sandbox_spawn(sandbox, &opts, &proc, e));
		OK(orch_proc_wait(proc, 10000, &status, e));
		ck_assert_int_eq(status, code);
		orch_proc_unref(proc);
	}
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* The short form, and signals. */
START_TEST(exit_codes_pass_exactly)
{
	become(_i);
	orch_ctx *ctx = ctx_new();

	ck_assert_int_eq(run(sandbox_new(ctx, NULL), SH("exit 0")).status, 0);
	ck_assert_int_eq(run(sandbox_new(ctx, NULL), SH("exit 1")).status, 1);
	ck_assert_int_eq(run(sandbox_new(ctx, NULL), SH("exit 255")).status, 255);
	ck_assert_int_eq(run(sandbox_new(ctx, NULL), SH("kill -SEGV $$")).status, 256 + SIGSEGV);
	orch_ctx_unref(ctx);
}
END_TEST

/* bubblewrap#257: a set-up failure must not look like an exit code. */
START_TEST(failures_before_the_program_are_errors)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	orch_sandbox_result *result = (void *)ctx;

	REFUSED(ORCH_ESPAWN, "no-such-program",
		orch_sandbox_run(sandbox, ARGV("/usr/bin/no-such-program"), NULL, &result, e));
	orch_sandbox_unref(sandbox);
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_add_path(sandbox, "/no/such/path", NULL, ORCH_PATH_READ, e));
	REFUSED(ORCH_ENOENT, "/no/such/path",
		orch_sandbox_run(sandbox, SH("exit 1"), NULL, &result, e));
	ck_assert_ptr_eq(result, ctx); /* untouched */
	/* It stays refused, and says so. */
	REFUSED(ORCH_ENOENT, "/no/such/path", orch_sandbox_start_wait(sandbox, 1000, e));
	struct orch_proc_opts opts;

	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = SH("exit 0");
	REFUSED(ORCH_ESTATE, "not started", orch_sandbox_spawn(sandbox, &opts, NULL, e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(output_input_and_their_limits)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	orch_sandbox_result *result = NULL;
	struct orch_run_opts opts;
	size_t length = 0;

	orch_run_opts_init(&opts, sizeof(opts));
	opts.input = "one\0two";
	opts.input_length = 7;
	opts.output_limit = 1000;
	OK(orch_sandbox_run(sandbox, SH("cat; head -c 300000 /dev/zero >&2; echo x >&2"), &opts,
			    &result, e));
	ck_assert_int_eq(orch_sandbox_result_status(result), 0);
	ck_assert_mem_eq(orch_sandbox_result_output(result, 1, &length), "one\0two", 7);
	ck_assert_uint_eq(length, 7);
	ck_assert_int_eq(orch_sandbox_result_truncated(result, 1), 0);
	orch_sandbox_result_output(result, 2, &length);
	ck_assert_uint_eq(length, 1000);
	ck_assert_int_eq(orch_sandbox_result_truncated(result, 2), 1);
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(sandbox);

	/* More than a pipe holds, all of it kept. */
	sandbox = sandbox_new(ctx, NULL);
	opts = (struct orch_run_opts){.size = sizeof(opts)};
	OK(orch_sandbox_run(sandbox, SH("head -c 900000 /dev/zero"), &opts, &result, e));
	orch_sandbox_result_output(result, 1, &length);
	ck_assert_uint_eq(length, 900000);
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(sandbox);
	ck_assert_str_eq(run(sandbox_new(ctx, NULL), SH("cat; readlink /proc/self/fd/0")).out,
			 "/dev/null\n");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(timeout_is_a_result)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_run_opts opts;
	int64_t began = now_ms();

	orch_run_opts_init(&opts, sizeof(opts));
	opts.timeout_ms = 3000;
	struct outcome outcome = run_opts(
		sandbox_new(ctx, NULL), SH("trap '' TERM; echo begun; sleep 60; echo end"), &opts);

	ck_assert_int_eq(outcome.status, ORCH_ETIMEDOUT);
	ck_assert_str_eq(outcome.out, "begun\n");
	ck_assert_int_lt(now_ms() - began, 50000);
	orch_ctx_unref(ctx);
}
END_TEST

/* codex#7846, sandlock#252: the exit is reported at once, and the load does not live on. */
START_TEST(grandchild_that_holds_stdout)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	int64_t began = now_ms();
	struct outcome outcome =
		run(sandbox_new(ctx, NULL),
		    SH("setsid sh -c 'trap \"\" TERM HUP; sleep 60' & echo done; exit 3"));

	ck_assert_int_eq(outcome.status, 3);
	ck_assert_str_eq(outcome.out, "done\n");
	ck_assert_int_lt(now_ms() - began, 50000);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(what_a_program_finds)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	setenv("ORCH_TEST_SECRET", "s", 1);
	OK(orch_sandbox_set_workspace(sandbox, new_folder(), NULL, e));
	OK(orch_sandbox_set_env(sandbox, "MINE", "a=b", e));
	OK(orch_sandbox_set_env(sandbox, "MINE", "c", e));
	OK(orch_sandbox_set_env(sandbox, "LANG", NULL, e));
	struct outcome outcome =
		run(sandbox,
		    SH("env | grep -v '^_=\\|^SHLVL=\\|^OLDPWD=' | sort; pwd; id -u; id -g; id -G; "
		       "umask; hostname; echo $HOME; test -w $HOME && ls -A $HOME /tmp"));

	ck_assert_str_eq(outcome.out,
			 "HOME=/tmp/home\nMINE=c\n"
			 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
			 "PWD=/work\nTMPDIR=/tmp\n/work\n1000\n1000\n1000\n0022\nsandbox\n"
			 "/tmp/home\n/tmp:\nhome\n\n/tmp/home:\n");
	/* Entries of a spawn are added, its working directory wins. */
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	int32_t status = -1;

	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = SH("test $PWD = /usr -a $EXTRA = 1 -a $HOME = /tmp -a $TMPDIR = /tmp");
	opts.envp = ARGV("EXTRA=1", "HOME=/tmp");
	opts.cwd = "/usr";
	OK(orch_sandbox_spawn(sandbox, &opts, &proc, e));
	OK(orch_proc_wait(proc, 10000, &status, e));
	ck_assert_int_eq(status, 0);
	orch_proc_unref(proc);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(the_usual_tools_run)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_set_workspace(sandbox, new_folder(), NULL, e));
	struct outcome outcome = run(
		sandbox,
		SH("set -e; git init -q r; cd r; git config user.email a@b; git config user.name "
		   "n\n"
		   "echo 1 > f; git add f; git commit -qm one; git log --format=%s\n"
		   "echo 'int main(void){return 0;}' > a.c; cc a.c -o a; ./a; echo compiled\n"
		   "python3 - <<'E'\n"
		   "import socket, subprocess, threading, multiprocessing, tempfile, sqlite3\n"
		   "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
		   "c = socket.create_connection(s.getsockname()); print('served')\n"
		   "print(multiprocessing.Pool(2).map(abs, [-1]))\n"
		   "print(subprocess.check_output(['sh', '-c', 'echo child']).decode().strip())\n"
		   "E\n"));

	ck_assert_msg(outcome.status == 0, "%d: %s%s", outcome.status, outcome.out, outcome.err);
	ck_assert_str_eq(outcome.out, "one\ncompiled\nserved\n[1]\nchild\n");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(an_empty_root_is_empty)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_sandbox_result *result = NULL;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.root = ORCH_ROOT_EMPTY;
	OK(orch_sandbox_new(ctx, &opts, &sandbox, e));
	REFUSED(ORCH_ESPAWN, "/bin/sh", orch_sandbox_run(sandbox, SH("exit 0"), NULL, &result, e));
	orch_sandbox_unref(sandbox);
	/* What is declared is there, and nothing else. */
	OK(orch_sandbox_new(ctx, &opts, &sandbox, e));
	OK(orch_sandbox_add_path(sandbox, "/usr", NULL, ORCH_PATH_READ | ORCH_PATH_EXEC, e));
	OK(orch_sandbox_add_path(sandbox, "/usr/lib64", "/lib64", ORCH_PATH_READ | ORCH_PATH_EXEC,
				 e));
	OK(orch_sandbox_add_path(sandbox, "/usr/lib", "/lib", ORCH_PATH_READ | ORCH_PATH_EXEC, e));
	ck_assert_str_eq(run(sandbox, ARGV("/usr/bin/ls", "/")).out,
			 "dev\nlib\nlib64\nproc\ntmp\nusr\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* --- builder -------------------------------------------------------------------------------- */

START_TEST(bad_arguments_are_named)
{
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL), *none = NULL;
	struct orch_sandbox_opts opts;

	REFUSED(ORCH_EINVAL, "relative", orch_sandbox_add_path(sandbox, "relative", NULL, 1, e));
	REFUSED(ORCH_EINVAL, "not absolute", orch_sandbox_add_path(sandbox, "", NULL, 1, e));
	REFUSED(ORCH_EINVAL, "..", orch_sandbox_add_path(sandbox, "/usr/../etc", "/x", 1, e));
	REFUSED(ORCH_EINVAL, "..", orch_sandbox_add_path(sandbox, "/usr", "/x/..", 1, e));
	REFUSED(ORCH_EINVAL, "/proc", orch_sandbox_add_path(sandbox, "/usr", "/proc/x", 1, e));
	REFUSED(ORCH_EINVAL, "/dev", orch_sandbox_add_path(sandbox, "/usr", "/dev", 1, e));
	REFUSED(ORCH_EINVAL, "own", orch_sandbox_add_path(sandbox, "/usr", "/", 1, e));
	REFUSED(ORCH_EINVAL, "access", orch_sandbox_add_path(sandbox, "/usr", "/x", 0, e));
	REFUSED(ORCH_EINVAL, "access", orch_sandbox_add_path(sandbox, "/usr", "/x", 16, e));
	REFUSED(ORCH_EEXIST, "/usr", orch_sandbox_add_path(sandbox, "/usr", NULL, 1, e));
	OK(orch_sandbox_add_path(sandbox, "/usr//share/", "/x//y/", 1, e));
	REFUSED(ORCH_EEXIST, "/x/y", orch_sandbox_add_path(sandbox, "/usr", "/x/y", 1, e));
	/* A slip that would hand the system to an unprivileged uid. */
	REFUSED(ORCH_EINVAL, "system", orch_sandbox_set_workspace(sandbox, "/etc/", NULL, e));
	REFUSED(ORCH_EINVAL, "system", orch_sandbox_set_workspace(sandbox, "/", "/w", e));
	OK(orch_sandbox_set_workspace(sandbox, folder, NULL, e));
	REFUSED(ORCH_EEXIST, "/work", orch_sandbox_set_workspace(sandbox, folder, "/w", e));
	REFUSED(ORCH_EINVAL, "=", orch_sandbox_set_env(sandbox, "A=B", "c", e));
	REFUSED(ORCH_EINVAL, "empty", orch_sandbox_set_env(sandbox, "", "c", e));
	REFUSED(ORCH_ENOENT, "selinux", orch_sandbox_set_protection(sandbox, "selinux", 1, e));
	REFUSED(ORCH_EINVAL, "level", orch_sandbox_set_protection(sandbox, "seccomp", 4, e));
	ck_assert_int_eq(orch_sandbox_listener_fd(sandbox), ORCH_ESTATE);
	ck_assert_ptr_null(orch_sandbox_scope(sandbox));
	orch_sandbox_unref(sandbox);

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.root = 9;
	REFUSED(ORCH_EINVAL, "root", orch_sandbox_new(ctx, &opts, &none, e));
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.flags = 1;
	REFUSED(ORCH_EINVAL, "flags", orch_sandbox_new(ctx, &opts, &none, e));
	ck_assert_ptr_null(none);
	sandbox = sandbox_new(ctx, NULL);
	for (int i = 1; i < 16384; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/many/%d", i);
		OK(orch_sandbox_add_path(sandbox, "/usr", path, 1, e));
	}
	REFUSED(ORCH_ETOOBIG, "16384", orch_sandbox_add_path(sandbox, "/usr", "/one-more", 1, e));
	ck_assert_ptr_null(orch_sandbox_unref(sandbox));
	ck_assert_ptr_null(orch_sandbox_unref(NULL));
	orch_ctx_unref(ctx);
}
END_TEST

static int destroyed;

static void count_destroy(void *userdata)
{
	(void)userdata;
	destroyed++;
}

static void on_start(void *userdata, orch_sandbox *sandbox, const orch_error *error)
{
	int32_t *code = userdata;
	orch_sandbox_result *result = NULL;

	ck_assert_ptr_null(error);
	ck_assert_ptr_nonnull(orch_sandbox_scope(sandbox));
	*code = orch_sandbox_run(sandbox, SH("exit 0"), NULL, &result, NULL);
}

START_TEST(start_calls_back_once)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	int32_t inner = 0;

	OK(orch_sandbox_start(sandbox, on_start, &inner, count_destroy, e));
	ck_assert_int_eq(inner, 0); /* never inside a setter */
	REFUSED(ORCH_ESTATE, "started",
		orch_sandbox_start(sandbox, on_start, &inner, count_destroy, e));
	ck_assert_int_eq(destroyed, 1);
	REFUSED(ORCH_ESTATE, "started", orch_sandbox_set_env(sandbox, "A", "b", e));
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	ck_assert_int_eq(inner, ORCH_EDEADLK);
	ck_assert_int_eq(destroyed, 2);
	ck_assert_int_eq(run(sandbox, SH("exit 4")).status, 4);
	/* Dropped while it starts: the callback does not come, its destroy does. */
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_start(sandbox, on_start, &inner, count_destroy, e));
	orch_sandbox_unref(sandbox);
	orch_ctx_run(ctx, 300, NULL);
	ck_assert_int_eq(destroyed, 3);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- network -------------------------------------------------------------------------------- */

static void on_connect(void *userdata, int32_t fd, const orch_error *error)
{
	int32_t *result = userdata;

	*result = error ? -orch_error_errno(error) : fd;
}

START_TEST(listener_and_connect)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;
	struct orch_proc_opts proc_opts;
	orch_proc *proc = NULL;
	int32_t status = -1, fd = -9999;
	char byte = 0;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.net = ORCH_NET_BROKER;
	orch_sandbox *sandbox = sandbox_new(ctx, &opts);

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	int listener = orch_sandbox_listener_fd(sandbox);

	ck_assert_int_ge(listener, 0);
	ck_assert(fcntl(listener, F_GETFD) & FD_CLOEXEC);
	orch_proc_opts_init(&proc_opts, sizeof(proc_opts));
	/* The port is the host's: nobody inside can take it. Then a server of its own on another.
	 */
	proc_opts.argv =
		ARGV("/usr/bin/python3", "-c",
		     "import socket\n"
		     "c = socket.create_connection(('127.0.0.1', 8080)); c.send(b'x')\n"
		     "for reuse in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):\n"
		     "  for where in ('127.0.0.1', '0.0.0.0'):\n"
		     "    t = socket.socket(); t.setsockopt(socket.SOL_SOCKET, reuse, 1)\n"
		     "    try: t.bind((where, 8080)); t.listen(); c.send(b'!')\n"
		     "    except OSError: pass\n"
		     "s = socket.socket(); s.bind(('127.0.0.1', 5000)); s.listen(); c.send(b'y')\n"
		     "a = s.accept()[0]; a.send(a.recv(1)); c.recv(1)\n");
	OK(orch_sandbox_spawn(sandbox, &proc_opts, &proc, e));
	struct pollfd poller = {.fd = listener, .events = POLLIN};

	for (int i = 0; i < 1000 && poll(&poller, 1, 50) == 0; i++)
		orch_ctx_process(ctx, NULL);
	int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	ck_assert_int_ge(accepted, 0);
	ck_assert(recv(accepted, &byte, 1, 0) == 1 && byte == 'x');
	ck_assert(recv(accepted, &byte, 1, 0) == 1);
	ck_assert_int_eq(byte, 'y');
	OK(orch_sandbox_connect(sandbox, 5000, on_connect, &fd, count_destroy, e));
	for (int i = 0; i < 1000 && fd == -9999; i++)
		orch_ctx_run(ctx, 50, NULL);
	ck_assert_msg(fd >= 0, "connect: %s", strerror(-fd));
	ck_assert(send(fd, "z", 1, MSG_NOSIGNAL) == 1);
	poller = (struct pollfd){.fd = fd, .events = POLLIN};
	ck_assert_int_eq(poll(&poller, 1, 60000), 1);
	ck_assert(recv(fd, &byte, 1, 0) == 1 && byte == 'z');
	close(fd);
	ck_assert_int_eq(destroyed, 1);
	/* Nobody listens. */
	fd = -9999;
	OK(orch_sandbox_connect(sandbox, 5001, on_connect, &fd, NULL, e));
	for (int i = 0; i < 1000 && fd == -9999; i++)
		orch_ctx_run(ctx, 50, NULL);
	ck_assert_int_eq(fd, -ECONNREFUSED);
	close(accepted);
	OK(orch_proc_wait(proc, 10000, &status, e));
	ck_assert_int_eq(status, 0);
	orch_proc_unref(proc);
	orch_sandbox_unref(sandbox);
	/* Without a broker there is no listener. */
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	ck_assert_int_eq(orch_sandbox_listener_fd(sandbox), ORCH_ESTATE);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- paths ---------------------------------------------------------------------------------- */

static void check_access(uint32_t landlock)
{
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	char *read_only = new_folder(), *writable = new_folder(), *runnable = new_folder();

	OK(orch_sandbox_set_protection(sandbox, "landlock", landlock, e));
	chmod(read_only, 0755), chmod(writable, 0777), chmod(runnable, 0755);
	put(in(read_only, "file"), "text");
	put(in(read_only, "run"), "#!/bin/sh\necho ran\n"), chmod(in(read_only, "run"), 0755);
	put(in(writable, "file"), "old"), chmod(in(writable, "file"), 0666);
	put(in(runnable, "run"), "#!/bin/sh\necho ran\n"), chmod(in(runnable, "run"), 0755);
	symlink(in(runnable, "run"), in(writable, "declared-link"));
	OK(orch_sandbox_add_path(sandbox, read_only, "/r", ORCH_PATH_READ, e));
	OK(orch_sandbox_add_path(sandbox, writable, "/w", ORCH_PATH_READ | ORCH_PATH_WRITE, e));
	OK(orch_sandbox_add_path(sandbox, runnable, "/x", ORCH_PATH_READ | ORCH_PATH_EXEC, e));
	OK(orch_sandbox_add_path(sandbox, in(read_only, "file"), "/one/file", ORCH_PATH_READ, e));
	/* codex#20716: the host path is a symbolic link; it is resolved once. */
	OK(orch_sandbox_add_path(sandbox, in(writable, "declared-link"), "/linked",
				 ORCH_PATH_READ | ORCH_PATH_EXEC, e));
	struct outcome outcome =
		run(sandbox, SH("exec 2>/dev/null; cat /r/file /one/file; echo new > /w/file; "
				"mkdir /w/d; mv /w/d /w/e\n"
				"for c in 'echo x > /r/file' 'rm /r/file' 'mkdir /r/d' 'mv /r/file "
				"/w/f' 'ln /r/file /w/f'"
				" 'truncate -s 0 /r/file' 'chmod 777 /r/file' 'touch /r/file' "
				"/r/run 'touch /x/new' 'touch /new'"
				" 'echo x > /one/file' 'touch /etc/x' 'touch /dev/x'; do\n"
				"  sh -c \"$c\" && echo \"BROKEN $c\"; done; cp /x/run /w/; /w/run "
				"&& echo BROKEN noexec\n"
				"/x/run; /linked"));

	ck_assert_str_eq(outcome.out, "texttextran\nran\n");
	ck_assert(holds(in(writable, "file"), "new\n") && access(in(writable, "e"), F_OK) == 0);
	ck_assert(holds(in(read_only, "file"), "text"));
	orch_ctx_unref(ctx);
}

/* The mounts hold alone as well. */
START_TEST(access_is_what_was_declared)
{
	become(_i);
	check_access(ORCH_PROTECT_REQUIRED);
	check_access(ORCH_PROTECT_OFF);
}
END_TEST

/* pmg#446: `mv .git/x .git/hooks/pre-commit`, and the folder around the protected one renamed. */
START_TEST(a_protected_folder_can_not_be_moved_away)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	char *work = new_folder();

	mkdir(in(work, "a"), 0755), mkdir(in(work, "a/.git"), 0755),
		mkdir(in(work, "a/.git/hooks"), 0755);
	put(in(work, "a/.git/hooks/pre-commit"), "good");
	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	OK(orch_sandbox_add_path(sandbox, in(work, "a/.git/hooks"), "/work/a/.git/hooks",
				 ORCH_PATH_READ, e));
	struct outcome outcome = run(
		sandbox,
		SH("exec 2>/dev/null; cd /work; echo bad > a/.git/x && mv a/.git/x a/.git/y && "
		   "echo moved\n"
		   "for c in 'mv a/.git/y a/.git/hooks/pre-commit' 'ln a/.git/y a/.git/hooks/new'"
		   " 'mv a/.git/hooks a/.git/h' 'mv a/.git a/g' 'mv a b' 'rm -r a/.git/hooks' "
		   "'rmdir a/.git/hooks'; do\n"
		   "  sh -c \"$c\" && echo \"BROKEN $c\"; done; mkdir -p a/.git/hooks\n"
		   "echo bad > a/.git/hooks/pre-commit || echo refused"));

	ck_assert_str_eq(outcome.out, "moved\nrefused\n");
	ck_assert(holds(in(work, "a/.git/hooks/pre-commit"), "good"));
	ck_assert(access(in(work, "a/.git/y"), F_OK) ==
		  0); /* control: beside it everything is writable */
	orch_ctx_unref(ctx);
}
END_TEST

/* sandlock#112: an earlier load left symbolic links where a mount is to go. */
START_TEST(inner_paths_follow_no_link)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	char *work = new_folder(), *outside = new_folder();

	chmod(outside, 0777);
	symlink(outside, in(work, "trap"));
	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	OK(orch_sandbox_add_path(sandbox, "/usr/share", "/work/trap/x", ORCH_PATH_READ, e));
	REFUSED(ORCH_ESYS, "/work/trap", orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
	ck_assert_msg(rmdir(outside) == 0, "something was made in %s", outside);
	orch_ctx_unref(ctx);
}
END_TEST

/* A folder that only root may pass through can be mounted; its load runs as another uid. */
START_TEST(folders_below_closed_ones)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *closed = new_folder(); /* 0700 */

	mkdir(in(closed, "work"), 0700);
	put(in(closed, "work/file"), "mine"), chmod(in(closed, "work/file"), 0600);
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_set_workspace(sandbox, in(closed, "work"), NULL, e));
	ck_assert_str_eq(run(sandbox, SH("cat file; echo ours > file; id -u; stat -c %u .")).out,
			 "mine1000\n1000\n");
	ck_assert(holds(in(closed, "work/file"), "ours\n"));
	orch_ctx_unref(ctx);
}
END_TEST

/* Root hands a workspace over: nothing is followed, nothing with another name is taken. */
START_TEST(ownership_stays_inside)
{
	if (geteuid() != 0)
		return;
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	char *work = new_folder(), *outside = new_folder();
	struct stat st;

	put(in(outside, "linked"), "a"), put(in(outside, "hard"), "b"),
		put(in(outside, "secret"), "c");
	chmod(in(outside, "secret"), 0600);
	mkdir(in(work, "d"), 0755), put(in(work, "d/f"), "d");
	symlink(in(outside, "linked"), in(work, "d/link"));
	symlink(outside, in(work, "folder-link"));
	ck_assert(link(in(outside, "hard"), in(work, "d/hard")) == 0);
	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	uint32_t uid = orch_sandbox_host_uid(sandbox);

	ck_assert(uid >= 0x60000000 && uid <= 0x6fffffff);
	struct outcome outcome =
		run(sandbox, SH("cat d/hard; echo x > d/hard || echo refused; echo x > d/f"));

	ck_assert_str_eq(outcome.out, "brefused\n");
	ck_assert(stat(in(work, "d/f"), &st) == 0 && st.st_uid == uid && st.st_gid == uid);
	ck_assert(lstat(in(work, "d/link"), &st) == 0 && st.st_uid == uid);
	ck_assert(stat(in(outside, "linked"), &st) == 0 && st.st_uid == 0);
	ck_assert(stat(in(outside, "hard"), &st) == 0 && st.st_uid == 0);
	ck_assert(stat(outside, &st) == 0 && st.st_uid == 0);
	/* One that the load could only use by owning it. */
	ck_assert(link(in(outside, "secret"), in(work, "secret")) == 0);
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	ck_assert_uint_ne(orch_sandbox_host_uid(sandbox), uid);
	REFUSED(ORCH_EDENIED, "hard links", orch_sandbox_start_wait(sandbox, 60000, e));
	ck_assert(stat(in(outside, "secret"), &st) == 0 && st.st_uid == 0);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* srt#98: .git is a file. It runs, and the repository it names is out of reach. */
START_TEST(a_worktree_runs)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	char *real = new_folder(), *work = new_folder();
	char text[256];

	put(in(real, "config"), "real");
	snprintf(text, sizeof(text), "gitdir: %s\n", real);
	put(in(work, ".git"), text);
	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	struct outcome outcome =
		run(sandbox, SH("cat $(cut -d' ' -f2 .git)/config 2>/dev/null || echo hidden"));

	ck_assert_str_eq(outcome.out, "hidden\n");
	ck_assert(holds(in(real, "config"), "real"));
	orch_ctx_unref(ctx);
}
END_TEST

/* claude-code#74081: thousands of files beside the declared ones cost nothing: no mount, and what it takes to list them. */
START_TEST(many_files_are_no_cost)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	/* In memory: what is measured is not the disk. */
	char work[] = "/dev/shm/orch-sandbox-test-XXXXXX", name[32];
	struct outcome outcome[2];
	int64_t took[2];

	ck_assert_ptr_nonnull(mkdtemp(work));
	for (int full = 0; full < 2; full++) {
		orch_sandbox *sandbox = sandbox_new(ctx, NULL);

		for (int i = 0; full && i < 3552; i++) {
			snprintf(name, sizeof(name), "f%d", i);
			put(in(work, name), "x");
		}
		OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
		int64_t began = now_ms();

		outcome[full] = run(sandbox, SH("wc -l </proc/self/mountinfo; ls | wc -l"));
		took[full] = now_ms() - began;
	}
	remove_tree(work);
	size_t mounts = strcspn(outcome[0].out, "\n");

	ck_assert_str_eq(outcome[0].out + mounts, "\n0\n");
	ck_assert_str_eq(outcome[1].out + mounts, "\n3552\n");
	ck_assert(mounts > 0 && strncmp(outcome[0].out, outcome[1].out, mounts) == 0);
	ck_assert_int_lt(took[1], 3000 + 10 * took[0]);
	orch_ctx_unref(ctx);
}
END_TEST

static orch_stream *stream_new(orch_ctx *ctx, uint32_t kind)
{
	struct orch_stream_opts opts;
	orch_stream *stream = NULL;

	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = kind;
	opts.capture_first_bytes = kind == ORCH_STREAM_INPUT ? 0 : 4096;
	OK(orch_stream_new(ctx, &opts, &stream, e));
	return stream;
}

static void assert_came(orch_stream *stream, const char *expected)
{
	size_t length = 0;
	const char *bytes = orch_stream_captured(stream, &length);

	ck_assert_uint_eq(orch_stream_reason(stream), ORCH_STREAM_EOF);
	ck_assert_msg(length == strlen(expected) && memcmp(bytes, expected, length) == 0, "%.*s", (int)length, bytes);
	orch_stream_unref(stream);
}

static int32_t run_with(orch_sandbox *sandbox, orch_stream *in, orch_stream *out, orch_stream *err, const char *script)
{
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	int32_t status = -1;

	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = SH(script);
	opts.stdin_stream = in;
	opts.stdout_stream = out;
	opts.stderr_stream = err;
	OK(orch_sandbox_spawn(sandbox, &opts, &proc, e));
	OK(orch_proc_wait(proc, 20000, &status, e));
	orch_proc_unref(proc);
	return status;
}

/* Also opened again by their names, under the uid that the program has. */
START_TEST(streams_go_in_and_out)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	orch_stream *in = stream_new(ctx, ORCH_STREAM_INPUT), *out = stream_new(ctx, ORCH_STREAM_OUTPUT),
		    *err = stream_new(ctx, ORCH_STREAM_OUTPUT);

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	OK(orch_stream_write(in, "line\n", 5, NULL, e));
	OK(orch_stream_close(in, e));
	ck_assert_int_eq(run_with(sandbox, in, out, err,
				  "cat /dev/stdin && echo to the side >&2 && echo by name >/dev/stderr && "
				  "echo out >/dev/stdout"),
			 0);
	assert_came(out, "line\nout\n");
	assert_came(err, "to the side\nby name\n");
	orch_stream_unref(in);
	orch_sandbox_unref(sandbox);
	/* The short form as well. */
	struct outcome outcome = run(sandbox_new(ctx, NULL), SH("echo by name >/dev/stderr; echo out >/dev/stdout"));
	ck_assert_str_eq(outcome.out, "out\n");
	ck_assert_str_eq(outcome.err, "by name\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* It is not in the sandbox's own /dev/pts, so that it has no name and can not be opened by one; /dev/tty can. */
START_TEST(a_terminal_works_inside)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	orch_stream *terminal = stream_new(ctx, ORCH_STREAM_PTY);

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	OK(orch_stream_resize(terminal, 33, 101, e));
	ck_assert_int_eq(run_with(sandbox, terminal, terminal, terminal,
				  "test -t 0 && test -t 1 && test -t 2 && stty size && echo controls >/dev/tty && "
				  "ls /dev/pts | grep -v ptmx; tty >/dev/null || echo nameless; "
				  "(echo by name >/dev/stdout) 2>/dev/null || echo closed"),
			 0);
	assert_came(terminal, "33 101\r\ncontrols\r\nnameless\r\nclosed\r\n");
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("sandbox");
	TCase *both = tcase_create("as root and as a user"), *once = tcase_create("once");
	TCase *thousands = tcase_create("thousands");
	int ids = identities();

	(void)argc;
	tcase_set_timeout(both, 60);
	tcase_set_timeout(once, 60);
	tcase_set_timeout(thousands, 60);
	/* Minutes where the processor is emulated: CK_EXCLUDE_TAGS=thousands leaves it out. */
	tcase_set_tags(thousands, "thousands");
	tcase_add_loop_test(thousands, every_exit_code_passes, 0, ids);
	tcase_add_loop_test(both, exit_codes_pass_exactly, 0, ids);
	tcase_add_loop_test(both, failures_before_the_program_are_errors, 0, ids);
	tcase_add_loop_test(both, output_input_and_their_limits, 0, ids);
	tcase_add_loop_test(both, timeout_is_a_result, 0, ids);
	tcase_add_loop_test(both, grandchild_that_holds_stdout, 0, ids);
	tcase_add_loop_test(both, what_a_program_finds, 0, ids);
	tcase_add_loop_test(both, the_usual_tools_run, 0, ids);
	tcase_add_loop_test(both, an_empty_root_is_empty, 0, ids);
	tcase_add_loop_test(both, start_calls_back_once, 0, ids);
	tcase_add_loop_test(both, listener_and_connect, 0, ids);
	tcase_add_loop_test(both, access_is_what_was_declared, 0, ids);
	tcase_add_loop_test(both, a_protected_folder_can_not_be_moved_away, 0, ids);
	tcase_add_loop_test(both, inner_paths_follow_no_link, 0, ids);
	tcase_add_loop_test(both, folders_below_closed_ones, 0, ids);
	tcase_add_loop_test(both, a_worktree_runs, 0, ids);
	tcase_add_loop_test(both, many_files_are_no_cost, 0, ids);
	tcase_add_loop_test(both, streams_go_in_and_out, 0, ids);
	tcase_add_loop_test(both, a_terminal_works_inside, 0, ids);
	tcase_add_test(once, bad_arguments_are_named);
	tcase_add_test(once, ownership_stays_inside);
	suite_add_tcase(suite, both);
	suite_add_tcase(suite, once);
	suite_add_tcase(suite, thousands);
	return fixture_main(argv, suite);
}
