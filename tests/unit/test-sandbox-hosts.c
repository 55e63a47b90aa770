/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each protection at each of its levels, on hosts that have it and on hosts that lack it: what starts, what is refused and
 * in which words, and what the report says of the rest. The hosts are this one with something taken away.
 */
#define FIXTURE_HELPER "orch-reaper-test"
#include "sandbox-hosts.h"

#include "sandbox/sandbox-private.h"

#define REQUIRED ORCH_PROTECT_REQUIRED
#define DEGRADABLE ORCH_PROTECT_DEGRADABLE
#define OFF ORCH_PROTECT_OFF

/* Bits of what a host lacks. */
#define WHOLE 0u
#define NO_USERNS 1u	 /* sysctl user.max_user_namespaces is 0 */
#define NO_NAMESPACES 2u /* a container's filter */
#define NO_LANDLOCK 4u
#define NO_SECCOMP 8u
#define NO_CGROUPS 16u

static void become_on(int identity, uint32_t lacks)
{
	bool root = geteuid() == 0;

	if (lacks & NO_CGROUPS && root)
		host_without_cgroups();
	become(identity);
	if (lacks & NO_USERNS) {
		enter_outer_userns(root && identity == 0 ? 100000 : getuid(), root && identity == 0 ? 65536 : 1);
		forbid_user_namespaces();
	}
	if (lacks & NO_NAMESPACES)
		host_without_namespaces();
	if (lacks & NO_LANDLOCK)
		host_without(SCMP_SYS(landlock_create_ruleset));
	if (lacks & NO_SECCOMP)
		host_without(SCMP_SYS(seccomp));
}

/* --- what starts, and what does not --------------------------------------------------------- */

enum expected { STANDS, BARE, REFUSAL };

static const struct attempt {
	uint32_t lacks, landlock_abi;
	const char *protection; /* at `level`; the others are as they are by default, but for `namespaces` */
	uint32_t level, namespaces;
	enum expected expected;
	const char *words; /* of the refusal: what, why, or what to do */
} attempts[] = {
	{WHOLE, 0, "namespaces", REQUIRED, 0, STANDS, ""},
	{WHOLE, 0, "namespaces", DEGRADABLE, 0, STANDS, ""},
	{WHOLE, 0, "namespaces", OFF, 0, BARE, ""},
	{NO_USERNS, 0, "namespaces", REQUIRED, 0, REFUSAL, "sysctl user.max_user_namespaces is 0: raise it"},
	{NO_USERNS, 0, "namespaces", DEGRADABLE, 0, BARE, ""},
	{NO_USERNS, 0, "namespaces", OFF, 0, BARE, ""},
	{NO_NAMESPACES, 0, "namespaces", REQUIRED, 0, REFUSAL, "namespace"},
	{NO_NAMESPACES, 0, "namespaces", DEGRADABLE, 0, BARE, ""},
	{NO_NAMESPACES, 0, "namespaces", OFF, 0, BARE, ""},
	/* One layer at a time. */
	{WHOLE, 0, "landlock", REQUIRED, 0, STANDS, ""},
	{WHOLE, 0, "landlock", DEGRADABLE, 0, STANDS, ""},
	{WHOLE, 0, "landlock", OFF, 0, STANDS, ""},
	{NO_LANDLOCK, 0, "landlock", REQUIRED, 0, REFUSAL, "protection landlock can not be enforced: boot a kernel"},
	{NO_LANDLOCK, 0, "landlock", DEGRADABLE, 0, STANDS, ""},
	{NO_LANDLOCK, 0, "landlock", OFF, 0, STANDS, ""},
	{WHOLE, 0, "seccomp", REQUIRED, 0, STANDS, ""},
	{WHOLE, 0, "seccomp", DEGRADABLE, 0, STANDS, ""},
	{WHOLE, 0, "seccomp", OFF, 0, STANDS, ""},
	{NO_SECCOMP, 0, "seccomp", REQUIRED, 0, REFUSAL, "protection seccomp can not be enforced: use a kernel"},
	{NO_SECCOMP, 0, "seccomp", DEGRADABLE, 0, STANDS, ""},
	{NO_SECCOMP, 0, "seccomp", OFF, 0, STANDS, ""},
	/* Without namespaces both others have to be there, whatever their level. */
	{NO_NAMESPACES, 0, "landlock", OFF, DEGRADABLE, BARE, ""},
	{NO_NAMESPACES, 0, "seccomp", OFF, DEGRADABLE, BARE, ""},
	{NO_NAMESPACES | NO_LANDLOCK, 0, "landlock", REQUIRED, DEGRADABLE, REFUSAL, "protection landlock"},
	{NO_NAMESPACES | NO_LANDLOCK, 0, "landlock", DEGRADABLE, DEGRADABLE, REFUSAL, "whatever its level"},
	{NO_NAMESPACES | NO_LANDLOCK, 0, "landlock", OFF, DEGRADABLE, REFUSAL, "whatever its level"},
	{NO_LANDLOCK, 0, "landlock", OFF, OFF, REFUSAL, "whatever its level"},
	{NO_NAMESPACES | NO_SECCOMP, 0, "seccomp", DEGRADABLE, DEGRADABLE, REFUSAL, "protection seccomp"},
	{NO_NAMESPACES | NO_SECCOMP, 0, "seccomp", OFF, DEGRADABLE, REFUSAL, "protection seccomp"},
	{NO_SECCOMP, 0, "seccomp", OFF, OFF, REFUSAL, "protection seccomp"},
	/* An older Landlock: seccomp or the mounts stand for what it lacks. */
	{WHOLE, 1, "landlock", REQUIRED, 0, STANDS, ""},
	{WHOLE, 2, "landlock", REQUIRED, 0, STANDS, ""},
	{WHOLE, 4, "landlock", REQUIRED, 0, STANDS, ""},
	{NO_NAMESPACES, 1, "landlock", REQUIRED, DEGRADABLE, BARE, ""},
	{NO_NAMESPACES, 2, "landlock", REQUIRED, DEGRADABLE, BARE, ""},
	{NO_NAMESPACES, 4, "landlock", REQUIRED, DEGRADABLE, BARE, ""},
	/* Nothing to count in. */
	{NO_CGROUPS, 0, "namespaces", REQUIRED, 0, STANDS, ""},
	{NO_CGROUPS, 0, "namespaces", OFF, 0, BARE, ""},
	{NO_CGROUPS, 0, "memory", REQUIRED, 0, REFUSAL, "protection memory can not be enforced"},
	{NO_CGROUPS, 0, "memory", DEGRADABLE, 0, STANDS, ""},
	{NO_CGROUPS, 0, "memory", OFF, 0, STANDS, ""},
};
#define ATTEMPTS (int)(sizeof(attempts) / sizeof(attempts[0]))

START_TEST(each_level_on_each_host)
{
	const struct attempt *try = &attempts[_i % ATTEMPTS];
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;
	orch_error *error = NULL;

	become_on(_i / ATTEMPTS, try->lacks);
	orch_ctx *ctx = ctx_new();
	char *outside = new_folder();

	put(in(outside, "secret"), "secret");
	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_memory_mib = 64;
	OK(orch_sandbox_new(ctx, &opts, &sandbox, e));
	sandbox->landlock_abi = try->landlock_abi;
	if (try->namespaces)
		OK(orch_sandbox_set_protection(sandbox, "namespaces", try->namespaces, e));
	OK(orch_sandbox_set_protection(sandbox, try->protection, try->level, e));
	int32_t code = orch_sandbox_start_wait(sandbox, 10000, &error);

	if (try->expected == REFUSAL) {
		ck_assert_msg(code == ORCH_EUNENFORCEABLE && strstr(orch_error_message(error), try->words), "%s: %s",
			      orch_code_name(code), orch_error_message(error));
		orch_error_free(error);
		orch_sandbox_unref(sandbox);
	} else {
		ck_assert_msg(code == 0, "%s: %s", orch_code_name(code), orch_error_message(error));
		uint32_t rung = orch_scope_rung(orch_sandbox_scope(sandbox));

		ck_assert_msg((rung < ORCH_RUNG_PIDNS) == (try->expected == BARE), "rung %u", rung);
		/* It is a sandbox: a program runs, and does not see what nobody gave it. */
		struct outcome outcome = run_to(sandbox, ARGV("/bin/cat", in(outside, "secret")), NULL,
						try->expected == BARE ? ORCH_DEATH_UNVERIFIABLE : ORCH_DEATH_DEAD);

		ck_assert_msg(outcome.status == 1 && !outcome.out[0], "%d %s", outcome.status, outcome.out);
	}
	orch_ctx_unref(ctx);
}
END_TEST

/* What is required of a host that has it: memory, for whom it is to be had. */
START_TEST(memory_is_had_or_refused)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;
	orch_sandbox *degradable = NULL, *required = NULL;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_memory_mib = 64;
	OK(orch_sandbox_new(ctx, &opts, &degradable, e));
	OK(orch_sandbox_new(ctx, &opts, &required, e));
	OK(orch_sandbox_start_wait(degradable, 60000, e));
	OK(orch_sandbox_set_protection(required, "memory", REQUIRED, e));
	if (degradable->memory_mechanism)
		OK(orch_sandbox_start_wait(required, 60000, e));
	else
		REFUSED(ORCH_EUNENFORCEABLE, "protection memory", orch_sandbox_start_wait(required, 60000, e));
	orch_sandbox_unref(degradable);
	orch_sandbox_unref(required);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- what the report says ------------------------------------------------------------------- */

#define ENFORCED ORCH_CHANNEL_ENFORCED
#define PARTIAL ORCH_CHANNEL_PARTIAL
#define ABSENT ORCH_CHANNEL_ABSENT

static const struct said {
	uint32_t lacks;
	const char *channel;
	uint32_t root, user; /* states; 0: it depends on the kernel */
	const char *remedy;
} said[] = {
	{WHOLE, "file.stat", ENFORCED, ENFORCED, ""},
	{WHOLE, "file.metadata", ENFORCED, ENFORCED, ""},
	{WHOLE, "capabilities", ENFORCED, ENFORCED, ""},
	{NO_LANDLOCK, "landlock", ABSENT, ABSENT, "CONFIG_SECURITY_LANDLOCK"},
	{NO_LANDLOCK, "file.read", ENFORCED, ENFORCED, ""},
	{NO_SECCOMP, "keyring", ABSENT, ABSENT, "CONFIG_SECCOMP_FILTER"},
	{NO_SECCOMP, "file.read", ENFORCED, ENFORCED, ""},
	{NO_CGROUPS, "memory", ABSENT, ABSENT, "delegated"},
	{NO_CGROUPS, "file.read", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "file.read", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "file.write", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "file.link", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "file.stat", PARTIAL, PARTIAL, "no namespaces here"},
	{NO_NAMESPACES, "file.metadata", ENFORCED, ABSENT, "no namespaces here"},
	{NO_NAMESPACES, "path.escape", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "unix.path", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "unix.abstract", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "tcp.loopback", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "net.outside", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "net.interfaces", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "vsock", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "process.signal", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "process.list", PARTIAL, PARTIAL, "no namespaces here"},
	{NO_NAMESPACES, "env", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "fd.inherited", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "keyring", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "sysv.ipc", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "tty.inject", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "userns.nested", PARTIAL, PARTIAL, "did not work outside"},
	{NO_NAMESPACES, "proc.sys.write", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "landlock", ENFORCED, ENFORCED, ""},
	{NO_NAMESPACES, "capabilities", ENFORCED, PARTIAL, "no namespaces here"},
	{NO_USERNS, "file.stat", PARTIAL, PARTIAL, "user.max_user_namespaces is 0: raise it"},
	{NO_USERNS, "process.list", PARTIAL, PARTIAL, "user.max_user_namespaces is 0: raise it"},
	{NO_USERNS, "file.read", ENFORCED, ENFORCED, ""},
};

static const uint32_t hosts[] = {WHOLE, NO_USERNS, NO_NAMESPACES, NO_LANDLOCK, NO_SECCOMP, NO_CGROUPS};
#define HOSTS (int)(sizeof(hosts) / sizeof(hosts[0]))

static uint32_t row_of(const orch_sandbox_report *report, const char *channel, uint32_t *ret_index)
{
	uint32_t state = 0;
	const char *name = "";

	for (*ret_index = 0; *ret_index < orch_sandbox_report_count(report); ++*ret_index) {
		orch_sandbox_report_row(report, *ret_index, &name, &state, NULL, NULL, NULL, NULL);
		if (strcmp(name, channel) == 0)
			return state;
	}
	ck_abort_msg("no channel %s", channel);
}

START_TEST(reports)
{
	uint32_t lacks = hosts[_i % HOSTS], index = 0, state = 0;
	bool root = geteuid() == 0 && _i < HOSTS;
	orch_sandbox_report *report = NULL;

	become_on(_i / HOSTS, lacks);
	orch_ctx *ctx = ctx_new();

	OK(orch_sandbox_report_run(ctx, NULL, 0, &report, e));
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		if (said[i].lacks != lacks)
			continue;
		state = row_of(report, said[i].channel, &index);
		ck_assert_msg(state == (root ? said[i].root : said[i].user), "%s\n%.3600s", said[i].channel,
			      orch_sandbox_report_text(report));
		if (state != ENFORCED)
			ck_assert_msg(strstr(orch_sandbox_report_remedy(report, index), said[i].remedy), "%s: %s",
				      said[i].channel, orch_sandbox_report_remedy(report, index));
	}
	/* Whatever is not enforced has a cause and a remedy, which are in the table too. */
	for (uint32_t i = 0; i < orch_sandbox_report_count(report); i++) {
		const char *remedy = orch_sandbox_report_remedy(report, i);

		orch_sandbox_report_row(report, i, NULL, &state, NULL, NULL, NULL, NULL);
		ck_assert_msg(state == ENFORCED ? !remedy : remedy && *remedy &&
			      strstr(orch_sandbox_report_text(report), remedy), "%.3600s", orch_sandbox_report_text(report));
	}
	ck_assert_ptr_null(orch_sandbox_report_remedy(report, orch_sandbox_report_count(report)));
	ck_assert_ptr_null(orch_sandbox_report_remedy(NULL, 0));
	orch_sandbox_report_unref(report);
	orch_ctx_unref(ctx);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("sandbox-hosts");
	TCase *tcase = tcase_create("hosts");

	(void)argc;
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, each_level_on_each_host, 0, identities() * ATTEMPTS);
	tcase_add_loop_test(tcase, memory_is_had_or_refused, 0, identities());
	tcase_add_loop_test(tcase, reports, 0, identities() * HOSTS);
	suite_add_tcase(suite, tcase);
	return fixture_main(argv, suite);
}
