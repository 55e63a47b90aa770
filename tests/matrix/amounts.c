/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that need a sandbox of their own, because the attempt ends it or is a rule's: how much a load may have, and paths.
 * Each is made twice: with the limit or rule, where it is refused, and as its control in a sandbox without it.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <orch.h>

#include "amounts.h"
#include "targets.h"

#define MEMORY_MIB 64
#define TIME_MS 700

struct amount {
	const char *name;
	const char *command; /* succeeds where nothing stands in its way */
	void (*limit)(struct orch_sandbox_opts *opts);
	/* What is the same on both sides, and the rule. 0, or a negative error. */
	int32_t (*rule)(orch_sandbox *sandbox, bool with, orch_error **reterr);
	/* The file %P/NAME outside that the control changes, and the refused one does not; NULL: the exit tells. */
	const char *changes;
	uint32_t reason; /* of the refused one, where it is known to the host; 0: any */
	uint32_t scope_limit; /* ORCH_LIMIT_* that not every user can have: then it is not counted */
};

static void limit_memory(struct orch_sandbox_opts *opts)
{
	opts->max_memory_mib = MEMORY_MIB;
}

static void limit_time(struct orch_sandbox_opts *opts)
{
	opts->time_limit_ms = TIME_MS;
}

static void limit_disk(struct orch_sandbox_opts *opts)
{
	opts->tmp_mib = 4;
}

static int32_t deny_file(orch_sandbox *sandbox, bool with, orch_error **reterr)
{
	int32_t code = orch_sandbox_add_path(sandbox, place.folder, "/open", ORCH_PATH_READ, reterr);
	return code == 0 && with ? orch_sandbox_deny_path(sandbox, "/open/amount", reterr) : code;
}

static int32_t deny_later(orch_sandbox *sandbox, bool with, orch_error **reterr)
{
	int32_t code = orch_sandbox_set_workspace(sandbox, below(place.folder, "amounts"), NULL, reterr);
	return code == 0 && with ? orch_sandbox_deny_path(sandbox, "/work/.later", reterr) : code;
}

static int32_t over_lower(orch_sandbox *sandbox, bool with, orch_error **reterr)
{
	const char *folder = below(place.folder, "amounts");
	return with ? orch_sandbox_set_overlay(sandbox, folder, NULL, reterr)
		    : orch_sandbox_set_workspace(sandbox, folder, NULL, reterr);
}

static const struct amount amounts[] = {
	/* tail keeps the last 200 MB. */
	{.name = "limit.memory", .command = "head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null",
	 .limit = limit_memory, .reason = ORCH_REASON_MEMORY, .scope_limit = ORCH_LIMIT_MEMORY},
	{.name = "limit.time", .command = "sleep 2", .limit = limit_time, .reason = ORCH_REASON_TIME},
	{.name = "limit.disk", .command = "head -c 8000000 /dev/zero >/tmp/file && head -c 8000000 /dev/zero >/dev/shm/file",
	 .limit = limit_disk, .reason = ORCH_REASON_DISK},
	{.name = "path.denied", .command = "cat /open/amount", .rule = deny_file},
	{.name = "path.denied_later", .command = "echo x >/work/.later && cat /work/.later", .rule = deny_later},
	{.name = "path.denied_rename", .command = "echo x >/work/new && mv -T /work/new /work/.later && cat /work/.later",
	 .rule = deny_later},
	{.name = "overlay.lower", .command = "echo changed >/work/file", .rule = over_lower, .changes = "amounts/file"},
};

static bool write_file(const char *path, const char *text, uid_t uid)
{
	FILE *file = fopen(path, "we");
	bool done = file && fputs(text, file) >= 0;
	if (file)
		done = fclose(file) == 0 && done;
	return done && chmod(path, 0644) == 0 && (geteuid() != 0 || chown(path, uid, uid) == 0);
}

static bool prepare(uid_t uid)
{
	const char *folder = below(place.folder, "amounts");
	bool made = mkdir(folder, 0755) == 0 || errno == EEXIST;
	return made && (geteuid() != 0 || chown(folder, uid, uid) == 0) &&
	       write_file(below(place.folder, "amounts/file"), "as it was\n", uid) &&
	       write_file(below(place.folder, "amount"), "closed\n", uid);
}

static void remove_all(void)
{
	static const char *const files[] = {"amounts/file", "amounts/.later", "amounts/new", "amount"};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		unlink(below(place.folder, files[i]));
	rmdir(below(place.folder, "amounts"));
}

static bool is_changed(const char *name)
{
	char text[32] = "";
	FILE *file = fopen(below(place.folder, name), "re");
	bool read = file && fgets(text, sizeof(text), file);
	if (file)
		fclose(file);
	return read && strcmp(text, "changed\n") == 0;
}

/* Can this user have the limit? If not, the cause is in *text. */
static bool is_to_be_had(orch_sandbox *sandbox, uint32_t limit, char *text, size_t size)
{
	uint32_t state = 0;
	const char *mechanism = "";
	if (!limit || orch_scope_limit(orch_sandbox_scope(sandbox), limit, &state, &mechanism) < 0 ||
	    state == ORCH_LIMIT_ENFORCED)
		return true;
	snprintf(text, size, "%s", mechanism);
	return false;
}

/* SUCCEEDED, DENIED, UNTRIED, or UNSEEN: it can not be had here; with the cause in *text. */
static int run(orch_ctx *ctx, const struct amount *amount, bool with, uint32_t *ret_reason, char *text, size_t size)
{
	const char *const argv[] = {"sh", "-c", amount->command, NULL};
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_sandbox_result *result = NULL;
	orch_error *error = NULL;
	int outcome = UNTRIED;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	if (with && amount->limit)
		amount->limit(&opts);
	int32_t code = orch_sandbox_new(ctx, &opts, &sandbox, &error);
	if (code == 0 && !prepare(orch_sandbox_host_uid(sandbox))) {
		snprintf(text, size, "its files can not be made: %s", strerror(errno));
		orch_sandbox_unref(sandbox);
		return UNTRIED;
	}
	if (code == 0 && amount->rule)
		code = amount->rule(sandbox, with, &error);
	if (code == 0)
		code = orch_sandbox_run(sandbox, argv, NULL, &result, &error);
	if (code < 0) {
		snprintf(text, size, "%s", orch_error_message(error));
	} else {
		size_t length = 0;
		const char *words = orch_sandbox_result_output(result, 2, &length);
		bool done = orch_sandbox_result_status(result) == 0 && (!amount->changes || is_changed(amount->changes));
		outcome = done ? SUCCEEDED : DENIED;
		*ret_reason = orch_sandbox_result_reason(result);
		snprintf(text, size, "status %d, reason %u %.*s", orch_sandbox_result_status(result), *ret_reason,
			 (int)(length < 100 ? length : 100), words);
		text[strcspn(text, "\n")] = '\0';
		if (with && !is_to_be_had(sandbox, amount->scope_limit, text, size))
			outcome = UNSEEN;
	}
	orch_error_free(error);
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(sandbox);
	orch_ctx_process(ctx, NULL);
	remove_all();
	return outcome;
}

unsigned amounts_judge(orch_ctx *ctx, const char *who, bool table, unsigned *ret_counted)
{
	unsigned wrong = 0;
	for (unsigned i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++) {
		const struct amount *amount = &amounts[i];
		char with_text[256] = "", without_text[256] = "";
		uint32_t reason = 0, ignored = 0;
		int with = run(ctx, amount, true, &reason, with_text, sizeof(with_text));
		if (with == UNSEEN) {
			printf("not counted (%s): %s: %s\n", who, amount->name, with_text);
			continue;
		}
		++*ret_counted;
		int without = run(ctx, amount, false, &ignored, without_text, sizeof(without_text));
		bool holds = with == DENIED && without == SUCCEEDED && (!amount->reason || reason == amount->reason);
		if (table)
			printf("%-28s refused  %-26s control: %s\n", amount->name, with_text, without_text);
		if (holds)
			continue;
		printf("WRONG (%s): %s is refused, and inside: %s; its control, without the limit or rule: %s\n", who,
		       amount->name, with_text, without_text);
		wrong++;
	}
	return wrong;
}
