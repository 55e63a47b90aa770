/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp program. Allowed by default, so that compilers, interpreters and the agents' own
 * programs run; denied is what reaches out of the namespaces, widens the kernel's surface, or gets
 * around the other layers. Calls newer than this list give ENOSYS, as on an older kernel.
 */
#include <asm/unistd.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "../spec.h"
#include "seccomp.h"

/* Numbers from 424 on are the same on every architecture; the highest that was read is
 * Linux 6.18's. */
#define LAST_KNOWN 470
#define LAST_FUTURE 560

/* Calls newer than libseccomp 2.5. */
#define NR_OPEN_TREE_ATTR 467
#define NR_LISTMOUNT 458
#define NR_STATMOUNT 457
#define NR_LISTNS 470

#define LOW 0xffffffffu /* the kernel looks at 32 bits of these arguments */

static const struct seccomp_call kernel_calls[] = {
	/* Keys of the user, of other namespaces too. */
	{SCMP_SYS(add_key), EPERM},
	{SCMP_SYS(keyctl), EPERM},
	{SCMP_SYS(request_key), EPERM},
	/* Goes around this filter: IORING_OP_SOCKET worked where socket() was denied. */
	{SCMP_SYS(io_uring_setup), ENOSYS},
	{SCMP_SYS(io_uring_enter), ENOSYS},
	{SCMP_SYS(io_uring_register), ENOSYS},
	{SCMP_SYS(bpf), EPERM},
	{SCMP_SYS(perf_event_open), EPERM},
	{SCMP_SYS(userfaultfd), EPERM},
	{SCMP_SYS(fanotify_init), EPERM},
	/* ptrace itself stays (debuggers, LeakSanitizer): only the load's own processes are in
	   reach. */
	{SCMP_SYS(process_vm_readv), EPERM},
	{SCMP_SYS(process_vm_writev), EPERM},
	{SCMP_SYS(pidfd_getfd), EPERM},
	/* The machine. */
	{SCMP_SYS(kexec_load), EPERM},
	{SCMP_SYS(kexec_file_load), EPERM},
	{SCMP_SYS(init_module), EPERM},
	{SCMP_SYS(finit_module), EPERM},
	{SCMP_SYS(delete_module), EPERM},
	{SCMP_SYS(reboot), EPERM},
	{SCMP_SYS(swapon), EPERM},
	{SCMP_SYS(swapoff), EPERM},
	{SCMP_SYS(acct), EPERM},
	{SCMP_SYS(quotactl), EPERM},
	{SCMP_SYS(quotactl_fd), EPERM},
	{SCMP_SYS(syslog), EPERM},
	{SCMP_SYS(vhangup), EPERM},
	{SCMP_SYS(settimeofday), EPERM},
	{SCMP_SYS(clock_settime), EPERM},
	{SCMP_SYS(iopl), EPERM},
	{SCMP_SYS(ioperm), EPERM},
	{SCMP_SYS(modify_ldt), EPERM},
	{SCMP_SYS(uselib), ENOSYS},
	{SCMP_SYS(lookup_dcookie), ENOSYS},
	{SCMP_SYS(nfsservctl), ENOSYS},
	{SCMP_SYS(_sysctl), ENOSYS},
	{SCMP_SYS(vserver), ENOSYS},
};

static const struct seccomp_call namespace_calls[] = {
	{SCMP_SYS(setns), EPERM},
	{SCMP_SYS(mount), EPERM},
	{SCMP_SYS(umount2), EPERM},
	{SCMP_SYS(pivot_root), EPERM},
	{SCMP_SYS(chroot), EPERM},
	{SCMP_SYS(fsopen), EPERM},
	{SCMP_SYS(fsconfig), EPERM},
	{SCMP_SYS(fsmount), EPERM},
	{SCMP_SYS(fspick), EPERM},
	{SCMP_SYS(open_tree), EPERM},
	{SCMP_SYS(move_mount), EPERM},
	{SCMP_SYS(mount_setattr), EPERM},
	{NR_OPEN_TREE_ATTR, EPERM},
	{NR_STATMOUNT, ENOSYS},
	{NR_LISTMOUNT, ENOSYS},
	{NR_LISTNS, ENOSYS},
	{SCMP_SYS(name_to_handle_at), EPERM},
	{SCMP_SYS(open_by_handle_at), EPERM},
	/* Its flags are in memory, where a filter can not look: libc falls back to clone. */
	{SCMP_SYS(clone3), ENOSYS},
};

int seccomp_deny(scmp_filter_ctx filter, const struct seccomp_call *denied, size_t count)
{
	int result = 0;

	for (size_t i = 0; result == 0 && i < count; i++) {
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(denied[i].error), denied[i].number,
					  0);
		/* A call that this architecture does not have. */
		if (result == -EDOM || result == -EFAULT ||
		    (result == -EINVAL && denied[i].number < 0))
			result = 0;
	}
	return result;
}

static int deny_kernel(scmp_filter_ctx filter)
{
	return seccomp_deny(filter, kernel_calls, sizeof(kernel_calls) / sizeof(kernel_calls[0]));
}

static int deny_namespaces(scmp_filter_ctx filter)
{
	static const uint64_t flags[] = {CLONE_NEWUSER,	  CLONE_NEWNS,	CLONE_NEWPID,
					 CLONE_NEWNET,	  CLONE_NEWIPC, CLONE_NEWUTS,
					 CLONE_NEWCGROUP, CLONE_NEWTIME};
	int result = seccomp_deny(filter, namespace_calls, sizeof(namespace_calls) / sizeof(namespace_calls[0]));

	for (size_t i = 0; result == 0 && i < sizeof(flags) / sizeof(flags[0]); i++) {
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
					  SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
		/* CLONE_NEWTIME is in the exit signal's bits of clone(). */
		if (result == 0 && flags[i] != CLONE_NEWTIME)
			result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
#if defined(__s390__)
						  SCMP_A1(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
#else
						  SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
#endif
	}
	return result;
}

/* Typing into a terminal that somebody else reads. */
static int deny_terminal_input(scmp_filter_ctx filter)
{
	static const uint64_t requests[] = {TIOCSTI, TIOCLINUX};
	int result = 0;

	for (size_t i = 0; result == 0 && i < 2; i++)
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
					  SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, requests[i]));
	return result;
}

/* Unix, IPv4, IPv6 and netlink's ROUTE (getifaddrs) stay; vsock, packet, alg and the rest go. */
static int deny_sockets(scmp_filter_ctx filter)
{
	const uint64_t last = 63; /* above AF_MAX */
	/* All up to `last` but the four, as few blocks of powers of two: each rule is instructions that every start loads. */
	static const struct {
		uint8_t first, count;
	} denied[] = {{0, 1},  {3, 1},  {4, 4},	 {8, 2},  {11, 1}, {12, 4},
		      {17, 1}, {18, 2}, {20, 4}, {24, 8}, {32, 32}};
	int result = 0;

	for (size_t i = 0; result == 0 && i < sizeof(denied) / sizeof(denied[0]); i++)
		result = seccomp_rule_add(
			filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
			SCMP_A0(SCMP_CMP_MASKED_EQ, LOW & ~(uint64_t)(denied[i].count - 1u), denied[i].first));
	if (result == 0)
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
					  SCMP_A0(SCMP_CMP_GT, last));
	if (result == 0)
		result =
			seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 2,
					 SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_NE, 0));
	if (result == 0)
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT),
					  SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_NE, AF_UNIX));
	return result;
}

/*
 * Before libseccomp's program: calls of this architecture that are newer than the list. As rules of libseccomp they would
 * be a third of the program.
 */
static void add_unknown(struct orch_buf *program)
{
	const struct sock_filter head[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_KNOWN, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_FUTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};

	orch_buf_add(program, head, sizeof(head));
}

static int export_program(scmp_filter_ctx filter, struct orch_buf *ret_program)
{
	char bytes[4096];
	ssize_t n;
	_cleanup_close_ int fd = memfd_create("orch-seccomp", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	int result = seccomp_export_bpf(filter, fd);

	if (result < 0)
		return result;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	add_unknown(ret_program);
	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		orch_buf_add(ret_program, bytes, (size_t)n);
	return n < 0 ? -errno : 0;
}

/* `groups` of it are left out: ORCH_SPEC_WITHOUT_SECCOMP_*; it stands for what is `missing`: SECCOMP_NO_*. */
static int make_filter(uint64_t groups, uint32_t missing, struct orch_buf *ret_program)
{
	static const struct {
		uint64_t group;
		int (*deny)(scmp_filter_ctx filter);
	} parts[] = {
		{ORCH_SPEC_WITHOUT_SECCOMP_KERNEL, deny_kernel},
		{ORCH_SPEC_WITHOUT_SECCOMP_NAMESPACES, deny_namespaces},
		{ORCH_SPEC_WITHOUT_SECCOMP_TERMINALS, deny_terminal_input},
		{ORCH_SPEC_WITHOUT_SECCOMP_SOCKETS, deny_sockets},
	};
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int result;

	if (!filter)
		return -ENOMEM;
	/* Other architectures' calls (i386, x32) would need a list of their own. */
	result = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	if (result == 0)
		result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (size_t i = 0; result == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!(parts[i].group & groups))
			result = parts[i].deny(filter);
	if (result == 0 && missing)
		result = seccomp_deny_missing(filter, missing);
	if (result == 0)
		result = export_program(filter, ret_program);
	seccomp_release(filter);
	return result == 0 && ret_program->failed ? -ENOMEM : result;
}

/* libseccomp needs a millisecond for it, and it is the same for every sandbox. */
static struct shared_program {
	bool made;
	int result;
	struct orch_buf bytes;
} programs[SECCOMP_PROGRAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int32_t fail_filter(int result, orch_error **reterr)
{
	return orch_fail(reterr, result == -ENOMEM ? ORCH_ENOMEM : ORCH_ESYS, -result, "seccomp",
			 "the filter can not be made");
}

int32_t orch_sandbox_filter_without(uint64_t groups, struct orch_buf *ret_program, orch_error **reterr)
{
	int result = make_filter(groups, 0, ret_program);

	return result < 0 ? fail_filter(result, reterr) : 0;
}

int32_t orch_sandbox_filter(uint32_t missing, const void **ret_program, size_t *ret_length, orch_error **reterr)
{
	struct shared_program *shared = &programs[missing];

	pthread_mutex_lock(&lock);
	if (!shared->made)
		shared->result = make_filter(missing ? ORCH_SPEC_WITHOUT_SECCOMP_SOCKETS : 0, missing, &shared->bytes);
	shared->made = true;
	pthread_mutex_unlock(&lock);
	if (shared->result < 0)
		return fail_filter(shared->result, reterr);
	*ret_program = shared->bytes.data;
	*ret_length = shared->bytes.length;
	return 0;
}
