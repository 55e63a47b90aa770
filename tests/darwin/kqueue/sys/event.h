/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lib/core/darwin/mirror.c uses of kqueue(2), made of epoll by ../kqueue.c, so that the file can be run on Linux.
 * It is no proof of what macOS does: only of what the file asks for.
 */
#ifndef ORCH_TEST_EVENT_H
#define ORCH_TEST_EVENT_H

#include <stdint.h>
#include <time.h>

#define EVFILT_READ (-1)
#define EVFILT_WRITE (-2)
#define EVFILT_TIMER (-7)
#define EV_ADD 0x0001
#define EV_DELETE 0x0002
#define EV_ENABLE 0x0004
#define EV_ONESHOT 0x0010
#define NOTE_USECONDS 0x00000002
#define NOTE_MACH_CONTINUOUS_TIME 0x00000080

struct kevent {
	uintptr_t ident;
	int16_t filter;
	uint16_t flags;
	uint32_t fflags;
	intptr_t data;
	void *udata;
};

#define EV_SET(event, i, f, fl, ff, d, u)                                                          \
	(*(event) = (struct kevent){.ident = (i),                                                  \
				    .filter = (f),                                                 \
				    .flags = (fl),                                                 \
				    .fflags = (ff),                                                \
				    .data = (d),                                                   \
				    .udata = (u)})

int kqueue(void);
int kevent(int queue, const struct kevent *changes, int change_count, struct kevent *events,
	   int event_count, const struct timespec *timeout);

#endif
