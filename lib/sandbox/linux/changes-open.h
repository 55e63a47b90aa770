/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_CHANGES_OPEN_H
#define ORCH_SANDBOX_CHANGES_OPEN_H

/* Opening what untrusted programs wrote: no link is followed, no mount crossed. -1 with errno. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* `name`: one or more parts below the folder. */
int changes_open(int folder, const char *name, uint64_t flags);
/* For reading, without waiting; ESTALE: it is no regular file. */
int changes_open_file(int folder, const char *name);
/*
 * The same two for an ordinary user, whose files programs may have made unreadable for him: with the rights added for the
 * moment of opening. `path`: O_PATH, of what `st` describes.
 */
int changes_open_folder_anyway(int folder, const char *name, int path, const struct stat *st);
int changes_open_file_anyway(int folder, const char *name, int path, const struct stat *st);

/* The same for names in a folder, until changes_restore(). */
bool changes_loosen(int path, const struct stat *st);
void changes_restore(int path, const struct stat *st);

#endif
