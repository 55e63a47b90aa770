/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of others, what a program inherits, and how much it may take. */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

/* b: to its group. */
int attempt_signal(const struct row *row)
{
	return tried(kill(row->b ? -place.victim : place.victim, SIGURG) == 0);
}

int attempt_pidfd(const struct row *row)
{
	int fd = (int)syscall(SYS_pidfd_open, place.victim, 0);

	if (row->a == 0 || fd < 0)
		return tried(fd >= 0);
	if (row->a == 1)
		return tried(syscall(SYS_pidfd_send_signal, fd, SIGURG, NULL, 0) == 0);
	return tried(syscall(SYS_pidfd_getfd, fd, 0, 0) >= 0);
}

/* a: of the scope's init, for which the victim stands outside. */
int attempt_trace(const struct row *row)
{
	int pid = row->a && place.inside ? 1 : place.victim;

	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0)
		return DENIED;
	ptrace(PTRACE_DETACH, pid, 0, 0);
	return SUCCEEDED;
}

pid_t child_that_waits(void)
{
	pid_t child = fork();

	if (child == 0)
		for (;;)
			pause();
	return child;
}

static int and_end(pid_t child, bool succeeded)
{
	int err = errno;

	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	errno = err;
	return tried(succeeded);
}

static char own_secret[16] = "own";

/* a: of a child of one's own; b: written. */
int attempt_memory_of(const struct row *row)
{
	char bytes[16] = "matrix";
	struct iovec local = {bytes, sizeof(bytes)}, remote = {(void *)place.secret, sizeof(bytes)};
	pid_t child = row->a ? child_that_waits() : 0;

	if (row->a)
		remote.iov_base = own_secret;
	long n = syscall(row->b ? SYS_process_vm_writev : SYS_process_vm_readv, child ? child : place.victim, &local, 1,
			 &remote, 1, 0);

	return child ? and_end(child, n > 0) : tried(n > 0);
}

int attempt_limits_of(const struct row *row)
{
	struct rlimit limit;

	(void)row;
	return tried(prlimit(place.victim, RLIMIT_NOFILE, NULL, &limit) == 0 &&
		     prlimit(place.victim, RLIMIT_NOFILE, &limit, NULL) == 0);
}

/* What it has: less than that is root's. */
static int nice_of_victim(void)
{
	return getpriority(PRIO_PROCESS, (id_t)place.victim);
}

int attempt_schedule_of(const struct row *row)
{
	cpu_set_t set;
	struct sched_param param = {0};

	switch (row->a) {
	case 0:
		return tried(setpriority(PRIO_PROCESS, (id_t)place.victim, nice_of_victim()) == 0);
	case 1:
		return tried(sched_getaffinity(0, sizeof(set), &set) == 0 &&
			     sched_setaffinity(place.victim, sizeof(set), &set) == 0);
	case 2:
		return tried(sched_setscheduler(place.victim, SCHED_OTHER, &param) == 0);
	case 3: /* IOPRIO_WHO_PROCESS, best effort */
		return tried(syscall(SYS_ioprio_set, 1, place.victim, 2 << 13 | 4) == 0);
	default:
		return tried(getsid(place.victim) >= 0);
	}
}

/* --- what was there when it began --------------------------------------------------------- */

static int inherited_count, inherited_folder = -1;
static bool leads_session;

void remember_beginning(void)
{
	struct stat st;

	for (int fd = 3; fd < 256; fd++)
		if (fstat(fd, &st) == 0) {
			inherited_count++;
			if (S_ISDIR(st.st_mode))
				inherited_folder = fd;
		}
	leads_session = getsid(0) == getpid();
}

int attempt_inherited(const struct row *row)
{
	errno = EBADF;
	if (row->a == 0)
		return tried(inherited_count > 0);
	return tried(openat(inherited_folder, "../../../../../../etc/passwd", O_RDONLY | O_CLOEXEC) >= 0);
}

/* Its session is somebody else's. */
int attempt_session(const struct row *row)
{
	(void)row;
	errno = ESRCH;
	return tried(!leads_session);
}

int attempt_environment(const struct row *row)
{
	errno = ENOENT;
	return tried(getenv(row->text) != NULL);
}

/* Files are made that everybody can write. */
int attempt_umask(const struct row *row)
{
	struct stat st = {0};
	const char *path = expand("%T/everybodys");
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	(void)row;
	if (fd < 0 || fstat(fd, &st) < 0)
		return UNTRIED;
	unlink(path);
	errno = EPERM;
	return tried(st.st_mode & 022);
}

int attempt_cwd(const struct row *row)
{
	char path[256];

	(void)row;
	errno = ENOENT;
	return tried(getcwd(path, sizeof(path)) && strncmp(path, place.base, strlen(place.base)) == 0);
}

/* --- how much ----------------------------------------------------------------------------- */

int attempt_fork_many(const struct row *row)
{
	pid_t children[256];
	long count = 0;

	while (count < row->a && count < 256 && (children[count] = child_that_waits()) > 0)
		count++;
	int err = errno;

	for (long i = 0; i < count; i++)
		and_end(children[i], true);
	errno = err;
	return tried(count == row->a);
}

int attempt_open_many(const struct row *row)
{
	long count = 0;

	while (count < row->a && fcntl(0, F_DUPFD_CLOEXEC, 3) >= 0)
		count++;
	return tried(count == row->a);
}

/* a: MiB in a file; b: files. */
int attempt_fill(const struct row *row)
{
	static char bytes[1 << 20];
	char path[300];
	long count = 0;
	int err = 0;

	signal(SIGXFSZ, SIG_IGN);
	for (long file = 0; file < row->b; file++) {
		snprintf(path, sizeof(path), "%s/fill-%ld", expand(row->text), file);
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		for (long i = 0; fd >= 0 && i < row->a; i++)
			if (write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
				count++;
			else
				err = errno;
		close(fd);
	}
	for (long file = 0; file < row->b; file++) {
		snprintf(path, sizeof(path), "%s/fill-%ld", expand(row->text), file);
		unlink(path);
	}
	errno = err;
	return tried(count == row->a * row->b);
}

int attempt_core(const struct row *row)
{
	struct rlimit limit = {0};

	(void)row;
	errno = EPERM;
	return tried(getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max > 0);
}

/* Where in the host's cgroups it is. */
int attempt_cgroup(const struct row *row)
{
	char line[512];
	bool told = false;
	FILE *file = fopen("/proc/self/cgroup", "re");

	(void)row;
	while (file && fgets(line, sizeof(line), file)) {
		const char *path = strrchr(line, ':');

		told = told || (path && strcmp(path, ":/\n") != 0);
	}
	if (file)
		fclose(file);
	errno = ENOENT;
	return tried(told);
}

int attempt_bounding(const struct row *row)
{
	(void)row;
	errno = EPERM;
	return tried(prctl(PR_CAPBSET_READ, CAP_SYS_CHROOT, 0, 0, 0) == 1);
}

int attempt_keep_capabilities(const struct row *row)
{
	(void)row;
	return tried(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0);
}
