/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"

void close_cleanup(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

void close_fd(int *fd)
{
	close_cleanup(fd);
	*fd = -1;
}

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

int64_t realtime_ms(void)
{
	return clock_us(CLOCK_REALTIME) / 1000;
}

void setup_fail(struct setup_error *error, int32_t code, int os_errno, const char *step,
		const char *format, ...)
{
	memset(error, 0, sizeof(*error));
	error->code = code;
	error->os_errno = os_errno;
	snprintf(error->step, sizeof(error->step), "%s", step);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
}
