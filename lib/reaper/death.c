/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "scope-private.h"

struct orch_death {
	atomic_uint references;
	uint32_t verdict;
	char *scope;
	char *label;
	char *mechanism;
	char *proof;
	char *reason;
	char *text;
	uint64_t pidns_inode;
	char boot_id[sizeof(((struct reaper *)0)->boot_id)];
	int32_t init_pid; /* 0: none is known */
	uint64_t init_start_time, init_pidfs_inode;
	uint32_t rung;
	bool by_lineage; /* no supervisor either: macOS */
	uint32_t limit; /* ORCH_LIMIT_*: it ended the scope; 0: none */
	uint32_t alive;
	int64_t requested_ms;
	int64_t last_death_us;
	int64_t confirmed_us;
	struct census_entry *survivors;
	uint32_t survivor_count;
	struct death_work *works;
	uint32_t work_count;
};

struct death_work {
	char *what;
	char *outcome; /* NULL: not settled */
};

static void add_part(struct orch_buf *buf, bool condition, const char *part)
{
	if (!condition)
		return;
	if (buf->length)
		orch_buf_puts(buf, ", ");
	orch_buf_puts(buf, part);
}

static char *take(struct orch_buf *buf)
{
	return buf->data ? buf->data : strdup("");
}

static char *mechanism_text(uint32_t rung, const struct death_facts *facts)
{
	uint32_t flags = facts->flags;
	bool has_pidns = rung == 0 || rung >= ORCH_RUNG_PIDNS;
	struct orch_buf buf = {0};
	add_part(&buf, flags & WIRE_DEATH_TIME, "its time limit was over");
	add_part(&buf, flags & WIRE_DEATH_MEMORY,
		 "its memory limit was exceeded, and the kernel killed in it (oom_kill has risen)");
	add_part(&buf, flags & WIRE_DEATH_HOST_MEMORY,
		 "the kernel killed in it for want of memory outside of it (oom_kill has risen below its own limit)");
	add_part(&buf, flags & WIRE_DEATH_NEVER_STOOD, "ended in set-up");
	add_part(&buf, flags & WIRE_DEATH_SELF,
		 has_pidns ? "init ended by itself or was killed from outside"
			   : "the scope's supervisor was killed, by its load or from outside");
	add_part(&buf, flags & WIRE_DEATH_TERMINATED, "SIGTERM to every process and grace");
	add_part(&buf, flags & WIRE_DEATH_CGROUP_KILL, "cgroup.kill");
	add_part(&buf, flags & WIRE_DEATH_INIT_KILLED,
		 has_pidns ? "SIGKILL to the PID namespace's init by pidfd" : "SIGKILL to the scope's supervisor by pidfd");
	add_part(&buf, flags & WIRE_DEATH_SWEPT,
		 "by the scope's supervisor SIGKILL to its children, SIGSTOP to what descends from them, until none was left");
	add_part(&buf, facts->left_to_supervisor,
		 "left to the scope's supervisor, which ends its descendants and then itself once orch-reaper is gone");
	add_part(&buf, flags & WIRE_DEATH_ADOPTED,
		 "SIGKILL by orch-reaper, which became the parent of what the supervisor left");
	add_part(&buf, flags & WIRE_DEATH_LEFT, "SIGKILL to descendants that had left the cgroup");
	add_part(&buf, flags & WIRE_DEATH_THAWED, "THAWED to a freezer (cgroup v1) that held members");
	add_part(&buf, flags & WIRE_DEATH_UID_KILLED, "SIGKILL to every process of the scope's own uid");
	add_part(&buf, flags & WIRE_DEATH_LINEAGE_KILLED,
		 "SIGKILL to every descendant that was found and to their process groups");
	add_part(&buf, flags & WIRE_DEATH_UNUSED, "nothing had to be killed");
	if (flags & WIRE_DEATH_RECOVERED && !buf.length)
		add_part(&buf, true, "nobody was found to be killed");
	add_part(&buf, flags & WIRE_DEATH_RECOVERED, "in recovery after the host's end");
	return take(&buf);
}

static char *proof_text(uint32_t rung, const struct death_facts *facts)
{
	bool has_pidns = rung == 0 || rung >= ORCH_RUNG_PIDNS;
	struct orch_buf buf = {0};
	bool dead = facts->verdict == ORCH_DEATH_DEAD;
	add_part(&buf, dead && facts->flags & (WIRE_DEATH_NEVER_STOOD | WIRE_DEATH_UNUSED),
		 "no program had been started");
	add_part(&buf, facts->flags & WIRE_DEATH_INIT_REAPED,
		 has_pidns ? "waitid() on init returned, so its PID namespace is empty"
			   : "the scope's supervisor is reaped and left no child behind");
	add_part(&buf, facts->host_proof,
		 has_pidns ? "the host's pidfd of init reports its end, so its PID namespace is empty"
			   : "the host's pidfd of the supervisor reports its end");
	add_part(&buf, facts->flags & WIRE_DEATH_CHILDLESS, "waitid() in the supervisor said that no descendant was left");
	add_part(&buf, facts->flags & WIRE_DEATH_ANOTHER_BOOT,
		 "the machine was started again since (another boot id)");
	add_part(&buf, facts->flags & WIRE_DEATH_INIT_GONE,
		 "the process that was init is dead (by its identity, not its number), so its PID namespace is empty");
	add_part(&buf, facts->flags & WIRE_DEATH_HELPER_GONE,
		 "the orch-reaper that was to make it is dead, and nothing of a set-up is left");
	add_part(&buf, facts->flags & WIRE_DEATH_CGROUP_EMPTY, "cgroup.events says populated 0");
	add_part(&buf, facts->flags & WIRE_DEATH_CGROUP_GONE, "the cgroup leaf is removed");
	add_part(&buf, facts->flags & WIRE_DEATH_UID_EMPTY,
		 "twice in a row nothing that lives had the scope's own uid, real or effective");
	return take(&buf);
}

static void add_time(struct orch_buf *buf, const char *what, int64_t us)
{
	if (us < 0)
		orch_buf_printf(buf, "%s not known", what);
	else
		orch_buf_printf(buf, "%s %lld.%03lld ms", what, (long long)us / 1000,
				(long long)us % 1000);
}

static void add_identity(struct orch_buf *buf, const struct orch_death *death)
{
	if (!death->init_pid)
		return;
	orch_buf_printf(buf, "  init       pid %d", (int)death->init_pid);
	if (death->init_start_time)
		orch_buf_printf(buf, ", started at tick %llu", (unsigned long long)death->init_start_time);
	if (death->init_pidfs_inode)
		orch_buf_printf(buf, ", pidfs inode %llu", (unsigned long long)death->init_pidfs_inode);
	orch_buf_printf(buf, ", boot %s\n", death->boot_id[0] ? death->boot_id : "not known");
}

static char *whole_text(const struct orch_death *death)
{
	struct orch_buf buf = {0};
	char when[32] = "?";
	time_t seconds = (time_t)(death->requested_ms / 1000);
	struct tm utc;
	if (gmtime_r(&seconds, &utc))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
	orch_buf_printf(&buf, "%s  scope %s", orch_death_verdict_name(death), death->scope);
	if (strcmp(death->label, death->scope) != 0)
		orch_buf_printf(&buf, " (%s)", death->label);
	if (death->rung == ORCH_RUNG_SUBREAPER) {
		orch_buf_puts(&buf, ", members found by descent\n");
		orch_buf_printf(&buf, "  requested  %s, %u known to live\n", when, death->alive);
	} else if (death->rung == ORCH_RUNG_CGROUP) {
		orch_buf_puts(&buf, ", members of its cgroup\n");
		orch_buf_printf(&buf, "  requested  %s, %u alive besides the supervisor\n", when, death->alive);
	} else {
		orch_buf_printf(&buf, ", PID namespace %llu\n", (unsigned long long)death->pidns_inode);
		orch_buf_printf(&buf, "  requested  %s, %u alive besides init\n", when, death->alive);
	}
	add_identity(&buf, death);
	orch_buf_printf(&buf, "  killed by  %s\n", death->mechanism);
	if (death->proof[0])
		orch_buf_printf(&buf, "  proof      %s\n", death->proof);
	if (death->reason[0])
		orch_buf_printf(&buf, "  reason     %s\n", death->reason);
	add_time(&buf, "  last death", death->last_death_us);
	add_time(&buf, ", confirmed", death->confirmed_us);
	orch_buf_puts(&buf, " after the request\n");
	const char *format = death->by_lineage
				 ? "  survivor   pid %d, started %llu us after 1970, state %s, named %s\n"
				 : "  survivor   pid %d, started at tick %llu, state %s, in %s\n";
	for (uint32_t i = 0; i < death->survivor_count; i++)
		orch_buf_printf(&buf, format, (int)death->survivors[i].pid,
				(unsigned long long)death->survivors[i].start_time,
				death->survivors[i].state, death->survivors[i].wchan);
	for (uint32_t i = 0; i < death->work_count; i++)
		orch_buf_printf(&buf, "  on the host %s: %s\n", death->works[i].what,
				death->works[i].outcome ? death->works[i].outcome : "did not settle");
	return take(&buf);
}

static void death_free(orch_death *death)
{
	free(death->scope);
	free(death->label);
	free(death->mechanism);
	free(death->proof);
	free(death->reason);
	free(death->text);
	free(death->survivors);
	for (uint32_t i = 0; i < death->work_count; i++) {
		free(death->works[i].what);
		free(death->works[i].outcome);
	}
	free(death->works);
	free(death);
}

uint32_t death_verdict(uint32_t rung, uint32_t verdict, uint32_t flags)
{
	const uint32_t sure = WIRE_DEATH_UID_EMPTY | WIRE_DEATH_NEVER_STOOD | WIRE_DEATH_UNUSED;
	bool says_dead = verdict == ORCH_DEATH_DEAD || verdict == ORCH_DEATH_DEAD_UNREAPED;
	return rung == ORCH_RUNG_SUBREAPER && says_dead && !(flags & sure) ? ORCH_DEATH_UNVERIFIABLE : verdict;
}

orch_death *death_new(struct orch_scope *scope, const struct death_facts *facts)
{
	orch_death *death = calloc(1, sizeof(*death));
	if (!death)
		return NULL;
	atomic_init(&death->references, 1);
	death->verdict = facts->verdict;
	death->scope = strdup(scope->name);
	death->label = strdup(scope->label);
	death->mechanism = mechanism_text(scope->rung, facts);
	/* By descent: whoever had run was dead before anybody looked. */
	if (death->mechanism && !death->mechanism[0] && scope->rung == ORCH_RUNG_SUBREAPER) {
		free(death->mechanism);
		death->mechanism = strdup("nobody was found to be killed");
	}
	death->proof = proof_text(scope->rung, facts);
	death->reason = strdup(facts->reason);
	death->pidns_inode = scope->pidns_inode;
	memcpy(death->boot_id, scope->reaper->boot_id, sizeof(death->boot_id));
	death->init_pid = scope->init_pid;
	death->init_start_time = scope->init_start_time;
	death->init_pidfs_inode = scope->init_pidfs_inode;
	death->rung = scope->rung;
	death->by_lineage = scope->rung == ORCH_RUNG_SUBREAPER && !scope->init_pid;
	if (facts->flags & WIRE_DEATH_MEMORY)
		death->limit = ORCH_LIMIT_MEMORY;
	else if (facts->flags & WIRE_DEATH_TIME)
		death->limit = ORCH_LIMIT_TIME;
	death->alive = facts->alive;
	death->requested_ms = facts->requested_ms;
	death->last_death_us = facts->last_death_us;
	death->confirmed_us = facts->confirmed_us;
	death->survivors = ORCH_STEAL(scope->survivors);
	death->survivor_count = scope->survivor_count;
	scope->survivor_count = 0;
	if (death->scope && death->label && death->mechanism && death->proof && death->reason)
		death->text = whole_text(death);
	if (!death->text) {
		death_free(death);
		return NULL;
	}
	return death;
}

bool death_add_works(orch_death *death, const struct host_work *works, int64_t waited_us)
{
	uint32_t count = 0;
	const char *open = NULL;
	bool dead = death->verdict == ORCH_DEATH_DEAD || death->verdict == ORCH_DEATH_DEAD_UNREAPED;
	for (const struct host_work *work = works; work; work = work->next)
		count++;
	death->works = calloc(count, sizeof(*death->works));
	if (!death->works)
		return false;
	for (; works; works = works->next) {
		struct death_work *row = &death->works[death->work_count++];
		row->what = strdup(works->what);
		row->outcome = works->outcome ? strdup(works->outcome) : NULL;
		if (!row->what || (works->outcome && !row->outcome))
			return false;
		if (!row->outcome && !open)
			open = row->what;
	}
	if (dead && open) {
		char *reason = orch_strdup_printf(
			"every process is dead, and on the host \"%s\" did not settle by the deadline", open);
		if (!reason)
			return false;
		free(death->reason);
		death->reason = reason;
		death->verdict = ORCH_DEATH_UNVERIFIABLE;
	}
	death->confirmed_us += waited_us;
	free(death->text);
	death->text = whole_text(death);
	return death->text != NULL;
}

orch_death *orch_death_ref(orch_death *death)
{
	if (death)
		atomic_fetch_add(&death->references, 1);
	return death;
}

orch_death *orch_death_unref(orch_death *death)
{
	if (death && atomic_fetch_sub(&death->references, 1) == 1)
		death_free(death);
	return NULL;
}

uint32_t orch_death_verdict(const orch_death *death)
{
	return death ? death->verdict : 0;
}

const char *orch_death_verdict_name(const orch_death *death)
{
	switch (orch_death_verdict(death)) {
	case ORCH_DEATH_DEAD:
		return "DEAD";
	case ORCH_DEATH_DEAD_UNREAPED:
		return "DEAD_UNREAPED";
	case ORCH_DEATH_SURVIVORS:
		return "SURVIVORS";
	default:
		return "UNVERIFIABLE";
	}
}

const char *orch_death_mechanism(const orch_death *death)
{
	return death ? death->mechanism : "";
}

const char *orch_death_proof(const orch_death *death)
{
	return death ? death->proof : "";
}

const char *orch_death_reason(const orch_death *death)
{
	return death ? death->reason : "";
}

uint32_t orch_death_limit(const orch_death *death)
{
	return death ? death->limit : 0;
}

const char *orch_death_scope(const orch_death *death)
{
	return death ? death->scope : "";
}

uint64_t orch_death_pidns_inode(const orch_death *death)
{
	return death ? death->pidns_inode : 0;
}

const char *orch_death_boot_id(const orch_death *death)
{
	return death ? death->boot_id : "";
}

int32_t orch_death_init(const orch_death *death, int32_t *ret_pid, uint64_t *ret_start_time_ticks,
			uint64_t *ret_pidfs_inode)
{
	if (!death)
		return ORCH_EINVAL;
	if (!death->init_pid)
		return ORCH_ESTATE;
	if (ret_pid)
		*ret_pid = death->init_pid;
	if (ret_start_time_ticks)
		*ret_start_time_ticks = death->init_start_time;
	if (ret_pidfs_inode)
		*ret_pidfs_inode = death->init_pidfs_inode;
	return 0;
}

uint32_t orch_death_alive_at_request(const orch_death *death)
{
	return death ? death->alive : 0;
}

int64_t orch_death_requested_at_ms(const orch_death *death)
{
	return death ? death->requested_ms : 0;
}

int64_t orch_death_last_death_us(const orch_death *death)
{
	return death ? death->last_death_us : -1;
}

int64_t orch_death_confirmed_us(const orch_death *death)
{
	return death ? death->confirmed_us : -1;
}

uint32_t orch_death_survivor_count(const orch_death *death)
{
	return death ? death->survivor_count : 0;
}

int32_t orch_death_survivor(const orch_death *death, uint32_t index, int32_t *ret_pid,
			    uint64_t *ret_start_time_ticks, const char **ret_state,
			    const char **ret_wchan)
{
	if (!death || index >= death->survivor_count)
		return ORCH_EINVAL;
	const struct census_entry *entry = &death->survivors[index];
	if (ret_pid)
		*ret_pid = entry->pid;
	if (ret_start_time_ticks)
		*ret_start_time_ticks = entry->start_time;
	if (ret_state)
		*ret_state = entry->state;
	if (ret_wchan)
		*ret_wchan = entry->wchan;
	return 0;
}

uint32_t orch_death_work_count(const orch_death *death)
{
	return death ? death->work_count : 0;
}

int32_t orch_death_work(const orch_death *death, uint32_t index, const char **ret_what,
			uint32_t *ret_settled, const char **ret_outcome)
{
	if (!death || index >= death->work_count)
		return ORCH_EINVAL;
	const struct death_work *work = &death->works[index];
	if (ret_what)
		*ret_what = work->what;
	if (ret_settled)
		*ret_settled = work->outcome != NULL;
	if (ret_outcome)
		*ret_outcome = work->outcome ? work->outcome : "";
	return 0;
}

const char *orch_death_text(const orch_death *death)
{
	return death ? death->text : "";
}
