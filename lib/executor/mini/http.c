/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sse.h"

/* Of the body of an answer that is no stream. */
#define BODY_LIMIT 65536

struct exchange {
	CURL *curl;
	struct turn *turn;
	struct sse sse;
	bool is_stream, checked;
	char body[BODY_LIMIT + 1];
	size_t body_length;
	long retry_after_s;
};

static void on_event(void *userdata, const char *data)
{
	turn_event(userdata, data);
}

static size_t on_header(char *bytes, size_t size, size_t count, void *userdata)
{
	static const char name[] = "retry-after:";
	struct exchange *exchange = userdata;
	size_t length = size * count;

	if (length > sizeof(name) && strncasecmp(bytes, name, sizeof(name) - 1) == 0) {
		char number[24] = "";

		length -= sizeof(name) - 1;
		memcpy(number, bytes + sizeof(name) - 1, length < sizeof(number) ? length : sizeof(number) - 1);
		exchange->retry_after_s = strtol(number, NULL, 10);
	}
	return size * count;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *userdata)
{
	struct exchange *exchange = userdata;
	size_t length = size * count, room;

	if (!exchange->checked) {
		const char *type = NULL;
		long status = 0;

		curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
		curl_easy_getinfo(exchange->curl, CURLINFO_CONTENT_TYPE, &type);
		exchange->is_stream = status == 200 && type != NULL &&
				      strncasecmp(type, "text/event-stream", 17) == 0;
		exchange->checked = true;
	}
	if (exchange->is_stream)
		return sse_feed(&exchange->sse, bytes, length) ? length : 0;
	room = BODY_LIMIT - exchange->body_length;
	memcpy(exchange->body + exchange->body_length, bytes, length < room ? length : room);
	exchange->body_length += length < room ? length : room;
	exchange->body[exchange->body_length] = '\0';
	return length;
}

static void __attribute__((format(printf, 4, 5)))
say(struct http_result *result, enum http_end end, const char *type, const char *format, ...)
{
	va_list args;

	result->end = end;
	free(result->type);
	result->type = strdup(type);
	free(result->message);
	va_start(args, format);
	if (vasprintf(&result->message, format, args) < 0)
		result->message = NULL;
	va_end(args);
}

/* A provider's own limits pass; a broker's budget does not. */
static bool is_providers_limit(const char *type)
{
	static const char *const types[] = {"rate_limit_error", "rate_limit_exceeded", "tokens", "requests",
					    "overloaded_error", NULL};

	for (const char *const *known = types; *known != NULL; known++) {
		if (strcmp(type, *known) == 0)
			return true;
	}
	return type[0] == '\0';
}

static void judge_status(struct exchange *exchange, struct http_result *result)
{
	char *type, *message;
	enum http_end end = HTTP_REFUSED;

	error_read(exchange->body, &type, &message);
	/* "no_upstream", "no_journal": the broker's own, and not passing. */
	if (result->status >= 500 ? strncmp(type, "no_", 3) != 0
				  : result->status == 429 && is_providers_limit(type))
		end = HTTP_LATER;
	if (result->status == 200)
		say(result, HTTP_REFUSED, "protocol",
		    "the answer is no stream of events; is the base URL right?");
	else
		say(result, end, type[0] != '\0' ? type : "http", "HTTP %ld: %s", result->status,
		    message[0] != '\0' ? message : exchange->body);
	free(type);
	free(message);
}

static void judge_stream(struct exchange *exchange, CURLcode code, struct http_result *result)
{
	struct turn *turn = exchange->turn;

	if (turn->error_type != NULL) {
		bool passes = is_providers_limit(turn->error_type) ||
			      strcmp(turn->error_type, "api_error") == 0 ||
			      strcmp(turn->error_type, "server_error") == 0 ||
			      strcmp(turn->error_type, "server_is_overloaded") == 0;

		say(result, passes ? HTTP_LATER : HTTP_REFUSED, turn->error_type, "in the stream: %s",
		    turn->error_message);
	} else if (turn->complete) {
		result->end = HTTP_DONE;
	} else if (code == CURLE_WRITE_ERROR) {
		say(result, HTTP_REFUSED, "protocol", "an event of the stream is too large");
	} else {
		say(result, HTTP_LATER, "stream", "the stream ended in the middle of an answer%s%s",
		    code != CURLE_OK ? ": " : "", code != CURLE_OK ? curl_easy_strerror(code) : "");
	}
}

static void judge(struct exchange *exchange, CURLcode code, struct http_result *result)
{
	result->retry_after_s = exchange->retry_after_s;
	curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &result->status);
	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
		say(result, HTTP_UNREACHABLE, "unreachable", "%s", curl_easy_strerror(code));
	else if (exchange->is_stream)
		judge_stream(exchange, code, result);
	else if (result->status != 0 && code == CURLE_OK)
		judge_status(exchange, result);
	else
		say(result,
		    code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ? HTTP_REFUSED
										      : HTTP_LATER,
		    "transport", "%s", curl_easy_strerror(code));
}

void http_request(const struct http_options *options, const struct conversation *conversation,
		  struct turn *turn, struct http_result *result)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	char *request = conversation_request(conversation), *url = NULL;
	struct curl_slist *headers = NULL;

	memset(result, 0, sizeof(*result));
	result->retry_after_s = -1;
	if (exchange != NULL)
		exchange->curl = curl_easy_init();
	if (exchange == NULL || exchange->curl == NULL || request == NULL ||
	    asprintf(&url, "%s%s", options->base_url, conversation_path(conversation)) < 0) {
		say(result, HTTP_REFUSED, "memory", "out of memory");
		goto out;
	}
	exchange->turn = turn;
	exchange->retry_after_s = -1;
	exchange->sse.fn = on_event;
	exchange->sse.userdata = turn;
	headers = curl_slist_append(headers, "Content-Type: application/json");
	headers = curl_slist_append(headers, "Accept: text/event-stream");
	headers = curl_slist_append(headers, "Expect:");
	if (conversation->api == API_ANTHROPIC)
		headers = curl_slist_append(headers, "anthropic-version: 2023-06-01");
	curl_easy_setopt(exchange->curl, CURLOPT_URL, url);
	curl_easy_setopt(exchange->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(exchange->curl, CURLOPT_POSTFIELDS, request);
	curl_easy_setopt(exchange->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(request));
	curl_easy_setopt(exchange->curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(exchange->curl, CURLOPT_WRITEDATA, exchange);
	curl_easy_setopt(exchange->curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(exchange->curl, CURLOPT_HEADERDATA, exchange);
	curl_easy_setopt(exchange->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	/* The broker is on the loopback; nothing of the environment may lead elsewhere. */
	curl_easy_setopt(exchange->curl, CURLOPT_PROXY, "");
	curl_easy_setopt(exchange->curl, CURLOPT_CONNECTTIMEOUT_MS, 3000L);
	curl_easy_setopt(exchange->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(exchange->curl, CURLOPT_LOW_SPEED_TIME, options->idle_timeout_s);
	curl_easy_setopt(exchange->curl, CURLOPT_NOSIGNAL, 1L);
	judge(exchange, curl_easy_perform(exchange->curl), result);
out:
	if (exchange != NULL) {
		curl_easy_cleanup(exchange->curl);
		sse_clear(&exchange->sse);
	}
	curl_slist_free_all(headers);
	free(exchange);
	free(request);
	free(url);
}

void http_result_clear(struct http_result *result)
{
	free(result->type);
	free(result->message);
	memset(result, 0, sizeof(*result));
}
