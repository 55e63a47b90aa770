/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "pipeline-private.h"

/* A verification that could not be run at all is run once more; then it counts as not passed. */
#define TRIES 2
#define DETAIL_LIMIT 2000
#define CERTIFICATE_LIMIT 4000

struct set {
	const struct spec *spec;
	const struct checks *checks;
	char *sealed_dir;
	char **check_ids; /* NULL: all */
	bool earlier;
};

struct judgement {
	orch_pipeline *pipeline;
	struct judgement *next;
	char *purpose, *task, *tree;
	uint32_t attempt;
	bool stub;
	struct set sets[2];
	size_t set_count, current;
	struct checks *candidate;
	struct verify *verify;
	orch_source *timer; /* what a callback decided is done outside of it */
	uint32_t tries;
	json_t *results, *certificates;
	bool all_passed;
	char *error;
	bool infrastructure; /* this try failed for a reason that is not the product's */
	bool over;
};

static void free_list(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

static char **copy_list(char *const *list)
{
	size_t count = 0;
	while (list[count])
		count++;
	char **copy = calloc(count + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < count; i++)
		if (!(copy[i] = strdup(list[i]))) {
			free_list(copy);
			return NULL;
		}
	return copy;
}

static void judgement_free(struct judgement *judgement)
{
	verify_free(judgement->verify);
	orch_source_remove(judgement->timer);
	for (size_t i = 0; i < judgement->set_count; i++) {
		free(judgement->sets[i].sealed_dir);
		free_list(judgement->sets[i].check_ids);
	}
	checks_free(judgement->candidate);
	json_decref(judgement->results);
	json_decref(judgement->certificates);
	free(judgement->purpose);
	free(judgement->task);
	free(judgement->tree);
	free(judgement->error);
	free(judgement);
}

static void judgement_unlink(struct judgement *judgement)
{
	struct judgement **link = &judgement->pipeline->judgements;
	while (*link && *link != judgement)
		link = &(*link)->next;
	if (*link)
		*link = judgement->next;
}

void judge_drop_all(orch_pipeline *p)
{
	while (p->judgements) {
		struct judgement *judgement = p->judgements;
		p->judgements = judgement->next;
		judgement_free(judgement);
	}
}

bool judge_in_flight(const orch_pipeline *p, const char *purpose, const char *task)
{
	for (const struct judgement *judgement = p->judgements; judgement;
	     judgement = judgement->next)
		if (!strcmp(judgement->purpose, purpose) && !strcmp(judgement->task, task))
			return true;
	return false;
}

/* --- results --------------------------------------------------------------------------------- */

static const char *verdict_name(uint32_t verdict)
{
	switch (verdict) {
	case VERDICT_PASS:
		return "pass";
	case VERDICT_FAIL:
		return "fail";
	case VERDICT_TIMEOUT:
		return "timeout";
	default:
		return "error";
	}
}

static const struct check *find_check(const struct checks *checks, const char *id)
{
	for (size_t i = 0; i < checks->count; i++)
		if (!strcmp(checks->checks[i].id, id))
			return &checks->checks[i];
	return NULL;
}

static void add_certificate(json_t *array, const char *check, const char *what, const char *text)
{
	if (text)
		json_array_append_new(array,
				      json_pack("{s:s, s:s, s:o}", "check", check, "of", what,
						"text", json_foreign(text, CERTIFICATE_LIMIT)));
}

static void add_result(struct judgement *judgement, const struct set *set,
		       const struct check_result *result)
{
	const struct check *check = find_check(set->checks, result->check_id);
	json_array_append_new(
		judgement->results,
		json_pack("{s:s, s:s, s:b, s:b, s:s, s:i, s:i, s:o, s:I, s:I, s:I}", "check",
			  result->check_id, "requirement", check ? check->requirement : "",
			  "hidden", check && check->hidden, "earlier", set->earlier, "verdict",
			  verdict_name(result->verdict), "passed", (int)result->passed, "failed",
			  (int)result->failed, "detail",
			  json_foreign(result->detail ? result->detail : "", DETAIL_LIMIT), "ms",
			  (json_int_t)result->duration_ms, "check_uid",
			  (json_int_t)result->check_uid, "product_uid",
			  (json_int_t)result->product_uid));
	add_certificate(judgement->certificates, result->check_id, "check", result->check_death);
	add_certificate(judgement->certificates, result->check_id, "product",
			result->product_death);
	if (result->verdict == VERDICT_ERROR)
		judgement->infrastructure = true;
	if (result->verdict != VERDICT_PASS)
		judgement->all_passed = false;
}

static void set_error(struct judgement *judgement, const char *text)
{
	free(judgement->error);
	judgement->error = strdup(text);
	judgement->infrastructure = true;
	judgement->all_passed = false;
}

static size_t list_length(char *const *list)
{
	size_t count = 0;
	while (list && list[count])
		count++;
	return count;
}

static void take_result(struct judgement *judgement, const struct verify_result *result)
{
	const struct set *set = &judgement->sets[judgement->current];
	const char *wanted = judgement->stub ? NULL : judgement->tree;
	size_t expected = set->check_ids ? list_length(set->check_ids) : set->checks->count;
	for (size_t i = 0; i < result->count; i++)
		add_result(judgement, set, &result->results[i]);
	/* Each of these would be a verification of something else than was asked for. */
	if (wanted && strcmp(result->tree_hash, wanted))
		set_error(judgement, "another tree was verified than the one that was submitted");
	else if (result->count != expected)
		set_error(judgement, "results are missing");
	else if (result->deaths_not_dead)
		set_error(judgement, "a check or a product was not proved dead after it");
	else if (!result->all_passed)
		judgement->all_passed = false;
}

/* --- running --------------------------------------------------------------------------------- */

static void judgement_over(struct judgement *judgement)
{
	orch_pipeline *p = judgement->pipeline;
	orch_error *error = NULL;
	/* Not the product's fault, and not recorded as such: it is verified again when there is
	 * room. */
	if (judgement->infrastructure && workspace_check_room(p, &error) < 0) {
		pipeline_fail(p, error);
		return;
	}
	json_t *record = json_pack("{s:s, s:s, s:I, s:s, s:b, s:b, s:s*, s:O, s:O}", "purpose",
				   judgement->purpose, "task", judgement->task, "attempt",
				   (json_int_t)judgement->attempt, "tree", judgement->tree, "stub",
				   judgement->stub, "all_passed", judgement->all_passed, "error",
				   judgement->error, "results", judgement->results, "certificates",
				   judgement->certificates);
	run_store(p, "verify", record, "verify/%s/%s/%u/%.16s", judgement->purpose, judgement->task,
		  judgement->attempt, judgement->tree);
	judgement_unlink(judgement);
	judgement_free(judgement);
	pipeline_schedule(p);
}

static void run_set(struct judgement *judgement);

static void begin_try(struct judgement *judgement)
{
	judgement->tries++;
	judgement->current = 0;
	judgement->all_passed = true;
	judgement->infrastructure = false;
	free(judgement->error);
	judgement->error = NULL;
	json_array_clear(judgement->results);
	json_array_clear(judgement->certificates);
	if (judgement->set_count) {
		run_set(judgement);
	} else {
		/* Zero checks are no pass. */
		set_error(judgement, "there is no check");
		orch_source_timer_set(judgement->timer, 0);
	}
}

static void on_timer(void *userdata)
{
	struct judgement *judgement = userdata;
	judgement->verify = verify_free(judgement->verify);
	if (!judgement->infrastructure && ++judgement->current < judgement->set_count)
		run_set(judgement);
	else if (judgement->infrastructure && judgement->tries < TRIES)
		begin_try(judgement);
	else
		judgement_over(judgement);
}

static void on_verified(void *userdata, const struct verify_result *result, const orch_error *error)
{
	struct judgement *judgement = userdata;
	if (result)
		take_result(judgement, result);
	else
		set_error(judgement, orch_error_message(error));
	orch_source_timer_set(judgement->timer, 0);
}

static void run_set(struct judgement *judgement)
{
	orch_pipeline *p = judgement->pipeline;
	const struct set *set = &judgement->sets[judgement->current];
	char random[9];
	orch_random_hex(random, 4);
	_cleanup_free_ char *work_dir = orch_strdup_printf("%s/verify-%s", p->work_dir, random);
	orch_error *error = NULL;
	struct verify_opts opts = {
		.trees_dir = p->trees_dir,
		.tree_hash = judgement->stub ? tree_empty_hash : judgement->tree,
		.sealed_dir = set->sealed_dir,
		.work_dir = work_dir,
		.spec = set->spec,
		.checks = set->checks,
		.check_ids = (const char *const *)set->check_ids,
		.stub = judgement->stub,
	};
	int32_t code = seal_check(p, &error);
	if (code < 0) {
		pipeline_fail(p, error);
		return;
	}
	code = work_dir ? verify_start(p->ctx, &opts, on_verified, judgement, &judgement->verify,
				       &error)
			: orch_fail_memory(&error);
	if (code < 0) {
		set_error(judgement, orch_error_message(error));
		orch_error_free(error);
		orch_source_timer_set(judgement->timer, 0);
	}
}

static struct judgement *judgement_new(orch_pipeline *p, const char *purpose, const char *task,
				       uint32_t attempt, const char *tree,
				       const struct judge_set *sets, size_t set_count, bool stub)
{
	struct judgement *judgement = calloc(1, sizeof(*judgement));
	if (!judgement)
		return NULL;
	judgement->pipeline = p;
	judgement->purpose = strdup(purpose);
	judgement->task = strdup(task);
	judgement->tree = strdup(tree);
	judgement->attempt = attempt;
	judgement->stub = stub;
	judgement->results = json_array();
	judgement->certificates = json_array();
	bool complete =
		judgement->purpose && judgement->task && judgement->tree && judgement->results &&
		judgement->certificates &&
		orch_source_timer(p->ctx, -1, on_timer, judgement, &judgement->timer, NULL) == 0;
	for (size_t i = 0; complete && i < set_count; i++) {
		struct set *set = &judgement->sets[judgement->set_count++];
		set->spec = sets[i].spec;
		set->checks = sets[i].checks;
		set->earlier = sets[i].earlier;
		set->sealed_dir = strdup(sets[i].sealed_dir);
		if (sets[i].check_ids)
			set->check_ids = copy_list(sets[i].check_ids);
		complete = set->sealed_dir && (!sets[i].check_ids || set->check_ids);
	}
	if (complete)
		return judgement;
	judgement_free(judgement);
	return NULL;
}

void judge_start(orch_pipeline *p, const char *purpose, const char *task, uint32_t attempt,
		 const char *tree, const struct judge_set *sets, size_t set_count, bool stub,
		 struct checks *candidate)
{
	if (judge_in_flight(p, purpose, task)) {
		checks_free(candidate);
		return;
	}
	struct judgement *judgement =
		judgement_new(p, purpose, task, attempt, tree, sets, set_count, stub);
	if (!judgement) {
		orch_error *error = NULL;
		checks_free(candidate);
		orch_fail_memory(&error);
		pipeline_fail(p, error);
		return;
	}
	judgement->candidate = candidate;
	judgement->next = p->judgements;
	p->judgements = judgement;
	begin_try(judgement);
}

size_t judge_sets(const orch_pipeline *p, char *const *ids, struct judge_set sets[2],
		  char ***ret_earlier_ids)
{
	size_t count = 0;
	*ret_earlier_ids = earlier_required(p);
	if (!ids || ids[0])
		sets[count++] = (struct judge_set){.spec = p->spec,
						   .checks = p->checks,
						   .sealed_dir = p->sealed_dir,
						   .check_ids = ids};
	if (*ret_earlier_ids && (*ret_earlier_ids)[0])
		sets[count++] = (struct judge_set){.spec = p->spec,
						   .checks = p->earlier_checks,
						   .sealed_dir = p->earlier_dir,
						   .check_ids = *ret_earlier_ids,
						   .earlier = true};
	return count;
}

/* --- what may be told ------------------------------------------------------------------------ */

static char *result_text(const json_t *result, bool hidden)
{
	const char *requirement = json_text(result, "requirement"),
		   *verdict = json_text(result, "verdict");
	const char *earlier = json_bool(result, "earlier") ? "an earlier requirement, " : "";
	if (json_bool(result, "hidden") && !hidden)
		return orch_strdup_printf("%s%s: a hidden check failed", earlier, requirement);
	return orch_strdup_printf(
		"%s%s: check %s: %s (%lld points ok, %lld not ok)%s%s", earlier, requirement,
		json_text(result, "check"), verdict, (long long)json_int(result, "passed"),
		(long long)json_int(result, "failed"), json_text(result, "detail")[0] ? ": " : "",
		json_text(result, "detail"));
}

json_t *judge_evidence(const json_t *verification, bool hidden)
{
	json_t *reasons = json_array();
	if (json_text(verification, "error")[0])
		json_array_append_new(reasons, json_string(json_text(verification, "error")));
	size_t i;
	json_t *result;
	json_array_foreach(json_object_get(verification, "results"), i, result)
	{
		if (!strcmp(json_text(result, "verdict"), "pass"))
			continue;
		_cleanup_free_ char *text = result_text(result, hidden);
		if (text)
			json_array_append_new(reasons, json_string(text));
	}
	return reasons;
}
