/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "timer.h"

/*
 * Due timers in a context. One look lists those that are due and were not told yet, and some are
 * told in each turn of the loop, so that many of them do not keep others waiting. Each is read
 * again before it is told, because it may have been ended or set anew meanwhile. When all were told
 * there is another look, and where that finds nothing the alarm is set.
 *
 * Other threads touch only `ended`, and under the store's lock the list of the journal's watches
 * with `posted`.
 */

#define TOLD_PER_TURN 32
/* After something went wrong that may pass: no memory, or a row that cannot be read. */
#define RETRY_MS 1000
/* How often the clocks are looked at while what is left of the delays after a reboot could not be
 * written down. */
#define UNANCHORED_MS 10000

struct due {
	uint64_t id;
	uint32_t round;
	bool seen; /* by this look */
	int64_t wait_ms;
};

struct due_list {
	struct due *rows;
	size_t count, capacity;
};

struct orch_timer_watch {
	orch_journal *journal;
	orch_ctx *ctx;
	orch_timer_due_fn fn;
	void *userdata;
	orch_destroy_fn destroy;
	struct orch_timer_watch *next; /* of the same journal */

	struct clock_alarm alarm;
	orch_source *alarm_sources[CLOCK_ALARM_FDS];
	orch_source *turn; /* the next look */

	struct due_list due; /* from `at` on they are still to be told */
	size_t at;
	struct due_list told; /* by id; those that may come up again */
	int32_t trouble;      /* the last one, so that it is logged once */
	bool busy;	      /* inside a turn: then it goes after that */
	bool goes;
	atomic_bool ended; /* nothing is told any more */

	struct orch_letter letter; /* a timer was set */
	bool posted;		   /* under the store's lock: it is on its way */
	bool empty;		   /* all else is gone, and the letter has to arrive yet */
};

/* --- lists
 * ------------------------------------------------------------------------------------------ */

static bool list_grow(struct due_list *list)
{
	if (list->count < list->capacity)
		return true;
	size_t capacity = list->capacity ? 2 * list->capacity : 16;
	struct due *grown = realloc(list->rows, capacity * sizeof(*grown));
	if (!grown)
		return false;
	list->rows = grown;
	list->capacity = capacity;
	return true;
}

/* Where it is, or has to be put. */
static size_t told_place(const struct due_list *told, uint64_t id)
{
	size_t low = 0, high = told->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (told->rows[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct due *told_find(const struct due_list *told, uint64_t id, uint32_t round)
{
	size_t place = told_place(told, id);
	bool found = place < told->count && told->rows[place].id == id &&
		     told->rows[place].round == round;
	return found ? &told->rows[place] : NULL;
}

/* False: out of memory. */
static bool told_add(struct due_list *told, const struct due *due)
{
	size_t place = told_place(told, due->id);
	if (place == told->count || told->rows[place].id != due->id) {
		if (!list_grow(told))
			return false;
		memmove(told->rows + place + 1, told->rows + place,
			(told->count - place) * sizeof(*told->rows));
		told->count++;
	}
	told->rows[place] = *due;
	return true;
}

/* --- a look
 * ----------------------------------------------------------------------------------------- */

static bool is_poisoned(int32_t code)
{
	return code == ORCH_EPOISONED || code == ORCH_EFORKED;
}

/* True: it is pending in this round. While locked. */
static int32_t still_pending(orch_journal *journal, const struct due *due, bool *ret_pending)
{
	struct timer_row row;
	int32_t r = timer_by_id(journal, due->id, &row, NULL);
	*ret_pending = r == 0 && row.state == ORCH_TIMER_PENDING && row.round == due->round;
	if (r == 0)
		timer_row_clear(&row);
	return r == ORCH_ENOENT ? 0 : r;
}

/* One that is due: to be told, or it was. */
static int32_t note_due(orch_timer_watch *watch, const struct due *due, orch_error **reterr)
{
	struct due *told = told_find(&watch->told, due->id, due->round);
	if (told) {
		told->seen = true;
		return 0;
	}
	if (!list_grow(&watch->due))
		return orch_fail_memory(reterr);
	watch->due.rows[watch->due.count++] = *due;
	return 0;
}

static int32_t list_clock(orch_timer_watch *watch, const char *boot_id, int64_t now_ms,
			  orch_error **reterr)
{
	static const char sql[] = "SELECT id, round, boot_due_ms FROM timer"
				  " WHERE state = 1 AND boot_id = ?1 AND boot_due_ms <= ?2";
	orch_journal *journal = watch->journal;
	sqlite3_stmt *statement;
	int32_t r = store_sql(journal, sql, &statement, reterr);
	if (r < 0)
		return r;
	store_bind_text(statement, 1, boot_id);
	sqlite3_bind_int64(statement, 2, now_ms);
	int result = SQLITE_DONE;
	while (r == 0 && (result = sqlite3_step(statement)) == SQLITE_ROW) {
		struct due due = {
			.id = (uint64_t)sqlite3_column_int64(statement, 0),
			.round = (uint32_t)sqlite3_column_int64(statement, 1),
			.wait_ms = sqlite3_column_int64(statement, 2) - now_ms,
		};
		r = note_due(watch, &due, reterr);
	}
	if (r == 0 && result != SQLITE_DONE)
		r = store_fail(journal, result, "timers", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

/* Where timer_anchor() found no room on the disk. */
static int32_t list_other_boots(orch_timer_watch *watch, struct timer_now now, orch_error **reterr)
{
	orch_journal *journal = watch->journal;
	sqlite3_stmt *statement;
	int32_t r = timer_of_other_boots(journal, &statement, reterr);
	if (r < 0)
		return r;
	int result = SQLITE_DONE;
	while (r == 0 && (result = sqlite3_step(statement)) == SQLITE_ROW) {
		struct timer_row row;
		r = timer_read(journal, statement, &row, reterr);
		if (r < 0)
			break;
		struct due due = {
			.id = row.id,
			.round = row.round,
			.wait_ms = timer_wait_ms(journal, &row, now),
		};
		timer_row_clear(&row);
		if (due.wait_ms <= 0)
			r = note_due(watch, &due, reterr);
	}
	if (r == 0 && result != SQLITE_DONE)
		r = store_fail(journal, result, "timers", reterr);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return r;
}

/*
 * Forgets those that were told and cannot come up again. One that this look did not see may be
 * ended, or not due any more because the clock was stepped back.
 */
static int32_t forget(orch_timer_watch *watch)
{
	struct due_list *told = &watch->told;
	size_t kept = 0;
	int32_t r = 0;
	for (size_t i = 0; i < told->count; i++) {
		bool pending = true;
		if (!told->rows[i].seen && r == 0)
			r = still_pending(watch->journal, &told->rows[i], &pending);
		told->rows[i].seen = false;
		if (pending || r < 0)
			told->rows[kept++] = told->rows[i];
	}
	told->count = kept;
	return r;
}

/* The longest overdue first. */
static int by_wait(const void *left, const void *right)
{
	const struct due *one = left, *other = right;
	if (one->wait_ms != other->wait_ms)
		return one->wait_ms < other->wait_ms ? -1 : 1;
	return one->id < other->id ? -1 : one->id > other->id;
}

/* When a clock is to be looked at again; -1: no timer counts by it. */
static int32_t next_of_clock(orch_journal *journal, const char *boot_id, int64_t now_ms,
			     int64_t *ret_due_ms, orch_error **reterr)
{
	struct timer_row row;
	int32_t r = timer_first_of_clock(journal, boot_id, now_ms, &row, reterr);
	*ret_due_ms = r == 0 ? row.boot_due_ms : -1;
	if (r == 0)
		timer_row_clear(&row);
	return r == ORCH_ENOENT ? 0 : r;
}

struct moments {
	int64_t wall_ms, boot_ms;
};

/* Fills the list of what is to be told. While locked. */
static int32_t list_due(orch_timer_watch *watch, struct moments *ret_next, orch_error **reterr)
{
	orch_journal *journal = watch->journal;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	struct timer_now now = timer_now(journal);
	r = list_clock(watch, "", now.wall_ms, reterr);
	if (r == 0)
		r = list_clock(watch, journal->boot_id, now.boot_ms, reterr);
	if (r == 0 && !journal->timers_anchored)
		r = list_other_boots(watch, now, reterr);
	if (r == 0)
		r = forget(watch);
	if (r == 0)
		r = next_of_clock(journal, "", now.wall_ms, &ret_next->wall_ms, reterr);
	if (r == 0)
		r = next_of_clock(journal, journal->boot_id, now.boot_ms, &ret_next->boot_ms,
				  reterr);
	return r;
}

/* Sets the alarm where there is nothing to tell now. */
static int32_t look(orch_timer_watch *watch, orch_error **reterr)
{
	struct moments next;
	int32_t r = timer_anchor(watch->journal, reterr);
	if (r < 0)
		return r;
	watch->at = watch->due.count = 0;
	store_lock(watch->journal);
	r = list_due(watch, &next, reterr);
	bool anchored = watch->journal->timers_anchored;
	store_unlock(watch->journal);
	if (r < 0) {
		watch->due.count = 0;
		return r;
	}
	if (watch->due.count) {
		qsort(watch->due.rows, watch->due.count, sizeof(*watch->due.rows), by_wait);
		return 0;
	}
	int64_t wait = clock_alarm_set(&watch->alarm, next.wall_ms, next.boot_ms);
	if (!anchored && (wait < 0 || wait > UNANCHORED_MS))
		wait = UNANCHORED_MS;
	orch_source_timer_set(watch->turn, wait);
	return 0;
}

/* `ret_timer` NULL: it is not to be told any more. */
static int32_t read_due(orch_timer_watch *watch, const struct due *due, orch_timer **ret_timer,
			orch_error **reterr)
{
	orch_journal *journal = watch->journal;
	struct timer_row row = {0};
	store_lock(journal);
	int32_t r = store_check(journal, reterr);
	if (r == 0)
		r = timer_by_id(journal, due->id, &row, reterr);
	bool due_now = r == 0 && row.state == ORCH_TIMER_PENDING && row.round == due->round &&
		       timer_wait_ms(journal, &row, timer_now(journal)) <= 0;
	store_unlock(journal);
	*ret_timer = NULL;
	if (due_now)
		*ret_timer = timer_of_row(journal, &row);
	else
		timer_row_clear(&row);
	if (due_now && !*ret_timer)
		return orch_fail_memory(reterr);
	return r == ORCH_ENOENT ? 0 : r;
}

static int32_t tell(orch_timer_watch *watch, orch_error **reterr)
{
	for (int i = 0; i < TOLD_PER_TURN && watch->at < watch->due.count && !watch->ended; i++) {
		const struct due *due = &watch->due.rows[watch->at];
		orch_timer *timer;
		int32_t r = read_due(watch, due, &timer, reterr);
		if (r == 0 && timer && !told_add(&watch->told, due)) {
			orch_timer_unref(timer);
			r = orch_fail_memory(reterr);
		}
		if (r < 0)
			return r;
		watch->at++;
		if (timer)
			watch->fn(watch->userdata, timer);
		orch_timer_unref(timer);
	}
	return 0;
}

static void trouble(orch_timer_watch *watch, int32_t code, const orch_error *error)
{
	if (code != watch->trouble)
		orch_ctx_logf(watch->ctx, ORCH_LOG_ERROR, "timers of %s: %s", watch->journal->path,
			      orch_error_message(error));
	watch->trouble = code;
	if (is_poisoned(code))
		clock_alarm_set(&watch->alarm, -1, -1);
	orch_source_timer_set(watch->turn, is_poisoned(code) ? -1 : RETRY_MS);
}

static void watch_free(orch_timer_watch *watch);

static void on_turn(void *userdata)
{
	orch_timer_watch *watch = userdata;
	orch_error *error = NULL;
	int32_t r = 0;
	watch->busy = true;
	if (watch->at == watch->due.count)
		r = look(watch, &error);
	bool more = r == 0 && watch->at < watch->due.count;
	if (more)
		r = tell(watch, &error);
	watch->busy = false;
	if (watch->goes) {
		watch_free(watch);
	} else if (r < 0) {
		trouble(watch, r, error);
	} else {
		watch->trouble = 0;
		if (more)
			orch_source_timer_set(watch->turn, 0);
	}
	orch_error_free(error);
}

/* In the next turn: what is told in one turn is told there only. */
static void look_soon(orch_timer_watch *watch)
{
	if (!is_poisoned(watch->trouble))
		orch_source_timer_set(watch->turn, 0);
}

static void on_wall_alarm(void *userdata, uint32_t events)
{
	orch_timer_watch *watch = userdata;
	(void)events;
	clock_alarm_drain(watch->alarm.fds[0]);
	look_soon(watch);
}

static void on_boot_alarm(void *userdata, uint32_t events)
{
	orch_timer_watch *watch = userdata;
	(void)events;
	clock_alarm_drain(watch->alarm.fds[1]);
	look_soon(watch);
}

/* --- waking
 * ----------------------------------------------------------------------------------------- */

static void on_letter(struct orch_letter *letter, bool open)
{
	orch_timer_watch *watch =
		(orch_timer_watch *)((char *)letter - offsetof(orch_timer_watch, letter));
	if (watch->empty) {
		free(watch);
		return;
	}
	store_lock(watch->journal);
	watch->posted = false;
	store_unlock(watch->journal);
	if (open)
		look_soon(watch);
}

void timer_watches_changed(orch_journal *journal)
{
	store_lock(journal);
	for (orch_timer_watch *watch = journal->timer_watches; watch; watch = watch->next)
		if (!watch->posted)
			watch->posted =
				orch_mailbox_post(orch_ctx_mailbox(watch->ctx), &watch->letter);
	store_unlock(journal);
}

/* --- its life
 * --------------------------------------------------------------------------------------- */

/* From here on no letter is posted. True: one is on its way. */
static bool unlink_watch(orch_timer_watch *watch)
{
	store_lock(watch->journal);
	orch_timer_watch **link = &watch->journal->timer_watches;
	while (*link && *link != watch)
		link = &(*link)->next;
	if (*link)
		*link = watch->next;
	bool posted = watch->posted;
	store_unlock(watch->journal);
	return posted;
}

static void watch_free(orch_timer_watch *watch)
{
	/* In a forked child the lock may be held by a thread that is not there, and a number may be
	 * another file. */
	orch_ctx *ctx = watch->ctx;
	bool forked = orch_ctx_forked(ctx);
	watch->empty = !forked && unlink_watch(watch);
	for (int i = 0; i < CLOCK_ALARM_FDS; i++)
		orch_source_remove(watch->alarm_sources[i]);
	orch_source_remove(watch->turn);
	if (!forked)
		clock_alarm_close(&watch->alarm);
	free(watch->due.rows);
	free(watch->told.rows);
	if (watch->destroy)
		watch->destroy(watch->userdata);
	orch_journal_unref(watch->journal);
	if (!watch->empty)
		free(watch);
	orch_ctx_unref(ctx);
}

static void watch_end(void *object)
{
	orch_timer_watch *watch = object;
	if (watch->busy)
		watch->goes = true;
	else
		watch_free(watch);
}

orch_timer_watch *orch_timer_watch_unref(orch_timer_watch *watch)
{
	if (!watch)
		return NULL;
	watch->ended = true;
	orch_ctx_destroy_later(watch->ctx, watch_end, watch);
	return NULL;
}

static int32_t open_sources(orch_timer_watch *watch, orch_error **reterr)
{
	static const orch_io_fn on_alarm[CLOCK_ALARM_FDS] = {on_wall_alarm, on_boot_alarm};
	if (clock_alarm_open(&watch->alarm) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "timers",
				 "no descriptors for the timers of %s", watch->journal->path);
	int32_t r = 0;
	for (int i = 0; r == 0 && i < CLOCK_ALARM_FDS; i++)
		if (watch->alarm.fds[i] >= 0)
			r = orch_source_io(watch->ctx, watch->alarm.fds[i], ORCH_IO_READ,
					   on_alarm[i], watch, &watch->alarm_sources[i], reterr);
	/* The first look, at those that are due already. */
	return r < 0 ? r : orch_source_timer(watch->ctx, 0, on_turn, watch, &watch->turn, reterr);
}

static int32_t check_watch(orch_journal *journal, orch_ctx *ctx, orch_timer_due_fn fn,
			   orch_timer_watch **ret_watch, orch_error **reterr)
{
	int32_t r = store_check_writable(journal, reterr);
	if (r == 0)
		r = orch_ctx_check(ctx, reterr);
	if (r == 0 && (!fn || !ret_watch))
		r = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "fn or ret_watch is NULL");
	return r;
}

int32_t orch_timer_watch_new(orch_journal *journal, orch_ctx *ctx, orch_timer_due_fn fn,
			     void *userdata, orch_destroy_fn destroy, orch_timer_watch **ret_watch,
			     orch_error **reterr)
{
	int32_t r = check_watch(journal, ctx, fn, ret_watch, reterr);
	orch_timer_watch *watch = r == 0 ? calloc(1, sizeof(*watch)) : NULL;
	if (r == 0 && !watch)
		r = orch_fail_memory(reterr);
	if (r < 0) {
		if (destroy)
			destroy(userdata);
		return r;
	}
	watch->journal = orch_journal_ref(journal);
	watch->ctx = orch_ctx_ref(ctx);
	watch->fn = fn;
	watch->userdata = userdata;
	watch->destroy = destroy;
	watch->alarm = (struct clock_alarm){.fds = {-1, -1}};
	watch->letter.arrive = on_letter;
	atomic_init(&watch->ended, false);
	r = open_sources(watch, reterr);
	if (r < 0) {
		watch_free(watch);
		return r;
	}
	store_lock(journal);
	watch->next = journal->timer_watches;
	journal->timer_watches = watch;
	store_unlock(journal);
	*ret_watch = watch;
	return 0;
}
