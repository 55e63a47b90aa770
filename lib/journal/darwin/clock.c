/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "core/os.h"

#include "../timer.h"

/* Nothing tells that the wall clock was stepped, or that the machine slept: it is looked at so
 * often. */
#define LOOK_MS 10000

/*
 * mach_continuous_time(3), which goes on in sleep. CLOCK_MONOTONIC does so as well, but is computed
 * from the wall clock and kern.boottime, which are not stepped at the same moment
 * (clock_gettime(3)).
 */
int64_t clock_boot_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void clock_boot_id(char *id, size_t size)
{
	orch_boot_id(id, size);
}

int clock_alarm_open(struct clock_alarm *alarm)
{
	*alarm = (struct clock_alarm){.fds = {-1, -1}};
	return 0;
}

void clock_alarm_close(struct clock_alarm *alarm)
{
	(void)alarm;
}

static int64_t sooner(int64_t wait_ms, int64_t due_ms, int64_t now_ms)
{
	if (due_ms < 0 || due_ms - now_ms >= wait_ms)
		return wait_ms;
	return due_ms > now_ms ? due_ms - now_ms : 0;
}

int64_t clock_alarm_set(struct clock_alarm *alarm, int64_t wall_due_ms, int64_t boot_due_ms)
{
	(void)alarm;
	if (wall_due_ms < 0 && boot_due_ms < 0)
		return -1;
	int64_t wait = sooner(LOOK_MS, wall_due_ms, orch_realtime_ms());
	return sooner(wait, boot_due_ms, clock_boot_ms());
}

void clock_alarm_drain(int fd)
{
	(void)fd;
}
