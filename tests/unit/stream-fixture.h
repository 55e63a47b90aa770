/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_STREAM_FIXTURE_H
#define ORCH_STREAM_FIXTURE_H

/* What test-stream.c and test-terminal.c have in common: programs that write (--stream NAME ...), and what a host sees. */

#include <glob.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "../crash/liveness-fixture.h"

#define STREAM_LOAD(...) ARGV(self_path, "--stream", __VA_ARGS__)

/* For what is looked at very often: libcheck writes down the place of each ck_assert(), also of one that holds. */
#define HOLDS(expression)                                                                                              \
	do {                                                                                                           \
		if (!(expression))                                                                                     \
			ck_abort_msg("%s", #expression);                                                               \
	} while (0)

/* No two neighbouring pages of it are alike. */
static inline uint8_t pattern(uint64_t position)
{
	return (uint8_t)(position * 31 + (position >> 8) * 17 + (position >> 16) * 7);
}

/* --- programs ---------------------------------------------------------------------------- */

/* What a program says about itself, in a file that the host has mapped. */
struct counter {
	volatile uint64_t written;
	char path[64];
};

static inline struct counter *counter_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *page = mmap(NULL, sizeof(struct counter), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return page == MAP_FAILED ? NULL : page;
}

static char counter_prefix[40]; /* by which all are removed, also those of tests that failed */

static inline struct counter *counter_new(void)
{
	char path[64];
	snprintf(path, sizeof(path), "%sXXXXXX", counter_prefix);
	int fd = mkostemp(path, O_CLOEXEC);
	ck_assert(fd >= 0 && ftruncate(fd, sizeof(struct counter)) == 0);
	close(fd);
	struct counter *counter = counter_map(path);
	ck_assert_ptr_nonnull(counter);
	snprintf(counter->path, sizeof(counter->path), "%s", path);
	return counter;
}

static inline void counter_free(struct counter *counter)
{
	unlink(counter->path);
	munmap(counter, sizeof(*counter));
}

/* Counts only what write(2) has taken. */
static inline int load_pattern(uint64_t total, struct counter *counter)
{
	static uint8_t bytes[4096];
	for (uint64_t done = 0; done < total;) {
		size_t length = total - done < sizeof(bytes) ? (size_t)(total - done) : sizeof(bytes);
		for (size_t i = 0; i < length; i++)
			bytes[i] = pattern(done + i);
		ssize_t put = write(1, bytes, length);
		if (put <= 0)
			return 9;
		done += (uint64_t)put;
		if (counter)
			counter->written = done;
	}
	return 0;
}

static inline int stream_load(int argc, char **argv)
{
	size_t length = argc > 1 ? strlen(argv[1]) : 0;
	if (strcmp(argv[0], "pattern") == 0)
		return load_pattern(strtoull(argv[1], NULL, 10), argc > 2 ? counter_map(argv[2]) : NULL);
	if (strcmp(argv[0], "text") == 0)
		return write(1, argv[1], length) == (ssize_t)length ? 0 : 9;
	if (strcmp(argv[0], "letters") == 0) {
		for (size_t i = 0; i < length; i++)
			if (write(1, argv[1] + i, 1) != 1)
				return 9;
		return 0;
	}
	return 98;
}

static inline int stream_main(int argc, char **argv)
{
	if (argc >= 3 && strcmp(argv[1], "--stream") == 0)
		return stream_load(argc - 2, argv + 2);
	snprintf(counter_prefix, sizeof(counter_prefix), "/tmp/test-stream-%d-", (int)getpid());
	int result = fixture_main(argc, argv);
	char pattern_of_all[64];
	glob_t left = {0};
	snprintf(pattern_of_all, sizeof(pattern_of_all), "%s*", counter_prefix);
	if (glob(pattern_of_all, 0, NULL, &left) == 0)
		for (size_t i = 0; i < left.gl_pathc; i++)
			unlink(left.gl_pathv[i]);
	globfree(&left);
	return result;
}

/* --- what the host sees ------------------------------------------------------------------ */

struct seen {
	bool check; /* it has to be the pattern */
	struct counter *counter;
	uint64_t pause_every, ahead;
	bool paused;

	uint64_t bytes;
	char text[4096]; /* its beginning, terminated */
	int ends, destroyed, exits, rooms, certificates;
	uint32_t reason;
	uint64_t bytes_at_exit;
	uint32_t reason_at_exit;
	orch_stream *stream; /* a handle that callbacks drop */
};

static inline void on_data(void *userdata, orch_stream *stream, const void *bytes, size_t length)
{
	struct seen *seen = userdata;
	uint64_t before = seen->bytes;
	HOLDS(seen->ends == 0);
	HOLDS(length > 0);
	HOLDS(!seen->paused);
	for (size_t i = 0; seen->check && i < length; i++)
		if (((const uint8_t *)bytes)[i] != pattern(before + i))
			ck_abort_msg("byte %llu is another one", (unsigned long long)(before + i));
	for (size_t i = 0; i < length && before + i < sizeof(seen->text) - 1; i++)
		seen->text[before + i] = ((const char *)bytes)[i];
	seen->bytes += length;
	HOLDS(orch_stream_bytes(stream) == seen->bytes);
	HOLDS(!seen->counter || seen->counter->written <= seen->bytes + seen->ahead);
	if (seen->pause_every && before / seen->pause_every != seen->bytes / seen->pause_every) {
		OK(orch_stream_pause(stream, e));
		seen->paused = true;
	}
}

static inline void close_in_data(void *userdata, orch_stream *stream, const void *bytes, size_t length)
{
	on_data(userdata, stream, bytes, length);
	OK(orch_stream_close(stream, e));
}

static inline void on_end(void *userdata, orch_stream *stream, uint32_t reason)
{
	struct seen *seen = userdata;
	ck_assert_uint_eq(orch_stream_reason(stream), reason);
	ck_assert_int_eq(seen->destroyed, 0);
	seen->ends++;
	seen->reason = reason;
}

static inline void on_writable(void *userdata, orch_stream *stream)
{
	struct seen *seen = userdata;
	(void)stream;
	seen->rooms++;
}

static inline void on_stream_destroyed(void *userdata)
{
	struct seen *seen = userdata;
	seen->destroyed++;
}

static inline void on_program(void *userdata, orch_proc *proc, uint32_t event)
{
	struct seen *seen = userdata;
	(void)proc;
	if (event == ORCH_PROC_STARTED)
		return;
	seen->exits++;
	seen->bytes_at_exit = seen->bytes;
	seen->reason_at_exit = seen->reason;
}

/* `seen` may be NULL. */
static inline orch_stream *stream_make(orch_ctx *ctx, struct orch_stream_opts *opts, struct seen *seen)
{
	orch_stream *stream = NULL;
	if (seen) {
		opts->data = opts->kind == ORCH_STREAM_INPUT ? NULL : on_data;
		opts->end = on_end;
		opts->writable = on_writable;
		opts->userdata = seen;
		opts->destroy = on_stream_destroyed;
	}
	OK(orch_stream_new(ctx, opts, &stream, e));
	return stream;
}

static inline orch_stream *output_new(orch_ctx *ctx, struct seen *seen, uint32_t flags)
{
	struct orch_stream_opts opts;
	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_OUTPUT;
	opts.flags = flags;
	return stream_make(ctx, &opts, seen);
}

static inline orch_stream *input_new(orch_ctx *ctx, struct seen *seen, uint64_t queue_limit_bytes)
{
	struct orch_stream_opts opts;
	orch_stream_opts_init(&opts, sizeof(opts));
	opts.kind = ORCH_STREAM_INPUT;
	opts.queue_limit_bytes = queue_limit_bytes;
	return stream_make(ctx, &opts, seen);
}

static inline orch_proc *spawn_seen(orch_scope *scope, struct seen *seen, orch_stream *in, orch_stream *out,
				    orch_stream *err, const char *const *argv)
{
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.stdin_stream = in;
	opts.stdout_stream = out;
	opts.stderr_stream = err;
	if (seen) {
		opts.event = on_program;
		opts.userdata = seen;
	}
	return spawn_opts(scope, &opts, argv);
}

static inline void assert_over(const struct seen *seen, orch_stream *stream, uint32_t reason, uint64_t bytes)
{
	ck_assert_uint_eq(seen->bytes, bytes);
	ck_assert_uint_eq(seen->reason, reason);
	ck_assert_int_eq(seen->ends, 1);
	ck_assert_int_eq(seen->destroyed, 1);
	ck_assert_uint_eq(orch_stream_reason(stream), reason);
	ck_assert_uint_eq(orch_stream_bytes(stream), bytes);
}

static inline bool has_line(const struct seen *seen, const char *line)
{
	size_t length = strlen(line);
	for (const char *at = seen->text; (at = strstr(at, line)); at++)
		if ((at == seen->text || at[-1] == '\n') && (at[length] == '\n' || at[length] == '\r'))
			return true;
	return false;
}

static inline bool never(void *userdata)
{
	(void)userdata;
	return false;
}

/* Whatever comes within some milliseconds each. */
static inline void turns(orch_ctx *ctx, int count)
{
	for (int i = 0; i < count; i++)
		orch_ctx_wait(ctx, 5, never, NULL, NULL);
}

/* Until the program has written so much, and for long enough that it is mostly gone as well. */
static inline void wait_without_turns(const struct counter *counter, uint64_t written)
{
	for (int i = 0; i < 20000 && counter->written < written; i++)
		pause_ms(1);
	ck_assert_uint_eq(counter->written, written);
	pause_ms(100);
}

static inline uint64_t memory_peak_kib(void)
{
	char line[256];
	unsigned long long peak = 0;
	FILE *file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %llu", &peak) == 1)
			break;
	fclose(file);
	return peak;
}

/* The number that an opened descriptor gets next, after `more` others. */
static inline rlim_t free_fd(unsigned more)
{
	for (int fd = 0;; fd++)
		if (fcntl(fd, F_GETFD) < 0 && more-- == 0)
			return (rlim_t)fd;
}

#endif
