/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TORTURE_JUDGE_H
#define ORCH_TORTURE_JUDGE_H

/*
 * Looks from outside only, and at what no load can close or rename: the file that a process runs (a copy of its own
 * for each run, by device and inode), the name that a zombie keeps, the PID namespace, the cgroup. Start times tell a
 * process from the next one with its number.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct program_file {
	char path[128];
	char comm[16]; /* what the kernel calls its processes */
	dev_t device;
	ino_t inode;
};

/* Copies `from` to folder/name. False: it could not. */
bool program_copy(struct program_file *program, const char *from, const char *folder, const char *name);

/* A PID namespace as it was before the stop: the kernel gives the number of one that is gone to the next. */
struct namespace {
	uint64_t inode; /* 0: not asked for */
	unsigned long long before; /* members that started later are another's; 0: all are meant */
};

/* How many processes run `program`, or are zombies of it, or are members of `pidns`. */
unsigned judge_count(const struct program_file *program, struct namespace pidns);
/* In the unit of start times (proc(5)). */
unsigned long long judge_now(void);
/* One that runs it under the file's own name, whose parent is `parent` (0: any). 0: none. */
pid_t judge_find(const struct program_file *program, pid_t parent);
/* Several looks, all of which have to be empty: a fork can hide from one. Returns the most that was seen. */
unsigned judge_left(const struct program_file *program, struct namespace pidns);
/* SIGKILL to all that run it, until none lives or it has tried long enough. Returns how many live. */
unsigned judge_sweep(const struct program_file *program);
/* What runs it, one line each, to the log. */
void judge_describe(const struct program_file *program, struct namespace pidns);

/* What a stranger of the same user may expect to be left alone in. */
struct stranger {
	pid_t pid;
	unsigned long long start_time;
	char facts[512];
};

void stranger_remember(struct stranger *stranger, pid_t pid);
/* NULL, or what is different now. */
const char *stranger_harm(const struct stranger *stranger);

/* Lines of the own mount table that name `word`. */
unsigned judge_mounts(const char *word);
/* Folders below `path`, itself not counted. */
unsigned judge_folders(const char *path);

#endif
