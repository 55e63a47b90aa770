/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "core/os.h"
#include "journal-private.h"

/*
 * Ownership is an open-file-description lock (fcntl(2), F_OFD_SETLK) on a file of its own. SQLite's
 * own lock is a traditional one, which the process loses as soon as any code in it opens and closes
 * the database; an OFD lock ends only with the last copy of its descriptor.
 *
 * Such copies are what fork(2) makes, so a worker that the host forked would keep a dead
 * coordinator's journal locked: orch_close_in_child().
 */

int32_t journal_code(int os_errno)
{
	switch (os_errno) {
	case ENOENT:
	case ENOTDIR:
		return ORCH_ENOENT;
	case ENOSPC:
	case EDQUOT:
		return ORCH_ENOSPC;
	case ENOMEM:
		return ORCH_ENOMEM;
	default:
		return ORCH_ESYS;
	}
}

int file_write_all(int fd, const char *text, size_t length, off_t offset)
{
	for (size_t done = 0; done < length;) {
		ssize_t written = pwrite(fd, text + done, length - done, offset + (off_t)done);
		if (written < 0 && errno != EINTR)
			return errno;
		done += written > 0 ? (size_t)written : 0;
	}
	return 0;
}

int fd_above_stdio(int fd)
{
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), os_errno = errno;
	close(fd);
	errno = os_errno;
	return moved;
}

bool file_identity_holds(const char *path, const struct file_identity *identity)
{
	struct file_identity now;
	return file_identity_read(path, &now) && now.device == identity->device &&
	       now.inode == identity->inode;
}

static int32_t lock_refused(const struct lock *lock, orch_error **reterr)
{
	char holder[256];
	ssize_t length = pread(lock->fd, holder, sizeof(holder) - 1, 0);
	while (length > 0 && holder[length - 1] == '\n')
		length--;
	if (length <= 0)
		return orch_fail(
			reterr, ORCH_ELOCKED, 0, "lock",
			"%s is held by another coordinator, which has not signed it yet, or is "
			"being read",
			lock->path);
	holder[length] = '\0';
	return orch_fail(reterr, ORCH_ELOCKED, 0, "lock",
			 "%s is held by another coordinator (%s): stop it first", lock->path,
			 holder);
}

int32_t lock_take(struct lock *lock, const char *path, bool shared, orch_error **reterr)
{
	int32_t r;
	lock->fd = -1;
	lock->path = strdup(path);
	if (!lock->path)
		return orch_fail_memory(reterr);
	/* Somebody may remove the file between open and lock: then the lock is one on nothing. */
	for (int tries = 0; tries < 10; tries++) {
		int flags =
			O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK |
			(shared ? O_RDONLY : O_RDWR | O_CREAT);
		lock->fd = fd_above_stdio(open(path, flags, 0600));
		if (lock->fd < 0 && shared && errno == ENOENT)
			return 0;
		if (lock->fd < 0) {
			r = orch_fail(reterr, journal_code(errno), errno, "lock",
				      "cannot open the lock file %s", path);
			goto failed;
		}
		if (orch_lock(lock->fd, shared) < 0) {
			r = errno == EAGAIN || errno == EACCES
				    ? lock_refused(lock, reterr)
				    : orch_fail(reterr, ORCH_ESYS, errno, "lock", "cannot lock %s",
						path);
			goto failed;
		}
		struct stat status;
		if (fstat(lock->fd, &status) == 0) {
			lock->identity.device = status.st_dev;
			lock->identity.inode = status.st_ino;
			if (file_identity_holds(path, &lock->identity)) {
				if (orch_close_in_child(&lock->fd))
					return 0;
				r = orch_fail_memory(reterr);
				goto failed;
			}
		}
		orch_close_fd(&lock->fd);
	}
	r = orch_fail(reterr, ORCH_ELOCKED, 0, "lock", "%s is removed again and again by somebody",
		      path);
failed:
	orch_close_fd(&lock->fd);
	free(ORCH_STEAL(lock->path));
	return r;
}

void instance_fill(struct instance_row *instance, uint64_t generation)
{
	memset(instance, 0, sizeof(*instance));
	instance->generation = generation;
	instance->pid = getpid();
	instance->opened_at_ms = orch_realtime_ms();
	orch_random_hex(instance->instance_id, (sizeof(instance->instance_id) - 1) / 2);
	orch_boot_id(instance->boot_id, sizeof(instance->boot_id));
	gethostname(instance->host, sizeof(instance->host) - 1);
}

int32_t lock_sign(struct lock *lock, const struct instance_row *instance, orch_error **reterr)
{
	char text[256];
	int length = snprintf(text, sizeof(text), "pid %lld boot %s host %s generation %llu\n",
			      (long long)instance->pid, instance->boot_id, instance->host,
			      (unsigned long long)instance->generation);
	/* Overwritten before it is cut: on a full disk the block is still there. */
	int os_errno = file_write_all(lock->fd, text, (size_t)length, 0);
	while (!os_errno && ftruncate(lock->fd, length) < 0)
		os_errno = errno == EINTR ? 0 : errno;
	if (os_errno)
		return orch_fail(reterr, journal_code(os_errno), os_errno, "lock",
				 "cannot write to the lock file %s", lock->path);
	return 0;
}

void lock_release(struct lock *lock)
{
	if (!lock->path)
		return;
	orch_close_in_child_no_more(&lock->fd);
	/* Closing, never F_UNLCK: in a forked child the lock is the parent's. */
	orch_close_fd(&lock->fd);
	free(ORCH_STEAL(lock->path));
}
