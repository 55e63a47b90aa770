/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "report-private.h"
#include "verify-text.h"

#define COLUMNS_MIN 20u
#define COLUMNS_MAX 400u

/* --- lines
 * -------------------------------------------------------------------------------------------- */

struct page {
	struct orch_buf *text;
	unsigned columns;
};

/* One character of valid UTF-8: its bytes, and the columns it takes (East Asian Width, in blocks).
 */
static size_t character(const char *text, unsigned *ret_width)
{
	const unsigned char *bytes = (const unsigned char *)text;
	size_t length = bytes[0] < 0x80 ? 1 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
	uint32_t value = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++)
		value = value << 6 | (bytes[i] & 0x3f);
	bool combining = (value >= 0x300 && value < 0x370) ||
			 (value >= 0x200b && value <= 0x200d) ||
			 (value >= 0xfe00 && value <= 0xfe0f);
	bool wide = (value >= 0x1100 && value < 0x1160) || (value >= 0x2e80 && value < 0xa4d0) ||
		    (value >= 0xac00 && value < 0xd7a4) || (value >= 0xf900 && value < 0xfb00) ||
		    (value >= 0xfe30 && value < 0xfe70) || (value >= 0xff00 && value < 0xff61) ||
		    (value >= 0x1f300 && value < 0x1fb00) || (value >= 0x20000 && value < 0x40000);
	*ret_width = combining ? 0 : wide ? 2 : 1;
	return length;
}

static void add_indent(struct page *page, unsigned indent)
{
	for (unsigned i = 0; i < indent; i++)
		orch_buf_puts(page->text, " ");
}

/*
 * How many bytes of one line of text fit in `room` columns: up to a blank if there is one, else in
 * the middle of the word; at least one character.
 */
static size_t fitting(const char *text, size_t length, unsigned room)
{
	size_t position = 0, blank = 0;
	unsigned used = 0;
	while (position < length) {
		unsigned width;
		size_t bytes = character(text + position, &width);
		if (position && used + width > room)
			return blank ? blank : position;
		if (text[position] == ' ')
			blank = position;
		used += width;
		position += bytes;
	}
	return length;
}

static void wrap_line(struct page *page, unsigned indent, unsigned hanging, const char *line,
		      size_t length)
{
	bool first = true;
	do {
		unsigned used = first ? indent : hanging;
		size_t taken = fitting(line, length, page->columns - used);
		add_indent(page, used);
		orch_buf_add(page->text, line, taken);
		orch_buf_puts(page->text, "\n");
		line += taken;
		length -= taken;
		while (length && *line == ' ')
			line++, length--;
		first = false;
	} while (length);
}

/* Foreign text, wrapped; further lines of a paragraph are indented by `hanging`. */
static void wrap(struct page *page, unsigned indent, unsigned hanging, const char *text)
{
	_cleanup_buf_ struct orch_buf clean = {0};
	text_append(&clean, text, strlen(text), true);
	if (clean.failed)
		page->text->failed = true;
	for (size_t i = 0; i < clean.length; i++)
		if (clean.data[i] == '\t')
			clean.data[i] = ' ';
	size_t start = 0;
	while (start < clean.length) {
		const char *newline = memchr(clean.data + start, '\n', clean.length - start);
		size_t end = newline ? (size_t)(newline - clean.data) : clean.length;
		wrap_line(page, indent, hanging, clean.data + start, end - start);
		start = end + 1;
	}
}

static void line(struct page *page, unsigned indent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void line(struct page *page, unsigned indent, const char *format, ...)
{
	va_list arguments;
	char *text = NULL;
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0) {
		text = NULL;
		page->text->failed = true;
	}
	va_end(arguments);
	if (text)
		wrap(page, indent, indent + 2, text);
	free(text);
}

static void heading(struct page *page, const char *title)
{
	orch_buf_puts(page->text, "\n");
	wrap(page, 0, 0, title);
	for (size_t i = 0; i < strlen(title) && i < page->columns; i++)
		orch_buf_puts(page->text, "=");
	orch_buf_puts(page->text, "\n");
}

/* "name: value", left out if there is none. */
static void member(struct page *page, unsigned indent, const char *name, const char *value)
{
	if (*value)
		line(page, indent, "%s: %s", name, value);
}

/* --- sections
 * --------------------------------------------------------------------------------------- */

static void add_head(struct page *page, const json_t *report)
{
	_cleanup_free_ char *started = report_time(report_integer(report, "started_at_ms"));
	_cleanup_free_ char *ended = report_time(report_integer(report, "ended_at_ms"));
	line(page, 0, "%s", report_headline(report_string(report, "state")));
	member(page, 0, "reason", report_string(report, "reason"));
	member(page, 0, "idea", report_string(report, "idea"));
	member(page, 0, "run", report_string(report, "run"));
	member(page, 0, "by", report_string(report, "description"));
	member(page, 0, "from", started ? started : "");
	member(page, 0, "to", ended ? ended : "");
}

static void add_channels(struct page *page, const json_t *report)
{
	size_t index;
	const json_t *row;
	heading(page, "Channels");
	json_array_foreach(report_array(report, "channels"), index, row)
	{
		line(page, 0, "%s: %s", report_string(row, "channel"), report_string(row, "state"));
		line(page, 2, "probe %s, control %s", report_string(row, "probe"),
		     report_string(row, "control"));
		member(page, 2, "by", report_string(row, "mechanism"));
		member(page, 2, "detail", report_string(row, "detail"));
	}
}

static void add_attempts(struct page *page, const json_t *report)
{
	size_t index;
	const json_t *row;
	heading(page, "Attempts");
	json_array_foreach(report_array(report, "attempts"), index, row)
	{
		_cleanup_free_ char *time = report_duration(report_number(row, "seconds"));
		_cleanup_free_ char *money = report_money(report_integer(row, "micro_usd"));
		line(page, 0, "%s %s %s %s, attempt %lld", report_string(row, "verdict"),
		     report_string(row, "role"), report_string(row, "stage"),
		     report_string(row, "task"), (long long)report_integer(row, "attempt"));
		line(page, 2, "%s; %s, %lld tokens, %s", report_string(row, "end"),
		     time ? time : "", (long long)report_integer(row, "tokens"),
		     money ? money : "");
		wrap(page, 2, 4, report_string(row, "message"));
		wrap(page, 4, 6, report_string(row, "certificate"));
	}
}

static void add_unknown(struct page *page, const json_t *report)
{
	const json_t *rows = report_array(report, "unknown_actions"), *row;
	size_t index;
	heading(page, "Unknown actions");
	if (json_array_size(rows) == 0)
		line(page, 0, "none");
	json_array_foreach(rows, index, row)
	{
		line(page, 0, "%s %s", report_string(row, "kind"), report_string(row, "key"));
		line(page, 2, "was %s; probe: %s; decision: %s", report_string(row, "state_before"),
		     report_string(row, "probe"), report_string(row, "decision"));
	}
}

static void add_requirements(struct page *page, const json_t *report)
{
	size_t index;
	const json_t *row;
	heading(page, "Requirements");
	json_array_foreach(report_array(report, "requirements"), index, row)
	{
		_cleanup_free_ char *checks = report_join(report_array(row, "checks"), ", ");
		_cleanup_free_ char *money = report_money(report_integer(row, "micro_usd"));
		line(page, 0, "%s %s: %s", report_string(row, "id"), report_string(row, "title"),
		     report_string(row, "state"));
		member(page, 2, "evidence", checks ? checks : "");
		member(page, 2, "tree", report_string(row, "tree"));
		member(page, 2, "commit", report_string(row, "commit"));
		member(page, 2, "task", report_string(row, "task"));
		member(page, 2, "cost", money ? money : "");
	}
}

static void add_tasks(struct page *page, const json_t *report)
{
	size_t index;
	const json_t *row;
	heading(page, "Tasks");
	json_array_foreach(report_array(report, "tasks"), index, row)
	{
		_cleanup_free_ char *requirements =
		    report_join(report_array(row, "requirements"), ", ");
		line(page, 0, "%s %s: %s", report_string(row, "id"), report_string(row, "title"),
		     report_string(row, "state"));
		line(page, 2, "attempts: %lld", (long long)report_integer(row, "attempts"));
		member(page, 2, "requirements", requirements ? requirements : "");
		member(page, 2, "reason", report_string(row, "reason"));
	}
}

static void add_verifications(struct page *page, const json_t *report)
{
	size_t index, inner;
	const json_t *row, *result;
	heading(page, "Verifications");
	json_array_foreach(report_array(report, "verifications"), index, row)
	{
		bool must_fail;
		_cleanup_free_ char *name = report_verification_name(row, &must_fail);
		line(page, 0, "%s%s", name ? name : "",
		     must_fail ? " (all of them must fail)" : "");
		member(page, 2, "error", report_string(row, "error"));
		member(page, 2, "tree", report_string(row, "tree"));
		json_array_foreach(report_array(row, "results"), inner, result)
		{
			line(page, 2, "%s %s (%s, %s): %lld passed, %lld failed",
			     report_string(result, "verdict"), report_string(result, "check"),
			     report_string(result, "requirement"),
			     report_flag(result, "hidden") ? "hidden" : "visible",
			     (long long)report_integer(result, "passed"),
			     (long long)report_integer(result, "failed"));
			wrap(page, 4, 6, report_string(result, "detail"));
		}
	}
}

static void add_questions(struct page *page, const json_t *report)
{
	size_t index;
	const json_t *row;
	heading(page, "Questions");
	json_array_foreach(report_array(report, "questions"), index, row)
	{
		line(page, 0, "%s %s", report_string(row, "id"), report_string(row, "text"));
		line(page, 2, "%s (%s)", report_string(row, "answer"), report_string(row, "by"));
	}
}

static void add_seals(struct page *page, const json_t *report)
{
	const json_t *seals = json_object_get(report, "seals"), *row;
	size_t index;
	heading(page, "Seals and invariants");
	member(page, 0, "spec", report_string(seals, "spec"));
	member(page, 0, "checks", report_string(seals, "checks"));
	member(page, 0, "plan", report_string(seals, "plan"));
	json_array_foreach(report_array(report, "invariants"), index, row)
	{
		line(page, 0, "%s: %s", report_flag(row, "holds") ? "holds" : "BROKEN",
		     report_string(row, "name"));
		wrap(page, 2, 4, report_string(row, "detail"));
	}
}

static void add_end(struct page *page, const json_t *report)
{
	const json_t *spent = json_object_get(report, "spent"),
		     *product = json_object_get(report, "product");
	const json_t *command;
	size_t index;
	_cleanup_free_ char *money = report_money(report_integer(spent, "micro_usd"));
	heading(page, "Spending");
	line(page, 0, "requests: %lld", (long long)report_integer(spent, "requests"));
	line(page, 0, "tokens: %lld", (long long)report_integer(spent, "tokens"));
	line(page, 0, "money: %s", money ? money : "");
	heading(page, "Product");
	if (!json_is_object(product))
		line(page, 0, "nothing was delivered");
	member(page, 0, "folder", report_string(product, "path"));
	member(page, 0, "branch", report_string(product, "branch"));
	member(page, 0, "commit", report_string(product, "commit"));
	member(page, 0, "tree", report_string(product, "tree"));
	json_array_foreach(report_array(product, "fetch"), index, command)
	    line(page, 2, "%s", json_is_string(command) ? json_string_value(command) : "");
}

char *report_text(const json_t *report, unsigned columns)
{
	_cleanup_buf_ struct orch_buf text = {0};
	struct page page = {&text, columns < COLUMNS_MIN   ? COLUMNS_MIN
				   : columns > COLUMNS_MAX ? COLUMNS_MAX
							   : columns};
	add_head(&page, report);
	add_channels(&page, report);
	add_attempts(&page, report);
	add_unknown(&page, report);
	add_requirements(&page, report);
	add_tasks(&page, report);
	add_verifications(&page, report);
	add_questions(&page, report);
	add_seals(&page, report);
	add_end(&page, report);
	return text.failed ? NULL : ORCH_STEAL(text.data);
}
