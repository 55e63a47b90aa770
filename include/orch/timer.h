/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TIMER_H
#define ORCH_TIMER_H

/*
 * Timers that survive the coordinator. A timer is due at a time of the wall clock, or a while from now:
 *
 *	due_at_ms  when the wall clock says so, however it was stepped
 *	delay_ms   when so much time has passed, suspend included: in the boot in which it was set no step of the
 *		   clock makes it earlier or later; after a reboot what the wall clock leaves of it, never more than
 *		   the whole delay again
 *
 * What is left of the delays after a reboot is written down by the first orch_timer_next() or watch: a further record of
 * the same round, and from then on no step of the clock matters again. A further reboot never makes it longer.
 *
 * A due timer stays due until orch_timer_done(): killed in between, it is due again after the restart. What it starts
 * is best an action whose key names the timer and its round.
 */

#include <orch/journal.h>

ORCH_BEGIN_DECLS

typedef struct orch_timer orch_timer;
typedef struct orch_timer_watch orch_timer_watch;

#define ORCH_TIMER_PENDING 1u
#define ORCH_TIMER_DONE 2u
#define ORCH_TIMER_CANCELED 3u

struct orch_timer_opts {
	uint32_t size;
	uint32_t flags;         /* none defined: 0 */
	const char *name;       /* unique in the journal; 1..255 bytes, UTF-8 */
	int64_t due_at_ms;      /* milliseconds since 1970, at most the year 9999; 0: delay_ms counts */
	int64_t delay_ms;       /* 0 or more, at most 100 years */
	const void *payload;    /* copied; at most 4096 bytes */
	size_t payload_length;
};

ORCH_API void orch_timer_opts_init(struct orch_timer_opts *opts, uint32_t size);
/*
 * Sets a timer, or sets it anew under the same name: its round rises by 1, and what is known of an earlier round
 * can neither end nor cancel it. `ret_timer` may be NULL. ORCH_EINVAL: both times are set, or one is negative or
 * too far; ORCH_ETOOBIG: payload; ORCH_ESTATE: read-only; other errors as for orch_journal_begin(). Since 0.1.
 */
ORCH_API int32_t orch_timer_set(orch_journal *journal, const struct orch_timer_opts *opts,
				orch_timer **ret_timer, orch_error **reterr);
/*
 * What the timer was for is done. ORCH_ESTATE: it is not pending in this round any more. Other errors as for the
 * transitions of an action. Since 0.1.
 */
ORCH_API int32_t orch_timer_done(orch_timer *timer, orch_error **reterr);
/* As orch_timer_done(), for what is not wanted any more. Since 0.1. */
ORCH_API int32_t orch_timer_cancel(orch_timer *timer, orch_error **reterr);
/* ORCH_ENOENT, ORCH_EPOISONED, ORCH_EFORKED, ORCH_ECORRUPT, ORCH_EINVAL, ORCH_ENOMEM. Since 0.1. */
ORCH_API int32_t orch_timer_find(orch_journal *journal, const char *name, orch_timer **ret_timer,
				 orch_error **reterr);
/* Return 0 to go on, another value to end the walk with that value. The timer is borrowed. */
typedef int32_t (*orch_timer_each_fn)(void *userdata, orch_timer *timer);
/* All that there are when it begins, in the order in which they were first set. Errors as for orch_timer_find(). Since 0.1. */
ORCH_API int32_t orch_timer_each(orch_journal *journal, orch_timer_each_fn fn, void *userdata,
				 orch_error **reterr);
/*
 * For callers without a context: the pending timer that is due next. `ret_timer` becomes NULL if none is pending;
 * `ret_wait_ms`: how long until it is due, 0 if it is, -1 without one; ask again after at most a minute, for the clock
 * may be stepped. Errors as for orch_timer_find(). Since 0.1.
 */
ORCH_API int32_t orch_timer_next(orch_journal *journal, orch_timer **ret_timer, int64_t *ret_wait_ms,
				 orch_error **reterr);

/* The timer is borrowed: ref it to end it later. */
typedef void (*orch_timer_due_fn)(void *userdata, orch_timer *timer);
/*
 * Calls `fn` in `ctx` for each timer when it is due: once for each round and watch, also for those that are due
 * already. Steps of the clock are noticed (Linux: timerfd_create(2), TFD_TIMER_CANCEL_ON_SET; elsewhere within 10
 * seconds). Many that are due at once come in several turns, the longest overdue first. The watch holds references on
 * the journal and the context; on a journal that is poisoned it tells nothing more. It may be dropped in `fn`.
 *
 * ORCH_EINVAL, ORCH_EPOISONED, ORCH_EFORKED, ORCH_ESTATE: read-only; ORCH_ESYS, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_timer_watch_new(orch_journal *journal, orch_ctx *ctx, orch_timer_due_fn fn,
				      void *userdata, orch_destroy_fn destroy,
				      orch_timer_watch **ret_watch, orch_error **reterr);
/* Ends it. Since 0.1. */
ORCH_API orch_timer_watch *orch_timer_watch_unref(orch_timer_watch *watch);

/* What it was when it was looked up, or was made by this very handle. Since 0.1. */
ORCH_API orch_timer *orch_timer_ref(orch_timer *timer);
ORCH_API orch_timer *orch_timer_unref(orch_timer *timer);
ORCH_API uint64_t orch_timer_id(const orch_timer *timer);
ORCH_API const char *orch_timer_name(const orch_timer *timer);
/* ORCH_TIMER_*. Since 0.1. */
ORCH_API uint32_t orch_timer_state(const orch_timer *timer);
/* "PENDING", "DONE", "CANCELED". Static storage. Since 0.1. */
ORCH_API const char *orch_timer_state_name(uint32_t state);
/* 1 when it is set first. Since 0.1. */
ORCH_API uint32_t orch_timer_round(const orch_timer *timer);
/*
 * Milliseconds since 1970. Of a delay: by the wall clock as it was when it was set, or after a reboot when what is left
 * of it was written down. Since 0.1.
 */
ORCH_API int64_t orch_timer_due_at_ms(const orch_timer *timer);
/* 0 for a timer that was set with due_at_ms. Since 0.1. */
ORCH_API int64_t orch_timer_delay_ms(const orch_timer *timer);
/* NULL if there is none. Valid while the timer lives. Since 0.1. */
ORCH_API const void *orch_timer_payload(const orch_timer *timer, size_t *ret_length);

ORCH_END_DECLS

#endif
