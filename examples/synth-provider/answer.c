/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Tool arguments and texts are streamed in pieces of this size: clients must join them. */
#define DELTA_BYTES 600

static void add_piece(struct answer *answer, char *piece)
{
	char **pieces = realloc(answer->pieces, (answer->count + 1) * sizeof(*pieces));

	if (pieces != NULL)
		answer->pieces = pieces;
	if (pieces == NULL || piece == NULL) {
		free(piece);
		answer->failed = true;
		return;
	}
	answer->pieces[answer->count++] = piece;
}

void answer_json(struct answer *answer, int status, json_t *body)
{
	answer->status = status;
	answer->stream = false;
	add_piece(answer, json_dumps(body, JSON_COMPACT));
	json_decref(body);
}

void answer_clear(struct answer *answer)
{
	for (size_t i = 0; i < answer->count; i++)
		free(answer->pieces[i]);
	free(answer->pieces);
	memset(answer, 0, sizeof(*answer));
}

/* --- streams ---------------------------------------------------------------------------------- */

/* One event; its name is its "type". Takes `data`. */
static void add_event(struct answer *answer, json_t *data)
{
	const char *type = json_string_value(json_object_get(data, "type"));
	char *text = json_dumps(data, JSON_COMPACT), *piece = NULL;

	if (text == NULL || type == NULL ||
	    asprintf(&piece, "event: %s\ndata: %s\n\n", type, text) < 0)
		piece = NULL;
	free(text);
	add_piece(answer, piece);
	json_decref(data);
}

/* Length of the next delta of a UTF-8 text: characters stay whole. */
static size_t delta_length(const char *text)
{
	size_t length = strnlen(text, DELTA_BYTES);

	while (length > 1 && text[length] != '\0' && ((unsigned char)text[length] & 0xc0) == 0x80)
		length--;
	return length;
}

static size_t tokens(size_t bytes)
{
	return bytes / 4;
}

/* Arguments of the client's shell tool, as an object. */
static json_t *tool_arguments(const struct request *request, const char *command)
{
	json_t *arguments;

	if (request->form == SHELL_TEXT || request->form == SHELL_CODE)
		arguments = json_pack("{s:s}", request->key, command);
	else
		arguments = json_pack("{s:[s,s,s]}", request->key, "/bin/sh", "-c", command);
	if (request->wants_description)
		json_object_set_new(arguments, "description", json_string("Next step of the scenario"));
	/* Codex looks in on a command after 10 s by default, and the scenario has no step for that. */
	if (request->wants_yield_time)
		json_object_set_new(arguments, "yield_time_ms", json_integer(30000));
	return arguments;
}

/* --- Anthropic Messages ----------------------------------------------------------------------- */

static json_t *messages_usage(size_t input, size_t output)
{
	return json_pack("{s:I,s:i,s:i,s:I}", "input_tokens", (json_int_t)tokens(input),
			 "cache_creation_input_tokens", 0, "cache_read_input_tokens", 0, "output_tokens",
			 (json_int_t)tokens(output));
}

static void messages_block(struct answer *answer, int index, json_t *start, const char *delta_type,
			   const char *delta_key, const char *content)
{
	add_event(answer, json_pack("{s:s,s:i,s:o}", "type", "content_block_start", "index", index,
				    "content_block", start));
	while (*content != '\0') {
		size_t length = delta_length(content);

		add_event(answer, json_pack("{s:s,s:i,s:{s:s,s:s%}}", "type", "content_block_delta", "index",
					    index, "delta", "type", delta_type, delta_key, content, length));
		content += length;
	}
	add_event(answer, json_pack("{s:s,s:i}", "type", "content_block_stop", "index", index));
}

static void messages_turn(struct answer *answer, const struct request *request, const char *text,
			  const char *command, unsigned long long number, size_t bytes)
{
	const char *stop = command != NULL ? "tool_use" : "end_turn";
	json_t *arguments = command != NULL ? tool_arguments(request, command) : NULL;
	char *written = arguments != NULL ? json_dumps(arguments, JSON_COMPACT) : NULL;
	size_t output = strlen(text) + (written != NULL ? strlen(written) : 0);
	char id[48], call[48];
	json_t *message;

	snprintf(id, sizeof(id), "msg_synth_%llu", number);
	snprintf(call, sizeof(call), "toolu_synth_%zu_%llu", request->results + 1, number);
	message = json_pack("{s:s,s:s,s:s,s:s,s:[],s:n,s:n,s:o}", "id", id, "type", "message", "role",
			    "assistant", "model", request->model, "content", "stop_reason",
			    "stop_sequence", "usage", messages_usage(bytes, request->stream ? 4 : output));
	if (!request->stream) {
		json_t *content = json_object_get(message, "content");

		json_array_append_new(content, json_pack("{s:s,s:s}", "type", "text", "text", text));
		if (command != NULL)
			json_array_append_new(content, json_pack("{s:s,s:s,s:s,s:O}", "type", "tool_use", "id",
								 call, "name", request->tool, "input",
								 arguments));
		json_object_set_new(message, "stop_reason", json_string(stop));
		answer_json(answer, 200, message);
	} else {
		add_event(answer, json_pack("{s:s,s:o}", "type", "message_start", "message", message));
		add_event(answer, json_pack("{s:s}", "type", "ping"));
		messages_block(answer, 0, json_pack("{s:s,s:s}", "type", "text", "text", ""), "text_delta",
			       "text", text);
		if (written != NULL)
			messages_block(answer, 1,
				       json_pack("{s:s,s:s,s:s,s:{}}", "type", "tool_use", "id", call, "name",
						 request->tool, "input"),
				       "input_json_delta", "partial_json", written);
		add_event(answer, json_pack("{s:s,s:{s:s,s:n},s:{s:I}}", "type", "message_delta", "delta",
					    "stop_reason", stop, "stop_sequence", "usage", "output_tokens",
					    (json_int_t)tokens(output)));
		add_event(answer, json_pack("{s:s}", "type", "message_stop"));
	}
	free(written);
	json_decref(arguments);
}

/* --- OpenAI Responses ------------------------------------------------------------------------- */

/* An event with the rising sequence_number. Takes `data`. */
static void add_numbered(struct answer *answer, json_t *data)
{
	json_object_set_new(data, "sequence_number", json_integer((json_int_t)answer->count));
	add_event(answer, data);
}

static json_t *responses_body(const struct request *request, const char *id, const char *status,
			      json_t *output, json_t *usage)
{
	return json_pack("{s:s,s:s,s:I,s:s,s:s,s:o,s:o,s:n,s:n,s:b}", "id", id, "object", "response",
			 "created_at", (json_int_t)time(NULL), "status", status, "model", request->model,
			 "output", output, "usage", usage, "error", "incomplete_details",
			 "parallel_tool_calls", 0);
}

static json_t *responses_message(const char *id, const char *status, const char *text)
{
	json_t *content = text != NULL ? json_pack("[{s:s,s:s,s:[]}]", "type", "output_text", "text", text,
						   "annotations")
				       : json_array();

	return json_pack("{s:s,s:s,s:s,s:s,s:o}", "id", id, "type", "message", "status", status, "role",
			 "assistant", "content", content);
}

static json_t *custom_call(const struct request *request, const char *id, const char *call,
			   const char *status, const char *input)
{
	return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "id", id, "type", "custom_tool_call", "status", status,
			 "call_id", call, "name", request->tool, "input", input);
}

static json_t *plain_call(const struct request *request, const char *id, const char *call,
			  const char *status, const char *written, const char *command)
{
	if (request->form == SHELL_LOCAL)
		return json_pack("{s:s,s:s,s:s,s:s,s:{s:s,s:[s,s,s],s:{}}}", "id", id, "type",
				 "local_shell_call", "call_id", call, "status", status, "action", "type", "exec",
				 "command", "/bin/sh", "-c", command, "env");
	return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "id", id, "type", "function_call", "status", status,
			 "call_id", call, "name", request->tool, "arguments", written);
}

static json_t *responses_call(const struct request *request, const char *id, const char *call,
			      const char *status, const char *written, const char *command)
{
	json_t *item = request->form == SHELL_CODE ? custom_call(request, id, call, status, written)
						   : plain_call(request, id, call, status, written, command);

	if (request->space != NULL)
		json_object_set_new(item, "namespace", json_string(request->space));
	return item;
}

/* What the call is given, as text: arguments, or a program. */
static char *responses_input(const struct request *request, const json_t *arguments)
{
	char *written = arguments != NULL ? json_dumps(arguments, JSON_COMPACT) : NULL, *program = NULL;

	if (request->form != SHELL_CODE || written == NULL)
		return written;
	if (asprintf(&program,
		     "// @exec: {\"yield_time_ms\": 600000}\n"
		     "text(await tools.exec_command(%s));\n",
		     written) < 0)
		program = NULL;
	free(written);
	return program;
}

/* Deltas of one text, then its .done event. `place` names item and part; borrowed. */
static void responses_deltas(struct answer *answer, const char *kind, json_t *place, const char *done_key,
			     const char *content)
{
	const char *rest = content;
	char type[64];
	json_t *event;

	snprintf(type, sizeof(type), "response.%s.delta", kind);
	while (*rest != '\0') {
		size_t length = delta_length(rest);

		event = json_pack("{s:s,s:s%}", "type", type, "delta", rest, length);
		json_object_update(event, place);
		add_numbered(answer, event);
		rest += length;
	}
	snprintf(type, sizeof(type), "response.%s.done", kind);
	event = json_pack("{s:s,s:s}", "type", type, done_key, content);
	json_object_update(event, place);
	add_numbered(answer, event);
}

static void responses_item(struct answer *answer, const char *type, int index, json_t *item)
{
	add_numbered(answer, json_pack("{s:s,s:i,s:o}", "type", type, "output_index", index, "item", item));
}

static void responses_part(struct answer *answer, const char *type, const char *item, const char *text)
{
	add_numbered(answer, json_pack("{s:s,s:s,s:i,s:i,s:{s:s,s:s,s:[]}}", "type", type, "item_id", item,
				       "output_index", 0, "content_index", 0, "part", "type", "output_text",
				       "text", text, "annotations"));
}

static void responses_turn(struct answer *answer, const struct request *request, const char *text,
			   const char *command, unsigned long long number, size_t bytes)
{
	json_t *arguments = command != NULL ? tool_arguments(request, command) : NULL;
	char *written = responses_input(request, arguments);
	bool code = request->form == SHELL_CODE;
	size_t spent = strlen(text) + (written != NULL ? strlen(written) : 0);
	char id[48], message_id[48], call_id[48], call[48];
	json_t *output, *usage, *place;

	snprintf(id, sizeof(id), "resp_synth_%llu", number);
	snprintf(message_id, sizeof(message_id), "msg_synth_%llu", number);
	snprintf(call_id, sizeof(call_id), "fc_synth_%llu", number);
	snprintf(call, sizeof(call), "call_synth_%zu_%llu", request->results + 1, number);
	output = json_array();
	json_array_append_new(output, responses_message(message_id, "completed", text));
	if (written != NULL)
		json_array_append_new(output, responses_call(request, call_id, call, "completed", written,
							     command));
	usage = json_pack("{s:I,s:{s:i},s:I,s:{s:i},s:I}", "input_tokens", (json_int_t)tokens(bytes),
			  "input_tokens_details", "cached_tokens", 0, "output_tokens",
			  (json_int_t)tokens(spent), "output_tokens_details", "reasoning_tokens", 0,
			  "total_tokens", (json_int_t)(tokens(bytes) + tokens(spent)));
	if (!request->stream) {
		answer_json(answer, 200, responses_body(request, id, "completed", output, usage));
		goto out;
	}
	add_numbered(answer, json_pack("{s:s,s:o}", "type", "response.created", "response",
				       responses_body(request, id, "in_progress", json_array(), json_null())));
	add_numbered(answer, json_pack("{s:s,s:o}", "type", "response.in_progress", "response",
				       responses_body(request, id, "in_progress", json_array(), json_null())));
	responses_item(answer, "response.output_item.added", 0,
		       responses_message(message_id, "in_progress", NULL));
	responses_part(answer, "response.content_part.added", message_id, "");
	place = json_pack("{s:s,s:i,s:i}", "item_id", message_id, "output_index", 0, "content_index", 0);
	responses_deltas(answer, "output_text", place, "text", text);
	json_decref(place);
	responses_part(answer, "response.content_part.done", message_id, text);
	responses_item(answer, "response.output_item.done", 0,
		       responses_message(message_id, "completed", text));
	if (written != NULL) {
		responses_item(answer, "response.output_item.added", 1,
			       responses_call(request, call_id, call, "in_progress", "", command));
		if (request->form != SHELL_LOCAL) {
			place = json_pack("{s:s,s:i}", "item_id", call_id, "output_index", 1);
			responses_deltas(answer, code ? "custom_tool_call_input" : "function_call_arguments", place,
					 code ? "input" : "arguments", written);
			json_decref(place);
		}
		responses_item(answer, "response.output_item.done", 1,
			       responses_call(request, call_id, call, "completed", written, command));
	}
	add_numbered(answer, json_pack("{s:s,s:o}", "type", "response.completed", "response",
				       responses_body(request, id, "completed", output, usage)));
out:
	free(written);
	json_decref(arguments);
}

void answer_turn(struct answer *answer, enum api api, const struct request *request, const char *text,
		 const char *command, unsigned long long number, size_t bytes)
{
	answer->status = 200;
	answer->stream = request->stream;
	if (api == API_ANTHROPIC)
		messages_turn(answer, request, text, command, number, bytes);
	else
		responses_turn(answer, request, text, command, number, bytes);
}

/* --- errors ----------------------------------------------------------------------------------- */

static const char *anthropic_type(int status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 403:
		return "permission_error";
	case 404:
		return "not_found_error";
	case 413:
		return "request_too_large";
	case 429:
		return "rate_limit_error";
	case 529:
		return "overloaded_error";
	default:
		return status >= 500 ? "api_error" : "invalid_request_error";
	}
}

static const char *openai_type(int status)
{
	switch (status) {
	case 401:
		return "invalid_api_key";
	case 429:
		return "usage_limit_reached";
	case 503:
	case 529:
		return "server_is_overloaded";
	default:
		return status >= 500 ? "server_error" : "invalid_request_error";
	}
}

void answer_error(struct answer *answer, enum api api, int status, const char *message,
		  unsigned retry_after_s)
{
	json_t *error;

	if (api != API_OPENAI) {
		answer_json(answer, status,
			    json_pack("{s:s,s:{s:s,s:s}}", "type", "error", "error", "type",
				      anthropic_type(status), "message", message));
		return;
	}
	error = json_pack("{s:s,s:s,s:s}", "type", openai_type(status), "code", openai_type(status), "message",
			  message);
	if (status == 429) {
		json_object_set_new(error, "plan_type", json_string("synthetic"));
		json_object_set_new(error, "resets_at",
				    json_integer((json_int_t)time(NULL) + (json_int_t)retry_after_s));
		json_object_set_new(error, "resets_in_seconds", json_integer((json_int_t)retry_after_s));
	}
	answer_json(answer, status, json_pack("{s:o}", "error", error));
}
