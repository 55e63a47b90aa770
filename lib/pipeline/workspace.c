/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "pipeline-private.h"

#define ANSWER_LIMIT (4u * 1024u * 1024u)
#define DIFF_LIMIT (200u * 1024u)
/* With less to spare on the disk nothing is begun and nothing is judged. */
#define ROOM_BYTES (4u * 1024u * 1024u)
#define ROOM_FILES 200u

/* What a role may leave in /work/out. */
static const struct tree_limits out_limits = {.bytes = 64u * 1024u * 1024u, .entries = 5000};

/* --- /in ------------------------------------------------------------------------------------- */

static int32_t put(const char *dir, const char *name, const void *bytes, size_t length,
		   orch_error **reterr)
{
	_cleanup_free_ char *path = path_join(dir, name);
	if (!path)
		return orch_fail_memory(reterr);
	return tree_write_file(path, bytes, length, 0644, reterr);
}

static int32_t put_json(const char *dir, const char *name, const json_t *value, orch_error **reterr)
{
	_cleanup_free_ char *text = json_dumps(value, JSON_INDENT(2));
	return text ? put(dir, name, text, strlen(text), reterr) : orch_fail_memory(reterr);
}

static int32_t put_copy(const char *from_dir, const char *name, const char *dir,
			orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	int32_t code = tree_read_file(from_dir, name, ANSWER_LIMIT, &bytes, &length, reterr);
	return code < 0 ? code : put(dir, name, bytes, length, reterr);
}

static int32_t put_schemas(orch_pipeline *p, const char *in_dir, orch_error **reterr)
{
	static const char *const names[] = {"spec.rng", "checks.rng", "plan.rng"};
	_cleanup_free_ char *dir = path_join(in_dir, "schemas");
	int32_t code = dir ? make_dir(dir, 0755, reterr) : orch_fail_memory(reterr);
	for (size_t i = 0; code == 0 && i < sizeof(names) / sizeof(names[0]); i++)
		code = put_copy(p->schema_dir, names[i], dir, reterr);
	return code;
}

static json_t *answers_document(const orch_pipeline *p)
{
	json_t *rows = json_object();
	const char *id;
	json_t *answer;
	json_object_foreach(p->model->answers, id, answer)
	{
		json_object_set(rows, id, json_object_get(answer, "text"));
	}
	return json_pack("{s:o*, s:O*}", "answers", rows, "questions",
			 json_object_get(model_seal(p->model, "questions"), "questions"));
}

static int32_t put_answers(orch_pipeline *p, const char *in_dir, orch_error **reterr)
{
	json_t *document = answers_document(p);
	int32_t code = document ? put_json(in_dir, "answers.json", document, reterr)
				: orch_fail_memory(reterr);
	json_decref(document);
	return code;
}

/* The visible checks alone: neither a name nor a file of a hidden one. */
static int32_t put_visible_checks(orch_pipeline *p, const char *in_dir, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf xml = {0};
	orch_buf_puts(&xml, "<checks xmlns=\"urn:orch:checks:1\">\n");
	int32_t code = 0;
	for (size_t i = 0; code == 0 && i < p->checks->count; i++) {
		const struct check *check = &p->checks->checks[i];
		if (check->hidden)
			continue;
		orch_buf_printf(&xml,
				"  <check id=\"%s\" requirement=\"%s\" visibility=\"visible\" "
				"file=\"%s\"%s/>\n",
				check->id, check->requirement, check->file,
				check->restart ? " restart=\"yes\"" : "");
		code = put_copy(p->sealed_dir, check->file, in_dir, reterr);
	}
	orch_buf_puts(&xml, "</checks>\n");
	if (code == 0 && xml.failed)
		return orch_fail_memory(reterr);
	return code < 0 ? code : put(in_dir, "checks.xml", xml.data, xml.length, reterr);
}

static json_t *strings(char *const *list)
{
	json_t *array = json_array();
	for (; list && *list; list++)
		json_array_append_new(array, json_string(*list));
	return array;
}

static int32_t put_task(orch_pipeline *p, const char *id, const char *in_dir, orch_error **reterr)
{
	const struct task_plan *task = task_of_plan(p, id);
	if (!task)
		return orch_fail(reterr, ORCH_ENOENT, 0, NULL, "the plan has no task %s", id);
	json_t *operations = json_array();
	for (size_t i = 0; i < task->operation_count; i++)
		json_array_append_new(operations,
				      json_pack("{s:s, s:s}", "type", task->operations[i].type,
						"key", task->operations[i].key));
	json_t *row = json_pack("{s:s, s:s, s:s, s:o*, s:o*, s:o*, s:o*}", "id", task->id, "title",
				task->title, "description",
				task->description ? task->description : "", "requirements",
				strings(task->requirements), "after", strings(task->after),
				"writes", strings(task->writes), "operations", operations);
	int32_t code = row ? put_json(in_dir, "task.json", row, reterr) : orch_fail_memory(reterr);
	json_decref(row);
	return code;
}

/* What a task's last attempt changed, for the one that does it again; and for the reviewer of an
 * attempt. */
static int32_t put_diff(orch_pipeline *p, const char *from, const char *to, const char *in_dir,
			const char *name, orch_error **reterr)
{
	_cleanup_free_ char *text = NULL;
	int32_t code = tree_diff(p->trees_dir, from, to, DIFF_LIMIT, &text, reterr);
	return code < 0 ? code : put(in_dir, name, text, strlen(text), reterr);
}

static int32_t put_previous(orch_pipeline *p, const json_t *attempt, const char *in_dir,
			    orch_error **reterr)
{
	const json_t *last = NULL;
	for (int64_t number = json_int(attempt, "attempt") - 1; number > 0 && !last; number--) {
		last = model_attempt(p->model, json_text(attempt, "role"),
				     json_text(attempt, "stage"), json_text(attempt, "task"),
				     (uint32_t)number);
		if (last && !json_text(last, "out")[0])
			last = NULL;
	}
	if (!last)
		return 0;
	if (!strcmp(json_text(attempt, "stage"), "execute"))
		return json_text(last, "tree")[0]
			       ? put_diff(p, json_text(last, "base"), json_text(last, "tree"),
					  in_dir, "previous.diff", reterr)
			       : 0;
	_cleanup_free_ char *dir = path_join(in_dir, "previous");
	if (!dir)
		return orch_fail_memory(reterr);
	return tree_checkout(p->trees_dir, json_text(last, "out"), dir, reterr);
}

static int32_t put_documents(orch_pipeline *p, const json_t *attempt, const char *in_dir,
			     orch_error **reterr)
{
	const char *stage = json_text(attempt, "stage");
	int32_t code = put(in_dir, "idea.txt", p->model->idea, strlen(p->model->idea), reterr);
	if (code == 0 && model_answered(p->model))
		code = put_answers(p, in_dir, reterr);
	if (code == 0 && model_seal(p->model, "spec"))
		code = put_copy(p->sealed_dir, "spec.xml", in_dir, reterr);
	/* The checker works from the specification alone. */
	if (code == 0 && p->checks && strcmp(stage, "check"))
		code = put_visible_checks(p, in_dir, reterr);
	if (code == 0 && model_seal(p->model, "plan") && strcmp(stage, "check"))
		code = put_copy(p->sealed_dir, "plan.xml", in_dir, reterr);
	if (code == 0 && strcmp(json_text(attempt, "task"), NO_TASK))
		code = put_task(p, json_text(attempt, "task"), in_dir, reterr);
	if (code == 0 && !strcmp(stage, "review"))
		code = put_diff(p, json_text(attempt, "base"), json_text(attempt, "tree_shown"),
				in_dir, "diff.txt", reterr);
	if (code == 0 && strcmp(stage, "review"))
		code = put_previous(p, attempt, in_dir, reterr);
	return code;
}

static int32_t fill_in(orch_pipeline *p, const json_t *attempt, const char *packet,
		       const char *in_dir, orch_error **reterr)
{
	int32_t code = put_documents(p, attempt, in_dir, reterr);
	if (code == 0)
		code = put_schemas(p, in_dir, reterr);
	json_t *evidence = packet_evidence(p, json_text(attempt, "role"),
					   json_text(attempt, "stage"), json_text(attempt, "task"));
	if (code == 0 && evidence)
		code = put_json(in_dir, "evidence.json", evidence, reterr);
	if (code < 0)
		return code;
	json_t *row = json_pack("{s:s, s:O*, s:O*, s:O*, s:O*, s:o}", "run", p->model->run, "role",
				json_object_get(attempt, "role"), "stage",
				json_object_get(attempt, "stage"), "task",
				json_object_get(attempt, "task"), "attempt",
				json_object_get(attempt, "attempt"), "packet",
				json_foreign(packet, strlen(packet)));
	code = row ? put_json(in_dir, "packet.json", row, reterr) : orch_fail_memory(reterr);
	json_decref(row);
	return code;
}

/* --- room on the disk ------------------------------------------------------------------------ */

int32_t workspace_check_room(const orch_pipeline *p, orch_error **reterr)
{
	struct statvfs status;
	if (statvfs(p->state_dir, &status) < 0)
		return 0;
	uint64_t bytes = (uint64_t)status.f_bavail * status.f_frsize;
	if (bytes >= ROOM_BYTES && (status.f_favail >= ROOM_FILES || !status.f_files))
		return 0;
	return orch_fail(reterr, ORCH_ENOSPC, 0, "room",
			 "no space left for the run: %s has %llu KiB and %llu files to spare, at "
			 "least %u KiB and %u are "
			 "needed: make room, then resume",
			 p->state_dir, (unsigned long long)(bytes / 1024),
			 (unsigned long long)status.f_favail, (unsigned)(ROOM_BYTES / 1024),
			 (unsigned)ROOM_FILES);
}

/* --- before an attempt ----------------------------------------------------------------------- */

int32_t workspace_make(orch_pipeline *p, const json_t *attempt, const char *packet,
		       struct workspace *ret_workspace, orch_error **reterr)
{
	const char *id = json_text(attempt, "id");
	_cleanup_free_ char *dir = path_join(p->work_dir, id);
	_cleanup_free_ char *in_dir = orch_strdup_printf("%s/%s.in", p->work_dir, id);
	_cleanup_free_ char *tree = dir ? path_join(dir, "tree") : NULL;
	_cleanup_free_ char *out = dir ? path_join(dir, "out") : NULL;
	if (!in_dir || !tree || !out)
		return orch_fail_memory(reterr);
	int32_t code = make_dir(dir, 0755, reterr);
	if (code == 0)
		code = make_dir(in_dir, 0755, reterr);
	if (code == 0)
		code = make_dir(out, 0755, reterr);
	if (code == 0)
		code = tree_checkout(p->trees_dir, json_text(attempt, "tree_shown"), tree, reterr);
	if (code == 0)
		code = fill_in(p, attempt, packet, in_dir, reterr);
	if (code < 0)
		return code;
	ret_workspace->dir = ORCH_STEAL(dir);
	ret_workspace->in_dir = ORCH_STEAL(in_dir);
	return 0;
}

/* --- after it -------------------------------------------------------------------------------- */

/* The load is dead; but what it left in place of a folder may be a link to anywhere. */
static bool is_folder(const char *path)
{
	struct stat status;
	return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* What can not cross is the answer's fault and is said to its author; what can not be written here
 * is ours. */
static bool is_our_error(const orch_error *error)
{
	static const int ours[] = {ENOSPC, EDQUOT, EROFS, EMFILE, ENFILE, ENOMEM, EIO};
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (orch_error_errno(error) == ours[i])
			return true;
	return orch_error_code(error) == ORCH_ENOMEM || orch_error_code(error) == ORCH_ENOSPC;
}

static int32_t import_one(orch_pipeline *p, const char *workspace, const char *name,
			  const struct tree_limits *limits, json_t *record, orch_error **reterr)
{
	_cleanup_free_ char *dir = path_join(workspace, name);
	char hash[TREE_HASH_SIZE];
	if (!dir)
		return orch_fail_memory(reterr);
	if (!is_folder(dir)) {
		_cleanup_free_ char *why =
			orch_strdup_printf("/work/%s is not a folder any more", name);
		json_object_set_new(record, "refused",
				    json_string(why ? why : "a folder is missing"));
		return 0;
	}
	orch_error *error = NULL;
	int32_t code = tree_import(dir, p->trees_dir, limits, hash, &error);
	if (code == 0)
		return json_object_set_new(record, name, json_string(hash)) < 0
			       ? orch_fail_memory(reterr)
			       : 0;
	if (is_our_error(error)) {
		if (reterr)
			*reterr = error;
		else
			orch_error_free(error);
		return code;
	}
	_cleanup_free_ char *why = orch_strdup_printf("/work/%s can not be taken over: %s", name,
						      orch_error_message(error));
	json_object_set_new(record, "refused", json_foreign(why, 4000));
	orch_error_free(error);
	return 0;
}

int32_t workspace_import(orch_pipeline *p, const json_t *attempt, json_t *record,
			 orch_error **reterr)
{
	_cleanup_free_ char *dir = path_join(p->work_dir, json_text(attempt, "id"));
	if (!dir)
		return orch_fail_memory(reterr);
	int32_t code = import_one(p, dir, "out", &out_limits, record, reterr);
	if (code == 0 && !strcmp(json_text(attempt, "stage"), "execute") &&
	    !json_object_get(record, "refused"))
		code = import_one(p, dir, "tree", NULL, record, reterr);
	return code;
}

void workspace_remove(orch_pipeline *p, const char *id)
{
	_cleanup_free_ char *dir = path_join(p->work_dir, id);
	_cleanup_free_ char *in_dir = orch_strdup_printf("%s/%s.in", p->work_dir, id);
	orch_error *error = NULL;
	if (dir && tree_remove(dir, &error) < 0) {
		orch_ctx_logf(p->ctx, ORCH_LOG_WARNING, "workspace is left: %s",
			      orch_error_message(error));
		error = orch_error_free(error);
	}
	if (in_dir && tree_remove(in_dir, &error) < 0) {
		orch_ctx_logf(p->ctx, ORCH_LOG_WARNING, "workspace is left: %s",
			      orch_error_message(error));
		orch_error_free(error);
	}
}

int32_t workspace_answer(orch_pipeline *p, const json_t *attempt, const char *name,
			 void **ret_bytes, size_t *ret_length, orch_error **reterr)
{
	if (json_text(attempt, "refused")[0])
		return orch_fail(reterr, ORCH_EPARSE, 0, NULL, "%s", json_text(attempt, "refused"));
	if (!json_text(attempt, "out")[0])
		return orch_fail(reterr, ORCH_EPARSE, 0, NULL, "%s: nothing was left in /work/out",
				 name);
	_cleanup_free_ char *dir = path_join(p->trees_dir, json_text(attempt, "out"));
	if (!dir)
		return orch_fail_memory(reterr);
	orch_error *error = NULL;
	int32_t code = tree_read_file(dir, name, ANSWER_LIMIT, ret_bytes, ret_length, &error);
	if (code == 0)
		return 0;
	code = orch_fail(reterr, code == ORCH_ENOMEM ? code : ORCH_EPARSE, 0, NULL, "%s: %s", name,
			 code == ORCH_ENOENT ? "/work/out does not hold it"
					     : orch_error_message(error));
	orch_error_free(error);
	return code;
}
