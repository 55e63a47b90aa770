/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "pipeline-private.h"

static void add(json_t *rows, const char *name, bool holds, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static void add(json_t *rows, const char *name, bool holds, const char *format, ...)
{
	va_list arguments;
	_cleanup_free_ char *detail = NULL;
	va_start(arguments, format);
	if (vasprintf(&detail, format, arguments) < 0)
		detail = NULL;
	va_end(arguments);
	json_array_append_new(rows, json_pack("{s:s, s:b, s:o}", "name", name, "holds", holds,
					      "detail", json_foreign(detail ? detail : "", 2000)));
}

static const json_t *passed_on(const orch_pipeline *p, const char *task, const char *tree)
{
	size_t i;
	json_t *record;
	json_array_foreach(p->model->verifications, i, record)
	{
		if (!strcmp(json_text(record, "task"), task) &&
		    !strcmp(json_text(record, "tree"), tree) && !json_bool(record, "stub") &&
		    json_bool(record, "all_passed"))
			return record;
	}
	return NULL;
}

/* Nothing an executor prints can make a task VERIFIED. */
static void only_the_verifier(const orch_pipeline *p, json_t *rows)
{
	size_t tasks = 0, without = 0;
	for (size_t i = 0; i < p->model->task_count; i++) {
		const struct model_task *task = &p->model->tasks[i];
		if (task->state != TASK_VERIFIED && task->state != TASK_MERGED)
			continue;
		tasks++;
		if (!task->tree || !passed_on(p, task->id, task->tree))
			without++;
	}
	add(rows, "only a verification makes a task VERIFIED", !without,
	    "%zu tasks were verified; %zu of them without a passed verification of the submitted "
	    "tree",
	    tasks, without);
}

/* The hash of what was verified is the hash of what was merged. */
static void verified_is_merged(const orch_pipeline *p, json_t *rows)
{
	size_t i, other = 0;
	json_t *merge;
	json_array_foreach(p->model->merges, i, merge)
	{
		if (!passed_on(p, json_text(merge, "task"), json_text(merge, "tree")))
			other++;
	}
	add(rows, "the verified tree is the merged tree", !other,
	    "%zu merges, %zu of a tree that was not verified", i, other);
}

static void accepted_is_delivered(const orch_pipeline *p, json_t *rows)
{
	const json_t *delivery = p->model->delivery;
	if (!delivery) {
		add(rows, "the accepted tree is the delivered tree", true, "nothing was delivered");
		return;
	}
	const char *tree = json_text(delivery, "tree");
	const json_t *accept = model_verification(p->model, "accept", NO_TASK, 0, tree);
	orch_error *error = NULL;
	bool stored = tree_verify(p->trees_dir, tree, &error) == 0;
	bool whole = p->model->state != ORCH_RUN_DELIVERED || json_bool(accept, "all_passed");
	add(rows, "the accepted tree is the delivered tree", accept && stored && whole,
	    "tree %.16s: %s%s%s", tree,
	    !accept ? "no verification of it is recorded"
	    : whole ? "verified as delivered"
		    : "a check failed on it",
	    stored ? "" : "; ", stored ? "" : orch_error_message(error));
	orch_error_free(error);
}

static void seals_unchanged(orch_pipeline *p, json_t *rows)
{
	orch_error *error = NULL;
	bool holds = seal_check(p, &error) == 0;
	add(rows, "specification, checks and plan are unchanged since sealing", holds,
	    "%s%zu documents", holds ? "hashes compared again: " : orch_error_message(error),
	    json_object_size(p->model->seals));
	orch_error_free(error);
}

static void no_survivor(const orch_pipeline *p, json_t *rows)
{
	size_t i, dead = 0, lost = 0, none = 0, other = 0;
	json_t *attempt;
	json_array_foreach(p->model->attempts, i, attempt)
	{
		const char *verdict = json_text(attempt, "verdict");
		if (!strcmp(verdict, "DEAD"))
			dead++;
		else if (!strcmp(json_text(attempt, "end"), "LOST"))
			lost++;
		else if (!strcmp(verdict, "NOT_STARTED"))
			none++;
		else
			other++;
	}
	add(rows, "no process survives an attempt", !other,
	    "%zu attempts: %zu with certificate DEAD, %zu never started, %zu lost with the "
	    "coordinator (no certificate), %zu "
	    "not proved",
	    i, dead, none, lost, other);
}

static void within_budget(orch_pipeline *p, json_t *rows)
{
	const struct model *model = p->model;
	struct spending spent;
	orch_error *error = NULL;
	if (run_spending(p->journal, &spent, &error) < 0) {
		add(rows, "spent at most the cap and one call in flight", false, "%s",
		    orch_error_message(error));
		orch_error_free(error);
		return;
	}
	bool holds =
		(!model->max_requests || spent.requests <= model->max_requests + 1) &&
		(!model->max_tokens || spent.tokens <= model->max_tokens + spent.largest_tokens) &&
		(!model->max_micro_usd ||
		 spent.micro_usd <= model->max_micro_usd + spent.largest_micro_usd);
	add(rows, "spent at most the cap and one call in flight", holds,
	    "%llu requests (cap %llu), %llu tokens (cap %llu), %llu micro-USD (cap %llu); a cap of "
	    "0 is none",
	    (unsigned long long)spent.requests, (unsigned long long)model->max_requests,
	    (unsigned long long)spent.tokens, (unsigned long long)model->max_tokens,
	    (unsigned long long)spent.micro_usd, (unsigned long long)model->max_micro_usd);
}

struct operations {
	size_t all, confirmed, failed, unknown;
};

static int32_t count_operation(void *userdata, orch_action *action)
{
	struct operations *operations = userdata;
	uint32_t state = orch_action_state(action);
	operations->all++;
	if (state == ORCH_ACTION_CONFIRMED || state == ORCH_ACTION_OBSERVED)
		operations->confirmed++;
	else if (state == ORCH_ACTION_FAILED || state == ORCH_ACTION_INTENT)
		operations->failed++;
	else
		operations->unknown++;
	return 0;
}

static void operations_known(orch_pipeline *p, json_t *rows)
{
	struct operations operations = {0};
	orch_error *error = NULL;
	bool read =
		orch_journal_each(p->journal, "notify.", count_operation, &operations, &error) == 0;
	add(rows, "every operation with an effect outside has a known outcome",
	    read && !operations.unknown,
	    "%s%zu operations: %zu done, %zu known not to have happened, %zu unknown or with a "
	    "person",
	    orch_error_message(error), operations.all, operations.confirmed, operations.failed,
	    operations.unknown);
	orch_error_free(error);
}

static size_t not_failed(const json_t *verification)
{
	size_t i, count = 0;
	json_t *result;
	json_array_foreach(json_object_get(verification, "results"), i, result)
	{
		const char *verdict = json_text(result, "verdict");
		if (strcmp(verdict, "fail") && strcmp(verdict, "timeout"))
			count++;
	}
	return count;
}

/* Each sealed check was seen to fail before there was an implementation. */
static void checks_can_fail(const orch_pipeline *p, json_t *rows)
{
	const json_t *seal = model_seal(p->model, "checks");
	if (!seal)
		return;
	uint32_t attempt = (uint32_t)json_int(seal, "attempt");
	const json_t *base = model_verification(p->model, "base", NO_TASK, attempt, NULL);
	const json_t *stub = model_verification(p->model, "stub", NO_TASK, attempt, NULL);
	size_t count = json_array_size(json_object_get(seal, "checks"));
	bool complete = base && stub &&
			json_array_size(json_object_get(base, "results")) == count &&
			json_array_size(json_object_get(stub, "results")) == count;
	size_t good = not_failed(base) + not_failed(stub);
	add(rows, "every check failed on the base tree and on the stub", complete && !good,
	    "%zu checks; %zu results on base and stub, %zu of them no failure", count,
	    json_array_size(json_object_get(base, "results")) +
		    json_array_size(json_object_get(stub, "results")),
	    good);
}

/* A product and its check never share a uid, where the host has uids to give (an ordinary user has
 * one). */
static void checks_apart(const orch_pipeline *p, json_t *rows)
{
	size_t i, k, runs = 0, same = 0;
	json_t *record, *result;
	json_array_foreach(p->model->verifications, i, record)
	{
		json_array_foreach(json_object_get(record, "results"), k, result)
		{
			int64_t check = json_int(result, "check_uid"),
				product = json_int(result, "product_uid");
			if (json_bool(record, "stub") || !product)
				continue;
			runs++;
			same += check == product && geteuid() == 0;
		}
	}
	add(rows, "checks run apart from the product", !same,
	    "%zu runs, %zu with the product's uid%s", runs, same,
	    geteuid() == 0 ? "" : " (an ordinary user has one uid; the namespaces are apart)");
}

static void chain(orch_pipeline *p, json_t *rows)
{
	uint64_t records = 0;
	orch_error *error = NULL;
	bool holds = orch_journal_verify(p->journal, &records, &error) == 0;
	add(rows, "the journal's hash chain is whole", holds, "%llu records%s%s",
	    (unsigned long long)records, holds ? "" : ": ", holds ? "" : orch_error_message(error));
	orch_error_free(error);
}

json_t *invariants_check(orch_pipeline *p)
{
	json_t *rows = json_array();
	only_the_verifier(p, rows);
	verified_is_merged(p, rows);
	accepted_is_delivered(p, rows);
	seals_unchanged(p, rows);
	checks_can_fail(p, rows);
	checks_apart(p, rows);
	no_survivor(p, rows);
	within_budget(p, rows);
	operations_known(p, rows);
	chain(p, rows);
	return rows;
}
