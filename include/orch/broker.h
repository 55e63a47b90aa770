/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_BROKER_H
#define ORCH_BROKER_H

/*
 * orch_broker: the one door out of a sandbox. Clients speak plain HTTP/1.1 to a listener; the first path
 * segment names the operation:
 *
 *     /ai.anthropic/v1/messages ...   to the Anthropic upstream, streamed both ways
 *     /ai.openai/v1/responses ...     to the OpenAI upstream, streamed both ways
 *     /notify.send  (POST)            one message to the destination of the grant; needs an
 *                                     Idempotency-Key header; policy never_repeat
 *
 * Order of each operation, fixed: parse -> canonical form -> principal -> grant (deny wins) -> budget
 * reserved -> destination -> credential added -> journal intent and dispatch -> stream -> budget settled ->
 * observed. A refusal is a JSON body {"type":"error","error":{"type":CODE,"message":WHY}}; see
 * orch_broker(3) for codes and statuses.
 */

#include <orch/ctx.h>
#include <orch/journal.h>
#include <orch/scope.h>

ORCH_BEGIN_DECLS

typedef struct orch_broker orch_broker;
typedef struct orch_principal orch_principal;

struct orch_broker_opts {
	uint32_t size;
	uint32_t flags;
	/* Kept referenced. NULL: the broker keeps its own at journal_path. No journal, no operation. */
	orch_journal *journal;
	const char *journal_path;
	uint32_t connect_timeout_ms; /* upstream; 0: 5000 */
	uint32_t idle_timeout_ms;    /* no byte from upstream; 0: 300000 */
};

ORCH_API void orch_broker_opts_init(struct orch_broker_opts *opts, uint32_t size);
/* ORCH_EINVAL: neither journal nor journal_path; errors of orch_journal_open(); ORCH_ENOMEM. Since 0.1. */
ORCH_API int32_t orch_broker_new(orch_ctx *ctx, const struct orch_broker_opts *opts,
				 orch_broker **ret_broker, orch_error **reterr);
ORCH_API orch_broker *orch_broker_ref(orch_broker *broker);
/* The last reference closes listeners and connections; operations in flight become UNKNOWN. Since 0.1. */
ORCH_API orch_broker *orch_broker_unref(orch_broker *broker);

#define ORCH_CREDENTIAL_NONE 0u
#define ORCH_CREDENTIAL_API_KEY 1u /* anthropic: x-api-key; openai: Authorization: Bearer */
#define ORCH_CREDENTIAL_BEARER 2u  /* Authorization: Bearer */

struct orch_upstream_opts {
	uint32_t size;
	uint32_t flags;
	const char *base_url;   /* "https://api.anthropic.com": scheme, host, port, path prefix */
	uint32_t credential;    /* ORCH_CREDENTIAL_* */
	uint32_t reserved;
	const char *secret;     /* copied, wiped at the end, scrubbed from what is logged or sent back */
	/*
	 * Prices in millionths of a US dollar per million tokens, for the money budget. Both 0: no price is
	 * known, and a principal with a money budget is refused.
	 */
	uint64_t input_price_micro_usd_per_mtok;
	uint64_t output_price_micro_usd_per_mtok;
	uint32_t max_output_tokens; /* assumed for the reservation when the request has no limit; 0: 32000 */
	uint32_t reserved2;
};

ORCH_API void orch_upstream_opts_init(struct orch_upstream_opts *opts, uint32_t size);
/*
 * Sets where an operation type ("ai.anthropic", "ai.openai") goes. ORCH_EINVAL: malformed URL, user
 * information in it, scheme other than http and https; ORCH_ENOENT: unknown operation. Since 0.1.
 */
ORCH_API int32_t orch_broker_set_upstream(orch_broker *broker, const char *operation,
					  const struct orch_upstream_opts *opts, orch_error **reterr);

/*
 * One more shared budget over all principals of the broker (0: no limit of that kind), and what was spent
 * before, e.g. by an earlier instance of the run. Money in millionths of a US dollar. Since 0.1.
 */
ORCH_API int32_t orch_broker_set_budget(orch_broker *broker, uint64_t requests, uint64_t tokens,
					uint64_t micro_usd, orch_error **reterr);
ORCH_API int32_t orch_broker_add_spent(orch_broker *broker, uint64_t requests, uint64_t tokens,
				       uint64_t micro_usd, orch_error **reterr);
/* Settled spending so far; outputs may be NULL. Since 0.1. */
ORCH_API int32_t orch_broker_spent(const orch_broker *broker, uint64_t *ret_requests,
				   uint64_t *ret_tokens, uint64_t *ret_micro_usd);

struct orch_principal_opts {
	uint32_t size;
	uint32_t flags;
	const char *name;        /* "run-1/T2/1": in the journal and in refusals; copied */
	uint64_t generation;
	uint64_t max_requests;   /* own budget; 0: no limit of its own */
	uint64_t max_tokens;
	uint64_t max_micro_usd;
};

ORCH_API void orch_principal_opts_init(struct orch_principal_opts *opts, uint32_t size);
/* Without a grant everything it asks for is refused. ORCH_EINVAL, ORCH_ENOMEM. Since 0.1. */
ORCH_API int32_t orch_principal_new(orch_broker *broker, const struct orch_principal_opts *opts,
				    orch_principal **ret_principal, orch_error **reterr);
ORCH_API orch_principal *orch_principal_ref(orch_principal *principal);
ORCH_API orch_principal *orch_principal_unref(orch_principal *principal);

#define ORCH_GRANT_DENY 1u /* an explicit deny: wins over every allow */

struct orch_grant_opts {
	uint32_t size;
	uint32_t flags;             /* ORCH_GRANT_* */
	const char *operation;      /* "ai.anthropic", "ai.openai", "notify.send" */
	/*
	 * notify.send: the URL that is POSTed to, and the one that is asked (GET) whether a key was applied:
	 * "{key}" in it is replaced by the percent-encoded key; 200 means applied, 404 not applied, anything
	 * else unknown. NULL probe: outcome stays unknown after a failure.
	 */
	const char *url;
	const char *probe_url;
	uint64_t max_uses;          /* 0: no limit */
	int64_t expires_at_ms;      /* CLOCK_REALTIME; 0: never */
	/* Prefixed to the client's Idempotency-Key: what makes keys of two runs different. NULL: "" */
	const char *key_prefix;
};

ORCH_API void orch_grant_opts_init(struct orch_grant_opts *opts, uint32_t size);
ORCH_API int32_t orch_principal_grant(orch_principal *principal, const struct orch_grant_opts *opts,
				      orch_error **reterr);

/*
 * Serves clients that connect to the listening socket `fd` (duplicated) as that principal.
 * ORCH_EINVAL: not a listening stream socket; ORCH_ECLOSED: the principal is revoked; ORCH_ESYS. Since 0.1.
 */
ORCH_API int32_t orch_broker_add_listener(orch_broker *broker, int32_t fd, orch_principal *principal,
					  orch_error **reterr);

typedef void (*orch_revoke_fn)(void *userdata, orch_principal *principal, uint32_t settled,
			       uint32_t unknown);
/*
 * Ends the principal: listener closed, connections cut, operations in flight settled (observed) or
 * UNKNOWN. The callback (may be NULL) comes when that is done, with both counts. Since 0.1.
 */
ORCH_API int32_t orch_principal_revoke(orch_principal *principal, orch_revoke_fn fn, void *userdata,
				       orch_destroy_fn destroy, orch_error **reterr);
/*
 * Makes the principal's end part of the scope's (orch_scope_add_work()): when the scope's end begins it is revoked, and the
 * certificate says what was cut and how what was in flight ended. For each client in a scope. Not in a library that was
 * built without scopes.
 *
 * ORCH_EINVAL; ORCH_ECLOSED: the principal is revoked, or the scope's end has begun; ORCH_EBUSY, ORCH_ENOMEM,
 * ORCH_EFORKED as of orch_scope_add_work(). Since 0.1.
 */
ORCH_API int32_t orch_principal_attach(orch_principal *principal, orch_scope *scope, orch_error **reterr);
/* What it has settled so far; outputs may be NULL. ORCH_EINVAL; ORCH_EFORKED. Since 0.1. */
ORCH_API int32_t orch_principal_spent(const orch_principal *principal, uint64_t *ret_requests,
				      uint64_t *ret_tokens, uint64_t *ret_micro_usd);
/* 1 if an operation was refused for budget since the start. Since 0.1. */
ORCH_API int32_t orch_principal_budget_hit(const orch_principal *principal);

#define ORCH_OPERATION_REFUSED 1u
#define ORCH_OPERATION_DISPATCHED 2u
#define ORCH_OPERATION_OBSERVED 3u
#define ORCH_OPERATION_FAILED 4u  /* upstream not reached: known not applied */
#define ORCH_OPERATION_UNKNOWN 5u

/*
 * Each step of each operation. `code`: refusal code ("no_grant", "budget_tokens", "upstream_unreachable",
 * ...) or "". `quota_resets_at_ms`: from the provider's structured headers on 429, else 0.
 */
typedef void (*orch_operation_fn)(void *userdata, orch_principal *principal, const char *operation,
				  uint32_t event, const char *code, int32_t http_status,
				  int64_t quota_resets_at_ms);
ORCH_API int32_t orch_broker_on_operation(orch_broker *broker, orch_operation_fn fn, void *userdata,
					  orch_destroy_fn destroy, orch_error **reterr);

/*
 * Asks the destination what became of a journalled broker action (a callback form of orch_probe_fn for
 * orch_journal_recover()): for notify.send by its recorded probe URL, within connect_timeout_ms; AI calls
 * have no probe and no lasting effect. `userdata` is the broker. Waits. Since 0.1.
 */
ORCH_API void orch_broker_probe(void *userdata, orch_action *action, orch_probe_reply *reply);

ORCH_END_DECLS

#endif
