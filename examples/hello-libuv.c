/* SPDX-License-Identifier: Apache-2.0 */
/* A context in libuv's loop, with a sandbox that is started in it. */
#include <orch.h>
#include <stdio.h>
#include <uv.h>

static void on_readable(uv_poll_t *handle, int status, int events)
{
	(void)events;
	if (status < 0 || orch_ctx_process(handle->data, NULL) < 0)
		uv_poll_stop(handle);
}

static void on_start(void *handle, orch_sandbox *sandbox, const orch_error *error)
{
	printf("%s\n", error ? orch_error_message(error) : "the sandbox stands");
	(void)sandbox;
	uv_poll_stop(handle); /* nothing else keeps this loop running */
}

int main(void)
{
	uv_poll_t handle;
	orch_ctx *ctx = NULL;
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	if (orch_ctx_new(NULL, &ctx, &error) == 0 &&
	    orch_sandbox_new(ctx, NULL, &sandbox, &error) == 0 &&
	    orch_sandbox_start(sandbox, on_start, &handle, NULL, &error) == 0) {
		uv_poll_init(uv_default_loop(), &handle, orch_ctx_fd(ctx));
		handle.data = ctx;
		uv_poll_start(&handle, UV_READABLE, on_readable);
		uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	}
	fputs(orch_error_message(error), stderr);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
	return error ? 1 : 0;
}
