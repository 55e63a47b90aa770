/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's transitions against raw SQLite (one row per commit, same settings) and against
 * what the disk can do at all (a block appended and synced), in turns.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench-journal.h"

#define BLOCK 4096u
#define TURN_S 0.2

#ifdef BENCH_MANY
#define TURN_CALLBACKS turn_callbacks
#define TURN_THREADS turn_threads
#else
#define TURN_CALLBACKS NULL
#define TURN_THREADS NULL
#endif

enum { JOURNAL, ANCHORED, RAW, DISK, LOOP_16, LOOP_256, THREADS_16, THREADS_256, SIDES };

/* --- journals --- */

int journal_fail(const char *what, orch_error *error)
{
	bench_fail("%s: %s", what, orch_error_message(error));
	orch_error_free(error);
	return -1;
}

int journal_open(const char *path, const char *anchor, orch_journal **ret_journal)
{
	struct orch_journal_opts opts;
	orch_error *error = NULL;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = path;
	opts.anchor_path = anchor;
	return orch_journal_open(&opts, ret_journal, &error) < 0 ? journal_fail(path, error) : 0;
}

int journal_action(orch_journal *journal, const char *key, uint32_t state)
{
	char payload[PAYLOAD];
	struct orch_action_opts opts;
	orch_action *action = NULL;
	orch_error *error = NULL;
	uint32_t outcome = ORCH_BEGIN_FRESH;
	memset(payload, 'p', sizeof(payload));
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "notify.send";
	opts.key = key;
	opts.request = payload;
	opts.request_length = sizeof(payload);
	int32_t r = orch_journal_begin(journal, &opts, &outcome, &action, &error);
	bool known = outcome != ORCH_BEGIN_FRESH;
	if (r == 0 && !known && state >= ORCH_ACTION_DISPATCHED)
		r = orch_action_dispatch(action, &error);
	if (r == 0 && !known && state >= ORCH_ACTION_OBSERVED)
		r = orch_action_observe(action, payload, sizeof(payload), &error);
	if (r == 0 && !known && state >= ORCH_ACTION_CONFIRMED)
		r = orch_action_confirm(action, &error);
	orch_action_unref(action);
	if (r < 0)
		return journal_fail(key, error);
	return known ? bench_fail("%s was begun before", key) : 0;
}

void next_key(struct side *side, char *key, size_t size)
{
	snprintf(key, size, "%s-%llu", side->tag, atomic_fetch_add(&side->next, 1));
}

int one_action(struct side *side)
{
	char key[64];
	next_key(side, key, sizeof(key));
	return journal_action(side->journal, key, ORCH_ACTION_CONFIRMED);
}

static int turn_journal(struct side *side, double until, uint64_t *ret_count)
{
	uint64_t before = orch_journal_sequence(side->journal);
	do {
		if (one_action(side) < 0)
			return -1;
	} while (bench_now() < until && !bench_stopped());
	*ret_count = orch_journal_sequence(side->journal) - before;
	return 0;
}

/* --- raw SQLite --- */

static int fail_sqlite(const char *what, sqlite3 *db)
{
	return bench_fail("SQLite, %s: %s", what, sqlite3_errmsg(db));
}

/* Sets a pragma and asks for it again: a peer with other settings would be no peer. */
static int set(sqlite3 *db, const char *name, const char *value, const char *expected)
{
	char text[128], found[64] = "";
	sqlite3_stmt *statement = NULL;
	snprintf(text, sizeof(text), "PRAGMA %s = %s", name, value);
	int result = sqlite3_exec(db, text, NULL, NULL, NULL);
	snprintf(text, sizeof(text), "PRAGMA %s", name);
	if (result == SQLITE_OK)
		result = sqlite3_prepare_v2(db, text, -1, &statement, NULL);
	if (result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
		snprintf(found, sizeof(found), "%s",
			 (const char *)sqlite3_column_text(statement, 0));
	sqlite3_finalize(statement);
	if (result != SQLITE_OK)
		return fail_sqlite(name, db);
	if (strcmp(found, expected) != 0)
		return bench_fail("SQLite did not take %s = %s: it says \"%s\"", name, value,
				  found);
	return 0;
}

/* The page size of the journal, which is closed: https://sqlite.org/fileformat2.html */
static unsigned page_size_of(const char *path)
{
	unsigned char bytes[2];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : pread(fd, bytes, sizeof(bytes), 16);
	if (fd >= 0)
		close(fd);
	unsigned size = length == sizeof(bytes) ? (unsigned)bytes[0] << 8 | bytes[1] : 0;
	return size == 1 ? 65536 : size;
}

static int open_raw(struct side *side, const char *path, unsigned bytes)
{
	char page_size[16];
	snprintf(page_size, sizeof(page_size), "%u", bytes);
	if (sqlite3_open(path, &side->db) != SQLITE_OK)
		return fail_sqlite("open", side->db);
	if (set(side->db, "page_size", page_size, page_size) < 0 ||
	    set(side->db, "locking_mode", "EXCLUSIVE", "exclusive") < 0 ||
	    set(side->db, "mmap_size", "0", "0") < 0 ||
	    set(side->db, "journal_mode", "WAL", "wal") < 0 ||
	    set(side->db, "synchronous", "FULL", "2") < 0)
		return -1;
	/* What the journal writes of each transition into its table of events. */
	if (sqlite3_exec(side->db,
			 "CREATE TABLE event (sequence INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL,"
			 " digest BLOB NOT NULL, hash BLOB NOT NULL) STRICT",
			 NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v3(side->db,
			       "INSERT INTO event (at_ms, digest, hash) VALUES (?1, ?2, ?3)", -1,
			       SQLITE_PREPARE_PERSISTENT, &side->insert, NULL) != SQLITE_OK)
		return fail_sqlite("table", side->db);
	return 0;
}

static int turn_raw(struct side *side, double until, uint64_t *ret_count)
{
	unsigned char bytes[32];
	uint64_t count = 0;
	memset(bytes, 'd', sizeof(bytes));
	do {
		sqlite3_bind_int64(side->insert, 1, 1700000000000);
		sqlite3_bind_blob(side->insert, 2, bytes, sizeof(bytes), SQLITE_STATIC);
		sqlite3_bind_blob(side->insert, 3, bytes, sizeof(bytes), SQLITE_STATIC);
		sqlite3_step(side->insert);
		if (sqlite3_reset(side->insert) != SQLITE_OK)
			return fail_sqlite("insert", side->db);
		count++;
	} while (bench_now() < until && !bench_stopped());
	side->rows += count;
	*ret_count = count;
	return 0;
}

static int check_raw(struct side *side)
{
	sqlite3_stmt *statement = NULL;
	uint64_t found = 0;
	if (sqlite3_prepare_v2(side->db, "SELECT count(*) FROM event", -1, &statement, NULL) ==
		    SQLITE_OK &&
	    sqlite3_step(statement) == SQLITE_ROW)
		found = (uint64_t)sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return found == side->rows ? 0
				   : bench_fail("raw SQLite has %llu rows of %llu",
						(unsigned long long)found,
						(unsigned long long)side->rows);
}

/* --- the disk --- */

static int turn_disk(struct side *side, double until, uint64_t *ret_count)
{
	static const char block[BLOCK] = {'d'};
	uint64_t count = 0;
	if (ftruncate(side->fd, 0) < 0 || lseek(side->fd, 0, SEEK_SET) < 0)
		return bench_fail("the file of blocks: %s", strerror(errno));
	do {
		if (write(side->fd, block, sizeof(block)) != sizeof(block) ||
		    fdatasync(side->fd) < 0)
			return bench_fail("the file of blocks: %s", strerror(errno));
		count++;
	} while (bench_now() < until && !bench_stopped());
	*ret_count = count;
	return 0;
}

/* --- turns --- */

static int take_turn(struct side *side, double seconds)
{
	uint64_t count = 0;
	struct bench_syncs before = bench_syncs_so_far();
	double cpu_start = bench_cpu_now(), start = bench_now();
	if (side->turn(side, start + seconds, &count) < 0)
		return -1;
	double end = bench_now(), cpu_end = bench_cpu_now();
	struct bench_syncs after = bench_syncs_so_far();
	uint64_t syncs = after.count - before.count;
	if (bench_stopped())
		return bench_fail("interrupted");
	/* Whoever waits for each record alone has a sync for each, or it was not durable. */
	if (syncs < (side->in_flight > 1 ? 1 : count))
		return bench_fail("%llu records, but %llu syncs were seen",
				  (unsigned long long)count, (unsigned long long)syncs);
	side->count += count;
	side->syncs += syncs;
	side->seconds += end - start;
	side->cpu_seconds += cpu_end - cpu_start;
	side->sync_seconds += after.seconds - before.seconds;
	return 0;
}

static void end_pair(struct side *side, bool counts)
{
	if (counts) {
		unsigned index = side->series.count++;
		side->series.values[index] = (double)side->count / side->seconds;
		side->series.batch[index] = (double)side->count / (double)side->syncs;
		side->series.sync_us[index] = side->sync_seconds / (double)side->syncs * 1e6;
		side->cpu_us.count = side->series.count;
		side->cpu_us.values[index] = side->cpu_seconds / (double)side->count * 1e6;
	}
	side->count = side->syncs = 0;
	side->seconds = side->cpu_seconds = side->sync_seconds = 0;
}

/* A pair is many short turns of each side: a burst of somebody else's work falls on all of them. */
static int take_pair(struct side *sides, unsigned count, unsigned pair, double seconds, bool counts)
{
	unsigned rounds = seconds > 2 * TURN_S ? (unsigned)(seconds / TURN_S) : 1;
	for (unsigned round = 0; round < rounds; round++)
		/* Forwards and backwards: nobody always follows the same neighbour. */
		for (unsigned i = 0; i < count; i++) {
			struct side *side = &sides[(pair + round) % 2 ? count - 1 - i : i];
			if (take_turn(side, seconds / rounds) < 0)
				return -1;
		}
	for (unsigned i = 0; i < count; i++)
		end_pair(&sides[i], counts);
	return 0;
}

static int take_turns(struct side *sides, unsigned count, const struct bench_options *options)
{
	double seconds = options->seconds / ((double)count * options->pairs);
	/* The first finds empty caches and files that have to grow: not counted. */
	if (take_pair(sides, count, 0, seconds / 4, false) < 0)
		return -1;
	for (unsigned pair = 0; pair < options->pairs; pair++)
		if (take_pair(sides, count, pair, seconds, true) < 0)
			return -1;
	return 0;
}

static void report_many(const struct side *side, const struct bench_series *alone,
			struct bench_report *report)
{
	struct bench_result *result;
	if (side->turn)
		result = bench_add(report, side->tag, "transitions/s", &side->series,
				   "with 1 in flight", alone);
	else
		result = bench_add_missing(report, side->tag, "transitions/s",
					   "not built: this liborch takes one at a time");
	/* Threads that wait pay two context switches a transition: that is theirs. */
	if (side->turn == TURN_CALLBACKS && side->in_flight == 256)
		bench_goal(result, BENCH_GOAL_RATIO_AT_LEAST, 20);
}

static void report_turns(const struct side *sides, struct bench_report *report)
{
	const struct bench_series *journal = &sides[JOURNAL].series, *raw = &sides[RAW].series;
	const struct bench_series *disk = &sides[DISK].series;
	static struct bench_series actions;
	struct bench_result *result;
	actions = *journal;
	for (unsigned i = 0; i < actions.count; i++)
		actions.values[i] /= 4;

	bench_add(report, "actions-1", "actions/s", &actions, NULL, NULL);
	result = bench_add(report, "transitions-1", "transitions/s", journal,
			   "commits/s of raw SQLite", raw);
	bench_goal(result, BENCH_GOAL_RATIO_AT_LEAST, 0.8);
	bench_add(report, "transitions-1-disk", "transitions/s", journal, "syncs/s of the disk",
		  disk);
	/* What is the library's own: the rest is the disk's. */
	bench_add(report, "transition-cpu", "us", &sides[JOURNAL].cpu_us,
		  "for a commit of raw SQLite", &sides[RAW].cpu_us);
	bench_add(report, "transitions-1-anchor", "transitions/s", &sides[ANCHORED].series,
		  "without an anchor", journal);
	for (unsigned i = LOOP_16; i <= THREADS_256; i++)
		report_many(&sides[i], journal, report);
	bench_add(report, "sqlite-commits", "commits/s", raw, "syncs/s of the disk", disk);
	bench_add(report, "disk-syncs", "syncs/s", disk, NULL, NULL);
}

/* Each side has files of its own: what one leaves behind costs no other anything. */
static int open_sides(struct side *sides, const char *folder)
{
	char path[PATH_MAX], anchor[PATH_MAX], raw[PATH_MAX];
	unsigned page_size = 0;
	snprintf(anchor, sizeof(anchor), "%s/anchor", folder);
	for (unsigned i = 0; i < SIDES; i++) {
		struct side *side = &sides[i];
		if (!side->tag || !side->turn)
			continue;
		snprintf(path, sizeof(path), "%s/journal/%s", folder, side->tag);
		/* Made and closed once: its page size can be read without disturbing its locks. */
		if (journal_open(path, NULL, &side->journal) < 0)
			return -1;
		side->journal = orch_journal_unref(side->journal);
		page_size = page_size_of(path);
		if (journal_open(path, i == ANCHORED ? anchor : NULL, &side->journal) < 0)
			return -1;
	}
	snprintf(raw, sizeof(raw), "%s/journal/raw", folder);
	snprintf(path, sizeof(path), "%s/journal/blocks", folder);
	sides[DISK].fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (sides[DISK].fd < 0)
		return bench_fail("%s: %s", path, strerror(errno));
	return open_raw(&sides[RAW], raw, page_size);
}

/* Everything is there that was counted, and sound. */
static int check_sides(struct side *sides)
{
	for (unsigned i = 0; i < SIDES; i++) {
		orch_journal *journal = sides[i].journal;
		orch_error *error = NULL;
		uint64_t records = 0;
		if (!journal)
			continue;
		if (orch_journal_verify(journal, &records, &error) < 0)
			return journal_fail("verify", error);
		if (records != orch_journal_sequence(journal))
			return bench_fail("%s has %llu records of %llu", sides[i].tag,
					  (unsigned long long)records,
					  (unsigned long long)orch_journal_sequence(journal));
	}
	return check_raw(&sides[RAW]);
}

static void close_sides(struct side *sides)
{
	for (unsigned i = 0; i < SIDES; i++) {
		orch_ctx_unref(sides[i].ctx);
		orch_journal_unref(sides[i].journal);
		sqlite3_finalize(sides[i].insert);
		sqlite3_close(sides[i].db);
		if (sides[i].fd >= 0)
			close(sides[i].fd);
	}
}

static int measure(const struct bench_options *options, const char *folder,
		   struct bench_report *report)
{
	static struct side sides[SIDES] = {
		[JOURNAL] = {.turn = turn_journal, .tag = "one", .in_flight = 1},
		[ANCHORED] = {.turn = turn_journal, .tag = "anchored", .in_flight = 1},
		[RAW] = {.turn = turn_raw, .in_flight = 1},
		[DISK] = {.turn = turn_disk, .in_flight = 1},
		[LOOP_16] = {.turn = TURN_CALLBACKS, .tag = "transitions-16", .in_flight = 16},
		[LOOP_256] = {.turn = TURN_CALLBACKS, .tag = "transitions-256", .in_flight = 256},
		[THREADS_16] = {.turn = TURN_THREADS, .tag = "threads-16", .in_flight = 16},
		[THREADS_256] = {.turn = TURN_THREADS, .tag = "threads-256", .in_flight = 256},
	};
	unsigned count = 0;
	for (unsigned i = 0; i < SIDES; i++) {
		sides[i].fd = -1;
		count += sides[i].turn != NULL;
	}
	int r = open_sides(sides, folder);
	if (r == 0)
		r = take_turns(sides, count, options);
	if (r == 0)
		r = check_sides(sides);
	close_sides(sides);
	if (r == 0)
		report_turns(sides, report);
	return r;
}

int bench_journal(const struct bench_options *options, struct bench_report *report)
{
	char folder[PATH_MAX - 64], path[PATH_MAX];
	int length = snprintf(folder, sizeof(folder), "%s/orch-bench.XXXXXX", options->dir);
	if (length >= (int)sizeof(folder) || !mkdtemp(folder))
		return bench_fail("cannot make a folder in %s: %s", options->dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/journal", folder);
	int r = mkdir(path, 0700) < 0 ? bench_fail("%s: %s", path, strerror(errno)) : 0;
	if (r == 0)
		r = measure(options, folder, report);
	if (r == 0)
		r = bench_journal_recovery(options, folder, report);
	bench_remove_folder(folder);
	bench_note(report, "A record is one transition; request and result have 128 bytes each. "
			   "Raw SQLite writes a row like an event of the journal.");
	bench_note(report, "records_per_sync counts all syncs, those of checkpoints too; "
			   "disk-syncs appends blocks of 4 KiB.");
	return r;
}
