/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_H
#define ORCH_SANDBOX_H

/*
 * orch_sandbox: deny by default on every channel. A sandbox is a policy (the builder calls below) and,
 * once started, a scope with an empty root, namespaces of its own, Landlock, seccomp, no capabilities.
 *
 * Builder calls are allowed until the start; later they give ORCH_ESTATE.
 */

#include <orch/scope.h>

ORCH_BEGIN_DECLS

typedef struct orch_sandbox orch_sandbox;
typedef struct orch_sandbox_result orch_sandbox_result;
typedef struct orch_sandbox_report orch_sandbox_report;
typedef struct orch_sandbox_answer orch_sandbox_answer;
typedef struct orch_sandbox_pool orch_sandbox_pool;
typedef struct orch_changes orch_changes;

#define ORCH_ROOT_EMPTY 1u /* nothing but /proc, /dev, /tmp */
#define ORCH_ROOT_TOOLS 2u /* and read-only /usr, /bin, /lib*, a minimal /etc */

#define ORCH_NET_NONE 1u
/* 127.0.0.1:8080 inside is a socket that the host accepts on: orch_sandbox_listener_fd() */
#define ORCH_NET_BROKER 2u

/* The inner port of the ORCH_NET_BROKER listener. */
#define ORCH_BROKER_PORT 8080

struct orch_sandbox_opts {
	uint32_t size;
	uint32_t flags;
	const char *label;       /* copied; NULL: the scope's random name */
	uint32_t root;           /* 0: ORCH_ROOT_TOOLS */
	uint32_t net;            /* 0: ORCH_NET_NONE */
	uint32_t least_rung;     /* 0: ORCH_RUNG_PIDNS; where the protection "namespaces" is not required, any */
	uint32_t setup_timeout_ms; /* 0: 10000 */
	uint32_t max_processes;  /* RLIMIT_NPROC inside the user namespace; 0: 512 */
	uint32_t max_open_files; /* 0: 1024 */
	uint64_t max_file_mib;   /* RLIMIT_FSIZE; 0: 2048 */
	/*
	 * Bytes that programs can write in the sandbox's private file system, in MiB: /tmp, /dev/shm and what overlays
	 * hold, together. When it is full, writing fails with ENOSPC, and a program that then ends without success has
	 * ORCH_REASON_DISK. Folders of the host that are writable inside are not counted. 0: 256
	 */
	uint64_t tmp_mib;
	uint64_t max_memory_mib; /* at least 4; where a cgroup has a memory controller (degradable); 0: none */
	/* Percent of one processor; where a cgroup has a cpu controller (degradable); 0: none. Since 0.1. */
	uint32_t max_cpu_percent;
	uint32_t reserved;
	/*
	 * Wall time from the start; then everything in it is killed, with ORCH_REASON_TIME, which is also that of a
	 * program that had not come to run; 0: none. Since 0.1.
	 */
	int64_t time_limit_ms;
};

ORCH_API void orch_sandbox_opts_init(struct orch_sandbox_opts *opts, uint32_t size);

/* Nothing is started. ORCH_EINVAL, ORCH_E2BIG, ORCH_ENOMEM, ORCH_EFORKED. Since 0.1. */
ORCH_API int32_t orch_sandbox_new(orch_ctx *ctx, const struct orch_sandbox_opts *opts,
				  orch_sandbox **ret_sandbox, orch_error **reterr);
ORCH_API orch_sandbox *orch_sandbox_ref(orch_sandbox *sandbox);
/* The last reference kills the load. Takes NULL, returns NULL. Since 0.1. */
ORCH_API orch_sandbox *orch_sandbox_unref(orch_sandbox *sandbox);

#define ORCH_PATH_READ 1u
#define ORCH_PATH_WRITE 2u
#define ORCH_PATH_EXEC 4u
/*
 * The folder is handed to the sandbox's own uid (recursively, symbolic links not followed, mounts not
 * crossed) when the caller is root; for an ordinary user it is the user's own anyway. A file with further
 * hard links keeps its owner. Implies read, write and execute.
 */
#define ORCH_PATH_OWN 8u

/*
 * Makes a host file or folder visible at `inner_path` (absolute; NULL: the same path). The host path is
 * resolved once, when the sandbox starts; a path that is missing then is a start error. `access`: one or
 * more of ORCH_PATH_*. Without ORCH_PATH_READ below a path that has it, the start is ORCH_EUNENFORCEABLE: the right to
 * read reaches down.
 *
 * ORCH_EINVAL: relative or empty path, "..", /proc, /dev or / as inner path, a folder of the system
 * with ORCH_PATH_OWN; ORCH_EEXIST: inner path is taken; ORCH_ETOOBIG: more than 16384 rules; ORCH_ESTATE.
 * Since 0.1.
 */
ORCH_API int32_t orch_sandbox_add_path(orch_sandbox *sandbox, const char *host_path,
				       const char *inner_path, uint32_t access, orch_error **reterr);
/*
 * Closes an inner path and everything below it, whatever else allows it: the deeper of two rules wins, and at the same
 * path this one. Inside, a closed folder is empty and can not be entered (passed only, where something below it is allowed),
 * a closed file can not be opened; neither can be moved away. A symbolic link is closed itself, not what it leads to.
 *
 * A path that is missing when the sandbox starts stays closed when it is made later: where it lies in a folder of the host
 * that is writable inside, a placeholder is put in its place on the host, an empty file of mode 01400 (a folder of mode
 * 01700 if the path ends in a slash, and for each folder that is missing on the way), and taken away when the load is dead
 * if nothing else took its place. Sandboxes over the same folder share it; that of a host that was killed goes with the next
 * one. In a folder that is read-only inside, the same for the path itself if the folder around it is there and the caller may
 * write to it; else, and in the root's own folders (/usr), what the host makes later is not closed.
 *
 * What is closed is the file or folder that was there at the start: if the host itself removes or replaces it meanwhile (an
 * editor that saves by renaming), the new one is seen. Deny the folder around such a file.
 *
 * At the start ORCH_EUNENFORCEABLE with the path: a folder on the way to it is a symbolic link; no placeholder can be made.
 * ORCH_EINVAL as above; ORCH_ETOOBIG; ORCH_ESTATE. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_deny_path(orch_sandbox *sandbox, const char *inner_path, orch_error **reterr);
/*
 * The workspace: ORCH_PATH_OWN at `inner_path` (NULL: "/work"), and the working directory of programs.
 * Errors as above. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_set_workspace(orch_sandbox *sandbox, const char *host_path,
					    const char *inner_path, orch_error **reterr);
/*
 * A workspace of which the host's folder stays as it is: programs see its files at `inner_path` (NULL: "/work"), and what
 * they write goes to the sandbox's private file system (tmp_mib). orch_sandbox_changes() tells what they changed. It is
 * the working directory, as with orch_sandbox_set_workspace(), of which a sandbox has one or this, once.
 *
 * Where the caller is root, files of the folder's owner and group are the sandbox's own inside. Files of others can be read
 * if everybody may, and neither changed nor deleted (EOVERFLOW). What is mounted below the folder is not seen. Of a folder
 * that was there rename(2) gives EXDEV, and mv copies it.
 *
 * Errors as above; ORCH_ENOTSUP: not on this system. At the start ORCH_EUNENFORCEABLE: the kernel can not make it (before
 * Linux 6.6, which gave tmpfs the attributes that it needs), or the folder's file system can not be below one: as root it
 * needs identity-mapped mounts, as ext4, xfs and btrfs have them. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_set_overlay(orch_sandbox *sandbox, const char *host_path, const char *inner_path,
					  orch_error **reterr);
/*
 * Reads a policy (schemas/policy.rng): the same as the builder calls and the fields of orch_sandbox_opts that it names.
 * `name` is for messages (NULL: "policy"). Nothing is changed if it is refused.
 *
 * ORCH_EINVAL: not well-formed, not of the schema, or a rule that a builder call refuses; the message begins with
 * NAME:LINE. ORCH_ETOOBIG: more than 16 MiB. ORCH_ESTATE. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_read_policy(orch_sandbox *sandbox, const void *xml, size_t length, const char *name,
					  orch_error **reterr);
/* The same from a file. Also ORCH_ENOENT, ORCH_ESYS. Since 0.1. */
ORCH_API int32_t orch_sandbox_load_policy(orch_sandbox *sandbox, const char *path, orch_error **reterr);
/*
 * Adds to the environment of every program. It starts with PATH, HOME=/tmp/home, LANG=C.UTF-8, TMPDIR=/tmp
 * and nothing of the host's; without namespaces HOME and TMPDIR are the workspace. NULL as value
 * removes. ORCH_EINVAL: name empty or with '='. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_set_env(orch_sandbox *sandbox, const char *name, const char *value,
				      orch_error **reterr);

#define ORCH_PROTECT_REQUIRED 1u   /* not enforceable: the start is refused with its name */
#define ORCH_PROTECT_DEGRADABLE 2u /* goes on, and the report says partial */
#define ORCH_PROTECT_OFF 3u
/*
 * Level of a protection. Required by default: "namespaces" (user, PID, mount, network, IPC, UTS and cgroup namespaces
 * with a root built from nothing), "landlock", "seccomp". Degradable by default: "memory", "cpu" (the limits of the
 * options, where they are given).
 *
 * Without namespaces (off, or degradable and the host gives none) Landlock and seccomp are required whatever their
 * level is: programs see the host's root and reach of it what the rules allow, inner paths have to be those of the
 * host, there is no network, no private file system and nothing that hides other processes' names; the report says so. A
 * scope's rung may then be any (least_rung: 0 is ORCH_RUNG_SUBREAPER). Programs of the sandbox can not signal each other, but
 * what descends from them; on a Landlock before ABI 6 (Linux 6.12) an ordinary user's can signal nothing but their own
 * process group. As root, others have to be allowed to pass the folders above each path.
 *
 * ORCH_ENOENT: no such protection. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_set_protection(orch_sandbox *sandbox, const char *protection,
					     uint32_t level, orch_error **reterr);

typedef void (*orch_sandbox_start_fn)(void *userdata, orch_sandbox *sandbox, const orch_error *error);

/*
 * Sets up namespaces, mounts and the listener. The callback comes once; `error` is NULL on success and
 * borrowed. Errors of set-up: ORCH_EUNENFORCEABLE (what, why, remedy), ORCH_ESYS with step, ORCH_ENOENT
 * for a missing host path, ORCH_EDENIED: a file of an ORCH_PATH_OWN tree has hard links and is not readable
 * for everybody, so that it can not be handed over, or (as root, without namespaces) the sandbox's uid can not reach a
 * path; ORCH_ETOOBIG: such a tree is deeper than 256 folders;
 * ORCH_ETIMEDOUT, ORCH_EHELPER. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_start(orch_sandbox *sandbox, orch_sandbox_start_fn fn, void *userdata,
				    orch_destroy_fn destroy, orch_error **reterr);
/* The waiting form. Also ORCH_EDEADLK. Since 0.1. */
ORCH_API int32_t orch_sandbox_start_wait(orch_sandbox *sandbox, int64_t timeout_ms, orch_error **reterr);

/*
 * Why would `path` (inside, absolute) be denied? Answers from the rules that are enforced, or would be if it were started
 * now: nothing is tried, so what a program finds may be less (a mode of the host's file). Links are not followed:
 * ask for where they lead. `access`: ORCH_PATH_READ, _WRITE, _EXEC.
 *
 * ORCH_EINVAL; ORCH_ENOMEM; ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_why(orch_sandbox *sandbox, const char *path, uint32_t access,
				  orch_sandbox_answer **ret_answer, orch_error **reterr);
ORCH_API orch_sandbox_answer *orch_sandbox_answer_unref(orch_sandbox_answer *answer);
/* What of the access asked for is denied: ORCH_PATH_*, 0: nothing. Since 0.1. */
ORCH_API uint32_t orch_sandbox_answer_denied(const orch_sandbox_answer *answer);
/* The rule that decided, as it was given ("deny /work/.git", with NAME:LINE of a policy), or "" if none covers the path. Lives
 * with the answer. Since 0.1. */
ORCH_API const char *orch_sandbox_answer_rule(const orch_sandbox_answer *answer);
/* A sentence for people. Lives with the answer. Since 0.1. */
ORCH_API const char *orch_sandbox_answer_text(const orch_sandbox_answer *answer);

/* The scope; borrowed; NULL before the start. Since 0.1. */
ORCH_API orch_scope *orch_sandbox_scope(orch_sandbox *sandbox);
/* The uid of the load as the host sees it. Since 0.1. */
ORCH_API uint32_t orch_sandbox_host_uid(const orch_sandbox *sandbox);
/*
 * The listening socket of ORCH_NET_BROKER, borrowed (orch_broker_add_listener() duplicates it).
 * ORCH_ESTATE: not started, or ORCH_NET_NONE. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_listener_fd(orch_sandbox *sandbox);

/* `fd` belongs to the callback, -1 with an error. */
typedef void (*orch_sandbox_connect_fn)(void *userdata, int32_t fd, const orch_error *error);
/*
 * Connects to 127.0.0.1:port **inside** the sandbox's network namespace. The socket is non-blocking and
 * close-on-exec. ORCH_ESTATE: not started or over; ORCH_ENOTSUP: it has no namespaces. In the callback: ORCH_ESYS
 * with ECONNREFUSED when nobody listens. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_connect(orch_sandbox *sandbox, uint16_t port, orch_sandbox_connect_fn fn,
				      void *userdata, orch_destroy_fn destroy, orch_error **reterr);

/*
 * Starts a program in the (started) sandbox; see orch_scope_spawn(). NULL as envp gives the sandbox's
 * environment; entries of a given envp are added to it. NULL as cwd: the workspace, or "/". Since 0.1.
 */
ORCH_API int32_t orch_sandbox_spawn(orch_sandbox *sandbox, const struct orch_proc_opts *opts,
				    orch_proc **ret_proc, orch_error **reterr);

struct orch_run_opts {
	uint32_t size;
	uint32_t flags;
	int64_t timeout_ms;    /* 0: 60000; then the scope is stopped and ORCH_ETIMEDOUT is in the result */
	uint64_t output_limit; /* bytes kept of each stream; 0: 1 MiB; the rest is read and dropped */
	const void *input;     /* for stdin; NULL: /dev/null */
	size_t input_length;
};

ORCH_API void orch_run_opts_init(struct orch_run_opts *opts, uint32_t size);

/*
 * The short form: start if need be, run argv as leader, capture its output, stop the scope, return all
 * of it with the certificate. The sandbox is over afterwards.
 *
 * Errors: those of the start and of orch_proc_wait() before the program ran. A program that ran always
 * gives 0 and a result, and so does one that did not come to it before the sandbox's time_limit_ms: its
 * status is ORCH_ETIMEDOUT, its reason ORCH_REASON_TIME. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_run(orch_sandbox *sandbox, const char *const *argv,
				  const struct orch_run_opts *opts, orch_sandbox_result **ret_result,
				  orch_error **reterr);
ORCH_API orch_sandbox_result *orch_sandbox_result_unref(orch_sandbox_result *result);
/* 0..255, 256 + signal, or ORCH_ETIMEDOUT. Since 0.1. */
ORCH_API int32_t orch_sandbox_result_status(const orch_sandbox_result *result);
/* Bytes of a stream (1 or 2), not terminated; length by pointer. Owned by the result. Since 0.1. */
ORCH_API const void *orch_sandbox_result_output(const orch_sandbox_result *result, int32_t stream,
						size_t *ret_length);
/* 1 if bytes over the limit were dropped. Since 0.1. */
ORCH_API int32_t orch_sandbox_result_truncated(const orch_sandbox_result *result, int32_t stream);
/* Why the program ended: ORCH_REASON_*. Since 0.1. */
ORCH_API uint32_t orch_sandbox_result_reason(const orch_sandbox_result *result);
/* The certificate, borrowed. Since 0.1. */
ORCH_API orch_death *orch_sandbox_result_death(const orch_sandbox_result *result);

#define ORCH_CHANGE_ADDED 1u
#define ORCH_CHANGE_MODIFIED 2u /* content, mode, type or link target; a folder only if its mode is another */
#define ORCH_CHANGE_DELETED 3u

/*
 * What programs changed in the overlay, sorted by path, while the sandbox stands or after its end, as long as it has a
 * reference. All of a new or deleted folder has rows of its own; what was only touched, or written anew as it was, has none.
 * Read from the private file system without following a link; what a living program does meanwhile may be seen in part.
 *
 * ORCH_ESTATE: it has no overlay, or never stood; ORCH_ETOOBIG: more than 1,000,000 paths, or folders deeper than 256;
 * ORCH_ESYS; ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_changes(orch_sandbox *sandbox, orch_changes **ret_changes, orch_error **reterr);
ORCH_API orch_changes *orch_changes_unref(orch_changes *changes);
ORCH_API uint32_t orch_changes_count(const orch_changes *changes);
/*
 * Row `index`: path relative to the workspace (a byte string), ORCH_CHANGE_*, mode as of stat(2) (0: deleted), and bytes of
 * a file. Outputs may be NULL; the path lives with the changes. ORCH_EINVAL past the end. Since 0.1.
 */
ORCH_API int32_t orch_changes_row(const orch_changes *changes, uint32_t index, const char **ret_path,
				  uint32_t *ret_kind, uint32_t *ret_mode, uint64_t *ret_bytes);
/*
 * One line for each: "A path", "M path", "D path". A control character or '\\' of a path is written as \ooo. Lives with the
 * changes. Since 0.1.
 */
ORCH_API const char *orch_changes_text(const orch_changes *changes);
/*
 * Writes the added and modified files, folders and links below the folder `path`, which has to be there and empty, owned by
 * the caller. Not written: devices, sockets, pipes, set-id bits. Links are written as they are and never followed.
 *
 * ORCH_ESTATE: the sandbox is gone; ORCH_EEXIST: the folder is not empty; ORCH_ESYS with the path: what was written
 * stays. Since 0.1.
 */
ORCH_API int32_t orch_changes_export(const orch_changes *changes, const char *path, orch_error **reterr);

/*
 * A pool keeps `ready` sandboxes started, each a copy of `pattern` as it is now, so that a program needs to wait for no
 * set-up. A sandbox that was taken is the caller's, with one reference, and another one is started in the background.
 * `pattern` is not started and is not used afterwards. Its time_limit_ms runs from each start, also while a sandbox
 * waits to be taken: one whose time is over is replaced.
 *
 * ORCH_EINVAL: ready is 0 or above 256, or a path of the pattern is ORCH_PATH_OWN (a folder has one owner; an overlay is
 * fine); ORCH_ESTATE: the pattern was started; ORCH_ENOMEM; ORCH_EFORKED. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_pool_new(orch_sandbox *pattern, uint32_t ready, orch_sandbox_pool **ret_pool,
				       orch_error **reterr);
ORCH_API orch_sandbox_pool *orch_sandbox_pool_ref(orch_sandbox_pool *pool);
/* The last reference ends those that nobody took. Takes NULL, returns NULL. Since 0.1. */
ORCH_API orch_sandbox_pool *orch_sandbox_pool_unref(orch_sandbox_pool *pool);
/*
 * One that is ready. ORCH_EBUSY: none is at the moment; or the error of the last start, if that failed: the pool tries again
 * at the next call. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_pool_take(orch_sandbox_pool *pool, orch_sandbox **ret_sandbox, orch_error **reterr);
/*
 * Waits for one. A failure that was there before is forgotten, and so is that of a start that was on its way: who waits is
 * told how it goes now; a loop that only looks (timeout 0) calls orch_sandbox_pool_take(). Also ORCH_ETIMEDOUT,
 * ORCH_EDEADLK. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_pool_take_wait(orch_sandbox_pool *pool, int64_t timeout_ms,
					     orch_sandbox **ret_sandbox, orch_error **reterr);
/* How many are ready now. Since 0.1. */
ORCH_API uint32_t orch_sandbox_pool_ready(const orch_sandbox_pool *pool);

#define ORCH_CHANNEL_ENFORCED 1u
#define ORCH_CHANNEL_PARTIAL 2u
#define ORCH_CHANNEL_ABSENT 3u
#define ORCH_PROBE_PASSED 1u  /* the probe: the attempt from inside was denied. The control: it worked outside */
#define ORCH_PROBE_FAILED 2u
#define ORCH_PROBE_NOT_RUN 3u

/*
 * Makes a throw-away sandbox of the given options (NULL: defaults), runs one live probe per channel in it
 * against a live target whose positive control outside succeeded, and reports. Waits; at most
 * `timeout_ms` (0: 20000). For its memory limit a second one, of 32 MiB, is driven over it, about which the kernel
 * writes a line in its log; not where the sysctl vm.panic_on_oom is 2.
 *
 * Errors: those of orch_sandbox_start_wait(). Since 0.1.
 */
ORCH_API int32_t orch_sandbox_report_run(orch_ctx *ctx, const struct orch_sandbox_opts *opts,
					 int64_t timeout_ms, orch_sandbox_report **ret_report,
					 orch_error **reterr);
ORCH_API orch_sandbox_report *orch_sandbox_report_unref(orch_sandbox_report *report);
ORCH_API uint32_t orch_sandbox_report_count(const orch_sandbox_report *report);
/*
 * Row `index`: channel name ("file.read"), state, mechanism, probe and control (ORCH_PROBE_*), and a
 * detail for people. Outputs may be NULL; strings live with the report. ORCH_EINVAL past the end.
 * Since 0.1.
 */
ORCH_API int32_t orch_sandbox_report_row(const orch_sandbox_report *report, uint32_t index,
					 const char **ret_channel, uint32_t *ret_state,
					 const char **ret_mechanism, uint32_t *ret_probe,
					 uint32_t *ret_control, const char **ret_detail);
/*
 * For a row that is not ORCH_CHANNEL_ENFORCED: what is missing here and what to do about it; else NULL. Lives with the
 * report. Since 0.1.
 */
ORCH_API const char *orch_sandbox_report_remedy(const orch_sandbox_report *report, uint32_t index);
/* A table for people. Valid while the report lives. Since 0.1. */
ORCH_API const char *orch_sandbox_report_text(const orch_sandbox_report *report);

ORCH_END_DECLS

#endif
