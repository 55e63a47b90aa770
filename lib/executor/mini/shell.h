/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MINI_SHELL_H
#define MINI_SHELL_H

#include <stdbool.h>
#include <stddef.h>

struct shell_result {
	int status; /* 0..255, 256 + signal, or -1: could not be started */
	bool timed_out, truncated;
	char *output; /* stdout and stderr, valid UTF-8; over the limit the middle is left out */
};

/*
 * Runs /bin/sh -c `command` in a process group of its own. At the timeout the group is killed. Output is
 * read until the shell has ended; what a process left behind still writes is not waited for.
 */
void shell_run(const char *command, long timeout_ms, size_t output_limit, struct shell_result *result);

#endif
