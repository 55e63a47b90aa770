/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orch_executor with programs that behave well and badly in a real sandbox, and with functions of the
 * host. The CLIs are played by shell scripts here; the real ones are in tests/e2e/executors.py.
 */
#include "executor-fixture.h"

#include "../../lib/executor/executor-private.h"

/* --- options ---------------------------------------------------------------------------------- */

static void no_job(void *userdata, orch_job *job)
{
	(void)userdata, (void)job;
}

static unsigned dropped;

static void count_drop(void *userdata)
{
	(void)userdata;
	dropped++;
}

START_TEST(options_are_checked)
{
	orch_ctx *ctx = ctx_new();
	orch_executor *executor = (void *)ctx;
	struct orch_executor_opts opts;
	const char *none[] = {NULL};
	char plain[192];

	snprintf(plain, sizeof(plain), "%s", in(new_folder(), "plain"));
	put(plain, "x");
	orch_executor_opts_init(&opts, sizeof(opts));
	opts.destroy = count_drop;
	REFUSED(ORCH_EINVAL, "kind 0", orch_executor_new(ctx, &opts, &executor, e));
	opts.kind = 6;
	REFUSED(ORCH_EINVAL, "kind 6", orch_executor_new(ctx, &opts, &executor, e));
	opts.kind = ORCH_EXECUTOR_MINI;
	opts.api = 3;
	REFUSED(ORCH_EINVAL, "api 3", orch_executor_new(ctx, &opts, &executor, e));
	opts.api = 0;
	opts.program = "mini";
	REFUSED(ORCH_EINVAL, "absolute", orch_executor_new(ctx, &opts, &executor, e));
	opts.program = "/no/such/mini";
	REFUSED(ORCH_ENOENT, "/no/such/mini", orch_executor_new(ctx, &opts, &executor, e));
	/* Beside the helper that this context was given there is none. */
	opts.program = NULL;
	REFUSED(ORCH_ENOENT, folder, orch_executor_new(ctx, &opts, &executor, e));
	opts.kind = ORCH_EXECUTOR_CLAUDE;
	REFUSED(ORCH_EINVAL, "program", orch_executor_new(ctx, &opts, &executor, e));
	opts.kind = ORCH_EXECUTOR_CODEX;
	opts.program = "/no/such/codex";
	REFUSED(ORCH_ENOENT, "/no/such/codex", orch_executor_new(ctx, &opts, &executor, e));
	opts.program = plain;
	REFUSED(ORCH_ENOENT, "not an executable", orch_executor_new(ctx, &opts, &executor, e));
	opts.program = folder;
	REFUSED(ORCH_ENOENT, "not an executable", orch_executor_new(ctx, &opts, &executor, e));
	opts.program = NULL;
	opts.kind = ORCH_EXECUTOR_COMMAND;
	REFUSED(ORCH_EINVAL, "argv", orch_executor_new(ctx, &opts, &executor, e));
	opts.argv = none;
	REFUSED(ORCH_EINVAL, "argv", orch_executor_new(ctx, &opts, &executor, e));
	opts.argv = ARGV("/no/such/program");
	REFUSED(ORCH_ENOENT, "/no/such/program", orch_executor_new(ctx, &opts, &executor, e));
	opts.kind = ORCH_EXECUTOR_CALLBACK;
	REFUSED(ORCH_EINVAL, "job is NULL", orch_executor_new(ctx, &opts, &executor, e));
	opts.job = no_job;
	REFUSED(ORCH_EINVAL, "ret_executor", orch_executor_new(ctx, &opts, NULL, e));
	opts.flags = 1;
	REFUSED(ORCH_EINVAL, "flags", orch_executor_new(ctx, &opts, &executor, e));
	opts.flags = 0;
	ck_assert_uint_eq(dropped, 16);
	ck_assert_ptr_eq(executor, ctx);
	OK(orch_executor_new(ctx, &opts, &executor, e));
	ck_assert_uint_eq(dropped, 16);
	ck_assert_ptr_eq(orch_executor_ref(executor), executor);
	ck_assert_ptr_null(orch_executor_unref(executor));
	ck_assert_ptr_null(orch_executor_operation(executor));
	orch_executor_unref(executor);
	ck_assert_uint_eq(dropped, 17);
	ck_assert_ptr_null(orch_executor_unref(NULL));
	ck_assert_ptr_null(orch_job_unref(NULL));
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(names_and_operations)
{
	orch_ctx *ctx = ctx_new();
	struct orch_executor_opts opts;
	orch_executor *executor = NULL;

	ck_assert_str_eq(orch_executor_kind_name(ORCH_EXECUTOR_MINI), "mini");
	ck_assert_str_eq(orch_executor_kind_name(ORCH_EXECUTOR_CALLBACK), "callback");
	ck_assert_str_eq(orch_executor_kind_name(0), "unknown");
	ck_assert_str_eq(orch_executor_kind_name(6), "unknown");
	static const struct {
		uint32_t kind, api;
		const char *operation;
	} cases[] = {{ORCH_EXECUTOR_MINI, 0, "ai.anthropic"},
		     {ORCH_EXECUTOR_MINI, ORCH_API_OPENAI, "ai.openai"},
		     {ORCH_EXECUTOR_CLAUDE, 0, "ai.anthropic"},
		     {ORCH_EXECUTOR_CODEX, 0, "ai.openai"}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		orch_executor_opts_init(&opts, sizeof(opts));
		opts.kind = cases[i].kind;
		opts.api = cases[i].api;
		opts.program = self_path;
		OK(orch_executor_new(ctx, &opts, &executor, e));
		ck_assert_str_eq(orch_executor_operation(executor), cases[i].operation);
		orch_executor_unref(executor);
	}
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(runs_are_checked)
{
	orch_ctx *ctx = ctx_new(), *other = ctx_new();
	orch_executor *executor = executor_new(ctx, ORCH_EXECUTOR_COMMAND, SH("true"), NULL);
	struct watch watch = {.ctx = ctx};
	orch_sandbox *sandbox = NULL, *foreign = NULL;
	struct orch_job_opts opts;

	OK(orch_sandbox_new(ctx, NULL, &sandbox, e));
	OK(orch_sandbox_new(other, NULL, &foreign, e));
	job_opts(&opts, &watch);
	REFUSED(ORCH_ESTATE, "not started", orch_executor_run(executor, sandbox, &opts, NULL, e));
	REFUSED(ORCH_EINVAL, "contexts", orch_executor_run(executor, foreign, &opts, NULL, e));
	REFUSED(ORCH_EINVAL, "executor is NULL", orch_executor_run(NULL, sandbox, &opts, NULL, e));
	REFUSED(ORCH_EINVAL, "sandbox is NULL", orch_executor_run(executor, NULL, &opts, NULL, e));
	opts.packet = NULL;
	REFUSED(ORCH_EINVAL, "packet", orch_executor_run(executor, sandbox, &opts, NULL, e));
	ck_assert_uint_eq(watch.destroyed, 5);
	ck_assert_uint_eq(watch.done_count, 0);
	orch_executor_unref(executor);
	orch_sandbox_unref(sandbox);
	orch_sandbox_unref(foreign);
	orch_ctx_unref(ctx);
	orch_ctx_unref(other);
}
END_TEST

/* --- command ---------------------------------------------------------------------------------- */

START_TEST(command_gets_packet_and_workspace)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct watch watch = command(
		ctx, "pwd; head -1; echo done > answer; echo oops >&2; printf last; exit 3", NULL);

	ENDED(watch, ORCH_JOB_FINISHED, 3, "exited with code 3: oops");
	ck_assert_str_eq(watch.events,
			 "TEXT:/work\n"
			 "TEXT:orch-packet/1 run=r role=executor stage=execute task=T1 attempt=1\n"
			 "TEXT:last\n");
	ck_assert(holds(in(workspace, "answer"), "done\n"));
	watch = command(ctx, "kill -TERM $$", NULL);
	ENDED(watch, ORCH_JOB_FINISHED, 256 + 15, "ended by signal 15");
	/* Who does not read it is left alone. */
	watch = command(ctx, "exit 0", NULL);
	ENDED(watch, ORCH_JOB_FINISHED, 0, "exited with code 0");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(command_of_the_host_is_shown)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *place = new_folder(), *program = in(place, "work.sh");

	put(program, "#!/bin/sh\necho \"$0 $*\"; cat /opt/executor/beside; : > /opt/executor/x\n");
	put(in(place, "beside"), "here\n");
	ck_assert(chmod(program, 0755) == 0 && chmod(place, 0755) == 0);
	struct watch watch = attempt(
		ctx, executor_new(ctx, ORCH_EXECUTOR_COMMAND, ARGV(program, "a", "b c"), NULL), NULL);

	ck_assert_str_eq(watch.events, "TEXT:/opt/executor/work.sh a b c\nTEXT:here\n");
	ck_assert_uint_eq(watch.end, ORCH_JOB_FINISHED);
	ck_assert_int_ne(watch.status, 0); /* read-only */
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(missing_program_fails)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct watch watch =
		attempt(ctx, executor_new(ctx, ORCH_EXECUTOR_COMMAND, ARGV("no-such-program"), NULL), NULL);

	ENDED(watch, ORCH_JOB_FAILED, -1, "no-such-program");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(output_is_made_text)
{
	orch_ctx *ctx = ctx_new();
	struct watch watch = command(ctx,
				     "printf 'a\\000b \\377 \\303\\244\\r\\n\\n'\n"
				     "head -c 40000 /dev/zero | tr '\\0' x; echo",
				     NULL);

	ENDED(watch, ORCH_JOB_FINISHED, 0, "");
	ck_assert_msg(strncmp(watch.events, "TEXT:a?b ? \303\244\nTEXT:xxxx", 23) == 0, "%s", watch.events);
	ck_assert_uint_eq(watch.event_count, 1 + 3); /* 16 KiB pieces */
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(silence_is_a_stall)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_job_opts opts = {.stall_ms = 1500};
	int64_t started = now_ms();
	struct watch watch = command(ctx, "echo one; sleep 60", &opts);

	ENDED(watch, ORCH_JOB_STALLED, 256 + 9, "no event for 1500 ms");
	ck_assert_str_eq(watch.events, "TEXT:one\n");
	ck_assert_int_lt(now_ms() - started, 10000);
	/* Whoever works is left alone, also when he says so on stderr. */
	watch = command(ctx, "for i in 1 2 3 4 5 6 7 8; do sleep 0.3; echo $i >&2; done", &opts);
	ENDED(watch, ORCH_JOB_FINISHED, 0, "");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(time_is_limited)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_job_opts opts = {.timeout_ms = 500};
	struct watch watch = command(ctx, "trap '' TERM; while :; do echo x; sleep 0.05; done", &opts);

	ENDED(watch, ORCH_JOB_TIMED_OUT, 256 + 9, "500 ms");
	orch_ctx_unref(ctx);
}
END_TEST

/* claude-code#25629, codex#7846 */
START_TEST(descendants_do_not_hold_the_end)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	int64_t started = now_ms();
	struct watch watch = command(
		ctx, "(setsid sh -c 'while :; do echo noise; sleep 0.01; done' &) ; echo said; exit 0",
		NULL);

	ENDED(watch, ORCH_JOB_FINISHED, 0, "exited with code 0");
	ck_assert_ptr_nonnull(strstr(watch.events, "TEXT:said\n"));
	ck_assert_int_lt(now_ms() - started, 5000);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(a_stopped_scope_ends_the_job)
{
	orch_ctx *ctx = ctx_new();
	orch_executor *executor = executor_new(ctx, ORCH_EXECUTOR_COMMAND, SH("sleep 60"), NULL);
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	struct watch watch = {.ctx = ctx};
	struct orch_job_opts opts;

	job_opts(&opts, &watch);
	OK(orch_executor_run(executor, sandbox, &opts, NULL, e));
	orch_executor_unref(executor);
	orch_ctx_run(ctx, 200, NULL);
	OK(orch_scope_stop(orch_sandbox_scope(sandbox), NULL, NULL, NULL, NULL, e));
	orch_sandbox_unref(sandbox);
	wait_done(&watch);
	ck_assert_int_ne(watch.status, 0);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- agents ----------------------------------------------------------------------------------- */

#define MINI_RESULT "{\"type\":\"result\",\"text\":\"fine\",\"usage\":{\"input_tokens\":40,\"output_tokens\":2}}"

START_TEST(mini_events)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct watch watch = agent(ctx, ORCH_EXECUTOR_MINI,
				   "cat > packet; echo \"$0 $*\"\n"
				   "echo '{\"type\":\"text\",\"text\":\"hello\"}'\n"
				   "echo '{\"type\":\"tool\",\"id\":\"1\",\"command\":\"ls\"}'\n"
				   "echo '{\"type\":\"tool_result\",\"status\":0}'\n"
				   "echo '{\"type\":\"from the future\"}'; echo '{}'; echo\n"
				   "echo '" MINI_RESULT "'");

	ENDED(watch, ORCH_JOB_FINISHED, 0, "exited with code 0");
	ck_assert_str_eq(watch.events,
			 "OTHER:/opt/mini/orch-mini --api anthropic --base-url http://127.0.0.1:8080/ai.anthropic\n"
			 "TEXT:hello\nTOOL:ls\nOTHER:tool_result\nOTHER:from the future\n"
			 "OTHER:an event without type\nRESULT:fine\n");
	ck_assert(holds(in(workspace, "packet"),
			"orch-packet/1 run=r role=executor stage=execute task=T1 attempt=1\nDo it.\n"));
	watch = agent(ctx, ORCH_EXECUTOR_MINI, "echo bad key >&2; exit 2");
	ENDED(watch, ORCH_JOB_FINISHED, 2, "exited with code 2, without a result: bad key");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(broken_streams_fail)
{
	static const struct {
		uint32_t kind;
		const char *script, *words;
	} cases[] = {
		{ORCH_EXECUTOR_MINI, "echo '{\"type\":\"text\",'; sleep 60", "is no JSON"},
		{ORCH_EXECUTOR_MINI, "printf '{\"type\":\"te'", "is no JSON"},
		{ORCH_EXECUTOR_MINI, "echo '{\"type\":\"text\"}'; sleep 60", "without text"},
		{ORCH_EXECUTOR_MINI, "echo '{\"type\":\"tool\",\"command\":7}'; sleep 60", "without command"},
		{ORCH_EXECUTOR_MINI, "head -c 5000000 /dev/zero | tr '\\0' x; sleep 60", "over 4 MiB"},
		{ORCH_EXECUTOR_CLAUDE, "echo '{\"type\":\"assistant\",\"message\":{}}'; sleep 60", "message.content"},
		{ORCH_EXECUTOR_CLAUDE, "echo '{\"type\":\"result\"}'; sleep 60", "subtype"},
		{ORCH_EXECUTOR_CODEX, "echo '{\"type\":\"item.completed\"}'; sleep 60", "item.type"},
	};
	orch_ctx *ctx = ctx_new();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct watch watch = agent(ctx, cases[i].kind, cases[i].script);

		ck_assert_msg(watch.end == ORCH_JOB_FAILED && strstr(watch.message, cases[i].words), "%s: %u %s",
			      cases[i].script, watch.end, watch.message);
	}
	orch_ctx_unref(ctx);
}
END_TEST

/* claude-code#25629: the agent hangs after its result. */
START_TEST(a_result_is_no_exit)
{
	orch_ctx *ctx = ctx_new();
	int64_t started = now_ms();
	struct watch watch = agent(ctx, ORCH_EXECUTOR_MINI, "echo '" MINI_RESULT "'; exec sleep 60");

	ENDED(watch, ORCH_JOB_HUNG, 256 + 9, "after its result");
	ck_assert_int_ge(now_ms() - started, 9900);
	ck_assert_int_lt(now_ms() - started, 25000);
	watch = agent(ctx, ORCH_EXECUTOR_MINI, "echo '" MINI_RESULT "'; sleep 1; exit 4");
	ENDED(watch, ORCH_JOB_FINISHED, 4, "exited with code 4");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(claude_command_and_events)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct watch watch = agent(
		ctx, ORCH_EXECUTOR_CLAUDE,
		"head -1 > packet; echo \"$0 $*\"; echo \"$HOME $ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY $IS_SANDBOX\"\n"
		": > $HOME/writable || exit 9\n"
		"echo '{\"type\":\"system\",\"subtype\":\"init\"}'\n"
		"echo '{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"I look\"},"
		"{\"type\":\"tool_use\",\"name\":\"Bash\",\"input\":{\"command\":\"ls\"}},"
		"{\"type\":\"tool_use\",\"name\":\"Read\",\"input\":{\"file\":\"x\"}}]}}'\n"
		"echo '{\"type\":\"user\",\"message\":{\"content\":[]}}'\n"
		"echo '{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"did it\",\"usage\":"
		"{\"input_tokens\":1,\"cache_read_input_tokens\":10,\"output_tokens\":100}}'");

	ENDED(watch, ORCH_JOB_FINISHED, 0, "exited with code 0");
	ck_assert_str_eq(watch.events,
			 "OTHER:/opt/claude/agent -p --output-format stream-json --verbose "
			 "--dangerously-skip-permissions --strict-mcp-config\n"
			 "OTHER:/tmp/home http://127.0.0.1:8080/ai.anthropic placeholder 1\n"
			 "OTHER:system\nTEXT:I look\nTOOL:ls\nTOOL:Read {\"file\":\"x\"}\nOTHER:user\n"
			 "RESULT:did it\n");
	ck_assert(holds(in(workspace, "packet"),
			"orch-packet/1 run=r role=executor stage=execute task=T1 attempt=1\n"));
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(codex_command_and_events)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct watch watch = agent(
		ctx, ORCH_EXECUTOR_CODEX,
		"head -1 > packet; echo \"$0 $*\"; grep -c 8080/ai.openai/v1 $CODEX_HOME/config.toml\n"
		"echo \"$ORCH_PLACEHOLDER_KEY$ORCH_CODEX_CONFIG\"\n"
		"echo '{\"type\":\"thread.started\",\"thread_id\":\"x\"}'\n"
		"echo '{\"type\":\"item.started\",\"item\":{\"type\":\"command_execution\",\"command\":\"ls\"}}'\n"
		"echo '{\"type\":\"item.completed\",\"item\":{\"type\":\"command_execution\",\"command\":\"ls\"}}'\n"
		"echo '{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"did it\"}}'\n"
		"echo '{\"type\":\"turn.completed\",\"usage\":"
		"{\"input_tokens\":5,\"cached_input_tokens\":4,\"output_tokens\":6}}'");

	ENDED(watch, ORCH_JOB_FINISHED, 0, "exited with code 0");
	ck_assert_str_eq(watch.events,
			 "OTHER:/opt/codex/agent exec --json --dangerously-bypass-approvals-and-sandbox "
			 "--skip-git-repo-check -\n"
			 "OTHER:1\nOTHER:placeholder\nOTHER:thread.started\nTOOL:ls\nOTHER:command_execution\n"
			 "TEXT:did it\nRESULT:\n");
	watch = agent(ctx, ORCH_EXECUTOR_CODEX,
		      "echo '{\"type\":\"turn.failed\",\"error\":{\"message\":\"no quota\"}}'; exit 1");
	ENDED(watch, ORCH_JOB_FINISHED, 1, "exited with code 1: no quota");
	ck_assert_str_eq(watch.events, "RESULT:no quota\n");
	orch_ctx_unref(ctx);
}
END_TEST

static uint64_t claimed;

static void on_done_tokens(void *userdata, orch_job *job, uint32_t end, int32_t status, const char *message)
{
	claimed = orch_job_claimed_tokens(job);
	on_done(userdata, job, end, status, message);
}

START_TEST(tokens_are_claimed)
{
	orch_ctx *ctx = ctx_new();
	const char *path = in(new_folder(), "agent");

	put(path, "#!/bin/sh\necho '" MINI_RESULT "'\n");
	ck_assert(chmod(path, 0755) == 0 && geteuid() == 0 ? chown(path, 0, 0) == 0 : true);
	orch_executor *executor = executor_new(ctx, ORCH_EXECUTOR_MINI, NULL, path);
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	struct watch watch = {.ctx = ctx};
	struct orch_job_opts opts;

	job_opts(&opts, &watch);
	opts.done = on_done_tokens;
	/* Nobody keeps the job: it goes on all the same. */
	OK(orch_executor_run(executor, sandbox, &opts, NULL, e));
	orch_executor_unref(executor);
	wait_done(&watch);
	ck_assert_uint_eq(claimed, 42);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- the parser, byte by byte ----------------------------------------------------------------- */

static char heard[4096];

static void hear(void *userdata, uint32_t event, const char *text)
{
	size_t length = strlen(heard);

	(void)userdata;
	snprintf(heard + length, sizeof(heard) - length, "%u:%s\n", event, text);
}

START_TEST(split_anywhere)
{
	static const char said[] = "warning\r\n{\"type\":\"text\",\"text\":\"a\\u00e4\\nb\"}\r\n\n"
				   "{\"type\":\"tool\",\"command\":\"x\"}\n" MINI_RESULT;
	char whole[4096];

	for (size_t piece = sizeof(said) - 1; piece > 0; piece = piece > 16 ? piece / 2 : piece - 1) {
		struct agent_stream stream = {.kind = ORCH_EXECUTOR_MINI, .event = hear};
		int64_t events = 0;

		heard[0] = '\0';
		for (size_t at = 0; at < sizeof(said) - 1; at += piece) {
			size_t left = sizeof(said) - 1 - at;

			events += agent_feed(&stream, said + at, left < piece ? left : piece);
		}
		ck_assert_int_eq(events, 3);
		ck_assert_int_eq(agent_end(&stream), 1);
		ck_assert(stream.has_result);
		ck_assert_uint_eq(stream.tokens, 42);
		if (piece == sizeof(said) - 1)
			strcpy(whole, heard);
		ck_assert_str_eq(heard, whole);
		agent_clear(&stream);
	}
	ck_assert_str_eq(whole, "4:warning\n1:a\303\244\nb\n2:x\n3:fine\n");
}
END_TEST

/* --- functions of the host -------------------------------------------------------------------- */

struct host {
	orch_job *kept;
	unsigned calls, destroyed;
	enum { FINISH_AT_ONCE, KEEP, FORGET, DROP } manner;
};

static void host_job(void *userdata, orch_job *job)
{
	struct host *host = userdata;

	host->calls++;
	ck_assert_ptr_nonnull(strstr(orch_job_packet(job), "orch-packet/1"));
	if (host->manner == FINISH_AT_ONCE) {
		put(in(orch_job_workspace(job), "answer"), "done\n");
		OK(orch_job_finish(job, 7, "by hand", e));
		REFUSED(ORCH_ESTATE, "ended already", orch_job_finish(job, 0, NULL, e));
	}
	if (host->manner == KEEP || host->manner == DROP)
		host->kept = orch_job_ref(job);
}

static void host_destroy(void *userdata)
{
	struct host *host = userdata;

	host->destroyed++;
}

static orch_executor *host_executor(orch_ctx *ctx, struct host *host)
{
	struct orch_executor_opts opts;
	orch_executor *executor = NULL;

	orch_executor_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_EXECUTOR_CALLBACK;
	opts.job = host_job;
	opts.userdata = host;
	opts.destroy = host_destroy;
	OK(orch_executor_new(ctx, &opts, &executor, e));
	return executor;
}

START_TEST(host_finishes_at_once)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct host host = {.manner = FINISH_AT_ONCE};
	struct watch watch = attempt(ctx, host_executor(ctx, &host), NULL);

	ENDED(watch, ORCH_JOB_FINISHED, 7, "by hand");
	ck_assert(holds(in(workspace, "answer"), "done\n"));
	ck_assert_uint_eq(host.calls, 1);
	ck_assert_uint_eq(host.destroyed, 1);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(host_forgets)
{
	orch_ctx *ctx = ctx_new();
	struct host host = {.manner = FORGET};
	struct watch watch = attempt(ctx, host_executor(ctx, &host), NULL);

	ENDED(watch, ORCH_JOB_FAILED, -1, "without finishing");
	orch_ctx_unref(ctx);
}
END_TEST

/* From the caller's start to the host's end; nobody but the host keeps the job. */
START_TEST(host_finishes_later_or_drops)
{
	orch_ctx *ctx = ctx_new();
	struct host host = {.manner = _i == 0 ? KEEP : DROP};
	orch_executor *executor = host_executor(ctx, &host);
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	struct watch watch = {.ctx = ctx};
	struct orch_job_opts opts;

	job_opts(&opts, &watch);
	OK(orch_executor_run(executor, sandbox, &opts, NULL, e));
	ck_assert_uint_eq(host.calls, 0);
	orch_ctx_run(ctx, 100, NULL);
	ck_assert_uint_eq(host.calls, 1);
	ck_assert_uint_eq(watch.done_count, 0);
	watch.inside_call = true;
	if (host.manner == KEEP)
		OK(orch_job_finish(host.kept, 0, NULL, e));
	orch_job_unref(host.kept);
	watch.inside_call = false;
	ck_assert_uint_eq(watch.done_count, 0);
	wait_done(&watch);
	if (host.manner == KEEP)
		ENDED(watch, ORCH_JOB_FINISHED, 0, "");
	else
		ENDED(watch, ORCH_JOB_FAILED, -1, "dropped");
	orch_executor_unref(executor);
	orch_sandbox_unref(sandbox);
	ck_assert_uint_eq(host.destroyed, 1);
	orch_ctx_unref(ctx);
}
END_TEST

/* Nobody has a handle any more, and nobody runs the loop: neither load nor helper nor memory may be left. */
START_TEST(dropped_with_everything)
{
	orch_ctx *ctx = ctx_new();
	struct host host = {.manner = KEEP};
	orch_executor *executor = _i == 0 ? executor_new(ctx, ORCH_EXECUTOR_COMMAND, SH("echo up; sleep 1000"), NULL)
					  : host_executor(ctx, &host);
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	struct watch watch = {.ctx = ctx};
	struct orch_job_opts opts;

	job_opts(&opts, &watch);
	OK(orch_executor_run(executor, sandbox, &opts, &watch.job, e));
	for (int turn = 0; turn < 500 && !strstr(watch.events, "up") && !host.calls; turn++)
		orch_ctx_run(ctx, 20, NULL);
	int init = orch_scope_init_pid(orch_sandbox_scope(sandbox));
	ck_assert_int_eq(kill(init, 0), 0);
	ck_assert(_i == 0 ? strstr(watch.events, "up") != NULL : host.calls == 1);
	orch_job_unref(watch.job);
	orch_executor_unref(executor);
	orch_sandbox_unref(sandbox);
	orch_job_unref(host.kept);
	orch_ctx_unref(ctx);
	ck_assert_uint_eq(watch.done_count, 0);
	ck_assert_uint_eq(watch.destroyed, 1);
	ck_assert_uint_eq(host.destroyed, (unsigned)_i);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	ck_assert(kill(init, 0) < 0 && errno == ESRCH);
}
END_TEST

START_TEST(a_dropped_sandbox_ends_the_job)
{
	orch_ctx *ctx = ctx_new();
	orch_executor *executor = executor_new(ctx, ORCH_EXECUTOR_COMMAND, SH("echo up; sleep 1000"), NULL);
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	struct watch watch = {.ctx = ctx};
	struct orch_job_opts opts;

	job_opts(&opts, &watch);
	OK(orch_executor_run(executor, sandbox, &opts, &watch.job, e));
	for (int turn = 0; turn < 500 && !strstr(watch.events, "up"); turn++)
		orch_ctx_run(ctx, 20, NULL);
	orch_executor_unref(executor);
	orch_sandbox_unref(sandbox);
	ck_assert_ptr_null(orch_job_sandbox(watch.job));
	ck_assert_uint_eq(watch.done_count, 0);
	wait_done(&watch);
	ENDED(watch, ORCH_JOB_FAILED, -1, "its sandbox was dropped");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(host_has_no_more_time)
{
	orch_ctx *ctx = ctx_new();
	struct host host = {.manner = KEEP};
	struct orch_job_opts opts = {.timeout_ms = 300, .stall_ms = 50};
	struct watch watch = attempt(ctx, host_executor(ctx, &host), &opts);

	ENDED(watch, ORCH_JOB_TIMED_OUT, -1, "300 ms");
	REFUSED(ORCH_ESTATE, "ended already", orch_job_finish(host.kept, 0, NULL, e));
	orch_job_unref(host.kept);
	ck_assert_uint_eq(host.destroyed, 1);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(programs_are_not_finished_by_hand)
{
	orch_ctx *ctx = ctx_new();
	orch_executor *executor = executor_new(ctx, ORCH_EXECUTOR_COMMAND, SH("sleep 0.2"), NULL);
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	struct watch watch = {.ctx = ctx};
	struct orch_job_opts opts;

	job_opts(&opts, &watch);
	OK(orch_executor_run(executor, sandbox, &opts, &watch.job, e));
	REFUSED(ORCH_ESTATE, "runs a program", orch_job_finish(watch.job, 0, NULL, e));
	wait_done(&watch);
	ENDED(watch, ORCH_JOB_FINISHED, 0, "");
	orch_executor_unref(executor);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* In a forked child calls are refused, and dropping handles runs no callback. */
START_TEST(forked_children_are_refused)
{
	orch_ctx *ctx = ctx_new();
	struct host host = {.manner = KEEP};
	orch_executor *executor = host_executor(ctx, &host);
	orch_sandbox *sandbox = started_sandbox(ctx, executor);
	struct watch watch = {.ctx = ctx};
	struct orch_job_opts opts;
	int status = 0;

	job_opts(&opts, &watch);
	OK(orch_executor_run(executor, sandbox, &opts, &watch.job, e));
	orch_ctx_run(ctx, 50, NULL);
	pid_t child = fork();

	if (child == 0) {
		bool good = orch_job_finish(watch.job, 0, NULL, NULL) == ORCH_EFORKED &&
			    orch_executor_run(executor, sandbox, &opts, NULL, NULL) == ORCH_EFORKED;

		watch.destroyed = 0; /* of the refused run */
		orch_job_unref(watch.job);
		orch_job_unref(host.kept);
		orch_executor_unref(executor);
		_exit(good && watch.destroyed == 0 && watch.done_count == 0 && host.destroyed == 0 ? 0 : 1);
	}
	ck_assert(child > 0 && waitpid(child, &status, 0) == child);
	ck_assert_int_eq(status, 0);
	OK(orch_job_finish(host.kept, 0, NULL, e));
	orch_job_unref(host.kept);
	wait_done(&watch);
	orch_executor_unref(executor);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("executor");
	TCase *checks = tcase_create("options"), *programs = tcase_create("programs");
	TCase *agents = tcase_create("agents"), *host = tcase_create("host");
	int both = identities();

	(void)argc;
	tcase_add_test(checks, options_are_checked);
	tcase_add_test(checks, names_and_operations);
	tcase_add_test(checks, runs_are_checked);
	tcase_add_test(checks, split_anywhere);
	tcase_add_loop_test(programs, command_gets_packet_and_workspace, 0, both);
	tcase_add_loop_test(programs, command_of_the_host_is_shown, 0, both);
	tcase_add_loop_test(programs, missing_program_fails, 0, both);
	tcase_add_test(programs, output_is_made_text);
	tcase_add_loop_test(programs, silence_is_a_stall, 0, both);
	tcase_add_loop_test(programs, time_is_limited, 0, both);
	tcase_add_loop_test(programs, descendants_do_not_hold_the_end, 0, both);
	tcase_add_test(programs, a_stopped_scope_ends_the_job);
	tcase_add_loop_test(agents, mini_events, 0, both);
	tcase_add_test(agents, broken_streams_fail);
	tcase_add_test(agents, a_result_is_no_exit);
	tcase_add_loop_test(agents, claude_command_and_events, 0, both);
	tcase_add_loop_test(agents, codex_command_and_events, 0, both);
	tcase_add_test(agents, tokens_are_claimed);
	tcase_add_loop_test(host, host_finishes_at_once, 0, both);
	tcase_add_test(host, host_forgets);
	tcase_add_loop_test(host, host_finishes_later_or_drops, 0, 2);
	tcase_add_loop_test(host, dropped_with_everything, 0, 2);
	tcase_add_test(host, a_dropped_sandbox_ends_the_job);
	tcase_add_test(host, host_has_no_more_time);
	tcase_add_test(host, programs_are_not_finished_by_hand);
	tcase_add_test(host, forked_children_are_refused);
	suite_add_tcase(suite, checks);
	suite_add_tcase(suite, programs);
	suite_add_tcase(suite, agents);
	suite_add_tcase(suite, host);
	tcase_set_timeout(checks, 60);
	tcase_set_timeout(programs, 60);
	tcase_set_timeout(agents, 90);
	tcase_set_timeout(host, 60);
	return fixture_main(argv, suite);
}
