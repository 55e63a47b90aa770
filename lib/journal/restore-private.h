/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_RESTORE_PRIVATE_H
#define ORCH_RESTORE_PRIVATE_H

/*
 * A restoration, in the order of its steps; a kill may come anywhere, and running it again finishes it:
 *
 *	1. PATH.lock is taken. What an earlier run left is settled.
 *	2. The backup is copied to PATH.new, opened and verified there.
 *	3. The highest epoch and generation are learned: backup, anchor, and the journal that is replaced.
 *	4. One transaction makes PATH.new the journal of a new epoch (restore-epoch.c).
 *	5. PATH.new is one synced file, and gets the name PATH.restored: it is whole.
 *	6. The journal that is replaced is made one file, too, its log carried over into it.
 *	7. The two change names, at once (renameat2(2), RENAME_EXCHANGE): PATH is the new one. This is the
 *	   moment that counts.
 *	8. The old one, now under PATH.restored, gets the name PATH.replaced-EPOCH-SEQUENCE.
 *	9. The anchor is written. Until then the journal says which point of the anchor it superseded.
 *
 * Where the old one is damaged, or the file system cannot exchange names, step 7 moves database and log away
 * and then PATH.restored to PATH. Between them PATH is missing, and an open refuses that and says what to do.
 */

#include "journal-private.h"

struct restore {
	uint32_t flags;
	char *backup_path;
	char *path, *wal_path; /* of the journal */
	char *waiting;	       /* PATH.restored */
	orch_journal *made;    /* at PATH.new; holds the lock of PATH */
	orch_journal *old;     /* at PATH; NULL: there is none, or it cannot be read */
	bool exists;	       /* something has to be moved away */
	bool interrupted;      /* PATH is missing, because an earlier run ended between two names */
	struct anchor anchor;
	bool anchored; /* there was an anchor, and `row.superseded` is its point */

	uint64_t known_epoch, known_generation;
	struct instance_row instance;
	struct epoch_row row;
	uint64_t lost;
	uint32_t unknown, voided;
	char *replaced; /* NULL: nothing was */
};

/* Turns the verified copy into the journal of a new epoch: `row` and `instance` say which. */
int32_t restore_begin_epoch(struct restore *restore, orch_error **reterr);

/* Closes what was only looked at: its bytes stay. Takes NULL. */
void restore_close(orch_journal *journal);
/* Removes or puts aside what an earlier run left under PATH.restored. */
int32_t restore_settle(struct restore *restore, orch_error **reterr);
/* Opens what will be replaced, if it can be. */
int32_t restore_open_old(struct restore *restore, orch_error **reterr);
/* Says where the old one goes. */
int32_t restore_name_replaced(struct restore *restore, orch_error **reterr);
/* Steps 5 to 8. */
int32_t restore_place(struct restore *restore, orch_error **reterr);

#endif
