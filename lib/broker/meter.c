/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "meter.h"

/* --- before ----------------------------------------------------------------------------------- */

static void take_limit(struct inquiry *inquiry, enum json_scan_type type, const char *text,
		       bool whole)
{
	if (inquiry->has_max_output) {
		inquiry->why = "the body names its output limit twice";
		return;
	}
	inquiry->has_max_output = true;
	if (type == JSON_SCAN_WORD && strcmp(text, "null") == 0)
		return;
	if (!json_scan_uint(type, text, whole, &inquiry->max_output))
		inquiry->why = "the output limit in the body is not a whole number";
}

static bool model_name_valid(const char *text, bool whole, size_t room)
{
	if (!whole || !*text || strlen(text) >= room)
		return false;
	for (; *text; text++)
		if (*text <= 0x20 || *text >= 0x7f)
			return false;
	return true;
}

static void on_request_value(void *userdata, const char *path, enum json_scan_type type,
			     const char *text, bool whole)
{
	struct inquiry *inquiry = userdata;

	/* Some readers of JSON take keys without regard to case: whoever means one of these is
	 * heard. */
	if (strcasecmp(path, "model") == 0) {
		if (inquiry->has_model)
			inquiry->why = "the body names its model twice";
		else if (type != JSON_SCAN_STRING ||
			 !model_name_valid(text, whole, sizeof(inquiry->model)))
			inquiry->why = "the model in the body is not a short plain name";
		else
			strcpy(inquiry->model, text);
		inquiry->has_model = true;
	} else if (strcasecmp(path, "max_tokens") == 0 ||
		   strcasecmp(path, "max_output_tokens") == 0) {
		take_limit(inquiry, type, text, whole);
	} else if (strcasecmp(path, "stream") == 0) {
		if (inquiry->has_stream)
			inquiry->why = "the body says twice whether to stream";
		inquiry->has_stream = true;
		inquiry->stream = type == JSON_SCAN_WORD && strcmp(text, "true") == 0;
	} else if (strcasecmp(path, "background") == 0) {
		inquiry->background = !(type == JSON_SCAN_WORD && strcmp(text, "true") != 0);
	}
}

void inquiry_init(struct inquiry *inquiry)
{
	memset(inquiry, 0, sizeof(*inquiry));
	json_scan_init(&inquiry->scan, on_request_value, inquiry);
}

void inquiry_feed(struct inquiry *inquiry, const char *bytes, size_t length)
{
	json_scan_feed(&inquiry->scan, bytes, length);
}

const char *inquiry_end(struct inquiry *inquiry)
{
	if (!json_scan_end(&inquiry->scan))
		return "the body is not one JSON value";
	if (inquiry->why)
		return inquiry->why;
	if (!inquiry->has_model)
		return "the body names no model";
	if (inquiry->background)
		return "a response in the background would be billed out of sight of the budget: "
		       "send "
		       "\"background\": false";
	return NULL;
}

/* --- after ------------------------------------------------------------------------------------ */

static void raise_to(uint64_t *count, uint64_t value)
{
	if (value > *count)
		*count = value;
}

static void take_usage(struct meter *meter, const char *name, uint64_t value)
{
	struct usage *usage = &meter->usage;

	/* Counts in a stream are running totals: the largest is the last. */
	if (strcmp(name, "input_tokens") == 0)
		raise_to(&usage->input, value);
	else if (strcmp(name, "output_tokens") == 0)
		raise_to(&usage->output, value);
	else if (strcmp(name, "cache_read_input_tokens") == 0)
		raise_to(&usage->cache_read, value);
	else if (strcmp(name, "cache_creation_input_tokens") == 0)
		raise_to(&usage->cache_write, value);
	else if (strcmp(name, "cache_creation.ephemeral_1h_input_tokens") == 0)
		raise_to(&usage->cache_write_hour, value);
	else
		return;
	usage->seen = true;
}

static bool type_is_terminal(const char *type)
{
	static const char *const types[] = {"message_stop", "error", "response.completed",
					    "response.incomplete", "response.failed"};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

static void take_error(struct meter *meter, const char *name, enum json_scan_type type,
		       const char *text, bool whole)
{
	uint64_t value;
	bool number =
		json_scan_uint(type, text, whole, &value) && value <= INT32_MAX * (uint64_t)1000;

	if (strcmp(name, "type") == 0 || (strcmp(name, "code") == 0 && !meter->error_type[0])) {
		if (type == JSON_SCAN_STRING)
			snprintf(meter->error_type, sizeof(meter->error_type), "%.63s", text);
	} else if (strcmp(name, "resets_at") == 0 && number) {
		meter->resets_at_s = (int64_t)value;
	} else if (strcmp(name, "resets_in_seconds") == 0 && number) {
		meter->resets_in_s = (int64_t)value;
	}
}

static void on_response_value(void *userdata, const char *path, enum json_scan_type type,
			      const char *text, bool whole)
{
	struct meter *meter = userdata;
	uint64_t value;

	if (meter->sse && strcmp(path, "type") == 0) {
		meter->terminal = meter->terminal || type_is_terminal(text);
		return;
	}
	if (meter->sse && strncmp(path, "message.", 8) == 0)
		path += 8;
	else if (meter->sse && strncmp(path, "response.", 9) == 0)
		path += 9;
	if (strncmp(path, "usage.", 6) == 0) {
		if (json_scan_uint(type, text, whole, &value))
			take_usage(meter, path + 6, value);
	} else if (strncmp(path, "error.", 6) == 0) {
		take_error(meter, path + 6, type, text, whole);
	}
}

void meter_init(struct meter *meter, bool sse)
{
	memset(meter, 0, sizeof(*meter));
	meter->sse = sse;
	json_scan_init(&meter->scan, on_response_value, meter);
}

static void end_event(struct meter *meter)
{
	if (meter->scan_used) {
		meter->events++;
		json_scan_init(&meter->scan, on_response_value, meter);
	}
	meter->scan_used = false;
	meter->within_event = false;
}

static void end_line(struct meter *meter)
{
	if (meter->state == SSE_FIELD && !meter->field_length)
		end_event(meter);
	else if (meter->state == SSE_DATA)
		json_scan_feed(&meter->scan, "\n", 1);
	meter->state = SSE_FIELD;
	meter->field_length = 0;
}

static void field_byte(struct meter *meter, char byte)
{
	if (byte != ':') {
		if (meter->field_length < sizeof(meter->field))
			meter->field[meter->field_length] = byte;
		/* Counts on, so that a longer name is no "data". */
		if (meter->field_length <= sizeof(meter->field))
			meter->field_length++;
		return;
	}
	bool data = meter->field_length == 4 && memcmp(meter->field, "data", 4) == 0;
	meter->state = data ? SSE_SPACE : SSE_SKIP;
}

/* text/event-stream, WHATWG HTML section 9.2.6: lines end in LF, CR or CRLF. */
static void sse_feed(struct meter *meter, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		char byte = bytes[i];
		bool after_cr = meter->after_cr;
		meter->after_cr = byte == '\r';
		if (byte == '\n' && after_cr)
			continue;
		if (byte == '\n' || byte == '\r') {
			end_line(meter);
			continue;
		}
		meter->within_event = true;
		if (meter->state == SSE_FIELD) {
			field_byte(meter, byte);
			continue;
		}
		if (meter->state == SSE_SPACE) {
			meter->state = SSE_DATA;
			if (byte == ' ')
				continue;
		}
		if (meter->state == SSE_DATA) {
			meter->scan_used = true;
			json_scan_feed(&meter->scan, &byte, 1);
		}
	}
}

void meter_feed(struct meter *meter, const char *bytes, size_t length)
{
	if (meter->sse)
		sse_feed(meter, bytes, length);
	else
		json_scan_feed(&meter->scan, bytes, length);
}

static uint64_t add(uint64_t one, uint64_t other)
{
	return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

uint64_t usage_tokens_in(const struct usage *usage)
{
	return add(usage->input, add(usage->cache_read, usage->cache_write));
}

uint64_t usage_micro_usd(const struct usage *usage, const struct prices *prices)
{
	/*
	 * In twentieths of an input token. Anthropic bills a cache read at 0.1, a write for five
	 * minutes at 1.25 and for an hour at 2 times the input price (platform.claude.com, "Prompt
	 * caching", Pricing). OpenAI's discount differs by model: its cached tokens are within
	 * `input` and billed in full.
	 */
	uint64_t hour = usage->cache_write_hour < usage->cache_write ? usage->cache_write_hour
								     : usage->cache_write;
	unsigned __int128 input =
		(unsigned __int128)usage->input * 20 + (unsigned __int128)usage->cache_read * 2 +
		(unsigned __int128)(usage->cache_write - hour) * 25 + (unsigned __int128)hour * 40;
	/* Saturate before multiplying: counts come from outside. */
	const unsigned __int128 most = (unsigned __int128)1 << 56;
	if (input > most)
		input = most;
	unsigned __int128 output = usage->output;
	if (output > most)
		output = most;
	unsigned __int128 total = input * prices->input + output * 20 * prices->output;
	total = (total + 19999999) / 20000000;
	return total > UINT64_MAX ? UINT64_MAX : (uint64_t)total;
}

/* --- quota ------------------------------------------------------------------------------------ */

/* RFC 3339 in UTC, or seconds since the epoch; 0: neither. */
static int64_t moment_ms(const char *text)
{
	struct tm tm = {0};
	int end = 0;
	if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
		   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &end) == 6 &&
	    end) {
		if (text[end] == '.')
			end += 1 + (int)strspn(text + end + 1, "0123456789");
		if (strcmp(text + end, "Z") != 0 && strcmp(text + end, "+00:00") != 0)
			return 0;
		tm.tm_year -= 1900;
		tm.tm_mon -= 1;
		time_t seconds = timegm(&tm);
		return seconds > 0 ? (int64_t)seconds * 1000 : 0;
	}
	size_t digits = strspn(text, "0123456789");
	if (!digits || digits > 12 || (text[digits] && text[digits] != '.'))
		return 0;
	return strtoll(text, NULL, 10) * 1000;
}

static void retry_after(struct quota *quota, const char *value, int64_t now_ms)
{
	size_t digits = strspn(value, "0123456789");
	if (digits && digits <= 9 && !value[digits]) {
		quota->retry_at_ms = now_ms + strtoll(value, NULL, 10) * 1000;
		return;
	}
	time_t date = curl_getdate(value, NULL);
	if (date > 0)
		quota->retry_at_ms = (int64_t)date * 1000;
}

static const char *after(const char *text, const char *prefix)
{
	size_t length = strlen(prefix);
	return strncasecmp(text, prefix, length) == 0 ? text + length : NULL;
}

static void anthropic_header(struct quota *quota, const char *name, const char *value)
{
	static const char *const kinds[] = {"requests-", "tokens-", "input-tokens-",
					    "output-tokens-"};
	const char *what;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!(what = after(name, kinds[i])))
			continue;
		if (strcasecmp(what, "remaining") == 0)
			quota->windows[i].exhausted = strcmp(value, "0") == 0;
		else if (strcasecmp(what, "reset") == 0)
			quota->windows[i].resets_at_ms = moment_ms(value);
		return;
	}
	if ((what = after(name, "unified-"))) {
		if (strcasecmp(what, "status") == 0)
			quota->windows[4].exhausted = strcasecmp(value, "rejected") == 0;
		else if (strcasecmp(what, "reset") == 0)
			quota->windows[4].resets_at_ms = moment_ms(value);
	}
}

static void codex_header(struct quota *quota, const char *name, const char *value, int64_t now_ms)
{
	const char *what = after(name, "primary-");
	struct quota_window *window = &quota->windows[5];
	if (!what) {
		what = after(name, "secondary-");
		window = &quota->windows[6];
	}
	if (!what)
		return;
	if (strcasecmp(what, "used-percent") == 0)
		window->exhausted = strtod(value, NULL) >= 100.0;
	else if (strcasecmp(what, "reset-at") == 0)
		window->resets_at_ms = moment_ms(value);
	else if (strcasecmp(what, "reset-after-seconds") == 0 && !window->resets_at_ms &&
		 strspn(value, "0123456789") == strlen(value) && strlen(value) <= 9)
		window->resets_at_ms = now_ms + strtoll(value, NULL, 10) * 1000;
}

void quota_header(struct quota *quota, const char *name, const char *value, int64_t now_ms)
{
	const char *rest;
	if (strcasecmp(name, "retry-after") == 0)
		retry_after(quota, value, now_ms);
	else if ((rest = after(name, "anthropic-ratelimit-")))
		anthropic_header(quota, rest, value);
	else if ((rest = after(name, "x-codex-")))
		codex_header(quota, rest, value, now_ms);
}

int64_t quota_resets_at_ms(const struct quota *quota, const struct meter *meter, int64_t now_ms)
{
	int64_t latest = quota->retry_at_ms;
	for (size_t i = 0; i < sizeof(quota->windows) / sizeof(quota->windows[0]); i++)
		if (quota->windows[i].exhausted && quota->windows[i].resets_at_ms > latest)
			latest = quota->windows[i].resets_at_ms;
	int64_t body_ms = meter->resets_at_s   ? meter->resets_at_s * 1000
			  : meter->resets_in_s ? now_ms + meter->resets_in_s * 1000
					       : 0;
	return body_ms > latest ? body_ms : latest;
}
