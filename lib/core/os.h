/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_OS_H
#define ORCH_OS_H

/*
 * What each system does in its own way: linux/os.c and darwin/os.c. Nothing here needs the rest of
 * the library, so that a program which is not linked with it (orch-mini) can be built with the same
 * file. Where nothing else is said: 0 or a descriptor, or -1 with errno.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* --- descriptors: all of them are close-on-exec ---------------------------------------------- */

int orch_pipe(int ends[2]);
int orch_socket(int family, int type, int protocol);
/* The connection does not block. */
int orch_accept(int listen_fd);
/* An AF_UNIX socket without an address: one of a pair, or not bound yet. */
bool orch_socket_is_nameless(int fd);
/* send(2) that raises no SIGPIPE. */
ssize_t orch_send(int fd, const void *bytes, size_t length);
/* A file without a path that holds `bytes`, positioned at its beginning; nobody can write to it any
 * more. */
int orch_sealed_file(const char *name, const void *bytes, size_t length);

/* --- files ----------------------------------------------------------------------------------- */

/* Returns when the file, or the folder's names, are on the medium. */
int orch_sync(int fd);
/* The same for everything on the file system that `fd` is on. */
int orch_sync_all(int fd);
/* Never replaces: EEXIST. */
int orch_rename_new(int from_dir, const char *from, int to_dir, const char *to);
/* Each gets the other's name, at once. */
int orch_rename_swap(const char *one, const char *other);
/* An open-file-description lock on the whole file, without waiting: -1 with EAGAIN or EACCES if another is there. */
int orch_lock(int fd, bool shared);
/* For all copies of the descriptor: a child that is about to exec has one, and would hold the lock so long. */
void orch_unlock(int fd);
/* The file that the running program was started from, absolute; to be freed; NULL with errno. */
char *orch_program_path(void);
/* The file that the code at `address` was mapped from, absolute whatever it was loaded by; to be freed; NULL: not known. */
char *orch_code_path(const void *address);

/* --- memory, signals, identity --------------------------------------------------------------- */

/* From the kernel; never fails, however short it is of anything. */
void orch_random_bytes(void *bytes, size_t length);
/* Not left out by a compiler that sees nobody read it any more. */
void orch_erase(void *bytes, size_t length);
/* A blocked signal that is pending for the calling thread, if it is, comes to nothing. */
void orch_take_back_signal(int signal);
/* What an errno means; it may be put into `room`. Any thread may ask. */
const char *orch_errno_text(int number, char *room, size_t size);
/* NULL where the program has more rights than who started it. */
const char *orch_getenv_trusted(const char *name);
/* Another one after each start of the machine; "" if it can not be known. */
void orch_boot_id(char *id, size_t size);

#endif
