/* SPDX-License-Identifier: Apache-2.0 */
/* The same as profile.c lets a program do. */
#include "../preset.h"

#include <orch/sandbox.h>

#define READ ORCH_PATH_READ
#define READ_EXEC (ORCH_PATH_READ | ORCH_PATH_EXEC)
#define READ_WRITE (ORCH_PATH_READ | ORCH_PATH_WRITE)

static const struct preset_path preset[] = {
	{"/usr", READ_EXEC, PRESET_TOOLS},
	{"/bin", READ_EXEC, PRESET_TOOLS},
	{"/sbin", READ_EXEC, PRESET_TOOLS},
	{"/Library/Apple/usr", READ_EXEC, PRESET_TOOLS},
	{"/Library/Developer/CommandLineTools", READ_EXEC, PRESET_TOOLS},
	{"/System/Library", READ_EXEC, PRESET_TOOLS},
	{"/System/Cryptexes", READ_EXEC, PRESET_TOOLS},
	{"/System/Volumes/Preboot/Cryptexes", READ_EXEC, PRESET_TOOLS},
	{"/private/etc/group", READ, PRESET_TOOLS},
	{"/private/etc/hosts", READ, PRESET_TOOLS},
	{"/private/etc/passwd", READ, PRESET_TOOLS},
	{"/private/etc/shells", READ, PRESET_TOOLS},
	{"/private/var/db/dyld", READ, PRESET_TOOLS},
	{"/dev/null", READ_WRITE, PRESET_DEVICE},
	{"/dev/zero", READ_WRITE, PRESET_DEVICE},
	{"/dev/random", READ, PRESET_DEVICE},
	{"/dev/urandom", READ, PRESET_DEVICE},
};

const struct preset_path *orch_preset(size_t *ret_count)
{
	*ret_count = sizeof(preset) / sizeof(preset[0]);
	return preset;
}
