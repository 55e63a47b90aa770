/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEMO_H
#define DEMO_H

/*
 * orch-demo: a thin front-end. It uses the public headers only; what it can do, your program can do.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <orch.h>

/* Exit codes, documented in orch-demo(1). `exec` passes the program's own 0..255 through. */
enum {
	EXIT_FINE = 0,
	EXIT_ERROR = 1,       /* something failed that has no code of its own */
	EXIT_USAGE = 2,       /* bad arguments or bad input files */
	EXIT_UNENFORCEABLE = 3, /* this host can not give a required protection */
	EXIT_BUSY = 4,        /* another instance has the run in hand */
	EXIT_NOTHING = 5,     /* no such run */
	EXIT_PROVIDER = 6,    /* the provider can not be reached */
	EXIT_PARTIAL = 10,
	EXIT_ABORTED = 11,
	EXIT_NEEDS_HUMAN = 12,
	EXIT_EXEC_POLICY = 124, /* exec: the policy is refused, or can not be read */
	EXIT_EXEC_SETUP = 125,  /* exec: the sandbox could not be set up */
	EXIT_EXEC_SPAWN = 127,  /* exec: the program could not be started */
	EXIT_INTERRUPTED = 130,
};

struct role_text {
	const char *all;
	const char *role[5]; /* by ORCH_ROLE_* */
};

struct options {
	const char *idea, *idea_file;
	const char *repo, *base;
	struct role_text executor, model;
	const char *executor_cmd;
	const char *provider, *base_url, *key_file;
	double max_usd;
	uint64_t max_tokens, max_time_s;
	uint32_t jobs, max_attempts;
	const char *isolation, *state, *answers, *scenario, *net, *policy;
	const char *grants[8];
	size_t grant_count;
	const char *claude, *codex;
	bool yes, json, no_review;
	uint64_t crash_at; /* for fault tests: SIGKILL ourselves after so many journal records */
	int port;
	/* journal */
	const char *journal, *anchor, *only, *kind, *by, *note;
	uint32_t limit;
	bool newest, records, replace;
	const char *operands[4]; /* of it: what stands between the options */
	uint64_t given;          /* which options: option_outside() */
	const char **rest; /* after "--" or the positional arguments */
	int rest_count;
};

/* options.c: prints what is wrong and returns false. */
bool options_parse(int argc, char **argv, struct options *options);
/* One that was given and is none of `names`, or NULL. */
const char *option_outside(const struct options *options, const char *const *names);
uint32_t role_number(const char *name, size_t length);

/* main.c */
/* Prints "orch-demo: WHAT: message" and what to do; frees the error; returns the exit code for it. */
int fail(const char *what, orch_error *error);
int fail_text(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));
orch_ctx *demo_ctx(void);
/* NAME relative to this program's folder; the caller frees; NULL if it is not there. */
char *find_beside(const char *name);
/* A data file of the source tree, or of the installation if this program is installed. The caller frees. */
char *data_path(const char *in_source_tree, const char *installed);
char *format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The whole file, NUL-terminated; NULL with errno. */
char *read_file(const char *path, size_t limit, size_t *ret_length);
bool write_file(const char *path, const char *text);

/* state.c */
/* The run's folder: --state, or a new one (or with `existing` the newest) under XDG_STATE_HOME. */
char *state_folder(const struct options *options, bool existing);
/* Where the anchor of that run is: never inside the folder. */
char *anchor_path(const char *state);

/* What a run needs again when it is resumed, kept in STATE/demo.json. */
struct setup {
	char *provider, *base_url, *api; /* api: "anthropic" or "openai" */
	char *scenario;                  /* folder; NULL with a real provider */
	int port;                        /* of the synthetic provider */
	json_t *config;                  /* executors, models, grants: as written to demo.json */
};

/* setup.c */
int setup_new(const struct options *options, struct setup *setup, char **ret_idea);
int setup_load(const char *state, const struct options *options, struct setup *setup);
/* Starts the synthetic provider if the setup has one, makes executors, upstreams, grants. */
int setup_apply(struct setup *setup, const struct options *options, const char *state, orch_ctx *ctx,
		orch_pipeline *pipeline, orch_scope **ret_provider_scope);
/* The idea, and into `options` what else a new run was asked for. NULL: it is not known. Borrowed from the setup. */
const char *setup_first_options(const struct setup *setup, struct options *options);
/* "mini, synthetic (shelf), model synthetic, process isolation, cap: none" */
char *setup_describe(const struct setup *setup, const struct options *options);
void setup_free(struct setup *setup);

/* progress.c: shows events for people. */
struct progress;
struct progress *progress_new(bool json);
void progress_event(struct progress *progress, const char *json);
/* Redraws the live line, if there is a terminal. */
void progress_tick(struct progress *progress);
struct progress *progress_free(struct progress *progress);

/* control.c */
struct control;
struct control *control_new(const char *state, orch_pipeline *pipeline);
int control_fds(const struct control *control, int *fds, int limit);
void control_process(struct control *control, bool *ret_stop);
struct control *control_free(struct control *control);
/* Asks the living instance. NULL if none answers. The caller frees. */
char *control_ask(const char *state, const char *request);

int command_exec(const struct options *options);
int command_doctor(const struct options *options);
int command_tour(const struct options *options);
int command_run(const struct options *options, bool resume);
int command_status(const struct options *options);
int command_answer(const struct options *options);
int command_stop(const struct options *options);
int command_report(const struct options *options);
int command_serve(const struct options *options);
int command_journal(const struct options *options);

/* journal-show.c: actions for people and programs. */
/* Control characters become \xHH: a name must not forge lines or talk to a terminal. The caller frees. */
char *shown(const char *text);
/* A line for people, or one of JSON. */
void show_action_line(orch_action *action, bool json);
/* All of it, with its history. */
int show_action(orch_journal *journal, orch_action *action, bool json);
void print_json(json_t *object);

#endif
