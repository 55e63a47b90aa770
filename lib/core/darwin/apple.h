/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_APPLE_H
#define ORCH_APPLE_H

/*
 * What macOS has and not every set of its headers declares: each with the header of Apple's SDK and
 * the man page that it is from. Nothing here is made up, and nothing else of the library declares a
 * function of Apple's. Included by files in darwin/ folders only.
 */

#include <fcntl.h>

/*
 * <sys/fcntl.h> of recent SDKs, fcntl(2). The kernel has had it since xnu-3247 (macOS 10.11); older
 * SDKs keep the number to themselves. A kernel that does not know it answers EINVAL, and the lock
 * is refused.
 */
#ifndef F_OFD_SETLK
#define F_OFD_SETLK 90
#endif

#endif
