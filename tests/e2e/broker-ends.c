/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <strings.h>
#include <sys/resource.h>

#include "broker-fixture.h"

static struct fixture *fixture;

static void setup(void)
{
	fixture = fixture_new();
	grant(fixture, "ai.anthropic", NULL, NULL);
}

static void teardown(void)
{
	fixture_free(fixture);
}

static struct reply *post(struct ask **ret_ask, const char *body)
{
	return ask(fixture, ret_ask, "POST", MESSAGES, JSON_BODY, body);
}

static void expect(int status, const char *code)
{
	struct ask *a;
	struct reply *reply = post(&a, SMALL);
	ck_assert_msg(reply->status == status, "%d %s", reply->status,
		      reply->body ? reply->body : "");
	if (code)
		ck_assert_str_eq(refusal(reply), code);
	ask_free(a);
}

/* --- ends that are not the end ---------------------------------------------------------------- */

static bool nothing_in_flight(void *userdata)
{
	struct fixture *f = userdata;
	return told_count(f, ORCH_OPERATION_DISPATCHED, NULL) ==
	       told_count(f, ORCH_OPERATION_OBSERVED, NULL) +
		       told_count(f, ORCH_OPERATION_UNKNOWN, NULL) +
		       told_count(f, ORCH_OPERATION_FAILED, NULL);
}

START_TEST(client_that_leaves_is_settled)
{
	uint64_t requests, tokens;
	set_upstream(fixture, "ai.anthropic", "sse-200-50", false);
	struct ask *a = ask_start(fixture, "cut:300:POST", MESSAGES, JSON_BODY, SMALL);
	ask_wait(fixture, a);
	run_until(fixture, nothing_in_flight, fixture);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_OBSERVED, "client_gone"), 1);
	orch_principal_spent(fixture->principal, &requests, &tokens, NULL);
	ck_assert_uint_eq(requests, 1);
	ck_assert_uint_ge(tokens, 120);
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_CONFIRMED);
	/* Upstream was cut as well: it stops long before its 10 seconds. */
	double began = (double)orch_monotonic_us();
	for (;;) {
		json_t *log = upstream_log(fixture);
		bool cut = json_object_get(json_array_get(json_object_get(log, "requests"), 0),
					   "cut_by_client");
		json_decref(log);
		if (cut)
			break;
		ck_assert_double_lt((double)orch_monotonic_us() - began, 3e6);
		poll(NULL, 0, 20);
	}
	ask_free(a);
}
END_TEST

START_TEST(client_that_leaves_before_the_answer_is_seen)
{
	uint64_t tokens;
	set_upstream(fixture, "ai.anthropic", "hold-20000-10-5", false);
	struct ask *a = ask_start(fixture, "stop:200:POST", MESSAGES, JSON_BODY, SMALL);
	ask_wait(fixture, a);
	run_until(fixture, nothing_in_flight, fixture);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_UNKNOWN, "client_gone"), 1);
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_UNKNOWN);
	orch_principal_spent(fixture->principal, NULL, &tokens, NULL);
	/* At least what was sent up. */
	ck_assert_uint_ge(tokens, sizeof(SMALL) / 4);
	ask_free(a);
}
END_TEST

START_TEST(dead_upstream_is_a_typed_error_soon)
{
	struct ask *a;
	int port;
	close(listen_anywhere(&port));
	struct orch_upstream_opts opts;
	_cleanup_free_ char *url = orch_strdup_printf("http://127.0.0.1:%d", port);
	orch_upstream_opts_init(&opts, sizeof(opts));
	opts.base_url = url;
	ck_assert_int_eq(orch_broker_set_upstream(fixture->broker, "ai.anthropic", &opts, NULL), 0);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 502);
	ck_assert_str_eq(refusal(reply), "upstream_unreachable");
	ck_assert_double_lt(reply->end_s, 6);
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_FAILED);
	uint64_t requests;
	orch_principal_spent(fixture->principal, &requests, NULL, NULL);
	ck_assert_uint_eq(requests, 0);
	ask_free(a);
}
END_TEST

START_TEST(name_that_does_not_resolve_is_a_typed_error_soon)
{
	struct ask *a;
	struct orch_upstream_opts opts;
	orch_upstream_opts_init(&opts, sizeof(opts));
	opts.base_url = "http://does-not-exist.invalid";
	ck_assert_int_eq(orch_broker_set_upstream(fixture->broker, "ai.anthropic", &opts, NULL), 0);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 502);
	ck_assert_str_eq(refusal(reply), "upstream_unreachable");
	ck_assert_double_lt(reply->end_s, 6);
	ask_free(a);
}
END_TEST

/* The control: whoever trusts its certificate gets an answer from that server. */
static long status_with_trust(const char *url, const char *pem)
{
	long status = 0;
	CURL *easy = curl_easy_init();
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_CAINFO, pem);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	if (curl_easy_perform(easy) == CURLE_OK)
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(easy);
	return status;
}

START_TEST(upstream_that_cannot_prove_its_name_gets_nothing)
{
	struct ask *a;
	struct provider provider;
	struct orch_upstream_opts opts;
	_cleanup_free_ char *pem = orch_strdup_printf("%s/tests/e2e/broker-self-signed.pem",
						      getenv("ORCH_SOURCE_ROOT"));
	provider_start(&provider, pem);
	_cleanup_free_ char *url =
		orch_strdup_printf("https://127.0.0.1:%d/usage-1-1", provider.port);
	orch_upstream_opts_init(&opts, sizeof(opts));
	opts.base_url = url;
	opts.credential = ORCH_CREDENTIAL_BEARER;
	opts.secret = SECRET;
	ck_assert_int_eq(orch_broker_set_upstream(fixture->broker, "ai.anthropic", &opts, NULL), 0);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 502);
	ck_assert_str_eq(refusal(reply), "upstream_tls");
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_FAILED);
	ck_assert_int_eq(status_with_trust(url, pem), 200);
	ask_free(a);
	provider_stop(&provider);
}
END_TEST

START_TEST(upstream_that_dies_in_mid_stream_cuts_the_client)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "die", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_ptr_nonnull(strstr(reply->body, "message_start"));
	ck_assert(!reply->whole);
	ck_assert_double_lt(reply->end_s, 6);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_OBSERVED, "upstream_lost"), 1);
	uint64_t tokens;
	orch_principal_spent(fixture->principal, NULL, &tokens, NULL);
	ck_assert_uint_ge(tokens, 33);
	ask_free(a);
}
END_TEST

START_TEST(upstream_that_drops_the_request_is_unknown)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "drop", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 502);
	ck_assert_str_eq(refusal(reply), "upstream_lost");
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_UNKNOWN);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_UNKNOWN, "upstream_lost"), 1);
	/* One dispatch, one request: libcurl did not send it again by itself. */
	ck_assert_uint_eq(upstream_count(fixture), 1);
	ask_free(a);
}
END_TEST

START_TEST(kept_connection_that_dies_is_not_sent_twice)
{
	struct ask *a;
	/* The first answer leaves a connection open; the second request on it is read and dropped.
	 */
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect(200, NULL);
	set_upstream(fixture, "ai.anthropic", "drop", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 502);
	ck_assert_uint_eq(upstream_count(fixture), 2);
	ask_free(a);
}
END_TEST

START_TEST(silent_upstream_times_out)
{
	struct ask *a;
	struct orch_broker_opts opts;
	fixture_close(fixture);
	orch_broker_opts_init(&opts, sizeof(opts));
	opts.idle_timeout_ms = 400;
	fixture_open(fixture, &opts);
	grant(fixture, "ai.anthropic", NULL, NULL);
	set_upstream(fixture, "ai.anthropic", "silent-20", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 504);
	ck_assert_str_eq(refusal(reply), "upstream_timeout");
	ck_assert_double_lt(reply->end_s, 2);
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_UNKNOWN);
	ask_free(a);
	/* The control: slow is not silent. */
	set_upstream(fixture, "ai.anthropic", "sse-5-200", false);
	expect(200, NULL);
}
END_TEST

START_TEST(compressed_response_is_decoded_and_metered)
{
	struct ask *a;
	uint64_t tokens;
	set_upstream(fixture, "ai.anthropic", "gzip", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_ptr_nonnull(strstr(reply->body, "input_tokens"));
	ck_assert_ptr_null(strcasestr(reply->head, "content-encoding"));
	orch_principal_spent(fixture->principal, NULL, &tokens, NULL);
	ck_assert_uint_eq(tokens, 88);
	ask_free(a);
}
END_TEST

START_TEST(redirect_is_not_followed)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "redirect", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 302);
	ck_assert_ptr_null(strcasestr(reply->head, "location:"));
	ck_assert_uint_eq(upstream_count(fixture), 1);
	ask_free(a);
}
END_TEST

static void expect_quota(const char *mode, int status)
{
	int64_t now_ms = orch_realtime_ms();
	set_upstream(fixture, "ai.anthropic", mode, false);
	expect(status, NULL);
	const struct told *told = &fixture->told[fixture->told_count - 1];
	ck_assert_uint_eq(told->event, ORCH_OPERATION_OBSERVED);
	ck_assert_int_eq(told->status, status);
	ck_assert_int_ge(told->quota_resets_at_ms, now_ms + 898000);
	ck_assert_int_le(told->quota_resets_at_ms, now_ms + 905000);
}

START_TEST(quota_reset_is_read)
{
	expect_quota("quota-900", 429);
	expect_quota("limit-900", 429);
	uint64_t tokens;
	orch_principal_spent(fixture->principal, NULL, &tokens, NULL);
	ck_assert_uint_eq(tokens, 0);
}
END_TEST

/* --- malformed requests ----------------------------------------------------------------------- */

static void expect_raw(const char *request, int status, const char *code)
{
	struct ask *a = ask_raw(fixture, request);
	struct reply *reply = ask_wait(fixture, a);
	ck_assert_msg(reply->status == status, "%s: %d %s", request, reply->status,
		      reply->body ? reply->body : "");
	if (code)
		ck_assert_str_eq(refusal(reply), code);
	ask_free(a);
}

START_TEST(ambiguous_targets_are_refused)
{
	static const char *const targets[] = {"/ai.anthropic/v1/../v1/messages",
					      "/ai.anthropic//v1/messages",
					      "/ai.anthropic/v1%2fmessages",
					      "/ai.anthropic/%2e%2e/ai.openai/v1/responses",
					      "/ai.anthropic/v1/./messages",
					      "/ai.anthropic/v1/%252e%252e/messages",
					      "/ai.anthropic/v1/messages%00",
					      "/ai.anthropic/v1\\messages",
					      "/ai.anthropic/v1/mess%zzages",
					      "/ai.anthropic/v1/messages;x=1",
					      "http://user@127.0.0.1:8080/ai.anthropic/v1/messages",
					      "http://[[127.0.0.1]]/ai.anthropic/v1/messages",
					      "ai.anthropic/v1/messages"};
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		_cleanup_free_ char *request = orch_strdup_printf(
			"POST %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: "
			"close\r\nContent-Length: %zu\r\n\r\n%s",
			targets[i], strlen(SMALL), SMALL);
		expect_raw(request, 400, "malformed");
	}
	ck_assert_uint_eq(upstream_count(fixture), 0);
	/* Controls: the plain path, one with an escape that has one reading, and the absolute form.
	 */
	expect(200, NULL);
	static const char *const good[] = {"/ai.anthropic/v1/mess%61ges",
					   "http://127.0.0.1:8080/ai.anthropic/v1/messages"};
	for (size_t i = 0; i < 2; i++) {
		_cleanup_free_ char *request = orch_strdup_printf(
			"POST %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: "
			"close\r\nContent-Length: %zu\r\n\r\n%s",
			good[i], strlen(SMALL), SMALL);
		expect_raw(request, 200, NULL);
	}
}
END_TEST

START_TEST(hosts_must_agree)
{
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect_raw("GET http://other.example/ai.anthropic/v1/models HTTP/1.1\r\nHost: "
		   "127.0.0.1:8080\r\n"
		   "Connection: close\r\n\r\n",
		   400, "malformed");
	expect_raw("GET /ai.anthropic/v1/models HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nHost: "
		   "b.example\r\n"
		   "Connection: close\r\n\r\n",
		   400, "malformed");
	expect_raw(
		"GET /ai.anthropic/v1/models HTTP/1.1\r\nHost: [[x]]\r\nConnection: close\r\n\r\n",
		400, "malformed");
	ck_assert_uint_eq(upstream_count(fixture), 0);
	/* The host does not choose the destination, so any well formed one will do. */
	expect_raw("GET /ai.anthropic/v1/models HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: "
		   "close\r\n\r\n",
		   200, NULL);
	ck_assert_uint_eq(upstream_count(fixture), 1);
}
END_TEST

START_TEST(only_known_paths_and_bodies)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	static const struct {
		const char *method, *path, *body;
		int status;
		const char *code;
	} cases[] = {
		{"GET", MESSAGES, NULL, 404, "unknown_path"},
		{"POST", "/ai.anthropic/v1/files", "{}", 404, "unknown_path"},
		{"DELETE", "/ai.anthropic/v1/models/x", NULL, 404, "unknown_path"},
		{"POST", "/ai.anthropic/v1/messages/batches", "{}", 404, "unknown_path"},
		{"GET", "/git.read/x", NULL, 404, "unknown_operation"},
		{"POST", "/", NULL, 404, "unknown_operation"},
		{"POST", MESSAGES, "not json", 400, "malformed"},
		{"POST", MESSAGES, "{\"max_tokens\":1}", 400, "malformed"},
		{"POST", MESSAGES, "{\"model\":\"m\",\"max_tokens\":1,\"max_tokens\":9}", 400,
		 "malformed"},
		{"POST", MESSAGES, "{\"model\":\"m\",\"max_tokens\":1,\"Max\\u005ftokens\":9}", 400,
		 "malformed"},
		{"POST", MESSAGES, "{\"model\":\"m\",\"max_tokens\":-1}", 400, "malformed"},
		{"POST", MESSAGES, "{\"model\":\"m\",\"background\":true}", 400, "malformed"},
		{"HEAD", "/ai.anthropic", NULL, 200, NULL},
		{"HEAD", "/ai.anthropic/", NULL, 200, NULL},
		{"HEAD", "/", NULL, 200, NULL},
		{"GET", "/", NULL, 200, NULL},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct reply *reply =
			ask(fixture, &a, cases[i].method, cases[i].path, JSON_BODY, cases[i].body);
		ck_assert_msg(reply->status == cases[i].status, "%s %s: %d", cases[i].method,
			      cases[i].path, reply->status);
		if (cases[i].code)
			ck_assert_str_eq(refusal(reply), cases[i].code);
		ck_assert_double_lt(reply->end_s, 1);
		ask_free(a);
	}
	ck_assert_uint_eq(upstream_count(fixture), 0);
	struct reply *reply =
		ask(fixture, &a, "POST", MESSAGES, "Content-Encoding: zstd\r\n", SMALL);
	ck_assert_int_eq(reply->status, 415);
	ask_free(a);
	reply = ask(fixture, &a, "GET", "/ai.openai/v1/responses", "Upgrade: websocket\r\n", NULL);
	ck_assert_int_eq(reply->status, 426);
	ck_assert_str_eq(refusal(reply), "no_websocket");
	ask_free(a);
	reply = ask(fixture, &a, "GET", "/ai.anthropic/v1/models/claude-x", NULL, NULL);
	ck_assert_int_eq(reply->status, 200);
	ask_free(a);
}
END_TEST

START_TEST(too_large_is_named)
{
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect_raw("POST " MESSAGES
		   " HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 33554433\r\n\r\n",
		   413, "too_large");
	/* In chunks nobody can know it beforehand. */
	struct orch_buf request = {0};
	orch_buf_puts(&request, "POST " MESSAGES " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
				"Transfer-Encoding: chunked\r\n\r\n");
	char *block = malloc(1 << 20);
	memset(block, ' ', 1 << 20);
	for (int i = 0; i < 33; i++) {
		orch_buf_puts(&request, "100000\r\n");
		orch_buf_add(&request, block, 1 << 20);
		orch_buf_puts(&request, "\r\n");
	}
	orch_buf_puts(&request, "0\r\n\r\n");
	expect_raw(request.data, 413, "too_large");
	ck_assert_uint_eq(upstream_count(fixture), 0);
	orch_buf_free(&request);
	free(block);
}
END_TEST

/* --- journal ---------------------------------------------------------------------------------- */

START_TEST(no_journal_no_operation)
{
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect(200, NULL);
	/* From here on no file of this process can grow: the next commit fails. */
	struct rlimit limit;
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = 1;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	expect(503, "journal");
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	/* Poisoned: not even now. */
	expect(503, "journal");
	ck_assert_uint_eq(upstream_count(fixture), 1);
	uint64_t requests;
	orch_principal_spent(fixture->principal, &requests, NULL, NULL);
	ck_assert_uint_eq(requests, 1);
}
END_TEST

START_TEST(keys_never_collide_after_a_restart)
{
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect(200, NULL);
	expect(200, NULL);
	fixture_close(fixture);
	fixture_open(fixture, NULL);
	grant(fixture, "ai.anthropic", NULL, NULL);
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect(200, NULL);
	expect(200, NULL);
	ck_assert_uint_eq(action_count(fixture, "ai."), 4);
	ck_assert_uint_eq(upstream_count(fixture), 4);
}
END_TEST

struct summed {
	json_int_t tokens, micro_usd, reserved;
};

static int32_t sum_action(void *userdata, orch_action *action)
{
	struct summed *summed = userdata;
	size_t length;
	const char *bytes = orch_action_result(action, &length);
	json_t *result = json_loadb(bytes, length, 0, NULL);
	summed->tokens += json_integer_value(json_object_get(result, "input_tokens")) +
			  json_integer_value(json_object_get(result, "output_tokens"));
	summed->micro_usd += json_integer_value(json_object_get(result, "micro_usd"));
	json_decref(result);
	bytes = orch_action_request(action, &length);
	json_t *request = json_loadb(bytes, length, 0, NULL);
	ck_assert_str_eq(json_string_value(json_object_get(request, "model")), "m");
	ck_assert_str_eq(json_string_value(json_object_get(request, "path")), "/v1/messages");
	ck_assert_int_eq(json_integer_value(json_object_get(request, "bytes")), sizeof(SMALL) - 1);
	ck_assert_uint_eq(strlen(json_string_value(json_object_get(request, "sha256"))), 64);
	summed->reserved += json_integer_value(json_object_get(request, "reserved_tokens"));
	ck_assert_ptr_null(json_object_get(request, "body"));
	json_decref(request);
	return 0;
}

START_TEST(spending_can_be_summed_from_the_journal)
{
	struct summed summed = {0};
	set_upstream(fixture, "ai.anthropic", "usage-1000-500", true);
	expect(200, NULL);
	expect(200, NULL);
	ck_assert_int_eq(orch_journal_each(fixture->journal, "ai.", sum_action, &summed, NULL), 0);
	ck_assert_int_eq(summed.tokens, 3000);
	ck_assert_int_eq(summed.micro_usd, 4000);
	ck_assert_int_ge(summed.reserved, 200);
}
END_TEST

/* --- revocation ------------------------------------------------------------------------------- */

struct revoked {
	unsigned calls, destroyed;
	uint32_t settled, unknown;
};

static void on_revoked(void *userdata, orch_principal *principal, uint32_t settled,
		       uint32_t unknown)
{
	struct revoked *revoked = userdata;
	(void)principal;
	revoked->calls++;
	revoked->settled = settled;
	revoked->unknown = unknown;
}

static void on_revoked_destroyed(void *userdata)
{
	((struct revoked *)userdata)->destroyed++;
}

static bool revocation_came(void *userdata)
{
	return ((struct revoked *)userdata)->destroyed;
}

START_TEST(revoke_cuts_and_counts)
{
	struct revoked revoked = {0};
	grant(fixture, "ai.openai", NULL, NULL);
	set_upstream(fixture, "ai.anthropic", "sse-200-50", false);
	set_upstream(fixture, "ai.openai", "hold-20000-1-1", false);
	struct ask *streaming = ask_start(fixture, "POST", MESSAGES, JSON_BODY, SMALL);
	struct ask *waiting = ask_start(fixture, "POST", "/ai.openai/v1/responses", JSON_BODY,
					"{\"model\":\"m\"}");
	run_ms(fixture, 500);
	ck_assert(!streaming->done && !waiting->done);
	ck_assert_int_eq(orch_principal_revoke(fixture->principal, on_revoked, &revoked,
					       on_revoked_destroyed, NULL),
			 0);
	ck_assert_uint_eq(revoked.calls, 0);
	run_until(fixture, revocation_came, &revoked);
	ck_assert_uint_eq(revoked.calls, 1);
	ck_assert_uint_eq(revoked.settled, 1);
	ck_assert_uint_eq(revoked.unknown, 1);
	struct reply *reply = ask_wait(fixture, streaming);
	ck_assert_int_eq(reply->status, 200);
	ck_assert(!reply->whole);
	ck_assert_double_lt(reply->end_s, 5);
	ck_assert_int_eq(ask_wait(fixture, waiting)->status, 0);
	/* The listener is closed for whoever holds the socket besides. */
	struct reply late = ask_direct(fixture->port, "GET / HTTP/1.0\r\n\r\n");
	ck_assert_int_eq(late.error, ECONNREFUSED);
	ck_assert_int_eq(orch_principal_revoke(fixture->principal, NULL, NULL, NULL, NULL),
			 ORCH_ECLOSED);
	ck_assert_int_eq(orch_broker_add_listener(fixture->broker, fixture->listener,
						  fixture->principal, NULL),
			 ORCH_ECLOSED);
	ask_free(streaming);
	ask_free(waiting);
	/* Another principal of the same broker is not touched. */
	fixture_principal(fixture, 0, 0, 0);
	grant(fixture, "ai.anthropic", NULL, NULL);
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect(200, NULL);
}
END_TEST

struct ending {
	orch_death *death;
};

static void on_scope_death(void *userdata, orch_scope *scope, orch_death *death)
{
	(void)scope;
	((struct ending *)userdata)->death = orch_death_ref(death);
}

static bool certificate_came(void *userdata)
{
	return ((struct ending *)userdata)->death != NULL;
}

/* The task is over when the host has ended what it did for it; revoked at the request, not after the deaths. */
START_TEST(the_end_of_a_scope_is_that_of_its_principal)
{
	struct ending ending = {0};
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	const char *outcome = NULL;
	uint32_t settled = 0;
	ck_assert_msg(orch_scope_new(fixture->ctx, NULL, &scope, &error) == 0, "%s", orch_error_message(error));
	ck_assert_int_eq(orch_principal_attach(NULL, scope, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_principal_attach(fixture->principal, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_principal_attach(fixture->principal, scope, NULL), 0);
	ck_assert_msg(orch_scope_start_wait(scope, 20000, &error) == 0, "%s", orch_error_message(error));
	grant(fixture, "ai.openai", NULL, NULL);
	set_upstream(fixture, "ai.anthropic", "sse-200-50", false);
	set_upstream(fixture, "ai.openai", "hold-20000-1-1", false);
	struct ask *streaming = ask_start(fixture, "POST", MESSAGES, JSON_BODY, SMALL);
	struct ask *waiting = ask_start(fixture, "POST", "/ai.openai/v1/responses", JSON_BODY,
					"{\"model\":\"m\"}");
	run_ms(fixture, 500);
	ck_assert(!streaming->done && !waiting->done);
	ck_assert_int_eq(orch_scope_stop(scope, NULL, on_scope_death, &ending, NULL, NULL), 0);
	run_until(fixture, certificate_came, &ending);
	ck_assert_uint_eq(orch_death_verdict(ending.death), ORCH_DEATH_DEAD);
	ck_assert_uint_eq(orch_death_work_count(ending.death), 1);
	ck_assert_int_eq(orch_death_work(ending.death, 0, NULL, &settled, &outcome), 0);
	ck_assert_uint_eq(settled, 1);
	ck_assert_ptr_nonnull(strstr(outcome, "1 settled, of 1 the outcome is unknown"));
	/* It is as the certificate says. */
	ck_assert_int_eq(orch_principal_revoke(fixture->principal, NULL, NULL, NULL, NULL), ORCH_ECLOSED);
	struct reply late = ask_direct(fixture->port, "GET / HTTP/1.0\r\n\r\n");
	ck_assert_int_eq(late.error, ECONNREFUSED);
	ck_assert(!ask_wait(fixture, streaming)->whole);
	ck_assert_int_eq(ask_wait(fixture, waiting)->status, 0);
	ask_free(streaming);
	ask_free(waiting);
	orch_death_unref(ending.death);
	orch_scope_unref(scope);
}
END_TEST

static void revoke_inside(void *userdata, orch_principal *principal, const char *operation,
			  uint32_t event, const char *code, int32_t status, int64_t quota)
{
	(void)operation, (void)code, (void)status, (void)quota;
	if (event != ORCH_OPERATION_DISPATCHED)
		return;
	struct fixture *f = userdata;
	ck_assert_int_eq(orch_principal_revoke(principal, NULL, NULL, NULL, NULL), 0);
	f->broker = orch_broker_unref(f->broker);
}

START_TEST(callback_may_revoke_and_drop_the_broker)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "sse-200-50", false);
	orch_broker_on_operation(fixture->broker, revoke_inside, fixture, NULL, NULL);
	ck_assert_uint_eq(fixture->destroyed, 1);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 0);
	ck_assert_ptr_null(fixture->broker);
	struct orch_grant_opts opts;
	orch_grant_opts_init(&opts, sizeof(opts));
	opts.operation = "ai.openai";
	ck_assert_int_eq(orch_principal_grant(fixture->principal, &opts, NULL), ORCH_ECLOSED);
	ask_free(a);
}
END_TEST

START_TEST(dropping_the_broker_ends_what_is_in_flight)
{
	set_upstream(fixture, "ai.anthropic", "hold-20000-1-1", false);
	struct ask *a = ask_start(fixture, "POST", MESSAGES, JSON_BODY, SMALL);
	run_ms(fixture, 300);
	fixture->broker = orch_broker_unref(fixture->broker);
	ck_assert_uint_eq(fixture->destroyed, 1);
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_UNKNOWN);
	ck_assert_int_eq(ask_wait(fixture, a)->status, 0);
	ask_free(a);
}
END_TEST

/* --- what is left behind ---------------------------------------------------------------------- */

static unsigned open_fds(bool inherited_only)
{
	unsigned count = 0;
	for (int fd = 3; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);
		count += flags >= 0 && !(inherited_only && flags & FD_CLOEXEC);
	}
	return count;
}

START_TEST(signals_of_the_host_are_left_alone)
{
	struct sigaction before[32], after[32];
	sigset_t mask_before, mask_after, pending;
	struct orch_upstream_opts opts;
	for (int number = 1; number < 32; number++)
		sigaction(number, NULL, &before[number]);
	ck_assert_ptr_eq(before[SIGPIPE].sa_handler, SIG_DFL);
	pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
	/* A client that goes in mid-stream, an upstream that does, and a name that needs a resolver. */
	set_upstream(fixture, "ai.anthropic", "sse-20-10", false);
	struct ask *a = ask_start(fixture, "cut:300:POST", MESSAGES, JSON_BODY, SMALL);
	ask_wait(fixture, a);
	ask_free(a);
	run_ms(fixture, 300);
	set_upstream(fixture, "ai.anthropic", "drop", false);
	expect(502, "upstream_lost");
	orch_upstream_opts_init(&opts, sizeof(opts));
	opts.base_url = "http://does-not-exist.invalid";
	ck_assert_int_eq(
		orch_broker_set_upstream(fixture->broker, "ai.anthropic", &opts, NULL), 0);
	expect(502, "upstream_unreachable");
	pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
	for (int number = 1; number < 32; number++) {
		sigaction(number, NULL, &after[number]);
		ck_assert_ptr_eq(before[number].sa_handler, after[number].sa_handler);
		ck_assert_int_eq(sigismember(&mask_before, number), sigismember(&mask_after, number));
	}
	sigpending(&pending);
	ck_assert(sigisemptyset(&pending));
}
END_TEST

START_TEST(no_descriptor_leaks)
{
	static const char *const modes[] = {"usage-1-1", "drop", "die", "sse-3-1", "hold-100-1-1"};
	struct orch_broker_opts opts;
	orch_broker *other = NULL;
	unsigned inherited = open_fds(true);
	for (int round = 0; round < 4; round++) {
		unsigned before = open_fds(false);
		for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
			set_upstream(fixture, "ai.anthropic", modes[i], false);
			struct ask *a = ask_start(fixture, i % 2 ? "POST" : "stop:50:POST",
						  MESSAGES, JSON_BODY, SMALL);
			ask_wait(fixture, a);
			ask_free(a);
			run_ms(fixture, 100);
			ck_assert_uint_le(open_fds(true), inherited);
		}
		/* libcurl keeps connections; after the first round there are no more of them. */
		if (round)
			ck_assert_uint_le(open_fds(false), before);
	}
	unsigned before = open_fds(false);
	orch_broker_opts_init(&opts, sizeof(opts));
	opts.journal = fixture->journal;
	ck_assert_int_eq(orch_broker_new(fixture->ctx, &opts, &other, NULL), 0);
	ck_assert_uint_gt(open_fds(false), before);
	ck_assert_uint_le(open_fds(true), inherited);
	orch_broker_unref(other);
	ck_assert_uint_eq(open_fds(false), before);
}
END_TEST

/* --- the host's own loop ---------------------------------------------------------------------- */

START_TEST(works_in_a_foreign_loop)
{
	set_upstream(fixture, "ai.anthropic", "sse-10-30", false);
	struct ask *a = ask_start(fixture, "POST", MESSAGES, JSON_BODY, SMALL);
	unsigned turns = 0;
	while (!a->done) {
		struct pollfd ready = {.fd = orch_ctx_fd(fixture->ctx), .events = POLLIN};
		ck_assert_int_eq(poll(&ready, 1, 10000), 1);
		ck_assert_int_eq(orch_ctx_process(fixture->ctx, NULL), 0);
		turns++;
	}
	ck_assert_int_eq(a->reply.status, 200);
	ck_assert(a->reply.whole);
	ck_assert_double_lt(a->reply.first_body_s, 0.2);
	/* It sleeps between events: no spinning. */
	ck_assert_uint_lt(turns, 1000);
	ask_free(a);
}
END_TEST

TCase *ends_cases(void)
{
	TCase *cases = tcase_create("ends");
	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, client_that_leaves_is_settled);
	tcase_add_test(cases, client_that_leaves_before_the_answer_is_seen);
	tcase_add_test(cases, dead_upstream_is_a_typed_error_soon);
	tcase_add_test(cases, name_that_does_not_resolve_is_a_typed_error_soon);
	tcase_add_test(cases, upstream_that_cannot_prove_its_name_gets_nothing);
	tcase_add_test(cases, upstream_that_dies_in_mid_stream_cuts_the_client);
	tcase_add_test(cases, upstream_that_drops_the_request_is_unknown);
	tcase_add_test(cases, kept_connection_that_dies_is_not_sent_twice);
	tcase_add_test(cases, silent_upstream_times_out);
	tcase_add_test(cases, compressed_response_is_decoded_and_metered);
	tcase_add_test(cases, redirect_is_not_followed);
	tcase_add_test(cases, quota_reset_is_read);
	tcase_add_test(cases, ambiguous_targets_are_refused);
	tcase_add_test(cases, hosts_must_agree);
	tcase_add_test(cases, only_known_paths_and_bodies);
	tcase_add_test(cases, too_large_is_named);
	tcase_add_test(cases, no_journal_no_operation);
	tcase_add_test(cases, keys_never_collide_after_a_restart);
	tcase_add_test(cases, spending_can_be_summed_from_the_journal);
	tcase_add_test(cases, revoke_cuts_and_counts);
	tcase_add_test(cases, the_end_of_a_scope_is_that_of_its_principal);
	tcase_add_test(cases, callback_may_revoke_and_drop_the_broker);
	tcase_add_test(cases, dropping_the_broker_ends_what_is_in_flight);
	tcase_add_test(cases, signals_of_the_host_are_left_alone);
	tcase_add_test(cases, no_descriptor_leaks);
	tcase_add_test(cases, works_in_a_foreign_loop);
	return cases;
}
