/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/event.h>

#include "../core-private.h"
#include "../mirror.h"
#include "../os.h"

/*
 * kqueue(2) differs from epoll in two ways that matter here. A knote that became ready stays so,
 * and the kqueue with it, until kevent() asks for it: mirror_settle() asks. And a kqueue is not
 * inherited by fork(2): in a child its number is free, or somebody else's.
 */

#define TIMER_IDENT 1
/* So many are looked at in one turn; others keep the kqueue readable and come first in the next. */
#define SETTLE_EVENTS 64

struct mirror {
	int kqueue_fd;
	int wakeup_fds[2]; /* a pipe: libev has to see the wake-up too, and can not watch
			      EVFILT_USER */
	int64_t due_us;
};

static int change(struct mirror *mirror, const struct kevent *event)
{
	while (kevent(mirror->kqueue_fd, event, 1, NULL, 0, NULL) < 0)
		if (errno != EINTR)
			return errno;
	return 0;
}

static int set_filter(struct mirror *mirror, int fd, int16_t filter, bool wanted)
{
	struct kevent event;
	EV_SET(&event, (uintptr_t)fd, filter, wanted ? EV_ADD | EV_ENABLE : EV_DELETE, 0, 0, NULL);
	int error = change(mirror, &event);
	return error == ENOENT && !wanted ? 0 : error;
}

int32_t mirror_new(struct mirror **ret_mirror, orch_error **reterr)
{
	struct mirror *mirror = calloc(1, sizeof(*mirror));
	if (!mirror)
		return orch_fail_memory(reterr);
	mirror->due_us = -1;
	mirror->wakeup_fds[0] = mirror->wakeup_fds[1] = -1;
	mirror->kqueue_fd = kqueue();
	if (mirror->kqueue_fd < 0 || fcntl(mirror->kqueue_fd, F_SETFD, FD_CLOEXEC) < 0 ||
	    orch_pipe(mirror->wakeup_fds) < 0 ||
	    fcntl(mirror->wakeup_fds[0], F_SETFL, O_NONBLOCK) < 0 ||
	    fcntl(mirror->wakeup_fds[1], F_SETFL, O_NONBLOCK) < 0) {
		int error = errno;
		mirror_free(mirror, false);
		return orch_fail(reterr, ORCH_ESYS, error, "loop",
				 "kqueue or a pipe could not be made");
	}
	*ret_mirror = mirror;
	return 0;
}

void mirror_free(struct mirror *mirror, bool forked)
{
	if (!forked) {
		orch_close_fd(&mirror->kqueue_fd);
		orch_close_fd(&mirror->wakeup_fds[0]);
		orch_close_fd(&mirror->wakeup_fds[1]);
	}
	free(mirror);
}

int mirror_fd(const struct mirror *mirror)
{
	return mirror->kqueue_fd;
}

int mirror_add(struct mirror *mirror, int fd, uint32_t events)
{
	int error = 0;
	if (events & ORCH_IO_READ)
		error = set_filter(mirror, fd, EVFILT_READ, true);
	if (!error && events & ORCH_IO_WRITE)
		error = set_filter(mirror, fd, EVFILT_WRITE, true);
	if (error)
		mirror_remove(mirror, fd);
	return error;
}

int mirror_modify(struct mirror *mirror, int fd, uint32_t events)
{
	int read_error = set_filter(mirror, fd, EVFILT_READ, events & ORCH_IO_READ);
	int write_error = set_filter(mirror, fd, EVFILT_WRITE, events & ORCH_IO_WRITE);
	return read_error ? read_error : write_error;
}

void mirror_remove(struct mirror *mirror, int fd)
{
	mirror_modify(mirror, fd, 0);
}

void mirror_set_timer(struct mirror *mirror, int64_t due_us)
{
	struct kevent event;
	if (mirror->due_us == due_us)
		return;
	mirror->due_us = due_us;
	/* Deleted first: one that has fired would stay ready. */
	EV_SET(&event, TIMER_IDENT, EVFILT_TIMER, EV_DELETE, 0, 0, NULL);
	change(mirror, &event);
	if (due_us < 0)
		return;
	int64_t delay_us = due_us - orch_monotonic_us();
	/* Relative: an absolute time is one of the wall clock (kqueue(2)). CLOCK_MONOTONIC goes on
	 * while the machine sleeps, and with this flag the timer does as well. */
	EV_SET(&event, TIMER_IDENT, EVFILT_TIMER, EV_ADD | EV_ONESHOT,
	       NOTE_USECONDS | NOTE_MACH_CONTINUOUS_TIME, delay_us > 0 ? delay_us : 1, NULL);
	change(mirror, &event);
}

void mirror_settle(struct mirror *mirror)
{
	static const struct timespec now = {0, 0};
	struct kevent events[SETTLE_EVENTS];
	/* What is still true is queued again by the kernel; the timer's single shot is used up by
	 * this. */
	int count = kevent(mirror->kqueue_fd, NULL, 0, events, SETTLE_EVENTS, &now);
	for (int i = 0; i < count; i++)
		if (events[i].filter == EVFILT_TIMER)
			mirror->due_us = -1;
}

int mirror_wakeup_fd(const struct mirror *mirror)
{
	return mirror->wakeup_fds[0];
}

void mirror_wakeup(struct mirror *mirror)
{
	/* A full pipe is as readable as it gets. */
	(void)!write(mirror->wakeup_fds[1], "", 1);
}

void mirror_drain(struct mirror *mirror)
{
	char bytes[512];
	while (read(mirror->wakeup_fds[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
		;
}
