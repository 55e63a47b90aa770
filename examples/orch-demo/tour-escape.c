/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tour.h"

/*
 * Act 1: a service of the user has a secret. tour-attempt goes for it in a sandbox, and then as an ordinary program of the
 * user's, at the same target: only where that works does a refusal inside say anything.
 */

#define INNER_ATTEMPT "/tour/attempt"
#define INNER_PROJECT "/tour/project"

struct target {
	struct tour_child *service;
	char *folder, *socket, *project, *closed_file, *open_file;
	char port[16], pid[16], start[32];
};

struct try {
	const char *what, *name;
	const char *arguments[2];
	const char *inner; /* what is there in the first one's place; NULL: the same */
	bool secret; /* it worked if the secret came out, whatever the exit code */
	/* Where a host closes this to everybody: the setting, or "" if it has none of its own. NULL: no host does. */
	const char *closed_by;
};

struct outcome {
	bool worked, refused;
	char *text; /* its first line */
};

/* --- the target -------------------------------------------------------------------------------------------------- */

static bool make_files(const struct tour *tour, struct target *target)
{
	target->folder = format_text("%s/service", tour->folder);
	target->socket = format_text("%s/socket", target->folder);
	target->project = format_text("%s/project", tour->folder);
	target->closed_file = format_text("%s/.env", target->project);
	target->open_file = format_text("%s/README", target->project);
	char *secret = format_text("%s\n", tour->secret);
	bool good = mkdir(target->folder, 0700) == 0 && mkdir(target->project, 0755) == 0 &&
		    write_file(target->closed_file, secret) && chmod(target->closed_file, 0644) == 0 &&
		    write_file(target->open_file, secret) && chmod(target->open_file, 0644) == 0;
	free(secret);
	if (!good)
		fail_text(EXIT_ERROR, "%s: %m", tour->folder);
	return good;
}

static int make_target(struct tour *tour, struct target *target)
{
	if (!make_files(tour, target))
		return EXIT_ERROR;
	const char *argv[] = {tour->attempt, "service", target->folder, NULL};
	target->service = tour_start(tour, argv, false);
	char *line = target->service ? tour_line(tour, target->service, 10000) : NULL;
	bool good = line && sscanf(line, "%15s %31s", target->port, target->start) == 2;
	free(line);
	if (!good)
		return tour->interrupted ? EXIT_INTERRUPTED : fail_text(EXIT_ERROR, "the tour's own service did not start");
	snprintf(target->pid, sizeof(target->pid), "%d", (int)target->service->pid);
	return EXIT_FINE;
}

static void drop_target(struct target *target)
{
	tour_reap(target->service);
	free(target->folder);
	free(target->socket);
	free(target->project);
	free(target->closed_file);
	free(target->open_file);
}

/* --- one attempt ---------------------------------------------------------------------------------------------------- */

static void judge(const struct tour *tour, const struct try *try, char *text, int status, struct outcome *outcome)
{
	bool got = strstr(text, tour->secret);
	outcome->worked = got || (!try->secret && status == 0);
	outcome->refused = !got && status == 1;
	text[strcspn(text, "\n")] = '\0';
	outcome->text = got ? strdup("got the secret") : shown(text);
	free(text);
}

static int try_inside(struct tour *tour, const struct target *target, const struct try *try, struct outcome *outcome)
{
	const char *argv[] = {INNER_ATTEMPT, try->name, try->inner ? try->inner : try->arguments[0], try->arguments[1], NULL};
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	char *text = NULL;
	int status = 0, code = EXIT_FINE;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.label = "tour";
	if (orch_sandbox_new(tour->ctx, &opts, &sandbox, &error) < 0 ||
	    orch_sandbox_add_path(sandbox, tour->attempt, INNER_ATTEMPT, ORCH_PATH_READ | ORCH_PATH_EXEC, &error) < 0 ||
	    orch_sandbox_add_path(sandbox, target->project, INNER_PROJECT, ORCH_PATH_READ, &error) < 0 ||
	    orch_sandbox_deny_path(sandbox, INNER_PROJECT "/.env", &error) < 0 ||
	    orch_sandbox_start_wait(sandbox, 20000, &error) < 0)
		code = fail("the sandbox", error);
	else
		code = tour_inside(sandbox, argv, &text, &status);
	if (code == EXIT_FINE)
		judge(tour, try, text, status, outcome);
	orch_sandbox_unref(sandbox);
	return code;
}

static int try_beside(struct tour *tour, const struct try *try, struct outcome *outcome)
{
	const char *argv[] = {tour->attempt, try->name, try->arguments[0], try->arguments[1], NULL};
	struct tour_child *child = tour_start(tour, argv, false);
	if (!child)
		return EXIT_ERROR;
	char *text = tour_output(tour, child, 10000);
	bool ended = tour_ended(tour, child, 10000);
	int status = tour_reap(child);
	judge(tour, try, text, ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1, outcome);
	return EXIT_FINE;
}

/* The setting that closes this to everybody, with its value; the caller frees. */
static char *who_closed(const struct try *try)
{
	if (!*try->closed_by)
		return strdup("this host refuses it to everybody");
	char *path = format_text("/proc/sys/%s", try->closed_by), *value = NULL;
	size_t size = 0;
	FILE *file = fopen(path, "re");
	if (file && getline(&value, &size, file) > 0)
		value[strcspn(value, "\n")] = '\0';
	if (file)
		fclose(file);
	char *text = format_text("this host refuses it to everybody (%s: %s)", path, value ? value : "not there");
	free(path), free(value);
	return text;
}

static int attempt(struct tour *tour, const struct target *target, const struct try *try)
{
	struct outcome inside = {0}, beside = {0};
	int code = try_inside(tour, target, try, &inside);
	if (code == EXIT_FINE)
		code = try_beside(tour, try, &beside);
	if (code == EXIT_FINE && !tour->interrupted) {
		bool comparable = beside.worked || !beside.refused || !try->closed_by;
		char *why = comparable ? NULL : who_closed(try);
		bool held = inside.refused && (beside.worked || !comparable);
		held ? tour->held++ : tour->failed++;
		tour->incomparable += !comparable;
		const char *mark = !held ? "[FAILED]" : comparable ? "[holds] " : "[  -  ] ";
		tour_say(tour, "%s %-34s %-42s %s", mark, try->what, inside.text, why ? why : beside.text);
		tour_object(tour, json_pack("{s:s, s:s, s:b, s:s, s:b, s:s, s:b, s:b}", "event", "attempt", "what", try->what,
					    "refused_inside", inside.refused, "inside", inside.text, "worked_beside",
					    beside.worked, "beside", beside.text, "comparable", comparable, "holds", held));
		free(why);
	}
	free(inside.text), free(beside.text);
	return code;
}

/* --- the act ---------------------------------------------------------------------------------------------------------- */

static int try_all(struct tour *tour, const struct target *target)
{
	const char *name = strrchr(target->folder, '/') + 1;
	const struct try tries[] = {
		{"read .env in an open folder", "file", {target->closed_file}, INNER_PROJECT "/.env", true, NULL},
		{"the same by HTTP, 127.0.0.1", "http", {target->port}, NULL, true, NULL},
		{"the same by a Unix socket", "unix", {target->socket}, NULL, true, NULL},
		{"the same by an abstract socket", "abstract", {name}, NULL, true, NULL},
		{"out of its environment in /proc", "environ", {target->pid, target->start}, NULL, true, NULL},
		{"out of one's own environment", "environment", {TOUR_SECRET}, NULL, true, NULL},
		{"trace the service (ptrace)", "trace", {target->pid, target->start}, NULL, false, "kernel/yama/ptrace_scope"},
		{"make a ring (io_uring)", "io_uring", {NULL}, NULL, false, "kernel/io_uring_disabled"},
		{"a user namespace inside this one", "nested", {NULL}, NULL, false, "user/max_user_namespaces"},
		{"type into a terminal (TIOCSTI)", "tty", {NULL}, NULL, false, "dev/tty/legacy_tiocsti"},
		{"reach the host's core_pattern", "core_pattern", {"/proc/sys/kernel/core_pattern"}, NULL, false, ""},
		/* The last one: beside, it is the service's end. */
		{"end the service by a signal", "signal", {target->pid, target->start}, NULL, false, NULL},
	};
	int code = EXIT_FINE;
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && code == EXIT_FINE && !tour->interrupted; i++)
		code = attempt(tour, target, &tries[i]);
	return code;
}

int tour_escape(struct tour *tour)
{
	struct target target = {0};
	struct outcome given = {0};
	int code = make_target(tour, &target);
	if (code != EXIT_FINE)
		goto out;
	tour_say(tour, "A service of yours runs beside this tour and has a secret. One program goes for it, twice, at the same");
	tour_say(tour, "target: in a sandbox, where it has to be refused; and beside it, as a program of yours, where it has to work.");
	tour_gap(tour);

	const struct try allowed = {"", "file", {target.open_file}, INNER_PROJECT "/README", true, NULL};
	code = try_inside(tour, &target, &allowed, &given);
	if (code != EXIT_FINE)
		goto out;
	tour_expect(tour, given.worked, "the sandbox is given a folder, but for its .env; another file of it can be read inside: %s",
		    given.text);
	tour_gap(tour);
	tour_say(tour, "%8s %-34s %-42s %s", "", "ATTEMPT", "IN THE SANDBOX", "BESIDE IT");
	code = try_all(tour, &target);
	if (code != EXIT_FINE || tour->interrupted)
		goto out;
	tour_gap(tour);
	tour_expect(tour, tour_ended(tour, target.service, 5000), "the service lived until the signal from beside the sandbox");
out:
	free(given.text);
	drop_target(&target);
	return code;
}
