/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../wire.h"

int wire_pair(int pair[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ? -errno : 0;
}

bool wire_is_end(int fd)
{
	int type = 0;
	socklen_t size = sizeof(type);
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
};

int wire_send(int fd, const struct wire_packet *packet)
{
	uint8_t frame[WIRE_FRAME_SIZE];
	wire_encode(&packet->message, packet->fd_count, frame);

	struct iovec part = {.iov_base = frame, .iov_len = sizeof(frame)};
	union control control = {0};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	if (packet->fd_count) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(packet->fd_count * sizeof(int));
		struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(packet->fd_count * sizeof(int));
		memcpy(CMSG_DATA(rights), packet->fds, packet->fd_count * sizeof(int));
	}
	ssize_t sent;
	do
		sent = sendmsg(fd, &header, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* A message goes whole or not at all. */
int wire_send_some(int fd, const struct wire_packet *packet, size_t *sent)
{
	(void)sent;
	return wire_send(fd, packet);
}

static void take_fds(struct msghdr *header, struct wire_packet *packet)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
			if (packet->fd_count < WIRE_FDS_MAX)
				packet->fds[packet->fd_count++] = fd;
			else
				close(fd);
		}
	}
}

int wire_receive(int fd, struct wire_inbox *inbox, struct wire_packet *packet)
{
	uint8_t frame[WIRE_FRAME_SIZE];
	struct iovec part = {.iov_base = frame, .iov_len = sizeof(frame)};
	union control control;
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
	(void)inbox;
	memset(packet, 0, sizeof(*packet));

	ssize_t length;
	do
		length = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (length < 0 && errno == EINTR);
	if (length < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	take_fds(&header, packet);
	if (length == 0) {
		wire_packet_close(packet);
		return -EPIPE;
	}
	bool lost_fds = header.msg_flags & MSG_CTRUNC;
	int error = header.msg_flags & MSG_TRUNC
			? -EPROTO
			: wire_decode(frame, (size_t)length,
				      lost_fds ? WIRE_ANY_FDS : packet->fd_count, &packet->message);
	if (!error && lost_fds)
		error = -EMFILE;
	if (error)
		wire_packet_close(packet);
	return error;
}
