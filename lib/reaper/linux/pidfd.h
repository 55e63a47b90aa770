/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_PIDFD_H
#define ORCH_PIDFD_H

/* Of the host: init is the helper's child, the helper its own. */

#include <stdbool.h>

/* Signal 0: false once the process is reaped. */
bool pidfd_kill(int pidfd, int signal);
/* If it is a zombie child of ours: a host that is a subreaper inherits a dead helper's children. */
void pidfd_reap(int pidfd);

#endif
