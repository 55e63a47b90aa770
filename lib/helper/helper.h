/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HELPER_H
#define ORCH_HELPER_H

/*
 * orch-reaper: one per context. Single-threaded; its loop (main.c, scopes.c) does nothing that could block: what may
 * block runs in a process of its own. linux/: the parent of every scope's init. What every system has is here: the
 * loop, the answers to the host, the child that becomes a program.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "../reaper/wire.h"
#include "confine.h"

#define _cleanup_fd_ __attribute__((cleanup(close_cleanup)))
void close_cleanup(const int *fd);
void close_fd(int *fd);
/* Closes every fd from 3 up but these (-1: none): close_others(BUT(one, two)). */
void close_others(const int *but, size_t count);
#define BUT(...) (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int)
int64_t now_us(void);
int64_t realtime_ms(void);
void setup_fail(struct setup_error *error, int32_t code, int os_errno, const char *step,
		const char *format, ...) __attribute__((format(printf, 5, 6)));
/*
 * What else this program is for, by its arguments (a probe's control). True: it was that, and ends with *ret_status.
 */
bool other_use(int argc, char **argv, int *ret_status);
/* Marks every fd from 3 up close-on-exec. */
void close_others_at_exec(void);
/* The soft limit that a helper with many scopes needs. */
extern const rlim_t helper_open_files;

/* --- program.c: the child that becomes a program ---------------------------------------- */

struct program {
	const struct wire_packet *request; /* WIRE_SPAWN with its fds */
	struct confine *confine;
	int error_fd; /* close-on-exec; takes a struct setup_error if the program can not be started
		       */
};

/* In the forked child. Never returns. */
_Noreturn void program_run(const struct program *program);

/* --- scopes.c of the system ------------------------------------------------------------- */

struct scope;
struct common_ground; /* what all scopes share: the cgroup that their leaves are made in */

struct helper {
	int host_fd;
	int host_watch; /* readable when the host has ended */
	bool greeted;
	struct wire_queue to_host;
	struct wire_inbox from_host;
	struct rlimit open_files;
	struct common_ground *ground;
	struct scope *scopes;
};

void host_send(struct helper *helper, struct wire_packet *packet);
/* Serves what the host has sent so far, of which some may have to wait for the next turn. */
void host_hear(struct helper *helper);

/* Before the first request, and after the last scope is gone. */
void scopes_begin(struct helper *helper);
void scopes_end(struct helper *helper);
/* Takes what tells the host's end from its hello. 0, or a negative errno: it is not there. */
int host_watch_open(struct helper *helper, struct wire_packet *hello);
/* A request of the host about scopes. 0, or a negative errno: the host breaks the protocol. */
int scopes_request(struct helper *helper, struct wire_packet *packet);
/* Answers a request that can not be served. */
void scopes_refuse(struct helper *helper, const struct wire_packet *request, const char *why);
struct pollfd;
/* At most so many entries are added by scopes_poll(). */
size_t scopes_poll_most(const struct helper *helper);
/* Adds what to wait for; lowers *timeout_ms (-1: none). Number of entries. */
size_t scopes_poll(const struct helper *helper, struct pollfd *fds, int *timeout_ms);
/* Reads and sends what is ready, moves every scope on. */
void scopes_step(struct helper *helper);
/* Kills everything; used when the host is gone. */
void scopes_kill_all(struct helper *helper);

/* --- answers.c: what every system's scopes.c says to the host ---------------------------- */

struct census;

void answer_failure(struct helper *helper, enum wire_type type, uint32_t scope, uint32_t subject,
		    const struct setup_error *error);
void answer_note(struct helper *helper, uint32_t scope, const char *text);
void answer_limit(struct helper *helper, uint32_t scope, uint32_t limit, uint32_t state, const char *mechanism);
void answer_survivors(struct helper *helper, uint32_t scope, const struct census *census);
/* The refusal of a request about a scope that is there, or was. */
void answer_refusal(struct helper *helper, const struct wire_packet *request, int32_t code,
		    const char *why);
/* The scope was never made: the error, and its certificate. */
void answer_no_scope(struct helper *helper, uint32_t scope, const struct setup_error *error);

#endif
