/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of the channel matrix.
 *
 *   test-matrix [--table]              each row inside, and its control outside
 *   test-matrix --without [--table]    with each protection left out in turn: what turns is what it guards alone; and with
 *                                      those left out together that stand in for each other
 *
 * Both as the calling user and, where that is root, again as uid 1000 (not if ORCH_TEST_ONCE is set). A control is made as
 * the load's own uid; what needs more rights outside is tried again as root.
 */
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <orch.h>

#include "../../lib/sandbox/sandbox-private.h"
#include "amounts.h"
#include "targets.h"

#define USER 1000
#define ROWS_MAX 512
#define INSIDE "/attack/matrix-attempt"
#define INSIDE_MS 1800000

struct place place;

struct seen {
	int result, err;
};

/* Shared with the process that runs as the user, and with the one that stays root. */
static struct {
	struct seen inside[ROWS_MAX], as_user[ROWS_MAX], as_root[ROWS_MAX];
	char text[512]; /* the place, for root's controls */
	unsigned observations, allowed, refused, controls, wrong;
} *shared;

static bool table, leave_out;
static char reaper_path[128];

static const struct {
	const char *name;
	uint64_t bit;
} protections[] = {
	{"own uid", ORCH_SPEC_WITHOUT_OWN_UID},
	{"pid namespace", ORCH_SPEC_WITHOUT_PIDNS},
	{"network namespace", ORCH_SPEC_WITHOUT_NETNS},
	{"ipc namespace", ORCH_SPEC_WITHOUT_IPCNS},
	{"uts namespace", ORCH_SPEC_WITHOUT_UTSNS},
	{"cgroup namespace", ORCH_SPEC_WITHOUT_CGROUPNS},
	{"built root", ORCH_SPEC_WITHOUT_ROOT},
	{"mount attributes", ORCH_SPEC_WITHOUT_ATTRIBUTES},
	{"proc subset", ORCH_SPEC_WITHOUT_PROC},
	{"max_user_namespaces", ORCH_SPEC_WITHOUT_NESTING},
	{"capabilities", ORCH_SPEC_WITHOUT_CAPABILITIES},
	{"securebits", ORCH_SPEC_WITHOUT_SECUREBITS},
	{"keyring", ORCH_SPEC_WITHOUT_KEYRING},
	{"closing", ORCH_SPEC_WITHOUT_CLOSING},
	{"umask", ORCH_SPEC_WITHOUT_UMASK},
	{"session", ORCH_SPEC_WITHOUT_SESSION},
	{"landlock", ORCH_SPEC_WITHOUT_LANDLOCK},
	{"seccomp", ORCH_SPEC_WITHOUT_SECCOMP},
	{"seccomp.kernel", ORCH_SPEC_WITHOUT_SECCOMP_KERNEL},
	{"seccomp.namespaces", ORCH_SPEC_WITHOUT_SECCOMP_NAMESPACES},
	{"seccomp.sockets", ORCH_SPEC_WITHOUT_SECCOMP_SOCKETS},
	{"seccomp.terminals", ORCH_SPEC_WITHOUT_SECCOMP_TERMINALS},
	{"processes", ORCH_SPEC_WITHOUT_PROCESSES},
	{"open files", ORCH_SPEC_WITHOUT_OPEN_FILES},
	{"file size", ORCH_SPEC_WITHOUT_FILE_SIZE},
	{"no core", ORCH_SPEC_WITHOUT_NO_CORE},
	{"tmp size", ORCH_SPEC_WITHOUT_TMP_SIZE},
	{"undumpable init", ORCH_SPEC_WITHOUT_UNDUMPABLE},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Noreturn void give_up(const char *what, const orch_error *error)
{
	fprintf(stderr, "%s: %s\n", what, error ? orch_error_message(error) : strerror(errno));
	exit(1);
}

/* --- making the attempts ------------------------------------------------------------------ */

static void parse(const char *text, struct seen *seen)
{
	unsigned number;
	struct seen one;
	int length;

	for (unsigned i = 0; i < row_count; i++)
		seen[i] = (struct seen){.result = UNSEEN};
	for (; sscanf(text, "%u %d %d\n%n", &number, &one.result, &one.err, &length) == 3; text += length)
		if (number < row_count)
			seen[number] = one;
}

static void read_all(int fd, char *text, size_t size)
{
	size_t length = 0;
	ssize_t n;

	while (length + 1 < size && (n = read(fd, text + length, size - 1 - length)) > 0)
		length += (size_t)n;
	text[length] = '\0';
}

/* The attempts at refused channels, outside. `uid` -1: as who this process is. As root: of those that failed before. */
static void try_outside(const char *text, uid_t uid, const struct seen *before, struct seen *seen)
{
	static char output[65536];
	const char *argv[ROWS_MAX + 4] = {below(place.base, "matrix-attempt"), "outside", text};
	size_t count = 3;
	int fds[2];

	for (unsigned i = 0; i < row_count; i++)
		if (!(rows[i].flags & ALLOWED) && (!before || before[i].result != SUCCEEDED))
			argv[count++] = rows[i].name;
	if (pipe2(fds, O_CLOEXEC) < 0)
		give_up("pipe", NULL);
	pid_t child = fork();

	if (child == 0) {
		dup2(fds[1], 1);
		if (uid != (uid_t)-1 && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
			_exit(1);
		execv(argv[0], (char *const *)argv);
		_exit(1);
	}
	close(fds[1]);
	read_all(fds[0], output, sizeof(output));
	close(fds[0]);
	waitpid(child, NULL, 0);
	parse(output, seen);
	if (count == 3) /* no name would be all of them */
		parse("", seen);
}

static orch_ctx *ctx_new(void)
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	orch_error *error = NULL;

	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = reaper_path;
	if (orch_ctx_new(&opts, &ctx, &error) < 0)
		give_up("context", error);
	return ctx;
}

static orch_sandbox *sandbox_new(orch_ctx *ctx, uint64_t without)
{
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_processes = 64;
	opts.max_open_files = 128;
	opts.max_file_mib = 3;
	opts.tmp_mib = 12;
	if (orch_sandbox_new(ctx, &opts, &sandbox, &error) < 0)
		give_up("sandbox", error);
	sandbox->without = without;
	return sandbox;
}

static void add_paths(orch_sandbox *sandbox)
{
	const uint32_t program = ORCH_PATH_READ | ORCH_PATH_EXEC;
	orch_error *error = NULL;

	if (orch_sandbox_add_path(sandbox, below(place.base, "matrix-attempt"), INSIDE, program, &error) < 0 ||
	    orch_sandbox_add_path(sandbox, below(place.base, "programs"), "/programs", program, &error) < 0 ||
	    orch_sandbox_add_path(sandbox, below(place.base, "devices"), "/devices", ORCH_PATH_READ | ORCH_PATH_WRITE,
				  &error) < 0 ||
	    orch_sandbox_add_path(sandbox, below(place.folder, "ro"), "/ro", ORCH_PATH_READ, &error) < 0 ||
	    orch_sandbox_set_workspace(sandbox, below(place.folder, "work"), NULL, &error) < 0)
		give_up("policy", error);
}

static void try_inside(orch_sandbox *sandbox, const char *text, const char *name)
{
	static char output[65536];
	const char *const argv[] = {INSIDE, sandbox->without ? "again" : "inside", text, NULL};
	struct orch_run_opts opts;
	orch_sandbox_result *result = NULL;
	orch_error *error = NULL;
	size_t length = 0;

	/* For what hangs only: an emulated processor takes minutes. */
	orch_run_opts_init(&opts, sizeof(opts));
	opts.timeout_ms = INSIDE_MS;
	add_paths(sandbox);
	if (orch_sandbox_run(sandbox, argv, &opts, &result, &error) < 0)
		give_up(name, error);
	const char *bytes = orch_sandbox_result_output(result, 1, &length);

	length = length < sizeof(output) ? length : sizeof(output) - 1;
	memcpy(output, bytes, length);
	output[length] = '\0';
	parse(output, shared->inside);
	if (orch_sandbox_result_status(result) != 0) {
		bytes = orch_sandbox_result_output(result, 2, &length);
		fprintf(stderr, "%s: the attempts ended with %d: %.*s\n", name, orch_sandbox_result_status(result),
			(int)length, bytes);
		shared->wrong++;
	}
	orch_sandbox_result_unref(result);
}

/* --- judging ------------------------------------------------------------------------------ */

static const char *tell(const struct seen *seen)
{
	static char texts[4][48];
	static unsigned next;
	static const char *const results[] = {"succeeded", "denied", "could not be tried", "killed", "not seen"};
	char *text = texts[next++ % 4];
	const char *name = seen->err ? strerrorname_np(seen->err) : NULL;

	snprintf(text, sizeof(texts[0]), "%s%s%s", results[seen->result], name ? " " : "", name ? name : "");
	return text;
}

static bool has_control(unsigned i)
{
	return shared->as_user[i].result == SUCCEEDED || shared->as_root[i].result == SUCCEEDED;
}

/* Does the row have a target here? If not, it has to be one of those that may lack it. */
static bool counts(unsigned i, const char *who, bool began_as_root)
{
	const struct row *row = &rows[i];

	if (row->flags & ALLOWED || has_control(i))
		return true;
	if (row->flags & MAY_LACK || !began_as_root)
		printf("not counted (%s): %s: outside %s, as root %s\n", who, row->name, tell(&shared->as_user[i]),
		       tell(&shared->as_root[i]));
	else {
		printf("WRONG (%s): %s has no control: outside %s, as root %s\n", who, row->name, tell(&shared->as_user[i]),
		       tell(&shared->as_root[i]));
		shared->wrong++;
	}
	return false;
}

static bool holds(unsigned i)
{
	return shared->inside[i].result == (rows[i].flags & ALLOWED ? SUCCEEDED : DENIED);
}

static void judge(const char *who, bool began_as_root)
{
	for (unsigned i = 0; i < row_count; i++) {
		const struct row *row = &rows[i];
		bool control = has_control(i) && !(row->flags & ALLOWED);

		if (!counts(i, who, began_as_root))
			continue;
		shared->observations++;
		shared->allowed += row->flags & ALLOWED ? 1 : 0;
		shared->refused += row->flags & ALLOWED ? 0 : 1;
		shared->controls += control;
		if (table)
			printf("%-28s %-8s %-26s %s%s\n", row->name, row->flags & ALLOWED ? "allowed" : "refused",
			       tell(&shared->inside[i]), control ? "control: succeeded as " : "",
			       !control ? "" : shared->as_user[i].result == SUCCEEDED ? "the load's uid" : "root");
		if (!holds(i)) {
			printf("WRONG (%s): %s is %s, and inside: %s\n", who, row->name,
			       row->flags & ALLOWED ? "allowed" : "refused", tell(&shared->inside[i]));
			shared->wrong++;
		}
	}
}

static int landlock_abi(void)
{
	return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

/* Does the row turn without them? */
static bool is_open(const struct row *row, uint64_t mask, bool root)
{
	uint64_t sole = row->sole | (root ? row->sole_of_root : 0), together = row->shared;

	if (row->landlock > landlock_abi())
		together &= ~ORCH_SPEC_WITHOUT_LANDLOCK;
	if (mask & ORCH_SPEC_WITHOUT_SECCOMP)
		mask |= ORCH_SPEC_WITHOUT_SECCOMP_GROUPS;
	return sole & mask || (together && !(together & ~mask));
}

/* What is only root's outside needs more than the load's uid has: that it has none of root's rights guards it too. */
static bool turns(unsigned i, uint64_t mask, bool root)
{
	bool could = shared->as_user[i].result == SUCCEEDED || (mask & ORCH_SPEC_WITHOUT_OWN_UID && has_control(i));

	return is_open(&rows[i], mask, root) && (rows[i].flags & ALLOWED || could);
}

/* "landlock, proc subset" */
static const char *names_of(uint64_t mask)
{
	static char text[256];
	size_t length = 0;

	text[0] = '\0';
	for (size_t i = 0; i < COUNT(protections) && length < sizeof(text); i++)
		if (protections[i].bit & mask)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", length ? ", " : "",
						   protections[i].name);
	return text;
}

static void judge_without(const char *who, uint64_t mask, bool root)
{
	unsigned turned = 0;

	for (unsigned i = 0; i < row_count; i++) {
		bool expected = turns(i, mask, root);

		if (rows[i].flags & LONG || (!(rows[i].flags & ALLOWED) && !has_control(i)))
			continue;
		turned += !holds(i);
		if (holds(i) != expected)
			continue;
		printf("WRONG (%s): without %s, %s %s: %s\n", who, names_of(mask), rows[i].name,
		       expected ? "stays as it is, though nothing else was to guard it"
				: "turns, though something else was to guard it",
		       tell(&shared->inside[i]));
		shared->wrong++;
	}
	printf("%-4s %3u rows turn without %s\n", who, turned, names_of(mask));
}

/* The sets that rows name as guards which stand in for each other. */
static size_t shared_sets(uint64_t *sets, size_t size)
{
	size_t count = 0;

	for (unsigned i = 0; i < row_count; i++) {
		uint64_t set = rows[i].shared;
		size_t known = 0;

		while (known < count && sets[known] != set)
			known++;
		if (set && !(set & STAYS) && known == count && count < size)
			sets[count++] = set;
	}
	return count;
}

/* --- one identity ------------------------------------------------------------------------- */

static void become_user(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 || setresuid(USER, USER, USER) < 0)
		give_up("uid", NULL);
}

/* Stays root: tries again what the load's uid could not do outside. One answer for one request. */
static void root_serves(int request, int answer)
{
	char byte;

	while (read(request, &byte, 1) == 1) {
		if (place_read(shared->text))
			try_outside(shared->text, (uid_t)-1, shared->as_user, shared->as_root);
		if (write(answer, "x", 1) != 1)
			return;
	}
}

static void session_key(void)
{
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 ||
	    syscall(SYS_add_key, "user", "matrix-session", "x", 1, KEY_SPEC_SESSION_KEYRING) < 0)
		give_up("session keyring", NULL);
}

/* Without those of `mask`; 0: with all, and with the controls. */
static void observe(orch_ctx *ctx, const char *who, uint64_t mask, bool root, int request, int answer)
{
	struct targets targets = {0};
	orch_sandbox *sandbox = sandbox_new(ctx, mask);
	uid_t uid = orch_sandbox_host_uid(sandbox);
	char byte;

	if (mask & ORCH_SPEC_WITHOUT_OWN_UID)
		uid = 0;
	if (!targets_make(&targets, uid))
		give_up("targets", NULL);
	place_write(shared->text, sizeof(shared->text));
	if (!mask) {
		parse("", shared->as_root);
		try_outside(shared->text, geteuid() == 0 ? uid : (uid_t)-1, NULL, shared->as_user);
		if (request >= 0 && (write(request, "x", 1) != 1 || read(answer, &byte, 1) != 1))
			give_up("root's controls", NULL);
	}
	try_inside(sandbox, shared->text, names_of(mask));
	if (mask)
		judge_without(who, mask, root);
	else
		judge(who, request >= 0);
	orch_sandbox_unref(sandbox);
	if (!mask && leave_out) {
		shared->wrong += amounts_judge_without(ctx, who);
	} else if (!mask) {
		unsigned counted = 0;
		shared->wrong += amounts_judge(ctx, who, table, &counted);
		shared->observations += counted;
		shared->refused += counted;
		shared->controls += counted;
	}
	targets_end(&targets);
}

static void run_identity(const char *who, bool root, int request, int answer)
{
	uint64_t sets[64];
	size_t count = shared_sets(sets, COUNT(sets));

	if (!leaks_make())
		give_up("leaks", NULL);
	session_key();
	orch_ctx *ctx = ctx_new();

	observe(ctx, who, 0, root, request, answer);
	for (size_t i = 0; leave_out && i < COUNT(protections); i++)
		if (root || protections[i].bit != ORCH_SPEC_WITHOUT_OWN_UID)
			observe(ctx, who, protections[i].bit, root, -1, -1);
	for (size_t i = 0; leave_out && i < count; i++)
		if (root || !(sets[i] & ORCH_SPEC_WITHOUT_OWN_UID))
			observe(ctx, who, sets[i], root, -1, -1);
	orch_ctx_unref(ctx);
}

static void identity(bool as_user)
{
	int request[2] = {-1, -1}, answer[2] = {-1, -1}, status = 1;
	bool root = geteuid() == 0;
	pid_t server = -1;

	fflush(stdout);
	if (root && (pipe2(request, O_CLOEXEC) < 0 || pipe2(answer, O_CLOEXEC) < 0))
		give_up("pipe", NULL);
	if (root && (server = fork()) == 0) {
		close(request[1]);
		root_serves(request[0], answer[1]);
		_exit(0);
	}
	pid_t child = fork();

	if (child == 0) {
		if (as_user && root)
			become_user();
		run_identity(as_user || !root ? "user" : "root", root && !as_user, request[1], answer[0]);
		fflush(stdout);
		_exit(0);
	}
	if (root)
		close(request[0]), close(request[1]), close(answer[0]), close(answer[1]);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		shared->wrong++;
	if (server > 0)
		waitpid(server, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *build = getenv("ORCH_BUILD_ROOT");
	char path[512];

	for (int i = 1; i < argc; i++) {
		table = table || strcmp(argv[i], "--table") == 0;
		leave_out = leave_out || strcmp(argv[i], "--without") == 0;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!build || shared == MAP_FAILED || row_count > ROWS_MAX) {
		fprintf(stderr, "ORCH_BUILD_ROOT is not set: run this by `meson test`\n");
		return 1;
	}
	snprintf(path, sizeof(path), "%s/tests/matrix/matrix-attempt", build);
	if (!base_make(path))
		give_up(path, NULL);
	snprintf(path, sizeof(path), "%s/lib/helper/orch-reaper%s", build, leave_out ? "-test" : "");
	snprintf(reaper_path, sizeof(reaper_path), "%s/orch-reaper", place.base);
	if (!copy_program(path, reaper_path))
		give_up(path, NULL);
	identity(false);
	if (geteuid() == 0 && !getenv("ORCH_TEST_ONCE"))
		identity(true);
	base_remove();
	printf("%u observations: %u allowed, %u refused, %u controls\n", shared->observations, shared->allowed,
	       shared->refused, shared->controls);
	return shared->wrong ? 1 : 0;
}
