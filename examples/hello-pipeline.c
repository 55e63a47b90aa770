/* SPDX-License-Identifier: Apache-2.0 */
/* hello-pipeline STATE-DIR URL IDEA: a product from an idea; the model is at URL. */
#include <orch.h>
#include <stdio.h>
#include <stdlib.h>

static void on_event(void *stream, const char *json)
{
	fprintf(stream, "%s\n", json);
}

int main(int argc, char **argv)
{
	struct orch_pipeline_opts opts = {.size = sizeof(opts), .max_tokens = 10000000};
	struct orch_executor_opts mini = {.size = sizeof(mini), .kind = ORCH_EXECUTOR_MINI};
	struct orch_upstream_opts model = {.size = sizeof(model)};
	orch_pipeline *pipeline = NULL;
	orch_executor *executor = NULL;
	orch_ctx *ctx = NULL;
	orch_error *error = NULL;
	uint32_t state = 0;
	if (argc != 4)
		return 2;
	opts.state_dir = argv[1], model.base_url = argv[2], opts.idea = argv[3];
	model.secret = getenv("ANTHROPIC_API_KEY");
	model.credential = model.secret ? ORCH_CREDENTIAL_API_KEY : ORCH_CREDENTIAL_NONE;
	if (orch_ctx_new(NULL, &ctx, &error) < 0 ||
	    orch_executor_new(ctx, &mini, &executor, &error) < 0 ||
	    orch_pipeline_new(ctx, &opts, &pipeline, &error) < 0 ||
	    orch_pipeline_set_executor(pipeline, 0, executor, &error) < 0 ||
	    orch_pipeline_on_event(pipeline, on_event, stdout, NULL, &error) < 0 ||
	    orch_broker_set_upstream(orch_pipeline_broker(pipeline), "ai.anthropic", &model,
				     &error) < 0 ||
	    orch_pipeline_run(pipeline, -1, &state, &error) < 0)
		fprintf(stderr, "hello-pipeline: %s\n", orch_error_message(error));
	orch_pipeline_unref(pipeline);
	orch_executor_unref(executor);
	orch_ctx_unref(ctx);
	return state != ORCH_RUN_DELIVERED;
}
