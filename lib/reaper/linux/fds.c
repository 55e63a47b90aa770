/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "../reaper-private.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

int orch_fds_pipe(int ends[2])
{
	return pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
}

static int write_all(int fd, const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t written = write(fd, bytes, length);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return -1;
		bytes += written;
		length -= (size_t)written;
	}
	return 0;
}

int orch_fds_sealed(const char *name, const void *bytes, size_t length)
{
	_cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || write_all(fd, bytes, length) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return orch_steal_fd(&fd);
}
