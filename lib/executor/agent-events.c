/* SPDX-License-Identifier: Apache-2.0 */
#include "executor-private.h"

#include <jansson.h>

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static bool is(const char *text, const char *other)
{
	return text != NULL && strcmp(text, other) == 0;
}

static int say(struct agent_stream *stream, uint32_t event, const char *text)
{
	stream->event(stream->userdata, event, text != NULL ? text : "");
	return 1;
}

static int broken(struct agent_stream *stream, const char *why)
{
	stream->broken = why;
	return -1;
}

static uint64_t count(const json_t *usage, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(usage, key));

	return value > 0 ? (uint64_t)value : 0;
}

static uint64_t tokens_of(const json_t *usage)
{
	return count(usage, "input_tokens") + count(usage, "output_tokens") +
	       count(usage, "cache_creation_input_tokens") + count(usage, "cache_read_input_tokens");
}

#define REASON_LIMIT 600

static void keep_reason(struct agent_stream *stream, const char *text)
{
	size_t length = text != NULL ? strnlen(text, REASON_LIMIT) : 0;

	if (length == 0)
		return;
	/* Not in the middle of a character. */
	while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
		length--;
	free(stream->reason);
	stream->reason = strndup(text, length);
}

static int result(struct agent_stream *stream, const char *text)
{
	stream->has_result = true;
	keep_reason(stream, text);
	return say(stream, ORCH_JOB_EVENT_RESULT, text);
}

/* --- orch-mini -------------------------------------------------------------------------------- */

static int mini_event(struct agent_stream *stream, const char *type, const json_t *event)
{
	const char *text = text_of(event, "text"), *command = text_of(event, "command");

	if (is(type, "text"))
		return text != NULL ? say(stream, ORCH_JOB_EVENT_TEXT, text)
				    : broken(stream, "a text event without text");
	if (is(type, "tool"))
		return command != NULL ? say(stream, ORCH_JOB_EVENT_TOOL, command)
				       : broken(stream, "a tool event without command");
	if (is(type, "result") || is(type, "error")) {
		stream->tokens = tokens_of(json_object_get(event, "usage"));
		return result(stream, is(type, "error") ? text_of(event, "message") : text);
	}
	return say(stream, ORCH_JOB_EVENT_OTHER, type);
}

/* --- Claude Code: stream-json ----------------------------------------------------------------- */

static int claude_tool(struct agent_stream *stream, const json_t *block)
{
	const json_t *input = json_object_get(block, "input");
	const char *command = text_of(input, "command"), *name = text_of(block, "name");
	_cleanup_free_ char *text = NULL;
	char *written;

	if (command != NULL)
		return say(stream, ORCH_JOB_EVENT_TOOL, command);
	written = json_dumps(input, JSON_COMPACT | JSON_ENCODE_ANY);
	text = orch_strdup_printf("%s %s", name != NULL ? name : "?", written != NULL ? written : "");
	free(written);
	return say(stream, ORCH_JOB_EVENT_TOOL, text);
}

static int claude_message(struct agent_stream *stream, const json_t *event)
{
	const json_t *content = json_object_get(json_object_get(event, "message"), "content");
	size_t index;
	json_t *block;
	int events = 0;

	if (!json_is_array(content))
		return broken(stream, "an assistant event without message.content");
	json_array_foreach(content, index, block)
	{
		const char *type = text_of(block, "type");

		if (is(type, "text"))
			events += say(stream, ORCH_JOB_EVENT_TEXT, text_of(block, "text"));
		else if (is(type, "tool_use"))
			events += claude_tool(stream, block);
	}
	return events > 0 ? events : say(stream, ORCH_JOB_EVENT_OTHER, "assistant");
}

static int claude_event(struct agent_stream *stream, const char *type, const json_t *event)
{
	const char *subtype = text_of(event, "subtype"), *text = text_of(event, "result");

	if (is(type, "assistant"))
		return claude_message(stream, event);
	if (!is(type, "result"))
		return say(stream, ORCH_JOB_EVENT_OTHER, type);
	if (subtype == NULL)
		return broken(stream, "a result event without subtype");
	stream->tokens = tokens_of(json_object_get(event, "usage"));
	return result(stream, text != NULL ? text : subtype);
}

/* --- Codex CLI: exec --json ------------------------------------------------------------------- */

static int codex_item(struct agent_stream *stream, const char *type, const json_t *event)
{
	const json_t *item = json_object_get(event, "item");
	const char *kind = text_of(item, "type");

	if (kind == NULL)
		kind = text_of(item, "item_type"); /* older */
	if (kind == NULL)
		return broken(stream, "an item event without item.type");
	if (is(type, "item.completed") && is(kind, "agent_message"))
		return say(stream, ORCH_JOB_EVENT_TEXT, text_of(item, "text"));
	if (is(type, "item.started") && is(kind, "command_execution"))
		return say(stream, ORCH_JOB_EVENT_TOOL, text_of(item, "command"));
	return say(stream, ORCH_JOB_EVENT_OTHER, kind);
}

static int codex_event(struct agent_stream *stream, const char *type, const json_t *event)
{
	const json_t *usage = json_object_get(event, "usage");

	if (is(type, "item.started") || is(type, "item.completed"))
		return codex_item(stream, type, event);
	if (is(type, "turn.completed")) {
		/* cached_input_tokens are part of input_tokens here. */
		stream->tokens += count(usage, "input_tokens") + count(usage, "output_tokens");
		return result(stream, "");
	}
	if (is(type, "turn.failed"))
		return result(stream, text_of(json_object_get(event, "error"), "message"));
	if (!is(type, "error"))
		return say(stream, ORCH_JOB_EVENT_OTHER, type);
	keep_reason(stream, text_of(event, "message"));
	return say(stream, ORCH_JOB_EVENT_OTHER, text_of(event, "message"));
}

/* --- lines ------------------------------------------------------------------------------------ */

/* Bytes that are no UTF-8 become '?': events end in JSON files. */
static void make_valid(char *text, size_t length)
{
	size_t step;

	for (size_t i = 0; i < length; i++) {
		if (text[i] == '\0')
			text[i] = '?';
	}
	for (size_t i = 0; i < length; i += step) {
		json_t *string = NULL;

		for (step = (unsigned char)text[i] < 0x80 ? 1 : 4; step > 1; step--) {
			string = i + step <= length ? json_stringn(text + i, step) : NULL;
			if (string != NULL)
				break;
		}
		if (string == NULL && (unsigned char)text[i] >= 0x80)
			text[i] = '?';
		json_decref(string);
	}
}

static int take_json(struct agent_stream *stream, const char *line, size_t length)
{
	json_t *event;
	const char *type;
	int events;

	/* CLIs print warnings between their events. */
	if (length == 0)
		return 0;
	if (line[0] != '{')
		return say(stream, ORCH_JOB_EVENT_OTHER, line);
	event = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
	type = text_of(event, "type");
	if (event == NULL)
		events = broken(stream, "a line begins like an event and is no JSON");
	else if (type == NULL)
		events = say(stream, ORCH_JOB_EVENT_OTHER, "an event without type");
	else if (stream->kind == ORCH_EXECUTOR_MINI)
		events = mini_event(stream, type, event);
	else if (stream->kind == ORCH_EXECUTOR_CLAUDE)
		events = claude_event(stream, type, event);
	else
		events = codex_event(stream, type, event);
	json_decref(event);
	return events;
}

static int take_line(struct agent_stream *stream)
{
	char *line = stream->line.data;
	size_t length = stream->line.length;
	int events;

	if (stream->line.failed)
		return broken(stream, "out of memory");
	while (length > 0 && line[length - 1] == '\r')
		line[--length] = '\0';
	if (stream->kind == ORCH_EXECUTOR_COMMAND || (length > 0 && line[0] != '{'))
		make_valid(line, length);
	if (stream->kind != ORCH_EXECUTOR_COMMAND)
		events = take_json(stream, line, length);
	else
		events = length > 0 ? say(stream, ORCH_JOB_EVENT_TEXT, line) : 0;
	/* The buffer is kept: lines come by the thousand. */
	stream->line.length = 0;
	return events;
}

int64_t agent_feed(struct agent_stream *stream, const char *bytes, size_t length)
{
	const char *end = bytes + length;
	int64_t events = 0;

	while (bytes < end && stream->broken == NULL) {
		bool plain = stream->kind == ORCH_EXECUTOR_COMMAND;
		size_t room = (plain ? COMMAND_LINE_LIMIT : AGENT_LINE_LIMIT) - stream->line.length;
		size_t left = (size_t)(end - bytes);
		const char *newline = memchr(bytes, '\n', left < room ? left : room);
		size_t take = newline != NULL ? (size_t)(newline - bytes) : left < room ? left : room;
		int got = 0;

		orch_buf_add(&stream->line, bytes, take);
		bytes += take + (newline != NULL);
		if (newline != NULL || (plain && take == room))
			got = take_line(stream);
		else if (take == room)
			got = broken(stream, "a line is over 4 MiB");
		if (got < 0)
			return -1;
		events += got;
	}
	return stream->broken == NULL ? events : -1;
}

int64_t agent_end(struct agent_stream *stream)
{
	if (stream->broken != NULL)
		return -1;
	return stream->line.length > 0 ? take_line(stream) : 0;
}

void agent_clear(struct agent_stream *stream)
{
	orch_buf_free(&stream->line);
	free(stream->reason);
}
