/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd has one descriptor for all its connections only where there is epoll. Here it is
 * asked after each turn which ones it waits for. They are watched until the next turn and no
 * longer: a connection may be put to sleep or closed in it, and a sleeping one is watched by
 * somebody else.
 *
 * Nothing of this file is Apple's; a test runs the broker with it on Linux.
 */
#include <sys/select.h>

#include "../httpd.h"

#define IDLE_MS 3600000

struct httpd {
	orch_ctx *ctx;
	struct MHD_Daemon *daemon;
	orch_source *timer;
	orch_source **watched;
	size_t count, capacity;
	bool retired; /* no descriptor is watched any more */
};

/* select(): libmicrohttpd turns a connection away whose descriptor is FD_SETSIZE or above. */
const unsigned httpd_flags = MHD_NO_FLAG;

static void forget(struct httpd *httpd)
{
	while (httpd->count)
		orch_source_remove(httpd->watched[--httpd->count]);
}

static void on_ready(void *userdata, uint32_t events)
{
	(void)events;
	httpd_run(userdata);
}

static bool watch(struct httpd *httpd, int fd, uint32_t events)
{
	if (httpd->count == httpd->capacity) {
		size_t capacity = httpd->capacity ? 2 * httpd->capacity : 16;
		orch_source **grown = realloc(httpd->watched, capacity * sizeof(*grown));
		if (!grown)
			return false;
		httpd->watched = grown;
		httpd->capacity = capacity;
	}
	if (orch_source_io(httpd->ctx, fd, events, on_ready, httpd, &httpd->watched[httpd->count],
			   NULL) < 0)
		return false;
	httpd->count++;
	return true;
}

/* False: not all are watched. */
static bool watch_all(struct httpd *httpd)
{
	fd_set reads, writes, others;
	int last = -1;
	FD_ZERO(&reads);
	FD_ZERO(&writes);
	FD_ZERO(&others);
	if (MHD_get_fdset2(httpd->daemon, &reads, &writes, &others, &last, FD_SETSIZE) != MHD_YES)
		return false;
	for (int fd = 0; fd <= last; fd++) {
		/* Out-of-band data ends a connection; it shows as readable too. */
		uint32_t events =
			(FD_ISSET(fd, &reads) || FD_ISSET(fd, &others) ? ORCH_IO_READ : 0u) |
			(FD_ISSET(fd, &writes) ? ORCH_IO_WRITE : 0u);
		if (events && !watch(httpd, fd, events))
			return false;
	}
	return true;
}

/* How long to look away at most when something could not be watched. */
#define BLIND_MS 100

void httpd_run(struct httpd *httpd)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	forget(httpd);
	MHD_run(httpd->daemon);
	int64_t delay_ms = -1;
	if (MHD_get_timeout(httpd->daemon, &wait_ms) == MHD_YES)
		delay_ms = wait_ms > IDLE_MS ? IDLE_MS : (int64_t)wait_ms;
	if (!httpd->retired && !watch_all(httpd) && (delay_ms < 0 || delay_ms > BLIND_MS))
		delay_ms = BLIND_MS;
	orch_source_timer_set(httpd->timer, delay_ms);
}

static void on_timer(void *userdata)
{
	httpd_run(userdata);
}

int32_t httpd_watch(orch_ctx *ctx, struct MHD_Daemon *daemon, struct httpd **ret_httpd,
		    orch_error **reterr)
{
	struct httpd *httpd = calloc(1, sizeof(*httpd));
	if (!httpd)
		return orch_fail_memory(reterr);
	httpd->ctx = ctx;
	httpd->daemon = daemon;
	int32_t code = orch_source_timer(ctx, 0, on_timer, httpd, &httpd->timer, reterr);
	if (code < 0) {
		free(httpd);
		return code;
	}
	*ret_httpd = httpd;
	return 0;
}

void httpd_run_soon(struct httpd *httpd)
{
	orch_source_timer_set(httpd->timer, 0);
}

void httpd_unwatch(struct httpd *httpd)
{
	if (!httpd)
		return;
	httpd->retired = true;
	forget(httpd);
}

struct httpd *httpd_free(struct httpd *httpd)
{
	if (!httpd)
		return NULL;
	httpd_unwatch(httpd);
	httpd->timer = orch_source_remove(httpd->timer);
	free(httpd->watched);
	free(httpd);
	return NULL;
}
