/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: what programs write and read, how much of it, and when it ends. Terminals are in test-terminal.c. */
#include "stream-fixture.h"

#define MIB (1024 * 1024)
#define PIPE_BYTES 65536

/* --- output ---------------------------------------------------------------------------- */

START_TEST(everything_comes_in_order)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {.check = true};
	orch_stream *stream = output_new(ctx, &seen, 0);
	orch_proc *proc = spawn_seen(scope, &seen, NULL, stream, NULL, STREAM_LOAD("pattern", "104857600"));
	ck_assert_int_eq(wait_status(proc), 0);
	assert_over(&seen, stream, ORCH_STREAM_EOF, 104857600);
	ck_assert_uint_eq(orch_stream_dropped(stream), 104857600);
	/* Also for those who look from the exit event. */
	ck_assert_uint_eq(seen.bytes_at_exit, 104857600);
	ck_assert_uint_eq(seen.reason_at_exit, ORCH_STREAM_EOF);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* After each MiB the host stops reading for some turns. What the program has written is never more than a pipe ahead. */
START_TEST(slow_reader_holds_the_program)
{
	struct counter *counter = counter_new();
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {.check = true, .counter = counter, .pause_every = MIB, .ahead = PIPE_BYTES};
	orch_stream *stream = output_new(ctx, &seen, 0);
	orch_proc *proc = spawn_seen(scope, &seen, NULL, stream, NULL,
				     STREAM_LOAD("pattern", "104857600", counter->path));
	uint64_t memory = memory_peak_kib();
	unsigned pauses = 0;
	while (seen.exits == 0) {
		turns(ctx, 1);
		if (seen.paused) {
			uint64_t had = seen.bytes;
			turns(ctx, 3);
			ck_assert_uint_eq(seen.bytes, had);
			ck_assert_uint_le(counter->written, had + PIPE_BYTES);
			seen.paused = false;
			pauses++;
			/* It may have ended in between: then nothing is left to be resumed. */
			int32_t code = orch_stream_resume(stream, NULL);
			ck_assert(code == 0 || code == ORCH_ECLOSED);
		}
	}
	ck_assert_uint_ge(pauses, 90);
	uint32_t reason = 0;
	OK(orch_stream_end_wait(stream, 20000, &reason, e));
	assert_over(&seen, stream, ORCH_STREAM_EOF, 104857600);
	ck_assert_msg(memory_peak_kib() - memory < 4096, "%llu KiB more", (unsigned long long)(memory_peak_kib() - memory));
	orch_proc_unref(proc);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	counter_free(counter);
}
END_TEST

/* _i 1: never paused, the control: the same program ends. */
START_TEST(paused_from_the_beginning_it_stands_still)
{
	struct counter *counter = counter_new();
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {.check = true};
	orch_stream *stream = output_new(ctx, &seen, _i == 0 ? ORCH_STREAM_PAUSED : 0);
	orch_proc *proc = spawn_seen(scope, &seen, NULL, stream, NULL,
				     STREAM_LOAD("pattern", "1048576", counter->path));
	while (counter->written == 0)
		turns(ctx, 1);
	for (int i = 0; i < 30 && !seen.exits; i++)
		turns(ctx, 1);
	if (_i == 0) {
		ck_assert_uint_eq(seen.bytes, 0);
		ck_assert_int_eq(seen.exits, 0);
		ck_assert_uint_le(counter->written, PIPE_BYTES);
		OK(orch_stream_resume(stream, e));
	}
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_uint_eq(counter->written, MIB);
	assert_over(&seen, stream, ORCH_STREAM_EOF, MIB);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	counter_free(counter);
}
END_TEST

static void assert_captured(orch_stream *stream, const char *expected, uint64_t dropped)
{
	size_t length = 0;
	const char *bytes = orch_stream_captured(stream, &length);
	ck_assert_uint_eq(length, strlen(expected));
	ck_assert(memcmp(bytes, expected, length) == 0);
	ck_assert_uint_eq(orch_stream_dropped(stream), dropped);
}

START_TEST(capture_is_limited)
{
	static const struct {
		uint64_t first, last;
		const char *text, *kept;
		uint64_t dropped;
	} cases[] = {
		{0, 0, "0123456789", "", 10},	       {9, 0, "0123456789", "012345678", 1},
		{10, 0, "0123456789", "0123456789", 0}, {11, 0, "0123456789", "0123456789", 0},
		{0, 9, "0123456789", "123456789", 1},   {0, 10, "0123456789", "0123456789", 0},
		{0, 11, "0123456789", "0123456789", 0}, {3, 2, "0123456789", "01289", 5},
		{5, 5, "0123456789", "0123456789", 0},	{5, 4, "0123456789", "012346789", 1},
		{5, 6, "0123456789", "0123456789", 0},	{5, 5, "", "", 0},
		{5, 5, "0", "0", 0},
	};
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int apart = 0; apart < 2; apart++) {
			struct orch_stream_opts opts;
			orch_stream *stream = NULL;
			orch_stream_opts_init(&opts, sizeof(opts));
			opts.kind = ORCH_STREAM_OUTPUT;
			opts.capture_first_bytes = cases[i].first;
			opts.capture_last_bytes = cases[i].last;
			OK(orch_stream_new(ctx, &opts, &stream, e));
			/* In one piece, and byte by byte. */
			orch_proc *proc = spawn_seen(scope, NULL, NULL, stream, NULL,
						     STREAM_LOAD(apart ? "letters" : "text", cases[i].text));
			ck_assert_int_eq(wait_status(proc), 0);
			ck_assert_uint_eq(orch_stream_bytes(stream), strlen(cases[i].text));
			assert_captured(stream, cases[i].kept, cases[i].dropped);
			orch_stream_unref(stream);
		}
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(much_is_captured_from_both_ends)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct orch_stream_opts opts;
	orch_stream *stream = NULL;
	const uint64_t total = 20 * MIB + 77, first = 100001, last = 200003;
	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_OUTPUT;
	opts.capture_first_bytes = first;
	opts.capture_last_bytes = last;
	OK(orch_stream_new(ctx, &opts, &stream, e));
	uint64_t memory = memory_peak_kib();
	ck_assert_int_eq(wait_status(spawn_seen(scope, NULL, NULL, stream, NULL, STREAM_LOAD("pattern", "20971597"))), 0);
	size_t length = 0;
	const uint8_t *bytes = orch_stream_captured(stream, &length);
	ck_assert_uint_eq(length, first + last);
	for (uint64_t i = 0; i < length; i++)
		HOLDS(bytes[i] == pattern(i < first ? i : total - length + i));
	ck_assert_uint_eq(orch_stream_dropped(stream), total - length);
	ck_assert_uint_lt(memory_peak_kib() - memory, 4096);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* The host does nothing until the program is over and has left its pipe full. */
START_TEST(full_pipe_at_the_exit_is_delivered_first)
{
	struct counter *counter = counter_new();
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 20000, e));
	struct seen seen = {.check = true};
	orch_stream *stream = output_new(ctx, &seen, 0);
	orch_proc *proc = spawn_seen(scope, &seen, NULL, stream, NULL,
				     STREAM_LOAD("pattern", "65536", counter->path));
	wait_without_turns(counter, PIPE_BYTES);
	ck_assert_uint_eq(seen.bytes, 0);
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_uint_eq(seen.bytes_at_exit, PIPE_BYTES);
	ck_assert_uint_eq(seen.reason_at_exit, ORCH_STREAM_EOF);
	assert_over(&seen, stream, ORCH_STREAM_EOF, PIPE_BYTES);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	counter_free(counter);
}
END_TEST

/*
 * Paused at the exit: the exit is told, the bytes wait; for the resume, or (odd _i) for the certificate. From 2: a
 * descendant holds the pipe.
 */
START_TEST(paused_over_the_exit_nothing_is_lost)
{
	char script[256];
	bool held = _i >= 2, certified = _i % 2;
	uint32_t reason = held && !certified ? ORCH_STREAM_CUT : ORCH_STREAM_EOF;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {.check = true};
	orch_stream *stream = output_new(ctx, &seen, ORCH_STREAM_PAUSED);
	snprintf(script, sizeof(script), "%s exec %s --stream pattern 4096", held ? "sleep 1000 &" : "", self_path);
	ck_assert_int_eq(wait_status(spawn_seen(scope, &seen, NULL, stream, NULL, ARGV("sh", "-c", script))), 0);
	ck_assert_uint_eq(seen.bytes_at_exit, 0);
	ck_assert_uint_eq(seen.reason_at_exit, 0);
	turns(ctx, 3);
	ck_assert_uint_eq(seen.bytes, 0);
	if (certified) {
		orch_death *death = stop(scope, 0);
		assert_dead(death);
		orch_death_unref(death);
	} else {
		OK(orch_stream_resume(stream, e));
		OK(orch_stream_end_wait(stream, 20000, NULL, e));
	}
	assert_over(&seen, stream, reason, 4096);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- others who hold the end ------------------------------------------------------------ */

START_TEST(grandchild_that_holds_the_pipe_delays_nothing)
{
	static const char *const scripts[] = {"sleep 1000 & echo own; exit 3", "yes & echo own; exit 3",
					      "setsid sh -c 'sleep 1000; echo late' & echo own; exit 3"};
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 20000, e));
	struct watched watched = watch(scope);
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
		struct seen seen = {0};
		orch_stream *stream = output_new(ctx, &seen, 0);
		orch_proc *proc = spawn_seen(scope, &seen, NULL, stream, stream, ARGV("sh", "-c", scripts[i]));
		ck_assert_int_eq(wait_status(proc), 3);
		ck_assert_uint_eq(seen.reason_at_exit, ORCH_STREAM_CUT);
		ck_assert(has_line(&seen, "own"));
		ck_assert_int_eq(seen.ends, 1);
		ck_assert_int_eq(seen.destroyed, 1);
		orch_stream_unref(stream);
	}
	orch_death *death = stop(scope, 0);
	assert_dead(death);
	assert_nothing_left(&watched);
	orch_death_unref(death);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

struct order {
	struct seen seen;
	bool ended_before_certificate;
};

static void on_any_certificate(void *userdata, orch_scope *scope, orch_death *death)
{
	struct order *order = userdata;
	(void)scope, (void)death;
	order->ended_before_certificate = order->seen.ends == 1;
	order->seen.certificates++;
}

static void on_certificate(void *userdata, orch_scope *scope, orch_death *death)
{
	ck_assert_uint_eq(orch_death_verdict(death), ORCH_DEATH_DEAD);
	on_any_certificate(userdata, scope, death);
}

/* _i 1: the host closes what it was to hold. */
START_TEST(held_it_goes_on_until_the_certificate)
{
	struct order order = {0};
	struct seen *seen = &order.seen;
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	orch_stream *stream = output_new(ctx, seen, ORCH_STREAM_HOLD);
	orch_proc *proc = spawn_seen(scope, seen, NULL, stream, NULL,
				     ARGV("sh", "-c", "sh -c 'while :; do echo late; sleep 0.01; done' & echo own; exit 3"));
	ck_assert_int_eq(wait_status(proc), 3);
	ck_assert_uint_eq(seen->reason_at_exit, 0);
	ck_assert(has_line(seen, "own"));
	uint64_t had = seen->bytes;
	while (seen->bytes < had + 50)
		turns(ctx, 1);
	ck_assert_uint_eq(orch_stream_reason(stream), 0);
	if (_i == 1) {
		uint32_t reason = 0;
		OK(orch_stream_close(stream, e));
		ck_assert_int_eq(seen->ends, 0);
		OK(orch_stream_end_wait(stream, 20000, &reason, e));
		ck_assert_uint_eq(reason, ORCH_STREAM_CLOSED);
		had = seen->bytes;
		turns(ctx, 3);
		ck_assert_uint_eq(seen->bytes, had);
	}
	OK(orch_scope_stop(scope, NULL, on_certificate, &order, NULL, e));
	loop_until(ctx, &seen->certificates);
	ck_assert(order.ended_before_certificate);
	ck_assert_uint_eq(orch_stream_reason(stream), _i == 1 ? ORCH_STREAM_CLOSED : ORCH_STREAM_EOF);
	ck_assert_int_eq(seen->destroyed, 1);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* Who starts the programs differs from rung to rung. */
START_TEST(every_rung)
{
	struct orch_scope_opts opts;
	struct orch_stream_opts terminal_opts;
	struct seen seen = {0}, terminal_seen = {0};
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = NULL;
	if ((_i == ORCH_RUNG_CGROUP || _i == ORCH_RUNG_CGROUP_PIDNS) && !is_root())
		return;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = opts.best_rung = (uint32_t)_i;
	OK(orch_scope_new(ctx, &opts, &scope, e));
	OK(orch_scope_start_wait(scope, 20000, e));
	ck_assert_uint_eq(orch_scope_rung(scope), _i);

	orch_stream *in = input_new(ctx, NULL, 0), *out = output_new(ctx, &seen, 0);
	OK(orch_stream_write(in, "line\n", 5, NULL, e));
	OK(orch_stream_close(in, e));
	ck_assert_int_eq(wait_status(spawn_seen(scope, &seen, in, out, out, ARGV("sh", "-c", "cat; sleep 1000 & exit 3"))), 3);
	ck_assert_uint_eq(seen.reason_at_exit, ORCH_STREAM_CUT);
	ck_assert_str_eq(seen.text, "line\n");
	ck_assert_uint_eq(orch_stream_reason(in), ORCH_STREAM_EOF);

	orch_stream_opts_init(&terminal_opts, sizeof(terminal_opts));
	terminal_opts.kind = ORCH_STREAM_PTY;
	orch_stream *terminal = stream_make(ctx, &terminal_opts, &terminal_seen);
	orch_proc *proc = spawn_seen(scope, &terminal_seen, terminal, terminal, terminal,
				     ARGV("sh", "-c", "trap 'exit 5' INT; echo ready >/dev/tty; while :; do sleep 1; done"));
	while (!has_line(&terminal_seen, "ready"))
		turns(ctx, 1);
	OK(orch_stream_write(terminal, "\003", 1, NULL, e));
	ck_assert_int_eq(wait_status(proc), 5);
	ck_assert_uint_eq(terminal_seen.reason_at_exit, ORCH_STREAM_EOF);

	struct seen held = {0};
	orch_stream *holding = output_new(ctx, &held, ORCH_STREAM_HOLD);
	ck_assert_int_eq(wait_status(spawn_seen(scope, &held, NULL, holding, NULL, ARGV("sh", "-c", "sleep 1000 &"))), 0);
	orch_death *death = stop(scope, 0);
	ck_assert_int_eq(held.ends, 1);
	orch_death_unref(death);
	orch_stream_unref(holding);
	orch_stream_unref(terminal);
	orch_stream_unref(in);
	orch_stream_unref(out);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* Another program, its init and the helper hold no copies: the end of file comes as soon as the host closes. */
START_TEST(nobody_else_holds_the_ends)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx), *other = scope_new(ctx);
	struct seen seen = {0};
	orch_stream *in = input_new(ctx, NULL, 0), *out = output_new(ctx, &seen, 0);
	orch_proc *proc = spawn_seen(scope, &seen, in, out, NULL, ARGV("cat"));
	orch_proc *sleepers[4];
	for (int i = 0; i < 4; i++)
		sleepers[i] = spawn(i % 2 ? scope : other, ARGV("sleep", "1000"));
	OK(orch_stream_write(in, "x", 1, NULL, e));
	while (seen.bytes == 0)
		turns(ctx, 1);
	ck_assert_int_eq(seen.exits, 0);
	OK(orch_stream_close(in, e));
	ck_assert_int_eq(wait_status(proc), 0);
	ck_assert_uint_eq(orch_stream_reason(in), ORCH_STREAM_EOF);
	ck_assert_uint_eq(orch_stream_reason(out), ORCH_STREAM_EOF);
	for (int i = 0; i < 4; i++)
		orch_proc_unref(sleepers[i]);
	orch_stream_unref(in);
	orch_stream_unref(out);
	orch_scope_unref(scope);
	orch_scope_unref(other);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- input ------------------------------------------------------------------------------ */

struct feed {
	struct seen seen;
	orch_stream *in;
	uint64_t given, total;
	unsigned refused;
};

static void feed(struct feed *feed)
{
	static uint8_t bytes[100000];
	while (feed->given < feed->total) {
		size_t length = sizeof(bytes), taken = 0;
		if (length > feed->total - feed->given)
			length = (size_t)(feed->total - feed->given);
		for (size_t i = 0; i < length; i++)
			bytes[i] = pattern(feed->given + i);
		int32_t code = orch_stream_write(feed->in, bytes, length, &taken, NULL);
		ck_assert_uint_le(orch_stream_queued(feed->in), 65536);
		feed->given += taken;
		if (code == ORCH_EBUSY) {
			ck_assert_uint_lt(taken, length);
			feed->refused++;
			return;
		}
		ck_assert_int_eq(code, 0);
		ck_assert_uint_eq(taken, length);
	}
	OK(orch_stream_close(feed->in, e));
}

static void on_room(void *userdata, orch_stream *stream)
{
	struct feed *one = userdata;
	ck_assert(stream == one->in);
	feed(one);
}

START_TEST(ten_megabytes_there_and_back)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct feed one = {.seen = {.check = true}, .total = 10 * MIB + 5};
	struct orch_stream_opts opts;
	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_INPUT;
	opts.writable = on_room;
	opts.userdata = &one;
	OK(orch_stream_new(ctx, &opts, &one.in, e));
	orch_stream *out = output_new(ctx, &one.seen, 0);
	uint64_t memory = memory_peak_kib();
	feed(&one);
	orch_proc *proc = spawn_seen(scope, &one.seen, one.in, out, NULL, ARGV("cat"));
	ck_assert_int_eq(wait_status(proc), 0);
	assert_over(&one.seen, out, ORCH_STREAM_EOF, one.total);
	ck_assert_uint_gt(one.refused, 10);
	ck_assert_uint_eq(orch_stream_bytes(one.in), one.total);
	ck_assert_uint_eq(orch_stream_reason(one.in), ORCH_STREAM_EOF);
	ck_assert_uint_lt(memory_peak_kib() - memory, 4096);
	orch_stream_unref(one.in);
	orch_stream_unref(out);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(program_that_does_not_read_is_refused_to)
{
	static char bytes[1000000];
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	size_t taken = 0, more = 99;
	orch_stream *in = input_new(ctx, &seen, 1000);
	orch_proc *proc = spawn_seen(scope, NULL, in, NULL, NULL, ARGV("sleep", "1000"));
	ck_assert_int_eq(orch_stream_write(in, bytes, sizeof(bytes), &taken, NULL), ORCH_EBUSY);
	/* A pipe, which may be smaller for a user with many of them, and the queue. */
	ck_assert(taken > 1000 && taken <= PIPE_BYTES + 1000);
	ck_assert_uint_eq(orch_stream_queued(in), 1000);
	turns(ctx, 5);
	ck_assert_int_eq(orch_stream_write(in, bytes, 1, &more, NULL), ORCH_EBUSY);
	ck_assert_uint_eq(more, 0);
	ck_assert_int_eq(seen.rooms, 0);
	OK(orch_proc_signal(proc, SIGTERM, e));
	ck_assert_int_eq(wait_status(proc), 256 + SIGTERM);
	ck_assert_uint_eq(orch_stream_reason(in), ORCH_STREAM_CUT);
	ck_assert_uint_eq(orch_stream_queued(in), 1000);
	ck_assert_uint_eq(orch_stream_bytes(in) + 1000, taken);
	ck_assert_int_eq(orch_stream_write(in, "x", 1, NULL, NULL), ORCH_ECLOSED);
	ck_assert_int_eq(seen.ends, 1);
	ck_assert_int_eq(seen.destroyed, 1);
	orch_stream_unref(in);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static bool dies_of_sigpipe(void)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		int ends[2];
		if (pipe(ends) < 0)
			_exit(1);
		close(ends[0]);
		_exit(write(ends[1], "x", 1) < 0 ? 2 : 3);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;
}

/* _i 1: the host has blocked SIGPIPE and one is pending, which is its own business. */
START_TEST(broken_input_raises_no_signal)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0}, in_seen = {0};
	sigset_t set, pending;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	signal(SIGPIPE, SIG_DFL);
	ck_assert(dies_of_sigpipe());
	if (_i == 1) {
		sigprocmask(SIG_BLOCK, &set, NULL);
		raise(SIGPIPE);
	}
	orch_stream *in = input_new(ctx, &in_seen, 0), *out = output_new(ctx, &seen, 0);
	orch_proc *proc = spawn_seen(scope, &seen, in, out, NULL,
				     ARGV("sh", "-c", "exec </dev/null; echo closed; sleep 1000"));
	while (seen.bytes < 7)
		turns(ctx, 1);
	/* The scope's init closes its copy a little after the program began: until then the pipe takes it. */
	while (!orch_stream_reason(in)) {
		orch_stream_write(in, "x", 1, NULL, NULL);
		turns(ctx, 1);
	}
	ck_assert_uint_eq(orch_stream_reason(in), ORCH_STREAM_CUT);
	ck_assert_uint_ge(orch_stream_queued(in), 1);
	ck_assert_int_eq(in_seen.ends, 1);
	ck_assert_int_eq(seen.exits, 0);
	sigpending(&pending);
	ck_assert_int_eq(sigismember(&pending, SIGPIPE), _i);
	sigset_t now;
	sigprocmask(SIG_SETMASK, NULL, &now);
	ck_assert_int_eq(sigismember(&now, SIGPIPE), _i);
	orch_proc_unref(proc);
	orch_stream_unref(in);
	orch_stream_unref(out);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* Written and closed before the program is there. */
START_TEST(input_may_come_first)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	for (int empty = 0; empty < 2; empty++) {
		struct seen seen = {0}, in_seen = {0};
		orch_stream *in = input_new(ctx, &in_seen, 0), *out = output_new(ctx, &seen, 0);
		if (!empty)
			OK(orch_stream_write(in, "hello", 5, NULL, e));
		OK(orch_stream_close(in, e));
		OK(orch_stream_close(in, e));
		turns(ctx, 2);
		ck_assert_int_eq(in_seen.ends, 0);
		ck_assert_int_eq(orch_stream_write(in, "x", 1, NULL, NULL), ORCH_ECLOSED);
		ck_assert_int_eq(wait_status(spawn_seen(scope, &seen, in, out, NULL, ARGV("cat"))), 0);
		ck_assert_str_eq(seen.text, empty ? "" : "hello");
		ck_assert_uint_eq(orch_stream_reason(in), ORCH_STREAM_EOF);
		ck_assert_int_eq(in_seen.ends, 1);
		orch_stream_unref(in);
		orch_stream_unref(out);
	}
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- many, few, and wrong --------------------------------------------------------------- */

START_TEST(two_hundred_streams)
{
	enum { PROGRAMS = 100 };
	static struct seen seen[PROGRAMS];
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	orch_stream *in[PROGRAMS], *out[PROGRAMS];
	orch_proc *procs[PROGRAMS];
	OK(orch_scope_start_wait(scope, 20000, e));
	unsigned fds = open_fds();
	memset(seen, 0, sizeof(seen));
	for (int i = 0; i < PROGRAMS; i++) {
		in[i] = input_new(ctx, NULL, 0);
		out[i] = output_new(ctx, &seen[i], 0);
		procs[i] = spawn_seen(scope, &seen[i], in[i], out[i], NULL, ARGV("cat"));
	}
	for (int i = PROGRAMS; i-- > 0;) {
		char text[16];
		snprintf(text, sizeof(text), "number %d", i);
		OK(orch_stream_write(in[i], text, strlen(text), NULL, e));
		OK(orch_stream_close(in[i], e));
	}
	for (int i = 0; i < PROGRAMS; i++) {
		char text[16];
		snprintf(text, sizeof(text), "number %d", i);
		ck_assert_int_eq(wait_status(procs[i]), 0);
		ck_assert_str_eq(seen[i].text, text);
		ck_assert_uint_eq(orch_stream_reason(out[i]), ORCH_STREAM_EOF);
		orch_stream_unref(in[i]);
		orch_stream_unref(out[i]);
	}
	ck_assert_uint_eq(open_fds(), fds);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(without_descriptors_it_says_so)
{
	static const uint32_t kinds[] = {ORCH_STREAM_OUTPUT, ORCH_STREAM_INPUT, ORCH_STREAM_PTY};
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 20000, e));
	for (size_t i = 0; i < 3; i++)
		for (unsigned left = 0; left < 2; left++) {
			struct rlimit before, limit;
			struct seen seen = {0};
			struct orch_stream_opts opts;
			orch_stream *stream = NULL;
			orch_error *error = NULL;
			unsigned fds = open_fds();
			orch_stream_opts_init(&opts, sizeof(opts));
			opts.kind = kinds[i];
			opts.userdata = &seen;
			opts.destroy = on_stream_destroyed;
			getrlimit(RLIMIT_NOFILE, &before);
			limit = before;
			limit.rlim_cur = free_fd(left);
			setrlimit(RLIMIT_NOFILE, &limit);
			ck_assert_int_eq(orch_stream_new(ctx, &opts, &stream, &error), ORCH_ESYS);
			setrlimit(RLIMIT_NOFILE, &before);
			ck_assert_int_eq(orch_error_errno(error), EMFILE);
			ck_assert_str_eq(orch_error_step(error), kinds[i] == ORCH_STREAM_PTY ? "pty" : "pipe");
			orch_error_free(error);
			ck_assert_ptr_null(stream);
			ck_assert_int_eq(seen.destroyed, 1);
			ck_assert_uint_eq(open_fds(), fds);
			OK(orch_stream_new(ctx, &opts, &stream, e));
			orch_stream_unref(stream);
			ck_assert_int_eq(seen.destroyed, 2);
			ck_assert_uint_eq(open_fds(), fds);
		}
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

static void assert_bad_opts(orch_ctx *ctx, struct orch_stream_opts opts, const char *field)
{
	struct seen seen = {0};
	orch_stream *stream = NULL;
	orch_error *error = NULL;
	opts.userdata = &seen;
	opts.destroy = on_stream_destroyed;
	ck_assert_int_eq(orch_stream_new(ctx, &opts, &stream, &error), ORCH_EINVAL);
	ck_assert_msg(strstr(orch_error_message(error), field) != NULL, "%s", orch_error_message(error));
	ck_assert_int_eq(seen.destroyed, 1);
	orch_error_free(error);
}

START_TEST(bad_options)
{
	orch_ctx *ctx = ctx_new();
	struct orch_stream_opts good, opts;
	orch_stream_opts_init(&good, sizeof(good));
	assert_bad_opts(ctx, good, "orch_stream_opts.kind");
	good.kind = ORCH_STREAM_PTY;
	opts = good, opts.kind = 4;
	assert_bad_opts(ctx, opts, "orch_stream_opts.kind");
	opts = good, opts.flags = 0x80;
	assert_bad_opts(ctx, opts, "orch_stream_opts.flags");
	opts = good, opts.rows = 65536;
	assert_bad_opts(ctx, opts, "orch_stream_opts.rows");
	opts = good, opts.columns = 65536;
	assert_bad_opts(ctx, opts, ".columns");
	opts = good, opts.capture_first_bytes = UINT64_MAX;
	assert_bad_opts(ctx, opts, "capture_first_bytes");
	opts = good, opts.capture_first_bytes = UINT64_C(1) << 32, opts.capture_last_bytes = 1;
	assert_bad_opts(ctx, opts, "capture_last_bytes");
	opts = good, opts.queue_limit_bytes = (1 << 30) + 1;
	assert_bad_opts(ctx, opts, "queue_limit_bytes");
	opts = good, opts.kind = ORCH_STREAM_INPUT, opts.capture_last_bytes = 1;
	assert_bad_opts(ctx, opts, "capture_last_bytes");
	ck_assert_int_eq(orch_stream_new(ctx, NULL, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_stream_new(NULL, &good, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_stream_pause(NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_stream_close(NULL, NULL), ORCH_EINVAL);
	ck_assert_ptr_null(orch_stream_unref(NULL));
	ck_assert_str_eq(orch_stream_captured(NULL, NULL), "");
	orch_ctx_unref(ctx);
}
END_TEST

static void assert_refused(orch_scope *scope, const struct orch_proc_opts *opts, int32_t code, const char *word)
{
	orch_error *error = NULL;
	ck_assert_int_eq(orch_scope_spawn(scope, opts, NULL, &error), code);
	ck_assert_msg(strstr(orch_error_message(error), word) != NULL, "%s", orch_error_message(error));
	orch_error_free(error);
}

/* And a stream that was refused is as good as new. */
START_TEST(bad_uses)
{
	orch_ctx *ctx = ctx_new(), *elsewhere = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	orch_stream *in = input_new(ctx, NULL, 0), *out = output_new(ctx, &seen, 0);
	orch_stream *foreign = output_new(elsewhere, NULL, 0);
	struct orch_proc_opts good, opts;
	orch_proc_opts_init(&good, sizeof(good));
	good.argv = ARGV("echo", "good");
	opts = good, opts.stdin_stream = out;
	assert_refused(scope, &opts, ORCH_EINVAL, "stdin_stream");
	opts = good, opts.stdout_stream = in;
	assert_refused(scope, &opts, ORCH_EINVAL, "stdout_stream");
	opts = good, opts.stderr_stream = foreign;
	assert_refused(scope, &opts, ORCH_EINVAL, "another context");
	opts = good, opts.stdout_stream = out, opts.stdout_fd = 1;
	assert_refused(scope, &opts, ORCH_EINVAL, "stdout_fd");
	ck_assert_int_eq(orch_stream_pause(in, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_stream_write(out, "x", 1, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_stream_write(in, NULL, 1, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_stream_resize(out, 1, 1, NULL), ORCH_EINVAL);
	ck_assert_int_eq(wait_status(spawn_seen(scope, &seen, in, out, out, good.argv)), 0);
	ck_assert_str_eq(seen.text, "good\n");
	opts = good, opts.stdout_stream = out;
	assert_refused(scope, &opts, ORCH_ECLOSED, "stdout_stream");
	orch_stream *busy = output_new(ctx, NULL, 0);
	orch_proc *proc = spawn_seen(scope, NULL, NULL, busy, NULL, ARGV("sleep", "1000"));
	opts = good, opts.stdout_stream = busy;
	assert_refused(scope, &opts, ORCH_ESTATE, "another program");
	orch_proc_unref(proc);
	orch_stream_unref(busy);
	orch_stream_unref(in);
	orch_stream_unref(out);
	orch_stream_unref(foreign);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	orch_ctx_unref(elsewhere);
}
END_TEST

START_TEST(programs_that_do_not_run_end_their_streams)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0}, in_seen = {0};
	orch_stream *in = input_new(ctx, &in_seen, 0), *out = output_new(ctx, &seen, 0);
	orch_proc *proc = spawn_seen(scope, NULL, in, out, NULL, ARGV("/nowhere/program"));
	ck_assert_int_eq(orch_proc_wait(proc, 20000, NULL, NULL), ORCH_ESPAWN);
	ck_assert_int_eq(seen.ends + in_seen.ends, 2);
	ck_assert_uint_eq(orch_stream_reason(out), ORCH_STREAM_EOF);
	orch_proc_unref(proc);
	orch_stream_unref(in);
	orch_stream_unref(out);
	/* Stopped before it stood. */
	orch_scope *early = scope_new(ctx);
	struct seen late = {0};
	out = output_new(ctx, &late, 0);
	proc = spawn_seen(early, NULL, NULL, out, NULL, ARGV("echo", "never"));
	orch_death *death = stop(early, 0);
	ck_assert_int_eq(late.ends, 1);
	ck_assert_uint_eq(late.bytes, 0);
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_stream_unref(out);
	orch_scope_unref(early);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* The parent of the scope's init: orch-reaper. */
static pid_t helper_of(orch_scope *scope)
{
	char path[64], line[512];
	int parent = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", orch_scope_init_pid(scope));
	FILE *file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	fclose(file);
	ck_assert_int_eq(sscanf(strrchr(line, ')'), ") %*c %d", &parent), 1);
	ck_assert_int_gt(parent, 1);
	return parent;
}

/* orch-reaper is killed: nobody reports the exit, and the streams end before the certificate all the same. */
START_TEST(helper_killed_ends_them)
{
	struct order order = {0};
	struct seen paused = {.check = true};
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	OK(orch_scope_start_wait(scope, 20000, e));
	struct counter *counter = counter_new();
	orch_stream *out = output_new(ctx, &order.seen, 0), *in = input_new(ctx, NULL, 0);
	orch_stream *late = output_new(ctx, &paused, ORCH_STREAM_PAUSED);
	orch_proc *proc = spawn_seen(scope, NULL, in, out, NULL, ARGV("sh", "-c", "echo own; exec sleep 1000"));
	orch_proc *other = spawn_seen(scope, NULL, NULL, late, NULL, STREAM_LOAD("pattern", "4096", counter->path));
	while (!has_line(&order.seen, "own") || counter->written < 4096)
		turns(ctx, 1);
	OK(orch_scope_on_death(scope, on_any_certificate, &order, NULL, e));
	ck_assert_int_eq(kill(helper_of(scope), SIGKILL), 0);
	loop_until(ctx, &order.seen.certificates);
	ck_assert(order.ended_before_certificate);
	ck_assert_uint_eq(orch_stream_reason(out), ORCH_STREAM_EOF);
	ck_assert_uint_eq(orch_stream_reason(in), ORCH_STREAM_CUT);
	assert_over(&paused, late, ORCH_STREAM_EOF, 4096);
	orch_proc_unref(proc);
	orch_proc_unref(other);
	orch_stream_unref(out);
	orch_stream_unref(in);
	orch_stream_unref(late);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	counter_free(counter);
}
END_TEST

/* A full pipe whose writer is gone must not keep a foreign loop busy while it is paused. */
START_TEST(paused_it_wakes_nobody)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	orch_stream *stream = output_new(ctx, &seen, ORCH_STREAM_PAUSED);
	ck_assert_int_eq(wait_status(spawn_seen(scope, &seen, NULL, stream, NULL, ARGV("echo", "x"))), 0);
	turns(ctx, 3);
	struct pollfd poll_fd = {.fd = orch_ctx_fd(ctx), .events = POLLIN};
	ck_assert_int_eq(poll(&poll_fd, 1, 0), 0);
	OK(orch_stream_resume(stream, e));
	poll_fd.fd = orch_ctx_fd(ctx);
	ck_assert_int_eq(poll(&poll_fd, 1, 20000), 1);
	OK(orch_ctx_process(ctx, e));
	ck_assert_str_eq(seen.text, "x\n");
	ck_assert_int_eq(seen.ends, 1);
	orch_stream_unref(stream);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- ends of life ------------------------------------------------------------------------ */

/* In every order; the program runs, writes and reads meanwhile. */
START_TEST(dropped_in_every_order)
{
	unsigned fds = open_fds();
	for (int order = 0; order < 24; order++) {
		struct seen seen = {0}, in_seen = {0};
		orch_ctx *ctx = ctx_new();
		orch_scope *scope = scope_new(ctx);
		orch_stream *in = input_new(ctx, &in_seen, 0), *out = output_new(ctx, &seen, 0);
		orch_proc *proc = spawn_seen(scope, NULL, in, out, NULL, ARGV("yes"));
		OK(orch_stream_write(in, "x", 1, NULL, e));
		if (order % 2)
			while (seen.bytes == 0)
				turns(ctx, 1);
		int left[] = {0, 1, 2, 3}, digits = order;
		for (int count = 4; count > 0; count--) {
			int pick = digits % count, which = left[pick];
			digits /= count;
			left[pick] = left[count - 1];
			if (which == 0) {
				orch_stream_unref(in);
				orch_stream_unref(out);
			} else if (which == 1) {
				orch_proc_unref(proc);
			} else if (which == 2) {
				orch_scope_unref(scope);
			} else {
				orch_ctx_unref(ctx);
			}
		}
		ck_assert_int_eq(seen.destroyed, 1);
		ck_assert_int_eq(in_seen.destroyed, 1);
	}
	ck_assert_uint_eq(open_fds(), fds);
}
END_TEST

static void drop_in_data(void *userdata, orch_stream *stream, const void *bytes, size_t length)
{
	struct seen *seen = userdata;
	(void)bytes;
	seen->bytes += length;
	if (seen->stream) {
		ck_assert(seen->stream == stream);
		seen->stream = orch_stream_unref(seen->stream);
	}
}

static void drop_in_end(void *userdata, orch_stream *stream, uint32_t reason)
{
	struct seen *seen = userdata;
	(void)stream;
	seen->ends++;
	seen->reason = reason;
	seen->stream = orch_stream_unref(seen->stream);
}

/* _i 0: the last handle goes in the data callback, and the stream goes on. 1: in the end callback. 2: closed there. */
START_TEST(dropped_in_callbacks)
{
	orch_ctx *ctx = ctx_new();
	orch_scope *scope = scope_new(ctx);
	struct seen seen = {0};
	struct orch_stream_opts opts;
	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_OUTPUT;
	opts.data = _i == 0 ? drop_in_data : _i == 1 ? on_data : close_in_data;
	opts.end = drop_in_end;
	opts.userdata = &seen;
	opts.destroy = on_stream_destroyed;
	OK(orch_stream_new(ctx, &opts, &seen.stream, e));
	orch_proc *proc = spawn_seen(scope, NULL, NULL, seen.stream, NULL, STREAM_LOAD("pattern", "300000"));
	int32_t status = wait_status(proc);
	ck_assert_int_eq(status, _i == 2 ? 256 + SIGPIPE : 0);
	ck_assert_int_eq(seen.ends, 1);
	ck_assert_int_eq(seen.destroyed, 1);
	ck_assert_uint_eq(seen.reason, _i == 2 ? ORCH_STREAM_CLOSED : ORCH_STREAM_EOF);
	if (_i != 2)
		ck_assert_uint_eq(seen.bytes, 300000);
	else
		ck_assert_uint_le(seen.bytes, 65536);
	ck_assert_ptr_null(seen.stream);
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
	Suite *all = suite_create("stream");
	TCase *cases = tcase_create("stream");
	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, everything_comes_in_order);
	tcase_add_test(cases, slow_reader_holds_the_program);
	tcase_add_loop_test(cases, paused_from_the_beginning_it_stands_still, 0, 2);
	tcase_add_test(cases, capture_is_limited);
	tcase_add_test(cases, much_is_captured_from_both_ends);
	tcase_add_test(cases, full_pipe_at_the_exit_is_delivered_first);
	tcase_add_loop_test(cases, paused_over_the_exit_nothing_is_lost, 0, 4);
	tcase_add_loop_test(cases, every_rung, ORCH_RUNG_SUBREAPER, ORCH_RUNG_CGROUP_PIDNS + 1);
	tcase_add_test(cases, grandchild_that_holds_the_pipe_delays_nothing);
	tcase_add_loop_test(cases, held_it_goes_on_until_the_certificate, 0, 2);
	tcase_add_test(cases, nobody_else_holds_the_ends);
	tcase_add_test(cases, ten_megabytes_there_and_back);
	tcase_add_test(cases, program_that_does_not_read_is_refused_to);
	tcase_add_loop_test(cases, broken_input_raises_no_signal, 0, 2);
	tcase_add_test(cases, input_may_come_first);
	tcase_add_test(cases, two_hundred_streams);
	tcase_add_test(cases, without_descriptors_it_says_so);
	tcase_add_test(cases, bad_options);
	tcase_add_test(cases, bad_uses);
	tcase_add_test(cases, programs_that_do_not_run_end_their_streams);
	tcase_add_test(cases, helper_killed_ends_them);
	tcase_add_test(cases, paused_it_wakes_nobody);
	tcase_add_test(cases, dropped_in_every_order);
	tcase_add_loop_test(cases, dropped_in_callbacks, 0, 3);
	suite_add_tcase(all, cases);
	return all;
}

int main(int argc, char **argv)
{
	return stream_main(argc, argv);
}
