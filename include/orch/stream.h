/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_STREAM_H
#define ORCH_STREAM_H

/*
 * orch_stream: what a program of a scope writes or reads, through a pipe or a terminal, in the host's context. It is
 * made first and given to one program, in orch_proc_opts.stdin_stream, .stdout_stream, .stderr_stream.
 *
 * The end of an output is exact: all that the program itself wrote before it exited is given to the host before
 * ORCH_PROC_EXITED, and a descendant that keeps the other end open delays neither that event nor the certificate.
 */

#include <orch/ctx.h>

ORCH_BEGIN_DECLS

typedef struct orch_stream orch_stream;

#define ORCH_STREAM_OUTPUT 1u /* a pipe that the program writes: stdout, stderr, or both of them */
#define ORCH_STREAM_INPUT 2u  /* a pipe that it reads: stdin */
#define ORCH_STREAM_PTY 3u    /* a terminal of its own, for any of the three; it controls the program's session */

/* How a stream ended. */
#define ORCH_STREAM_EOF 1u    /* output: nobody writes any more, and all was read; input: closed, and all was written */
#define ORCH_STREAM_CUT 2u    /* output: all of the program's own is there, somebody else still holds the other end;
			       * input: nobody reads any more, or the scope is over */
#define ORCH_STREAM_CLOSED 3u /* output, terminal: orch_stream_close() */
#define ORCH_STREAM_BROKEN 4u /* reading or writing failed, or there was no memory for it; it is in the log */

/*
 * What the program wrote. `bytes` is valid during the call. All four callbacks may drop the stream, pause, close and
 * write to it.
 */
typedef void (*orch_stream_data_fn)(void *userdata, orch_stream *stream, const void *bytes, size_t length);
/* The stream has ended, with ORCH_STREAM_EOF, _CUT, _CLOSED or _BROKEN: the last call. */
typedef void (*orch_stream_end_fn)(void *userdata, orch_stream *stream, uint32_t reason);
/* After ORCH_EBUSY of orch_stream_write(): at least half of the queue is free. */
typedef void (*orch_stream_writable_fn)(void *userdata, orch_stream *stream);

struct orch_stream_opts {
	uint32_t size;
	uint32_t flags;		      /* ORCH_STREAM_HOLD, ORCH_STREAM_PAUSED */
	uint32_t kind;		      /* ORCH_STREAM_OUTPUT, _INPUT, _PTY */
	uint32_t reserved;
	uint32_t rows;		      /* of a terminal, 65535 at most; 0: 24 */
	uint32_t columns;	      /* 0: 80 */
	uint64_t capture_first_bytes; /* so much of an output's beginning is kept, for orch_stream_captured() */
	uint64_t capture_last_bytes;  /* and so much of its end; together 4 GiB at most */
	uint64_t queue_limit_bytes;   /* input, terminal: so much waits here at most; 0: 65536; 1 GiB at most */
	orch_stream_data_fn data;     /* NULL: the output is read, counted and captured only */
	orch_stream_end_fn end;	      /* may be NULL */
	orch_stream_writable_fn writable; /* may be NULL */
	void *userdata;
	orch_destroy_fn destroy;
};

/*
 * It goes on after its program's exit, while somebody else holds the other end: until that ends, until
 * orch_stream_close(), or until the scope's certificate, which the ends of all its streams come before. Without this
 * flag whoever writes later gets SIGPIPE, or the hang-up of the terminal.
 */
#define ORCH_STREAM_HOLD 1u
/* It begins as after orch_stream_pause(). */
#define ORCH_STREAM_PAUSED 2u

/* As orch_ctx_opts_init(). Since 0.1. */
ORCH_API void orch_stream_opts_init(struct orch_stream_opts *opts, uint32_t size);

/*
 * Makes a stream. Both ends are close-on-exec; only the host's end does not block. Neither counts as the program's
 * before a spawn took it: then the host's copy of the program's end is closed. A stream that no program was given
 * never ends.
 *
 * ORCH_EINVAL: the message names the field; ORCH_ESYS: no pipe ("pipe") or terminal ("pty") could be made, mostly
 * because there is no file descriptor left (see orch_error_errno()); ORCH_ENOMEM; ORCH_E2BIG; ORCH_EFORKED.
 * `destroy` has been called then. Since 0.1.
 */
ORCH_API int32_t orch_stream_new(orch_ctx *ctx, const struct orch_stream_opts *opts, orch_stream **ret_stream,
				 orch_error **reterr);
ORCH_API orch_stream *orch_stream_ref(orch_stream *stream);
/*
 * A stream that a program has goes on without handles, with its callbacks, until it ends. NULL is fine. Since 0.1.
 */
ORCH_API orch_stream *orch_stream_unref(orch_stream *stream);

/*
 * Nothing is read until orch_stream_resume(): the pipe fills (64 KiB by default), then the program stands still in
 * write(2). Nothing is lost: what is in the pipe when the program exits is given after the resume, and if that
 * does not come, before the scope's certificate. A program that waits for room in a paused stream does not exit.
 *
 * ORCH_EINVAL: not an output or terminal; ORCH_ECLOSED: it has ended; ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_stream_pause(orch_stream *stream, orch_error **reterr);
/* Reads again, from the next turn on. Errors of orch_stream_pause(). Since 0.1. */
ORCH_API int32_t orch_stream_resume(orch_stream *stream, orch_error **reterr);

/*
 * Gives the program bytes to read; also before it is started. What the pipe or terminal does not take waits in the
 * queue. `ret_taken` (may be NULL): how many were taken, the first ones; all, if the call succeeds. No SIGPIPE is
 * raised. A terminal in its usual mode takes lines of 4095 bytes at most, control characters act (3 is ^C, 4 is
 * ^D), and what is typed is echoed.
 *
 * ORCH_EBUSY: the queue is full, `ret_taken` says what went in, and the writable callback comes when there is room
 * again; ORCH_ENOMEM: the same, and there was no memory for the queue; ORCH_ECLOSED: it was closed or has ended;
 * ORCH_EINVAL; ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_stream_write(orch_stream *stream, const void *bytes, size_t length, size_t *ret_taken,
				   orch_error **reterr);
/*
 * No more comes from the host. Input: what waits is still written, then the program reads end of file. Output: no
 * more is given to the host, and writing gets the program SIGPIPE. Terminal: it is hung up (SIGHUP). The end
 * callback comes in a later turn. A stream that is closed or has ended already stays so. (End of file on a terminal
 * is typed: byte 4 at the beginning of a line.)
 *
 * ORCH_EINVAL; ORCH_ENOMEM; ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_stream_close(orch_stream *stream, orch_error **reterr);
/*
 * The terminal has another size: SIGWINCH for its foreground process group. 1..65535.
 *
 * ORCH_EINVAL: no terminal, or no such size; ORCH_ECLOSED: it has ended; ORCH_ESYS; ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_stream_resize(orch_stream *stream, uint32_t rows, uint32_t columns, orch_error **reterr);
/*
 * Waits until it has ended. `ret_reason` (may be NULL): ORCH_STREAM_EOF and so on.
 *
 * ORCH_ETIMEDOUT; ORCH_EDEADLK; ORCH_EINVAL; ORCH_EFORKED; ORCH_EBUSY. Since 0.1.
 */
ORCH_API int32_t orch_stream_end_wait(orch_stream *stream, int64_t timeout_ms, uint32_t *ret_reason,
				      orch_error **reterr);

/* Why it ended, or 0: it has not. Since 0.1. */
ORCH_API uint32_t orch_stream_reason(const orch_stream *stream);
/* Bytes of the program's that were read; input: that went into the pipe. Since 0.1. */
ORCH_API uint64_t orch_stream_bytes(const orch_stream *stream);
/* Bytes that wait in the queue. After the end: that nobody will read. Since 0.1. */
ORCH_API uint64_t orch_stream_queued(const orch_stream *stream);
/*
 * What was kept: the first capture_first_bytes, and the last capture_last_bytes behind them. Not terminated. Valid
 * until the stream is read again or freed; never NULL. `ret_length` may be NULL. Since 0.1.
 */
ORCH_API const void *orch_stream_captured(orch_stream *stream, size_t *ret_length);
/*
 * Bytes that were read and not kept. They were between the first capture_first_bytes and the rest of
 * orch_stream_captured(). Since 0.1.
 */
ORCH_API uint64_t orch_stream_dropped(const orch_stream *stream);

ORCH_END_DECLS

#endif
