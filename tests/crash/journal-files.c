/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's files: who owns them, what forked children and other programs may do to them, what
 * is refused with the bytes unchanged, reading without owning.
 */
#include <stdbool.h>
#include <sys/statfs.h>

#include "journal-kit.h"

/* --- ownership
 * ------------------------------------------------------------------------------------------ */

static void expect_locked(void *userdata)
{
	orch_journal *journal = NULL;
	orch_error *locked = NULL;
	char holder[32];
	snprintf(holder, sizeof(holder), "pid %d ", *(pid_t *)userdata);
	ck_assert_int_eq(kit_open(&journal, &locked), ORCH_ELOCKED);
	ck_assert_ptr_nonnull(strstr(orch_error_message(locked), holder));
	orch_error_free(locked);
	FAILS(ORCH_ELOCKED,
	      kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	ck_assert_ptr_null(journal);
}

START_TEST(a_second_coordinator_is_refused)
{
	pid_t self = getpid();
	orch_journal *journal = open_journal();
	expect_locked(&self);
	ck_assert_int_eq(in_child(expect_locked, &self), 0);
	orch_action *action = make(journal, "k", 0, ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
	expect_locked(&self); /* the action keeps it open */
	orch_action_unref(action);
	orch_journal_unref(open_journal());
}
END_TEST

/* Whether this process holds SQLite's own lock, as a child sees it
 * (https://sqlite.org/lockingv3.html). */
static void ask_for_lock(void *userdata)
{
	int fd = open(userdata, O_RDWR | O_CLOEXEC);
	struct flock range = {.l_type = F_WRLCK, .l_start = 0x40000000, .l_len = 512};
	_exit(fd < 0 || fcntl(fd, F_GETLK, &range) < 0 ? 2 : range.l_type == F_UNLCK ? 1 : 0);
}

START_TEST(the_lock_survives_a_host_that_opens_the_file)
{
	pid_t self = getpid();
	orch_journal *journal = open_journal();
	ck_assert_int_eq(WEXITSTATUS(in_child(ask_for_lock, journal_path)), 0);
	int fd = open(journal_path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_msg(WEXITSTATUS(in_child(ask_for_lock, journal_path)) == 1,
		      "SQLite's own lock is still there: this test shows nothing");
	ck_assert_int_eq(in_child(expect_locked, &self), 0);
	orch_action_unref(make(journal, "k", 0, ORCH_ACTION_CONFIRMED));
	orch_journal_unref(journal);
	journal = open_journal();
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
}
END_TEST

struct race {
	int start; /* read end of a pipe that both wait on */
	int count; /* the outside: a byte per effect */
	const char *key;
};

static void run_for_key(void *userdata)
{
	struct race *race = userdata;
	char byte;
	orch_journal *journal = NULL;
	ck_assert_int_eq(read(race->start, &byte, 1), 0);
	for (int tries = 0; kit_open(&journal, NULL) == ORCH_ELOCKED; tries++) {
		ck_assert_int_lt(tries, 20000);
		usleep(500);
	}
	uint32_t outcome = 0;
	orch_action *action = NULL;
	OK(kit_begin(journal, race->key, 0, "request", &outcome, &action, &error));
	if (outcome == ORCH_BEGIN_FRESH) {
		OK(orch_action_dispatch(action, &error));
		ck_assert_int_eq(write(race->count, "x", 1), 1);
		OK(orch_action_observe(action, NULL, 0, &error));
	} else {
		ck_assert_uint_eq(outcome, ORCH_BEGIN_REPLAY);
	}
	orch_action_unref(action);
	orch_journal_unref(journal);
}

START_TEST(two_processes_race_for_one_key)
{
	char path[100];
	snprintf(path, sizeof(path), "%s/count", folder);
	int count = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	for (int round = 1; round <= 30; round++) {
		char key[16];
		int start[2];
		pid_t pids[2];
		snprintf(key, sizeof(key), "%d", round);
		ck_assert_int_eq(pipe2(start, O_CLOEXEC), 0);
		for (int i = 0; i < 2; i++) {
			pids[i] = fork();
			if (pids[i] == 0) {
				struct race race = {start[0], count, key};
				close(start[1]);
				alarm(60);
				run_for_key(&race);
				_exit(0);
			}
		}
		close(start[0]);
		close(start[1]);
		for (int i = 0; i < 2; i++) {
			int status = -1;
			ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
			ck_assert_int_eq(status, 0);
		}
		ck_assert_int_eq(lseek(count, 0, SEEK_END), round);
	}
	close(count);
}
END_TEST

static int32_t observe_bytes(orch_action *action, orch_error **reterr)
{
	return orch_action_observe(action, "r", 1, reterr);
}

struct inherited {
	orch_journal *journal;
	orch_action *action;
};

static void use_in_child(void *userdata)
{
	struct inherited *inherited = userdata;
	orch_journal *journal = inherited->journal;
	orch_action *action = NULL;
	uint32_t outcome;
	FAILS(ORCH_EFORKED, kit_begin(journal, "n", 0, NULL, &outcome, &action, &error));
	FAILS(ORCH_EFORKED, orch_journal_record(journal, "k", "n", NULL, 0, NULL, &error));
	FAILS(ORCH_EFORKED, orch_journal_find(journal, "k", &action, &error));
	FAILS(ORCH_EFORKED, orch_journal_each(journal, NULL, (orch_action_fn)abort, NULL, &error));
	FAILS(ORCH_EFORKED, kit_recover(journal, NULL, NULL, NULL, NULL, &error));
	FAILS(ORCH_EFORKED, orch_journal_verify(journal, NULL, &error));
	FAILS(ORCH_EFORKED, orch_action_resolve(inherited->action, 1, NULL, 0, &error));
	for (uint32_t state = 2; state <= 8; state++)
		FAILS(ORCH_EFORKED, move(inherited->action, state, &error));
	/* Nor does it get in by opening anew. */
	pid_t parent = getppid();
	expect_locked(&parent);
	orch_action_unref(inherited->action);
	orch_journal_unref(journal);
}

START_TEST(a_forked_child_touches_nothing)
{
	struct inherited inherited = {.journal = open_anchored()};
	inherited.action = make(inherited.journal, "k", 0, ORCH_ACTION_DISPATCHED);
	struct file database = slurp(journal_path), wal = slurp(wal_path),
		    anchor = slurp(anchor_path);
	ck_assert(wal.exists && wal.length > 0);
	ck_assert_int_eq(in_child(use_in_child, &inherited), 0);
	same_file(journal_path, &database);
	same_file(wal_path, &wal);
	same_file(anchor_path, &anchor);
	pid_t self = getpid();
	ck_assert_int_eq(in_child(expect_locked, &self), 0);
	OK(observe_bytes(inherited.action, &error));
	orch_action_unref(inherited.action);
	orch_journal_unref(inherited.journal);
	orch_journal *journal = open_anchored();
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_OBSERVED);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* A worker without exec keeps copies of all descriptors; the coordinator is killed, the worker
 * lives on. */
static void fork_worker_and_die(void *userdata)
{
	int *ready = userdata;
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "k", 0, ORCH_ACTION_DISPATCHED));
	pid_t coordinator = getpid(), worker = fork();
	if (worker == 0) {
		alarm(60);
		worker = getpid();
		ck_assert_int_eq(write(ready[1], &worker, sizeof(worker)), sizeof(worker));
		kill(coordinator, SIGKILL);
		pause();
		_exit(0);
	}
	pause();
}

START_TEST(a_forked_worker_does_not_keep_the_lock)
{
	int ready[2];
	pid_t worker = 0;
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	ck_assert_int_eq(WTERMSIG(in_child(fork_worker_and_die, ready)), SIGKILL);
	ck_assert_int_eq(read(ready[0], &worker, sizeof(worker)), sizeof(worker));
	ck_assert_int_eq(kill(worker, 0), 0);
	orch_journal *journal = open_journal();
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_DISPATCHED);
	orch_journal_unref(journal);
	kill(worker, SIGKILL);
}
END_TEST

START_TEST(files_that_are_taken_away_are_noticed)
{
	char *const paths[] = {journal_path, wal_path, lock_path};
	for (int i = 0; i < 3; i++) {
		orch_journal *journal = open_journal();
		orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
		struct file copy = slurp(paths[i]);
		ck_assert_int_eq(unlink(paths[i]), 0);
		if (i == 1)
			spill(paths[i],
			      &copy); /* the same bytes in another file are another file */
		FAILS(ORCH_EPOISONED, orch_action_dispatch(action, &error));
		ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_INTENT);
		FAILS(ORCH_EPOISONED, orch_journal_find(journal, "k", &action, &error));
		orch_action_unref(action);
		orch_journal_unref(journal);
		kit_teardown();
		kit_setup();
	}
}
END_TEST

/*
 * Everything that keeps coordinators apart is broken at once: the lock file is removed, and the
 * older one's host dropped SQLite's lock. The older generation still cannot write.
 */
static void older_generation(void *userdata)
{
	int *pipes = userdata;
	char byte = 'x';
	orch_journal *journal = open_journal();
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	close(open(journal_path, O_RDONLY | O_CLOEXEC));
	ck_assert_int_eq(write(pipes[1], &byte, 1), 1);
	ck_assert_int_eq(read(pipes[2], &byte, 1), 1);
	FAILS(ORCH_EPOISONED, orch_action_dispatch(action, &error));
	FAILS(ORCH_EPOISONED, orch_journal_record(journal, "k", "late", NULL, 0, NULL, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}

START_TEST(an_older_generation_cannot_write)
{
	int pipes[4];
	char byte;
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC) + pipe2(pipes + 2, O_CLOEXEC), 0);
	pid_t older = fork();
	if (older == 0) {
		alarm(60);
		older_generation(pipes);
		_exit(0);
	}
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	ck_assert_int_eq(unlink(lock_path), 0);
	orch_journal *journal = open_journal();
	ck_assert_uint_eq(orch_journal_generation(journal), 2);
	ck_assert_int_eq(write(pipes[3], "x", 1), 1);
	int status = -1;
	ck_assert_int_eq(waitpid(older, &status, 0), older);
	ck_assert_int_eq(status, 0);
	orch_action *action = begin(journal, "k", 0, ORCH_BEGIN_FRESH);
	ck_assert_uint_eq(orch_action_attempt(action), 2);
	OK(orch_action_dispatch(action, &error));
	FAILS(ORCH_ENOENT, orch_journal_find(journal, "late", &action, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
	journal = open_journal();
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_DISPATCHED);
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

static void print_without_stdio(void *userdata)
{
	(void)userdata;
	for (int fd = 0; fd <= 2; fd++)
		close(fd);
	orch_journal *journal = NULL;
	if (kit_open_with(&journal, 0, anchor_path, NULL, NULL, NULL) < 0)
		_exit(3);
	for (int fd = 0; fd <= 2; fd++)
		for (int i = 0; i < 400; i++)
			if (write(fd, "printed", 7) < 0)
				break;
	if (orch_journal_record(journal, "k", "k", NULL, 0, NULL, NULL) < 0)
		_exit(4);
	orch_journal_unref(journal);
}

/* A host that closed its standard output and prints all the same. */
START_TEST(what_is_printed_ends_up_in_no_file)
{
	ck_assert_int_eq(in_child(print_without_stdio, NULL), 0);
	char command[160];
	snprintf(command, sizeof(command), "grep -rl printed %s %s", folder, anchor_folder);
	ck_assert_int_eq(WEXITSTATUS(system(command)), 1); /* not found */
	orch_journal *journal = open_anchored();
	OK(orch_journal_verify(journal, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

START_TEST(a_temporary_folder_behind_a_link)
{
	orch_journal *journal = open_journal();
	orch_journal_unref(journal);
	char link[100];
	snprintf(link, sizeof(link), "%s/tmp", anchor_folder);
	ck_assert_int_eq(symlink("/tmp", link), 0);
	ck_assert_int_eq(setenv("TMPDIR", link, 1), 0);
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	orch_journal_unref(journal);
}
END_TEST

/* --- refusals that leave everything as it was
 * ------------------------------------------------------------ */

static uint32_t pretended_magic; /* 0: the truth */

/* The library is linked statically here, so it calls this one. */
int fstatfs(int fd, struct statfs *status)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int r = statfs(path, status);
	if (pretended_magic)
		status->f_type = pretended_magic;
	return r;
}

static void refused(int32_t code, uint32_t flags)
{
	orch_journal *journal = NULL;
	struct file database = slurp(journal_path), wal = slurp(wal_path);
	FAILS(code, kit_open_with(&journal, flags, NULL, NULL, NULL, &error));
	ck_assert_ptr_null(journal);
	same_file(journal_path, &database);
	same_file(wal_path, &wal);
}

static void refused_both(int32_t code)
{
	refused(code, 0);
	refused(code, ORCH_JOURNAL_READ_ONLY);
}

START_TEST(network_file_systems)
{
	/* linux/magic.h: NFS, SMB, SMB2, CIFS, 9P, Ceph, AFS, FUSE */
	static const uint32_t remote[] = {0x6969,     0x517b,	  0xfe534d42, 0xff534d42,
					  0x01021997, 0x00c36400, 0x5346414f, 0x65735546};
	for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++) {
		pretended_magic = remote[i];
		refused_both(ORCH_ENETFS);
		ck_assert_int_ne(access(lock_path, F_OK), 0);
	}
	pretended_magic = 0xef53; /* ext4 */
	orch_journal_unref(open_journal());
	pretended_magic = 0x6969;
	refused_both(ORCH_ENETFS);
}
END_TEST

START_TEST(a_newer_schema)
{
	orch_journal *journal = open_journal();
	orch_action_unref(make(journal, "k", 0, ORCH_ACTION_CONFIRMED));
	orch_journal_unref(journal);
	struct file good = slurp(journal_path), newer = slurp(journal_path);
	newer.bytes[63] = 99; /* user_version */
	spill(journal_path, &newer);
	refused_both(ORCH_ESCHEMA);
	spill(journal_path, &good);
	orch_journal_unref(open_journal());
	/* A newer version that was killed left its version number in the log only. */
	sql("PRAGMA user_version = 99");
	struct file header = slurp(journal_path);
	ck_assert_int_eq(header.bytes[63], 2);
	ck_assert(slurp(wal_path).length > 0);
	refused_both(ORCH_ESCHEMA);
}
END_TEST

START_TEST(a_header_that_asks_for_vacuum)
{
	orch_journal_unref(open_journal());
	struct file good = slurp(journal_path), damaged = slurp(journal_path);
	ck_assert_int_eq(damaged.bytes[55], 0);
	damaged.bytes[55] = 0x40; /* the largest root page: not 0 where SQLite vacuums at each commit */
	spill(journal_path, &damaged);
	refused_both(ORCH_ECORRUPT);
	spill(journal_path, &good);
	orch_journal_unref(open_journal());
}
END_TEST

START_TEST(what_is_no_journal)
{
	struct file empty = {.exists = true},
		    text = {(unsigned char *)"not a database at all", 21, true};
	spill(journal_path, &empty);
	refused_both(ORCH_ECORRUPT);
	spill(journal_path, &text);
	refused_both(ORCH_ECORRUPT);
	unlink(journal_path);
	sqlite3 *db = NULL;
	sqlite3_open(journal_path, &db);
	ck_assert_int_eq(sqlite3_exec(db, "CREATE TABLE theirs (x)", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	refused_both(ORCH_ECORRUPT);
	unlink(journal_path);
	ck_assert_int_eq(mkdir(journal_path, 0700), 0);
	orch_journal *journal = NULL;
	FAILS(ORCH_ECORRUPT, kit_open(&journal, &error));
	rmdir(journal_path);

	/* Its log is there and it is not. */
	spill(wal_path, &text);
	refused(ORCH_ECORRUPT, 0);
	unlink(wal_path);
	refused(ORCH_ENOENT, ORCH_JOURNAL_READ_ONLY);
	strcat(folder, "/missing");
	kit_paths();
	refused_both(ORCH_ENOENT);
	*strrchr(folder, '/') = '\0';
	kit_paths();
}
END_TEST

START_TEST(other_names_of_the_file)
{
	pid_t self = getpid();
	orch_journal *journal = open_journal();
	char real[96];
	strcpy(real, journal_path);
	snprintf(journal_path, sizeof(journal_path), "%s/link", folder);
	ck_assert_int_eq(symlink("j", journal_path), 0);
	expect_locked(&self);
	orch_journal_unref(journal);
	/* Through the link the same lock is taken. */
	journal = open_journal();
	strcpy(journal_path, real);
	expect_locked(&self);
	orch_journal_unref(journal);
	char hard[110];
	snprintf(hard, sizeof(hard), "%s.hard", real);
	ck_assert_int_eq(link(real, hard), 0);
	refused_both(ORCH_EINVAL);
	unlink(hard);
	orch_journal_unref(open_journal());
}
END_TEST

START_TEST(relative_paths_do_not_follow_the_working_directory)
{
	char real[96];
	strcpy(real, journal_path);
	ck_assert_int_eq(chdir(folder), 0);
	strcpy(journal_path, "j");
	orch_journal *journal = open_journal();
	ck_assert_int_eq(chdir("/"), 0);
	orch_action_unref(make(journal, "k", 0, ORCH_ACTION_CONFIRMED));
	orch_journal_unref(journal);
	strcpy(journal_path, real);
	journal = open_journal();
	ck_assert_uint_eq(state_of(journal, "k"), ORCH_ACTION_CONFIRMED);
	orch_journal_unref(journal);
}
END_TEST

/* Killed between making the file and giving it its name. */
START_TEST(a_half_made_journal_is_made_again)
{
	char half[110];
	snprintf(half, sizeof(half), "%s.new", journal_path);
	struct file text = {(unsigned char *)"half", 4, true};
	spill(half, &text);
	orch_journal_unref(open_journal());
	ck_assert_int_ne(access(half, F_OK), 0);
}
END_TEST

/* --- reading without owning
 * -------------------------------------------------------------------------------- */

static int entries(const char *path)
{
	char command[160];
	int count = -1;
	snprintf(command, sizeof(command), "ls -A %s | wc -l", path);
	FILE *stream = popen(command, "re");
	ck_assert_int_eq(fscanf(stream, "%d", &count), 1);
	pclose(stream);
	return count;
}

static void read_it(void)
{
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	ck_assert_uint_eq(orch_journal_generation(journal), 1);
	ck_assert_uint_eq(state_of(journal, "done"), ORCH_ACTION_CONFIRMED);
	orch_action *action = find(journal, "open");
	ck_assert_uint_eq(orch_action_state(action), ORCH_ACTION_DISPATCHED);
	uint64_t records = 0;
	OK(orch_journal_verify(journal, &records, &error));
	ck_assert_uint_eq(records, 7);
	orch_action *other = NULL;
	uint32_t outcome;
	FAILS(ORCH_ESTATE, orch_action_observe(action, NULL, 0, &error));
	FAILS(ORCH_ESTATE, kit_begin(journal, "done", 0, "request", &outcome, &other, &error));
	FAILS(ORCH_ESTATE, orch_journal_record(journal, "k", "n", NULL, 0, NULL, &error));
	FAILS(ORCH_ESTATE, kit_recover(journal, NULL, NULL, NULL, NULL, &error));
	orch_action_unref(action);
	orch_journal_unref(journal);
}

START_TEST(reading_writes_nothing)
{
	/* What a dead coordinator left, with everything still in the log; then what a tidy one
	 * left. */
	for (int tidy = 0; tidy < 2; tidy++) {
		if (tidy) {
			orch_journal *journal = open_journal();
			fill(journal);
			orch_journal_unref(journal);
		} else {
			ck_assert_int_eq(WTERMSIG(in_child(fill_and_die, NULL)), SIGKILL);
		}
		struct file database = slurp(journal_path), wal = slurp(wal_path),
			    lock = slurp(lock_path);
		ck_assert_int_eq(wal.exists, !tidy);
		int count = entries(folder);
		/* Even by one who could not write. */
		ck_assert_int_eq(chmod(journal_path, 0400) + chmod(lock_path, 0400) +
					 chmod(folder, 0500),
				 0);
		read_it();
		read_it();
		ck_assert_int_eq(chmod(journal_path, 0600) + chmod(lock_path, 0600) +
					 chmod(folder, 0700),
				 0);
		same_file(journal_path, &database);
		same_file(wal_path, &wal);
		same_file(lock_path, &lock);
		ck_assert_int_eq(entries(folder), count);
		/* A copy without its lock file can be read as well; none is made. */
		ck_assert_int_eq(unlink(lock_path), 0);
		read_it();
		ck_assert_int_eq(entries(folder), count - 1);
		kit_teardown();
		kit_setup();
	}
}
END_TEST

START_TEST(a_reader_does_not_keep_a_coordinator_out)
{
	orch_journal *journal = open_journal(), *reader = NULL;
	fill(journal);
	orch_journal_unref(journal);
	OK(kit_open_with(&reader, ORCH_JOURNAL_READ_ONLY, NULL, NULL, NULL, &error));
	journal = open_journal();
	orch_action_unref(make(journal, "later", 0, ORCH_ACTION_CONFIRMED));
	ck_assert_uint_eq(state_of(reader, "done"), ORCH_ACTION_CONFIRMED);
	orch_action *action = NULL;
	FAILS(ORCH_ENOENT, orch_journal_find(reader, "later", &action, &error));
	orch_journal_unref(reader);
	orch_journal_unref(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal-files");
	TCase *tests = tcase_create("files");
	tcase_add_checked_fixture(tests, kit_setup, kit_teardown);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, a_second_coordinator_is_refused);
	tcase_add_test(tests, the_lock_survives_a_host_that_opens_the_file);
	tcase_add_test(tests, two_processes_race_for_one_key);
	tcase_add_test(tests, a_forked_child_touches_nothing);
	tcase_add_test(tests, a_forked_worker_does_not_keep_the_lock);
	tcase_add_test(tests, files_that_are_taken_away_are_noticed);
	tcase_add_test(tests, an_older_generation_cannot_write);
	tcase_add_test(tests, what_is_printed_ends_up_in_no_file);
	tcase_add_test(tests, a_temporary_folder_behind_a_link);
	tcase_add_test(tests, network_file_systems);
	tcase_add_test(tests, a_newer_schema);
	tcase_add_test(tests, a_header_that_asks_for_vacuum);
	tcase_add_test(tests, what_is_no_journal);
	tcase_add_test(tests, other_names_of_the_file);
	tcase_add_test(tests, relative_paths_do_not_follow_the_working_directory);
	tcase_add_test(tests, a_half_made_journal_is_made_again);
	tcase_add_test(tests, reading_writes_nothing);
	tcase_add_test(tests, a_reader_does_not_keep_a_coordinator_out);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
