/* SPDX-License-Identifier: Apache-2.0 */
#include "../httpd.h"

#define IDLE_MS 3600000

struct httpd {
	struct MHD_Daemon *daemon;
	orch_source *io, *timer;
};

const unsigned httpd_flags = MHD_USE_EPOLL;

void httpd_run(struct httpd *httpd)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	MHD_run(httpd->daemon);
	if (MHD_get_timeout(httpd->daemon, &wait_ms) == MHD_YES)
		/* 0 is said while work is left that epoll will not report again. */
		orch_source_timer_set(httpd->timer, wait_ms > IDLE_MS ? IDLE_MS : (int64_t)wait_ms);
	else
		orch_source_timer_set(httpd->timer, -1);
}

static void on_timer(void *userdata)
{
	httpd_run(userdata);
}

static void on_ready(void *userdata, uint32_t events)
{
	(void)events;
	httpd_run(userdata);
}

int32_t httpd_watch(orch_ctx *ctx, struct MHD_Daemon *daemon, struct httpd **ret_httpd,
		    orch_error **reterr)
{
	const union MHD_DaemonInfo *facts = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!facts || facts->epoll_fd < 0)
		return orch_fail(reterr, ORCH_ESYS, 0, "listener",
				 "libmicrohttpd has no epoll descriptor");
	struct httpd *httpd = calloc(1, sizeof(*httpd));
	if (!httpd)
		return orch_fail_memory(reterr);
	httpd->daemon = daemon;
	int32_t code = orch_source_timer(ctx, 0, on_timer, httpd, &httpd->timer, reterr);
	if (code == 0)
		code = orch_source_io(ctx, facts->epoll_fd, ORCH_IO_READ, on_ready, httpd,
				      &httpd->io, reterr);
	if (code < 0) {
		httpd_free(httpd);
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
	if (httpd)
		httpd->io = orch_source_remove(httpd->io);
}

struct httpd *httpd_free(struct httpd *httpd)
{
	if (!httpd)
		return NULL;
	httpd_unwatch(httpd);
	httpd->timer = orch_source_remove(httpd->timer);
	free(httpd);
	return NULL;
}
