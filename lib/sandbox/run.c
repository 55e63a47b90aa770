/* SPDX-License-Identifier: Apache-2.0 */
/* orch_sandbox_run(): one program from start to certificate. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "../core/os.h"
#include "sandbox-private.h"

#define DEFAULT_TIMEOUT_MS 60000
#define DEFAULT_OUTPUT (UINT64_C(1) << 20)
#define MAX_OUTPUT (UINT64_C(1) << 32)
/* After the last process is dead a pipe holds at most what its buffer does (1 MiB by default at
 * most). */
#define DRAIN_BYTES (4u << 20)

struct stream {
	struct run *run;
	int fd; /* our end */
	orch_source *source;
	struct orch_buf kept;
	bool truncated;
};

struct run {
	orch_sandbox *sandbox;
	uint64_t output_limit;
	struct stream streams[2];
	orch_proc *proc;
	orch_source *timer;
	bool timed_out;
	orch_death *death;
};

struct orch_sandbox_result {
	int32_t status;
	struct orch_buf output[2];
	bool truncated[2];
	orch_death *death;
};

void orch_run_opts_init(struct orch_run_opts *opts, uint32_t size)
{
	const struct orch_run_opts defaults = {
		.timeout_ms = DEFAULT_TIMEOUT_MS,
		.output_limit = DEFAULT_OUTPUT,
	};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

/* --- output --------------------------------------------------------------------------------- */

static void close_stream(struct stream *stream)
{
	stream->source = orch_source_remove(stream->source);
	orch_close_fd(&stream->fd);
}

/* false: nothing more comes, for now or for good. */
static bool read_some(struct stream *stream, size_t *ret_length)
{
	char bytes[65536];
	ssize_t n = read(stream->fd, bytes, sizeof(bytes));

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		close_stream(stream);
		return false;
	}
	uint64_t room = stream->run->output_limit - stream->kept.length;
	size_t keep = (uint64_t)n < room ? (size_t)n : (size_t)room;

	orch_buf_add(&stream->kept, bytes, keep);
	if (keep < (size_t)n)
		stream->truncated = true;
	*ret_length += (size_t)n;
	return true;
}

/* One read a turn: a program that never stops writing must not hold the loop. */
static void on_output(void *userdata, uint32_t events)
{
	size_t length = 0;

	(void)events;
	read_some(userdata, &length);
}

static void drain(struct stream *stream)
{
	size_t length = 0;

	while (stream->fd >= 0 && length < DRAIN_BYTES && read_some(stream, &length))
		continue;
	close_stream(stream);
}

/* The program's end of the pipe is in *ret_fd. */
static int32_t open_stream(struct run *run, struct stream *stream, int *ret_fd, orch_error **reterr)
{
	int ends[2];

	if (orch_pipe(ends) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "output", "no pipe can be made");
	stream->run = run;
	stream->fd = ends[0];
	*ret_fd = ends[1];
	/* Only our end: the two are separate open file descriptions. */
	if (fcntl(stream->fd, F_SETFL, O_NONBLOCK) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "output", "O_NONBLOCK");
	return orch_source_io(run->sandbox->ctx, stream->fd, ORCH_IO_READ, on_output, stream,
			      &stream->source, reterr);
}

/* A sealed file, so that nobody here has to write while the program reads. */
static int32_t open_input(const void *input, size_t length, int *ret_fd, orch_error **reterr)
{
	int fd = orch_sealed_file("orch-input", input, length);

	if (fd < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "input", "the input can not be stored");
	*ret_fd = fd;
	return 0;
}

/* --- running -------------------------------------------------------------------------------- */

static void on_timeout(void *userdata)
{
	struct run *run = userdata;

	run->timed_out = true;
}

/* Also the way out of a failure: the sandbox is over afterwards in any case. */
static void stop_scope(struct run *run)
{
	if (run->sandbox->scope && !run->death)
		orch_scope_stop_wait(run->sandbox->scope, NULL, &run->death, NULL);
}

static int32_t spawn(struct run *run, const char *const *argv, const struct orch_run_opts *opts,
		     orch_error **reterr)
{
	struct orch_proc_opts proc;
	_cleanup_close_ int in = -1, out = -1, err = -1;
	int32_t code = 0;

	if (opts->input)
		code = open_input(opts->input, opts->input_length, &in, reterr);
	if (code == 0)
		code = open_stream(run, &run->streams[0], &out, reterr);
	if (code == 0)
		code = open_stream(run, &run->streams[1], &err, reterr);
	if (code == 0)
		code = orch_source_timer(run->sandbox->ctx, opts->timeout_ms, on_timeout, run,
					 &run->timer, reterr);
	if (code < 0)
		return code;
	orch_proc_opts_init(&proc, sizeof(proc));
	proc.flags = ORCH_PROC_LEADER;
	proc.argv = argv;
	proc.stdin_fd = in;
	proc.stdout_fd = out;
	proc.stderr_fd = err;
	return orch_sandbox_spawn(run->sandbox, &proc, &run->proc, reterr);
}

static int32_t exit_status(const struct run *run)
{
	if (run->timed_out)
		return ORCH_ETIMEDOUT;
	if (orch_proc_term_signal(run->proc) > 0)
		return 256 + orch_proc_term_signal(run->proc);
	return orch_proc_exit_code(run->proc);
}

/* 0: the program ran, or was stopped by the timeout. */
static int32_t check_ran(const struct run *run, orch_error **reterr)
{
	const orch_error *error = orch_proc_error(run->proc);

	if (error) {
		if (reterr)
			*reterr = orch_error_copy(error);
		return orch_error_code(error);
	}
	return 0;
}

static int32_t make_result(struct run *run, orch_sandbox_result **ret_result, orch_error **reterr)
{
	orch_sandbox_result *result = calloc(1, sizeof(*result));

	if (!result || run->streams[0].kept.failed || run->streams[1].kept.failed) {
		free(result);
		return orch_fail_memory(reterr);
	}
	result->status = exit_status(run);
	for (int i = 0; i < 2; i++) {
		result->output[i] = run->streams[i].kept;
		run->streams[i].kept = (struct orch_buf){0};
		result->truncated[i] = run->streams[i].truncated;
	}
	result->death = orch_death_ref(run->death);
	*ret_result = result;
	return 0;
}

static bool run_is_over(void *userdata)
{
	const struct run *run = userdata;

	return run->timed_out || orch_proc_error(run->proc) ||
	       orch_proc_exit_code(run->proc) >= 0 || orch_proc_term_signal(run->proc) > 0;
}

int32_t orch_sandbox_run(orch_sandbox *sandbox, const char *const *argv,
			 const struct orch_run_opts *opts, orch_sandbox_result **ret_result,
			 orch_error **reterr)
{
	struct orch_run_opts known;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_run_opts", reterr);

	if (code < 0)
		return code;
	if (!sandbox || !argv || !argv[0] || !ret_result || known.flags || known.timeout_ms < 0)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_run() needs a sandbox, a non-empty argv, "
				 "ret_result, no flags "
				 "and a timeout that is not negative");
	known.timeout_ms = known.timeout_ms ? known.timeout_ms : DEFAULT_TIMEOUT_MS;
	known.output_limit = known.output_limit ? known.output_limit : DEFAULT_OUTPUT;
	if (known.output_limit > MAX_OUTPUT)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_run_opts.output_limit exceeds 4 GiB");
	code = orch_sandbox_start_wait(sandbox, -1, reterr);
	if (code < 0)
		return code;

	struct run run = {.sandbox = orch_sandbox_ref(sandbox),
			  .output_limit = known.output_limit,
			  .streams = {{.fd = -1}, {.fd = -1}}};

	code = spawn(&run, argv, &known, reterr);
	if (code == 0)
		code = orch_ctx_wait(sandbox->ctx, -1, run_is_over, &run, reterr);
	stop_scope(&run);
	orch_source_remove(run.timer);
	drain(&run.streams[0]);
	drain(&run.streams[1]);
	if (code == 0)
		code = check_ran(&run, reterr);
	if (code == 0)
		code = make_result(&run, ret_result, reterr);
	for (int i = 0; i < 2; i++)
		orch_buf_free(&run.streams[i].kept);
	orch_proc_unref(run.proc);
	orch_death_unref(run.death);
	orch_sandbox_unref(run.sandbox);
	return code;
}

/* --- result --------------------------------------------------------------------------------- */

orch_sandbox_result *orch_sandbox_result_unref(orch_sandbox_result *result)
{
	if (!result)
		return NULL;
	orch_buf_free(&result->output[0]);
	orch_buf_free(&result->output[1]);
	orch_death_unref(result->death);
	free(result);
	return NULL;
}

int32_t orch_sandbox_result_status(const orch_sandbox_result *result)
{
	return result ? result->status : ORCH_EINVAL;
}

const void *orch_sandbox_result_output(const orch_sandbox_result *result, int32_t stream,
				       size_t *ret_length)
{
	if (!result || stream < 1 || stream > 2)
		return NULL;
	const struct orch_buf *output = &result->output[stream - 1];

	if (ret_length)
		*ret_length = output->length;
	return output->data ? output->data : "";
}

int32_t orch_sandbox_result_truncated(const orch_sandbox_result *result, int32_t stream)
{
	if (!result || stream < 1 || stream > 2)
		return ORCH_EINVAL;
	return result->truncated[stream - 1];
}

orch_death *orch_sandbox_result_death(const orch_sandbox_result *result)
{
	return result ? result->death : NULL;
}
