/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "../core-private.h"
#include "../mirror.h"

struct mirror {
	int epoll_fd;
	int timer_fd;
	int wakeup_fd;
	int64_t due_us;
};

static uint32_t epoll_events(uint32_t events)
{
	return (events & ORCH_IO_READ ? EPOLLIN : 0u) | (events & ORCH_IO_WRITE ? EPOLLOUT : 0u);
}

static int control(struct mirror *mirror, int operation, int fd, uint32_t events)
{
	struct epoll_event event = {.events = epoll_events(events), .data.fd = fd};
	return epoll_ctl(mirror->epoll_fd, operation, fd, &event) < 0 ? errno : 0;
}

int32_t mirror_new(struct mirror **ret_mirror, orch_error **reterr)
{
	struct mirror *mirror = calloc(1, sizeof(*mirror));
	if (!mirror)
		return orch_fail_memory(reterr);
	mirror->due_us = -1;
	mirror->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	mirror->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	mirror->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int error = errno;
	if (mirror->epoll_fd >= 0 && mirror->timer_fd >= 0 && mirror->wakeup_fd >= 0)
		error = control(mirror, EPOLL_CTL_ADD, mirror->timer_fd, ORCH_IO_READ);
	if (error) {
		mirror_free(mirror, false);
		return orch_fail(reterr, ORCH_ESYS, error, "loop",
				 "epoll, timerfd or eventfd could not be made");
	}
	*ret_mirror = mirror;
	return 0;
}

void mirror_free(struct mirror *mirror, bool forked)
{
	if (!forked) {
		orch_close_fd(&mirror->epoll_fd);
		orch_close_fd(&mirror->timer_fd);
		orch_close_fd(&mirror->wakeup_fd);
	}
	free(mirror);
}

int mirror_fd(const struct mirror *mirror)
{
	return mirror->epoll_fd;
}

int mirror_add(struct mirror *mirror, int fd, uint32_t events)
{
	/* A paused fd would still report EPOLLHUP and keep a foreign loop spinning: leave it out. */
	return events ? control(mirror, EPOLL_CTL_ADD, fd, events) : 0;
}

int mirror_modify(struct mirror *mirror, int fd, uint32_t events)
{
	if (!events)
		return control(mirror, EPOLL_CTL_DEL, fd, 0);
	int error = control(mirror, EPOLL_CTL_MOD, fd, events);
	return error == ENOENT ? control(mirror, EPOLL_CTL_ADD, fd, events) : error;
}

void mirror_remove(struct mirror *mirror, int fd)
{
	control(mirror, EPOLL_CTL_DEL, fd, 0);
}

void mirror_set_timer(struct mirror *mirror, int64_t due_us)
{
	if (mirror->due_us == due_us)
		return;
	mirror->due_us = due_us;
	struct itimerspec when = {0};
	if (due_us >= 0) {
		when.it_value.tv_sec = due_us / 1000000;
		/* All zero would disarm it (timerfd_settime(2)). */
		when.it_value.tv_nsec = due_us % 1000000 * 1000 + 1;
	}
	timerfd_settime(mirror->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

void mirror_settle(struct mirror *mirror)
{
	(void)mirror;
}

int mirror_wakeup_fd(const struct mirror *mirror)
{
	return mirror->wakeup_fd;
}

void mirror_wakeup(struct mirror *mirror)
{
	uint64_t one = 1;
	/* A full counter is as readable as it gets. */
	(void)!write(mirror->wakeup_fd, &one, sizeof(one));
}

void mirror_drain(struct mirror *mirror)
{
	uint64_t count;
	(void)!read(mirror->wakeup_fd, &count, sizeof(count));
}
