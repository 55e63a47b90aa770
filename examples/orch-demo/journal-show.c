/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <time.h>

#include "demo.h"

/* --- for people --------------------------------------------------------------------------------------- */

char *shown(const char *text)
{
	char *copy = calloc(4, strlen(text) + 1), *out = copy;
	for (const unsigned char *in = (const unsigned char *)text; *in; in++) {
		/* C1 characters of UTF-8 are two bytes: c2 80 to c2 9f. */
		bool control = *in < 0x20 || *in == 0x7f || (*in == 0xc2 && in[1] >= 0x80 && in[1] <= 0x9f);
		if (control && *in == 0xc2)
			out += sprintf(out, "\\x%02x", *in++);
		if (control)
			out += sprintf(out, "\\x%02x", *in);
		else
			*out++ = (char)*in;
	}
	return copy;
}

/* Payloads are bytes: what is not printable ASCII is escaped. */
static char *printable(const void *bytes, size_t length, size_t limit)
{
	char *text = calloc(1, 4 * (length < limit ? length : limit) + 4), *out = text;
	const unsigned char *in = bytes;
	for (size_t i = 0; i < length && i < limit; i++)
		if (isprint(in[i]) && in[i] != '\\')
			*out++ = (char)in[i];
		else
			out += sprintf(out, "\\x%02x", in[i]);
	if (length > limit)
		strcpy(out, "...");
	return text;
}

static const char *time_text(int64_t at_ms, char *text, size_t size)
{
	time_t seconds = (time_t)(at_ms / 1000);
	struct tm parts;
	if (!localtime_r(&seconds, &parts) || strftime(text, size, "%Y-%m-%d %H:%M:%S", &parts) == 0)
		snprintf(text, size, "%lld ms", (long long)at_ms);
	return text;
}

static const char *policy_text(uint32_t policy)
{
	static const char *const names[] = {"?", "REPEATABLE", "PROBE_FIRST", "NEVER_REPEAT"};
	return names[policy < sizeof(names) / sizeof(names[0]) ? policy : 0];
}

static const char *decision_text(uint32_t decision)
{
	static const char *const names[] = {"?", "APPLIED", "NOT_APPLIED", "ABANDON"};
	return names[decision < sizeof(names) / sizeof(names[0]) ? decision : 0];
}

/* --- for programs ------------------------------------------------------------------------------------- */

void print_json(json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);
	puts(text ? text : "{}");
	free(text);
	json_decref(object);
}

static json_t *base64_json(const unsigned char *bytes, size_t length)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = calloc(1, length / 3 * 4 + 5), *out = text;
	for (size_t i = 0; i < length; i += 3) {
		size_t left = length - i;
		uint32_t group = (uint32_t)bytes[i] << 16;
		group |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
		group |= left > 2 ? bytes[i + 2] : 0;
		*out++ = digits[group >> 18];
		*out++ = digits[group >> 12 & 63];
		*out++ = left > 1 ? digits[group >> 6 & 63] : '=';
		*out++ = left > 2 ? digits[group & 63] : '=';
	}
	json_t *value = json_pack("{s:s}", "base64", text);
	free(text);
	return value;
}

/* As orch_journal_export() gives them. */
static json_t *payload_json(const void *bytes, size_t length)
{
	if (!bytes)
		return json_null();
	json_t *text = memchr(bytes, '\0', length) ? NULL : json_stringn(bytes, length);
	return text ? json_pack("{s:o}", "text", text) : base64_json(bytes, length);
}

static json_t *action_json(const orch_action *action)
{
	size_t request_length = 0, result_length = 0;
	const void *request = orch_action_request(action, &request_length);
	const void *result = orch_action_result(action, &result_length);
	return json_pack("{s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:o, s:o}", "id",
			 (json_int_t)orch_action_id(action), "kind", orch_action_kind(action), "key",
			 orch_action_key(action), "policy", policy_text(orch_action_policy(action)), "state",
			 orch_action_state_name(orch_action_state(action)), "attempt",
			 (json_int_t)orch_action_attempt(action), "generation", (json_int_t)orch_action_generation(action),
			 "created_at_ms", (json_int_t)orch_action_created_at_ms(action), "updated_at_ms",
			 (json_int_t)orch_action_updated_at_ms(action), "pruned", orch_action_pruned(action), "request",
			 payload_json(request, request_length), "result", payload_json(result, result_length));
}

/* --- a line, or all of it ----------------------------------------------------------------------------- */

void show_action_line(orch_action *action, bool json)
{
	if (json) {
		print_json(action_json(action));
		return;
	}
	size_t length = 0;
	const void *request = orch_action_request(action, &length);
	char when[32], *key = shown(orch_action_key(action)), *payload = printable(request, length, 60);
	printf("%5llu %s %-11s %-14s %s  %s\n", (unsigned long long)orch_action_id(action),
	       time_text(orch_action_updated_at_ms(action), when, sizeof(when)),
	       orch_action_state_name(orch_action_state(action)), orch_action_kind(action), key, payload);
	free(key);
	free(payload);
}

struct history {
	orch_action *action;
	json_t *list; /* NULL: lines for people */
};

static int32_t add_record(void *userdata, const orch_record *record)
{
	struct history *history = userdata;
	uint32_t type = orch_record_type(record);
	bool own = type == ORCH_RECORD_ACTION ? orch_record_subject(record) == orch_action_id(history->action)
					      : type == ORCH_RECORD_DECISION &&
							strcmp(orch_record_name(record), orch_action_key(history->action)) == 0;
	if (!own)
		return 0;
	if (history->list) {
		json_array_append_new(history->list,
				      json_pack("{s:I, s:I, s:I, s:s, s:s, s:I}", "sequence",
						(json_int_t)orch_record_sequence(record), "at_ms",
						(json_int_t)orch_record_at_ms(record), "generation",
						(json_int_t)orch_record_generation(record), "type",
						orch_record_type_name(type), "state", orch_record_state_name(record), "attempt",
						(json_int_t)orch_record_attempt(record)));
		return 0;
	}
	char when[32];
	printf("  record %llu  %s  generation %llu  %s%s", (unsigned long long)orch_record_sequence(record),
	       time_text(orch_record_at_ms(record), when, sizeof(when)),
	       (unsigned long long)orch_record_generation(record), type == ORCH_RECORD_DECISION ? "decided: " : "",
	       orch_record_state_name(record));
	if (type == ORCH_RECORD_ACTION)
		printf("  attempt %u", orch_record_attempt(record));
	putchar('\n');
	return 0;
}

static void print_payload(const char *name, const void *bytes, size_t length)
{
	char *text = printable(bytes, length, 4000);
	if (bytes)
		printf("%s: %s\n", name, text);
	free(text);
}

static void print_action(const orch_action *action)
{
	char when[32], *key = shown(orch_action_key(action));
	size_t length = 0;
	printf("%s (%s, %s)\n", key, orch_action_kind(action), policy_text(orch_action_policy(action)));
	free(key);
	printf("%s since %s, attempt %u, generation %llu%s\n", orch_action_state_name(orch_action_state(action)),
	       time_text(orch_action_updated_at_ms(action), when, sizeof(when)), orch_action_attempt(action),
	       (unsigned long long)orch_action_generation(action),
	       orch_action_pruned(action) ? ", payloads dropped" : "");
	const void *request = orch_action_request(action, &length);
	print_payload("request", request, length);
	const void *result = orch_action_result(action, &length);
	print_payload("result", result, length);
}

int show_action(orch_journal *journal, orch_action *action, bool json)
{
	struct history history = {.action = action, .list = json ? json_array() : NULL};
	const char *by = "";
	int64_t at_ms = 0;
	uint32_t decision = orch_action_decision(action, &by, &at_ms);
	orch_error *error = NULL;
	if (!json) {
		char when[32], *who = shown(by);
		print_action(action);
		if (decision)
			printf("decided: %s by %s, %s\n", decision_text(decision), who,
			       time_text(at_ms, when, sizeof(when)));
		free(who);
		puts("history:");
	}
	if (orch_journal_records(journal, 0, add_record, &history, &error) < 0) {
		json_decref(history.list);
		return fail("the records", error);
	}
	if (!json)
		return EXIT_FINE;
	json_t *decided = decision ? json_pack("{s:s, s:s, s:I}", "decision", decision_text(decision), "by", by, "at_ms",
					       (json_int_t)at_ms)
				   : json_null();
	print_json(json_pack("{s:o, s:o, s:o}", "action", action_json(action), "decision", decided, "history",
			     history.list));
	return EXIT_FINE;
}
