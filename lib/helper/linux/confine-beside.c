/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root, beside the rest: the kernel needs as long for a network namespace, which PID 1 makes for itself meanwhile. A
 * thread has credentials of its own, which nothing is done with here; descriptors, working directory, root and umask are
 * everybody's. It is over before anything that is not trusted runs.
 */
#include <limits.h>

#include "confine-private.h"

#define STACK 65536u

static void *work(void *userdata)
{
	struct confine_beside *beside = userdata;

	beside->result = confine_root(beside->confine, &beside->error);
	return NULL;
}

void confine_beside_begin(struct confine_beside *beside, struct confine *confine)
{
	pthread_attr_t attr;

	*beside = (struct confine_beside){.confine = confine};
	if (pthread_attr_init(&attr) == 0) {
		pthread_attr_setstacksize(&attr, STACK < PTHREAD_STACK_MIN ? (size_t)PTHREAD_STACK_MIN : STACK);
		beside->runs = pthread_create(&beside->thread, &attr, work, beside) == 0;
		pthread_attr_destroy(&attr);
	}
	/* A limit of processes, for example. It can not be done later: then the filter forbids it. */
	if (!beside->runs)
		work(beside);
}

int confine_beside_end(struct confine_beside *beside, struct setup_error *error)
{
	if (beside->runs)
		pthread_join(beside->thread, NULL);
	if (beside->result < 0)
		*error = beside->error;
	return beside->result;
}
