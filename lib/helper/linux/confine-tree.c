/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host paths become detached mounts (open_tree) with their attributes set before anything inside
 * can see them. Each path is resolved once; from then on only file descriptors are used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../sandbox/preset.h"
#include "confine-private.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* For a test that leaves out the root: nothing but Landlock stands before these. */
static const char *const surplus[] = {"/var", "/run", "/sys", "/root", "/home"};

static void add_preset(struct confine *confine, const struct preset_path *preset, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct confine_tree *tree = &confine->trees[confine->tree_count];

		if (preset[i].flags & PRESET_MADE ||
		    (preset[i].flags & PRESET_TOOLS && confine->header->root != ORCH_ROOT_TOOLS))
			continue;
		*tree = (struct confine_tree){.host = preset[i].path,
					      .inner = preset[i].path,
					      .access = preset[i].access,
					      .kind = ORCH_SPEC_BIND,
					      .optional = preset[i].flags & PRESET_OPTIONAL,
					      .device = preset[i].flags & PRESET_DEVICE,
					      .fd = -1};
		confine->tree_count++;
	}
}

static void add_surplus(struct confine *confine)
{
	for (size_t i = 0; i < COUNT(surplus); i++)
		confine->trees[confine->tree_count++] =
			(struct confine_tree){.host = surplus[i],
					      .inner = surplus[i],
					      .access = ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC,
					      .kind = ORCH_SPEC_BIND,
					      .surplus = true,
					      .optional = true,
					      .fd = -1};
}

/* Each folder comes before what lies in it, so the tree before, or one around that, is the one around this. */
static void find_above(struct confine *confine)
{
	size_t first = confine->tree_count - confine->header->mounts_count;

	for (size_t i = first; i < confine->tree_count; i++) {
		struct confine_tree *tree = &confine->trees[i];
		size_t above = i > first ? i : 0;

		while (above && !confine_is_below(tree->inner, confine->trees[above - 1].inner))
			above = confine->trees[above - 1].above;
		tree->above = above;
		if (above && confine_tree_denies(&confine->trees[above - 1]))
			confine->trees[above - 1].passed = true;
	}
}

int confine_trees_list(struct confine *confine, struct setup_error *error)
{
	const struct orch_spec_header *header = confine->header;
	size_t count = 0;
	const struct preset_path *preset = orch_preset(&count);

	confine->trees = calloc(count + COUNT(surplus) + header->mounts_count, sizeof(*confine->trees));
	if (!confine->trees)
		return confine_fail(error, ORCH_ENOMEM, 0, "spec", "no memory for the mounts");
	add_preset(confine, preset, count);
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_ROOT))
		add_surplus(confine);
	for (uint32_t i = 0; i < header->mounts_count; i++) {
		struct confine_tree *tree = &confine->trees[confine->tree_count++];

		tree->host = confine->strings + confine->mounts[i].host;
		tree->inner = confine->strings + confine->mounts[i].inner;
		tree->access = confine->mounts[i].access;
		tree->kind = confine->mounts[i].kind;
		tree->fd = -1;
		if (tree->access & ORCH_PATH_OWN)
			tree->access |= ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC;
		tree->plain = confine_leaves_out(confine, ORCH_SPEC_WITHOUT_ATTRIBUTES);
	}
	find_above(confine);
	return 0;
}

static uint64_t attributes(const struct confine_tree *tree)
{
	uint64_t attr = MOUNT_ATTR_NOSUID;

	if (tree->plain)
		return 0;
	if (!tree->device)
		attr |= MOUNT_ATTR_NODEV;
	if (!(tree->access & ORCH_PATH_EXEC))
		attr |= MOUNT_ATTR_NOEXEC;
	if (!(tree->access & ORCH_PATH_WRITE) || tree->kind == ORCH_SPEC_OVERLAY)
		attr |= MOUNT_ATTR_RDONLY;
	return attr;
}

/*
 * The lower side of an overlay. Mounts below it stay outside: an overlay covers one file system.
 * The host gets the same mount, to compare with it.
 */
static int open_lower(struct confine *confine, struct confine_tree *tree, int path,
		      const struct stat *st, uid_t own_uid, struct setup_error *error)
{
	struct mount_attr attr = {.attr_set = attributes(tree), .propagation = MS_PRIVATE};

	if (!tree->folder)
		return confine_fail(error, ORCH_EINVAL, ENOTDIR, "overlay.lower",
				    "%s, which the overlay lies over, is no folder", tree->host);
	tree->fd = open_tree(path, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree->fd < 0 && errno == EINVAL)
		return confine_fail(error, ORCH_EUNENFORCEABLE, errno, "overlay.lower",
				    "%s has mounts below it, which an ordinary user's overlay can "
				    "not leave out: overlay a folder "
				    "without them, or run as root",
				    tree->host);
	if (tree->fd < 0 || mount_setattr(tree->fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "overlay.lower",
				    "%s can not be bound (open_tree)", tree->host);
	if (own_uid && (st->st_uid != own_uid || st->st_gid != own_uid) &&
	    confine_idmap(tree->fd, st, own_uid, tree->host, error) < 0)
		return -1;
	confine->lower_fd = fcntl(tree->fd, F_DUPFD_CLOEXEC, 3);
	return confine->lower_fd < 0 ? confine_fail(error, ORCH_ESYS, errno, "overlay.lower",
						    "no descriptor for %s", tree->host)
				     : 1;
}

#define CLONE_FLAGS (AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)

static int set_attributes(const struct confine_tree *tree, struct setup_error *error)
{
	struct mount_attr attr = {.attr_set = attributes(tree), .propagation = MS_PRIVATE};

	if (mount_setattr(tree->fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		return confine_fail(error, errno == ENOSYS ? ORCH_EUNENFORCEABLE : ORCH_ESYS, errno,
				    "mount.attributes",
				    "the attributes of %s can not be set (mount_setattr)", tree->host);
	return 1;
}

/* Makes the mount of what is open. */
static int clone_path(struct confine *confine, struct confine_tree *tree, int path, uid_t own_uid,
		      struct setup_error *error)
{
	struct stat st;

	if (fstat(path, &st) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "mount.host", "host path %s", tree->host);
	/* Of the preset: at the top level it is made again as a link. */
	if (S_ISLNK(st.st_mode))
		return 0;
	tree->folder = S_ISDIR(st.st_mode);
	if (tree->kind == ORCH_SPEC_OVERLAY)
		return open_lower(confine, tree, path, &st, own_uid, error);
	if (own_uid && tree->access & ORCH_PATH_OWN && confine_own(path, tree->host, own_uid, error) < 0)
		return -1;
	tree->fd = open_tree(path, "", AT_EMPTY_PATH | CLONE_FLAGS);
	if (tree->fd < 0)
		return confine_fail(error, errno == ENOSYS ? ORCH_EUNENFORCEABLE : ORCH_ESYS, errno,
				    "mount.clone", "host path %s can not be bound (open_tree)", tree->host);
	return set_attributes(tree, error);
}

/* 1: opened, 0: an optional one that is not there. */
static int open_tree_at(struct confine *confine, struct confine_tree *tree, uid_t own_uid,
			struct setup_error *error)
{
	bool top = tree->optional && !strchr(tree->host + 1, '/');
	struct stat st;

	/* In one walk, where nothing has to be known or changed before; why not is found out below. */
	if (!top && tree->kind != ORCH_SPEC_OVERLAY && !(tree->access & ORCH_PATH_OWN))
		tree->fd = open_tree(AT_FDCWD, tree->host, CLONE_FLAGS);
	if (tree->fd >= 0 && fstat(tree->fd, &st) == 0) {
		tree->folder = S_ISDIR(st.st_mode);
		return set_attributes(tree, error);
	}
	int path = open(tree->host, O_PATH | O_CLOEXEC | (top ? O_NOFOLLOW : 0));

	if (path < 0 && tree->optional)
		return 0;
	if (path < 0)
		return confine_fail(error, errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno,
				    "mount.host", "host path %s can not be opened", tree->host);
	int result = clone_path(confine, tree, path, own_uid, error);

	close(path);
	return result;
}

int confine_trees_open(struct confine *confine, uid_t own_uid, struct setup_error *error)
{
	for (size_t i = 0; i < confine->tree_count; i++)
		if (!confine_tree_denies(&confine->trees[i]) &&
		    open_tree_at(confine, &confine->trees[i], own_uid, error) < 0)
			return -1;
	return 0;
}

void confine_trees_close(struct confine *confine)
{
	for (size_t i = 0; i < confine->tree_count; i++) {
		if (confine->trees[i].fd >= 0)
			close(confine->trees[i].fd);
		confine->trees[i].fd = -1;
	}
}
