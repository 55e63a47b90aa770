/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "../core/os.h"
#include "broker-private.h"

static const char *const operation_names[OPERATION_COUNT + 1] = {"ai.anthropic", "ai.openai",
								 "notify.send", ""};

const char *operation_name(enum operation operation)
{
	return operation_names[operation];
}

enum operation operation_find(const char *name, size_t length)
{
	for (int i = 0; i < OPERATION_COUNT; i++)
		if (strlen(operation_names[i]) == length &&
		    memcmp(operation_names[i], name, length) == 0)
			return (enum operation)i;
	return OPERATION_NONE;
}

int32_t broker_check(const orch_broker *broker, orch_error **reterr)
{
	if (!broker)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the broker is NULL");
	int32_t code = orch_ctx_check(broker->ctx, reterr);
	if (code < 0)
		return code;
	if (broker->closed)
		return orch_fail(reterr, ORCH_ECLOSED, 0, NULL,
				 "the broker was closed with its last reference: make a new one");
	return 0;
}

/* --- what the host application is told -------------------------------------------------------- */

struct event {
	orch_principal *principal; /* may be NULL */
	enum operation operation;
	uint32_t event;
	const char *code;
	int status;
	int64_t quota_resets_at_ms;
	/* The end of a revocation instead. */
	bool is_revocation;
	orch_revoke_fn revoked;
	void *revoked_userdata;
	orch_destroy_fn revoked_destroy;
	uint32_t settled, unknown;
	struct event *next;
};

static void event_free(struct event *event)
{
	if (event->revoked_destroy)
		event->revoked_destroy(event->revoked_userdata);
	orch_principal_unref(event->principal);
	free(event);
}

static void event_push(orch_broker *broker, struct event *event)
{
	*broker->events_tail = event;
	broker->events_tail = &event->next;
	broker_wake(broker);
}

void broker_tell(orch_broker *broker, orch_principal *principal, enum operation operation,
		 uint32_t what, const char *code, int status, int64_t quota_resets_at_ms)
{
	if (!broker->on_operation)
		return;
	struct event *event = calloc(1, sizeof(*event));
	if (!event) {
		broker_log(broker, ORCH_LOG_ERROR,
			   "broker: no memory to tell of an operation of %s", principal->name);
		return;
	}
	event->principal = orch_principal_ref(principal);
	event->operation = operation;
	event->event = what;
	event->code = code;
	event->status = status;
	event->quota_resets_at_ms = quota_resets_at_ms;
	event_push(broker, event);
}

void broker_tell_revoked(orch_broker *broker, orch_principal *principal, orch_revoke_fn fn,
			 void *userdata, orch_destroy_fn destroy, uint32_t settled,
			 uint32_t unknown)
{
	struct event *event = calloc(1, sizeof(*event));
	if (!event) {
		if (destroy)
			destroy(userdata);
		return;
	}
	event->principal = orch_principal_ref(principal);
	event->is_revocation = true;
	event->revoked = fn;
	event->revoked_userdata = userdata;
	event->revoked_destroy = destroy;
	event->settled = settled;
	event->unknown = unknown;
	event_push(broker, event);
}

static void event_deliver(orch_broker *broker, const struct event *event)
{
	if (event->is_revocation) {
		if (event->revoked)
			event->revoked(event->revoked_userdata, event->principal, event->settled,
				       event->unknown);
	} else if (broker->on_operation) {
		broker->on_operation(broker->on_operation_userdata, event->principal,
				     operation_name(event->operation), event->event, event->code,
				     event->status, event->quota_resets_at_ms);
	}
}

static struct event *event_pop(orch_broker *broker)
{
	struct event *event = broker->events;
	if (event && !(broker->events = event->next))
		broker->events_tail = &broker->events;
	return event;
}

static struct op *scheduled_pop(orch_broker *broker)
{
	struct op *op = broker->scheduled;
	if (op) {
		broker->scheduled = op->next_scheduled;
		op->scheduled = false;
	}
	return op;
}

/* The top of a turn: no library is on the stack, so callbacks may do what they like. */
static void broker_work(void *userdata)
{
	orch_broker *broker = broker_hold(userdata);
	struct op *op;
	struct event *event;

	while ((op = scheduled_pop(broker))) {
		op_work(op);
		op_unref(op);
	}
	while ((event = event_pop(broker))) {
		event_deliver(broker, event);
		event_free(event);
	}
	broker_release(broker);
}

void broker_wake(orch_broker *broker)
{
	if (broker->work_timer)
		orch_source_timer_set(broker->work_timer, 0);
}

void broker_scrub(const orch_broker *broker, struct scrub *scrub)
{
	for (const struct secret *secret = broker->secrets; secret; secret = secret->next)
		scrub_add(scrub, secret->text);
}

void broker_log(orch_broker *broker, uint32_t level, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	_cleanup_free_ char *text = NULL;
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	if (!text)
		return;
	struct scrub scrub = {0};
	broker_scrub(broker, &scrub);
	scrub_text(&scrub, text);
	orch_ctx_logf(broker->ctx, level, "%s", text);
}

/* --- life ------------------------------------------------------------------------------------- */

void orch_broker_opts_init(struct orch_broker_opts *opts, uint32_t size)
{
	const struct orch_broker_opts defaults = {
		.connect_timeout_ms = 5000,
		.idle_timeout_ms = 300000,
	};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

orch_broker *broker_hold(orch_broker *broker)
{
	atomic_fetch_add(&broker->holds, 1);
	return broker;
}

static void broker_free(orch_broker *broker)
{
	for (int i = 0; i < OPERATION_NOTIFY; i++)
		free(broker->upstreams[i].base_url);
	while (broker->secrets) {
		struct secret *next = broker->secrets->next;
		orch_erase(broker->secrets->text, strlen(broker->secrets->text));
		free(broker->secrets);
		broker->secrets = next;
	}
	orch_ctx *ctx = broker->ctx;
	free(broker);
	orch_ctx_unref(ctx);
}

void broker_release(orch_broker *broker)
{
	if (atomic_fetch_sub(&broker->holds, 1) == 1)
		broker_free(broker);
}

/* The last reference of the host application: everything that it could see ends now. */
static void broker_close(void *object)
{
	orch_broker *broker = object;
	bool forked = orch_ctx_forked(broker->ctx);

	broker->closed = true;
	if (!forked) {
		ops_abort(broker, NULL, "broker_closed", NULL, NULL);
		while (broker->listeners)
			listener_stop(broker->listeners);
		struct op *op;
		while ((op = scheduled_pop(broker)))
			op_unref(op);
	}
	upstream_end(broker);
	broker->work_timer = orch_source_remove(broker->work_timer);
	struct event *event;
	while ((event = event_pop(broker)))
		event_free(event);
	broker->on_operation = NULL;
	if (broker->on_operation_destroy)
		broker->on_operation_destroy(broker->on_operation_userdata);
	broker->on_operation_destroy = NULL;
	broker->journal = orch_journal_unref(broker->journal);
	broker_release(broker);
}

static int32_t open_journal(orch_broker *broker, const struct orch_broker_opts *opts,
			    orch_error **reterr)
{
	if (opts->journal) {
		broker->journal = orch_journal_ref(opts->journal);
		return 0;
	}
	struct orch_journal_opts journal_opts;
	orch_journal_opts_init(&journal_opts, sizeof(journal_opts));
	journal_opts.path = opts->journal_path;
	return orch_journal_open(&journal_opts, &broker->journal, reterr);
}

int32_t orch_broker_new(orch_ctx *ctx, const struct orch_broker_opts *opts,
			orch_broker **ret_broker, orch_error **reterr)
{
	struct orch_broker_opts known;
	int32_t code = orch_ctx_check(ctx, reterr);
	if (code == 0)
		code = orch_opts_read(opts, &known, sizeof(known), "orch_broker_opts", reterr);
	if (code < 0)
		return code;
	if (!ret_broker)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_broker is NULL");
	if (!known.journal && !known.journal_path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_broker_opts has neither journal nor journal_path: without a "
				 "journal no "
				 "operation is allowed");
	orch_broker *broker = calloc(1, sizeof(*broker));
	if (!broker)
		return orch_fail_memory(reterr);
	atomic_init(&broker->references, 1);
	atomic_init(&broker->holds, 1);
	broker->ctx = orch_ctx_ref(ctx);
	broker->events_tail = &broker->events;
	broker->connect_timeout_ms = known.connect_timeout_ms ? known.connect_timeout_ms : 5000;
	broker->idle_timeout_ms = known.idle_timeout_ms ? known.idle_timeout_ms : 300000;
	broker->ping_ms = PING_MS;
	code = open_journal(broker, &known, reterr);
	if (code == 0)
		code = orch_source_timer(ctx, -1, broker_work, broker, &broker->work_timer, reterr);
	if (code == 0)
		code = upstream_init(broker, reterr);
	if (code < 0) {
		orch_broker_unref(broker);
		return code;
	}
	char hex[9];
	orch_random_hex(hex, 4);
	snprintf(broker->instance, sizeof(broker->instance), "g%llu.%s",
		 (unsigned long long)orch_journal_generation(broker->journal), hex);
	*ret_broker = broker;
	return 0;
}

orch_broker *orch_broker_ref(orch_broker *broker)
{
	if (broker)
		atomic_fetch_add(&broker->references, 1);
	return broker;
}

orch_broker *orch_broker_unref(orch_broker *broker)
{
	if (broker && atomic_fetch_sub(&broker->references, 1) == 1)
		orch_ctx_destroy_later(broker->ctx, broker_close, broker);
	return NULL;
}

/* --- where operations go ---------------------------------------------------------------------- */

void orch_upstream_opts_init(struct orch_upstream_opts *opts, uint32_t size)
{
	const struct orch_upstream_opts defaults = {.max_output_tokens = 32000};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static int32_t upstream_opts_check(const char *operation, const struct orch_upstream_opts *opts,
				   orch_error **reterr)
{
	enum operation found =
		operation ? operation_find(operation, strlen(operation)) : OPERATION_NONE;
	if (found >= OPERATION_NOTIFY)
		return orch_fail(
			reterr, ORCH_ENOENT, 0, NULL,
			"operation \"%s\" has no upstream: give \"ai.anthropic\" or \"ai.openai\"",
			operation ? operation : "");
	const char *problem = !opts->base_url ? "it is NULL" : url_problem(opts->base_url);
	if (!problem && strpbrk(opts->base_url, "?{}"))
		problem = "it has a query or braces";
	/* The URL is not quoted: it may hold a password. */
	if (problem)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the base_url of %s is refused: %s",
				 operation, problem);
	if (opts->credential > ORCH_CREDENTIAL_BEARER)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "credential %u of %s is unknown",
				 opts->credential, operation);
	if (opts->credential != ORCH_CREDENTIAL_NONE && (!opts->secret || !*opts->secret))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "%s is to be called with a credential, but secret is empty",
				 operation);
	for (const char *at = opts->secret; at && *at; at++)
		if (*at <= 0x20 || *at >= 0x7f)
			return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
					 "the secret of %s holds a blank or control character: "
					 "strip the newline",
					 operation);
	return 0;
}

/* The broker's copy. NULL: no memory. */
static const char *keep_secret(orch_broker *broker, const char *text)
{
	for (const struct secret *secret = broker->secrets; secret; secret = secret->next)
		if (strcmp(secret->text, text) == 0)
			return secret->text;
	struct secret *secret = malloc(sizeof(*secret) + strlen(text) + 1);
	if (!secret)
		return NULL;
	strcpy(secret->text, text);
	secret->next = broker->secrets;
	broker->secrets = secret;
	return secret->text;
}

int32_t orch_broker_set_upstream(orch_broker *broker, const char *operation,
				 const struct orch_upstream_opts *opts, orch_error **reterr)
{
	struct orch_upstream_opts known;
	int32_t code = broker_check(broker, reterr);
	if (code == 0)
		code = orch_opts_read(opts, &known, sizeof(known), "orch_upstream_opts", reterr);
	if (code == 0)
		code = upstream_opts_check(operation, &known, reterr);
	if (code < 0)
		return code;
	size_t length = strlen(known.base_url);
	while (length && known.base_url[length - 1] == '/')
		length--;
	bool has_secret = known.credential != ORCH_CREDENTIAL_NONE;
	char *base_url = strndup(known.base_url, length);
	const char *secret = has_secret && base_url ? keep_secret(broker, known.secret) : NULL;
	if (!base_url || (has_secret && !secret)) {
		free(base_url);
		return orch_fail_memory(reterr);
	}
	struct upstream *upstream =
		&broker->upstreams[operation_find(operation, strlen(operation))];
	free(upstream->base_url);
	upstream->base_url = base_url;
	upstream->secret = secret;
	upstream->credential = known.credential;
	upstream->prices.input = known.input_price_micro_usd_per_mtok;
	upstream->prices.output = known.output_price_micro_usd_per_mtok;
	upstream->max_output_tokens = known.max_output_tokens ? known.max_output_tokens : 32000;
	if (secret && url_is_cleartext_remote(base_url))
		broker_log(broker, ORCH_LOG_WARNING,
			   "broker: the credential of %s travels unencrypted to another machine: "
			   "use https",
			   operation);
	return 0;
}

/* --- the shared budget ------------------------------------------------------------------------ */

int32_t orch_broker_set_budget(orch_broker *broker, uint64_t requests, uint64_t tokens,
			       uint64_t micro_usd, orch_error **reterr)
{
	int32_t code = broker_check(broker, reterr);
	if (code < 0)
		return code;
	broker->budget.caps = (struct amounts){{requests, tokens, micro_usd}};
	return 0;
}

int32_t orch_broker_add_spent(orch_broker *broker, uint64_t requests, uint64_t tokens,
			      uint64_t micro_usd, orch_error **reterr)
{
	int32_t code = broker_check(broker, reterr);
	if (code < 0)
		return code;
	budget_add(&broker->budget.spent, &(struct amounts){{requests, tokens, micro_usd}});
	return 0;
}

int32_t orch_broker_spent(const orch_broker *broker, uint64_t *ret_requests, uint64_t *ret_tokens,
			  uint64_t *ret_micro_usd)
{
	int32_t code = broker_check(broker, NULL);
	if (code < 0)
		return code;
	if (ret_requests)
		*ret_requests = broker->budget.spent.of[BUDGET_REQUESTS];
	if (ret_tokens)
		*ret_tokens = broker->budget.spent.of[BUDGET_TOKENS];
	if (ret_micro_usd)
		*ret_micro_usd = broker->budget.spent.of[BUDGET_MONEY];
	return 0;
}

int32_t orch_broker_on_operation(orch_broker *broker, orch_operation_fn fn, void *userdata,
				 orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = broker_check(broker, reterr);
	if (code < 0) {
		if (destroy)
			destroy(userdata);
		return code;
	}
	orch_destroy_fn old_destroy = broker->on_operation_destroy;
	void *old_userdata = broker->on_operation_userdata;
	broker->on_operation = fn;
	broker->on_operation_userdata = userdata;
	broker->on_operation_destroy = destroy;
	if (old_destroy)
		old_destroy(old_userdata);
	return 0;
}
