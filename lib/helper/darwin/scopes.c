/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orch/scope.h>

#include "../../reaper/darwin/processes.h"
#include "darwin.h"

#define SURVIVORS_MAX 64
#define DEFAULT_DEADLINE_MS 10000
/* Between looks at who is left. */
#define LOOK_US 2000
#define LINGER_LOOK_US 100000
/* A list of all processes costs about as much as a few hundred system calls: a storm of forks must not eat the loop. */
#define FORK_LOOK_US 10000
/* The fds below this are held, so that nothing that a program is given lies where it is put. */
#define FIRST_FREE_FD 10
#define EVENTS 64

enum scope_state {
	STANDING,
	TERMINATING, /* SIGTERM was sent; grace runs */
	KILLING,     /* SIGKILL is sent until two lists in a row are empty */
	LINGERING,   /* certified with survivors; killed on and on until it is empty */
};

struct child {
	uint32_t subject;
	pid_t pid;
	int error_fd; /* until exec succeeded or failed */
	bool failed;  /* reported: its exit is of no interest */
};

struct scope {
	struct scope *next;
	uint32_t id;
	enum scope_state state;
	int spec_fd;  /* -1: a plain scope */
	uint32_t uid; /* nobody else's; 0: none, found by descent alone */
	pid_t sweeper;
	struct child *children; /* not reaped */
	size_t child_count, child_capacity;
	bool used; /* a program was started */
	struct lineage lineage;
	bool empty_before; /* the last list had no member */
	bool zombies;	   /* of its uid, that somebody else has to reap */

	uint32_t leader;
	bool has_leader;

	int64_t due_us;
	int64_t end_us; /* of its time limit; 0: none */
	int64_t deadline_us;
	int64_t requested_us;
	int64_t requested_ms;
	int64_t last_death_us; /* 0: not yet */
	uint32_t alive;
	uint32_t proof; /* WIRE_DEATH_* */
};

struct common_ground {
	int kqueue_fd;
	bool forked;	      /* a member did, since the last list */
	bool look_at_once;    /* something is known to have ended that kqueue can not tell any more */
	int64_t listed_us;
	struct process *list; /* taken once for all scopes of a step; NULL: not taken */
	size_t count;
};

/* --- the whole ------------------------------------------------------------------------- */

void scopes_begin(struct helper *helper)
{
	static struct common_ground ground;
	int fd;
	while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < FIRST_FREE_FD)
		;
	close_fd(&fd);
	ground.kqueue_fd = kqueue();
	if (ground.kqueue_fd < 0)
		_exit(1);
	fcntl(ground.kqueue_fd, F_SETFD, FD_CLOEXEC);
	helper->ground = &ground;
}

void scopes_end(struct helper *helper)
{
	close_fd(&helper->ground->kqueue_fd);
}

int host_watch_open(struct helper *helper, struct wire_packet *hello)
{
	pid_t host = (pid_t)hello->message.value;
	if (hello->fd_count != 0 || host <= 1 || getppid() != host)
		return -EPROTO;
	int watch = process_watch(host);
	if (watch < 0)
		return watch;
	helper->host_watch = watch;
	/* It may have ended, and its number be another's, before it was watched. */
	return getppid() == host ? 0 : -ESRCH;
}

static void watch(struct common_ground *ground, uintptr_t ident, int16_t filter, uint32_t notes)
{
	struct kevent event;
	EV_SET(&event, ident, filter, EV_ADD, notes, 0, NULL);
	/* A process that is gone or a zombie can not be watched: then it is time to look. */
	if (kevent(ground->kqueue_fd, &event, 1, NULL, 0, NULL) < 0)
		ground->look_at_once = true;
}

/* --- descent --------------------------------------------------------------------------- */

static void drop_list(struct common_ground *ground)
{
	free(ground->list);
	ground->list = NULL;
}

static bool take_list(struct common_ground *ground)
{
	if (ground->list)
		return true;
	ground->listed_us = now_us();
	ground->forked = false;
	return processes_list(&ground->list, &ground->count) == 0;
}

/* Takes in who is there now. False: there is no list. */
static bool refresh(struct common_ground *ground, struct scope *scope)
{
	if (!take_list(ground))
		return false;
	size_t known = scope->lineage.count;
	struct lineage_member *before = calloc(known + 1, sizeof(*before));
	if (!before)
		return false;
	if (known)
		memcpy(before, scope->lineage.members, known * sizeof(*before));
	struct lineage old = {.members = before, .count = known};
	bool done = lineage_absorb(&scope->lineage, ground->list, ground->count) == 0;
	for (size_t i = 0; done && i < ground->count; i++)
		if (lineage_has(&scope->lineage, &ground->list[i]) && !lineage_has(&old, &ground->list[i]) &&
		    ground->list[i].state != 'Z')
			watch(ground, (uintptr_t)ground->list[i].pid, EVFILT_PROC, NOTE_EXIT | NOTE_FORK);
	free(before);
	return done;
}

/* --- programs -------------------------------------------------------------------------- */

static bool reserve_child(struct scope *scope)
{
	if (scope->child_count < scope->child_capacity)
		return true;
	size_t capacity = scope->child_capacity ? 2 * scope->child_capacity : 8;
	struct child *children = realloc(scope->children, capacity * sizeof(*children));
	if (!children)
		return false;
	scope->children = children;
	scope->child_capacity = capacity;
	return true;
}

static void spawn(struct helper *helper, struct scope *scope, const struct wire_packet *request)
{
	struct child child = {.subject = request->message.subject, .error_fd = -1};
	struct setup_error error;
	struct process process;
	int result = reserve_child(scope)
			 ? program_start(helper, request, scope->spec_fd, &child.pid, &child.error_fd)
			 : -ENOMEM;
	if (result < 0) {
		setup_fail(&error, ORCH_ESPAWN, -result, "spawn", "no process could be made for the program");
		answer_failure(helper, WIRE_FAILED, scope->id, child.subject, &error);
		return;
	}
	scope->used = true;
	scope->children[scope->child_count++] = child;
	if (request->message.flags & WIRE_LEADER) {
		scope->leader = child.subject;
		scope->has_leader = true;
	}
	watch(helper->ground, (uintptr_t)child.pid, EVFILT_PROC, NOTE_EXIT | NOTE_FORK);
	watch(helper->ground, (uintptr_t)child.error_fd, EVFILT_READ, 0);
	/* It is our child and not reaped: the number is its own. */
	if (!process_find(child.pid, &process) || lineage_add(&scope->lineage, child.pid, process.start_us) < 0)
		helper->ground->look_at_once = true;
}

/* After the exec or the end of the child. */
static void check_exec(struct helper *helper, struct scope *scope, struct child *child, bool ended)
{
	struct setup_error error;
	if (child->error_fd < 0)
		return;
	ssize_t length = read(child->error_fd, &error, sizeof(error));
	if (length < 0 && !ended)
		return;
	close_fd(&child->error_fd);
	if (length == (ssize_t)sizeof(error)) {
		child->failed = true;
		if (scope->has_leader && scope->leader == child->subject)
			scope->has_leader = false;
		answer_failure(helper, WIRE_FAILED, scope->id, child->subject, &error);
		return;
	}
	struct wire_packet packet = wire_packet(WIRE_STARTED, scope->id, child->subject);
	packet.message.value = child->pid;
	host_send(helper, &packet);
}

/* True if it was the leader that ended. */
static bool report_end(struct helper *helper, struct scope *scope, struct child *child, int status)
{
	check_exec(helper, scope, child, true);
	if (child->failed)
		return false;
	struct wire_packet packet = wire_packet(WIRE_EXITED, scope->id, child->subject);
	packet.message.value = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	packet.message.code = WIFEXITED(status) ? 0 : WTERMSIG(status);
	if (scope->proof & WIRE_DEATH_TIME)
		packet.message.flags = WIRE_EXIT_TIME;
	else if (scope->state != STANDING)
		packet.message.flags = WIRE_EXIT_STOPPED;
	host_send(helper, &packet);
	return scope->has_leader && scope->leader == child->subject;
}

/* True if the leader ended. */
static bool reap(struct helper *helper, struct scope *scope)
{
	bool leader_ended = false;
	for (size_t i = scope->child_count; i-- > 0;) {
		int status;
		check_exec(helper, scope, &scope->children[i], false);
		/* Before its number is free: its session may have members that are not known yet. */
		siginfo_t ended = {0};
		if (waitid(P_PID, (id_t)scope->children[i].pid, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 ||
		    ended.si_pid == 0)
			continue;
		refresh(helper->ground, scope);
		if (waitpid(scope->children[i].pid, &status, WNOHANG) != scope->children[i].pid)
			continue;
		leader_ended |= report_end(helper, scope, &scope->children[i], status);
		scope->children[i] = scope->children[--scope->child_count];
	}
	if (scope->sweeper && waitpid(scope->sweeper, NULL, WNOHANG) != 0)
		scope->sweeper = 0;
	return leader_ended;
}

/* --- the end of a scope ---------------------------------------------------------------- */

static void scope_free(struct helper *helper, struct scope *scope)
{
	struct scope **link = &helper->scopes;
	while (*link != scope)
		link = &(*link)->next;
	*link = scope->next;
	for (size_t i = 0; i < scope->child_count; i++)
		close_fd(&scope->children[i].error_fd);
	close_fd(&scope->spec_fd);
	lineage_free(&scope->lineage);
	free(scope->children);
	free(scope);
}

/* Kills whom it finds. True if nobody lived and no child was left to reap. */
static bool strike(struct helper *helper, struct scope *scope)
{
	struct common_ground *ground = helper->ground;
	if (!refresh(ground, scope)) {
		/* Without a list at least the programs themselves: children that are not reaped. */
		for (size_t i = 0; i < scope->child_count; i++)
			kill(scope->children[i].pid, SIGKILL);
		return false;
	}
	size_t living = processes_signal(&scope->lineage, ground->list, ground->count, SIGKILL);
	scope->proof |= living ? WIRE_DEATH_LINEAGE_KILLED : 0;
	if (!scope->uid)
		return living == 0 && scope->child_count == 0;

	pid_t pids[SURVIVORS_MAX];
	/* The sweeper has the uid too: the count is good when it is reaped. */
	if (scope->sweeper)
		return false;
	int zombies, found = processes_of_uid(scope->uid, pids, SURVIVORS_MAX, &zombies);
	scope->zombies = zombies > 0;
	if (found > 0 && sweeper_start(scope->uid, &scope->sweeper) == 0)
		scope->proof |= WIRE_DEATH_UID_KILLED;
	return found == 0 && living == 0 && scope->child_count == 0;
}

static void kill_scope(struct helper *helper, struct scope *scope)
{
	scope->state = KILLING;
	scope->empty_before = strike(helper, scope);
	scope->last_death_us = scope->empty_before ? now_us() : 0;
	scope->due_us = now_us() + LOOK_US;
}

/* Starts the end: requested by the host, or by what happened. */
static void begin_end(struct helper *helper, struct scope *scope, int64_t grace_ms, int64_t deadline_us,
		      int64_t requested_us, int64_t requested_ms)
{
	struct common_ground *ground = helper->ground;
	int64_t now = now_us();
	if (scope->state == STANDING) {
		scope->requested_us = requested_us;
		scope->requested_ms = requested_ms;
		scope->deadline_us = deadline_us;
		drop_list(ground);
		if (refresh(ground, scope))
			scope->alive = (uint32_t)lineage_living(&scope->lineage, ground->list, ground->count);
	} else if (deadline_us < scope->deadline_us) {
		scope->deadline_us = deadline_us;
	}
	if (scope->state == STANDING && grace_ms > 0 && ground->list) {
		processes_signal(&scope->lineage, ground->list, ground->count, SIGTERM);
		processes_signal(&scope->lineage, ground->list, ground->count, SIGCONT);
		scope->proof |= WIRE_DEATH_TERMINATED;
		scope->state = TERMINATING;
		scope->due_us = now + grace_ms * 1000;
	} else if (scope->state == TERMINATING && now + grace_ms * 1000 < scope->due_us) {
		scope->due_us = now + grace_ms * 1000;
	} else if (scope->state == STANDING) {
		kill_scope(helper, scope);
	}
}

static void end_unrequested(struct helper *helper, struct scope *scope)
{
	int64_t now = now_us();
	begin_end(helper, scope, 0, now + DEFAULT_DEADLINE_MS * 1000LL, now, realtime_ms());
}

static void send_death(struct helper *helper, const struct scope *scope, uint32_t verdict, const char *reason)
{
	struct wire_packet packet = wire_packet(WIRE_DEATH, scope->id, 0);
	int64_t last_death = -1;
	if (scope->last_death_us)
		last_death = scope->last_death_us > scope->requested_us ? scope->last_death_us - scope->requested_us : 0;
	packet.message.value = (int32_t)verdict;
	packet.message.flags = scope->proof;
	packet.message.number[0] = (uint64_t)last_death;
	packet.message.number[1] = (uint64_t)(now_us() - scope->requested_us);
	packet.message.number[2] = scope->alive;
	packet.message.number[3] = (uint64_t)scope->requested_ms;
	wire_copy(packet.message.text, WIRE_TEXT_MAX, reason);
	host_send(helper, &packet);
}

/* Two lists in a row were empty. */
static void certify_empty(struct helper *helper, struct scope *scope)
{
	if (!scope->used) {
		scope->proof |= WIRE_DEATH_UNUSED;
		send_death(helper, scope, ORCH_DEATH_DEAD, "");
	} else if (scope->uid) {
		scope->proof |= WIRE_DEATH_UID_EMPTY;
		send_death(helper, scope, ORCH_DEATH_DEAD, "");
	} else {
		send_death(helper, scope, ORCH_DEATH_UNVERIFIABLE, WIRE_BY_DESCENT);
	}
}

static void add_uid_members(const struct scope *scope, struct census *census)
{
	pid_t pids[SURVIVORS_MAX];
	int zombies, found = scope->uid ? processes_of_uid(scope->uid, pids, SURVIVORS_MAX, &zombies) : 0;
	for (int i = 0; i < found && i < SURVIVORS_MAX && census->entries; i++) {
		bool known = false;
		for (uint32_t j = 0; j < census->stored; j++)
			known |= census->entries[j].pid == pids[i];
		if (!known && census->stored < SURVIVORS_MAX && pids[i] != scope->sweeper &&
		    census_describe(pids[i], &census->entries[census->stored])) {
			census->stored++;
			census->count++;
		}
	}
}

/* The deadline passed: say who is left. `empty`: so were the last two lists, and what is left are zombies of its uid. */
static void certify_alive(struct helper *helper, struct scope *scope, bool empty)
{
	struct common_ground *ground = helper->ground;
	struct census census = {0};
	scope->state = LINGERING;
	scope->due_us = now_us() + LINGER_LOOK_US;
	if (empty) {
		scope->proof |= WIRE_DEATH_UID_EMPTY;
		send_death(helper, scope, ORCH_DEATH_DEAD_UNREAPED, "");
		return;
	}
	if (refresh(ground, scope))
		processes_census(&census, &scope->lineage, ground->list, ground->count, SURVIVORS_MAX);
	add_uid_members(scope, &census);
	answer_survivors(helper, scope->id, &census);
	if (census.count)
		send_death(helper, scope, ORCH_DEATH_SURVIVORS, "");
	else
		send_death(helper, scope, ORCH_DEATH_UNVERIFIABLE,
			   ground->list ? WIRE_BY_DESCENT : "no list of processes could be had by the deadline");
	census_free(&census);
}

/* --- requests -------------------------------------------------------------------------- */

static const char *rung_name(int32_t rung)
{
	switch (rung) {
	case ORCH_RUNG_CGROUP:
		return "CGROUP";
	case ORCH_RUNG_PIDNS:
		return "PIDNS";
	default:
		return "CGROUP_PIDNS";
	}
}

/* The limits of a process (setrlimit) bind neither a scope nor, for memory, anything at all. */
static const char no_limit[] = "macOS limits no set of processes: run the load in a VM";

static bool limits_are_required(const struct wire_message *message, struct setup_error *error)
{
	uint64_t missing = message->number[7] & ~(uint64_t)ORCH_LIMIT_TIME;
	if (missing)
		setup_fail(error, ORCH_EUNENFORCEABLE, 0, "limits",
			   "required_limits has limits that can not be enforced (ORCH_LIMIT_* 0x%x): %s",
			   (unsigned)missing, no_limit);
	return missing != 0;
}

static void begin_limits(struct helper *helper, struct scope *scope, const struct wire_message *message)
{
	if (message->number[3])
		answer_limit(helper, scope->id, ORCH_LIMIT_MEMORY, ORCH_LIMIT_ABSENT, no_limit);
	if (message->number[4])
		answer_limit(helper, scope->id, ORCH_LIMIT_PROCESSES, ORCH_LIMIT_ABSENT, no_limit);
	if (message->number[5])
		answer_limit(helper, scope->id, ORCH_LIMIT_CPU, ORCH_LIMIT_ABSENT, no_limit);
	if (!message->number[6])
		return;
	answer_limit(helper, scope->id, ORCH_LIMIT_TIME, ORCH_LIMIT_ENFORCED, "the clock of orch-reaper");
	scope->end_us = now_us() + (int64_t)message->number[6] * 1000;
}

static int scope_new(struct helper *helper, struct wire_packet *request)
{
	const struct wire_message *message = &request->message;
	struct setup_error error;
	if (!message->scope || ((message->flags & WIRE_CONFINED) != 0) != (request->fd_count == 1))
		return -EPROTO;
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->id == message->scope)
			return -EPROTO;
	if (message->value > (int32_t)ORCH_RUNG_SUBREAPER) {
		setup_fail(&error, ORCH_EUNENFORCEABLE, 0, "rung",
			   "macOS has nothing that closes a scope: rung %s (least_rung) can not be had. Accept "
			   "ORCH_RUNG_SUBREAPER, best effort by descent, or run the load in a VM",
			   rung_name(message->value));
		answer_no_scope(helper, message->scope, &error);
		return 0;
	}
	if (limits_are_required(message, &error)) {
		answer_no_scope(helper, message->scope, &error);
		return 0;
	}
	struct scope *scope = calloc(1, sizeof(*scope));
	if (!scope) {
		scopes_refuse(helper, request, "orch-reaper has no memory for another scope");
		return 0;
	}
	scope->id = message->scope;
	scope->spec_fd = -1;
	if (message->flags & WIRE_CONFINED) {
		scope->spec_fd = request->fds[0];
		request->fd_count = 0;
		if (geteuid() == 0 && is_load_uid((uint32_t)message->number[1]))
			scope->uid = (uint32_t)message->number[1];
	}
	scope->next = helper->scopes;
	helper->scopes = scope;
	struct wire_packet up = wire_packet(WIRE_SCOPE_UP, scope->id, 0);
	up.message.flags = WIRE_LINEAGE;
	up.message.number[0] = ORCH_RUNG_SUBREAPER;
	begin_limits(helper, scope, message);
	host_send(helper, &up);
	return 0;
}

static void signal_program(const struct scope *scope, uint32_t subject, int signal)
{
	/* A child that is not reaped: the number is its own. */
	for (size_t i = 0; i < scope->child_count; i++)
		if (scope->children[i].subject == subject)
			kill(scope->children[i].pid, signal);
}

static void serve(struct helper *helper, struct scope *scope, const struct wire_packet *request)
{
	if (!scope || scope->state != STANDING) {
		answer_refusal(helper, request, ORCH_ECLOSED, "the scope is being stopped or is over");
		return;
	}
	switch (request->message.type) {
	case WIRE_SPAWN:
		if (request->message.flags & WIRE_PROBE)
			answer_refusal(helper, request, ORCH_ENOTSUP, "there are no live probes on macOS");
		else
			spawn(helper, scope, request);
		break;
	case WIRE_SIGNAL:
		signal_program(scope, request->message.subject, request->message.value);
		break;
	default:
		answer_refusal(helper, request, ORCH_EUNENFORCEABLE,
			       "macOS has no network namespaces: a port inside the scope is a port of the host, and "
			       "whose it is can not be known");
	}
}

int scopes_request(struct helper *helper, struct wire_packet *packet)
{
	struct scope *scope = helper->scopes;
	while (scope && scope->id != packet->message.scope)
		scope = scope->next;
	switch (packet->message.type) {
	case WIRE_SCOPE_NEW:
		return scope_new(helper, packet);
	case WIRE_STOP:
		if (scope)
			begin_end(helper, scope, (int64_t)packet->message.number[0],
				  (int64_t)packet->message.number[2] + (int64_t)packet->message.number[1] * 1000,
				  (int64_t)packet->message.number[2], (int64_t)packet->message.number[3]);
		return 0;
	case WIRE_SPAWN:
	case WIRE_SIGNAL:
	case WIRE_CONNECT:
		serve(helper, scope, packet);
		return 0;
	default:
		return -EPROTO;
	}
}

/* --- the loop's view ------------------------------------------------------------------- */

size_t scopes_poll_most(const struct helper *helper)
{
	(void)helper;
	return 1;
}

size_t scopes_poll(const struct helper *helper, struct pollfd *fds, int *timeout_ms)
{
	const struct common_ground *ground = helper->ground;
	int64_t now = now_us(), next = -1;
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next) {
		int64_t due = scope->state == STANDING ? scope->end_us : scope->due_us;
		if ((due || scope->state != STANDING) && (next < 0 || due < next))
			next = due;
	}
	if (ground->forked && (next < 0 || ground->listed_us + FORK_LOOK_US < next))
		next = ground->listed_us + FORK_LOOK_US;
	if (ground->look_at_once)
		next = now;
	if (next >= 0) {
		int64_t wait = next <= now ? 0 : (next - now) / 1000 + 1;
		if (*timeout_ms < 0 || wait < *timeout_ms)
			*timeout_ms = (int)(wait > 3600000 ? 3600000 : wait);
	}
	fds[0] = (struct pollfd){.fd = ground->kqueue_fd, .events = POLLIN};
	return 1;
}

/* Bounded: what is left keeps the kqueue readable. */
static void drain_events(struct common_ground *ground)
{
	static const struct timespec at_once = {0, 0};
	struct kevent events[EVENTS];
	int count = kevent(ground->kqueue_fd, NULL, 0, events, EVENTS, &at_once);
	for (int i = 0; i < count; i++)
		if (events[i].filter == EVFILT_PROC && events[i].fflags & NOTE_FORK)
			ground->forked = true;
}

static void scope_step(struct helper *helper, struct scope *scope)
{
	if (reap(helper, scope) && scope->state == STANDING)
		end_unrequested(helper, scope);
	int64_t now = now_us();
	if (scope->state == STANDING && scope->end_us && now >= scope->end_us) {
		scope->proof |= WIRE_DEATH_TIME;
		end_unrequested(helper, scope);
	}
	if (scope->state == STANDING)
		return;
	if (scope->state == TERMINATING) {
		struct common_ground *ground = helper->ground;
		bool empty = refresh(ground, scope) && !scope->child_count &&
			     !lineage_living(&scope->lineage, ground->list, ground->count);
		if (empty || now >= scope->due_us)
			kill_scope(helper, scope);
		return;
	}
	if (now < scope->due_us)
		return;
	bool certified = scope->state == LINGERING;
	bool empty = strike(helper, scope);
	if (empty && !scope->last_death_us)
		scope->last_death_us = now;
	else if (!empty)
		scope->last_death_us = 0;
	bool twice = empty && scope->empty_before;
	if (twice && !scope->zombies) {
		if (!certified)
			certify_empty(helper, scope);
		scope_free(helper, scope);
		return;
	}
	scope->empty_before = empty;
	scope->due_us = now + (certified ? LINGER_LOOK_US : LOOK_US);
	if (!certified && now >= scope->deadline_us)
		certify_alive(helper, scope, twice);
}

void scopes_step(struct helper *helper)
{
	struct common_ground *ground = helper->ground;
	struct scope *next;
	drain_events(ground);
	drop_list(ground);
	ground->look_at_once = false;
	bool looks = ground->forked && now_us() >= ground->listed_us + FORK_LOOK_US;
	for (struct scope *scope = helper->scopes; scope; scope = next) {
		next = scope->next;
		if (looks)
			refresh(ground, scope);
		scope_step(helper, scope);
	}
	drop_list(ground);
}

void scopes_kill_all(struct helper *helper)
{
	for (struct scope *scope = helper->scopes; scope; scope = scope->next) {
		drop_list(helper->ground);
		if (scope->state == STANDING)
			end_unrequested(helper, scope);
		else if (scope->state == TERMINATING)
			kill_scope(helper, scope);
	}
	drop_list(helper->ground);
}
