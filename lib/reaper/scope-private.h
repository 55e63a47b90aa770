/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SCOPE_PRIVATE_H
#define ORCH_SCOPE_PRIVATE_H

/*
 * Inside lib/reaper. Ownership: handles are counted (`references`) and keep the context alive. An
 * object is also known to its owner (a scope to the reaper, a proc to its scope) while something is
 * still to be reported
 * (`attached`); it is freed when it is neither. The owner's knowledge keeps no context alive, so
 * that a host that drops everything and never runs the loop again leaks nothing.
 */

#include <orch/scope.h>

#include "../core/core-private.h"
#include "census.h"
#include "reaper-private.h"
#include "record.h"
#include "wire.h"

#define DEFAULT_DEADLINE_MS 10000u
#define DEFAULT_SETUP_MS 10000u
/* Bits of required_limits. */
#define SCOPE_LIMITS 4

/* The context's connection to its orch-reaper, started again if it died. */
struct reaper {
	orch_ctx *ctx; /* not counted */
	int fd;	       /* -1: no helper runs */
	int helper_watch;
	pid_t helper_pid;
	int dying_watch; /* of the one before, until it is reaped */
	pid_t dying_pid;
	orch_source *dying_source;
	char *helper_path;
	char boot_id[64];
	bool greeted;
	orch_source *source;
	struct wire_queue out;
	struct wire_inbox in;
	struct orch_scope *scopes;
	uint32_t last_scope;
	struct record *record; /* of scopes; NULL: none is kept */
};

/* The context's reaper, with or without a helper. */
int32_t reaper_of(orch_ctx *ctx, struct reaper **ret_reaper, orch_error **reterr);
/* The same with a helper that runs. */
int32_t reaper_get(orch_ctx *ctx, struct reaper **ret_reaper, orch_error **reterr);
/* Takes the packet's fds, also on failure. Without a helper it does nothing. */
int32_t reaper_send(struct reaper *reaper, struct wire_packet *packet, orch_error **reterr);
/* Reads what is there now. */
void reaper_read(struct reaper *reaper);

/* helper-process.c of the system. A watch is a descriptor that is readable once its process has ended. */
int32_t helper_start(const char *path, int socket_fd, pid_t *ret_pid, int *ret_watch,
		     orch_error **reterr);
/* Waits so long at most, and reaps it if nobody else did. */
void helper_reap(pid_t pid, int watch, int timeout_ms);
/* Adds what the helper needs to notice this process's end. */
int32_t helper_hello(struct wire_packet *hello, orch_error **reterr);
bool watch_has_ended(int watch);

/* Work on the host that ends with the scope: host-work.c. */
struct host_work {
	struct host_work *next;
	struct orch_scope *scope; /* NULL: its certificate is out */
	struct orch_settlement *settlement; /* while an answer is due; not counted */
	char *what;
	char *outcome; /* NULL: not settled */
	orch_settle_fn fn;
	void *userdata;
	orch_destroy_fn destroy;
	bool asked, answered;
};

struct callback {
	struct callback *next;
	union {
		orch_scope_start_fn start;
		orch_death_fn death;
		orch_scope_connect_fn connect;
	};
	void *userdata;
	orch_destroy_fn destroy;
	uint32_t subject; /* connect */
};

/* The first of the list, now the caller's; NULL: it is empty. */
struct callback *callback_pop(struct callback **list);
void callback_free(struct callback *callback);

enum scope_phase { SCOPE_STARTING, SCOPE_STANDING, SCOPE_OVER };

struct orch_scope {
	atomic_uint references;
	bool released; /* the last reference is gone */
	bool attached; /* in reaper->scopes */
	orch_ctx *ctx;
	struct reaper *reaper;
	struct orch_scope *next;

	uint32_t id;
	char name[5 + 16 + 1];
	char *label;
	enum scope_phase phase;
	bool stood;	/* it once reached STANDING */
	bool connected; /* to the helper that made it */
	bool stopping;	/* requested, or its set-up failed, or the helper died */
	bool requested; /* by the host application: nobody to tell but those who asked */
	bool death_told;
	orch_error *start_error;

	uint32_t rung, least_rung;
	struct scope_limit {
		uint32_t state; /* ORCH_LIMIT_UNASKED and so on; 0: not known yet */
		char *mechanism;
	} limits[SCOPE_LIMITS];
	int32_t init_pid;
	int init_fd; /* a watch */
	uint64_t init_start_time, init_pidfs_inode; /* 0: not known */
	uint64_t pidns_inode;
	char *cgroup;
	int listener_fd;
	int private_fd, lower_fd; /* outlive the scope's end */

	struct orch_proc *procs;
	struct orch_stream *streams; /* stream-private.h */
	uint32_t load_uid;
	uint32_t last_subject;
	struct wire_queue pending; /* until it stands */
	struct callback *starts, *connects, *stops;
	struct callback *on_death;
	orch_destroy_fn at_end;
	void *at_end_userdata;

	int64_t requested_us, requested_ms;
	int64_t deadline_us;
	int64_t last_death_us;	 /* seen by the host's own judge; 0: not yet */
	orch_source *watchdog;	 /* the helper should have answered */
	orch_source *init_watch; /* after the helper's death */
	orch_source *later;	 /* callbacks that a setter may not make */
	struct lineage *lineage; /* of the judge, where there is no closed set */
	struct census_entry *survivors;
	uint32_t survivor_count;
	orch_death *death;
	struct host_work *works; /* in their order */
	bool works_asked;
	int64_t certified_us;  /* 0: not yet; what follows of it is the work's */
	orch_death *unsettled; /* the certificate without the works, while answers are due; NULL also without memory */
};

/* Asks all works, once. From the loop only; a callback of the host may drop the scope: the caller holds it. */
void host_work_ask(struct orch_scope *scope);
/* True while an answer is due. */
bool host_work_is_due(const struct orch_scope *scope);
void host_work_free(struct orch_scope *scope);
/* An answer came, or will not come. */
void scope_work_answered(struct orch_scope *scope);

/* What the helper says: scope-hear.c. */
void scope_hear(struct orch_scope *scope, struct wire_packet *packet);
void scope_helper_lost(struct orch_scope *scope, const orch_error *error);
/* The context ends: callbacks are destroyed, not called. */
void scope_abandon(struct orch_scope *scope);
/* The processes' certificate is there: tells everybody, once the work on the host has settled too. Takes `death`. */
void scope_over(struct orch_scope *scope, orch_death *death);
/* The start's callbacks come now. */
void scope_tell_starts(struct orch_scope *scope);
/* It will never stand, if it has not stood yet: the end is due. `error` is copied. */
void scope_fail_start(struct orch_scope *scope, const orch_error *error);
/* Starts or shortens the end. */
void scope_begin_stop(struct orch_scope *scope, uint32_t grace_ms, uint32_t deadline_ms);
/*
 * From now on the certificate is due: notes the time of the request and wakes at the deadline. True: no later than it
 * was due before.
 */
bool scope_expect_death(struct orch_scope *scope, uint32_t deadline_ms);
/* Looks at the scope again then, if nothing came. */
void scope_watch(struct orch_scope *scope, int64_t delay_ms);
/* For what is known already: the callback comes in the next turn. */
int32_t scope_tell_later(struct orch_scope *scope, orch_error **reterr);
/* Sends or, before the scope stands, keeps the packet. Takes its fds. */
int32_t scope_send(struct orch_scope *scope, struct wire_packet *packet, orch_error **reterr);
int32_t scope_check(orch_scope *scope, orch_error **reterr);
/* ORCH_ECLOSED or ORCH_EHELPER if nothing can be started in it any more. */
int32_t scope_check_open(orch_scope *scope, orch_error **reterr);
/* "memory", "process", "cpu", "time". */
const char *scope_limit_name(uint32_t limit);
int32_t fail_copy(orch_error **reterr, const orch_error *error);
/* 0 if a *_wait form may be called now. */
int32_t check_may_wait(orch_ctx *ctx, orch_error **reterr);

/* judge.c of the system: certificates that the host makes itself */
void judge_begin(struct orch_scope *scope);
/* The proof, or at the deadline what can be said without. */
void judge_look(struct orch_scope *scope);
/* A program runs: remembered where the host would have to find the members by descent. */
void judge_note_program(struct orch_scope *scope, int32_t pid);
/* The end was asked for: in case the scope's load could stop the helper, and did. */
void judge_wake(const struct orch_scope *scope);
/* The least rung on which a confinement can be entered. */
uint32_t judge_confined_rung(void);
void judge_free(struct orch_scope *scope);
/* How many live in it besides init, where the host can see that at once; false: the helper has to count. */
bool judge_members(const struct orch_scope *scope, uint32_t *ret_alive);
/*
 * Kills a closed set at once, behind the request that the helper has in its socket: what it would do as soon as it runs,
 * which may be late where the load has the processors.
 */
void judge_strike(const struct orch_scope *scope);

struct orch_proc {
	atomic_uint references;
	bool released;
	bool attached; /* in scope->procs; `scope` is valid */
	orch_ctx *ctx;
	struct orch_scope *scope;
	struct orch_proc *next;
	uint32_t subject;
	bool started, ended;
	int32_t pid;
	int32_t exit_code;
	int32_t term_signal;
	uint32_t reason; /* ORCH_REASON_*; 0: it has not ended */
	orch_error *error;
	orch_proc_fn event;
	void *userdata;
	orch_destroy_fn destroy;
};

struct orch_proc *proc_find(struct orch_scope *scope, uint32_t subject);
void proc_started(struct orch_proc *proc, int32_t pid);
/* Each ends and detaches the proc. `error` is copied. */
void proc_failed(struct orch_proc *proc, uint32_t reason, const orch_error *error);
void proc_exited(struct orch_proc *proc, uint32_t reason, int32_t exit_code, int32_t term_signal);
void proc_abandon(struct orch_proc *proc);

struct death_facts {
	uint32_t verdict;
	uint32_t flags;	 /* WIRE_DEATH_* */
	bool host_proof; /* init's pidfd, held by the host */
	bool left_to_supervisor; /* nobody else could kill; it may itself have been killed */
	const char *reason;
	int64_t last_death_us; /* after the request; -1: not known */
	int64_t confirmed_us;
	uint32_t alive;
	int64_t requested_ms;
};

/*
 * What may be certified: by descent nobody can say DEAD, unless no program ever ran or the scope had a uid of its own.
 * The helper's word against this becomes UNVERIFIABLE.
 */
uint32_t death_verdict(uint32_t rung, uint32_t verdict, uint32_t flags);

/* NULL without memory. Takes the scope's survivors. */
orch_death *death_new(struct orch_scope *scope, const struct death_facts *facts);
/*
 * Writes down how the works ended, before anybody has seen the certificate. What did not settle makes DEAD
 * UNVERIFIABLE. False without memory.
 */
bool death_add_works(orch_death *death, const struct host_work *works, int64_t waited_us);

#endif
