/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MINI_CONVERSATION_H
#define MINI_CONVERSATION_H

/* Requests and answers in the words of either API. No I/O. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum api { API_ANTHROPIC, API_OPENAI };

struct conversation {
	enum api api;
	const char *model;
	long max_tokens;
	json_t *turns; /* messages, or input items */
};

struct tool_call {
	char *id, *command; /* command NULL: the arguments are not what the tool takes */
};

/* One answer of the model, collected from its events. */
struct turn {
	enum api api;
	json_t *blocks; /* anthropic: content blocks by index; openai: finished items */
	char *text;     /* all text of it; set by turn_finish() */
	struct tool_call *calls;
	size_t call_count;
	bool complete;
	char *stop, *error_type, *error_message;
	long long input_tokens, output_tokens;
};

bool conversation_start(struct conversation *conversation, enum api api, const char *model, long max_tokens,
			const char *packet);
void conversation_clear(struct conversation *conversation);
const char *conversation_path(const struct conversation *conversation);
/* The request as text; the caller frees. */
char *conversation_request(const struct conversation *conversation);
/* The model's turn becomes part of it; then one result per call, in order. */
void conversation_take(struct conversation *conversation, const struct turn *turn);
void conversation_result(struct conversation *conversation, const struct tool_call *call, const char *text,
			 bool is_error);

void turn_start(struct turn *turn, enum api api);
/* One event's data. What is not known is passed over. */
void turn_event(struct turn *turn, const char *data);
void turn_finish(struct turn *turn);
void turn_clear(struct turn *turn);

/* Type and message of an error body of either API, or of the broker. Both are set, and the caller's. */
void error_read(const char *body, char **ret_type, char **ret_message);

#endif
