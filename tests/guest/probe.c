/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scope gets where this program runs, as NAME=VALUE lines for tests/guest/run, which judges them. Looks for
 * itself at what the library says.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orch.h>

static void fail(const char *what, const orch_error *error)
{
	printf("failed=%s: %s\n", what, error ? orch_error_message(error) : strerror(errno));
	exit(1);
}

static void say_file(const char *name, const char *folder, const char *file)
{
	char path[512], line[256] = "";
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	FILE *opened = fopen(path, "re");
	if (!opened) {
		printf("%s=absent\n", name);
		return;
	}
	if (!fgets(line, sizeof(line), opened))
		line[0] = '\0';
	fclose(opened);
	line[strcspn(line, "\n")] = '\0';
	printf("%s=%s\n", name, line);
}

static void say_kernel(void)
{
	struct utsname kernel;
	struct statfs cgroups;
	if (uname(&kernel) < 0 || statfs("/sys/fs/cgroup", &cgroups) < 0)
		fail("kernel", NULL);
	printf("release=%s\n", kernel.release);
	/* CGROUP2_SUPER_MAGIC (linux/magic.h). */
	printf("hierarchy=%s\n", cgroups.f_type == 0x63677270 ? "v2" : "other");
	printf("uid=%d\n", (int)geteuid());
	say_file("own", "/proc/self", "cgroup");
}

/* Before 6.9 all pidfds are one anonymous inode. */
static void say_pidfds(void)
{
	struct stat one, other;
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	int first = (int)syscall(SYS_pidfd_open, getpid(), 0);
	int second = (int)syscall(SYS_pidfd_open, child, 0);
	if (child < 0 || first < 0 || second < 0 || fstat(first, &one) < 0 || fstat(second, &other) < 0)
		fail("pidfd", NULL);
	printf("pidfds=%s\n", one.st_ino == other.st_ino ? "one inode" : "own inodes");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(first);
	close(second);
}

static void say_controllers(const char *leaf)
{
	char base[512];
	snprintf(base, sizeof(base), "%s", leaf);
	char *last = strrchr(base, '/');
	if (!last)
		return;
	*last = '\0';
	printf("leaf=%s\n", leaf);
	say_file("base.controllers", base, "cgroup.controllers");
	say_file("leaf.controllers", leaf, "cgroup.controllers");
	say_file("leaf.memory.max", leaf, "memory.max");
	say_file("leaf.pids.max", leaf, "pids.max");
	say_file("leaf.cpu.max", leaf, "cpu.max");
}

static void say_limits(orch_scope *scope)
{
	static const struct {
		const char *name;
		uint32_t limit;
	} limits[] = {{"memory", ORCH_LIMIT_MEMORY}, {"processes", ORCH_LIMIT_PROCESSES}, {"cpu", ORCH_LIMIT_CPU}};
	static const char *const states[] = {"?", "unasked", "enforced", "partial", "absent"};
	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
		uint32_t state = 0;
		const char *mechanism = "";
		if (orch_scope_limit(scope, limits[i].limit, &state, &mechanism) < 0)
			fail("limit", NULL);
		printf("limit.%s=%s\n", limits[i].name, states[state]);
		printf("limit.%s.mechanism=%s\n", limits[i].name, mechanism);
	}
}

/* The library's word for the member, and the kernel's. */
static void say_member(orch_scope *scope)
{
	const char *leaf = orch_scope_cgroup(scope);
	char folder[64], line[512] = "", *path;
	snprintf(folder, sizeof(folder), "/proc/%d/cgroup", orch_scope_init_pid(scope));
	FILE *groups = fopen(folder, "re");
	if (!groups || !fgets(line, sizeof(line), groups))
		fail("init's cgroup", NULL);
	fclose(groups);
	line[strcspn(line, "\n")] = '\0';
	path = line + strlen("0::");
	size_t length = strlen(path), whole = strlen(leaf);
	bool inside = whole > length && strcmp(leaf + whole - length, path) == 0;
	printf("init.in_leaf=%s\n", inside ? "yes" : "no");
}

int main(void)
{
	orch_error *error = NULL;
	orch_ctx *ctx = NULL;
	orch_scope *scope = NULL;
	orch_proc *proc = NULL;
	orch_death *death = NULL;
	struct orch_ctx_opts ctx_opts;
	struct orch_scope_opts scope_opts;
	struct orch_proc_opts opts;
	const char *const sleeper[] = {"sleep", "600", NULL};
	setvbuf(stdout, NULL, _IOLBF, 0);
	say_kernel();
	say_pidfds();

	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	ctx_opts.helper_path = getenv("ORCH_PROBE_HELPER");
	orch_scope_opts_init(&scope_opts, sizeof(scope_opts));
	scope_opts.memory_limit_bytes = 64 << 20;
	scope_opts.process_limit = 99;
	scope_opts.cpu_limit_percent = 150;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = sleeper;
	if (orch_ctx_new(&ctx_opts, &ctx, &error) < 0 || orch_scope_new(ctx, &scope_opts, &scope, &error) < 0 ||
	    orch_scope_spawn(scope, &opts, &proc, &error) < 0 ||
	    orch_scope_start_wait(scope, 60000, &error) < 0)
		fail("scope", error);
	printf("rung=%u\n", (unsigned)orch_scope_rung(scope));
	say_limits(scope);
	if (orch_scope_cgroup(scope)[0]) {
		say_controllers(orch_scope_cgroup(scope));
		say_member(scope);
	}
	if (orch_scope_stop_wait(scope, NULL, &death, &error) < 0)
		fail("stop", error);
	printf("verdict=%s\n", orch_death_verdict_name(death));
	printf("mechanism=%s\n", orch_death_mechanism(death));
	printf("proof=%s\n", orch_death_proof(death));
	if (orch_scope_cgroup(scope)[0])
		printf("leaf.after=%s\n", access(orch_scope_cgroup(scope), F_OK) == 0 ? "there" : "gone");
	orch_death_unref(death);
	orch_proc_unref(proc);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	return 0;
}
