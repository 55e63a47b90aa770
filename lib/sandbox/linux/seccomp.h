/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_SECCOMP_H
#define ORCH_SANDBOX_SECCOMP_H

/* The seccomp programs: seccomp.c what each of them denies, seccomp-bare.c what stands for something that is missing. */

#include <seccomp.h>

#include "../sandbox-private.h"

#define SECCOMP_NO_NAMESPACES 1u
#define SECCOMP_NO_TRUNCATE_RIGHT 2u /* Landlock before ABI 3 */
#define SECCOMP_NO_SIGNAL_SCOPE 4u   /* Landlock before ABI 6, and the load has the caller's uid */
#define SECCOMP_PROGRAMS 8u

/* The program for a host that lacks `missing` (SECCOMP_NO_*): struct sock_filter[], in static storage. Length in bytes. */
int32_t orch_sandbox_filter(uint32_t missing, const void **ret_program, size_t *ret_length, orch_error **reterr);

/* Tests only: without the groups ORCH_SPEC_WITHOUT_SECCOMP_*. */
int32_t orch_sandbox_filter_without(uint64_t groups, struct orch_buf *ret_program, orch_error **reterr);

struct seccomp_call {
	int number;
	int error;
};

/* 0 or a negative errno. A call that this architecture does not have is passed over. */
int seccomp_deny(scmp_filter_ctx filter, const struct seccomp_call *calls, size_t count);
int seccomp_deny_missing(scmp_filter_ctx filter, uint32_t missing);

#endif
