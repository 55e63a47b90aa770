/* SPDX-License-Identifier: Apache-2.0 */
/* The builder: paths, environment. */
#include <stdio.h>

#include "sandbox-private.h"
#include "spec.h"

int32_t orch_sandbox_check_builder(orch_sandbox *sandbox, orch_error **reterr)
{
	if (!sandbox)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the sandbox is NULL");
	int32_t code = orch_ctx_check(sandbox->ctx, reterr);

	if (code < 0)
		return code;
	if (sandbox->state != SANDBOX_NEW)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the sandbox was started: its policy can not be changed any more");
	return 0;
}

/* --- paths ---------------------------------------------------------------------------------- */

int32_t orch_clean_path(const char *path, const char *what, char **ret_path, orch_error **reterr)
{
	if (!path || path[0] != '/')
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s \"%s\" is not absolute", what,
				 path ? path : "");
	_cleanup_free_ char *clean = malloc(strlen(path) + 2);
	size_t length = 0;

	if (!clean)
		return orch_fail_memory(reterr);
	for (const char *part = path + strspn(path, "/"); *part; part += strspn(part, "/")) {
		size_t n = strcspn(part, "/");

		if (strncmp(part, "..", n) == 0 && n <= 2)
			return orch_fail(
				reterr, ORCH_EINVAL, 0, NULL,
				"%s \"%s\" has a \".\" or \"..\" in it: give the plain path", what,
				path);
		clean[length++] = '/';
		memcpy(clean + length, part, n);
		length += n;
		part += n;
	}
	if (length == 0)
		clean[length++] = '/';
	clean[length] = '\0';
	*ret_path = ORCH_STEAL(clean);
	return 0;
}

static bool is_at_or_below(const char *path, const char *folder)
{
	return strcmp(path, folder) == 0 || orch_path_is_below(path, folder);
}

static bool is_listed(const char *path, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(path, *list) == 0)
			return true;
	return false;
}

static int32_t check_inner(const char *inner, orch_error **reterr)
{
	if (strcmp(inner, "/") == 0 || is_at_or_below(inner, "/proc") || is_at_or_below(inner, "/dev"))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "inner path %s: /, /proc and /dev are the sandbox's own", inner);
	return 0;
}

int32_t orch_sandbox_check_free(const orch_sandbox *sandbox, const char *inner, orch_error **reterr)
{
	static const char *const always[] = {"/tmp", NULL};
	static const char *const tools[] = {"/usr",
					    "/bin",
					    "/sbin",
					    "/lib",
					    "/lib32",
					    "/lib64",
					    "/libx32",
					    "/etc",
					    "/etc/passwd",
					    "/etc/group",
					    "/etc/hosts",
					    "/etc/hostname",
					    "/etc/nsswitch.conf",
					    NULL};
	if (is_listed(inner, always) || (sandbox->opts.root == ORCH_ROOT_TOOLS && is_listed(inner, tools)))
		return orch_fail(reterr, ORCH_EEXIST, 0, NULL, "inner path %s is taken already",
				 inner);
	return 0;
}

/* A slip here would hand the whole system to an unprivileged uid. */
static int32_t check_own(const char *host, orch_error **reterr)
{
	static const char *const system[] = {
		"/",	  "/bin", "/boot", "/dev",  "/etc",	"/home",      "/lib",  "/lib64",
		"/media", "/mnt", "/opt",  "/proc", "/root",	"/run",	      "/sbin", "/srv",
		"/sys",	  "/tmp", "/usr",  "/var",  "/var/tmp", "/usr/local", NULL};

	if (is_listed(host, system))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "%s is a folder of the system and is not handed to a sandbox: "
				 "make a folder of its own",
				 host);
	return 0;
}

static int32_t add_rule(orch_sandbox *sandbox, uint32_t kind, const char *host_path,
			const char *inner_path, uint32_t access, orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code < 0)
		return code;
	if (access == 0 ||
	    access & ~(ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC | ORCH_PATH_OWN))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "access 0x%x is not one or more of ORCH_PATH_*", access);
	_cleanup_free_ char *host = NULL, *inner = NULL;

	code = orch_clean_path(host_path, "host path", &host, reterr);
	if (code == 0)
		code = orch_clean_path(inner_path ? inner_path : host_path, "inner path", &inner,
				  reterr);
	if (code == 0)
		code = check_inner(inner, reterr);
	if (code == 0)
		code = orch_sandbox_check_free(sandbox, inner, reterr);
	if (code == 0 && access & ORCH_PATH_OWN)
		code = check_own(host, reterr);
	if (code < 0)
		return code;
	struct sandbox_path rule = {.host = host, .inner = inner, .access = access, .kind = kind};

	code = orch_rules_add(sandbox, &rule, reterr);
	if (code == 0)
		host = inner = NULL;
	return code;
}

int32_t orch_sandbox_deny_path(orch_sandbox *sandbox, const char *inner_path, orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);
	_cleanup_free_ char *host = NULL, *inner = NULL;

	if (code == 0)
		code = orch_clean_path(inner_path, "inner path", &inner, reterr);
	if (code == 0)
		code = check_inner(inner, reterr);
	if (code < 0)
		return code;
	bool folder = inner_path[strlen(inner_path) - 1] == '/';
	struct sandbox_path rule = {.host = host = strdup(""),
				    .inner = inner,
				    .kind = folder ? ORCH_SPEC_DENY_FOLDER : ORCH_SPEC_DENY};

	code = host ? orch_rules_add(sandbox, &rule, reterr) : orch_fail_memory(reterr);
	if (code == 0)
		host = inner = NULL;
	return code;
}

int32_t orch_sandbox_add_path(orch_sandbox *sandbox, const char *host_path, const char *inner_path,
			      uint32_t access, orch_error **reterr)
{
	return add_rule(sandbox, ORCH_SPEC_BIND, host_path, inner_path, access, reterr);
}

static int32_t set_workspace(orch_sandbox *sandbox, uint32_t kind, const char *host_path,
			     const char *inner_path, uint32_t access, orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code < 0)
		return code;
	if (sandbox->cwd[1] != '\0')
		return orch_fail(reterr, ORCH_EEXIST, 0, NULL,
				 "the sandbox has a workspace already, at %s", sandbox->cwd);
	code = add_rule(sandbox, kind, host_path, inner_path ? inner_path : "/work", access,
			reterr);
	if (code == 0)
		sandbox->cwd = sandbox->paths[sandbox->path_count - 1].inner;
	return code;
}

int32_t orch_sandbox_set_workspace(orch_sandbox *sandbox, const char *host_path,
				   const char *inner_path, orch_error **reterr)
{
	return set_workspace(sandbox, ORCH_SPEC_BIND, host_path, inner_path, ORCH_PATH_OWN, reterr);
}

int32_t orch_sandbox_set_overlay(orch_sandbox *sandbox, const char *host_path,
				 const char *inner_path, orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code == 0)
		code = orch_sandbox_check_overlay(reterr);
	if (code == 0)
		code = set_workspace(sandbox, ORCH_SPEC_OVERLAY, host_path, inner_path,
				     ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC, reterr);
	if (code == 0)
		sandbox->has_overlay = true;
	return code;
}

/* --- environment ---------------------------------------------------------------------------- */

static void remove_variable(orch_sandbox *sandbox, const char *name)
{
	for (size_t i = 0; i < sandbox->variable_count; i++) {
		struct sandbox_variable *variable = &sandbox->variables[i];

		if (strcmp(variable->name, name) != 0)
			continue;
		free(variable->name);
		free(variable->text);
		*variable = sandbox->variables[--sandbox->variable_count];
		return;
	}
}

static int32_t set_variable(orch_sandbox *sandbox, const char *name, const char *value,
			    orch_error **reterr)
{
	_cleanup_free_ char *copy = strdup(name), *text = orch_strdup_printf("%s=%s", name, value);
	struct sandbox_variable *variables =
		realloc(sandbox->variables, (sandbox->variable_count + 1) * sizeof(*variables));

	if (variables)
		sandbox->variables = variables;
	if (!copy || !text || !variables)
		return orch_fail_memory(reterr);
	remove_variable(sandbox, name);
	if (sandbox->variable_count >= ORCH_SPEC_MAX_ENV)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL, "more than %u variables",
				 ORCH_SPEC_MAX_ENV);
	variables[sandbox->variable_count++] =
		(struct sandbox_variable){.name = ORCH_STEAL(copy), .text = ORCH_STEAL(text)};
	return 0;
}

int32_t orch_sandbox_set_env(orch_sandbox *sandbox, const char *name, const char *value,
			     orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code < 0)
		return code;
	if (!name || !*name || strchr(name, '='))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "variable name \"%s\" is empty or has a '='", name ? name : "");
	if (value)
		return set_variable(sandbox, name, value, reterr);
	remove_variable(sandbox, name);
	return 0;
}

static bool same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return strncmp(a, b, n) == 0 && b[n] == '=';
}

const char **orch_sandbox_environment(const orch_sandbox *sandbox, const char *const *envp)
{
	size_t more = 0, count = 0;

	while (envp && envp[more])
		more++;
	const char **result = calloc(sandbox->variable_count + more + 1, sizeof(*result));

	for (size_t i = 0; result && i < sandbox->variable_count; i++)
		result[count++] = sandbox->variables[i].text;
	for (size_t i = 0; result && i < more; i++) {
		size_t at = 0;

		while (at < count && !same_name(envp[i], result[at]))
			at++;
		result[at] = envp[i];
		count += at == count;
	}
	return result;
}

/* -------------------------------------------------------------------------------------------- */

static const char *const first_variables[][2] = {
	{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	{"LANG", "C.UTF-8"},
	{"HOME", "/tmp/home"},
	{"TMPDIR", "/tmp"},
};
/* From here on they are places of the private file system. */
#define FIRST_PLACE 2u

int32_t orch_sandbox_move_home(orch_sandbox *sandbox, orch_error **reterr)
{
	int32_t code = 0;

	for (size_t i = FIRST_PLACE; code == 0 && i < sizeof(first_variables) / sizeof(first_variables[0]); i++)
		for (size_t j = 0; code == 0 && j < sandbox->variable_count; j++) {
			const struct sandbox_variable *variable = &sandbox->variables[j];

			if (strcmp(variable->name, first_variables[i][0]) == 0 &&
			    strcmp(variable->text + strlen(variable->name) + 1, first_variables[i][1]) == 0) {
				code = set_variable(sandbox, first_variables[i][0], sandbox->cwd, reterr);
				break;
			}
		}
	return code;
}

int32_t orch_sandbox_policy_init(orch_sandbox *sandbox, orch_error **reterr)
{
	int32_t code = 0;

	sandbox->cwd = "/";
	orch_sandbox_protections_init(sandbox);
	for (size_t i = 0; code == 0 && i < sizeof(first_variables) / sizeof(first_variables[0]); i++)
		code = set_variable(sandbox, first_variables[i][0], first_variables[i][1], reterr);
	return code;
}

/* --- copies --------------------------------------------------------------------------------- */

static int32_t copy_path(orch_sandbox *to, const struct sandbox_path *path, orch_error **reterr)
{
	struct sandbox_path copy = {
		.host = strdup(path->host),
		.inner = strdup(path->inner),
		.access = path->access,
		.kind = path->kind,
		.source = path->source ? strdup(path->source) : NULL,
	};
	bool whole = copy.host && copy.inner && (copy.source || !path->source);
	int32_t code = whole ? orch_rules_add(to, &copy, reterr) : orch_fail_memory(reterr);

	if (code < 0) {
		free(copy.host);
		free(copy.inner);
		free(copy.source);
	}
	return code;
}

static bool copy_variable(orch_sandbox *to, const struct sandbox_variable *variable)
{
	struct sandbox_variable *copy = &to->variables[to->variable_count++];

	copy->name = strdup(variable->name);
	copy->text = strdup(variable->text);
	return copy->name && copy->text;
}

int32_t orch_sandbox_copy_policy(orch_sandbox *to, const orch_sandbox *from, orch_error **reterr)
{
	int32_t code = 0;

	orch_sandbox_policy_free(to);
	to->variables = calloc(from->variable_count + 1, sizeof(*to->variables));
	if (!to->variables)
		return orch_fail_memory(reterr);
	for (size_t i = 0; code == 0 && i < from->path_count; i++) {
		code = copy_path(to, &from->paths[i], reterr);
		if (code == 0 && from->cwd == from->paths[i].inner)
			to->cwd = to->paths[i].inner;
	}
	for (size_t i = 0; code == 0 && i < from->variable_count; i++)
		if (!copy_variable(to, &from->variables[i]))
			code = orch_fail_memory(reterr);
	memcpy(to->levels, from->levels, sizeof(to->levels));
	to->without = from->without;
	to->landlock_abi = from->landlock_abi;
	to->has_overlay = from->has_overlay;
	return code;
}

void orch_sandbox_policy_free(orch_sandbox *sandbox)
{
	orch_rules_free(sandbox);
	for (size_t i = 0; i < sandbox->variable_count; i++) {
		free(sandbox->variables[i].name);
		free(sandbox->variables[i].text);
	}
	free(sandbox->variables);
	sandbox->variables = NULL;
	sandbox->variable_count = 0;
}
