/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire.h"

#define WIRE_MAGIC 0x68637243u

/* The descriptors that each type carries, at least and at most. */
static const struct {
	uint8_t least, most;
} wire_fds[WIRE_TYPES] = {
    [WIRE_HELLO] = {0, 1}, [WIRE_SCOPE_NEW] = {0, 1}, [WIRE_SPAWN] = {4, 4},
    [WIRE_READY] = {0, 4}, [WIRE_CONNECTED] = {0, 1}, [WIRE_SCOPE_UP] = {1, 4},
};

struct wire_packet wire_packet(enum wire_type type, uint32_t scope, uint32_t subject)
{
	struct wire_packet packet = {
	    .message = {.type = (uint16_t)type, .scope = scope, .subject = subject}};
	return packet;
}

void wire_copy(char *field, size_t size, const char *value)
{
	snprintf(field, size, "%s", value);
}

static uint8_t *put(uint8_t *to, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*to++ = (uint8_t)(value >> (8 * i));
	return to;
}

static uint64_t get(const uint8_t **from, unsigned bytes)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t) * (*from)++ << (8 * i);
	return value;
}

void wire_encode(const struct wire_message *message, uint32_t fd_count,
		 uint8_t frame[WIRE_FRAME_SIZE])
{
	uint8_t *to = frame;
	to = put(to, WIRE_MAGIC, 4);
	to = put(to, WIRE_VERSION, 2);
	to = put(to, message->type, 2);
	to = put(to, message->flags, 4);
	to = put(to, fd_count, 4);
	to = put(to, message->scope, 4);
	to = put(to, message->subject, 4);
	to = put(to, (uint32_t)message->code, 4);
	to = put(to, (uint32_t)message->os_errno, 4);
	to = put(to, (uint32_t)message->value, 4);
	for (unsigned i = 0; i < WIRE_NUMBERS; i++)
		to = put(to, message->number[i], 8);
	memcpy(to, message->step, WIRE_STEP_MAX);
	memcpy(to + WIRE_STEP_MAX, message->text, WIRE_TEXT_MAX);
}

int wire_decode(const uint8_t *frame, size_t length, uint32_t fd_count,
		struct wire_message *message)
{
	const uint8_t *from = frame;
	if (length < 8 || get(&from, 4) != WIRE_MAGIC)
		return -EPROTO;
	if (get(&from, 2) != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (length != WIRE_FRAME_SIZE)
		return -EPROTO;
	memset(message, 0, sizeof(*message));
	message->type = (uint16_t)get(&from, 2);
	message->flags = (uint32_t)get(&from, 4);
	uint32_t declared = (uint32_t)get(&from, 4);
	if (fd_count == WIRE_ANY_FDS)
		fd_count = declared;
	if (declared != fd_count || message->type == 0 || message->type >= WIRE_TYPES)
		return -EPROTO;
	uint32_t least = wire_fds[message->type].least;
	if (message->type == WIRE_SCOPE_UP && message->flags & WIRE_LINEAGE)
		least = 0;
	if (fd_count < least || fd_count > wire_fds[message->type].most)
		return -EPROTO;
	message->scope = (uint32_t)get(&from, 4);
	message->subject = (uint32_t)get(&from, 4);
	message->code = (int32_t)get(&from, 4);
	message->os_errno = (int32_t)get(&from, 4);
	message->value = (int32_t)get(&from, 4);
	for (unsigned i = 0; i < WIRE_NUMBERS; i++)
		message->number[i] = get(&from, 8);
	memcpy(message->step, from, WIRE_STEP_MAX);
	memcpy(message->text, from + WIRE_STEP_MAX, WIRE_TEXT_MAX);
	if (message->step[WIRE_STEP_MAX - 1] || message->text[WIRE_TEXT_MAX - 1])
		return -EPROTO;
	return 0;
}
