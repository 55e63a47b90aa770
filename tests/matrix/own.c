/* SPDX-License-Identifier: Apache-2.0 */
/* What a build or an agent does all day, and has to be able to. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

int attempt_shell(const struct row *row)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		if (chdir(expand("%W")) < 0)
			_exit(125);
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		dup2(null, 1);
		execl("/bin/sh", "sh", "-c", row->text, NULL);
		_exit(126);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return UNTRIED;
	errno = 0;
	return tried(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static bool ended_by(pid_t child, int signal)
{
	int status = 0;

	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

static bool own_fork(void)
{
	int status = 1;
	pid_t child = fork();

	if (child == 0)
		_exit(7);
	return child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7;
}

static void *in_thread(void *argument)
{
	*(int *)argument = 5;
	return NULL;
}

static bool own_thread(void)
{
	pthread_t thread;
	int value = 0;

	return pthread_create(&thread, NULL, in_thread, &value) == 0 && pthread_join(thread, NULL) == 0 && value == 5;
}

static bool own_pipe(void)
{
	int fds[2], pair[2];
	char byte = 0;

	return pipe2(fds, O_CLOEXEC) == 0 && write(fds[1], "p", 1) == 1 && read(fds[0], &byte, 1) == 1 && byte == 'p' &&
	       socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 && send(pair[0], "q", 1, 0) == 1 &&
	       recv(pair[1], &byte, 1, 0) == 1 && byte == 'q';
}

static bool own_pass_fd(void)
{
	int pair[2], fd = memfd_create("passed", MFD_CLOEXEC);
	char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec bytes = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && sendmsg(pair[0], &message, 0) == 1 &&
	       recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message) != NULL;
}

static bool own_group(void)
{
	pid_t child = child_that_waits();

	return child > 0 && setpgid(child, child) == 0 && kill(-child, SIGTERM) == 0 && ended_by(child, SIGTERM);
}

static bool own_pidfd(void)
{
	pid_t child = child_that_waits();
	int fd = (int)syscall(SYS_pidfd_open, child, 0);

	return fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) == 0 && ended_by(child, SIGTERM);
}

/* As a debugger does: stop it, read a word of it, let it go. */
static bool own_trace(void)
{
	static long word = 4711;
	int status = 0;
	pid_t child = child_that_waits();
	bool read = child > 0 && ptrace(PTRACE_SEIZE, child, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, child, 0, 0) == 0 &&
		    waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
		    ptrace(PTRACE_PEEKDATA, child, &word, 0) == 4711;

	kill(child, SIGKILL);
	return read && ended_by(child, SIGKILL);
}

static bool own_pty(void)
{
	struct winsize size = {.ws_row = 24, .ws_col = 80};
	int slave, master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	setsid();
	return master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 &&
	       (slave = open(ptsname(master), O_RDWR | O_CLOEXEC)) >= 0 && ioctl(slave, TIOCSWINSZ, &size) == 0 &&
	       write(slave, "x", 1) == 1;
}

static bool own_inotify(void)
{
	char bytes[512];
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	const char *path = expand("%W/watched");

	if (fd < 0 || inotify_add_watch(fd, expand("%W"), IN_CREATE) < 0)
		return false;
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	bool told = read(fd, bytes, sizeof(bytes)) > 0;

	return unlink(path) == 0 && told;
}

static bool own_epoll(void)
{
	int poll = epoll_create1(EPOLL_CLOEXEC), event = eventfd(1, EFD_CLOEXEC);
	struct epoll_event wanted = {.events = EPOLLIN}, found;

	return epoll_ctl(poll, EPOLL_CTL_ADD, event, &wanted) == 0 && epoll_wait(poll, &found, 1, 0) == 1;
}

static bool own_memfd(void)
{
	int fd = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd >= 0 && write(fd, "x", 1) == 1 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0 && write(fd, "y", 1) < 0;
}

static bool own_code(void)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page != MAP_FAILED && mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0;
}

static bool serve(int family, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_storage bound;
	socklen_t size = sizeof(bound);
	int server = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return server >= 0 && client >= 0 && bind(server, address, length) == 0 && listen(server, 1) == 0 &&
	       getsockname(server, (struct sockaddr *)&bound, &size) == 0 &&
	       connect(client, (struct sockaddr *)&bound, size) == 0 && accept4(server, NULL, NULL, SOCK_CLOEXEC) >= 0;
}

static bool own_tcp(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return serve(AF_INET, (struct sockaddr *)&address, sizeof(address));
}

static bool own_tcp6(void)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

	return serve(AF_INET6, (struct sockaddr *)&address, sizeof(address));
}

static bool own_udp(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	char byte;
	int server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return bind(server, (struct sockaddr *)&address, size) == 0 &&
	       getsockname(server, (struct sockaddr *)&address, &size) == 0 &&
	       sendto(client, "x", 1, 0, (struct sockaddr *)&address, size) == 1 && recv(server, &byte, 1, 0) == 1;
}

/* The kernel chooses the name. */
static bool own_abstract(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	return serve(AF_UNIX, (struct sockaddr *)&address, sizeof(address.sun_family));
}

static bool own_shm(void)
{
	int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	void *at = id < 0 ? (void *)-1 : shmat(id, NULL, 0);

	return id >= 0 && shmctl(id, IPC_RMID, NULL) == 0 && at != (void *)-1;
}

static bool own_sem(void)
{
	int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);

	return id >= 0 && semctl(id, 0, IPC_RMID) == 0;
}

static bool own_msg(void)
{
	int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);

	return id >= 0 && msgctl(id, IPC_RMID, NULL) == 0;
}

static bool own_queue(void)
{
	char name[128];

	snprintf(name, sizeof(name), "/own-%s", place_name());
	bool opened = mq_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600, NULL) >= 0;
	int err = errno;

	/* Landlock refuses the opening of what has been made by then. */
	bool unlinked = mq_unlink(name) == 0;

	errno = opened ? errno : err;
	return opened && unlinked;
}

static bool own_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (limit.rlim_cur = 32, setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static bool own_affinity(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && sched_setaffinity(0, sizeof(set), &set) == 0;
}

static bool own_timer(void)
{
	struct itimerspec soon = {.it_value.tv_nsec = 1};
	uint64_t count = 0;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

	return fd >= 0 && timerfd_settime(fd, 0, &soon, NULL) == 0 && read(fd, &count, sizeof(count)) == 8;
}

static bool own_mlock(void)
{
	static char page[4096];

	return mlock(page, sizeof(page)) == 0;
}

/* A sandbox of its own inside, as browsers have. */
static bool own_seccomp(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = 1, .filter = &allow};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static bool own_landlock(void)
{
	struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE};
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	return fd >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, fd, 0) == 0;
}

static bool own_copy(void)
{
	int from = open(expand("%W/file"), O_RDONLY | O_CLOEXEC), to = memfd_create("to", MFD_CLOEXEC);

	return from >= 0 && to >= 0 && syscall(SYS_sendfile, to, from, NULL, 4) == 4;
}

static bool own_random(void)
{
	char bytes[16];

	return getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes);
}

static bool own_user(void)
{
	const struct passwd *user = getpwuid(getuid());

	return user && strcmp(user->pw_name, "agent") == 0;
}

static bool own_signal(void)
{
	pid_t child = child_that_waits();

	return child > 0 && kill(child, SIGTERM) == 0 && ended_by(child, SIGTERM);
}

static bool own_nice(void)
{
	errno = 0;
	return nice(1) >= 0 && errno == 0;
}

static bool own_name(void)
{
	return prctl(PR_SET_NAME, "worker", 0, 0, 0) == 0;
}

int attempt_own(const struct row *row)
{
	static bool (*const own[])(void) = {
		[OWN_FORK] = own_fork,
		[OWN_THREAD] = own_thread,
		[OWN_PIPE] = own_pipe,
		[OWN_PASS_FD] = own_pass_fd,
		[OWN_SIGNAL] = own_signal,
		[OWN_GROUP] = own_group,
		[OWN_PIDFD] = own_pidfd,
		[OWN_TRACE] = own_trace,
		[OWN_PTY] = own_pty,
		[OWN_INOTIFY] = own_inotify,
		[OWN_EPOLL] = own_epoll,
		[OWN_MEMFD] = own_memfd,
		[OWN_MMAP_EXEC] = own_code,
		[OWN_TCP] = own_tcp,
		[OWN_TCP6] = own_tcp6,
		[OWN_UDP] = own_udp,
		[OWN_ABSTRACT] = own_abstract,
		[OWN_SHM] = own_shm,
		[OWN_SEM] = own_sem,
		[OWN_MSG] = own_msg,
		[OWN_QUEUE] = own_queue,
		[OWN_LIMIT] = own_limit,
		[OWN_NICE] = own_nice,
		[OWN_AFFINITY] = own_affinity,
		[OWN_TIMER] = own_timer,
		[OWN_MLOCK] = own_mlock,
		[OWN_SECCOMP] = own_seccomp,
		[OWN_LANDLOCK] = own_landlock,
		[OWN_NAME] = own_name,
		[OWN_COPY] = own_copy,
		[OWN_RANDOM] = own_random,
		[OWN_USER] = own_user,
	};

	return tried(own[row->a]());
}
