/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_MATRIX_AMOUNTS_H
#define TEST_MATRIX_AMOUNTS_H

#include <orch.h>

#include "matrix.h"

/* In place.folder. How many do not hold, each told in a line; *ret_counted is raised by those that were tried. */
unsigned amounts_judge(orch_ctx *ctx, const char *who, bool table, unsigned *ret_counted);
/* The same with each protection left out in turn: exactly the rows that name it may turn. */
unsigned amounts_judge_without(orch_ctx *ctx, const char *who);

#endif
