/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "broker-fixture.h"

/* --- the provider ----------------------------------------------------------------------------- */

void provider_start(struct provider *provider, const char *pem)
{
	_cleanup_free_ char *script =
		orch_strdup_printf("%s/tests/e2e/broker-upstream.py", getenv("ORCH_SOURCE_ROOT"));
	char *const argv[] = {"env", "python3", script, (char *)pem, NULL};
	char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
	int in[2], out[2];
	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	ck_assert_int_eq(posix_spawn(&provider->pid, "/usr/bin/env", &actions, NULL, argv, envp),
			 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	char line[32] = "";
	size_t length = 0;
	while (length < sizeof(line) - 1 && read(out[0], line + length, 1) == 1 &&
	       line[length] != '\n')
		length++;
	close(out[0]);
	provider->stdin_fd = in[1];
	provider->port = atoi(line);
	ck_assert_msg(provider->port > 0, "the provider did not start");
}

void provider_stop(struct provider *provider)
{
	close(provider->stdin_fd);
	ck_assert_int_eq(waitpid(provider->pid, NULL, 0), provider->pid);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	return remove(path);
}

/* --- the broker ------------------------------------------------------------------------------- */

static void on_told(void *userdata, orch_principal *principal, const char *operation,
		    uint32_t event, const char *code, int32_t status, int64_t quota_resets_at_ms)
{
	struct fixture *fixture = userdata;
	ck_assert_uint_lt(fixture->told_count, 512);
	struct told *told = &fixture->told[fixture->told_count++];
	snprintf(told->operation, sizeof(told->operation), "%s", operation);
	snprintf(told->code, sizeof(told->code), "%s", code);
	told->event = event;
	told->status = status;
	told->quota_resets_at_ms = quota_resets_at_ms;
	told->principal = principal;
}

static void on_destroyed(void *userdata)
{
	((struct fixture *)userdata)->destroyed++;
}

int listen_anywhere(int *ret_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	*ret_port = ntohs(address.sin_port);
	return fd;
}

void fixture_principal(struct fixture *fixture, uint64_t requests, uint64_t tokens,
		       uint64_t micro_usd)
{
	struct orch_principal_opts opts;
	orch_principal_opts_init(&opts, sizeof(opts));
	opts.name = "p";
	opts.generation = 3;
	opts.max_requests = requests;
	opts.max_tokens = tokens;
	opts.max_micro_usd = micro_usd;
	orch_principal_unref(fixture->principal);
	if (fixture->listener >= 0)
		close(fixture->listener);
	ck_assert_int_eq(orch_principal_new(fixture->broker, &opts, &fixture->principal, NULL), 0);
	fixture->listener = listen_anywhere(&fixture->port);
	ck_assert_int_eq(orch_broker_add_listener(fixture->broker, fixture->listener,
						  fixture->principal, NULL),
			 0);
}

static void on_log(void *userdata, uint32_t level, const char *message)
{
	(void)userdata, (void)level;
	ck_assert_msg(!strstr(message, SECRET), "the secret is in a log line: %s", message);
	if (getenv("BROKER_TEST_LOG"))
		fprintf(stderr, "%s\n", message);
}

void fixture_open(struct fixture *fixture, const struct orch_broker_opts *given)
{
	struct orch_ctx_opts ctx_opts;
	struct orch_journal_opts journal_opts;
	struct orch_broker_opts opts;
	orch_error *error = NULL;
	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	char helper[600];
	const char *build = getenv("ORCH_BUILD_ROOT");
	snprintf(helper, sizeof(helper), "%s/lib/helper/orch-reaper", build ? build : ".");
	ctx_opts.helper_path = helper;
	ctx_opts.log = on_log;
	ctx_opts.log_level = ORCH_LOG_DEBUG;
	ck_assert_int_eq(orch_ctx_new(&ctx_opts, &fixture->ctx, NULL), 0);
	orch_journal_opts_init(&journal_opts, sizeof(journal_opts));
	journal_opts.path = fixture->journal_path;
	int32_t code = orch_journal_open(&journal_opts, &fixture->journal, &error);
	ck_assert_msg(code == 0, "%s", orch_error_message(error));
	orch_broker_opts_init(&opts, sizeof(opts));
	if (given)
		opts = *given;
	opts.journal = fixture->journal;
	ck_assert_int_eq(orch_broker_new(fixture->ctx, &opts, &fixture->broker, NULL), 0);
	ck_assert_int_eq(
		orch_broker_on_operation(fixture->broker, on_told, fixture, on_destroyed, NULL), 0);
	fixture_principal(fixture, 0, 0, 0);
}

void fixture_close(struct fixture *fixture)
{
	fixture->principal = orch_principal_unref(fixture->principal);
	fixture->broker = orch_broker_unref(fixture->broker);
	fixture->journal = orch_journal_unref(fixture->journal);
	fixture->ctx = orch_ctx_unref(fixture->ctx);
	if (fixture->listener >= 0)
		close(fixture->listener);
	fixture->listener = -1;
}

struct fixture *fixture_new(void)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	/* First: without it nothing is left behind. */
	provider_start(&fixture->upstream, NULL);
	strcpy(fixture->folder, "/tmp/orch-broker-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(fixture->folder));
	snprintf(fixture->journal_path, sizeof(fixture->journal_path), "%s/journal",
		 fixture->folder);
	fixture->listener = -1;
	fixture_open(fixture, NULL);
	return fixture;
}

void fixture_free(struct fixture *fixture)
{
	fixture_close(fixture);
	provider_stop(&fixture->upstream);
	nftw(fixture->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	free(fixture);
}

void set_upstream(struct fixture *fixture, const char *operation, const char *mode, bool priced)
{
	struct orch_upstream_opts opts;
	orch_error *error = NULL;
	_cleanup_free_ char *url =
		orch_strdup_printf("http://127.0.0.1:%d/%s", fixture->upstream.port, mode);
	orch_upstream_opts_init(&opts, sizeof(opts));
	opts.base_url = url;
	opts.credential = ORCH_CREDENTIAL_API_KEY;
	opts.secret = SECRET;
	if (priced) {
		opts.input_price_micro_usd_per_mtok = 1000000;
		opts.output_price_micro_usd_per_mtok = 2000000;
	}
	int32_t code = orch_broker_set_upstream(fixture->broker, operation, &opts, &error);
	ck_assert_msg(code == 0, "%s", orch_error_message(error));
}

void grant(struct fixture *fixture, const char *operation, const char *path, const char *probe_path)
{
	struct orch_grant_opts opts;
	orch_error *error = NULL;
	_cleanup_free_ char *url =
		path ? orch_strdup_printf("http://127.0.0.1:%d/%s", fixture->upstream.port, path)
		     : NULL;
	_cleanup_free_ char *probe_url =
		probe_path ? orch_strdup_printf("http://127.0.0.1:%d/%s", fixture->upstream.port,
						probe_path)
			   : NULL;
	orch_grant_opts_init(&opts, sizeof(opts));
	opts.operation = operation;
	opts.url = url;
	opts.probe_url = probe_url;
	opts.key_prefix = "run-1/";
	int32_t code = orch_principal_grant(fixture->principal, &opts, &error);
	ck_assert_msg(code == 0, "%s", orch_error_message(error));
}

/* --- clients ---------------------------------------------------------------------------------- */

static double seconds(void)
{
	return (double)orch_monotonic_us() / 1e6;
}

static int connect_to(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Takes the chunks apart in place; true if the last one came. */
static bool dechunk(char *body, size_t *length)
{
	size_t from = 0, to = 0;
	while (from < *length) {
		char *end = NULL;
		size_t chunk = strtoul(body + from, &end, 16);
		size_t start = (size_t)(end - body) + 2;
		if (chunk == 0) {
			*length = to;
			return memcmp(body + from, "0\r\n\r\n", 5) == 0;
		}
		if (start > *length)
			break;
		size_t have = *length - start < chunk ? *length - start : chunk;
		memmove(body + to, body + start, have);
		to += have;
		from = start + chunk + 2;
	}
	*length = to;
	return false;
}

static void parse_reply(struct reply *reply, struct orch_buf *in)
{
	char *split = in->data ? strstr(in->data, "\r\n\r\n") : NULL;
	if (!split)
		return;
	reply->head = strndup(in->data, (size_t)(split - in->data) + 2);
	reply->status = (int)strtol(in->data + 9, NULL, 10);
	reply->length = in->length - (size_t)(split + 4 - in->data);
	reply->body = malloc(reply->length + 1);
	memcpy(reply->body, split + 4, reply->length);
	reply->body[reply->length] = '\0';
	const char *length = strcasestr(reply->head, "\r\nContent-Length:");
	if (strcasestr(reply->head, "\r\nTransfer-Encoding: chunked"))
		reply->whole = dechunk(reply->body, &reply->length);
	else if (length)
		reply->whole = strtoul(length + 17, NULL, 10) == reply->length;
	reply->body[reply->length] = '\0';
}

static void exchange(struct ask *ask)
{
	struct orch_buf in = {0};
	char block[16384];
	double began = seconds();
	int fd = connect_to(ask->port);
	if (fd < 0) {
		ask->reply.error = errno;
		return;
	}
	size_t sent = 0;
	while (sent < ask->request_length) {
		ssize_t count =
			send(fd, ask->request + sent, ask->request_length - sent, MSG_NOSIGNAL);
		if (count < 0)
			break;
		sent += (size_t)count;
	}
	began = seconds();
	for (;;) {
		if (ask->pause_ms)
			poll(NULL, 0, (int)ask->pause_ms);
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		int wait_ms = ask->stop_after_ms ? (int)ask->stop_after_ms : 30000;
		if (poll(&ready, 1, wait_ms) <= 0)
			break;
		ssize_t count = recv(fd, block, sizeof(block), 0);
		if (count < 0)
			ask->reply.error = errno;
		if (count <= 0)
			break;
		orch_buf_add(&in, block, (size_t)count);
		if (!(ask->reply.first_body_s > 0)) {
			const char *split = strstr(in.data, "\r\n\r\n");
			if (split && split + 4 < in.data + in.length)
				ask->reply.first_body_s = seconds() - began;
		}
		if (ask->stop_after && in.length >= ask->stop_after)
			break;
	}
	ask->reply.end_s = seconds() - began;
	close(fd);
	parse_reply(&ask->reply, &in);
	orch_buf_free(&in);
}

static void *ask_thread(void *userdata)
{
	struct ask *ask = userdata;
	orch_ctx *ctx = ask->ctx;
	exchange(ask);
	ask->done = true;
	orch_ctx_wakeup(ctx);
	return NULL;
}

static void ask_go(struct ask *ask)
{
	ck_assert_int_eq(pthread_create(&ask->thread, NULL, ask_thread, ask), 0);
}

static struct ask *ask_new(struct fixture *fixture, char *request)
{
	struct ask *ask = calloc(1, sizeof(*ask));
	ask->port = fixture->port;
	ask->request = request;
	ask->request_length = strlen(request);
	ask->ctx = fixture->ctx;
	return ask;
}

struct ask *ask_raw(struct fixture *fixture, const char *request)
{
	struct ask *ask = ask_new(fixture, strdup(request));
	ask_go(ask);
	return ask;
}

struct ask *ask_start(struct fixture *fixture, const char *method, const char *path,
		      const char *headers, const char *body)
{
	/* "slow:N:" and "stop:N:" before the method set pause_ms and stop_after_ms, "cut:N:"
	 * stop_after. */
	unsigned number = 0;
	char word[8] = "";
	if (sscanf(method, "%7[a-z]:%u:", word, &number) == 2)
		method = strrchr(method, ':') + 1;
	char *request = orch_strdup_printf(
		"%s %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n"
		"Content-Length: %zu\r\n%s\r\n%s",
		method, path, body ? strlen(body) : 0, headers ? headers : "", body ? body : "");
	struct ask *ask = ask_new(fixture, request);
	if (strcmp(word, "slow") == 0)
		ask->pause_ms = number;
	if (strcmp(word, "stop") == 0)
		ask->stop_after_ms = number;
	if (strcmp(word, "cut") == 0)
		ask->stop_after = number;
	ask_go(ask);
	return ask;
}

static bool ask_is_done(void *userdata)
{
	return ((struct ask *)userdata)->done;
}

void run_until(struct fixture *fixture, bool (*done)(void *userdata), void *userdata)
{
	orch_error *error = NULL;
	int32_t code = orch_ctx_wait(fixture->ctx, 60000, done, userdata, &error);
	ck_assert_msg(code == 0, "%s", orch_error_message(error));
}

void run_ms(struct fixture *fixture, int64_t ms)
{
	ck_assert_int_eq(orch_ctx_run(fixture->ctx, ms, NULL), ORCH_ETIMEDOUT);
}

struct reply *ask_wait(struct fixture *fixture, struct ask *ask)
{
	run_until(fixture, ask_is_done, ask);
	/* What the end of the connection set off is part of the request. */
	run_ms(fixture, 20);
	return &ask->reply;
}

struct ask *ask_free(struct ask *ask)
{
	pthread_join(ask->thread, NULL);
	free(ask->request);
	free(ask->reply.head);
	free(ask->reply.body);
	free(ask);
	return NULL;
}

struct reply *ask(struct fixture *fixture, struct ask **ret_ask, const char *method,
		  const char *path, const char *headers, const char *body)
{
	*ret_ask = ask_start(fixture, method, path, headers, body);
	return ask_wait(fixture, *ret_ask);
}

struct reply ask_direct(int port, const char *request)
{
	struct ask ask = {
		.port = port, .request = (char *)request, .request_length = strlen(request)};
	exchange(&ask);
	return ask.reply;
}

/* --- what was seen ---------------------------------------------------------------------------- */

const char *refusal(const struct reply *reply)
{
	static char code[64];
	json_t *body = reply->body ? json_loads(reply->body, 0, NULL) : NULL;
	const char *type =
		json_string_value(json_object_get(json_object_get(body, "error"), "type"));
	const char *message =
		json_string_value(json_object_get(json_object_get(body, "error"), "message"));
	snprintf(code, sizeof(code), "%s", type && message && *message ? type : "(none)");
	json_decref(body);
	return code;
}

json_t *upstream_log(struct fixture *fixture)
{
	struct reply reply =
		ask_direct(fixture->upstream.port,
			   "GET /log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	ck_assert_int_eq(reply.status, 200);
	json_t *log = json_loads(reply.body, 0, NULL);
	ck_assert_ptr_nonnull(log);
	free(reply.head);
	free(reply.body);
	return log;
}

size_t upstream_count(struct fixture *fixture)
{
	json_t *log = upstream_log(fixture);
	size_t count = json_array_size(json_object_get(log, "requests"));
	json_decref(log);
	return count;
}

json_int_t applied(struct fixture *fixture, const char *key)
{
	json_t *log = upstream_log(fixture);
	json_int_t count =
		json_integer_value(json_object_get(json_object_get(log, "applied"), key));
	json_decref(log);
	return count;
}

unsigned told_count(const struct fixture *fixture, uint32_t event, const char *code)
{
	unsigned count = 0;
	for (unsigned i = 0; i < fixture->told_count; i++)
		count += fixture->told[i].event == event &&
			 (!code || strcmp(fixture->told[i].code, code) == 0);
	return count;
}

struct only {
	uint32_t state;
	unsigned count;
};

static int32_t on_action(void *userdata, orch_action *action)
{
	struct only *only = userdata;
	only->state = orch_action_state(action);
	only->count++;
	return 0;
}

uint32_t only_state(struct fixture *fixture, const char *kind)
{
	struct only only = {0};
	ck_assert_int_eq(orch_journal_each(fixture->journal, kind, on_action, &only, NULL), 0);
	ck_assert_uint_eq(only.count, 1);
	return only.state;
}

unsigned action_count(struct fixture *fixture, const char *kind)
{
	struct only only = {0};
	ck_assert_int_eq(orch_journal_each(fixture->journal, kind, on_action, &only, NULL), 0);
	return only.count;
}
