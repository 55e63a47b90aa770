/* SPDX-License-Identifier: Apache-2.0 */
#include "sse.h"

#include <stdlib.h>
#include <string.h>

static bool append(char **text, size_t *length, size_t *size, const char *bytes, size_t count)
{
	if (*length + count + 1 > SSE_EVENT_LIMIT)
		return false;
	if (*length + count + 1 > *size) {
		size_t wanted = (*length + count + 1) * 2;
		char *bigger = realloc(*text, wanted);

		if (bigger == NULL)
			return false;
		*text = bigger;
		*size = wanted;
	}
	if (count > 0)
		memcpy(*text + *length, bytes, count);
	*length += count;
	(*text)[*length] = '\0';
	return true;
}

static bool end_of_line(struct sse *sse)
{
	const char *line = sse->line != NULL ? sse->line : "";
	bool good = true;

	if (sse->line_length == 0) {
		if (sse->has_data)
			sse->fn(sse->userdata, sse->data);
		sse->has_data = false;
		sse->data_length = 0;
	} else if (strncmp(line, "data:", 5) == 0) {
		line += line[5] == ' ' ? 6 : 5;
		if (sse->has_data)
			good = append(&sse->data, &sse->data_length, &sse->data_size, "\n", 1);
		good = good && append(&sse->data, &sse->data_length, &sse->data_size, line, strlen(line));
		sse->has_data = good;
	}
	/* Names, ids and comments are not needed: each data object has its type. */
	sse->line_length = 0;
	return good;
}

bool sse_feed(struct sse *sse, const char *bytes, size_t length)
{
	const char *end = bytes + length;

	while (bytes < end) {
		const char *stop = bytes;

		if (*bytes == '\n' && sse->skip_newline) {
			sse->skip_newline = false;
			bytes++;
			continue;
		}
		sse->skip_newline = false;
		while (stop < end && *stop != '\n' && *stop != '\r')
			stop++;
		if (!append(&sse->line, &sse->line_length, &sse->line_size, bytes, (size_t)(stop - bytes)))
			return false;
		if (stop == end)
			break;
		sse->skip_newline = *stop == '\r';
		if (!end_of_line(sse))
			return false;
		bytes = stop + 1;
	}
	return true;
}

void sse_clear(struct sse *sse)
{
	free(sse->line);
	free(sse->data);
	memset(sse, 0, sizeof(*sse));
}
