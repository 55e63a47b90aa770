/* SPDX-License-Identifier: Apache-2.0 */
#include <sodium.h>

#include "journal-private.h"

/*
 * Each event holds the digest of the row that it made, and the hash of the event before it. So a
 * changed row, a changed, missing or added event, and a chain that forked after an old copy was put
 * back all show. Fields are hashed as little-endian 64-bit numbers and as length-counted bytes.
 */

static void hash_number(crypto_hash_sha256_state *state, uint64_t number)
{
	unsigned char bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(number >> (8 * i));
	crypto_hash_sha256_update(state, bytes, sizeof(bytes));
}

static void hash_bytes(crypto_hash_sha256_state *state, const void *bytes, size_t length)
{
	hash_number(state, length);
	if (length)
		crypto_hash_sha256_update(state, bytes, length);
}

static void hash_text(crypto_hash_sha256_state *state, const char *text)
{
	hash_bytes(state, text, strlen(text));
}

static void hash_payload(crypto_hash_sha256_state *state, const struct payload *payload)
{
	hash_number(state, payload->length);
	if (payload->length)
		hash_bytes(state, payload->digest, DIGEST_SIZE);
}

void chain_genesis(const unsigned char id[16], unsigned char hash[DIGEST_SIZE])
{
	crypto_hash_sha256_state state;
	crypto_hash_sha256_init(&state);
	hash_text(&state, "orch-journal 1");
	hash_bytes(&state, id, 16);
	crypto_hash_sha256_final(&state, hash);
}

void chain_row_digest(const struct action_row *row, unsigned char digest[DIGEST_SIZE])
{
	crypto_hash_sha256_state state;
	crypto_hash_sha256_init(&state);
	hash_text(&state, "action");
	hash_number(&state, row->id);
	hash_number(&state, row->sequence);
	hash_text(&state, row->kind);
	hash_text(&state, row->key);
	hash_number(&state, row->policy);
	hash_bytes(&state, row->fingerprint, row->fingerprint_length);
	hash_number(&state, row->state);
	hash_number(&state, row->attempt);
	hash_number(&state, row->generation);
	hash_number(&state, (uint64_t)row->created_at_ms);
	hash_number(&state, (uint64_t)row->updated_at_ms);
	hash_payload(&state, &row->request);
	hash_payload(&state, &row->result);
	crypto_hash_sha256_final(&state, digest);
}

void chain_instance_digest(const struct instance_row *instance, unsigned char digest[DIGEST_SIZE])
{
	crypto_hash_sha256_state state;
	crypto_hash_sha256_init(&state);
	hash_text(&state, "instance");
	hash_number(&state, instance->generation);
	hash_text(&state, instance->instance_id);
	hash_text(&state, instance->boot_id);
	hash_text(&state, instance->host);
	hash_number(&state, (uint64_t)instance->pid);
	hash_number(&state, (uint64_t)instance->opened_at_ms);
	crypto_hash_sha256_final(&state, digest);
}

void chain_event_hash(const unsigned char previous[DIGEST_SIZE], struct event_row *event)
{
	crypto_hash_sha256_state state;
	crypto_hash_sha256_init(&state);
	hash_text(&state, "event");
	hash_bytes(&state, previous, DIGEST_SIZE);
	hash_number(&state, event->sequence);
	hash_number(&state, (uint64_t)event->at_ms);
	hash_number(&state, event->generation);
	hash_number(&state, event->action);
	hash_number(&state, event->attempt);
	hash_number(&state, event->state);
	hash_bytes(&state, event->digest, DIGEST_SIZE);
	crypto_hash_sha256_final(&state, event->hash);
}

void chain_fingerprint(const char *kind, const void *request, size_t length,
		       unsigned char digest[DIGEST_SIZE])
{
	crypto_hash_sha256_state state;
	crypto_hash_sha256_init(&state);
	hash_text(&state, kind);
	hash_bytes(&state, request, length);
	crypto_hash_sha256_final(&state, digest);
}

/* One transaction; the row's id and the event are settled inside it. */
static int32_t write_once(orch_journal *journal, struct action_row *row,
			  const struct expectation *expected, bool begun, orch_error **reterr)
{
	int32_t r = begun ? 0 : store_begin(journal, reterr);
	if (r < 0)
		return r;
	r = store_put_action(journal, row, expected, reterr);
	if (r < 0)
		goto failed;
	struct event_row event = {
		.sequence = row->sequence,
		.at_ms = row->updated_at_ms,
		.generation = row->generation,
		.action = row->id,
		.attempt = row->attempt,
		.state = row->state,
	};
	chain_row_digest(row, event.digest);
	chain_event_hash(journal->head, &event);
	r = store_put_event(journal, &event, reterr);
	if (r < 0)
		goto failed;
	return store_commit(journal, &event, reterr);
failed:
	store_abort(journal);
	return r;
}

int32_t chain_write(orch_journal *journal, struct action_row *row,
		    const struct expectation *expected, bool begun, bool completes,
		    orch_error **reterr)
{
	row->sequence = journal->sequence + 1;
	row->generation = journal->generation;
	row->updated_at_ms = orch_realtime_ms();
	if (!expected)
		row->created_at_ms = row->updated_at_ms;

	orch_error *error = NULL;
	int32_t r;
	/*
	 * Where the disk is full, what happened still has to be written down. Nothing was synced
	 * when it turned out to be full, so trying again is no second fsync of lost pages. A result
	 * that would take more than half of what is kept back is cut: others may have to be written
	 * down after it. Each turn cuts or releases, so this ends.
	 */
	while ((r = write_once(journal, row, expected, begun, &error)) == ORCH_ENOSPC &&
	       completes) {
		bool whole = row->result_changed && row->result.kept;
		uint64_t cost = JOURNAL_RECORD_BYTES + (whole ? row->result.length : 0);
		if (whole && cost > (uint64_t)journal->headroom / 2) {
			if (!payload_cut(&row->result))
				break;
		} else if (!store_headroom_release(journal, cost)) {
			break;
		}
		error = orch_error_free(error);
		begun = false;
	}
	return pass_error(r, error, reterr);
}

int32_t chain_write_instance(orch_journal *journal, const struct instance_row *instance,
			     orch_error **reterr)
{
	int32_t r = store_begin(journal, reterr);
	if (r < 0)
		return r;
	r = store_put_instance(journal, instance, reterr);
	if (r < 0)
		goto failed;
	struct event_row event = {
		.sequence = journal->sequence + 1,
		.at_ms = instance->opened_at_ms,
		.generation = instance->generation,
	};
	chain_instance_digest(instance, event.digest);
	chain_event_hash(journal->head, &event);
	r = store_put_event(journal, &event, reterr);
	if (r < 0)
		goto failed;
	r = store_commit(journal, &event, reterr);
	if (r == 0)
		journal->generation = instance->generation;
	return r;
failed:
	store_abort(journal);
	return r;
}

int32_t chain_check_anchor(orch_journal *journal, const char *anchor_path, orch_error **reterr)
{
	struct anchor_point point;
	bool found;
	int32_t r = anchor_read(anchor_path, &found, &point, reterr);
	if (r < 0 || !found)
		return r;
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
	r = store_event_at(journal, point.sequence, &event, reterr);
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
