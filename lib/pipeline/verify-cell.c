/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>

#include "../core/os.h"
#include "verify-private.h"

#define ERR_LIMIT 4096u
#define STOP_DEADLINE_MS 10000u

/* Every registration with the library holds a reference, so that a late callback finds a cell. */
static void cell_unref(void *userdata)
{
	struct cell *cell = userdata;
	if (--cell->references)
		return;
	orch_buf_free(&cell->out.bytes);
	orch_buf_free(&cell->err.bytes);
	orch_error_free(cell->error);
	orch_error_free(cell->exec_error);
	free(cell->death);
	free(cell);
}

static struct cell *cell_ref(struct cell *cell)
{
	cell->references++;
	return cell;
}

/* The last thing a callback does: the cell may be gone afterwards. */
static void cell_changed(struct cell *cell)
{
	if (cell->changed)
		cell->changed(cell->userdata);
}

static void on_over(void *userdata)
{
	cell_changed(userdata);
}

int32_t cell_new(orch_ctx *ctx, orch_sandbox *sandbox, void (*changed)(void *userdata),
		 void *userdata, struct cell **ret_cell, orch_error **reterr)
{
	struct cell *cell = calloc(1, sizeof(*cell));
	if (!cell) {
		orch_sandbox_unref(sandbox);
		return orch_fail_memory(reterr);
	}
	cell->references = 1;
	cell->ctx = ctx;
	cell->sandbox = sandbox;
	cell->changed = changed;
	cell->userdata = userdata;
	cell->exit_code = -1;
	cell->out.fd = cell->err.fd = -1;
	cell->out.over = on_over;
	cell->out.userdata = cell;
	*ret_cell = cell;
	return 0;
}

/* --- streams -------------------------------------------------------------------------------------
 */

void stream_close(struct stream *stream)
{
	stream->source = orch_source_remove(stream->source);
	orch_close_fd(&stream->fd);
}

static void stream_take(struct stream *stream, const char *bytes, size_t length)
{
	struct orch_buf *kept = &stream->bytes;
	if (stream->keep_end) {
		orch_buf_add(kept, bytes, length);
		if (kept->length > 2 * stream->limit)
			orch_buf_shift(kept, kept->length - stream->limit);
		return;
	}
	size_t room = stream->limit - kept->length;
	if (length > room) {
		stream->over_limit = true;
		length = room;
	}
	orch_buf_add(kept, bytes, length);
}

/* One chunk; false when there is no more for now. */
static bool stream_read(struct stream *stream)
{
	char bytes[16384];
	ssize_t count = read(stream->fd, bytes, sizeof(bytes));
	if (count > 0) {
		stream_take(stream, bytes, (size_t)count);
		return true;
	}
	if (count < 0 && errno == EINTR)
		return true;
	if (count == 0 || errno != EAGAIN)
		stream_close(stream);
	return false;
}

static void on_stream(void *userdata, uint32_t events)
{
	struct stream *stream = userdata;
	(void)events;
	bool was_over = stream->over_limit;
	stream_read(stream);
	if (stream->over_limit && !was_over && stream->over)
		stream->over(stream->userdata);
}

int32_t stream_open(struct stream *stream, orch_ctx *ctx, size_t limit, bool keep_end, int *ret_fd,
		    orch_error **reterr)
{
	int fds[2];
	if (orch_pipe(fds) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "pipe",
				 "no pipe for a program's output");
	stream->fd = fds[0];
	stream->limit = limit;
	stream->keep_end = keep_end;
	int32_t code = 0;
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		code =
		    orch_fail(reterr, ORCH_ESYS, errno, "pipe", "no pipe for a program's output");
	if (code == 0)
		code = orch_source_io(ctx, fds[0], ORCH_IO_READ, on_stream, stream, &stream->source,
				      reterr);
	if (code < 0) {
		stream_close(stream);
		close(fds[1]);
		return code;
	}
	*ret_fd = fds[1];
	return 0;
}

void stream_drain(struct stream *stream)
{
	/* A process that outlives the program may write for ever. */
	for (int i = 0; i < 64 && stream->fd >= 0 && stream_read(stream); i++)
		;
}

/* --- start
 * ------------------------------------------------------------------------------------------ */

static void request_stop(struct cell *cell);

static void on_start(void *userdata, orch_sandbox *sandbox, const orch_error *error)
{
	struct cell *cell = userdata;
	cell->starting = false;
	if (!cell->sandbox)
		return;
	if (error) {
		cell->error = orch_error_copy(error);
	} else {
		cell->started = true;
		cell->host_uid = orch_sandbox_host_uid(sandbox);
	}
	if (cell->stopping)
		request_stop(cell);
	cell_changed(cell);
}

void cell_start(struct cell *cell)
{
	cell->starting = true;
	orch_error *error = NULL;
	if (orch_sandbox_start(cell->sandbox, on_start, cell_ref(cell), cell_unref, &error) < 0) {
		cell->starting = false;
		cell->error = error;
	}
}

/* --- program
 * ----------------------------------------------------------------------------------------- */

static void on_proc(void *userdata, orch_proc *proc, uint32_t event)
{
	struct cell *cell = userdata;
	if (!cell->sandbox)
		return;
	switch (event) {
	case ORCH_PROC_STARTED:
		cell->running = true;
		break;
	case ORCH_PROC_FAILED:
		cell->exited = true;
		cell->exec_error = orch_error_copy(orch_proc_error(proc));
		break;
	case ORCH_PROC_EXITED:
		cell->exited = true;
		cell->exit_code = orch_proc_exit_code(proc);
		cell->term_signal = orch_proc_term_signal(proc);
		stream_drain(&cell->out);
		stream_drain(&cell->err);
		break;
	}
	cell_changed(cell);
}

void cell_spawn(struct cell *cell, const char *const *argv, const char *cwd, size_t out_limit)
{
	_cleanup_close_ int out_fd = -1;
	_cleanup_close_ int err_fd = -1;
	orch_error *error = NULL;
	struct orch_proc_opts opts;

	cell->spawned = true;
	int32_t code = stream_open(&cell->err, cell->ctx, ERR_LIMIT, true, &err_fd, &error);
	if (code == 0 && out_limit)
		code = stream_open(&cell->out, cell->ctx, out_limit, false, &out_fd, &error);
	if (code == 0) {
		orch_proc_opts_init(&opts, sizeof(opts));
		opts.flags = ORCH_PROC_LEADER;
		opts.argv = argv;
		opts.cwd = cwd;
		opts.stdout_fd = out_fd;
		opts.stderr_fd = err_fd;
		opts.event = on_proc;
		opts.userdata = cell_ref(cell);
		opts.destroy = cell_unref;
		code = orch_sandbox_spawn(cell->sandbox, &opts, NULL, &error);
	}
	if (code < 0) {
		cell->exited = true;
		cell->exec_error = error;
	}
}

/* --- end
 * -----------------------------------------------------------------------------------------------
 */

static void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	struct cell *cell = userdata;
	(void)scope;
	if (!cell->sandbox || cell->over)
		return;
	cell->over = true;
	cell->death_verdict = orch_death_verdict(death);
	cell->death = strdup(orch_death_text(death));
	cell_changed(cell);
}

static void request_stop(struct cell *cell)
{
	orch_scope *scope = orch_sandbox_scope(cell->sandbox);
	if (!scope) {
		cell->over = true; /* nothing ever was */
		return;
	}
	struct orch_stop_opts opts;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = STOP_DEADLINE_MS;
	orch_error *error = NULL;
	if (orch_scope_stop(scope, &opts, on_death, cell_ref(cell), cell_unref, &error) == 0)
		return;
	cell->over = true;
	cell->death_verdict = ORCH_DEATH_UNVERIFIABLE;
	cell->death = orch_strdup_printf("UNVERIFIABLE: the scope could not be stopped: %s\n",
					 orch_error_message(error));
	orch_error_free(cell->error);
	cell->error = error;
}

void cell_stop(struct cell *cell)
{
	if (cell->stopping)
		return;
	cell->stopping = true;
	if (!cell->starting)
		request_stop(cell);
}

struct cell *cell_free(struct cell *cell)
{
	if (!cell)
		return NULL;
	cell->changed = NULL;
	stream_close(&cell->out);
	stream_close(&cell->err);
	cell->sandbox = orch_sandbox_unref(cell->sandbox);
	cell_unref(cell);
	return NULL;
}
