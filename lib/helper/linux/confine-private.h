/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CONFINE_PRIVATE_H
#define ORCH_CONFINE_PRIVATE_H

/* What the confine-*.c files share. Everything here runs in orch-reaper, which links nothing but
 * libc. */

#include <stddef.h>
#include <sys/types.h>

#include <orch/error.h>
#include <orch/sandbox.h>

#include "../../sandbox/spec.h"
#include "linux.h"

struct sock_filter;

/* A host file or folder on its way inside: first a path, then a detached mount, then attached. */
struct confine_tree {
	const char *host;
	const char *inner;
	uint32_t access;
	bool optional; /* of the root preset: a missing one is left out */
	bool surplus;  /* of a test that leaves out the root: no rule allows it */
	bool plain;    /* of a test that leaves out the attributes */
	bool device;   /* device nodes are usable */
	int fd;	       /* detached mount, or -1 */
	bool folder;
	bool attached;
};

struct confine {
	void *spec; /* the file's bytes; everything below points into it */
	const struct orch_spec_header *header;
	const char *strings;
	const struct orch_spec_mount *mounts;
	const struct sock_filter *filter;
	const char **environment;
	struct confine_tree *trees;
	size_t tree_count;
	int root_fd; /* the new root while it is built */
};

/* (error, code, os_errno, step, format, ...): fills in *error and gives -1. */
#define confine_fail(...) (setup_fail(__VA_ARGS__), -1)

/* Takes NULL. */
void confine_free(struct confine *confine);

/* The refusal of a required but missing seccomp. -1. */
int confine_no_seccomp(int os_errno, struct setup_error *error);

/* confine-tree.c: opening host paths and making detached mounts of them. */

/* Lists the preset's and the declared trees (nothing is opened). */
int confine_trees_list(struct confine *confine, struct setup_error *error);
/* Opens all of them; `own_uid` not 0: hands ORCH_PATH_OWN folders to it. */
int confine_trees_open(struct confine *confine, uid_t own_uid, struct setup_error *error);
void confine_trees_close(struct confine *confine);

/* confine-own.c: changes the owner of everything below `fd` (O_PATH), which is `path` on the host.
 */
int confine_own(int fd, const char *path, uid_t uid, struct setup_error *error);

/* confine-root.c: the new root, built in PID 1 and entered. */
int confine_root_build(struct confine *confine, struct setup_error *error);

/* confine-landlock.c: builds the domain from what is mounted and enters it. */
int confine_landlock(const struct confine *confine, struct setup_error *error);

#endif
