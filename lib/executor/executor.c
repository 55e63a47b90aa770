/* SPDX-License-Identifier: Apache-2.0 */
#include "executor-private.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

static const struct {
	uint32_t kind;
	const char *name;
	const char *inner; /* folder in which its program is shown */
} kinds[] = {
	{ORCH_EXECUTOR_MINI, "mini", "/opt/mini"},
	{ORCH_EXECUTOR_CLAUDE, "claude", "/opt/claude"},
	{ORCH_EXECUTOR_CODEX, "codex", "/opt/codex"},
	{ORCH_EXECUTOR_COMMAND, "command", "/opt/executor"},
	{ORCH_EXECUTOR_CALLBACK, "callback", NULL},
};

void orch_executor_opts_init(struct orch_executor_opts *opts, uint32_t size)
{
	const struct orch_executor_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

const char *orch_executor_kind_name(uint32_t kind)
{
	return kind >= 1 && kind <= sizeof(kinds) / sizeof(kinds[0]) ? kinds[kind - 1].name : "unknown";
}

static bool is_file(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* The folder of a program is shown, and the program is run from there. */
static int32_t show_folder(orch_executor *executor, const char *path, orch_error **reterr)
{
	const char *inner = kinds[executor->kind - 1].inner;
	_cleanup_free_ char *real = realpath(path, NULL);
	char *slash;

	if (real == NULL)
		return orch_fail(reterr, ORCH_ENOENT, errno, NULL, "executor %s: there is no program %s",
				 orch_executor_kind_name(executor->kind), path);
	slash = strrchr(real, '/');
	executor->program = orch_strdup_printf("%s/%s", inner, slash + 1);
	*slash = '\0';
	if (real[0] == '\0')
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "executor %s: %s lies in the root folder, which can not be shown; move it",
				 orch_executor_kind_name(executor->kind), path);
	executor->shown_host = ORCH_STEAL(real);
	executor->shown_inner = strdup(inner);
	return executor->program != NULL && executor->shown_inner != NULL ? 0 : orch_fail_memory(reterr);
}

/* Beside orch-mini there may be a whole build tree: the file alone. */
static int32_t take_mini(orch_executor *executor, const char *given, orch_error **reterr)
{
	int32_t code = 0;

	if (given != NULL)
		executor->shown_host = strdup(given);
	else
		code = executor_find_mini(executor->ctx, &executor->shown_host, reterr);
	if (code < 0)
		return code;
	executor->shown_inner = strdup("/opt/mini/orch-mini");
	executor->program = strdup("/opt/mini/orch-mini");
	return executor->shown_host != NULL && executor->shown_inner != NULL && executor->program != NULL
		       ? 0
		       : orch_fail_memory(reterr);
}

static int32_t take_cli(orch_executor *executor, const char *program, orch_error **reterr)
{
	if (program == NULL)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "executor %s: orch_executor_opts.program must be the path of the CLI",
				 orch_executor_kind_name(executor->kind));
	return show_folder(executor, program, reterr);
}

/* What /usr and its links hold is in every sandbox with tools, under the same name. */
static bool is_system_path(const char *path)
{
	static const char *const roots[] = {"/usr/", "/bin/", "/sbin/", "/lib", NULL};

	for (const char *const *root = roots; *root != NULL; root++) {
		if (strncmp(path, *root, strlen(*root)) == 0)
			return true;
	}
	return false;
}

static int32_t take_argv(orch_executor *executor, const char *const *argv, orch_error **reterr)
{
	size_t count = 0;
	int32_t code = 0;

	if (argv == NULL || argv[0] == NULL || argv[0][0] == '\0')
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "executor command: orch_executor_opts.argv names no program");
	if (strchr(argv[0], '/') != NULL && !is_system_path(argv[0]))
		code = show_folder(executor, argv[0], reterr);
	if (code < 0)
		return code;
	while (argv[count] != NULL)
		count++;
	executor->argv = calloc(count + 1, sizeof(*executor->argv));
	if (executor->argv == NULL)
		return orch_fail_memory(reterr);
	for (size_t i = 0; i < count; i++) {
		executor->argv[i] = strdup(i == 0 && executor->program != NULL ? executor->program : argv[i]);
		if (executor->argv[i] == NULL)
			return orch_fail_memory(reterr);
	}
	return 0;
}

/* The program, seen from the host, before anything is started. */
static int32_t check_program(const orch_executor *executor, const char *path, orch_error **reterr)
{
	if (path == NULL || (is_file(path) && access(path, X_OK) == 0))
		return 0;
	return orch_fail(reterr, ORCH_ENOENT, errno, NULL, "executor %s: %s is not an executable file",
			 orch_executor_kind_name(executor->kind), path);
}

static int32_t take_opts(orch_executor *executor, const struct orch_executor_opts *opts,
			 orch_error **reterr)
{
	int32_t code = 0;

	if (opts->program != NULL && opts->program[0] != '/')
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_executor_opts.program %s must be an absolute path", opts->program);
	if (opts->model != NULL && (executor->model = strdup(opts->model)) == NULL)
		return orch_fail_memory(reterr);
	switch (executor->kind) {
	case ORCH_EXECUTOR_MINI:
		code = take_mini(executor, opts->program, reterr);
		return code < 0 ? code : check_program(executor, executor->shown_host, reterr);
	case ORCH_EXECUTOR_CLAUDE:
	case ORCH_EXECUTOR_CODEX:
		code = take_cli(executor, opts->program, reterr);
		return code < 0 ? code : check_program(executor, opts->program, reterr);
	case ORCH_EXECUTOR_COMMAND:
		code = take_argv(executor, opts->argv, reterr);
		return code < 0 ? code
				: check_program(executor, strchr(opts->argv[0], '/') ? opts->argv[0] : NULL,
						reterr);
	default:
		if (opts->job == NULL)
			return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
					 "executor callback: orch_executor_opts.job is NULL");
		return 0;
	}
}

static int32_t check_opts(const struct orch_executor_opts *opts, orch_error **reterr)
{
	if (opts->kind < 1 || opts->kind > sizeof(kinds) / sizeof(kinds[0]))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_executor_opts.kind %u is unknown",
				 opts->kind);
	if (opts->api > ORCH_API_OPENAI)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_executor_opts.api %u is unknown",
				 opts->api);
	if (opts->flags != 0)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_executor_opts.flags: none is defined");
	return 0;
}

static void executor_destroy(orch_executor *executor)
{
	if (executor->destroy != NULL && !orch_ctx_forked(executor->ctx))
		executor->destroy(executor->userdata);
	for (char **argument = executor->argv; argument != NULL && *argument != NULL; argument++)
		free(*argument);
	free(executor->argv);
	free(executor->model);
	free(executor->shown_host);
	free(executor->shown_inner);
	free(executor->program);
	free(executor);
}

void executor_hold(orch_executor *executor)
{
	atomic_fetch_add(&executor->references, 1);
}

void executor_drop(orch_executor *executor)
{
	if (atomic_fetch_sub(&executor->references, 1) == 1)
		executor_destroy(executor);
}

/* In the loop's thread: the last handle of the host is gone. */
static void forgotten(void *object)
{
	orch_executor *executor = object;
	orch_ctx *ctx = executor->ctx;

	executor_drop(executor);
	orch_ctx_unref(ctx);
}

int32_t orch_executor_new(orch_ctx *ctx, const struct orch_executor_opts *opts,
			  orch_executor **ret_executor, orch_error **reterr)
{
	struct orch_executor_opts known;
	orch_executor *executor;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_executor_opts", reterr);

	if (code == 0)
		code = orch_ctx_check(ctx, reterr);
	if (code == 0 && ret_executor == NULL)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_executor is NULL");
	if (code == 0)
		code = check_opts(&known, reterr);
	executor = code == 0 ? calloc(1, sizeof(*executor)) : NULL;
	if (executor == NULL) {
		if (known.destroy != NULL)
			known.destroy(known.userdata);
		return code < 0 ? code : orch_fail_memory(reterr);
	}
	atomic_init(&executor->users, 1);
	atomic_init(&executor->references, 1);
	executor->ctx = orch_ctx_ref(ctx);
	executor->kind = known.kind;
	executor->api = known.api != 0 ? known.api : ORCH_API_ANTHROPIC;
	executor->job = known.job;
	executor->userdata = known.userdata;
	executor->destroy = known.destroy;
	code = take_opts(executor, &known, reterr);
	if (code < 0) {
		forgotten(executor);
		return code;
	}
	*ret_executor = executor;
	return 0;
}

orch_executor *orch_executor_ref(orch_executor *executor)
{
	if (executor != NULL)
		atomic_fetch_add(&executor->users, 1);
	return executor;
}

orch_executor *orch_executor_unref(orch_executor *executor)
{
	if (executor != NULL && atomic_fetch_sub(&executor->users, 1) == 1)
		orch_ctx_destroy_later(executor->ctx, forgotten, executor);
	return NULL;
}

uint32_t orch_executor_kind(const orch_executor *executor)
{
	return executor != NULL ? executor->kind : 0;
}

const char *orch_executor_operation(const orch_executor *executor)
{
	if (executor == NULL)
		return NULL;
	switch (executor->kind) {
	case ORCH_EXECUTOR_MINI:
		return executor->api == ORCH_API_OPENAI ? "ai.openai" : "ai.anthropic";
	case ORCH_EXECUTOR_CLAUDE:
		return "ai.anthropic";
	case ORCH_EXECUTOR_CODEX:
		return "ai.openai";
	default:
		return NULL;
	}
}

int32_t orch_executor_prepare(orch_executor *executor, orch_sandbox *sandbox, orch_error **reterr)
{
	if (executor == NULL || sandbox == NULL)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL",
				 executor == NULL ? "the executor" : "the sandbox");
	if (executor->shown_host == NULL)
		return 0;
	return orch_sandbox_add_path(sandbox, executor->shown_host, executor->shown_inner,
				     ORCH_PATH_READ | ORCH_PATH_EXEC, reterr);
}
