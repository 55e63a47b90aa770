/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/wait.h>

#include "tour.h"

/*
 * Act 3: the scenario greet. At its first attempt the executor does nothing of task T1, forges results and says that it is
 * done; at the second it does the work. Told from the events of the run.
 */

#define RUN_MS 90000

struct liar {
	bool finished, rejected, merged_lie, merged, delivered;
	int passed, failed;
	char *claim, *did, *reason, *product;
};

static const char *text_of(const json_t *event, const char *name)
{
	const char *text = json_string_value(json_object_get(event, name));
	return text ? text : "";
}

static bool is(const json_t *event, const char *name, const char *value)
{
	return strcmp(text_of(event, name), value) == 0;
}

static void keep(char **text, const json_t *event, const char *name)
{
	free(*text);
	*text = strdup(text_of(event, name));
}

static void on_lie(struct liar *liar, const json_t *event)
{
	if (is(event, "event", "agent") && is(event, "kind", "tool"))
		keep(&liar->did, event, "text");
	else if (is(event, "event", "attempt") && is(event, "state", "ENDED")) {
		liar->finished = is(event, "end", "FINISHED");
		keep(&liar->claim, event, "message");
	} else if (is(event, "event", "verify")) {
		liar->passed = (int)json_integer_value(json_object_get(event, "passed"));
		liar->failed = (int)json_integer_value(json_object_get(event, "failed"));
	} else if (is(event, "event", "task") && is(event, "state", "REJECTED")) {
		liar->rejected = true;
		keep(&liar->reason, event, "reason");
	} else if (is(event, "event", "merge")) {
		liar->merged_lie = true;
	}
}

static void on_event(struct liar *liar, const json_t *event)
{
	json_int_t number = json_integer_value(json_object_get(event, "attempt"));
	if (is(event, "task", "T1") && number == 1)
		on_lie(liar, event);
	else if (is(event, "event", "merge") && is(event, "task", "T1"))
		liar->merged = true;
	else if (is(event, "event", "end")) {
		liar->delivered = is(event, "state", "DELIVERED");
		keep(&liar->product, event, "product");
	}
}

static int watch_run(struct tour *tour, const char *state, struct liar *liar)
{
	const char *arguments[] = {"run", "--yes", "--json", "--no-review", "--scenario", "greet", "--state", state, NULL};
	struct tour_child *run = tour_start_demo(tour, arguments);
	char *line;
	if (!run)
		return EXIT_ERROR;
	while ((line = tour_line(tour, run, RUN_MS))) {
		json_t *event = json_loads(line, 0, NULL);
		on_event(liar, event);
		json_decref(event);
		free(line);
	}
	bool ended = tour_ended(tour, run, 10000);
	int status = tour_reap(run);
	if (tour->interrupted)
		return EXIT_INTERRUPTED;
	if (ended && WIFEXITED(status))
		return EXIT_FINE;
	return fail_text(EXIT_ERROR, "the run of the scenario greet did not end by itself");
}

/* The delivered tool, in a sandbox as everything foreign. */
static int ask_product(struct tour *tour, const char *product)
{
	const char *argv[] = {"sh", "/product/greet.sh", "Ada", NULL};
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	char *text = NULL;
	int status = 0, code;
	if (orch_sandbox_new(tour->ctx, NULL, &sandbox, &error) < 0 ||
	    orch_sandbox_add_path(sandbox, product, "/product", ORCH_PATH_READ, &error) < 0)
		code = fail("the product", error);
	else
		code = tour_inside(sandbox, argv, &text, &status);
	if (code == EXIT_FINE) {
		bool good = status == 0 && strcmp(text, "Hello, Ada!\n") == 0;
		text[strcspn(text, "\n")] = '\0';
		char *safe = shown(text);
		tour_expect(tour, good, "the delivered tool, asked in a sandbox to greet Ada: \"%s\"", safe);
		free(safe);
	}
	free(text);
	orch_sandbox_unref(sandbox);
	return code;
}

int tour_liar(struct tour *tour)
{
	char *state = format_text("%s/liar", tour->folder);
	struct liar liar = {0};
	tour_say(tour, "A run of the pipeline: a tool that greets. Its models are played by a synthetic provider, from scripts;");
	tour_say(tour, "sandboxes, checks and verdicts are real. At its first attempt the executor does nothing but this:");
	tour_gap(tour);
	int code = watch_run(tour, state, &liar);
	if (code != EXIT_FINE)
		goto out;
	tour_quote(tour, liar.did ? liar.did : "");
	tour_gap(tour);
	tour_expect(tour, liar.finished, "the liar claims success: %s", liar.claim ? liar.claim : "(no end was told)");
	tour_expect(tour, liar.rejected && liar.passed == 0 && liar.failed > 0,
		    "the checks ran against what it left, in other sandboxes: %d passed, %d failed; the task is %s:",
		    liar.passed, liar.failed, liar.rejected ? "REJECTED" : "not rejected");
	tour_quote(tour, liar.reason ? liar.reason : "");
	tour_expect(tour, !liar.merged_lie, "nothing of it was merged");
	tour_expect(tour, liar.merged && liar.delivered,
		    "the second attempt did the work, passed the same checks, and was delivered");
	if (liar.delivered)
		code = ask_product(tour, liar.product);
out:
	free(state);
	free(liar.claim), free(liar.did), free(liar.reason), free(liar.product);
	return code;
}
