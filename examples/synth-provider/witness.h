/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYNTH_WITNESS_H
#define SYNTH_WITNESS_H

/*
 * What arrived, on the disk before it is answered: a log of requests, and the counting service. Both are the
 * outside witness of tests that claim that nothing was sent twice. Thread-safe.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct witness;

/* Either path may be NULL. What the files hold already counts. NULL with a reason. */
struct witness *witness_new(const char *log_path, const char *outside_path, char *error, size_t error_size);
struct witness *witness_free(struct witness *witness);
/* Adds "n", writes the line, syncs. Takes `line`. The number, or 0 when it could not be written. */
unsigned long long witness_log(struct witness *witness, json_t *line);
/* Counts an arrival, also of a key that is known. 0: could not be written. */
unsigned long long witness_arrival(struct witness *witness, const char *key, const char *body,
				   size_t length);
/* How often the key arrived. */
unsigned long long witness_arrivals(struct witness *witness, const char *key);

#endif
