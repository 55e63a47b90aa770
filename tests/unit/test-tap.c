/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>

#include "pipeline/verify-private.h"

struct tap_case {
	const char *text;
	bool counts;
	uint32_t passed, failed;
};

static const struct tap_case tap_cases[] = {
    {"1..1\nok 1\n", true, 1, 0},
    {"1..1\nok\n", true, 1, 0},
    {"1..1\nok 1", true, 1, 0},
    {"1..2\r\nok 1 - a\r\nok 2 - b\r\n", true, 2, 0},
    {"ok 1\nok 2\n1..2\n", true, 2, 0},
    {"TAP version 13\n1..1\nok 1 - x\n  ---\n  got: 1\n  ...\n", true, 1, 0},
    {"1..2\nok 1\nnot ok 2 - b\n", true, 1, 1},
    {"1..2\n# a comment\nanything else\nok\nnot ok\n", true, 1, 1},
    {"1..1\n    not ok 1 - of a subtest\nok 1 - x\n", true, 1, 0},
    {"1..1\nok 1 - costs 3 # of them\n", true, 1, 0},
    {"1..1\nok 1 - the tag \\# skip\n", true, 1, 0},
    {"1..1\nok 1 - tag#skip\n", true, 1, 0},
    {"1..1\nok 1 # SKIP not here\n", true, 0, 1},
    {"1..1\nok 1 - x #skip\n", true, 0, 1},
    {"1..1\nok 1 # todo\n", true, 0, 1},
    {"1..1\nnot ok 1 # TODO later\n", true, 0, 1},
    {"1..1\nokay\nok 1\n", true, 1, 0},
    /* what does not count */
    {"", false, 0, 0},
    {"\n\n", false, 0, 0},
    {"ok 1\n", false, 1, 0},
    {"1..0\n", false, 0, 0},
    {"1..0 # SKIP all\n", false, 0, 0},
    {"1..2\nok 1\n", false, 1, 0},
    {"1..1\nok 1\nok 2\n", false, 2, 0},
    {"1..1\n1..1\nok 1\n", false, 0, 0},
    {"1..1\nok 1\n1..1\n", false, 1, 0},
    {"ok 1\n1..2\nok 2\n", false, 2, 0},
    {"1..2\nok 2\nok 1\n", false, 1, 0},
    {"1..2\nok 1\nok 1\n", false, 2, 0},
    {"1..2\nok 1\nok\n", false, 2, 0},
    {"1..1\nok 0\n", false, 0, 0},
    {"1..1\nok 01\n", false, 0, 0},
    {"1..01\nok 1\n", false, 0, 0},
    {"1..-1\nok 1\n", false, 0, 0},
    {"1..1x\nok 1\n", false, 0, 0},
    {"1..99999999999999999999\nok 1\n", false, 0, 0},
    {"1..1\nok 18446744073709551617\n", false, 0, 0},
    {"1..1\nok 1\nBail out! no disk\n", false, 1, 0},
    {"1..1\nok 1\nTAP version 13\n", false, 1, 0},
    {"TAP version 14\n1..1\nok 1\n", false, 0, 0},
    {" 1..1\n ok 1\n", false, 0, 0},
    /* a product's words among the check's: they only break it */
    {"got: x\n1..1\nok 1\n1..1\nnot ok 1\n", false, 1, 0},
    {"1..2\nok 1\nok 2 - of the product\nnot ok 2\n", false, 2, 1},
};

START_TEST(tap_is_counted_strictly)
{
	const struct tap_case *tap = &tap_cases[_i];
	uint32_t passed = 77, failed = 77;
	const char *reason = tap_count(tap->text, strlen(tap->text), &passed, &failed);
	ck_assert_msg((reason == NULL) == tap->counts, "\"%s\": %s", tap->text,
		      reason ? reason : "counts");
	ck_assert_uint_eq(passed, tap->passed);
	ck_assert_uint_eq(failed, tap->failed);
}
END_TEST

START_TEST(tap_with_nul_bytes_is_read_to_its_end)
{
	static const char text[] = "1..1\n\0junk\nok 1\nok 2\n";
	uint32_t passed, failed;
	ck_assert_ptr_nonnull(tap_count(text, sizeof(text) - 1, &passed, &failed));
	ck_assert_uint_eq(passed, 2);
}
END_TEST

START_TEST(tap_failures_are_bounded_and_clean)
{
	static const char text[] =
	    "1..4\nok 1\n# fine\nnot ok 2 - b\n# expected \x1b[31m\n  more\nother\n# stray\n"
	    "ok 3 # SKIP\nnot ok 4\n";
	struct orch_buf buf = {0};
	tap_failures(text, sizeof(text) - 1, 2048, &buf);
	ck_assert_str_eq(
	    buf.data,
	    "not ok 2 - b\n# expected \xef\xbf\xbd[31m\n  more\n# stray\nok 3 # SKIP\nnot ok 4\n");
	orch_buf_free(&buf);

	_cleanup_buf_ struct orch_buf many = {0};
	orch_buf_puts(&many, "1..20000\n");
	for (int i = 1; i <= 20000; i++)
		orch_buf_printf(&many, "not ok %d\n", i);
	tap_failures(many.data, many.length, 500, &buf);
	ck_assert_uint_lt(buf.length, 600);
	ck_assert_ptr_nonnull(strstr(buf.data, "not ok 1\n"));
	orch_buf_free(&buf);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tap");
	TCase *tcase = tcase_create("tap");
	tcase_add_loop_test(tcase, tap_is_counted_strictly, 0,
			    sizeof(tap_cases) / sizeof(tap_cases[0]));
	tcase_add_test(tcase, tap_with_nul_bytes_is_read_to_its_end);
	tcase_add_test(tcase, tap_failures_are_bounded_and_clean);
	suite_add_tcase(suite, tcase);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
