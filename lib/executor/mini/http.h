/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MINI_HTTP_H
#define MINI_HTTP_H

/* One streamed request. */

#include "conversation.h"

struct http_options {
	const char *base_url;
	long idle_timeout_s; /* no byte for so long ends the request */
};

enum http_end {
	HTTP_DONE,        /* the turn is complete */
	HTTP_REFUSED,     /* final: `type` and `message` say why */
	HTTP_LATER,       /* the provider is busy or its stream broke: the same request may be sent again */
	HTTP_UNREACHABLE, /* nobody listens */
};

struct http_result {
	enum http_end end;
	long status; /* HTTP, or 0 */
	long retry_after_s; /* -1: not said */
	char *type, *message;
};

/* Fills in `turn` (started by the caller). */
void http_request(const struct http_options *options, const struct conversation *conversation,
		  struct turn *turn, struct http_result *result);
void http_result_clear(struct http_result *result);

#endif
