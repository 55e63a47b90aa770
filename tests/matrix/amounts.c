/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that need a sandbox of their own, because the attempt ends it or is a rule's: how much a load may have, and paths.
 * Each is made twice: with the limit or rule, where it is refused, and as its control in a sandbox without it.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <orch.h>

#include "../../lib/sandbox/sandbox-private.h"
#include "../unit/controllers.h"
#include "../unit/kernel.h"
#include "amounts.h"
#include "outside.h"
#include "targets.h"

#define MEMORY_MIB 64
#define TIME_MS 700
#define CPU_PERCENT_MOST 5
/* For what hangs only: a start has no more of a processor than its programs. */
#define RUN_MS 900000

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
	const char *controller; /* where this user has it, the limit is to be had */
	/* And what the kernel held or counted of the refused one. */
	bool (*held)(const struct outside *outside, char *text, size_t size);
	const char *guard; /* of `left_out`: without it, it is not refused */
	unsigned linux_major, linux_minor; /* An older Linux can not: then it is not counted */
};

/* What keeps an amount small: of the policy, or what a test build of orch-reaper leaves out. */
static const struct left_out {
	const char *name, *protection;
	uint64_t bit;
} left_out[] = {
	{.name = "memory", .protection = "memory"},
	{.name = "cpu", .protection = "cpu"},
	{.name = "tmp size", .bit = ORCH_SPEC_WITHOUT_TMP_SIZE},
	{.name = "landlock", .bit = ORCH_SPEC_WITHOUT_LANDLOCK},
};

static void limit_memory(struct orch_sandbox_opts *opts)
{
	opts->max_memory_mib = MEMORY_MIB;
}

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A sixth of what this machine leaves to who has no limit, so that also a busy one gives three
 * times as much. */
static uint32_t cpu_percent(void)
{
	static uint32_t percent;

	if (!percent) {
		int64_t wall = clock_us(CLOCK_MONOTONIC), used = clock_us(CLOCK_PROCESS_CPUTIME_ID);

		while (clock_us(CLOCK_MONOTONIC) - wall < 1000000)
			;
		wall = clock_us(CLOCK_MONOTONIC) - wall;
		percent = (uint32_t)((clock_us(CLOCK_PROCESS_CPUTIME_ID) - used) * 100 / wall / 6);
		percent = percent < 1 ? 1 : percent > CPU_PERCENT_MOST ? CPU_PERCENT_MOST : percent;
	}
	return percent;
}

static void limit_cpu(struct orch_sandbox_opts *opts)
{
	opts->max_cpu_percent = cpu_percent();
	opts->setup_timeout_ms = RUN_MS;
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

/* No mount and no mode forbids to read it. */
static int32_t write_only(orch_sandbox *sandbox, bool with, orch_error **reterr)
{
	return orch_sandbox_add_path(sandbox, below(place.folder, "amount"), "/amount",
				     ORCH_PATH_WRITE | (with ? 0 : ORCH_PATH_READ), reterr);
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

static int32_t spinner(orch_sandbox *sandbox, bool with, orch_error **reterr)
{
	char much[16];

	(void)with;
	snprintf(much, sizeof(much), "%u", 3 * cpu_percent());
	int32_t code =
		orch_sandbox_add_path(sandbox, below(place.base, "matrix-attempt"), "/attack/spin",
				      ORCH_PATH_READ | ORCH_PATH_EXEC, reterr);
	if (code == 0)
		code = orch_sandbox_set_workspace(sandbox, below(place.folder, "amounts"), NULL,
						  reterr);
	return code == 0 ? orch_sandbox_set_env(sandbox, "MUCH", much, reterr) : code;
}

static bool was_throttled(const struct outside *outside, char *text, size_t size)
{
	snprintf(text, size, "waited in %llu periods for more than %u %%",
		 (unsigned long long)outside->throttled, cpu_percent());
	return outside->throttled > 0;
}

/* None of it, whether this host has any or not; where the kernel does not count it, no swap at all. */
static bool has_no_swap(const struct outside *outside, char *text, size_t size)
{
	snprintf(text, size, "may have %lld bytes and %lld of swap%s, of which it used %llu",
		 (long long)outside->memory, (long long)outside->swap,
		 outside->swap_is_counted ? "" : " (not counted here)",
		 (unsigned long long)outside->swapped);
	return outside->memory == (uint64_t)MEMORY_MIB << 20 && outside->swapped == 0 &&
	       (outside->swap == 0 ||
		(!outside->swap_is_counted && !file_has_word("/proc/swaps", "partition") &&
		 !file_has_word("/proc/swaps", "file")));
}

/* tail keeps the last 200 MB. */
#define TAKES_MEMORY "head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null"

static const struct amount amounts[] = {
	{.name = "limit.memory",
	 .command = TAKES_MEMORY,
	 .limit = limit_memory,
	 .reason = ORCH_REASON_MEMORY,
	 .scope_limit = ORCH_LIMIT_MEMORY,
	 .controller = "memory",
	 .guard = "memory"},
	{.name = "limit.swap",
	 .command = TAKES_MEMORY,
	 .limit = limit_memory,
	 .reason = ORCH_REASON_MEMORY,
	 .scope_limit = ORCH_LIMIT_MEMORY,
	 .controller = "memory",
	 .held = has_no_swap,
	 .guard = "memory"},
	/* Succeeds if it has three times as much for two seconds. */
	{.name = "limit.cpu",
	 .command = "/attack/spin --spin $MUCH /work/enough",
	 .limit = limit_cpu,
	 .rule = spinner,
	 .scope_limit = ORCH_LIMIT_CPU,
	 .controller = "cpu",
	 .held = was_throttled,
	 .guard = "cpu"},
	{.name = "limit.time",
	 .command = "sleep 2",
	 .limit = limit_time,
	 .reason = ORCH_REASON_TIME},
	{.name = "limit.disk",
	 .command =
		 "head -c 8000000 /dev/zero >/tmp/file && head -c 8000000 /dev/zero >/dev/shm/file",
	 .limit = limit_disk,
	 .reason = ORCH_REASON_DISK,
	 .guard = "tmp size"},
	{.name = "path.denied", .command = "cat /open/amount", .rule = deny_file},
	{.name = "path.write_only",
	 .command = "cat /amount",
	 .rule = write_only,
	 .guard = "landlock"},
	{.name = "path.denied_later",
	 .command = "echo x >/work/.later && cat /work/.later",
	 .rule = deny_later},
	{.name = "path.denied_rename",
	 .command = "echo x >/work/new && mv -T /work/new /work/.later && cat /work/.later",
	 .rule = deny_later},
	{.name = "overlay.lower",
	 .command = "echo changed >/work/file",
	 .rule = over_lower,
	 .changes = "amounts/file",
	 .linux_major = 6,
	 .linux_minor = 6},
};

#define AMOUNTS (sizeof(amounts) / sizeof(amounts[0]))

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
	static const char *const files[] = {"amounts/file", "amounts/.later", "amounts/new",
					    "amounts/enough", "amount"};
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

/* One side of an amount, and what came of it. */
struct side {
	bool with;			/* the limit or the rule */
	const struct left_out *without; /* and nevertheless not this one; NULL: all of it */
	int outcome;			/* SUCCEEDED, DENIED or UNTRIED */
	uint32_t reason;
	struct outside outside;
	char text[320];
};

static int32_t side_start(orch_ctx *ctx, const struct amount *amount, const struct side *side,
			  orch_sandbox **ret_sandbox, orch_error **reterr)
{
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	if (side->with && amount->limit)
		amount->limit(&opts);
	int32_t code = orch_sandbox_new(ctx, &opts, &sandbox, reterr);
	if (code < 0)
		return code;
	*ret_sandbox = sandbox;
	if (!prepare(orch_sandbox_host_uid(sandbox)))
		return ORCH_ESYS;
	if (amount->rule)
		code = amount->rule(sandbox, side->with, reterr);
	if (code == 0 && side->without && side->without->protection)
		code = orch_sandbox_set_protection(sandbox, side->without->protection,
						   ORCH_PROTECT_OFF, reterr);
	if (side->without)
		sandbox->without = side->without->bit;
	return code < 0 ? code : orch_sandbox_start_wait(sandbox, RUN_MS, reterr);
}

static void side_tell(struct side *side, const struct amount *amount,
		      const orch_sandbox_result *result)
{
	size_t length = 0;
	const char *words = orch_sandbox_result_output(result, 2, &length);
	int32_t status = orch_sandbox_result_status(result);
	bool done = status == 0 && (!amount->changes || is_changed(amount->changes));

	side->outcome = done ? SUCCEEDED : DENIED;
	side->reason = orch_sandbox_result_reason(result);
	snprintf(side->text, sizeof(side->text), "status %d, reason %u %.*s", status, side->reason,
		 (int)(length < 100 ? length : 100), words);
	side->text[strcspn(side->text, "\n")] = '\0';
}

static void side_run(orch_ctx *ctx, const struct amount *amount, struct side *side)
{
	const char *const argv[] = {"sh", "-c", amount->command, NULL};
	struct orch_run_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_sandbox_result *result = NULL;
	orch_error *error = NULL;

	orch_run_opts_init(&opts, sizeof(opts));
	opts.timeout_ms = RUN_MS;
	side->outcome = UNTRIED;
	int32_t code = side_start(ctx, amount, side, &sandbox, &error);
	/* A limit of time may strike in the start, and is a result of the run all the same. */
	if (code == ORCH_ECANCELED) {
		error = orch_error_free(error);
		code = 0;
	}
	if (code == 0) {
		outside_begin(&side->outside, orch_scope_name(orch_sandbox_scope(sandbox)),
			      below(place.folder, "amounts/enough"));
		code = orch_sandbox_run(sandbox, argv, &opts, &result, &error);
		outside_end(&side->outside);
	}
	if (code == 0)
		side_tell(side, amount, result);
	else
		snprintf(side->text, sizeof(side->text), "%s",
			 error ? orch_error_message(error) : "its files can not be made");
	orch_error_free(error);
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(sandbox);
	orch_ctx_process(ctx, NULL);
	remove_all();
}

/* Is it refused as it should be? *text says what the kernel held. */
static bool is_refused(const struct amount *amount, const struct side *side, char *text,
		       size_t size)
{
	return (!amount->held || amount->held(&side->outside, text, size)) &&
	       side->outcome == DENIED && (!amount->reason || side->reason == amount->reason);
}

/* On an older kernel it has to be refused as what cannot be had there, with the number that could. */
static bool is_refused_by_name(orch_ctx *ctx, const struct amount *amount, char *text, size_t size)
{
	const struct side with = {.with = true};
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	char words[32];
	int32_t code = side_start(ctx, amount, &with, &sandbox, &error);

	snprintf(text, size, "%s", error ? orch_error_message(error) : "it started");
	snprintf(words, sizeof(words), "use Linux %u.%u", amount->linux_major, amount->linux_minor);
	bool named = code == ORCH_EUNENFORCEABLE && strstr(text, words);
	orch_error_free(error);
	orch_sandbox_unref(sandbox);
	orch_ctx_process(ctx, NULL);
	remove_all();
	return named;
}

/* Can this user have the limit? If not, the cause is in *text; and no cause is good enough where
 * the controller is there. */
static bool is_to_be_had(orch_ctx *ctx, const struct amount *amount, bool *ret_wrong, char *text,
			 size_t size)
{
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;
	uint32_t state = ORCH_LIMIT_ABSENT;
	const char *mechanism = "";

	*ret_wrong = false;
	if (amount->linux_major && kernel_is_before(amount->linux_major, amount->linux_minor)) {
		*ret_wrong = !is_refused_by_name(ctx, amount, text, size);
		return false;
	}
	if (!amount->scope_limit)
		return true;
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_memory_mib = MEMORY_MIB;
	opts.max_cpu_percent = 100;
	int32_t code = orch_sandbox_new(ctx, &opts, &sandbox, &error);
	if (code == 0)
		code = orch_sandbox_start_wait(sandbox, RUN_MS, &error);
	if (code == 0)
		orch_scope_limit(orch_sandbox_scope(sandbox), amount->scope_limit, &state,
				 &mechanism);
	snprintf(text, size, "%s", code < 0 ? orch_error_message(error) : mechanism);
	orch_error_free(error);
	orch_sandbox_unref(sandbox);
	orch_ctx_process(ctx, NULL);
	/* Partial: there is swap, and the kernel does not count it. */
	*ret_wrong = code < 0 || (state == ORCH_LIMIT_ABSENT && has_controller(amount->controller));
	return state == ORCH_LIMIT_ENFORCED;
}

/* Those that this user can have. The others are told, in a line each. */
static unsigned choose(orch_ctx *ctx, const char *who, const struct amount **chosen,
		       unsigned *ret_count)
{
	unsigned wrong = 0;

	*ret_count = 0;
	for (unsigned i = 0; i < AMOUNTS; i++) {
		char text[512] = "";
		bool is_wrong = false;
		if (is_to_be_had(ctx, &amounts[i], &is_wrong, text, sizeof(text)))
			chosen[(*ret_count)++] = &amounts[i];
		else if (is_wrong)
			printf("WRONG (%s): %s can not be had, though this host has %s%s "
			       "for this user: %s\n",
			       who, amounts[i].name, amounts[i].controller ? "the controller " : "what it needs",
			       amounts[i].controller ? amounts[i].controller : "", text);
		else
			printf("not counted (%s): %s: %s\n", who, amounts[i].name, text);
		wrong += is_wrong;
	}
	return wrong;
}

unsigned amounts_judge(orch_ctx *ctx, const char *who, bool table, unsigned *ret_counted)
{
	const struct amount *chosen[AMOUNTS];
	unsigned count, wrong = choose(ctx, who, chosen, &count);

	for (unsigned i = 0; i < count; i++) {
		const struct amount *amount = chosen[i];
		struct side with = {.with = true}, without = {.with = false};
		char held[160] = "";

		side_run(ctx, amount, &with);
		side_run(ctx, amount, &without);
		bool holds = is_refused(amount, &with, held, sizeof(held)) &&
			     without.outcome == SUCCEEDED;
		if (table)
			printf("%-28s refused  %-26s %s%scontrol: %s\n", amount->name, with.text,
			       held, *held ? "  " : "", without.text);
		if (holds)
			continue;
		printf("WRONG (%s): %s is refused, and inside: %s, %s; its control, without the "
		       "limit or rule: %s\n",
		       who, amount->name, with.text, held, without.text);
		wrong++;
	}
	*ret_counted += count;
	return wrong;
}

unsigned amounts_judge_without(orch_ctx *ctx, const char *who)
{
	const struct amount *chosen[AMOUNTS];
	unsigned count, wrong = choose(ctx, who, chosen, &count);

	for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++) {
		unsigned turned = 0;

		for (unsigned j = 0; j < count; j++) {
			const struct amount *amount = chosen[j];
			struct side side = {.with = true, .without = &left_out[i]};
			bool expected =
				amount->guard && strcmp(amount->guard, left_out[i].name) == 0;
			char held[160] = "";

			side_run(ctx, amount, &side);
			turned += side.outcome == SUCCEEDED;
			if (expected ? side.outcome == SUCCEEDED
				     : is_refused(amount, &side, held, sizeof(held)))
				continue;
			printf("WRONG (%s): without %s, %s %s: %s, %s\n", who, left_out[i].name,
			       amount->name,
			       expected ? "stays as it is, though nothing else was to guard it"
					: "turns, though something else was to guard it",
			       side.text, held);
			wrong++;
		}
		printf("%-4s %3u rows of amounts turn without %s\n", who, turned, left_out[i].name);
	}
	return wrong;
}
