/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../reaper/linux/descent.h"
#include "scope.h"

#define QUEUE_MAX 256
/* More than what fits into a socket. */
#define HEARINGS 8

/* --- the whole ------------------------------------------------------------------------- */

void scopes_begin(struct helper *helper)
{
	static struct common_ground ground = {
	    .cgroups = {.fd = -1, .keeper_fd = -1, .keeper_pidfd = -1}};
	for (size_t i = 0; i < CGROUP_V1; i++)
		ground.cgroups.v1[i].fd = -1;
	helper->ground = &ground;
}

void scopes_end(struct helper *helper)
{
	cgroup_base_close(&helper->ground->cgroups);
}

int host_watch_open(struct helper *helper, struct wire_packet *hello)
{
	if (hello->fd_count != 1)
		return -EPROTO;
	helper->host_watch = hello->fds[0];
	hello->fd_count = 0;
	return 0;
}

/* --- requests -------------------------------------------------------------------------- */

static int start_setup(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	close_fd(&scope->control_fd);
	scope->control_fd = pair[0];
	_cleanup_fd_ int inner = pair[1];
	if (!scope->page)
		scope->page = mmap(NULL, sizeof(*scope->page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
				   0);
	if (scope->page == MAP_FAILED) {
		scope->page = NULL;
		return -errno;
	}
	/* Of a rung that was tried before. */
	limits_undo(helper, scope);
	if (limits_prepare(helper, scope, &error) < 0) {
		scope_fail(helper, scope, &error);
		return 0;
	}
	struct setup_request setup = {.control_fd = inner,
				      .spec_fd = scope->spec_fd,
				      .host_uid = scope->host_uid,
				      .cgroup_fd = scope->cgroup_fd,
				      .rung = scope->rung,
				      .processes = scope->limits.processes,
				      .data_bytes = scope->limits.data_bytes,
				      .open_files = helper->open_files,
				      .page = scope->page};
	memcpy(setup.join_fd, scope->limits.join_fd, sizeof(setup.join_fd));
	int result = setup_start(&setup, &scope->setup_pid, &scope->setup_fd);
	limits_joined(&scope->limits);
	return result;
}

static void drop_leaf(struct helper *helper, struct scope *scope)
{
	if (scope->cgroup_fd >= 0)
		cgroup_leaf_remove(&helper->ground->cgroups, scope->name);
	close_fd(&scope->cgroup_fd);
}

static bool have_leaf(struct helper *helper, struct scope *scope)
{
	struct setup_error why;
	if (scope->cgroup_fd >= 0)
		return true;
	int result = cgroup_leaf_new(&helper->ground->cgroups, scope->name, &scope->cgroup_fd);
	if (result == 0)
		return true;
	setup_fail(&why, ORCH_EUNENFORCEABLE, result == -ENOTSUP ? 0 : -result, "cgroup", "no cgroup leaf: %s",
		   helper->ground->cgroups.reason);
	ladder_miss(&scope->ladder, NEED_CGROUP, &why);
	return false;
}

static bool have_descent(struct scope *scope)
{
	struct setup_error why;
	if (descent_is_visible())
		return true;
	setup_fail(&why, ORCH_EUNENFORCEABLE, ENOENT, "descent",
		   "no lists of children in /proc/PID/task/TID/children (a kernel without CONFIG_PROC_CHILDREN, or no /proc)");
	ladder_miss(&scope->ladder, NEED_DESCENT, &why);
	return false;
}

/* Starts the set-up of the rung that was chosen. False: it is known now not to be had. */
static bool try_rung(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	bool in_cgroup = rung_needs(scope->rung, NEED_CGROUP);
	if (in_cgroup && !have_leaf(helper, scope))
		return false;
	if (!in_cgroup)
		drop_leaf(helper, scope);
	if (rung_needs(scope->rung, NEED_DESCENT) && !have_descent(scope))
		return false;
	if (scope->rung < ORCH_RUNG_PIDNS)
		strays_expect(helper);
	int result = start_setup(helper, scope);
	scope->has_cgroup = scope->cgroup_fd >= 0;
	if (result == 0)
		return true;
	if (in_cgroup) {
		/* For example EACCES: the own cgroup is outside of what was delegated. */
		setup_fail(&error, ORCH_EUNENFORCEABLE, -result, "cgroup",
			   "no process can be started in a leaf of %.100s: %s (start the host inside of what is delegated to it)",
			   helper->ground->cgroups.path, strerrordesc_np(-result));
		ladder_miss(&scope->ladder, NEED_CGROUP, &error);
		return false;
	}
	setup_fail(&error, ORCH_ESYS, -result, "clone", "the scope's set-up process could not be started");
	scope_fail(helper, scope, &error);
	return true;
}

/* The best rung that is not known to be impossible, down to the least. */
static void climb(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	scope->retry = false;
	while ((scope->rung = ladder_next(&scope->ladder)))
		if (try_rung(helper, scope))
			return;
	ladder_refusal(&scope->ladder, &error);
	scope_fail(helper, scope, &error);
}

/* What was tried has ended; its socket, its page and what is known of its processes go with it. */
static bool climbs_on(struct helper *helper, struct scope *scope)
{
	if (!scope->retry || scope->state != SETTING_UP || scope->setup_fd >= 0 ||
	    (scope->init_pid && !scope->init_reaped))
		return false;
	scope_unmap_page(scope);
	scope->init_pid = 0;
	scope->init_reaped = false;
	climb(helper, scope);
	return true;
}

static int scope_new(struct helper *helper, struct wire_packet *request)
{
	const struct wire_message *message = &request->message;
	bool confined = message->flags & WIRE_CONFINED;
	if (scope_find(helper, message->scope) || !message->scope || confined != (request->fd_count == 1) ||
	    strncmp(message->step, "orch-", 5) != 0 || strchr(message->step, '/'))
		return -EPROTO;
	struct scope *scope = calloc(1, sizeof(*scope));
	if (!scope) {
		scopes_refuse(helper, request, "orch-reaper has no memory for another scope");
		return 0;
	}
	scope->id = message->scope;
	wire_copy(scope->name, sizeof(scope->name), message->step);
	scope->setup_fd = scope->init_fd = scope->control_fd = scope->cgroup_fd = scope->proc_fd = scope->spec_fd = -1;
	limits_read(&scope->limits, message);
	scope->due_us = now_us() + (int64_t)message->number[0] * 1000;
	scope->confined = confined;
	scope->host_uid = (uint32_t)message->number[1];
	scope->ladder.least = (uint32_t)message->value;
	scope->ladder.best = message->number[2] ? (uint32_t)message->number[2] : ORCH_RUNG_CGROUP_PIDNS;
	if (confined) {
		scope->spec_fd = request->fds[0];
		request->fd_count = 0;
	}
	scope->next = helper->scopes;
	helper->scopes = scope;
	climb(helper, scope);
	return 0;
}

static void forward(struct helper *helper, struct scope *scope, struct wire_packet *request)
{
	if (!scope || scope->state != STANDING || scope->control_fd < 0) {
		answer_refusal(helper, request, ORCH_ECLOSED, "the scope is being stopped or is over");
		return;
	}
	if (scope->to_init.length >= QUEUE_MAX) {
		answer_refusal(helper, request, ORCH_EBUSY,
		       "the scope's init has too many requests waiting");
		return;
	}
	if (request->message.type == WIRE_SPAWN && request->message.flags & WIRE_LEADER) {
		scope->leader = request->message.subject;
		scope->has_leader = true;
	}
	scope->used |= request->message.type == WIRE_SPAWN;
	struct wire_packet moved = *request;
	request->fd_count = 0;
	if (wire_queue_add(&scope->to_init, &moved) < 0)
		answer_refusal(helper, request, ORCH_ENOMEM, "orch-reaper has no memory for the request");
}

int scopes_request(struct helper *helper, struct wire_packet *packet)
{
	struct scope *scope = scope_find(helper, packet->message.scope);
	switch (packet->message.type) {
	case WIRE_SCOPE_NEW:
		return scope_new(helper, packet);
	case WIRE_STOP:
		if (scope && scope->state == STANDING && packet->message.number[4]) {
			scope->counted = true;
			scope->alive = (uint32_t)(packet->message.number[4] - 1);
		}
		if (scope)
			scope_begin_end(scope, (int64_t)packet->message.number[0],
				  (int64_t)packet->message.number[2] +
				      (int64_t)packet->message.number[1] * 1000,
				  (int64_t)packet->message.number[2],
				  (int64_t)packet->message.number[3]);
		return 0;
	case WIRE_SPAWN:
	case WIRE_SIGNAL:
	case WIRE_CONNECT:
		forward(helper, scope, packet);
		return 0;
	default:
		return -EPROTO;
	}
}

/* --- the loop's view ------------------------------------------------------------------- */

size_t scopes_poll_most(const struct helper *helper)
{
	size_t count = 0;
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next)
		count += 4;
	return count;
}

static int64_t scope_due(const struct scope *scope)
{
	switch (scope->state) {
	case STANDING:
		return -1;
	case SETTING_UP:
	case TERMINATING:
		return scope->due_us;
	case LINGERING:
		return scope->due_us < scope->thaw_due_us ? scope->due_us : scope->thaw_due_us;
	case KILLING:
		/* Until both are reaped their pidfds wake us; then the cgroup has to be looked at. */
		if ((scope->init_fd < 0 ? scope->setup_fd < 0 : scope_has_to_sweep(scope)) &&
		    scope->due_us < scope->deadline_us)
			return scope->due_us;
		return scope->deadline_us < scope->thaw_due_us ? scope->deadline_us : scope->thaw_due_us;
	}
	return -1;
}

size_t scopes_poll(const struct helper *helper, struct pollfd *fds, int *timeout_ms)
{
	size_t count = 0;
	int64_t now = now_us(), next = -1;
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next) {
		int64_t due = scope_due(scope), limits = limits_due(scope);
		if (limits >= 0 && (due < 0 || limits < due))
			due = limits;
		if (due >= 0 && (next < 0 || due < next))
			next = due;
		fds[count++] = limits_poll(scope);
		fds[count++] = (struct pollfd){.fd = scope->setup_fd, .events = POLLIN};
		fds[count++] = (struct pollfd){.fd = scope->init_fd, .events = POLLIN};
		fds[count++] = (struct pollfd){
		    .fd = scope->control_fd,
		    .events = (short)(POLLIN | (scope->to_init.length ? POLLOUT : 0))};
	}
	if (next >= 0) {
		int64_t wait = next <= now ? 0 : (next - now) / 1000 + 1;
		if (*timeout_ms < 0 || wait < *timeout_ms)
			*timeout_ms = (int)(wait > 3600000 ? 3600000 : wait);
	}
	return count;
}

static bool has_ended(idtype_t type, id_t id)
{
	siginfo_t status = {0};
	return waitid(type, id, &status, WEXITED | WNOHANG) == 0 && status.si_pid != 0;
}

static bool reap_setup(struct scope *scope)
{
	if (scope->setup_fd < 0 || !has_ended(P_PIDFD, (id_t)scope->setup_fd))
		return false;
	close_fd(&scope->setup_fd);
	return true;
}

static bool reap_init(struct helper *helper, struct scope *scope)
{
	bool by_pidfd = scope->init_fd >= 0;
	if (!scope->init_pid || scope->init_reaped ||
	    !has_ended(by_pidfd ? P_PIDFD : P_PID,
		       (id_t)(by_pidfd ? scope->init_fd : scope->init_pid)))
		return false;
	close_fd(&scope->init_fd);
	scope->init_reaped = true;
	helper->ground->hunting |= scope->rung < ORCH_RUNG_PIDNS;
	return true;
}

static void setup_ended(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	scope_adopt_init(scope);
	if (!scope->init_pid)
		scope_listen(helper, scope);
	limits_check(helper, scope);
	if (climbs_on(helper, scope))
		return;
	if (scope->init_pid) {
		scope_hear_held(helper, scope);
		return;
	}
	setup_fail(&error, ORCH_ESYS, 0, "setup",
		   "the scope's set-up process ended without a result");
	scope_fail(helper, scope, &error);
}

static void init_ended(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	/* What it said last is still in the socket. */
	while (scope_listen(helper, scope))
		;
	if (climbs_on(helper, scope))
		return;
	/* A supervisor's end is nobody else's. */
	if (scope->rung >= ORCH_RUNG_PIDNS)
		scope->last_death_us = now_us();
	/* A host that asked kills behind its request: then that is in the socket by now. */
	for (int i = 0; i < HEARINGS && scope->state == STANDING; i++)
		host_hear(helper);
	limits_check(helper, scope);
	if (scope->state == SETTING_UP) {
		setup_fail(&error, ORCH_ESYS, 0, "setup",
			   "the scope's init ended before the scope stood");
		scope_fail(helper, scope, &error);
	} else if (scope->state == STANDING) {
		scope->proof |= WIRE_DEATH_SELF;
		scope_end_unrequested(scope);
	} else if (scope->state == TERMINATING) {
		scope_kill(scope);
	}
}

static void scope_step(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	limits_check(helper, scope);
	scope_listen(helper, scope);
	if (reap_setup(scope))
		setup_ended(helper, scope);
	if (reap_init(helper, scope))
		init_ended(helper, scope);
	if (scope->to_init.length && scope->control_fd >= 0)
		wire_queue_flush(&scope->to_init, scope->control_fd);

	int64_t now = now_us();
	if (scope->state == SETTING_UP && now >= scope->due_us) {
		setup_fail(
		    &error, ORCH_ETIMEDOUT, 0, "setup",
		    "the scope did not stand in time (setup_timeout_ms): a path or mount hangs, or "
		    "the host is overloaded");
		scope_fail(helper, scope, &error);
	}
	if (scope->state == TERMINATING && now >= scope->due_us)
		scope_kill(scope);
	if (scope->state != KILLING && scope->state != LINGERING)
		return;
	bool certified = scope->state == LINGERING;
	if (scope_is_dead(helper, scope)) {
		if (!scope->last_death_us)
			scope->last_death_us = now;
		if (!certified)
			scope_certify_dead(helper, scope);
		scope_free(helper, scope);
		return;
	}
	if (now >= scope->thaw_due_us)
		scope_look_for_frozen(scope);
	if (!certified && now >= scope->deadline_us)
		scope_certify_alive(helper, scope);
	else if (now >= scope->due_us)
		scope_look_again(scope, certified ? LINGER_LOOK_US : LOOK_US);
}

void scopes_step(struct helper *helper)
{
	struct scope *next;
	for (struct scope *scope = helper->scopes; scope; scope = next) {
		next = scope->next;
		scope_step(helper, scope);
	}
}

void scopes_kill_all(struct helper *helper)
{
	/* All of them before anything is counted: nobody is there to be told, and the load goes on meanwhile. */
	for (struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->state < KILLING)
			scope_strike(scope);
	for (struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->state < KILLING) {
			scope_end_unrequested(scope);
			scope_kill(scope);
		}
}
