/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orch/error.h>

#include "../../reaper/linux/census.h"
#include "../../sandbox/spec.h"
#include "linux.h"

/* Reaps per round: a fork bomb must not keep init from its socket. */
#define REAPS 64
#define REQUESTS 32
#define CONNECTS_MAX 64
#define CONNECT_MS 5000
/* SIGTERM goes to so many members of a cgroup at most. */
#define TERMINATED_MOST 16384u
#define LEAF_LOOK_MS 20
/* A supervisor in a cgroup that lost its helper ends descendants for so long before it ends its cgroup, and itself. */
#define LEAF_SWEEP_US 500000
/* Longest pause of a sweep that waits for killed processes to end. */
#define SWEEP_WAIT_MS 64

struct child {
	uint32_t subject;
	pid_t pid;
	int exec_fd; /* until exec succeeded or failed */
	bool failed; /* reported: its exit is of no interest */
};

struct connecting {
	uint32_t subject;
	int fd;
	int64_t due_us;
};

struct init {
	int control_fd;
	uint32_t rung;
	int leaf_fd;
	struct confine *confine;
	struct child *children;
	size_t child_count, child_capacity;
	struct connecting connects[CONNECTS_MAX];
	size_t connect_count;
	struct pollfd *polls; /* control, children, connects */
	bool terminating;
	bool more_to_reap;
	bool childless;
	bool sweeping; /* was told to end all */
	bool lost; /* the helper is gone */
};

static bool has_pidns(const struct init *init)
{
	return init->rung >= ORCH_RUNG_PIDNS;
}

/* The helper is gone: the kernel kills the namespace with its init; without one there is work left. */
static void end(struct init *init)
{
	if (has_pidns(init))
		_exit(0);
	init->lost = true;
}

static void report(struct init *init, struct wire_packet *packet)
{
	/* Blocking is fine: only the helper could be slow, and when it dies this ends with EPIPE.
	 */
	if (!init->lost && wire_send(init->control_fd, packet) == -EPIPE)
		end(init);
	wire_packet_close(packet);
}

static void report_failure(struct init *init, enum wire_type type, uint32_t subject,
			   const struct setup_error *error)
{
	struct wire_packet packet = wire_packet(type, 0, subject);
	packet.message.code = error->code;
	packet.message.os_errno = error->os_errno;
	wire_copy(packet.message.step, WIRE_STEP_MAX, error->step);
	wire_copy(packet.message.text, WIRE_TEXT_MAX, error->message);
	report(init, &packet);
}

/* --- programs -------------------------------------------------------------------------- */

/* --- without a PID namespace ----------------------------------------------------------- */

/* The line "0::/path" of /proc/PID/cgroup. */
static bool read_cgroup(pid_t pid, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	FILE *groups = fopen(path, "re");
	bool found = false;
	while (groups && !found && fgets(text, (int)size, groups))
		found = strncmp(text, "0::", 3) == 0;
	if (groups)
		fclose(groups);
	text[strcspn(text, "\n")] = '\0';
	return found;
}

/*
 * SIGTERM to `pid` if it is in the own cgroup or below. The pidfd comes first: if the pid is a member's after that, the
 * pidfd's process is that member, or dead.
 */
static void signal_member(pid_t pid)
{
	char own[PATH_MAX], other[PATH_MAX];
	_cleanup_fd_ int pidfd = pidfd_open_(pid);
	if (pidfd < 0 || !read_cgroup(getpid(), own, sizeof(own)) || !read_cgroup(pid, other, sizeof(other)))
		return;
	size_t length = strlen(own);
	if (strncmp(own, other, length) != 0 || (other[length] && other[length] != '/'))
		return;
	pidfd_signal(pidfd, SIGTERM);
	pidfd_signal(pidfd, SIGCONT);
}

/* Members of the cgroup besides this process; those of them that are signalled are sure to be members. */
static unsigned leaf_members(struct init *init, bool signal)
{
	int fd = openat(init->leaf_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *members = fd >= 0 ? fdopen(fd, "re") : NULL;
	unsigned count = 0;
	int pid;
	if (!members) {
		close_fd(&fd);
		return 0;
	}
	/* Bounded, as a fork bomb makes entries as fast as they are read. 0: of a PID namespace that is not seen here. */
	while (count < TERMINATED_MOST && fscanf(members, "%d", &pid) == 1) {
		if (pid == getpid())
			continue;
		count++;
		if (signal && pid > 0)
			signal_member(pid);
	}
	fclose(members);
	return count;
}

/* May a grace end early? A cgroup can have members that do not descend from this process. */
static bool is_alone(struct init *init)
{
	return init->leaf_fd < 0 || leaf_members(init, false) == 0;
}

static bool reserve_child(struct init *init)
{
	if (init->child_count < init->child_capacity)
		return true;
	size_t capacity = init->child_capacity ? 2 * init->child_capacity : 16;
	struct child *children = realloc(init->children, capacity * sizeof(*children));
	if (children)
		init->children = children;
	struct pollfd *polls = realloc(init->polls, (1 + capacity + CONNECTS_MAX) * sizeof(*polls));
	if (polls)
		init->polls = polls;
	if (!children || !polls)
		return false;
	init->child_capacity = capacity;
	return true;
}

static void spawn(struct init *init, struct wire_packet *request)
{
	struct setup_error error;
	int pipe_fds[2];
	uint32_t subject = request->message.subject;
	if (!reserve_child(init) || pipe2(pipe_fds, O_CLOEXEC) < 0) {
		setup_fail(&error, ORCH_ESPAWN, errno, "pipe", "no resources for another program");
		report_failure(init, WIRE_FAILED, subject, &error);
		return;
	}
	pid_t pid = fork();
	if (pid == 0) {
		/* Liveness: nobody but init may hold the socket, however long exec takes. */
		close(init->control_fd);
		close(pipe_fds[0]);
		program_run(&(struct program){
		    .request = request, .confine = init->confine, .error_fd = pipe_fds[1]});
	}
	close(pipe_fds[1]);
	if (pid < 0) {
		setup_fail(&error, ORCH_ESPAWN, errno, "fork",
			   "no process could be made in the scope");
		close(pipe_fds[0]);
		report_failure(init, WIRE_FAILED, subject, &error);
		return;
	}
	fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
	init->children[init->child_count++] =
	    (struct child){.subject = subject, .pid = pid, .exec_fd = pipe_fds[0]};
}

/* After the exec or the end of the child. False while neither is known. */
static bool check_exec(struct init *init, struct child *child, bool ended)
{
	struct setup_error error;
	if (child->exec_fd < 0)
		return true;
	ssize_t length = read(child->exec_fd, &error, sizeof(error));
	if (length < 0 && !ended)
		return false;
	close_fd(&child->exec_fd);
	if (length == (ssize_t)sizeof(error)) {
		child->failed = true;
		report_failure(init, WIRE_FAILED, child->subject, &error);
		return true;
	}
	struct wire_packet packet = wire_packet(WIRE_STARTED, 0, child->subject);
	packet.message.value = child->pid;
	report(init, &packet);
	return true;
}

static void child_ended(struct init *init, size_t index, const siginfo_t *status)
{
	struct child *child = &init->children[index];
	check_exec(init, child, true);
	if (!child->failed) {
		struct wire_packet packet = wire_packet(WIRE_EXITED, 0, child->subject);
		bool exited = status->si_code == CLD_EXITED;
		packet.message.value = exited ? status->si_status : -1;
		packet.message.code = exited ? 0 : status->si_status;
		report(init, &packet);
	}
	init->children[index] = init->children[--init->child_count];
}

static void report_empty(struct init *init)
{
	struct wire_packet packet = wire_packet(WIRE_EMPTY, 0, 0);
	init->terminating = false;
	report(init, &packet);
}

/* Number of processes, bounded. */
static unsigned reap(struct init *init)
{
	unsigned round;
	init->more_to_reap = false;
	for (round = 0; round < REAPS; round++) {
		siginfo_t status = {0};
		if (waitid(P_ALL, 0, &status, WEXITED | WNOHANG | __WALL) < 0) {
			init->childless = errno == ECHILD;
			if (init->childless && init->terminating && is_alone(init))
				report_empty(init);
			return round;
		}
		init->childless = false;
		if (status.si_pid == 0)
			return round;
		for (size_t i = 0; i < init->child_count; i++)
			if (init->children[i].pid == status.si_pid) {
				child_ended(init, i, &status);
				break;
			}
	}
	init->more_to_reap = true;
	return round;
}

static void send_signal(struct init *init, uint32_t subject, int signal)
{
	/* The pid is a living child or an unreaped one: only reap() removes it from the table. */
	for (size_t i = 0; i < init->child_count; i++)
		if (init->children[i].subject == subject)
			kill(init->children[i].pid, signal);
}

static void terminate(struct init *init)
{
	init->terminating = true;
	switch (init->rung) {
	case ORCH_RUNG_SUBREAPER:
		sweep_terminate();
		break;
	case ORCH_RUNG_CGROUP:
		leaf_members(init, true);
		break;
	default:
		kill(-1, SIGTERM);
		kill(-1, SIGCONT);
	}
}

static void wait_for_children(const sigset_t *waiting, long ms)
{
	ppoll(NULL, 0, &(struct timespec){.tv_nsec = ms * 1000000}, waiting);
}

/* Ends all that descends from this process, then this process. */
static _Noreturn void sweep_and_end(struct init *init, const sigset_t *waiting)
{
	struct sweep sweep = {0};
	int64_t end_us = now_us() + LEAF_SWEEP_US;
	long wait_ms = 1;
	reap(init);
	/* The cgroup has a surer end: the sweep is for what left it. */
	while (!init->childless && (init->leaf_fd < 0 || now_us() < end_us)) {
		sweep_round(&sweep);
		unsigned reaped = 0;
		for (unsigned i = 0; i < SWEEP_MOST / REAPS && (i == 0 || init->more_to_reap); i++)
			reaped += reap(init);
		wait_ms = reaped ? 1 : wait_ms;
		if (reaped || init->childless)
			continue;
		wait_for_children(waiting, wait_ms);
		if (wait_ms < SWEEP_WAIT_MS)
			wait_ms *= 2;
	}
	if (init->childless)
		report_empty(init);
	if (init->leaf_fd >= 0)
		leaf_kill(init->leaf_fd);
	_exit(0);
}

/* --- connections ----------------------------------------------------------------------- */

static void report_connect(struct init *init, uint32_t subject, int fd, int os_errno, uint16_t port)
{
	struct wire_packet packet = wire_packet(WIRE_CONNECTED, 0, subject);
	if (os_errno) {
		packet.message.code = ORCH_ESYS;
		packet.message.os_errno = os_errno;
		wire_copy(packet.message.step, WIRE_STEP_MAX, "connect");
		if (port)
			snprintf(packet.message.text, WIRE_TEXT_MAX,
				 "127.0.0.1:%u inside the scope can not be reached", port);
		else
			wire_copy(packet.message.text, WIRE_TEXT_MAX,
				  "the port inside the scope can not be reached");
		if (fd >= 0)
			close(fd);
	} else {
		packet.fds[packet.fd_count++] = fd;
	}
	report(init, &packet);
}

static void start_connect(struct init *init, uint32_t subject, uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
		report_connect(init, subject, fd, fd < 0 ? errno : 0, port);
		return;
	}
	if (errno != EINPROGRESS || init->connect_count == CONNECTS_MAX) {
		report_connect(init, subject, fd, errno == EINPROGRESS ? EBUSY : errno, port);
		return;
	}
	init->connects[init->connect_count++] = (struct connecting){
	    .subject = subject, .fd = fd, .due_us = now_us() + CONNECT_MS * 1000};
}

static void check_connects(struct init *init, const struct pollfd *polls, size_t polled)
{
	/* Backwards, because the last one takes a removed one's place. */
	for (size_t i = polled; i-- > 0;) {
		struct connecting done = init->connects[i];
		int error = ETIMEDOUT;
		socklen_t size = sizeof(error);
		if (!polls[i].revents && now_us() < done.due_us)
			continue;
		if (polls[i].revents &&
		    getsockopt(done.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
			error = errno;
		init->connects[i] = init->connects[--init->connect_count];
		report_connect(init, done.subject, done.fd, error, 0);
	}
}

/* --- loop ------------------------------------------------------------------------------ */

static void take_requests(struct init *init)
{
	for (int i = 0; i < REQUESTS; i++) {
		struct wire_packet packet;
		int error = wire_receive(init->control_fd, NULL, &packet);
		if (error == -EAGAIN)
			return;
		if (error == -EMFILE) {
			struct setup_error failure;
			setup_fail(&failure, ORCH_ESPAWN, EMFILE, "init",
				   "the scope's init has no file descriptor left");
			report_failure(init, WIRE_FAILED, packet.message.subject, &failure);
			continue;
		}
		if (error) {
			end(init);
			return;
		}
		switch (packet.message.type) {
		case WIRE_SPAWN:
			spawn(init, &packet);
			break;
		case WIRE_SIGNAL:
			send_signal(init, packet.message.subject, packet.message.value);
			break;
		case WIRE_CONNECT:
			start_connect(init, packet.message.subject, (uint16_t)packet.message.value);
			break;
		case WIRE_TERMINATE:
			terminate(init);
			break;
		case WIRE_SWEEP:
			init->sweeping = true;
			break;
		default:
			break;
		}
		wire_packet_close(&packet);
	}
}

static void on_child(int signal)
{
	(void)signal;
}

static int poll_timeout(const struct init *init)
{
	if (init->more_to_reap)
		return 0;
	/* The end of a member that is no child is no event here. */
	int64_t timeout = init->terminating && init->leaf_fd >= 0 ? LEAF_LOOK_MS : -1, now = now_us();
	for (size_t i = 0; i < init->connect_count; i++) {
		int64_t left = init->connects[i].due_us - now;
		left = left < 0 ? 0 : left / 1000 + 1;
		if (timeout < 0 || left < timeout)
			timeout = left;
	}
	return (int)timeout;
}

static _Noreturn void loop(struct init *init, const sigset_t *waiting)
{
	for (;;) {
		size_t children = init->child_count, connects = init->connect_count;
		int timeout = poll_timeout(init);
		struct timespec wait = {.tv_sec = timeout / 1000,
					.tv_nsec = timeout % 1000 * 1000000L};
		init->polls[0] = (struct pollfd){.fd = init->control_fd, .events = POLLIN};
		for (size_t i = 0; i < children; i++)
			init->polls[1 + i] =
			    (struct pollfd){.fd = init->children[i].exec_fd, .events = POLLIN};
		for (size_t i = 0; i < connects; i++)
			init->polls[1 + children + i] =
			    (struct pollfd){.fd = init->connects[i].fd, .events = POLLOUT};
		int ready = ppoll(init->polls, 1 + children + connects, timeout < 0 ? NULL : &wait,
				  waiting);
		if (ready < 0 && errno != EINTR)
			end(init);
		if (ready >= 0) {
			check_connects(init, init->polls + 1 + children, connects);
			for (size_t i = 0; i < children; i++)
				if (init->polls[1 + i].revents)
					check_exec(init, &init->children[i], false);
			if (init->polls[0].revents)
				take_requests(init);
		}
		reap(init);
		if (init->sweeping || init->lost)
			sweep_and_end(init, waiting);
	}
}

static uint64_t own_pidns(void)
{
	struct stat status;
	return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

static bool may_be_hidden(const struct confine *confine)
{
#ifdef ORCH_HAVE_CONFINE
	return !confine_leaves_out(confine, ORCH_SPEC_WITHOUT_UNDUMPABLE);
#else
	return !confine;
#endif
}

static void add_fd(struct wire_packet *packet, int fd, uint32_t flag)
{
	if (fd < 0)
		return;
	packet->message.flags |= flag;
	packet->fds[packet->fd_count++] = fd;
}

void init_run(const struct init_opts *opts)
{
	struct init init = {.control_fd = opts->control_fd,
			    .rung = opts->rung,
			    .leaf_fd = opts->leaf_fd,
			    .confine = opts->confine};
	struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP};
	sigset_t blocked, waiting;

	setsid();
	prctl(PR_SET_NAME, has_pidns(&init) ? INIT_NAME : SUPERVISOR_NAME);
	/* Convenience only: the proof of liveness is the end of the socket. A supervisor has to outlive the helper. */
	prctl(PR_SET_PDEATHSIG, has_pidns(&init) ? SIGKILL : 0);
	if (!has_pidns(&init))
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* Before any load runs, and after the uid map was written, which it would forbid: nobody
	 * inside may trace init or look into its /proc/1/fd. */
	if (may_be_hidden(opts->confine))
		prctl(PR_SET_DUMPABLE, 0);
	sigemptyset(&waiting);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	sigaction(SIGCHLD, &action, NULL);
	fcntl(init.control_fd, F_SETFD, FD_CLOEXEC);
	if (!reserve_child(&init))
		_exit(1);

	struct wire_packet ready = wire_packet(WIRE_READY, 0, 0);
	ready.message.number[0] = has_pidns(&init) ? own_pidns() : 0;
	add_fd(&ready, opts->host.listener, WIRE_LISTENER);
	add_fd(&ready, opts->host.private, WIRE_PRIVATE);
	add_fd(&ready, opts->host.lower, WIRE_LOWER);
	/* Without a leaf the helper would have to look through every process of the machine to count those in here. */
	int proc_fd = init.rung == ORCH_RUNG_PIDNS ? open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	add_fd(&ready, proc_fd, WIRE_PROC);
	report(&init, &ready);
	loop(&init, &waiting);
}
