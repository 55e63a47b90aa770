/* SPDX-License-Identifier: Apache-2.0 */
/* Files as editors, compilers and databases use them: in the workspace and in the folder for
 * temporary files. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "own.h"

static int make(const char *path, const char *text)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? fd : -1;
}

static bool holds_text(const char *path, const char *text)
{
	char found[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	bool same = fd >= 0 && read(fd, found, sizeof(found) - 1) == (ssize_t)strlen(text) &&
		    strcmp(found, text) == 0;

	if (fd >= 0)
		close(fd);
	return same;
}

static bool own_append(void)
{
	const char *path = own_path("%W/append");
	int fd = make(path, "one"), end = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	bool works = fd >= 0 && end >= 0 && write(end, "two", 3) == 3 && holds_text(path, "onetwo");

	return unlink(path) == 0 && works;
}

/* As an editor saves: the whole new one beside it, on the disk, and over it. */
static bool own_replace(void)
{
	const char *path = own_path("%W/saved"), *beside = own_path("%W/saving");
	int old = make(path, "old"), new = make(beside, "new");
	bool works = old >= 0 && new >= 0 && fsync(new) == 0 && rename(beside, path) == 0 &&
		     holds_text(path, "new");

	return unlink(path) == 0 && works;
}

static bool own_exchange(void)
{
	const char *one = own_path("%W/one"), *other = own_path("%W/other");
	bool works = make(one, "1") >= 0 && make(other, "2") >= 0 &&
		     renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0 &&
		     holds_text(one, "2") &&
		     renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_NOREPLACE) < 0 &&
		     errno == EEXIST;
	int err = errno;

	unlink(one);
	unlink(other);
	errno = err;
	return works;
}

/* Between two folders: Landlock has a right of its own for that. */
static bool own_move(void)
{
	char from[320], to[320];
	const char *one = own_path("%W/from"), *other = own_path("%W/to");

	snprintf(from, sizeof(from), "%s/file", one);
	snprintf(to, sizeof(to), "%s/file", other);
	bool works = mkdir(one, 0700) == 0 && mkdir(other, 0700) == 0 && make(from, "x") >= 0 &&
		     rename(from, to) == 0 && link(to, from) == 0 && unlink(from) == 0;
	int err = errno;

	unlink(to);
	unlink(from);
	rmdir(one);
	rmdir(other);
	errno = err;
	return works;
}

static bool own_folder(void)
{
	char inner[320];
	const char *path = own_path("%W/folder");

	snprintf(inner, sizeof(inner), "%s/inner", path);
	bool works = mkdir(path, 0700) == 0 && mkdir(inner, 0700) == 0 && rmdir(path) < 0 &&
		     errno == ENOTEMPTY;
	DIR *folder = opendir(path);
	unsigned count = 0;

	while (folder && readdir(folder))
		count++;
	works = works && count == 3 && unlinkat(dirfd(folder), "inner", AT_REMOVEDIR) == 0;
	if (folder)
		closedir(folder);
	return rmdir(path) == 0 && works;
}

static bool own_link(void)
{
	char found[64] = "";
	const char *path = own_path("%W/link");
	bool works = symlink("file", path) == 0 && readlink(path, found, sizeof(found) - 1) == 4 &&
		     strcmp(found, "file") == 0 && access(path, R_OK | W_OK) == 0;

	return unlink(path) == 0 && works;
}

static bool own_shared_mapping(void)
{
	const char *path = own_path("%W/mapped");
	int fd = make(path, "old text");
	char *at = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bool works = at != MAP_FAILED && memcpy(at, "new", 3) && msync(at, 8, MS_SYNC) == 0 &&
		     holds_text(path, "new text");

	return unlink(path) == 0 && works;
}

static bool own_allocate(void)
{
	struct stat st = {0};
	const char *path = own_path("%W/allocated");
	int fd = make(path, "");
	bool works = fd >= 0 && posix_fallocate(fd, 0, 65536) == 0 && fstat(fd, &st) == 0 &&
		     st.st_size == 65536 && ftruncate(fd, 10) == 0;

	return unlink(path) == 0 && works;
}

/* Two openings of a file are two owners of it. */
static bool own_file_lock(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const char *path = own_path("%W/locked");
	int one = make(path, "x"), other = open(path, O_RDWR | O_CLOEXEC);
	bool works = one >= 0 && other >= 0 && fcntl(one, F_OFD_SETLK, &lock) == 0 &&
		     fcntl(other, F_OFD_SETLK, &lock) < 0 && errno == EAGAIN;

	return unlink(path) == 0 && works;
}

static bool sees_lock(void *argument)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return fcntl(*(int *)argument, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK &&
	       lock.l_pid == getppid();
}

static bool own_record_lock(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	const char *path = own_path("%W/record");
	int fd = make(path, "xx");
	bool works = fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0 && in_child(sees_lock, &fd);

	return unlink(path) == 0 && works;
}

static bool own_copy_range(void)
{
	const char *path = own_path("%W/copied"), *from_path = own_path("%W/copied-from");
	off_t from_at = 0;
	int from = make(from_path, "text"), to = make(path, "");
	bool works = from >= 0 && to >= 0 && copy_file_range(from, &from_at, to, NULL, 4, 0) == 4 &&
		     holds_text(path, "text");

	return unlink(path) == 0 && unlink(from_path) == 0 && works;
}

static bool own_splice(void)
{
	const char *path = own_path("%W/spliced");
	int fds[2], fd = make(path, "");
	bool works = fd >= 0 && pipe2(fds, O_CLOEXEC) == 0 && write(fds[1], "piped", 5) == 5 &&
		     splice(fds[0], NULL, fd, NULL, 5, 0) == 5 && holds_text(path, "piped");

	return unlink(path) == 0 && works;
}

/* Without a name until it is whole. */
static bool own_named_later(void)
{
	char name[64];
	const char *path = own_path("%T/named");
	int fd = open(expand("%T"), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	bool works = fd >= 0 && write(fd, "whole", 5) == 5 &&
		     linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 &&
		     holds_text(path, "whole");

	return unlink(path) == 0 && works;
}

static bool own_attributes(void)
{
	char names[256], value[16] = "";
	const char *path = own_path("%W/attributes");

	return make(path, "") >= 0 && setxattr(path, "user.own", "value", 5, XATTR_CREATE) == 0 &&
	       getxattr(path, "user.own", value, sizeof(value)) == 5 &&
	       strcmp(value, "value") == 0 && listxattr(path, names, sizeof(names)) >= 9 &&
	       removexattr(path, "user.own") == 0 && unlink(path) == 0;
}

/* As what unpacks an archive of strangers keeps below its folder. */
static bool own_beneath(void)
{
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
	int folder = open(expand("%W"), O_PATH | O_DIRECTORY | O_CLOEXEC);

	return folder >= 0 && syscall(SYS_openat2, folder, "file", &how, sizeof(how)) >= 0 &&
	       syscall(SYS_openat2, folder, "../etc/passwd", &how, sizeof(how)) < 0 &&
	       errno == EXDEV;
}

static bool own_statx(void)
{
	struct statx st = {0};

	return statx(AT_FDCWD, expand("%W/file"), 0, STATX_BASIC_STATS, &st) == 0 &&
	       st.stx_size == 6 && st.stx_uid == getuid();
}

static bool own_cwd(void)
{
	char path[256] = "", link[256] = "";
	int folder = open(expand("%W"), O_PATH | O_DIRECTORY | O_CLOEXEC);

	return folder >= 0 && fchdir(folder) == 0 && getcwd(path, sizeof(path)) &&
	       strcmp(path, expand("%W")) == 0 &&
	       readlink("/proc/self/cwd", link, sizeof(link) - 1) > 0 && strcmp(link, path) == 0;
}

static bool own_umask(void)
{
	struct stat st = {0};
	const char *path = own_path("%W/private");

	umask(077);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	bool works = fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600;

	umask(027);
	works = works && fchmod(fd, 0640) == 0 && fstat(fd, &st) == 0 &&
		(st.st_mode & 0777) == 0640;
	return unlink(path) == 0 && works;
}

static bool writes_to_fifo(void *argument)
{
	int fd = open(argument, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, "token", 5) == 5;
}

/* As make shares its jobs. */
static bool own_fifo(void)
{
	char path[300], text[8] = "";

	snprintf(path, sizeof(path), "%s", own_path("%T/fifo"));
	if (mkfifo(path, 0600) < 0)
		return false;
	int fd = open(path, O_RDWR | O_CLOEXEC); /* so that nobody waits for the other end */
	bool works = fd >= 0 && in_child(writes_to_fifo, path) &&
		     read(fd, text, sizeof(text)) == 5 && strcmp(text, "token") == 0;

	return unlink(path) == 0 && works;
}

static bool own_full(void)
{
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, "x", 1) < 0 && errno == ENOSPC;
}

int attempt_own_file(const struct row *row)
{
	static const struct own all[] = {
		{"own.append", own_append},
		{"own.replace", own_replace},
		{"own.exchange", own_exchange},
		{"own.move", own_move},
		{"own.folder", own_folder},
		{"own.link.inside", own_link},
		{"own.mapping", own_shared_mapping},
		{"own.allocate", own_allocate},
		{"own.lock.file", own_file_lock},
		{"own.lock.record", own_record_lock},
		{"own.copy.range", own_copy_range},
		{"own.splice", own_splice},
		{"own.tmpfile.named", own_named_later},
		{"own.xattr.all", own_attributes},
		{"own.beneath", own_beneath},
		{"own.statx", own_statx},
		{"own.cwd", own_cwd},
		{"own.umask", own_umask},
		{"own.fifo.talk", own_fifo},
		{"own.dev.full", own_full},
	};

	return attempt_one_of(all, sizeof(all) / sizeof(all[0]), row);
}
