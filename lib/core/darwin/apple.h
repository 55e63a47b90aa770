/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_APPLE_H
#define ORCH_APPLE_H

/*
 * What macOS has and not every set of its headers declares: each with the header of Apple's SDK and
 * the man page that it is from. Nothing here is made up, and nothing else of the library declares a
 * function of Apple's. Included by files in darwin/ folders only.
 */

#include <fcntl.h>
#include <stdint.h>

/*
 * <sys/fcntl.h> of recent SDKs, fcntl(2). The kernel has had it since xnu-3247 (macOS 10.11); older
 * SDKs keep the number to themselves. A kernel that does not know it answers EINVAL, and the lock
 * is refused.
 */
#ifndef F_OFD_SETLK
#define F_OFD_SETLK 90
#endif

/*
 * <sandbox.h>, sandbox_init(3): deprecated since macOS 10.8 and working. The man page knows names of profiles
 * (SANDBOX_NAMED) only; with flags 0 the first argument is a profile's text, as sandbox-exec(1) and browsers
 * use it. 0, or -1 with a text for sandbox_free_error().
 */
int sandbox_init(const char *profile, uint64_t flags, char **errorbuf);
void sandbox_free_error(char *errorbuf);

#endif
