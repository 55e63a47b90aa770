/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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
	return fcntl(ret_ends->host_fd, F_SETFL, O_NONBLOCK) < 0 ? give_up(ret_ends) : 0;
}

int stream_open_terminal(uint32_t rows, uint32_t columns, struct stream_ends *ret_ends)
{
	const struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
	const int unlocked = 0;
	*ret_ends = (struct stream_ends){-1, -1};
	ret_ends->host_fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (ret_ends->host_fd < 0)
		return -1;
	if (ioctl(ret_ends->host_fd, TIOCSPTLCK, &unlocked) < 0 || ioctl(ret_ends->host_fd, TIOCSWINSZ, &size) < 0)
		return give_up(ret_ends);
	/* Not by a path: what is mounted on /dev/pts here need not be what /dev/ptmx belongs to (ioctl_tty(2)). */
	ret_ends->program_fd = ioctl(ret_ends->host_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	return ret_ends->program_fd < 0 ? give_up(ret_ends) : 0;
}

ssize_t stream_put(int fd, const void *bytes, size_t length)
{
	sigset_t broken_pipe, before, pending;
	sigemptyset(&broken_pipe);
	sigaddset(&broken_pipe, SIGPIPE);
	/* write(2) sends it to the calling thread alone (pipe(7)). */
	pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
	sigemptyset(&pending);
	sigpending(&pending);
	ssize_t written = write(fd, bytes, length);
	int error = errno;
	if (written < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
		orch_take_back_signal(SIGPIPE);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return written;
}
