/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <strings.h>

#include "verify-private.h"

/*
 * A strict subset of the Test Anything Protocol, versions 12 and 13. Lines that are none of its are
 * passed over, as the protocol says; so whatever a check lets a product put on a line of its own
 * can only add a point or a plan, and each of those breaks the count. Indented lines (YAML blocks,
 * subtests) are never looked at.
 */

#define POINTS_MAX 100000u

enum line_type { LINE_OTHER, LINE_PLAN, LINE_POINT, LINE_BAIL, LINE_VERSION, LINE_BROKEN };

struct line {
	const char *text;
	size_t length;
};

struct point {
	bool ok;	 /* "ok" without a directive */
	uint32_t number; /* 0: none given */
};

/* The next line, without its end; false after the last. */
static bool next_line(const char **position, const char *end, struct line *line)
{
	if (*position == end)
		return false;
	const char *start = *position;
	const char *newline = memchr(start, '\n', (size_t)(end - start));
	*position = newline ? newline + 1 : end;
	line->text = start;
	line->length = (size_t)((newline ? newline : end) - start);
	if (line->length && line->text[line->length - 1] == '\r')
		line->length--;
	return true;
}

static bool starts_with(const char *text, size_t length, const char *prefix)
{
	size_t prefix_length = strlen(prefix);
	return length >= prefix_length && memcmp(text, prefix, prefix_length) == 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* A number without sign and leading zero, at most POINTS_MAX; false if there is none or it is
 * larger. */
static bool read_number(const char **text, size_t *length, uint32_t *ret_number)
{
	uint32_t number = 0;
	size_t digits = 0;
	while (digits < *length && (*text)[digits] >= '0' && (*text)[digits] <= '9') {
		number = number * 10 + (uint32_t)((*text)[digits] - '0');
		if (number > POINTS_MAX || (digits && (*text)[0] == '0'))
			return false;
		digits++;
	}
	if (!digits)
		return false;
	*text += digits;
	*length -= digits;
	*ret_number = number;
	return true;
}

static void skip_blanks(const char **text, size_t *length)
{
	while (*length && is_blank(**text)) {
		(*text)++;
		(*length)--;
	}
}

/* "# SKIP ..." or "# TODO ..." after the description, in any case of letters; "\#" is no directive.
 */
static bool has_directive(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (text[i] == '\\') {
			i++;
			continue;
		}
		if (text[i] != '#' || (i && !is_blank(text[i - 1])))
			continue;
		const char *word = text + i + 1;
		size_t left = length - i - 1;
		skip_blanks(&word, &left);
		if (left >= 4 &&
		    (strncasecmp(word, "skip", 4) == 0 || strncasecmp(word, "todo", 4) == 0))
			return true;
	}
	return false;
}

static enum line_type read_plan(const char *text, size_t length, uint32_t *ret_planned)
{
	uint32_t planned;
	text += 3;
	length -= 3;
	if (!read_number(&text, &length, &planned))
		return LINE_BROKEN;
	skip_blanks(&text, &length);
	if (length && *text != '#')
		return LINE_BROKEN;
	*ret_planned = planned;
	return LINE_PLAN;
}

static enum line_type read_point(const char *text, size_t length, bool ok, struct point *ret_point)
{
	size_t word = ok ? 2 : 6;
	text += word;
	length -= word;
	if (length && !is_blank(*text))
		return LINE_OTHER;
	skip_blanks(&text, &length);
	uint32_t number = 0;
	if (length && *text >= '0' && *text <= '9') {
		if (!read_number(&text, &length, &number) || number == 0 ||
		    (length && !is_blank(*text)))
			return LINE_BROKEN;
		skip_blanks(&text, &length);
	}
	ret_point->number = number;
	ret_point->ok = ok && !has_directive(text, length);
	return LINE_POINT;
}

static enum line_type read_line(const struct line *line, struct point *ret_point,
				uint32_t *ret_planned)
{
	const char *text = line->text;
	size_t length = line->length;
	if (starts_with(text, length, "1.."))
		return read_plan(text, length, ret_planned);
	if (starts_with(text, length, "ok"))
		return read_point(text, length, true, ret_point);
	if (starts_with(text, length, "not ok"))
		return read_point(text, length, false, ret_point);
	if (starts_with(text, length, "Bail out!"))
		return LINE_BAIL;
	if (starts_with(text, length, "TAP version "))
		return LINE_VERSION;
	return LINE_OTHER;
}

const char *tap_count(const char *text, size_t length, uint32_t *ret_passed, uint32_t *ret_failed)
{
	const char *position = text, *end = text + length;
	const char *reason = NULL;
	uint32_t points = 0, passed = 0, planned = 0, points_at_plan = 0, number = 0;
	bool has_plan = false, numbered = false, bare = false;
	struct line line;

	for (number = 0; !reason && next_line(&position, end, &line); number++) {
		struct point point;
		uint32_t plan = 0;
		switch (read_line(&line, &point, &plan)) {
		case LINE_OTHER:
			break;
		case LINE_VERSION:
			if (number != 0)
				reason = "a version line that is not the first line";
			else if (line.length != 14 || (memcmp(line.text + 12, "12", 2) != 0 &&
						       memcmp(line.text + 12, "13", 2) != 0))
				reason = "a version of TAP other than 12 and 13";
			break;
		case LINE_PLAN:
			if (has_plan)
				reason = "more than one plan line";
			else if (plan == 0)
				reason = "the plan is 1..0: nothing was tested";
			has_plan = true;
			planned = plan;
			points_at_plan = points;
			break;
		case LINE_POINT:
			points++;
			passed += point.ok;
			numbered |= point.number != 0;
			bare |= point.number == 0;
			if (has_plan && points_at_plan)
				reason = "the plan line stands between the points";
			else if (numbered && bare)
				reason = "some points have a number and some have none";
			else if (numbered && point.number != points)
				reason = "the numbers of the points do not rise one by one";
			else if (points > POINTS_MAX)
				reason = "too many points";
			break;
		case LINE_BAIL:
			reason = "it bailed out";
			break;
		case LINE_BROKEN:
			reason = "a plan or point line is malformed";
			break;
		}
	}
	if (!reason && !has_plan)
		reason = points ? "there is no plan line"
				: "there is no plan line and no point: nothing was tested";
	if (!reason && points < planned)
		reason = "there are fewer points than planned";
	if (!reason && points > planned)
		reason = "there are more points than planned";
	*ret_passed = passed;
	*ret_failed = points - passed;
	return reason;
}

void tap_failures(const char *text, size_t length, size_t limit, struct orch_buf *buf)
{
	const char *position = text, *end = text + length;
	bool diagnostics = false;
	size_t start = buf->length;
	struct line line;

	while (next_line(&position, end, &line)) {
		struct point point;
		uint32_t plan;
		enum line_type type = read_line(&line, &point, &plan);
		bool belongs =
		    diagnostics && line.length && (*line.text == '#' || *line.text == ' ');
		if (type == LINE_POINT)
			diagnostics = belongs = !point.ok;
		else if (type == LINE_BAIL)
			belongs = true;
		if (!belongs)
			continue;
		if (buf->length - start >= limit) {
			orch_buf_puts(buf, "...\n");
			return;
		}
		size_t room = limit - (buf->length - start);
		text_append(buf, line.text, line.length < room ? line.length : room, true);
		orch_buf_puts(buf, "\n");
	}
}
