/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a program that leaves a detached child behind, stops the scope, prints the death
 * certificate. */
#include <orch.h>
#include <stdio.h>

int main(void)
{
	const char *const argv[] = {"sh", "-c", "setsid sleep 1000 & echo started; exit 7", NULL};
	struct orch_proc_opts opts;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_proc *proc = NULL;
	orch_death *death = NULL;
	orch_error *error = NULL;
	int32_t status = 0, code;

	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.stdout_fd = 1;
	code = orch_ctx_new(NULL, &ctx, &error);
	if (code == 0)
		code = orch_scope_new(ctx, NULL, &scope, &error);
	if (code == 0)
		code = orch_scope_spawn(scope, &opts, &proc, &error);
	if (code == 0)
		code = orch_proc_wait(proc, 10000, &status, &error);
	if (code == 0)
		code = orch_scope_stop_wait(scope, NULL, &death, &error);
	if (code == 0)
		printf("exit status %d\n%s", status, orch_death_text(death));
	else
		fprintf(stderr, "%s: %s\n", orch_code_name(code), orch_error_message(error));
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	orch_error_free(error);
	return code == 0 ? 0 : 1;
}
