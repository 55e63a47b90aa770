/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>

#include "broker-private.h"

/* --- a client that leaves while its connection sleeps ----------------------------------------- */

static void on_hangup(void *userdata, uint32_t events)
{
	struct op *op = userdata;
	char byte;
	int fd = MHD_get_connection_info(op->connection, MHD_CONNECTION_INFO_CONNECTION_FD)
			 ->connect_fd;
	ssize_t count = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	(void)events;
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* The next request came early: the end can no longer be seen behind it. */
	op->hangup = orch_source_remove(op->hangup);
	if (count > 0)
		return;
	op->client_gone = true;
	op_schedule(op);
}

void listener_suspend(struct op *op)
{
	int fd = MHD_get_connection_info(op->connection, MHD_CONNECTION_INFO_CONNECTION_FD)
			 ->connect_fd;
	MHD_suspend_connection(op->connection);
	op->suspended = true;
	/* Without it the end is noticed with the next byte that is sent. */
	orch_source_io(op->broker->ctx, fd, ORCH_IO_READ, on_hangup, op, &op->hangup, NULL);
}

void listener_resume(struct op *op)
{
	if (!op->suspended)
		return;
	op->hangup = orch_source_remove(op->hangup);
	op->suspended = false;
	MHD_resume_connection(op->connection);
	httpd_run_soon(op->listener->httpd);
}

/* --- responses -------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct op *op)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		op->answer.length, op->answer.data, MHD_RESPMEM_MUST_COPY);
	if (!response)
		return MHD_NO;
	if (op->answer_type)
		MHD_add_response_header(response, "Content-Type", op->answer_type);
	if (op->answer_replayed)
		MHD_add_response_header(response, "x-orch-replayed", "1");
	if (op->answer_retry)
		MHD_add_response_header(response, "Retry-After", "1");
	/* The vendors' SDKs repeat what may pass; this will not (their own header for gateways). */
	if (op->answer_final)
		MHD_add_response_header(response, "x-should-retry", "false");
	enum MHD_Result result =
		MHD_queue_response(op->connection, (unsigned)op->answer_status, response);
	MHD_destroy_response(response);
	op->queued = true;
	return result;
}

static ssize_t on_read(void *userdata, uint64_t position, char *room, size_t length)
{
	struct op *op = userdata;
	(void)position;
	ssize_t count = op_read(op, room, length);
	if (count > 0)
		return count;
	if (count == 0) {
		listener_suspend(op);
		return 0;
	}
	return count == -1 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void on_read_end(void *userdata)
{
	op_unref(userdata);
}

static void add_headers(struct op *op, struct MHD_Response *response)
{
	const char *connection = NULL;
	const char *end = op->down_headers.data + op->down_headers.length;
	for (const char *name = op->down_headers.data; name < end;) {
		const char *value = name + strlen(name) + 1;
		if (strcasecmp(name, "connection") == 0)
			connection = value;
		name = value + strlen(value) + 1;
	}
	for (const char *name = op->down_headers.data; name < end;) {
		const char *value = name + strlen(name) + 1;
		if (header_goes_down(name, connection))
			MHD_add_response_header(response, name, value);
		name = value + strlen(value) + 1;
	}
}

static enum MHD_Result stream(struct op *op)
{
	struct MHD_Response *response;
	bool empty = op->status == 204 || op->status == 304 || op->content_length == 0;
	if (empty) {
		response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	} else {
		uint64_t size = op->content_length > 0 && !op->encoded
					? (uint64_t)op->content_length
					: MHD_SIZE_UNKNOWN;
		response = MHD_create_response_from_callback(size, 32768, on_read, op_ref(op),
							     on_read_end);
	}
	if (!response) {
		if (!empty)
			op_unref(op);
		return MHD_NO;
	}
	add_headers(op, response);
	enum MHD_Result result = MHD_queue_response(op->connection, (unsigned)op->status, response);
	MHD_destroy_response(response);
	op->queued = true;
	return result;
}

/* --- the daemon ------------------------------------------------------------------------------- */

static void *on_target(void *userdata, const char *target, struct MHD_Connection *connection)
{
	(void)connection;
	return op_new(userdata, target);
}

/* The target is judged raw: nothing of it is decoded before. */
static size_t on_unescape(void *userdata, struct MHD_Connection *connection, char *text)
{
	(void)userdata, (void)connection;
	return strlen(text);
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection,
				  const char *url, const char *method, const char *version,
				  const char *body, size_t *body_length, void **request)
{
	struct op *op = *request;
	(void)userdata, (void)url, (void)version;

	if (!op || op->cut)
		return MHD_NO;
	if (!op->started) {
		op->started = true;
		op->connection = connection;
		op_begin(op, method);
		/* Too much was announced: the body is not even read. */
		return op->answered && op->answer_status == 413 ? answer(op) : MHD_YES;
	}
	if (*body_length) {
		bool go_on = op_body(op, body, *body_length);
		*body_length = 0;
		return go_on ? MHD_YES : MHD_NO;
	}
	if (op->phase == OP_READING && !op->answered)
		op_dispatch(op);
	if (op->answered)
		return answer(op);
	if (op->head_ready)
		return stream(op);
	if (op->client_gone)
		return MHD_NO;
	listener_suspend(op);
	return MHD_YES;
}

static void on_completed(void *userdata, struct MHD_Connection *connection, void **request,
			 enum MHD_RequestTerminationCode reason)
{
	struct op *op = *request;
	(void)userdata, (void)connection, (void)reason;
	if (!op)
		return;
	*request = NULL;
	op->hangup = orch_source_remove(op->hangup);
	op->suspended = false;
	op->connection = NULL;
	op_client_ended(op);
	op_unref(op);
}

static void on_log(void *userdata, const char *format, va_list arguments)
{
	struct listener *listener = userdata;
	char text[512];
	vsnprintf(text, sizeof(text), format, arguments);
	text[strcspn(text, "\r\n")] = '\0';
	broker_log(listener->broker, ORCH_LOG_DEBUG, "broker: client of %s: %s",
		   listener->principal->name, text);
}

static struct MHD_Daemon *daemon_start(struct listener *listener, int fd)
{
	return MHD_start_daemon(
		httpd_flags | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
		on_request, listener, MHD_OPTION_EXTERNAL_LOGGER, on_log, listener,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_URI_LOG_CALLBACK, on_target, listener,
		MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, NULL, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, listener, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_LIMIT, MHD_OPTION_CONNECTION_TIMEOUT,
		CLIENT_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADERS_LIMIT, MHD_OPTION_END);
}

int32_t listener_new(orch_broker *broker, int fd, orch_principal *principal, orch_error **reterr)
{
	struct listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		return orch_fail_memory(reterr);
	listener->broker = broker;
	listener->principal = orch_principal_ref(principal);
	listener->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int flags = listener->fd < 0 ? -1 : fcntl(listener->fd, F_GETFL);
	int32_t code = 0;
	if (flags < 0 || fcntl(listener->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		code = orch_fail(reterr, ORCH_ESYS, errno, "listener",
				 "listener %d of %s can not be duplicated", fd, principal->name);
	if (code == 0 && !(listener->daemon = daemon_start(listener, listener->fd)))
		code = orch_fail(reterr, ORCH_ESYS, errno, "listener",
				 "no HTTP daemon for listener %d of %s", fd, principal->name);
	if (code == 0)
		code = httpd_watch(broker->ctx, listener->daemon, &listener->httpd, reterr);
	listener->next = broker->listeners;
	broker->listeners = listener;
	if (code < 0) {
		/* The caller's socket goes on listening: nothing was taken over. */
		if (!listener->daemon)
			orch_close_fd(&listener->fd);
		else
			listener->fd = -1;
		listener_stop(listener);
	}
	return code;
}

static void resume_all(struct listener *listener)
{
	/* libmicrohttpd gives up the process if a daemon ends with a connection asleep. */
	for (struct op *op = listener->broker->ops; op; op = op->next)
		if (op->listener == listener)
			listener_resume(op);
}

void listener_stop(struct listener *listener)
{
	struct listener **link = &listener->broker->listeners;
	while (*link != listener)
		link = &(*link)->next;
	*link = listener->next;
	resume_all(listener);
	httpd_unwatch(listener->httpd);
	/* Whoever else holds the socket must not keep clients waiting in its queue. */
	if (listener->fd >= 0)
		shutdown(listener->fd, SHUT_RDWR);
	if (listener->daemon)
		MHD_stop_daemon(listener->daemon);
	for (struct op *op = listener->broker->ops; op; op = op->next)
		if (op->listener == listener)
			op->listener = NULL;
	listener->httpd = httpd_free(listener->httpd);
	orch_principal_unref(listener->principal);
	free(listener);
}
