/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "tree-private.h"

#define CHUNK 65536

/* --- manifests ------------------------------------------------------------------------------- */

void manifest_free(struct manifest *manifest)
{
	for (size_t i = 0; i < manifest->count; i++)
		free(manifest->entries[i].path);
	free(manifest->entries);
	*manifest = (struct manifest){0};
}

bool manifest_add(struct manifest *manifest, const struct tree_entry *entry)
{
	if (manifest->count == manifest->capacity) {
		size_t capacity = manifest->capacity ? manifest->capacity * 2 : 64;
		struct tree_entry *grown = realloc(manifest->entries, capacity * sizeof(*grown));
		if (!grown)
			return false;
		manifest->entries = grown;
		manifest->capacity = capacity;
	}
	struct tree_entry *added = &manifest->entries[manifest->count];
	*added = *entry;
	added->path = strdup(entry->path);
	return added->path && ++manifest->count;
}

static int compare_entries(const void *one, const void *other)
{
	return strcmp(((const struct tree_entry *)one)->path,
		      ((const struct tree_entry *)other)->path);
}

void manifest_sort(struct manifest *manifest)
{
	if (manifest->count)
		qsort(manifest->entries, manifest->count, sizeof(*manifest->entries),
		      compare_entries);
}

const struct tree_entry *manifest_find(const struct manifest *manifest, const char *path)
{
	struct tree_entry wanted = {.path = (char *)path};
	return manifest->count ? bsearch(&wanted, manifest->entries, manifest->count,
					 sizeof(*manifest->entries), compare_entries)
			       : NULL;
}

const char *entry_mode(char type)
{
	return type == TREE_PROGRAM ? "100755" : type == TREE_LINK ? "120000" : "100644";
}

static void finish_hash(crypto_hash_sha256_state *state, char ret_hash[TREE_HASH_SIZE])
{
	unsigned char digest[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_final(state, digest);
	sodium_bin2hex(ret_hash, TREE_HASH_SIZE, digest, sizeof(digest));
}

void manifest_hash(const struct manifest *manifest, char ret_hash[TREE_HASH_SIZE])
{
	crypto_hash_sha256_state state;
	crypto_hash_sha256_init(&state);
	for (size_t i = 0; i < manifest->count; i++) {
		const struct tree_entry *entry = &manifest->entries[i];
		char head[80];
		int length =
		    snprintf(head, sizeof(head), "%s %s ", entry_mode(entry->type), entry->hash);
		crypto_hash_sha256_update(&state, (const unsigned char *)head, (size_t)length);
		/* No path has a newline. */
		crypto_hash_sha256_update(&state, (const unsigned char *)entry->path,
					  strlen(entry->path));
		crypto_hash_sha256_update(&state, (const unsigned char *)"\n", 1);
	}
	finish_hash(&state, ret_hash);
}

/* --- files ----------------------------------------------------------------------------------- */

int32_t tree_copy_file(int source_fd, int target_fd, const char *path, uint64_t limit,
		       uint64_t *ret_size, char ret_hash[TREE_HASH_SIZE], orch_error **reterr)
{
	_cleanup_free_ char *buffer = malloc(CHUNK);
	crypto_hash_sha256_state state;
	uint64_t size = 0;
	if (!buffer)
		return orch_fail_memory(reterr);
	crypto_hash_sha256_init(&state);
	for (;;) {
		ssize_t got = read(source_fd, buffer, CHUNK);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return orch_fail(reterr, ORCH_ESYS, errno, NULL, "%s can not be read",
					 path);
		if (!got)
			break;
		size += (uint64_t)got;
		if (size > limit)
			return orch_fail(
			    reterr, ORCH_ETOOBIG, 0, NULL,
			    "%s: with this file the tree has more bytes than the limit allows",
			    path);
		crypto_hash_sha256_update(&state, (const unsigned char *)buffer, (size_t)got);
		if (target_fd >= 0 && tree_write_all(target_fd, buffer, (size_t)got) < 0)
			return tree_fail_write(path, reterr);
	}
	finish_hash(&state, ret_hash);
	*ret_size = size;
	return 0;
}

/* --- walking --------------------------------------------------------------------------------- */

struct scan {
	struct manifest *manifest;
	const char *what;
	uint64_t bytes_left;
	uint32_t entries_left;
	struct tree_limits limits;
	char *path; /* limits.path_length + 1 */
	size_t path_length;
	orch_error **reterr;
};

struct level {
	struct level *parent;
	const char *name;
	int target_fd; /* -1: not made yet, or none wanted */
	bool wanted;
	unsigned depth;
};

static int32_t refuse(struct scan *scan, int32_t code, const char *reason)
{
	_cleanup_free_ char *shown = path_text(scan->path);
	return orch_fail(scan->reterr, code, 0, NULL, "%s: %s: %s", scan->what,
			 shown ? shown : "an entry", reason);
}

static int32_t fail_system(struct scan *scan, int number)
{
	_cleanup_free_ char *shown = path_text(scan->path);
	bool full = number == ENOSPC || number == EDQUOT;
	return orch_fail(scan->reterr, full ? ORCH_ENOSPC : ORCH_ESYS, number, NULL, "%s: %s%s",
			 scan->what, shown ? shown : "an entry",
			 number == EEXIST ? ": the folder was changed while it was read" : "");
}

/* A folder is made in the target when the first file comes: empty ones are no part of a tree, as in
 * git. */
static int target_of(struct level *level)
{
	if (!level->wanted || level->target_fd >= 0)
		return level->target_fd;
	int parent = target_of(level->parent);
	if (parent < 0 || mkdirat(parent, level->name, 0755) < 0)
		return -1;
	level->target_fd = tree_open(parent, level->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (level->target_fd >= 0 && fchmod(level->target_fd, 0755) < 0)
		orch_close_fd(&level->target_fd);
	return level->target_fd;
}

static int32_t record(struct scan *scan, struct tree_entry *entry)
{
	entry->path = scan->path;
	return manifest_add(scan->manifest, entry) ? 0 : orch_fail_memory(scan->reterr);
}

static int32_t scan_file(struct scan *scan, struct level *level, int look_fd,
			 const struct stat *status, const char *name)
{
	struct tree_entry entry = {.type = status->st_mode & S_IXUSR ? TREE_PROGRAM : TREE_FILE};
	_cleanup_close_ int source = -1, target = -1;
	if ((uint64_t)status->st_size > scan->bytes_left) {
		char reason[120];
		snprintf(reason, sizeof(reason), "with this file the tree has more than %llu bytes",
			 (unsigned long long)scan->limits.bytes);
		return refuse(scan, ORCH_ETOOBIG, reason);
	}
	source = tree_read_looked(look_fd, false);
	if (source < 0)
		return fail_system(scan, errno);
	if (level->wanted) {
		int folder = target_of(level);
		target = folder < 0 ? -1
				    : tree_open(folder, name,
						O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
		if (target < 0 || fchmod(target, entry.type == TREE_PROGRAM ? 0755 : 0644) < 0)
			return fail_system(scan, errno);
	}
	_cleanup_free_ char *shown = path_text(scan->path);
	int32_t code = tree_copy_file(source, target, shown ? shown : "a file", scan->bytes_left,
				      &entry.size, entry.hash, scan->reterr);
	if (code < 0)
		return code;
	scan->bytes_left -= entry.size;
	return record(scan, &entry);
}

static int32_t scan_link(struct scan *scan, struct level *level, int look_fd, const char *name)
{
	char target[PATH_MAX];
	struct tree_entry entry = {.type = TREE_LINK};
	ssize_t length = tree_read_link(look_fd, target, sizeof(target) - 1);
	if (length < 0)
		return fail_system(scan, errno);
	target[length] = '\0';
	const char *fault = link_fault(name, target, level->depth);
	if (fault)
		return refuse(scan, ORCH_EDENIED, fault);
	if ((size_t)length > scan->limits.path_length)
		return refuse(scan, ORCH_ETOOBIG, "the target of this link is too long");
	if (level->wanted) {
		int folder = target_of(level);
		if (folder < 0 || symlinkat(target, folder, name) < 0)
			return fail_system(scan, errno);
	}
	crypto_hash_sha256_state state;
	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, (const unsigned char *)target, (size_t)length);
	finish_hash(&state, entry.hash);
	entry.size = (uint64_t)length;
	return record(scan, &entry);
}

static int32_t scan_folder(struct scan *scan, struct level *level, int fd);

static int32_t scan_entry(struct scan *scan, struct level *level, int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	struct stat status;
	if (tree_look(dir_fd, name, &fd, &status) < 0)
		return errno == ENOENT ? 0 /* gone again */
		       : errno == EXDEV
			   ? refuse(scan, ORCH_EDENIED, "another file system is mounted there")
			   : fail_system(scan, errno);
	const char *fault = name_fault(name);
	if (fault)
		return refuse(scan, ORCH_EDENIED, fault);
	if (!scan->entries_left--) {
		char reason[80];
		snprintf(reason, sizeof(reason), "the tree has more than %u entries",
			 scan->limits.entries);
		return refuse(scan, ORCH_ETOOBIG, reason);
	}
	switch (status.st_mode & S_IFMT) {
	case S_IFREG:
		return scan_file(scan, level, fd, &status, name);
	case S_IFLNK:
		return scan_link(scan, level, fd, name);
	case S_IFDIR: {
		if (level->depth + 1 > TREE_DEPTH_MAX)
			return refuse(scan, ORCH_ETOOBIG,
				      "folders are nested deeper than 64 levels");
		_cleanup_close_ int folder = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (folder < 0)
			return fail_system(scan, errno);
		struct level inner = {.parent = level,
				      .name = name,
				      .target_fd = -1,
				      .wanted = level->wanted,
				      .depth = level->depth + 1};
		/* Two descriptors for each level stay open. */
		orch_close_fd(&fd);
		int32_t code = scan_folder(scan, &inner, orch_steal_fd(&folder));
		orch_close_fd(&inner.target_fd);
		return code;
	}
	case S_IFIFO:
		return refuse(scan, ORCH_EDENIED, "a named pipe can not be part of a tree");
	case S_IFSOCK:
		return refuse(scan, ORCH_EDENIED, "a socket can not be part of a tree");
	default:
		return refuse(scan, ORCH_EDENIED, "a device can not be part of a tree");
	}
}

/* Takes `fd`. */
static int32_t scan_folder(struct scan *scan, struct level *level, int fd)
{
	size_t base = scan->path_length;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int32_t code = 0;
	if (!dir) {
		code = fail_system(scan, errno);
		orch_close_fd(&fd);
		return code;
	}
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(dir);
		if (!entry) {
			code = errno ? fail_system(scan, errno) : 0;
			break;
		}
		const char *name = entry->d_name;
		size_t length = strlen(name), start = base + (base ? 1 : 0);
		if (!strcmp(name, ".") || !strcmp(name, "..") || name_is_git(name))
			continue;
		if (start + length > scan->limits.path_length) {
			char reason[100];
			snprintf(reason, sizeof(reason), "a path in it is longer than %u bytes",
				 scan->limits.path_length);
			code = refuse(scan, ORCH_ETOOBIG, reason);
			break;
		}
		if (base)
			scan->path[base] = '/';
		memcpy(scan->path + start, name, length + 1);
		scan->path_length = start + length;
		code = scan_entry(scan, level, dirfd(dir), name);
		scan->path_length = base;
		scan->path[base] = '\0';
		if (code < 0)
			break;
	}
	closedir(dir);
	return code;
}

int32_t tree_scan(int source_fd, const char *what, int target_fd, const struct tree_limits *limits,
		  struct manifest *manifest, orch_error **reterr)
{
	struct scan scan = {.manifest = manifest, .what = what, .reterr = reterr};
	if (limits)
		scan.limits = *limits;
	scan.limits.bytes = scan.limits.bytes ? scan.limits.bytes : 512ull << 20;
	scan.limits.entries = scan.limits.entries ? scan.limits.entries : 50000;
	scan.limits.path_length = scan.limits.path_length ? scan.limits.path_length : 1024;
	scan.bytes_left = scan.limits.bytes;
	scan.entries_left = scan.limits.entries;
	_cleanup_free_ char *path = calloc(1, (size_t)scan.limits.path_length + 1);
	if (!path)
		return orch_fail_memory(reterr);
	scan.path = path;

	struct level top = {.target_fd = target_fd, .wanted = target_fd >= 0};
	int32_t code = scan_folder(&scan, &top, fcntl(source_fd, F_DUPFD_CLOEXEC, 3));
	if (!code)
		manifest_sort(manifest);
	return code;
}
