/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As root the lower side of an overlay belongs to somebody who is nobody inside, and could be
 * neither read beyond what everybody may nor written at all. An identity-mapped mount shows it as
 * the sandbox's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine-private.h"

static int write_map(pid_t pid, const char *name, unsigned int from, unsigned int to)
{
	char path[48], map[40];
	int fd, length = snprintf(map, sizeof(map), "%u %u 1\n", from, to);
	ssize_t n = -1;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = write(fd, map, (size_t)length);
	int err = errno;

	close(fd);
	errno = err;
	return n == length ? 0 : -1;
}

/* A mount takes its mapping from a user namespace, which needs a process for as long as it is made.
 */
static int mapping(const struct stat *st, uid_t uid)
{
	char path[48];
	int fd = -1;
	pid_t pid = clone_process(CLONE_NEWUSER, SIGCHLD, -1, NULL, NULL);

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (pid < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (write_map(pid, "uid_map", st->st_uid, uid) == 0 &&
	    write_map(pid, "gid_map", st->st_gid, uid) == 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = errno;

	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	errno = err;
	return fd;
}

int confine_idmap(int mount, const struct stat *st, uid_t uid, const char *path,
		  struct setup_error *error)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP};
	int fd = mapping(st, uid), result = 0;

	if (fd < 0)
		return confine_fail(error, ORCH_ESYS, errno, "overlay.idmap",
				    "no user namespace can be made for %s", path);
	attr.userns_fd = (uint64_t)fd;
	if (mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		result = confine_fail(error, ORCH_EUNENFORCEABLE, errno, "overlay.idmap",
				      "the files of %s can not be shown as the sandbox's own: its "
				      "file system has no "
				      "identity-mapped mounts. Use a folder on ext4, xfs, btrfs or "
				      "(from Linux 6.3) tmpfs, or a "
				      "copy as workspace",
				      path);
	close(fd);
	return result;
}
