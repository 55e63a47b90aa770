/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* Timers: deadlines that survive the coordinator. */

int32_t timer_digest(orch_journal *journal, uint64_t id, uint64_t *ret_sequence,
		      unsigned char digest[DIGEST_SIZE], orch_error **reterr)
{
	(void)journal;
	(void)id;
	(void)ret_sequence;
	(void)digest;
	(void)reterr;
	return ORCH_ENOENT;
}
