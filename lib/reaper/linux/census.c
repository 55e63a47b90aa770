/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "census.h"

/* Reads a small file of procfs or cgroupfs whole. Length, or a negative errno. */
static ssize_t read_at(int folder_fd, const char *path, char *text, size_t size)
{
	int fd = openat(folder_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	size_t length = 0;
	ssize_t got = 0;
	while (length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
		length += (size_t)got;
	int error = got < 0 ? errno : 0;
	close(fd);
	text[length] = '\0';
	return error ? -error : (ssize_t)length;
}

bool census_describe(pid_t pid, struct census_entry *ret_entry)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return false;
	/* The name may hold spaces and parentheses: the last ')' ends it (proc(5)). */
	const char *rest = strrchr(text, ')');
	unsigned long long start_time;
	char state;
	if (!rest ||
	    sscanf(rest + 1,
		   " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		   "%llu",
		   &state, &start_time) != 2)
		return false;
	memset(ret_entry, 0, sizeof(*ret_entry));
	ret_entry->pid = pid;
	ret_entry->start_time = start_time;
	ret_entry->state[0] = state;
	snprintf(path, sizeof(path), "/proc/%d/wchan", (int)pid);
	if (read_at(AT_FDCWD, path, ret_entry->wchan, sizeof(ret_entry->wchan)) <= 0)
		ret_entry->wchan[0] = '\0';
	return true;
}

static bool known(const struct census *census, pid_t pid)
{
	for (uint32_t i = 0; i < census->stored; i++)
		if (census->entries[i].pid == pid)
			return true;
	return false;
}

void census_add(struct census *census, pid_t pid, uint32_t most)
{
	if (census->stored >= most) {
		census->count++;
		return;
	}
	struct census_entry entry;
	if (known(census, pid) || !census_describe(pid, &entry))
		return;
	census->count++;
	if (!census->entries && !(census->entries = calloc(most, sizeof(*census->entries))))
		return;
	census->entries[census->stored++] = entry;
}

static int64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void take_pidns(struct census *census, uint64_t inode, pid_t but, uint32_t most)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	/* A mere count comes before a kill, and a fork storm makes new entries as fast as they are read. */
	int64_t end_us = most ? INT64_MAX : now_us() + CENSUS_COUNT_US;
	while (folder && now_us() < end_us && (entry = readdir(folder))) {
		char path[300];
		struct stat status;
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "%s/ns/pid", entry->d_name);
		if (fstatat(dirfd(folder), path, &status, 0) == 0 && status.st_ino == inode &&
		    atoi(entry->d_name) != but)
			census_add(census, atoi(entry->d_name), most);
	}
	if (folder)
		closedir(folder);
}

static void take_cgroup(struct census *census, int cgroup_fd, pid_t but, uint32_t most)
{
	int fd = openat(cgroup_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *members = fd >= 0 ? fdopen(fd, "re") : NULL;
	if (!members) {
		if (fd >= 0)
			close(fd);
		return;
	}
	int pid;
	while (fscanf(members, "%d", &pid) == 1)
		if (pid > 0 && pid != but)
			census_add(census, pid, most);
	fclose(members);
}

bool census_count_list(const char *path, pid_t but, uint32_t *ret_count)
{
	char text[8192];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int64_t end_us = now_us() + CENSUS_COUNT_US;
	uint32_t count = 0;
	pid_t pid = 0;
	ssize_t got = -1;
	/* A number may be cut between two reads; each ends in a newline. */
	while (fd >= 0 && (got = read(fd, text, sizeof(text))) > 0 && now_us() < end_us)
		for (ssize_t i = 0; i < got; i++) {
			if (text[i] != '\n') {
				pid = pid * 10 + (text[i] - '0');
				continue;
			}
			count += pid > 0 && pid != but;
			pid = 0;
		}
	if (fd >= 0)
		close(fd);
	if (got < 0)
		return false;
	*ret_count = count;
	return true;
}

void census_take(struct census *census, uint64_t pidns_inode, int cgroup_fd, pid_t but,
		 uint32_t most)
{
	memset(census, 0, sizeof(*census));
	/* The cgroup is the cheaper list; whoever left it is still in the namespace. */
	if (cgroup_fd >= 0)
		take_cgroup(census, cgroup_fd, but, most);
	if (pidns_inode && (cgroup_fd < 0 || most))
		take_pidns(census, pidns_inode, but, most);
}

/* A zombie is listed there like the others. */
static bool lives(int proc_fd, const char *pid)
{
	char path[300], text[512];
	snprintf(path, sizeof(path), "%s/stat", pid);
	const char *end = read_at(proc_fd, path, text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
	return end && end[1] == ' ' && end[2] != 'Z' && end[2] != 'X';
}

void census_count_inside(struct census *census, int proc_fd)
{
	int again = openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = again >= 0 ? fdopendir(again) : NULL;
	int64_t end_us = now_us() + CENSUS_COUNT_US;
	struct dirent *entry;
	memset(census, 0, sizeof(*census));
	while (folder && now_us() < end_us && (entry = readdir(folder)))
		census->count += isdigit((unsigned char)entry->d_name[0]) && strcmp(entry->d_name, "1") != 0 &&
				 lives(again, entry->d_name);
	if (folder)
		closedir(folder);
	else if (again >= 0)
		close(again);
}

void census_free(struct census *census)
{
	free(census->entries);
	memset(census, 0, sizeof(*census));
}

#define PF_EXITING 0x4ul /* include/linux/sched.h; field 9 of /proc/PID/stat */

/* It runs no program any more. */
static bool is_exiting(pid_t pid)
{
	char path[64], text[1024];
	unsigned long flags;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	const char *rest = read_at(AT_FDCWD, path, text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
	return rest && sscanf(rest + 1, " %*c %*s %*s %*s %*s %*s %lu", &flags) == 1 && flags & PF_EXITING;
}

struct place {
	char state;
	uid_t uid;
	int depth;     /* of PID namespaces below that of /proc */
	int innermost; /* its number there */
};

static bool find_place(const char *pid, struct place *ret_place)
{
	char path[300], text[4096];
	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	if (read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return false;
	const char *state = strstr(text, "\nState:"), *uid = strstr(text, "\nUid:");
	const char *numbers = strstr(text, "\nNSpid:");
	if (!state || !uid || !numbers || sscanf(state, " State: %c", &ret_place->state) != 1 ||
	    sscanf(uid, " Uid: %u", &ret_place->uid) != 1)
		return false;
	ret_place->depth = -1;
	for (const char *next = numbers + strlen("\nNSpid:"); *next == '\t'; next += strcspn(next, "\t\n")) {
		ret_place->innermost = atoi(++next);
		ret_place->depth++;
	}
	return true;
}

/* One that is not seen in its namespace may be a member and alive. */
static bool is_blind(pid_t init)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	struct place own, place;
	bool blind = !folder || !find_place("self", &own);
	while (!blind && (entry = readdir(folder))) {
		char path[300];
		struct stat status;
		if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == init)
			continue;
		snprintf(path, sizeof(path), "%s/ns/pid", entry->d_name);
		if (fstatat(dirfd(folder), path, &status, 0) == 0 || errno == ENOENT ||
		    !find_place(entry->d_name, &place))
			continue;
		/* The init of another scope is not a member of this one. */
		bool is_init = place.depth == own.depth + 1 && place.innermost == 1;
		blind = place.state != 'Z' && place.uid == own.uid && place.depth > own.depth && !is_init;
	}
	if (folder)
		closedir(folder);
	return blind;
}

bool census_is_unreaped(const struct census *census, pid_t init)
{
	uint32_t zombies = 0;
	bool exiting = is_exiting(init);
	for (uint32_t i = 0; i < census->stored; i++) {
		bool zombie = census->entries[i].state[0] == 'Z';
		if (!zombie && !(exiting && census->entries[i].pid == init))
			return false;
		zombies += zombie;
	}
	return zombies && census->count == census->stored && !is_blind(init);
}

int leaf_populated(int cgroup_fd)
{
	char text[256];
	int fd = openat(cgroup_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	/* One read gives all of a small file of cgroupfs. */
	ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	int error = errno;
	if (fd >= 0)
		close(fd);
	if (length < 0)
		return error == ENOENT ? -ENODEV : -error;
	text[length] = '\0';
	const char *line = strstr(text, "populated ");
	if (!line)
		return -EPROTO;
	return line[strlen("populated ")] == '0' ? 0 : 1;
}

int leaf_kill(int cgroup_fd)
{
	int fd = openat(cgroup_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENODEV : -errno;
	int error = write(fd, "1", 1) == 1 ? 0 : -errno;
	close(fd);
	return error;
}

/* Depth first. A load that nests deeper than this has to be helped by hand; its processes are dead
 * all the same. */
static int remove_below(int parent_fd, const char *name, int depth)
{
	if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY || depth == 0)
		return -errno;
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	if (!folder) {
		if (fd >= 0)
			close(fd);
		return -EBUSY;
	}
	while ((entry = readdir(folder)))
		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 &&
		    strcmp(entry->d_name, "..") != 0)
			remove_below(dirfd(folder), entry->d_name, depth - 1);
	closedir(folder);
	return unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

int leaf_remove(int base_fd, const char *name)
{
	return remove_below(base_fd, name, 32);
}
