/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../core/os.h"
#include "../stream-ends.h"

static int give_up(struct stream_ends *ends)
{
	int error = errno;
	if (ends->host_fd >= 0)
		close(ends->host_fd);
	if (ends->program_fd >= 0)
		close(ends->program_fd);
	errno = error;
	return -1;
}

int stream_open_pipe(bool input, struct stream_ends *ret_ends)
{
	int pair[2];
	if (orch_pipe(pair) < 0)
		return -1;
	*ret_ends = (struct stream_ends){.host_fd = pair[input], .program_fd = pair[!input]};
	if (fcntl(ret_ends->host_fd, F_SETFL, O_NONBLOCK) < 0)
		return give_up(ret_ends);
	/* A SIGPIPE goes to the whole process here; a pipe can be told to send none. */
	if (input && fcntl(ret_ends->host_fd, F_SETNOSIGPIPE, 1) < 0)
		return give_up(ret_ends);
	return 0;
}

int stream_open_terminal(uint32_t rows, uint32_t columns, struct stream_ends *ret_ends)
{
	struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
	char path[128]; /* what TIOCPTYGNAME fills */
	*ret_ends = (struct stream_ends){-1, -1};
	ret_ends->host_fd = posix_openpt(O_RDWR | O_NOCTTY);
	if (ret_ends->host_fd < 0)
		return -1;
	if (fcntl(ret_ends->host_fd, F_SETFD, FD_CLOEXEC) < 0 || grantpt(ret_ends->host_fd) < 0 ||
	    unlockpt(ret_ends->host_fd) < 0 || ioctl(ret_ends->host_fd, TIOCPTYGNAME, path) < 0)
		return give_up(ret_ends);
	ret_ends->program_fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (ret_ends->program_fd < 0 || ioctl(ret_ends->program_fd, TIOCSWINSZ, &size) < 0 ||
	    fcntl(ret_ends->host_fd, F_SETFL, O_NONBLOCK) < 0)
		return give_up(ret_ends);
	return 0;
}

ssize_t stream_put(int fd, const void *bytes, size_t length)
{
	return write(fd, bytes, length);
}
