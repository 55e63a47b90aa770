/* SPDX-License-Identifier: Apache-2.0 */
/* Loading XML. */
#include <errno.h>
#include <fcntl.h>
#include <libxml/parser.h>
#include <libxml/relaxng.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../core/xml.h"
#include "document-private.h"

struct loader {
	struct faults *faults;
	const struct shape *shapes;
	size_t shape_count;
	const char *namespace_uri;
};

static const struct shape *shape_of(const struct loader *loader, const char *name)
{
	for (size_t i = 0; i < loader->shape_count; i++)
		if (!strcmp(loader->shapes[i].name, name))
			return &loader->shapes[i];
	return NULL;
}

static void on_fault(void *userdata, long line, const char *message)
{
	struct loader *loader = userdata;
	fault_add(loader->faults, line, "%s", message);
}

/* --- shapes ---------------------------------------------------------------------------------- */

static bool is_choice(const char *value, const char *choices)
{
	size_t length = strlen(value);
	for (const char *choice = choices;; choice++) {
		size_t span = strcspn(choice, "|");
		if (length == span && !strncmp(value, choice, span))
			return true;
		choice += span;
		if (!*choice)
			return false;
	}
}

static bool is_name(const char *value)
{
	size_t span =
	    strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
	return span && span <= 64 && !value[span] && !strchr("._-", *value);
}

static bool is_check_file(const char *value)
{
	if (strncmp(value, "checks/", 7) || strlen(value) > 207 || write_path_fault(value))
		return false;
	return value[strlen(value) - 1] != '/' &&
	       !value[strspn(value,
			     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/")];
}

static void check_value(struct loader *loader, long line, const char *element,
			const struct shape_attribute *attribute, const char *value)
{
	const char *expected = NULL, *fault = NULL;
	switch (attribute->kind) {
	case ATTRIBUTE_ID:
		expected = is_id(value) ? NULL : ID_EXPECTED;
		break;
	case ATTRIBUTE_TITLE:
		expected =
		    value[strspn(value, " \t\r\n")] && xmlUTF8Strlen((const xmlChar *)value) <= 200
			? NULL
			: "1 to 200 characters";
		break;
	case ATTRIBUTE_CHOICE:
		expected = is_choice(value, attribute->choices) ? NULL : attribute->choices;
		break;
	case ATTRIBUTE_SECONDS: {
		char *end;
		long seconds = strtol(value, &end, 10);
		expected = *value && !*end && seconds >= 1 && seconds <= 600
			       ? NULL
			       : "a number from 1 to 600";
		break;
	}
	case ATTRIBUTE_CHECK_FILE:
		expected = is_check_file(value) ? NULL
						: "a path like checks/c1.py: under checks/, of A-Z "
						  "a-z 0-9 . _ - and /, no \"..\"";
		break;
	case ATTRIBUTE_WRITE_PATH:
		fault = write_path_fault(value);
		if (fault)
			expected = "a relative path such as \"shelf/app.py\", \"shelf/\" for a "
				   "folder, \".\" for all";
		break;
	case ATTRIBUTE_NAME:
		expected = is_name(value)
			       ? NULL
			       : "a letter or digit and then up to 63 of A-Z a-z 0-9 . _ -";
		break;
	}
	if (expected)
		fault_add(loader->faults, line, "<%s> has %s=\"%.100s\"%s%s: expected %s", element,
			  attribute->name, value, fault ? ", but " : "", fault ? fault : "",
			  expected);
}

static void check_attributes(struct loader *loader, xmlNode *node, const struct shape *shape)
{
	long line = xmlGetLineNo(node);
	for (const struct shape_attribute *attribute = shape->attributes; attribute->name;
	     attribute++) {
		_cleanup_free_ char *value = xml_attribute(node, attribute->name);
		if (value)
			check_value(loader, line, shape->name, attribute, value);
		else if (attribute->required)
			fault_add(loader->faults, line, "<%s> has no attribute \"%s\": expected %s",
				  shape->name, attribute->name, shape->form);
	}
	for (const xmlAttr *found = node->properties; found; found = found->next) {
		const struct shape_attribute *attribute = shape->attributes;
		while (attribute->name && strcmp(attribute->name, (const char *)found->name))
			attribute++;
		if (!attribute->name || found->ns)
			fault_add(loader->faults, line,
				  "<%s> has an unknown attribute \"%.100s\": expected %s",
				  shape->name, (const char *)found->name, shape->form);
	}
}

static bool is_ours(const struct loader *loader, const xmlNode *node)
{
	return node->ns && node->ns->href &&
	       !strcmp((const char *)node->ns->href, loader->namespace_uri);
}

/* The place of `name` in a list of children, or of "*". */
static size_t place_of(const char *children, const char *name)
{
	size_t place = 0, length = strlen(name);
	for (const char *item = children; *item; place++) {
		size_t span = strcspn(item, "+ ");
		if ((span == length && !strncmp(item, name, span)) || *item == '*')
			return place;
		item += strcspn(item, " ");
		item += *item == ' ';
	}
	return place;
}

static void check_children(struct loader *loader, xmlNode *node, const struct shape *shape)
{
	size_t before = 0;
	for (xmlNode *child = node->children; child; child = child->next) {
		if (child->type != XML_ELEMENT_NODE)
			continue;
		size_t place = place_of(shape->children, (const char *)child->name);
		if (place < before)
			fault_add(loader->faults, xmlGetLineNo(child),
				  "<%s> is out of order in <%s>: expected %s",
				  (const char *)child->name, shape->name, shape->form);
		before = place > before ? place : before;
	}
	for (const char *item = shape->children; *item && *item != '*'; item += *item == ' ') {
		char name[32];
		size_t span = strcspn(item, "+ ");
		snprintf(name, sizeof(name), "%.*s", (int)span, item);
		size_t count = xml_count(node, name);
		if (!count || (count > 1 && item[span] != '+'))
			fault_add(loader->faults, xmlGetLineNo(node),
				  "<%s> has %s <%s>: expected %s", shape->name,
				  count ? "more than one" : "no", name, shape->form);
		item += span + (item[span] == '+');
	}
}

/* Depth is bounded by the parser (256). */
static void check_element(struct loader *loader, xmlNode *node, const struct shape *shape)
{
	check_attributes(loader, node, shape);
	bool has_text = false;
	for (xmlNode *child = node->children; child; child = child->next) {
		if (child->type == XML_TEXT_NODE) {
			if (xmlIsBlankNode(child))
				continue;
			has_text = true;
			if (!shape->text)
				fault_add(loader->faults, xmlGetLineNo(child),
					  "<%s> has text where none is allowed: expected %s",
					  shape->name, shape->form);
		} else if (child->type == XML_ELEMENT_NODE) {
			const char *name = (const char *)child->name;
			const struct shape *inner =
			    is_ours(loader, child) ? shape_of(loader, name) : NULL;
			if (inner && inner->parent && !strcmp(inner->parent, shape->name))
				check_element(loader, child, inner);
			else
				fault_add(loader->faults, xmlGetLineNo(child),
					  "<%.100s> is not allowed in <%s>: expected %s", name,
					  shape->name, shape->form);
		}
	}
	if (shape->children)
		check_children(loader, node, shape);
	/* An empty argument of a command is one, an empty description says nothing. */
	if (shape->text && !has_text && strcmp(shape->name, "arg"))
		fault_add(loader->faults, xmlGetLineNo(node), "<%s> is empty: expected %s",
			  shape->name, shape->form);
}

static void check_shape(struct loader *loader, xmlDoc *document)
{
	xmlNode *root = xmlDocGetRootElement(document);
	if (!root || strcmp((const char *)root->name, loader->shapes->name) ||
	    !is_ours(loader, root)) {
		fault_add(loader->faults, root ? xmlGetLineNo(root) : 1,
			  "the root element is <%.100s> in the namespace \"%.100s\": expected <%s "
			  "xmlns=\"%s\">",
			  root ? (const char *)root->name : "",
			  root && root->ns && root->ns->href ? (const char *)root->ns->href : "",
			  loader->shapes->name, loader->namespace_uri);
		return;
	}
	check_element(loader, root, loader->shapes);
}

/* --- schema ---------------------------------------------------------------------------------- */

static void on_schema_error(void *userdata, xmlError *error)
{
	struct orch_buf *text = userdata;
	orch_buf_printf(text, "%sline %d: %.200s", text->length ? "; " : "", error->line,
			error->message);
}

static void on_invalid(void *userdata, xmlError *error)
{
	struct loader *loader = userdata;
	const xmlNode *node = error->node;
	while (node && node->type != XML_ELEMENT_NODE)
		node = node->parent;
	const struct shape *shape = node ? shape_of(loader, (const char *)node->name) : NULL;
	fault_add(loader->faults, error->line, "%s%s%s",
		  error->message ? error->message : "not as the schema says",
		  shape ? " - expected " : "", shape ? shape->form : "");
}

static int32_t read_schema(const char *path, struct orch_buf *bytes, orch_error **reterr)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char part[8192];
	ssize_t got = -1;
	while (fd >= 0 && (got = read(fd, part, sizeof(part))) > 0 &&
	       bytes->length < DOCUMENT_BYTES_MAX)
		orch_buf_add(bytes, part, (size_t)got);
	if (got)
		return orch_fail(
		    reterr, ORCH_ENOENT, got < 0 ? errno : 0, NULL,
		    "the schema %s can not be read: give the folder of liborch's schemas", path);
	return bytes->failed ? orch_fail_memory(reterr) : 0;
}

static int32_t validate(struct loader *loader, const char *path, xmlDoc *document,
			orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf bytes = {0}, trouble = {0};
	xmlDoc *schema_document = NULL;
	xmlRelaxNGParserCtxt *parser = NULL;
	xmlRelaxNG *schema = NULL;
	xmlRelaxNGValidCtxt *validator = NULL;

	int32_t code = read_schema(path, &bytes, reterr);
	if (code < 0)
		return code;
	pthread_mutex_lock(&orch_schema_lock);
	schema_document = xmlReadMemory(bytes.data, (int)bytes.length, NULL, NULL,
					XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
	parser = schema_document ? xmlRelaxNGNewDocParserCtxt(schema_document) : NULL;
	if (parser) {
		xmlRelaxNGSetParserStructuredErrors(parser, (xmlStructuredErrorFunc)on_schema_error,
						    &trouble);
		schema = xmlRelaxNGParse(parser);
	}
	if (!schema) {
		code = orch_fail(reterr, ORCH_ECORRUPT, 0, NULL, "the schema %s is not valid: %s",
				 path, trouble.length ? trouble.data : "not well-formed");
		goto out;
	}
	validator = xmlRelaxNGNewValidCtxt(schema);
	if (!validator) {
		code = orch_fail_memory(reterr);
		goto out;
	}
	xmlRelaxNGSetValidStructuredErrors(validator, (xmlStructuredErrorFunc)on_invalid, loader);
	if (xmlRelaxNGValidateDoc(validator, document) && !loader->faults->count)
		fault_add(loader->faults, 1, "not as the schema says: expected %s",
			  loader->shapes->form);
out:
	if (validator)
		xmlRelaxNGFreeValidCtxt(validator);
	if (schema)
		xmlRelaxNGFree(schema);
	if (parser)
		xmlRelaxNGFreeParserCtxt(parser);
	if (schema_document)
		xmlFreeDoc(schema_document);
	pthread_mutex_unlock(&orch_schema_lock);
	return code;
}

int32_t xml_load(const char *schema_dir, const char *schema_file, const char *namespace_uri,
		 const struct shape *shapes, size_t shape_count, const void *bytes, size_t length,
		 struct faults *faults, xmlDoc **ret_document, orch_error **reterr)
{
	struct loader loader = {.faults = faults,
				.shapes = shapes,
				.shape_count = shape_count,
				.namespace_uri = namespace_uri};
	if (!schema_dir)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "no schema folder given");
	_cleanup_free_ char *path = orch_strdup_printf("%s/%s", schema_dir, schema_file);
	if (!path)
		return orch_fail_memory(reterr);
	if (!length) {
		fault_add(faults, 1, "the document is empty: expected %s", shapes->form);
		return 0;
	}

	_cleanup_xml_ xmlDoc *document = orch_xml_parse(bytes, length, on_fault, &loader);
	if (!document && !faults->count)
		return orch_fail_memory(reterr);
	if (!faults->count)
		check_shape(&loader, document);
	/* The schema speaks in terms of patterns: it is asked when the plainer check found nothing.
	 */
	if (!faults->count) {
		int32_t code = validate(&loader, path, document, reterr);
		if (code < 0)
			return code;
	}
	if (!faults->count)
		*ret_document = ORCH_STEAL(document);
	return 0;
}

/* --- reading --------------------------------------------------------------------------------- */

static xmlNode *find(xmlNode *node, const char *name)
{
	while (node && (node->type != XML_ELEMENT_NODE || strcmp((const char *)node->name, name)))
		node = node->next;
	return node;
}

xmlNode *xml_first(const xmlNode *parent, const char *name)
{
	return find(parent->children, name);
}

xmlNode *xml_next(const xmlNode *node, const char *name)
{
	return find(node->next, name);
}

size_t xml_count(const xmlNode *parent, const char *name)
{
	size_t count = 0;
	for (const xmlNode *node = xml_first(parent, name); node; node = xml_next(node, name))
		count++;
	return count;
}

static char *own(xmlChar *text, bool trim)
{
	char *copy = NULL;
	if (text)
		copy = trim ? text_trimmed((const char *)text) : strdup((const char *)text);
	xmlFree(text);
	return copy;
}

char *xml_attribute(xmlNode *node, const char *name)
{
	return own(xmlGetNoNsProp(node, (const xmlChar *)name), false);
}

char *xml_text(xmlNode *node, bool trim)
{
	return own(xmlNodeGetContent(node), trim);
}
