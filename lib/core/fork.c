/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "core-private.h"

/* The one fork handler of the library: the child closes what it must not hold. */

static pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t held_once = PTHREAD_ONCE_INIT;
static int **held;
static size_t held_count, held_capacity;

static void fork_prepare(void)
{
	pthread_mutex_lock(&held_mutex);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&held_mutex);
}

static void fork_child(void)
{
	for (size_t i = 0; i < held_count; i++)
		orch_close_fd(held[i]);
	held_count = 0;
	pthread_mutex_unlock(&held_mutex);
}

static void held_init(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

bool orch_close_in_child(int *fd)
{
	pthread_once(&held_once, held_init);
	pthread_mutex_lock(&held_mutex);
	if (held_count == held_capacity) {
		size_t capacity = held_capacity ? 2 * held_capacity : 4;
		int **grown = realloc(held, capacity * sizeof(*held));
		if (!grown) {
			pthread_mutex_unlock(&held_mutex);
			return false;
		}
		held = grown;
		held_capacity = capacity;
	}
	held[held_count++] = fd;
	pthread_mutex_unlock(&held_mutex);
	return true;
}

void orch_close_in_child_no_more(const int *fd)
{
	pthread_mutex_lock(&held_mutex);
	for (size_t i = 0; i < held_count; i++)
		if (held[i] == fd)
			held[i--] = held[--held_count];
	if (!held_count) {
		free(held);
		held = NULL;
		held_capacity = 0;
	}
	pthread_mutex_unlock(&held_mutex);
}
