/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of the agents, as they run inside a sandbox. */
#include "executor-private.h"

#include "../sandbox/sandbox-private.h"

#define BROKER "http://127.0.0.1:8080"
_Static_assert(ORCH_BROKER_PORT == 8080, "BROKER names the port");

/* Nothing that an agent could use: the broker takes it off and puts the real one in its place. */
#define PLACEHOLDER "placeholder"

/*
 * base_url is the broker; a WebSocket would be tried for seconds before each turn; the provider's own
 * retries are few, because the broker answers with what the upstream said. Plugins would be fetched from
 * the network, which is not there, and that holds the exit for seconds.
 */
static const char codex_config[] =
	"model_provider = \"orch\"\n"
	"check_for_update_on_startup = false\n"
	"[analytics]\n"
	"enabled = false\n"
	"[features]\n"
	"plugins = false\n"
	"[model_providers.orch]\n"
	"name = \"orch\"\n"
	"base_url = \"" BROKER "/ai.openai/v1\"\n"
	"wire_api = \"responses\"\n"
	"env_key = \"ORCH_PLACEHOLDER_KEY\"\n"
	"requires_openai_auth = false\n"
	"supports_websockets = false\n"
	"request_max_retries = 2\n"
	"stream_max_retries = 2\n";

static const char codex_start[] =
	"mkdir -p \"$CODEX_HOME\" && printf %s \"$ORCH_CODEX_CONFIG\" > \"$CODEX_HOME/config.toml\" && "
	"unset ORCH_CODEX_CONFIG && exec \"$0\" \"$@\"";
static const char claude_start[] = "mkdir -p \"$HOME\" && exec \"$0\" \"$@\"";

struct builder {
	struct command *command;
	size_t argc, envc;
};

static void argument(struct builder *builder, const char *text)
{
	builder->command->argv[builder->argc++] = text;
}

static void variable(struct builder *builder, const char *text)
{
	builder->command->envp[builder->envc++] = text;
}

static void model(struct builder *builder, const orch_executor *executor, const char *option)
{
	if (executor->model == NULL)
		return;
	argument(builder, option);
	argument(builder, executor->model);
}

static void mini_command(struct builder *builder, const orch_executor *executor)
{
	bool openai = executor->api == ORCH_API_OPENAI;

	argument(builder, executor->program);
	argument(builder, "--api");
	argument(builder, openai ? "openai" : "anthropic");
	argument(builder, "--base-url");
	argument(builder, openai ? BROKER "/ai.openai" : BROKER "/ai.anthropic");
	model(builder, executor, "--model");
}

static void claude_command(struct builder *builder, const orch_executor *executor)
{
	argument(builder, "/bin/sh");
	argument(builder, "-c");
	argument(builder, claude_start);
	argument(builder, executor->program);
	argument(builder, "-p");
	argument(builder, "--output-format");
	argument(builder, "stream-json");
	argument(builder, "--verbose");
	argument(builder, "--dangerously-skip-permissions");
	argument(builder, "--strict-mcp-config");
	model(builder, executor, "--model");
	variable(builder, "HOME=/tmp/home");
	variable(builder, "IS_SANDBOX=1");
	variable(builder, "ANTHROPIC_BASE_URL=" BROKER "/ai.anthropic");
	variable(builder, "ANTHROPIC_API_KEY=" PLACEHOLDER);
	variable(builder, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1");
	/* Ten tries with growing pauses would be minutes of silence where the broker has refused. */
	variable(builder, "CLAUDE_CODE_MAX_RETRIES=3");
	variable(builder, "DISABLE_AUTOUPDATER=1");
	variable(builder, "DISABLE_TELEMETRY=1");
	variable(builder, "DISABLE_ERROR_REPORTING=1");
}

static bool codex_command(struct builder *builder, const orch_executor *executor)
{
	char **owned = builder->command->owned;

	argument(builder, "/bin/sh");
	argument(builder, "-c");
	argument(builder, codex_start);
	argument(builder, executor->program);
	argument(builder, "exec");
	argument(builder, "--json");
	argument(builder, "--dangerously-bypass-approvals-and-sandbox");
	argument(builder, "--skip-git-repo-check");
	model(builder, executor, "--model");
	argument(builder, "-"); /* the prompt comes on stdin */
	variable(builder, "HOME=/tmp/home");
	variable(builder, "CODEX_HOME=/tmp/home/.codex");
	variable(builder, "ORCH_PLACEHOLDER_KEY=" PLACEHOLDER);
	owned[0] = orch_strdup_printf("ORCH_CODEX_CONFIG=%s", codex_config);
	variable(builder, owned[0]);
	return owned[0] != NULL;
}

const char *const *executor_command(const orch_executor *executor, struct command *command)
{
	struct builder builder = {.command = command};
	bool good = true;

	memset(command, 0, sizeof(*command));
	switch (executor->kind) {
	case ORCH_EXECUTOR_MINI:
		mini_command(&builder, executor);
		break;
	case ORCH_EXECUTOR_CLAUDE:
		claude_command(&builder, executor);
		break;
	case ORCH_EXECUTOR_CODEX:
		good = codex_command(&builder, executor);
		break;
	default:
		return (const char *const *)executor->argv;
	}
	return good ? command->argv : NULL;
}

void executor_command_clear(struct command *command)
{
	for (size_t i = 0; i < sizeof(command->owned) / sizeof(command->owned[0]); i++)
		free(command->owned[i]);
	memset(command, 0, sizeof(*command));
}

/* Where orch-reaper is, orch-mini is too: beside it when installed, two rooms on in a build tree. */
int32_t executor_find_mini(orch_ctx *ctx, char **ret_path, orch_error **reterr)
{
	static const char *const places[] = {"orch-mini", "../executor/mini/orch-mini"};
	_cleanup_free_ char *helper = NULL;
	int32_t code = orch_reaper_find_helper(ctx, &helper, reterr);

	if (code < 0)
		return code;
	*strrchr(helper, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		_cleanup_free_ char *path = orch_strdup_printf("%s/%s", helper, places[i]);
		char *real = path != NULL ? realpath(path, NULL) : NULL;

		if (real != NULL && access(real, X_OK) == 0) {
			*ret_path = real;
			return 0;
		}
		free(real);
	}
	return orch_fail(reterr, ORCH_ENOENT, 0, NULL,
			 "executor mini: orch-mini was found neither beside orch-reaper (%s) nor in "
			 "../executor/mini from there: install it, or set orch_executor_opts.program",
			 helper);
}
