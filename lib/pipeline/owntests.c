/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/os.h"
#include "pipeline-private.h"

/*
 * The tests that an existing repository has of its own. They run inside the product's sandbox, so
 * they are the product's word about itself: good for "no worse than before", not as a proof. What
 * runs is the tests' folder of the base tree, whatever became of it since.
 */

#define OWN_TESTS_TIMEOUT_MS 120000
#define OUTPUT_LIMIT 65536
#define OUTPUT_SHOWN 4000

struct own_tests {
	unsigned references;	 /* the pipeline's, and one for each callback that may still come */
	orch_pipeline *pipeline; /* NULL: dropped */
	char *which, *tree, *dir, *data;
	orch_sandbox *sandbox;
	int output_fd;
	orch_source *output, *timer;
	struct orch_buf text;
	bool exited, timed_out;
	int32_t status;
	char *certificate, *verdict, *error;
};

static const char *const test_folders[] = {"tests", "test"};

static bool has_tests(const char *dir, const char *folder)
{
	_cleanup_free_ char *path = orch_strdup_printf("%s/%s", dir, folder);
	struct stat status;
	return path && lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static const char *tests_folder(const orch_pipeline *p)
{
	if (!p->model->repo || !p->model->base_tree)
		return NULL;
	_cleanup_free_ char *dir = path_join(p->trees_dir, p->model->base_tree);
	for (size_t i = 0; dir && i < sizeof(test_folders) / sizeof(test_folders[0]); i++)
		if (has_tests(dir, test_folders[i]))
			return test_folders[i];
	return NULL;
}

bool own_tests_there(const orch_pipeline *p)
{
	/* Earlier checks say more, and from outside. */
	return !p->earlier_checks && tests_folder(p) != NULL;
}

json_t *own_tests_result(const orch_pipeline *p, const char *which, const char *tree)
{
	for (size_t i = json_array_size(p->model->owntests); i-- > 0;) {
		json_t *record = json_array_get(p->model->owntests, i);
		if (!strcmp(json_text(record, "which"), which) &&
		    !strcmp(json_text(record, "tree"), tree))
			return record;
	}
	return NULL;
}

/* --- object ---------------------------------------------------------------------------------- */

static void own_tests_unref(void *object)
{
	struct own_tests *tests = object;
	if (--tests->references > 0)
		return;
	orch_close_fd(&tests->output_fd);
	orch_buf_free(&tests->text);
	char *const texts[] = {tests->which, tests->tree,    tests->dir,	tests->data,
			       tests->error, tests->verdict, tests->certificate};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(texts[i]);
	free(tests);
}

static struct own_tests *own_tests_ref(struct own_tests *tests)
{
	tests->references++;
	return tests;
}

static void release(struct own_tests *tests)
{
	tests->pipeline = NULL;
	tests->output = orch_source_remove(tests->output);
	tests->timer = orch_source_remove(tests->timer);
	tests->sandbox = orch_sandbox_unref(tests->sandbox);
	if (tests->dir)
		tree_remove(tests->dir, NULL);
	if (tests->data)
		tree_remove(tests->data, NULL);
	own_tests_unref(tests);
}

void own_tests_drop(orch_pipeline *p)
{
	if (p->own_tests)
		release(p->own_tests);
	p->own_tests = NULL;
}

/* --- the end --------------------------------------------------------------------------------- */

/* unittest's last lines: "Ran N tests in ..." */
static long tests_run(const char *text)
{
	long count = -1;
	for (const char *at = text; at && (at = strstr(at, "Ran ")); at += 4)
		if (sscanf(at, "Ran %ld test", &count) != 1)
			count = -1;
	return count;
}

static void own_tests_over(struct own_tests *tests)
{
	orch_pipeline *p = tests->pipeline;
	const char *text = tests->text.data ? tests->text.data : "";
	size_t length = tests->text.length;
	const char *tail = length > OUTPUT_SHOWN ? text + length - OUTPUT_SHOWN : text;
	bool dead = tests->verdict && !strcmp(tests->verdict, "DEAD");
	json_t *record =
		json_pack("{s:s, s:s, s:i, s:I, s:b, s:s*, s:o, s:o}", "which", tests->which,
			  "tree", tests->tree, "status", tests->exited ? (int)tests->status : -1,
			  "tests", (json_int_t)tests_run(text), "passed",
			  tests->exited && tests->status == 0 && !tests->timed_out && dead &&
				  tests_run(text) > 0,
			  "error", tests->timed_out ? "they took too long" : tests->error, "output",
			  json_foreign(tail, OUTPUT_SHOWN), "certificate",
			  json_foreign(tests->certificate ? tests->certificate : "", OUTPUT_SHOWN));
	run_store(p, "owntests", record, "owntests/%s/%.16s", tests->which, tests->tree);
	own_tests_drop(p);
	pipeline_schedule(p);
}

static void on_death(void *userdata, orch_scope *scope, orch_death *death)
{
	struct own_tests *tests = userdata;
	(void)scope;
	if (!tests->pipeline)
		return;
	tests->verdict = strdup(orch_death_verdict_name(death));
	tests->certificate = strdup(orch_death_text(death));
	orch_source_timer_set(tests->timer, 0);
}

static void stop(struct own_tests *tests, const char *error)
{
	if (error && !tests->error)
		tests->error = strdup(error);
	orch_scope *scope = tests->sandbox ? orch_sandbox_scope(tests->sandbox) : NULL;
	if (!scope || orch_scope_stop(scope, NULL, on_death, own_tests_ref(tests), own_tests_unref,
				      NULL) < 0) {
		tests->verdict = strdup("NOT_STARTED");
		orch_source_timer_set(tests->timer, 0);
	}
}

static void read_output(struct own_tests *tests)
{
	char bytes[4096];
	ssize_t got;
	while ((got = read(tests->output_fd, bytes, sizeof(bytes))) > 0)
		if (tests->text.length < OUTPUT_LIMIT)
			orch_buf_add(&tests->text, bytes, (size_t)got);
	if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		tests->output = orch_source_remove(tests->output);
}

static void on_output(void *userdata, uint32_t events)
{
	(void)events;
	read_output(userdata);
}

static void on_timer(void *userdata)
{
	struct own_tests *tests = userdata;
	if (tests->verdict) {
		read_output(tests);
		own_tests_over(tests);
		return;
	}
	tests->timed_out = true;
	stop(tests, NULL);
}

static void on_proc(void *userdata, orch_proc *proc, uint32_t event)
{
	struct own_tests *tests = userdata;
	if (!tests->pipeline || event == ORCH_PROC_STARTED)
		return;
	if (event == ORCH_PROC_EXITED) {
		tests->exited = true;
		tests->status = orch_proc_term_signal(proc) ? 256 + orch_proc_term_signal(proc)
							    : orch_proc_exit_code(proc);
		stop(tests, NULL);
	} else {
		stop(tests, orch_error_message(orch_proc_error(proc)));
	}
}

/* --- the start ------------------------------------------------------------------------------- */

static int32_t spawn(struct own_tests *tests, orch_error **reterr)
{
	const char *folder = tests_folder(tests->pipeline);
	const char *const argv[] = {"python3", "-m", "unittest", "discover", "-s",
				    folder,    "-t", ".",	 NULL};
	const char *const envp[] = {"PYTHONDONTWRITEBYTECODE=1", "DATA=/data", NULL};
	int fds[2];
	if (orch_pipe(fds) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "pipe", "no pipe for the output");
	/* Only our end: the writer is a program that does not expect a non-blocking stdout. */
	_cleanup_close_ int write_end = fds[1];
	tests->output_fd = fds[0];
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "pipe", "no pipe for the output");
	int32_t code = orch_source_io(tests->pipeline->ctx, fds[0], ORCH_IO_READ, on_output, tests,
				      &tests->output, reterr);
	if (code < 0)
		return code;
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.envp = envp;
	opts.cwd = "/product";
	opts.stdout_fd = write_end;
	opts.stderr_fd = write_end;
	opts.event = on_proc;
	opts.userdata = own_tests_ref(tests);
	opts.destroy = own_tests_unref;
	return orch_sandbox_spawn(tests->sandbox, &opts, NULL, reterr);
}

static void on_started(void *userdata, orch_sandbox *sandbox, const orch_error *error)
{
	struct own_tests *tests = userdata;
	(void)sandbox;
	if (!tests->pipeline)
		return;
	orch_error *failure = NULL;
	if (error)
		stop(tests, orch_error_message(error));
	else if (spawn(tests, &failure) < 0)
		stop(tests, orch_error_message(failure));
	orch_error_free(failure);
}

/* The tree, with the tests' folder as it was at the base. */
static int32_t lay_out(orch_pipeline *p, struct own_tests *tests, orch_error **reterr)
{
	const char *folder = tests_folder(p);
	_cleanup_free_ char *base = orch_strdup_printf("%s/own-earlier-tests", p->work_dir);
	_cleanup_free_ char *old = path_join(base ? base : "", folder);
	_cleanup_free_ char *new = path_join(tests->dir, folder);
	if (!base || !old || !new)
		return orch_fail_memory(reterr);
	int32_t code = tree_remove(base, reterr);
	if (code == 0)
		code = tree_checkout(p->trees_dir, tests->tree, tests->dir, reterr);
	if (code == 0)
		code = tree_checkout(p->trees_dir, p->model->base_tree, base, reterr);
	if (code == 0)
		code = tree_remove(new, reterr);
	if (code == 0 && rename(old, new) < 0)
		code = orch_fail(reterr, ORCH_ESYS, errno, "rename", "%s can not be moved", old);
	if (code == 0)
		code = tree_remove(base, reterr);
	if (code == 0)
		code = make_dir(tests->dir, 0755, reterr);
	return code < 0 ? code : make_dir(tests->data, 0755, reterr);
}

static int32_t begin(orch_pipeline *p, struct own_tests *tests, orch_error **reterr)
{
	struct orch_sandbox_opts opts;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.label = "own tests";
	int32_t code = lay_out(p, tests, reterr);
	if (code == 0)
		code = orch_source_timer(p->ctx, OWN_TESTS_TIMEOUT_MS, on_timer, tests,
					 &tests->timer, reterr);
	if (code == 0)
		code = orch_sandbox_new(p->ctx, &opts, &tests->sandbox, reterr);
	if (code == 0)
		code = orch_sandbox_add_path(tests->sandbox, tests->dir, "/product",
					     ORCH_PATH_READ | ORCH_PATH_EXEC, reterr);
	if (code == 0)
		code = orch_sandbox_add_path(tests->sandbox, tests->data, "/data", ORCH_PATH_OWN,
					     reterr);
	if (code == 0)
		code = orch_sandbox_start(tests->sandbox, on_started, own_tests_ref(tests),
					  own_tests_unref, reterr);
	return code;
}

void own_tests_start(orch_pipeline *p, const char *which, const char *tree)
{
	if (p->own_tests)
		return;
	orch_error *error = NULL;
	struct own_tests *tests = calloc(1, sizeof(*tests));
	if (!tests) {
		orch_fail_memory(&error);
		pipeline_fail(p, error);
		return;
	}
	tests->references = 1;
	tests->pipeline = p;
	tests->output_fd = -1;
	tests->which = strdup(which);
	tests->tree = strdup(tree);
	tests->dir = orch_strdup_printf("%s/own-%s", p->work_dir, which);
	tests->data = orch_strdup_printf("%s/own-%s.data", p->work_dir, which);
	p->own_tests = tests;
	int32_t code = tests->which && tests->tree && tests->dir && tests->data
			       ? begin(p, tests, &error)
			       : orch_fail_memory(&error);
	if (code < 0)
		pipeline_fail(p, error);
}
