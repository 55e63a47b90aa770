/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_REPORT_H
#define ORCH_SANDBOX_REPORT_H

/* What a report is; how its rows come about is report-run.c of the system. */

#include "sandbox-private.h"

#define REPORT_ROWS_MAX 32

struct report_row {
	const char *channel; /* static */
	const char *mechanism;
	uint32_t state, probe, control;
	char detail[400];
	char remedy[800]; /* what is missing and what to do; "": it is enforced */
	char words[200]; /* of a mechanism that is not static: the scope which told it is gone by then */
};

struct orch_sandbox_report {
	struct report_row rows[REPORT_ROWS_MAX];
	uint32_t count;
	struct orch_buf text;
};

/* Writes the table for people and hands the report over, or frees it. */
int32_t orch_report_finish(orch_sandbox_report *report, orch_sandbox_report **ret_report,
			   orch_error **reterr);

#endif
