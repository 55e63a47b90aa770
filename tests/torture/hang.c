/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torture-hang: one scope's set-up, working directory or program lies on a file system that never answers; other scopes
 * of the same context are made, used and stopped meanwhile. What is judged is the order of events: their certificates
 * come while the hung scope's stop is under way and can not end, because the file system answers only afterwards. With
 * a short deadline its certificate names who hangs.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orch.h>

#include "cage.h"
#include "judge.h"

#define USER 1000
#define OTHERS 4
/* Against a test that hangs; the order is what counts. */
#define PATIENCE_MS 120000
#define LONG_MS 110000
#define SHORT_MS 1000

static struct cage cage;
static struct program_file helper;
static char hang_path[96], below_path[112];
static unsigned failures;
static const char *now_testing = "";

static void fail(const char *what, const char *text)
{
	printf("FAILED %s: %s %s\n", now_testing, what, text ? text : "");
	fflush(stdout);
	failures++;
}

/* --- the file system that never answers ---------------------------------------------------- */

struct silent {
	pid_t server;
	int asked_fd; /* a byte when somebody waits for an answer */
};

static _Noreturn void serve(int fuse_fd, int asked_fd)
{
	static char request[FUSE_MIN_READ_BUFFER + 65536];
	for (;;) {
		ssize_t length = read(fuse_fd, request, sizeof(request));
		if (length < (ssize_t)sizeof(struct fuse_in_header)) {
			if (length < 0 && (errno == EINTR || errno == ENOENT))
				continue;
			_exit(0);
		}
		const struct fuse_in_header *header = (const void *)request;
		if (header->opcode != FUSE_INIT) {
			if (header->opcode != FUSE_INTERRUPT)
				(void)!write(asked_fd, "?", 1);
			continue;
		}
		struct {
			struct fuse_out_header header;
			struct fuse_init_out init;
		} answer = {.header = {.len = sizeof(answer), .unique = header->unique},
			    .init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096}};
		if (write(fuse_fd, &answer, sizeof(answer)) < 0)
			_exit(1);
	}
}

static bool silent_begin(struct silent *silent)
{
	char options[128];
	int asked[2], fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse_fd < 0 || pipe2(asked, O_CLOEXEC) < 0)
		return false;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse_fd);
	if (mount("torture-hang", hang_path, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		return false;
	silent->server = fork();
	if (silent->server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fuse_fd, asked[1]);
	}
	close(fuse_fd);
	close(asked[1]);
	silent->asked_fd = asked[0];
	return silent->server > 0;
}

/* Whoever waits gets an error: the connection is gone with its server. */
static void silent_release(struct silent *silent)
{
	kill(silent->server, SIGKILL);
	waitpid(silent->server, NULL, 0);
	silent->server = 0;
}

static void silent_end(struct silent *silent)
{
	if (silent->server)
		silent_release(silent);
	close(silent->asked_fd);
}

/* --- the host ------------------------------------------------------------------------------- */

struct told {
	int count;
	uint32_t verdict;
	char text[1024];
	bool hangs; /* a survivor in uninterruptible sleep */
};

static void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	struct told *told = userdata;
	(void)scope;
	told->count++;
	told->verdict = orch_death_verdict(death);
	snprintf(told->text, sizeof(told->text), "%s", orch_death_text(death));
	for (uint32_t i = 0; i < orch_death_survivor_count(death); i++) {
		const char *state = "";
		orch_death_survivor(death, i, NULL, NULL, &state, NULL);
		told->hangs |= state[0] == 'D';
	}
}

/* Runs the loop until `fd` can be read or `count` is there. */
static bool turn_until(orch_ctx *ctx, int fd, const int *count, int least)
{
	struct pollfd polls[2] = {{.fd = orch_ctx_fd(ctx), .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	for (int i = 0; i < PATIENCE_MS / 50; i++) {
		orch_ctx_process(ctx, NULL);
		if (count && *count >= least)
			return true;
		poll(polls, fd < 0 ? 1 : 2, 50);
		if (fd >= 0 && polls[1].revents & POLLIN)
			return true;
	}
	return false;
}

static orch_scope *scope_of(orch_ctx *ctx, uint32_t rung)
{
	struct orch_scope_opts opts;
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = opts.best_rung = rung;
	if (orch_scope_new(ctx, &opts, &scope, &error) < 0 || orch_scope_start_wait(scope, PATIENCE_MS, &error) < 0) {
		fail("no scope:", orch_error_message(error));
		orch_error_free(error);
		return orch_scope_unref(scope);
	}
	return scope;
}

static void begin_stop(orch_scope *scope, uint32_t deadline_ms, struct told *told)
{
	struct orch_stop_opts opts;
	orch_error *error = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = deadline_ms;
	if (orch_scope_stop(scope, &opts, on_death, told, NULL, &error) < 0)
		fail("no stop:", orch_error_message(error));
	orch_error_free(error);
}

/* Made, used, stopped, with a certificate of what its rung can have. */
static void live_and_die(orch_ctx *ctx, uint32_t rung)
{
	struct told told = {0};
	int32_t status = -1;
	orch_error *error = NULL;
	orch_proc *proc = NULL;
	struct orch_proc_opts opts;
	orch_scope *scope = scope_of(ctx, rung);
	if (!scope)
		return;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = (const char *const[]){"/bin/true", NULL};
	if (orch_scope_spawn(scope, &opts, &proc, &error) < 0 || orch_proc_wait(proc, PATIENCE_MS, &status, &error) < 0 ||
	    status != 0)
		fail("a program of another scope:", orch_error_message(error));
	orch_error_free(error);
	orch_proc_unref(proc);
	opts.argv = (const char *const[]){"/bin/sleep", "100", NULL};
	orch_scope_spawn(scope, &opts, NULL, NULL);
	begin_stop(scope, LONG_MS, &told);
	if (!turn_until(ctx, -1, &told.count, 1))
		fail("no certificate of another scope", NULL);
	else if (told.verdict != (rung == ORCH_RUNG_SUBREAPER ? ORCH_DEATH_UNVERIFIABLE : ORCH_DEATH_DEAD))
		fail("another scope's certificate:", told.text);
	orch_scope_unref(scope);
}

/* --- what hangs ------------------------------------------------------------------------------ */

enum what { CWD, PROGRAM, SANDBOX_PATH };

struct hung {
	orch_scope *scope;
	orch_sandbox *sandbox;
};

static void on_start(void *userdata, orch_sandbox *sandbox, const orch_error *error)
{
	(void)userdata, (void)sandbox, (void)error;
}

static bool hang_sandbox(orch_ctx *ctx, struct hung *hung)
{
	struct orch_sandbox_opts opts;
	orch_error *error = NULL;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.setup_timeout_ms = LONG_MS;
	if (orch_sandbox_new(ctx, &opts, &hung->sandbox, &error) < 0 ||
	    orch_sandbox_add_path(hung->sandbox, below_path, "/hung", ORCH_PATH_READ, &error) < 0 ||
	    orch_sandbox_start(hung->sandbox, on_start, NULL, NULL, &error) < 0) {
		fail("no sandbox:", orch_error_message(error));
		orch_error_free(error);
		return false;
	}
	hung->scope = orch_scope_ref(orch_sandbox_scope(hung->sandbox));
	return hung->scope;
}

static bool hang_program(orch_ctx *ctx, uint32_t rung, enum what what, struct hung *hung)
{
	struct orch_proc_opts opts;
	orch_error *error = NULL;
	hung->scope = scope_of(ctx, rung);
	if (!hung->scope)
		return false;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = (const char *const[]){what == PROGRAM ? below_path : "/bin/true", NULL};
	opts.cwd = what == CWD ? below_path : NULL;
	if (orch_scope_spawn(hung->scope, &opts, NULL, &error) < 0) {
		fail("no program:", orch_error_message(error));
		orch_error_free(error);
		return false;
	}
	return true;
}

static uint32_t wanted(uint32_t rung)
{
	return rung == ORCH_RUNG_SUBREAPER ? ORCH_DEATH_UNVERIFIABLE : ORCH_DEATH_DEAD;
}

static void run_case(enum what what, uint32_t rung, bool user, uint32_t deadline_ms, const struct silent *silent,
		     void (*release)(void))
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	struct hung hung = {0};
	struct told told = {0};
	static const char *const names[] = {"working directory", "program", "path of a sandbox"};
	char title[128];
	snprintf(title, sizeof(title), "%s, rung %u, %s, deadline %u ms", names[what], rung, user ? "user" : "root",
		 deadline_ms);
	now_testing = title;
	unsigned before = failures;
	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = helper.path;
	if (orch_ctx_new(&opts, &ctx, NULL) < 0)
		exit(99);
	/* The control: the same before anything hangs. */
	live_and_die(ctx, rung);
	bool begun = what == SANDBOX_PATH ? hang_sandbox(ctx, &hung) : hang_program(ctx, rung, what, &hung);
	if (!begun || !turn_until(ctx, silent->asked_fd, NULL, 0)) {
		fail("nothing hangs", NULL);
		release();
		goto out;
	}
	begin_stop(hung.scope, deadline_ms, &told);
	for (int i = 0; i < OTHERS; i++)
		live_and_die(ctx, rung);
	if (deadline_ms == LONG_MS && told.count)
		fail("control: the hung scope's certificate came before the file system answered:", told.text);
	if (deadline_ms != LONG_MS) {
		if (!turn_until(ctx, -1, &told.count, 1))
			fail("no certificate at the deadline", NULL);
		/* Without a cgroup an ordinary user can not tell what an undumpable process is a member of, and before its
		   exec a program is one: init is named, which waits for it. */
		else if (told.verdict != ORCH_DEATH_SURVIVORS || (!told.hangs && !(user && rung == ORCH_RUNG_PIDNS)))
			fail("who hangs is not named:", told.text);
	}
	release();
	if (!turn_until(ctx, -1, &told.count, 1) || (deadline_ms == LONG_MS && told.verdict != wanted(rung)))
		fail("after the answer:", told.text);
	live_and_die(ctx, rung);
out:
	orch_scope_unref(hung.scope);
	orch_sandbox_unref(hung.sandbox);
	orch_ctx_unref(ctx);
	printf("%s: %s\n", title, failures == before ? "others lived and died meanwhile" : "FAILED");
	fflush(stdout);
}

/* --- the run --------------------------------------------------------------------------------- */

static int release_fd;

/* The server is root's: the host, which may be a user, asks for its end, and waits for it. */
static void ask_release(void)
{
	char byte;
	(void)!write(release_fd, "r", 1);
	(void)!read(release_fd, &byte, 1);
}

/* One case in a process of its own, in a mount namespace of its own. */
static void in_namespace(enum what what, uint32_t rung, bool user, uint32_t deadline_ms)
{
	int pair[2], status = -1;
	char byte;
	struct silent silent = {0};
	fflush(stdout);
	if (pipe2(pair, O_CLOEXEC) < 0)
		exit(99);
	pid_t pid = fork();
	if (pid == 0) {
		int release[2];
		close(pair[0]);
		if (!cage_enter(&cage, user ? "user" : "root") || unshare(CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || !silent_begin(&silent) ||
		    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, release) < 0)
			_exit(98);
		pid_t host = fork();
		if (host == 0) {
			close(release[0]);
			failures = 0;
			release_fd = release[1];
			if (user && (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 ||
				     setresuid(USER, USER, USER) < 0))
				_exit(97);
			run_case(what, rung, user, deadline_ms, &silent, ask_release);
			_exit(failures > 90 ? 90 : (int)failures);
		}
		close(release[1]);
		if (read(release[0], &byte, 1) == 1) {
			silent_release(&silent);
			(void)!write(release[0], "r", 1);
		}
		/* A host that died without asking: nothing may hang for ever. */
		(void)!read(release[0], &byte, 1);
		silent_end(&silent);
		waitpid(host, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
	}
	close(pair[1]);
	(void)!read(pair[0], &byte, 1);
	close(pair[0]);
	waitpid(pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) > 90) {
		printf("FAILED a case ended with status %d\n", status);
		failures++;
	} else {
		failures += (unsigned)WEXITSTATUS(status);
	}
	for (int i = 0; i < 1500 && judge_count(&helper, (struct namespace){0}); i++)
		poll(NULL, 0, 10);
	if (judge_count(&helper, (struct namespace){0})) {
		fail("helper, init or programs are left", NULL);
		judge_describe(&helper, (struct namespace){0});
		judge_sweep(&helper);
	}
}

static bool prepare(void)
{
	char path[600], name[16];
	uint32_t number = 0;
	const char *build = getenv("ORCH_BUILD_ROOT");
	if (!build || getrandom(&number, sizeof(number), 0) != sizeof(number))
		return false;
	snprintf(path, sizeof(path), "%s/lib/helper/orch-reaper", build);
	snprintf(name, sizeof(name), "hang%08x", number);
	snprintf(hang_path, sizeof(hang_path), "%s/hang", cage.folder);
	snprintf(below_path, sizeof(below_path), "%s/below", hang_path);
	return program_copy(&helper, path, cage.folder, name) && mkdir(hang_path, 0755) == 0 &&
	       cage_place(&cage, "root", 0) && cage_place(&cage, "user", USER);
}

int main(void)
{
	if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) < 0) {
		printf("only root can mount a file system that hangs, and only where /dev/fuse is\n");
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!cage_make(&cage))
		return 77;
	if (prepare()) {
		for (int user = 0; user < 2; user++) {
			for (uint32_t rung = ORCH_RUNG_SUBREAPER; rung <= ORCH_RUNG_CGROUP_PIDNS; rung++) {
				in_namespace(CWD, rung, user, LONG_MS);
				in_namespace(PROGRAM, rung, user, LONG_MS);
				in_namespace(CWD, rung, user, SHORT_MS);
			}
			in_namespace(SANDBOX_PATH, ORCH_RUNG_CGROUP_PIDNS, user, LONG_MS);
			in_namespace(SANDBOX_PATH, ORCH_RUNG_CGROUP_PIDNS, user, SHORT_MS);
		}
	} else {
		fail("the run could not be prepared:", strerror(errno));
	}
	now_testing = "end";
	if (cage_end(&cage))
		fail("the cage could not be removed", NULL);
	printf("%u failures\n", failures);
	return failures ? 1 : 0;
}
