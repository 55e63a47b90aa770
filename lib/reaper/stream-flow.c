/* SPDX-License-Identifier: Apache-2.0 */
/* What goes through a stream, and how it ends. */
#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "../core/os.h"
#include "stream-ends.h"
#include "stream-private.h"

#define READ_BYTES 65536
/*
 * A terminal does not tell how much it holds: FIONREAD leaves out what the line discipline has not seen yet. It is less
 * than this: 8 KiB between its two ends and 4 KiB in the line discipline (Linux, pty.c and n_tty.c).
 */
#define TERMINAL_HOLDS 65536

/* --- the end --------------------------------------------------------------------------- */

/* The caller has a reference. */
static void end(struct orch_stream *stream, uint32_t reason)
{
	if (stream->reason)
		return;
	stream_close_ends(stream);
	stream->reason = reason;
	if (stream->attached)
		stream_detach(stream);
	if (stream->end)
		stream->end(stream->userdata, stream, reason);
	stream_drop_callbacks(stream);
}

static void end_broken(struct orch_stream *stream, const char *what, int error)
{
	char room[128];
	orch_ctx_logf(stream->ctx, ORCH_LOG_ERROR, "%s: %s a stream failed: %s",
		      stream->scope ? stream->scope->name : "no scope", what,
		      orch_errno_text(error, room, sizeof(room)));
	end(stream, ORCH_STREAM_BROKEN);
}

static bool is_read(const struct orch_stream *stream)
{
	return stream->kind != ORCH_STREAM_INPUT;
}

void stream_watch(struct orch_stream *stream)
{
	uint32_t events = 0;
	if (!stream->source)
		return;
	if (is_read(stream) && stream->taken && !stream->paused && !stream->closing)
		events |= ORCH_IO_READ;
	if (stream_waiting(stream))
		events |= ORCH_IO_WRITE;
	orch_source_io_set(stream->source, events);
}

/* --- reading --------------------------------------------------------------------------- */

void stream_trim(struct orch_stream *stream)
{
	struct orch_buf *kept = &stream->kept;
	size_t wanted = (size_t)(stream->first_limit + stream->last_limit);
	if (kept->length <= wanted)
		return;
	memmove(kept->data + stream->first_limit, kept->data + kept->length - stream->last_limit,
		(size_t)stream->last_limit);
	kept->length = wanted;
	kept->data[wanted] = '\0';
}

static void keep(struct orch_stream *stream, const char *bytes, size_t length)
{
	struct orch_buf *kept = &stream->kept;
	size_t first = 0;
	if (kept->length < stream->first_limit) {
		uint64_t room = stream->first_limit - kept->length;
		first = length < room ? length : (size_t)room;
		orch_buf_add(kept, bytes, first);
	}
	size_t rest = length - first;
	if (rest > stream->last_limit)
		rest = (size_t)stream->last_limit;
	if (rest == 0)
		return;
	/* So seldom that each byte is moved about once. */
	if (kept->length + rest > stream->first_limit + 2 * stream->last_limit)
		stream_trim(stream);
	orch_buf_add(kept, bytes + length - rest, rest);
}

static void take(struct orch_stream *stream, const char *bytes, size_t length)
{
	stream->bytes += length;
	stream->due = length < stream->due ? stream->due - length : 0;
	keep(stream, bytes, length);
	if (stream->data)
		stream->data(stream->userdata, stream, bytes, length);
	if (stream->kept.failed)
		end_broken(stream, "keeping the output of", ENOMEM);
}

/* False: nothing more comes, for now or for good. */
static bool read_once(struct orch_stream *stream)
{
	char bytes[READ_BYTES];
	size_t most = stream->due && stream->due < sizeof(bytes) ? (size_t)stream->due : sizeof(bytes);
	ssize_t got = read(stream->host_fd, bytes, most);
	if (got < 0 && errno == EINTR)
		return true;
	if (got < 0 && errno == EAGAIN)
		return false;
	/* A terminal that nobody has open any more gives EIO on Linux. */
	if (got == 0 || (got < 0 && errno == EIO && stream->kind == ORCH_STREAM_PTY)) {
		end(stream, ORCH_STREAM_EOF);
		return false;
	}
	if (got < 0) {
		end_broken(stream, "reading", errno);
		return false;
	}
	take(stream, bytes, (size_t)got);
	return stream->reason == 0;
}

static bool nobody_writes(const struct orch_stream *stream)
{
	struct pollfd poll_fd = {.fd = stream->host_fd, .events = POLLIN};
	return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & POLLHUP;
}

static uint64_t bytes_inside(const struct orch_stream *stream)
{
	int count = 0;
	if (stream->kind == ORCH_STREAM_PTY)
		return TERMINAL_HOLDS;
	return ioctl(stream->host_fd, FIONREAD, &count) == 0 && count > 0 ? (uint64_t)count : 0;
}

/*
 * What was there when the program, or the scope, had ended. Somebody who goes on writing does not make it longer: only
 * where nobody is left it goes on to the end of file. `last`: whatever the host said, this is the end.
 */
static void drain(struct orch_stream *stream, bool last)
{
	while (!stream->reason && !stream->closing && (last || !stream->paused))
		if ((!stream->due && !nobody_writes(stream)) || !read_once(stream))
			break;
	if (stream->closing)
		end(stream, ORCH_STREAM_CLOSED);
	else if (last || (!stream->paused && !(stream->flags & ORCH_STREAM_HOLD)))
		end(stream, ORCH_STREAM_CUT);
}

/* --- writing --------------------------------------------------------------------------- */

size_t stream_waiting(const struct orch_stream *stream)
{
	return stream->queue.length - stream->queue_start;
}

size_t stream_put_now(struct orch_stream *stream, const void *bytes, size_t length)
{
	ssize_t put;
	do
		put = stream_put(stream->host_fd, bytes, length);
	while (put < 0 && errno == EINTR);
	if (put <= 0)
		return 0;
	if (stream->kind == ORCH_STREAM_INPUT)
		stream->bytes += (uint64_t)put;
	return (size_t)put;
}

static void drop_written(struct orch_stream *stream, size_t length)
{
	stream->queue_start += length;
	if (stream_waiting(stream) == 0) {
		orch_buf_free(&stream->queue);
		stream->queue_start = 0;
	} else if (stream->queue_start > stream->queue.length / 2) {
		orch_buf_shift(&stream->queue, stream->queue_start);
		stream->queue_start = 0;
	}
}

static void write_queue(struct orch_stream *stream)
{
	if (stream_waiting(stream) == 0)
		return;
	errno = EAGAIN; /* where nothing went in and nothing failed */
	size_t put = stream_put_now(stream, stream->queue.data + stream->queue_start, stream_waiting(stream));
	if (put == 0 && errno != EAGAIN) {
		/* Of a terminal the reading side tells the end. */
		if (stream->kind == ORCH_STREAM_PTY)
			drop_written(stream, stream_waiting(stream));
		else if (errno == EPIPE)
			end(stream, ORCH_STREAM_CUT);
		else
			end_broken(stream, "writing", errno);
		return;
	}
	drop_written(stream, put);
	size_t waiting = stream_waiting(stream);
	if (waiting == 0 && stream->closing) {
		end(stream, is_read(stream) ? ORCH_STREAM_CLOSED : ORCH_STREAM_EOF);
	} else if (stream->wants_room && waiting <= stream->queue_limit / 2) {
		stream->wants_room = false;
		if (stream->writable)
			stream->writable(stream->userdata, stream);
	}
}

/* --- events ---------------------------------------------------------------------------- */

/* One read and one write a turn: a program that never stops must not hold the loop. */
void stream_ready(void *userdata, uint32_t events)
{
	struct orch_stream *stream = orch_stream_ref(userdata);
	if (events & ORCH_IO_WRITE)
		write_queue(stream);
	if (events & ORCH_IO_READ && is_read(stream) && !stream->reason && !stream->paused && !stream->closing) {
		if (stream->exited && !(stream->flags & ORCH_STREAM_HOLD))
			drain(stream, false);
		else
			read_once(stream);
	}
	stream_watch(stream);
	orch_stream_unref(stream);
}

void stream_later(void *userdata)
{
	struct orch_stream *stream = orch_stream_ref(userdata);
	/* What a program that is yet to come will read has to stay. */
	if (is_read(stream))
		end(stream, ORCH_STREAM_CLOSED);
	else if (stream->taken && stream_waiting(stream) == 0)
		end(stream, ORCH_STREAM_EOF);
	orch_stream_unref(stream);
}

static void end_input(struct orch_stream *stream)
{
	end(stream, stream->closing && stream_waiting(stream) == 0 ? ORCH_STREAM_EOF : ORCH_STREAM_CUT);
}

static void program_over(struct orch_stream *stream, bool ran)
{
	stream->exited = true;
	if (is_read(stream) && !ran && !stream->closing) {
		/* The child that was to become the program may still be on its way out: nobody else has the end. */
		end(stream, ORCH_STREAM_EOF);
	} else if (is_read(stream)) {
		stream->due = bytes_inside(stream);
		drain(stream, false);
	} else if (!(stream->flags & ORCH_STREAM_HOLD)) {
		end_input(stream);
	}
}

void streams_program_over(struct orch_scope *scope, uint32_t subject, bool ran)
{
	for (;;) {
		/* From the beginning each time: a callback may end any of them. */
		struct orch_stream *stream = scope->streams;
		while (stream && (stream->subject != subject || stream->exited))
			stream = stream->next;
		if (!stream)
			return;
		orch_stream_ref(stream);
		program_over(stream, ran);
		orch_stream_unref(stream);
	}
}

void streams_scope_over(struct orch_scope *scope)
{
	while (scope->streams) {
		struct orch_stream *stream = orch_stream_ref(scope->streams);
		stream->exited = true;
		if (is_read(stream)) {
			stream->due = bytes_inside(stream);
			drain(stream, true);
		} else {
			end_input(stream);
		}
		orch_stream_unref(stream);
	}
}
