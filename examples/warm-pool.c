/* SPDX-License-Identifier: Apache-2.0 */
/* Four sandboxes stand ready, so that a program starts at once; prints the name of ten, and how `true` ended in each. */
#include <orch.h>
#include <stdio.h>

int main(void)
{
	const char *const argv[] = {"true", NULL};
	orch_ctx *ctx = NULL;
	orch_sandbox *pattern = NULL, *sandbox = NULL;
	orch_sandbox_pool *pool = NULL;
	orch_sandbox_result *result = NULL;
	orch_error *error = NULL;
	int32_t code = orch_ctx_new(NULL, &ctx, &error);
	if (code == 0)
		code = orch_sandbox_new(ctx, NULL, &pattern, &error);
	if (code == 0)
		code = orch_sandbox_pool_new(pattern, 4, &pool, &error);
	orch_sandbox_unref(pattern);
	for (int i = 0; i < 10 && code == 0; i++) {
		if ((code = orch_sandbox_pool_take_wait(pool, 10000, &sandbox, &error)) == 0 &&
		    (code = orch_sandbox_run(sandbox, argv, NULL, &result, &error)) == 0)
			printf("%s: %d\n", orch_scope_name(orch_sandbox_scope(sandbox)), orch_sandbox_result_status(result));
		result = orch_sandbox_result_unref(result);
		sandbox = orch_sandbox_unref(sandbox);
	}
	if (code < 0)
		fprintf(stderr, "%s\n", orch_error_message(error));
	orch_sandbox_pool_unref(pool);
	orch_ctx_unref(ctx);
	return code == 0 ? 0 : 1;
}
