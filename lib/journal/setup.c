/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>

#include "core/os.h"
#include "journal-private.h"

/* Making, opening and closing the database, and the disk space kept back for it. */

static uint32_t big_endian(const unsigned char *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

static int32_t newer_schema(const char *path, int64_t schema, orch_error **reterr)
{
	return orch_fail(
		reterr, ORCH_ESCHEMA, 0, NULL,
		"%s has schema %lld, this is liborch %s with schema %d: use the version that wrote "
		"it, or a newer one",
		path, (long long)schema, ORCH_VERSION_STRING, JOURNAL_SCHEMA);
}

static int32_t no_journal(const char *path, orch_error **reterr)
{
	return orch_fail(reterr, ORCH_ECORRUPT, 0, NULL,
			 "%s is not a journal, or its beginning is damaged", path);
}

/*
 * A power loss while the log goes back into the database may damage the database's first page, which the log still
 * has: then the file alone says nothing, and SQLite is asked.
 */
static bool log_may_tell(const char *path, off_t size)
{
	unsigned char header[32]; /* https://sqlite.org/fileformat2.html, the WAL file format */
	_cleanup_free_ char *wal_path = orch_strdup_printf("%s-wal", path);
	/* Beside an empty database SQLite would delete the log. */
	if (!wal_path || size < 4096)
		return false;
	_cleanup_close_ int fd =
		open(wal_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	return fd >= 0 && pread(fd, header, sizeof(header), 0) == sizeof(header) &&
	       (big_endian(header) | 1) == 0x377f0683;
}

static int32_t check_identity(const char *path, off_t size, const unsigned char header[100],
			      bool *ret_backup, orch_error **reterr)
{
	bool is_database = memcmp(header, "SQLite format 3", 16) == 0;
	uint32_t application = is_database ? big_endian(header + 68) : 0;
	if (application == JOURNAL_BACKUP_ID && !ret_backup)
		return orch_fail(
			reterr, ORCH_ECORRUPT, 0, NULL,
			"%s is a backup, which does not know what happened after it was made: "
			"orch_journal_restore() makes a journal of it",
			path);
	if (ret_backup)
		*ret_backup = application == JOURNAL_BACKUP_ID;
	if (application != JOURNAL_APPLICATION_ID && application != JOURNAL_BACKUP_ID)
		return log_may_tell(path, size) ? 0 : no_journal(path, reterr);
	if (big_endian(header + 60) > JOURNAL_SCHEMA)
		return newer_schema(path, big_endian(header + 60), reterr);
	return 0;
}

int32_t store_check_file(const char *path, bool *ret_backup, orch_error **reterr)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return orch_fail(reterr, journal_code(errno), errno, NULL, "cannot open %s", path);
	struct stat status;
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return orch_fail(reterr, ORCH_ECORRUPT, 0, NULL, "%s is not a file", path);
	/* https://sqlite.org/fileformat2.html, the database header; zeros where it is shorter */
	unsigned char header[100] = {0};
	if (pread(fd, header, sizeof(header), 0) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, NULL, "cannot read %s", path);
	bool is_backup = false;
	int32_t r = check_identity(path, status.st_size, header, ret_backup ? &is_backup : NULL, reterr);
	if (r < 0)
		return r;
	if (status.st_nlink != 1 && !is_backup)
		return orch_fail(
			reterr, ORCH_EINVAL, 0, NULL,
			"%s has %lu hard links, and its log and lock go by name: remove the others "
			"or copy it",
			path, (unsigned long)status.st_nlink);
	if (ret_backup)
		*ret_backup = is_backup;
	return 0;
}

/* --- making
 * ------------------------------------------------------------------------------------------- */

static int create_database(const char *path, char **ret_text)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	unsigned char id[16];
	randombytes_buf(id, sizeof(id));
	_cleanup_free_ char *end =
		orch_strdup_printf("PRAGMA application_id = %d; COMMIT; PRAGMA journal_mode = WAL",
				   JOURNAL_APPLICATION_ID);
	if (!end)
		return SQLITE_NOMEM;
	int result =
		sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, "unix");
	if (result == SQLITE_OK)
		result = sqlite3_exec(db,
				      "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL",
				      NULL, NULL, NULL);
	if (result == SQLITE_OK)
		result = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	if (result == SQLITE_OK)
		result = schema_create(db);
	if (result == SQLITE_OK)
		result = sqlite3_prepare_v2(db, "INSERT INTO journal VALUES (1, ?1, 1, ?2)", -1,
					    &statement, NULL);
	if (result == SQLITE_OK) {
		sqlite3_bind_blob(statement, 1, id, sizeof(id), SQLITE_STATIC);
		sqlite3_bind_int64(statement, 2, orch_realtime_ms());
		result = sqlite3_step(statement);
		result = result == SQLITE_DONE ? SQLITE_OK : result;
	}
	result = store_finalize(statement, result);
	if (result == SQLITE_OK)
		result = sqlite3_exec(db, end, NULL, NULL, NULL);
	if (result != SQLITE_OK)
		*ret_text = strdup(db ? sqlite3_errmsg(db) : sqlite3_errstr(result));
	int closed = sqlite3_close(db);
	return result == SQLITE_OK ? closed : result;
}

int32_t store_create(const char *path, orch_error **reterr)
{
	_cleanup_free_ char *temp = orch_strdup_printf("%s.new", path);
	_cleanup_free_ char *text = NULL;
	if (!temp)
		return orch_fail_memory(reterr);
	/* What an earlier coordinator left when it was killed here. */
	file_remove_database(temp);

	int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int os_errno = fd < 0 ? errno : 0;
	orch_close_fd(&fd);
	if (os_errno)
		goto failed;
	int result = create_database(temp, &text);
	if (result != SQLITE_OK) {
		os_errno = (result & 0xff) == SQLITE_FULL    ? ENOSPC
			   : (result & 0xff) == SQLITE_NOMEM ? ENOMEM
							     : EIO;
		goto failed;
	}
	os_errno = file_sync(temp);
	if (!os_errno && rename(temp, path) < 0)
		os_errno = errno;
	if (!os_errno)
		os_errno = file_sync_folder_of(path);
	if (!os_errno)
		return 0;
failed:
	file_remove_database(temp);
	return orch_fail(reterr, journal_code(os_errno), os_errno, "create",
			 "cannot make the journal %s%s%s", path, text ? ": " : "",
			 text ? text : "");
}

/* --- opening
 * -------------------------------------------------------------------------------------------- */

static int on_wal(void *userdata, sqlite3 *db, const char *name, int frames)
{
	orch_journal *journal = userdata;
	(void)db;
	(void)name;
	journal->wal_frames = frames;
	return SQLITE_OK;
}

/* Sets one thing and reads back whether it took. */
static int32_t set(orch_journal *journal, const char *pragma, const char *expected,
		   orch_error **reterr)
{
	sqlite3_stmt *statement = NULL;
	char answer[64] = "nothing";
	/* `PRAGMA x = y` gives the new value for some and nothing for others: ask for it apart. */
	_cleanup_free_ char *query = strdup(pragma);
	if (!query)
		return orch_fail_memory(reterr);
	query[strcspn(query, "=")] = '\0';
	int result = sqlite3_exec(journal->db, pragma, NULL, NULL, NULL);
	if (result == SQLITE_OK)
		result = sqlite3_prepare_v2(journal->db, query, -1, &statement, NULL);
	if (result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW) {
		const char *value = (const char *)sqlite3_column_text(statement, 0);
		snprintf(answer, sizeof(answer), "%s", value ? value : "");
	}
	result = store_finalize(statement, result);
	if (result != SQLITE_OK)
		return store_fail(journal, result, pragma, reterr);
	if (strcmp(answer, expected) != 0)
		return orch_fail(
			reterr, ORCH_ESYS, 0, pragma,
			"%s: SQLite %s did not take \"%s\" (it says \"%s\"): the journal would not "
			"be durable",
			journal->path, sqlite3_libversion(), pragma, answer);
	return 0;
}

static const struct {
	int option, value;
} hardening[] = {
	{SQLITE_DBCONFIG_DEFENSIVE, 1},
	{SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
	{SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
	{SQLITE_DBCONFIG_ENABLE_VIEW, 0},
	{SQLITE_DBCONFIG_DQS_DML, 0},
	{SQLITE_DBCONFIG_DQS_DDL, 0},
	/* Until the journal turned out to be ours and sound, closing must not touch its bytes. */
	{SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1},
};

static const struct setting settings[] = {
	{"PRAGMA mmap_size = 0", "0"},
	{"PRAGMA journal_mode = WAL", "wal"}, /* but for a backup, which is opened as it is */
	{"PRAGMA synchronous = FULL", "2"},
	{"PRAGMA foreign_keys = ON", "1"},
	{"PRAGMA trusted_schema = OFF", "0"},
	{"PRAGMA cell_size_check = ON", "1"},
	{"PRAGMA temp_store = MEMORY", "2"},
	{"PRAGMA journal_size_limit = 16777216", "16777216"},
};

static int32_t load_schema(orch_journal *journal, int64_t *ret_schema, orch_error **reterr)
{
	sqlite3_stmt *statement = NULL;
	int64_t schema = 0;
	int result = sqlite3_prepare_v2(journal->db, "PRAGMA user_version", -1, &statement, NULL);
	if (result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
		schema = sqlite3_column_int64(statement, 0);
	result = store_finalize(statement, result);
	if (result != SQLITE_OK)
		return store_fail(journal, result, "schema", reterr);
	/* The header was looked at before; this one counts what is still in the log. */
	if (schema > JOURNAL_SCHEMA)
		return newer_schema(journal->path, schema, reterr);
	if (schema < 1)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "identity", "%s has lost its identity",
				 journal->path);
	*ret_schema = schema;
	return 0;
}

/*
 * Begins the transaction that brings the tables up. It is left open: whoever opens a journal for writing ends it with
 * the registration of its generation, so that a refusal leaves the file as it was.
 */
int32_t store_migrate(orch_journal *journal, orch_error **reterr)
{
	int64_t schema = 0;
	int32_t r = load_schema(journal, &schema, reterr);
	if (r < 0 || schema == JOURNAL_SCHEMA)
		return r;
	journal->migrating = true;
	int result = sqlite3_exec(journal->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	if (result == SQLITE_OK)
		result = schema_migrate(journal->db, schema);
	if (result == SQLITE_OK)
		return 0;
	r = store_fail(journal, result, "migration", reterr);
	store_abort(journal);
	return r;
}

int32_t store_end_migration(orch_journal *journal, orch_error **reterr)
{
	int result = sqlite3_exec(journal->db, "COMMIT", NULL, NULL, NULL);
	journal->migrating = false;
	return result == SQLITE_OK ? 0 : store_fail(journal, result, "migration", reterr);
}

/* The value of a pragma that is a number. An SQLite code. */
static int ask_number(orch_journal *journal, const char *pragma, int64_t *ret_number)
{
	sqlite3_stmt *statement = NULL;
	int result = sqlite3_prepare_v2(journal->db, pragma, -1, &statement, NULL);
	if (result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
		*ret_number = sqlite3_column_int64(statement, 0);
	return store_finalize(statement, result);
}

/*
 * As store_check_file(), with what is in the log. Who opens a backup for writing was refused there. No journal is
 * vacuumed by SQLite: where its header says so it is damaged, and the first commit would find out.
 */
static int32_t check_application(orch_journal *journal, orch_error **reterr)
{
	int64_t id = 0, vacuum = 0;
	int result = ask_number(journal, "PRAGMA application_id", &id);
	if (result == SQLITE_OK)
		result = ask_number(journal, "PRAGMA auto_vacuum", &vacuum);
	bool known = (id == JOURNAL_APPLICATION_ID || id == JOURNAL_BACKUP_ID) && !vacuum;
	if ((result & 0xff) == SQLITE_NOTADB || (result == SQLITE_OK && !known))
		return no_journal(journal->path, reterr);
	return result == SQLITE_OK ? 0 : store_fail(journal, result, "identity", reterr);
}

/* One row of two values; ORCH_ECORRUPT if there is none. */
static int32_t load_identity(orch_journal *journal, orch_error **reterr)
{
	sqlite3_stmt *statement = NULL;
	bool found = false;
	int result = sqlite3_prepare_v2(
		journal->db,
		"SELECT id, epoch, (SELECT coalesce(max(generation), 0) FROM instance)"
		" FROM journal WHERE one = 1",
		-1, &statement, NULL);
	if (result == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW &&
	    sqlite3_column_bytes(statement, 0) == (int)sizeof(journal->id)) {
		memcpy(journal->id, sqlite3_column_blob(statement, 0), sizeof(journal->id));
		journal->epoch = (uint64_t)sqlite3_column_int64(statement, 1);
		journal->generation = (uint64_t)sqlite3_column_int64(statement, 2);
		found = true;
	}
	result = store_finalize(statement, result);
	if (result != SQLITE_OK)
		return store_fail(journal, result, "identity", reterr);
	if (!found)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "identity", "%s has lost its identity",
				 journal->path);
	return 0;
}

/* The last event, and whether it follows from the one before. */
static int32_t load_head(orch_journal *journal, orch_error **reterr)
{
	struct event_row head, previous, again;
	chain_genesis(journal->id, journal->head);
	journal->sequence = 0;
	int32_t r = event_at(journal, UINT64_MAX, &head, reterr);
	if (r < 0)
		return r == ORCH_ENOENT ? 0 : r;
	if (head.sequence > 1) {
		r = event_at(journal, head.sequence - 1, &previous, reterr);
		if (r < 0 && r != ORCH_ENOENT)
			return r;
		if (r == 0)
			memcpy(journal->head, previous.hash, DIGEST_SIZE);
	}
	again = head;
	chain_event_hash(journal->head, &again);
	if (r == ORCH_ENOENT || memcmp(again.hash, head.hash, DIGEST_SIZE) != 0)
		return orch_fail(reterr, ORCH_ECORRUPT, 0, "head",
				 "%s: its last record %llu does not follow from the one before",
				 journal->path, (unsigned long long)head.sequence);
	journal->sequence = head.sequence;
	memcpy(journal->head, head.hash, DIGEST_SIZE);
	return 0;
}

int32_t store_open(orch_journal *journal, const char *path, orch_error **reterr)
{
	int access = journal->is_backup ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
	int result = sqlite3_open_v2(path, &journal->db,
				     access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
					     SQLITE_OPEN_EXRESCODE,
				     "unix");
	if (result != SQLITE_OK)
		return store_fail(journal, result, "open", reterr);
	for (size_t i = 0; i < sizeof(hardening) / sizeof(hardening[0]); i++) {
		result = sqlite3_db_config(journal->db, hardening[i].option, hardening[i].value,
					   NULL);
		if (result != SQLITE_OK)
			return store_fail(journal, result, "hardening", reterr);
	}
	/* Before the first read, or it has no effect; and what is no journal is only read. */
	int32_t r = set(journal, "PRAGMA locking_mode = EXCLUSIVE", "exclusive", reterr);
	if (r == 0)
		r = check_application(journal, reterr);
	for (size_t i = 0; r == 0 && i < sizeof(settings) / sizeof(settings[0]); i++)
		if (!journal->is_backup || strcmp(settings[i].expected, "wal") != 0)
			r = set(journal, settings[i].pragma, settings[i].expected, reterr);
	for (const struct setting *one = host_settings; r == 0 && one->pragma; one++)
		r = set(journal, one->pragma, one->expected, reterr);
	if (r < 0)
		return r;
	sqlite3_wal_hook(journal->db, on_wal, journal);
	r = store_migrate(journal, reterr);
	if (r == 0)
		r = load_identity(journal, reterr);
	if (r == 0)
		r = load_head(journal, reterr);
	journal->reported = journal->sequence;
	return r;
}

void store_close(orch_journal *journal, bool checkpoint)
{
	if (!journal->db)
		return;
	for (int i = 0; i < STATEMENT_COUNT; i++) {
		sqlite3_finalize(journal->statements[i]);
		journal->statements[i] = NULL;
	}
	for (int i = 0; i < STORE_SQL_MAX; i++) {
		sqlite3_finalize(journal->sql[i].statement);
		journal->sql[i] = (struct cached_sql){0};
	}
	sqlite3_db_config(journal->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, checkpoint ? 0 : 1, NULL);
	sqlite3_close(journal->db);
	journal->db = NULL;
}

void store_drop_empty_log(const char *wal_path)
{
	struct stat status;
	if (lstat(wal_path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0)
		unlink(wal_path);
}

/* --- headroom
 * -------------------------------------------------------------------------------------------- */

bool store_headroom_take(orch_journal *journal)
{
	if (journal->headroom == JOURNAL_HEADROOM_BYTES)
		return true;
	_cleanup_close_ int fd = open(journal->headroom_path,
				      O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
	if (fd < 0)
		return false;
	if (file_reserve(fd, JOURNAL_HEADROOM_BYTES) == 0) {
		journal->headroom = JOURNAL_HEADROOM_BYTES;
		return true;
	}
	/* Part of it may have been allocated: that is not what was here before, and not whole. */
	if (ftruncate(fd, journal->headroom) < 0)
		journal->headroom = 0;
	return false;
}

bool store_headroom_release(orch_journal *journal, uint64_t bytes)
{
	if (journal->headroom <= 0)
		return false;
	off_t left = (uint64_t)journal->headroom > bytes ? journal->headroom - (off_t)bytes : 0;
	journal->headroom = left;
	return truncate(journal->headroom_path, left) == 0;
}
