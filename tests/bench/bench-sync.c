/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

/*
 * The program's own fsync() and fdatasync() come before the C library's, also for the libraries
 * that it is linked with. So every sync of SQLite and of liborch is counted and timed without
 * touching either.
 */

static atomic_ullong count, total_ns;
static atomic_bool off;

static int timed(long number, int fd)
{
	if (atomic_load(&off))
		return 0;
	double before = bench_now();
	int r = (int)syscall(number, fd);
	atomic_fetch_add(&total_ns, (unsigned long long)((bench_now() - before) * 1e9));
	atomic_fetch_add(&count, 1);
	return r;
}

__attribute__((visibility("default"))) int fsync(int fd)
{
	return timed(SYS_fsync, fd);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	return timed(SYS_fdatasync, fd);
}

struct bench_syncs bench_syncs_so_far(void)
{
	return (struct bench_syncs){.count = atomic_load(&count),
				    .seconds = (double)atomic_load(&total_ns) / 1e9};
}

void bench_syncs_off(void)
{
	atomic_store(&off, true);
}
