/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
};

void wire_packet_close(struct wire_packet *packet)
{
	for (uint32_t i = 0; i < packet->fd_count; i++)
		close(packet->fds[i]);
	packet->fd_count = 0;
}

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

int wire_receive(int fd, struct wire_packet *packet)
{
	uint8_t frame[WIRE_FRAME_SIZE];
	struct iovec part = {.iov_base = frame, .iov_len = sizeof(frame)};
	union control control;
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
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

int wire_queue_add(struct wire_queue *queue, struct wire_packet *packet)
{
	struct wire_packet *entry = malloc(sizeof(*entry));
	if (!entry) {
		wire_packet_close(packet);
		return -ENOMEM;
	}
	*entry = *packet;
	entry->next = NULL;
	packet->fd_count = 0;
	if (queue->last)
		queue->last->next = entry;
	else
		queue->first = entry;
	queue->last = entry;
	queue->length++;
	return 0;
}

static void queue_drop_first(struct wire_queue *queue)
{
	struct wire_packet *entry = queue->first;
	queue->first = entry->next;
	if (!queue->first)
		queue->last = NULL;
	queue->length--;
	wire_packet_close(entry);
	free(entry);
}

int wire_queue_flush(struct wire_queue *queue, int fd)
{
	while (queue->first) {
		int error = wire_send(fd, queue->first);
		if (error)
			return error;
		queue_drop_first(queue);
	}
	return 0;
}

void wire_queue_clear(struct wire_queue *queue)
{
	while (queue->first)
		queue_drop_first(queue);
}
