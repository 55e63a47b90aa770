/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../reaper/linux/descent.h"
#include "scope.h"

#define HUNT_ROUNDS 16

/*
 * A supervisor without a PID namespace can be killed, by its own load too. What descended from it then belongs to the
 * next subreaper, and that is orch-reaper: no process becomes init's, and out of reach.
 */

void strays_expect(struct helper *helper)
{
	struct common_ground *ground = helper->ground;
	if (ground->adopts)
		return;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* Its load has its uid and sees it: nobody may trace it, or take its socket by pidfd_getfd(). */
	prctl(PR_SET_DUMPABLE, 0);
	ground->adopts = true;
}

/* Own children that have a purpose. */
static size_t known_children(const struct helper *helper, pid_t **ret_known, bool *ret_setting_up)
{
	size_t count = 1, used = 0;
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next)
		count += 2;
	pid_t *known = calloc(count, sizeof(*known));
	*ret_setting_up = false;
	*ret_known = known;
	if (!known)
		return 0;
	if (helper->ground->cgroups.keeper_pidfd >= 0)
		known[used++] = helper->ground->cgroups.keeper_pid;
	for (struct scope *scope = helper->scopes; scope; scope = scope->next) {
		scope_adopt_init(scope);
		if (scope->setup_fd >= 0)
			known[used++] = scope->setup_pid;
		if (scope->init_pid && !scope->init_reaped)
			known[used++] = scope->init_pid;
		*ret_setting_up |= scope->setup_fd >= 0 && !scope->init_pid;
	}
	return used;
}

static bool is_in(pid_t pid, const pid_t *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] == pid)
			return true;
	return false;
}

/* The scope whose cgroup it is in. False: it can not be known any more. */
static bool find_owner(const struct helper *helper, pid_t pid, const struct scope **ret_owner)
{
	char path[64], text[4096];
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (length <= 0)
		return false;
	text[length] = '\0';
	/* Dead, in the cgroup of a scope that is over. */
	char *unified = strstr(text, "0::/"), *end = unified ? strchr(unified, '\n') : NULL;
	if (unified && memmem(unified, end ? (size_t)(end - unified) : strlen(unified), " (deleted)", 10))
		return false;
	*ret_owner = NULL;
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->has_cgroup && strstr(text, scope->name))
			*ret_owner = scope;
	return true;
}

/* It lives, and is in the cgroup of none of the scopes. */
static bool is_outside(const struct helper *helper, pid_t pid)
{
	const struct scope *owner;
	return find_owner(helper, pid, &owner) && !owner;
}

/* What hangs in the cgroup of another scope is that one's survivor, and holds nobody else. */
static bool is_anothers(const struct helper *helper, pid_t pid, const struct scope *scope)
{
	const struct scope *owner;
	return find_owner(helper, pid, &owner) && owner && owner != scope;
}

/* Of two scopes that end at once, both are told: whose it was can not be known any more. */
static void note_left(struct helper *helper)
{
	for (struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->rung == ORCH_RUNG_CGROUP && scope->init_reaped)
			scope->proof |= WIRE_DEATH_LEFT;
}

/* Between its birth and the writing of its page an init is nobody's that is known. */
static bool may_be_init(pid_t pid)
{
	struct descendant child;
	return descent_describe(pid, &child) &&
	       (strcmp(child.name, HELPER_NAME) == 0 || strcmp(child.name, INIT_NAME) == 0 ||
		strcmp(child.name, SUPERVISOR_NAME) == 0);
}

static bool ends_a_cgroup(const struct helper *helper)
{
	for (const struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->rung == ORCH_RUNG_CGROUP && scope->init_reaped)
			return true;
	return false;
}

/* Kills and reaps those that no scope knows. Their number, and of those that hold up the end of `scope`. */
static size_t strike_strays(struct helper *helper, const struct scope *scope, size_t *ret_holding)
{
	static pid_t children[SWEEP_MOST];
	struct common_ground *ground = helper->ground;
	pid_t *known = NULL;
	bool setting_up;
	size_t left = 0;
	/* The list first: who is in it and has a purpose is known by then. */
	size_t count = descent_children(children, SWEEP_MOST);
	size_t known_count = known_children(helper, &known, &setting_up);
	*ret_holding = 1;
	if (!known)
		return 1;
	*ret_holding = 0;
	for (size_t i = 0; i < count; i++)
		if (!is_in(children[i], known, known_count) && !(setting_up && may_be_init(children[i]))) {
			kill(children[i], SIGKILL);
			children[left++] = children[i];
		}
	bool cgroup_ends = left && ends_a_cgroup(helper);
	for (size_t i = 0; i < left; i++) {
		if (cgroup_ends && is_outside(helper, children[i]))
			note_left(helper);
		*ret_holding += !is_anothers(helper, children[i], scope);
		waitid(P_PID, (id_t)children[i], &(siginfo_t){0}, WEXITED | WNOHANG | __WALL);
	}
	/* While one is set up, what it makes could be taken for a stray's. */
	if (left && !setting_up && ground->sweep.rounds++ % SWEEP_HOLD_ROUNDS == 0)
		sweep_hold(known, known_count);
	free(known);
	return left;
}

bool strays_hunt(struct helper *helper, const struct scope *scope)
{
	struct common_ground *ground = helper->ground;
	size_t holding = 0;
	/* A few rounds at once, for those that fork and exit; never more, for the other scopes' sake. */
	for (int round = 0; ground->hunting && round < HUNT_ROUNDS; round++)
		ground->hunting = strike_strays(helper, scope, &holding) > 0;
	return ground->hunting && holding;
}

void strays_census(struct helper *helper, struct census *census, uint32_t most)
{
	bool setting_up;
	pid_t *known = NULL;
	size_t count = known_children(helper, &known, &setting_up);
	census_take_descent(census, getpid(), known, count, most);
	free(known);
}
