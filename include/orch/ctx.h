/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CTX_H
#define ORCH_CTX_H

/*
 * orch_ctx: the event loop that all handles live in. One thread owns a context at a time; from other
 * threads only orch_ctx_wakeup() and the *_unref() calls may be used (unref then queues the destruction
 * to the owner). Callbacks run only inside orch_ctx_run() and orch_ctx_process() and in the *_wait and
 * *_run forms of verbs, never inside a setter.
 *
 * The context never takes the host's signals, children, threads, working directory, environment or
 * standard streams. In a forked child every call gives ORCH_EFORKED and unref releases memory only.
 */

#include <orch/error.h>
#include <orch/version.h>

ORCH_BEGIN_DECLS

typedef struct orch_ctx orch_ctx;

#define ORCH_LOG_ERROR 1u
#define ORCH_LOG_WARNING 2u
#define ORCH_LOG_NOTICE 3u
#define ORCH_LOG_DEBUG 4u

/*
 * A log line. `message` has no newline and is valid during the call only. The callback may be called
 * from any call into the context and must not call the library.
 */
typedef void (*orch_log_fn)(void *userdata, uint32_t level, const char *message);

struct orch_ctx_opts {
	uint32_t size;  /* sizeof(struct orch_ctx_opts) */
	uint32_t flags; /* none defined: 0 */
	/*
	 * Absolute path of orch-reaper. NULL: beside the loaded library (build tree, wheel), then the
	 * installed libexec folder. Never the environment, never PATH. Copied.
	 */
	const char *helper_path;
	orch_log_fn log; /* NULL: no log */
	void *log_userdata;
	orch_destroy_fn log_destroy;
	uint32_t log_level; /* lines above this level are dropped; 0: ORCH_LOG_NOTICE */
	uint32_t reserved;
};

/*
 * Sets `opts` to the defaults. `size` is sizeof(*opts) as the caller was compiled, which may be another release
 * than the library: no more bytes are written, and a member that the library does not know is 0. All
 * orch_x_opts_init() do the same. Since 0.1.
 */
ORCH_API void orch_ctx_opts_init(struct orch_ctx_opts *opts, uint32_t size);

/*
 * Makes a context. `opts` may be NULL. No helper process and no thread is started.
 *
 * ORCH_EINVAL: helper_path is not absolute; ORCH_E2BIG: unknown option; ORCH_ESYS: epoll, eventfd or
 * timerfd failed (see orch_error_errno()); ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_ctx_new(const struct orch_ctx_opts *opts, orch_ctx **ret_ctx,
			      orch_error **reterr);
ORCH_API orch_ctx *orch_ctx_ref(orch_ctx *ctx);
/*
 * Drops a reference; the last one closes the loop, and with it the helper process and every scope that
 * is still alive (their load is killed). Takes NULL, returns NULL. Any thread. Since 0.1.
 */
ORCH_API orch_ctx *orch_ctx_unref(orch_ctx *ctx);

/*
 * Runs the loop until orch_ctx_quit() or until `timeout_ms` have passed (-1: no limit).
 *
 * 0: orch_ctx_quit() was called; ORCH_ETIMEDOUT: the time is over; ORCH_EDEADLK: called inside a
 * callback; ORCH_EFORKED; ORCH_EBUSY: another thread owns the context just now. Since 0.1.
 */
ORCH_API int32_t orch_ctx_run(orch_ctx *ctx, int64_t timeout_ms, orch_error **reterr);
/* Ends orch_ctx_run() after the callbacks that are due. For use inside callbacks. Since 0.1. */
ORCH_API int32_t orch_ctx_quit(orch_ctx *ctx);

/*
 * For embedding: a file descriptor that is readable (poll: POLLIN) while there is work, timers
 * included. Owned by the context: do not read, close or keep it. Negative ORCH_E* on failure. Since 0.1.
 */
ORCH_API int32_t orch_ctx_fd(orch_ctx *ctx);
/*
 * Does the work that is due, without blocking.
 *
 * ORCH_EDEADLK: called inside a callback; ORCH_EFORKED; ORCH_EBUSY. Since 0.1.
 */
ORCH_API int32_t orch_ctx_process(orch_ctx *ctx, orch_error **reterr);
/* Makes the fd readable and ends a blocking turn of orch_ctx_run(). Any thread. Since 0.1. */
ORCH_API int32_t orch_ctx_wakeup(orch_ctx *ctx);

ORCH_END_DECLS

#endif
