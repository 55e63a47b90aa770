/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "scope.h"

#define CPU_PERIOD_US 100000u
/* Of a scope below the rungs with a PID namespace, when nobody asked: a fork bomb must not take every pid of the host. */
#define DEFAULT_PROCESSES 4096u
#define DEFAULT_IN_WORDS "the default of 4096, "
/*
 * The v1 event comes before the kernel has chosen whom it kills. Without an event (a kernel without cgroup.event_control)
 * the counter is read now and then.
 */
#define OOM_LOOK_US 2000
#define OOM_LOOKS_US 2000000
#define NO_EVENT_LOOK_US 50000
/* The kernel charges in batches: at its limit a cgroup was this near. */
#define NEAR_LIMIT_BYTES 2097152u

static const struct {
	uint32_t bit;
	const char *field;
} limit_names[LIMITS] = {
	[LIMIT_MEMORY] = {ORCH_LIMIT_MEMORY, "memory_limit_bytes"},
	[LIMIT_PROCESSES] = {ORCH_LIMIT_PROCESSES, "process_limit"},
	[LIMIT_CPU] = {ORCH_LIMIT_CPU, "cpu_limit_percent"},
	[LIMIT_TIME] = {ORCH_LIMIT_TIME, "time_limit_ms"},
};

/* --- files of a leaf ------------------------------------------------------------------- */

static int write_value(int leaf_fd, const char *name, const char *value)
{
	_cleanup_fd_ int fd = openat(leaf_fd, name, O_WRONLY | O_CLOEXEC);
	size_t length = strlen(value);
	if (fd < 0)
		return -errno;
	return write(fd, value, length) == (ssize_t)length ? 0 : -errno;
}

static int write_number(int leaf_fd, const char *name, uint64_t number)
{
	char text[32];
	snprintf(text, sizeof(text), "%" PRIu64, number);
	return write_value(leaf_fd, name, text);
}

static uint64_t read_number(int leaf_fd, const char *name)
{
	char text[32] = "";
	_cleanup_fd_ int fd = openat(leaf_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return 0;
	return strtoull(text, NULL, 10);
}

/* The number behind `name` at the beginning of a line. */
static uint64_t field_of(const char *text, const char *name)
{
	size_t length = strlen(name);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
	}
	return 0;
}

/* --- each limit ------------------------------------------------------------------------ */

static void found(struct limits *limits, enum limit_index limit, uint32_t state, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static void found(struct limits *limits, enum limit_index limit, uint32_t state, const char *format, ...)
{
	va_list arguments;
	limits->state[limit] = state;
	va_start(arguments, format);
	vsnprintf(limits->mechanism[limit], sizeof(limits->mechanism[limit]), format, arguments);
	va_end(arguments);
}

static bool swap_is_on(void)
{
	char text[512] = "";
	_cleanup_fd_ int fd = open("/proc/swaps", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return true;
	const char *line = strchr(text, '\n');
	return line && line[1] != '\0';
}

/* The scope's v2 leaf if it has the controller. */
static int v2_leaf(struct helper *helper, const struct scope *scope, size_t controller, char *reason, size_t size)
{
	if (scope->cgroup_fd < 0) {
		snprintf(reason, size, "no cgroup v2 leaf: %s", helper->ground->cgroups.reason);
		return -1;
	}
	return cgroup_enable(&helper->ground->cgroups, cgroup_controllers[controller], reason, size) < 0
		       ? -1
		       : scope->cgroup_fd;
}

/* A leaf of the v1 hierarchy, which the set-up process will enter. -1 with the reason. */
static int v1_leaf(struct helper *helper, struct scope *scope, size_t controller, char *reason, size_t size)
{
	struct cgroup_base *base = &helper->ground->cgroups;
	struct limits *limits = &scope->limits;
	int error = cgroup_v1_leaf_new(base, controller, scope->name, &limits->leaf_fd[controller]);
	if (error < 0) {
		if (error == -ENOTSUP)
			snprintf(reason, size, "%s", base->v1[controller].reason);
		else
			snprintf(reason, size, "cgroup v1 %.200s: no leaf could be made: %s",
				 base->v1[controller].path, strerrordesc_np(-error));
		return -1;
	}
	limits->join_fd[controller] = openat(limits->leaf_fd[controller], "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (limits->join_fd[controller] < 0) {
		snprintf(reason, size, "cgroup v1 %.200s: nothing can be moved into it: %s", base->v1[controller].path,
			 strerrordesc_np(errno));
		return -1;
	}
	return limits->leaf_fd[controller];
}

static void drop_v1_leaf(struct helper *helper, struct scope *scope, size_t controller)
{
	struct limits *limits = &scope->limits;
	close_fd(&limits->join_fd[controller]);
	if (limits->leaf_fd[controller] < 0)
		return;
	cgroup_v1_leaf_remove(&helper->ground->cgroups, controller, scope->name);
	close_fd(&limits->leaf_fd[controller]);
}

/* Which of them could be used: v2's reason is the better one where there is no v1. */
static void absent(struct limits *limits, enum limit_index limit, const char *v2, const char *v1)
{
	found(limits, limit, ORCH_LIMIT_ABSENT, "%.300s; %.300s", v2, v1);
}

static int cap_memory_v2(struct helper *helper, struct scope *scope, char *reason, size_t size)
{
	struct limits *limits = &scope->limits;
	int leaf = v2_leaf(helper, scope, CGROUP_MEMORY, reason, size);
	int error = leaf < 0 ? -ENOTSUP : write_number(leaf, "memory.max", limits->memory_bytes);
	if (error) {
		if (leaf >= 0)
			snprintf(reason, size, "memory.max can not be written: %s", strerrordesc_np(-error));
		return error;
	}
	/* One victim is none: the kernel ends the whole scope. */
	write_value(leaf, "memory.oom.group", "1");
	error = write_value(leaf, "memory.swap.max", "0");
	bool whole = error == 0 || (error == -ENOENT && !swap_is_on());
	found(limits, LIMIT_MEMORY, whole ? ORCH_LIMIT_ENFORCED : ORCH_LIMIT_PARTIAL,
	      "cgroup v2 memory.max%s in %s/%s",
	      error == 0 ? " without swap" : whole ? ", this host has no swap" : " (what is swapped out is not counted)",
	      helper->ground->cgroups.path, scope->name);
	limits->counter_fd = openat(leaf, "memory.events", O_RDONLY | O_CLOEXEC);
	return 0;
}

/* Wakes the helper when the limit is reached (kernel documentation, cgroup-v1/memory.rst, 10: OOM Control). */
static void watch_oom_v1(struct limits *limits, int leaf)
{
	char text[64];
	limits->counter_fd = openat(leaf, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	limits->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	snprintf(text, sizeof(text), "%d %d", limits->event_fd, limits->counter_fd);
	if (limits->event_fd >= 0 && write_value(leaf, "cgroup.event_control", text) < 0)
		close_fd(&limits->event_fd);
	if (limits->event_fd < 0)
		limits->look_us = now_us() + NO_EVENT_LOOK_US;
}

static int cap_memory_v1(struct helper *helper, struct scope *scope, char *reason, size_t size)
{
	struct limits *limits = &scope->limits;
	int leaf = v1_leaf(helper, scope, CGROUP_MEMORY, reason, size);
	int error = leaf < 0 ? -ENOTSUP : write_number(leaf, "memory.limit_in_bytes", limits->memory_bytes);
	if (error) {
		if (leaf >= 0)
			snprintf(reason, size, "memory.limit_in_bytes can not be written: %s", strerrordesc_np(-error));
		drop_v1_leaf(helper, scope, CGROUP_MEMORY);
		return error;
	}
	error = write_number(leaf, "memory.memsw.limit_in_bytes", limits->memory_bytes);
	bool whole = error == 0 || (error == -ENOENT && !swap_is_on());
	found(limits, LIMIT_MEMORY, whole ? ORCH_LIMIT_ENFORCED : ORCH_LIMIT_PARTIAL,
	      "cgroup v1 memory.limit_in_bytes%s in %s/%s",
	      error == 0 ? " and memory.memsw.limit_in_bytes"
			 : whole ? ", this host has no swap" : " (what is swapped out is not counted)",
	      helper->ground->cgroups.v1[CGROUP_MEMORY].path, scope->name);
	watch_oom_v1(limits, leaf);
	return 0;
}

static void cap_memory(struct helper *helper, struct scope *scope, bool plain)
{
	char v2[512], v1[512];
	if (cap_memory_v2(helper, scope, v2, sizeof(v2)) == 0 || cap_memory_v1(helper, scope, v1, sizeof(v1)) == 0)
		return;
	if (!plain) {
		absent(&scope->limits, LIMIT_MEMORY, v2, v1);
		return;
	}
	scope->limits.data_bytes = scope->limits.memory_bytes;
	found(&scope->limits, LIMIT_MEMORY, ORCH_LIMIT_PARTIAL,
	      "RLIMIT_DATA of each process alone: neither memory files nor several processes together are counted "
	      "(%.200s; %.200s)",
	      v2, v1);
}

static void cap_processes(struct helper *helper, struct scope *scope, bool plain)
{
	struct limits *limits = &scope->limits;
	char v2[512], v1[512];
	uint32_t most = limits->processes ? limits->processes : DEFAULT_PROCESSES;
	const char *whose = limits->processes ? "" : DEFAULT_IN_WORDS;
	/* And init. */
	uint64_t number = (uint64_t)most + 1;
	int leaf = v2_leaf(helper, scope, CGROUP_PIDS, v2, sizeof(v2));
	if (leaf >= 0 && write_number(leaf, "pids.max", number) == 0) {
		found(limits, LIMIT_PROCESSES, ORCH_LIMIT_ENFORCED, "%scgroup v2 pids.max in %s/%s", whose,
		      helper->ground->cgroups.path, scope->name);
		return;
	}
	leaf = v1_leaf(helper, scope, CGROUP_PIDS, v1, sizeof(v1));
	if (leaf >= 0 && write_number(leaf, "pids.max", number) == 0) {
		found(limits, LIMIT_PROCESSES, ORCH_LIMIT_ENFORCED, "%scgroup v1 pids.max in %s/%s", whose,
		      helper->ground->cgroups.v1[CGROUP_PIDS].path, scope->name);
		return;
	}
	drop_v1_leaf(helper, scope, CGROUP_PIDS);
	if (plain)
		found(limits, LIMIT_PROCESSES, ORCH_LIMIT_ENFORCED, "RLIMIT_NPROC in the scope's user namespace");
	else
		absent(limits, LIMIT_PROCESSES, v2, v1);
}

static void cap_cpu(struct helper *helper, struct scope *scope)
{
	struct limits *limits = &scope->limits;
	char v2[512], v1[512], text[64];
	uint64_t quota_us = (uint64_t)limits->cpu_percent * (CPU_PERIOD_US / 100);
	int leaf = v2_leaf(helper, scope, CGROUP_CPU, v2, sizeof(v2));
	snprintf(text, sizeof(text), "%" PRIu64 " %u", quota_us, CPU_PERIOD_US);
	if (leaf >= 0 && write_value(leaf, "cpu.max", text) == 0) {
		found(limits, LIMIT_CPU, ORCH_LIMIT_ENFORCED, "cgroup v2 cpu.max in %s/%s",
		      helper->ground->cgroups.path, scope->name);
		return;
	}
	leaf = v1_leaf(helper, scope, CGROUP_CPU, v1, sizeof(v1));
	if (leaf >= 0 && write_number(leaf, "cpu.cfs_period_us", CPU_PERIOD_US) == 0 &&
	    write_number(leaf, "cpu.cfs_quota_us", quota_us) == 0) {
		found(limits, LIMIT_CPU, ORCH_LIMIT_ENFORCED, "cgroup v1 cpu.cfs_quota_us in %s/%s",
		      helper->ground->cgroups.v1[CGROUP_CPU].path, scope->name);
		return;
	}
	if (leaf >= 0)
		snprintf(v1, sizeof(v1), "cpu.cfs_quota_us can not be written: %s", strerrordesc_np(errno));
	drop_v1_leaf(helper, scope, CGROUP_CPU);
	absent(limits, LIMIT_CPU, v2, v1);
}

/* --- making them ----------------------------------------------------------------------- */

void limits_read(struct limits *limits, const struct wire_message *request)
{
	memset(limits, 0, sizeof(*limits));
	limits->memory_bytes = request->number[3];
	limits->processes = (uint32_t)request->number[4];
	limits->cpu_percent = (uint32_t)request->number[5];
	limits->time_ms = (uint32_t)request->number[6];
	limits->required = (uint32_t)request->number[7];
	for (size_t i = 0; i < CGROUP_V1; i++)
		limits->leaf_fd[i] = limits->join_fd[i] = -1;
	limits->counter_fd = limits->event_fd = -1;
}

static int check_required(const struct limits *limits, struct setup_error *error)
{
	for (size_t i = 0; i < LIMITS; i++)
		if (limits->required & limit_names[i].bit && limits->state[i] != ORCH_LIMIT_ENFORCED) {
			setup_fail(error, ORCH_EUNENFORCEABLE, 0, "limits",
				   "%s is required and can not be enforced: %.140s; remedy: a cgroup of one's own "
				   "(root, or a delegated one)",
				   limit_names[i].field, limits->mechanism[i]);
			return -1;
		}
	return 0;
}

int limits_prepare(struct helper *helper, struct scope *scope, struct setup_error *error)
{
	struct limits *limits = &scope->limits;
	/* There init has a user namespace without uid 0 of the host, and its limits are everybody's. */
	bool plain = !scope->confined && geteuid() != 0 && scope->rung >= ORCH_RUNG_PIDNS;
	if (limits->memory_bytes)
		cap_memory(helper, scope, plain);
	if (limits->processes || scope->rung < ORCH_RUNG_PIDNS)
		cap_processes(helper, scope, plain);
	if (limits->cpu_percent)
		cap_cpu(helper, scope);
	if (limits->time_ms)
		found(limits, LIMIT_TIME, ORCH_LIMIT_ENFORCED, "the clock of orch-reaper");
	return check_required(limits, error);
}

void limits_undo(struct helper *helper, struct scope *scope)
{
	for (size_t i = 0; i < CGROUP_V1; i++)
		drop_v1_leaf(helper, scope, i);
	close_fd(&scope->limits.counter_fd);
	close_fd(&scope->limits.event_fd);
	scope->limits.look_us = 0;
	scope->limits.data_bytes = 0;
}

void limits_joined(struct limits *limits)
{
	for (size_t i = 0; i < CGROUP_V1; i++)
		close_fd(&limits->join_fd[i]);
}

int limits_join(const int join_fd[CGROUP_V1], struct setup_error *error)
{
	for (size_t i = 0; i < CGROUP_V1; i++)
		if (join_fd[i] >= 0 && write(join_fd[i], "0", 1) != 1) {
			setup_fail(error, ORCH_ESYS, errno, "limits",
				   "the scope could not enter its cgroup v1 leaf of the %s controller",
				   cgroup_controllers[i]);
			return -1;
		}
	return 0;
}

void limits_begin(struct helper *helper, struct scope *scope)
{
	struct limits *limits = &scope->limits;
	for (size_t i = 0; i < LIMITS; i++)
		if (limits->state[i])
			answer_limit(helper, scope->id, limit_names[i].bit, limits->state[i], limits->mechanism[i]);
	if (limits->time_ms)
		limits->end_us = now_us() + (int64_t)limits->time_ms * 1000;
}

/* --- watching them --------------------------------------------------------------------- */

/*
 * The counter also counts victims of an out-of-memory kill of the whole host or of a cgroup above; then the scope's own
 * limit was not reached.
 */
static bool own_limit_reached(struct limits *limits, const char *events)
{
	int leaf = limits->leaf_fd[CGROUP_MEMORY];
	if (leaf < 0) {
		uint64_t before = limits->ooms;
		limits->ooms = field_of(events, "oom");
		return limits->ooms > before;
	}
	uint64_t with_swap = read_number(leaf, "memory.memsw.max_usage_in_bytes");
	uint64_t most = read_number(leaf, "memory.max_usage_in_bytes");
	return (with_swap > most ? with_swap : most) + NEAR_LIMIT_BYTES >= limits->memory_bytes;
}

/* Sets the scope's proof when the kernel killed for memory. */
static void count_kills(struct scope *scope)
{
	struct limits *limits = &scope->limits;
	char text[512];
	ssize_t length = pread(limits->counter_fd, text, sizeof(text) - 1, 0);
	if (length <= 0)
		return;
	text[length] = '\0';
	uint64_t kills = field_of(text, "oom_kill");
	if (kills <= limits->kills)
		return;
	limits->kills = kills;
	if (!own_limit_reached(limits, text)) {
		scope->proof |= WIRE_DEATH_HOST_MEMORY;
		return;
	}
	scope->proof |= WIRE_DEATH_MEMORY;
	close_fd(&limits->counter_fd);
	close_fd(&limits->event_fd);
	limits->look_us = 0;
}

static void look_for_kills(struct scope *scope)
{
	struct limits *limits = &scope->limits;
	int64_t now = now_us();
	uint64_t times;
	if (limits->counter_fd < 0)
		return;
	if (limits->event_fd >= 0 && read(limits->event_fd, &times, sizeof(times)) == (ssize_t)sizeof(times)) {
		limits->look_us = now + OOM_LOOK_US;
		limits->look_end_us = now + OOM_LOOKS_US;
	} else if (limits->look_us && now >= limits->look_us) {
		limits->look_us = now + (limits->event_fd < 0 ? NO_EVENT_LOOK_US : OOM_LOOK_US);
		if (limits->event_fd >= 0 && now >= limits->look_end_us)
			limits->look_us = 0;
	}
	count_kills(scope);
}

static void fail_for_memory(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	setup_fail(&error, ORCH_EUNENFORCEABLE, ENOMEM, "limits",
		   "memory_limit_bytes %" PRIu64 " is too little for the scope itself: raise it",
		   scope->limits.memory_bytes);
	scope_fail(helper, scope, &error);
}

void limits_check(struct helper *helper, struct scope *scope)
{
	struct limits *limits = &scope->limits;
	if (scope->state > TERMINATING)
		return;
	look_for_kills(scope);
	if (scope->proof & WIRE_DEATH_MEMORY) {
		/* v1 kills one process, and what it was for goes on without it: one victim is none. */
		if (scope->state == SETTING_UP)
			fail_for_memory(helper, scope);
		else
			scope_end_unrequested(scope);
	} else if (scope->state == STANDING && limits->end_us && now_us() >= limits->end_us) {
		scope->proof |= WIRE_DEATH_TIME;
		scope_end_unrequested(scope);
	}
}

int64_t limits_due(const struct scope *scope)
{
	const struct limits *limits = &scope->limits;
	int64_t due = -1;
	if (scope->state > TERMINATING)
		return -1;
	if (scope->state == STANDING && limits->end_us)
		due = limits->end_us;
	if (limits->look_us && (due < 0 || limits->look_us < due))
		due = limits->look_us;
	return due;
}

struct pollfd limits_poll(const struct scope *scope)
{
	const struct limits *limits = &scope->limits;
	if (scope->state > TERMINATING)
		return (struct pollfd){.fd = -1};
	if (limits->leaf_fd[CGROUP_MEMORY] >= 0)
		return (struct pollfd){.fd = limits->event_fd, .events = POLLIN};
	return (struct pollfd){.fd = limits->counter_fd, .events = POLLPRI};
}

/* --- taking them away ------------------------------------------------------------------ */

int limits_remove(struct helper *helper, struct scope *scope)
{
	struct limits *limits = &scope->limits;
	int result = 0;
	close_fd(&limits->event_fd);
	close_fd(&limits->counter_fd);
	for (size_t i = 0; i < CGROUP_V1; i++) {
		if (limits->leaf_fd[i] < 0)
			continue;
		if (cgroup_v1_leaf_remove(&helper->ground->cgroups, i, scope->name) == -EBUSY)
			result = -EBUSY;
		else
			close_fd(&limits->leaf_fd[i]);
	}
	return result;
}

void limits_close(struct limits *limits)
{
	limits_joined(limits);
	for (size_t i = 0; i < CGROUP_V1; i++)
		close_fd(&limits->leaf_fd[i]);
	close_fd(&limits->counter_fd);
	close_fd(&limits->event_fd);
}
