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
	uint32_t least_rung;     /* 0: ORCH_RUNG_PIDNS */
	uint32_t setup_timeout_ms; /* 0: 10000 */
	uint32_t max_processes;  /* RLIMIT_NPROC inside the user namespace; 0: 512 */
	uint32_t max_open_files; /* 0: 1024 */
	uint64_t max_file_mib;   /* RLIMIT_FSIZE; 0: 2048 */
	uint64_t tmp_mib;        /* size of the tmpfs on /tmp; 0: 256 */
	uint64_t max_memory_mib; /* at least 4; where a cgroup has a memory controller (degradable); 0: none */
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
 * more of ORCH_PATH_*.
 *
 * ORCH_EINVAL: relative or empty path, "..", /proc, /dev or / as inner path, a folder of the system
 * with ORCH_PATH_OWN; ORCH_EEXIST: inner path is taken; ORCH_ETOOBIG: more than 256 paths; ORCH_ESTATE.
 * Since 0.1.
 */
ORCH_API int32_t orch_sandbox_add_path(orch_sandbox *sandbox, const char *host_path,
				       const char *inner_path, uint32_t access, orch_error **reterr);
/*
 * The workspace: ORCH_PATH_OWN at `inner_path` (NULL: "/work"), and the working directory of programs.
 * Errors as above. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_set_workspace(orch_sandbox *sandbox, const char *host_path,
					    const char *inner_path, orch_error **reterr);
/*
 * Adds to the environment of every program. It starts with PATH, HOME=/tmp/home, LANG=C.UTF-8, TMPDIR=/tmp
 * and nothing of the host's. NULL as value removes. ORCH_EINVAL: name empty or with '='. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_set_env(orch_sandbox *sandbox, const char *name, const char *value,
				      orch_error **reterr);

#define ORCH_PROTECT_REQUIRED 1u   /* not enforceable: the start is refused with its name */
#define ORCH_PROTECT_DEGRADABLE 2u /* goes on, and the report says partial */
#define ORCH_PROTECT_OFF 3u
/*
 * Level of a protection: "landlock", "seccomp", "memory". All are required but "memory", which is
 * degradable. ORCH_ENOENT: no such protection. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_set_protection(orch_sandbox *sandbox, const char *protection,
					     uint32_t level, orch_error **reterr);

typedef void (*orch_sandbox_start_fn)(void *userdata, orch_sandbox *sandbox, const orch_error *error);

/*
 * Sets up namespaces, mounts and the listener. The callback comes once; `error` is NULL on success and
 * borrowed. Errors of set-up: ORCH_EUNENFORCEABLE (what, why, remedy), ORCH_ESYS with step, ORCH_ENOENT
 * for a missing host path, ORCH_EDENIED: a file of an ORCH_PATH_OWN tree has hard links and is not readable
 * for everybody, so that it can not be handed over; ORCH_ETOOBIG: such a tree is deeper than 256 folders;
 * ORCH_ETIMEDOUT, ORCH_EHELPER. Since 0.1.
 */
ORCH_API int32_t orch_sandbox_start(orch_sandbox *sandbox, orch_sandbox_start_fn fn, void *userdata,
				    orch_destroy_fn destroy, orch_error **reterr);
/* The waiting form. Also ORCH_EDEADLK. Since 0.1. */
ORCH_API int32_t orch_sandbox_start_wait(orch_sandbox *sandbox, int64_t timeout_ms, orch_error **reterr);

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
 * close-on-exec. ORCH_ESTATE: not started or over. In the callback: ORCH_ESYS with ECONNREFUSED when
 * nobody listens. Since 0.1.
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
 * gives 0 and a result. Since 0.1.
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
/* The certificate, borrowed. Since 0.1. */
ORCH_API orch_death *orch_sandbox_result_death(const orch_sandbox_result *result);

#define ORCH_CHANNEL_ENFORCED 1u
#define ORCH_CHANNEL_PARTIAL 2u
#define ORCH_CHANNEL_ABSENT 3u
#define ORCH_PROBE_PASSED 1u  /* the probe: the attempt from inside was denied. The control: it worked outside */
#define ORCH_PROBE_FAILED 2u
#define ORCH_PROBE_NOT_RUN 3u

/*
 * Makes a throw-away sandbox of the given options (NULL: defaults), runs one live probe per channel in it
 * against a live target whose positive control outside succeeded, and reports. Waits; at most
 * `timeout_ms` (0: 20000).
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
/* A table for people. Valid while the report lives. Since 0.1. */
ORCH_API const char *orch_sandbox_report_text(const orch_sandbox_report *report);

ORCH_END_DECLS

#endif
