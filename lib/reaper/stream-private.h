/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_STREAM_PRIVATE_H
#define ORCH_STREAM_PRIVATE_H

/*
 * Inside lib/reaper. stream.c: a stream's life and calls; stream-flow.c: what goes through it, and its end. Ownership
 * is that of scope-private.h: handles are counted, and a scope knows (`attached`) the streams of its programs that
 * have not ended.
 */

#include <orch/stream.h>

#include "scope-private.h"

struct orch_stream {
	atomic_uint references;
	bool released;
	bool attached; /* in scope->streams; `scope` is valid */
	bool taken;    /* a program has, or had, the other end */
	orch_ctx *ctx;
	struct orch_scope *scope;
	struct orch_stream *next;
	uint32_t subject; /* the program's */

	uint32_t kind;
	uint32_t flags;
	int host_fd;
	int program_fd; /* until a program takes it */
	orch_source *source;
	orch_source *later; /* an end that a setter may not tell */

	bool paused;
	bool closing; /* the host asked for its end */
	bool exited;  /* the program has ended */
	uint64_t due; /* bytes that were there at the program's exit and were not given to the host yet */
	uint32_t reason;

	uint64_t bytes;
	uint64_t first_limit, last_limit;
	struct orch_buf kept; /* the first ones, and behind them at most twice as many of the last as are wanted */

	struct orch_buf queue;
	size_t queue_start; /* what is before it has been written */
	uint64_t queue_limit;
	bool wants_room; /* somebody was told ORCH_EBUSY */

	orch_stream_data_fn data;
	orch_stream_end_fn end;
	orch_stream_writable_fn writable;
	void *userdata;
	orch_destroy_fn destroy;
};

/* --- stream.c --- */

/* May it be the program's standard stream `index`? `name` is the option's. */
int32_t stream_check_use(const orch_stream *stream, const orch_ctx *ctx, int index, const char *name,
			 orch_error **reterr);
/* So that a program of that user can open its streams by name: /dev/stderr. */
void stream_hand_to(const struct orch_stream *stream, uint32_t uid);
/* The program got a copy of stream->program_fd. Twice is once. */
void stream_attach(struct orch_stream *stream, struct orch_scope *scope, uint32_t subject);
void stream_detach(struct orch_stream *stream);
void stream_drop_callbacks(struct orch_stream *stream);
void stream_close_ends(struct orch_stream *stream);
/* The context ends: callbacks are destroyed, not called. */
void streams_abandon(struct orch_scope *scope);

/* --- stream-flow.c --- */

void stream_ready(void *userdata, uint32_t events);
void stream_later(void *userdata);
/* Lets the source watch for what the stream wants. */
void stream_watch(struct orch_stream *stream);
size_t stream_waiting(const struct orch_stream *stream);
/* Leaves of the last bytes what is wanted. */
void stream_trim(struct orch_stream *stream);
/* What can be written without blocking; 0 also if it failed: then the source will say so. */
size_t stream_put_now(struct orch_stream *stream, const void *bytes, size_t length);
/*
 * Gives the host what the program left in the pipes, before it is told that the program has ended. `ran`: it may
 * have been started.
 */
void streams_program_over(struct orch_scope *scope, uint32_t subject, bool ran);
/* Ends them all. */
void streams_scope_over(struct orch_scope *scope);

#endif
