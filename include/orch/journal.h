/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_JOURNAL_H
#define ORCH_JOURNAL_H

/*
 * orch_journal: a durable record of actions that tells "intended", "dispatched", "observed" and
 * "confirmed" apart. It needs no context and no event loop. All calls are durable when they return.
 *
 * A handle is used by one thread at a time. One coordinator owns a journal; a second one is refused.
 *
 * Files: PATH (SQLite), PATH-wal beside it while it is open or after a kill (they belong together), PATH.lock
 * (never removed; says who holds it), PATH.reserve (1 MiB kept back for a full disk), and the anchor.
 */

#include <orch/error.h>

ORCH_BEGIN_DECLS

typedef struct orch_journal orch_journal;
typedef struct orch_action orch_action;
typedef struct orch_recovery orch_recovery;
typedef struct orch_probe_reply orch_probe_reply;

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
	 * Called on the calling thread right after each record became durable, with its sequence number. It
	 * must not call the library. For fault tests and for progress.
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
 * Opens or creates. A writer registers a new generation before anything else.
 *
 * ORCH_ELOCKED: another coordinator owns it (the message names it); ORCH_ESCHEMA: written by a newer
 * version; ORCH_ENETFS: on NFS, SMB, 9P, FUSE and the like; ORCH_ECORRUPT: not a journal, or damaged, or
 * older than its anchor says; ORCH_ENOENT (read-only, or folder missing); ORCH_ESYS; ORCH_ENOSPC;
 * ORCH_EPOISONED: the registration's commit failed; ORCH_EINVAL (also: the anchor is inside the journal's
 * folder, the file has hard links); ORCH_E2BIG; ORCH_ENOMEM. In each case but ORCH_EPOISONED the file is
 * untouched. READ_ONLY opens while a coordinator lives give ORCH_ELOCKED as well.
 * Since 0.1.
 */
ORCH_API int32_t orch_journal_open(const struct orch_journal_opts *opts, orch_journal **ret_journal,
				   orch_error **reterr);
ORCH_API orch_journal *orch_journal_ref(orch_journal *journal);
/* In a forked child neither SQLite nor a lock is touched. Since 0.1. */
ORCH_API orch_journal *orch_journal_unref(orch_journal *journal);
/* This coordinator's generation: rises by at least 1 at each open for writing. Since 0.1. */
ORCH_API uint64_t orch_journal_generation(const orch_journal *journal);
/* Sequence number of the last durable record. Since 0.1. */
ORCH_API uint64_t orch_journal_sequence(const orch_journal *journal);

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
};

ORCH_API void orch_action_opts_init(struct orch_action_opts *opts, uint32_t size);

/*
 * Records an intent, or finds what is recorded under the key; one transaction. `ret_action` is set for
 * every outcome but CONFLICT.
 *
 * 0 with an outcome. ORCH_ECONFLICT comes with outcome CONFLICT; ORCH_ETOOBIG: payload over the limit,
 * nothing recorded; ORCH_EPOISONED: this or an earlier commit failed, or the files were taken away: reopen;
 * ORCH_ENOSPC: nothing recorded, the handle is well; ORCH_EFORKED; ORCH_ESTATE: read-only; ORCH_EINVAL;
 * ORCH_ECORRUPT; ORCH_ENOMEM. Since 0.1.
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

ORCH_API orch_action *orch_action_ref(orch_action *action);
ORCH_API orch_action *orch_action_unref(orch_action *action);

/*
 * The transitions. Each is one durable commit with a compare on state, generation and attempt: when
 * another transition was first the call gives ORCH_ESTATE and changes nothing (the first observation
 * wins), and the handle keeps what it knew: look the action up again.
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
/* Payloads; NULL if there is none. Valid while the action lives. Since 0.1. */
ORCH_API const void *orch_action_request(const orch_action *action, size_t *ret_length);
/* Result, or the reason of a side state. Since 0.1. */
ORCH_API const void *orch_action_result(const orch_action *action, size_t *ret_length);

/* Return 0 to go on, another value to end the walk with that value. The action is borrowed. */
typedef int32_t (*orch_action_fn)(void *userdata, orch_action *action);
/*
 * Walks the actions in order of their intent, at most those whose kind starts with `kind_prefix` (NULL:
 * all). The callback may ref the action. ORCH_EPOISONED, ORCH_EFORKED, ORCH_ECORRUPT. Since 0.1.
 */
ORCH_API int32_t orch_journal_each(orch_journal *journal, const char *kind_prefix, orch_action_fn fn,
				   void *userdata, orch_error **reterr);
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
 * probe on their own. ORCH_ESTATE: in another state. Since 0.1.
 */
ORCH_API int32_t orch_action_resolve(orch_action *action, uint32_t outcome, const void *result,
				     size_t length, orch_error **reterr);

/*
 * After a restart: for each action that an earlier generation left open, probe, then decide:
 *   INTENT                      -> FAILED (never dispatched)
 *   DISPATCHED, repeatable      -> FAILED (may be done again), no probe
 *   DISPATCHED, others          -> probe: APPLIED -> OBSERVED -> CONFIRMED; NOT_APPLIED -> FAILED;
 *                                  IN_FLIGHT -> left; UNKNOWN -> UNKNOWN, never_repeat -> HANDED_OVER
 *   OBSERVED                    -> CONFIRMED
 *   UNKNOWN                     -> probed again, as DISPATCHED
 * Each decision is a commit: it can be killed at any point and run again. `probe` NULL: every probe
 * answers UNKNOWN. `kind_prefix` limits it (NULL: all).
 *
 * ORCH_EPOISONED, ORCH_EFORKED, ORCH_ESTATE: read-only. Since 0.1.
 */
ORCH_API int32_t orch_journal_recover(orch_journal *journal, const char *kind_prefix, orch_probe_fn probe,
				      void *userdata, orch_recovery **ret_recovery,
				      orch_error **reterr);
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

ORCH_END_DECLS

#endif
