/* SPDX-License-Identifier: Apache-2.0 */
#include <sodium.h>
#include <stdio.h>

#include "pipeline-private.h"
#include "verify-text.h"

static int32_t record_at(orch_pipeline *p, const char *kind, json_t *payload, const char *key,
			 orch_error **reterr)
{
	if (!payload ||
	    json_object_set_new(payload, "time_ms", json_integer(orch_realtime_ms())) < 0)
		return orch_fail_memory(reterr);
	_cleanup_free_ char *text = json_dumps(payload, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text)
		return orch_fail_memory(reterr);
	int32_t code = orch_journal_record(p->journal, kind, key, text, strlen(text), NULL, reterr);
	if (code == 0)
		code = fold_record(p->model, kind, key, text, strlen(text), reterr);
	if (code == 0)
		event_of_record(p, kind, payload);
	return code;
}

static int32_t record_list(orch_pipeline *p, const char *kind, json_t *payload, orch_error **reterr,
			   const char *key_format, va_list arguments)
{
	_cleanup_free_ char *key = NULL;
	if (vasprintf(&key, key_format, arguments) < 0) {
		key = NULL;
		json_decref(payload);
		return orch_fail_memory(reterr);
	}
	int32_t code = record_at(p, kind, payload, key, reterr);
	json_decref(payload);
	return code;
}

int32_t run_record(orch_pipeline *p, const char *kind, json_t *payload, orch_error **reterr,
		   const char *key_format, ...)
{
	va_list arguments;
	va_start(arguments, key_format);
	int32_t code = record_list(p, kind, payload, reterr, key_format, arguments);
	va_end(arguments);
	return code;
}

bool run_store(orch_pipeline *p, const char *kind, json_t *payload, const char *key_format, ...)
{
	orch_error *error = NULL;
	va_list arguments;
	va_start(arguments, key_format);
	int32_t code = record_list(p, kind, payload, &error, key_format, arguments);
	va_end(arguments);
	if (code < 0)
		pipeline_fail(p, error);
	return code == 0;
}

struct load {
	struct model *model;
	orch_error **reterr;
};

static int32_t load_one(void *userdata, orch_action *action)
{
	struct load *load = userdata;
	size_t length = 0;
	const void *payload = orch_action_request(action, &length);
	if (!payload)
		payload = orch_action_result(action, &length);
	return fold_record(load->model, orch_action_kind(action), orch_action_key(action), payload,
			   length, load->reterr);
}

int32_t run_load(orch_journal *journal, struct model *model, orch_error **reterr)
{
	struct load load = {.model = model, .reterr = reterr};
	return orch_journal_each(journal, NULL, load_one, &load, reterr);
}

bool run_overlay(orch_pipeline *p, uint32_t overlay, bool on, const char *reason,
		 int64_t resets_at_ms)
{
	if (((p->model->overlays & overlay) != 0) == on &&
	    (overlay != ORCH_OVERLAY_QUOTA_WAIT || !on || resets_at_ms <= p->model->quota_until_ms))
		return true;
	json_t *payload = json_pack("{s:s, s:b, s:s}", "overlay", overlay_name(overlay), "on", on,
				    "reason", reason);
	if (payload && resets_at_ms)
		json_object_set_new(payload, "resets_at_ms", json_integer(resets_at_ms));
	return run_store(p, "run.overlay", payload, "run/overlay/%llu",
			 (unsigned long long)orch_journal_sequence(p->journal) + 1);
}

bool run_enter(orch_pipeline *p, uint32_t state, const char *reason)
{
	return run_store(p, "run.state",
			 json_pack("{s:s, s:s}", "state", orch_run_state_name(state), "reason",
				   reason ? reason : ""),
			 "run/state/%s", orch_run_state_name(state));
}

bool run_close(orch_pipeline *p, bool abort_run, bool now, const char *reason)
{
	if (p->model->close)
		return true;
	return run_store(p, "run.close",
			 json_pack("{s:o, s:b, s:b}", "reason", json_foreign(reason, 4000), "abort",
				   abort_run, "now", now),
			 "run/close");
}

static int32_t sum_spending(void *userdata, orch_action *action)
{
	struct spending *spending = userdata;
	if (orch_action_state(action) == ORCH_ACTION_INTENT)
		return 0;
	spending->requests++;
	size_t length = 0;
	const void *bytes = orch_action_result(action, &length);
	json_t *usage = bytes ? json_loadb(bytes, length, 0, NULL) : NULL;
	uint64_t tokens = (uint64_t)json_int(usage, "input_tokens") +
			  (uint64_t)json_int(usage, "output_tokens");
	uint64_t micro_usd = (uint64_t)json_int(usage, "micro_usd");
	if (!json_object_get(usage, "input_tokens")) {
		/* Its coordinator died before it knew: it counts as what was set aside for it. */
		bytes = orch_action_request(action, &length);
		json_t *request = bytes ? json_loadb(bytes, length, 0, NULL) : NULL;
		tokens = (uint64_t)json_int(request, "reserved_tokens");
		micro_usd = (uint64_t)json_int(request, "reserved_micro_usd");
		json_decref(request);
	}
	json_decref(usage);
	spending->tokens += tokens;
	spending->micro_usd += micro_usd;
	if (tokens > spending->largest_tokens)
		spending->largest_tokens = tokens;
	if (micro_usd > spending->largest_micro_usd)
		spending->largest_micro_usd = micro_usd;
	return 0;
}

int32_t run_spending(orch_journal *journal, struct spending *ret_spending, orch_error **reterr)
{
	struct spending spending = {0};
	int32_t code = orch_journal_each(journal, "ai.", sum_spending, &spending, reterr);
	if (code == 0)
		*ret_spending = spending;
	return code;
}

json_t *json_foreign(const char *text, size_t limit)
{
	_cleanup_buf_ struct orch_buf buf = {0};
	size_t length = text ? strlen(text) : 0;
	bool cut = length > limit;
	text_append(&buf, text ? text : "", cut ? limit : length, true);
	if (cut)
		orch_buf_puts(&buf, " ...");
	return buf.failed ? NULL : json_stringn(buf.data ? buf.data : "", buf.length);
}

void sha256_hex(const void *bytes, size_t length, char ret_hex[TREE_HASH_SIZE])
{
	unsigned char digest[crypto_hash_sha256_BYTES];
	crypto_hash_sha256(digest, bytes, length);
	sodium_bin2hex(ret_hex, TREE_HASH_SIZE, digest, sizeof(digest));
}
