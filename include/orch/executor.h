/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_EXECUTOR_H
#define ORCH_EXECUTOR_H

/*
 * orch_executor: what does the work of a role. It gets a packet (text) and a sandbox with a workspace, and
 * leaves its answer as files in the workspace. Nothing it prints and no exit code proves anything.
 */

#include <orch/broker.h>
#include <orch/sandbox.h>

ORCH_BEGIN_DECLS

typedef struct orch_executor orch_executor;
typedef struct orch_job orch_job;

#define ORCH_EXECUTOR_MINI 1u     /* built in: orch-mini, one tool, a shell */
#define ORCH_EXECUTOR_CLAUDE 2u   /* Claude Code: claude -p, stream-json */
#define ORCH_EXECUTOR_CODEX 3u    /* Codex CLI: codex exec --json */
#define ORCH_EXECUTOR_COMMAND 4u  /* any program: packet on stdin, workspace as working directory */
#define ORCH_EXECUTOR_CALLBACK 5u /* a function of the host */

#define ORCH_API_ANTHROPIC 1u /* Messages */
#define ORCH_API_OPENAI 2u    /* Responses */

/*
 * The host's executor. The job is borrowed: ref it to finish later. Finish with orch_job_finish(); dropping
 * the last reference without is a failed attempt.
 */
typedef void (*orch_job_fn)(void *userdata, orch_job *job);

struct orch_executor_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t kind;            /* ORCH_EXECUTOR_* */
	uint32_t api;             /* mini: ORCH_API_*; 0: ORCH_API_ANTHROPIC */
	const char *model;        /* NULL: the executor's own default */
	/*
	 * command: argv, NULL-terminated. argv[0] that is a host file is shown read-only in the sandbox with
	 * its folder, at /opt/executor.
	 */
	const char *const *argv;
	/* claude, codex: absolute host path of the CLI. mini: of orch-mini; NULL: beside the library. */
	const char *program;
	orch_job_fn job;          /* callback */
	void *userdata;
	orch_destroy_fn destroy;
};

ORCH_API void orch_executor_opts_init(struct orch_executor_opts *opts, uint32_t size);
/* ORCH_EINVAL; ORCH_ENOENT: the program is not there (the message says where it was sought). Since 0.1. */
ORCH_API int32_t orch_executor_new(orch_ctx *ctx, const struct orch_executor_opts *opts,
				   orch_executor **ret_executor, orch_error **reterr);
ORCH_API orch_executor *orch_executor_ref(orch_executor *executor);
ORCH_API orch_executor *orch_executor_unref(orch_executor *executor);
ORCH_API uint32_t orch_executor_kind(const orch_executor *executor);
/* "mini", "claude", "codex", "command", "callback". Since 0.1. */
ORCH_API const char *orch_executor_kind_name(uint32_t kind);
/* "ai.anthropic", "ai.openai" or NULL: the grant it needs. Since 0.1. */
ORCH_API const char *orch_executor_operation(const orch_executor *executor);
/*
 * Shows the program's files in a sandbox that is not started yet. orch_executor_run() needs it.
 * Errors of orch_sandbox_add_path(). Since 0.1.
 */
ORCH_API int32_t orch_executor_prepare(orch_executor *executor, orch_sandbox *sandbox,
				       orch_error **reterr);

#define ORCH_JOB_EVENT_TEXT 1u  /* what the agent says */
#define ORCH_JOB_EVENT_TOOL 2u  /* a tool call began; text: the command */
#define ORCH_JOB_EVENT_RESULT 3u
#define ORCH_JOB_EVENT_OTHER 4u /* tolerated, not understood */

#define ORCH_JOB_FINISHED 1u  /* the program ended by itself (its code proves nothing) */
#define ORCH_JOB_STALLED 2u   /* no event for stall_ms; killed */
#define ORCH_JOB_TIMED_OUT 3u /* over timeout_ms; killed */
#define ORCH_JOB_FAILED 4u    /* could not be started, or its event stream was broken */
#define ORCH_JOB_HUNG 5u      /* did not exit after its result; killed after the grace period */

typedef void (*orch_job_event_fn)(void *userdata, orch_job *job, uint32_t event, const char *text);
/* `end`: ORCH_JOB_*; `status`: 0..255, 256 + signal, or -1; `message`: for people. The job is borrowed. */
typedef void (*orch_job_done_fn)(void *userdata, orch_job *job, uint32_t end, int32_t status,
				 const char *message);

struct orch_job_opts {
	uint32_t size;
	uint32_t flags;
	const char *packet;     /* the whole prompt; copied */
	uint32_t timeout_ms;    /* 0: 1800000 */
	uint32_t stall_ms;      /* 0: 300000 */
	orch_job_event_fn event;
	orch_job_done_fn done;  /* comes exactly once, not inside the call */
	void *userdata;
	orch_destroy_fn destroy;
};

ORCH_API void orch_job_opts_init(struct orch_job_opts *opts, uint32_t size);
/*
 * Runs one attempt in the (started) sandbox. The sandbox is not stopped by it: that is the caller's, and
 * gives the certificate. Keep the sandbox until the job is done: the job does not, and ends as ORCH_JOB_FAILED when
 * the last handle of it is dropped. The executor may be dropped. ORCH_EINVAL, ORCH_ESTATE: sandbox not started, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_executor_run(orch_executor *executor, orch_sandbox *sandbox,
				   const struct orch_job_opts *opts, orch_job **ret_job,
				   orch_error **reterr);
ORCH_API orch_job *orch_job_ref(orch_job *job);
ORCH_API orch_job *orch_job_unref(orch_job *job);
ORCH_API const char *orch_job_packet(const orch_job *job);
/* Borrowed, for a host's executor to run things where they belong; NULL once the job is over. Since 0.1. */
ORCH_API orch_sandbox *orch_job_sandbox(orch_job *job);
/* Host path of the workspace. Since 0.1. */
ORCH_API const char *orch_job_workspace(const orch_job *job);
/* callback executors: ends the job as FINISHED with `status`. ORCH_ESTATE: ended already. Since 0.1. */
ORCH_API int32_t orch_job_finish(orch_job *job, int32_t status, const char *message,
				 orch_error **reterr);
/* Tokens the executor itself claims to have used (not the authority: that is the broker). Since 0.1. */
ORCH_API uint64_t orch_job_claimed_tokens(const orch_job *job);

ORCH_END_DECLS

#endif
