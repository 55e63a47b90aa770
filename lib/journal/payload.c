/* SPDX-License-Identifier: Apache-2.0 */
#include <sodium.h>
#include <stdio.h>

#include "journal-private.h"

/* How many bytes follow `lead`, and the bounds of the first of them: shortest form, no surrogates, up to U+10FFFF. */
static int continuations(unsigned char lead, unsigned char *ret_low, unsigned char *ret_high)
{
	*ret_low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	*ret_high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	return lead >= 0xc2 && lead <= 0xdf   ? 1
	       : lead >= 0xe0 && lead <= 0xef ? 2
	       : lead >= 0xf0 && lead <= 0xf4 ? 3
					      : 0;
}

bool text_is_utf8(const void *bytes, size_t length)
{
	const unsigned char *at = bytes, *end = at + length;
	while (at < end) {
		unsigned char low, high, lead = *at++;
		if (lead < 0x80)
			continue;
		int more = continuations(lead, &low, &high);
		if (!more || end - at < more || *at < low || *at > high)
			return false;
		for (at++; more > 1; more--)
			if ((*at++ & 0xc0) != 0x80)
				return false;
	}
	return true;
}

static struct body *body_new(const void *bytes, size_t length)
{
	struct body *body = malloc(sizeof(*body) + length + 1);
	if (!body)
		return NULL;
	body->next = NULL;
	body->length = length;
	memcpy(body->bytes, bytes, length);
	body->bytes[length] = '\0';
	return body;
}

/* What a reader gets in place of bytes that are not stored. */
static struct body *body_new_digest(const unsigned char *digest, uint64_t length)
{
	char hex[2 * DIGEST_SIZE + 1], text[128];
	sodium_bin2hex(hex, sizeof(hex), digest, DIGEST_SIZE);
	int written = snprintf(text, sizeof(text), "sha256:%s bytes:%llu", hex,
			       (unsigned long long)length);
	return body_new(text, (size_t)written);
}

bool payload_set(struct payload *payload, const void *bytes, size_t length, uint64_t limit)
{
	memset(payload, 0, sizeof(*payload));
	if (!length)
		return true;
	payload->length = length;
	crypto_hash_sha256(payload->digest, bytes, length);
	payload->kept = length <= limit;
	payload->body =
		payload->kept ? body_new(bytes, length) : body_new_digest(payload->digest, length);
	return payload->body != NULL;
}

bool payload_load(struct payload *payload, const void *bytes, uint64_t length,
		  const unsigned char *digest)
{
	memset(payload, 0, sizeof(*payload));
	if (!length)
		return true;
	payload->length = length;
	memcpy(payload->digest, digest, DIGEST_SIZE);
	payload->kept = bytes != NULL;
	payload->body = bytes ? body_new(bytes, (size_t)length) : body_new_digest(digest, length);
	return payload->body != NULL;
}

bool payload_copy(struct payload *payload, const struct payload *from)
{
	*payload = *from;
	if (!from->body)
		return true;
	payload->body = body_new(from->body->bytes, from->body->length);
	return payload->body != NULL;
}

bool payload_cut(struct payload *payload)
{
	if (!payload->kept)
		return true;
	struct body *text = body_new_digest(payload->digest, payload->length);
	if (!text)
		return false;
	free(payload->body);
	payload->body = text;
	payload->kept = false;
	return true;
}

void payload_clear(struct payload *payload)
{
	free(payload->body);
	memset(payload, 0, sizeof(*payload));
}
