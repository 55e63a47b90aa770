/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program that sees nothing of the host, prints its output, its status and the certificate. */
#include <orch.h>
#include <stdio.h>

int main(void)
{
	const char *const argv[] = {"sh", "-c", "id; ls -x /; ls /home || exit 7", NULL};
	orch_ctx *ctx = NULL;
	orch_sandbox *sandbox = NULL;
	orch_sandbox_result *result = NULL;
	orch_error *error = NULL;
	size_t length = 0;
	int32_t code;

	code = orch_ctx_new(NULL, &ctx, &error);
	if (code == 0)
		code = orch_sandbox_new(ctx, NULL, &sandbox, &error);
	if (code == 0)
		code = orch_sandbox_run(sandbox, argv, NULL, &result, &error);
	if (code == 0) {
		const char *output = orch_sandbox_result_output(result, 1, &length);

		printf("%.*sexit status %d\n%s", (int)length, output,
		       orch_sandbox_result_status(result),
		       orch_death_text(orch_sandbox_result_death(result)));
	} else {
		fprintf(stderr, "%s: %s\n", orch_code_name(code), orch_error_message(error));
	}
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
	orch_error_free(error);
	return code == 0 ? 0 : 1;
}
