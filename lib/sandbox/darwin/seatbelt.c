/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled into orch-reaper, and into a test on Linux. */
#include <string.h>

#include "seatbelt.h"

static int table_fits(const struct seatbelt_header *header, uint32_t offset, uint32_t count, size_t size)
{
	return offset >= sizeof(*header) && offset <= header->length && count <= (header->length - offset) / size;
}

const char *seatbelt_check(const struct seatbelt_header *header, size_t length)
{
	if (length < sizeof(*header) || memcmp(header->magic, SEATBELT_MAGIC, sizeof(header->magic)) != 0)
		return "it is not a confinement";
	if (header->version != SEATBELT_VERSION)
		return "it is of another version";
	if (header->length != length || length > ORCH_SPEC_MAX_BYTES)
		return "its length is wrong";
	if (header->env_count > ORCH_SPEC_MAX_ENV)
		return "a count is over its limit";
	if (header->env_offset % sizeof(uint32_t) != 0 ||
	    !table_fits(header, header->env_offset, header->env_count, sizeof(uint32_t)) ||
	    !table_fits(header, header->strings_offset, header->strings_length, 1))
		return "a table is outside of it";
	if (header->strings_length == 0 ||
	    ((const char *)header)[header->strings_offset + header->strings_length - 1] != '\0')
		return "its strings are not terminated";
	if (header->profile >= header->strings_length || header->cwd >= header->strings_length)
		return "a string is outside of it";
	const uint32_t *env = (const uint32_t *)((const char *)header + header->env_offset);

	for (uint32_t i = 0; i < header->env_count; i++)
		if (env[i] >= header->strings_length)
			return "a string is outside of it";
	if (strncmp(seatbelt_string(header, header->profile), "(version 1)\n(deny default)\n", 27) != 0)
		return "its profile does not deny by default";
	return NULL;
}

const char *seatbelt_string(const struct seatbelt_header *header, uint32_t offset)
{
	return (const char *)header + header->strings_offset + offset;
}
