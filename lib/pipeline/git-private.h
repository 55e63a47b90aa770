/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_GIT_PRIVATE_H
#define ORCH_GIT_PRIVATE_H

/*
 * The host's side of git: it reads and writes files of repositories, and never runs git. What git
 * does it does in a sandbox (git-job.c), on copies, without any configuration but ours.
 */

#include "deliver.h"
#include "tree-private.h"
#include "verify-private.h"

#define COMMIT_SIZE 41 /* 40 hexadecimal digits and a NUL */

/* --- files of a repository (git-copy.c) ------------------------------------------------------ */

struct git_source {
	const char *name; /* in messages; borrowed */
	int fd;		  /* its git folder: HEAD */
	int common_fd;	  /* objects, refs; the same but in a worktree */
};

/*
 * ORCH_EINVAL: no repository; ORCH_ENOTSUP: one that can not be copied file by file (alternates,
 * SHA-256, reftable, partial clone).
 */
int32_t git_source_open(const char *repo_dir, struct git_source *source, orch_error **reterr);
void git_source_close(struct git_source *source);
#define _cleanup_git_source_ __attribute__((cleanup(git_source_close)))
/* HEAD, objects, refs, packed-refs, shallow; into an existing folder. */
int32_t git_copy_source(const struct git_source *source, int target_fd, orch_error **reterr);
/* objects, and index and shallow if they are there. */
int32_t git_copy_result(int from_fd, const char *name, int target_fd, orch_error **reterr);
/* A small file of ours beneath a folder that nobody else writes. */
int32_t git_write(int dir_fd, const char *path, const char *text, orch_error **reterr);
bool is_commit_id(const char *text);

/* --- git in a sandbox (git-job.c) ------------------------------------------------------------ */

struct git_job {
	orch_ctx *ctx;
	struct cell *cell;
	orch_source *timer;
	bool timed_out, done;
	const char *argv[8]; /* /bin/sh -c SCRIPT git ARGUMENT ... */
	/* When it is over; `status` is the exit code, -1 for a signal. Not called after an error of
	 * the sandbox. */
	int32_t (*finish)(struct git_job *job, int32_t status, orch_error **reterr);
	void (*report)(struct git_job *job, const char *deaths, const orch_error *error);
	char *scratch; /* removed at the end */

	/* What the kinds of jobs need: import.c and deliver.c. */
	char *repo, *base_rev, *staging, *trees_dir, *product, *branch, *base_commit;
	char tree_hash[TREE_HASH_SIZE];
	char commit[COMMIT_SIZE];
	repo_import_fn import_fn;
	deliver_fn deliver_fn;
	void *userdata;
};

/* Readable at `inner`, or the workspace. */
struct git_mount {
	const char *host, *inner;
};

/* With git's environment; the first mount is the workspace, the list ends with a NULL host. */
int32_t git_job_start(struct git_job *job, const char *label, const struct git_mount *mounts,
		      orch_error **reterr);
/* The error for an exit code that the job does not know: what git said. */
int32_t git_job_fail(const struct git_job *job, int32_t status, const char *what,
		     orch_error **reterr);
/* Text that git printed; ends with a NUL, may have others. */
const char *git_job_output(const struct git_job *job, size_t *ret_length);

/* --- parts of a delivery (deliver-stream.c) -------------------------------------------------- */

/* What "git fast-import" reads: one commit for each, as changes to the tree before. */
int32_t delivery_write_stream(const struct delivery *delivery, const char *base_tree, int fd,
			      orch_error **reterr);

/* Attributes under which git changes no byte, whatever the files of a tree say. */
extern const char git_raw_attributes[];
/* The record of an import in its staging folder. */
int32_t staging_read(const char *staging_dir, char ret_commit[COMMIT_SIZE],
		     char ret_tree[TREE_HASH_SIZE], orch_error **reterr);

#endif
