/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <libproc.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/proc_info.h>
#include <unistd.h>

#include "darwin.h"

/* More is refused by setrlimit(2) there. */
const rlim_t helper_open_files = OPEN_MAX;

/* There is no close_range(): the kernel's own list of what is open. */
static struct proc_fdinfo *open_fds(int *ret_count)
{
	int size = proc_pidinfo(getpid(), PROC_PIDLISTFDS, 0, NULL, 0);
	struct proc_fdinfo *list = size > 0 ? malloc((size_t)size) : NULL;
	*ret_count = 0;
	if (!list)
		return NULL;
	size = proc_pidinfo(getpid(), PROC_PIDLISTFDS, 0, list, size);
	*ret_count = size > 0 ? size / (int)sizeof(*list) : 0;
	return list;
}

static bool is_one_of(int fd, const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] == fd)
			return true;
	return false;
}

void close_others(const int *but, size_t count)
{
	int open_count;
	struct proc_fdinfo *list = open_fds(&open_count);
	for (int i = 0; i < open_count; i++)
		if (list[i].proc_fd > 2 && !is_one_of(list[i].proc_fd, but, count))
			close(list[i].proc_fd);
	free(list);
}

void close_others_at_exec(void)
{
	int count;
	struct proc_fdinfo *list = open_fds(&count);
	for (int i = 0; i < count; i++)
		if (list[i].proc_fd > 2)
			fcntl(list[i].proc_fd, F_SETFD, FD_CLOEXEC);
	free(list);
}

bool other_use(int argc, char **argv, int *ret_status)
{
	if (argc > 1 && strcmp(argv[1], "--program") == 0)
		*ret_status = program_main(argc, argv);
	else if (argc > 1 && strcmp(argv[1], "--sweep") == 0)
		*ret_status = sweeper_main(argc, argv);
	else
		return false;
	return true;
}
