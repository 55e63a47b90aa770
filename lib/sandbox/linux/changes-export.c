/* SPDX-License-Identifier: Apache-2.0 */
/* Copying what an overlay holds into a folder of the host's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "../changes.h"
#include "changes-open.h"

#define BLOCK 65536

struct export
{
	const char *path; /* of the folder, for messages */
	int upper, to;
	orch_error **reterr;
};

static int32_t fail_at(const struct export *export, const char *path, int os_errno,
		       const char *what)
{
	return orch_fail(export->reterr, ORCH_ESYS, os_errno, "export", "%s can not be %s%s%s",
			 path, what, strcmp(what, "written") == 0 ? " below " : "",
			 strcmp(what, "written") == 0 ? export->path : "");
}

static int32_t open_target(struct export *export)
{
	struct stat st;
	struct dirent *entry;
	bool empty = true;

	export->to = open(export->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (export->to < 0 || fstat(export->to, &st) < 0)
		return orch_fail(export->reterr, ORCH_ESYS, errno, "export",
				 "folder %s can not be opened", export->path);
	if (st.st_uid != geteuid())
		return orch_fail(export->reterr, ORCH_ESYS, EPERM, "export",
				 "folder %s belongs to uid %u: give one of your own", export->path,
				 st.st_uid);
	int copy = changes_open(export->to, ".", O_RDONLY | O_DIRECTORY);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);

	if (!dir) {
		int err = errno;

		orch_close_fd(&copy);
		return orch_fail(export->reterr, ORCH_ESYS, err, "export",
				 "folder %s can not be read", export->path);
	}
	while (empty && (entry = readdir(dir)))
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	closedir(dir);
	if (!empty)
		return orch_fail(export->reterr, ORCH_EEXIST, 0, "export", "folder %s is not empty",
				 export->path);
	return 0;
}

/* Of the entry; folders on the way that did not change themselves are made. */
static int open_parent(const struct export *export, const char *path)
{
	char *part = strdup(path);
	int fd = -1;

	if (!part)
		return -1;
	for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdirat(export->to, part, 0755) < 0 && errno != EEXIST)
			goto out;
		*slash = '/';
	}
	char *last = strrchr(part, '/');

	if (last)
		*last = '\0';
	fd = changes_open(export->to, last ? part : ".", O_RDONLY | O_DIRECTORY);
out:
	free(part);
	return fd;
}

static bool copy_block(int from, int to, off_t at, size_t length, char *block)
{
	ssize_t n = pread(from, block, length, at);

	/* Shorter by now: the rest stays a hole. */
	return n >= 0 && (n == 0 || pwrite(to, block, (size_t)n, at) == n);
}

/* Holes stay holes: a program can make a file of any size that takes no room. */
static bool copy_bytes(int from, int to, off_t size)
{
	char *block = malloc(BLOCK);
	bool done = block && ftruncate(to, size) == 0;

	for (off_t at = 0; done && at < size;) {
		off_t begin = lseek(from, at, SEEK_DATA), end;

		if (begin < 0 && errno == ENXIO)
			break;
		end = begin < 0 ? -1 : lseek(from, begin, SEEK_HOLE);
		done = end > begin;
		for (at = begin; done && at < end && at < size;) {
			off_t length = (end < size ? end : size) - at;

			length = length < BLOCK ? length : BLOCK;
			done = copy_block(from, to, at, (size_t)length, block);
			at += length;
		}
	}
	int err = errno;

	free(block);
	errno = err;
	return done;
}

static int32_t write_file(const struct export *export, const struct change *row, int parent,
			  const char *name, int source, const struct stat *st)
{
	_cleanup_close_ int from = changes_open_file_anyway(export->upper, row->path, source, st);

	if (from < 0)
		return errno == ENOENT || errno == ESTALE
			       ? 0
			       : fail_at(export, row->path, errno, "read in the overlay");
	_cleanup_close_ int to =
		openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (to < 0 || !copy_bytes(from, to, st->st_size) || fchmod(to, st->st_mode & 0777) < 0 ||
	    futimens(to, (struct timespec[]){st->st_atim, st->st_mtim}) < 0)
		return fail_at(export, row->path, errno, "written");
	return 0;
}

static int32_t write_link(const struct export *export, const struct change *row, int parent,
			  const char *name, int source)
{
	char target[4096];
	ssize_t n = readlinkat(source, "", target, sizeof(target) - 1);

	if (n < 0)
		return fail_at(export, row->path, errno, "read in the overlay");
	target[n] = '\0';
	return symlinkat(target, parent, name) < 0 ? fail_at(export, row->path, errno, "written")
						   : 0;
}

/* Its mode comes last, here and there: what is below has to be copied first. */
static int32_t write_folder(const struct export *export, const struct change *row, int parent,
			    const char *name, int source, const struct stat *st)
{
	changes_loosen(source, st);
	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		return fail_at(export, row->path, errno, "written");
	return 0;
}

static int32_t write_row(const struct export *export, const struct change *row)
{
	const char *slash = strrchr(row->path, '/');
	const char *name = slash ? slash + 1 : row->path;
	struct stat st;

	if (row->kind == ORCH_CHANGE_DELETED || strcmp(row->path, ".") == 0)
		return 0;
	_cleanup_close_ int source = changes_open(export->upper, row->path, O_PATH);

	if (source < 0 || fstat(source, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? 0
			       : fail_at(export, row->path, errno, "read in the overlay");
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	_cleanup_close_ int parent = open_parent(export, row->path);

	if (parent < 0)
		return fail_at(export, row->path, errno, "written");
	if (S_ISREG(st.st_mode))
		return write_file(export, row, parent, name, source, &st);
	if (S_ISLNK(st.st_mode))
		return write_link(export, row, parent, name, source);
	return write_folder(export, row, parent, name, source, &st);
}

static int32_t set_folder_mode(const struct export *export, const struct change *row)
{
	const struct stat before = {.st_mode = row->mode};

	if (!S_ISDIR(row->mode) || strcmp(row->path, ".") == 0)
		return 0;
	_cleanup_close_ int source = changes_open(export->upper, row->path, O_PATH | O_DIRECTORY);

	if (source >= 0 && geteuid() != 0)
		changes_restore(source, &before);
	_cleanup_close_ int folder = changes_open(export->to, row->path, O_RDONLY | O_DIRECTORY);

	if (folder < 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? 0
			       : fail_at(export, row->path, errno, "written");
	return fchmod(folder, row->mode & 01777) < 0 ? fail_at(export, row->path, errno, "written")
						     : 0;
}

int32_t changes_write(const struct orch_changes *changes, int private_fd, const char *path,
		      orch_error **reterr)
{
	struct export export = {.path = path, .upper = -1, .to = -1, .reterr = reterr};
	int32_t code = open_target(&export);

	if (code == 0) {
		export.upper = changes_open(private_fd, "upper", O_PATH | O_DIRECTORY);
		if (export.upper < 0)
			code = fail_at(&export, "upper", errno, "read in the overlay");
	}
	/* Sorted: folders come before what is in them, and backwards after it. */
	for (uint32_t i = 0; code == 0 && i < changes->count; i++)
		code = write_row(&export, &changes->rows[i]);
	for (uint32_t i = changes->count; code == 0 && i-- > 0;)
		code = set_folder_mode(&export, &changes->rows[i]);
	orch_close_fd(&export.upper);
	orch_close_fd(&export.to);
	return code;
}
