/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_SANDBOX_ATTACKS_H
#define TEST_SANDBOX_ATTACKS_H

/* What test-sandbox-attacks.c runs inside a sandbox and outside: `--attack NAME ARGUMENTS`. */

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

/* Each returns 0: it succeeded, 1: it was denied, 2: it could not be tried. */

static char **argument;

static int denied_if(bool failed)
{
	if (failed)
		printf("%s\n", strerrorname_np(errno) ? strerrorname_np(errno) : "?");
	return failed;
}

static int attack_unshare(void)
{
	return denied_if(unshare((int)strtoul(argument[0], NULL, 0)) < 0);
}

static int attack_clone(void)
{
	long pid =
		syscall(SYS_clone, strtoul(argument[0], NULL, 0) | SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0)
		_exit(0);
	return denied_if(pid < 0);
}

static int attack_clone3(void)
{
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(0);
	return denied_if(pid < 0);
}

static int attack_setns(void)
{
	/* Into the namespace that we are in: needs CAP_SYS_ADMIN, so the control makes a user
	 * namespace first. */
	unshare(CLONE_NEWUSER | CLONE_NEWUTS);
	int fd = open("/proc/self/ns/uts", O_RDONLY);

	return fd < 0 ? 2 : denied_if(setns(fd, CLONE_NEWUTS) < 0);
}

static int attack_mount(void)
{
	unshare(CLONE_NEWUSER | CLONE_NEWNS);
	return denied_if(mount("none", argument[0], "tmpfs", 0, NULL) < 0);
}

static int attack_fsopen(void)
{
	unshare(CLONE_NEWUSER | CLONE_NEWNS);
	return denied_if(fsopen("tmpfs", 0) < 0);
}

/* The family's upper half is not looked at by the kernel: a filter must not look at it either. */
static int attack_socket(void)
{
	return denied_if(syscall(SYS_socket, strtoull(argument[0], NULL, 0),
				 strtoul(argument[1], NULL, 0), strtoul(argument[2], NULL, 0)) < 0);
}

static int attack_ioctl(void)
{
	char byte = 'x';
	int master, slave;

	setsid();
	master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
	    (slave = open(ptsname(master), O_RDWR | O_NOCTTY)) < 0 ||
	    ioctl(slave, TIOCSCTTY, 0) < 0)
		return 2;
	return denied_if(syscall(SYS_ioctl, slave, strtoull(argument[0], NULL, 0), &byte) < 0);
}

/* Calls of another architecture would be judged by the wrong numbers: getpid as i386 (20). */
static int attack_i386(void)
{
#ifdef __x86_64__
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
	errno = result < 0 ? (int)-result : 0;
	return denied_if(result < 0);
#else
	return 2;
#endif
}

static int attack_number(void)
{
	errno = 0;
	long result = syscall(strtol(argument[0], NULL, 0), -1, 0, 0, 0, 0);

	return denied_if(result < 0 && errno == (int)strtol(argument[1], NULL, 0));
}

static int attack_trace(void)
{
	int pid = atoi(argument[0]);

	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0)
		return denied_if(true);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	return 0;
}

static int attack_kill(void)
{
	return denied_if(kill(atoi(argument[0]), atoi(argument[1])) < 0);
}

static int attack_open(void)
{
	int fd = open(argument[0], (int)strtol(argument[1], NULL, 0), 0600);
	char byte;

	if (fd < 0)
		return denied_if(true);
	return denied_if((strtol(argument[1], NULL, 0) & O_ACCMODE) == O_RDONLY &&
			 read(fd, &byte, 1) < 0);
}

static int attack_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", argument[0]);
	return denied_if(connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0);
}

/* How many processes, descriptors, bytes can be had. */
static int attack_forks(void)
{
	int count = 0, limit = atoi(argument[0]);

	for (; count < limit; count++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) {
			pause();
			_exit(0);
		}
	}
	printf("%d\n", count);
	if (argument[1]) /* the control cleans up; inside the scope's end does */
		kill(0, SIGTERM);
	return count < limit;
}

static int attack_descriptors(void)
{
	int count = 0, limit = atoi(argument[0]);

	while (count < limit && dup(0) >= 0)
		count++;
	printf("%d\n", count);
	return count < limit;
}

static int attack_file(void)
{
	static char bytes[1 << 20];
	int count = 0, limit = atoi(argument[1]),
	    fd = open(argument[0], O_WRONLY | O_CREAT | O_TRUNC, 0600);

	signal(SIGXFSZ, SIG_IGN);
	while (count < limit && write(fd, bytes, sizeof(bytes)) == sizeof(bytes))
		count++;
	printf("%d\n", count);
	unlink(argument[0]);
	return count < limit;
}

static int attack_fds(void)
{
	int count = 0;

	for (int fd = 3; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	printf("%d\n", count);
	return count == 0;
}

static int attack_raise_limits(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NPROC, &limit);
	limit.rlim_max++;
	return denied_if(setrlimit(RLIMIT_NPROC, &limit) < 0);
}

/* Set-user-ID programs and devices are dead on every mount, and no second root lies over the first.
 */
static int attack_mounts(void)
{
	struct statvfs fs;
	char line[1024], path[512];
	FILE *file = fopen("/proc/self/mountinfo", "re");
	int bad = 0, roots = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%*d %*d %*s %*s %511s", path) != 1 || statvfs(path, &fs) < 0)
			continue;
		roots += strcmp(path, "/") == 0;
		if (!(fs.f_flag & ST_NOSUID) ||
		    (!(fs.f_flag & ST_NODEV) && strncmp(path, "/dev/", 5) != 0))
			bad++, printf("%s\n", path);
	}
	if (file)
		fclose(file);
	printf("%d roots\n", roots);
	return bad == 0 && roots == 1;
}

static const struct {
	const char *name;
	int (*run)(void);
} attacks[] = {
	{"unshare", attack_unshare},
	{"clone", attack_clone},
	{"clone3", attack_clone3},
	{"setns", attack_setns},
	{"mount", attack_mount},
	{"fsopen", attack_fsopen},
	{"socket", attack_socket},
	{"ioctl", attack_ioctl},
	{"i386", attack_i386},
	{"number", attack_number},
	{"trace", attack_trace},
	{"kill", attack_kill},
	{"open", attack_open},
	{"connect", attack_connect},
	{"forks", attack_forks},
	{"descriptors", attack_descriptors},
	{"file", attack_file},
	{"fds", attack_fds},
	{"raise-limits", attack_raise_limits},
	{"mounts", attack_mounts},
};

static int attack_main(char **argv)
{
	int result = 2;

	argument = argv + 3;
	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
		if (strcmp(attacks[i].name, argv[2]) == 0)
			result = attacks[i].run();
	fflush(stdout);
	return result;
}

#endif
