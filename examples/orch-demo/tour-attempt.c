/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tour sends into a sandbox, and beside it: one attempt to get at something, or somebody to be got at.
 *
 *     tour-attempt NAME [ARGUMENT...]   0: it worked, and what it got is printed; 1: refused, and why; 2: not tried
 *     tour-attempt service FOLDER       answers with $ORCH_TOUR_SECRET; prints "PORT START-TIME", ends after two minutes
 *     tour-attempt daemon FILE          leaves a daemon behind that writes "PID BEATS" into FILE for a minute
 *
 * Nothing but libc: it has to run in an empty place.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKED = 0, REFUSED = 1, UNTRIED = 2 };

#define SECRET "ORCH_TOUR_SECRET"
#define SERVICE_S 120
#define BEATS 3000
#define BEAT_NS 20000000

static int refused(const char *what)
{
	printf("%s: %s\n", what, strerrordesc_np(errno));
	return REFUSED;
}

static int worked(const char *what)
{
	printf("%s\n", what);
	return WORKED;
}

/* What can be read of it, up to its end, is printed; the ends of strings as ends of lines. */
static int show(int fd, const char *what)
{
	static char text[1 << 18];
	size_t length = 0;
	ssize_t got;
	while (length < sizeof(text) && (got = read(fd, text + length, sizeof(text) - length)) > 0)
		length += (size_t)got;
	int result = length ? WORKED : refused(what);
	for (size_t i = 0; i < length; i++)
		text[i] = text[i] ? text[i] : '\n';
	fwrite(text, 1, length, stdout);
	close(fd);
	return result;
}

static int open_file(char **argument)
{
	int fd = open(argument[0], O_RDONLY | O_CLOEXEC);
	return fd < 0 ? refused("open") : show(fd, "read");
}

/* --- sockets ------------------------------------------------------------------------------------------------ */

static struct sockaddr_un unix_address(const char *name, bool abstract, socklen_t *ret_length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path + abstract, sizeof(address.sun_path) - abstract, "%s", name);
	*ret_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name) + !abstract);
	return address;
}

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int ask_socket(int family, const void *address, socklen_t length, const char *request)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return refused("socket");
	if (connect(fd, address, length) < 0 || write(fd, request, strlen(request)) < 0)
		return refused("connect");
	return show(fd, "read");
}

static int ask_http(char **argument)
{
	struct sockaddr_in address = loopback(atoi(argument[0]));
	return ask_socket(AF_INET, &address, sizeof(address), "GET /secret HTTP/1.0\r\n\r\n");
}

static int ask_unix(char **argument)
{
	socklen_t length;
	struct sockaddr_un address = unix_address(argument[0], false, &length);
	return ask_socket(AF_UNIX, &address, length, "secret?\n");
}

static int ask_abstract(char **argument)
{
	socklen_t length;
	struct sockaddr_un address = unix_address(argument[0], true, &length);
	return ask_socket(AF_UNIX, &address, length, "secret?\n");
}

/* --- another process: PID START-TIME, because inside that number may be somebody else ------------------------- */

static unsigned long long start_time(int pid)
{
	char path[40], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	text[got > 0 ? got : 0] = '\0';
	if (fd >= 0)
		close(fd);
	/* The 22nd field; the second one, in parentheses, may hold anything. */
	char *field = strrchr(text, ')');
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	return field ? strtoull(field, NULL, 10) : 0;
}

static bool somebody_else(char **argument)
{
	unsigned long long start = start_time(atoi(argument[0]));
	return start && start != strtoull(argument[1], NULL, 10);
}

static int read_environ(char **argument)
{
	char path[40], *file[] = {path};
	snprintf(path, sizeof(path), "/proc/%d/environ", atoi(argument[0]));
	if (!somebody_else(argument))
		return open_file(file);
	errno = ESRCH;
	return refused("open");
}

static int send_signal(char **argument)
{
	if (somebody_else(argument))
		errno = ESRCH;
	else if (kill(atoi(argument[0]), SIGTERM) == 0)
		return worked("SIGTERM sent");
	return refused("kill");
}

static int trace(char **argument)
{
	int pid = atoi(argument[0]), status;
	if (somebody_else(argument))
		errno = ESRCH;
	else if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0 && waitpid(pid, &status, __WALL) == pid)
		return ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0 ? worked("stopped it, and let it go") : refused("detach");
	return refused("ptrace");
}

/* --- the kernel ------------------------------------------------------------------------------------------------ */

static int io_uring(char **argument)
{
	uint64_t params[15] = {0};
	(void)argument;
	return syscall(SYS_io_uring_setup, 1, params) >= 0 ? worked("a ring was made") : refused("io_uring_setup");
}

static int nested(char **argument)
{
	(void)argument;
	return unshare(CLONE_NEWUSER) == 0 ? worked("a namespace was made, with all capabilities in it")
					   : refused("unshare");
}

/* A child without a session takes a terminal of our own and types into it. */
static int type_into(char **argument)
{
	char byte = 'x';
	int status = 0, master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	(void)argument;
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
		return UNTRIED;
	pid_t child = fork();
	if (child == 0) {
		setsid();
		int terminal = open(ptsname(master), O_RDWR | O_CLOEXEC);
		if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) < 0)
			_exit(0);
		_exit(ioctl(terminal, TIOCSTI, &byte) == 0 ? 255 : errno);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 0)
		return UNTRIED;
	errno = WEXITSTATUS(status);
	return errno == 255 ? worked("typed a key into a terminal") : refused("ioctl");
}

/* Root may write it, and then the kernel runs a program of his for each crash; nothing is written here. */
static int core_pattern(char **argument)
{
	int fd = open(argument[0], (geteuid() == 0 ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
	return fd < 0 ? refused("open") : worked(geteuid() == 0 ? "open for writing" : "open for reading");
}

static int environment(char **argument)
{
	const char *value = getenv(argument[0]);
	if (value)
		return worked(value);
	printf("there is no such variable\n");
	return REFUSED;
}

/* --- who is got at ------------------------------------------------------------------------------------------------- */

static int listen_at(int family, const void *address, socklen_t length)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, address, length) < 0 || listen(fd, 16) < 0) {
		perror("tour-attempt: service");
		exit(UNTRIED);
	}
	return fd;
}

static void answer(int listener, bool http)
{
	char request[1024], text[256];
	const char *secret = getenv(SECRET);
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	int length = snprintf(text, sizeof(text), "%s%s\n", http ? "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" : "",
			      secret ? secret : "");
	if (read(fd, request, sizeof(request)) > 0 && write(fd, text, (size_t)length) < 0)
		perror("tour-attempt: service");
	close(fd);
}

/* FOLDER: its last part is also the abstract name. */
static int service(char **argument)
{
	char path[108];
	const char *slash = strrchr(argument[0], '/');
	socklen_t path_length, name_length, size;
	struct sockaddr_in address = loopback(0);
	if (!slash || (size_t)snprintf(path, sizeof(path), "%s/socket", argument[0]) >= sizeof(path)) {
		fprintf(stderr, "tour-attempt: %s is too long for a socket: set TMPDIR to a shorter folder\n", argument[0]);
		return UNTRIED;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Where Yama lets only parents trace: this one stands for a process that may be traced. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	alarm(SERVICE_S);
	struct sockaddr_un file = unix_address(path, false, &path_length),
			   name = unix_address(slash + 1, true, &name_length);
	struct pollfd fds[3] = {
		{.fd = listen_at(AF_INET, &address, sizeof(address)), .events = POLLIN},
		{.fd = listen_at(AF_UNIX, &file, path_length), .events = POLLIN},
		{.fd = listen_at(AF_UNIX, &name, name_length), .events = POLLIN},
	};
	size = sizeof(address);
	getsockname(fds[0].fd, (struct sockaddr *)&address, &size);
	printf("%d %llu\n", ntohs(address.sin_port), start_time(getpid()));
	fflush(stdout);
	while (poll(fds, 3, -1) > 0 || errno == EINTR)
		for (int i = 0; i < 3; i++)
			if (fds[i].revents)
				answer(fds[i].fd, i == 0);
	return UNTRIED;
}

static int daemonize(char **argument)
{
	struct timespec beat = {.tv_nsec = BEAT_NS};
	int fd = open(argument[0], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	/* Held by all who have the file from here: it is free when nobody is left. */
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return refused("heartbeat");
	/* The leader ends when the daemon is on its own: nobody has the other end any more. */
	int away[2];
	char byte;
	if (pipe2(away, O_CLOEXEC) < 0)
		return refused("pipe");
	pid_t child = fork();
	if (child != 0) {
		close(away[1]);
		return child > 0 && read(away[0], &byte, 1) == 0 ? worked("done, all is well") : UNTRIED;
	}
	setsid();
	if (fork() != 0)
		_exit(0);
	for (int number = 1; number <= 64; number++)
		signal(number, SIG_IGN);
	dup2(fd, 0);
	syscall(SYS_close_range, 1, ~0u, 0);
	if (chdir("/") < 0)
		_exit(1);
	for (int i = 1; i <= BEATS; i++) {
		char text[64];
		int length = snprintf(text, sizeof(text), "%d %d\n", (int)getpid(), i);
		if (pwrite(0, text, (size_t)length, 0) < 0)
			_exit(1);
		nanosleep(&beat, NULL);
	}
	_exit(0);
}

static const struct {
	const char *name;
	int arguments;
	int (*run)(char **argument);
} table[] = {
	{"file", 1, open_file},
	{"http", 1, ask_http},
	{"unix", 1, ask_unix},
	{"abstract", 1, ask_abstract},
	{"environ", 2, read_environ},
	{"trace", 2, trace},
	{"signal", 2, send_signal},
	{"io_uring", 0, io_uring},
	{"nested", 0, nested},
	{"tty", 0, type_into},
	{"core_pattern", 1, core_pattern},
	{"environment", 1, environment},
	{"service", 1, service},
	{"daemon", 1, daemonize},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(table) / sizeof(table[0]); i++)
		if (strcmp(table[i].name, argv[1]) == 0 && table[i].arguments == argc - 2)
			return table[i].run(argv + 2);
	fprintf(stderr, "tour-attempt: of \"orch-demo tour\": see orch-demo(1)\n");
	return UNTRIED;
}
