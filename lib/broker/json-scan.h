/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_JSON_SCAN_H
#define ORCH_JSON_SCAN_H

/*
 * A JSON reader that takes bytes as they come and needs the same small memory for any document:
 * what a sandbox sends and what a provider streams is judged without being held. No I/O, no
 * allocation.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_SCAN_DEPTH 256
#define JSON_SCAN_PATH 128
#define JSON_SCAN_TEXT 256

enum json_scan_type { JSON_SCAN_STRING, JSON_SCAN_NUMBER, JSON_SCAN_WORD };

/*
 * A scalar value. `path` joins the keys with dots, an array element is "[]":
 * "message.usage.input_tokens", "tools.[].type". Within a key, '.' and '[' read as '\1', so that no
 * key can imitate a path. `text` is decoded and cut to JSON_SCAN_TEXT - 1 bytes; `whole` tells
 * whether it was cut. Values below a path of more than JSON_SCAN_PATH - 1 bytes are not reported.
 */
typedef void (*json_scan_fn)(void *userdata, const char *path, enum json_scan_type type,
			     const char *text, bool whole);

enum json_scan_state {
	JSON_SCAN_VALUE,
	JSON_SCAN_VALUE_OR_END, /* after '[' */
	JSON_SCAN_KEY_OR_END,	/* after '{' */
	JSON_SCAN_KEY,		/* after ',' in an object */
	JSON_SCAN_COLON,
	JSON_SCAN_AFTER, /* a value is complete */
	JSON_SCAN_IN_STRING,
	JSON_SCAN_IN_ESCAPE,
	JSON_SCAN_IN_UNICODE,
	JSON_SCAN_IN_NUMBER,
	JSON_SCAN_IN_WORD,
	JSON_SCAN_BROKEN,
};

struct json_scan {
	json_scan_fn fn;
	void *userdata;
	enum json_scan_state state;
	bool in_key;
	unsigned depth;
	unsigned char is_array[JSON_SCAN_DEPTH / 8];
	unsigned short path_length[JSON_SCAN_DEPTH + 1]; /* of the container's own path */
	unsigned too_long_from; /* depth at which the path stopped fitting; 0: it fits */
	char path[JSON_SCAN_PATH];
	char text[JSON_SCAN_TEXT];
	unsigned text_length;
	bool text_cut;
	unsigned unicode, unicode_digits;
};

void json_scan_init(struct json_scan *scan, json_scan_fn fn, void *userdata);
/* False when the text is not JSON; stays false. */
bool json_scan_feed(struct json_scan *scan, const char *bytes, size_t length);
/* True if exactly one complete value was read. Ends a number at the top level. */
bool json_scan_end(struct json_scan *scan);
/* Plain non-negative integer that fits; nothing else ("1e9", "-1", "1.0" are refused). */
bool json_scan_uint(enum json_scan_type type, const char *text, bool whole, uint64_t *ret_value);

#endif
