/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <orch/error.h>
#include <orch/version.h>

#include "../../sandbox/spec.h"
#include "darwin.h"

/* Where "--program" finds what it is given. scopes_begin() keeps these numbers free of anything else. */
#define STRINGS_FD 3
#define ERROR_FD 4
#define SPEC_FD 5

/* argv of "--program": its own version first, as the file may have been replaced since orch-reaper was started. */
enum { ARG_VERSION = 2, ARG_ARGC, ARG_ENVC, ARG_FLAGS, ARG_CONFINED, ARG_OPEN_SOFT, ARG_OPEN_HARD, ARG_COUNT };

struct placed {
	int from, to;
};

static int spawn_self(char **argv, const struct placed *fds, size_t count, pid_t *ret_pid)
{
	static char path[PATH_MAX];
	uint32_t size = sizeof(path);
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t all, none;
	char *envp[] = {NULL};

	if (_NSGetExecutablePath(path, &size) != 0)
		return -ENAMETOOLONG;
	sigfillset(&all);
	sigemptyset(&none);
	int error = posix_spawn_file_actions_init(&actions);
	if (error)
		return -error;
	error = posix_spawnattr_init(&attributes);
	if (error) {
		posix_spawn_file_actions_destroy(&actions);
		return -error;
	}
	/* A session of its own from birth: by it even those descendants are found whose parents have ended. */
	error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
							  POSIX_SPAWN_SETSID | POSIX_SPAWN_CLOEXEC_DEFAULT);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setsigmask(&attributes, &none);
	for (size_t i = 0; i < count && !error; i++)
		error = posix_spawn_file_actions_adddup2(&actions, fds[i].from, fds[i].to);
	if (!error)
		error = posix_spawn(ret_pid, path, &actions, &attributes, argv, envp);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return -error;
}

int program_start(const struct helper *helper, const struct wire_packet *request, int spec_fd, pid_t *ret_pid,
		  int *ret_error_fd)
{
	char numbers[ARG_COUNT][32];
	char *argv[ARG_COUNT + 1] = {"orch-reaper", "--program", ORCH_VERSION_STRING};
	const uint64_t values[ARG_COUNT] = {[ARG_ARGC] = request->message.number[0],
					    [ARG_ENVC] = request->message.number[1],
					    [ARG_FLAGS] = request->message.flags,
					    [ARG_CONFINED] = spec_fd >= 0,
					    [ARG_OPEN_SOFT] = helper->open_files.rlim_cur,
					    [ARG_OPEN_HARD] = helper->open_files.rlim_max};
	int ends[2];

	for (int i = ARG_ARGC; i < ARG_COUNT; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "%llu", (unsigned long long)values[i]);
		argv[i] = numbers[i];
	}
	if (pipe(ends) < 0)
		return -errno;
	_cleanup_fd_ int written = ends[1];
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	const struct placed fds[] = {{request->fds[1], 0},	   {request->fds[2], 1}, {request->fds[3], 2},
				     {request->fds[0], STRINGS_FD}, {ends[1], ERROR_FD},  {spec_fd, SPEC_FD}};
	int error = spawn_self(argv, fds, spec_fd >= 0 ? 6 : 5, ret_pid);
	if (error) {
		close(ends[0]);
		return error;
	}
	*ret_error_fd = ends[0];
	return 0;
}

bool is_load_uid(uint32_t uid)
{
	return uid >= ORCH_SPEC_UID_FIRST && uid - ORCH_SPEC_UID_FIRST < ORCH_SPEC_UID_COUNT;
}

int sweeper_start(uint32_t uid, pid_t *ret_pid)
{
	char number[16];
	char *argv[] = {"orch-reaper", "--sweep", number, NULL};

	snprintf(number, sizeof(number), "%u", uid);
	return spawn_self(argv, NULL, 0, ret_pid);
}

/* --- after exec ------------------------------------------------------------------------ */

static _Noreturn void refuse(const struct setup_error *error)
{
	ssize_t ignored = write(ERROR_FD, error, sizeof(*error));
	(void)ignored;
	_exit(127);
}

int program_main(int argc, char **argv)
{
	struct setup_error error;
	struct confine *confine = NULL;
	uint64_t values[ARG_COUNT] = {0};

	if (argc != ARG_COUNT || fcntl(ERROR_FD, F_GETFD) < 0 || fcntl(STRINGS_FD, F_GETFD) < 0) {
		fprintf(stderr, "orch-reaper --program is started by orch-reaper; it has no use of its own.\n");
		return 2;
	}
	if (strcmp(argv[ARG_VERSION], ORCH_VERSION_STRING) != 0) {
		setup_fail(&error, ORCH_EHELPER, 0, "helper",
			   "orch-reaper was replaced by version %s while %.40s runs: start the host anew",
			   ORCH_VERSION_STRING, argv[ARG_VERSION]);
		refuse(&error);
	}
	for (int i = ARG_ARGC; i < ARG_COUNT; i++)
		values[i] = strtoull(argv[i], NULL, 10);
	/* The helper has raised its own. */
	if (values[ARG_OPEN_HARD])
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = (rlim_t)values[ARG_OPEN_SOFT],
							   .rlim_max = (rlim_t)values[ARG_OPEN_HARD]});
	if (values[ARG_CONFINED]) {
#ifdef ORCH_HAVE_CONFINE
		confine = confine_load(SPEC_FD, &error);
		close(SPEC_FD);
#else
		setup_fail(&error, ORCH_ENOTSUP, 0, "confine",
			   "this orch-reaper was built without sandboxes: build with -Dsandbox=enabled");
#endif
		if (!confine)
			refuse(&error);
	}
	struct wire_packet request = wire_packet(WIRE_SPAWN, 0, 0);
	request.message.number[0] = values[ARG_ARGC];
	request.message.number[1] = values[ARG_ENVC];
	request.message.flags = (uint32_t)values[ARG_FLAGS];
	request.fds[0] = STRINGS_FD;
	for (int i = 0; i < 3; i++)
		request.fds[1 + i] = i;
	request.fd_count = 4;
	program_run(&(struct program){.request = &request, .confine = confine, .error_fd = ERROR_FD});
}

int sweeper_main(int argc, char **argv)
{
	char *end = NULL;
	unsigned long uid = argc == 3 ? strtoul(argv[2], &end, 10) : 0;

	/* A slip here would kill a user's everything, or root's. */
	if (argc != 3 || *end || uid > UINT32_MAX || !is_load_uid((uint32_t)uid) || geteuid() != 0)
		return 2;
	if (setgroups(0, NULL) < 0 || setgid((gid_t)uid) < 0 || setuid((uid_t)uid) < 0 ||
	    getuid() != (uid_t)uid || geteuid() != (uid_t)uid || setuid(0) == 0)
		return 1;
	/* To everybody of this uid at once (kill(2)): a list would be older than the youngest fork. */
	kill(-1, SIGKILL);
	return 0;
}
