/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_VERIFY_H
#define ORCH_VERIFY_H

/*
 * Runs checks against a tree: the product in one sandbox, each check in another, joined by the
 * coordinator. Results are counted here, from the check's TAP; nothing that the product says
 * counts.
 */

#include <orch/sandbox.h>

#include "document.h"
#include "tree.h"

#define VERDICT_PASS 1u
#define VERDICT_FAIL                                                                               \
	2u /* ran, and said "not ok", or its plan was not fulfilled, or exit code not 0 */
#define VERDICT_TIMEOUT 3u
#define VERDICT_ERROR 4u /* could not be run at all (not the product's fault) */

struct check_result {
	char *check_id;
	uint32_t verdict;
	uint32_t passed, failed; /* TAP points */
	char *detail; /* first failing points, bounded, for people and for the next packet (visible
			 checks) */
	int64_t duration_ms;
	char *check_death, *product_death; /* orch_death_text(); product_death NULL on the stub */
	uint32_t check_uid, product_uid;   /* as the host sees them */
};

struct verify_result {
	char tree_hash[TREE_HASH_SIZE]; /* of what was really run: computed from the checkout, not
					   copied from the order */
	struct check_result *results;	/* in the order of the check ids given */
	size_t count;
	bool all_passed;
	uint32_t deaths_not_dead; /* certificates with another verdict than DEAD */
};

struct verify_opts {
	const char *trees_dir;
	const char *tree_hash;	/* tree_empty_hash for none */
	const char *sealed_dir; /* the checks' files are under it by check.file */
	const char *work_dir;	/* scratch folder of its own; made and removed */
	const struct spec *spec;
	const struct checks *checks;
	const char *const *check_ids; /* NULL-terminated; NULL: all */
	bool stub; /* instead of the product: every request is answered with 200 and "ok" */
	uint32_t start_timeout_ms; /* until the product accepts connections; 0: 10000 */
	uint32_t parallel;	   /* checks at once; 0: 4 */
};

struct verify;
/* `result` is borrowed; NULL with an error (the verification itself failed: nothing is verified).
 */
typedef void (*verify_fn)(void *userdata, const struct verify_result *result,
			  const orch_error *error);

/* Options are copied but for spec and checks, which must live until the callback. */
int32_t verify_start(orch_ctx *ctx, const struct verify_opts *opts, verify_fn fn, void *userdata,
		     struct verify **ret_verify, orch_error **reterr);
/* Kills what is under way: no callback then. Takes NULL, returns NULL. Also frees a finished one.
 */
struct verify *verify_free(struct verify *verify);

/* --- parts with tests of their own
 * ---------------------------------------------------------------------- */

/* Strict TAP 12/13 subset. 0, or why it does not count (static text). No I/O. */
const char *tap_count(const char *text, size_t length, uint32_t *ret_passed, uint32_t *ret_failed);

/*
 * Accepts on `listen_fd` (duplicated) and joins each connection to 127.0.0.1:port inside `target`:
 * bytes both ways, half close, bounded buffers. Freed: all connections are cut.
 */
struct joint;
int32_t joint_new(orch_ctx *ctx, int listen_fd, orch_sandbox *target, uint16_t port,
		  struct joint **ret_joint, orch_error **reterr);
struct joint *joint_free(struct joint *joint);

#endif
