/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "demo.h"

/* A run's journal, or with --journal any other. */
struct place {
	char *path, *anchor; /* anchor NULL: none */
};

static int find_place(const struct options *options, struct place *place)
{
	if (options->journal && options->state)
		return fail_text(EXIT_USAGE, "--journal and --state: give one of them");
	if (options->anchor && !options->journal)
		return fail_text(EXIT_USAGE, "--anchor goes with --journal; a run's anchor is known");
	if (options->journal) {
		place->path = strdup(options->journal);
		place->anchor = options->anchor ? strdup(options->anchor) : NULL;
		return EXIT_FINE;
	}
	char *state = state_folder(options, true);
	if (!state)
		return EXIT_NOTHING;
	place->path = format_text("%s/journal.db", state);
	place->anchor = anchor_path(state);
	free(state);
	return place->anchor ? EXIT_FINE : EXIT_ERROR;
}

static orch_journal *open_place(const struct place *place, uint32_t flags, int *ret_code)
{
	struct orch_journal_opts opts;
	orch_journal *journal = NULL;
	orch_error *error = NULL;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = place->path;
	opts.anchor_path = place->anchor;
	opts.flags = flags;
	if (orch_journal_open(&opts, &journal, &error) < 0)
		*ret_code = fail(place->path, error);
	return journal;
}

/* --- reading ------------------------------------------------------------------------------------------ */

static bool states_of(const char *names, uint32_t *ret_states)
{
	for (const char *name = names; *name;) {
		size_t length = strcspn(name, ",");
		uint32_t state = ORCH_ACTION_INTENT;
		while (state <= ORCH_ACTION_ABANDONED && (strlen(orch_action_state_name(state)) != length ||
							  strncmp(orch_action_state_name(state), name, length) != 0))
			state++;
		if (state > ORCH_ACTION_ABANDONED)
			return false;
		*ret_states |= 1u << state;
		name += length + (name[length] == ',');
	}
	return *ret_states != 0;
}

static int32_t list_one(void *userdata, orch_action *action)
{
	show_action_line(action, *(const bool *)userdata);
	return 0;
}

static int journal_list(orch_journal *journal, const struct options *options, const struct place *place)
{
	struct orch_query_opts query;
	orch_error *error = NULL;
	bool json = options->json;
	orch_query_opts_init(&query, sizeof(query));
	query.kind_prefix = options->kind;
	query.limit = options->limit;
	query.flags = options->newest ? ORCH_QUERY_NEWEST_FIRST : 0;
	if (options->only && !states_of(options->only, &query.states))
		return fail_text(EXIT_USAGE, "--only %s: expected INTENT, DISPATCHED, OBSERVED, CONFIRMED, FAILED, UNKNOWN, "
					     "HANDED_OVER or ABANDONED, with commas between", options->only);
	return orch_journal_query(journal, &query, list_one, &json, &error) < 0 ? fail(place->path, error) : EXIT_FINE;
}

static int journal_show(orch_journal *journal, const struct options *options, const struct place *place)
{
	orch_action *action = NULL;
	orch_error *error = NULL;
	if (orch_journal_find(journal, options->operands[0], &action, &error) < 0)
		return fail(place->path, error);
	int code = show_action(journal, action, options->json);
	orch_action_unref(action);
	return code;
}

static int journal_verify(orch_journal *journal, const struct options *options, const struct place *place)
{
	uint64_t records = 0;
	orch_error *error = NULL;
	if (orch_journal_verify(journal, &records, &error) < 0)
		return fail(place->path, error);
	if (options->json)
		print_json(json_pack("{s:I, s:b}", "records", (json_int_t)records, "verified", 1));
	else
		printf("%s: %llu records, chain%s fit%s\n", place->path, (unsigned long long)records,
		       place->anchor ? " and anchor" : "", place->anchor ? "" : "s; no anchor was given");
	return EXIT_FINE;
}

static int32_t write_line(void *userdata, const char *line, size_t length)
{
	(void)userdata;
	return fwrite(line, 1, length, stdout) == length ? 0 : 1;
}

static int journal_export(orch_journal *journal, const struct options *options, const struct place *place)
{
	orch_error *error = NULL;
	uint32_t flags = options->records ? ORCH_EXPORT_RECORDS : 0;
	int32_t r = orch_journal_export(journal, flags, write_line, NULL, &error);
	if (r < 0)
		return fail(place->path, error);
	if (r > 0 || fflush(stdout) != 0)
		return fail_text(EXIT_ERROR, "the export could not be written: %s; it is not whole", strerror(errno));
	return EXIT_FINE;
}

static int journal_backup(orch_journal *journal, const struct options *options, const struct place *place)
{
	(void)place;
	uint64_t records = 0;
	orch_error *error = NULL;
	const char *file = options->operands[0];
	if (orch_journal_backup(journal, file, &records, &error) < 0)
		return fail(file, error);
	if (options->json)
		print_json(json_pack("{s:s, s:I}", "backup", file, "records", (json_int_t)records));
	else
		printf("%s: %llu records, verified\n", file, (unsigned long long)records);
	return EXIT_FINE;
}

/* --- writing ------------------------------------------------------------------------------------------ */

static int print_restoration(const orch_restoration *restoration, bool json)
{
	if (json)
		print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "epoch",
				     (json_int_t)orch_restoration_epoch(restoration), "records",
				     (json_int_t)orch_restoration_records(restoration), "lost",
				     (json_int_t)orch_restoration_lost(restoration), "unknown",
				     (json_int_t)orch_restoration_unknown(restoration), "void",
				     (json_int_t)orch_restoration_void(restoration), "replaced",
				     orch_restoration_replaced(restoration)));
	else
		fputs(orch_restoration_text(restoration), stdout);
	return EXIT_FINE;
}

static int journal_restore(const struct options *options, const struct place *place)
{
	struct orch_restore_opts opts;
	orch_restoration *restoration = NULL;
	orch_error *error = NULL;
	orch_restore_opts_init(&opts, sizeof(opts));
	opts.flags = options->replace ? ORCH_RESTORE_REPLACE : 0;
	opts.backup_path = options->operands[0];
	opts.path = place->path;
	opts.anchor_path = place->anchor;
	if (orch_journal_restore(&opts, &restoration, &error) < 0) {
		bool exists = orch_error_code(error) == ORCH_EEXIST;
		int failed = fail(place->path, error);
		return exists ? fail_text(failed, "journal restore: --replace moves it aside") : failed;
	}
	int code = print_restoration(restoration, options->json);
	orch_restoration_unref(restoration);
	return code;
}

static uint32_t decision_of(const char *text)
{
	static const char *const names[] = {"applied", "not-applied", "abandon"};
	for (uint32_t i = 0; i < 3; i++)
		if (strcmp(names[i], text) == 0)
			return i + 1;
	return 0;
}

/* Refused as soon as it can be, so that a mistake leaves no record. */
static int check_waits(const struct place *place, const char *key)
{
	int code = EXIT_FINE;
	orch_action *action = NULL;
	orch_error *error = NULL;
	orch_journal *journal = open_place(place, ORCH_JOURNAL_READ_ONLY, &code);
	if (!journal)
		return code;
	if (orch_journal_find(journal, key, &action, &error) < 0)
		code = fail(place->path, error);
	uint32_t state = orch_action_state(action);
	if (code == EXIT_FINE && state != ORCH_ACTION_HANDED_OVER && state != ORCH_ACTION_UNKNOWN)
		code = fail_text(EXIT_ERROR, "%s: it is %s, and nobody has to decide about it", key,
				 orch_action_state_name(state));
	orch_action_unref(action);
	orch_journal_unref(journal);
	return code;
}

static int journal_decide(const struct options *options, const struct place *place)
{
	const char *key = options->operands[0], *note = options->note ? options->note : "";
	uint32_t decision = decision_of(options->operands[1]);
	if (!decision)
		return fail_text(EXIT_USAGE, "journal decide: \"%s\": expected applied, not-applied or abandon",
				 options->operands[1]);
	if (!options->by)
		return fail_text(EXIT_USAGE, "journal decide: --by NAME is missing: who decided stays in the journal");
	int code = check_waits(place, key);
	orch_journal *journal = code == EXIT_FINE ? open_place(place, 0, &code) : NULL;
	if (!journal)
		return code;
	orch_action *action = NULL;
	orch_error *error = NULL;
	if (orch_journal_find(journal, key, &action, &error) < 0 ||
	    orch_action_decide(action, decision, options->by, note, strlen(note), &error) < 0)
		code = fail(key, error);
	else if (options->json)
		code = show_action(journal, action, true);
	else
		show_action_line(action, false);
	orch_action_unref(action);
	orch_journal_unref(journal);
	return code;
}

/* --- the subcommands ---------------------------------------------------------------------------------- */

static const struct subcommand {
	const char *name;
	const char *operands; /* what it expects */
	int operand_count;
	int (*reads)(orch_journal *journal, const struct options *options, const struct place *place);
	int (*writes)(const struct options *options, const struct place *place);
} subcommands[] = {
	{"list", "no operand", 0, journal_list, NULL},
	{"show", "one KEY", 1, journal_show, NULL},
	{"verify", "no operand", 0, journal_verify, NULL},
	{"export", "no operand", 0, journal_export, NULL},
	{"backup", "one FILE", 1, journal_backup, NULL},
	{"restore", "one FILE", 1, NULL, journal_restore},
	{"decide", "KEY and applied, not-applied or abandon", 2, NULL, journal_decide},
};

static int run(const struct subcommand *subcommand, const struct options *options)
{
	struct place place = {0};
	int code = find_place(options, &place);
	if (code == EXIT_FINE && subcommand->writes)
		code = subcommand->writes(options, &place);
	else if (code == EXIT_FINE) {
		orch_journal *journal = open_place(&place, ORCH_JOURNAL_READ_ONLY, &code);
		if (journal)
			code = subcommand->reads(journal, options, &place);
		orch_journal_unref(journal);
	}
	free(place.path);
	free(place.anchor);
	if (fflush(stdout) != 0 && code == EXIT_FINE)
		code = fail_text(EXIT_ERROR, "the output could not be written: %s", strerror(errno));
	return code;
}

int command_journal(const struct options *options)
{
	/* The first word behind "journal" was taken for the idea by the parser. */
	const char *what = options->idea ? options->idea : "list";
	for (size_t i = 0; i < sizeof(subcommands) / sizeof(subcommands[0]); i++) {
		if (strcmp(subcommands[i].name, what) != 0)
			continue;
		int given = options->rest_count;
		for (size_t j = 0; j < 4 && options->operands[j]; j++)
			given++;
		if (given != subcommands[i].operand_count)
			return fail_text(EXIT_USAGE, "journal %s: %s is expected", what, subcommands[i].operands);
		return run(&subcommands[i], options);
	}
	return fail_text(EXIT_USAGE, "journal %s: expected list, show, verify, export, backup, restore or decide", what);
}
