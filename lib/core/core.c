/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "core-private.h"
#include "os.h"

const char *orch_version(void)
{
	return ORCH_VERSION_STRING;
}

static bool buf_reserve(struct orch_buf *buf, size_t more)
{
	if (buf->failed)
		return false;
	if (more < buf->capacity - buf->length)
		return true;
	size_t capacity = buf->capacity ? buf->capacity : 128;
	while (capacity - buf->length <= more) {
		if (capacity > SIZE_MAX / 2) {
			buf->failed = true;
			return false;
		}
		capacity *= 2;
	}
	char *grown = realloc(buf->data, capacity);
	if (!grown) {
		buf->failed = true;
		return false;
	}
	buf->data = grown;
	buf->capacity = capacity;
	return true;
}

void orch_buf_add(struct orch_buf *buf, const void *bytes, size_t length)
{
	if (!buf_reserve(buf, length))
		return;
	if (length)
		memcpy(buf->data + buf->length, bytes, length);
	buf->length += length;
	buf->data[buf->length] = '\0';
}

void orch_buf_puts(struct orch_buf *buf, const char *text)
{
	orch_buf_add(buf, text, strlen(text));
}

void orch_buf_printf(struct orch_buf *buf, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	_cleanup_free_ char *text = NULL;
	int length = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (length < 0) {
		text = NULL;
		buf->failed = true;
		return;
	}
	orch_buf_add(buf, text, (size_t)length);
}

void orch_buf_shift(struct orch_buf *buf, size_t length)
{
	if (!length)
		return;
	if (length > buf->length)
		length = buf->length;
	buf->length -= length;
	memmove(buf->data, buf->data + length, buf->length);
	buf->data[buf->length] = '\0';
}

void orch_buf_free(struct orch_buf *buf)
{
	free(buf->data);
	memset(buf, 0, sizeof(*buf));
}

char *orch_strdup_printf(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *text = NULL;
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	return text;
}

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t orch_monotonic_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

int64_t orch_realtime_ms(void)
{
	return clock_us(CLOCK_REALTIME) / 1000;
}

void orch_random_hex(char *hex, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned char byte;
		orch_random_bytes(&byte, 1);
		snprintf(hex + 2 * i, 3, "%02x", byte);
	}
}
