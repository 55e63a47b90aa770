/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#include "document-private.h"

void fault_add(struct faults *faults, long line, const char *format, ...)
{
	faults->count++;
	faults->last_line = line;
	if (faults->count > DOCUMENT_FAULTS_MAX)
		return;
	va_list arguments;
	va_start(arguments, format);
	_cleanup_free_ char *reason = NULL;
	if (vasprintf(&reason, format, arguments) < 0)
		reason = NULL;
	va_end(arguments);
	if (!reason) {
		faults->text.failed = true;
		return;
	}
	/* One line each, whatever the document put in. */
	for (char *c = reason; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	size_t length = strlen(reason);
	while (length && reason[length - 1] == ' ')
		reason[--length] = '\0';
	orch_buf_printf(&faults->text, "%s%s:%ld: %s", faults->text.length ? "\n" : "",
			faults->document, line, reason);
}

int32_t faults_close(struct faults *faults, orch_error **reterr)
{
	int32_t code = 0;
	if (faults->count > DOCUMENT_FAULTS_MAX)
		orch_buf_printf(&faults->text, "\n%s: and %zu more", faults->document,
				faults->count - DOCUMENT_FAULTS_MAX);
	if (faults->count)
		code = faults->text.failed
			   ? orch_fail_memory(reterr)
			   : orch_fail(reterr, ORCH_EPARSE, 0, NULL, "%s", faults->text.data);
	orch_buf_free(&faults->text);
	*faults = (struct faults){.document = faults->document};
	return code;
}

int32_t document_check_size(const char *name, const void *bytes, size_t length, orch_error **reterr)
{
	if (!bytes && length)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%s: no bytes given", name);
	if (length > DOCUMENT_BYTES_MAX)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL,
				 "%s:1: the document has %zu bytes: at most %d are allowed", name,
				 length, DOCUMENT_BYTES_MAX);
	return 0;
}

bool is_id(const char *text)
{
	if (!isascii((unsigned char)*text) || !isalpha((unsigned char)*text))
		return false;
	size_t length =
	    strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
	return text[length] == '\0' && length <= 32;
}

const char *write_path_fault(const char *path)
{
	if (!strcmp(path, "."))
		return NULL;
	if (!*path)
		return "it is empty";
	if (*path == '/')
		return "it starts with \"/\"";
	if (strlen(path) > 1024)
		return "it is longer than 1024 bytes";
	for (const char *c = path; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '\\')
			return "it has a control character or a backslash";
	for (const char *segment = path; *segment;) {
		size_t length = strcspn(segment, "/");
		if (!length)
			return "it has \"//\"";
		if (length == 1 && segment[0] == '.')
			return "it has a \".\" segment";
		if (length == 2 && segment[0] == '.' && segment[1] == '.')
			return "it has a \"..\" segment";
		if (length == 4 && !strncasecmp(segment, ".git", 4))
			return "it goes into .git";
		if (strpbrk(segment, "*?[") && strpbrk(segment, "*?[") < segment + length)
			return "patterns are not supported";
		segment += length + (segment[length] == '/');
	}
	return NULL;
}

bool write_set_covers(char *const *writes, const char *path)
{
	for (char *const *entry = writes; entry && *entry; entry++) {
		size_t length = strlen(*entry);
		if (!strcmp(*entry, ".") || !strcmp(*entry, path))
			return true;
		if (length && (*entry)[length - 1] == '/' && !strncmp(*entry, path, length))
			return true;
	}
	return false;
}

char *text_trimmed(const char *text)
{
	text += strspn(text, " \t\r\n");
	size_t length = strlen(text);
	while (length && strchr(" \t\r\n", text[length - 1]))
		length--;
	return strndup(text, length);
}

char **list_free(char **list)
{
	for (char **item = list; item && *item; item++)
		free(*item);
	free(list);
	return NULL;
}

bool list_add(char ***list, size_t *count, const char *text)
{
	char **grown = realloc(*list, (*count + 2) * sizeof(*grown));
	if (!grown)
		return false;
	*list = grown;
	grown[*count] = strdup(text);
	grown[*count + 1] = NULL;
	return grown[*count] && ++*count;
}

struct spec *spec_free(struct spec *spec)
{
	if (!spec)
		return NULL;
	for (size_t i = 0; i < spec->requirement_count; i++) {
		free(spec->requirements[i].id);
		free(spec->requirements[i].title);
		free(spec->requirements[i].text);
	}
	free(spec->requirements);
	list_free(spec->start);
	free(spec->name);
	free(spec->title);
	free(spec->summary);
	free(spec);
	return NULL;
}

struct checks *checks_free(struct checks *checks)
{
	if (!checks)
		return NULL;
	for (size_t i = 0; i < checks->count; i++) {
		free(checks->checks[i].id);
		free(checks->checks[i].requirement);
		free(checks->checks[i].file);
	}
	free(checks->checks);
	free(checks);
	return NULL;
}

struct plan *plan_free(struct plan *plan)
{
	if (!plan)
		return NULL;
	for (size_t i = 0; i < plan->count; i++) {
		struct task_plan *task = &plan->tasks[i];
		for (size_t o = 0; o < task->operation_count; o++) {
			free(task->operations[o].type);
			free(task->operations[o].key);
		}
		free(task->operations);
		list_free(task->requirements);
		list_free(task->after);
		list_free(task->writes);
		free(task->id);
		free(task->title);
		free(task->description);
	}
	free(plan->tasks);
	free(plan);
	return NULL;
}

struct questions *questions_free(struct questions *questions)
{
	if (!questions)
		return NULL;
	for (size_t i = 0; i < questions->count; i++) {
		free(questions->questions[i].id);
		free(questions->questions[i].text);
		free(questions->questions[i].recommended);
		free(questions->questions[i].kind);
		list_free(questions->questions[i].options);
	}
	free(questions->questions);
	free(questions);
	return NULL;
}
