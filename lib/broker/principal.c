/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/socket.h>

#include "broker-private.h"

#define NAME_LONGEST 128

void orch_principal_opts_init(struct orch_principal_opts *opts, uint32_t size)
{
	const struct orch_principal_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static bool name_valid(const char *name)
{
	size_t length = name ? strlen(name) : 0;
	for (size_t i = 0; i < length; i++)
		if (name[i] <= 0x20 || name[i] >= 0x7f || name[i] == '"' || name[i] == '\\')
			return false;
	return length >= 1 && length <= NAME_LONGEST;
}

int32_t orch_principal_new(orch_broker *broker, const struct orch_principal_opts *opts,
			   orch_principal **ret_principal, orch_error **reterr)
{
	struct orch_principal_opts known;
	int32_t code = broker_check(broker, reterr);
	if (code == 0)
		code = orch_opts_read(opts, &known, sizeof(known), "orch_principal_opts", reterr);
	if (code < 0)
		return code;
	if (!ret_principal || !name_valid(known.name))
		return orch_fail(
			reterr, ORCH_EINVAL, 0, NULL, "%s",
			ret_principal ? "orch_principal_opts.name must be 1 to 128 visible ASCII "
					"characters without quote and backslash"
				      : "ret_principal is NULL");
	orch_principal *principal = calloc(1, sizeof(*principal));
	char *name = strdup(known.name);
	if (!principal || !name) {
		free(principal);
		free(name);
		return orch_fail_memory(reterr);
	}
	atomic_init(&principal->references, 1);
	principal->broker = broker_hold(broker);
	principal->name = name;
	principal->generation = known.generation;
	principal->budget.caps =
		(struct amounts){{known.max_requests, known.max_tokens, known.max_micro_usd}};
	*ret_principal = principal;
	return 0;
}

orch_principal *orch_principal_ref(orch_principal *principal)
{
	if (principal)
		atomic_fetch_add(&principal->references, 1);
	return principal;
}

static void grant_free(struct grant *grant)
{
	free(grant->url);
	free(grant->probe_url);
	free(grant->key_prefix);
	free(grant);
}

static void principal_free(void *object)
{
	orch_principal *principal = object;
	while (principal->grants) {
		struct grant *next = principal->grants->next;
		grant_free(principal->grants);
		principal->grants = next;
	}
	if (principal->untie)
		principal->untie(principal);
	orch_broker *broker = principal->broker;
	free(principal->name);
	free(principal);
	broker_release(broker);
}

orch_principal *orch_principal_unref(orch_principal *principal)
{
	if (principal && atomic_fetch_sub(&principal->references, 1) == 1)
		orch_ctx_destroy_later(principal->broker->ctx, principal_free, principal);
	return NULL;
}

int32_t principal_check(const orch_principal *principal, orch_error **reterr)
{
	if (!principal)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the principal is NULL");
	int32_t code = broker_check(principal->broker, reterr);
	if (code == 0 && principal->revoked)
		return orch_fail(reterr, ORCH_ECLOSED, 0, NULL, "principal %s is revoked",
				 principal->name);
	return code;
}

/* --- grants ----------------------------------------------------------------------------------- */

void orch_grant_opts_init(struct orch_grant_opts *opts, uint32_t size)
{
	const struct orch_grant_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static int32_t grant_opts_check(const struct orch_grant_opts *opts, orch_error **reterr)
{
	enum operation operation =
		opts->operation ? operation_find(opts->operation, strlen(opts->operation))
				: OPERATION_NONE;
	if (operation == OPERATION_NONE)
		return orch_fail(reterr, ORCH_ENOENT, 0, NULL,
				 "there is no operation \"%s\" to grant",
				 opts->operation ? opts->operation : "");
	if (opts->flags & ~ORCH_GRANT_DENY)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_grant_opts.flags has unknown bits");
	if (opts->key_prefix && *opts->key_prefix &&
	    (!idempotency_key_valid(opts->key_prefix) || strlen(opts->key_prefix) > 55))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "key_prefix must be at most 55 visible ASCII characters");
	if (operation != OPERATION_NOTIFY || opts->flags & ORCH_GRANT_DENY)
		return 0;
	const char *problem = !opts->url ? "it is NULL" : url_problem(opts->url);
	if (problem)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the url of the notify.send grant is refused: %s", problem);
	problem = opts->probe_url ? url_problem(opts->probe_url) : NULL;
	if (problem)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the probe_url of the notify.send grant is refused: %s", problem);
	return 0;
}

static bool copy_text(char **ret_copy, const char *text)
{
	*ret_copy = text ? strdup(text) : NULL;
	return *ret_copy || !text;
}

int32_t orch_principal_grant(orch_principal *principal, const struct orch_grant_opts *opts,
			     orch_error **reterr)
{
	struct orch_grant_opts known;
	int32_t code = principal_check(principal, reterr);
	if (code == 0)
		code = orch_opts_read(opts, &known, sizeof(known), "orch_grant_opts", reterr);
	if (code == 0)
		code = grant_opts_check(&known, reterr);
	if (code < 0)
		return code;
	struct grant *grant = calloc(1, sizeof(*grant));
	if (!grant)
		return orch_fail_memory(reterr);
	if (!copy_text(&grant->url, known.url) || !copy_text(&grant->probe_url, known.probe_url) ||
	    !copy_text(&grant->key_prefix, known.key_prefix ? known.key_prefix : "")) {
		grant_free(grant);
		return orch_fail_memory(reterr);
	}
	grant->operation = operation_find(known.operation, strlen(known.operation));
	grant->deny = known.flags & ORCH_GRANT_DENY;
	grant->max_uses = known.max_uses;
	grant->expires_at_ms = known.expires_at_ms;
	struct grant **end = &principal->grants;
	while (*end)
		end = &(*end)->next;
	*end = grant;
	return 0;
}

static bool grant_expired(const struct grant *grant, int64_t now_ms)
{
	return grant->expires_at_ms && now_ms >= grant->expires_at_ms;
}

static struct grant *find_grant(const orch_principal *principal, enum operation operation,
				const char **ret_code)
{
	int64_t now_ms = orch_realtime_ms();
	struct grant *found = NULL;
	*ret_code = "no_grant";
	/* All of them: a deny wins wherever it stands. */
	for (struct grant *grant = principal->grants; grant; grant = grant->next) {
		if (grant->operation != operation)
			continue;
		if (grant->deny && !grant_expired(grant, now_ms)) {
			*ret_code = "denied";
			return NULL;
		}
		if (grant->deny || found)
			continue;
		if (grant_expired(grant, now_ms))
			*ret_code = "grant_expired";
		else if (grant->max_uses && grant->uses >= grant->max_uses)
			*ret_code = "grant_used_up";
		else
			found = grant;
	}
	return found;
}

struct grant *principal_used_up(orch_principal *principal, enum operation operation)
{
	int64_t now_ms = orch_realtime_ms();
	for (struct grant *grant = principal->grants; grant; grant = grant->next)
		if (grant->operation == operation && !grant->deny && !grant_expired(grant, now_ms))
			return grant;
	return NULL;
}

char *principal_may(const orch_principal *principal)
{
	struct orch_buf list = {0};
	const char *code;
	for (int i = 0; i < OPERATION_COUNT; i++)
		if (find_grant(principal, (enum operation)i, &code))
			orch_buf_printf(&list, "%s%s", list.length ? ", " : "",
					operation_name((enum operation)i));
	if (!list.length)
		orch_buf_puts(&list, "nothing");
	if (list.failed)
		orch_buf_free(&list);
	return list.data;
}

static const char *reason(const char *code)
{
	if (strcmp(code, "denied") == 0)
		return "an explicit deny stands, and it wins over every grant";
	if (strcmp(code, "grant_expired") == 0)
		return "its grant has expired";
	if (strcmp(code, "grant_used_up") == 0)
		return "its grant is used up";
	return "it has no grant for it";
}

struct grant *principal_allows(orch_principal *principal, enum operation operation,
			       const char **ret_code, char **ret_why)
{
	struct grant *grant =
		principal->revoked ? NULL : find_grant(principal, operation, ret_code);
	if (grant)
		return grant;
	if (principal->revoked)
		*ret_code = "no_grant";
	_cleanup_free_ char *may = principal_may(principal);
	*ret_why = orch_strdup_printf("principal %s may not use %s: %s. It may use: %s.",
				      principal->name, operation_name(operation), reason(*ret_code),
				      may ? may : "nothing");
	return NULL;
}

/* --- listeners, revocation -------------------------------------------------------------------- */

int32_t orch_broker_add_listener(orch_broker *broker, int32_t fd, orch_principal *principal,
				 orch_error **reterr)
{
	int32_t code = broker_check(broker, reterr);
	if (code == 0)
		code = principal_check(principal, reterr);
	if (code < 0)
		return code;
	if (principal->broker != broker)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "principal %s belongs to another broker", principal->name);
	int listening = 0, type = 0;
	socklen_t size = sizeof(int);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "file descriptor %d is not a listening stream socket", fd);
	return listener_new(broker, fd, principal, reterr);
}

/* Cuts what the principal has open; the counts are of what was in flight. */
static void cut(orch_principal *principal, uint32_t *ret_settled, uint32_t *ret_unknown)
{
	orch_broker *broker = principal->broker;
	ops_abort(broker, principal, "revoked", ret_settled, ret_unknown);
	struct listener *listener = broker->listeners;
	while (listener) {
		struct listener *next = listener->next;
		if (listener->principal == principal)
			listener_stop(listener);
		listener = next;
	}
}

int32_t orch_principal_revoke(orch_principal *principal, orch_revoke_fn fn, void *userdata,
			      orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = principal_check(principal, reterr);
	if (code < 0) {
		if (destroy)
			destroy(userdata);
		return code;
	}
	orch_principal_ref(principal);
	principal->revoked = true;
	cut(principal, &principal->settled, &principal->unknown);
	broker_tell_revoked(principal->broker, principal, fn, userdata, destroy, principal->settled,
			    principal->unknown);
	orch_principal_unref(principal);
	return 0;
}

int32_t orch_principal_spent(const orch_principal *principal, uint64_t *ret_requests,
			     uint64_t *ret_tokens, uint64_t *ret_micro_usd)
{
	if (!principal)
		return ORCH_EINVAL;
	if (orch_ctx_forked(principal->broker->ctx))
		return ORCH_EFORKED;
	const struct amounts *spent = &principal->budget.spent;
	if (ret_requests)
		*ret_requests = spent->of[BUDGET_REQUESTS];
	if (ret_tokens)
		*ret_tokens = spent->of[BUDGET_TOKENS];
	if (ret_micro_usd)
		*ret_micro_usd = spent->of[BUDGET_MONEY];
	return 0;
}

int32_t orch_principal_budget_hit(const orch_principal *principal)
{
	if (!principal)
		return ORCH_EINVAL;
	return principal->budget.hit;
}
