/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/event.h>
#include <sys/timerfd.h>
#include <unistd.h>

/*
 * One epoll instance is a queue; what is registered with it is in one list for all queues. As in a kqueue, a filter
 * that is not there can not be deleted, a timer fires once, and a descriptor has a filter for each direction.
 */
struct knote {
	struct knote *next;
	int queue;
	int fd; /* what is watched; a timer's own */
	bool timer;
	uintptr_t ident;
	uint32_t events;
};

static struct knote *knotes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct knote **find(int queue, bool timer, uintptr_t ident)
{
	struct knote **link = &knotes;
	while (*link && !((*link)->queue == queue && (*link)->timer == timer && (*link)->ident == ident))
		link = &(*link)->next;
	return link;
}

static void drop(struct knote **link)
{
	struct knote *knote = *link;
	*link = knote->next;
	if (knote->timer)
		close(knote->fd);
	free(knote);
}

int kqueue(void)
{
	int queue = epoll_create1(0);
	pthread_mutex_lock(&lock);
	/* Of an earlier queue that had this number and was closed. */
	for (struct knote **link = &knotes; *link;)
		if ((*link)->queue == queue)
			drop(link);
		else
			link = &(*link)->next;
	pthread_mutex_unlock(&lock);
	return queue;
}

static int watch(struct knote *knote, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = knote};
	knote->events = events;
	if (!epoll_ctl(knote->queue, EPOLL_CTL_MOD, knote->fd, &event))
		return 0;
	return errno == ENOENT && !epoll_ctl(knote->queue, EPOLL_CTL_ADD, knote->fd, &event) ? 0 : errno;
}

static struct knote *add(int queue, bool timer, uintptr_t ident, int fd)
{
	struct knote *knote = calloc(1, sizeof(*knote));
	if (!knote)
		abort();
	*knote = (struct knote){.next = knotes, .queue = queue, .fd = fd, .timer = timer, .ident = ident};
	return knotes = knote;
}

static int change_timer(int queue, const struct kevent *change)
{
	struct knote **link = find(queue, true, change->ident);
	if (change->flags & EV_DELETE && !*link)
		return ENOENT;
	if (*link)
		drop(link);
	if (change->flags & EV_DELETE)
		return 0;
	if (!(change->fflags & NOTE_USECONDS) || !(change->flags & EV_ONESHOT) || change->data <= 0)
		return EINVAL;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	struct itimerspec when = {.it_value.tv_sec = change->data / 1000000,
				  .it_value.tv_nsec = change->data % 1000000 * 1000};
	if (fd < 0 || timerfd_settime(fd, 0, &when, NULL) < 0)
		return errno;
	return watch(add(queue, true, change->ident, fd), EPOLLIN);
}

static int change_filter(int queue, const struct kevent *change)
{
	uint32_t bit = change->filter == EVFILT_READ ? EPOLLIN : EPOLLOUT;
	struct knote **link = find(queue, false, change->ident);
	if (change->flags & EV_ADD) {
		struct knote *knote = *link ? *link : add(queue, false, change->ident, (int)change->ident);
		int error = watch(knote, knote->events | bit);
		if (error)
			drop(find(queue, false, change->ident));
		return error;
	}
	if (!*link || !((*link)->events & bit))
		return ENOENT;
	if ((*link)->events != bit)
		return watch(*link, (*link)->events & ~bit);
	epoll_ctl(queue, EPOLL_CTL_DEL, (*link)->fd, NULL);
	drop(link);
	return 0;
}

static int collect(int queue, struct kevent *events, int event_count)
{
	struct epoll_event ready[64];
	int count = epoll_wait(queue, ready, event_count < 64 ? event_count : 64, 0);
	for (int i = 0; i < count; i++) {
		struct knote *knote = ready[i].data.ptr;
		int16_t filter = knote->timer ? EVFILT_TIMER
				 : ready[i].events & EPOLLIN ? EVFILT_READ
							     : EVFILT_WRITE;
		EV_SET(&events[i], knote->ident, filter, 0, 0, 0, NULL);
		if (knote->timer)
			drop(find(queue, true, knote->ident));
	}
	return count;
}

int kevent(int queue, const struct kevent *changes, int change_count, struct kevent *events,
	   int event_count, const struct timespec *timeout)
{
	int error = 0, count = 0;
	(void)timeout;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < change_count && !error; i++)
		error = changes[i].filter == EVFILT_TIMER ? change_timer(queue, &changes[i])
							  : change_filter(queue, &changes[i]);
	if (!error && event_count)
		count = collect(queue, events, event_count);
	pthread_mutex_unlock(&lock);
	errno = error ? error : errno;
	return error ? -1 : count;
}
