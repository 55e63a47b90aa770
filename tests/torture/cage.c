/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cage.h"

#define PIDS_V1 "/sys/fs/cgroup/pids"
#define MEMORY_V1 "/sys/fs/cgroup/memory"

static bool put(const char *folder, const char *file, const char *text)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return good;
}

/* Where a cgroup v2 is mounted, "" if nowhere. */
static void find_v2(char *path, size_t size)
{
	char line[1024], point[512];
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	path[0] = '\0';
	while (mounts && !path[0] && fgets(line, sizeof(line), mounts))
		if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s / %511s", point) == 1)
			snprintf(path, size, "%.*s", (int)size - 1, point);
	if (mounts)
		fclose(mounts);
}

static bool make_leaf(const char *path, const char *file, unsigned long long most)
{
	char text[32];
	snprintf(text, sizeof(text), "%llu", most);
	return mkdir(path, 0755) == 0 && put(path, file, text);
}

/* SIGKILL to whatever is in it, or in its subtree. */
static void kill_members(const char *leaf)
{
	char path[256], line[32];
	snprintf(path, sizeof(path), "%s/cgroup.procs", leaf);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (atoi(line) > 1)
			kill(atoi(line), SIGKILL);
	if (file)
		fclose(file);
}

/* What has left the cgroups still runs a file of the run's folder. */
static void kill_runners(const char *folder)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	while (proc && (entry = readdir(proc))) {
		char path[300], target[300] = "";
		snprintf(path, sizeof(path), "/proc/%s/exe", entry->d_name);
		if (atoi(entry->d_name) > 1 && readlink(path, target, sizeof(target) - 1) > 0 &&
		    strncmp(target, folder, strlen(folder)) == 0 && target[strlen(folder)] == '/')
			kill(atoi(entry->d_name), SIGKILL);
	}
	if (proc)
		closedir(proc);
}

static void remove_tree(const char *path)
{
	char command[300];
	snprintf(command, sizeof(command), "find '%s' -depth -type d -exec rmdir {} + 2>/dev/null", path);
	(void)!system(command);
}

static bool is_there(const char *path)
{
	return path[0] == '/' && access(path, F_OK) == 0;
}

static unsigned clear(const struct cage *cage)
{
	char command[200];
	for (int round = 0; round < 300; round++) {
		if (!is_there(cage->v2) && !is_there(cage->pids) && !is_there(cage->memory))
			break;
		if (is_there(cage->v2))
			put(cage->v2, "cgroup.kill", "1");
		if (is_there(cage->pids))
			kill_members(cage->pids);
		kill_runners(cage->folder);
		if (is_there(cage->memory))
			kill_members(cage->memory);
		poll(NULL, 0, 10);
		if (is_there(cage->v2) && round % 5 == 4)
			remove_tree(cage->v2);
		if (is_there(cage->pids))
			rmdir(cage->pids);
		if (is_there(cage->memory))
			rmdir(cage->memory);
	}
	snprintf(command, sizeof(command), "rm -rf --one-file-system '%s'", cage->folder);
	(void)!system(command);
	return (unsigned)is_there(cage->v2) + is_there(cage->pids) + is_there(cage->memory) + is_there(cage->folder);
}

/* Waits for the end of the run, then clears. Its exit code: what is left. */
static void start_guard(struct cage *cage)
{
	int pair[2];
	if (pipe2(pair, O_CLOEXEC) < 0)
		exit(99);
	fflush(stdout);
	cage->guard_pid = fork();
	if (cage->guard_pid == 0) {
		char byte;
		close(pair[1]);
		/* What ends the run by its group, as a terminal or a test runner does, must not end this. */
		setsid();
		while (read(pair[0], &byte, 1) < 0 && errno == EINTR)
			;
		_exit((int)clear(cage));
	}
	close(pair[0]);
	cage->guard_fd = pair[1];
}

bool cage_make(struct cage *cage)
{
	char v2[60];
	*cage = (struct cage){.v2 = "-", .pids = "-", .memory = "-", .guard_fd = -1};
	snprintf(cage->folder, sizeof(cage->folder), "/tmp/torture-XXXXXX");
	if (!mkdtemp(cage->folder) || chmod(cage->folder, 0755) < 0)
		return false;
	find_v2(v2, sizeof(v2));
	if (v2[0]) {
		snprintf(cage->v2, sizeof(cage->v2), "%s/torture-%d", v2, (int)getpid());
		if (mkdir(cage->v2, 0755) < 0)
			snprintf(cage->v2, sizeof(cage->v2), "-");
	}
	/* All names before the guard starts: it has to know them. */
	if (is_there(PIDS_V1 "/cgroup.procs"))
		snprintf(cage->pids, sizeof(cage->pids), PIDS_V1 "/torture-%d", (int)getpid());
	if (is_there(MEMORY_V1 "/cgroup.procs"))
		snprintf(cage->memory, sizeof(cage->memory), MEMORY_V1 "/torture-%d", (int)getpid());
	start_guard(cage);
	bool capped = cage->pids[0] == '/' && make_leaf(cage->pids, "pids.max", CAGE_PIDS);
	if (cage->memory[0] == '/' && !make_leaf(cage->memory, "memory.limit_in_bytes", CAGE_MEMORY))
		printf("memory is not capped: %s\n", strerror(errno));
	if (!capped && is_there(cage->v2)) {
		char most[32];
		put(v2, "cgroup.subtree_control", "+pids +memory");
		snprintf(most, sizeof(most), "%u", CAGE_PIDS);
		capped = put(cage->v2, "pids.max", most);
		snprintf(most, sizeof(most), "%llu", CAGE_MEMORY);
		put(cage->v2, "memory.max", most);
	}
	if (!capped)
		printf("no controller that caps the number of processes: nothing is started\n");
	return capped;
}

unsigned cage_end(struct cage *cage)
{
	int status = -1;
	close(cage->guard_fd);
	waitpid(cage->guard_pid, &status, 0);
	return WIFEXITED(status) ? (unsigned)WEXITSTATUS(status) : 99;
}

bool cage_enter(const struct cage *cage, const char *place)
{
	char folder[256];
	if (is_there(cage->pids) && !put(cage->pids, "cgroup.procs", "0"))
		return false;
	if (is_there(cage->memory) && !put(cage->memory, "cgroup.procs", "0"))
		return false;
	if (!place[0] || cage->v2[0] != '/')
		return true;
	snprintf(folder, sizeof(folder), "%s/%s", cage->v2, place);
	return put(folder, "cgroup.procs", "0");
}

bool cage_place(const struct cage *cage, const char *place, unsigned owner)
{
	static const char *const files[] = {"", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"};
	char path[256];
	if (cage->v2[0] != '/')
		return false;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "%s/%s%s", cage->v2, place, files[i]);
		if (i == 0 && mkdir(path, 0755) < 0 && errno != EEXIST)
			return false;
		if (owner && chown(path, owner, owner) < 0)
			return false;
	}
	return true;
}
