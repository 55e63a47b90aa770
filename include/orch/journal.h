/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_JOURNAL_H
#define ORCH_JOURNAL_H

/*
 * orch_journal: a durable record of actions that tells "intended", "dispatched", "observed" and
 * "confirmed" apart. Waiting calls need no context and no event loop, and are durable when they return; callback
 * forms (*_async) return at once, and their callback comes in the context when the record is durable.
 *
 * Any number of threads may use one journal: what they ask for at the same time goes into one commit. One
 * orch_action is used by one thread at a time. One coordinator owns a journal; a second one is refused.
 *
 * Files: PATH (SQLite), PATH-wal beside it while it is open or after a kill (they belong together), PATH.lock
 * (never removed; says who holds it), PATH.reserve (1 MiB kept back for a full disk), and the anchor. Backups and
 * restorations add PATH.new, PATH.restored and PATH.replaced-EPOCH-SEQUENCE: see orch_journal_restore().
 */

#include <orch/ctx.h>
#include <orch/error.h>

ORCH_BEGIN_DECLS

typedef struct orch_journal orch_journal;
typedef struct orch_action orch_action;
typedef struct orch_recovery orch_recovery;
typedef struct orch_probe_reply orch_probe_reply;
typedef struct orch_record orch_record;
typedef struct orch_watch orch_watch;
typedef struct orch_restoration orch_restoration;

#define ORCH_ACTION_INTENT 1u
#define ORCH_ACTION_DISPATCHED 2u
#define ORCH_ACTION_OBSERVED 3u
#define ORCH_ACTION_CONFIRMED 4u
#define ORCH_ACTION_FAILED 5u      /* known not to have happened */
#define ORCH_ACTION_UNKNOWN 6u     /* nobody can tell: no blind retry */
#define ORCH_ACTION_HANDED_OVER 7u /* a person decides */
#define ORCH_ACTION_ABANDONED 8u

#define ORCH_POLICY_REPEATABLE 1u   /* may be done again without asking */
#define ORCH_POLICY_PROBE_FIRST 2u  /* may be done again only if a probe says it was not applied */
#define ORCH_POLICY_NEVER_REPEAT 3u /* as PROBE_FIRST, and UNKNOWN goes to a person, never to a retry */

/* What begin found under the idempotency key. */
#define ORCH_BEGIN_FRESH 1u     /* new, or known not applied (FAILED, an earlier INTENT): dispatch it */
#define ORCH_BEGIN_REPLAY 2u    /* OBSERVED or CONFIRMED: the recorded result is in the action */
#define ORCH_BEGIN_ATTACHED 3u  /* in flight in this very process: wait for that one */
#define ORCH_BEGIN_AMBIGUOUS 4u /* dispatched earlier, UNKNOWN, HANDED_OVER or ABANDONED: do not dispatch */
#define ORCH_BEGIN_CONFLICT 5u  /* same key, other kind or fingerprint: refused */

struct orch_journal_opts {
	uint32_t size;
	uint32_t flags;             /* ORCH_JOURNAL_* */
	const char *path;           /* the database; its lock file is path + ".lock" */
	/*
	 * A small file outside the journal's folder that knows how far the journal got, so that an older copy put
	 * back is noticed. It follows every record, but is synced only at open, at close and every 256 records: a
	 * kill takes nothing from it, a power loss at most its last 256 records. NULL: no anchor.
	 */
	const char *anchor_path;
	uint64_t payload_limit;     /* bytes of a request or result; 0: 1 MiB; at most 256 MiB */
	/*
	 * Called once for each record after it became durable, in the order of the sequence numbers and never twice at
	 * the same time: by a waiting call on its thread before it returns, for a callback form in the context before
	 * its callback. Whoever is told first does it for the records before its own as well; closing does it for
	 * those that nobody was told of. It must not call the library. For fault tests and for progress.
	 */
	void (*on_record)(void *userdata, uint64_t sequence);
	void *userdata;
	orch_destroy_fn destroy;
};

/*
 * Read what a dead coordinator wrote, without owning it: nothing is ever written beside the journal. The files
 * are copied to a private folder under TMPDIR, or /tmp, and read there, as they were at that moment.
 */
#define ORCH_JOURNAL_READ_ONLY 1u

ORCH_API void orch_journal_opts_init(struct orch_journal_opts *opts, uint32_t size);

/*
 * Opens or creates. A writer registers a new generation before anything else. A journal of an older schema is brought
 * up in the same commit; READ_ONLY does it in its copy.
 *
 * ORCH_ELOCKED: another coordinator owns it (the message names it); ORCH_ESCHEMA: written by a newer
 * version; ORCH_ENETFS: on NFS, SMB, 9P, FUSE and the like; ORCH_ECORRUPT: not a journal, or damaged, or
 * older than its anchor says, or a backup that orch_journal_restore() was not run on, or missing after a restoration
 * that was interrupted; ORCH_ENOENT (read-only, or folder missing); ORCH_ESYS; ORCH_ENOSPC;
 * ORCH_EPOISONED: the registration's commit failed; ORCH_EINVAL (also: the anchor is inside the journal's
 * folder, the file has hard links); ORCH_E2BIG; ORCH_ENOMEM. In each case but ORCH_EPOISONED the file is
 * untouched; its anchor may have been written again, with the point that it had or the journal's own. READ_ONLY opens
 * while a coordinator lives give ORCH_ELOCKED as well.
 * Since 0.1.
 */
ORCH_API int32_t orch_journal_open(const struct orch_journal_opts *opts, orch_journal **ret_journal,
				   orch_error **reterr);
ORCH_API orch_journal *orch_journal_ref(orch_journal *journal);
/* In a forked child neither SQLite nor a lock is touched. Since 0.1. */
ORCH_API orch_journal *orch_journal_unref(orch_journal *journal);
/* This coordinator's generation: rises by at least 1 at each open for writing, by 2^32 at a restore. Since 0.1. */
ORCH_API uint64_t orch_journal_generation(const orch_journal *journal);
/* Sequence number of the last durable record. Since 0.1. */
ORCH_API uint64_t orch_journal_sequence(const orch_journal *journal);
/* 1 for a journal that was never restored; each orch_journal_restore() starts the next one. Since 0.1. */
ORCH_API uint64_t orch_journal_epoch(const orch_journal *journal);

struct orch_action_opts {
	uint32_t size;
	uint32_t flags;
	const char *kind;           /* "notify.send"; 1..63 of [a-z0-9._-] */
	const char *key;            /* idempotency key, unique in the journal; 1..255 bytes, UTF-8 */
	uint32_t policy;            /* ORCH_POLICY_*; 0: ORCH_POLICY_NEVER_REPEAT; the first one stays */
	uint32_t reserved;
	const void *request;        /* payload; copied */
	size_t request_length;
	const void *fingerprint;    /* what makes two requests the same; NULL: SHA-256 of kind and request */
	size_t fingerprint_length;  /* at most 64 */
	/*
	 * Name of a permit (orch/permit.h) that a FRESH outcome uses up in the same transaction; a further attempt goes on
	 * under the one that its action has. NULL: none is needed.
	 */
	const char *permit;
};

ORCH_API void orch_action_opts_init(struct orch_action_opts *opts, uint32_t size);

/*
 * Records an intent, or finds what is recorded under the key; one transaction. `ret_action` is set for
 * every outcome but CONFLICT. FRESH on what is recorded already, FAILED or the INTENT of an earlier generation, is
 * its next attempt: orch_action_attempt() is 1 higher, and the handles of the attempt before can move it no more.
 *
 * 0 with an outcome. ORCH_ECONFLICT comes with outcome CONFLICT; ORCH_ETOOBIG: payload over the limit,
 * nothing recorded; ORCH_EPERMIT: the outcome would be FRESH, and the permit is missing, used by another
 * action, expired, revoked, void, or for another kind or request: no intent is recorded (that the permit was found
 * expired is); ORCH_EPOISONED: this
 * or an earlier commit failed, or the files were taken away: reopen; ORCH_ENOSPC: nothing recorded, the handle
 * is well; ORCH_EFORKED; ORCH_ESTATE: read-only; ORCH_EINVAL; ORCH_ECORRUPT; ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_journal_begin(orch_journal *journal, const struct orch_action_opts *opts,
				    uint32_t *ret_outcome, orch_action **ret_action,
				    orch_error **reterr);
/*
 * Records something whose record is the whole effect (a transition of the caller's own state): one commit,
 * straight to CONFIRMED. A key that exists with the same fingerprint gives 0 and changes nothing
 * (`ret_fresh` 0); another fingerprint gives ORCH_ECONFLICT. Errors as for begin. Since 0.1.
 */
ORCH_API int32_t orch_journal_record(orch_journal *journal, const char *kind, const char *key,
				     const void *payload, size_t payload_length, int32_t *ret_fresh,
				     orch_error **reterr);

/*
 * The callback forms. The request is copied, put into the queue of the journal's own thread (started by the
 * first of them) and answered in `ctx` once, after the commit that holds it. What is queued at the same time shares
 * a commit; the order of one thread's calls is kept. Any thread may call them, also one that does not run the
 * context. The journal and the context have to be kept until the callback came: dropping the last reference on the
 * journal commits what is queued, and those callbacks do not come any more (`destroy` does). If the context goes
 * first, what is queued is committed as well and no callback comes; `destroy` runs then, or when the journal goes.
 *
 * `error` NULL: recorded. Otherwise as the waiting form's, borrowed. `action` is borrowed: ref it to keep it;
 * NULL where the waiting form sets none.
 *
 * Errors of the call itself, where no callback comes: ORCH_EINVAL, ORCH_ETOOBIG, ORCH_EPOISONED, ORCH_EFORKED,
 * ORCH_ESTATE: read-only; ORCH_ESYS: the thread could not be started; ORCH_ENOMEM. Since 0.1.
 */
typedef void (*orch_begin_fn)(void *userdata, uint32_t outcome, orch_action *action,
			      const orch_error *error);
ORCH_API int32_t orch_journal_begin_async(orch_journal *journal, orch_ctx *ctx,
					  const struct orch_action_opts *opts, orch_begin_fn fn,
					  void *userdata, orch_destroy_fn destroy, orch_error **reterr);
/* `fresh` as `ret_fresh` of orch_journal_record(). */
typedef void (*orch_recorded_fn)(void *userdata, int32_t fresh, const orch_error *error);
/* See orch_journal_begin_async(). Since 0.1. */
ORCH_API int32_t orch_journal_record_async(orch_journal *journal, orch_ctx *ctx, const char *kind,
					   const char *key, const void *payload, size_t payload_length,
					   orch_recorded_fn fn, void *userdata, orch_destroy_fn destroy,
					   orch_error **reterr);

ORCH_API orch_action *orch_action_ref(orch_action *action);
ORCH_API orch_action *orch_action_unref(orch_action *action);

/*
 * The transitions. Each is one durable commit with a compare on state, generation, attempt and last record:
 * when another transition was first the call gives ORCH_ESTATE and changes nothing (the first observation
 * wins), and the handle keeps what it knew: look the action up again. The same where the action was pruned, or
 * came back to this state since.
 *
 *   dispatch   from INTENT
 *   observe    from DISPATCHED, UNKNOWN (a late answer), HANDED_OVER (a person found out)
 *   confirm    from OBSERVED
 *   fail       from INTENT, DISPATCHED, UNKNOWN, HANDED_OVER
 *   unknown    from DISPATCHED
 *   hand_over  from INTENT, DISPATCHED, UNKNOWN, FAILED
 *   abandon    from INTENT, DISPATCHED, UNKNOWN, FAILED, HANDED_OVER
 *
 * Payloads may be NULL with length 0. One over payload_limit, or with too little room left on the disk, is cut
 * and still counts: the call gives 0 and the result reads "sha256:HEX bytes:N". On a full disk dispatch gives
 * ORCH_ENOSPC and the others use the 1 MiB kept back. Errors besides: ORCH_EPOISONED, ORCH_EFORKED,
 * ORCH_EINVAL, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_action_dispatch(orch_action *action, orch_error **reterr);
ORCH_API int32_t orch_action_observe(orch_action *action, const void *result, size_t length,
				     orch_error **reterr);
ORCH_API int32_t orch_action_confirm(orch_action *action, orch_error **reterr);
/* Known not to have happened: a later begin is FRESH again, with attempt + 1. Since 0.1. */
ORCH_API int32_t orch_action_fail(orch_action *action, const void *reason, size_t length,
				  orch_error **reterr);
ORCH_API int32_t orch_action_unknown(orch_action *action, const void *reason, size_t length,
				     orch_error **reterr);
ORCH_API int32_t orch_action_hand_over(orch_action *action, const void *reason, size_t length,
				       orch_error **reterr);
ORCH_API int32_t orch_action_abandon(orch_action *action, const void *reason, size_t length,
				     orch_error **reterr);

typedef void (*orch_move_fn)(void *userdata, orch_action *action, const orch_error *error);
/*
 * The callback form of all of them: `state` is the ORCH_ACTION_* to reach; a payload with DISPATCHED or
 * CONFIRMED is ORCH_EINVAL. Until the callback came another move of the same handle gives ORCH_EBUSY, and its getters
 * tell what was before. The queued move keeps the action, but not the journal. A state that cannot be reached from
 * the action's is told in the callback (ORCH_ESTATE). Else as orch_journal_begin_async(). Since 0.1.
 */
ORCH_API int32_t orch_action_move_async(orch_action *action, orch_ctx *ctx, uint32_t state,
					const void *payload, size_t length, orch_move_fn fn,
					void *userdata, orch_destroy_fn destroy, orch_error **reterr);

#define ORCH_DECISION_APPLIED 1u     /* it happened: OBSERVED, then CONFIRMED, with the note as result */
#define ORCH_DECISION_NOT_APPLIED 2u /* it did not happen: FAILED, and it may be begun again */
#define ORCH_DECISION_ABANDON 3u     /* nobody will find out, and it is not wanted any more: ABANDONED */

/*
 * What a person found out about an action in HANDED_OVER or UNKNOWN. The decision, who took it and the note
 * stay in the journal, in the same commit as the transition. `by`: 1..255 bytes, UTF-8. The note may be empty; it
 * becomes the result of the action.
 *
 * ORCH_ESTATE: in another state, or another transition was first; ORCH_EINVAL; otherwise as the transitions.
 * Since 0.1.
 */
ORCH_API int32_t orch_action_decide(orch_action *action, uint32_t decision, const char *by,
				    const void *note, size_t length, orch_error **reterr);
/*
 * The last decision of a person about it: ORCH_DECISION_*, 0 if there is none. `ret_by` (valid while the action
 * lives) and `ret_at_ms` (milliseconds since 1970) may be NULL, and are untouched if there is none. Since 0.1.
 */
ORCH_API uint32_t orch_action_decision(const orch_action *action, const char **ret_by,
				       int64_t *ret_at_ms);

ORCH_API uint64_t orch_action_id(const orch_action *action);
ORCH_API const char *orch_action_kind(const orch_action *action);
ORCH_API const char *orch_action_key(const orch_action *action);
ORCH_API uint32_t orch_action_state(const orch_action *action);
/* "INTENT", "DISPATCHED", ... Static storage. Since 0.1. */
ORCH_API const char *orch_action_state_name(uint32_t state);
ORCH_API uint32_t orch_action_policy(const orch_action *action);
/* 1 for the first. Since 0.1. */
ORCH_API uint32_t orch_action_attempt(const orch_action *action);
ORCH_API uint64_t orch_action_generation(const orch_action *action);
ORCH_API int64_t orch_action_updated_at_ms(const orch_action *action);
ORCH_API int64_t orch_action_created_at_ms(const orch_action *action);
/* 1 if orch_journal_prune() dropped its payloads: then they read "sha256:HEX bytes:N". Since 0.1. */
ORCH_API int32_t orch_action_pruned(const orch_action *action);
/* Payloads; NULL if there is none. Valid while the action lives. Since 0.1. */
ORCH_API const void *orch_action_request(const orch_action *action, size_t *ret_length);
/* Result, or the reason of a side state. Since 0.1. */
ORCH_API const void *orch_action_result(const orch_action *action, size_t *ret_length);

/* Return 0 to go on, another value to end the walk with that value. The action is borrowed. */
typedef int32_t (*orch_action_fn)(void *userdata, orch_action *action);
/*
 * Walks the actions in order of their intent, at most those whose kind starts with `kind_prefix` (NULL:
 * all). The callback may ref the action, and may use the journal: each action comes as it is when it is its turn, and
 * those that were begun after the call do not come. ORCH_EPOISONED, ORCH_EFORKED, ORCH_ECORRUPT, ORCH_EINVAL,
 * ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_journal_each(orch_journal *journal, const char *kind_prefix, orch_action_fn fn,
				   void *userdata, orch_error **reterr);
#define ORCH_QUERY_NEWEST_FIRST 1u

/* What all of the set members say is asked for; zero members ask for nothing. */
struct orch_query_opts {
	uint32_t size;
	uint32_t flags;             /* ORCH_QUERY_* */
	const char *kind_prefix;
	const char *key_prefix;
	uint32_t states;            /* 1 << ORCH_ACTION_*, or'ed */
	uint32_t limit;             /* how many at most */
	int64_t updated_from_ms;    /* milliseconds since 1970; the last transition was then or later */
	int64_t updated_before_ms;
	uint64_t after_id;          /* for the next page: orch_action_id() of the last one of this page */
};

ORCH_API void orch_query_opts_init(struct orch_query_opts *opts, uint32_t size);
/*
 * As orch_journal_each(), with more to ask for. An action that does not match any more when it is its turn is left
 * out. ORCH_EINVAL: unknown flags or states, a time before 1970; ORCH_E2BIG; ORCH_EPOISONED, ORCH_EFORKED,
 * ORCH_ECORRUPT, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_journal_query(orch_journal *journal, const struct orch_query_opts *opts,
				    orch_action_fn fn, void *userdata, orch_error **reterr);
/* The action under a key. ORCH_ENOENT. Since 0.1. */
ORCH_API int32_t orch_journal_find(orch_journal *journal, const char *key, orch_action **ret_action,
				   orch_error **reterr);

#define ORCH_OUTCOME_APPLIED 1u
#define ORCH_OUTCOME_NOT_APPLIED 2u
#define ORCH_OUTCOME_IN_FLIGHT 3u
#define ORCH_OUTCOME_UNKNOWN 4u

/*
 * Asks the outside what became of an action. Answer with orch_probe_reply_answer(), at once: recovery is a
 * waiting call. Dropping the reply without an answer is UNKNOWN. May call orch_ctx_* of an own context.
 */
typedef void (*orch_probe_fn)(void *userdata, orch_action *action, orch_probe_reply *reply);
/* `verdict`: ORCH_OUTCOME_*; `result` is recorded as observation when APPLIED. Since 0.1. */
ORCH_API int32_t orch_probe_reply_answer(orch_probe_reply *reply, uint32_t verdict, const void *result,
					 size_t length);

/*
 * Applies what a probe found to one action in DISPATCHED or UNKNOWN, by the table below; for callers that
 * probe on their own. IN_FLIGHT gives 0 and changes nothing, and so does UNKNOWN where the action is that already and
 * may be probed again. ORCH_ESTATE: in another state. Since 0.1.
 */
ORCH_API int32_t orch_action_resolve(orch_action *action, uint32_t outcome, const void *result,
				     size_t length, orch_error **reterr);

#define ORCH_RECOVER_CONTINUE 1u  /* it happened: OBSERVED, CONFIRMED */
#define ORCH_RECOVER_VERIFY 2u    /* UNKNOWN: ask again before any retry */
#define ORCH_RECOVER_RETRY 3u     /* FAILED: a begin is FRESH again */
#define ORCH_RECOVER_HAND_OVER 4u /* HANDED_OVER: a person decides */
#define ORCH_RECOVER_ABANDON 5u   /* ABANDONED */

/*
 * May choose otherwise than the table of orch_journal_recover() proposes. `outcome`: ORCH_OUTCOME_* of the
 * probe, 0 if there was none; `proposed`: ORCH_RECOVER_*. Returns an ORCH_RECOVER_*. What nobody has evidence for is
 * not taken: CONTINUE without APPLIED or an observation, RETRY without NOT_APPLIED where the policy is not
 * REPEATABLE and the action was dispatched, VERIFY of what was never dispatched, another than CONTINUE for what was
 * observed, or a number that is none: then the proposal stands, and the row says so. VERIFY leaves what is IN_FLIGHT
 * as it is. Not called for what waits for a person already.
 */
typedef uint32_t (*orch_decide_fn)(void *userdata, orch_action *action, uint32_t outcome,
				   uint32_t proposed);
/*
 * Tells that an action waits for a person, who then uses orch_action_decide(). Called for each action in HANDED_OVER
 * at each recovery, also for those of earlier ones, because a kill may have come between the record and this call.
 */
typedef void (*orch_hand_over_fn)(void *userdata, orch_action *action);

struct orch_recover_opts {
	uint32_t size;
	uint32_t flags;              /* none defined: 0 */
	const char *kind_prefix;     /* NULL: all */
	orch_probe_fn probe;         /* NULL: every probe answers UNKNOWN */
	orch_decide_fn decide;       /* NULL: as proposed */
	orch_hand_over_fn hand_over; /* NULL: nobody is told */
	void *userdata;              /* for the three */
};

ORCH_API void orch_recover_opts_init(struct orch_recover_opts *opts, uint32_t size);
/*
 * After a restart: for each action that an earlier generation left open, probe, then decide:
 *   INTENT                      -> FAILED (never dispatched)
 *   DISPATCHED, repeatable      -> FAILED (may be done again), no probe
 *   DISPATCHED, others          -> probe: APPLIED -> OBSERVED -> CONFIRMED; NOT_APPLIED -> FAILED;
 *                                  IN_FLIGHT -> left; UNKNOWN -> UNKNOWN, never_repeat -> HANDED_OVER
 *   OBSERVED                    -> CONFIRMED
 *   UNKNOWN                     -> probed again, as DISPATCHED
 *   HANDED_OVER                 -> left; hand_over() is called
 * decide() may choose otherwise. Each decision is a commit: it can be killed at any point and run again. The callbacks
 * may use the journal; an action that they, or another thread, moved on meanwhile is left to who did, and its row says
 * "none: it was moved on while it was probed". Those that wait for a person already come last. Only what is open is
 * read. `opts` and `ret_recovery` may be NULL.
 *
 * ORCH_EPOISONED, ORCH_EFORKED, ORCH_ESTATE: read-only; ORCH_EINVAL, ORCH_E2BIG, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_journal_recover(orch_journal *journal, const struct orch_recover_opts *opts,
				      orch_recovery **ret_recovery, orch_error **reterr);
ORCH_API orch_recovery *orch_recovery_unref(orch_recovery *recovery);
ORCH_API uint32_t orch_recovery_count(const orch_recovery *recovery);
/* Action `index`: borrowed action (state after), state before, ORCH_OUTCOME_* or 0, decision in words. */
ORCH_API int32_t orch_recovery_row(const orch_recovery *recovery, uint32_t index,
				   orch_action **ret_action, uint32_t *ret_state_before,
				   uint32_t *ret_probe, const char **ret_decision);
ORCH_API const char *orch_recovery_text(const orch_recovery *recovery);

/*
 * Checks the hash chain over all records, that each action and payload is what its last record says, SQLite's
 * pages, and the anchor if there is one. Without an anchor a file cut back to an earlier state of its own is
 * sound. Reads everything.
 * ORCH_ECORRUPT names the first record that does not fit. `ret_records` may be NULL. Since 0.1.
 */
ORCH_API int32_t orch_journal_verify(orch_journal *journal, uint64_t *ret_records, orch_error **reterr);

/* --- records: what happened, in order ------------------------------------------------------------- */

#define ORCH_RECORD_GENERATION 1u /* a coordinator opened the journal */
#define ORCH_RECORD_ACTION 2u     /* a transition, or an action that was pruned */
#define ORCH_RECORD_PERMIT 3u
#define ORCH_RECORD_TIMER 4u
#define ORCH_RECORD_DECISION 5u   /* of a person, about an action */
#define ORCH_RECORD_EPOCH 6u      /* the journal was restored from a backup */

/* The record is borrowed and valid during the call. Return 0 to go on, another value to end with that value. */
typedef int32_t (*orch_record_fn)(void *userdata, const orch_record *record);
ORCH_API uint64_t orch_record_sequence(const orch_record *record);
ORCH_API int64_t orch_record_at_ms(const orch_record *record);
/* Generation of the coordinator that wrote it. Since 0.1. */
ORCH_API uint64_t orch_record_generation(const orch_record *record);
/* ORCH_RECORD_*. Since 0.1. */
ORCH_API uint32_t orch_record_type(const orch_record *record);
/* "action", "permit", ... Static storage. Since 0.1. */
ORCH_API const char *orch_record_type_name(uint32_t type);
/*
 * Id of the action, permit, timer or decision; the generation or the epoch itself. Since 0.1.
 */
ORCH_API uint64_t orch_record_subject(const orch_record *record);
/* Key of the action (also of a decision's), name of the permit or timer; "" for others. Since 0.1. */
ORCH_API const char *orch_record_name(const orch_record *record);
/* Kind of the action or permit; "" for others. Since 0.1. */
ORCH_API const char *orch_record_kind(const orch_record *record);
/* The state that it made: ORCH_ACTION_*, ORCH_PERMIT_*, ORCH_TIMER_*, or the ORCH_DECISION_*. 0 for others. Since 0.1. */
ORCH_API uint32_t orch_record_state(const orch_record *record);
/* Its name: "DISPATCHED", "USED", "PENDING", "NOT_APPLIED"; "" for others. Static storage. Since 0.1. */
ORCH_API const char *orch_record_state_name(const orch_record *record);
/* Attempt of the action, round of the timer; 0 for others. Since 0.1. */
ORCH_API uint32_t orch_record_attempt(const orch_record *record);

/*
 * Walks the records after `after_sequence` (0: all) in their order. ORCH_EPOISONED, ORCH_EFORKED,
 * ORCH_ECORRUPT, ORCH_EINVAL, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_journal_records(orch_journal *journal, uint64_t after_sequence,
				      orch_record_fn fn, void *userdata, orch_error **reterr);
/*
 * Calls `fn` in `ctx` for each record after `after_sequence`, then for each new one after it became durable;
 * UINT64_MAX: only new ones. Nothing is lost and nothing comes twice, however slow the context is: records are read
 * from the journal. Another value than 0 from `fn` ends the watch. The watch holds a reference on the journal.
 * A journal that is poisoned tells nothing more.
 *
 * ORCH_EINVAL, ORCH_EPOISONED, ORCH_EFORKED, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_journal_watch(orch_journal *journal, orch_ctx *ctx, uint64_t after_sequence,
				    orch_record_fn fn, void *userdata, orch_destroy_fn destroy,
				    orch_watch **ret_watch, orch_error **reterr);
/* Ends it. Since 0.1. */
ORCH_API orch_watch *orch_watch_unref(orch_watch *watch);

/* --- keeping, copying, restoring -------------------------------------------------------------------- */

/*
 * Drops the payloads of actions that were CONFIRMED, FAILED or ABANDONED before `closed_before_ms` (milliseconds
 * since 1970), a few hundred in each commit. The action stays, with its state, key, fingerprint and the digests of
 * its payloads: a begin finds it as before. Its place in the file is used again; the file does not shrink. The time
 * of its last transition stays, its generation becomes this coordinator's. Counts of actions and bytes may be NULL.
 * ORCH_EINVAL: a time before 1970; other errors as for begin; what was dropped before one stays dropped. Since 0.1.
 */
ORCH_API int32_t orch_journal_prune(orch_journal *journal, int64_t closed_before_ms,
				    uint64_t *ret_actions, uint64_t *ret_bytes, orch_error **reterr);

#define ORCH_EXPORT_RECORDS 1u /* also one line for each record */

/*
 * `line` is one line of JSON with its newline, borrowed, with no NUL behind it. Return 0 to go on, another value to end
 * with that value.
 */
typedef int32_t (*orch_export_fn)(void *userdata, const char *line, size_t length);
/*
 * Everything as NDJSON: {"type":"journal",...}, then "generation", "epoch", "action", "decision", "permit", "timer"
 * and "record" lines, and at last {"type":"end","lines":N,"sequence":N,"hash":HEX,"sha256":HEX}: without it the export
 * is not whole. Payloads are {"text":...} if they are UTF-8 without NUL, else {"base64":...}; {"sha256":HEX,"bytes":N}
 * if they are not kept, and null if there is none. Ids and times are JSON integers of 64 bits. `flags`: ORCH_EXPORT_*.
 *
 * Others may write meanwhile. What is changed while the lines are told comes again: of lines with the same type and id
 * the last one counts, and all of them together are the journal at record `sequence` of the last line. That line's
 * `hash` is that record's, `lines` counts those before it, and `sha256` is over their bytes.
 *
 * ORCH_EPOISONED, ORCH_EFORKED, ORCH_ECORRUPT, ORCH_EINVAL, ORCH_ENOMEM. Since 0.1.
 */
ORCH_API int32_t orch_journal_export(orch_journal *journal, uint32_t flags, orch_export_fn fn,
				     void *userdata, orch_error **reterr);

/*
 * Writes a whole copy to `path` while the journal is in use: temporary file, checked by opening and verifying it,
 * synced, renamed. It is no journal that could be opened for writing: orch_journal_restore() makes one of it, and a
 * plain copy put in the journal's place is refused. READ_ONLY opens it. The copy is the journal at a moment between
 * call and return: what was acknowledged before the call is in it. `path` may be on any file system; while it is
 * written, it is `path`.new, which takes as much room as the journal; the next backup to `path` removes what a killed
 * one left.
 *
 * ORCH_EEXIST: `path` exists, and stays as it is; ORCH_ENOENT: no such folder; ORCH_ENOSPC, ORCH_ESYS;
 * ORCH_ELOCKED: another backup to `path` is being made; ORCH_ECORRUPT: the copy did not verify and is removed;
 * ORCH_EPOISONED, ORCH_EFORKED, ORCH_EINVAL, ORCH_ENOMEM. `ret_records` may be NULL. Since 0.1.
 */
ORCH_API int32_t orch_journal_backup(orch_journal *journal, const char *path, uint64_t *ret_records,
				     orch_error **reterr);

#define ORCH_RESTORE_REPLACE 1u /* a journal at `path` is moved to PATH.replaced-EPOCH-SEQUENCE, never removed */

struct orch_restore_opts {
	uint32_t size;
	uint32_t flags;          /* ORCH_RESTORE_* */
	const char *backup_path; /* what orch_journal_backup() wrote; stays as it is */
	const char *path;        /* the journal to make */
	const char *anchor_path; /* its anchor, as in orch_journal_opts; NULL: none */
};

ORCH_API void orch_restore_opts_init(struct orch_restore_opts *opts, uint32_t size);
/*
 * Makes a journal of a backup: a new epoch, whole or not at all. After a kill it can be run again.
 *
 * A backup does not know what happened after it was made. So permits that were not used are void, generations go on
 * above every one that was given out before, and each action in INTENT, DISPATCHED or FAILED becomes UNKNOWN: it is
 * reconciled by orch_journal_recover() before it can be begun again. An action that was begun after the backup is not
 * in it at all: `orch_restoration_lost()` tells how many records the anchor or the replaced journal know of that the
 * backup does not. Timers are those of the backup: one that was done or canceled after it is due again.
 *
 * The journal that is there stays what opens until the restored one takes its name: one rename that exchanges both (on
 * file systems that cannot, and where the old one is damaged, several; killed between them `path` is missing, and an open
 * is refused until this was run again). It keeps its content, and its log where it cannot be read. PATH.restored is a
 * restored journal not in place yet, or for a moment the replaced one; the next restoration settles what a killed one
 * left. The anchor is written last: opening with it also finishes that. The anchor of the epoch before is refused from
 * then on, and so is the replaced journal with the new one.
 *
 * ORCH_EEXIST: there is a journal at `path` (after a kill: the restored one), and no ORCH_RESTORE_REPLACE;
 * ORCH_ELOCKED: a coordinator owns it;
 * ORCH_ECORRUPT: the backup is none, damaged, or not of the anchor's journal; ORCH_ESCHEMA, ORCH_ENETFS, ORCH_ENOENT,
 * ORCH_ENOSPC, ORCH_ESYS, ORCH_EINVAL, ORCH_E2BIG, ORCH_ENOMEM. `ret_restoration` may be NULL. Since 0.1.
 */
ORCH_API int32_t orch_journal_restore(const struct orch_restore_opts *opts,
				      orch_restoration **ret_restoration, orch_error **reterr);
ORCH_API orch_restoration *orch_restoration_unref(orch_restoration *restoration);
/* The epoch that it started. Since 0.1. */
ORCH_API uint64_t orch_restoration_epoch(const orch_restoration *restoration);
/* Records of the backup. Since 0.1. */
ORCH_API uint64_t orch_restoration_records(const orch_restoration *restoration);
/* Records known to have been written after the backup, at least; 0 if there are none, or nothing knows. Since 0.1. */
ORCH_API uint64_t orch_restoration_lost(const orch_restoration *restoration);
/* Actions that became UNKNOWN, and permits that became void. Since 0.1. */
ORCH_API uint32_t orch_restoration_unknown(const orch_restoration *restoration);
ORCH_API uint32_t orch_restoration_void(const orch_restoration *restoration);
/* Where the replaced journal is now; "" if there was none. Since 0.1. */
ORCH_API const char *orch_restoration_replaced(const orch_restoration *restoration);
/* All of it for a person, in lines. Since 0.1. */
ORCH_API const char *orch_restoration_text(const orch_restoration *restoration);

ORCH_END_DECLS

#endif
