/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_KERNEL_H
#define ORCH_KERNEL_H

/* What this Linux is too old for: a test demands the refusal then. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

static inline bool kernel_is_before(unsigned major, unsigned minor)
{
	struct utsname kernel;
	unsigned first = 0, second = 0;

	/* Also asked outside of a test. */
	if (uname(&kernel) < 0 || sscanf(kernel.release, "%u.%u", &first, &second) != 2)
		abort();
	return first < major || (first == major && second < minor);
}

#endif
