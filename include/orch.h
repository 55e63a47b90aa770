/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_H
#define ORCH_H

/*
 * Everything. Each part has its own header and is useful by itself.
 *
 * A library can be built without some of its parts (meson options). Then neither their headers nor
 * the lines that include them are installed: what this file declares can be linked. To ask at compile
 * time whether a part is there, ask for its header's guard: #ifdef ORCH_BROKER_H.
 */

#include <orch/broker.h>
#include <orch/ctx.h>
#include <orch/error.h>
#include <orch/executor.h>
#include <orch/journal.h>
#include <orch/permit.h>
#include <orch/pipeline.h>
#include <orch/reaper.h>
#include <orch/sandbox.h>
#include <orch/scope.h>
#include <orch/stream.h>
#include <orch/timer.h>
#include <orch/version.h>

#endif
