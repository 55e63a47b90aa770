/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The row of the memory: a small sandbox of its own is driven over its limit, by a child of its init, and the same program
 * outside is not. The kernel writes a line about that in its log.
 */
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"
#include "report-memory.h"

#define LIMIT_MIB "32"
#define USED_MIB "64"

static int32_t trial_new(const struct report_memory *trial, orch_sandbox **ret_sandbox, orch_error **reterr)
{
	struct orch_sandbox_opts opts = *trial->opts;
	orch_sandbox *sandbox = NULL;

	opts.max_memory_mib = strtoul(LIMIT_MIB, NULL, 10);
	opts.net = ORCH_NET_NONE;
	opts.tmp_mib = 0;
	int32_t code = orch_sandbox_new(trial->ctx, &opts, &sandbox, reterr);

	if (code == 0)
		code = orch_sandbox_set_protection(sandbox, "landlock", ORCH_PROTECT_DEGRADABLE, reterr);
	if (code == 0)
		code = orch_sandbox_set_protection(sandbox, "seccomp", ORCH_PROTECT_DEGRADABLE, reterr);
	if (code == 0 && trial->bare)
		code = orch_sandbox_set_protection(sandbox, "namespaces", ORCH_PROTECT_OFF, reterr);
	if (code == 0)
		code = orch_sandbox_start_wait(sandbox, trial->timeout_ms, reterr);
	if (code < 0)
		sandbox = orch_sandbox_unref(sandbox);
	*ret_sandbox = sandbox;
	return code;
}

static uint32_t try_inside(const struct report_memory *trial, char *detail, size_t size, orch_error **reterr)
{
	orch_sandbox *sandbox = NULL;
	orch_proc *proc = NULL;
	struct orch_proc_opts opts;
	uint32_t result = ORCH_PROBE_NOT_RUN;
	int32_t status = -1;

	if (trial_new(trial, &sandbox, reterr) < 0)
		return result;
	orch_proc_opts_init(&opts, sizeof(opts));
	if (orch_scope_spawn_probe(sandbox->scope, "memory:" USED_MIB, &opts, &proc, reterr) == 0 &&
	    orch_proc_wait(proc, trial->timeout_ms, &status, reterr) == 0) {
		bool struck = orch_proc_reason(proc) == ORCH_REASON_MEMORY;

		result = struck || status == ORCH_TRY_DENIED ? ORCH_PROBE_PASSED : ORCH_PROBE_FAILED;
		snprintf(detail, size, "%s", struck ? "ended at its limit of " LIMIT_MIB " MiB"
					     : status == ORCH_TRY_DENIED ? "no more memory at its limit of " LIMIT_MIB " MiB"
									 : USED_MIB " MiB were used in spite of a limit of " LIMIT_MIB " MiB");
	}
	orch_proc_unref(proc);
	orch_scope_stop_wait(sandbox->scope, NULL, NULL, NULL);
	orch_sandbox_unref(sandbox);
	return result;
}

static uint32_t try_outside(const struct report_memory *trial, orch_error **reterr)
{
	const char *const argv[] = {trial->helper, "--probe", "memory:" USED_MIB, NULL};
	orch_proc *proc = NULL;
	struct orch_proc_opts opts;
	uint32_t result = ORCH_PROBE_NOT_RUN;
	int32_t status = -1;

	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	if (orch_scope_spawn(trial->plain, &opts, &proc, reterr) == 0 &&
	    orch_proc_wait(proc, trial->timeout_ms, &status, reterr) == 0)
		result = status == ORCH_TRY_REACHED ? ORCH_PROBE_PASSED : ORCH_PROBE_FAILED;
	orch_proc_unref(proc);
	return result;
}

static void try_both(const struct report_memory *trial, struct report_row *row)
{
	char inside[100] = "could not be tried";
	orch_error *error = NULL;

	row->probe = try_inside(trial, inside, sizeof(inside), &error);
	if (!error)
		row->control = try_outside(trial, &error);
	snprintf(row->detail, sizeof(row->detail), "inside: %s; outside: %s", inside,
		 row->control == ORCH_PROBE_PASSED ? USED_MIB " MiB were used" : "the same could not be used");
	if (row->probe == ORCH_PROBE_PASSED && row->control == ORCH_PROBE_PASSED)
		row->state = ORCH_CHANNEL_ENFORCED;
	else if (row->probe == ORCH_PROBE_FAILED)
		row->state = ORCH_CHANNEL_ABSENT;
	if (row->state != ORCH_CHANNEL_ENFORCED)
		snprintf(row->remedy, sizeof(row->remedy), "%s",
			 error ? orch_error_message(error)
			 : row->probe == ORCH_PROBE_FAILED
				 ? "the limit is set and does not strike: tell the maintainers, with this table"
				 : "give this process " USED_MIB " MiB, so that the trial shows something");
	orch_error_free(error);
}

/* Then the kernel panics also where one cgroup's limit strikes (Documentation/admin-guide/sysctl/vm.rst, panic_on_oom). */
static bool strike_is_fatal(void)
{
	int value = 0;
	FILE *file = fopen("/proc/sys/vm/panic_on_oom", "re");

	if (file && fscanf(file, "%d", &value) != 1)
		value = 0;
	if (file)
		fclose(file);
	return value == 2;
}

void orch_report_memory(const struct report_memory *trial, const char *mechanism, struct report_row *row)
{
	*row = (struct report_row){.channel = "memory", .probe = ORCH_PROBE_NOT_RUN, .control = ORCH_PROBE_NOT_RUN};
	snprintf(row->words, sizeof(row->words), "%s", mechanism ? mechanism : "none");
	row->mechanism = row->words;
	row->state = mechanism ? ORCH_CHANNEL_PARTIAL : ORCH_CHANNEL_ABSENT;
	if (mechanism && strike_is_fatal()) {
		snprintf(row->detail, sizeof(row->detail), "set and not tried");
		snprintf(row->remedy, sizeof(row->remedy),
			 "the sysctl vm.panic_on_oom is 2, so that a limit that strikes stops the machine: set it to 0 or 1");
		return;
	}
	if (mechanism) {
		try_both(trial, row);
		return;
	}
	snprintf(row->detail, sizeof(row->detail), "the scope's cgroup has no memory controller: watched, not capped");
	snprintf(row->remedy, sizeof(row->remedy),
		 "no memory controller for the scope's cgroup: run in a cgroup that is delegated with it (systemd: "
		 "Delegate=yes, or systemd-run --user --scope -p Delegate=yes)");
}
