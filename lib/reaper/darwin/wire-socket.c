/* SPDX-License-Identifier: Apache-2.0 */
/*
 * macOS has no SOCK_SEQPACKET for AF_UNIX. SOCK_DGRAM would keep messages apart, but the end of the peer, by which the
 * helper and the host notice each other's death, does not wake who reads from one, and a full one answers ENOBUFS and
 * still looks writable. So it is a byte stream, and since every frame is of one size, that is the framing.
 *
 * Descriptors come with the first byte of the message that they were sent with, and never with a byte of the message
 * before (XNU begins a new record in the receive buffer at each control message): as no more than the rest of the present
 * frame is asked for, they belong to the frame whose bytes they come with. This file makes no call that POSIX lacks, and is
 * tested on Linux.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../wire.h"

/* wire_send() outside a loop is for a message or two: a peer that does not read for so long is as good as gone. */
#define SEND_MS 5000

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
};

/* A process that another thread makes by fork() and exec between the two calls inherits the fd: macOS has no
 * SOCK_CLOEXEC. posix_spawn() with POSIX_SPAWN_CLOEXEC_DEFAULT, as all of liborch uses, does not. */
int wire_pair(int pair[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
#ifdef SO_NOSIGPIPE /* older systems know no MSG_NOSIGNAL */
		int on = 1;
		setsockopt(pair[i], SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
		if (fcntl(pair[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(pair[i], F_SETFL, O_NONBLOCK) < 0) {
			int error = errno;
			close(pair[0]);
			close(pair[1]);
			return -error;
		}
	}
	return 0;
}

bool wire_is_end(int fd)
{
	int type = 0;
	socklen_t size = sizeof(type);
	struct sockaddr_storage peer = {0};
	socklen_t peer_size = sizeof(peer);
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
	       getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0 && peer.ss_family == AF_UNIX;
}

int wire_send_some(int fd, const struct wire_packet *packet, size_t *sent)
{
	uint8_t frame[WIRE_FRAME_SIZE];
	wire_encode(&packet->message, packet->fd_count, frame);
	while (*sent < sizeof(frame)) {
		struct iovec part = {.iov_base = frame + *sent, .iov_len = sizeof(frame) - *sent};
		union control control;
		struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
		memset(&control, 0, sizeof(control));
		if (packet->fd_count && *sent == 0) {
			header.msg_control = control.bytes;
			/* XNU takes rights only if they fill it exactly. */
			header.msg_controllen = (socklen_t)CMSG_LEN(packet->fd_count * sizeof(int));
			struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
			rights->cmsg_level = SOL_SOCKET;
			rights->cmsg_type = SCM_RIGHTS;
			rights->cmsg_len = (socklen_t)CMSG_LEN(packet->fd_count * sizeof(int));
			memcpy(CMSG_DATA(rights), packet->fds, packet->fd_count * sizeof(int));
		}
		ssize_t done = sendmsg(fd, &header, MSG_NOSIGNAL);
		if (done < 0 && errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		if (done > 0)
			*sent += (size_t)done;
	}
	return 0;
}

int wire_send(int fd, const struct wire_packet *packet)
{
	size_t sent = 0;
	int error = wire_send_some(fd, packet, &sent);
	/* Half a frame may not stay: whoever sends next would continue it. */
	while (error == -EAGAIN && sent > 0) {
		struct pollfd writable = {.fd = fd, .events = POLLOUT};
		if (poll(&writable, 1, SEND_MS) == 0)
			return -EPIPE;
		error = wire_send_some(fd, packet, &sent);
	}
	return error;
}

/* Close-on-exec only now: MSG_CMSG_CLOEXEC is Linux's. See wire_pair(). */
static void take_fds(struct msghdr *header, struct wire_inbox *inbox)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
			if (inbox->fd_count < WIRE_FDS_MAX) {
				fcntl(fd, F_SETFD, FD_CLOEXEC);
				inbox->fds[inbox->fd_count++] = fd;
			} else {
				close(fd);
			}
		}
	}
	if (header->msg_flags & MSG_CTRUNC)
		inbox->lost_fds = true;
}

/* 0: the frame is whole. */
static int fill(int fd, struct wire_inbox *inbox)
{
	while (inbox->length < WIRE_FRAME_SIZE) {
		struct iovec part = {.iov_base = inbox->frame + inbox->length,
				     .iov_len = WIRE_FRAME_SIZE - inbox->length};
		union control control;
		struct msghdr header = {.msg_iov = &part,
					.msg_iovlen = 1,
					.msg_control = control.bytes,
					.msg_controllen = sizeof(control.bytes)};
		ssize_t length = recvmsg(fd, &header, MSG_DONTWAIT);
		if (length < 0 && errno == EINTR)
			continue;
		if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return -EAGAIN;
		/* XNU: no room for the descriptors. They are gone, the bytes come with the next call. */
		if (length < 0 && errno == EMSGSIZE && !inbox->lost_fds) {
			inbox->lost_fds = true;
			continue;
		}
		if (length < 0)
			return errno == ECONNRESET ? -EPIPE : -errno;
		take_fds(&header, inbox);
		if (length == 0)
			return -EPIPE;
		inbox->length += (size_t)length;
	}
	return 0;
}

int wire_receive(int fd, struct wire_inbox *inbox, struct wire_packet *packet)
{
	memset(packet, 0, sizeof(*packet));
	int error = fill(fd, inbox);
	if (error == -EAGAIN)
		return error;
	if (!error)
		error = wire_decode(inbox->frame, inbox->length,
				    inbox->lost_fds ? WIRE_ANY_FDS : inbox->fd_count, &packet->message);
	if (!error && inbox->lost_fds)
		error = -EMFILE;
	if (error) {
		wire_inbox_clear(inbox);
		return error;
	}
	memcpy(packet->fds, inbox->fds, inbox->fd_count * sizeof(int));
	packet->fd_count = inbox->fd_count;
	inbox->length = inbox->fd_count = 0;
	return 0;
}
