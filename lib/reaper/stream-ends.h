/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_STREAM_ENDS_H
#define ORCH_STREAM_ENDS_H

/* The two ends of a stream, as each system makes them (linux/, darwin/). 0, or -1 with errno. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stream_ends {
	int host_fd;	/* does not block: it is an open file of its own */
	int program_fd; /* blocks */
};

/* `input`: the host writes. */
int stream_open_pipe(bool input, struct stream_ends *ret_ends);
/* Never becomes this process's controlling terminal. */
int stream_open_terminal(uint32_t rows, uint32_t columns, struct stream_ends *ret_ends);
/* write(2) that raises no SIGPIPE, nor takes one away that is not its own. */
ssize_t stream_put(int fd, const void *bytes, size_t length);

#endif
