/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies over denied paths: an empty folder or file of mode 0 on a read-only mount, so that its owner, who is the load,
 * can not change that. Where something deeper is allowed, a folder that can be passed and not listed, with nothing in it
 * but the way there. A mount point can neither be renamed nor removed inside.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confine-private.h"

bool confine_tree_denies(const struct confine_tree *tree)
{
	return tree->kind == ORCH_SPEC_DENY || tree->kind == ORCH_SPEC_DENY_FOLDER;
}

static bool denies_any(const struct confine *confine)
{
	for (size_t i = 0; i < confine->tree_count; i++)
		if (confine_tree_denies(&confine->trees[i]))
			return true;
	return false;
}

int confine_masks_make(struct confine *confine, struct setup_error *error)
{
	static const char *const options[] = {"size", "4m", "nr_inodes", "65536", "mode", "0700", NULL};

	if (!denies_any(confine))
		return 0;
	int masks = confine_new_fs("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, error);

	if (masks < 0)
		return -1;
	confine->masks_fd = masks;
	if (confine_attach_outside(masks, "the masks", error) < 0)
		return -1;
	if (mkdirat(masks, "folder", 0) < 0 || mknodat(masks, "file", S_IFREG, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "deny", "the masks can not be made");
	return 0;
}

/* Nothing can be made there inside. What could be made outside has a placeholder, or can not be told. */
static bool may_stay_missing(const struct confine *confine, const struct confine_tree *tree)
{
	return tree->above ? !(confine->trees[tree->above - 1].access & ORCH_PATH_WRITE)
			   : !tree->passed && !confine_is_below(tree->inner, "/tmp");
}

/*
 * The load has the same uid and can not look into the folder around it either: that folder is covered, so that it stays so
 * if its mode changes.
 */
static int open_unreadable(int root, const char *path)
{
	char part[PATH_MAX];
	int fd = -1;

	snprintf(part, sizeof(part), "%s", path);
	for (char *slash; fd < 0 && (slash = strrchr(part, '/'));) {
		*slash = '\0';
		fd = confine_open_inner(root, part, O_PATH | O_NOFOLLOW);
	}
	return fd;
}

/* What is to be covered; *ret_missing: nothing needs to be. */
static int open_denied(const struct confine *confine, const struct confine_tree *tree, bool *ret_missing,
		       struct setup_error *error)
{
	int root = confine->root_fd, fd = confine_open_inner(root, tree->inner + 1, O_PATH | O_NOFOLLOW);

	*ret_missing = false;
	if (fd < 0 && errno == EACCES && !tree->passed)
		fd = open_unreadable(root, tree->inner + 1);
	if (fd >= 0)
		return fd;
	if (errno == ELOOP)
		return confine_fail(error, ORCH_EUNENFORCEABLE, 0, "deny",
				    "%s can not be denied, because a folder on the way is a symbolic link: deny where it leads",
				    tree->inner);
	if ((errno == ENOENT || errno == ENOTDIR) && may_stay_missing(confine, tree)) {
		*ret_missing = true;
		return -1;
	}
	if (errno != ENOENT)
		return confine_fail(error, ORCH_ESYS, errno, "deny", "%s, which is denied, can not be opened", tree->inner);
	fd = confine_make_target(root, tree->inner + 1, tree->passed || tree->kind == ORCH_SPEC_DENY_FOLDER, error);
	/* It lies in what is covered already, or on a file system that nobody writes to. */
	*ret_missing = fd < 0 && error->os_errno == EROFS && !tree->passed;
	return fd;
}

/* A detached, read-only clone of the shared mask of that kind; one of its own, still writable, for a folder that is passed. */
static int clone_mask(const struct confine *confine, const struct confine_tree *tree, bool folder)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
	char name[32];

	snprintf(name, sizeof(name), "%zu", (size_t)(tree - confine->trees));
	if (tree->passed && mkdirat(confine->masks_fd, name, 0111) < 0)
		return -1;
	int mount = open_tree(confine->masks_fd, tree->passed ? name : folder ? "folder" : "file",
			      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (mount >= 0 && !tree->passed && mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0) {
		int err = errno;

		close(mount);
		errno = err;
		mount = -1;
	}
	return mount;
}

int confine_mask(struct confine *confine, struct confine_tree *tree, struct setup_error *error)
{
	struct stat st;
	bool missing = false;
	int result = -1, mount = -1, target = open_denied(confine, tree, &missing, error);

	if (target < 0)
		return missing ? 0 : -1;
	if (fstat(target, &st) < 0) {
		setup_fail(error, ORCH_ESYS, errno, "deny", "%s, which is denied", tree->inner);
		goto out;
	}
	if (tree->passed && !S_ISDIR(st.st_mode)) {
		setup_fail(error, ORCH_EUNENFORCEABLE, 0, "deny",
			   "%s is denied and something below it is allowed, but it is no folder", tree->inner);
		goto out;
	}
	mount = clone_mask(confine, tree, S_ISDIR(st.st_mode));
	if (mount < 0) {
		setup_fail(error, ORCH_ESYS, errno, "deny", "no mask can be made for %s", tree->inner);
		goto out;
	}
	/* A symbolic link is covered itself: where it leads has its own rule, or none. */
	if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0) {
		setup_fail(error, S_ISLNK(st.st_mode) ? ORCH_EUNENFORCEABLE : ORCH_ESYS, errno, "deny",
			   "%s can not be denied%s", tree->inner,
			   S_ISLNK(st.st_mode) ? ": it is a symbolic link, deny where it leads" : "");
		goto out;
	}
	if (tree->passed) {
		tree->fd = mount; /* to be sealed */
		mount = -1;
	}
	result = 0;
out:
	if (mount >= 0)
		close(mount);
	close(target);
	return result;
}

int confine_masks_seal(struct confine *confine, struct setup_error *error)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

	if (confine->masks_fd < 0)
		return 0;
	for (size_t i = 0; i < confine->tree_count; i++) {
		struct confine_tree *tree = &confine->trees[i];

		if (!confine_tree_denies(tree) || tree->fd < 0)
			continue;
		if (mount_setattr(tree->fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
			return confine_fail(error, ORCH_ESYS, errno, "deny", "%s can not be made read-only", tree->inner);
		close(tree->fd);
		tree->fd = -1;
	}
	close(confine->masks_fd);
	confine->masks_fd = -1;
	return 0;
}
