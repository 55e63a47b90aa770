/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <orch/reaper.h>

#include "../core/os.h"
#include "scope-private.h"

/* Messages per turn, so that a busy helper does not starve the host's other sources. */
#define READS 128
/* How long the end of a context waits for the helper to confirm that the load is dead. */
#define ENDING_MS 3000

static void disconnect(struct reaper *reaper)
{
	reaper->source = orch_source_remove(reaper->source);
	orch_close_fd(&reaper->fd);
	wire_queue_clear(&reaper->out);
	wire_inbox_clear(&reaper->in);
}

static void forget_dying(struct reaper *reaper)
{
	reaper->dying_source = orch_source_remove(reaper->dying_source);
	helper_reap(reaper->dying_pid, reaper->dying_watch, 0);
	orch_close_fd(&reaper->dying_watch);
}

static void on_helper_ended(void *userdata, uint32_t events)
{
	(void)events;
	forget_dying(userdata);
}

/* Its socket closes a little before it can be waited for. */
static void reap_later(struct reaper *reaper)
{
	forget_dying(reaper);
	reaper->dying_watch = orch_steal_fd(&reaper->helper_watch);
	reaper->dying_pid = reaper->helper_pid;
	if (reaper->dying_watch >= 0)
		orch_source_io(reaper->ctx, reaper->dying_watch, ORCH_IO_READ, on_helper_ended,
			       reaper, &reaper->dying_source, NULL);
}

static void lost(struct reaper *reaper, orch_error *error)
{
	disconnect(reaper);
	reap_later(reaper);
	orch_ctx_logf(reaper->ctx, ORCH_LOG_ERROR, "%s", orch_error_message(error));
	/* A callback may add and remove scopes: start over after each. */
	bool again = true;
	while (again) {
		again = false;
		for (struct orch_scope *scope = reaper->scopes; scope; scope = scope->next)
			if (scope->connected) {
				scope->connected = false;
				scope_helper_lost(scope, error);
				again = true;
				break;
			}
	}
	orch_error_free(error);
}

static void lost_by(struct reaper *reaper, int error)
{
	orch_error *reason = NULL;
	if (reaper->greeted)
		orch_fail(&reason, ORCH_EHELPER, 0, "helper",
			  error == -EPIPE ? "orch-reaper (pid %d) died"
					  : "orch-reaper (pid %d) broke the protocol",
			  (int)reaper->helper_pid);
	else if (error == -EPIPE)
		orch_fail(&reason, ORCH_EHELPER, 0, "helper",
			  "%s ended before it answered: is it orch-reaper %s?", reaper->helper_path,
			  ORCH_VERSION_STRING);
	else
		orch_fail(&reason, ORCH_EHELPER, 0, "helper",
			  "%s speaks another protocol: install the orch-reaper of liborch %s",
			  reaper->helper_path, ORCH_VERSION_STRING);
	lost(reaper, reason);
}

static bool hear_hello(struct reaper *reaper, const struct wire_packet *packet)
{
	if (packet->message.type != WIRE_HELLO) {
		lost_by(reaper, -EPROTO);
		return false;
	}
	if (strcmp(packet->message.text, ORCH_VERSION_STRING) != 0) {
		orch_error *reason = NULL;
		orch_fail(&reason, ORCH_EHELPER, 0, "helper",
			  "%s is of version %.40s: install the one of liborch %s",
			  reaper->helper_path, packet->message.text, ORCH_VERSION_STRING);
		lost(reaper, reason);
		return false;
	}
	reaper->greeted = true;
	return true;
}

static void hear(struct reaper *reaper, struct wire_packet *packet)
{
	if (!reaper->greeted) {
		hear_hello(reaper, packet);
		return;
	}
	for (struct orch_scope *scope = reaper->scopes; scope; scope = scope->next)
		if (scope->id == packet->message.scope && scope->connected) {
			scope_hear(scope, packet);
			return;
		}
}

void reaper_read(struct reaper *reaper)
{
	for (int i = 0; i < READS && reaper->fd >= 0; i++) {
		struct wire_packet packet;
		int error = wire_receive(reaper->fd, &reaper->in, &packet);
		if (error == -EAGAIN)
			return;
		/* Only the scope suffers that the descriptors were meant for. */
		if (error && error != -EMFILE) {
			lost_by(reaper, error);
			return;
		}
		hear(reaper, &packet);
		wire_packet_close(&packet);
	}
}

static void flush(struct reaper *reaper)
{
	int error = wire_queue_flush(&reaper->out, reaper->fd);
	/* A helper that is gone is noticed by reading, where callbacks may be called. */
	if (error && error != -EAGAIN)
		wire_queue_clear(&reaper->out);
	orch_source_io_set(reaper->source, ORCH_IO_READ | (reaper->out.length ? ORCH_IO_WRITE : 0));
}

static void on_socket(void *userdata, uint32_t events)
{
	struct reaper *reaper = userdata;
	if (events & ORCH_IO_WRITE)
		flush(reaper);
	if (events & ORCH_IO_READ)
		reaper_read(reaper);
}

int32_t reaper_send(struct reaper *reaper, struct wire_packet *packet, orch_error **reterr)
{
	if (reaper->fd < 0) {
		wire_packet_close(packet);
		return 0;
	}
	if (wire_queue_add(&reaper->out, packet) < 0)
		return orch_fail_memory(reterr);
	flush(reaper);
	return 0;
}

static int32_t send_hello(struct reaper *reaper, orch_error **reterr)
{
	struct wire_packet hello = wire_packet(WIRE_HELLO, 0, 0);
	wire_copy(hello.message.text, WIRE_TEXT_MAX, ORCH_VERSION_STRING);
	int32_t code = helper_hello(&hello, reterr);
	if (code < 0)
		return code;
	return reaper_send(reaper, &hello, reterr);
}

static int32_t start(struct reaper *reaper, orch_error **reterr)
{
	int pair[2];
	free(reaper->helper_path);
	reaper->helper_path = NULL;
	int32_t code = orch_reaper_find_helper(reaper->ctx, &reaper->helper_path, reterr);
	if (code < 0)
		return code;
	if (!reaper->boot_id[0])
		orch_boot_id(reaper->boot_id, sizeof(reaper->boot_id));
	int error = wire_pair(pair);
	if (error < 0)
		return orch_fail(reterr, ORCH_ESYS, -error, "helper",
				 "no socket pair for orch-reaper");
	_cleanup_close_ int helper_end = pair[1];
	reaper->fd = pair[0];
	reaper->greeted = false;
	code = helper_start(reaper->helper_path, helper_end, &reaper->helper_pid,
			    &reaper->helper_watch, reterr);
	if (code == 0)
		code = orch_source_io(reaper->ctx, reaper->fd, ORCH_IO_READ, on_socket, reaper,
				      &reaper->source, reterr);
	if (code == 0)
		code = send_hello(reaper, reterr);
	if (code < 0) {
		disconnect(reaper);
		helper_reap(reaper->helper_pid, reaper->helper_watch, ENDING_MS);
		orch_close_fd(&reaper->helper_watch);
	}
	return code;
}

static void reaper_end(void *object)
{
	struct reaper *reaper = object;
	bool forked = orch_ctx_forked(reaper->ctx);
	reaper->source = orch_source_remove(reaper->source);
	if (forked)
		reaper->dying_source = orch_source_remove(reaper->dying_source);
	else
		forget_dying(reaper);
	if (!forked) {
		/* The helper sees the end of its socket, kills what is left and goes. */
		disconnect(reaper);
		helper_reap(reaper->helper_pid, reaper->helper_watch, ENDING_MS);
		orch_close_fd(&reaper->helper_watch);
	}
	while (reaper->scopes)
		scope_abandon(reaper->scopes);
	wire_queue_clear(&reaper->out);
	record_close(reaper->record);
	free(reaper->helper_path);
	free(reaper);
}

int32_t reaper_of(orch_ctx *ctx, struct reaper **ret_reaper, orch_error **reterr)
{
	struct reaper *reaper = orch_ctx_reaper(ctx);
	if (!reaper) {
		reaper = calloc(1, sizeof(*reaper));
		if (!reaper)
			return orch_fail_memory(reterr);
		reaper->ctx = ctx;
		reaper->fd = reaper->helper_watch = reaper->dying_watch = -1;
		orch_ctx_set_reaper(ctx, reaper, reaper_end);
	}
	*ret_reaper = reaper;
	return 0;
}

int32_t reaper_get(orch_ctx *ctx, struct reaper **ret_reaper, orch_error **reterr)
{
	struct reaper *reaper = NULL;
	int32_t code = reaper_of(ctx, &reaper, reterr);
	if (code == 0 && reaper->fd < 0)
		code = start(reaper, reterr);
	if (code == 0)
		*ret_reaper = reaper;
	return code;
}

int32_t orch_reaper_record(orch_ctx *ctx, const char *path, orch_error **reterr)
{
	struct reaper *reaper = NULL;
	int32_t code = orch_ctx_check(ctx, reterr);
	if (code < 0)
		return code;
	if (!path || !*path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "path names no file for the record of scopes");
	code = reaper_of(ctx, &reaper, reterr);
	if (code < 0)
		return code;
	if (reaper->record)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL, "the context records its scopes in %s already",
				 reaper->record->path);
	code = record_open(path, true, &reaper->record, reterr);
	if (code == 0 && reaper->record->count)
		orch_ctx_logf(ctx, ORCH_LOG_WARNING,
			      "%s: %u scopes of an earlier host have no end: orch_reaper_recover() was not called", path,
			      reaper->record->count);
	return code;
}
