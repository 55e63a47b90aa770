/* SPDX-License-Identifier: Apache-2.0 */
/* The context in libuv's loop. */
#include <uv.h>

#include "loop-tests.h"

static uv_poll_t work;
static uv_timer_t ticker;

static void on_closed(uv_handle_t *handle)
{
	handle->data = NULL;
}

/* Closing is done by the loop: the handle lives until then. */
static void close_now(uv_handle_t *handle)
{
	handle->data = handle;
	uv_close(handle, on_closed);
	while (handle->data)
		uv_run(uv_default_loop(), UV_RUN_NOWAIT);
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
	(void)handle, (void)events;
	ck_assert_int_eq(status, 0);
	host_work();
}

static void host_attach(orch_ctx *ctx)
{
	int fd = orch_ctx_fd(ctx);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(uv_poll_init(uv_default_loop(), &work, fd), 0);
	ck_assert_int_eq(uv_poll_start(&work, UV_READABLE, on_readable), 0);
}

static void host_detach(void)
{
	uv_poll_stop(&work);
	close_now((uv_handle_t *)&work);
}

static void on_time_over(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

static bool host_until(bool (*done)(void *userdata), void *userdata, int timeout_ms)
{
	bool over = false;
	uv_timer_t deadline;
	uv_timer_init(uv_default_loop(), &deadline);
	deadline.data = &over;
	/* uv_run() may count from a time that it read long ago. */
	uv_update_time(uv_default_loop());
	uv_timer_start(&deadline, on_time_over, (uint64_t)timeout_ms, 0);
	bool good;
	while (!(good = done(userdata)) && !over)
		uv_run(uv_default_loop(), UV_RUN_ONCE);
	uv_timer_stop(&deadline);
	close_now((uv_handle_t *)&deadline);
	return good;
}

static void on_tick(uv_timer_t *timer)
{
	++*(unsigned *)timer->data;
}

static void host_ticks_start(unsigned period_ms, unsigned *count)
{
	uv_timer_init(uv_default_loop(), &ticker);
	ticker.data = count;
	uv_timer_start(&ticker, on_tick, period_ms, period_ms);
}

static void host_ticks_stop(void)
{
	uv_timer_stop(&ticker);
	close_now((uv_handle_t *)&ticker);
}

static void on_exit_of_child(uv_process_t *process, int64_t status, int signal)
{
	struct host_child *child = process->data;
	ck_assert(!child->ended);
	child->ended = true;
	child->status = signal ? -1 : (int)status;
	uv_close((uv_handle_t *)process, (uv_close_cb)free);
}

static void host_start_child(const char *const *argv, struct host_child *child)
{
	uv_process_t *process = calloc(1, sizeof(*process));
	uv_process_options_t options = {
	    .file = argv[0], .args = (char **)argv, .exit_cb = on_exit_of_child};
	process->data = child;
	int code = uv_spawn(uv_default_loop(), process, &options);
	ck_assert_msg(code == 0, "%s", uv_strerror(code));
}

int main(int argc, char **argv)
{
	loop_name = "libuv";
	return fixture_main(argc, argv);
}
