/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "demo.h"
#include "viewer.h"

/*
 * serve: the delivered product in a fresh sandbox without network; the viewer's threads ask this loop for connections into it,
 * because one thread owns the context.
 */

#define PRODUCT_PORT 8000

struct wish {
	int fd;
	bool done;
	struct wish *next;
};

struct serving {
	orch_ctx *ctx;
	orch_sandbox *sandbox;
	pthread_mutex_t lock;
	pthread_cond_t granted;
	struct wish *wishes;
	bool closing;
};

static int connect_product(void *userdata)
{
	struct serving *serving = userdata;
	struct wish wish = {.fd = -1};
	pthread_mutex_lock(&serving->lock);
	if (!serving->closing) {
		wish.next = serving->wishes;
		serving->wishes = &wish;
		orch_ctx_wakeup(serving->ctx);
		while (!wish.done)
			pthread_cond_wait(&serving->granted, &serving->lock);
	}
	pthread_mutex_unlock(&serving->lock);
	return wish.fd;
}

struct grant {
	struct serving *serving;
	struct wish *wish; /* NULL: granted */
};

static void grant_wish(struct serving *serving, struct wish *wish, int fd)
{
	pthread_mutex_lock(&serving->lock);
	wish->fd = fd;
	wish->done = true;
	pthread_cond_broadcast(&serving->granted);
	pthread_mutex_unlock(&serving->lock);
}

static void on_connected(void *userdata, int32_t fd, const orch_error *error)
{
	struct grant *grant = userdata;
	(void)error;
	grant_wish(grant->serving, grant->wish, fd);
	grant->wish = NULL;
}

/* Also when the sandbox ends before it answered: no thread of the viewer waits for ever. */
static void drop_grant(void *userdata)
{
	struct grant *grant = userdata;
	if (grant->wish)
		grant_wish(grant->serving, grant->wish, -1);
	free(grant);
}

static void take_wishes(struct serving *serving)
{
	pthread_mutex_lock(&serving->lock);
	struct wish *wish = serving->wishes;
	serving->wishes = NULL;
	pthread_mutex_unlock(&serving->lock);
	while (wish) {
		struct wish *next = wish->next;
		struct grant *grant = calloc(1, sizeof(*grant));
		*grant = (struct grant){serving, wish};
		orch_sandbox_connect(serving->sandbox, PRODUCT_PORT, on_connected, grant, drop_grant, NULL);
		wish = next;
	}
}

static int start_product(struct serving *serving, const json_t *product, const char *data, orch_proc **ret_proc)
{
	const json_t *start = json_object_get(product, "start");
	const char *argv[64] = {0}, *path = json_string_value(json_object_get(product, "path"));
	size_t count = json_array_size(start);
	if (!path || count == 0 || count >= 64 ||
	    strcmp(json_string_value(json_object_get(product, "kind")) ? json_string_value(json_object_get(product, "kind")) : "",
		   "http") != 0)
		return fail_text(EXIT_USAGE, "this run delivered no product that a browser could show");
	for (size_t i = 0; i < count; i++)
		argv[i] = json_string_value(json_array_get(start, i));

	struct orch_sandbox_opts opts;
	struct orch_proc_opts proc_opts;
	orch_error *error = NULL;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.label = "serve";
	char *port = format_text("%d", PRODUCT_PORT);
	int32_t code = orch_sandbox_new(serving->ctx, &opts, &serving->sandbox, &error);
	if (code == 0)
		code = orch_sandbox_add_path(serving->sandbox, path, "/product", ORCH_PATH_READ | ORCH_PATH_EXEC, &error);
	if (code == 0)
		code = orch_sandbox_add_path(serving->sandbox, data, "/data", ORCH_PATH_OWN, &error);
	if (code == 0)
		code = orch_sandbox_set_env(serving->sandbox, "PORT", port, &error);
	if (code == 0)
		code = orch_sandbox_set_env(serving->sandbox, "DATA", "/data", &error);
	if (code == 0)
		code = orch_sandbox_start_wait(serving->sandbox, 20000, &error);
	orch_proc_opts_init(&proc_opts, sizeof(proc_opts));
	proc_opts.argv = argv;
	proc_opts.cwd = "/product";
	proc_opts.stderr_fd = STDERR_FILENO;
	if (code == 0)
		code = orch_sandbox_spawn(serving->sandbox, &proc_opts, ret_proc, &error);
	free(port);
	return code < 0 ? fail("the product", error) : EXIT_FINE;
}

/* Until a signal comes, or the product ends. */
static int serve_loop(struct serving *serving, orch_proc *proc)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK), exit_code = -1;
	while (exit_code < 0) {
		struct pollfd fds[2] = {{.fd = orch_ctx_fd(serving->ctx), .events = POLLIN},
					{.fd = signals, .events = POLLIN}};
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			exit_code = fail_text(EXIT_ERROR, "poll: %m");
		orch_error *error = NULL;
		if (orch_ctx_process(serving->ctx, &error) < 0)
			exit_code = fail("the event loop", error);
		take_wishes(serving);
		if (fds[1].revents)
			exit_code = EXIT_FINE;
		else if (orch_proc_error(proc) || orch_proc_exit_code(proc) >= 0 || orch_proc_term_signal(proc))
			exit_code = fail_text(EXIT_ERROR, "the product ended (exit code %d, signal %d)",
					      orch_proc_exit_code(proc), orch_proc_term_signal(proc));
	}
	close(signals);
	return exit_code;
}

static void refuse_wishes(struct serving *serving)
{
	pthread_mutex_lock(&serving->lock);
	serving->closing = true;
	for (struct wish *wish = serving->wishes; wish; wish = wish->next)
		wish->done = true;
	serving->wishes = NULL;
	pthread_cond_broadcast(&serving->granted);
	pthread_mutex_unlock(&serving->lock);
}

int command_serve(const struct options *options)
{
	struct serving serving = {.lock = PTHREAD_MUTEX_INITIALIZER, .granted = PTHREAD_COND_INITIALIZER};
	struct viewer *viewer = NULL;
	orch_proc *proc = NULL;
	orch_death *death = NULL;
	json_error_t where;
	char *state = state_folder(options, true);
	if (!state)
		return EXIT_NOTHING;
	char *path = format_text("%s/report/report.json", state), *data = format_text("%s/serve-data", state);
	json_t *report = json_load_file(path, 0, &where);
	const json_t *product = json_object_get(report, "product");
	int code = EXIT_FINE;
	if (!json_is_object(product))
		code = fail_text(EXIT_NOTHING, "%s: there is no delivered product in this run", path);
	else if (mkdir(data, 0700) < 0 && errno != EEXIST)
		code = fail_text(EXIT_ERROR, "%s can not be made: %m", data);
	else if (!(serving.ctx = demo_ctx()))
		code = EXIT_ERROR;
	/* Blocked before any thread is made, so that the signalfd sees them. */
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	if (code == EXIT_FINE)
		code = start_product(&serving, product, data, &proc);
	if (code == EXIT_FINE) {
		const char *title = json_string_value(json_object_get(product, "title"));
		viewer = viewer_new(options->port, title ? title : "product", connect_product, &serving);
		if (!viewer)
			code = fail_text(EXIT_ERROR, "the viewer can not listen on 127.0.0.1 (port %d taken?): %m",
					 options->port);
	}
	if (code == EXIT_FINE) {
		if (options->json)
			printf("{\"url\":\"%s\"}\n", viewer_url(viewer));
		else
			printf("%s\nCtrl-C ends it.\n", viewer_url(viewer));
		fflush(stdout);
		code = serve_loop(&serving, proc);
	}
	refuse_wishes(&serving);
	if (serving.sandbox && orch_sandbox_scope(serving.sandbox) &&
	    orch_scope_stop_wait(orch_sandbox_scope(serving.sandbox), NULL, &death, NULL) == 0)
		fprintf(stderr, "%s\n", orch_death_text(death));
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_sandbox_unref(serving.sandbox);
	/* Its threads may wait for a connection until the sandbox is gone. */
	viewer_free(viewer);
	orch_ctx_unref(serving.ctx);
	json_decref(report);
	free(path);
	free(data);
	free(state);
	return code;
}
