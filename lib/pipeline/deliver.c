/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the delivered repository. git makes objects and an index in a sandbox; the repository
 * itself is put together here, from those, from files that are ours and from the stored tree: there
 * is no way for anything else to get into it.
 *
 *     work/box/git    what git wrote        work/in/stream   what it was told
 *     work/box/tree   its own checkout, only to be compared with the stored tree
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "../core/os.h"
#include "document-private.h"
#include "git-private.h"

static const char product_config[] = "[core]\n"
				     "\trepositoryformatversion = 0\n"
				     "\tfilemode = true\n"
				     "\tbare = false\n"
				     "\tlogallrefupdates = true\n";

/*
 * Arguments: branch, base commit or nothing. Prints the head commit in a line, then the index's
 * submodules, each ending in a NUL.
 */
static const char delivery_script[] =
    "set -e\n"
    "export GIT_DIR=/work/git\n"
    "git init --quiet --bare --template= --initial-branch=\"$1\" /work/git\n"
    "git config core.bare false\n"
    "mkdir -p /work/git/info /work/tree\n"
    "cp /in/attributes /work/git/info/attributes\n"
    "if [ -n \"$2\" ]; then\n"
    "	if [ -f /git/shallow ]; then cp /git/shallow /work/git/shallow; fi\n"
    "	printf '%s\\n' \"$2\" | git --git-dir=/git pack-objects --quiet --revs --stdout "
    ">/work/base.pack\n"
    "	git index-pack --stdin </work/base.pack >/work/base.txt\n"
    "fi\n"
    "git fast-import --quiet --done --date-format=raw </in/stream\n"
    "git fsck --connectivity-only --no-dangling --no-progress >/work/fsck.txt\n"
    "git --work-tree=/work/tree read-tree HEAD\n"
    "git --work-tree=/work/tree checkout-index --all --quiet --index\n"
    "git rev-parse --verify HEAD\n"
    "git --work-tree=/work/tree ls-files --stage -z | grep -z '^160000 ' || :\n";

/* --- preparing ------------------------------------------------------------------------------- */

static bool is_branch(const char *name)
{
	size_t length = name ? strlen(name) : 0;
	if (!length || length > 200 || strchr("-/.", *name) || strchr("/.", name[length - 1]) ||
	    strstr(name, "..") || strstr(name, "//") || strstr(name, "/.") || strstr(name, ".lock"))
		return false;
	return !name[strspn(name,
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-")];
}

static int32_t check_delivery(const struct delivery *delivery, orch_error **reterr)
{
	if (!delivery || !delivery->trees_dir || !delivery->work_dir || !delivery->product_dir)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "a folder of the delivery is missing");
	if (!delivery->commits || !delivery->commit_count)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "a delivery needs at least one commit");
	if (!is_branch(delivery->branch))
		return orch_fail(
		    reterr, ORCH_EINVAL, 0, NULL,
		    "\"%s\" is not a plain branch name: use letters, digits, . _ - and /",
		    delivery->branch ? delivery->branch : "");
	if (delivery->staging_dir &&
	    (!delivery->base_commit || !is_commit_id(delivery->base_commit)))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "the base commit is missing or not a commit's id");
	return 0;
}

static int32_t find_base_tree(const struct delivery *delivery, char ret_tree[TREE_HASH_SIZE],
			      orch_error **reterr)
{
	char commit[COMMIT_SIZE];
	memcpy(ret_tree, tree_empty_hash, TREE_HASH_SIZE);
	if (!delivery->staging_dir)
		return 0;
	int32_t code = staging_read(delivery->staging_dir, commit, ret_tree, reterr);
	if (!code && strcmp(commit, delivery->base_commit))
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s was imported at %s, not at %s",
				 delivery->staging_dir, commit, delivery->base_commit);
	return code;
}

static int32_t prepare(const struct delivery *delivery, orch_error **reterr)
{
	char base[TREE_HASH_SIZE];
	_cleanup_close_ int work = -1, stream = -1;
	int32_t code = find_base_tree(delivery, base, reterr);
	if (!code)
		code = tree_remove(delivery->work_dir, reterr);
	if (!code && mkdir(delivery->work_dir, 0700) < 0)
		code = tree_fail_write(delivery->work_dir, reterr);
	if (!code)
		code = tree_open_root(delivery->work_dir, &work, reterr);
	if (code < 0)
		return code;
	code = git_write(work, "in/attributes", git_raw_attributes, reterr);
	if (!code && mkdirat(work, "box", 0755) < 0)
		code = tree_fail_write(delivery->work_dir, reterr);
	if (code < 0)
		return code;
	stream = tree_open(work, "in/stream", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (stream < 0 || fchmod(stream, 0644) < 0)
		return tree_fail_write(delivery->work_dir, reterr);
	return delivery_write_stream(delivery, base, stream, reterr);
}

/* --- judging what git made ------------------------------------------------------------------- */

static int32_t compare_checkout(const struct git_job *job, int box, orch_error **reterr)
{
	_cleanup_manifest_ struct manifest manifest = {0};
	char hash[TREE_HASH_SIZE];
	const struct tree_limits limits = {
	    .bytes = UINT64_MAX / 2, .entries = UINT32_MAX, .path_length = 4096};
	_cleanup_close_ int tree = tree_open(box, "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (tree < 0)
		return orch_fail(reterr, ORCH_ECORRUPT, errno, "git", "git made no checkout");
	int32_t code = tree_scan(tree, "git's checkout", -1, &limits, &manifest, reterr);
	if (code < 0)
		return code;
	manifest_hash(&manifest, hash);
	return strcmp(hash, job->tree_hash)
		   ? orch_fail(reterr, ORCH_ECORRUPT, 0, "git",
			       "the delivered commit has the tree %s, not the verified %s", hash,
			       job->tree_hash)
		   : 0;
}

/* A submodule is an empty folder in a checkout. */
static int32_t make_submodules(const struct git_job *job, int target, orch_error **reterr)
{
	size_t length;
	const char *at = git_job_output(job, &length), *end = at + length;
	for (at += COMMIT_SIZE; at < end; at += strlen(at) + 1) {
		const char *path = strchr(at, '\t'), *name = NULL;
		if (!path || write_path_fault(path + 1))
			return orch_fail(reterr, ORCH_ECORRUPT, 0, "git",
					 "git named a submodule in an unknown way");
		_cleanup_close_ int place = tree_make_place(target, path + 1, &name);
		if (place < 0 || (mkdirat(place, name, 0755) < 0 && errno != EEXIST))
			return tree_fail_write(path + 1, reterr);
	}
	return 0;
}

/* --- the product ----------------------------------------------------------------------------- */

static int32_t fill_git_folder(const struct git_job *job, int from, int target, orch_error **reterr)
{
	_cleanup_free_ char *head = orch_strdup_printf("ref: refs/heads/%s\n", job->branch);
	_cleanup_free_ char *ref_path = orch_strdup_printf("refs/heads/%s", job->branch);
	_cleanup_free_ char *ref = orch_strdup_printf("%s\n", job->commit);
	if (!head || !ref_path || !ref)
		return orch_fail_memory(reterr);
	int32_t code = git_copy_result(from, "git's work", target, reterr);
	if (!code)
		code = git_write(target, "config", product_config, reterr);
	if (!code)
		code = git_write(target, ref_path, ref, reterr);
	if (!code)
		code = git_write(target, "HEAD", head, reterr);
	return code;
}

static int32_t fill_product(const struct git_job *job, int box, const char *dir,
			    orch_error **reterr)
{
	_cleanup_close_ int target = -1, git = -1;
	_cleanup_close_ int from = tree_open(box, "git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (from < 0)
		return orch_fail(reterr, ORCH_ECORRUPT, errno, "git", "git made no repository");
	int32_t code = tree_checkout(job->trees_dir, job->tree_hash, dir, reterr);
	if (!code)
		code = tree_open_root(dir, &target, reterr);
	if (!code)
		code = make_submodules(job, target, reterr);
	if (code < 0)
		return code;
	if (mkdirat(target, ".git", 0755) < 0)
		return tree_fail_write(dir, reterr);
	git = tree_open(target, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (git < 0 || fchmod(git, 0755) < 0)
		return tree_fail_write(dir, reterr);
	code = fill_git_folder(job, from, git, reterr);
	return !code && orch_sync_all(git) < 0 ? tree_fail_write(dir, reterr) : code;
}

/* There is a whole product at any moment, the old one or the new. */
static int32_t put_in_place(const char *draft, const char *product, orch_error **reterr)
{
	if (!orch_rename_new(AT_FDCWD, draft, AT_FDCWD, product))
		return tree_sync_parent(product) < 0 ? tree_fail_write(product, reterr) : 0;
	if (errno != EEXIST || orch_rename_swap(draft, product) < 0)
		return tree_fail_write(product, reterr);
	if (tree_sync_parent(product) < 0)
		return tree_fail_write(product, reterr);
	return tree_remove(draft, reterr);
}

static int32_t finish_delivery(struct git_job *job, int32_t status, orch_error **reterr)
{
	_cleanup_close_ int work = -1, box = -1;
	size_t length;
	const char *output = git_job_output(job, &length);
	if (status)
		return git_job_fail(job, status, "the repository could not be written", reterr);
	if (length >= COMMIT_SIZE)
		memcpy(job->commit, output, COMMIT_SIZE - 1);
	if (!is_commit_id(job->commit))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "git",
				 "git did not name the commit that it made");

	int32_t code = tree_open_root(job->scratch, &work, reterr);
	if (code < 0)
		return code;
	box = tree_open(work, "box", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (box < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "git", "git's folder is gone");
	_cleanup_free_ char *draft = orch_strdup_printf("%s.draft", job->product);
	code = draft ? compare_checkout(job, box, reterr) : orch_fail_memory(reterr);
	if (!code)
		code = tree_remove(draft, reterr);
	if (!code)
		code = fill_product(job, box, draft, reterr);
	if (!code)
		code = put_in_place(draft, job->product, reterr);
	if (code < 0 && draft)
		tree_remove(draft, NULL);
	return code;
}

static void report_delivery(struct git_job *job, const char *deaths, const orch_error *error)
{
	job->deliver_fn(job->userdata, error ? NULL : job->commit, deaths, error);
}

int32_t deliver_start(orch_ctx *ctx, const struct delivery *delivery, deliver_fn fn, void *userdata,
		      struct git_job **ret_job, orch_error **reterr)
{
	int32_t code = orch_ctx_check(ctx, reterr);
	if (!code)
		code = check_delivery(delivery, reterr);
	if (!code && !fn)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "no callback given");
	if (code < 0)
		return code;
	struct git_job *job = calloc(1, sizeof(*job));
	if (!job)
		return orch_fail_memory(reterr);
	bool based = delivery->staging_dir != NULL;
	*job = (struct git_job){
	    .ctx = orch_ctx_ref(ctx),
	    .finish = finish_delivery,
	    .report = report_delivery,
	    .scratch = strdup(delivery->work_dir),
	    .trees_dir = strdup(delivery->trees_dir),
	    .product = strdup(delivery->product_dir),
	    .branch = strdup(delivery->branch),
	    .base_commit = strdup(based ? delivery->base_commit : ""),
	    .deliver_fn = fn,
	    .userdata = userdata,
	};
	_cleanup_free_ char *box = orch_strdup_printf("%s/box", delivery->work_dir);
	_cleanup_free_ char *in = orch_strdup_printf("%s/in", delivery->work_dir);
	_cleanup_free_ char *git =
	    based ? orch_strdup_printf("%s/git", delivery->staging_dir) : NULL;
	if (!job->scratch || !job->trees_dir || !job->product || !job->branch ||
	    !job->base_commit || !box || !in || (based && !git)) {
		git_job_free(job);
		return orch_fail_memory(reterr);
	}
	snprintf(job->tree_hash, sizeof(job->tree_hash), "%s",
		 delivery->commits[delivery->commit_count - 1].tree_hash);
	const char *const argv[] = {"/bin/sh", "-c",	    delivery_script,
				    "git",     job->branch, job->base_commit};
	memcpy(job->argv, argv, sizeof(argv));
	const struct git_mount mounts[] = {
	    {box, "/work"}, {in, "/in"}, {git, "/git"}, {NULL, NULL}};
	code = prepare(delivery, reterr);
	if (!code)
		code = git_job_start(job, "git-deliver", mounts, reterr);
	if (code < 0) {
		tree_remove(delivery->work_dir, NULL);
		git_job_free(job);
	} else {
		*ret_job = job;
	}
	return code;
}
