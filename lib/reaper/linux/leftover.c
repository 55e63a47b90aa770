/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "../leftover.h"
#include "../scope-private.h"
#include "census.h"
#include "cgroup-own.h"
#include "descent.h"
#include "pidfd.h"

/*
 * Why the end of init is enough. The kernel kills every member of a PID namespace when its init exits, and init does
 * not become a zombie before the last of them is reaped (zap_pid_ns_processes); afterwards nobody can be made in it. So
 * "the process that was init is a zombie, or is gone, or its number is another's" proves that the namespace is empty.
 * /proc is not searched for members by the namespace's inode: that number is free for others as soon as init is
 * reaped, and says something only while init itself is found (then it names survivors).
 *
 * A scope that was only named ran no program: the host sends the first one after it has recorded init. What can be left
 * is liborch's own: the helper (it would go on making the scope), a set-up process (in the helper's session and the
 * leaf), and its init (an orphan that ends when it finds its socket closed).
 *
 * Without a PID namespace only the supervisor and, if that died, the helper have the descendants within reach; so they are
 * given half of the time to end them. A leaf that is empty proves what the rung proves; descent proves nothing.
 */

#define SURVIVORS_MAX 64
/* A dead init whose new parent does not reap it is reported as that. */
#define REAPING_US 1000000

static void decide(struct leftover *leftover, uint32_t verdict, const char *reason)
{
	leftover->verdict = verdict;
	leftover->reason = reason;
}

/* --- the cgroup leaf ------------------------------------------------------------------- */

enum leaf { LEAF_NONE, LEAF_GONE, LEAF_EMPTY, LEAF_POPULATED, LEAF_UNKNOWN };

struct leaf_place {
	char base[1100];
	bool base_is_known; /* the very folder that was recorded: what is not in it is removed, not hidden */
	int base_fd;
};

static bool find_base(const struct record_scope *scope, struct leaf_place *place)
{
	struct statfs system;
	struct stat status;
	const char *slash = scope->rung ? strrchr(scope->cgroup, '/') : NULL;
	place->base_fd = -1;
	if (scope->rung ? !slash : !scope->base[0])
		return false;
	if (slash && strcmp(slash + 1, scope->name) != 0)
		return false;
	snprintf(place->base, sizeof(place->base), "%.*s", slash ? (int)(slash - scope->cgroup) : 1024,
		 slash ? scope->cgroup : scope->base);
	place->base_fd = open(place->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place->base_fd >= 0 &&
	    (fstatfs(place->base_fd, &system) < 0 || system.f_type != CGROUP2_SUPER_MAGIC ||
	     fstat(place->base_fd, &status) < 0))
		orch_close_fd(&place->base_fd);
	place->base_is_known = place->base_fd >= 0 && strcmp(place->base, scope->base) == 0 &&
			       status.st_ino == scope->base_inode;
	return true;
}

static int open_leaf(const struct record_scope *scope, struct leaf_place *place)
{
	if (!cgroup_is_leaf_name(scope->name) || !find_base(scope, place) || place->base_fd < 0)
		return -1;
	return openat(place->base_fd, scope->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Kills what is in it; removes it when it is empty. */
static enum leaf look_leaf(struct leftover *leftover)
{
	struct leaf_place place = {.base_fd = -1};
	const struct record_scope *scope = leftover->scope;
	if (scope->rung ? !scope->cgroup[0] : !scope->base[0])
		return LEAF_NONE;
	_cleanup_close_ int leaf = open_leaf(scope, &place);
	bool is_gone = leaf < 0 && errno == ENOENT && place.base_is_known;
	_cleanup_close_ int base = place.base_fd;
	if (is_gone)
		leftover->flags |= WIRE_DEATH_CGROUP_GONE;
	if (leaf < 0)
		return is_gone ? LEAF_GONE : LEAF_UNKNOWN;
	int populated = leaf_populated(leaf);
	/* The supervisor in it looks for who left it, and kills the leaf then. */
	if (populated > 0 && scope->rung == ORCH_RUNG_CGROUP && leftover->spared)
		return LEAF_POPULATED;
	if (populated > 0) {
		if (leaf_kill(leaf) == 0)
			leftover->flags |= WIRE_DEATH_CGROUP_KILL;
		return LEAF_POPULATED;
	}
	if (populated < 0 && populated != -ENODEV)
		return LEAF_UNKNOWN;
	if (populated == 0)
		leftover->flags |= WIRE_DEATH_CGROUP_EMPTY;
	if (leaf_remove(base, scope->name) == 0)
		leftover->flags |= WIRE_DEATH_CGROUP_GONE;
	return LEAF_EMPTY;
}

/* --- processes by their identity --------------------------------------------------------- */

enum end { END_NOT_YET, END_ZOMBIE, END_GONE, END_UNKNOWN };

/* The signal, if it is the recorded one and lives. */
static enum end end_of(const struct identity *identity, int signal, bool *ret_killed)
{
	int pidfd;
	enum identity_is is = identity_find(identity, &pidfd);
	_cleanup_close_ int own = pidfd;
	if (is == IDENTITY_UNKNOWN)
		return END_UNKNOWN;
	if (is != IDENTITY_SAME)
		return END_GONE;
	if (!watch_has_ended(pidfd)) {
		*ret_killed |= pidfd_kill(pidfd, signal) && signal == SIGKILL;
		return END_NOT_YET;
	}
	pidfd_reap(pidfd);
	return pidfd_kill(pidfd, 0) || errno != ESRCH ? END_ZOMBIE : END_GONE;
}

static int signal_for_helper(const struct leftover *leftover)
{
	return leftover->spared ? SIGCONT : SIGKILL;
}

/* A supervisor by descent is never killed: it is the only one that can end what it has. */
static int signal_for_init(const struct leftover *leftover)
{
	uint32_t rung = leftover->scope->rung;
	return rung == ORCH_RUNG_SUBREAPER || (rung == ORCH_RUNG_CGROUP && leftover->spared) ? SIGCONT : SIGKILL;
}

static bool is_same(const struct identity *identity)
{
	int pidfd;
	bool same = identity_find(identity, &pidfd) == IDENTITY_SAME;
	orch_close_fd(&pidfd);
	return same;
}

/* Field of /proc/PID/status: the number in the innermost PID namespace if that is not the reader's own, or 0. */
static int inner_pid(pid_t pid)
{
	char path[64], line[256];
	int inner = 0, one, other, read;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "NSpid: %d %d%n", &one, &other, &read) == 2)
			for (const char *rest = line + read; (inner = other) && sscanf(rest, " %d%n", &other, &read) == 1;)
				rest += read;
	if (file)
		fclose(file);
	return inner;
}

struct stat_line {
	char name[32], state;
	int parent, session;
};

static bool read_stat(pid_t pid, struct stat_line *line)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (length <= 0)
		return false;
	text[length] = '\0';
	char *begin = strchr(text, '('), *rest = strrchr(text, ')');
	if (!begin || !rest)
		return false;
	*rest = '\0';
	snprintf(line->name, sizeof(line->name), "%s", begin + 1);
	return sscanf(rest + 1, " %c %d %*d %d", &line->state, &line->parent, &line->session) == 3;
}

enum setup { SETUP_NO, SETUP_OWN, SETUP_ORPHAN };

/*
 * Is it one of liborch's own processes that the helper's set-up of a scope left? By the helper's session: the number
 * stays taken as long as somebody is in it, unless another has it by now. An init makes a session of its own: then it is
 * one whose parent is no orch-reaper any more, and whose it was is not known: it can be another dead host's.
 */
static enum setup is_of_setup(pid_t pid, pid_t session)
{
	struct stat_line line, parent;
	if (!read_stat(pid, &line) || strncmp(line.name, "orch-", 5) != 0 || line.state == 'Z' || line.state == 'X')
		return SETUP_NO;
	if (session && line.session == session && pid != session)
		return SETUP_OWN;
	if (inner_pid(pid) != 1 && strcmp(line.name, "orch-supervisor") != 0)
		return SETUP_NO;
	return read_stat(line.parent, &parent) && strcmp(parent.name, "orch-reaper") == 0 ? SETUP_NO : SETUP_ORPHAN;
}

/*
 * Members of the helper's set-ups; those of its other scopes as well, which end with it all the same. The number of
 * orphans that are not older than the helper.
 */
static unsigned take_setup(struct census *census, const struct identity *helper)
{
	unsigned orphans = 0;
	int pidfd;
	enum identity_is is = identity_find(helper, &pidfd);
	orch_close_fd(&pidfd);
	pid_t session = is == IDENTITY_OTHER ? 0 : helper->pid;
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	memset(census, 0, sizeof(*census));
	while (folder && (entry = readdir(folder))) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
		struct census_entry found;
		enum setup setup = pid > 0 ? is_of_setup(pid, session) : SETUP_NO;
		if (setup == SETUP_NO || !census_describe(pid, &found))
			continue;
		if (setup == SETUP_ORPHAN) {
			orphans += found.start_time >= helper->start_time;
			continue;
		}
		census->count++;
		if (!census->entries)
			census->entries = calloc(SURVIVORS_MAX, sizeof(*census->entries));
		if (census->entries && census->stored < SURVIVORS_MAX)
			census->entries[census->stored++] = found;
	}
	if (folder)
		closedir(folder);
	return orphans;
}

/* --- who is left ------------------------------------------------------------------------- */

static void add_one(struct census *census, pid_t pid)
{
	struct census_entry entry;
	for (uint32_t i = 0; i < census->stored; i++)
		if (census->entries[i].pid == pid)
			return;
	if (!census_describe(pid, &entry))
		return;
	struct census_entry *grown = realloc(census->entries, (census->stored + 1) * sizeof(*grown));
	if (!grown)
		return;
	grown[census->stored++] = entry;
	census->entries = grown;
	census->count++;
}

static void decide_alive(struct leftover *leftover, const char *otherwise)
{
	const struct record_scope *scope = leftover->scope;
	struct leaf_place place = {.base_fd = -1};
	_cleanup_close_ int leaf = open_leaf(scope, &place);
	_cleanup_close_ int base = place.base_fd;
	bool has_init = !leftover->foreign && scope->init.pid && is_same(&scope->init);
	struct census *census = &leftover->survivors;
	uint32_t living = 0;
	(void)base;
	census_free(census);
	if (scope->rung == ORCH_RUNG_SUBREAPER)
		census_take_descent(census, has_init ? scope->init.pid : 0, NULL, 0, SURVIVORS_MAX);
	else
		census_take(census, has_init ? scope->pidns_inode : 0, leaf, 0, SURVIVORS_MAX);
	if (has_init)
		add_one(census, scope->init.pid);
	for (uint32_t i = 0; !leftover->foreign && i < scope->program_count; i++)
		if (is_same(&scope->programs[i]))
			add_one(census, scope->programs[i].pid);
	for (uint32_t i = 0; i < census->stored; i++)
		/* An init that waits in its exit for others runs no program any more. */
		living += census->entries[i].state[0] != 'Z' &&
			  (census->entries[i].pid != scope->init.pid || census->stored == 1);
	if (!census->stored)
		decide(leftover, ORCH_DEATH_UNVERIFIABLE, otherwise);
	else
		decide(leftover, living ? ORCH_DEATH_SURVIVORS : ORCH_DEATH_DEAD_UNREAPED, "");
}

/* --- strike and look --------------------------------------------------------------------- */

static bool kill_programs(struct leftover *leftover)
{
	bool living = false, killed = false;
	for (uint32_t i = 0; i < leftover->scope->program_count; i++)
		living |= end_of(&leftover->scope->programs[i], SIGKILL, &killed) == END_NOT_YET;
	if (killed)
		leftover->flags |= WIRE_DEATH_LINEAGE_KILLED;
	return living;
}

void leftover_strike(struct leftover *leftover)
{
	const struct record_scope *scope = leftover->scope;
	bool killed = false;
	if (!leftover->foreign && scope->init.pid && is_same(&scope->init)) {
		struct leaf_place place = {.base_fd = -1};
		struct census census;
		_cleanup_close_ int leaf = open_leaf(scope, &place);
		_cleanup_close_ int base = place.base_fd;
		(void)base;
		if (scope->rung == ORCH_RUNG_SUBREAPER)
			census_take_descent(&census, scope->init.pid, NULL, 0, 0);
		else
			census_take(&census, scope->pidns_inode, leaf, scope->init.pid, 0);
		leftover->alive = census.count;
		census_free(&census);
	}
	/* First the helper, which may be stopped and in the middle of something. */
	if (!leftover->foreign && scope->helper.pid)
		end_of(&scope->helper, signal_for_helper(leftover), &killed);
	look_leaf(leftover);
	if (leftover->foreign)
		return;
	killed = false;
	if (scope->init.pid)
		end_of(&scope->init, signal_for_init(leftover), &killed);
	if (killed)
		leftover->flags |= WIRE_DEATH_INIT_KILLED;
	kill_programs(leftover);
}

static void look_named(struct leftover *leftover, bool last)
{
	bool killed = false;
	enum end end = end_of(&leftover->scope->helper, signal_for_helper(leftover), &killed);
	if (end == END_NOT_YET || end == END_UNKNOWN) {
		leftover->clean = 0;
		if (last && end == END_NOT_YET)
			add_one(&leftover->survivors, leftover->scope->helper.pid);
		if (last)
			decide(leftover, leftover->survivors.stored ? ORCH_DEATH_SURVIVORS : ORCH_DEATH_UNVERIFIABLE,
			       leftover->survivors.stored
				   ? ""
				   : "who has the number of the recorded orch-reaper now can not be found out");
		return;
	}
	if (look_leaf(leftover) == LEAF_POPULATED) {
		leftover->clean = 0;
		if (last)
			decide_alive(leftover, "the cgroup leaf is not empty, and nobody in it can be seen");
		return;
	}
	/*
	 * A look can miss a set-up process that ends and the init that it made in between; there is one such step, so
	 * the next look sees what is left.
	 */
	do {
		struct census census;
		unsigned orphans = take_setup(&census, &leftover->scope->helper);
		if (census.count || orphans) {
			leftover->clean = 0;
			if (last && census.count) {
				leftover->survivors = census;
				decide(leftover, ORCH_DEATH_SURVIVORS, "");
			} else if (last) {
				decide(leftover, ORCH_DEATH_UNVERIFIABLE,
				       "no program had been started in the scope, but an init without its orch-reaper "
				       "lives (ps -C orch-init), and can be the one that was set up for it");
			} else {
				census_free(&census);
			}
			return;
		}
		leftover->clean++;
	} while (leftover->clean < 2);
	leftover->flags |= WIRE_DEATH_NEVER_STOOD | WIRE_DEATH_HELPER_GONE;
	decide(leftover, ORCH_DEATH_DEAD, "");
}

static void look_init(struct leftover *leftover, bool last)
{
	bool killed = false;
	int64_t now = orch_monotonic_us();
	enum end end = end_of(&leftover->scope->init, SIGKILL, &killed);
	if (killed)
		leftover->flags |= WIRE_DEATH_INIT_KILLED;
	if (!leftover->ended_us && (end == END_GONE || end == END_ZOMBIE)) {
		leftover->ended_us = now;
		leftover->last_death_us = leftover->flags & WIRE_DEATH_INIT_KILLED ? now : -1;
	}
	bool leaf_is_empty = look_leaf(leftover) != LEAF_POPULATED;
	bool unreaped = end == END_ZOMBIE && (last || now - leftover->ended_us > REAPING_US);
	if (leaf_is_empty && (end == END_GONE || unreaped)) {
		leftover->flags |= WIRE_DEATH_INIT_GONE;
		decide(leftover, unreaped ? ORCH_DEATH_DEAD_UNREAPED : ORCH_DEATH_DEAD, "");
	} else if (last && end == END_UNKNOWN) {
		decide(leftover, ORCH_DEATH_UNVERIFIABLE,
		       "who has the number of the scope's init now can not be found out (is /proc mounted with hidepid?)");
	} else if (last) {
		decide_alive(leftover, "the scope's init did not end, and no member can be seen in /proc");
	}
}

/* No PID namespace: the leaf is all there is. */
static void look_leaf_alone(struct leftover *leftover, bool last)
{
	bool killed = false;
	/* While they are, who left the leaf may not have been found. */
	bool at_work = end_of(&leftover->scope->helper, signal_for_helper(leftover), &killed) == END_NOT_YET;
	at_work |= leftover->scope->init.pid &&
		   end_of(&leftover->scope->init, signal_for_init(leftover), &killed) == END_NOT_YET;
	enum leaf leaf = look_leaf(leftover);
	if (leftover->spared && at_work && !last)
		return;
	switch (leaf) {
	case LEAF_GONE:
	case LEAF_EMPTY:
		decide(leftover, ORCH_DEATH_DEAD, "");
		break;
	case LEAF_POPULATED:
		if (last)
			decide_alive(leftover, "the cgroup leaf is not empty, and nobody in it can be seen");
		break;
	case LEAF_NONE:
	case LEAF_UNKNOWN:
		decide(leftover, ORCH_DEATH_UNVERIFIABLE,
		       "the folder of the scope's cgroup leaf is not there or not visible: look from where the host ran");
		break;
	}
}

static void look_descent(struct leftover *leftover, bool last)
{
	bool killed = false;
	bool at_work = leftover->scope->init.pid &&
		       end_of(&leftover->scope->init, signal_for_init(leftover), &killed) == END_NOT_YET;
	at_work |= end_of(&leftover->scope->helper, signal_for_helper(leftover), &killed) == END_NOT_YET;
	at_work |= kill_programs(leftover);
	if (!at_work)
		decide(leftover, ORCH_DEATH_UNVERIFIABLE,
		       "the scope had no closed set: what left its parents can not be found after the end of its "
		       "supervisor; every recorded program is dead");
	else if (last)
		decide_alive(leftover, "the old orch-reaper did not end, and nobody else of the scope can be seen");
}

void leftover_look(struct leftover *leftover, bool last)
{
	if (leftover->foreign) {
		if (look_leaf(leftover) == LEAF_POPULATED && !last)
			return;
		decide(leftover, ORCH_DEATH_UNVERIFIABLE,
		       "the scope was recorded in another PID or time namespace, where its numbers meant other processes: "
		       "recover from where the host ran");
		return;
	}
	switch (leftover->scope->rung) {
	case 0:
		look_named(leftover, last);
		break;
	case ORCH_RUNG_PIDNS:
	case ORCH_RUNG_CGROUP_PIDNS:
		look_init(leftover, last);
		break;
	case ORCH_RUNG_CGROUP:
		look_leaf_alone(leftover, last);
		break;
	default:
		look_descent(leftover, last);
		break;
	}
}
