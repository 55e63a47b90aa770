/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_BROKER_PRIVATE_H
#define ORCH_BROKER_PRIVATE_H

/*
 * The broker's parts, from the outside in:
 *
 *   listener.c    HTTP with clients (libmicrohttpd), one daemon per listener
 *   httpd.c       the daemon's turns in the loop, per operating system
 *   op.c          one request: parsed, judged, answered, ended once
 *   ai.c          operations that go to a provider and are streamed back
 *   notify.c      notify.send: at most once, replayed, probed
 *   upstream.c    one HTTP exchange with a server (libcurl) in the same loop
 *   principal.c   principals, grants, revocation
 *   broker.c      the handle, upstreams, budgets, callbacks
 *   parse, meter, json-scan, budget: values only
 *
 * Nothing of the host application is called from inside libmicrohttpd or libcurl: what is to be
 * told goes into a queue that broker_work() empties at the top of a turn, where handles may be
 * dropped and principals revoked.
 */

#include <curl/curl.h>
#include <microhttpd.h>
#include <sodium.h>

#include <orch/broker.h>

#include "budget.h"
#include "httpd.h"
#include "meter.h"
#include "parse.h"

/* Of a request's body; of one of notify.send; of all bodies of a principal that are held at a time.
 */
#define BODY_LIMIT ((size_t)32 << 20)
#define NOTIFY_LIMIT ((size_t)64 << 10)
#define BODIES_LIMIT ((size_t)96 << 20)
/* Of a response on its way to a client: upstream is paused above the first and goes on below the
 * second. */
#define STREAM_HIGH ((size_t)256 << 10)
#define STREAM_LOW ((size_t)64 << 10)
#define HEADERS_LIMIT ((size_t)64 << 10)
#define CONNECTIONS_LIMIT 128u
/* A client that neither sends nor reads for this long is cut. */
#define CLIENT_IDLE_S 300u
/* A stream of Anthropic's that is silent for this long gets one of its own pings: clients watch for
 * silence. */
#define PING_MS 15000

enum operation { OPERATION_ANTHROPIC, OPERATION_OPENAI, OPERATION_NOTIFY, OPERATION_COUNT };
#define OPERATION_NONE OPERATION_COUNT

const char *operation_name(enum operation operation); /* "" for OPERATION_NONE */
enum operation operation_find(const char *name, size_t length);

struct upstream {
	char *base_url; /* no slash at the end; NULL: not set */
	uint32_t credential;
	const char *secret; /* one of the broker's */
	struct prices prices;
	uint32_t max_output_tokens;
};

/* Kept to the end: streams that began under an earlier one are scrubbed of it as well. */
struct secret {
	struct secret *next;
	char text[];
};

struct grant {
	enum operation operation;
	bool deny;
	char *url, *probe_url, *key_prefix;
	uint64_t max_uses, uses;
	int64_t expires_at_ms;
	struct grant *next;
};

struct op;
struct listener;
struct event;
struct call;
struct curl_socket;

struct orch_broker {
	atomic_uint references; /* the host application's */
	atomic_uint holds;	/* on the memory: those together, each principal, each walk of
				   broker_work() */
	orch_ctx *ctx;
	orch_journal *journal;
	char instance[48]; /* in the keys of repeatable operations: no two brokers share it */
	uint64_t next_number;
	int64_t connect_timeout_ms, idle_timeout_ms, ping_ms;
	struct upstream upstreams[OPERATION_NOTIFY];
	struct secret *secrets;
	struct budget budget;
	bool closed;

	struct listener *listeners;
	struct op *ops;

	CURLM *multi;
	orch_source *multi_timer;
	struct curl_socket *sockets;

	orch_source *work_timer;
	struct op *scheduled;
	struct event *events, **events_tail;

	orch_operation_fn on_operation;
	void *on_operation_userdata;
	orch_destroy_fn on_operation_destroy;
};

struct orch_principal {
	atomic_uint references;
	orch_broker *broker;
	char *name;
	uint64_t generation;
	struct budget budget;
	struct grant *grants;
	size_t body_bytes;
	bool revoked;
	uint32_t settled, unknown; /* of what was in flight then */
	struct principal_tie *ties; /* to scopes; scope-work.c */
	void (*untie)(orch_principal *principal); /* NULL: it never had one, as in a library without scopes */
};


/* 0, or the errors of broker_check(); ORCH_EINVAL: NULL; ORCH_ECLOSED: it is revoked. */
int32_t principal_check(const orch_principal *principal, orch_error **reterr);

/* --- broker.c --------------------------------------------------------------------------------- */

orch_broker *broker_hold(orch_broker *broker);
void broker_release(orch_broker *broker);
/* 0, ORCH_EINVAL, ORCH_EFORKED or ORCH_ECLOSED. */
int32_t broker_check(const orch_broker *broker, orch_error **reterr);
/* Has broker_work() called in the next turn. */
void broker_wake(orch_broker *broker);
/* The event is told from broker_work(). `code` has static storage. */
void broker_tell(orch_broker *broker, orch_principal *principal, enum operation operation,
		 uint32_t event, const char *code, int status, int64_t quota_resets_at_ms);
void broker_tell_revoked(orch_broker *broker, orch_principal *principal, orch_revoke_fn fn,
			 void *userdata, orch_destroy_fn destroy, uint32_t settled,
			 uint32_t unknown);
/* All of the broker's secrets. */
void broker_scrub(const orch_broker *broker, struct scrub *scrub);
void broker_log(orch_broker *broker, uint32_t level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* --- principal.c ------------------------------------------------------------------------------ */

/*
 * The grant that allows the operation now, or NULL with the refusal's code and reason (freed by the
 * caller; NULL when there is no memory).
 */
struct grant *principal_allows(orch_principal *principal, enum operation operation,
			       const char **ret_code, char **ret_why);
/* The grant that is used up: good for the replay of what was done under it. */
struct grant *principal_used_up(orch_principal *principal, enum operation operation);
/* "ai.anthropic, notify.send", or "nothing". Freed by the caller. */
char *principal_may(const orch_principal *principal);

/* --- listener.c ------------------------------------------------------------------------------- */

struct listener {
	orch_broker *broker;
	orch_principal *principal;
	struct MHD_Daemon *daemon;
	int fd; /* the daemon's */
	struct httpd *httpd;
	struct listener *next;
};

int32_t listener_new(orch_broker *broker, int fd, orch_principal *principal, orch_error **reterr);
/* Closes it and cuts its connections. Not inside the daemon's own callbacks. */
void listener_stop(struct listener *listener);
/* The client's connection sleeps until op_wants_client() says that there is something for it. */
void listener_suspend(struct op *op);
void listener_resume(struct op *op);

/* --- upstream.c ------------------------------------------------------------------------------- */

enum call_end {
	CALL_COMPLETE, /* the response came to its end */
	CALL_NOT_SENT, /* nothing of the request reached a server */
	CALL_LOST,     /* it may have, and there is no complete response */
};

/* Called inside libcurl: no call_*() but call_stop() in `done`. */
struct call_events {
	void (*header)(void *userdata, const char *name, const char *value);
	void (*head)(void *userdata, int status);
	bool (*body)(void *userdata, const char *bytes,
		     size_t length); /* false: pause, it comes again */
	/* The last one. `code` is the refusal code that fits, "" for CALL_COMPLETE. */
	void (*done)(void *userdata, enum call_end end, const char *code, const char *why);
};

struct call_request {
	const char *method;
	const char *url;
	struct curl_slist *headers; /* taken over, also on failure */
	const char *body;	    /* borrowed until done */
	size_t body_length;
	bool fresh;	  /* on a connection of its own */
	int64_t total_ms; /* 0: no limit but for the idle timeout */
};

int32_t upstream_init(orch_broker *broker, orch_error **reterr);
void upstream_end(orch_broker *broker);
/* NULL: no memory. */
struct call *call_start(orch_broker *broker, const struct call_request *request,
			const struct call_events *events, void *userdata);
void call_unpause(struct call *call);
/* Cuts it; `done` does not come. Takes NULL, returns NULL. Not inside header, head, body. */
struct call *call_stop(struct call *call);
/* "name: value", appended; NULL: no memory, the list is freed. */
struct curl_slist *headers_add(struct curl_slist *list, const char *name, const char *value);
/* libcurl would add this one by itself (Expect: with a long body, and wait for the answer). */
struct curl_slist *headers_leave_out(struct curl_slist *list, const char *name);
/* Wipes, since one of them holds the credential. */
void headers_free(struct curl_slist *list);
/* For the one waiting request of orch_broker_probe(): the HTTP status, 0 if there was none. */
long call_wait(orch_broker *broker, const char *url, int64_t timeout_ms, struct orch_buf *body,
	       char **ret_content_type);

/* --- op.c ------------------------------------------------------------------------------------- */

enum op_phase {
	OP_READING,    /* the request is still coming */
	OP_PROBING,    /* notify.send: the destination is asked first */
	OP_WAITING,    /* notify.send: another request with the same key is in flight */
	OP_DISPATCHED, /* upstream, recorded as dispatched */
	OP_ENDED,      /* settled and recorded, or never admitted */
};

enum route { ROUTE_HELLO, ROUTE_INFERENCE, ROUTE_COUNT, ROUTE_PLAIN, ROUTE_NOTIFY };

struct op {
	unsigned references;
	orch_broker *broker;
	orch_principal *principal;
	struct listener *listener;
	struct op *next, *previous;
	struct op *next_scheduled;
	bool scheduled;
	enum op_phase phase;

	/* the client */
	struct MHD_Connection *connection; /* NULL: gone */
	orch_source *hangup;
	bool started, suspended, queued, client_gone, cut;
	char *raw_target;
	const char *target_why;
	char method[16];
	struct target target;
	enum operation operation;
	enum route route;
	const char *upstream_path; /* within target.path */
	struct curl_slist *up_headers;
	char *idempotency_key, *content_type;
	struct orch_buf body;
	size_t body_seen;
	crypto_hash_sha256_state hash;
	struct inquiry inquiry;

	/* what is answered from here */
	bool answered;
	int answer_status;
	struct orch_buf answer;
	char *answer_type;
	bool answer_replayed, answer_retry, answer_final;

	/* admitted */
	struct grant *grant;
	struct amounts reserved;
	bool has_reserved;
	uint64_t input_estimate;
	orch_action *action;

	/* upstream */
	struct call *call;
	bool paused, head_ready, upstream_done, upstream_failed;
	int status;
	int64_t content_length; /* -1: not told */
	bool encoded;
	struct orch_buf down_headers; /* name NUL value NUL ... */
	struct quota quota;
	struct meter meter;
	struct scrub scrub;
	struct orch_buf out;
	size_t out_offset;
	orch_source *ping;
	int64_t last_byte_us;

	/* notify.send */
	char *journal_key;
	unsigned char fingerprint[crypto_hash_sha256_BYTES];
	char *request_json;
	char *reply_type;
	struct orch_buf reply;
	bool reply_cut;
	struct op *waiters, *next_waiter;
	unsigned probed;
};

struct op *op_new(struct listener *listener, const char *raw_target);
struct op *op_ref(struct op *op);
struct op *op_unref(struct op *op);
/* op_work() runs in the next turn. */
void op_schedule(struct op *op);
void op_work(struct op *op);

/* The headers are there. */
void op_begin(struct op *op, const char *method);
/* More of the body. False: the connection is to be cut. */
bool op_body(struct op *op, const char *bytes, size_t length);
/* The request is complete. */
void op_dispatch(struct op *op);
/* The connection has ended. */
void op_client_ended(struct op *op);
/* There is an answer, a head, or more of a stream for the client. */
bool op_wants_client(const struct op *op);
/* Bytes of the stream; 0: none now; -1: the end; -2: cut. */
ssize_t op_read(struct op *op, char *room, size_t length);

/* Answers with a refusal. The first answer stays. `code` has static storage. */
void op_refuse(struct op *op, int status, const char *code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Reserves in both budgets and counts a use of the grant; false: refused. */
bool op_reserve(struct op *op, const struct amounts *want);
void op_settle(struct op *op, const struct amounts *spent);
/* The body is no longer needed. */
void op_drop_body(struct op *op);
/*
 * Cuts what is in flight for the principal (NULL: for all), and counts how it was settled: observed
 * or UNKNOWN. The counters may be NULL.
 */
void ops_abort(orch_broker *broker, const orch_principal *principal, const char *code,
	       uint32_t *ret_settled, uint32_t *ret_unknown);

/* --- ai.c ------------------------------------------------------------------------------------- */

/* False: not among the paths that go to the provider. */
bool ai_route(enum operation operation, const char *method, const char *path,
	      enum route *ret_route);
const char *ai_paths(enum operation operation);
void ai_dispatch(struct op *op);
/* ORCH_OPERATION_OBSERVED or _UNKNOWN. */
uint32_t ai_abort(struct op *op, const char *code);

/* --- notify.c --------------------------------------------------------------------------------- */

void notify_dispatch(struct op *op);
uint32_t notify_abort(struct op *op, const char *code);
/* What is recorded of a response. NULL: no memory. */
char *notify_result(int status, const char *content_type, const struct orch_buf *body, bool cut,
		    bool probed);

#endif
