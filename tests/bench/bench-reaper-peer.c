/* SPDX-License-Identifier: Apache-2.0 */
/* What a stop and a spawn cost without a library. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench-reaper.h"

#define LOOK_NS 50000
#define HOPPING_NS 50000000
/* cgroup.kill is given again where a fork got away: before kernel commit b69bb476dee9 one could. */
#define STOP_S 60

extern char **environ;

struct order {
	char mode[8];
	unsigned count;
	bool pidns; /* the load is below an init of a PID namespace that does nothing else */
};

struct answer {
	double us; /* negative: it failed, with a line on stderr */
};

int peer_spawn(double *ret_us)
{
	char *argv[] = {"/bin/true", NULL};
	pid_t pid;
	int status;
	double start = bench_now();
	int error = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
	if (error)
		return bench_fail("posix_spawn: %s", strerror(error));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return bench_fail("waitpid: %s", strerror(errno));
	*ret_us = (bench_now() - start) * 1e6;
	return 0;
}

/* --- in the process of its own --- */

/* The init: the kernel reaps for it, and nothing wakes it. */
static void be_init(int stdout_fd)
{
	signal(SIGCHLD, SIG_IGN);
	if (fork() == 0)
		return;
	close(stdout_fd);
	for (;;)
		pause();
}

static pid_t start_load(int leaf_fd, const char *load, const struct order *order, int stdout_fd, int *ret_pidfd)
{
	char count[16];
	snprintf(count, sizeof(count), "%u", order->count);
	char *argv[] = {(char *)load, (char *)order->mode, count, NULL};
	uint64_t namespaces = order->pidns ? CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0) : 0;
	struct clone_args arguments = {.flags = CLONE_INTO_CGROUP | CLONE_PIDFD | namespaces,
				       .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
				       .exit_signal = SIGCHLD,
				       .cgroup = (uint64_t)leaf_fd};
	pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (pid == 0) {
		if (order->pidns)
			be_init(stdout_fd);
		/* As a program of a scope has it. */
		signal(SIGCHLD, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		dup2(stdout_fd, STDOUT_FILENO);
		close_range(3, ~0u, 0);
		execve(load, argv, environ);
		_exit(127);
	}
	return pid;
}

static int kill_leaf(int leaf_fd)
{
	int fd = openat(leaf_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	int r = write(fd, "1", 1) == 1 ? 0 : -1;
	close(fd);
	return r;
}

/* 1, 0, or -1. */
static int populated(int events_fd)
{
	char text[256];
	ssize_t length = pread(events_fd, text, sizeof(text) - 1, 0);
	if (length < 0)
		return -1;
	text[length] = '\0';
	const char *line = strstr(text, "populated ");
	return line ? line[10] == '1' : -1;
}

/* `init_fd`: whose end says that its namespace is empty, all reaped; -1: none. */
static double stop_leaf(int leaf_fd, int init_fd)
{
	struct pollfd init = {.fd = init_fd, .events = POLLIN};
	int events = openat(leaf_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	double start = bench_now();
	int left = events < 0 ? -1 : kill_leaf(leaf_fd);
	if (left == 0 && init_fd >= 0 && poll(&init, 1, STOP_S * 1000) != 1)
		left = -1;
	while (left == 0 && (left = populated(events)) > 0 && bench_now() - start < STOP_S) {
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
		left = 0;
	}
	double us = (bench_now() - start) * 1e6;
	if (left != 0)
		bench_fail("a bare cgroup could not be stopped: %s", left < 0 ? strerror(errno) : "time is over");
	if (events >= 0)
		close(events);
	return left == 0 ? us : -1;
}

static double one_stop(const char *leaf, const char *load, const struct order *order)
{
	int ends[2], leaf_fd = -1, pidfd = -1;
	double us = -1;
	if (mkdir(leaf, 0755) < 0 || (leaf_fd = open(leaf, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    pipe2(ends, O_CLOEXEC) < 0) {
		bench_fail("%s: %s", leaf, strerror(errno));
		goto out;
	}
	pid_t pid = start_load(leaf_fd, load, order, ends[1], &pidfd);
	close(ends[1]);
	if (pid < 0)
		bench_fail("%s: %s", leaf, strerror(errno));
	else if (reaper_load_ready(ends[0], NULL, NULL) == 0) {
		if (strcmp(order->mode, "hop") == 0)
			nanosleep(&(struct timespec){.tv_nsec = HOPPING_NS}, NULL);
		us = stop_leaf(leaf_fd, order->pidns ? pidfd : -1);
	}
	close(ends[0]);
	kill_leaf(leaf_fd);
	/* SIGCHLD is ignored and orphans come here: the kernel reaps, and this waits for the last one. */
	while (waitpid(-1, NULL, 0) >= 0 || errno == EINTR)
		;
out:
	if (pidfd >= 0)
		close(pidfd);
	if (leaf_fd >= 0)
		close(leaf_fd);
	rmdir(leaf);
	return us;
}

static _Noreturn void serve(const char *leaf, const char *load, int fd)
{
	struct order order;
	/* Of a terminal, for all: the turn is finished, then the socket ends. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_TIMERSLACK, 1);
	while (read(fd, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		struct answer answer = {.us = one_stop(leaf, load, &order)};
		if (write(fd, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
			break;
	}
	_exit(0);
}

/* --- of the bench --- */

int peer_open(struct peer *peer, const char *base, const char *load)
{
	int pair[2];
	int length = snprintf(peer->leaf, sizeof(peer->leaf), "%s/orch-bench-%d", base, (int)getpid());
	if (length >= (int)sizeof(peer->leaf))
		return bench_fail("%s is too long", base);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return bench_fail("socketpair: %s", strerror(errno));
	peer->pid = fork();
	if (peer->pid == 0) {
		close(pair[0]);
		serve(peer->leaf, load, pair[1]);
	}
	close(pair[1]);
	peer->fd = pair[0];
	return peer->pid < 0 ? bench_fail("fork: %s", strerror(errno)) : 0;
}

void peer_close(struct peer *peer)
{
	if (peer->pid <= 0)
		return;
	close(peer->fd);
	while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR)
		;
	/* Only where it was killed from outside there is still something. */
	int leaf = open(peer->leaf, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (leaf >= 0) {
		kill_leaf(leaf);
		close(leaf);
		rmdir(peer->leaf);
	}
	peer->pid = 0;
}

int peer_stop(struct peer *peer, const char *mode, unsigned count, bool pidns, double *ret_us)
{
	struct order order = {.count = count, .pidns = pidns};
	struct answer answer;
	ssize_t got;
	snprintf(order.mode, sizeof(order.mode), "%s", mode);
	if (send(peer->fd, &order, sizeof(order), MSG_NOSIGNAL) != (ssize_t)sizeof(order))
		return bench_fail("the bare side is gone");
	while ((got = read(peer->fd, &answer, sizeof(answer))) < 0 && errno == EINTR)
		;
	if (got != (ssize_t)sizeof(answer))
		return bench_fail("the bare side is gone");
	*ret_us = answer.us;
	return answer.us < 0 ? -1 : 0;
}
