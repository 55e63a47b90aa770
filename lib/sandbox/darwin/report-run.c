/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No live probe has been run on macOS, so nothing is called enforced: a row says what is meant to stand there, and that it
 * was not tried.
 */
#include <stdio.h>

#include "../report.h"

#define NOT_TRIED "no probe of it is built for macOS"

static const struct {
	const char *channel;
	uint32_t state;
	const char *mechanism, *detail;
} rows[] = {
	{"file.read", ORCH_CHANNEL_PARTIAL, "Seatbelt: deny default", NOT_TRIED},
	{"file.write", ORCH_CHANNEL_PARTIAL, "Seatbelt: deny default", NOT_TRIED},
	{"file.stat", ORCH_CHANNEL_PARTIAL, "Seatbelt: deny default; folders above an allowed path can be seen", NOT_TRIED},
	{"file.link", ORCH_CHANNEL_PARTIAL, "Seatbelt: file-link is denied", NOT_TRIED},
	{"path.escape", ORCH_CHANNEL_PARTIAL, "Seatbelt looks at the file's own path; no root of its own", NOT_TRIED},
	{"tmp", ORCH_CHANNEL_ABSENT, "none", "no private /tmp; the host's is denied"},
	{"unix.path", ORCH_CHANNEL_PARTIAL, "Seatbelt: network-outbound is denied", NOT_TRIED},
	{"tcp.loopback", ORCH_CHANNEL_PARTIAL, "Seatbelt: network-outbound is denied", NOT_TRIED},
	{"net.outside", ORCH_CHANNEL_PARTIAL, "Seatbelt: network-outbound is denied", NOT_TRIED},
	{"net.broker", ORCH_CHANNEL_ABSENT, "none", "no network namespace for the listener: ORCH_NET_BROKER is refused"},
	{"net.interfaces", ORCH_CHANNEL_ABSENT, "none", "the host's interfaces are there"},
	{"mach.lookup", ORCH_CHANNEL_PARTIAL, "Seatbelt: mach-lookup is denied", NOT_TRIED},
	{"process.signal", ORCH_CHANNEL_PARTIAL, "Seatbelt: signals within the sandbox only", NOT_TRIED},
	{"process.list", ORCH_CHANNEL_PARTIAL, "Seatbelt: process-info within the sandbox only; pids can be counted", NOT_TRIED},
	{"process.descent", ORCH_CHANNEL_ABSENT, "descent by lists of processes",
	 "a descendant can leave it; only as root the sandbox's own uid closes the set"},
	{"env", ORCH_CHANNEL_PARTIAL, "environment built from nothing", NOT_TRIED},
	{"fd.inherited", ORCH_CHANNEL_PARTIAL, "POSIX_SPAWN_CLOEXEC_DEFAULT", NOT_TRIED},
	{"sysv.ipc", ORCH_CHANNEL_PARTIAL, "Seatbelt: deny default", NOT_TRIED},
	{"tty.inject", ORCH_CHANNEL_PARTIAL, "a session of its own; Seatbelt: file-ioctl is denied", NOT_TRIED},
	{"landlock", ORCH_CHANNEL_ABSENT, "none", "Linux only: Seatbelt stands alone"},
	{"seccomp", ORCH_CHANNEL_ABSENT, "none", "Linux only: system calls are not filtered"},
	{"memory", ORCH_CHANNEL_ABSENT, "none", "nothing caps it"},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))
_Static_assert(ROWS <= REPORT_ROWS_MAX, "each has its place");

static bool at_once(void *userdata)
{
	(void)userdata;
	return true;
}

int32_t orch_sandbox_report_run(orch_ctx *ctx, const struct orch_sandbox_opts *opts,
				int64_t timeout_ms, orch_sandbox_report **ret_report,
				orch_error **reterr)
{
	orch_sandbox *sandbox = NULL;
	int32_t code = orch_ctx_check(ctx, reterr);

	(void)timeout_ms;
	if (code == 0 && !ret_report)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_report is NULL");
	if (code == 0)
		code = orch_ctx_wait(ctx, 0, at_once, NULL, reterr);
	/* The options are checked as a sandbox's are. */
	if (code == 0)
		code = orch_sandbox_new(ctx, opts, &sandbox, reterr);
	if (code < 0)
		return code;
	orch_sandbox_unref(sandbox);
	orch_sandbox_report *report = calloc(1, sizeof(*report));

	if (!report)
		return orch_fail_memory(reterr);
	for (size_t i = 0; i < ROWS; i++) {
		struct report_row *row = &report->rows[report->count++];

		row->channel = rows[i].channel;
		row->mechanism = rows[i].mechanism;
		row->state = rows[i].state;
		row->probe = row->control = ORCH_PROBE_NOT_RUN;
		snprintf(row->detail, sizeof(row->detail), "%s", rows[i].detail);
		snprintf(row->remedy, sizeof(row->remedy), "%s",
			 row->state == ORCH_CHANNEL_PARTIAL
				 ? "not shown here: no live probe is built for macOS"
				 : "macOS has no such mechanism: use a machine with Linux, or a virtual one, where that is needed");
	}
	return orch_report_finish(report, ret_report, reterr);
}
