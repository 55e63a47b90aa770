/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "mailbox.h"

/*
 * Outlives its context: a thread that has an answer asks the mailbox, which knows whether there still is somebody to
 * tell. Its lock is taken last, and nothing is called under it.
 */
struct orch_mailbox {
	atomic_uint references;
	pthread_mutex_t lock; /* the members below */
	orch_ctx *ctx;	       /* NULL: it is gone */
	struct mirror *mirror; /* its own */
	struct orch_letter *first, **end;
};

orch_mailbox *mailbox_new(orch_ctx *ctx, struct mirror *mirror)
{
	orch_mailbox *mailbox = calloc(1, sizeof(*mailbox));
	if (!mailbox)
		return NULL;
	atomic_init(&mailbox->references, 1);
	pthread_mutex_init(&mailbox->lock, NULL);
	mailbox->ctx = ctx;
	mailbox->mirror = mirror;
	mailbox->end = &mailbox->first;
	return mailbox;
}

orch_mailbox *orch_mailbox_ref(orch_mailbox *mailbox)
{
	if (mailbox)
		atomic_fetch_add(&mailbox->references, 1);
	return mailbox;
}

orch_mailbox *orch_mailbox_unref(orch_mailbox *mailbox)
{
	if (!mailbox || atomic_fetch_sub(&mailbox->references, 1) != 1)
		return NULL;
	pthread_mutex_destroy(&mailbox->lock);
	free(mailbox);
	return NULL;
}

bool orch_mailbox_post(orch_mailbox *mailbox, struct orch_letter *letter)
{
	letter->next = NULL;
	pthread_mutex_lock(&mailbox->lock);
	bool open = mailbox->ctx != NULL;
	if (open) {
		/* Whoever put the first one in has rung already. */
		if (!mailbox->first)
			mirror_wakeup(mailbox->mirror);
		*mailbox->end = letter;
		mailbox->end = &letter->next;
	}
	pthread_mutex_unlock(&mailbox->lock);
	return open;
}

bool orch_mailbox_is_mine(orch_mailbox *mailbox)
{
	pthread_mutex_lock(&mailbox->lock);
	bool mine = mailbox->ctx && ctx_is_mine(mailbox->ctx);
	pthread_mutex_unlock(&mailbox->lock);
	return mine;
}

static struct orch_letter *take_letters(orch_mailbox *mailbox, bool close)
{
	pthread_mutex_lock(&mailbox->lock);
	struct orch_letter *letters = mailbox->first;
	mailbox->first = NULL;
	mailbox->end = &mailbox->first;
	if (close)
		mailbox->ctx = NULL;
	pthread_mutex_unlock(&mailbox->lock);
	return letters;
}

void mailbox_open_letters(orch_mailbox *mailbox)
{
	struct orch_letter *letter = take_letters(mailbox, false);
	while (letter) {
		struct orch_letter *next = letter->next;
		letter->arrive(letter, true);
		letter = next;
	}
}

void mailbox_close(orch_mailbox *mailbox)
{
	struct orch_letter *letter = take_letters(mailbox, true);
	while (letter) {
		struct orch_letter *next = letter->next;
		letter->arrive(letter, false);
		letter = next;
	}
}
