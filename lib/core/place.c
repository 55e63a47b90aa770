/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core-private.h"
#include "os.h"

/* Absolute path of the file that this code was loaded from; caller frees. */
static char *own_file(void)
{
	Dl_info origin;
	void *code = (void *)(uintptr_t)orch_place_find;
	if (dladdr(code, &origin) && origin.dli_fname && origin.dli_fname[0] == '/')
		return realpath(origin.dli_fname, NULL);
	/*
	 * Of a program's own code that is argv[0], which says nothing; of a library that LD_LIBRARY_PATH=lib has found it
	 * is below what was the working directory then.
	 */
	char *path = orch_code_path(code);
	return path ? path : orch_program_path();
}

char *orch_place_own_dir(void)
{
	char *file = own_file();
	char *slash = file ? strrchr(file, '/') : NULL;
	if (slash)
		*slash = '\0';
	return file;
}

static char *if_fits(char *path, bool (*fits)(const char *path))
{
	char *real = path ? realpath(path, NULL) : NULL;
	free(path);
	if (real && fits(real))
		return real;
	free(real);
	return NULL;
}

/* The folder that the whole installation was put under, which need not be the one it was configured for. */
static char *own_prefix(const char *dir)
{
	size_t length = strlen(dir), tail = strlen("/" ORCH_LIBDIR);
	if (length < tail || strcmp(dir + length - tail, "/" ORCH_LIBDIR) != 0)
		return NULL;
	return strndup(dir, length - tail);
}

char *orch_place_find(const char *const *beside, const char *installed, bool (*fits)(const char *path))
{
	_cleanup_free_ char *dir = orch_place_own_dir();
	char *found = NULL;
	for (; dir && *beside && !found; beside++)
		found = if_fits(orch_strdup_printf("%s/%s", dir, *beside), fits);
	_cleanup_free_ char *prefix = dir && !found ? own_prefix(dir) : NULL;
	if (prefix)
		found = if_fits(orch_strdup_printf("%s/%s", prefix, installed), fits);
	if (!found)
		found = if_fits(orch_strdup_printf(ORCH_PREFIX "/%s", installed), fits);
	return found;
}
