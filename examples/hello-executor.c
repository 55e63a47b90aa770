/* SPDX-License-Identifier: Apache-2.0 */
/* hello-executor FOLDER: a shell script does one attempt in FOLDER, and leaves its answer there. */
#include <orch.h>
#include <stdio.h>

static void on_done(void *ctx, orch_job *job, uint32_t end, int32_t status, const char *message)
{
	(void)job;
	printf("end %u, status %d, %s\n", end, status, message);
	orch_ctx_quit(ctx);
}

int main(int argc, char **argv)
{
	const char *const work[] = {"/bin/sh", "-c", "tr a-z A-Z > answer.txt", NULL};
	struct orch_executor_opts opts = {
	    .size = sizeof(opts), .kind = ORCH_EXECUTOR_COMMAND, .argv = work};
	struct orch_job_opts job = {.size = sizeof(job), .packet = "shout this\n", .done = on_done};
	orch_executor *executor = NULL;
	orch_sandbox *sandbox = NULL;
	orch_ctx *ctx = NULL;
	orch_error *error = NULL;

	if (argc != 2 || orch_ctx_new(NULL, &ctx, &error) < 0)
		return 2;
	job.userdata = ctx;
	if (orch_executor_new(ctx, &opts, &executor, &error) == 0 &&
	    orch_sandbox_new(ctx, NULL, &sandbox, &error) == 0 &&
	    orch_sandbox_set_workspace(sandbox, argv[1], NULL, &error) == 0 &&
	    orch_executor_prepare(executor, sandbox, &error) == 0 &&
	    orch_sandbox_start_wait(sandbox, 20000, &error) == 0 &&
	    orch_executor_run(executor, sandbox, &job, NULL, &error) == 0)
		orch_ctx_run(ctx, -1, &error);
	fputs(orch_error_message(error), stderr);
	orch_sandbox_unref(sandbox);
	orch_executor_unref(executor);
	orch_ctx_unref(ctx);
	return error ? 1 : 0;
}
