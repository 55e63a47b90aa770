/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "tour.h"

/*
 * Act 4: a run announces a release at a service outside, which writes down what arrives before it answers, and is slow to
 * answer. In between the coordinator is killed. The judge is the service's own log.
 */

#define RUN_MS 90000
#define SLOW_MS "1500"

struct outside {
	struct tour_child *service;
	char *log, *grant, *scenario, *program;
};

static int start_service(struct tour *tour, struct outside *outside)
{
	outside->log = format_text("%s/announcements.ndjson", tour->folder);
	outside->scenario = data_path("scenarios/greet", "scenarios/greet");
	outside->program = find_beside("../synth-provider/synth-provider");
	if (!outside->program)
		outside->program = find_beside("synth-provider");
	if (!outside->program)
		return fail_text(EXIT_ERROR, "synth-provider is missing: it is built and installed with orch-demo");
	const char *argv[] = {outside->program, "--scenario", outside->scenario, "--outside-log", outside->log,
			      "--outside-delay-ms", SLOW_MS, NULL};
	outside->service = tour_start(tour, argv, false);
	char *url = outside->service ? tour_line(tour, outside->service, 10000) : NULL;
	if (!url)
		return tour->interrupted ? EXIT_INTERRUPTED : fail_text(EXIT_ERROR, "the service outside did not start");
	outside->grant = format_text("notify.send=%s/outside/announce", url);
	free(url);
	return EXIT_FINE;
}

static void drop_service(struct outside *outside)
{
	tour_reap(outside->service);
	free(outside->log), free(outside->grant), free(outside->scenario), free(outside->program);
}

static int arrived(const struct outside *outside)
{
	int lines = 0;
	char *text = read_file(outside->log, 1 << 20, NULL);
	for (const char *c = text; c && *c; c++)
		lines += *c == '\n';
	free(text);
	return lines;
}

/* What the journal of a run that nobody has in hand says of its announcement. */
static char *journal_state(struct tour *tour, const char *state)
{
	const char *arguments[] = {"journal", "list", "--kind", "notify.send", "--json", "--state", state, NULL};
	struct tour_child *list = tour_start_demo(tour, arguments);
	char *line = list ? tour_line(tour, list, 20000) : NULL;
	json_t *action = line ? json_loads(line, 0, NULL) : NULL;
	const char *its = json_string_value(json_object_get(action, "state"));
	char *copy = strdup(its ? its : "no such action");
	if (list)
		tour_ended(tour, list, 10000);
	tour_reap(list);
	json_decref(action);
	free(line);
	return copy;
}

/* Runs it to its end; the state that the last event told, or NULL. */
static char *run_to_end(struct tour *tour, const char *const *arguments)
{
	struct tour_child *run = tour_start_demo(tour, arguments);
	char *line, *end = NULL;
	while (run && (line = tour_line(tour, run, RUN_MS))) {
		json_t *event = json_loads(line, 0, NULL);
		const char *name = json_string_value(json_object_get(event, "event")),
			   *its = json_string_value(json_object_get(event, "state"));
		if (name && its && strcmp(name, "end") == 0) {
			free(end);
			end = strdup(its);
		}
		json_decref(event);
		free(line);
	}
	if (run)
		tour_ended(tour, run, 10000);
	tour_reap(run);
	return end;
}

/* Kills the coordinator as soon as the announcement has arrived. */
static int kill_between(struct tour *tour, const struct outside *outside, const char *const *arguments, int *ret_status)
{
	struct tour_child *run = tour_start_demo(tour, arguments);
	if (!run)
		return EXIT_ERROR;
	for (int waited = 0; waited < RUN_MS && arrived(outside) == 0 && !tour_ended(tour, run, 0); waited += 5)
		if (!tour_sleep(tour, 5))
			break;
	if (arrived(outside) > 0)
		pidfd_send_signal(run->pidfd, SIGKILL, NULL, 0);
	*ret_status = tour_reap(run);
	return tour->interrupted ? EXIT_INTERRUPTED : EXIT_FINE;
}

int tour_twice(struct tour *tour)
{
	struct outside outside = {0};
	char *state = format_text("%s/twice", tour->folder), *anew = format_text("%s/anew", tour->folder);
	char *its = NULL, *end = NULL;
	int status = 0, code = start_service(tour, &outside);
	const char *run[] = {"run", "--yes", "--json", "--no-review", "--scenario", "greet", "--grant", outside.grant,
			     "--state", state, NULL};
	const char *resume[] = {"resume", "--yes", "--json", "--state", state, NULL};
	if (code != EXIT_FINE)
		goto out;
	tour_say(tour, "The same run announces its release at a service outside, which writes down what arrives and answers %s ms", SLOW_MS);
	tour_say(tour, "later. In between the coordinator is killed: it has asked, and will never see the answer.");
	tour_gap(tour);
	code = kill_between(tour, &outside, run, &status);
	if (code != EXIT_FINE)
		goto out;
	its = journal_state(tour, state);
	tour_expect(tour, WIFSIGNALED(status) && strcmp(its, "DISPATCHED") == 0 && arrived(&outside) == 1,
		    "SIGKILL: the service's log has %d announcement, the coordinator's journal says %s", arrived(&outside),
		    its);
	end = run_to_end(tour, resume);
	if (tour->interrupted)
		goto out;
	free(its);
	its = journal_state(tour, state);
	tour_expect(tour, end && strcmp(end, "DELIVERED") == 0 && strcmp(its, "CONFIRMED") == 0,
		    "resumed: it asks the service what became of it, the journal says %s, the run ends %s", its,
		    end ? end : "without an end");
	int count = arrived(&outside);
	tour_expect(tour, count == 1, "the service's own log has %d announcement", count);

	/* The control: the same idea without the memory. */
	run[9] = anew;
	free(end);
	end = run_to_end(tour, run);
	if (tour->interrupted)
		goto out;
	int again = arrived(&outside);
	tour_expect(tour, end && again == 2, "beside it, begun anew without the journal: the log has %d announcements", again);
out:
	if (tour->interrupted)
		code = EXIT_INTERRUPTED;
	drop_service(&outside);
	free(state), free(anew), free(its), free(end);
	return code;
}
