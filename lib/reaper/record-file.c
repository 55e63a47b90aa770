/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include <orch/scope.h>

#include "../core/core-private.h"
#include "record.h"

#define FIELDS_MAX 14

/* --- lines ----------------------------------------------------------------------------- */

static bool is_plain(unsigned char byte)
{
	return byte > ' ' && byte < 0x7f && byte != '%';
}

/* An empty field is "%": no byte is written so. */
static void put_text(struct orch_buf *buf, const char *text)
{
	orch_buf_puts(buf, *text ? " " : " %");
	for (; *text; text++)
		if (is_plain((unsigned char)*text))
			orch_buf_add(buf, text, 1);
		else
			orch_buf_printf(buf, "%%%02X", (unsigned char)*text);
}

static void put_identity(struct orch_buf *buf, const struct identity *identity)
{
	orch_buf_printf(buf, " %d %" PRIu64 " %" PRIu64, (int)identity->pid, identity->start_time,
			identity->pidfs_inode);
}

void record_put_named(struct orch_buf *buf, const struct record_scope *scope)
{
	orch_buf_printf(buf, "named %s", scope->name);
	put_text(buf, scope->place.boot_id);
	orch_buf_printf(buf, " %" PRIu64 " %" PRIu64, scope->place.pidns, scope->place.timens);
	put_identity(buf, &scope->host);
	put_identity(buf, &scope->helper);
	orch_buf_printf(buf, " %" PRIu64, scope->base_inode);
	put_text(buf, scope->base);
	put_text(buf, scope->label);
	orch_buf_puts(buf, "\n");
}

void record_put_up(struct orch_buf *buf, const struct record_scope *scope)
{
	orch_buf_printf(buf, "up %s %u", scope->name, scope->rung);
	put_identity(buf, &scope->init);
	orch_buf_printf(buf, " %" PRIu64, scope->pidns_inode);
	put_text(buf, scope->cgroup);
	orch_buf_puts(buf, "\n");
}

void record_put_program(struct orch_buf *buf, const char *name, const struct identity *program)
{
	orch_buf_printf(buf, "program %s", name);
	put_identity(buf, program);
	orch_buf_puts(buf, "\n");
}

static int digit_of(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* In place. False: it is not written as put_text() writes. */
static bool read_text(char *field)
{
	char *to = field;
	if (strcmp(field, "%") == 0) {
		*field = '\0';
		return true;
	}
	for (const char *from = field; *from; to++) {
		if (*from != '%') {
			if (!is_plain((unsigned char)*from))
				return false;
			*to = *from++;
			continue;
		}
		int high = digit_of(from[1]), low = high < 0 ? -1 : digit_of(from[2]);
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to = (char)(high * 16 + low);
		from += 3;
	}
	*to = '\0';
	return true;
}

static bool read_number(const char *field, uint64_t most, uint64_t *ret_number)
{
	uint64_t number = 0;
	if (!*field)
		return false;
	for (; *field; field++) {
		if (*field < '0' || *field > '9' || number > (UINT64_MAX - 9) / 10)
			return false;
		number = number * 10 + (uint64_t)(*field - '0');
	}
	*ret_number = number;
	return number <= most;
}

static bool read_identity(char *const *fields, struct identity *identity)
{
	uint64_t pid;
	bool good = read_number(fields[0], INT32_MAX, &pid) &&
		    read_number(fields[1], UINT64_MAX, &identity->start_time) &&
		    read_number(fields[2], UINT64_MAX, &identity->pidfs_inode);
	identity->pid = good ? (pid_t)pid : 0;
	return good;
}

static bool is_name(const char *name)
{
	return strlen(name) == RECORD_NAME_SIZE - 1 && strncmp(name, "orch-", 5) == 0 &&
	       strspn(name + 5, "0123456789abcdef") == 16;
}

void record_scope_free(struct record_scope *scope)
{
	if (!scope)
		return;
	free(scope->label);
	free(scope->base);
	free(scope->cgroup);
	free(scope->programs);
	free(scope);
}

static bool take_named(struct record *record, char **fields, bool *ret_memory)
{
	struct record_scope *scope = calloc(1, sizeof(*scope));
	if (!scope)
		return *ret_memory = false;
	memcpy(scope->name, fields[1], RECORD_NAME_SIZE);
	bool good = read_text(fields[2]) && strlen(fields[2]) < sizeof(scope->place.boot_id) &&
		    read_number(fields[3], UINT64_MAX, &scope->place.pidns) &&
		    read_number(fields[4], UINT64_MAX, &scope->place.timens) &&
		    read_identity(fields + 5, &scope->host) && read_identity(fields + 8, &scope->helper) &&
		    read_number(fields[11], UINT64_MAX, &scope->base_inode) && read_text(fields[12]) &&
		    read_text(fields[13]);
	if (good) {
		strcpy(scope->place.boot_id, fields[2]);
		scope->base = strdup(fields[12]);
		scope->label = strdup(fields[13]);
		scope->cgroup = strdup("");
		*ret_memory = scope->base && scope->label && scope->cgroup;
	}
	if (!good || !*ret_memory) {
		record_scope_free(scope);
		return false;
	}
	struct record_scope **link = &record->scopes;
	while (*link)
		link = &(*link)->next;
	*link = scope;
	record->count++;
	return true;
}

static bool take_up(struct record_scope *scope, char **fields, bool *ret_memory)
{
	uint64_t rung;
	if (!read_number(fields[2], ORCH_RUNG_CGROUP_PIDNS, &rung) || !rung || scope->rung ||
	    !read_identity(fields + 3, &scope->init) || !read_number(fields[6], UINT64_MAX, &scope->pidns_inode) ||
	    !read_text(fields[7]))
		return false;
	char *cgroup = strdup(fields[7]);
	if (!cgroup)
		return *ret_memory = false;
	free(scope->cgroup);
	scope->cgroup = cgroup;
	scope->rung = (uint32_t)rung;
	return true;
}

static bool take_program(struct record_scope *scope, char **fields, bool *ret_memory)
{
	struct identity program;
	if (!read_identity(fields + 2, &program) || program.pid <= 0 || scope->program_count == RECORD_PROGRAMS)
		return false;
	if (!scope->programs && !(scope->programs = calloc(RECORD_PROGRAMS, sizeof(*scope->programs))))
		return *ret_memory = false;
	scope->programs[scope->program_count++] = program;
	return true;
}

bool record_take_line(struct record *record, char *line, bool *ret_memory)
{
	char *fields[FIELDS_MAX];
	int count = 0;
	*ret_memory = true;
	for (char *field = line; field; count++) {
		if (count == FIELDS_MAX)
			return false;
		char *space = strchr(field, ' ');
		fields[count] = field;
		if (space)
			*space++ = '\0';
		field = space;
	}
	if (count < 2 || !is_name(fields[1]))
		return false;
	struct record_scope *scope = record_find(record, fields[1]);
	if (strcmp(fields[0], "named") == 0 && count == 14 && !scope)
		return take_named(record, fields, ret_memory);
	if (strcmp(fields[0], "up") == 0 && count == 8 && scope)
		return take_up(scope, fields, ret_memory);
	if (strcmp(fields[0], "program") == 0 && count == 5 && scope)
		return take_program(scope, fields, ret_memory);
	if (strcmp(fields[0], "end") != 0 || count != 2 || !scope)
		return false;
	struct record_scope **link = &record->scopes;
	while (*link != scope)
		link = &(*link)->next;
	*link = scope->next;
	record->count--;
	record_scope_free(scope);
	return true;
}

/* --- the file -------------------------------------------------------------------------- */

int32_t record_code(int os_errno)
{
	switch (os_errno) {
	case ENOENT:
	case ENOTDIR:
		return ORCH_ENOENT;
	case ENOSPC:
	case EDQUOT:
		return ORCH_ENOSPC;
	case ENOMEM:
		return ORCH_ENOMEM;
	default:
		return ORCH_ESYS;
	}
}

static int write_all(int fd, const char *text, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t written = write(fd, text + done, length - done);
		if (written < 0 && errno != EINTR)
			return errno;
		done += written > 0 ? (size_t)written : 0;
	}
	return 0;
}

static void put_all(struct orch_buf *buf, const struct record *record)
{
	orch_buf_puts(buf, RECORD_HEAD);
	for (const struct record_scope *scope = record->scopes; scope; scope = scope->next) {
		record_put_named(buf, scope);
		if (scope->rung)
			record_put_up(buf, scope);
		for (uint32_t i = 0; i < scope->program_count; i++)
			record_put_program(buf, scope->name, &scope->programs[i]);
	}
}

int32_t record_write_anew(struct record *record, orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf text = {0};
	_cleanup_free_ char *fresh = orch_strdup_printf("%s.new", record->path);
	put_all(&text, record);
	if (!fresh || text.failed)
		return orch_fail_memory(reterr);
	/* One that a killed host left, or somebody's link: never written through. */
	unlink(fresh);
	int fd = open(fresh, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && fd < 3) {
		int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		close(fd);
		fd = high;
	}
	int os_errno = fd < 0 ? errno : write_all(fd, text.data, text.length);
	if (!os_errno && rename(fresh, record->path) < 0)
		os_errno = errno;
	if (os_errno) {
		if (fd >= 0) {
			close(fd);
			unlink(fresh);
		}
		return orch_fail(reterr, record_code(os_errno), os_errno, "record",
				 "the record of scopes %s could not be written anew", record->path);
	}
	orch_close_fd(&record->fd);
	record->fd = fd;
	record->size = record->written_anew = text.length;
	return 0;
}
