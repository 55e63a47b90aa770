/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "pipeline-private.h"

#define JOURNAL_PAYLOAD_LIMIT (16u * 1024u * 1024u)
#define CHANNELS_TIMEOUT_MS 20000
#define INSTALLED ORCH_DATADIR "/liborch/schemas"

char *path_join(const char *dir, const char *name)
{
	return orch_strdup_printf("%s/%s", dir, name);
}

int32_t make_dir(const char *path, uint32_t mode, orch_error **reterr)
{
	if (mkdir(path, mode) < 0) {
		if (errno == EEXIST)
			return 0;
		return orch_fail(reterr,
				 errno == ENOSPC   ? ORCH_ENOSPC
				 : errno == ENOENT ? ORCH_ENOENT
						   : ORCH_ESYS,
				 errno, "mkdir", "folder %s can not be made", path);
	}
	/* The host's umask must not decide what a sandbox can read. */
	if (chmod(path, mode) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "chmod", "mode of %s can not be set",
				 path);
	return 0;
}

/* --- options --------------------------------------------------------------------------------- */

static int32_t copy(char **target, const char *text, orch_error **reterr)
{
	if (text && !(*target = strdup(text)))
		return orch_fail_memory(reterr);
	return 0;
}

/* Absolute, with links resolved: `path` itself if it exists, else its parent. */
static int32_t resolve(const char *path, const char *what, bool may_be_missing, char **ret_path,
		       orch_error **reterr)
{
	char *full = realpath(path, NULL);
	if (full) {
		*ret_path = full;
		return 0;
	}
	if (errno != ENOENT || !may_be_missing)
		return orch_fail(reterr, errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno, NULL,
				 "%s %s", what, path);
	_cleanup_free_ char *parent = strdup(path);
	if (!parent)
		return orch_fail_memory(reterr);
	size_t length = strlen(parent);
	while (length > 1 && parent[length - 1] == '/')
		parent[--length] = '\0';
	char *slash = strrchr(parent, '/');
	_cleanup_free_ char *name = strdup(slash ? slash + 1 : parent);
	if (slash)
		slash[slash == parent ? 1 : 0] = '\0';
	_cleanup_free_ char *base = realpath(slash ? parent : ".", NULL);
	if (!name || !base)
		return orch_fail(reterr, errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno, NULL,
				 "%s %s: its parent folder has to exist", what, path);
	*ret_path = strcmp(base, "/") ? path_join(base, name) : orch_strdup_printf("/%s", name);
	return *ret_path ? 0 : orch_fail_memory(reterr);
}

static bool has_schemas(const char *dir)
{
	_cleanup_free_ char *file = dir ? path_join(dir, "plan.rng") : NULL;
	return file && access(file, R_OK) == 0;
}

static int32_t find_schemas(const char *given, char **ret_dir, orch_error **reterr)
{
	static const char *const beside[] = {"pipeline", "schemas", "../lib/pipeline", "../../lib/pipeline",
					     NULL};
	if (given) {
		if (!has_schemas(given))
			return orch_fail(
				reterr, ORCH_ENOENT, 0, NULL,
				"schema_dir %s does not hold spec.rng, checks.rng and plan.rng",
				given);
		return copy(ret_dir, given, reterr);
	}
	char *dir = orch_place_find(beside, INSTALLED, has_schemas);
	if (!dir)
		return orch_fail(reterr, ORCH_ENOENT, 0, NULL,
				 "the schemas are neither beside the library nor in its prefix nor in " ORCH_PREFIX
				 "/" INSTALLED ": install liborch's data, or set schema_dir");
	*ret_dir = dir;
	return 0;
}

static bool has(const char *dir, const char *name)
{
	_cleanup_free_ char *path = path_join(dir, name);
	return path && access(path, F_OK) == 0;
}

/* Said before anything is made. What git itself thinks of it is found out in a sandbox. */
static int32_t check_repository(const char *dir, orch_error **reterr)
{
	if (has(dir, ".git") || (has(dir, "HEAD") && has(dir, "objects")))
		return 0;
	return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
			 "%s is not a git repository: give the folder of one, or run \"git init\" "
			 "and commit there",
			 dir);
}

static int32_t read_options(orch_pipeline *p, const struct orch_pipeline_opts *opts,
			    orch_error **reterr)
{
	bool resume = opts->flags & ORCH_PIPELINE_RESUME;
	if (opts->flags & ~(ORCH_PIPELINE_RESUME | ORCH_PIPELINE_NO_REVIEW))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "unknown flags 0x%x in orch_pipeline_opts", opts->flags);
	if (!opts->state_dir || !opts->state_dir[0])
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_pipeline_opts.state_dir is missing");
	if (!resume && (!opts->idea || !opts->idea[strspn(opts->idea, " \t\r\n")]))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the idea is empty: say what is to be built");
	if (opts->idea && strlen(opts->idea) > IDEA_LIMIT)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL,
				 "the idea has %zu bytes, the limit is %u", strlen(opts->idea),
				 IDEA_LIMIT);
	if (opts->idea) {
		json_t *text = json_string(opts->idea);
		if (!text)
			return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
					 "the idea is not valid UTF-8");
		json_decref(text);
	}
	if (opts->answer_timeout_ms < -1)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "answer_timeout_ms is %lld; -1 is for ever",
				 (long long)opts->answer_timeout_ms);
	if (opts->jobs > 64 || opts->max_attempts > 100)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "at most 64 jobs and 100 attempts; %u and %u were given",
				 opts->jobs, opts->max_attempts);
	p->flags = opts->flags;
	p->jobs = opts->jobs ? opts->jobs : DEFAULT_JOBS;
	p->max_attempts = opts->max_attempts ? opts->max_attempts : DEFAULT_ATTEMPTS;
	p->max_requests = opts->max_requests;
	p->max_tokens = opts->max_tokens;
	p->max_micro_usd = opts->max_micro_usd;
	p->max_seconds = opts->max_seconds;
	p->answer_timeout_ms = opts->answer_timeout_ms;
	int32_t code = copy(&p->idea, opts->idea, reterr);
	if (code == 0)
		code = copy(&p->base_rev, opts->base_rev, reterr);
	if (code == 0)
		code = copy(&p->description, opts->description ? opts->description : "", reterr);
	if (code == 0 && opts->repo_dir && !resume)
		code = resolve(opts->repo_dir, "repository", false, &p->repo_dir, reterr);
	if (code == 0 && p->repo_dir)
		code = check_repository(p->repo_dir, reterr);
	if (code == 0)
		code = find_schemas(opts->schema_dir, &p->schema_dir, reterr);
	if (code == 0)
		code = resolve(opts->state_dir, "state folder", true, &p->state_dir, reterr);
	return code;
}

/* --- state folder and journal ---------------------------------------------------------------- */

static int32_t make_paths(orch_pipeline *p, orch_error **reterr)
{
	const struct {
		char **target;
		const char *name;
	} paths[] = {
		{&p->trees_dir, "trees"},     {&p->sealed_dir, "sealed"},
		{&p->work_dir, "work"},	      {&p->attempts_dir, "attempts"},
		{&p->report_dir, "report"},   {&p->product_dir, "product"},
		{&p->staging_dir, "staging"},
	};
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (!(*paths[i].target = path_join(p->state_dir, paths[i].name)))
			return orch_fail_memory(reterr);
	return 0;
}

static bool exists(const char *path)
{
	struct stat status;
	return lstat(path, &status) == 0;
}

/* A folder that is not ours must not lose anything to us. */
static int32_t check_foreign(orch_pipeline *p, orch_error **reterr)
{
	const char *const ours[] = {p->trees_dir,  p->sealed_dir,  p->work_dir,	  p->attempts_dir,
				    p->report_dir, p->product_dir, p->staging_dir};
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (exists(ours[i]))
			return orch_fail(reterr, ORCH_EEXIST, 0, NULL,
					 "%s is there but no journal: %s is not a state folder; "
					 "choose another one",
					 ours[i], p->state_dir);
	return 0;
}

static int32_t refuse_existing_run(const char *path, const char *state_dir, orch_error **reterr)
{
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_JOURNAL_READ_ONLY;
	opts.path = path;
	orch_journal *journal = NULL;
	struct model *model = NULL;
	int32_t code = model_new(&model, reterr);
	if (code == 0)
		code = orch_journal_open(&opts, &journal, reterr);
	if (code == 0)
		code = run_load(journal, model, reterr);
	if (code == 0 && model->state)
		code = orch_fail(reterr, ORCH_EEXIST, 0, NULL,
				 "%s holds run %s (%s): resume it, or choose another folder",
				 state_dir, model->run, orch_run_state_name(model->state));
	orch_journal_unref(journal);
	model_free(model);
	return code;
}

static int32_t prepare_folder(orch_pipeline *p, const char *journal_path, orch_error **reterr)
{
	bool resume = p->flags & ORCH_PIPELINE_RESUME;
	struct stat status;
	if (stat(p->state_dir, &status) < 0) {
		if (resume)
			return orch_fail(reterr, ORCH_ENOENT, 0, NULL,
					 "there is no run in %s to be resumed", p->state_dir);
		return make_dir(p->state_dir, 0700, reterr);
	}
	if (!S_ISDIR(status.st_mode))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "state folder %s is not a folder",
				 p->state_dir);
	if (access(p->state_dir, R_OK | W_OK | X_OK) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "access", "state folder %s",
				 p->state_dir);
	if (!exists(journal_path))
		return resume ? orch_fail(reterr, ORCH_ENOENT, 0, NULL,
					  "there is no run in %s to be resumed", p->state_dir)
			      : check_foreign(p, reterr);
	return resume ? 0 : refuse_existing_run(journal_path, p->state_dir, reterr);
}

static int32_t open_journal(orch_pipeline *p, const struct orch_pipeline_opts *opts,
			    const char *path, orch_error **reterr)
{
	struct orch_journal_opts journal;
	orch_journal_opts_init(&journal, sizeof(journal));
	journal.path = path;
	journal.anchor_path = opts->anchor_path;
	journal.payload_limit = JOURNAL_PAYLOAD_LIMIT;
	journal.on_record = opts->on_record;
	journal.userdata = opts->on_record_userdata;
	journal.destroy = p->on_record_destroy;
	p->on_record_destroy = NULL; /* the journal's, if it opens or not */
	int32_t code = orch_journal_open(&journal, &p->journal, reterr);
	return code < 0 ? code : run_load(p->journal, p->model, reterr);
}

static void restore_paths(orch_pipeline *p)
{
	_cleanup_free_ char *report = path_join(p->report_dir, "report.html");
	if (report && run_is_over(p->model->state) && exists(report))
		p->report_path = ORCH_STEAL(report);
	if (p->model->delivery && exists(p->product_dir))
		p->product_path = strdup(p->product_dir);
}

int32_t start_open(orch_pipeline *p, const struct orch_pipeline_opts *opts, orch_error **reterr)
{
	int32_t code = read_options(p, opts, reterr);
	if (code == 0)
		code = make_paths(p, reterr);
	if (code < 0)
		return code;
	_cleanup_free_ char *journal_path = path_join(p->state_dir, "journal.db");
	if (!journal_path)
		return orch_fail_memory(reterr);
	code = prepare_folder(p, journal_path, reterr);
	if (code == 0)
		code = open_journal(p, opts, journal_path, reterr);
	if (code < 0)
		return code;
	if (!p->model->state && !p->idea)
		return orch_fail(
			reterr, ORCH_ENOENT, 0, NULL,
			"the run in %s ended before it was taken in: start it again with its idea",
			p->state_dir);
	p->resumed = p->model->state != 0;
	restore_paths(p);
	if (model_seal(p->model, "questions") && !model_answered(p->model))
		code = seal_load(p, reterr);
	if (code < 0)
		return code;
	struct orch_broker_opts broker;
	orch_broker_opts_init(&broker, sizeof(broker));
	broker.journal = p->journal;
	code = orch_broker_new(p->ctx, &broker, &p->broker, reterr);
	return code < 0 ? code
			: orch_broker_on_operation(p->broker, step_on_operation, p, NULL, reterr);
}

/* --- grants ---------------------------------------------------------------------------------- */

json_t *grant_json(const struct orch_grant_opts *grant)
{
	return json_pack("{s:s, s:s*, s:s*, s:I, s:b}", "operation", grant->operation, "url",
			 grant->url, "probe_url", grant->probe_url, "expires_at_ms",
			 (json_int_t)grant->expires_at_ms, "deny",
			 (grant->flags & ORCH_GRANT_DENY) != 0);
}

static json_t *find_grant(json_t *grants, const char *operation)
{
	for (size_t i = json_array_size(grants); i-- > 0;)
		if (!strcmp(json_text(json_array_get(grants, i), "operation"), operation))
			return json_array_get(grants, i);
	return NULL;
}

json_t *pipeline_grant(const orch_pipeline *p, const char *operation)
{
	json_t *grant = find_grant(p->grants, operation);
	if (!grant)
		grant = find_grant(p->model->grants, operation);
	return grant && !json_bool(grant, "deny") ? grant : NULL;
}

/* --- intake ---------------------------------------------------------------------------------- */

static int32_t check_executors(orch_pipeline *p, orch_error **reterr)
{
	bool review = p->resumed ? p->model->review : !(p->flags & ORCH_PIPELINE_NO_REVIEW);
	for (uint32_t role = ORCH_ROLE_PLANNER; role <= ORCH_ROLE_REVIEWER; role++) {
		if (pipeline_executor(p, role) || (role == ORCH_ROLE_REVIEWER && !review))
			continue;
		return orch_fail(
			reterr, ORCH_ESTATE, 0, NULL,
			"the %s has no executor: orch_pipeline_set_executor() before the start",
			role_name(role));
	}
	return 0;
}

static json_t *channel_rows(const orch_sandbox_report *report)
{
	static const char *const states[] = {"?", "enforced", "partial", "absent"};
	static const char *const probes[] = {"?", "passed", "failed", "not_run"};
	json_t *rows = json_array();
	for (uint32_t i = 0; i < orch_sandbox_report_count(report); i++) {
		const char *channel = "", *mechanism = "", *detail = "";
		uint32_t state = 0, probe = 0, control = 0;
		if (orch_sandbox_report_row(report, i, &channel, &state, &mechanism, &probe,
					    &control, &detail) < 0)
			break;
		json_array_append_new(
			rows, json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "channel", channel,
					"state", states[state <= ORCH_CHANNEL_ABSENT ? state : 0],
					"mechanism", mechanism, "probe",
					probes[probe <= ORCH_PROBE_NOT_RUN ? probe : 0], "control",
					probes[control <= ORCH_PROBE_NOT_RUN ? control : 0],
					"detail", json_foreign(detail, 2000)));
	}
	return rows;
}

/* What a sandbox like those of the attempts really enforces here; also the proof that there can be
 * one. */
static int32_t probe_channels(orch_pipeline *p, json_t **ret_rows, orch_error **reterr)
{
	struct orch_sandbox_opts opts;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.net = ORCH_NET_BROKER;
	opts.label = "channel probes";
	orch_sandbox_report *report = NULL;
	int32_t code = orch_sandbox_report_run(p->ctx, &opts, CHANNELS_TIMEOUT_MS, &report, reterr);
	if (code < 0)
		return code;
	json_t *rows = channel_rows(report);
	orch_sandbox_report_unref(report);
	if (!rows)
		return orch_fail_memory(reterr);
	*ret_rows = rows;
	return 0;
}

static json_t *intake_record(orch_pipeline *p)
{
	char random[13];
	orch_random_hex(random, 6);
	_cleanup_free_ char *run = orch_strdup_printf("r%s", random);
	json_t *record = json_pack(
		"{s:s*, s:s, s:s*, s:s*, s:i, s:i, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:O}", "run",
		run, "idea", p->idea, "repo", p->repo_dir, "base_rev", p->base_rev, "jobs",
		(int)p->jobs, "max_attempts", (int)p->max_attempts, "review",
		!(p->flags & ORCH_PIPELINE_NO_REVIEW), "max_requests", (json_int_t)p->max_requests,
		"max_tokens", (json_int_t)p->max_tokens, "max_micro_usd",
		(json_int_t)p->max_micro_usd, "max_seconds", (json_int_t)p->max_seconds,
		"answer_timeout_ms", (json_int_t)p->answer_timeout_ms, "description",
		json_foreign(p->description, 4000), "grants", p->grants);
	return record;
}

static int32_t record_instance(orch_pipeline *p, orch_error **reterr)
{
	json_t *record =
		json_pack("{s:I, s:b}", "generation",
			  (json_int_t)orch_journal_generation(p->journal), "resumed", p->resumed);
	const struct {
		const char *member;
		uint64_t value;
	} budgets[] = {
		{"max_requests", p->max_requests},
		{"max_tokens", p->max_tokens},
		{"max_micro_usd", p->max_micro_usd},
		{"max_seconds", p->max_seconds},
	};
	for (size_t i = 0; record && i < sizeof(budgets) / sizeof(budgets[0]); i++)
		if (budgets[i].value)
			json_object_set_new(record, budgets[i].member,
					    json_integer((json_int_t)budgets[i].value));
	return run_record(p, "run.instance", record, reterr, "run/instance/%llu",
			  (unsigned long long)orch_journal_generation(p->journal));
}

static int32_t take_in(orch_pipeline *p, json_t *channels, orch_error **reterr)
{
	int32_t code = record_instance(p, reterr);
	if (code == 0)
		code = run_record(p, "run.intake", intake_record(p), reterr, "run/intake");
	if (code == 0 && channels)
		code = run_record(p, "run.channels", json_pack("{s:O}", "channels", channels),
				  reterr, "run/channels");
	return code;
}

/* --- recovery -------------------------------------------------------------------------------- */

static const char *outcome_name(uint32_t outcome)
{
	static const char *const names[] = {"", "applied", "not applied", "in flight", "unknown"};
	return outcome < sizeof(names) / sizeof(names[0]) ? names[outcome] : "?";
}

static int32_t recovery_rows(const orch_recovery *recovery, json_t *rows, orch_error **reterr)
{
	for (uint32_t i = 0; i < orch_recovery_count(recovery); i++) {
		orch_action *action = NULL;
		uint32_t before = 0, probe = 0;
		const char *decision = "";
		if (orch_recovery_row(recovery, i, &action, &before, &probe, &decision) < 0)
			break;
		json_t *row = json_pack(
			"{s:s, s:o, s:s, s:s, s:s, s:o}", "kind", orch_action_kind(action), "key",
			json_foreign(orch_action_key(action), 255), "state_before",
			orch_action_state_name(before), "state",
			orch_action_state_name(orch_action_state(action)), "probe",
			outcome_name(probe), "decision", json_foreign(decision, 1000));
		if (!row || json_array_append_new(rows, row) < 0)
			return orch_fail_memory(reterr);
	}
	return 0;
}

/* First find out what happened, then decide: before anything of the run goes on. */
static int32_t recover_actions(orch_pipeline *p, orch_error **reterr)
{
	static const char *const kinds[] = {"notify.", "ai."};
	json_t *rows = json_array();
	int32_t code = rows ? 0 : orch_fail_memory(reterr);
	for (size_t i = 0; code == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		orch_recovery *recovery = NULL;
		struct orch_recover_opts opts;
		orch_recover_opts_init(&opts, sizeof(opts));
		opts.kind_prefix = kinds[i];
		opts.probe = orch_broker_probe;
		opts.userdata = p->broker;
		code = orch_journal_recover(p->journal, &opts, &recovery, reterr);
		if (code == 0)
			code = recovery_rows(recovery, rows, reterr);
		orch_recovery_unref(recovery);
	}
	if (code < 0) {
		json_decref(rows);
		return code;
	}
	return run_record(p, "recovery", json_pack("{s:o}", "rows", rows), reterr, "recovery/%llu",
			  (unsigned long long)orch_journal_generation(p->journal));
}

static int32_t recover(orch_pipeline *p, orch_error **reterr)
{
	event_emit(p, json_pack("{s:s, s:s, s:s, s:b, s:s*}", "event", "run", "run", p->model->run,
				"state", orch_run_state_name(p->model->state), "resumed", true,
				"description", p->model->description));
	if (run_is_over(p->model->state))
		return 0;
	int32_t code = record_instance(p, reterr);
	if (code < 0)
		return code;
	if (!run_overlay(p, ORCH_OVERLAY_RECOVERING, true, "an earlier instance ended", 0))
		goto failed;
	code = seal_check(p, reterr);
	if (code == 0)
		code = seal_load(p, reterr);
	if (code == 0 && p->model->repo_tree)
		code = earlier_load(p, reterr);
	if (code == 0)
		code = recover_actions(p, reterr);
	if (code == 0)
		code = attempt_recover(p, reterr);
	if (code < 0)
		return code;
	if (!run_overlay(p, ORCH_OVERLAY_RECOVERING, false, "", 0))
		goto failed;
	return 0;
failed:
	code = orch_error_code(p->failure);
	if (reterr)
		*reterr = ORCH_STEAL(p->failure);
	return code;
}

/* --- start ----------------------------------------------------------------------------------- */

static int32_t make_folders(orch_pipeline *p, orch_error **reterr)
{
	/* Nobody works there now, and what was worth keeping is imported. */
	int32_t code = tree_remove(p->work_dir, reterr);
	const char *const dirs[] = {p->trees_dir, p->sealed_dir, p->work_dir, p->attempts_dir,
				    p->report_dir};
	for (size_t i = 0; code == 0 && i < sizeof(dirs) / sizeof(dirs[0]); i++)
		code = make_dir(dirs[i], 0700, reterr);
	if (code < 0)
		return code;
	/* The empty tree is stored like any other. */
	_cleanup_free_ char *empty = path_join(p->work_dir, "empty");
	char hash[TREE_HASH_SIZE];
	if (!empty)
		return orch_fail_memory(reterr);
	code = make_dir(empty, 0700, reterr);
	if (code == 0)
		code = tree_import(empty, p->trees_dir, NULL, hash, reterr);
	return code == 0 ? tree_remove(empty, reterr) : code;
}

static int32_t set_budget(orch_pipeline *p, orch_error **reterr)
{
	struct spending spending;
	int32_t code = run_spending(p->journal, &spending, reterr);
	if (code == 0)
		code = orch_broker_set_budget(p->broker, p->model->max_requests,
					      p->model->max_tokens, p->model->max_micro_usd,
					      reterr);
	if (code == 0)
		code = orch_broker_add_spent(p->broker, spending.requests, spending.tokens,
					     spending.micro_usd, reterr);
	return code;
}

static int32_t hand_in_answers(orch_pipeline *p, orch_error **reterr)
{
	int32_t code = 0;
	size_t i;
	json_t *text;
	json_array_foreach(p->early_answers, i, text)
	{
		if (code == 0)
			code = stage_answer(p, json_string_value(text), json_string_length(text),
					    reterr);
	}
	json_array_clear(p->early_answers);
	if (code == 0 && p->accept_recommended)
		code = stage_accept_recommended(p, "user", reterr);
	p->accept_recommended = false;
	return code;
}

int32_t start_run(orch_pipeline *p, orch_error **reterr)
{
	int32_t code = 0;
	json_t *channels = NULL;
	bool over = run_is_over(p->model->state);
	if (!over) {
		code = check_executors(p, reterr);
		if (code == 0 && !p->model->channels)
			code = probe_channels(p, &channels, reterr);
	}
	if (code == 0)
		code = p->resumed ? recover(p, reterr) : take_in(p, channels, reterr);
	if (code == 0 && p->resumed && channels)
		code = run_record(p, "run.channels", json_pack("{s:O}", "channels", channels),
				  reterr, "run/channels");
	json_decref(channels);
	if (code < 0 || over)
		return code;
	code = make_folders(p, reterr);
	if (code == 0)
		code = set_budget(p, reterr);
	if (code == 0)
		code = hand_in_answers(p, reterr);
	return code;
}
