/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_H
#define ORCH_HELPER_H

/*
 * orch-reaper: one per context, the parent of every scope's init. Single-threaded; its loop
 * (main.c, scopes.c) does nothing that could block: what may block runs in a scope's set-up process
 * (setup.c) or inside the scope (init.c, program.c).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "../reaper/wire.h"
#include "confine.h"

#define _cleanup_fd_ __attribute__((cleanup(close_cleanup)))
void close_cleanup(const int *fd);
void close_fd(int *fd);
/* Closes every fd from 3 up but these two (-1: none). */
void close_others(int one, int two);
int64_t now_us(void);
int64_t realtime_ms(void);
void setup_fail(struct setup_error *error, int32_t code, int os_errno, const char *step,
		const char *format, ...) __attribute__((format(printf, 5, 6)));
int pidfd_open_(pid_t pid);
int pidfd_signal(int pidfd, int signal);
/* clone3() like fork(). Flags may hold CLONE_INTO_CGROUP; `ret_pidfd` may be NULL. -1 with errno.
 */
pid_t clone_process(uint64_t flags, int exit_signal, int cgroup_fd, int *ret_pidfd,
		    pid_t *parent_tid);

/* --- cgroup.c: leaves below the helper's own cgroup ------------------------------------ */

struct cgroup_base {
	bool looked;
	int fd; /* the helper's own cgroup, or -1 */
	char path[WIRE_TEXT_MAX - 32];
	char reason[256]; /* why there is none */
	int keeper_fd;	  /* its closing wakes the keeper */
	int keeper_pidfd;
};

/* Finds the own cgroup, removes what dead helpers left in it. */
void cgroup_base_find(struct cgroup_base *base);
/* Lets the keeper go; waits for it, for a moment. */
void cgroup_base_close(struct cgroup_base *base);
/*
 * Makes and locks `name`. The lock (flock) tells a sweep that the owner lives. A negative errno; -1
 * stays in *ret_fd then.
 */
int cgroup_leaf_new(struct cgroup_base *base, const char *name, int *ret_fd);
/* 0, or a negative errno (-EBUSY while something is in it). */
int cgroup_leaf_remove(const struct cgroup_base *base, const char *name);

/* --- setup.c: from the helper to a scope's PID 1 --------------------------------------- */

/* Shared with the set-up process, so that init is known even if that process is killed right after
 * clone3. */
struct setup_page {
	volatile pid_t init_pid;
};

struct setup_request {
	int control_fd; /* the set-up process's end */
	int spec_fd;	/* -1: a plain scope */
	uint32_t host_uid;
	int cgroup_fd;		  /* -1: none */
	struct rlimit open_files; /* what the host had */
	struct setup_page *page;
};

/* Pid, pidfd of the set-up process; a negative errno on failure. */
int setup_start(const struct setup_request *request, pid_t *ret_pid, int *ret_pidfd);

/* --- init.c, program.c: PID 1 of a scope ----------------------------------------------- */

/* `confine` is NULL in a plain scope. Never returns. */
_Noreturn void init_run(int control_fd, int listener_fd, struct confine *confine);

struct program {
	const struct wire_packet *request; /* WIRE_SPAWN with its fds */
	struct confine *confine;
	int error_fd; /* close-on-exec; takes a struct setup_error if the program can not be started
		       */
};

/* In the forked child. Never returns. */
_Noreturn void program_run(const struct program *program);

/* --- scopes.c -------------------------------------------------------------------------- */

struct helper {
	int host_fd;
	int host_pidfd;
	bool greeted;
	struct wire_queue to_host;
	struct cgroup_base cgroups;
	struct rlimit open_files;
	struct scope *scopes;
};

struct scope;

void host_send(struct helper *helper, struct wire_packet *packet);

/* A request of the host about scopes. 0, or a negative errno: the host breaks the protocol. */
int scopes_request(struct helper *helper, struct wire_packet *packet);
/* Answers a request that can not be served. */
void scopes_refuse(struct helper *helper, const struct wire_packet *request, const char *why);
struct pollfd;
/* Adds what to wait for; lowers *timeout_ms (-1: none). Number of entries: at most 3 per scope. */
size_t scopes_count(const struct helper *helper);
size_t scopes_poll(const struct helper *helper, struct pollfd *fds, int *timeout_ms);
/* Reads and sends what is ready, moves every scope on. */
void scopes_step(struct helper *helper);
/* Kills everything; used when the host is gone. */
void scopes_kill_all(struct helper *helper);

#endif
