/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "timer.h"

/*
 * Timers: deadlines that survive the coordinator.
 *
 * A row is due by one clock. Where `boot_id` is "" that is the wall clock. Otherwise it is the boot
 * clock of that boot, which no step moves and which goes on through a suspend; `due_at_ms` is then
 * the same moment by the wall clock as it was when the row was written. `boot_due_ms` is the moment
 * by the clock that counts, so that one index over the pending ones gives the next of each clock.
 *
 * After a reboot the boot clock began anew, and only the wall clock knows how long the machine was
 * away. The first look writes down what it leaves of each delay, by both clocks: what is left never
 * grows by that, for what was left when the row was written is the most that it can be (due_at_ms -
 * updated_at_ms). From then on the wall clock is out of it again.
 */

/* The end of the year 9999; and 100 years of 365.25 days. */
#define DUE_MAX_MS 253402300799999
#define DELAY_MAX_MS 3155760000000
/* Rows that one transaction writes after a reboot. */
#define ANCHOR_BATCH 256

struct orch_timer {
	atomic_uint references;
	orch_journal *journal;
	struct timer_row row;
};

void orch_timer_opts_init(struct orch_timer_opts *opts, uint32_t size)
{
	const struct orch_timer_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

/* --- clocks
 * ----------------------------------------------------------------------------------------- */

struct timer_now timer_now(orch_journal *journal)
{
	struct timer_now now = {.wall_ms = orch_realtime_ms(), .boot_ms = clock_boot_ms()};
	if (journal->boot_id[0])
		return now;
	journal->first_boot_ms = now.boot_ms;
	clock_boot_id(journal->boot_id, sizeof(journal->boot_id));
	/* Where it is not known, what is certain is that one coordinator lives in one boot. */
	if (!journal->boot_id[0])
		snprintf(journal->boot_id, sizeof(journal->boot_id), "%s %" PRIu64,
			 journal->read_only ? "reader" : "generation", journal->generation);
	return now;
}

int64_t timer_wait_ms(const orch_journal *journal, const struct timer_row *row,
		      struct timer_now now)
{
	if (!row->boot_id[0])
		return row->due_at_ms - now.wall_ms;
	if (strcmp(row->boot_id, journal->boot_id) == 0)
		return row->boot_due_ms - now.boot_ms;
	int64_t by_wall = row->due_at_ms - now.wall_ms;
	int64_t most = row->due_at_ms - row->updated_at_ms - (now.boot_ms - journal->first_boot_ms);
	return by_wall < most ? by_wall : most;
}

int32_t timer_of_other_boots(orch_journal *journal, sqlite3_stmt **ret_statement,
			     orch_error **reterr)
{
	/* As two ranges, so that the index gives them. */
	static const char sql[] = TIMER_SELECT " WHERE state = 1 AND boot_id > '' AND boot_id < ?1"
					       " OR state = 1 AND boot_id > ?1";
	int32_t r = store_sql(journal, sql, ret_statement, reterr);
	if (r == 0)
		store_bind_text(*ret_statement, 1, journal->boot_id);
	return r;
}

struct anchor_request {
	struct request request;
	bool more;
};

static int32_t anchor_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct anchor_request *anchor = (struct anchor_request *)request;
	struct timer_now now = timer_now(journal);
	anchor->more = true;
	for (int i = 0; i < ANCHOR_BATCH; i++) {
		struct timer_row row;
		sqlite3_stmt *statement;
		int32_t r = timer_of_other_boots(journal, &statement, reterr);
		if (r == 0)
			r = timer_first(journal, statement, &row, reterr);
		if (r == ORCH_ENOENT)
			anchor->more = false;
		if (r < 0)
			return r == ORCH_ENOENT ? 0 : r;
		int64_t wait = timer_wait_ms(journal, &row, now);
		if (wait < 0)
			wait = 0;
		strcpy(row.boot_id, journal->boot_id);
		row.boot_due_ms = now.boot_ms + wait;
		row.due_at_ms = now.wall_ms + wait;
		row.updated_at_ms = now.wall_ms;
		r = timer_put(journal, &row, row.sequence, reterr);
		timer_row_clear(&row);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Nobody else writes, so this is done once. Where it could not be written down for now, it is tried
 * again at the next look; until then no delay grows all the same, because this coordinator
 * remembers its own first look.
 */
int32_t timer_anchor(orch_journal *journal, orch_error **reterr)
{
	struct anchor_request anchor = {.request = {.write = anchor_write}};
	orch_error *error = NULL;
	int32_t r = 0;
	store_lock(journal);
	bool well = journal->timers_anchored || journal->read_only;
	store_unlock(journal);
	if (well)
		return 0;
	do
		r = chain_run(journal, &anchor.request, &error);
	while (r == 0 && anchor.more);
	if (r == 0) {
		store_lock(journal);
		journal->timers_anchored = true;
		store_unlock(journal);
	}
	if (r == ORCH_ENOSPC) {
		orch_error_free(error);
		return 0;
	}
	return pass_error(r, error, reterr);
}

int32_t timer_first_of_clock(orch_journal *journal, const char *boot_id, int64_t after_ms,
			     struct timer_row *ret_row, orch_error **reterr)
{
	static const char sql[] = TIMER_SELECT " WHERE state = 1 AND boot_id = ?1 AND"
					       " boot_due_ms > ?2 ORDER BY boot_due_ms, id LIMIT 1";
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_text(statement, 1, boot_id);
	sqlite3_bind_int64(statement, 2, after_ms);
	return timer_first(journal, statement, ret_row, reterr);
}

/* --- set, done, cancel
 * ------------------------------------------------------------------------------ */

struct set_request {
	struct request request;
	struct timer_row *row;
};

static int32_t set_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct timer_row *row = ((struct set_request *)request)->row;
	struct timer_row found = {0};
	int32_t r = timer_by_name(journal, row->name, &found, reterr);
	if (r < 0 && r != ORCH_ENOENT)
		return r;
	timer_row_clear(&found);
	if (found.round == UINT32_MAX)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL,
				 "timer %s has been set %u times, which is all there are: use "
				 "another name",
				 row->name, found.round);
	if (!store_headroom_take(journal))
		return orch_fail(reterr, ORCH_ENOSPC, 0, "headroom",
				 "%s: the disk has no room left for the end of a timer, so %s is "
				 "not set: free some",
				 journal->path, row->name);
	row->id = found.id;
	row->round = found.round + 1;
	row->created_at_ms = found.id ? found.created_at_ms : row->updated_at_ms;
	return timer_put(journal, row, found.sequence, reterr);
}

static int32_t check_timer_opts(const struct orch_timer_opts *opts, orch_error **reterr)
{
	if (opts->flags)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_timer_opts.flags 0x%x is not known", opts->flags);
	if (!key_is_valid(opts->name))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_timer_opts.name is not 1 to %d bytes of UTF-8", KEY_MAX);
	if (opts->due_at_ms && opts->delay_ms)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "timer %s: due_at_ms and delay_ms are both set: leave one at 0",
				 opts->name);
	if (opts->due_at_ms < 0 || opts->due_at_ms > DUE_MAX_MS)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "timer %s: due_at_ms %" PRId64 " is not between 1970 and 9999",
				 opts->name, opts->due_at_ms);
	if (opts->delay_ms < 0 || opts->delay_ms > DELAY_MAX_MS)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "timer %s: delay_ms %" PRId64 " is not between 0 and 100 years",
				 opts->name, opts->delay_ms);
	if (opts->payload_length && !opts->payload)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "timer %s: the payload is NULL with a length of %zu", opts->name,
				 opts->payload_length);
	if (opts->payload_length > TIMER_PAYLOAD_MAX)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL,
				 "timer %s: the payload has %zu bytes, the limit is %d: store it "
				 "elsewhere and give its name",
				 opts->name, opts->payload_length, TIMER_PAYLOAD_MAX);
	return 0;
}

/* Turns what a caller gives into a row; the delay counts from here. */
static int32_t prepare_row(orch_journal *journal, const struct orch_timer_opts *opts,
			   struct timer_row *row, orch_error **reterr)
{
	if (!timer_set_payload(row, opts->payload, opts->payload_length))
		return orch_fail_memory(reterr);
	strcpy(row->name, opts->name);
	row->state = ORCH_TIMER_PENDING;
	row->delay_ms = opts->delay_ms;
	store_lock(journal);
	struct timer_now now = timer_now(journal);
	row->updated_at_ms = now.wall_ms;
	if (opts->due_at_ms) {
		row->due_at_ms = row->boot_due_ms = opts->due_at_ms;
	} else {
		strcpy(row->boot_id, journal->boot_id);
		row->due_at_ms = now.wall_ms + opts->delay_ms;
		row->boot_due_ms = now.boot_ms + opts->delay_ms;
	}
	store_unlock(journal);
	return 0;
}

static orch_timer *timer_new(orch_journal *journal)
{
	orch_timer *timer = calloc(1, sizeof(*timer));
	if (!timer)
		return NULL;
	atomic_init(&timer->references, 1);
	timer->journal = orch_journal_ref(journal);
	return timer;
}

orch_timer *timer_of_row(orch_journal *journal, struct timer_row *row)
{
	orch_timer *timer = timer_new(journal);
	if (timer)
		timer->row = *row;
	else
		timer_row_clear(row);
	return timer;
}

int32_t orch_timer_set(orch_journal *journal, const struct orch_timer_opts *opts,
		       orch_timer **ret_timer, orch_error **reterr)
{
	struct orch_timer_opts known;
	int32_t r = store_check_writable(journal, reterr);
	if (r == 0)
		r = orch_opts_read(opts, &known, sizeof(known), "orch_timer_opts", reterr);
	if (r == 0)
		r = check_timer_opts(&known, reterr);
	if (r < 0)
		return r;
	orch_timer *timer = timer_new(journal);
	if (!timer)
		return orch_fail_memory(reterr);
	struct set_request set = {.request = {.write = set_write}, .row = &timer->row};
	r = prepare_row(journal, &known, &timer->row, reterr);
	if (r == 0)
		r = chain_run(journal, &set.request, reterr);
	if (r == 0)
		timer_watches_changed(journal);
	if (r < 0 || !ret_timer)
		orch_timer_unref(timer);
	else
		*ret_timer = timer;
	return r;
}

struct end_request {
	struct request request;
	const struct timer_row *known;
	uint32_t state;
	int64_t at_ms;
};

static int32_t end_write(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct end_request *end = (struct end_request *)request;
	struct timer_row row;
	int32_t r = timer_by_id(journal, end->known->id, &row, reterr);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "timer",
				 "%s: timer %s is missing: restore a copy", journal->path,
				 end->known->name);
	if (r < 0)
		return r;
	if (row.state != ORCH_TIMER_PENDING || row.round != end->known->round) {
		r = orch_fail(reterr, ORCH_ESTATE, 0, NULL,
			      "timer %s is %s in round %u: round %u cannot become %s any more",
			      row.name, orch_timer_state_name(row.state), row.round,
			      end->known->round, orch_timer_state_name(end->state));
	} else {
		row.state = end->state;
		row.updated_at_ms = end->at_ms;
		r = timer_put(journal, &row, row.sequence, reterr);
	}
	timer_row_clear(&row);
	return r;
}

static int32_t timer_end(orch_timer *timer, uint32_t state, orch_error **reterr)
{
	if (!timer)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the timer is NULL");
	int32_t r = store_check_writable(timer->journal, reterr);
	if (r < 0)
		return r;
	struct end_request end = {
		.request = {.write = end_write, .completes = true},
		.known = &timer->row,
		.state = state,
		.at_ms = orch_realtime_ms(),
	};
	r = chain_run(timer->journal, &end.request, reterr);
	if (r == 0)
		timer->row.state = state;
	return r;
}

int32_t orch_timer_done(orch_timer *timer, orch_error **reterr)
{
	return timer_end(timer, ORCH_TIMER_DONE, reterr);
}

int32_t orch_timer_cancel(orch_timer *timer, orch_error **reterr)
{
	return timer_end(timer, ORCH_TIMER_CANCELED, reterr);
}

/* --- looking up
 * ------------------------------------------------------------------------------------- */

int32_t orch_timer_find(orch_journal *journal, const char *name, orch_timer **ret_timer,
			orch_error **reterr)
{
	struct timer_row row;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!ret_timer || !key_is_valid(name))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the name of a timer is 1 to %d bytes of UTF-8, and ret_timer not "
				 "NULL",
				 KEY_MAX);
	store_lock(journal);
	r = timer_by_name(journal, name, &row, reterr);
	store_unlock(journal);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, r, 0, NULL, "%s has no timer %s", journal->path, name);
	if (r < 0)
		return r;
	orch_timer *timer = timer_of_row(journal, &row);
	if (!timer)
		return orch_fail_memory(reterr);
	*ret_timer = timer;
	return 0;
}

/* `ret_id` 0: there is none. */
static int32_t last_id(orch_journal *journal, uint64_t *ret_id, orch_error **reterr)
{
	static const char sql[] = "SELECT max(id) FROM timer";
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, sql, &statement, reterr);
	if (r < 0)
		return r;
	int result = sqlite3_step(statement);
	if (result == SQLITE_ROW)
		*ret_id = (uint64_t)sqlite3_column_int64(statement, 0);
	else
		r = store_fail(journal, result, "timers", reterr);
	sqlite3_reset(statement);
	return r;
}

/* The next one of a walk, which began when `last` was the newest. ORCH_ENOENT without an error
 * text. */
static int32_t next_id(orch_journal *journal, uint64_t after, uint64_t last,
		       struct timer_row *ret_row, orch_error **reterr)
{
	static const char sql[] = TIMER_SELECT " WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT 1";
	sqlite3_stmt *statement;
	int32_t r = store_check(journal, reterr);
	if (r == 0)
		r = store_sql(journal, sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_number(statement, 1, after);
	store_bind_number(statement, 2, last);
	return timer_first(journal, statement, ret_row, reterr);
}

int32_t orch_timer_each(orch_journal *journal, orch_timer_each_fn fn, void *userdata,
			orch_error **reterr)
{
	uint64_t after = 0, last = 0;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	store_lock(journal);
	r = last_id(journal, &last, reterr);
	store_unlock(journal);
	while (r == 0) {
		struct timer_row row;
		store_lock(journal);
		r = next_id(journal, after, last, &row, reterr);
		store_unlock(journal);
		if (r < 0)
			return r == ORCH_ENOENT ? 0 : r;
		orch_timer *timer = timer_of_row(journal, &row);
		if (!timer)
			return orch_fail_memory(reterr);
		after = row.id;
		r = fn(userdata, timer);
		orch_timer_unref(timer);
	}
	return r;
}

/* Takes the row over if it is due before the best one. */
static void prefer(const orch_journal *journal, struct timer_row *best, struct timer_row *row,
		   struct timer_now now)
{
	if (!best->id || timer_wait_ms(journal, row, now) < timer_wait_ms(journal, best, now)) {
		timer_row_clear(best);
		*best = *row;
	} else {
		timer_row_clear(row);
	}
}

/* `best->id` 0: none is pending. */
static int32_t next_due(orch_journal *journal, struct timer_now now, struct timer_row *best,
			orch_error **reterr)
{
	struct timer_row row;
	sqlite3_stmt *statement;
	const char *const clocks[] = {"", journal->boot_id};
	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
		int32_t r = timer_first_of_clock(journal, clocks[i], -1, &row, reterr);
		if (r == 0)
			prefer(journal, best, &row, now);
		else if (r != ORCH_ENOENT)
			return r;
	}
	if (journal->timers_anchored)
		return 0;
	int32_t r = timer_of_other_boots(journal, &statement, reterr);
	if (r < 0)
		return r;
	int result;
	while (r == 0 && (result = sqlite3_step(statement)) == SQLITE_ROW) {
		r = timer_read(journal, statement, &row, reterr);
		if (r == 0)
			prefer(journal, best, &row, now);
	}
	if (r == 0 && result != SQLITE_DONE)
		r = store_fail(journal, result, "timers", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

int32_t orch_timer_next(orch_journal *journal, orch_timer **ret_timer, int64_t *ret_wait_ms,
			orch_error **reterr)
{
	struct timer_row row = {0};
	orch_timer *timer = NULL;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!ret_timer || !ret_wait_ms)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_timer or ret_wait_ms is NULL");
	r = timer_anchor(journal, reterr);
	if (r < 0)
		return r;
	store_lock(journal);
	struct timer_now now = timer_now(journal);
	r = next_due(journal, now, &row, reterr);
	int64_t wait = row.id ? timer_wait_ms(journal, &row, now) : -1;
	store_unlock(journal);
	if (r < 0) {
		timer_row_clear(&row);
		return r;
	}
	if (row.id) {
		timer = timer_of_row(journal, &row);
		if (!timer)
			return orch_fail_memory(reterr);
		wait = wait < 0 ? 0 : wait;
	}
	*ret_timer = timer;
	*ret_wait_ms = wait;
	return 0;
}

/* --- what it was
 * ------------------------------------------------------------------------------------ */

orch_timer *orch_timer_ref(orch_timer *timer)
{
	if (timer)
		atomic_fetch_add(&timer->references, 1);
	return timer;
}

orch_timer *orch_timer_unref(orch_timer *timer)
{
	if (!timer || atomic_fetch_sub(&timer->references, 1) != 1)
		return NULL;
	timer_row_clear(&timer->row);
	orch_journal_unref(timer->journal);
	free(timer);
	return NULL;
}

uint64_t orch_timer_id(const orch_timer *timer)
{
	return timer ? timer->row.id : 0;
}

const char *orch_timer_name(const orch_timer *timer)
{
	return timer ? timer->row.name : "";
}

uint32_t orch_timer_state(const orch_timer *timer)
{
	return timer ? timer->row.state : 0;
}

const char *orch_timer_state_name(uint32_t state)
{
	switch (state) {
	case ORCH_TIMER_PENDING:
		return "PENDING";
	case ORCH_TIMER_DONE:
		return "DONE";
	case ORCH_TIMER_CANCELED:
		return "CANCELED";
	default:
		return "?";
	}
}

uint32_t orch_timer_round(const orch_timer *timer)
{
	return timer ? timer->row.round : 0;
}

int64_t orch_timer_due_at_ms(const orch_timer *timer)
{
	return timer ? timer->row.due_at_ms : 0;
}

int64_t orch_timer_delay_ms(const orch_timer *timer)
{
	return timer ? timer->row.delay_ms : 0;
}

const void *orch_timer_payload(const orch_timer *timer, size_t *ret_length)
{
	if (ret_length)
		*ret_length = timer ? timer->row.payload_length : 0;
	return timer ? timer->row.payload : NULL;
}
