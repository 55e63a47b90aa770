/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_H
#define ORCH_H

/* Everything. Each part has its own header and is useful by itself. */

#include <orch/broker.h>
#include <orch/ctx.h>
#include <orch/error.h>
#include <orch/executor.h>
#include <orch/journal.h>
#include <orch/pipeline.h>
#include <orch/sandbox.h>
#include <orch/scope.h>
#include <orch/version.h>

#endif
