/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a confinement and entering it, in the process that becomes the program. */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <orch/error.h>

#include "../../core/darwin/apple.h"
#include "../../sandbox/darwin/seatbelt.h"
#include "darwin.h"

struct confine {
	struct seatbelt_header *header;
	const char **environment;
};

/* --- reading ------------------------------------------------------------------------------- */

static struct seatbelt_header *read_whole(int fd, size_t *ret_length)
{
	struct stat status;
	if (fstat(fd, &status) < 0 || status.st_size <= 0 || status.st_size > (off_t)ORCH_SPEC_MAX_BYTES)
		return NULL;
	size_t length = (size_t)status.st_size, done = 0;
	/* A struct's alignment, and room for one also if the file is shorter. */
	char *bytes = calloc(1, length + sizeof(struct seatbelt_header));
	while (bytes && done < length) {
		ssize_t got = pread(fd, bytes + done, length - done, (off_t)done);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			free(bytes);
			return NULL;
		}
		done += (size_t)got;
	}
	*ret_length = length;
	return (struct seatbelt_header *)bytes;
}

/* Never freed: the process ends or becomes a program. */
struct confine *confine_load(int spec_fd, struct setup_error *error)
{
	static struct confine confine;
	size_t length = 0;
	confine.header = read_whole(spec_fd, &length);
	const char *wrong = confine.header ? seatbelt_check(confine.header, length) : "it can not be read";
	if (wrong) {
		setup_fail(error, ORCH_ESYS, 0, "spec", "the confinement is refused: %s", wrong);
		return NULL;
	}
	const struct seatbelt_header *header = confine.header;
	const uint32_t *offsets = (const uint32_t *)((const char *)header + header->env_offset);
	confine.environment = calloc(header->env_count + 1, sizeof(*confine.environment));
	if (!confine.environment) {
		setup_fail(error, ORCH_ENOMEM, 0, "spec", "no memory for the environment");
		return NULL;
	}
	for (uint32_t i = 0; i < header->env_count; i++)
		confine.environment[i] = seatbelt_string(header, offsets[i]);
	return &confine;
}

const char *confine_cwd(const struct confine *confine)
{
	return seatbelt_string(confine->header, confine->header->cwd);
}

const char *const *confine_environment(const struct confine *confine)
{
	return confine->environment;
}

/* --- entering ------------------------------------------------------------------------------ */

static int limit(int resource, rlim_t most)
{
	struct rlimit value;
	if (getrlimit(resource, &value) < 0)
		return -1;
	/* Never more than there was. */
	if (most < value.rlim_max)
		value.rlim_max = most;
	if (value.rlim_cur > value.rlim_max)
		value.rlim_cur = value.rlim_max;
	return setrlimit(resource, &value);
}

static int set_limits(const struct seatbelt_header *header)
{
	/* More than OPEN_MAX is refused by setrlimit(2), "unlimited" included. */
	rlim_t files = header->max_open_files < OPEN_MAX ? header->max_open_files : OPEN_MAX;
	if (limit(RLIMIT_CORE, 0) < 0 || limit(RLIMIT_NOFILE, files) < 0 ||
	    limit(RLIMIT_FSIZE, (rlim_t)header->max_file_bytes) < 0)
		return -1;
	return header->max_processes ? limit(RLIMIT_NPROC, header->max_processes) : 0;
}

static int change_uid(uint32_t uid)
{
	if (setgroups(0, NULL) < 0 || setgid((gid_t)uid) < 0 || setuid((uid_t)uid) < 0)
		return -1;
	/* What was given up can not be had again. */
	errno = EPERM;
	return getuid() == (uid_t)uid && geteuid() == (uid_t)uid && setuid(0) < 0 ? 0 : -1;
}

bool confine_leaves_out(const struct confine *confine, uint64_t protection)
{
	(void)confine, (void)protection;
	return false;
}

int confine_program(struct confine *confine, struct setup_error *error)
{
	const struct seatbelt_header *header = confine->header;
	char *why = NULL;
	if (set_limits(header) < 0) {
		setup_fail(error, ORCH_ESPAWN, errno, "rlimit", "the limits of the sandbox can not be set");
		return -1;
	}
	if (header->uid && (!is_load_uid(header->uid) || change_uid(header->uid) < 0)) {
		setup_fail(error, ORCH_ESPAWN, errno, "uid", "the sandbox's own uid %u can not be taken", header->uid);
		return -1;
	}
	if (sandbox_init(seatbelt_string(header, header->profile), 0, &why) != 0) {
		setup_fail(error, ORCH_EUNENFORCEABLE, errno, "seatbelt",
			   "the Seatbelt profile is refused (a sandbox inside of another one?): %.150s",
			   why ? why : "no reason given");
		sandbox_free_error(why);
		return -1;
	}
	return 0;
}

/* scopes.c asks for none; the answer is ORCH_TRY_UNTRIED of the probes that Linux has. */
int confine_probe(const char *name)
{
	printf("%s: there are no live probes on macOS\n", name);
	fflush(stdout);
	return 2;
}
