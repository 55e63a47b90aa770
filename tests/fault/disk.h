/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULT_DISK_H
#define FAULT_DISK_H

/*
 * A disk that fails, below SQLite's own VFS and below the library: the calls by which a process changes files stand in the
 * test's binary, before libc's. What was not synced is known, so the power can fail at any of them; and any of them can
 * give an error, be interrupted, or do a part only.
 */

#include <stdbool.h>
#include <stdint.h>

/* What happens at the n-th call that counts. */
enum strike {
	STRIKE_NOTHING, /* it is counted only */
	STRIKE_POWER,   /* the process ends, and what was not synced is damaged as `loss` says */
	STRIKE_ERROR,   /* it fails with `error` */
	STRIKE_FROM,    /* it and every later one fail with `error` */
	STRIKE_SHORT    /* a write does half of it and says so */
};

enum loss {
	LOSS_ALL,   /* nothing of what was not synced is there */
	LOSS_NONE,  /* all of it is */
	LOSS_MIXED, /* each sector, size and name by itself: new, old, torn or garbled */
	LOSS_COUNT
};

struct disk_plan {
	char folders[2][64]; /* what lies in them counts */
	enum strike strike;
	uint64_t at; /* 1: the first call that counts */
	int error;
	enum loss loss;
	uint64_t seed;
	bool lies; /* syncs succeed and make nothing durable: for the positive control */
};

/* The exit status of a process whose power failed. */
#define DISK_POWER_FAILED 77

/* Counts from now on. In the process that is to be struck. */
void disk_arm(const struct disk_plan *plan);
/* Nothing counts any more. How many did. */
uint64_t disk_disarm(void);

#endif
