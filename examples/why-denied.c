/* SPDX-License-Identifier: Apache-2.0 */
/* Says what a policy denies of reading and writing a path, and by which rule: why-denied POLICY PATH */
#include <orch.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	orch_ctx *ctx = NULL;
	orch_sandbox *sandbox = NULL;
	orch_sandbox_answer *answer = NULL;
	orch_error *error = NULL;
	int32_t code;

	if (argc != 3)
		return 2;
	code = orch_ctx_new(NULL, &ctx, &error);
	if (code == 0)
		code = orch_sandbox_new(ctx, NULL, &sandbox, &error);
	if (code == 0)
		code = orch_sandbox_load_policy(sandbox, argv[1], &error);
	if (code == 0)
		code = orch_sandbox_why(sandbox, argv[2], ORCH_PATH_READ | ORCH_PATH_WRITE, &answer, &error);
	if (code == 0)
		printf("%s\n", orch_sandbox_answer_text(answer));
	else
		fprintf(stderr, "%s: %s\n", orch_code_name(code), orch_error_message(error));
	orch_sandbox_answer_unref(answer);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
	orch_error_free(error);
	return code == 0 ? 0 : 1;
}
