/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torture [MODE ...]: every load and every attack of load.c on every rung of the ladder, as root, as an ordinary user
 * in a delegated cgroup, as one without, and where pids come again at once. The judge (this process, root, outside of
 * everything) looks before the stop, which is its positive control, and after the certificate. What it holds against
 * the library:
 *
 * - a certificate that says DEAD while anything lives, on any rung, after any attack;
 * - with a PID namespace, anything but DEAD, and anything that is left;
 * - below, anything left of a load that does not try to leave;
 * - a leaf, a mount, a helper that is gone, a stranger that was touched.
 *
 * ORCH_TEST_ALL=1: more processes, three rounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orch.h>

#include "cage.h"
#include "host.h"
#include "judge.h"
#include "table.h"

#define USER 1000u
/* Against a test that hangs: nothing is judged by it. */
#define ANSWER_MS 120000
#define DEADLINE_MS 20000
/* Where those who would end it may be frozen or gone. */
#define SHORT_MS 3000
#define FEW_PIDS "600"

/* --- what there is ------------------------------------------------------------------------- */

/* On the rungs without a PID namespace: */
#define LEAVES 1u  /* may leave the set, or end those who watch it: DEAD is wrong then, anything else is right */
#define FORKS 2u   /* may outrun a killer that goes by lists: SURVIVORS is right as well */
#define NUMBERS 4u /* is run where pids come again as well */

static const struct mode {
	const char *name;
	unsigned count; /* 0: the number of the mass */
	unsigned kind;
} modes[] = {
    {"sessions", 8, 0},
    {"daemons", 8, NUMBERS},
    {"groups", 8, 0},
    {"deaf", 8, 0},
    {"bare", 8, 0},
    {"hoppers", 0, FORKS | NUMBERS},
    {"vfork-chain", 16, 0},
    {"brothers", 8, 0},
    {"one-memory", 8, 0},
    {"silent-ends", 8, 0},
    {"stopped", 8, 0},
    {"traced", 8, 0},
    {"zombies", 8, 0},
    {"guards", 8, FORKS | NUMBERS},
    {"growing", 300, FORKS | NUMBERS},
    {"mass", 0, 0},
    {"everything", 100, FORKS},
    {"nested", 8, 0},
    {"reused", 8, 0},
    {"leave-cgroup", 0, LEAVES},
    {"leave-parent", 0, LEAVES},
    {"on-init", 0, 0},
    {"on-helper", 0, 0},
    {"uncover", 0, 0},
    {"freeze-init", 0, LEAVES},
    {"freeze-helper", 0, LEAVES},
    {"hold-init", 0, LEAVES},
    {"hold-helper", 0, LEAVES},
    {"starve-init", 0, LEAVES},
    {"starve-helper", 0, LEAVES},
    {"kill-init", 0, LEAVES},
    {"kill-helper", 0, LEAVES},
};
#define MODES (sizeof(modes) / sizeof(*modes))

static const struct setup {
	const char *name;
	const char *place; /* in the cage's cgroups */
	bool user;
	bool few_pids; /* a PID namespace with a small pid_max around host and helper */
} setups[] = {
    {"root", "root", false, false},
    {"user+cgroup", "user", true, false},
    {"user", "plain", true, false},
    {"root,few pids", "root", false, true},
    {"user,few pids", "user", true, true},
};
#define SETUPS (sizeof(setups) / sizeof(*setups))

static const struct {
	uint32_t rung;
	const char *name;
} rungs[] = {
    {ORCH_RUNG_CGROUP_PIDNS, "both"},
    {ORCH_RUNG_PIDNS, "pidns"},
    {ORCH_RUNG_CGROUP, "cgroup"},
    {ORCH_RUNG_SUBREAPER, "subreaper"},
};
#define RUNGS (sizeof(rungs) / sizeof(*rungs))

static struct cage cage;
static struct program_file load, helper, self;
static unsigned failures, mass_count = 1000;

/* --- children that are told things ----------------------------------------------------------- */

struct child {
	pid_t pid;
	FILE *answers;
	int orders_fd;
};

static void become_user(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 || setresuid(USER, USER, USER) < 0)
		_exit(99);
}

/* The numbers of this PID namespace come again after 600: its own since 6.14, so nothing else may be written to. */
static void few_pids(void)
{
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		_exit(98);
	pid_t pid = fork();
	if (pid != 0) {
		int status;
		prctl(PR_SET_NAME, "few-pids");
		waitpid(pid, &status, 0);
		_exit(0);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Its init must not be the host, which may not have to reap strangers. */
	pid = fork();
	if (pid != 0) {
		while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
			;
		_exit(0);
	}
	if (mount("proc", "/proc", "proc", 0, NULL) < 0)
		_exit(97);
	int fd = open("/proc/sys/kernel/pid_max", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, FEW_PIDS, strlen(FEW_PIDS)) < 0)
		_exit(96);
	close(fd);
}

static struct child start(const struct setup *setup, const char *place, const char *role, bool inside)
{
	int orders[2], answers[2];
	struct child child = {.orders_fd = -1};
	if (pipe2(orders, O_CLOEXEC) < 0 || pipe2(answers, O_CLOEXEC) < 0)
		exit(99);
	fflush(stdout);
	child.pid = fork();
	if (child.pid == 0) {
		/* Whoever does not come to the exec below would hold what the others wait for. */
		if (dup2(orders[0], 0) < 0 || dup2(answers[1], 1) < 0)
			_exit(93);
		close_range(3, ~0u, 0);
		if (!cage_enter(&cage, place))
			_exit(95);
		if (inside && setup->few_pids)
			few_pids();
		if (setup->user)
			become_user();
		(void)!chdir("/");
		execl(self.path, self.path, role, helper.path, NULL);
		_exit(94);
	}
	close(orders[0]);
	close(answers[1]);
	child.orders_fd = orders[1];
	child.answers = fdopen(answers[0], "r");
	setvbuf(child.answers, NULL, _IONBF, 0);
	return child;
}

/* One line; false at its end or if it hangs. */
static bool hear(struct child *child, char *line, size_t size)
{
	struct pollfd watch = {.fd = fileno(child->answers), .events = POLLIN};
	line[0] = '\0';
	if (poll(&watch, 1, ANSWER_MS) <= 0 || !fgets(line, (int)size, child->answers))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

static bool ask(struct child *child, char *line, size_t size, const char *format, ...)
{
	char order[1024];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(order, sizeof(order), format, arguments);
	va_end(arguments);
	line[0] = '\0';
	return write(child->orders_fd, order, (size_t)length) == length && hear(child, line, size);
}

/* Sees the end of its orders, and has to end by itself. */
static void dismiss(struct child *child)
{
	if (!child->answers)
		return;
	close(child->orders_fd);
	for (int i = 0; i < 1500 && waitpid(child->pid, NULL, WNOHANG) == 0; i++) {
		if (i == 1000)
			kill(child->pid, SIGKILL);
		poll(NULL, 0, 10);
	}
	fclose(child->answers);
	*child = (struct child){.orders_fd = -1};
}

/* --- one cell of the table: a rung, a user ---------------------------------------------------- */

struct cell {
	const struct setup *setup;
	unsigned column;
	uint32_t rung;
	const char *rung_name;
	struct child host, canary, decoy;
	pid_t decoy_pid, helper_pid;
	struct stranger stranger, helper_facts;
	/* of the scope that stands */
	struct namespace pidns;
	char leaf[256];
	char out[128];
	const struct mode *mode;
};

static void fail(const struct cell *cell, const char *format, ...)
{
	va_list arguments;
	printf("FAILED %s, %s, %s: ", cell->setup->name, cell->rung_name, cell->mode ? cell->mode->name : "-");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
	failures++;
}

static bool closed_set(const struct cell *cell)
{
	return cell->rung >= ORCH_RUNG_PIDNS;
}

static void cell_begin(struct cell *cell)
{
	char line[256];
	cell->host = start(cell->setup, cell->setup->place, "--host", true);
	cell->canary = start(cell->setup, "decoy", "--canary", false);
	hear(&cell->canary, line, sizeof(line));
	cell->decoy = start(cell->setup, "decoy", "--decoy", false);
	hear(&cell->decoy, line, sizeof(line));
	cell->decoy_pid = 0;
	sscanf(line, "decoy %d", &cell->decoy_pid);
	stranger_remember(&cell->stranger, cell->canary.pid);
	cell->helper_pid = 0;
}

static void cell_end(struct cell *cell)
{
	dismiss(&cell->decoy);
	dismiss(&cell->canary);
	dismiss(&cell->host);
	/* The helper follows its host. */
	for (int i = 0; i < 1500 && judge_count(&helper, (struct namespace){0}); i++)
		poll(NULL, 0, 10);
	if (judge_count(&helper, (struct namespace){0})) {
		fail(cell, "helpers are left after their host's end");
		judge_describe(&helper, (struct namespace){0});
		judge_sweep(&helper);
	}
}

/* "up ..."; false: refused, with the reason in `line`. */
static bool scope_begin(struct cell *cell, char *line, size_t size)
{
	unsigned rung = 0;
	unsigned long long pidns = 0;
	cell->leaf[0] = '\0';
	if (!ask(&cell->host, line, size, "new %u\n", cell->rung)) {
		snprintf(line, size, "the host gave no answer");
		return false;
	}
	if (sscanf(line, "up %u %*d %*d %llu %255s", &rung, &pidns, cell->leaf) != 3)
		return false;
	/* On the lower rungs everybody is a member of it. */
	cell->pidns = (struct namespace){.inode = closed_set(cell) ? pidns : 0};
	if (rung != cell->rung) {
		snprintf(line, size, "rung %u was asked for and %u given", cell->rung, rung);
		return false;
	}
	if (rung >= ORCH_RUNG_PIDNS && !pidns)
		fail(cell, "no PID namespace is named");
	pid_t before = cell->helper_pid;
	cell->helper_pid = judge_find(&helper, cell->setup->few_pids ? 0 : cell->host.pid);
	if (cell->helper_pid != before)
		stranger_remember(&cell->helper_facts, cell->helper_pid);
	return true;
}

/* What nobody in a PID namespace may do, and what no ordinary user may. */
static void check_try(const struct cell *cell, const char *name, const char *result, const char *control)
{
	/* Signals to an init of its own are received and have no effect: what counts is that it goes on. */
	static const char *const harmless[] = {"init: null signal", "init: null signal through /proc", "init: prlimit",
					       "init: SIGSTOP", "init: every signal",
					       "init: no descriptors, last in every queue"};
	bool allowed = strcmp(result, "allowed") == 0, excepted = false;
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++)
		excepted |= strcmp(name, harmless[i]) == 0;
	bool forbidden = strncmp(name, "helper: ", 8) == 0;
	if (cell->setup->user && !excepted)
		forbidden |= strncmp(name, "init: ", 6) == 0 || strncmp(name, "proc: ", 6) == 0;
	if (closed_set(cell) && forbidden && allowed)
		fail(cell, "allowed: %s", name);
	if (strcmp(control, "works") != 0 && !strstr(name, "setns into its mount namespace"))
		fail(cell, "control of \"%s\": %s", name, control);
}

/* What the load said; the number of "made", or -1 while it has not. */
static int read_output(const struct cell *cell, bool tell)
{
	char line[512];
	int made = -1;
	FILE *file = fopen(cell->out, "re");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		char *save = NULL, *name = NULL, *result = NULL, *control = NULL;
		if (sscanf(line, "made %d", &made) == 1 || strncmp(line, "try ", 4) != 0)
			continue;
		name = strtok_r(line + 4, "|", &save);
		result = strtok_r(NULL, "|", &save);
		control = strtok_r(NULL, "|", &save);
		if (!tell || !control)
			continue;
		check_try(cell, name, result, control);
		table_try(name, cell->column, result, strcmp(control, "works") == 0);
	}
	if (file)
		fclose(file);
	return made;
}

/* Where the attack may be the end of the scope, it is the end of its load as well. (A helper without descriptors dies.) */
static bool ends_scope(const struct cell *cell)
{
	const char *name = cell->mode->name;
	return !closed_set(cell) && (strncmp(name, "kill-", 5) == 0 || strcmp(name, "starve-helper") == 0);
}

/* The load runs, and the judge sees as many as it says there are: the control of every look that comes later. */
static unsigned load_begin(struct cell *cell)
{
	char line[1024];
	int made = -1;
	unsigned seen = 0, most = 0;
	unsigned count = cell->mode->count ? cell->mode->count : mass_count;
	if (cell->setup->few_pids && count > 100)
		count = 100;
	int fd = open(cell->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	fchmod(fd, 0666);
	close(fd);
	if (!ask(&cell->host, line, sizeof(line), "load %s %s %s %u %d %s %s\n", load.path, cell->out, cell->mode->name,
		 count, (int)cell->decoy_pid, cage.v2, cage.folder) ||
	    strcmp(line, "spawned") != 0) {
		/* What it did may be heard of before its start is. */
		if (!ends_scope(cell))
			fail(cell, "the load was not started: %s", line);
		return 0;
	}
	for (int look = 0; look < 3000; look++) {
		if (made < 0)
			made = read_output(cell, false);
		seen = judge_count(&load, cell->pidns);
		most = seen > most ? seen : most;
		if ((made >= 0 && most >= (unsigned)made) || (look >= 100 && ends_scope(cell)))
			break;
		poll(NULL, 0, 10);
	}
	read_output(cell, true);
	if (!ends_scope(cell) && (made <= 0 || most < (unsigned)made))
		fail(cell, "control: the load says that %d stand, and %u are seen", made, most);
	return most;
}

static void check_watchers(struct cell *cell)
{
	bool may_harm = !closed_set(cell) && cell->mode->kind & LEAVES;
	char line[256];
	const char *harm = stranger_harm(&cell->stranger);
	if (harm)
		fail(cell, "the stranger: %s", harm);
	if (!ask(&cell->canary, line, sizeof(line), "?\n") || strncmp(line, "canary 0 ", 9) != 0)
		fail(cell, "the stranger got signals: %s", line);
	harm = stranger_harm(&cell->helper_facts);
	if (harm && !may_harm)
		fail(cell, "the helper: %s", harm);
	if (harm)
		table_mark(cell->column, cell->mode->name, "helper hurt");
}

static void check_end(struct cell *cell, unsigned verdict, unsigned left, const char *text)
{
	bool closed = closed_set(cell), leaves = cell->mode->kind & LEAVES, forks = cell->mode->kind & FORKS;
	if (verdict == ORCH_DEATH_DEAD && left)
		fail(cell, "DEAD, and %u are left: %s", left, text);
	else if (closed && (verdict != ORCH_DEATH_DEAD || left))
		fail(cell, "%s, and %u are left: %s", table_verdict(verdict), left, text);
	else if (cell->rung == ORCH_RUNG_CGROUP && !leaves && (verdict != ORCH_DEATH_DEAD || left))
		fail(cell, "%s, and %u are left: %s", table_verdict(verdict), left, text);
	else if (!closed && !leaves && !forks && left)
		fail(cell, "%u are left: %s", left, text);
	else if (cell->rung == ORCH_RUNG_SUBREAPER && verdict != ORCH_DEATH_UNVERIFIABLE &&
		 !((leaves || forks) && verdict == ORCH_DEATH_SURVIVORS))
		fail(cell, "%s can not be known here: %s", table_verdict(verdict), text);
	if (left)
		judge_describe(&load, cell->pidns);
	/* A leaf that something could be moved into from outside may be held by it. */
	if (cell->leaf[0] == '/' && access(cell->leaf, F_OK) == 0 && (closed || !leaves))
		fail(cell, "the leaf %s is still there", cell->leaf);
	if (judge_mounts(cage.folder))
		fail(cell, "a mount is left");
}

static void run_mode(struct cell *cell, const struct mode *mode)
{
	char line[2048], death[2048] = "";
	cell->mode = mode;
	snprintf(cell->out, sizeof(cell->out), "%s/out", cage.folder);
	if (!scope_begin(cell, line, sizeof(line))) {
		fail(cell, "no scope: %s", line);
		return;
	}
	unsigned seen = load_begin(cell);
	/* The scope still does what it is for. */
	bool harmed = (mode->kind & LEAVES && !closed_set(cell)) || mode->kind & FORKS ||
		      strcmp(mode->name, "mass") == 0 || strcmp(mode->name, "starve-init") == 0 ||
		      (strcmp(mode->name, "hold-init") == 0 && !cell->setup->user);
	if (!harmed && (!ask(&cell->host, line, sizeof(line), "probe\n") || strncmp(line, "probe 0 ", 8) != 0))
		fail(cell, "no program can be started in the scope any more: %s", line);
	unsigned verdict = 0, alive = 0;
	cell->pidns.before = judge_now();
	bool in_doubt = mode->kind & LEAVES && !closed_set(cell);
	bool told = ask(&cell->host, death, sizeof(death), "stop %d\n", in_doubt ? SHORT_MS : DEADLINE_MS) &&
		    sscanf(death, "death %u %u", &verdict, &alive) == 2;
	if (!told)
		fail(cell, "no certificate: %s", death);
	unsigned left = judge_left(&load, cell->pidns);
	check_end(cell, verdict, left, death);
	if (in_doubt)
		printf("%s, %s, %s: %u left; %s\n", cell->setup->name, cell->rung_name, mode->name, left, death);
	fflush(stdout);
	check_watchers(cell);
	table_end(cell->column, mode->name, verdict, seen, left);
	if (judge_sweep(&load))
		fail(cell, "what is left could not be ended");
	/* A host without its helper has to be a new one for the next. */
	bool helper_gone = judge_find(&helper, 0) == 0 || stranger_harm(&cell->helper_facts);
	if (!told || helper_gone || verdict == ORCH_DEATH_SURVIVORS) {
		judge_sweep(&helper);
		cell_end(cell);
		cell_begin(cell);
	}
}

static bool chosen(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc < 2;
}

static void run_cell(struct cell *cell, int argc, char **argv)
{
	char line[2048], death[2048];
	cell->mode = NULL;
	cell_begin(cell);
	if (!scope_begin(cell, line, sizeof(line))) {
		char cause[32];
		snprintf(cause, sizeof(cause), "refused %d ", ORCH_EUNENFORCEABLE);
		bool without = strcmp(cell->setup->place, "plain") == 0 || cage.v2[0] != '/';
		bool has_cgroup = cell->rung == ORCH_RUNG_CGROUP || cell->rung == ORCH_RUNG_CGROUP_PIDNS;
		printf("%s, %s: refused: %s\n", cell->setup->name, cell->rung_name, line);
		/* Nobody else is refused, and for nothing else. */
		if (!without || !has_cgroup || strncmp(line, cause, strlen(cause)) != 0)
			fail(cell, "refused");
		fflush(stdout);
		table_refused(cell->column);
		cell_end(cell);
		return;
	}
	ask(&cell->host, death, sizeof(death), "stop %d\n", DEADLINE_MS);
	for (size_t i = 0; i < MODES; i++) {
		if (!chosen(modes[i].name, argc, argv) || (cell->setup->few_pids && !(modes[i].kind & NUMBERS)))
			continue;
		/* Without a private /proc there is nothing to uncover. */
		if (strcmp(modes[i].name, "uncover") == 0 && !closed_set(cell))
			continue;
		run_mode(cell, &modes[i]);
	}
	cell->mode = NULL;
	cell_end(cell);
}

/* --- the run --------------------------------------------------------------------------------- */

static bool prepare(void)
{
	char path[600], own[512], name[16];
	uint32_t number = 0;
	const char *build = getenv("ORCH_BUILD_ROOT");
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
	if (!build || length < 0 || getrandom(&number, sizeof(number), 0) != sizeof(number))
		return false;
	own[length] = '\0';
	if (!program_copy(&self, own, cage.folder, "torture"))
		return false;
	snprintf(path, sizeof(path), "%s/lib/helper/orch-reaper", build);
	snprintf(name, sizeof(name), "reaper%08x", number);
	if (!program_copy(&helper, path, cage.folder, name))
		return false;
	snprintf(path, sizeof(path), "%s/tests/torture/torture-load", build);
	snprintf(name, sizeof(name), "load%08x", number);
	if (!program_copy(&load, path, cage.folder, name))
		return false;
	if (cage.v2[0] != '/') {
		printf("no cgroup v2: the rungs with one are refused\n");
		return true;
	}
	return cage_place(&cage, "root", 0) && cage_place(&cage, "plain", 0) && cage_place(&cage, "decoy", 0) &&
	       cage_place(&cage, "user", USER);
}

static void run_all(int argc, char **argv)
{
	struct cell cell = {0};
	unsigned column = 0;
	for (size_t i = 0; i < SETUPS; i++)
		for (size_t j = 0; j < RUNGS; j++) {
			char title[64];
			snprintf(title, sizeof(title), "%s/%s", setups[i].name, rungs[j].name);
			table_column(column, title);
			cell = (struct cell){.setup = &setups[i],
					     .column = column++,
					     .rung = rungs[j].rung,
					     .rung_name = rungs[j].name};
			run_cell(&cell, argc, argv);
			unsigned folders = cage.v2[0] == '/' ? judge_folders(cage.v2) : 4;
			if (folders != 4)
				fail(&cell, "%u folders are left in %s", folders - 4, cage.v2);
		}
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "--host") == 0)
		return host_main(argv[2]);
	if (argc >= 2 && strcmp(argv[1], "--canary") == 0)
		return canary_main();
	if (argc >= 2 && strcmp(argv[1], "--decoy") == 0)
		return decoy_main();
	if (geteuid() != 0) {
		printf("only root can cap the run and see all of it\n");
		return 77;
	}
	bool all = getenv("ORCH_TEST_ALL") != NULL;
	mass_count = all ? 4000 : 1000;
	signal(SIGPIPE, SIG_IGN);
	/* What the load orphans on the rungs without a PID namespace goes past us, as it would in a service. */
	if (!cage_make(&cage))
		return 77;
	if (prepare())
		for (int round = 0; round < (all ? 3 : 1); round++)
			run_all(argc, argv);
	else
		failures++, printf("FAILED the run could not be prepared: %s\n", strerror(errno));
	failures += judge_sweep(&load) + judge_sweep(&helper);
	table_print();
	unsigned left = cage_end(&cage);
	if (left)
		failures++, printf("FAILED the cage could not be removed: %u parts are left\n", left);
	printf("%u failures\n", failures);
	return failures ? 1 : 0;
}
