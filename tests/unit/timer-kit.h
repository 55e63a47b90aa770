/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIMER_KIT_H
#define TIMER_KIT_H

/*
 * What the tests of timers share. The library is linked statically, and its clocks, the boot's id
 * and its timerfds are those below (--wrap): a clock is stepped and a machine rebooted here without
 * touching the real ones. Untouched, they are the real ones.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>

#include <orch/timer.h>

#include "../crash/journal-kit.h"

#define HOUR ((int64_t)3600000)
#define DAY (24 * HOUR)
#define YEAR (365 * DAY)

/* --- a machine of our own
 * --------------------------------------------------------------------------- */

static struct {
	bool own; /* the clocks below count, and stand still */
	int64_t wall_ms, boot_ms;
	const char *boot_id;
	int wall_fd, boot_fd;		  /* what timerfd_create() gave instead */
	int64_t wall_due_ms, boot_due_ms; /* what they were set to; -1: disarmed */
	int wall_flags;
	bool stepped; /* the next read() of wall_fd says that the clock was stepped */
} machine = {.wall_fd = -1, .boot_fd = -1, .boot_id = "first-boot"};

int64_t __real_orch_realtime_ms(void);
int64_t __wrap_orch_realtime_ms(void);
int64_t __real_clock_boot_ms(void);
int64_t __wrap_clock_boot_ms(void);
void __real_orch_boot_id(char *id, size_t size);
void __wrap_orch_boot_id(char *id, size_t size);
int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *when,
			   struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when,
			   struct itimerspec *old);
ssize_t __real_read(int fd, void *bytes, size_t length);
ssize_t __wrap_read(int fd, void *bytes, size_t length);

int64_t __wrap_orch_realtime_ms(void)
{
	return machine.own ? machine.wall_ms : __real_orch_realtime_ms();
}

int64_t __wrap_clock_boot_ms(void)
{
	return machine.own ? machine.boot_ms : __real_clock_boot_ms();
}

void __wrap_orch_boot_id(char *id, size_t size)
{
	if (machine.own)
		snprintf(id, size, "%s", machine.boot_id);
	else
		__real_orch_boot_id(id, size);
}

/* Not the mirror's: that one is of CLOCK_MONOTONIC. */
int __wrap_timerfd_create(int clock, int flags)
{
	if (!machine.own || clock == CLOCK_MONOTONIC)
		return __real_timerfd_create(clock, flags);
	ck_assert_int_eq(flags, TFD_CLOEXEC | TFD_NONBLOCK);
	ck_assert(clock == CLOCK_REALTIME || clock == CLOCK_BOOTTIME);
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*(clock == CLOCK_REALTIME ? &machine.wall_fd : &machine.boot_fd) = fd;
	return fd;
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old)
{
	if (fd != machine.wall_fd && fd != machine.boot_fd)
		return __real_timerfd_settime(fd, flags, when, old);
	int64_t due =
		when->it_value.tv_sec || when->it_value.tv_nsec
			? (int64_t)when->it_value.tv_sec * 1000 + when->it_value.tv_nsec / 1000000
			: -1;
	ck_assert_int_eq(when->it_interval.tv_sec + when->it_interval.tv_nsec, 0);
	ck_assert(flags & TFD_TIMER_ABSTIME);
	if (fd == machine.boot_fd) {
		machine.boot_due_ms = due;
	} else {
		machine.wall_due_ms = due;
		machine.wall_flags = flags;
	}
	return 0;
}

ssize_t __wrap_read(int fd, void *bytes, size_t length)
{
	ssize_t count = __real_read(fd, bytes, length);
	if (fd < 0 || fd != machine.wall_fd || !machine.stepped)
		return count;
	machine.stepped = false;
	errno = ECANCELED;
	return -1;
}

/* 2026, a day after the start of the system. */
static inline void own_machine(void)
{
	machine.own = true;
	machine.wall_ms = 1767225600000;
	machine.boot_ms = DAY;
	machine.boot_id = "first-boot";
	machine.wall_fd = machine.boot_fd = -1;
	machine.wall_due_ms = machine.boot_due_ms = -1;
	machine.stepped = false;
}

/* As the kernel does: what is due becomes readable. */
static inline void ring(void)
{
	uint64_t one = 1;
	if (machine.wall_fd >= 0 && machine.wall_due_ms >= 0 &&
	    machine.wall_due_ms <= machine.wall_ms)
		ck_assert_int_eq(write(machine.wall_fd, &one, sizeof(one)), sizeof(one));
	if (machine.boot_fd >= 0 && machine.boot_due_ms >= 0 &&
	    machine.boot_due_ms <= machine.boot_ms)
		ck_assert_int_eq(write(machine.boot_fd, &one, sizeof(one)), sizeof(one));
}

static inline void pass(int64_t ms)
{
	machine.wall_ms += ms;
	machine.boot_ms += ms;
	ring();
}

/* Somebody sets the wall clock. */
static inline void step(int64_t ms)
{
	uint64_t one = 1;
	machine.wall_ms += ms;
	machine.stepped = machine.wall_fd >= 0 && machine.wall_due_ms >= 0 &&
			  machine.wall_flags & TFD_TIMER_CANCEL_ON_SET;
	if (machine.stepped)
		ck_assert_int_eq(write(machine.wall_fd, &one, sizeof(one)), sizeof(one));
}

/* Down for `ms`, as the wall clock tells it, which may be wrong. Nobody has the journal open. */
static inline void reboot_after(int64_t ms, const char *boot_id)
{
	machine.wall_ms += ms;
	machine.boot_ms = 10000;
	machine.boot_id = boot_id;
}

/* --- short forms
 * ------------------------------------------------------------------------------------ */

static inline int32_t try_set(orch_journal *journal, const char *name, int64_t due_at_ms,
			      int64_t delay_ms, const char *payload, orch_timer **timer,
			      orch_error **reterr)
{
	struct orch_timer_opts opts;
	orch_timer_opts_init(&opts, sizeof(opts));
	opts.name = name;
	opts.due_at_ms = due_at_ms;
	opts.delay_ms = delay_ms;
	opts.payload = payload;
	opts.payload_length = payload ? strlen(payload) : 0;
	return orch_timer_set(journal, &opts, timer, reterr);
}

static inline orch_timer *set_due(orch_journal *journal, const char *name, int64_t due_at_ms)
{
	orch_timer *timer = NULL;
	OK(try_set(journal, name, due_at_ms, 0, "due", &timer, &error));
	return timer;
}

static inline orch_timer *set_delay(orch_journal *journal, const char *name, int64_t delay_ms)
{
	orch_timer *timer = NULL;
	OK(try_set(journal, name, 0, delay_ms, "delay", &timer, &error));
	return timer;
}

static inline orch_timer *look_up(orch_journal *journal, const char *name)
{
	orch_timer *timer = NULL;
	OK(orch_timer_find(journal, name, &timer, &error));
	return timer;
}

static inline void is_in(orch_journal *journal, const char *name, uint32_t state, uint32_t round)
{
	orch_timer *timer = look_up(journal, name);
	ck_assert_str_eq(orch_timer_name(timer), name);
	ck_assert_uint_eq(orch_timer_state(timer), state);
	ck_assert_uint_eq(orch_timer_round(timer), round);
	orch_timer_unref(timer);
}

/* `name` NULL: none is pending. */
static inline void next_is(orch_journal *journal, const char *name, int64_t wait_ms)
{
	orch_timer *timer = NULL;
	int64_t wait = -7;
	OK(orch_timer_next(journal, &timer, &wait, &error));
	if (name) {
		ck_assert_ptr_nonnull(timer);
		ck_assert_str_eq(orch_timer_name(timer), name);
	} else {
		ck_assert_ptr_null(timer);
	}
	ck_assert_int_eq(wait, wait_ms);
	orch_timer_unref(timer);
}

static inline void verifies(orch_journal *journal)
{
	OK(orch_journal_verify(journal, NULL, &error));
}

/* The lock file taken away poisons the next commit. */
static inline void poison(orch_journal *journal)
{
	ck_assert_int_eq(unlink(lock_path), 0);
	FAILS(ORCH_EPOISONED, orch_journal_record(journal, "k", "poison", NULL, 0, NULL, &error));
}

/* In memory: their commits are many, and none of their business here. */
static inline void setup_in_memory(void)
{
	if (access("/dev/shm", W_OK) == 0)
		kit_base = "/dev/shm";
	kit_setup();
}

#endif
