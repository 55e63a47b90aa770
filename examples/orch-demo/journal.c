/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <time.h>

#include "demo.h"

struct listing {
	bool json;
	uint64_t count;
};

/* Payloads are bytes: what is not printable ASCII is escaped. */
static char *printable(const void *bytes, size_t length, size_t limit)
{
	char *text = calloc(1, 4 * (length < limit ? length : limit) + 4), *out = text;
	const unsigned char *in = bytes;
	for (size_t i = 0; i < length && i < limit; i++)
		if (isprint(in[i]) && in[i] != '\\')
			*out++ = (char)in[i];
		else
			out += sprintf(out, "\\x%02x", in[i]);
	if (length > limit)
		strcpy(out, "...");
	return text;
}

static json_t *payload_json(const void *bytes, size_t length)
{
	json_t *value = json_stringn(bytes ? bytes : "", bytes ? length : 0);
	if (value)
		return value;
	char *text = printable(bytes, length, length);
	value = json_pack("{s:s}", "escaped", text);
	free(text);
	return value;
}

static int32_t print_action(void *userdata, orch_action *action)
{
	struct listing *listing = userdata;
	size_t request_length = 0, result_length = 0;
	const void *request = orch_action_request(action, &request_length);
	const void *result = orch_action_result(action, &result_length);
	listing->count++;
	if (listing->json) {
		json_t *line = json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o}", "id",
					 (json_int_t)orch_action_id(action), "kind", orch_action_kind(action), "key",
					 orch_action_key(action), "state",
					 orch_action_state_name(orch_action_state(action)), "attempt",
					 (json_int_t)orch_action_attempt(action), "generation",
					 (json_int_t)orch_action_generation(action), "updated_at_ms",
					 (json_int_t)orch_action_updated_at_ms(action), "request",
					 payload_json(request, request_length), "result",
					 payload_json(result, result_length));
		char *text = json_dumps(line, JSON_COMPACT);
		puts(text ? text : "{}");
		free(text);
		json_decref(line);
		return 0;
	}
	time_t seconds = (time_t)(orch_action_updated_at_ms(action) / 1000);
	struct tm parts;
	char when[32], *shown = printable(request, request_length, 60);
	strftime(when, sizeof(when), "%H:%M:%S", localtime_r(&seconds, &parts));
	printf("%5llu %s %-11s %-14s %s  %s\n", (unsigned long long)orch_action_id(action), when,
	       orch_action_state_name(orch_action_state(action)), orch_action_kind(action), orch_action_key(action),
	       shown);
	free(shown);
	return 0;
}

int command_journal(const struct options *options)
{
	/* The first word behind "journal" was taken for the idea by the parser. */
	const char *what = options->idea ? options->idea : "list";
	bool show = strcmp(what, "show") == 0, verify = strcmp(what, "verify") == 0;
	if (!show && !verify && strcmp(what, "list") != 0 && strcmp(what, "export") != 0)
		return fail_text(EXIT_USAGE, "journal %s: expected list, show KEY, verify or export", what);
	if (show && options->rest_count != 1)
		return fail_text(EXIT_USAGE, "journal show: one KEY is expected");
	char *state = state_folder(options, true);
	if (!state)
		return EXIT_NOTHING;
	char *path = format_text("%s/journal.db", state), *anchor = anchor_path(state);
	struct orch_journal_opts opts;
	orch_journal *journal = NULL;
	orch_action *action = NULL;
	orch_error *error = NULL;
	int exit_code = EXIT_FINE;

	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = path;
	opts.anchor_path = anchor;
	opts.flags = ORCH_JOURNAL_READ_ONLY;
	if (orch_journal_open(&opts, &journal, &error) < 0) {
		exit_code = fail(path, error);
		goto out;
	}
	struct listing listing = {.json = options->json || strcmp(what, "export") == 0};
	if (verify) {
		uint64_t records = 0;
		if (orch_journal_verify(journal, &records, &error) < 0)
			exit_code = fail(path, error);
		else if (options->json)
			printf("{\"records\":%llu,\"verified\":true}\n", (unsigned long long)records);
		else
			printf("%s: %llu records, chain and anchor fit\n", path, (unsigned long long)records);
	} else if (show) {
		if (orch_journal_find(journal, options->rest[0], &action, &error) < 0) {
			exit_code = fail(options->rest[0], error);
			goto out;
		}
		listing.json = true;
		print_action(&listing, action);
	} else if (orch_journal_each(journal, NULL, print_action, &listing, &error) < 0) {
		exit_code = fail(path, error);
	}
out:
	orch_action_unref(action);
	orch_journal_unref(journal);
	free(path);
	free(anchor);
	free(state);
	return exit_code;
}
