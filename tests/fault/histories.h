/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULT_HISTORIES_H
#define FAULT_HISTORIES_H

/* What is done on the failing disk: histories of steps, each acknowledged by the library before the next. */

#include <stdarg.h>

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
	tell(userdata, "\n");
	return 0;
}

static int32_t tell_journal(struct telling *telling, orch_journal *journal, orch_error **error)
{
	int32_t r = orch_journal_verify(journal, NULL, error);
	return r < 0 ? r : orch_journal_each(journal, NULL, tell_action, telling, error);
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

static const struct history histories[] = {
	{"actions", COUNT(action_steps), NULL, play_actions, describe_journal},
	{"checkpoint", COUNT(log_steps), NULL, play_log, describe_journal},
};

#endif
