/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "scope-private.h"

/* Slack of orch_scope_stop_wait() beyond the deadline at which the certificate is due. */
#define WAIT_MORE_MS 1000

int32_t fail_copy(orch_error **reterr, const orch_error *error)
{
	if (reterr)
		*reterr = orch_error_copy(error);
	return orch_error_code(error);
}

int32_t scope_check(orch_scope *scope, orch_error **reterr)
{
	if (!scope)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the scope is NULL");
	return orch_ctx_check(scope->ctx, reterr);
}

int32_t scope_check_open(orch_scope *scope, orch_error **reterr)
{
	if (scope->start_error)
		return orch_fail(reterr, ORCH_ECLOSED, 0, NULL, "the scope %s did not start: %s",
				 scope->name, orch_error_message(scope->start_error));
	if (!scope->connected)
		return orch_fail(reterr, ORCH_EHELPER, 0, NULL,
				 "the scope %s is over: orch-reaper died", scope->name);
	if (scope->stopping || scope->phase == SCOPE_OVER)
		return orch_fail(reterr, ORCH_ECLOSED, 0, NULL,
				 "the scope %s is being stopped or is over", scope->name);
	return 0;
}

bool orch_scope_stands(const orch_scope *scope)
{
	return scope && scope->phase == SCOPE_STANDING && scope->connected && !scope->stopping &&
	       !watch_has_ended(scope->reaper->helper_watch) && !watch_has_ended(scope->init_fd);
}

int32_t scope_send(struct orch_scope *scope, struct wire_packet *packet, orch_error **reterr)
{
	packet->message.scope = scope->id;
	if (scope->phase == SCOPE_STANDING)
		return reaper_send(scope->reaper, packet, reterr);
	/* No program may run before the host holds init's pidfd. */
	if (wire_queue_add(&scope->pending, packet) < 0)
		return orch_fail_memory(reterr);
	return 0;
}

static bool at_once(void *userdata)
{
	(void)userdata;
	return true;
}

int32_t check_may_wait(orch_ctx *ctx, orch_error **reterr)
{
	return orch_ctx_wait(ctx, 0, at_once, NULL, reterr);
}

/* --- callbacks ------------------------------------------------------------------------- */

/* NULL without memory: `destroy` was called then. */
static struct callback *callback_new(void *userdata, orch_destroy_fn destroy)
{
	struct callback *callback = calloc(1, sizeof(*callback));
	if (callback) {
		callback->userdata = userdata;
		callback->destroy = destroy;
	} else if (destroy) {
		destroy(userdata);
	}
	return callback;
}

static void append(struct callback **list, struct callback *callback)
{
	while (*list)
		list = &(*list)->next;
	*list = callback;
}

/* The common head of registrations: checks the scope, destroys userdata on failure. */
static int32_t check_registration(orch_scope *scope, bool has_fn, void *userdata,
				  orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = scope_check(scope, reterr);
	if (code == 0 && !has_fn)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	if (code < 0 && destroy)
		destroy(userdata);
	return code;
}

int32_t orch_scope_on_start(orch_scope *scope, orch_scope_start_fn fn, void *userdata,
			    orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = check_registration(scope, fn != NULL, userdata, destroy, reterr);
	if (code < 0)
		return code;
	struct callback *callback = callback_new(userdata, destroy);
	if (!callback)
		return orch_fail_memory(reterr);
	callback->start = fn;
	append(&scope->starts, callback);
	return scope->stood || scope->start_error ? scope_tell_later(scope, reterr) : 0;
}

int32_t orch_scope_on_death(orch_scope *scope, orch_death_fn fn, void *userdata,
			    orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = check_registration(scope, fn != NULL, userdata, destroy, reterr);
	if (code < 0)
		return code;
	struct callback *callback = callback_new(userdata, destroy);
	if (!callback)
		return orch_fail_memory(reterr);
	callback->death = fn;
	struct callback *before = scope->on_death;
	scope->on_death = callback;
	if (before && before->destroy)
		before->destroy(before->userdata);
	free(before);
	return scope->phase == SCOPE_OVER && !scope->requested ? scope_tell_later(scope, reterr)
							       : 0;
}

int32_t orch_scope_connect(orch_scope *scope, uint16_t port, orch_scope_connect_fn fn,
			   void *userdata, orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = check_registration(scope, fn != NULL, userdata, destroy, reterr);
	if (code < 0)
		return code;
	if (port == 0)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "port 0 can not be connected to");
	else if (scope->phase != SCOPE_STANDING || scope->stopping)
		code = orch_fail(reterr, ORCH_ESTATE, 0, NULL, "the scope %s does not stand",
				 scope->name);
	if (code < 0) {
		if (destroy)
			destroy(userdata);
		return code;
	}
	struct callback *callback = callback_new(userdata, destroy);
	if (!callback)
		return orch_fail_memory(reterr);
	callback->connect = fn;
	callback->subject = ++scope->last_subject;
	struct wire_packet packet = wire_packet(WIRE_CONNECT, scope->id, callback->subject);
	packet.message.value = port;
	append(&scope->connects, callback);
	return scope_send(scope, &packet, reterr);
}

/* --- stopping -------------------------------------------------------------------------- */

void orch_stop_opts_init(struct orch_stop_opts *opts, uint32_t size)
{
	const struct orch_stop_opts defaults = {.deadline_ms = DEFAULT_DEADLINE_MS};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static int32_t read_stop_opts(const struct orch_stop_opts *opts, struct orch_stop_opts *known,
			      orch_error **reterr)
{
	int32_t code = orch_opts_read(opts, known, sizeof(*known), "orch_stop_opts", reterr);
	if (code < 0)
		return code;
	if (known->flags)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_stop_opts.flags: no flag is defined");
	if (!known->deadline_ms)
		known->deadline_ms = DEFAULT_DEADLINE_MS;
	if (known->grace_ms >= known->deadline_ms)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_stop_opts: grace_ms %u must be shorter than deadline_ms %u",
				 known->grace_ms, known->deadline_ms);
	return 0;
}

int32_t orch_scope_stop(orch_scope *scope, const struct orch_stop_opts *opts, orch_death_fn fn,
			void *userdata, orch_destroy_fn destroy, orch_error **reterr)
{
	struct orch_stop_opts known;
	int32_t code = check_registration(scope, true, userdata, destroy, reterr);
	if (code < 0)
		return code;
	code = read_stop_opts(opts, &known, reterr);
	if (code < 0) {
		if (destroy)
			destroy(userdata);
		return code;
	}
	struct callback *callback = callback_new(userdata, destroy);
	if (!callback)
		return orch_fail_memory(reterr);
	callback->death = fn;
	append(&scope->stops, callback);
	if (scope->phase == SCOPE_OVER)
		return scope_tell_later(scope, reterr);
	scope->requested = true;
	scope_begin_stop(scope, known.grace_ms, known.deadline_ms);
	return 0;
}

struct stop_result {
	orch_death *death;
};

static void on_stopped(void *userdata, orch_scope *scope, orch_death *death)
{
	struct stop_result *result = userdata;
	(void)scope;
	result->death = orch_death_ref(death);
}

static bool is_stopped(void *userdata)
{
	return ((struct stop_result *)userdata)->death != NULL;
}

int32_t orch_scope_stop_wait(orch_scope *scope, const struct orch_stop_opts *opts,
			     orch_death **ret_death, orch_error **reterr)
{
	struct orch_stop_opts known;
	int32_t code = scope_check(scope, reterr);
	if (code == 0)
		code = read_stop_opts(opts, &known, reterr);
	if (code == 0)
		code = check_may_wait(scope->ctx, reterr);
	if (code < 0)
		return code;
	/* On the heap: if the wait ends early the callback may still come. */
	struct stop_result *result = calloc(1, sizeof(*result));
	if (!result)
		return orch_fail_memory(reterr);
	orch_scope_ref(scope);
	orch_ctx *ctx = orch_ctx_ref(scope->ctx);
	code = orch_scope_stop(scope, &known, on_stopped, result, NULL, reterr);
	if (code == 0)
		code = orch_ctx_wait(ctx, (int64_t)known.deadline_ms + WAIT_MORE_MS, is_stopped,
				     result, reterr);
	if (code == 0) {
		if (ret_death)
			*ret_death = orch_death_ref(result->death);
		orch_death_unref(result->death);
		free(result);
	} else {
		/* Only without memory for a certificate: nobody writes to it any more once it is
		 * forgotten. */
		for (struct callback *callback = scope->stops; callback; callback = callback->next)
			if (callback->userdata == result) {
				callback->death = NULL;
				callback->destroy = free;
			}
	}
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	return code;
}

/* --- looking --------------------------------------------------------------------------- */

static bool is_started(void *userdata)
{
	const struct orch_scope *scope = userdata;
	return scope->stood || scope->start_error || scope->phase == SCOPE_OVER;
}

int32_t orch_scope_start_wait(orch_scope *scope, int64_t timeout_ms, orch_error **reterr)
{
	int32_t code = scope_check(scope, reterr);
	if (code < 0)
		return code;
	orch_scope_ref(scope);
	orch_ctx *ctx = orch_ctx_ref(scope->ctx);
	code = orch_ctx_wait(ctx, timeout_ms, is_started, scope, reterr);
	if (code == 0 && !scope->stood)
		code = fail_copy(reterr, scope->start_error);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	return code;
}

const char *orch_scope_name(const orch_scope *scope)
{
	return scope ? scope->name : "";
}

uint32_t orch_scope_rung(const orch_scope *scope)
{
	return scope ? scope->rung : 0;
}

int32_t orch_scope_init_pid(const orch_scope *scope)
{
	return scope ? scope->init_pid : 0;
}

uint64_t orch_scope_pidns_inode(const orch_scope *scope)
{
	return scope ? scope->pidns_inode : 0;
}

int32_t orch_scope_limit(const orch_scope *scope, uint32_t limit, uint32_t *ret_state, const char **ret_mechanism)
{
	for (size_t i = 0; scope && i < SCOPE_LIMITS; i++) {
		const struct scope_limit *known = &scope->limits[i];
		if (limit != 1u << i)
			continue;
		if (!known->state)
			return ORCH_ESTATE;
		if (ret_state)
			*ret_state = known->state;
		if (ret_mechanism)
			*ret_mechanism = known->mechanism ? known->mechanism : "";
		return 0;
	}
	return ORCH_EINVAL;
}

const char *orch_scope_cgroup(const orch_scope *scope)
{
	return scope && scope->cgroup ? scope->cgroup : "";
}

int orch_scope_listener_fd(const orch_scope *scope)
{
	return scope ? scope->listener_fd : -1;
}

int orch_scope_private_fd(const orch_scope *scope)
{
	return scope ? scope->private_fd : -1;
}

int orch_scope_lower_fd(const orch_scope *scope)
{
	return scope ? scope->lower_fd : -1;
}

void orch_scope_close_private(orch_scope *scope)
{
	if (!scope)
		return;
	orch_close_fd(&scope->private_fd);
	orch_close_fd(&scope->lower_fd);
}
