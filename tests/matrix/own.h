/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_MATRIX_OWN_H
#define TEST_MATRIX_OWN_H

/* What the attempts at what has to work share. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

struct own {
	const char *row;
	bool (*works)(void);
};

/* By the row's name; without one it can not be tried. */
static inline int attempt_one_of(const struct own *all, size_t count, const struct row *row)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(all[i].row, row->name) == 0)
			return tried(all[i].works());
	return UNTRIED;
}

/* A path of this process: %W/NAME-PID. In one of a few buffers. */
static inline const char *own_path(const char *name)
{
	static char paths[8][300];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s-%d", expand(name), (int)getpid());
	return path;
}

/* Exit code 0. */
static inline bool ends_well(pid_t child)
{
	int status = 1;

	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static inline bool in_child(bool (*work)(void *argument), void *argument)
{
	pid_t child = fork();

	if (child == 0)
		_exit(work(argument) ? 0 : 1);
	return ends_well(child);
}

#endif
