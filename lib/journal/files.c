/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>

#include "core/os.h"
#include "journal-private.h"

/* Whole files: copied, synced, given their names. Each gives 0 or an errno. */

int file_copy(const char *from, const char *to)
{
	_cleanup_close_ int in =
		open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	if (in < 0)
		return errno;
	struct stat status;
	if (fstat(in, &status) < 0)
		return errno;
	/* What stands under the name may be a FIFO, and then nobody ever writes to it. */
	if (!S_ISREG(status.st_mode))
		return FILE_IS_NONE;
	_cleanup_close_ int out =
		open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (out < 0)
		return errno;
	_cleanup_free_ char *block = malloc(1 << 16);
	if (!block)
		return ENOMEM;
	for (;;) {
		ssize_t length = read(in, block, 1 << 16);
		if (length == 0)
			return 0;
		if (length < 0 && errno == EINTR)
			continue;
		if (length < 0)
			return errno;
		for (ssize_t done = 0; done < length;) {
			ssize_t written = write(out, block + done, (size_t)(length - done));
			if (written < 0 && errno != EINTR)
				return errno;
			done += written > 0 ? written : 0;
		}
	}
}

int file_sync(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	return fd < 0 || orch_sync(fd) < 0 ? errno : 0;
}

int file_sync_folder_of(const char *path)
{
	_cleanup_free_ char *folder = strdup(path);
	if (!folder)
		return ENOMEM;
	char *slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder ? 1 : 0] = '\0';
	_cleanup_close_ int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || orch_sync(fd) < 0 ? errno : 0;
}

int file_rename_new(const char *from, const char *to)
{
	if (orch_rename_new(AT_FDCWD, from, AT_FDCWD, to) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
		return errno;
	/* A file system that cannot: two steps, of which the first one does not replace either. */
	if (link(from, to) < 0)
		return errno;
	return unlink(from) < 0 ? errno : 0;
}

bool file_exists(const char *path)
{
	struct stat status;
	return lstat(path, &status) == 0;
}

void file_remove_database(const char *path)
{
	static const char *const beside[] = {"", "-wal", "-shm", "-journal"};
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		_cleanup_free_ char *name = orch_strdup_printf("%s%s", path, beside[i]);
		if (name)
			unlink(name);
	}
}
