/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_JOURNAL_TIMER_H
#define ORCH_JOURNAL_TIMER_H

/* The parts of timers: rows, what their clocks mean, a watch in a context, and what each system's clocks are. */

#include "journal-private.h"

/* --- timer-row.c, timer.c, timer-watch.c
 * --------------------------------------------------------------------------- */

#define TIMER_PAYLOAD_MAX 4096

struct timer_row {
	uint64_t id;
	uint64_t sequence; /* of its last event */
	uint32_t state;
	uint32_t round;
	int64_t due_at_ms;
	int64_t delay_ms;
	int64_t boot_due_ms; /* by the boot clock of `boot_id`, or the wall clock where that is "" */
	int64_t created_at_ms;
	int64_t updated_at_ms;
	char boot_id[64];
	char name[KEY_MAX + 1];
	unsigned char *payload; /* followed by a NUL that is not counted; NULL if there is none */
	size_t payload_length;
};

#define TIMER_SELECT                                                                               \
	"SELECT id, sequence, name, state, round, due_at_ms, delay_ms, boot_id, boot_due_ms,"      \
	" payload, created_at_ms, updated_at_ms FROM timer"

/* Copies. False: out of memory. */
bool timer_set_payload(struct timer_row *row, const void *bytes, size_t length);
void timer_row_clear(struct timer_row *row);
/* The row that a TIMER_SELECT is on. */
int32_t timer_read(orch_journal *journal, sqlite3_stmt *statement, struct timer_row *ret_row,
		   orch_error **reterr);
/* The first that it gives; resets it. These three: ORCH_ENOENT without an error text. */
int32_t timer_first(orch_journal *journal, sqlite3_stmt *statement, struct timer_row *ret_row,
		    orch_error **reterr);
int32_t timer_by_name(orch_journal *journal, const char *name, struct timer_row *ret_row,
		      orch_error **reterr);
int32_t timer_by_id(orch_journal *journal, uint64_t id, struct timer_row *ret_row,
		    orch_error **reterr);
/* The row and its event. `before`: the sequence number that it has now; 0: it is new, and gets its id. */
int32_t timer_put(orch_journal *journal, struct timer_row *row, uint64_t before,
		  orch_error **reterr);

struct timer_now {
	int64_t wall_ms, boot_ms;
};

/* Takes the row over (also on failure). NULL: out of memory. */
orch_timer *timer_of_row(orch_journal *journal, struct timer_row *row);
/* These two while locked. */
struct timer_now timer_now(orch_journal *journal);
/* How long until it is due; negative: it has been for so long. */
int64_t timer_wait_ms(const orch_journal *journal, const struct timer_row *row,
		      struct timer_now now);
/* The first look after a reboot: see timer.c. Not while locked. On a full disk 0, and not journal->timers_anchored. */
int32_t timer_anchor(orch_journal *journal, orch_error **reterr);
/* Pending ones of other boots, to be stepped through and reset. */
int32_t timer_of_other_boots(orch_journal *journal, sqlite3_stmt **ret_statement,
			     orch_error **reterr);
/* The pending one of a clock that is due next after `after_ms`. ORCH_ENOENT without an error text. */
int32_t timer_first_of_clock(orch_journal *journal, const char *boot_id, int64_t after_ms,
			     struct timer_row *ret_row, orch_error **reterr);
/* A timer was set: the watches look again. Any thread, not inside a transaction. */
void timer_watches_changed(orch_journal *journal);

/* --- linux/clock.c, darwin/clock.c
 * --------------------------------------------------------------------------------- */

/* Since the start of the system, suspend included: no step of the wall clock moves it. */
int64_t clock_boot_ms(void);
/* Which start it counts from. "": not known. */
void clock_boot_id(char *id, size_t size);

#define CLOCK_ALARM_FDS 2

/* Descriptors that become readable when it is time to look at the clocks; -1 where the system has none. */
struct clock_alarm {
	int fds[CLOCK_ALARM_FDS];
};

/* 0, or -1 with errno. */
int clock_alarm_open(struct clock_alarm *alarm);
void clock_alarm_close(struct clock_alarm *alarm);
/*
 * They become readable at these moments (-1: none) of the wall clock and the boot clock, and besides when the wall
 * clock is stepped. Returns in how many milliseconds to look in any case; -1: never.
 */
int64_t clock_alarm_set(struct clock_alarm *alarm, int64_t wall_due_ms, int64_t boot_due_ms);
/* Takes what made it readable. */
void clock_alarm_drain(int fd);

#endif
