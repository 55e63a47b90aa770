/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <strings.h>

#include "report-private.h"
#include "verify-text.h"

/* --- markup -------------------------------------------------------------------------------- */

static void add_escaped(struct orch_buf *page, const char *text)
{
	_cleanup_buf_ struct orch_buf clean = {0};
	text_append(&clean, text, strlen(text), true);
	if (clean.failed)
		page->failed = true;
	for (size_t i = 0; i < clean.length; i++) {
		switch (clean.data[i]) {
		case '&':
			orch_buf_puts(page, "&amp;");
			break;
		case '<':
			orch_buf_puts(page, "&lt;");
			break;
		case '>':
			orch_buf_puts(page, "&gt;");
			break;
		case '"':
			orch_buf_puts(page, "&quot;");
			break;
		case '\'':
			orch_buf_puts(page, "&#39;");
			break;
		default:
			orch_buf_add(page, &clean.data[i], 1);
		}
	}
}

/*
 * The only way text gets into the page: %s is a string, escaped; %d an int64_t; %% a percent sign.
 * There is nothing for text that is not escaped.
 */
static void markup(struct orch_buf *page, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	for (const char *position = format; *position;) {
		size_t plain = strcspn(position, "%");
		orch_buf_add(page, position, plain);
		position += plain;
		if (!*position)
			break;
		if (position[1] == 's') {
			const char *text = va_arg(arguments, const char *);
			add_escaped(page, text ? text : "");
		} else if (position[1] == 'd') {
			orch_buf_printf(page, "%lld", (long long)va_arg(arguments, int64_t));
		} else {
			orch_buf_puts(page, "%");
		}
		position += 2;
	}
	va_end(arguments);
}

static const char *tone_class(int tone)
{
	switch (tone) {
	case TONE_GOOD:
		return "good";
	case TONE_WARN:
		return "warn";
	case TONE_BAD:
		return "bad";
	}
	return "plain";
}

#define CHIP_LENGTH 32u /* a longer word is broken over lines */

static void chip_of(struct orch_buf *page, const char *word, int tone)
{
	markup(page, "<span class=\"chip %s%s\">%s</span>", tone_class(tone),
	       strlen(word) > CHIP_LENGTH ? " long" : "", *word ? word : "none");
}

static void chip(struct orch_buf *page, const char *word)
{
	chip_of(page, word, report_tone(word));
}

/* A word that stands for a result, with its chip, in a cell that keeps its column's name on narrow
 * screens. */
static void chip_cell(struct orch_buf *page, const char *column, const char *word)
{
	markup(page, "<td data-label=\"%s\">", column);
	chip(page, word);
	markup(page, "</td>");
}

static void cell(struct orch_buf *page, const char *column, const char *text)
{
	if (*text)
		markup(page, "<td data-label=\"%s\">%s</td>", column, text);
	else
		markup(page, "<td class=\"none\">\xe2\x80\x93</td>");
}

static void number_cell(struct orch_buf *page, const char *column, char *text)
{
	markup(page, "<td class=\"num\" data-label=\"%s\">%s</td>", column, text);
	free(text);
}

static void hash_cell(struct orch_buf *page, const char *column, const char *hash)
{
	char start[13];
	snprintf(start, sizeof(start), "%s", hash);
	if (*hash)
		markup(page, "<td data-label=\"%s\"><code title=\"%s\">%s</code></td>", column,
		       hash, start);
	else
		cell(page, column, "");
}

static void section(struct orch_buf *page, const char *id, const char *title, const char *lead)
{
	markup(page, "<section id=\"%s\"><h2>%s</h2><p class=\"lead\">%s</p>\n", id, title, lead);
}

/* `columns` is NULL-terminated; a name that starts with '#' is a column of numbers. */
static void table(struct orch_buf *page, const char *const *columns)
{
	markup(page, "<table><thead><tr>");
	for (; *columns; columns++)
		if (**columns == '#')
			markup(page, "<th class=\"num\" scope=\"col\">%s</th>", *columns + 1);
		else
			markup(page, "<th scope=\"col\">%s</th>", *columns);
	markup(page, "</tr></thead><tbody>\n");
}

static void end_table(struct orch_buf *page)
{
	markup(page, "</tbody></table>\n");
}

static void nothing(struct orch_buf *page, const char *text)
{
	markup(page, "<p class=\"nothing\">%s</p>\n", text);
}

static bool is_empty(const json_t *array)
{
	return json_array_size(array) == 0;
}

static void folded(struct orch_buf *page, const char *title, const char *text)
{
	if (*text)
		markup(page, "<details class=\"fold\"><summary>%s</summary><pre>%s</pre></details>",
		       title, text);
}

/* --- head ---------------------------------------------------------------------------------- */

static size_t count_where(const json_t *array, const char *member, const char *value)
{
	size_t index, count = 0;
	const json_t *row;
	json_array_foreach(array, index, row) if (strcmp(report_string(row, member), value) == 0)
	    count++;
	return count;
}

static void tile(struct orch_buf *page, const char *title, const char *value, int tone)
{
	markup(page, "<div class=\"tile %s\"><dt>%s</dt><dd>%s</dd></div>", tone_class(tone), title,
	       value);
}

static void tile_of(struct orch_buf *page, const char *title, const json_t *array,
		    const char *member, const char *value)
{
	size_t all = json_array_size(array), good = count_where(array, member, value);
	_cleanup_free_ char *text = orch_strdup_printf("%zu of %zu", good, all);
	tile(page, title, text, !all ? TONE_NEUTRAL : good == all ? TONE_GOOD : TONE_WARN);
}

static void add_tiles(struct orch_buf *page, const json_t *report)
{
	const json_t *spent = json_object_get(report, "spent");
	double ms = report_number(report, "ended_at_ms") - report_number(report, "started_at_ms");
	_cleanup_free_ char *money = report_money(report_integer(spent, "micro_usd"));
	_cleanup_free_ char *tokens = report_count(report_integer(spent, "tokens"));
	_cleanup_free_ char *time = report_duration(ms / 1000);

	markup(page, "<dl class=\"tiles\">");
	tile_of(page, "Requirements verified", report_array(report, "requirements"), "state",
		"verified");
	tile_of(page, "Channels enforced", report_array(report, "channels"), "state", "enforced");
	tile_of(page, "Attempts proved dead", report_array(report, "attempts"), "verdict", "DEAD");
	tile(page, "Wall time", time, TONE_NEUTRAL);
	tile(page, "Tokens", tokens, TONE_NEUTRAL);
	tile(page, "Money", money, TONE_NEUTRAL);
	markup(page, "</dl>\n");
}

static void add_head(struct orch_buf *page, const json_t *report)
{
	const char *state = report_string(report, "state");
	const char *reason = report_string(report, "reason");
	const char *description = report_string(report, "description");
	const char *title = report_string(json_object_get(report, "product"), "title");
	_cleanup_free_ char *started = report_time(report_integer(report, "started_at_ms"));
	_cleanup_free_ char *ended = report_time(report_integer(report, "ended_at_ms"));

	markup(page, "<header><p class=\"eyebrow\">Report of run <code>%s</code></p>\n",
	       report_string(report, "run"));
	markup(page, "<h1 class=\"%s\">%s</h1>\n", tone_class(report_tone(state)),
	       report_headline(state));
	if (*title)
		markup(page, "<p class=\"title\">%s</p>\n", title);
	if (*reason)
		markup(page, "<p class=\"reason\">%s</p>\n", reason);
	markup(page,
	       "<blockquote><p class=\"label\">The idea</p><p class=\"idea\">%s</p></blockquote>\n",
	       report_string(report, "idea"));
	markup(page, "<p class=\"meta\">");
	if (*description)
		markup(page, "<span>%s</span>", description);
	if (*started)
		markup(page, "<span>from %s</span>", started);
	if (*ended)
		markup(page, "<span>to %s</span>", ended);
	markup(page, "</p>\n");
	add_tiles(page, report);
	markup(page, "</header>\n");
}

/* --- sections ------------------------------------------------------------------------------ */

static void add_channels(struct orch_buf *page, const json_t *report)
{
	static const char *const columns[] = {"Channel",   "State",  "Probe", "Control",
					      "Mechanism", "Detail", NULL};
	const json_t *rows = report_array(report, "channels"), *row;
	size_t index;
	section(page, "channels", "What the sandbox enforces on this host",
		"A probe tries from inside what must not work; its control shows that the same act "
		"works outside. "
		"Policy text is no evidence.");
	if (is_empty(rows))
		nothing(page, "No channel was probed in this run.");
	else
		table(page, columns);
	json_array_foreach(rows, index, row)
	{
		markup(page, "<tr><th scope=\"row\">%s</th>", report_string(row, "channel"));
		chip_cell(page, "State", report_string(row, "state"));
		chip_cell(page, "Probe", report_string(row, "probe"));
		chip_cell(page, "Control", report_string(row, "control"));
		cell(page, "Mechanism", report_string(row, "mechanism"));
		cell(page, "Detail", report_string(row, "detail"));
		markup(page, "</tr>\n");
	}
	if (!is_empty(rows))
		end_table(page);
	markup(page, "</section>\n");
}

static void add_attempt(struct orch_buf *page, const json_t *row)
{
	const char *task = report_string(row, "task");
	const char *message = report_string(row, "message");
	const char *executor = report_string(row, "executor");
	_cleanup_free_ char *time = report_duration(report_number(row, "seconds"));
	_cleanup_free_ char *tokens = report_count(report_integer(row, "tokens"));
	_cleanup_free_ char *money = report_money(report_integer(row, "micro_usd"));

	markup(page, "<details class=\"attempt\"><summary>");
	chip(page, report_string(row, "verdict"));
	markup(page, "<span class=\"who\">%s <i>%s</i>", report_string(row, "role"),
	       report_string(row, "stage"));
	if (*task && strcmp(task, "-") != 0)
		markup(page, " <b>%s</b>", task);
	markup(page, " <small>attempt %d%s%s</small></span>", report_integer(row, "attempt"),
	       *executor ? ", " : "", executor);
	markup(page,
	       "<span class=\"end\">%s</span><span class=\"cost\">%s</span><span class=\"cost\">%s "
	       "tokens</span>"
	       "<span class=\"cost\">%s</span></summary>\n",
	       report_string(row, "end"), time, tokens, money);
	if (*message)
		markup(page, "<p class=\"message\">%s</p>", message);
	markup(page, "<pre>%s</pre></details>\n", report_string(row, "certificate"));
}

static void add_attempts(struct orch_buf *page, const json_t *report)
{
	const json_t *rows = report_array(report, "attempts"), *row;
	size_t index;
	section(page, "attempts", "Attempts and their death certificates",
		"One executor in one sandbox each. An attempt is over when all it started was "
		"proved dead; open a row "
		"for the full certificate.");
	if (is_empty(rows))
		nothing(page, "There was no attempt.");
	markup(page, "<div class=\"list\">\n");
	json_array_foreach(rows, index, row) add_attempt(page, row);
	markup(page, "</div></section>\n");
}

static void add_unknown(struct orch_buf *page, const json_t *report)
{
	static const char *const columns[] = {"Action", "Key",	    "State before",
					      "Probe",	"Decision", NULL};
	const json_t *rows = report_array(report, "unknown_actions"), *row;
	size_t index;
	section(page, "unknown", "Actions whose outcome was unknown",
		"After a failure the coordinator first finds out what happened, and only then "
		"decides.");
	if (is_empty(rows)) {
		nothing(page, "None: the outcome of every action is known.");
		markup(page, "</section>\n");
		return;
	}
	table(page, columns);
	json_array_foreach(rows, index, row)
	{
		markup(page, "<tr><th scope=\"row\">%s</th>", report_string(row, "kind"));
		cell(page, "Key", report_string(row, "key"));
		cell(page, "State before", report_string(row, "state_before"));
		cell(page, "Probe", report_string(row, "probe"));
		cell(page, "Decision", report_string(row, "decision"));
		markup(page, "</tr>\n");
	}
	end_table(page);
	markup(page, "</section>\n");
}

static void add_requirements(struct orch_buf *page, const json_t *report)
{
	static const char *const columns[] = {"Requirement", "Title", "State", "Evidence", "Tree",
					      "Commit",	     "Task",  "#Cost", NULL};
	const json_t *rows = report_array(report, "requirements"), *row;
	size_t index;
	section(page, "requirements", "Requirements, their evidence, their commit",
		"A requirement is verified when its checks passed on the tree that was delivered.");
	if (is_empty(rows)) {
		nothing(page, "No specification was frozen.");
		markup(page, "</section>\n");
		return;
	}
	table(page, columns);
	json_array_foreach(rows, index, row)
	{
		_cleanup_free_ char *checks = report_join(report_array(row, "checks"), ", ");
		markup(page, "<tr><th scope=\"row\">%s</th>", report_string(row, "id"));
		cell(page, "Title", report_string(row, "title"));
		chip_cell(page, "State", report_string(row, "state"));
		cell(page, "Evidence", checks ? checks : "");
		hash_cell(page, "Tree", report_string(row, "tree"));
		hash_cell(page, "Commit", report_string(row, "commit"));
		cell(page, "Task", report_string(row, "task"));
		number_cell(page, "Cost", report_money(report_integer(row, "micro_usd")));
		markup(page, "</tr>\n");
	}
	end_table(page);
	markup(page, "</section>\n");
}

static void add_tasks(struct orch_buf *page, const json_t *report)
{
	static const char *const columns[] = {"Task",	      "Title",	"State", "#Attempts",
					      "Requirements", "Reason", NULL};
	const json_t *rows = report_array(report, "tasks"), *row;
	size_t index;
	section(page, "tasks", "Tasks",
		"Only the verifier makes a task verified; nothing an executor says does.");
	if (is_empty(rows)) {
		nothing(page, "No plan was accepted.");
		markup(page, "</section>\n");
		return;
	}
	table(page, columns);
	json_array_foreach(rows, index, row)
	{
		_cleanup_free_ char *requirements =
		    report_join(report_array(row, "requirements"), ", ");
		markup(page, "<tr><th scope=\"row\">%s</th>", report_string(row, "id"));
		cell(page, "Title", report_string(row, "title"));
		chip_cell(page, "State", report_string(row, "state"));
		number_cell(page, "Attempts", report_count(report_integer(row, "attempts")));
		cell(page, "Requirements", requirements ? requirements : "");
		cell(page, "Reason", report_string(row, "reason"));
		markup(page, "</tr>\n");
	}
	end_table(page);
	markup(page, "</section>\n");
}

static void add_certificates(struct orch_buf *page, const json_t *certificates)
{
	size_t index;
	const json_t *value;
	if (is_empty(certificates))
		return;
	int64_t count = (int64_t)json_array_size(certificates);
	markup(page, "<details class=\"fold\"><summary>%d death certificate%s</summary>", count,
	       count == 1 ? "" : "s");
	json_array_foreach(certificates, index, value)
	{
		_cleanup_free_ char *other =
		    json_is_string(value) ? NULL : json_dumps(value, JSON_INDENT(1));
		markup(page, "<pre>%s</pre>", other ? other : json_string_value(value));
	}
	markup(page, "</details>\n");
}

static void add_detail(struct orch_buf *page, const char *detail)
{
	size_t first = strcspn(detail, "\n");
	if (!detail[first] || !detail[first + 1]) {
		cell(page, "Detail", detail);
		return;
	}
	_cleanup_free_ char *title = strndup(detail, first);
	markup(page, "<td data-label=\"Detail\">");
	folded(page, title, detail + first + 1);
	markup(page, "</td>");
}

static bool is_pass(const json_t *result)
{
	return strcasecmp(report_string(result, "verdict"), "pass") == 0;
}

static bool is_error(const json_t *result)
{
	return strcasecmp(report_string(result, "verdict"), "error") == 0;
}

static void add_results(struct orch_buf *page, const json_t *results, bool must_fail)
{
	static const char *const columns[] = {"Check",	    "Verdict", "Requirement",
					      "Visibility", "#Passed", "#Failed",
					      "#Time",	    "Detail",  NULL};
	const json_t *row;
	size_t index;
	if (is_empty(results))
		return;
	table(page, columns);
	json_array_foreach(results, index, row)
	{
		bool good = !is_error(row) && is_pass(row) != must_fail;
		markup(page, "<tr><th scope=\"row\">%s</th><td data-label=\"Verdict\">",
		       report_string(row, "check"));
		chip_of(page, report_string(row, "verdict"), good ? TONE_GOOD : TONE_BAD);
		markup(page, "</td>");
		cell(page, "Requirement", report_string(row, "requirement"));
		cell(page, "Visibility", report_flag(row, "hidden") ? "hidden" : "visible");
		number_cell(page, "Passed", report_count(report_integer(row, "passed")));
		number_cell(page, "Failed", report_count(report_integer(row, "failed")));
		number_cell(page, "Time", report_duration(report_number(row, "ms") / 1000));
		add_detail(page, report_string(row, "detail"));
		markup(page, "</tr>\n");
	}
	end_table(page);
}

static void add_verification(struct orch_buf *page, const json_t *row)
{
	const json_t *results = report_array(row, "results"), *result;
	const char *error = report_string(row, "error"), *tree = report_string(row, "tree");
	size_t index, all = json_array_size(results), passed = 0, errors = 0;
	bool must_fail;
	_cleanup_free_ char *name = report_verification_name(row, &must_fail);
	json_array_foreach(results, index, result)
	{
		passed += is_pass(result);
		errors += is_error(result);
	}
	bool good = all && !errors && !*error && passed == (must_fail ? 0 : all);
	_cleanup_free_ char *words =
	    orch_strdup_printf(must_fail ? "%zu of %zu fail" : "%zu of %zu pass",
			       must_fail ? all - passed - errors : passed, all);
	markup(page, "<details class=\"verification\"%s><summary>", good ? "" : " open");
	chip_of(page, words ? words : "", good ? TONE_GOOD : TONE_BAD);
	markup(page, "<span class=\"who\">%s</span>", name);
	if (must_fail)
		markup(page, "<span class=\"end\">%s</span>",
		       good ? "as they must" : "all of them must");
	markup(page, "</summary>\n");
	if (*error)
		markup(page, "<p class=\"message\">%s</p>", error);
	if (*tree)
		markup(page, "<p class=\"hash\">tree <code>%s</code></p>\n", tree);
	add_results(page, results, must_fail);
	add_certificates(page, report_array(row, "certificates"));
	markup(page, "</details>\n");
}

static void add_verifications(struct orch_buf *page, const json_t *report)
{
	const json_t *rows = report_array(report, "verifications"), *row;
	size_t index;
	section(page, "verifications", "Verifications",
		"The product runs in one sandbox, each check in another; results are counted "
		"outside both. Checks are first "
		"shown to fail on the base tree, and on a stub that answers everything with 200.");
	if (is_empty(rows))
		nothing(page, "Nothing was verified.");
	json_array_foreach(rows, index, row) add_verification(page, row);
	markup(page, "</section>\n");
}

static void add_own_tests(struct orch_buf *page, const json_t *report)
{
	const json_t *rows = report_array(report, "own_tests"), *row;
	const char *note = report_string(report, "earlier_note");
	size_t index;
	if (is_empty(rows) && !*note)
		return;
	section(page, "own-tests", "What the repository brought along",
		"Its own tests, before and after; and the checks of earlier runs.");
	if (*note)
		nothing(page, note);
	json_array_foreach(rows, index, row)
	{
		bool passed = report_flag(row, "passed");
		markup(page, "<details class=\"verification\"><summary>");
		chip_of(page, passed ? "passed" : "failed", passed ? TONE_GOOD : TONE_BAD);
		markup(page,
		       "<span class=\"who\">%s</span><span class=\"end\">%d tests</span></summary>",
		       report_string(row, "which"), report_integer(row, "tests"));
		markup(page,
		       "<p class=\"hash\">tree "
		       "<code>%s</code></p><pre>%s</pre><pre>%s</pre></details>\n",
		       report_string(row, "tree"), report_string(row, "output"),
		       report_string(row, "certificate"));
	}
	markup(page, "</section>\n");
}

static void add_reviews(struct orch_buf *page, const json_t *report)
{
	static const char *const columns[] = {"Task", "Review", "Reasons", NULL};
	const json_t *rows = report_array(report, "reviews"), *row;
	size_t index;
	if (is_empty(rows))
		return;
	section(page, "reviews", "Reviews", "A veto rejects; its absence approves nothing.");
	table(page, columns);
	json_array_foreach(rows, index, row)
	{
		bool veto = report_flag(row, "veto");
		const json_t *reasons = json_object_get(row, "reasons");
		_cleanup_free_ char *joined = report_join(reasons, "; ");
		markup(page, "<tr><th scope=\"row\">%s</th><td data-label=\"Review\">",
		       report_string(row, "task"));
		chip_of(page, veto ? "veto" : "no veto", veto ? TONE_BAD : TONE_NEUTRAL);
		markup(page, "</td>");
		cell(page, "Reasons",
		     json_is_string(reasons)		? json_string_value(reasons)
		     : json_is_array(reasons) && joined ? joined
							: "");
		markup(page, "</tr>\n");
	}
	end_table(page);
	markup(page, "</section>\n");
}

static void add_questions(struct orch_buf *page, const json_t *report)
{
	static const char *const columns[] = {"Question", "Text", "Answer", "By", NULL};
	const json_t *rows = report_array(report, "questions"), *row;
	size_t index;
	section(page, "questions", "Questions and who answered",
		"A default is the recommendation, taken when nobody answered.");
	if (is_empty(rows)) {
		nothing(page, "No question was asked.");
		markup(page, "</section>\n");
		return;
	}
	table(page, columns);
	json_array_foreach(rows, index, row)
	{
		markup(page, "<tr><th scope=\"row\">%s</th>", report_string(row, "id"));
		cell(page, "Text", report_string(row, "text"));
		cell(page, "Answer", report_string(row, "answer"));
		chip_cell(page, "By", report_string(row, "by"));
		markup(page, "</tr>\n");
	}
	end_table(page);
	markup(page, "</section>\n");
}

static void add_seals(struct orch_buf *page, const json_t *report)
{
	static const char *const documents[] = {"spec", "checks", "plan"};
	static const char *const columns[] = {"Invariant", "State", "Detail", NULL};
	const json_t *seals = json_object_get(report, "seals");
	const json_t *rows = report_array(report, "invariants"), *row;
	size_t index;
	section(page, "seals", "Seals and invariants",
		"A document is sealed by its SHA-256 when it is accepted, and compared before each "
		"use.");
	markup(page, "<dl class=\"pairs\">");
	for (size_t i = 0; i < 3; i++) {
		const char *hash = report_string(seals, documents[i]);
		markup(page, "<dt>%s</dt><dd><code>%s</code></dd>", documents[i],
		       *hash ? hash : "not sealed");
	}
	markup(page, "</dl>\n");
	if (!is_empty(rows))
		table(page, columns);
	json_array_foreach(rows, index, row)
	{
		markup(page, "<tr><th scope=\"row\">%s</th>", report_string(row, "name"));
		chip_cell(page, "State", report_flag(row, "holds") ? "holds" : "broken");
		cell(page, "Detail", report_string(row, "detail"));
		markup(page, "</tr>\n");
	}
	if (!is_empty(rows))
		end_table(page);
	markup(page, "</section>\n");
}

static char *cap_text(const json_t *budget, const char *name, char *(*form)(int64_t value))
{
	_cleanup_free_ char *other = orch_strdup_printf("max_%s", name);
	int64_t cap = report_integer(budget, name);
	if (!cap && other)
		cap = report_integer(budget, other);
	return cap ? form(cap) : strdup("no cap");
}

static void add_spending(struct orch_buf *page, const json_t *report)
{
	static const char *const columns[] = {"Of", "#Spent", "#Cap", NULL};
	const json_t *spent = json_object_get(report, "spent"),
		     *budget = json_object_get(report, "budget");
	static const struct {
		const char *name, *title;
		char *(*form)(int64_t value);
	} rows[] = {
	    {"requests", "Requests", report_count},
	    {"tokens", "Tokens", report_count},
	    {"micro_usd", "Money", report_money},
	};
	double ms = report_number(report, "ended_at_ms") - report_number(report, "started_at_ms");
	int64_t max_seconds = report_integer(budget, "seconds");
	section(page, "spending", "Spending", "Reserved before each call, settled after it.");
	table(page, columns);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		markup(page, "<tr><th scope=\"row\">%s</th>", rows[i].title);
		number_cell(page, "Spent", rows[i].form(report_integer(spent, rows[i].name)));
		number_cell(page, "Cap", cap_text(budget, rows[i].name, rows[i].form));
		markup(page, "</tr>\n");
	}
	markup(page, "<tr><th scope=\"row\">Wall time</th>");
	number_cell(page, "Spent", report_duration(ms / 1000));
	number_cell(page, "Cap",
		    max_seconds ? report_duration((double)max_seconds) : strdup("no cap"));
	markup(page, "</tr>\n");
	end_table(page);
	markup(page, "</section>\n");
}

static void pair(struct orch_buf *page, const char *name, const char *value)
{
	if (*value)
		markup(page, "<dt>%s</dt><dd><code>%s</code></dd>", name, value);
}

static void add_product(struct orch_buf *page, const json_t *report)
{
	const json_t *product = json_object_get(report, "product");
	const json_t *commands = report_array(product, "fetch"), *command;
	const json_t *base = json_object_get(report, "base");
	size_t index;
	section(page, "product", "The product",
		"A git repository without hooks or foreign configuration.");
	if (!json_is_object(product)) {
		nothing(page, "Nothing was delivered.");
		markup(page, "</section>\n");
		return;
	}
	_cleanup_free_ char *start = report_join(report_array(product, "start"), " ");
	markup(page, "<dl class=\"pairs\">");
	pair(page, "folder", report_string(product, "path"));
	pair(page, "branch", report_string(product, "branch"));
	pair(page, "commit", report_string(product, "commit"));
	pair(page, "tree", report_string(product, "tree"));
	pair(page, "kind", report_string(product, "kind"));
	pair(page, "starts with", start ? start : "");
	markup(page, "</dl>\n");
	if (*report_string(base, "commit"))
		markup(page,
		       "<p class=\"lead\">On top of commit <code>%s</code> of <code>%s</code>, "
		       "which was only "
		       "read.</p>\n",
		       report_string(base, "commit"), report_string(base, "repo"));
	if (!is_empty(commands))
		markup(page, "<pre class=\"commands\">");
	json_array_foreach(commands, index, command)
	    markup(page, "%s\n", json_string_value(command));
	if (!is_empty(commands))
		markup(page, "</pre>\n");
	markup(page, "</section>\n");
}

/* --- page ---------------------------------------------------------------------------------- */

static void add_navigation(struct orch_buf *page)
{
	static const char *const links[][2] = {
	    {"channels", "Channels"},
	    {"attempts", "Attempts"},
	    {"unknown", "Unknown actions"},
	    {"requirements", "Requirements"},
	    {"tasks", "Tasks"},
	    {"verifications", "Verifications"},
	    {"questions", "Questions"},
	    {"seals", "Seals"},
	    {"spending", "Spending"},
	    {"product", "Product"},
	};
	markup(page, "<nav aria-label=\"Sections\">");
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		markup(page, "<a href=\"#%s\">%s</a>", links[i][0], links[i][1]);
	markup(page, "</nav>\n");
}

char *report_html(const json_t *report)
{
	_cleanup_buf_ struct orch_buf page = {0};
	/* Should an escape ever be forgotten: no script runs and nothing is fetched. */
	markup(&page,
	       "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
	       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
	       "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
	       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	       "<meta name=\"referrer\" content=\"no-referrer\"><link rel=\"icon\" "
	       "href=\"data:,\">\n");
	markup(&page, "<title>%s: run %s</title>\n<style>",
	       report_headline(report_string(report, "state")), report_string(report, "run"));
	orch_buf_puts(&page, report_style);
	markup(&page, "</style></head><body><main>\n");
	add_head(&page, report);
	add_navigation(&page);
	add_channels(&page, report);
	add_attempts(&page, report);
	add_unknown(&page, report);
	add_requirements(&page, report);
	add_tasks(&page, report);
	add_verifications(&page, report);
	add_own_tests(&page, report);
	add_reviews(&page, report);
	add_questions(&page, report);
	add_seals(&page, report);
	add_spending(&page, report);
	add_product(&page, report);
	markup(&page, "<footer>Everything here is in <code>report.json</code> beside this page, "
		      "and in the run's "
		      "journal.</footer></main></body></html>\n");
	return page.failed ? NULL : ORCH_STEAL(page.data);
}
