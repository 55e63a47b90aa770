/* SPDX-License-Identifier: Apache-2.0 */
/* What of the kernel is none of a program's business. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

/*
 * a: the call's number; b: its first argument. The other arguments are nonsense, so that nothing comes of it: it succeeded
 * if the kernel got as far as complaining about them.
 */
int attempt_call(const struct row *row)
{
	long result = syscall(row->a, row->b, row->text, 0, 0, 0);

	return tried(result >= 0 || (errno != EPERM && errno != ENOSYS && errno != EACCES));
}

int attempt_unshare(const struct row *row)
{
	return tried(unshare((int)row->a) == 0);
}

static int made(long pid)
{
	int err = errno;

	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	errno = err;
	return tried(pid > 0);
}

int attempt_clone(const struct row *row)
{
	return made(syscall(SYS_clone, row->a | SIGCHLD, NULL, NULL, NULL, NULL));
}

int attempt_clone3(const struct row *row)
{
	struct clone_args args = {.flags = (uint64_t)row->a, .exit_signal = SIGCHLD};

	return made(syscall(SYS_clone3, &args, sizeof(args)));
}

/* With the rights of a user namespace, if one can be had. */
static void own_mounts(void)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0)
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

enum { MOUNT_OLD, MOUNT_NEW, MOUNT_CLONE, MOUNT_OPEN, MOUNT_MOVE, MOUNT_ATTRIBUTES, MOUNT_PIVOT, MOUNT_CHROOT };

int attempt_mount(const struct row *row)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID};
	int fd;

	own_mounts();
	switch (row->a) {
	case MOUNT_OLD:
		return tried(mount("none", expand("%T"), "tmpfs", 0, NULL) == 0);
	case MOUNT_NEW:
		return tried(fsopen("tmpfs", FSOPEN_CLOEXEC) >= 0);
	case MOUNT_CLONE:
		return tried(open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE) >= 0);
	case MOUNT_OPEN:
		return tried(open_tree(AT_FDCWD, "/", OPEN_TREE_CLOEXEC) >= 0);
	case MOUNT_MOVE:
		fd = open_tree(AT_FDCWD, expand("%T"), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		return tried(move_mount(fd, "", AT_FDCWD, expand("%W"), MOVE_MOUNT_F_EMPTY_PATH) == 0);
	case MOUNT_ATTRIBUTES:
		return tried(mount_setattr(AT_FDCWD, "/proc", 0, &attr, sizeof(attr)) == 0);
	case MOUNT_PIVOT: /* there is no such folder */
		return tried(syscall(SYS_pivot_root, "/no/such", "/no/such") < 0 && errno == ENOENT);
	default:
		return tried(chroot("/") == 0);
	}
}

/* Into the namespace that it is in already. */
int attempt_setns(const struct row *row)
{
	if (unshare(CLONE_NEWUSER | (int)row->a) < 0 && errno == EINVAL)
		return UNTRIED;
	int fd = open(row->text, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? UNTRIED : tried(setns(fd, (int)row->a) == 0);
}

/* On a terminal of its own. a: the request, with what the kernel drops of it. */
int attempt_terminal(const struct row *row)
{
	char byte = 'x';
	int slave, master;

	setsid();
	master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
	    (slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		return UNTRIED;
	/* TIOCLINUX is for the console: ENOTTY means that it was asked. */
	return tried(syscall(SYS_ioctl, slave, row->a, &byte) == 0 || errno == ENOTTY);
}

enum { KEY_ADD, KEY_REQUEST, KEY_SESSION, KEY_USER, KEY_PERSISTENT };

int attempt_key(const struct row *row)
{
	switch (row->a) {
	case KEY_ADD:
		return tried(syscall(SYS_add_key, "user", "matrix-own", "x", 1, KEY_SPEC_PROCESS_KEYRING) >= 0);
	case KEY_REQUEST: /* there is none: ENOKEY */
		return tried(syscall(SYS_request_key, "user", "matrix-none", NULL, 0) >= 0 || errno == ENOKEY);
	case KEY_SESSION:
		return tried(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", "matrix-session", 0) >=
			     0);
	case KEY_USER:
		return tried(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", place_name(), 0) >= 0);
	default:
		return tried(syscall(SYS_keyctl, KEYCTL_GET_PERSISTENT, -1, KEY_SPEC_PROCESS_KEYRING) >= 0);
	}
}

/* A socket by a ring: no filter of calls sees its family. a: IORING_OP_*, -1: none, but a ring. */
int attempt_ring(const struct row *row)
{
	struct io_uring_params params = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 2, &params);

	if (row->a < 0 || ring < 0)
		return tried(ring >= 0);
	size_t sq_size = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
	size_t cq_size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	char *sq = mmap(NULL, sq_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	char *cq = mmap(NULL, cq_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
	struct io_uring_sqe *entry = mmap(NULL, params.sq_entries * sizeof(*entry), PROT_READ | PROT_WRITE, MAP_SHARED,
					  ring, IORING_OFF_SQES);

	if (sq == MAP_FAILED || cq == MAP_FAILED || entry == MAP_FAILED)
		return UNTRIED;
	*entry = (struct io_uring_sqe){
		.opcode = (uint8_t)row->a, .fd = (int32_t)row->b, .off = SOCK_STREAM, .len = 0};
	*(uint32_t *)(void *)(sq + params.sq_off.array) = 0;
	__atomic_store_n((uint32_t *)(void *)(sq + params.sq_off.tail), 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return DENIED;
	const struct io_uring_cqe *done = (const void *)(cq + params.cq_off.cqes);

	errno = done->res < 0 ? -done->res : 0;
	return tried(done->res >= 0);
}

/* getpid: calls of another architecture would be judged by the wrong numbers. */
int attempt_i386(const struct row *row)
{
	(void)row;
#ifdef __x86_64__
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
	errno = result < 0 ? (int)-result : 0;
	return tried(result >= 0);
#else
	return UNTRIED;
#endif
}

int attempt_ldt(const struct row *row)
{
	(void)row;
#ifdef SYS_modify_ldt
	char bytes[16];

	return tried(syscall(SYS_modify_ldt, 0, bytes, sizeof(bytes)) >= 0);
#else
	return UNTRIED;
#endif
}

/* The zone that it has already: needs the right to set the clock. */
int attempt_time(const struct row *row)
{
	struct timezone zone;

	(void)row;
	return tried(syscall(SYS_gettimeofday, NULL, &zone) == 0 && syscall(SYS_settimeofday, NULL, &zone) == 0);
}

int attempt_log(const struct row *row)
{
	char bytes[256];

	(void)row;
	return tried(klogctl(3, bytes, sizeof(bytes)) >= 0);
}
