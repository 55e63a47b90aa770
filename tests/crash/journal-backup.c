/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups and restorations that are killed at each call which changes a file, whose calls fail, or
 * for which there is no memory. A backup is whole or not there. A journal is the old one or the
 * restored one, each whole; the old one is never lost; and running it again finishes it.
 */
#include <stdbool.h>
#include <dirent.h>
#include <sys/syscall.h>

#include <orch/permit.h>

#include "journal-kit.h"

/* --- faults
 * ----------------------------------------------------------------------------------------------------
 */

enum fault { NONE, KILL, FAIL_FROM };

static struct {
	enum fault fault;
	int error;
	unsigned at, seen;
	bool no_swap; /* a file system that cannot exchange names */
} faults;

static bool strikes(bool allocation)
{
	if (!faults.fault || allocation != (faults.error == ENOMEM))
		return false;
	unsigned call = ++faults.seen;
	if (faults.fault == KILL && call == faults.at)
		kill(getpid(), SIGKILL);
	if (faults.fault == KILL || call < faults.at)
		return false;
	if (allocation && call != faults.at)
		return false; /* just one */
	errno = faults.error;
	return true;
}

ORCH_API ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset);

ORCH_API ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
	if (strikes(false)) {
		int error = errno;
		syscall(SYS_pwrite64, fd, bytes, length / 2, offset);
		errno = error;
		return -1;
	}
	return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

ORCH_API ssize_t write(int fd, const void *bytes, size_t length)
{
	if (strikes(false))
		return -1;
	return syscall(SYS_write, fd, bytes, length);
}

ORCH_API int fdatasync(int fd)
{
	if (faults.error != ENOSPC && strikes(false))
		return -1;
	return (int)syscall(SYS_fdatasync, fd);
}

ORCH_API int fsync(int fd)
{
	if (faults.error != ENOSPC && strikes(false))
		return -1;
	return (int)syscall(SYS_fsync, fd);
}

ORCH_API int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	if (faults.no_swap && flags == 2) {
		errno = EINVAL;
		return -1;
	}
	if (strikes(false))
		return -1;
	return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

ORCH_API int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* Only kills: what cannot be removed is no loss, and is tested by its being there. */
ORCH_API int unlink(const char *path)
{
	if (faults.fault == KILL)
		strikes(false);
	return (int)syscall(SYS_unlink, path);
}

ORCH_API int ftruncate64(int fd, off_t length);

ORCH_API int ftruncate64(int fd, off_t length)
{
	if (faults.fault == KILL)
		strikes(false);
	return (int)syscall(SYS_ftruncate, fd, length);
}

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *pointer, size_t size);

ORCH_API void *malloc(size_t size)
{
	return strikes(true) ? NULL : __libc_malloc(size);
}

ORCH_API void *calloc(size_t count, size_t size)
{
	return strikes(true) ? NULL : __libc_calloc(count, size);
}

ORCH_API void *realloc(void *pointer, size_t size)
{
	return strikes(true) ? NULL : __libc_realloc(pointer, size);
}

/* --- all files of the journal's folder, taken and put back
 * ------------------------------------------------------------- */

#define FILES_MAX 24

struct folder {
	int count;
	struct {
		char path[400];
		struct file file;
	} files[FILES_MAX];
	struct file anchor;
};

static void each_file(void (*body)(const char *path, void *userdata), void *userdata)
{
	DIR *stream = opendir(folder);
	struct dirent *entry;
	ck_assert_ptr_nonnull(stream);
	while ((entry = readdir(stream))) {
		char path[400];
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		body(path, userdata);
	}
	closedir(stream);
}

static void take_one(const char *path, void *userdata)
{
	struct folder *taken = userdata;
	ck_assert_int_lt(taken->count, FILES_MAX);
	if (strstr(path, ".reserve"))
		return;
	strcpy(taken->files[taken->count].path, path);
	taken->files[taken->count++].file = slurp(path);
}

static void take(struct folder *taken)
{
	memset(taken, 0, sizeof(*taken));
	each_file(take_one, taken);
	taken->anchor = slurp(anchor_path);
}

static void remove_one(const char *path, void *userdata)
{
	(void)userdata;
	unlink(path);
}

static void put(const struct folder *taken)
{
	each_file(remove_one, NULL);
	for (int i = 0; i < taken->count; i++)
		spill(taken->files[i].path, &taken->files[i].file);
	spill(anchor_path, &taken->anchor);
}

/* --- the situation
 * --------------------------------------------------------------------------------------------- */

static char backup_path[160];
static struct folder start;
static struct answer {
	int32_t code;
	char message[300];
	unsigned calls;
	bool works; /* the journal's handle, afterwards */
} * answer;

static void record(orch_journal *journal, const char *key)
{
	OK(orch_journal_record(journal, "test.record", key, "payload", 7, NULL, &error));
}

/* The journal of before: more than the backup knows, part of it in the log. */
static void live_and_die(void *userdata)
{
	struct orch_permit_opts opts;
	orch_permit_opts_init(&opts, sizeof(opts));
	opts.name = "once";
	opts.kind = "test.action";
	orch_journal *journal = open_anchored();
	fill(journal);
	OK(orch_permit_issue(journal, &opts, NULL, &error));
	OK(orch_journal_backup(journal, backup_path, NULL, &error));
	record(journal, "later");
	if (userdata)
		kill(getpid(), SIGKILL);
	orch_journal_unref(journal);
}

static void setup(void)
{
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm"; /* hundreds of runs, none of which loses power */
	kit_setup();
	snprintf(backup_path, sizeof(backup_path), "%s/b", anchor_folder);
	answer = mmap(NULL, sizeof(*answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(answer, MAP_FAILED);
}

static void begin_killed(void)
{
	ck_assert_int_eq(WTERMSIG(in_child(live_and_die, "dies")), SIGKILL);
	take(&start);
}

static int32_t restore(orch_error **reterr)
{
	struct orch_restore_opts opts;
	orch_restore_opts_init(&opts, sizeof(opts));
	opts.backup_path = backup_path;
	opts.path = journal_path;
	opts.flags = ORCH_RESTORE_REPLACE;
	opts.anchor_path = anchor_path;
	orch_restoration *restoration = NULL;
	int32_t r = orch_journal_restore(&opts, &restoration, reterr);
	ck_assert_int_eq(r == 0, restoration != NULL);
	orch_restoration_unref(restoration);
	return r;
}

static struct {
	enum fault fault;
	int error;
	unsigned at;
} plan;

static void arm(void)
{
	faults.fault = plan.fault;
	faults.error = plan.error;
	faults.at = plan.at;
	faults.seen = 0;
}

static void tell(orch_error *error)
{
	ck_assert_int_eq(orch_error_code(error), answer->code);
	snprintf(answer->message, sizeof(answer->message), "%s", orch_error_message(error));
	orch_error_free(error);
}

static void restore_in_child(void *userdata)
{
	struct orch_restore_opts opts;
	orch_restoration *restoration = NULL;
	(void)userdata;
	orch_restore_opts_init(&opts, sizeof(opts));
	opts.backup_path = backup_path;
	opts.path = journal_path;
	opts.flags = ORCH_RESTORE_REPLACE;
	opts.anchor_path = anchor_path;
	arm();
	orch_error *error = NULL;
	answer->code = orch_journal_restore(&opts, &restoration, &error);
	answer->calls = faults.seen;
	faults.fault = NONE;
	tell(error);
	orch_restoration_unref(restoration);
}

/* True: it was killed. */
static bool strike(void (*body)(void *), enum fault fault, int error, unsigned at)
{
	plan.fault = fault;
	plan.error = error;
	plan.at = at;
	memset(answer, 0, sizeof(*answer));
	int status = in_child(body, NULL);
	if (fault == KILL && WIFSIGNALED(status))
		ck_assert_int_eq(WTERMSIG(status), SIGKILL);
	else
		ck_assert_int_eq(status, 0);
	return status != 0;
}

static bool has(orch_journal *journal, const char *key)
{
	orch_action *action = NULL;
	int32_t r = orch_journal_find(journal, key, &action, NULL);
	ck_assert(r == 0 || r == ORCH_ENOENT);
	orch_action_unref(action);
	return r == 0;
}

static uint32_t permit_state(orch_journal *journal)
{
	orch_permit *permit = NULL;
	OK(orch_permit_find(journal, "once", &permit, &error));
	uint32_t state = orch_permit_state(permit);
	orch_permit_unref(permit);
	return state;
}

/* The epoch: of the old one or of a restored one, each whole. */
static uint64_t whole(orch_journal *journal)
{
	uint64_t epoch = orch_journal_epoch(journal);
	OK(orch_journal_verify(journal, NULL, &error));
	ck_assert_uint_eq(state_of(journal, "done"), ORCH_ACTION_CONFIRMED);
	ck_assert_uint_eq(state_of(journal, "open"),
			  epoch == 1 ? ORCH_ACTION_DISPATCHED : ORCH_ACTION_UNKNOWN);
	ck_assert_uint_eq(permit_state(journal),
			  epoch == 1 ? ORCH_PERMIT_ISSUED : ORCH_PERMIT_VOID);
	ck_assert(has(journal, "later") == (epoch == 1));
	ck_assert_uint_eq(orch_journal_generation(journal) >> 32, epoch - 1);
	return epoch;
}

/* As whoever goes on with it finds it. 0: refused, because its name is missing. */
static uint64_t found(void)
{
	orch_journal *journal = NULL;
	bool missing = access(journal_path, F_OK) != 0;
	orch_error *told = NULL;
	int32_t r = kit_open_with(&journal, 0, anchor_path, NULL, NULL, &told);
	if (missing) {
		orch_error_free(told);
		ck_assert_int_eq(r, ORCH_ECORRUPT);
		ck_assert_int_ne(access(journal_path, F_OK), 0);
		return 0;
	}
	ck_assert_msg(r == 0, "it cannot be opened: %s, after %s: %s", orch_error_message(told),
		      orch_code_name(answer->code), answer->message);
	orch_error_free(told);
	uint64_t epoch = whole(journal);
	orch_journal_unref(journal);
	return epoch;
}

static void look_for_old(const char *path, void *userdata)
{
	struct orch_journal_opts opts;
	orch_journal *journal = NULL;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = path;
	opts.flags = ORCH_JOURNAL_READ_ONLY;
	if (!strstr(path, ".replaced-") || orch_journal_open(&opts, &journal, NULL) < 0)
		return;
	if (orch_journal_epoch(journal) == 1) {
		whole(journal);
		*(bool *)userdata = true;
	}
	orch_journal_unref(journal);
}

static void finishes(uint64_t at_least)
{
	bool old = false;
	OK(restore(&error));
	ck_assert_uint_ge(found(), at_least);
	each_file(look_for_old, &old);
	ck_assert_msg(old, "the replaced journal is lost");
}

/* --- restorations
 * ---------------------------------------------------------------------------------------------- */

static void kill_each(bool may_be_missing)
{
	unsigned at = 1, old = 0, made = 0, missing = 0;
	begin_killed();
	for (;; at++) {
		struct folder after;
		put(&start);
		if (!strike(restore_in_child, KILL, EIO, at))
			break;
		take(&after);
		uint64_t epoch = found();
		*(epoch == 1 ? &old : epoch ? &made : &missing) += 1;
		/* And again, from there. */
		put(&after);
		finishes(2);
		/* And killed again on the way. */
		put(&after);
		strike(restore_in_child, KILL, EIO, 1 + at * 7 % 40);
		finishes(2);
	}
	ck_assert_int_eq(answer->code, 0);
	ck_assert_uint_eq(found(), 2);
	fprintf(stderr, "killed at %u calls: %u the old one, %u the restored one, %u neither\n",
		at - 1, old, made, missing);
	ck_assert_uint_gt(old, 20);
	ck_assert_uint_gt(made, 2);
	ck_assert(may_be_missing ? missing > 0 : missing == 0);
}

START_TEST(a_restoration_killed_at_each_call)
{
	kill_each(false);
}
END_TEST

START_TEST(a_restoration_killed_where_names_cannot_be_exchanged)
{
	faults.no_swap = true;
	kill_each(true);
}
END_TEST

static void fail_each(int error, unsigned step)
{
	unsigned failed = 0, made = 0, at = 1;
	begin_killed();
	strike(restore_in_child, FAIL_FROM, error, UINT32_MAX);
	unsigned calls = answer->calls;
	ck_assert_int_eq(answer->code, 0);
	for (; at <= calls; at += step) {
		struct folder after;
		put(&start);
		strike(restore_in_child, FAIL_FROM, error, at);
		ck_assert(answer->code <= 0);
		failed += answer->code < 0;
		take(&after);
		uint64_t epoch = found();
		ck_assert_uint_ne(epoch, 0);
		ck_assert(answer->code < 0 || epoch == 2);
		made += epoch == 2;
		put(&after);
		finishes(2);
	}
	fprintf(stderr, "%s at %u calls: %u failed, %u restored\n", strerror(error), calls, failed,
		made);
	ck_assert_uint_gt(failed, 20);
}

START_TEST(a_restoration_whose_calls_fail)
{
	fail_each(EIO, 1);
}
END_TEST

START_TEST(a_restoration_on_a_full_disk)
{
	fail_each(ENOSPC, 1);
}
END_TEST

START_TEST(a_restoration_without_memory)
{
	fail_each(ENOMEM, getenv("ORCH_TEST_ALL") ? 1 : 11);
}
END_TEST

/* --- backups
 * -------------------------------------------------------------------------------------------------------
 */

static void back_up_in_child(void *userdata)
{
	(void)userdata;
	orch_journal *journal = open_anchored();
	arm();
	orch_error *error = NULL;
	answer->code = orch_journal_backup(journal, backup_path, NULL, &error);
	answer->calls = faults.seen;
	faults.fault = NONE;
	tell(error);
	answer->works = orch_journal_record(journal, "test.record", "still works", NULL, 0, NULL,
					    NULL) == 0;
	orch_journal_unref(journal);
}

static bool backup_is_whole(void)
{
	struct orch_journal_opts opts;
	orch_journal *journal = NULL;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = backup_path;
	opts.flags = ORCH_JOURNAL_READ_ONLY;
	if (access(backup_path, F_OK) != 0)
		return false;
	OK(orch_journal_open(&opts, &journal, &error));
	whole(journal);
	orch_journal_unref(journal);
	return true;
}

/* What a struck one left: the journal as it was, and the backup, or none and the next one makes it.
 */
static bool judge_backup(void)
{
	orch_journal *journal = open_anchored();
	whole(journal);
	bool there = backup_is_whole();
	if (there)
		FAILS(ORCH_EEXIST, orch_journal_backup(journal, backup_path, NULL, &error));
	else
		OK(orch_journal_backup(journal, backup_path, NULL, &error));
	ck_assert(backup_is_whole());
	orch_journal_unref(journal);
	return there;
}

START_TEST(a_backup_killed_at_each_call)
{
	unsigned at = 1, there = 0;
	begin_killed();
	for (;; at++) {
		put(&start);
		unlink(backup_path);
		if (!strike(back_up_in_child, KILL, EIO, at))
			break;
		there += judge_backup();
	}
	fprintf(stderr, "killed at %u calls: the backup was there %u times\n", at - 1, there);
	ck_assert_uint_gt(at, 20);
	ck_assert_uint_gt(there, 0);
	ck_assert_uint_lt(there, at / 2);
	ck_assert_int_eq(answer->code, 0);
}
END_TEST

static void fail_each_backup(int error, unsigned step)
{
	char remains[200];
	unsigned failed = 0;
	begin_killed();
	unlink(backup_path);
	strike(back_up_in_child, FAIL_FROM, error, UINT32_MAX);
	unsigned calls = answer->calls;
	for (unsigned at = 1; at <= calls; at += step) {
		put(&start);
		unlink(backup_path);
		strike(back_up_in_child, FAIL_FROM, error, at);
		/* It is the backup that failed, and not the journal. */
		ck_assert(answer->works);
		failed += answer->code < 0;
		ck_assert_int_eq(answer->code == 0, access(backup_path, F_OK) == 0);
		if (answer->code < 0)
			ck_assert_msg(answer->code == ORCH_ESYS || answer->code == ORCH_ENOSPC ||
					      answer->code == ORCH_ENOMEM,
				      "at %u %s: %s", at, orch_code_name(answer->code),
				      answer->message);
		static const char *const tails[] = {".new", ".new-journal", ".new-wal",
						    ".new.lock"};
		for (size_t i = 0; error != ENOMEM && i < sizeof(tails) / sizeof(tails[0]); i++) {
			snprintf(remains, sizeof(remains), "%s%s", backup_path, tails[i]);
			ck_assert_msg(access(remains, F_OK) != 0, "%s is left", remains);
		}
		judge_backup();
	}
	fprintf(stderr, "%s at %u calls: %u failed\n", strerror(error), calls, failed);
	ck_assert_uint_gt(failed, 10);
}

START_TEST(a_backup_whose_calls_fail)
{
	fail_each_backup(EIO, 1);
}
END_TEST

START_TEST(a_backup_on_a_full_disk)
{
	fail_each_backup(ENOSPC, 1);
}
END_TEST

START_TEST(a_backup_without_memory)
{
	fail_each_backup(ENOMEM, getenv("ORCH_TEST_ALL") ? 1 : 7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-backup");
	TCase *tests = tcase_create("backup");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 240);
	tcase_add_test(tests, a_restoration_killed_at_each_call);
	tcase_add_test(tests, a_restoration_killed_where_names_cannot_be_exchanged);
	tcase_add_test(tests, a_restoration_whose_calls_fail);
	tcase_add_test(tests, a_restoration_on_a_full_disk);
	tcase_add_test(tests, a_restoration_without_memory);
	tcase_add_test(tests, a_backup_killed_at_each_call);
	tcase_add_test(tests, a_backup_whose_calls_fail);
	tcase_add_test(tests, a_backup_on_a_full_disk);
	tcase_add_test(tests, a_backup_without_memory);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
