/* SPDX-License-Identifier: Apache-2.0 */
#include "../../core/os.h"
#include "shell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often it is looked whether the shell has ended while its output is still open. */
#define TICK_MS 10

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The first half of the limit, and a ring of the last half. */
struct capture {
	char *head, *tail;
	size_t half, head_length, tail_next, total;
};

static void capture_add(struct capture *capture, const char *bytes, size_t length)
{
	size_t room = capture->half - capture->head_length;
	size_t first = length < room ? length : room;

	memcpy(capture->head + capture->head_length, bytes, first);
	capture->head_length += first;
	capture->total += length;
	for (size_t i = first; i < length; i++) {
		capture->tail[capture->tail_next] = bytes[i];
		capture->tail_next = (capture->tail_next + 1) % capture->half;
	}
}

/* Length of the UTF-8 character at `text`, or 0. */
static size_t utf8_length(const unsigned char *text, size_t left)
{
	size_t length = text[0] < 0x80 ? 1 : text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : (text[0] & 0xf0) == 0xe0 ? 3
		       : text[0] >= 0xf0 && text[0] < 0xf5			  ? 4
										  : 0;

	if (length == 0 || length > left || text[0] == '\0')
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	}
	/* Overlong forms, surrogates, past the end of Unicode. */
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return length;
}

static size_t make_valid(char *text, size_t length)
{
	for (size_t i = 0; i < length;) {
		size_t step = utf8_length((const unsigned char *)text + i, length - i);

		if (step == 0) {
			text[i] = '?';
			step = 1;
		}
		i += step;
	}
	text[length] = '\0';
	return length;
}

static char *capture_text(const struct capture *capture, bool *ret_truncated)
{
	size_t after = capture->total - capture->head_length;
	size_t kept = after < capture->half ? after : capture->half;
	size_t start = after < capture->half ? 0 : capture->tail_next;
	char *text = malloc(capture->head_length + kept + 64);
	size_t length = capture->head_length;

	if (text == NULL)
		return NULL;
	memcpy(text, capture->head, length);
	*ret_truncated = after > kept;
	if (after > kept)
		length += (size_t)snprintf(text + length, 64, "\n[%zu bytes left out]\n", after - kept);
	for (size_t i = 0; i < kept; i++)
		text[length++] = capture->tail[(start + i) % capture->half];
	make_valid(text, length);
	return text;
}

static pid_t start(const char *command, int output)
{
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDONLY);

		setpgid(0, 0);
		signal(SIGPIPE, SIG_DFL);
		if (null >= 0)
			dup2(null, 0);
		dup2(output, 1);
		dup2(output, 2);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		dprintf(2, "/bin/sh: %s\n", strerror(errno));
		_exit(127);
	}
	if (pid > 0)
		setpgid(pid, pid);
	return pid;
}

/* What is there now. False at the end of the stream. */
static bool read_some(int fd, struct capture *capture)
{
	char bytes[16384];
	ssize_t got = read(fd, bytes, sizeof(bytes));

	if (got > 0)
		capture_add(capture, bytes, (size_t)got);
	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void follow(pid_t pid, int output, long timeout_ms, struct capture *capture,
		   struct shell_result *result)
{
	long deadline = now_ms() + timeout_ms;
	bool open = true;
	int status;

	for (;;) {
		struct pollfd poll_fd = {.fd = open ? output : -1, .events = POLLIN};

		if (poll(&poll_fd, 1, TICK_MS) > 0)
			open = read_some(output, capture);
		if (waitpid(pid, &status, WNOHANG) == pid)
			break;
		if (!result->timed_out && now_ms() >= deadline) {
			result->timed_out = true;
			kill(-pid, SIGKILL);
		}
	}
	/* What it wrote is in the pipe already; a process left behind may go on, so at most a pipe's worth. */
	for (int i = 0; open && i < 16; i++) {
		struct pollfd poll_fd = {.fd = output, .events = POLLIN};

		open = poll(&poll_fd, 1, 0) > 0 && read_some(output, capture);
	}
	result->status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

void shell_run(const char *command, long timeout_ms, size_t output_limit, struct shell_result *result)
{
	struct capture capture = {.half = output_limit / 2 + 1};
	int ends[2] = {-1, -1};
	pid_t pid = -1;

	memset(result, 0, sizeof(*result));
	result->status = -1;
	capture.head = malloc(capture.half);
	capture.tail = malloc(capture.half);
	if (capture.head != NULL && capture.tail != NULL && orch_pipe(ends) == 0) {
		fcntl(ends[0], F_SETFL, O_NONBLOCK);
		pid = start(command, ends[1]);
		close(ends[1]);
	}
	if (pid > 0) {
		follow(pid, ends[0], timeout_ms, &capture, result);
		result->output = capture_text(&capture, &result->truncated);
	} else if (asprintf(&result->output, "the command could not be started: %s", strerror(errno)) < 0) {
		result->output = NULL;
	}
	if (ends[0] >= 0)
		close(ends[0]);
	free(capture.head);
	free(capture.tail);
}
