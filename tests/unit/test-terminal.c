/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the kind ORCH_STREAM_PTY: programs believe in them, and they end like pipes. */
#include <sys/ioctl.h>

#include "stream-fixture.h"

static orch_stream *terminal_new(orch_ctx *ctx, struct seen *seen, uint32_t flags)
{
	struct orch_stream_opts opts;
	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_PTY;
	opts.flags = flags;
	opts.rows = 33;
	opts.columns = 101;
	return stream_make(ctx, &opts, seen);
}

static orch_proc *spawn_in(orch_scope *scope, struct seen *seen, orch_stream *terminal, const char *script)
{
	return spawn_seen(scope, seen, terminal, terminal, terminal, ARGV("sh", "-c", script));
}

static void until_text(orch_ctx *ctx, struct seen *seen, const char *text)
{
	while (!strstr(seen->text, text)) {
		ck_assert_msg(seen->ends == 0, "it ended with: %s", seen->text);
		turns(ctx, 1);
	}
}

static void type(orch_stream *terminal, const char *text)
{
	OK(orch_stream_write(terminal, text, strlen(text), NULL, e));
}

/* --- a terminal it is -------------------------------------------------------------------- */

START_TEST(program_believes_in_it)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	orch_stream *terminal = terminal_new(ctx, &seen, 0);
	orch_proc *proc = spawn_in(scope, &seen, terminal,
				   "test -t 0 && test -t 1 && test -t 2 && stty size && echo controls >/dev/tty; "
				   "test \"$(ps -o tty= -p $$)\" != '?' && echo listed");
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_str_eq(seen.text, "33 101\r\ncontrols\r\nlisted\r\n");
	ck_assert_uint_eq(seen.reason_at_exit, ORCH_STREAM_EOF);
	ck_assert_int_eq(seen.destroyed, 1);
	orch_stream_unref(terminal);
	/* Control: a pipe is none. */
	struct seen piped = {0};
	orch_stream *out = output_new(ctx, &piped, 0);
	proc = spawn_seen(scope, &piped, NULL, out, out,
			  ARGV("sh", "-c", "test -t 1 || echo pipe; (echo x >/dev/tty) 2>/dev/null || echo none"));
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_str_eq(piped.text, "pipe\nnone\n");
	orch_stream_unref(out);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* Only for output: it controls the session all the same. */
START_TEST(terminal_beside_a_pipe)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	orch_stream *terminal = terminal_new(ctx, &seen, 0), *in = input_new(ctx, NULL, 0);
	OK(orch_stream_write(in, "typed\n", 6, NULL, e));
	OK(orch_stream_close(in, e));
	orch_proc *proc = spawn_seen(scope, &seen, in, terminal, NULL,
				     ARGV("sh", "-c", "test ! -t 0 && test -t 1 && cat && echo controls >/dev/tty"));
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_str_eq(seen.text, "typed\r\ncontrols\r\n");
	orch_stream_unref(terminal);
	orch_stream_unref(in);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* In the leader of a session without a terminal, which would get one by opening it. 0, or the step that failed. */
static int make_one_as_leader(void)
{
	struct orch_stream_opts opts;
	orch_ctx *ctx = NULL;
	orch_stream *terminal = NULL;
	int unlocked = 0;
	if (setsid() < 0 || open("/dev/tty", O_RDWR | O_CLOEXEC) >= 0)
		return 1;
	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_PTY;
	if (orch_ctx_new(NULL, &ctx, NULL) < 0 || orch_stream_new(ctx, &opts, &terminal, NULL) < 0)
		return 2;
	if (open("/dev/tty", O_RDWR | O_CLOEXEC) >= 0 || errno != ENXIO)
		return 3;
	orch_stream_unref(terminal);
	orch_ctx_unref(ctx);
	/* Control: without O_NOCTTY it is his. */
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlocked) < 0 ||
	    ioctl(master, TIOCGPTPEER, O_RDWR | O_CLOEXEC) < 0)
		return 4;
	return open("/dev/tty", O_RDWR | O_CLOEXEC) < 0 ? 5 : 0;
}

/* What the host merely passes on does not become the session's, and nothing becomes the host's. */
START_TEST(nobody_gets_a_terminal_unasked)
{
	int status = -1, unlocked = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(make_one_as_leader());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);

	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert(master >= 0 && ioctl(master, TIOCSPTLCK, &unlocked) == 0);
	int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(slave, 0);
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdin_fd = slave;
	const char *const *argv = ARGV("sh", "-c", "test -t 0 && ! (: </dev/tty) 2>/dev/null");
	ck_assert_int_eq(wait_status(spawn_opts(scope, &opts, argv)), 0);
	close(slave);
	close(master);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- keys and sizes ----------------------------------------------------------------------- */

START_TEST(interrupt_and_end_of_file_are_typed)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0}, other = {0};
	orch_stream *terminal = terminal_new(ctx, &seen, 0);
	orch_proc *proc = spawn_in(scope, &seen, terminal, "trap 'echo caught; exit 5' INT; echo ready; "
							   "while :; do sleep 1; done");
	until_text(ctx, &seen, "ready");
	type(terminal, "\003");
	ck_assert_int_eq(wait_status(proc), 5);
	ck_assert(strstr(seen.text, "caught"));
	orch_stream_unref(terminal);

	terminal = terminal_new(ctx, &other, 0);
	proc = spawn_in(scope, &other, terminal, "stty -echo; echo ready; wc -c; echo end");
	until_text(ctx, &other, "ready");
	type(terminal, "hello\n");
	type(terminal, "\004");
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_str_eq(other.text, "ready\r\n6\r\nend\r\n");
	orch_stream_unref(terminal);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(new_size_is_seen)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	orch_stream *terminal = terminal_new(ctx, &seen, 0);
	orch_proc *proc = spawn_in(scope, &seen, terminal, "trap 'stty size; exit 6' WINCH; echo ready; "
							   "while :; do sleep 0.1; done");
	until_text(ctx, &seen, "ready");
	ck_assert_int_eq(orch_stream_resize(terminal, 0, 5, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_stream_resize(terminal, 5, 65536, NULL), ORCH_EINVAL);
	OK(orch_stream_resize(terminal, 44, 155, e));
	ck_assert_int_eq(wait_status(proc), 6);
	ck_assert(has_line(&seen, "44 155"));
	ck_assert_int_eq(orch_stream_resize(terminal, 5, 5, NULL), ORCH_ECLOSED);
	orch_stream_unref(terminal);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* A program that does not read: what is typed is refused before it fills the memory. */
START_TEST(typing_is_held)
{
	static char bytes[200000];
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	orch_stream *terminal = terminal_new(ctx, &seen, 0);
	orch_proc *proc = spawn_in(scope, &seen, terminal, "stty raw -echo; echo ready; exec sleep 1000");
	until_text(ctx, &seen, "ready");
	memset(bytes, 'x', sizeof(bytes));
	size_t taken = 0;
	ck_assert_int_eq(orch_stream_write(terminal, bytes, sizeof(bytes), &taken, NULL), ORCH_EBUSY);
	ck_assert_uint_ge(taken, 65536);
	ck_assert_uint_eq(orch_stream_queued(terminal), 65536);
	OK(orch_stream_close(terminal, e));
	uint32_t reason = 0;
	OK(orch_stream_end_wait(terminal, 20000, &reason, e));
	ck_assert_uint_eq(reason, ORCH_STREAM_CLOSED);
	/* Hung up. */
	ck_assert_int_eq(wait_status(proc), 256 + SIGHUP);
	orch_stream_unref(terminal);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- much, and the end --------------------------------------------------------------------- */

START_TEST(a_megabyte_comes_in_order)
{
	char script[256];
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {.check = true};
	orch_stream *terminal = terminal_new(ctx, &seen, 0);
	snprintf(script, sizeof(script), "stty raw -echo; exec %s --stream pattern 1048583", self_path);
	ck_assert_int_eq(wait_status(spawn_in(scope, &seen, terminal, script)), 0);
	assert_over(&seen, terminal, ORCH_STREAM_EOF, 1048583);
	ck_assert_uint_eq(seen.bytes_at_exit, 1048583);
	orch_stream_unref(terminal);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* _i 0: nobody reads before the exit. 1: paused, and the certificate is the end. */
START_TEST(what_is_pending_at_the_exit_is_delivered)
{
	char script[256];
	struct counter *counter = counter_new();
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 20000, e));
	struct seen seen = {.check = true};
	orch_stream *terminal = terminal_new(ctx, &seen, _i == 1 ? ORCH_STREAM_PAUSED : 0);
	snprintf(script, sizeof(script), "stty raw -echo; exec %s --stream pattern 6000 %s", self_path, counter->path);
	orch_proc *proc = spawn_in(scope, &seen, terminal, script);
	if (_i == 0)
		wait_without_turns(counter, 6000);
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_uint_eq(seen.bytes_at_exit, _i == 0 ? 6000 : 0);
	if (_i == 1) {
		orch_death *death = stop(scope, 0);
		assert_dead(death);
		orch_death_unref(death);
	}
	assert_over(&seen, terminal, ORCH_STREAM_EOF, 6000);
	orch_stream_unref(terminal);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	counter_free(counter);
}
END_TEST

START_TEST(grandchild_that_holds_the_terminal_delays_nothing)
{
	/* The hang-up at the session leader's exit reaches those who stay in its group. */
	static const char *const scripts[] = {"trap '' HUP; sleep 1000 & echo own; exit 3",
					      "trap '' HUP; yes & sleep 0.1; echo own; exit 3"};
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	for (size_t i = 0; i < 2; i++) {
		struct seen seen = {0};
		orch_stream *terminal = terminal_new(ctx, &seen, 0);
		ck_assert_int_eq(wait_status(spawn_in(scope, &seen, terminal, scripts[i])), 3);
		ck_assert_uint_eq(seen.reason_at_exit, ORCH_STREAM_CUT);
		if (i == 0)
			ck_assert_str_eq(seen.text, "own\r\n");
		ck_assert_int_eq(seen.destroyed, 1);
		orch_stream_unref(terminal);
	}
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(descriptors_come_back)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 20000, e));
	unsigned fds = open_fds();
	for (int i = 0; i < 20; i++) {
		struct seen seen = {0};
		orch_stream *terminal = terminal_new(ctx, &seen, 0);
		orch_proc *proc = spawn_in(scope, &seen, terminal, i % 2 ? "exit 0" : "echo x");
		if (i % 3 == 0)
			orch_stream_unref(terminal);
		ck_assert_int_eq(wait_status(proc), 0);
		ck_assert_int_eq(seen.destroyed, 1);
		if (i % 3)
			orch_stream_unref(terminal);
	}
	ck_assert_uint_eq(open_fds(), fds);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- running ----------------------------------------------------------------------------- */

int fake_helper(const char *name)
{
	(void)name;
	return 99;
}

Suite *suite(void)
{
	Suite *all = suite_create("terminal");
	TCase *cases = tcase_create("terminal");
	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, program_believes_in_it);
	tcase_add_test(cases, terminal_beside_a_pipe);
	tcase_add_test(cases, nobody_gets_a_terminal_unasked);
	tcase_add_test(cases, interrupt_and_end_of_file_are_typed);
	tcase_add_test(cases, new_size_is_seen);
	tcase_add_test(cases, typing_is_held);
	tcase_add_test(cases, a_megabyte_comes_in_order);
	tcase_add_loop_test(cases, what_is_pending_at_the_exit_is_delivered, 0, 2);
	tcase_add_test(cases, grandchild_that_holds_the_terminal_delays_nothing);
	tcase_add_test(cases, descriptors_come_back);
	suite_add_tcase(all, cases);
	return all;
}

int main(int argc, char **argv)
{
	return stream_main(argc, argv);
}
