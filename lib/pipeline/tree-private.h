/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TREE_PRIVATE_H
#define ORCH_TREE_PRIVATE_H

#include <sodium.h>
#include <sys/stat.h>

#include "tree.h"

#define TREE_DEPTH_MAX 64

/* --- opening: linux/tree-open.c, darwin/tree-open.c; -1 with errno ----------------------------- */

/* Beneath `dir_fd`, no links, no other file system: ELOOP, EXDEV. */
int tree_open(int dir_fd, const char *path, int flags, mode_t mode);
/*
 * What is there, under the same rules, and a descriptor that stands for it whatever becomes of its name. There
 * may be none (-1) for what is neither file, folder nor link.
 */
int tree_look(int dir_fd, const char *path, int *ret_fd, struct stat *status);
/* For a path of the host: only its last component is no link. */
int tree_look_root(const char *path, int *ret_fd, struct stat *status);
/* A file that was looked at, opened for reading; `quietly` keeps the time of its last access where that can be. */
int tree_read_looked(int look_fd, bool quietly);
/* readlink(2) of a link that was looked at. */
ssize_t tree_read_link(int look_fd, char *target, size_t size);
/* A folder for reading and changing, whatever its mode was. */
int tree_open_to_empty(int dir_fd, const char *name);

/* --- opening, in common ---------------------------------------------------------------------- */

/* A folder named by the host; its last component is no link. */
int32_t tree_open_root(const char *dir, int *ret_fd, orch_error **reterr);
/* A regular file beneath `dir_fd`, whose name is `dir`. Errors as tree_read_file(). */
int32_t tree_open_file(int dir_fd, const char *dir, const char *path, int *ret_fd,
		       orch_error **reterr);
/* The folders that lead to `path`, 0755, synced. */
int32_t tree_make_folders(const char *path, orch_error **reterr);
/* So that the name itself survives a power loss. -1 with errno. */
int tree_sync_parent(const char *path);
/* Leaves the folder itself, and `fd` open. `what` names it in messages. */
int32_t tree_remove_contents(int fd, const char *what, orch_error **reterr);
/* Until the end of the file; at most `limit` bytes; NUL-terminated. */
int32_t tree_read_all(int fd, const char *what, size_t limit, void **ret_bytes, size_t *ret_length,
		      orch_error **reterr);
int tree_write_all(int fd, const void *bytes, size_t length);

/* --- names ----------------------------------------------------------------------------------- */

/* Length of the UTF-8 character at `text`, 0 if it is none. */
size_t utf8_length(const char *text, size_t available);
/* For messages: control characters and stray bytes escaped. The caller frees; NULL without memory.
 */
char *path_text(const char *path);
/* NULL, or why a file of that name can not be in a tree (.git itself is simply left out). */
const char *name_fault(const char *name);
bool name_is_git(const char *name);
/* NULL, or why a link at that depth (0: in the root) may not have that target. */
const char *link_fault(const char *name, const char *target, unsigned depth);

/* --- manifests ------------------------------------------------------------------------------- */

#define TREE_FILE 'f'
#define TREE_PROGRAM 'x'
#define TREE_LINK 'l'

struct tree_entry {
	char *path;
	uint64_t size;
	char hash[TREE_HASH_SIZE]; /* of the content; of the target for a link */
	char type;
};

struct manifest {
	struct tree_entry *entries; /* sorted by path */
	size_t count, capacity;
};

void manifest_free(struct manifest *manifest);
#define _cleanup_manifest_ __attribute__((cleanup(manifest_free)))
/* Appends; the path is copied. */
bool manifest_add(struct manifest *manifest, const struct tree_entry *entry);
void manifest_sort(struct manifest *manifest);
void manifest_hash(const struct manifest *manifest, char ret_hash[TREE_HASH_SIZE]);
const struct tree_entry *manifest_find(const struct manifest *manifest, const char *path);
const char *entry_mode(char type); /* as git writes it: "100644" */

/*
 * Reads all of `source_fd`, copies it beneath `target_fd` (-1: only reads), and makes its manifest.
 * `what` is the folder's name in messages.
 */
int32_t tree_scan(int source_fd, const char *what, int target_fd, const struct tree_limits *limits,
		  struct manifest *manifest, orch_error **reterr);
/* Hash and, if `target_fd` is not -1, a copy, of one regular file. `limit` bytes at most. */
int32_t tree_copy_file(int source_fd, int target_fd, const char *path, uint64_t limit,
		       uint64_t *ret_size, char ret_hash[TREE_HASH_SIZE], orch_error **reterr);

/* The folder that `path` goes into, made beneath `root_fd`; its last component in *ret_name. -1
 * with errno. */
int tree_make_place(int root_fd, const char *path, const char **ret_name);

/* --- the store ------------------------------------------------------------------------------- */

struct tree_draft {
	int store_fd; /* trees_dir */
	int fd;	      /* the new tree in it */
	char name[48];
};

int32_t draft_begin(const char *trees_dir, struct tree_draft *draft, orch_error **reterr);
/* Syncs, renames to the hash, syncs the store. An existing tree of the hash is kept. */
int32_t draft_commit(struct tree_draft *draft, const char *hash, orch_error **reterr);
/* Removes what was not committed, and closes. */
void draft_end(struct tree_draft *draft);
#define _cleanup_draft_ __attribute__((cleanup(draft_end)))

/* The manifest of a stored tree, verified. The empty tree need not be stored. ORCH_ENOENT,
 * ORCH_ECORRUPT. */
int32_t tree_load(const char *trees_dir, const char *hash, struct manifest *manifest,
		  orch_error **reterr);
int32_t tree_open_stored(const char *trees_dir, const char *hash, int *ret_fd, orch_error **reterr);
/* ORCH_ENOSPC for a full disk, else ORCH_ESYS. */
int32_t tree_fail_write(const char *path, orch_error **reterr);

#endif
