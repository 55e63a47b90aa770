/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The export: each line is JSON, payloads and names come back as they were whatever their bytes,
 * the last line accounts for what was told, and what it tells is the journal at one moment although
 * others write meanwhile.
 */
#include <jansson.h>
#include <malloc.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <orch/permit.h>

#include "../crash/journal-kit.h"

/* --- what was exported, read back
 * ----------------------------------------------------------------------------- */

struct export
{
	orch_journal *journal;
	json_t *lines; /* an array */
	json_t *rows;  /* "type id" -> its last line */
	uint64_t told, action_lines;
	crypto_hash_sha256_state digest; /* of all lines but the last */
	char *former;			 /* the last line */
	size_t former_length;
	void (*meanwhile)(struct export * export);
	uint64_t writes;
};

static const char *text_of(json_t *line, const char *name)
{
	json_t *value = json_object_get(line, name);
	ck_assert_msg(json_is_string(value), "%s is no string", name);
	return json_string_value(value);
}

static uint64_t number_of(json_t *line, const char *name)
{
	json_t *value = json_object_get(line, name);
	ck_assert_msg(json_is_integer(value), "%s is no integer", name);
	return (uint64_t)json_integer_value(value);
}

static void digest_former(struct export *export)
{
	if (export->former)
		crypto_hash_sha256_update(&export->digest, (unsigned char *)export->former,
					  export->former_length);
	free(export->former);
}

static int32_t read_line(void *userdata, const char *line, size_t length)
{
	struct export *export = userdata;
	json_error_t error;
	ck_assert_uint_gt(length, 1);
	ck_assert_int_eq(line[length - 1], '\n');
	ck_assert_ptr_null(memchr(line, '\n', length - 1));
	json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	ck_assert_msg(json_is_object(object), "line %d: %s: %.*s", (int)export->told, error.text,
		      (int)(length < 300 ? length : 300), line);
	digest_former(export);
	export->former = malloc(length);
	memcpy(export->former, line, length);
	export->former_length = length;
	export->told++;
	const char *type = text_of(object, "type");
	if (json_object_get(object, "id") && strcmp(type, "journal") != 0) {
		char name[64];
		snprintf(name, sizeof(name), "%s %llu", type,
			 (unsigned long long)number_of(object, "id"));
		json_object_set(export->rows, name, object);
	}
	export->action_lines += strcmp(type, "action") == 0;
	json_array_append_new(export->lines, object);
	if (export->meanwhile)
		export->meanwhile(export);
	return 0;
}

static void start(struct export *export, orch_journal *journal)
{
	memset(export, 0, sizeof(*export));
	export->journal = journal;
	export->lines = json_array();
	export->rows = json_object();
	crypto_hash_sha256_init(&export->digest);
}

static void finish(struct export *export)
{
	json_decref(export->lines);
	json_decref(export->rows);
	free(export->former);
}

static json_t *line_at(struct export *export, size_t index)
{
	json_t *line = json_array_get(export->lines, index);
	ck_assert_ptr_nonnull(line);
	return line;
}

/* With records: exactly those up to the last line's, and each row as the last record of it says. */
static void check_records(struct export *export, uint64_t last)
{
	json_t *newest = json_object(), *line;
	uint64_t records = 0;
	size_t i;
	json_array_foreach(export->lines, i, line)
	{
		if (strcmp(text_of(line, "type"), "record") != 0)
			continue;
		char name[64];
		ck_assert_uint_eq(number_of(line, "sequence"), ++records);
		snprintf(name, sizeof(name), "%s %llu", text_of(line, "of"),
			 (unsigned long long)number_of(line, "subject"));
		json_object_set(newest, name, line);
		if (records == last)
			ck_assert_str_eq(
				text_of(line, "hash"),
				text_of(line_at(export, json_array_size(export->lines) - 1),
					"hash"));
	}
	ck_assert_uint_eq(records, last);
	const char *name;
	size_t rows = 0;
	json_object_foreach(newest, name, line)
	{
		if (strncmp(name, "generation", 10) == 0 || strncmp(name, "epoch", 5) == 0)
			continue;
		json_t *row = json_object_get(export->rows, name);
		ck_assert_msg(row != NULL, "%s is in no line", name);
		ck_assert_msg(number_of(row, "sequence") == number_of(line, "sequence"),
			      "%s is of record %d, not %d", name, (int)number_of(row, "sequence"),
			      (int)number_of(line, "sequence"));
		rows++;
	}
	ck_assert_uint_eq(json_object_size(export->rows), rows);
	json_decref(newest);
}

/* The first and the last line, and what the last one says of the others. */
static uint64_t check_whole(struct export *export)
{
	static const char *const order[] = {"journal",	"generation", "epoch", "action",
					    "decision", "permit",     "timer"};
	unsigned char digest[32];
	char hex[65];
	json_t *end = line_at(export, json_array_size(export->lines) - 1);
	ck_assert_str_eq(text_of(line_at(export, 0), "type"), "journal");
	ck_assert_str_eq(text_of(end, "type"), "end");
	ck_assert_uint_eq(number_of(end, "lines"), export->told - 1);
	crypto_hash_sha256_final(&export->digest, digest);
	ck_assert_str_eq(text_of(end, "sha256"), sodium_bin2hex(hex, sizeof(hex), digest, 32));
	ck_assert_uint_eq(strlen(text_of(end, "hash")), 64);
	/* Of those that did not change meanwhile. */
	size_t at = 0;
	uint64_t began = number_of(line_at(export, 0), "sequence");
	for (size_t i = 0; i + 1 < json_array_size(export->lines); i++) {
		json_t *line = line_at(export, i), *sequence = json_object_get(line, "sequence");
		const char *type = text_of(line, "type");
		if (strcmp(type, "record") == 0 ||
		    (i && (uint64_t)json_integer_value(sequence) > began))
			break;
		while (at < 7 && strcmp(order[at], type) != 0)
			at++;
		ck_assert_msg(at < 7, "a line of type %s is at %zu", type, i);
	}
	return number_of(end, "sequence");
}

static void export_all(struct export *export, orch_journal *journal, uint32_t flags)
{
	start(export, journal);
	OK(orch_journal_export(journal, flags, read_line, export, &error));
	uint64_t last = check_whole(export);
	ck_assert_uint_eq(last, orch_journal_sequence(journal));
	if (flags & ORCH_EXPORT_RECORDS)
		check_records(export, last);
}

/* NULL: not kept. */
static unsigned char *decode(json_t *value, size_t *ret_length)
{
	json_t *text = json_object_get(value, "text"), *base64 = json_object_get(value, "base64");
	ck_assert_uint_eq(json_object_size(value), 1);
	if (text) {
		*ret_length = json_string_length(text);
		ck_assert_ptr_null(memchr(json_string_value(text), '\0', *ret_length));
		return (unsigned char *)strdup(json_string_value(text));
	}
	ck_assert(json_is_string(base64));
	size_t size = json_string_length(base64);
	unsigned char *bytes = malloc(size + 1);
	ck_assert_int_eq(sodium_base642bin(bytes, size, json_string_value(base64), size, NULL,
					   ret_length, NULL, sodium_base64_VARIANT_ORIGINAL),
			 0);
	return bytes;
}

static void check_payload(json_t *value, const void *bytes, size_t length)
{
	if (!length) {
		ck_assert(json_is_null(value));
		return;
	}
	size_t decoded_length = 0;
	unsigned char *decoded = decode(value, &decoded_length);
	ck_assert_uint_eq(decoded_length, length);
	ck_assert_mem_eq(decoded, bytes, length);
	free(decoded);
}

static json_t *row(struct export *export, const char *type, uint64_t id)
{
	char name[64];
	snprintf(name, sizeof(name), "%s %llu", type, (unsigned long long)id);
	json_t *found = json_object_get(export->rows, name);
	ck_assert_msg(found != NULL, "there is no %s", name);
	return found;
}

/* --- what is in it
 * ------------------------------------------------------------------------------------------- */

static void check_action(struct export *export, orch_action *action)
{
	json_t *line = row(export, "action", orch_action_id(action));
	size_t length = 0;
	ck_assert_str_eq(text_of(line, "key"), orch_action_key(action));
	ck_assert_str_eq(text_of(line, "kind"), orch_action_kind(action));
	ck_assert_str_eq(text_of(line, "state"), orch_action_state_name(orch_action_state(action)));
	ck_assert_uint_eq(number_of(line, "attempt"), orch_action_attempt(action));
	ck_assert_uint_eq(number_of(line, "generation"), orch_action_generation(action));
	ck_assert_uint_eq(number_of(line, "created_at_ms"),
			  (uint64_t)orch_action_created_at_ms(action));
	ck_assert_uint_eq(number_of(line, "updated_at_ms"),
			  (uint64_t)orch_action_updated_at_ms(action));
	ck_assert_int_eq(json_is_true(json_object_get(line, "pruned")), orch_action_pruned(action));
	if (orch_action_pruned(action))
		return;
	const void *request = orch_action_request(action, &length);
	check_payload(json_object_get(line, "request"), request, length);
	const void *result = orch_action_result(action, &length);
	check_payload(json_object_get(line, "result"), result, length);
}

static int32_t check_each(void *userdata, orch_action *action)
{
	check_action(userdata, action);
	return 0;
}

START_TEST(all_there_is)
{
	orch_journal *journal = open_journal();
	struct orch_permit_opts permit;
	struct export export;
	for (uint32_t state = 1; state <= 8; state++) {
		char key[8];
		snprintf(key, sizeof(key), "%u", state);
		orch_action_unref(make(journal, key, 1 + state % 3, state));
	}
	OK(orch_journal_prune(journal, INT64_MAX, NULL, NULL, &error));
	orch_permit_opts_init(&permit, sizeof(permit));
	permit.name = "deploy once";
	permit.kind = "test.action";
	permit.note = "by Ada\0";
	permit.note_length = 7;
	OK(orch_permit_issue(journal, &permit, NULL, &error));
	orch_action *unknown = find(journal, "6");
	OK(orch_action_decide(unknown, ORCH_DECISION_APPLIED, "Gr\xc3\xa9ta", "seen", 4, &error));
	orch_action_unref(unknown);
	orch_journal_unref(journal);
	journal = open_journal();
	orch_action_unref(make(journal, "later", 0, ORCH_ACTION_CONFIRMED));

	export_all(&export, journal, ORCH_EXPORT_RECORDS);
	ck_assert_uint_eq(export.action_lines, 9);
	OK(orch_journal_each(journal, NULL, check_each, &export, &error));
	json_t *line = row(&export, "permit", 1);
	ck_assert_str_eq(text_of(line, "name"), "deploy once");
	ck_assert_str_eq(text_of(line, "state"), "ISSUED");
	check_payload(json_object_get(line, "note"), "by Ada\0", 7);
	ck_assert(json_is_null(json_object_get(line, "fingerprint")));
	line = row(&export, "decision", 1);
	ck_assert_str_eq(text_of(line, "decision"), "APPLIED");
	ck_assert_str_eq(text_of(line, "by"), "Gr\xc3\xa9ta");
	ck_assert_uint_eq(number_of(line, "action"), 6);
	ck_assert_uint_eq(number_of(row(&export, "action", 6), "decision"), 1);
	/* What was pruned is there, as a digest. */
	line = json_object_get(row(&export, "action", 4), "request");
	ck_assert_uint_eq(number_of(line, "bytes"), 7);
	ck_assert_uint_eq(strlen(text_of(line, "sha256")), 64);
	ck_assert_uint_eq(number_of(line_at(&export, 1), "generation"), 1);
	ck_assert_uint_eq(number_of(line_at(&export, 2), "generation"), 2);
	ck_assert_uint_eq(number_of(line_at(&export, 2), "pid"), (uint64_t)getpid());
	finish(&export);

	/* Without the records, and by a reader, it is the same rows. */
	export_all(&export, journal, 0);
	ck_assert_uint_eq(export.told, 1 + 2 + 9 + 1 + 1 + 1);
	finish(&export);
	orch_journal_unref(journal);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	export_all(&export, journal, 0);
	ck_assert_uint_eq(export.told, 1 + 2 + 9 + 1 + 1 + 1);
	OK(orch_journal_each(journal, NULL, check_each, &export, &error));
	finish(&export);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(an_epoch)
{
	char backup_path[120];
	struct export export;
	struct orch_restore_opts opts;
	orch_journal *journal = open_anchored();
	fill(journal);
	snprintf(backup_path, sizeof(backup_path), "%s/backup", anchor_folder);
	OK(orch_journal_backup(journal, backup_path, NULL, &error));
	orch_journal_unref(journal);
	orch_restore_opts_init(&opts, sizeof(opts));
	opts.flags = ORCH_RESTORE_REPLACE;
	opts.path = journal_path;
	opts.backup_path = backup_path;
	opts.anchor_path = anchor_path;
	OK(orch_journal_restore(&opts, NULL, &error));
	journal = open_anchored();
	export_all(&export, journal, ORCH_EXPORT_RECORDS);
	ck_assert_uint_eq(number_of(line_at(&export, 0), "epoch"), 2);
	size_t found = 0;
	for (size_t i = 0; i < json_array_size(export.lines); i++)
		if (strcmp(text_of(line_at(&export, i), "type"), "epoch") == 0) {
			ck_assert_uint_eq(number_of(line_at(&export, i), "epoch"), 2);
			ck_assert_uint_eq(strlen(text_of(line_at(&export, i), "anchor_hash")), 64);
			found++;
		}
	ck_assert_uint_eq(found, 1);
	ck_assert_uint_ge(number_of(line_at(&export, 0), "generation"), UINT64_C(1) << 32);
	finish(&export);
	orch_journal_unref(journal);
}
END_TEST

/* --- bytes
 * ---------------------------------------------------------------------------------------------------
 */

static uint32_t dice(uint32_t below)
{
	static uint64_t seed = 4711;
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

/* Text in one of three, and what is nearly text: pieces that are valid alone, cut and glued. */
static size_t random_bytes(unsigned char *bytes, size_t limit)
{
	static const char *const pieces[] = {"\"",
					     "\\",
					     "/",
					     "\b",
					     "\n",
					     "\r",
					     "\x1f",
					     "\x7f",
					     "a",
					     "{}",
					     "\xc2\x80",
					     "\xc3\xa9",
					     "\xe2\x80\xa8",
					     "\xef\xbf\xbf",
					     "\xef\xbb\xbf",
					     "\xed\x9f\xbf",
					     "\xee\x80\x80",
					     "\xf0\x90\x80\x80",
					     "\xf4\x8f\xbf\xbf",
					     "\xe0\xa0\x80"};
	static const char *const bad[] = {"\x80",
					  "\xbf",
					  "\xc0\x80",
					  "\xc1\xbf",
					  "\xe0\x9f\xbf",
					  "\xed\xa0\x80",
					  "\xed\xbf\xbf",
					  "\xf0\x8f\xbf\xbf",
					  "\xf4\x90\x80\x80",
					  "\xf5\x80\x80\x80",
					  "\xff",
					  "\xc3",
					  "\xe2\x80",
					  "\xf0\x90\x80"};
	size_t length = 0, wanted = dice((uint32_t)limit - 4);
	uint32_t way = dice(4);
	while (length < wanted) {
		const char *piece = pieces[dice(sizeof(pieces) / sizeof(pieces[0]))];
		if (way == 1 && dice(10) == 0)
			piece = bad[dice(sizeof(bad) / sizeof(bad[0]))];
		if (way == 2 || (way == 3 && dice(20) == 0)) {
			bytes[length++] = (unsigned char)dice(256);
			continue;
		}
		memcpy(bytes + length, piece, strlen(piece));
		length += strlen(piece);
	}
	return length;
}

#define RANDOM 600

START_TEST(random_payloads_come_back)
{
	static unsigned char payloads[RANDOM][200];
	static size_t lengths[RANDOM];
	orch_journal *journal = open_journal();
	struct export export;
	size_t text = 0;
	for (int i = 0; i < RANDOM; i++) {
		char key[16];
		snprintf(key, sizeof(key), "%d", i);
		lengths[i] = i < 4 ? (size_t)i : random_bytes(payloads[i], sizeof(payloads[i]));
		OK(orch_journal_record(journal, "k", key, payloads[i], lengths[i], NULL, &error));
	}
	export_all(&export, journal, 0);
	for (int i = 0; i < RANDOM; i++) {
		json_t *value = json_object_get(row(&export, "action", (uint64_t)i + 1), "request");
		check_payload(value, payloads[i], lengths[i]);
		text += json_object_get(value, "text") != NULL;
	}
	/* Both forms were there, each often. */
	ck_assert_uint_gt(text, RANDOM / 5);
	ck_assert_uint_lt(text, RANDOM - RANDOM / 5);
	finish(&export);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(payloads_at_the_limit)
{
	static unsigned char big[1024 * 1024];
	static const int fills[] = {'x', 1, '"', 0, 0xff};
	orch_journal *journal = open_journal();
	struct export export;
	for (size_t i = 0; i < sizeof(fills) / sizeof(fills[0]); i++) {
		char key[16];
		snprintf(key, sizeof(key), "%zu", i);
		memset(big, fills[i], sizeof(big));
		OK(orch_journal_record(journal, "k", key, big, sizeof(big), NULL, &error));
	}
	export_all(&export, journal, 0);
	for (size_t i = 0; i < sizeof(fills) / sizeof(fills[0]); i++) {
		memset(big, fills[i], sizeof(big));
		check_payload(json_object_get(row(&export, "action", i + 1), "request"), big,
			      sizeof(big));
	}
	finish(&export);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(names_and_numbers)
{
	static const char *const keys[] = {"\n",	   "\"}",	   "\\u0000",
					   "\x01\x1f\x7f", "\xe2\x80\xa8", "\xf4\x8f\xbf\xbf",
					   "\xc3\xa9"};
	orch_journal *journal = open_journal();
	struct export export;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		OK(orch_journal_record(journal, "k", keys[i], NULL, 0, NULL, &error));
	export_all(&export, journal, ORCH_EXPORT_RECORDS);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		ck_assert_str_eq(text_of(row(&export, "action", i + 1), "key"), keys[i]);
	finish(&export);
	orch_journal_unref(journal);
	/* Numbers that a double does not hold; and a key that only a damaged file can have. */
	sql("UPDATE action SET updated_at_ms = 9223372036854775807, generation = 9007199254740993 "
	    "WHERE id = 1;"
	    "UPDATE action SET key = CAST(x'ff' AS TEXT) WHERE id = 2;"
	    "UPDATE instance SET host = CAST(x'c328' AS TEXT)");
	journal = open_journal();
	export_all(&export, journal, 0);
	ck_assert_uint_eq(number_of(row(&export, "action", 1), "updated_at_ms"), INT64_MAX);
	ck_assert_uint_eq(number_of(row(&export, "action", 1), "generation"),
			  UINT64_C(9007199254740993));
	check_payload(json_object_get(row(&export, "action", 2), "key"), "\xff", 1);
	check_payload(json_object_get(line_at(&export, 1), "host"), "\xc3\x28", 2);
	finish(&export);
	orch_journal_unref(journal);
}
END_TEST

/* --- while others write
 * -------------------------------------------------------------------------------------- */

static void fill_many(orch_journal *journal, int count)
{
	for (int i = 0; i < count; i++) {
		char key[16];
		snprintf(key, sizeof(key), "%d", i);
		orch_action_unref(begin(journal, key, 0, ORCH_BEGIN_FRESH));
	}
}

/* Moves on what was told already, and what comes later, and begins another. */
static void move_some(struct export *export)
{
	if (export->writes >= 60)
		return;
	char key[16];
	uint64_t step = export->writes++;
	snprintf(key, sizeof(key), "%d", (int)(step % 2 ? step : 190 - step));
	orch_action *action = find(export->journal, key);
	OK(orch_action_dispatch(action, &error));
	orch_action_unref(action);
	snprintf(key, sizeof(key), "new %d", (int)step);
	OK(orch_journal_record(export->journal, "test.new", key, NULL, 0, NULL, &error));
}

START_TEST(its_own_callback_writes)
{
	for (uint32_t flags = 0; flags <= ORCH_EXPORT_RECORDS; flags++) {
		orch_journal *journal = open_journal();
		struct export export;
		fill_many(journal, 200);
		start(&export, journal);
		export.meanwhile = move_some;
		OK(orch_journal_export(journal, flags, read_line, &export, &error));
		ck_assert_uint_eq(export.writes, 60);
		uint64_t last = check_whole(&export);
		ck_assert_uint_eq(last, orch_journal_sequence(journal));
		if (flags)
			check_records(&export, last);
		ck_assert_uint_gt(export.action_lines, 260);
		OK(orch_journal_each(journal, NULL, check_each, &export, &error));
		finish(&export);
		orch_journal_unref(journal);
		kit_teardown();
		kit_setup();
	}
}
END_TEST

static void write_always(struct export *export)
{
	char key[16];
	snprintf(key, sizeof(key), "new %d", (int)export->writes++);
	ck_assert_uint_lt(export->writes, 10000);
	OK(orch_journal_record(export->journal, "test.new", key, NULL, 0, NULL, &error));
}

/* A callback that writes more than it is told cannot keep an export going for ever. */
START_TEST(it_ends_although_its_callback_always_writes)
{
	orch_journal *journal = open_journal();
	struct export export;
	fill_many(journal, 10);
	start(&export, journal);
	export.meanwhile = write_always;
	OK(orch_journal_export(journal, ORCH_EXPORT_RECORDS, read_line, &export, &error));
	check_records(&export, check_whole(&export));
	ck_assert_uint_gt(export.writes, 20);
	finish(&export);
	orch_journal_unref(journal);
}
END_TEST

static atomic_int work_is_over;

static void *work(void *userdata)
{
	for (int i = 0; !work_is_over; i++) {
		char key[16];
		uint32_t outcome = 0;
		orch_action *action = NULL;
		snprintf(key, sizeof(key), "%d", i % 300);
		if (kit_begin(userdata, key, 0, "request", &outcome, &action, NULL) < 0)
			return "begin failed";
		if (outcome == ORCH_BEGIN_FRESH ||
		    orch_action_state(action) == ORCH_ACTION_INTENT) {
			if (orch_action_dispatch(action, NULL) < 0 ||
			    orch_action_fail(action, "f", 1, NULL) < 0)
				return "a move failed";
		}
		orch_action_unref(action);
	}
	return NULL;
}

START_TEST(another_thread_writes)
{
	orch_journal *journal = open_journal();
	pthread_t thread;
	void *failed = NULL;
	fill_many(journal, 300);
	ck_assert_int_eq(pthread_create(&thread, NULL, work, journal), 0);
	uint64_t grown = 0;
	for (int i = 0; i < 200 && grown < 200; i++) {
		struct export export;
		start(&export, journal);
		OK(orch_journal_export(journal, ORCH_EXPORT_RECORDS, read_line, &export, &error));
		uint64_t last = check_whole(&export);
		check_records(&export, last);
		grown += last - number_of(line_at(&export, 0), "sequence");
		finish(&export);
	}
	work_is_over = 1;
	ck_assert_int_eq(pthread_join(thread, &failed), 0);
	ck_assert_msg(!failed, "%s", (char *)failed);
	ck_assert_uint_gt(grown, 100); /* it wrote while lines were told */
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* --- ends, arguments, size
 * ----------------------------------------------------------------------------------- */

struct cut {
	int left;
	char last[400];
};

static int32_t stop_later(void *userdata, const char *line, size_t length)
{
	struct cut *cut = userdata;
	snprintf(cut->last, sizeof(cut->last), "%.*s", (int)length, line);
	return --cut->left ? 0 : 77;
}

/* Ended anywhere by the callback it gives that value, and the line that makes it whole is not
 * there. */
START_TEST(cut_anywhere)
{
	orch_journal *journal = open_journal();
	fill_many(journal, 70);
	int lines = 1;
	for (;; lines++) {
		struct cut cut = {.left = lines};
		int32_t r =
			orch_journal_export(journal, ORCH_EXPORT_RECORDS, stop_later, &cut, NULL);
		bool whole = strstr(cut.last, "\"type\":\"end\"") != NULL;
		if (cut.left > 0) {
			ck_assert_int_eq(r, 0);
			ck_assert(whole);
			break;
		}
		ck_assert_int_eq(r, 77);
		ck_assert_int_eq(whole, lines == 1 + 1 + 70 + 71 + 1);
	}
	ck_assert_int_eq(lines, 1 + 1 + 70 + 71 + 1 + 1);
	orch_journal_unref(journal);
}
END_TEST

static void as_a_child(void *userdata)
{
	FAILS(ORCH_EFORKED, orch_journal_export(userdata, 0, (orch_export_fn)abort, NULL, &error));
}

static int32_t take_files_away(void *userdata, const char *line, size_t length)
{
	(void)line;
	(void)length;
	unlink(wal_path);
	ck_assert_int_eq(orch_journal_record(userdata, "k", "late", NULL, 0, NULL, NULL),
			 ORCH_EPOISONED);
	return 0;
}

START_TEST(arguments)
{
	orch_journal *journal = open_journal();
	FAILS(ORCH_EINVAL, orch_journal_export(NULL, 0, (orch_export_fn)abort, NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_export(journal, 0, NULL, NULL, &error));
	FAILS(ORCH_EINVAL, orch_journal_export(journal, 2, (orch_export_fn)abort, NULL, &error));
	ck_assert_int_eq(in_child(as_a_child, journal), 0);
	FAILS(ORCH_EPOISONED, orch_journal_export(journal, 0, take_files_away, journal, &error));
	FAILS(ORCH_EPOISONED, orch_journal_export(journal, 0, (orch_export_fn)abort, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

struct damaged {
	const char *sql;
	uint32_t flags;
};

/* What cannot be read is an error that says where, and no whole export. */
START_TEST(damaged_rows)
{
	static const struct damaged damages[] = {
		{"UPDATE action SET request_length = request_length + 1", 0},
		{"UPDATE event SET hash = x'00' WHERE sequence = 2", ORCH_EXPORT_RECORDS},
		{"UPDATE event SET noun = 77 WHERE sequence = 2", ORCH_EXPORT_RECORDS},
		{"DELETE FROM event WHERE sequence = 2", ORCH_EXPORT_RECORDS},
	};
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		orch_journal *journal = open_journal();
		struct cut cut = {.left = 1000};
		fill(journal);
		OK(orch_journal_export(journal, damages[i].flags, stop_later, &cut,
				       &error)); /* the control */
		orch_journal_unref(journal);
		sql(damages[i].sql);
		journal = open_journal();
		FAILS(ORCH_ECORRUPT,
		      orch_journal_export(journal, damages[i].flags, stop_later, &cut, &error));
		ck_assert_ptr_null(strstr(cut.last, "\"type\":\"end\""));
		orch_journal_unref(journal);
		kit_teardown();
		kit_setup();
	}
}
END_TEST

struct footprint {
	size_t most;
	unsigned lines;
};

static size_t allocated(void)
{
	struct mallinfo2 now = mallinfo2();
	return now.uordblks + now.hblkhd;
}

static int32_t measure(void *userdata, const char *line, size_t length)
{
	struct footprint *footprint = userdata;
	(void)line;
	(void)length;
	if (footprint->lines++ % 100 == 0 && allocated() > footprint->most)
		footprint->most = allocated();
	return 0;
}

START_TEST(very_many)
{
	orch_journal *journal = open_journal();
	orch_journal_unref(journal);
	sql("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)"
	    " INSERT INTO action (id, sequence, kind, key, policy, fingerprint, state, attempt, "
	    "generation,"
	    " created_at_ms, updated_at_ms, request_length, request_digest, result_length, format, "
	    "stored)"
	    " SELECT i, 1, 'k', 'key ' || i, 1, x'00', 4, 1, 1, 1, i, 200, zeroblob(32), 0, 2, 1 "
	    "FROM n;"
	    "INSERT INTO body SELECT 2 * id, zeroblob(200) FROM action");
	journal = open_journal();
	struct footprint footprint = {0};
	size_t before = allocated();
	OK(orch_journal_export(journal, 0, measure, &footprint, &error));
	ck_assert_uint_eq(footprint.lines, 60000 + 1 + 2 + 1);
	/* SQLite's page cache has 2 MB of it; the lines are more than 30 MB. */
	ck_assert_msg(footprint.most < before + 4000000, "%zu bytes more than before",
		      footprint.most - before);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("export");
	TCase *tests = tcase_create("export");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, all_there_is);
	tcase_add_test(tests, an_epoch);
	tcase_add_test(tests, random_payloads_come_back);
	tcase_add_test(tests, payloads_at_the_limit);
	tcase_add_test(tests, names_and_numbers);
	tcase_add_test(tests, its_own_callback_writes);
	tcase_add_test(tests, it_ends_although_its_callback_always_writes);
	tcase_add_test(tests, another_thread_writes);
	tcase_add_test(tests, cut_anywhere);
	tcase_add_test(tests, arguments);
	tcase_add_test(tests, damaged_rows);
	tcase_add_test(tests, very_many);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
