/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_MATRIX_TARGETS_H
#define TEST_MATRIX_TARGETS_H

#include <sys/types.h>

#include "matrix.h"

/* Files below place.folder, and a process of the load's uid that owns whatever is no file. */
struct targets {
	pid_t victim;
	int keep; /* closed: the victim cleans up and ends */
};

/* What lives as long as the test, made by who runs it; programs and devices where that is root. */
bool base_make(const char *attempt_path);
void base_remove(void);
/* Descriptors, a variable, a folder and a umask that a program must not inherit. */
bool leaks_make(void);
/* For a load whose uid outside is `uid`. */
bool targets_make(struct targets *targets, uid_t uid);
void targets_end(struct targets *targets);
/* `file` of `folder`; in one of a few buffers. */
const char *below(const char *folder, const char *file);
bool copy_program(const char *from, const char *to);

#endif
