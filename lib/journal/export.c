/* SPDX-License-Identifier: Apache-2.0 */
#include "export.h"

/*
 * Rows first, as far as they were not changed since the record at which the export began. Then it
 * follows the records from there on, and gives the row again that each of them made, until it has
 * caught up: what the last line of each row says is the journal at the record that the last line
 * names. Rows are read in small batches; nobody else waits longer than for one of them.
 */

#define EXPORT_BATCH 64
/* A batch ends where its lines are so long together. */
#define EXPORT_BATCH_BYTES (256u * 1024u)
/* Whoever writes faster than the lines are taken is locked out at last, or the export would not
 * end. */
#define EXPORT_ROUNDS 3

struct export
{
	orch_journal *journal;
	uint32_t flags;
	orch_export_fn fn;
	void *userdata;
	struct lines lines;
	uint64_t told;
	crypto_hash_sha256_state digest; /* of the lines that were told */
	uint64_t start;			 /* the last record when it began */
};

static bool batch_is_full(const struct export *export)
{
	return export->lines.text.length >= EXPORT_BATCH_BYTES;
}

/* Not under the lock. */
static int32_t tell_lines(struct export *export)
{
	struct orch_buf *text = &export->lines.text;
	int32_t r = 0;
	for (size_t at = 0; r == 0 && at < text->length;) {
		const char *line = text->data + at;
		size_t length = (size_t)((char *)memchr(line, '\n', text->length - at) + 1 - line);
		crypto_hash_sha256_update(&export->digest, (const unsigned char *)line, length);
		export->told++;
		at += length;
		r = export->fn(export->userdata, line, length);
	}
	/* One long line does not keep its memory to the end. */
	orch_buf_free(text);
	return r;
}

static int32_t tell_batch(struct export *export, int32_t r)
{
	return r < 0 ? r : tell_lines(export);
}

static int32_t make_rows(struct export *export, enum row_type type, uint64_t *after, bool *ret_more,
			 orch_error **reterr)
{
	uint64_t ids[EXPORT_BATCH];
	size_t count = 0;
	int32_t r = export_ids(export->journal, type, *after, export->start, ids, EXPORT_BATCH,
			       &count, reterr);
	for (size_t i = 0; r == 0 && i < count && !batch_is_full(export); i++) {
		r = export_row(export->journal, type, ids[i], 0, &export->lines, reterr);
		*after = ids[i];
	}
	*ret_more = count > 0;
	return r;
}

static int32_t export_rows(struct export *export, enum row_type type, orch_error **reterr)
{
	uint64_t after = 0;
	bool more = true;
	int32_t r = 0;
	while (r == 0 && more) {
		r = store_check(export->journal, reterr);
		if (r < 0)
			break;
		store_lock(export->journal);
		r = make_rows(export, type, &after, &more, reterr);
		store_unlock(export->journal);
		r = tell_batch(export, r);
	}
	return r;
}

/* What one record is: a line of its own, and the row that it made if the rows before did not tell
 * it. */
static int32_t make_record(struct export *export, uint64_t sequence, struct event_row *event,
			   orch_error **reterr)
{
	int32_t r = event_at(export->journal, sequence, event, reterr);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "export",
				 "%s: record %llu is missing: restore a copy",
				 export->journal->path, (unsigned long long)sequence);
	/* No generation registers while this one has the journal. */
	if (r == 0 && sequence > export->start && export_type_of(event) != ROW_GENERATION)
		r = export_row(export->journal, export_type_of(event), event->subject, sequence,
			       &export->lines, reterr);
	if (r == 0 && export->flags & ORCH_EXPORT_RECORDS)
		r = export_record(export->journal, event, &export->lines, reterr);
	return r;
}

/* `whole`: all that there is, however much it is. */
static int32_t make_records(struct export *export, uint64_t *sequence, bool whole,
			    struct event_row *last, orch_error **reterr)
{
	int32_t r = 0;
	for (int i = 0; r == 0 && *sequence < export->journal->sequence; i++) {
		if (!whole && (i == EXPORT_BATCH || batch_is_full(export)))
			break;
		r = make_record(export, ++*sequence, last, reterr);
	}
	return r;
}

/* `ret_last`: the record that the export reaches. */
static int32_t export_records(struct export *export, struct event_row *ret_last,
			      orch_error **reterr)
{
	orch_journal *journal = export->journal;
	uint64_t sequence =
		export->flags & ORCH_EXPORT_RECORDS ? 0 : export->start - (export->start > 0);
	uint64_t round_ends = export->start;
	int rounds = 0;
	bool caught_up = false;
	int32_t r = 0;
	while (r == 0 && !caught_up) {
		r = store_check(journal, reterr);
		if (r < 0)
			break;
		store_lock(journal);
		if (sequence >= round_ends) {
			round_ends = journal->sequence;
			rounds++;
		}
		r = make_records(export, &sequence, rounds > EXPORT_ROUNDS, ret_last, reterr);
		caught_up = sequence >= journal->sequence;
		store_unlock(journal);
		r = tell_batch(export, r);
	}
	return r;
}

static int32_t export_all(struct export *export, orch_error **reterr)
{
	struct event_row last = {0};
	unsigned char digest[DIGEST_SIZE];
	chain_genesis(export->journal->id, last.hash);
	store_lock(export->journal);
	export->start = export->journal->sequence;
	int32_t r = export_head(export->journal, &export->lines, reterr);
	store_unlock(export->journal);
	r = tell_batch(export, r);
	for (enum row_type type = 0; r == 0 && type < ROW_COUNT; type++)
		r = export_rows(export, type, reterr);
	if (r == 0)
		r = export_records(export, &last, reterr);
	if (r != 0)
		return r;
	crypto_hash_sha256_state so_far = export->digest;
	crypto_hash_sha256_final(&so_far, digest);
	r = export_end(export->told, &last, digest, &export->lines, reterr);
	return tell_batch(export, r);
}

int32_t orch_journal_export(orch_journal *journal, uint32_t flags, orch_export_fn fn,
			    void *userdata, orch_error **reterr)
{
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	if (flags & ~ORCH_EXPORT_RECORDS)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the flags 0x%x are not known",
				 flags);
	struct export export = {.journal = journal, .flags = flags, .fn = fn, .userdata = userdata};
	crypto_hash_sha256_init(&export.digest);
	r = export_all(&export, reterr);
	orch_buf_free(&export.lines.text);
	return r;
}
