/* SPDX-License-Identifier: Apache-2.0 */
#include "../preset.h"

#include <orch/sandbox.h>

#define READ ORCH_PATH_READ
#define READ_EXEC (ORCH_PATH_READ | ORCH_PATH_EXEC)
#define READ_WRITE (ORCH_PATH_READ | ORCH_PATH_WRITE)

static const struct preset_path preset[] = {
	{"/usr", READ_EXEC, PRESET_TOOLS},
	/* Only where /usr is not merged: otherwise these are symbolic links. */
	{"/bin", READ_EXEC, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/sbin", READ_EXEC, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/lib", READ_EXEC, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/lib32", READ_EXEC, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/lib64", READ_EXEC, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/libx32", READ_EXEC, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/etc", READ, PRESET_TOOLS | PRESET_MADE},
	{"/etc/alternatives", READ, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/etc/ld.so.cache", READ, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/etc/ld.so.conf", READ, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/etc/ld.so.conf.d", READ, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/etc/localtime", READ, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/etc/ssl/certs", READ, PRESET_TOOLS | PRESET_OPTIONAL},
	{"/dev", READ, PRESET_MADE},
	{"/dev/null", READ_WRITE, PRESET_DEVICE},
	{"/dev/zero", READ_WRITE, PRESET_DEVICE},
	{"/dev/full", READ_WRITE, PRESET_DEVICE},
	{"/dev/random", READ_WRITE, PRESET_DEVICE},
	{"/dev/urandom", READ_WRITE, PRESET_DEVICE},
	{"/dev/tty", READ_WRITE, PRESET_DEVICE | PRESET_OPTIONAL},
	{"/dev/pts", READ_WRITE, PRESET_MADE},
	{"/dev/shm", READ_WRITE, PRESET_MADE},
	{"/proc", READ_WRITE, PRESET_MADE},
	{"/tmp", READ_WRITE | READ_EXEC, PRESET_MADE},
};

const struct preset_path *orch_preset(size_t *ret_count)
{
	*ret_count = sizeof(preset) / sizeof(preset[0]);
	return preset;
}
