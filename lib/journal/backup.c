/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "journal-private.h"

/*
 * A backup is the database as one file, without a log, and under an application id of its own: put
 * in the journal's place it would be an older journal that nobody can tell from the real one, so it
 * is refused there.
 *
 * It is copied through the journal's own connection, some pages at a time: what others write
 * meanwhile, SQLite puts into the copy as well, so the copy is the journal as it is when the last
 * page was copied.
 *
 * PATH.new is what is being written, PATH.new.lock keeps a second backup to the same path out and
 * goes with it.
 */

#define PAGES_A_STEP 256

struct copy {
	char *path;
	char *temp;
	struct lock lock;
	sqlite3 *db;
};

static void copy_end(struct copy *copy)
{
	sqlite3_close(copy->db);
	if (copy->lock.path) {
		file_remove_database(copy->temp);
		unlink(copy->lock.path); /* whoever waits for this one looks at its name again */
		lock_release(&copy->lock);
	}
	free(copy->path);
	free(copy->temp);
}

static int32_t exists(const char *path, orch_error **reterr)
{
	return orch_fail(reterr, ORCH_EEXIST, 0, "backup",
			 "%s exists and stays as it is: give the backup another name", path);
}

static int32_t copy_failed(const struct copy *copy, int32_t code, int os_errno, const char *why,
			   orch_error **reterr)
{
	return code == ORCH_ENOMEM
		       ? orch_fail_memory(reterr)
		       : orch_fail(reterr, code, os_errno, "backup",
				   "cannot write the backup %s: %s%s", copy->path, why,
				   code == ORCH_ENOSPC ? ": free some room on the disk" : "");
}

/* What SQLite answered about the copy. */
static int32_t copy_answer(const struct copy *copy, int result, orch_error **reterr)
{
	if (result == SQLITE_OK)
		return 0;
	int32_t code = (result & 0xff) == SQLITE_FULL	 ? ORCH_ENOSPC
		       : (result & 0xff) == SQLITE_NOMEM ? ORCH_ENOMEM
							 : ORCH_ESYS;
	int os_errno = code == ORCH_ENOSPC ? ENOSPC
		       : code == ORCH_ESYS ? sqlite3_system_errno(copy->db)
					   : 0;
	return copy_failed(copy, code, os_errno, sqlite3_errstr(result), reterr);
}

static int32_t copy_begin(struct copy *copy, const char *path, orch_error **reterr)
{
	_cleanup_free_ char *folder = NULL, *lock_path = NULL;
	int32_t r = journal_resolve_path(path, "the backup", &copy->path, &folder, reterr);
	if (r < 0)
		return r;
	copy->temp = orch_strdup_printf("%s.new", copy->path);
	lock_path = orch_strdup_printf("%s.new.lock", copy->path);
	if (!copy->temp || !lock_path)
		return orch_fail_memory(reterr);
	if (file_exists(copy->path))
		return exists(copy->path, reterr);
	r = lock_take(&copy->lock, lock_path, false, reterr);
	if (r < 0)
		return r;
	file_remove_database(copy->temp); /* of one that was killed */
	int fd = open(copy->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return copy_failed(copy, journal_code(errno), errno, "cannot make a file", reterr);
	orch_close_fd(&fd);
	return 0;
}

static int32_t open_temp(struct copy *copy, const char *settings, orch_error **reterr)
{
	int result = sqlite3_open_v2(copy->temp, &copy->db,
				     SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX |
					     SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
				     "unix");
	if (result == SQLITE_OK)
		result = sqlite3_exec(copy->db, settings, NULL, NULL, NULL);
	return copy_answer(copy, result, reterr);
}

static int32_t close_temp(struct copy *copy, orch_error **reterr)
{
	int result = sqlite3_close(copy->db);
	if (result != SQLITE_OK)
		return copy_answer(copy, result, reterr);
	copy->db = NULL;
	return 0;
}

/* Some pages; the lock is given up in between, and a mutex would not be passed on without a
 * moment's rest. */
static int copy_some(orch_journal *journal, sqlite3_backup *backup, int32_t *ret_state,
		     orch_error **reterr)
{
	const struct timespec rest = {.tv_nsec = 50000};
	int result = SQLITE_OK;
	store_lock(journal);
	*ret_state = store_check(journal, reterr);
	if (*ret_state == 0)
		result = sqlite3_backup_step(backup, PAGES_A_STEP);
	store_unlock(journal);
	if (*ret_state == 0 && result != SQLITE_DONE)
		nanosleep(&rest, NULL);
	return result;
}

static int32_t copy_pages(orch_journal *journal, struct copy *copy, orch_error **reterr)
{
	/* Nothing of it counts before it was synced, verified and renamed: that is done at the end.
	 */
	int32_t r = open_temp(copy,
			      "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = OFF;"
			      "PRAGMA synchronous = OFF",
			      reterr);
	if (r < 0)
		return r;
	store_lock(journal);
	sqlite3_backup *backup = sqlite3_backup_init(copy->db, "main", journal->db, "main");
	store_unlock(journal);
	if (!backup)
		return copy_answer(copy, sqlite3_errcode(copy->db), reterr);
	int result;
	do {
		result = copy_some(journal, backup, &r, reterr);
	} while (r == 0 &&
		 (result == SQLITE_OK || result == SQLITE_BUSY || result == SQLITE_LOCKED));
	store_lock(journal);
	int finished = sqlite3_backup_finish(backup);
	store_unlock(journal);
	if (r < 0)
		return r;
	if ((result & 0xff) == SQLITE_CORRUPT || (result & 0xff) == SQLITE_NOTADB)
		return store_fail(journal, result, "backup", reterr);
	r = copy_answer(copy, result == SQLITE_DONE ? finished : result, reterr);
	return r < 0 ? r : close_temp(copy, reterr);
}

/* One file, and no journal any more. */
static int32_t copy_mark(struct copy *copy, orch_error **reterr)
{
	_cleanup_free_ char *mark =
		orch_strdup_printf("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE;"
				   "PRAGMA synchronous = OFF; PRAGMA application_id = %d",
				   JOURNAL_BACKUP_ID);
	if (!mark)
		return orch_fail_memory(reterr);
	int32_t r = open_temp(copy, mark, reterr);
	return r < 0 ? r : close_temp(copy, reterr);
}

/* Opened and verified as it will be found. */
static int32_t copy_verify(struct copy *copy, uint64_t *ret_records, orch_error **reterr)
{
	orch_journal *journal = journal_new();
	if (journal)
		journal->path = strdup(copy->temp);
	if (!journal || !journal->path) {
		orch_journal_unref(journal);
		return orch_fail_memory(reterr);
	}
	journal->read_only = journal->is_backup = true;
	bool is_backup = false;
	int32_t r = store_check_file(copy->temp, &is_backup, reterr);
	if (r == 0 && !is_backup)
		r = copy_failed(copy, ORCH_ECORRUPT, 0, "SQLite did not mark it", reterr);
	if (r == 0)
		r = store_open(journal, copy->temp, reterr);
	if (r == 0)
		r = orch_journal_verify(journal, ret_records, reterr);
	orch_journal_unref(journal);
	return r;
}

static int32_t copy_publish(struct copy *copy, orch_error **reterr)
{
	int os_errno = file_rename_new(copy->temp, copy->path);
	if (os_errno == EEXIST)
		return exists(copy->path, reterr);
	if (os_errno)
		return copy_failed(copy, journal_code(os_errno), os_errno, "cannot rename it",
				   reterr);
	os_errno = file_sync_folder_of(copy->path);
	if (!os_errno)
		return 0;
	unlink(copy->path);
	return copy_failed(copy, journal_code(os_errno), os_errno, "cannot sync its folder",
			   reterr);
}

int32_t orch_journal_backup(orch_journal *journal, const char *path, uint64_t *ret_records,
			    orch_error **reterr)
{
	struct copy copy = {.lock.fd = -1};
	uint64_t records = 0;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!path || !*path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the path of the backup is not set");
	r = copy_begin(&copy, path, reterr);
	if (r == 0)
		r = copy_pages(journal, &copy, reterr);
	if (r == 0)
		r = copy_mark(&copy, reterr);
	if (r == 0) {
		int os_errno = file_sync(copy.temp);
		if (os_errno)
			r = copy_failed(&copy, journal_code(os_errno), os_errno, "cannot sync it",
					reterr);
	}
	if (r == 0)
		r = copy_verify(&copy, &records, reterr);
	if (r == 0)
		r = copy_publish(&copy, reterr);
	copy_end(&copy);
	if (r == 0 && ret_records)
		*ret_records = records;
	return r;
}
