/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_DOCUMENT_H
#define ORCH_DOCUMENT_H

/*
 * The documents of a run: parsing with line numbers in errors, checking, and their forms for people. Bytes in,
 * structures out; no I/O but for reading schemas. Input is untrusted: no DTD, no entities, no network, size limits.
 */

#include <jansson.h>

#include "../core/core-private.h"

#define PRODUCT_HTTP 1u
#define PRODUCT_CLI 2u

struct requirement {
	char *id, *title, *text;
};

struct spec {
	char *name, *title, *summary;
	uint32_t product_kind;
	char **start; /* NULL-terminated argv */
	struct requirement *requirements;
	size_t requirement_count;
};

struct check {
	char *id, *requirement, *file;
	bool hidden, restart;
	uint32_t timeout_s;
};

struct checks {
	struct check *checks;
	size_t count;
};

struct task_operation {
	char *type, *key;
};

struct task_plan {
	char *id, *title, *description;
	char **requirements; /* NULL-terminated lists */
	char **after;
	char **writes;
	struct task_operation *operations;
	size_t operation_count;
};

struct plan {
	struct task_plan *tasks;
	size_t count;
};

#define QUESTION_LIMIT 7

struct question {
	char *id, *text, *recommended, *kind;
	char **options; /* NULL-terminated */
	bool needs_person; /* credentials, money, irreversible: never answered by default */
};

struct questions {
	struct question *questions;
	size_t count;
};

/*
 * ORCH_EPARSE: every error in the message as "NAME:LINE: reason", one per line; `name` is what the document is
 * called there ("spec.xml"). `schema_dir` holds spec.rng, checks.rng, plan.rng.
 */
int32_t spec_parse(const char *schema_dir, const char *name, const void *bytes, size_t length,
		   struct spec **ret_spec, orch_error **reterr);
/* Also: each requirement of spec has a check, each check's requirement exists, files are plain relative paths. */
int32_t checks_parse(const char *schema_dir, const char *name, const void *bytes, size_t length,
		     const struct spec *spec, struct checks **ret_checks, orch_error **reterr);
/*
 * Also: ids exist, no cycle, every requirement of spec is in a task and has a check, tasks that may overlap in time have
 * disjoint write sets. `operation_allowed` is asked for each operation type.
 */
int32_t plan_parse(const char *schema_dir, const char *name, const void *bytes, size_t length,
		   const struct spec *spec, const struct checks *checks,
		   bool (*operation_allowed)(void *userdata, const char *type), void *userdata,
		   struct plan **ret_plan, orch_error **reterr);
int32_t questions_parse(const char *name, const void *bytes, size_t length,
			struct questions **ret_questions, orch_error **reterr);
/*
 * {"answers":{ID:TEXT}}: `ret_answers` is a new JSON object ID -> TEXT with only non-empty answers. Unknown ids give
 * ORCH_ENOENT when `questions` is not NULL.
 */
int32_t answers_parse(const char *name, const void *bytes, size_t length,
		      const struct questions *questions, json_t **ret_answers, orch_error **reterr);
/* {"veto":bool,"reasons":[...]} */
int32_t review_parse(const char *name, const void *bytes, size_t length, bool *ret_veto, char **ret_reasons,
		     orch_error **reterr);

/* All take NULL, return NULL. */
struct spec *spec_free(struct spec *spec);
struct checks *checks_free(struct checks *checks);
struct plan *plan_free(struct plan *plan);
struct questions *questions_free(struct questions *questions);

/* Markdown for people; the caller frees. NULL without memory. */
char *spec_markdown(const struct spec *spec);
char *plan_markdown(const struct plan *plan);
char *tasks_markdown(const struct plan *plan);

/* True if `path` is inside the write set (NULL-terminated; "dir/" prefixes, "." for all). */
bool write_set_covers(char *const *writes, const char *path);

#endif
