/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_PIPELINE_PRIVATE_H
#define ORCH_PIPELINE_PRIVATE_H

/*
 * The state machine of a run. After anything that happened, pipeline_schedule() asks for one step;
 *a step looks at the model (fold.h) and at what is in flight, and starts what is due. So a run that
 *is resumed goes the same way as one that never stopped: nothing is decided in a callback but what
 *to record.
 *
 *	pipeline.c  the handle, options, the public calls
 *	start.c     what comes before the first step: state folder, journal, intake, recovery
 *	store.c     the journal's records, written and folded in one place
 *	events.c    records as events for the host
 *	step.c      one step; budgets, deadlines, quota, stop
 *	stage.c     clarify, specify, check, plan
 *	task.c      the tasks, from PENDING to MERGED
 *	attempt.c   one executor in one sandbox
 *	workspace.c an attempt's folders: laid out before, imported after
 *	packet.c    what a role is told
 *	judge.c     verifications and their records
 *	seal.c      sealed documents
 *	earlier.c   what an existing repository brings along, and .orch in the delivered one
 *	owntests.c  the tests that an existing repository has
 *	finish.c    accept, deliver, end
 *	summary.c   the report's model
 *	invariants.c what must hold of every run, checked
 *	status.c    the status as JSON
 */

#include "deliver.h"
#include "document.h"
#include "fold.h"
#include "tree.h"
#include "verify.h"

#define NO_TASK "-"

#define DEFAULT_JOBS 2u
#define DEFAULT_ATTEMPTS 3u
#define IDEA_LIMIT (1024u * 1024u)

struct attempt;
struct judgement;
struct own_tests;
struct event_line;

struct orch_pipeline {
	atomic_uint references;
	orch_ctx *ctx;
	uint32_t flags;

	/* As given; the run's own are in the model once it is taken in. */
	char *idea, *repo_dir, *base_rev, *description;
	uint32_t jobs, max_attempts;
	uint64_t max_requests, max_tokens, max_micro_usd, max_seconds;
	int64_t answer_timeout_ms;

	char *state_dir, *schema_dir;
	char *trees_dir, *sealed_dir, *work_dir, *attempts_dir, *report_dir, *product_dir,
		*staging_dir;
	char *report_path; /* of report.html; NULL: none yet */
	char *product_path;

	orch_journal *journal;
	orch_broker *broker;
	orch_executor
		*executors[ORCH_ROLE_REVIEWER + 1]; /* 0: for roles that have none of their own */
	json_t *grants; /* given to this instance, as in the intake record */
	struct model *model;

	/* Parsed from the sealed files. */
	struct questions *questions;
	struct spec *spec;
	struct checks *checks;
	struct plan *plan;
	/* From .orch of the repository the run began with; NULL: none. */
	struct spec *earlier_spec;
	struct checks *earlier_checks;
	char *earlier_dir;
	char *earlier_note; /* why there are none, if .orch is there */

	orch_pipeline_event_fn event;
	void *event_userdata;
	orch_destroy_fn event_destroy;
	/* Until the journal is asked to open: then it is the journal's. */
	orch_destroy_fn on_record_destroy;
	void *on_record_userdata;
	struct event_line *events, **events_end;
	orch_source *event_timer;

	orch_source *step_timer;      /* at once */
	orch_source *wake_timer;      /* the next deadline */
	struct attempt *attempts;     /* in flight */
	struct judgement *judgements; /* in flight */
	struct own_tests *own_tests;
	struct git_job *git;
	char *product_tree; /* what is accepted and delivered: the merged tree with .orch */
	struct delivery_commit *commits; /* of the delivery under way */
	size_t commit_count;
	char *branch;
	char *integrating; /* id of the task that is being merged: one at a time */

	json_t *early_answers; /* array of answer documents that came before their questions */
	bool accept_recommended;
	bool started, resumed;
	bool waits_for_person; /* nobody will answer by a deadline */
	bool over;	       /* the end was told */
	int64_t not_before_us; /* no new attempt before */
	int64_t wake_at_us;    /* of wake_timer */
	orch_error *failure;   /* the instance can not go on; the run can be resumed */
};

/* --- pipeline.c ------------------------------------------------------------------------------ */

/* The instance can not go on: everything in flight is killed, orch_pipeline_run() gives the error.
 * Takes it over. */
void pipeline_fail(orch_pipeline *p, orch_error *error);
/* One step in the loop's next turn. */
void pipeline_schedule(orch_pipeline *p);
orch_executor *pipeline_executor(const orch_pipeline *p, uint32_t role);
const char *role_name(uint32_t role);

/* --- start.c --------------------------------------------------------------------------------- */

/* Paths, state folder, journal, model, broker. */
int32_t start_open(orch_pipeline *p, const struct orch_pipeline_opts *opts, orch_error **reterr);
/* Intake or recovery. Waits for live probes. */
int32_t start_run(orch_pipeline *p, orch_error **reterr);
json_t *grant_json(const struct orch_grant_opts *grant);
/* The grant for an operation type that the user allowed, or NULL. Borrowed. */
json_t *pipeline_grant(const orch_pipeline *p, const char *operation);
/* DIR/NAME; NULL without memory. */
char *path_join(const char *dir, const char *name);

/* --- store.c --------------------------------------------------------------------------------- */

/* Writes one record (the payload is taken over; time_ms is added), folds it, tells the host. */
int32_t run_record(orch_pipeline *p, const char *kind, json_t *payload, orch_error **reterr,
		   const char *key_format, ...) __attribute__((format(printf, 5, 6)));
/* The same for callbacks: a failure ends the instance, and gives false. */
bool run_store(orch_pipeline *p, const char *kind, json_t *payload, const char *key_format, ...)
	__attribute__((format(printf, 4, 5)));
/* All records of the journal into `model`. */
int32_t run_load(orch_journal *journal, struct model *model, orch_error **reterr);
bool run_overlay(orch_pipeline *p, uint32_t overlay, bool on, const char *reason,
		 int64_t resets_at_ms);
bool run_enter(orch_pipeline *p, uint32_t state, const char *reason);
bool run_close(orch_pipeline *p, bool abort_run, bool now, const char *reason);
/* What calls of AI providers cost according to the journal: sums, and the dearest single call. */
struct spending {
	uint64_t requests, tokens, micro_usd;
	uint64_t largest_tokens, largest_micro_usd;
};
int32_t run_spending(orch_journal *journal, struct spending *ret_spending, orch_error **reterr);
/* Text of foreign origin as a JSON string: valid UTF-8, no control characters, at most `limit`
 * bytes. */
json_t *json_foreign(const char *text, size_t limit);
void sha256_hex(const void *bytes, size_t length, char ret_hex[TREE_HASH_SIZE]);

/* --- events.c -------------------------------------------------------------------------------- */

/* Takes the object over, adds time_ms, tells the host in the loop. */
void event_emit(orch_pipeline *p, json_t *event);
/* What the host is told of a record. */
void event_of_record(orch_pipeline *p, const char *kind, const json_t *record);
void events_free(orch_pipeline *p);
/* Calls the host for each queued event. In the loop only. */
void events_flush(void *userdata);

/* --- step.c ---------------------------------------------------------------------------------- */

void step_once(void *userdata);
bool step_may_start_attempt(const orch_pipeline *p);
/* Wakes the next step at the latest in so many ms. */
void step_wake_in(orch_pipeline *p, int64_t delay_ms);
void step_on_operation(void *userdata, orch_principal *principal, const char *operation,
		       uint32_t event, const char *code, int32_t http_status,
		       int64_t quota_resets_at_ms);

/* --- stage.c --------------------------------------------------------------------------------- */

void stage_clarify(orch_pipeline *p);
void stage_frozen(orch_pipeline *p);
/* Records the answers of a document that was checked; missing ones take the recommendation. */
int32_t stage_answer(orch_pipeline *p, const char *json, size_t length, orch_error **reterr);
int32_t stage_accept_recommended(orch_pipeline *p, const char *by, orch_error **reterr);

/* --- task.c ---------------------------------------------------------------------------------- */

void task_step(orch_pipeline *p);
const struct task_plan *task_of_plan(const orch_pipeline *p, const char *id);
/* Ids of the checks of the task's requirements and of all that are merged in `base`. The caller
 * frees the array. */
char **task_check_ids(const orch_pipeline *p, const char *task, const char *base);

/* --- attempt.c ------------------------------------------------------------------------------- */

/* Records and starts the next attempt there; `tree` is what it finds in /work/tree. */
bool attempt_start(orch_pipeline *p, uint32_t role, const char *stage, const char *task,
		   const char *tree);
bool attempt_in_flight(const orch_pipeline *p, const char *stage, const char *task);
size_t attempt_count(const orch_pipeline *p);
/* Ends it with its certificate; `end` is a word such as "STOPPED". */
void attempt_kill_all(orch_pipeline *p, const char *end, const char *message);
void attempt_operation(orch_pipeline *p, orch_principal *principal, const char *operation,
		       uint32_t event, const char *code, int32_t http_status,
		       int64_t quota_resets_at_ms);
/* Gives an end to attempts that an earlier instance left without. */
int32_t attempt_recover(orch_pipeline *p, orch_error **reterr);
/* Drops all without waiting: their load dies with their sandboxes. */
void attempt_drop_all(orch_pipeline *p);

/* --- workspace.c ----------------------------------------------------------------------------- */

struct workspace {
	char *dir;    /* /work */
	char *in_dir; /* /in */
};
/* `attempt` is the record of its start. */
int32_t workspace_make(orch_pipeline *p, const json_t *attempt, const char *packet,
		       struct workspace *ret_workspace, orch_error **reterr);
/* Adds out, tree or refused to the record of the attempt's end. Idempotent. */
int32_t workspace_import(orch_pipeline *p, const json_t *attempt, json_t *record,
			 orch_error **reterr);
void workspace_remove(orch_pipeline *p, const char *id);
/* ORCH_ENOSPC: the state folder's disk is as good as full. */
int32_t workspace_check_room(const orch_pipeline *p, orch_error **reterr);
/* A file that a role left in /work/out. */
int32_t workspace_answer(orch_pipeline *p, const json_t *attempt, const char *name,
			 void **ret_bytes, size_t *ret_length, orch_error **reterr);
/* mkdir with exactly that mode, whatever the umask; an existing folder is fine. */
int32_t make_dir(const char *path, uint32_t mode, orch_error **reterr);

/* --- packet.c -------------------------------------------------------------------------------- */

/* The prompt of an attempt; the caller frees. */
int32_t packet_text(orch_pipeline *p, const json_t *attempt, char **ret_text, orch_error **reterr);
/* What the last attempt there is to be told to the next: borrowed, NULL: nothing. */
json_t *packet_evidence(const orch_pipeline *p, const char *role, const char *stage,
			const char *task);

/* --- judge.c --------------------------------------------------------------------------------- */

struct judge_set {
	const struct spec *spec;
	const struct checks *checks;
	const char *sealed_dir;
	char *const *check_ids; /* NULL: all */
	bool earlier;
};
/*
 * Verifies `tree` with one set of checks after the other and records the outcome. `candidate`:
 * checks that are not sealed yet, taken over. A verification of the same purpose, task and tree
 * that is in flight is left alone.
 */
void judge_start(orch_pipeline *p, const char *purpose, const char *task, uint32_t attempt,
		 const char *tree, const struct judge_set *sets, size_t set_count, bool stub,
		 struct checks *candidate);
bool judge_in_flight(const orch_pipeline *p, const char *purpose, const char *task);
void judge_drop_all(orch_pipeline *p);
/* The sets for a tree of the product: `ids` of the run's own checks, and the earlier ones. */
size_t judge_sets(const orch_pipeline *p, char *const *ids, struct judge_set sets[2],
		  char ***ret_earlier_ids);
/* What a role may know of a failed verification; `hidden`: hidden checks by name. New array. */
json_t *judge_evidence(const json_t *verification, bool hidden);

/* --- seal.c ---------------------------------------------------------------------------------- */

int32_t seal_questions(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		       const struct questions *questions, orch_error **reterr);
int32_t seal_spec(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		  struct spec *spec, orch_error **reterr);
int32_t seal_checks(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		    struct checks *checks, orch_error **reterr);
int32_t seal_plan(orch_pipeline *p, const json_t *attempt, const void *bytes, size_t length,
		  struct plan *plan, orch_error **reterr);
/* ORCH_ECORRUPT: a sealed file is not what was sealed. */
int32_t seal_check(orch_pipeline *p, orch_error **reterr);
/* Parses what is sealed. */
int32_t seal_load(orch_pipeline *p, orch_error **reterr);

/* --- earlier.c ------------------------------------------------------------------------------- */

#define ORCH_FOLDER ".orch"
/* `tree` without .orch. */
int32_t earlier_strip(orch_pipeline *p, const char *tree, char ret_hash[TREE_HASH_SIZE],
		      orch_error **reterr);
int32_t earlier_load(orch_pipeline *p, orch_error **reterr);
/* `tree` with .orch as the repository had it. */
int32_t earlier_restore(orch_pipeline *p, const char *tree, char ret_hash[TREE_HASH_SIZE],
			orch_error **reterr);
/* `tree` with .orch of this run: earlier and new documents in one. */
int32_t earlier_compose(orch_pipeline *p, const char *tree, char ret_hash[TREE_HASH_SIZE],
			orch_error **reterr);
/* Ids of earlier checks that passed on the base tree; the caller frees the array. NULL: none. */
char **earlier_required(const orch_pipeline *p);
/* True if the base tree has tests of its own that can be run. */
bool own_tests_there(const orch_pipeline *p);
/* Runs the repository's own tests as they were on the base tree against `tree`; records "owntests".
 */
void own_tests_start(orch_pipeline *p, const char *which, const char *tree);
void own_tests_drop(orch_pipeline *p);
json_t *own_tests_result(const orch_pipeline *p, const char *which, const char *tree);

/* --- finish.c -------------------------------------------------------------------------------- */

void finish_accepting(orch_pipeline *p);
/* The run is over: report, last event. */
void finish_end(orch_pipeline *p);
void finish_free_delivery(orch_pipeline *p);
/* True if a requirement is in the list of those that were accepted. */
bool finish_is_accepted(const orch_pipeline *p, const char *requirement);

/* --- summary.c ------------------------------------------------------------------------------- */

/* The report's model (report.h), from records, the journal and files. */
int32_t summary_report(orch_pipeline *p, json_t **ret_report, orch_error **reterr);

/* --- invariants.c ---------------------------------------------------------------------------- */

/* Checked against records, journal and files: new array of {name, holds, detail}. */
json_t *invariants_check(orch_pipeline *p);

/* --- status.c -------------------------------------------------------------------------------- */

int32_t status_json(const struct model *model, orch_journal *journal, char **ret_json,
		    orch_error **reterr);

#endif
