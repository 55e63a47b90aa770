/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <strings.h>

#include "broker/broker-private.h"

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

/* --- streaming -------------------------------------------------------------------------------- */

START_TEST(response_streams_while_upstream_still_writes)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "sse-20-50", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_int_eq(reply->status, 200);
	ck_assert(reply->whole);
	ck_assert_ptr_nonnull(strstr(reply->body, "message_stop"));
	ck_assert_ptr_nonnull(strstr(reply->body, "word19"));
	/* 20 events 50 ms apart: the first came long before the last was written. */
	ck_assert_double_gt(reply->end_s, 0.9);
	ck_assert_double_lt(reply->first_body_s, 0.4);
	ck_assert_uint_eq(only_state(fixture, "ai."), ORCH_ACTION_CONFIRMED);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_DISPATCHED, ""), 1);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_OBSERVED, ""), 1);
	uint64_t requests, tokens;
	ck_assert_int_eq(orch_principal_spent(fixture->principal, &requests, &tokens, NULL), 0);
	ck_assert_uint_eq(requests, 1);
	ck_assert_uint_eq(tokens, 160);
	ask_free(a);
}
END_TEST

START_TEST(openai_stream_is_metered)
{
	struct ask *a;
	grant(fixture, "ai.openai", NULL, NULL);
	set_upstream(fixture, "ai.openai", "sse-3-1", true);
	struct reply *reply = ask(fixture, &a, "POST", "/ai.openai/v1/responses", JSON_BODY,
				  "{\"model\":\"gpt\",\"stream\":true,\"input\":\"x\"}");
	ck_assert_int_eq(reply->status, 200);
	ck_assert_ptr_nonnull(strstr(reply->body, "response.completed"));
	uint64_t tokens, micro_usd;
	orch_principal_spent(fixture->principal, NULL, &tokens, &micro_usd);
	ck_assert_uint_eq(tokens, 160);
	ck_assert_uint_eq(micro_usd, 200);
	ask_free(a);
}
END_TEST

START_TEST(large_request_goes_up_whole)
{
	struct ask *a;
	size_t length = 3 << 20;
	char *body = malloc(length + 1);
	strcpy(body, "{\"model\":\"m\",\"max_tokens\":1,\"x\":\"");
	memset(body + strlen(body), 'y', length - strlen(body));
	strcpy(body + length - 2, "\"}");
	set_upstream(fixture, "ai.anthropic", "usage-10-5", false);
	struct reply *reply = post(&a, body);
	ck_assert_int_eq(reply->status, 200);
	json_t *log = upstream_log(fixture);
	ck_assert_int_eq(json_integer_value(json_object_get(
				 json_array_get(json_object_get(log, "requests"), 0), "bytes")),
			 (json_int_t)length);
	json_decref(log);
	free(body);
	ask_free(a);
}
END_TEST

static long resident_kib(void)
{
	char line[128];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "re");
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(status);
	return kib;
}

START_TEST(slow_client_holds_upstream_back)
{
	set_upstream(fixture, "ai.anthropic", "big-64", false);
	struct ask *slow = ask_start(fixture, "slow:20:POST", MESSAGES, JSON_BODY, SMALL);
	slow->stop_after = 4 << 20;
	long before = resident_kib();
	run_ms(fixture, 1500);
	/* Of 64 MiB, what fits into the socket buffers of two connections and one buffer of ours
	 * has gone. */
	json_t *log = upstream_log(fixture);
	json_int_t sent = json_integer_value(
		json_object_get(json_array_get(json_object_get(log, "requests"), 0), "sent"));
	json_decref(log);
	ck_assert_int_gt(sent, 0);
	ck_assert_int_lt(sent, 24 << 20);
	ck_assert_int_lt(resident_kib() - before, 8 << 10);
	ask_wait(fixture, slow);
	ask_free(slow);
	/* The control: a client that reads gets all of it. */
	struct ask *quick;
	struct reply *reply = post(&quick, SMALL);
	ck_assert(reply->whole);
	ck_assert_uint_eq(reply->length, 64 << 20);
	ask_free(quick);
}
END_TEST

START_TEST(silence_gets_pings_between_events)
{
	struct ask *a;
	uint64_t tokens;
	fixture->broker->ping_ms = 100;
	set_upstream(fixture, "ai.anthropic", "think-350", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert(reply->whole);
	/* Three in the first silence, none in the second, which is within an event. */
	unsigned pings = 0;
	for (const char *at = reply->body; (at = strstr(at, "event: ping\n")); at++)
		pings++;
	ck_assert_uint_ge(pings, 2);
	ck_assert_uint_le(pings, 3);
	ck_assert_ptr_nonnull(strstr(reply->body, "data: {\"type\": \"message_delta\", \"usage\": "
						  "{\"output_tokens\": 9}}\n\n"));
	orch_principal_spent(fixture->principal, NULL, &tokens, NULL);
	ck_assert_uint_eq(tokens, 10);
	ask_free(a);
}
END_TEST

START_TEST(connection_is_kept_for_several_requests)
{
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	/* Refused with a body, streamed, local, unknown: each answer ends where the next begins. */
	struct ask *a = ask_raw(
		fixture,
		"POST /ai.openai/v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345"
		"GET /ai.anthropic/v1/models HTTP/1.1\r\nHost: h\r\n\r\n"
		"HEAD /ai.anthropic HTTP/1.1\r\nHost: h\r\n\r\n"
		"GET /ai.anthropic/v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	struct reply *reply = ask_wait(fixture, a);
	ck_assert_int_eq(reply->status, 403);
	unsigned answers = 0;
	for (const char *at = reply->body; (at = strstr(at, "HTTP/1.1 200 OK\r\n")); at++)
		answers++;
	ck_assert_uint_eq(answers, 3);
	ck_assert_double_lt(reply->end_s, 2);
	ck_assert_uint_eq(upstream_count(fixture), 2);
	ask_free(a);
}
END_TEST

/* --- credentials ------------------------------------------------------------------------------ */

static unsigned echoed(const char *body, const char *name, const char *value)
{
	unsigned count = 0;
	size_t index;
	json_t *headers = json_loads(body, 0, NULL), *header;
	ck_assert_ptr_nonnull(headers);
	json_array_foreach (headers, index, header) {
		const char *n = json_string_value(json_array_get(header, 0));
		const char *v = json_string_value(json_array_get(header, 1));
		count += strcasecmp(n, name) == 0 && (!value || strcmp(v, value) == 0);
	}
	json_decref(headers);
	return count;
}

START_TEST(client_authority_is_stripped_and_the_secret_never_comes_back)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "echo", false);
	struct reply *reply = ask(
		fixture, &a, "POST", MESSAGES "?beta=true",
		JSON_BODY
		"Authorization: Bearer stolen\r\nX-Api-Key: stolen\r\napi-key: stolen\r\n"
		"Proxy-Authorization: Basic stolen\r\nCookie: a=stolen\r\nX-Goog-Api-Key: "
		"stolen\r\n"
		"OpenAI-Organization: stolen\r\nX-Amz-Security-Token: stolen\r\n"
		"Accept-Encoding: gzip, br\r\nTE: trailers\r\nConnection: x-hop\r\nX-Hop: 1\r\n"
		"anthropic-version: 2023-06-01\r\nanthropic-beta: b1\r\nUser-Agent: agent/1\r\n",
		SMALL);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_ptr_null(strstr(reply->body, "stolen"));
	/* Controls: what may go up did, and the credential of the host was there, once. */
	ck_assert_uint_eq(echoed(reply->body, "anthropic-version", "2023-06-01"), 1);
	ck_assert_uint_eq(echoed(reply->body, "anthropic-beta", "b1"), 1);
	ck_assert_uint_eq(echoed(reply->body, "user-agent", "agent/1"), 1);
	ck_assert_uint_eq(echoed(reply->body, "accept-encoding", "identity"), 1);
	ck_assert_uint_eq(echoed(reply->body, "accept-encoding", NULL), 1);
	ck_assert_uint_eq(echoed(reply->body, "x-hop", NULL), 0);
	ck_assert_uint_eq(echoed(reply->body, "te", NULL), 0);
	ck_assert_uint_eq(echoed(reply->body, "x-api-key", "************************"), 1);
	ck_assert_uint_eq(echoed(reply->body, "x-api-key", NULL), 1);
	ck_assert_ptr_null(strstr(reply->body, SECRET));
	ck_assert_ptr_null(strstr(reply->head, SECRET));
	ck_assert_ptr_nonnull(strstr(reply->head, "x-echo: ****"));
	ask_free(a);
	json_t *log = upstream_log(fixture);
	char *text = json_dumps(log, 0);
	ck_assert_ptr_nonnull(strstr(text, SECRET));
	ck_assert_ptr_nonnull(strstr(text, "/echo/v1/messages?beta=true"));
	free(text);
	json_decref(log);
}
END_TEST

START_TEST(openai_gets_a_bearer_token)
{
	struct ask *a;
	grant(fixture, "ai.openai", NULL, NULL);
	set_upstream(fixture, "ai.openai", "echo", false);
	struct reply *reply = ask(fixture, &a, "GET", "/ai.openai/v1/models", NULL, NULL);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_uint_eq(echoed(reply->body, "authorization", "Bearer ************************"),
			  1);
	ck_assert_uint_eq(echoed(reply->body, "x-api-key", NULL), 0);
	ask_free(a);
}
END_TEST

START_TEST(response_headers_lose_cookies_and_keep_quota)
{
	struct ask *a;
	set_upstream(fixture, "ai.anthropic", "sse-1-1", false);
	struct reply *reply = post(&a, SMALL);
	ck_assert_ptr_null(strcasestr(reply->head, "set-cookie"));
	ck_assert_ptr_nonnull(strcasestr(reply->head, "anthropic-ratelimit-requests-remaining: 7"));
	ask_free(a);
}
END_TEST

/* --- grants ----------------------------------------------------------------------------------- */

START_TEST(no_grant_says_why_and_what_is_allowed)
{
	struct ask *a;
	set_upstream(fixture, "ai.openai", "usage-1-1", false);
	struct reply *reply =
		ask(fixture, &a, "POST", "/ai.openai/v1/responses", JSON_BODY, "{\"model\":\"m\"}");
	ck_assert_int_eq(reply->status, 403);
	ck_assert_str_eq(refusal(reply), "no_grant");
	ck_assert_ptr_nonnull(strstr(reply->body, "principal p"));
	ck_assert_ptr_nonnull(strstr(reply->body, "ai.anthropic"));
	ck_assert_uint_eq(upstream_count(fixture), 0);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_REFUSED, "no_grant"), 1);
	ask_free(a);
	/* The control: with the grant the same request goes through. */
	grant(fixture, "ai.openai", NULL, NULL);
	reply = ask(fixture, &a, "POST", "/ai.openai/v1/responses", JSON_BODY, "{\"model\":\"m\"}");
	ck_assert_int_eq(reply->status, 200);
	ask_free(a);
}
END_TEST

static void grant_with(uint32_t flags, uint64_t max_uses, int64_t expires_at_ms)
{
	struct orch_grant_opts opts;
	orch_grant_opts_init(&opts, sizeof(opts));
	opts.operation = "ai.anthropic";
	opts.flags = flags;
	opts.max_uses = max_uses;
	opts.expires_at_ms = expires_at_ms;
	ck_assert_int_eq(orch_principal_grant(fixture->principal, &opts, NULL), 0);
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

START_TEST(deny_wins_expiry_and_uses_count)
{
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	expect(200, NULL);
	grant_with(ORCH_GRANT_DENY, 0, 0);
	expect(403, "denied");
	fixture_principal(fixture, 0, 0, 0);
	grant_with(0, 2, 0);
	expect(200, NULL);
	expect(200, NULL);
	expect(403, "grant_used_up");
	fixture_principal(fixture, 0, 0, 0);
	grant_with(0, 0, orch_realtime_ms() + 200);
	expect(200, NULL);
	run_ms(fixture, 250);
	expect(403, "grant_expired");
	ck_assert_uint_eq(upstream_count(fixture), 4);
}
END_TEST

/* --- budgets ---------------------------------------------------------------------------------- */

START_TEST(request_budget_ends)
{
	set_upstream(fixture, "ai.anthropic", "usage-1-1", false);
	fixture_principal(fixture, 2, 0, 0);
	grant(fixture, "ai.anthropic", NULL, NULL);
	expect(200, NULL);
	ck_assert_int_eq(orch_principal_budget_hit(fixture->principal), 0);
	expect(200, NULL);
	expect(402, "budget_requests");
	ck_assert_int_eq(orch_principal_budget_hit(fixture->principal), 1);
	ck_assert_uint_eq(upstream_count(fixture), 2);
}
END_TEST

START_TEST(small_budget_still_allows_one_call)
{
	/* Reserves about 130 tokens against a cap of 20; uses 15, then 15 more. */
	set_upstream(fixture, "ai.anthropic", "usage-10-5", false);
	fixture_principal(fixture, 0, 20, 0);
	grant(fixture, "ai.anthropic", NULL, NULL);
	expect(200, NULL);
	expect(200, NULL);
	expect(402, "budget_tokens");
	uint64_t tokens;
	orch_principal_spent(fixture->principal, NULL, &tokens, NULL);
	ck_assert_uint_eq(tokens, 30);
}
END_TEST

START_TEST(money_needs_a_price)
{
	set_upstream(fixture, "ai.anthropic", "usage-1000000-500000", false);
	fixture_principal(fixture, 0, 0, 3000000);
	grant(fixture, "ai.anthropic", NULL, NULL);
	expect(402, "no_price");
	ck_assert_uint_eq(upstream_count(fixture), 0);
	set_upstream(fixture, "ai.anthropic", "usage-1000000-500000", true);
	expect(200, NULL);
	uint64_t micro_usd;
	orch_principal_spent(fixture->principal, NULL, NULL, &micro_usd);
	ck_assert_uint_eq(micro_usd, 2000000);
	orch_broker_spent(fixture->broker, NULL, NULL, &micro_usd);
	ck_assert_uint_eq(micro_usd, 2000000);
	expect(200, NULL);
	expect(402, "budget_money");
}
END_TEST

static void eight_at_once(unsigned *ret_ok, unsigned *ret_refused)
{
	struct ask *asks[8];
	for (int i = 0; i < 8; i++)
		asks[i] = ask_start(fixture, "POST", MESSAGES, JSON_BODY, SMALL);
	*ret_ok = *ret_refused = 0;
	for (int i = 0; i < 8; i++) {
		struct reply *reply = ask_wait(fixture, asks[i]);
		*ret_ok += reply->status == 200;
		*ret_refused += reply->status == 402 || reply->status == 429;
	}
	for (int i = 0; i < 8; i++)
		ask_free(asks[i]);
}

START_TEST(parallel_calls_do_not_beat_a_budget)
{
	unsigned ok, refused;
	set_upstream(fixture, "ai.anthropic", "hold-300-10-5", false);
	fixture_principal(fixture, 3, 0, 0);
	grant(fixture, "ai.anthropic", NULL, NULL);
	eight_at_once(&ok, &refused);
	ck_assert_uint_eq(ok, 3);
	ck_assert_uint_eq(refused, 5);
	ck_assert_uint_eq(upstream_count(fixture), 3);
	/* Tokens: each call reserves 100 + its size / 4, so two fit under 250, whatever each one
	 * uses. */
	fixture_principal(fixture, 0, 250, 0);
	grant(fixture, "ai.anthropic", NULL, NULL);
	eight_at_once(&ok, &refused);
	ck_assert_uint_eq(ok, 2);
	ck_assert_uint_eq(refused, 6);
	/* The control: without a budget all eight are in flight at once. */
	fixture_principal(fixture, 0, 0, 0);
	grant(fixture, "ai.anthropic", NULL, NULL);
	eight_at_once(&ok, &refused);
	ck_assert_uint_eq(ok, 8);
}
END_TEST

START_TEST(shared_budget_holds_over_principals_and_restarts)
{
	set_upstream(fixture, "ai.anthropic", "usage-10-5", false);
	ck_assert_int_eq(orch_broker_set_budget(fixture->broker, 3, 0, 0, NULL), 0);
	ck_assert_int_eq(orch_broker_add_spent(fixture->broker, 1, 0, 0, NULL), 0);
	expect(200, NULL);
	fixture_principal(fixture, 0, 0, 0);
	grant(fixture, "ai.anthropic", NULL, NULL);
	expect(200, NULL);
	expect(402, "budget_requests");
}
END_TEST

static bool budgets_are_idle(void *userdata)
{
	const struct fixture *f = userdata;
	return !f->broker->budget.in_flight && !f->principal->budget.in_flight && !f->broker->ops;
}

START_TEST(many_clients_come_and_go)
{
	static const char *const methods[] = {"POST", "cut:400:POST", "stop:30:POST", "slow:5:POST"};
	struct ask *asks[60];
	unsigned whole = 0;
	grant(fixture, "ai.openai", NULL, NULL);
	set_upstream(fixture, "ai.anthropic", "sse-20-10", true);
	set_upstream(fixture, "ai.openai", "hold-150-5-5", true);
	for (int i = 0; i < 60; i++) {
		bool openai = i % 5 == 0;
		asks[i] = ask_start(fixture, methods[i % 4],
				    openai ? "/ai.openai/v1/responses" : MESSAGES, JSON_BODY, SMALL);
		if (i % 7 == 0)
			run_ms(fixture, 10);
	}
	for (int i = 0; i < 60; i++)
		whole += ask_wait(fixture, asks[i])->whole;
	run_until(fixture, budgets_are_idle, fixture);
	for (int i = 0; i < 60; i++)
		ask_free(asks[i]);
	ck_assert_uint_ge(whole, 25);
	for (int kind = 0; kind < BUDGET_KINDS; kind++) {
		ck_assert_uint_eq(fixture->broker->budget.reserved.of[kind], 0);
		ck_assert_uint_eq(fixture->broker->budget.spent.of[kind],
				  fixture->principal->budget.spent.of[kind]);
	}
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_DISPATCHED, NULL),
			  told_count(fixture, ORCH_OPERATION_OBSERVED, NULL) +
				  told_count(fixture, ORCH_OPERATION_UNKNOWN, NULL));
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_DISPATCHED, NULL),
			  action_count(fixture, "ai."));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker");
	TCase *cases = tcase_create("ai");
	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_set_timeout(cases, 90);
	tcase_add_test(cases, response_streams_while_upstream_still_writes);
	tcase_add_test(cases, openai_stream_is_metered);
	tcase_add_test(cases, large_request_goes_up_whole);
	tcase_add_test(cases, slow_client_holds_upstream_back);
	tcase_add_test(cases, silence_gets_pings_between_events);
	tcase_add_test(cases, connection_is_kept_for_several_requests);
	tcase_add_test(cases, client_authority_is_stripped_and_the_secret_never_comes_back);
	tcase_add_test(cases, openai_gets_a_bearer_token);
	tcase_add_test(cases, response_headers_lose_cookies_and_keep_quota);
	tcase_add_test(cases, no_grant_says_why_and_what_is_allowed);
	tcase_add_test(cases, deny_wins_expiry_and_uses_count);
	tcase_add_test(cases, request_budget_ends);
	tcase_add_test(cases, small_budget_still_allows_one_call);
	tcase_add_test(cases, money_needs_a_price);
	tcase_add_test(cases, parallel_calls_do_not_beat_a_budget);
	tcase_add_test(cases, many_clients_come_and_go);
	tcase_add_test(cases, shared_budget_holds_over_principals_and_restarts);
	suite_add_tcase(suite, cases);
	suite_add_tcase(suite, ends_cases());
	suite_add_tcase(suite, notify_cases());
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
