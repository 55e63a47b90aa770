/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BROKER_FIXTURE_H
#define BROKER_FIXTURE_H

/*
 * A broker with one principal behind a listener on loopback, a provider (broker-upstream.py) as a
 * process of its own, and clients on threads of their own, so that the broker's loop has the main
 * thread for itself.
 */

#include <check.h>
#include <jansson.h>
#include <pthread.h>

#include <orch/broker.h>

#include "core/core-private.h"

#define SECRET "sk-test-0123456789abcdef"

struct told {
	char operation[32];
	uint32_t event;
	char code[32];
	int32_t status;
	int64_t quota_resets_at_ms;
	orch_principal *principal; /* borrowed */
};

struct provider {
	pid_t pid;
	int port, stdin_fd;
};

struct fixture {
	char folder[64];
	char journal_path[96];
	orch_ctx *ctx;
	orch_journal *journal;
	orch_broker *broker;
	orch_principal *principal;
	int listener, port;
	struct provider upstream;
	struct told told[512];
	unsigned told_count;
	unsigned destroyed;
};

struct reply {
	int status;
	char *head, *body;
	size_t length;
	bool whole;		    /* by its own framing */
	double first_body_s, end_s; /* since the request was sent */
	int error;		    /* of connect, send or recv */
};

struct ask {
	int port;
	char *request;
	size_t request_length;
	unsigned pause_ms;	/* before each read: a slow reader */
	size_t stop_after;	/* bytes, then the connection is closed; 0: at the end */
	unsigned stop_after_ms; /* then the connection is closed; 0: no limit */
	struct reply reply;
	atomic_bool done;
	orch_ctx *ctx;
	pthread_t thread;
};

/* `pem`: certificate and key, for https; NULL: http. Ends with provider_stop(). */
void provider_start(struct provider *provider, const char *pem);
void provider_stop(struct provider *provider);
struct fixture *fixture_new(void);
void fixture_free(struct fixture *fixture);
/* The broker anew, on the same journal file: what a restart sees. */
void fixture_open(struct fixture *fixture, const struct orch_broker_opts *opts);
void fixture_close(struct fixture *fixture);
/* Principal "p" with budgets, behind the fixture's listener. */
void fixture_principal(struct fixture *fixture, uint64_t requests, uint64_t tokens,
		       uint64_t micro_usd);
int listen_anywhere(int *ret_port);
/* base_url is http://127.0.0.1:PORT/mode. Prices: 1 and 2 USD per million tokens if `priced`. */
void set_upstream(struct fixture *fixture, const char *operation, const char *mode, bool priced);
void grant(struct fixture *fixture, const char *operation, const char *url, const char *probe_url);

/* Starts a request on a thread of its own; "Host" and "Content-Length" are added. */
struct ask *ask_start(struct fixture *fixture, const char *method, const char *path,
		      const char *headers, const char *body);
struct ask *ask_raw(struct fixture *fixture, const char *request);
/* Runs the loop until it has come to its end. */
struct reply *ask_wait(struct fixture *fixture, struct ask *ask);
struct ask *ask_free(struct ask *ask);
/* All of it; freed by ask_free() of what *ret_ask gets. */
struct reply *ask(struct fixture *fixture, struct ask **ret_ask, const char *method,
		  const char *path, const char *headers, const char *body);
void run_ms(struct fixture *fixture, int64_t ms);
void run_until(struct fixture *fixture, bool (*done)(void *userdata), void *userdata);

/* error.type of a refusal. Valid until the reply goes. */
const char *refusal(const struct reply *reply);
/* What the provider saw: {"requests": [...], "applied": {...}}. */
json_t *upstream_log(struct fixture *fixture);
size_t upstream_count(struct fixture *fixture);
/* How often the destination applied a key. */
json_int_t applied(struct fixture *fixture, const char *key);
/* Asks the provider on the calling thread, without the broker. */
struct reply ask_direct(int port, const char *request);
unsigned told_count(const struct fixture *fixture, uint32_t event, const char *code);
/* The state of the only action of that kind. */
uint32_t only_state(struct fixture *fixture, const char *kind);
unsigned action_count(struct fixture *fixture, const char *kind);

#define MESSAGES "/ai.anthropic/v1/messages"
#define JSON_BODY "Content-Type: application/json\r\n"
#define SMALL "{\"model\":\"m\",\"max_tokens\":100,\"messages\":[]}"

TCase *ends_cases(void);
TCase *notify_cases(void);

#endif
