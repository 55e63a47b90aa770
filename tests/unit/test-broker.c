/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <check.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <orch/broker.h>

#include "broker/budget.h"
#include "broker/meter.h"
#include "broker/parse.h"

/* --- json-scan -------------------------------------------------------------------------------- */

static void note_value(void *userdata, const char *path, enum json_scan_type type, const char *text,
		       bool whole)
{
	orch_buf_printf(userdata, "%s=%c%s%s;", path, "SNW"[type], text, whole ? "" : "~");
}

/* NULL if it is refused. Fed in pieces of `piece` bytes. */
static char *scanned(const char *json, size_t piece)
{
	struct orch_buf out = {0};
	struct json_scan scan;
	size_t length = strlen(json);
	json_scan_init(&scan, note_value, &out);
	for (size_t at = 0; at < length; at += piece)
		json_scan_feed(&scan, json + at, piece < length - at ? piece : length - at);
	if (!json_scan_end(&scan)) {
		orch_buf_free(&out);
		return NULL;
	}
	orch_buf_puts(&out, "");
	return out.data;
}

START_TEST(scan_reports_paths)
{
	static const struct {
		const char *json, *values;
	} cases[] = {
		{"1", "=N1;"},
		{" {\"a\":{\"b\":[1,{\"c\":\"x\"},[true]],\"d\":null},\"e\":-1.5e3} ",
		 "a.b.[]=N1;a.b.[].c=Sx;a.b.[].[]=Wtrue;a.d=Wnull;e=N-1.5e3;"},
		{"{\"a\\u002eb\":1,\"c.d\":2,\"[]\":3,\"\":{\"x\":4}}",
		 "a\1b=N1;c\1d=N2;\1]=N3;\1.x=N4;"},
		{"{\"max\\u005ftokens\":7}", "max_tokens=N7;"},
		{"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\"]", "[]=S\"\\/\b\f\n\r\t\1;"},
		{"{}", ""},
		{"[]", ""},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t piece = 1; piece < 5; piece++) {
			_cleanup_free_ char *values = scanned(cases[i].json, piece);
			ck_assert_ptr_nonnull(values);
			ck_assert_str_eq(values, cases[i].values);
		}
}
END_TEST

START_TEST(scan_refuses_what_is_not_json)
{
	/* clang-format off */
	static const char *const bad[] = {
		"", "{", "[1,]", "{\"a\":1,}", "{a:1}", "01", "1.", "1e", "-", "tru", "nulll",
		"\"\n\"", "\"\\x\"", "\"\\u12g4\"", "1 2", "{\"a\" 1}", "]", "{\"a\":}",
		"[1 2]", "\"abc", "{]", "[}", "+1", ".5", "NaN",
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		_cleanup_free_ char *values = scanned(bad[i], 3);
		ck_assert_msg(!values, "%s was taken", bad[i]);
	}
	char deep[JSON_SCAN_DEPTH * 2 + 8] = "";
	memset(deep, '[', JSON_SCAN_DEPTH + 1);
	memset(deep + JSON_SCAN_DEPTH + 1, ']', JSON_SCAN_DEPTH + 1);
	_cleanup_free_ char *values = scanned(deep, 64);
	ck_assert_ptr_null(values);
	_cleanup_free_ char *less = scanned(deep + 1, 64);
	ck_assert_ptr_null(less);
	deep[2 * JSON_SCAN_DEPTH + 1] = '\0';
	_cleanup_free_ char *fits = scanned(deep + 1, 64);
	ck_assert_ptr_nonnull(fits);
}
END_TEST

START_TEST(scan_survives_long_keys_and_texts)
{
	char json[2048], key[400];
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	snprintf(json, sizeof(json),
		 "{\"%s\":{\"usage\":1},\"a\":[{\"%s\":2},3],\"b\":\"%s\",\"c\":4}", key, key, key);
	_cleanup_free_ char *values = scanned(json, 7);
	ck_assert_ptr_nonnull(values);
	ck_assert_ptr_null(strstr(values, "usage"));
	ck_assert_ptr_nonnull(strstr(values, "a.[]=N3;b=S"));
	ck_assert_ptr_nonnull(strstr(values, "~;c=N4;"));
}
END_TEST

/* Documents made by chance, and the same with one byte changed: both readers must agree on which
 * are JSON. */
static unsigned chance(unsigned *seed, unsigned below)
{
	*seed = *seed * 1103515245 + 12345;
	return (*seed >> 16) % below;
}

static json_t *any_json(unsigned *seed, unsigned depth)
{
	unsigned kind = chance(seed, depth > 4 ? 4 : 6);
	json_t *value;
	if (kind == 0)
		return json_integer(chance(seed, 1000));
	if (kind == 1)
		return json_string(chance(seed, 2) ? "te\"x\nt\\" : "");
	if (kind == 2)
		return json_real(chance(seed, 1000) / 8.0);
	if (kind == 3)
		return chance(seed, 2) ? json_true() : json_null();
	value = kind == 4 ? json_array() : json_object();
	for (unsigned i = chance(seed, 4); i > 0; i--) {
		char key[8];
		snprintf(key, sizeof(key), "k%u", i);
		if (kind == 4)
			json_array_append_new(value, any_json(seed, depth + 1));
		else
			json_object_set_new(value, key, any_json(seed, depth + 1));
	}
	return value;
}

START_TEST(scan_agrees_with_jansson)
{
	static const char bytes[] = "{}[]\",:0a\\ -."; /* no 'e': jansson minds a number's size */
	unsigned seed = 7, broken = 0;
	for (int round = 0; round < 20000; round++) {
		json_t *value = any_json(&seed, 0);
		_cleanup_free_ char *text = json_dumps(value, JSON_ENCODE_ANY);
		json_decref(value);
		if (round % 2)
			text[chance(&seed, (unsigned)strlen(text))] =
				bytes[chance(&seed, sizeof(bytes) - 1)];
		json_t *read = json_loads(text, JSON_DECODE_ANY, NULL);
		_cleanup_free_ char *values = scanned(text, 1 + chance(&seed, 9));
		ck_assert_msg(!read == !values, "%s: %s", text,
			      read ? "only jansson reads it" : "only we do");
		broken += !read;
		json_decref(read);
	}
	ck_assert_uint_gt(broken, 1000);
}
END_TEST

/* --- requests, responses ---------------------------------------------------------------------- */

static const char *inquire(const char *json, struct inquiry *inquiry)
{
	inquiry_init(inquiry);
	for (const char *at = json; *at; at++)
		inquiry_feed(inquiry, at, 1);
	return inquiry_end(inquiry);
}

START_TEST(inquiry_reads_model_and_limit)
{
	struct inquiry inquiry;
	ck_assert_ptr_null(inquire("{\"model\":\"m-1\",\"max_tokens\":64000,\"stream\":true,"
				   "\"messages\":[{\"model\":\"x\",\"max_tokens\":1}]}",
				   &inquiry));
	ck_assert_str_eq(inquiry.model, "m-1");
	ck_assert_uint_eq(inquiry.max_output, 64000);
	ck_assert(inquiry.stream);
	ck_assert_ptr_null(inquire(
		"{\"model\":\"m\",\"max_output_tokens\":null,\"background\":false}", &inquiry));
	ck_assert_uint_eq(inquiry.max_output, 0);
	static const char *const bad[] = {
		"[]",
		"{}",
		"{\"model\":1}",
		"{\"model\":\"a\",\"model\":\"b\"}",
		"{\"model\":\"a\",\"MODEL\":\"b\"}",
		"{\"model\":\"a\",\"max_tokens\":1e9}",
		"{\"model\":\"a\",\"max_tokens\":\"5\"}",
		"{\"model\":\"a\",\"max_tokens\":99999999999999999999999}",
		"{\"model\":\"a\",\"max_tokens\":1,\"max_output_tokens\":2}",
		"{\"model\":\"a\",\"background\":true}",
		"{\"model\":\"a\nb\"}",
		"{\"model\":\"\"}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(inquire(bad[i], &inquiry) != NULL, "%s was taken", bad[i]);
}
END_TEST

static void meter_in_pieces(struct meter *meter, bool sse, const char *text, size_t piece)
{
	meter_init(meter, sse);
	size_t length = strlen(text);
	for (size_t at = 0; at < length; at += piece)
		meter_feed(meter, text + at, piece < length - at ? piece : length - at);
}

START_TEST(meter_reads_streams_in_any_pieces)
{
	static const char *const streams[] = {
		"event: message_start\ndata: "
		"{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":11,"
		"\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":7,\"output_tokens\":"
		"1}}}"
		"\n\n"
		": comment\n\ndatabase: {\"usage\":{\"output_tokens\":999}}\n\n"
		"event: ping\ndata: {\"type\":\"ping\"}\n\n"
		"data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"{\\\"usage\\\":"
		"{\\\"output_tokens\\\":77}}\"}}\n\n"
		"data: {\"type\":\"message_delta\",\ndata: \"usage\":{\"output_tokens\":42}}\n\n"
		"data: {\"type\":\"message_stop\"}\n\n",
		"data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\r\n\r\n"
		"data:{\"type\":\"response.completed\",\"response\":{\"metadata\":{\"usage\":{"
		"\"output_"
		"tokens\":9}},"
		"\"usage\":{\"input_tokens\":23,\"output_tokens\":42}}}\r\n\r\n",
	};
	static const uint64_t tokens_in[] = {23, 23};
	struct meter meter;
	for (size_t i = 0; i < 2; i++)
		for (size_t piece = 1; piece < 40; piece++) {
			meter_in_pieces(&meter, true, streams[i], piece);
			ck_assert_uint_eq(usage_tokens_in(&meter.usage), tokens_in[i]);
			ck_assert_uint_eq(meter.usage.output, 42);
			ck_assert(meter.usage.seen && meter.terminal);
		}
	meter_in_pieces(&meter, true, streams[0], 1);
	ck_assert_uint_eq(meter.usage.cache_read, 5);
	ck_assert_uint_eq(meter.events, 5);
	meter_in_pieces(&meter, false, "{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}", 2);
	ck_assert_uint_eq(meter.usage.input, 3);
	ck_assert_uint_eq(meter.usage.output, 4);
}
END_TEST

START_TEST(prices_round_up_and_saturate)
{
	const struct prices prices = {3000000, 15000000};
	ck_assert_uint_eq(usage_micro_usd(&(struct usage){.input = 1000000}, &prices), 3000000);
	ck_assert_uint_eq(usage_micro_usd(&(struct usage){.output = 1000000}, &prices), 15000000);
	ck_assert_uint_eq(usage_micro_usd(&(struct usage){.cache_read = 1000000}, &prices), 300000);
	ck_assert_uint_eq(usage_micro_usd(&(struct usage){.cache_write = 1000000}, &prices),
			  3750000);
	ck_assert_uint_eq(usage_micro_usd(&(struct usage){.cache_write = 1000000,
							  .cache_write_hour = 1000000},
					  &prices),
			  6000000);
	ck_assert_uint_eq(usage_micro_usd(&(struct usage){.input = 1}, &(struct prices){1, 0}), 1);
	ck_assert_uint_eq(usage_micro_usd(&(struct usage){0}, &prices), 0);
	const struct prices most = {UINT64_MAX, UINT64_MAX};
	ck_assert_uint_eq(
		usage_micro_usd(&(struct usage){.input = UINT64_MAX, .output = UINT64_MAX}, &most),
		UINT64_MAX);
}
END_TEST

START_TEST(quota_takes_the_last_of_what_is_exhausted)
{
	const int64_t now = 1700000000000;
	struct quota quota = {0};
	struct meter meter;
	meter_init(&meter, false);
	ck_assert_int_eq(quota_resets_at_ms(&quota, &meter, now), 0);
	quota_header(&quota, "Retry-After", "30", now);
	ck_assert_int_eq(quota_resets_at_ms(&quota, &meter, now), now + 30000);
	quota_header(&quota, "retry-after", "Tue, 14 Nov 2023 22:14:20 GMT", now);
	ck_assert_int_eq(quota_resets_at_ms(&quota, &meter, now), 1700000060000);
	/* Far off, but not exhausted. */
	quota_header(&quota, "anthropic-ratelimit-tokens-reset", "2024-01-01T00:00:00Z", now);
	quota_header(&quota, "anthropic-ratelimit-tokens-remaining", "12", now);
	ck_assert_int_eq(quota_resets_at_ms(&quota, &meter, now), 1700000060000);
	quota_header(&quota, "anthropic-ratelimit-input-tokens-reset", "2023-11-14T23:13:20.5Z",
		     now);
	quota_header(&quota, "anthropic-ratelimit-input-tokens-remaining", "0", now);
	ck_assert_int_eq(quota_resets_at_ms(&quota, &meter, now), now + 3600000);
	quota_header(&quota, "x-codex-primary-used-percent", "100.0", now);
	quota_header(&quota, "x-codex-primary-reset-at", "1700007200", now);
	quota_header(&quota, "x-codex-secondary-used-percent", "12", now);
	quota_header(&quota, "x-codex-secondary-reset-at", "1800000000", now);
	ck_assert_int_eq(quota_resets_at_ms(&quota, &meter, now), now + 7200000);
	static const char body[] =
		"{\"error\":{\"type\":\"usage_limit_reached\",\"resets_in_seconds\":10000}}";
	meter_feed(&meter, body, sizeof(body) - 1);
	ck_assert_int_eq(quota_resets_at_ms(&quota, &meter, now), now + 10000000);
	ck_assert_str_eq(meter.error_type, "usage_limit_reached");
	/* Nonsense is not a time. */
	struct quota other = {0};
	quota_header(&other, "retry-after", "soon", now);
	quota_header(&other, "anthropic-ratelimit-unified-status", "rejected", now);
	quota_header(&other, "anthropic-ratelimit-unified-reset", "99999999999999999999", now);
	meter_init(&meter, false);
	ck_assert_int_eq(quota_resets_at_ms(&other, &meter, now), 0);
}
END_TEST

START_TEST(budget_counts_what_is_reserved)
{
	struct budget budget = {.caps = {{0, 100, 0}}};
	const struct amounts want = {{1, 60, 0}}, small = {{1, 0, 0}}, used = {{1, 90, 0}};
	bool final;
	ck_assert_int_eq(budget_check(&budget, &want, &final), -1);
	budget_reserve(&budget, &want);
	ck_assert_int_eq(budget_check(&budget, &want, &final), BUDGET_TOKENS);
	ck_assert(!final);
	/* What costs nothing of that kind is not held up. */
	ck_assert_int_eq(budget_check(&budget, &small, &final), -1);
	budget_settle(&budget, &want, &used);
	/* 10 left: one call may go over it when it is alone. */
	ck_assert_int_eq(budget_check(&budget, &want, &final), -1);
	budget_reserve(&budget, &want);
	budget_settle(&budget, &want, NULL);
	ck_assert_uint_eq(budget.spent.of[BUDGET_TOKENS], 90);
	budget_reserve(&budget, &want);
	budget_settle(&budget, &want, &used);
	ck_assert_int_eq(budget_check(&budget, &want, &final), BUDGET_TOKENS);
	ck_assert(final);
	ck_assert_uint_eq(budget.in_flight, 0);
	ck_assert_uint_eq(budget.reserved.of[BUDGET_TOKENS], 0);
}
END_TEST

/* --- parsing ---------------------------------------------------------------------------------- */

START_TEST(targets_have_one_form)
{
	static const struct {
		const char *raw, *authority, *path, *query;
	} good[] = {
		{"/a/b", NULL, "/a/b", NULL},
		{"/", NULL, "/", NULL},
		{"/a/%62%7E?x=%20y", NULL, "/a/b~", "x=%20y"},
		{"HTTP://h:80/a?", "h:80", "/a", ""},
		{"http://[::1]:8080/a", "[::1]:8080", "/a", NULL},
		{"/a/..b/c..", NULL, "/a/..b/c..", NULL},
	};
	static const char *const bad[] = {"",
					  "a",
					  "*",
					  "//a",
					  "/a//b",
					  "/a/../b",
					  "/a/..",
					  "/./a",
					  "/a/%2e%2e/b",
					  "/a/%2E/b",
					  "/a/.%2e",
					  "/a%2fb",
					  "/a%5cb",
					  "/a\\b",
					  "/a%00b",
					  "/a%25",
					  "/a%",
					  "/a%2",
					  "/a%g0",
					  "/a b",
					  "/a\tb",
					  "/\xc3\xa4",
					  "/a%c3%a4",
					  "/a#b",
					  "/a;b",
					  "/a?x#y",
					  "/a?x y",
					  "/a?%zz",
					  "http://",
					  "http://h",
					  "http://u@h/a",
					  "http://h:0/a",
					  "http://h:65536/a",
					  "http://[[h]]/a",
					  "http://h./a",
					  "https://h/a",
					  "ftp://h/a",
					  "http://-h/a"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct target target;
		const char *why = target_parse(good[i].raw, &target);
		ck_assert_msg(!why, "%s: %s", good[i].raw, why);
		ck_assert_str_eq(target.path, good[i].path);
		ck_assert_pstr_eq(target.authority, good[i].authority);
		ck_assert_pstr_eq(target.query, good[i].query);
		target_clear(&target);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct target target;
		ck_assert_msg(target_parse(bad[i], &target) != NULL, "%s was taken", bad[i]);
	}
	ck_assert(host_port_equal("Host", "host:80"));
	ck_assert(!host_port_equal("host:8080", "host"));
}
END_TEST

START_TEST(urls_of_the_host_are_checked)
{
	static const char *const bad[] = {"",
					  "x",
					  "ftp://h",
					  "http://",
					  "http://u:p@h/",
					  "http://[[h]]/",
					  "http:///x",
					  "http://h:x/",
					  "http://h\\x",
					  "http://h/a b",
					  "http://h/#f",
					  "http://h..x/"};
	static const char *const good[] = {"http://h", "https://api.example.com/v1",
					   "http://127.0.0.1:1/x?k={key}", "http://[::1]:80/"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(url_problem(bad[i]) != NULL, "%s was taken", bad[i]);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert_msg(url_problem(good[i]) == NULL, "%s: %s", good[i],
			      url_problem(good[i]));
	_cleanup_free_ char *url = url_with_key("http://h/{key}?k={key}&x={kez}", "a/b c%");
	ck_assert_str_eq(url, "http://h/a%2Fb%20c%25?k=a%2Fb%20c%25&x={kez}");
}
END_TEST

START_TEST(headers_are_sorted)
{
	static const char *const kept_back[] = {"Authorization",
						"X-Api-Key",
						"api-key",
						"Proxy-Authorization",
						"Cookie",
						"x-goog-api-key",
						"OpenAI-Organization",
						"OpenAI-Project",
						"x-amz-security-token",
						"Connection",
						"TE",
						"Upgrade",
						"Transfer-Encoding",
						"Accept-Encoding",
						"Host",
						"Content-Length",
						"Expect",
						"Forwarded",
						"X-Unknown"};
	for (size_t i = 0; i < sizeof(kept_back) / sizeof(kept_back[0]); i++)
		ck_assert_msg(!header_goes_up(kept_back[i]), "%s", kept_back[i]);
	ck_assert(header_goes_up("Anthropic-Version") && header_goes_up("x-stainless-lang"));
	ck_assert(!header_goes_down("Set-Cookie", NULL) && !header_goes_down("keep-alive", NULL));
	ck_assert(!header_goes_down("x-orch-replayed", NULL));
	ck_assert(!header_goes_down("X-Hop", "close, x-hop"));
	ck_assert(header_goes_down("X-Hop", "close, x-hop2") &&
		  header_goes_down("retry-after", NULL));
	ck_assert(!header_value_valid("a\rb") && header_value_valid("a\tb"));
}
END_TEST

START_TEST(secrets_are_blotted_across_pieces)
{
	static const char text[] =
		"x=secret-1secret-12 secret-secret-1, long-secret-two end secret-";
	static const char clean[] =
		"x=****************2 secret-********, *************** end secret-";
	for (size_t piece = 1; piece < sizeof(text); piece++) {
		struct scrub scrub = {0};
		struct orch_buf out = {0};
		scrub_add(&scrub, "secret-1");
		scrub_add(&scrub, "long-secret-two");
		scrub_add(&scrub, "short");
		ck_assert_uint_eq(scrub.count, 2);
		for (size_t at = 0; at < sizeof(text) - 1; at += piece)
			scrub_feed(&scrub, text + at,
				   piece < sizeof(text) - 1 - at ? piece : sizeof(text) - 1 - at,
				   &out);
		scrub_end(&scrub, &out);
		ck_assert_uint_eq(out.length, sizeof(text) - 1);
		ck_assert_str_eq(out.data, clean);
		orch_buf_free(&out);
		scrub_clear(&scrub);
	}
}
END_TEST

/* --- the calls -------------------------------------------------------------------------------- */

static char folder[32];
static orch_ctx *ctx;
static orch_broker *broker;

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	return remove(path);
}

static void setup(void)
{
	char path[64];
	struct orch_broker_opts opts;
	strcpy(folder, "/tmp/orch-broker-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/journal", folder);
	orch_broker_opts_init(&opts, sizeof(opts));
	opts.journal_path = path;
	ck_assert_int_eq(orch_ctx_new(NULL, &ctx, NULL), 0);
	ck_assert_int_eq(orch_broker_new(ctx, &opts, &broker, NULL), 0);
}

static void teardown(void)
{
	broker = orch_broker_unref(broker);
	ctx = orch_ctx_unref(ctx);
	nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void on_destroy(void *userdata)
{
	++*(unsigned *)userdata;
}

static void on_operation(void *userdata, orch_principal *principal, const char *operation,
			 uint32_t event, const char *code, int32_t status, int64_t quota)
{
	(void)userdata, (void)principal, (void)operation, (void)event, (void)code, (void)status,
		(void)quota;
}

START_TEST(arguments_are_checked)
{
	orch_broker *other = (orch_broker *)1;
	orch_error *error = NULL;
	struct orch_broker_opts opts;
	struct orch_upstream_opts upstream;
	struct orch_principal_opts who;
	orch_principal *principal = NULL;
	orch_broker_opts_init(&opts, sizeof(opts));
	ck_assert_int_eq(orch_broker_new(ctx, &opts, &other, &error), ORCH_EINVAL);
	ck_assert_ptr_eq(other, (orch_broker *)1);
	ck_assert_ptr_nonnull(strstr(orch_error_message(error), "journal"));
	error = orch_error_free(error);
	opts.journal_path = "/nonexistent/journal";
	ck_assert_int_eq(orch_broker_new(ctx, &opts, &other, NULL), ORCH_ENOENT);
	orch_upstream_opts_init(&upstream, sizeof(upstream));
	upstream.base_url = "http://user:secret@h/";
	ck_assert_int_eq(orch_broker_set_upstream(broker, "ai.anthropic", &upstream, &error),
			 ORCH_EINVAL);
	ck_assert_ptr_null(strstr(orch_error_message(error), "secret@"));
	error = orch_error_free(error);
	upstream.base_url = "http://[[h]]/";
	ck_assert_int_eq(orch_broker_set_upstream(broker, "ai.anthropic", &upstream, NULL),
			 ORCH_EINVAL);
	upstream.base_url = "http://h/";
	ck_assert_int_eq(orch_broker_set_upstream(broker, "git.read", &upstream, NULL),
			 ORCH_ENOENT);
	ck_assert_int_eq(orch_broker_set_upstream(broker, "notify.send", &upstream, NULL),
			 ORCH_ENOENT);
	upstream.credential = ORCH_CREDENTIAL_BEARER;
	ck_assert_int_eq(orch_broker_set_upstream(broker, "ai.anthropic", &upstream, NULL),
			 ORCH_EINVAL);
	upstream.secret = "with newline\n";
	ck_assert_int_eq(orch_broker_set_upstream(broker, "ai.anthropic", &upstream, NULL),
			 ORCH_EINVAL);
	upstream.secret = "fine";
	ck_assert_int_eq(orch_broker_set_upstream(broker, "ai.anthropic", &upstream, NULL), 0);
	orch_principal_opts_init(&who, sizeof(who));
	ck_assert_int_eq(orch_principal_new(broker, &who, &principal, NULL), ORCH_EINVAL);
	who.name = "a b";
	ck_assert_int_eq(orch_principal_new(broker, &who, &principal, NULL), ORCH_EINVAL);
	who.name = "p";
	ck_assert_int_eq(orch_principal_new(broker, &who, &principal, NULL), 0);
	struct orch_grant_opts grant;
	orch_grant_opts_init(&grant, sizeof(grant));
	grant.operation = "nothing.known";
	ck_assert_int_eq(orch_principal_grant(principal, &grant, NULL), ORCH_ENOENT);
	grant.operation = "notify.send";
	ck_assert_int_eq(orch_principal_grant(principal, &grant, NULL), ORCH_EINVAL);
	grant.url = "http://h/{key}";
	ck_assert_int_eq(orch_principal_grant(principal, &grant, NULL), 0);
	ck_assert_int_eq(orch_broker_add_listener(broker, 0, principal, NULL), ORCH_EINVAL);
	int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(orch_broker_add_listener(broker, plain, principal, NULL), ORCH_EINVAL);
	close(plain);
	orch_principal_unref(principal);
}
END_TEST

START_TEST(destroy_runs_once)
{
	unsigned first = 0, second = 0, failed = 0;
	ck_assert_int_eq(orch_broker_on_operation(NULL, on_operation, &failed, on_destroy, NULL),
			 ORCH_EINVAL);
	ck_assert_uint_eq(failed, 1);
	ck_assert_int_eq(orch_principal_revoke(NULL, NULL, &failed, on_destroy, NULL), ORCH_EINVAL);
	ck_assert_uint_eq(failed, 2);
	ck_assert_int_eq(orch_broker_on_operation(broker, on_operation, &first, on_destroy, NULL),
			 0);
	ck_assert_int_eq(orch_broker_on_operation(broker, on_operation, &second, on_destroy, NULL),
			 0);
	ck_assert_uint_eq(first, 1);
	/* A revocation that nobody comes to deliver. */
	struct orch_principal_opts who;
	orch_principal *principal = NULL;
	unsigned revoked = 0;
	orch_principal_opts_init(&who, sizeof(who));
	who.name = "p";
	ck_assert_int_eq(orch_principal_new(broker, &who, &principal, NULL), 0);
	ck_assert_int_eq(orch_principal_revoke(principal, NULL, &revoked, on_destroy, NULL), 0);
	broker = orch_broker_unref(broker);
	ck_assert_uint_eq(second, 1);
	ck_assert_uint_eq(revoked, 1);
	ck_assert_int_eq(orch_principal_revoke(principal, NULL, &revoked, on_destroy, NULL),
			 ORCH_ECLOSED);
	ck_assert_uint_eq(revoked, 2);
	orch_principal_unref(principal);
}
END_TEST

START_TEST(forked_child_keeps_off)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	getsockname(fd, (struct sockaddr *)&address, &size);
	struct orch_principal_opts who;
	orch_principal *principal = NULL;
	orch_principal_opts_init(&who, sizeof(who));
	who.name = "p";
	ck_assert_int_eq(orch_principal_new(broker, &who, &principal, NULL), 0);
	ck_assert_int_eq(orch_broker_add_listener(broker, fd, principal, NULL), 0);
	pid_t child = fork();
	if (child == 0) {
		orch_principal *none = NULL;
		bool good =
			orch_principal_new(broker, &who, &none, NULL) == ORCH_EFORKED &&
			orch_broker_set_budget(broker, 1, 1, 1, NULL) == ORCH_EFORKED &&
			orch_principal_revoke(principal, NULL, NULL, NULL, NULL) == ORCH_EFORKED &&
			orch_principal_spent(principal, NULL, NULL, NULL) == ORCH_EFORKED;
		orch_principal_unref(principal);
		orch_broker_unref(broker);
		orch_ctx_unref(ctx);
		_exit(good ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	/* The parent's listener still serves. */
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
	static const char request[] = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
	ck_assert_int_eq(send(client, request, sizeof(request) - 1, MSG_NOSIGNAL),
			 sizeof(request) - 1);
	orch_ctx_run(ctx, 200, NULL);
	char reply[16] = "";
	ck_assert_int_gt(recv(client, reply, sizeof(reply) - 1, MSG_DONTWAIT), 0);
	ck_assert_ptr_nonnull(strstr(reply, " 200 "));
	close(client);
	orch_principal_unref(principal);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker");
	TCase *values = tcase_create("values");
	tcase_set_timeout(values, 60);
	tcase_add_test(values, scan_reports_paths);
	tcase_add_test(values, scan_refuses_what_is_not_json);
	tcase_add_test(values, scan_survives_long_keys_and_texts);
	tcase_add_test(values, scan_agrees_with_jansson);
	tcase_add_test(values, inquiry_reads_model_and_limit);
	tcase_add_test(values, meter_reads_streams_in_any_pieces);
	tcase_add_test(values, prices_round_up_and_saturate);
	tcase_add_test(values, quota_takes_the_last_of_what_is_exhausted);
	tcase_add_test(values, budget_counts_what_is_reserved);
	tcase_add_test(values, targets_have_one_form);
	tcase_add_test(values, urls_of_the_host_are_checked);
	tcase_add_test(values, headers_are_sorted);
	tcase_add_test(values, secrets_are_blotted_across_pieces);
	suite_add_tcase(suite, values);
	TCase *calls = tcase_create("calls");
	tcase_add_checked_fixture(calls, setup, teardown);
	tcase_add_test(calls, arguments_are_checked);
	tcase_add_test(calls, destroy_runs_once);
	tcase_add_test(calls, forked_child_keeps_off);
	suite_add_tcase(suite, calls);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
