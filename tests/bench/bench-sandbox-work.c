/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work as agents have it, inside a sandbox and outside: a clone of a repository and a build of small C files, each in a
 * folder of its own of the same file system. What the walls cost while a program runs.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench-sandbox.h"

/* The same for both; TMPDIR is the folder, because /tmp is another file system inside. */
static const char *const environment[] = {
	"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1",
	"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=b", "GIT_AUTHOR_EMAIL=b@localhost", "GIT_COMMITTER_NAME=b",
	"GIT_COMMITTER_EMAIL=b@localhost", NULL};

#define MAKE_REPOSITORY                                                                                                \
	"mkdir repository && cd repository && git init -q && i=0 && while [ $i -lt %u ]; do mkdir -p d$((i %% 20)) && "  \
	"seq $i $((i + 900)) > d$((i %% 20))/f$i.txt; i=$((i + 1)); done && git add . && git commit -qm all"
#define MAKE_SOURCES                                                                                                   \
	"mkdir build && cd build && i=0 && while [ $i -lt %u ]; do printf '#include <stdio.h>\\n#include <stdlib.h>\\n"   \
	"#include <string.h>\\nint f%%d(int x);\\nint f%%d(int x) { char b[64]; snprintf(b, sizeof(b), \"%%%%d\", x); "   \
	"return (int)strlen(b) + atoi(b); }\\n' $i $i > f$i.c; i=$((i + 1)); done"
#define CLONE "git clone -q --no-hardlinks repository clone"
#define BUILD "cd build && for f in *.c; do cc -O1 -c $f || exit 1; done"

static const struct work {
	const char *name, *needs, *prepare, *script, *clean;
	unsigned per_file; /* of --files */
	unsigned times;	   /* in a turn: what is short is mostly what the disk does just then */
} works[] = {
	{"work-clone", "/usr/bin/git", MAKE_REPOSITORY, CLONE, "rm -rf clone", 10, 5},
	{"work-build", "/usr/bin/cc", MAKE_SOURCES, BUILD, "rm -f build/*.o", 1, 1},
};
#define TIMES_MOST 5

/* In `folder`, where it is seen by who runs it. */
static void shell(char *text, size_t size, const char *folder, const char *script)
{
	snprintf(text, size, "cd %s && export TMPDIR=%s && %s", folder, folder, script);
}

static int outside(const char *folder, const char *script, double *ret_us)
{
	char text[PATH_MAX * 2 + 1024];
	const char *const argv[] = {"/bin/sh", "-c", text, NULL};
	shell(text, sizeof(text), folder, script);
	return peer_run(argv, environment, ret_us);
}

static int inside(orch_sandbox *sandbox, const char *script, double *ret_us)
{
	char text[1200];
	const char *const argv[] = {"/bin/sh", "-c", text, NULL};
	shell(text, sizeof(text), "/work", script);
	return sandbox_spawn(sandbox, argv, environment, ret_us);
}

/* Once each, now this one first and now that one. */
static int both(const struct work *work, orch_sandbox *sandbox, const char *folder, bool own_first, double *own_us,
		double *bare_us)
{
	double ignored;
	if (bench_stopped())
		return bench_fail("interrupted");
	if ((own_first && inside(sandbox, work->script, own_us) < 0) || outside(folder, work->script, bare_us) < 0 ||
	    (!own_first && inside(sandbox, work->script, own_us) < 0) || inside(sandbox, work->clean, &ignored) < 0 ||
	    outside(folder, work->clean, &ignored) < 0)
		return -1;
	return 0;
}

static int turn(const struct work *work, orch_sandbox *sandbox, const char *folder, struct bench_series *own,
		struct bench_series *bare)
{
	double own_us[TIMES_MOST], bare_us[TIMES_MOST];
	for (unsigned i = 0; i < work->times; i++)
		if (both(work, sandbox, folder, (own->count + i) % 2 == 0, &own_us[i], &bare_us[i]) < 0)
			return -1;
	own->values[own->count++] = bench_median(own_us, work->times);
	bare->values[bare->count++] = bench_median(bare_us, work->times);
	return 0;
}

/* The workspace belongs to the sandbox afterwards. */
static int workplace(orch_ctx *ctx, const char *folder, orch_sandbox **ret_sandbox)
{
	orch_error *error = NULL;
	int32_t code = orch_sandbox_new(ctx, NULL, ret_sandbox, &error);
	if (code == 0)
		code = orch_sandbox_set_workspace(*ret_sandbox, folder, NULL, &error);
	if (code == 0)
		code = orch_sandbox_start_wait(*ret_sandbox, 60000, &error);
	return code < 0 ? reaper_fail("a sandbox with a workspace", error) : 0;
}

static int prepare(const struct bench_options *options, const struct work *work, const char *folder)
{
	char script[1024];
	double ignored;
	if (mkdir(folder, 0755) < 0)
		return bench_fail("%s: %s", folder, strerror(errno));
	snprintf(script, sizeof(script), work->prepare, options->files * work->per_file);
	return outside(folder, script, &ignored);
}

static int work_row(const struct bench_options *options, struct bench_report *report, orch_ctx *ctx,
		    const struct work *work, const char *folder)
{
	struct bench_series own = {0}, bare = {0};
	char ours[PATH_MAX + 16], theirs[PATH_MAX + 16];
	orch_sandbox *sandbox = NULL;
	double ignored;
	snprintf(ours, sizeof(ours), "%s/inside", folder);
	snprintf(theirs, sizeof(theirs), "%s/outside", folder);
	int r = prepare(options, work, ours);
	if (r == 0)
		r = prepare(options, work, theirs);
	if (r == 0)
		r = workplace(ctx, ours, &sandbox);
	while (r == 0 && own.count < options->pairs)
		r = turn(work, sandbox, theirs, &own, &bare);
	if (orch_sandbox_scope(sandbox) && sandbox_stop(sandbox, &ignored) < 0)
		r = -1;
	if (r == 0)
		bench_goal(bench_add(report, work->name, "us", &own, "outside", &bare), BENCH_GOAL_RATIO_AT_MOST,
			   1.05);
	return r;
}

int bench_sandbox_work(const struct bench_options *options, struct bench_report *report, orch_ctx *ctx)
{
	bench_note(report, "work-*: a clone of 10 times --files files, a build of --files ones, in a folder of --dir.");
	for (unsigned i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
		char folder[PATH_MAX];
		if (access(works[i].needs, X_OK) < 0) {
			bench_goal(bench_add_missing(report, works[i].name, "us", "its programs are not installed"),
				   BENCH_GOAL_RATIO_AT_MOST, 1.05);
			continue;
		}
		if (snprintf(folder, sizeof(folder), "%s/orch-bench-XXXXXX", options->dir) >= (int)sizeof(folder) ||
		    !mkdtemp(folder))
			return bench_fail("%s: %s", options->dir, strerror(errno));
		/* A sandbox's uid has to get there. */
		int r = chmod(folder, 0755) < 0 ? bench_fail("%s: %s", folder, strerror(errno)) : 0;
		if (r == 0)
			r = work_row(options, report, ctx, &works[i], folder);
		bench_remove_folder(folder);
		if (r < 0)
			return -1;
	}
	return 0;
}
