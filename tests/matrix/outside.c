/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outside.h"

#define LOOK_US 10000
#define OFTEN 10

static struct outside *looking; /* nftw() has no argument for it */
static const char *name_wanted;

static int look_at(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status, (void)type;
	if (strcmp(path + place->base, name_wanted) == 0 && looking->count < 8 &&
	    strlen(path) < sizeof(looking->folders[0]))
		snprintf(looking->folders[looking->count++], sizeof(looking->folders[0]), "%s",
			 path);
	return 0;
}

static bool read_in(const char *folder, const char *file, char *text, size_t size)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[length < 0 ? 0 : length] = '\0';
	return length >= 0;
}

/* Of whichever of its cgroups has the file. */
static bool read_file(const struct outside *outside, const char *file, char *text, size_t size)
{
	for (unsigned i = 0; i < outside->count; i++)
		if (read_in(outside->folders[i], file, text, size))
			return true;
	return false;
}

/* A limit: "max" is none, and so is v1's largest number of pages. */
static bool read_limit(const struct outside *outside, const char *file, uint64_t *ret)
{
	char text[64];

	*ret = OUTSIDE_NONE;
	if (!read_file(outside, file, text, sizeof(text)))
		return false;
	if (strncmp(text, "max", 3) != 0)
		*ret = strtoull(text, NULL, 10);
	if (*ret > INT64_MAX / 2)
		*ret = OUTSIDE_NONE;
	return true;
}

static const char *line_of(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, word, length) == 0 && line[length] == ' ')
			return line + length;
	}
	return NULL;
}

/* The number behind the word, or 0. Beside v1's controllers a cgroup of v2 has files of these
 * names, with less in them. */
static uint64_t read_field(const struct outside *outside, const char *file, const char *word)
{
	char text[8192];

	for (unsigned i = 0; i < outside->count; i++) {
		const char *number = read_in(outside->folders[i], file, text, sizeof(text))
					     ? line_of(text, word)
					     : NULL;

		if (number)
			return strtoull(number, NULL, 10);
	}
	return 0;
}

static void read_limits(struct outside *outside)
{
	uint64_t both;

	if (read_limit(outside, "memory.max", &outside->memory)) {
		outside->swap_is_counted = read_limit(outside, "memory.swap.max", &outside->swap);
		return;
	}
	read_limit(outside, "memory.limit_in_bytes", &outside->memory);
	outside->swap_is_counted = read_limit(outside, "memory.memsw.limit_in_bytes", &both);
	outside->swap = both == OUTSIDE_NONE || both < outside->memory ? OUTSIDE_NONE
								       : both - outside->memory;
}

static void look(struct outside *outside)
{
	uint64_t throttled = read_field(outside, "cpu.stat", "nr_throttled"), swapped = 0;
	char text[64];

	if (throttled > outside->throttled_before)
		outside->throttled = throttled - outside->throttled_before;
	if (read_file(outside, "memory.swap.current", text, sizeof(text)))
		swapped = strtoull(text, NULL, 10);
	else
		swapped = read_field(outside, "memory.stat", "swap");
	if (swapped > outside->swapped)
		outside->swapped = swapped;
	if (outside->throttled >= OFTEN && outside->enough) {
		int fd = open(outside->enough, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		if (fd >= 0)
			close(fd);
		outside->enough = NULL;
	}
}

static void *look_until_over(void *argument)
{
	struct outside *outside = argument;

	while (!atomic_load(&outside->over)) {
		look(outside);
		usleep(LOOK_US);
	}
	return NULL;
}

void outside_begin(struct outside *outside, const char *name, const char *enough)
{
	*outside = (struct outside){.enough = enough};
	looking = outside;
	name_wanted = name;
	nftw("/sys/fs/cgroup", look_at, 32, FTW_PHYS);
	read_limits(outside);
	outside->throttled_before = read_field(outside, "cpu.stat", "nr_throttled");
	outside->has_thread = pthread_create(&outside->thread, NULL, look_until_over, outside) == 0;
}

void outside_end(struct outside *outside)
{
	atomic_store(&outside->over, true);
	if (outside->has_thread)
		pthread_join(outside->thread, NULL);
}
