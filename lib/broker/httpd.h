/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HTTPD_H
#define ORCH_HTTPD_H

/*
 * A libmicrohttpd daemon without a thread, run by a context's loop: linux/httpd.c, darwin/httpd.c.
 * lib/pipeline uses it as well.
 */

#include <microhttpd.h>

#include "../core/core-private.h"

struct httpd;

/* How the daemon waits, among the flags of MHD_start_daemon(). */
extern const unsigned httpd_flags;

/* The daemon stays the caller's. Its first turn comes with the loop's next. */
int32_t httpd_watch(orch_ctx *ctx, struct MHD_Daemon *daemon, struct httpd **ret_httpd,
		    orch_error **reterr);
/* A turn of the daemon, now. */
void httpd_run(struct httpd *httpd);
/* A turn of the daemon in the loop's next turn: a connection was resumed. */
void httpd_run_soon(struct httpd *httpd);
/* Before MHD_stop_daemon(), which closes what is watched. Takes NULL. */
void httpd_unwatch(struct httpd *httpd);
/* Takes NULL, returns NULL. */
struct httpd *httpd_free(struct httpd *httpd);

#endif
