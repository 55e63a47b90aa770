/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <sodium.h>

#include "journal-private.h"

void orch_journal_opts_init(struct orch_journal_opts *opts, uint32_t size)
{
	const struct orch_journal_opts defaults = {.payload_limit = JOURNAL_DEFAULT_PAYLOAD_LIMIT};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

/* --- open and close
 * ------------------------------------------------------------------------------------- */

static void journal_free(orch_journal *journal)
{
	lock_release(&journal->lock);
	anchor_close(&journal->anchor);
	free(journal->path);
	free(journal->wal_path);
	free(journal->headroom_path);
	free(ORCH_STEAL(journal->poison));
	journal_release(journal);
}

orch_journal *journal_hold(orch_journal *journal)
{
	atomic_fetch_add(&journal->holds, 1);
	return journal;
}

void journal_release(orch_journal *journal)
{
	if (atomic_fetch_sub(&journal->holds, 1) != 1)
		return;
	/* In a forked child threads that are not there may hold the locks. */
	if (journal->pid == getpid()) {
		pthread_cond_destroy(&journal->read);
		pthread_mutex_destroy(&journal->mutex);
		writer_free(journal);
	}
	free(journal);
}

bool journal_try_ref(orch_journal *journal)
{
	unsigned references = atomic_load(&journal->references);
	while (references &&
	       !atomic_compare_exchange_weak(&journal->references, &references, references + 1))
		;
	return references > 0;
}

struct anchor_point journal_point(const orch_journal *journal)
{
	struct anchor_point point = {.epoch = journal->epoch, .sequence = journal->sequence};
	memcpy(point.hash, journal->head, DIGEST_SIZE);
	return point;
}

orch_journal *orch_journal_ref(orch_journal *journal)
{
	if (journal)
		atomic_fetch_add(&journal->references, 1);
	return journal;
}

orch_journal *orch_journal_unref(orch_journal *journal)
{
	if (!journal || atomic_fetch_sub(&journal->references, 1) != 1)
		return NULL;
	/* Closing SQLite in a forked child would delete the parent's write-ahead log. */
	if (journal->pid == getpid()) {
		writer_close(journal);
		bool well = !journal->read_only && !journal->poisoned;
		struct anchor_point point = journal_point(journal);
		store_close(journal, well);
		if (well)
			anchor_sync(&journal->anchor, &point, NULL);
	}
	if (journal->destroy)
		journal->destroy(journal->userdata);
	journal_free(journal);
	return NULL;
}

int32_t journal_resolve_path(const char *path, const char *what, char **ret_path, char **ret_folder,
			     orch_error **reterr)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s \"%s\" does not name a file",
				 what, path);
	_cleanup_free_ char *full = realpath(path, NULL);
	_cleanup_free_ char *folder = NULL;
	if (full) {
		slash = strrchr(full, '/');
		folder = strndup(full, slash == full ? 1 : (size_t)(slash - full));
	} else if (errno == ENOENT) {
		_cleanup_free_ char *parent =
			slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path))
			      : strdup(".");
		if (!parent)
			return orch_fail_memory(reterr);
		folder = realpath(parent, NULL);
		if (!folder)
			return orch_fail(reterr, journal_code(errno), errno, "folder",
					 "cannot find the folder of %s %s", what, path);
		full = orch_strdup_printf("%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
	} else {
		return orch_fail(reterr, journal_code(errno), errno, "folder", "cannot find %s %s",
				 what, path);
	}
	if (!full || !folder)
		return orch_fail_memory(reterr);
	*ret_path = ORCH_STEAL(full);
	*ret_folder = ORCH_STEAL(folder);
	return 0;
}

static int32_t set_anchor(orch_journal *journal, const char *anchor_path,
			  const char *journal_folder, orch_error **reterr)
{
	_cleanup_free_ char *path = NULL, *folder = NULL;
	int32_t r = journal_resolve_path(anchor_path, "the anchor", &path, &folder, reterr);
	if (r < 0)
		return r;
	size_t length = strlen(journal_folder);
	if (strncmp(folder, journal_folder, length) == 0 &&
	    (folder[length] == '\0' || folder[length] == '/'))
		return orch_fail(
			reterr, ORCH_EINVAL, 0, "anchor",
			"the anchor %s is inside the journal's folder: put it elsewhere, or it is "
			"rolled back together with the journal",
			path);
	journal->anchor.path = ORCH_STEAL(path);
	return 0;
}

static int32_t create_if_missing(orch_journal *journal, orch_error **reterr)
{
	orch_error *error = NULL;
	int32_t r = store_check_file(journal->path, NULL, &error);
	if (r != ORCH_ENOENT)
		return pass_error(r, error, reterr);
	orch_error_free(error);
	_cleanup_free_ char *restored = orch_strdup_printf("%s.restored", journal->path);
	if (!restored)
		return orch_fail_memory(reterr);
	if (file_exists(restored))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, NULL,
				 "%s is missing, and %s is there: a restoration was interrupted, run "
				 "orch_journal_restore() again",
				 journal->path, restored);
	struct file_identity wal;
	if (file_identity_read(journal->wal_path, &wal))
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, NULL,
			"%s is missing, and its write-ahead log %s is there: put it back beside it",
			journal->path, journal->wal_path);
	if (journal->anchor.path) {
		struct anchor_point point;
		bool found;
		r = anchor_read(journal->anchor.path, &found, &point, reterr);
		if (r < 0)
			return r;
		if (found)
			return orch_fail(reterr, ORCH_ECORRUPT, 0, "anchor",
					 "%s is missing, and its anchor %s knows of %llu records: "
					 "put it back, "
					 "or remove the anchor to accept the loss",
					 journal->path, journal->anchor.path,
					 (unsigned long long)point.sequence);
	}
	return store_create(journal->path, reterr);
}

/* The first record of a generation. On a full disk the headroom is for this, too. */
static int32_t register_generation(orch_journal *journal, orch_error **reterr)
{
	struct instance_row instance;
	instance_fill(&instance, journal->generation + 1);
	int32_t r = lock_sign(&journal->lock, &instance, reterr);
	if (r < 0)
		return r;
	store_headroom_take(journal); /* without it nothing is dispatched; recovery still runs */
	orch_error *error = NULL;
	while ((r = chain_write_instance(journal, &instance, &error)) == ORCH_ENOSPC &&
	       store_headroom_release(journal, JOURNAL_RECORD_BYTES)) {
		error = orch_error_free(error);
		/* What was rolled back may have held the migration. */
		r = store_migrate(journal, &error);
		if (r < 0)
			break;
	}
	return pass_error(r, error, reterr);
}

static int32_t open_writable(orch_journal *journal, const char *lock_path, orch_error **reterr)
{
	int32_t r = lock_take(&journal->lock, lock_path, false, reterr);
	if (r < 0)
		return r;
	r = create_if_missing(journal, reterr);
	if (r < 0)
		return r;
	if (!file_identity_read(journal->path, &journal->file))
		return orch_fail(reterr, ORCH_ESYS, errno, NULL, "cannot find %s any more",
				 journal->path);
	r = store_open(journal, journal->path, reterr);
	if (r == 0 && journal->anchor.path)
		r = chain_check_anchor(journal, journal->anchor.path, reterr);
	if (r == 0) {
		/* Before the registration, so that an anchor that cannot be written leaves the file
		 * alone. */
		struct anchor_point point = journal_point(journal);
		r = anchor_sync(&journal->anchor, &point, reterr);
	}
	if (r == 0)
		r = register_generation(journal, reterr);
	if (r < 0) {
		store_abort(journal);
		store_close(journal, false);
		store_drop_empty_log(journal->wal_path);
	}
	return r;
}

static int32_t open_read_only(orch_journal *journal, const char *lock_path, orch_error **reterr)
{
	bool is_backup; /* one file: a log beside it is not its own */
	int32_t r = store_check_file(journal->path, &is_backup, reterr);
	if (r < 0)
		return r;
	/* Held while the files are copied only: a reader does not keep a coordinator out. */
	r = lock_take(&journal->lock, lock_path, true, reterr);
	if (r < 0)
		return r;
	struct snapshot snapshot;
	r = snapshot_take(&snapshot, journal->path, is_backup ? NULL : journal->wal_path, reterr);
	if (r == 0) {
		r = store_open(journal, snapshot.path, reterr);
		snapshot_remove(&snapshot);
	}
	if (r == 0 && journal->migrating) /* in the copy, which is nobody else's */
		r = store_end_migration(journal, reterr);
	if (r == 0 && journal->anchor.path)
		r = chain_check_anchor(journal, journal->anchor.path, reterr);
	lock_release(&journal->lock);
	if (r < 0)
		store_close(journal, false);
	return r;
}

int32_t journal_locate(orch_journal *journal, const char *path, const char *anchor_path,
		       char **ret_lock_path, orch_error **reterr)
{
	_cleanup_free_ char *folder = NULL;
	int32_t r = journal_resolve_path(path, "the journal", &journal->path, &folder, reterr);
	if (r == 0)
		r = filesystem_check(folder, reterr);
	if (r == 0 && anchor_path)
		r = set_anchor(journal, anchor_path, folder, reterr);
	if (r < 0)
		return r;
	journal->wal_path = orch_strdup_printf("%s-wal", journal->path);
	journal->headroom_path = orch_strdup_printf("%s.reserve", journal->path);
	char *lock_path = orch_strdup_printf("%s.lock", journal->path);
	if (!journal->wal_path || !journal->headroom_path || !lock_path) {
		free(lock_path);
		return orch_fail_memory(reterr);
	}
	*ret_lock_path = lock_path;
	return 0;
}

static int32_t journal_open(const struct orch_journal_opts *opts, orch_journal *journal,
			    orch_error **reterr)
{
	_cleanup_free_ char *lock_path = NULL;
	if (!opts->path || !*opts->path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_journal_opts.path is not set");
	if (opts->flags & ~ORCH_JOURNAL_READ_ONLY)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_journal_opts.flags 0x%x is not known", opts->flags);
	if (opts->payload_limit > JOURNAL_MAX_PAYLOAD_LIMIT)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_journal_opts.payload_limit is over %u bytes",
				 JOURNAL_MAX_PAYLOAD_LIMIT);
	if (sodium_init() < 0)
		return orch_fail(reterr, ORCH_ESYS, 0, NULL,
				 "libsodium found no source of randomness");
	int32_t r = journal_locate(journal, opts->path, opts->anchor_path, &lock_path, reterr);
	if (r < 0)
		return r;
	journal->read_only = opts->flags & ORCH_JOURNAL_READ_ONLY;
	journal->payload_limit =
		opts->payload_limit ? opts->payload_limit : JOURNAL_DEFAULT_PAYLOAD_LIMIT;
	journal->on_record = opts->on_record;
	journal->userdata = opts->userdata;
	return journal->read_only ? open_read_only(journal, lock_path, reterr)
				  : open_writable(journal, lock_path, reterr);
}

static void mutex_init(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t recursive;
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(mutex, &recursive);
	pthread_mutexattr_destroy(&recursive);
}

orch_journal *journal_new(void)
{
	orch_journal *journal = calloc(1, sizeof(*journal));
	if (!journal)
		return NULL;
	atomic_init(&journal->references, 1);
	atomic_init(&journal->holds, 1);
	writer_init(journal);
	mutex_init(&journal->mutex);
	pthread_cond_init(&journal->read, NULL);
	journal->pid = getpid();
	journal->lock.fd = -1;
	journal->anchor.fd = -1;
	return journal;
}

int32_t orch_journal_open(const struct orch_journal_opts *opts, orch_journal **ret_journal,
			  orch_error **reterr)
{
	struct orch_journal_opts known;
	int32_t r = orch_opts_read(opts, &known, sizeof(known), "orch_journal_opts", reterr);
	orch_journal *journal = NULL;
	if (r == 0 && !ret_journal)
		r = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "ret_journal is NULL");
	if (r == 0) {
		journal = journal_new();
		r = journal ? 0 : orch_fail_memory(reterr);
	}
	if (r == 0)
		r = journal_open(&known, journal, reterr);
	if (r == 0 && !journal->read_only)
		writer_report(journal, journal->sequence);
	if (r < 0) {
		if (journal)
			journal_free(journal);
		if (known.destroy)
			known.destroy(known.userdata);
		return r;
	}
	journal->destroy = known.destroy;
	journal->shared = true;
	*ret_journal = journal;
	return 0;
}

uint64_t orch_journal_generation(const orch_journal *journal)
{
	return journal ? journal->generation : 0;
}

uint64_t orch_journal_epoch(const orch_journal *journal)
{
	return journal ? journal->epoch : 0;
}

uint64_t orch_journal_sequence(const orch_journal *journal)
{
	return journal ? journal->sequence : 0;
}
