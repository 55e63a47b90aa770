/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "../core/os.h"
#include "verify-private.h"

#define FLOW_SIZE (32u * 1024)
#define PAIRS_MAX 64u
#define ACCEPT_PAUSE_MS 50

struct pair;

/* One direction: from one side's socket to the other's. */
struct flow {
	char bytes[FLOW_SIZE];
	size_t start, length;
	bool ended; /* the reading side said EOF */
	bool shut;  /* and that was passed on */
};

struct side {
	struct pair *pair;
	int fd;
	orch_source *source;
	struct flow *to_other;
};

/* `check` is the accepted connection, `product` the one made inside the target. */
struct pair {
	struct joint *joint; /* NULL: cut, only the connect callback still holds it */
	struct pair *next, *previous;
	struct side check, product;
	bool connecting;
	struct flow flows[2];
};

struct joint {
	orch_ctx *ctx;
	orch_sandbox *target;
	uint16_t port;
	int listen_fd;
	orch_source *accept_source, *resume_timer;
	struct pair *pairs;
	uint32_t pair_count;
};

static void side_close(struct side *side, bool reset)
{
	side->source = orch_source_remove(side->source);
	if (side->fd >= 0 && reset) {
		/* The other side failed: a clean end would pass for a complete answer. */
		struct linger linger = {.l_onoff = 1, .l_linger = 0};
		setsockopt(side->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	}
	orch_close_fd(&side->fd);
}

static void pair_cut(struct pair *pair, bool reset)
{
	struct joint *joint = pair->joint;
	side_close(&pair->check, reset);
	side_close(&pair->product, reset);
	if (pair->previous)
		pair->previous->next = pair->next;
	else
		joint->pairs = pair->next;
	if (pair->next)
		pair->next->previous = pair->previous;
	joint->pair_count--;
	if (joint->accept_source)
		orch_source_io_set(joint->accept_source, ORCH_IO_READ);
	pair->joint = NULL;
	if (!pair->connecting)
		free(pair);
}

/* False: the connection failed. */
static bool flow_read(struct side *from)
{
	struct flow *flow = from->to_other;
	while (!flow->ended && flow->length < FLOW_SIZE) {
		size_t end = (flow->start + flow->length) % FLOW_SIZE;
		size_t room = end < flow->start ? flow->start - end : FLOW_SIZE - end;
		ssize_t count = recv(from->fd, flow->bytes + end, room, 0);
		if (count > 0) {
			flow->length += (size_t)count;
			return true; /* one read a turn: nobody starves the others */
		}
		if (count == 0)
			flow->ended = true;
		else if (errno == EAGAIN)
			return true;
		else if (errno != EINTR)
			return false;
	}
	return true;
}

static bool flow_write(struct flow *flow, struct side *to)
{
	while (flow->length) {
		size_t chunk = FLOW_SIZE - flow->start;
		if (chunk > flow->length)
			chunk = flow->length;
		ssize_t count = orch_send(to->fd, flow->bytes + flow->start, chunk);
		if (count >= 0) {
			flow->start = (flow->start + (size_t)count) % FLOW_SIZE;
			flow->length -= (size_t)count;
		} else if (errno == EAGAIN) {
			return true;
		} else if (errno != EINTR) {
			return false;
		}
	}
	if (flow->ended && !flow->shut) {
		flow->shut = true;
		shutdown(to->fd, SHUT_WR);
	}
	return true;
}

static uint32_t side_interest(const struct side *side, const struct flow *towards)
{
	bool read = !side->to_other->ended && side->to_other->length < FLOW_SIZE;
	return (read ? ORCH_IO_READ : 0) | (towards->length ? ORCH_IO_WRITE : 0);
}

static void on_side(void *userdata, uint32_t events)
{
	struct side *side = userdata;
	struct pair *pair = side->pair;
	struct side *other = side == &pair->check ? &pair->product : &pair->check;
	bool fine = true;
	if (events & ORCH_IO_READ)
		fine = flow_read(side);
	fine = fine && flow_write(side->to_other, other);
	fine = fine && flow_write(other->to_other, side);
	if (!fine) {
		pair_cut(pair, true);
		return;
	}
	if (pair->flows[0].shut && pair->flows[1].shut) {
		pair_cut(pair, false);
		return;
	}
	orch_source_io_set(side->source, side_interest(side, other->to_other));
	orch_source_io_set(other->source, side_interest(other, side->to_other));
}

static void on_connected(void *userdata, int32_t fd, const orch_error *error)
{
	struct pair *pair = userdata;
	if (!pair->joint) {
		if (fd >= 0)
			close(fd);
		return;
	}
	orch_ctx *ctx = pair->joint->ctx;
	pair->product.fd = fd;
	if (error || fd < 0 ||
	    orch_source_io(ctx, pair->check.fd, ORCH_IO_READ, on_side, &pair->check,
			   &pair->check.source, NULL) < 0 ||
	    orch_source_io(ctx, fd, ORCH_IO_READ, on_side, &pair->product, &pair->product.source,
			   NULL) < 0)
		pair_cut(pair, true); /* as if refused */
}

static void on_connect_end(void *userdata)
{
	struct pair *pair = userdata;
	pair->connecting = false;
	if (!pair->joint)
		free(pair);
	else if (pair->product.fd < 0)
		pair_cut(pair, true); /* the callback never came */
}

static void pair_new(struct joint *joint, int fd)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	if (!pair) {
		close(fd);
		return;
	}
	pair->joint = joint;
	pair->check = (struct side){pair, fd, NULL, &pair->flows[0]};
	pair->product = (struct side){pair, -1, NULL, &pair->flows[1]};
	pair->next = joint->pairs;
	if (joint->pairs)
		joint->pairs->previous = pair;
	joint->pairs = pair;
	joint->pair_count++;
	pair->connecting = true;
	/* On failure on_connect_end() has come already and has cut it. */
	orch_sandbox_connect(joint->target, joint->port, on_connected, pair, on_connect_end, NULL);
}

static void on_resume(void *userdata)
{
	struct joint *joint = userdata;
	orch_source_io_set(joint->accept_source, ORCH_IO_READ);
}

static void on_accept(void *userdata, uint32_t events)
{
	struct joint *joint = userdata;
	(void)events;
	while (joint->pair_count < PAIRS_MAX) {
		int fd = orch_accept(joint->listen_fd);
		if (fd >= 0) {
			pair_new(joint, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN) {
			/* Out of descriptors or memory: the queue stays readable, so look again
			 * later. */
			orch_source_io_set(joint->accept_source, 0);
			orch_source_timer_set(joint->resume_timer, ACCEPT_PAUSE_MS);
		}
		return;
	}
	orch_source_io_set(joint->accept_source, 0); /* until a pair ends */
}

int32_t joint_new(orch_ctx *ctx, int listen_fd, orch_sandbox *target, uint16_t port,
		  struct joint **ret_joint, orch_error **reterr)
{
	struct joint *joint = calloc(1, sizeof(*joint));
	if (!joint)
		return orch_fail_memory(reterr);
	joint->ctx = orch_ctx_ref(ctx);
	joint->target = orch_sandbox_ref(target);
	joint->port = port;
	joint->listen_fd = fcntl(listen_fd, F_DUPFD_CLOEXEC, 3);
	int flags = joint->listen_fd < 0 ? -1 : fcntl(joint->listen_fd, F_GETFL);
	int32_t code = 0;
	if (flags < 0 || fcntl(joint->listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
		code = orch_fail(reterr, ORCH_ESYS, errno, "joint",
				 "the check's listener can not be used");
	if (code == 0)
		code = orch_source_timer(ctx, -1, on_resume, joint, &joint->resume_timer, reterr);
	if (code == 0)
		code = orch_source_io(ctx, joint->listen_fd, ORCH_IO_READ, on_accept, joint,
				      &joint->accept_source, reterr);
	if (code < 0) {
		joint_free(joint);
		return code;
	}
	*ret_joint = joint;
	return 0;
}

struct joint *joint_free(struct joint *joint)
{
	if (!joint)
		return NULL;
	joint->accept_source = orch_source_remove(joint->accept_source);
	joint->resume_timer = orch_source_remove(joint->resume_timer);
	while (joint->pairs)
		pair_cut(joint->pairs, true);
	orch_close_fd(&joint->listen_fd);
	orch_sandbox_unref(joint->target);
	orch_ctx_unref(joint->ctx);
	free(joint);
	return NULL;
}
