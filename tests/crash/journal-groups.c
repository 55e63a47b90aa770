/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups that fail: many actions in flight, from callbacks and from threads, while the process is killed at each write
 * and sync, while each of them fails, while each allocation does, and on a full disk. What each was told is in memory
 * that the judge shares, and so is where each group ended.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <orch/ctx.h>

#include "journal-kit.h"
#include "journal/journal-private.h"

#define SLOTS_MAX 64
#define GROUPS_MAX 4096

static struct shared {
	int opened;
	atomic_int told[SLOTS_MAX];	/* steps that were acknowledged */
	atomic_int refused[SLOTS_MAX];	/* the code that ended the slot */
	uint64_t groups[GROUPS_MAX];	/* the last record of each transaction that reached the disk or was about to */
	unsigned group_count;
	unsigned largest;
	unsigned calls; /* that could have been struck */
	int well;	/* after the fault something could be recorded with the same handle */
} * shared;

/* --- faults
 * ---------------------------------------------------------------------------------------------- */

enum fault { KILL, FAIL_ONCE, FAIL_FROM };

static struct {
	enum fault fault;
	int error; /* ENOMEM: allocations; else: calls on files */
	unsigned at;
	atomic_bool armed;
	atomic_uint seen;
} faults;

static orch_journal *watched; /* whose groups are noted */

static bool strikes(bool allocation)
{
	if (!atomic_load(&faults.armed) || allocation != (faults.error == ENOMEM))
		return false;
	unsigned call = atomic_fetch_add(&faults.seen, 1) + 1;
	if (faults.fault == KILL && call == faults.at)
		kill(getpid(), SIGKILL);
	if (!(faults.fault == FAIL_ONCE ? call == faults.at
					: faults.fault == FAIL_FROM && call >= faults.at))
		return false;
	errno = faults.error;
	return true;
}

/* Whoever writes has the store's lock, so the draft is its own. */
static void note_group(void)
{
	orch_journal *journal = watched;
	if (!journal || journal->draft <= journal->sequence)
		return;
	unsigned size = (unsigned)(journal->draft - journal->sequence);
	if (shared->group_count && shared->groups[shared->group_count - 1] == journal->draft)
		return;
	if (shared->group_count < GROUPS_MAX)
		shared->groups[shared->group_count++] = journal->draft;
	if (size > shared->largest)
		shared->largest = size;
}

/* These stand before libc's for the library, which is linked statically, and for SQLite. */
ORCH_API ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset);

ORCH_API ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
	note_group();
	/* A disk that is full or broken takes a part first. */
	if (strikes(false)) {
		int error = errno;
		syscall(SYS_pwrite64, fd, bytes, length / 2, offset);
		errno = error;
		return -1;
	}
	return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

ORCH_API int fdatasync(int fd)
{
	note_group();
	if (faults.error != ENOSPC && strikes(false))
		return -1;
	/* While it takes its time others queue up, as on a disk. */
	for (int i = 0; watched && i < 50; i++)
		sched_yield();
	return (int)syscall(SYS_fdatasync, fd);
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

/* --- what each slot does
 * --------------------------------------------------------------------------------- */

enum verb { BEGIN, DISPATCH, LOSE, OBSERVE, RECORD, CONFIRM };

/* All slots do the same, each with its own keys. */
static const struct step {
	enum verb verb;
	uint32_t state; /* of the action after it */
	bool records;
} steps[] = {
	{BEGIN, ORCH_ACTION_INTENT, true},	{DISPATCH, ORCH_ACTION_DISPATCHED, true},
	{LOSE, ORCH_ACTION_DISPATCHED, false}, /* another request under its key: refused, within a group */
	{OBSERVE, ORCH_ACTION_OBSERVED, true},	{RECORD, ORCH_ACTION_OBSERVED, true},
	{CONFIRM, ORCH_ACTION_CONFIRMED, true},
};
#define STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

struct slot {
	int number;
	orch_action *action;
	pthread_t thread;
	int step;
};

static struct slot slots[SLOTS_MAX];
static int callback_slots, thread_slots;
static orch_ctx *ctx;
static orch_journal *journal;
static int flying;
static char result[600];
static atomic_bool go;

static const char *key_of(const struct slot *slot, char key[16], char prefix)
{
	snprintf(key, 16, "%c%d", prefix, slot->number);
	return key;
}

/* What is to come next; false: the slot is over. */
static bool told(struct slot *slot, int32_t code)
{
	int32_t wanted = steps[slot->step].verb == LOSE ? ORCH_ECONFLICT : 0;
	if (code != wanted) {
		atomic_store(&shared->refused[slot->number], code);
		return false;
	}
	atomic_store(&shared->told[slot->number], ++slot->step);
	return slot->step < STEPS;
}

static int32_t begin_of(struct slot *slot, const char *request, bool waits, orch_begin_fn fn,
			orch_error **reterr);

/* --- as a thread --- */

static int32_t step_waiting(struct slot *slot)
{
	char key[16];
	switch (steps[slot->step].verb) {
	case BEGIN:
		return begin_of(slot, "request", true, NULL, NULL);
	case LOSE:
		return begin_of(slot, "another", true, NULL, NULL);
	case RECORD:
		return orch_journal_record(journal, "test.record", key_of(slot, key, 'r'), "x", 1, NULL,
					   NULL);
	case DISPATCH:
		return orch_action_dispatch(slot->action, NULL);
	case OBSERVE:
		return orch_action_observe(slot->action, result, sizeof(result), NULL);
	default:
		return orch_action_confirm(slot->action, NULL);
	}
}

static void *run_waiting(void *userdata)
{
	struct slot *slot = userdata;
	while (!atomic_load(&go))
		sched_yield();
	while (told(slot, step_waiting(slot)))
		;
	return NULL;
}

/* --- as callbacks --- */

static void step_async(struct slot *slot);

static void go_on(struct slot *slot, int32_t code)
{
	if (told(slot, code))
		step_async(slot);
	else if (--flying == 0)
		orch_ctx_quit(ctx);
}

static void on_begun(void *userdata, uint32_t outcome, orch_action *action, const orch_error *error)
{
	struct slot *slot = userdata;
	(void)outcome;
	if (!slot->action)
		slot->action = orch_action_ref(action);
	go_on(slot, error ? orch_error_code(error) : 0);
}

static void on_recorded(void *userdata, int32_t fresh, const orch_error *error)
{
	(void)fresh;
	go_on(userdata, error ? orch_error_code(error) : 0);
}

static void on_moved(void *userdata, orch_action *action, const orch_error *error)
{
	(void)action;
	go_on(userdata, error ? orch_error_code(error) : 0);
}

static void step_async(struct slot *slot)
{
	char key[16];
	int32_t r;
	const struct step *step = &steps[slot->step];
	size_t length = step->verb == OBSERVE ? sizeof(result) : 0;
	switch (step->verb) {
	case BEGIN:
		r = begin_of(slot, "request", false, on_begun, NULL);
		break;
	case LOSE:
		r = begin_of(slot, "another", false, on_begun, NULL);
		break;
	case RECORD:
		r = orch_journal_record_async(journal, ctx, "test.record", key_of(slot, key, 'r'), "x", 1,
					      on_recorded, slot, NULL, NULL);
		break;
	default:
		r = orch_action_move_async(slot->action, ctx, step->state, length ? result : NULL, length,
					   on_moved, slot, NULL, NULL);
	}
	/* Refused at once: no callback comes. */
	if (r < 0)
		go_on(slot, r);
}

static int32_t begin_of(struct slot *slot, const char *request, bool waits, orch_begin_fn fn,
			orch_error **reterr)
{
	char key[16];
	uint32_t outcome;
	orch_action *action = NULL;
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = key_of(slot, key, 'k');
	opts.policy = ORCH_POLICY_PROBE_FIRST;
	opts.request = request;
	opts.request_length = strlen(request);
	if (!waits)
		return orch_journal_begin_async(journal, ctx, &opts, fn, slot, NULL, reterr);
	int32_t r = orch_journal_begin(journal, &opts, &outcome, &action, reterr);
	if (r == 0)
		slot->action = action;
	return r;
}

/* --- a run
 * ------------------------------------------------------------------------------------------------ */

static void ignore_recorded(void *userdata, int32_t fresh, const orch_error *error)
{
	(void)fresh, (void)error;
	orch_ctx_quit(userdata);
}

/* What starts once, threads and loop, is there before anything fails. */
static void open_and_warm_up(void)
{
	OK(kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	OK(orch_ctx_new(NULL, &ctx, &error));
	OK(orch_journal_record_async(journal, ctx, "test.record", "warm", NULL, 0, ignore_recorded, ctx,
				     NULL, &error));
	OK(orch_ctx_run(ctx, 30000, &error));
	shared->opened = 1;
}

static void run(void *userdata)
{
	(void)userdata;
	open_and_warm_up();
	atomic_store(&go, false);
	for (int i = 0; i < callback_slots + thread_slots; i++) {
		slots[i] = (struct slot){.number = i};
		if (i >= callback_slots)
			ck_assert_int_eq(pthread_create(&slots[i].thread, NULL, run_waiting, &slots[i]), 0);
	}
	watched = journal;
	atomic_store(&faults.armed, faults.at > 0);
	atomic_store(&go, true);
	flying = callback_slots;
	for (int i = 0; i < callback_slots; i++)
		step_async(&slots[i]);
	/* Not asserted: libcheck allocates, and must not be struck. */
	while (flying)
		if (orch_ctx_run(ctx, 30000, NULL) == ORCH_ETIMEDOUT)
			abort();
	for (int i = callback_slots; i < callback_slots + thread_slots; i++)
		pthread_join(slots[i].thread, NULL);
	atomic_store(&faults.armed, false);
	shared->calls = atomic_load(&faults.seen);
	shared->well =
		orch_journal_record(journal, "test.record", "afterwards", NULL, 0, NULL, NULL) == 0;
	for (int i = 0; i < callback_slots + thread_slots; i++)
		orch_action_unref(slots[i].action);
	watched = NULL;
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}

static int run_in_child(void)
{
	memset(shared, 0, sizeof(*shared));
	return in_child(run, NULL);
}

/* How many steps of a slot the file tells, or -1. */
static int steps_told_by(orch_journal *reopened, const struct slot *slot)
{
	char key[16];
	orch_action *action = NULL, *record = NULL;
	uint32_t state = 0;
	if (orch_journal_find(reopened, key_of(slot, key, 'k'), &action, NULL) == 0)
		state = orch_action_state(action);
	size_t length = 0;
	bool whole = state < ORCH_ACTION_OBSERVED ||
		     (orch_action_result(action, &length) && length == sizeof(result));
	bool has_record = orch_journal_find(reopened, key_of(slot, key, 'r'), &record, NULL) == 0;
	orch_action_unref(action);
	orch_action_unref(record);
	if (!whole)
		return -1;
	int count = 0;
	for (int i = 0; i < STEPS; i++)
		if (steps[i].verb == RECORD ? has_record : steps[i].records && state >= steps[i].state)
			count = i + 1;
	return has_record && state < ORCH_ACTION_OBSERVED ? -1 : count;
}

/* Records that so many steps of a slot make. */
static uint64_t records_of(int count)
{
	uint64_t records = 0;
	for (int i = 0; i < count; i++)
		records += steps[i].records;
	return records;
}

/* Each slot is as far as it was told or one step further, and the file ends where a group did. */
static void judge(const char *what, unsigned at)
{
	orch_journal *reopened = NULL;
	OK(kit_open_with(&reopened, 0, anchor_path, NULL, NULL, &error));
	OK(orch_journal_verify(reopened, NULL, &error));
	uint64_t sequence = orch_journal_sequence(reopened) - 1; /* without this generation's own */
	uint64_t expected = 2;					 /* the first generation, and the warm-up */
	for (int i = 0; i < callback_slots + thread_slots; i++) {
		struct slot slot = {.number = i};
		int acknowledged = atomic_load(&shared->told[i]);
		int found = steps_told_by(reopened, &slot);
		/* A refusal leaves nothing in the file that could be found. */
		int at_least = acknowledged && !steps[acknowledged - 1].records ? acknowledged - 1
										: acknowledged;
		ck_assert_msg(found >= at_least && found <= acknowledged + 1,
			      "%s at %u: slot %d was told of %d steps, the file has %d", what, at, i,
			      acknowledged, found);
		expected += records_of(found);
	}
	bool ends = sequence == 2;
	for (unsigned i = 0; i < shared->group_count; i++)
		ends |= shared->groups[i] == sequence;
	ck_assert_msg(ends, "%s at %u: the file ends at record %llu, within a group", what, at,
		      (unsigned long long)sequence);
	orch_action *after = NULL;
	if (orch_journal_find(reopened, "afterwards", &after, NULL) == 0)
		expected++;
	orch_action_unref(after);
	ck_assert_uint_eq(sequence, expected);
	OK(kit_recover(reopened, NULL, NULL, NULL, NULL, &error));
	OK(orch_journal_record(reopened, "test.record", "judged", NULL, 0, NULL, &error));
	orch_journal_unref(reopened);
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
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	memset(result, 'r', sizeof(result));
	memset(&faults, 0, sizeof(faults));
}

/* --- tests
 * ------------------------------------------------------------------------------------------------ */

static const struct load {
	int callbacks, threads;
	unsigned stride; /* every so manyth write: the moments differ from run to run anyway */
} loads[] = {{8, 0, 1}, {0, 8, 1}, {6, 6, 2}, {64, 0, 3}, {0, 64, 3}, {32, 32, 3}};

static void load(const struct load *load)
{
	callback_slots = load->callbacks;
	thread_slots = load->threads;
}

static void check_nothing_failed(const struct load *load)
{
	for (int i = 0; i < load->callbacks + load->threads; i++) {
		ck_assert_int_eq(shared->refused[i], 0);
		ck_assert_int_eq(shared->told[i], STEPS);
	}
	ck_assert_int_eq(shared->well, 1);
	/* Or nothing of this were about groups. */
	ck_assert_uint_ge(shared->largest, (unsigned)(load->callbacks + load->threads) / 4);
}

START_TEST(killed_at_each_write_and_sync)
{
	const struct load *with = &loads[_i];
	unsigned kills = 0;
	load(with);
	for (unsigned at = 1;; at += with->stride) {
		faults.fault = KILL;
		faults.error = EIO;
		faults.at = at;
		int status = run_in_child();
		if (status != 0)
			ck_assert_int_eq(WTERMSIG(status), SIGKILL);
		judge("killed", at);
		renew();
		kills += status != 0;
		if (status == 0)
			break;
	}
	check_nothing_failed(with);
	ck_assert_uint_gt(kills, 12); /* larger groups have fewer writes */
}
END_TEST

/* Whoever was told of success finds it; after a failure nobody is told of success that is none. */
static void strike_each(const struct load *with, enum fault fault, int error, unsigned stride)
{
	unsigned failed = 0;
	load(with);
	for (unsigned at = 1;; at += stride) {
		faults.fault = fault;
		faults.error = error;
		faults.at = at;
		int status = run_in_child();
		ck_assert_msg(status == 0, "%s at %u: status 0x%x", strerror(error), at, status);
		if (shared->calls < at)
			break;
		unsigned refused = 0;
		for (int i = 0; i < with->callbacks + with->threads; i++) {
			int code = atomic_load(&shared->refused[i]);
			refused += code != 0;
			ck_assert_msg(code == 0 || code == ORCH_EPOISONED ||
					      code == (error == EIO ? ORCH_ESYS : journal_code(error)),
				      "%s at %u: %s", strerror(error), at, orch_code_name(code));
		}
		/* One allocation that fails is at most one caller's. */
		if (error == ENOMEM && shared->well)
			ck_assert_msg(refused <= 1, "allocation %u: %u were refused", at, refused);
		failed += refused > 0;
		judge(strerror(error), at);
		renew();
	}
	check_nothing_failed(with);
	ck_assert_uint_gt(failed, 20);
}

START_TEST(each_write_and_sync_fails_once)
{
	strike_each(&(struct load){6, 6, 0}, FAIL_ONCE, EIO, 1);
}
END_TEST

START_TEST(each_write_finds_the_disk_full)
{
	strike_each(&(struct load){6, 6, 0}, FAIL_FROM, ENOSPC, 1);
}
END_TEST

START_TEST(each_allocation_fails)
{
	strike_each(&(struct load){5, 3, 0}, FAIL_ONCE, ENOMEM, 1);
}
END_TEST

/* --- a real full disk
 * ------------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* A mount namespace of our own: the disk is gone with this process. */
static void mount_small_disk(void)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();
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
}

static void fill_disk(const char *path)
{
	static char block[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	while (syscall(SYS_write, fd, block, sizeof(block)) > 0)
		;
	ck_assert_int_eq(errno, ENOSPC);
	close(fd);
}

enum { ON_DISK = 12 };

static void on_a_full_disk(void *userdata)
{
	char filler[100];
	(void)userdata;
	mount_small_disk();
	OK(kit_open_with(&journal, 0, NULL, NULL, NULL, &error));
	OK(orch_ctx_new(NULL, &ctx, &error));
	for (int i = 0; i < ON_DISK; i++) {
		char key[16];
		slots[i] = (struct slot){.number = i};
		slots[i].action =
			make(journal, key_of(&slots[i], key, 'k'), 0, ORCH_ACTION_DISPATCHED);
		slots[i].step = 3; /* OBSERVE */
	}
	snprintf(filler, sizeof(filler), "%s/filler", folder);
	fill_disk(filler);
	/* All observations at once, and with them one that may not be begun now. */
	callback_slots = ON_DISK;
	slots[ON_DISK] = (struct slot){.number = ON_DISK};
	flying = ON_DISK + 1;
	watched = journal;
	for (int i = 0; i <= ON_DISK; i++)
		step_async(&slots[i]);
	while (flying)
		ck_assert_int_ne(orch_ctx_run(ctx, 30000, NULL), ORCH_ETIMEDOUT);
	for (int i = 0; i < ON_DISK; i++)
		ck_assert_msg(shared->told[i] >= 4, "observation %d is lost: %s", i,
			      orch_code_name(shared->refused[i]));
	ck_assert_int_eq(shared->told[ON_DISK], 0);
	ck_assert_int_eq(shared->refused[ON_DISK], ORCH_ENOSPC);
	OK(orch_journal_verify(journal, NULL, &error));
	for (int i = 0; i < ON_DISK; i++) {
		char key[16];
		ck_assert_uint_ge(state_of(journal, key_of(&slots[i], key, 'k')),
				  ORCH_ACTION_OBSERVED);
		orch_action_unref(slots[i].action);
	}
	/* The handle is well: with room again it goes on. */
	unlink(filler);
	orch_action_unref(begin(journal, "room", 0, ORCH_BEGIN_FRESH));
	orch_journal_unref(journal);
	orch_ctx_unref(ctx);
}

/* --- how much goes into one transaction
 * --------------------------------------------------------------------- */

static void count_down(void *userdata, int32_t fresh, const orch_error *error)
{
	unsigned *left = userdata;
	ck_assert_ptr_null(error);
	ck_assert_int_eq(fresh, 1);
	(*left)--;
}

/* The most that shared a transaction, of so many records of so many bytes that were queued at once. */
static unsigned largest_of(size_t length, const char *name)
{
	static char bytes[900000];
	char key[32];
	unsigned left = 24;
	journal = open_journal();
	OK(orch_ctx_new(NULL, &ctx, &error));
	watched = journal;
	shared->largest = 0;
	for (unsigned i = left; i; i--) {
		snprintf(key, sizeof(key), "%s-%u", name, i);
		OK(orch_journal_record_async(journal, ctx, "test.record", key, bytes, length,
					     count_down, &left, NULL, &error));
	}
	while (left)
		OK(orch_ctx_process(ctx, &error));
	watched = NULL;
	journal = orch_journal_unref(journal);
	ctx = orch_ctx_unref(ctx);
	return shared->largest;
}

START_TEST(a_group_is_bounded_by_its_bytes)
{
	ck_assert_uint_gt(largest_of(10, "small"), 2);
	ck_assert_uint_eq(largest_of(900000, "big"), 1);
	ck_assert_uint_le(largest_of(400000, "half"), 2);
}
END_TEST

START_TEST(a_full_disk_loses_no_observation_of_a_group)
{
	memset(shared, 0, sizeof(*shared));
	ck_assert_int_eq(in_child(on_a_full_disk, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-groups");
	TCase *tests = tcase_create("groups");
	tcase_add_checked_fixture(tests, setup, kit_teardown);
	tcase_set_timeout(tests, 240);
	tcase_add_loop_test(tests, killed_at_each_write_and_sync, 0,
			    (int)(sizeof(loads) / sizeof(loads[0])));
	tcase_add_test(tests, each_write_and_sync_fails_once);
	tcase_add_test(tests, each_write_finds_the_disk_full);
	tcase_add_test(tests, each_allocation_fails);
	tcase_add_test(tests, a_full_disk_loses_no_observation_of_a_group);
	tcase_add_test(tests, a_group_is_bounded_by_its_bytes);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
