/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "scope-private.h"

#define INSTALLED ORCH_LIBEXECDIR "/liborch/orch-reaper"

/* Seen from the folder of the library or, linked statically, of the program: installed beside it (wheel), and the
 * places of the build tree. */
static const char *const beside[] = {"orch-reaper", "helper/orch-reaper", "../lib/helper/orch-reaper",
				     "../../lib/helper/orch-reaper", NULL};

static bool can_execute(const char *path)
{
	return access(path, X_OK) == 0;
}

int32_t orch_reaper_find_helper(orch_ctx *ctx, char **ret_path, orch_error **reterr)
{
	const char *given = orch_ctx_helper_path(ctx);
	if (given && !can_execute(given))
		return orch_fail(reterr, ORCH_EHELPER, errno, "helper",
				 "orch_ctx_opts.helper_path %s can not be executed", given);
	char *path = given ? strdup(given) : orch_place_find(beside, INSTALLED, can_execute);
	if (path) {
		*ret_path = path;
		return 0;
	}
	if (given)
		return orch_fail_memory(reterr);
	_cleanup_free_ char *dir = orch_place_own_dir();
	return orch_fail(reterr, ORCH_EHELPER, 0, "helper",
			 "orch-reaper was found neither beside the library (%s) nor in its prefix nor as %s: "
			 "install it, or set orch_ctx_opts.helper_path",
			 dir ? dir : "?", ORCH_PREFIX "/" INSTALLED);
}
