/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_TREE_H
#define ORCH_TREE_H

/*
 * Trees of files that cross a border. No host tool ever runs in one; every path is resolved beneath its folder
 * and through no link (linux/tree-open.c, darwin/tree-open.c), because the other side may still be changing it.
 */

#include "../core/core-private.h"

#define TREE_HASH_SIZE 65 /* 64 hexadecimal digits and a NUL */

/* The hash of the tree without any entry. */
extern const char tree_empty_hash[TREE_HASH_SIZE];

struct tree_limits {
	uint64_t bytes;       /* 0: 512 MiB */
	uint32_t entries;     /* 0: 50000 */
	uint32_t path_length; /* 0: 1024 */
};

/*
 * Copies what may cross from `source_dir` into `trees_dir`/HASH (made if missing; modes 0644, 0755, folders 0755; .git at any
 * depth and empty folders left out), synced and renamed into place; an existing one is kept. Names are UTF-8 without control
 * characters and backslashes. ORCH_EDENIED names the entry: device, socket, fifo, link that
 * leaves the tree or is absolute; ORCH_ETOOBIG names the limit; ORCH_ESYS.
 */
int32_t tree_import(const char *source_dir, const char *trees_dir, const struct tree_limits *limits,
		    char ret_hash[TREE_HASH_SIZE], orch_error **reterr);
/* A writable copy of a stored tree in `target_dir` (made; must not exist). Verifies the hash of what it read. */
int32_t tree_checkout(const char *trees_dir, const char *hash, const char *target_dir, orch_error **reterr);
/* ORCH_ECORRUPT if what is stored under the hash does not have it. */
int32_t tree_verify(const char *trees_dir, const char *hash, orch_error **reterr);

#define TREE_ADDED 'A'
#define TREE_MODIFIED 'M'
#define TREE_DELETED 'D'
typedef int32_t (*tree_change_fn)(void *userdata, char change, const char *path);
/* Sorted by path; ends early with the callback's value when that is not 0. */
int32_t tree_changes(const char *trees_dir, const char *from_hash, const char *to_hash, tree_change_fn fn,
		     void *userdata, orch_error **reterr);
/* A unified diff as text for a reviewer, bounded to `limit` bytes (said in it); the caller frees. */
int32_t tree_diff(const char *trees_dir, const char *from_hash, const char *to_hash, size_t limit,
		  char **ret_text, orch_error **reterr);
/*
 * The tree `ours` with the changes base -> theirs on it. ORCH_ECONFLICT: a path was changed on both sides to different
 * content (each named in the message).
 */
int32_t tree_merge(const char *trees_dir, const char *base, const char *ours, const char *theirs,
		   char ret_hash[TREE_HASH_SIZE], orch_error **reterr);

/* Removes a folder and all in it (not following links, not leaving the file system). Missing: 0. */
int32_t tree_remove(const char *dir, orch_error **reterr);
/* Reads a regular file under `dir` by relative path, no links followed. ORCH_ENOENT, ORCH_ETOOBIG, ORCH_EDENIED. */
int32_t tree_read_file(const char *dir, const char *path, size_t limit, void **ret_bytes, size_t *ret_length,
		       orch_error **reterr);
/* Writes a file durably: temporary name, fsync, rename, fsync of the folder. Folders are made. */
int32_t tree_write_file(const char *path, const void *bytes, size_t length, uint32_t mode,
			orch_error **reterr);

#endif
