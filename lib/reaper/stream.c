/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/ioctl.h>

#include "stream-ends.h"
#include "stream-private.h"

#define DEFAULT_ROWS 24
#define DEFAULT_COLUMNS 80
#define DEFAULT_QUEUE 65536
#define MAX_CAPTURE (UINT64_C(1) << 32)
#define MAX_QUEUE (UINT64_C(1) << 30)
#define MAX_SIZE 65535u

/* --- life ------------------------------------------------------------------------------ */

void stream_drop_callbacks(struct orch_stream *stream)
{
	orch_destroy_fn destroy = stream->destroy;
	stream->destroy = NULL;
	stream->data = NULL;
	stream->end = NULL;
	stream->writable = NULL;
	if (destroy)
		destroy(stream->userdata);
}

void stream_close_ends(struct orch_stream *stream)
{
	stream->source = orch_source_remove(stream->source);
	stream->later = orch_source_remove(stream->later);
	orch_close_fd(&stream->host_fd);
	orch_close_fd(&stream->program_fd);
}

static void stream_free(struct orch_stream *stream)
{
	stream_close_ends(stream);
	stream_drop_callbacks(stream);
	orch_buf_free(&stream->kept);
	orch_buf_free(&stream->queue);
	free(stream);
}

orch_stream *orch_stream_ref(orch_stream *stream)
{
	if (stream && atomic_fetch_add(&stream->references, 1) == 0) {
		/* In a callback, when the host kept no handle. */
		stream->released = false;
		orch_ctx_ref(stream->ctx);
	}
	return stream;
}

static void stream_release(void *object)
{
	struct orch_stream *stream = object;
	orch_ctx *ctx = stream->ctx;
	if (atomic_load(&stream->references) == 0) {
		stream->released = true;
		if (!stream->attached)
			stream_free(stream);
	}
	orch_ctx_unref(ctx);
}

orch_stream *orch_stream_unref(orch_stream *stream)
{
	if (stream && atomic_fetch_sub(&stream->references, 1) == 1)
		orch_ctx_destroy_later(stream->ctx, stream_release, stream);
	return NULL;
}

void stream_detach(struct orch_stream *stream)
{
	struct orch_stream **link = &stream->scope->streams;
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	stream->attached = false;
	stream->scope = NULL;
}

void streams_abandon(struct orch_scope *scope)
{
	while (scope->streams) {
		struct orch_stream *stream = scope->streams;
		stream_close_ends(stream);
		stream_detach(stream);
		stream_drop_callbacks(stream);
		if (stream->released)
			stream_free(stream);
	}
}

/* --- a program's ----------------------------------------------------------------------- */

int32_t stream_check_use(const orch_stream *stream, const orch_ctx *ctx, int index, const char *name,
			 orch_error **reterr)
{
	if (stream->ctx != ctx)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_proc_opts.%s is of another context than the scope", name);
	if (stream->kind != ORCH_STREAM_PTY && (stream->kind == ORCH_STREAM_INPUT) != (index == 0))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_proc_opts.%s has to be of the kind ORCH_STREAM_%s or ORCH_STREAM_PTY", name,
				 index == 0 ? "INPUT" : "OUTPUT");
	if (stream->reason)
		return orch_fail(reterr, ORCH_ECLOSED, 0, NULL, "orch_proc_opts.%s has ended", name);
	if (stream->taken)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "orch_proc_opts.%s belongs to another program: a stream is for one", name);
	return 0;
}

void stream_hand_to(const struct orch_stream *stream, uint32_t uid)
{
	/* Where it can not be (only root may, and only on Linux), they can be used, and not opened again. */
	if (uid != geteuid() && fchown(stream->program_fd, uid, (gid_t)-1) < 0)
		orch_ctx_logf(stream->ctx, ORCH_LOG_DEBUG, "a stream can not be given to uid %u: errno %d", uid, errno);
}

void stream_attach(struct orch_stream *stream, struct orch_scope *scope, uint32_t subject)
{
	if (stream->attached)
		return;
	stream->attached = stream->taken = true;
	stream->scope = scope;
	stream->subject = subject;
	stream->next = scope->streams;
	scope->streams = stream;
	/* While it is open here, the end of file can not come. */
	orch_close_fd(&stream->program_fd);
	stream_watch(stream);
	if (stream->later)
		orch_source_timer_set(stream->later, 0);
}

/* --- making ---------------------------------------------------------------------------- */

void orch_stream_opts_init(struct orch_stream_opts *opts, uint32_t size)
{
	const struct orch_stream_opts defaults = {
		.rows = DEFAULT_ROWS,
		.columns = DEFAULT_COLUMNS,
		.queue_limit_bytes = DEFAULT_QUEUE,
	};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

/* And fills in what was left to be chosen. */
static int32_t check_opts(struct orch_stream_opts *opts, orch_error **reterr)
{
	const uint32_t flags = ORCH_STREAM_HOLD | ORCH_STREAM_PAUSED;
	if (opts->flags & ~flags || opts->reserved)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_stream_opts.flags 0x%x has an unknown flag, or .reserved is not 0",
				 opts->flags);
	if (opts->kind < ORCH_STREAM_OUTPUT || opts->kind > ORCH_STREAM_PTY)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_stream_opts.kind %u is none of ORCH_STREAM_OUTPUT, _INPUT, _PTY", opts->kind);
	if (opts->rows > MAX_SIZE || opts->columns > MAX_SIZE)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_stream_opts.rows %u or .columns %u exceeds 65535", opts->rows, opts->columns);
	if (opts->capture_first_bytes > MAX_CAPTURE ||
	    opts->capture_last_bytes > MAX_CAPTURE - opts->capture_first_bytes)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_stream_opts.capture_first_bytes and .capture_last_bytes exceed 4 GiB together");
	if (opts->queue_limit_bytes > MAX_QUEUE)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_stream_opts.queue_limit_bytes exceeds 1 GiB");
	if (opts->kind == ORCH_STREAM_INPUT && (opts->data || opts->capture_first_bytes || opts->capture_last_bytes))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_stream_opts.data, .capture_first_bytes and .capture_last_bytes are not for an "
				 "ORCH_STREAM_INPUT: nothing is read from it");
	if (!opts->rows)
		opts->rows = DEFAULT_ROWS;
	if (!opts->columns)
		opts->columns = DEFAULT_COLUMNS;
	if (!opts->queue_limit_bytes)
		opts->queue_limit_bytes = DEFAULT_QUEUE;
	return 0;
}

static int32_t open_ends(struct orch_stream *stream, const struct orch_stream_opts *opts, orch_error **reterr)
{
	struct stream_ends ends;
	bool terminal = opts->kind == ORCH_STREAM_PTY;
	int result = terminal ? stream_open_terminal(opts->rows, opts->columns, &ends)
			      : stream_open_pipe(opts->kind == ORCH_STREAM_INPUT, &ends);
	if (result < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, terminal ? "pty" : "pipe", "no %s could be made",
				 terminal ? "terminal (/dev/ptmx and /dev/pts are needed)" : "pipe");
	stream->host_fd = ends.host_fd;
	stream->program_fd = ends.program_fd;
	return orch_source_io(stream->ctx, stream->host_fd, 0, stream_ready, stream, &stream->source, reterr);
}

static int32_t make(orch_ctx *ctx, struct orch_stream_opts *opts, orch_stream **ret_stream, orch_error **reterr)
{
	int32_t code = check_opts(opts, reterr);
	if (code < 0)
		return code;
	struct orch_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return orch_fail_memory(reterr);
	atomic_init(&stream->references, 1);
	stream->ctx = ctx;
	stream->host_fd = stream->program_fd = -1;
	stream->kind = opts->kind;
	stream->flags = opts->flags;
	stream->paused = opts->flags & ORCH_STREAM_PAUSED;
	stream->first_limit = opts->capture_first_bytes;
	stream->last_limit = opts->capture_last_bytes;
	stream->queue_limit = opts->queue_limit_bytes;
	code = open_ends(stream, opts, reterr);
	if (code < 0) {
		stream_free(stream);
		return code;
	}
	stream->data = opts->data;
	stream->end = opts->end;
	stream->writable = opts->writable;
	stream->userdata = opts->userdata;
	stream->destroy = opts->destroy;
	orch_ctx_ref(ctx);
	*ret_stream = stream;
	return 0;
}

int32_t orch_stream_new(orch_ctx *ctx, const struct orch_stream_opts *opts, orch_stream **ret_stream,
			orch_error **reterr)
{
	struct orch_stream_opts known;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_stream_opts", reterr);
	if (code == 0)
		code = orch_ctx_check(ctx, reterr);
	if (code == 0 && !opts)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_stream_opts is NULL");
	if (code == 0 && !ret_stream)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_stream is NULL");
	if (code == 0)
		code = make(ctx, &known, ret_stream, reterr);
	if (code < 0 && known.destroy)
		known.destroy(known.userdata);
	return code;
}

/* --- calls ----------------------------------------------------------------------------- */

static int32_t check(orch_stream *stream, orch_error **reterr)
{
	if (!stream)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the stream is NULL");
	return orch_ctx_check(stream->ctx, reterr);
}

static int32_t check_open(const orch_stream *stream, orch_error **reterr)
{
	if (!stream->reason && !stream->closing)
		return 0;
	return orch_fail(reterr, ORCH_ECLOSED, 0, NULL, "the stream %s",
			 stream->reason ? "has ended" : "was closed");
}

static int32_t set_paused(orch_stream *stream, bool paused, orch_error **reterr)
{
	int32_t code = check(stream, reterr);
	if (code == 0 && stream->kind == ORCH_STREAM_INPUT)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "nothing is read from an ORCH_STREAM_INPUT");
	if (code == 0)
		code = check_open(stream, reterr);
	if (code < 0)
		return code;
	stream->paused = paused;
	stream_watch(stream);
	return 0;
}

int32_t orch_stream_pause(orch_stream *stream, orch_error **reterr)
{
	return set_paused(stream, true, reterr);
}

int32_t orch_stream_resume(orch_stream *stream, orch_error **reterr)
{
	return set_paused(stream, false, reterr);
}

/* How much of it the queue takes; -1 without memory. */
static int64_t queue_part(struct orch_stream *stream, const char *bytes, size_t length)
{
	uint64_t waiting = stream_waiting(stream);
	uint64_t room = waiting < stream->queue_limit ? stream->queue_limit - waiting : 0;
	size_t part = length < room ? length : (size_t)room;
	orch_buf_add(&stream->queue, bytes, part);
	if (!stream->queue.failed)
		return (int64_t)part;
	stream->queue.failed = false; /* what it had it has */
	return -1;
}

static int32_t put_or_queue(struct orch_stream *stream, const char *bytes, size_t length, size_t *taken,
			    orch_error **reterr)
{
	if (length && stream_waiting(stream) == 0)
		*taken = stream_put_now(stream, bytes, length);
	if (*taken == length)
		return 0;
	int64_t queued = queue_part(stream, bytes + *taken, length - *taken);
	if (queued < 0)
		return orch_fail_memory(reterr);
	*taken += (size_t)queued;
	stream_watch(stream);
	if (*taken == length)
		return 0;
	stream->wants_room = true;
	return orch_fail(reterr, ORCH_EBUSY, 0, NULL,
			 "%zu of %zu bytes were taken: the program does not read, and queue_limit_bytes is reached",
			 *taken, length);
}

int32_t orch_stream_write(orch_stream *stream, const void *bytes, size_t length, size_t *ret_taken,
			  orch_error **reterr)
{
	size_t taken = 0;
	int32_t code = check(stream, reterr);
	if (code == 0 && stream->kind == ORCH_STREAM_OUTPUT)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "an ORCH_STREAM_OUTPUT can not be written");
	if (code == 0 && !bytes && length)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "bytes is NULL");
	if (code == 0)
		code = check_open(stream, reterr);
	if (code < 0)
		return code;
	code = put_or_queue(stream, bytes, length, &taken, reterr);
	if (ret_taken)
		*ret_taken = taken;
	return code;
}

int32_t orch_stream_close(orch_stream *stream, orch_error **reterr)
{
	int32_t code = check(stream, reterr);
	if (code < 0 || stream->reason || stream->closing)
		return code;
	code = orch_source_timer(stream->ctx, 0, stream_later, stream, &stream->later, reterr);
	if (code < 0)
		return code;
	stream->closing = true;
	stream_watch(stream);
	return 0;
}

int32_t orch_stream_resize(orch_stream *stream, uint32_t rows, uint32_t columns, orch_error **reterr)
{
	const struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
	int32_t code = check(stream, reterr);
	if (code == 0 && stream->kind != ORCH_STREAM_PTY)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "only an ORCH_STREAM_PTY has a size");
	if (code == 0 && (!rows || !columns || rows > MAX_SIZE || columns > MAX_SIZE))
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "rows %u and columns %u have to be 1 to 65535", rows,
				 columns);
	if (code == 0)
		code = check_open(stream, reterr);
	if (code == 0 && ioctl(stream->host_fd, TIOCSWINSZ, &size) < 0)
		code = orch_fail(reterr, ORCH_ESYS, errno, "pty", "the terminal's size could not be set");
	return code;
}

static bool is_ended(void *userdata)
{
	return ((const struct orch_stream *)userdata)->reason != 0;
}

int32_t orch_stream_end_wait(orch_stream *stream, int64_t timeout_ms, uint32_t *ret_reason, orch_error **reterr)
{
	int32_t code = check(stream, reterr);
	if (code < 0)
		return code;
	orch_stream_ref(stream);
	orch_ctx *ctx = orch_ctx_ref(stream->ctx);
	code = orch_ctx_wait(ctx, timeout_ms, is_ended, stream, reterr);
	if (code == 0 && ret_reason)
		*ret_reason = stream->reason;
	orch_stream_unref(stream);
	orch_ctx_unref(ctx);
	return code;
}

/* --- looking --------------------------------------------------------------------------- */

uint32_t orch_stream_reason(const orch_stream *stream)
{
	return stream ? stream->reason : 0;
}

uint64_t orch_stream_bytes(const orch_stream *stream)
{
	return stream ? stream->bytes : 0;
}

uint64_t orch_stream_queued(const orch_stream *stream)
{
	return stream ? stream_waiting(stream) : 0;
}

const void *orch_stream_captured(orch_stream *stream, size_t *ret_length)
{
	if (stream)
		stream_trim(stream);
	if (ret_length)
		*ret_length = stream ? stream->kept.length : 0;
	return stream && stream->kept.data ? stream->kept.data : "";
}

void orch_stream_take_captured(orch_stream *stream, struct orch_buf *ret_bytes)
{
	stream_trim(stream);
	*ret_bytes = stream->kept;
	stream->kept = (struct orch_buf){0};
}

uint64_t orch_stream_dropped(const orch_stream *stream)
{
	if (!stream || stream->kind == ORCH_STREAM_INPUT)
		return 0;
	uint64_t wanted = stream->first_limit + stream->last_limit;
	return stream->bytes - (stream->kept.length < wanted ? stream->kept.length : wanted);
}
