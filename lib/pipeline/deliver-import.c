/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking an existing repository in. The host copies files of it; git itself reads only the copy, in
 * a sandbox. The tree is what the commit has, byte by byte: no line ends are converted and no
 * filter runs, so that what nobody changes is the same again in the delivery.
 *
 *     staging/git/    the copy: HEAD, objects, refs; config and attributes are ours
 *     staging/box/    where git works; removed
 *     staging/base    "COMMIT TREE"
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "git-private.h"

#define NO_SUCH_REVISION 21
#define WORK "/work"

const char git_raw_attributes[] = "* -text -ident -filter !working-tree-encoding\n";

static const char bare_config[] =
    "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tprotectHFS = true\n";

/* Arguments: the revision. Prints the commit. */
static const char import_script[] =
    "set -e\n"
    "export GIT_DIR=/git GIT_INDEX_FILE=/work/index\n"
    "git rev-parse --verify --quiet --end-of-options \"$1^{commit}\" >/work/commit || exit 21\n"
    "read -r commit </work/commit\n"
    "git rev-list --count \"$commit\" >/work/count\n"
    "git read-tree \"$commit\"\n"
    "mkdir /work/tree\n"
    "git --work-tree=/work/tree checkout-index --all --quiet\n"
    "printf '%s\\n' \"$commit\"\n";

int32_t staging_read(const char *staging_dir, char ret_commit[COMMIT_SIZE],
		     char ret_tree[TREE_HASH_SIZE], orch_error **reterr)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length;
	int32_t code = tree_read_file(staging_dir, "base", 1000, &bytes, &length, reterr);
	if (code < 0)
		return code;
	if (sscanf(bytes, "%40[0-9a-f] %64[0-9a-f]", ret_commit, ret_tree) != 2 ||
	    strlen(ret_tree) != 64 || !is_commit_id(ret_commit))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, NULL,
				 "%s/base is damaged: import the repository again", staging_dir);
	return 0;
}

/* --- the copy -------------------------------------------------------------------------------- */

static int32_t copy_repository(const char *repo_dir, int staging, orch_error **reterr)
{
	_cleanup_git_source_ struct git_source source = {.fd = -1, .common_fd = -1};
	int32_t code = git_source_open(repo_dir, &source, reterr);
	if (code < 0)
		return code;
	if (mkdirat(staging, "git", 0755) < 0)
		return tree_fail_write("the staging folder", reterr);
	_cleanup_close_ int target =
	    tree_open(staging, "git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (target < 0 || fchmod(target, 0755) < 0)
		return tree_fail_write("the staging folder", reterr);
	code = git_copy_source(&source, target, reterr);
	if (!code)
		code = git_write(target, "config", bare_config, reterr);
	if (!code)
		code = git_write(target, "info/attributes", git_raw_attributes, reterr);
	return code;
}

static int32_t prepare(const struct git_job *job, orch_error **reterr)
{
	_cleanup_close_ int staging = -1;
	_cleanup_free_ char *below = orch_strdup_printf("%s/.", job->staging);
	int32_t code = below ? tree_make_folders(below, reterr) : orch_fail_memory(reterr);
	if (!code)
		code = tree_open_root(job->staging, &staging, reterr);
	if (code < 0)
		return code;
	/* Left behind by an instance that died. */
	code = tree_remove_contents(staging, job->staging, reterr);
	if (!code)
		code = copy_repository(job->repo, staging, reterr);
	if (!code && mkdirat(staging, "box", 0755) < 0)
		code = tree_fail_write(job->staging, reterr);
	return code;
}

/* --- the job --------------------------------------------------------------------------------- */

static int32_t take_commit(struct git_job *job, orch_error **reterr)
{
	size_t length;
	const char *output = git_job_output(job, &length);
	char commit[COMMIT_SIZE] = "";
	if (length == COMMIT_SIZE)
		memcpy(commit, output, COMMIT_SIZE - 1);
	if (!is_commit_id(commit))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "git", "git did not name a commit of %s",
				 job->repo);
	memcpy(job->commit, commit, COMMIT_SIZE);
	return 0;
}

static int32_t finish_import(struct git_job *job, int32_t status, orch_error **reterr)
{
	if (status == NO_SUCH_REVISION && !job->base_rev)
		return orch_fail(
		    reterr, ORCH_ENOENT, 0, NULL,
		    "the repository %s has no commit that HEAD leads to: commit something first",
		    job->repo);
	if (status == NO_SUCH_REVISION)
		return orch_fail(reterr, ORCH_ENOENT, 0, NULL,
				 "the repository %s has no revision \"%s\"", job->repo,
				 job->base_rev);
	if (status)
		return git_job_fail(job, status, "the repository could not be read", reterr);

	_cleanup_free_ char *tree = orch_strdup_printf("%s/tree", job->scratch);
	int32_t code = tree ? take_commit(job, reterr) : orch_fail_memory(reterr);
	if (!code)
		code = tree_import(tree, job->trees_dir, NULL, job->tree_hash, reterr);
	if (code < 0)
		return code;
	_cleanup_free_ char *path = orch_strdup_printf("%s/base", job->staging);
	_cleanup_free_ char *text = orch_strdup_printf("%s %s\n", job->commit, job->tree_hash);
	return path && text ? tree_write_file(path, text, strlen(text), 0644, reterr)
			    : orch_fail_memory(reterr);
}

static void report_import(struct git_job *job, const char *deaths, const orch_error *error)
{
	job->import_fn(job->userdata, error ? NULL : job->tree_hash, error ? NULL : job->commit,
		       deaths, error);
}

int32_t repo_import_start(orch_ctx *ctx, const char *repo_dir, const char *base_rev,
			  const char *staging_dir, const char *trees_dir, repo_import_fn fn,
			  void *userdata, struct git_job **ret_job, orch_error **reterr)
{
	int32_t code = orch_ctx_check(ctx, reterr);
	if (code < 0)
		return code;
	if (!repo_dir || !staging_dir || !trees_dir || !fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "repository, folders or callback missing");
	struct git_job *job = calloc(1, sizeof(*job));
	if (!job)
		return orch_fail_memory(reterr);
	*job = (struct git_job){
	    .ctx = orch_ctx_ref(ctx),
	    .finish = finish_import,
	    .report = report_import,
	    .scratch = orch_strdup_printf("%s/box", staging_dir),
	    .repo = strdup(repo_dir),
	    .base_rev = base_rev ? strdup(base_rev) : NULL,
	    .staging = strdup(staging_dir),
	    .trees_dir = strdup(trees_dir),
	    .import_fn = fn,
	    .userdata = userdata,
	};
	_cleanup_free_ char *git = orch_strdup_printf("%s/git", staging_dir);
	if (!job->scratch || !job->repo || !job->staging || !job->trees_dir || !git ||
	    (base_rev && !job->base_rev))
		code = orch_fail_memory(reterr);
	const char *const argv[] = {"/bin/sh", "-c", import_script, "git",
				    base_rev ? job->base_rev : "HEAD"};
	memcpy(job->argv, argv, sizeof(argv));
	const struct git_mount mounts[] = {{job->scratch, WORK}, {git, "/git"}, {NULL, NULL}};
	if (!code)
		code = prepare(job, reterr);
	if (!code)
		code = git_job_start(job, "git-import", mounts, reterr);
	if (code < 0)
		git_job_free(job);
	else
		*ret_job = job;
	return code;
}
