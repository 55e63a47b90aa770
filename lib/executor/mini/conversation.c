/* SPDX-License-Identifier: Apache-2.0 */
#include "conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char instructions[] =
	"You work alone in a sandbox, in the current folder; nobody can answer questions. Use the tool `shell` "
	"to look at files and to change them. When everything that was asked is done, answer with a short "
	"summary and no tool call.";

static json_t *shell_schema(void)
{
	return json_pack("{s:s,s:{s:{s:s,s:s}},s:[s]}", "type", "object", "properties", "command", "type",
			 "string", "description", "A command line for /bin/sh", "required", "command");
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static bool equals(const char *text, const char *other)
{
	return text != NULL && strcmp(text, other) == 0;
}

static void set_text(char **target, const char *text)
{
	free(*target);
	*target = strdup(text != NULL ? text : "");
}

/* --- requests --------------------------------------------------------------------------------- */

bool conversation_start(struct conversation *conversation, enum api api, const char *model, long max_tokens,
			const char *packet)
{
	*conversation = (struct conversation){.api = api, .model = model, .max_tokens = max_tokens};
	/* Both APIs take a plain text as a user's message. NULL if it is not UTF-8. */
	conversation->turns = json_pack("[{s:s,s:s}]", "role", "user", "content", packet);
	return conversation->turns != NULL;
}

void conversation_clear(struct conversation *conversation)
{
	json_decref(conversation->turns);
	conversation->turns = NULL;
}

const char *conversation_path(const struct conversation *conversation)
{
	return conversation->api == API_ANTHROPIC ? "/v1/messages" : "/v1/responses";
}

char *conversation_request(const struct conversation *conversation)
{
	json_t *request;
	char *text;

	if (conversation->api == API_ANTHROPIC)
		request = json_pack("{s:s,s:I,s:b,s:s,s:[{s:s,s:s,s:o}],s:O}", "model", conversation->model,
				    "max_tokens", (json_int_t)conversation->max_tokens, "stream", 1, "system",
				    instructions, "tools", "name", "shell", "description",
				    "Runs a command with /bin/sh -c and returns its output and exit status",
				    "input_schema", shell_schema(), "messages", conversation->turns);
	else
		request = json_pack("{s:s,s:I,s:b,s:b,s:[s],s:b,s:s,s:[{s:s,s:s,s:s,s:o,s:b}],s:O}", "model",
				    conversation->model, "max_output_tokens",
				    (json_int_t)conversation->max_tokens, "stream", 1, "store", 0, "include",
				    "reasoning.encrypted_content", "parallel_tool_calls", 0, "instructions",
				    instructions, "tools", "type", "function", "name", "shell", "description",
				    "Runs a command with /bin/sh -c and returns its output and exit status",
				    "parameters", shell_schema(), "strict", 0, "input", conversation->turns);
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	return text;
}

void conversation_take(struct conversation *conversation, const struct turn *turn)
{
	size_t index;
	json_t *item;

	if (conversation->api == API_ANTHROPIC) {
		if (json_array_size(turn->blocks) > 0)
			json_array_append_new(conversation->turns,
					      json_pack("{s:s,s:O}", "role", "assistant", "content",
							turn->blocks));
		return;
	}
	json_array_foreach(turn->blocks, index, item)
		json_array_append(conversation->turns, item);
}

/* Messages wants all results of a turn in one user message. */
static json_t *results_message(struct conversation *conversation)
{
	size_t count = json_array_size(conversation->turns);
	json_t *last = json_array_get(conversation->turns, count - 1);

	if (equals(text_of(last, "role"), "user") && json_is_array(json_object_get(last, "content")))
		return json_object_get(last, "content");
	json_array_append_new(conversation->turns, json_pack("{s:s,s:[]}", "role", "user", "content"));
	return json_object_get(json_array_get(conversation->turns, count), "content");
}

void conversation_result(struct conversation *conversation, const struct tool_call *call, const char *text,
			 bool is_error)
{
	if (conversation->api == API_ANTHROPIC)
		json_array_append_new(results_message(conversation),
				      json_pack("{s:s,s:s,s:s,s:b}", "type", "tool_result", "tool_use_id",
						call->id, "content", text, "is_error", is_error));
	else
		json_array_append_new(conversation->turns,
				      json_pack("{s:s,s:s,s:s}", "type", "function_call_output", "call_id",
						call->id, "output", text));
}

/* --- answers ---------------------------------------------------------------------------------- */

void turn_start(struct turn *turn, enum api api)
{
	*turn = (struct turn){.api = api, .blocks = json_array()};
}

void turn_clear(struct turn *turn)
{
	for (size_t i = 0; i < turn->call_count; i++) {
		free(turn->calls[i].id);
		free(turn->calls[i].command);
	}
	free(turn->calls);
	free(turn->text);
	free(turn->stop);
	free(turn->error_type);
	free(turn->error_message);
	json_decref(turn->blocks);
	memset(turn, 0, sizeof(*turn));
}

static void take_error(struct turn *turn, const json_t *error)
{
	const char *type = text_of(error, "type");

	if (type == NULL || equals(type, "error"))
		type = text_of(error, "code");
	set_text(&turn->error_type, type != NULL ? type : "error");
	set_text(&turn->error_message, text_of(error, "message"));
}

static void join(json_t *object, const char *key, const char *more)
{
	const char *text = text_of(object, key);
	char *both = NULL;

	if (more == NULL || asprintf(&both, "%s%s", text != NULL ? text : "", more) < 0)
		return;
	json_object_set_new(object, key, json_string(both));
	free(both);
}

static void take_usage(struct turn *turn, const json_t *usage)
{
	const json_t *input = json_object_get(usage, "input_tokens");
	const json_t *output = json_object_get(usage, "output_tokens");

	if (json_is_integer(input))
		turn->input_tokens = json_integer_value(input);
	if (json_is_integer(output))
		turn->output_tokens = json_integer_value(output);
}

static void messages_event(struct turn *turn, const char *type, const json_t *event)
{
	size_t index = (size_t)json_integer_value(json_object_get(event, "index"));
	json_t *block = json_array_get(turn->blocks, index), *delta = json_object_get(event, "delta");

	if (equals(type, "message_start")) {
		take_usage(turn, json_object_get(json_object_get(event, "message"), "usage"));
	} else if (equals(type, "content_block_start")) {
		/* Blocks come in the order of their indexes. */
		if (index == json_array_size(turn->blocks))
			json_array_append(turn->blocks, json_object_get(event, "content_block"));
	} else if (equals(type, "content_block_delta")) {
		if (equals(text_of(delta, "type"), "text_delta"))
			join(block, "text", text_of(delta, "text"));
		else if (equals(text_of(delta, "type"), "input_json_delta"))
			join(block, "partial", text_of(delta, "partial_json"));
	} else if (equals(type, "message_delta")) {
		take_usage(turn, json_object_get(event, "usage"));
		set_text(&turn->stop, text_of(delta, "stop_reason"));
	} else if (equals(type, "message_stop")) {
		turn->complete = true;
	}
}

static void responses_event(struct turn *turn, const char *type, const json_t *event)
{
	json_t *response = json_object_get(event, "response"), *item = json_object_get(event, "item");
	const char *reason;

	if (equals(type, "response.output_item.done")) {
		/* The provider keeps nothing (store: false), so that its names for items mean nothing later. */
		if (!equals(text_of(item, "type"), "reasoning"))
			json_object_del(item, "id");
		json_object_del(item, "status");
		json_array_append(turn->blocks, item);
	} else if (equals(type, "response.completed") || equals(type, "response.incomplete")) {
		take_usage(turn, json_object_get(response, "usage"));
		reason = text_of(json_object_get(response, "incomplete_details"), "reason");
		set_text(&turn->stop, reason != NULL ? reason : "end_turn");
		turn->complete = true;
	} else if (equals(type, "response.failed")) {
		take_error(turn, json_object_get(response, "error"));
	}
}

void turn_event(struct turn *turn, const char *data)
{
	json_t *event = json_loads(data, 0, NULL);
	const char *type = text_of(event, "type");
	const json_t *error = json_object_get(event, "error");

	if (equals(type, "error"))
		take_error(turn, json_is_object(error) ? error : event);
	else if (type != NULL && turn->api == API_ANTHROPIC)
		messages_event(turn, type, event);
	else if (type != NULL)
		responses_event(turn, type, event);
	json_decref(event);
}

static void add_text(struct turn *turn, const char *more)
{
	char *both = NULL;

	if (more == NULL || more[0] == '\0')
		return;
	if (asprintf(&both, "%s%s", turn->text, more) < 0)
		return;
	free(turn->text);
	turn->text = both;
}

static void add_call(struct turn *turn, const char *id, const char *name, const json_t *arguments)
{
	struct tool_call *calls = realloc(turn->calls, (turn->call_count + 1) * sizeof(*calls));
	const char *command = text_of(arguments, "command");

	if (calls == NULL)
		return;
	turn->calls = calls;
	calls[turn->call_count++] = (struct tool_call){
		.id = strdup(id != NULL ? id : ""),
		.command = equals(name, "shell") && command != NULL ? strdup(command) : NULL,
	};
}

static void finish_block(struct turn *turn, json_t *block)
{
	const char *type = text_of(block, "type"), *partial = text_of(block, "partial");
	json_t *input;

	if (equals(type, "text"))
		add_text(turn, text_of(block, "text"));
	if (!equals(type, "tool_use"))
		return;
	if (partial != NULL) {
		input = json_loads(partial, 0, NULL);
		json_object_set_new(block, "input", json_is_object(input) ? input : json_object());
		json_object_del(block, "partial");
	}
	add_call(turn, text_of(block, "id"), text_of(block, "name"), json_object_get(block, "input"));
}

static void finish_item(struct turn *turn, json_t *item)
{
	const char *type = text_of(item, "type"), *text;
	json_t *part, *arguments;
	size_t index;

	json_array_foreach(json_object_get(item, "content"), index, part)
		add_text(turn, text_of(part, "text"));
	if (!equals(type, "function_call"))
		return;
	text = text_of(item, "arguments");
	arguments = text != NULL ? json_loads(text, 0, NULL) : NULL;
	add_call(turn, text_of(item, "call_id"), text_of(item, "name"), arguments);
	json_decref(arguments);
}

void turn_finish(struct turn *turn)
{
	size_t index;
	json_t *block;

	set_text(&turn->text, "");
	json_array_foreach(turn->blocks, index, block)
	{
		if (turn->api == API_ANTHROPIC)
			finish_block(turn, block);
		else
			finish_item(turn, block);
	}
	/* Messages refuses empty text blocks. */
	for (index = json_array_size(turn->blocks); turn->api == API_ANTHROPIC && index-- > 0;) {
		block = json_array_get(turn->blocks, index);
		if (equals(text_of(block, "type"), "text") && equals(text_of(block, "text"), ""))
			json_array_remove(turn->blocks, index);
	}
}

void error_read(const char *body, char **ret_type, char **ret_message)
{
	json_t *root = json_loads(body, 0, NULL);
	const json_t *error = json_object_get(root, "error");
	const char *type = text_of(error, "type"), *message = text_of(error, "message");

	*ret_type = strdup(type != NULL ? type : "");
	*ret_message = strdup(message != NULL ? message : "");
	json_decref(root);
}
