/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_BROKER_METER_H
#define ORCH_BROKER_METER_H

/*
 * What a call to a provider will cost at most, what it did cost, and when a quota comes back: read
 * from the request, the response and the headers as they pass. No I/O.
 */

#include "../core/core-private.h"
#include "json-scan.h"

/* --- before ----------------------------------------------------------------------------------- */

struct inquiry {
	struct json_scan scan;
	char model[128];
	uint64_t max_output; /* 0: the request sets no limit */
	bool has_model, has_max_output, has_stream, stream, background;
	const char *why; /* why the request can not be judged */
};

void inquiry_init(struct inquiry *inquiry);
void inquiry_feed(struct inquiry *inquiry, const char *bytes, size_t length);
/* NULL, or why the body is refused. */
const char *inquiry_end(struct inquiry *inquiry);

/* --- after ------------------------------------------------------------------------------------ */

/* Tokens by how they are billed. `cache_*` are parts of what the model read, apart from `input`. */
struct usage {
	uint64_t input, cache_read, cache_write, cache_write_hour, output;
	bool seen;
};

enum sse_state { SSE_FIELD, SSE_SPACE, SSE_DATA, SSE_SKIP };

struct meter {
	bool sse;
	struct json_scan scan;
	bool scan_used;
	enum sse_state state;
	char field[8];
	unsigned field_length;
	bool after_cr;
	bool within_event; /* something came since the last blank line */
	struct usage usage;
	uint64_t events; /* of a stream: one is at least about a token */
	bool terminal;	 /* the event came with which a stream ends */
	char error_type[64];
	int64_t resets_at_s, resets_in_s; /* of an error body; 0: not told */
};

void meter_init(struct meter *meter, bool sse);
void meter_feed(struct meter *meter, const char *bytes, size_t length);

struct prices {
	uint64_t input, output; /* micro-USD per million tokens */
};

uint64_t usage_tokens_in(const struct usage *usage);
/* Rounded up; saturates. */
uint64_t usage_micro_usd(const struct usage *usage, const struct prices *prices);

/* --- quota ------------------------------------------------------------------------------------ */

struct quota_window {
	bool exhausted;
	int64_t resets_at_ms;
};

struct quota {
	int64_t retry_at_ms;
	struct quota_window
		windows[7]; /* requests, tokens, input, output; unified; codex primary, secondary */
};

void quota_header(struct quota *quota, const char *name, const char *value, int64_t now_ms);
/* The time by which everything that is said to be exhausted is back; 0: not told. */
int64_t quota_resets_at_ms(const struct quota *quota, const struct meter *meter, int64_t now_ms);

#endif
