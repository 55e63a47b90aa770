/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "wire.h"

void wire_packet_close(struct wire_packet *packet)
{
	for (uint32_t i = 0; i < packet->fd_count; i++)
		close(packet->fds[i]);
	packet->fd_count = 0;
}

void wire_inbox_clear(struct wire_inbox *inbox)
{
	for (uint32_t i = 0; i < inbox->fd_count; i++)
		close(inbox->fds[i]);
	inbox->length = inbox->fd_count = 0;
	inbox->lost_fds = false;
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
	queue->sent = 0;
	wire_packet_close(entry);
	free(entry);
}

int wire_queue_flush(struct wire_queue *queue, int fd)
{
	while (queue->first) {
		int error = wire_send_some(fd, queue->first, &queue->sent);
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
