/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <orch.h>

#include "host.h"

#define WAIT_MS 60000
#define START_MS 500

struct host {
	orch_ctx *ctx;
	orch_scope *scope;
	int32_t init;
	int32_t helper;
};

static void answer_line(const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
}

/* One line, whatever is in it. */
static void answer_text(const char *word, int32_t number, const char *text)
{
	char line[2048];
	snprintf(line, sizeof(line), "%s %d %s", word, (int)number, text ? text : "");
	for (char *end = line; *end; end++)
		if (*end == '\n')
			*end = ' ';
	answer_line(line);
}

static int32_t parent_of(int32_t pid)
{
	char path[64], line[256];
	int parent = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = pid > 0 ? fopen(path, "re") : NULL;
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "PPid: %d", &parent) == 1)
			break;
	if (file)
		fclose(file);
	return parent;
}

static void new_scope(struct host *host, uint32_t rung)
{
	struct orch_scope_opts opts;
	orch_error *error = NULL;
	orch_scope_opts_init(&opts, sizeof(opts));
	opts.least_rung = opts.best_rung = rung;
	int32_t code = orch_scope_new(host->ctx, &opts, &host->scope, &error);
	if (code == 0)
		code = orch_scope_start_wait(host->scope, WAIT_MS, &error);
	if (code < 0) {
		answer_text("refused", code, orch_error_message(error));
		orch_error_free(error);
		host->scope = orch_scope_unref(host->scope);
		return;
	}
	host->init = orch_scope_init_pid(host->scope);
	host->helper = parent_of(host->init);
	const char *leaf = orch_scope_cgroup(host->scope);
	printf("up %u %d %d %" PRIu64 " %s\n", orch_scope_rung(host->scope), (int)host->init, (int)host->helper,
	       orch_scope_pidns_inode(host->scope), leaf[0] ? leaf : "-");
	fflush(stdout);
}

static void spawn_load(struct host *host, char *words)
{
	char *file = strtok(words, " "), *out = strtok(NULL, " "), *mode = strtok(NULL, " ");
	char *count = strtok(NULL, " "), *decoy = strtok(NULL, " "), *cgroups = strtok(NULL, " ");
	char *folder = strtok(NULL, " ");
	char init[16], helper[16];
	orch_error *error = NULL;
	struct orch_proc_opts opts;
	int fd = out ? open(out, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
	if (!folder || fd < 0 || !host->scope) {
		answer_text("failed", 0, "bad request");
		return;
	}
	const char *leaf = orch_scope_cgroup(host->scope);
	snprintf(init, sizeof(init), "%d", orch_scope_rung(host->scope) >= ORCH_RUNG_PIDNS ? 1 : (int)host->init);
	snprintf(helper, sizeof(helper), "%d", (int)host->helper);
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = (const char *const[]){file, mode, count, init, helper, decoy, cgroups, leaf[0] ? leaf : "-", folder,
					  NULL};
	opts.stdout_fd = opts.stderr_fd = fd;
	orch_proc *proc = NULL;
	int32_t code = orch_scope_spawn(host->scope, &opts, &proc, &error);
	close(fd);
	/* Until it runs, or is refused. An attack may leave nobody who could tell: it says itself that it stands. */
	for (int i = 0; code == 0 && !orch_proc_pid(proc) && i < START_MS; i++) {
		orch_error_free(error);
		error = NULL;
		int32_t waited = orch_proc_wait(proc, 1, NULL, &error);
		if (waited < 0 && waited != ORCH_ETIMEDOUT)
			code = waited;
	}
	orch_proc_unref(proc);
	if (code < 0)
		answer_text("failed", code, orch_error_message(error));
	else
		answer_line("spawned");
	orch_error_free(error);
}

static void probe(struct host *host)
{
	struct orch_proc_opts opts;
	orch_error *error = NULL;
	orch_proc *proc = NULL;
	int32_t status = -1;
	orch_proc_opts_init(&opts, sizeof(opts));
	opts.argv = (const char *const[]){"/bin/true", NULL};
	int32_t code = orch_scope_spawn(host->scope, &opts, &proc, &error);
	if (code == 0)
		code = orch_proc_wait(proc, WAIT_MS, &status, &error);
	answer_text("probe", code < 0 ? code : status, orch_error_message(error));
	orch_proc_unref(proc);
	orch_error_free(error);
}

static void stop(struct host *host, uint32_t deadline_ms)
{
	struct orch_stop_opts opts;
	orch_error *error = NULL;
	orch_death *death = NULL;
	char line[2048];
	orch_stop_opts_init(&opts, sizeof(opts));
	opts.deadline_ms = deadline_ms;
	int32_t code = orch_scope_stop_wait(host->scope, &opts, &death, &error);
	if (code < 0) {
		answer_text("death", 0, orch_error_message(error));
	} else {
		snprintf(line, sizeof(line), "%u %u %s; %s; %s", orch_death_alive_at_request(death),
			 orch_death_survivor_count(death), orch_death_mechanism(death), orch_death_proof(death),
			 orch_death_reason(death));
		answer_text("death", (int32_t)orch_death_verdict(death), line);
	}
	orch_death_unref(death);
	orch_error_free(error);
	host->scope = orch_scope_unref(host->scope);
}

int host_main(const char *helper_path)
{
	struct host host = {0};
	struct orch_ctx_opts opts;
	orch_error *error = NULL;
	char line[1024];
	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = helper_path;
	if (orch_ctx_new(&opts, &host.ctx, &error) < 0) {
		answer_text("refused", -1, orch_error_message(error));
		return 1;
	}
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "new ", 4) == 0)
			new_scope(&host, (uint32_t)atoi(line + 4));
		else if (strncmp(line, "load ", 5) == 0)
			spawn_load(&host, line + 5);
		else if (!host.scope)
			answer_text("failed", 0, "no scope");
		else if (strcmp(line, "probe") == 0)
			probe(&host);
		else if (strncmp(line, "stop ", 5) == 0)
			stop(&host, (uint32_t)atoi(line + 5));
	}
	orch_scope_unref(host.scope);
	orch_ctx_unref(host.ctx);
	return 0;
}

/* --- bystanders ------------------------------------------------------------------------- */

static volatile sig_atomic_t signals_seen;

static void on_signal(int signal)
{
	(void)signal;
	signals_seen++;
}

int canary_main(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	char line[32];
	for (int number = 1; number < NSIG; number++)
		sigaction(number, &action, NULL);
	answer_text("canary", 0, "");
	while (fgets(line, sizeof(line), stdin))
		answer_text("canary", (int32_t)signals_seen, "");
	return 0;
}

int decoy_main(void)
{
	struct clone_args arguments = {.flags = CLONE_NEWPID, .exit_signal = SIGCHLD};
	if (geteuid() != 0)
		arguments.flags |= CLONE_NEWUSER;
	pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (pid != 0) {
		answer_text("decoy", pid < 0 ? -errno : pid, "");
		char line[32];
		while (fgets(line, sizeof(line), stdin))
			;
		if (pid > 0)
			kill(pid, SIGKILL);
		return 0;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	for (;;)
		pause();
}
