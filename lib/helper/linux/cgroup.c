/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../reaper/linux/census.h"
#include "../../reaper/linux/cgroup-own.h"
#include "linux.h"

#define KEEPER_MS 10000

/*
 * Ends what helpers that are dead left below the base: the leaf's lock is free. Returns how many of
 * those leaves are still there.
 */
static unsigned sweep(int base_fd)
{
	int again = openat(base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = again >= 0 ? fdopendir(again) : NULL;
	unsigned left = 0;
	struct dirent *entry;
	if (!folder) {
		close_fd(&again);
		return 0;
	}
	while ((entry = readdir(folder))) {
		if (!cgroup_is_leaf_name(entry->d_name))
			continue;
		_cleanup_fd_ int leaf =
		    openat(base_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (leaf < 0 || flock(leaf, LOCK_EX | LOCK_NB) < 0)
			continue;
		leaf_kill(leaf);
		left += leaf_remove(base_fd, entry->d_name) < 0;
	}
	closedir(folder);
	return left;
}

/*
 * The keeper: a process that waits for the helper's end, whatever it is, and then sweeps. The PID
 * namespaces die without it; it is there so that no leaf stays behind when host and helper are
 * killed at once.
 */
static void keeper_start(struct cgroup_base *base)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	pid_t pid = clone_process(0, SIGCHLD, -1, &base->keeper_pidfd, NULL);
	if (pid != 0) {
		base->keeper_pid = pid;
		close(pair[1]);
		base->keeper_fd = pair[0];
		if (pid < 0)
			close_fd(&base->keeper_fd);
		return;
	}
	close_others(pair[1], base->fd);
	setsid();
	prctl(PR_SET_NAME, "orch-keeper");
	char byte;
	while (read(pair[1], &byte, 1) < 0 && errno == EINTR)
		;
	int64_t end = now_us() + KEEPER_MS * 1000;
	while (sweep(base->fd) && now_us() < end)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	_exit(0);
}

void cgroup_base_close(struct cgroup_base *base)
{
	struct pollfd keeper = {.fd = base->keeper_pidfd, .events = POLLIN};
	close_fd(&base->keeper_fd);
	if (base->keeper_pidfd >= 0 && poll(&keeper, 1, 1000) > 0)
		waitid(P_PIDFD, (id_t)base->keeper_pidfd, &(siginfo_t){0}, WEXITED | WNOHANG);
	close_fd(&base->keeper_pidfd);
	close_fd(&base->fd);
}

void cgroup_base_find(struct cgroup_base *base)
{
	if (base->looked)
		return;
	base->looked = true;
	if (!cgroup_own(base->path, sizeof(base->path), base->reason, sizeof(base->reason)))
		return;
	base->fd = open(base->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (base->fd >= 0 && faccessat(base->fd, ".", W_OK, AT_EACCESS) == 0) {
		sweep(base->fd);
		return;
	}
	snprintf(base->reason, sizeof(base->reason),
		 "%.120s is not writable (%s): start the host in a delegated cgroup "
		 "(systemd-run --user --scope -p Delegate=yes)",
		 base->path, strerrordesc_np(errno));
	close_fd(&base->fd);
}

/* The leaf may be swept away between mkdir and flock by another helper: then it is made again. */
static int leaf_try(struct cgroup_base *base, const char *name, int *ret_fd)
{
	struct stat locked, there;
	if (mkdirat(base->fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	_cleanup_fd_ int fd =
	    openat(base->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	if (fstat(fd, &locked) < 0 || fstatat(base->fd, name, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
	    locked.st_ino != there.st_ino)
		return -EAGAIN;
	int kill = openat(fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (kill < 0) {
		int error = errno;
		unlinkat(base->fd, name, AT_REMOVEDIR);
		return -error;
	}
	close(kill);
	*ret_fd = fd;
	fd = -1;
	return 0;
}

int cgroup_leaf_new(struct cgroup_base *base, const char *name, int *ret_fd)
{
	cgroup_base_find(base);
	if (base->fd < 0)
		return -ENOTSUP;
	/* First: a helper that is killed right after mkdir leaves nobody else to remove the leaf. */
	if (base->keeper_fd < 0)
		keeper_start(base);
	int error = -EAGAIN;
	for (int attempt = 0; attempt < 20 && error == -EAGAIN; attempt++) {
		error = leaf_try(base, name, ret_fd);
		if (error == -EAGAIN)
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
	if (error)
		snprintf(base->reason, sizeof(base->reason), "%s could not be made in %.100s: %s",
			 name, base->path, strerrordesc_np(-error));
	return error;
}

int cgroup_leaf_remove(const struct cgroup_base *base, const char *name)
{
	return leaf_remove(base->fd, name);
}
