/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CORE_PRIVATE_H
#define ORCH_CORE_PRIVATE_H

/*
 * What every folder of the library may use: making errors, small memory helpers, and the one funnel through
 * which all event sources go. Nobody but lib/core calls ev_*.
 */

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <orch/ctx.h>
#include <orch/error.h>

/* --- errors ------------------------------------------------------------------------------------- */

/* Stores an error in *reterr (if reterr is not NULL) and returns `code`. `step` may be NULL. */
int32_t orch_fail(orch_error **reterr, int32_t code, int os_errno, const char *step, const char *format,
		  ...) __attribute__((format(printf, 5, 6)));
/* ORCH_ENOMEM, with no allocation that could fail in turn. */
int32_t orch_fail_memory(orch_error **reterr);
/* A deep copy; NULL gives NULL. */
orch_error *orch_error_copy(const orch_error *error);

/*
 * What every orch_x_opts_init() does. The program may be older or newer than the library: `size` is that of
 * its struct, and no byte more is written; what the library does not know is zero.
 */
void orch_opts_init(void *opts, uint32_t size, const void *defaults, size_t known_size);
/*
 * Checks an options structure: `size` as given by the caller against what this library knows. Copies it into
 * `known` (zero-filled past the caller's size). An unknown tail that is not zero gives ORCH_E2BIG, and `known` is
 * the head all the same: the caller has a destroy function to run. NULL opts leave `known` all zero but for its size.
 */
int32_t orch_opts_read(const void *opts, void *known, size_t known_size, const char *type_name,
		       orch_error **reterr);

/* --- cleanup ------------------------------------------------------------------------------------ */

static inline void orch_free_cleanup(void *pointer)
{
	free(*(void **)pointer);
}

static inline void orch_close_cleanup(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define _cleanup_free_ __attribute__((cleanup(orch_free_cleanup)))
#define _cleanup_close_ __attribute__((cleanup(orch_close_cleanup)))

static inline void *orch_steal_pointer(void *pointer)
{
	void *value = *(void **)pointer;
	*(void **)pointer = NULL;
	return value;
}
#define ORCH_STEAL(p) ((__typeof__(p))orch_steal_pointer(&(p)))

static inline int orch_steal_fd(int *fd)
{
	int value = *fd;
	*fd = -1;
	return value;
}

/* Closes, sets to -1. */
static inline void orch_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/*
 * In a child that this process forks, *fd is closed and -1: for descriptors that hold a lock, whose copies in a worker
 * would keep it after the owner's death. False without memory. Not for children of vfork(2) or a bare clone(2).
 */
bool orch_close_in_child(int *fd);
void orch_close_in_child_no_more(const int *fd);

/* --- growing byte string --------------------------------------------------------------------------- */

/* Always terminated by a NUL that is not counted; data is NULL while it is empty. Zero-initialise. */
struct orch_buf {
	char *data;
	size_t length;
	size_t capacity;
	bool failed; /* an allocation failed; later appends do nothing */
};

void orch_buf_add(struct orch_buf *buf, const void *bytes, size_t length);
void orch_buf_puts(struct orch_buf *buf, const char *text);
void orch_buf_printf(struct orch_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Drops `length` bytes from the front. */
void orch_buf_shift(struct orch_buf *buf, size_t length);
void orch_buf_free(struct orch_buf *buf);
#define _cleanup_buf_ __attribute__((cleanup(orch_buf_free)))

/* asprintf that returns NULL on failure. */
char *orch_strdup_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- time, random ----------------------------------------------------------------------------------- */

int64_t orch_monotonic_us(void);
int64_t orch_realtime_ms(void);
/* Kernel randomness as hexadecimal digits; `hex` has room for 2 * bytes + 1. */
void orch_random_hex(char *hex, size_t bytes);

/* --- companions of the library: helper programs, schemas -------------------------------------------- */

/*
 * The first path that fits, absolute, to be freed; NULL if none does. Tried in this order: each of `beside`
 * (NULL-terminated, relative to the folder of the library or, linked statically, of the program), `installed`
 * (relative to a prefix) in the prefix that the library is in, and in the one it was configured for.
 */
char *orch_place_find(const char *const *beside, const char *installed, bool (*fits)(const char *path));
/* The folder of the library, or of the program when linked statically; to be freed; NULL: not known. */
char *orch_place_own_dir(void);

/* --- context ---------------------------------------------------------------------------------------- */

/* 0, or ORCH_EFORKED in a child of the process that made it, or ORCH_EINVAL for NULL. */
int32_t orch_ctx_check(orch_ctx *ctx, orch_error **reterr);
bool orch_ctx_forked(const orch_ctx *ctx);
/* True while the calling thread is in a turn of any context: inside a callback. For waiting calls without a context. */
bool orch_in_callback(void);
const char *orch_ctx_helper_path(const orch_ctx *ctx); /* the option, or NULL */
/*
 * For what lives in a context without a handle that anybody holds: `end` is called when the context goes, before
 * its helper and its loop, and takes it off by itself. Only in the thread of the loop.
 */
struct orch_ending {
	struct orch_ending *next;
	void (*end)(void *userdata);
	void *userdata;
};
void orch_ctx_add_ending(orch_ctx *ctx, struct orch_ending *ending);
void orch_ctx_remove_ending(orch_ctx *ctx, struct orch_ending *ending);
void orch_ctx_logf(orch_ctx *ctx, uint32_t level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * For *_wait forms: runs the loop until done(userdata) is true. ORCH_ETIMEDOUT, ORCH_EDEADLK, ORCH_EFORKED,
 * ORCH_EBUSY. timeout_ms -1: no limit.
 */
int32_t orch_ctx_wait(orch_ctx *ctx, int64_t timeout_ms, bool (*done)(void *userdata), void *userdata,
		      orch_error **reterr);

/*
 * Runs destroy(object) now if the calling thread owns the loop or nobody runs it; otherwise in the owner's next
 * turn. For the end of reference counted handles.
 */
void orch_ctx_destroy_later(orch_ctx *ctx, void (*destroy)(void *object), void *object);

/*
 * For what other threads have to tell. A letter is part of what it is about, so that posting it cannot fail for want of
 * memory. It arrives exactly once: in a turn of the context, or with `open` false where the context ends before that.
 * Whoever posts holds the mailbox, not the context.
 */
typedef struct orch_mailbox orch_mailbox;

struct orch_letter {
	struct orch_letter *next;
	void (*arrive)(struct orch_letter *letter, bool open);
};

/* The context's own, borrowed. */
orch_mailbox *orch_ctx_mailbox(const orch_ctx *ctx);
/* True if the calling thread owns the context, or owned it last. False as well if it is gone. */
bool orch_mailbox_is_mine(orch_mailbox *mailbox);
orch_mailbox *orch_mailbox_ref(orch_mailbox *mailbox);
orch_mailbox *orch_mailbox_unref(orch_mailbox *mailbox);
/* Any thread. False: the context is gone, and the letter never arrives. */
bool orch_mailbox_post(orch_mailbox *mailbox, struct orch_letter *letter);

/* One slot for the context's orch-reaper; lib/reaper sets it. `end` runs when the context ends. */
void *orch_ctx_reaper(const orch_ctx *ctx);
void orch_ctx_set_reaper(orch_ctx *ctx, void *reaper, void (*end)(void *reaper));

/* --- event sources ----------------------------------------------------------------------------------- */

#define ORCH_IO_READ 1u
#define ORCH_IO_WRITE 2u

typedef struct orch_source orch_source;

/* `events` that are ready. */
typedef void (*orch_io_fn)(void *userdata, uint32_t events);
typedef void (*orch_timer_fn)(void *userdata);

/*
 * Sources do not own their fd and hold no reference on the context: remove them before closing either.
 * They may be removed in any callback, their own included. One source per fd.
 */
int32_t orch_source_io(orch_ctx *ctx, int fd, uint32_t events, orch_io_fn fn, void *userdata,
		       orch_source **ret_source, orch_error **reterr);
/* 0 pauses it. */
void orch_source_io_set(orch_source *source, uint32_t events);
/* One shot, in `delay_ms`; 0: in the next turn; -1: made but not armed. */
int32_t orch_source_timer(orch_ctx *ctx, int64_t delay_ms, orch_timer_fn fn, void *userdata,
			  orch_source **ret_source, orch_error **reterr);
/* Arms it again (also inside its callback); -1 disarms. */
void orch_source_timer_set(orch_source *source, int64_t delay_ms);
/* Takes NULL, returns NULL. In a forked child it only frees. */
orch_source *orch_source_remove(orch_source *source);

#endif
