/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host whose executor is a function of its own: callback-run SCENARIO-DIR STATE-DIR ANNOUNCE-URL completes the scenario without a
 * model. The function runs the scenario's steps in the job's sandbox; nothing here reaches the library but its public headers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <orch.h>

struct host {
	const char *scenario;
};

struct work {
	orch_job *job;
	char *script;
};

static char *read_text(const char *path)
{
	FILE *file = fopen(path, "re");
	if (!file)
		return NULL;
	char *text = calloc(1, 1 << 20);
	size_t length = fread(text, 1, (1 << 20) - 1, file);
	text[length] = '\0';
	fclose(file);
	return text;
}

static char *find_script(const char *scenario, const char *packet)
{
	char role[64], stage[64], task[64], path[4096];
	if (sscanf(packet, "orch-packet/1 run=%*s role=%63s stage=%63s task=%63s", role, stage, task) != 3)
		return NULL;
	snprintf(path, sizeof(path), "%s/%s-%s-%s.sh", scenario, role, stage, task);
	char *script = read_text(path);
	if (script)
		return script;
	snprintf(path, sizeof(path), "%s/%s-%s.sh", scenario, role, stage);
	return read_text(path);
}

static void drop_work(void *userdata)
{
	struct work *work = userdata;
	orch_job_unref(work->job);
	free(work->script);
	free(work);
}

static void on_proc(void *userdata, orch_proc *proc, uint32_t event)
{
	struct work *work = userdata;
	if (event != ORCH_PROC_STARTED)
		orch_job_finish(work->job, event == ORCH_PROC_EXITED ? orch_proc_exit_code(proc) : -1, "script ended", NULL);
}

static void do_job(void *userdata, orch_job *job)
{
	struct host *host = userdata;
	struct work *work = calloc(1, sizeof(*work));
	work->job = orch_job_ref(job);
	work->script = find_script(host->scenario, orch_job_packet(job));
	const char *argv[] = {"/bin/sh", "-c", work->script ? work->script : "exit 3", NULL};
	struct orch_proc_opts opts;
	orch_error *error = NULL;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.event = on_proc;
	opts.userdata = work;
	opts.destroy = drop_work;
	opts.stderr_fd = 2;
	if (orch_sandbox_spawn(orch_job_sandbox(job), &opts, NULL, &error) < 0) {
		fprintf(stderr, "spawn: %s\n", orch_error_message(error));
		orch_error_free(error);
	}
}

static int die(const char *what, orch_error *error)
{
	fprintf(stderr, "callback-run: %s: %s\n", what, orch_error_message(error));
	return 1;
}

int main(int argc, char **argv)
{
	struct host host = {.scenario = argc == 4 ? argv[1] : ""};
	struct orch_pipeline_opts opts;
	struct orch_executor_opts executor_opts;
	struct orch_grant_opts grant;
	orch_ctx *ctx = NULL;
	orch_pipeline *pipeline = NULL;
	orch_executor *executor = NULL;
	orch_error *error = NULL;
	uint32_t state = 0;
	char probe[1024];
	if (argc != 4)
		return 2;
	if (orch_ctx_new(NULL, &ctx, &error) < 0)
		return die("context", error);
	orch_pipeline_opts_init(&opts, sizeof(opts));
	opts.state_dir = argv[2];
	opts.idea = "A small web application for a shelf of books";
	opts.description = "callback";
	if (orch_pipeline_new(ctx, &opts, &pipeline, &error) < 0)
		return die("pipeline", error);
	orch_executor_opts_init(&executor_opts, sizeof(executor_opts));
	executor_opts.kind = ORCH_EXECUTOR_CALLBACK;
	executor_opts.job = do_job;
	executor_opts.userdata = &host;
	if (orch_executor_new(ctx, &executor_opts, &executor, &error) < 0 ||
	    orch_pipeline_set_executor(pipeline, 0, executor, &error) < 0)
		return die("executor", error);
	snprintf(probe, sizeof(probe), "%s/{key}", argv[3]);
	orch_grant_opts_init(&grant, sizeof(grant));
	grant.operation = "notify.send";
	grant.url = argv[3];
	grant.probe_url = probe;
	if (orch_pipeline_allow(pipeline, &grant, &error) < 0 ||
	    orch_pipeline_accept_recommended(pipeline, &error) < 0)
		return die("allow", error);
	if (orch_pipeline_run(pipeline, 240000, &state, &error) < 0)
		return die("run", error);
	printf("%s %s\n", orch_run_state_name(state), orch_pipeline_report_path(pipeline));
	orch_executor_unref(executor);
	orch_pipeline_unref(pipeline);
	orch_ctx_unref(ctx);
	return state == ORCH_RUN_DELIVERED ? 0 : 10;
}
