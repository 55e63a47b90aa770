/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of repositories is git itself, run here on what came out. Repositories that must not be
 * run in are only made here, and run in once by a control that shows that they would have done
 * harm.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "pipeline/deliver.h"

#define UNPRIVILEGED_ENV "ORCH_TEST_UNPRIVILEGED"
#define TIMEOUT_MS 60000

static char base[64];
static orch_ctx *ctx;

/* --- helpers --------------------------------------------------------------------------------- */

/* Below the folder of this test. Valid until sixteen more were asked for. */
static const char *at(const char *name)
{
	static char *paths[16];
	static int turn;
	char *path = orch_strdup_printf("%s/%s", base, name);
	ck_assert_ptr_nonnull(path);
	turn = (turn + 1) % 16;
	free(paths[turn]);
	return paths[turn] = path;
}

/* Runs a script there; what it printed, without the last newline. */
static const char *sh(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *sh(const char *format, ...)
{
	static char output[8][65536];
	static int turn;
	char *out = output[turn = (turn + 1) % 8];
	char *script = NULL;
	va_list arguments;
	va_start(arguments, format);
	ck_assert_int_ge(vasprintf(&script, format, arguments), 0);
	va_end(arguments);
	_cleanup_free_ char *command = orch_strdup_printf("set -e; cd %s; %s", base, script);
	FILE *pipe = popen(command, "re");
	size_t length = fread(out, 1, sizeof(output[0]) - 1, pipe);
	int status = pclose(pipe);
	ck_assert_msg(status == 0, "status %x of: %s", status, script);
	free(script);
	while (length && out[length - 1] == '\n')
		length--;
	out[length] = '\0';
	return out;
}

static void put(const char *path, const char *text)
{
	orch_error *error = NULL;
	ck_assert_msg(!tree_write_file(at(path), text, strlen(text), 0644, &error), "%s",
		      orch_error_message(error));
}

static const char *import(const char *dir)
{
	static char hashes[8][TREE_HASH_SIZE];
	static int turn;
	char *hash = hashes[turn = (turn + 1) % 8];
	orch_error *error = NULL;
	ck_assert_msg(!tree_import(at(dir), at("trees"), NULL, hash, &error), "%s",
		      orch_error_message(error));
	return hash;
}

struct outcome {
	unsigned calls;
	int32_t code;
	char hash[TREE_HASH_SIZE], commit[64];
	char *message, *deaths;
	bool called;
};

static void outcome_free(struct outcome *outcome)
{
	free(outcome->message);
	free(outcome->deaths);
}
#define _cleanup_outcome_ __attribute__((cleanup(outcome_free)))

static void take(struct outcome *outcome, const char *hash, const char *commit, const char *deaths,
		 const orch_error *error)
{
	outcome->calls++;
	outcome->called = true;
	outcome->code = orch_error_code(error);
	outcome->message = strdup(orch_error_message(error));
	outcome->deaths = strdup(deaths ? deaths : "");
	snprintf(outcome->hash, sizeof(outcome->hash), "%s", hash ? hash : "");
	snprintf(outcome->commit, sizeof(outcome->commit), "%s", commit ? commit : "");
}

static void on_import(void *userdata, const char *tree_hash, const char *commit, const char *deaths,
		      const orch_error *error)
{
	take(userdata, tree_hash, commit, deaths, error);
}

static void on_delivered(void *userdata, const char *head_commit, const char *deaths,
			 const orch_error *error)
{
	take(userdata, NULL, head_commit, deaths, error);
}

static bool is_called(void *userdata)
{
	return ((struct outcome *)userdata)->called;
}

static void wait_for(struct outcome *outcome, int32_t started, orch_error *error,
		     struct git_job *job)
{
	if (started < 0) {
		outcome->code = started;
		outcome->message = strdup(orch_error_message(error));
		ck_assert_int_eq(orch_error_code(error), started);
		orch_error_free(error);
		return;
	}
	ck_assert_int_eq(outcome->calls, 0);
	ck_assert_int_eq(orch_ctx_wait(ctx, TIMEOUT_MS, is_called, outcome, NULL), 0);
	ck_assert_ptr_null(git_job_free(job));
	ck_assert_int_eq(outcome->calls, 1);
}

static void run_import(struct outcome *outcome, const char *repo, const char *rev)
{
	struct git_job *job = NULL;
	orch_error *error = NULL;
	int32_t started = repo_import_start(ctx, at(repo), rev, at("staging"), at("trees"),
					    on_import, outcome, &job, &error);
	wait_for(outcome, started, error, job);
}

static void run_delivery(struct outcome *outcome, const struct delivery *delivery)
{
	struct git_job *job = NULL;
	orch_error *error = NULL;
	int32_t started = deliver_start(ctx, delivery, on_delivered, outcome, &job, &error);
	wait_for(outcome, started, error, job);
	ck_assert_int_lt(access(delivery->work_dir, F_OK), 0);
}

static void is_fine(const struct outcome *outcome)
{
	ck_assert_msg(!outcome->code, "%s: %s", orch_code_name(outcome->code), outcome->message);
	ck_assert_uint_eq(strlen(outcome->commit), 40);
	ck_assert_msg(strstr(outcome->deaths, "DEAD"), "no certificate: %s", outcome->deaths);
}

static void failed(const struct outcome *outcome, int32_t code, const char *part)
{
	ck_assert_msg(outcome->code == code, "%s (%s), not %s", orch_code_name(outcome->code),
		      outcome->message, orch_code_name(code));
	ck_assert_msg(strstr(outcome->message, part), "no '%s' in: %s", part, outcome->message);
	ck_assert_str_eq(outcome->commit, "");
}

static struct delivery order(const struct delivery_commit *commits, size_t count)
{
	return (struct delivery){
	    .trees_dir = at("trees"),
	    .work_dir = at("work"),
	    .product_dir = at("product"),
	    .branch = "main",
	    .commits = commits,
	    .commit_count = count,
	};
}

/* A delivered repository is well, clean, and has nothing in it that it need not have. */
static void product_is_clean(const char *product, const char *branch, const char *tree_hash,
			     bool shallow)
{
	_cleanup_free_ char *dir = strdup(at(product));
	ck_assert_str_eq(sh("cd %s && git fsck --strict 2>&1", dir), "");
	ck_assert_str_eq(sh("cd %s && git status --porcelain --untracked-files=all", dir), "");
	ck_assert_str_eq(
	    sh("cd %s && git symbolic-ref HEAD && git for-each-ref --format='%%(refname)'", dir),
	    sh("printf 'refs/heads/%s\\nrefs/heads/%s'", branch, branch));
	ck_assert_str_eq(sh("ls -A %s/.git", dir),
			 shallow ? "HEAD\nconfig\nindex\nobjects\nrefs\nshallow"
				 : "HEAD\nconfig\nindex\nobjects\nrefs");
	ck_assert_str_eq(
	    sh("cat %s/.git/config", dir),
	    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
	    "\tlogallrefupdates = true");
	ck_assert_str_eq(
	    sh("find %s ! -uid %u -o -type l -path '*/.git/*' -o -perm /7022 ! -type l", dir,
	       geteuid()),
	    "");
	ck_assert_str_eq(import(product), tree_hash);
}

static void set_up(void)
{
	snprintf(base, sizeof(base), "/tmp/test-deliver-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	orch_error *error = NULL;
	ck_assert_msg(!orch_ctx_new(NULL, &ctx, &error), "%s", orch_error_message(error));
}

static void tear_down(void)
{
	ctx = orch_ctx_unref(ctx);
	ck_assert_int_eq(tree_remove(base, NULL), 0);
}

/* --- a new product --------------------------------------------------------------------------- */

static void two_trees(struct delivery_commit commits[2])
{
	put("src/README", "one\n");
	put("src/a/gone", "x");
	put("src/place", "a file, then a folder");
	put("src/-x \"quoted\" gr\xc3\xbc\xc3\x9f", "odd name");
	commits[0] = (struct delivery_commit){import("src"), "Skeleton\n\nFor R1.", 1700000000};
	put("src/README", "two\n");
	put("src/bin/run", "#!/bin/sh\n");
	ck_assert_int_eq(chmod(at("src/bin/run"), 0755), 0);
	sh("cd src && rm -r a place && mkdir place && echo x >place/f && ln -s ../README bin/link");
	commits[1] = (struct delivery_commit){import("src"), "Search", 1700000100};
}

START_TEST(a_new_product_is_a_clean_repository)
{
	struct delivery_commit commits[2];
	two_trees(commits);
	struct delivery delivery = order(commits, 2);
	_cleanup_outcome_ struct outcome outcome = {0}, again = {0};
	run_delivery(&outcome, &delivery);
	is_fine(&outcome);
	product_is_clean("product", "main", commits[1].tree_hash, false);
	ck_assert_str_eq(
	    sh("cd product && git log --format='%%H%%n%%an <%%ae> %%cn %%at %%ct%%n%%B'"),
	    sh("printf '%%s\\n%%s 1700000100 1700000100\\nSearch\\n\\n%%s\\n%%s 1700000000 "
	       "1700000000\\nSkeleton\\n\\nFor R1.' %s 'liborch <liborch@localhost> liborch' "
	       "$(cd product && git rev-parse HEAD^) 'liborch <liborch@localhost> liborch'",
	       outcome.commit));
	ck_assert_str_eq(
	    sh("cd product && git cat-file blob HEAD^:README && git cat-file blob HEAD:README"),
	    "one\ntwo");
	ck_assert_str_eq(sh("cd product && git ls-tree HEAD bin/ | cut -c1-6"), "120000\n100755");

	/* Once more, over what is there: the same commits, and nothing of the old. */
	put("product/left-over", "x");
	put("product/.git/hooks/post-checkout", "x");
	run_delivery(&again, &delivery);
	is_fine(&again);
	ck_assert_str_eq(again.commit, outcome.commit);
	product_is_clean("product", "main", commits[1].tree_hash, false);
	ck_assert_str_eq(sh("ls -A | sort"), "product\nsrc\ntrees");
}
END_TEST

START_TEST(attributes_change_no_byte)
{
	put("src/.gitattributes",
	    "* text eol=crlf ident filter=evil working-tree-encoding=UTF-16\n*.bin binary\n");
	put("src/lf", "$Id$\nline\n");
	put("src/crlf", "$Id: x $\r\nline\r\n");
	put("src/sub/.gitattributes", "* -text export-ignore\n");
	put("src/.gitignore", "*\n");
	put("src/ignored", "still there");
	struct delivery_commit commit = {import("src"), "c", 1};
	struct delivery delivery = order(&commit, 1);
	_cleanup_outcome_ struct outcome outcome = {0};
	run_delivery(&outcome, &delivery);
	is_fine(&outcome);
	ck_assert_str_eq(import("product"), commit.tree_hash);
	sh("for f in $(cd src && find . -type f); do (cd product && git cat-file blob HEAD:$f) | "
	   "cmp - "
	   "src/$f; done");
	ck_assert_str_eq(sh("cd product && git ls-tree -r --name-only HEAD | wc -l"), "6");
}
END_TEST

START_TEST(an_empty_tree_is_delivered)
{
	struct delivery_commit commit = {tree_empty_hash, "nothing yet", 1};
	struct delivery delivery = order(&commit, 1);
	_cleanup_outcome_ struct outcome outcome = {0};
	put("trees/x", "not in the way");
	run_delivery(&outcome, &delivery);
	is_fine(&outcome);
	ck_assert_str_eq(import("product"), tree_empty_hash);
	ck_assert_str_eq(sh("cd product && git log --format=%%s"), "nothing yet");
}
END_TEST

START_TEST(bad_orders_are_refused)
{
	put("src/f", "x");
	struct delivery_commit commit = {import("src"), "c", 1};
	static const char *const branches[] = {"",    "-d", "a..b",   "/a",   "a/",   "a b",
					       "a~1", ".a", "a.lock", "a//b", "a/.b", "x\ny"};
	for (size_t i = 0; i < sizeof(branches) / sizeof(*branches); i++) {
		struct delivery delivery = order(&commit, 1);
		delivery.branch = branches[i];
		_cleanup_outcome_ struct outcome outcome = {0};
		run_delivery(&outcome, &delivery);
		failed(&outcome, ORCH_EINVAL, "branch name");
	}
	struct delivery none = order(&commit, 0), missing = order(&commit, 1),
			unbased = order(&commit, 1);
	_cleanup_outcome_ struct outcome first = {0}, second = {0}, third = {0};
	run_delivery(&first, &none);
	failed(&first, ORCH_EINVAL, "at least one commit");
	commit.tree_hash = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
	run_delivery(&second, &missing);
	failed(&second, ORCH_ENOENT, "ffff");
	unbased.staging_dir = at("staging");
	unbased.base_commit = "HEAD";
	run_delivery(&third, &unbased);
	failed(&third, ORCH_EINVAL, "base commit");
	ck_assert_int_lt(access(at("product"), F_OK), 0);
}
END_TEST

START_TEST(freed_while_git_runs)
{
	struct delivery_commit commits[2];
	two_trees(commits);
	for (int turns = 0; turns < 200; turns += 20) {
		struct delivery delivery = order(commits, 2);
		struct outcome outcome = {0};
		struct git_job *job = NULL;
		ck_assert_int_eq(deliver_start(ctx, &delivery, on_delivered, &outcome, &job, NULL),
				 0);
		orch_ctx_run(ctx, turns, NULL);
		git_job_free(job);
		orch_ctx_run(ctx, 50, NULL);
		ck_assert_uint_le(outcome.calls, 1);
		if (!turns)
			ck_assert_uint_eq(outcome.calls, 0);
		outcome_free(&outcome);
	}
	ck_assert_ptr_null(git_job_free(NULL));
}
END_TEST

/* --- existing repositories ------------------------------------------------------------------- */

static void make_repository(void)
{
	sh("git init -q -b trunk repo && cd repo && git config user.name u && git config "
	   "user.email u@x && git config core.safecrlf false && "
	   "printf 'one\\r\\n' >crlf && printf '* text=auto\\n' >.gitattributes && mkdir d && echo "
	   "f >d/f && "
	   "ln -s d/f link && echo '#!/bin/sh' >run && chmod +x run && git -c core.autocrlf=false "
	   "add -A && "
	   "git commit -qm first && git tag v1 && echo 2 >d/f && git commit -qam second && "
	   "git update-index --add --cacheinfo "
	   "160000,1111111111111111111111111111111111111111,mods/sub && "
	   "git commit -qm 'a submodule' && git branch other v1");
}

/* Every byte, mode, owner and time of modification and change. */
static const char *fingerprint(const char *dir)
{
	return sh("cd %s && { find . -printf '%%p %%m %%U %%s %%l %%T@ %%C@\\n' | sort; find . "
		  "-type f -print0 | "
		  "sort -z | xargs -0 sha256sum; } | sha256sum",
		  dir);
}

START_TEST(a_repository_comes_in)
{
	make_repository();
	_cleanup_free_ char *before = strdup(fingerprint("repo"));
	static const struct {
		const char *given, *is;
	} revisions[] = {{NULL, "trunk"},
			 {"HEAD~1", "trunk~1"},
			 {"v1", "v1"},
			 {"other", "v1"},
			 {"trunk^0", "trunk"}};
	for (size_t i = 0; i < sizeof(revisions) / sizeof(*revisions); i++) {
		_cleanup_outcome_ struct outcome outcome = {0};
		run_import(&outcome, "repo", revisions[i].given);
		is_fine(&outcome);
		ck_assert_str_eq(outcome.commit,
				 sh("cd repo && git rev-parse %s", revisions[i].is));
		sh("rm -rf raw && mkdir raw && cd repo && git archive %s | tar -x -C ../raw",
		   revisions[i].is);
		ck_assert_str_eq(outcome.hash, import("raw"));
		ck_assert_str_eq(sh("cd staging && ls"), "base\ngit");
	}
	ck_assert_str_eq(fingerprint("repo"), before);
	sh("touch repo/.git/HEAD");
	ck_assert_str_ne(fingerprint("repo"), before);
}
END_TEST

static const char *const bad_revisions[] = {
    "no-such-branch",	   "--foo", "--all", "-h",  "--git-dir=/",
    "HEAD; touch /work/x", "$(id)", "",	     "d/f", "HEAD:d"};

START_TEST(an_unknown_revision_is_named)
{
	make_repository();
	_cleanup_outcome_ struct outcome outcome = {0};
	run_import(&outcome, "repo", bad_revisions[_i]);
	failed(&outcome, ORCH_ENOENT, "has no revision \"");
	ck_assert_ptr_nonnull(strstr(outcome.message, bad_revisions[_i]));
}
END_TEST

static void deliver_on(const char *repo, const char *product_tree, struct outcome *outcome,
		       bool shallow)
{
	_cleanup_outcome_ struct outcome imported = {0};
	run_import(&imported, repo, NULL);
	is_fine(&imported);
	sh("rm -rf next");
	orch_error *error = NULL;
	ck_assert_msg(!tree_checkout(at("trees"), imported.hash, at("next"), &error), "%s",
		      orch_error_message(error));
	put("next/new", "n");
	sh("cd next && echo 3 >d/f && rm run");
	struct delivery_commit commits[] = {{imported.hash, "no change", 5},
					    {import("next"), "T1", 6}};
	struct delivery delivery = order(commits, 2);
	delivery.staging_dir = at("staging");
	delivery.base_commit = imported.commit;
	delivery.branch = "orch/run-1";
	delivery.product_dir = at(product_tree);
	run_delivery(outcome, &delivery);
	is_fine(outcome);
	product_is_clean(product_tree, "orch/run-1", commits[1].tree_hash, shallow);
	ck_assert_str_eq(sh("cd %s && git rev-parse HEAD~2", product_tree), imported.commit);
	ck_assert_str_eq(sh("cd %s && git diff --name-status HEAD~2 HEAD", product_tree),
			 "M\td/f\nA\tnew\nD\trun");
}

START_TEST(a_delivery_goes_on_from_the_repository)
{
	make_repository();
	_cleanup_free_ char *before = strdup(fingerprint("repo"));
	_cleanup_outcome_ struct outcome outcome = {0}, packed = {0};
	deliver_on("repo", "product", &outcome, false);
	ck_assert_str_eq(sh("cd product && git log --format=%%s"),
			 "T1\nno change\na submodule\nsecond\nfirst");
	ck_assert_str_eq(sh("cd product && git ls-tree HEAD mods/sub"),
			 "160000 commit 1111111111111111111111111111111111111111\tmods/sub");
	ck_assert_str_eq(fingerprint("repo"), before);
	/* What the user does with it. */
	sh("cp -a repo mine && cd mine && git fetch -q ../product orch/run-1 && git merge -q "
	   "FETCH_HEAD");
	ck_assert_str_eq(sh("cd mine && git rev-parse HEAD"), outcome.commit);

	/* The same history in packs, without loose refs, bare, gives the same commits. */
	sh("git clone -q --bare --no-local repo bare.git && cd bare.git && git gc -q && git "
	   "pack-refs --all");
	deliver_on("bare.git", "product2", &packed, false);
	ck_assert_str_eq(packed.commit, outcome.commit);
}
END_TEST

START_TEST(worktrees_and_shallow_clones)
{
	make_repository();
	sh("cd repo && git worktree add -q ../tree other");
	_cleanup_outcome_ struct outcome side = {0}, shallow = {0};
	run_import(&side, "tree", NULL);
	is_fine(&side);
	ck_assert_str_eq(side.commit, sh("cd repo && git rev-parse v1"));
	sh("git clone -q --depth 2 file://%s/repo cut", base);
	deliver_on("cut", "product", &shallow, true);
	ck_assert_str_eq(sh("cd product && git log --format=%%s"),
			 "T1\nno change\na submodule\nsecond");
}
END_TEST

/* Runs nothing of the original: neither here nor in the sandbox, where none of it ever is. */
START_TEST(a_hostile_repository_runs_nothing)
{
	make_repository();
	put("evil", "#!/bin/sh\ntouch \"$(dirname \"$0\")/marker\"\ncat\n");
	ck_assert_int_eq(chmod(at("evil"), 0755), 0);
	sh("cd repo && for key in core.fsmonitor core.sshCommand core.pager core.editor "
	   "core.askPass "
	   "filter.evil.smudge filter.evil.clean filter.evil.process diff.external "
	   "uploadpack.packObjectsHook "
	   "credential.helper gpg.program alias.read-tree; do git config $key %s/evil; done && "
	   "git config core.hooksPath .git/hooks && mkdir -p .git/hooks && "
	   "for hook in post-checkout pre-commit reference-transaction post-index-change; do "
	   "cp ../evil .git/hooks/$hook; done && mkdir -p .git/info && echo '* filter=evil' "
	   ">.git/info/attributes && "
	   "echo '* filter=evil' >.gitattributes && "
	   "git -c core.fsmonitor= -c core.hooksPath=/dev/null -c filter.evil.clean= -c "
	   "filter.evil.process= "
	   "add .gitattributes && git -c core.fsmonitor= -c core.hooksPath=/dev/null -c "
	   "filter.evil.process= "
	   "-c filter.evil.clean= commit -qm evil && rm -f marker ../marker .git/marker "
	   ".git/hooks/marker",
	   base);
	_cleanup_free_ char *before = strdup(fingerprint("repo"));
	_cleanup_outcome_ struct outcome outcome = {0};
	deliver_on("repo", "product", &outcome, false);
	ck_assert_str_eq(fingerprint("repo"), before);
	ck_assert_str_eq(sh("find . -name marker"), "");
	sh("cd product && git status && git log >/dev/null");
	ck_assert_str_eq(sh("find . -name marker"), "");
	/* The control: the same repository runs it if git is let into it. */
	sh("cd repo && git status >/dev/null 2>&1 || :");
	ck_assert_str_ne(sh("find . -name marker"), "");
}
END_TEST

static const struct {
	const char *script;
	int32_t code;
	const char *part;
} refusals[] = {
    {"mkdir repo", ORCH_EINVAL, "is not a git repository: give the folder of one"},
    {"echo x >repo", ORCH_EINVAL, "can not be opened"},
    {":", ORCH_ENOENT, "can not be opened"},
    {"git init -q repo", ORCH_ENOENT, "no commit that HEAD leads to"},
    {"mkdir repo && echo nonsense >repo/.git", ORCH_EINVAL, "is not a git repository"},
    {"mkdir repo && echo 'gitdir: /nowhere' >repo/.git", ORCH_EINVAL, "/nowhere"},
    {"git init -q r && mkdir repo && ln -s ../r/.git repo/.git", ORCH_EINVAL, "symbolic link"},
    {"git init -q --object-format=sha256 repo", ORCH_ENOTSUP, "SHA-256"},
    {"git init -q r && git -C r -c user.name=u -c user.email=u commit -q --allow-empty -m x && "
     "git clone -q --shared r repo",
     ORCH_ENOTSUP, "git repack -a -d"},
    {"git init -q repo && git -C repo config extensions.partialClone origin", ORCH_ENOTSUP,
     "--filter"},
    {"git init -q repo && cd repo && ln -s /etc/passwd x && git add x && git -c user.name=u -c "
     "user.email=u commit "
     "-qm x",
     ORCH_EDENIED, "absolute link"},
    {"git init -q repo && cd repo && echo x >x && git add x && git -c user.name=u -c user.email=u "
     "commit -qm x && "
     "rm -r .git/objects/??",
     ORCH_ENOENT, "no commit"},
    {"git init -q repo && cd repo && echo x >x && git add x && git -c user.name=u -c user.email=u "
     "commit -qm x && "
     "rm .git/objects/58/7be6b4c3f93f93c489c0111bba5596147a26cb",
     ORCH_ECORRUPT, "587be6b4"},
    {"git init -q repo && cd repo && echo x >x && git add x && git -c user.name=u -c user.email=u "
     "commit -qm x && "
     "rm -f .git/objects/58/7be6b4c3f93f93c489c0111bba5596147a26cb && "
     "ln -s /etc/passwd .git/objects/58/7be6b4c3f93f93c489c0111bba5596147a26cb",
     ORCH_ESYS, "can not be copied"},
    {"git init -q repo && rm repo/.git/HEAD && ln -s /etc/passwd repo/.git/HEAD", ORCH_EINVAL,
     "is not a git repository"},
};

START_TEST(what_can_not_be_taken_in_is_said)
{
	sh("%s", refusals[_i].script);
	_cleanup_outcome_ struct outcome outcome = {0};
	run_import(&outcome, "repo", NULL);
	failed(&outcome, refusals[_i].code, refusals[_i].part);
}
END_TEST

START_TEST(a_staging_folder_of_something_else)
{
	make_repository();
	_cleanup_outcome_ struct outcome imported = {0}, other = {0}, damaged = {0};
	run_import(&imported, "repo", NULL);
	is_fine(&imported);
	struct delivery_commit commit = {imported.hash, "c", 1};
	struct delivery delivery = order(&commit, 1);
	delivery.staging_dir = at("staging");
	delivery.base_commit = "1111111111111111111111111111111111111111";
	run_delivery(&other, &delivery);
	failed(&other, ORCH_EINVAL, "was imported at");
	put("staging/base", "nonsense");
	run_delivery(&damaged, &delivery);
	failed(&damaged, ORCH_ECORRUPT, "base is damaged");
}
END_TEST

/* --- as an ordinary user --------------------------------------------------------------------- */

START_TEST(works_for_an_ordinary_user)
{
	char program[PATH_MAX] = "";
	ck_assert_int_gt(readlink("/proc/self/exe", program, sizeof(program) - 1), 0);
	pid_t child = fork();
	if (child == 0) {
		if (setgroups(0, NULL) < 0 || setgid(1000) < 0 || setuid(1000) < 0)
			_exit(99);
		setenv(UNPRIVILEGED_ENV, "1", 1);
		execl(program, program, (char *)NULL);
		_exit(98);
	}
	int status = 0;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

int main(void)
{
	bool unprivileged = getenv(UNPRIVILEGED_ENV) != NULL;
	setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
	setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
	setenv("HOME", "/nowhere", 1);
	setenv("LC_ALL", "C.UTF-8", 1);
	umask(022);

	Suite *suite = suite_create(unprivileged ? "deliver as an ordinary user" : "deliver");
	TCase *tests = tcase_create("deliver");
	tcase_set_timeout(tests, 150);
	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_add_test(tests, a_new_product_is_a_clean_repository);
	tcase_add_test(tests, a_delivery_goes_on_from_the_repository);
	tcase_add_test(tests, a_hostile_repository_runs_nothing);
	if (!unprivileged) {
		tcase_add_test(tests, attributes_change_no_byte);
		tcase_add_test(tests, an_empty_tree_is_delivered);
		tcase_add_test(tests, bad_orders_are_refused);
		tcase_add_test(tests, freed_while_git_runs);
		tcase_add_test(tests, a_repository_comes_in);
		tcase_add_loop_test(tests, an_unknown_revision_is_named, 0, COUNT(bad_revisions));
		tcase_add_test(tests, worktrees_and_shallow_clones);
		tcase_add_loop_test(tests, what_can_not_be_taken_in_is_said, 0, COUNT(refusals));
		tcase_add_test(tests, a_staging_folder_of_something_else);
		if (geteuid() == 0)
			tcase_add_test(tests, works_for_an_ordinary_user);
	}
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failures = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
