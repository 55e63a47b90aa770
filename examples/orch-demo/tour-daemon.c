/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tour.h"

/*
 * Act 2: a program says that it is done and leaves a daemon behind: two forks, a session of its own, every signal ignored,
 * every file closed but its heartbeat, which it has locked.
 */

#define PATIENCE_MS 10000
#define SILENCE_MS 500 /* 25 beats */

struct heart {
	int pid, beats;
	bool locked;
};

static bool look(const char *path, struct heart *heart)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[64] = "";
	*heart = (struct heart){0};
	if (fd < 0)
		return false;
	bool written = read(fd, text, sizeof(text) - 1) > 0 && sscanf(text, "%d %d", &heart->pid, &heart->beats) == 2;
	heart->locked = flock(fd, LOCK_EX | LOCK_NB) < 0;
	close(fd);
	return written;
}

/* Beats on: what it says now is more than what it says first. */
static bool beats(struct tour *tour, const char *path, struct heart *now)
{
	struct heart first = {0};
	bool seen = false;
	for (int waited = 0; waited < PATIENCE_MS; waited += 20) {
		if (look(path, now)) {
			if (seen && now->beats > first.beats)
				return now->locked;
			first = seen ? first : *now;
			seen = true;
		}
		if (!tour_sleep(tour, 20))
			return false;
	}
	return false;
}

/* Nobody has the file any more, and no beat is added. */
static bool silent(struct tour *tour, const char *path, struct heart *last)
{
	struct heart later;
	return look(path, last) && !last->locked && tour_sleep(tour, SILENCE_MS) && look(path, &later) && !later.locked &&
	       later.beats == last->beats;
}

/* --- in a scope ------------------------------------------------------------------------------------------------- */

static int spawn_and_wait(orch_scope *scope, const char *const *argv, int32_t *ret_status, orch_error **reterr)
{
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	int32_t code = orch_scope_spawn(scope, &opts, &proc, reterr);
	if (code == 0)
		code = orch_proc_wait(proc, PATIENCE_MS, ret_status, reterr);
	orch_proc_unref(proc);
	return code;
}

static int in_a_scope(struct tour *tour, const char *path)
{
	const char *argv[] = {tour->attempt, "daemon", path, NULL};
	orch_scope *scope = NULL;
	orch_death *death = NULL;
	orch_error *error = NULL;
	struct heart heart = {0};
	int32_t status = -1;
	int code = EXIT_FINE;
	if (orch_scope_new(tour->ctx, NULL, &scope, &error) < 0 || spawn_and_wait(scope, argv, &status, &error) < 0) {
		code = fail("the scope", error);
		goto out;
	}
	bool alive = beats(tour, path, &heart);
	tour_expect(tour, alive && status == 0, "in a scope: the program ended with exit code %d, its daemon goes on: beat %d",
		    status, heart.beats);
	if (orch_scope_stop_wait(scope, NULL, &death, &error) < 0) {
		code = fail("stop", error);
		goto out;
	}
	tour_expect(tour, orch_death_verdict(death) == ORCH_DEATH_DEAD, "the scope is stopped; its certificate says %s:",
		    orch_death_verdict_name(death));
	tour_quote(tour, orch_death_text(death));
	tour_object(tour, json_pack("{s:s, s:s, s:s}", "event", "certificate", "verdict", orch_death_verdict_name(death),
				    "text", orch_death_text(death)));
	bool stopped = silent(tour, path, &heart);
	tour_expect(tour, stopped, "looked at afterwards: beat %d was the last, and nobody holds the file's lock", heart.beats);
out:
	orch_death_unref(death);
	orch_scope_unref(scope);
	return code;
}

/* --- plainly -------------------------------------------------------------------------------------------------------- */

static int plainly(struct tour *tour, const char *path)
{
	const char *argv[] = {tour->attempt, "daemon", path, NULL};
	struct tour_child *leader = tour_start(tour, argv, true);
	struct heart heart = {0};
	if (!leader)
		return EXIT_ERROR;
	/* It stays a zombie meanwhile, so that its group's number can be nobody else's. */
	bool ended = tour_ended(tour, leader, PATIENCE_MS);
	bool told = ended && kill(-leader->pid, SIGKILL) == 0;
	int status = tour_reap(leader);
	bool alive = beats(tour, path, &heart);
	int daemon = alive ? pidfd_open(heart.pid, 0) : -1;
	/* The lock is the daemon's: while it is held, the number that it wrote is its own, and so is the pidfd. */
	if (daemon >= 0 && look(path, &heart) && heart.locked)
		tour->stray = daemon;
	else if (daemon >= 0)
		close(daemon);
	if (tour->interrupted)
		return EXIT_INTERRUPTED;
	tour_expect(tour, told && WIFEXITED(status) && tour->stray >= 0,
		    "beside it, started plainly: SIGKILL to its whole process group, and the same daemon goes on: beat %d",
		    heart.beats);
	if (tour->stray < 0)
		return EXIT_FINE;
	pidfd_send_signal(tour->stray, SIGKILL, NULL, 0);
	for (int waited = 0; waited < PATIENCE_MS && look(path, &heart) && heart.locked; waited += 20)
		tour_sleep(tour, 20);
	close(tour->stray);
	tour->stray = -1;
	tour_say(tour, "(The tour has ended that one by its pidfd.)");
	return EXIT_FINE;
}

int tour_daemon(struct tour *tour)
{
	char *inside = format_text("%s/heartbeat-scope", tour->folder), *beside = format_text("%s/heartbeat", tour->folder);
	tour_say(tour, "A program says \"done\", exits with 0 and leaves a daemon behind: two forks, setsid, all signals ignored,");
	tour_say(tour, "all files closed but one, into which it writes a heartbeat 50 times a second.");
	tour_gap(tour);
	int code = in_a_scope(tour, inside);
	if (code == EXIT_FINE && !tour->interrupted)
		code = plainly(tour, beside);
	free(inside);
	free(beside);
	return code;
}
