/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <orch/version.h>

#include "helper.h"

#define SOCKET_FD 3
/* How long the helper stays to confirm the deaths after its host is gone. */
#define ENDING_MS 10000
#define REQUESTS 64

/* Not blocking: what does not fit waits. Bounded by what the host asked for. */
void host_send(struct helper *helper, struct wire_packet *packet)
{
	struct wire_packet moved = *packet;
	packet->fd_count = 0;
	if (helper->host_fd < 0)
		wire_packet_close(&moved);
	else if (wire_queue_add(&helper->to_host, &moved) < 0)
		_exit(1); /* A lost certificate would be worse than a helper that is known to be
			     dead. */
}

/* A host with many scopes needs more descriptors than the usual soft limit; programs get the old
 * one back. */
static void raise_limit(struct helper *helper)
{
	if (getrlimit(RLIMIT_NOFILE, &helper->open_files) < 0)
		return;
	struct rlimit raised = helper->open_files;
	raised.rlim_cur = raised.rlim_max < helper_open_files ? raised.rlim_max : helper_open_files;
	if (raised.rlim_cur > helper->open_files.rlim_cur)
		setrlimit(RLIMIT_NOFILE, &raised);
}

static void host_gone(struct helper *helper)
{
	close_fd(&helper->host_fd);
	close_fd(&helper->host_watch);
	wire_queue_clear(&helper->to_host);
	wire_inbox_clear(&helper->from_host);
	scopes_kill_all(helper);
}

static void greet(struct helper *helper, struct wire_packet *hello, int error)
{
	struct wire_packet reply = wire_packet(WIRE_HELLO, 0, 0);
	wire_copy(reply.message.text, WIRE_TEXT_MAX, ORCH_VERSION_STRING);
	wire_send(helper->host_fd, &reply);
	if (error || hello->message.type != WIRE_HELLO ||
	    strcmp(hello->message.text, ORCH_VERSION_STRING) != 0 || host_watch_open(helper, hello) < 0) {
		host_gone(helper);
		return;
	}
	helper->greeted = true;
}

void host_hear(struct helper *helper)
{
	for (int i = 0; i < REQUESTS && helper->host_fd >= 0; i++) {
		struct wire_packet packet;
		int error = wire_receive(helper->host_fd, &helper->from_host, &packet);
		if (error == -EAGAIN)
			return;
		if (!helper->greeted && error != -EPIPE)
			greet(helper, &packet, error);
		else if (error == -EMFILE)
			scopes_refuse(helper, &packet, "orch-reaper has no file descriptor left");
		else if (error || scopes_request(helper, &packet) < 0)
			host_gone(helper);
		wire_packet_close(&packet);
	}
}

static void run(struct helper *helper)
{
	struct pollfd *fds = NULL;
	size_t capacity = 0;
	int64_t end_us = -1;
	for (;;) {
		size_t needed = 2 + scopes_poll_most(helper);
		if (needed > capacity) {
			struct pollfd *grown = realloc(fds, 2 * needed * sizeof(*fds));
			if (!grown)
				break;
			fds = grown;
			capacity = 2 * needed;
		}
		int timeout_ms = -1;
		fds[0] = (struct pollfd){
		    .fd = helper->host_fd,
		    .events = (short)(POLLIN | (helper->to_host.length ? POLLOUT : 0))};
		fds[1] = (struct pollfd){.fd = helper->host_watch, .events = POLLIN};
		size_t count = 2 + scopes_poll(helper, fds + 2, &timeout_ms);
		if (helper->host_fd < 0) {
			end_us = end_us < 0 ? now_us() + ENDING_MS * 1000 : end_us;
			if (!helper->scopes || now_us() >= end_us)
				break;
			timeout_ms = timeout_ms < 0 || timeout_ms > 100 ? 100 : timeout_ms;
		}
		if (poll(fds, count, timeout_ms) < 0 && errno != EINTR)
			break;
		/* A worker that the host forked keeps the socket open: the watch tells the host's own end. */
		if (helper->host_fd >= 0 && fds[1].revents)
			host_gone(helper);
		if (helper->host_fd >= 0 && fds[0].revents & (POLLIN | POLLHUP | POLLERR))
			host_hear(helper);
		scopes_step(helper);
		if (helper->host_fd >= 0 && helper->to_host.length) {
			int error = wire_queue_flush(&helper->to_host, helper->host_fd);
			if (error && error != -EAGAIN)
				host_gone(helper);
		}
	}
	free(fds);
}

/* Whatever the host ignores: every program would inherit it. */
static void default_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	for (int signal = 1; signal < NSIG; signal++)
		sigaction(signal, &action, NULL);
}

int main(int argc, char **argv)
{
	struct helper helper = {.host_fd = SOCKET_FD, .host_watch = -1};
	int status = 0;

	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("orch-reaper %s\n", ORCH_VERSION_STRING);
		return 0;
	}
	default_signals();
	if (other_use(argc, argv, &status))
		return status;
	if (argc != 1 || !wire_is_end(SOCKET_FD)) {
		fprintf(stderr, "orch-reaper is started by liborch; it has no use of its own.\n");
		return 2;
	}
	/* Whatever the host forgot to mark close-on-exec would reach every program. */
	close_others(BUT(SOCKET_FD));
	fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC);
	fcntl(SOCKET_FD, F_SETFL, O_NONBLOCK);
	/* Pins no folder of the host's. */
	if (chdir("/") < 0)
		return 1;
	raise_limit(&helper);
	scopes_begin(&helper);
	run(&helper);
	scopes_end(&helper);
	return 0;
}
