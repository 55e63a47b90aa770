/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pruning killed at each of its writes and syncs, and with each of them failing; pruning, queries
 * and exports with each allocation failing. Afterwards the journal is sound, whole actions are
 * pruned or not, and running it again ends it.
 */
#include <malloc.h>

#include "journal-strike.h"

/* More than one commit: 256 in each. */
#define ACTIONS 300
#define OPEN 20

static struct shared {
	int32_t code, told;
	uint64_t actions, bytes;
	unsigned calls; /* that could have been struck */
	uint64_t lines;
	int finished;
	int grown; /* times that memory was not given back */
} * shared;

static struct file filled, filled_anchor;

/* The same journal for each try: it takes longer to make than to prune. */
static void setup(void)
{
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm";
	kit_setup();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	orch_journal *journal = open_anchored();
	for (int i = 0; i < ACTIONS; i++) {
		char key[16], payload[500];
		snprintf(key, sizeof(key), "%d", i);
		memset(payload, 'p', sizeof(payload));
		OK(orch_journal_record(journal, "test.record", key, payload, sizeof(payload), NULL,
				       &error));
	}
	for (int i = 0; i < OPEN; i++) {
		char key[16];
		snprintf(key, sizeof(key), "open %d", i);
		orch_action_unref(
			make(journal, key, 0, i % 2 ? ORCH_ACTION_DISPATCHED : ORCH_ACTION_FAILED));
	}
	orch_journal_unref(journal);
	filled = slurp(journal_path);
	filled_anchor = slurp(anchor_path);
}

static void renew(void)
{
	unlink(wal_path);
	spill(journal_path, &filled);
	spill(anchor_path, &filled_anchor);
	memset(shared, 0, sizeof(*shared));
}

static void prune(void *userdata)
{
	orch_journal *journal = open_anchored();
	orch_error *error = NULL;
	(void)userdata;
	shared->actions = shared->bytes = 77;
	faults.armed = true;
	shared->code =
		orch_journal_prune(journal, INT64_MAX, &shared->actions, &shared->bytes, &error);
	shared->calls = faults.seen;
	faults.armed = false;
	shared->told = orch_error_code(error);
	orch_error_free(error);
	shared->finished = 1;
	orch_journal_unref(journal);
}

struct seen {
	unsigned closed, pruned, open;
};

static int32_t look(void *userdata, orch_action *action)
{
	struct seen *seen = userdata;
	size_t length = 0;
	const char *request = orch_action_request(action, &length);
	bool pruned = orch_action_pruned(action);
	bool closed = orch_action_state(action) != ORCH_ACTION_DISPATCHED;
	seen->closed += closed;
	seen->open += !closed;
	seen->pruned += pruned;
	ck_assert(closed || !pruned);
	/* Whole, or by digest: never half. */
	ck_assert_int_eq(strncmp(request, "sha256:", 7) == 0, pruned);
	const char *result = orch_action_result(action, &length);
	if (result)
		ck_assert_int_eq(strncmp(result, "sha256:", 7) == 0, pruned);
	return 0;
}

/* How many are pruned; sound, and what is left can be done. */
static unsigned judge(unsigned at)
{
	orch_journal *journal = open_anchored();
	struct seen before = {0}, after = {0};
	uint64_t actions = 0;
	OK(orch_journal_verify(journal, NULL, &error));
	OK(orch_journal_each(journal, NULL, look, &before, &error));
	ck_assert_uint_eq(before.closed, ACTIONS + OPEN / 2);
	ck_assert_uint_eq(before.open, OPEN / 2);
	/* Commits are whole. */
	ck_assert_msg(before.pruned == 0 || before.pruned == 256 || before.pruned == before.closed,
		      "at %u: %u are pruned", at, before.pruned);
	OK(orch_journal_prune(journal, INT64_MAX, &actions, NULL, &error));
	ck_assert_uint_eq(actions, before.closed - before.pruned);
	OK(orch_journal_verify(journal, NULL, &error));
	OK(orch_journal_each(journal, NULL, look, &after, &error));
	ck_assert_uint_eq(after.pruned, after.closed);
	/* The marks are there. */
	int32_t fresh = 77;
	char payload[500];
	memset(payload, 'p', sizeof(payload));
	OK(orch_journal_record(journal, "test.record", "0", payload, sizeof(payload), &fresh,
			       &error));
	ck_assert_int_eq(fresh, 0);
	orch_action_unref(begin(journal, "open 0", 0, ORCH_BEGIN_FRESH));
	orch_journal_unref(journal);
	return before.pruned;
}

START_TEST(killed_at_each_write)
{
	unsigned at = 1, kills[3] = {0};
	for (;; at++) {
		renew();
		faults.fault = KILL;
		faults.error = EIO;
		faults.at = at;
		int status = in_child(prune, NULL);
		if (status == 0)
			break;
		ck_assert_int_eq(WTERMSIG(status), SIGKILL);
		unsigned pruned = judge(at);
		kills[pruned == 0 ? 0 : pruned == 256 ? 1 : 2]++;
	}
	ck_assert_uint_eq(shared->actions, ACTIONS + OPEN / 2);
	ck_assert_uint_gt(at, 20);
	/* It was killed within the first commit, and within the second. */
	ck_assert_uint_gt(kills[0], 5);
	ck_assert_uint_gt(kills[1], 5);
}
END_TEST

static void strike_each(enum fault fault, int os_errno, int32_t code, int32_t other)
{
	unsigned at = 1, failed = 0;
	for (;; at++) {
		renew();
		faults.fault = fault;
		faults.error = os_errno;
		faults.at = at;
		ck_assert_int_eq(in_child(prune, NULL), 0);
		ck_assert_int_eq(shared->finished, 1);
		ck_assert_int_eq(shared->told, shared->code);
		if (shared->calls < at)
			break;
		ck_assert_msg(shared->code == 0 || shared->code == code || shared->code == other,
			      "%s at %u: %s", strerror(os_errno), at, orch_code_name(shared->code));
		/* The counts are those of all, or untouched. */
		ck_assert_uint_eq(shared->actions, shared->code == 0 ? ACTIONS + OPEN / 2 : 77);
		ck_assert(shared->code == 0 || shared->bytes == 77);
		failed += shared->code != 0;
		unsigned pruned = judge(at);
		if (shared->code == 0)
			ck_assert_uint_eq(pruned, ACTIONS + OPEN / 2);
	}
	ck_assert_int_eq(shared->code, 0);
	ck_assert_uint_gt(failed, 10);
}

START_TEST(each_write_and_sync_fails)
{
	strike_each(FAIL_FROM, EIO, ORCH_EPOISONED, ORCH_ESYS);
}
END_TEST

START_TEST(each_write_finds_the_disk_full)
{
	strike_each(FAIL_FROM, ENOSPC, ORCH_ENOSPC, ORCH_EPOISONED);
}
END_TEST

/* --- allocations
 * -------------------------------------------------------------------------------------------- */

/* All of the first ones, then fewer and fewer: hundreds of actions make tens of thousands. */
static unsigned further(unsigned at)
{
	return at + 1 + at / 15;
}

START_TEST(each_allocation_of_a_pruning_fails)
{
	unsigned at = 1, failed = 0;
	for (;; at = further(at)) {
		renew();
		faults.fault = FAIL_ONCE;
		faults.error = ENOMEM;
		faults.at = at;
		ck_assert_int_eq(in_child(prune, NULL), 0);
		if (shared->calls < at)
			break;
		ck_assert_msg(shared->code == 0 || shared->code == ORCH_ENOMEM ||
				      shared->code == ORCH_EPOISONED,
			      "allocation %u: %s", at, orch_code_name(shared->code));
		ck_assert_uint_eq(shared->actions, shared->code == 0 ? ACTIONS + OPEN / 2 : 77);
		failed += shared->code != 0;
		judge(at);
	}
	ck_assert_uint_gt(failed, 50);
}
END_TEST

#define CYCLES 10

static size_t allocated(void)
{
	struct mallinfo2 now = mallinfo2();
	return now.uordblks + now.hblkhd;
}

static int32_t count_line(void *userdata, const char *line, size_t length)
{
	++*(uint64_t *)userdata;
	shared->finished = strncmp(line, "{\"type\":\"end\"", 13) == 0 && line[length - 1] == '\n';
	return 0;
}

static int32_t count_action(void *userdata, orch_action *action)
{
	(void)action;
	++*(uint64_t *)userdata;
	return 0;
}

static int32_t walk(orch_journal *journal, bool exports, uint64_t *ret_count, orch_error **error)
{
	struct orch_query_opts opts;
	*ret_count = 0;
	if (exports)
		return orch_journal_export(journal, ORCH_EXPORT_RECORDS, count_line, ret_count,
					   error);
	orch_query_opts_init(&opts, sizeof(opts));
	opts.key_prefix = "open";
	opts.states = 1u << ORCH_ACTION_DISPATCHED;
	return orch_journal_query(journal, &opts, count_action, ret_count, error);
}

static void walk_with_a_fault(void *userdata)
{
	bool exports = *(bool *)userdata;
	orch_journal *journal = open_anchored();
	orch_error *failure = NULL;
	uint64_t whole = 0, struck = 0, again = 0;
	faults.armed = true;
	shared->code = walk(journal, exports, &struck, &failure);
	faults.armed = false;
	shared->calls = faults.seen;
	shared->told = orch_error_code(failure);
	orch_error_free(failure);
	int ended = shared->finished;
	OK(walk(journal, exports, &whole, &error));
	ck_assert(shared->code == 0 ? struck == whole : struck <= whole);
	ck_assert(!exports || ended == (shared->code == 0));
	/* Again and again: what is not given back grows each time, what SQLite keeps for the next
	 * time does not. */
	for (int i = 0; i < CYCLES; i++) {
		size_t before = allocated();
		faults.seen = 0;
		faults.armed = true;
		walk(journal, exports, &struck, NULL);
		faults.armed = false;
		OK(walk(journal, exports, &again, &error));
		ck_assert_uint_eq(again, whole);
		shared->grown += allocated() > before;
	}
	shared->lines = whole;
	orch_journal_unref(journal);
}

static void each_allocation_of_a_walk_fails(bool exports, uint64_t expected, unsigned least)
{
	unsigned at = 1, failed = 0;
	for (;; at = further(at)) {
		renew();
		faults.fault = FAIL_ONCE;
		faults.error = ENOMEM;
		faults.at = at;
		ck_assert_int_eq(in_child(walk_with_a_fault, &exports), 0);
		if (shared->calls < at)
			break;
		ck_assert_uint_eq(shared->lines, expected);
		ck_assert_int_eq(shared->told, shared->code);
		ck_assert_msg(shared->code == 0 || shared->code == ORCH_ENOMEM, "allocation %u: %s",
			      at, orch_code_name(shared->code));
		ck_assert_msg(shared->grown < CYCLES, "allocation %u: memory is lost", at);
		failed += shared->code != 0;
	}
	ck_assert_uint_gt(failed, least);
}

START_TEST(each_allocation_of_a_query_fails)
{
	each_allocation_of_a_walk_fails(false, OPEN / 2, 20);
}
END_TEST

START_TEST(each_allocation_of_an_export_fails)
{
	/* Head, two generations, actions, records of all of it, end. */
	uint64_t records = 2 + ACTIONS + OPEN / 2 * 2 + OPEN / 2 * 3;
	each_allocation_of_a_walk_fails(true, 1 + 2 + ACTIONS + OPEN + records + 1, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-prune");
	TCase *tests = tcase_create("prune");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 240);
	tcase_add_test(tests, killed_at_each_write);
	tcase_add_test(tests, each_write_and_sync_fails);
	tcase_add_test(tests, each_write_finds_the_disk_full);
	tcase_add_test(tests, each_allocation_of_a_pruning_fails);
	tcase_add_test(tests, each_allocation_of_a_query_fails);
	tcase_add_test(tests, each_allocation_of_an_export_fails);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
