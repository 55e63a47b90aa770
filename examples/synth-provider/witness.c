/* SPDX-License-Identifier: Apache-2.0 */
#include "witness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the body of an arrival, kept for people. */
#define BODY_LIMIT 1024

struct witness {
	pthread_mutex_t lock;
	int log_fd, outside_fd;
	unsigned long long requests, arrivals;
	json_t *keys; /* KEY -> count */
};

/* Counts the lines that are there and calls for each. -1 with a reason. */
static int open_log(const char *path, void (*line)(struct witness *witness, const char *text),
		    struct witness *witness, unsigned long long *ret_lines, char *error, size_t error_size)
{
	int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644), copy;
	char *text = NULL;
	size_t size = 0;
	FILE *file;

	copy = fd >= 0 ? dup(fd) : -1;
	file = copy >= 0 ? fdopen(copy, "r") : NULL;
	if (file == NULL) {
		snprintf(error, error_size, "%s: can not be opened: %s", path, strerror(errno));
		if (copy >= 0)
			close(copy);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while (getline(&text, &size, file) > 0) {
		(*ret_lines)++;
		if (line != NULL)
			line(witness, text);
	}
	free(text);
	fclose(file);
	return fd;
}

static void count_key(struct witness *witness, const char *key)
{
	json_int_t count = json_integer_value(json_object_get(witness->keys, key));

	json_object_set_new(witness->keys, key, json_integer(count + 1));
}

static void take_line(struct witness *witness, const char *text)
{
	json_t *line = json_loads(text, 0, NULL);
	const char *key = json_string_value(json_object_get(line, "key"));

	if (key != NULL)
		count_key(witness, key);
	json_decref(line);
}

struct witness *witness_new(const char *log_path, const char *outside_path, char *error, size_t error_size)
{
	struct witness *witness = calloc(1, sizeof(*witness));

	if (witness == NULL) {
		snprintf(error, error_size, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&witness->lock, NULL);
	witness->log_fd = witness->outside_fd = -1;
	witness->keys = json_object();
	if (log_path != NULL) {
		witness->log_fd = open_log(log_path, NULL, witness, &witness->requests, error, error_size);
		if (witness->log_fd < 0)
			return witness_free(witness);
	}
	if (outside_path != NULL) {
		witness->outside_fd = open_log(outside_path, take_line, witness, &witness->arrivals, error,
					       error_size);
		if (witness->outside_fd < 0)
			return witness_free(witness);
	}
	return witness;
}

struct witness *witness_free(struct witness *witness)
{
	if (witness == NULL)
		return NULL;
	if (witness->log_fd >= 0)
		close(witness->log_fd);
	if (witness->outside_fd >= 0)
		close(witness->outside_fd);
	json_decref(witness->keys);
	pthread_mutex_destroy(&witness->lock);
	free(witness);
	return NULL;
}

/* One write per line, so that a kill leaves whole lines; then fsync. No file: nothing to do. */
static bool write_line(int fd, const json_t *line)
{
	char *text = NULL, *json;
	int length;
	bool good;

	if (fd < 0)
		return true;
	json = json_dumps(line, JSON_COMPACT);
	if (json == NULL)
		return false;
	length = asprintf(&text, "%s\n", json);
	free(json);
	if (length < 0)
		return false;
	good = write(fd, text, (size_t)length) == length && fsync(fd) == 0;
	free(text);
	return good;
}

unsigned long long witness_log(struct witness *witness, json_t *line)
{
	unsigned long long number;
	json_t *numbered;

	pthread_mutex_lock(&witness->lock);
	number = ++witness->requests;
	numbered = json_pack("{s:I}", "n", (json_int_t)number);
	if (numbered == NULL || json_object_update(numbered, line) < 0 ||
	    !write_line(witness->log_fd, numbered))
		number = 0;
	pthread_mutex_unlock(&witness->lock);
	json_decref(numbered);
	json_decref(line);
	return number;
}

unsigned long long witness_arrival(struct witness *witness, const char *key, const char *body,
				   size_t length)
{
	unsigned long long number;
	json_t *line, *text = json_stringn(body, length < BODY_LIMIT ? length : BODY_LIMIT);

	pthread_mutex_lock(&witness->lock);
	number = ++witness->arrivals;
	line = json_pack("{s:I,s:s,s:o}", "n", (json_int_t)number, "key", key, "body",
			 text != NULL ? text : json_null());
	if (line == NULL || !write_line(witness->outside_fd, line))
		number = 0;
	else
		count_key(witness, key);
	pthread_mutex_unlock(&witness->lock);
	json_decref(line);
	return number;
}

unsigned long long witness_arrivals(struct witness *witness, const char *key)
{
	unsigned long long count;

	pthread_mutex_lock(&witness->lock);
	count = (unsigned long long)json_integer_value(json_object_get(witness->keys, key));
	pthread_mutex_unlock(&witness->lock);
	return count;
}
