/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_PERMIT_H
#define ORCH_PERMIT_H

/*
 * A permit lets one action happen once. It is recorded in the journal, bound to a kind of action and, if asked for, to
 * one request, and may expire. orch_journal_begin() uses it up in the transaction that records the intent; a
 * further attempt of the same action, after one that is known not to have happened, goes on under it while it has
 * not expired. A restored backup cannot bring one back: orch_journal_restore() makes every permit void that was not
 * used, and no attempt goes on under one of an earlier epoch.
 */

#include <orch/journal.h>

ORCH_BEGIN_DECLS

typedef struct orch_permit orch_permit;

#define ORCH_PERMIT_ISSUED 1u
#define ORCH_PERMIT_USED 2u    /* an action has it */
/*
 * Found expired by a begin, which recorded it: a clock that steps back brings nothing back. Until one asks, a permit
 * that is past its time reads ISSUED or USED. One that had been used keeps its action.
 */
#define ORCH_PERMIT_EXPIRED 3u
#define ORCH_PERMIT_REVOKED 4u
#define ORCH_PERMIT_VOID 5u    /* was not used when the journal was restored from a backup */

struct orch_permit_opts {
	uint32_t size;
	uint32_t flags;            /* none defined: 0 */
	const char *name;          /* unique in the journal for ever; 1..255 bytes, UTF-8 */
	const char *kind;          /* of the action: 1..63 of [a-z0-9._-] */
	const void *fingerprint;   /* as the action's orch_action_opts.fingerprint; NULL: any request of that kind */
	size_t fingerprint_length; /* at most 64 */
	int64_t expires_at_ms;     /* milliseconds since 1970; 0: never */
	const void *note;          /* for people: why, by whom; copied, at most 4096 bytes */
	size_t note_length;
};

ORCH_API void orch_permit_opts_init(struct orch_permit_opts *opts, uint32_t size);
/*
 * Records a permit. The same name with the same terms (kind, fingerprint, expiry) gives 0 and the permit as it is now,
 * in whatever state and with its first note; with others ORCH_ECONFLICT. ORCH_ETOOBIG: the note. `ret_permit` may be
 * NULL. Other errors as for orch_journal_begin(). Since 0.1.
 */
ORCH_API int32_t orch_permit_issue(orch_journal *journal, const struct orch_permit_opts *opts,
				   orch_permit **ret_permit, orch_error **reterr);
/*
 * Takes an issued permit back. ORCH_ENOENT; ORCH_ESTATE: it is used, expired, revoked or void: look it up.
 * Other errors as for the transitions of an action. Since 0.1.
 */
ORCH_API int32_t orch_permit_revoke(orch_journal *journal, const char *name, orch_error **reterr);
/* ORCH_ENOENT, ORCH_EPOISONED, ORCH_EFORKED, ORCH_ECORRUPT, ORCH_EINVAL, ORCH_ENOMEM. Since 0.1. */
ORCH_API int32_t orch_permit_find(orch_journal *journal, const char *name, orch_permit **ret_permit,
				  orch_error **reterr);
/* Return 0 to go on, another value to end the walk with that value. The permit is borrowed. */
typedef int32_t (*orch_permit_fn)(void *userdata, orch_permit *permit);
/* In the order of their issue. Errors as for orch_permit_find(). Since 0.1. */
ORCH_API int32_t orch_permit_each(orch_journal *journal, orch_permit_fn fn, void *userdata,
				  orch_error **reterr);

/* What it was when it was looked up. Since 0.1. */
ORCH_API orch_permit *orch_permit_ref(orch_permit *permit);
ORCH_API orch_permit *orch_permit_unref(orch_permit *permit);
ORCH_API uint64_t orch_permit_id(const orch_permit *permit);
ORCH_API const char *orch_permit_name(const orch_permit *permit);
ORCH_API const char *orch_permit_kind(const orch_permit *permit);
/* ORCH_PERMIT_*. Since 0.1. */
ORCH_API uint32_t orch_permit_state(const orch_permit *permit);
/* "ISSUED", "USED", ... Static storage. Since 0.1. */
ORCH_API const char *orch_permit_state_name(uint32_t state);
ORCH_API int64_t orch_permit_expires_at_ms(const orch_permit *permit);
/* Epoch in which it was issued. Since 0.1. */
ORCH_API uint64_t orch_permit_epoch(const orch_permit *permit);
/* Id of the action that has it; 0: none. Since 0.1. */
ORCH_API uint64_t orch_permit_action(const orch_permit *permit);
/* NULL if there is none. Valid while the permit lives. Since 0.1. */
ORCH_API const void *orch_permit_note(const orch_permit *permit, size_t *ret_length);

ORCH_END_DECLS

#endif
