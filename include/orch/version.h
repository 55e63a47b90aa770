/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_VERSION_H
#define ORCH_VERSION_H

/*
 * Version, export macro and the few types that every other header uses.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define ORCH_BEGIN_DECLS extern "C" {
#define ORCH_END_DECLS }
#else
#define ORCH_BEGIN_DECLS
#define ORCH_END_DECLS
#endif

#if defined(__GNUC__) || defined(__clang__)
#define ORCH_API __attribute__((visibility("default")))
#else
#define ORCH_API
#endif

#define ORCH_VERSION_MAJOR 0
#define ORCH_VERSION_MINOR 1
#define ORCH_VERSION_PATCH 0
#define ORCH_VERSION_STRING "0.1.0"

ORCH_BEGIN_DECLS

/*
 * Releases the userdata that was registered together with a callback. It runs exactly once: when the
 * callback can not be called any more, or at once when the registration itself fails. Since 0.1.
 */
typedef void (*orch_destroy_fn)(void *userdata);

/* The version of the library that is loaded, as "MAJOR.MINOR.PATCH". Static storage. Since 0.1. */
ORCH_API const char *orch_version(void);

ORCH_END_DECLS

#endif
