/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commits of a delivery as git fast-import reads them. Content goes in as it is: no attribute
 * of the tree has a say. What a tree can not hold (submodules) is not mentioned and stays as it
 * was.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "git-private.h"

struct stream_writer {
	const char *trees_dir, *tree_hash;
	struct manifest manifest; /* of that tree */
	int tree_fd;
	int fd;
	struct orch_buf buf;
	orch_error **reterr;
};

static int32_t flush(struct stream_writer *writer)
{
	int32_t code = 0;
	if (writer->buf.failed)
		return orch_fail_memory(writer->reterr);
	if (tree_write_all(writer->fd, writer->buf.data, writer->buf.length) < 0)
		code = tree_fail_write("the delivery", writer->reterr);
	orch_buf_free(&writer->buf);
	return code;
}

/* Paths of trees have no control characters and no backslashes. */
static void put_path(struct orch_buf *buf, const char *path)
{
	orch_buf_puts(buf, "\"");
	for (const char *c = path; *c; c++) {
		if (*c == '"' || *c == '\\')
			orch_buf_puts(buf, "\\");
		orch_buf_add(buf, c, 1);
	}
	orch_buf_puts(buf, "\"");
}

static int32_t put_link(struct stream_writer *writer, const struct tree_entry *entry)
{
	char target[PATH_MAX];
	struct stat status;
	_cleanup_close_ int fd = -1;
	ssize_t length = -1;
	if (tree_look(writer->tree_fd, entry->path, &fd, &status) == 0)
		length = tree_read_link(fd, target, sizeof(target));
	if (length < 0)
		return orch_fail(writer->reterr, ORCH_ESYS, errno, NULL,
				 "the link %s can not be read", entry->path);
	orch_buf_printf(&writer->buf, "data %zd\n", length);
	orch_buf_add(&writer->buf, target, (size_t)length);
	orch_buf_puts(&writer->buf, "\n");
	return flush(writer);
}

static int32_t put_file(struct stream_writer *writer, const struct tree_entry *entry)
{
	_cleanup_close_ int fd = -1;
	char hash[TREE_HASH_SIZE];
	uint64_t size;
	int32_t code =
	    tree_open_file(writer->tree_fd, writer->tree_hash, entry->path, &fd, writer->reterr);
	if (code < 0)
		return code;
	orch_buf_printf(&writer->buf, "data %llu\n", (unsigned long long)entry->size);
	code = flush(writer);
	if (!code)
		code = tree_copy_file(fd, writer->fd, entry->path, entry->size, &size, hash,
				      writer->reterr);
	if (!code && (strcmp(hash, entry->hash) || size != entry->size))
		code = orch_fail(writer->reterr, ORCH_ECORRUPT, 0, NULL,
				 "%s in the tree %s was changed while it "
				 "was read",
				 entry->path, writer->tree_hash);
	orch_buf_puts(&writer->buf, "\n");
	return code ? code : flush(writer);
}

static int32_t put_change(void *userdata, char change, const char *path)
{
	struct stream_writer *writer = userdata;
	if (change == TREE_DELETED)
		return 0;
	const struct tree_entry *entry = manifest_find(&writer->manifest, path);
	orch_buf_printf(&writer->buf, "M %s inline ", entry_mode(entry->type));
	put_path(&writer->buf, path);
	orch_buf_puts(&writer->buf, "\n");
	return entry->type == TREE_LINK ? put_link(writer, entry) : put_file(writer, entry);
}

/* First of all, so that a folder can take the place of a file and the other way round. */
static int32_t put_deletion(void *userdata, char change, const char *path)
{
	struct stream_writer *writer = userdata;
	if (change != TREE_DELETED)
		return 0;
	orch_buf_puts(&writer->buf, "D ");
	put_path(&writer->buf, path);
	orch_buf_puts(&writer->buf, "\n");
	return flush(writer);
}

static int32_t put_commit(struct stream_writer *writer, const struct delivery *delivery,
			  size_t index, const char *before)
{
	const struct delivery_commit *commit = &delivery->commits[index];
	const char *message = commit->message ? commit->message : "";
	size_t length = strlen(message);
	const char *end = length && message[length - 1] == '\n' ? "" : "\n";
	writer->tree_hash = commit->tree_hash;
	int32_t code =
	    tree_load(delivery->trees_dir, commit->tree_hash, &writer->manifest, writer->reterr);
	if (!code && writer->manifest.count)
		code = tree_open_stored(delivery->trees_dir, commit->tree_hash, &writer->tree_fd,
					writer->reterr);
	if (code < 0)
		return code;
	orch_buf_printf(&writer->buf, "commit refs/heads/%s\n", delivery->branch);
	for (int twice = 0; twice < 2; twice++)
		orch_buf_printf(&writer->buf, "%s liborch <liborch@localhost> %lld +0000\n",
				twice ? "committer" : "author", (long long)commit->time_s);
	orch_buf_printf(&writer->buf, "data %zu\n%s%s", length + strlen(end), message, end);
	if (!index && delivery->staging_dir)
		orch_buf_printf(&writer->buf, "from %s\n", delivery->base_commit);
	code = flush(writer);
	if (!code)
		code = tree_changes(delivery->trees_dir, before, commit->tree_hash, put_deletion,
				    writer, writer->reterr);
	if (!code)
		code = tree_changes(delivery->trees_dir, before, commit->tree_hash, put_change,
				    writer, writer->reterr);
	return code;
}

int32_t delivery_write_stream(const struct delivery *delivery, const char *base_tree, int fd,
			      orch_error **reterr)
{
	int32_t code = 0;
	const char *before = base_tree;
	for (size_t i = 0; !code && i < delivery->commit_count; i++) {
		struct stream_writer writer = {
		    .trees_dir = delivery->trees_dir, .tree_fd = -1, .fd = fd, .reterr = reterr};
		code = put_commit(&writer, delivery, i, before);
		before = delivery->commits[i].tree_hash;
		manifest_free(&writer.manifest);
		orch_close_fd(&writer.tree_fd);
		orch_buf_free(&writer.buf);
	}
	if (!code && tree_write_all(fd, "done\n", 5) < 0)
		code = tree_fail_write("the delivery", reterr);
	return code;
}
