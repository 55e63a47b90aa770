/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TORTURE_CAGE_H
#define ORCH_TORTURE_CAGE_H

/*
 * What keeps a torture run from the machine: a cap on pids and memory around everything that it starts, a subtree of
 * cgroup v2, a folder, and a guard that clears all of it away when the run ends, however it ends.
 */

#include <stdbool.h>

#define CAGE_PIDS 7000
/*
 * Much of it is the kernel's, of the dead: it is freed later than hoppers end, 2 GiB of it were seen, and who was killed for
 * that was the host.
 */
#define CAGE_MEMORY (8192ull * 1024 * 1024)

struct cage {
	char folder[64];
	char v2[128];	  /* "-": no cgroup v2 is mounted */
	char pids[128];	  /* the capped leaf, v1 or v2 */
	char memory[128]; /* "-": memory is not capped */
	int guard_fd;
	int guard_pid;
};

/* False with the reason on standard output: nothing may be started then. */
bool cage_make(struct cage *cage);
/* Everything of it is gone afterwards. Returns what could not be removed. */
unsigned cage_end(struct cage *cage);
/* In the child, before its exec: into the caps, and into `place` below cage->v2 ("" leaves it where it is). */
bool cage_enter(const struct cage *cage, const char *place);
/* A folder below cage->v2; with `owner` it is delegated to that uid. */
bool cage_place(const struct cage *cage, const char *place, unsigned owner);

#endif
