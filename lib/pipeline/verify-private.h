/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_VERIFY_PRIVATE_H
#define ORCH_VERIFY_PRIVATE_H

/*
 * The rooms of a verification: a cell is one program in one sandbox, a door is an HTTP server on a
 * check's listener, a check run puts them together for one check. Each of them can be freed at any
 * time: nothing comes back from it afterwards.
 */

#include "verify.h"
#include "verify-text.h"

/* --- TAP (tap.c)
 * ------------------------------------------------------------------------------------ */

/* Appends the first points that did not pass, each with its diagnostics, at most about `limit`
 * bytes. */
void tap_failures(const char *text, size_t length, size_t limit, struct orch_buf *buf);

/* --- stream: what a program prints (verify-cell.c)
 * ---------------------------------------------------- */

/* The beginning is kept, or the end; the rest is read and dropped. Zero-initialise with fd -1. */
struct stream {
	int fd;
	orch_source *source;
	struct orch_buf bytes;
	size_t limit;
	bool keep_end;
	bool over_limit;
	void (*over)(void *userdata); /* may be NULL; comes once, the stream may be closed in it */
	void *userdata;
};

/* `ret_fd` is the writing end, blocking, for the program; belongs to the caller. */
int32_t stream_open(struct stream *stream, orch_ctx *ctx, size_t limit, bool keep_end, int *ret_fd,
		    orch_error **reterr);
/* Takes what is in the pipe now, and no more than a pipe holds. */
void stream_drain(struct stream *stream);
/* Keeps the bytes. */
void stream_close(struct stream *stream);

/* --- cell: one program in one sandbox (verify-cell.c)
 * ------------------------------------------------ */

struct cell {
	uint32_t references;
	orch_ctx *ctx; /* the owner's: a late callback does not need it */
	void (*changed)(void *userdata); /* NULL once it is abandoned */
	void *userdata;
	orch_sandbox *sandbox;
	struct stream out, err;
	bool starting, started; /* the sandbox stands */
	bool spawned;		/* a program was asked for */
	bool running;		/* it was executed */
	bool exited;		/* it has ended, or could not be executed */
	bool stopping, over;
	int32_t exit_code; /* 0..255, or -1 */
	int32_t term_signal;
	uint32_t host_uid;
	orch_error *error;	/* of the sandbox's start, or of the stop */
	orch_error *exec_error; /* of the program's start */
	char *death;		/* certificate as text */
	uint32_t death_verdict;
};

/* Takes over the caller's reference of `sandbox`, also on failure. `changed` is called after any
 * change. */
int32_t cell_new(orch_ctx *ctx, orch_sandbox *sandbox, void (*changed)(void *userdata),
		 void *userdata, struct cell **ret_cell, orch_error **reterr);
void cell_start(struct cell *cell);
/* stdout goes to /dev/null if `out_limit` is 0, else its first bytes are kept; of stderr the last 4
 * KiB. */
void cell_spawn(struct cell *cell, const char *const *argv, const char *cwd, size_t out_limit);
/* Kills all; `over` with a certificate follows. Also right for one that never stood. */
void cell_stop(struct cell *cell);
/* Kills what is left. Takes NULL, returns NULL. */
struct cell *cell_free(struct cell *cell);

/* --- door: HTTP on a check's listener, in the loop (verify-door.c)
 * --------------------------------- */

struct door;

/* Answers every request with 200: text/plain "ok", or, for `cli`, the JSON of a run that printed
 * "ok". */
int32_t door_new_stub(orch_ctx *ctx, int listen_fd, bool cli, struct door **ret_door,
		      orch_error **reterr);
/* POST /run {"args":[...],"stdin":"..."} runs `start` and the args in `sandbox` (/product, PORT,
 * DATA). */
int32_t door_new_cli(orch_ctx *ctx, int listen_fd, orch_sandbox *sandbox, char *const *start,
		     struct door **ret_door, orch_error **reterr);
/* Cuts all connections. Takes NULL, returns NULL. */
struct door *door_free(struct door *door);

/* --- one check (verify-run.c)
 * --------------------------------------------------------------------- */

#define PRODUCT_PORT 8000
#define PRODUCT_CWD "/product"

struct check_run_opts {
	const struct spec *spec;
	const struct check *check;
	const char *sealed_dir;
	const char *tree_dir; /* NULL: the stub */
	const char *work_dir; /* made; of this run alone */
	uint32_t start_timeout_ms;
};

struct check_run;

/* Strings of opts must live as long as the run. `done` comes once, in the loop. */
int32_t check_run_new(orch_ctx *ctx, const struct check_run_opts *opts,
		      void (*done)(void *userdata), void *userdata, struct check_run **ret_run,
		      orch_error **reterr);
/* Moves the result out; valid after `done`. `ret_not_dead` counts certificates other than DEAD. */
void check_run_result(struct check_run *run, struct check_result *ret_result,
		      uint32_t *ret_not_dead);
/* Kills what is under way. Takes NULL, returns NULL. */
struct check_run *check_run_free(struct check_run *run);

#endif
