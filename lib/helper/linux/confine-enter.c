/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the helper's privileges to PID 1 of the new namespaces. Order matters:
 *
 * as root      host paths are opened with root's rights, then the uid changes, then the user
 * namespace is made: no process inside, and no owner of a namespace, is uid 0 outside as a user
 * user and mount namespace come first, because binding a path needs CAP_SYS_ADMIN in them
 * in PID 1     a thread builds and enters the root while the network is made and the filter is loaded, which does not bind
 * that thread; then Landlock's domain, no capability, no descriptor
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine-private.h"

/* --- identity ------------------------------------------------------------------------------- */

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t n = write(fd, text, strlen(text));
	int err = errno;

	close(fd);
	errno = err;
	return n < 0 ? -1 : 0;
}

static int change_uid(uid_t uid, struct setup_error *error)
{
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		return confine_fail(
			error, ORCH_ESYS, errno, "uid",
			"the set-up can not change to uid %u (CAP_SETUID and CAP_SETGID needed)",
			uid);
	/* The change made us undumpable, and then the maps below belong to root. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "uid", "PR_SET_DUMPABLE");
	return 0;
}

static int no_user_namespace(int err, struct setup_error *error)
{
	char cause[160] =
		"forbidden by a security module or a container's filter: allow it for orch-reaper";
	char text[32] = "";
	static const char *const switches[] = {"/proc/sys/user/max_user_namespaces",
					       "/proc/sys/kernel/unprivileged_userns_clone"};

	if (err == EINVAL)
		snprintf(cause, sizeof(cause), "the kernel lacks CONFIG_USER_NS");
	for (size_t i = 0; i < 2; i++) {
		int fd = open(switches[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		ssize_t n = read(fd, text, sizeof(text) - 1);

		close(fd);
		if (n > 0 && strtoul(text, NULL, 10) == 0)
			snprintf(cause, sizeof(cause), "sysctl %s is 0: raise it",
				 i == 0 ? "user.max_user_namespaces"
					: "kernel.unprivileged_userns_clone");
	}
	return confine_fail(
		error, ORCH_EUNENFORCEABLE, err, "userns",
		"no user namespace can be made, and without one nothing can be isolated (%s)",
		cause);
}

/*
 * Root of a user namespace has no rights in the mount namespace that he found there. Where he has them nothing is
 * changed in it: what is mounted before the user namespace is made stays detached.
 */
static int own_mount_namespace(struct setup_error *error)
{
	int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

	if (fs >= 0)
		close(fs);
	if (fs >= 0 || errno != EPERM || unshare(CLONE_NEWNS) == 0)
		return 0;
	return confine_fail(
		error, ORCH_EUNENFORCEABLE, errno, "mountns",
		"root can not make a mount namespace (a container without CAP_SYS_ADMIN?): add the "
		"capability, or run as an ordinary user who may make user namespaces");
}

static int make_userns(uid_t uid, gid_t gid, struct setup_error *error)
{
	char map[64];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return no_user_namespace(errno, error);
	if (write_text("/proc/self/setgroups", "deny") < 0)
		return confine_fail(error, ORCH_ESYS, errno, "userns.map", "/proc/self/setgroups");
	snprintf(map, sizeof(map), "%u %u 1\n", ORCH_SPEC_INNER_ID, gid);
	if (write_text("/proc/self/gid_map", map) < 0)
		return confine_fail(error, ORCH_EUNENFORCEABLE, errno, "userns.map",
				    "gid %u can not be mapped", gid);
	snprintf(map, sizeof(map), "%u %u 1\n", ORCH_SPEC_INNER_ID, uid);
	if (write_text("/proc/self/uid_map", map) < 0)
		return confine_fail(error, ORCH_EUNENFORCEABLE, errno, "userns.map",
				    "uid %u can not be mapped", uid);
	/*
	 * Nothing that is mounted here may reach the host, nothing of the host's may appear here.
	 * It is also the first act that needs a capability, and some distributions give none in
	 * such a namespace.
	 */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return confine_fail(error, ORCH_EUNENFORCEABLE, errno, "userns.rights",
				    "the user namespace gives no right to mount: where AppArmor "
				    "restricts them, set "
				    "sysctl kernel.apparmor_restrict_unprivileged_userns to 0, or load the "
				    "profile of contrib/apparmor (build with -Dapparmor=enabled, then "
				    "apparmor_parser -r /etc/apparmor.d/orch-reaper)");
	return 0;
}

/* --- in PID 1 ------------------------------------------------------------------------------- */

/* They are of the new user namespace, which may make them; what can be missing is the kernel's, or room. */
static int no_namespaces(int os_errno, struct setup_error *error)
{
	if (os_errno == ENOSPC)
		return confine_fail(error, ORCH_EUNENFORCEABLE, os_errno, "namespaces",
				    "no more namespaces can be made: raise the sysctls user.max_*_namespaces");
	if (os_errno == EINVAL || os_errno == EPERM)
		return confine_fail(error, ORCH_EUNENFORCEABLE, os_errno, "namespaces",
				    "PID, network, IPC, UTS or cgroup namespaces can not be made: the kernel lacks "
				    "them, or a container's filter forbids them");
	return confine_fail(error, ORCH_ESYS, os_errno, "namespaces", "the namespaces can not be made");
}

/* The loopback, and the broker's port. */
static int net_up(struct confine *confine, struct setup_error *error)
{
	struct ifreq request = {.ifr_name = "lo"};
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(ORCH_BROKER_PORT),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
		goto fail;
	request.ifr_flags |= IFF_UP | IFF_RUNNING;
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		goto fail;
	if (confine->header->net != ORCH_NET_BROKER) {
		close(fd);
		return 0;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, SOMAXCONN) < 0)
		goto fail;
	confine->listener_fd = fd;
	return 0;
fail:
	setup_fail(error, ORCH_ESYS, errno, "net", "the loopback network can not be set up");
	if (fd >= 0)
		close(fd);
	return -1;
}

static int make_network(struct confine *confine, struct setup_error *error)
{
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_NETNS))
		return 0;
	return unshare(CLONE_NEWNET) < 0 ? no_namespaces(errno, error) : net_up(confine, error);
}

/* Before the host's /proc goes away. The sysctl belongs to the user namespace of the process that
 * writes it. */
static int no_nested_userns(const struct confine *confine, struct setup_error *error)
{
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_NESTING))
		return 0;
	if (write_text("/proc/sys/user/max_user_namespaces", "0") == 0)
		return 0;
	return confine_fail(
		error, ORCH_EUNENFORCEABLE, errno, "userns.nested",
		"nested user namespaces can not be forbidden: /proc/sys/user has to be writable");
}

int confine_bound_capabilities(const struct confine *confine, struct setup_error *error)
{
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
				   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	if (!confine_leaves_out(confine, ORCH_SPEC_WITHOUT_SECUREBITS) &&
	    prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "capabilities",
				    "the secure bits can not be set");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "no_new_privs",
				    "no_new_privs can not be set");
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_CAPABILITIES))
		return 0;
	for (int capability = 0; capability < 64; capability++)
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) {
			if (errno == EINVAL && capability > 0)
				break; /* past the last one of this kernel */
			return confine_fail(error, ORCH_ESYS, errno, "capabilities",
					    "capability %d can not be dropped", capability);
		}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "capabilities",
				    "the ambient capabilities can not be dropped");
	return 0;
}

int confine_drop_capabilities(const struct confine *confine, struct setup_error *error)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (!confine_leaves_out(confine, ORCH_SPEC_WITHOUT_CAPABILITIES) && syscall(SYS_capset, &header, none) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "capabilities",
				    "the capabilities can not be dropped");
	return 0;
}

static int set_hostname(const struct confine *confine, struct setup_error *error)
{
	const char *name = confine->strings + confine->header->hostname;

	if (!confine_leaves_out(confine, ORCH_SPEC_WITHOUT_UTSNS) &&
	    sethostname(name, strnlen(name, 63)) < 0)
		return confine_fail(error, ORCH_ESYS, errno, "uts", "the host name can not be set");
	return 0;
}

/* What needs no path. The filter is last: it lets this process do what is left to do. */
static int make_others(struct confine *confine, struct setup_error *error)
{
	if (make_network(confine, error) < 0 || set_hostname(confine, error) < 0 ||
	    confine_bound_capabilities(confine, error) < 0 || confine_keyring(confine, error) < 0)
		return -1;
	return confine_inherited(confine, error);
}

/*
 * Afterwards root, network and keyring are the sandbox's, filter and Landlock are on, and no other thread is left, whom the
 * filter would not bind; the capabilities are there.
 */
static int build_all(struct confine *confine, struct setup_error *error)
{
	struct confine_beside beside;
	struct setup_error other;

	if (no_nested_userns(confine, error) < 0)
		return -1;
	confine_beside_begin(&beside, confine);
	int result = make_others(confine, error);

	if (confine_beside_end(&beside, &other) < 0 && result == 0) {
		*error = other;
		result = -1;
	}
	if (result == 0 && confine->ruleset_fd >= 0)
		result = confine_landlock_enter(confine->ruleset_fd, error);
	if (confine->ruleset_fd >= 0)
		close(confine->ruleset_fd);
	confine->ruleset_fd = -1;
	return result;
}

static int become_init(struct confine *confine, int control_fd, struct host_fds *ret_host,
		       struct setup_error *error)
{
	if (build_all(confine, error) < 0 || confine_drop_capabilities(confine, error) < 0)
		return -1;
	if (!confine_leaves_out(confine, ORCH_SPEC_WITHOUT_CLOSING))
		close_others(BUT(control_fd, confine->listener_fd, confine->private_fd, confine->lower_fd));
	*ret_host = (struct host_fds){.listener = confine->listener_fd,
				      .private = confine->private_fd,
				      .lower = confine->lower_fd};
	return 0;
}

static uint64_t namespaces_of(const struct confine *confine)
{
	static const struct {
		uint64_t protection, flag;
	} namespaces[] = {
		{ORCH_SPEC_WITHOUT_PIDNS, CLONE_NEWPID},
		{ORCH_SPEC_WITHOUT_IPCNS, CLONE_NEWIPC},
		{ORCH_SPEC_WITHOUT_UTSNS, CLONE_NEWUTS},
		{ORCH_SPEC_WITHOUT_CGROUPNS, CLONE_NEWCGROUP},
	};
	uint64_t flags = 0;

	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
		if (!confine_leaves_out(confine, namespaces[i].protection))
			flags |= namespaces[i].flag;
	return flags;
}

int confine_enter(struct confine *confine, uint32_t host_uid, int control_fd,
		  struct host_fds *ret_host,
		  struct setup_error *error)
{
	if (confine_leaves_out(confine, ORCH_SPEC_WITHOUT_OWN_UID))
		host_uid = geteuid();
	bool as_root = geteuid() == 0 && host_uid != 0;
	gid_t gid = as_root ? host_uid : getegid();

	if (!confine_leaves_out(confine, ORCH_SPEC_WITHOUT_UMASK))
		umask(022);
	if (!as_root && host_uid != geteuid())
		return confine_fail(error, ORCH_EINVAL, 0, "uid", "uid %u can not become uid %u",
				    geteuid(), host_uid);
	if (as_root &&
	    (own_mount_namespace(error) < 0 || confine_private_make(confine, host_uid, error) < 0 ||
	     confine_trees_open(confine, host_uid, error) < 0 ||
	     change_uid(host_uid, error) < 0))
		return -1;
	if (make_userns(host_uid, gid, error) < 0)
		return -1;
	if (!as_root && (confine_private_make(confine, 0, error) < 0 || confine_trees_open(confine, 0, error) < 0))
		return -1;
	if (supervise_clone_init(namespaces_of(confine), control_fd) < 0)
		return no_namespaces(errno, error);
	return become_init(confine, control_fd, ret_host, error);
}
