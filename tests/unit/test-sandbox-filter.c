/* SPDX-License-Identifier: Apache-2.0 */
/* The seccomp program by what it answers: it is run here, instruction by instruction, for each case. */
#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "../../lib/sandbox/linux/seccomp.h"

static const struct sock_filter *program;
static size_t length;

static void load(void)
{
	const void *bytes = NULL;
	size_t size = 0;

	ck_assert_int_eq(orch_sandbox_filter(0, &bytes, &size, NULL), 0);
	program = bytes;
	length = size / sizeof(*program);
}

static uint32_t word(const struct seccomp_data *call, uint32_t offset)
{
	uint32_t value;

	ck_assert_uint_le(offset, sizeof(*call) - sizeof(value));
	memcpy(&value, (const char *)call + offset, sizeof(value));
	return value;
}

static bool jumps(const struct sock_filter *at, uint32_t a)
{
	switch (BPF_OP(at->code)) {
	case BPF_JEQ:
		return a == at->k;
	case BPF_JGT:
		return a > at->k;
	case BPF_JGE:
		return a >= at->k;
	case BPF_JSET:
		return a & at->k;
	default:
		ck_abort_msg("jump 0x%x", at->code);
		return false;
	}
}

/* What of classic BPF libseccomp makes: seccomp(2), "SECCOMP_SET_MODE_FILTER". */
static uint32_t run(const struct seccomp_data *call)
{
	uint32_t a = 0, memory[BPF_MEMWORDS] = {0};

	for (size_t i = 0; i < length; i++) {
		const struct sock_filter *at = &program[i];

		switch (BPF_CLASS(at->code)) {
		case BPF_LD:
			a = BPF_MODE(at->code) == BPF_ABS ? word(call, at->k) : memory[at->k];
			break;
		case BPF_ST:
			memory[at->k] = a;
			break;
		case BPF_ALU:
			ck_assert_uint_eq(at->code, BPF_ALU | BPF_AND | BPF_K);
			a &= at->k;
			break;
		case BPF_JMP:
			i += BPF_OP(at->code) == BPF_JA ? at->k : jumps(at, a) ? at->jt : at->jf;
			break;
		case BPF_RET:
			return at->k;
		default:
			ck_abort_msg("instruction 0x%x", at->code);
		}
	}
	ck_abort_msg("the program has no end");
	return 0;
}

static uint32_t answer(int number, uint64_t a, uint64_t b, uint64_t c)
{
	return run(&(struct seccomp_data){.nr = number, .arch = seccomp_arch_native(), .args = {a, b, c}});
}

#define DENIED(error) (SECCOMP_RET_ERRNO | (error))

START_TEST(families)
{
	load();
	for (uint64_t family = 0; family < 300; family++)
		for (uint64_t high = 0; high < 2; high++) {
			bool stays = family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
				     family == AF_NETLINK;
			uint32_t got = answer(SYS_socket, family | high << 32, SOCK_STREAM, 0);

			/* The kernel looks at 32 bits; what has more may be denied, and is never allowed. */
			if (high == 0 || !stays)
				ck_assert_msg(got == (stays ? SECCOMP_RET_ALLOW : DENIED(EAFNOSUPPORT)), "%lu: 0x%x",
					      (unsigned long)family, got);
		}
	ck_assert_uint_eq(answer(SYS_socket, AF_NETLINK, SOCK_RAW, 15), DENIED(EAFNOSUPPORT));
}
END_TEST

START_TEST(calls_of_the_future)
{
	load();
	for (int number = 471; number < 700; number++)
		ck_assert_msg(answer(number, 0, 0, 0) == (number <= 560 ? DENIED(ENOSYS) : SECCOMP_RET_ALLOW), "%d",
			      number);
	/* The last that was read: listns, which has a rule of its own; and one that has none. */
	ck_assert_uint_eq(answer(470, 0, 0, 0), DENIED(ENOSYS));
	ck_assert_uint_eq(answer(462, 0, 0, 0), SECCOMP_RET_ALLOW);
	ck_assert_uint_eq(answer(SYS_clone3, 0, 0, 0), DENIED(ENOSYS));
	ck_assert_uint_eq(answer(SYS_read, 0, 0, 0), SECCOMP_RET_ALLOW);
	ck_assert_uint_eq(answer(SYS_clone, CLONE_NEWUSER, 0, 0), DENIED(EPERM));
	ck_assert_uint_eq(answer(SYS_clone, SIGCHLD, 0, 0), SECCOMP_RET_ALLOW);
	ck_assert_uint_eq(answer(SYS_mount, 0, 0, 0), DENIED(EPERM));
	/* Of another architecture: also what is allowed of this one. */
	ck_assert_uint_eq(run(&(struct seccomp_data){.nr = SYS_read, .arch = 0x1234}), DENIED(ENOSYS));
	ck_assert_uint_eq(run(&(struct seccomp_data){.nr = 500, .arch = 0x1234}), DENIED(ENOSYS));
#ifdef __x86_64__
	ck_assert_uint_ne(answer(SYS_read | 0x40000000, 0, 0, 0), SECCOMP_RET_ALLOW);
	ck_assert_uint_ne(answer(500 | 0x40000000, 0, 0, 0), SECCOMP_RET_ALLOW);
#endif
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sandbox filter");
	TCase *tests = tcase_create("answers");

	tcase_add_test(tests, families);
	tcase_add_test(tests, calls_of_the_future);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	return failed ? 1 : 0;
}
