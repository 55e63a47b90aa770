/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_EXECUTOR_PRIVATE_H
#define ORCH_EXECUTOR_PRIVATE_H

#include <orch/executor.h>

#include "../core/core-private.h"

struct orch_executor {
	atomic_uint users;      /* handles of the host, which keep the context */
	atomic_uint references; /* one for all users, one for each job that runs */
	orch_ctx *ctx;
	uint32_t kind, api;
	char *model;       /* or NULL */
	char **argv;       /* command: as it is run inside */
	char *shown_host;  /* what orch_executor_prepare() shows, or NULL */
	char *shown_inner;
	char *program;     /* inner path of the CLI */
	orch_job_fn job;
	void *userdata;
	orch_destroy_fn destroy;
};

/* For a job: keeps the executor, and not the context. */
void executor_hold(orch_executor *executor);
void executor_drop(orch_executor *executor);

/* --- job.c ------------------------------------------------------------------------------------ */

/*
 * For lib/pipeline: ends the job here and now, without `done`, and lets go of its sandbox; `destroy` is called. What runs is
 * left to the sandbox's end. Nothing happens to a job that has ended.
 */
void executor_abandon(orch_job *job);
/*
 * For lib/pipeline: orch_executor_run() with a job that is borrowed, until `done` or executor_abandon(). So a host's executor
 * that drops what it was given is noticed: nobody else holds it.
 */
int32_t executor_run(orch_executor *executor, orch_sandbox *sandbox, const struct orch_job_opts *opts, orch_job **ret_job,
		     orch_error **reterr);

/* --- command.c: what is run inside ------------------------------------------------------------ */

struct command {
	const char *argv[32]; /* command executors have their own */
	const char *envp[16];
	char *owned[2];
};

/* argv to run; in `command` or in the executor. NULL: out of memory. */
const char *const *executor_command(const orch_executor *executor, struct command *command);
void executor_command_clear(struct command *command);
/* Finds orch-mini. The caller frees. */
int32_t executor_find_mini(orch_ctx *ctx, char **ret_path, orch_error **reterr);

/* --- agent-events.c: what the program says. No I/O. ------------------------------------------- */

/* A JSON event may be as long as a tool's result; a line of a `command` is cut into pieces. */
#define AGENT_LINE_LIMIT ((size_t)4 * 1024 * 1024)
#define COMMAND_LINE_LIMIT ((size_t)16 * 1024)

struct agent_stream {
	uint32_t kind;
	struct orch_buf line;
	bool has_result;
	char *reason; /* what the last result or error event said, bounded; or NULL */
	uint64_t tokens;
	void (*event)(void *userdata, uint32_t event, const char *text);
	void *userdata;
	const char *broken; /* why, when agent_feed() failed */
};

/* The number of events, or -1: the stream is broken, and nothing more is taken. */
int64_t agent_feed(struct agent_stream *stream, const char *bytes, size_t length);
/* The end: a last line without newline. */
int64_t agent_end(struct agent_stream *stream);
void agent_clear(struct agent_stream *stream);

#endif
