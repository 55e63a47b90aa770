/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <strings.h>

#include "broker-private.h"

/* --- what is recorded ------------------------------------------------------------------------- */

/* Text as it is, other bytes as base64 under another name. */
static int set_body(json_t *object, const char *bytes, size_t length)
{
	json_t *text = json_stringn(length ? bytes : "", length);
	if (text)
		return json_object_set_new(object, "body", text);
	size_t room = sodium_base64_encoded_len(length, sodium_base64_VARIANT_ORIGINAL);
	_cleanup_free_ char *base64 = malloc(room);
	if (!base64)
		return -1;
	sodium_bin2base64(base64, room, (const unsigned char *)bytes, length,
			  sodium_base64_VARIANT_ORIGINAL);
	return json_object_set_new(object, "body_base64", json_string(base64));
}

static char *to_text(json_t *object, int failed)
{
	char *text = object && !failed ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	return text;
}

char *notify_result(int status, const char *content_type, const struct orch_buf *body, bool cut,
		    bool probed)
{
	json_t *result =
		json_pack("{s:i, s:b, s:b}", "status", status, "cut", cut, "probed", probed);
	int failed = result ? set_body(result, body->data, body->length) : -1;
	/* A type that is not UTF-8 is left out. */
	if (!failed && content_type)
		json_object_set_new(result, "content_type", json_string(content_type));
	return to_text(result, failed);
}

static char *request_json(const struct op *op, const struct grant *grant)
{
	json_t *request = json_pack("{s:s, s:s, s:I, s:s?, s:s?}", "key", op->journal_key,
				    "principal", op->principal->name, "principal_generation",
				    (json_int_t)op->principal->generation, "probe_url",
				    grant->probe_url, "content_type", op->content_type);
	int failed = request ? json_object_set_new(request, "url", json_string(grant->url)) : -1;
	if (!failed)
		failed = set_body(request, op->body.data, op->body.length);
	return to_text(request, failed);
}

static void answer_with(struct op *op, int status, const char *type, const char *body,
			size_t length, bool replayed)
{
	if (op->answered)
		return;
	op->answered = true;
	op->answer_status = status;
	op->answer_replayed = replayed;
	op->answer_type = type && header_value_valid(type) ? strdup(type) : NULL;
	orch_buf_add(&op->answer, body, length);
}

static void answer_from_result(struct op *op, bool replayed)
{
	size_t length = 0;
	const char *bytes = orch_action_result(op->action, &length);
	json_t *result = bytes ? json_loadb(bytes, length, 0, NULL) : NULL;
	json_t *status = json_object_get(result, "status");
	json_t *text = json_object_get(result, "body");
	const char *base64 = json_string_value(json_object_get(result, "body_base64"));
	const char *type = json_string_value(json_object_get(result, "content_type"));

	if (!json_is_integer(status)) {
		static const char kept_not[] =
			"{\"type\":\"done\",\"message\":\"it was done; the response is "
			"no longer kept\"}";
		answer_with(op, 200, "application/json", kept_not, sizeof(kept_not) - 1, replayed);
	} else if (base64) {
		_cleanup_free_ unsigned char *body = malloc(strlen(base64) + 1);
		size_t count = 0;
		if (body)
			sodium_base642bin(body, strlen(base64), base64, strlen(base64), NULL,
					  &count, NULL, sodium_base64_VARIANT_ORIGINAL);
		answer_with(op, (int)json_integer_value(status), type, (const char *)body, count,
			    replayed);
	} else {
		answer_with(op, (int)json_integer_value(status), type, json_string_value(text),
			    json_string_length(text), replayed);
	}
	json_decref(result);
}

/* --- the end, for the one who asked and those who wait for the same --------------------------- */

static void copy_answer(struct op *waiter, const struct op *op)
{
	if (waiter->answered)
		return;
	waiter->answered = true;
	waiter->answer_status = op->answer_status;
	waiter->answer_replayed = true;
	waiter->answer_retry = op->answer_retry;
	waiter->answer_type = op->answer_type ? strdup(op->answer_type) : NULL;
	orch_buf_add(&waiter->answer, op->answer.data, op->answer.length);
}

static void finish(struct op *op)
{
	op->phase = OP_ENDED;
	op_drop_body(op);
	while (op->waiters) {
		struct op *waiter = op->waiters;
		op->waiters = waiter->next_waiter;
		waiter->next_waiter = NULL;
		waiter->phase = OP_ENDED;
		copy_answer(waiter, op);
		op_schedule(waiter);
		op_unref(waiter);
	}
	op_schedule(op);
}

static void tell(struct op *op, uint32_t event, const char *code, int status)
{
	broker_tell(op->broker, op->principal, OPERATION_NOTIFY, event, code, status, 0);
}

static void refuse_unrecorded(struct op *op, orch_error **error, const char *what)
{
	op->answer_final = true;
	op_refuse(op, 503, "journal", "%s: %s", what, orch_error_message(*error));
	*error = orch_error_free(*error);
}

/* The outcome is open: nobody dispatches this key again without having asked. */
static void end_unknown(struct op *op, const char *code, const char *why)
{
	orch_error *error = NULL;
	json_t *reason = json_pack("{s:s, s:i}", "code", code, "status", op->status);
	_cleanup_free_ char *text = to_text(reason, 0);
	if (orch_action_unknown(op->action, text, text ? strlen(text) : 0, &error) < 0)
		broker_log(op->broker, ORCH_LOG_ERROR, "broker: %s stays DISPATCHED: %s",
			   op->journal_key, orch_error_message(error));
	orch_error_free(error);
	op_settle(op, &(struct amounts){{1, 0, 0}});
	op_refuse(op, 409, "outcome_unknown",
		  "%s was sent under key %s and may have been done: %s. Nothing was repeated. Ask "
		  "again with the "
		  "same key: the destination is asked first.",
		  operation_name(OPERATION_NOTIFY), op->idempotency_key, why);
	tell(op, ORCH_OPERATION_UNKNOWN, code, op->status);
	finish(op);
}

static void end_failed(struct op *op, const char *code, const char *why, bool was_sent)
{
	orch_error *error = NULL;
	_cleanup_free_ char *result =
		notify_result(op->status, op->reply_type, &op->reply, op->reply_cut, false);
	if (orch_action_fail(op->action, result, result ? strlen(result) : 0, &error) < 0)
		broker_log(op->broker, ORCH_LOG_ERROR, "broker: %s stays DISPATCHED: %s",
			   op->journal_key, orch_error_message(error));
	orch_error_free(error);
	op_settle(op, was_sent ? &(struct amounts){{1, 0, 0}} : NULL);
	if (was_sent) {
		op->grant->uses--;
		answer_with(op, op->status, op->reply_type, op->reply.data, op->reply.length,
			    false);
	} else {
		op_refuse(op, 502, code, "the destination was not reached, nothing was sent: %s",
			  why);
	}
	tell(op, ORCH_OPERATION_FAILED, code, op->status);
	finish(op);
}

static void end_observed(struct op *op)
{
	orch_error *error = NULL;
	_cleanup_free_ char *result =
		notify_result(op->status, op->reply_type, &op->reply, op->reply_cut, false);
	op_settle(op, &(struct amounts){{1, 0, 0}});
	if (orch_action_observe(op->action, result, result ? strlen(result) : 0, &error) < 0) {
		refuse_unrecorded(op, &error,
				  "it was sent and answered, but that could not be recorded");
		tell(op, ORCH_OPERATION_UNKNOWN, "journal", op->status);
		finish(op);
		return;
	}
	/* The destination itself said so: there is nothing further to ask. */
	if (orch_action_confirm(op->action, &error) < 0)
		broker_log(op->broker, ORCH_LOG_ERROR, "broker: %s stays OBSERVED: %s",
			   op->journal_key, orch_error_message(error));
	orch_error_free(error);
	answer_with(op, op->status, op->reply_type, op->reply.data, op->reply.length, false);
	tell(op, ORCH_OPERATION_OBSERVED, "", op->status);
	finish(op);
}

/* --- exchanges with the destination ----------------------------------------------------------- */

static void on_reply_header(void *userdata, const char *name, const char *value)
{
	struct op *op = userdata;
	if (strcasecmp(name, "content-type") != 0)
		return;
	free(op->reply_type);
	op->reply_type = strdup(value);
}

static void on_reply_head(void *userdata, int status)
{
	((struct op *)userdata)->status = status;
}

static bool on_reply_body(void *userdata, const char *bytes, size_t length)
{
	struct op *op = userdata;
	size_t room = NOTIFY_LIMIT - op->reply.length;
	if (length > room) {
		length = room;
		op->reply_cut = true;
	}
	orch_buf_add(&op->reply, bytes, length);
	return true;
}

static void clear_reply(struct op *op)
{
	op->status = 0;
	op->reply_cut = false;
	orch_buf_free(&op->reply);
	free(op->reply_type);
	op->reply_type = NULL;
}

static void scrub_reply(struct op *op)
{
	struct scrub scrub = {0};
	struct orch_buf clean = {0};
	broker_scrub(op->broker, &scrub);
	scrub_feed(&scrub, op->reply.data, op->reply.length, &clean);
	scrub_end(&scrub, &clean);
	orch_buf_free(&op->reply);
	op->reply = clean;
}

static bool is_refusal(int status)
{
	/* 408 and 409 can be said of a message that was taken all the same. */
	return status >= 300 && status < 500 && status != 408 && status != 409;
}

static void on_posted(void *userdata, enum call_end how, const char *code, const char *why)
{
	struct op *op = userdata;
	op->call = NULL;
	scrub_reply(op);
	if (how == CALL_NOT_SENT) {
		end_failed(op, code, why, false);
	} else if (how == CALL_COMPLETE && op->status >= 200 && op->status < 300) {
		end_observed(op);
	} else if (how == CALL_COMPLETE && is_refusal(op->status)) {
		end_failed(op, "refused_by_destination", "", true);
	} else if (how == CALL_COMPLETE) {
		char text[64];
		snprintf(text, sizeof(text), "the destination answered %d", op->status);
		end_unknown(op, "upstream_failed", text);
	} else {
		end_unknown(op, code, why);
	}
	op_unref(op);
}

static void post(struct op *op)
{
	static const struct call_events events = {on_reply_header, on_reply_head, on_reply_body,
						  on_posted};
	orch_error *error = NULL;
	if (orch_action_dispatch(op->action, &error) < 0) {
		refuse_unrecorded(op, &error,
				  "the dispatch could not be recorded, so nothing was sent");
		orch_action_fail(op->action, NULL, 0, NULL);
		op_settle(op, NULL);
		finish(op);
		return;
	}
	op->phase = OP_DISPATCHED;
	tell(op, ORCH_OPERATION_DISPATCHED, "", 0);
	clear_reply(op);
	_cleanup_free_ char *url = url_with_key(op->grant->url, op->journal_key);
	struct curl_slist *headers = headers_leave_out(NULL, "Expect");
	if (headers)
		headers = headers_add(headers, "Idempotency-Key", op->journal_key);
	if (headers)
		headers = headers_add(headers, "Content-Type",
				      op->content_type && header_value_valid(op->content_type)
					      ? op->content_type
					      : "application/octet-stream");
	const struct call_request request = {.method = "POST",
					     .url = url,
					     .headers = headers,
					     .body = op->body.data,
					     .body_length = op->body.length,
					     .fresh = true};
	if (url && headers)
		op->call = call_start(op->broker, &request, &events, op_ref(op));
	else
		headers_free(headers);
	if (op->call)
		return;
	if (url && headers)
		op_unref(op);
	end_failed(op, "memory", "no memory for the call", false);
}

static void begin(struct op *op);

static void apply_probe(struct op *op, uint32_t outcome, const char *result)
{
	orch_error *error = NULL;
	int32_t code = orch_action_resolve(op->action, outcome, result, result ? strlen(result) : 0,
					   &error);
	if (code < 0 && code != ORCH_ESTATE) {
		op_settle(op, NULL);
		refuse_unrecorded(op, &error, "what the destination said could not be recorded");
		finish(op);
		return;
	}
	orch_error_free(error);
	if (code == 0 && outcome == ORCH_OUTCOME_APPLIED) {
		op_settle(op, NULL);
		answer_from_result(op, true);
		tell(op, ORCH_OPERATION_OBSERVED, "probed", op->status);
		finish(op);
		return;
	}
	/* Known not to have been applied, or somebody else moved the action on: begin says what is
	 * next. */
	op->action = orch_action_unref(op->action);
	begin(op);
}

static void refuse_unknown(struct op *op, const char *why)
{
	op_settle(op, NULL);
	op->answer_final = true;
	op_refuse(op, 409, "outcome_unknown",
		  "an earlier attempt under key %s may have been done: %s. Nothing was repeated.",
		  op->idempotency_key, why);
	finish(op);
}

static void on_probed(void *userdata, enum call_end how, const char *code, const char *why)
{
	struct op *op = userdata;
	(void)code;
	op->call = NULL;
	scrub_reply(op);
	if (how == CALL_COMPLETE && op->status == 200) {
		_cleanup_free_ char *result =
			notify_result(200, op->reply_type, &op->reply, op->reply_cut, true);
		apply_probe(op, ORCH_OUTCOME_APPLIED, result);
	} else if (how == CALL_COMPLETE && op->status == 404) {
		apply_probe(op, ORCH_OUTCOME_NOT_APPLIED, "{\"probed\":true,\"status\":404}");
	} else if (how == CALL_COMPLETE) {
		static const char reason[] = "{\"probed\":true,\"code\":\"outcome_unknown\"}";
		orch_action_resolve(op->action, ORCH_OUTCOME_UNKNOWN, reason, sizeof(reason) - 1,
				    NULL);
		refuse_unknown(op, "the destination could not tell, so a person decides");
	} else {
		refuse_unknown(op, why);
	}
	op_unref(op);
}

static void probe(struct op *op)
{
	static const struct call_events events = {on_reply_header, on_reply_head, on_reply_body,
						  on_probed};
	uint32_t state = orch_action_state(op->action);
	if (state != ORCH_ACTION_DISPATCHED && state != ORCH_ACTION_UNKNOWN) {
		refuse_unknown(op, "a person decides on it");
		return;
	}
	if (!op->grant->probe_url) {
		refuse_unknown(op, "the grant names nothing to ask whether it was");
		return;
	}
	op->phase = OP_PROBING;
	clear_reply(op);
	_cleanup_free_ char *url = url_with_key(op->grant->probe_url, op->journal_key);
	const struct call_request request = {.method = "GET",
					     .url = url,
					     .fresh = true,
					     .total_ms = op->broker->connect_timeout_ms};
	op->call = url ? call_start(op->broker, &request, &events, op_ref(op)) : NULL;
	if (op->call)
		return;
	if (url)
		op_unref(op);
	refuse_unknown(op, "no memory to ask the destination");
}

/* --- admission -------------------------------------------------------------------------------- */

static void begin(struct op *op)
{
	struct orch_action_opts opts;
	orch_error *error = NULL;
	uint32_t outcome = 0;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = operation_name(OPERATION_NOTIFY);
	opts.key = op->journal_key;
	opts.policy = ORCH_POLICY_NEVER_REPEAT;
	opts.request = op->request_json;
	opts.request_length = strlen(op->request_json);
	opts.fingerprint = op->fingerprint;
	opts.fingerprint_length = sizeof(op->fingerprint);
	int32_t code =
		orch_journal_begin(op->broker->journal, &opts, &outcome, &op->action, &error);
	if (code < 0 && code != ORCH_ECONFLICT) {
		op_settle(op, NULL);
		refuse_unrecorded(op, &error,
				  "the message could not be recorded, so it was not sent");
		finish(op);
		return;
	}
	orch_error_free(error);
	switch (outcome) {
	case ORCH_BEGIN_FRESH:
		post(op);
		return;
	case ORCH_BEGIN_AMBIGUOUS:
		if (op->probed++) {
			refuse_unknown(op, "it was asked about and changed meanwhile");
			return;
		}
		probe(op);
		return;
	case ORCH_BEGIN_REPLAY:
		op_settle(op, NULL);
		answer_from_result(op, true);
		tell(op, ORCH_OPERATION_OBSERVED, "replayed", op->answer_status);
		break;
	case ORCH_BEGIN_ATTACHED:
		op_settle(op, NULL);
		op->answer_retry = true;
		op_refuse(op, 409, "in_flight", "key %s is being sent just now",
			  op->idempotency_key);
		break;
	default:
		op_settle(op, NULL);
		op->answer_final = true;
		op_refuse(op, 422, "key_conflict",
			  "key %s stands for another message: a new message needs a new key",
			  op->idempotency_key);
		break;
	}
	finish(op);
}

/* Another request with the same key that is on its way in this broker. */
static struct op *same_key(const struct op *op)
{
	for (struct op *other = op->broker->ops; other; other = other->next)
		if (other != op && (other->phase == OP_DISPATCHED || other->phase == OP_PROBING) &&
		    other->journal_key && strcmp(other->journal_key, op->journal_key) == 0)
			return other;
	return NULL;
}

static void wait_for(struct op *op, struct op *other)
{
	if (memcmp(op->fingerprint, other->fingerprint, sizeof(op->fingerprint)) != 0) {
		op->answer_final = true;
		op_refuse(op, 422, "key_conflict",
			  "key %s stands for another message, which is being sent just now",
			  op->idempotency_key);
		return;
	}
	op->phase = OP_WAITING;
	op_drop_body(op);
	op->next_waiter = other->waiters;
	other->waiters = op_ref(op);
}

static bool prepare(struct op *op, const struct grant *grant)
{
	crypto_hash_sha256_state hash;
	op->journal_key = orch_strdup_printf("%s%s", grant->key_prefix, op->idempotency_key);
	op->request_json = op->journal_key ? request_json(op, grant) : NULL;
	crypto_hash_sha256_init(&hash);
	crypto_hash_sha256_update(&hash, (const unsigned char *)grant->url, strlen(grant->url) + 1);
	crypto_hash_sha256_update(&hash, (const unsigned char *)op->body.data, op->body.length);
	crypto_hash_sha256_final(&hash, op->fingerprint);
	if (!op->request_json)
		op_refuse(op, 503, "memory", "no memory to record the message");
	return op->request_json != NULL;
}

static bool is_recorded(const struct op *op)
{
	orch_action *action = NULL;
	if (orch_journal_find(op->broker->journal, op->journal_key, &action, NULL) < 0)
		return false;
	uint32_t state = orch_action_state(action);
	orch_action_unref(action);
	return state == ORCH_ACTION_OBSERVED || state == ORCH_ACTION_CONFIRMED;
}

void notify_dispatch(struct op *op)
{
	if (!op->idempotency_key || !idempotency_key_valid(op->idempotency_key)) {
		op_refuse(op, 400, "idempotency_key",
			  "notify.send needs an Idempotency-Key header of 1 to 200 visible ASCII "
			  "characters: the "
			  "same for each try of the same message");
		return;
	}
	const char *code;
	_cleanup_free_ char *why = NULL;
	struct grant *grant = principal_allows(op->principal, OPERATION_NOTIFY, &code, &why);
	if (!grant && strcmp(code, "grant_used_up") == 0)
		grant = principal_used_up(op->principal, OPERATION_NOTIFY);
	if (!grant) {
		op->answer_final = true;
		op_refuse(op, 403, code, "%s", why ? why : "no grant");
		return;
	}
	if (!prepare(op, grant))
		return;
	struct op *other = same_key(op);
	if (other) {
		wait_for(op, other);
		return;
	}
	/* What is done is told again whatever the grant and the budget have left. */
	op->grant = grant;
	if (!is_recorded(op) && !op_reserve(op, &(struct amounts){{1, 0, 0}}))
		return;
	begin(op);
}

uint32_t notify_abort(struct op *op, const char *code)
{
	bool dispatched = op->phase == OP_DISPATCHED;
	op->call = call_stop(op->call);
	if (dispatched)
		end_unknown(op, code, "the broker stopped in between");
	else
		refuse_unknown(op, "the broker stopped while the destination was asked");
	op_unref(op);
	return dispatched ? ORCH_OPERATION_UNKNOWN : 0;
}
