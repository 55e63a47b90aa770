/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "../../core/core-private.h"
#include "../../core/os.h"
#include "../census.h"
#include "../identity.h"
#include "cgroup-own.h"
#include "descent.h"
#include "pidfd.h"

/* linux/magic.h of Linux 6.9. Before it all pidfds shared one inode of another file system. */
#define PIDFS_MAGIC 0x50494446

static int open_pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static uint64_t pidfs_inode(int pidfd)
{
	struct statfs system;
	struct stat status;
	if (pidfd < 0 || fstatfs(pidfd, &system) < 0 || system.f_type != PIDFS_MAGIC || fstat(pidfd, &status) < 0)
		return 0;
	return status.st_ino;
}

void identity_take(pid_t pid, int watch, struct identity *ret_identity)
{
	struct census_entry entry;
	*ret_identity = (struct identity){.pid = pid, .pidfs_inode = pidfs_inode(watch)};
	if (!census_describe(pid, &entry))
		return;
	/* Not reaped yet, so what was read is its own. */
	if (watch < 0 || pidfd_kill(watch, 0) || errno != ESRCH)
		ret_identity->start_time = entry.start_time;
}

bool identity_take_program(pid_t pid, pid_t supervisor, struct identity *ret_identity)
{
	struct descendant parent;
	_cleanup_close_ int pidfd = open_pidfd(pid);
	if (pidfd < 0)
		return false;
	/* Whoever is behind the pidfd: the supervisor's child is one of the scope, and no stranger. */
	bool is_child = descent_describe(pid, &parent) && parent.parent == supervisor;
	identity_take(pid, pidfd, ret_identity);
	return is_child && ret_identity->start_time;
}

void identity_own(struct identity *ret_identity)
{
	_cleanup_close_ int pidfd = open_pidfd(getpid());
	identity_take(getpid(), pidfd, ret_identity);
}

static uint64_t inode_of(const char *path)
{
	struct stat status;
	return stat(path, &status) == 0 ? status.st_ino : 0;
}

void place_own(struct place *ret_place)
{
	orch_boot_id(ret_place->boot_id, sizeof(ret_place->boot_id));
	ret_place->pidns = inode_of("/proc/self/ns/pid");
	/* Start times are counted from the boot of the reader's time namespace. */
	ret_place->timens = inode_of("/proc/self/ns/time");
}

bool place_is(const struct place *recorded, const struct place *here)
{
	return here->pidns && recorded->pidns == here->pidns && recorded->timens == here->timens;
}

void place_of_leaves(char *path, size_t size, uint64_t *ret_inode)
{
	char reason[256];
	*ret_inode = 0;
	*path = '\0';
	if (cgroup_base(NULL, path, size, reason, sizeof(reason)))
		*ret_inode = inode_of(path);
	if (!*ret_inode)
		*path = '\0';
}

enum identity_is identity_find(const struct identity *identity, int *ret_watch)
{
	struct census_entry entry;
	*ret_watch = -1;
	_cleanup_close_ int pidfd = open_pidfd(identity->pid);
	/* EINVAL, ENOENT: the number is that of a thread now, which init and helper never were. */
	if (pidfd < 0 && errno == ESRCH)
		return IDENTITY_GONE;
	if (pidfd < 0)
		return errno == EINVAL || errno == ENOENT ? IDENTITY_OTHER : IDENTITY_UNKNOWN;
	uint64_t inode = identity->pidfs_inode ? pidfs_inode(pidfd) : 0;
	if (!inode) {
		bool described = identity->start_time && census_describe(identity->pid, &entry);
		/*
		 * The process behind the pidfd still has the number (it is not reaped), so it had it when /proc was
		 * read, and what was read is its own.
		 */
		if (!pidfd_kill(pidfd, 0) && errno == ESRCH)
			return IDENTITY_GONE;
		if (!described)
			return IDENTITY_UNKNOWN;
	}
	if (inode ? inode != identity->pidfs_inode : entry.start_time != identity->start_time)
		return IDENTITY_OTHER;
	*ret_watch = orch_steal_fd(&pidfd);
	return IDENTITY_SAME;
}
