/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "core/darwin/apple.h"
#include "core/os.h"

#include "../journal-private.h"

/* fsync(2) leaves data in the drive's cache here, where a power loss takes it (fcntl(2),
 * F_FULLFSYNC). */
const struct setting host_settings[] = {
	{"PRAGMA fullfsync = ON", "1"},
	{"PRAGMA checkpoint_fullfsync = ON", "1"},
	{NULL, NULL},
};

/* They may call themselves local, and be anything: macFUSE under its names, and what Virtualization
 * shares. */
static bool may_be_remote(const char *type)
{
	static const char *const types[] = {"macfuse", "osxfuse",  "fusefs",
					    "fuse-t",  "virtiofs", "9p"};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strncmp(type, types[i], strlen(types[i])) == 0)
			return true;
	return false;
}

int32_t filesystem_check(const char *folder, orch_error **reterr)
{
	_cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return orch_fail(reterr, journal_code(errno), errno, "folder",
				 "cannot open the journal's folder %s", folder);
	struct statfs status;
	if (fstatfs(fd, &status) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "folder",
				 "cannot ask the file system of %s", folder);
	if (!(status.f_flags & MNT_LOCAL) || may_be_remote(status.f_fstypename))
		return orch_fail(
			reterr, ORCH_ENETFS, 0, "folder",
			"%s is on a network file system (%s), where locks and syncs cannot be "
			"trusted: put the journal on a local disk",
			folder, status.f_fstypename);
	/* SQLite would fall back to fsync(2) and say nothing. */
	if (fcntl(fd, F_FULLFSYNC) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "folder",
				 "the file system of %s (%s) cannot be made to write to its medium "
				 "(F_FULLFSYNC): put the journal on APFS",
				 folder, status.f_fstypename);
	return 0;
}

bool file_identity_read(const char *path, struct file_identity *identity)
{
	struct stat status;
	if (stat(path, &status) < 0)
		return false;
	identity->device = status.st_dev;
	identity->inode = status.st_ino;
	return true;
}

/* posix_fallocate(3) is not there, and F_PREALLOCATE promises nothing that a later write could not
 * be denied. */
int file_reserve(int fd, off_t bytes)
{
	static const char zeros[16384];
	struct stat status;
	if (fstat(fd, &status) < 0)
		return errno;
	if (status.st_size >= bytes && status.st_blocks * 512 >= bytes)
		return 0;
	for (off_t done = 0; done < bytes;) {
		size_t length = bytes - done < (off_t)sizeof(zeros) ? (size_t)(bytes - done)
								    : sizeof(zeros);
		ssize_t written = pwrite(fd, zeros, length, done);
		if (written < 0 && errno != EINTR)
			return errno;
		done += written > 0 ? written : 0;
	}
	/* The full disk shows when the blocks are given out, and that may be as late as now. */
	return orch_sync(fd) < 0 ? errno : 0;
}
