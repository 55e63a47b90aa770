/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_LINUX_H
#define ORCH_HELPER_LINUX_H

/*
 * A scope is a PID namespace, a cgroup, both, or what descends from a process: orch-reaper is the parent of its init,
 * what may block runs in the scope's set-up process (setup.c) or inside the scope (init.c, program.c).
 */

#include <orch/scope.h>

#include "../helper.h"

int pidfd_open_(pid_t pid);
int pidfd_signal(int pidfd, int signal);
/* clone3() like fork(). Flags may hold CLONE_INTO_CGROUP; `ret_pidfd` may be NULL. -1 with errno.
 */
pid_t clone_process(uint64_t flags, int exit_signal, int cgroup_fd, int *ret_pidfd,
		    pid_t *parent_tid);
/*
 * Goes on as another process, which has the same parent and takes over the memory: a copy of it, and of each page that both
 * write to, took some 150 us. The caller has ended with 0 when this returns 0; -1 with errno.
 */
int clone_successor(uint64_t flags, pid_t *parent_tid);

/* --- cgroup.c: leaves below the helper's own cgroup ------------------------------------ */

/* The controllers that limits are made with, and what a v1 hierarchy of each gives. */
enum { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_V1 };
extern const char *const cgroup_controllers[CGROUP_V1];

struct cgroup_v1 {
	int fd; /* the helper's own cgroup there, or -1 */
	char path[512];
	char reason[256];
};

struct cgroup_base {
	bool looked;
	int fd; /* the helper's own cgroup, or the delegated one that it is in; or -1 */
	struct cgroup_v1 v1[CGROUP_V1];
	char path[WIRE_TEXT_MAX - 32];
	char reason[256]; /* why there is none */
	int keeper_fd;	  /* its closing wakes the keeper */
	pid_t keeper_pid; /* valid while keeper_pidfd >= 0 */
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
/* The same in a v1 hierarchy. */
int cgroup_v1_leaf_new(struct cgroup_base *base, size_t index, const char *name, int *ret_fd);
int cgroup_v1_leaf_remove(const struct cgroup_base *base, size_t index, const char *name);
/* That v2 leaves have the controller. A negative errno, with the cause and what to do. */
int cgroup_enable(const struct cgroup_base *base, const char *controller, char *reason, size_t size);

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
	uint32_t rung;		  /* ORCH_RUNG_* to build */
	int join_fd[CGROUP_V1];	  /* cgroup.procs of v1 leaves; -1 */
	uint32_t processes;	  /* of an ordinary user's scope, besides init; 0: the usual number */
	uint64_t data_bytes;	  /* RLIMIT_DATA of an ordinary user's programs; 0: as it is */
	struct rlimit open_files; /* what the host had */
	struct setup_page *page;
};

/* Pid, pidfd of the set-up process; a negative errno on failure. */
int setup_start(const struct setup_request *request, pid_t *ret_pid, int *ret_pidfd);

/* --- init.c: PID 1 of a scope, or its supervisor --------------------------------------- */

/*
 * Without a PID namespace the same loop runs in the host's, as a supervisor: a subreaper, so that everything that
 * descends from it stays its own. It can be killed by what it supervises, which has the same uid.
 */
#define INIT_NAME "orch-init"
#define SUPERVISOR_NAME "orch-supervisor"
/* Of a process that is to be one of these, and of the helper itself. */
#define HELPER_NAME "orch-reaper"

/* What a scope has for the host; each -1: none. */
struct host_fds {
	int listener;
	int private; /* the root of the private file system */
	int lower;   /* the folder that an overlay lies over, as it is on the host */
};

struct init_opts {
	int control_fd;
	struct host_fds host;
	int leaf_fd;	 /* ORCH_RUNG_CGROUP: the leaf it is in, without the helper's lock; else -1 */
	uint32_t rung;
	struct confine *confine; /* NULL in a plain scope */
};
_Noreturn void init_run(const struct init_opts *opts);

/* --- sweep.c: ends what descends from this process -------------------------------------- */

/* How long one look at all descendants may take. */
#define SWEEP_HOLD_US 50000
/* They are looked at in each so many rounds. */
#define SWEEP_HOLD_ROUNDS 16
/* Children that one round kills at most. */
#define SWEEP_MOST 4096u

/* Zero-initialise. */
struct sweep {
	unsigned rounds;
};

/*
 * SIGKILL to all own children, whose pids nobody else can free; and SIGSTOP, now and then, to what descends from them:
 * it becomes a child as its parents die. The caller reaps in between, and ends when it has no child any more.
 */
void sweep_round(struct sweep *sweep);
/* Only the SIGSTOP, and not to these and theirs. */
void sweep_hold(const pid_t *but, size_t but_count);
/* SIGTERM and SIGCONT to all that is there now. */
void sweep_terminate(void);

/* --- the seam to confine-*.c ------------------------------------------------------------ */

/*
 * Called in the scope's set-up process (child of the helper, in the scope's cgroup, privileges of the helper, no
 * namespaces yet). Opens host paths, changes to `host_uid`, makes the namespaces, and turns into PID 1 of the new
 * PID namespace by way of supervise_clone_init(). Returns 0 in PID 1 only, with the root, network and listener ready
 * and all privileges dropped; -1 with *error in whichever process failed. `control_fd` and nothing else must stay
 * open besides what confine itself needs later and what it puts in *ret_host.
 */
int confine_enter(struct confine *confine, uint32_t host_uid, int control_fd, struct host_fds *ret_host,
		  struct setup_error *error);

/*
 * The same where there are no namespaces: called in the set-up process, which is to become a supervisor. Opens host
 * paths and prepares what confine_program() does to each program; nothing of this process is given up. Descriptors that
 * confine needs later stay open. ORCH_EUNENFORCEABLE names what the policy asks for and only namespaces could give.
 */
int confine_bare(struct confine *confine, uint32_t host_uid, struct setup_error *error);

/*
 * Provided by supervision: clone3 with CLONE_PARENT and the namespace flags given. Tells
 * the helper the new pid. Returns 0 in the new PID 1; in the old process it does not return unless it failed (-1,
 * errno set).
 */
int supervise_clone_init(uint64_t namespace_flags, int control_fd);

#endif
