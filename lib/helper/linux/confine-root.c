/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The new root: an empty tmpfs filled with what was allowed, entered by pivot_root, then made
 * read-only. Inner paths are resolved below the root's descriptor and never through a symbolic
 * link: a declared mount may lie inside a folder that an earlier load has filled.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine-private.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- small steps ---------------------------------------------------------------------------- */

int confine_open_inner(int root, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

static int make_name(int folder_fd, const char *name, bool folder)
{
	return folder ? mkdirat(folder_fd, name, 0755) : mknodat(folder_fd, name, S_IFREG | 0444, 0);
}

static int make_in(int folder_fd, const char *name, bool folder)
{
	return make_name(folder_fd, name, folder) < 0 ? -1 : confine_open_inner(folder_fd, name, O_PATH | O_NOFOLLOW);
}

/* The deepest folder on the way to `path` that is there, or what is at its end. */
static int open_existing(int root, const char *path, size_t *ret_length)
{
	char part[PATH_MAX];
	size_t length = strlen(path);
	int fd;

	memcpy(part, path, length + 1);
	while ((fd = confine_open_inner(root, part, O_PATH | O_NOFOLLOW)) < 0 && errno == ENOENT) {
		char *slash = strrchr(part, '/');

		length = slash ? (size_t)(slash - part) : 0;
		part[length] = '\0';
		if (!slash) {
			fd = fcntl(root, F_DUPFD_CLOEXEC, 3);
			break;
		}
	}
	*ret_length = length;
	return fd;
}

int confine_make_target(int root, const char *path, bool folder, struct setup_error *error)
{
	size_t length = strlen(path), there = 0;
	char name[NAME_MAX + 1];
	int fd = -1;

	errno = ENAMETOOLONG;
	if (length < PATH_MAX)
		fd = open_existing(root, path, &there);
	if (fd < 0)
		return confine_fail(error, ORCH_ESYS, errno, "mount.target",
				    "inner path /%.200s (no symbolic link is followed)", path);
	while (there < length) {
		const char *next = path + there + (there > 0);
		size_t size = strcspn(next, "/");
		int below = -1;

		there = (size_t)(next - path) + size;
		errno = ENAMETOOLONG;
		if (size < sizeof(name)) {
			memcpy(name, next, size);
			name[size] = '\0';
			below = make_in(fd, name, folder || there < length);
		}
		int err = errno;

		close(fd);
		errno = err;
		fd = below;
		if (fd < 0)
			return confine_fail(error, ORCH_ESYS, errno, "mount.target",
					    "inner path /%.*s can not be made", (int)there, path);
	}
	return fd;
}

static int set_option(int fs, const char *key, const char *value)
{
	if (!value)
		return fsconfig(fs, FSCONFIG_SET_FLAG, key, NULL, 0);
	return fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0);
}

int confine_new_fs(const char *type, const char *const *options, unsigned int attr,
		   struct setup_error *error)
{
	char step[48];
	int fs = fsopen(type, FSOPEN_CLOEXEC), mount = -1;

	snprintf(step, sizeof(step), "mount.%s", type);
	if (fs < 0)
		return confine_fail(error, errno == ENOSYS ? ORCH_EUNENFORCEABLE : ORCH_ESYS, errno,
				    step, "a new %s can not be made (fsopen)", type);
	for (size_t i = 0; options[i]; i += 2)
		if (set_option(fs, options[i], options[i + 1]) < 0) {
			setup_fail(error, ORCH_EUNENFORCEABLE, errno, step,
				   "%s refuses the option %s: use Linux 5.12 or newer", type,
				   options[i]);
			goto out;
		}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		mount = fsmount(fs, FSMOUNT_CLOEXEC, attr);
	if (mount < 0 && errno == EPERM)
		setup_fail(error, ORCH_EUNENFORCEABLE, errno, step,
			   "a new %s is forbidden in a user namespace (parts of /proc are masked, "
			   "as in a "
			   "container?): run the container with an unmasked /proc",
			   type);
	else if (mount < 0)
		setup_fail(error, ORCH_ESYS, errno, step, "a new %s can not be mounted", type);
out:
	close(fs);
	return mount;
}

int confine_attach(int mount, int target, const char *inner, struct setup_error *error)
{
	int result = 0;

	if (mount < 0 || target < 0)
		result = -1;
	else if (move_mount(mount, "", target, "",
			    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		result = confine_fail(error, ORCH_ESYS, errno, "mount.attach",
				      "%s can not be attached (move_mount)", inner);
	if (mount >= 0)
		close(mount);
	if (target >= 0)
		close(target);
	return result;
}

/* Over this folder of the old root, which a host with devices has. */
#define OUTSIDE "/dev"

int confine_attach_outside(int mount, const char *what, struct setup_error *error)
{
	if (move_mount(mount, "", AT_FDCWD, OUTSIDE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "mount.attach",
				    "%s can not be attached over the host's " OUTSIDE " (move_mount)", what);
	return 0;
}

/* Nothing is there yet. */
static int write_file(int root, const char *path, const char *text, struct setup_error *error)
{
	int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	size_t length = strlen(text);

	if (fd < 0 || write(fd, text, length) != (ssize_t)length) {
		setup_fail(error, ORCH_ESYS, errno, "root.etc", "/%s can not be written", path);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	close(fd);
	return 0;
}

/* --- parts ---------------------------------------------------------------------------------- */

static int make_etc(const struct confine *confine, struct setup_error *error)
{
	char hosts[160], hostname[80];
	const char *name = confine->strings + confine->header->hostname;

	snprintf(hosts, sizeof(hosts), "127.0.0.1\tlocalhost %.63s\n::1\tlocalhost\n", name);
	snprintf(hostname, sizeof(hostname), "%.63s\n", name);
	const struct {
		const char *path, *text;
	} files[] = {
		{"etc/passwd", "root:x:0:0:root:/nonexistent:/bin/false\n"
			       "agent:x:1000:1000:agent:/tmp/home:/bin/sh\n"
			       "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"},
		{"etc/group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"},
		{"etc/hosts", hosts},
		{"etc/hostname", hostname},
		{"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\n"
				      "protocols: files\n"},
	};

	if (mkdirat(confine->root_fd, "etc", 0755) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "root.etc", "/etc");
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (write_file(confine->root_fd, files[i].path, files[i].text, error) < 0)
			return -1;
	return 0;
}

/* /bin -> usr/bin and so on, as on the host (merged /usr). */
static int make_links(int root, struct setup_error *error)
{
	static const char *const names[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
	char target[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ssize_t n = readlink(names[i], target, sizeof(target) - 1);

		if (n <= 0)
			continue;
		target[n] = '\0';
		if (symlinkat(target, root, names[i] + 1) < 0)
			return confine_fail(error, ORCH_ESYS, errno, "root.links", "%s", names[i]);
	}
	return 0;
}

/* The namespace's POSIX message queues. A kernel may be built without them. */
static int make_queues(struct confine *confine, struct setup_error *error)
{
	static const char *const options[] = {NULL};

	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_IPCNS))
		return 0;
	int mount = confine_new_fs("mqueue", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, error);

	if (mount < 0)
		return error->os_errno == ENODEV ? 0 : -1;
	confine->queues = true;
	return confine_attach(mount, confine_make_target(confine->root_fd, "dev/mqueue", true, error), "/dev/mqueue", error);
}

static int make_dev(struct confine *confine, struct setup_error *error)
{
	static const char *const links[][2] = {
		{"/proc/self/fd", "dev/fd"},	   {"/proc/self/fd/0", "dev/stdin"},
		{"/proc/self/fd/1", "dev/stdout"}, {"/proc/self/fd/2", "dev/stderr"},
		{"pts/ptmx", "dev/ptmx"},
	};
	static const char *const pts_options[] = {"mode", "0620", "ptmxmode", "0666", NULL};
	int root = confine->root_fd, mount;

	if (mkdirat(root, "dev", 0755) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "root.dev", "/dev");
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlinkat(links[i][0], root, links[i][1]) < 0)
			return confine_fail(error, ORCH_ESYS, errno, "root.dev", "/%s",
					    links[i][1]);
	mount = confine_new_fs("devpts", pts_options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, error);
	if (mount < 0 || confine_attach(mount, confine_make_target(root, "dev/pts", true, error),
					"/dev/pts", error) < 0)
		return -1;
	if (make_queues(confine, error) < 0)
		return -1;
	return confine_private_bind(confine, "shm", "/dev/shm", MOUNT_ATTR_NOEXEC, error);
}

static int make_tmp(const struct confine *confine, struct setup_error *error)
{
	if (confine_private_bind(confine, "tmp", "/tmp", 0, error) < 0)
		return -1;
	if (mkdirat(confine->root_fd, "tmp/home", 0700) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "root.tmp", "/tmp/home");
	return 0;
}

/*
 * Only the load's own processes: no /proc/sys (core_pattern is writable by kuid 0 whatever its
 * capabilities), no /proc/kmsg, and with hidepid=ptraceable not even our init, which is not
 * dumpable.
 */
static int make_proc(const struct confine *confine, struct setup_error *error)
{
	static const char *const options[] = {"subset", "pid", "hidepid", "ptraceable", NULL};
	bool whole = confine_leaves_out(confine, ORCH_SPEC_WITHOUT_PROC);
	int mount;

	/* There can be no new one for a namespace that is the host's. */
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_PIDNS))
		mount = open_tree(AT_FDCWD, "/proc", AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	else
		mount = confine_new_fs("proc", whole ? options + COUNT(options) - 1 : options,
			       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, error);
	if (mount < 0)
		return -1;
	return confine_attach(mount, confine_make_target(confine->root_fd, "proc", true, error),
			      "/proc", error);
}

bool confine_is_below(const char *path, const char *folder)
{
	size_t length = strlen(folder);

	return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* The folder that `tree` lies in, if the load may write there; NULL: it may not. */
static const char *writable_parent(const struct confine *confine, const struct confine_tree *tree)
{
	const struct confine_tree *parent = tree->above ? &confine->trees[tree->above - 1] : NULL;

	if (!parent)
		return confine_is_below(tree->inner, "/tmp") ? "/tmp" : NULL;
	return parent->attached && parent->access & ORCH_PATH_WRITE ? parent->inner : NULL;
}

static int pin(int root, const char *path, struct setup_error *error)
{
	struct statx st;
	int fd = confine_make_target(root, path, true, error);

	if (fd < 0)
		return -1;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) == 0 &&
	    st.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
		close(fd);
		return 0;
	}
	int mount = open_tree(fd, "",
			      AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (mount < 0)
		setup_fail(error, ORCH_ESYS, errno, "mount.pin", "/%s can not be bound", path);
	return confine_attach(mount, fd, path, error);
}

/*
 * A mount point can not be renamed, but the folder around it can, and a new one be put in its
 * place: `mv .git x; mkdir -p .git/hooks`. So the folders between a writable mount and one below it
 * become mounts too.
 */
static int pin_parents(const struct confine *confine, const struct confine_tree *tree,
		       struct setup_error *error)
{
	const char *parent = writable_parent(confine, tree);
	char path[PATH_MAX];

	if (!parent)
		return 0;
	for (const char *end = tree->inner + strlen(parent) + 1; (end = strchr(end, '/'));
	     end++) {
		snprintf(path, sizeof(path), "%.*s", (int)(end - tree->inner - 1), tree->inner + 1);
		if (pin(confine->root_fd, path, error) < 0)
			return -1;
	}
	return 0;
}

/* Then what lies between them and the folder around is pinned already. */
static bool are_siblings(const char *one, const char *other)
{
	size_t length = (size_t)(strrchr(one, '/') - one);

	return strncmp(one, other, length + 1) == 0 && !strchr(other + length + 1, '/');
}

/* The folder that the last tree lies in, as its neighbours do. */
struct folder {
	int fd;
	const struct confine_tree *of;
};

static void leave_folder(struct folder *folder)
{
	if (folder->fd >= 0)
		close(folder->fd);
	folder->fd = -1;
}

/* Makes the name, which is not there, and attaches it. 0: it is there, or can not be made. */
static int attach_new(const struct confine *confine, const struct confine_tree *tree, struct folder *folder,
		      struct setup_error *error)
{
	const char *name = strrchr(tree->inner, '/') + 1;
	char path[PATH_MAX];

	if (folder->fd < 0) {
		struct setup_error ignored;

		snprintf(path, sizeof(path), "%.*s", (int)(name - tree->inner - 1), tree->inner);
		folder->fd = confine_make_target(confine->root_fd, path + (path[0] == '/'), true, &ignored);
	}
	if (folder->fd < 0 || make_name(folder->fd, name, tree->folder) < 0)
		return 0;
	/* It is one name and no symbolic link is followed. */
	if (move_mount(tree->fd, "", folder->fd, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "mount.attach", "%s can not be attached (move_mount)",
				    tree->inner);
	return 1;
}

static int attach_over(const struct confine *confine, const struct confine_tree *tree, struct setup_error *error)
{
	int target = confine_make_target(confine->root_fd, tree->inner + 1, tree->folder, error), result = 0;

	if (target < 0)
		return -1;
	if (move_mount(tree->fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		result = confine_fail(error, ORCH_ESYS, errno, "mount.attach", "%s can not be attached (move_mount)",
				      tree->inner);
	close(target);
	return result;
}

static int attach_tree(struct confine *confine, struct confine_tree *tree, struct folder *folder,
		       struct setup_error *error)
{
	bool in_mask = tree->above && confine_tree_denies(&confine->trees[tree->above - 1]);

	if (tree->kind == ORCH_SPEC_OVERLAY && (tree->fd = confine_private_overlay(confine, tree, error)) < 0)
		return -1;
	/* The way through a mask can be passed and not listed. */
	if (in_mask)
		umask(0644);
	int result = attach_new(confine, tree, folder, error);

	if (result == 0)
		result = attach_over(confine, tree, error);
	if (in_mask)
		umask(022);
	tree->attached = result >= 0;
	return result < 0 ? -1 : 0;
}

static int attach_trees(struct confine *confine, bool declared, struct setup_error *error)
{
	size_t first = confine->tree_count - confine->header->mounts_count;
	struct folder folder = {.fd = -1};
	int result = 0;

	for (size_t i = declared ? first : 0; result == 0 && i < (declared ? confine->tree_count : first); i++) {
		struct confine_tree *tree = &confine->trees[i];

		if (tree->fd < 0 && !confine_tree_denies(tree))
			continue;
		if (!folder.of || !are_siblings(folder.of->inner, tree->inner)) {
			leave_folder(&folder);
			if (declared)
				result = pin_parents(confine, tree, error);
		}
		folder.of = tree;
		if (result == 0)
			result = confine_tree_denies(tree) ? confine_mask(confine, tree, error)
							   : attach_tree(confine, tree, &folder, error);
	}
	leave_folder(&folder);
	return result;
}

static int read_only(const struct confine *confine, struct setup_error *error)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_ATTRIBUTES))
		return 0;
	if (mount_setattr(confine->root_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "root.readonly",
				    "the new root can not be made read-only");
	return 0;
}

static int build(struct confine *confine, struct setup_error *error)
{
	static const char *const options[] = {"size", "4m",   "nr_inodes", "4096",
					      "mode", "0755", NULL};

	confine->root_fd =
		confine_new_fs("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, error);
	if (confine->root_fd < 0)
		return -1;
	if (move_mount(confine->root_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "root.attach",
				    "the new root can not be attached");
	if (confine->header->root == ORCH_ROOT_TOOLS &&
	    (make_etc(confine, error) < 0 || make_links(confine->root_fd, error) < 0))
		return -1;
	if (confine_private_attach(confine, error) < 0 || make_dev(confine, error) < 0 ||
	    make_tmp(confine, error) < 0 || make_proc(confine, error) < 0 ||
	    attach_trees(confine, false, error) < 0)
		return -1;
	if (confine_masks_make(confine, error) < 0 || attach_trees(confine, true, error) < 0 ||
	    confine_masks_seal(confine, error) < 0)
		return -1;
	return read_only(confine, error);
}

static int enter(struct confine *confine, struct setup_error *error)
{
	if (fchdir(confine->root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return confine_fail(
			error, ORCH_ESYS, errno, "root.pivot",
			"the new root can not be entered (is the host's root an initramfs?)");
	close(confine->root_fd);
	confine->root_fd = -1;
	return 0;
}

/* And with it what was attached outside. Each umount2() waits until no processor looks at mounts any more, so there is one. */
static int detach_old(struct setup_error *error)
{
	if (umount2(".", MNT_DETACH) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "root.pivot",
				    "the old root can not be detached");
	if (chdir("/") < 0)
		return confine_fail(error, ORCH_ESYS, errno, "root.pivot", "the new root can not be entered");
	return 0;
}

int confine_root(struct confine *confine, struct setup_error *error)
{
	if (build(confine, error) < 0 || enter(confine, error) < 0 || detach_old(error) < 0)
		return -1;
	return confine_landlock(confine, error);
}
