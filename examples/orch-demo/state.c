/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "demo.h"

static bool make_folders(const char *path)
{
	char *copy = strdup(path);
	for (char *slash = copy + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST) {
			fail_text(EXIT_ERROR, "%s can not be made: %m", copy);
			free(copy);
			return false;
		}
		*slash = '/';
	}
	bool good = mkdir(copy, 0700) == 0 || errno == EEXIST;
	if (!good)
		fail_text(EXIT_ERROR, "%s can not be made: %m", copy);
	free(copy);
	return good;
}

/* Under XDG_STATE_HOME (XDG Base Directory Specification), made. */
static char *home_folder(const char *name)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path;
	if (state && state[0] == '/')
		path = format_text("%s/liborch/%s", state, name);
	else if (home && home[0] == '/')
		path = format_text("%s/.local/state/liborch/%s", home, name);
	else {
		fail_text(EXIT_USAGE, "neither XDG_STATE_HOME nor HOME is set: say --state DIR");
		return NULL;
	}
	if (make_folders(path))
		return path;
	free(path);
	return NULL;
}

static char *newest(const char *runs)
{
	DIR *dir = opendir(runs);
	char *best = NULL;
	struct dirent *entry;
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && (!best || strcmp(entry->d_name, best) > 0)) {
			free(best);
			best = strdup(entry->d_name);
		}
	if (dir)
		closedir(dir);
	return best;
}

char *state_folder(const struct options *options, bool existing)
{
	if (options->state) {
		if (options->state[0] == '/')
			return strdup(options->state);
		char cwd[PATH_MAX];
		if (!getcwd(cwd, sizeof(cwd))) {
			fail_text(EXIT_ERROR, "the working directory is gone: %m");
			return NULL;
		}
		return format_text("%s/%s", cwd, options->state);
	}
	char *runs = home_folder("runs");
	if (!runs)
		return NULL;
	char *path = NULL;
	if (existing) {
		char *name = newest(runs);
		if (name)
			path = format_text("%s/%s", runs, name);
		else
			fail_text(EXIT_NOTHING, "there is no run in %s: start one with \"orch-demo run\"", runs);
		free(name);
	} else {
		char stamp[32];
		time_t now = time(NULL);
		struct tm parts;
		unsigned salt = 0;
		if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
			salt = (unsigned)getpid();
		strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &parts));
		path = format_text("%s/%s-%04x", runs, stamp, salt & 0xffff);
	}
	free(runs);
	return path;
}

char *anchor_path(const char *state)
{
	char *anchors = home_folder("anchors");
	if (!anchors)
		return NULL;
	/* The path itself with its separators replaced: one anchor per folder, and a person can read which. */
	char *name = strdup(state);
	for (char *c = name; *c; c++)
		if (*c == '/')
			*c = '%';
	size_t length = strlen(name);
	char *path = format_text("%s/%s.anchor", anchors, length > 200 ? name + length - 200 : name);
	free(name);
	free(anchors);
	return path;
}
