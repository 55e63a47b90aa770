/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../core/core-private.h"
#include "../core/os.h"
#include "record.h"

/* Scopes that never ended would have to be some ten thousand. */
#define SIZE_MAX_READ (16u * 1024u * 1024u)
/* When so much was added to it, it is written anew. */
#define SIZE_ANEW (1024u * 1024u)
#define LABEL_MAX 256

/* --- opening --------------------------------------------------------------------------- */

static int32_t lock_refused(const struct record *record, orch_error **reterr)
{
	char holder[64];
	ssize_t length = pread(record->lock_fd, holder, sizeof(holder) - 1, 0);
	holder[length > 0 ? length : 0] = '\0';
	holder[strcspn(holder, "\n")] = '\0';
	return orch_fail(reterr, ORCH_ELOCKED, 0, "lock",
			 "%s is in use by a live host (%s): its scopes are no leftovers; stop it first", record->path,
			 *holder ? holder : "which has not signed it yet");
}

static int32_t lock(struct record *record, bool create, orch_error **reterr)
{
	char holder[64];
	struct stat status;
	/* Not a lock file for a record that is not there. */
	if (!create && stat(record->path, &status) < 0)
		return orch_fail(reterr, record_code(errno), errno, "record", "the record of scopes %s", record->path);
	int fd = open(record->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
	if (fd >= 0 && fd < 3) {
		record->lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		close(fd);
	} else {
		record->lock_fd = fd;
	}
	if (record->lock_fd < 0)
		return orch_fail(reterr, record_code(errno), errno, "lock", "cannot open the lock file %s",
				 record->lock_path);
	/* A worker that the host forked must not look like the host. */
	if (!orch_close_in_child(&record->lock_fd))
		return orch_fail_memory(reterr);
	if (orch_lock(record->lock_fd, false) < 0)
		return errno == EAGAIN || errno == EACCES
			   ? lock_refused(record, reterr)
			   : orch_fail(reterr, ORCH_ESYS, errno, "lock", "cannot lock %s", record->lock_path);
	int length = snprintf(holder, sizeof(holder), "pid %d\n", (int)getpid());
	/* For the message of the next one only. */
	if (pwrite(record->lock_fd, holder, (size_t)length, 0) == length)
		(void)!ftruncate(record->lock_fd, length);
	return 0;
}

static int32_t read_file(const struct record *record, struct orch_buf *text, orch_error **reterr)
{
	_cleanup_close_ int fd = open(record->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	char bytes[16384];
	ssize_t got = 0;
	if (fd < 0)
		return orch_fail(reterr, record_code(errno), errno, "record", "the record of scopes %s", record->path);
	while (text->length <= SIZE_MAX_READ && (got = read(fd, bytes, sizeof(bytes))) > 0)
		orch_buf_add(text, bytes, (size_t)got);
	if (got < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "record", "%s could not be read", record->path);
	if (text->failed)
		return orch_fail_memory(reterr);
	if (text->length > SIZE_MAX_READ)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, "record", "%s is larger than %u MiB: is it a record of scopes?",
				 record->path, SIZE_MAX_READ >> 20);
	return 0;
}

static int32_t take_lines(struct record *record, struct orch_buf *text, orch_error **reterr)
{
	unsigned number = 1;
	const size_t head = strlen(RECORD_HEAD);
	/* The first write of all may have been torn too. */
	if (text->length < head && (!text->length || memcmp(text->data, RECORD_HEAD, text->length) == 0))
		return 0;
	if (text->length < head || memcmp(text->data, RECORD_HEAD, head) != 0)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "record",
				 "%s: line 1 is not the head of a record of scopes of this version", record->path);
	char *line = text->data + head, *all_end = text->data + text->length;
	/* What has no end of line is of a write that a kill cut short: what it would have told did not happen. */
	for (char *end; (end = memchr(line, '\n', (size_t)(all_end - line))); line = end + 1) {
		bool memory = true;
		number++;
		*end = '\0';
		if (strlen(line) == (size_t)(end - line) && record_take_line(record, line, &memory))
			continue;
		if (!memory)
			return orch_fail_memory(reterr);
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "record",
				 "%s: line %u is none of a record of scopes: put the file away, and look for leftovers by "
				 "hand or start the machine again",
				 record->path, number);
	}
	return 0;
}

int32_t record_open(const char *path, bool create, struct record **ret_record, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf text = {0};
	struct record *record = calloc(1, sizeof(*record));
	if (!record)
		return orch_fail_memory(reterr);
	record->fd = record->lock_fd = -1;
	record->path = strdup(path);
	record->lock_path = orch_strdup_printf("%s.lock", path);
	orch_error *error = NULL;
	int32_t code = record->path && record->lock_path ? lock(record, create, &error) : orch_fail_memory(&error);
	if (code == 0)
		code = read_file(record, &text, &error);
	if (code == ORCH_ENOENT && create && record->lock_fd >= 0) {
		orch_error_free(error);
		error = NULL;
		code = 0;
	}
	if (code == 0)
		code = take_lines(record, &text, &error);
	if (code == 0)
		code = record_write_anew(record, &error);
	if (code < 0) {
		record_close(record);
		if (reterr)
			*reterr = error;
		else
			orch_error_free(error);
		return code;
	}
	*ret_record = record;
	return 0;
}

void record_close(struct record *record)
{
	if (!record)
		return;
	while (record->scopes) {
		struct record_scope *next = record->scopes->next;
		record_scope_free(record->scopes);
		record->scopes = next;
	}
	orch_close_in_child_no_more(&record->lock_fd);
	orch_close_fd(&record->fd);
	/* The lock is the parent's in a forked child, where the descriptor is closed already. */
	if (record->lock_fd >= 0)
		orch_unlock(record->lock_fd);
	orch_close_fd(&record->lock_fd);
	free(record->path);
	free(record->lock_path);
	free(record);
}

/* --- writing --------------------------------------------------------------------------- */

struct record_scope *record_find(const struct record *record, const char *name)
{
	for (struct record_scope *scope = record->scopes; scope; scope = scope->next)
		if (strcmp(scope->name, name) == 0)
			return scope;
	return NULL;
}

/* The line goes into the file, and by the same reader as later into the list. */
static int32_t add(struct record *record, struct orch_buf *line, orch_error **reterr)
{
	bool memory = true;
	if (line->failed)
		return orch_fail_memory(reterr);
	ssize_t written;
	do
		written = write(record->fd, line->data, line->length);
	while (written < 0 && errno == EINTR);
	if (written != (ssize_t)line->length) {
		int os_errno = written < 0 ? errno : ENOSPC;
		/* A half line would make the next one garbage. */
		while (ftruncate(record->fd, (off_t)record->size) < 0 && errno == EINTR)
			;
		return orch_fail(reterr, record_code(os_errno), os_errno, "record",
				 "the record of scopes %s could not be written", record->path);
	}
	record->size += line->length;
	line->data[line->length - 1] = '\0';
	if (!record_take_line(record, line->data, &memory))
		return memory ? orch_fail(reterr, ORCH_EINVAL, 0, "record", "the record of scopes takes no such line")
			      : orch_fail_memory(reterr);
	return 0;
}

int32_t record_named(struct record *record, const char *name, const char *label, const struct identity *helper,
		     orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf line = {0};
	char base[1024], short_label[LABEL_MAX + 1];
	struct record_scope scope = {.base = base, .label = short_label, .helper = *helper};
	snprintf(scope.name, sizeof(scope.name), "%s", name);
	snprintf(short_label, sizeof(short_label), "%s", label);
	place_own(&scope.place);
	identity_own(&scope.host);
	place_of_leaves(base, sizeof(base), &scope.base_inode);
	record_put_named(&line, &scope);
	/* Losing nothing: the scopes without an end are all there is to keep. */
	if (record->size > record->written_anew + SIZE_ANEW) {
		int32_t code = record_write_anew(record, reterr);
		if (code < 0)
			return code;
	}
	return add(record, &line, reterr);
}

int32_t record_up(struct record *record, const char *name, uint32_t rung, const struct identity *init,
		  uint64_t pidns_inode, const char *cgroup, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf line = {0};
	struct record_scope scope = {
	    .rung = rung, .init = *init, .pidns_inode = pidns_inode, .cgroup = (char *)cgroup};
	/* Made before the record was. */
	if (!record_find(record, name))
		return 0;
	snprintf(scope.name, sizeof(scope.name), "%s", name);
	record_put_up(&line, &scope);
	return add(record, &line, reterr);
}

int32_t record_program(struct record *record, const char *name, const struct identity *program, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf line = {0};
	const struct record_scope *scope = record_find(record, name);
	if (!scope || scope->program_count == RECORD_PROGRAMS || program->pid <= 0)
		return 0;
	record_put_program(&line, name, program);
	return add(record, &line, reterr);
}

int32_t record_end(struct record *record, const char *name, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf line = {0};
	if (!record_find(record, name))
		return 0;
	orch_buf_printf(&line, "end %s\n", name);
	return add(record, &line, reterr);
}
