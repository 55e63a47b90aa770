/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_BROKER_PARSE_H
#define ORCH_BROKER_PARSE_H

/* What clients and configuration say, brought into one form: bytes in, values out, no I/O. */

#include "../core/core-private.h"

/* --- request targets -------------------------------------------------------------------------- */

struct target {
	char *authority; /* of the absolute form; NULL: origin form */
	char *path;	 /* canonical: "/ai.anthropic/v1/messages" */
	char *query;	 /* as it came, checked; NULL: none */
};

/*
 * NULL, or why the target is refused. What has two readings is refused, never repaired: "." and
 * ".." segments, empty segments, encoded slashes, dots in disguise that form one, double encoding,
 * control bytes, anything that is not plain ASCII. Only escapes of unreserved characters (RFC 3986
 * section 2.3) are decoded.
 */
const char *target_parse(const char *raw, struct target *ret_target);
void target_clear(struct target *target);

/* "name", "name:port", "1.2.3.4", "[::1]:80"; no user information. */
bool host_port_valid(const char *text);
/* Equal but for letter case and the default port of http. */
bool host_port_equal(const char *one, const char *other);
/* NULL, or what is wrong with an http or https URL that the host application gave. */
const char *url_problem(const char *url);
bool url_is_cleartext_remote(const char *url);

/* "{key}" in `url` replaced by the percent-encoded key. NULL: no memory. */
char *url_with_key(const char *url, const char *key);
/* 1..200 bytes of visible ASCII. */
bool idempotency_key_valid(const char *key);

/* --- headers ---------------------------------------------------------------------------------- */

/* Whether a request header goes on to a provider. A list of what is known: the rest may carry
 * authority. */
bool header_goes_up(const char *name);
/* Whether a response header goes back to the client. `connection`: value of the Connection header
 * or NULL. */
bool header_goes_down(const char *name, const char *connection);
bool header_value_valid(const char *value);

/* --- secrets ---------------------------------------------------------------------------------- */

#define SCRUB_SECRETS 16
/* Shorter ones would blot out ordinary text. */
#define SCRUB_SHORTEST 8

/* Overwrites known secrets in a stream, also where one is cut into pieces. */
struct scrub {
	const char *secrets[SCRUB_SECRETS]; /* borrowed */
	unsigned count;
	struct orch_buf
		held; /* the end of what came so far, when it may be the start of a secret */
};

void scrub_add(struct scrub *scrub, const char *secret);
/* Appends to `out` what is safe to pass on. */
void scrub_feed(struct scrub *scrub, const char *bytes, size_t length, struct orch_buf *out);
void scrub_end(struct scrub *scrub, struct orch_buf *out);
void scrub_clear(struct scrub *scrub);
/* In place. */
void scrub_text(const struct scrub *scrub, char *text);

#endif
