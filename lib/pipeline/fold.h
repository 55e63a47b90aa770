/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_FOLD_H
#define ORCH_FOLD_H

/*
 * The model of a run: what its journal's records say, and nothing else. fold_record() is the only
 *thing that changes it, live and after a restart alike. No I/O, no clock.
 *
 * Records (kind, key, members besides time_ms):
 *	run.intake    run/intake           run idea repo base_rev jobs max_attempts review budgets
 *answer_timeout_ms description grants run.instance  run/instance/GEN     generation resumed, and
 *the budgets that are set anew run.channels  run/channels         channels run.base      run/base
 *tree repo_tree commit deaths note run.state     run/state/STATE      state reason run.overlay
 *run/overlay/SEQ      overlay on reason resets_at_ms run.stop      run/stop             reason a
 *person's stop: ABORTED run.close     run/close            reason abort now     no new attempts:
 *PARTIAL, or ABORTED run.answers   run/answers/SEQ      json, or accept      answers that came
 *before their questions recovery      recovery/GEN         rows answer        answer/SEQ answers
 *{ID: {text, by}} seal          seal/DOCUMENT        document sha256 files attempt, and questions,
 *requirements, checks or tasks attempt       ATTEMPT/RUNNING      id role stage task attempt tree
 *	death         ATTEMPT/DEATH        role stage task attempt end status message verdict
 *certificate requests tokens micro_usd attempt       ATTEMPT/END          role stage task attempt
 *end message out tree refused judgement     ATTEMPT/JUDGED       role stage task attempt accepted
 *evidence task.state    task/T/attempt/N/S   task attempt state reason base tree evidence verify
 *verify/PURPOSE/T/N/H purpose task attempt tree all_passed error results certificates review
 *review/T/N           task attempt veto reasons merge         merge/T              task attempt
 *tree onto verify owntests      owntests/WHICH/H     which tree status tests output certificate
 *	accept        run/accept           tree product_tree requirements reason
 *	delivery      run/delivery         commit branch tree path deaths
 * with ATTEMPT = attempt/ROLE-STAGE-TASK/N.
 */

#include <jansson.h>

#include <orch/pipeline.h>

#include "../core/core-private.h"

#define TASK_PENDING 1u
#define TASK_READY 2u
#define TASK_LEASED 3u
#define TASK_RUNNING 4u
#define TASK_SUBMITTED 5u
#define TASK_VERIFYING 6u
#define TASK_VERIFIED 7u
#define TASK_MERGED 8u
#define TASK_STALLED 9u
#define TASK_REJECTED 10u
#define TASK_CONFLICT 11u
#define TASK_BLOCKED 12u

struct model_task {
	char *id, *title;
	json_t *requirements; /* array of ids */
	uint32_t state;
	uint32_t attempt;    /* number of the attempt that was leased last */
	uint32_t rejections; /* STALLED ones included */
	uint32_t conflicts;
	char *base; /* the tree that attempt started from */
	char *tree; /* what it submitted */
	char *reason;
	json_t *evidence; /* for the next attempt; NULL: none */
	int64_t time_ms;  /* of the last transition */
};

struct model {
	/* intake */
	char *run, *idea, *repo, *base_rev, *description;
	uint32_t jobs, max_attempts;
	bool review;
	uint64_t max_requests, max_tokens, max_micro_usd, max_seconds;
	int64_t answer_timeout_ms;
	json_t *grants; /* array */

	uint32_t state;	   /* ORCH_RUN_*; 0: no intake yet */
	uint32_t overlays; /* ORCH_OVERLAY_* */
	char *reason;	   /* of the end */
	char *stop;	   /* a person's reason */
	char *close;	   /* why no new attempts are made */
	bool close_abort, close_now;
	int64_t started_ms, ended_ms;
	int64_t quota_until_ms;
	int64_t questions_ms; /* when the questions were there */
	/* Time in which an instance lived, the present one up to its last record. */
	int64_t active_ms, instance_first_ms, last_ms;
	uint64_t records;

	char *base_tree, *repo_tree, *base_commit, *main_tree;
	json_t *channels; /* array or NULL */
	json_t *recovery; /* array of rows */
	json_t *seals;	  /* object: document -> the record */
	json_t *early;	  /* array of run.answers records */
	json_t *answers;  /* object: id -> {text, by} */
	json_t *attempts; /* array, in order of their start: members of RUNNING, DEATH, END, JUDGED
			     in one object */
	json_t *verifications; /* array of records */
	json_t *reviews;       /* array of records */
	json_t *merges;	       /* array of records */
	json_t *owntests;      /* array of records */
	json_t *accept;	       /* record or NULL */
	json_t *delivery;      /* record or NULL */
	struct model_task *tasks;
	size_t task_count;
};

int32_t model_new(struct model **ret_model, orch_error **reterr);
struct model *model_free(struct model *model);

/*
 * Applies one record. ORCH_ECORRUPT: it is malformed, or not possible in this state (the model is
 * unchanged then). A kind that is not the pipeline's own is ignored.
 */
int32_t fold_record(struct model *model, const char *kind, const char *key, const void *payload,
		    size_t length, orch_error **reterr);

const char *task_state_name(uint32_t state);
/* 0 for an unknown name. */
uint32_t task_state_by_name(const char *name);
bool task_may_change(uint32_t from, uint32_t to);
uint32_t run_state_by_name(const char *name);
bool run_may_change(uint32_t from, uint32_t to);
bool run_is_over(uint32_t state);
const char *overlay_name(uint32_t overlay);

struct model_task *model_find_task(const struct model *model, const char *id);
/* Attempt `number` (0: the last) at that role, stage and task; borrowed; NULL: none. */
json_t *model_attempt(const struct model *model, const char *role, const char *stage,
		      const char *task, uint32_t number);
/* How many were judged and not accepted. */
uint32_t model_rejections(const struct model *model, const char *role, const char *stage,
			  const char *task);
/* The last verification of that kind; attempt 0 and tree NULL: any. Borrowed; NULL: none. */
json_t *model_verification(const struct model *model, const char *purpose, const char *task,
			   uint32_t attempt, const char *tree);
json_t *model_seal(const struct model *model, const char *document);
/* True if every sealed question has an answer. */
bool model_answered(const struct model *model);
/* Ends that say nothing about the work: the attempt is not counted. */
bool end_is_uncounted(const char *end);

/* --- small JSON helpers ---------------------------------------------------------------------- */

/* "" for a missing member. */
const char *json_text(const json_t *object, const char *member);
int64_t json_int(const json_t *object, const char *member);
bool json_bool(const json_t *object, const char *member);

#endif
