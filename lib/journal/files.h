/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_JOURNAL_FILES_H
#define ORCH_JOURNAL_FILES_H

/* The parts that know of no journal: payloads, hashes, whole files, the lock file, the anchor, a copy for reading. */

#include <sodium.h>
#include <sys/stat.h>

#include "core/core-private.h"

/* How digests and hashes are made: SHA-256, as schema 1 did, or BLAKE2b-256. New records are of JOURNAL_FORMAT. */
#define FORMAT_1 1
#define JOURNAL_FORMAT 2

#define DIGEST_SIZE 32

/* The anchor is synced at open, at close and every so many records. */
#define ANCHOR_SYNC_RECORDS 256

/* Hands `error` on, or frees it where nobody asked. Returns `code`. */
static inline int32_t pass_error(int32_t code, orch_error *error, orch_error **reterr)
{
	if (code < 0 && reterr)
		*reterr = error;
	else
		orch_error_free(error);
	return code;
}

/*
 * Moves a descriptor off 0 to 2: in a host that closed them, whatever it prints would end up in the
 * file. Takes `fd` over; -1 with errno.
 */
int fd_above_stdio(int fd);
/* Goes on after what interrupts it, and after a part. 0 or an errno. */
int file_write_all(int fd, const char *text, size_t length, off_t offset);

/* The code for what the system answered: ORCH_ENOENT, ORCH_ENOSPC, ORCH_ENOMEM or ORCH_ESYS. */
int32_t journal_code(int os_errno);

/* --- payload.c
 * ------------------------------------------------------------------------------------ */

/* Bytes as they are handed out. Followed by a NUL that is not counted. */
struct body {
	struct body *next; /* for lists of those that are kept for their readers */
	size_t length;
	unsigned char bytes[];
};

/* A request or a result. A length of 0 is "none". */
struct payload {
	struct body *body; /* what is handed out; NULL if there is none */
	uint64_t length;   /* of the whole */
	bool kept;	   /* false: only the digest is stored, and `body` is a text that says so */
	unsigned char digest[DIGEST_SIZE];
};

/* Copies. Over `limit` only the digest is kept. False: out of memory. */
bool payload_set(struct payload *payload, const void *bytes, size_t length, uint64_t limit);
/* As it was stored; `bytes` NULL: only its digest is. False: out of memory. */
bool payload_load(struct payload *payload, const void *bytes, uint64_t length,
		  const unsigned char *digest);
bool payload_copy(struct payload *payload, const struct payload *from);
/* Keeps the digest and gives up the bytes. False: out of memory. */
bool payload_cut(struct payload *payload);
void payload_clear(struct payload *payload);
/* RFC 3629; a NUL is a character like others. */
bool text_is_utf8(const void *bytes, size_t length);

/* --- files.c
 * ---------------------------------------------------------------------------------------- */

#define FILE_IS_NONE (-1) /* a FIFO, a folder, ... */

/* `to` must not exist. 0, FILE_IS_NONE or an errno. */
int file_copy(const char *from, const char *to);
/* 0 or an errno, as the ones below. */
int file_sync(const char *path);
int file_sync_folder_of(const char *path);
/* Never replaces: EEXIST. */
int file_rename_new(const char *from, const char *to);
/* Also a symbolic link that leads nowhere. */
bool file_exists(const char *path);
/* With what SQLite has beside it. */
void file_remove_database(const char *path);

/* --- lock.c
 * ----------------------------------------------------------------------------------------- */

struct file_identity {
	dev_t device;
	ino_t inode;
};

struct instance_row {
	uint64_t generation;
	char instance_id[33];
	char boot_id[64];
	char host[65];
	int64_t pid;
	int64_t opened_at_ms;
};

struct lock {
	char *path;
	int fd;
	struct file_identity identity;
};

bool file_identity_holds(const char *path, const struct file_identity *identity);

/*
 * The host's side: linux/host.c, darwin/host.c.
 *
 * Which file is under this name now; false with errno. Leaves no mark on the file: see linux/host.c.
 */
bool file_identity_read(const char *path, struct file_identity *identity);
/*
 * Refuses a file system that other machines may write to as well, or that can not be synced: ORCH_ENETFS,
 * ORCH_ENOENT, ORCH_ESYS.
 */
int32_t filesystem_check(const char *folder, orch_error **reterr);
/* True for the statfs(2) magic of a network file system. Linux only: elsewhere they have no numbers. */
bool filesystem_is_remote(uint64_t magic, const char **ret_name);
/* Makes the file so long, with every block allocated. 0 or an errno. */
int file_reserve(int fd, off_t bytes);

struct setting {
	const char *pragma, *expected;
};
/* What SQLite needs on this system besides; the last has no pragma. */
extern const struct setting host_settings[];

/*
 * Takes `path` for writing, or with `shared` for reading. ORCH_ELOCKED names the holder. A shared
 * lock on a file that does not exist gives 0 and lock->fd -1: nothing is created.
 */
int32_t lock_take(struct lock *lock, const char *path, bool shared, orch_error **reterr);
/* This process, under a random name of its own. */
void instance_fill(struct instance_row *instance, uint64_t generation);
/* Says in the lock file who holds it. */
int32_t lock_sign(struct lock *lock, const struct instance_row *instance, orch_error **reterr);
void lock_release(struct lock *lock);

/* --- anchor.c
 * --------------------------------------------------------------------------------------- */

struct anchor_point {
	uint64_t epoch;
	uint64_t sequence;
	unsigned char hash[DIGEST_SIZE];
};

struct anchor {
	char *path; /* NULL: no anchor */
	int fd;
	uint32_t since_sync;
};

/* `ret_found` false: there is no such file. ORCH_ECORRUPT: damaged. */
int32_t anchor_read(const char *path, bool *ret_found, struct anchor_point *ret_point,
		    orch_error **reterr);
/* Replaces the file by temp, fsync, rename. */
int32_t anchor_sync(struct anchor *anchor, const struct anchor_point *point, orch_error **reterr);
/* Moves it on by so many records; synced only every ANCHOR_SYNC_RECORDS. */
int32_t anchor_move(struct anchor *anchor, const struct anchor_point *point, uint32_t records,
		    orch_error **reterr);
void anchor_close(struct anchor *anchor);

/* --- snapshot.c
 * -------------------------------------------------------------------------------------- */

/* A private copy of a journal's files, so that reading them never writes to them. */
struct snapshot {
	char *folder;
	char *path; /* of the copied database */
};

/* `wal_path` NULL: there is none to look for. */
int32_t snapshot_take(struct snapshot *snapshot, const char *path, const char *wal_path,
		      orch_error **reterr);
/* Removes the files; what is open stays readable. */
void snapshot_remove(struct snapshot *snapshot);

/* --- hash.c
 * ----------------------------------------------------------------------------------------- */

/* A digest over fields: little-endian 64-bit numbers, and bytes after their length as such a number. */
struct field_hash {
	uint32_t format;
	size_t length; /* of what waits */
	union {
		crypto_hash_sha256_state sha256;
		crypto_generichash_state blake2b;
	};
	unsigned char waiting[512];
};

void hash_start(struct field_hash *hash, uint32_t format, const char *label);
void hash_number(struct field_hash *hash, uint64_t number);
void hash_bytes(struct field_hash *hash, const void *bytes, size_t length);
void hash_text(struct field_hash *hash, const char *text);
void hash_digest(struct field_hash *hash, const unsigned char digest[DIGEST_SIZE]);
void hash_end(struct field_hash *hash, unsigned char digest[DIGEST_SIZE]);

#endif
