/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "../../reaper/linux/descent.h"
#include "linux.h"

/*
 * An own child can not be reaped by anybody else, so its pid is its own. A deeper one's may be a stranger's by now: the
 * pidfd is opened first, then it is looked whether that pid descends from us. If it does, it did while the pidfd was
 * open, or the pidfd's process is dead.
 */
static void signal_descendant(const struct descendant *one, int signal)
{
	pid_t self = getpid();
	if (one->parent == self) {
		kill(one->pid, signal);
		return;
	}
	_cleanup_fd_ int pidfd = pidfd_open_(one->pid);
	if (pidfd >= 0 && descends_from(one->pid, self))
		pidfd_signal(pidfd, signal);
}

static bool moves(const struct descendant *one)
{
	return one->state != 'T' && one->state != 't' && one->state != 'Z' && one->state != 'X';
}

/* What is deeper comes up as its parents die; until then it should not grow. */
void sweep_hold(const pid_t *but, size_t but_count)
{
	struct descent descent;
	pid_t self = getpid();
	descent_take(&descent, self, but, but_count, SWEEP_HOLD_US);
	for (uint32_t i = 0; i < descent.count; i++)
		if (descent.entries[i].parent != self && moves(&descent.entries[i]))
			signal_descendant(&descent.entries[i], SIGSTOP);
	descent_free(&descent);
}

void sweep_round(struct sweep *sweep)
{
	pid_t children[SWEEP_MOST];
	/* At once: what forks and exits is gone a moment later. */
	size_t count = descent_children(children, SWEEP_MOST);
	for (size_t i = 0; i < count; i++)
		kill(children[i], SIGKILL);
	if (sweep->rounds++ % SWEEP_HOLD_ROUNDS == 0)
		sweep_hold(NULL, 0);
}

void sweep_terminate(void)
{
	struct descent descent;
	descent_take(&descent, getpid(), NULL, 0, 0);
	for (uint32_t i = 0; i < descent.count; i++) {
		signal_descendant(&descent.entries[i], SIGTERM);
		signal_descendant(&descent.entries[i], SIGCONT);
	}
	descent_free(&descent);
}
