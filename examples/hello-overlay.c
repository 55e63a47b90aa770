/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a program work on a folder that stays as it is, and prints what it changed: hello-overlay FOLDER COMMAND */
#include <orch.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	const char *const shell[] = {"sh", "-c", argc == 3 ? argv[2] : "", NULL};
	orch_ctx *ctx = NULL;
	orch_sandbox *sandbox = NULL;
	orch_sandbox_result *result = NULL;
	orch_changes *changes = NULL;
	orch_error *error = NULL;
	int32_t code;

	if (argc != 3)
		return 2;
	code = orch_ctx_new(NULL, &ctx, &error);
	if (code == 0)
		code = orch_sandbox_new(ctx, NULL, &sandbox, &error);
	if (code == 0)
		code = orch_sandbox_set_overlay(sandbox, argv[1], NULL, &error);
	if (code == 0)
		code = orch_sandbox_run(sandbox, shell, NULL, &result, &error);
	if (code == 0)
		code = orch_sandbox_changes(sandbox, &changes, &error);
	if (code == 0)
		printf("%sexit status %d\n", orch_changes_text(changes), orch_sandbox_result_status(result));
	else
		fprintf(stderr, "%s: %s\n", orch_code_name(code), orch_error_message(error));
	orch_changes_unref(changes);
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
	orch_error_free(error);
	return code == 0 ? 0 : 1;
}
