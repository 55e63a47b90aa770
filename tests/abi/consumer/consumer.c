/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of somebody else: runs a program in a scope and stops it, lets one action of a journal
 * happen by permit, prints what came of both and the versions that the header and the library say.
 * Argument: orch-reaper, which a statically linked program can not find beside liborch.so.
 */
#define _DEFAULT_SOURCE /* mkdtemp() */
#include <orch.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int failed(const char *what, orch_error *error)
{
	fprintf(stderr, "%s: %s\n", what, orch_error_message(error));
	orch_error_free(error);
	return 1;
}

static int32_t count_lines(void *lines, const char *line, size_t length)
{
	*(int *)lines += length > 0 && line[length - 1] == '\n';
	return 0;
}

static int remembered(const char *path)
{
	struct orch_journal_opts opts = {.size = sizeof(opts), .path = path};
	struct orch_permit_opts permit_opts = {.size = sizeof(permit_opts), .name = "once", .kind = "consume"};
	struct orch_timer_opts timer_opts = {.size = sizeof(timer_opts), .name = "later", .delay_ms = 60000};
	struct orch_action_opts action_opts = {.size = sizeof(action_opts), .kind = "consume", .key = "it",
					       .permit = "once"};
	orch_journal *journal = NULL;
	orch_permit *permit = NULL;
	orch_timer *timer = NULL;
	orch_action *action = NULL;
	orch_error *error = NULL;
	uint32_t outcome = 0;
	int lines = 0;

	if (orch_journal_open(&opts, &journal, &error) != 0)
		return failed("orch_journal_open", error);
	if (orch_permit_issue(journal, &permit_opts, NULL, &error) != 0)
		return failed("orch_permit_issue", error);
	if (orch_timer_set(journal, &timer_opts, &timer, &error) != 0)
		return failed("orch_timer_set", error);
	if (orch_journal_begin(journal, &action_opts, &outcome, &action, &error) != 0)
		return failed("orch_journal_begin", error);
	if (orch_permit_find(journal, "once", &permit, &error) != 0)
		return failed("orch_permit_find", error);
	if (orch_journal_export(journal, 0, count_lines, &lines, &error) != 0)
		return failed("orch_journal_export", error);
	printf("permit %s timer %s lines %d\n", orch_permit_state_name(orch_permit_state(permit)),
	       orch_timer_state_name(orch_timer_state(timer)), lines);
	orch_action_unref(action);
	orch_timer_unref(timer);
	orch_permit_unref(permit);
	orch_journal_unref(journal);
	return 0;
}

static int remember(void)
{
	const char *const files[] = {"", "-wal", ".lock", ".reserve"};
	char folder[] = "/tmp/orch-consumer-XXXXXX", path[64], file[80];

	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/journal", folder);
	int bad = remembered(path);
	for (int i = 0; i < 4; i++) {
		snprintf(file, sizeof(file), "%s%s", path, files[i]);
		unlink(file);
	}
	rmdir(folder);
	return bad;
}

int main(int argc, char **argv)
{
	const char *const program[] = {"/bin/sh", "-c", "(sleep 600 &) ; exit 3", NULL};
	struct orch_ctx_opts ctx_opts;
	struct orch_proc_opts opts;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_proc *proc = NULL;
	orch_death *death = NULL;
	orch_error *error = NULL;
	int32_t status = -1;

	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	ctx_opts.helper_path = argc > 1 ? argv[1] : NULL;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = program;
	if (orch_ctx_new(&ctx_opts, &ctx, &error) != 0)
		return failed("orch_ctx_new", error);
	if (orch_scope_new(ctx, NULL, &scope, &error) != 0)
		return failed("orch_scope_new", error);
	if (orch_scope_spawn(scope, &opts, &proc, &error) != 0)
		return failed("orch_scope_spawn", error);
	if (orch_proc_wait(proc, 30000, &status, &error) != 0)
		return failed("orch_proc_wait", error);
	if (orch_scope_stop_wait(scope, NULL, &death, &error) != 0)
		return failed("orch_scope_stop_wait", error);
	printf("header %s library %s status %d verdict %s ", ORCH_VERSION_STRING, orch_version(), (int)status,
	       orch_death_verdict_name(death));
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	return remember();
}
