/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "json-scan.h"

void json_scan_init(struct json_scan *scan, json_scan_fn fn, void *userdata)
{
	memset(scan, 0, sizeof(*scan));
	scan->fn = fn;
	scan->userdata = userdata;
	scan->state = JSON_SCAN_VALUE;
}

static bool in_array(const struct json_scan *scan)
{
	unsigned level = scan->depth - 1;
	return scan->is_array[level / 8] >> (level % 8) & 1;
}

/* Sets the last part of the path, below the container's own. */
static void path_set(struct json_scan *scan, const char *part)
{
	unsigned start = scan->path_length[scan->depth];
	size_t length = strlen(part);
	unsigned dot = start ? 1 : 0;

	if (scan->too_long_from && scan->too_long_from < scan->depth)
		return;
	scan->too_long_from = 0;
	if (start + dot + length >= sizeof(scan->path) || (scan->in_key && scan->text_cut)) {
		scan->too_long_from = scan->depth;
		return;
	}
	if (dot)
		scan->path[start] = '.';
	memcpy(scan->path + start + dot, part, length + 1);
}

static bool open_container(struct json_scan *scan, bool array)
{
	if (scan->depth == JSON_SCAN_DEPTH)
		return false;
	unsigned level = scan->depth++;
	unsigned char bit = (unsigned char)(1u << (level % 8));
	if (array)
		scan->is_array[level / 8] |= bit;
	else
		scan->is_array[level / 8] &= (unsigned char)~bit;
	scan->path_length[scan->depth] = (unsigned short)strlen(scan->path);
	scan->state = array ? JSON_SCAN_VALUE_OR_END : JSON_SCAN_KEY_OR_END;
	if (array)
		path_set(scan, "[]");
	return true;
}

static void close_container(struct json_scan *scan)
{
	scan->path[scan->path_length[scan->depth]] = '\0';
	if (scan->too_long_from == scan->depth)
		scan->too_long_from = 0;
	scan->depth--;
	scan->state = JSON_SCAN_AFTER;
}

static void text_begin(struct json_scan *scan, enum json_scan_state state)
{
	scan->state = state;
	scan->text_length = 0;
	scan->text_cut = false;
}

static void text_add(struct json_scan *scan, char byte)
{
	if (scan->in_key && scan->state != JSON_SCAN_IN_NUMBER && (byte == '.' || byte == '['))
		byte = '\1';
	/* A NUL would end the text early for whoever compares it. */
	if (byte == '\0')
		byte = '\1';
	if (scan->text_length == sizeof(scan->text) - 1)
		scan->text_cut = true;
	else
		scan->text[scan->text_length++] = byte;
}

static void text_end(struct json_scan *scan, enum json_scan_type type)
{
	scan->text[scan->text_length] = '\0';
	if (scan->in_key) {
		/* An empty key would vanish from the path. */
		path_set(scan, scan->text_length ? scan->text : "\1");
		scan->in_key = false;
		scan->state = JSON_SCAN_COLON;
		return;
	}
	scan->state = JSON_SCAN_AFTER;
	if (!scan->too_long_from)
		scan->fn(scan->userdata, scan->path, type, scan->text, !scan->text_cut);
}

static bool word_is_known(const struct json_scan *scan)
{
	static const char *const words[] = {"true", "false", "null"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (scan->text_length == strlen(words[i]) &&
		    memcmp(scan->text, words[i], scan->text_length) == 0)
			return true;
	return false;
}

/* [-] int [frac] [exp], RFC 8259 section 6. */
static bool number_is_valid(struct json_scan *scan)
{
	scan->text[scan->text_length] = '\0';
	const char *at = scan->text;
	if (scan->text_cut)
		return false;
	at += *at == '-';
	size_t digits = strspn(at, "0123456789");
	if (!digits || (digits > 1 && *at == '0'))
		return false;
	at += digits;
	if (*at == '.') {
		digits = strspn(++at, "0123456789");
		if (!digits)
			return false;
		at += digits;
	}
	if (*at == 'e' || *at == 'E') {
		at++;
		at += *at == '+' || *at == '-';
		digits = strspn(at, "0123456789");
		if (!digits)
			return false;
		at += digits;
	}
	return *at == '\0';
}

static bool is_space(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static bool value_start(struct json_scan *scan, char byte)
{
	if (byte == '{' || byte == '[')
		return open_container(scan, byte == '[');
	if (byte == '"') {
		text_begin(scan, JSON_SCAN_IN_STRING);
		return true;
	}
	if (byte == '-' || (byte >= '0' && byte <= '9')) {
		text_begin(scan, JSON_SCAN_IN_NUMBER);
		text_add(scan, byte);
		return true;
	}
	if (byte == 't' || byte == 'f' || byte == 'n') {
		text_begin(scan, JSON_SCAN_IN_WORD);
		text_add(scan, byte);
		return true;
	}
	return false;
}

static bool key_start(struct json_scan *scan, char byte)
{
	if (byte != '"')
		return false;
	scan->in_key = true;
	text_begin(scan, JSON_SCAN_IN_STRING);
	return true;
}

static bool after_value(struct json_scan *scan, char byte)
{
	if (!scan->depth)
		return false;
	bool array = in_array(scan);
	if (byte == (array ? ']' : '}')) {
		close_container(scan);
		return true;
	}
	if (byte != ',')
		return false;
	scan->state = array ? JSON_SCAN_VALUE : JSON_SCAN_KEY;
	return true;
}

static bool escape(struct json_scan *scan, char byte)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	if (byte == 'u') {
		scan->unicode = scan->unicode_digits = 0;
		scan->state = JSON_SCAN_IN_UNICODE;
		return true;
	}
	const char *found = byte ? strchr(from, byte) : NULL;
	if (!found)
		return false;
	scan->state = JSON_SCAN_IN_STRING;
	text_add(scan, to[found - from]);
	return true;
}

static bool unicode(struct json_scan *scan, char byte)
{
	static const char hex[] = "0123456789abcdef";
	char lower = byte >= 'A' && byte <= 'F' ? (char)(byte + 32) : byte;
	const char *found = lower ? strchr(hex, lower) : NULL;
	if (!found)
		return false;
	scan->unicode = scan->unicode << 4 | (unsigned)(found - hex);
	if (++scan->unicode_digits < 4)
		return true;
	scan->state = JSON_SCAN_IN_STRING;
	/* Nothing that is compared holds other than ASCII. */
	text_add(scan, scan->unicode < 0x80 ? (char)scan->unicode : '?');
	return true;
}

static bool step(struct json_scan *scan, char byte)
{
	switch (scan->state) {
	case JSON_SCAN_IN_STRING:
		if (byte == '"')
			text_end(scan, JSON_SCAN_STRING);
		else if (byte == '\\')
			scan->state = JSON_SCAN_IN_ESCAPE;
		else if ((unsigned char)byte < 0x20)
			return false;
		else
			text_add(scan, byte);
		return true;
	case JSON_SCAN_IN_ESCAPE:
		return escape(scan, byte);
	case JSON_SCAN_IN_UNICODE:
		return unicode(scan, byte);
	case JSON_SCAN_IN_NUMBER:
		if (byte && strchr("0123456789+-.eE", byte)) {
			text_add(scan, byte);
			return true;
		}
		if (!number_is_valid(scan))
			return false;
		text_end(scan, JSON_SCAN_NUMBER);
		return step(scan, byte);
	case JSON_SCAN_IN_WORD:
		if (byte >= 'a' && byte <= 'z') {
			text_add(scan, byte);
			return true;
		}
		if (!word_is_known(scan))
			return false;
		text_end(scan, JSON_SCAN_WORD);
		return step(scan, byte);
	case JSON_SCAN_BROKEN:
		return false;
	default:
		break;
	}
	if (is_space(byte))
		return true;
	switch (scan->state) {
	case JSON_SCAN_VALUE_OR_END:
		if (byte == ']') {
			close_container(scan);
			return true;
		}
		return value_start(scan, byte);
	case JSON_SCAN_VALUE:
		return value_start(scan, byte);
	case JSON_SCAN_KEY_OR_END:
		if (byte == '}') {
			close_container(scan);
			return true;
		}
		return key_start(scan, byte);
	case JSON_SCAN_KEY:
		return key_start(scan, byte);
	case JSON_SCAN_COLON:
		scan->state = JSON_SCAN_VALUE;
		return byte == ':';
	case JSON_SCAN_AFTER:
		return after_value(scan, byte);
	default:
		return false;
	}
}

bool json_scan_feed(struct json_scan *scan, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!step(scan, bytes[i])) {
			scan->state = JSON_SCAN_BROKEN;
			return false;
		}
	return scan->state != JSON_SCAN_BROKEN;
}

bool json_scan_end(struct json_scan *scan)
{
	json_scan_feed(scan, " ", 1);
	return scan->depth == 0 && scan->state == JSON_SCAN_AFTER;
}

bool json_scan_uint(enum json_scan_type type, const char *text, bool whole, uint64_t *ret_value)
{
	uint64_t value = 0;
	if (type != JSON_SCAN_NUMBER || !whole || !*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		unsigned digit = (unsigned)(*text - '0');
		if (value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*ret_value = value;
	return true;
}
