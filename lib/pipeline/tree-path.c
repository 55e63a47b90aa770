/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "../core/os.h"
#include "tree-private.h"

int32_t tree_open_root(const char *dir, int *ret_fd, orch_error **reterr)
{
	if (!dir || !*dir)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "no folder given");
	/* "link/" would follow the link whatever the flags say. */
	_cleanup_free_ char *path = strdup(dir);
	if (!path)
		return orch_fail_memory(reterr);
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		path[--length] = '\0';
	_cleanup_close_ int fd = -1;
	struct stat status;
	if (tree_look_root(path, &fd, &status) < 0)
		return orch_fail(reterr, errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno, NULL,
				 "the folder %s can not be opened", path);
	if (!S_ISDIR(status.st_mode))
		return orch_fail(reterr, ORCH_EDENIED, 0, NULL, "%s is a %s, not a folder", path,
				 S_ISLNK(status.st_mode) ? "link" : "file");
	int real = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (real < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, NULL, "the folder %s can not be read",
				 path);
	*ret_fd = real;
	return 0;
}

int32_t tree_open_file(int dir_fd, const char *dir, const char *path, int *ret_fd,
		       orch_error **reterr)
{
	_cleanup_free_ char *shown = path_text(path);
	_cleanup_close_ int fd = -1;
	struct stat status;
	if (!shown)
		return orch_fail_memory(reterr);
	int found = tree_look(dir_fd, path, &fd, &status);
	if (found < 0 && (errno == ELOOP || errno == EXDEV))
		return orch_fail(reterr, ORCH_EDENIED, 0, NULL,
				 "%s/%s leads through a link or out of its folder", dir, shown);
	if (found < 0)
		return orch_fail(reterr,
				 errno == ENOENT || errno == ENOTDIR ? ORCH_ENOENT : ORCH_ESYS,
				 errno, NULL, "%s/%s can not be opened", dir, shown);
	if (!S_ISREG(status.st_mode))
		return orch_fail(reterr, ORCH_EDENIED, 0, NULL, "%s/%s is not a regular file", dir,
				 shown);
	int real = tree_read_looked(fd, false);
	if (real < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, NULL, "%s/%s can not be read", dir,
				 shown);
	*ret_fd = real;
	return 0;
}

/* --- names ----------------------------------------------------------------------------------- */

size_t utf8_length(const char *text, size_t available)
{
	const unsigned char *c = (const unsigned char *)text;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	if (!available)
		return 0;
	if (c[0] < 0x80)
		return 1;
	size_t length = c[0] >= 0xf0 && c[0] < 0xf5   ? 4
			: c[0] >= 0xe0 && c[0] < 0xf0 ? 3
			: c[0] >= 0xc2 && c[0] < 0xe0 ? 2
						      : 0;
	if (!length || length > available)
		return 0;
	uint32_t value = c[0] & (0xffu >> (length + 1));
	for (size_t i = 1; i < length; i++) {
		if ((c[i] & 0xc0) != 0x80)
			return 0;
		value = value << 6 | (c[i] & 0x3f);
	}
	bool surrogate = value >= 0xd800 && value < 0xe000;
	return value < least[length] || value > 0x10ffff || surrogate ? 0 : length;
}

char *path_text(const char *path)
{
	_cleanup_buf_ struct orch_buf text = {0};
	size_t left = strlen(path), length;
	for (; left; path += length, left -= length) {
		length = utf8_length(path, left);
		if (!length || (unsigned char)*path < 0x20 || *path == 0x7f) {
			length = 1;
			orch_buf_printf(&text, "\\x%02x", (unsigned char)*path);
		} else {
			orch_buf_add(&text, path, length);
		}
	}
	if (!text.data)
		return text.failed ? NULL : strdup("");
	return text.failed ? NULL : ORCH_STEAL(text.data);
}

bool name_is_git(const char *name)
{
	return !strcasecmp(name, ".git");
}

const char *name_fault(const char *name)
{
	size_t left = strlen(name), length;
	for (const char *c = name; left; c += length, left -= length) {
		length = utf8_length(c, left);
		if (!length)
			return "its name is not UTF-8";
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return "its name has a control character";
		if (*c == '\\')
			return "its name has a backslash, which other systems take for a separator";
	}
	/* What other file systems take for .git: git refuses to check it out. */
	if (!strncasecmp(name, ".git", 4) &&
	    (name[4] == ':' || !name[4 + strspn(name + 4, ". ")]) && name[4])
		return "its name means .git on other systems";
	if (!strncasecmp(name, "git~1", 5) && (name[5] == ':' || !name[5 + strspn(name + 5, ". ")]))
		return "its name means .git on other systems";
	return NULL;
}

const char *link_fault(const char *name, const char *target, unsigned depth)
{
	unsigned up = 0;
	bool down = false;
	if (!*target)
		return "it is an empty link";
	if (*target == '/')
		return "it is an absolute link: use a relative one that stays inside";
	if (!strcasecmp(name, ".gitmodules"))
		return "git refuses a link of that name";
	for (const char *segment = target; *segment;) {
		size_t length = strcspn(segment, "/");
		if (length == 2 && !strncmp(segment, "..", 2)) {
			/* Behind a name that may be a link itself nobody can say where ".." leads.
			 */
			if (down)
				return "it is a link with \"..\" behind a name: put all \"..\" "
				       "first";
			if (++up > depth)
				return "it is a link that leaves the tree";
		} else if (length && !(length == 1 && *segment == '.')) {
			down = true;
			if (length == 4 && !strncasecmp(segment, ".git", 4))
				return "it is a link into .git";
		}
		segment += length + (segment[length] == '/');
	}
	for (size_t left = strlen(target), length; left; target += length, left -= length) {
		length = utf8_length(target, left);
		if (!length || (unsigned char)*target < 0x20 || *target == 0x7f)
			return "it is a link to a name with a control character or stray byte";
	}
	return NULL;
}

/* --- files of the host ----------------------------------------------------------------------- */

int32_t tree_fail_write(const char *path, orch_error **reterr)
{
	int number = errno;
	_cleanup_free_ char *shown = path_text(path);
	bool full = number == ENOSPC || number == EDQUOT;
	return orch_fail(reterr, full ? ORCH_ENOSPC : ORCH_ESYS, number, NULL,
			 "%s can not be written", shown ? shown : "a file");
}

/* So that a name made in it survives a power loss. */
static int sync_folder(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -1 : orch_sync(fd);
}

/* The folder that `path` is in; the caller frees. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash == path ? strdup("/")
	       : slash	     ? strndup(path, (size_t)(slash - path))
			     : strdup(".");
}

int tree_sync_parent(const char *path)
{
	_cleanup_free_ char *parent = folder_of(path);
	return parent ? sync_folder(parent) : -1;
}

int32_t tree_make_folders(const char *path, orch_error **reterr)
{
	_cleanup_free_ char *part = strdup(path);
	if (!part)
		return orch_fail_memory(reterr);
	for (char *slash = strchr(part + 1, '/'); *part && slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (!mkdir(part, 0755)) {
			/* Whatever the host's umask is: the uid of a sandbox has to get in. */
			if (chmod(part, 0755) < 0 || tree_sync_parent(part) < 0)
				return tree_fail_write(part, reterr);
		} else if (errno != EEXIST) {
			return tree_fail_write(part, reterr);
		}
		*slash = '/';
	}
	return 0;
}

int tree_write_all(int fd, const void *bytes, size_t length)
{
	for (const char *from = bytes; length;) {
		ssize_t wrote = write(fd, from, length);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return -1;
		from += wrote;
		length -= (size_t)wrote;
	}
	return 0;
}

int32_t tree_write_file(const char *path, const void *bytes, size_t length, uint32_t mode,
			orch_error **reterr)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	const char *name = slash ? slash + 1 : path;
	char random[17];
	if (!path || !*name || (!bytes && length))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "no file name or no bytes given");
	int32_t code = tree_make_folders(path, reterr);
	if (code < 0)
		return code;
	_cleanup_free_ char *folder = folder_of(path);
	orch_random_hex(random, 8);
	_cleanup_free_ char *draft = orch_strdup_printf(".%.200s.%s", name, random);
	if (!folder || !draft)
		return orch_fail_memory(reterr);

	_cleanup_close_ int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, NULL, "the folder %s can not be opened",
				 folder);
	_cleanup_close_ int fd =
	    openat(dir, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return tree_fail_write(path, reterr);
	if (tree_write_all(fd, bytes, length) < 0 || fchmod(fd, mode ? mode : 0644) < 0 ||
	    orch_sync(fd) < 0 || renameat(dir, draft, dir, name) < 0 || orch_sync(dir) < 0) {
		code = tree_fail_write(path, reterr);
		unlinkat(dir, draft, 0);
	}
	return code;
}

int32_t tree_read_all(int fd, const char *what, size_t limit, void **ret_bytes, size_t *ret_length,
		      orch_error **reterr)
{
	_cleanup_free_ char *bytes = NULL;
	size_t length = 0, capacity = 0;
	for (;;) {
		if (length + 1 >= capacity) {
			char *grown = realloc(bytes, capacity = capacity ? capacity * 2 : 8192);
			if (!grown)
				return orch_fail_memory(reterr);
			bytes = grown;
		}
		ssize_t got = read(fd, bytes + length, capacity - length - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return orch_fail(reterr, ORCH_ESYS, errno, NULL, "%s can not be read",
					 what);
		if (!got)
			break;
		length += (size_t)got;
		if (length > limit)
			return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL,
					 "%s has more than %zu bytes", what, limit);
	}
	bytes[length] = '\0';
	*ret_bytes = ORCH_STEAL(bytes);
	*ret_length = length;
	return 0;
}

int32_t tree_read_file(const char *dir, const char *path, size_t limit, void **ret_bytes,
		       size_t *ret_length, orch_error **reterr)
{
	_cleanup_close_ int root = -1, fd = -1;
	if (!path || !*path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "no file name given");
	int32_t code = tree_open_root(dir, &root, reterr);
	if (!code)
		code = tree_open_file(root, dir, path, &fd, reterr);
	_cleanup_free_ char *shown = path_text(path);
	_cleanup_free_ char *what = shown ? orch_strdup_printf("%s/%s", dir, shown) : NULL;
	if (!code && !what)
		code = orch_fail_memory(reterr);
	return code ? code : tree_read_all(fd, what, limit, ret_bytes, ret_length, reterr);
}
