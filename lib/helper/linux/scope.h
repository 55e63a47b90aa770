/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_SCOPE_H
#define ORCH_HELPER_SCOPE_H

/*
 * A scope as the helper knows it: scope.c, scope-hear.c what it says, scope-end.c its end; scopes.c has all of them,
 * ladder.c the choice of its rung, strays.c what is left of one whose supervisor was killed.
 */

#include <orch/scope.h>

#include "../../reaper/linux/census.h"
#include "ladder.h"
#include "scope-limits.h"

#define DEFAULT_DEADLINE_MS 10000
/*
 * Between looks at a cgroup that is not empty yet: cgroup.events by POLLPRI is throttled to 10 ms
 * and more.
 */
#define LOOK_US 1000
#define LINGER_LOOK_US 100000
/* Between looks at a supervisor that ends its descendants: it may have been stopped by one of them. */
#define WAKE_US 20000
/*
 * After the kill, when somebody still lives: the first look for frozen members, and the longest pause between two.
 * Each is a walk of /proc, and a scope of some size dies in less than the first.
 */
#define THAW_LOOK_US 100000
/* A look goes through all of /proc, beside those that are dying: not before they have had time to. */
#define THAW_LOOK_EACH_US 100
#define THAW_PAUSE_US 3200000

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

	struct ladder ladder;
	uint32_t rung;	/* the one that is built, or was */
	bool retry;	/* that one can not be had: the next one, once its processes are gone */
	bool used;	/* a program may have been started */
	bool confined;
	int spec_fd; /* of a confined one, while a rung is looked for; else -1 */
	uint32_t host_uid;

	pid_t setup_pid; /* valid while setup_fd >= 0 */
	int setup_fd;
	pid_t init_pid; /* 0: not known */
	int init_fd;	/* pidfd; -1 also after it was reaped */
	bool init_reaped;
	uint64_t init_start_time, init_pidfs_inode; /* 0: not known */
	int control_fd;
	struct wire_queue to_init;
	uint64_t pidns_inode;

	int cgroup_fd; /* -1: none, or removed */
	bool has_cgroup;
	int proc_fd; /* the scope's own /proc, to count in; -1: none */
	struct limits limits;
	struct wire_packet ready; /* READY, while the set-up process is not reaped */
	bool has_ready;
	bool failed; /* SCOPE_FAILED was sent */

	uint32_t leader;
	bool has_leader;

	int64_t due_us;	       /* set-up deadline, end of grace, or next look */
	int64_t deadline_us;   /* of the certificate */
	int64_t requested_us;  /* CLOCK_MONOTONIC */
	int64_t requested_ms;  /* CLOCK_REALTIME */
	int64_t last_death_us; /* CLOCK_MONOTONIC; 0: not yet */
	int64_t thaw_due_us;   /* the next look for frozen members, and the pause after it */
	int64_t thaw_pause_us;
	bool tracer_sought; /* since the kill, a first time */
	uint32_t alive; /* at the request */
	bool counted;	/* by the host */
	uint32_t proof; /* WIRE_DEATH_* */
};

struct common_ground {
	struct cgroup_base cgroups;
	bool adopts;  /* a subreaper */
	bool hunting; /* a supervisor ended: children without a purpose may be here */
	struct sweep sweep;
};

/* --- scope.c --- */

struct scope *scope_find(const struct helper *helper, uint32_t id);
/* By descent alone, what a supervisor leaves behind is not ended by its own end. */
bool scope_has_to_sweep(const struct scope *scope);
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
/* Who is in it, but `but`. */
void scope_census(const struct scope *scope, struct census *census, pid_t but, uint32_t most);
/* It was killed and lives: perhaps it is frozen, or a member traces its init. */
void scope_look_for_frozen(struct scope *scope);
/* Starts the end: requested by the host, or by what happened. Times: CLOCK_MONOTONIC us, CLOCK_REALTIME ms. */
void scope_begin_end(struct scope *scope, int64_t grace_ms, int64_t deadline_us, int64_t requested_us,
		     int64_t requested_ms);
void scope_end_unrequested(struct scope *scope);
/* It could not be set up: says so, and ends it. */
void scope_fail(struct helper *helper, struct scope *scope, const struct setup_error *error);
void scope_send_death(struct helper *helper, struct scope *scope, uint32_t verdict, const char *reason);
/* The proof was not complete: when to look again. */
void scope_look_again(struct scope *scope, int64_t delay_us);
/* With the verdict that its rung allows. */
void scope_certify_dead(struct helper *helper, struct scope *scope);
/* True when the proof is complete. */
bool scope_is_dead(struct helper *helper, struct scope *scope);
/* The deadline passed without a proof: says who is left. */
void scope_certify_alive(struct helper *helper, struct scope *scope);

/* --- strays.c --- */

/* From now on orphans of this helper's scopes come to it. */
void strays_expect(struct helper *helper);
/* One round: kills and reaps children that no scope knows. True while some are there that may be this scope's. */
bool strays_hunt(struct helper *helper, const struct scope *scope);
/* Who they are. */
void strays_census(struct helper *helper, struct census *census, uint32_t most);

/* --- thaw.c --- */

/* Thaws members in freezers of cgroup v1, as far as they are in reach. True: some were. */
bool scope_thaw(const struct scope *scope);


/* --- scope-hear.c --- */

/* The set-up process is reaped: the scope stands if init said so before. */
void scope_hear_held(struct helper *helper, struct scope *scope);
/* Hears init and the set-up process. True while there may be more: bounded, so that one does not hold the others. */
bool scope_listen(struct helper *helper, struct scope *scope);

#endif
