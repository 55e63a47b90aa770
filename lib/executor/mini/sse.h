/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MINI_SSE_H
#define MINI_SSE_H

/* A stream of server-sent events: bytes in, the data of each event out. No I/O. */

#include <stdbool.h>
#include <stddef.h>

/* An event larger than this ends the stream with an error. */
#define SSE_EVENT_LIMIT ((size_t)16 * 1024 * 1024)

typedef void (*sse_fn)(void *userdata, const char *data);

struct sse {
	sse_fn fn;
	void *userdata;
	char *line, *data; /* the unfinished line; the data lines of the unfinished event, joined by '\n' */
	size_t line_length, line_size, data_length, data_size;
	bool has_data, skip_newline;
};

/* False: too large, or out of memory. */
bool sse_feed(struct sse *sse, const char *bytes, size_t length);
void sse_clear(struct sse *sse);

#endif
