/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "demo.h"

/*
 * exec: nothing of the host but its tools, read-only, or what a policy allows; what the program
 * prints streams through.
 */
static int forward(orch_sandbox *sandbox, const struct options *options, int32_t *ret_status)
{
	struct orch_proc_opts proc_opts;
	orch_proc *proc = NULL;
	orch_error *error = NULL;

	orch_proc_opts_init(&proc_opts, sizeof(proc_opts));
	proc_opts.argv = options->rest;
	/* Pipes, files and terminals of ours are not handed in: the sandbox gets pipes that we copy from. */
	int out[2], err[2];
	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		return fail_text(EXIT_ERROR, "pipe: %m");
	proc_opts.stdout_fd = out[1];
	proc_opts.stderr_fd = err[1];
	int32_t code = orch_sandbox_spawn(sandbox, &proc_opts, &proc, &error);
	close(out[1]);
	close(err[1]);
	if (code < 0)
		return fail("exec", error);

	/* One loop: our context, and both pipes, until both are closed or the program has ended and they are dry. */
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	bool ended = false;
	for (;;) {
		bool copied = false;
		int from[2] = {out[0], err[0]};
		for (int i = 0; i < 2; i++) {
			char buffer[65536];
			ssize_t got = read(from[i], buffer, sizeof(buffer));
			for (ssize_t put = 0; got > 0 && put < got;) {
				ssize_t now = write(i + 1, buffer + put, (size_t)(got - put));
				if (now <= 0)
					break;
				put += now;
			}
			copied = copied || got > 0;
		}
		if (ended && !copied)
			break;
		int32_t status = -1;
		code = orch_proc_wait(proc, copied ? 0 : 20, &status, &error);
		if (code == 0) {
			ended = true;
			*ret_status = status;
		} else if (code != ORCH_ETIMEDOUT) {
			bool late = orch_proc_reason(proc) == ORCH_REASON_TIME;
			close(out[0]);
			close(err[0]);
			orch_proc_unref(proc);
			fail(options->rest[0], error);
			/* As where the limit strikes while it runs. */
			if (late) {
				*ret_status = 256 + SIGKILL;
				return EXIT_FINE;
			}
			return code == ORCH_ESPAWN ? EXIT_EXEC_SPAWN : EXIT_EXEC_SETUP;
		}
		error = orch_error_free(error);
	}
	close(out[0]);
	close(err[0]);
	orch_proc_unref(proc);
	return EXIT_FINE;
}

static void print_certificate(const struct options *options, int32_t status, orch_death *death)
{
	if (!options->json) {
		fprintf(stderr, "%s%s", orch_death_text(death),
			strchr(orch_death_text(death), '\n') ? "" : "\n");
		return;
	}
	json_t *line = json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I}", "status", status, "verdict",
				 orch_death_verdict_name(death), "mechanism", orch_death_mechanism(death), "proof",
				 orch_death_proof(death), "alive_at_request",
				 (json_int_t)orch_death_alive_at_request(death), "confirmed_us",
				 (json_int_t)orch_death_confirmed_us(death), "pidns",
				 (json_int_t)orch_death_pidns_inode(death));
	char *text = json_dumps(line, JSON_COMPACT);
	fprintf(stderr, "%s\n", text ? text : "{}");
	free(text);
	json_decref(line);
}

/* The message begins with FILE:LINE, where it has one, so that an editor finds it. */
static int refuse_policy(orch_error *error)
{
	fprintf(stderr, "orch-demo: %s [%s]\n", orch_error_message(error),
		orch_code_name(orch_error_code(error)));
	orch_error_free(error);
	return EXIT_EXEC_POLICY;
}

static int start(orch_sandbox *sandbox, const struct options *options)
{
	orch_error *error = NULL;
	if (options->policy && orch_sandbox_load_policy(sandbox, options->policy, &error) < 0)
		return refuse_policy(error);
	if (orch_sandbox_start_wait(sandbox, 20000, &error) < 0) {
		bool unenforceable = orch_error_code(error) == ORCH_EUNENFORCEABLE;
		fail("the sandbox", error);
		return unenforceable ? EXIT_UNENFORCEABLE : EXIT_EXEC_SETUP;
	}
	/* What connects there would wait for ever. */
	if (orch_sandbox_listener_fd(sandbox) >= 0)
		return fail_text(EXIT_EXEC_POLICY, "%s: net=\"broker\": exec has no broker, take net=\"none\"",
				 options->policy);
	return EXIT_FINE;
}

int command_exec(const struct options *options)
{
	static const char *const taken[] = {"net", "policy", "json", NULL};
	const char *foreign = option_outside(options, taken);
	if (foreign)
		return fail_text(EXIT_USAGE,
				 "exec: --%s is no option of it; they are --net, --policy, --json",
				 foreign);
	if (options->idea)
		return fail_text(EXIT_USAGE, "exec: put the command behind \"--\": orch-demo exec -- %s ...",
				 options->idea);
	if (options->rest_count == 0)
		return fail_text(EXIT_USAGE, "exec: no command: orch-demo exec -- CMD...");
	orch_ctx *ctx = demo_ctx();
	if (!ctx)
		return EXIT_EXEC_SETUP;

	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_death *death = NULL;
	orch_error *error = NULL;
	int exit_code = EXIT_EXEC_SETUP;
	int32_t status = -1;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.label = "exec";
	if (orch_sandbox_new(ctx, &opts, &sandbox, &error) < 0) {
		fail("the sandbox", error);
		goto out;
	}
	exit_code = start(sandbox, options);
	if (exit_code != EXIT_FINE)
		goto out;
	exit_code = forward(sandbox, options, &status);
	if (exit_code == EXIT_FINE)
		exit_code = status < 256 ? status : 128 + (status - 256);
	if (orch_scope_stop_wait(orch_sandbox_scope(sandbox), NULL, &death, &error) < 0) {
		exit_code = fail("stop", error);
		goto out;
	}
	print_certificate(options, status, death);
	if (orch_death_verdict(death) != ORCH_DEATH_DEAD)
		exit_code = EXIT_ERROR;
	orch_death_unref(death);
out:
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
	return exit_code;
}
