/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text that a policy becomes for macOS (lib/sandbox/darwin/profile.h), read by a small reader of the profile language
 * that is made here and shares nothing with the writer: strings as Scheme has them, the last rule that matches counts.
 * Whether macOS reads it so is not said: nothing of this was run there.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/darwin/profile.h"
#include "sandbox/darwin/seatbelt.h"

/* --- reading a profile ---------------------------------------------------------------------- */

struct reader {
	const char *at;
	const char *operation, *path;
	bool allowed;
	unsigned rules, paths;
};

static void skip_space(struct reader *reader)
{
	reader->at += strspn(reader->at, " \t\n");
}

static bool take(struct reader *reader, char byte)
{
	skip_space(reader);
	if (*reader->at != byte)
		return false;
	reader->at++;
	return true;
}

static void read_word(struct reader *reader, char *word, size_t size)
{
	skip_space(reader);
	size_t length = strcspn(reader->at, " \t\n()\"");
	ck_assert_uint_gt(length, 0);
	ck_assert_uint_lt(length, size);
	memcpy(word, reader->at, length);
	word[length] = '\0';
	reader->at += length;
}

static void read_string(struct reader *reader, char *text, size_t size)
{
	size_t length = 0;
	ck_assert(take(reader, '"'));
	for (; *reader->at != '"'; reader->at++) {
		char byte = *reader->at;
		ck_assert_int_ne(byte, '\0');
		/* One line per string, or a reader of lines would see rules in a file's name. */
		ck_assert_int_ne(byte, '\n');
		if (byte == '\\') {
			byte = *++reader->at;
			ck_assert_ptr_nonnull(strchr("\"\\ntr", byte));
			byte = byte == 'n' ? '\n' : byte == 't' ? '\t' : byte == 'r' ? '\r' : byte;
		}
		ck_assert_uint_lt(length + 1, size);
		text[length++] = byte;
	}
	text[length] = '\0';
	reader->at++;
}

static bool is_below(const char *path, const char *folder)
{
	size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
	return strncmp(path, folder, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/* After its '(': does it match? */
static bool read_filter(struct reader *reader)
{
	char name[64], value[4096] = "";
	bool match = false;
	read_word(reader, name, sizeof(name));
	if (strcmp(name, "subpath") == 0 || strcmp(name, "literal") == 0) {
		read_string(reader, value, sizeof(value));
		reader->paths += strncmp(value, "/dev/", 5) != 0;
		match = reader->path && (name[0] == 's' ? is_below(reader->path, value)
							: strcmp(reader->path, value) == 0);
	} else if (strcmp(name, "sysctl-name") == 0) {
		read_string(reader, value, sizeof(value));
		match = reader->path && strcmp(reader->path, value) == 0;
	} else if (strcmp(name, "target") == 0) {
		read_word(reader, value, sizeof(value));
		match = reader->path && strcmp(reader->path, value) == 0;
	} else {
		ck_assert_str_eq(name, "remote");
		read_word(reader, name, sizeof(name));
		read_string(reader, value, sizeof(value));
		match = reader->path && strcmp(reader->path, value) == 0;
	}
	ck_assert(take(reader, ')'));
	return match;
}

static bool names(const char *pattern, const char *operation)
{
	size_t length = strlen(pattern);
	return strcmp(pattern, "default") == 0 || strcmp(pattern, operation) == 0 ||
	       (pattern[length - 1] == '*' && strncmp(pattern, operation, length - 1) == 0);
}

static void read_rule(struct reader *reader)
{
	char action[64], word[64];
	bool of_operation = false, filtered = false, match = false;
	ck_assert(take(reader, '('));
	read_word(reader, action, sizeof(action));
	if (strcmp(action, "version") == 0) {
		read_word(reader, word, sizeof(word));
		ck_assert_str_eq(word, "1");
		ck_assert(take(reader, ')'));
		return;
	}
	ck_assert(strcmp(action, "allow") == 0 || strcmp(action, "deny") == 0);
	for (;;) {
		skip_space(reader);
		if (take(reader, ')'))
			break;
		if (take(reader, '(')) {
			filtered = true;
			match |= read_filter(reader);
		} else {
			ck_assert(!filtered);
			read_word(reader, word, sizeof(word));
			of_operation |= names(word, reader->operation);
		}
	}
	reader->rules++;
	if (of_operation && (match || !filtered))
		reader->allowed = action[0] == 'a';
}

static struct reader read_profile(const char *profile, const char *operation, const char *path)
{
	struct reader reader = {.at = profile, .operation = operation, .path = path};
	skip_space(&reader);
	while (*reader.at) {
		read_rule(&reader);
		skip_space(&reader);
	}
	return reader;
}

static bool may(const struct orch_buf *profile, const char *operation, const char *path)
{
	return read_profile(profile->data, operation, path).allowed;
}

/* --- writing one ---------------------------------------------------------------------------- */

static struct orch_buf written(uint32_t root, const struct profile_path *paths, size_t count)
{
	struct orch_buf text = {0};
	size_t bad = 0;
	const struct profile_policy policy = {.root = root, .paths = paths, .path_count = count};
	ck_assert_int_eq(orch_profile_write(&policy, &text, &bad), 0);
	ck_assert(!text.failed);
	return text;
}

START_TEST(empty_policy_has_nothing_of_the_host)
{
	struct orch_buf text = written(ORCH_ROOT_EMPTY, NULL, 0);
	ck_assert(strncmp(text.data, "(version 1)\n(deny default)\n", 27) == 0);
	ck_assert_uint_eq(read_profile(text.data, "file-read-data", "/").paths, 0);
	static const char *const places[] = {"/", "/usr/bin/true", "/etc/passwd", "/private/tmp/x", "/Users/me/.ssh/id"};
	static const char *const operations[] = {"file-read-data", "file-read-metadata", "file-write-data",
						 "file-write-create", "process-exec"};
	for (size_t i = 0; i < 5; i++)
		for (size_t j = 0; j < 5; j++)
			ck_assert_msg(!may(&text, operations[j], places[i]), "%s %s", operations[j], places[i]);
	ck_assert(!may(&text, "network-outbound", "localhost:8080"));
	ck_assert(!may(&text, "network-bind", NULL));
	ck_assert(!may(&text, "mach-lookup", "com.apple.SecurityServer"));
	ck_assert(!may(&text, "sysctl-read", "kern.procargs2"));
	ck_assert(!may(&text, "sysctl-write", "hw.ncpu"));
	ck_assert(!may(&text, "signal", "others"));
	ck_assert(!may(&text, "file-link", "/dev/null"));
	ck_assert(!may(&text, "file-write-unlink", "/dev/null"));
	/* Or a profile that allows nothing at all would pass. */
	ck_assert(may(&text, "file-read-data", "/dev/null"));
	ck_assert(may(&text, "signal", "same-sandbox"));
	ck_assert(may(&text, "sysctl-read", "hw.ncpu"));
	ck_assert(may(&text, "process-fork", NULL));
	orch_buf_free(&text);
}
END_TEST

START_TEST(tools_are_read_and_run_only)
{
	struct orch_buf text = written(ORCH_ROOT_TOOLS, NULL, 0);
	ck_assert(may(&text, "process-exec", "/usr/bin/true"));
	ck_assert(may(&text, "file-read-data", "/usr/lib/dyld"));
	ck_assert(may(&text, "file-read-data", "/private/etc/passwd"));
	ck_assert(!may(&text, "file-write-data", "/usr/bin/true"));
	ck_assert(!may(&text, "file-read-data", "/private/etc/master.passwd"));
	ck_assert(!may(&text, "file-read-data", "/Users/me/notes"));
	ck_assert(!may(&text, "file-read-data", "/private/tmp/x"));
	ck_assert(!may(&text, "file-read-data", "/usrlocal"));
	orch_buf_free(&text);
}
END_TEST

START_TEST(rights_are_those_that_were_given)
{
	for (uint32_t access = 1; access < 16; access++) {
		const struct profile_path path = {"/Users/me/work", access};
		bool own = access & ORCH_PATH_OWN;
		struct orch_buf text = written(ORCH_ROOT_EMPTY, &path, 1);
		ck_assert_int_eq(may(&text, "file-read-data", "/Users/me/work/a"), own || access & ORCH_PATH_READ);
		ck_assert_int_eq(may(&text, "file-write-create", "/Users/me/work/a"), own || access & ORCH_PATH_WRITE);
		ck_assert_int_eq(may(&text, "process-exec", "/Users/me/work/a"), own || (access & ORCH_PATH_EXEC) != 0);
		ck_assert(!may(&text, "file-read-data", "/Users/me/workmate"));
		ck_assert(!may(&text, "file-read-data", "/Users/me"));
		/* That it is there may be seen of what is above, and no more. */
		ck_assert(may(&text, "file-read-metadata", "/Users"));
		ck_assert(!may(&text, "file-read-metadata", "/Users/you"));
		orch_buf_free(&text);
	}
}
END_TEST

START_TEST(deeper_rule_wins)
{
	static const struct profile_path paths[] = {
	    {"/a/b/c/d", ORCH_PATH_READ | ORCH_PATH_WRITE},
	    {"/a/b/c", ORCH_PATH_READ},
	    {"/a", ORCH_PATH_READ | ORCH_PATH_EXEC},
	    {"/a/b", ORCH_PATH_OWN},
	    {"/usr/lib/secret", ORCH_PATH_WRITE},
	};
	/* In every order that begins with another one. */
	for (size_t first = 0; first < 5; first++) {
		struct profile_path turned[5];
		for (size_t i = 0; i < 5; i++)
			turned[i] = paths[(first + i) % 5];
		struct orch_buf text = written(ORCH_ROOT_TOOLS, turned, 5);
		ck_assert(may(&text, "file-read-data", "/a/x") && may(&text, "process-exec", "/a/x"));
		ck_assert(!may(&text, "file-write-data", "/a/x"));
		ck_assert(may(&text, "file-write-data", "/a/b/x") && may(&text, "process-exec", "/a/b/x"));
		ck_assert(may(&text, "file-read-data", "/a/b/c/x"));
		ck_assert(!may(&text, "file-write-data", "/a/b/c/x") && !may(&text, "process-exec", "/a/b/c/x"));
		ck_assert(!may(&text, "file-write-data", "/a/b/c"));
		ck_assert(may(&text, "file-write-data", "/a/b/c/d/x") && !may(&text, "process-exec", "/a/b/c/d/x"));
		ck_assert(!may(&text, "file-read-data", "/usr/lib/secret/x"));
		ck_assert(may(&text, "file-read-data", "/usr/lib/x"));
		orch_buf_free(&text);
	}
}
END_TEST

/* A denial, and what is allowed again below it. */
START_TEST(denied_paths)
{
	static const struct profile_path paths[] = {
	    {"/a/b/c", ORCH_PATH_READ},
	    {"/a/b", 0},
	    {"/a", ORCH_PATH_OWN},
	    {"/usr/share", 0},
	};
	static const char *const operations[] = {"file-read-data", "file-write-create", "file-write-unlink", "process-exec"};
	for (size_t first = 0; first < 4; first++) {
		struct profile_path turned[4];
		for (size_t i = 0; i < 4; i++)
			turned[i] = paths[(first + i) % 4];
		struct orch_buf text = written(ORCH_ROOT_TOOLS, turned, 4);
		for (size_t i = 0; i < 4; i++) {
			ck_assert(may(&text, operations[i], "/a/x"));
			ck_assert(!may(&text, operations[i], "/a/b"));
			ck_assert(!may(&text, operations[i], "/a/b/x"));
			ck_assert(!may(&text, operations[i], "/usr/share/x"));
		}
		ck_assert(may(&text, "file-read-data", "/a/b/c/x"));
		ck_assert(!may(&text, "file-write-create", "/a/b/c/x"));
		ck_assert(may(&text, "file-read-data", "/usr/lib/x"));
		orch_buf_free(&text);
	}
}
END_TEST

START_TEST(names_can_not_break_out)
{
	static const char *const harsh[] = {
	    "/w/\"))(allow default)(deny file-read* (subpath \"/x",
	    "/w/back\\slash\\\"quote",
	    "/w/ends in a backslash\\",
	    "/w/line\nbreak\n(allow default)",
	    "/w/tab\tand\rreturn",
	    "/w/; (allow default)",
	    "/w/#|not a comment|#",
	    "/w/caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80",
	    "/w/\xed\x9f\xbf\xee\x80\x80",
	};
	for (size_t i = 0; i < sizeof(harsh) / sizeof(harsh[0]); i++) {
		const struct profile_path path = {harsh[i], ORCH_PATH_READ};
		const struct profile_path plain = {"/w/plain", ORCH_PATH_READ};
		struct orch_buf text = written(ORCH_ROOT_EMPTY, &path, 1);
		struct orch_buf expected = written(ORCH_ROOT_EMPTY, &plain, 1);
		char inside[256];
		snprintf(inside, sizeof(inside), "%s/file", harsh[i]);
		ck_assert_msg(may(&text, "file-read-data", harsh[i]), "%s", harsh[i]);
		ck_assert(may(&text, "file-read-data", inside));
		ck_assert(!may(&text, "file-write-data", inside));
		ck_assert(!may(&text, "mach-lookup", "x"));
		/* No rule more than a plain name makes. */
		ck_assert_uint_eq(read_profile(text.data, "x", NULL).rules, read_profile(expected.data, "x", NULL).rules);
		orch_buf_free(&text);
		orch_buf_free(&expected);
	}
}
END_TEST

START_TEST(names_that_are_refused)
{
	static const char *const refused[] = {
	    "relative", "",		"/a/../b",	   "/a/./b",	     "/a//b",	       "/a/",
	    "/w/\x01",	"/w/\x1b[2J",	"/w/\x7f",	   "/w/\xff",	     "/w/\xc0\xaf",    "/w/\xc1\xbf",
	    "/w/\x80",	"/w/\xe0\x9f\xbf", "/w/\xed\xa0\x80", "/w/\xf4\x90\x80\x80", "/w/\xf5\x80\x80\x80", "/w/\xc3",
	    "/w/\xe6\x97", "/w/\xf0\x9f\x98", "/w/\xf0\x8f\xbf\xbf",
	};
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const struct profile_path paths[] = {{"/fine", ORCH_PATH_READ}, {refused[i], ORCH_PATH_READ}};
		const struct profile_policy policy = {.root = ORCH_ROOT_EMPTY, .paths = paths, .path_count = 2};
		struct orch_buf text = {0};
		size_t bad = 99;
		ck_assert_msg(orch_profile_write(&policy, &text, &bad) == ORCH_EINVAL, "%s", refused[i]);
		ck_assert_uint_eq(bad, 1);
		ck_assert_uint_eq(text.length, 0);
	}
}
END_TEST

START_TEST(broker_is_one_port_of_the_loopback)
{
	const struct profile_policy policy = {.root = ORCH_ROOT_EMPTY, .broker_port = 49152};
	struct orch_buf text = {0};
	size_t bad;
	ck_assert_int_eq(orch_profile_write(&policy, &text, &bad), 0);
	ck_assert(may(&text, "network-outbound", "localhost:49152"));
	ck_assert(!may(&text, "network-outbound", "localhost:49153"));
	ck_assert(!may(&text, "network-outbound", "*:49152"));
	ck_assert(!may(&text, "network-inbound", "localhost:49152"));
	ck_assert(!may(&text, "network-bind", "localhost:49152"));
	orch_buf_free(&text);
}
END_TEST

/* --- what macOS does not have --------------------------------------------------------------- */

static void assert_gap(const struct profile_wishes *wishes, const char *named)
{
	struct orch_buf text = {0};
	orch_profile_gaps(wishes, &text);
	if (named)
		ck_assert_msg(text.data && strstr(text.data, named), "%s is not in: %s", named, text.data);
	else
		ck_assert_uint_eq(text.length, 0);
	orch_buf_free(&text);
}

START_TEST(gaps_are_named)
{
	const struct profile_wishes modest = {.least_rung = ORCH_RUNG_SUBREAPER,
					      .net = ORCH_NET_NONE,
					      .landlock = ORCH_PROTECT_DEGRADABLE,
					      .seccomp = ORCH_PROTECT_OFF,
					      .memory = ORCH_PROTECT_DEGRADABLE,
					      .max_memory_mib = 512};
	struct profile_wishes wishes = modest;
	assert_gap(&wishes, NULL);
	wishes.least_rung = ORCH_RUNG_PIDNS;
	assert_gap(&wishes, "ORCH_RUNG_SUBREAPER");
	wishes = modest;
	wishes.landlock = ORCH_PROTECT_REQUIRED;
	assert_gap(&wishes, "protection landlock");
	wishes = modest;
	wishes.seccomp = ORCH_PROTECT_REQUIRED;
	assert_gap(&wishes, "protection seccomp");
	wishes = modest;
	wishes.memory = ORCH_PROTECT_REQUIRED;
	assert_gap(&wishes, "protection memory");
	wishes.max_memory_mib = 0;
	assert_gap(&wishes, NULL);
	wishes = modest;
	wishes.net = ORCH_NET_BROKER;
	assert_gap(&wishes, "ORCH_NET_BROKER");
	wishes = modest;
	wishes.moved = "/work";
	assert_gap(&wishes, "inner path /work");
	wishes.own_as_root = true;
	assert_gap(&wishes, "; ORCH_PATH_OWN as root");
}
END_TEST

/* --- the file that orch-reaper reads -------------------------------------------------------- */

#define STRINGS "(version 1)\n(deny default)\n\0/Users/me\0A=1\0B="

struct good {
	struct seatbelt_header header;
	uint32_t env[2];
	char strings[sizeof(STRINGS)];
};

static struct good good_file(void)
{
	struct good file = {.header = {.version = SEATBELT_VERSION,
				       .length = sizeof(file),
				       .max_open_files = 1024,
				       .profile = 0,
				       .cwd = 28,
				       .env_offset = offsetof(struct good, env),
				       .env_count = 2,
				       .strings_offset = offsetof(struct good, strings),
				       .strings_length = sizeof(STRINGS)},
			    .env = {38, 42},
			    .strings = STRINGS};
	/* The struct's own padding counts as string: it is zero. */
	file.header.strings_length = (uint32_t)(sizeof(file) - offsetof(struct good, strings));
	memcpy(file.header.magic, SEATBELT_MAGIC, sizeof(file.header.magic));
	return file;
}

START_TEST(damage_is_seen)
{
	struct good file = good_file();
	ck_assert_ptr_null(seatbelt_check(&file.header, sizeof(file)));
	ck_assert_str_eq(seatbelt_string(&file.header, file.header.cwd), "/Users/me");
	ck_assert_str_eq(seatbelt_string(&file.header, file.env[1]), "B=");
	ck_assert_ptr_nonnull(seatbelt_check(&file.header, sizeof(file) - 1));
	ck_assert_ptr_nonnull(seatbelt_check(&file.header, 10));
#define REFUSED(change)                                                                            \
	do {                                                                                       \
		file = good_file();                                                                \
		change;                                                                            \
		ck_assert_msg(seatbelt_check(&file.header, sizeof(file)) != NULL, #change);        \
	} while (0)
	REFUSED(file.header.magic[0] = 'X');
	REFUSED(file.header.version++);
	REFUSED(file.header.length++);
	REFUSED(file.header.profile = file.header.strings_length);
	REFUSED(file.header.cwd = UINT32_MAX);
	REFUSED(file.header.env_offset++);
	REFUSED(file.header.env_offset = UINT32_MAX - 3);
	REFUSED(file.header.env_count = ORCH_SPEC_MAX_ENV);
	REFUSED(file.header.env_count = UINT32_MAX);
	REFUSED(file.header.strings_offset = file.header.length + 1);
	REFUSED(file.header.strings_length = 0);
	REFUSED(file.header.strings_length--; file.strings[sizeof(STRINGS) - 2] = 'x'; file.header.strings_length = 1);
	REFUSED(file.env[1] = file.header.strings_length);
	/* A profile that would allow by default is no confinement. */
	REFUSED(memcpy(file.strings, "(version 1)\n(allow default)", 27));
	REFUSED(file.header.profile = 28);
}
END_TEST

START_TEST(random_damage_stays_inside)
{
	srandom(7);
	unsigned accepted = 0;
	for (int round = 0; round < 20000; round++) {
		struct good file = good_file();
		/* On the heap, so that a sanitizer sees a read outside. */
		unsigned char *bytes = malloc(sizeof(file));
		ck_assert_ptr_nonnull(bytes);
		memcpy(bytes, &file, sizeof(file));
		bytes[(size_t)random() % sizeof(file.header)] ^= (unsigned char)(1 + random() % 255);
		const struct seatbelt_header *header = (const struct seatbelt_header *)bytes;
		if (!seatbelt_check(header, sizeof(file))) {
			const uint32_t *env = (const uint32_t *)(bytes + header->env_offset);
			size_t total = strlen(seatbelt_string(header, header->profile));
			total += strlen(seatbelt_string(header, header->cwd));
			for (uint32_t i = 0; i < header->env_count; i++)
				total += strlen(seatbelt_string(header, env[i]));
			accepted += total > 0;
		}
		free(bytes);
	}
	/* Of the limits any value is good. */
	ck_assert_uint_gt(accepted, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seatbelt");
	TCase *tests = tcase_create("seatbelt");
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, empty_policy_has_nothing_of_the_host);
	tcase_add_test(tests, tools_are_read_and_run_only);
	tcase_add_test(tests, rights_are_those_that_were_given);
	tcase_add_test(tests, deeper_rule_wins);
	tcase_add_test(tests, denied_paths);
	tcase_add_test(tests, names_can_not_break_out);
	tcase_add_test(tests, names_that_are_refused);
	tcase_add_test(tests, broker_is_one_port_of_the_loopback);
	tcase_add_test(tests, gaps_are_named);
	tcase_add_test(tests, damage_is_seen);
	tcase_add_test(tests, random_damage_stays_inside);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
