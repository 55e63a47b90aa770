/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULT_HISTORIES_H
#define FAULT_HISTORIES_H

/* What is done on the failing disk: histories of steps, each acknowledged by the library before the next. */

#include <stdarg.h>

#include <orch/permit.h>
#include <orch/timer.h>

#include "../crash/journal-kit.h"

struct history {
	const char *name;
	unsigned steps;
	/* On a sound disk, before: what the history starts from. May be NULL. */
	void (*prepare)(void);
	/* Stops at the first call that fails, or after history_stop_after steps; counts what was acknowledged. */
	int32_t (*play)(unsigned *acknowledged, orch_error **reterr);
	/* On a sound disk, after: verifies, and tells everything that is recorded but times and generations. */
	int32_t (*describe)(char *text, size_t size);
};

static unsigned history_stop_after = UINT32_MAX;

/* --- describing --- */

struct telling {
	char *text;
	size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void tell(struct telling *telling, const char *format,
						       ...)
{
	va_list arguments;
	va_start(arguments, format);
	int written = vsnprintf(telling->text + telling->length, telling->size - telling->length,
				format, arguments);
	va_end(arguments);
	telling->length += (size_t)written;
	if (telling->length >= telling->size)
		telling->length = telling->size - 1;
}

/* Enough of a payload to tell it from another: big ones are made of one letter each. */
static void tell_payload(struct telling *telling, const char *what, const void *bytes, size_t length)
{
	unsigned sum = 0;
	for (size_t i = 0; i < length; i++)
		sum = sum * 31 + ((const unsigned char *)bytes)[i];
	if (bytes)
		tell(telling, " %s %zu:%.12s:%u", what, length, (const char *)bytes, sum);
}

static int32_t tell_action(void *userdata, orch_action *action)
{
	size_t length = 0;
	tell(userdata, "%s %s %s policy %u attempt %u", orch_action_kind(action),
	     orch_action_key(action), orch_action_state_name(orch_action_state(action)),
	     orch_action_policy(action), orch_action_attempt(action));
	const void *bytes = orch_action_request(action, &length);
	tell_payload(userdata, "request", bytes, length);
	bytes = orch_action_result(action, &length);
	tell_payload(userdata, "result", bytes, length);
	const char *by = "";
	uint32_t decision = orch_action_decision(action, &by, NULL);
	if (decision)
		tell(userdata, " decision %u by %s", decision, by);
	tell(userdata, "%s\n", orch_action_pruned(action) ? " pruned" : "");
	return 0;
}

static int32_t tell_permit(void *userdata, orch_permit *permit)
{
	tell(userdata, "permit %s %s %s epoch %llu action %llu\n", orch_permit_name(permit),
	     orch_permit_kind(permit), orch_permit_state_name(orch_permit_state(permit)),
	     (unsigned long long)orch_permit_epoch(permit),
	     (unsigned long long)orch_permit_action(permit));
	return 0;
}

static int32_t tell_timer(void *userdata, orch_timer *timer)
{
	size_t length = 0;
	tell(userdata, "timer %s %s round %u delay %lld", orch_timer_name(timer),
	     orch_timer_state_name(orch_timer_state(timer)), orch_timer_round(timer),
	     (long long)orch_timer_delay_ms(timer));
	const void *bytes = orch_timer_payload(timer, &length);
	tell_payload(userdata, "payload", bytes, length);
	tell(userdata, "\n");
	return 0;
}

static int32_t tell_journal(struct telling *telling, orch_journal *journal, orch_error **error)
{
	int32_t r = orch_journal_verify(journal, NULL, error);
	if (r == 0)
		r = orch_journal_each(journal, NULL, tell_action, telling, error);
	if (r == 0)
		r = orch_permit_each(journal, tell_permit, telling, error);
	if (r == 0)
		r = orch_timer_each(journal, tell_timer, telling, error);
	if (r == 0)
		tell(telling, "epoch %llu\n", (unsigned long long)orch_journal_epoch(journal));
	return r;
}

static int32_t describe_journal(char *text, size_t size)
{
	struct telling telling = {text, size, 0};
	orch_journal *journal = NULL;
	orch_error *error = NULL;
	text[0] = '\0';
	int32_t r = kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error);
	if (r == 0)
		r = tell_journal(&telling, journal, &error);
	if (r < 0)
		snprintf(text, size, "%s", orch_error_message(error));
	orch_error_free(error);
	orch_journal_unref(journal);
	return r;
}

/* --- playing --- */

typedef int32_t step_fn(orch_journal *journal, orch_error **reterr);

static int32_t play_steps(step_fn *const *steps, unsigned count, unsigned *acknowledged,
			  orch_error **reterr)
{
	orch_journal *journal = NULL;
	int32_t r = kit_open_with(&journal, 0, anchor_path, NULL, NULL, reterr);
	for (unsigned i = 0; r == 0 && i < count && i < history_stop_after; i++) {
		r = steps[i](journal, reterr);
		if (r == 0)
			*acknowledged = i + 1;
	}
	orch_journal_unref(journal);
	return r;
}

/* Opens and recovers, as after a restart: for a failure in that. No step of a history may be changed by it. */
static int32_t history_reopen(unsigned *acknowledged, orch_error **reterr)
{
	(void)acknowledged;
	orch_journal *journal = NULL;
	int32_t r = kit_open_with(&journal, 0, anchor_path, NULL, NULL, reterr);
	if (r == 0)
		r = orch_journal_verify(journal, NULL, reterr);
	orch_journal_unref(journal);
	return r;
}

/* --- actions --- */

static int32_t start(orch_journal *journal, const char *key, const char *request, orch_error **error)
{
	orch_action *action = NULL;
	uint32_t outcome;
	int32_t r = kit_begin(journal, key, 0, request, &outcome, &action, error);
	orch_action_unref(action);
	return r;
}

static int32_t shift(orch_journal *journal, const char *key, uint32_t state, const void *payload,
		     size_t length, orch_error **error)
{
	orch_action *action = NULL;
	int32_t r = orch_journal_find(journal, key, &action, error);
	if (r == 0)
		r = state == ORCH_ACTION_OBSERVED
			    ? orch_action_observe(action, payload, length, error)
			    : move(action, state, error);
	orch_action_unref(action);
	return r;
}

#define BEGIN(name, key)                                                                           \
	static int32_t name(orch_journal *journal, orch_error **error)                             \
	{                                                                                          \
		return start(journal, key, "a request for " key, error);                           \
	}
#define MOVE(name, key, state)                                                                     \
	static int32_t name(orch_journal *journal, orch_error **error)                             \
	{                                                                                          \
		return shift(journal, key, state, "an answer", 9, error);                          \
	}

BEGIN(begin_a, "a")
MOVE(dispatch_a, "a", ORCH_ACTION_DISPATCHED)
MOVE(observe_a, "a", ORCH_ACTION_OBSERVED)
MOVE(confirm_a, "a", ORCH_ACTION_CONFIRMED)
BEGIN(begin_b, "b")
MOVE(dispatch_b, "b", ORCH_ACTION_DISPATCHED)
MOVE(unknown_b, "b", ORCH_ACTION_UNKNOWN)
MOVE(hand_over_b, "b", ORCH_ACTION_HANDED_OVER)
MOVE(fail_b, "b", ORCH_ACTION_FAILED)
BEGIN(begin_c, "c")
MOVE(abandon_c, "c", ORCH_ACTION_ABANDONED)

static int32_t record_d(orch_journal *journal, orch_error **error)
{
	return orch_journal_record(journal, "test.record", "d", "a state", 7, NULL, error);
}

static int32_t observe_b_big(orch_journal *journal, orch_error **error)
{
	static char big[60000];
	memset(big, 'B', sizeof(big));
	return shift(journal, "b", ORCH_ACTION_OBSERVED, big, sizeof(big), error);
}

static step_fn *const action_steps[] = {
	begin_a,   dispatch_a, begin_b,	   observe_a,  dispatch_b, confirm_a, unknown_b, begin_c,
	record_d,  hand_over_b, fail_b,	   begin_b,    abandon_c,  dispatch_b, observe_b_big,
};

#define COUNT(list) ((unsigned)(sizeof(list) / sizeof((list)[0])))

static int32_t play_actions(unsigned *acknowledged, orch_error **reterr)
{
	return play_steps(action_steps, COUNT(action_steps), acknowledged, reterr);
}

/* --- a log that goes back into the database in between --- */

static int32_t big_step(orch_journal *journal, char letter, orch_error **error)
{
	static char big[900000];
	char key[] = {'l', letter, '\0'};
	memset(big, letter, sizeof(big));
	return orch_journal_record(journal, "test.log", key, big, sizeof(big), NULL, error);
}

#define LOG(letter)                                                                                \
	static int32_t log_##letter(orch_journal *journal, orch_error **error)                     \
	{                                                                                          \
		return big_step(journal, #letter[0], error);                                       \
	}
LOG(a) LOG(b) LOG(c) LOG(d) LOG(e) LOG(f)

static step_fn *const log_steps[] = {log_a,	 log_b,	    log_c, log_d, log_e, begin_a,
				     dispatch_a, observe_a, log_f, begin_b};

static int32_t play_log(unsigned *acknowledged, orch_error **reterr)
{
	return play_steps(log_steps, COUNT(log_steps), acknowledged, reterr);
}

/* --- permits, decisions, timers, pruning --- */

static int32_t issue(orch_journal *journal, const char *name, orch_error **error)
{
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.kind = "test.action";
	return orch_permit_issue(journal, &opts, NULL, error);
}

static int32_t issue_p(orch_journal *journal, orch_error **error)
{
	return issue(journal, "p", error);
}

static int32_t issue_q(orch_journal *journal, orch_error **error)
{
	return issue(journal, "q", error);
}

static int32_t revoke_q(orch_journal *journal, orch_error **error)
{
	return orch_permit_revoke(journal, "q", error);
}

static int32_t begin_once(orch_journal *journal, orch_error **error)
{
	struct orch_action_opts opts;
	orch_action *action = NULL;
	uint32_t outcome;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = "once";
	opts.permit = "p";
	int32_t r = orch_journal_begin(journal, &opts, &outcome, &action, error);
	orch_action_unref(action);
	return r;
}

MOVE(dispatch_once, "once", ORCH_ACTION_DISPATCHED)
MOVE(hand_over_once, "once", ORCH_ACTION_HANDED_OVER)

static int32_t decide_once(orch_journal *journal, orch_error **error)
{
	orch_action *action = NULL;
	int32_t r = orch_journal_find(journal, "once", &action, error);
	if (r == 0)
		r = orch_action_decide(action, ORCH_DECISION_APPLIED, "somebody", "seen", 4, error);
	orch_action_unref(action);
	return r;
}

static int32_t set_t(orch_journal *journal, orch_error **error)
{
	struct orch_timer_opts opts;
	orch_timer_opts_init(&opts, sizeof(opts));
	opts.name = "t";
	opts.delay_ms = 3600000;
	opts.payload = "wake up";
	opts.payload_length = 7;
	return orch_timer_set(journal, &opts, NULL, error);
}

static int32_t end_t(orch_journal *journal, orch_error **error)
{
	orch_timer *timer = NULL;
	int32_t r = orch_timer_find(journal, "t", &timer, error);
	if (r == 0)
		r = orch_timer_done(timer, error);
	orch_timer_unref(timer);
	return r;
}

static int32_t prune_all(orch_journal *journal, orch_error **error)
{
	return orch_journal_prune(journal, INT64_MAX, NULL, NULL, error);
}

static step_fn *const noun_steps[] = {
	issue_p, issue_q,    begin_once, dispatch_once, set_t,	  revoke_q, hand_over_once,
	set_t,	 begin_a,    decide_once, end_t,	dispatch_a, prune_all, observe_a,
};

static int32_t play_nouns(unsigned *acknowledged, orch_error **reterr)
{
	return play_steps(noun_steps, COUNT(noun_steps), acknowledged, reterr);
}

/* --- a backup, and the journal restored from it: one step is the restored journal --- */

static void backup_name(char path[128])
{
	snprintf(path, 128, "%s/backup", anchor_folder);
}

/* A journal that went on after its backup was made. */
static void prepare_restore(void)
{
	char path[128];
	unsigned done = 0;
	orch_journal *journal = NULL;
	backup_name(path);
	OK(play_steps(noun_steps, 3, &done, &error));
	OK(kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	OK(issue(journal, "later", &error));
	OK(orch_journal_backup(journal, path, NULL, &error));
	OK(start(journal, "after", "a request", &error));
	orch_journal_unref(journal);
}

static int32_t play_restore(unsigned *acknowledged, orch_error **reterr)
{
	char path[128];
	struct orch_restore_opts opts;
	if (!history_stop_after)
		return 0;
	backup_name(path);
	orch_restore_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_RESTORE_REPLACE;
	opts.backup_path = path;
	opts.path = journal_path;
	opts.anchor_path = anchor_path;
	int32_t r = orch_journal_restore(&opts, NULL, reterr);
	if (r == 0)
		*acknowledged = 1;
	return r;
}

/* What a restore that was cut off left is either the old journal or the new one; run again it is the new one. */
static int32_t describe_restore(char *text, size_t size)
{
	struct file journal = slurp(journal_path);
	if (!journal.exists) { /* between the two names: nothing is lost, and it can be run again */
		orch_error *error = NULL;
		unsigned done = 0;
		int32_t r = play_restore(&done, &error);
		if (r < 0)
			snprintf(text, size, "again: %s", orch_error_message(error));
		orch_error_free(error);
		if (r < 0)
			return r;
	}
	return describe_journal(text, size);
}

/* --- a backup: the copy is there whole, or not at all --- */

static void prepare_backup(void)
{
	unsigned done = 0;
	OK(play_steps(noun_steps, COUNT(noun_steps), &done, &error));
}

static int32_t play_backup(unsigned *acknowledged, orch_error **reterr)
{
	char path[128];
	orch_journal *journal = NULL;
	backup_name(path);
	int32_t r = kit_open_with(&journal, 0, anchor_path, NULL, NULL, reterr);
	if (r == 0 && history_stop_after) {
		r = orch_journal_backup(journal, path, NULL, reterr);
		if (r == 0)
			*acknowledged = 1;
	}
	orch_journal_unref(journal);
	return r;
}

static int32_t describe_backup(char *text, size_t size)
{
	char path[128];
	orch_error *error = NULL;
	orch_journal *backup = NULL;
	int32_t r = describe_journal(text, size);
	size_t length = strlen(text);
	struct telling telling = {text, size, length};
	backup_name(path);
	if (r < 0 || access(path, F_OK) < 0)
		return r;
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = path;
	opts.flags = ORCH_JOURNAL_READ_ONLY;
	tell(&telling, "backup:\n");
	r = orch_journal_open(&opts, &backup, &error);
	if (r == 0)
		r = tell_journal(&telling, backup, &error);
	if (r < 0)
		tell(&telling, "%s", orch_error_message(error));
	orch_error_free(error);
	orch_journal_unref(backup);
	return r;
}

/* --- a journal of an earlier schema, killed with all of its work in the log: opening it brings it up --- */

static char released[64]; /* where tests/journal/fixtures/schema-1.tar.xz is unpacked */

static void copy_released(const char *name, const char *to)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/killed/%s", released, name);
	struct file file = slurp(path);
	ck_assert_msg(file.exists, "%s is missing", path);
	spill(to, &file);
}

static void prepare_migration(void)
{
	copy_released("j", journal_path);
	copy_released("j-wal", wal_path);
	copy_released("a", anchor_path);
}

static step_fn *const migrated_steps[] = {record_d, issue_p, log_a};

static int32_t play_migration(unsigned *acknowledged, orch_error **reterr)
{
	return play_steps(migrated_steps, COUNT(migrated_steps), acknowledged, reterr);
}

static const struct history histories[] = {
	{"actions", COUNT(action_steps), NULL, play_actions, describe_journal},
	{"checkpoint", COUNT(log_steps), NULL, play_log, describe_journal},
	{"permits, timers, decisions, pruning", COUNT(noun_steps), NULL, play_nouns, describe_journal},
	{"backup", 1, prepare_backup, play_backup, describe_backup},
	{"restore", 1, prepare_restore, play_restore, describe_restore},
	{"migration", COUNT(migrated_steps), prepare_migration, play_migration, describe_journal},
};

#endif
