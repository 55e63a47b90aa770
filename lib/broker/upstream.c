/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "../core/os.h"
#include "broker-private.h"

/* --- signals ---------------------------------------------------------------------------------- */

struct masked {
	sigset_t old;
	bool pipe_was_pending;
};

/*
 * Threads that libcurl starts for name resolution inherit the mask: none of the host's signals is
 * to land on them. A SIGPIPE that a TLS library raises meanwhile is taken back.
 */
static void mask_signals(struct masked *masked)
{
	sigset_t all, pending;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &masked->old);
	sigpending(&pending);
	masked->pipe_was_pending = sigismember(&pending, SIGPIPE) == 1;
}

static void unmask_signals(const struct masked *masked)
{
	if (!masked->pipe_was_pending)
		orch_take_back_signal(SIGPIPE);
	pthread_sigmask(SIG_SETMASK, &masked->old, NULL);
}

/* --- one exchange ----------------------------------------------------------------------------- */

struct call {
	orch_broker *broker;
	CURL *easy;
	struct curl_slist *headers;
	const char *body;
	size_t body_length, body_sent;
	const struct call_events *events;
	void *userdata;
	int status;
	bool head_done, paused;
	int64_t last_byte_us;
	orch_source *idle;
	const char *stopped_by; /* a timer's refusal code */
	char error[CURL_ERROR_SIZE];
	struct call *next;
};

struct curl_slist *headers_add(struct curl_slist *list, const char *name, const char *value)
{
	/* "Name;" is how libcurl spells a header without a value. */
	_cleanup_free_ char *line = *value ? orch_strdup_printf("%s: %s", name, value)
					   : orch_strdup_printf("%s;", name);
	struct curl_slist *grown = line ? curl_slist_append(list, line) : NULL;
	if (line)
		orch_erase(line, strlen(line));
	if (!grown)
		headers_free(list);
	return grown;
}

struct curl_slist *headers_leave_out(struct curl_slist *list, const char *name)
{
	_cleanup_free_ char *line = orch_strdup_printf("%s:", name);
	struct curl_slist *grown = line ? curl_slist_append(list, line) : NULL;
	if (!grown)
		headers_free(list);
	return grown;
}

void headers_free(struct curl_slist *list)
{
	for (struct curl_slist *line = list; line; line = line->next)
		orch_erase(line->data, strlen(line->data));
	curl_slist_free_all(list);
}

static curl_socket_t open_socket(void *userdata, curlsocktype purpose,
				 struct curl_sockaddr *address)
{
	(void)userdata;
	if (purpose != CURLSOCKTYPE_IPCXN ||
	    (address->family != AF_INET && address->family != AF_INET6))
		return CURL_SOCKET_BAD;
	return orch_socket(address->family, address->socktype, address->protocol);
}

static void trim(char *value)
{
	size_t length = strlen(value);
	while (length && strchr(" \t\r\n", value[length - 1]))
		value[--length] = '\0';
}

static size_t on_header(char *line, size_t one, size_t length, void *userdata)
{
	struct call *call = userdata;
	(void)one;
	call->last_byte_us = orch_monotonic_us();
	/* Trailers come by the same way. */
	if (call->head_done)
		return length;
	_cleanup_free_ char *text = strndup(line, length);
	if (!text)
		return 0;
	trim(text);
	if (strncmp(text, "HTTP/", 5) == 0) {
		const char *space = strchr(text, ' ');
		call->status = space ? (int)strtol(space, NULL, 10) : 0;
		return call->status >= 100 && call->status <= 999 ? length : 0;
	}
	if (call->status < 200)
		return length;
	if (!*text) {
		call->head_done = true;
		call->events->head(call->userdata, call->status);
		return length;
	}
	char *colon = strchr(text, ':');
	if (colon) {
		*colon++ = '\0';
		trim(text);
		call->events->header(call->userdata, text, colon + strspn(colon, " \t"));
	}
	return length;
}

static size_t on_body(char *bytes, size_t one, size_t length, void *userdata)
{
	struct call *call = userdata;
	(void)one;
	call->last_byte_us = orch_monotonic_us();
	call->paused = !call->events->body(call->userdata, bytes, length);
	return call->paused ? CURL_WRITEFUNC_PAUSE : length;
}

static size_t on_upload(char *room, size_t one, size_t length, void *userdata)
{
	struct call *call = userdata;
	size_t rest = call->body_length - call->body_sent;
	size_t count = one * length < rest ? one * length : rest;
	if (count)
		memcpy(room, call->body + call->body_sent, count);
	call->body_sent += count;
	call->last_byte_us = orch_monotonic_us();
	return count;
}

/* libcurl would send a request again when a kept connection dies under it: what was dispatched once
 * is not. */
static int on_rewind(void *userdata, curl_off_t offset, int origin)
{
	(void)userdata, (void)offset, (void)origin;
	return CURL_SEEKFUNC_FAIL;
}

/* What every exchange has in common. */
static CURL *easy_new(orch_broker *broker, const char *url, char *error)
{
	CURL *easy = curl_easy_init();
	if (!easy)
		return NULL;
	CURLcode code = curl_easy_setopt(easy, CURLOPT_URL, url);
	code |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	code |= curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	code |= curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	code |= curl_easy_setopt(easy, CURLOPT_PROXY, "");
	code |= curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	code |= curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	code |= curl_easy_setopt(easy, CURLOPT_HTTP09_ALLOWED, 0L);
	code |= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	code |= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	/* Identity is asked for; a server that compresses all the same is decoded. */
	code |= curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "identity");
	code |= curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	code |= curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)broker->connect_timeout_ms);
	code |= curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error);
#if LIBCURL_VERSION_NUM >= 0x075500
	code |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	code |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A resolver that hangs is left behind, not waited for. */
	code |= curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
	if (code) {
		curl_easy_cleanup(easy);
		return NULL;
	}
	return easy;
}

static CURLcode set_method(struct call *call, const struct call_request *request)
{
	CURL *easy = call->easy;
	if (strcmp(request->method, "GET") == 0)
		return curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
	CURLcode code = curl_easy_setopt(easy, CURLOPT_POST, 1L);
	code |= curl_easy_setopt(easy, CURLOPT_POSTFIELDS, NULL);
	code |= curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)request->body_length);
	code |= curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
	code |= curl_easy_setopt(easy, CURLOPT_READDATA, call);
	code |= curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_rewind);
	return code;
}

static void finish(struct call *call, CURLcode result);

static void on_idle(void *userdata)
{
	struct call *call = userdata;
	int64_t idle_ms = (orch_monotonic_us() - call->last_byte_us) / 1000;
	/* While the client is the slow one, nothing can be said of the server. */
	if (call->paused)
		idle_ms = 0;
	if (idle_ms < call->broker->idle_timeout_ms) {
		orch_source_timer_set(call->idle, call->broker->idle_timeout_ms - idle_ms);
		return;
	}
	call->stopped_by = "upstream_timeout";
	finish(call, CURLE_OPERATION_TIMEDOUT);
}

struct call *call_start(orch_broker *broker, const struct call_request *request,
			const struct call_events *events, void *userdata)
{
	struct call *call = calloc(1, sizeof(*call));
	if (!call) {
		headers_free(request->headers);
		return NULL;
	}
	call->broker = broker;
	call->headers = request->headers;
	call->body = request->body;
	call->body_length = request->body_length;
	call->events = events;
	call->userdata = userdata;
	call->last_byte_us = orch_monotonic_us();
	call->easy = easy_new(broker, request->url, call->error);
	if (!call->easy)
		return call_stop(call);
	CURLcode code = set_method(call, request);
	code |= curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
	code |= curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
	code |= curl_easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header);
	code |= curl_easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
	code |= curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_body);
	code |= curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
	code |= curl_easy_setopt(call->easy, CURLOPT_FRESH_CONNECT, request->fresh ? 1L : 0L);
	code |= curl_easy_setopt(call->easy, CURLOPT_FORBID_REUSE, request->fresh ? 1L : 0L);
	if (request->fresh)
		code |= curl_easy_setopt(call->easy, CURLOPT_HTTP_VERSION,
					 (long)CURL_HTTP_VERSION_1_1);
	if (request->total_ms)
		code |= curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long)request->total_ms);
	if (code || orch_source_timer(broker->ctx, broker->idle_timeout_ms, on_idle, call,
				      &call->idle, NULL) < 0)
		return call_stop(call);
	struct masked masked;
	mask_signals(&masked);
	CURLMcode added = curl_multi_add_handle(broker->multi, call->easy);
	unmask_signals(&masked);
	return added ? call_stop(call) : call;
}

void call_unpause(struct call *call)
{
	struct masked masked;
	call->paused = false;
	call->last_byte_us = orch_monotonic_us();
	mask_signals(&masked);
	curl_easy_pause(call->easy, CURLPAUSE_CONT);
	unmask_signals(&masked);
}

struct call *call_stop(struct call *call)
{
	if (!call)
		return NULL;
	orch_source_remove(call->idle);
	if (call->easy && !orch_ctx_forked(call->broker->ctx)) {
		struct masked masked;
		mask_signals(&masked);
		curl_multi_remove_handle(call->broker->multi, call->easy);
		curl_easy_cleanup(call->easy);
		unmask_signals(&masked);
	}
	headers_free(call->headers);
	free(call);
	return NULL;
}

/* Whether any byte of the request can have reached a server. */
static bool was_sent(struct call *call)
{
	long sent = 0;
	curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &sent);
	return sent > 0 || call->body_sent > 0 || call->status;
}

static const char *refusal_code(CURLcode result, bool sent)
{
	switch (result) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_INVALIDCERTSTATUS:
		return sent ? "upstream_lost" : "upstream_tls";
	case CURLE_OPERATION_TIMEDOUT:
		return sent ? "upstream_timeout" : "upstream_unreachable";
	default:
		return sent ? "upstream_lost" : "upstream_unreachable";
	}
}

/* Ends the call: `done`, then it is gone. */
static void finish(struct call *call, CURLcode result)
{
	const struct call_events *events = call->events;
	void *userdata = call->userdata;
	bool sent = was_sent(call);
	enum call_end end = !sent ? CALL_NOT_SENT : result ? CALL_LOST : CALL_COMPLETE;
	const char *code = call->stopped_by ? call->stopped_by : refusal_code(result, sent);
	char why[CURL_ERROR_SIZE + 64];

	/* A close before any header is an empty reply, not a complete response. */
	if (end == CALL_COMPLETE && !call->head_done)
		end = CALL_LOST;
	if (call->stopped_by)
		snprintf(why, sizeof(why), "no byte came for %lld ms",
			 (long long)call->broker->idle_timeout_ms);
	else
		snprintf(why, sizeof(why), "%s",
			 call->error[0] ? call->error : curl_easy_strerror(result));
	call_stop(call);
	events->done(userdata, end, end == CALL_COMPLETE ? "" : code, why);
}

/* --- the multi handle in the loop ------------------------------------------------------------- */

struct curl_socket {
	orch_broker *broker;
	int fd;
	orch_source *source;
	struct curl_socket *next, *previous;
};

static void collect(orch_broker *broker)
{
	int left;
	CURLMsg *message;
	while (broker->multi && (message = curl_multi_info_read(broker->multi, &left))) {
		if (message->msg != CURLMSG_DONE)
			continue;
		struct call *call = NULL;
		CURLcode result = message->data.result;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
		finish(call, result);
	}
}

static void act(orch_broker *broker, int fd, int mask)
{
	struct masked masked;
	int running;
	mask_signals(&masked);
	curl_multi_socket_action(broker->multi, fd, mask, &running);
	unmask_signals(&masked);
	collect(broker);
}

static void on_socket_ready(void *userdata, uint32_t events)
{
	struct curl_socket *entry = userdata;
	act(entry->broker, entry->fd,
	    (events & ORCH_IO_READ ? CURL_CSELECT_IN : 0) |
		    (events & ORCH_IO_WRITE ? CURL_CSELECT_OUT : 0));
}

static void socket_remove(orch_broker *broker, struct curl_socket *entry)
{
	orch_source_remove(entry->source);
	if (entry->previous)
		entry->previous->next = entry->next;
	else
		broker->sockets = entry->next;
	if (entry->next)
		entry->next->previous = entry->previous;
	free(entry);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *userdata, void *assigned)
{
	orch_broker *broker = userdata;
	struct curl_socket *entry = assigned;
	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (entry)
			socket_remove(broker, entry);
		curl_multi_assign(broker->multi, fd, NULL);
		return 0;
	}
	uint32_t events = (what & CURL_POLL_IN ? ORCH_IO_READ : 0u) |
			  (what & CURL_POLL_OUT ? ORCH_IO_WRITE : 0u);
	if (entry) {
		orch_source_io_set(entry->source, events);
		return 0;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -1;
	entry->broker = broker;
	entry->fd = fd;
	/* The resolver's own sockets are made without it. */
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (orch_source_io(broker->ctx, fd, events, on_socket_ready, entry, &entry->source, NULL) <
	    0) {
		free(entry);
		return -1;
	}
	entry->next = broker->sockets;
	if (entry->next)
		entry->next->previous = entry;
	broker->sockets = entry;
	curl_multi_assign(broker->multi, fd, entry);
	return 0;
}

static int on_multi_timer(CURLM *multi, long timeout_ms, void *userdata)
{
	orch_broker *broker = userdata;
	(void)multi;
	orch_source_timer_set(broker->multi_timer, timeout_ms);
	return 0;
}

static void on_multi_due(void *userdata)
{
	act(userdata, CURL_SOCKET_TIMEOUT, 0);
}

/*
 * libcurl makes the pair of its curl_multi_wakeup() without close-on-exec and keeps it to itself.
 * The pair gets the two lowest free descriptors; it is known by the byte that a wake-up puts into
 * it. Nobody else reads it.
 */
static void close_wakeup_pair_on_exec(CURLM *multi, const int candidates[2])
{
	int waiting = 0;
	if (!orch_socket_is_nameless(candidates[0]) || !orch_socket_is_nameless(candidates[1]) ||
	    ioctl(candidates[0], FIONREAD, &waiting) < 0 || waiting)
		return;
	curl_multi_wakeup(multi);
	if (ioctl(candidates[0], FIONREAD, &waiting) < 0 || !waiting)
		return;
	fcntl(candidates[0], F_SETFD, FD_CLOEXEC);
	fcntl(candidates[1], F_SETFD, FD_CLOEXEC);
}

static CURLM *multi_new(void)
{
	int candidates[2];
	for (int i = 0; i < 2; i++)
		candidates[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < 2; i++)
		if (candidates[i] >= 0)
			close(candidates[i]);
	CURLM *multi = curl_multi_init();
	if (multi && candidates[1] >= 0)
		close_wakeup_pair_on_exec(multi, candidates);
	return multi;
}

static void global_init(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

int32_t upstream_init(orch_broker *broker, orch_error **reterr)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, global_init);
	int32_t code = orch_source_timer(broker->ctx, -1, on_multi_due, broker,
					 &broker->multi_timer, reterr);
	if (code < 0)
		return code;
	broker->multi = multi_new();
	if (!broker->multi)
		return orch_fail_memory(reterr);
	curl_multi_setopt(broker->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(broker->multi, CURLMOPT_SOCKETDATA, broker);
	curl_multi_setopt(broker->multi, CURLMOPT_TIMERFUNCTION, on_multi_timer);
	curl_multi_setopt(broker->multi, CURLMOPT_TIMERDATA, broker);
	/* Streams that shared a connection would be paused together: one slow reader would hold up
	 * others. */
	curl_multi_setopt(broker->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	return 0;
}

void upstream_end(orch_broker *broker)
{
	bool forked = orch_ctx_forked(broker->ctx);
	CURLM *multi = broker->multi;
	if (multi && !forked) {
		struct masked masked;
		mask_signals(&masked);
		curl_multi_cleanup(multi);
		unmask_signals(&masked);
	}
	broker->multi = NULL;
	while (broker->sockets)
		socket_remove(broker, broker->sockets);
	broker->multi_timer = orch_source_remove(broker->multi_timer);
}

/* --- the waiting form ------------------------------------------------------------------------- */

struct bounded {
	struct orch_buf *buf;
	size_t room;
};

static size_t on_bounded(char *bytes, size_t one, size_t length, void *userdata)
{
	struct bounded *bounded = userdata;
	size_t count = one * length < bounded->room ? one * length : bounded->room;
	orch_buf_add(bounded->buf, bytes, count);
	bounded->room -= count;
	return one * length;
}

long call_wait(orch_broker *broker, const char *url, int64_t timeout_ms, struct orch_buf *body,
	       char **ret_content_type)
{
	char error[CURL_ERROR_SIZE] = "";
	struct bounded bounded = {.buf = body, .room = NOTIFY_LIMIT};
	CURL *easy = easy_new(broker, url, error);
	if (!easy)
		return 0;
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bounded);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &bounded);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	struct masked masked;
	mask_signals(&masked);
	CURLcode code = curl_easy_perform(easy);
	unmask_signals(&masked);
	long status = 0;
	const char *type = NULL;
	if (code == CURLE_OK) {
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
		curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
		*ret_content_type = type ? strdup(type) : NULL;
	}
	curl_easy_cleanup(easy);
	return status;
}
