/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "demo.h"

/*
 * What does the work of a run: provider, executors, models, prices, grants. It is written to STATE/demo.json without any
 * secret, so that "resume" needs no options.
 */

static const char *const roles[] = {"", "planner", "checker", "executor", "reviewer"};

static const char *text_of(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* --- scenarios ------------------------------------------------------------------------------------- */

static char *scenarios_folder(void)
{
	return data_path("scenarios", "scenarios");
}

static char *scenario_idea(const char *folder)
{
	char *path = format_text("%s/scenario.json", folder);
	json_error_t where;
	json_t *root = json_load_file(path, 0, &where);
	const char *idea = text_of(root, "idea");
	char *copy = idea ? strdup(idea) : NULL;
	if (!root)
		fail_text(EXIT_USAGE, "%s:%d: %s", path, where.line, where.text);
	else if (!idea)
		fail_text(EXIT_USAGE, "%s:1: the scenario has no \"idea\"", path);
	json_decref(root);
	free(path);
	return copy;
}

/* NAME or DIR to a folder with a scenario.json. */
static char *scenario_folder(const char *name)
{
	char *path;
	if (strchr(name, '/')) {
		path = realpath(name, NULL);
		if (!path)
			fail_text(EXIT_USAGE, "the scenario %s: %m", name);
		return path;
	}
	char *all = scenarios_folder();
	path = format_text("%s/%s", all, name);
	free(all);
	if (access(path, F_OK) == 0)
		return path;
	fail_text(EXIT_USAGE, "there is no scenario \"%s\" (%s): give its name or its folder", name, path);
	free(path);
	return NULL;
}

/* The scenario whose idea this is; NULL if there is none. Appends the names of all to `ret_names`. */
static char *scenario_for(const char *idea, char **ret_names)
{
	char *all = scenarios_folder(), *found = NULL, *names = strdup("");
	DIR *dir = opendir(all);
	struct dirent *entry;
	while (dir && (entry = readdir(dir))) {
		char *path = format_text("%s/%s", all, entry->d_name);
		char *description = format_text("%s/scenario.json", path);
		bool scenario = entry->d_name[0] != '.' && access(description, F_OK) == 0;
		free(description);
		if (!scenario) {
			free(path);
			continue;
		}
		char *its = scenario_idea(path);
		char *more = format_text("%s%s%s", names, names[0] ? ", " : "", entry->d_name);
		free(names);
		names = more;
		/* Liars and others share the idea of the scenario they extend: the default one comes first. */
		if (its && strcmp(its, idea) == 0 && (!found || strcmp(entry->d_name, "shelf") == 0)) {
			free(found);
			found = strdup(path);
		}
		free(its);
		free(path);
	}
	if (dir)
		closedir(dir);
	free(all);
	*ret_names = names;
	return found;
}

/* --- keys and prices ---------------------------------------------------------------------------------- */

static const char *key_variable(const char *provider)
{
	return strcmp(provider, "openai") == 0 ? "OPENAI_API_KEY" : "ANTHROPIC_API_KEY";
}

/* The caller wipes and frees. NULL with a message. */
static char *read_key(const struct options *options, const char *provider)
{
	if (!options->key_file) {
		const char *value = getenv(key_variable(provider));
		if (value && *value)
			return strdup(value);
		fail_text(EXIT_USAGE, "the provider %s needs a key: set %s, or give --key-file F (mode 0600)", provider,
			  key_variable(provider));
		return NULL;
	}
	struct stat status;
	if (stat(options->key_file, &status) < 0) {
		fail_text(EXIT_USAGE, "--key-file %s: %m", options->key_file);
		return NULL;
	}
	if (status.st_mode & 077) {
		fail_text(EXIT_USAGE, "--key-file %s can be read by others (mode %04o): chmod 600 it",
			  options->key_file, (unsigned)status.st_mode & 07777);
		return NULL;
	}
	char *key = read_file(options->key_file, 65536, NULL);
	if (key)
		key[strcspn(key, "\r\n")] = '\0';
	if (key && *key)
		return key;
	free(key);
	fail_text(EXIT_USAGE, "--key-file %s is empty or can not be read", options->key_file);
	return NULL;
}

static json_t *load_prices(void)
{
	json_error_t where;
	char *path = data_path("orch-demo/prices.json", "prices.json");
	json_t *prices = json_load_file(path, 0, &where);
	if (!prices)
		fail_text(EXIT_ERROR, "%s:%d: %s", path, where.line, where.text);
	free(path);
	return prices;
}

/* --- making a setup ------------------------------------------------------------------------------------- */

static const char *executor_of(const json_t *config, uint32_t role)
{
	const char *kind = text_of(json_object_get(config, "executors"), roles[role]);
	return kind ? kind : "mini";
}

static bool all_commands(const json_t *config)
{
	for (uint32_t role = 1; role <= 4; role++)
		if (strcmp(executor_of(config, role), "command") != 0)
			return false;
	return true;
}

static json_t *per_role(const struct role_text *text, const char *fallback)
{
	json_t *object = json_object();
	for (uint32_t role = 1; role <= 4; role++) {
		const char *value = text->role[role] ? text->role[role] : text->all ? text->all : fallback;
		if (value)
			json_object_set_new(object, roles[role], json_string(value));
	}
	return object;
}

/* Which provider: asked for, or the scenario of that idea, or the one there is a key for. */
static int choose_provider(const struct options *options, struct setup *setup, char **idea)
{
	char *names = NULL;
	if (options->provider) {
		setup->provider = strdup(options->provider);
	} else if (options->base_url) {
		return fail_text(EXIT_USAGE, "--base-url needs --provider anthropic or openai");
	} else if (options->scenario || !*idea) {
		setup->provider = strdup("synthetic");
	} else if (all_commands(setup->config)) {
		setup->provider = strdup("none");
	} else if ((setup->scenario = scenario_for(*idea, &names))) {
		setup->provider = strdup("synthetic");
	} else if (getenv("ANTHROPIC_API_KEY") || (options->key_file && !getenv("OPENAI_API_KEY"))) {
		setup->provider = strdup("anthropic");
	} else if (getenv("OPENAI_API_KEY")) {
		setup->provider = strdup("openai");
	} else {
		fail_text(EXIT_USAGE,
			  "no scenario is made for this idea, and there is no API key for a real provider.\n"
			  "  Set ANTHROPIC_API_KEY or OPENAI_API_KEY (or --key-file F) and a cap (--max-usd N),\n"
			  "  or replay a scenario: --scenario NAME, one of: %s", names);
		free(names);
		return EXIT_USAGE;
	}
	free(names);
	if (strcmp(setup->provider, "synthetic") != 0) {
		if (options->scenario && *idea == NULL) {
			char *folder = scenario_folder(options->scenario);
			*idea = folder ? scenario_idea(folder) : NULL;
			free(folder);
			if (!*idea)
				return EXIT_USAGE;
		}
		return EXIT_FINE;
	}
	if (!setup->scenario)
		setup->scenario = scenario_folder(options->scenario ? options->scenario : "shelf");
	if (!setup->scenario)
		return EXIT_USAGE;
	char *its = scenario_idea(setup->scenario);
	if (!its)
		return EXIT_USAGE;
	if (*idea)
		free(its);
	else
		*idea = its;
	return EXIT_FINE;
}

static int check_setup(const struct options *options, struct setup *setup)
{
	bool real = strcmp(setup->provider, "anthropic") == 0 || strcmp(setup->provider, "openai") == 0;
	if (real && options->max_usd == 0 && options->max_tokens == 0 && !isatty(STDIN_FILENO))
		return fail_text(EXIT_USAGE,
				 "a real provider (%s) without a cap is refused where nobody watches: give --max-usd N or "
				 "--max-tokens N", setup->provider);
	for (uint32_t role = 1; role <= 4; role++) {
		const char *kind = executor_of(setup->config, role);
		if (real && ((strcmp(kind, "codex") == 0 && strcmp(setup->provider, "openai") != 0) ||
			     (strcmp(kind, "claude") == 0 && strcmp(setup->provider, "anthropic") != 0)))
			return fail_text(EXIT_USAGE, "the executor %s does not speak to the provider %s", kind,
					 setup->provider);
		if (strcmp(kind, "command") == 0 && !options->executor_cmd)
			return fail_text(EXIT_USAGE, "--executor command needs --executor-cmd CMD");
		if (strcmp(setup->provider, "none") == 0 && strcmp(kind, "command") != 0)
			return fail_text(EXIT_USAGE, "the executor %s needs a provider: give --provider", kind);
	}
	if (options->isolation && strcmp(options->isolation, "vm") == 0)
		return fail_text(EXIT_UNENFORCEABLE, "--isolation vm is not built in liborch %s: only \"process\" is",
				 orch_version());
	return EXIT_FINE;
}

static char *find_cli(const char *given, const char *name)
{
	if (given)
		return realpath(given, NULL);
	const char *path = getenv("PATH");
	char *copy = strdup(path ? path : ""), *rest = copy, *folder, *found = NULL;
	while (!found && (folder = strsep(&rest, ":"))) {
		char *candidate = format_text("%s/%s", folder, name);
		if (candidate[0] == '/' && access(candidate, X_OK) == 0)
			found = realpath(candidate, NULL);
		free(candidate);
	}
	free(copy);
	return found;
}

/* The journal has them once the run is taken in; a kill may come before that. */
static void keep_first_options(struct setup *setup, const struct options *options, const char *idea)
{
	char *repo = options->repo ? realpath(options->repo, NULL) : NULL;
	json_object_set_new(setup->config, "first",
			    json_pack("{s:s, s:s*, s:s*, s:I, s:I, s:I}", "idea", idea, "repo", repo, "base", options->base, "jobs",
				      (json_int_t)options->jobs, "max_attempts", (json_int_t)options->max_attempts, "max_time",
				      (json_int_t)options->max_time_s));
	free(repo);
}

int setup_new(const struct options *options, struct setup *setup, char **ret_idea)
{
	char *idea = options->idea ? strdup(options->idea) : NULL;
	memset(setup, 0, sizeof(*setup));
	if (options->idea && options->idea_file)
		return fail_text(EXIT_USAGE, "give IDEA or --idea-file, not both");
	if (options->idea_file) {
		size_t length = 0;
		idea = read_file(options->idea_file, 1048576, &length);
		if (!idea)
			return fail_text(EXIT_USAGE, "--idea-file %s: %m", options->idea_file);
		while (length && strchr(" \r\n\t", idea[length - 1]))
			idea[--length] = '\0';
	}
	if (idea && !*idea)
		return fail_text(EXIT_USAGE, "the idea is empty");

	setup->config = json_pack("{s:o, s:o}", "executors", per_role(&options->executor, "mini"), "models",
				  per_role(&options->model, NULL));
	int code = choose_provider(options, setup, &idea);
	if (code == EXIT_FINE && !idea)
		code = fail_text(EXIT_USAGE, "no idea is given: orch-demo run \"IDEA\", or --idea-file F");
	if (code == EXIT_FINE)
		code = check_setup(options, setup);
	if (code != EXIT_FINE) {
		free(idea);
		return code;
	}
	if (options->base_url)
		setup->base_url = strdup(options->base_url);
	else if (strcmp(setup->provider, "anthropic") == 0)
		setup->base_url = strdup("https://api.anthropic.com");
	else if (strcmp(setup->provider, "openai") == 0)
		setup->base_url = strdup("https://api.openai.com");
	setup->api = strdup(strcmp(setup->provider, "openai") == 0 ? "openai" : "anthropic");

	json_t *grants = json_array();
	for (size_t i = 0; i < options->grant_count; i++)
		json_array_append_new(grants, json_string(options->grants[i]));
	json_object_set_new(setup->config, "grants", grants);
	if (options->executor_cmd) {
		char *command = strchr(options->executor_cmd, ' ') ? NULL : realpath(options->executor_cmd, NULL);
		json_object_set_new(setup->config, "executor_cmd",
				    json_string(command ? command : options->executor_cmd));
		free(command);
	}
	char *claude = find_cli(options->claude, "claude"), *codex = find_cli(options->codex, "codex");
	json_object_set_new(setup->config, "claude", claude ? json_string(claude) : json_null());
	json_object_set_new(setup->config, "codex", codex ? json_string(codex) : json_null());
	json_object_set_new(setup->config, "max_usd", json_real(options->max_usd));
	json_object_set_new(setup->config, "max_tokens", json_integer((json_int_t)options->max_tokens));
	json_object_set_new(setup->config, "yes", json_boolean(options->yes));
	json_object_set_new(setup->config, "no_review", json_boolean(options->no_review));
	free(claude);
	free(codex);
	keep_first_options(setup, options, idea);
	*ret_idea = idea;
	return EXIT_FINE;
}

const char *setup_first_options(const struct setup *setup, struct options *options)
{
	const json_t *first = json_object_get(setup->config, "first");
	options->repo = text_of(first, "repo");
	options->base = text_of(first, "base");
	options->jobs = (uint32_t)json_integer_value(json_object_get(first, "jobs"));
	options->max_attempts = (uint32_t)json_integer_value(json_object_get(first, "max_attempts"));
	options->max_time_s = (uint64_t)json_integer_value(json_object_get(first, "max_time"));
	options->max_tokens = (uint64_t)json_integer_value(json_object_get(setup->config, "max_tokens"));
	options->max_usd = json_number_value(json_object_get(setup->config, "max_usd"));
	return text_of(first, "idea");
}

static bool setup_save(struct setup *setup, const char *state)
{
	json_object_set_new(setup->config, "provider", json_string(setup->provider));
	json_object_set_new(setup->config, "base_url",
			    setup->base_url ? json_string(setup->base_url) : json_null());
	json_object_set_new(setup->config, "api", json_string(setup->api));
	json_object_set_new(setup->config, "scenario",
			    setup->scenario ? json_string(setup->scenario) : json_null());
	json_object_set_new(setup->config, "port", json_integer(setup->port));
	char *text = json_dumps(setup->config, JSON_INDENT(2)), *path = format_text("%s/demo.json", state);
	bool good = text && write_file(path, text);
	if (!good)
		fail_text(EXIT_ERROR, "%s can not be written: %m", path);
	free(text);
	free(path);
	return good;
}

int setup_load(const char *state, const struct options *options, struct setup *setup)
{
	memset(setup, 0, sizeof(*setup));
	char *path = format_text("%s/demo.json", state);
	json_error_t where;
	setup->config = json_load_file(path, 0, &where);
	if (!setup->config) {
		int code = access(path, F_OK) == 0
				   ? fail_text(EXIT_USAGE, "%s:%d: %s", path, where.line, where.text)
				   : fail_text(EXIT_NOTHING, "there is no run in %s", state);
		free(path);
		return code;
	}
	free(path);
	const char *provider = text_of(setup->config, "provider"), *base_url = text_of(setup->config, "base_url"),
		   *scenario = text_of(setup->config, "scenario"), *api = text_of(setup->config, "api");
	if (options->base_url)
		base_url = options->base_url;
	setup->provider = strdup(provider ? provider : "none");
	setup->base_url = base_url ? strdup(base_url) : NULL;
	setup->api = strdup(api ? api : "anthropic");
	setup->scenario = scenario ? strdup(scenario) : NULL;
	setup->port = (int)json_integer_value(json_object_get(setup->config, "port"));
	if (options->yes)
		json_object_set_new(setup->config, "yes", json_true());
	return EXIT_FINE;
}

/* --- applying it ------------------------------------------------------------------------------------------ */

/* Starts examples/synth-provider in a scope of its own and waits for the line that says where it listens. */
static int start_synthetic(struct setup *setup, const char *state, orch_ctx *ctx, orch_scope **ret_scope)
{
	char *program = find_beside("../synth-provider/synth-provider");
	if (!program)
		program = find_beside("synth-provider");
	if (!program)
		return fail_text(EXIT_ERROR, "synth-provider is missing: it is built and installed with orch-demo");
	char port[16], *log = format_text("%s/provider.ndjson", state),
		       *outside = format_text("%s/outside.ndjson", state);
	snprintf(port, sizeof(port), "%d", setup->port);
	const char *argv[] = {program, "--scenario", setup->scenario, "--port", port, "--log", log, "--outside-log", outside,
			      NULL};
	int out[2], exit_code = EXIT_FINE;
	orch_scope *scope = NULL;
	orch_proc *proc = NULL;
	orch_error *error = NULL;
	struct orch_proc_opts opts;
	if (pipe2(out, O_CLOEXEC) < 0)
		return fail_text(EXIT_ERROR, "pipe: %m");
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.stdout_fd = out[1];
	opts.stderr_fd = STDERR_FILENO;
	if (orch_scope_new(ctx, NULL, &scope, &error) < 0 || orch_scope_spawn(scope, &opts, &proc, &error) < 0)
		exit_code = fail("the synthetic provider", error);
	close(out[1]);

	char line[128] = "";
	size_t length = 0;
	for (int turn = 0; exit_code == EXIT_FINE && !strchr(line, '\n'); turn++) {
		ssize_t got = read(out[0], line + length, sizeof(line) - 1 - length);
		if (got > 0)
			line[length += (size_t)got] = '\0';
		if (got > 0)
			continue;
		int32_t status = 0, code = orch_proc_wait(proc, 10, &status, &error);
		if (code == ORCH_ETIMEDOUT && turn < 1000) {
			error = orch_error_free(error);
			continue;
		}
		exit_code = code == 0 ? fail_text(EXIT_USAGE, "the synthetic provider ended with status %d (port %s taken, or the "
							      "scenario %s is malformed)", status, port, setup->scenario)
				      : fail("the synthetic provider", error);
	}
	close(out[0]);
	orch_proc_unref(proc);
	free(program);
	free(log);
	free(outside);
	if (exit_code != EXIT_FINE) {
		orch_scope_unref(scope);
		return exit_code;
	}
	line[strcspn(line, "\r\n")] = '\0';
	free(setup->base_url);
	setup->base_url = strdup(line);
	const char *colon = strrchr(line, ':');
	setup->port = colon ? atoi(colon + 1) : 0;
	*ret_scope = scope;
	return EXIT_FINE;
}

/* The dearest of the models that use an upstream: a cap is never passed by a cheap estimate. */
static int set_prices(const struct setup *setup, const struct options *options, struct orch_upstream_opts *opts)
{
	json_t *prices = load_prices();
	double max_usd = options->max_usd > 0 ? options->max_usd
					      : json_number_value(json_object_get(setup->config, "max_usd"));
	int code = EXIT_FINE;
	for (uint32_t role = 1; role <= 4 && code == EXIT_FINE; role++) {
		const char *model = text_of(json_object_get(setup->config, "models"), roles[role]);
		if (strcmp(setup->provider, "synthetic") == 0)
			model = "synthetic";
		const json_t *price = json_object_get(json_object_get(prices, "models"), model ? model : "");
		if (!price && max_usd > 0) {
			code = fail_text(EXIT_USAGE, "--max-usd needs a price, and the model %s%s%s has none in prices.json: use "
						     "--max-tokens, or name a model that has one with --model",
					 model ? "\"" : "", model ? model : "that the executor chooses by itself",
					 model ? "\"" : "");
			break;
		}
		uint64_t input = (uint64_t)(json_number_value(json_object_get(price, "input")) * 1e6);
		uint64_t output = (uint64_t)(json_number_value(json_object_get(price, "output")) * 1e6);
		if (input > opts->input_price_micro_usd_per_mtok)
			opts->input_price_micro_usd_per_mtok = input;
		if (output > opts->output_price_micro_usd_per_mtok)
			opts->output_price_micro_usd_per_mtok = output;
	}
	json_decref(prices);
	return code;
}

static int set_upstreams(struct setup *setup, const struct options *options, orch_pipeline *pipeline)
{
	struct orch_upstream_opts opts;
	orch_error *error = NULL;
	char *key = NULL;
	orch_upstream_opts_init(&opts, sizeof(opts));
	opts.base_url = setup->base_url;
	bool synthetic = strcmp(setup->provider, "synthetic") == 0;
	if (!synthetic) {
		key = read_key(options, setup->provider);
		if (!key)
			return EXIT_USAGE;
		opts.credential = ORCH_CREDENTIAL_API_KEY;
		opts.secret = key;
	}
	int code = set_prices(setup, options, &opts);
	orch_broker *broker = orch_pipeline_broker(pipeline);
	if (code == EXIT_FINE && (synthetic || strcmp(setup->provider, "anthropic") == 0) &&
	    orch_broker_set_upstream(broker, "ai.anthropic", &opts, &error) < 0)
		code = fail("--base-url", error);
	if (code == EXIT_FINE && (synthetic || strcmp(setup->provider, "openai") == 0) &&
	    orch_broker_set_upstream(broker, "ai.openai", &opts, &error) < 0)
		code = fail("--base-url", error);
	if (key)
		explicit_bzero(key, strlen(key));
	free(key);
	return code;
}

static int set_executor(const struct setup *setup, orch_ctx *ctx, orch_pipeline *pipeline, uint32_t role)
{
	static const char *const kinds[] = {"", "mini", "claude", "codex", "command"};
	struct orch_executor_opts opts;
	orch_executor *executor = NULL;
	orch_error *error = NULL;
	const char *kind = executor_of(setup->config, role);
	const char *command = text_of(setup->config, "executor_cmd");
	const char *shell[] = {"/bin/sh", "-c", command, NULL}, *program[] = {command, NULL};

	orch_executor_opts_init(&opts, sizeof(opts));
	for (uint32_t i = 1; i < 5; i++)
		if (strcmp(kinds[i], kind) == 0)
			opts.kind = i;
	opts.api = strcmp(setup->api, "openai") == 0 ? ORCH_API_OPENAI : ORCH_API_ANTHROPIC;
	opts.model = text_of(json_object_get(setup->config, "models"), roles[role]);
	if (opts.kind == ORCH_EXECUTOR_COMMAND)
		opts.argv = command && command[0] == '/' ? program : shell;
	if (opts.kind == ORCH_EXECUTOR_CLAUDE || opts.kind == ORCH_EXECUTOR_CODEX) {
		opts.program = text_of(setup->config, kind);
		if (!opts.program)
			return fail_text(EXIT_USAGE, "%s is not on PATH: install it, or say where it is with --%s PATH", kind,
					 kind);
	}
	if (orch_executor_new(ctx, &opts, &executor, &error) < 0)
		return fail(kind, error);
	int32_t code = orch_pipeline_set_executor(pipeline, role, executor, &error);
	orch_executor_unref(executor);
	return code < 0 ? fail(roles[role], error) : EXIT_FINE;
}

static int allow(orch_pipeline *pipeline, const char *operation, const char *url)
{
	struct orch_grant_opts grant;
	orch_error *error = NULL;
	char *probe = format_text("%s/{key}", url);
	orch_grant_opts_init(&grant, sizeof(grant));
	grant.operation = operation;
	grant.url = url;
	grant.probe_url = probe;
	int32_t code = orch_pipeline_allow(pipeline, &grant, &error);
	free(probe);
	return code < 0 ? fail("--grant", error) : EXIT_FINE;
}

static int set_grants(const struct setup *setup, orch_pipeline *pipeline)
{
	const json_t *grants = json_object_get(setup->config, "grants");
	int code = EXIT_FINE;
	for (size_t i = 0; i < json_array_size(grants) && code == EXIT_FINE; i++) {
		const char *grant = json_string_value(json_array_get(grants, i)), *equals = strchr(grant, '=');
		char *operation = strndup(grant, (size_t)(equals - grant));
		code = allow(pipeline, operation, equals + 1);
		free(operation);
	}
	/* The synthetic provider brings an outside service along, so that a scenario can act on something. */
	if (code == EXIT_FINE && setup->scenario && json_array_size(grants) == 0) {
		char *url = format_text("%s/outside/announce", setup->base_url);
		code = allow(pipeline, "notify.send", url);
		free(url);
	}
	return code;
}

int setup_apply(struct setup *setup, const struct options *options, const char *state, orch_ctx *ctx,
		orch_pipeline *pipeline, orch_scope **ret_provider_scope)
{
	int code = EXIT_FINE;
	if (strcmp(setup->provider, "synthetic") == 0)
		code = start_synthetic(setup, state, ctx, ret_provider_scope);
	if (code == EXIT_FINE && !setup_save(setup, state))
		code = EXIT_ERROR;
	if (code == EXIT_FINE && strcmp(setup->provider, "none") != 0)
		code = set_upstreams(setup, options, pipeline);
	for (uint32_t role = 1; role <= 4 && code == EXIT_FINE; role++)
		code = set_executor(setup, ctx, pipeline, role);
	if (code == EXIT_FINE)
		code = set_grants(setup, pipeline);
	return code;
}

char *setup_describe(const struct setup *setup, const struct options *options)
{
	const char *kind = executor_of(setup->config, ORCH_ROLE_EXECUTOR);
	const char *model = text_of(json_object_get(setup->config, "models"), "executor");
	double usd = options->max_usd > 0 ? options->max_usd
					  : json_number_value(json_object_get(setup->config, "max_usd"));
	json_int_t tokens = options->max_tokens ? (json_int_t)options->max_tokens
						: json_integer_value(json_object_get(setup->config, "max_tokens"));
	char cap[64] = "none";
	if (usd > 0)
		snprintf(cap, sizeof(cap), "%.2f USD", usd);
	else if (tokens > 0)
		snprintf(cap, sizeof(cap), "%lld tokens", (long long)tokens);
	const char *name = setup->scenario ? strrchr(setup->scenario, '/') : NULL;
	return format_text("executor %s, provider %s%s%s%s, model %s, isolation process, cap %s", kind, setup->provider,
			   name ? " (replays the scenario " : "", name ? name + 1 : "", name ? ")" : "",
			   model ? model : "default", cap);
}

void setup_free(struct setup *setup)
{
	free(setup->provider);
	free(setup->base_url);
	free(setup->api);
	free(setup->scenario);
	json_decref(setup->config);
	memset(setup, 0, sizeof(*setup));
}
