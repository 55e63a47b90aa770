/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "verify-private.h"

#define START_TIMEOUT_MS 10000u
#define PARALLEL 4u /* a check mostly waits: for its sandboxes, for the product */
#define PARALLEL_MAX 64u

/* One check of the order, and its run while it is under way. */
struct slot {
	struct verify *verify;
	const struct check *check;
	char *work_dir;
	struct check_run *run;
};

struct verify {
	orch_ctx *ctx;
	verify_fn fn;
	void *userdata;
	char *trees_dir, *sealed_dir, *work_dir;
	char *tree_dir; /* the checkout; it is named like the tree, so that tree_verify() can judge
			   it */
	char tree_hash[TREE_HASH_SIZE];
	bool stub;
	uint32_t start_timeout_ms, parallel;
	const struct spec *spec;
	struct slot *slots;
	size_t count, next, running, finished;
	bool prepared;
	struct verify_result result;
	orch_source
	    *turn; /* all progress is made here, so that a run is never freed in its own callback */
};

static void verdict(struct verify *verify, const struct verify_result *result,
		    const orch_error *error)
{
	orch_source_timer_set(verify->turn, -1);
	/* Last: the callback may free the verification. */
	verify->fn(verify->userdata, result, error);
}

static void clean_up(struct verify *verify)
{
	orch_error *error = NULL;
	if (tree_remove(verify->work_dir, &error) < 0)
		orch_ctx_logf(verify->ctx, ORCH_LOG_WARNING, "verification: %s was not removed: %s",
			      verify->work_dir, orch_error_message(error));
	orch_error_free(error);
}

/* --- the tree
 * ----------------------------------------------------------------------------------------- */

static int32_t prepare(struct verify *verify, orch_error **reterr)
{
	if (mkdir(verify->work_dir, 0700) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "verify",
				 "the scratch folder %s can not be made%s", verify->work_dir,
				 errno == EEXIST ? ": it exists; remove it, or name another" : "");
	if (verify->stub)
		return 0;
	if (strcmp(verify->tree_hash, tree_empty_hash) == 0) {
		/* The host's umask is not the library's to change, and the product's uid has to get
		 * in. */
		if (mkdir(verify->tree_dir, 0755) < 0 || chmod(verify->tree_dir, 0755) < 0)
			return orch_fail(reterr, ORCH_ESYS, errno, "verify", "%s can not be made",
					 verify->tree_dir);
	} else {
		int32_t code =
		    tree_checkout(verify->trees_dir, verify->tree_hash, verify->tree_dir, reterr);
		if (code < 0)
			return code;
	}
	return tree_verify(verify->work_dir, verify->tree_hash, reterr);
}

/* Read again when all is over: what ran is what was ordered, also if something had found a way to
 * write. */
static int32_t confirm(struct verify *verify, orch_error **reterr)
{
	if (verify->stub)
		return 0;
	return tree_verify(verify->work_dir, verify->tree_hash, reterr);
}

/* --- the checks
 * ----------------------------------------------------------------------------------------- */

static void on_run_done(void *userdata)
{
	struct slot *slot = userdata;
	struct verify *verify = slot->verify;
	verify->running--;
	verify->finished++;
	orch_source_timer_set(verify->turn, 0);
}

static int32_t start_slot(struct verify *verify, struct slot *slot, orch_error **reterr)
{
	slot->work_dir =
	    orch_strdup_printf("%s/check-%zu", verify->work_dir, (size_t)(slot - verify->slots));
	if (!slot->work_dir)
		return orch_fail_memory(reterr);
	struct check_run_opts opts = {
	    .spec = verify->spec,
	    .check = slot->check,
	    .sealed_dir = verify->sealed_dir,
	    .tree_dir = verify->stub ? NULL : verify->tree_dir,
	    .work_dir = slot->work_dir,
	    .start_timeout_ms = verify->start_timeout_ms,
	};
	int32_t code = check_run_new(verify->ctx, &opts, on_run_done, slot, &slot->run, reterr);
	if (code == 0)
		verify->running++;
	return code;
}

static void collect(struct verify *verify)
{
	verify->result.all_passed = verify->count > 0;
	for (size_t i = 0; i < verify->count; i++) {
		struct check_result *result = &verify->result.results[i];
		uint32_t not_dead = 0;
		check_run_result(verify->slots[i].run, result, &not_dead);
		verify->slots[i].run = check_run_free(verify->slots[i].run);
		verify->result.deaths_not_dead += not_dead;
		if (result->verdict != VERDICT_PASS)
			verify->result.all_passed = false;
	}
	verify->result.count = verify->count;
	memcpy(verify->result.tree_hash, verify->stub ? tree_empty_hash : verify->tree_hash,
	       TREE_HASH_SIZE);
}

static void kill_runs(struct verify *verify)
{
	for (size_t i = 0; i < verify->count; i++)
		verify->slots[i].run = check_run_free(verify->slots[i].run);
	verify->running = 0;
}

static void give_up(struct verify *verify, orch_error *error)
{
	kill_runs(verify);
	clean_up(verify);
	verdict(verify, NULL, error);
	orch_error_free(error);
}

static void on_turn(void *userdata)
{
	struct verify *verify = userdata;
	orch_error *error = NULL;
	int32_t code = 0;

	if (!verify->prepared) {
		code = prepare(verify, &error);
		verify->prepared = true;
	}
	while (code == 0 && verify->next < verify->count && verify->running < verify->parallel)
		code = start_slot(verify, &verify->slots[verify->next++], &error);
	if (code == 0 && verify->finished < verify->count)
		return;
	if (code == 0)
		code = confirm(verify, &error);
	if (code < 0) {
		give_up(verify, error);
		return;
	}
	collect(verify);
	clean_up(verify);
	verdict(verify, &verify->result, NULL);
}

/* --- start and end
 * ----------------------------------------------------------------------------------------- */

static const struct check *find_check(const struct checks *checks, const char *id)
{
	for (size_t i = 0; i < checks->count; i++)
		if (strcmp(checks->checks[i].id, id) == 0)
			return &checks->checks[i];
	return NULL;
}

static int32_t choose_checks(struct verify *verify, const struct verify_opts *opts,
			     orch_error **reterr)
{
	size_t count = 0;
	if (opts->check_ids)
		while (opts->check_ids[count])
			count++;
	else
		count = opts->checks->count;
	if (!count)
		return orch_fail(reterr, ORCH_EINVAL, 0, "verify",
				 "there is no check to run: nothing can be verified");
	verify->slots = calloc(count, sizeof(*verify->slots));
	verify->result.results = calloc(count, sizeof(*verify->result.results));
	if (!verify->slots || !verify->result.results)
		return orch_fail_memory(reterr);
	for (size_t i = 0; i < count; i++) {
		const struct check *check = opts->check_ids
						? find_check(opts->checks, opts->check_ids[i])
						: &opts->checks->checks[i];
		if (!check)
			return orch_fail(reterr, ORCH_ENOENT, 0, "verify", "there is no check %s",
					 opts->check_ids[i]);
		verify->slots[i].verify = verify;
		verify->slots[i].check = check;
	}
	verify->count = count;
	return 0;
}

static int32_t copy_opts(struct verify *verify, const struct verify_opts *opts, orch_error **reterr)
{
	verify->trees_dir = strdup(opts->trees_dir ? opts->trees_dir : "");
	verify->sealed_dir = strdup(opts->sealed_dir);
	verify->work_dir = strdup(opts->work_dir);
	verify->tree_dir = orch_strdup_printf("%s/%s", opts->work_dir, verify->tree_hash);
	if (!verify->trees_dir || !verify->sealed_dir || !verify->work_dir || !verify->tree_dir)
		return orch_fail_memory(reterr);
	verify->stub = opts->stub;
	verify->spec = opts->spec;
	verify->start_timeout_ms =
	    opts->start_timeout_ms ? opts->start_timeout_ms : START_TIMEOUT_MS;
	verify->parallel = opts->parallel ? opts->parallel : PARALLEL;
	if (verify->parallel > PARALLEL_MAX)
		verify->parallel = PARALLEL_MAX;
	return 0;
}

int32_t verify_start(orch_ctx *ctx, const struct verify_opts *opts, verify_fn fn, void *userdata,
		     struct verify **ret_verify, orch_error **reterr)
{
	int32_t code = orch_ctx_check(ctx, reterr);
	if (code < 0)
		return code;
	if (!fn || !ret_verify || !opts->spec || !opts->checks || !opts->sealed_dir ||
	    !opts->work_dir ||
	    (!opts->stub && (!opts->trees_dir || !opts->tree_hash ||
			     strlen(opts->tree_hash) != TREE_HASH_SIZE - 1)))
		return orch_fail(reterr, ORCH_EINVAL, 0, "verify",
				 "a verification needs spec, checks, folders and the tree's hash");
	struct verify *verify = calloc(1, sizeof(*verify));
	if (!verify)
		return orch_fail_memory(reterr);
	verify->ctx = orch_ctx_ref(ctx);
	verify->fn = fn;
	verify->userdata = userdata;
	memcpy(verify->tree_hash, opts->stub ? tree_empty_hash : opts->tree_hash, TREE_HASH_SIZE);
	if ((code = copy_opts(verify, opts, reterr)) < 0 ||
	    (code = choose_checks(verify, opts, reterr)) < 0 ||
	    (code = orch_source_timer(ctx, 0, on_turn, verify, &verify->turn, reterr)) < 0) {
		verify_free(verify);
		return code;
	}
	*ret_verify = verify;
	return 0;
}

static void free_result(struct verify_result *result)
{
	for (size_t i = 0; i < result->count; i++) {
		free(result->results[i].check_id);
		free(result->results[i].detail);
		free(result->results[i].check_death);
		free(result->results[i].product_death);
	}
	free(result->results);
}

struct verify *verify_free(struct verify *verify)
{
	if (!verify)
		return NULL;
	verify->turn = orch_source_remove(verify->turn);
	bool under_way = verify->running > 0;
	kill_runs(verify);
	if (under_way)
		clean_up(verify);
	for (size_t i = 0; i < verify->count; i++)
		free(verify->slots[i].work_dir);
	free_result(&verify->result);
	free(verify->slots);
	free(verify->trees_dir);
	free(verify->sealed_dir);
	free(verify->work_dir);
	free(verify->tree_dir);
	orch_ctx *ctx = verify->ctx;
	free(verify);
	orch_ctx_unref(ctx);
	return NULL;
}
