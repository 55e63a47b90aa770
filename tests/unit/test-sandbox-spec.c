/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of specifications in orch-reaper, linked here by itself: what it refuses, and that no
 * damage to a good specification makes it read outside (run this under -Db_sanitize=address to see
 * that it does not).
 */
#include <check.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "helper/linux/confine-private.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Supervision's part, which is not called here. */
int supervise_clone_init(uint64_t namespace_flags, int control_fd)
{
	(void)namespace_flags, (void)control_fd;
	return -1;
}

struct good {
	struct orch_spec_header header;
	uint64_t filter[2];
	struct orch_spec_mount mounts[2];
	uint32_t env[2];
	char strings[64];
};

#define STRINGS "\0sandbox\0/work\0/host/a\0/a\0/a/b\0A=1\0B=\0"

static struct good good_spec(void)
{
	struct good spec = {
		.header = {.magic = ORCH_SPEC_MAGIC,
			   .version = ORCH_SPEC_VERSION,
			   .length = sizeof(spec),
			   .root = ORCH_ROOT_TOOLS,
			   .net = ORCH_NET_NONE,
			   .namespaces = ORCH_PROTECT_REQUIRED,
			   .landlock = ORCH_PROTECT_REQUIRED,
			   .seccomp = ORCH_PROTECT_REQUIRED,
			   .max_processes = 10,
			   .max_open_files = 10,
			   .hostname = 1,
			   .cwd = 9,
			   .mounts_offset = offsetof(struct good, mounts),
			   .mounts_count = 2,
			   .env_offset = offsetof(struct good, env),
			   .env_count = 2,
			   .filter_offset = offsetof(struct good, filter),
			   .filter_count = 2,
			   .strings_offset = offsetof(struct good, strings),
			   .strings_length = sizeof(STRINGS)},
		.mounts = {{15, 23, ORCH_PATH_READ, ORCH_SPEC_BIND}, {15, 26, ORCH_PATH_OWN, ORCH_SPEC_BIND}},
		.env = {31, 35},
		.strings = STRINGS,
	};

	return spec;
}

static struct confine *load(const void *bytes, size_t length, int seals, struct setup_error *error)
{
	int fd = memfd_create("spec", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert(fd >= 0 && write(fd, bytes, length) == (ssize_t)length &&
		  fcntl(fd, F_ADD_SEALS, seals) == 0);
	struct confine *confine = confine_load(fd, error);

	close(fd);
	return confine;
}

START_TEST(a_good_one_is_read)
{
	struct good spec = good_spec();
	struct setup_error error = {0};
	struct confine *confine = load(&spec, sizeof(spec), SEALS, &error);

	ck_assert_msg(confine != NULL, "%s", error.message);
	ck_assert_str_eq(confine_cwd(confine), "/work");
	ck_assert_str_eq(confine_environment(confine)[0], "A=1");
	ck_assert_str_eq(confine_environment(confine)[1], "B=");
	ck_assert_ptr_null(confine_environment(confine)[2]);
	const struct confine_tree *last = &confine->trees[confine->tree_count - 1];

	ck_assert_str_eq(last->host, "/host/a");
	ck_assert_str_eq(last->inner, "/a/b");
	ck_assert_uint_eq(last->access,
			  ORCH_PATH_OWN | ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC);
	confine_free(confine);
	/* What could still be changed after the check is not read. */
	ck_assert_ptr_null(load(&spec, sizeof(spec), F_SEAL_SHRINK | F_SEAL_GROW, &error));
	ck_assert(strstr(error.message, "sealed") && error.code == ORCH_EPROTO);
	ck_assert_ptr_null(load(&spec, sizeof(spec) - 1, SEALS, &error));
	ck_assert_ptr_null(load(&spec, 20, SEALS, &error));
}
END_TEST

#define BAD(member, value)                                                                         \
	do {                                                                                       \
		struct good spec = good_spec();                                                    \
		struct setup_error error = {0};                                                    \
		spec.member = (value);                                                             \
		ck_assert_msg(load(&spec, sizeof(spec), SEALS, &error) == NULL,                    \
			      #member " = " #value);                                               \
		ck_assert(error.code == ORCH_EPROTO && strcmp(error.step, "spec") == 0);           \
	} while (0)

START_TEST(bad_ones_are_refused)
{
	BAD(header.magic[0], 'x');
	BAD(header.version, 1);
	BAD(header.length, 0);
	BAD(header.root, 0);
	BAD(header.net, 3);
	BAD(header.namespaces, 0);
	BAD(header.namespaces, 4);
	BAD(header.namespaces, ORCH_PROTECT_DEGRADABLE); /* and no program for it */
	BAD(header.bare_count, 5000);
	BAD(header.bare_count, 1); /* at offset 0 */
	BAD(header.without, 1);
	BAD(header.landlock_abi, 1);
	BAD(header.landlock, 0);
	BAD(header.seccomp, 4);
	BAD(header.filter_count, 0);
	BAD(header.filter_count, 5000);
	BAD(header.filter_offset, 4);
	BAD(header.filter_offset, offsetof(struct good, filter) + 1);
	BAD(header.mounts_count, 16385);
	BAD(header.mounts_count, UINT32_MAX);
	BAD(header.mounts_offset, sizeof(struct good) - 8);
	BAD(header.mounts_offset, UINT32_MAX - 3);
	BAD(header.env_count, 5000);
	BAD(header.env_offset, 0);
	BAD(header.strings_length, 0);
	BAD(header.strings_length, sizeof(STRINGS) - 3); /* does not end in NUL */
	BAD(header.strings_length, UINT32_MAX);
	BAD(header.hostname, 64);
	BAD(header.cwd, 1); /* not absolute */
	BAD(env[0], 1);	    /* no '=' */
	BAD(env[1], UINT32_MAX);
	BAD(mounts[0].host, 1);
	BAD(mounts[1].inner, 64);
	BAD(mounts[0].access, 0);
	BAD(mounts[0].access, 16);
	BAD(mounts[0].kind, 0);
	BAD(mounts[0].kind, ORCH_SPEC_DENY); /* with a host path and an access */
	BAD(mounts[0].kind, 5);
	BAD(strings[23], 'a'); /* "a/..." */
	BAD(strings[27], '/'); /* "//" */
	BAD(strings[27], '.'); /* "/./b": a '.' alone */
}
END_TEST

/* A denial has neither; and each tree knows which one it lies in. */
START_TEST(denials_are_read)
{
	struct good spec = good_spec();
	struct setup_error error = {0};

	spec.mounts[0] = (struct orch_spec_mount){14, 23, 0, ORCH_SPEC_DENY_FOLDER};
	struct confine *confine = load(&spec, sizeof(spec), SEALS, &error);

	ck_assert_msg(confine != NULL, "%s", error.message);
	const struct confine_tree *last = &confine->trees[confine->tree_count - 1], *denied = last - 1;

	ck_assert(confine_tree_denies(denied) && denied->passed && denied->above == 0);
	ck_assert(!confine_tree_denies(last) && last->above == confine->tree_count - 1);
	confine_free(confine);
	spec.mounts[0].access = ORCH_PATH_READ;
	ck_assert_ptr_null(load(&spec, sizeof(spec), SEALS, &error));
	ck_assert(strstr(error.message, "denial") && error.code == ORCH_EPROTO);
}
END_TEST

/* Every byte with several values, and two at a time at random: read or refused, nothing else. */
START_TEST(damage_is_survived)
{
	static const unsigned char values[] = {0, 1, 0x2f, 0x7f, 0x80, 0xff};
	unsigned refused = 0, read_well = 0;

	srandom(7);
	for (size_t round = 0; round < sizeof(struct good) * sizeof(values) + 20000; round++) {
		struct good spec = good_spec();
		struct setup_error error = {0};
		unsigned char *bytes = (unsigned char *)&spec;

		if (round < sizeof(spec) * sizeof(values)) {
			bytes[round / sizeof(values)] = values[round % sizeof(values)];
		} else {
			bytes[(size_t)random() % sizeof(spec)] = (unsigned char)random();
			bytes[(size_t)random() % sizeof(spec.header)] = (unsigned char)random();
		}
		struct confine *confine = load(&spec, sizeof(spec), SEALS, &error);

		if (!confine) {
			refused++;
			continue;
		}
		/* Everything that is used later is inside. */
		size_t length = strlen(confine_cwd(confine));

		for (const char *const *entry = confine_environment(confine); *entry; entry++)
			length += strlen(*entry);
		for (size_t i = 0; i < confine->tree_count; i++)
			length += strlen(confine->trees[i].host) + strlen(confine->trees[i].inner);
		ck_assert_uint_gt(length, 0);
		confine_free(confine);
		read_well++;
	}
	ck_assert_uint_gt(refused, 1000);
	ck_assert_uint_gt(read_well, 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sandbox specification");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, a_good_one_is_read);
	tcase_add_test(all, bad_ones_are_refused);
	tcase_add_test(all, denials_are_read);
	suite_add_tcase(suite, all);
	TCase *thousands = tcase_create("thousands");

	/* CK_EXCLUDE_TAGS=thousands leaves it out. */
	tcase_set_tags(thousands, "thousands");
	tcase_set_timeout(thousands, 60);
	tcase_add_test(thousands, damage_is_survived);
	suite_add_tcase(suite, thousands);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	return failed ? 1 : 0;
}
