/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_DELIVER_H
#define ORCH_DELIVER_H

/*
 * Git, always inside a sandbox: reading an existing repository, and writing the delivered one. Both are
 * asynchronous; the callbacks come once, in the context's loop. All sandboxes are stopped before that, their certificates'
 * texts are given as `deaths`.
 */

#include <orch/sandbox.h>

#include "tree.h"

struct git_job;

/*
 * Copies the repository's git data (the original is only read, never run in; .git may be a folder or a bare repository; a
 * worktree's .git file is followed) to `staging_dir`, and there, in a sandbox, checks out `base_rev` (NULL: HEAD) and imports that
 * tree into `trees_dir`.
 */
typedef void (*repo_import_fn)(void *userdata, const char *tree_hash, const char *commit,
			       const char *deaths, const orch_error *error);
int32_t repo_import_start(orch_ctx *ctx, const char *repo_dir, const char *base_rev,
			  const char *staging_dir, const char *trees_dir, repo_import_fn fn, void *userdata,
			  struct git_job **ret_job, orch_error **reterr);

struct delivery_commit {
	const char *tree_hash;
	const char *message;
	int64_t time_s; /* author and committer date, so that a repeated delivery gives the same commits */
};

struct delivery {
	const char *trees_dir;
	const char *work_dir;    /* a folder of its own for scratch; removed at the end */
	const char *product_dir; /* written at the end by rename; an existing one is replaced */
	const char *staging_dir; /* of repo_import_start(), or NULL: a new repository */
	const char *base_commit; /* with staging_dir */
	const char *branch;      /* "main", or "orch/RUN" on an existing repository */
	const struct delivery_commit *commits;
	size_t commit_count;
};

/* A clean repository: no hooks, only our config, the branch checked out, work tree equal to the last tree hash. */
typedef void (*deliver_fn)(void *userdata, const char *head_commit, const char *deaths,
			   const orch_error *error);
int32_t deliver_start(orch_ctx *ctx, const struct delivery *delivery, deliver_fn fn, void *userdata,
		      struct git_job **ret_job, orch_error **reterr);

/* Kills a job that is under way: no callback then. Takes NULL, returns NULL. Also frees a finished one. */
struct git_job *git_job_free(struct git_job *job);

#endif
