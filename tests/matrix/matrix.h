/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_MATRIX_H
#define TEST_MATRIX_H

/*
 * The channel matrix: every way out of a sandbox, and what has to work inside all the same, as one table. `matrix-attempt`
 * makes the attempts, inside and outside, and `test-matrix` judges: what is refused inside has to succeed outside, at the
 * same live target and in the same run.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../../lib/sandbox/spec.h"

/* What an attempt came to. errno says why it was denied. */
#define SUCCEEDED 0
#define DENIED 1
#define UNTRIED 2
/* And what only the program that runs it can tell. */
#define KILLED 3
#define UNSEEN 4

/* A row that is not ALLOWED is refused. */
#define ALLOWED 1u
/* Not every machine or kernel has it outside either: then it is not counted. */
#define MAY_LACK 2u
/* Its target is one that only root can make. */
#define MADE_BY_ROOT 4u
/* Tried with all protections only: it takes long, and none that is missing would turn it. */
#define LONG 8u

struct row {
	const char *name;
	int (*attempt)(const struct row *row);
	const char *text; /* of a path, see expand() */
	long a, b;
	uint32_t flags;
	/* Protections (ORCH_SPEC_WITHOUT_*): it turns the other way without any one of `sole` (and of `sole_of_root` where
	 * root started it), and without all of `shared` at once. */
	uint64_t sole, sole_of_root, shared;
	int landlock; /* Landlock is one of `shared` from this version of its ABI on */
};

/* The targets, and where the attempt is made. */
struct place {
	bool inside;
	char base[64];	 /* what lives as long as the test */
	char folder[96]; /* what lives as long as the sandbox: the files outside, and what begins with its name */
	int victim;	 /* a process of the load's uid outside */
	unsigned long secret; /* an address of it */
	int tcp, tcp6, udp;   /* its ports */
	int key;	      /* of its System V objects */
	char hostname[65];
};

extern struct place place;

#define PLACE_FORMAT "%63s %95s %d %lx %d %d %d %d %64s"

static inline bool place_read(const char *text)
{
	return sscanf(text, PLACE_FORMAT, place.base, place.folder, &place.victim, &place.secret, &place.tcp, &place.tcp6,
		      &place.udp, &place.key, place.hostname) == 9;
}

static inline void place_write(char *text, size_t size)
{
	snprintf(text, size, "%s %s %d %lx %d %d %d %d %s", place.base, place.folder, place.victim, place.secret, place.tcp,
		 place.tcp6, place.udp, place.key, place.hostname);
}

/* The random part of the folder's name, which names what is no file. */
static inline const char *place_name(void)
{
	return strrchr(place.folder, '/') + 1;
}

static inline int tried(bool succeeded)
{
	return succeeded ? SUCCEEDED : DENIED;
}

/*
 * %P the files outside, %W the workspace, %R a folder that is only readable, %X one with programs to run, %D one with a
 * device, %T the folder for temporary files, %V the victim's number, %I that of the
 * scope's init, for which the victim stands outside. In one of a few buffers.
 */
const char *expand(const char *text);

/*
 * One of `shared` that no test leaves out: the user namespace (nobody inside has a right in one of the host's, or may look
 * into a process of another one), the border between two mounts, close-on-exec, what is empty in each sandbox's beginning.
 */
#define STAYS (1ull << 63)

extern const struct row rows[];
extern const unsigned row_count;

int attempt_file(const struct row *row);
enum file_attempt {
	FILE_READ,
	FILE_WRITE,
	FILE_STAT,
	FILE_ACCESS,
	FILE_LIST,
	FILE_LINK,
	FILE_RENAME,
	FILE_TRUNCATE,
	FILE_GETXATTR,
	FILE_SETXATTR,
	FILE_EXEC,
	FILE_GAIN, /* run it: does it get rights? */
	FILE_CHMOD,
	FILE_CHOWN,
	FILE_UTIMES,
	FILE_READLINK,
	FILE_CHDIR,
	FILE_WATCH,
	FILE_CREATE,
	FILE_MKDIR,
	FILE_SYMLINK,
	FILE_FIFO,
	FILE_NODE,
	FILE_PATH, /* O_PATH */
	FILE_STATFS,
	FILE_REOPEN, /* a descriptor for reading becomes one for writing */
	FILE_UP,     /* by `..` from a descriptor */
	FILE_LOCK,
	FILE_TMPFILE,
	FILE_SOCKET,
};

/* processes.c */
int attempt_signal(const struct row *row);
int attempt_pidfd(const struct row *row);
int attempt_trace(const struct row *row);
int attempt_memory_of(const struct row *row);
int attempt_limits_of(const struct row *row);
int attempt_schedule_of(const struct row *row);
int attempt_inherited(const struct row *row);
int attempt_session(const struct row *row);
int attempt_environment(const struct row *row);
int attempt_umask(const struct row *row);
int attempt_cwd(const struct row *row);
int attempt_fork_many(const struct row *row);
int attempt_open_many(const struct row *row);
int attempt_fill(const struct row *row);
int attempt_core(const struct row *row);
int attempt_cgroup(const struct row *row);
int attempt_bounding(const struct row *row);
int attempt_keep_capabilities(const struct row *row);
/* What the process that makes the attempts found when it began. */
void remember_beginning(void);

/* network.c */
int attempt_tcp(const struct row *row);
int attempt_udp(const struct row *row);
int attempt_unix(const struct row *row);
int attempt_socket(const struct row *row);
int attempt_interfaces(const struct row *row);
int attempt_hostname(const struct row *row);
int attempt_sysv(const struct row *row);
int attempt_queue(const struct row *row);
int attempt_shm(const struct row *row);

/* kernel.c */
int attempt_call(const struct row *row);
int attempt_unshare(const struct row *row);
int attempt_clone(const struct row *row);
int attempt_clone3(const struct row *row);
int attempt_mount(const struct row *row);
int attempt_setns(const struct row *row);
int attempt_terminal(const struct row *row);
int attempt_key(const struct row *row);
int attempt_ring(const struct row *row);
int attempt_i386(const struct row *row);
int attempt_ldt(const struct row *row);
int attempt_time(const struct row *row);
int attempt_log(const struct row *row);

/* own.c: what has to work */
int attempt_shell(const struct row *row);
int attempt_own(const struct row *row);
/* own-files.c, own-ipc.c, own-processes.c: by the row's name */
int attempt_own_file(const struct row *row);
int attempt_own_ipc(const struct row *row);
int attempt_own_process(const struct row *row);
enum own_attempt {
	OWN_FORK,
	OWN_THREAD,
	OWN_PIPE,
	OWN_PASS_FD,
	OWN_SIGNAL,
	OWN_GROUP,
	OWN_PIDFD,
	OWN_TRACE,
	OWN_PTY,
	OWN_INOTIFY,
	OWN_EPOLL,
	OWN_MEMFD,
	OWN_MMAP_EXEC,
	OWN_TCP,
	OWN_TCP6,
	OWN_UDP,
	OWN_ABSTRACT,
	OWN_SHM,
	OWN_SEM,
	OWN_MSG,
	OWN_QUEUE,
	OWN_LIMIT,
	OWN_NICE,
	OWN_AFFINITY,
	OWN_TIMER,
	OWN_MLOCK,
	OWN_SECCOMP,
	OWN_LANDLOCK,
	OWN_NAME,
	OWN_COPY,
	OWN_RANDOM,
	OWN_USER,
};

/* processes.c: for its signals, and to be ended with SIGKILL. */
pid_t child_that_waits(void);

#endif
