/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JOURNAL_STRIKE_H
#define JOURNAL_STRIKE_H

/*
 * Faults inside the library and SQLite: the process is killed at, or an error comes from, the n-th
 * write, sync or rename, or the n-th allocation. For programs that link the static library.
 */

#include <stdbool.h>
#include <sys/syscall.h>

#include "journal-kit.h"

enum fault { KILL, FAIL_ONCE, FAIL_FROM };

static struct {
	enum fault fault;
	int error; /* ENOMEM: allocations; else: calls on files */
	bool armed;
	unsigned at, seen;
	unsigned syncs;
	ino_t broken;	     /* 0, or the one file that cannot be written */
	const char *removed; /* at the next sync */
} faults;

/* True if this call has to fail. */
static bool strikes(bool allocation)
{
	if (!faults.armed || allocation != (faults.error == ENOMEM))
		return false;
	unsigned call = ++faults.seen;
	if (faults.fault == KILL && call == faults.at)
		kill(getpid(), SIGKILL);
	if (!(faults.fault == FAIL_ONCE ? call == faults.at
					: faults.fault == FAIL_FROM && call >= faults.at))
		return false;
	errno = faults.error;
	return true;
}

/*
 * These stand before libc's for the library, which is linked statically, and for SQLite. The system
 * call is made directly.
 */
ORCH_API ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset);

ORCH_API ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
	struct stat status;
	if (faults.broken && fstat(fd, &status) == 0 && status.st_ino == faults.broken) {
		errno = EIO;
		return -1;
	}
	/* A disk that is full or broken takes a part first. */
	if (strikes(false)) {
		int error = errno;
		syscall(SYS_pwrite64, fd, bytes, length / 2, offset);
		errno = error;
		return -1;
	}
	return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

ORCH_API int fdatasync(int fd)
{
	faults.syncs++;
	if (faults.removed)
		unlink(faults.removed);
	if (faults.error != ENOSPC && strikes(false))
		return -1;
	return (int)syscall(SYS_fdatasync, fd);
}

ORCH_API int fsync(int fd)
{
	if (faults.error != ENOSPC && strikes(false))
		return -1;
	return (int)syscall(SYS_fsync, fd);
}

ORCH_API int rename(const char *from, const char *to)
{
	if (strikes(false))
		return -1;
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *pointer, size_t size);

ORCH_API void *malloc(size_t size)
{
	return strikes(true) ? NULL : __libc_malloc(size);
}

ORCH_API void *calloc(size_t count, size_t size)
{
	return strikes(true) ? NULL : __libc_calloc(count, size);
}

ORCH_API void *realloc(void *pointer, size_t size)
{
	return strikes(true) ? NULL : __libc_realloc(pointer, size);
}

#endif
