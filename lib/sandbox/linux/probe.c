/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled into the library and into orch-reaper: nothing but libc. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

#define CONNECT_MS 500
#define MAX_ARGUMENTS 3
/* Looked at one by one where /proc is closed. */
#define MAX_DESCRIPTORS 4096

struct attempt {
	char *argument[MAX_ARGUMENTS];
	char *detail;
	size_t size;
};

static int reached(struct attempt *try, const char *what)
{
	snprintf(try->detail, try->size, "%s", what);
	return ORCH_TRY_REACHED;
}

/* With errno. */
static int denied(struct attempt *try, const char *what)
{
	snprintf(try->detail, try->size, "%s: %s", what, strerrordesc_np(errno));
	return ORCH_TRY_DENIED;
}

static int verdict(struct attempt *try, bool success, const char *what)
{
	return success ? reached(try, what) : denied(try, what);
}

/* --- files ---------------------------------------------------------------------------------- */

static int try_open(struct attempt *try, const char *path, int flags)
{
	char byte = '\n';
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0)
		return denied(try, "open");
	bool done = flags & O_WRONLY ? write(fd, &byte, 1) == 1 : read(fd, &byte, 1) == 1;
	int result = verdict(try, done, flags & O_WRONLY ? "write" : "read");

	close(fd);
	return result;
}

static int file_read(struct attempt *try)
{
	return try_open(try, try->argument[0], O_RDONLY);
}

static int file_write(struct attempt *try)
{
	return try_open(try, try->argument[0], O_WRONLY | O_APPEND);
}

/* That it is there, and that it can be found without its name. */
static int file_stat(struct attempt *try)
{
	struct stat st;
	char folder[512];

	if (stat(try->argument[0], &st) < 0)
		return denied(try, "stat");
	snprintf(folder, sizeof(folder), "%s", try->argument[0]);
	char *slash = strrchr(folder, '/');
	int fd = -1;

	if (slash) {
		*slash = '\0';
		fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0) {
		snprintf(try->detail, try->size, "stat works, and its folder can not be listed");
		return ORCH_TRY_PARTLY;
	}
	close(fd);
	return reached(try, "stat, and its folder's list");
}

/* Nothing changes: that is its mode. */
static int file_metadata(struct attempt *try)
{
	return verdict(try, chmod(try->argument[0], 0666) == 0, "chmod");
}

/* Ways around the root: up from the working directory, and the links of /proc. */
static int path_escape(struct attempt *try)
{
	static const char *const prefixes[] = {
		"../../../../../../../../../../../../../../..",
		"/..",
		"/proc/1/root",
		"/proc/self/root",
		"/proc/1/cwd/../../../../../../../../..",
		"/proc/self/cwd/../../../../../../../../..",
	};
	char path[512];

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", prefixes[i], try->argument[0]);
		if (try_open(try, path, O_RDONLY) == ORCH_TRY_REACHED)
			return reached(try, prefixes[i]);
	}
	return ORCH_TRY_DENIED;
}

static int file_link(struct attempt *try)
{
	int result = verdict(try, link(try->argument[0], try->argument[1]) == 0, "link");

	if (result == ORCH_TRY_REACHED)
		unlink(try->argument[1]);
	return result;
}

static int proc_sys_write(struct attempt *try)
{
	const char *path = "/proc/sys/kernel/core_pattern";
	/* An ordinary user can not write it outside either: inside it must not even be visible. */
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return denied(try, "open of core_pattern");
	close(fd);
	return reached(try, "open of core_pattern");
}

/* --- network -------------------------------------------------------------------------------- */

static int try_connect(struct attempt *try, int family, const void *address, socklen_t length)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;

	if (fd < 0)
		return denied(try, "socket");
	if (connect(fd, address, length) < 0) {
		struct pollfd poller = {.fd = fd, .events = POLLOUT};
		socklen_t size = sizeof(err);

		err = errno;
		if (err == EINPROGRESS && poll(&poller, 1, CONNECT_MS) == 1)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size);
	}
	close(fd);
	errno = err;
	return verdict(try, err == 0, "connect");
}

static int try_unix(struct attempt *try, bool abstract)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(try->argument[0]);

	if (length + 1 >= sizeof(address.sun_path))
		return ORCH_TRY_UNTRIED;
	memcpy(address.sun_path + (abstract ? 1 : 0), try->argument[0], length);
	return try_connect(try, AF_UNIX, &address,
			   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1));
}

static int unix_path(struct attempt *try)
{
	return try_unix(try, false);
}

static int unix_abstract(struct attempt *try)
{
	return try_unix(try, true);
}

/* ADDRESS:PORT */
static int tcp_connect(struct attempt *try)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)atoi(try->argument[1]))};

	if (inet_pton(AF_INET, try->argument[0], &address.sin_addr) != 1)
		return ORCH_TRY_UNTRIED;
	return try_connect(try, AF_INET, &address, sizeof(address));
}

/* The host's interface, by name. */
static int net_interfaces(struct attempt *try)
{
	struct if_nameindex *list = if_nameindex();
	bool other = false;

	for (size_t i = 0; list && list[i].if_index; i++)
		other = other || strcmp(list[i].if_name, "lo") != 0;
	if (!list)
		return denied(try, "list of interfaces");
	if_freenameindex(list);
	if (other)
		return reached(try, "interfaces besides lo");
	snprintf(try->detail, try->size, "nothing but lo");
	return ORCH_TRY_DENIED;
}

static int vsock(struct attempt *try)
{
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int result = verdict(try, fd >= 0, "socket(AF_VSOCK)");

	if (fd >= 0)
		close(fd);
	return result;
}

/* --- processes ------------------------------------------------------------------------------ */

uint64_t orch_probe_start_time(int32_t pid)
{
	char path[40], text[1024];
	unsigned long long start = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* The second field, in parentheses, may hold anything. */
	char *field = strrchr(text, ')');

	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	if (field)
		sscanf(field, " %llu", &start);
	return start;
}

/* PID:START: a process of the same number inside is not the target. */
static int process_list(struct attempt *try)
{
	uint64_t start = orch_probe_start_time(atoi(try->argument[0]));

	if (start != 0 && start == strtoull(try->argument[1], NULL, 10))
		return reached(try, "visible in /proc");
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d", atoi(try->argument[0]));
	if (start == 0 && access(path, F_OK) == 0) {
		snprintf(try->detail, try->size, "its number is in /proc, and nothing of it can be read");
		return ORCH_TRY_PARTLY;
	}
	snprintf(try->detail, try->size, "not in /proc");
	return ORCH_TRY_DENIED;
}

static int process_signal(struct attempt *try)
{
	uint64_t start = orch_probe_start_time(atoi(try->argument[0]));

	if (kill(atoi(try->argument[0]), 0) < 0)
		return denied(try, "kill");
	if (start != 0 && start != strtoull(try->argument[1], NULL, 10)) {
		snprintf(try->detail, try->size, "that number is another process here");
		return ORCH_TRY_DENIED;
	}
	return reached(try, "kill");
}

static int env_visible(struct attempt *try)
{
	if (getenv(try->argument[0]))
		return reached(try, "variable is there");
	snprintf(try->detail, try->size, "variable %s is not there", try->argument[0]);
	return ORCH_TRY_DENIED;
}

static int fd_inherited(struct attempt *try)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int count = 0;

	for (int fd = 3; !dir && fd < MAX_DESCRIPTORS; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	while (dir && (entry = readdir(dir)))
		if (atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(dir))
			count++;
	if (dir)
		closedir(dir);
	if (count)
		return reached(try, "descriptors above 2 are open");
	snprintf(try->detail, try->size, "no descriptor above 2");
	return ORCH_TRY_DENIED;
}

static int sysv_ipc(struct attempt *try)
{
	void *memory = shmat(atoi(try->argument[0]), NULL, SHM_RDONLY);
	bool success = memory != (void *)-1;
	int result = verdict(try, success, "shmat");

	if (success)
		shmdt(memory);
	return result;
}

/* --- system calls --------------------------------------------------------------------------- */

static int keyring(struct attempt *try)
{
	long key = syscall(SYS_add_key, "user", "orch-probe", "x", 1, KEY_SPEC_PROCESS_KEYRING);

	return verdict(try, key >= 0, "add_key");
}

static int userns_nested(struct attempt *try)
{
	return verdict(try, unshare(CLONE_NEWUSER) == 0, "unshare(CLONE_NEWUSER)");
}

static int io_uring(struct attempt *try)
{
	uint64_t params[15] = {0};
	long fd = syscall(SYS_io_uring_setup, 1, params);
	int result = verdict(try, fd >= 0, "io_uring_setup");

	if (fd >= 0)
		close((int)fd);
	return result;
}

static int userfaultfd(struct attempt *try)
{
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	int result = verdict(try, fd >= 0, "userfaultfd");

	if (fd >= 0)
		close((int)fd);
	return result;
}

/* On a terminal of our own: what is tried is the call. */
static int inject(struct attempt *try)
{
	char byte = 'x';
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave = -1;

	/* Where no terminal can be had: a filter refuses before the kernel finds that this is none. */
	if (master < 0)
		return ioctl(STDOUT_FILENO, TIOCSTI, &byte) < 0 && errno == EPERM && !isatty(STDOUT_FILENO)
			       ? ORCH_TRY_DENIED
			       : ORCH_TRY_UNTRIED;
	if (grantpt(master) < 0 || unlockpt(master) < 0)
		return ORCH_TRY_UNTRIED;
	slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		return ORCH_TRY_UNTRIED;
	return verdict(try, ioctl(slave, TIOCSTI, &byte) == 0, "ioctl(TIOCSTI)");
}

static int tty_inject(struct attempt *try)
{
	/* A controlling terminal needs a session without one, so a child of our own. */
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		setsid();
		_exit(inject(try));
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return ORCH_TRY_UNTRIED;
	if (WEXITSTATUS(status) != ORCH_TRY_UNTRIED)
		snprintf(try->detail, try->size, "ioctl(TIOCSTI)%s",
			 WEXITSTATUS(status) == ORCH_TRY_DENIED ? " refused" : "");
	return WEXITSTATUS(status);
}

/* --- state of the process ------------------------------------------------------------------- */

/* By calls, as /proc may be closed. */
static int seccomp_active(struct attempt *try)
{
	int mode = prctl(PR_GET_SECCOMP, 0, 0, 0, 0), locked = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);

	if (mode < 0 || locked < 0)
		return ORCH_TRY_UNTRIED;
	snprintf(try->detail, try->size, "mode %d, no_new_privs %d", mode, locked);
	return mode == 2 && locked == 1 ? ORCH_TRY_DENIED : ORCH_TRY_REACHED;
}

static int capabilities(struct attempt *try)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct halves[_LINUX_CAPABILITY_U32S_3];
	uint64_t bounding = 0, ambient = 0;

	if (syscall(SYS_capget, &header, halves) < 0)
		return ORCH_TRY_UNTRIED;
	for (int i = 0; i < 64; i++) {
		bounding |= (uint64_t)(prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1) << i;
		ambient |= (uint64_t)(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) == 1) << i;
	}
	const struct {
		const char *name;
		uint64_t set;
	} sets[] = {
		{"inheritable", halves[0].inheritable | (uint64_t)halves[1].inheritable << 32},
		{"permitted", halves[0].permitted | (uint64_t)halves[1].permitted << 32},
		{"effective", halves[0].effective | (uint64_t)halves[1].effective << 32},
		{"ambient", ambient},
		{"bounding", bounding},
	};

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (sets[i].set) {
			/* Without new privileges the last one bounds what nobody can be given. */
			bool bounds_only = i == 4 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;

			snprintf(try->detail, try->size, "%s %llx%s", sets[i].name, (unsigned long long)sets[i].set,
				 bounds_only ? ", the others empty, no_new_privs" : "");
			return bounds_only ? ORCH_TRY_PARTLY : ORCH_TRY_REACHED;
		}
	snprintf(try->detail, try->size, "all five sets are empty");
	return ORCH_TRY_DENIED;
}

/* -------------------------------------------------------------------------------------------- */

/* So many MiB, each page of them written. */
static int memory(struct attempt *try)
{
	size_t size = (size_t)strtoul(try->argument[0], NULL, 10) << 20;
	char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (bytes == MAP_FAILED)
		return denied(try, "mmap");
	for (size_t at = 0; at < size; at += 4096)
		*(volatile char *)(bytes + at) = 1;
	munmap(bytes, size);
	return reached(try, "memory");
}

static const struct {
	const char *name;
	int arguments;
	int (*attempt)(struct attempt *try);
} probes[] = {
	{"file.read", 1, file_read},
	{"file.write", 1, file_write},
	{"file.stat", 1, file_stat},
	{"file.metadata", 1, file_metadata},
	{"file.link", 2, file_link},
	{"path.escape", 1, path_escape},
	{"unix.path", 1, unix_path},
	{"unix.abstract", 1, unix_abstract},
	{"tcp.loopback", 2, tcp_connect},
	{"net.outside", 2, tcp_connect},
	{"net.interfaces", 0, net_interfaces},
	{"vsock", 0, vsock},
	{"process.signal", 2, process_signal},
	{"process.list", 2, process_list},
	{"env", 1, env_visible},
	{"fd.inherited", 0, fd_inherited},
	{"keyring", 0, keyring},
	{"tty.inject", 0, tty_inject},
	{"userns.nested", 0, userns_nested},
	{"io_uring", 0, io_uring},
	{"userfaultfd", 0, userfaultfd},
	{"proc.sys.write", 0, proc_sys_write},
	{"sysv.ipc", 1, sysv_ipc},
	{"landlock", 1, file_read},
	{"seccomp", 0, seccomp_active},
	{"capabilities", 0, capabilities},
	{"memory", 1, memory},
};

int orch_probe_try(const char *probe, char *detail, size_t size)
{
	struct attempt try = {.detail = detail, .size = size};
	char text[1024], *rest = text;
	int result = ORCH_TRY_UNTRIED;

	snprintf(detail, size, "could not be tried");
	if (strlen(probe) >= sizeof(text))
		return ORCH_TRY_UNTRIED;
	strcpy(text, probe);

	char *name = strsep(&rest, ":");
	int count = 0;

	while (rest && count < MAX_ARGUMENTS)
		try.argument[count++] = strsep(&rest, ":");
	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++)
		if (strcmp(probes[i].name, name) == 0 && probes[i].arguments == count)
			result = probes[i].attempt(&try);
	return result;
}

int orch_probe_main(const char *probe)
{
	char detail[160], line[200];
	int result = orch_probe_try(probe, detail, sizeof(detail));
	int length = snprintf(line, sizeof(line), "%s\n", detail);

	/* The exit code is the result; the line only explains it. */
	if (write(STDOUT_FILENO, line, (size_t)length) < 0)
		return result;
	return result;
}
