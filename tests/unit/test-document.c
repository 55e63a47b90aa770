/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <libxml/xmlerror.h>
#include <stdio.h>

#include "pipeline/document.h"

static char schemas[4096];

static const char spec_text[] =
    "<?xml version=\"1.0\"?>\n"
    "<spec xmlns=\"urn:orch:spec:1\" name=\"shelf\" title=\"A &lt;book&gt; shelf\">\n"
    "  <summary> Keeps books. </summary>\n"
    "  <!-- of two kinds --><product kind=\"http\"><start><arg>python3</arg><arg>-c</arg><arg> x "
    "</arg>"
    "<arg></arg></start></product>\n"
    "  <requirement id=\"R1\" title=\"Health\">GET /health answers 200.</requirement>\n"
    "  <requirement id=\"R2\" title=\"Search\"><![CDATA[GET /search?q=<text>]]></requirement>\n"
    "</spec>\n";
static const char checks_text[] = "<checks xmlns=\"urn:orch:checks:1\">\n"
				  "<check id=\"C1\" requirement=\"R1\" visibility=\"visible\" "
				  "file=\"checks/c1.py\" timeout-s=\"600\"/>\n"
				  "<check id=\"C2\" requirement=\"R2\" visibility=\"hidden\" "
				  "file=\"checks/sub/c2.py\" restart=\"yes\"/>\n"
				  "</checks>\n";
static const char plan_text[] =
    "<plan xmlns=\"urn:orch:plan:1\">\n"
    "<task id=\"T1\" title=\"Skeleton\"><description>Do it.</description>\n"
    "  <requirement ref=\"R1\"/><write path=\"shelf/\"/></task>\n"
    "<task id=\"T2\" title=\"Search\"><description>And that.</description>\n"
    "  <requirement ref=\"R2\"/><after ref=\"T1\"/><write path=\"shelf/search.py\"/>\n"
    "  <operation type=\"notify.send\" key=\"announce\"/></task>\n"
    "</plan>\n";

static bool only_notify(void *userdata, const char *type)
{
	(void)userdata;
	return !strcmp(type, "notify.send");
}

static struct spec *good_spec(void)
{
	struct spec *spec = NULL;
	orch_error *error = NULL;
	int32_t code = spec_parse(schemas, "spec.xml", spec_text, strlen(spec_text), &spec, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	return spec;
}

static struct checks *good_checks(const struct spec *spec)
{
	struct checks *checks = NULL;
	orch_error *error = NULL;
	int32_t code = checks_parse(schemas, "checks.xml", checks_text, strlen(checks_text), spec,
				    &checks, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	return checks;
}

static char *replaced(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	ck_assert_ptr_nonnull(at);
	char *result =
	    orch_strdup_printf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	ck_assert_ptr_nonnull(result);
	return result;
}

static void expect(int32_t code, orch_error *error, int32_t expected, const char *part)
{
	ck_assert_msg(code == expected, "%s (%s), not %s", orch_code_name(code),
		      orch_error_message(error), orch_code_name(expected));
	ck_assert_int_eq(orch_error_code(error), expected);
	ck_assert_msg(strstr(orch_error_message(error), part), "no '%s' in: %s", part,
		      orch_error_message(error));
	orch_error_free(error);
}

#define EXPECT(call, expected, part)                                                               \
	do {                                                                                       \
		orch_error *failure = NULL;                                                        \
		int32_t result = (call);                                                           \
		expect(result, failure, expected, part);                                           \
	} while (0)

START_TEST(reads_a_specification)
{
	struct spec *spec = good_spec();
	ck_assert_str_eq(spec->name, "shelf");
	ck_assert_str_eq(spec->title, "A <book> shelf");
	ck_assert_str_eq(spec->summary, "Keeps books.");
	ck_assert_uint_eq(spec->product_kind, PRODUCT_HTTP);
	ck_assert_str_eq(spec->start[0], "python3");
	ck_assert_str_eq(spec->start[2], " x ");
	ck_assert_str_eq(spec->start[3], "");
	ck_assert_ptr_null(spec->start[4]);
	ck_assert_uint_eq(spec->requirement_count, 2);
	ck_assert_str_eq(spec->requirements[1].text, "GET /search?q=<text>");
	ck_assert_ptr_null(spec_free(spec));
	ck_assert_ptr_null(spec_free(NULL));
}
END_TEST

/* What is replaced in the good specification, and what the message must have. */
static const struct {
	const char *from, *to, *part;
} spec_faults[] = {
    {"</spec>", "", "spec.xml:8: not well-formed XML"},
    {"</spec>", "</spec><spec/>", "spec.xml:7: not well-formed XML"},
    {"&lt;", "&evil;", "Entity 'evil' not defined"},
    {"<spec ", "<!DOCTYPE spec [<!ENTITY a \"b\">]><spec ",
     "spec.xml:2: a document type declaration"},
    {"<spec ", "<!DOCTYPE spec SYSTEM \"file:///etc/passwd\"><spec ",
     "a document type declaration"},
    {"urn:orch:spec:1", "urn:else", "expected <spec xmlns=\"urn:orch:spec:1\">"},
    {" name=\"shelf\"", "", "spec.xml:2: <spec> has no attribute \"name\""},
    {"id=\"R1\"", "id=\"1 R\"", "spec.xml:5: <requirement> has id=\"1 R\": expected a letter"},
    {"id=\"R2\"", "id=\"R1\"", "spec.xml:6: the requirement id \"R1\" is used twice"},
    {"kind=\"http\"", "kind=\"gui\"", "spec.xml:4: <product> has kind=\"gui\": expected http|cli"},
    {"kind=\"http\"", "kind=\"http\" port=\"1\"", "unknown attribute \"port\""},
    {" Keeps books. ", " ", "spec.xml:3: <summary> is empty"},
    {"<summary>", "<note>x</note><summary>", "spec.xml:3: <note> is not allowed in <spec>"},
    {"<summary> Keeps books. </summary>", "", "spec.xml:2: <spec> has no <summary>"},
    {"<summary> Keeps books. </summary>",
     "<requirement id=\"R0\" title=\"x\">y</requirement><summary>x</summary>",
     "spec.xml:3: <summary> is out of order in <spec>"},
    {"<summary>", "<summary>x</summary><summary>",
     "spec.xml:2: <spec> has more than one <summary>"},
    {"<arg>python3</arg>", "<arg/>", "the program in <start> is empty"},
    {"<summary> Keeps books. </summary>", "loose", "<spec> has text where none is allowed"},
    {"<requirement id=\"R1\" title=\"Health\">GET",
     "<requirement id=\"R1\" title=\"Health\"><b/>GET", "<b> is not allowed in <requirement>"},
};

START_TEST(names_what_is_wrong_in_a_specification)
{
	_cleanup_free_ char *text = replaced(spec_text, spec_faults[_i].from, spec_faults[_i].to);
	struct spec *spec = NULL;
	orch_error *error = NULL;
	int32_t code = spec_parse(schemas, "spec.xml", text, strlen(text), &spec, &error);
	expect(code, error, ORCH_EPARSE, spec_faults[_i].part);
	ck_assert_ptr_null(spec);
}
END_TEST

START_TEST(names_all_faults_at_once)
{
	_cleanup_free_ char *one = replaced(spec_text, "id=\"R1\"", "id=\"-\"");
	_cleanup_free_ char *text = replaced(one, "kind=\"http\"", "kind=\"\"");
	struct spec *spec = NULL;
	orch_error *error = NULL;
	ck_assert_int_eq(spec_parse(schemas, "s", text, strlen(text), &spec, &error), ORCH_EPARSE);
	ck_assert_ptr_nonnull(strstr(orch_error_message(error), "s:4: "));
	ck_assert_ptr_nonnull(strstr(orch_error_message(error), "\ns:5: "));
	orch_error_free(error);

	/* Many are counted, not listed. */
	_cleanup_buf_ struct orch_buf buf = {0};
	orch_buf_puts(&buf, "<spec xmlns=\"urn:orch:spec:1\">");
	for (int i = 0; i < 5000; i++)
		orch_buf_puts(&buf, "<x/>\n");
	orch_buf_puts(&buf, "</spec>");
	error = NULL;
	ck_assert_int_eq(spec_parse(schemas, "s", buf.data, buf.length, &spec, &error),
			 ORCH_EPARSE);
	ck_assert_uint_lt(strlen(orch_error_message(error)), 16384);
	ck_assert_ptr_nonnull(strstr(orch_error_message(error), "and 4965 more"));
	orch_error_free(error);
	ck_assert_int_eq(spec_parse(schemas, "s", text, strlen(text), &spec, NULL), ORCH_EPARSE);
}
END_TEST

/* The schema in the folder has the last word: a narrower one refuses what the good one takes. */
START_TEST(asks_the_schema)
{
	static const struct {
		const char *schema;
		int32_t code;
		const char *part;
	} cases[] = {
	    {"<element name='spec' ns='urn:orch:spec:1' "
	     "xmlns='http://relaxng.org/ns/structure/1.0'><text/></element>",
	     ORCH_EPARSE, "spec.xml:"},
	    {"<element name='spec' xmlns='http://relaxng.org/ns/structure/1.0'><ref "
	     "name='x'/></element>",
	     ORCH_ECORRUPT, "is not valid"},
	    {"<element", ORCH_ECORRUPT, "is not valid"},
	};
	char dir[] = "/tmp/test-document-XXXXXX", path[64];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/spec.rng", dir);
	struct spec *spec = NULL;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		FILE *file = fopen(path, "we");
		ck_assert_ptr_nonnull(file);
		fputs(cases[i].schema, file);
		fclose(file);
		EXPECT(spec_parse(dir, "spec.xml", spec_text, strlen(spec_text), &spec, &failure),
		       cases[i].code, cases[i].part);
	}
	ck_assert_ptr_null(spec);
	unlink(path);
	rmdir(dir);
}
END_TEST

START_TEST(refuses_what_is_no_document)
{
	struct spec *spec = NULL;
	_cleanup_free_ char *big = calloc(1, 1024 * 1024 + 1);
	memset(big, ' ', 1024 * 1024 + 1);
	EXPECT(spec_parse(schemas, "s", big, 1024 * 1024 + 1, &spec, &failure), ORCH_ETOOBIG,
	       "1048576");
	EXPECT(spec_parse(schemas, "s", big, 1024 * 1024, &spec, &failure), ORCH_EPARSE, "s:");
	EXPECT(spec_parse(schemas, "s", NULL, 0, &spec, &failure), ORCH_EPARSE,
	       "s:1: the document is empty");
	EXPECT(spec_parse(schemas, "s", "\0\0\0\0", 4, &spec, &failure), ORCH_EPARSE, "s:1: ");
	EXPECT(spec_parse("/nowhere", "s", spec_text, strlen(spec_text), &spec, &failure),
	       ORCH_ENOENT, "/nowhere/spec.rng");
	ck_assert_ptr_null(spec);
}
END_TEST

static int strangers;

static void on_stranger(void *userdata, const char *format, ...)
{
	(void)userdata, (void)format;
	strangers++;
}

START_TEST(leaves_the_hosts_error_handlers_alone)
{
	struct spec *spec = NULL;
	xmlGenericErrorFunc before = xmlGenericError;
	xmlSetGenericErrorFunc(NULL, on_stranger);
	ck_assert_int_eq(spec_parse(schemas, "s", "<spec", 5, &spec, NULL), ORCH_EPARSE);
	_cleanup_free_ char *text = replaced(spec_text, "<summary> Keeps books. </summary>", "");
	ck_assert_int_eq(spec_parse(schemas, "s", text, strlen(text), &spec, NULL), ORCH_EPARSE);
	ck_assert_int_eq(strangers, 0);
	ck_assert(xmlGenericError == on_stranger);
	ck_assert_ptr_null(xmlStructuredError);
	xmlSetGenericErrorFunc(NULL, before);
}
END_TEST

START_TEST(reads_checks)
{
	struct spec *spec = good_spec();
	struct checks *checks = good_checks(spec);
	ck_assert_uint_eq(checks->count, 2);
	ck_assert(!checks->checks[0].hidden && !checks->checks[0].restart);
	ck_assert_uint_eq(checks->checks[0].timeout_s, 600);
	ck_assert(checks->checks[1].hidden && checks->checks[1].restart);
	ck_assert_uint_eq(checks->checks[1].timeout_s, 30);
	ck_assert_str_eq(checks->checks[1].file, "checks/sub/c2.py");
	ck_assert_ptr_null(checks_free(checks));
	spec_free(spec);
}
END_TEST

static const struct {
	const char *from, *to, *part;
} checks_faults[] = {
    {"requirement=\"R1\"", "requirement=\"R9\"",
     "checks.xml:2: check \"C1\" is for the requirement \"R9\""},
    {"requirement=\"R1\"", "requirement=\"R2\"", "requirement \"R1\" has no check"},
    {"id=\"C2\"", "id=\"C1\"", "checks.xml:3: the check id \"C1\" is used twice"},
    {"checks/sub/c2.py", "checks/c1.py", "share the file checks/c1.py"},
    {"checks/c1.py", "checks/../c1.py", "checks.xml:2: <check> has file="},
    {"checks/c1.py", "/checks/c1.py", "under checks/"},
    {"checks/c1.py", "other/c1.py", "under checks/"},
    {"checks/c1.py", "checks/", "under checks/"},
    {"checks/c1.py", "checks/a b", "under checks/"},
    {"timeout-s=\"600\"", "timeout-s=\"601\"", "expected a number from 1 to 600"},
    {"timeout-s=\"600\"", "timeout-s=\"0\"", "expected a number from 1 to 600"},
    {"timeout-s=\"600\"", "timeout-s=\"5s\"", "expected a number from 1 to 600"},
    {"restart=\"yes\"", "restart=\"true\"", "expected yes|no"},
    {"visibility=\"hidden\"", "visibility=\"secret\"", "expected visible|hidden"},
};

START_TEST(names_what_is_wrong_in_checks)
{
	struct spec *spec = good_spec();
	struct checks *checks = NULL;
	orch_error *error = NULL;
	_cleanup_free_ char *text =
	    replaced(checks_text, checks_faults[_i].from, checks_faults[_i].to);
	int32_t code =
	    checks_parse(schemas, "checks.xml", text, strlen(text), spec, &checks, &error);
	expect(code, error, ORCH_EPARSE, checks_faults[_i].part);
	ck_assert_ptr_null(checks);
	spec_free(spec);
}
END_TEST

START_TEST(reads_a_plan)
{
	struct spec *spec = good_spec();
	struct checks *checks = good_checks(spec);
	struct plan *plan = NULL;
	orch_error *error = NULL;
	int32_t code = plan_parse(schemas, "plan.xml", plan_text, strlen(plan_text), spec, checks,
				  only_notify, NULL, &plan, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	ck_assert_uint_eq(plan->count, 2);
	ck_assert_str_eq(plan->tasks[0].writes[0], "shelf/");
	ck_assert_ptr_null(plan->tasks[0].after[0]);
	ck_assert_str_eq(plan->tasks[1].after[0], "T1");
	ck_assert_str_eq(plan->tasks[1].operations[0].key, "announce");
	ck_assert_str_eq(plan->tasks[1].description, "And that.");

	_cleanup_free_ char *plan_page = plan_markdown(plan), *tasks_page = tasks_markdown(plan);
	_cleanup_free_ char *spec_page = spec_markdown(spec);
	ck_assert_ptr_nonnull(strstr(spec_page, "# A &lt;book> shelf\n\nKeeps books.\n"));
	ck_assert_ptr_nonnull(strstr(spec_page, "### R2: Search\n\nGET /search?q=&lt;text>\n"));
	ck_assert_ptr_nonnull(strstr(
	    plan_page, "- writes: `shelf/search.py`\n- operation: notify.send, key announce\n"));
	ck_assert_ptr_nonnull(strstr(tasks_page, "- [ ] T2: Search (R2; after T1)\n"));
	plan_free(plan);
	checks_free(checks);
	spec_free(spec);
}
END_TEST

static const struct {
	const char *from, *to, *part;
} plan_faults[] = {
    {"<requirement ref=\"R2\"/>", "<requirement ref=\"R1\"/>",
     "plan.xml:1: requirement \"R2\" is in no task"},
    {"<requirement ref=\"R2\"/>", "<requirement ref=\"R7\"/>",
     "plan.xml:4: task \"T2\" is for the requirement \"R7\""},
    {"<requirement ref=\"R2\"/>", "", "task \"T2\" has no <requirement"},
    {"<write path=\"shelf/\"/>", "", "plan.xml:2: task \"T1\" has no <write"},
    {"after ref=\"T1\"", "after ref=\"T9\"", "comes after \"T9\", which is not in the plan"},
    {"after ref=\"T1\"", "after ref=\"T2\"", "comes after itself"},
    {"id=\"T2\"", "id=\"T1\"", "the task id \"T1\" is used twice"},
    {"<write path=\"shelf/\"/>", "<write path=\"shelf/\"/><after ref=\"T2\"/>",
     "the tasks wait for each other in a circle: T1 after T2 after T1"},
    {"<after ref=\"T1\"/>", "", "(\"shelf/\", \"shelf/search.py\"): make the paths disjoint"},
    {"notify.send", "pay.send", "the operation \"pay.send\", which the user did not allow"},
    {"</task>\n</plan>", "<operation type=\"notify.send\" key=\"announce\"/></task>\n</plan>",
     "the operation key \"announce\""},
    {"shelf/search.py", "../x",
     "plan.xml:5: <write> has path=\"../x\", but it has a \"..\" segment"},
    {"shelf/search.py", "/etc", "it starts with"},
    {"shelf/search.py", "a//b", "it has \"//\""},
    {"shelf/search.py", "./b", "it has a \".\" segment"},
    {"shelf/search.py", "a/.Git/hooks", "it goes into .git"},
    {"shelf/search.py", "*.py", "patterns are not supported"},
    {"<description>And that.</description>", "", "plan.xml:4: <task> has no <description>"},
};

START_TEST(names_what_is_wrong_in_a_plan)
{
	struct spec *spec = good_spec();
	struct checks *checks = good_checks(spec);
	struct plan *plan = NULL;
	orch_error *error = NULL;
	_cleanup_free_ char *text = replaced(plan_text, plan_faults[_i].from, plan_faults[_i].to);
	int32_t code = plan_parse(schemas, "plan.xml", text, strlen(text), spec, checks,
				  only_notify, NULL, &plan, &error);
	expect(code, error, ORCH_EPARSE, plan_faults[_i].part);
	ck_assert_ptr_null(plan);
	checks_free(checks);
	spec_free(spec);
}
END_TEST

/* Write sets of two tasks, and whether they may run side by side. `link` puts one behind a third
 * task. */
static const struct {
	const char *one, *other;
	bool disjoint;
} overlaps[] = {
    {"a/", "b/", true},	    {"a/", "a/b.py", false}, {"a", "a/b", false},     {"a", "ab", true},
    {"a/", "ab/", true},    {".", "z", false},	     {"a.py", "a.py", false}, {"a/b/", "a/", false},
    {"a/b/", "a/c/", true}, {"a", "a/", false},
};

START_TEST(parallel_tasks_have_disjoint_write_sets)
{
	struct spec *spec = good_spec();
	struct checks *checks = good_checks(spec);
	for (int ordered = 0; ordered < 2; ordered++) {
		struct plan *plan = NULL;
		orch_error *error = NULL;
		_cleanup_free_ char *text = orch_strdup_printf(
		    "<plan xmlns=\"urn:orch:plan:1\">"
		    "<task id=\"A\" title=\"a\"><description>d</description><requirement "
		    "ref=\"R1\"/>"
		    "<write path=\"%s\"/></task>"
		    "<task id=\"M\" title=\"m\"><description>d</description><requirement "
		    "ref=\"R1\"/>"
		    "<after ref=\"A\"/><write path=\"mm\"/></task>"
		    "<task id=\"B\" title=\"b\"><description>d</description><requirement "
		    "ref=\"R2\"/>"
		    "%s<write path=\"%s\"/></task></plan>",
		    overlaps[_i].one, ordered ? "<after ref=\"M\"/>" : "", overlaps[_i].other);
		/* "mm" is not ordered with B: "." must not meet it. */
		bool meets = !ordered && !strcmp(overlaps[_i].other, ".");
		int32_t code = plan_parse(schemas, "p", text, strlen(text), spec, checks, NULL,
					  NULL, &plan, &error);
		if (ordered || (overlaps[_i].disjoint && !meets)) {
			ck_assert_msg(!code, "%s", orch_error_message(error));
			plan_free(plan);
		} else {
			expect(code, error, ORCH_EPARSE, "may run at the same time");
		}
	}
	checks_free(checks);
	spec_free(spec);
}
END_TEST

START_TEST(a_write_set_covers_its_paths)
{
	char *writes[] = {"shelf/", "README.md", NULL}, *all[] = {".", NULL}, *none[] = {NULL};
	ck_assert(write_set_covers(writes, "shelf/a/b.py"));
	ck_assert(write_set_covers(writes, "README.md"));
	ck_assert(!write_set_covers(writes, "shelf"));
	ck_assert(!write_set_covers(writes, "shelfish/a"));
	ck_assert(!write_set_covers(writes, "README.md2"));
	ck_assert(!write_set_covers(writes, "README.md/x"));
	ck_assert(!write_set_covers(writes, ""));
	ck_assert(write_set_covers(all, "x/y"));
	ck_assert(!write_set_covers(none, "x"));
	ck_assert(!write_set_covers(NULL, "x"));
}
END_TEST

START_TEST(reads_questions)
{
	static const char text[] =
	    "{\"questions\":[\n"
	    "{\"id\":\"Q1\",\"text\":\"Which { brace \\\" store?\",\"recommended\":\"sqlite\","
	    "\"options\":[\"sqlite\",\"files\"],\"kind\":\"choice\"},\n"
	    "{\"id\":\"Q2\",\"text\":\"Port?\",\"recommended\":\"8080\"},\n"
	    "{\"id\":\"Q3\",\"text\":\"Card number?\",\"recommended\":\"\",\"kind\":\"money\"}]}";
	struct questions *questions = NULL;
	orch_error *error = NULL;
	int32_t code = questions_parse("q", text, strlen(text), &questions, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	ck_assert_uint_eq(questions->count, 3);
	ck_assert_str_eq(questions->questions[0].options[1], "files");
	ck_assert_str_eq(questions->questions[1].kind, "text");
	ck_assert(!questions->questions[1].needs_person && questions->questions[2].needs_person);

	json_t *answers = NULL;
	static const char given[] = "{\"answers\":{\"Q1\":\"files\",\"Q2\":\" \"}}";
	ck_assert_int_eq(answers_parse("a", given, strlen(given), questions, &answers, NULL), 0);
	ck_assert_uint_eq(json_object_size(answers), 1);
	ck_assert_str_eq(json_string_value(json_object_get(answers, "Q1")), "files");
	json_decref(answers);

	answers = NULL;
	static const char unknown[] = "{\"answers\":{\"Q9\":\"files\"}}";
	EXPECT(answers_parse("a", unknown, strlen(unknown), questions, &answers, &failure),
	       ORCH_ENOENT, "no question \"Q9\": the questions are Q1, Q2, Q3");
	ck_assert_ptr_null(answers);
	ck_assert_int_eq(answers_parse("a", unknown, strlen(unknown), NULL, &answers, NULL), 0);
	json_decref(answers);
	questions_free(questions);
}
END_TEST

static const struct {
	const char *text, *part;
} json_faults[] = {
    {"{\"questions\":[\n{\"id\":\"Q1\",}]}", "q:2: not well-formed JSON"},
    {"", "q:1: not well-formed JSON"},
    {"[]", "q:1: not an object"},
    {"{\"questions\":{}}", "\"questions\" is not a list"},
    {"{\"questions\":[],\"x\":1}", "unknown member \"x\""},
    {"{\"questions\":[],\n\"questions\":[]}", "duplicate"},
    {"{\"questions\":[\n\n{\"id\":\"Q1\",\"text\":\"t\"}]}",
     "q:3: question Q1: \"recommended\" is missing"},
    {"{\"questions\":[\n{\"id\":\"Q1\",\"text\":\"{t\",\"recommended\":\"x\"},\n"
     "{\"id\":\"Q1\",\"text\":\"t\",\"recommended\":\"x\"}]}",
     "q:3: the question id \"Q1\" is used twice"},
    {"{\"questions\":[{\"id\":\"Q 1\",\"text\":\"t\",\"recommended\":\"x\"}]}",
     "expected a letter"},
    {"{\"questions\":[{\"id\":\"Q1\",\"text\":\"t\",\"recommended\":\"x\",\"kind\":\"odd\"}]}",
     "its kind is \"odd\""},
    {"{\"questions\":[{\"id\":\"Q1\",\"text\":\"t\",\"recommended\":\"x\",\"kind\":\"choice\"}]}",
     "at least two options"},
    {"{\"questions\":[{\"id\":\"Q1\",\"text\":\"t\",\"recommended\":\"x\",\"options\":[\"a\",\"b\"]"
     "}]}",
     "not among its options"},
    {"{\"questions\":[1]}", "question 1 is not an object"},
    {"{\"questions\":[1,1,1,1,1,1,1,1]}", "8 questions: at most 7"},
};

START_TEST(names_what_is_wrong_in_questions)
{
	struct questions *questions = NULL;
	const char *text = json_faults[_i].text;
	EXPECT(questions_parse("q", text, strlen(text), &questions, &failure), ORCH_EPARSE,
	       json_faults[_i].part);
	ck_assert_ptr_null(questions);
}
END_TEST

START_TEST(reads_a_review)
{
	bool veto = true;
	char *reasons = NULL;
	ck_assert_int_eq(review_parse("r", "{\"veto\":false}", 14, &veto, &reasons, NULL), 0);
	ck_assert(!veto);
	ck_assert_str_eq(reasons, "");
	free(reasons);
	static const char text[] = "{\"veto\":true,\"reasons\":[\"a\",\"b\"]}";
	ck_assert_int_eq(review_parse("r", text, strlen(text), &veto, &reasons, NULL), 0);
	ck_assert(veto);
	ck_assert_str_eq(reasons, "a\nb");
	free(reasons);

	reasons = NULL;
	static const char *const bad[] = {"{\"veto\":true}", "{\"veto\":\"no\"}", "{}",
					  "{\"veto\":true,\"reasons\":[1]}",
					  "{\"veto\":false,\"reasons\":\"x\"}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		EXPECT(review_parse("r", bad[i], strlen(bad[i]), &veto, &reasons, &failure),
		       ORCH_EPARSE, "r:1: ");
		ck_assert_ptr_null(reasons);
	}
	static const char deep[] = "{\"answers\":{\"Q1\":1}}";
	json_t *answers = NULL;
	EXPECT(answers_parse("a", deep, strlen(deep), NULL, &answers, &failure), ORCH_EPARSE,
	       "\"Q1\" is not a string");
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

int main(void)
{
	const char *root = getenv("ORCH_SOURCE_ROOT");
	snprintf(schemas, sizeof(schemas), "%s/schemas", root ? root : ".");

	Suite *suite = suite_create("document");
	TCase *tests = tcase_create("document");
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, reads_a_specification);
	tcase_add_loop_test(tests, names_what_is_wrong_in_a_specification, 0, COUNT(spec_faults));
	tcase_add_test(tests, names_all_faults_at_once);
	tcase_add_test(tests, asks_the_schema);
	tcase_add_test(tests, refuses_what_is_no_document);
	tcase_add_test(tests, leaves_the_hosts_error_handlers_alone);
	tcase_add_test(tests, reads_checks);
	tcase_add_loop_test(tests, names_what_is_wrong_in_checks, 0, COUNT(checks_faults));
	tcase_add_test(tests, reads_a_plan);
	tcase_add_loop_test(tests, names_what_is_wrong_in_a_plan, 0, COUNT(plan_faults));
	tcase_add_loop_test(tests, parallel_tasks_have_disjoint_write_sets, 0, COUNT(overlaps));
	tcase_add_test(tests, a_write_set_covers_its_paths);
	tcase_add_test(tests, reads_questions);
	tcase_add_loop_test(tests, names_what_is_wrong_in_questions, 0, COUNT(json_faults));
	tcase_add_test(tests, reads_a_review);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
