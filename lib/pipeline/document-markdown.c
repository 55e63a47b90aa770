/* SPDX-License-Identifier: Apache-2.0 */
#include "document-private.h"

/* Text of a document as Markdown that can not become markup of a page. */
static void add_text(struct orch_buf *buf, const char *text)
{
	for (; *text; text++) {
		if (*text == '<')
			orch_buf_puts(buf, "&lt;");
		else if (*text == '&')
			orch_buf_puts(buf, "&amp;");
		else
			orch_buf_add(buf, text, 1);
	}
}

/* A heading's or list item's: one line. */
static void add_line(struct orch_buf *buf, const char *before, const char *text, const char *after)
{
	orch_buf_puts(buf, before);
	size_t from = buf->length;
	add_text(buf, text);
	for (size_t i = from; i < buf->length; i++)
		if ((unsigned char)buf->data[i] < 0x20)
			buf->data[i] = ' ';
	orch_buf_puts(buf, after);
}

/* Code spans know no escapes: a longer fence does it. */
static void add_code(struct orch_buf *buf, const char *text)
{
	const char *fence = strchr(text, '`') ? "``" : "`";
	size_t from = buf->length;
	orch_buf_printf(buf, "%s%s%s%s%s", fence, fence[1] ? " " : "", *text ? text : " ",
			fence[1] ? " " : "", fence);
	for (size_t i = from; i < buf->length; i++)
		if ((unsigned char)buf->data[i] < 0x20)
			buf->data[i] = ' ';
}

static void add_list(struct orch_buf *buf, const char *title, char *const *list, bool code)
{
	if (!list || !*list)
		return;
	orch_buf_printf(buf, "- %s: ", title);
	for (char *const *item = list; *item; item++) {
		orch_buf_puts(buf, item == list ? "" : ", ");
		if (code)
			add_code(buf, *item);
		else
			add_text(buf, *item);
	}
	orch_buf_puts(buf, "\n");
}

static char *finish(struct orch_buf *buf)
{
	char *text = NULL;
	if (!buf->failed)
		text = buf->data ? ORCH_STEAL(buf->data) : strdup("");
	orch_buf_free(buf);
	return text;
}

char *spec_markdown(const struct spec *spec)
{
	struct orch_buf buf = {0};
	add_line(&buf, "# ", spec->title, "\n\n");
	add_text(&buf, spec->summary);
	orch_buf_printf(&buf, "\n\n- name: %s\n- kind: %s\n- start: ", spec->name,
			spec->product_kind == PRODUCT_HTTP ? "http" : "cli");
	for (char *const *arg = spec->start; arg && *arg; arg++) {
		orch_buf_puts(&buf, arg == spec->start ? "" : " ");
		add_code(&buf, *arg);
	}
	orch_buf_puts(&buf, "\n\n## Requirements\n");
	for (size_t i = 0; i < spec->requirement_count; i++) {
		const struct requirement *requirement = &spec->requirements[i];
		orch_buf_printf(&buf, "\n### %s: ", requirement->id);
		add_line(&buf, "", requirement->title, "\n\n");
		add_text(&buf, requirement->text);
		orch_buf_puts(&buf, "\n");
	}
	return finish(&buf);
}

char *plan_markdown(const struct plan *plan)
{
	struct orch_buf buf = {0};
	orch_buf_puts(&buf, "# Plan\n");
	for (size_t i = 0; i < plan->count; i++) {
		const struct task_plan *task = &plan->tasks[i];
		orch_buf_printf(&buf, "\n## %s: ", task->id);
		add_line(&buf, "", task->title, "\n\n");
		add_text(&buf, task->description);
		orch_buf_puts(&buf, "\n\n");
		add_list(&buf, "requirements", task->requirements, false);
		add_list(&buf, "after", task->after, false);
		add_list(&buf, "writes", task->writes, true);
		for (size_t o = 0; o < task->operation_count; o++)
			orch_buf_printf(&buf, "- operation: %s, key %s\n", task->operations[o].type,
					task->operations[o].key);
	}
	return finish(&buf);
}

char *tasks_markdown(const struct plan *plan)
{
	struct orch_buf buf = {0};
	orch_buf_puts(&buf, "# Tasks\n\n");
	for (size_t i = 0; i < plan->count; i++) {
		const struct task_plan *task = &plan->tasks[i];
		orch_buf_printf(&buf, "- [ ] %s: ", task->id);
		add_line(&buf, "", task->title, "");
		orch_buf_puts(&buf, " (");
		for (char *const *ref = task->requirements; ref && *ref; ref++)
			orch_buf_printf(&buf, "%s%s", ref == task->requirements ? "" : ", ", *ref);
		for (char *const *ref = task->after; ref && *ref; ref++)
			orch_buf_printf(&buf, "%s%s", ref == task->after ? "; after " : ", ", *ref);
		orch_buf_puts(&buf, ")\n");
	}
	return finish(&buf);
}
