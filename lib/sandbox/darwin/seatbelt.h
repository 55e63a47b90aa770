/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_SEATBELT_H
#define ORCH_SANDBOX_SEATBELT_H

/*
 * What lib/sandbox writes into a file without a name and orch-reaper's "--program" reads on macOS, in place of the
 * specification in ../spec.h: one header, the offsets of the environment, a string table. Both sides are of one version and
 * one machine; the reader checks every offset all the same.
 */

#include <stddef.h>
#include <stdint.h>

#include "../spec.h"

#define SEATBELT_MAGIC "ORCHBELT"
#define SEATBELT_VERSION 1u

struct seatbelt_header {
	char magic[8];
	uint32_t version;
	uint32_t length;   /* of the whole file */
	uint32_t uid;	   /* to change to before anything else; 0: stay */
	uint32_t max_open_files;
	uint32_t max_processes; /* of the uid that is the sandbox's own; 0: not limited */
	uint32_t reserved;
	uint64_t max_file_bytes;
	uint32_t profile; /* string offset: the Seatbelt profile */
	uint32_t cwd;	  /* string offset */
	uint32_t env_offset; /* uint32_t[env_count]: string offsets of "NAME=value" */
	uint32_t env_count;
	uint32_t strings_offset; /* NUL-terminated strings; the last byte is NUL */
	uint32_t strings_length;
};

/* NULL, or what is wrong with these `length` bytes. seatbelt.c: makes no call of the system. */
const char *seatbelt_check(const struct seatbelt_header *header, size_t length);
/* For a file that was checked. */
const char *seatbelt_string(const struct seatbelt_header *header, uint32_t offset);

#endif
