/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unified diff for people who review: Myers' greedy algorithm, with a bound on the differences it
 * looks for. Beyond it the middle of the file is shown as replaced, which is a longer diff but not
 * a wrong one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "tree-private.h"

#define DIFF_FILE_MAX (1024 * 1024)
#define DIFF_EDITS_MAX 1000
#define DIFF_CONTEXT 3
#define NOTE_ROOM 80

struct line {
	const char *text;
	size_t length;
};

struct text {
	char *bytes;
	size_t length;
	struct line *lines;
	size_t count;
};

struct differ {
	const char *trees_dir, *from_hash, *to_hash;
	struct manifest from, to;
	struct orch_buf out;
	size_t limit;
	bool full;
	orch_error **reterr;
};

static void text_free(struct text *text)
{
	free(text->bytes);
	free(text->lines);
}
#define _cleanup_text_ __attribute__((cleanup(text_free)))

/* --- output ---------------------------------------------------------------------------------- */

static void put(struct differ *differ, const char *before, const char *text, size_t length,
		const char *after)
{
	if (differ->full ||
	    differ->out.length + strlen(before) + length + strlen(after) > differ->limit) {
		differ->full = true;
		return;
	}
	orch_buf_puts(&differ->out, before);
	orch_buf_add(&differ->out, text, length);
	orch_buf_puts(&differ->out, after);
}

static void put_text(struct differ *differ, const char *before, const char *text)
{
	put(differ, before, text, strlen(text), "\n");
}

static void put_line(struct differ *differ, const char *mark, const struct line *line)
{
	bool ends = line->length && line->text[line->length - 1] == '\n';
	put(differ, mark, line->text, line->length, ends ? "" : "\n\\ No newline at end of file\n");
}

/* --- edit script ----------------------------------------------------------------------------- */

static bool equal(const struct line *one, const struct line *other)
{
	return one->length == other->length && !memcmp(one->text, other->text, one->length);
}

/*
 * kept_old[i], kept_new[j]: the line is on both sides. Lines kept are in the same order on both.
 * False without memory.
 */
static bool mark_kept(const struct line *old, size_t old_count, const struct line *new,
		      size_t new_count, bool *kept_old, bool *kept_new)
{
	ptrdiff_t n = (ptrdiff_t)old_count, m = (ptrdiff_t)new_count;
	ptrdiff_t most = n + m < DIFF_EDITS_MAX ? n + m : DIFF_EDITS_MAX;
	/* reach[d] holds the furthest old line on each diagonal -d .. d after d edits. */
	ptrdiff_t **reach = calloc((size_t)most + 1, sizeof(*reach));
	ptrdiff_t found = -1;
	bool ok = reach != NULL;
	for (ptrdiff_t d = 0; ok && found < 0 && d <= most; d++) {
		reach[d] = malloc((size_t)(2 * d + 1) * sizeof(**reach));
		ok = reach[d] != NULL;
		for (ptrdiff_t k = -d; ok && k <= d; k += 2) {
			const ptrdiff_t *last = d ? reach[d - 1] + (d - 1) : NULL;
			ptrdiff_t x = !d ? 0
				      : k == -d || (k != d && last[k - 1] < last[k + 1])
					  ? last[k + 1]
					  : last[k - 1] + 1;
			while (x < n && x - k < m && equal(&old[x], &new[x - k]))
				x++;
			reach[d][d + k] = x;
			if (x >= n && x - k >= m)
				found = d;
		}
	}
	ptrdiff_t x = n, y = m;
	for (ptrdiff_t d = found; ok && d >= 0; d--) {
		const ptrdiff_t *last = d ? reach[d - 1] + (d - 1) : NULL;
		ptrdiff_t k = x - y;
		bool added = d && (k == -d || (k != d && last[k - 1] < last[k + 1]));
		ptrdiff_t start = !d ? 0 : added ? last[k + 1] : last[k - 1] + 1;
		for (; x > start; x--, y--)
			kept_old[x - 1] = kept_new[y - 1] = true;
		if (d && added)
			y--;
		else if (d)
			x--;
	}
	for (ptrdiff_t d = 0; reach && d <= most; d++)
		free(reach[d]);
	free(reach);
	return ok;
}

static bool find_kept(const struct text *old, const struct text *new, bool *kept_old,
		      bool *kept_new)
{
	size_t head = 0, tail = 0;
	size_t shorter = old->count < new->count ? old->count : new->count;
	while (head < shorter && equal(&old->lines[head], &new->lines[head]))
		head++;
	while (tail < shorter - head &&
	       equal(&old->lines[old->count - 1 - tail], &new->lines[new->count - 1 - tail]))
		tail++;
	for (size_t i = 0; i < head; i++)
		kept_old[i] = kept_new[i] = true;
	for (size_t i = 1; i <= tail; i++)
		kept_old[old->count - i] = kept_new[new->count - i] = true;
	return mark_kept(old->lines + head, old->count - head - tail, new->lines + head,
			 new->count - head - tail, kept_old + head, kept_new + head);
}

/* --- hunks ----------------------------------------------------------------------------------- */

/* Moves past changed lines and past kept ones that are too few to end a hunk. */
static void hunk_end(const struct text *old, const struct text *new, const bool *kept_old,
		     const bool *kept_new, size_t *i, size_t *j)
{
	size_t end_i = *i, end_j = *j;
	for (;;) {
		while (end_i < old->count && !kept_old[end_i])
			end_i++;
		while (end_j < new->count && !kept_new[end_j])
			end_j++;
		size_t run = 0;
		while (end_i + run < old->count && kept_old[end_i + run] && kept_new[end_j + run])
			run++;
		bool last = end_i + run == old->count && end_j + run == new->count;
		if (last || run > 2 * DIFF_CONTEXT) {
			run = run < DIFF_CONTEXT ? run : DIFF_CONTEXT;
			*i = end_i + run;
			*j = end_j + run;
			return;
		}
		end_i += run;
		end_j += run;
	}
}

static void put_hunks(struct differ *differ, const struct text *old, const struct text *new,
		      const bool *kept_old, const bool *kept_new)
{
	size_t i = 0, j = 0;
	while (!differ->full) {
		while (i < old->count && j < new->count &&kept_old[i] && kept_new[j])
			i++, j++;
		if (i == old->count && j == new->count)
			return;
		size_t context = i < DIFF_CONTEXT ? i : DIFF_CONTEXT;
		size_t a = i - context, b = j - context, end_i = i, end_j = j;
		hunk_end(old, new, kept_old, kept_new, &end_i, &end_j);
		char head[120];
		snprintf(head, sizeof(head), "@@ -%zu,%zu +%zu,%zu @@", end_i > a ? a + 1 : a,
			 end_i - a, end_j > b ? b + 1 : b, end_j - b);
		put_text(differ, "", head);
		while (a < end_i || b < end_j) {
			if (a < end_i && !kept_old[a])
				put_line(differ, "-", &old->lines[a++]);
			else if (b < end_j && !kept_new[b])
				put_line(differ, "+", &new->lines[b++]);
			else
				put_line(differ, " ", &old->lines[a++]), b++;
		}
		i = end_i;
		j = end_j;
	}
}

/* --- files ----------------------------------------------------------------------------------- */

static bool is_binary(const struct text *text)
{
	for (size_t i = 0, length; i < text->length; i += length) {
		length = utf8_length(text->bytes + i, text->length - i);
		if (!length || !text->bytes[i])
			return true;
	}
	return false;
}

static int32_t split(struct text *text, orch_error **reterr)
{
	size_t count = 1;
	for (size_t i = 0; i < text->length; i++)
		count += text->bytes[i] == '\n';
	text->lines = calloc(count, sizeof(*text->lines));
	if (!text->lines)
		return orch_fail_memory(reterr);
	for (const char *at = text->bytes, *end = text->bytes + text->length; at < end;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *next = newline ? newline + 1 : end;
		text->lines[text->count++] = (struct line){at, (size_t)(next - at)};
		at = next;
	}
	return 0;
}

static int32_t read_text(struct differ *differ, const char *hash, const struct tree_entry *entry,
			 struct text *text)
{
	_cleanup_close_ int tree = -1, file = -1;
	if (!entry)
		return 0;
	int32_t code = tree_open_stored(differ->trees_dir, hash, &tree, differ->reterr);
	if (code < 0)
		return code;
	if (entry->type == TREE_LINK) {
		char target[PATH_MAX];
		struct stat status;
		ssize_t length = -1;
		if (tree_look(tree, entry->path, &file, &status) == 0)
			length = tree_read_link(file, target, sizeof(target));
		if (length < 0)
			return orch_fail(differ->reterr, ORCH_ESYS, errno, NULL,
					 "the link %s can not be read", entry->path);
		text->length = (size_t)length;
		text->bytes = strndup(target, text->length);
		return text->bytes ? 0 : orch_fail_memory(differ->reterr);
	}
	code = tree_open_file(tree, hash, entry->path, &file, differ->reterr);
	if (!code)
		code = tree_read_all(file, entry->path, DIFF_FILE_MAX, (void **)&text->bytes,
				     &text->length, differ->reterr);
	return code;
}

static int32_t diff_content(struct differ *differ, const char *path,
			    const struct tree_entry *old_entry, const struct tree_entry *new_entry)
{
	_cleanup_text_ struct text old = {0}, new = {0};
	if ((old_entry && old_entry->size > DIFF_FILE_MAX) ||
	    (new_entry && new_entry->size > DIFF_FILE_MAX)) {
		put_text(differ, "Too large to be shown: ", path);
		return 0;
	}
	int32_t code = read_text(differ, differ->from_hash, old_entry, &old);
	if (!code)
		code = read_text(differ, differ->to_hash, new_entry, &new);
	if (code < 0)
		return code;
	if (is_binary(&old) || is_binary(&new)) {
		put_text(differ, "Binary file: ", path);
		return 0;
	}
	code = split(&old, differ->reterr);
	if (!code)
		code = split(&new, differ->reterr);
	if (code < 0)
		return code;
	_cleanup_free_ bool *kept_old = calloc(old.count + 1, sizeof(bool));
	_cleanup_free_ bool *kept_new = calloc(new.count + 1, sizeof(bool));
	if (!kept_old || !kept_new || !find_kept(&old, &new, kept_old, kept_new))
		return orch_fail_memory(differ->reterr);
	put(differ, "--- ", old_entry ? "a/" : "", old_entry ? 2 : 0,
	    old_entry ? path : "/dev/null");
	put(differ, "\n+++ ", new_entry ? "b/" : "", new_entry ? 2 : 0,
	    new_entry ? path : "/dev/null");
	put(differ, "\n", "", 0, "");
	put_hunks(differ, &old, &new, kept_old, kept_new);
	return 0;
}

static int32_t diff_file(void *userdata, char change, const char *path)
{
	struct differ *differ = userdata;
	const struct tree_entry *old =
	    change == TREE_ADDED ? NULL : manifest_find(&differ->from, path);
	const struct tree_entry *new =
	    change == TREE_DELETED ? NULL : manifest_find(&differ->to, path);
	put_text(differ, "diff ", path);
	if (!old)
		put_text(differ, "new file mode ", entry_mode(new->type));
	else if (!new)
		put_text(differ, "deleted file mode ", entry_mode(old->type));
	else if (old->type != new->type) {
		put_text(differ, "old mode ", entry_mode(old->type));
		put_text(differ, "new mode ", entry_mode(new->type));
	}
	if (old && new && !strcmp(old->hash, new->hash))
		return 0;
	/* Ends the walk early, as the header says; not an error. */
	return differ->full ? 1 : diff_content(differ, path, old, new);
}

int32_t tree_diff(const char *trees_dir, const char *from_hash, const char *to_hash, size_t limit,
		  char **ret_text, orch_error **reterr)
{
	struct differ differ = {.trees_dir = trees_dir,
				.from_hash = from_hash,
				.to_hash = to_hash,
				.limit = limit > NOTE_ROOM ? limit - NOTE_ROOM : 0,
				.reterr = reterr};
	int32_t code = tree_load(trees_dir, from_hash, &differ.from, reterr);
	if (!code)
		code = tree_load(trees_dir, to_hash, &differ.to, reterr);
	if (!code)
		code = tree_changes(trees_dir, from_hash, to_hash, diff_file, &differ, reterr);
	if (code >= 0) {
		code = 0;
		if (differ.full)
			orch_buf_printf(
			    &differ.out,
			    "[the rest is left out: the diff has more than %zu bytes]\n", limit);
		char *text = differ.out.failed ? NULL
			     : differ.out.data ? ORCH_STEAL(differ.out.data)
					       : strdup("");
		if (text)
			*ret_text = text;
		else
			code = orch_fail_memory(reterr);
	}
	orch_buf_free(&differ.out);
	manifest_free(&differ.from);
	manifest_free(&differ.to);
	return code;
}
