/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt: from the packet to the end. A job that runs a program is in one of these states:
 *
 *     RUNNING           -- a limit is reached, the stream breaks -->  KILLING    SIGKILL was sent
 *     RUNNING, KILLING  -- the program has exited -->                 DRAINING   the pipe is emptied
 *     any               -- the end is settled -->                     OVER       `done` was called
 */
#include "../core/os.h"
#include "executor-private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "../sandbox/sandbox-private.h"

#define DEFAULT_TIMEOUT_MS 1800000
#define DEFAULT_STALL_MS 300000
#define RESULT_GRACE_MS 10000 /* from the result to the exit */
#define DRAIN_MS 300         /* after the exit, while a descendant holds stdout */
#define DRAIN_BYTES ((size_t)4 * 1024 * 1024)
#define KILL_MS 2000         /* from SIGKILL to the exit; then the scope's stop has to do it */
#define STDERR_KEPT 600      /* for the message */

enum job_state { JOB_RUNNING, JOB_KILLING, JOB_DRAINING, JOB_OVER };

struct job_stream {
	struct orch_job *job;
	int fd;
	orch_source *source;
};

/*
 * A job that runs keeps neither its context nor its sandbox: who drops the last handle of the sandbox ends its load,
 * and the job with it. Handles of the job keep the context, as all handles do.
 */
struct orch_job {
	atomic_uint users;
	/* One for all users, one of the job itself until `done` was called, one of its program until that has ended. */
	atomic_uint references;
	orch_ctx *ctx;
	struct orch_ending ending;
	orch_executor *executor; /* held */
	orch_sandbox *sandbox;	 /* NULL once it is gone, or the job over */
	struct sandbox_dependent dependent;
	bool host_has_it; /* the host's function was called */
	struct orch_job_opts opts; /* packet owned */
	enum job_state state;
	orch_proc *proc; /* the scope's, until on_proc_gone() */
	struct job_stream out, err;
	struct agent_stream stream;
	orch_source *limit, *stall, *soon; /* `soon`: the next step: grace, drain, kill, start, finish */
	uint32_t end;
	int32_t status;
	char *message;
	char tail[STDERR_KEPT + 1];
	size_t tail_length;
};

void orch_job_opts_init(struct orch_job_opts *opts, uint32_t size)
{
	const struct orch_job_opts defaults = {
		.timeout_ms = DEFAULT_TIMEOUT_MS,
		.stall_ms = DEFAULT_STALL_MS,
	};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

/* --- life ------------------------------------------------------------------------------------- */

static void close_stream(struct job_stream *stream)
{
	stream->source = orch_source_remove(stream->source);
	orch_close_fd(&stream->fd);
}

static void remove_sources(orch_job *job)
{
	close_stream(&job->out);
	close_stream(&job->err);
	job->limit = orch_source_remove(job->limit);
	job->stall = orch_source_remove(job->stall);
	job->soon = orch_source_remove(job->soon);
}

static void leave_sandbox(orch_job *job)
{
	if (job->sandbox != NULL)
		orch_sandbox_remove_dependent(job->sandbox, &job->dependent);
	job->sandbox = NULL;
}

static void job_destroy(orch_job *job)
{
	remove_sources(job);
	leave_sandbox(job);
	orch_ctx_remove_ending(job->ctx, &job->ending);
	if (job->opts.destroy != NULL && !orch_ctx_forked(job->ctx))
		job->opts.destroy(job->opts.userdata);
	executor_drop(job->executor);
	agent_clear(&job->stream);
	free((char *)job->opts.packet);
	free(job->message);
	free(job);
}

static orch_job *job_hold(orch_job *job)
{
	atomic_fetch_add(&job->references, 1);
	return job;
}

/* In the loop's thread. */
static void job_drop(orch_job *job)
{
	if (atomic_fetch_sub(&job->references, 1) == 1)
		job_destroy(job);
}

orch_job *orch_job_ref(orch_job *job)
{
	if (job != NULL && atomic_fetch_add(&job->users, 1) == 0) {
		orch_ctx_ref(job->ctx);
		job_hold(job);
	}
	return job;
}

static void settle(orch_job *job, uint32_t end, int32_t status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* In the loop's thread: the last handle is gone. A host's executor that has lost its job would never finish it. */
static void forgotten(void *object)
{
	orch_job *job = object;
	orch_ctx *ctx = job->ctx;

	if (!orch_ctx_forked(ctx) && job->host_has_it && job->state == JOB_RUNNING && job->end == 0 &&
	    atomic_load(&job->users) == 0)
		settle(job, ORCH_JOB_FAILED, -1, "the host's executor dropped the job without finishing it");
	job_drop(job);
	orch_ctx_unref(ctx);
}

orch_job *orch_job_unref(orch_job *job)
{
	if (job != NULL && atomic_fetch_sub(&job->users, 1) == 1)
		orch_ctx_destroy_later(job->ctx, forgotten, job);
	return NULL;
}

const char *orch_job_packet(const orch_job *job)
{
	return job != NULL ? job->opts.packet : NULL;
}

orch_sandbox *orch_job_sandbox(orch_job *job)
{
	return job != NULL ? job->sandbox : NULL;
}

const char *orch_job_workspace(const orch_job *job)
{
	const orch_sandbox *sandbox = job != NULL ? job->sandbox : NULL;

	for (size_t i = 0; sandbox != NULL && i < sandbox->path_count; i++) {
		if (sandbox->paths[i].inner == sandbox->cwd)
			return sandbox->paths[i].host;
	}
	return NULL;
}

uint64_t orch_job_claimed_tokens(const orch_job *job)
{
	return job != NULL ? job->stream.tokens : 0;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void deliver(void *userdata)
{
	orch_job *job = userdata;
	orch_destroy_fn destroy = job->opts.destroy;

	if (job->state == JOB_OVER)
		return;
	job->state = JOB_OVER;
	remove_sources(job);
	if (job->opts.done != NULL)
		job->opts.done(job->opts.userdata, job, job->end, job->status,
			       job->message != NULL ? job->message : "");
	job->opts.destroy = NULL;
	if (destroy != NULL)
		destroy(job->opts.userdata);
	leave_sandbox(job);
	job_drop(job);
}

/* Calls `fn` in `delay_ms`, in place of what was to come before. */
static void soon(orch_job *job, int64_t delay_ms, orch_timer_fn fn)
{
	job->soon = orch_source_remove(job->soon);
	/* No memory for a timer: the limit of the whole job is still there. */
	orch_source_timer(job->ctx, delay_ms, fn, job, &job->soon, NULL);
}

/* The first end counts. `done` comes in the next turn of the loop. */
static void settle(orch_job *job, uint32_t end, int32_t status, const char *format, ...)
{
	va_list args;

	if (job->end == 0) {
		job->end = end;
		job->status = status;
		va_start(args, format);
		if (vasprintf(&job->message, format, args) < 0)
			job->message = NULL;
		va_end(args);
	}
	soon(job, 0, deliver);
}

static void __attribute__((format(printf, 3, 4)))
end_by_kill(orch_job *job, uint32_t end, const char *format, ...)
{
	va_list args;

	if (job->state != JOB_RUNNING || job->end != 0)
		return;
	job->end = end;
	job->status = -1;
	va_start(args, format);
	if (vasprintf(&job->message, format, args) < 0)
		job->message = NULL;
	va_end(args);
	if (job->proc == NULL) {
		soon(job, 0, deliver);
		return;
	}
	job->state = JOB_KILLING;
	orch_proc_signal(job->proc, SIGKILL, NULL);
	soon(job, KILL_MS, deliver);
}

static void drained(orch_job *job);

static void on_limit(void *userdata)
{
	orch_job *job = userdata;

	/* Also while draining or killing: this is the last word. */
	if (job->state == JOB_DRAINING)
		drained(job);
	else if (job->state != JOB_RUNNING)
		deliver(job);
	else
		end_by_kill(job, ORCH_JOB_TIMED_OUT, "its time of %u ms was over; killed",
			    job->opts.timeout_ms);
}

static void on_stall(void *userdata)
{
	orch_job *job = userdata;

	end_by_kill(job, ORCH_JOB_STALLED, "no event for %u ms; killed", job->opts.stall_ms);
}

static void on_grace(void *userdata)
{
	end_by_kill(userdata, ORCH_JOB_HUNG, "did not exit within %d ms after its result; killed",
		    RESULT_GRACE_MS);
}

void executor_abandon(orch_job *job)
{
	orch_destroy_fn destroy = job != NULL ? job->opts.destroy : NULL;

	if (job == NULL || job->state == JOB_OVER)
		return;
	job->state = JOB_OVER;
	remove_sources(job);
	leave_sandbox(job);
	job->opts.event = NULL;
	job->opts.done = NULL;
	job->opts.destroy = NULL;
	if (destroy != NULL && !orch_ctx_forked(job->ctx))
		destroy(job->opts.userdata);
	job_drop(job);
}

/* Nobody has a handle of anything in the context, and so nobody is left to be told. */
static void on_ctx_end(void *userdata)
{
	executor_abandon(userdata);
}

static void on_sandbox_gone(void *userdata)
{
	orch_job *job = userdata;

	job->sandbox = NULL;
	if (!orch_ctx_forked(job->ctx) && job->state == JOB_RUNNING && job->end == 0)
		settle(job, ORCH_JOB_FAILED, -1, "its sandbox was dropped, and what ran in it is killed");
}

/* --- what the program says -------------------------------------------------------------------- */

static void on_agent_event(void *userdata, uint32_t event, const char *text)
{
	orch_job *job = userdata;

	if (job->opts.event != NULL)
		job->opts.event(job->opts.userdata, job, event, text);
}

static void judge_events(orch_job *job, int64_t events)
{
	if (events < 0) {
		end_by_kill(job, ORCH_JOB_FAILED, "its event stream is broken: %s", job->stream.broken);
		return;
	}
	if (events == 0 || job->state != JOB_RUNNING)
		return;
	if (job->stream.has_result && job->executor->kind != ORCH_EXECUTOR_COMMAND) {
		job->stall = orch_source_remove(job->stall);
		if (job->soon == NULL)
			soon(job, RESULT_GRACE_MS, on_grace);
	} else if (job->stall != NULL) {
		orch_source_timer_set(job->stall, job->opts.stall_ms);
	}
}

/* One read. False: nothing more for now, or for good (closed then). */
static bool read_out(orch_job *job, size_t *ret_length)
{
	char bytes[65536];
	ssize_t got = read(job->out.fd, bytes, sizeof(bytes));

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return errno == EINTR;
	if (got <= 0) {
		close_stream(&job->out);
		if (job->stream.broken == NULL)
			judge_events(job, agent_end(&job->stream));
		return false;
	}
	*ret_length += (size_t)got;
	if (job->stream.broken == NULL)
		judge_events(job, agent_feed(&job->stream, bytes, (size_t)got));
	return true;
}

/* One read a turn: a program that never stops writing must not hold the loop. */
static void on_out(void *userdata, uint32_t events)
{
	struct job_stream *stream = userdata;
	orch_job *job = job_hold(stream->job);
	size_t length = 0;

	(void)events;
	read_out(job, &length);
	if (job->state == JOB_DRAINING && job->out.fd < 0)
		drained(job);
	job_drop(job);
}

static void keep_tail(orch_job *job, const char *bytes, size_t length)
{
	if (length > STDERR_KEPT) {
		bytes += length - STDERR_KEPT;
		length = STDERR_KEPT;
	}
	if (job->tail_length + length > STDERR_KEPT) {
		size_t gone = job->tail_length + length - STDERR_KEPT;

		memmove(job->tail, job->tail + gone, job->tail_length - gone);
		job->tail_length -= gone;
	}
	for (size_t i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)bytes[i];

		job->tail[job->tail_length++] = (char)(byte == '\n' || byte == '\t' ? ' '
							: byte < ' ' || byte > '~' ? '?'
										   : byte);
	}
	job->tail[job->tail_length] = '\0';
}

static void on_err(void *userdata, uint32_t events)
{
	struct job_stream *stream = userdata;
	orch_job *job = stream->job;
	char bytes[4096];
	ssize_t got = read(stream->fd, bytes, sizeof(bytes));

	(void)events;
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		close_stream(stream);
		return;
	}
	keep_tail(job, bytes, (size_t)got);
	/* An agent's warnings are no events; of any other program each sign of life counts. */
	if (job->executor->kind == ORCH_EXECUTOR_COMMAND && job->state == JOB_RUNNING && job->stall != NULL)
		orch_source_timer_set(job->stall, job->opts.stall_ms);
}

/* --- the program ------------------------------------------------------------------------------ */

static void drained(orch_job *job)
{
	bool agent = job->executor->kind != ORCH_EXECUTOR_COMMAND;
	const char *why = job->tail;

	/* The last words of stderr explain a failure; a stream that breaks at the end is one. */
	if (job->err.fd >= 0)
		on_err(&job->err, ORCH_IO_READ);
	if (job->end == 0 && job->stream.broken != NULL)
		settle(job, ORCH_JOB_FAILED, job->status, "its event stream is broken: %s", job->stream.broken);
	/* Agents tell as their result why they failed; what they leave on stderr are warnings. */
	if (job->stream.reason != NULL && job->stream.reason[0] != '\0')
		why = job->stream.reason;
	settle(job, ORCH_JOB_FINISHED, job->status, "%s %d%s%s%s",
	       job->status < 256 ? "exited with code" : "ended by signal",
	       job->status < 256 ? job->status : job->status - 256,
	       agent && !job->stream.has_result ? ", without a result" : "",
	       job->status != 0 && why[0] != '\0' ? ": " : "", job->status != 0 ? why : "");
}

static void on_drain_over(void *userdata)
{
	drained(userdata);
}

static void on_exit_event(orch_job *job, orch_proc *proc)
{
	int32_t signal_number = orch_proc_term_signal(proc);
	size_t length = 0;

	if (job->state == JOB_OVER)
		return;
	job->state = JOB_DRAINING;
	job->stall = orch_source_remove(job->stall);
	job->soon = orch_source_remove(job->soon);
	job->status = signal_number > 0 ? 256 + signal_number : orch_proc_exit_code(proc);
	while (job->out.fd >= 0 && length < DRAIN_BYTES && read_out(job, &length))
		;
	if (job->out.fd < 0 || job->end != 0)
		drained(job);
	else
		soon(job, DRAIN_MS, on_drain_over);
}

static void on_proc(void *userdata, orch_proc *proc, uint32_t event)
{
	orch_job *job = userdata;

	if (event == ORCH_PROC_EXITED)
		on_exit_event(job, proc);
	else if (event == ORCH_PROC_FAILED && job->state != JOB_OVER)
		settle(job, ORCH_JOB_FAILED, -1, "%s", orch_error_message(orch_proc_error(proc)));
}

static void on_proc_gone(void *userdata)
{
	orch_job *job = userdata;

	job->proc = NULL;
	job_drop(job);
}

/* The packet as a sealed file: nobody here has to write while the program reads. */
static int32_t open_packet(const char *packet, int *ret_fd, orch_error **reterr)
{
	int fd = orch_sealed_file("orch-packet", packet, strlen(packet));

	if (fd < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "packet", "the packet can not be stored");
	*ret_fd = fd;
	return 0;
}

/* Our end is in the stream, the program's in *ret_fd. */
static int32_t open_stream(orch_job *job, struct job_stream *stream, orch_io_fn fn, int *ret_fd,
			   orch_error **reterr)
{
	int ends[2];

	if (orch_pipe(ends) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "output", "no pipe can be made");
	stream->job = job;
	stream->fd = ends[0];
	*ret_fd = ends[1];
	if (fcntl(stream->fd, F_SETFL, O_NONBLOCK) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "output", "O_NONBLOCK");
	return orch_source_io(job->ctx, stream->fd, ORCH_IO_READ, fn, stream, &stream->source, reterr);
}

static int32_t start_program(orch_job *job, orch_error **reterr)
{
	_cleanup_close_ int in = -1, out = -1, err = -1;
	struct command command;
	struct orch_proc_opts proc;
	int32_t code;

	job->stream.kind = job->executor->kind;
	job->stream.event = on_agent_event;
	job->stream.userdata = job;
	code = open_packet(job->opts.packet, &in, reterr);
	if (code == 0)
		code = open_stream(job, &job->out, on_out, &out, reterr);
	if (code == 0)
		code = open_stream(job, &job->err, on_err, &err, reterr);
	if (code == 0)
		code = orch_source_timer(job->ctx, job->opts.stall_ms, on_stall, job, &job->stall, reterr);
	if (code < 0)
		return code;
	orch_proc_opts_init(&proc, sizeof(proc));
	proc.argv = executor_command(job->executor, &command);
	proc.envp = command.envp;
	proc.stdin_fd = in;
	proc.stdout_fd = out;
	proc.stderr_fd = err;
	proc.event = on_proc;
	proc.userdata = job_hold(job);
	proc.destroy = on_proc_gone;
	if (proc.argv != NULL) {
		code = orch_sandbox_spawn(job->sandbox, &proc, &job->proc, reterr);
		/* A handle would keep the context; the scope has the program until it tells that it is gone. */
		if (code == 0)
			orch_proc_unref(job->proc);
	} else {
		job_drop(job);
		code = orch_fail_memory(reterr);
	}
	executor_command_clear(&command);
	return code;
}

/* --- the host's function ---------------------------------------------------------------------- */

static void call_host(void *userdata)
{
	/* The host may let go of everything in here. */
	orch_job *job = job_hold(userdata);
	unsigned before = atomic_load(&job->users);

	job->soon = orch_source_remove(job->soon);
	job->executor->job(job->executor->userdata, job);
	job->host_has_it = true;
	if (job->state == JOB_RUNNING && job->end == 0 && atomic_load(&job->users) <= before)
		settle(job, ORCH_JOB_FAILED, -1,
		       "the host's executor returned without finishing the job or keeping a reference");
	job_drop(job);
}

int32_t orch_job_finish(orch_job *job, int32_t status, const char *message, orch_error **reterr)
{
	int32_t code;

	if (job == NULL)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the job is NULL");
	code = orch_ctx_check(job->ctx, reterr);
	if (code < 0)
		return code;
	if (job->executor->kind != ORCH_EXECUTOR_CALLBACK)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL, "the job runs a program, which finishes it");
	if (job->end != 0 || job->state != JOB_RUNNING)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL, "the job has ended already");
	settle(job, ORCH_JOB_FINISHED, status, "%s", message != NULL ? message : "");
	return 0;
}

/* --- start ------------------------------------------------------------------------------------ */

static int32_t check_run(orch_executor *executor, orch_sandbox *sandbox, const struct orch_job_opts *opts,
			 orch_error **reterr)
{
	int32_t code;

	if (executor == NULL || sandbox == NULL)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL",
				 executor == NULL ? "the executor" : "the sandbox");
	code = orch_ctx_check(executor->ctx, reterr);
	if (code < 0)
		return code;
	if (sandbox->ctx != executor->ctx)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "executor and sandbox are of different contexts");
	if (opts->packet == NULL || opts->packet[0] == '\0')
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_job_opts.packet is %s",
				 opts->packet == NULL ? "NULL" : "empty");
	if (opts->flags != 0)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_job_opts.flags: none is defined");
	if (sandbox->state != SANDBOX_STARTED)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL, "the sandbox is not started");
	return 0;
}

static int32_t start(orch_job *job, orch_error **reterr)
{
	int32_t code = orch_source_timer(job->ctx, job->opts.timeout_ms, on_limit, job, &job->limit, reterr);

	if (code < 0)
		return code;
	if (job->executor->kind == ORCH_EXECUTOR_CALLBACK)
		return orch_source_timer(job->ctx, 0, call_host, job, &job->soon, reterr);
	return start_program(job, reterr);
}

int32_t executor_run(orch_executor *executor, orch_sandbox *sandbox, const struct orch_job_opts *opts, orch_job **ret_job,
		     orch_error **reterr)
{
	struct orch_job_opts known;
	orch_job *job;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_job_opts", reterr);

	if (code == 0)
		code = check_run(executor, sandbox, &known, reterr);
	job = code == 0 ? calloc(1, sizeof(*job)) : NULL;
	if (job == NULL) {
		if (known.destroy != NULL)
			known.destroy(known.userdata);
		return code < 0 ? code : orch_fail_memory(reterr);
	}
	atomic_init(&job->users, 0);
	atomic_init(&job->references, 1);
	job->ctx = executor->ctx;
	job->executor = executor;
	executor_hold(executor);
	job->sandbox = sandbox;
	job->dependent = (struct sandbox_dependent){.gone = on_sandbox_gone, .userdata = job};
	orch_sandbox_add_dependent(sandbox, &job->dependent);
	job->ending = (struct orch_ending){.end = on_ctx_end, .userdata = job};
	orch_ctx_add_ending(job->ctx, &job->ending);
	job->opts = known;
	job->opts.timeout_ms = known.timeout_ms != 0 ? known.timeout_ms : DEFAULT_TIMEOUT_MS;
	job->opts.stall_ms = known.stall_ms != 0 ? known.stall_ms : DEFAULT_STALL_MS;
	job->out.fd = job->err.fd = -1;
	job->opts.packet = strdup(known.packet);
	code = job->opts.packet != NULL ? start(job, reterr) : orch_fail_memory(reterr);
	if (code < 0) {
		job_drop(job);
		return code;
	}
	*ret_job = job;
	return 0;
}

int32_t orch_executor_run(orch_executor *executor, orch_sandbox *sandbox, const struct orch_job_opts *opts,
			  orch_job **ret_job, orch_error **reterr)
{
	orch_job *job;
	int32_t code = executor_run(executor, sandbox, opts, &job, reterr);

	if (code == 0 && ret_job != NULL)
		*ret_job = orch_job_ref(job);
	return code;
}
