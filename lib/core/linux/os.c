/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../os.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3; where vm.memfd_noexec is 2 nothing else is allowed */
#endif

int orch_pipe(int ends[2])
{
	return pipe2(ends, O_CLOEXEC);
}

int orch_socket(int family, int type, int protocol)
{
	return socket(family, type | SOCK_CLOEXEC, protocol);
}

int orch_accept(int listen_fd)
{
	return accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

bool orch_socket_is_nameless(int fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	return getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
	       address.ss_family == AF_UNIX && size == sizeof(sa_family_t);
}

ssize_t orch_send(int fd, const void *bytes, size_t length)
{
	return send(fd, bytes, length, MSG_NOSIGNAL);
}

static int fill_and_seal(int fd, const char *bytes, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t count = write(fd, bytes + done, length - done);
		if (count < 0 && errno != EINTR)
			return -1;
		done += count > 0 ? (size_t)count : 0;
	}
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
}

int orch_sealed_file(const char *name, const void *bytes, size_t length)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && fill_and_seal(fd, bytes, length) < 0) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int orch_sync(int fd)
{
	return fsync(fd);
}

int orch_sync_all(int fd)
{
	return syncfs(fd);
}

int orch_rename_new(int from_dir, const char *from, int to_dir, const char *to)
{
	return renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE);
}

int orch_rename_swap(const char *one, const char *other)
{
	return renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
}

char *orch_program_path(void)
{
	return realpath("/proc/self/exe", NULL);
}

/* proc_pid_maps(5) */
char *orch_code_path(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL, *found = NULL;
	size_t size = 0;
	while (maps && !found && getline(&line, &size, maps) > 0) {
		unsigned long start, end;
		int at = 0;
		if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &start, &end, &at) < 2 || !at || line[at] != '/' ||
		    (uintptr_t)address < start || (uintptr_t)address >= end)
			continue;
		line[strcspn(line, "\n")] = '\0';
		found = realpath(line + at, NULL);
	}
	free(line);
	if (maps)
		fclose(maps);
	return found;
}

void orch_random_bytes(void *bytes, size_t length)
{
	for (unsigned char *byte = bytes; length; byte++, length--)
		/* One byte at a time cannot be cut short by a signal (getrandom(2)). */
		while (getrandom(byte, 1, 0) != 1)
			;
}

void orch_erase(void *bytes, size_t length)
{
	explicit_bzero(bytes, length);
}

void orch_take_back_signal(int signal)
{
	const struct timespec now = {0};
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal);
	while (sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
		;
}

const char *orch_errno_text(int number, char *room, size_t size)
{
	(void)room, (void)size;
	return strerrordesc_np(number);
}

const char *orch_getenv_trusted(const char *name)
{
	return secure_getenv(name);
}

void orch_boot_id(char *id, size_t size)
{
	memset(id, 0, size);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (read(fd, id, size - 1) > 0)
		id[strcspn(id, "\n")] = '\0';
	close(fd);
}

int orch_lock(int fd, bool shared)
{
	struct flock range = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
	return fcntl(fd, F_OFD_SETLK, &range);
}

void orch_unlock(int fd)
{
	struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	fcntl(fd, F_OFD_SETLK, &range);
}
