/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <strings.h>

#include "broker-private.h"

/* --- life ------------------------------------------------------------------------------------- */

struct op *op_new(struct listener *listener, const char *raw_target)
{
	struct op *op = calloc(1, sizeof(*op));
	char *raw = strdup(raw_target);
	if (!op || !raw) {
		free(op);
		free(raw);
		return NULL;
	}
	op->references = 1;
	op->broker = listener->broker;
	op->principal = orch_principal_ref(listener->principal);
	op->listener = listener;
	op->raw_target = raw;
	op->operation = OPERATION_NONE;
	op->content_length = -1;
	op->next = op->broker->ops;
	if (op->next)
		op->next->previous = op;
	op->broker->ops = op;
	return op;
}

struct op *op_ref(struct op *op)
{
	op->references++;
	return op;
}

struct op *op_unref(struct op *op)
{
	if (--op->references)
		return NULL;
	if (op->previous)
		op->previous->next = op->next;
	else
		op->broker->ops = op->next;
	if (op->next)
		op->next->previous = op->previous;
	op_drop_body(op);
	orch_source_remove(op->ping);
	call_stop(op->call);
	orch_action_unref(op->action);
	target_clear(&op->target);
	headers_free(op->up_headers);
	scrub_clear(&op->scrub);
	orch_buf_free(&op->answer);
	orch_buf_free(&op->down_headers);
	orch_buf_free(&op->out);
	orch_buf_free(&op->reply);
	free(op->raw_target);
	free(op->idempotency_key);
	free(op->content_type);
	free(op->answer_type);
	free(op->journal_key);
	free(op->request_json);
	free(op->reply_type);
	orch_principal_unref(op->principal);
	free(op);
	return NULL;
}

void op_drop_body(struct op *op)
{
	op->principal->body_bytes -= op->body.length;
	orch_buf_free(&op->body);
}

void op_schedule(struct op *op)
{
	if (op->scheduled)
		return;
	op->scheduled = true;
	op_ref(op);
	op->next_scheduled = op->broker->scheduled;
	op->broker->scheduled = op;
	broker_wake(op->broker);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refuse(struct op *op, int status, const char *code, const char *format,
		   va_list arguments)
{
	if (op->answered || op->queued)
		return;
	_cleanup_free_ char *why = NULL;
	if (vasprintf(&why, format, arguments) < 0)
		why = NULL;
	struct scrub scrub = {0};
	broker_scrub(op->broker, &scrub);
	if (why)
		scrub_text(&scrub, why);
	json_t *body = json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", code,
				 "message", why ? why : code);
	_cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	orch_buf_free(&op->answer);
	orch_buf_puts(&op->answer,
		      text ? text : "{\"type\":\"error\",\"error\":{\"type\":\"memory\"}}");
	free(op->answer_type);
	op->answer_type = strdup("application/json");
	op->answered = true;
	op->answer_status = status;
	broker_log(op->broker, ORCH_LOG_NOTICE, "broker: %s: %s refused with %d %s: %s",
		   op->principal->name,
		   op->operation == OPERATION_NONE ? "request" : operation_name(op->operation),
		   status, code, why ? why : "");
}

void op_refuse(struct op *op, int status, const char *code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	bool before = op->answered || op->queued;
	refuse(op, status, code, format, arguments);
	va_end(arguments);
	if (before)
		return;
	/* What failed after dispatch is told as FAILED or UNKNOWN by whoever ends it. */
	if (op->phase == OP_READING || op->phase == OP_PROBING)
		broker_tell(op->broker, op->principal, op->operation, ORCH_OPERATION_REFUSED, code,
			    status, 0);
	op_drop_body(op);
}

/* --- judging the head ------------------------------------------------------------------------- */

struct head {
	struct op *op;
	unsigned hosts;
	const char *host, *why;
	bool websocket, encoded;
	uint64_t content_length;
	struct curl_slist *up;
	bool failed;
};

static enum MHD_Result on_header(void *userdata, enum MHD_ValueKind kind, const char *name,
				 const char *value)
{
	struct head *head = userdata;
	(void)kind;
	if (!value)
		value = "";
	if (strcasecmp(name, "host") == 0) {
		head->hosts++;
		head->host = value;
	} else if (strcasecmp(name, "upgrade") == 0) {
		head->websocket = head->websocket || strcasecmp(value, "websocket") == 0;
	} else if (strcasecmp(name, "content-encoding") == 0) {
		head->encoded = head->encoded || strcasecmp(value, "identity") != 0;
	} else if (strcasecmp(name, "content-length") == 0) {
		head->content_length = strtoull(value, NULL, 10);
	} else if (strcasecmp(name, "idempotency-key") == 0) {
		if (head->op->idempotency_key)
			head->why = "it has two Idempotency-Key headers";
		else
			head->failed = !(head->op->idempotency_key = strdup(value)) || head->failed;
	} else if (strcasecmp(name, "content-type") == 0 && !head->op->content_type) {
		head->failed = !(head->op->content_type = strdup(value)) || head->failed;
	}
	if (!header_goes_up(name) || head->failed)
		return MHD_YES;
	if (!header_value_valid(value)) {
		head->why = "a header holds control characters";
	} else if (!(head->up = headers_add(head->up, name, value))) {
		head->failed = true;
	}
	return MHD_YES;
}

/* NULL, or why the request is malformed. */
static const char *read_head(struct op *op, struct head *head)
{
	MHD_get_connection_values(op->connection, MHD_HEADER_KIND, on_header, head);
	op->up_headers = head->up;
	if (head->failed)
		return "out of memory";
	if (head->why)
		return head->why;
	const char *why = target_parse(op->raw_target, &op->target);
	if (why)
		return why;
	if (head->hosts > 1)
		return "it has two Host headers";
	if (head->host && !host_port_valid(head->host))
		return "its Host header is malformed";
	if (op->target.authority &&
	    (!head->host || !host_port_equal(op->target.authority, head->host)))
		return "its target names another host than its Host header";
	return NULL;
}

static void answer_list(struct op *op)
{
	_cleanup_free_ char *may = principal_may(op->principal);
	json_t *body = json_pack("{s:s, s:s}", "principal", op->principal->name, "may_use",
				 may ? may : "");
	_cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	op->answered = true;
	op->answer_status = 200;
	orch_buf_puts(&op->answer, text ? text : "{}");
	op->answer_type = strdup("application/json");
}

/* Operation and route of the canonical path; false: refused. */
static bool find_route(struct op *op)
{
	const char *path = op->target.path + 1;
	size_t length = strcspn(path, "/");
	op->operation = operation_find(path, length);
	op->upstream_path = path[length] ? path + length : "/";
	if (op->operation == OPERATION_NONE) {
		_cleanup_free_ char *may = principal_may(op->principal);
		op_refuse(op, 404, "unknown_operation",
			  "there is no operation \"%.*s\"; principal %s may use: %s",
			  (int)(length < 64 ? length : 64), path, op->principal->name,
			  may ? may : "");
		return false;
	}
	const char *code;
	_cleanup_free_ char *why = NULL;
	struct grant *grant = principal_allows(op->principal, op->operation, &code, &why);
	/* What is used up may still be replayed: that is judged when the key is known. */
	if (!grant && !(op->operation == OPERATION_NOTIFY && strcmp(code, "grant_used_up") == 0)) {
		op->answer_final = true;
		op_refuse(op, 403, code, "%s", why ? why : "no grant");
		return false;
	}
	if (op->operation == OPERATION_NOTIFY) {
		op->route = ROUTE_NOTIFY;
		if (strcmp(op->upstream_path, "/") == 0 && !op->target.query) {
			if (strcmp(op->method, "POST") == 0)
				return true;
			op_refuse(op, 405, "method", "notify.send takes POST, not %s", op->method);
			return false;
		}
	} else if (ai_route(op->operation, op->method, op->upstream_path, &op->route)) {
		return true;
	}
	op_refuse(op, 404, "unknown_path", "%s %s is not among what %s offers: %s", op->method,
		  op->upstream_path, operation_name(op->operation),
		  op->operation == OPERATION_NOTIFY ? "POST /notify.send"
						    : ai_paths(op->operation));
	return false;
}

void op_begin(struct op *op, const char *method)
{
	struct head head = {.op = op};
	snprintf(op->method, sizeof(op->method), "%s", method);
	inquiry_init(&op->inquiry);
	crypto_hash_sha256_init(&op->hash);
	const char *why = read_head(op, &head);
	if (why) {
		op_refuse(op, 400, "malformed", "the request is refused: %s", why);
		return;
	}
	if (strcmp(op->target.path, "/") == 0 &&
	    (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)) {
		answer_list(op);
		return;
	}
	/* Before the route: a client that is told so goes on with HTTP, one that gets 404 tries
	 * again. */
	if (head.websocket) {
		op_refuse(op, 426, "no_websocket",
			  "only HTTP is spoken here: configure the client not to try websockets");
		return;
	}
	if (!find_route(op))
		return;
	size_t limit = op->operation == OPERATION_NOTIFY ? NOTIFY_LIMIT : BODY_LIMIT;
	if (head.content_length > limit)
		op_refuse(op, 413, "too_large", "the body has %llu bytes; %s takes at most %zu",
			  (unsigned long long)head.content_length, operation_name(op->operation),
			  limit);
	else if (head.encoded)
		op_refuse(op, 415, "encoded",
			  "the body is compressed and can not be judged: send it plain");
	else if (op->route == ROUTE_HELLO) {
		op->answered = true;
		op->answer_status = 200;
	}
}

bool op_body(struct op *op, const char *bytes, size_t length)
{
	size_t limit = op->operation == OPERATION_NOTIFY ? NOTIFY_LIMIT : BODY_LIMIT;
	op->body_seen += length;
	/* A refusal waits for the end of the body, or the client would not read it; but not for
	 * ever. */
	if (op->answered)
		return op->body_seen <= 2 * BODY_LIMIT;
	if (op->body_seen > limit) {
		op_refuse(op, 413, "too_large",
			  "the body is longer than %zu bytes, which is what %s takes", limit,
			  operation_name(op->operation));
		return true;
	}
	if (op->principal->body_bytes + length > BODIES_LIMIT) {
		op->answer_retry = true;
		op_refuse(op, 503, "busy",
			  "principal %s has %zu bytes of requests open at the same time",
			  op->principal->name, op->principal->body_bytes);
		return true;
	}
	orch_buf_add(&op->body, bytes, length);
	if (op->body.failed) {
		op->body.length = 0;
		op_refuse(op, 503, "memory", "no memory for the body");
		return true;
	}
	op->principal->body_bytes += length;
	crypto_hash_sha256_update(&op->hash, (const unsigned char *)bytes, length);
	if (op->operation != OPERATION_NOTIFY)
		inquiry_feed(&op->inquiry, bytes, length);
	return true;
}

/* --- admission -------------------------------------------------------------------------------- */

static bool budget_room(struct op *op, struct budget *budget, const char *whose,
			const struct amounts *want)
{
	static const char *const codes[BUDGET_KINDS] = {"budget_requests", "budget_tokens",
							"budget_money"};
	static const char *const units[BUDGET_KINDS] = {"requests", "tokens", "micro-USD"};
	bool final = false;
	int kind = budget_check(budget, want, &final);
	if (kind < 0)
		return true;
	budget->hit = true;
	op->principal->budget.hit = true;
	op->answer_final = final;
	op->answer_retry = !final;
	op_refuse(op, final ? 402 : 429, codes[kind],
		  "the budget of %s is %s: %llu %s allowed, %llu spent, %llu reserved by calls in "
		  "flight, %llu "
		  "wanted",
		  whose, final ? "spent" : "reserved by calls in flight",
		  (unsigned long long)budget->caps.of[kind], units[kind],
		  (unsigned long long)budget->spent.of[kind],
		  (unsigned long long)budget->reserved.of[kind],
		  (unsigned long long)want->of[kind]);
	return false;
}

bool op_reserve(struct op *op, const struct amounts *want)
{
	const char *code;
	_cleanup_free_ char *why = NULL;
	op->grant = principal_allows(op->principal, op->operation, &code, &why);
	if (!op->grant) {
		op->answer_final = true;
		op_refuse(op, 403, code, "%s", why ? why : "no grant");
		return false;
	}
	if (!budget_room(op, &op->principal->budget, op->principal->name, want) ||
	    !budget_room(op, &op->broker->budget, "all principals together", want))
		return false;
	op->reserved = *want;
	op->has_reserved = true;
	budget_reserve(&op->principal->budget, want);
	budget_reserve(&op->broker->budget, want);
	op->grant->uses++;
	return true;
}

void op_settle(struct op *op, const struct amounts *spent)
{
	if (!op->has_reserved)
		return;
	op->has_reserved = false;
	budget_settle(&op->principal->budget, &op->reserved, spent);
	budget_settle(&op->broker->budget, &op->reserved, spent);
	if (!spent)
		op->grant->uses--;
}

void op_dispatch(struct op *op)
{
	if (op->operation == OPERATION_NOTIFY)
		notify_dispatch(op);
	else
		ai_dispatch(op);
}

/* --- between client and upstream -------------------------------------------------------------- */

static size_t out_length(const struct op *op)
{
	return op->out.length - op->out_offset;
}

bool op_wants_client(const struct op *op)
{
	if (op->cut || op->client_gone)
		return true;
	if (op->queued)
		return out_length(op) || op->upstream_done;
	return op->answered || op->head_ready;
}

ssize_t op_read(struct op *op, char *room, size_t length)
{
	size_t ready = out_length(op);
	if (!ready) {
		if (op->cut || op->client_gone || (op->upstream_done && op->upstream_failed))
			return -2;
		return op->upstream_done ? -1 : 0;
	}
	if (length > ready)
		length = ready;
	memcpy(room, op->out.data + op->out_offset, length);
	op->out_offset += length;
	if (op->out_offset == op->out.length || op->out_offset >= STREAM_LOW) {
		orch_buf_shift(&op->out, op->out_offset);
		op->out_offset = 0;
	}
	if (op->paused && out_length(op) <= STREAM_LOW)
		op_schedule(op);
	return (ssize_t)length;
}

void op_client_ended(struct op *op)
{
	/* notify.send goes on: its outcome is wanted whoever asked for it. */
	if (op->phase == OP_DISPATCHED && op->operation != OPERATION_NOTIFY)
		op_schedule(op);
	else if (op->phase == OP_READING)
		op->phase = OP_ENDED;
}

void op_work(struct op *op)
{
	bool gone = !op->connection || op->client_gone;
	if (gone && op->phase == OP_DISPATCHED && op->operation != OPERATION_NOTIFY)
		ai_abort(op, "client_gone");
	if (op->paused && op->call && out_length(op) <= STREAM_LOW) {
		op->paused = false;
		call_unpause(op->call);
	}
	if (op->connection && op->suspended && op_wants_client(op))
		listener_resume(op);
}

static uint32_t op_abort(struct op *op, const char *code)
{
	uint32_t event = 0;
	op->cut = true;
	if (op->phase == OP_DISPATCHED || op->phase == OP_PROBING)
		event = op->operation == OPERATION_NOTIFY ? notify_abort(op, code)
							  : ai_abort(op, code);
	op->phase = OP_ENDED;
	return event;
}

void ops_abort(orch_broker *broker, const orch_principal *principal, const char *code,
	       uint32_t *ret_settled, uint32_t *ret_unknown)
{
	struct op *op = broker->ops ? op_ref(broker->ops) : NULL;
	while (op) {
		if (!principal || op->principal == principal) {
			uint32_t event = op_abort(op, code);
			if (ret_settled)
				*ret_settled += event == ORCH_OPERATION_OBSERVED;
			if (ret_unknown)
				*ret_unknown += event == ORCH_OPERATION_UNKNOWN;
		}
		struct op *next = op->next ? op_ref(op->next) : NULL;
		op_unref(op);
		op = next;
	}
}
