/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYNTH_REQUEST_H
#define SYNTH_REQUEST_H

/* What a client asked, in the terms of a scenario. Bytes in, structure out. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "scenario.h"

enum api { API_NONE, API_ANTHROPIC, API_OPENAI };

/* How the client's shell tool wants a command. */
enum shell_form {
	SHELL_NONE,
	SHELL_TEXT,  /* {KEY: "..."} */
	SHELL_ARGV,  /* {KEY: ["/bin/sh", "-c", "..."]} */
	SHELL_LOCAL, /* the built-in local_shell of OpenAI */
	SHELL_CODE,  /* a program in JavaScript that calls tools.exec_command() */
};

struct request {
	json_t *body;
	bool stream;
	const char *model; /* in body */
	bool has_packet, packet_is_malformed;
	struct packet packet;
	size_t results; /* tool results after the packet */
	enum shell_form form;
	const char *tool, *key;  /* in body, or static */
	const char *space;       /* the tool's namespace, or NULL */
	bool wants_description, wants_yield_time;
};

/* False with a reason. */
bool request_parse(enum api api, const char *bytes, size_t length, struct request *request, char *error,
		   size_t error_size);
void request_clear(struct request *request);

#endif
