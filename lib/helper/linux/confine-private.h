/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_CONFINE_PRIVATE_H
#define ORCH_CONFINE_PRIVATE_H

/* What the confine-*.c files share. Everything here runs in orch-reaper, which links nothing but
 * libc. */

#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>
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
	uint32_t kind; /* ORCH_SPEC_* */
	bool optional; /* of the root preset: a missing one is left out */
	bool surplus;  /* of a test that leaves out the root: no rule allows it */
	bool plain;    /* of a test that leaves out the attributes */
	bool device;   /* device nodes are usable */
	int fd;	       /* the mount, detached at first; without namespaces O_PATH; or -1 */
	bool folder;
	bool attached;
	size_t above; /* 1 + the number of the declared tree that it lies in; 0: none */
	bool passed; /* denied, with something below it that is not: a mask of its own, with folders in it */
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
	bool queues; /* /dev/mqueue is there */
	int root_fd; /* the new root while it is built */
	int masks_fd; /* what covers denied paths, while the root is built; -1: nothing is denied */
	int private_fd; /* the root of the private file system */
	int lower_fd;	/* the host's folder below the overlay, or -1 */
	int listener_fd; /* of the broker's port in there; -1 */
	int ruleset_fd; /* Landlock's, until init enters it, or, without namespaces, for each program; -1 */
	/* Without namespaces: */
	bool bare;
	uid_t uid;	    /* of programs */
	uint64_t processes; /* RLIMIT_NPROC */
	const struct sock_filter *bare_filter;
};

/* (error, code, os_errno, step, format, ...): fills in *error and gives -1. */
#define confine_fail(...) (setup_fail(__VA_ARGS__), -1)

/* Takes NULL. */
void confine_free(struct confine *confine);

/* The refusal of a required but missing seccomp. -1. */
int confine_no_seccomp(int os_errno, struct setup_error *error);
/* Is it there? Asked before any program is: its own attempt would come too late to refuse the start. */
int confine_check_seccomp(struct setup_error *error);
/* Limits and umask of a program. */
int confine_limits(const struct confine *confine, uint64_t processes, struct setup_error *error);
/* A session keyring of this process's own: the user's has keys of everybody. */
int confine_keyring(const struct confine *confine, struct setup_error *error);
/*
 * No new privileges and the filter: made once, in init, because the kernel compiles a filter, and tries it for
 * each system call, when it is loaded: a fifth of a start of a program. Init itself makes no call that is denied after it.
 */
int confine_inherited(const struct confine *confine, struct setup_error *error);
/* What could give capabilities back, once they are dropped. Needs CAP_SETPCAP. */
int confine_bound_capabilities(const struct confine *confine, struct setup_error *error);
/* Then all sets of this process. */
int confine_drop_capabilities(const struct confine *confine, struct setup_error *error);

/* confine-beside.c: confine_root() beside the rest. */

struct confine_beside {
	struct confine *confine;
	pthread_t thread;
	bool runs;
	int result;
	struct setup_error error;
};

/* `beside` stays where it is until the end, which comes in any case. Neither paths nor the umask are used meanwhile. */
void confine_beside_begin(struct confine_beside *beside, struct confine *confine);
/* No other thread is left. */
int confine_beside_end(struct confine_beside *beside, struct setup_error *error);

/* confine-tree.c: opening host paths and making detached mounts of them. */

/* Lists the preset's and the declared trees (nothing is opened). */
int confine_trees_list(struct confine *confine, struct setup_error *error);
/* Opens all of them; `own_uid` not 0: hands ORCH_PATH_OWN folders to it. */
int confine_trees_open(struct confine *confine, uid_t own_uid, struct setup_error *error);
void confine_trees_close(struct confine *confine);

/* confine-own.c: changes the owner of everything below `fd` (O_PATH), which is `path` on the host.
 */
int confine_own(int fd, const char *path, uid_t uid, struct setup_error *error);

/* confine-root.c: the new root, built and entered in PID 1; nothing is left of the old one. And Landlock's ruleset for it. */
int confine_root(struct confine *confine, struct setup_error *error);
bool confine_is_below(const char *path, const char *folder);
/* Below `root`, never through a symbolic link. */
int confine_open_inner(int root, const char *path, uint64_t flags);
/* Makes the folders on the way to `path` (relative) and, at its end, a folder or an empty file. O_PATH descriptor. */
int confine_make_target(int root, const char *path, bool folder, struct setup_error *error);
/* A detached new file system; `options` are pairs, ended by NULL; a value of NULL is a flag. Those it does not know are an error. */
int confine_new_fs(const char *type, const char *const *options, unsigned int attr, struct setup_error *error);
/* Takes `mount` and `target`, also where one is -1. */
int confine_attach(int mount, int target, const char *inner, struct setup_error *error);
/*
 * Attaches `mount`, which stays open, in the old root, from where it goes away with that: older kernels clone nothing of a
 * detached mount, and what is cloned stays.
 */
int confine_attach_outside(int mount, const char *what, struct setup_error *error);

/* confine-mask.c: what lies over denied paths. */
bool confine_tree_denies(const struct confine_tree *tree);
/* Makes the masks, where nobody will see them, while the root is built. Nothing if nothing is denied. */
int confine_masks_make(struct confine *confine, struct setup_error *error);
/* Covers a denied path. Above and below it everything is attached in its turn. */
int confine_mask(struct confine *confine, struct confine_tree *tree, struct setup_error *error);
/* All is attached: no mask changes any more. */
int confine_masks_seal(struct confine *confine, struct setup_error *error);
/* confine-private-fs.c: one file system that holds all that programs write without a folder of the host. */

/* Makes it; `uid` not 0: its owner. */
int confine_private_make(struct confine *confine, uid_t uid, struct setup_error *error);
/* Attaches it outside. */
int confine_private_attach(const struct confine *confine, struct setup_error *error);
/* Shows its folder `name` at `inner`, for everybody to write, with `attr` besides its own. */
int confine_private_bind(const struct confine *confine, const char *name, const char *inner, uint64_t attr,
			 struct setup_error *error);
/* A detached overlay over `tree`, whose mount it takes. */
int confine_private_overlay(struct confine *confine, struct confine_tree *tree, struct setup_error *error);

/* confine-idmap.c: in the detached mount `mount`, what belongs to the owner and group of `st` belongs to `uid`. */
int confine_idmap(int mount, const struct stat *st, uid_t uid, const char *path, struct setup_error *error);

/* confine-landlock.c: builds a ruleset from what is mounted. None where it is off, or degradable and not there. */
int confine_landlock(struct confine *confine, struct setup_error *error);
/* Without namespaces: a ruleset of the opened trees, for confine_landlock_enter(). -1. */
int confine_landlock_bare(const struct confine *confine, struct setup_error *error);
int confine_landlock_enter(int ruleset, struct setup_error *error);

/* confine-bare.c: what confine_program() does without namespaces. */
int confine_bare_program(const struct confine *confine, struct setup_error *error);

#endif
