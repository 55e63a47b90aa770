/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_MAILBOX_H
#define ORCH_MAILBOX_H

/* The context's side of its mailbox; the others' is in core-private.h. */

#include "core-private.h"
#include "mirror.h"

/* NULL: out of memory. */
orch_mailbox *mailbox_new(orch_ctx *ctx, struct mirror *mirror);
/* The letters that are there now arrive, in the order in which they were posted. */
void mailbox_open_letters(orch_mailbox *mailbox);
/* They arrive in vain, and none after them can be posted. */
void mailbox_close(orch_mailbox *mailbox);

/* In ctx.c. */
bool ctx_is_mine(orch_ctx *ctx);

#endif
