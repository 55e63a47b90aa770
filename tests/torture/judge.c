/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "judge.h"

#define LOOKS 3

static const struct namespace nowhere;

bool program_copy(struct program_file *program, const char *from, const char *folder, const char *name)
{
	char block[65536];
	struct stat status;
	snprintf(program->path, sizeof(program->path), "%s/%s", folder, name);
	snprintf(program->comm, sizeof(program->comm), "%s", name);
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(program->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	ssize_t got = -1;
	while (in >= 0 && out >= 0 && (got = read(in, block, sizeof(block))) > 0)
		if (write(out, block, (size_t)got) != got)
			break;
	bool good = got == 0 && fchmod(out, 0755) == 0 && fstat(out, &status) == 0;
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	program->device = good ? status.st_dev : 0;
	program->inode = good ? status.st_ino : 0;
	return good;
}

/* --- one process ------------------------------------------------------------------------- */

struct process {
	char comm[32];
	char state;
	pid_t parent;
	unsigned long long start_time;
};

static bool read_process(pid_t pid, struct process *process)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (length <= 0)
		return false;
	text[length] = '\0';
	char *open_bracket = strchr(text, '('), *bracket = strrchr(text, ')');
	if (!open_bracket || !bracket)
		return false;
	*bracket = '\0';
	snprintf(process->comm, sizeof(process->comm), "%s", open_bracket + 1);
	return sscanf(bracket + 2, "%c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
		      &process->state, &process->parent, &process->start_time) == 3;
}

static bool runs(pid_t pid, const struct program_file *program)
{
	char path[64];
	struct stat status;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return stat(path, &status) == 0 && status.st_dev == program->device && status.st_ino == program->inode;
}

static bool is_member(pid_t pid, const struct process *process, struct namespace pidns)
{
	char path[64];
	struct stat status;
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	return pidns.inode && (!pidns.before || process->start_time < pidns.before) && stat(path, &status) == 0 &&
	       status.st_ino == pidns.inode;
}

/* --- all of them ------------------------------------------------------------------------- */

/* False from `look` ends the walk. */
typedef bool (*look_fn)(void *userdata, pid_t pid, const struct process *process);

static void walk(const struct program_file *program, struct namespace pidns, look_fn look, void *userdata)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	while (folder && (entry = readdir(folder))) {
		struct process process;
		pid_t pid = atoi(entry->d_name);
		if (pid <= 0 || !read_process(pid, &process))
			continue;
		if (!runs(pid, program) && strcmp(process.comm, program->comm) != 0 && !is_member(pid, &process, pidns))
			continue;
		/* Its end was somebody else's to wait for, and only the machine's init can: it is over. */
		if (process.state == 'Z' && process.parent == 1)
			continue;
		if (!look(userdata, pid, &process))
			break;
	}
	if (folder)
		closedir(folder);
}

struct tally {
	unsigned all;
	pid_t parent, found;
	const char *comm;
};

static bool tally_one(void *userdata, pid_t pid, const struct process *process)
{
	struct tally *tally = userdata;
	(void)pid, (void)process;
	tally->all++;
	return true;
}

unsigned judge_count(const struct program_file *program, struct namespace pidns)
{
	struct tally tally = {0};
	walk(program, pidns, tally_one, &tally);
	return tally.all;
}

unsigned long long judge_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (unsigned long long)now.tv_sec * (unsigned long long)sysconf(_SC_CLK_TCK) +
	       (unsigned long long)now.tv_nsec / (1000000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
}

static bool find_one(void *userdata, pid_t pid, const struct process *process)
{
	struct tally *tally = userdata;
	/* Keeper, supervisor and init run the same file under names of their own. */
	if (process->state == 'Z' || strcmp(process->comm, tally->comm) != 0 ||
	    (tally->parent && process->parent != tally->parent))
		return true;
	tally->found = pid;
	return false;
}

pid_t judge_find(const struct program_file *program, pid_t parent)
{
	struct tally tally = {.parent = parent, .comm = program->comm};
	walk(program, nowhere, find_one, &tally);
	return tally.found;
}

unsigned judge_left(const struct program_file *program, struct namespace pidns)
{
	unsigned most = 0;
	for (int look = 0; look < LOOKS; look++) {
		unsigned now = judge_count(program, pidns);
		most = now > most ? now : most;
	}
	return most;
}

struct sweep {
	const struct program_file *program;
	unsigned living;
};

static bool end_one(void *userdata, pid_t pid, const struct process *process)
{
	struct sweep *sweep = userdata;
	/* A zombie's parent may be frozen: it is ended later. */
	if (process->state == 'Z' || process->state == 'X')
		return true;
	sweep->living++;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* The descriptor pins the number: what runs our file now is what gets the signal. */
	if (fd >= 0 && runs(pid, sweep->program))
		syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	if (fd >= 0)
		close(fd);
	return true;
}

unsigned judge_sweep(const struct program_file *program)
{
	struct sweep sweep = {.program = program};
	for (int round = 0; round < 500; round++) {
		sweep.living = 0;
		walk(program, nowhere, end_one, &sweep);
		if (!sweep.living)
			break;
		poll(NULL, 0, 10);
	}
	return sweep.living;
}

static bool describe_one(void *userdata, pid_t pid, const struct process *process)
{
	char path[64], cgroup[256] = "";
	unsigned *shown = userdata;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && fgets(cgroup, sizeof(cgroup), file))
		if (strncmp(cgroup, "0::", 3) == 0)
			break;
	if (file)
		fclose(file);
	cgroup[strcspn(cgroup, "\n")] = '\0';
	printf("    pid %d %s state %c parent %d cgroup %s\n", (int)pid, process->comm, process->state,
	       (int)process->parent, cgroup);
	return ++*shown < 12;
}

void judge_describe(const struct program_file *program, struct namespace pidns)
{
	unsigned shown = 0;
	walk(program, pidns, describe_one, &shown);
}

/* --- a stranger -------------------------------------------------------------------------- */

static void collect(pid_t pid, char *facts, size_t size)
{
	char path[64], line[256];
	size_t used = 0;
	struct rlimit files = {0};
	cpu_set_t set;
	static const char *const keys[] = {"PPid:", "TracerPid:", "Uid:", "SigQ:", "SigIgn:", "ShdPnd:"};
	facts[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			if (strncmp(line, keys[i], strlen(keys[i])) == 0 && strcmp(keys[i], "SigQ:") != 0 &&
			    used + strlen(line) < size - 128)
				used += (size_t)snprintf(facts + used, size - used, "%s", line);
	if (file)
		fclose(file);
	CPU_ZERO(&set);
	sched_getaffinity(pid, sizeof(set), &set);
	prlimit(pid, RLIMIT_NOFILE, NULL, &files);
	snprintf(facts + used, size - used, "files %llu processors %d nice %d policy %d",
		 (unsigned long long)files.rlim_cur, CPU_COUNT(&set), getpriority(PRIO_PROCESS, (id_t)pid),
		 sched_getscheduler(pid));
}

void stranger_remember(struct stranger *stranger, pid_t pid)
{
	struct process process = {0};
	read_process(pid, &process);
	stranger->pid = pid;
	stranger->start_time = process.start_time;
	collect(pid, stranger->facts, sizeof(stranger->facts));
}

const char *stranger_harm(const struct stranger *stranger)
{
	static char text[1200];
	char facts[512];
	struct process process;
	if (!read_process(stranger->pid, &process) || process.start_time != stranger->start_time)
		return "it is gone";
	if (process.state != 'S' && process.state != 'R' && process.state != 'D') {
		snprintf(text, sizeof(text), "its state is %c", process.state);
		return text;
	}
	collect(stranger->pid, facts, sizeof(facts));
	if (strcmp(facts, stranger->facts) == 0)
		return NULL;
	snprintf(text, sizeof(text), "before: %s\nafter: %s", stranger->facts, facts);
	return text;
}

/* --- what else may be left ----------------------------------------------------------------- */

unsigned judge_mounts(const char *word)
{
	char line[4096];
	unsigned count = 0;
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && fgets(line, sizeof(line), mounts))
		count += strstr(line, word) != NULL;
	if (mounts)
		fclose(mounts);
	return count;
}

unsigned judge_folders(const char *path)
{
	unsigned count = 0;
	DIR *folder = opendir(path);
	struct dirent *entry;
	while (folder && (entry = readdir(folder))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		char below[512];
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		count += 1 + judge_folders(below);
	}
	if (folder)
		closedir(folder);
	return count;
}
