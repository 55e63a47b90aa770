/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "tree-private.h"

/* Conflicts named in one message. */
#define CONFLICTS_MAX 20

static bool same(const struct tree_entry *one, const struct tree_entry *other)
{
	if (!one || !other)
		return one == other;
	return one->type == other->type && !strcmp(one->hash, other->hash);
}

/* --- changes --------------------------------------------------------------------------------- */

int32_t tree_changes(const char *trees_dir, const char *from_hash, const char *to_hash,
		     tree_change_fn fn, void *userdata, orch_error **reterr)
{
	_cleanup_manifest_ struct manifest from = {0}, to = {0};
	int32_t code = tree_load(trees_dir, from_hash, &from, reterr);
	if (!code)
		code = tree_load(trees_dir, to_hash, &to, reterr);
	size_t i = 0, j = 0;
	while (!code && (i < from.count || j < to.count)) {
		int order = i == from.count ? 1
			    : j == to.count ? -1
					    : strcmp(from.entries[i].path, to.entries[j].path);
		if (order < 0)
			code = fn(userdata, TREE_DELETED, from.entries[i++].path);
		else if (order > 0)
			code = fn(userdata, TREE_ADDED, to.entries[j++].path);
		else if (same(&from.entries[i++], &to.entries[j++]))
			continue;
		else
			code = fn(userdata, TREE_MODIFIED, to.entries[j - 1].path);
	}
	return code;
}

/* --- merging --------------------------------------------------------------------------------- */

struct merge {
	struct manifest base, ours, theirs, result;
	struct orch_buf conflicts;
	size_t conflict_count;
};

static void merge_free(struct merge *merge)
{
	manifest_free(&merge->base);
	manifest_free(&merge->ours);
	manifest_free(&merge->theirs);
	manifest_free(&merge->result);
	orch_buf_free(&merge->conflicts);
}
#define _cleanup_merge_ __attribute__((cleanup(merge_free)))

static void conflict(struct merge *merge, const char *path, const char *what)
{
	if (++merge->conflict_count <= CONFLICTS_MAX)
		orch_buf_printf(&merge->conflicts, "%s%s (%s)", merge->conflicts.length ? ", " : "",
				path, what);
}

static bool merge_path(struct merge *merge, const char *path)
{
	const struct tree_entry *base = manifest_find(&merge->base, path);
	const struct tree_entry *ours = manifest_find(&merge->ours, path);
	const struct tree_entry *theirs = manifest_find(&merge->theirs, path);
	const struct tree_entry *taken = same(base, ours) ? theirs : ours;
	if (!same(base, ours) && !same(base, theirs) && !same(ours, theirs))
		conflict(merge, path,
			 !ours	   ? "deleted on one side, changed on the other"
			 : !theirs ? "changed on one side, deleted on the other"
			 : !base   ? "added on both sides"
				   : "changed on both sides");
	return !taken || manifest_add(&merge->result, taken);
}

/* All paths of ours, then those that only theirs has. */
static bool merge_all(struct merge *merge)
{
	for (size_t i = 0; i < merge->ours.count; i++)
		if (!merge_path(merge, merge->ours.entries[i].path))
			return false;
	for (size_t i = 0; i < merge->theirs.count; i++)
		if (!manifest_find(&merge->ours, merge->theirs.entries[i].path) &&
		    !merge_path(merge, merge->theirs.entries[i].path))
			return false;
	manifest_sort(&merge->result);
	return true;
}

/* A file on one side where the other has a folder. */
static bool find_file_folder_conflicts(struct merge *merge)
{
	for (size_t i = 0; i < merge->result.count; i++) {
		_cleanup_free_ char *path = strdup(merge->result.entries[i].path);
		if (!path)
			return false;
		for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
			*slash = '\0';
			if (manifest_find(&merge->result, path))
				conflict(merge, path, "a file on one side, a folder on the other");
			*slash = '/';
		}
	}
	return true;
}

int tree_make_place(int root_fd, const char *path, const char **ret_name)
{
	_cleanup_close_ int fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 3);
	for (const char *slash; fd >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
		_cleanup_free_ char *name = strndup(path, (size_t)(slash - path));
		if (!name || (mkdirat(fd, name, 0755) < 0 && errno != EEXIST))
			return -1;
		int inner = tree_open(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
		if (inner < 0 || fchmod(inner, 0755) < 0) {
			orch_close_fd(&inner);
			return -1;
		}
		close(fd);
		fd = inner;
	}
	*ret_name = path;
	return orch_steal_fd(&fd);
}

static int32_t copy_link(int from_fd, const struct tree_entry *entry, int place, const char *name,
			 orch_error **reterr)
{
	char target[PATH_MAX];
	struct stat status;
	_cleanup_close_ int fd = -1;
	ssize_t length = -1;
	if (tree_look(from_fd, entry->path, &fd, &status) == 0)
		length = tree_read_link(fd, target, sizeof(target) - 1);
	if (length < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, NULL, "the link %s can not be read",
				 entry->path);
	target[length] = '\0';
	return symlinkat(target, place, name) < 0 ? tree_fail_write(entry->path, reterr) : 0;
}

static int32_t copy_entry(int from_fd, const char *from, const struct tree_entry *entry,
			  int target_fd, orch_error **reterr)
{
	const char *name = NULL;
	char hash[TREE_HASH_SIZE];
	uint64_t size;
	_cleanup_close_ int source = -1, target = -1;
	_cleanup_close_ int place = tree_make_place(target_fd, entry->path, &name);
	if (place < 0)
		return tree_fail_write(entry->path, reterr);
	if (entry->type == TREE_LINK)
		return copy_link(from_fd, entry, place, name, reterr);

	int32_t code = tree_open_file(from_fd, from, entry->path, &source, reterr);
	if (code < 0)
		return code;
	target = tree_open(place, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (target < 0 || fchmod(target, entry->type == TREE_PROGRAM ? 0755 : 0644) < 0)
		return tree_fail_write(entry->path, reterr);
	code = tree_copy_file(source, target, entry->path, entry->size, &size, hash, reterr);
	if (!code && strcmp(hash, entry->hash))
		code = orch_fail(reterr, ORCH_ECORRUPT, 0, NULL,
				 "%s/%s was changed while it was read", from, entry->path);
	return code;
}

static int32_t write_result(const struct merge *merge, const char *trees_dir, const char *ours,
			    const char *theirs, int target_fd, orch_error **reterr)
{
	_cleanup_close_ int ours_fd = -1, theirs_fd = -1;
	int32_t code = 0;
	if (merge->ours.count)
		code = tree_open_stored(trees_dir, ours, &ours_fd, reterr);
	if (!code && merge->theirs.count)
		code = tree_open_stored(trees_dir, theirs, &theirs_fd, reterr);
	for (size_t i = 0; !code && i < merge->result.count; i++) {
		const struct tree_entry *entry = &merge->result.entries[i];
		bool from_ours = same(manifest_find(&merge->ours, entry->path), entry);
		code = copy_entry(from_ours ? ours_fd : theirs_fd, from_ours ? ours : theirs, entry,
				  target_fd, reterr);
	}
	return code;
}

int32_t tree_merge(const char *trees_dir, const char *base, const char *ours, const char *theirs,
		   char ret_hash[TREE_HASH_SIZE], orch_error **reterr)
{
	_cleanup_merge_ struct merge merge = {0};
	_cleanup_draft_ struct tree_draft draft = {.store_fd = -1, .fd = -1};
	char hash[TREE_HASH_SIZE];

	int32_t code = tree_load(trees_dir, base, &merge.base, reterr);
	if (!code)
		code = tree_load(trees_dir, ours, &merge.ours, reterr);
	if (!code)
		code = tree_load(trees_dir, theirs, &merge.theirs, reterr);
	if (code < 0)
		return code;
	if (!merge_all(&merge) || !find_file_folder_conflicts(&merge) || merge.conflicts.failed)
		return orch_fail_memory(reterr);
	if (merge.conflict_count > CONFLICTS_MAX)
		orch_buf_printf(&merge.conflicts, " and %zu more",
				merge.conflict_count - CONFLICTS_MAX);
	if (merge.conflict_count)
		return orch_fail(reterr, ORCH_ECONFLICT, 0, NULL, "changed on both sides: %s",
				 merge.conflicts.data);

	manifest_hash(&merge.result, hash);
	code = draft_begin(trees_dir, &draft, reterr);
	if (!code)
		code = write_result(&merge, trees_dir, ours, theirs, draft.fd, reterr);
	if (!code)
		code = draft_commit(&draft, hash, reterr);
	if (!code)
		memcpy(ret_hash, hash, sizeof(hash));
	return code;
}
