/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_SCOPE_H
#define ORCH_HELPER_SCOPE_H

/* A scope as the helper knows it: scope.c, scope-hear.c what it says, scope-end.c its end; scopes.c has all of them. */

#include <orch/scope.h>

#include "linux.h"

#define DEFAULT_DEADLINE_MS 10000
/*
 * Between looks at a cgroup that is not empty yet: cgroup.events by POLLPRI is throttled to 10 ms
 * and more.
 */
#define LOOK_US 1000
#define LINGER_LOOK_US 100000

enum scope_state {
	SETTING_UP, /* the set-up process or init works; no program runs */
	STANDING,
	TERMINATING, /* SIGTERM was sent; grace runs */
	KILLING,     /* SIGKILL was sent; waits for the proof */
	LINGERING,   /* certified as not dead; removed when it is */
};

struct scope {
	struct scope *next;
	uint32_t id;
	char name[WIRE_STEP_MAX];
	enum scope_state state;
	struct setup_page *page;

	pid_t setup_pid; /* valid while setup_fd >= 0 */
	int setup_fd;
	pid_t init_pid; /* 0: not known */
	int init_fd;	/* pidfd; -1 also after it was reaped */
	bool init_reaped;
	int control_fd;
	struct wire_queue to_init;
	uint64_t pidns_inode;

	int cgroup_fd; /* -1: none, or removed */
	bool has_cgroup;
	bool failed; /* SCOPE_FAILED was sent */

	uint32_t leader;
	bool has_leader;

	int64_t due_us;	       /* set-up deadline, end of grace, or next look */
	int64_t deadline_us;   /* of the certificate */
	int64_t requested_us;  /* CLOCK_MONOTONIC */
	int64_t requested_ms;  /* CLOCK_REALTIME */
	int64_t last_death_us; /* CLOCK_MONOTONIC; 0: not yet */
	uint32_t alive;
	uint32_t proof; /* WIRE_DEATH_* */
};

struct common_ground {
	struct cgroup_base cgroups;
};

/* --- scope.c --- */

struct scope *scope_find(const struct helper *helper, uint32_t id);
/* SIGKILL. False: there is none to kill. */
bool scope_kill_init(const struct scope *scope);
/* The set-up process made init: from now on it is known. */
void scope_adopt_init(struct scope *scope);
void scope_unmap_page(struct scope *scope);
void scope_free(struct helper *helper, struct scope *scope);

/* --- scope-end.c --- */

/* Kills all there is to kill, and nothing else changes. */
void scope_strike(struct scope *scope);
/* The same, and from now on the proof is looked for. */
void scope_kill(struct scope *scope);
/* Starts the end: requested by the host, or by what happened. Times: CLOCK_MONOTONIC us, CLOCK_REALTIME ms. */
void scope_begin_end(struct scope *scope, int64_t grace_ms, int64_t deadline_us, int64_t requested_us,
		     int64_t requested_ms);
void scope_end_unrequested(struct scope *scope);
/* It could not be set up: says so, and ends it. */
void scope_fail(struct helper *helper, struct scope *scope, const struct setup_error *error);
void scope_send_death(struct helper *helper, struct scope *scope, uint32_t verdict, const char *reason);
/* True when the proof is complete. */
bool scope_is_dead(struct helper *helper, struct scope *scope);
/* The deadline passed without a proof: says who is left. */
void scope_certify_alive(struct helper *helper, struct scope *scope);

/* --- scope-hear.c --- */

/* Hears init and the set-up process. True while there may be more: bounded, so that one does not hold the others. */
bool scope_listen(struct helper *helper, struct scope *scope);

#endif
