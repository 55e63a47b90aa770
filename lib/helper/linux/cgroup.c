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
static unsigned sweep_all(const struct cgroup_base *base)
{
	unsigned left = base->fd >= 0 ? sweep(base->fd) : 0;
	for (size_t i = 0; i < CGROUP_V1; i++)
		if (base->v1[i].fd >= 0)
			left += sweep(base->v1[i].fd);
	return left;
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* What the keeper needs, and nothing else: a copy of a socket would hide the helper's end. */
static void keep_open(const struct cgroup_base *base, int socket)
{
	int keep[2 + CGROUP_V1] = {socket, base->fd}, next = 3;
	for (size_t i = 0; i < CGROUP_V1; i++)
		keep[2 + i] = base->v1[i].fd;
	qsort(keep, 2 + CGROUP_V1, sizeof(*keep), by_number);
	for (size_t i = 0; i < 2 + CGROUP_V1; i++) {
		if (keep[i] < next)
			continue;
		if (keep[i] > next)
			close_range((unsigned)next, (unsigned)keep[i] - 1, 0);
		next = keep[i] + 1;
	}
	close_range((unsigned)next, ~0u, 0);
}

static void keeper_start(struct cgroup_base *base)
{
	int pair[2];
	if (base->keeper_fd >= 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
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
	keep_open(base, pair[1]);
	setsid();
	prctl(PR_SET_NAME, "orch-keeper");
	char byte;
	while (read(pair[1], &byte, 1) < 0 && errno == EINTR)
		;
	int64_t end = now_us() + KEEPER_MS * 1000;
	while (sweep_all(base) && now_us() < end)
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
	for (size_t i = 0; i < CGROUP_V1; i++)
		close_fd(&base->v1[i].fd);
}

static int open_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && faccessat(fd, ".", W_OK, AT_EACCESS) == 0)
		return fd;
	int error = errno;
	close_fd(&fd);
	errno = error;
	return -1;
}

static void find_v2(struct cgroup_base *base)
{
	if (!cgroup_base(NULL, base->path, sizeof(base->path), base->reason, sizeof(base->reason)))
		return;
	base->fd = open_folder(base->path);
	if (base->fd >= 0)
		return;
	snprintf(base->reason, sizeof(base->reason),
		 "%.120s is not writable (%s): start the host in a delegated cgroup "
		 "(systemd-run --user --scope -p Delegate=yes)",
		 base->path, strerrordesc_np(errno));
}

static void find_v1(struct cgroup_v1 *v1, const char *controller)
{
	if (!cgroup_base(controller, v1->path, sizeof(v1->path), v1->reason, sizeof(v1->reason)))
		return;
	v1->fd = open_folder(v1->path);
	if (v1->fd < 0)
		snprintf(v1->reason, sizeof(v1->reason), "cgroup v1 %.120s is not writable (%s)", v1->path,
			 strerrordesc_np(errno));
}

const char *const cgroup_controllers[CGROUP_V1] = {"memory", "pids", "cpu"};

void cgroup_base_find(struct cgroup_base *base)
{
	if (base->looked)
		return;
	base->looked = true;
	find_v2(base);
	for (size_t i = 0; i < CGROUP_V1; i++)
		find_v1(&base->v1[i], cgroup_controllers[i]);
	sweep_all(base);
}

/* The leaf may be swept away between mkdir and flock by another helper: then it is made again. */
static int leaf_try(int base_fd, const char *name, bool v2, int *ret_fd)
{
	struct stat locked, there;
	if (mkdirat(base_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	_cleanup_fd_ int fd =
	    openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	if (fstat(fd, &locked) < 0 || fstatat(base_fd, name, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
	    locked.st_ino != there.st_ino)
		return -EAGAIN;
	int kill = v2 ? openat(fd, "cgroup.kill", O_WRONLY | O_CLOEXEC) : -1;
	if (v2 && kill < 0) {
		int error = errno;
		unlinkat(base_fd, name, AT_REMOVEDIR);
		return -error;
	}
	close_fd(&kill);
	*ret_fd = fd;
	fd = -1;
	return 0;
}

static int leaf_make(struct cgroup_base *base, int base_fd, const char *name, bool v2, int *ret_fd)
{
	/* First: a helper that is killed right after mkdir leaves nobody else to remove the leaf. */
	keeper_start(base);
	int error = -EAGAIN;
	for (int attempt = 0; attempt < 20 && error == -EAGAIN; attempt++) {
		error = leaf_try(base_fd, name, v2, ret_fd);
		if (error == -EAGAIN)
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
	return error;
}

int cgroup_leaf_new(struct cgroup_base *base, const char *name, int *ret_fd)
{
	cgroup_base_find(base);
	if (base->fd < 0)
		return -ENOTSUP;
	int error = leaf_make(base, base->fd, name, true, ret_fd);
	if (error)
		snprintf(base->reason, sizeof(base->reason), "%s could not be made in %.100s: %s",
			 name, base->path, strerrordesc_np(-error));
	return error;
}

int cgroup_v1_leaf_new(struct cgroup_base *base, size_t index, const char *name, int *ret_fd)
{
	cgroup_base_find(base);
	struct cgroup_v1 *v1 = &base->v1[index];
	return v1->fd < 0 ? -ENOTSUP : leaf_make(base, v1->fd, name, false, ret_fd);
}

int cgroup_v1_leaf_remove(const struct cgroup_base *base, size_t index, const char *name)
{
	return leaf_remove(base->v1[index].fd, name);
}

/* Of a file that the kernel makes: it has this size at most. */
static bool read_words(int folder_fd, const char *name, char *text, size_t size)
{
	_cleanup_fd_ int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
	text[length < 0 ? 0 : length] = '\0';
	return length >= 0;
}

/*
 * The kernel refuses some controllers then, but not the threaded ones, cpu and pids: with those the cgroup becomes a
 * threaded domain, and no process can be started in any child of it any more (cgroup-v2.rst, Threads). The root of the
 * hierarchy, which has no cgroup.type, may have both.
 */
static bool has_own_processes(int fd)
{
	char text[256];
	return faccessat(fd, "cgroup.type", F_OK, 0) == 0 && read_words(fd, "cgroup.procs", text, sizeof(text)) && text[0];
}

int cgroup_enable(const struct cgroup_base *base, const char *controller, char *reason, size_t size)
{
	char text[256], enable[32];
	if (base->fd < 0) {
		snprintf(reason, size, "%s", base->reason);
		return -ENOTSUP;
	}
	if (!read_words(base->fd, "cgroup.controllers", text, sizeof(text)) || !cgroup_has_word(text, controller)) {
		snprintf(reason, size, "the cgroup v2 %.120s has no %s controller", base->path, controller);
		return -ENOTSUP;
	}
	if (read_words(base->fd, "cgroup.subtree_control", text, sizeof(text)) && cgroup_has_word(text, controller))
		return 0;
	int error = has_own_processes(base->fd) ? EBUSY : 0;
	if (!error) {
		_cleanup_fd_ int fd = openat(base->fd, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
		int length = snprintf(enable, sizeof(enable), "+%s", controller);
		if (fd >= 0 && write(fd, enable, (size_t)length) == length)
			return 0;
		error = errno;
	}
	if (error == EBUSY)
		snprintf(reason, size,
			 "%.120s has processes of its own, so its children can have no controllers: start the host in "
			 "a cgroup below a delegated one (systemd: Delegate=yes, and from version 254 on "
			 "DelegateSubgroup=host)",
			 base->path);
	else
		snprintf(reason, size, "the %s controller of %.120s could not be enabled for its children: %s",
			 controller, base->path, strerrordesc_np(error));
	return -error;
}

int cgroup_leaf_remove(const struct cgroup_base *base, const char *name)
{
	return leaf_remove(base->fd, name);
}
