/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that is tried against a sandbox, with the same attempt outside as positive control;
 * what happens where the host can not protect; and what is left behind. This program is its own
 * load: `--attack NAME ARGUMENTS`.
 *
 * The situations of other projects and the tests that stand for them ("s:" test-sandbox.c, "a:"
 * here):
 *
 *   a denied Unix socket is connected to               a:channels (unix.path),
 * a:sockets_of_services the bus or a container engine is reachable          a:sockets_of_services
 *   link() of a read-only or denied file                s:access_is_what_was_declared, a:channels
 * (file.link) a symbolic link in the work folder, followed        s:ownership_stays_inside,
 * s:inner_paths_follow_no_link injecting a decision fails or times out a:required_and_missing
 * (refused, never allowed) `mv .git/x .git/hooks/pre-commit`
 * s:a_protected_folder_can_not_be_moved_away a denied file is created later a:created_later a
 * protected path is a symbolic link                 s:access_is_what_was_declared,
 * s:inner_paths_follow_no_link .git is a file s:a_worktree_runs thousands of denied files
 * s:many_files_are_no_cost setsid, a background child after exit 0 s:grandchild_that_holds_stdout
 *   a SIGKILLed supervisor                              a:helper_killed
 *   the spawning thread of the host ends                a:thread_ends
 *   a grandchild holds stdout                           s:grandchild_that_holds_stdout
 *   a set-up failure looks like exit code 1             s:failures_before_the_program_are_errors
 *   a memory cap evaded through swap                    a:memory_is_refused_or_said (where no cap
 * can be had) the host ignores SIGCHLD                            a:host_ignores_sigchld
 */
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "sandbox-attacks.h"
#include "sandbox-fixture.h"
#include "sandbox-hosts.h"

/* --- one attempt inside, one outside -------------------------------------------------------- */

/* Denied inside with `error` ("": any); succeeds outside. */
static void denied_inside(orch_sandbox *sandbox, const char *error, const char *a, const char *b,
			  const char *c, const char *d)
{
	const char *inside[] = {INSIDE, "--attack", a, b, c, d, NULL};
	const char *outside[] = {self_path, "--attack", a, b, c, d, NULL};
	struct outcome outcome = run(sandbox, inside);

	ck_assert_msg(outcome.status == 1 && strstr(outcome.out, error), "%s %s inside: %d %s%s", a,
		      b ? b : "", outcome.status, outcome.out, outcome.err);
	int control = run_outside(outside);

	ck_assert_msg(control == 0, "%s %s outside: %d", a, b ? b : "", control);
}

/* By a sandbox that requires it. */
static bool memory_can_be_capped(orch_ctx *ctx)
{
	struct orch_sandbox_opts opts;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_memory_mib = 64;
	orch_sandbox *sandbox = sandbox_new(ctx, &opts);

	OK(orch_sandbox_set_protection(sandbox, "memory", ORCH_PROTECT_REQUIRED, e));
	bool capped = orch_sandbox_start_wait(sandbox, 10000, NULL) == 0;

	orch_sandbox_unref(sandbox);
	return capped;
}

START_TEST(channels)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox_report *report = NULL;
	struct orch_sandbox_opts opts;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	for (uint32_t root = ORCH_ROOT_EMPTY; root <= ORCH_ROOT_TOOLS; root++) {
		opts.root = root;
		OK(orch_sandbox_report_run(ctx, &opts, 0, &report, e));
		uint32_t count = orch_sandbox_report_count(report), state = 0, probe = 0,
			 control = 0;
		const char *channel = NULL;

		ck_assert_uint_ge(count, 26);
		for (uint32_t i = 0; i < count; i++) {
			ck_assert_int_eq(orch_sandbox_report_row(report, i, &channel, &state, NULL,
								 &probe, &control, NULL),
					 0);
			if (strcmp(channel, "memory") == 0 && !memory_can_be_capped(ctx))
				ck_assert(state == ORCH_CHANNEL_ABSENT && probe == ORCH_PROBE_NOT_RUN);
			else
				ck_assert_msg(state == ORCH_CHANNEL_ENFORCED &&
						      probe == ORCH_PROBE_PASSED &&
						      control == ORCH_PROBE_PASSED,
					      "%s", orch_sandbox_report_text(report));
		}
		ck_assert_int_eq(
			orch_sandbox_report_row(report, count, NULL, NULL, NULL, NULL, NULL, NULL),
			ORCH_EINVAL);
		orch_sandbox_report_unref(report);
	}
	orch_ctx_unref(ctx);
}
END_TEST

/* A report in which every row passes whatever happens would be worth nothing. */
START_TEST(channels_without_protection)
{
	become(_i);
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	orch_ctx *ctx = ctx_new();
	orch_sandbox_report *report = NULL;
	const char *channel = NULL;
	uint32_t state = 0, probe = 0;
	unsigned seen = 0;

	/* A host without Landlock. */
	ck_assert_int_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EOPNOTSUPP),
					  SCMP_SYS(landlock_create_ruleset), 0),
			 0);
	ck_assert_int_eq(seccomp_load(filter), 0);
	OK(orch_sandbox_report_run(ctx, NULL, 0, &report, e));
	for (uint32_t i = 0; i < orch_sandbox_report_count(report); i++) {
		orch_sandbox_report_row(report, i, &channel, &state, NULL, &probe, NULL, NULL);
		if (strcmp(channel, "landlock") == 0)
			seen += state == ORCH_CHANNEL_ABSENT && probe == ORCH_PROBE_FAILED;
		/* The other layer holds alone. */
		if (strcmp(channel, "file.read") == 0 || strcmp(channel, "process.signal") == 0)
			seen += state == ORCH_CHANNEL_ENFORCED;
		/* Its control ran under a filter: not shown. */
		if (strcmp(channel, "seccomp") == 0)
			seen += state == ORCH_CHANNEL_PARTIAL;
	}
	ck_assert_msg(seen == 4, "%s", orch_sandbox_report_text(report));
	orch_sandbox_report_unref(report);
	orch_ctx_unref(ctx);
	seccomp_release(filter);
}
END_TEST

START_TEST(namespaces_and_mounts)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	static const char *const flags[] = {"0x10000000", "0x10020000", "0x30000000", "0x50000000",
					    "0x18000000", "0x14000000", "0x12000000", "0x10000080"};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		denied_inside(sandbox_new(ctx, NULL), "EPERM", "unshare", flags[i], NULL, NULL);
		if (i < 7) /* CLONE_NEWTIME is not a flag of clone() */
			denied_inside(sandbox_new(ctx, NULL), "EPERM", "clone", flags[i], NULL,
				      NULL);
	}
	denied_inside(sandbox_new(ctx, NULL), "ENOSYS", "clone3", NULL, NULL, NULL);
	denied_inside(sandbox_new(ctx, NULL), "EPERM", "setns", NULL, NULL, NULL);
	denied_inside(sandbox_new(ctx, NULL), "EPERM", "mount", "/tmp", NULL, NULL);
	denied_inside(sandbox_new(ctx, NULL), "EPERM", "fsopen", NULL, NULL, NULL);
	/* Without seccomp the other layer stands: the sysctl of the scope's user namespace. */
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_set_protection(sandbox, "seccomp", ORCH_PROTECT_OFF, e));
	denied_inside(sandbox, "ENOSPC", "unshare", "0x10000000", NULL, NULL);
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_set_protection(sandbox, "seccomp", ORCH_PROTECT_OFF, e));
	denied_inside(sandbox, "EPERM", "mount", "/tmp", NULL, NULL);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(system_calls)
{
	become(_i);
	orch_ctx *ctx = ctx_new();

	/* AF_VSOCK, also with a bit that the kernel drops; AF_NETLINK but ROUTE; AF_ALG. */
	denied_inside(sandbox_new(ctx, NULL), "EAFNOSUPPORT", "socket", "40", "1", "0");
	denied_inside(sandbox_new(ctx, NULL), "EAFNOSUPPORT", "socket", "0x100000028", "1", "0");
	denied_inside(sandbox_new(ctx, NULL), "EAFNOSUPPORT", "socket", "16", "3", "15");
	ck_assert_int_eq(
		run(sandbox_new(ctx, NULL), ARGV(INSIDE, "--attack", "socket", "16", "3", "0"))
			.status,
		0);
	/* TIOCSTI, also with a bit that the kernel drops; without seccomp it works inside. */
	denied_inside(sandbox_new(ctx, NULL), "EPERM", "ioctl", "0x5412", NULL, NULL);
	denied_inside(sandbox_new(ctx, NULL), "EPERM", "ioctl", "0x100005412", NULL, NULL);
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_set_protection(sandbox, "seccomp", ORCH_PROTECT_OFF, e));
	ck_assert_int_eq(run(sandbox, ARGV(INSIDE, "--attack", "ioctl", "0x5412")).status, 0);
#ifdef __x86_64__
	/* Where the kernel runs i386 at all. */
	if (run_outside(ARGV(self_path, "--attack", "i386")) == 0)
		denied_inside(sandbox_new(ctx, NULL), "ENOSYS", "i386", NULL, NULL, NULL);
	/* x32: bpf (321), and calls that nobody knows yet. */
	char number[32];

	snprintf(number, sizeof(number), "%ld", 0x40000000L + SYS_bpf);
	ck_assert_int_eq(
		run(sandbox_new(ctx, NULL), ARGV(INSIDE, "--attack", "number", number, "38"))
			.status,
		1);
	ck_assert_int_eq(
		run(sandbox_new(ctx, NULL), ARGV(INSIDE, "--attack", "number", "500", "38")).status,
		1);
	/* Refused by the filter (EPERM), where outside the bad argument is the complaint. */
	static const long calls[] = {SYS_bpf,
				     SYS_perf_event_open,
				     SYS_keyctl,
				     SYS_request_key,
				     SYS_add_key,
				     SYS_open_by_handle_at,
				     SYS_name_to_handle_at,
				     SYS_process_vm_readv,
				     SYS_process_vm_writev,
				     SYS_pidfd_getfd,
				     SYS_open_tree,
				     SYS_move_mount,
				     SYS_mount_setattr,
				     SYS_fspick,
				     SYS_quotactl_fd,
				     467 /* open_tree_attr */};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		snprintf(number, sizeof(number), "%ld", calls[i]);
		struct outcome outcome = run(sandbox_new(ctx, NULL),
					     ARGV(INSIDE, "--attack", "number", number, "1"));

		ck_assert_msg(outcome.status == 1, "call %s: %d %s", number, outcome.status,
			      outcome.out);
		/* Many need a capability, so that only root's control tells the filter from the
		 * kernel. */
		if (_i == 0 && geteuid() == 0)
			ck_assert_int_eq(
				run_outside(ARGV(self_path, "--attack", "number", number, "1")), 0);
	}
#endif
	orch_ctx_unref(ctx);
}
END_TEST

/* init has the load's uid: nothing but its being undumpable, and PID 1, protects it. */
START_TEST(init_is_out_of_reach)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char self[16];

	ck_assert_int_eq(run(sandbox_new(ctx, NULL), ARGV(INSIDE, "--attack", "trace", "1")).status,
			 1);
	ck_assert_int_eq(
		run(sandbox_new(ctx, NULL), ARGV(INSIDE, "--attack", "open", "/proc/1/mem", "0"))
			.status,
		1);
	ck_assert_int_eq(run(sandbox_new(ctx, NULL),
			     ARGV(INSIDE, "--attack", "open", "/proc/1/environ", "0"))
				 .status,
			 1);
	/* Controls: the same on a process of one's own kind works, inside too. */
	snprintf(self, sizeof(self), "%d", (int)getpid());
	ck_assert_int_eq(
		run(sandbox_new(ctx, NULL),
		    SH("sleep 5 & sleep 0.1; " INSIDE " --attack trace $!; r=$?; kill $!; exit $r"))
			.status,
		0);
	ck_assert_int_eq(
		run(sandbox_new(ctx, NULL), SH(INSIDE " --attack open /proc/$$/environ 0")).status,
		0);
	ck_assert_str_eq(
		run(sandbox_new(ctx, NULL),
		    SH("ls -d /proc/1 /proc/$$ 2>&1 | grep -c '^/proc/'; ls /proc | grep -cx 1"))
			.out,
		"1\n0\n");
	/* SIGKILL and SIGSTOP at PID 1 do nothing: the program lives to tell. */
	struct outcome outcome =
		run(sandbox_new(ctx, NULL),
		    SH("kill -9 1; kill -STOP 1; kill -TERM 1; kill -9 -1 2>&1; echo lives"));

	ck_assert_msg(outcome.status == 0 || outcome.status == 256 + SIGKILL, "%d", outcome.status);
	outcome = run(sandbox_new(ctx, NULL), SH("kill -9 1; kill -STOP 1; echo lives"));
	ck_assert_str_eq(outcome.out, "lives\n");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(landlock_alone_and_absent)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	const char *file = in(new_folder(), "mute");

	put(file, "written only");
	/* What may be written and not read: neither a mount nor the file's mode says so. */
	OK(orch_sandbox_add_path(sandbox, file, "/mute", ORCH_PATH_WRITE, e));
	struct outcome outcome = run(sandbox, ARGV(INSIDE, "--attack", "open", "/mute", "0"));

	ck_assert_msg(outcome.status == 1 && strstr(outcome.out, "EACCES"), "%d %s", outcome.status, outcome.out);
	/* The control: the other layer lets it through. */
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_add_path(sandbox, file, "/mute", ORCH_PATH_WRITE, e));
	OK(orch_sandbox_set_protection(sandbox, "landlock", ORCH_PROTECT_OFF, e));
	ck_assert_int_eq(run(sandbox, ARGV(INSIDE, "--attack", "open", "/mute", "0")).status, 0);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(limits)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_processes = 20;
	opts.max_open_files = 50;
	opts.max_file_mib = 3;
	opts.tmp_mib = 8;
	/* init and the attacker count. */
	struct outcome outcome =
		run(sandbox_new(ctx, &opts), ARGV(INSIDE, "--attack", "forks", "40"));

	ck_assert_msg(outcome.status == 1 && atoi(outcome.out) == 18, "%s", outcome.out);
	ck_assert_int_eq(run_outside(ARGV(self_path, "--attack", "descriptors", "100")), 0);
	outcome = run(sandbox_new(ctx, &opts), ARGV(INSIDE, "--attack", "descriptors", "100"));
	ck_assert_msg(outcome.status == 1 && atoi(outcome.out) == 47, "%s", outcome.out);
	ck_assert_int_eq(
		run_outside(ARGV(self_path, "--attack", "file", in(new_folder(), "big"), "6")), 0);
	outcome = run(sandbox_new(ctx, &opts), ARGV(INSIDE, "--attack", "file", "/tmp/big", "6"));
	ck_assert_msg(outcome.status == 1 && atoi(outcome.out) == 3, "%s", outcome.out);
	opts.max_file_mib = 0;
	outcome = run(sandbox_new(ctx, &opts), ARGV(INSIDE, "--attack", "file", "/tmp/big", "20"));
	ck_assert_msg(outcome.status == 1 && atoi(outcome.out) == 8, "%s", outcome.out);
	outcome = run(sandbox_new(ctx, &opts),
		      ARGV(INSIDE, "--attack", "file", "/dev/shm/big", "20"));
	ck_assert_msg(outcome.status == 1 && atoi(outcome.out) == 8, "%s", outcome.out);
	ck_assert_int_eq(
		run(sandbox_new(ctx, &opts), ARGV(INSIDE, "--attack", "raise-limits")).status, 1);
	ck_assert_str_eq(run(sandbox_new(ctx, &opts), SH("ulimit -c")).out, "0\n");
	ck_assert_int_eq(run_outside(ARGV(self_path, "--attack", "mounts")), 0);
	outcome = run(sandbox_new(ctx, NULL), ARGV(INSIDE, "--attack", "mounts"));
	ck_assert_msg(outcome.status == 1, "%s", outcome.out);
	orch_ctx_unref(ctx);
}
END_TEST

/* What the host forgot to mark close-on-exec, before and after the helper started. */
START_TEST(descriptors_of_the_host)
{
	become(_i);
	int before = open("/etc/passwd", O_RDONLY), folder_fd = open("/", O_RDONLY | O_DIRECTORY);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	ck_assert(before >= 0 && folder_fd >= 0);
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	int after = open("/etc/passwd", O_RDONLY);
	struct outcome outcome = run(sandbox, ARGV(INSIDE, "--attack", "fds"));

	ck_assert_msg(outcome.status == 1, "%s", outcome.out);
	ck_assert_int_eq(run_outside(ARGV(self_path, "--attack", "fds")), 0);
	close(before), close(folder_fd), close(after);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(devices_in_the_workspace)
{
	if (geteuid() != 0)
		return;
	orch_ctx *ctx = ctx_new();
	char *work = new_folder();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	/* /dev/zero under another name. */
	ck_assert(mknod(in(work, "zero"), S_IFCHR | 0666, makedev(1, 5)) == 0 &&
		  chmod(in(work, "zero"), 0666) == 0);
	ck_assert_int_eq(run_outside(ARGV(self_path, "--attack", "open", in(work, "zero"), "0")),
			 0);
	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	ck_assert_int_eq(run(sandbox, ARGV(INSIDE, "--attack", "open", "/work/zero", "0")).status,
			 1);
	ck_assert_int_eq(
		run(sandbox_new(ctx, NULL), ARGV(INSIDE, "--attack", "open", "/dev/zero", "0"))
			.status,
		0);
	orch_ctx_unref(ctx);
}
END_TEST

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	ck_assert(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		  listen(fd, 8) == 0);
	return fd;
}

START_TEST(sockets_of_services)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *service = new_folder();
	int fd = listen_at(in(service, "bus"));

	denied_inside(sandbox_new(ctx, NULL), "ENOENT", "connect", in(service, "bus"), NULL, NULL);
	ck_assert_str_eq(run(sandbox_new(ctx, NULL),
			     SH("ls -d /run /var /run/docker.sock /run/user 2>/dev/null"))
				 .out,
			 "");
	close(fd);
	orch_ctx_unref(ctx);
}
END_TEST

/* claude-code#92901 */
START_TEST(created_later)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *work = new_folder(), *outside = new_folder();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	put(in(outside, "later"), "secret");
	denied_inside(sandbox, "ENOENT", "open", in(outside, "later"), "0", NULL);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- hosts that can not protect ------------------------------------------------------------- */

START_TEST(required_and_missing)
{
	static const struct {
		const char *name;
		int call;
	} missing[] = {{"landlock", SCMP_SYS(landlock_create_ruleset)},
		       {"seccomp", SCMP_SYS(seccomp)}};

	become(_i / 2);
	const char *name = missing[_i % 2].name;

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	host_without(missing[_i % 2].call);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	REFUSED(ORCH_EUNENFORCEABLE, name, orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_set_protection(sandbox, name, ORCH_PROTECT_DEGRADABLE, e));
	ck_assert_int_eq(run(sandbox, SH("exit 5")).status, 5);
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_set_protection(sandbox, name, ORCH_PROTECT_OFF, e));
	ck_assert_int_eq(run(sandbox, SH("exit 5")).status, 5);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(no_user_namespaces)
{
	bool root = geteuid() == 0 && _i == 0;

	become(_i);
	/* As root with a range of uids, as in a container; as a user with his own only. */
	enter_outer_userns(root ? 100000 : getuid(), root ? 65536 : 1);
	orch_ctx *ctx = ctx_new();

	/* Control: it works here while there are user namespaces. */
	ck_assert_int_eq(run(sandbox_new(ctx, NULL), SH("exit 3")).status, 3);
	forbid_user_namespaces();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	REFUSED(ORCH_EUNENFORCEABLE, "user.max_user_namespaces is 0",
		orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* uid 0 of the machine and no other: a load would be kuid 0. */
START_TEST(no_uid_but_root)
{
	if (geteuid() != 0)
		return;
	enter_outer_userns(0, 1);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = NULL;

	REFUSED(ORCH_EUNENFORCEABLE, "no uid but 0", orch_sandbox_new(ctx, NULL, &sandbox, e));
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(memory_is_refused_or_said)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_memory_mib = 64;
	orch_sandbox *sandbox = sandbox_new(ctx, &opts);

	OK(orch_sandbox_set_protection(sandbox, "memory", ORCH_PROTECT_REQUIRED, e));
	orch_error *error = NULL;
	int32_t code = orch_sandbox_start_wait(sandbox, 10000, &error);

	if (code == 0) {
		/* Then it holds, swap included. */
		struct outcome outcome =
			run(sandbox, ARGV("/usr/bin/python3", "-c", "b = b'x' * (200 << 20)"));

		ck_assert_int_eq(outcome.status, 256 + SIGKILL);
	} else {
		ck_assert_int_eq(code, ORCH_EUNENFORCEABLE);
		ck_assert_str_eq(orch_error_step(error), "memory");
		orch_sandbox_unref(sandbox);
	}
	orch_error_free(error);
	/* Degradable by default. */
	ck_assert_int_eq(run(sandbox_new(ctx, &opts), SH("exit 2")).status, 2);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- awkward hosts, and what is left -------------------------------------------------------- */

START_TEST(host_ignores_sigchld)
{
	become(_i);
	signal(SIGCHLD, SIG_IGN);
	orch_ctx *ctx = ctx_new();

	ck_assert_int_eq(run(sandbox_new(ctx, NULL), SH("true; (exit 7)")).status, 7);
	orch_ctx_unref(ctx);
}
END_TEST

static void *start_in_thread(void *userdata)
{
	orch_sandbox *sandbox = userdata;

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	return NULL;
}

/* bazel#16649 */
START_TEST(thread_ends)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	pthread_t thread;

	ck_assert(pthread_create(&thread, NULL, start_in_thread, sandbox) == 0 &&
		  pthread_join(thread, NULL) == 0);
	usleep(200000);
	ck_assert_int_eq(run(sandbox, SH("exit 9")).status, 9);
	orch_ctx_unref(ctx);
}
END_TEST

static unsigned alive_named(const char *seconds)
{
	char command[96];

	snprintf(command, sizeof(command), "pgrep -c -f 'slee[p] %s'", seconds);
	return count_lines(command);
}

static void wait_until_none(const char *seconds)
{
	for (int i = 0; i < 1000 && alive_named(seconds) > 0; i++)
		usleep(50000);
	ck_assert_uint_eq(alive_named(seconds), 0);
}

/* Two processes, one of them in a session of its own. */
static orch_proc *start_sleeper(orch_ctx *ctx, orch_sandbox *sandbox, const char *seconds)
{
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	char script[160];

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	orch_proc_opts_init(&opts, sizeof(opts));
	snprintf(script, sizeof(script), "trap '' TERM; setsid sleep %s & sleep %s", seconds,
		 seconds);
	opts.argv = SH(script);
	OK(orch_sandbox_spawn(sandbox, &opts, &proc, e));
	for (int i = 0; i < 250 && alive_named(seconds) < 3; i++)
		orch_ctx_run(ctx, 20, NULL);
	ck_assert_uint_ge(alive_named(seconds), 3); /* and the shell */
	return proc;
}

/* sandlock#238 */
START_TEST(helper_killed)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	char seconds[32], command[96];

	snprintf(seconds, sizeof(seconds), "71.%d", (int)getpid());
	orch_proc *proc = start_sleeper(ctx, sandbox, seconds);

	snprintf(command, sizeof(command), "pgrep -P %d orch-reaper", (int)getpid());
	ck_assert(kill((pid_t)count_lines(command), SIGKILL) == 0);
	int32_t status = 0;

	ck_assert_int_ne(orch_proc_wait(proc, 10000, &status, NULL), 0);
	wait_until_none(seconds);
	orch_proc_unref(proc);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(last_reference_kills)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	char seconds[32];

	snprintf(seconds, sizeof(seconds), "72.%d", (int)getpid());
	orch_proc *proc = start_sleeper(ctx, sandbox, seconds);

	orch_proc_unref(proc);
	orch_sandbox_unref(sandbox);
	wait_until_none(seconds);
	/* And of the context, with a sandbox that somebody forgot to stop. */
	sandbox = sandbox_new(ctx, NULL);
	proc = start_sleeper(ctx, sandbox, seconds);
	orch_proc_unref(proc);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
	wait_until_none(seconds);
}
END_TEST

START_TEST(forked_child)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		orch_sandbox_result *result = NULL;
		struct orch_proc_opts opts;
		int good = 0;

		orch_proc_opts_init(&opts, sizeof(opts));
		opts.argv = SH("exit 0");
		good += orch_sandbox_run(sandbox, SH("exit 0"), NULL, &result, NULL) ==
			ORCH_EFORKED;
		good += orch_sandbox_spawn(sandbox, &opts, NULL, NULL) == ORCH_EFORKED;
		good += orch_sandbox_set_env(sandbox, "A", "b", NULL) == ORCH_EFORKED;
		orch_sandbox_unref(sandbox);
		orch_ctx_unref(ctx);
		_exit(good);
	}
	ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 3);
	/* The parent's lives on. */
	ck_assert_int_eq(run(sandbox, SH("exit 6")).status, 6);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(nothing_is_left)
{
	become(_i);
	unsigned mounts = count_lines("wc -l < /proc/self/mountinfo");
	char seconds[32], script[64], command[160];

	snprintf(seconds, sizeof(seconds), "73.%d", (int)getpid());
	snprintf(script, sizeof(script), "setsid sleep %s & exit 1", seconds);
	for (int i = 0; i < 5; i++) {
		orch_ctx *ctx = ctx_new();
		orch_sandbox *sandbox = sandbox_new(ctx, NULL);
		char name[64];
		uint32_t uid = orch_sandbox_host_uid(sandbox);

		OK(orch_sandbox_set_workspace(sandbox, new_folder(), NULL, e));
		OK(orch_sandbox_start_wait(sandbox, 60000, e));
		snprintf(name, sizeof(name), "%s", orch_scope_name(orch_sandbox_scope(sandbox)));
		ck_assert_int_eq(run(sandbox, SH(script)).status, 1);
		snprintf(command, sizeof(command),
			 "find /sys/fs/cgroup -name '%s*' 2>/dev/null | wc -l", name);
		ck_assert_uint_eq(count_lines(command), 0);
		snprintf(command, sizeof(command), "pgrep -c -U %u", uid);
		if (uid != geteuid())
			ck_assert_uint_eq(count_lines(command), 0);
		ck_assert_uint_eq(alive_named(seconds), 0);
		sandbox = sandbox_new(ctx, NULL);
		OK(orch_sandbox_add_path(sandbox, "/no/such", NULL, ORCH_PATH_READ, e));
		REFUSED(ORCH_ENOENT, "/no/such", orch_sandbox_start_wait(sandbox, 60000, e));
		uid = orch_sandbox_host_uid(sandbox);
		orch_sandbox_unref(sandbox);
		orch_ctx_unref(ctx);
		snprintf(command, sizeof(command), "pgrep -c -U %u", uid);
		if (uid != geteuid())
			ck_assert_uint_eq(count_lines(command), 0);
	}
	ck_assert_uint_eq(count_lines("wc -l < /proc/self/mountinfo"), mounts);
}
END_TEST

#define BOTH(test) tcase_add_loop_test(both, test, 0, ids)

int main(int argc, char **argv)
{
	if (argc >= 3 && strcmp(argv[1], "--attack") == 0)
		return attack_main(argv);
	Suite *suite = suite_create("sandbox attacks");
	TCase *both = tcase_create("as root and as a user"), *once = tcase_create("once");
	int ids = identities();

	tcase_set_timeout(both, 60);
	tcase_set_timeout(once, 60);
	BOTH(channels);
	BOTH(channels_without_protection);
	BOTH(namespaces_and_mounts);
	BOTH(system_calls);
	BOTH(init_is_out_of_reach);
	BOTH(landlock_alone_and_absent);
	BOTH(limits);
	BOTH(descriptors_of_the_host);
	BOTH(sockets_of_services);
	BOTH(created_later);
	tcase_add_loop_test(both, required_and_missing, 0, 2 * ids);
	BOTH(no_user_namespaces);
	BOTH(memory_is_refused_or_said);
	BOTH(host_ignores_sigchld);
	BOTH(thread_ends);
	BOTH(helper_killed);
	BOTH(last_reference_kills);
	BOTH(forked_child);
	BOTH(nothing_is_left);
	tcase_add_test(once, devices_in_the_workspace);
	tcase_add_test(once, no_uid_but_root);
	suite_add_tcase(suite, both);
	suite_add_tcase(suite, once);
	return fixture_main(argv, suite);
}
