/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/*
 * Each event holds the digest of the row that it made, and the hash of the event before it. So a
 * changed row, a changed, missing or added event, and a chain that forked after an old copy was put
 * back all show.
 */

static void hash_payload(struct field_hash *hash, const struct payload *payload)
{
	hash_number(hash, payload->length);
	if (payload->length)
		hash_digest(hash, payload->digest);
}

void chain_genesis(const unsigned char id[16], unsigned char hash[DIGEST_SIZE])
{
	struct field_hash fields;
	hash_start(&fields, FORMAT_1, "orch-journal 1");
	hash_bytes(&fields, id, 16);
	hash_end(&fields, hash);
}

void chain_row_digest(const struct action_row *row, unsigned char digest[DIGEST_SIZE])
{
	struct field_hash hash;
	hash_start(&hash, row->format, "action");
	hash_number(&hash, row->id);
	hash_number(&hash, row->sequence);
	hash_text(&hash, row->kind);
	hash_text(&hash, row->key);
	hash_number(&hash, row->policy);
	hash_bytes(&hash, row->fingerprint, row->fingerprint_length);
	hash_number(&hash, row->state);
	hash_number(&hash, row->attempt);
	hash_number(&hash, row->generation);
	hash_number(&hash, (uint64_t)row->created_at_ms);
	hash_number(&hash, (uint64_t)row->updated_at_ms);
	hash_payload(&hash, &row->request);
	hash_payload(&hash, &row->result);
	if (row->format != FORMAT_1) {
		hash_number(&hash, row->stored);
		hash_number(&hash, row->permit);
		hash_number(&hash, row->decision);
	}
	hash_end(&hash, digest);
}

void chain_instance_digest(const struct instance_row *instance, uint32_t format,
			   unsigned char digest[DIGEST_SIZE])
{
	struct field_hash hash;
	hash_start(&hash, format, "instance");
	hash_number(&hash, instance->generation);
	hash_text(&hash, instance->instance_id);
	hash_text(&hash, instance->boot_id);
	hash_text(&hash, instance->host);
	hash_number(&hash, (uint64_t)instance->pid);
	hash_number(&hash, (uint64_t)instance->opened_at_ms);
	hash_end(&hash, digest);
}

void chain_event_hash(const unsigned char previous[DIGEST_SIZE], struct event_row *event)
{
	struct field_hash hash;
	hash_start(&hash, event->format, "event");
	if (event->format != FORMAT_1)
		hash_number(&hash, event->noun);
	hash_digest(&hash, previous);
	hash_number(&hash, event->sequence);
	hash_number(&hash, (uint64_t)event->at_ms);
	hash_number(&hash, event->generation);
	hash_number(&hash, event->subject);
	hash_number(&hash, event->attempt);
	hash_number(&hash, event->state);
	hash_digest(&hash, event->digest);
	hash_end(&hash, event->hash);
}

void chain_fingerprint(const char *kind, const void *request, size_t length,
		       unsigned char digest[DIGEST_SIZE])
{
	struct field_hash hash;
	hash_start(&hash, FORMAT_1, kind);
	hash_bytes(&hash, request, length);
	hash_end(&hash, digest);
}

/* --- puts
 * ------------------------------------------------------------------------------------------------- */

int32_t chain_put_event(orch_journal *journal, struct event_row *event, orch_error **reterr)
{
	event->sequence = journal->draft + 1;
	event->format = JOURNAL_FORMAT;
	if (!event->generation)
		event->generation = journal->generation;
	chain_event_hash(journal->draft_head, event);
	return event_put(journal, event, reterr);
}

static uint32_t stored_of(const struct action_row *row)
{
	return (row->request.kept ? STORED_REQUEST : 0) | (row->result.kept ? STORED_RESULT : 0) |
	       (row->stored & STORED_PRUNED);
}

int32_t chain_put_action(orch_journal *journal, struct action_row *row,
			 const struct expectation *expected, int64_t at_ms, orch_error **reterr)
{
	row->sequence = journal->draft + 1;
	row->generation = journal->generation;
	row->updated_at_ms = at_ms;
	if (!expected)
		row->created_at_ms = at_ms;
	row->format = JOURNAL_FORMAT;
	row->stored = stored_of(row);
	int32_t r = store_put_action(journal, row, expected, reterr);
	if (r < 0)
		return r;
	struct event_row event = {
		.at_ms = orch_realtime_ms(),
		.noun = NOUN_ACTION,
		.subject = row->id,
		.attempt = row->attempt,
		.state = row->state,
	};
	chain_row_digest(row, event.digest);
	return chain_put_event(journal, &event, reterr);
}

/* --- requests
 * --------------------------------------------------------------------------------------------- */

static int32_t run_once(orch_journal *journal, struct request *request, orch_error **reterr)
{
	int32_t r = store_begin(journal, reterr);
	if (r < 0)
		return r;
	r = request->write(journal, request, reterr);
	if (r < 0) {
		store_abort(journal);
		return r;
	}
	return store_commit(journal, reterr);
}

int32_t chain_run_alone(orch_journal *journal, struct request *request, orch_error **reterr)
{
	orch_error *error = NULL;
	int32_t r;
	/*
	 * Where the disk is full, what happened still has to be written down. Nothing was synced
	 * when it turned out to be full, so trying again is no second fsync of lost pages. A result
	 * that would take more than half of what is kept back is cut: others may have to be written
	 * down after it. Each turn cuts or releases, so this ends.
	 */
	while ((r = run_once(journal, request, &error)) == ORCH_ENOSPC && request->completes) {
		bool whole = request->result && request->result->kept;
		uint64_t cost = JOURNAL_RECORD_BYTES + (whole ? request->result->length : 0);
		if (whole && cost > (uint64_t)journal->headroom / 2) {
			if (!payload_cut(request->result))
				break;
		} else if (!store_headroom_release(journal, cost)) {
			break;
		}
		error = orch_error_free(error);
	}
	return pass_error(r, error, reterr);
}

int32_t chain_put_instance(orch_journal *journal, const struct instance_row *instance,
			   orch_error **reterr)
{
	struct event_row event = {
		.at_ms = instance->opened_at_ms,
		.generation = instance->generation,
		.noun = NOUN_ACTION,
	};
	chain_instance_digest(instance, JOURNAL_FORMAT, event.digest);
	int32_t r = store_put_instance(journal, instance, reterr);
	return r < 0 ? r : chain_put_event(journal, &event, reterr);
}

int32_t chain_write_instance(orch_journal *journal, const struct instance_row *instance,
			     orch_error **reterr)
{
	int32_t r = store_begin(journal, reterr);
	if (r < 0)
		return r;
	r = chain_put_instance(journal, instance, reterr);
	if (r < 0) {
		store_abort(journal);
		return r;
	}
	r = store_commit(journal, reterr);
	if (r == 0)
		journal->generation = instance->generation;
	return r;
}

int32_t chain_check_anchor(orch_journal *journal, const char *anchor_path, orch_error **reterr)
{
	struct anchor_point point;
	bool found;
	int32_t r = anchor_read(anchor_path, &found, &point, reterr);
	if (r < 0 || !found)
		return r;
	if (point.epoch < journal->epoch)
		return epoch_check_anchor(journal, &point, anchor_path, reterr);
	if (point.epoch > journal->epoch || point.sequence > journal->sequence)
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, "anchor",
			"%s is older than its anchor %s: it ends at record %llu, and record %llu "
			"was "
			"acknowledged; put the newer file back, or remove the anchor to accept the "
			"loss",
			journal->path, anchor_path, (unsigned long long)journal->sequence,
			(unsigned long long)point.sequence);
	struct event_row event;
	r = event_at(journal, point.sequence, &event, reterr);
	if (r < 0 && r != ORCH_ENOENT)
		return r;
	if (!point.sequence) {
		chain_genesis(journal->id, event.hash);
		r = 0;
	}
	if (r == ORCH_ENOENT || memcmp(event.hash, point.hash, DIGEST_SIZE) != 0)
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, "anchor",
			"%s is not what its anchor %s knows: record %llu is another one, so an "
			"older copy was put back and written to, or the anchor is another "
			"journal's",
			journal->path, anchor_path, (unsigned long long)point.sequence);
	return 0;
}
