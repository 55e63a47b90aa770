/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "git-private.h"

#define TEXT_MAX (64u << 20) /* packed-refs, shallow, index */
#define REF_MAX 4096
#define REFS_MAX 200000
#define REFS_DEPTH 32

bool is_commit_id(const char *text)
{
	return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40;
}

/* --- finding it ------------------------------------------------------------------------------ */

static int open_folder(int dir_fd, const char *path)
{
	return openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool has(int dir_fd, const char *name, mode_t type)
{
	struct stat status;
	return !fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) &&
	       (status.st_mode & S_IFMT) == type;
}

/* A small file's first line; NULL if there is none. The caller frees. */
static char *read_line(int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	void *bytes = NULL;
	size_t length;
	if (tree_open_file(dir_fd, "", name, &fd, NULL) < 0 ||
	    tree_read_all(fd, name, REF_MAX, &bytes, &length, NULL) < 0)
		return NULL;
	((char *)bytes)[strcspn(bytes, "\r\n")] = '\0';
	return bytes;
}

static int32_t fail_none(const char *name, orch_error **reterr)
{
	return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
			 "%s is not a git repository: give the folder of one, or run \"git init\" "
			 "and commit there",
			 name);
}

static int32_t open_git_folder(int repo, struct git_source *source, orch_error **reterr)
{
	if (has(repo, ".git", S_IFLNK))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "%s/.git is a symbolic link: give the folder that it leads to",
				 source->name);
	if (has(repo, ".git", S_IFDIR)) {
		source->fd = open_folder(repo, ".git");
	} else if (has(repo, ".git", S_IFREG)) {
		/* A worktree or a submodule. */
		_cleanup_free_ char *line = read_line(repo, ".git");
		if (!line || strncmp(line, "gitdir: ", 8))
			return fail_none(source->name, reterr);
		source->fd = open_folder(repo, line + 8);
		if (source->fd < 0)
			return orch_fail(reterr, ORCH_EINVAL, errno, NULL,
					 "%s/.git leads to %s, which can not be opened",
					 source->name, line + 8);
	} else {
		source->fd = open_folder(repo, ".");
	}
	if (source->fd < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, NULL,
				 "the repository %s can not be read", source->name);
	_cleanup_free_ char *common = read_line(source->fd, "commondir");
	source->common_fd = open_folder(source->fd, common ? common : ".");
	if (source->common_fd < 0 || !has(source->fd, "HEAD", S_IFREG) ||
	    !has(source->common_fd, "objects", S_IFDIR) || !has(source->common_fd, "refs", S_IFDIR))
		return fail_none(source->name, reterr);
	return 0;
}

/* A word of the configuration that changes how the repository's files are to be read. */
static bool config_has(const char *config, const char *key, const char *value)
{
	for (const char *at = config; (at = strcasestr(at, key)); at += strlen(key)) {
		const char *rest = at + strlen(key);
		rest += strspn(rest, " \t=");
		if (!*value || !strncasecmp(rest, value, strlen(value)))
			return true;
	}
	return false;
}

static int32_t check_kind(const struct git_source *source, orch_error **reterr)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ void *config = NULL;
	size_t length = 0;
	_cleanup_free_ char *alternates = read_line(source->common_fd, "objects/info/alternates");
	if (alternates && *alternates)
		return orch_fail(reterr, ORCH_ENOTSUP, 0, NULL,
				 "the repository %s uses objects of another one "
				 "(objects/info/alternates: %s): make it "
				 "complete with \"git repack -a -d\" and remove that file",
				 source->name, alternates);
	if (tree_open_file(source->common_fd, source->name, "config", &fd, NULL) < 0)
		return 0;
	int32_t code = tree_read_all(fd, "config", 1u << 20, &config, &length, reterr);
	if (code < 0)
		return code;
	if (config_has(config, "objectformat", "sha256"))
		return orch_fail(
		    reterr, ORCH_ENOTSUP, 0, NULL,
		    "the repository %s has SHA-256 object names: only SHA-1 is supported",
		    source->name);
	if (config_has(config, "refstorage", "reftable") ||
	    has(source->common_fd, "reftable", S_IFDIR))
		return orch_fail(
		    reterr, ORCH_ENOTSUP, 0, NULL,
		    "the repository %s keeps its refs in a reftable: only files are supported",
		    source->name);
	if (config_has(config, "partialclone", ""))
		return orch_fail(reterr, ORCH_ENOTSUP, 0, NULL,
				 "the repository %s is a partial clone, objects are missing: clone "
				 "it without --filter",
				 source->name);
	return 0;
}

int32_t git_source_open(const char *repo_dir, struct git_source *source, orch_error **reterr)
{
	*source = (struct git_source){.name = repo_dir, .fd = -1, .common_fd = -1};
	if (!repo_dir || !*repo_dir)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "no repository given");
	_cleanup_close_ int repo = open_folder(AT_FDCWD, repo_dir);
	if (repo < 0)
		return orch_fail(reterr, errno == ENOENT ? ORCH_ENOENT : ORCH_EINVAL, errno, NULL,
				 "the repository %s can not be opened", repo_dir);
	int32_t code = open_git_folder(repo, source, reterr);
	return code ? code : check_kind(source, reterr);
}

void git_source_close(struct git_source *source)
{
	orch_close_fd(&source->fd);
	orch_close_fd(&source->common_fd);
}

/* --- copying --------------------------------------------------------------------------------- */

struct copier {
	const char *name;
	orch_error **reterr;
	size_t refs_left;
};

static int32_t fail(struct copier *copier, const char *what)
{
	return orch_fail(copier->reterr,
			 errno == ENOSPC || errno == EDQUOT ? ORCH_ENOSPC : ORCH_ESYS, errno, NULL,
			 "%s: %s can not be copied", copier->name, what);
}

/* The original's times stay as they are, also that of the last access where the kernel lets us. */
static int open_quietly(int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	struct stat status;
	if (tree_look(dir_fd, name, &fd, &status) < 0)
		return -1;
	if (!S_ISREG(status.st_mode)) {
		errno = ELOOP;
		return -1;
	}
	return tree_read_looked(fd, true);
}

static int32_t copy_file(struct copier *copier, int from, int to, const char *name, uint64_t limit,
			 mode_t mode)
{
	_cleanup_free_ char *buffer = malloc(65536);
	_cleanup_close_ int source = open_quietly(from, name);
	_cleanup_close_ int target = -1;
	if (!buffer)
		return orch_fail_memory(copier->reterr);
	if (source < 0)
		return fail(copier, name);
	target = tree_open(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (target < 0)
		return fail(copier, name);
	for (;;) {
		ssize_t got = read(source, buffer, 65536);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fail(copier, name);
		if (!got)
			break;
		if ((uint64_t)got > limit)
			return orch_fail(copier->reterr, ORCH_ETOOBIG, 0, NULL,
					 "%s: %s is too large", copier->name, name);
		limit -= (uint64_t)got;
		if (tree_write_all(target, buffer, (size_t)got) < 0)
			return fail(copier, name);
	}
	return fchmod(target, mode) < 0 ? fail(copier, name) : 0;
}

static int32_t copy_if_there(struct copier *copier, int from, int to, const char *name)
{
	struct stat status;
	if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	return copy_file(copier, from, to, name, TEXT_MAX, 0644);
}

/* A folder of the same name on both sides; made on the right one. */
static int32_t enter(struct copier *copier, int from, int to, const char *name, int *ret_from,
		     int *ret_to)
{
	*ret_from = tree_open(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (*ret_from < 0 || (mkdirat(to, name, 0755) < 0 && errno != EEXIST))
		return fail(copier, name);
	*ret_to = tree_open(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	return *ret_to < 0 || fchmod(*ret_to, 0755) < 0 ? fail(copier, name) : 0;
}

static bool is_hex(const char *text, size_t length)
{
	return strspn(text, "0123456789abcdef") == length;
}

static bool is_object(const char *name)
{
	return strlen(name) == 38 && is_hex(name, 38);
}

static bool is_pack(const char *name)
{
	size_t length = strlen(name);
	return !strncmp(name, "pack-", 5) && is_hex(name + 5, 40) &&
	       (!strcmp(name + 45, ".pack") || !strcmp(name + 45, ".idx")) && length < 52;
}

/* Files of the folder that `wanted` takes; all others stay behind. Folders go to `inner`, if given.
 */
static int32_t copy_folder(struct copier *copier, int from, int to, const char *name,
			   bool (*wanted)(const char *name),
			   int32_t (*inner)(struct copier *copier, int from, int to,
					    const char *name))
{
	_cleanup_close_ int source = -1, target = -1;
	int32_t code = enter(copier, from, to, name, &source, &target);
	if (code < 0)
		return code;
	int own = fcntl(source, F_DUPFD_CLOEXEC, 3);
	DIR *dir = own < 0 ? NULL : fdopendir(own);
	if (!dir) {
		orch_close_fd(&own);
		return fail(copier, name);
	}
	for (const struct dirent *entry; !code && (entry = readdir(dir));) {
		const char *item = entry->d_name;
		if (inner && *item != '.' && has(source, item, S_IFDIR))
			code = inner(copier, source, target, item);
		else if (wanted && wanted(item))
			code = copy_file(copier, source, target, item, UINT64_MAX, 0444);
	}
	closedir(dir);
	return code;
}

static int32_t copy_object_folder(struct copier *copier, int from, int to, const char *name)
{
	if (!strcmp(name, "pack"))
		return copy_folder(copier, from, to, name, is_pack, NULL);
	if (strlen(name) == 2 && is_hex(name, 2))
		return copy_folder(copier, from, to, name, is_object, NULL);
	return 0;
}

static int32_t copy_refs(struct copier *copier, int from, int to, const char *name, unsigned depth)
{
	_cleanup_close_ int source = -1, target = -1;
	int32_t code = enter(copier, from, to, name, &source, &target);
	if (code < 0)
		return code;
	int own = fcntl(source, F_DUPFD_CLOEXEC, 3);
	DIR *dir = own < 0 ? NULL : fdopendir(own);
	if (!dir) {
		orch_close_fd(&own);
		return fail(copier, name);
	}
	for (const struct dirent *entry; !code && (entry = readdir(dir));) {
		const char *item = entry->d_name;
		const char *end = strrchr(item, '.');
		/* Replacements would let one object pass for another. */
		if (*item == '.' || (end && !strcmp(end, ".lock")) ||
		    (!depth && !strcmp(item, "replace")))
			continue;
		if (!copier->refs_left-- || depth > REFS_DEPTH)
			code = orch_fail(copier->reterr, ORCH_ETOOBIG, 0, NULL,
					 "%s: more than %d refs, or nested too deep: run \"git "
					 "pack-refs --all\"",
					 copier->name, REFS_MAX);
		else if (has(source, item, S_IFDIR))
			code = copy_refs(copier, source, target, item, depth + 1);
		else if (has(source, item, S_IFREG))
			code = copy_file(copier, source, target, item, REF_MAX, 0644);
	}
	closedir(dir);
	return code;
}

int32_t git_copy_source(const struct git_source *source, int target_fd, orch_error **reterr)
{
	struct copier copier = {.name = source->name, .reterr = reterr, .refs_left = REFS_MAX};
	int32_t code = copy_file(&copier, source->fd, target_fd, "HEAD", REF_MAX, 0644);
	if (!code)
		code = copy_refs(&copier, source->common_fd, target_fd, "refs", 0);
	if (!code)
		code = copy_if_there(&copier, source->common_fd, target_fd, "packed-refs");
	if (!code)
		code = copy_if_there(&copier, source->common_fd, target_fd, "shallow");
	if (!code)
		code = copy_folder(&copier, source->common_fd, target_fd, "objects", NULL,
				   copy_object_folder);
	return code;
}

int32_t git_copy_result(int from_fd, const char *name, int target_fd, orch_error **reterr)
{
	struct copier copier = {.name = name, .reterr = reterr};
	int32_t code =
	    copy_folder(&copier, from_fd, target_fd, "objects", NULL, copy_object_folder);
	if (!code)
		code = copy_if_there(&copier, from_fd, target_fd, "index");
	if (!code)
		code = copy_if_there(&copier, from_fd, target_fd, "shallow");
	return code;
}

int32_t git_write(int dir_fd, const char *path, const char *text, orch_error **reterr)
{
	const char *name = NULL;
	_cleanup_close_ int place = tree_make_place(dir_fd, path, &name);
	_cleanup_close_ int fd =
	    place < 0 ? -1 : tree_open(place, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0 || fchmod(fd, 0644) < 0 || tree_write_all(fd, text, strlen(text)) < 0)
		return tree_fail_write(path, reterr);
	return 0;
}
