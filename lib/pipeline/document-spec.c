/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "document-private.h"

#define REQUIREMENTS_MAX 500
#define CHECKS_MAX 1000

#define FORM_SPEC                                                                                  \
	"<spec xmlns=\"urn:orch:spec:1\" name=\"...\" title=\"...\"> with one <summary>, one "     \
	"<product>, then "                                                                         \
	"one or more <requirement>"
#define FORM_SUMMARY "<summary>text</summary>"
#define FORM_PRODUCT                                                                               \
	"<product "                                                                                \
	"kind=\"http|cli\"><start><arg>program</arg><arg>argument</arg></start></product>"
#define FORM_REQUIREMENT "<requirement id=\"R1\" title=\"...\">text</requirement>"

static const struct shape spec_shapes[] = {
    {"spec",
     NULL,
     FORM_SPEC,
     "summary product requirement+",
     false,
     {{"name", ATTRIBUTE_ID, true, NULL}, {"title", ATTRIBUTE_TITLE, true, NULL}}},
    {"summary", "spec", FORM_SUMMARY, NULL, true, {{NULL}}},
    {"product",
     "spec",
     FORM_PRODUCT,
     "start",
     false,
     {{"kind", ATTRIBUTE_CHOICE, true, "http|cli"}}},
    {"start", "product", FORM_PRODUCT, "arg+", false, {{NULL}}},
    {"arg", "start", FORM_PRODUCT, NULL, true, {{NULL}}},
    {"requirement",
     "spec",
     FORM_REQUIREMENT,
     NULL,
     true,
     {{"id", ATTRIBUTE_ID, true, NULL}, {"title", ATTRIBUTE_TITLE, true, NULL}}},
};

#define FORM_CHECKS "<checks xmlns=\"urn:orch:checks:1\"> with one or more <check .../>"
#define FORM_CHECK                                                                                 \
	"<check id=\"C1\" requirement=\"R1\" visibility=\"visible|hidden\" file=\"checks/c1.py\" " \
	"timeout-s=\"30\" restart=\"no|yes\"/> (the last two are optional)"

static const struct shape checks_shapes[] = {
    {"checks", NULL, FORM_CHECKS, "check+", false, {{NULL}}},
    {"check",
     "checks",
     FORM_CHECK,
     NULL,
     false,
     {{"id", ATTRIBUTE_ID, true, NULL},
      {"requirement", ATTRIBUTE_ID, true, NULL},
      {"visibility", ATTRIBUTE_CHOICE, true, "visible|hidden"},
      {"file", ATTRIBUTE_CHECK_FILE, true, NULL},
      {"timeout-s", ATTRIBUTE_SECONDS, false, NULL},
      {"restart", ATTRIBUTE_CHOICE, false, "yes|no"}}},
};

/* --- specification --------------------------------------------------------------------------- */

static const struct requirement *find_requirement(const struct spec *spec, size_t limit,
						  const char *id)
{
	for (size_t i = 0; i < limit; i++)
		if (!strcmp(spec->requirements[i].id, id))
			return &spec->requirements[i];
	return NULL;
}

static bool read_start(struct spec *spec, const xmlNode *start, struct faults *faults)
{
	size_t count = 0;
	for (xmlNode *arg = xml_first(start, "arg"); arg; arg = xml_next(arg, "arg")) {
		_cleanup_free_ char *text = xml_text(arg, false);
		if (!text || !list_add(&spec->start, &count, text))
			return false;
		if (count == 1 && !*text)
			fault_add(faults, xmlGetLineNo(arg),
				  "the program in <start> is empty: expected %s", FORM_PRODUCT);
	}
	return true;
}

static bool read_requirements(struct spec *spec, const xmlNode *root, struct faults *faults)
{
	spec->requirements = calloc(xml_count(root, "requirement"), sizeof(*spec->requirements));
	if (!spec->requirements)
		return false;
	for (xmlNode *node = xml_first(root, "requirement"); node;
	     node = xml_next(node, "requirement")) {
		struct requirement *requirement = &spec->requirements[spec->requirement_count++];
		requirement->id = xml_attribute(node, "id");
		requirement->title = xml_attribute(node, "title");
		requirement->text = xml_text(node, true);
		if (!requirement->id || !requirement->title || !requirement->text)
			return false;
		if (find_requirement(spec, spec->requirement_count - 1, requirement->id))
			fault_add(faults, xmlGetLineNo(node),
				  "the requirement id \"%s\" is used twice: give each its own",
				  requirement->id);
	}
	if (spec->requirement_count > REQUIREMENTS_MAX)
		fault_add(faults, xmlGetLineNo(root), "%zu requirements: at most %d are allowed",
			  spec->requirement_count, REQUIREMENTS_MAX);
	return true;
}

static struct spec *read_spec(const xmlDoc *document, struct faults *faults)
{
	xmlNode *root = xmlDocGetRootElement(document);
	xmlNode *product = xml_first(root, "product");
	struct spec *spec = calloc(1, sizeof(*spec));
	if (!spec)
		return NULL;
	_cleanup_free_ char *kind = xml_attribute(product, "kind");
	spec->name = xml_attribute(root, "name");
	spec->title = xml_attribute(root, "title");
	spec->summary = xml_text(xml_first(root, "summary"), true);
	if (!kind || !spec->name || !spec->title || !spec->summary ||
	    !read_start(spec, xml_first(product, "start"), faults) ||
	    !read_requirements(spec, root, faults))
		return spec_free(spec);
	spec->product_kind = strcmp(kind, "http") ? PRODUCT_CLI : PRODUCT_HTTP;
	return spec;
}

int32_t spec_parse(const char *schema_dir, const char *name, const void *bytes, size_t length,
		   struct spec **ret_spec, orch_error **reterr)
{
	struct faults faults = {.document = name};
	_cleanup_xml_ xmlDoc *document = NULL;
	struct spec *spec = NULL;

	int32_t code = document_check_size(name, bytes, length, reterr);
	if (code < 0)
		return code;
	code = xml_load(schema_dir, "spec.rng", "urn:orch:spec:1", spec_shapes,
			sizeof(spec_shapes) / sizeof(*spec_shapes), bytes, length, &faults,
			&document, reterr);
	if (document) {
		spec = read_spec(document, &faults);
		if (!spec)
			code = orch_fail_memory(reterr);
	}
	int32_t faulty = faults_close(&faults, code < 0 ? NULL : reterr);
	if (code < 0 || faulty < 0) {
		spec_free(spec);
		return code < 0 ? code : faulty;
	}
	*ret_spec = spec;
	return 0;
}

/* --- checks ---------------------------------------------------------------------------------- */

static bool read_check(struct check *check, xmlNode *node)
{
	_cleanup_free_ char *visibility = xml_attribute(node, "visibility");
	_cleanup_free_ char *timeout = xml_attribute(node, "timeout-s");
	_cleanup_free_ char *restart = xml_attribute(node, "restart");
	check->id = xml_attribute(node, "id");
	check->requirement = xml_attribute(node, "requirement");
	check->file = xml_attribute(node, "file");
	check->hidden = visibility && !strcmp(visibility, "hidden");
	check->restart = restart && !strcmp(restart, "yes");
	check->timeout_s = timeout ? (uint32_t)strtoul(timeout, NULL, 10) : 30;
	return visibility && check->id && check->requirement && check->file;
}

static void judge_check(const struct checks *checks, const struct spec *spec, long line,
			struct faults *faults)
{
	const struct check *check = &checks->checks[checks->count - 1];
	if (!find_requirement(spec, spec->requirement_count, check->requirement))
		fault_add(faults, line,
			  "check \"%s\" is for the requirement \"%s\", which the specification "
			  "does not have",
			  check->id, check->requirement);
	for (size_t i = 0; i + 1 < checks->count; i++) {
		if (!strcmp(checks->checks[i].id, check->id))
			fault_add(faults, line,
				  "the check id \"%s\" is used twice: give each its own",
				  check->id);
		if (!strcmp(checks->checks[i].file, check->file))
			fault_add(faults, line,
				  "checks \"%s\" and \"%s\" share the file %s: give each its own",
				  checks->checks[i].id, check->id, check->file);
	}
}

static struct checks *read_checks(const xmlDoc *document, const struct spec *spec,
				  struct faults *faults)
{
	xmlNode *root = xmlDocGetRootElement(document);
	struct checks *checks = calloc(1, sizeof(*checks));
	size_t count = xml_count(root, "check");
	if (checks)
		checks->checks = calloc(count, sizeof(*checks->checks));
	if (!checks || !checks->checks)
		return checks_free(checks);
	if (count > CHECKS_MAX) {
		fault_add(faults, xmlGetLineNo(root), "%zu checks: at most %d are allowed", count,
			  CHECKS_MAX);
		return checks;
	}
	for (xmlNode *node = xml_first(root, "check"); node; node = xml_next(node, "check")) {
		if (!read_check(&checks->checks[checks->count++], node))
			return checks_free(checks);
		judge_check(checks, spec, xmlGetLineNo(node), faults);
	}
	for (size_t i = 0; i < spec->requirement_count; i++) {
		const char *id = spec->requirements[i].id;
		size_t c = 0;
		while (c < checks->count && strcmp(checks->checks[c].requirement, id))
			c++;
		if (c == checks->count)
			fault_add(faults, xmlGetLineNo(root),
				  "requirement \"%s\" has no check: add a <check> with "
				  "requirement=\"%s\"",
				  id, id);
	}
	return checks;
}

int32_t checks_parse(const char *schema_dir, const char *name, const void *bytes, size_t length,
		     const struct spec *spec, struct checks **ret_checks, orch_error **reterr)
{
	struct faults faults = {.document = name};
	_cleanup_xml_ xmlDoc *document = NULL;
	struct checks *checks = NULL;

	int32_t code = document_check_size(name, bytes, length, reterr);
	if (code < 0)
		return code;
	code = xml_load(schema_dir, "checks.rng", "urn:orch:checks:1", checks_shapes,
			sizeof(checks_shapes) / sizeof(*checks_shapes), bytes, length, &faults,
			&document, reterr);
	if (document) {
		checks = read_checks(document, spec, &faults);
		if (!checks)
			code = orch_fail_memory(reterr);
	}
	int32_t faulty = faults_close(&faults, code < 0 ? NULL : reterr);
	if (code < 0 || faulty < 0) {
		checks_free(checks);
		return code < 0 ? code : faulty;
	}
	*ret_checks = checks;
	return 0;
}
