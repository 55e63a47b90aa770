/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JOURNAL_KIT_H
#define JOURNAL_KIT_H

/* What the tests of the journal share: a folder per test, short forms that check, whole files. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orch/journal.h>

static char folder[64], journal_path[96], wal_path[100], lock_path[101], anchor_folder[64],
	anchor_path[96];

static const char *kit_base = "/tmp";

static inline int kit_remove(const char *path, const struct stat *status, int type,
			     struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

static inline void kit_paths(void)
{
	snprintf(journal_path, sizeof(journal_path), "%s/j", folder);
	snprintf(wal_path, sizeof(wal_path), "%s-wal", journal_path);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", journal_path);
	snprintf(anchor_path, sizeof(anchor_path), "%s/a", anchor_folder);
}

static inline void kit_setup(void)
{
	snprintf(folder, sizeof(folder), "%s/orch-test-journal-XXXXXX", kit_base);
	snprintf(anchor_folder, sizeof(anchor_folder), "%s/orch-test-anchor-XXXXXX", kit_base);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_ptr_nonnull(mkdtemp(anchor_folder));
	kit_paths();
}

static struct kit_memory {
	struct kit_memory *next;
	unsigned char bytes[];
} * kit_memory;

static inline unsigned char *kit_allocate(size_t size)
{
	struct kit_memory *memory = malloc(sizeof(*memory) + size);
	ck_assert_ptr_nonnull(memory);
	memory->next = kit_memory;
	kit_memory = memory;
	return memory->bytes;
}

static inline void kit_teardown(void)
{
	while (kit_memory) {
		struct kit_memory *next = kit_memory->next;
		free(kit_memory);
		kit_memory = next;
	}
	nftw(folder, kit_remove, 8, FTW_DEPTH | FTW_PHYS);
	nftw(anchor_folder, kit_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* Asserts success and shows the message otherwise. */
#define OK(call)                                                                                   \
	do {                                                                                       \
		orch_error *error = NULL;                                                          \
		int32_t code_ = (call);                                                            \
		ck_assert_msg(code_ == 0, "%s: %s: %s", #call, orch_code_name(code_),              \
			      orch_error_message(error));                                          \
		orch_error_free(error);                                                            \
	} while (0)

/* Asserts the code, and that a message of some length comes with it. */
#define FAILS(code, call)                                                                          \
	do {                                                                                       \
		orch_error *error = NULL;                                                          \
		int32_t code_ = (call);                                                            \
		ck_assert_msg(code_ == (code), "%s: %s and not %s: %s", #call,                     \
			      orch_code_name(code_), #code, orch_error_message(error));            \
		ck_assert_int_eq(orch_error_code(error), (code));                                  \
		ck_assert_msg(strlen(orch_error_message(error)) > 10, "%s: message \"%s\"", #call, \
			      orch_error_message(error));                                          \
		orch_error_free(error);                                                            \
	} while (0)

static inline int32_t kit_open_with(orch_journal **journal, uint32_t flags, const char *anchor,
				    void (*on_record)(void *, uint64_t), void *userdata,
				    orch_error **reterr)
{
	struct orch_journal_opts opts;
	orch_journal_opts_init(&opts, sizeof(opts));
	opts.path = journal_path;
	opts.flags = flags;
	opts.anchor_path = anchor;
	opts.on_record = on_record;
	opts.userdata = userdata;
	return orch_journal_open(&opts, journal, reterr);
}

static inline int32_t kit_open(orch_journal **journal, orch_error **reterr)
{
	return kit_open_with(journal, 0, NULL, NULL, NULL, reterr);
}

static inline orch_journal *open_journal(void)
{
	orch_journal *journal = NULL;
	OK(kit_open(&journal, &error));
	return journal;
}

static inline orch_journal *open_anchored(void)
{
	orch_journal *journal = NULL;
	OK(kit_open_with(&journal, 0, anchor_path, NULL, NULL, &error));
	return journal;
}

static inline int32_t kit_begin(orch_journal *journal, const char *key, uint32_t policy,
				const char *request, uint32_t *outcome, orch_action **action,
				orch_error **reterr)
{
	struct orch_action_opts opts;
	orch_action_opts_init(&opts, sizeof(opts));
	opts.kind = "test.action";
	opts.key = key;
	opts.policy = policy;
	opts.request = request;
	opts.request_length = request ? strlen(request) : 0;
	return orch_journal_begin(journal, &opts, outcome, action, reterr);
}

static inline orch_action *begin(orch_journal *journal, const char *key, uint32_t policy,
				 uint32_t expected)
{
	orch_action *action = NULL;
	uint32_t outcome = 0;
	OK(kit_begin(journal, key, policy, "request", &outcome, &action, &error));
	ck_assert_uint_eq(outcome, expected);
	ck_assert_ptr_nonnull(action);
	return action;
}

static inline int32_t kit_recover(orch_journal *journal, const char *kind_prefix, orch_probe_fn probe,
				  void *userdata, orch_recovery **recovery, orch_error **reterr)
{
	struct orch_recover_opts opts;
	orch_recover_opts_init(&opts, sizeof(opts));
	opts.kind_prefix = kind_prefix;
	opts.probe = probe;
	opts.userdata = userdata;
	return orch_journal_recover(journal, &opts, recovery, reterr);
}

static inline orch_action *find(orch_journal *journal, const char *key)
{
	orch_action *action = NULL;
	OK(orch_journal_find(journal, key, &action, &error));
	return action;
}

static inline uint32_t state_of(orch_journal *journal, const char *key)
{
	orch_action *action = find(journal, key);
	uint32_t state = orch_action_state(action);
	orch_action_unref(action);
	return state;
}

static inline int32_t move(orch_action *action, uint32_t state, orch_error **reterr)
{
	switch (state) {
	case ORCH_ACTION_DISPATCHED:
		return orch_action_dispatch(action, reterr);
	case ORCH_ACTION_OBSERVED:
		return orch_action_observe(action, "result", 6, reterr);
	case ORCH_ACTION_CONFIRMED:
		return orch_action_confirm(action, reterr);
	case ORCH_ACTION_FAILED:
		return orch_action_fail(action, "failed", 6, reterr);
	case ORCH_ACTION_UNKNOWN:
		return orch_action_unknown(action, "unknown", 7, reterr);
	case ORCH_ACTION_HANDED_OVER:
		return orch_action_hand_over(action, "person", 6, reterr);
	case ORCH_ACTION_ABANDONED:
		return orch_action_abandon(action, "given up", 8, reterr);
	default:
		return ORCH_EINVAL;
	}
}

/* A new action, brought to `state` by the shortest way. */
static inline orch_action *make(orch_journal *journal, const char *key, uint32_t policy,
				uint32_t state)
{
	orch_action *action = begin(journal, key, policy, ORCH_BEGIN_FRESH);
	if (state != ORCH_ACTION_INTENT)
		OK(orch_action_dispatch(action, &error));
	if (state == ORCH_ACTION_CONFIRMED)
		OK(orch_action_observe(action, "result", 6, &error));
	if (state != ORCH_ACTION_INTENT && state != ORCH_ACTION_DISPATCHED)
		OK(move(action, state, &error));
	ck_assert_uint_eq(orch_action_state(action), state);
	return action;
}

/* Its bytes live until the test ends. */
struct file {
	unsigned char *bytes;
	size_t length;
	bool exists;
};

static inline struct file slurp(const char *path)
{
	struct file file = {0};
	FILE *stream = fopen(path, "re");
	if (!stream)
		return file;
	struct stat status;
	ck_assert_int_eq(fstat(fileno(stream), &status), 0);
	file.exists = true;
	file.length = (size_t)status.st_size;
	file.bytes = kit_allocate(file.length + 1);
	ck_assert_uint_eq(fread(file.bytes, 1, file.length, stream), file.length);
	fclose(stream);
	return file;
}

static inline void spill(const char *path, const struct file *file)
{
	if (!file->exists) {
		unlink(path);
		return;
	}
	FILE *stream = fopen(path, "we");
	ck_assert_ptr_nonnull(stream);
	if (file->length)
		ck_assert_uint_eq(fwrite(file->bytes, 1, file->length, stream), file->length);
	ck_assert_int_eq(fclose(stream), 0);
}

static inline void same_file(const char *path, const struct file *before)
{
	struct file now = slurp(path);
	ck_assert_msg(now.exists == before->exists && now.length == before->length &&
			      (!now.length || memcmp(now.bytes, before->bytes, now.length) == 0),
		      "%s changed", path);
}

/* Runs `body` in a child and returns its wait status. */
static inline int in_child(void (*body)(void *), void *userdata)
{
	fflush(NULL);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		alarm(60);
		body(userdata);
		_exit(0);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

/* What somebody else might do to the database. The log stays. */
static inline void sql(const char *statements)
{
	sqlite3 *db = NULL;
	ck_assert_int_eq(sqlite3_open_v2(journal_path, &db, SQLITE_OPEN_READWRITE, NULL),
			 SQLITE_OK);
	sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	ck_assert_int_eq(sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL),
			 SQLITE_OK);
	char *message = NULL;
	ck_assert_msg(sqlite3_exec(db, statements, NULL, NULL, &message) == SQLITE_OK, "%s: %s",
		      statements, message);
	sqlite3_close(db);
}

static inline void fill(orch_journal *journal)
{
	orch_action_unref(make(journal, "done", 0, ORCH_ACTION_CONFIRMED));
	orch_action_unref(make(journal, "open", 0, ORCH_ACTION_DISPATCHED));
}

/* What a coordinator that was killed leaves; `userdata` not NULL: with an anchor. */
static inline void fill_and_die(void *userdata)
{
	orch_journal *journal = userdata ? open_anchored() : open_journal();
	fill(journal);
	kill(getpid(), SIGKILL);
}

#endif
