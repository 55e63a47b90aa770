/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/*
 * A watch remembers how far it told, and reads on from there when a commit wakes it: what waits for a slow context are
 * the records in the journal, and nothing is queued. It has one letter, which is under way or not.
 *
 * It ends once: when its handle is dropped, when its callback wants no more, or with its context. Who drops the handle
 * in another thread leaves the ending to the context.
 */
struct orch_watch {
	struct orch_letter letter;
	orch_journal *journal; /* a reference until it ended, its memory until the handle goes */
	orch_mailbox *mailbox;
	orch_ctx *ctx; /* there is one when a letter arrives */
	orch_record_fn fn;
	void *userdata;
	orch_destroy_fn destroy;
	uint64_t after; /* told up to here */
	orch_watch *next, *previous;
	/* Under the writer's lock. */
	bool posted;  /* the letter is going to arrive, or is being read */
	bool telling; /* it is being read */
	bool ended;
	bool torn;    /* somebody gives back what it had of the host */
	bool dropped; /* nobody has the handle any more */
	orch_record records[RECORD_BATCH];
};

/* --- under the writer's lock
 * ------------------------------------------------------------------------------ */

static bool post(orch_watch *watch)
{
	if (!watch->posted)
		watch->posted = orch_mailbox_post(watch->mailbox, &watch->letter);
	return watch->posted;
}

void watch_wake_all(orch_journal *journal)
{
	for (orch_watch *watch = journal->writer.watches; watch; watch = watch->next)
		post(watch);
}

static void end(orch_watch *watch)
{
	if (watch->ended)
		return;
	watch->ended = true;
	if (watch->previous)
		watch->previous->next = watch->next;
	else
		watch->journal->writer.watches = watch->next;
	if (watch->next)
		watch->next->previous = watch->previous;
}

/* What the host gave: taken by one only, who may outlive the watch. */
struct remains {
	orch_journal *journal; /* NULL: another one has them */
	orch_destroy_fn destroy;
	void *userdata;
};

static struct remains take_remains(orch_watch *watch)
{
	if (watch->torn)
		return (struct remains){0};
	watch->torn = true;
	return (struct remains){watch->journal, watch->destroy, watch->userdata};
}

/* --- without it
 * ------------------------------------------------------------------------------------------ */

static void give_back(struct remains remains)
{
	if (remains.journal && remains.destroy)
		remains.destroy(remains.userdata);
	orch_journal_unref(remains.journal);
}

static void watch_free(orch_watch *watch)
{
	orch_mailbox_unref(watch->mailbox);
	journal_release(watch->journal);
	free(watch);
}

static bool has_ended(orch_watch *watch)
{
	pthread_mutex_lock(&watch->journal->writer.mutex);
	bool ended = watch->ended;
	pthread_mutex_unlock(&watch->journal->writer.mutex);
	return ended;
}

/* The next records. False: it is over. */
static bool tell(orch_watch *watch)
{
	orch_journal *journal = watch->journal;
	orch_error *error = NULL;
	uint32_t count = 0;
	/* A journal that is poisoned tells nothing more, and stays watched. */
	if (store_check(journal, NULL) < 0)
		return true;
	store_lock(journal);
	uint64_t last = journal->sequence;
	int32_t r = watch->after >= last ? 0
					 : record_read(journal, watch->after, last, watch->records,
						       RECORD_BATCH, &count, &error);
	store_unlock(journal);
	if (r < 0 && r != ORCH_ENOMEM)
		orch_ctx_logf(watch->ctx, ORCH_LOG_ERROR, "a watch of the journal ends: %s",
			      orch_error_message(error));
	orch_error_free(error);
	for (uint32_t i = 0; i < count && !has_ended(watch); i++) {
		watch->after = watch->records[i].sequence;
		if (watch->fn(watch->userdata, &watch->records[i]))
			return false;
	}
	/* Without memory it is tried again in the next turn. */
	return r == 0 || r == ORCH_ENOMEM;
}

static void arrive(struct orch_letter *letter, bool open)
{
	orch_watch *watch = (orch_watch *)((char *)letter - offsetof(orch_watch, letter));
	orch_journal *journal = watch->journal;
	pthread_mutex_lock(&journal->writer.mutex);
	watch->telling = open && !watch->ended;
	pthread_mutex_unlock(&journal->writer.mutex);
	bool over = watch->telling ? !tell(watch) : !open;

	struct remains remains = {0};
	pthread_mutex_lock(&journal->writer.mutex);
	watch->telling = watch->posted = false;
	if (over)
		end(watch);
	if (watch->ended)
		remains = take_remains(watch);
	else if (watch->after < journal->sequence && !journal->poisoned)
		post(watch);
	bool dropped = watch->dropped;
	pthread_mutex_unlock(&journal->writer.mutex);
	if (dropped)
		watch_free(watch);
	give_back(remains);
}

static int32_t watch_check(orch_journal *journal, orch_ctx *ctx, orch_record_fn fn,
			   orch_watch **ret_watch, orch_error **reterr)
{
	int32_t r = store_check(journal, reterr);
	if (r == 0)
		r = orch_ctx_check(ctx, reterr);
	if (r == 0 && (!fn || !ret_watch))
		r = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s is NULL",
			      fn ? "ret_watch" : "the callback");
	return r;
}

int32_t orch_journal_watch(orch_journal *journal, orch_ctx *ctx, uint64_t after_sequence,
			   orch_record_fn fn, void *userdata, orch_destroy_fn destroy,
			   orch_watch **ret_watch, orch_error **reterr)
{
	int32_t r = watch_check(journal, ctx, fn, ret_watch, reterr);
	orch_watch *watch = r == 0 ? calloc(1, sizeof(*watch)) : NULL;
	if (r == 0 && !watch)
		r = orch_fail_memory(reterr);
	if (r < 0) {
		if (destroy)
			destroy(userdata);
		return r;
	}
	watch->letter.arrive = arrive;
	watch->journal = journal_hold(orch_journal_ref(journal));
	watch->mailbox = orch_mailbox_ref(orch_ctx_mailbox(ctx));
	watch->ctx = ctx;
	watch->fn = fn;
	watch->userdata = userdata;
	watch->destroy = destroy;
	struct writer *writer = &journal->writer;
	pthread_mutex_lock(&writer->mutex);
	watch->after = after_sequence == UINT64_MAX ? journal->sequence : after_sequence;
	watch->next = writer->watches;
	if (watch->next)
		watch->next->previous = watch;
	writer->watches = watch;
	if (watch->after < journal->sequence)
		post(watch);
	pthread_mutex_unlock(&writer->mutex);
	*ret_watch = watch;
	return 0;
}

orch_watch *orch_watch_unref(orch_watch *watch)
{
	/* In a forked child the lock may be held by a thread that is not there. */
	if (!watch || watch->journal->pid != getpid())
		return NULL;
	orch_journal *journal = watch->journal;
	bool here = orch_mailbox_is_mine(watch->mailbox);
	struct remains remains = {0};
	pthread_mutex_lock(&journal->writer.mutex);
	end(watch);
	watch->dropped = true;
	/* Inside its own callback, or in another thread: the context does the rest, unless it is gone. */
	if (!watch->telling && (here || watch->torn || !post(watch)))
		remains = take_remains(watch);
	bool done = !watch->posted;
	pthread_mutex_unlock(&journal->writer.mutex);
	if (done)
		watch_free(watch);
	give_back(remains);
	return NULL;
}
