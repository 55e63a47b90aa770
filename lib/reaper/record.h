/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_RECORD_H
#define ORCH_RECORD_H

/*
 * The record of scopes: a file that tells a later host what an earlier one had started. The host library writes it: it
 * makes the name, and asks for a scope only after the name is written down.
 *
 * One line a record, one write() each, fields separated by spaces, anything unusual in a field as %XX:
 *
 *	orch-scopes 1
 *	named NAME BOOT PIDNS TIMENS HOST HOST-START HOST-INODE HELPER HELPER-START HELPER-INODE BASE-INODE BASE LABEL
 *	up NAME RUNG INIT INIT-START INIT-INODE PIDNS CGROUP
 *	program NAME PID START INODE		(rung SUBREAPER)
 *	end NAME
 *
 * Nothing is synced: a kill loses nothing that was written, and what a crash of the machine loses it has also ended.
 * The lock is on a file beside it (PATH.lock), because the record is replaced by rename when it is written anew.
 */

#include <stddef.h>
#include <orch/error.h>

#include "identity.h"

#define RECORD_NAME_SIZE (5 + 16 + 1)
/* Remembered for a scope without a closed set. */
#define RECORD_PROGRAMS 256

struct record_scope {
	struct record_scope *next;
	char name[RECORD_NAME_SIZE];
	char *label;
	struct place place;
	struct identity host, helper;
	char *base; /* folder that a cgroup leaf of this name would be in, or "" */
	uint64_t base_inode;
	uint32_t rung; /* 0: it was named, and did not stand yet: no program had been started in it */
	struct identity init;
	uint64_t pidns_inode;
	char *cgroup; /* "" without */
	struct identity *programs;
	uint32_t program_count;
};

struct record {
	char *path, *lock_path;
	int fd, lock_fd;
	size_t size;		     /* of the file */
	size_t written_anew;	     /* its size after it was last written anew */
	struct record_scope *scopes; /* without an end */
	uint32_t count;
};

/*
 * Takes the lock, reads, and writes anew without what has ended. `create`: it need not be there.
 *
 * ORCH_ELOCKED: a live host records in it (the message says who) or somebody recovers from it; ORCH_ENOENT;
 * ORCH_ECORRUPT: line N is none of a record; ORCH_ETOOBIG; ORCH_ENOSPC; ORCH_ENOMEM; ORCH_ESYS.
 */
int32_t record_open(const char *path, bool create, struct record **ret_record, orch_error **reterr);
/* NULL is fine. The file stays. */
void record_close(struct record *record);

/* Each writes first. On failure the file is as before. */
int32_t record_named(struct record *record, const char *name, const char *label, const struct identity *helper,
		     orch_error **reterr);
int32_t record_up(struct record *record, const char *name, uint32_t rung, const struct identity *init,
		  uint64_t pidns_inode, const char *cgroup, orch_error **reterr);
int32_t record_program(struct record *record, const char *name, const struct identity *program, orch_error **reterr);
/* A scope that it does not have is fine. */
int32_t record_end(struct record *record, const char *name, orch_error **reterr);
struct record_scope *record_find(const struct record *record, const char *name);

/* --- record-file.c: lines, and the file --- */

void record_scope_free(struct record_scope *scope);
/* Reads one line, without its end, into the list. False: it is none, or there is no memory (*ret_memory false). */
bool record_take_line(struct record *record, char *line, bool *ret_memory);
struct orch_buf;
void record_put_named(struct orch_buf *buf, const struct record_scope *scope);
void record_put_up(struct orch_buf *buf, const struct record_scope *scope);
void record_put_program(struct orch_buf *buf, const char *name, const struct identity *program);
#define RECORD_HEAD "orch-scopes 1\n"
/* ORCH_ENOENT, ORCH_ENOSPC, ORCH_ENOMEM or ORCH_ESYS. */
int32_t record_code(int os_errno);
/* 0, or an error of ORCH_E*: the file by another of the same name that holds `scopes`. */
int32_t record_write_anew(struct record *record, orch_error **reterr);

#endif
