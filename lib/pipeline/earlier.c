/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "pipeline-private.h"

#define DOCUMENT_LIMIT (4u * 1024u * 1024u)

/* --- scratch copies of trees ----------------------------------------------------------------- */

/* A writable copy below work/; the caller removes and frees it. */
static int32_t scratch(orch_pipeline *p, const char *tree, char **ret_dir, orch_error **reterr)
{
	char random[9];
	orch_random_hex(random, 4);
	_cleanup_free_ char *dir = orch_strdup_printf("%s/tree-%s", p->work_dir, random);
	if (!dir)
		return orch_fail_memory(reterr);
	int32_t code = tree_checkout(p->trees_dir, tree, dir, reterr);
	if (code == 0)
		*ret_dir = ORCH_STEAL(dir);
	return code;
}

static int32_t import_scratch(orch_pipeline *p, char *dir, int32_t code,
			      char ret_hash[TREE_HASH_SIZE], orch_error **reterr)
{
	if (code == 0)
		code = tree_import(dir, p->trees_dir, NULL, ret_hash, reterr);
	if (dir)
		tree_remove(dir, NULL);
	free(dir);
	return code;
}

int32_t earlier_strip(orch_pipeline *p, const char *tree, char ret_hash[TREE_HASH_SIZE],
		      orch_error **reterr)
{
	char *dir = NULL;
	int32_t code = scratch(p, tree, &dir, reterr);
	_cleanup_free_ char *folder = dir ? path_join(dir, ORCH_FOLDER) : NULL;
	if (code == 0)
		code = folder ? tree_remove(folder, reterr) : orch_fail_memory(reterr);
	return import_scratch(p, dir, code, ret_hash, reterr);
}

/* --- the earlier documents ------------------------------------------------------------------- */

static int32_t parse_earlier(orch_pipeline *p, const char *dir, orch_error **reterr)
{
	_cleanup_free_ void *spec = NULL, *checks = NULL;
	size_t spec_length = 0, checks_length = 0;
	int32_t code = tree_read_file(dir, "spec.xml", DOCUMENT_LIMIT, &spec, &spec_length, reterr);
	if (code == 0)
		code = tree_read_file(dir, "checks.xml", DOCUMENT_LIMIT, &checks, &checks_length,
				      reterr);
	if (code == 0)
		code = spec_parse(p->schema_dir, ORCH_FOLDER "/spec.xml", spec, spec_length,
				  &p->earlier_spec, reterr);
	if (code == 0)
		code = checks_parse(p->schema_dir, ORCH_FOLDER "/checks.xml", checks, checks_length,
				    p->earlier_spec, &p->earlier_checks, reterr);
	if (code < 0)
		p->earlier_spec = spec_free(p->earlier_spec);
	return code;
}

int32_t earlier_load(orch_pipeline *p, orch_error **reterr)
{
	if (p->earlier_dir)
		return 0;
	int32_t code = tree_verify(p->trees_dir, p->model->repo_tree, reterr);
	if (code < 0)
		return code;
	p->earlier_dir =
		orch_strdup_printf("%s/%s/" ORCH_FOLDER, p->trees_dir, p->model->repo_tree);
	if (!p->earlier_dir)
		return orch_fail_memory(reterr);
	struct stat status;
	if (lstat(p->earlier_dir, &status) < 0 || !S_ISDIR(status.st_mode))
		return 0;
	/* What a repository brings along is foreign: unusable documents are reported, and nothing
	 * is built on them. */
	orch_error *error = NULL;
	code = parse_earlier(p, p->earlier_dir, &error);
	if (code == ORCH_ENOMEM) {
		orch_error_free(error);
		return orch_fail_memory(reterr);
	}
	if (code < 0) {
		p->earlier_note = orch_strdup_printf("the repository's " ORCH_FOLDER
						     " can not be used, its checks are not run: %s",
						     orch_error_message(error));
		orch_ctx_logf(p->ctx, ORCH_LOG_WARNING, "%s",
			      p->earlier_note ? p->earlier_note : "");
	}
	orch_error_free(error);
	return 0;
}

char **earlier_required(const orch_pipeline *p)
{
	if (!p->earlier_checks)
		return NULL;
	const json_t *base =
		model_verification(p->model, "earlier", NO_TASK, 0, p->model->base_tree);
	char **ids = calloc(p->earlier_checks->count + 1, sizeof(*ids));
	size_t count = 0;
	for (size_t i = 0; ids && i < p->earlier_checks->count; i++) {
		size_t k;
		json_t *result;
		json_array_foreach(json_object_get(base, "results"), k, result)
		{
			if (!strcmp(json_text(result, "check"), p->earlier_checks->checks[i].id) &&
			    !strcmp(json_text(result, "verdict"), "pass"))
				ids[count++] = p->earlier_checks->checks[i].id;
		}
	}
	return ids;
}

/* --- .orch in a delivered tree --------------------------------------------------------------- */

static void xml_text(struct orch_buf *xml, const char *text)
{
	for (; text && *text; text++) {
		switch (*text) {
		case '&':
			orch_buf_puts(xml, "&amp;");
			break;
		case '<':
			orch_buf_puts(xml, "&lt;");
			break;
		case '>':
			orch_buf_puts(xml, "&gt;");
			break;
		case '"':
			orch_buf_puts(xml, "&quot;");
			break;
		default:
			orch_buf_add(xml, text, 1);
		}
	}
}

static void xml_attribute_of(struct orch_buf *xml, const char *name, const char *value)
{
	orch_buf_printf(xml, " %s=\"", name);
	xml_text(xml, value);
	orch_buf_puts(xml, "\"");
}

static void xml_requirements(struct orch_buf *xml, const struct spec *spec)
{
	for (size_t i = 0; spec && i < spec->requirement_count; i++) {
		orch_buf_puts(xml, "  <requirement");
		xml_attribute_of(xml, "id", spec->requirements[i].id);
		xml_attribute_of(xml, "title", spec->requirements[i].title);
		orch_buf_puts(xml, ">");
		xml_text(xml, spec->requirements[i].text);
		orch_buf_puts(xml, "</requirement>\n");
	}
}

/* The product as it is started now, with the earlier requirements and the new ones. */
static void joined_spec(const orch_pipeline *p, struct orch_buf *xml)
{
	orch_buf_puts(xml, "<spec xmlns=\"urn:orch:spec:1\"");
	xml_attribute_of(xml, "name", p->spec->name);
	xml_attribute_of(xml, "title", p->spec->title);
	orch_buf_puts(xml, ">\n  <summary>");
	xml_text(xml, p->spec->summary);
	orch_buf_printf(xml, "</summary>\n  <product kind=\"%s\"><start>",
			p->spec->product_kind == PRODUCT_CLI ? "cli" : "http");
	for (size_t i = 0; p->spec->start && p->spec->start[i]; i++) {
		orch_buf_puts(xml, "<arg>");
		xml_text(xml, p->spec->start[i]);
		orch_buf_puts(xml, "</arg>");
	}
	orch_buf_puts(xml, "</start></product>\n");
	xml_requirements(xml, p->earlier_spec);
	xml_requirements(xml, p->spec);
	orch_buf_puts(xml, "</spec>\n");
}

static bool id_is_taken(const struct checks *checks, const char *id)
{
	for (size_t i = 0; checks && i < checks->count; i++)
		if (!strcmp(checks->checks[i].id, id))
			return true;
	return false;
}

static bool file_is_taken(const struct checks *checks, const char *file)
{
	for (size_t i = 0; checks && i < checks->count; i++)
		if (!strcmp(checks->checks[i].file, file))
			return true;
	return false;
}

static int32_t put(const char *dir, const char *name, const void *bytes, size_t length,
		   orch_error **reterr)
{
	_cleanup_free_ char *path = path_join(dir, name);
	return path ? tree_write_file(path, bytes, length, 0644, reterr) : orch_fail_memory(reterr);
}

/* Copies the checks' files and lists them; what collides with an earlier one gets a name of its
 * own. */
static int32_t join_checks(orch_pipeline *p, const char *orch_dir, const char *from_dir,
			   const struct checks *checks, const struct checks *taken,
			   struct orch_buf *xml, orch_error **reterr)
{
	for (size_t i = 0; checks && i < checks->count; i++) {
		const struct check *check = &checks->checks[i];
		_cleanup_free_ void *bytes = NULL;
		size_t length = 0;
		_cleanup_free_ char *id =
			id_is_taken(taken, check->id)
				? orch_strdup_printf("%s-%s", check->id, p->model->run)
				: strdup(check->id);
		_cleanup_free_ char *file =
			file_is_taken(taken, check->file)
				? orch_strdup_printf("checks/%s/%s", p->model->run, check->file)
				: strdup(check->file);
		if (!id || !file)
			return orch_fail_memory(reterr);
		int32_t code = tree_read_file(from_dir, check->file, DOCUMENT_LIMIT, &bytes,
					      &length, reterr);
		if (code == 0)
			code = put(orch_dir, file, bytes, length, reterr);
		if (code < 0)
			return code;
		orch_buf_puts(xml, "  <check");
		xml_attribute_of(xml, "id", id);
		xml_attribute_of(xml, "requirement", check->requirement);
		xml_attribute_of(xml, "visibility", check->hidden ? "hidden" : "visible");
		xml_attribute_of(xml, "file", file);
		if (check->timeout_s)
			orch_buf_printf(xml, " timeout-s=\"%u\"", check->timeout_s);
		orch_buf_puts(xml, check->restart ? " restart=\"yes\"/>\n" : "/>\n");
	}
	return 0;
}

/* The sealed documents as they are, if there are no earlier ones. */
static int32_t put_sealed(orch_pipeline *p, const char *orch_dir, orch_error **reterr)
{
	static const char *const documents[] = {"spec", "checks"};
	for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
		const char *name;
		json_t *hash;
		json_object_foreach(json_object_get(model_seal(p->model, documents[i]), "files"),
				    name, hash)
		{
			_cleanup_free_ void *bytes = NULL;
			size_t length = 0;
			int32_t code = tree_read_file(p->sealed_dir, name, DOCUMENT_LIMIT, &bytes,
						      &length, reterr);
			if (code == 0)
				code = put(orch_dir, name, bytes, length, reterr);
			if (code < 0)
				return code;
		}
	}
	return 0;
}

static int32_t put_joined(orch_pipeline *p, const char *orch_dir, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf spec = {0}, checks = {0};
	joined_spec(p, &spec);
	orch_buf_puts(&checks, "<checks xmlns=\"urn:orch:checks:1\">\n");
	int32_t code =
		join_checks(p, orch_dir, p->earlier_dir, p->earlier_checks, NULL, &checks, reterr);
	if (code == 0)
		code = join_checks(p, orch_dir, p->sealed_dir, p->checks, p->earlier_checks,
				   &checks, reterr);
	orch_buf_puts(&checks, "</checks>\n");
	if (code == 0 && (spec.failed || checks.failed))
		return orch_fail_memory(reterr);
	if (code == 0)
		code = put(orch_dir, "spec.xml", spec.data, spec.length, reterr);
	return code < 0 ? code : put(orch_dir, "checks.xml", checks.data, checks.length, reterr);
}

int32_t earlier_compose(orch_pipeline *p, const char *tree, char ret_hash[TREE_HASH_SIZE],
			orch_error **reterr)
{
	char *dir = NULL;
	int32_t code = seal_check(p, reterr);
	if (code == 0)
		code = scratch(p, tree, &dir, reterr);
	_cleanup_free_ char *orch_dir = dir ? path_join(dir, ORCH_FOLDER) : NULL;
	if (code == 0 && !orch_dir)
		code = orch_fail_memory(reterr);
	if (code == 0)
		code = p->earlier_checks ? put_joined(p, orch_dir, reterr)
					 : put_sealed(p, orch_dir, reterr);
	return import_scratch(p, dir, code, ret_hash, reterr);
}

int32_t earlier_restore(orch_pipeline *p, const char *tree, char ret_hash[TREE_HASH_SIZE],
			orch_error **reterr)
{
	/* What the run changed, on the repository as it was. */
	return tree_merge(p->trees_dir, p->model->base_tree, p->model->repo_tree, tree, ret_hash,
			  reterr);
}
