/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_TARGETS_H
#define ORCH_SANDBOX_TARGETS_H

/*
 * What the live probes of a report aim at: files, sockets, memory and a process outside of the
 * sandbox, all alive while the probes run. Everything is open to every uid, so that only the
 * sandbox can stand in the way.
 */

#include <netinet/in.h>

#include "../sandbox-private.h"

struct probe_targets {
	char folder[40]; /* of the host; holds "secret", "mute", "socket", "shared/file", "work/" */
	char abstract_name[40];
	int unix_fd, abstract_fd, loopback_fd, outside_fd;
	uint16_t loopback_port, outside_port;
	char outside_address[INET_ADDRSTRLEN];
	int shm_id;
	void *shm;
	char *variable;		/* of the host's environment; NULL: it has none of its own */
	int32_t pid;
	uint64_t start_time;
};

int32_t orch_targets_open(struct probe_targets *targets, const orch_sandbox *sandbox,
			  orch_error **reterr);
void orch_targets_close(struct probe_targets *targets);

#endif
