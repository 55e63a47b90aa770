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

#include <orch/scope.h>

#include "../../reaper/linux/census.h"
#include "linux.h"

#define QUEUE_MAX 256
#define SURVIVORS_MAX 64
#define DEFAULT_DEADLINE_MS 10000
/* Between looks at a cgroup that is not empty yet: cgroup.events by POLLPRI is throttled to 10 ms
 * and more. */
#define LOOK_US 1000
#define LINGER_LOOK_US 100000

enum scope_state {
	SETTING_UP, /* the set-up process or init works; no program runs */
	STANDING,
	TERMINATING, /* SIGTERM was sent; grace runs */
	KILLING,     /* SIGKILL was sent; waits for the proof */
	LINGERING,   /* certified as not dead; removed when it is */
};

struct scope {
	struct scope *next;
	uint32_t id;
	char name[WIRE_STEP_MAX];
	enum scope_state state;
	struct setup_page *page;

	pid_t setup_pid; /* valid while setup_fd >= 0 */
	int setup_fd;
	pid_t init_pid; /* 0: not known */
	int init_fd;	/* pidfd; -1 also after it was reaped */
	bool init_reaped;
	int control_fd;
	struct wire_queue to_init;
	uint64_t pidns_inode;

	int cgroup_fd; /* -1: none, or removed */
	bool has_cgroup;
	bool failed; /* SCOPE_FAILED was sent */

	uint32_t leader;
	bool has_leader;

	int64_t due_us;	       /* set-up deadline, end of grace, or next look */
	int64_t deadline_us;   /* of the certificate */
	int64_t requested_us;  /* CLOCK_MONOTONIC */
	int64_t requested_ms;  /* CLOCK_REALTIME */
	int64_t last_death_us; /* CLOCK_MONOTONIC; 0: not yet */
	uint32_t alive;
	uint16_t proof; /* WIRE_DEATH_* */
};

struct common_ground {
	struct cgroup_base cgroups;
};

/* --- the whole ------------------------------------------------------------------------- */

void scopes_begin(struct helper *helper)
{
	static struct common_ground ground = {
	    .cgroups = {.fd = -1, .keeper_fd = -1, .keeper_pidfd = -1}};
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

/* --- small things ---------------------------------------------------------------------- */

static struct scope *scope_find(const struct helper *helper, uint32_t id)
{
	for (struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->id == id)
			return scope;
	return NULL;
}

/* Without a pidfd (none were left) the pid is as good: our child, and nobody else reaps it. */
static bool kill_init(const struct scope *scope)
{
	if (scope->init_fd >= 0)
		return pidfd_signal(scope->init_fd, SIGKILL) == 0;
	return scope->init_pid && !scope->init_reaped && kill(scope->init_pid, SIGKILL) == 0;
}

/* Init is our child (CLONE_PARENT) and only we reap, so the pid can not be a stranger's. */
static void adopt_init(struct scope *scope)
{
	if (scope->init_pid || !scope->page || !scope->page->init_pid)
		return;
	scope->init_pid = scope->page->init_pid;
	scope->init_fd = pidfd_open_(scope->init_pid);
	if (scope->state >= KILLING)
		kill_init(scope);
}

static void unmap_page(struct scope *scope)
{
	if (scope->page)
		munmap(scope->page, sizeof(*scope->page));
	scope->page = NULL;
}

static void scope_free(struct helper *helper, struct scope *scope)
{
	struct scope **link = &helper->scopes;
	while (*link != scope)
		link = &(*link)->next;
	*link = scope->next;
	close_fd(&scope->setup_fd);
	close_fd(&scope->init_fd);
	close_fd(&scope->control_fd);
	close_fd(&scope->cgroup_fd);
	wire_queue_clear(&scope->to_init);
	unmap_page(scope);
	free(scope);
}

/* --- the end of a scope ---------------------------------------------------------------- */

static void strike(struct scope *scope)
{
	adopt_init(scope);
	if (scope->setup_fd >= 0)
		pidfd_signal(scope->setup_fd, SIGKILL);
	if (kill_init(scope))
		scope->proof |= WIRE_DEATH_INIT_KILLED;
	if (scope->cgroup_fd >= 0 && leaf_kill(scope->cgroup_fd) == 0)
		scope->proof |= WIRE_DEATH_CGROUP_KILL;
}

static void kill_scope(struct scope *scope)
{
	strike(scope);
	scope->state = KILLING;
	scope->due_us = now_us() + LOOK_US;
}

/* Starts the end: requested by the host, or by what happened. */
static void begin_end(struct scope *scope, int64_t grace_ms, int64_t deadline_us,
		      int64_t requested_us, int64_t requested_ms)
{
	bool first = scope->state == SETTING_UP || scope->state == STANDING;
	int64_t now = now_us();
	if (first) {
		struct census census;
		if (scope->state == SETTING_UP)
			scope->proof |= WIRE_DEATH_NEVER_STOOD;
		else {
			census_take(&census, scope->pidns_inode, scope->cgroup_fd, scope->init_pid,
				    0);
			scope->alive = census.count;
			census_free(&census);
		}
		scope->requested_us = requested_us;
		scope->requested_ms = requested_ms;
		scope->deadline_us = deadline_us;
	} else if (deadline_us < scope->deadline_us) {
		scope->deadline_us = deadline_us;
	}
	if (scope->state == STANDING && grace_ms > 0) {
		struct wire_packet packet = wire_packet(WIRE_TERMINATE, 0, 0);
		wire_queue_add(&scope->to_init, &packet);
		scope->proof |= WIRE_DEATH_TERMINATED;
		scope->state = TERMINATING;
		scope->due_us = now + grace_ms * 1000;
	} else if (scope->state == TERMINATING && now + grace_ms * 1000 < scope->due_us) {
		scope->due_us = now + grace_ms * 1000;
	} else if (scope->state == SETTING_UP || scope->state == STANDING) {
		kill_scope(scope);
	}
}

static void end_unrequested(struct scope *scope)
{
	int64_t now = now_us();
	begin_end(scope, 0, now + DEFAULT_DEADLINE_MS * 1000LL, now, realtime_ms());
}

static void scope_fail(struct helper *helper, struct scope *scope, const struct setup_error *error)
{
	if (scope->failed || scope->state != SETTING_UP)
		return;
	scope->failed = true;
	answer_failure(helper, WIRE_SCOPE_FAILED, scope->id, 0, error);
	end_unrequested(scope);
}

static void send_death(struct helper *helper, struct scope *scope, uint32_t verdict,
		       const char *reason)
{
	struct wire_packet packet = wire_packet(WIRE_DEATH, scope->id, 0);
	int64_t now = now_us(), last_death = -1;
	/* An end that nobody requested begins with the death. */
	if (scope->last_death_us)
		last_death = scope->last_death_us > scope->requested_us
				 ? scope->last_death_us - scope->requested_us
				 : 0;
	packet.message.value = (int32_t)verdict;
	packet.message.flags = scope->proof;
	packet.message.number[0] = (uint64_t)last_death;
	packet.message.number[1] = (uint64_t)(now - scope->requested_us);
	packet.message.number[2] = scope->alive;
	packet.message.number[3] = (uint64_t)scope->requested_ms;
	packet.message.number[4] = scope->pidns_inode;
	wire_copy(packet.message.text, WIRE_TEXT_MAX, reason);
	host_send(helper, &packet);
}

/* True when the proof is complete. */
static bool scope_is_dead(struct helper *helper, struct scope *scope)
{
	if (scope->setup_fd >= 0)
		return false;
	adopt_init(scope);
	if (scope->init_pid && !scope->init_reaped)
		return false;
	if (scope->init_reaped)
		scope->proof |= WIRE_DEATH_INIT_REAPED;
	if (scope->cgroup_fd < 0)
		return true;
	int populated = leaf_populated(scope->cgroup_fd);
	if (populated > 0) {
		/* A fork may have raced the first kill (before kernel commit b69bb476dee9). */
		leaf_kill(scope->cgroup_fd);
		return false;
	}
	if (populated == 0)
		scope->proof |= WIRE_DEATH_CGROUP_EMPTY;
	int error = cgroup_leaf_remove(&helper->ground->cgroups, scope->name);
	if (error == -EBUSY && now_us() < scope->deadline_us)
		return false;
	if (error == 0)
		scope->proof |= WIRE_DEATH_CGROUP_GONE;
	close_fd(&scope->cgroup_fd);
	return true;
}

/* The deadline passed without a proof: say who is left. */
static void certify_alive(struct helper *helper, struct scope *scope)
{
	struct census census;
	uint32_t living = 0;
	/* A namespace whose init was reaped is gone, and its number may be another's by now. */
	census_take(&census, scope->init_reaped ? 0 : scope->pidns_inode, scope->cgroup_fd, 0,
		    SURVIVORS_MAX);
	/* In set-up there is no namespace to look into: what is left is one of these two. */
	struct census_entry own[2];
	uint32_t own_count = 0;
	if (scope->setup_fd >= 0 && census_describe(scope->setup_pid, &own[own_count]))
		own_count++;
	if (scope->init_fd >= 0 && census_describe(scope->init_pid, &own[own_count]))
		own_count++;
	struct census extra = {.entries = own, .count = own_count, .stored = own_count};
	for (uint32_t i = 0; i < census.stored; i++) {
		/* An init that waits in its exit for others runs no program any more. */
		living +=
		    census.entries[i].state[0] != 'Z' && census.entries[i].pid != scope->init_pid;
		for (uint32_t j = 0; j < extra.stored; j++)
			if (extra.entries[j].pid == census.entries[i].pid)
				extra.entries[j--] = extra.entries[--extra.stored];
	}
	for (uint32_t i = 0; i < extra.stored; i++)
		living += extra.entries[i].state[0] != 'Z';
	bool zombies_only = census.stored && living == 0;
	answer_survivors(helper, scope->id, &census);
	answer_survivors(helper, scope->id, &extra);
	if (zombies_only)
		send_death(helper, scope, ORCH_DEATH_DEAD_UNREAPED, "");
	else if (census.count || extra.stored)
		send_death(helper, scope, ORCH_DEATH_SURVIVORS, "");
	else
		send_death(
		    helper, scope, ORCH_DEATH_UNVERIFIABLE,
		    "no proof by the deadline, and no member of the scope can be seen in /proc");
	census_free(&census);
	scope->state = LINGERING;
	scope->due_us = now_us() + LINGER_LOOK_US;
}

/* --- what init and the set-up process say ---------------------------------------------- */

static void scope_up(struct helper *helper, struct scope *scope, struct wire_packet *ready)
{
	char path[64];
	struct stat status;
	adopt_init(scope);
	scope->pidns_inode = ready->message.number[0];
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)scope->init_pid);
	/* Init is not dumpable, so an ordinary user's helper has only its word. */
	if (stat(path, &status) == 0)
		scope->pidns_inode = status.st_ino;
	unmap_page(scope);
	if (scope->state != SETTING_UP)
		return;

	struct wire_packet packet = wire_packet(WIRE_SCOPE_UP, scope->id, 0);
	int init_fd = fcntl(scope->init_fd, F_DUPFD_CLOEXEC, 3);
	if (init_fd < 0) {
		struct setup_error error;
		setup_fail(&error, ORCH_ESYS, errno, "pidfd", "the scope's init has no pidfd");
		scope_fail(helper, scope, &error);
		return;
	}
	packet.message.value = scope->init_pid;
	packet.message.number[0] = scope->has_cgroup ? ORCH_RUNG_CGROUP_PIDNS : ORCH_RUNG_PIDNS;
	packet.message.number[1] = scope->pidns_inode;
	if (scope->has_cgroup)
		snprintf(packet.message.text, WIRE_TEXT_MAX, "%s/%.30s", helper->ground->cgroups.path,
			 scope->name);
	packet.fds[packet.fd_count++] = init_fd;
	if (ready->fd_count) {
		packet.message.flags = WIRE_LISTENER;
		packet.fds[packet.fd_count++] = ready->fds[0];
		ready->fd_count = 0;
	}
	scope->state = STANDING;
	host_send(helper, &packet);
}

static void scope_hear(struct helper *helper, struct scope *scope, struct wire_packet *packet)
{
	struct setup_error error;
	packet->message.scope = scope->id;
	switch (packet->message.type) {
	case WIRE_READY:
		scope_up(helper, scope, packet);
		break;
	case WIRE_SETUP_FAILED:
		setup_fail(&error, packet->message.code, packet->message.os_errno,
			   packet->message.step, "%s", packet->message.text);
		scope_fail(helper, scope, &error);
		break;
	case WIRE_EMPTY:
		if (scope->state == TERMINATING)
			kill_scope(scope);
		break;
	case WIRE_EXITED:
		host_send(helper, packet);
		if (scope->has_leader && scope->leader == packet->message.subject &&
		    scope->state == STANDING)
			end_unrequested(scope);
		break;
	case WIRE_FAILED:
		if (scope->has_leader && scope->leader == packet->message.subject)
			scope->has_leader = false;
		host_send(helper, packet);
		break;
	case WIRE_STARTED:
	case WIRE_CONNECTED:
		host_send(helper, packet);
		break;
	default:
		break;
	}
}

/* True while there may be more: bounded, so that one talkative scope does not hold the others. */
static bool scope_listen(struct helper *helper, struct scope *scope)
{
	for (int i = 0; i < 64 && scope->control_fd >= 0; i++) {
		struct wire_packet packet;
		int error = wire_receive(scope->control_fd, NULL, &packet);
		if (error == -EAGAIN)
			return false;
		if (error == -EMFILE) {
			struct setup_error failure;
			setup_fail(&failure, ORCH_ESYS, EMFILE, "helper",
				   "orch-reaper has no file descriptor left");
			scope_fail(helper, scope, &failure);
			continue;
		}
		if (error) {
			close_fd(&scope->control_fd);
			wire_queue_clear(&scope->to_init);
			return false;
		}
		scope_hear(helper, scope, &packet);
		wire_packet_close(&packet);
	}
	return scope->control_fd >= 0;
}

/* --- requests -------------------------------------------------------------------------- */

static int start_setup(struct helper *helper, struct scope *scope,
		       const struct wire_packet *request)
{
	bool confined = request->message.flags & WIRE_CONFINED;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	scope->control_fd = pair[0];
	_cleanup_fd_ int inner = pair[1];
	scope->page = mmap(NULL, sizeof(*scope->page), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (scope->page == MAP_FAILED) {
		scope->page = NULL;
		return -errno;
	}
	struct setup_request setup = {.control_fd = inner,
				      .spec_fd = confined ? request->fds[0] : -1,
				      .host_uid = (uint32_t)request->message.number[1],
				      .cgroup_fd = scope->cgroup_fd,
				      .open_files = helper->open_files,
				      .page = scope->page};
	int error = setup_start(&setup, &scope->setup_pid, &scope->setup_fd);
	if (error && scope->cgroup_fd >= 0 &&
	    request->message.value < (int32_t)ORCH_RUNG_CGROUP_PIDNS) {
		/* For example EACCES: the own cgroup is outside of what was delegated. */
		snprintf(helper->ground->cgroups.reason, sizeof(helper->ground->cgroups.reason),
			 "no process can be started in %.100s: %s", helper->ground->cgroups.path,
			 strerrordesc_np(-error));
		cgroup_leaf_remove(&helper->ground->cgroups, scope->name);
		close_fd(&scope->cgroup_fd);
		setup.cgroup_fd = -1;
		error = setup_start(&setup, &scope->setup_pid, &scope->setup_fd);
	}
	scope->has_cgroup = scope->cgroup_fd >= 0;
	return error;
}

static int scope_new(struct helper *helper, const struct wire_packet *request)
{
	const struct wire_message *message = &request->message;
	struct setup_error error;
	if (scope_find(helper, message->scope) || !message->scope ||
	    ((message->flags & WIRE_CONFINED) != 0) != (request->fd_count == 1) ||
	    strncmp(message->step, "orch-", 5) != 0 || strchr(message->step, '/'))
		return -EPROTO;
	struct scope *scope = calloc(1, sizeof(*scope));
	if (!scope) {
		scopes_refuse(helper, request, "orch-reaper has no memory for another scope");
		return 0;
	}
	scope->id = message->scope;
	wire_copy(scope->name, sizeof(scope->name), message->step);
	scope->setup_fd = scope->init_fd = scope->control_fd = scope->cgroup_fd = -1;
	scope->due_us = now_us() + (int64_t)message->number[0] * 1000;
	scope->next = helper->scopes;
	helper->scopes = scope;

	int result = cgroup_leaf_new(&helper->ground->cgroups, scope->name, &scope->cgroup_fd);
	if (result < 0 && message->value >= (int32_t)ORCH_RUNG_CGROUP_PIDNS) {
		setup_fail(&error, ORCH_EUNENFORCEABLE, result == -ENOTSUP ? 0 : -result, "cgroup",
			   "a cgroup leaf is required (least_rung) and can not be had: %s",
			   helper->ground->cgroups.reason);
		scope_fail(helper, scope, &error);
		return 0;
	}
	result = start_setup(helper, scope, request);
	if (result < 0) {
		setup_fail(&error, ORCH_ESYS, -result, "clone",
			   "the scope's set-up process could not be started");
		scope_fail(helper, scope, &error);
	} else if (!scope->has_cgroup) {
		answer_note(helper, scope->id, helper->ground->cgroups.reason);
	}
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
		if (scope)
			begin_end(scope, (int64_t)packet->message.number[0],
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
		count += 3;
	return count;
}

static int64_t scope_due(const struct scope *scope)
{
	switch (scope->state) {
	case STANDING:
		return -1;
	case SETTING_UP:
	case TERMINATING:
	case LINGERING:
		return scope->due_us;
	case KILLING:
		/* Until both are reaped their pidfds wake us; then the cgroup has to be looked at.
		 */
		if (scope->setup_fd < 0 && scope->init_fd < 0 && scope->due_us < scope->deadline_us)
			return scope->due_us;
		return scope->deadline_us;
	}
	return -1;
}

size_t scopes_poll(const struct helper *helper, struct pollfd *fds, int *timeout_ms)
{
	size_t count = 0;
	int64_t now = now_us(), next = -1;
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next) {
		int64_t due = scope_due(scope);
		if (due >= 0 && (next < 0 || due < next))
			next = due;
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

static bool reap_init(struct scope *scope)
{
	bool by_pidfd = scope->init_fd >= 0;
	if (!scope->init_pid || scope->init_reaped ||
	    !has_ended(by_pidfd ? P_PIDFD : P_PID,
		       (id_t)(by_pidfd ? scope->init_fd : scope->init_pid)))
		return false;
	close_fd(&scope->init_fd);
	scope->init_reaped = true;
	return true;
}

static void setup_ended(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	adopt_init(scope);
	if (scope->init_pid)
		return;
	scope_listen(helper, scope);
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
	scope->last_death_us = now_us();
	if (scope->state == SETTING_UP) {
		setup_fail(&error, ORCH_ESYS, 0, "setup",
			   "the scope's init ended before the scope stood");
		scope_fail(helper, scope, &error);
	} else if (scope->state == STANDING) {
		scope->proof |= WIRE_DEATH_SELF;
		end_unrequested(scope);
	} else if (scope->state == TERMINATING) {
		kill_scope(scope);
	}
}

static void scope_step(struct helper *helper, struct scope *scope)
{
	struct setup_error error;
	scope_listen(helper, scope);
	if (reap_setup(scope))
		setup_ended(helper, scope);
	if (reap_init(scope))
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
		kill_scope(scope);
	if (scope->state != KILLING && scope->state != LINGERING)
		return;
	bool certified = scope->state == LINGERING;
	if (scope_is_dead(helper, scope)) {
		if (!scope->last_death_us)
			scope->last_death_us = now;
		if (!certified)
			send_death(helper, scope, ORCH_DEATH_DEAD, "");
		scope_free(helper, scope);
		return;
	}
	if (!certified && now >= scope->deadline_us)
		certify_alive(helper, scope);
	else if (now >= scope->due_us)
		scope->due_us = now + (certified ? LINGER_LOOK_US : LOOK_US);
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
			strike(scope);
	for (struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->state < KILLING) {
			end_unrequested(scope);
			kill_scope(scope);
		}
}
