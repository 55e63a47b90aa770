/* SPDX-License-Identifier: Apache-2.0 */
/* A context in a loop of one's own: poll() waits for it, beside whatever else the program has. */
#include <orch.h>
#include <poll.h>
#include <stdio.h>

static void on_event(void *ended, orch_proc *proc, uint32_t event)
{
	if (event != ORCH_PROC_STARTED)
		*(int *)ended = printf("exit status %d\n", orch_proc_exit_code(proc));
}

int main(void)
{
	const char *const argv[] = {"sh", "-c", "sleep 1; exit 3", NULL};
	struct orch_proc_opts opts;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	int ended = 0;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.event = on_event;
	opts.userdata = &ended;
	int32_t code = orch_ctx_new(NULL, &ctx, &error);
	if (code == 0)
		code = orch_scope_new(ctx, NULL, &scope, &error);
	if (code == 0)
		code = orch_scope_spawn(scope, &opts, NULL, &error);
	while (code == 0 && !ended) {
		struct pollfd fds[] = {{.fd = orch_ctx_fd(ctx), .events = POLLIN}};
		if (poll(fds, 1, -1) > 0 && fds[0].revents)
			code = orch_ctx_process(ctx, &error);
	}
	fputs(orch_error_message(error), stderr);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	orch_error_free(error);
	return code < 0;
}
