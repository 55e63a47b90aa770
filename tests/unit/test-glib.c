/* SPDX-License-Identifier: Apache-2.0 */
/* The context in GLib's main loop. */
#include <glib-unix.h>
#include <glib.h>

#include "loop-tests.h"

static guint work_source, tick_source;

static gboolean on_readable(gint fd, GIOCondition condition, gpointer userdata)
{
	(void)fd, (void)condition, (void)userdata;
	host_work();
	return G_SOURCE_CONTINUE;
}

static void host_attach(orch_ctx *ctx)
{
	int fd = orch_ctx_fd(ctx);
	ck_assert_int_ge(fd, 0);
	work_source = g_unix_fd_add(fd, G_IO_IN, on_readable, NULL);
}

static void host_detach(void)
{
	g_source_remove(work_source);
}

static gboolean on_time_over(gpointer userdata)
{
	*(bool *)userdata = true;
	return G_SOURCE_CONTINUE;
}

static bool host_until(bool (*done)(void *userdata), void *userdata, int timeout_ms)
{
	bool over = false;
	guint deadline = g_timeout_add((guint)timeout_ms, on_time_over, &over);
	bool good;
	while (!(good = done(userdata)) && !over)
		g_main_context_iteration(NULL, TRUE);
	g_source_remove(deadline);
	return good;
}

static gboolean on_tick(gpointer userdata)
{
	++*(unsigned *)userdata;
	return G_SOURCE_CONTINUE;
}

static void host_ticks_start(unsigned period_ms, unsigned *count)
{
	tick_source = g_timeout_add(period_ms, on_tick, count);
}

static void host_ticks_stop(void)
{
	g_source_remove(tick_source);
}

static void on_child(GPid pid, gint status, gpointer userdata)
{
	struct host_child *child = userdata;
	ck_assert(!child->ended);
	child->ended = true;
	child->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	g_spawn_close_pid(pid);
}

static void host_start_child(const char *const *argv, struct host_child *child)
{
	GPid pid = 0;
	ck_assert(g_spawn_async(NULL, (gchar **)argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL,
				&pid, NULL));
	g_child_watch_add(pid, on_child, child);
}

int main(int argc, char **argv)
{
	loop_name = "glib";
	return fixture_main(argc, argv);
}
