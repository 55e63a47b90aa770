/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <orch/error.h>

#include "../../sandbox/spec.h"
#include "scope-limits.h"

/*
 * Chains of fork and exit leave zombies faster than init can reap them, and without a limit they take every pid of the
 * machine (seen: 32,500 of 32,768). Counted in the scope's own user namespace, zombies included.
 */
#define PLAIN_PROCESSES 4096

static struct setup_page *page;

/* Reports to the helper and ends the process: a set-up that failed leaves nothing behind. */
static _Noreturn void report_and_exit(int control_fd, const struct setup_error *error)
{
	struct wire_packet packet = wire_packet(WIRE_SETUP_FAILED, 0, 0);
	packet.message.code = error->code;
	packet.message.os_errno = error->os_errno;
	wire_copy(packet.message.step, WIRE_STEP_MAX, error->step);
	wire_copy(packet.message.text, WIRE_TEXT_MAX, error->message);
	wire_send(control_fd, &packet);
	_exit(1);
}

/* Returns in the new process only, or with -1. */
static int clone_init(uint64_t flags)
{
	/* Init is the helper's child like its set-up, so that nobody but the helper can reap it.
	 * The kernel writes the pid into the shared page before init runs (fork.c, kernel_clone).
	 */
	return clone_successor(flags, (pid_t *)&page->init_pid);
}

int supervise_clone_init(uint64_t namespace_flags, int control_fd)
{
	(void)control_fd;
	return clone_init(namespace_flags);
}

static int write_file(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

static int fail_namespace(struct setup_error *error, int os_errno, const char *step,
			  const char *what)
{
	const char *remedy = "see orch-demo doctor";
	if (os_errno == ENOSPC)
		remedy = "raise sysctl user.max_user_namespaces, user.max_pid_namespaces, "
			 "user.max_mnt_namespaces";
	else if (os_errno == EPERM || os_errno == EACCES)
		remedy =
		    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
		    "kernel.apparmor_restrict_unprivileged_userns=0, or the container's seccomp "
		    "profile), or run as root";
	else if (os_errno == EINVAL || os_errno == ENOSYS)
		remedy = "the kernel was built without these namespaces";
	setup_fail(error, ORCH_EUNENFORCEABLE, os_errno, step, "%s refused; %s", what, remedy);
	return -1;
}

/* A user namespace in which the user is who he was: what an ordinary user needs for the other
 * namespaces. */
static int enter_user_namespace(struct setup_error *error)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();
	if (unshare(CLONE_NEWUSER) < 0)
		return fail_namespace(error, errno, "userns", "a user namespace was");
	snprintf(map, sizeof(map), "%u %u 1\n", uid, uid);
	if (write_file("/proc/self/setgroups", "deny") < 0 ||
	    write_file("/proc/self/uid_map", map) < 0)
		return fail_namespace(error, errno, "userns.map", "the uid map was");
	snprintf(map, sizeof(map), "%u %u 1\n", gid, gid);
	if (write_file("/proc/self/gid_map", map) < 0)
		return fail_namespace(error, errno, "userns.map", "the gid map was");
	return 0;
}

/* For uid 0 of the host the kernel does not look at it. */
static int lower_limit(int resource, rlim_t most, const char *what, struct setup_error *error)
{
	struct rlimit limit;
	if (getrlimit(resource, &limit) < 0)
		return fail_namespace(error, errno, "rlimit", what);
	if (limit.rlim_max > most)
		limit.rlim_max = most;
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	return setrlimit(resource, &limit) < 0 ? fail_namespace(error, errno, "rlimit", what) : 0;
}

static int limit_user(const struct setup_request *request, struct setup_error *error)
{
	/* Init is one of them. */
	rlim_t processes = request->processes ? (rlim_t)request->processes + 1 : PLAIN_PROCESSES;
	if (lower_limit(RLIMIT_NPROC, processes, "limiting the processes was", error) < 0)
		return -1;
	return request->data_bytes ? lower_limit(RLIMIT_DATA, request->data_bytes, "limiting the memory was", error)
				   : 0;
}

/* Returns in PID 1 only, like confine_enter(). */
static int enter_plain(const struct setup_request *request, struct setup_error *error)
{
	int control_fd = request->control_fd;
	bool mapped = geteuid() != 0;
	if (mapped && enter_user_namespace(error) < 0)
		return -1;
	int result = supervise_clone_init(CLONE_NEWPID | CLONE_NEWNS, control_fd);
	if (result < 0 && errno == EPERM && !mapped) {
		/* Root of a container that has no CAP_SYS_ADMIN. */
		mapped = true;
		if (enter_user_namespace(error) < 0)
			return -1;
		result = supervise_clone_init(CLONE_NEWPID | CLONE_NEWNS, control_fd);
	}
	if (result < 0)
		return fail_namespace(error, errno, "pidns", "a PID and mount namespace was");

	/* The host's later mounts come through; nothing goes back. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) {
		if (errno != EINVAL)
			return fail_namespace(error, errno, "mount.root", "changing mount propagation was");
		setup_fail(error, ORCH_EUNENFORCEABLE, errno, "mount.root",
			   "the root folder is no mount point (a chroot?): bind-mount it on itself before "
			   "entering it");
		return -1;
	}
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return fail_namespace(
		    error, errno, "mount.proc",
		    "mounting /proc of the PID namespace was (it needs a host /proc that "
		    "nothing hides)");
	if (mapped && write_file("/proc/sys/user/max_user_namespaces", "0") < 0) {
		setup_fail(error, ORCH_ESYS, errno, "userns.limit",
			   "user.max_user_namespaces of the scope could not be set to 0");
		return -1;
	}
	return mapped ? limit_user(request, error) : 0;
}

/* The specification's descriptor is done with. NULL with *error. */
static struct confine *load_confinement(const struct setup_request *request, struct setup_error *error)
{
#ifdef ORCH_HAVE_CONFINE
	struct confine *confine = confine_load(request->spec_fd, error);
	close(request->spec_fd);
	return confine;
#else
	(void)request;
	setup_fail(error, ORCH_ENOTSUP, 0, "confine",
		   "this orch-reaper was built without sandboxes: build with -Dsandbox=enabled");
	return NULL;
#endif
}

static int enter_confined(struct confine *confine, const struct setup_request *request, struct host_fds *ret_host,
			  struct setup_error *error)
{
#ifdef ORCH_HAVE_CONFINE
	return confine_enter(confine, request->host_uid, request->control_fd, ret_host, error);
#else
	(void)confine, (void)request, (void)ret_host, (void)error;
	return -1;
#endif
}

static int confine_in_place(struct confine *confine, const struct setup_request *request, struct setup_error *error)
{
#ifdef ORCH_HAVE_CONFINE
	return confine_bare(confine, request->host_uid, error);
#else
	(void)confine, (void)request, (void)error;
	return -1;
#endif
}

/* No namespace: a process of the host's, like its programs. */
static _Noreturn void set_up_supervisor(const struct setup_request *request)
{
	struct setup_error error = {.code = ORCH_ESYS};
	bool confined = request->spec_fd >= 0;
	struct init_opts opts = {
	    .control_fd = request->control_fd,
				 .host = {.listener = -1, .private = -1, .lower = -1},
				 .leaf_fd = -1,
				 .rung = request->rung};

	/* Opened again: the lock belongs to the helper's own. */
	if (request->rung == ORCH_RUNG_CGROUP)
		opts.leaf_fd = openat(request->cgroup_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (request->rung == ORCH_RUNG_CGROUP && opts.leaf_fd < 0) {
		setup_fail(&error, ORCH_ESYS, errno, "cgroup", "the scope's cgroup can not be opened");
		report_and_exit(request->control_fd, &error);
	}
	if (confined && !(opts.confine = load_confinement(request, &error)))
		report_and_exit(request->control_fd, &error);
	close_others(BUT(request->control_fd, opts.leaf_fd));
	if (confined && confine_in_place(opts.confine, request, &error) < 0)
		report_and_exit(request->control_fd, &error);
	if (clone_init(0) < 0)
		setup_fail(&error, ORCH_ESYS, errno, "clone", "the scope's supervisor could not be started");
	else
		init_run(&opts);
	report_and_exit(request->control_fd, &error);
}

/* Without a PID namespace, as a test may ask, init must not take all that it sees for its own. */
static uint32_t init_rung(const struct setup_request *request, const struct confine *confine)
{
#ifdef ORCH_HAVE_CONFINE
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_PIDNS))
		return ORCH_RUNG_SUBREAPER;
#endif
	(void)confine;
	return request->rung;
}

/* In the set-up process, and from supervise_clone_init() on in PID 1. */
static _Noreturn void set_up(const struct setup_request *request)
{
	struct setup_error error = {.code = ORCH_ESYS};
	struct confine *confine = NULL;
	struct host_fds host = {.listener = -1, .private = -1, .lower = -1};
	int result = -1;

	page = request->page;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (limits_join(request->join_fd, &error) < 0)
		report_and_exit(request->control_fd, &error);
	if (request->open_files.rlim_max)
		setrlimit(RLIMIT_NOFILE, &request->open_files);
	if (request->rung < ORCH_RUNG_PIDNS)
		set_up_supervisor(request);
	close_others(BUT(request->control_fd, request->spec_fd));
	/* A helper that hides itself from its load would leave this process no right to its own uid_map. */
	prctl(PR_SET_DUMPABLE, 1);
	if (request->spec_fd < 0) {
		result = enter_plain(request, &error);
	} else {
		confine = load_confinement(request, &error);
		if (confine)
			result = enter_confined(confine, request, &host, &error);
	}
	if (result < 0)
		report_and_exit(request->control_fd, &error);
	init_run(&(struct init_opts){.control_fd = request->control_fd,
				     .host = host,
				     .leaf_fd = -1,
				     .rung = init_rung(request, confine),
				     .confine = confine});
}

int setup_start(const struct setup_request *request, pid_t *ret_pid, int *ret_pidfd)
{
	int pidfd = -1;
	pid_t pid = clone_process(0, SIGCHLD, request->cgroup_fd, &pidfd, NULL);
	if (pid < 0)
		return -errno;
	if (pid == 0)
		set_up(request);
	*ret_pid = pid;
	*ret_pidfd = pidfd;
	return 0;
}
