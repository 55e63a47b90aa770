/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>

#include "core/os.h"

#include "../timer.h"

/* Where a timerfd cannot be armed the clocks are looked at so often. */
#define UNARMED_MS 1000

int64_t clock_boot_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A time namespace has a boot clock of its own (time_namespaces(7)), so it counts from another
 * start. */
void clock_boot_id(char *id, size_t size)
{
	struct stat space;
	orch_boot_id(id, size);
	size_t length = strlen(id);
	if (length && stat("/proc/self/ns/time", &space) == 0)
		snprintf(id + length, size - length, "/%llu", (unsigned long long)space.st_ino);
}

int clock_alarm_open(struct clock_alarm *alarm)
{
	alarm->fds[0] = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	alarm->fds[1] = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (alarm->fds[0] >= 0 && alarm->fds[1] >= 0)
		return 0;
	int error = errno;
	clock_alarm_close(alarm);
	errno = error;
	return -1;
}

void clock_alarm_close(struct clock_alarm *alarm)
{
	for (int i = 0; i < CLOCK_ALARM_FDS; i++)
		orch_close_fd(&alarm->fds[i]);
}

static bool arm(int fd, int flags, int64_t due_ms)
{
	struct itimerspec when = {0};
	if (due_ms >= 0) {
		when.it_value.tv_sec = due_ms / 1000;
		/* All zero would disarm it. */
		when.it_value.tv_nsec = due_ms % 1000 * 1000000 + 1;
	}
	/* ECANCELED: armed, and the clock was stepped since the last time (timerfd_create(2)). */
	return timerfd_settime(fd, flags, &when, NULL) == 0 || errno == ECANCELED;
}

int64_t clock_alarm_set(struct clock_alarm *alarm, int64_t wall_due_ms, int64_t boot_due_ms)
{
	bool wall = arm(alarm->fds[0], TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, wall_due_ms);
	bool boot = arm(alarm->fds[1], TFD_TIMER_ABSTIME, boot_due_ms);
	return wall && boot ? -1 : UNARMED_MS;
}

void clock_alarm_drain(int fd)
{
	uint64_t count;
	/* ECANCELED where the clock was stepped: what to do is the same. */
	(void)!read(fd, &count, sizeof(count));
}
