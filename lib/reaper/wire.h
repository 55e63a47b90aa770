/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_WIRE_H
#define ORCH_WIRE_H

/*
 * The messages between host, orch-reaper and a scope's init: fixed little-endian frames, one per
 * SOCK_SEQPACKET message where the system has that, file descriptors by SCM_RIGHTS and only with the
 * types that have some. Larger things (argv, envp, a confinement) travel in sealed memfds. Compiled
 * into the library and into orch-reaper.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Raised with every change of a frame or of a message's meaning. */
#define WIRE_VERSION 5u

#define WIRE_FDS_MAX 4
#define WIRE_STEP_MAX 64
#define WIRE_TEXT_MAX 1024
#define WIRE_NUMBERS 8
/* SCOPE_UP */
#define WIRE_UP_START_TIME (WIRE_NUMBERS - 2)
#define WIRE_UP_PIDFS_INODE (WIRE_NUMBERS - 1)
#define WIRE_FRAME_SIZE (36u + 8u * WIRE_NUMBERS + WIRE_STEP_MAX + WIRE_TEXT_MAX)

/* argv, envp and cwd together, with their terminating NULs. */
#define WIRE_STRINGS_MAX (1024u * 1024u)

enum wire_type {
	/* Both ways, first. text: the sender's version. From the host: fd its pidfd; without pidfds value: its pid. */
	WIRE_HELLO = 1,

	/* Host to helper. */
	/* step: the name; value: least rung; number: set-up timeout in ms, uid of the load, best rung (0: any), limits:
	 * bytes of memory, processes, percent of a processor, wall time in ms; ORCH_LIMIT_* that are required.
	 * WIRE_CONFINED: fd the specification. */
	WIRE_SCOPE_NEW,
	/* number: grace in ms, deadline in ms, time of the request (CLOCK_MONOTONIC us,
	   CLOCK_REALTIME ms), 1 + how many were alive besides init (0: the helper counts). Without grace the host may
	   have killed them by the time it is read. */
	WIRE_STOP,

	/* Host to helper to init. `subject` is the host's number for the program or connection. */
	/* number: argc, envc; text: a probe's name (WIRE_PROBE); fds: strings, stdin, stdout,
	   stderr. */
	WIRE_SPAWN,
	WIRE_SIGNAL,  /* value: the signal */
	WIRE_CONNECT, /* value: the port */

	/* Helper to init. */
	WIRE_TERMINATE, /* SIGTERM to everybody; WIRE_EMPTY when nobody is left */
	WIRE_SWEEP,	/* to a supervisor: end all descendants; WIRE_EMPTY when none is left, and it ends */

	/* Set-up process or init to helper. */
	/* number: inode of the PID namespace; fds, in this order: with WIRE_LISTENER the listener, with WIRE_PRIVATE the root of
	 * the private file system, with WIRE_LOWER the folder on the host that an overlay lies over, with WIRE_PROC the
	 * scope's /proc. */
	WIRE_READY,
	WIRE_SETUP_FAILED, /* code, os_errno, step, text */
	WIRE_EMPTY,

	/* Init to helper to host. */
	WIRE_STARTED,	/* value: pid inside */
	WIRE_FAILED,	/* code, os_errno, step, text */
	WIRE_EXITED,	/* value: exit code, or -1; code: signal, or 0 */
	WIRE_CONNECTED, /* code 0: fd the socket; else code, os_errno, text */

	/* Helper to host. */
	/* value: host pid of init; number: rung, inode of the PID namespace; the last two: init's start time in ticks,
	 * its pidfd's inode on pidfs; text: cgroup or "";
	 * fds: pidfd of init and those of READY but /proc, with their flags. With WIRE_LINEAGE neither init nor fds. */
	WIRE_SCOPE_UP,
	WIRE_SCOPE_FAILED, /* code, os_errno, step, text */
	WIRE_SURVIVOR,	   /* value: pid; number: start time in ticks; step: state; text: wchan */
	/* value: verdict; flags: WIRE_DEATH_*; number: last death and confirmation (us after the
	 * request), alive at the request, request (CLOCK_REALTIME ms), inode of the PID namespace;
	 * text: reason. */
	WIRE_DEATH,
	WIRE_NOTE, /* text: for the log */
	/* Before SCOPE_UP, one for each that was asked for. value: ORCH_LIMIT_MEMORY and so on; code: ORCH_LIMIT_ENFORCED
	 * and so on; text: the mechanism, or the cause of its absence. */
	WIRE_LIMIT,
	WIRE_TYPES
};

/* Flags, by type. */
#define WIRE_CONFINED 1u    /* SCOPE_NEW */
#define WIRE_LISTENER 1u    /* READY, SCOPE_UP */
#define WIRE_PROC 4u	    /* READY */
#define WIRE_PRIVATE 8u	    /* READY, SCOPE_UP */
#define WIRE_LOWER 16u	    /* READY, SCOPE_UP */
#define WIRE_LINEAGE 2u     /* SCOPE_UP: no closed set, the members are found by descent */
#define WIRE_LEADER 1u	    /* SPAWN */
#define WIRE_PROBE 2u	    /* SPAWN */
#define WIRE_ENVIRONMENT 4u /* SPAWN: envp was given */
#define WIRE_CWD 8u	    /* SPAWN: cwd was given */
#define WIRE_TERMINAL 16u   /* SPAWN: stdin is to control its session; shifted by 1, 2: stdout, stderr */

/* EXITED, from helper to host: it ended after its scope's limit had struck, or while its scope was stopped. */
#define WIRE_EXIT_MEMORY 1u
#define WIRE_EXIT_TIME 2u
#define WIRE_EXIT_STOPPED 4u

#define WIRE_DEATH_TERMINATED 1u    /* SIGTERM was tried first */
#define WIRE_DEATH_CGROUP_KILL 2u   /* cgroup.kill was written */
#define WIRE_DEATH_INIT_KILLED 4u   /* SIGKILL to init by pidfd */
#define WIRE_DEATH_INIT_REAPED 8u   /* waitid() on init returned: its PID namespace is empty */
#define WIRE_DEATH_CGROUP_EMPTY 16u /* cgroup.events said populated 0 */
#define WIRE_DEATH_CGROUP_GONE 32u  /* rmdir of the leaf */
#define WIRE_DEATH_NEVER_STOOD 64u  /* ended in set-up: no program was started */
#define WIRE_DEATH_SELF 128u	    /* init ended before anybody asked */
#define WIRE_DEATH_LINEAGE_KILLED 256u /* SIGKILL to all known descendants and their process groups */
#define WIRE_DEATH_UID_KILLED 512u     /* SIGKILL to every process of the scope's own uid, by one of them */
#define WIRE_DEATH_UID_EMPTY 1024u     /* twice in a row no process had the scope's own uid */
#define WIRE_DEATH_TIME 0x10000u	/* its time limit was over */
#define WIRE_DEATH_MEMORY 0x20000u	/* the kernel killed in it, and its own memory limit was reached */
#define WIRE_DEATH_HOST_MEMORY 0x40000u /* the kernel killed in it for want of memory outside of it */
#define WIRE_DEATH_THAWED 0x100000u    /* members were in a frozen cgroup (v1), which was thawed */
#define WIRE_DEATH_UNUSED 2048u	       /* it stood, and no program was started */
#define WIRE_DEATH_SWEPT 0x1000u       /* by descent: SIGKILL to the supervisor's children, SIGSTOP to theirs, until none was left */
#define WIRE_DEATH_CHILDLESS 0x2000u   /* the supervisor had no child any more, dead or alive */
#define WIRE_DEATH_ADOPTED 0x4000u     /* the supervisor ended first: its descendants became the helper's, which killed them */
#define WIRE_DEATH_LEFT 0x8000u	       /* descendants were found outside of the scope's cgroup, and killed */

/* The reason of a verdict where the members are what descends from a supervisor (Linux). */
#define WIRE_BY_SUBREAPER                                                                          \
	"descent can be left: a program that enters a foreign PID namespace of its user (setns) and forks twice has " \
	"another parent; every descendant that was found is dead"

/* By recovery only: leftover.h. */
#define WIRE_DEATH_RECOVERED 0x1000000    /* the host that had it is dead */
#define WIRE_DEATH_ANOTHER_BOOT 0x2000000 /* the machine was started again since */
#define WIRE_DEATH_INIT_GONE 0x4000000    /* the recorded init is a zombie or gone, by its identity */
#define WIRE_DEATH_HELPER_GONE 0x8000000  /* and nothing of a set-up is left */

/* The reason of a verdict where members are found by descent. */
#define WIRE_BY_DESCENT                                                                            \
	"lineage can be left: a descendant that began a session of its own while its parent ended can not be found " \
	"on this system; every one that was found is dead"

struct wire_message {
	uint16_t type;
	uint32_t flags;
	uint32_t scope;
	uint32_t subject;
	int32_t code;
	int32_t os_errno;
	int32_t value;
	uint64_t number[WIRE_NUMBERS];
	char step[WIRE_STEP_MAX];
	char text[WIRE_TEXT_MAX];
};

/* A message with its descriptors, which belong to it: wire_packet_close(). */
struct wire_packet {
	struct wire_message message;
	int fds[WIRE_FDS_MAX];
	uint32_t fd_count;
	struct wire_packet *next;
};

struct wire_packet wire_packet(enum wire_type type, uint32_t scope, uint32_t subject);
/* Truncating copy into step or text. */
void wire_copy(char *field, size_t size, const char *value);
void wire_packet_close(struct wire_packet *packet);

/* The parser: bytes in, bytes out. */
void wire_encode(const struct wire_message *message, uint32_t fd_count,
		 uint8_t frame[WIRE_FRAME_SIZE]);
/* Some descriptors were lost on the way: their number is not compared. */
#define WIRE_ANY_FDS 0xffffu
/* 0, -EPROTO, or -EPROTONOSUPPORT for a frame of another wire version. */
int wire_decode(const uint8_t *frame, size_t length, uint32_t fd_count,
		struct wire_message *message);

/* What a socket without message borders has delivered of a frame so far. Zero-initialise. */
struct wire_inbox {
	uint8_t frame[WIRE_FRAME_SIZE];
	size_t length;
	int fds[WIRE_FDS_MAX];
	uint32_t fd_count;
	bool lost_fds;
};

/*
 * I/O (wire-socket.c of the system). 0 or a negative errno. wire_send() leaves the packet's fds open;
 * it does not block on a non-blocking socket (-EAGAIN) and never raises SIGPIPE. wire_receive() gives
 * -EPIPE at the end, -EAGAIN, -EMFILE (the message is there, its descriptors are lost: this process can
 * have no more), or wire_decode()'s errors, and never blocks; fds are close-on-exec and closed on error.
 */
/* Both ends close-on-exec and non-blocking. */
int wire_pair(int pair[2]);
/* Is it an end of such a pair? */
bool wire_is_end(int fd);
int wire_send(int fd, const struct wire_packet *packet);
/* As much as goes in now; `sent` (0 at first) says how much of the frame has. 0: all of it. */
int wire_send_some(int fd, const struct wire_packet *packet, size_t *sent);
/* `inbox` may be NULL where the socket keeps messages apart. */
int wire_receive(int fd, struct wire_inbox *inbox, struct wire_packet *packet);
void wire_inbox_clear(struct wire_inbox *inbox);

/* Packets that wait for a socket to become writable. */
struct wire_queue {
	struct wire_packet *first, *last;
	uint32_t length;
	size_t sent; /* of the first one */
};

/* Takes the packet's fds over also on failure. -ENOMEM. */
int wire_queue_add(struct wire_queue *queue, struct wire_packet *packet);
/* Sends what can be sent. 0: empty now, -EAGAIN: rest waits, another errno: the peer is gone. */
int wire_queue_flush(struct wire_queue *queue, int fd);
void wire_queue_clear(struct wire_queue *queue);

#endif
