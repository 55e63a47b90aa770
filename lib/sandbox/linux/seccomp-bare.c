/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands for namespaces, and for rights that an older Landlock lacks. Paths can not be judged here: what Landlock does
 * not know of them (modes, times and attributes of files outside that are the user's own) stays open, and the report says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "seccomp.h"

#define LOW 0xffffffffu /* the kernel looks at 32 bits of these arguments */
/* linux/ioprio.h; not in Debian 12's libc headers. */
#define WHO_USER 3
/* asm-generic/fcntl.h; F_SETSIG chooses the signal that F_SETOWN's process gets. */
#define SETOWN 8
#define SETSIG 10
#define SETOWN_EX 15

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Landlock has no rule for a socket's path before its newest ABI, and there is no network namespace: no socket at all. */
static const struct seccomp_call of_namespaces[] = {
	{SCMP_SYS(socket), EACCES},
	{SCMP_SYS(connect), EACCES},
	{SCMP_SYS(bind), EACCES},
	{SCMP_SYS(listen), EACCES},
	/* The host's IPC namespace. */
	{SCMP_SYS(ipc), EPERM},
	{SCMP_SYS(shmget), EPERM},
	{SCMP_SYS(shmat), EPERM},
	{SCMP_SYS(shmctl), EPERM},
	{SCMP_SYS(msgget), EPERM},
	{SCMP_SYS(msgsnd), EPERM},
	{SCMP_SYS(msgrcv), EPERM},
	{SCMP_SYS(msgctl), EPERM},
	{SCMP_SYS(semget), EPERM},
	{SCMP_SYS(semop), EPERM},
	{SCMP_SYS(semtimedop), EPERM},
	{SCMP_SYS(semctl), EPERM},
	{SCMP_SYS(mq_open), EPERM},
	{SCMP_SYS(mq_unlink), EPERM},
};

/* Of another process: the first argument says which, and 0 is the caller. */
static const int of_others[] = {
	SCMP_SYS(prlimit64),      SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_setscheduler),
	SCMP_SYS(sched_setparam), SCMP_SYS(sched_setattr),     SCMP_SYS(migrate_pages),
	SCMP_SYS(move_pages),
};

/*
 * A stream's or a packet stream's pair is connected for ever. A datagram's could be connected again, or sent from, to any
 * socket of the host; SOCK_RAW is another name of it.
 */
static int deny_datagram_pairs(scmp_filter_ctx filter)
{
	int result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socketpair), 1,
				      SCMP_A0(SCMP_CMP_NE, AF_UNIX));

	for (uint64_t type = 0; result == 0 && type < 16; type++)
		if (type != SOCK_STREAM && type != SOCK_SEQPACKET)
			result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socketpair), 1,
						  SCMP_A1(SCMP_CMP_MASKED_EQ, 15, type));
	return result;
}

static int deny_others(scmp_filter_ctx filter)
{
	static const struct {
		int call;
		uint64_t user;
	} priorities[] = {{SCMP_SYS(setpriority), PRIO_USER}, {SCMP_SYS(ioprio_set), WHO_USER}};
	int result = 0;

	for (size_t i = 0; result == 0 && i < COUNT(of_others); i++)
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), of_others[i], 1, SCMP_A0(SCMP_CMP_NE, 0));
	/* 0 of a user is all that he runs. */
	for (size_t i = 0; result == 0 && i < COUNT(priorities); i++) {
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), priorities[i].call, 1,
					  SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, priorities[i].user));
		if (result == 0)
			result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), priorities[i].call, 1,
						  SCMP_A1(SCMP_CMP_NE, 0));
	}
	return result;
}

/* truncate() by path, and open() that empties what it opens for reading only (3: for neither). */
static int deny_truncate(scmp_filter_ctx filter)
{
	static const struct seccomp_call calls[] = {
		{SCMP_SYS(truncate), EACCES}, {SCMP_SYS(truncate64), EACCES},
		{SCMP_SYS(openat2), ENOSYS}, /* its flags are in memory */
	};
	static const uint64_t modes[] = {O_RDONLY, O_ACCMODE};
	int result = seccomp_deny(filter, calls, COUNT(calls));

	for (size_t i = 0; result == 0 && i < COUNT(modes); i++) {
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(open), 1,
					  SCMP_A1(SCMP_CMP_MASKED_EQ, O_TRUNC | O_ACCMODE, O_TRUNC | modes[i]));
		if (result == -EDOM || result == -EFAULT)
			result = 0;
		if (result == 0)
			result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(openat), 1,
						  SCMP_A2(SCMP_CMP_MASKED_EQ, O_TRUNC | O_ACCMODE,
							  O_TRUNC | modes[i]));
	}
	return result;
}

/*
 * The load has the uid of the host application and of all else that its user runs, and a filter can not tell one pid from
 * another. So only the own process group can be signalled: a shell that ends its jobs one by one can not, and what uses
 * signals between threads (abort(), pthread_kill()) fails. The other choice would be a load that may kill its supervisor
 * and its host.
 */
static int deny_signals(scmp_filter_ctx filter)
{
	static const struct seccomp_call calls[] = {
		{SCMP_SYS(tkill), EPERM},
		{SCMP_SYS(tgkill), EPERM},
		{SCMP_SYS(rt_sigqueueinfo), EPERM},
		{SCMP_SYS(rt_tgsigqueueinfo), EPERM},
		{SCMP_SYS(pidfd_send_signal), EPERM},
	};
	static const uint64_t owners[] = {SETOWN, SETOWN_EX, SETSIG}, requests[] = {FIOSETOWN, SIOCSPGRP};
	int result = seccomp_deny(filter, calls, COUNT(calls));

	if (result == 0)
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(kill), 1, SCMP_A0(SCMP_CMP_NE, 0));
	for (size_t i = 0; result == 0 && i < COUNT(owners); i++)
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fcntl), 1,
					  SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, owners[i]));
	for (size_t i = 0; result == 0 && i < COUNT(requests); i++)
		result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
					  SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, requests[i]));
	return result;
}

int seccomp_deny_missing(scmp_filter_ctx filter, uint32_t missing)
{
	int result = seccomp_deny(filter, of_namespaces, COUNT(of_namespaces));

	if (result == 0)
		result = deny_datagram_pairs(filter);
	if (result == 0)
		result = deny_others(filter);
	if (result == 0 && missing & SECCOMP_NO_TRUNCATE_RIGHT)
		result = deny_truncate(filter);
	if (result == 0 && missing & SECCOMP_NO_SIGNAL_SCOPE)
		result = deny_signals(filter);
	return result;
}
