/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orch_sandbox_report_run(): what is really enforced here. Each probe runs inside a sandbox and
 * again outside, as its positive control: in a plain scope, or in this process where a plain scope
 * differs from it (its PID namespace).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "../report.h"
#include "probe.h"
#include "report-memory.h"
#include "targets.h"

#define DEFAULT_TIMEOUT_MS 20000
#define INNER "/.orch-probe"
/* Of the programs outside, for a host whose own environment is empty. */
#define CANARY "ORCH_PROBE_CANARY"
/* Tried where the caller asks for no limit, to see whether one could be had. */
#define TRIAL_MEMORY_MIB 512

/* BY_START: the sandbox stands, so its set-up has done it. (A plain scope of an ordinary user may
 * not.) */
enum control_place { IN_SCOPE, IN_HOST, BY_START };

/* What a channel is closed by. */
#define BY_NAMESPACES 1u
#define BY_LANDLOCK 2u
#define BY_SECCOMP 4u

struct channel {
	const char *name;
	const char *mechanism;
	const char *bare; /* without namespaces */
	enum control_place control;
	uint32_t by;
};

#define NO_SOCKETS "seccomp: no sockets"

static const struct channel channels[] = {
	{"file.read", "empty root in a mount namespace; Landlock", "Landlock", IN_SCOPE, BY_NAMESPACES | BY_LANDLOCK},
	{"file.write", "empty root in a mount namespace; Landlock", "Landlock", IN_SCOPE, BY_NAMESPACES | BY_LANDLOCK},
	{"file.stat", "empty root in a mount namespace", "Landlock: no folder can be listed", IN_SCOPE, BY_NAMESPACES},
	{"file.metadata", "empty root in a mount namespace", "as root a uid of its own; else none", IN_SCOPE, BY_NAMESPACES},
	{"file.link", "separate mounts; Landlock", "Landlock", IN_SCOPE, BY_NAMESPACES | BY_LANDLOCK},
	{"path.escape", "pivot_root; proc without other processes", "Landlock", IN_SCOPE, BY_NAMESPACES},
	{"unix.path", "empty root in a mount namespace", NO_SOCKETS, IN_SCOPE, BY_NAMESPACES},
	{"unix.abstract", "network namespace; Landlock scope", NO_SOCKETS, IN_SCOPE, BY_NAMESPACES | BY_LANDLOCK},
	{"tcp.loopback", "network namespace", NO_SOCKETS, IN_SCOPE, BY_NAMESPACES},
	{"net.outside", "network namespace with loopback only", NO_SOCKETS, IN_SCOPE, BY_NAMESPACES},
	{"net.interfaces", "network namespace with loopback only", NO_SOCKETS, IN_SCOPE, BY_NAMESPACES},
	{"vsock", "seccomp: socket families", NO_SOCKETS, IN_SCOPE, BY_SECCOMP},
	{"process.signal", "PID namespace; Landlock scope", "Landlock scope; or seccomp, or a uid of its own", IN_HOST,
	 BY_NAMESPACES | BY_LANDLOCK},
	{"process.list", "PID namespace; proc subset=pid, hidepid", "Landlock: /proc is closed", IN_HOST, BY_NAMESPACES},
	{"env", "environment built from nothing", "environment built from nothing", IN_HOST, 0},
	{"fd.inherited", "close-on-exec; all but stdio closed", "close-on-exec; all but stdio closed", IN_HOST, 0},
	{"keyring", "seccomp; session keyring of its own", "seccomp; session keyring of its own", IN_SCOPE, BY_SECCOMP},
	{"sysv.ipc", "IPC namespace", "seccomp", IN_SCOPE, BY_NAMESPACES},
	{"tty.inject", "seccomp: TIOCSTI, TIOCLINUX; session of its own",
	 "seccomp: TIOCSTI, TIOCLINUX; session of its own", IN_SCOPE, BY_SECCOMP},
	{"userns.nested", "seccomp; max_user_namespaces 0", "seccomp", BY_START, BY_NAMESPACES | BY_SECCOMP},
	{"io_uring", "seccomp", "seccomp", IN_SCOPE, BY_SECCOMP},
	{"userfaultfd", "seccomp", "seccomp", IN_SCOPE, BY_SECCOMP},
	{"proc.sys.write", "proc subset=pid; no uid 0", "Landlock: /proc is closed; no uid 0", IN_SCOPE, BY_NAMESPACES},
	{"landlock", "Landlock domain of the scope", "Landlock domain of each program", IN_SCOPE, BY_LANDLOCK},
	{"seccomp", "seccomp filter; no_new_privs", "seccomp filter; no_new_privs", IN_SCOPE, BY_SECCOMP},
	{"capabilities", "all sets empty; securebits locked", "no set to use; no_new_privs", IN_SCOPE, BY_NAMESPACES},
};

#define CHANNELS (sizeof(channels) / sizeof(channels[0]))
_Static_assert(CHANNELS < REPORT_ROWS_MAX, "each channel and the memory have a row");

struct outcome {
	int result; /* ORCH_TRY_* */
	char detail[160];
};

/* Runs the probes of one side, one after the other: a sandbox may have a limit of two processes. */
struct runner {
	struct reporter *reporter;
	bool inside;
	size_t next;
	int output; /* our end of the pipe of the one that runs */
	orch_proc *proc;
	struct outcome outcomes[CHANNELS];
};

/* Counted: a probe that is lost with its helper may report when the caller is gone. */
struct reporter {
	uint32_t references;
	bool over;
	orch_ctx *ctx;
	orch_sandbox *sandbox;
	orch_scope *plain;
	char *helper;
	struct probe_targets targets;
	struct runner inside, outside;
	bool bare;
	char cause[512]; /* why there are no namespaces */
	struct report_row memory;
};

/* --- probes and their arguments ------------------------------------------------------------- */

static void probe_name(const struct reporter *reporter, size_t channel, bool inside, char *name,
		       size_t size)
{
	const struct probe_targets *targets = &reporter->targets;
	const char *channel_name = channels[channel].name;

#define IS(text) (strcmp(channel_name, text) == 0)
	bool moved = inside && !reporter->bare; /* the targets have another place inside */

	if (IS("file.read") || IS("file.write") || IS("file.stat") || IS("file.metadata") || IS("path.escape"))
		snprintf(name, size, "%s:%s/secret", channel_name, targets->folder);
	else if (IS("file.link"))
		snprintf(name, size, "%s:%s/shared/file:%s/work/linked", channel_name,
			 moved ? INNER : targets->folder, moved ? INNER : targets->folder);
	else if (IS("unix.path"))
		snprintf(name, size, "%s:%s/socket", channel_name, targets->folder);
	else if (IS("unix.abstract"))
		snprintf(name, size, "%s:%s", channel_name, targets->abstract_name);
	else if (IS("tcp.loopback"))
		snprintf(name, size, "%s:127.0.0.1:%u", channel_name, targets->loopback_port);
	else if (IS("net.outside"))
		snprintf(name, size, "%s:%s:%u", channel_name, targets->outside_address,
			 targets->outside_port);
	else if (IS("process.signal") || IS("process.list"))
		snprintf(name, size, "%s:%d:%llu", channel_name, (int)targets->pid,
			 (unsigned long long)targets->start_time);
	else if (IS("env"))
		snprintf(name, size, "%s:%s", channel_name,
			 targets->variable ? targets->variable : CANARY);
	else if (IS("sysv.ipc"))
		snprintf(name, size, "%s:%d", channel_name, targets->shm_id);
	else if (IS("landlock") && reporter->bare)
		snprintf(name, size, "%s:%s/secret", channel_name, targets->folder);
	else if (IS("landlock"))
		snprintf(name, size, "%s:%s/mute", channel_name, inside ? INNER : targets->folder);
	else
		snprintf(name, size, "%s", channel_name);
#undef IS
}

/* --- running -------------------------------------------------------------------------------- */

static void run_next(struct runner *runner);

static void reporter_unref(struct reporter *reporter)
{
	if (--reporter->references == 0)
		free(reporter);
}

static void drop_probe(void *userdata)
{
	reporter_unref(((struct runner *)userdata)->reporter);
}

static void untried(struct runner *runner, size_t channel, const char *why)
{
	runner->outcomes[channel].result = ORCH_TRY_UNTRIED;
	snprintf(runner->outcomes[channel].detail, sizeof(runner->outcomes[channel].detail), "%s",
		 why);
}

static void on_probe(void *userdata, orch_proc *proc, uint32_t event)
{
	struct runner *runner = userdata;
	struct outcome *outcome = &runner->outcomes[runner->next];

	if (event == ORCH_PROC_STARTED || runner->reporter->over)
		return;
	ssize_t n = read(runner->output, outcome->detail, sizeof(outcome->detail) - 1);

	outcome->detail[n > 0 ? n : 0] = '\0';
	outcome->detail[strcspn(outcome->detail, "\n")] = '\0';
	if (event == ORCH_PROC_FAILED)
		untried(runner, runner->next, orch_error_message(orch_proc_error(proc)));
	else if (orch_proc_exit_code(proc) < 0)
		untried(runner, runner->next, "the probe was ended by a signal");
	else
		outcome->result = orch_proc_exit_code(proc);
	orch_close_fd(&runner->output);
	runner->proc = orch_proc_unref(runner->proc);
	runner->next++;
	run_next(runner);
}

static int32_t spawn_probe(struct runner *runner, const char *name, orch_error **reterr)
{
	struct reporter *reporter = runner->reporter;
	const char *const argv[] = {runner->inside ? INNER "/helper" : reporter->helper, "--probe",
				    name, NULL};
	static const char *const outer_environment[] = {CANARY "=1", NULL};
	struct orch_proc_opts opts;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "report", "no pipe can be made");
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.envp = runner->inside ? NULL : outer_environment;
	opts.stdout_fd = ends[1];
	opts.event = on_probe;
	opts.userdata = runner;
	opts.destroy = drop_probe;
	reporter->references++;
	runner->output = ends[0];
	int32_t code;

	if (!runner->inside)
		code = orch_scope_spawn(reporter->plain, &opts, &runner->proc, reterr);
	else if (reporter->sandbox->opts.root == ORCH_ROOT_TOOLS && !reporter->bare)
		code = orch_sandbox_spawn(reporter->sandbox, &opts, &runner->proc, reterr);
	else /* orch-reaper can not be executed inside: the child of init does it itself */
		code = orch_scope_spawn_probe(reporter->sandbox->scope, name, &opts, &runner->proc,
					      reterr);
	close(ends[1]);
	if (code < 0)
		orch_close_fd(&runner->output);
	return code;
}

/* Controls that need no process of their own. */
static bool control_here(struct runner *runner, size_t channel, const char *name)
{
	struct outcome *outcome = &runner->outcomes[channel];
	bool no_variable =
		strcmp(channels[channel].name, "env") == 0 && !runner->reporter->targets.variable;

	if (runner->inside || channels[channel].control == IN_SCOPE || no_variable)
		return false;
	if (channels[channel].control == BY_START && runner->reporter->bare) {
		untried(runner, channel, "no user namespace can be made");
	} else if (channels[channel].control == BY_START) {
		outcome->result = ORCH_TRY_REACHED;
		snprintf(outcome->detail, sizeof(outcome->detail), "the sandbox's own was made");
	} else {
		outcome->result = orch_probe_try(name, outcome->detail, sizeof(outcome->detail));
	}
	return true;
}

static void run_next(struct runner *runner)
{
	for (; runner->next < CHANNELS; runner->next++) {
		char name[256];
		orch_error *error = NULL;

		probe_name(runner->reporter, runner->next, runner->inside, name, sizeof(name));
		if (control_here(runner, runner->next, name))
			continue;
		if (spawn_probe(runner, name, &error) < 0) {
			untried(runner, runner->next, orch_error_message(error));
			orch_error_free(error);
		} else {
			return;
		}
	}
}

static bool both_are_done(void *userdata)
{
	struct reporter *reporter = userdata;

	return reporter->inside.next == CHANNELS && reporter->outside.next == CHANNELS;
}

/* --- rows ----------------------------------------------------------------------------------- */

/* Of what the channel is closed by, what is not here. */
static uint32_t missing(const struct reporter *reporter, const struct channel *channel)
{
	uint32_t action = SECCOMP_RET_ERRNO, found = reporter->bare ? BY_NAMESPACES : 0;

	if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
		found |= BY_LANDLOCK;
	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0)
		found |= BY_SECCOMP;
	return found & channel->by;
}

static void fill_remedy(struct report_row *row, const struct reporter *reporter, size_t index)
{
	const struct outcome *inside = &reporter->inside.outcomes[index], *outside = &reporter->outside.outcomes[index];
	uint32_t lacks = missing(reporter, &channels[index]);

	if (inside->result == ORCH_TRY_DENIED)
		snprintf(row->remedy, sizeof(row->remedy),
			 "denied inside, but the same attempt did not work outside either, so that nothing is shown: run "
			 "it where that works (%s)", outside->detail);
	else if (inside->result == ORCH_TRY_UNTRIED)
		snprintf(row->remedy, sizeof(row->remedy), "the probe could not be made inside (%s), so that nothing is shown",
			 inside->detail);
	else if (lacks & BY_NAMESPACES)
		snprintf(row->remedy, sizeof(row->remedy), "no namespaces here: %s", reporter->cause);
	else if (lacks & BY_LANDLOCK)
		snprintf(row->remedy, sizeof(row->remedy),
			 "no Landlock here: boot a kernel with CONFIG_SECURITY_LANDLOCK and lsm=landlock,...");
	else if (lacks & BY_SECCOMP)
		snprintf(row->remedy, sizeof(row->remedy), "no seccomp here: use a kernel with CONFIG_SECCOMP_FILTER");
	else
		snprintf(row->remedy, sizeof(row->remedy),
			 "what should close it is here and does not: tell the maintainers, with this table");
}

static void fill_row(struct report_row *row, const struct reporter *reporter, size_t index)
{
	const struct channel *channel = &channels[index];
	const struct outcome *inside = &reporter->inside.outcomes[index], *outside = &reporter->outside.outcomes[index];
	bool denied = inside->result == ORCH_TRY_DENIED;
	bool worked = outside->result == ORCH_TRY_REACHED || outside->result == ORCH_TRY_PARTLY;

	row->channel = channel->name;
	row->mechanism = reporter->bare ? channel->bare : channel->mechanism;
	row->probe = denied ? ORCH_PROBE_PASSED
			    : inside->result == ORCH_TRY_UNTRIED ? ORCH_PROBE_NOT_RUN : ORCH_PROBE_FAILED;
	row->control = worked ? ORCH_PROBE_PASSED
			      : outside->result == ORCH_TRY_UNTRIED ? ORCH_PROBE_NOT_RUN : ORCH_PROBE_FAILED;
	if (denied && worked)
		row->state = ORCH_CHANNEL_ENFORCED;
	else
		row->state = inside->result == ORCH_TRY_REACHED ? ORCH_CHANNEL_ABSENT : ORCH_CHANNEL_PARTIAL;
	snprintf(row->detail, sizeof(row->detail), "inside: %s; outside: %s", inside->detail, outside->detail);
	if (row->state != ORCH_CHANNEL_ENFORCED)
		fill_remedy(row, reporter, index);
}

static int32_t make_report(const struct reporter *reporter, orch_sandbox_report **ret_report,
			   orch_error **reterr)
{
	orch_sandbox_report *report = calloc(1, sizeof(*report));

	if (!report)
		return orch_fail_memory(reterr);
	for (size_t i = 0; i < CHANNELS; i++)
		fill_row(&report->rows[report->count++], reporter, i);
	struct report_row *memory = &report->rows[report->count++];

	*memory = reporter->memory;
	memory->mechanism = memory->words;
	return orch_report_finish(report, ret_report, reterr);
}

/* --- the whole ------------------------------------------------------------------------------ */

static int32_t allow_targets(struct reporter *reporter, orch_error **reterr)
{
	char shared[64], work[64], mute[64];
	orch_sandbox *sandbox = reporter->sandbox;
	int32_t code = 0;

	snprintf(shared, sizeof(shared), "%s/shared", reporter->targets.folder);
	snprintf(work, sizeof(work), "%s/work", reporter->targets.folder);
	snprintf(mute, sizeof(mute), "%s/mute", reporter->targets.folder);
	code = orch_sandbox_add_path(sandbox, shared, reporter->bare ? NULL : INNER "/shared", ORCH_PATH_READ, reterr);
	if (code == 0)
		code = orch_sandbox_add_path(sandbox, work, reporter->bare ? NULL : INNER "/work", ORCH_PATH_OWN, reterr);
	/*
	 * No mount and no mode forbids to read it, only Landlock does. (A whiteout is no witness: kernels differ on whether it is
	 * a device or a file.)
	 */
	if (code == 0 && !reporter->bare)
		code = orch_sandbox_add_path(sandbox, mute, INNER "/mute", ORCH_PATH_WRITE, reterr);
	if (code == 0 && !reporter->bare)
		code = orch_sandbox_add_path(sandbox, reporter->helper, INNER "/helper",
					     ORCH_PATH_READ | ORCH_PATH_EXEC, reterr);
	/* What is missing here is a row of the report, not a refusal. */
	if (code == 0)
		code = orch_sandbox_set_protection(sandbox, "landlock", ORCH_PROTECT_DEGRADABLE,
						   reterr);
	if (code == 0)
		code = orch_sandbox_set_protection(sandbox, "seccomp", ORCH_PROTECT_DEGRADABLE,
						   reterr);
	if (code == 0 && reporter->bare)
		code = orch_sandbox_set_protection(sandbox, "namespaces", ORCH_PROTECT_OFF, reterr);
	return code;
}

static int64_t left_ms(int64_t due_us)
{
	int64_t left = (due_us - orch_monotonic_us()) / 1000;

	return left > 0 ? left : 0;
}

static int32_t start_sandbox(struct reporter *reporter, int64_t due_us, orch_error **reterr)
{
	int32_t code = allow_targets(reporter, reterr);

	return code < 0 ? code : orch_sandbox_start_wait(reporter->sandbox, left_ms(due_us), reterr);
}

/*
 * With namespaces, and where the host has none without: then the error of the first is the cause of what is open in the
 * second, and what only namespaces give is not asked for.
 */
static int32_t start_best(struct reporter *reporter, const struct orch_sandbox_opts *opts, int64_t due_us,
			  orch_error **reterr)
{
	struct orch_sandbox_opts bare = *opts;
	orch_error *why = NULL;
	int32_t code = start_sandbox(reporter, due_us, &why);

	if (code != ORCH_EUNENFORCEABLE || opts->least_rung >= ORCH_RUNG_PIDNS) {
		if (reterr)
			*reterr = why;
		else
			orch_error_free(why);
		return code;
	}
	snprintf(reporter->cause, sizeof(reporter->cause), "%s", orch_error_message(why));
	orch_error_free(why);
	reporter->bare = true;
	reporter->sandbox = orch_sandbox_unref(reporter->sandbox);
	bare.net = ORCH_NET_NONE;
	bare.tmp_mib = 0;
	code = orch_sandbox_new(reporter->ctx, &bare, &reporter->sandbox, reterr);
	return code < 0 ? code : start_sandbox(reporter, due_us, reterr);
}

static int32_t run_probes(struct reporter *reporter, const struct orch_sandbox_opts *opts, int64_t due_us,
			  orch_error **reterr)
{
	struct orch_scope_opts plain;
	int32_t code = start_best(reporter, opts, due_us, reterr);

	if (code < 0)
		return code;
	orch_scope_opts_init(&plain, sizeof(plain));
	if (reporter->bare)
		plain.least_rung = ORCH_RUNG_SUBREAPER;
	code = orch_scope_new(reporter->ctx, &plain, &reporter->plain, reterr);
	if (code == 0)
		code = orch_scope_start_wait(reporter->plain, left_ms(due_us), reterr);
	if (code < 0)
		return code;
	reporter->targets.pid = orch_scope_init_pid(reporter->plain);
	reporter->targets.start_time = orch_probe_start_time(reporter->targets.pid);
	run_next(&reporter->inside);
	run_next(&reporter->outside);
	code = orch_ctx_wait(reporter->ctx, left_ms(due_us), both_are_done, reporter, reterr);
	if (code < 0)
		return code;
	orch_report_memory(&(struct report_memory){.ctx = reporter->ctx,
						   .opts = opts,
						   .plain = reporter->plain,
						   .helper = reporter->helper,
						   .bare = reporter->bare,
						   .timeout_ms = left_ms(due_us)},
			   reporter->sandbox->memory_mechanism, &reporter->memory);
	return 0;
}

static bool at_once(void *userdata)
{
	(void)userdata;
	return true;
}

int32_t orch_sandbox_report_run(orch_ctx *ctx, const struct orch_sandbox_opts *opts,
				int64_t timeout_ms, orch_sandbox_report **ret_report,
				orch_error **reterr)
{
	struct orch_sandbox_opts known;
	int64_t due_us =
		orch_monotonic_us() + (timeout_ms > 0 ? timeout_ms : DEFAULT_TIMEOUT_MS) * 1000;
	int32_t code = orch_ctx_check(ctx, reterr);

	if (code == 0 && !ret_report)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_report is NULL");
	if (code == 0)
		code = orch_opts_read(opts, &known, sizeof(known), "orch_sandbox_opts", reterr);
	if (code == 0)
		code = orch_ctx_wait(ctx, 0, at_once, NULL, reterr);
	if (code < 0)
		return code;
	struct reporter *reporter = calloc(1, sizeof(*reporter));

	if (!reporter)
		return orch_fail_memory(reterr);
	known.size = sizeof(known);
	known.max_memory_mib = known.max_memory_mib ? known.max_memory_mib : TRIAL_MEMORY_MIB;
	reporter->references = 1;
	reporter->ctx = ctx;
	reporter->inside = (struct runner){.reporter = reporter, .inside = true, .output = -1};
	reporter->outside = (struct runner){.reporter = reporter, .output = -1};
	code = orch_sandbox_new(ctx, &known, &reporter->sandbox, reterr);
	if (code == 0)
		code = orch_reaper_find_helper(ctx, &reporter->helper, reterr);
	if (code == 0)
		code = orch_targets_open(&reporter->targets, reporter->sandbox, reterr);
	if (code == 0) {
		code = run_probes(reporter, &known, due_us, reterr);
		/* Both are dead before the targets go. */
		if (reporter->sandbox && reporter->sandbox->scope)
			orch_scope_stop_wait(reporter->sandbox->scope, NULL, NULL, NULL);
		if (reporter->plain)
			orch_scope_stop_wait(reporter->plain, NULL, NULL, NULL);
		orch_targets_close(&reporter->targets);
	}
	if (code == 0)
		code = make_report(reporter, ret_report, reterr);
	orch_close_fd(&reporter->inside.output);
	orch_close_fd(&reporter->outside.output);
	orch_proc_unref(reporter->inside.proc);
	orch_proc_unref(reporter->outside.proc);
	orch_scope_unref(reporter->plain);
	orch_sandbox_unref(reporter->sandbox);
	free(reporter->helper);
	reporter->over = true;
	reporter_unref(reporter);
	return code;
}
