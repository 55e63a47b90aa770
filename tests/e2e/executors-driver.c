/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For executors.py: one attempt of one executor in a sandbox, with a broker in front of a provider. What
 * happened is told on stdout, one JSON object a line.
 *
 *     executors-driver KIND PROGRAM API URL KEY FOLDER HELPER PACKET [no-grant]
 *
 * KIND is a name of orch_executor_kind_name(); PROGRAM "-" takes the default; FOLDER has work/ in it.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <orch.h>

struct driver {
	orch_ctx *ctx;
	uint32_t end;
	int32_t status;
	char message[4096];
	uint64_t claimed;
};

static void tell(json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);

	puts(text);
	fflush(stdout);
	free(text);
	json_decref(line);
}

static void check(int32_t code, orch_error *error, const char *what)
{
	if (code == 0)
		return;
	fprintf(stderr, "executors-driver: %s: %s: %s\n", what, orch_code_name(code), orch_error_message(error));
	exit(1);
}

#define CHECK(call)                                                                                \
	do {                                                                                       \
		orch_error *error = NULL;                                                          \
		int32_t code = (call);                                                             \
		check(code, error, #call);                                                         \
	} while (0)

static void on_event(void *userdata, orch_job *job, uint32_t event, const char *text)
{
	static const char *const names[] = {"?", "text", "tool", "result", "other"};

	(void)userdata;
	(void)job;
	tell(json_pack("{s:s,s:s}", "event", names[event], "text", text));
}

static void on_done(void *userdata, orch_job *job, uint32_t end, int32_t status, const char *message)
{
	struct driver *driver = userdata;

	driver->end = end;
	driver->status = status;
	driver->claimed = orch_job_claimed_tokens(job);
	snprintf(driver->message, sizeof(driver->message), "%s", message);
	orch_ctx_quit(driver->ctx);
}

static uint32_t kind_of(const char *name)
{
	for (uint32_t kind = ORCH_EXECUTOR_MINI; kind <= ORCH_EXECUTOR_CALLBACK; kind++) {
		if (strcmp(orch_executor_kind_name(kind), name) == 0)
			return kind;
	}
	fprintf(stderr, "executors-driver: no kind %s\n", name);
	exit(1);
}

static orch_executor *make_executor(orch_ctx *ctx, char **argv)
{
	const char *const command[] = {argv[2], NULL};
	struct orch_executor_opts opts;
	orch_executor *executor = NULL;

	orch_executor_opts_init(&opts, sizeof(opts));
	opts.kind = kind_of(argv[1]);
	opts.program = strcmp(argv[2], "-") != 0 ? argv[2] : NULL;
	opts.argv = command;
	opts.api = strcmp(argv[3], "openai") == 0 ? ORCH_API_OPENAI : ORCH_API_ANTHROPIC;
	CHECK(orch_executor_new(ctx, &opts, &executor, &error));
	return executor;
}

static orch_broker *make_broker(orch_ctx *ctx, const char *operation, const char *url, const char *key,
				const char *folder)
{
	struct orch_upstream_opts upstream;
	struct orch_broker_opts opts;
	orch_broker *broker = NULL;
	char journal[512];

	snprintf(journal, sizeof(journal), "%s/journal.db", folder);
	orch_broker_opts_init(&opts, sizeof(opts));
	opts.journal_path = journal;
	CHECK(orch_broker_new(ctx, &opts, &broker, &error));
	orch_upstream_opts_init(&upstream, sizeof(upstream));
	upstream.base_url = url;
	upstream.credential = ORCH_CREDENTIAL_API_KEY;
	upstream.secret = key;
	if (operation != NULL)
		CHECK(orch_broker_set_upstream(broker, operation, &upstream, &error));
	return broker;
}

static orch_principal *make_principal(orch_broker *broker, const char *operation)
{
	struct orch_principal_opts who;
	struct orch_grant_opts grant;
	orch_principal *principal = NULL;

	orch_principal_opts_init(&who, sizeof(who));
	who.name = "driver/T1/1";
	who.generation = 1;
	CHECK(orch_principal_new(broker, &who, &principal, &error));
	orch_grant_opts_init(&grant, sizeof(grant));
	grant.operation = operation;
	if (operation != NULL)
		CHECK(orch_principal_grant(principal, &grant, &error));
	return principal;
}

static orch_sandbox *make_sandbox(orch_ctx *ctx, orch_executor *executor, const char *folder)
{
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	char work[512];

	snprintf(work, sizeof(work), "%s/work", folder);
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.net = ORCH_NET_BROKER;
	CHECK(orch_sandbox_new(ctx, &opts, &sandbox, &error));
	CHECK(orch_sandbox_set_workspace(sandbox, work, NULL, &error));
	CHECK(orch_sandbox_set_env(sandbox, "ORCH_BROKER", "http://127.0.0.1:8080", &error));
	CHECK(orch_executor_prepare(executor, sandbox, &error));
	CHECK(orch_sandbox_start_wait(sandbox, 20000, &error));
	return sandbox;
}

int main(int argc, char **argv)
{
	struct driver driver = {.status = -1};
	struct orch_ctx_opts ctx_opts;
	struct orch_job_opts job;
	orch_death *death = NULL;
	uint64_t requests = 0, tokens = 0;

	if (argc < 9) {
		fputs("usage: executors-driver KIND PROGRAM API URL KEY FOLDER HELPER PACKET [no-grant]\n", stderr);
		return 64;
	}
	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	ctx_opts.helper_path = argv[7];
	CHECK(orch_ctx_new(&ctx_opts, &driver.ctx, &error));
	orch_executor *executor = make_executor(driver.ctx, argv);
	const char *operation = orch_executor_operation(executor);
	orch_broker *broker = make_broker(driver.ctx, operation, argv[4], argv[5], argv[6]);
	orch_principal *principal = make_principal(broker, argc > 9 ? NULL : operation);
	orch_sandbox *sandbox = make_sandbox(driver.ctx, executor, argv[6]);

	CHECK(orch_broker_add_listener(broker, orch_sandbox_listener_fd(sandbox), principal, &error));
	orch_job_opts_init(&job, sizeof(job));
	job.packet = argv[8];
	job.timeout_ms = 150000;
	job.event = on_event;
	job.done = on_done;
	job.userdata = &driver;
	CHECK(orch_executor_run(executor, sandbox, &job, NULL, &error));
	CHECK(orch_ctx_run(driver.ctx, 170000, &error));
	CHECK(orch_scope_stop_wait(orch_sandbox_scope(sandbox), NULL, &death, &error));
	orch_principal_spent(principal, &requests, &tokens, NULL);
	tell(json_pack("{s:s,s:i,s:i,s:s,s:s,s:I,s:I,s:I,s:i}", "event", "end", "end", (int)driver.end, "status",
		       (int)driver.status, "message", driver.message, "verdict", orch_death_verdict_name(death),
		       "requests", (json_int_t)requests, "tokens", (json_int_t)tokens, "claimed",
		       (json_int_t)driver.claimed, "uid", (int)orch_sandbox_host_uid(sandbox)));
	orch_death_unref(death);
	orch_principal_revoke(principal, NULL, NULL, NULL, NULL);
	orch_principal_unref(principal);
	orch_sandbox_unref(sandbox);
	orch_executor_unref(executor);
	orch_broker_unref(broker);
	orch_ctx_unref(driver.ctx);
	return 0;
}
