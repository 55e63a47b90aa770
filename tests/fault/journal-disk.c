/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal on a disk that fails: at the n-th call that changes a file the power fails and what was not synced is lost,
 * torn or garbled; or the call fails, is interrupted, or does a part. n runs until it is past the end. After each the
 * journal is opened on a sound disk, and has to tell what a run without a fault told after as many steps as were
 * acknowledged, or after one more: nothing acknowledged is lost, nothing else is believed.
 *
 *	journal-disk [SEED [N]]   the seed of this run's choices is printed; N: only histories[N]
 *	ORCH_TEST_ALL=1           each n, each kind of loss, more seeds
 */
#include <sys/random.h>

#include "disk.h"
#include "histories.h"

/* A history with more calls than this is struck at a sample of them. */
#define SAMPLE 100

static uint64_t seed;
static bool all;

static struct shared {
	int32_t code; /* of the call that failed */
	unsigned acknowledged;
	uint64_t calls; /* that counted */
	char message[256];
	char text[1 << 16]; /* of the reference run, or of the judge's */
} * shared;

static struct figures {
	unsigned runs, power, failed, absorbed, refused, again;
} figures;

/* --- a run --- */

struct run {
	const struct history *history;
	struct disk_plan plan;
};

static void plan_folders(struct disk_plan *plan)
{
	snprintf(plan->folders[0], sizeof(plan->folders[0]), "%s", folder);
	snprintf(plan->folders[1], sizeof(plan->folders[1]), "%s", anchor_folder);
}

static void play(void *userdata)
{
	struct run *run = userdata;
	orch_error *error = NULL;
	plan_folders(&run->plan);
	disk_arm(&run->plan);
	shared->code = run->history->play(&shared->acknowledged, &error);
	shared->calls = disk_disarm();
	snprintf(shared->message, sizeof(shared->message), "%s", orch_error_message(error));
	orch_error_free(error);
}

static int strike(const struct history *history, const struct disk_plan *plan)
{
	struct run run = {history, *plan};
	shared->code = 0;
	shared->acknowledged = 0;
	shared->message[0] = '\0';
	return in_child(play, &run);
}

/* A fresh folder with what the history starts from. */
static void renew(const struct history *history)
{
	kit_teardown();
	kit_setup();
	if (history->prepare)
		history->prepare();
}

/* --- what it has to tell: texts of a run without faults, after each of its steps --- */

#define STEPS_MAX 96

static char *expected[STEPS_MAX + 1];

static void describe_now(void *userdata)
{
	const struct history *history = userdata;
	shared->code = history->describe(shared->text, sizeof(shared->text));
}

static const char *text_now(const struct history *history)
{
	int status = in_child(describe_now, (void *)(uintptr_t)history);
	ck_assert_msg(status == 0, "describing ended with status %d", status);
	return shared->text; /* or why it could not be told */
}

static void learn(const struct history *history)
{
	for (unsigned i = 0; i <= STEPS_MAX; i++) {
		free(expected[i]);
		expected[i] = NULL;
	}
	ck_assert_uint_le(history->steps, STEPS_MAX);
	for (unsigned i = 0; i <= history->steps; i++) {
		history_stop_after = UINT32_MAX;
		renew(history);
		history_stop_after = i;
		struct disk_plan plan = {.strike = STRIKE_NOTHING};
		ck_assert_int_eq(strike(history, &plan), 0);
		ck_assert_msg(shared->code == 0, "%s: %s", history->name, shared->message);
		ck_assert_uint_eq(shared->acknowledged, i);
		expected[i] = strdup(text_now(history));
		ck_assert_msg(i == 0 || strcmp(expected[i], expected[i - 1]) != 0,
			      "%s: step %u changes nothing that is described", history->name, i);
	}
	history_stop_after = UINT32_MAX;
}

/* --- the judge --- */

/* NULL, or what is wrong. */
static const char *misfit(const struct history *history)
{
	unsigned first = shared->acknowledged;
	unsigned last = first < history->steps ? first + 1 : first;
	const char *text = text_now(history);
	for (unsigned i = first; i <= last; i++)
		if (strcmp(text, expected[i]) == 0)
			return NULL;
	return text;
}

static void judge(const struct history *history, const char *what, uint64_t at)
{
	const char *wrong = misfit(history);
	ck_assert_msg(!wrong, "%s, %s at %llu, seed %llu: %u steps were acknowledged (%s), expected\n%s\nfound\n%s",
		      history->name, what, (unsigned long long)at, (unsigned long long)seed,
		      shared->acknowledged, shared->message, expected[shared->acknowledged], wrong);
}

/* Which of the calls are struck: each of a short history, a sample of a long one. */
static uint64_t next_at(uint64_t at, uint64_t calls)
{
	uint64_t stride = all || calls < SAMPLE ? 1 : calls / SAMPLE;
	if (stride == 1)
		return at + 1;
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return at + 1 + (seed >> 33) % (2 * stride - 1);
}

static const char *const loss_names[LOSS_COUNT] = {
	[LOSS_ALL] = "power loss, all unsynced lost",
	[LOSS_NONE] = "power loss, nothing lost",
	[LOSS_MIXED] = "power loss, unsynced mixed",
};

static uint64_t count_calls(const struct history *history)
{
	renew(history);
	struct disk_plan plan = {.strike = STRIKE_NOTHING};
	ck_assert_int_eq(strike(history, &plan), 0);
	ck_assert_int_eq(shared->code, 0);
	return shared->calls;
}

/* The power fails, and once more while the journal is opened and recovered. */
static void power_fails(const struct history *history, enum loss loss, uint64_t at)
{
	renew(history);
	struct disk_plan plan = {.strike = STRIKE_POWER, .at = at, .loss = loss, .seed = seed ^ at};
	int status = strike(history, &plan);
	ck_assert_msg(WEXITSTATUS(status) == DISK_POWER_FAILED, "status %d", status);
	figures.runs++;
	figures.power++;
	unsigned acknowledged = shared->acknowledged;
	judge(history, loss_names[loss], at);

	/* The same again, with a second failure in what follows. */
	if (at % 4 != seed % 4 && !all)
		return;
	renew(history);
	strike(history, &plan);
	struct disk_plan second = {
		.strike = STRIKE_POWER, .at = 1 + (seed ^ at) % 24, .loss = loss, .seed = at};
	struct run run = {history, second};
	struct history reopen = *history;
	reopen.play = history_reopen;
	run.history = &reopen;
	in_child(play, &run);
	shared->acknowledged = acknowledged;
	figures.again++;
	judge(history, "power loss again in the recovery", at);
}

static void each_power_loss(const struct history *history)
{
	uint64_t calls = count_calls(history);
	for (int loss = LOSS_ALL; loss < LOSS_COUNT; loss++)
		for (unsigned turn = 0; turn < (loss == LOSS_MIXED ? all ? 12u : 2u : 1u); turn++)
			for (uint64_t at = 1; at <= calls; at = next_at(at, calls))
				power_fails(history, (enum loss)loss, at);
}

/* Every call that fails says so, and what it says holds. */
static void each_error(const struct history *history, enum strike how, int error, bool absorbed)
{
	uint64_t calls = count_calls(history);
	for (uint64_t at = 1; at <= calls; at = next_at(at, calls)) {
		renew(history);
		struct disk_plan plan = {.strike = how, .at = at, .error = error};
		int status = strike(history, &plan);
		ck_assert_msg(status == 0, "%s: %s at %llu: status %d", history->name,
			      strerror(error), (unsigned long long)at, status);
		figures.runs++;
		if (shared->code)
			figures.failed++;
		else
			figures.absorbed++;
		ck_assert_msg(!absorbed || !shared->code, "%s: %s at %llu: %s", history->name,
			      how == STRIKE_SHORT ? "a short write" : strerror(error),
			      (unsigned long long)at, shared->message);
		ck_assert_msg(shared->code || shared->acknowledged == history->steps,
			      "%s: %s at %llu: no error, and %u steps", history->name,
			      strerror(error), (unsigned long long)at, shared->acknowledged);
		judge(history, how == STRIKE_SHORT ? "a short write" : strerror(error), at);
	}
}

/* --- tests --- */

static void setup(void)
{
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm";
	kit_setup();
	const char *source = getenv("ORCH_SOURCE_ROOT");
	ck_assert_msg(source != NULL, "ORCH_SOURCE_ROOT is not set");
	char command[512];
	snprintf(released, sizeof(released), "%s/orch-test-released-XXXXXX", kit_base);
	ck_assert_ptr_nonnull(mkdtemp(released));
	snprintf(command, sizeof(command),
		 "python3 -m tarfile -e %s/tests/journal/fixtures/schema-1.tar.xz %s", source,
		 released);
	ck_assert_int_eq(system(command), 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void teardown(void)
{
	kit_teardown();
	nftw(released, kit_remove, 8, FTW_DEPTH | FTW_PHYS);
	printf("%u runs: %u power failures (%u again in the recovery), %u errors told, %u absorbed\n",
	       figures.runs, figures.power, figures.again, figures.failed, figures.absorbed);
	fflush(stdout);
}

START_TEST(power_loss)
{
	learn(&histories[_i]);
	each_power_loss(&histories[_i]);
}
END_TEST

START_TEST(disk_error)
{
	learn(&histories[_i]);
	each_error(&histories[_i], STRIKE_ERROR, EIO, false);
	each_error(&histories[_i], STRIKE_FROM, EIO, false);
}
END_TEST

START_TEST(disk_full)
{
	learn(&histories[_i]);
	each_error(&histories[_i], STRIKE_ERROR, ENOSPC, false);
	each_error(&histories[_i], STRIKE_FROM, ENOSPC, false);
}
END_TEST

START_TEST(short_writes)
{
	learn(&histories[_i]);
	each_error(&histories[_i], STRIKE_ERROR, EINTR, true);
	each_error(&histories[_i], STRIKE_SHORT, 0, true);
}
END_TEST

/* The control: on a disk that takes syncs for nothing, acknowledged steps are lost, and the judge sees it. */
START_TEST(a_lying_disk_is_seen)
{
	const struct history *history = &histories[0];
	learn(history);
	uint64_t calls = count_calls(history);
	unsigned seen = 0;
	for (uint64_t at = 1; at <= calls; at++) {
		renew(history);
		struct disk_plan plan = {
			.strike = STRIKE_POWER, .at = at, .loss = LOSS_ALL, .lies = true};
		strike(history, &plan);
		/* What is left may be no journal at all. */
		in_child(describe_now, (void *)(uintptr_t)history);
		bool fits = shared->code == 0;
		if (fits) {
			fits = false;
			for (unsigned i = shared->acknowledged;
			     i <= shared->acknowledged + 1 && i <= history->steps; i++)
				fits |= strcmp(shared->text, expected[i]) == 0;
		}
		seen += !fits;
	}
	printf("a lying disk: seen at %u of %llu calls\n", seen, (unsigned long long)calls);
	ck_assert_uint_gt(seen, calls / 2);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, unsigned first, unsigned end)
{
	TCase *cases = tcase_create(name);
	tcase_set_timeout(cases, 600);
	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_loop_test(cases, test, (int)first, (int)end);
	suite_add_tcase(suite, cases);
}

int main(int argc, char **argv)
{
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return 2;
	seed >>= 16;
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 10);
	unsigned first = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) % COUNT(histories) : 0;
	unsigned end = argc > 2 ? first + 1 : COUNT(histories);
	all = getenv("ORCH_TEST_ALL") != NULL;
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	Suite *suite = suite_create("journal-disk");
	add(suite, "power-loss", power_loss, first, end);
	add(suite, "disk-error", disk_error, first, end);
	add(suite, "disk-full", disk_full, first, end);
	add(suite, "short-writes", short_writes, first, end);
	add(suite, "control", a_lying_disk_is_seen, 0, 1);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
