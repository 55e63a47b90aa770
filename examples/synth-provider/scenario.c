/* SPDX-License-Identifier: Apache-2.0 */
#include "scenario.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LIMIT (1024 * 1024)
/* A chain of `extends` longer than this is taken for a circle. */
#define EXTENDS_LIMIT 8

static const char *const roles[] = {"planner", "checker", "executor", "reviewer", NULL};
static const char *const stages[] = {"clarify", "specify", "check", "plan", "execute", "review", NULL};

struct problem {
	char *text;
	size_t size;
};

static bool __attribute__((format(printf, 2, 3))) fail(struct problem *problem, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(problem->text, problem->size, format, args);
	va_end(args);
	return false;
}

/* The whole file, terminated; NULL and a problem. */
static char *read_file(const char *path, struct problem *problem)
{
	char *text = NULL;
	struct stat status;
	size_t length = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0) {
		fail(problem, "%s: can not be read: %s", path, strerror(errno));
		return NULL;
	}
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size > FILE_LIMIT) {
		fail(problem, "%s: not a regular file of at most %d bytes", path, FILE_LIMIT);
		goto out;
	}
	text = malloc((size_t)status.st_size + 1);
	if (text == NULL) {
		fail(problem, "%s: out of memory", path);
		goto out;
	}
	while (length < (size_t)status.st_size) {
		ssize_t got = read(fd, text + length, (size_t)status.st_size - length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	text[length] = '\0';
	if (strlen(text) != length) {
		fail(problem, "%s: contains a NUL byte", path);
		free(text);
		text = NULL;
	}
out:
	close(fd);
	return text;
}

static bool listed(const char *const *list, const char *word, size_t length)
{
	for (; *list != NULL; list++) {
		if (strlen(*list) == length && memcmp(*list, word, length) == 0)
			return true;
	}
	return false;
}

/* ROLE-STAGE[-TASK][.ATTEMPT].sh */
static bool name_is_right(const char *name)
{
	size_t role = strcspn(name, "-.");
	const char *stage = name + role + 1, *rest;
	size_t length;

	if (name[role] != '-' || !listed(roles, name, role))
		return false;
	length = strcspn(stage, "-.");
	if (!listed(stages, stage, length))
		return false;
	rest = stage + length;
	if (*rest == '-') {
		length = strcspn(rest + 1, ".");
		if (length == 0)
			return false;
		rest += 1 + length;
	}
	if (rest[0] == '.' && rest[1] >= '1' && rest[1] <= '9')
		rest += 1 + strspn(rest + 1, "0123456789");
	return strcmp(rest, ".sh") == 0;
}

static bool is_separator(const char *line, size_t length)
{
	while (length > 0 && strchr(" \t\r", line[length - 1]) != NULL)
		length--;
	return length == 4 && memcmp(line, "#---", 4) == 0;
}

static bool add_step(struct script *script, const char *path, const char *text, size_t length,
		     unsigned line, struct problem *problem)
{
	char **steps, *step;
	json_t *string;

	if (strspn(text, " \t\r\n") >= length)
		return fail(problem, "%s:%u: step %zu is empty", path, line, script->step_count + 1);
	string = json_stringn(text, length);
	if (string == NULL)
		return fail(problem, "%s:%u: step %zu is not UTF-8", path, line, script->step_count + 1);
	json_decref(string);
	step = strndup(text, length);
	steps = realloc(script->steps, (script->step_count + 1) * sizeof(*steps));
	if (steps != NULL)
		script->steps = steps;
	if (step == NULL || steps == NULL) {
		free(step);
		return fail(problem, "%s: out of memory", path);
	}
	script->steps[script->step_count++] = step;
	return true;
}

static bool split_steps(struct script *script, const char *path, const char *text, struct problem *problem)
{
	const char *start = text, *line = text;
	unsigned number = 1, start_number = 1;

	if (text[strspn(text, " \t\r\n")] == '\0')
		return fail(problem, "%s:1: no steps: the file is empty", path);
	while (*line != '\0') {
		size_t length = strcspn(line, "\n");
		const char *next = line + length + (line[length] == '\n');

		number++;
		if (is_separator(line, length)) {
			if (!add_step(script, path, start, (size_t)(line - start), start_number, problem))
				return false;
			start = next;
			start_number = number;
		}
		line = next;
	}
	return add_step(script, path, start, (size_t)(line - start), start_number, problem);
}

static void script_clear(struct script *script)
{
	for (size_t i = 0; i < script->step_count; i++)
		free(script->steps[i]);
	free(script->steps);
	free(script->name);
	free(script->folder);
}

static const struct script *find_name(const struct scenario *scenario, const char *name)
{
	for (size_t i = 0; i < scenario->script_count; i++) {
		if (strcmp(scenario->scripts[i].name, name) == 0)
			return &scenario->scripts[i];
	}
	return NULL;
}

static bool add_script(struct scenario *scenario, const char *folder, const char *name,
		       struct problem *problem)
{
	struct script script = {0}, *scripts;
	char *path = NULL, *text = NULL;
	bool done = false;

	if (asprintf(&path, "%s/%s", folder, name) < 0)
		return fail(problem, "%s: out of memory", folder);
	if (!name_is_right(name)) {
		fail(problem, "%s: the name is not ROLE-STAGE[-TASK][.ATTEMPT].sh with a known role and stage",
		     path);
		goto out;
	}
	text = read_file(path, problem);
	if (text == NULL || !split_steps(&script, path, text, problem))
		goto out;
	script.name = strdup(name);
	script.folder = strdup(folder);
	scripts = realloc(scenario->scripts, (scenario->script_count + 1) * sizeof(*scripts));
	if (scripts != NULL)
		scenario->scripts = scripts;
	if (script.name == NULL || script.folder == NULL || scripts == NULL) {
		fail(problem, "%s: out of memory", path);
		goto out;
	}
	scenario->scripts[scenario->script_count++] = script;
	done = true;
out:
	if (!done)
		script_clear(&script);
	free(text);
	free(path);
	return done;
}

static bool add_folder(struct scenario *scenario, const char *folder, struct problem *problem)
{
	struct dirent **entries = NULL;
	int count = scandir(folder, &entries, NULL, alphasort);
	bool good = true;

	if (count < 0)
		return fail(problem, "%s: can not be listed: %s", folder, strerror(errno));
	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name;
		size_t length = strlen(name);

		/* A nearer folder's script of the same name was found before. */
		if (good && length > 3 && strcmp(name + length - 3, ".sh") == 0 &&
		    find_name(scenario, name) == NULL)
			good = add_script(scenario, folder, name, problem);
		free(entries[i]);
	}
	free(entries);
	return good;
}

/* 1: text in *ret_text; 0: absent; -1: a problem. */
static int string_member(const json_t *object, const char *path, const char *key, const char **ret_text,
			 struct problem *problem)
{
	const json_t *value = json_object_get(object, key);

	if (value == NULL)
		return 0;
	if (!json_is_string(value) || json_string_length(value) == 0) {
		fail(problem, "%s:1: \"%s\" is not a text", path, key);
		return -1;
	}
	*ret_text = json_string_value(value);
	return 1;
}

/* Reads one folder of the chain. *ret_next: the folder it extends, or NULL. */
static bool load_one(struct scenario *scenario, const char *folder, char **ret_next,
		     struct problem *problem)
{
	const char *name = NULL, *idea = NULL, *extends = NULL;
	char *path = NULL, *text = NULL;
	json_t *root = NULL;
	json_error_t where;
	bool good = false;

	if (asprintf(&path, "%s/scenario.json", folder) < 0)
		return fail(problem, "%s: out of memory", folder);
	text = read_file(path, problem);
	if (text == NULL)
		goto out;
	root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (root == NULL) {
		fail(problem, "%s:%d: %s", path, where.line, where.text);
		goto out;
	}
	if (!json_is_object(root)) {
		fail(problem, "%s:1: not a JSON object", path);
		goto out;
	}
	if (string_member(root, path, "name", &name, problem) < 0 ||
	    string_member(root, path, "idea", &idea, problem) < 0 ||
	    string_member(root, path, "extends", &extends, problem) < 0)
		goto out;
	if (name == NULL) {
		fail(problem, "%s:1: \"name\" is missing", path);
		goto out;
	}
	if (scenario->name == NULL)
		scenario->name = strdup(name);
	if (scenario->idea == NULL && idea != NULL)
		scenario->idea = strdup(idea);
	if (extends != NULL &&
	    asprintf(ret_next, "%s%s%s", extends[0] == '/' ? "" : folder, extends[0] == '/' ? "" : "/",
		     extends) < 0) {
		*ret_next = NULL;
		fail(problem, "%s: out of memory", path);
		goto out;
	}
	good = add_folder(scenario, folder, problem);
out:
	json_decref(root);
	free(text);
	free(path);
	return good;
}

struct scenario *scenario_load(const char *folder, char *error, size_t error_size)
{
	struct problem problem = {error, error_size};
	struct scenario *scenario = calloc(1, sizeof(*scenario));
	char *current = strdup(folder);
	unsigned depth = 0;
	bool good = scenario != NULL && current != NULL;

	error[0] = '\0';
	while (good && current != NULL) {
		char *next = NULL;

		if (++depth > EXTENDS_LIMIT)
			good = fail(&problem,
				    "%s/scenario.json:1: \"extends\" goes round in a circle, or over %d "
				    "folders",
				    current, EXTENDS_LIMIT);
		else
			good = load_one(scenario, current, &next, &problem);
		free(current);
		current = next;
	}
	free(current);
	if (good && scenario->idea == NULL)
		good = fail(&problem, "%s/scenario.json:1: \"idea\" is missing", folder);
	if (good && scenario->script_count == 0)
		good = fail(&problem, "%s: no steps: there is no ROLE-STAGE[-TASK][.ATTEMPT].sh", folder);
	return good ? scenario : scenario_free(scenario);
}

struct scenario *scenario_free(struct scenario *scenario)
{
	if (scenario == NULL)
		return NULL;
	for (size_t i = 0; i < scenario->script_count; i++)
		script_clear(&scenario->scripts[i]);
	free(scenario->scripts);
	free(scenario->name);
	free(scenario->idea);
	free(scenario);
	return NULL;
}

const struct script *scenario_find(const struct scenario *scenario, const struct packet *packet,
				   char *wanted, size_t wanted_size)
{
	const struct script *script;
	char name[256], task[72] = "";

	if (strcmp(packet->task, "-") != 0)
		snprintf(task, sizeof(task), "-%s", packet->task);
	snprintf(wanted, wanted_size, "%s-%s%s.sh", packet->role, packet->stage, task);

	snprintf(name, sizeof(name), "%s-%s%s.%u.sh", packet->role, packet->stage, task, packet->attempt);
	script = find_name(scenario, name);
	if (script == NULL)
		script = find_name(scenario, wanted);
	if (script != NULL || task[0] == '\0')
		return script;
	snprintf(name, sizeof(name), "%s-%s.%u.sh", packet->role, packet->stage, packet->attempt);
	script = find_name(scenario, name);
	if (script != NULL)
		return script;
	snprintf(name, sizeof(name), "%s-%s.sh", packet->role, packet->stage);
	return find_name(scenario, name);
}
