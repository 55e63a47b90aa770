/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "demo.h"

/*
 * run and resume: one loop of our own around the context, which shows how a host embeds it: poll orch_ctx_fd() beside the
 * control socket, the terminal and signals, and call orch_ctx_process().
 */

struct run {
	orch_ctx *ctx;
	orch_pipeline *pipeline;
	struct progress *progress;
	struct control *control;
	bool json, interactive;
	json_t *questions; /* asked and not answered on this terminal yet */
	json_t *answers;
	size_t asked;      /* the question that was printed last, 1-based */
	char *end_state, *end_reason;
	bool ended;
	uint64_t records, crash_at;
};

static void on_record(void *userdata, uint64_t sequence)
{
	struct run *run = userdata;
	(void)sequence;
	if (run->crash_at && ++run->records >= run->crash_at)
		kill(getpid(), SIGKILL);
}

static void on_event(void *userdata, const char *text)
{
	struct run *run = userdata;
	progress_event(run->progress, text);
	json_t *event = json_loads(text, 0, NULL);
	const char *name = json_string_value(json_object_get(event, "event"));
	if (name && strcmp(name, "end") == 0) {
		const char *state = json_string_value(json_object_get(event, "state"));
		const char *reason = json_string_value(json_object_get(event, "reason"));
		free(run->end_state);
		free(run->end_reason);
		run->end_state = strdup(state ? state : "");
		run->end_reason = strdup(reason ? reason : "");
		run->ended = true;
	} else if (name && strcmp(name, "question") == 0) {
		json_array_append(run->questions, event);
	}
	json_decref(event);
}

/* --- questions on a terminal ------------------------------------------------------------------------------- */

static void ask_next(struct run *run)
{
	if (!run->interactive || run->asked >= json_array_size(run->questions) ||
	    run->asked > json_object_size(run->answers))
		return;
	json_t *question = json_array_get(run->questions, run->asked++);
	const char *text = json_string_value(json_object_get(question, "text"));
	const char *recommended = json_string_value(json_object_get(question, "recommended"));
	printf("\n? %s\n  [Enter: %s] > ", text ? text : "", recommended ? recommended : "");
	fflush(stdout);
}

static void read_answer(struct run *run)
{
	char line[4096];
	if (!fgets(line, sizeof(line), stdin)) {
		run->interactive = false;
		return;
	}
	line[strcspn(line, "\r\n")] = '\0';
	if (run->asked == 0 || run->asked > json_array_size(run->questions))
		return;
	json_t *question = json_array_get(run->questions, run->asked - 1);
	const char *id = json_string_value(json_object_get(question, "id"));
	json_object_set_new(run->answers, id ? id : "?", json_string(line));
	if (json_object_size(run->answers) < json_array_size(run->questions)) {
		ask_next(run);
		return;
	}
	json_t *root = json_pack("{s:O}", "answers", run->answers);
	char *text = json_dumps(root, JSON_COMPACT);
	orch_error *error = NULL;
	if (orch_pipeline_answer(run->pipeline, text, strlen(text), &error) < 0)
		fail("answer", error);
	free(text);
	json_decref(root);
	json_array_clear(run->questions);
	json_object_clear(run->answers);
	run->asked = 0;
}

/* --- the loop ------------------------------------------------------------------------------------------------ */

static int loop(struct run *run, const char *state)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	int exit_code = -1;
	while (!run->ended && exit_code < 0) {
		struct pollfd fds[16];
		int control_list[9];
		nfds_t count = 0;
		fds[count++] = (struct pollfd){.fd = orch_ctx_fd(run->ctx), .events = POLLIN};
		fds[count++] = (struct pollfd){.fd = signals, .events = POLLIN};
		bool asking = run->interactive && run->asked > 0;
		fds[count++] = (struct pollfd){.fd = asking ? STDIN_FILENO : -1, .events = POLLIN};
		int controls = control_fds(run->control, control_list, 9);
		for (int i = 0; i < controls; i++)
			fds[count++] = (struct pollfd){.fd = control_list[i], .events = POLLIN};
		if (poll(fds, count, 250) < 0 && errno != EINTR)
			return fail_text(EXIT_ERROR, "poll: %m");

		orch_error *error = NULL;
		if (orch_ctx_process(run->ctx, &error) < 0)
			return fail("the event loop", error);
		bool stopped = false;
		control_process(run->control, &stopped);
		progress_tick(run->progress);
		ask_next(run);
		if (asking && fds[2].revents)
			read_answer(run);
		struct signalfd_siginfo got;
		if (read(signals, &got, sizeof(got)) == (ssize_t)sizeof(got)) {
			fprintf(stderr,
				"\norch-demo: interrupted. Everything that ran is ended; go on with: orch-demo resume --state %s\n",
				state);
			exit_code = EXIT_INTERRUPTED;
		}
		if ((orch_pipeline_overlays(run->pipeline) & ORCH_OVERLAY_NEEDS_HUMAN) && !run->interactive) {
			fprintf(stderr,
				"orch-demo: the run waits for answers. Fill in %s/questions.json, then:\n"
				"  orch-demo resume --state %s --answers FILE     (or --yes to take what is recommended)\n",
				state, state);
			exit_code = EXIT_NEEDS_HUMAN;
		}
	}
	close(signals);
	return exit_code < 0 ? EXIT_FINE : exit_code;
}

static int end_code(const struct run *run, const char *state)
{
	if (strcmp(run->end_state, "DELIVERED") == 0)
		return EXIT_FINE;
	if (strcmp(run->end_state, "PARTIAL") == 0)
		return strstr(run->end_reason, "upstream_unreachable") ? EXIT_PROVIDER : EXIT_PARTIAL;
	if (strcmp(run->end_state, "ABORTED") == 0)
		return EXIT_ABORTED;
	/* This instance could not go on, and the run is as it was. */
	return fail_text(EXIT_ERROR, "%s. When that is mended: orch-demo resume --state %s", run->end_reason, state);
}

static int give_answers(struct run *run, const struct options *options, const struct setup *setup)
{
	orch_error *error = NULL;
	if (options->answers) {
		size_t length = 0;
		char *text = read_file(options->answers, 1048576, &length);
		if (!text)
			return fail_text(EXIT_USAGE, "--answers %s: %m", options->answers);
		int32_t code = orch_pipeline_answer(run->pipeline, text, length, &error);
		free(text);
		if (code < 0)
			return fail(options->answers, error);
	}
	if (!json_is_true(json_object_get(setup->config, "yes")))
		return EXIT_FINE;
	int32_t code = orch_pipeline_accept_recommended(run->pipeline, &error);
	/* A run that is resumed may have its answers already. */
	if (code < 0 && code != ORCH_ESTATE)
		return fail("--yes", error);
	orch_error_free(error);
	return EXIT_FINE;
}

static int32_t try_open(struct run *run, const struct options *options, const struct setup *setup, const char *state,
			const char *anchor, const char *idea, bool resume, orch_error **reterr)
{
	struct orch_pipeline_opts opts;
	char *description = setup_describe(setup, options);
	orch_pipeline_opts_init(&opts, sizeof(opts));
	opts.flags = (resume ? ORCH_PIPELINE_RESUME : 0) |
		     (json_is_true(json_object_get(setup->config, "no_review")) ? ORCH_PIPELINE_NO_REVIEW : 0);
	opts.state_dir = state;
	opts.anchor_path = anchor;
	opts.idea = idea;
	opts.repo_dir = options->repo;
	opts.base_rev = options->base;
	opts.jobs = options->jobs;
	opts.max_attempts = options->max_attempts;
	opts.max_tokens = options->max_tokens;
	opts.max_micro_usd = (uint64_t)(options->max_usd * 1e6);
	opts.max_seconds = options->max_time_s;
	/* Nobody takes a recommendation unseen: --yes says so, a person answers, or the run waits. */
	opts.answer_timeout_ms = -1;
	opts.description = description;
	opts.on_record = on_record;
	opts.on_record_userdata = run;
	int32_t code = orch_pipeline_new(run->ctx, &opts, &run->pipeline, reterr);
	free(description);
	return code;
}

static int open_pipeline(struct run *run, const struct options *options, const struct setup *setup, const char *state,
			 const char *anchor, const char *idea, bool resume)
{
	orch_error *error = NULL;
	int32_t code = try_open(run, options, setup, state, anchor, idea, resume, &error);
	if (code == ORCH_ENOENT && resume) {
		/* Killed before the run was taken in: it begins now, as it was asked for then. */
		struct options then = *options;
		const char *its = setup_first_options(setup, &then);
		if (its) {
			error = orch_error_free(error);
			code = try_open(run, &then, setup, state, anchor, its, false, &error);
		}
	}
	return code < 0 ? fail(state, error) : EXIT_FINE;
}

static void say_first_line(const struct run *run, const struct setup *setup, const struct options *options,
			   const char *state)
{
	char *description = setup_describe(setup, options);
	if (run->json) {
		json_t *line = json_pack("{s:s, s:s, s:s}", "event", "setup", "description", description, "state_dir", state);
		char *text = json_dumps(line, JSON_COMPACT);
		printf("%s\n", text);
		free(text);
		json_decref(line);
	} else {
		printf("%s\nstate %s\n", description, state);
	}
	fflush(stdout);
	free(description);
}

/* A new run where a removed one was: the user took its journal away himself, and the anchor would hold it against him. */
static void forget_anchor(const char *state, const char *anchor)
{
	char *journal = format_text("%s/journal.db", state);
	if (access(journal, F_OK) < 0 && errno == ENOENT)
		unlink(anchor);
	free(journal);
}

int command_run(const struct options *options, bool resume)
{
	if (options->rest_count)
		return fail_text(EXIT_USAGE, "\"%s\" is one argument too many: put the idea in quotes", options->rest[0]);
	struct run run = {.json = options->json, .crash_at = options->crash_at};
	struct setup setup = {0};
	char *idea = NULL, *state = NULL, *anchor = NULL;
	orch_scope *provider = NULL;
	orch_error *error = NULL;

	state = state_folder(options, resume);
	if (!state)
		return resume ? EXIT_NOTHING : EXIT_ERROR;
	int code = resume ? setup_load(state, options, &setup) : setup_new(options, &setup, &idea);
	if (code != EXIT_FINE)
		goto out;
	anchor = anchor_path(state);
	run.ctx = demo_ctx();
	if (!anchor || !run.ctx) {
		code = EXIT_ERROR;
		goto out;
	}
	if (!resume)
		forget_anchor(state, anchor);
	run.interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !options->json && !options->answers &&
			  !json_is_true(json_object_get(setup.config, "yes"));
	run.questions = json_array();
	run.answers = json_object();
	run.progress = progress_new(options->json);
	code = open_pipeline(&run, options, &setup, state, anchor, idea, resume);
	if (code != EXIT_FINE)
		goto out;
	say_first_line(&run, &setup, options, state);
	code = setup_apply(&setup, options, state, run.ctx, run.pipeline, &provider);
	if (code != EXIT_FINE)
		goto out;
	orch_pipeline_on_event(run.pipeline, on_event, &run, NULL, NULL);
	code = give_answers(&run, options, &setup);
	if (code != EXIT_FINE)
		goto out;
	run.control = control_new(state, run.pipeline);
	if (orch_pipeline_start(run.pipeline, &error) < 0) {
		code = fail("start", error);
		goto out;
	}
	code = loop(&run, state);
	if (code == EXIT_FINE)
		code = end_code(&run, state);
out:
	control_free(run.control);
	orch_pipeline_unref(run.pipeline);
	if (provider)
		orch_scope_stop_wait(provider, NULL, NULL, NULL);
	orch_scope_unref(provider);
	progress_free(run.progress);
	orch_ctx_unref(run.ctx);
	json_decref(run.questions);
	json_decref(run.answers);
	free(run.end_state);
	free(run.end_reason);
	setup_free(&setup);
	free(idea);
	free(state);
	free(anchor);
	return code;
}

/* --- talking to a living instance ------------------------------------------------------------------------------ */

static void print_status(const char *text, bool json)
{
	json_t *status = json_loads(text, 0, NULL);
	if (json || !status) {
		puts(text);
		json_decref(status);
		return;
	}
	const char *state = json_string_value(json_object_get(status, "state"));
	printf("run %s: %s", json_string_value(json_object_get(status, "run")), state ? state : "?");
	const json_t *overlays = json_object_get(status, "overlays"), *entry;
	size_t index;
	json_array_foreach(overlays, index, entry)
		printf(" %s", json_string_value(entry));
	const char *reason = json_string_value(json_object_get(status, "reason"));
	printf("%s%s\n", reason && *reason ? ": " : "", reason ? reason : "");
	json_array_foreach(json_object_get(status, "tasks"), index, entry)
		printf("  %-6s %-10s attempt %lld  %s\n", json_string_value(json_object_get(entry, "id")),
		       json_string_value(json_object_get(entry, "state")),
		       (long long)json_integer_value(json_object_get(entry, "attempts")),
		       json_string_value(json_object_get(entry, "title")));
	json_array_foreach(json_object_get(status, "questions"), index, entry)
		if (!json_is_string(json_object_get(entry, "answer")))
			printf("  ? %s %s [%s]\n", json_string_value(json_object_get(entry, "id")),
			       json_string_value(json_object_get(entry, "text")),
			       json_string_value(json_object_get(entry, "recommended")));
	json_decref(status);
}

int command_status(const struct options *options)
{
	char *state = state_folder(options, true);
	if (!state)
		return EXIT_NOTHING;
	orch_error *error = NULL;
	int code = EXIT_FINE;
	char *answer = control_ask(state, "{\"command\":\"status\"}");
	if (answer && *answer) {
		print_status(answer, options->json);
	} else {
		char *text = NULL;
		if (orch_pipeline_status_of(state, &text, &error) < 0)
			code = fail(state, error);
		else
			print_status(text, options->json);
		orch_string_free(text);
	}
	free(answer);
	free(state);
	return code;
}

/* Sends a request that only a living instance can take. */
static int ask_living(const struct options *options, const char *request)
{
	char *state = state_folder(options, true);
	if (!state)
		return EXIT_NOTHING;
	int code = EXIT_FINE;
	char *text = control_ask(state, request);
	json_t *answer = text ? json_loads(text, 0, NULL) : NULL;
	if (!answer)
		code = fail_text(EXIT_NOTHING, "no instance of %s is running: orch-demo resume --state %s", state, state);
	else if (!json_is_true(json_object_get(answer, "ok")))
		code = fail_text(EXIT_USAGE, "%s", json_string_value(json_object_get(answer, "message")));
	else
		puts(options->json ? text : "done");
	json_decref(answer);
	free(text);
	free(state);
	return code;
}

int command_stop(const struct options *options)
{
	return ask_living(options, "{\"command\":\"stop\"}");
}

int command_answer(const struct options *options)
{
	if (options->yes)
		return ask_living(options, "{\"command\":\"answer\",\"recommended\":true}");
	/* "answer Q1=TEXT Q2=TEXT", or --answers F */
	json_t *root = NULL;
	if (options->answers) {
		json_error_t where;
		root = json_load_file(options->answers, 0, &where);
		if (!root)
			return fail_text(EXIT_USAGE, "%s:%d: %s", options->answers, where.line, where.text);
		json_object_set_new(root, "command", json_string("answer"));
		json_t *answers = json_pack("{s:O*}", "answers", json_object_get(root, "answers"));
		json_object_set_new(root, "answers", answers);
	} else if (options->idea) {
		json_t *texts = json_object();
		for (int i = -1; i < options->rest_count; i++) {
			const char *text = i < 0 ? options->idea : options->rest[i], *equals = strchr(text, '=');
			if (!equals) {
				json_decref(texts);
				return fail_text(EXIT_USAGE, "answer %s: expected QUESTION=TEXT", text);
			}
			char *id = strndup(text, (size_t)(equals - text));
			json_object_set_new(texts, id, json_string(equals + 1));
			free(id);
		}
		root = json_pack("{s:s, s:{s:o}}", "command", "answer", "answers", "answers", texts);
	} else {
		return fail_text(EXIT_USAGE, "answer: give QUESTION=TEXT..., --answers F, or --yes");
	}
	char *request = json_dumps(root, JSON_COMPACT);
	int code = ask_living(options, request);
	free(request);
	json_decref(root);
	return code;
}

int command_report(const struct options *options)
{
	char *state = state_folder(options, true);
	if (!state)
		return EXIT_NOTHING;
	char *path = format_text("%s/report/%s", state, options->json ? "report.json" : "report.txt");
	char *text = read_file(path, 256u << 20, NULL);
	int code = EXIT_FINE;
	if (!text)
		code = fail_text(EXIT_NOTHING, "%s: %m: a report is written when the run ends", path);
	else if (options->json)
		puts(text);
	else
		printf("%s\n%s/report/report.html\n", text, state);
	free(text);
	free(path);
	free(state);
	return code;
}
