/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <libxml/parser.h>
#include <libxml/xpath.h>
#include <stdio.h>

#include "pipeline/report.h"
#include "pipeline/verify-text.h"

/* Each is a member's value somewhere; in the report all of it has to be text. */
#define HOSTILE "<script>alert(1)</script>\"'&amp;\x1b[31m\xe2\x80\xae%s%n]]>--><style>"

static json_t *sample(const char *text)
{
	json_t *report =
	    json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "run", text, "state", "PARTIAL",
		      "reason", text, "idea", text, "description", text, "started_at_ms",
		      (json_int_t)1772366400000, "ended_at_ms", (json_int_t)1772366431500);
	json_object_set_new(report, "channels",
			    json_pack("[{s:s, s:s, s:s, s:s, s:s, s:s}]", "channel", text, "state",
				      "enforced", "mechanism", text, "probe", "passed", "control",
				      "passed", "detail", text));
	json_object_set_new(
	    report, "attempts",
	    json_pack("[{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:f, s:i, s:i}]", "id", text,
		      "role", text, "stage", text, "task", text, "attempt", 2, "end", text,
		      "message", text, "verdict", "DEAD", "certificate", text, "seconds", 1.5,
		      "tokens", 1234567, "micro_usd", 12300));
	json_object_set_new(
	    report, "verifications",
	    json_pack("[{s:s, s:s, s:s, s:[{s:s, s:s, s:b, s:s, s:i, s:i, s:s, s:i},"
		      "{s:s, s:s, s:b, s:s, s:i, s:i, s:s, s:i}, {s:s, s:s, s:s}], s:[s]}]",
		      "id", "V1", "task", text, "tree", "feed", "results", "check", "C1",
		      "requirement", text, "hidden", 1, "verdict", "FAIL", "passed", 1, "failed", 2,
		      "detail", text, "ms", 1200, "check", "C2", "requirement", "R2", "hidden", 0,
		      "verdict", "PASS", "passed", 1, "failed", 0, "detail", "", "ms", 800, "check",
		      "C3", "verdict", "ERROR", "detail", text, "certificates", text));
	json_object_set_new(report, "unknown_actions",
			    json_pack("[{s:s, s:s, s:s, s:s, s:s}]", "kind", text, "key", text,
				      "state_before", "DISPATCHED", "probe", text, "decision",
				      text));
	json_object_set_new(report, "requirements",
			    json_pack("[{s:s, s:s, s:s, s:[s, s], s:s, s:s, s:s, s:i}]", "id", "R1",
				      "title", text, "state", "verified", "checks", "C1", text,
				      "tree", "feed", "commit", text, "task", text, "micro_usd",
				      5));
	json_object_set_new(report, "tasks",
			    json_pack("[{s:s, s:s, s:s, s:i, s:[s], s:s}]", "id", "T1", "title",
				      text, "state", "BLOCKED", "attempts", 3, "requirements", text,
				      "reason", text));
	json_object_set_new(report, "seals",
			    json_pack("{s:s, s:s}", "spec", text, "checks", "beef"));
	json_object_set_new(report, "questions",
			    json_pack("[{s:s, s:s, s:s, s:s}]", "id", "Q1", "text", text, "answer",
				      text, "by", "user"));
	json_object_set_new(
	    report, "spent",
	    json_pack("{s:i, s:i, s:i}", "requests", 7, "tokens", 9, "micro_usd", 1000));
	json_object_set_new(report, "product",
			    json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:[s], s:[s]}", "path", text,
				      "commit", "cafe", "branch", text, "tree", "feed", "title",
				      text, "kind", "http", "start", text, "fetch", text));
	json_object_set_new(
	    report, "invariants",
	    json_pack("[{s:s, s:b, s:s}]", "name", text, "holds", 0, "detail", text));
	json_object_set_new(
	    report, "reviews",
	    json_pack("[{s:s, s:b, s:[s]}]", "task", text, "veto", 1, "reasons", text));
	json_object_set_new(report, "own_tests",
			    json_pack("[{s:s, s:s, s:i, s:b, s:s, s:s}]", "which", text, "tree",
				      text, "tests", 3, "passed", 1, "output", text, "certificate",
				      text));
	json_object_set_new(report, "earlier_note", json_string(text));
	json_object_set_new(report, "base", json_pack("{s:s, s:s}", "repo", text, "commit", text));
	ck_assert_uint_eq(json_object_size(report), 22);
	return report;
}

static unsigned occurrences(const char *text, const char *what)
{
	unsigned count = 0;
	for (const char *found = text; (found = strstr(found, what)); found++)
		count++;
	return count;
}

/* The element names of a well-formed part are only those of the renderer: what came with the model
 * is text. */
START_TEST(html_escapes_everything)
{
	json_t *hostile = sample(HOSTILE), *plain = sample("word");
	char *bad = report_html(hostile), *good = report_html(plain);
	ck_assert_ptr_nonnull(bad);
	ck_assert_ptr_nonnull(good);
	/* The control: the text is there, so the next lines look at something. */
	ck_assert_uint_gt(
	    occurrences(bad, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;amp;"), 30);
	ck_assert_uint_eq(occurrences(bad, "<script"), 0);
	ck_assert_uint_eq(occurrences(bad, "<"), occurrences(good, "<"));
	ck_assert_uint_eq(occurrences(bad, "\""), occurrences(good, "\""));
	ck_assert_uint_eq(occurrences(bad, "<style>"), 1);
	ck_assert_uint_eq(occurrences(bad, "\x1b"), 0);
	ck_assert_uint_eq(occurrences(bad, "\xe2\x80\xae"), 0);
	ck_assert_uint_gt(occurrences(bad, "%s%n"), 30);
	free(bad), free(good);
	json_decref(hostile), json_decref(plain);
}
END_TEST

START_TEST(html_is_self_contained_and_in_order)
{
	static const char *const order[] = {
	    "<h1",
	    "The idea",
	    "id=\"channels\"",
	    "id=\"attempts\"",
	    "id=\"unknown\"",
	    "id=\"requirements\"",
	    "id=\"tasks\"",
	    "id=\"verifications\"",
	    "id=\"questions\"",
	    "id=\"seals\"",
	    "id=\"spending\"",
	    "id=\"product\"",
	};
	json_t *report = sample("word");
	char *page = report_html(report);
	const char *position = page;
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		position = strstr(position, order[i]);
		ck_assert_msg(position != NULL, "%s is missing or out of order", order[i]);
	}
	ck_assert_uint_eq(occurrences(page, "http:") + occurrences(page, "https:"), 0);
	ck_assert_uint_eq(occurrences(page, "url("), 0);
	ck_assert_uint_eq(occurrences(page, " src="), 0);
	ck_assert_ptr_nonnull(strstr(page, "Partial</h1>"));
	ck_assert_ptr_nonnull(strstr(page, "$0.0123"));
	ck_assert_ptr_nonnull(strstr(page, "broken"));
	free(page);
	json_decref(report);
}
END_TEST

static char *page_of_verification(const char *purpose, const char *first, const char *second)
{
	json_t *report = json_pack("{s:[{s:s, s:s, s:[{s:s, s:s}, {s:s, s:s}]}]}", "verifications",
				   "id", "x", "purpose", purpose, "results", "check", "C1",
				   "verdict", first, "check", "C2", "verdict", second);
	char *page = report_html(report);
	json_decref(report);
	return page;
}

START_TEST(what_must_fail_is_good_when_it_fails)
{
	static const struct {
		const char *purpose, *first, *second, *chip;
	} rows[] = {
	    {"stub", "fail", "timeout", "chip good\">2 of 2 fail<"},
	    {"base", "fail", "pass", "chip bad\">1 of 2 fail<"},
	    {"base", "fail", "error", "chip bad\">1 of 2 fail<"},
	    {"merged", "pass", "pass", "chip good\">2 of 2 pass<"},
	    {"merged", "pass", "fail", "chip bad\">1 of 2 pass<"},
	    {"accept", "pass", "error", "chip bad\">1 of 2 pass<"},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *page = page_of_verification(rows[i].purpose, rows[i].first, rows[i].second);
		ck_assert_msg(strstr(page, rows[i].chip) != NULL, "%s %s %s: no %s",
			      rows[i].purpose, rows[i].first, rows[i].second, rows[i].chip);
		free(page);
	}
}
END_TEST

START_TEST(any_model_is_rendered)
{
	static const char *const models[] = {
	    "{}",
	    "{\"channels\":null,\"product\":null,\"state\":7,\"idea\":[]}",
	    "{\"channels\":[1,\"x\",null,{}],\"attempts\":[[]],\"verifications\":[{\"results\":["
	    "null],"
	    "\"certificates\":[{\"a\":1},3]}],\"requirements\":[{\"checks\":[1,null]}],\"tasks\":{}"
	    ","
	    "\"product\":{\"fetch\":[1,null]},\"invariants\":[{}],\"spent\":[]}",
	};
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		json_t *model = json_loads(models[i], 0, NULL);
		ck_assert_ptr_nonnull(model);
		char *page = report_html(model), *text = report_text(model, 80),
		     *junit = report_junit(model);
		ck_assert_ptr_nonnull(strstr(page, "</html>"));
		ck_assert_ptr_nonnull(strstr(text, "Not finished"));
		ck_assert_ptr_nonnull(strstr(junit, "<testsuites"));
		free(page), free(text), free(junit);
		json_decref(model);
	}
}
END_TEST

static double number(xmlXPathContext *context, const char *expression)
{
	xmlXPathObject *object = xmlXPathEvalExpression(BAD_CAST expression, context);
	ck_assert_ptr_nonnull(object);
	double value = xmlXPathCastToNumber(object);
	xmlXPathFreeObject(object);
	return value;
}

START_TEST(junit_is_well_formed_and_counts)
{
	json_t *report = sample(HOSTILE);
	char *text = report_junit(report);
	xmlDoc *document =
	    xmlReadMemory(text, (int)strlen(text), "junit.xml", NULL, XML_PARSE_NONET);
	ck_assert_ptr_nonnull(document);
	xmlXPathContext *context = xmlXPathNewContext(document);
	ck_assert(number(context, "count(/testsuites/testsuite)") == 1);
	ck_assert(number(context, "count(//testcase)") == 3);
	ck_assert(number(context, "count(//testcase/failure)") == 1);
	ck_assert(number(context, "count(//testcase/error)") == 1);
	ck_assert(number(context, "number(/testsuites/@tests)") == 3);
	ck_assert(number(context, "number(/testsuites/@failures)") == 1);
	ck_assert(number(context, "number(//testsuite/@errors)") == 1);
	ck_assert(number(context, "number(//testcase[@name='C1']/@time)") == 1.2);
	ck_assert(number(context, "count(//*[starts-with(name(), 'script')])") == 0);
	ck_assert(number(context, "count(//failure[contains(., '<script>alert(1)')])") == 1);
	xmlXPathFreeContext(context);
	xmlFreeDoc(document);
	free(text);
	json_decref(report);
}
END_TEST

static size_t characters(const char *text, size_t length)
{
	size_t count = 0;
	for (size_t i = 0; i < length; i++)
		count += (text[i] & 0xc0) != 0x80;
	return count;
}

START_TEST(text_keeps_to_the_columns)
{
	static const unsigned widths[] = {0, 20, 21, 40, 80, 132};
	static const char *const texts[] = {
	    HOSTILE, "two words", "onewordthatislongerthantwentycolumnsofaterminal",
	    "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc"
	    "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc"};
	for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
		json_t *report = sample(texts[t]);
		for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
			unsigned columns = widths[w] < 20 ? 20 : widths[w];
			char *text = report_text(report, widths[w]);
			for (const char *line = text; *line;) {
				size_t length = strcspn(line, "\n");
				ck_assert_msg(characters(line, length) <= columns,
					      "%u columns: %.*s", columns, (int)length, line);
				line += length + (line[length] == '\n');
			}
			ck_assert_uint_eq(occurrences(text, "\x1b"), 0);
			free(text);
		}
		json_decref(report);
	}
}
END_TEST

static void remove_blanks(char *text)
{
	char *end = text;
	for (; *text; text++)
		if (*text != ' ' && *text != '\n')
			*end++ = *text;
	*end = '\0';
}

START_TEST(wrapping_loses_nothing)
{
	json_t *report = sample("some words, and onewordthatislongerthantwentycolumnsofaterminal");
	char *narrow = report_text(report, 20), *wide = report_text(report, 400);
	remove_blanks(narrow);
	remove_blanks(wide);
	ck_assert_str_eq(narrow, wide);
	ck_assert_ptr_nonnull(strstr(wide, "attempt2"));
	free(narrow), free(wide);
	json_decref(report);
}
END_TEST

START_TEST(wide_characters_take_two_columns)
{
	json_t *report = json_pack("{s:s}", "idea",
				   "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
				   "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2");
	char *text = report_text(report, 20);
	for (const char *line = text; *line;) {
		size_t length = strcspn(line, "\n");
		if ((unsigned char)line[length ? length - 1 : 0] >= 0x80)
			ck_assert_uint_le(length, 27 + 2); /* nine of three bytes, and the indent */
		line += length + (line[length] == '\n');
	}
	ck_assert_uint_eq(occurrences(text, "\xe6\xbc\xa2"), 10);
	free(text);
	json_decref(report);
}
END_TEST

static void expect_text(const char *bytes, size_t length, bool plain, const char *expected)
{
	struct orch_buf buf = {0};
	text_append(&buf, bytes, length, plain);
	ck_assert_str_eq(buf.data, expected);
	json_t *string = json_stringn(buf.data, buf.length);
	ck_assert_ptr_nonnull(string); /* jansson takes well-formed UTF-8 only */
	json_decref(string);
	orch_buf_free(&buf);
}

START_TEST(foreign_bytes_become_text)
{
#define R "\xef\xbf\xbd"
	expect_text("plain\n", 6, true, "plain\n");
	expect_text("a\x1b[0m", 5, true, "a" R "[0m");
	expect_text("a\x1b[0m", 5, false, "a\x1b[0m");
	expect_text("\xff\xfe", 2, false, R R);
	expect_text("\xc3", 1, false, R);		    /* cut short */
	expect_text("\xc0\xaf", 2, false, R R);		    /* overlong */
	expect_text("\xed\xa0\x80", 3, false, R R R);	    /* surrogate */
	expect_text("\xf4\x90\x80\x80", 4, false, R R R R); /* past the end */
	expect_text("\xf0\x9f\x8c\x8d!", 5, true, "\xf0\x9f\x8c\x8d!");
	expect_text("\xe2\x80\xaex", 4, true, R "x");
	expect_text("\xef\xbf\xbe", 3, true, R);
	expect_text("\xc2\x9bx", 3, true, R "x"); /* a CSI in one byte for some terminals */
#undef R
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("report");
	TCase *tcase = tcase_create("report");
	tcase_add_test(tcase, html_escapes_everything);
	tcase_add_test(tcase, html_is_self_contained_and_in_order);
	tcase_add_test(tcase, what_must_fail_is_good_when_it_fails);
	tcase_add_test(tcase, any_model_is_rendered);
	tcase_add_test(tcase, junit_is_well_formed_and_counts);
	tcase_add_test(tcase, text_keeps_to_the_columns);
	tcase_add_test(tcase, wrapping_loses_nothing);
	tcase_add_test(tcase, wide_characters_take_two_columns);
	tcase_add_test(tcase, foreign_bytes_become_text);
	suite_add_tcase(suite, tcase);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
