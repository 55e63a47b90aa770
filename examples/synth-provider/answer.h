/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYNTH_ANSWER_H
#define SYNTH_ANSWER_H

/* What is sent back, in the words of either API. Makes bytes, sends none. */

#include "request.h"

/* Pieces of a body; each is sent as one chunk. */
struct answer {
	int status;
	bool stream;
	char **pieces;
	size_t count;
	bool failed; /* out of memory */
};

/*
 * A model's turn: `text`, and a tool call of `command` if that is not NULL. `number` makes identifiers
 * unique, `bytes` is the request's size, of which the usage is computed.
 */
void answer_turn(struct answer *answer, enum api api, const struct request *request, const char *text,
		 const char *command, unsigned long long number, size_t bytes);
/* The error body of an API for a status. */
void answer_error(struct answer *answer, enum api api, int status, const char *message,
		  unsigned retry_after_s);
void answer_json(struct answer *answer, int status, json_t *body); /* takes body */
void answer_clear(struct answer *answer);

#endif
