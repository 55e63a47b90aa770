/* SPDX-License-Identifier: Apache-2.0 */
#include <libxml/tree.h>
#include <stdio.h>
#include <strings.h>

#include "report-private.h"
#include "verify-text.h"

struct totals {
	unsigned tests, failures, errors;
	double seconds;
};

/* libxml2 escapes, but it writes characters that XML does not have. */
static char *fit(const char *text)
{
	_cleanup_buf_ struct orch_buf buf = {0};
	text_append(&buf, text, strlen(text), true);
	return buf.failed ? NULL : buf.data ? ORCH_STEAL(buf.data) : strdup("");
}

static void attribute(xmlNode *node, const char *name, const char *value)
{
	_cleanup_free_ char *clean = fit(value);
	xmlNewProp(node, BAD_CAST name, BAD_CAST(clean ? clean : ""));
}

static void attribute_count(xmlNode *node, const char *name, unsigned value)
{
	char text[16];
	snprintf(text, sizeof(text), "%u", value);
	attribute(node, name, text);
}

static void attribute_seconds(xmlNode *node, double seconds)
{
	char text[64];
	snprintf(text, sizeof(text), "%.3f", seconds);
	attribute(node, "time", text);
}

static void attribute_totals(xmlNode *node, const struct totals *totals)
{
	attribute_count(node, "tests", totals->tests);
	attribute_count(node, "failures", totals->failures);
	attribute_count(node, "errors", totals->errors);
	attribute_count(node, "skipped", 0);
	attribute_seconds(node, totals->seconds);
}

static void property(xmlNode *properties, const char *name, const char *value)
{
	xmlNode *node = xmlNewChild(properties, NULL, BAD_CAST "property", NULL);
	attribute(node, "name", name);
	attribute(node, "value", value);
}

static void add_case(xmlNode *suite, const json_t *result, struct totals *totals)
{
	const char *verdict = report_string(result, "verdict");
	const char *detail = report_string(result, "detail");
	double seconds = report_number(result, "ms") / 1000;
	xmlNode *node = xmlNewChild(suite, NULL, BAD_CAST "testcase", NULL);
	attribute(node, "classname", report_string(result, "requirement"));
	attribute(node, "name", report_string(result, "check"));
	attribute_seconds(node, seconds);
	totals->tests++;
	totals->seconds += seconds;
	if (strcasecmp(verdict, "pass") == 0)
		return;
	bool failure = strcasecmp(verdict, "fail") == 0 || strcasecmp(verdict, "timeout") == 0;
	if (failure)
		totals->failures++;
	else
		totals->errors++;
	_cleanup_free_ char *clean = fit(detail);
	xmlNode *reason = xmlNewTextChild(node, NULL, BAD_CAST(failure ? "failure" : "error"),
					  BAD_CAST(clean ? clean : ""));
	_cleanup_free_ char *first = strndup(detail, strcspn(detail, "\n"));
	attribute(reason, "message", first ? first : "");
	attribute(reason, "type", *verdict ? verdict : "missing");
}

static void add_suite(xmlNode *root, const json_t *verification, struct totals *all)
{
	const json_t *results = report_array(verification, "results");
	struct totals totals = {0};
	const json_t *result;
	size_t index;
	const char *task = report_string(verification, "task");

	xmlNode *suite = xmlNewChild(root, NULL, BAD_CAST "testsuite", NULL);
	bool must_fail;
	_cleanup_free_ char *name = report_verification_name(verification, &must_fail);
	attribute(suite, "name", name ? name : "");
	xmlNode *properties = xmlNewChild(suite, NULL, BAD_CAST "properties", NULL);
	property(properties, "task", task);
	property(properties, "tree", report_string(verification, "tree"));
	json_array_foreach(results, index, result) add_case(suite, result, &totals);
	attribute_totals(suite, &totals);
	all->tests += totals.tests;
	all->failures += totals.failures;
	all->errors += totals.errors;
	all->seconds += totals.seconds;
}

char *report_junit(const json_t *report)
{
	struct totals totals = {0};
	const json_t *verification;
	size_t index;
	xmlDoc *document = xmlNewDoc(BAD_CAST "1.0");
	xmlNode *root = document ? xmlNewNode(NULL, BAD_CAST "testsuites") : NULL;
	if (!root) {
		xmlFreeDoc(document);
		return NULL;
	}
	xmlDocSetRootElement(document, root);
	attribute(root, "name", report_string(report, "run"));
	json_array_foreach(report_array(report, "verifications"), index, verification)
	    add_suite(root, verification, &totals);
	attribute_totals(root, &totals);

	xmlChar *bytes = NULL;
	int length = 0;
	xmlDocDumpFormatMemoryEnc(document, &bytes, &length, "UTF-8", 1);
	xmlFreeDoc(document);
	/* A copy, so that the caller frees it like everything else, whatever xmlMemSetup()
	 * installed. */
	char *text = bytes ? strdup((const char *)bytes) : NULL;
	xmlFree(bytes);
	return text;
}
