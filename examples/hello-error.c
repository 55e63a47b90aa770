/* SPDX-License-Identifier: Apache-2.0 */
/* hello-error HELPER: what a program can tell of a call that failed. */
#include <orch/ctx.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	orch_error *error = NULL;

	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = argc > 1 ? argv[1] : "a/relative/path";
	int32_t code = orch_ctx_new(&opts, &ctx, &error);
	if (code < 0) {
		printf("liborch %s: %s (%s)\n", orch_version(), orch_code_name(code),
		       orch_code_text(code));
		printf("%s\n", orch_error_message(error)); /* what happened, and what to do */
		printf("step \"%s\", errno %d\n", orch_error_step(error), orch_error_errno(error));
	}
	orch_error_free(error);
	orch_ctx_unref(ctx);
	return code < 0;
}
