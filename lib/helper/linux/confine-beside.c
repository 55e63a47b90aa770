/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel does slowly, beside the rest: a network namespace takes as long as the whole root, and detaching the old
 * root waits for the other processors. Done by a thread, which has namespaces and credentials of its own; descriptors,
 * working directory and root are everybody's. It is over before anything that is not trusted runs.
 */
#include <limits.h>

#include "confine-private.h"

#define STACK 65536u

static void detach(struct confine_beside *beside)
{
	if (beside->entered && beside->result == 0)
		beside->result = confine_root_detach_old(&beside->error);
}

static void *work(void *userdata)
{
	struct confine_beside *beside = userdata;

	beside->result = confine_network_make(beside->confine, &beside->error);
	while (sem_wait(&beside->told) < 0)
		;
	detach(beside);
	return NULL;
}

void confine_beside_begin(struct confine_beside *beside, struct confine *confine)
{
	pthread_attr_t attr;

	*beside = (struct confine_beside){.confine = confine};
	if (sem_init(&beside->told, 0, 0) == 0 && pthread_attr_init(&attr) == 0) {
		pthread_attr_setstacksize(&attr, STACK < PTHREAD_STACK_MIN ? (size_t)PTHREAD_STACK_MIN : STACK);
		beside->runs = pthread_create(&beside->thread, &attr, work, beside) == 0;
		pthread_attr_destroy(&attr);
	}
	/* A limit of processes, for example: it is done in turn then. */
	if (!beside->runs)
		beside->result = confine_network_make(confine, &beside->error);
}

void confine_beside_tell(struct confine_beside *beside, bool entered)
{
	beside->entered = entered;
	if (beside->runs)
		sem_post(&beside->told);
	else
		detach(beside);
}

int confine_beside_end(struct confine_beside *beside, struct setup_error *error)
{
	if (beside->runs)
		pthread_join(beside->thread, NULL);
	if (beside->result < 0)
		*error = beside->error;
	return beside->result;
}
