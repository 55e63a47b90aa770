/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orch-mini: a small agent. It runs inside a sandbox, talks to a model by way of the broker, and has one
 * tool, a shell. The packet comes on stdin; what happens is told on stdout, one JSON object a line.
 */
#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "conversation.h"
#include "http.h"
#include "shell.h"

#define PACKET_LIMIT ((size_t)4 * 1024 * 1024)
#define CONNECT_PATIENCE_MS 3000
#define RETRIES 3
#define RETRY_LIMIT_S 60 /* a longer Retry-After is final: somebody else decides whether to wait */

#define EXIT_PROVIDER 2
#define EXIT_USAGE 64

struct options {
	enum api api;
	struct http_options http;
	const char *model;
	long max_turns, max_tokens, command_timeout_ms, output_limit;
};

struct spending {
	long long input_tokens, output_tokens;
};

static json_t *usage(const struct spending *spent)
{
	return json_pack("{s:I,s:I}", "input_tokens", (json_int_t)spent->input_tokens, "output_tokens",
			 (json_int_t)spent->output_tokens);
}

/* Takes `event`. Nobody listens any more: there is no point in going on. */
static void tell(json_t *event)
{
	char *text = json_dumps(event, JSON_COMPACT);

	json_decref(event);
	if (text == NULL || printf("%s\n", text) < 0 || fflush(stdout) != 0)
		exit(EXIT_PROVIDER);
	free(text);
}

static int tell_error(const struct spending *spent, const char *code, const char *message)
{
	tell(json_pack("{s:s,s:s,s:s,s:o}", "type", "error", "code", code, "message", message, "usage",
		       usage(spent)));
	fprintf(stderr, "orch-mini: %s: %s\n", code, message);
	return EXIT_PROVIDER;
}

static void pause_ms(long delay_ms)
{
	struct timespec delay = {delay_ms / 1000, (delay_ms % 1000) * 1000000};

	while (nanosleep(&delay, &delay) < 0 && errno == EINTR)
		;
}

static long passed_ms(const struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
}

/* How long until the next try, or -1: this is final. */
static long retry_delay_ms(const struct http_result *result, unsigned tries, long waited_ms)
{
	if (result->end == HTTP_UNREACHABLE)
		return waited_ms < CONNECT_PATIENCE_MS ? 200 : -1;
	if (result->end != HTTP_LATER || tries > RETRIES || result->retry_after_s > RETRY_LIMIT_S)
		return -1;
	return result->retry_after_s >= 0 ? result->retry_after_s * 1000 : 500L << (tries - 1);
}

/* Asks until there is a complete turn. False: final, and told. */
static bool ask(const struct options *options, const struct conversation *conversation, struct turn *turn,
		struct spending *spent)
{
	struct timespec started;

	clock_gettime(CLOCK_MONOTONIC, &started);
	for (unsigned tries = 1;; tries++) {
		struct http_result result;
		long delay_ms;

		turn_start(turn, options->api);
		http_request(&options->http, conversation, turn, &result);
		spent->input_tokens += turn->input_tokens;
		spent->output_tokens += turn->output_tokens;
		if (result.end == HTTP_DONE) {
			http_result_clear(&result);
			turn_finish(turn);
			return true;
		}
		turn_clear(turn);
		delay_ms = retry_delay_ms(&result, tries, passed_ms(&started));
		if (delay_ms < 0) {
			tell_error(spent, result.type, result.message != NULL ? result.message : "");
			http_result_clear(&result);
			return false;
		}
		/* Connecting is tried too often to be told each time. */
		if (result.end != HTTP_UNREACHABLE || tries == 1)
			tell(json_pack("{s:s,s:s,s:I}", "type", "retry", "code", result.type, "wait_ms",
				       (json_int_t)delay_ms));
		http_result_clear(&result);
		pause_ms(delay_ms);
	}
}

static void run_call(const struct options *options, struct conversation *conversation,
		     const struct tool_call *call)
{
	struct shell_result result;
	char *text = NULL;

	if (call->command == NULL) {
		conversation_result(conversation, call,
				    "Not run: the tool is \"shell\" and takes {\"command\": TEXT}; these "
				    "arguments are something else, or were cut off.",
				    true);
		tell(json_pack("{s:s,s:s,s:n}", "type", "tool_result", "id", call->id, "status"));
		return;
	}
	tell(json_pack("{s:s,s:s,s:s}", "type", "tool", "id", call->id, "command", call->command));
	shell_run(call->command, options->command_timeout_ms, (size_t)options->output_limit, &result);
	if (asprintf(&text, "%s%s[%s %d%s]\n", result.output != NULL ? result.output : "",
		     result.output != NULL && result.output[0] != '\0' ? "\n" : "",
		     result.status < 256 ? "exit status" : "ended by signal",
		     result.status < 256 ? result.status : result.status - 256,
		     result.timed_out ? ", killed after its time was over" : "") < 0)
		text = NULL;
	conversation_result(conversation, call, text != NULL ? text : "", result.status != 0);
	tell(json_pack("{s:s,s:s,s:i,s:b,s:b,s:I}", "type", "tool_result", "id", call->id, "status",
		       result.status, "timed_out", result.timed_out, "truncated", result.truncated, "bytes",
		       (json_int_t)(result.output != NULL ? strlen(result.output) : 0)));
	free(result.output);
	free(text);
}

static int work(const struct options *options, const char *packet)
{
	struct conversation conversation;
	struct spending spent = {0};
	struct turn turn;
	int code = -1;

	if (!conversation_start(&conversation, options->api, options->model, options->max_tokens, packet))
		return tell_error(&spent, "packet", "the packet is not UTF-8");
	for (long number = 1; code < 0; number++) {
		if (number > options->max_turns) {
			code = tell_error(&spent, "turns", "the number of turns is over");
			break;
		}
		if (!ask(options, &conversation, &turn, &spent)) {
			code = EXIT_PROVIDER;
			break;
		}
		if (turn.text != NULL && turn.text[0] != '\0')
			tell(json_pack("{s:s,s:s}", "type", "text", "text", turn.text));
		conversation_take(&conversation, &turn);
		for (size_t i = 0; i < turn.call_count; i++)
			run_call(options, &conversation, &turn.calls[i]);
		if (turn.call_count == 0 && turn.stop != NULL && strcmp(turn.stop, "end_turn") != 0 &&
		    strcmp(turn.stop, "stop_sequence") != 0) {
			code = tell_error(&spent, turn.stop, "the model stopped before it was done");
		} else if (turn.call_count == 0) {
			tell(json_pack("{s:s,s:s,s:I,s:o}", "type", "result", "text",
				       turn.text != NULL ? turn.text : "", "turns", (json_int_t)number,
				       "usage", usage(&spent)));
			code = 0;
		}
		turn_clear(&turn);
	}
	conversation_clear(&conversation);
	return code;
}

/* --- start ------------------------------------------------------------------------------------ */

static char *read_packet(void)
{
	char *packet = malloc(PACKET_LIMIT + 1);
	size_t length = packet != NULL ? fread(packet, 1, PACKET_LIMIT + 1, stdin) : 0;

	if (packet == NULL || ferror(stdin) || length == 0 || length > PACKET_LIMIT ||
	    memchr(packet, '\0', length) != NULL) {
		fprintf(stderr, "orch-mini: no packet on standard input, or over %zu bytes, or not text\n",
			PACKET_LIMIT);
		free(packet);
		return NULL;
	}
	packet[length] = '\0';
	return packet;
}

static bool parse_long(const char *text, long *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtol(text, &end, 10);
	return errno == 0 && end != text && *end == '\0' && *ret_number > 0;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
	enum { API = 1, BASE_URL, MODEL, MAX_TURNS, MAX_TOKENS, COMMAND_TIMEOUT, OUTPUT_LIMIT, IDLE_TIMEOUT };
	static const struct option known[] = {
		{"api", required_argument, NULL, API},
		{"base-url", required_argument, NULL, BASE_URL},
		{"model", required_argument, NULL, MODEL},
		{"max-turns", required_argument, NULL, MAX_TURNS},
		{"max-tokens", required_argument, NULL, MAX_TOKENS},
		{"command-timeout-ms", required_argument, NULL, COMMAND_TIMEOUT},
		{"output-limit", required_argument, NULL, OUTPUT_LIMIT},
		{"idle-timeout-s", required_argument, NULL, IDLE_TIMEOUT},
		{NULL, 0, NULL, 0},
	};
	bool good = true;
	int option;

	while (good && (option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case API:
			options->api = strcmp(optarg, "openai") == 0 ? API_OPENAI : API_ANTHROPIC;
			good = options->api == API_OPENAI || strcmp(optarg, "anthropic") == 0;
			break;
		case BASE_URL:
			options->http.base_url = optarg;
			break;
		case MODEL:
			options->model = optarg;
			break;
		case MAX_TURNS:
			good = parse_long(optarg, &options->max_turns);
			break;
		case MAX_TOKENS:
			good = parse_long(optarg, &options->max_tokens);
			break;
		case COMMAND_TIMEOUT:
			good = parse_long(optarg, &options->command_timeout_ms);
			break;
		case OUTPUT_LIMIT:
			good = parse_long(optarg, &options->output_limit);
			break;
		case IDLE_TIMEOUT:
			good = parse_long(optarg, &options->http.idle_timeout_s);
			break;
		default:
			good = false;
		}
	}
	if (good && optind == argc && options->http.base_url != NULL)
		return true;
	fputs("usage: orch-mini --api anthropic|openai --base-url URL [--model NAME] [--max-turns N]\n"
	      "                 [--max-tokens N] [--command-timeout-ms N] [--output-limit BYTES]\n"
	      "                 [--idle-timeout-s N] < PACKET\n",
	      stderr);
	return false;
}

int main(int argc, char **argv)
{
	struct options options = {
		.http = {.idle_timeout_s = 300},
		.max_turns = 200,
		.max_tokens = 16000,
		.command_timeout_ms = 600000,
		.output_limit = 65536,
	};
	char *packet;
	int code;

	if (!parse_options(argc, argv, &options))
		return EXIT_USAGE;
	if (options.model == NULL)
		options.model = options.api == API_ANTHROPIC ? "claude-sonnet-4-5" : "gpt-5-codex";
	signal(SIGPIPE, SIG_IGN);
	packet = read_packet();
	if (packet == NULL)
		return EXIT_USAGE;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		fprintf(stderr, "orch-mini: libcurl can not be started\n");
		free(packet);
		return EXIT_PROVIDER;
	}
	code = work(&options, packet);
	curl_global_cleanup();
	free(packet);
	return code;
}
