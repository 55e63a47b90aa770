/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the confinement (seatbelt.h), or refusing by name what macOS does not have. */
#include <errno.h>
#include <limits.h>

#include "../../core/os.h"
#include "../sandbox-private.h"
#include "profile.h"
#include "seatbelt.h"

/* --- refusing ------------------------------------------------------------------------------- */

static int32_t check_gaps(const orch_sandbox *sandbox, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf gaps = {0};
	struct profile_wishes wishes = {
		.least_rung = orch_sandbox_least_rung(sandbox),
		.net = sandbox->opts.net,
		.landlock = sandbox->levels[PROTECT_LANDLOCK],
		.seccomp = sandbox->levels[PROTECT_SECCOMP],
		.memory = sandbox->levels[PROTECT_MEMORY],
		.max_memory_mib = sandbox->opts.max_memory_mib,
	};

	for (size_t i = 0; i < sandbox->path_count; i++) {
		const struct sandbox_path *path = &sandbox->paths[i];

		if (!wishes.moved && !orch_rule_denies(path) && strcmp(path->host, path->inner) != 0)
			wishes.moved = path->inner;
		if (path->access & ORCH_PATH_OWN && sandbox->host_uid != geteuid())
			wishes.own_as_root = true;
	}
	orch_profile_gaps(&wishes, &gaps);
	if (gaps.failed)
		return orch_fail_memory(reterr);
	if (gaps.length > 0)
		return orch_fail(reterr, ORCH_EUNENFORCEABLE, 0, "policy", "macOS can not enforce: %s", gaps.data);
	return 0;
}

/* --- the profile ----------------------------------------------------------------------------- */

struct resolved {
	struct sandbox_rules rules;
	char **paths;
	struct profile_path *profile;
};

static void resolved_free(struct resolved *resolved)
{
	for (size_t i = 0; resolved->paths && i < resolved->rules.count; i++)
		free(resolved->paths[i]);
	free(resolved->paths);
	free(resolved->profile);
	free(resolved->rules.rules);
}

/* What is missing is denied by the name that it would have. */
static char *resolve_denied(const char *inner)
{
	_cleanup_free_ char *path = strdup(inner);

	for (char *slash = path ? path + strlen(path) : NULL; slash; slash = strrchr(path, '/')) {
		*slash = '\0';
		_cleanup_free_ char *known = realpath(*path ? path : "/", NULL);

		if (known)
			return orch_strdup_printf("%s%s", strcmp(known, "/") == 0 && inner[slash - path] ? "" : known,
						  inner + (slash - path));
	}
	return NULL;
}

/* Once and here: a load that may write above one of its paths could put a link in its place before its next program. */
static int32_t resolve(const orch_sandbox *sandbox, struct resolved *resolved, orch_error **reterr)
{
	int32_t code = orch_rules_resolve(sandbox, &resolved->rules, reterr);

	if (code < 0)
		return code;
	resolved->paths = calloc(resolved->rules.count + 1, sizeof(*resolved->paths));
	resolved->profile = calloc(resolved->rules.count + 1, sizeof(*resolved->profile));
	if (!resolved->paths || !resolved->profile)
		return orch_fail_memory(reterr);
	for (size_t i = 0; i < resolved->rules.count; i++) {
		const struct sandbox_path *rule = resolved->rules.rules[i];
		const char *host = orch_rule_denies(rule) ? rule->inner : rule->host;

		resolved->paths[i] = orch_rule_denies(rule) ? resolve_denied(host) : realpath(host, NULL);
		if (!resolved->paths[i])
			return orch_fail(reterr, errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno, "path",
					 "host path %s can not be resolved", host);
		resolved->profile[i] = (struct profile_path){.path = resolved->paths[i], .access = rule->access};
	}
	return 0;
}

static int32_t write_profile(const orch_sandbox *sandbox, struct orch_buf *profile, orch_error **reterr)
{
	struct resolved resolved = {{0}, NULL, NULL};
	size_t bad = 0;
	int32_t code = resolve(sandbox, &resolved, reterr);
	const struct profile_policy policy = {.root = sandbox->opts.root,
					      .paths = resolved.profile,
					      .path_count = resolved.rules.count};

	if (code == 0 && orch_profile_write(&policy, profile, &bad) < 0)
		code = orch_fail(reterr, ORCH_EINVAL, 0, "path",
				 "path %s has control characters or is not UTF-8: it can not be named in a "
				 "Seatbelt profile",
				 resolved.paths[bad]);
	if (code == 0 && profile->failed)
		code = orch_fail_memory(reterr);
	resolved_free(&resolved);
	return code;
}

/* --- the file -------------------------------------------------------------------------------- */

static uint32_t add_string(struct orch_buf *strings, const char *text)
{
	uint32_t offset = (uint32_t)strings->length;

	orch_buf_add(strings, text, strlen(text) + 1);
	return offset;
}

int32_t orch_sandbox_spec(const orch_sandbox *sandbox, int *ret_fd, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf profile = {0}, offsets = {0}, strings = {0}, file = {0};
	int32_t code = check_gaps(sandbox, reterr);

	if (code == 0)
		code = write_profile(sandbox, &profile, reterr);
	if (code < 0)
		return code;
	bool own_uid = sandbox->host_uid != geteuid();
	struct seatbelt_header header = {
		.version = SEATBELT_VERSION,
		.uid = own_uid ? sandbox->host_uid : 0,
		.max_open_files = sandbox->opts.max_open_files,
		/* The kernel counts a uid's processes: the user's own would be among them. */
		.max_processes = own_uid ? sandbox->opts.max_processes : 0,
		.max_file_bytes = sandbox->opts.max_file_mib << 20,
		.profile = add_string(&strings, profile.data),
		.cwd = add_string(&strings, sandbox->cwd),
		.env_offset = sizeof(header),
		.env_count = (uint32_t)sandbox->variable_count,
	};

	memcpy(header.magic, SEATBELT_MAGIC, sizeof(header.magic));
	for (size_t i = 0; i < sandbox->variable_count; i++) {
		uint32_t offset = add_string(&strings, sandbox->variables[i].text);

		orch_buf_add(&offsets, &offset, sizeof(offset));
	}
	header.strings_offset = (uint32_t)(sizeof(header) + offsets.length);
	header.strings_length = (uint32_t)strings.length;
	header.length = header.strings_offset + header.strings_length;
	orch_buf_add(&file, &header, sizeof(header));
	orch_buf_add(&file, offsets.data, offsets.length);
	orch_buf_add(&file, strings.data, strings.length);
	if (file.failed || offsets.failed || strings.failed)
		return orch_fail_memory(reterr);
	if (file.length > ORCH_SPEC_MAX_BYTES)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, "spec",
				 "paths and environment of the sandbox exceed %u bytes", ORCH_SPEC_MAX_BYTES);
	int fd = orch_sealed_file("orch-sandbox-spec", file.data, file.length);

	if (fd < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "spec", "the confinement can not be written");
	*ret_fd = fd;
	return 0;
}
