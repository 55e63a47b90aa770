/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>

#include "../broker/httpd.h"
#include "../core/os.h"
#include "verify-private.h"

#define CONNECTIONS_MAX 32u
#define BODY_LIMIT (1024u * 1024)
#define OUTPUT_LIMIT (256u * 1024)
#define ARGS_MAX 256u

/*
 * HTTP/1.1 on the check's listener, for what has no port of its own: the stub, and products that
 * are run by argv. The daemon has no thread; the context's loop runs it.
 */
struct door {
	orch_ctx *ctx;
	struct MHD_Daemon *daemon;
	struct httpd *httpd;
	const char *stub_type, *stub_body; /* NULL: runs the product */
	orch_sandbox *sandbox;
	char *const *start;
	struct request *requests;
	bool closing;
};

/* One reference is libmicrohttpd's until the request is completed, one the program's. */
struct request {
	uint32_t references;
	struct door *door; /* NULL: the door is closed */
	struct request *next, *previous;
	struct MHD_Connection *connection;
	struct orch_buf body;
	bool too_big;
	bool suspended;
	bool started, ended;
	int32_t status;
	struct stream out, err;
};

/* --- requests
 * ----------------------------------------------------------------------------------------- */

static struct request *request_new(struct door *door, struct MHD_Connection *connection)
{
	struct request *request = calloc(1, sizeof(*request));
	if (!request)
		return NULL;
	request->references = 1;
	request->door = door;
	request->connection = connection;
	request->out.fd = request->err.fd = -1;
	request->next = door->requests;
	if (door->requests)
		door->requests->previous = request;
	door->requests = request;
	return request;
}

static void request_unref(void *userdata)
{
	struct request *request = userdata;
	if (--request->references)
		return;
	stream_close(&request->out);
	stream_close(&request->err);
	orch_buf_free(&request->out.bytes);
	orch_buf_free(&request->err.bytes);
	orch_buf_free(&request->body);
	free(request);
}

static void request_leave(struct request *request)
{
	struct door *door = request->door;
	if (request->previous)
		request->previous->next = request->next;
	else
		door->requests = request->next;
	if (request->next)
		request->next->previous = request->previous;
	request->door = NULL;
	/* The streams are sources of the door's loop. */
	stream_close(&request->out);
	stream_close(&request->err);
}

static void on_completed(void *userdata, struct MHD_Connection *connection, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct request *request = *con_cls;
	(void)userdata, (void)connection, (void)code;
	*con_cls = NULL;
	if (!request)
		return;
	request_leave(request);
	request_unref(request);
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
			      const char *body)
{
	struct MHD_Response *response =
	    MHD_create_response_from_buffer(strlen(body), (void *)body, MHD_RESPMEM_MUST_COPY);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	enum MHD_Result result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status,
			      const char *reason)
{
	_cleanup_free_ char *body = orch_strdup_printf("{\"error\":\"%s\"}", reason);
	return body ? answer(connection, status, "application/json", body) : MHD_NO;
}

/* --- runs of a product that is a command
 * ------------------------------------------------------------- */

static json_t *json_of_stream(const struct stream *stream)
{
	_cleanup_buf_ struct orch_buf text = {0};
	if (stream->bytes.length)
		text_append(&text, stream->bytes.data, stream->bytes.length, false);
	return json_stringn(text.data ? text.data : "", text.length);
}

static enum MHD_Result answer_run(struct request *request, struct MHD_Connection *connection)
{
	json_t *json =
	    json_pack("{s:i, s:o, s:o}", "status", (int)request->status, "stdout",
		      json_of_stream(&request->out), "stderr", json_of_stream(&request->err));
	if (json && (request->out.over_limit || request->err.over_limit))
		json_object_set_new(json, "truncated", json_true());
	_cleanup_free_ char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
	json_decref(json);
	return body ? answer(connection, MHD_HTTP_OK, "application/json", body) : MHD_NO;
}

static void on_run(void *userdata, orch_proc *proc, uint32_t event)
{
	struct request *request = userdata;
	if (event == ORCH_PROC_STARTED || request->ended)
		return;
	request->ended = true;
	if (event == ORCH_PROC_EXITED) {
		int32_t signal = orch_proc_term_signal(proc);
		request->status = signal ? 256 + signal : orch_proc_exit_code(proc);
	} else {
		request->status = 127;
		orch_buf_puts(&request->err.bytes, orch_error_message(orch_proc_error(proc)));
	}
	if (!request->door)
		return;
	stream_drain(&request->out);
	stream_drain(&request->err);
	stream_close(&request->out);
	stream_close(&request->err);
	request->suspended = false;
	MHD_resume_connection(request->connection);
	httpd_run(request->door->httpd);
}

/* Fills argv (room for all) from start and the request; false with a reason for the check's author.
 */
static bool collect_args(const struct door *door, const json_t *json, const char **argv,
			 size_t room, const char **ret_reason)
{
	const json_t *args = json_object_get(json, "args");
	const json_t *input = json_object_get(json, "stdin");
	size_t count = 0;
	*ret_reason = "expected {'args':[STRING,...],'stdin':STRING}";
	if (!json_is_object(json) || (args && !json_is_array(args)) ||
	    (input && !json_is_string(input)))
		return false;
	while (door->start[count] && count < room - 1) {
		argv[count] = door->start[count];
		count++;
	}
	for (size_t i = 0; i < json_array_size(args); i++) {
		const json_t *value = json_array_get(args, i);
		if (!json_is_string(value) ||
		    strlen(json_string_value(value)) != json_string_length(value))
			return false;
		if (count == room - 1) {
			*ret_reason = "too many arguments";
			return false;
		}
		argv[count++] = json_string_value(value);
	}
	argv[count] = NULL;
	return true;
}

static int32_t spawn_run(struct request *request, const char *const *argv, const json_t *input,
			 orch_error **reterr)
{
	struct door *door = request->door;
	_cleanup_close_ int in_fd = -1;
	_cleanup_close_ int out_fd = -1;
	_cleanup_close_ int err_fd = -1;
	if (input) {
		in_fd = orch_sealed_file("stdin", json_string_value(input), json_string_length(input));
		if (in_fd < 0)
			return orch_fail(reterr, ORCH_ESYS, errno, "memfd",
					 "no file for the standard input");
	}
	int32_t code = stream_open(&request->out, door->ctx, OUTPUT_LIMIT, false, &out_fd, reterr);
	if (code == 0)
		code = stream_open(&request->err, door->ctx, OUTPUT_LIMIT, false, &err_fd, reterr);
	if (code < 0)
		return code;
	struct orch_proc_opts opts;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = argv;
	opts.cwd = PRODUCT_CWD;
	opts.stdin_fd = in_fd;
	opts.stdout_fd = out_fd;
	opts.stderr_fd = err_fd;
	opts.event = on_run;
	opts.userdata = request;
	opts.destroy = request_unref;
	request->references++;
	return orch_sandbox_spawn(door->sandbox, &opts, NULL, reterr);
}

static enum MHD_Result start_run(struct request *request, struct MHD_Connection *connection)
{
	const char *argv[ARGS_MAX + 1];
	const char *reason;
	json_t *json =
	    json_loadb(request->body.data ? request->body.data : "", request->body.length,
		       JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	enum MHD_Result result;
	request->started = true;
	if (!collect_args(request->door, json, argv, ARGS_MAX + 1, &reason)) {
		result = refuse(connection, MHD_HTTP_BAD_REQUEST, reason);
	} else if (spawn_run(request, argv, json_object_get(json, "stdin"), NULL) < 0) {
		result =
		    refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "the product can not be run");
	} else {
		request->suspended = true;
		MHD_suspend_connection(connection);
		result = MHD_YES;
	}
	json_decref(json);
	return result;
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection,
				  const char *url, const char *method, const char *version,
				  const char *upload, size_t *upload_size, void **con_cls)
{
	struct door *door = userdata;
	struct request *request = *con_cls;
	(void)version;
	if (door->closing)
		return MHD_NO;
	if (!request) {
		*con_cls = request_new(door, connection);
		return *con_cls ? MHD_YES : MHD_NO;
	}
	if (*upload_size) {
		if (request->body.length + *upload_size > BODY_LIMIT)
			request->too_big = true;
		else if (!door->stub_body)
			orch_buf_add(&request->body, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	if (door->stub_body)
		return answer(connection, MHD_HTTP_OK, door->stub_type, door->stub_body);
	if (request->ended)
		return answer_run(request, connection);
	if (request->started)
		return MHD_YES;
	if (strcmp(url, "/run") != 0)
		return refuse(connection, MHD_HTTP_NOT_FOUND, "there is only POST /run");
	if (strcmp(method, MHD_HTTP_METHOD_POST) != 0)
		return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "there is only POST /run");
	if (request->too_big || request->body.failed)
		return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the request is over 1 MiB");
	return start_run(request, connection);
}

/* --- the daemon
 * --------------------------------------------------------------------------------------- */

static int32_t door_open(struct door *door, int listen_fd, orch_error **reterr)
{
	/* libmicrohttpd closes it in the end. */
	_cleanup_close_ int fd = fcntl(listen_fd, F_DUPFD_CLOEXEC, 3);
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "door",
				 "the check's listener can not be used");
	door->daemon = MHD_start_daemon(
	    httpd_flags | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, door,
	    MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, door,
	    MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_END);
	if (!door->daemon)
		return orch_fail(reterr, ORCH_ESYS, errno, "door", "no HTTP server for a check");
	orch_steal_fd(&fd);
	return httpd_watch(door->ctx, door->daemon, &door->httpd, reterr);
}

static int32_t door_new(orch_ctx *ctx, int listen_fd, const struct door *kind,
			struct door **ret_door, orch_error **reterr)
{
	struct door *door = malloc(sizeof(*door));
	if (!door)
		return orch_fail_memory(reterr);
	*door = *kind;
	door->ctx = orch_ctx_ref(ctx);
	orch_sandbox_ref(door->sandbox);
	int32_t code = door_open(door, listen_fd, reterr);
	if (code < 0) {
		door_free(door);
		return code;
	}
	*ret_door = door;
	return 0;
}

int32_t door_new_stub(orch_ctx *ctx, int listen_fd, bool cli, struct door **ret_door,
		      orch_error **reterr)
{
	static const struct door http = {.stub_type = "text/plain", .stub_body = "ok"};
	static const struct door command = {
	    .stub_type = "application/json",
	    .stub_body = "{\"status\":0,\"stdout\":\"ok\",\"stderr\":\"\"}",
	};
	return door_new(ctx, listen_fd, cli ? &command : &http, ret_door, reterr);
}

int32_t door_new_cli(orch_ctx *ctx, int listen_fd, orch_sandbox *sandbox, char *const *start,
		     struct door **ret_door, orch_error **reterr)
{
	struct door kind = {.sandbox = sandbox, .start = start};
	return door_new(ctx, listen_fd, &kind, ret_door, reterr);
}

struct door *door_free(struct door *door)
{
	if (!door)
		return NULL;
	door->closing = true;
	httpd_unwatch(door->httpd);
	/* libmicrohttpd panics on a suspended connection at its end. */
	for (struct request *request = door->requests; request; request = request->next)
		if (request->suspended)
			MHD_resume_connection(request->connection);
	if (door->daemon)
		MHD_stop_daemon(door->daemon);
	httpd_free(door->httpd);
	orch_sandbox_unref(door->sandbox);
	orch_ctx_unref(door->ctx);
	free(door);
	return NULL;
}
