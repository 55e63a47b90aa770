/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the journal acknowledged survives: a coordinator killed at each record and at each write,
 * each write and sync failing, each allocation failing, a full disk. One scripted history runs in a
 * child; what it was told is in memory that the judge shares.
 */
#include <sched.h>
#include <sys/mount.h>

#include "journal-strike.h"

/* --- the history
 * -------------------------------------------------------------------------------------------- */

enum verb { BEGIN, RECORD, DISPATCH, OBSERVE, CONFIRM, UNKNOWN, FAIL };

/* Each step is one commit. */
static const struct step {
	enum verb verb;
	const char *key;
	uint32_t state; /* after it */
	uint32_t attempt;
} steps[] = {
	{BEGIN, "a", ORCH_ACTION_INTENT, 1},	    {DISPATCH, "a", ORCH_ACTION_DISPATCHED, 1},
	{OBSERVE, "a", ORCH_ACTION_OBSERVED, 1},    {BEGIN, "b", ORCH_ACTION_INTENT, 1},
	{CONFIRM, "a", ORCH_ACTION_CONFIRMED, 1},   {DISPATCH, "b", ORCH_ACTION_DISPATCHED, 1},
	{RECORD, "c", ORCH_ACTION_CONFIRMED, 1},    {UNKNOWN, "b", ORCH_ACTION_UNKNOWN, 1},
	{BEGIN, "d", ORCH_ACTION_INTENT, 1},	    {OBSERVE, "b", ORCH_ACTION_OBSERVED, 1},
	{DISPATCH, "d", ORCH_ACTION_DISPATCHED, 1}, {FAIL, "d", ORCH_ACTION_FAILED, 1},
	{BEGIN, "d", ORCH_ACTION_INTENT, 2},	    {DISPATCH, "d", ORCH_ACTION_DISPATCHED, 2},
	{OBSERVE, "d", ORCH_ACTION_OBSERVED, 2},    {BEGIN, "e", ORCH_ACTION_INTENT, 1},
	{DISPATCH, "e", ORCH_ACTION_DISPATCHED, 1}, {BEGIN, "f", ORCH_ACTION_INTENT, 1},
};
#define STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

static struct shared {
	int opened;	  /* open returned */
	int acknowledged; /* steps that returned 0 */
	int32_t code;	  /* of the call that did not */
	int32_t told;	  /* the same, from its orch_error */
	char message[200];
	uint64_t last_record;
	unsigned calls; /* that could have been struck */
	int effects[8]; /* the outside, by key */
} * shared;

static char big_result[30000];

static int32_t play(orch_journal *journal, const struct step *step, orch_error **error)
{
	orch_action *action = NULL;
	uint32_t outcome;
	int32_t r;
	if (step->verb == RECORD)
		return orch_journal_record(journal, "test.record", step->key, "x", 1, NULL, error);
	if (step->verb == BEGIN)
		r = kit_begin(journal, step->key, 0, "request", &outcome, &action, error);
	else
		r = orch_journal_find(journal, step->key, &action, error);
	if (r == 0 && step->verb == OBSERVE)
		r = orch_action_observe(action, big_result, sizeof(big_result), error);
	else if (r == 0 && step->verb != BEGIN)
		r = move(action, step->state, error);
	orch_action_unref(action);
	return r;
}

static void note_record(void *userdata, uint64_t sequence)
{
	shared->last_record = sequence;
	if (sequence == *(uint64_t *)userdata)
		kill(getpid(), SIGKILL);
}

static void history(void *userdata)
{
	orch_journal *journal = NULL;
	orch_error *error = NULL;
	faults.armed = faults.at > 0;
	int32_t r = kit_open_with(&journal, 0, anchor_path, note_record, userdata, &error);
	shared->opened = r == 0;
	for (int i = 0; r == 0 && i < STEPS; i++) {
		r = play(journal, &steps[i], &error);
		if (r == 0)
			shared->acknowledged = i + 1;
	}
	shared->code = r;
	shared->told = orch_error_code(error);
	snprintf(shared->message, sizeof(shared->message), "%s", orch_error_message(error));
	orch_error_free(error);
	orch_journal_unref(journal);
	shared->calls = faults.seen;
}

static int run_history(uint64_t kill_at)
{
	memset(shared, 0, sizeof(*shared));
	return in_child(history, &kill_at);
}

/* The file tells exactly the first `count` steps. */
static bool tells(orch_journal *journal, int count)
{
	for (int i = 0; i < STEPS; i++) {
		const struct step *last = NULL;
		for (int j = 0; j < count; j++)
			if (strcmp(steps[j].key, steps[i].key) == 0)
				last = &steps[j];
		orch_action *action = NULL;
		int32_t r = orch_journal_find(journal, steps[i].key, &action, NULL);
		bool same = last ? r == 0 && orch_action_state(action) == last->state &&
					    orch_action_attempt(action) == last->attempt
				 : r == ORCH_ENOENT;
		orch_action_unref(action);
		if (!same)
			return false;
	}
	return true;
}

/* How many steps the file tells; it must be a whole number of them, and sound. */
static int judge(int at_least, int at_most, const char *what, unsigned at)
{
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	int count = at_least;
	while (count <= at_most && !tells(journal, count))
		count++;
	ck_assert_msg(count <= at_most,
		      "%s at %u: acknowledged %d steps, and the file tells others", what, at,
		      at_least);
	/* And it can be worked with. */
	OK(kit_recover(journal, NULL, NULL, NULL, NULL, &error));
	OK(orch_journal_record(journal, "test.record", "after", NULL, 0, NULL, &error));
	orch_journal_unref(journal);
	return count;
}

static void renew(void)
{
	kit_teardown();
	kit_setup();
}

static void setup(void)
{
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm"; /* thousands of runs, none of which loses power */
	kit_setup();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	memset(big_result, 'r', sizeof(big_result));
}

/* --- tests
 * ----------------------------------------------------------------------------------------------------
 */

START_TEST(killed_at_each_record)
{
	for (uint64_t at = 1; at <= STEPS + 1u; at++) {
		ck_assert_int_eq(WTERMSIG(run_history(at)), SIGKILL);
		ck_assert_uint_eq(shared->last_record, at);
		ck_assert_int_eq(shared->acknowledged, at > 2 ? (int)at - 2 : 0);
		/* The record was durable when on_record was called. */
		judge((int)at - 1, (int)at - 1, "killed at record", (unsigned)at);
		renew();
	}
	ck_assert_int_eq(run_history(UINT64_MAX), 0);
	judge(STEPS, STEPS, "not killed", 0);
}
END_TEST

START_TEST(killed_at_each_write)
{
	unsigned at = 1;
	for (;; at++) {
		faults.fault = KILL;
		faults.error = EIO;
		faults.at = at;
		int status = run_history(UINT64_MAX);
		if (status == 0)
			break;
		ck_assert_int_eq(WTERMSIG(status), SIGKILL);
		judge(shared->acknowledged, shared->acknowledged + 1, "killed at write", at);
		renew();
	}
	ck_assert_int_eq(shared->acknowledged, STEPS);
	ck_assert_uint_gt(at, 5 * STEPS);
}
END_TEST

/* Every call that fails says so, nothing that succeeded is lost, and after a failure nothing lies.
 */
static void strike_each(enum fault fault, int error, int32_t code, int32_t other)
{
	unsigned at = 1, failed = 0;
	for (;; at++) {
		faults.fault = fault;
		faults.error = error;
		faults.at = at;
		ck_assert_int_eq(run_history(UINT64_MAX), 0);
		ck_assert_int_eq(shared->told, shared->code);
		if (shared->calls < at)
			break;
		if (shared->code == 0)
			ck_assert_int_eq(shared->acknowledged, STEPS);
		else
			ck_assert_msg(shared->code == code || shared->code == other,
				      "%s at call %u: %s: %s", strerror(error), at,
				      orch_code_name(shared->code), shared->message);
		failed += shared->code != 0;
		if (access(journal_path, F_OK) == 0)
			judge(shared->acknowledged, shared->acknowledged + 1, strerror(error), at);
		else
			ck_assert(!shared->opened);
		renew();
	}
	ck_assert_int_eq(shared->acknowledged, STEPS);
	ck_assert_uint_gt(failed, STEPS);
}

START_TEST(each_write_and_sync_fails_once)
{
	strike_each(FAIL_ONCE, EIO, ORCH_EPOISONED, ORCH_ESYS);
}
END_TEST

START_TEST(each_write_and_sync_fails_from_here_on)
{
	strike_each(FAIL_FROM, EIO, ORCH_EPOISONED, ORCH_ESYS);
}
END_TEST

START_TEST(each_write_finds_the_disk_full)
{
	strike_each(FAIL_FROM, ENOSPC, ORCH_ENOSPC, ORCH_EPOISONED);
}
END_TEST

START_TEST(each_allocation_fails)
{
	strike_each(FAIL_ONCE, ENOMEM, ORCH_ENOMEM, ORCH_EPOISONED);
}
END_TEST

/* synchronous=FULL took: no record is acknowledged without a sync of its own. */
START_TEST(each_record_is_synced)
{
	orch_journal *journal = open_journal();
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	for (uint32_t state = ORCH_ACTION_DISPATCHED; state <= ORCH_ACTION_CONFIRMED; state++) {
		unsigned syncs = faults.syncs;
		OK(move(action, state, &error));
		ck_assert_uint_gt(faults.syncs, syncs);
	}
	unsigned syncs = faults.syncs;
	orch_action_unref(begin(journal, "k", 0, ORCH_BEGIN_REPLAY));
	ck_assert_uint_eq(faults.syncs, syncs); /* it wrote nothing */
	orch_action_unref(action);
	orch_journal_unref(journal);
}
END_TEST

/* Between the look at the files and the end of the commit: what was synced has no name any more. */
START_TEST(files_taken_away_within_a_commit)
{
	const char *const paths[] = {journal_path, wal_path, lock_path};
	for (int i = 0; i < 3; i++) {
		orch_journal *journal = open_journal();
		orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
		faults.removed = paths[i];
		FAILS(ORCH_EPOISONED, orch_action_dispatch(action, &error));
		faults.removed = NULL;
		ck_assert_int_ne(access(paths[i], F_OK), 0);
		ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_INTENT);
		orch_action_unref(action);
		orch_journal_unref(journal);
		renew();
	}
}
END_TEST

/* After a failed sync nothing is tried again on the same handle: what comes back from a retry is
 * worth nothing. */
START_TEST(a_failed_sync_poisons)
{
	orch_journal *journal = open_anchored();
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_DISPATCHED);
	orch_error *failed = NULL;
	faults.fault = FAIL_FROM;
	faults.error = EIO;
	faults.at = 1;
	faults.armed = true;
	int32_t r = orch_action_observe(action, "r", 1, &failed);
	faults.armed = false;
	ck_assert_int_eq(r, ORCH_EPOISONED);
	ck_assert_int_eq(orch_error_errno(failed), EIO);
	orch_error_free(failed);
	faults.armed = true;
	unsigned seen = faults.seen;
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_DISPATCHED);
	FAILS(ORCH_EPOISONED, orch_action_observe(action, "r", 1, &error));
	FAILS(ORCH_EPOISONED, orch_journal_verify(journal, NULL, &error));
	FAILS(ORCH_EPOISONED, kit_recover(journal, NULL, NULL, NULL, NULL, &error));
	FAILS(ORCH_EPOISONED,
	      orch_journal_each(journal, NULL, (orch_action_fn)abort, NULL, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
	ck_assert_uint_eq(faults.seen, seen);
	faults.armed = false;
	journal = open_anchored();
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* The log is carried over into a database that cannot be written: the record counts, and it is the
 * last. */
START_TEST(a_failed_checkpoint_poisons_after_the_record)
{
	orch_journal *journal = open_anchored();
	struct stat status;
	ck_assert_int_eq(stat(journal_path, &status), 0);
	faults.broken = status.st_ino;
	int recorded = 0;
	char key[16];
	int32_t r;
	do {
		snprintf(key, sizeof(key), "%d", recorded);
		r = orch_journal_record(journal, "k", key, NULL, 0, NULL, NULL);
		recorded += r == 0;
	} while (r == 0 && recorded < 1000);
	ck_assert_int_eq(r, ORCH_EPOISONED);
	ck_assert_int_gt(recorded, 100);
	orch_journal_unref(journal);
	faults.broken = 0;
	journal = open_anchored();
	OK(orch_journal_verify(journal, NULL, &error));
	snprintf(key, sizeof(key), "%d", recorded - 1);
	ck_assert_uint_eq(state_of(journal, key), ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
}
END_TEST

START_TEST(an_anchor_that_cannot_be_moved_poisons_after_the_record)
{
	orch_journal *journal = open_anchored();
	struct stat status;
	ck_assert_int_eq(stat(anchor_path, &status), 0);
	faults.broken = status.st_ino;
	OK(orch_journal_record(journal, "k", "1", NULL, 0, NULL, &error));
	FAILS(ORCH_EPOISONED, orch_journal_record(journal, "k", "2", NULL, 0, NULL, &error));
	orch_journal_unref(journal);
	faults.broken = 0;
	journal = open_anchored();
	ck_assert_uint_eq(state_of(journal, "1"), ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
}
END_TEST

/* --- a coordinator that works, is killed, and works on
 * ---------------------------------------------------- */

static const char *const work_keys[] = {"w0", "w1", "w2", "w3"};

static void truthful_probe(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	(void)userdata;
	int index = orch_action_key(action)[1] - '0';
	orch_probe_reply_answer(
		reply, shared->effects[index] ? ORCH_OUTCOME_APPLIED : ORCH_OUTCOME_NOT_APPLIED,
		"probed", 6);
}

static void work(void *userdata)
{
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, anchor_path, note_record, userdata, &error));
	OK(kit_recover(journal, NULL, truthful_probe, NULL, NULL, &error));
	for (int i = 0; i < 4; i++) {
		uint32_t outcome;
		orch_action *action = NULL;
		OK(kit_begin(journal, work_keys[i], i % 2 ? ORCH_POLICY_PROBE_FIRST : 0, "request",
			     &outcome, &action, &error));
		ck_assert(outcome == ORCH_BEGIN_FRESH || outcome == ORCH_BEGIN_REPLAY);
		if (outcome == ORCH_BEGIN_FRESH) {
			OK(orch_action_dispatch(action, &error));
			shared->effects[i]++;
			OK(orch_action_observe(action, "r", 1, &error));
		}
		if (orch_action_state(action) == ORCH_ACTION_OBSERVED)
			OK(orch_action_confirm(action, &error));
		ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_CONFIRMED);
		orch_action_unref(action);
	}
	shared->acknowledged = 1;
	orch_journal_unref(journal);
}

/* The n-th record of one run, then the m-th of the next, which is inside its recovery for the first
 * few m. */
START_TEST(killed_twice_and_never_done_twice)
{
	unsigned kills = 0;
	for (uint64_t first = 1;; first++) {
		for (uint64_t second = 1;; second++) {
			memset(shared, 0, sizeof(*shared));
			uint64_t at = first;
			bool first_died = in_child(work, &at) != 0;
			uint64_t recorded = shared->last_record;
			at = recorded + second;
			bool second_died = !first_died ? false : in_child(work, &at) != 0;
			kills += first_died + second_died;
			at = UINT64_MAX;
			ck_assert_int_eq(in_child(work, &at), 0);
			for (int i = 0; i < 4; i++)
				ck_assert_msg(shared->effects[i] == 1,
					      "kills at %d and %d: %s done %d times", (int)first,
					      (int)second, work_keys[i], shared->effects[i]);
			orch_journal *journal = open_anchored();
			OK(orch_journal_verify(journal, NULL, &error));
			orch_journal_unref(journal);
			renew();
			if (!first_died) {
				ck_assert_uint_gt(kills, 150);
				return;
			}
			if (!second_died)
				break;
		}
	}
}
END_TEST

/* --- a real full disk
 * ----------------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void fill_disk(const char *path)
{
	static char block[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	ck_assert_int_eq(errno, ENOSPC);
	close(fd);
}

static void on_a_small_disk(void *userdata)
{
	(void)userdata;
	static char result[300000];
	char filler[100], map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();
	/* A mount namespace of our own: the disk is gone with this process. */
	ck_assert_int_eq(unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS), 0);
	if (uid) {
		write_file("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		write_file("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		write_file("/proc/self/gid_map", map);
	}
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("tmpfs", folder, "tmpfs", 0, "size=3m"), 0);
	snprintf(filler, sizeof(filler), "%s/filler", folder);

	orch_journal *journal = open_journal();
	orch_action *in_flight[4];
	for (int i = 0; i < 4; i++) {
		char key[8];
		snprintf(key, sizeof(key), "k%d", i);
		in_flight[i] = make(journal, key, 0, ORCH_ACTION_DISPATCHED);
	}
	fill_disk(filler);
	uint32_t outcome = 77;
	orch_action *action = NULL, *intent = NULL;
	uint64_t sequence = orch_journal_sequence(journal);
	FAILS(ORCH_ENOSPC, kit_begin(journal, "new", 0, "request", &outcome, &action, &error));
	FAILS(ORCH_ENOSPC, orch_journal_record(journal, "k", "new", NULL, 0, NULL, &error));
	ck_assert_ptr_null(action);
	ck_assert_uint_eq(orch_journal_sequence(journal), sequence);
	FAILS(ORCH_ENOENT, orch_journal_find(journal, "new", &action, &error));

	/* What happened is written down all the same: whole while the headroom lasts, then by
	 * digest. */
	memset(result, 'r', sizeof(result));
	size_t length = 0;
	for (int i = 0; i < 4; i++) {
		OK(orch_action_observe(in_flight[i], result, sizeof(result), &error));
		fill_disk(filler);
	}
	for (int i = 0; i < 4; i++) {
		const char *told = orch_action_result(in_flight[i], &length);
		ck_assert(i < 2 ? length == sizeof(result) : strncmp(told, "sha256:", 7) == 0);
	}
	FAILS(ORCH_ENOSPC, kit_begin(journal, "new", 0, "request", &outcome, &action, &error));
	OK(orch_journal_verify(journal, NULL, &error));
	for (int i = 0; i < 4; i++)
		orch_action_unref(in_flight[i]);
	orch_journal_unref(journal);

	/* A restart on the full disk, and then room again. */
	journal = open_journal();
	for (int i = 0; i < 4; i++) {
		char key[8];
		snprintf(key, sizeof(key), "k%d", i);
		ck_assert_uint_eq(state_of(journal, key), ORCH_ACTION_OBSERVED);
	}
	OK(orch_journal_verify(journal, NULL, &error));
	unlink(filler);
	intent = begin(journal, "new", 0, ORCH_BEGIN_FRESH);
	OK(orch_action_dispatch(intent, &error));
	orch_action_unref(intent);
	orch_journal_unref(journal);
}

START_TEST(a_full_disk_loses_no_observation)
{
	int status = in_child(on_a_small_disk, NULL);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-faults");
	TCase *tests = tcase_create("faults");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 240);
	tcase_add_test(tests, killed_at_each_record);
	tcase_add_test(tests, killed_at_each_write);
	tcase_add_test(tests, each_write_and_sync_fails_once);
	tcase_add_test(tests, each_write_and_sync_fails_from_here_on);
	tcase_add_test(tests, each_write_finds_the_disk_full);
	tcase_add_test(tests, each_allocation_fails);
	tcase_add_test(tests, each_record_is_synced);
	tcase_add_test(tests, files_taken_away_within_a_commit);
	tcase_add_test(tests, a_failed_sync_poisons);
	tcase_add_test(tests, a_failed_checkpoint_poisons_after_the_record);
	tcase_add_test(tests, an_anchor_that_cannot_be_moved_poisons_after_the_record);
	tcase_add_test(tests, killed_twice_and_never_done_twice);
	tcase_add_test(tests, a_full_disk_loses_no_observation);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
