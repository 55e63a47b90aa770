/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <ev.h>
#include <pthread.h>
#include <stdio.h>

#include "core-private.h"
#include "mailbox.h"
#include "mirror.h"

enum source_type { SOURCE_IO, SOURCE_TIMER };

struct orch_source {
	orch_ctx *ctx;
	enum source_type type;
	union {
		struct {
			ev_io watcher;
			orch_io_fn fn;
			uint32_t events;
			int fd;
		} io;
		struct {
			ev_timer watcher;
			orch_timer_fn fn;
			int64_t due_us; /* CLOCK_MONOTONIC; -1: not armed */
		} timer;
	};
	void *userdata;
	struct orch_source *next, *previous;
};

struct destruction {
	void (*destroy)(void *object);
	void *object;
	struct destruction *next;
};

struct orch_ctx {
	atomic_uint references;
	pid_t pid; /* of the process that made it */
	struct ev_loop *loop;
	struct mirror *mirror;
	orch_source *wakeup_source;
	orch_mailbox *mailbox;
	struct orch_source *timers; /* all of them, armed or not */
	char *helper_path;
	orch_log_fn log;
	void *log_userdata;
	orch_destroy_fn log_destroy;
	uint32_t log_level;
	bool quit;
	void *reaper;
	void (*reaper_end)(void *reaper);
	struct orch_ending *endings;

	pthread_mutex_t lock; /* the members below */
	bool running;
	pthread_t owner;
	struct destruction *destructions;
};

void orch_ctx_opts_init(struct orch_ctx_opts *opts, uint32_t size)
{
	const struct orch_ctx_opts defaults = {.log_level = ORCH_LOG_NOTICE};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

bool orch_ctx_forked(const orch_ctx *ctx)
{
	return ctx->pid != getpid();
}

int32_t orch_ctx_check(orch_ctx *ctx, orch_error **reterr)
{
	if (!ctx)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the context is NULL");
	if (orch_ctx_forked(ctx))
		return orch_fail(reterr, ORCH_EFORKED, 0, NULL,
				 "the context belongs to process %d, this is its forked child %d: make a "
				 "new context after fork",
				 (int)ctx->pid, (int)getpid());
	return 0;
}

const char *orch_ctx_helper_path(const orch_ctx *ctx)
{
	return ctx->helper_path;
}

void *orch_ctx_reaper(const orch_ctx *ctx)
{
	return ctx->reaper;
}

void orch_ctx_set_reaper(orch_ctx *ctx, void *reaper, void (*end)(void *reaper))
{
	ctx->reaper = reaper;
	ctx->reaper_end = end;
}

void orch_ctx_add_ending(orch_ctx *ctx, struct orch_ending *ending)
{
	ending->next = ctx->endings;
	ctx->endings = ending;
}

void orch_ctx_remove_ending(orch_ctx *ctx, struct orch_ending *ending)
{
	struct orch_ending **link = &ctx->endings;
	while (*link && *link != ending)
		link = &(*link)->next;
	if (*link)
		*link = ending->next;
}

void orch_ctx_logf(orch_ctx *ctx, uint32_t level, const char *format, ...)
{
	if (!ctx->log || level > ctx->log_level)
		return;
	va_list arguments;
	va_start(arguments, format);
	_cleanup_free_ char *text = NULL;
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	if (text)
		ctx->log(ctx->log_userdata, level, text);
}

static void drop_log(const struct orch_ctx_opts *opts)
{
	if (opts->log_destroy)
		opts->log_destroy(opts->log_userdata);
}

static void on_wakeup(void *userdata, uint32_t events)
{
	orch_ctx *ctx = userdata;
	(void)events;
	mirror_drain(ctx->mirror);
	mailbox_open_letters(ctx->mailbox);
}

int32_t orch_ctx_new(const struct orch_ctx_opts *opts, orch_ctx **ret_ctx, orch_error **reterr)
{
	struct orch_ctx_opts known;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_ctx_opts", reterr);
	if (code < 0) {
		drop_log(&known);
		return code;
	}
	if (!ret_ctx || (known.helper_path && known.helper_path[0] != '/')) {
		drop_log(&known);
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s",
				 ret_ctx ? "orch_ctx_opts.helper_path must be absolute" : "ret_ctx is NULL");
	}
	orch_ctx *ctx = calloc(1, sizeof(*ctx));
	if (!ctx) {
		drop_log(&known);
		return orch_fail_memory(reterr);
	}
	atomic_init(&ctx->references, 1);
	ctx->pid = getpid();
	ctx->owner = pthread_self();
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->log = known.log;
	ctx->log_userdata = known.log_userdata;
	ctx->log_destroy = known.log_destroy;
	ctx->log_level = known.log_level ? known.log_level : ORCH_LOG_NOTICE;
	if (known.helper_path && !(ctx->helper_path = strdup(known.helper_path))) {
		orch_ctx_unref(ctx);
		return orch_fail_memory(reterr);
	}
	/* Never the default loop: it would take SIGCHLD and wait on every child of the host. */
	ctx->loop = ev_loop_new(EVFLAG_NOENV | ev_recommended_backends());
	if (!ctx->loop) {
		orch_ctx_unref(ctx);
		return orch_fail(reterr, ORCH_ESYS, errno, "loop", "the event loop could not be made");
	}
	code = mirror_new(&ctx->mirror, reterr);
	if (code == 0 && !(ctx->mailbox = mailbox_new(ctx, ctx->mirror)))
		code = orch_fail_memory(reterr);
	if (code == 0)
		code = orch_source_io(ctx, mirror_wakeup_fd(ctx->mirror), ORCH_IO_READ, on_wakeup, ctx,
				      &ctx->wakeup_source, reterr);
	if (code < 0) {
		orch_ctx_unref(ctx);
		return code;
	}
	*ret_ctx = ctx;
	return 0;
}

orch_ctx *orch_ctx_ref(orch_ctx *ctx)
{
	if (ctx)
		atomic_fetch_add(&ctx->references, 1);
	return ctx;
}

static void run_destructions(orch_ctx *ctx)
{
	for (;;) {
		pthread_mutex_lock(&ctx->lock);
		struct destruction *list = ctx->destructions;
		ctx->destructions = NULL;
		pthread_mutex_unlock(&ctx->lock);
		if (!list)
			return;
		while (list) {
			struct destruction *next = list->next;
			list->destroy(list->object);
			free(list);
			list = next;
		}
	}
}

static void ctx_destroy(void *object)
{
	orch_ctx *ctx = object;
	bool forked = orch_ctx_forked(ctx);

	/* In a forked child its lock may be held by a thread that is not there. */
	if (ctx->mailbox && !forked)
		mailbox_close(ctx->mailbox);
	while (ctx->endings) {
		struct orch_ending *ending = ctx->endings;
		ctx->endings = ending->next;
		ending->end(ending->userdata);
	}
	if (ctx->reaper_end)
		ctx->reaper_end(ctx->reaper);
	orch_source_remove(ctx->wakeup_source);
	orch_mailbox_unref(ctx->mailbox);
	if (ctx->mirror)
		mirror_free(ctx->mirror, forked);
	/* ev_loop_destroy() closes the epoll fd, which in a forked child is the child's own copy, but it also
	 * walks state that epoll_ctl would follow into the parent's set: leave it there. */
	if (ctx->loop && !forked)
		ev_loop_destroy(ctx->loop);
	if (ctx->log_destroy)
		ctx->log_destroy(ctx->log_userdata);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx->helper_path);
	free(ctx);
}

orch_ctx *orch_ctx_unref(orch_ctx *ctx)
{
	if (!ctx || atomic_fetch_sub(&ctx->references, 1) != 1)
		return NULL;
	if (orch_ctx_forked(ctx)) {
		ctx_destroy(ctx);
		return NULL;
	}
	run_destructions(ctx);
	ctx_destroy(ctx);
	return NULL;
}

orch_mailbox *orch_ctx_mailbox(const orch_ctx *ctx)
{
	return ctx->mailbox;
}

bool ctx_is_mine(orch_ctx *ctx)
{
	pthread_mutex_lock(&ctx->lock);
	bool mine = pthread_equal(ctx->owner, pthread_self());
	pthread_mutex_unlock(&ctx->lock);
	return mine;
}

void orch_ctx_destroy_later(orch_ctx *ctx, void (*destroy)(void *object), void *object)
{
	if (orch_ctx_forked(ctx)) {
		destroy(object);
		return;
	}
	pthread_mutex_lock(&ctx->lock);
	bool mine = pthread_equal(ctx->owner, pthread_self());
	if (mine) {
		pthread_mutex_unlock(&ctx->lock);
		destroy(object);
		return;
	}
	struct destruction *entry = calloc(1, sizeof(*entry));
	if (entry) {
		entry->destroy = destroy;
		entry->object = object;
		entry->next = ctx->destructions;
		ctx->destructions = entry;
	}
	pthread_mutex_unlock(&ctx->lock);
	/* Without memory the object leaks: the alternative would be to touch the loop from a foreign thread. */
	mirror_wakeup(ctx->mirror);
}

/* Takes the loop for the calling thread. */
static int32_t ctx_enter(orch_ctx *ctx, orch_error **reterr)
{
	int32_t code = orch_ctx_check(ctx, reterr);
	if (code < 0)
		return code;
	pthread_mutex_lock(&ctx->lock);
	bool running = ctx->running;
	bool mine = pthread_equal(ctx->owner, pthread_self());
	if (!running) {
		ctx->running = true;
		ctx->owner = pthread_self();
	}
	pthread_mutex_unlock(&ctx->lock);
	if (running && mine)
		return orch_fail(reterr, ORCH_EDEADLK, 0, NULL,
				 "a waiting call was made inside a callback: use the callback form");
	if (running)
		return orch_fail(reterr, ORCH_EBUSY, 0, NULL,
				 "another thread runs this context just now: one owner at a time");
	return 0;
}

static void ctx_leave(orch_ctx *ctx)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->running = false;
	pthread_mutex_unlock(&ctx->lock);
}

/* The earliest armed timer goes to the mirror, so that a foreign loop wakes up for it. */
static void mirror_next_timer(orch_ctx *ctx)
{
	int64_t next_us = -1;
	for (orch_source *timer = ctx->timers; timer; timer = timer->next)
		if (timer->timer.due_us >= 0 && (next_us < 0 || timer->timer.due_us < next_us))
			next_us = timer->timer.due_us;
	mirror_set_timer(ctx->mirror, next_us);
}

/* Turns that the thread is in: one context's callback may run another context. */
static _Thread_local unsigned turns;

bool orch_in_callback(void)
{
	return turns != 0;
}

static void turn(orch_ctx *ctx, int flags)
{
	turns++;
	run_destructions(ctx);
	ev_run(ctx->loop, flags);
	run_destructions(ctx);
	turns--;
}

static void on_deadline(void *userdata)
{
	*(bool *)userdata = true;
}

static bool quit_requested(void *userdata)
{
	return ((orch_ctx *)userdata)->quit;
}

int32_t orch_ctx_wait(orch_ctx *ctx, int64_t timeout_ms, bool (*done)(void *userdata), void *userdata,
		      orch_error **reterr)
{
	int32_t code = ctx_enter(ctx, reterr);
	if (code < 0)
		return code;
	orch_ctx_ref(ctx);
	bool expired = false;
	orch_source *deadline = NULL;
	if (timeout_ms >= 0)
		code = orch_source_timer(ctx, timeout_ms, on_deadline, &expired, &deadline, reterr);
	while (code == 0 && !done(userdata) && !expired)
		turn(ctx, EVRUN_ONCE);
	if (code == 0 && !done(userdata))
		code = orch_fail(reterr, ORCH_ETIMEDOUT, 0, NULL, "not done after %lld ms",
				 (long long)timeout_ms);
	orch_source_remove(deadline);
	mirror_settle(ctx->mirror);
	mirror_next_timer(ctx);
	ctx_leave(ctx);
	orch_ctx_unref(ctx);
	return code;
}

int32_t orch_ctx_run(orch_ctx *ctx, int64_t timeout_ms, orch_error **reterr)
{
	int32_t code = orch_ctx_check(ctx, reterr);
	if (code < 0)
		return code;
	code = orch_ctx_wait(ctx, timeout_ms, quit_requested, ctx, reterr);
	if (code == 0)
		ctx->quit = false;
	return code;
}

int32_t orch_ctx_quit(orch_ctx *ctx)
{
	int32_t code = orch_ctx_check(ctx, NULL);
	if (code < 0)
		return code;
	ctx->quit = true;
	return orch_ctx_wakeup(ctx);
}

int32_t orch_ctx_fd(orch_ctx *ctx)
{
	int32_t code = orch_ctx_check(ctx, NULL);
	if (code < 0)
		return code;
	mirror_settle(ctx->mirror);
	mirror_next_timer(ctx);
	return mirror_fd(ctx->mirror);
}

int32_t orch_ctx_process(orch_ctx *ctx, orch_error **reterr)
{
	int32_t code = ctx_enter(ctx, reterr);
	if (code < 0)
		return code;
	orch_ctx_ref(ctx);
	turn(ctx, EVRUN_NOWAIT);
	mirror_settle(ctx->mirror);
	mirror_next_timer(ctx);
	ctx_leave(ctx);
	orch_ctx_unref(ctx);
	return 0;
}

int32_t orch_ctx_wakeup(orch_ctx *ctx)
{
	int32_t code = orch_ctx_check(ctx, NULL);
	if (code == 0)
		mirror_wakeup(ctx->mirror);
	return code;
}

/* --- sources --------------------------------------------------------------------------------------- */

static void on_io(struct ev_loop *loop, ev_io *watcher, int revents)
{
	orch_source *source = watcher->data;
	uint32_t events = 0;
	(void)loop;
	if (revents & EV_READ)
		events |= ORCH_IO_READ;
	if (revents & EV_WRITE)
		events |= ORCH_IO_WRITE;
	source->io.fn(source->userdata, events);
}

static int ev_events(uint32_t events)
{
	return (events & ORCH_IO_READ ? EV_READ : 0) | (events & ORCH_IO_WRITE ? EV_WRITE : 0);
}

int32_t orch_source_io(orch_ctx *ctx, int fd, uint32_t events, orch_io_fn fn, void *userdata,
		       orch_source **ret_source, orch_error **reterr)
{
	orch_source *source = calloc(1, sizeof(*source));
	if (!source)
		return orch_fail_memory(reterr);
	int error = mirror_add(ctx->mirror, fd, events);
	if (error) {
		free(source);
		return orch_fail(reterr, ORCH_ESYS, error, "loop", "file descriptor %d can not be watched",
				 fd);
	}
	source->ctx = ctx;
	source->type = SOURCE_IO;
	source->userdata = userdata;
	source->io.fn = fn;
	source->io.fd = fd;
	source->io.events = events;
	ev_io_init(&source->io.watcher, on_io, fd, ev_events(events));
	source->io.watcher.data = source;
	if (events)
		ev_io_start(ctx->loop, &source->io.watcher);
	*ret_source = source;
	return 0;
}

void orch_source_io_set(orch_source *source, uint32_t events)
{
	if (source->io.events == events)
		return;
	source->io.events = events;
	ev_io_stop(source->ctx->loop, &source->io.watcher);
	ev_io_set(&source->io.watcher, source->io.fd, ev_events(events));
	if (events)
		ev_io_start(source->ctx->loop, &source->io.watcher);
	mirror_modify(source->ctx->mirror, source->io.fd, events);
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int revents)
{
	orch_source *source = watcher->data;
	(void)loop, (void)revents;
	source->timer.due_us = -1;
	source->timer.fn(source->userdata);
}

void orch_source_timer_set(orch_source *source, int64_t delay_ms)
{
	orch_ctx *ctx = source->ctx;
	ev_timer_stop(ctx->loop, &source->timer.watcher);
	source->timer.due_us = -1;
	if (delay_ms >= 0) {
		source->timer.due_us = orch_monotonic_us() + delay_ms * 1000;
		ev_now_update(ctx->loop);
		ev_timer_set(&source->timer.watcher, (double)delay_ms / 1000.0, 0.0);
		ev_timer_start(ctx->loop, &source->timer.watcher);
	}
	if (!ctx->running)
		mirror_next_timer(ctx);
}

int32_t orch_source_timer(orch_ctx *ctx, int64_t delay_ms, orch_timer_fn fn, void *userdata,
			  orch_source **ret_source, orch_error **reterr)
{
	orch_source *source = calloc(1, sizeof(*source));
	if (!source)
		return orch_fail_memory(reterr);
	source->ctx = ctx;
	source->type = SOURCE_TIMER;
	source->userdata = userdata;
	source->timer.fn = fn;
	source->timer.due_us = -1;
	ev_init(&source->timer.watcher, on_timer);
	source->timer.watcher.data = source;
	source->next = ctx->timers;
	if (ctx->timers)
		ctx->timers->previous = source;
	ctx->timers = source;
	orch_source_timer_set(source, delay_ms);
	*ret_source = source;
	return 0;
}

orch_source *orch_source_remove(orch_source *source)
{
	if (!source)
		return NULL;
	orch_ctx *ctx = source->ctx;
	bool forked = orch_ctx_forked(ctx);
	if (source->type == SOURCE_IO) {
		if (!forked) {
			ev_io_stop(ctx->loop, &source->io.watcher);
			mirror_remove(ctx->mirror, source->io.fd);
		}
	} else {
		if (!forked)
			ev_timer_stop(ctx->loop, &source->timer.watcher);
		if (source->previous)
			source->previous->next = source->next;
		else
			ctx->timers = source->next;
		if (source->next)
			source->next->previous = source->previous;
	}
	free(source);
	return NULL;
}
