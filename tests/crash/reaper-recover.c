/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts with two scopes of awkward load are killed, or their orch-reaper, or both, or the helper is stopped first so
 * that the load certainly lives on; then orch_reaper_recover() has to say DEAD for every scope, and a judge that looks
 * from outside (PID namespaces, process table by words in argv, cgroup leaves) has to find nothing, and a canary alive.
 * Numbers of processes that strangers got; members that do not die; another PID namespace.
 *
 * ORCH_TEST_ALL=1: 200 rounds of each kind.
 */
#include <linux/sched.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <orch/reaper.h>

#include "liveness-fixture.h"
#include "reaper/census.h"
#include "reaper/record.h"

#define SCOPES 2
/* A host lives this long at most, should the test die. */
#define HOST_S 60

struct round {
	char word[48], home[64], path[96];
	pid_t host, helper, worker, canary;
	int out;
	struct record_scope scopes[SCOPES]; /* as the host knows them */
	char cgroups[SCOPES][300];
	int count;
	uint64_t struck_at; /* in ticks since the boot */
	uint32_t rungs[SCOPES]; /* the best to be tried; 0: any */
};

/* --- the host -------------------------------------------------------------------------- */

static void host_spawn(orch_scope *scope, const char *load, const char *word)
{
	struct orch_proc_opts opts;
	orch_proc *proc = NULL;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = LOAD(load, word);
	if (orch_scope_spawn(scope, &opts, &proc, NULL) < 0)
		_exit(3);
	while (!orch_proc_pid(proc) && orch_proc_wait(proc, 1, NULL, NULL) == ORCH_ETIMEDOUT)
		;
	orch_proc_unref(proc);
}

static _Noreturn void host_main(const struct round *round, int out, bool worker)
{
	static const char *const host_loads[SCOPES][3] = {{"awkward", "hoppers", "stubborn"},
							  {"stubborn", "awkward", "polite"}};
	struct orch_scope_opts opts;
	orch_ctx *ctx = NULL;
	orch_scope *scopes[SCOPES];
	struct orch_ctx_opts ctx_opts;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	orch_ctx_opts_init(&ctx_opts, sizeof(ctx_opts));
	ctx_opts.helper_path = helper_path;
	if (orch_ctx_new(&ctx_opts, &ctx, NULL) < 0 || orch_reaper_record(ctx, round->path, NULL) < 0)
		_exit(3);
	for (int i = 0; i < SCOPES; i++) {
		orch_scope_opts_init(&opts, sizeof(opts));
		opts.label = "a label, 100 %";
		opts.best_rung = round->rungs[i];
		opts.least_rung = round->rungs[i];
		if (orch_scope_new(ctx, &opts, &scopes[i], NULL) < 0)
			_exit(3);
	}
	/* It keeps every descriptor of the host's open. */
	pid_t pid = worker ? fork() : 0;
	if (worker && pid == 0) {
		prctl(PR_SET_PDEATHSIG, 0);
		poll(NULL, 0, HOST_S * 1000);
		_exit(0);
	}
	for (int i = 0; i < SCOPES; i++) {
		if (orch_scope_start_wait(scopes[i], 20000, NULL) < 0)
			_exit(3);
		for (int j = 0; j < 3; j++)
			host_spawn(scopes[i], host_loads[i][j], round->word);
	}
	dprintf(out, "%d %d", (int)pid, (int)parent_of(orch_scope_init_pid(scopes[0])));
	for (int i = 0; i < SCOPES; i++)
		dprintf(out, " %s %d %llu %s", orch_scope_name(scopes[i]), (int)orch_scope_init_pid(scopes[i]),
			(unsigned long long)orch_scope_pidns_inode(scopes[i]),
			orch_scope_cgroup(scopes[i])[0] ? orch_scope_cgroup(scopes[i]) : "-");
	dprintf(out, "\n");
	orch_ctx_run(ctx, HOST_S * 1000, NULL);
	_exit(0);
}

/* --- a round --------------------------------------------------------------------------- */

static void round_begin_on(struct round *round, uint32_t first, uint32_t second, bool worker)
{
	static unsigned number;
	int out[2];
	memset(round, 0, sizeof(*round));
	round->rungs[0] = first;
	round->rungs[1] = second;
	snprintf(round->word, sizeof(round->word), "recover-%d-%u", (int)getpid(), number++);
	snprintf(round->home, sizeof(round->home), "/tmp/test-recover-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(round->home));
	snprintf(round->path, sizeof(round->path), "%s/scopes", round->home);
	/* What a dead host leaves is this process's to reap. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	round->canary = fork();
	if (round->canary == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close_all();
		sleep_long();
	}
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	round->host = fork();
	if (round->host == 0)
		host_main(round, out[1], worker);
	close(out[1]);
	round->out = out[0];
}

static void round_begin(struct round *round, bool worker)
{
	/* So that root has both rungs. */
	round_begin_on(round, 0, ORCH_RUNG_PIDNS, worker);
}

static void round_read(struct round *round)
{
	char text[2048];
	size_t length = 0;
	ssize_t got;
	while ((length == 0 || text[length - 1] != '\n') &&
	       (got = read(round->out, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	unsigned long long inodes[SCOPES];
	ck_assert_msg(sscanf(text, "%d %d %21s %d %llu %299s %21s %d %llu %299s", &round->worker, &round->helper,
			     round->scopes[0].name, &round->scopes[0].init.pid, &inodes[0], round->cgroups[0],
			     round->scopes[1].name, &round->scopes[1].init.pid, &inodes[1],
			     round->cgroups[1]) == 10,
		      "the host did not get ready: %s", text);
	for (int i = 0; i < SCOPES; i++) {
		round->scopes[i].pidns_inode = inodes[i];
		ck_assert_int_eq(inodes[i] != 0, !round->rungs[i] || round->rungs[i] >= ORCH_RUNG_PIDNS);
	}
	round->count = SCOPES;
	if (!round->rungs[0])
		ck_assert_int_eq(round->cgroups[0][0] == '/', is_root());
	/* The judge sees what lives. */
	ck_assert(word_is_seen(round->word, 5));
}

static void reap(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static orch_leftovers *recover(const char *path, uint32_t deadline_ms)
{
	struct orch_reaper_recover_opts opts;
	orch_leftovers *leftovers = NULL;
	orch_reaper_recover_opts_init(&opts, sizeof(opts));
	opts.path = path;
	opts.deadline_ms = deadline_ms;
	OK(orch_reaper_recover(&opts, &leftovers, e));
	return leftovers;
}

static orch_death *death_at(const orch_leftovers *leftovers, uint32_t index)
{
	orch_death *death = NULL;
	ck_assert_int_eq(orch_leftovers_death(leftovers, index, &death), 0);
	orch_death_unref(death); /* the leftovers hold it as well */
	return death;
}

/* Says DEAD for everybody, `least` of them at least; and nothing the second time. */
static void recover_all(const char *path, uint32_t least, const char *proof)
{
	orch_leftovers *leftovers = recover(path, 20000);
	ck_assert_uint_ge(orch_leftovers_count(leftovers), least);
	for (uint32_t i = 0; i < orch_leftovers_count(leftovers); i++) {
		orch_death *death = death_at(leftovers, i);
		ck_assert_msg(orch_death_verdict(death) == ORCH_DEATH_DEAD, "%s", orch_death_text(death));
		ck_assert_str_eq(orch_death_reason(death), "");
		ck_assert_msg(strstr(orch_death_proof(death), proof) ||
				  strstr(orch_death_proof(death), "no program had been started"),
			      "%s", orch_death_text(death));
		ck_assert(strstr(orch_death_text(death), "a label, 100 %"));
	}
	orch_leftovers_unref(leftovers);
	leftovers = recover(path, 0);
	ck_assert_uint_eq(orch_leftovers_count(leftovers), 0);
	orch_leftovers_unref(leftovers);
}

static uint64_t ticks(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	uint64_t hertz = (uint64_t)sysconf(_SC_CLK_TCK);
	return (uint64_t)now.tv_sec * hertz + (uint64_t)now.tv_nsec * hertz / 1000000000u;
}

/*
 * Members of the scopes' PID namespaces. The number of one that is gone may be another's by now, and an ordinary user does not
 * see that one's init: who is younger than the kill is known by the words in argv only.
 */
static unsigned members(const struct round *round)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	unsigned count = 0;
	while ((entry = readdir(proc))) {
		struct census_entry process;
		struct stat status;
		char name[300];
		pid_t pid = atoi(entry->d_name);
		snprintf(name, sizeof(name), "/proc/%s/ns/pid", entry->d_name);
		if (pid <= 0 || stat(name, &status) < 0 || !census_describe(pid, &process) ||
		    process.start_time > round->struck_at)
			continue;
		for (int i = 0; i < round->count; i++)
			count += status.st_ino == round->scopes[i].pidns_inode;
	}
	closedir(proc);
	return count;
}

static bool loads_are_seen(const struct round *round)
{
	for (int i = 0; i < 300; i++) {
		int seen = 0;
		for (int j = 0; j < round->count; j++)
			seen += in_pidns(round->scopes[j].pidns_inode, round->scopes[j].init.pid) >= 2;
		if (seen == round->count && with_word(round->word) >= 3)
			return true;
		pause_ms(10);
	}
	return false;
}

static void judge(const struct round *round)
{
	/* One look can miss what forks and ends: see word_is_seen(). */
	for (int look = 0; look < 3; look++) {
		reap();
		ck_assert_uint_eq(members(round), 0);
		ck_assert_uint_eq(with_word(round->word), 0);
	}
	for (int i = 0; i < round->count; i++) {
		struct census_entry who;
		/* Somebody younger may have its number by now. */
		ck_assert(!census_describe(round->scopes[i].init.pid, &who) || who.start_time > round->struck_at);
		if (round->cgroups[i][0] == '/')
			ck_assert_int_eq(access(round->cgroups[i], F_OK), -1);
	}
	ck_assert_int_eq(kill(round->canary, 0), 0);
	ck_assert_int_eq(waitpid(round->canary, NULL, WNOHANG), 0);
	/* Its keeper ends by itself, a moment later. */
	for (int i = 0; i < 500 && with_word(helper_path); i++) {
		reap();
		pause_ms(10);
	}
	ck_assert_uint_eq(with_word(helper_path), 0);
}

static void round_end(struct round *round)
{
	char command[128];
	if (round->worker > 0)
		kill(round->worker, SIGKILL);
	kill(round->canary, SIGKILL);
	kill(round->host, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	close(round->out);
	snprintf(command, sizeof(command), "rm -r '%s'", round->home);
	ck_assert_int_eq(system(command), 0);
}

static int rounds(void)
{
	return getenv("ORCH_TEST_ALL") ? 200 : 5;
}

static void kill_host(struct round *round)
{
	round->struck_at = round->struck_at ? round->struck_at : ticks();
	ck_assert_int_eq(kill(round->host, SIGKILL), 0);
	ck_assert_int_eq(waitpid(round->host, NULL, 0), round->host);
}

/* The load certainly lives when nobody is left that would end it. */
static void stop_helper_and_kill_host(struct round *round)
{
	ck_assert_int_eq(kill(round->helper, SIGSTOP), 0);
	kill_host(round);
	ck_assert(loads_are_seen(round));
	ck_assert_uint_ge(members(round), SCOPES);
}

START_TEST(host_killed)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		round_begin(&round, false);
		round_read(&round);
		kill_host(&round);
		recover_all(round.path, SCOPES, "is empty");
		judge(&round);
		round_end(&round);
	}
}
END_TEST

START_TEST(helper_stopped_and_host_killed)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		round_begin(&round, i % 2);
		round_read(&round);
		stop_helper_and_kill_host(&round);
		recover_all(round.path, SCOPES, "is empty");
		judge(&round);
		round_end(&round);
	}
}
END_TEST

/* The host outlives it and goes on recording: the record is its own until it ends. */
START_TEST(helper_killed)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		struct orch_reaper_recover_opts opts;
		orch_leftovers *leftovers = NULL;
		orch_error *error = NULL;
		char who[32];
		round_begin(&round, false);
		round_read(&round);
		round.struck_at = ticks();
		ck_assert_int_eq(kill(round.helper, SIGKILL), 0);
		orch_reaper_recover_opts_init(&opts, sizeof(opts));
		opts.path = round.path;
		ck_assert_int_eq(orch_reaper_recover(&opts, &leftovers, &error), ORCH_ELOCKED);
		snprintf(who, sizeof(who), "pid %d", (int)round.host);
		ck_assert_msg(strstr(orch_error_message(error), who) != NULL, "%s", orch_error_message(error));
		orch_error_free(error);
		pause_ms(i % 5);
		kill_host(&round);
		recover_all(round.path, 0, "is empty");
		judge(&round);
		round_end(&round);
	}
}
END_TEST

START_TEST(both_killed_at_once)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		round_begin(&round, false);
		round_read(&round);
		kill(round.helper, SIGSTOP);
		kill(round.host, SIGSTOP);
		kill(round.helper, SIGKILL);
		kill_host(&round);
		recover_all(round.path, SCOPES, "is empty");
		judge(&round);
		round_end(&round);
	}
}
END_TEST

START_TEST(worker_keeps_the_socket)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		round_begin(&round, true);
		round_read(&round);
		ck_assert_int_gt(round.worker, 0);
		kill_host(&round);
		recover_all(round.path, SCOPES, "is empty");
		ck_assert_int_eq(kill(round.worker, 0), 0);
		judge(&round);
		round_end(&round);
	}
}
END_TEST

/* The helper's pid, as soon as the host has written it down. */
static pid_t recorded_helper(const char *path)
{
	for (int i = 0; i < 2000; i++) {
		char line[1024];
		int pid = 0;
		FILE *file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file))
			sscanf(line, "named %*s %*s %*s %*s %*s %*s %*s %d", &pid);
		if (file)
			fclose(file);
		if (pid > 0)
			return pid;
		pause_ms(1);
	}
	return 0;
}

/* While it sets up: what was only named, or stands and ran nothing yet. */
START_TEST(struck_early)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		round_begin(&round, false);
		round.helper = recorded_helper(round.path);
		ck_assert_int_gt(round.helper, 0);
		usleep((useconds_t)(i * 997 % 9000));
		if (i % 3 == 0)
			kill(round.helper, SIGSTOP);
		if (i % 3 == 1)
			kill(round.helper, SIGKILL);
		kill_host(&round);
		recover_all(round.path, i % 3 == 1 ? 0 : 1, "is empty");
		judge(&round);
		round_end(&round);
	}
}
END_TEST

/* Whatever an interrupted recovery has done, the next one finishes. */
START_TEST(recovery_killed)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		round_begin(&round, false);
		round_read(&round);
		stop_helper_and_kill_host(&round);
		pid_t child = fork();
		if (child == 0) {
			struct orch_reaper_recover_opts opts = {.size = sizeof(opts), .path = round.path};
			orch_leftovers *leftovers;
			_exit(orch_reaper_recover(&opts, &leftovers, NULL) < 0);
		}
		usleep((useconds_t)(i * 1499 % 12000));
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		recover_all(round.path, 0, "is empty");
		judge(&round);
		round_end(&round);
	}
}
END_TEST

static char *read_record(const char *path)
{
	static char text[65536];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = read(fd, text, sizeof(text) - 1);
	close(fd);
	ck_assert_int_gt(length, 0);
	text[length] = '\0';
	return strdup(text);
}

static void write_record(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* A record of another boot is over without a look: numbers mean others now, and nobody is touched. */
START_TEST(after_a_reboot)
{
	for (int i = 0; i < rounds(); i++) {
		struct round round;
		round_begin(&round, false);
		round_read(&round);
		stop_helper_and_kill_host(&round);
		char *text = read_record(round.path), *old = strdup(text);
		for (char *line = text; (line = strstr(line, "named orch-")); line++)
			memcpy(line + strlen("named orch-0123456789abcdef "), "00000000", 8);
		write_record(round.path, text);
		recover_all(round.path, SCOPES, "another boot id");
		ck_assert(loads_are_seen(&round));
		write_record(round.path, old);
		recover_all(round.path, SCOPES, "is empty");
		judge(&round);
		free(text);
		free(old);
		round_end(&round);
	}
}
END_TEST

/* --- strangers ------------------------------------------------------------------------- */

/* A process with exactly this number. */
static pid_t stranger(pid_t number)
{
	struct clone_args arguments = {
	    .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&number, .set_tid_size = 1};
	pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		/* As a set-up process of the old orch-reaper would be called. */
		prctl(PR_SET_NAME, "orch-reaper");
		close_all();
		sleep_long();
	}
	return pid;
}

static bool lives(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) == 0 && kill(pid, 0) == 0;
}

/* The record with the third word after each `verb NAME` number of a line changed. */
static void put_field(char *text, size_t size, const char *verb, int field, const char *value)
{
	char out[65536] = "", *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		bool is = strncmp(line, verb, strlen(verb)) == 0;
		char *word_save = NULL;
		int number = 0;
		for (char *word = strtok_r(line, " ", &word_save); word; word = strtok_r(NULL, " ", &word_save)) {
			strcat(out, number ? " " : "");
			strcat(out, is && number == field ? value : word);
			number++;
		}
		strcat(out, "\n");
	}
	ck_assert_uint_lt(strlen(out), size);
	strcpy(text, out);
}

static void strangers_in_a_namespace(void)
{
	struct round round;
	char first[65536], changed[65536], number[32];
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), 0);
	round_begin(&round, false);
	round_read(&round);
	kill_host(&round);
	snprintf(first, sizeof(first), "%s", read_record(round.path));
	recover_all(round.path, SCOPES, "is empty");
	judge(&round);
	/* Another tick, so that no stranger is as old as who had the number. */
	pause_ms(50);
	pid_t init = stranger(round.scopes[0].init.pid), helper = stranger(round.helper);
	ck_assert_int_eq(init, round.scopes[0].init.pid);
	ck_assert_int_eq(helper, round.helper);

	/* By the pidfs inode (where there is one), then by the start time alone. */
	write_record(round.path, first);
	recover_all(round.path, SCOPES, "by its identity, not its number");
	ck_assert(lives(init) && lives(helper));
	strcpy(changed, first);
	put_field(changed, sizeof(changed), "up ", 5, "0");
	put_field(changed, sizeof(changed), "named ", 10, "0");
	write_record(round.path, changed);
	recover_all(round.path, SCOPES, "by its identity, not its number");
	ck_assert(lives(init) && lives(helper));
	/* Scopes that were only named: the stranger has the old helper's number, and leads a session of that number. */
	for (char *line; (line = strstr(changed, "up orch-"));)
		memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n') + 1) + 1);
	write_record(round.path, changed);
	recover_all(round.path, SCOPES, "no program had been started");
	ck_assert(lives(init) && lives(helper));

	/* Who is dead when it is looked at is not taken for who has its number. */
	struct identity identity;
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	identity_take(child, pidfd, &identity);
	ck_assert_uint_ne(identity.start_time, 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(stranger(child), child);
	identity_take(child, pidfd, &identity);
	ck_assert_uint_eq(identity.start_time, 0);
	ck_assert(!identity_take_program(child, 1000000, &identity));
	ck_assert(identity_take_program(child, getpid(), &identity));
	close(pidfd);
	kill(child, SIGKILL);

	/* The control: with the stranger's own start time it is the recorded one, and is killed. */
	struct census_entry entry;
	ck_assert(census_describe(init, &entry));
	snprintf(number, sizeof(number), "%llu", (unsigned long long)entry.start_time);
	strcpy(changed, first);
	put_field(changed, sizeof(changed), "up ", 5, "0");
	put_field(changed, sizeof(changed), "up ", 4, number);
	write_record(round.path, changed);
	recover_all(round.path, SCOPES, "is empty");
	ck_assert(!lives(init));
	ck_assert(lives(helper));
	round_end(&round);
}

/* In a PID namespace of the test's own, where a number can be had. */
static void in_own_namespace(void (*body)(void))
{
	int status = -1;
	ck_assert_int_eq(unshare(CLONE_NEWPID | CLONE_NEWNS), 0);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* Its failed assertions are this process's end. */
		body();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

START_TEST(numbers_that_strangers_got)
{
	in_own_namespace(strangers_in_a_namespace);
}
END_TEST

/* --- what can not be ended or told --------------------------------------------------------- */

/* A process of the scope's PID namespace that is not its init, or 0. */
static pid_t member_of(const struct record_scope *scope)
{
	pid_t found = 0;
	DIR *processes = opendir("/proc");
	for (struct dirent *entry; processes && !found && (entry = readdir(processes));) {
		char path[300];
		struct stat status;
		pid_t pid = atoi(entry->d_name);
		snprintf(path, sizeof(path), "/proc/%s/ns/pid", entry->d_name);
		if (pid > 0 && pid != scope->init.pid && stat(path, &status) == 0 &&
		    status.st_ino == scope->pidns_inode)
			found = pid;
	}
	if (processes)
		closedir(processes);
	return found;
}

static void write_to(const char *folder_path, const char *name, const char *text)
{
	char path[400];
	snprintf(path, sizeof(path), "%s/%s", folder_path, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_msg(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s", path);
	close(fd);
}

/* A member in a frozen group of the old freezer does not die of SIGKILL. */
START_TEST(survivors_are_named)
{
	static const char freezer[] = "/sys/fs/cgroup/freezer";
	struct round round;
	char group[96], number[32];
	if (access("/sys/fs/cgroup/freezer/cgroup.procs", W_OK) < 0) {
		printf("no freezer of cgroup v1: nobody survives\n");
		return;
	}
	round_begin(&round, false);
	round_read(&round);
	snprintf(group, sizeof(group), "%s%s", freezer, strrchr(folder, '/'));
	ck_assert_int_eq(mkdir(group, 0755), 0);
	/* Of the second scope: the first one's hoppers do not stay. */
	pid_t frozen = 0;
	for (int i = 0; i < 1000 && !frozen; i++) {
		frozen = member_of(&round.scopes[1]);
		/* One that only lives to fork another is none. */
		pause_ms(10);
		if (frozen && kill(frozen, 0) < 0)
			frozen = 0;
	}
	ck_assert_int_gt(frozen, 0);
	snprintf(number, sizeof(number), "%d", (int)frozen);
	write_to(group, "cgroup.procs", number);
	write_to(group, "freezer.state", "FROZEN");
	stop_helper_and_kill_host(&round);

	orch_leftovers *leftovers = recover(round.path, 700);
	uint32_t dead = 0, named = 0;
	for (uint32_t i = 0; i < orch_leftovers_count(leftovers); i++) {
		orch_death *death = death_at(leftovers, i);
		int32_t pid;
		dead += orch_death_verdict(death) == ORCH_DEATH_DEAD;
		for (uint32_t j = 0; j < orch_death_survivor_count(death); j++)
			named += orch_death_survivor(death, j, &pid, NULL, NULL, NULL) == 0 && pid == frozen &&
				 orch_death_verdict(death) == ORCH_DEATH_SURVIVORS &&
				 strcmp(orch_death_scope(death), round.scopes[1].name) == 0;
	}
	write_to(group, "freezer.state", "THAWED");
	ck_assert_uint_eq(orch_leftovers_count(leftovers), SCOPES);
	ck_assert_uint_eq(dead, 1);
	ck_assert_uint_eq(named, 1);
	orch_leftovers_unref(leftovers);
	/* It is still recorded. */
	recover_all(round.path, 1, "is empty");
	judge(&round);
	for (int i = 0; i < 200 && rmdir(group) < 0; i++)
		pause_ms(5);
	ck_assert_int_eq(access(group, F_OK), -1);
	round_end(&round);
}
END_TEST

/* Numbers of another PID namespace are not looked up: nothing is killed by them, and nothing said to be dead. */
START_TEST(from_another_namespace)
{
	struct round round;
	int status = -1;
	round_begin(&round, false);
	round_read(&round);
	stop_helper_and_kill_host(&round);
	pid_t child = fork();
	if (child == 0) {
		if (unshare(is_root() ? CLONE_NEWPID : CLONE_NEWUSER | CLONE_NEWPID) < 0)
			_exit(4);
		pid_t inner = fork();
		if (inner == 0) {
			struct orch_reaper_recover_opts opts = {.size = sizeof(opts), .path = round.path};
			orch_leftovers *leftovers;
			orch_death *death;
			if (orch_reaper_recover(&opts, &leftovers, NULL) < 0 ||
			    orch_leftovers_count(leftovers) != SCOPES)
				_exit(5);
			for (uint32_t i = 0; i < SCOPES; i++)
				if (orch_leftovers_death(leftovers, i, &death) < 0 ||
				    orch_death_verdict(death) != ORCH_DEATH_UNVERIFIABLE ||
				    !strstr(orch_death_reason(death), "another PID or time namespace"))
					_exit(6);
			_exit(0);
		}
		waitpid(inner, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 7);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	/* The scope without a leaf: untouched. */
	if (round.cgroups[1][0] != '/')
		ck_assert_uint_ge(in_pidns(round.scopes[1].pidns_inode, round.scopes[1].init.pid), 2);
	recover_all(round.path, SCOPES, "is empty");
	judge(&round);
	round_end(&round);
}
END_TEST

/*
 * No PID namespace. By descent nothing is ever proved; a leaf proves its own emptiness. Stopped, helper and supervisors are
 * continued, and end what they have: nobody else could.
 */
static void without_namespace(uint32_t first, uint32_t second, bool stop_supervisors)
{
	struct round round;
	round_begin_on(&round, first, second, false);
	round_read(&round);
	/* All that a recovery could find if the supervisor were dead. */
	ck_assert(strstr(read_record(round.path), "\nprogram orch-"));
	ck_assert_int_eq(kill(round.helper, SIGSTOP), 0);
	for (int i = 0; stop_supervisors && i < SCOPES; i++)
		ck_assert_int_eq(kill(round.scopes[i].init.pid, SIGSTOP), 0);
	kill_host(&round);
	ck_assert(word_is_seen(round.word, 4));
	orch_leftovers *leftovers = recover(round.path, 20000);
	ck_assert_uint_eq(orch_leftovers_count(leftovers), SCOPES);
	for (uint32_t i = 0; i < SCOPES; i++) {
		orch_death *death = death_at(leftovers, i);
		bool by_descent = round.rungs[i] == ORCH_RUNG_SUBREAPER;
		ck_assert_msg(orch_death_verdict(death) == (by_descent ? ORCH_DEATH_UNVERIFIABLE : ORCH_DEATH_DEAD), "%s",
			      orch_death_text(death));
		ck_assert_msg(!by_descent || strstr(orch_death_reason(death), "no closed set"), "%s",
			      orch_death_text(death));
		ck_assert_msg(by_descent || strstr(orch_death_proof(death), "cgroup leaf is removed"), "%s",
			      orch_death_text(death));
	}
	orch_leftovers_unref(leftovers);
	judge(&round);
	/* What is not proved is told again, until another boot. */
	leftovers = recover(round.path, 0);
	ck_assert_uint_eq(orch_leftovers_count(leftovers), (first == ORCH_RUNG_SUBREAPER) + (second == ORCH_RUNG_SUBREAPER));
	orch_leftovers_unref(leftovers);
	round_end(&round);
}

START_TEST(without_a_namespace)
{
	uint32_t other = is_root() ? ORCH_RUNG_CGROUP : ORCH_RUNG_SUBREAPER;
	for (int i = 0; i < rounds(); i++)
		without_namespace(ORCH_RUNG_SUBREAPER, other, i % 2);
}
END_TEST

int fake_helper(const char *name)
{
	(void)name;
	return 2;
}

Suite *suite(void)
{
	Suite *all = suite_create("reaper-recover");
	/* One case each, so that CK_RUN_CASE chooses a kind. */
	const struct {
		const char *name;
		const TTest *test;
	} kinds[] = {
	    {"host", host_killed},	     {"stopped", helper_stopped_and_host_killed},
	    {"helper", helper_killed},	     {"both", both_killed_at_once},
	    {"worker", worker_keeps_the_socket}, {"early", struck_early},
	    {"recovery", recovery_killed},   {"reboot", after_a_reboot},
	    {"descent", without_a_namespace},
	};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		TCase *kind = tcase_create(kinds[i].name);
		tcase_add_test(kind, kinds[i].test);
		/* What has no namespace is ended one by one: minutes where the processor is emulated. */
		if (kinds[i].test == without_a_namespace)
			tcase_set_tags(kind, "thousands");
		tcase_set_timeout(kind, getenv("ORCH_TEST_ALL") ? 1800 : 100);
		suite_add_tcase(all, kind);
	}
	TCase *others = tcase_create("others");
	tcase_add_test(others, from_another_namespace);
	if (is_root()) {
		tcase_add_test(others, numbers_that_strangers_got);
		tcase_add_test(others, survivors_are_named);
	} else {
		printf("not root: numbers of strangers and frozen members not tried\n");
	}
	tcase_set_timeout(others, 100);
	suite_add_tcase(all, others);
	return all;
}

/* After a failed assertion: thaws, and kills what a host, a stopped helper and its scopes left. */
static void sweep(void)
{
	char path[192];
	int own = getpid();
	const char *name = strrchr(folder, '/');
	snprintf(path, sizeof(path), "/sys/fs/cgroup/freezer%s/freezer.state", name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!write(fd, "THAWED", 6);
		close(fd);
	}
	for (int i = 0; i < 200; i++) {
		pid_t pid = pid_with_word(helper_path);
		if (pid <= 0)
			pid = pid_with_word(self_path);
		if (pid <= 0 || pid == own)
			break;
		kill(pid, SIGKILL);
		pause_ms(5);
	}
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

int main(int argc, char **argv)
{
	int status = fixture_main(argc, argv);
	if (status && *helper_path)
		sweep();
	return status;
}
