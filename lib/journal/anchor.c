/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>

#include "core/os.h"
#include "journal-private.h"

/*
 * The anchor is two lines of equal length:
 *
 *	orch-anchor 1 EPOCH SEQUENCE HASH CHECK
 *
 * The first is as of the last sync: the whole file is replaced by temp, fsync, rename. The second
 * follows every record by one unsynced write in place. A killed process loses neither; a power loss
 * may tear or lose the second, and then the first still tells where the journal was at most
 * ANCHOR_SYNC_RECORDS ago.
 */

#define CHECK_SIZE 8
#define LINE_SIZE (14 + 21 + 21 + 2 * DIGEST_SIZE + 1 + 2 * CHECK_SIZE + 1)

static void line_check(const char *text, size_t length, char hex[2 * CHECK_SIZE + 1])
{
	unsigned char digest[DIGEST_SIZE];
	crypto_hash_sha256(digest, (const unsigned char *)text, length);
	sodium_bin2hex(hex, 2 * CHECK_SIZE + 1, digest, CHECK_SIZE);
}

static void line_format(const struct anchor_point *point, char line[LINE_SIZE + 1])
{
	char hash[2 * DIGEST_SIZE + 1], check[2 * CHECK_SIZE + 1];
	sodium_bin2hex(hash, sizeof(hash), point->hash, DIGEST_SIZE);
	int length = snprintf(line, LINE_SIZE + 1, "orch-anchor 1 %020llu %020llu %s ",
			      (unsigned long long)point->epoch, (unsigned long long)point->sequence,
			      hash);
	line_check(line, (size_t)length, check);
	snprintf(line + length, LINE_SIZE + 1 - (size_t)length, "%s\n", check);
}

static bool line_parse(const char *line, struct anchor_point *point)
{
	const size_t checked = LINE_SIZE - 2 * CHECK_SIZE - 1;
	char check[2 * CHECK_SIZE + 1];
	line_check(line, checked, check);
	if (memcmp(line, "orch-anchor 1 ", 14) != 0 || line[LINE_SIZE - 1] != '\n' ||
	    memcmp(line + checked, check, 2 * CHECK_SIZE) != 0)
		return false;
	/* The check holds, so the digits are ours. */
	point->epoch = strtoull(line + 14, NULL, 10);
	point->sequence = strtoull(line + 35, NULL, 10);
	return sodium_hex2bin(point->hash, DIGEST_SIZE, line + 56, 2 * DIGEST_SIZE, NULL, NULL,
			      NULL) == 0;
}

int32_t anchor_read(const char *path, bool *ret_found, struct anchor_point *ret_point,
		    orch_error **reterr)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		*ret_found = false;
		return 0;
	}
	if (fd < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "anchor", "cannot open the anchor %s",
				 path);
	char text[2 * LINE_SIZE];
	struct stat status;
	bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
	ssize_t length = is_file ? pread(fd, text, sizeof(text), 0) : 0;
	if (length < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "anchor", "cannot read the anchor %s",
				 path);

	struct anchor_point synced, moved;
	bool have_synced = length >= LINE_SIZE && line_parse(text, &synced);
	bool have_moved = length >= 2 * LINE_SIZE && line_parse(text + LINE_SIZE, &moved);
	if (!have_synced)
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, "anchor",
			"%s is not an anchor, or damaged: check the journal by hand, then remove "
			"it to go on without its protection",
			path);
	if (have_moved && moved.epoch == synced.epoch && moved.sequence > synced.sequence)
		synced = moved;
	*ret_point = synced;
	*ret_found = true;
	return 0;
}

int32_t anchor_sync(struct anchor *anchor, const struct anchor_point *point, orch_error **reterr)
{
	if (!anchor->path)
		return 0;
	char text[2 * LINE_SIZE + 1];
	line_format(point, text);
	line_format(point, text + LINE_SIZE);
	_cleanup_free_ char *temp = orch_strdup_printf("%s.new", anchor->path);
	if (!temp)
		return orch_fail_memory(reterr);
	int os_errno;
	unlink(temp); /* what a killed one left, or whatever stands there */
	_cleanup_close_ int fd = fd_above_stdio(
		open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600));
	if (fd < 0) {
		os_errno = errno;
		goto failed;
	}
	os_errno = file_write_all(fd, text, 2 * LINE_SIZE, 0);
	if (!os_errno && (orch_sync(fd) < 0 || rename(temp, anchor->path) < 0))
		os_errno = errno;
	if (os_errno) {
		unlink(temp);
		goto failed;
	}
	os_errno = file_sync_folder_of(anchor->path);
	if (os_errno)
		goto failed;
	orch_close_fd(&anchor->fd);
	anchor->fd = orch_steal_fd(&fd);
	anchor->since_sync = 0;
	return 0;
failed:
	return orch_fail(reterr, journal_code(os_errno), os_errno, "anchor",
			 "cannot write the anchor %s", anchor->path);
}

int32_t anchor_move(struct anchor *anchor, const struct anchor_point *point, uint32_t records,
		    orch_error **reterr)
{
	if (!anchor->path)
		return 0;
	anchor->since_sync += records;
	if (anchor->since_sync >= ANCHOR_SYNC_RECORDS)
		return anchor_sync(anchor, point, reterr);
	char line[LINE_SIZE + 1];
	line_format(point, line);
	int os_errno = file_write_all(anchor->fd, line, LINE_SIZE, LINE_SIZE);
	return os_errno ? orch_fail(reterr, ORCH_ESYS, os_errno, "anchor",
				    "cannot write the anchor %s", anchor->path)
			: 0;
}

void anchor_close(struct anchor *anchor)
{
	orch_close_fd(&anchor->fd);
	free(ORCH_STEAL(anchor->path));
}
