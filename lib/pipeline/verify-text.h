/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_VERIFY_TEXT_H
#define ORCH_VERIFY_TEXT_H

#include "../core/core-private.h"

/*
 * Appends bytes of foreign origin as valid UTF-8: what is not becomes U+FFFD. With `plain` so do
 * control characters (but newline and tab), overrides of direction and non-characters: fit for a
 * terminal, a page and XML.
 */
void text_append(struct orch_buf *buf, const void *bytes, size_t length, bool plain);

#endif
