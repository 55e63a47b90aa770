/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the specification (spec.h). */
#include <errno.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <sys/syscall.h>

#include "../../core/os.h"
#include "../sandbox-private.h"
#include "../spec.h"
#include "seccomp.h"

struct writer {
	struct orch_buf tables;
	struct orch_buf strings;
};

static uint32_t add_string(struct writer *writer, const char *text)
{
	uint32_t offset = (uint32_t)writer->strings.length;

	orch_buf_add(&writer->strings, text, strlen(text) + 1);
	return offset;
}

static void add_mounts(struct writer *writer, const struct sandbox_rules *rules)
{
	for (size_t i = 0; i < rules->count; i++) {
		const struct sandbox_path *rule = rules->rules[i];
		struct orch_spec_mount mount = {
			.host = add_string(writer, rule->host),
			.inner = add_string(writer, rule->inner),
			.access = rule->access,
			.kind = rule->kind,
		};

		orch_buf_add(&writer->tables, &mount, sizeof(mount));
	}
}

static void align(struct orch_buf *buf)
{
	static const char zeros[8];

	orch_buf_add(buf, zeros, (8 - buf->length % 8) % 8);
}

/* In static storage, or, where a test leaves out some of it, in `partial`. */
static int32_t get_filter(const orch_sandbox *sandbox, struct orch_buf *partial, const void **ret_program,
			  size_t *ret_length, orch_error **reterr)
{
	uint64_t groups = sandbox->without & ORCH_SPEC_WITHOUT_SECCOMP_GROUPS;

	if (!groups)
		return orch_sandbox_filter(0, ret_program, ret_length, reterr);
	int32_t code = orch_sandbox_filter_without(groups, partial, reterr);

	*ret_program = partial->data;
	*ret_length = partial->length;
	return code;
}

/* What seccomp has to stand for where there are no namespaces. */
static uint32_t missing_bare(const orch_sandbox *sandbox)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	uint32_t missing = SECCOMP_NO_NAMESPACES;

	if (sandbox->landlock_abi && abi > sandbox->landlock_abi)
		abi = sandbox->landlock_abi;
	if (abi < 3)
		missing |= SECCOMP_NO_TRUNCATE_RIGHT;
	/* As root the sandbox's own uid has nobody else to signal. */
	if (abi < 6 && sandbox->host_uid == geteuid())
		missing |= SECCOMP_NO_SIGNAL_SCOPE;
	return missing;
}

int32_t orch_sandbox_spec(const orch_sandbox *sandbox, int *ret_fd, orch_error **reterr)
{
	struct writer writer = {{0}, {0}};
	struct orch_buf file = {0}, partial = {0};
	const void *filter = NULL;
	const void *bare = NULL;
	size_t filter_length = 0, bare_length = 0;
	struct orch_spec_header header = {
		.magic = ORCH_SPEC_MAGIC,
		.version = ORCH_SPEC_VERSION,
		.root = sandbox->opts.root,
		.net = sandbox->opts.net,
		.namespaces = sandbox->levels[PROTECT_NAMESPACES],
		.without = sandbox->without,
		.landlock_abi = sandbox->landlock_abi,
		.landlock = sandbox->levels[PROTECT_LANDLOCK],
		.seccomp = sandbox->levels[PROTECT_SECCOMP],
		.max_processes = sandbox->opts.max_processes,
		.max_open_files = sandbox->opts.max_open_files,
		.max_file_bytes = sandbox->opts.max_file_mib << 20,
		.tmp_bytes = sandbox->opts.tmp_mib << 20,
		.hostname = add_string(&writer, "sandbox"),
		.cwd = add_string(&writer, sandbox->cwd),
	};
	struct sandbox_rules rules = {0};
	int32_t code = orch_rules_resolve(sandbox, &rules, reterr);

	if (code == 0 && sandbox->levels[PROTECT_SECCOMP] != ORCH_PROTECT_OFF)
		code = get_filter(sandbox, &partial, &filter, &filter_length, reterr);
	if (code == 0 && sandbox->levels[PROTECT_NAMESPACES] != ORCH_PROTECT_REQUIRED)
		code = orch_sandbox_filter(missing_bare(sandbox), &bare, &bare_length, reterr);
	header.filter_offset = sizeof(header);
	header.filter_count = (uint32_t)(filter_length / sizeof(struct sock_filter));
	orch_buf_add(&writer.tables, filter, filter_length);
	header.bare_offset = (uint32_t)(sizeof(header) + writer.tables.length);
	header.bare_count = (uint32_t)(bare_length / sizeof(struct sock_filter));
	orch_buf_add(&writer.tables, bare, bare_length);
	header.mounts_offset = (uint32_t)(sizeof(header) + writer.tables.length);
	header.mounts_count = (uint32_t)rules.count;
	add_mounts(&writer, &rules);
	header.env_offset = (uint32_t)(sizeof(header) + writer.tables.length);
	header.env_count = (uint32_t)sandbox->variable_count;
	for (size_t i = 0; i < sandbox->variable_count; i++) {
		uint32_t offset = add_string(&writer, sandbox->variables[i].text);

		orch_buf_add(&writer.tables, &offset, sizeof(offset));
	}
	align(&writer.tables);
	header.strings_offset = (uint32_t)(sizeof(header) + writer.tables.length);
	header.strings_length = (uint32_t)writer.strings.length;
	header.length = header.strings_offset + header.strings_length;

	orch_buf_add(&file, &header, sizeof(header));
	orch_buf_add(&file, writer.tables.data, writer.tables.length);
	orch_buf_add(&file, writer.strings.data, writer.strings.length);
	if (code == 0 && (file.failed || writer.tables.failed || writer.strings.failed))
		code = orch_fail_memory(reterr);
	if (code == 0 && file.length > ORCH_SPEC_MAX_BYTES)
		code = orch_fail(reterr, ORCH_ETOOBIG, 0, "spec",
				 "paths and environment of the sandbox exceed %u bytes",
				 ORCH_SPEC_MAX_BYTES);
	if (code == 0) {
		int fd = orch_sealed_file("orch-sandbox-spec", file.data, file.length);

		if (fd < 0)
			code = orch_fail(reterr, ORCH_ESYS, errno, "spec",
					 "the specification can not be written");
		else
			*ret_fd = fd;
	}
	free(rules.rules);
	orch_buf_free(&file);
	orch_buf_free(&partial);
	orch_buf_free(&writer.tables);
	orch_buf_free(&writer.strings);
	return code;
}

_Static_assert(sizeof(struct orch_spec_header) % 8 == 0, "the seccomp program is aligned");
