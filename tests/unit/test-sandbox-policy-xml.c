/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as documents: the same as the builder calls, all or nothing, and errors that say where. */
#include "sandbox-fixture.h"

#define ALL (ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC)
#define HEAD "<policy xmlns=\"urn:orch:policy:1\""

static int32_t read_text(orch_sandbox *sandbox, const char *text, orch_error **reterr)
{
	return orch_sandbox_read_policy(sandbox, text, strlen(text), "my.xml", reterr);
}

static void decided(orch_sandbox *sandbox, const char *path, uint32_t access, uint32_t denied, const char *rule)
{
	orch_sandbox_answer *answer = NULL;

	OK(orch_sandbox_why(sandbox, path, access, &answer, e));
	ck_assert_msg(orch_sandbox_answer_denied(answer) == denied, "%s", orch_sandbox_answer_text(answer));
	ck_assert_str_eq(orch_sandbox_answer_rule(answer), rule);
	orch_sandbox_answer_unref(answer);
}

START_TEST(a_whole_policy)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	const char *host = new_folder();
	char text[2048], rule[256];

	snprintf(text, sizeof(text),
		 "<?xml version=\"1.0\"?>\n"
		 HEAD " root=\"tools\" net=\"none\">\n"
		 " <limits processes=\"40\" open-files=\"64\" file-mib=\"1\" tmp-mib=\"8\" time-ms=\"60000\"/>\n"
		 " <protection name=\"memory\" level=\"off\"/>\n"
		 " <env name=\"GREETING\" value=\"a &lt; b\"/>\n"
		 " <env name=\"HOME\"/>\n"
		 " <path host=\"/usr/share\" inner=\"/share\"/>\n"
		 " <path host=\"/usr/lib\" inner=\"/libs\" access=\"read\n exec\"/>\n"
		 " <deny path=\"/work/.git/\"/>\n"
		 " <deny path=\"/share/doc\"/>\n"
		 " <workspace host=\"%s\"/>\n"
		 "</policy>\n",
		 host);
	OK(read_text(sandbox, text, e));
	decided(sandbox, "/work/.git/x", ALL, ALL, "deny /work/.git at my.xml:10");
	decided(sandbox, "/share/x", ALL, ORCH_PATH_WRITE | ORCH_PATH_EXEC, "allow /share (read) of /usr/share at my.xml:7");
	decided(sandbox, "/libs/x", ALL, ORCH_PATH_WRITE, "allow /libs (read exec) of /usr/lib at my.xml:9");
	snprintf(rule, sizeof(rule), "allow /work (own) of %s at my.xml:12", host);
	decided(sandbox, "/work/x", ALL, 0, rule);
	ck_assert_str_eq(run(sandbox, SH("pwd; echo $GREETING; echo home=$HOME; ulimit -n; ls /share/doc >/dev/null 2>&1 || echo no;"
					 "ls /work/.git >/dev/null 2>&1 || echo no; touch x && echo yes"))
				 .out,
			 "/work\na < b\nhome=\n64\nno\nno\nyes\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* Each is refused with its place, and changes nothing. */
START_TEST(refused)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
		{"", "my.xml:1: "},
		{"<policy", "my.xml:1: "},
		{HEAD ">\n<deny path='/a'/>\n", "my.xml:3: "},
		{"<policy/>", "my.xml:1: "},
		{"<policy xmlns='urn:orch:policy:2'/>", "my.xml:1: "},
		{HEAD " root='some'/>", "my.xml:1: "},
		{HEAD ">\n\n<allow path='/a'/></policy>", "my.xml:3: "},
		{HEAD ">\n<deny path='/a' why='x'/></policy>", "my.xml:2: "},
		{HEAD ">\n<deny/></policy>", "my.xml:2: "},
		{HEAD ">\n<limits processes='1'/></policy>", "my.xml:2: "},
		{HEAD ">\n<limits processes='many'/></policy>", "my.xml:2: "},
		{HEAD ">\n<limits tmp-mib='99999999999999999999'/></policy>", "my.xml:2: "},
		{HEAD ">\n<path host='/a' access='none'/></policy>", "my.xml:2: "},
		{HEAD ">\n<path host='/a' access=''/></policy>", "my.xml:2: "},
		{HEAD ">\n<path host='a' inner='/a'/></policy>", "my.xml:2: host path \"a\" is not absolute"},
		{HEAD ">\n<path host='/a'/>\n<path host='/b' inner='/a'/></policy>", "my.xml:3: inner path /a is taken"},
		{HEAD ">\n<path host='/a' inner='/proc/x'/></policy>", "my.xml:2: inner path"},
		{HEAD ">\n<path host='/usr' inner='/u' access='own'/></policy>", "my.xml:2: /usr is a folder of the system"},
		{HEAD ">\n<deny path='/a/../b'/></policy>", "my.xml:2: inner path"},
		{HEAD ">\n<protection name='selinux' level='off'/></policy>", "my.xml:2: there is no protection"},
		{HEAD ">\n<env name='A=B' value=''/></policy>", "my.xml:2: variable name"},
		{HEAD ">\n<workspace host='/srv/w'/>\n<workspace host='/srv/w'/></policy>", "my.xml:3: "},
		{HEAD " root='tools'>\n<path host='/srv' inner='/usr'/></policy>", "my.xml:2: inner path /usr is taken"},
		{HEAD "><deny path='/a'></policy>", "my.xml:1: not well-formed XML: "},
		{"<!DOCTYPE policy [<!ENTITY x '/a'>]>\n" HEAD "><deny path='&x;'/></policy>", "my.xml:1: a document type"},
		{HEAD ">\n<xi:include xmlns:xi='http://www.w3.org/2001/XInclude' href='/etc/passwd'/></policy>", "my.xml:2: "},
	};
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_deny_path(sandbox, "/kept", e));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		orch_error *error = NULL;
		int32_t code = read_text(sandbox, bad[i].text, &error);

		ck_assert_msg(code == ORCH_EINVAL && strncmp(orch_error_message(error), bad[i].words, strlen(bad[i].words)) == 0,
			      "%s: %d %s", bad[i].text, code, orch_error_message(error));
		orch_error_free(error);
	}
	/* All before the last line fits, and none of it is kept. */
	REFUSED(ORCH_EINVAL, "my.xml:6: ",
		read_text(sandbox,
			  HEAD " net='broker'>\n<limits open-files='9'/><env name='A' value='b'/>\n<path host='/usr/share' "
			       "inner='/s'/>\n<deny path='/tmp/x'/>\n\n<workspace host='relative'/></policy>",
			  e));
	decided(sandbox, "/s", ALL, ALL, "");
	decided(sandbox, "/tmp/x", ALL, 0, "root /tmp");
	decided(sandbox, "/kept", ALL, ALL, "deny /kept");
	ck_assert_str_eq(run(sandbox, SH("echo $A; pwd; ulimit -n")).out, "\n/\n1024\n");
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(files)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	const char *path = in(new_folder(), "policy.xml");
	char rule[256], *big = calloc(1, (16u << 20) + 1);

	put(path, HEAD "><deny path='/tmp/closed'/></policy>");
	OK(orch_sandbox_load_policy(sandbox, path, e));
	snprintf(rule, sizeof(rule), "deny /tmp/closed at %s:1", path);
	decided(sandbox, "/tmp/closed", ALL, ALL, rule);
	/* A second one adds to the first. */
	OK(read_text(sandbox, HEAD "><deny path='/tmp/other'/></policy>", e));
	decided(sandbox, "/tmp/closed", ALL, ALL, rule);
	decided(sandbox, "/tmp/other", ALL, ALL, "deny /tmp/other at my.xml:1");
	REFUSED(ORCH_ENOENT, "no-such", orch_sandbox_load_policy(sandbox, "/no-such/policy.xml", e));
	REFUSED(ORCH_ESYS, "/tmp", orch_sandbox_load_policy(sandbox, "/tmp", e));
	REFUSED(ORCH_EINVAL, "NULL", orch_sandbox_load_policy(sandbox, NULL, e));
	REFUSED(ORCH_EINVAL, "NULL", orch_sandbox_read_policy(sandbox, NULL, 1, NULL, e));
	REFUSED(ORCH_EINVAL, "policy:1: ", orch_sandbox_read_policy(sandbox, "x", 1, NULL, e));
	ck_assert_ptr_nonnull(big);
	REFUSED(ORCH_ETOOBIG, "16777216", orch_sandbox_read_policy(sandbox, big, (16u << 20) + 1, NULL, e));
	free(big);
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	REFUSED(ORCH_ESTATE, "started", orch_sandbox_load_policy(sandbox, path, e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

#define BOTH(test) tcase_add_loop_test(both, test, 0, ids)

int main(int argc, char **argv)
{
	(void)argc;
	Suite *suite = suite_create("sandbox policies");
	TCase *both = tcase_create("as root and as a user");
	int ids = identities();

	tcase_set_timeout(both, 60);
	BOTH(a_whole_policy);
	BOTH(refused);
	BOTH(files);
	suite_add_tcase(suite, both);
	return fixture_main(argv, suite);
}
