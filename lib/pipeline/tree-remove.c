/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing what somebody else has filled. A tree can be deeper than there are file descriptors, and
 * its folders can be without any permission.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "tree-private.h"

/* Deeper folders are first moved up to the top. */
#define REMOVE_DEPTH 32
/* How often entries may appear in a folder while it is being emptied. */
#define REMOVE_PASSES 64

struct remover {
	int top_fd;
	const char *what;
	orch_error **reterr;
	bool moved; /* something was moved up to the top since its last pass */
};

static int32_t fail(struct remover *remover, const char *name, int number)
{
	_cleanup_free_ char *shown = path_text(name);
	return orch_fail(remover->reterr,
			 number == EXDEV || number == EBUSY ? ORCH_EBUSY : ORCH_ESYS, number, NULL,
			 number == EXDEV || number == EBUSY
			     ? "%s: %s can not be removed: a file system is mounted there"
			     : "%s: %s can not be removed",
			 remover->what, shown ? shown : "an entry");
}

static int32_t empty(struct remover *remover, int fd, unsigned depth);

static int32_t remove_entry(struct remover *remover, int fd, const char *name, unsigned depth)
{
	if (!unlinkat(fd, name, 0) || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return fail(remover, name, errno);
	if (!unlinkat(fd, name, AT_REMOVEDIR) || errno == ENOENT)
		return 0;
	_cleanup_close_ int folder = tree_open_to_empty(fd, name);
	if (folder < 0)
		return errno == ENOENT ? 0 : fail(remover, name, errno);
	if (depth >= REMOVE_DEPTH) {
		char random[17], place[24];
		orch_random_hex(random, 8);
		snprintf(place, sizeof(place), ".deep-%s", random);
		if (renameat(fd, name, remover->top_fd, place) < 0)
			return fail(remover, name, errno);
		remover->moved = true;
		return 0;
	}
	int32_t code = empty(remover, folder, depth + 1);
	if (!code && unlinkat(fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY)
		code = fail(remover, name, errno);
	return code;
}

static int32_t empty_once(struct remover *remover, DIR *dir, unsigned depth, bool *ret_found)
{
	*ret_found = false;
	rewinddir(dir);
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(dir);
		if (!entry)
			return errno ? fail(remover, ".", errno) : 0;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		*ret_found = true;
		int32_t code = remove_entry(remover, dirfd(dir), entry->d_name, depth);
		if (code < 0)
			return code;
	}
}

static int32_t empty(struct remover *remover, int fd, unsigned depth)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = own < 0 ? NULL : fdopendir(own);
	if (!dir) {
		orch_close_fd(&own);
		return fail(remover, ".", errno);
	}
	/* What was moved up counts as progress: it gets shorter each time. */
	int32_t code = 0;
	bool found = true;
	for (int passes = 0; !code && found && passes < REMOVE_PASSES;) {
		remover->moved = depth ? remover->moved : false;
		code = empty_once(remover, dir, depth, &found);
		if (depth || !remover->moved)
			passes++;
	}
	closedir(dir);
	return code;
}

int32_t tree_remove_contents(int fd, const char *what, orch_error **reterr)
{
	struct remover remover = {.top_fd = fd, .what = what, .reterr = reterr};
	return empty(&remover, fd, 0);
}

int32_t tree_remove(const char *dir, orch_error **reterr)
{
	if (!dir || !*dir || !strcmp(dir, "/") || !strcmp(dir, "."))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "no folder that could be removed was given");
	_cleanup_free_ char *path = strdup(dir);
	if (!path)
		return orch_fail_memory(reterr);
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		path[--length] = '\0';
	struct remover remover = {.what = path, .reterr = reterr};
	/* A link in its place is removed, not followed; so is a file. */
	if (!unlink(path) || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return fail(&remover, ".", errno);
	struct stat status;
	if (!lstat(path, &status) && S_ISDIR(status.st_mode) && (status.st_mode & 0700) != 0700)
		fchmodat(AT_FDCWD, path, 0700, 0);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : fail(&remover, ".", errno);
	int32_t code = tree_remove_contents(fd, path, reterr);
	if (!code && rmdir(path) < 0 && errno != ENOENT)
		code = fail(&remover, ".", errno);
	return code;
}
