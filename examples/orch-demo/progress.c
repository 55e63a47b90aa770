/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "demo.h"

/*
 * Events for people: one line each; on a terminal also a live last line with what is running just now. With --json the
 * events go out as they are.
 */

struct running {
	char name[48];
	int64_t since_ms;
};

struct progress {
	bool json, terminal, live;
	int64_t started_ms;
	struct running running[16];
	size_t count;
};

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct progress *progress_new(bool json)
{
	struct progress *progress = calloc(1, sizeof(*progress));
	progress->json = json;
	progress->terminal = !json && isatty(STDOUT_FILENO);
	progress->started_ms = now_ms();
	return progress;
}

static unsigned columns(void)
{
	struct winsize size;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 10)
		return size.ws_col;
	return 80;
}

static void clear_live(struct progress *progress)
{
	if (progress->live)
		fputs("\r\033[K", stdout);
	progress->live = false;
}

/* Cuts to the terminal's width, between characters of UTF-8; control bytes become spaces. */
static void put_cut(const char *text, unsigned width)
{
	unsigned used = 0;
	for (const char *c = text; *c; c++) {
		bool start = ((unsigned char)*c & 0xc0) != 0x80;
		if (start && used++ >= width)
			break;
		putchar((unsigned char)*c < 32 || *c == 127 ? ' ' : *c);
	}
}

void progress_tick(struct progress *progress)
{
	if (!progress->terminal || progress->count == 0)
		return;
	char line[1024];
	size_t used = 0;
	int64_t now = now_ms();
	for (size_t i = 0; i < progress->count && used < sizeof(line) - 80; i++)
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s %llds", i ? " | " : "> ",
					 progress->running[i].name,
					 (long long)(now - progress->running[i].since_ms) / 1000);
	clear_live(progress);
	put_cut(line, columns() - 1);
	fflush(stdout);
	progress->live = true;
}

static void set_running(struct progress *progress, const char *name, bool running)
{
	size_t i = 0;
	while (i < progress->count && strcmp(progress->running[i].name, name) != 0)
		i++;
	if (running && i == progress->count && i < sizeof(progress->running) / sizeof(progress->running[0])) {
		snprintf(progress->running[i].name, sizeof(progress->running[i].name), "%s", name);
		progress->running[i].since_ms = now_ms();
		progress->count++;
	} else if (!running && i < progress->count) {
		progress->running[i] = progress->running[--progress->count];
	}
}

static const char *member(const json_t *event, const char *name)
{
	const char *text = json_string_value(json_object_get(event, name));
	return text ? text : "";
}

/* On the base tree and on the stub it is the failures that count. */
static char *describe_verification(const json_t *event)
{
	const char *purpose = member(event, "purpose"), *task = member(event, "task"), *error = member(event, "error");
	long long passed = (long long)json_integer_value(json_object_get(event, "passed"));
	long long failed = (long long)json_integer_value(json_object_get(event, "failed"));
	bool named = *task && strcmp(task, "-") != 0;
	if (*error)
		return format_text("%-8s verification failed: %s", named ? task : "checks", error);
	if (strcmp(purpose, "base") == 0 || strcmp(purpose, "stub") == 0)
		return format_text("checks   on the %s: %lld of %lld fail, as they must",
				   strcmp(purpose, "base") == 0 ? "base tree" : "stub", failed, passed + failed);
	return format_text("%-8s %s: %lld of %lld checks pass", named ? task : "all", *purpose ? purpose : "verified", passed,
			   passed + failed);
}

/* What is worth a line, as "subject  what"; NULL: nothing. The caller frees. */
static char *describe(struct progress *progress, const char *name, const json_t *event)
{
	const char *task = member(event, "task"), *state = member(event, "state"), *reason = member(event, "reason");
	long long attempt = (long long)json_integer_value(json_object_get(event, "attempt"));
	if (strcmp(name, "run") == 0)
		return format_text("run      %s%s%s", state, *reason ? ": " : "", reason);
	if (strcmp(name, "stage") == 0)
		return format_text("stage    %s %s", member(event, "stage"), state);
	if (strcmp(name, "question") == 0)
		return format_text("question %s: %s [%s]", member(event, "id"), member(event, "text"),
				   member(event, "recommended"));
	if (strcmp(name, "answer") == 0)
		return format_text("answer   %s: %s (%s)", member(event, "id"), member(event, "text"),
				   member(event, "by"));
	if (strcmp(name, "task") == 0)
		return format_text("%-8s %s%s%s", task, state, *reason ? ": " : "", reason);
	if (strcmp(name, "attempt") == 0) {
		bool begins = strcmp(state, "RUNNING") == 0 || strcmp(state, "running") == 0;
		const char *stage = member(event, "stage");
		char *label = *task && strcmp(task, "-") != 0 ? format_text("%s %s", stage, task) : strdup(stage);
		set_running(progress, label, begins);
		char *line = begins ? NULL
				    : format_text("%-8s attempt %lld %s, certificate %s", *task && strcmp(task, "-") ? task : stage,
						  attempt, member(event, "end"), member(event, "verdict"));
		free(label);
		return line;
	}
	if (strcmp(name, "verify") == 0)
		return describe_verification(event);
	if (strcmp(name, "merge") == 0)
		return format_text("%-8s merged as tree %.12s", task, member(event, "tree"));
	if (strcmp(name, "operation") == 0 && strcmp(member(event, "code"), "") != 0)
		return format_text("broker   %s refused: %s", member(event, "operation"), member(event, "code"));
	if (strcmp(name, "overlay") == 0)
		return format_text("run      %s %s%s%s", member(event, "overlay"),
				   json_is_false(json_object_get(event, "on")) ? "over" : "", *reason ? ": " : "", reason);
	if (strcmp(name, "recovered") == 0)
		return format_text("recover  %s %s: %s", member(event, "kind"), member(event, "key"),
				   member(event, "decision"));
	if (strcmp(name, "end") == 0)
		return format_text("%s%s%s\n  report   %s\n  product  %s", state, *reason ? ": " : "", reason,
				   member(event, "report"), *member(event, "product") ? member(event, "product") : "none");
	return NULL;
}

void progress_event(struct progress *progress, const char *text)
{
	if (progress->json) {
		puts(text);
		fflush(stdout);
		return;
	}
	json_t *event = json_loads(text, 0, NULL);
	char *line = describe(progress, member(event, "event"), event);
	if (line) {
		clear_live(progress);
		printf("%6.1fs  ", (double)(now_ms() - progress->started_ms) / 1000.0);
		bool end = strcmp(member(event, "event"), "end") == 0;
		if (progress->terminal && !end)
			put_cut(line, columns() > 10 ? columns() - 10 : 10);
		else
			fputs(line, stdout);
		putchar('\n');
		fflush(stdout);
	}
	free(line);
	json_decref(event);
}

struct progress *progress_free(struct progress *progress)
{
	if (progress)
		clear_live(progress);
	free(progress);
	return NULL;
}
