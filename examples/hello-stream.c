/* SPDX-License-Identifier: Apache-2.0 */
/* A shell in a terminal of its own: types two lines, and prints both ends of what came. */
#include <orch.h>
#include <stdio.h>

int main(void)
{
	struct orch_stream_opts opts;
	struct orch_proc_opts proc_opts;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_stream *terminal = NULL;
	size_t length = 0;
	int32_t code;

	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_PTY;
	opts.capture_first_bytes = opts.capture_last_bytes = 1000;
	orch_proc_opts_init(&proc_opts, sizeof(proc_opts));
	proc_opts.argv = (const char *const[]){"sh", NULL};
	code = orch_ctx_new(NULL, &ctx, NULL);
	if (code == 0)
		code = orch_scope_new(ctx, NULL, &scope, NULL);
	if (code == 0)
		code = orch_stream_new(ctx, &opts, &terminal, NULL);
	proc_opts.stdin_stream = proc_opts.stdout_stream = proc_opts.stderr_stream = terminal;
	if (code == 0)
		code = orch_scope_spawn(scope, &proc_opts, NULL, NULL);
	if (code == 0)
		code = orch_stream_write(terminal, "test -t 0 && stty size\nexit\n", 28, NULL, NULL);
	if (code == 0)
		code = orch_stream_end_wait(terminal, 10000, NULL, NULL);
	const void *both = orch_stream_captured(terminal, &length);
	fwrite(both, 1, length, stdout);
	printf("%s, %llu bytes dropped\n", orch_code_name(code), (unsigned long long)orch_stream_dropped(terminal));
	orch_stream_unref(terminal);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	return code == 0 ? 0 : 1;
}
