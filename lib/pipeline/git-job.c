/* SPDX-License-Identifier: Apache-2.0 */
/* One script in one sandbox, from start to certificate. */
#include <stdio.h>

#include "document-private.h"
#include "git-private.h"

#define JOB_TIMEOUT_MS (15 * 60 * 1000)
#define OUTPUT_MAX (1u << 20)

static void end(struct git_job *job, orch_error *error)
{
	if (job->done)
		return;
	job->done = true;
	job->timer = orch_source_remove(job->timer);
	if (job->scratch && tree_remove(job->scratch, NULL) < 0)
		orch_ctx_logf(job->ctx, ORCH_LOG_WARNING, "%s could not be removed", job->scratch);
	const char *deaths = job->cell->death ? job->cell->death : "";
	/* The job may be freed in there. */
	job->report(job, deaths, error);
	orch_error_free(error);
}

static void finish(struct git_job *job)
{
	const struct cell *cell = job->cell;
	orch_error *error = NULL;
	/* A program that is not proved to be dead may still be changing what it left. */
	if (cell->error)
		error = orch_error_copy(cell->error);
	else if (cell->death_verdict != ORCH_DEATH_DEAD &&
		 cell->death_verdict != ORCH_DEATH_DEAD_UNREAPED)
		orch_fail(&error, ORCH_EBUSY, 0, "git",
			  "git's sandbox could not be proved to be over: %s",
			  cell->death ? cell->death : "");
	else if (job->timed_out)
		orch_fail(&error, ORCH_ETIMEDOUT, 0, "git", "git did not end within %d minutes",
			  JOB_TIMEOUT_MS / 60000);
	else if (cell->exec_error)
		error = orch_error_copy(cell->exec_error);
	else
		job->finish(job, cell->exit_code, &error);
	end(job, error);
}

static void on_changed(void *userdata)
{
	struct git_job *job = userdata;
	struct cell *cell = job->cell;
	if (job->done)
		return;
	if (cell->over)
		finish(job);
	else if (cell->stopping)
		return;
	else if (cell->error || cell->exited || cell->out.over_limit)
		cell_stop(cell);
	else if (cell->started && !cell->spawned)
		cell_spawn(cell, job->argv, NULL, OUTPUT_MAX);
	/* What fails or ends at once says so in the cell alone. */
	if (!job->done && !cell->stopping && (cell->exited || cell->error))
		cell_stop(cell);
	if (!job->done && cell->over)
		finish(job);
}

static void on_timeout(void *userdata)
{
	struct git_job *job = userdata;
	job->timed_out = true;
	cell_stop(job->cell);
	if (!job->done && job->cell->over)
		finish(job);
}

static int32_t make_sandbox(struct git_job *job, const char *label, const struct git_mount *mounts,
			    orch_sandbox **ret_sandbox, orch_error **reterr)
{
	static const char *const environment[][2] = {
	    {"GIT_CONFIG_NOSYSTEM", "1"},
	    {"GIT_CONFIG_GLOBAL", "/dev/null"},
	    {"GIT_NO_REPLACE_OBJECTS", "1"},
	    {"GIT_TERMINAL_PROMPT", "0"},
	    {"GIT_ALLOW_PROTOCOL", "none"},
	    {"GIT_ATTR_NOSYSTEM", "1"},
	    {"LC_ALL", "C"},
	    {"HOME", "/nowhere"},
	};
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.label = label;
	opts.max_file_mib = 64 * 1024;
	int32_t code = orch_sandbox_new(job->ctx, &opts, &sandbox, reterr);
	if (!code)
		code = orch_sandbox_set_workspace(sandbox, mounts[0].host, mounts[0].inner, reterr);
	for (const struct git_mount *mount = mounts + 1; !code && mount->host; mount++)
		code = orch_sandbox_add_path(sandbox, mount->host, mount->inner, ORCH_PATH_READ,
					     reterr);
	for (size_t i = 0; !code && i < sizeof(environment) / sizeof(*environment); i++)
		code = orch_sandbox_set_env(sandbox, environment[i][0], environment[i][1], reterr);
	if (code < 0)
		orch_sandbox_unref(sandbox);
	else
		*ret_sandbox = sandbox;
	return code;
}

int32_t git_job_start(struct git_job *job, const char *label, const struct git_mount *mounts,
		      orch_error **reterr)
{
	orch_sandbox *sandbox = NULL;
	int32_t code = make_sandbox(job, label, mounts, &sandbox, reterr);
	if (!code)
		code = cell_new(job->ctx, sandbox, on_changed, job, &job->cell, reterr);
	if (!code)
		code = orch_source_timer(job->ctx, JOB_TIMEOUT_MS, on_timeout, job, &job->timer,
					 reterr);
	if (code < 0)
		return code;
	cell_start(job->cell);
	if (!job->cell->error)
		return 0;
	code = orch_error_code(job->cell->error);
	if (reterr)
		*reterr = orch_error_copy(job->cell->error);
	return code;
}

const char *git_job_output(const struct git_job *job, size_t *ret_length)
{
	*ret_length = job->cell->out.bytes.length;
	return job->cell->out.bytes.data ? job->cell->out.bytes.data : "";
}

int32_t git_job_fail(const struct git_job *job, int32_t status, const char *what,
		     orch_error **reterr)
{
	_cleanup_free_ char *said = NULL;
	if (job->cell->err.bytes.data)
		said = text_trimmed(job->cell->err.bytes.data);
	if (status == 127)
		return orch_fail(reterr, ORCH_ENOENT, 0, "git",
				 "%s: git is not installed on this host: install it", what);
	return orch_fail(reterr, ORCH_ECORRUPT, 0, "git", "%s (exit code %d): %s", what, status,
			 said && *said ? said : "git said nothing");
}

struct git_job *git_job_free(struct git_job *job)
{
	if (!job)
		return NULL;
	orch_source_remove(job->timer);
	cell_free(job->cell);
	free(job->scratch);
	free(job->repo);
	free(job->base_rev);
	free(job->staging);
	free(job->trees_dir);
	free(job->product);
	free(job->branch);
	free(job->base_commit);
	orch_ctx_unref(job->ctx);
	free(job);
	return NULL;
}
