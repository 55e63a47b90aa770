/* SPDX-License-Identifier: Apache-2.0 */
/* Why a path would be denied: answers from the rules that are enforced, nothing is tried. */
#include <stdio.h>
#include <unistd.h>

#include "preset.h"
#include "sandbox-private.h"

#define ALL (ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC)

struct orch_sandbox_answer {
	uint32_t denied;
	char *rule;
	char *text;
};

/* "read write" */
static void put_access(struct orch_buf *text, uint32_t access)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {{ORCH_PATH_READ, "read"}, {ORCH_PATH_WRITE, "write"}, {ORCH_PATH_EXEC, "exec"}, {ORCH_PATH_OWN, "own"}};
	bool first = true;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (access & names[i].bit) {
			orch_buf_printf(text, "%s%s", first ? "" : " ", names[i].name);
			first = false;
		}
}

static void put_rule(struct orch_buf *text, const struct sandbox_path *rule)
{
	if (orch_rule_denies(rule)) {
		orch_buf_printf(text, "deny %s", rule->inner);
	} else {
		orch_buf_printf(text, "allow %s (", rule->inner);
		put_access(text, rule->access);
		orch_buf_printf(text, ") of %s", rule->host);
	}
	if (rule->source)
		orch_buf_printf(text, " at %s", rule->source);
}

/*
 * Where a top level folder of the host is a symbolic link (/bin -> usr/bin), the root has the same one. NULL: `path` lies in
 * none; it has to be freed.
 */
static char *through_link(const orch_sandbox *sandbox, const char *path)
{
	char target[256], top[64];
	size_t length = 1 + strcspn(path + 1, "/");
	const struct preset_path *preset = orch_rule_preset(sandbox, path);

	if (!preset || !(preset->flags & PRESET_OPTIONAL) || strchr(preset->path + 1, '/') || length >= sizeof(top))
		return NULL;
	snprintf(top, sizeof(top), "%.*s", (int)length, path);
	ssize_t n = readlink(top, target, sizeof(target) - 1);

	if (n <= 0)
		return NULL;
	target[n] = '\0';
	return orch_strdup_printf("%s%s%s", target[0] == '/' ? "" : "/", target, path + length);
}

/* The `index`th rule, if it gives something: no denial, and none at the same path. */
static const struct sandbox_path *allowing(const orch_sandbox *sandbox, size_t index)
{
	const struct sandbox_path *rule = &sandbox->paths[index];

	return orch_rule_denies(rule) || orch_rule_denies(orch_rule_at(sandbox, rule->inner, strlen(rule->inner))) ? NULL
														    : rule;
}

/* Folders that are there because something below them is, and what may be listed of them. */
static bool is_on_the_way(const orch_sandbox *sandbox, const char *path)
{
	size_t count = 0;
	const struct preset_path *preset = orch_preset(&count);

	for (size_t i = 0; i < sandbox->path_count; i++) {
		const struct sandbox_path *rule = allowing(sandbox, i);

		if (rule && orch_path_is_below(rule->inner, path))
			return true;
	}
	for (size_t i = 0; i < count; i++)
		if ((!(preset[i].flags & PRESET_TOOLS) || sandbox->opts.root == ORCH_ROOT_TOOLS) &&
		    orch_path_is_below(preset[i].path, path))
			return true;
	return strcmp(path, "/") == 0;
}

/* Listing "/" is a right that reaches down: it is given where everything may be read anyway. */
static bool all_is_readable(const orch_sandbox *sandbox)
{
	for (size_t i = 0; i < sandbox->path_count; i++) {
		const struct sandbox_path *rule = allowing(sandbox, i);

		if (rule && !(orch_rule_access(rule) & ORCH_PATH_READ))
			return false;
	}
	return true;
}

struct judgement {
	const struct sandbox_path *rule;
	const struct preset_path *preset;
	uint32_t access;
	bool way;
};

static struct judgement judge(const orch_sandbox *sandbox, const char *path)
{
	struct judgement judgement = {.rule = orch_rule_over(sandbox, path), .preset = orch_rule_preset(sandbox, path)};

	if (judgement.rule && judgement.preset && strlen(judgement.preset->path) > strlen(judgement.rule->inner) &&
	    !orch_rule_denies(judgement.rule))
		judgement.rule = NULL;
	if (judgement.rule) {
		judgement.preset = NULL;
		judgement.access = orch_rule_denies(judgement.rule) ? 0 : orch_rule_access(judgement.rule);
	} else if (judgement.preset) {
		judgement.access = judgement.preset->access;
	} else {
		judgement.way = is_on_the_way(sandbox, path);
		judgement.access = judgement.way && all_is_readable(sandbox) ? ORCH_PATH_READ : 0;
	}
	return judgement;
}

static void put_text(struct orch_buf *text, const struct judgement *judgement, const char *path, const char *asked,
		     uint32_t access, uint32_t denied)
{
	if (strcmp(path, asked) != 0)
		orch_buf_printf(text, "%s leads to %s: ", asked, path);
	put_access(text, denied ? denied : access);
	orch_buf_printf(text, " of %s is %s by ", path, denied ? "denied" : "allowed");
	if (judgement->rule)
		put_rule(text, judgement->rule);
	else if (judgement->preset)
		orch_buf_printf(text, "the root's own %s", judgement->preset->path);
	else if (judgement->way)
		orch_buf_puts(text, "the root: it is a folder on the way to what rules allow");
	else
		orch_buf_puts(text, "default: no rule covers it");
}

static int32_t check_question(orch_sandbox *sandbox, uint32_t access, orch_sandbox_answer **ret_answer, orch_error **reterr)
{
	if (!sandbox || !ret_answer)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL", sandbox ? "ret_answer" : "the sandbox");
	if (access == 0 || access & ~ALL)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "access 0x%x is not one or more of ORCH_PATH_READ, ORCH_PATH_WRITE, ORCH_PATH_EXEC", access);
	return orch_ctx_check(sandbox->ctx, reterr);
}

int32_t orch_sandbox_why(orch_sandbox *sandbox, const char *path, uint32_t access, orch_sandbox_answer **ret_answer,
			 orch_error **reterr)
{
	_cleanup_free_ char *asked = NULL, *led = NULL;
	int32_t code = check_question(sandbox, access, ret_answer, reterr);

	if (code == 0)
		code = orch_clean_path(path, "path", &asked, reterr);
	if (code < 0)
		return code;
	if (!orch_rule_over(sandbox, asked))
		led = through_link(sandbox, asked);
	const char *real = led ? led : asked;
	struct judgement judgement = judge(sandbox, real);
	_cleanup_buf_ struct orch_buf text = {0}, rule = {0};
	orch_sandbox_answer *answer = calloc(1, sizeof(*answer));

	if (!answer)
		return orch_fail_memory(reterr);
	answer->denied = access & ~judgement.access;
	put_text(&text, &judgement, real, asked, access, answer->denied);
	if (judgement.rule)
		put_rule(&rule, judgement.rule);
	else if (judgement.preset)
		orch_buf_printf(&rule, "root %s", judgement.preset->path);
	answer->text = text.failed ? NULL : strdup(text.data);
	answer->rule = rule.failed ? NULL : strdup(rule.data ? rule.data : "");
	if (!answer->text || !answer->rule) {
		orch_sandbox_answer_unref(answer);
		return orch_fail_memory(reterr);
	}
	*ret_answer = answer;
	return 0;
}

orch_sandbox_answer *orch_sandbox_answer_unref(orch_sandbox_answer *answer)
{
	if (answer) {
		free(answer->rule);
		free(answer->text);
		free(answer);
	}
	return NULL;
}

uint32_t orch_sandbox_answer_denied(const orch_sandbox_answer *answer)
{
	return answer ? answer->denied : 0;
}

const char *orch_sandbox_answer_rule(const orch_sandbox_answer *answer)
{
	return answer ? answer->rule : "";
}

const char *orch_sandbox_answer_text(const orch_sandbox_answer *answer)
{
	return answer ? answer->text : "";
}
