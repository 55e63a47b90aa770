/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "core/os.h"
#include "restore-private.h"

/* Restoring: the files of the new journal and of the one that it replaces, and their names. */

static int32_t place_failed(const struct restore *restore, int os_errno, const char *what,
			    orch_error **reterr)
{
	return orch_fail(reterr, journal_code(os_errno), os_errno, "restore",
			 "cannot put the restored journal in place at %s: %s", restore->path, what);
}

void restore_close(orch_journal *journal)
{
	if (!journal)
		return;
	store_abort(journal);
	store_close(journal, false);
	store_drop_empty_log(journal->wal_path);
	orch_journal_unref(journal);
}

/*
 * Opens a journal that stands at `path` now. `ret_journal` NULL: it cannot be read, which is what a
 * backup is for. It is an error only where something else could be done about it.
 */
static int32_t open_found(const char *path, orch_journal **ret_journal, orch_error **reterr)
{
	orch_error *error = NULL;
	orch_journal *journal = journal_new();
	*ret_journal = NULL;
	if (journal) {
		journal->read_only = true;
		journal->path = strdup(path);
		journal->wal_path = orch_strdup_printf("%s-wal", path);
	}
	if (!journal || !journal->path || !journal->wal_path) {
		orch_journal_unref(journal);
		return orch_fail_memory(reterr);
	}
	int32_t r = store_check_file(path, NULL, &error);
	if (r == 0)
		r = store_open(journal, path, &error);
	if (r == 0) {
		*ret_journal = journal;
		return 0;
	}
	restore_close(journal);
	if (r == ORCH_ENOMEM || r == ORCH_ELOCKED)
		return pass_error(r, error, reterr);
	orch_error_free(error);
	return 0;
}

static void learn(struct restore *restore, const orch_journal *journal)
{
	if (journal->epoch > restore->known_epoch)
		restore->known_epoch = journal->epoch;
	if (journal->generation > restore->known_generation)
		restore->known_generation = journal->generation;
}

int32_t restore_open_old(struct restore *restore, orch_error **reterr)
{
	struct stat status;
	bool exists = lstat(restore->path, &status) == 0;
	if (!exists && errno != ENOENT)
		return orch_fail(reterr, journal_code(errno), errno, "restore", "cannot find %s",
				 restore->path);
	if (exists && !S_ISREG(status.st_mode))
		return orch_fail(reterr, ORCH_EINVAL, 0, "restore",
				 "%s is not a file: move it away, or restore to another path",
				 restore->path);
	restore->exists = exists || file_exists(restore->wal_path);
	if (restore->exists && !(restore->flags & ORCH_RESTORE_REPLACE))
		return orch_fail(reterr, ORCH_EEXIST, 0, "restore",
				 "there is a journal at %s: with ORCH_RESTORE_REPLACE it is moved "
				 "aside, never removed",
				 restore->path);
	if (!exists)
		return 0;
	int32_t r = open_found(restore->path, &restore->old, reterr);
	if (r == 0 && restore->old)
		learn(restore, restore->old);
	return r;
}

/* PATH.replaced-EPOCH-SEQUENCE, or where that is taken with a number behind it. */
static char *replaced_name(const struct restore *restore, const orch_journal *journal)
{
	for (unsigned number = 1; number < 10000; number++) {
		char tail[16] = "";
		if (number > 1)
			snprintf(tail, sizeof(tail), "-%u", number);
		_cleanup_free_ char *name = orch_strdup_printf(
			"%s.replaced-%llu-%llu%s", restore->path,
			(unsigned long long)(journal ? journal->epoch : 0),
			(unsigned long long)(journal ? journal->sequence : 0), tail);
		_cleanup_free_ char *wal = name ? orch_strdup_printf("%s-wal", name) : NULL;
		if (!wal)
			return NULL;
		if (!file_exists(name) && !file_exists(wal))
			return ORCH_STEAL(name);
	}
	return NULL;
}

/* No coordinator opened it after the restoration that made it. */
static bool never_used(orch_journal *journal)
{
	struct epoch_row row;
	return epoch_load(journal, journal->epoch, &row, NULL) == 0 &&
	       row.generation == journal->generation;
}

int32_t restore_settle(struct restore *restore, orch_error **reterr)
{
	restore->interrupted = !file_exists(restore->path) && file_exists(restore->waiting);
	if (!file_exists(restore->waiting))
		return 0;
	orch_journal *left = NULL;
	int32_t r = open_found(restore->waiting, &left, reterr);
	if (r < 0)
		return r;
	/* One that was never in place: the new one replaces it, and knows what it knew. */
	bool unused =
		left && never_used(left) && (!restore->old || left->epoch > restore->old->epoch);
	_cleanup_free_ char *name = unused ? NULL : replaced_name(restore, left);
	if (left)
		learn(restore, left);
	restore_close(left);
	if (unused)
		return 0;
	int os_errno = name ? file_rename_new(restore->waiting, name) : ENOMEM;
	return os_errno ? place_failed(restore, os_errno,
				       "what an earlier run replaced is still under the name "
				       "PATH.restored, and cannot be moved aside",
				       reterr)
			: 0;
}

/* One synced file under a name that says it is whole. */
static int32_t finish_made(struct restore *restore, orch_error **reterr)
{
	orch_journal *made = restore->made;
	int result =
		sqlite3_wal_checkpoint_v2(made->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	if (result != SQLITE_OK)
		return store_fail(made, result, "restore", reterr);
	store_close(made, true);
	if (file_exists(made->wal_path))
		return place_failed(restore, EIO, "its log could not be carried over", reterr);
	int os_errno = file_sync(made->path);
	if (!os_errno && rename(made->path, restore->waiting) < 0)
		os_errno = errno;
	if (!os_errno)
		os_errno = file_sync_folder_of(restore->path);
	return os_errno ? place_failed(restore, os_errno, "it cannot be synced", reterr) : 0;
}

/* True: it is one file now, and closed. */
static bool close_old(struct restore *restore)
{
	orch_journal *old = ORCH_STEAL(restore->old);
	if (!old)
		return false;
	store_abort(old);
	int result =
		sqlite3_wal_checkpoint_v2(old->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	store_close(old, result == SQLITE_OK);
	orch_journal_unref(old);
	return result == SQLITE_OK && !file_exists(restore->wal_path);
}

static bool cannot_swap(int os_errno)
{
	return os_errno == EINVAL || os_errno == ENOSYS || os_errno == ENOTSUP;
}

/* Database and log, one after the other; what cannot be finished is undone. Returns 0 or an errno.
 */
static int move_pair(struct restore *restore)
{
	_cleanup_free_ char *replaced_wal = orch_strdup_printf("%s-wal", restore->replaced);
	if (!replaced_wal)
		return ENOMEM;
	int moved = file_rename_new(restore->path, restore->replaced);
	if (moved && moved != ENOENT)
		return moved;
	int moved_wal = file_rename_new(restore->wal_path, replaced_wal);
	int os_errno = moved_wal && moved_wal != ENOENT ? moved_wal : 0;
	if (!os_errno)
		os_errno = file_rename_new(restore->waiting, restore->path);
	if (!os_errno)
		return 0;
	if (!moved_wal)
		file_rename_new(replaced_wal, restore->wal_path);
	if (!moved)
		file_rename_new(restore->replaced, restore->path);
	return os_errno;
}

static int put_in_place(struct restore *restore)
{
	if (!restore->exists)
		return file_rename_new(restore->waiting, restore->path);
	if (!close_old(restore))
		return move_pair(restore);
	if (orch_rename_swap(restore->waiting, restore->path) < 0)
		return cannot_swap(errno) ? move_pair(restore) : errno;
	int os_errno = file_rename_new(restore->waiting, restore->replaced);
	/* The old one would stay under a name that the next restoration gives away. */
	if (os_errno && orch_rename_swap(restore->waiting, restore->path) < 0)
		return 0;
	return os_errno;
}

int32_t restore_name_replaced(struct restore *restore, orch_error **reterr)
{
	if (!restore->exists)
		return 0;
	restore->replaced = replaced_name(restore, restore->old);
	return restore->replaced ? 0 : orch_fail_memory(reterr);
}

int32_t restore_place(struct restore *restore, orch_error **reterr)
{
	int32_t r = finish_made(restore, reterr);
	int os_errno = r == 0 ? put_in_place(restore) : 0;
	if (os_errno)
		r = place_failed(restore, os_errno, "it cannot be given its name", reterr);
	if (r < 0) {
		/* Where PATH is missing, an open has to be refused as before. */
		if (!restore->interrupted)
			unlink(restore->waiting);
		return r;
	}
	os_errno = file_sync_folder_of(restore->path);
	return os_errno ? place_failed(restore, os_errno,
				       "it is there, but its folder cannot be synced", reterr)
			: 0;
}
