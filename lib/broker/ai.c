/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <strings.h>

#include "../core/os.h"
#include "broker-private.h"

/* Larger counts are nobody's: they are cut, so that sums can not overflow. */
#define TOKENS_MOST ((uint64_t)1 << 40)

/* --- what the providers offer ----------------------------------------------------------------- */

struct offer {
	enum operation operation;
	const char *method, *path; /* a path that ends in '*' takes one more segment */
	enum route route;
};

static const struct offer offers[] = {
	{OPERATION_ANTHROPIC, "POST", "/v1/messages", ROUTE_INFERENCE},
	{OPERATION_ANTHROPIC, "POST", "/v1/messages/count_tokens", ROUTE_COUNT},
	{OPERATION_ANTHROPIC, "GET", "/v1/models", ROUTE_PLAIN},
	{OPERATION_ANTHROPIC, "GET", "/v1/models/*", ROUTE_PLAIN},
	/* Asked by Claude Code before its first call; answered here. */
	{OPERATION_ANTHROPIC, "HEAD", "/", ROUTE_HELLO},
	{OPERATION_ANTHROPIC, "GET", "/", ROUTE_HELLO},
	{OPERATION_OPENAI, "POST", "/v1/responses", ROUTE_INFERENCE},
	{OPERATION_OPENAI, "POST", "/v1/responses/compact", ROUTE_INFERENCE},
	{OPERATION_OPENAI, "GET", "/v1/models", ROUTE_PLAIN},
	{OPERATION_OPENAI, "GET", "/v1/models/*", ROUTE_PLAIN},
};

static bool path_fits(const char *pattern, const char *path)
{
	size_t length = strlen(pattern);
	if (pattern[length - 1] != '*')
		return strcmp(pattern, path) == 0;
	return strncmp(pattern, path, length - 1) == 0 && path[length - 1] &&
	       !strchr(path + length - 1, '/');
}

bool ai_route(enum operation operation, const char *method, const char *path, enum route *ret_route)
{
	for (size_t i = 0; i < sizeof(offers) / sizeof(offers[0]); i++) {
		const struct offer *offer = &offers[i];
		if (offer->operation != operation || strcmp(offer->method, method) != 0 ||
		    !path_fits(offer->path, path))
			continue;
		*ret_route = offer->route;
		return true;
	}
	return false;
}

const char *ai_paths(enum operation operation)
{
	return operation == OPERATION_ANTHROPIC
		       ? "POST /v1/messages, POST /v1/messages/count_tokens, GET /v1/models"
		       : "POST /v1/responses, POST /v1/responses/compact, GET /v1/models";
}

/* --- admission -------------------------------------------------------------------------------- */

static struct upstream *upstream_of(const struct op *op)
{
	return &op->broker->upstreams[op->operation];
}

static bool has_price(const struct upstream *upstream)
{
	return upstream->prices.input || upstream->prices.output;
}

/* At most what the call can cost. */
static void estimate(struct op *op, struct amounts *want)
{
	const struct upstream *upstream = upstream_of(op);
	struct usage usage = {0};
	want->of[BUDGET_REQUESTS] = 1;
	want->of[BUDGET_TOKENS] = want->of[BUDGET_MONEY] = 0;
	if (op->route != ROUTE_INFERENCE)
		return;
	op->input_estimate = op->body.length / 4 + 1;
	uint64_t output =
		op->inquiry.max_output ? op->inquiry.max_output : upstream->max_output_tokens;
	usage.input = op->input_estimate;
	usage.output = output < TOKENS_MOST ? output : TOKENS_MOST;
	want->of[BUDGET_TOKENS] = usage.input + usage.output;
	want->of[BUDGET_MONEY] = usage_micro_usd(&usage, &upstream->prices);
	if (want->of[BUDGET_MONEY] > (uint64_t)1 << 60)
		want->of[BUDGET_MONEY] = (uint64_t)1 << 60;
}

static bool judge_body(struct op *op)
{
	if (op->route != ROUTE_INFERENCE && op->route != ROUTE_COUNT)
		return true;
	const char *why = inquiry_end(&op->inquiry);
	if (why)
		op_refuse(op, 400, "malformed", "%s %s is refused: %s", op->method,
			  op->upstream_path, why);
	return !why;
}

static bool judge_price(struct op *op)
{
	bool money = op->principal->budget.caps.of[BUDGET_MONEY] ||
		     op->broker->budget.caps.of[BUDGET_MONEY];
	if (!money || op->route != ROUTE_INFERENCE || has_price(upstream_of(op)))
		return true;
	op->answer_final = true;
	op_refuse(op, 402, "no_price",
		  "there is a money budget, but no price is known for model %s of %s: set the "
		  "prices of the "
		  "upstream",
		  op->inquiry.model, operation_name(op->operation));
	return false;
}

static char *request_json(struct op *op)
{
	unsigned char digest[crypto_hash_sha256_BYTES];
	char hex[2 * sizeof(digest) + 1];
	crypto_hash_sha256_state hash = op->hash;
	crypto_hash_sha256_final(&hash, digest);
	sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
	json_t *request = json_pack(
		"{s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:b, s:I, s:I}", "method", op->method, "path",
		op->upstream_path, "principal", op->principal->name, "principal_generation",
		(json_int_t)op->principal->generation, "bytes", (json_int_t)op->body.length,
		"sha256", hex, "model", op->inquiry.model, "stream", op->inquiry.stream,
		"reserved_tokens", (json_int_t)op->reserved.of[BUDGET_TOKENS], "reserved_micro_usd",
		(json_int_t)op->reserved.of[BUDGET_MONEY]);
	char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	return text;
}

/* Intent and dispatch, both durable. */
static bool record_dispatch(struct op *op)
{
	orch_broker *broker = op->broker;
	_cleanup_free_ char *request = request_json(op);
	_cleanup_free_ char *key =
		orch_strdup_printf("%s/%s/%llu", op->principal->name, broker->instance,
				   (unsigned long long)++broker->next_number);
	orch_error *error = NULL;
	uint32_t outcome = 0;
	int32_t code = ORCH_ENOMEM;
	if (request && key) {
		struct orch_action_opts opts;
		orch_action_opts_init(&opts, sizeof(opts));
		opts.kind = operation_name(op->operation);
		opts.key = key;
		opts.policy = ORCH_POLICY_REPEATABLE;
		opts.request = request;
		opts.request_length = strlen(request);
		code = orch_journal_begin(broker->journal, &opts, &outcome, &op->action, &error);
	}
	if (code == 0 && outcome != ORCH_BEGIN_FRESH)
		code = orch_fail(&error, ORCH_ESTATE, 0, NULL, "key %s is in the journal already",
				 key);
	if (code == 0)
		code = orch_action_dispatch(op->action, &error);
	if (code < 0) {
		op->answer_final = true;
		op_refuse(op, 503, "journal",
			  "the operation could not be recorded, so it was not done: %s: %s",
			  orch_code_text(code), orch_error_message(error));
	}
	orch_error_free(error);
	return code == 0;
}

/* --- upstream --------------------------------------------------------------------------------- */

static void on_up_header(void *userdata, const char *name, const char *value)
{
	struct op *op = userdata;
	quota_header(&op->quota, name, value, orch_realtime_ms());
	if (strcasecmp(name, "content-length") == 0)
		op->content_length = strtoll(value, NULL, 10);
	else if (strcasecmp(name, "content-encoding") == 0)
		op->encoded = op->encoded || strcasecmp(value, "identity") != 0;
	else if (strcasecmp(name, "content-type") == 0)
		meter_init(&op->meter, strncasecmp(value, "text/event-stream", 17) == 0);
	if (!header_value_valid(value) ||
	    op->down_headers.length + strlen(name) + strlen(value) + 2 > HEADERS_LIMIT)
		return;
	_cleanup_free_ char *clean = strdup(value);
	if (!clean)
		return;
	scrub_text(&op->scrub, clean);
	orch_buf_add(&op->down_headers, name, strlen(name) + 1);
	orch_buf_add(&op->down_headers, clean, strlen(clean) + 1);
}

/* The model thinks: where upstream says nothing, this does, between two events and to nobody's
 * cost. */
static void on_silence(void *userdata)
{
	static const char ping[] = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
	struct op *op = userdata;
	int64_t silent_ms = (orch_monotonic_us() - op->last_byte_us) / 1000;
	if (op->upstream_done)
		return;
	if (silent_ms < op->broker->ping_ms) {
		orch_source_timer_set(op->ping, op->broker->ping_ms - silent_ms);
		return;
	}
	if (!op->meter.within_event && !op->scrub.held.length && op->out.length == op->out_offset) {
		orch_buf_puts(&op->out, ping);
		op_schedule(op);
	}
	orch_source_timer_set(op->ping, op->broker->ping_ms);
}

static void on_up_head(void *userdata, int status)
{
	struct op *op = userdata;
	op->status = status;
	op->head_ready = true;
	op->last_byte_us = orch_monotonic_us();
	bool framed_by_us = op->content_length < 0 || op->encoded;
	/* Without the timer the stream is as silent as upstream. */
	if (op->operation == OPERATION_ANTHROPIC && op->meter.sse && framed_by_us)
		orch_source_timer(op->broker->ctx, op->broker->ping_ms, on_silence, op, &op->ping,
				  NULL);
	op_schedule(op);
}

static bool on_up_body(void *userdata, const char *bytes, size_t length)
{
	struct op *op = userdata;
	if (op->out.length - op->out_offset >= STREAM_HIGH) {
		op->paused = true;
		return false;
	}
	op->last_byte_us = orch_monotonic_us();
	meter_feed(&op->meter, bytes, length);
	scrub_feed(&op->scrub, bytes, length, &op->out);
	op_schedule(op);
	return true;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* What the call is billed with: what the provider said, and where it did not come to say it, what
 * was seen. */
static struct usage final_usage(const struct op *op, bool complete, bool *ret_estimated)
{
	struct usage usage = op->meter.usage;
	bool success = op->status >= 200 && op->status < 300;
	*ret_estimated = false;
	if (op->route != ROUTE_INFERENCE || (op->status && !success))
		return usage;
	if (complete && usage.seen && (op->meter.terminal || !op->meter.sse))
		return usage;
	*ret_estimated = true;
	if (!usage_tokens_in(&usage))
		usage.input = op->input_estimate;
	/* Each event of a stream carries about a token or more; a body without a count is text. */
	uint64_t seen = op->meter.events;
	if (usage.output < seen)
		usage.output = seen;
	return usage;
}

static char *result_json(const struct op *op, const struct usage *usage, uint64_t micro_usd,
			 bool estimated, bool complete, const char *code)
{
	json_t *result = json_pack("{s:i, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:s}", "status",
				   op->status, "input_tokens", (json_int_t)usage_tokens_in(usage),
				   "output_tokens", (json_int_t)usage->output, "cache_read_tokens",
				   (json_int_t)usage->cache_read, "micro_usd",
				   (json_int_t)micro_usd, "estimated", estimated, "partial",
				   !complete, "code", code, "error_type", op->meter.error_type);
	char *text = result ? json_dumps(result, JSON_COMPACT) : NULL;
	json_decref(result);
	return text;
}

static void record_end(struct op *op, uint32_t event, const char *result)
{
	orch_error *error = NULL;
	size_t length = result ? strlen(result) : 0;
	int32_t code;
	if (event == ORCH_OPERATION_OBSERVED) {
		code = orch_action_observe(op->action, result, length, &error);
		if (code == 0)
			code = orch_action_confirm(op->action, &error);
	} else if (event == ORCH_OPERATION_FAILED) {
		code = orch_action_fail(op->action, result, length, &error);
	} else {
		code = orch_action_unknown(op->action, result, length, &error);
	}
	/* The dispatch is on record: the next coordinator finds it open and settles it. */
	if (code < 0)
		broker_log(op->broker, ORCH_LOG_ERROR,
			   "broker: %s: the end of %s could not be recorded: %s",
			   op->principal->name, orch_action_key(op->action),
			   orch_error_message(error));
	orch_error_free(error);
}

/* Settles the budget, then the journal, then tells. Once. */
static void end(struct op *op, uint32_t event, bool complete, const char *code)
{
	bool estimated;
	op->phase = OP_ENDED;
	op->ping = orch_source_remove(op->ping);
	if (event == ORCH_OPERATION_FAILED) {
		op_settle(op, NULL);
		_cleanup_free_ char *result =
			result_json(op, &(struct usage){0}, 0, false, false, code);
		record_end(op, event, result);
	} else {
		struct usage usage = final_usage(op, complete, &estimated);
		uint64_t tokens = usage_tokens_in(&usage) + usage.output;
		uint64_t micro_usd = usage_micro_usd(&usage, &upstream_of(op)->prices);
		op_settle(op, &(struct amounts){{1, tokens, micro_usd}});
		_cleanup_free_ char *result =
			result_json(op, &usage, micro_usd, estimated, complete, code);
		record_end(op, event, result);
	}
	int64_t resets_at_ms = 0;
	if (op->status == 429 || op->status == 529)
		resets_at_ms = quota_resets_at_ms(&op->quota, &op->meter, orch_realtime_ms());
	broker_tell(op->broker, op->principal, op->operation, event, code, op->status,
		    resets_at_ms);
}

static void on_up_done(void *userdata, enum call_end how, const char *code, const char *why)
{
	struct op *op = userdata;
	op->call = NULL;
	scrub_end(&op->scrub, &op->out);
	op->upstream_done = true;
	op->upstream_failed = how != CALL_COMPLETE || op->out.failed;
	if (how == CALL_NOT_SENT)
		end(op, ORCH_OPERATION_FAILED, false, code);
	else
		end(op, op->head_ready ? ORCH_OPERATION_OBSERVED : ORCH_OPERATION_UNKNOWN,
		    how == CALL_COMPLETE, code);
	if (how != CALL_COMPLETE)
		broker_log(op->broker, ORCH_LOG_WARNING, "broker: %s: %s: %s: %s",
			   op->principal->name, operation_name(op->operation), code, why);
	if (!op->head_ready)
		op_refuse(op, strcmp(code, "upstream_timeout") == 0 ? 504 : 502, code,
			  "%s did not answer: %s%s", operation_name(op->operation), why,
			  how == CALL_NOT_SENT ? "; nothing was sent"
					       : "; what was sent may have been done");
	op_drop_body(op);
	op_schedule(op);
	op_unref(op);
}

static const struct call_events ai_events = {
	.header = on_up_header,
	.head = on_up_head,
	.body = on_up_body,
	.done = on_up_done,
};

uint32_t ai_abort(struct op *op, const char *code)
{
	if (op->phase != OP_DISPATCHED)
		return 0;
	op->call = call_stop(op->call);
	op->upstream_done = op->upstream_failed = true;
	op->paused = false;
	uint32_t event = op->head_ready ? ORCH_OPERATION_OBSERVED : ORCH_OPERATION_UNKNOWN;
	end(op, event, false, code);
	op_drop_body(op);
	op->cut = true;
	op_schedule(op);
	op_unref(op);
	return event;
}

static struct curl_slist *up_headers(struct op *op)
{
	const struct upstream *upstream = upstream_of(op);
	struct curl_slist *list = headers_leave_out(ORCH_STEAL(op->up_headers), "Expect");
	if (list && !op->content_type)
		list = headers_leave_out(list, "Content-Type");
	if (list && upstream->credential == ORCH_CREDENTIAL_API_KEY &&
	    op->operation == OPERATION_ANTHROPIC) {
		list = headers_add(list, "x-api-key", upstream->secret);
	} else if (list && upstream->credential != ORCH_CREDENTIAL_NONE) {
		_cleanup_free_ char *bearer = orch_strdup_printf("Bearer %s", upstream->secret);
		list = bearer ? headers_add(list, "Authorization", bearer) : list;
		if (bearer)
			orch_erase(bearer, strlen(bearer));
	}
	return list;
}

static bool start(struct op *op)
{
	_cleanup_free_ char *url = orch_strdup_printf(
		"%s%s%s%s", upstream_of(op)->base_url, op->upstream_path,
		op->target.query ? "?" : "", op->target.query ? op->target.query : "");
	struct curl_slist *headers = up_headers(op);
	if (!url || !headers) {
		headers_free(headers);
		return false;
	}
	const struct call_request request = {
		.method = op->method,
		.url = url,
		.headers = headers,
		.body = op->body.data,
		.body_length = op->body.length,
	};
	op->call = call_start(op->broker, &request, &ai_events, op_ref(op));
	if (!op->call)
		op_unref(op);
	return op->call != NULL;
}

void ai_dispatch(struct op *op)
{
	struct amounts want;
	if (!judge_body(op))
		return;
	if (!upstream_of(op)->base_url) {
		op_refuse(op, 503, "no_upstream", "the host has not said where %s is",
			  operation_name(op->operation));
		return;
	}
	if (!judge_price(op))
		return;
	estimate(op, &want);
	if (!op_reserve(op, &want))
		return;
	if (!record_dispatch(op)) {
		op_settle(op, NULL);
		return;
	}
	broker_scrub(op->broker, &op->scrub);
	meter_init(&op->meter, false);
	op->phase = OP_DISPATCHED;
	broker_tell(op->broker, op->principal, op->operation, ORCH_OPERATION_DISPATCHED, "", 0, 0);
	if (start(op))
		return;
	end(op, ORCH_OPERATION_FAILED, false, "memory");
	op_refuse(op, 503, "memory", "no memory for the call");
}
