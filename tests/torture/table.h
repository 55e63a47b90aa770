/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TORTURE_TABLE_H
#define ORCH_TORTURE_TABLE_H

/* What was seen: one table of ends, one of attempts, a column for each user and rung. */

#include <stdbool.h>

void table_column(unsigned column, const char *title);
void table_refused(unsigned column);
/* `seen` before the stop, `left` after the certificate; rounds add up. */
void table_end(unsigned column, const char *mode, unsigned verdict, unsigned seen, unsigned left);
void table_mark(unsigned column, const char *mode, const char *remark);
/* `controlled`: the same call worked at a process of the load's own. */
void table_try(const char *name, unsigned column, const char *result, bool controlled);
const char *table_try_result(const char *name, unsigned column);
const char *table_verdict(unsigned verdict);
void table_print(void);

#endif
