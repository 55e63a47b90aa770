/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <strings.h>

#include "broker-fixture.h"

static struct fixture *fixture;

static void setup(void)
{
	fixture = fixture_new();
}

static void teardown(void)
{
	fixture_free(fixture);
}

static struct reply *notify(struct ask **ret_ask, const char *key, const char *body)
{
	_cleanup_free_ char *headers =
		orch_strdup_printf("Content-Type: text/plain\r\nIdempotency-Key: %s\r\n", key);
	return ask(fixture, ret_ask, "POST", "/notify.send", headers, body);
}

static void expect(const char *key, const char *body, int status, const char *code, bool replayed)
{
	struct ask *a;
	struct reply *reply = notify(&a, key, body);
	ck_assert_msg(reply->status == status, "%s: %d %s", key, reply->status,
		      reply->body ? reply->body : "");
	if (code)
		ck_assert_str_eq(refusal(reply), code);
	ck_assert_int_eq(strcasestr(reply->head, "\r\nx-orch-replayed: 1\r\n") != NULL, replayed);
	ask_free(a);
}

/* What a new instance of the coordinator finds. */
static void restart(void)
{
	fixture_close(fixture);
	fixture_open(fixture, NULL);
}

START_TEST(message_is_sent_once_and_replayed)
{
	struct ask *first, *again;
	grant(fixture, "notify.send", "notify/ok", "probe/ask/{key}");
	struct reply *one = notify(&first, "k1", "hello");
	ck_assert_int_eq(one->status, 201);
	ck_assert_ptr_nonnull(strstr(one->body, "\"sent\": \"hello\""));
	struct reply *two = notify(&again, "k1", "hello");
	ck_assert_int_eq(two->status, 201);
	ck_assert_str_eq(one->body, two->body);
	ck_assert_ptr_nonnull(strcasestr(two->head, "content-type: application/json"));
	ask_free(first);
	ask_free(again);
	/* Over a restart as well. */
	restart();
	grant(fixture, "notify.send", "notify/ok", "probe/ask/{key}");
	expect("k1", "hello", 201, NULL, true);
	ck_assert_int_eq(applied(fixture, "run-1/k1"), 1);
	/* Another message under the same key is refused, under another key it is sent. */
	expect("k1", "other", 422, "key_conflict", false);
	expect("k2", "other", 201, NULL, false);
	ck_assert_int_eq(applied(fixture, "run-1/k2"), 1);
}
END_TEST

START_TEST(key_and_grant_are_needed)
{
	struct ask *a;
	grant(fixture, "ai.anthropic", NULL, NULL);
	expect("k", "x", 403, "no_grant", false);
	grant(fixture, "notify.send", "notify/ok", NULL);
	struct reply *reply = ask(fixture, &a, "POST", "/notify.send", NULL, "x");
	ck_assert_int_eq(reply->status, 400);
	ck_assert_str_eq(refusal(reply), "idempotency_key");
	ask_free(a);
	reply = ask(fixture, &a, "POST", "/notify.send",
		    "Idempotency-Key: a\r\nIdempotency-Key: b\r\n", "x");
	ck_assert_int_eq(reply->status, 400);
	ask_free(a);
	reply = ask(fixture, &a, "GET", "/notify.send", "Idempotency-Key: a\r\n", NULL);
	ck_assert_int_eq(reply->status, 405);
	ask_free(a);
	reply = ask(fixture, &a, "POST", "/notify.send/elsewhere", "Idempotency-Key: a\r\n", "x");
	ck_assert_int_eq(reply->status, 404);
	ask_free(a);
	char *large = malloc(65538);
	memset(large, 'x', 65537);
	large[65537] = '\0';
	expect("k", large, 413, "too_large", false);
	large[65536] = '\0';
	expect("k", large, 201, NULL, false);
	free(large);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}
END_TEST

START_TEST(one_time_grant_still_replays)
{
	struct orch_grant_opts opts;
	_cleanup_free_ char *url =
		orch_strdup_printf("http://127.0.0.1:%d/notify/ok", fixture->upstream.port);
	orch_grant_opts_init(&opts, sizeof(opts));
	opts.operation = "notify.send";
	opts.url = url;
	opts.max_uses = 1;
	ck_assert_int_eq(orch_principal_grant(fixture->principal, &opts, NULL), 0);
	expect("k1", "hello", 201, NULL, false);
	expect("k2", "hello", 403, "grant_used_up", false);
	expect("k1", "hello", 201, NULL, true);
	ck_assert_int_eq(applied(fixture, "k1"), 1);
	ck_assert_int_eq(applied(fixture, "k2"), 0);
}
END_TEST

START_TEST(same_key_at_the_same_time_is_sent_once)
{
	struct ask *asks[6];
	unsigned replayed = 0;
	grant(fixture, "notify.send", "notify/late", "probe/ask/{key}");
	for (int i = 0; i < 6; i++)
		asks[i] = ask_start(fixture, "POST", "/notify.send", "Idempotency-Key: k\r\n",
				    "hello");
	for (int i = 0; i < 6; i++) {
		struct reply *reply = ask_wait(fixture, asks[i]);
		ck_assert_int_eq(reply->status, 201);
		replayed += strcasestr(reply->head, "x-orch-replayed") != NULL;
	}
	for (int i = 0; i < 6; i++)
		ask_free(asks[i]);
	ck_assert_uint_eq(replayed, 5);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}
END_TEST

START_TEST(client_that_leaves_does_not_undo_the_message)
{
	grant(fixture, "notify.send", "notify/late", NULL);
	struct ask *a = ask_start(fixture, "stop:100:POST", "/notify.send",
				  "Idempotency-Key: k\r\n", "hello");
	ask_wait(fixture, a);
	ask_free(a);
	run_ms(fixture, 600);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_CONFIRMED);
	expect("k", "hello", 201, NULL, true);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}
END_TEST

START_TEST(applied_but_unanswered_is_probed_not_repeated)
{
	grant(fixture, "notify.send", "notify/forget", "probe/ask/{key}");
	expect("k", "hello", 409, "outcome_unknown", false);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_UNKNOWN);
	expect("k", "hello", 200, NULL, true);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_CONFIRMED);
	expect("k", "hello", 200, NULL, true);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}
END_TEST

START_TEST(not_applied_is_probed_and_sent)
{
	grant(fixture, "notify.send", "notify/lose", "probe/ask/{key}");
	expect("k", "hello", 409, "outcome_unknown", false);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 0);
	/* Probed: not applied. Sent again, which is lost again. */
	expect("k", "hello", 409, "outcome_unknown", false);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_DISPATCHED, ""), 2);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_UNKNOWN);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 0);
}
END_TEST

START_TEST(unknown_goes_to_a_person)
{
	grant(fixture, "notify.send", "notify/forget", "probe/fail/{key}");
	expect("k", "hello", 409, "outcome_unknown", false);
	expect("k", "hello", 409, "outcome_unknown", false);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_HANDED_OVER);
	expect("k", "hello", 409, "outcome_unknown", false);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_DISPATCHED, ""), 1);
}
END_TEST

START_TEST(without_a_probe_it_stays_unknown)
{
	grant(fixture, "notify.send", "notify/forget", NULL);
	expect("k", "hello", 409, "outcome_unknown", false);
	expect("k", "hello", 409, "outcome_unknown", false);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_UNKNOWN);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}
END_TEST

START_TEST(refusals_of_the_destination_may_be_tried_again)
{
	grant(fixture, "notify.send", "notify/status422", NULL);
	expect("k", "hello", 422, NULL, false);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_FAILED);
	expect("k", "hello", 422, NULL, false);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_DISPATCHED, ""), 2);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_FAILED, "refused_by_destination"), 2);
}
END_TEST

START_TEST(server_error_is_unknown)
{
	grant(fixture, "notify.send", "notify/status500", "probe/ask/{key}");
	expect("k", "hello", 409, "outcome_unknown", false);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_UNKNOWN);
}
END_TEST

START_TEST(destination_that_is_down_is_known_not_reached)
{
	int port;
	close(listen_anywhere(&port));
	struct orch_grant_opts opts;
	_cleanup_free_ char *url = orch_strdup_printf("http://127.0.0.1:%d/", port);
	orch_grant_opts_init(&opts, sizeof(opts));
	opts.operation = "notify.send";
	opts.url = url;
	ck_assert_int_eq(orch_principal_grant(fixture->principal, &opts, NULL), 0);
	expect("k", "hello", 502, "upstream_unreachable", false);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_FAILED);
}
END_TEST

/* The broker goes while the message is under way: DISPATCHED or UNKNOWN, and the destination has
 * it. */
static void leave_in_flight(void)
{
	grant(fixture, "notify.send", "notify/late", "probe/ask/{key}");
	struct ask *a =
		ask_start(fixture, "POST", "/notify.send", "Idempotency-Key: k\r\n", "hello");
	run_ms(fixture, 150);
	fixture->broker = orch_broker_unref(fixture->broker);
	ask_wait(fixture, a);
	ck_assert_int_eq(a->reply.status, 0);
	ask_free(a);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_UNKNOWN);
	run_ms(fixture, 500);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}

START_TEST(restarted_broker_asks_before_it_sends)
{
	leave_in_flight();
	restart();
	grant(fixture, "notify.send", "notify/late", "probe/ask/{key}");
	expect("k", "hello", 200, NULL, true);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_CONFIRMED);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}
END_TEST

START_TEST(recovery_asks_by_the_recorded_address)
{
	orch_recovery *recovery = NULL;
	uint32_t before, probe;
	orch_action *action;
	leave_in_flight();
	restart();
	struct orch_recover_opts opts;
	orch_recover_opts_init(&opts, sizeof(opts));
	opts.kind_prefix = "notify.";
	opts.probe = orch_broker_probe;
	opts.userdata = fixture->broker;
	ck_assert_int_eq(orch_journal_recover(fixture->journal, &opts, &recovery, NULL), 0);
	ck_assert_uint_eq(orch_recovery_count(recovery), 1);
	ck_assert_int_eq(orch_recovery_row(recovery, 0, &action, &before, &probe, NULL), 0);
	ck_assert_uint_eq(before, ORCH_ACTION_UNKNOWN);
	ck_assert_uint_eq(probe, ORCH_OUTCOME_APPLIED);
	orch_recovery_unref(recovery);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_CONFIRMED);
	grant(fixture, "notify.send", "notify/late", "probe/ask/{key}");
	expect("k", "hello", 200, NULL, true);
	ck_assert_int_eq(applied(fixture, "run-1/k"), 1);
}
END_TEST

START_TEST(revoke_leaves_a_message_unknown)
{
	grant(fixture, "notify.send", "notify/late", "probe/ask/{key}");
	struct ask *a =
		ask_start(fixture, "POST", "/notify.send", "Idempotency-Key: k\r\n", "hello");
	struct ask *b =
		ask_start(fixture, "POST", "/notify.send", "Idempotency-Key: k\r\n", "hello");
	run_ms(fixture, 150);
	ck_assert_int_eq(orch_principal_revoke(fixture->principal, NULL, NULL, NULL, NULL), 0);
	ck_assert_int_eq(ask_wait(fixture, a)->status, 0);
	ck_assert_int_eq(ask_wait(fixture, b)->status, 0);
	ask_free(a);
	ask_free(b);
	ck_assert_uint_eq(only_state(fixture, "notify."), ORCH_ACTION_UNKNOWN);
	ck_assert_uint_eq(told_count(fixture, ORCH_OPERATION_UNKNOWN, "revoked"), 1);
}
END_TEST

START_TEST(bytes_that_are_no_text_survive)
{
	struct ask *a;
	grant(fixture, "notify.send", "notify/ok", NULL);
	struct reply *reply = notify(&a, "k", "\xff\xfe\x01");
	ck_assert_int_eq(reply->status, 201);
	char *first = strdup(reply->body);
	ask_free(a);
	reply = notify(&a, "k", "\xff\xfe\x01");
	ck_assert_str_eq(reply->body, first);
	free(first);
	ask_free(a);
}
END_TEST

TCase *notify_cases(void)
{
	TCase *cases = tcase_create("notify");
	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, message_is_sent_once_and_replayed);
	tcase_add_test(cases, key_and_grant_are_needed);
	tcase_add_test(cases, one_time_grant_still_replays);
	tcase_add_test(cases, same_key_at_the_same_time_is_sent_once);
	tcase_add_test(cases, client_that_leaves_does_not_undo_the_message);
	tcase_add_test(cases, applied_but_unanswered_is_probed_not_repeated);
	tcase_add_test(cases, not_applied_is_probed_and_sent);
	tcase_add_test(cases, unknown_goes_to_a_person);
	tcase_add_test(cases, without_a_probe_it_stays_unknown);
	tcase_add_test(cases, refusals_of_the_destination_may_be_tried_again);
	tcase_add_test(cases, server_error_is_unknown);
	tcase_add_test(cases, destination_that_is_down_is_known_not_reached);
	tcase_add_test(cases, restarted_broker_asks_before_it_sends);
	tcase_add_test(cases, recovery_asks_by_the_recorded_address);
	tcase_add_test(cases, revoke_leaves_a_message_unknown);
	tcase_add_test(cases, bytes_that_are_no_text_survive);
	return cases;
}
