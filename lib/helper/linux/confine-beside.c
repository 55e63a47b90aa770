/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel does slowly, beside the rest, in a thread: a network namespace takes as long as the whole root, and
 * detaching mounts waits for the other processors. A thread has namespaces and credentials of its own; descriptors, the
 * working directory and the root are everybody's. It is over before anything that is not trusted runs.
 */
#include <limits.h>

#include "confine-private.h"

#define STACK 65536u

static void *work(void *userdata)
{
	struct confine_beside *beside = userdata;

	for (;;) {
		while (sem_wait(&beside->begun) < 0)
			;
		if (!beside->fn)
			return NULL;
		beside->result = beside->fn(beside->confine, &beside->error);
		sem_post(&beside->done);
	}
}

void confine_beside_begin(struct confine_beside *beside, confine_beside_fn fn)
{
	beside->fn = fn;
	if (beside->runs)
		sem_post(&beside->begun);
	else
		beside->result = fn(beside->confine, &beside->error);
}

int confine_beside_wait(struct confine_beside *beside, struct setup_error *error)
{
	while (beside->runs && sem_wait(&beside->done) < 0)
		;
	if (beside->result < 0)
		*error = beside->error;
	return beside->result;
}

void confine_beside_open(struct confine_beside *beside, struct confine *confine)
{
	pthread_attr_t attr;

	*beside = (struct confine_beside){.confine = confine};
	if (sem_init(&beside->begun, 0, 0) < 0 || sem_init(&beside->done, 0, 0) < 0 || pthread_attr_init(&attr) != 0)
		return;
	pthread_attr_setstacksize(&attr, STACK < PTHREAD_STACK_MIN ? (size_t)PTHREAD_STACK_MIN : STACK);
	/* Where there can be none, for example by a limit of processes, all is done in turn. */
	beside->runs = pthread_create(&beside->thread, &attr, work, beside) == 0;
	pthread_attr_destroy(&attr);
}

void confine_beside_close(struct confine_beside *beside)
{
	if (!beside->runs)
		return;
	confine_beside_begin(beside, NULL);
	pthread_join(beside->thread, NULL);
	beside->runs = false;
}
