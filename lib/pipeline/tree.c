/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "../core/os.h"
#include "tree-private.h"

/* SHA-256 of nothing. */
const char tree_empty_hash[TREE_HASH_SIZE] =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* A stored tree was within its limits when it came in. */
static const struct tree_limits no_limits = {
    .bytes = UINT64_MAX / 2, .entries = UINT32_MAX, .path_length = 1u << 20};

static bool is_hash(const char *hash)
{
	return hash && strlen(hash) == 64 && strspn(hash, "0123456789abcdef") == 64;
}

/* --- the store ------------------------------------------------------------------------------- */

int32_t tree_open_stored(const char *trees_dir, const char *hash, int *ret_fd, orch_error **reterr)
{
	_cleanup_close_ int store = -1;
	if (!is_hash(hash))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "\"%.80s\" is not the hash of a tree", hash ? hash : "");
	int32_t code = tree_open_root(trees_dir, &store, reterr);
	if (code < 0)
		return code;
	int fd = tree_open(store, hash, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (fd < 0)
		return orch_fail(reterr, errno == ENOENT ? ORCH_ENOENT : ORCH_ESYS, errno, NULL,
				 "the tree %s is not in %s", hash, trees_dir);
	*ret_fd = fd;
	return 0;
}

/* Whether the hash is the empty tree's and nothing is stored under it: that is fine. */
static bool is_absent_empty(const char *trees_dir, const char *hash)
{
	_cleanup_close_ int fd = -1;
	return hash && !strcmp(hash, tree_empty_hash) &&
	       tree_open_stored(trees_dir, hash, &fd, NULL) < 0;
}

static int32_t check_hash(const struct manifest *manifest, const char *trees_dir, const char *hash,
			  orch_error **reterr)
{
	char found[TREE_HASH_SIZE];
	manifest_hash(manifest, found);
	return strcmp(found, hash) ? orch_fail(reterr, ORCH_ECORRUPT, 0, NULL,
					       "the tree stored in %s as %s has the hash %s: it "
					       "was changed or is damaged",
					       trees_dir, hash, found)
				   : 0;
}

/* A stored tree that can not even be read as one has been changed, too. */
static int32_t scan_stored(const char *trees_dir, const char *hash, int fd, int target_fd,
			   struct manifest *manifest, orch_error **reterr)
{
	orch_error *error = NULL;
	int32_t code = tree_scan(fd, hash, target_fd, &no_limits, manifest, &error);
	if (!code)
		return check_hash(manifest, trees_dir, hash, reterr);
	if (code == ORCH_EDENIED || code == ORCH_ETOOBIG)
		code = orch_fail(reterr, ORCH_ECORRUPT, 0, NULL,
				 "the tree stored in %s was changed or is damaged: %s", trees_dir,
				 orch_error_message(error));
	else if (reterr)
		*reterr = ORCH_STEAL(error);
	orch_error_free(error);
	return code;
}

int32_t tree_load(const char *trees_dir, const char *hash, struct manifest *manifest,
		  orch_error **reterr)
{
	_cleanup_close_ int fd = -1;
	if (is_absent_empty(trees_dir, hash))
		return 0;
	int32_t code = tree_open_stored(trees_dir, hash, &fd, reterr);
	return code ? code : scan_stored(trees_dir, hash, fd, -1, manifest, reterr);
}

int32_t tree_verify(const char *trees_dir, const char *hash, orch_error **reterr)
{
	_cleanup_manifest_ struct manifest manifest = {0};
	return tree_load(trees_dir, hash, &manifest, reterr);
}

/* What an instance left behind that was killed while it imported: its drafts bear its pid. */
static void remove_stale_drafts(int store_fd)
{
	int own = openat(store_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = own < 0 ? NULL : fdopendir(own);
	if (!dir) {
		orch_close_fd(&own);
		return;
	}
	for (const struct dirent *entry; (entry = readdir(dir));) {
		int pid = 0;
		if (sscanf(entry->d_name, ".draft-%d-", &pid) != 1 || pid <= 0 || !kill(pid, 0) ||
		    errno != ESRCH)
			continue;
		_cleanup_close_ int fd =
		    tree_open(store_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
		if (fd >= 0 && !tree_remove_contents(fd, entry->d_name, NULL))
			unlinkat(store_fd, entry->d_name, AT_REMOVEDIR);
	}
	closedir(dir);
}

int32_t draft_begin(const char *trees_dir, struct tree_draft *draft, orch_error **reterr)
{
	char random[17];
	*draft = (struct tree_draft){.store_fd = -1, .fd = -1};
	if (!trees_dir || !*trees_dir)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "no folder for trees given");
	if (mkdir(trees_dir, 0755) < 0 && errno != EEXIST)
		return tree_fail_write(trees_dir, reterr);
	int32_t code = tree_open_root(trees_dir, &draft->store_fd, reterr);
	if (code < 0)
		return code;
	remove_stale_drafts(draft->store_fd);
	orch_random_hex(random, 8);
	snprintf(draft->name, sizeof(draft->name), ".draft-%d-%s", (int)getpid(), random);
	if (mkdirat(draft->store_fd, draft->name, 0700) < 0) {
		draft->name[0] = '\0';
		return tree_fail_write(trees_dir, reterr);
	}
	draft->fd = tree_open(draft->store_fd, draft->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (draft->fd < 0 || fchmod(draft->fd, 0755) < 0)
		return tree_fail_write(trees_dir, reterr);
	return 0;
}

int32_t draft_commit(struct tree_draft *draft, const char *hash, orch_error **reterr)
{
	/* One sync for all files: the rename must not become durable before what it names. */
	if (orch_sync_all(draft->fd) < 0)
		return tree_fail_write(hash, reterr);
	if (orch_rename_new(draft->store_fd, draft->name, draft->store_fd, hash) < 0) {
		if (errno == EEXIST)
			return 0;
		return tree_fail_write(hash, reterr);
	}
	draft->name[0] = '\0';
	return orch_sync(draft->store_fd) < 0 ? tree_fail_write(hash, reterr) : 0;
}

void draft_end(struct tree_draft *draft)
{
	if (draft->fd >= 0 && draft->name[0])
		tree_remove_contents(draft->fd, draft->name, NULL);
	if (draft->store_fd >= 0 && draft->name[0])
		unlinkat(draft->store_fd, draft->name, AT_REMOVEDIR);
	orch_close_fd(&draft->fd);
	orch_close_fd(&draft->store_fd);
}

/* --- in and out ------------------------------------------------------------------------------ */

int32_t tree_import(const char *source_dir, const char *trees_dir, const struct tree_limits *limits,
		    char ret_hash[TREE_HASH_SIZE], orch_error **reterr)
{
	_cleanup_manifest_ struct manifest manifest = {0};
	_cleanup_draft_ struct tree_draft draft = {.store_fd = -1, .fd = -1};
	_cleanup_close_ int source = -1;
	char hash[TREE_HASH_SIZE];

	int32_t code = tree_open_root(source_dir, &source, reterr);
	if (!code)
		code = draft_begin(trees_dir, &draft, reterr);
	if (!code)
		code = tree_scan(source, source_dir, draft.fd, limits, &manifest, reterr);
	if (code < 0)
		return code;
	manifest_hash(&manifest, hash);
	code = draft_commit(&draft, hash, reterr);
	if (!code)
		memcpy(ret_hash, hash, sizeof(hash));
	return code;
}

int32_t tree_checkout(const char *trees_dir, const char *hash, const char *target_dir,
		      orch_error **reterr)
{
	_cleanup_manifest_ struct manifest manifest = {0};
	_cleanup_close_ int source = -1, target = -1;
	bool empty = is_absent_empty(trees_dir, hash);

	int32_t code = empty ? 0 : tree_open_stored(trees_dir, hash, &source, reterr);
	if (code < 0)
		return code;
	if (!target_dir || !*target_dir)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "no folder to check the tree out to was given");
	if (mkdir(target_dir, 0755) < 0) {
		if (errno == EEXIST)
			return orch_fail(
			    reterr, ORCH_EEXIST, 0, NULL,
			    "%s exists already: a tree is only checked out to a new folder",
			    target_dir);
		return tree_fail_write(target_dir, reterr);
	}
	code = tree_open_root(target_dir, &target, reterr);
	if (!code && fchmod(target, 0755) < 0)
		code = tree_fail_write(target_dir, reterr);
	if (!code && !empty)
		code = scan_stored(trees_dir, hash, source, target, &manifest, reterr);
	if (code < 0)
		tree_remove(target_dir, NULL);
	return code;
}
