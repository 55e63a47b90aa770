/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "parse.h"

#define TARGET_LONGEST 4096

static bool is_unreserved(unsigned char byte)
{
	return byte && byte < 0x80 && (isalnum(byte) || strchr("-._~", byte));
}

static int hex_digit(char byte)
{
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	byte = (char)(byte | 0x20);
	return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* The decoded byte of the escape at `at`, or -1. */
static int escape_at(const char *at)
{
	int high = hex_digit(at[1]);
	int low = high < 0 ? -1 : hex_digit(at[2]);
	return low < 0 ? -1 : high << 4 | low;
}

static const char *path_canonical(const char *raw, size_t length, struct orch_buf *out)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)raw[i];
		if (byte == '%') {
			int decoded = i + 2 < length ? escape_at(raw + i) : -1;
			if (decoded < 0)
				return "an escape in the path is not % and two hexadecimal digits";
			if (!decoded || !is_unreserved((unsigned char)decoded))
				return "an escaped character in the path has more than one reading";
			byte = (unsigned char)decoded;
			i += 2;
		} else if (byte <= 0x20 || byte >= 0x7f || strchr("\\\"<>^`{|}#;", byte)) {
			return "the path holds a character that must not be there";
		}
		orch_buf_add(out, &byte, 1);
	}
	if (out->failed)
		return "out of memory";
	const char *path = out->data;
	for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
		size_t segment = strcspn(slash + 1, "/");
		if (!segment && slash[1] == '/')
			return "the path has an empty segment";
		if ((segment == 1 && slash[1] == '.') ||
		    (segment == 2 && slash[1] == '.' && slash[2] == '.'))
			return "the path has a \".\" or \"..\" segment";
	}
	return NULL;
}

static const char *query_problem(const char *query)
{
	for (const char *at = query; *at; at++) {
		unsigned char byte = (unsigned char)*at;
		if (byte == '%' && escape_at(at) < 0)
			return "an escape in the query is not % and two hexadecimal digits";
		if (byte <= 0x20 || byte >= 0x7f || strchr("\\\"<>^`{|}#", byte))
			return "the query holds a character that must not be there";
	}
	return NULL;
}

const char *target_parse(const char *raw, struct target *ret_target)
{
	struct target target = {0};
	_cleanup_buf_ struct orch_buf path = {0};
	const char *why = NULL;

	if (strlen(raw) > TARGET_LONGEST)
		return "the request target is longer than 4096 bytes";
	if (strncasecmp(raw, "http://", 7) == 0) {
		size_t length = strcspn(raw + 7, "/?#");
		target.authority = strndup(raw + 7, length);
		if (!target.authority)
			return "out of memory";
		raw += 7 + length;
		if (!host_port_valid(target.authority))
			why = "the host of the request target is malformed";
	}
	if (!why && *raw != '/')
		why = "the request target is neither a path nor an http URL";
	size_t length = strcspn(raw, "?");
	if (!why)
		why = path_canonical(raw, length, &path);
	if (!why && raw[length] == '?') {
		why = query_problem(raw + length + 1);
		if (!why && !(target.query = strdup(raw + length + 1)))
			why = "out of memory";
	}
	if (why) {
		target_clear(&target);
		return why;
	}
	target.path = ORCH_STEAL(path.data);
	*ret_target = target;
	return NULL;
}

void target_clear(struct target *target)
{
	free(target->authority);
	free(target->path);
	free(target->query);
	memset(target, 0, sizeof(*target));
}

/* Length of the host at the start of `text`, 0 if it is malformed. */
static size_t host_length(const char *text)
{
	if (*text == '[') {
		size_t inside = strspn(text + 1, "0123456789abcdefABCDEF:.");
		return inside >= 2 && text[1 + inside] == ']' ? inside + 2 : 0;
	}
	size_t length = 0, label = 0;
	for (;; length++) {
		unsigned char byte = (unsigned char)text[length];
		if (byte == '.' || byte == '\0' || byte == ':' || byte == '/') {
			/* One trailing dot would name the same host in another way. */
			if (!label || label > 63 || text[length - 1] == '-')
				return 0;
			if (byte != '.')
				return length <= 253 ? length : 0;
			label = 0;
		} else if (byte < 0x80 &&
			   (isalnum(byte) || byte == '_' || (byte == '-' && label))) {
			label++;
		} else {
			return 0;
		}
	}
}

/* Length of "host[:port]" at the start, 0 if it is malformed. */
static size_t host_port_length(const char *text)
{
	size_t length = host_length(text);
	if (!length || text[length] != ':')
		return length;
	size_t digits = strspn(text + length + 1, "0123456789");
	if (!digits || digits > 5)
		return 0;
	long port = strtol(text + length + 1, NULL, 10);
	return port >= 1 && port <= 65535 ? length + 1 + digits : 0;
}

bool host_port_valid(const char *text)
{
	size_t length = host_port_length(text);
	return length && text[length] == '\0';
}

static size_t without_default_port(const char *text)
{
	size_t length = strlen(text);
	return length > 3 && strcmp(text + length - 3, ":80") == 0 ? length - 3 : length;
}

bool host_port_equal(const char *one, const char *other)
{
	size_t length = without_default_port(one);
	return length == without_default_port(other) && strncasecmp(one, other, length) == 0;
}

static const char *skip_scheme(const char *url)
{
	if (strncasecmp(url, "http://", 7) == 0)
		return url + 7;
	if (strncasecmp(url, "https://", 8) == 0)
		return url + 8;
	return NULL;
}

const char *url_problem(const char *url)
{
	const char *authority = skip_scheme(url);
	if (!authority)
		return "its scheme is neither http nor https";
	size_t length = strcspn(authority, "/?#");
	if (memchr(authority, '@', length))
		return "it holds user information: give the credential apart from the URL";
	size_t valid = host_port_length(authority);
	if (!valid || valid != length)
		return "its host or port is malformed";
	const char *rest = authority + length;
	for (const char *at = rest; *at; at++) {
		unsigned char byte = (unsigned char)*at;
		if (byte <= 0x20 || byte >= 0x7f || strchr("\\\"<>^`|#", byte))
			return "it holds a character that must not be there";
	}
	return NULL;
}

bool url_is_cleartext_remote(const char *url)
{
	if (strncasecmp(url, "http://", 7) != 0)
		return false;
	return strncmp(url + 7, "127.", 4) != 0 && strncmp(url + 7, "[::1]", 5) != 0 &&
	       strncasecmp(url + 7, "localhost", 9) != 0;
}

char *url_with_key(const char *url, const char *key)
{
	struct orch_buf out = {0};
	for (const char *at = url; *at; at++) {
		if (strncmp(at, "{key}", 5) != 0) {
			orch_buf_add(&out, at, 1);
			continue;
		}
		for (const unsigned char *byte = (const unsigned char *)key; *byte; byte++)
			if (is_unreserved(*byte))
				orch_buf_add(&out, byte, 1);
			else
				orch_buf_printf(&out, "%%%02X", *byte);
		at += 4;
	}
	if (out.failed)
		orch_buf_free(&out);
	return out.data;
}

bool idempotency_key_valid(const char *key)
{
	size_t length = strlen(key);
	for (size_t i = 0; i < length; i++)
		if (key[i] <= 0x20 || key[i] >= 0x7f)
			return false;
	return length >= 1 && length <= 200;
}

/* --- headers ---------------------------------------------------------------------------------- */

static bool in_list(const char *name, const char *const *list, bool prefix)
{
	for (; *list; list++)
		if (prefix ? strncasecmp(name, *list, strlen(*list)) == 0
			   : strcasecmp(name, *list) == 0)
			return true;
	return false;
}

bool header_goes_up(const char *name)
{
	/* Names that either CLI and the vendors' SDKs send and that say nothing about who asks. */
	static const char *const names[] = {"accept",
					    "accept-language",
					    "anthropic-beta",
					    "anthropic-version",
					    "anthropic-dangerous-direct-browser-access",
					    "content-type",
					    "conversation_id",
					    "idempotency-key",
					    "openai-beta",
					    "originator",
					    "session_id",
					    "session-id",
					    "thread-id",
					    "traceparent",
					    "tracestate",
					    "user-agent",
					    "version",
					    "x-app",
					    "x-client-request-id",
					    "x-request-id",
					    NULL};
	static const char *const prefixes[] = {"x-stainless-", "x-codex-", "x-claude-code-", NULL};
	return in_list(name, names, false) || in_list(name, prefixes, true);
}

static bool in_connection(const char *name, const char *connection)
{
	size_t length = strlen(name);
	while (connection && *connection) {
		connection += strspn(connection, ", \t");
		size_t token = strcspn(connection, ", \t");
		if (token == length && strncasecmp(connection, name, length) == 0)
			return true;
		connection += token;
	}
	return false;
}

bool header_goes_down(const char *name, const char *connection)
{
	/* Hop-by-hop (RFC 9110 section 7.6.1), the framing and the date, which this side makes
	 * anew, and what would set state for an origin that the client never spoke to. */
	static const char *const names[] = {"connection",
					    "keep-alive",
					    "te",
					    "trailer",
					    "transfer-encoding",
					    "upgrade",
					    "content-length",
					    "content-encoding",
					    "date",
					    "set-cookie",
					    "set-cookie2",
					    "alt-svc",
					    "strict-transport-security",
					    "www-authenticate",
					    "location",
					    NULL};
	static const char *const prefixes[] = {"proxy-", "x-orch-", NULL};
	return !in_list(name, names, false) && !in_list(name, prefixes, true) &&
	       !in_connection(name, connection);
}

bool header_value_valid(const char *value)
{
	for (; *value; value++)
		if (((unsigned char)*value < 0x20 && *value != '\t') || *value == 0x7f)
			return false;
	return true;
}

/* --- secrets ---------------------------------------------------------------------------------- */

void scrub_add(struct scrub *scrub, const char *secret)
{
	if (secret && strlen(secret) >= SCRUB_SHORTEST && scrub->count < SCRUB_SECRETS)
		scrub->secrets[scrub->count++] = secret;
}

static void blot(const struct scrub *scrub, char *text, size_t length)
{
	for (unsigned i = 0; i < scrub->count; i++) {
		size_t secret = strlen(scrub->secrets[i]);
		char *at = text;
		while ((at = memmem(at, length - (size_t)(at - text), scrub->secrets[i], secret))) {
			memset(at, '*', secret);
			at += secret;
		}
	}
}

void scrub_text(const struct scrub *scrub, char *text)
{
	blot(scrub, text, strlen(text));
}

/* Bytes at the end of `text` that may be the start of a secret. */
static size_t open_end(const struct scrub *scrub, const char *text, size_t length)
{
	size_t longest = 0;
	for (unsigned i = 0; i < scrub->count; i++) {
		size_t candidate = strlen(scrub->secrets[i]) - 1;
		if (candidate > length)
			candidate = length;
		for (; candidate > longest; candidate--)
			if (memcmp(text + length - candidate, scrub->secrets[i], candidate) == 0)
				longest = candidate;
	}
	return longest;
}

void scrub_feed(struct scrub *scrub, const char *bytes, size_t length, struct orch_buf *out)
{
	if (!scrub->count) {
		orch_buf_add(out, bytes, length);
		return;
	}
	orch_buf_add(&scrub->held, bytes, length);
	if (scrub->held.failed || !scrub->held.length) {
		out->failed = out->failed || scrub->held.failed;
		return;
	}
	blot(scrub, scrub->held.data, scrub->held.length);
	size_t keep = open_end(scrub, scrub->held.data, scrub->held.length);
	size_t ready = scrub->held.length - keep;
	orch_buf_add(out, scrub->held.data, ready);
	orch_buf_shift(&scrub->held, ready);
}

void scrub_end(struct scrub *scrub, struct orch_buf *out)
{
	if (scrub->held.length)
		orch_buf_add(out, scrub->held.data, scrub->held.length);
	orch_buf_free(&scrub->held);
}

void scrub_clear(struct scrub *scrub)
{
	orch_buf_free(&scrub->held);
	scrub->count = 0;
}
