/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a scope that are frozen when it is stopped: by cgroup v1, whose freezer keeps SIGKILL waiting until it is
 * thawed, and by cgroup v2, which kills frozen tasks. All groups are below one of this program's own. Root.
 */
#include "liveness-fixture.h"

static char freezer_mount[256], unified_mount[256];
static char base[300], unified_base[300]; /* "": there is no such hierarchy */

/* --- groups ---------------------------------------------------------------------------- */

static void find_mounts(void)
{
	FILE *mounts = fopen("/proc/self/mounts", "r");
	char where[256], type[32], options[256];
	ck_assert_ptr_nonnull(mounts);
	while (fscanf(mounts, "%*s %255s %31s %255s %*s %*s", where, type, options) == 3)
		if (strcmp(type, "cgroup2") == 0)
			strcpy(unified_mount, where);
		else if (strcmp(type, "cgroup") == 0 && strstr(options, "freezer"))
			strcpy(freezer_mount, where);
	fclose(mounts);
}

static bool put(const char *group, const char *file, const char *text)
{
	char path[600];
	snprintf(path, sizeof(path), "%s/%s", group, file);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return written;
}

static bool says(const char *group, const char *file, const char *what)
{
	char path[600], text[256] = "";
	snprintf(path, sizeof(path), "%s/%s", group, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool said = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, what);
	close(fd);
	return said;
}

static void await(const char *group, const char *file, const char *what)
{
	for (int i = 0; i < 500 && !says(group, file, what); i++)
		pause_ms(10);
	ck_assert_msg(says(group, file, what), "%s of %s is not %s", file, group, what);
}

static void move(const char *group, pid_t pid)
{
	char text[16];
	snprintf(text, sizeof(text), "%d", (int)pid);
	ck_assert_msg(put(group, "cgroup.procs", text), "%s: pid %s: %s", group, text, strerror(errno));
}

static void make(char *group, size_t size, const char *parent, const char *name)
{
	snprintf(group, size, "%s/%s", parent, name);
	ck_assert_msg(mkdir(group, 0755) == 0, "%s: %s", group, strerror(errno));
}

static void freeze(const char *group)
{
	ck_assert(put(group, "freezer.state", "FROZEN"));
	await(group, "freezer.state", "FROZEN");
}

/* Nothing stays frozen, and nobody stays in it, whatever a test did. */
static void clear(const char *group)
{
	char path[600];
	int pid;
	DIR *below = opendir(group);
	struct dirent *entry;
	put(group, "freezer.state", "THAWED");
	put(group, "cgroup.freeze", "0");
	while (below && (entry = readdir(below))) {
		snprintf(path, sizeof(path), "%s/%s", group, entry->d_name);
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			clear(path);
	}
	if (below)
		closedir(below);
	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	FILE *members = fopen(path, "r");
	while (members && fscanf(members, "%d", &pid) == 1)
		if (pid > 1 && pid != getpid())
			kill(pid, SIGKILL);
	if (members)
		fclose(members);
	for (int i = 0; i < 300 && rmdir(group) < 0 && errno == EBUSY; i++)
		pause_ms(10);
}

/* In the process that runs the tests. */
static void make_bases(void)
{
	char name[64];
	find_mounts();
	snprintf(name, sizeof(name), "freezers-%d", (int)getpid());
	if (freezer_mount[0])
		make(base, sizeof(base), freezer_mount, name);
	if (unified_mount[0])
		make(unified_base, sizeof(unified_base), unified_mount, name);
}

static void clear_bases(void)
{
	if (base[0])
		clear(base);
	if (unified_base[0])
		clear(unified_base);
}

static bool has_freezer(const char *test)
{
	if (!base[0])
		printf("skipped: %s: no freezer of cgroup v1 here\n", test);
	return base[0];
}

/* --- loads ----------------------------------------------------------------------------- */

struct loaded {
	orch_scope *scope;
	struct watched watched;
	orch_proc *proc;
	pid_t pid;
};

static struct loaded load(orch_ctx *ctx)
{
	struct loaded loaded = {.scope = scope_new(ctx)};
	OK(orch_scope_start_wait(loaded.scope, 10000, e));
	loaded.watched = watch(loaded.scope);
	loaded.proc = spawn(loaded.scope, LOAD("stubborn", loaded.watched.word));
	while (!orch_proc_pid(loaded.proc))
		OK(orch_ctx_process(ctx, e));
	loaded.pid = pid_with_word(loaded.watched.word);
	ck_assert_int_gt(loaded.pid, 0);
	return loaded;
}

static void unload(struct loaded *loaded)
{
	orch_proc_unref(loaded->proc);
	orch_scope_unref(loaded->scope);
}

static orch_death *stop_within(orch_scope *scope, uint32_t deadline_ms)
{
	struct orch_stop_opts opts;
	orch_death *death = NULL;
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = deadline_ms;
	OK(orch_scope_stop_wait(scope, &opts, &death, e));
	return death;
}

static bool was_thawed(orch_death *death)
{
	return strstr(orch_death_mechanism(death), "THAWED") != NULL;
}

static void assert_thawed_and_dead(struct loaded *loaded)
{
	orch_death *death = stop_within(loaded->scope, 30000);
	assert_dead(death);
	ck_assert_msg(was_thawed(death), "%s", orch_death_text(death));
	assert_nothing_left(&loaded->watched);
	orch_death_unref(death);
	unload(loaded);
}

static void await_end(const struct watched *watched)
{
	for (int i = 0; i < 1000 && (exists(watched->init_pid) ||
				     (watched->cgroup[0] && access(watched->cgroup, F_OK) == 0));
	     i++)
		pause_ms(10);
	assert_nothing_left(watched);
}

/* --- cgroup v1 ------------------------------------------------------------------------- */

START_TEST(frozen_by_its_own_load)
{
	char group[400], command[1600];
	if (!has_freezer("frozen_by_its_own_load"))
		return;
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	snprintf(group, sizeof(group), "%s/own", base);
	snprintf(command, sizeof(command), "mkdir %s && echo %d >%s/cgroup.procs && echo FROZEN >%s/freezer.state", group,
		 (int)orch_proc_pid(loaded.proc), group, group);
	ck_assert_int_eq(run(loaded.scope, ARGV("sh", "-c", command)), 0);
	await(group, "freezer.state", "FROZEN");
	/* Control: a SIGKILL alone is of no use. */
	ck_assert_int_eq(kill(loaded.pid, SIGKILL), 0);
	for (int i = 0; i < 10; i++) {
		pause_ms(10);
		ck_assert_uint_eq(with_word(loaded.watched.word), 1);
	}
	assert_thawed_and_dead(&loaded);
	ck_assert(says(group, "freezer.state", "THAWED"));
	orch_ctx_unref(ctx);
}
END_TEST

/* At two levels, and its init as well. */
START_TEST(frozen_by_an_outsider)
{
	char outer[400], inner[500];
	if (!has_freezer("frozen_by_an_outsider"))
		return;
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx), control = load(ctx);
	make(outer, sizeof(outer), base, "outer");
	make(inner, sizeof(inner), outer, "inner");
	move(inner, loaded.pid);
	move(outer, loaded.watched.init_pid);
	freeze(inner);
	freeze(outer);
	assert_thawed_and_dead(&loaded);
	/* The same load, not frozen. */
	orch_death *death = stop_within(control.scope, 0);
	assert_dead(death);
	ck_assert_msg(!was_thawed(death), "%s", orch_death_text(death));
	orch_death_unref(death);
	unload(&control);
	orch_ctx_unref(ctx);
}
END_TEST

static void assert_frozen_survivor(orch_death *death, pid_t pid, const char *group)
{
	bool named = false;
	ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_SURVIVORS, "%s", orch_death_text(death));
	for (uint32_t i = 0; i < orch_death_survivor_count(death); i++) {
		int32_t survivor;
		const char *state;
		orch_death_survivor(death, i, &survivor, NULL, &state, NULL);
		/* The kernel shows frozen tasks so. */
		named |= survivor == pid && strcmp(state, "D") == 0;
	}
	ck_assert_msg(named, "%s", orch_death_text(death));
	ck_assert_msg(strstr(orch_death_reason(death), "is frozen in") && strstr(orch_death_reason(death), group), "%s",
		      orch_death_text(death));
	ck_assert(!was_thawed(death));
	ck_assert(says(group, "freezer.state", "FROZEN"));
}

/* Somebody froze a stranger for a reason: he is not let go. */
START_TEST(frozen_together_with_a_stranger)
{
	char group[400], below[500];
	if (!has_freezer("frozen_together_with_a_stranger"))
		return;
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	pid_t stranger = fork();
	if (stranger == 0)
		sleep_long();
	make(group, sizeof(group), base, "shared");
	make(below, sizeof(below), group, "below");
	move(group, loaded.pid);
	move(below, stranger);
	freeze(group);
	orch_death *death = stop_within(loaded.scope, 2500);
	assert_frozen_survivor(death, loaded.pid, group);
	ck_assert(says(below, "freezer.state", "FROZEN"));
	/* Thawed by whoever froze it, the scope ends without another stop. */
	ck_assert(put(group, "freezer.state", "THAWED"));
	await_end(&loaded.watched);
	ck_assert_int_eq(kill(stranger, SIGKILL), 0);
	ck_assert_int_eq(waitpid(stranger, NULL, 0), stranger);
	orch_death_unref(death);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

/* And when the stranger leaves later, the helper sees to it itself. */
START_TEST(stranger_leaves_the_frozen_group)
{
	char group[400];
	if (!has_freezer("stranger_leaves_the_frozen_group"))
		return;
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	pid_t stranger = fork();
	if (stranger == 0)
		sleep_long();
	make(group, sizeof(group), base, "left");
	move(group, loaded.pid);
	move(group, stranger);
	freeze(group);
	orch_death *death = stop_within(loaded.scope, 2500);
	assert_frozen_survivor(death, loaded.pid, group);
	move(base, stranger);
	await_end(&loaded.watched);
	ck_assert_int_eq(kill(stranger, SIGKILL), 0);
	ck_assert_int_eq(waitpid(stranger, NULL, 0), stranger);
	orch_death_unref(death);
	unload(&loaded);
	orch_ctx_unref(ctx);
}
END_TEST

/* Below the helper's own group it thaws; beside it, it does not. */
START_TEST(frozen_out_of_reach)
{
	char home[400], below[500], beside[400];
	if (!has_freezer("frozen_out_of_reach"))
		return;
	make(home, sizeof(home), base, "home");
	make(below, sizeof(below), home, "below");
	make(beside, sizeof(beside), base, "home-beside");
	move(home, getpid());
	orch_ctx *ctx = ctx_new();
	struct loaded in_reach = load(ctx), out_of_reach = load(ctx);
	move(below, in_reach.pid);
	move(beside, out_of_reach.pid);
	freeze(below);
	freeze(beside);
	assert_thawed_and_dead(&in_reach);
	orch_death *death = stop_within(out_of_reach.scope, 2500);
	assert_frozen_survivor(death, out_of_reach.pid, beside);
	ck_assert(put(beside, "freezer.state", "THAWED"));
	await_end(&out_of_reach.watched);
	orch_death_unref(death);
	unload(&out_of_reach);
	orch_ctx_unref(ctx);
	move(base, getpid());
}
END_TEST

/* An ordinary user's helper may not write there. */
static _Noreturn void host_of_a_user(int ready_fd, int go_fd, const char *group)
{
	char byte;
	if (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 || setresuid(USER, USER, USER) < 0 ||
	    prctl(PR_SET_DUMPABLE, 1) < 0)
		_exit(90);
	orch_ctx *ctx = ctx_new();
	struct loaded loaded = load(ctx);
	ck_assert_int_eq(write(ready_fd, &loaded.pid, sizeof(loaded.pid)), sizeof(loaded.pid));
	ck_assert_int_eq(read(go_fd, &byte, 1), 1);
	orch_death *death = stop_within(loaded.scope, 2500);
	assert_frozen_survivor(death, loaded.pid, group);
	ck_assert_int_eq(write(ready_fd, &loaded.pid, sizeof(loaded.pid)), sizeof(loaded.pid));
	await_end(&loaded.watched);
	orch_death_unref(death);
	unload(&loaded);
	orch_ctx_unref(ctx);
	exit(0);
}

START_TEST(frozen_by_root_and_the_host_is_a_user)
{
	char group[400];
	int ready[2], go[2], status = -1;
	pid_t victim = 0;
	if (!has_freezer("frozen_by_root_and_the_host_is_a_user"))
		return;
	ck_assert(pipe2(ready, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
	make(group, sizeof(group), base, "user");
	pid_t host = fork();
	if (host == 0)
		host_of_a_user(ready[1], go[0], group);
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &victim, sizeof(victim)), sizeof(victim));
	move(group, victim);
	freeze(group);
	ck_assert_int_eq(write(go[1], "", 1), 1);
	(void)!read(ready[0], &victim, sizeof(victim));
	ck_assert(put(group, "freezer.state", "THAWED"));
	ck_assert_int_eq(waitpid(host, &status, 0), host);
	ck_assert_int_eq(status, 0);
	close(ready[0]);
	close(go[0]);
	close(go[1]);
}
END_TEST

/* --- cgroup v2 ------------------------------------------------------------------------- */

static void assert_dead_without_thawing(struct loaded *loaded)
{
	orch_death *death = stop_within(loaded->scope, 30000);
	assert_dead(death);
	ck_assert_msg(!was_thawed(death), "%s", orch_death_text(death));
	assert_nothing_left(&loaded->watched);
	orch_death_unref(death);
	unload(loaded);
}

/* In the scope's own leaf by the load, and in a group elsewhere by somebody outside. */
START_TEST(frozen_by_the_kernels_other_freezer)
{
	char command[1600], group[500];
	if (!unified_base[0]) {
		printf("skipped: frozen_by_the_kernels_other_freezer: no cgroup v2 here\n");
		return;
	}
	orch_ctx *ctx = ctx_new();
	struct loaded own = load(ctx), moved = load(ctx);
	ck_assert(own.watched.cgroup[0]);
	snprintf(group, sizeof(group), "%s/sub", own.watched.cgroup);
	snprintf(command, sizeof(command), "mkdir %s && echo %d >%s/cgroup.procs && echo 1 >%s/cgroup.freeze", group,
		 (int)orch_proc_pid(own.proc), group, group);
	ck_assert_int_eq(run(own.scope, ARGV("sh", "-c", command)), 0);
	await(group, "cgroup.events", "frozen 1");
	make(group, sizeof(group), unified_base, "elsewhere");
	move(group, moved.pid);
	ck_assert(put(group, "cgroup.freeze", "1"));
	await(group, "cgroup.events", "frozen 1");
	assert_dead_without_thawing(&own);
	assert_dead_without_thawing(&moved);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- running --------------------------------------------------------------------------- */

int fake_helper(const char *name)
{
	(void)name;
	return 99;
}

Suite *suite(void)
{
	Suite *all = suite_create("freezers");
	TCase *frozen = tcase_create("frozen");
	if (!is_root()) {
		printf("not root: nothing to be frozen\n");
		return all;
	}
	tcase_add_unchecked_fixture(frozen, make_bases, clear_bases);
	tcase_add_test(frozen, frozen_by_its_own_load);
	tcase_add_test(frozen, frozen_by_an_outsider);
	tcase_add_test(frozen, frozen_together_with_a_stranger);
	tcase_add_test(frozen, stranger_leaves_the_frozen_group);
	tcase_add_test(frozen, frozen_out_of_reach);
	tcase_add_test(frozen, frozen_by_root_and_the_host_is_a_user);
	tcase_add_test(frozen, frozen_by_the_kernels_other_freezer);
	tcase_set_timeout(frozen, 120);
	suite_add_tcase(all, frozen);
	return all;
}

int main(int argc, char **argv)
{
	return fixture_main(argc, argv);
}
