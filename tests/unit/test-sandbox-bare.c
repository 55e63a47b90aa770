/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rung without namespaces: what is tried against it, each with the same attempt outside as positive control, on the
 * kernel's Landlock and on older ones (a test build of orch-reaper takes them); what a normal program needs and has; and
 * what is refused because only namespaces could give it.
 */
#include <linux/capability.h>
#include <linux/landlock.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "sandbox/sandbox-private.h"

#define FIXTURE_HELPER "orch-reaper-test"
#include "sandbox-attacks.h"
#include "sandbox-fixture.h"

/* --- attempts of its own: as in sandbox-attacks.h ------------------------------------------- */

static int attack_pair(void)
{
	int ends[2];

	return denied_if(socketpair(AF_UNIX, atoi(argument[0]), 0, ends) < 0);
}

/* A pair of packet sockets, of which one end sends to where somebody else listens. */
static int attack_send(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0)
		return 2;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", argument[0]);
	return denied_if(connect(ends[0], (struct sockaddr *)&address, sizeof(address)) < 0);
}

static int attack_shm(void)
{
	int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);

	if (id >= 0)
		shmctl(id, IPC_RMID, NULL);
	return denied_if(id < 0);
}

static int attack_msg(void)
{
	int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);

	if (id >= 0)
		msgctl(id, IPC_RMID, NULL);
	return denied_if(id < 0);
}

static int attack_mq(void)
{
	mqd_t queue = mq_open(argument[0], O_CREAT | O_RDWR, 0600, NULL);

	if (queue != (mqd_t)-1)
		mq_unlink(argument[0]);
	return denied_if(queue == (mqd_t)-1);
}

static int attack_truncate(void)
{
	return denied_if(truncate(argument[0], 3) < 0);
}

static int attack_list(void)
{
	int fd = open(argument[0], O_RDONLY | O_DIRECTORY);

	return denied_if(fd < 0);
}

static int attack_rename(void)
{
	int result = denied_if(rename(argument[0], argument[1]) < 0);

	if (result == 0)
		rename(argument[1], argument[0]);
	return result;
}

static int attack_priority(void)
{
	return denied_if(setpriority(PRIO_PROCESS, (id_t)atoi(argument[0]), 5) < 0);
}

/* All that the user runs. Nothing changes: it is 0. */
static int attack_priorities(void)
{
	return denied_if(setpriority(PRIO_USER, 0, getpriority(PRIO_PROCESS, 0)) < 0);
}

static int attack_affinity(void)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	return denied_if(sched_setaffinity(atoi(argument[0]), sizeof(set), &set) < 0);
}

static int attack_limit_of(void)
{
	struct rlimit limit;
	pid_t pid = atoi(argument[0]);

	getrlimit(RLIMIT_CORE, &limit);
	return denied_if(prlimit(pid, RLIMIT_CORE, NULL, &limit) < 0 || prlimit(pid, RLIMIT_CORE, &limit, NULL) < 0);
}

/* A signal by way of a descriptor's owner: SIGUSR1's default would end the process. */
static int attack_owner(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
		return 2;
	return denied_if(fcntl(ends[0], F_SETSIG, SIGCONT) < 0 || fcntl(ends[0], F_SETOWN, atoi(argument[0])) < 0);
}

static int attack_group(void)
{
	signal(SIGUSR1, SIG_IGN);
	return denied_if(kill(0, SIGUSR1) < 0);
}

/* What a program has: no capability in any set that it could use, and no way to more. */
static int attack_privileges(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];

	syscall(SYS_capget, &header, sets);
	bool none = !(sets[0].effective | sets[0].permitted | sets[0].inheritable | sets[1].effective |
		      sets[1].permitted | sets[1].inheritable);

	printf("%u %u %d %d %d\n", getuid(), getgid(), none, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
	       prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} own_attacks[] = {
	{"pair", attack_pair},	     {"send", attack_send},	    {"shm", attack_shm},
	{"msg", attack_msg},	     {"mq", attack_mq},		    {"truncate", attack_truncate},
	{"rename", attack_rename},   {"priority", attack_priority}, {"priorities", attack_priorities},
	{"affinity", attack_affinity}, {"limit-of", attack_limit_of}, {"owner", attack_owner},
	{"group", attack_group},     {"list", attack_list},     {"privileges", attack_privileges},
};

static int own_main(char **argv)
{
	argument = argv + 3;
	for (size_t i = 0; i < sizeof(own_attacks) / sizeof(own_attacks[0]); i++)
		if (strcmp(own_attacks[i].name, argv[2]) == 0) {
			int result = own_attacks[i].run();

			fflush(stdout);
			return result;
		}
	return attack_main(argv);
}

/* --- sandboxes ------------------------------------------------------------------------------ */

/* Without namespaces, on a Landlock of `abi` (0: the kernel's); `work` (may be NULL) is the workspace. */
static orch_sandbox *bare_new(orch_ctx *ctx, uint32_t abi, const char *work, const struct orch_sandbox_opts *opts)
{
	orch_sandbox *sandbox = NULL;

	OK(orch_sandbox_new(ctx, opts, &sandbox, e));
	OK(orch_sandbox_add_path(sandbox, self_path, NULL, ORCH_PATH_READ | ORCH_PATH_EXEC, e));
	if (work)
		OK(orch_sandbox_set_workspace(sandbox, work, work, e));
	OK(orch_sandbox_set_protection(sandbox, "namespaces", ORCH_PROTECT_OFF, e));
	sandbox->landlock_abi = abi;
	return sandbox;
}

/* By descent alone nothing is proved. */
static struct outcome run_bare(orch_sandbox *sandbox, const char *const *argv)
{
	return run_to(sandbox, argv, NULL, ORCH_DEATH_UNVERIFIABLE);
}

static const uint32_t abis[] = {0, 5, 2, 1};
#define ABIS 4

/* _i: identities * ABIS */
static uint32_t become_on(int index)
{
	become(index / ABIS);
	return abis[index % ABIS];
}

/* Denied inside with `error` ("": any); succeeds outside. */
static void denied_inside(orch_sandbox *sandbox, const char *error, const char *a, const char *b, const char *c,
			  const char *d)
{
	const char *argv[] = {self_path, "--attack", a, b, c, d, NULL};
	struct outcome outcome = run_bare(sandbox, argv);

	ck_assert_msg(outcome.status == 1 && strstr(outcome.out, error), "%s %s inside: %d %s%s", a, b ? b : "",
		      outcome.status, outcome.out, outcome.err);
	int control = run_outside(argv);

	ck_assert_msg(control == 0, "%s %s outside: %d", a, b ? b : "", control);
}

static void works_inside(orch_sandbox *sandbox, const char *script)
{
	struct outcome outcome = run_bare(sandbox, SH(script));

	ck_assert_msg(outcome.status == 0, "%s: %d %s%s", script, outcome.status, outcome.out, outcome.err);
}

/* --- what is closed ------------------------------------------------------------------------- */

START_TEST(files)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	char *outside = new_folder(), *shared = new_folder(), *work = new_folder();

	ck_assert(chmod(outside, 0755) == 0 && chmod(shared, 0777) == 0);
	put(in(outside, "secret"), "secret");
	put(in(shared, "file"), "shared");
	ck_assert(chmod(in(outside, "secret"), 0666) == 0 && chmod(in(shared, "file"), 0666) == 0);
#define SANDBOX                                                                                                        \
	({                                                                                                             \
		orch_sandbox *one_ = bare_new(ctx, abi, work, NULL);                                                   \
		OK(orch_sandbox_add_path(one_, shared, NULL, ORCH_PATH_READ, e));                                      \
		one_;                                                                                                  \
	})
	denied_inside(SANDBOX, "EACCES", "open", in(outside, "secret"), "0", NULL);
	denied_inside(SANDBOX, "EACCES", "open", in(outside, "secret"), "1", NULL);
	denied_inside(SANDBOX, "EACCES", "list", outside, NULL, NULL);
	denied_inside(SANDBOX, "EACCES", "open", "/proc/self/status", "0", NULL);
	denied_inside(SANDBOX, "", "truncate", in(outside, "secret"), NULL, NULL);
	put(in(outside, "secret"), "secret");
	/* What may be read only stays as it is: no write, no truncation by either call, no new name. */
	denied_inside(SANDBOX, "EACCES", "open", in(shared, "file"), "1", NULL);
	denied_inside(SANDBOX, "EACCES", "truncate", in(shared, "file"), NULL, NULL);
	put(in(shared, "file"), "shared");
	denied_inside(SANDBOX, "EACCES", "open", in(shared, "file"), "0x200", NULL); /* O_RDONLY | O_TRUNC */
	denied_inside(SANDBOX, "EACCES", "open", in(shared, "file"), "0x203", NULL);
	put(in(shared, "file"), "shared");
	denied_inside(SANDBOX, "", "rename", in(shared, "file"), in(shared, "name"), NULL);
	/* Controls of the other kind: the same inside where it is allowed. */
	put(in(work, "own"), "own");
	works_inside(SANDBOX, "cat $PWD/own && cat < own && echo more >> own && : > own && mv own other && rm other");
	ck_assert_str_eq(run_bare(SANDBOX, ARGV("/bin/cat", in(shared, "file"))).out, "shared");
	ck_assert(holds(in(shared, "file"), "shared") && holds(in(outside, "secret"), "secret"));
#undef SANDBOX
	orch_ctx_unref(ctx);
}
END_TEST

static int listen_at(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	ck_assert(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && chmod(path, 0666) == 0 &&
		  listen(fd, 8) == 0);
	return fd;
}

START_TEST(sockets)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	char *work = new_folder(), *service = new_folder();
	/* In the workspace itself, so that no rule of Landlock stands in the way. */
	int stream = listen_at(in(work, "bus"), SOCK_STREAM);

	ck_assert(chmod(work, 0755) == 0 && chmod(service, 0755) == 0);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EACCES", "socket", "1", "1", "0");
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EACCES", "socket", "2", "1", "0");
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EACCES", "socket", "10", "2", "0");
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EACCES", "socket", "16", "3", "0");
	denied_inside(bare_new(ctx, abi, work, NULL), "", "connect", in(work, "bus"), NULL, NULL);
	/* Pairs of datagrams could be sent from to any path; SOCK_RAW (3) is another name of them. */
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EACCES", "pair", "2", NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EACCES", "pair", "3", NULL, NULL);
	ck_assert_int_eq(run_bare(bare_new(ctx, abi, NULL, NULL), ARGV(self_path, "--attack", "pair", "1")).status, 0);
	ck_assert_int_eq(run_bare(bare_new(ctx, abi, NULL, NULL), ARGV(self_path, "--attack", "pair", "5")).status, 0);
	struct outcome outcome = run_bare(bare_new(ctx, abi, work, NULL),
					  ARGV(self_path, "--attack", "send", in(work, "bus")));

	ck_assert_msg(outcome.status == 1 && strstr(outcome.out, "EACCES"), "%d %s", outcome.status, outcome.out);
	close(stream);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(ipc_and_kernel)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	char name[40];

	snprintf(name, sizeof(name), "/orch-bare-%d", (int)getpid());
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "shm", NULL, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "msg", NULL, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "mq", name, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "unshare", "0x10000000", NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "ENOSYS", "clone3", NULL, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "fsopen", NULL, NULL, NULL);
	orch_ctx_unref(ctx);
}
END_TEST

/* The host application itself, which as an ordinary user has the load's uid. */
START_TEST(processes_of_others)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	char self[16], path[40];

	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	snprintf(self, sizeof(self), "%d", (int)getpid());
	snprintf(path, sizeof(path), "/proc/%s/environ", self);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "kill", self, "0", NULL);
	/* Where neither the uid nor Landlock keeps the signal from its receiver, no receiver can be named. */
	if (geteuid() != 0 && abi != 0)
		denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "owner", self, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "priority", self, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "priorities", NULL, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "affinity", self, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "limit-of", self, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EPERM", "trace", self, NULL, NULL);
	denied_inside(bare_new(ctx, abi, NULL, NULL), "EACCES", "open", path, "0", NULL);
	/* The own group can be signalled on every host. */
	ck_assert_int_eq(run_bare(bare_new(ctx, abi, NULL, NULL), ARGV(self_path, "--attack", "group")).status, 0);
	orch_ctx_unref(ctx);
}
END_TEST

/* What there is of `abi` (0: all) on this kernel. */
static uint32_t landlock_of(uint32_t abi)
{
	long has = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	uint32_t kernel = has > 0 ? (uint32_t)has : 0;

	return abi && abi < kernel ? abi : kernel;
}

/* As an ordinary user on a Landlock before ABI 6 a job can not be ended by its number; else it can. */
START_TEST(own_processes)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	bool can = geteuid() == 0 || landlock_of(abi) >= 6;
	struct outcome outcome = run_bare(bare_new(ctx, abi, NULL, NULL), SH("sleep 1 & kill $! && ! wait $!"));

	ck_assert_msg((outcome.status == 0) == can, "%d %s", outcome.status, outcome.err);
	orch_ctx_unref(ctx);
}
END_TEST

/* The supervisor, which sees all of the host, is not the load's. */
START_TEST(supervisor_is_out_of_reach)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = bare_new(ctx, abi, NULL, NULL);
	struct outcome outcome = run_bare(
		sandbox, SH("kill -9 $PPID; kill -STOP $PPID; kill -TERM $PPID; echo lives"));

	ck_assert_str_eq(outcome.out, "lives\n");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(privileges)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	char expected[64];
	orch_sandbox *sandbox = bare_new(ctx, abi, NULL, NULL);

	snprintf(expected, sizeof(expected), "%u %u 1 1 2\n", orch_sandbox_host_uid(sandbox),
		 geteuid() == 0 ? orch_sandbox_host_uid(sandbox) : getegid());
	ck_assert(geteuid() != 0 || orch_sandbox_host_uid(sandbox) != 0);
	ck_assert_str_eq(run_bare(sandbox, ARGV(self_path, "--attack", "privileges")).out, expected);
	orch_ctx_unref(ctx);
}
END_TEST

/* Ten thousand forks are not made here: the attempt ends at its own limit. */
START_TEST(limits)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;
	char *work = new_folder();

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_processes = 20;
	opts.max_open_files = 50;
	opts.max_file_mib = 3;
	struct outcome outcome =
		run_bare(bare_new(ctx, 0, NULL, &opts), ARGV(self_path, "--attack", "forks", "200"));
	int forks = atoi(outcome.out);

	/* An ordinary user's other processes come and go. */
	ck_assert_msg(outcome.status == 1 && (geteuid() == 0 ? forks == 19 : forks < 200), "%s", outcome.out);
	outcome = run_bare(bare_new(ctx, 0, NULL, &opts), ARGV(self_path, "--attack", "descriptors", "100"));
	ck_assert_msg(outcome.status == 1 && atoi(outcome.out) == 47, "%s", outcome.out);
	outcome = run_bare(bare_new(ctx, 0, work, &opts), ARGV(self_path, "--attack", "file", in(work, "big"), "6"));
	ck_assert_msg(outcome.status == 1 && atoi(outcome.out) == 3, "%s", outcome.out);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(descriptors_of_the_host)
{
	become(_i);
	int fd = open("/", O_RDONLY | O_DIRECTORY);
	orch_ctx *ctx = ctx_new();
	struct outcome outcome = run_bare(bare_new(ctx, 0, NULL, NULL), ARGV(self_path, "--attack", "fds"));

	ck_assert_msg(fd >= 0 && outcome.status == 1, "%s", outcome.out);
	ck_assert_int_eq(run_outside(ARGV(self_path, "--attack", "fds")), 0);
	close(fd);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- what is open --------------------------------------------------------------------------- */

START_TEST(a_build_works)
{
	uint32_t abi = become_on(_i);
	orch_ctx *ctx = ctx_new();
	char *work = new_folder();

	works_inside(bare_new(ctx, abi, work, NULL),
		     "test $HOME = $PWD -a $TMPDIR = $PWD && t=$(mktemp) && rm $t && mkdir a && "
		     "printf 'int main(void) { return 7; }\n' > a/x.c && cc a/x.c -o a/x && mv a/x x; ./x; test $? = 7 && "
		     "echo one | cat | grep one > /dev/null && bash -c 'cat <(echo two)' > /dev/null && ! ls / /tmp /etc 2> /dev/null && rm -r a x");
	/* A given value stays. */
	orch_sandbox *sandbox = bare_new(ctx, abi, work, NULL);

	OK(orch_sandbox_set_env(sandbox, "TMPDIR", "/else", e));
	ck_assert_str_eq(run_bare(sandbox, SH("echo $TMPDIR")).out, "/else\n");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(everything_ends)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *work = new_folder(), command[300];

	snprintf(command, sizeof(command), "cp /bin/sleep %s/bare-sleeper && (setsid %s/bare-sleeper 600 &) ; exit 4",
		 work, work);
	ck_assert_int_eq(run_bare(bare_new(ctx, 0, work, NULL), SH(command)).status, 4);
	snprintf(command, sizeof(command), "ps -eo args | grep -c '^%s/bare-[s]leeper'", work);
	ck_assert_uint_eq(count_lines(command), 0);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(workspace_is_handed_over)
{
	if (geteuid() != 0)
		return;
	orch_ctx *ctx = ctx_new();
	char *work = new_folder();
	struct stat st;

	put(in(work, "file"), "old");
	orch_sandbox *sandbox = bare_new(ctx, 0, work, NULL);
	uint32_t uid = orch_sandbox_host_uid(sandbox);

	works_inside(sandbox, "echo new > file && echo new > other");
	ck_assert(stat(in(work, "other"), &st) == 0 && st.st_uid == uid && holds(in(work, "file"), "new\n"));
	/* A folder on the way that the sandbox's uid may not enter is said, not worked around. */
	char *closed = new_folder();

	ck_assert(mkdir(in(closed, "work"), 0755) == 0 && chmod(closed, 0700) == 0);
	sandbox = bare_new(ctx, 0, in(closed, "work"), NULL);
	REFUSED(ORCH_EDENIED, "can not be reached by the sandbox's uid", orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- what only namespaces give -------------------------------------------------------------- */

static void refused(orch_sandbox *sandbox, int32_t code, const char *words)
{
	REFUSED(code, words, orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
}

START_TEST(refused_by_name)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *work = new_folder();
	struct orch_sandbox_opts opts;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.net = ORCH_NET_BROKER;
	refused(bare_new(ctx, 0, NULL, &opts), ORCH_EUNENFORCEABLE, "ORCH_NET_BROKER");
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.tmp_mib = 10;
	refused(bare_new(ctx, 0, NULL, &opts), ORCH_EUNENFORCEABLE, "tmp_mib");
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.least_rung = ORCH_RUNG_PIDNS;
	refused(bare_new(ctx, 0, NULL, &opts), ORCH_EINVAL, "least_rung");
	orch_sandbox *sandbox = bare_new(ctx, 0, NULL, NULL);

	OK(orch_sandbox_set_workspace(sandbox, work, NULL, e));
	refused(sandbox, ORCH_EUNENFORCEABLE, "can not be at /work");
	/* Landlock can not take back below what it gave above. */
	ck_assert_int_eq(mkdir(in(work, "kept"), 0755), 0);
	sandbox = bare_new(ctx, 0, work, NULL);
	OK(orch_sandbox_add_path(sandbox, in(work, "kept"), NULL, ORCH_PATH_READ, e));
	refused(sandbox, ORCH_EUNENFORCEABLE, "allows less than that for");
	sandbox = bare_new(ctx, 0, NULL, NULL);
	OK(orch_sandbox_set_overlay(sandbox, work, work, e));
	refused(sandbox, ORCH_EUNENFORCEABLE, "the overlay at");
	sandbox = bare_new(ctx, 0, work, NULL);
	OK(orch_sandbox_deny_path(sandbox, in(work, "kept"), e));
	refused(sandbox, ORCH_EUNENFORCEABLE, "can not be denied");
	sandbox = bare_new(ctx, 0, NULL, NULL);
	OK(orch_sandbox_add_path(sandbox, in(work, "missing"), NULL, ORCH_PATH_READ, e));
	refused(sandbox, ORCH_ENOENT, "missing");
	/* Nobody can listen in there. */
	sandbox = bare_new(ctx, 0, NULL, NULL);
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	ck_assert_uint_le(orch_scope_rung(orch_sandbox_scope(sandbox)), ORCH_RUNG_CGROUP);
	ck_assert_int_eq(orch_sandbox_connect(sandbox, 80, (orch_sandbox_connect_fn)abort, NULL, NULL, NULL),
			 ORCH_ENOTSUP);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

#define BOTH(test) tcase_add_loop_test(tcase, test, 0, identities())
#define ALL(test) tcase_add_loop_test(tcase, test, 0, identities() * ABIS)

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--attack") == 0)
		return own_main(argv);
	Suite *suite = suite_create("sandbox-bare");
	TCase *tcase = tcase_create("without namespaces");

	tcase_set_timeout(tcase, 120);
	ALL(files);
	ALL(sockets);
	ALL(ipc_and_kernel);
	ALL(processes_of_others);
	ALL(own_processes);
	ALL(supervisor_is_out_of_reach);
	ALL(privileges);
	BOTH(limits);
	BOTH(descriptors_of_the_host);
	ALL(a_build_works);
	BOTH(everything_ends);
	tcase_add_test(tcase, workspace_is_handed_over);
	BOTH(refused_by_name);
	suite_add_tcase(suite, tcase);
	return fixture_main(argv, suite);
}
