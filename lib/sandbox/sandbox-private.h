/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_PRIVATE_H
#define ORCH_SANDBOX_PRIVATE_H

#include <orch/sandbox.h>

#include "../core/core-private.h"
#include "../reaper/reaper-private.h"

/* A rule. */
struct sandbox_path {
	char *host; /* "" of a denial */
	char *inner;
	uint32_t access;
	uint32_t kind; /* ORCH_SPEC_* */
	char *source;  /* NAME:LINE of the policy that it was read from, or NULL */
};

struct sandbox_variable {
	char *name;
	char *text; /* "NAME=value" */
};

/* protection.c has their names and default levels. */
enum sandbox_protection {
	PROTECT_NAMESPACES,
	PROTECT_LANDLOCK,
	PROTECT_SECCOMP,
	PROTECT_MEMORY,
	PROTECT_CPU,
	SANDBOX_PROTECTIONS
};

enum sandbox_state { SANDBOX_NEW, SANDBOX_STARTING, SANDBOX_STARTED, SANDBOX_FAILED };

/* Outlives the sandbox where the scope does: NULL then. */
struct sandbox_link {
	orch_sandbox *sandbox;
	atomic_uint references;
};

/* lib/executor reads ctx, state, paths and cwd. */
/* What uses a sandbox without keeping it: `gone` is called in the thread of the loop before its load is killed. */
struct sandbox_dependent {
	struct sandbox_dependent *next;
	void (*gone)(void *userdata);
	void *userdata;
};

struct orch_sandbox {
	atomic_uint references;
	orch_ctx *ctx;
	struct orch_sandbox_opts opts; /* defaults filled in; label owned */
	enum sandbox_state state;
	struct sandbox_path *paths;
	size_t path_count;
	uint32_t *path_slots; /* rules.c: the paths by their inner path */
	size_t path_slot_count;
	const char *cwd; /* inner path of the workspace, or "/" */
	bool has_overlay; /* the workspace is one */
	struct sandbox_variable *variables;
	size_t variable_count;
	uint32_t levels[SANDBOX_PROTECTIONS]; /* ORCH_PROTECT_* */
	const char *memory_mechanism;	    /* what limits memory; NULL: nothing */
	uint32_t host_uid;
	orch_scope *scope;
	struct sandbox_dependent *dependents;
	struct sandbox_link *link;
	orch_sandbox_pool *pool; /* it waits there to be taken; NULL: it does not */
	orch_error *start_error;
	orch_sandbox_start_fn start_fn;
	void *start_userdata;
	orch_destroy_fn start_destroy;
	/* For tests, with a test build of orch-reaper: what it leaves out (ORCH_SPEC_WITHOUT_*), and the highest Landlock ABI
	 * that it takes (0: the kernel's). */
	uint64_t without;
	uint32_t landlock_abi;
};

/* A reference for a callback that may come after the sandbox's end. */
struct sandbox_link *orch_sandbox_link_ref(struct sandbox_link *link);
void orch_sandbox_link_release(void *link);

/* Another one of the same options and policy, not started. Only of one that was not started either. */
int32_t orch_sandbox_copy(const orch_sandbox *sandbox, orch_sandbox **ret_copy, orch_error **reterr);

void orch_sandbox_add_dependent(orch_sandbox *sandbox, struct sandbox_dependent *dependent);
void orch_sandbox_remove_dependent(orch_sandbox *sandbox, struct sandbox_dependent *dependent);

/*
 * spec.c of the system: the sealed file for orch-reaper. ORCH_EUNENFORCEABLE names what the policy asks for and the
 * system does not have.
 */
int32_t orch_sandbox_spec(const orch_sandbox *sandbox, int *ret_fd, orch_error **reterr);

/* sandbox.c: the rung that is asked for at least. */
uint32_t orch_sandbox_least_rung(const orch_sandbox *sandbox);
/* It stands, and without namespaces. */
bool orch_sandbox_is_bare(const orch_sandbox *sandbox);

/*
 * uid.c: a uid for the load: as root one that no other sandbox of this process has, else the
 * caller's own. An unneeded one is given back.
 */
struct uid_range {
	uint32_t first, count;
};
int32_t orch_sandbox_uid_take(uint32_t *ret_uid, orch_error **reterr);
void orch_sandbox_uid_release(uint32_t uid);
/*
 * uid-range.c of the system, for root: the uids that loads may get. Count 0: there is only 0, and it is an ordinary
 * user's outside.
 */
int32_t orch_sandbox_uid_range(struct uid_range *ret_range, orch_error **reterr);

/*
 * memory.c of the system: caps the memory of the scope, which stands; no program runs yet. Fills in memory_mechanism.
 * ORCH_EUNENFORCEABLE if that is required and can not be.
 */
int32_t orch_sandbox_limit_memory(orch_sandbox *sandbox, orch_error **reterr);

/* protection.c */
void orch_sandbox_protections_init(orch_sandbox *sandbox);

/* rules.c */
bool orch_rule_denies(const struct sandbox_path *rule);
/* Takes the strings of `rule`, unless it fails. A second denial of a path is none. ORCH_EEXIST, ORCH_ETOOBIG, ORCH_ENOMEM. */
int32_t orch_rules_add(orch_sandbox *sandbox, struct sandbox_path *rule, orch_error **reterr);
void orch_rules_free(orch_sandbox *sandbox);
/* The rule for exactly these bytes: the denial, if there is one. */
const struct sandbox_path *orch_rule_at(const orch_sandbox *sandbox, const char *inner, size_t length);
/* The rule that decides about a path: the deepest. NULL: none does. */
const struct sandbox_path *orch_rule_over(const orch_sandbox *sandbox, const char *inner);
/* The same among what the root has by itself. */
struct preset_path;
const struct preset_path *orch_rule_preset(const orch_sandbox *sandbox, const char *inner);
/* With what it implies. */
uint32_t orch_rule_access(const struct sandbox_path *rule);
bool orch_path_is_below(const char *path, const char *folder);

/*
 * Those that change something, each folder's before those of what lies in it; one for a path. ORCH_EUNENFORCEABLE: a rule
 * that no mechanism here can enforce below another one.
 */
struct sandbox_rules {
	const struct sandbox_path **rules;
	size_t count;
};
int32_t orch_rules_resolve(const orch_sandbox *sandbox, struct sandbox_rules *ret_rules, orch_error **reterr);
/* changes.c of the system: whether a workspace can be an overlay. 0, or ORCH_ENOTSUP. */
int32_t orch_sandbox_check_overlay(orch_error **reterr);

/*
 * placeholder.c of the system: on the host, for denied paths that are missing. Removed when the load is dead; orch_destroy_fn,
 * takes NULL. ORCH_EUNENFORCEABLE names the path for which none can be made.
 */
struct sandbox_placeholders;
int32_t orch_placeholders_make(const orch_sandbox *sandbox, struct sandbox_placeholders **ret_placeholders,
			       orch_error **reterr);
void orch_placeholders_remove(void *placeholders);

/* policy.c */
/* Without doubled and trailing slashes. ORCH_EINVAL where it is relative or a part is "." or ".."; `what` begins the message. */
int32_t orch_clean_path(const char *path, const char *what, char **ret_path, orch_error **reterr);
void orch_sandbox_policy_free(orch_sandbox *sandbox);
int32_t orch_sandbox_policy_init(orch_sandbox *sandbox, orch_error **reterr);
/* What the builder calls made of `from`, for `to`, which is new. */
int32_t orch_sandbox_copy_policy(orch_sandbox *to, const orch_sandbox *from, orch_error **reterr);
/* Without namespaces there is no private /tmp: HOME and TMPDIR, where they are the defaults, become the workspace. */
int32_t orch_sandbox_move_home(orch_sandbox *sandbox, orch_error **reterr);
/* ORCH_EEXIST: the root has something of its own at that inner path. */
int32_t orch_sandbox_check_free(const orch_sandbox *sandbox, const char *inner, orch_error **reterr);
int32_t orch_sandbox_check_builder(orch_sandbox *sandbox, orch_error **reterr);
/* "NAME=value" strings of the sandbox with `envp` (may be NULL) over them; NULL-terminated. Caller
 * frees the array only. */
const char **orch_sandbox_environment(const orch_sandbox *sandbox, const char *const *envp);

#endif
