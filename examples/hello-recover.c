/* SPDX-License-Identifier: Apache-2.0 */
/* Ends what an earlier run that was killed left behind; "hello-recover FILE crash" is such a run. */
#include <orch.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *const load[] = {"/bin/sh", "-c", "setsid sleep 1000 & sleep 1000", NULL};
	struct orch_reaper_recover_opts opts;
	struct orch_proc_opts program;
	orch_leftovers *leftovers = NULL;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_error *error = NULL;

	orch_reaper_recover_opts_init(&opts, sizeof(opts));
	opts.path = argc > 1 ? argv[1] : "scopes";
	int32_t code = orch_reaper_recover(&opts, &leftovers, NULL); /* ORCH_ENOENT: the first run */
	for (uint32_t i = 0; i < orch_leftovers_count(leftovers); i++) {
		orch_death *death = NULL;
		orch_leftovers_death(leftovers, i, &death);
		printf("%s", orch_death_text(death));
		orch_death_unref(death);
	}
	orch_leftovers_unref(leftovers);
	orch_proc_opts_init(&program, sizeof(program));
	program.argv = load;
	if ((code < 0 && code != ORCH_ENOENT) || orch_ctx_new(NULL, &ctx, &error) < 0 ||
	    orch_reaper_record(ctx, opts.path, &error) < 0 || orch_scope_new(ctx, NULL, &scope, &error) < 0 ||
	    orch_scope_start_wait(scope, 10000, &error) < 0 || orch_scope_spawn(scope, &program, NULL, &error) < 0)
		fprintf(stderr, "%s %s\n", orch_code_name(code), orch_error_message(error));
	if (argc > 2)
		kill(getpid(), SIGKILL);
	orch_scope_stop_wait(scope, NULL, NULL, NULL);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
}
