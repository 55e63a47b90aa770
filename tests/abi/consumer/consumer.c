/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of somebody else: runs a program in a scope, stops it, prints the verdict and the
 * versions that the header and the library say. Argument: orch-reaper, which a statically linked
 * program can not find beside liborch.so.
 */
#include <orch.h>
#include <stdio.h>

static int failed(const char *what, orch_error *error)
{
	fprintf(stderr, "%s: %s\n", what, orch_error_message(error));
	orch_error_free(error);
	return 1;
}

int main(int argc, char **argv)
{
	const char *const program[] = {"/bin/sh", "-c", "(sleep 600 &) ; exit 3", NULL};
	struct orch_ctx_opts ctx_opts;
	struct orch_proc_opts opts;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_proc *proc = NULL;
	orch_death *death = NULL;
	orch_error *error = NULL;
	int32_t status = -1;

	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	ctx_opts.helper_path = argc > 1 ? argv[1] : NULL;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = program;
	if (orch_ctx_new(&ctx_opts, &ctx, &error) != 0)
		return failed("orch_ctx_new", error);
	if (orch_scope_new(ctx, NULL, &scope, &error) != 0)
		return failed("orch_scope_new", error);
	if (orch_scope_spawn(scope, &opts, &proc, &error) != 0)
		return failed("orch_scope_spawn", error);
	if (orch_proc_wait(proc, 30000, &status, &error) != 0)
		return failed("orch_proc_wait", error);
	if (orch_scope_stop_wait(scope, NULL, &death, &error) != 0)
		return failed("orch_scope_stop_wait", error);
	printf("header %s library %s status %d verdict %s\n", ORCH_VERSION_STRING, orch_version(), (int)status,
	       orch_death_verdict_name(death));
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	return 0;
}
