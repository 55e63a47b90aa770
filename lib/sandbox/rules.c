/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules about paths: found by their inner path, and what of them changes something. The deeper of two decides, and at
 * the same path a denial.
 */
#include "preset.h"
#include "sandbox-private.h"
#include "spec.h"

#define LEAST_SLOTS 64u

bool orch_rule_denies(const struct sandbox_path *rule)
{
	return rule->kind == ORCH_SPEC_DENY || rule->kind == ORCH_SPEC_DENY_FOLDER;
}

uint32_t orch_rule_access(const struct sandbox_path *rule)
{
	return rule->access & ORCH_PATH_OWN
		       ? rule->access | ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC
		       : rule->access;
}

bool orch_path_is_below(const char *path, const char *folder)
{
	size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);

	return strncmp(path, folder, length) == 0 && path[length] == '/' && path[length + 1] != '\0';
}

/* --- finding -------------------------------------------------------------------------------- */

/* FNV-1a (draft-eastlake-fnv). */
static size_t hash_of(const char *path, size_t length)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)path[i]) * UINT64_C(0x100000001b3);
	return (size_t)(hash ^ hash >> 32);
}

/* The slot of that path and kind, or the free one where it belongs. At most half of the slots are taken. */
static uint32_t *slot_of(const orch_sandbox *sandbox, const char *inner, size_t length, bool denies)
{
	size_t mask = sandbox->path_slot_count - 1, at = hash_of(inner, length) & mask;

	for (;; at = (at + 1) & mask) {
		uint32_t *slot = &sandbox->path_slots[at];
		const struct sandbox_path *rule = *slot ? &sandbox->paths[*slot - 1] : NULL;

		if (!rule || (orch_rule_denies(rule) == denies && strncmp(rule->inner, inner, length) == 0 &&
			      rule->inner[length] == '\0'))
			return slot;
	}
}

static bool grow_slots(orch_sandbox *sandbox)
{
	size_t count = sandbox->path_slot_count ? sandbox->path_slot_count : LEAST_SLOTS / 2;

	if (sandbox->path_slot_count / 2 > sandbox->path_count)
		return true;
	uint32_t *slots = calloc(2 * count, sizeof(*slots));

	if (!slots)
		return false;
	free(sandbox->path_slots);
	sandbox->path_slots = slots;
	sandbox->path_slot_count = 2 * count;
	for (size_t i = 0; i < sandbox->path_count; i++) {
		const struct sandbox_path *rule = &sandbox->paths[i];

		*slot_of(sandbox, rule->inner, strlen(rule->inner), orch_rule_denies(rule)) = (uint32_t)i + 1;
	}
	return true;
}

int32_t orch_rules_add(orch_sandbox *sandbox, struct sandbox_path *rule, orch_error **reterr)
{
	if (!grow_slots(sandbox))
		return orch_fail_memory(reterr);
	bool denies = orch_rule_denies(rule);
	uint32_t *slot = slot_of(sandbox, rule->inner, strlen(rule->inner), denies);

	if (*slot && !denies)
		return orch_fail(reterr, ORCH_EEXIST, 0, NULL, "inner path %s is taken already", rule->inner);
	if (*slot) {
		if (rule->kind == ORCH_SPEC_DENY_FOLDER)
			sandbox->paths[*slot - 1].kind = ORCH_SPEC_DENY_FOLDER;
		free(rule->host);
		free(rule->inner);
		free(rule->source);
		return 0;
	}
	if (sandbox->path_count >= ORCH_SPEC_MAX_RULES)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL,
				 "more than %u paths: add a folder instead of its files",
				 ORCH_SPEC_MAX_RULES);
	struct sandbox_path *paths = realloc(sandbox->paths, (sandbox->path_count + 1) * sizeof(*paths));

	if (!paths)
		return orch_fail_memory(reterr);
	sandbox->paths = paths;
	paths[sandbox->path_count++] = *rule;
	*slot = (uint32_t)sandbox->path_count;
	return 0;
}

void orch_rules_free(orch_sandbox *sandbox)
{
	for (size_t i = 0; i < sandbox->path_count; i++) {
		free(sandbox->paths[i].host);
		free(sandbox->paths[i].inner);
		free(sandbox->paths[i].source);
	}
	free(sandbox->paths);
	free(sandbox->path_slots);
	sandbox->paths = NULL;
	sandbox->path_slots = NULL;
	sandbox->path_count = sandbox->path_slot_count = 0;
}

const struct sandbox_path *orch_rule_at(const orch_sandbox *sandbox, const char *inner, size_t length)
{
	for (int denies = 1; denies >= 0 && sandbox->path_slot_count; denies--) {
		uint32_t slot = *slot_of(sandbox, inner, length, denies);

		if (slot)
			return &sandbox->paths[slot - 1];
	}
	return NULL;
}

/* Up from `length` bytes of the path. */
static const struct sandbox_path *rule_up(const orch_sandbox *sandbox, const char *inner, size_t length)
{
	while (length > 0) {
		const struct sandbox_path *rule = orch_rule_at(sandbox, inner, length);

		if (rule)
			return rule;
		while (inner[--length] != '/')
			;
	}
	return NULL;
}

const struct sandbox_path *orch_rule_over(const orch_sandbox *sandbox, const char *inner)
{
	return rule_up(sandbox, inner, strlen(inner));
}

static size_t parent_length(const char *inner)
{
	return (size_t)(strrchr(inner, '/') - inner);
}

const struct preset_path *orch_rule_preset(const orch_sandbox *sandbox, const char *inner)
{
	size_t count = 0;
	const struct preset_path *preset = orch_preset(&count), *found = NULL;

	for (size_t i = 0; i < count; i++) {
		if (preset[i].flags & PRESET_TOOLS && sandbox->opts.root != ORCH_ROOT_TOOLS)
			continue;
		if (strcmp(inner, preset[i].path) != 0 && !orch_path_is_below(inner, preset[i].path))
			continue;
		if (!found || strlen(preset[i].path) > strlen(found->path))
			found = &preset[i];
	}
	return found;
}

/* --- what changes something ----------------------------------------------------------------- */

/* A folder is followed by all that lies in it: '/' counts less than any other byte. */
static int in_tree_order(const void *a, const void *b)
{
	const struct sandbox_path *one = *(const struct sandbox_path *const *)a;
	const struct sandbox_path *other = *(const struct sandbox_path *const *)b;
	const unsigned char *p = (const unsigned char *)one->inner, *q = (const unsigned char *)other->inner;

	for (; *p && *p == *q; p++, q++)
		;
	if (*p == *q)
		return orch_rule_denies(other) - orch_rule_denies(one);
	if (!*p || !*q)
		return *p ? 1 : -1;
	if (*p == '/' || *q == '/')
		return *p == '/' ? -1 : 1;
	return *p < *q ? -1 : 1;
}

/* Nothing is closed by it: what is above is closed already, or nothing is there. */
static bool is_idle_denial(const orch_sandbox *sandbox, const struct sandbox_path *rule,
			   const struct sandbox_path *next)
{
	const struct sandbox_path *above = rule_up(sandbox, rule->inner, parent_length(rule->inner));

	if (above)
		return orch_rule_denies(above);
	return !orch_rule_preset(sandbox, rule->inner) && !(next && orch_path_is_below(next->inner, rule->inner));
}

/*
 * The right to read is Landlock's to give, for a folder and all below it, across mounts: it can not be taken away from what
 * lies deeper, but by closing that.
 */
static int32_t check_reading(const orch_sandbox *sandbox, const struct sandbox_path *rule, orch_error **reterr)
{
	const char *reader = NULL;

	if (orch_rule_access(rule) & ORCH_PATH_READ)
		return 0;
	for (const struct sandbox_path *above = rule; !reader && above;) {
		above = rule_up(sandbox, above->inner, parent_length(above->inner));
		if (above && orch_rule_access(above) & ORCH_PATH_READ)
			reader = above->inner;
	}
	const struct preset_path *preset = reader ? NULL : orch_rule_preset(sandbox, rule->inner);

	if (preset && preset->access & ORCH_PATH_READ)
		reader = preset->path;
	if (!reader)
		return 0;
	return orch_fail(reterr, ORCH_EUNENFORCEABLE, 0, "rules",
			 "%s is not to be read, but lies below %s, which is: give it a place of its own, or deny it",
			 rule->inner, reader);
}

/* The one after it that is for another path; the list ends in NULL. */
static const struct sandbox_path *next_path(const struct sandbox_path *const *rule)
{
	const struct sandbox_path *const *next = rule + 1;

	return *next && strcmp((*next)->inner, (*rule)->inner) == 0 ? next[1] : *next;
}

int32_t orch_rules_resolve(const orch_sandbox *sandbox, struct sandbox_rules *ret_rules, orch_error **reterr)
{
	size_t count = 0;
	int32_t code = 0;
	const struct sandbox_path *before = NULL;
	_cleanup_free_ const struct sandbox_path **rules = calloc(sandbox->path_count + 1, sizeof(*rules));

	if (!rules)
		return orch_fail_memory(reterr);
	for (size_t i = 0; i < sandbox->path_count; i++)
		rules[i] = &sandbox->paths[i];
	qsort(rules, sandbox->path_count, sizeof(*rules), in_tree_order);
	for (size_t i = 0; code == 0 && i < sandbox->path_count; i++) {
		const struct sandbox_path *rule = rules[i];

		/* Kept or not, the denial of a path came first. */
		if (before && strcmp(before->inner, rule->inner) == 0)
			continue;
		before = rule;
		if (!orch_rule_denies(rule))
			code = check_reading(sandbox, rule, reterr);
		else if (is_idle_denial(sandbox, rule, next_path(&rules[i])))
			continue;
		rules[count++] = rule;
	}
	if (code < 0)
		return code;
	ret_rules->rules = ORCH_STEAL(rules);
	ret_rules->count = count;
	return 0;
}
