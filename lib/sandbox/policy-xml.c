/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy as a document. It is applied to a copy, which the sandbox takes over when all of it fits.
 */
#include <errno.h>
#include <fcntl.h>
#include <libxml/relaxng.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/xml.h"
#include "policy-schema.h"
#include "sandbox-private.h"
#include "spec.h"

#define MOST_BYTES (16u << 20)

struct reading {
	const char *name; /* for messages */
	orch_sandbox *copy;
	orch_error **reterr;
	int32_t code; /* the first error's */
};

static int32_t fail_at(struct reading *reading, long line, const char *message)
{
	int length = message ? (int)strcspn(message, "\n") : 0;

	if (reading->code == 0)
		reading->code = orch_fail(reading->reterr, ORCH_EINVAL, 0, "policy", "%s:%ld: %.*s", reading->name, line,
					  length, message ? message : "");
	return reading->code;
}

/* --- the document --------------------------------------------------------------------------- */

static void on_fault(void *userdata, long line, const char *message)
{
	fail_at(userdata, line, message);
}

static void on_invalid(void *userdata, xmlError *error)
{
	fail_at(userdata, error->line, error->message);
}

static int32_t validate(struct reading *reading, xmlDoc *document)
{
	xmlRelaxNG *schema = NULL;
	xmlRelaxNGValidCtxt *validator = NULL;

	pthread_mutex_lock(&orch_schema_lock);
	xmlRelaxNGParserCtxt *parser =
		xmlRelaxNGNewMemParserCtxt((const char *)orch_policy_schema, (int)orch_policy_schema_length);

	if (parser)
		schema = xmlRelaxNGParse(parser);
	if (schema)
		validator = xmlRelaxNGNewValidCtxt(schema);
	if (validator) {
		xmlRelaxNGSetValidStructuredErrors(validator, (xmlStructuredErrorFunc)on_invalid, reading);
		if (xmlRelaxNGValidateDoc(validator, document))
			fail_at(reading, 1, "not as the schema says");
	} else {
		reading->code = orch_fail_memory(reading->reterr);
	}
	if (validator)
		xmlRelaxNGFreeValidCtxt(validator);
	if (schema)
		xmlRelaxNGFree(schema);
	if (parser)
		xmlRelaxNGFreeParserCtxt(parser);
	pthread_mutex_unlock(&orch_schema_lock);
	return reading->code;
}

/* --- its elements, of which the schema says what is in them ----------------------------------- */

struct element {
	xmlNode *node;
	xmlChar *values[3];
};

/* NULL: absent. Lives until the element is closed. */
static const char *value_of(struct element *element, const char *name)
{
	size_t at = 0;

	while (element->values[at])
		at++;
	element->values[at] = xmlGetNoNsProp(element->node, (const xmlChar *)name);
	return (const char *)element->values[at];
}

static uint32_t access_of(const char *list)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} names[] = {{"read", ORCH_PATH_READ}, {"write", ORCH_PATH_WRITE}, {"exec", ORCH_PATH_EXEC}, {"own", ORCH_PATH_OWN}};
	uint32_t access = 0;

	for (const char *word = list; word && *word; word += strspn(word, " \t\r\n")) {
		size_t length = strcspn(word, " \t\r\n");

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (length == strlen(names[i].name) && strncmp(word, names[i].name, length) == 0)
				access |= names[i].bit;
		word += length;
	}
	return list ? access : ORCH_PATH_READ;
}

static int32_t take_path(struct reading *reading, struct element *element, orch_error **reterr)
{
	const char *host = value_of(element, "host"), *inner = value_of(element, "inner");

	return orch_sandbox_add_path(reading->copy, host, inner, access_of(value_of(element, "access")), reterr);
}

static int32_t take_deny(struct reading *reading, struct element *element, orch_error **reterr)
{
	return orch_sandbox_deny_path(reading->copy, value_of(element, "path"), reterr);
}

static int32_t take_workspace(struct reading *reading, struct element *element, orch_error **reterr)
{
	const char *host = value_of(element, "host"), *inner = value_of(element, "inner"), *kind = value_of(element, "kind");

	return kind && strcmp(kind, "overlay") == 0
		       ? orch_sandbox_set_overlay(reading->copy, host, inner, reterr)
		       : orch_sandbox_set_workspace(reading->copy, host, inner, reterr);
}

static int32_t take_env(struct reading *reading, struct element *element, orch_error **reterr)
{
	const char *name = value_of(element, "name");

	return orch_sandbox_set_env(reading->copy, name, value_of(element, "value"), reterr);
}

static int32_t take_protection(struct reading *reading, struct element *element, orch_error **reterr)
{
	const char *name = value_of(element, "name"), *level = value_of(element, "level");

	return orch_sandbox_set_protection(reading->copy, name,
					   !level || strcmp(level, "required") == 0 ? ORCH_PROTECT_REQUIRED
					   : strcmp(level, "off") == 0		    ? ORCH_PROTECT_OFF
										    : ORCH_PROTECT_DEGRADABLE,
					   reterr);
}

static bool number_of(const xmlNode *node, const char *name, uint64_t *ret_number)
{
	xmlChar *text = xmlGetNoNsProp(node, (const xmlChar *)name);

	if (text)
		*ret_number = strtoull((const char *)text, NULL, 10);
	xmlFree(text);
	return text != NULL;
}

static int32_t take_limits(struct reading *reading, struct element *element, orch_error **reterr)
{
	struct orch_sandbox_opts *opts = &reading->copy->opts;
	uint64_t number = 0;

	(void)reterr;
	number_of(element->node, "memory-mib", &opts->max_memory_mib);
	number_of(element->node, "file-mib", &opts->max_file_mib);
	number_of(element->node, "tmp-mib", &opts->tmp_mib);
	if (number_of(element->node, "processes", &number))
		opts->max_processes = (uint32_t)number;
	if (number_of(element->node, "open-files", &number))
		opts->max_open_files = (uint32_t)number;
	if (number_of(element->node, "cpu-percent", &number))
		opts->max_cpu_percent = (uint32_t)number;
	if (number_of(element->node, "time-ms", &number))
		opts->time_limit_ms = (int64_t)number;
	return 0;
}

static int32_t take_root(struct reading *reading, struct element *element, orch_error **reterr)
{
	struct orch_sandbox_opts *opts = &reading->copy->opts;
	const char *root = value_of(element, "root"), *net = value_of(element, "net");
	int32_t code = 0;

	if (root)
		opts->root = strcmp(root, "empty") == 0 ? ORCH_ROOT_EMPTY : ORCH_ROOT_TOOLS;
	if (net)
		opts->net = strcmp(net, "broker") == 0 ? ORCH_NET_BROKER : ORCH_NET_NONE;
	/* Rules that are there already may lie where the other root has something. */
	for (size_t i = 0; code == 0 && i < reading->copy->path_count; i++)
		if (!orch_rule_denies(&reading->copy->paths[i]))
			code = orch_sandbox_check_free(reading->copy, reading->copy->paths[i].inner, reterr);
	return code;
}

static int32_t take(struct reading *reading, xmlNode *node)
{
	static const struct {
		const char *name;
		int32_t (*take)(struct reading *reading, struct element *element, orch_error **reterr);
	} kinds[] = {{"policy", take_root}, {"limits", take_limits}, {"protection", take_protection}, {"env", take_env},
		     {"path", take_path},   {"deny", take_deny},     {"workspace", take_workspace}};
	struct element element = {.node = node};
	size_t before = reading->copy->path_count;
	orch_error *error = NULL;
	int32_t code = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp((const char *)node->name, kinds[i].name) == 0)
			code = kinds[i].take(reading, &element, &error);
	for (size_t i = 0; i < sizeof(element.values) / sizeof(element.values[0]); i++)
		xmlFree(element.values[i]);
	if (code == ORCH_ENOMEM)
		reading->code = orch_fail_memory(reading->reterr);
	else if (code < 0)
		fail_at(reading, xmlGetLineNo(node), orch_error_message(error));
	orch_error_free(error);
	if (reading->code == 0 && reading->copy->path_count > before) {
		char **source = &reading->copy->paths[before].source;

		*source = orch_strdup_printf("%s:%ld", reading->name, xmlGetLineNo(node));
		if (!*source)
			reading->code = orch_fail_memory(reading->reterr);
	}
	return reading->code;
}

static void take_all(struct reading *reading, xmlDoc *document)
{
	xmlNode *root = xmlDocGetRootElement(document);

	take(reading, root);
	for (xmlNode *node = root->children; reading->code == 0 && node; node = node->next)
		if (node->type == XML_ELEMENT_NODE)
			take(reading, node);
}

/* --- all or nothing ------------------------------------------------------------------------- */

#define SWAP(member)                                                                                                          \
	do {                                                                                                                  \
		__typeof__(one->member) kept_ = one->member;                                                                  \
		one->member = other->member;                                                                                  \
		other->member = kept_;                                                                                        \
	} while (0)

static void swap_policies(orch_sandbox *one, orch_sandbox *other)
{
	SWAP(opts);
	SWAP(opts.label); /* stays */
	SWAP(paths);
	SWAP(path_count);
	SWAP(path_slots);
	SWAP(path_slot_count);
	SWAP(cwd);
	SWAP(has_overlay);
	SWAP(variables);
	SWAP(variable_count);
	for (size_t i = 0; i < SANDBOX_PROTECTIONS; i++)
		SWAP(levels[i]);
}

int32_t orch_sandbox_read_policy(orch_sandbox *sandbox, const void *xml, size_t length, const char *name,
				 orch_error **reterr)
{
	struct reading reading = {.name = name ? name : "policy", .reterr = reterr};
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code == 0 && !xml)
		code = orch_fail(reterr, ORCH_EINVAL, 0, "policy", "xml is NULL");
	if (code == 0 && length > MOST_BYTES)
		code = orch_fail(reterr, ORCH_ETOOBIG, 0, "policy", "%s has more than %u bytes", reading.name, MOST_BYTES);
	if (code == 0 && length == 0)
		code = fail_at(&reading, 1, "the document is empty");
	if (code == 0)
		code = orch_sandbox_copy(sandbox, &reading.copy, reterr);
	if (code < 0)
		return code;
	xmlDoc *document = orch_xml_parse(xml, length, on_fault, &reading);

	if (!document && reading.code == 0)
		reading.code = orch_fail_memory(reterr);
	if (reading.code == 0)
		validate(&reading, document);
	if (reading.code == 0)
		take_all(&reading, document);
	if (reading.code == 0)
		swap_policies(sandbox, reading.copy);
	if (document)
		xmlFreeDoc(document);
	orch_sandbox_unref(reading.copy);
	return reading.code;
}

int32_t orch_sandbox_load_policy(orch_sandbox *sandbox, const char *path, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf bytes = {0};
	char part[8192];
	ssize_t got = 0;
	int32_t code = orch_sandbox_check_builder(sandbox, reterr);

	if (code == 0 && !path)
		code = orch_fail(reterr, ORCH_EINVAL, 0, "policy", "path is NULL");
	if (code < 0)
		return code;
	/* A pipe without a writer is read as empty. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	while (fd >= 0 && bytes.length <= MOST_BYTES && (got = read(fd, part, sizeof(part))) > 0)
		orch_buf_add(&bytes, part, (size_t)got);
	if (fd < 0 || got < 0)
		return orch_fail(reterr, fd < 0 && errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno, "policy",
				 "policy %s can not be read", path);
	if (bytes.failed)
		return orch_fail_memory(reterr);
	return orch_sandbox_read_policy(sandbox, bytes.data ? bytes.data : "", bytes.length, path, reterr);
}
