/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_ERROR_H
#define ORCH_ERROR_H

/*
 * Errors. Every call that can fail returns 0 or one of the negative codes below and, if its last
 * argument `reterr` is not NULL, stores an orch_error there that the caller frees. Outputs (`ret_*`)
 * are untouched on failure. There is no thread-local or global error state.
 */

#include <orch/version.h>

ORCH_BEGIN_DECLS

/* name, value, text. Append only: values never change and are never reused. */
#define ORCH_ERROR_LIST(X)                                                                         \
	X(EINVAL, -1, "invalid argument")                                                          \
	X(ENOMEM, -2, "out of memory")                                                             \
	X(ESYS, -3, "operating system call failed")                                                \
	X(E2BIG, -4, "options structure is newer than this library")                               \
	X(ETIMEDOUT, -5, "timed out")                                                              \
	X(EDEADLK, -6, "waiting call inside a callback")                                           \
	X(EFORKED, -7, "handle belongs to the parent of this process")                             \
	X(EBUSY, -8, "busy")                                                                       \
	X(ECLOSED, -9, "closed")                                                                   \
	X(ENOENT, -10, "not found")                                                                \
	X(EEXIST, -11, "exists already")                                                           \
	X(EUNENFORCEABLE, -12, "protection can not be enforced on this host")                      \
	X(EVERSION, -13, "version mismatch")                                                       \
	X(EHELPER, -14, "helper process failed")                                                   \
	X(EPROTO, -15, "protocol violation")                                                       \
	X(ECANCELED, -16, "canceled")                                                              \
	X(ESTATE, -17, "not possible in this state")                                               \
	X(ECONFLICT, -18, "conflicts with what is recorded")                                       \
	X(EAMBIGUOUS, -19, "outcome of an earlier attempt is unknown")                             \
	X(EPERMIT, -20, "permit missing, used or expired")                                         \
	X(ELOCKED, -21, "owned by another coordinator")                                            \
	X(ESCHEMA, -22, "written by a newer version")                                              \
	X(ENETFS, -23, "network file system")                                                      \
	X(EPOISONED, -24, "handle is poisoned by a failed commit")                                 \
	X(ECORRUPT, -25, "corrupt")                                                                \
	X(ENOSPC, -26, "no space left")                                                            \
	X(EDENIED, -27, "denied by policy")                                                        \
	X(EBUDGET, -28, "budget exhausted")                                                        \
	X(EUPSTREAM, -29, "upstream failed")                                                       \
	X(EPARSE, -30, "malformed input")                                                          \
	X(ETOOBIG, -31, "over a size limit")                                                       \
	X(ENOTSUP, -32, "not supported on this system")                                            \
	X(ESPAWN, -33, "program could not be started")                                             \
	X(ENEEDHUMAN, -34, "a person has to decide")

/* C constants ORCH_EINVAL ... generated from the list above. */
enum {
#define ORCH_ERROR_CONSTANT(name, value, text) ORCH_##name = (value),
	ORCH_ERROR_LIST(ORCH_ERROR_CONSTANT)
#undef ORCH_ERROR_CONSTANT
	ORCH_OK = 0
};

typedef struct orch_error orch_error;

/*
 * The code's stable name ("ORCH_EINVAL"), or "ORCH_E?" for an unknown one. Static storage. Since 0.1.
 */
ORCH_API const char *orch_code_name(int32_t code);
/* A short English text for the code. Static storage, never NULL. Since 0.1. */
ORCH_API const char *orch_code_text(int32_t code);

/* The negative ORCH_E* code. 0 for NULL. Since 0.1. */
ORCH_API int32_t orch_error_code(const orch_error *error);
/* The operating system's errno behind the error, or 0. Since 0.1. */
ORCH_API int32_t orch_error_errno(const orch_error *error);
/*
 * What happened, to what, and what to do, for a person. Valid while the error lives. "" for NULL.
 * Since 0.1.
 */
ORCH_API const char *orch_error_message(const orch_error *error);
/* The channel or step that failed ("unix.path", "mount.proc"), or "". Since 0.1. */
ORCH_API const char *orch_error_step(const orch_error *error);
/* Frees the error; takes NULL, returns NULL. Since 0.1. */
ORCH_API orch_error *orch_error_free(orch_error *error);

ORCH_END_DECLS

#endif
