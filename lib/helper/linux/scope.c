/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "../../reaper/linux/census.h"
#include "scope.h"

/* linux/magic.h, PID_FS_MAGIC; not in Debian 12's headers. */
#define PIDFS_MAGIC 0x50494446

struct scope *scope_find(const struct helper *helper, uint32_t id)
{
	for (struct scope *scope = helper->scopes; scope; scope = scope->next)
		if (scope->id == id)
			return scope;
	return NULL;
}

bool scope_has_to_sweep(const struct scope *scope)
{
	return scope->rung == ORCH_RUNG_SUBREAPER && scope->used;
}

/* Without a pidfd (none were left) the pid is as good: our child, and nobody else reaps it. */
bool scope_kill_init(const struct scope *scope)
{
	if (scope->init_fd >= 0)
		return pidfd_signal(scope->init_fd, SIGKILL) == 0;
	return scope->init_pid && !scope->init_reaped && kill(scope->init_pid, SIGKILL) == 0;
}

/* A pid is given away again: with the start time, and where pidfds have inodes of their own by theirs, it is one
 * process of this boot. Before Linux 6.9 all of them share one inode. */
static void note_identity(struct scope *scope)
{
	struct census_entry entry;
	struct statfs system;
	struct stat status;
	if (census_describe(scope->init_pid, &entry))
		scope->init_start_time = entry.start_time;
	if (scope->init_fd >= 0 && fstatfs(scope->init_fd, &system) == 0 && system.f_type == PIDFS_MAGIC &&
	    fstat(scope->init_fd, &status) == 0 && status.st_ino > 1)
		scope->init_pidfs_inode = status.st_ino;
}

/* Init is our child (CLONE_PARENT) and only we reap, so the pid can not be a stranger's. */
void scope_adopt_init(struct scope *scope)
{
	if (scope->init_pid || !scope->page || !scope->page->init_pid)
		return;
	scope->init_pid = scope->page->init_pid;
	scope->init_fd = pidfd_open_(scope->init_pid);
	note_identity(scope);
	if (scope->state >= KILLING)
		scope_kill_init(scope);
}

void scope_unmap_page(struct scope *scope)
{
	if (scope->page)
		munmap(scope->page, sizeof(*scope->page));
	scope->page = NULL;
}

void scope_free(struct helper *helper, struct scope *scope)
{
	struct scope **link = &helper->scopes;
	while (*link != scope)
		link = &(*link)->next;
	*link = scope->next;
	close_fd(&scope->setup_fd);
	close_fd(&scope->init_fd);
	close_fd(&scope->control_fd);
	close_fd(&scope->cgroup_fd);
	close_fd(&scope->proc_fd);
	close_fd(&scope->spec_fd);
	limits_close(&scope->limits);
	if (scope->has_ready)
		wire_packet_close(&scope->ready);
	wire_queue_clear(&scope->to_init);
	scope_unmap_page(scope);
	free(scope);
}
