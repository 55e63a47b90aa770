/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about paths: what is denied stays denied, the deeper rule counts, and the answers are what a program meets. */
#include "sandbox-fixture.h"

#define ALL (ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC)

static const char *make_folder(const char *parent, const char *name)
{
	const char *path = in(parent, name);

	ck_assert_msg(mkdir(path, 0755) == 0, "%s: %s", path, strerror(errno));
	return path;
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* A sandbox with `host` as its workspace. */
static orch_sandbox *over(orch_ctx *ctx, const char *host)
{
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_set_workspace(sandbox, host, NULL, e));
	return sandbox;
}

static orch_sandbox *denied(orch_ctx *ctx, const char *host, const char *path)
{
	orch_sandbox *sandbox = over(ctx, host);

	OK(orch_sandbox_deny_path(sandbox, path, e));
	return sandbox;
}

/* What is printed inside with the denial of `path`, and without it. */
static void differs(orch_ctx *ctx, const char *host, const char *path, const char *script, const char *with,
		    const char *without)
{
	ck_assert_str_eq(run(denied(ctx, host, path), SH(script)).out, with);
	ck_assert_str_eq(run(over(ctx, host), SH(script)).out, without);
}

#define TRY(command) command " >/dev/null 2>&1 && echo yes || echo no;"
/* mv(1) makes copies where rename(2) fails. */
#define RENAME(from, to) "perl -e 'rename \"" from "\", \"" to "\" or exit 1'"

START_TEST(files_and_folders)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();

	put(in(host, ".env"), "secret\n");
	put(in(host, "other"), "open\n");
	put(in(make_folder(host, ".git"), "config"), "secret\n");
	differs(ctx, host, "/work/.env",
		"cd /work;" TRY("cat .env") TRY("echo x >>.env") TRY("mv .env x") TRY("rm -f .env") TRY("ln .env y")
			TRY("chmod 600 .env") TRY("cat other"),
		"no\nno\nno\nno\nno\nno\nyes\n", "yes\nyes\nyes\nyes\nno\nno\nyes\n");
	differs(ctx, host, "/work/.git",
		"cd /work;" TRY("ls .git") TRY("cat .git/config") TRY("(cd .git)") TRY("test -r .git/../.git/config")
			TRY("chmod 700 .git") TRY("touch .git/new") TRY("mv .git x") TRY("rm -rf .git x"),
		"no\nno\nno\nno\nno\nno\nno\nno\n", "yes\nyes\nyes\nyes\nyes\nyes\nyes\nyes\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* pmg#446, and `mv` of what is around. */
START_TEST(renames_do_not_pass)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	const char *git = make_folder(host, ".git"), *hooks = make_folder(git, "hooks");

	put(in(git, "x"), "hook\n");
	put(in(hooks, "pre-commit"), "kept\n");
	differs(ctx, host, "/work/.git/hooks",
		"cd /work;" TRY("mv .git/x .git/hooks/pre-commit") TRY("ln .git/x .git/hooks/y") TRY("mkdir .git/hooks/z")
			TRY(RENAME(".git", "a") "&&" RENAME("a", ".git")) TRY(RENAME(".git/hooks", "b") "&&" RENAME("b", ".git/hooks")) TRY("mkdir -p .git/hooks; touch .git/hooks/pre-commit")
				TRY("truncate -s 0 .git/hooks/pre-commit"),
		"no\nno\nno\nno\nno\nno\nno\n", "yes\nno\nyes\nyes\nyes\nyes\nyes\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* Deeper rules in both directions, and the same path twice. */
START_TEST(the_deeper_rule_counts)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	const char *a = make_folder(host, "a"), *b = make_folder(a, "b"), *c = make_folder(b, "c");

	put(in(a, "file"), "a\n");
	put(in(b, "file"), "b\n");
	put(in(c, "file"), "c\n");
	orch_sandbox *sandbox = denied(ctx, host, "/work/a");
	orch_error *error = NULL;

	OK(orch_sandbox_add_path(sandbox, b, "/work/a/b", ORCH_PATH_READ | ORCH_PATH_WRITE, e));
	OK(orch_sandbox_deny_path(sandbox, "/work/a/b/c", e));
	OK(orch_sandbox_deny_path(sandbox, "/work/a/b/c", e));
	ck_assert_int_eq(orch_sandbox_add_path(sandbox, b, "/work/a/b", ORCH_PATH_READ, &error), ORCH_EEXIST);
	orch_error_free(error);
	ck_assert_str_eq(run(sandbox, SH("cd /work;" TRY("ls a") TRY("cat a/file") TRY("cat a/b/file") TRY("touch a/b/new")
					 TRY("cat a/b/c/file") TRY("ls a/b/c") TRY("touch a/new") TRY("mv a/b/c a/b/d")
					 TRY("cat a/b/../file") TRY("ls a/b"))).out,
			 "no\nno\nyes\nyes\nno\nno\nno\nno\nno\nyes\n");
	/* Both at one path: closed. And a way that is made for the deeper one can be passed only. */
	sandbox = denied(ctx, host, "/data/x");
	OK(orch_sandbox_add_path(sandbox, a, "/data/x", ORCH_PATH_READ, e));
	OK(orch_sandbox_add_path(sandbox, a, "/data/y/z/f", ORCH_PATH_READ, e));
	OK(orch_sandbox_deny_path(sandbox, "/data/y", e));
	ck_assert_str_eq(run(sandbox, SH(TRY("ls /data/x") TRY("cat /data/x/file") TRY("ls /data/y") TRY("ls /data/y/z")
					 TRY("cat /data/y/z/f/file") TRY("ls /data")))
				 .out,
			 "no\nno\nno\nno\nyes\nyes\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* What the root has by itself can be closed too. */
START_TEST(the_preset_can_be_closed)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	static const char script[] = TRY("cat /etc/passwd") TRY("ls /usr/share") TRY("touch /tmp/a/b") TRY("mkdir -p /tmp/a")
		TRY("touch /tmp/a/b") TRY("mv /tmp/a /tmp/c") TRY("cat /usr/bin/env") TRY("ls /usr/no-such-folder");

	ck_assert_str_eq(run(sandbox, SH(script)).out, "yes\nyes\nno\nyes\nyes\nyes\nyes\nno\n");
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_deny_path(sandbox, "/etc/passwd", e));
	OK(orch_sandbox_deny_path(sandbox, "/usr/share", e));
	OK(orch_sandbox_deny_path(sandbox, "/tmp/a/b", e));
	OK(orch_sandbox_deny_path(sandbox, "/usr/no-such-folder", e));
	ck_assert_str_eq(run(sandbox, SH(script)).out, "no\nno\nno\nyes\nno\nno\nyes\nno\n");
	ck_assert(!is_there("/usr/no-such-folder"));
	orch_ctx_unref(ctx);
}
END_TEST

/* codex#20716: a link is covered itself; a link on the way is a refusal that names the path. */
START_TEST(symbolic_links)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();

	put(in(make_folder(host, "real"), "file"), "secret\n");
	ck_assert(symlink("real/file", in(host, "link")) == 0 && symlink("real", in(host, "folder")) == 0 &&
		  symlink("/nowhere", in(host, "broken")) == 0);
	static const char script[] = "cd /work;" TRY("cat link") TRY("cat real/file") TRY("readlink link") TRY("mv link x");

	ck_assert_str_eq(run(denied(ctx, host, "/work/link"), SH(script)).out, "no\nyes\nno\nno\n");
	ck_assert_str_eq(run(denied(ctx, host, "/work/broken"), SH("cat /work/broken 2>&1; rm /work/broken")).out,
			 "cat: /work/broken: Permission denied\n");
	differs(ctx, host, "/work/folder", "cd /work;" TRY("ls folder/") TRY("cat folder/file") TRY("cat real/file"),
		"no\nno\nyes\n", "yes\nyes\nyes\n");
	orch_sandbox *sandbox = denied(ctx, host, "/work/folder/file");

	REFUSED(ORCH_EUNENFORCEABLE, "/work/folder/file", orch_sandbox_start_wait(sandbox, 10000, e));
	orch_sandbox_unref(sandbox);
	ck_assert_str_eq(run(over(ctx, host), SH(script)).out, "yes\nyes\nyes\nyes\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* srt#98: in a worktree .git is a file. */
START_TEST(git_as_a_file)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder(), *real = new_folder();

	put(in(host, ".git"), "gitdir: /repo/.git\n");
	const char *git = make_folder(real, ".git");

	put(in(git, "config"), "config\n");
	make_folder(git, "hooks");
	orch_sandbox *sandbox = denied(ctx, host, "/work/.git");

	OK(orch_sandbox_add_path(sandbox, real, "/repo", ORCH_PATH_OWN, e));
	OK(orch_sandbox_deny_path(sandbox, "/repo/.git/hooks/", e));
	OK(orch_sandbox_deny_path(sandbox, "/repo/.git/config", e));
	ck_assert_str_eq(run(sandbox, SH("cd /work;" TRY("cat .git") TRY("mv .git x") TRY("touch /repo/.git/HEAD")
					 TRY("touch /repo/.git/hooks/pre-commit") TRY("echo x >>/repo/.git/config")
					 TRY("mv /repo/.git /repo/x")))
				 .out,
			 "no\nno\nyes\nno\nno\nno\n");
	ck_assert(holds(in(git, "config"), "config\n"));
	orch_ctx_unref(ctx);
}
END_TEST

/* Landlock's right to read reaches down: a deeper rule without it would promise what nothing keeps. */
START_TEST(reading_is_not_taken_away_silently)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	orch_sandbox *sandbox = over(ctx, host);

	OK(orch_sandbox_add_path(sandbox, make_folder(host, "drop"), "/work/drop", ORCH_PATH_WRITE, e));
	REFUSED(ORCH_EUNENFORCEABLE, "/work/drop", orch_sandbox_start_wait(sandbox, 10000, e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(builder)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	REFUSED(ORCH_EINVAL, "not absolute", orch_sandbox_deny_path(sandbox, "x", e));
	REFUSED(ORCH_EINVAL, "not absolute", orch_sandbox_deny_path(sandbox, "", e));
	REFUSED(ORCH_EINVAL, "not absolute", orch_sandbox_deny_path(sandbox, NULL, e));
	REFUSED(ORCH_EINVAL, "..", orch_sandbox_deny_path(sandbox, "/a/../b", e));
	REFUSED(ORCH_EINVAL, "own", orch_sandbox_deny_path(sandbox, "/", e));
	REFUSED(ORCH_EINVAL, "own", orch_sandbox_deny_path(sandbox, "/proc/self", e));
	REFUSED(ORCH_EINVAL, "own", orch_sandbox_deny_path(sandbox, "/dev/null", e));
	REFUSED(ORCH_EINVAL, "NULL", orch_sandbox_deny_path(NULL, "/a", e));
	OK(orch_sandbox_start_wait(sandbox, 10000, e));
	REFUSED(ORCH_ESTATE, "started", orch_sandbox_deny_path(sandbox, "/a", e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

#define BOTH(test) tcase_add_loop_test(both, test, 0, ids)

int main(int argc, char **argv)
{
	(void)argc;
	Suite *suite = suite_create("sandbox rules");
	TCase *both = tcase_create("as root and as a user");
	int ids = identities();

	tcase_set_timeout(both, 60);
	BOTH(files_and_folders);
	BOTH(renames_do_not_pass);
	BOTH(the_deeper_rule_counts);
	BOTH(the_preset_can_be_closed);
	BOTH(symbolic_links);
	BOTH(git_as_a_file);
	BOTH(reading_is_not_taken_away_silently);
	BOTH(builder);
	suite_add_tcase(suite, both);
	return fixture_main(argv, suite);
}
