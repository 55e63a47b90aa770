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

struct run {
	orch_sandbox *sandbox;
	uint64_t output_limit;
	orch_stream *streams[2];
	orch_proc *proc;
	orch_source *timer;
	bool timed_out;
	orch_death *death;
};

struct orch_sandbox_result {
	int32_t status;
	uint32_t reason;
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

/* --- in and out ------------------------------------------------------------------------------ */

/* Held: what descendants write until they are killed belongs to it. */
static int32_t open_stream(struct run *run, orch_stream **ret_stream, orch_error **reterr)
{
	struct orch_stream_opts opts;

	orch_stream_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_STREAM_HOLD;
	opts.kind = ORCH_STREAM_OUTPUT;
	opts.capture_first_bytes = run->output_limit;
	return orch_stream_new(run->sandbox->ctx, &opts, ret_stream, reterr);
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
	_cleanup_close_ int in = -1;
	int32_t code = 0;

	if (opts->input)
		code = open_input(opts->input, opts->input_length, &in, reterr);
	if (code == 0)
		code = open_stream(run, &run->streams[0], reterr);
	if (code == 0)
		code = open_stream(run, &run->streams[1], reterr);
	if (code == 0)
		code = orch_source_timer(run->sandbox->ctx, opts->timeout_ms, on_timeout, run,
					 &run->timer, reterr);
	if (code < 0)
		return code;
	orch_proc_opts_init(&proc, sizeof(proc));
	proc.flags = ORCH_PROC_LEADER;
	proc.argv = argv;
	proc.stdin_fd = in;
	proc.stdout_stream = run->streams[0];
	proc.stderr_stream = run->streams[1];
	return orch_sandbox_spawn(run->sandbox, &proc, &run->proc, reterr);
}

/* What never ran because of it has no error either: each limit has one outcome. */
static bool ended_by_time(const struct run *run)
{
	return run->death && orch_death_limit(run->death) == ORCH_LIMIT_TIME;
}

static bool never_ran(const struct run *run)
{
	return !run->proc || orch_proc_error(run->proc);
}

static int32_t exit_status(const struct run *run)
{
	if (run->timed_out || never_ran(run))
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

	if (!result)
		return orch_fail_memory(reterr);
	result->status = exit_status(run);
	result->reason = never_ran(run) ? ORCH_REASON_TIME : orch_proc_reason(run->proc);
	for (int i = 0; i < 2 && run->streams[i]; i++) {
		if (orch_stream_reason(run->streams[i]) == ORCH_STREAM_BROKEN) {
			orch_sandbox_result_unref(result);
			return orch_fail_memory(reterr);
		}
		result->truncated[i] = orch_stream_dropped(run->streams[i]) > 0;
		orch_stream_take_captured(run->streams[i], &result->output[i]);
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

	struct run run = {.sandbox = orch_sandbox_ref(sandbox),
			  .output_limit = known.output_limit};
	orch_error *error = NULL;

	code = orch_sandbox_start_wait(sandbox, -1, &error);
	/* What did not start for another reason may be somebody else's: it is not touched. */
	bool is_ours = code == 0 || code == ORCH_ECANCELED;
	if (code == 0)
		code = spawn(&run, argv, &known, &error);
	if (code == 0)
		code = orch_ctx_wait(sandbox->ctx, -1, run_is_over, &run, &error);
	if (is_ours)
		stop_scope(&run);
	orch_source_remove(run.timer);
	if (code == 0)
		code = check_ran(&run, &error);
	if (code < 0 && ended_by_time(&run)) {
		error = orch_error_free(error);
		code = 0;
	}
	if (code == 0)
		code = make_result(&run, ret_result, &error);
	for (int i = 0; i < 2; i++)
		orch_stream_unref(run.streams[i]);
	orch_proc_unref(run.proc);
	orch_death_unref(run.death);
	orch_sandbox_unref(run.sandbox);
	if (reterr && error)
		*reterr = ORCH_STEAL(error);
	orch_error_free(error);
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

uint32_t orch_sandbox_result_reason(const orch_sandbox_result *result)
{
	return result ? result->reason : 0;
}

orch_death *orch_sandbox_result_death(const orch_sandbox_result *result)
{
	return result ? result->death : NULL;
}
