/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "pipeline-private.h"

#define SEALED_LIMIT (4u * 1024u * 1024u)

/* --- sealing --------------------------------------------------------------------------------- */

/* Writes the file durably below sealed/ and notes its hash. */
static int32_t seal_file(orch_pipeline *p, json_t *files, const char *name, const void *bytes,
			 size_t length, orch_error **reterr)
{
	_cleanup_free_ char *path = path_join(p->sealed_dir, name);
	char hash[TREE_HASH_SIZE];
	if (!path)
		return orch_fail_memory(reterr);
	int32_t code = tree_write_file(path, bytes, length, 0600, reterr);
	if (code < 0)
		return code;
	sha256_hex(bytes, length, hash);
	return json_object_set_new(files, name, json_string(hash)) < 0 ? orch_fail_memory(reterr)
								       : 0;
}

/* One hash over all files: of the sorted lines "HASH NAME". */
static void files_hash(json_t *files, char ret_hash[TREE_HASH_SIZE])
{
	_cleanup_free_ char *text = json_dumps(files, JSON_COMPACT | JSON_SORT_KEYS);
	sha256_hex(text ? text : "", text ? strlen(text) : 0, ret_hash);
}

/* For people; not sealed. NULL text is no memory. */
static int32_t write_readable(orch_pipeline *p, const char *name, char *text, orch_error **reterr)
{
	_cleanup_free_ char *path = path_join(p->sealed_dir, name);
	int32_t code = path && text ? tree_write_file(path, text, strlen(text), 0600, reterr)
				    : orch_fail_memory(reterr);
	free(text);
	return code;
}

/* `files` and `rows` are taken over. */
static int32_t record_seal(orch_pipeline *p, const json_t *attempt, const char *document,
			   const char *stage, json_t *files, const char *rows_name, json_t *rows,
			   orch_error **reterr)
{
	char hash[TREE_HASH_SIZE];
	files_hash(files, hash);
	json_t *record =
		json_pack("{s:s, s:s, s:s, s:s, s:O*, s:o, s:o}", "document", document, "stage",
			  stage, "state", "SEALED", "sha256", hash, "attempt",
			  json_object_get(attempt, "attempt"), "files", files, rows_name, rows);
	return run_record(p, "seal", record, reterr, "seal/%s", document);
}

static json_t *string_list(char *const *list)
{
	json_t *array = json_array();
	for (; list && *list; list++)
		json_array_append_new(array, json_string(*list));
	return array;
}

int32_t seal_questions(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		       const struct questions *questions, orch_error **reterr)
{
	json_t *files = json_object(), *rows = json_array();
	for (size_t i = 0; i < questions->count; i++) {
		const struct question *question = &questions->questions[i];
		json_array_append_new(rows,
				      json_pack("{s:s, s:s, s:s, s:s, s:o, s:b}", "id",
						question->id, "text", question->text, "recommended",
						question->recommended, "kind", question->kind,
						"options", string_list(question->options),
						"needs_person", question->needs_person));
	}
	int32_t code = files && rows ? seal_file(p, files, "questions.json", bytes, length, reterr)
				     : orch_fail_memory(reterr);
	/* Where the user looks for it. */
	_cleanup_free_ char *path = path_join(p->state_dir, "questions.json");
	if (code == 0)
		code = path ? tree_write_file(path, bytes, length, 0600, reterr)
			    : orch_fail_memory(reterr);
	if (code < 0) {
		json_decref(files);
		json_decref(rows);
		return code;
	}
	return record_seal(p, attempt, "questions", "clarify", files, "questions", rows, reterr);
}

int32_t seal_spec(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		  struct spec *spec, orch_error **reterr)
{
	json_t *files = json_object(), *rows = json_array();
	for (size_t i = 0; i < spec->requirement_count; i++)
		json_array_append_new(rows, json_pack("{s:s, s:s}", "id", spec->requirements[i].id,
						      "title", spec->requirements[i].title));
	int32_t code = files && rows ? seal_file(p, files, "spec.xml", bytes, length, reterr)
				     : orch_fail_memory(reterr);
	if (code == 0)
		code = write_readable(p, "spec.md", spec_markdown(spec), reterr);
	if (code < 0) {
		json_decref(files);
		json_decref(rows);
		return code;
	}
	return record_seal(p, attempt, "spec", "specify", files, "requirements", rows, reterr);
}

int32_t seal_checks(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		    struct checks *checks, orch_error **reterr)
{
	json_t *files = json_object(), *rows = json_array();
	int32_t code = files && rows ? seal_file(p, files, "checks.xml", bytes, length, reterr)
				     : orch_fail_memory(reterr);
	for (size_t i = 0; code == 0 && i < checks->count; i++) {
		const struct check *check = &checks->checks[i];
		_cleanup_free_ void *content = NULL;
		size_t content_length = 0;
		code = workspace_answer(p, attempt, check->file, &content, &content_length, reterr);
		if (code == 0)
			code = seal_file(p, files, check->file, content, content_length, reterr);
		json_array_append_new(rows, json_pack("{s:s, s:s, s:b, s:b, s:s}", "id", check->id,
						      "requirement", check->requirement, "hidden",
						      check->hidden, "restart", check->restart,
						      "file", check->file));
	}
	if (code < 0) {
		json_decref(files);
		json_decref(rows);
		return code;
	}
	return record_seal(p, attempt, "checks", "check", files, "checks", rows, reterr);
}

int32_t seal_plan(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		  struct plan *plan, orch_error **reterr)
{
	json_t *files = json_object(), *rows = json_array();
	for (size_t i = 0; i < plan->count; i++) {
		const struct task_plan *task = &plan->tasks[i];
		json_array_append_new(rows, json_pack("{s:s, s:s, s:o, s:o, s:o}", "id", task->id,
						      "title", task->title, "requirements",
						      string_list(task->requirements), "after",
						      string_list(task->after), "writes",
						      string_list(task->writes)));
	}
	int32_t code = files && rows ? seal_file(p, files, "plan.xml", bytes, length, reterr)
				     : orch_fail_memory(reterr);
	if (code == 0)
		code = write_readable(p, "plan.md", plan_markdown(plan), reterr);
	if (code == 0)
		code = write_readable(p, "tasks.md", tasks_markdown(plan), reterr);
	if (code < 0) {
		json_decref(files);
		json_decref(rows);
		return code;
	}
	return record_seal(p, attempt, "plan", "plan", files, "tasks", rows, reterr);
}

/* --- what was sealed is still what it was ---------------------------------------------------- */

static int32_t check_file(orch_pipeline *p, const char *name, const char *hash, orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	char found[TREE_HASH_SIZE];
	orch_error *error = NULL;
	if (tree_read_file(p->sealed_dir, name, SEALED_LIMIT, &bytes, &length, &error) < 0) {
		int32_t code = orch_fail(reterr, ORCH_ECORRUPT, orch_error_errno(error), "seal",
					 "sealed document %s/%s: %s", p->sealed_dir, name,
					 orch_error_message(error));
		orch_error_free(error);
		return code;
	}
	sha256_hex(bytes, length, found);
	if (strcmp(found, hash))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "seal",
				 "%s/%s was changed after it was sealed: put back the file whose "
				 "SHA-256 is %s",
				 p->sealed_dir, name, hash);
	return 0;
}

int32_t seal_check(orch_pipeline *p, orch_error **reterr)
{
	const char *document, *name;
	json_t *record, *hash;
	json_object_foreach(p->model->seals, document, record)
	{
		json_object_foreach(json_object_get(record, "files"), name, hash)
		{
			int32_t code = check_file(p, name, json_string_value(hash), reterr);
			if (code < 0)
				return code;
		}
	}
	return 0;
}

/* --- parsed again ---------------------------------------------------------------------------- */

static bool any_operation(void *userdata, const char *type)
{
	(void)userdata;
	(void)type;
	return true; /* it was allowed when the plan was sealed */
}

static int32_t load_one(orch_pipeline *p, const char *document, const char *file,
			orch_error **reterr)
{
	if (!model_seal(p->model, document))
		return 0;
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	int32_t code = tree_read_file(p->sealed_dir, file, SEALED_LIMIT, &bytes, &length, reterr);
	if (code < 0)
		return code;
	if (!strcmp(document, "questions"))
		return p->questions ? 0
				    : questions_parse(file, bytes, length, &p->questions, reterr);
	if (!strcmp(document, "spec"))
		return p->spec ? 0
			       : spec_parse(p->schema_dir, file, bytes, length, &p->spec, reterr);
	if (!strcmp(document, "checks"))
		return p->checks ? 0
				 : checks_parse(p->schema_dir, file, bytes, length, p->spec,
						&p->checks, reterr);
	return p->plan ? 0
		       : plan_parse(p->schema_dir, file, bytes, length, p->spec, p->checks,
				    any_operation, NULL, &p->plan, reterr);
}

int32_t seal_load(orch_pipeline *p, orch_error **reterr)
{
	static const struct {
		const char *document, *file;
	} sealed[] = {
		{"questions", "questions.json"},
		{"spec", "spec.xml"},
		{"checks", "checks.xml"},
		{"plan", "plan.xml"},
	};
	int32_t code = 0;
	for (size_t i = 0; code == 0 && i < sizeof(sealed) / sizeof(sealed[0]); i++)
		code = load_one(p, sealed[i].document, sealed[i].file, reterr);
	return code;
}
