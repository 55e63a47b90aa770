/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_SANDBOX_FIXTURE_H
#define TEST_SANDBOX_FIXTURE_H

/*
 * Shared by the sandbox's tests. Each test case runs in a process of its own, as the calling user
 * and, where that is root, again as uid 1000. Programs inside are this test program itself
 * (`--attack NAME ...`) or the host's tools.
 */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <orch.h>

#include "kernel.h"

#define USER 1000
/* Of the build tree; orch-reaper-test leaves out what a test asks for. */
#ifndef FIXTURE_HELPER
#define FIXTURE_HELPER "orch-reaper"
#endif

static char folder[64];	     /* of this run; holds copies that every uid can run */
static char helper_path[96]; /* orch-reaper */
static char self_path[96];   /* this program */

#define OK(call)                                                                                   \
	do {                                                                                       \
		orch_error *error_ = NULL;                                                         \
		orch_error **e = &error_;                                                          \
		int32_t code_ = (call);                                                            \
		ck_assert_msg(code_ == 0, "%s: %s (%s)", #call, orch_error_message(error_),        \
			      orch_error_step(error_));                                            \
		(void)e;                                                                           \
	} while (0)

/* Fails with `code`, and says so in words that hold `words`. */
#define REFUSED(code, words, call)                                                                 \
	do {                                                                                       \
		orch_error *error_ = NULL;                                                         \
		orch_error **e = &error_;                                                          \
		int32_t code_ = (call);                                                            \
		ck_assert_msg(code_ == (code), "%s: %s: %s", #call, orch_code_name(code_),         \
			      orch_error_message(error_));                                         \
		ck_assert_msg(strstr(orch_error_message(error_), words) != NULL, "%s",             \
			      orch_error_message(error_));                                         \
		orch_error_free(error_);                                                           \
	} while (0)

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SH(script) ARGV("/bin/sh", "-c", script)
#define INSIDE "/attack/self"

static inline bool copy_file(const char *from, const char *to)
{
	char bytes[65536];
	ssize_t n = -1;
	int source = open(from, O_RDONLY | O_CLOEXEC);
	int copy = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

	while (source >= 0 && copy >= 0 && (n = read(source, bytes, sizeof(bytes))) > 0)
		if (write(copy, bytes, (size_t)n) != n)
			break;
	bool done = n == 0 && fchmod(copy, 0755) == 0;

	if (!done)
		fprintf(stderr, "%s can not be copied to %s: %s\n", from, to, strerror(errno));
	if (source >= 0)
		close(source);
	if (copy >= 0)
		close(copy);
	return done;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void remove_tree(const char *path)
{
	nftw(path, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
}

/* As root the tests run twice: loop index 0 as root, 1 as an ordinary user. Once where ORCH_TEST_ONCE is set. */
static inline int identities(void)
{
	return geteuid() == 0 && !getenv("ORCH_TEST_ONCE") ? 2 : 1;
}

static inline void become(int identity)
{
	if (identity == 0)
		return;
	ck_assert(setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 &&
		  setresuid(USER, USER, USER) == 0);
}

/*
 * Where the kernel can not make an overlay (before 6.6 tmpfs has no attributes of users) that is said by name, and a copy of
 * the folder as workspace does instead. A test that needs one is then a test of that.
 */
#define NO_OVERLAYS kernel_is_before(6, 6)
#define OVERLAY_REFUSED(call) REFUSED(ORCH_EUNENFORCEABLE, "use Linux 6.6", call)

/* A fresh folder of the calling user; removed with the run's. */
static inline char *new_folder(void)
{
	static char paths[16][96];
	static int count;
	char *path = paths[count++ % 16];

	snprintf(path, sizeof(paths[0]), "%s/files/XXXXXX", folder);
	ck_assert_msg(mkdtemp(path) != NULL, "%s: %s", path, strerror(errno));
	return path;
}

static inline const char *in(const char *parent, const char *name)
{
	static char paths[16][192];
	static int count;
	char *path = paths[count++ % 16];

	snprintf(path, sizeof(paths[0]), "%s/%s", parent, name);
	return path;
}

static inline void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_msg(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s: %s",
		      path, strerror(errno));
	close(fd);
}

static inline bool holds(const char *path, const char *text)
{
	char bytes[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

static inline orch_ctx *ctx_new(void)
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;

	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = helper_path;
	OK(orch_ctx_new(&opts, &ctx, e));
	return ctx;
}

/* With this program at INSIDE. */
static inline orch_sandbox *sandbox_new(orch_ctx *ctx, const struct orch_sandbox_opts *opts)
{
	orch_sandbox *sandbox = NULL;

	OK(orch_sandbox_new(ctx, opts, &sandbox, e));
	OK(orch_sandbox_add_path(sandbox, self_path, INSIDE, ORCH_PATH_READ | ORCH_PATH_EXEC, e));
	return sandbox;
}

struct outcome {
	int32_t status;
	char out[8192], err[2048];
	uint32_t verdict;
};

/* Runs to the certificate, which may be `verdict` at worst, and drops the sandbox. */
static inline struct outcome run_to(orch_sandbox *sandbox, const char *const *argv, const struct orch_run_opts *opts,
				    uint32_t verdict)
{
	struct outcome outcome = {0};
	orch_sandbox_result *result = NULL;
	struct orch_run_opts patient;

	/* For what hangs only. */
	orch_run_opts_init(&patient, sizeof(patient));
	patient.timeout_ms = 600000;
	OK(orch_sandbox_run(sandbox, argv, opts ? opts : &patient, &result, e));
	outcome.status = orch_sandbox_result_status(result);
	for (int stream = 1; stream <= 2; stream++) {
		size_t length = 0;
		const char *text = orch_sandbox_result_output(result, stream, &length);
		char *to = stream == 1 ? outcome.out : outcome.err;
		size_t room = stream == 1 ? sizeof(outcome.out) : sizeof(outcome.err);

		length = length < room ? length : room - 1;
		memcpy(to, text, length);
		to[length] = '\0';
	}
	outcome.verdict = orch_death_verdict(orch_sandbox_result_death(result));
	ck_assert_msg(outcome.verdict == ORCH_DEATH_DEAD || outcome.verdict == verdict, "%s",
		      orch_death_text(orch_sandbox_result_death(result)));
	orch_sandbox_result_unref(result);
	orch_sandbox_unref(sandbox);
	return outcome;
}

static inline struct outcome run_opts(orch_sandbox *sandbox, const char *const *argv,
				      const struct orch_run_opts *opts)
{
	return run_to(sandbox, argv, opts, ORCH_DEATH_DEAD);
}

static inline struct outcome run(orch_sandbox *sandbox, const char *const *argv)
{
	return run_opts(sandbox, argv, NULL);
}

/* The same program outside: what a positive control is. */
static inline int run_outside(const char *const *argv)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		execv(argv[0], (char *const *)argv);
		_exit(126);
	}
	ck_assert(child > 0 && waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static inline int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* The number that a command prints. */
static inline unsigned count_lines(const char *command)
{
	unsigned count = 0;
	FILE *pipe = popen(command, "re");

	ck_assert(pipe && fscanf(pipe, "%u", &count) == 1);
	pclose(pipe);
	return count;
}

/* The programs' copies, and a folder where both identities may make theirs. */
static inline int fixture_main(char **argv, Suite *suite)
{
	char helper[512], self[512];
	const char *build = getenv("ORCH_BUILD_ROOT");
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	(void)argv;
	if (!build || n <= 0) {
		fprintf(stderr, "ORCH_BUILD_ROOT is not set: run this by `meson test`\n");
		return 1;
	}
	self[n] = '\0';
	snprintf(folder, sizeof(folder), "/tmp/orch-sandbox-test-XXXXXX");
	if (!mkdtemp(folder) || chmod(folder, 0755) < 0 || mkdir(in(folder, "files"), 0777) < 0 ||
	    chmod(in(folder, "files"), 01777) < 0)
		return 1;
	snprintf(helper, sizeof(helper), "%s/lib/helper/" FIXTURE_HELPER, build);
	snprintf(helper_path, sizeof(helper_path), "%s/orch-reaper", folder);
	snprintf(self_path, sizeof(self_path), "%s/self", folder);
	if (!copy_file(helper, helper_path) || !copy_file(self, self_path)) {
		remove_tree(folder);
		return 1;
	}

	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	remove_tree(folder);
	return failed ? 1 : 0;
}

#endif
