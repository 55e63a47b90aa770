/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host-app [--seconds N]: a GLib application that keeps two scopes, shows what happens in them,
 * and stops them after N seconds, at Ctrl-C or at SIGTERM. It ends with 0 only if both are proved
 * dead. The first part is all that a GLib program needs to have liborch in its main loop.
 */
#include <glib-unix.h>
#include <glib.h>
#include <orch.h>
#include <stdlib.h>

struct ctx_source {
	GSource source;
	orch_ctx *ctx;
};

static gboolean ctx_source_dispatch(GSource *source, GSourceFunc unused, gpointer userdata)
{
	orch_error *error = NULL;

	(void)unused, (void)userdata;
	if (orch_ctx_process(((struct ctx_source *)source)->ctx, &error) == 0)
		return G_SOURCE_CONTINUE;
	g_warning("liborch: %s", orch_error_message(error));
	orch_error_free(error);
	return G_SOURCE_REMOVE;
}

/* No prepare, no check: the descriptor is readable exactly while there is work, timers included. */
static GSourceFuncs ctx_source_funcs = {NULL, NULL, ctx_source_dispatch, NULL, NULL, NULL};

/* Borrows the context: destroy the source first. */
static GSource *ctx_source_attach(orch_ctx *ctx)
{
	GSource *source = g_source_new(&ctx_source_funcs, sizeof(struct ctx_source));

	((struct ctx_source *)source)->ctx = ctx;
	g_source_add_unix_fd(source, orch_ctx_fd(ctx), G_IO_IN);
	g_source_attach(source, NULL);
	return source;
}

static const char *const polite[] = {
    "sh", "-c", "trap 'echo polite: bye; exit 0' TERM; echo polite: hi; sleep 1000 & wait", NULL};
static const char *const detached[] = {
    "sh", "-c", "trap '' TERM HUP; setsid sleep 1000 >/dev/null & echo detached: gone", NULL};

static struct task {
	const char *name;
	const char *const *argv;
	orch_scope *scope;
	uint32_t verdict; /* 0 until the certificate is there */
} tasks[] = {{"polite", polite, NULL, 0}, {"detached", detached, NULL, 0}};
static GMainLoop *loop;

static gboolean succeeded(const char *name, int32_t code, orch_error *error)
{
	if (code < 0)
		g_printerr("%s: %s: %s\n", name, orch_code_name(code), orch_error_message(error));
	orch_error_free(error);
	return code == 0;
}

static void on_proc(void *userdata, orch_proc *proc, uint32_t event)
{
	const struct task *task = userdata;

	if (event == ORCH_PROC_STARTED)
		g_print("%s: started in scope %s\n", task->name, orch_scope_name(task->scope));
	else if (event == ORCH_PROC_EXITED)
		g_print("%s: exited with %d\n", task->name, orch_proc_exit_code(proc));
	else
		g_print("%s: %s\n", task->name, orch_error_message(orch_proc_error(proc)));
}

/* The end was asked for, or it was not: somebody killed the helper, for instance. */
static void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	struct task *task = userdata;

	(void)scope;
	if (!task->verdict)
		g_print("%s:\n%s", task->name, orch_death_text(death));
	task->verdict = orch_death_verdict(death);
	if (tasks[0].verdict && tasks[1].verdict)
		g_main_loop_quit(loop);
}

static gboolean start(orch_ctx *ctx, struct task *task)
{
	struct orch_proc_opts opts;
	orch_error *error = NULL;

	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = task->argv;
	opts.stdout_fd = 1;
	opts.event = on_proc;
	opts.userdata = task;
	int32_t code = orch_scope_new(ctx, NULL, &task->scope, &error);
	if (code == 0)
		code = orch_scope_on_death(task->scope, on_death, task, NULL, &error);
	if (code == 0)
		code = orch_scope_spawn(task->scope, &opts, NULL, &error);
	return succeeded(task->name, code, error);
}

static gboolean stop_all(gpointer userdata)
{
	/* SIGTERM first; what is left after half a second is killed. */
	struct orch_stop_opts opts = {.size = sizeof(opts), .grace_ms = 500};

	(void)userdata;
	for (gsize i = 0; i < G_N_ELEMENTS(tasks); i++) {
		orch_error *error = NULL;
		struct task *task = &tasks[i];
		int32_t code = orch_scope_stop(task->scope, &opts, on_death, task, NULL, &error);
		if (!succeeded(task->name, code, error))
			g_main_loop_quit(loop);
	}
	return G_SOURCE_CONTINUE; /* a second Ctrl-C does no harm */
}

int main(int argc, char **argv)
{
	gboolean timed = argc == 3 && g_strcmp0(argv[1], "--seconds") == 0;
	orch_ctx *ctx = NULL;
	orch_error *error = NULL;

	if (argc != 1 && !timed)
		return 2;
	int32_t code = orch_ctx_new(NULL, &ctx, &error);
	if (!succeeded("host-app", code, error))
		return 1;
	GSource *source = ctx_source_attach(ctx);
	loop = g_main_loop_new(NULL, FALSE);
	g_unix_signal_add(SIGINT, stop_all, NULL);
	g_unix_signal_add(SIGTERM, stop_all, NULL);
	if (timed)
		g_timeout_add_seconds((guint)atoi(argv[2]), stop_all, NULL);
	if (start(ctx, &tasks[0]) && start(ctx, &tasks[1]))
		g_main_loop_run(loop);
	g_source_destroy(source);
	g_source_unref(source);
	orch_scope_unref(tasks[0].scope);
	orch_scope_unref(tasks[1].scope);
	orch_ctx_unref(ctx);
	g_main_loop_unref(loop);
	return tasks[0].verdict != ORCH_DEATH_DEAD || tasks[1].verdict != ORCH_DEATH_DEAD;
}
