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

/* Without doubled and trailing slashes; NULL in *ret_path where a part is "." or "..". */
static int32_t clean_path(const char *path, const char *what, char **ret_path, orch_error **reterr)
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
	size_t n = strlen(folder);

	return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static bool is_listed(const char *path, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(path, *list) == 0)
			return true;
	return false;
}

static int32_t check_inner(const orch_sandbox *sandbox, const char *inner, orch_error **reterr)
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
	bool taken = is_listed(inner, always) ||
		     (sandbox->opts.root == ORCH_ROOT_TOOLS && is_listed(inner, tools));

	if (strcmp(inner, "/") == 0 || is_at_or_below(inner, "/proc") ||
	    is_at_or_below(inner, "/dev"))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "inner path %s: /, /proc and /dev are the sandbox's own", inner);
	for (size_t i = 0; !taken && i < sandbox->path_count; i++)
		taken = strcmp(sandbox->paths[i].inner, inner) == 0;
	if (taken)
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

int32_t orch_sandbox_add_path(orch_sandbox *sandbox, const char *host_path, const char *inner_path,
			      uint32_t access, orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code < 0)
		return code;
	if (access == 0 ||
	    access & ~(ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC | ORCH_PATH_OWN))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "access 0x%x is not one or more of ORCH_PATH_*", access);
	if (sandbox->path_count >= ORCH_SPEC_MAX_RULES)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL,
				 "more than %u paths: add a folder instead of its files",
				 ORCH_SPEC_MAX_RULES);
	_cleanup_free_ char *host = NULL, *inner = NULL;

	code = clean_path(host_path, "host path", &host, reterr);
	if (code == 0)
		code = clean_path(inner_path ? inner_path : host_path, "inner path", &inner,
				  reterr);
	if (code == 0)
		code = check_inner(sandbox, inner, reterr);
	if (code == 0 && access & ORCH_PATH_OWN)
		code = check_own(host, reterr);
	if (code < 0)
		return code;
	struct sandbox_path *paths =
		realloc(sandbox->paths, (sandbox->path_count + 1) * sizeof(*paths));

	if (!paths)
		return orch_fail_memory(reterr);
	sandbox->paths = paths;
	paths[sandbox->path_count++] = (struct sandbox_path){
		.host = ORCH_STEAL(host), .inner = ORCH_STEAL(inner), .access = access};
	return 0;
}

int32_t orch_sandbox_set_workspace(orch_sandbox *sandbox, const char *host_path,
				   const char *inner_path, orch_error **reterr)
{
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code < 0)
		return code;
	if (sandbox->cwd[1] != '\0')
		return orch_fail(reterr, ORCH_EEXIST, 0, NULL,
				 "the sandbox has a workspace already, at %s", sandbox->cwd);
	code = orch_sandbox_add_path(sandbox, host_path, inner_path ? inner_path : "/work",
				     ORCH_PATH_OWN, reterr);
	if (code == 0)
		sandbox->cwd = sandbox->paths[sandbox->path_count - 1].inner;
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

int32_t orch_sandbox_policy_init(orch_sandbox *sandbox, orch_error **reterr)
{
	static const char *const variables[][2] = {
		{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{"HOME", "/tmp/home"},
		{"LANG", "C.UTF-8"},
		{"TMPDIR", "/tmp"},
	};
	int32_t code = 0;

	sandbox->cwd = "/";
	orch_sandbox_protections_init(sandbox);
	for (size_t i = 0; code == 0 && i < sizeof(variables) / sizeof(variables[0]); i++)
		code = set_variable(sandbox, variables[i][0], variables[i][1], reterr);
	return code;
}

/* --- copies --------------------------------------------------------------------------------- */

static bool copy_path(orch_sandbox *to, const struct sandbox_path *path)
{
	struct sandbox_path *copy = &to->paths[to->path_count++];

	copy->access = path->access;
	copy->host = strdup(path->host);
	copy->inner = strdup(path->inner);
	return copy->host && copy->inner;
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
	orch_sandbox_policy_free(to);
	to->paths = calloc(from->path_count + 1, sizeof(*to->paths));
	to->variables = calloc(from->variable_count + 1, sizeof(*to->variables));
	bool whole = to->paths && to->variables;

	for (size_t i = 0; whole && i < from->path_count; i++) {
		whole = copy_path(to, &from->paths[i]);
		if (whole && from->cwd == from->paths[i].inner)
			to->cwd = to->paths[i].inner;
	}
	for (size_t i = 0; whole && i < from->variable_count; i++)
		whole = copy_variable(to, &from->variables[i]);
	memcpy(to->levels, from->levels, sizeof(to->levels));
	to->without = from->without;
	to->landlock_abi = from->landlock_abi;
	return whole ? 0 : orch_fail_memory(reterr);
}

void orch_sandbox_policy_free(orch_sandbox *sandbox)
{
	for (size_t i = 0; i < sandbox->path_count; i++) {
		free(sandbox->paths[i].host);
		free(sandbox->paths[i].inner);
	}
	free(sandbox->paths);
	for (size_t i = 0; i < sandbox->variable_count; i++) {
		free(sandbox->variables[i].name);
		free(sandbox->variables[i].text);
	}
	free(sandbox->variables);
	sandbox->paths = NULL;
	sandbox->variables = NULL;
	sandbox->path_count = sandbox->variable_count = 0;
}
