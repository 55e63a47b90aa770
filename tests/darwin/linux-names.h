/* SPDX-License-Identifier: Apache-2.0 */
/*
 * So that lib/pipeline/darwin/tree-open.c can be run on Linux, which can do the same under other names. Included
 * in front of the file by the compiler's -include.
 */
#include <fcntl.h>
#include <unistd.h>

/* The link itself is opened. */
#define O_SYMLINK (O_PATH | O_NOFOLLOW)

static inline ssize_t freadlink(int fd, char *target, size_t size)
{
	return readlinkat(fd, "", target, size);
}
