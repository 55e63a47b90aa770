/* SPDX-License-Identifier: Apache-2.0 */
#include "verify-private.h"

/* Length of the well-formed UTF-8 sequence at `bytes` (Unicode 15, table 3-7), or 0. */
static size_t sequence_length(const unsigned char *bytes, size_t left)
{
	unsigned char first = bytes[0];
	if (first < 0x80)
		return 1;
	size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
	if (first < 0xc2 || first > 0xf4 || left < length)
		return 0;
	unsigned char low = 0x80, high = 0xbf;
	if (first == 0xe0)
		low = 0xa0;
	else if (first == 0xed)
		high = 0x9f;
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xf4)
		high = 0x8f;
	if (bytes[1] < low || bytes[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

static uint32_t code_point(const unsigned char *bytes, size_t length)
{
	uint32_t value = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++)
		value = value << 6 | (bytes[i] & 0x3f);
	return value;
}

/* What would act on the reader's terminal or page instead of being read, or has no place in XML. */
static bool is_unfit(uint32_t value)
{
	if (value < 0x20)
		return value != '\n' && value != '\t';
	return (value >= 0x7f && value < 0xa0) ||      /* DEL, C1 */
	       (value >= 0x200e && value <= 0x200f) || /* marks and overrides of direction */
	       (value >= 0x202a && value <= 0x202e) || (value >= 0x2066 && value <= 0x2069) ||
	       (value & 0xfffe) == 0xfffe || (value >= 0xfdd0 && value <= 0xfdef);
}

void text_append(struct orch_buf *buf, const void *bytes, size_t length, bool plain)
{
	static const char replacement[] = "\xef\xbf\xbd";
	const unsigned char *position = bytes, *end = position + length;
	const unsigned char *run = position; /* start of what is taken as it is */
	while (position < end) {
		size_t sequence = sequence_length(position, (size_t)(end - position));
		if (sequence && !(plain && is_unfit(code_point(position, sequence)))) {
			position += sequence;
			continue;
		}
		orch_buf_add(buf, run, (size_t)(position - run));
		orch_buf_add(buf, replacement, 3);
		position += sequence ? sequence : 1;
		run = position;
	}
	orch_buf_add(buf, run, (size_t)(position - run));
}
