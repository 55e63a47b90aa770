/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_REPORT_PRIVATE_H
#define ORCH_REPORT_PRIVATE_H

#include "report.h"

/* Members of the model; a missing one, or one of another type, is "", 0, false or NULL. */
const char *report_string(const json_t *object, const char *name);
int64_t report_integer(const json_t *object, const char *name);
double report_number(const json_t *object, const char *name);
bool report_flag(const json_t *object, const char *name);
const json_t *report_array(const json_t *object, const char *name);
bool report_has(const json_t *object, const char *name);

/* An array of strings in one line; the caller frees. */
char *report_join(const json_t *array, const char *separator);
/* "2026-03-01 12:00:00 UTC", or "" for 0. The caller frees. */
char *report_time(int64_t ms);
/* "1 min 5 s"; the caller frees. */
char *report_duration(double seconds);
/* "$0.012300"; the caller frees. */
char *report_money(int64_t micro_usd);
/* "12 345"; the caller frees. */
char *report_count(int64_t number);

#define TONE_GOOD 1
#define TONE_WARN 2
#define TONE_BAD 3
#define TONE_NEUTRAL 4
/* How good news a state, verdict or result of any section is. */
int report_tone(const char *word);

/* What the run's end state says to a person. Static. */
const char *report_headline(const char *state);

/*
 * What a verification was for, in words; the caller frees. With `ret_must_fail` true its checks are
 * good if they fail: on the base tree and on the stub.
 */
char *report_verification_name(const json_t *verification, bool *ret_must_fail);

extern const char report_style[];

#endif
