/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PACKET_MARK "orch-packet/1 "

/* Names go into file names: nothing but letters, digits, '_' and '-'. */
static bool copy_word(char *target, size_t size, const char *text, size_t length)
{
	if (length == 0 || length >= size)
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '-' || c == '.'))
			return false;
		target[i] = c;
	}
	target[length] = '\0';
	return strchr(target, '/') == NULL && target[0] != '.';
}

static bool is_word(const char *text, size_t length, const char *word)
{
	return strlen(word) == length && memcmp(text, word, length) == 0;
}

static bool parse_packet(struct packet *packet, const char *line)
{
	char number[16] = "";
	const struct {
		const char *name;
		char *target;
		size_t size;
	} words[] = {
		{"run", packet->run, sizeof(packet->run)},
		{"role", packet->role, sizeof(packet->role)},
		{"stage", packet->stage, sizeof(packet->stage)},
		{"task", packet->task, sizeof(packet->task)},
		{"attempt", number, sizeof(number)},
	};
	unsigned seen = 0;

	memset(packet, 0, sizeof(*packet));
	while (*line != '\0' && *line != '\n' && *line != '\r') {
		size_t length = strcspn(line, " \r\n"), name = strcspn(line, "= \r\n");
		const char *value = line + name + 1;
		size_t value_length = name < length ? length - name - 1 : 0;

		if (name < length) {
			for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
				if (is_word(line, name, words[i].name) &&
				    copy_word(words[i].target, words[i].size, value, value_length))
					seen |= 1u << i;
			}
		}
		line += length;
		line += strspn(line, " ");
	}
	packet->attempt = (unsigned)strtoul(number, NULL, 10);
	return seen == 31 && strspn(number, "0123456789") == strlen(number);
}

static void look_for_packet(struct request *request, const char *text)
{
	const char *at = text;

	if (request->has_packet || text == NULL)
		return;
	while ((at = strstr(at, PACKET_MARK)) != NULL) {
		if (at == text || at[-1] == '\n') {
			request->has_packet = true;
			request->packet_is_malformed =
				!parse_packet(&request->packet, at + strlen(PACKET_MARK));
			request->results = 0;
			return;
		}
		at++;
	}
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static bool is_type(const json_t *object, const char *type)
{
	const char *text = text_of(object, "type");

	return text != NULL && strcmp(text, type) == 0;
}

/* Text parts of a message, and the tool results among them (Messages puts those in user messages). */
static void read_content(struct request *request, const json_t *content)
{
	size_t index;
	json_t *part;

	if (json_is_string(content))
		look_for_packet(request, json_string_value(content));
	json_array_foreach(content, index, part)
	{
		if (is_type(part, "tool_result"))
			request->results++;
		else
			look_for_packet(request, text_of(part, "text"));
	}
}

static bool from_user(const json_t *message)
{
	const char *role = text_of(message, "role");

	return role != NULL && strcmp(role, "user") == 0;
}

static void read_messages(struct request *request)
{
	size_t index;
	json_t *message;

	json_array_foreach(json_object_get(request->body, "messages"), index, message)
	{
		if (from_user(message))
			read_content(request, json_object_get(message, "content"));
	}
}

static void read_input(struct request *request)
{
	const json_t *input = json_object_get(request->body, "input");
	size_t index;
	json_t *item;

	if (json_is_string(input))
		look_for_packet(request, json_string_value(input));
	json_array_foreach(input, index, item)
	{
		const char *type = text_of(item, "type");
		size_t length = type != NULL ? strlen(type) : 0;

		if (length > 7 && strcmp(type + length - 7, "_output") == 0)
			request->results++;
		else if (from_user(item))
			read_content(request, json_object_get(item, "content"));
	}
}

/* In order of preference: a client may offer several. */
static const char *const shell_names[] = {"exec_command", "shell_command", "Bash", "bash", "shell", NULL};

static bool take_tool(struct request *request, const json_t *tool, const char *schema_key)
{
	const json_t *properties = json_object_get(json_object_get(tool, schema_key), "properties");
	const char *key = json_object_get(properties, "cmd") != NULL ? "cmd" : "command";
	const json_t *value = json_object_get(properties, key);

	if (value == NULL)
		return false;
	request->tool = text_of(tool, "name");
	request->key = key;
	request->form = is_type(value, "array") ? SHELL_ARGV : SHELL_TEXT;
	request->wants_description = json_object_get(properties, "description") != NULL;
	request->wants_yield_time = json_object_get(properties, "yield_time_ms") != NULL;
	return true;
}

/* What a tool is found by. */
struct wanted {
	const char *name;
	const char *schema_key;
};

typedef bool (*take_fn)(struct request *request, const json_t *tool, const struct wanted *wanted);

/* True if one of `tools` is it. Tools may lie in namespaces. */
static bool find_in(struct request *request, const json_t *tools, const char *space,
		    take_fn take, const struct wanted *wanted)
{
	size_t index;
	json_t *tool;

	json_array_foreach(tools, index, tool)
	{
		if (is_type(tool, "namespace")) {
			if (find_in(request, json_object_get(tool, "tools"), text_of(tool, "name"), take,
				    wanted))
				return true;
		} else if (take(request, tool, wanted)) {
			request->space = space;
			return true;
		}
	}
	return false;
}

static bool take_named(struct request *request, const json_t *tool, const struct wanted *wanted)
{
	const char *name = text_of(tool, "name");

	return name != NULL && strcmp(name, wanted->name) == 0 && take_tool(request, tool, wanted->schema_key);
}

static bool take_local(struct request *request, const json_t *tool, const struct wanted *wanted)
{
	(void)wanted;
	if (!is_type(tool, "local_shell"))
		return false;
	request->form = SHELL_LOCAL;
	request->tool = "local_shell";
	request->key = "command";
	return true;
}

/* Codex in its code mode: the shell is a function in there. */
static bool take_code(struct request *request, const json_t *tool, const struct wanted *wanted)
{
	const char *description = text_of(tool, "description");

	(void)wanted;
	if (!is_type(tool, "custom") || description == NULL || strstr(description, "exec_command") == NULL)
		return false;
	request->form = SHELL_CODE;
	request->tool = text_of(tool, "name");
	request->key = "cmd";
	request->wants_yield_time = true;
	return request->tool != NULL;
}

static bool find_everywhere(struct request *request, take_fn take, const struct wanted *wanted)
{
	size_t index;
	json_t *item;

	if (find_in(request, json_object_get(request->body, "tools"), NULL, take, wanted))
		return true;
	/* Tools can also come as an item of the input. */
	json_array_foreach(json_object_get(request->body, "input"), index, item)
	{
		if (is_type(item, "additional_tools") &&
		    find_in(request, json_object_get(item, "tools"), NULL, take, wanted))
			return true;
	}
	return false;
}

static void find_shell(struct request *request, const char *schema_key)
{
	for (const char *const *name = shell_names; *name != NULL; name++) {
		const struct wanted wanted = {*name, schema_key};

		if (find_everywhere(request, take_named, &wanted))
			return;
	}
	if (!find_everywhere(request, take_local, NULL))
		find_everywhere(request, take_code, NULL);
}

bool request_parse(enum api api, const char *bytes, size_t length, struct request *request, char *error,
		   size_t error_size)
{
	json_error_t where;

	memset(request, 0, sizeof(*request));
	request->body = json_loadb(bytes, length, 0, &where);
	if (!json_is_object(request->body)) {
		if (request->body == NULL)
			snprintf(error, error_size, "the request is not JSON: line %d: %s", where.line,
				 where.text);
		else
			snprintf(error, error_size, "the request is not a JSON object");
		request_clear(request);
		return false;
	}
	request->stream = json_is_true(json_object_get(request->body, "stream"));
	request->model = text_of(request->body, "model");
	if (request->model == NULL) {
		snprintf(error, error_size, "model: field required");
		request_clear(request);
		return false;
	}
	if (api == API_ANTHROPIC) {
		read_messages(request);
		find_shell(request, "input_schema");
	} else {
		read_input(request);
		find_shell(request, "parameters");
	}
	return true;
}

void request_clear(struct request *request)
{
	json_decref(request->body);
	memset(request, 0, sizeof(*request));
}
