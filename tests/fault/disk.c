/* SPDX-License-Identifier: Apache-2.0 */
#undef _FILE_OFFSET_BITS /* open() and open64() are two names here, and both are wanted */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "disk.h"

#define CALL __attribute__((visibility("default")))
#define SECTOR 512
#define FILES 64
#define BUCKETS 1024
#define NAMES 64

/*
 * What a sector was at the last sync, and which of its bytes were written since: a disk that loses its power does not
 * touch the others (SQLite calls that a powersafe overwrite).
 */
struct sector {
	struct sector *next;
	uint64_t number;
	unsigned from, to;
	unsigned char before[SECTOR];
};

struct file {
	ino_t inode; /* 0: free */
	int fd;      /* our own */
	off_t synced_size;
	struct sector *sectors[BUCKETS];
};

/* A change of a folder that was not synced yet: a new name, or another file under one. */
struct name {
	char path[128];
	char kept[128]; /* a link to what was there before; "": nothing was */
	bool half;	/* of a renaming: the next one is the other half */
};

static struct {
	struct disk_plan plan;
	bool armed;
	uint64_t seen;
	struct file files[FILES];
	struct name names[NAMES];
	unsigned name_count, kept_count;
	uint64_t random;
	pthread_mutex_t mutex;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t draw(void)
{
	/* SplitMix64: https://prng.di.unimi.it/splitmix64.c */
	uint64_t z = disk.random += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void broken(const char *what)
{
	dprintf(STDERR_FILENO, "disk: %s: %s\n", what, strerror(errno));
	_exit(78);
}

/* --- which calls count --- */

static bool counts(const char *path)
{
	for (int i = 0; i < 2; i++) {
		size_t length = strlen(disk.plan.folders[i]);
		if (length && strncmp(path, disk.plan.folders[i], length) == 0)
			return true;
	}
	return false;
}

static bool path_of(int fd, char *path, size_t size)
{
	char link[32];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, size - 1);
	if (length <= 0)
		return false;
	path[length] = '\0';
	return true;
}

/* The file behind a descriptor, if it counts. */
static struct file *file_of(int fd)
{
	struct stat status;
	char path[192];
	struct file *slot = NULL;
	if (!disk.armed || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return NULL;
	for (int i = 0; i < FILES; i++) {
		if (disk.files[i].inode == status.st_ino)
			return &disk.files[i];
		if (!slot && !disk.files[i].inode)
			slot = &disk.files[i];
	}
	if (!path_of(fd, path, sizeof(path)) || !counts(path))
		return NULL;
	if (!slot) {
		errno = ENFILE;
		broken("too many files");
	}
	char again[32];
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	int own = (int)syscall(SYS_openat, AT_FDCWD, again, O_RDWR | O_CLOEXEC, 0);
	if (own < 0)
		broken(path);
	*slot = (struct file){.inode = status.st_ino, .fd = own, .synced_size = status.st_size};
	return slot;
}

/* --- what was not synced --- */

static void note_write(struct file *file, off_t offset, size_t length)
{
	for (uint64_t at = (uint64_t)offset; at < (uint64_t)offset + length;) {
		uint64_t number = at / SECTOR;
		unsigned from = (unsigned)(at % SECTOR);
		uint64_t left = (uint64_t)offset + length - at;
		unsigned to = left < SECTOR - from ? from + (unsigned)left : SECTOR;
		struct sector **bucket = &file->sectors[number % BUCKETS], *sector = *bucket;
		while (sector && sector->number != number)
			sector = sector->next;
		if (!sector) {
			sector = calloc(1, sizeof(*sector));
			if (!sector)
				broken("memory");
			sector->number = number;
			sector->from = from;
			sector->to = to;
			if (pread(file->fd, sector->before, SECTOR, (off_t)(number * SECTOR)) < 0)
				broken("pread");
			sector->next = *bucket;
			*bucket = sector;
		}
		sector->from = from < sector->from ? from : sector->from;
		sector->to = to > sector->to ? to : sector->to;
		at += to - from;
	}
}

static void forget_writes(struct file *file)
{
	struct stat status;
	for (unsigned i = 0; i < BUCKETS; i++)
		while (file->sectors[i]) {
			struct sector *next = file->sectors[i]->next;
			free(file->sectors[i]);
			file->sectors[i] = next;
		}
	if (fstat(file->fd, &status) < 0)
		broken("fstat");
	file->synced_size = status.st_size;
}

/* Before the name changes: what is under it now is kept, so that the change can be undone. */
static void note_name(const char *path, bool half)
{
	if (!disk.armed || !counts(path))
		return;
	if (disk.name_count == NAMES) {
		errno = ENFILE;
		broken("too many names");
	}
	struct name *name = &disk.names[disk.name_count++];
	snprintf(name->path, sizeof(name->path), "%s", path);
	name->half = half;
	snprintf(name->kept, sizeof(name->kept), "%s/.kept-%u", disk.plan.folders[1],
		 disk.kept_count++);
	if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, name->kept, 0) == 0)
		return;
	if (errno != ENOENT)
		broken(path);
	name->kept[0] = '\0';
}

static void forget_name(struct name *name)
{
	if (name->kept[0])
		syscall(SYS_unlinkat, AT_FDCWD, name->kept, 0);
}

/* Names in this folder, and not in those below it. */
static void forget_names(const char *folder)
{
	size_t length = strlen(folder);
	unsigned left = 0;
	for (unsigned i = 0; i < disk.name_count; i++) {
		struct name *name = &disk.names[i];
		if (strncmp(name->path, folder, length) == 0 && name->path[length] == '/' &&
		    !strchr(name->path + length + 1, '/'))
			forget_name(name);
		else
			disk.names[left++] = *name;
	}
	disk.name_count = left;
}

/* --- the power fails --- */

static void damage_sector(const struct file *file, const struct sector *sector)
{
	unsigned char bytes[SECTOR];
	unsigned kind = disk.plan.loss == LOSS_ALL ? 1 : (unsigned)(draw() % 4);
	off_t at = (off_t)(sector->number * SECTOR);
	memcpy(bytes, sector->before, SECTOR);
	switch (kind) {
	case 0: /* new */
		return;
	case 1: /* old */
		break;
	case 2: { /* torn */
		unsigned edge = sector->from + (unsigned)(draw() % (sector->to - sector->from));
		if (pread(file->fd, bytes, edge, at) < 0)
			broken("pread");
		break;
	}
	default: /* garbled */
		for (unsigned i = sector->from; i < sector->to; i++)
			bytes[i] = (unsigned char)draw();
	}
	struct stat status;
	if (fstat(file->fd, &status) < 0)
		broken("fstat");
	size_t length = at + SECTOR <= status.st_size ? SECTOR
			: at < status.st_size	      ? (size_t)(status.st_size - at)
						      : 0;
	if (length && syscall(SYS_pwrite64, file->fd, bytes, length, at) < 0)
		broken("pwrite");
}

static void damage_file(struct file *file)
{
	struct stat status;
	for (unsigned i = 0; i < BUCKETS; i++)
		for (const struct sector *sector = file->sectors[i]; sector; sector = sector->next)
			damage_sector(file, sector);
	bool old_size = disk.plan.loss == LOSS_ALL || draw() % 2;
	if (fstat(file->fd, &status) < 0)
		broken("fstat");
	if (old_size && status.st_size != file->synced_size &&
	    syscall(SYS_ftruncate, file->fd, file->synced_size) < 0)
		broken("ftruncate");
}

/* File systems keep the order of changes of names: some of the last ones are gone. */
static void damage_names(void)
{
	unsigned kept = disk.plan.loss == LOSS_ALL
				? 0
				: (unsigned)(draw() % (disk.name_count + 1));
	if (kept && disk.names[kept - 1].half)
		kept--;
	while (disk.name_count > kept) {
		struct name *name = &disk.names[--disk.name_count];
		if (name->kept[0])
			syscall(SYS_renameat2, AT_FDCWD, name->kept, AT_FDCWD, name->path, 0);
		else
			syscall(SYS_unlinkat, AT_FDCWD, name->path, 0);
	}
}

static void fail_power(void)
{
	disk.armed = false;
	if (disk.plan.loss != LOSS_NONE) {
		for (int i = 0; i < FILES; i++)
			if (disk.files[i].inode)
				damage_file(&disk.files[i]);
		damage_names();
	}
	for (unsigned i = 0; i < disk.name_count; i++)
		forget_name(&disk.names[i]);
	_exit(DISK_POWER_FAILED);
}

/* Before a call that counts. True if it has to fail, with errno. */
static bool strikes(bool *ret_short)
{
	bool now = ++disk.seen == disk.plan.at;
	switch (disk.plan.strike) {
	case STRIKE_POWER:
		if (now)
			fail_power();
		return false;
	case STRIKE_SHORT:
		*ret_short = now;
		return false;
	case STRIKE_ERROR:
		errno = disk.plan.error;
		return now;
	case STRIKE_FROM:
		errno = disk.plan.error;
		return disk.plan.at && disk.seen >= disk.plan.at;
	default:
		return false;
	}
}

void disk_arm(const struct disk_plan *plan)
{
	pthread_mutex_lock(&disk.mutex);
	disk.plan = *plan;
	disk.seen = 0;
	disk.random = plan->seed;
	disk.armed = true;
	pthread_mutex_unlock(&disk.mutex);
}

uint64_t disk_disarm(void)
{
	pthread_mutex_lock(&disk.mutex);
	disk.armed = false;
	for (int i = 0; i < FILES; i++)
		if (disk.files[i].inode) {
			forget_writes(&disk.files[i]);
			syscall(SYS_close, disk.files[i].fd);
			disk.files[i].inode = 0;
		}
	for (unsigned i = 0; i < disk.name_count; i++)
		forget_name(&disk.names[i]);
	disk.name_count = 0;
	uint64_t seen = disk.seen;
	pthread_mutex_unlock(&disk.mutex);
	return seen;
}

/* --- the calls --- */

static ssize_t write_at(int fd, const void *bytes, size_t length, off_t offset)
{
	bool half = false, failed = false;
	pthread_mutex_lock(&disk.mutex);
	struct file *file = file_of(fd);
	if (file && length) {
		failed = strikes(&half);
		int error = errno;
		half = half && length > 1;
		/* A disk that is full or breaks takes a part first. */
		if (failed && error != EINTR) {
			note_write(file, offset, length / 2);
			syscall(SYS_pwrite64, fd, bytes, length / 2, offset);
		} else if (!failed) {
			note_write(file, offset, half ? length / 2 : length);
		}
		errno = error;
	}
	pthread_mutex_unlock(&disk.mutex);
	return failed ? -1 : syscall(SYS_pwrite64, fd, bytes, half ? length / 2 : length, offset);
}

CALL ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
	return write_at(fd, bytes, length, offset);
}

CALL ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
	return write_at(fd, bytes, length, offset);
}

CALL ssize_t write(int fd, const void *bytes, size_t length)
{
	off_t at = disk.armed ? lseek(fd, 0, SEEK_CUR) : -1;
	if (at < 0 || fcntl(fd, F_GETFL) & O_APPEND)
		return syscall(SYS_write, fd, bytes, length);
	ssize_t written = write_at(fd, bytes, length, at);
	if (written > 0)
		lseek(fd, at + written, SEEK_SET);
	return written;
}

static int truncate_to(int fd, off_t size)
{
	bool half = false, failed = false;
	struct stat status;
	pthread_mutex_lock(&disk.mutex);
	struct file *file = file_of(fd);
	if (file) {
		failed = strikes(&half);
		int error = errno;
		if (!failed && fstat(fd, &status) == 0 && size < status.st_size)
			note_write(file, size, (size_t)(status.st_size - size));
		errno = error;
	}
	pthread_mutex_unlock(&disk.mutex);
	return failed ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

CALL int ftruncate(int fd, off_t size)
{
	return truncate_to(fd, size);
}

CALL int ftruncate64(int fd, off64_t size)
{
	return truncate_to(fd, size);
}

static int sync_fd(int fd, long call)
{
	bool half = false, failed = false;
	char path[192];
	struct stat status;
	pthread_mutex_lock(&disk.mutex);
	bool folder = disk.armed && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) &&
		      path_of(fd, path, sizeof(path)) && counts(path);
	struct file *file = file_of(fd);
	/* There is no full disk for a sync, and a signal ends none. */
	if ((folder || file) && disk.plan.error != ENOSPC && disk.plan.error != EINTR)
		failed = strikes(&half);
	int error = errno;
	if (!failed && !disk.plan.lies && folder)
		forget_names(path);
	if (!failed && !disk.plan.lies && file)
		forget_writes(file);
	errno = error;
	pthread_mutex_unlock(&disk.mutex);
	return failed ? -1 : (int)syscall(call, fd);
}

CALL int fsync(int fd)
{
	return sync_fd(fd, SYS_fsync);
}

CALL int fdatasync(int fd)
{
	return sync_fd(fd, SYS_fdatasync);
}

/* Before a call that changes names; they may be NULL. */
static bool name_strikes(const char *one, const char *two)
{
	bool half = false, failed = false;
	pthread_mutex_lock(&disk.mutex);
	if (disk.armed && ((one && counts(one)) || (two && counts(two)))) {
		failed = disk.plan.error != EINTR && strikes(&half);
		int error = errno;
		if (!failed && two)
			note_name(two, one && counts(one));
		if (!failed && one)
			note_name(one, false);
		errno = error;
	}
	pthread_mutex_unlock(&disk.mutex);
	return failed;
}

CALL int rename(const char *from, const char *to)
{
	return name_strikes(from, to)
		       ? -1
		       : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

CALL int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	return name_strikes(from, to) ? -1
				      : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

CALL int link(const char *from, const char *to)
{
	return name_strikes(NULL, to) ? -1
				      : (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

CALL int unlink(const char *path)
{
	struct stat status;
	if (lstat(path, &status) < 0)
		return -1;
	return name_strikes(path, NULL) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static int open_path(const char *path, int flags, mode_t mode)
{
	struct stat status;
	bool creates = flags & O_CREAT && lstat(path, &status) < 0;
	if (creates && name_strikes(path, NULL))
		return -1;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags & ~O_TRUNC, mode);
	if (fd >= 0 && flags & O_TRUNC && truncate_to(fd, 0) < 0) {
		syscall(SYS_close, fd);
		return -1;
	}
	return fd;
}

#define OPEN(function)                                                                             \
	CALL int function(const char *path, int flags, ...)                                        \
	{                                                                                          \
		va_list list;                                                                      \
		va_start(list, flags);                                                             \
		mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;                          \
		va_end(list);                                                                      \
		return open_path(path, flags, mode);                                               \
	}

OPEN(open)
OPEN(open64)
