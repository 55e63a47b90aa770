/* SPDX-License-Identifier: Apache-2.0 */
/*
 * synth-provider: speaks the protocols of two model providers and replays a scenario. It keeps no state between
 * requests: which step is next is counted from the tool results in the request.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "answer.h"
#include "request.h"
#include "scenario.h"
#include "witness.h"

#define BODY_LIMIT ((size_t)64 * 1024 * 1024)
#define OUTSIDE_PATH "/outside/announce"

#define EXIT_USAGE 2 /* also: a malformed scenario */

struct options {
	const char *scenario, *port_file, *log, *outside_log, *expected_key;
	unsigned port, delay_ms, outside_delay_ms, retry_after_s;
	unsigned fail_count, fail_status;
	bool check;
};

struct server {
	struct options options;
	struct scenario *scenario;
	struct witness *witness;
	pthread_mutex_t lock;
	pthread_cond_t stopping;
	bool stop;
	unsigned failed; /* of options.fail_count */
};

struct call {
	char *body;
	size_t length;
	bool too_large;
};

/* --- sending ---------------------------------------------------------------------------------- */

struct sending {
	struct answer answer;
	size_t piece, offset;
};

static ssize_t send_piece(void *userdata, uint64_t position, char *buffer, size_t size)
{
	struct sending *sending = userdata;
	const char *rest;
	size_t length;

	(void)position;
	if (sending->piece == sending->answer.count)
		return MHD_CONTENT_READER_END_OF_STREAM;
	rest = sending->answer.pieces[sending->piece] + sending->offset;
	length = strlen(rest);
	if (length > size) {
		memcpy(buffer, rest, size);
		sending->offset += size;
		return (ssize_t)size;
	}
	memcpy(buffer, rest, length);
	sending->piece++;
	sending->offset = 0;
	return (ssize_t)length;
}

static void sending_free(void *userdata)
{
	struct sending *sending = userdata;

	answer_clear(&sending->answer);
	free(sending);
}

static void quota_headers(struct MHD_Response *response, enum api api, int status, unsigned retry_after_s)
{
	time_t reset = time(NULL) + (time_t)retry_after_s;
	char number[32], stamp[40];
	struct tm parts;

	if (status != 429 && status != 529 && status != 503)
		return;
	snprintf(number, sizeof(number), "%u", retry_after_s);
	MHD_add_response_header(response, "Retry-After", number);
	if (status != 429)
		return;
	gmtime_r(&reset, &parts);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &parts);
	snprintf(number, sizeof(number), "%lld", (long long)reset);
	if (api == API_OPENAI) {
		MHD_add_response_header(response, "x-codex-primary-used-percent", "100");
		MHD_add_response_header(response, "x-codex-primary-window-minutes", "300");
		MHD_add_response_header(response, "x-codex-primary-reset-at", number);
		return;
	}
	MHD_add_response_header(response, "anthropic-ratelimit-requests-limit", "50");
	MHD_add_response_header(response, "anthropic-ratelimit-requests-remaining", "0");
	MHD_add_response_header(response, "anthropic-ratelimit-requests-reset", stamp);
	MHD_add_response_header(response, "anthropic-ratelimit-unified-status", "rejected");
	MHD_add_response_header(response, "anthropic-ratelimit-unified-reset", number);
}

/* Takes the answer's content. */
static enum MHD_Result send_answer(struct server *server, struct MHD_Connection *connection, enum api api,
				   struct answer *answer)
{
	struct sending *sending = calloc(1, sizeof(*sending));
	int status = answer->status;
	bool stream = answer->stream;
	struct MHD_Response *response;
	enum MHD_Result result;

	if (sending == NULL || answer->failed) {
		free(sending);
		answer_clear(answer);
		return MHD_NO;
	}
	sending->answer = *answer;
	memset(answer, 0, sizeof(*answer));
	response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, send_piece, sending,
						     sending_free);
	if (response == NULL) {
		sending_free(sending);
		return MHD_NO;
	}
	MHD_add_response_header(response, "Content-Type", stream ? "text/event-stream" : "application/json");
	MHD_add_response_header(response, "Cache-Control", "no-cache");
	MHD_add_response_header(response, "request-id", "req_synth");
	quota_headers(response, api, status, server->options.retry_after_s);
	result = MHD_queue_response(connection, (unsigned)status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result send_error(struct server *server, struct MHD_Connection *connection, enum api api,
				  int status, const char *message)
{
	struct answer answer = {0};

	answer_error(&answer, api, status, message, server->options.retry_after_s);
	return send_answer(server, connection, api, &answer);
}

/* Ends early when the server stops. */
static void wait_ms(struct server *server, unsigned delay_ms)
{
	struct timespec until;

	if (delay_ms == 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += delay_ms / 1000;
	until.tv_nsec += (long)(delay_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&server->lock);
	while (!server->stop &&
	       pthread_cond_timedwait(&server->stopping, &server->lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&server->lock);
}

/* --- the providers ---------------------------------------------------------------------------- */

static bool takes_failure(struct server *server)
{
	bool fails;

	pthread_mutex_lock(&server->lock);
	fails = server->failed < server->options.fail_count;
	if (fails)
		server->failed++;
	pthread_mutex_unlock(&server->lock);
	return fails;
}

static bool key_is_right(struct server *server, struct MHD_Connection *connection)
{
	const char *key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "x-api-key");
	const char *bearer = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");

	if (key != NULL)
		return strcmp(key, server->options.expected_key) == 0;
	return bearer != NULL && strncmp(bearer, "Bearer ", 7) == 0 &&
	       strcmp(bearer + 7, server->options.expected_key) == 0;
}

/* What is to be said and done for a request; decided before it is logged, so that the log can name it. */
struct turn {
	char text[512];
	const char *command, *script;
	char missing[160];
};

static void choose_turn(struct server *server, const struct request *request, struct turn *turn)
{
	const struct script *script;

	if (!request->has_packet) {
		snprintf(turn->text, sizeof(turn->text),
			 "This is a synthetic provider. It replays the scenario \"%s\" for packets.",
			 server->scenario->name);
		return;
	}
	if (request->packet_is_malformed) {
		snprintf(turn->text, sizeof(turn->text),
			 "The packet line is malformed. Expected: orch-packet/1 run=RUN role=ROLE "
			 "stage=STAGE task=TASK attempt=N");
		return;
	}
	script = scenario_find(server->scenario, &request->packet, turn->missing, sizeof(turn->missing));
	if (script == NULL) {
		snprintf(turn->text, sizeof(turn->text), "The scenario \"%s\" has no file %s.",
			 server->scenario->name, turn->missing);
		return;
	}
	turn->missing[0] = '\0';
	turn->script = script->name;
	if (request->form == SHELL_NONE)
		snprintf(turn->text, sizeof(turn->text), "No shell tool is offered, so nothing can be done.");
	else if (request->results >= script->step_count)
		snprintf(turn->text, sizeof(turn->text), "Done: all %zu steps of %s.", script->step_count,
			 script->name);
	else {
		snprintf(turn->text, sizeof(turn->text), "Step %zu of %zu.", request->results + 1,
			 script->step_count);
		turn->command = script->steps[request->results];
	}
}

static json_t *log_line(enum api api, const char *method, const char *path, size_t bytes)
{
	return json_pack("{s:s,s:n,s:n,s:n,s:n,s:n,s:n,s:I,s:s,s:s}", "api",
			 api == API_ANTHROPIC ? "anthropic"
			 : api == API_OPENAI  ? "openai"
					      : "none",
			 "run", "role", "stage", "task", "attempt", "step", "bytes", (json_int_t)bytes, "method",
			 method, "path", path);
}

static void log_packet(json_t *line, const struct request *request, const struct turn *turn)
{
	const struct packet *packet = &request->packet;

	if (!request->has_packet || request->packet_is_malformed)
		return;
	json_object_set_new(line, "run", json_string(packet->run));
	json_object_set_new(line, "role", json_string(packet->role));
	json_object_set_new(line, "stage", json_string(packet->stage));
	json_object_set_new(line, "task", json_string(packet->task));
	json_object_set_new(line, "attempt", json_integer(packet->attempt));
	json_object_set_new(line, "step", json_integer((json_int_t)request->results + 1));
	if (turn->script != NULL)
		json_object_set_new(line, "script", json_string(turn->script));
	if (turn->missing[0] != '\0')
		json_object_set_new(line, "missing", json_string(turn->missing));
}

static enum MHD_Result serve_turn(struct server *server, struct MHD_Connection *connection, enum api api,
				  const char *path, const struct call *call)
{
	json_t *line = log_line(api, "POST", path, call->length);
	struct answer answer = {0};
	struct request request = {0};
	struct turn turn = {0};
	bool authorised = true, parsed, failing;
	char error[256] = "";
	unsigned long long number;
	enum MHD_Result result;
	int status = 200;

	parsed = request_parse(api, call->body != NULL ? call->body : "", call->length, &request, error,
			       sizeof(error));
	if (parsed) {
		choose_turn(server, &request, &turn);
		log_packet(line, &request, &turn);
	}
	if (server->options.expected_key != NULL) {
		authorised = key_is_right(server, connection);
		json_object_set_new(line, "auth_ok", json_boolean(authorised));
	}
	failing = authorised && takes_failure(server);
	if (call->too_large)
		status = 413;
	else if (!authorised)
		status = 401;
	else if (failing)
		status = (int)server->options.fail_status;
	else if (!parsed)
		status = 400;
	json_object_set_new(line, "status", json_integer(status));
	number = witness_log(server->witness, line);
	if (number == 0)
		status = 500;
	wait_ms(server, server->options.delay_ms);

	if (status == 200)
		answer_turn(&answer, api, &request, turn.text, turn.command, number, call->length);
	else
		answer_error(&answer, api, status,
			     number == 0        ? "the log can not be written"
			     : status == 413    ? "the request is over 64 MiB"
			     : status == 401    ? "invalid x-api-key or bearer token"
			     : failing          ? "this failure was asked for by --fail-first"
						: error,
			     server->options.retry_after_s);
	result = send_answer(server, connection, api, &answer);
	request_clear(&request);
	return result;
}

/* One body that is right for the clients of both APIs. */
static json_t *models_body(void)
{
	return json_pack("{s:s,s:[{s:s,s:s,s:s,s:s,s:s,s:i,s:s}],s:b,s:s,s:s}", "object", "list", "data", "id",
			 "synthetic", "type", "model", "object", "model", "display_name", "Synthetic",
			 "created_at", "2025-01-01T00:00:00Z", "created", 1735689600, "owned_by", "orch",
			 "has_more", 0, "first_id", "synthetic", "last_id", "synthetic");
}

static enum MHD_Result serve_small(struct server *server, struct MHD_Connection *connection,
				   const char *method, const char *path, const struct call *call)
{
	bool counts = strcmp(path, "/v1/messages/count_tokens") == 0;
	enum api api = counts ? API_ANTHROPIC : API_NONE;
	json_t *line = log_line(api, method, path, call->length), *body;
	struct answer answer = {0};
	bool authorised = true;

	if (server->options.expected_key != NULL && strcmp(path, "/") != 0) {
		authorised = key_is_right(server, connection);
		json_object_set_new(line, "auth_ok", json_boolean(authorised));
	}
	json_object_set_new(line, "status", json_integer(authorised ? 200 : 401));
	if (witness_log(server->witness, line) == 0)
		return send_error(server, connection, api, 500, "the log can not be written");
	if (!authorised)
		return send_error(server, connection, api, 401, "invalid x-api-key or bearer token");
	if (counts)
		body = json_pack("{s:I}", "input_tokens", (json_int_t)(call->length / 4));
	else if (strcmp(path, "/") == 0)
		body = json_pack("{s:s,s:s}", "service", "synth-provider", "scenario",
				 server->scenario->name);
	else
		body = models_body();
	answer_json(&answer, 200, body);
	return send_answer(server, connection, api, &answer);
}

/* --- the counting service --------------------------------------------------------------------- */

static enum MHD_Result serve_outside(struct server *server, struct MHD_Connection *connection,
				     const char *method, const char *path, const struct call *call)
{
	const char *key = path + strlen(OUTSIDE_PATH);
	struct answer answer = {0};
	unsigned long long number;
	char id[48];

	if (strcmp(method, "GET") == 0 && key[0] == '/' && key[1] != '\0') {
		number = witness_arrivals(server->witness, key + 1);
		answer_json(&answer, number > 0 ? 200 : 404,
			    json_pack("{s:s,s:I}", "key", key + 1, "arrivals", (json_int_t)number));
		return send_answer(server, connection, API_NONE, &answer);
	}
	if (strcmp(method, "POST") != 0 || key[0] != '\0')
		return send_error(server, connection, API_NONE, 404,
				  "POST " OUTSIDE_PATH " or GET " OUTSIDE_PATH "/KEY");
	key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Idempotency-Key");
	if (key == NULL || key[0] == '\0')
		return send_error(server, connection, API_NONE, 400, "the Idempotency-Key header is missing");
	number = witness_arrival(server->witness, key, call->body != NULL ? call->body : "", call->length);
	if (number == 0)
		return send_error(server, connection, API_NONE, 500, "the arrival can not be written down");
	wait_ms(server, server->options.outside_delay_ms);
	snprintf(id, sizeof(id), "announcement-%llu", number);
	answer_json(&answer, 200, json_pack("{s:s}", "id", id));
	return send_answer(server, connection, API_NONE, &answer);
}

/* --- routes ----------------------------------------------------------------------------------- */

static enum MHD_Result serve(struct server *server, struct MHD_Connection *connection, const char *path,
			     const char *method, const struct call *call)
{
	bool post = strcmp(method, "POST") == 0;
	bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;

	if (strncmp(path, OUTSIDE_PATH, strlen(OUTSIDE_PATH)) == 0)
		return serve_outside(server, connection, method, path, call);
	if (post && strcmp(path, "/v1/messages") == 0)
		return serve_turn(server, connection, API_ANTHROPIC, path, call);
	if (post && strcmp(path, "/v1/responses") == 0)
		return serve_turn(server, connection, API_OPENAI, path, call);
	if ((post && strcmp(path, "/v1/messages/count_tokens") == 0) ||
	    (get && (strcmp(path, "/v1/models") == 0 || strcmp(path, "/") == 0)))
		return serve_small(server, connection, method, path, call);
	witness_log(server->witness, log_line(API_NONE, method, path, call->length));
	return send_error(server, connection, API_NONE, 404, "no such endpoint");
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **state)
{
	struct call *call = *state;

	(void)version;
	if (call == NULL) {
		*state = calloc(1, sizeof(*call));
		return *state != NULL ? MHD_YES : MHD_NO;
	}
	if (*upload_size > 0) {
		char *body = NULL;

		if (call->length + *upload_size > BODY_LIMIT)
			call->too_large = true;
		if (!call->too_large) {
			body = realloc(call->body, call->length + *upload_size);
			if (body == NULL)
				return MHD_NO;
			call->body = body;
			memcpy(body + call->length, upload, *upload_size);
			call->length += *upload_size;
		}
		*upload_size = 0;
		return MHD_YES;
	}
	return serve(userdata, connection, url, method, call);
}

static void on_completed(void *userdata, struct MHD_Connection *connection, void **state,
			 enum MHD_RequestTerminationCode code)
{
	struct call *call = *state;

	(void)userdata;
	(void)connection;
	(void)code;
	if (call != NULL)
		free(call->body);
	free(call);
	*state = NULL;
}

/* --- start and end ---------------------------------------------------------------------------- */

static void usage(FILE *stream)
{
	fputs("usage: synth-provider --scenario DIR [--port N] [--port-file F] [--log F] [--outside-log F]\n"
	      "                      [--delay-ms N] [--outside-delay-ms N] [--fail-first N:STATUS]\n"
	      "                      [--retry-after S] [--refuse-auth KEY]\n"
	      "       synth-provider --scenario DIR --check\n",
	      stream);
}

static bool parse_number(const char *text, unsigned limit, unsigned *ret_number)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || number > limit)
		return false;
	*ret_number = (unsigned)number;
	return true;
}

static bool parse_failures(const char *text, struct options *options)
{
	char count[16];
	size_t length = strcspn(text, ":");

	if (text[length] != ':' || length == 0 || length >= sizeof(count))
		return false;
	memcpy(count, text, length);
	count[length] = '\0';
	return parse_number(count, 1000000, &options->fail_count) &&
	       parse_number(text + length + 1, 599, &options->fail_status) && options->fail_status >= 400;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
	enum {
		SCENARIO = 1,
		PORT,
		PORT_FILE,
		LOG,
		OUTSIDE_LOG,
		DELAY,
		OUTSIDE_DELAY,
		FAIL,
		RETRY,
		AUTH,
		CHECK,
		HELP
	};
	static const struct option known[] = {
		{"scenario", required_argument, NULL, SCENARIO},
		{"port", required_argument, NULL, PORT},
		{"port-file", required_argument, NULL, PORT_FILE},
		{"log", required_argument, NULL, LOG},
		{"outside-log", required_argument, NULL, OUTSIDE_LOG},
		{"delay-ms", required_argument, NULL, DELAY},
		{"outside-delay-ms", required_argument, NULL, OUTSIDE_DELAY},
		{"fail-first", required_argument, NULL, FAIL},
		{"retry-after", required_argument, NULL, RETRY},
		{"refuse-auth", required_argument, NULL, AUTH},
		{"check", no_argument, NULL, CHECK},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	int index = 0, option;

	options->retry_after_s = 1;
	while ((option = getopt_long(argc, argv, "", known, &index)) != -1) {
		bool good = true;

		switch (option) {
		case SCENARIO:
			options->scenario = optarg;
			break;
		case PORT:
			good = parse_number(optarg, 65535, &options->port);
			break;
		case PORT_FILE:
			options->port_file = optarg;
			break;
		case LOG:
			options->log = optarg;
			break;
		case OUTSIDE_LOG:
			options->outside_log = optarg;
			break;
		case DELAY:
			good = parse_number(optarg, 3600000, &options->delay_ms);
			break;
		case OUTSIDE_DELAY:
			good = parse_number(optarg, 3600000, &options->outside_delay_ms);
			break;
		case FAIL:
			good = parse_failures(optarg, options);
			break;
		case RETRY:
			good = parse_number(optarg, 86400, &options->retry_after_s);
			break;
		case AUTH:
			options->expected_key = optarg;
			break;
		case CHECK:
			options->check = true;
			break;
		case HELP:
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			return false;
		}
		if (!good) {
			fprintf(stderr, "synth-provider: --%s: \"%s\" is not what it takes\n", known[index].name,
				optarg);
			return false;
		}
	}
	if (optind < argc || options->scenario == NULL) {
		if (optind < argc)
			fprintf(stderr, "synth-provider: unexpected argument \"%s\"\n", argv[optind]);
		else
			fprintf(stderr, "synth-provider: --scenario is missing\n");
		usage(stderr);
		return false;
	}
	return true;
}

static void list_scenario(const struct scenario *scenario)
{
	printf("%s: %s\n", scenario->name, scenario->idea);
	for (size_t i = 0; i < scenario->script_count; i++)
		printf("%-28s %2zu steps  %s\n", scenario->scripts[i].name, scenario->scripts[i].step_count,
		       scenario->scripts[i].folder);
}

/* By rename: whoever sees the file sees the whole number. */
static bool write_port_file(const char *path, unsigned port)
{
	char *temporary = NULL;
	bool good = false;
	FILE *file;

	if (asprintf(&temporary, "%s.%d", path, (int)getpid()) < 0)
		return false;
	file = fopen(temporary, "we");
	if (file != NULL) {
		good = fprintf(file, "%u\n", port) > 0;
		good = fclose(file) == 0 && good && rename(temporary, path) == 0;
	}
	if (!good)
		fprintf(stderr, "synth-provider: %s: can not be written: %s\n", path, strerror(errno));
	free(temporary);
	return good;
}

static int run(struct server *server)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)server->options.port),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	const union MHD_DaemonInfo *bound;
	struct MHD_Daemon *daemon;
	sigset_t signals;
	int signal, code = 1;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
					  MHD_USE_POLL,
				  0, NULL, NULL, on_request, server, MHD_OPTION_SOCK_ADDR, &address,
				  MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_CONNECTION_TIMEOUT,
				  120u, MHD_OPTION_END);
	if (daemon == NULL) {
		fprintf(stderr, "synth-provider: can not listen on 127.0.0.1:%u: %s\n", server->options.port,
			strerror(errno));
		return 1;
	}
	bound = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
	if (bound != NULL &&
	    (server->options.port_file == NULL || write_port_file(server->options.port_file, bound->port))) {
		printf("http://127.0.0.1:%u\n", bound->port);
		fflush(stdout);
		sigwait(&signals, &signal);
		code = 0;
	}
	pthread_mutex_lock(&server->lock);
	server->stop = true;
	pthread_cond_broadcast(&server->stopping);
	pthread_mutex_unlock(&server->lock);
	MHD_stop_daemon(daemon);
	return code;
}

int main(int argc, char **argv)
{
	struct server server = {.lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_condattr_t clock;
	char error[1024];
	int code = 0;

	if (!parse_options(argc, argv, &server.options))
		return EXIT_USAGE;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&server.stopping, &clock);
	server.scenario = scenario_load(server.options.scenario, error, sizeof(error));
	if (server.scenario == NULL) {
		fprintf(stderr, "synth-provider: %s\n", error);
		return EXIT_USAGE;
	}
	if (server.options.check) {
		list_scenario(server.scenario);
	} else {
		server.witness = witness_new(server.options.log, server.options.outside_log, error,
					     sizeof(error));
		if (server.witness == NULL)
			fprintf(stderr, "synth-provider: %s\n", error);
		code = server.witness != NULL ? run(&server) : 1;
	}
	witness_free(server.witness);
	scenario_free(server.scenario);
	return code;
}
