/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_MIRROR_H
#define ORCH_MIRROR_H

/*
 * libev has no public backend fd, so each source is also registered here: an outer epoll (kqueue on macOS)
 * whose fd a foreign loop polls. Nothing is ever read from it but readiness. Timers are mirrored as one timer,
 * and the wakeup channel is part of it.
 */

#include <stdbool.h>
#include <stdint.h>

#include <orch/error.h>

struct mirror;

int32_t mirror_new(struct mirror **ret_mirror, orch_error **reterr);
/* In a forked child (`forked`) the fds are left alone: they are shared with the parent. */
void mirror_free(struct mirror *mirror, bool forked);
int mirror_fd(const struct mirror *mirror);

/* Both return 0 or an errno. `events`: ORCH_IO_*. */
int mirror_add(struct mirror *mirror, int fd, uint32_t events);
int mirror_modify(struct mirror *mirror, int fd, uint32_t events);
void mirror_remove(struct mirror *mirror, int fd);

/* CLOCK_MONOTONIC in microseconds; -1: none. */
void mirror_set_timer(struct mirror *mirror, int64_t due_us);

/*
 * Forgets readiness that is over, and the timer once it has fired: call it after a turn and before
 * mirror_set_timer(). Nothing to do for epoll, which looks afresh whenever it is polled.
 */
void mirror_settle(struct mirror *mirror);

/* The fd that becomes readable after mirror_wakeup(), which any thread may call. */
int mirror_wakeup_fd(const struct mirror *mirror);
void mirror_wakeup(struct mirror *mirror);
void mirror_drain(struct mirror *mirror);

#endif
