/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the tests of the journal: clocks that stand where they are put, a boot of the test's own choice,
 * and a count of the calls by which the process changes files below one folder, at any of which it can be killed. A
 * write counts twice: before it, and when half of it is there. Calls go straight to the kernel.
 */
#undef _FILE_OFFSET_BITS /* open() and open64() are two names here, and both are wanted */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SHIM __attribute__((visibility("default")))
#define FILES 1024
#define NAME 24

/* Laid out for ctypes: tests/journal/lives.py. */
SHIM struct {
	int64_t realtime_ms; /* 0: the system's clock */
	int64_t boottime_ms; /* since the boot, suspend included; 0: the system's clock */
	uint64_t seen, at;   /* points so far; the one to be killed at, 0: none */
	uint64_t bad_syncs;  /* so many syncs from here on fail with EIO */
	uint64_t disk_full;  /* 1: writes fail with ENOSPC, until one is cut by name */
	char boot_id[64];    /* "": the system's */
	char folder[256];    /* what starts with it counts */
	char trace[65536];   /* the name of each point, by line, as far as there is room */
} journal_shim;

static char names[FILES][NAME]; /* of the descriptors that count */
static size_t traced;

static const char *name_of(int fd)
{
	return fd >= 0 && fd < FILES && names[fd][0] ? names[fd] : NULL;
}

static const char *name_below(const char *path)
{
	size_t length = strlen(journal_shim.folder);
	if (!length || strncmp(path, journal_shim.folder, length) != 0)
		return NULL;
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : "folder";
}

/* True if this is the one to be killed at. */
static int count(const char *what, const char *name)
{
	size_t room = sizeof(journal_shim.trace) - traced;
	int length = snprintf(journal_shim.trace + traced, room, "%s %s\n", what, name);
	if (length > 0 && (size_t)length < room)
		traced += (size_t)length;
	return ++journal_shim.seen == journal_shim.at;
}

static void point(const char *what, const char *name)
{
	if (name && count(what, name))
		syscall(SYS_kill, getpid(), SIGKILL);
}

SHIM void journal_shim_point(const char *what);

/* For what the test itself does between calls of the library. */
SHIM void journal_shim_point(const char *what)
{
	point(what, "test");
}

SHIM int clock_gettime(clockid_t clock, struct timespec *now)
{
	int64_t ms = clock == CLOCK_REALTIME   ? journal_shim.realtime_ms
		     : clock == CLOCK_BOOTTIME ? journal_shim.boottime_ms
					       : 0;
	if (!ms)
		return (int)syscall(SYS_clock_gettime, clock, now);
	now->tv_sec = ms / 1000;
	now->tv_nsec = ms % 1000 * 1000000;
	return 0;
}

/* Below a folder that is open: of those that count only. */
static const char *name_in(int dir, const char *path)
{
	if (dir == AT_FDCWD || path[0] == '/')
		return name_below(path);
	return name_of(dir) ? path : NULL;
}

static int open_boot_id(void)
{
	int fd = (int)syscall(SYS_memfd_create, "boot_id", 0);
	if (fd >= 0) {
		syscall(SYS_write, fd, journal_shim.boot_id, strlen(journal_shim.boot_id));
		syscall(SYS_lseek, fd, 0, SEEK_SET);
	}
	return fd;
}

static int open_counted(int dir, const char *path, int flags, mode_t mode)
{
	if (journal_shim.boot_id[0] && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
		return open_boot_id();
	const char *name = name_in(dir, path);
	point(flags & O_CREAT ? "create" : "open", name);
	int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
	if (fd >= 0 && fd < FILES)
		snprintf(names[fd], NAME, "%s", name ? name : "");
	return fd;
}

#define OPEN(function)                                                                             \
	SHIM int function(const char *path, int flags, ...)                                        \
	{                                                                                          \
		va_list list;                                                                      \
		va_start(list, flags);                                                             \
		mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;            \
		va_end(list);                                                                      \
		return open_counted(AT_FDCWD, path, flags, mode);                                  \
	}

OPEN(open)
OPEN(open64)

#define OPENAT(function)                                                                           \
	SHIM int function(int dir, const char *path, int flags, ...)                               \
	{                                                                                          \
		va_list list;                                                                      \
		va_start(list, flags);                                                             \
		mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;                          \
		va_end(list);                                                                      \
		return open_counted(dir, path, flags, mode);                                       \
	}

OPENAT(openat)
OPENAT(openat64)

SHIM int close(int fd)
{
	if (fd >= 0 && fd < FILES)
		names[fd][0] = '\0';
	return (int)syscall(SYS_close, fd);
}

/* True: it fails, with errno. */
static int fails(uint64_t fault, const char *name, int error)
{
	if (!fault || !name)
		return 0;
	errno = error;
	return 1;
}

static int bad_sync(int fd)
{
	if (!fails(journal_shim.bad_syncs, name_of(fd), EIO))
		return 0;
	journal_shim.bad_syncs--;
	return 1;
}

SHIM ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
	const char *name = name_of(fd);
	point("write", name);
	if (fails(journal_shim.disk_full, name, ENOSPC))
		return -1;
	if (name && length > 1 && count("half-write", name)) {
		syscall(SYS_pwrite64, fd, bytes, length / 2, offset);
		syscall(SYS_kill, getpid(), SIGKILL);
	}
	return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

SHIM ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
	return pwrite(fd, bytes, length, offset);
}

SHIM ssize_t write(int fd, const void *bytes, size_t length)
{
	const char *name = name_of(fd);
	point("write", name);
	if (name && length > 1 && count("half-write", name)) {
		syscall(SYS_write, fd, bytes, length / 2);
		syscall(SYS_kill, getpid(), SIGKILL);
	}
	return syscall(SYS_write, fd, bytes, length);
}

SHIM int fsync(int fd)
{
	point("sync", name_of(fd));
	return bad_sync(fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

SHIM int fdatasync(int fd)
{
	point("sync", name_of(fd));
	return bad_sync(fd) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

SHIM int ftruncate(int fd, off_t length)
{
	point("truncate", name_of(fd));
	return (int)syscall(SYS_ftruncate, fd, length);
}

SHIM int ftruncate64(int fd, off_t length)
{
	return ftruncate(fd, length);
}

SHIM int truncate(const char *path, off_t length)
{
	const char *name = name_below(path);
	point("truncate", name);
	if (name)
		journal_shim.disk_full = 0;
	return (int)syscall(SYS_truncate, path, length);
}

SHIM int truncate64(const char *path, off_t length)
{
	return truncate(path, length);
}

SHIM int fallocate(int fd, int mode, off_t offset, off_t length)
{
	point("allocate", name_of(fd));
	if (fails(journal_shim.disk_full, name_of(fd), ENOSPC))
		return -1;
	return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

SHIM int fallocate64(int fd, int mode, off_t offset, off_t length)
{
	return fallocate(fd, mode, offset, length);
}

SHIM int posix_fallocate(int fd, off_t offset, off_t length)
{
	return fallocate(fd, 0, offset, length) < 0 ? errno : 0;
}

SHIM int posix_fallocate64(int fd, off_t offset, off_t length)
{
	return posix_fallocate(fd, offset, length);
}

SHIM int unlink(const char *path)
{
	point("unlink", name_below(path));
	return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

SHIM int unlinkat(int dir, const char *path, int flags)
{
	point("unlink", name_in(dir, path));
	return (int)syscall(SYS_unlinkat, dir, path, flags);
}

/* Also what is moved out of the folder, or into it, changes it. */
SHIM int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned int flags)
{
	const char *name = name_in(to_dir, to);
	point("rename", name ? name : name_in(from_dir, from));
	return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

SHIM int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	return renameat2(from_dir, from, to_dir, to, 0);
}

SHIM int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

SHIM int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	point("link", name_in(to_dir, to));
	return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
}

SHIM int link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

SHIM int mkdir(const char *path, mode_t mode)
{
	point("mkdir", name_below(path));
	return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

SHIM ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t length,
			     unsigned int flags)
{
	point("write", name_of(out));
	return syscall(SYS_copy_file_range, in, in_at, out, out_at, length, flags);
}

SHIM ssize_t pwritev(int fd, const struct iovec *parts, int parts_count, off_t offset)
{
	point("write", name_of(fd));
	return syscall(SYS_pwritev, fd, parts, parts_count, offset, 0);
}

SHIM ssize_t writev(int fd, const struct iovec *parts, int parts_count)
{
	point("write", name_of(fd));
	return syscall(SYS_writev, fd, parts, parts_count);
}
