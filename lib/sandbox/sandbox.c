/* SPDX-License-Identifier: Apache-2.0 */
/* The handle: life, start, and what is done inside a standing sandbox. */

#include "sandbox-private.h"

#define MAX_MIB (UINT64_C(1) << 24) /* 16 TiB */
/* As of a scope. */
#define LEAST_MEMORY_MIB 4u

/* --- life ----------------------------------------------------------------------------------- */

void orch_sandbox_opts_init(struct orch_sandbox_opts *opts, uint32_t size)
{
	const struct orch_sandbox_opts defaults = {
		.root = ORCH_ROOT_TOOLS,
		.net = ORCH_NET_NONE,
		.setup_timeout_ms = 10000,
		.max_processes = 512,
		.max_open_files = 1024,
		.max_file_mib = 2048,
		.tmp_mib = 256,
	};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

#define DEFAULT(member) known->member = known->member ? known->member : defaults.member

static int32_t read_opts(const struct orch_sandbox_opts *opts, struct orch_sandbox_opts *known,
			 orch_error **reterr)
{
	struct orch_sandbox_opts defaults;
	int32_t code = orch_opts_read(opts, known, sizeof(*known), "orch_sandbox_opts", reterr);

	if (code < 0)
		return code;
	orch_sandbox_opts_init(&defaults, sizeof(defaults));
	DEFAULT(root);
	DEFAULT(net);
	DEFAULT(setup_timeout_ms);
	DEFAULT(max_processes);
	DEFAULT(max_open_files);
	DEFAULT(max_file_mib);
	DEFAULT(tmp_mib);
	if (known->flags)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts.flags: none is defined");
	if (known->root > ORCH_ROOT_TOOLS)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts.root %u is unknown", known->root);
	if (known->net > ORCH_NET_BROKER)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts.net %u is unknown", known->net);
	if (known->max_processes < 2 || known->max_open_files < 8)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts: no program runs with max_processes %u, "
				 "max_open_files %u "
				 "(at least 2 and 8)",
				 known->max_processes, known->max_open_files);
	if (known->reserved || known->time_limit_ms < 0 || known->time_limit_ms > UINT32_MAX)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts: reserved has to be 0, and time_limit_ms between 0 and %u",
				 UINT32_MAX);
	if (known->max_file_mib > MAX_MIB || known->tmp_mib > MAX_MIB ||
	    known->max_memory_mib > MAX_MIB)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts: a size exceeds %llu MiB",
				 (unsigned long long)MAX_MIB);
	if (known->max_memory_mib > 0 && known->max_memory_mib < LEAST_MEMORY_MIB)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts.max_memory_mib %llu is below %u: no scope stands in so little",
				 (unsigned long long)known->max_memory_mib, LEAST_MEMORY_MIB);
	return 0;
}

struct sandbox_link *orch_sandbox_link_ref(struct sandbox_link *link)
{
	atomic_fetch_add(&link->references, 1);
	return link;
}

void orch_sandbox_link_release(void *userdata)
{
	struct sandbox_link *link = userdata;

	if (atomic_fetch_sub(&link->references, 1) == 1)
		free(link);
}

static void drop_start_callback(orch_sandbox *sandbox)
{
	orch_destroy_fn destroy = sandbox->start_destroy;

	sandbox->start_fn = NULL;
	sandbox->start_destroy = NULL;
	if (destroy)
		destroy(sandbox->start_userdata);
}

void orch_sandbox_add_dependent(orch_sandbox *sandbox, struct sandbox_dependent *dependent)
{
	dependent->next = sandbox->dependents;
	sandbox->dependents = dependent;
}

void orch_sandbox_remove_dependent(orch_sandbox *sandbox, struct sandbox_dependent *dependent)
{
	struct sandbox_dependent **link = &sandbox->dependents;
	while (*link && *link != dependent)
		link = &(*link)->next;
	if (*link)
		*link = dependent->next;
}

static void sandbox_destroy(void *object)
{
	orch_sandbox *sandbox = object;
	orch_ctx *ctx = sandbox->ctx;
	bool forked = orch_ctx_forked(ctx);

	while (sandbox->dependents) {
		struct sandbox_dependent *dependent = sandbox->dependents;
		sandbox->dependents = dependent->next;
		dependent->gone(dependent->userdata);
	}

	if (sandbox->link) {
		sandbox->link->sandbox = NULL;
		orch_sandbox_link_release(sandbox->link);
	}
	/* A scope that somebody else keeps does not keep what its load wrote. */
	orch_scope_close_private(sandbox->scope);
	orch_scope_unref(sandbox->scope);
	if (!forked) {
		drop_start_callback(sandbox);
		orch_sandbox_uid_release(sandbox->host_uid);
	}
	orch_error_free(sandbox->start_error);
	orch_sandbox_policy_free(sandbox);
	free((char *)sandbox->opts.label);
	free(sandbox);
	orch_ctx_unref(ctx);
}

int32_t orch_sandbox_new(orch_ctx *ctx, const struct orch_sandbox_opts *opts,
			 orch_sandbox **ret_sandbox, orch_error **reterr)
{
	struct orch_sandbox_opts known;
	int32_t code = orch_ctx_check(ctx, reterr);

	if (code == 0 && !ret_sandbox)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_sandbox is NULL");
	if (code == 0)
		code = read_opts(opts, &known, reterr);
	if (code < 0)
		return code;
	orch_sandbox *sandbox = calloc(1, sizeof(*sandbox));

	if (!sandbox)
		return orch_fail_memory(reterr);
	atomic_init(&sandbox->references, 1);
	sandbox->ctx = orch_ctx_ref(ctx);
	sandbox->opts = known;
	if (known.label && !(sandbox->opts.label = strdup(known.label)))
		code = orch_fail_memory(reterr);
	if (code == 0)
		code = orch_sandbox_policy_init(sandbox, reterr);
	if (code == 0)
		code = orch_sandbox_uid_take(&sandbox->host_uid, reterr);
	if (code < 0) {
		sandbox_destroy(sandbox);
		return code;
	}
	*ret_sandbox = sandbox;
	return 0;
}

int32_t orch_sandbox_copy(const orch_sandbox *sandbox, orch_sandbox **ret_copy, orch_error **reterr)
{
	orch_sandbox *copy = NULL;
	int32_t code = orch_sandbox_new(sandbox->ctx, &sandbox->opts, &copy, reterr);

	if (code == 0)
		code = orch_sandbox_copy_policy(copy, sandbox, reterr);
	if (code < 0)
		orch_sandbox_unref(copy);
	else
		*ret_copy = copy;
	return code;
}

orch_sandbox *orch_sandbox_ref(orch_sandbox *sandbox)
{
	if (sandbox)
		atomic_fetch_add(&sandbox->references, 1);
	return sandbox;
}

orch_sandbox *orch_sandbox_unref(orch_sandbox *sandbox)
{
	if (sandbox && atomic_fetch_sub(&sandbox->references, 1) == 1)
		orch_ctx_destroy_later(sandbox->ctx, sandbox_destroy, sandbox);
	return NULL;
}

/* --- start ---------------------------------------------------------------------------------- */

static void started(orch_sandbox *sandbox, const orch_error *error)
{
	orch_error *own = NULL;

	if (!error && ((orch_sandbox_is_bare(sandbox) && orch_sandbox_move_home(sandbox, &own) < 0) ||
		       orch_sandbox_limit_memory(sandbox, &own) < 0)) {
		error = own;
		orch_scope_stop(sandbox->scope, NULL, NULL, NULL, NULL, NULL);
	}
	if (error)
		sandbox->start_error = own ? own : orch_error_copy(error);
	sandbox->state = error ? SANDBOX_FAILED : SANDBOX_STARTED;
	orch_sandbox_ref(sandbox);
	orch_sandbox_start_fn fn = sandbox->start_fn;

	sandbox->start_fn = NULL;
	if (fn)
		fn(sandbox->start_userdata, sandbox, sandbox->start_error);
	drop_start_callback(sandbox);
	orch_sandbox_unref(sandbox);
}

static void on_scope_start(void *userdata, orch_scope *scope, const orch_error *error)
{
	struct sandbox_link *link = userdata;

	(void)scope;
	if (link->sandbox)
		started(link->sandbox, error);
}

/* The best one that has no PID namespace. */
#define BARE_RUNG ORCH_RUNG_CGROUP

uint32_t orch_sandbox_least_rung(const orch_sandbox *sandbox)
{
	if (sandbox->opts.least_rung)
		return sandbox->opts.least_rung;
	return sandbox->levels[PROTECT_NAMESPACES] == ORCH_PROTECT_REQUIRED ? ORCH_RUNG_PIDNS : ORCH_RUNG_SUBREAPER;
}

bool orch_sandbox_is_bare(const orch_sandbox *sandbox)
{
	uint32_t rung = sandbox->scope ? orch_scope_rung(sandbox->scope) : 0;

	return rung && rung <= BARE_RUNG;
}

static int32_t check_rung(const orch_sandbox *sandbox, orch_error **reterr)
{
	if (sandbox->levels[PROTECT_NAMESPACES] == ORCH_PROTECT_OFF && orch_sandbox_least_rung(sandbox) > BARE_RUNG)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_sandbox_opts.least_rung %u has a PID namespace, and the protection namespaces is off",
				 sandbox->opts.least_rung);
	return 0;
}

static int32_t make_scope(orch_sandbox *sandbox, orch_error **reterr)
{
	struct orch_scope_opts opts;
	_cleanup_close_ int spec = -1;
	struct sandbox_placeholders *placeholders = NULL;
	int32_t code = check_rung(sandbox, reterr);

	if (code == 0)
		code = orch_sandbox_spec(sandbox, &spec, reterr);
	if (code < 0)
		return code;
	struct sandbox_link *link = calloc(1, sizeof(*link));

	if (!link)
		return orch_fail_memory(reterr);
	atomic_init(&link->references, 2); /* ours and the callback's */
	link->sandbox = sandbox;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.label = sandbox->opts.label;
	opts.least_rung = orch_sandbox_least_rung(sandbox);
	if (sandbox->levels[PROTECT_NAMESPACES] == ORCH_PROTECT_OFF)
		opts.best_rung = BARE_RUNG;
	opts.setup_timeout_ms = sandbox->opts.setup_timeout_ms;
	if (sandbox->levels[PROTECT_MEMORY] != ORCH_PROTECT_OFF)
		opts.memory_limit_bytes = sandbox->opts.max_memory_mib << 20;
	if (sandbox->levels[PROTECT_CPU] != ORCH_PROTECT_OFF)
		opts.cpu_limit_percent = sandbox->opts.max_cpu_percent;
	if (opts.cpu_limit_percent && sandbox->levels[PROTECT_CPU] == ORCH_PROTECT_REQUIRED)
		opts.required_limits |= ORCH_LIMIT_CPU;
	opts.time_limit_ms = (uint32_t)sandbox->opts.time_limit_ms;
	const struct orch_confinement confinement = {
		.spec_fd = spec,
		.host_uid = sandbox->host_uid,
		.wants_listener = sandbox->opts.net == ORCH_NET_BROKER,
		.without_namespaces = sandbox->levels[PROTECT_NAMESPACES] != ORCH_PROTECT_REQUIRED,
	};

	code = orch_placeholders_make(sandbox, &placeholders, reterr);
	if (code == 0)
		code = orch_scope_new_confined(sandbox->ctx, &opts, &confinement, &sandbox->scope, reterr);
	if (code < 0) {
		orch_placeholders_remove(placeholders);
		free(link);
		return code;
	}
	orch_scope_at_end(sandbox->scope, orch_placeholders_remove, placeholders);
	sandbox->link = link;
	code = orch_scope_on_start(sandbox->scope, on_scope_start, link, orch_sandbox_link_release,
				   reterr);
	if (code < 0)
		sandbox->scope = orch_scope_unref(sandbox->scope);
	return code;
}

static int32_t begin_start(orch_sandbox *sandbox, orch_sandbox_start_fn fn, void *userdata,
			   orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code == 0)
		code = make_scope(sandbox, reterr);
	if (code < 0) {
		if (destroy)
			destroy(userdata);
		return code;
	}
	sandbox->state = SANDBOX_STARTING;
	sandbox->start_fn = fn;
	sandbox->start_userdata = userdata;
	sandbox->start_destroy = destroy;
	return 0;
}

int32_t orch_sandbox_start(orch_sandbox *sandbox, orch_sandbox_start_fn fn, void *userdata,
			   orch_destroy_fn destroy, orch_error **reterr)
{
	return begin_start(sandbox, fn, userdata, destroy, reterr);
}

static bool start_is_done(void *userdata)
{
	const orch_sandbox *sandbox = userdata;

	return sandbox->state != SANDBOX_STARTING;
}

static bool at_once(void *userdata)
{
	(void)userdata;
	return true;
}

int32_t orch_sandbox_start_wait(orch_sandbox *sandbox, int64_t timeout_ms, orch_error **reterr)
{
	if (!sandbox)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the sandbox is NULL");
	/* Inside a callback nothing may be begun that could not be waited for. */
	int32_t code = orch_ctx_wait(sandbox->ctx, 0, at_once, NULL, reterr);

	if (code == 0 && sandbox->state == SANDBOX_NEW)
		code = begin_start(sandbox, NULL, NULL, NULL, reterr);
	if (code < 0)
		return code;
	orch_sandbox_ref(sandbox);
	code = orch_ctx_wait(sandbox->ctx, timeout_ms, start_is_done, sandbox, reterr);
	if (code == 0 && sandbox->state == SANDBOX_FAILED) {
		code = sandbox->start_error ? orch_error_code(sandbox->start_error) : ORCH_ENOMEM;
		if (reterr)
			*reterr = orch_error_copy(sandbox->start_error);
	}
	orch_sandbox_unref(sandbox);
	return code;
}

/* --- a standing sandbox --------------------------------------------------------------------- */

static int32_t check_started(orch_sandbox *sandbox, orch_error **reterr)
{
	if (!sandbox)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the sandbox is NULL");
	int32_t code = orch_ctx_check(sandbox->ctx, reterr);

	if (code == 0 && sandbox->state != SANDBOX_STARTED)
		code = orch_fail(reterr, ORCH_ESTATE, 0, NULL, "the sandbox is not started");
	return code;
}

orch_scope *orch_sandbox_scope(orch_sandbox *sandbox)
{
	return sandbox ? sandbox->scope : NULL;
}

uint32_t orch_sandbox_host_uid(const orch_sandbox *sandbox)
{
	return sandbox ? sandbox->host_uid : 0;
}

int32_t orch_sandbox_listener_fd(orch_sandbox *sandbox)
{
	int32_t code = check_started(sandbox, NULL);

	if (code < 0)
		return code;
	int fd = orch_scope_listener_fd(sandbox->scope);

	return fd < 0 ? ORCH_ESTATE : fd;
}

int32_t orch_sandbox_connect(orch_sandbox *sandbox, uint16_t port, orch_sandbox_connect_fn fn,
			     void *userdata, orch_destroy_fn destroy, orch_error **reterr)
{
	int32_t code = check_started(sandbox, reterr);

	if (code == 0 && (port == 0 || !fn))
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s",
				 fn ? "port is 0" : "fn is NULL");
	if (code == 0 && orch_sandbox_is_bare(sandbox))
		code = orch_fail(reterr, ORCH_ENOTSUP, 0, NULL,
				 "the sandbox has no network namespace (protection namespaces): nothing inside can listen");
	if (code == 0)
		return orch_scope_connect(sandbox->scope, port, fn, userdata, destroy, reterr);
	if (destroy)
		destroy(userdata);
	return code;
}

int32_t orch_sandbox_spawn(orch_sandbox *sandbox, const struct orch_proc_opts *opts,
			   orch_proc **ret_proc, orch_error **reterr)
{
	struct orch_proc_opts known;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_proc_opts", reterr);

	if (code < 0)
		return code;
	code = check_started(sandbox, reterr);
	_cleanup_free_ const char **environment =
		code == 0 ? orch_sandbox_environment(sandbox, known.envp) : NULL;

	if (code == 0 && !environment)
		code = orch_fail_memory(reterr);
	if (code < 0) {
		if (known.destroy)
			known.destroy(known.userdata);
		return code;
	}
	known.size = sizeof(known);
	known.envp = environment;
	if (!known.cwd)
		known.cwd = sandbox->cwd;
	return orch_scope_spawn(sandbox->scope, &known, ret_proc, reterr);
}
