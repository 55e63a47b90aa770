/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* Permits: what may happen once. */

int32_t permit_digest(orch_journal *journal, uint64_t id, uint64_t *ret_sequence,
		      unsigned char digest[DIGEST_SIZE], orch_error **reterr)
{
	(void)journal;
	(void)id;
	(void)ret_sequence;
	(void)digest;
	(void)reterr;
	return ORCH_ENOENT;
}
