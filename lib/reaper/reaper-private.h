/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_REAPER_PRIVATE_H
#define ORCH_REAPER_PRIVATE_H

/*
 * What lib/sandbox needs of scopes beyond the public header: a scope whose init is confined by a
 * specification that lib/helper understands (lib/helper/confine.h).
 */

#include <orch/scope.h>

#include "../core/core-private.h"

struct orch_confinement {
	int spec_fd;	     /* sealed memfd; duplicated */
	uint32_t host_uid;   /* uid and gid of the load, as the host sees them */
	bool without_namespaces; /* a rung below ORCH_RUNG_PIDNS will do */
	bool wants_listener; /* 127.0.0.1:ORCH_BROKER_PORT inside is handed to the host */
};

int32_t orch_scope_new_confined(orch_ctx *ctx, const struct orch_scope_opts *opts,
				const struct orch_confinement *confinement, orch_scope **ret_scope,
				orch_error **reterr);

/* Comes once: the scope stands (error NULL) or failed. At once in the next turn if that is known
 * already. */
typedef void (*orch_scope_start_fn)(void *userdata, orch_scope *scope, const orch_error *error);
int32_t orch_scope_on_start(orch_scope *scope, orch_scope_start_fn fn, void *userdata,
			    orch_destroy_fn destroy, orch_error **reterr);

/* Programs can be started in it, as far as can be seen now: its helper and its init live, also where the loop did not hear of
 * their end yet. */
bool orch_scope_stands(const orch_scope *scope);

/* The listener, borrowed; -1 before the start or without one. Closed when the scope is stopped. */
int orch_scope_listener_fd(const orch_scope *scope);

/*
 * The root of the private file system of its load, and the host's folder that an overlay lies over; borrowed, -1: none.
 * Both stay after the scope's end, until the scope is freed or they are closed here: then the file system is gone with
 * the last process that has it.
 */
int orch_scope_private_fd(const orch_scope *scope);
int orch_scope_lower_fd(const orch_scope *scope);
void orch_scope_close_private(orch_scope *scope);

/*
 * `fn` is called once: when everything in the scope is certified to be dead, before the host hears of it, or when the scope
 * is freed. One at most.
 */
void orch_scope_at_end(orch_scope *scope, orch_destroy_fn fn, void *userdata);

/* A TCP connection to 127.0.0.1:port made by the scope's init. The fd belongs to the callback. */
typedef void (*orch_scope_connect_fn)(void *userdata, int32_t fd, const orch_error *error);
int32_t orch_scope_connect(orch_scope *scope, uint16_t port, orch_scope_connect_fn fn,
			   void *userdata, orch_destroy_fn destroy, orch_error **reterr);

/*
 * Like orch_scope_spawn(), but what runs in the confined child is confine_probe(name), compiled
 * into the helper, with stdout as given. For live probes of a sandbox.
 */
int32_t orch_scope_spawn_probe(orch_scope *scope, const char *probe,
			       const struct orch_proc_opts *opts, orch_proc **ret_proc,
			       orch_error **reterr);

/* What orch_stream_captured() gives, for the caller to free; nothing is left there. */
void orch_stream_take_captured(orch_stream *stream, struct orch_buf *ret_bytes);

/* 0, or why the helper could not be found: used by doctor-like callers. Absolute path, caller
 * frees. */
int32_t orch_reaper_find_helper(orch_ctx *ctx, char **ret_path, orch_error **reterr);

#endif
