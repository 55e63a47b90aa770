/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>

#include "scope-private.h"

/* Where the helper may be, seen from the folder of the library or, linked statically, of the
 * program: installed beside it (wheel), and the places of the build tree. */
static const char *const places[] = {"orch-reaper", "helper/orch-reaper",
				     "../lib/helper/orch-reaper", "../../lib/helper/orch-reaper"};

/* Absolute path of the file that this code was loaded from; caller frees. */
static char *own_file(void)
{
	Dl_info origin;
	/* For a program's own code this is argv[0], which says nothing. */
	if (dladdr((void *)(uintptr_t)orch_reaper_find_helper, &origin) && origin.dli_fname &&
	    origin.dli_fname[0] == '/')
		return realpath(origin.dli_fname, NULL);
	return realpath("/proc/self/exe", NULL);
}

static int32_t found(char *path, char **ret_path)
{
	*ret_path = path;
	return 0;
}

int32_t orch_reaper_find_helper(orch_ctx *ctx, char **ret_path, orch_error **reterr)
{
	const char *given = orch_ctx_helper_path(ctx);
	if (given) {
		if (access(given, X_OK) < 0)
			return orch_fail(reterr, ORCH_EHELPER, errno, "helper",
					 "orch_ctx_opts.helper_path %s can not be executed", given);
		char *copy = strdup(given);
		return copy ? found(copy, ret_path) : orch_fail_memory(reterr);
	}
	_cleanup_free_ char *file = own_file();
	char *slash = file ? strrchr(file, '/') : NULL;
	if (slash)
		*slash = '\0';
	for (size_t i = 0; slash && i < sizeof(places) / sizeof(*places); i++) {
		_cleanup_free_ char *path = orch_strdup_printf("%s/%s", file, places[i]);
		char *real = path ? realpath(path, NULL) : NULL;
		if (real && access(real, X_OK) == 0)
			return found(real, ret_path);
		free(real);
	}
	if (access(ORCH_LIBEXEC_DIR "/orch-reaper", X_OK) == 0) {
		char *copy = strdup(ORCH_LIBEXEC_DIR "/orch-reaper");
		return copy ? found(copy, ret_path) : orch_fail_memory(reterr);
	}
	return orch_fail(
	    reterr, ORCH_EHELPER, 0, "helper",
	    "orch-reaper was found neither beside the library (%s) nor in %s: install it, or "
	    "set orch_ctx_opts.helper_path",
	    slash ? file : "?", ORCH_LIBEXEC_DIR);
}
