/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_DOCUMENT_PRIVATE_H
#define ORCH_DOCUMENT_PRIVATE_H

#include <libxml/tree.h>

#include "document.h"

#define DOCUMENT_BYTES_MAX (1024 * 1024)
#define DOCUMENT_TASKS_MAX 200
#define DOCUMENT_WRITES_MAX 64 /* of one task */
#define DOCUMENT_FAULTS_MAX 40 /* described; the rest is only counted */

/* --- what is wrong with a document ----------------------------------------------------------- */

struct faults {
	const char *document; /* what it is called in messages */
	struct orch_buf text;
	size_t count;
	long last_line;
};

void fault_add(struct faults *faults, long line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 0 without faults, else ORCH_EPARSE (ORCH_ENOMEM). Frees the text. */
int32_t faults_close(struct faults *faults, orch_error **reterr);
/* ORCH_ETOOBIG and ORCH_EINVAL before anything is parsed. */
int32_t document_check_size(const char *name, const void *bytes, size_t length,
			    orch_error **reterr);

/* --- words ----------------------------------------------------------------------------------- */

#define ID_EXPECTED "a letter and then up to 31 of A-Z a-z 0-9 . _ -"

bool is_id(const char *text);
/* NULL if it may be written, else what is wrong with it. "." and "dir/" are fine. */
const char *write_path_fault(const char *path);
/* A copy without white space at its ends; NULL without memory. */
char *text_trimmed(const char *text);
char **list_free(char **list);
/* Appends a copy; the list stays NULL-terminated. */
bool list_add(char ***list, size_t *count, const char *text);

/* --- XML ------------------------------------------------------------------------------------- */

enum attribute_kind {
	ATTRIBUTE_ID = 1,
	ATTRIBUTE_TITLE,
	ATTRIBUTE_CHOICE,
	ATTRIBUTE_SECONDS,
	ATTRIBUTE_CHECK_FILE,
	ATTRIBUTE_WRITE_PATH,
	ATTRIBUTE_NAME,
};

struct shape_attribute {
	const char *name;
	enum attribute_kind kind;
	bool required;
	const char *choices; /* "http|cli" */
};

/* What an element looks like, for messages that a model can act on; the schema has the last word.
 */
struct shape {
	const char *name, *parent; /* the first of a table is the root: parent NULL */
	const char *form;	   /* how it is written */
	/* Elements in it, in order: "a b+" is one <a>, then one or more <b>; "*" stands for all
	 * others. NULL: none */
	const char *children;
	bool text; /* has text that must not be empty */
	struct shape_attribute attributes[7];
};

/*
 * Parses without DTD, entities or network, checks against the shapes and against
 * schema_dir/schema_file. Faults go to `faults`, then *ret_document stays NULL. ORCH_ENOMEM;
 * ORCH_ENOENT, ORCH_ECORRUPT: the schema itself.
 */
int32_t xml_load(const char *schema_dir, const char *schema_file, const char *namespace_uri,
		 const struct shape *shapes, size_t shape_count, const void *bytes, size_t length,
		 struct faults *faults, xmlDoc **ret_document, orch_error **reterr);
xmlNode *xml_first(const xmlNode *parent, const char *name);
xmlNode *xml_next(const xmlNode *node, const char *name);
size_t xml_count(const xmlNode *parent, const char *name);
/* malloc()ed; NULL: absent, or no memory. */
char *xml_attribute(xmlNode *node, const char *name);
/* Text, trimmed if asked. */
char *xml_text(xmlNode *node, bool trim);

static inline void xml_document_cleanup(xmlDoc **document)
{
	if (*document)
		xmlFreeDoc(*document);
}
#define _cleanup_xml_ __attribute__((cleanup(xml_document_cleanup)))

#endif
