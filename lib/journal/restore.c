/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "restore-private.h"

/* A journal made of a backup; restore-private.h has the steps. */

struct orch_restoration {
	uint64_t epoch;
	uint64_t records;
	uint64_t lost;
	uint32_t unknown;
	uint32_t voided;
	char *replaced;
	char *text;
};

void orch_restore_opts_init(struct orch_restore_opts *opts, uint32_t size)
{
	const struct orch_restore_opts defaults = {0};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static void restore_clear(struct restore *restore)
{
	restore_close(restore->old);
	if (restore->made) {
		store_abort(restore->made);
		store_close(restore->made, false);
		if (restore->made->lock.path)
			file_remove_database(restore->made->path);
		orch_journal_unref(restore->made);
	}
	anchor_close(&restore->anchor);
	free(restore->backup_path);
	free(restore->path);
	free(restore->wal_path);
	free(restore->waiting);
	free(restore->replaced);
}

/* --- where
 * ------------------------------------------------------------------------------------------ */

static int32_t check_opts(const struct orch_restore_opts *opts, orch_error **reterr)
{
	if (opts->flags & ~ORCH_RESTORE_REPLACE)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_restore_opts.flags 0x%x is not known", opts->flags);
	if (!opts->backup_path || !*opts->backup_path || !opts->path || !*opts->path)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_restore_opts.backup_path or .path is not set");
	return sodium_init() < 0 ? orch_fail(reterr, ORCH_ESYS, 0, NULL,
					     "libsodium found no source of randomness")
				 : 0;
}

/* The names of all files, and the lock. */
static int32_t locate(struct restore *restore, const struct orch_restore_opts *opts,
		      orch_error **reterr)
{
	_cleanup_free_ char *lock_path = NULL, *folder = NULL;
	orch_journal *made = restore->made = journal_new();
	if (!made)
		return orch_fail_memory(reterr);
	made->read_only = true; /* until it is the journal: nothing of it moves an anchor */
	int32_t r = journal_resolve_path(opts->backup_path, "the backup", &restore->backup_path,
					 &folder, reterr);
	if (r == 0)
		r = journal_locate(made, opts->path, opts->anchor_path, &lock_path, reterr);
	if (r < 0)
		return r;
	restore->flags = opts->flags;
	restore->anchor = made->anchor;
	made->anchor = (struct anchor){.fd = -1};
	restore->path = ORCH_STEAL(made->path);
	restore->wal_path = ORCH_STEAL(made->wal_path);
	restore->waiting = orch_strdup_printf("%s.restored", restore->path);
	made->path = orch_strdup_printf("%s.new", restore->path);
	made->wal_path = orch_strdup_printf("%s.new-wal", restore->path);
	if (!restore->waiting || !made->path || !made->wal_path)
		return orch_fail_memory(reterr);
	const char *const own[] = {restore->path, made->path, restore->waiting};
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcmp(restore->backup_path, own[i]) == 0)
			return orch_fail(
				reterr, ORCH_EINVAL, 0, "restore",
				"the backup %s is where the journal will be, or what it is "
				"made of: give it another name",
				restore->backup_path);
	return lock_take(&made->lock, lock_path, false, reterr);
}

/* --- the backup
 * ------------------------------------------------------------------------------------------ */

static int32_t check_backup(const struct restore *restore, orch_error **reterr)
{
	bool is_backup = false;
	int32_t r = store_check_file(restore->backup_path, &is_backup, reterr);
	if (r < 0 || is_backup)
		return r;
	return orch_fail(
		reterr, ORCH_ECORRUPT, 0, "backup",
		"%s is no backup but a journal, or a copy of its files, which may be torn: "
		"open it as it is, or give what orch_journal_backup() wrote",
		restore->backup_path);
}

static int32_t copy_backup(struct restore *restore, orch_error **reterr)
{
	orch_journal *made = restore->made;
	file_remove_database(made->path);
	int os_errno = file_copy(restore->backup_path, made->path);
	if (!os_errno && !file_identity_read(made->path, &made->file))
		os_errno = errno;
	if (!os_errno)
		return 0;
	return orch_fail(reterr, journal_code(os_errno), os_errno, "backup",
			 "cannot copy the backup %s to %s", restore->backup_path, made->path);
}

/* Opened in the copy, where its log can be written, and checked as a whole. */
static int32_t open_backup(struct restore *restore, orch_error **reterr)
{
	orch_error *error = NULL;
	int32_t r = check_backup(restore, reterr);
	if (r == 0)
		r = copy_backup(restore, reterr);
	if (r < 0)
		return r;
	r = store_open(restore->made, restore->made->path, &error);
	if (r == 0)
		r = orch_journal_verify(restore->made, NULL, &error);
	if (r == ORCH_ECORRUPT) {
		orch_fail(reterr, r, 0, "backup", "the backup %s is damaged: %s",
			  restore->backup_path, orch_error_message(error));
		orch_error_free(error);
		return r;
	}
	return pass_error(r, error, reterr);
}

/* --- what is known besides
 * ------------------------------------------------------------------------------------------ */

/* True: record `sequence` of the journal has this hash. */
static bool has_record(orch_journal *journal, uint64_t sequence, const unsigned char *hash)
{
	struct event_row event;
	if (!sequence)
		chain_genesis(journal->id, event.hash);
	else if (event_at(journal, sequence, &event, NULL) < 0)
		return false;
	return memcmp(event.hash, hash, DIGEST_SIZE) == 0;
}

static void count_lost(struct restore *restore, uint64_t lost)
{
	if (lost > restore->lost)
		restore->lost = lost;
}

/* Each hash covers all before it: what both have is a beginning, and its end is found by halving.
 */
static void compare_old(struct restore *restore)
{
	orch_journal *made = restore->made, *old = restore->old;
	if (!old || memcmp(made->id, old->id, sizeof(made->id)) != 0)
		return;
	uint64_t common = 0,
		 past = 1 + (made->sequence < old->sequence ? made->sequence : old->sequence);
	while (past - common > 1) {
		uint64_t middle = common + (past - common) / 2;
		struct event_row event;
		if (event_at(made, middle, &event, NULL) == 0 &&
		    has_record(old, middle, event.hash))
			common = middle;
		else
			past = middle;
	}
	count_lost(restore, old->sequence - common);
}

static int32_t learn_from_anchor(struct restore *restore, orch_error **reterr)
{
	orch_journal *made = restore->made;
	struct anchor_point *point = &restore->row.superseded;
	if (!restore->anchor.path)
		return 0;
	int32_t r = anchor_read(restore->anchor.path, &restore->anchored, point, reterr);
	if (r < 0 || !restore->anchored)
		return r;
	if (point->epoch == made->epoch && point->sequence <= made->sequence &&
	    !has_record(made, point->sequence, point->hash))
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, "anchor",
			"the backup %s is not of the journal that the anchor %s belongs to: "
			"record %llu is another one; give the right one, or remove the anchor "
			"to go on without what it knows",
			restore->backup_path, restore->anchor.path,
			(unsigned long long)point->sequence);
	if (point->epoch > restore->known_epoch)
		restore->known_epoch = point->epoch;
	if (point->sequence > made->sequence)
		count_lost(restore, point->sequence - made->sequence);
	else if (point->epoch > made->epoch)
		count_lost(restore, 1); /* at least the record that started it */
	return 0;
}

static int32_t learn(struct restore *restore, orch_error **reterr)
{
	const orch_journal *made = restore->made;
	if (made->epoch > restore->known_epoch)
		restore->known_epoch = made->epoch;
	if (made->generation > restore->known_generation)
		restore->known_generation = made->generation;
	compare_old(restore);
	int32_t r = learn_from_anchor(restore, reterr);
	if (r < 0)
		return r;
	/* Each takes a person who restores: there never are so many. */
	if (restore->known_epoch >= 1u << 30)
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, "restore",
			"epoch %llu cannot be: the anchor or the journal at %s was changed",
			(unsigned long long)restore->known_epoch, restore->path);
	return 0;
}

/*
 * The first generation of an epoch is a multiple of 2^32 that is above every one known, and at
 * least the epoch's: so it is also above those of an epoch of which only the anchor tells.
 */
static void number(struct restore *restore)
{
	uint64_t epoch = restore->known_epoch + 1;
	uint64_t block = (restore->known_generation >> 32) + 1;
	if (block < epoch - 1)
		block = epoch - 1;
	instance_fill(&restore->instance, block << 32);
	restore->row.epoch = epoch;
	restore->row.generation = block << 32;
	restore->row.at_ms = restore->instance.opened_at_ms;
	restore->row.backup_sequence = restore->made->sequence;
}

/* --- the anchor
 * ------------------------------------------------------------------------------------------ */

/* Before anything counts: it is still what was read, and it can be written. */
static int32_t check_anchor(struct restore *restore, orch_error **reterr)
{
	struct anchor_point now;
	bool found;
	if (!restore->anchor.path)
		return 0;
	int32_t r = anchor_read(restore->anchor.path, &found, &now, reterr);
	if (r < 0)
		return r;
	if (found != restore->anchored ||
	    (found && (now.epoch != restore->row.superseded.epoch ||
		       now.sequence != restore->row.superseded.sequence ||
		       memcmp(now.hash, restore->row.superseded.hash, DIGEST_SIZE) != 0)))
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, "anchor",
			"the anchor %s was moved on while the backup was restored: another "
			"journal has the same one, or this journal is in use elsewhere",
			restore->anchor.path);
	return found ? anchor_sync(&restore->anchor, &now, reterr) : 0;
}

static int32_t write_anchor(struct restore *restore, const struct anchor_point *point,
			    orch_error **reterr)
{
	orch_error *error = NULL;
	int32_t r = anchor_sync(&restore->anchor, point, &error);
	if (r < 0 && r != ORCH_ENOMEM) {
		orch_fail(reterr, r, orch_error_errno(error), "anchor",
			  "%s is restored, and its anchor could not be written: %s; opening the "
			  "journal with it does it",
			  restore->path, orch_error_message(error));
		orch_error_free(error);
		return r;
	}
	return pass_error(r, error, reterr);
}

/* --- all of it
 * ------------------------------------------------------------------------------------------ */

static bool write_text(orch_restoration *restoration, const struct restore *restore)
{
	_cleanup_buf_ struct orch_buf text = {0};
	orch_buf_printf(&text, "restored %s from %s: epoch %llu, %llu records\n", restore->path,
			restore->backup_path, (unsigned long long)restoration->epoch,
			(unsigned long long)restoration->records);
	if (restoration->lost)
		orch_buf_printf(
			&text, "at least %llu records were written after the backup and are lost\n",
			(unsigned long long)restoration->lost);
	else
		orch_buf_printf(&text, "no record is known to be lost%s\n",
				restore->old || restore->anchored || restoration->replaced[0]
					? ""
					: ": there is neither an anchor nor a journal to ask");
	orch_buf_printf(&text, "%u actions are UNKNOWN now: recover before going on\n",
			restoration->unknown);
	orch_buf_printf(&text, "%u permits are void\n", restoration->voided);
	if (restoration->replaced[0])
		orch_buf_printf(&text, "the journal that was there is %s\n", restoration->replaced);
	if (text.failed)
		return false;
	restoration->text = ORCH_STEAL(text.data);
	return true;
}

static orch_restoration *restoration_new(struct restore *restore)
{
	orch_restoration *restoration = calloc(1, sizeof(*restoration));
	if (!restoration)
		return NULL;
	restoration->epoch = restore->row.epoch;
	restoration->records = restore->row.backup_sequence;
	restoration->lost = restore->lost;
	restoration->unknown = restore->unknown;
	restoration->voided = restore->voided;
	restoration->replaced = strdup(restore->replaced ? restore->replaced : "");
	if (restoration->replaced && write_text(restoration, restore))
		return restoration;
	return orch_restoration_unref(restoration);
}

/* Up to where nothing counts yet. */
static int32_t prepare(struct restore *restore, const struct orch_restore_opts *opts,
		       orch_error **reterr)
{
	int32_t r = locate(restore, opts, reterr);
	if (r == 0)
		r = restore_open_old(restore, reterr);
	if (r == 0)
		r = restore_settle(restore, reterr);
	if (r == 0)
		r = open_backup(restore, reterr);
	if (r == 0)
		r = learn(restore, reterr);
	if (r < 0)
		return r;
	number(restore);
	r = lock_sign(&restore->made->lock, &restore->instance, reterr);
	if (r == 0)
		r = restore_begin_epoch(restore, reterr);
	if (r == 0)
		r = restore_name_replaced(restore, reterr);
	return r;
}

static int32_t finish(struct restore *restore, orch_error **reterr)
{
	struct anchor_point point = journal_point(restore->made);
	int32_t r = check_anchor(restore, reterr);
	if (r == 0)
		r = restore_place(restore, reterr);
	return r < 0 ? r : write_anchor(restore, &point, reterr);
}

int32_t orch_journal_restore(const struct orch_restore_opts *opts,
			     orch_restoration **ret_restoration, orch_error **reterr)
{
	struct orch_restore_opts known;
	struct restore restore = {.anchor.fd = -1};
	int32_t r = orch_opts_read(opts, &known, sizeof(known), "orch_restore_opts", reterr);
	if (r == 0)
		r = check_opts(&known, reterr);
	if (r < 0)
		return r;
	orch_restoration *restoration = NULL;
	r = prepare(&restore, &known, reterr);
	if (r == 0 && ret_restoration) {
		restoration = restoration_new(&restore);
		if (!restoration)
			r = orch_fail_memory(reterr);
	}
	if (r == 0)
		r = finish(&restore, reterr);
	restore_clear(&restore);
	if (r < 0)
		orch_restoration_unref(restoration);
	else if (ret_restoration)
		*ret_restoration = restoration;
	return r;
}

orch_restoration *orch_restoration_unref(orch_restoration *restoration)
{
	if (!restoration)
		return NULL;
	free(restoration->replaced);
	free(restoration->text);
	free(restoration);
	return NULL;
}

uint64_t orch_restoration_epoch(const orch_restoration *restoration)
{
	return restoration ? restoration->epoch : 0;
}

uint64_t orch_restoration_records(const orch_restoration *restoration)
{
	return restoration ? restoration->records : 0;
}

uint64_t orch_restoration_lost(const orch_restoration *restoration)
{
	return restoration ? restoration->lost : 0;
}

uint32_t orch_restoration_unknown(const orch_restoration *restoration)
{
	return restoration ? restoration->unknown : 0;
}

uint32_t orch_restoration_void(const orch_restoration *restoration)
{
	return restoration ? restoration->voided : 0;
}

const char *orch_restoration_replaced(const orch_restoration *restoration)
{
	return restoration ? restoration->replaced : "";
}

const char *orch_restoration_text(const orch_restoration *restoration)
{
	return restoration ? restoration->text : "";
}
