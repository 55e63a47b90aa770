/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "journal-private.h"

/*
 * All requests stand in one queue, so what one thread asks for keeps its order. Who finds nobody writing leads: it takes
 * the first of the queue, its own among them or not, writes them in one transaction, tells each how it went, and goes
 * on until its own is done. Then another one leads: the journal's thread where there is one, else whoever is first.
 * Callers that wait alone never meet a second thread.
 *
 * Locks: the writer's is never held together with the store's; a mailbox's is taken inside it.
 */

enum turn { WAITS, LEADS, DONE };

/* A caller that waits. */
struct waiter {
	struct ticket ticket;
	pthread_mutex_t mutex;
	pthread_cond_t turned;
	enum turn turn;
};

void writer_init(orch_journal *journal)
{
	struct writer *writer = &journal->writer;
	pthread_mutex_init(&writer->mutex, NULL);
	pthread_mutex_init(&writer->report_mutex, NULL);
	pthread_cond_init(&writer->thread_turned, NULL);
	writer->end = &writer->first;
}

void writer_free(orch_journal *journal)
{
	pthread_cond_destroy(&journal->writer.thread_turned);
	pthread_mutex_destroy(&journal->writer.report_mutex);
	pthread_mutex_destroy(&journal->writer.mutex);
}

/* --- one transaction
 * -------------------------------------------------------------------------------------- */

static void forget_answers(struct ticket *tickets)
{
	for (struct ticket *ticket = tickets; ticket; ticket = ticket->next) {
		ticket->code = 0;
		ticket->error = orch_error_free(ticket->error);
		ticket->last = 0;
	}
}

/*
 * A request that was refused before it changed anything leaves the transaction to the others. What is short of memory
 * or disk may have lost all of it.
 */
static bool refused_cleanly(orch_journal *journal, const struct ticket *ticket, int64_t changes, uint64_t draft)
{
	return ticket->code != ORCH_ENOMEM &&
	       !(ticket->code == ORCH_ENOSPC && ticket->request->completes) &&
	       !sqlite3_get_autocommit(journal->db) &&
	       sqlite3_total_changes64(journal->db) == changes && journal->draft == draft &&
	       !journal->poisoned;
}

static bool write_each(orch_journal *journal, struct ticket *tickets)
{
	for (struct ticket *ticket = tickets; ticket; ticket = ticket->next) {
		int64_t changes = sqlite3_total_changes64(journal->db);
		uint64_t before = journal->draft;
		ticket->code = ticket->request->write(journal, ticket->request, &ticket->error);
		if (ticket->code < 0 && !refused_cleanly(journal, ticket, changes, before))
			return false;
		if (ticket->code == 0 && journal->draft > before)
			ticket->last = journal->draft;
	}
	return true;
}

/* False: nothing is written, and each has to be tried alone. */
static bool run_together(orch_journal *journal, struct ticket *tickets)
{
	orch_error *error = NULL;
	if (store_begin(journal, NULL) < 0)
		return false;
	if (!write_each(journal, tickets)) {
		store_abort(journal);
		forget_answers(tickets);
		return false;
	}
	int32_t r = store_commit(journal, &error);
	if (r == 0)
		return true;
	forget_answers(tickets);
	/* Also who was refused was so because of what is not known to be there. */
	for (struct ticket *ticket = tickets; r == ORCH_EPOISONED && ticket; ticket = ticket->next) {
		ticket->code = r;
		ticket->error = orch_error_copy(error);
	}
	orch_error_free(error);
	return r == ORCH_EPOISONED;
}

static void run_alone(orch_journal *journal, struct ticket *ticket)
{
	uint64_t before = journal->sequence;
	ticket->code = store_check_writable(journal, &ticket->error);
	if (ticket->code == 0)
		ticket->code = chain_run_alone(journal, ticket->request, &ticket->error);
	if (ticket->code == 0 && journal->sequence > before)
		ticket->last = journal->sequence;
}

static void run_group(orch_journal *journal, struct ticket *tickets)
{
	store_lock_to_write(journal);
	if (!tickets->next || journal->poisoned || !run_together(journal, tickets))
		for (struct ticket *ticket = tickets; ticket; ticket = ticket->next)
			run_alone(journal, ticket);
	store_unlock(journal);
}

/* --- the queue
 * -------------------------------------------------------------------------------------------- */

static void append(struct writer *writer, struct ticket *ticket)
{
	ticket->next = NULL;
	*writer->end = ticket;
	writer->end = &ticket->next;
}

static struct ticket *take_group(struct writer *writer)
{
	struct ticket *first = writer->first, *last = first;
	uint64_t bytes = first->request->bytes;
	for (int count = 1; count < WRITER_GROUP_MAX && last->next; count++) {
		bytes += last->next->request->bytes;
		if (bytes > WRITER_GROUP_BYTES)
			break;
		last = last->next;
	}
	writer->first = last->next;
	if (!writer->first)
		writer->end = &writer->first;
	last->next = NULL;
	return first;
}

static struct waiter *waiter_of(struct ticket *ticket)
{
	return (struct waiter *)((char *)ticket - offsetof(struct waiter, ticket));
}

static void turn(struct waiter *waiter, enum turn turn)
{
	pthread_mutex_lock(&waiter->mutex);
	waiter->turn = turn;
	pthread_cond_signal(&waiter->turned);
	pthread_mutex_unlock(&waiter->mutex);
}

/* Callers are told outside the lock: they would all run into it. */
static void wake_callers(struct ticket *callers)
{
	while (callers) {
		struct waiter *waiter = waiter_of(callers);
		callers = callers->next; /* who was told is gone */
		turn(waiter, DONE);
	}
}

/* The next group, written and answered. Called with the lock, which is let go meanwhile. `own` is not woken. */
static void lead_once(orch_journal *journal, struct waiter *own)
{
	struct writer *writer = &journal->writer;
	struct ticket *tickets = take_group(writer), *callers = NULL, **end = &callers;
	pthread_mutex_unlock(&writer->mutex);
	run_group(journal, tickets);
	pthread_mutex_lock(&writer->mutex);
	watch_wake_all(journal);
	while (tickets) {
		struct ticket *ticket = tickets;
		tickets = ticket->next;
		if (ticket->call) {
			ticket->call->posted =
				orch_mailbox_post(ticket->call->mailbox, &ticket->call->letter);
		} else if (own && ticket == &own->ticket) {
			own->turn = DONE;
		} else {
			*end = ticket;
			end = &ticket->next;
		}
	}
	*end = NULL;
	if (callers) {
		pthread_mutex_unlock(&writer->mutex);
		wake_callers(callers);
		pthread_mutex_lock(&writer->mutex);
	}
}

/* Called with the lock, by who leads. */
static void resign(struct writer *writer)
{
	if (!writer->first) {
		writer->leader = LEADER_NONE;
	} else if (writer->has_thread) {
		writer->leader = LEADER_THREAD;
		pthread_cond_signal(&writer->thread_turned);
	} else {
		turn(waiter_of(writer->first), LEADS);
	}
}

static void wait_for_turn(struct waiter *waiter)
{
	pthread_mutex_lock(&waiter->mutex);
	while (waiter->turn == WAITS)
		pthread_cond_wait(&waiter->turned, &waiter->mutex);
	pthread_mutex_unlock(&waiter->mutex);
}

int32_t chain_run(orch_journal *journal, struct request *request, orch_error **reterr)
{
	struct writer *writer = &journal->writer;
	struct waiter waiter = {.ticket = {.request = request},
				.mutex = PTHREAD_MUTEX_INITIALIZER,
				.turned = PTHREAD_COND_INITIALIZER};
	pthread_mutex_lock(&writer->mutex);
	append(writer, &waiter.ticket);
	if (writer->leader == LEADER_NONE) {
		writer->leader = LEADER_CALLER;
		waiter.turn = LEADS;
	} else {
		pthread_mutex_unlock(&writer->mutex);
		wait_for_turn(&waiter);
		if (waiter.turn == LEADS)
			pthread_mutex_lock(&writer->mutex);
	}
	if (waiter.turn == LEADS) {
		while (waiter.turn != DONE)
			lead_once(journal, &waiter);
		resign(writer);
		pthread_mutex_unlock(&writer->mutex);
	}
	pthread_cond_destroy(&waiter.turned);
	pthread_mutex_destroy(&waiter.mutex);
	writer_report(journal, waiter.ticket.last);
	return pass_error(waiter.ticket.code, waiter.ticket.error, reterr);
}

void writer_report(orch_journal *journal, uint64_t last)
{
	if (!journal->on_record)
		return;
	pthread_mutex_lock(&journal->writer.report_mutex);
	while (journal->reported < last)
		journal->on_record(journal->userdata, ++journal->reported);
	pthread_mutex_unlock(&journal->writer.report_mutex);
}

/* --- the thread
 * ------------------------------------------------------------------------------------------- */

static void *writer_main(void *userdata)
{
	orch_journal *journal = userdata;
	struct writer *writer = &journal->writer;
	pthread_mutex_lock(&writer->mutex);
	for (;;) {
		while (writer->leader != LEADER_THREAD && !writer->stops)
			pthread_cond_wait(&writer->thread_turned, &writer->mutex);
		if (writer->leader != LEADER_THREAD)
			break;
		while (writer->first)
			lead_once(journal, NULL);
		writer->leader = LEADER_NONE;
	}
	pthread_mutex_unlock(&writer->mutex);
	return NULL;
}

/* Called with the lock. The host's signals are the host's: the thread takes none. */
static int32_t start_thread(orch_journal *journal, orch_error **reterr)
{
	sigset_t all, before;
	if (journal->writer.has_thread)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int os_errno = pthread_create(&journal->writer.thread, NULL, writer_main, journal);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (os_errno)
		return orch_fail(reterr, ORCH_ESYS, os_errno, "thread",
				 "%s: the journal's thread could not be started", journal->path);
	journal->writer.has_thread = true;
	return 0;
}

/* --- calls
 * ------------------------------------------------------------------------------------------------ */

static struct call *call_of(struct orch_letter *letter)
{
	return (struct call *)((char *)letter - offsetof(struct call, letter));
}

static void call_free(struct call *call)
{
	orch_journal *journal = call->journal;
	orch_mailbox_unref(call->mailbox);
	orch_error_free(call->ticket.error);
	call->kind->clear(call);
	free(call);
	journal_release(journal);
}

/* Called with the lock. From now on it is the caller's. */
static void take_call(struct writer *writer, struct call *call)
{
	if (call->previous)
		call->previous->next = call->next;
	else
		writer->calls = call->next;
	if (call->next)
		call->next->previous = call->previous;
}

/* In the context, or where it ends. */
static void arrive(struct orch_letter *letter, bool open)
{
	struct call *call = call_of(letter);
	orch_journal *journal = call->journal;
	orch_destroy_fn destroy = NULL;
	void *userdata = call->userdata;
	pthread_mutex_lock(&journal->writer.mutex);
	bool alive = false;
	if (!call->canceled) {
		destroy = call->destroy;
		take_call(&journal->writer, call);
		alive = open && journal_try_ref(journal);
		if (call->kind->settle)
			call->kind->settle(call, alive);
	}
	pthread_mutex_unlock(&journal->writer.mutex);
	if (alive) {
		writer_report(journal, call->ticket.last);
		call->kind->answer(call);
	}
	call_free(call);
	if (destroy)
		destroy(userdata);
	if (alive)
		orch_journal_unref(journal);
}

int32_t call_check(orch_journal *journal, orch_ctx *ctx, bool has_fn, orch_error **reterr)
{
	int32_t r = store_check_writable(journal, reterr);
	if (r == 0)
		r = orch_ctx_check(ctx, reterr);
	if (r == 0 && !has_fn)
		r = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	return r;
}

int32_t call_submit(struct call *call, orch_journal *journal, orch_ctx *ctx, orch_error **reterr)
{
	struct writer *writer = &journal->writer;
	pthread_mutex_lock(&writer->mutex);
	int32_t r = start_thread(journal, reterr);
	if (r == 0) {
		call->ticket.call = call;
		call->letter.arrive = arrive;
		call->journal = journal_hold(journal);
		call->mailbox = orch_mailbox_ref(orch_ctx_mailbox(ctx));
		call->next = writer->calls;
		if (call->next)
			call->next->previous = call;
		writer->calls = call;
		append(writer, &call->ticket);
		if (writer->leader == LEADER_NONE) {
			writer->leader = LEADER_THREAD;
			pthread_cond_signal(&writer->thread_turned);
		}
	}
	pthread_mutex_unlock(&writer->mutex);
	return r;
}

/* Nobody has a reference any more: those that were not told will not be. */
static bool cancel_one(struct writer *writer)
{
	pthread_mutex_lock(&writer->mutex);
	struct call *call = writer->calls;
	orch_destroy_fn destroy = NULL;
	void *userdata = NULL;
	bool posted = false;
	if (call) {
		destroy = call->destroy;
		userdata = call->userdata;
		posted = call->posted;
		take_call(writer, call);
		call->canceled = true;
		if (call->kind->settle)
			call->kind->settle(call, false);
	}
	pthread_mutex_unlock(&writer->mutex);
	/* One that was posted is freed when its letter arrives. */
	if (call && !posted)
		call_free(call);
	if (destroy)
		destroy(userdata);
	return call != NULL;
}

void writer_close(orch_journal *journal)
{
	struct writer *writer = &journal->writer;
	if (writer->has_thread) {
		pthread_mutex_lock(&writer->mutex);
		writer->stops = true;
		pthread_cond_signal(&writer->thread_turned);
		pthread_mutex_unlock(&writer->mutex);
		pthread_join(writer->thread, NULL);
	}
	writer_report(journal, journal->sequence);
	while (cancel_one(writer))
		;
}
