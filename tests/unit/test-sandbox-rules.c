/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about paths: what is denied stays denied, the deeper rule counts, and the answers are what a program meets. */
#include <dirent.h>
#include <signal.h>

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

	REFUSED(ORCH_EUNENFORCEABLE, "/work/folder/file", orch_sandbox_start_wait(sandbox, 60000, e));
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

/* claude-code#92901: what is made later is denied too; and afterwards nothing is left of that. */
START_TEST(created_later)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	orch_sandbox *sandbox = denied(ctx, host, "/work/.env");
	char seen[4][120];

	for (int i = 0; i < 4; i++)
		snprintf(seen[i], sizeof(seen[i]), "%s/%s", host, ((const char *const[]){".env", "keys", "a/b/c", "a"})[i]);
	OK(orch_sandbox_deny_path(sandbox, "/work/keys/", e));
	OK(orch_sandbox_deny_path(sandbox, "/work/a/b/c", e));
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	/* From outside, written in place. */
	ck_assert(chmod(seen[0], 0600) == 0 && chmod(seen[1], 0700) == 0);
	put(seen[0], "secret\n");
	put(in(seen[1], "key"), "secret\n");
	ck_assert_str_eq(run(sandbox, SH("cd /work;" TRY("cat .env") TRY("echo x >.env") TRY("rm -f .env") TRY("cat keys/key")
					 TRY("ls keys") TRY("mkdir -p a/b && echo x >a/b/c") TRY("cat a/b/c")
					 TRY(RENAME("a", "z")) TRY(RENAME("a/b", "a/z")) TRY("echo x >free; cat free")))
				 .out,
			 "no\nno\nno\nno\nno\nno\nno\nno\nno\nyes\n");
	/* What somebody filled stays, the rest is gone. */
	ck_assert(holds(seen[0], "secret\n") && is_there(seen[1]) && !is_there(seen[2]) && !is_there(seen[3]));
	ck_assert_str_eq(run(over(ctx, host), SH("cat /work/.env /work/keys/key")).out, "secret\nsecret\n");
	orch_ctx_unref(ctx);
}
END_TEST

/* In a folder that is read-only inside, somebody outside makes it: the placeholder is there, and nothing on the way to it. */
START_TEST(created_later_in_what_is_read)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	struct stat st;

	ck_assert_int_eq(chmod(host, 0755), 0);
	OK(orch_sandbox_add_path(sandbox, host, "/data", ORCH_PATH_READ, e));
	OK(orch_sandbox_deny_path(sandbox, "/data/.env", e));
	OK(orch_sandbox_deny_path(sandbox, "/data/no/such/file", e));
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	const char *env = in(host, ".env");

	ck_assert(stat(env, &st) == 0 && st.st_size == 0 && st.st_uid == geteuid() && !is_there(in(host, "no")));
	ck_assert(chmod(env, 0644) == 0);
	put(env, "secret\n");
	put(in(host, "other"), "open\n");
	ck_assert_str_eq(run(sandbox, SH("cd /data;" TRY("cat .env") TRY("cat other"))).out, "no\nyes\n");
	ck_assert(holds(env, "secret\n"));
	orch_ctx_unref(ctx);
}
END_TEST

static bool is_empty(const char *path)
{
	return rmdir(path) == 0 && mkdir(path, 0777) == 0 && chmod(path, 0777) == 0;
}

/* Two may write there, also as root. */
static orch_sandbox *shared(orch_ctx *ctx, const char *host, const char *path)
{
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	OK(orch_sandbox_add_path(sandbox, host, "/work", ALL, e));
	OK(orch_sandbox_deny_path(sandbox, path, e));
	return sandbox;
}

/* Whoever ends first takes nothing from the other; and what a killed host left goes with the next one. */
START_TEST(placeholders_are_shared)
{
	become(_i);
	const char *host = new_folder(), *env = in(host, ".env");

	ck_assert_int_eq(chmod(host, 0777), 0);

	pid_t child = fork();

	if (child == 0) {
		orch_sandbox *killed = shared(ctx_new(), host, "/work/.env");

		OK(orch_sandbox_start_wait(killed, 60000, e));
		raise(SIGKILL);
	}
	ck_assert(child > 0 && waitpid(child, NULL, 0) == child && is_there(env));
	orch_ctx *ctx = ctx_new();
	orch_sandbox *one = shared(ctx, host, "/work/.env"), *other = shared(ctx, host, "/work/.env");

	OK(orch_sandbox_start_wait(one, 60000, e));
	OK(orch_sandbox_start_wait(other, 60000, e));
	run(one, SH("true"));
	ck_assert(is_there(env));
	ck_assert_str_eq(run(other, SH(TRY("cat /work/.env") TRY("echo x >/work/.env"))).out, "no\nno\n");
	ck_assert(is_empty(host));
	/* A start that fails; a forked child that drops its copy. */
	one = shared(ctx, host, "/work/.env");
	OK(orch_sandbox_add_path(one, "/no/such/path", "/x", ORCH_PATH_READ, e));
	REFUSED(ORCH_ENOENT, "/no/such", orch_sandbox_start_wait(one, 60000, e));
	orch_sandbox_unref(one);
	orch_ctx_unref(ctx);
	ck_assert(is_empty(host));
	ctx = ctx_new();
	one = shared(ctx, host, "/work/.env");
	OK(orch_sandbox_start_wait(one, 60000, e));
	child = fork();
	if (child == 0) {
		orch_sandbox_unref(one);
		orch_ctx_unref(ctx);
		_exit(0);
	}
	ck_assert(child > 0 && waitpid(child, NULL, 0) == child && is_there(env));
	orch_sandbox_unref(one);
	orch_ctx_unref(ctx);
	ck_assert(is_empty(host));
}
END_TEST

/* An overlay's folder stays as it is: what is covered lies in the private file system, and is no change. */
START_TEST(in_an_overlay)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	orch_changes *changes = NULL;

	ck_assert_int_eq(chmod(host, 0755), 0);
	put(in(host, "secret"), "secret\n");
	put(in(host, "other"), "open\n");
	OK(orch_sandbox_set_overlay(sandbox, host, NULL, e));
	OK(orch_sandbox_deny_path(sandbox, "/work/secret", e));
	OK(orch_sandbox_deny_path(sandbox, "/work/missing", e));
	if (NO_OVERLAYS) {
		OVERLAY_REFUSED(orch_sandbox_start_wait(sandbox, 60000, e));
		ck_assert(!is_there(in(host, "missing")) && holds(in(host, "secret"), "secret\n"));
		orch_sandbox_unref(sandbox);
		orch_ctx_unref(ctx);
		return;
	}
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	ck_assert(!is_there(in(host, "missing")));
	orch_sandbox_ref(sandbox);
	ck_assert_str_eq(run(sandbox, SH("cd /work;" TRY("cat secret") TRY("rm -f secret") TRY("echo x >missing") TRY("cat missing")
					 TRY("cat other") TRY("echo x >new")))
				 .out,
			 "no\nno\nno\nno\nyes\nyes\n");
	OK(orch_sandbox_changes(sandbox, &changes, e));
	ck_assert_str_eq(orch_changes_text(changes), "A new\n");
	orch_changes_unref(changes);
	orch_sandbox_unref(sandbox);
	ck_assert(!is_there(in(host, "missing")) && holds(in(host, "secret"), "secret\n"));
	orch_ctx_unref(ctx);
}
END_TEST

/* As root the load has a uid of its own: a folder of others that it can not enter is closed as a whole. */
START_TEST(in_a_private_folder)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder(), *private = make_folder(host, "private");
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);

	ck_assert(chmod(host, 0755) == 0 && chmod(private, 0700) == 0);
	put(in(private, "key"), "secret\n");
	put(in(private, "other"), "secret\n");
	OK(orch_sandbox_add_path(sandbox, host, "/data", ORCH_PATH_READ, e));
	OK(orch_sandbox_deny_path(sandbox, "/data/private/key", e));
	OK(orch_sandbox_deny_path(sandbox, "/data/private/missing", e));
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	ck_assert_int_eq(chmod(private, 0755), 0);
	ck_assert_str_eq(run(sandbox, SH("cd /data;" TRY("cat private/key") TRY("cat private/other") TRY("ls ."))).out,
			 geteuid() == 0 ? "no\nno\nyes\n" : "no\nyes\nyes\n");
	ck_assert(!is_there(in(private, "missing")));
	orch_ctx_unref(ctx);
}
END_TEST

/* A folder that something else was put in is left alone, and so is another file of that name. */
START_TEST(what_took_its_place_stays)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder(), *env = in(host, ".env");
	orch_sandbox *sandbox = denied(ctx, host, "/work/.env");

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	ck_assert_int_eq(unlink(env), 0);
	put(env, "");
	run(sandbox, SH("true"));
	ck_assert(is_there(env));
	orch_ctx_unref(ctx);
}
END_TEST

/* claude-code#74081: as many as there are, at the cost of a mount each. */
START_TEST(thousands_of_denied_files)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	orch_sandbox *sandbox = over(ctx, host);

	for (int i = 0; i < 3552; i++) {
		char name[32], path[40];

		snprintf(name, sizeof(name), "f%d", i);
		snprintf(path, sizeof(path), "/work/%s", name);
		if (i % 2)
			put(in(host, name), "secret\n");
		OK(orch_sandbox_deny_path(sandbox, path, e));
	}
	int64_t start = now_ms();

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	fprintf(stderr, "3552 denied files: started in %lld ms\n", (long long)(now_ms() - start));
	ck_assert_str_eq(run(sandbox, SH("cd /work; cat f* 2>/dev/null; ls | wc -l;" TRY("cat f0") TRY("cat f3551"))).out,
			 "3552\nno\nno\n");
	ck_assert(is_there(in(host, "f1")) && !is_there(in(host, "f0")) && !is_there(in(host, "f3550")));
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
	REFUSED(ORCH_EUNENFORCEABLE, "/work/drop", orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

static const char *denied_of(orch_sandbox *sandbox, const char *path, uint32_t access, uint32_t expected, const char *rule)
{
	static char text[512];
	orch_sandbox_answer *answer = NULL;

	OK(orch_sandbox_why(sandbox, path, access, &answer, e));
	snprintf(text, sizeof(text), "%s", orch_sandbox_answer_text(answer));
	ck_assert_msg(orch_sandbox_answer_denied(answer) == expected, "%s", text);
	ck_assert_str_eq(orch_sandbox_answer_rule(answer), rule);
	ck_assert_ptr_null(orch_sandbox_answer_unref(answer));
	return text;
}

START_TEST(answers)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	orch_sandbox *sandbox = NULL;
	orch_sandbox_answer *answer = (void *)ctx;
	char rule[160];

	OK(orch_sandbox_new(ctx, NULL, &sandbox, e));
	snprintf(rule, sizeof(rule), "allow /work (own) of %s", host);
	OK(orch_sandbox_set_workspace(sandbox, host, NULL, e));
	OK(orch_sandbox_deny_path(sandbox, "/work/.git/", e));
	OK(orch_sandbox_add_path(sandbox, "/usr/share", "/work/.git/a/doc", ORCH_PATH_READ, e));
	denied_of(sandbox, "/work/a/b", ALL, 0, rule);
	ck_assert_str_eq(denied_of(sandbox, "/work/.git/config", ORCH_PATH_READ, ORCH_PATH_READ, "deny /work/.git"),
			 "read of /work/.git/config is denied by deny /work/.git");
	denied_of(sandbox, "/work//.git/", ALL, ALL, "deny /work/.git");
	denied_of(sandbox, "/work/.git/a", ORCH_PATH_READ, ORCH_PATH_READ, "deny /work/.git");
	denied_of(sandbox, "/work/.git/a/doc/x", ALL, ORCH_PATH_WRITE | ORCH_PATH_EXEC,
		  "allow /work/.git/a/doc (read) of /usr/share");
	denied_of(sandbox, "/work/.gitignore", ALL, 0, rule);
	denied_of(sandbox, "/usr/bin/env", ALL, ORCH_PATH_WRITE, "root /usr");
	denied_of(sandbox, "/etc/passwd", ALL, ORCH_PATH_WRITE | ORCH_PATH_EXEC, "root /etc");
	denied_of(sandbox, "/tmp/x", ALL, 0, "root /tmp");
	denied_of(sandbox, "/home/me", ALL, ALL, "");
	denied_of(sandbox, "/", ALL, ORCH_PATH_WRITE | ORCH_PATH_EXEC, "");
	REFUSED(ORCH_EINVAL, "not absolute", orch_sandbox_why(sandbox, "x", ALL, &answer, e));
	REFUSED(ORCH_EINVAL, "..", orch_sandbox_why(sandbox, "/a/..", ALL, &answer, e));
	REFUSED(ORCH_EINVAL, "access", orch_sandbox_why(sandbox, "/a", 0, &answer, e));
	REFUSED(ORCH_EINVAL, "access", orch_sandbox_why(sandbox, "/a", ORCH_PATH_OWN, &answer, e));
	REFUSED(ORCH_EINVAL, "NULL", orch_sandbox_why(NULL, "/a", ALL, &answer, e));
	REFUSED(ORCH_EINVAL, "NULL", orch_sandbox_why(sandbox, "/a", ALL, NULL, e));
	ck_assert_ptr_eq(answer, (void *)ctx);
	ck_assert_ptr_null(orch_sandbox_answer_unref(NULL));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- answers, and what a program meets ------------------------------------------------------ */

#define LEVELS 3
#define FOLDERS 14 /* 2 + 4 + 8 */

/* /w/0, /w/1/0 ...: the folder of that number, its names as the bits below the leading one of number + 2. */
static void folder_name(unsigned number, char *path, size_t size)
{
	char names[2 * LEVELS + 1] = "";
	unsigned value = number + 2, bit = 1u << 31;

	while (!(value & bit))
		bit >>= 1;
	for (bit >>= 1; bit; bit >>= 1)
		strcat(names, value & bit ? "/1" : "/0");
	snprintf(path, size, "%.15s", names);
}

/* Run inside: for each path what can be done, as digits of ORCH_PATH_*. */
static int look(char **paths)
{
	for (; *paths; paths++) {
		char name[256];
		uint32_t can = 0;
		int fd;

		snprintf(name, sizeof(name), "%s/f", *paths);
		if ((fd = open(name, O_RDONLY | O_CLOEXEC)) >= 0) {
			can |= ORCH_PATH_READ;
			close(fd);
		}
		if ((fd = open(name, O_WRONLY | O_CLOEXEC)) >= 0) {
			can |= ORCH_PATH_WRITE;
			close(fd);
		}
		pid_t child = fork();
		int status = 0;

		if (child == 0) {
			execl(name, name, NULL);
			_exit(99);
		}
		if (child > 0 && waitpid(child, &status, 0) == child && status == 0)
			can |= ORCH_PATH_EXEC;
		DIR *dir = opendir(*paths);

		printf("%u%u ", can, dir != NULL);
		if (dir)
			closedir(dir);
	}
	return 0;
}

START_TEST(answers_are_what_a_program_meets)
{
	become(_i % identities());
	orch_ctx *ctx = ctx_new();
	const char *host = new_folder();
	char paths[FOLDERS][256], names[FOLDERS][16];
	const char *argv[FOLDERS + 4] = {INSIDE, "--look"};

	ck_assert_int_eq(chmod(host, 0755), 0);
	for (unsigned i = 0; i < FOLDERS; i++) {
		folder_name(i, names[i], sizeof(names[i]));
		snprintf(paths[i], sizeof(paths[i]), "/w%s", names[i]);
		argv[2 + i] = paths[i];
		const char *made = make_folder(host, names[i] + 1), *file = in(made, "f");

		ck_assert(copy_file("/bin/true", file) && chmod(file, 0777) == 0);
	}
	srandom((unsigned)_i);
	for (int round = 0; round < 8; round++) {
		orch_sandbox *sandbox = sandbox_new(ctx, NULL);
		char expected[8 * FOLDERS] = "";

		for (unsigned i = 0; i < FOLDERS; i++) {
			unsigned kind = (unsigned)random() % 6;
			uint32_t access = ORCH_PATH_READ | ((uint32_t)random() & (ORCH_PATH_WRITE | ORCH_PATH_EXEC));

			if (kind == 0 || kind == 3)
				OK(orch_sandbox_deny_path(sandbox, paths[i], e));
			if (kind == 1 || kind == 3 || kind == 4)
				OK(orch_sandbox_add_path(sandbox, in(host, names[i] + 1), paths[i], access, e));
		}
		for (unsigned i = 0; i < FOLDERS; i++) {
			orch_sandbox_answer *file = NULL, *list = NULL;
			char name[256];

			snprintf(name, sizeof(name), "/w%s/f", names[i]);
			OK(orch_sandbox_why(sandbox, name, ALL, &file, e));
			OK(orch_sandbox_why(sandbox, paths[i], ORCH_PATH_READ, &list, e));
			snprintf(expected + strlen(expected), 8, "%u%u ", ALL & ~orch_sandbox_answer_denied(file),
				 !orch_sandbox_answer_denied(list));
			orch_sandbox_answer_unref(file);
			orch_sandbox_answer_unref(list);
		}
		struct outcome outcome = run(sandbox, argv);

		ck_assert_msg(strcmp(outcome.out, expected) == 0, "met %s\ntold %s\n%s", outcome.out, expected, outcome.err);
	}
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
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	REFUSED(ORCH_ESTATE, "started", orch_sandbox_deny_path(sandbox, "/a", e));
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

#define BOTH(test) tcase_add_loop_test(both, test, 0, ids)

int main(int argc, char **argv)
{
	if (argc >= 3 && strcmp(argv[1], "--look") == 0)
		return look(argv + 2);
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
	BOTH(created_later);
	BOTH(created_later_in_what_is_read);
	BOTH(placeholders_are_shared);
	BOTH(in_an_overlay);
	BOTH(in_a_private_folder);
	BOTH(what_took_its_place_stays);
	BOTH(reading_is_not_taken_away_silently);
	BOTH(answers);
	tcase_add_loop_test(both, answers_are_what_a_program_meets, 0, 4 * ids);
	BOTH(builder);
	suite_add_tcase(suite, both);
	TCase *thousands = tcase_create("thousands");

	/* CK_EXCLUDE_TAGS=thousands leaves it out. */
	tcase_set_tags(thousands, "thousands");
	tcase_set_timeout(thousands, 60);
	tcase_add_loop_test(thousands, thousands_of_denied_files, 0, ids);
	suite_add_tcase(suite, thousands);
	return fixture_main(argv, suite);
}
