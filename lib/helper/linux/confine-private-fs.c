/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private file system: one tmpfs, so that /tmp, /dev/shm and what overlays hold share one size.
 * Programs see folders of it, never its root. The host has a descriptor of the root: by it changes
 * are read, also after the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "confine-private.h"

#define UNLIMITED (UINT64_C(4) << 30) /* what a test takes for it */

int confine_private_make(struct confine *confine, uid_t uid, struct setup_error *error)
{
	uint64_t bytes = confine_leaves_out(confine, ORCH_SPEC_WITHOUT_TMP_SIZE)
				 ? UNLIMITED
				 : confine->header->tmp_bytes;
	char size[24], inodes[24], owner[16];

	snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
	/* An inode costs about 1 KiB of kernel memory that the size does not count. */
	snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)bytes / 4096 + 1024);
	snprintf(owner, sizeof(owner), "%u", uid);
	const char *const options[] = {
		"size", size,  "nr_inodes", inodes, "mode", "0700", uid ? "uid" : NULL,
		owner,	"gid", owner,	    NULL};

	confine->private_fd =
		confine_new_fs("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, error);
	return confine->private_fd < 0 ? -1 : 0;
}

int confine_private_attach(const struct confine *confine, struct setup_error *error)
{
	return confine_attach_outside(confine->private_fd, "the private file system", error);
}

int confine_private_bind(const struct confine *confine, const char *name, const char *inner,
			 uint64_t attr, struct setup_error *error)
{
	struct mount_attr change = {.attr_set = attr};
	int mount;

	if (mkdirat(confine->private_fd, name, 0700) < 0 ||
	    fchmodat(confine->private_fd, name, 01777, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "private",
				    "%s can not be made in the private file system", inner);
	mount = open_tree(confine->private_fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (mount < 0 ||
	    (attr && mount_setattr(mount, "", AT_EMPTY_PATH, &change, sizeof(change)) < 0)) {
		setup_fail(error, ORCH_ESYS, errno, "private", "%s can not be bound (open_tree)",
			   inner);
		if (mount >= 0)
			close(mount);
		return -1;
	}
	return confine_attach(mount, confine_make_target(confine->root_fd, inner + 1, true, error),
			      inner, error);
}

/* --- overlays -------------------------------------------------------------------------------- */

/* What the load sees of the workspace itself is the upper folder's: mode and times as below. */
static int make_sides(const struct confine *confine, struct setup_error *error)
{
	struct stat lower;

	if (fstat(confine->lower_fd, &lower) < 0 ||
	    mkdirat(confine->private_fd, "lower", 0700) < 0 ||
	    mkdirat(confine->private_fd, "work", 0700) < 0 ||
	    mkdirat(confine->private_fd, "upper", 0700) < 0 ||
	    fchmodat(confine->private_fd, "upper", lower.st_mode & 07777, 0) < 0 ||
	    utimensat(confine->private_fd, "upper",
		      (struct timespec[]){lower.st_atim, lower.st_mtim}, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "overlay",
				    "the overlay's folders can not be made");
	return 0;
}

/* Without them a folder that was deleted could not be made again. */
static int check_attributes(const struct confine *confine, struct setup_error *error)
{
	int folder = confine_open_inner(confine->private_fd, "work", O_RDONLY | O_DIRECTORY),
	    result = 0;

	if (folder < 0 || fsetxattr(folder, "user.overlay.opaque", "y", 1, 0) < 0 ||
	    fremovexattr(folder, "user.overlay.opaque") < 0)
		result = confine_fail(
			error, ORCH_EUNENFORCEABLE, errno, "overlay",
			"no overlay can be made: the kernel's tmpfs takes no attributes of users: "
			"use Linux 6.6 "
			"or newer (CONFIG_TMPFS_XATTR), or a copy of the folder as workspace");
	if (folder >= 0)
		close(folder);
	return result;
}

static int overlay_failure(const struct confine_tree *tree, const struct setup_error *cause,
			   struct setup_error *error)
{
	const char *remedy = "see the kernel's log";

	if (cause->os_errno == ENODEV)
		remedy = "load the kernel's module overlay";
	else if (cause->os_errno == EPERM)
		remedy = "use Linux 5.11 or newer, which has overlays in user namespaces";
	else if (cause->os_errno == EINVAL)
		remedy = "its file system can not be below an overlay: use a folder on another "
			 "one, or a copy as workspace";
	return confine_fail(error, ORCH_EUNENFORCEABLE, cause->os_errno, "overlay",
			    "no overlay over %s can be made: %s", tree->host, remedy);
}

/*
 * The sides are given by names in the working directory: no path of the host is looked up again,
 * and none is in the load's /proc/self/mountinfo.
 */
int confine_private_overlay(struct confine *confine, struct confine_tree *tree,
			    struct setup_error *error)
{
	static const char *const options[] = {
		"lowerdir", "lower", "upperdir", "upper", "workdir", "work", "userxattr", NULL,
		"index",    "off",   "metacopy", "off",	  "xino",    "off",  NULL};
	struct setup_error cause = {0};
	struct statvfs lower;
	unsigned int attr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	int mount;

	if (make_sides(confine, error) < 0 || check_attributes(confine, error) < 0)
		return -1;
	/* Where the host lets nothing of a folder be run, an overlay is no way around that. */
	if (fstatvfs(tree->fd, &lower) == 0 && lower.f_flag & ST_NOEXEC)
		attr |= MOUNT_ATTR_NOEXEC;
	if (confine_attach(tree->fd, confine_open_inner(confine->private_fd, "lower", O_PATH),
			   tree->host, error) < 0)
		return -1;
	if (fchdir(confine->private_fd) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "overlay",
				    "the private file system can not be entered");
	mount = confine_new_fs("overlay", options, attr, &cause);
	if (mount < 0)
		return overlay_failure(tree, &cause, error);
	return mount;
}
