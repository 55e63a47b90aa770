/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "verify-private.h"

#define OUTPUT_LIMIT (256u * 1024)
#define CHECK_FILE_LIMIT (1024u * 1024)
#define PROBE_MS 20
#define TAP_DETAIL 2048u
#define TAIL_DETAIL 1024u
#define DEFAULT_TIMEOUT_S 60u

/*
 * One check: a product cell and a check cell, once, or twice on the same data with restart="yes".
 *
 *   FRESH -> STARTING -> CHECKING -> STOPPING -> (STARTING again) -> FINISHED
 */
enum run_state { RUN_FRESH, RUN_STARTING, RUN_CHECKING, RUN_STOPPING, RUN_FINISHED };

struct check_run {
	uint32_t references; /* the owner's, and one for each connection attempt under way */
	orch_ctx *ctx;
	struct check_run_opts opts;
	void (*done)(void *userdata); /* NULL once it is abandoned */
	void *userdata;
	enum run_state state;
	unsigned phase;		      /* 0: the only one, or "before"; 1: "after" */
	struct cell *product, *check; /* no product on the stub */
	struct joint *joint;
	struct door *door;
	orch_source *deadline; /* of the product's start, then of the check */
	orch_source *probe_timer;
	bool accepts;	 /* the product was seen to accept a connection */
	bool start_over; /* it has had its time */
	bool timed_out;
	int64_t started_us;
	struct check_result result;
	struct orch_buf detail, check_death, product_death;
	uint32_t not_dead;
};

/* --- what people read
 * ----------------------------------------------------------------------------------- */

static void fail(struct check_run *run, uint32_t verdict, const char *reason)
{
	/* The first finding stands; later ones only explain it. */
	if (!run->result.verdict || run->result.verdict == VERDICT_PASS)
		run->result.verdict = verdict;
	if (run->opts.check->restart)
		orch_buf_puts(&run->detail,
			      run->phase ? "after the restart: " : "before the restart: ");
	text_append(&run->detail, reason, strlen(reason), true);
	orch_buf_puts(&run->detail, "\n");
}

static void fail_error(struct check_run *run, const char *what, const orch_error *error)
{
	_cleanup_free_ char *reason =
	    orch_strdup_printf("%s: %s", what, error ? orch_error_message(error) : "out of memory");
	fail(run, VERDICT_ERROR, reason ? reason : what);
}

/* The last whole lines of a stream, indented. */
static void add_tail(struct orch_buf *buf, const char *title, const struct stream *stream)
{
	const char *text = stream->bytes.data;
	size_t length = stream->bytes.length;
	while (length && (text[length - 1] == '\n' || text[length - 1] == ' '))
		length--;
	if (!length)
		return;
	size_t start = length > TAIL_DETAIL ? length - TAIL_DETAIL : 0;
	const char *newline = start ? memchr(text + start, '\n', length - start) : NULL;
	if (newline)
		start = (size_t)(newline - text) + 1;
	orch_buf_printf(buf, "%s:\n", title);
	while (start < length) {
		newline = memchr(text + start, '\n', length - start);
		size_t end = newline ? (size_t)(newline - text) : length;
		orch_buf_puts(buf, "  ");
		text_append(buf, text + start, end - start, true);
		orch_buf_puts(buf, "\n");
		start = end + 1;
	}
}

static void describe_end(struct orch_buf *buf, const struct cell *cell)
{
	if (cell->exec_error)
		text_append(buf, orch_error_message(cell->exec_error),
			    strlen(orch_error_message(cell->exec_error)), true);
	else if (cell->term_signal)
		orch_buf_printf(buf, "signal %d", cell->term_signal);
	else
		orch_buf_printf(buf, "exit %d", cell->exit_code);
}

/* Why a check could not find the product in order; only beside a verdict that is not PASS. */
static void explain_product(struct check_run *run)
{
	const struct cell *product = run->product;
	if (!product || !product->spawned || (run->accepts && !product->exited))
		return;
	orch_buf_puts(&run->detail, run->accepts ? "product ended during the check: "
						 : "product did not start: ");
	if (product->exited)
		describe_end(&run->detail, product);
	else
		orch_buf_printf(&run->detail,
				"nothing accepted connections on 127.0.0.1:%d within %u ms",
				PRODUCT_PORT, run->opts.start_timeout_ms);
	orch_buf_puts(&run->detail, "\n");
	add_tail(&run->detail, "last lines of the product's stderr", &product->err);
}

/* --- start of a phase
 * ---------------------------------------------------------------------------------- */

static void on_cell(void *userdata);

static int32_t make_dir(const char *path, orch_error **reterr)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return orch_fail(reterr, ORCH_ESYS, errno, "verify", "%s can not be made", path);
	return 0;
}

static const char *file_name(const struct check *check)
{
	const char *slash = strrchr(check->file, '/');
	return slash ? slash + 1 : check->file;
}

/* A copy: the sealed folder's modes and neighbours are nothing to the check. */
static int32_t copy_check(struct check_run *run, orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length;
	int32_t code = tree_read_file(run->opts.sealed_dir, run->opts.check->file, CHECK_FILE_LIMIT,
				      &bytes, &length, reterr);
	if (code < 0)
		return code;
	_cleanup_free_ char *path = orch_strdup_printf("%s/%s", run->opts.work_dir, "check.py");
	return path ? tree_write_file(path, bytes, length, 0444, reterr) : orch_fail_memory(reterr);
}

static int32_t new_sandbox(struct check_run *run, const char *role, uint32_t net,
			   orch_sandbox **ret_sandbox, orch_error **reterr)
{
	_cleanup_free_ char *label = orch_strdup_printf("%s %s", role, run->opts.check->id);
	if (!label)
		return orch_fail_memory(reterr);
	struct orch_sandbox_opts opts;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.label = label;
	opts.root = ORCH_ROOT_TOOLS;
	opts.net = net;
	return orch_sandbox_new(run->ctx, &opts, ret_sandbox, reterr);
}

static int32_t new_product(struct check_run *run, orch_error **reterr)
{
	_cleanup_free_ char *data = orch_strdup_printf("%s/data", run->opts.work_dir);
	_cleanup_free_ char *port = orch_strdup_printf("%d", PRODUCT_PORT);
	orch_sandbox *sandbox = NULL;
	if (!data || !port)
		return orch_fail_memory(reterr);
	int32_t code = make_dir(data, reterr);
	if (code == 0)
		code = new_sandbox(run, "product", ORCH_NET_NONE, &sandbox, reterr);
	if (code < 0)
		return code;
	if ((code = orch_sandbox_add_path(sandbox, run->opts.tree_dir, PRODUCT_CWD,
					  ORCH_PATH_READ | ORCH_PATH_EXEC, reterr)) < 0 ||
	    (code = orch_sandbox_add_path(sandbox, data, "/data", ORCH_PATH_OWN, reterr)) < 0 ||
	    (code = orch_sandbox_set_env(sandbox, "PORT", port, reterr)) < 0 ||
	    (code = orch_sandbox_set_env(sandbox, "DATA", "/data", reterr)) < 0 ||
	    (code = orch_sandbox_set_env(sandbox, "PYTHONDONTWRITEBYTECODE", "1", reterr)) < 0) {
		orch_sandbox_unref(sandbox);
		return code;
	}
	return cell_new(run->ctx, sandbox, on_cell, run, &run->product, reterr);
}

static int32_t new_check(struct check_run *run, orch_error **reterr)
{
	_cleanup_free_ char *path = orch_strdup_printf("%s/check.py", run->opts.work_dir);
	_cleanup_free_ char *inner = orch_strdup_printf("/check/%s", file_name(run->opts.check));
	_cleanup_free_ char *url = orch_strdup_printf("http://127.0.0.1:%d", ORCH_BROKER_PORT);
	orch_sandbox *sandbox = NULL;
	if (!path || !inner || !url)
		return orch_fail_memory(reterr);
	int32_t code = new_sandbox(run, "check", ORCH_NET_BROKER, &sandbox, reterr);
	if (code < 0)
		return code;
	if ((code = orch_sandbox_add_path(sandbox, path, inner, ORCH_PATH_READ, reterr)) < 0 ||
	    (code = orch_sandbox_set_env(sandbox, "PRODUCT_URL", url, reterr)) < 0) {
		orch_sandbox_unref(sandbox);
		return code;
	}
	return cell_new(run->ctx, sandbox, on_cell, run, &run->check, reterr);
}

static int32_t start_phase(struct check_run *run, orch_error **reterr)
{
	int32_t code = 0;
	if (run->phase == 0 && (code = make_dir(run->opts.work_dir, reterr)) == 0)
		code = copy_check(run, reterr);
	if (code == 0 && run->opts.tree_dir)
		code = new_product(run, reterr);
	if (code == 0)
		code = new_check(run, reterr);
	if (code < 0)
		return code;
	run->accepts = run->start_over = run->timed_out = false;
	if (run->product)
		cell_start(run->product);
	cell_start(run->check);
	return 0;
}

/* --- is the product there?
 * ----------------------------------------------------------------------------- */

static void step(struct check_run *run);

static void run_unref(void *userdata)
{
	struct check_run *run = userdata;
	if (--run->references == 0)
		free(run);
}

static void on_probe(void *userdata, int32_t fd, const orch_error *error)
{
	struct check_run *run = userdata;
	if (fd >= 0)
		close(fd);
	if (!run->done || run->state != RUN_STARTING)
		return;
	if (error || fd < 0) {
		orch_source_timer_set(run->probe_timer, PROBE_MS);
		return;
	}
	run->accepts = true;
	step(run);
}

static void on_probe_timer(void *userdata)
{
	struct check_run *run = userdata;
	if (run->state != RUN_STARTING || !run->product || run->product->exited)
		return;
	run->references++;
	if (orch_sandbox_connect(run->product->sandbox, PRODUCT_PORT, on_probe, run, run_unref,
				 NULL) < 0)
		orch_source_timer_set(run->probe_timer, PROBE_MS);
}

static void start_product(struct check_run *run)
{
	cell_spawn(run->product, (const char *const *)run->opts.spec->start, PRODUCT_CWD, 0);
	orch_source_timer_set(run->deadline, run->opts.start_timeout_ms);
	orch_source_timer_set(run->probe_timer, PROBE_MS);
}

static bool is_cli(const struct check_run *run)
{
	return run->opts.spec->product_kind == PRODUCT_CLI;
}

/* True as soon as waiting for the product has no more sense. */
static bool product_settled(const struct check_run *run)
{
	if (!run->product)
		return true;
	if (is_cli(run))
		return run->product->started;
	return run->product->spawned && (run->accepts || run->product->exited || run->start_over);
}

/* --- the check
 * ------------------------------------------------------------------------------------------ */

static int32_t open_door(struct check_run *run, orch_error **reterr)
{
	int32_t fd = orch_sandbox_listener_fd(run->check->sandbox);
	if (fd < 0)
		return orch_fail(reterr, fd, 0, "verify", "the check's sandbox has no listener");
	if (!run->product)
		return door_new_stub(run->ctx, fd, is_cli(run), &run->door, reterr);
	if (is_cli(run))
		return door_new_cli(run->ctx, fd, run->product->sandbox, run->opts.spec->start,
				    &run->door, reterr);
	return joint_new(run->ctx, fd, run->product->sandbox, PRODUCT_PORT, &run->joint, reterr);
}

static uint32_t timeout_s(const struct check_run *run)
{
	return run->opts.check->timeout_s ? run->opts.check->timeout_s : DEFAULT_TIMEOUT_S;
}

static int32_t start_check(struct check_run *run, orch_error **reterr)
{
	int32_t code = open_door(run, reterr);
	if (code < 0)
		return code;
	_cleanup_free_ char *file = orch_strdup_printf("/check/%s", file_name(run->opts.check));
	if (!file)
		return orch_fail_memory(reterr);
	const char *argument = !run->opts.check->restart ? NULL : run->phase ? "after" : "before";
	const char *const argv[] = {"/usr/bin/python3", "-I", "-B", file, argument, NULL};
	cell_spawn(run->check, argv, "/", OUTPUT_LIMIT);
	orch_source_timer_set(run->probe_timer, -1);
	orch_source_timer_set(run->deadline, (int64_t)timeout_s(run) * 1000);
	return 0;
}

static void judge(struct check_run *run)
{
	const struct cell *check = run->check;
	const struct stream *out = &check->out;
	const char *text = out->bytes.data ? out->bytes.data : "";
	uint32_t passed = 0, failed = 0;
	const char *reason = tap_count(text, out->bytes.length, &passed, &failed);
	_cleanup_free_ char *words = NULL;
	bool fine = false;

	run->result.passed += passed;
	run->result.failed += failed;
	if (check->exec_error) {
		fail_error(run, "the check could not be started", check->exec_error);
		return;
	}
	if (run->timed_out) {
		words = orch_strdup_printf("not done after %u s", timeout_s(run));
		fail(run, VERDICT_TIMEOUT, words ? words : "not done in time");
	} else if (out->over_limit) {
		fail(run, VERDICT_FAIL, "more than 256 KiB of output");
	} else if (out->bytes.failed) {
		fail(run, VERDICT_ERROR, "out of memory for the check's output");
	} else if (reason) {
		fail(run, VERDICT_FAIL, reason);
	} else if (failed) {
		words = orch_strdup_printf("%u of %u points did not pass", failed, passed + failed);
		fail(run, VERDICT_FAIL, words ? words : "points did not pass");
	} else if (check->term_signal) {
		fail(run, VERDICT_FAIL, "all points are ok, but the check was ended by a signal");
	} else if (check->exit_code != 0) {
		words = orch_strdup_printf("all points are ok, but the check's exit code is %d",
					   check->exit_code);
		fail(run, VERDICT_FAIL, words ? words : "the check's exit code is not 0");
	} else {
		fine = true;
	}
	if (fine)
		return;
	tap_failures(text, out->bytes.length, TAP_DETAIL, &run->detail);
	add_tail(&run->detail, "last lines of the check's stderr", &check->err);
	explain_product(run);
}

/* --- the end of a phase
 * ----------------------------------------------------------------------------------- */

static void stop_phase(struct check_run *run)
{
	orch_source_timer_set(run->deadline, -1);
	orch_source_timer_set(run->probe_timer, -1);
	run->joint = joint_free(run->joint);
	run->door = door_free(run->door);
	if (run->check)
		cell_stop(run->check);
	if (run->product)
		cell_stop(run->product);
	run->state = RUN_STOPPING;
}

/* Notes the certificate; one that proves no death leaves nothing of the verdict. */
static struct cell *bury(struct check_run *run, struct cell *cell, const char *who,
			 struct orch_buf *deaths, uint32_t *ret_uid)
{
	if (!cell)
		return NULL;
	if (cell->death) {
		if (run->opts.check->restart)
			orch_buf_puts(deaths,
				      run->phase ? "after the restart\n" : "before the restart\n");
		orch_buf_puts(deaths, cell->death);
	}
	if (cell->started)
		*ret_uid = cell->host_uid;
	if (cell->death_verdict && cell->death_verdict != ORCH_DEATH_DEAD)
		run->not_dead++;
	if (cell->death_verdict == ORCH_DEATH_SURVIVORS ||
	    cell->death_verdict == ORCH_DEATH_UNVERIFIABLE) {
		_cleanup_free_ char *words =
		    orch_strdup_printf("the %s's scope could not be shown to be over", who);
		run->result.verdict = VERDICT_ERROR;
		fail(run, VERDICT_ERROR, words ? words : who);
	}
	return cell_free(cell);
}

static bool is_over(const struct cell *cell)
{
	return !cell || cell->over;
}

static void finish(struct check_run *run)
{
	run->state = RUN_FINISHED;
	run->result.duration_ms = (orch_monotonic_us() - run->started_us) / 1000;
	if (!run->result.verdict)
		run->result.verdict = VERDICT_PASS;
	run->done(run->userdata);
}

static void begin_phase(struct check_run *run)
{
	orch_error *error = NULL;
	run->state = RUN_STARTING;
	if (start_phase(run, &error) < 0) {
		fail_error(run, "the check could not be prepared", error);
		stop_phase(run);
	}
	orch_error_free(error);
}

/* Each branch either waits (returns false) or has changed the state. */
static bool advance(struct check_run *run)
{
	orch_error *error = NULL;
	switch (run->state) {
	case RUN_FRESH:
		run->started_us = orch_monotonic_us();
		begin_phase(run);
		return true;
	case RUN_STARTING:
		if (run->product && run->product->started && !run->product->spawned && !is_cli(run))
			start_product(run);
		if (run->product && run->product->error)
			fail_error(run, "the product's sandbox could not be started",
				   run->product->error);
		else if (run->check->error)
			fail_error(run, "the check's sandbox could not be started",
				   run->check->error);
		else if (!run->check->started || !product_settled(run))
			return false;
		else if (start_check(run, &error) < 0)
			fail_error(run, "the check could not be started", error);
		orch_error_free(error);
		if (run->result.verdict)
			stop_phase(run);
		else
			run->state = RUN_CHECKING;
		return true;
	case RUN_CHECKING:
		if (!run->check->exited && !run->timed_out && !run->check->out.over_limit)
			return false;
		judge(run);
		stop_phase(run);
		return true;
	case RUN_STOPPING:
		if (!is_over(run->check) || !is_over(run->product))
			return false;
		run->check =
		    bury(run, run->check, "check", &run->check_death, &run->result.check_uid);
		run->product = bury(run, run->product, "product", &run->product_death,
				    &run->result.product_uid);
		if (run->result.verdict || !run->opts.check->restart || run->phase == 1) {
			finish(run);
			return false;
		}
		run->phase = 1;
		begin_phase(run);
		return true;
	case RUN_FINISHED:
		return false;
	}
	return false;
}

static void step(struct check_run *run)
{
	if (!run->done)
		return;
	run->references++; /* `done` may free it */
	while (advance(run))
		;
	run_unref(run);
}

static void on_cell(void *userdata)
{
	step(userdata);
}

static void on_deadline(void *userdata)
{
	struct check_run *run = userdata;
	if (run->state == RUN_STARTING)
		run->start_over = true;
	else if (run->state == RUN_CHECKING)
		run->timed_out = true;
	step(run);
}

int32_t check_run_new(orch_ctx *ctx, const struct check_run_opts *opts,
		      void (*done)(void *userdata), void *userdata, struct check_run **ret_run,
		      orch_error **reterr)
{
	struct check_run *run = calloc(1, sizeof(*run));
	if (!run)
		return orch_fail_memory(reterr);
	run->references = 1;
	run->ctx = orch_ctx_ref(ctx);
	run->opts = *opts;
	run->done = done;
	run->userdata = userdata;
	int32_t code = orch_source_timer(ctx, 0, on_deadline, run, &run->deadline, reterr);
	if (code == 0)
		code = orch_source_timer(ctx, -1, on_probe_timer, run, &run->probe_timer, reterr);
	if (code < 0) {
		check_run_free(run);
		return code;
	}
	*ret_run = run;
	return 0;
}

/* "" for nothing; NULL without memory. */
static char *take_text(struct orch_buf *buf)
{
	char *text = buf->failed ? NULL : buf->data ? ORCH_STEAL(buf->data) : strdup("");
	orch_buf_free(buf);
	return text;
}

void check_run_result(struct check_run *run, struct check_result *ret_result,
		      uint32_t *ret_not_dead)
{
	*ret_result = run->result;
	ret_result->check_id = strdup(run->opts.check->id);
	ret_result->detail = take_text(&run->detail);
	ret_result->check_death = take_text(&run->check_death);
	ret_result->product_death = run->opts.tree_dir ? take_text(&run->product_death) : NULL;
	*ret_not_dead = run->not_dead;
}

struct check_run *check_run_free(struct check_run *run)
{
	if (!run)
		return NULL;
	run->done = NULL;
	run->deadline = orch_source_remove(run->deadline);
	run->probe_timer = orch_source_remove(run->probe_timer);
	run->joint = joint_free(run->joint);
	run->door = door_free(run->door);
	run->check = cell_free(run->check);
	run->product = cell_free(run->product);
	orch_buf_free(&run->detail);
	orch_buf_free(&run->check_death);
	orch_buf_free(&run->product_death);
	orch_ctx_unref(run->ctx);
	run_unref(run);
	return NULL;
}
