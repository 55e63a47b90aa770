/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "report-private.h"

const char *report_string(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text ? text : "";
}

int64_t report_integer(const json_t *object, const char *name)
{
	return (int64_t)report_number(object, name);
}

double report_number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

bool report_flag(const json_t *object, const char *name)
{
	return json_is_true(json_object_get(object, name));
}

const json_t *report_array(const json_t *object, const char *name)
{
	const json_t *array = json_object_get(object, name);
	return json_is_array(array) ? array : NULL;
}

bool report_has(const json_t *object, const char *name)
{
	const json_t *member = json_object_get(object, name);
	return member && !json_is_null(member);
}

/* The text, or NULL without memory: never a NULL that means "". */
static char *take(struct orch_buf *buf)
{
	char *text = buf->failed ? NULL : buf->data ? ORCH_STEAL(buf->data) : strdup("");
	orch_buf_free(buf);
	return text;
}

char *report_join(const json_t *array, const char *separator)
{
	struct orch_buf buf = {0};
	size_t index;
	const json_t *value;
	json_array_foreach(array, index, value)
	{
		if (index)
			orch_buf_puts(&buf, separator);
		orch_buf_puts(&buf, json_is_string(value) ? json_string_value(value) : "?");
	}
	return take(&buf);
}

char *report_time(int64_t ms)
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm parts;
	char text[64];
	if (!ms || !gmtime_r(&seconds, &parts) ||
	    !strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts))
		text[0] = '\0';
	return strdup(text);
}

char *report_duration(double seconds)
{
	if (!(seconds > 0))
		return strdup("0 s");
	if (seconds < 10)
		return orch_strdup_printf("%.1f s", seconds);
	if (seconds > 1e12)
		return strdup("very long");
	int64_t whole = (int64_t)(seconds + 0.5);
	if (whole < 60)
		return orch_strdup_printf("%lld s", (long long)whole);
	if (whole < 3600)
		return orch_strdup_printf("%lld min %lld s", (long long)(whole / 60),
					  (long long)(whole % 60));
	return orch_strdup_printf("%lld h %lld min", (long long)(whole / 3600),
				  (long long)(whole % 3600 / 60));
}

char *report_money(int64_t micro_usd)
{
	/* Cents are too coarse for a single call, and six digits too many for a large sum. */
	int digits = micro_usd && micro_usd < 10000000 ? 4 : 2;
	return orch_strdup_printf("$%.*f", digits, (double)micro_usd / 1e6);
}

char *report_count(int64_t number)
{
	char digits[32];
	struct orch_buf buf = {0};
	int length = snprintf(digits, sizeof(digits), "%lld", (long long)number);
	for (int i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0 && digits[i - 1] != '-')
			orch_buf_puts(&buf, "\xe2\x80\xaf"); /* narrow no-break space */
		orch_buf_add(&buf, &digits[i], 1);
	}
	return take(&buf);
}

int report_tone(const char *word)
{
	static const struct {
		const char *word;
		int tone;
	} tones[] = {
	    {"enforced", TONE_GOOD},	{"passed", TONE_GOOD},	      {"pass", TONE_GOOD},
	    {"DEAD", TONE_GOOD},	{"verified", TONE_GOOD},      {"MERGED", TONE_GOOD},
	    {"DELIVERED", TONE_GOOD},	{"holds", TONE_GOOD},	      {"confirmed", TONE_GOOD},
	    {"partial", TONE_WARN},	{"DEAD_UNREAPED", TONE_WARN}, {"not_run", TONE_WARN},
	    {"timeout", TONE_BAD},	{"absent", TONE_BAD},	      {"failed", TONE_BAD},
	    {"fail", TONE_BAD},		{"error", TONE_BAD},	      {"SURVIVORS", TONE_BAD},
	    {"UNVERIFIABLE", TONE_BAD}, {"not verified", TONE_BAD},   {"REJECTED", TONE_BAD},
	    {"BLOCKED", TONE_BAD},	{"CONFLICT", TONE_BAD},	      {"STALLED", TONE_WARN},
	    {"ABORTED", TONE_BAD},	{"broken", TONE_BAD},	      {"unknown", TONE_WARN},
	    {"handed_over", TONE_WARN}, {"LOST", TONE_WARN},
	};
	for (size_t i = 0; i < sizeof(tones) / sizeof(tones[0]); i++)
		if (strcasecmp(word, tones[i].word) == 0)
			return tones[i].tone;
	return TONE_NEUTRAL;
}

const char *report_headline(const char *state)
{
	if (strcmp(state, "DELIVERED") == 0)
		return "Delivered";
	if (strcmp(state, "PARTIAL") == 0)
		return "Partial";
	if (strcmp(state, "ABORTED") == 0)
		return "Aborted";
	return "Not finished";
}

char *report_verification_name(const json_t *verification, bool *ret_must_fail)
{
	static const struct {
		const char *purpose, *words;
		bool must_fail;
	} purposes[] = {
	    {"base", "Checks on the base tree", true},
	    {"stub", "Checks on the stub", true},
	    {"earlier", "Earlier checks on the base tree", false},
	    {"task", "Task", false},
	    {"merged", "Merged with task", false},
	    {"accept", "Acceptance", false},
	};
	const char *purpose = report_string(verification, "purpose");
	const char *words = report_string(verification, "id");
	const char *task = report_string(verification, "task");
	int64_t attempt = report_integer(verification, "attempt");
	*ret_must_fail = false;
	for (size_t i = 0; i < sizeof(purposes) / sizeof(purposes[0]); i++) {
		if (strcmp(purpose, purposes[i].purpose) == 0) {
			words = purposes[i].words;
			*ret_must_fail = purposes[i].must_fail;
		}
	}
	bool has_task = *task && strcmp(task, "-") != 0;
	_cleanup_free_ char *number =
	    attempt > 0 ? orch_strdup_printf(", attempt %lld", (long long)attempt) : NULL;
	return orch_strdup_printf("%s%s%s%s", words, has_task ? " " : "", has_task ? task : "",
				  number ? number : "");
}
