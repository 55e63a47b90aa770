/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SCOPE_H
#define ORCH_SCOPE_H

/*
 * orch_scope: everything that one task started, as a closed set; orch_proc: a program in it;
 * orch_death: the certificate of its end.
 *
 * The first scope of a context starts one helper process, orch-reaper, which is the parent of all
 * programs. The host's own children, signals and subreaper status are never touched.
 */

#include <orch/ctx.h>
#include <orch/stream.h>

ORCH_BEGIN_DECLS

typedef struct orch_scope orch_scope;
typedef struct orch_proc orch_proc;
typedef struct orch_death orch_death;

/*
 * The ladder, best last. A scope gets the best rung between orch_scope_opts.least_rung and .best_rung that the host
 * has, and never a lower one. On the lower two a supervisor takes init's place: programs are in the host's PID
 * namespace and see the host's /proc, only a pids controller limits their number (see orch_scope_new()), and as they have
 * the host application's uid they can signal it, orch-reaper and the supervisor (which they can not trace, unless they are
 * root).
 */
/*
 * Best effort, and never proof: a scope in which a program ran is certified UNVERIFIABLE at best. Linux: what descends
 * from the supervisor, a subreaper (prctl(2)); a program that enters a foreign PID namespace of its user by setns(2) and
 * forks twice is lost. A supervisor that is killed leaves its descendants to orch-reaper, which kills them; if both are
 * killed at once nobody does. macOS: what descends from the scope's programs, found in lists of all processes; no
 * supervisor and no PID namespace.
 */
#define ORCH_RUNG_SUBREAPER 1u
/*
 * A cgroup v2 leaf alone. DEAD is proved by "populated 0". A program that may write the cgroup above (it has the host
 * application's uid, so it may) can leave it on purpose: whoever only did that is still found by descent, killed, and
 * makes the certificate UNVERIFIABLE; who left by descent as well is lost.
 */
#define ORCH_RUNG_CGROUP 2u
#define ORCH_RUNG_PIDNS 3u         /* PID namespace with our init */
#define ORCH_RUNG_CGROUP_PIDNS 4u  /* the same inside a cgroup v2 leaf of ours */

struct orch_scope_opts {
	uint32_t size;
	uint32_t flags;             /* none defined: 0 */
	const char *label;          /* for logs and certificates; copied; NULL: the scope's random name */
	uint32_t least_rung;        /* 0: ORCH_RUNG_PIDNS */
	uint32_t setup_timeout_ms;  /* namespaces, mounts; 0: 10000 */
	uint32_t best_rung;         /* no better one is tried; 0: the best that there is */
	uint32_t time_limit_ms;     /* of wall time from when it stands; then it is stopped; 0: none */
	uint64_t memory_limit_bytes;/* of all its processes together, swap included; 0: none */
	uint32_t process_limit;     /* processes and threads, zombies included, not init; 0: see orch_scope_new() */
	uint32_t cpu_limit_percent; /* of one processor: 150 is one and a half; 0: none */
	uint32_t required_limits;   /* ORCH_LIMIT_*: those that have to be enforced, or nothing is started */
	uint32_t reserved;
};

/*
 * Bits of required_limits; one of them for orch_scope_limit() and orch_death_limit(). Memory: when it is exceeded and
 * the kernel kills in the scope, the whole scope ends, with ORCH_REASON_MEMORY. Processes: fork() fails with EAGAIN
 * inside; init is not counted. Processor time: the scope's processes wait. Time: the scope is killed, with
 * ORCH_REASON_TIME.
 */
#define ORCH_LIMIT_MEMORY 1u
#define ORCH_LIMIT_PROCESSES 2u
#define ORCH_LIMIT_CPU 4u
#define ORCH_LIMIT_TIME 8u

/* What was made of a limit: orch_scope_limit(). */
#define ORCH_LIMIT_UNASKED 1u
#define ORCH_LIMIT_ENFORCED 2u
#define ORCH_LIMIT_PARTIAL 3u /* it binds each process, or not everything is counted */
#define ORCH_LIMIT_ABSENT 4u

ORCH_API void orch_scope_opts_init(struct orch_scope_opts *opts, uint32_t size);

/*
 * Makes a scope for **unsandboxed** programs: same user, same files, own PID namespace where the rung has one. (A sandbox makes
 * its own scope, see <orch/sandbox.h>.) Returns at once: the namespace is set up in the background, and a
 * failure is reported to each program spawned in it and by orch_scope_start_wait(). An ordinary user's scope
 * has at most 4096 processes and threads, zombies included (RLIMIT_NPROC in its user namespace; for root the
 * kernel does not apply it), or process_limit in their place. On the lower two rungs, which have no user namespace, the
 * same default is a cgroup's pids.max, for root as well, where the host application's cgroup can give a pids controller;
 * where none can, nothing keeps a fork bomb from taking every pid that the host has left: RLIMIT_NPROC would count
 * what the user runs elsewhere. orch_scope_limit() tells which it is, and the log if it is absent.
 *
 * ORCH_EHELPER: orch-reaper is missing, of another version, or did not start; ORCH_EINVAL; ORCH_ENOMEM;
 * ORCH_EFORKED; ORCH_ESYS. Since 0.1.
 */
ORCH_API int32_t orch_scope_new(orch_ctx *ctx, const struct orch_scope_opts *opts,
				orch_scope **ret_scope, orch_error **reterr);
ORCH_API orch_scope *orch_scope_ref(orch_scope *scope);
/* The last reference kills a scope that was not stopped (no certificate then). NULL is fine. Since 0.1. */
ORCH_API orch_scope *orch_scope_unref(orch_scope *scope);

/*
 * Waits until the scope's namespace stands.
 *
 * ORCH_EUNENFORCEABLE: the host can not give least_rung or one of required_limits, or memory_limit_bytes is too little
 * for the scope itself (the message names cause and remedy); ORCH_ETIMEDOUT: `timeout_ms` is over, or, with orch_error_step() "setup", setup_timeout_ms; ORCH_ECANCELED: it was stopped
 * before it stood; ORCH_EHELPER; ORCH_EDEADLK; ORCH_ESYS with orch_error_step(). Since 0.1.
 */
ORCH_API int32_t orch_scope_start_wait(orch_scope *scope, int64_t timeout_ms, orch_error **reterr);

/* The random name ("orch-" and 16 hexadecimal digits). Valid while the scope lives. Since 0.1. */
ORCH_API const char *orch_scope_name(const orch_scope *scope);
/* ORCH_RUNG_* reached, or 0 while it is not set up. Why it is not a better one is in the context's log. Since 0.1. */
ORCH_API uint32_t orch_scope_rung(const orch_scope *scope);
/* Host pid of the scope's init, or of its supervisor on the lower two rungs; or 0. Since 0.1. */
ORCH_API int32_t orch_scope_init_pid(const orch_scope *scope);
/* Inode number of the scope's PID namespace (/proc/PID/ns/pid), or 0: it has none. Since 0.1. */
ORCH_API uint64_t orch_scope_pidns_inode(const orch_scope *scope);
/* Absolute path of the scope's cgroup v2 leaf, or "" on the rungs without. Since 0.1. */
ORCH_API const char *orch_scope_cgroup(const orch_scope *scope);

/*
 * What was made of the limit `limit` (one ORCH_LIMIT_* bit): an ORCH_LIMIT_* state, and the mechanism in words, or the
 * cause of its absence ("" if it was not asked for; on the lower two rungs the default of processes is told in its
 * place). Known from when the scope stands. Outputs may be NULL; the text
 * lives with the scope.
 *
 * ORCH_ESTATE: the scope does not stand yet, or never stood; ORCH_EINVAL: scope is NULL, or not one bit. Since 0.1.
 */
ORCH_API int32_t orch_scope_limit(const orch_scope *scope, uint32_t limit, uint32_t *ret_state,
				  const char **ret_mechanism);

/* What happened to a program. Exactly one of FAILED and EXITED comes, after at most one STARTED. */
#define ORCH_PROC_STARTED 1u
#define ORCH_PROC_FAILED 2u /* set-up or exec failed: orch_proc_error() */
#define ORCH_PROC_EXITED 3u /* orch_proc_exit_code(), orch_proc_term_signal() */

typedef void (*orch_proc_fn)(void *userdata, orch_proc *proc, uint32_t event);

struct orch_proc_opts {
	uint32_t size;
	uint32_t flags;          /* ORCH_PROC_LEADER */
	const char *const *argv; /* NULL-terminated; argv[0] absolute, or looked up in the PATH of envp */
	const char *const *envp; /* NULL-terminated "NAME=value"; NULL: a minimal environment */
	const char *cwd;         /* inside the scope; NULL: "/" (sandbox: the workspace) */
	int32_t stdin_fd;        /* duplicated by the call; -1: /dev/null */
	int32_t stdout_fd;
	int32_t stderr_fd;
	uint32_t reserved;
	orch_proc_fn event;
	void *userdata;
	orch_destroy_fn destroy;
	/*
	 * Instead of the fds, which are -1 then: see <orch/stream.h>. One output for stdout and stderr is
	 * allowed, and one terminal for all three. No reference is kept once the stream has ended.
	 */
	orch_stream *stdin_stream;
	orch_stream *stdout_stream;
	orch_stream *stderr_stream;
};

/* When the leader ends, the scope is stopped, with the default grace. */
#define ORCH_PROC_LEADER 1u

/* As orch_ctx_opts_init(); the three fds are -1. Since 0.1. */
ORCH_API void orch_proc_opts_init(struct orch_proc_opts *opts, uint32_t size);

/*
 * Starts a program in the scope; returns at once. The program is started as soon as the scope stands.
 * `ret_proc` may be NULL. Strings and fds are copied.
 *
 * ORCH_EINVAL; ORCH_ECLOSED: the scope is being stopped or is over, or a stream has ended; ORCH_ESTATE: a stream
 * has a program already; ORCH_ETOOBIG: argv and envp exceed 1 MiB; ORCH_EHELPER; ORCH_EFORKED. A later failure comes as ORCH_PROC_FAILED. Since 0.1.
 */
ORCH_API int32_t orch_scope_spawn(orch_scope *scope, const struct orch_proc_opts *opts,
				  orch_proc **ret_proc, orch_error **reterr);
ORCH_API orch_proc *orch_proc_ref(orch_proc *proc);
ORCH_API orch_proc *orch_proc_unref(orch_proc *proc);
/* Pid inside the scope's PID namespace (without one: the host's), or 0. Since 0.1. */
ORCH_API int32_t orch_proc_pid(const orch_proc *proc);
/* 0..255, or -1: has not exited, did not start, or was ended by a signal. Since 0.1. */
ORCH_API int32_t orch_proc_exit_code(const orch_proc *proc);
/* The signal that ended it, or 0. Since 0.1. */
ORCH_API int32_t orch_proc_term_signal(const orch_proc *proc);
/* Why a program ended; how is said by orch_proc_exit_code() and orch_proc_term_signal(). */
#define ORCH_REASON_EXITED 1u	/* by itself, with an exit code 0..255 */
#define ORCH_REASON_SIGNALED 2u /* by a signal that was not its scope's end */
#define ORCH_REASON_MEMORY 3u	/* after its scope's memory limit had struck: the kernel's count of kills has risen */
#define ORCH_REASON_TIME 4u	/* its scope's time limit was over; also if that was before it was started */
#define ORCH_REASON_STOPPED 5u	/* its scope was being stopped; also if that was before it was started */
#define ORCH_REASON_SETUP 6u	/* it could not be started: its scope's set-up, its own, or exec; orch_proc_error() */
#define ORCH_REASON_LOST 7u	/* orch-reaper died, or its scope has survivors: how it ended is not known */
#define ORCH_REASON_DISK 8u	/* without success, and its sandbox's private file system was full (tmp_mib) */

/* ORCH_REASON_*, or 0 while it has not ended. Since 0.1. */
ORCH_API uint32_t orch_proc_reason(const orch_proc *proc);
/* Why it was not started; NULL otherwise. Owned by the proc. Since 0.1. */
ORCH_API const orch_error *orch_proc_error(const orch_proc *proc);
/*
 * Sends a signal to the program (not to its descendants: to end them stop the scope). Race-free: the
 * scope's init signals before it reaps.
 *
 * ORCH_ESTATE: it has ended; ORCH_EINVAL. Since 0.1.
 */
ORCH_API int32_t orch_proc_signal(orch_proc *proc, int32_t signal, orch_error **reterr);
/*
 * Waits until the program has ended. `ret_status`: 0..255 its exit code, 256 + signal if it was ended by
 * one; may be NULL.
 *
 * ORCH_ETIMEDOUT; ORCH_EDEADLK; ORCH_ESPAWN: it could not be started (message and errno say why);
 * ORCH_ECANCELED: its scope was stopped before it was started; ORCH_EHELPER: the helper died. Since 0.1.
 */
ORCH_API int32_t orch_proc_wait(orch_proc *proc, int64_t timeout_ms, int32_t *ret_status,
				orch_error **reterr);

struct orch_stop_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t grace_ms;    /* SIGTERM first and so long to wait; 0: SIGKILL at once */
	uint32_t deadline_ms; /* from the request to the certificate; 0: 10000 */
};

ORCH_API void orch_stop_opts_init(struct orch_stop_opts *opts, uint32_t size);

/* `death` is borrowed for the call: take a reference to keep it. */
typedef void (*orch_death_fn)(void *userdata, orch_scope *scope, orch_death *death);

/*
 * Stops everything in the scope; the callback gets the certificate exactly once, at the deadline at the
 * latest. A scope that is over already answers with its certificate again. `opts`, `fn` may be NULL.
 *
 * ORCH_EINVAL, ORCH_ENOMEM, ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_scope_stop(orch_scope *scope, const struct orch_stop_opts *opts, orch_death_fn fn,
				 void *userdata, orch_destroy_fn destroy, orch_error **reterr);
/* The waiting form. `ret_death` belongs to the caller. Also ORCH_EDEADLK. Since 0.1. */
ORCH_API int32_t orch_scope_stop_wait(orch_scope *scope, const struct orch_stop_opts *opts,
				      orch_death **ret_death, orch_error **reterr);
/*
 * Registers the receiver of the certificate for an end that nobody requested (the leader's exit, the
 * helper's death). It replaces the one before. Since 0.1.
 */
ORCH_API int32_t orch_scope_on_death(orch_scope *scope, orch_death_fn fn, void *userdata,
				     orch_destroy_fn destroy, orch_error **reterr);

/* Asked for the outcome of one piece of work on the host; a counted handle. */
typedef struct orch_settlement orch_settlement;

/*
 * The end of the scope has begun: end the work, and say so with orch_settlement_done(), now or later. `settlement` is
 * borrowed for the call: take a reference to answer later. The last reference without an answer says that the work did
 * not settle.
 */
typedef void (*orch_settle_fn)(void *userdata, orch_scope *scope, orch_settlement *settlement);

/*
 * Registers work that the host does for the scope, so that its end is part of the scope's: a listener that was passed
 * in, an identity with rights, connections, operations in flight, a server started for it. When the end begins, asked
 * for or not, `fn` is called once, from the loop, and the certificate waits for the answer: at the deadline at the
 * latest. If all processes are dead by then and the work has not settled, the verdict is UNVERIFIABLE and names it.
 * `what` names the work in the certificate; it is copied. A scope that never stood asks as well. Up to 64 a scope. The
 * registration lives as long as the scope: if `userdata` holds a counted handle of the same context, that does not end
 * with the host's last handle.
 *
 * ORCH_EINVAL: scope, `what` (1 to 255 bytes) or `fn` is missing; ORCH_ECLOSED: the scope's end has begun; ORCH_EBUSY:
 * 64 are registered; ORCH_ENOMEM; ORCH_EFORKED. `destroy` is called once, also after a failure. Since 0.1.
 */
ORCH_API int32_t orch_scope_add_work(orch_scope *scope, const char *what, orch_settle_fn fn, void *userdata,
				     orch_destroy_fn destroy, orch_error **reterr);
ORCH_API orch_settlement *orch_settlement_ref(orch_settlement *settlement);
/* NULL is fine; from any thread. Since 0.1. */
ORCH_API orch_settlement *orch_settlement_unref(orch_settlement *settlement);
/*
 * The work has ended; `outcome` says how, in words for the certificate, and is copied ("2 operations observed, 1
 * unknown"). May be called in the callback. The first answer counts.
 *
 * ORCH_EINVAL; ORCH_ESTATE: it was answered, or the certificate is out; ORCH_ENOMEM; ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_settlement_done(orch_settlement *settlement, const char *outcome, orch_error **reterr);

#define ORCH_DEATH_DEAD 1u          /* every process of the scope is dead and reaped: proved */
#define ORCH_DEATH_DEAD_UNREAPED 2u /* all dead, zombies left */
#define ORCH_DEATH_SURVIVORS 3u     /* named ones live at the deadline */
#define ORCH_DEATH_UNVERIFIABLE 4u  /* no proof could be had: orch_death_reason() */

ORCH_API orch_death *orch_death_ref(orch_death *death);
ORCH_API orch_death *orch_death_unref(orch_death *death);
ORCH_API uint32_t orch_death_verdict(const orch_death *death);
/* "DEAD", "DEAD_UNREAPED", "SURVIVORS" or "UNVERIFIABLE". Static storage. Since 0.1. */
ORCH_API const char *orch_death_verdict_name(const orch_death *death);
/* How it was killed and how that was proved, in words. Valid while the certificate lives. Since 0.1. */
ORCH_API const char *orch_death_mechanism(const orch_death *death);
ORCH_API const char *orch_death_proof(const orch_death *death);
/*
 * Cause of UNVERIFIABLE; of SURVIVORS what holds them, where that is known: a tracer with its pid, a frozen cgroup
 * (v1) with its path; else "". Since 0.1.
 */
ORCH_API const char *orch_death_reason(const orch_death *death);
/* The limit that ended the scope: ORCH_LIMIT_MEMORY, ORCH_LIMIT_TIME, or 0. Since 0.1. */
ORCH_API uint32_t orch_death_limit(const orch_death *death);
/* Name of the scope, and its PID namespace's inode. Since 0.1. */
ORCH_API const char *orch_death_scope(const orch_death *death);
ORCH_API uint64_t orch_death_pidns_inode(const orch_death *death);
/*
 * The boot that all of it was in (/proc/sys/kernel/random/boot_id; macOS: kern.bootsessionuuid), or "" where the
 * system does not say. Pids and start times mean something only together with it. Valid while the certificate
 * lives. Since 0.1.
 */
ORCH_API const char *orch_death_boot_id(const orch_death *death);
/*
 * Which process was the scope's init: its pid as the host sees it, its start time in clock ticks since the boot
 * (proc(5), field 22 of /proc/PID/stat; 0: /proc hides it), and the inode number of its pidfd on pidfs, which no
 * other process of this boot ever has (0: kernel before 6.9). Outputs may be NULL.
 *
 * ORCH_EINVAL: `death` is NULL; ORCH_ESTATE: the scope ended before its init was known, or has none (macOS). Since 0.1.
 */
ORCH_API int32_t orch_death_init(const orch_death *death, int32_t *ret_pid, uint64_t *ret_start_time_ticks,
				 uint64_t *ret_pidfs_inode);
/*
 * Processes alive at the request, the init not counted. Without a cgroup the count ends after 50 ms, so that a fork
 * storm does not delay the kill: it is a lower bound then. Since 0.1.
 */
ORCH_API uint32_t orch_death_alive_at_request(const orch_death *death);
/* CLOCK_REALTIME of the request, in ms since 1970. Since 0.1. */
ORCH_API int64_t orch_death_requested_at_ms(const orch_death *death);
/* From the request to the last death, and to its confirmation, in microseconds. Since 0.1. */
ORCH_API int64_t orch_death_last_death_us(const orch_death *death);
ORCH_API int64_t orch_death_confirmed_us(const orch_death *death);
/*
 * Survivors by number, 0 .. count-1; ORCH_EINVAL past the end. Outputs may be NULL. Start times are clock ticks
 * since the boot (proc(5)), the last text is where it waits in the kernel; macOS: microseconds since 1970, the
 * process's name. Since 0.1.
 */
ORCH_API uint32_t orch_death_survivor_count(const orch_death *death);
ORCH_API int32_t orch_death_survivor(const orch_death *death, uint32_t index, int32_t *ret_pid,
				     uint64_t *ret_start_time_ticks, const char **ret_state,
				     const char **ret_wchan);
/*
 * Work on the host that belonged to the scope, by number, 0 .. count-1; ORCH_EINVAL past the end. Outputs may be NULL:
 * what orch_scope_add_work() was told, 1 or 0 for settled, and how it ended ("" if it did not settle). The texts are
 * valid while the certificate lives. Since 0.1.
 */
ORCH_API uint32_t orch_death_work_count(const orch_death *death);
ORCH_API int32_t orch_death_work(const orch_death *death, uint32_t index, const char **ret_what,
				 uint32_t *ret_settled, const char **ret_outcome);
/* The certificate for people, several lines. Valid while it lives. Since 0.1. */
ORCH_API const char *orch_death_text(const orch_death *death);

ORCH_END_DECLS

#endif
