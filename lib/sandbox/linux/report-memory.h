/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_REPORT_MEMORY_H
#define ORCH_REPORT_MEMORY_H

#include "../report.h"

struct report_memory {
	orch_ctx *ctx;
	const struct orch_sandbox_opts *opts; /* the report's */
	orch_scope *plain;		      /* for the control */
	const char *helper;
	bool bare;
	int64_t timeout_ms;
};

/* `mechanism`: of the report's own sandbox, NULL: none. Fills in the row, whose mechanism is in its words. */
void orch_report_memory(const struct report_memory *trial, const char *mechanism, struct report_row *row);

#endif
