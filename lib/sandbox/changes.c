/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of what programs changed in an overlay. */
#include "changes.h"

bool changes_add(struct orch_changes *changes, const char *path, const struct change *change)
{
	if (changes->count == changes->capacity) {
		uint32_t capacity = changes->capacity ? 2 * changes->capacity : 64;
		struct change *rows = realloc(changes->rows, capacity * sizeof(*rows));

		if (!rows)
			return false;
		changes->rows = rows;
		changes->capacity = capacity;
	}
	char *copy = strdup(path);

	if (!copy)
		return false;
	changes->rows[changes->count] = *change;
	changes->rows[changes->count++].path = copy;
	return true;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct change *)a)->path, ((const struct change *)b)->path);
}

/* Of the rows, which are sorted. */
static struct change *row_of(const struct orch_changes *changes, const char *path, size_t length)
{
	char *copy = strndup(path, length);
	struct change key = {.path = copy}, *row = NULL;

	if (copy && changes->count > 0)
		row = bsearch(&key, changes->rows, changes->count, sizeof(*changes->rows), by_path);
	free(copy);
	return row;
}

/*
 * What lies over a path in the workspace, be it a path of its own or a denial, needs something to lie on: where there was
 * nothing, the set-up made it. No program did, nor can one change it.
 */
static void drop_mount_points(struct orch_changes *changes, const orch_sandbox *sandbox)
{
	uint32_t kept = 0;

	for (size_t i = 0; i < sandbox->path_count; i++) {
		const char *inner = sandbox->paths[i].inner;

		if (!orch_path_is_below(inner, sandbox->cwd))
			continue;
		inner += strlen(sandbox->cwd) + 1;
		for (const char *end = inner; *end; end += *end == '/') {
			end += strcspn(end, "/");
			struct change *row = row_of(changes, inner, (size_t)(end - inner));

			if (row && row->kind == ORCH_CHANGE_ADDED)
				row->kind = 0;
		}
	}
	for (uint32_t i = 0; i < changes->count; i++)
		if (changes->rows[i].kind)
			changes->rows[kept++] = changes->rows[i];
		else
			free(changes->rows[i].path);
	changes->count = kept;
}

/* A line is one path: what would end it, or look like something else on a terminal, is written as
 * \ooo. */
static void add_line(struct orch_buf *text, const struct change *change)
{
	static const char kinds[] = {[ORCH_CHANGE_ADDED] = 'A',
				     [ORCH_CHANGE_MODIFIED] = 'M',
				     [ORCH_CHANGE_DELETED] = 'D'};

	orch_buf_printf(text, "%c ", kinds[change->kind]);
	for (const char *at = change->path; *at; at++) {
		unsigned char byte = (unsigned char)*at;

		if (byte < ' ' || byte == 127 || byte == '\\')
			orch_buf_printf(text, "\\%03o", byte);
		else
			orch_buf_add(text, at, 1);
	}
	orch_buf_puts(text, "\n");
}

static int32_t fill(struct orch_changes *changes, orch_sandbox *sandbox, orch_error **reterr)
{
	int32_t code = changes_read(changes, orch_scope_private_fd(sandbox->scope),
				    orch_scope_lower_fd(sandbox->scope), reterr);

	if (code < 0)
		return code;
	if (changes->count > 0)
		qsort(changes->rows, changes->count, sizeof(*changes->rows), by_path);
	drop_mount_points(changes, sandbox);
	for (uint32_t i = 0; i < changes->count; i++)
		add_line(&changes->text, &changes->rows[i]);
	return changes->text.failed ? orch_fail_memory(reterr) : 0;
}

int32_t orch_sandbox_changes(orch_sandbox *sandbox, orch_changes **ret_changes, orch_error **reterr)
{
	if (!sandbox || !ret_changes)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL",
				 sandbox ? "ret_changes" : "the sandbox");
	int32_t code = orch_ctx_check(sandbox->ctx, reterr);

	if (code < 0)
		return code;
	if (!sandbox->has_overlay)
		return orch_fail(
			reterr, ORCH_ESTATE, 0, NULL,
			"the sandbox has no overlay: orch_sandbox_set_overlay() makes one");
	if (orch_scope_lower_fd(sandbox->scope) < 0)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the sandbox has not stood: there is nothing to read");
	struct orch_changes *changes = calloc(1, sizeof(*changes));

	if (!changes)
		return orch_fail_memory(reterr);
	changes->link = orch_sandbox_link_ref(sandbox->link);
	code = fill(changes, sandbox, reterr);
	if (code < 0)
		orch_changes_unref(changes);
	else
		*ret_changes = changes;
	return code;
}

orch_changes *orch_changes_unref(orch_changes *changes)
{
	if (!changes)
		return NULL;
	for (uint32_t i = 0; i < changes->count; i++)
		free(changes->rows[i].path);
	free(changes->rows);
	orch_buf_free(&changes->text);
	orch_sandbox_link_release(changes->link);
	free(changes);
	return NULL;
}

uint32_t orch_changes_count(const orch_changes *changes)
{
	return changes ? changes->count : 0;
}

int32_t orch_changes_row(const orch_changes *changes, uint32_t index, const char **ret_path,
			 uint32_t *ret_kind, uint32_t *ret_mode, uint64_t *ret_bytes)
{
	if (!changes || index >= changes->count)
		return ORCH_EINVAL;
	const struct change *row = &changes->rows[index];

	if (ret_path)
		*ret_path = row->path;
	if (ret_kind)
		*ret_kind = row->kind;
	if (ret_mode)
		*ret_mode = row->mode;
	if (ret_bytes)
		*ret_bytes = row->bytes;
	return 0;
}

const char *orch_changes_text(const orch_changes *changes)
{
	return changes && changes->text.data ? changes->text.data : "";
}

int32_t orch_changes_export(const orch_changes *changes, const char *path, orch_error **reterr)
{
	if (!changes || !path || !*path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s",
				 changes ? "there is no path" : "the changes are NULL");
	orch_sandbox *sandbox = changes->link->sandbox;

	if (!sandbox)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "the sandbox is gone, and with it what its programs wrote: export "
				 "while it has a reference");
	int32_t code = orch_ctx_check(sandbox->ctx, reterr);

	return code < 0 ? code
			: changes_write(changes, orch_scope_private_fd(sandbox->scope), path,
					reterr);
}
