/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_JOURNAL_PRIVATE_H
#define ORCH_JOURNAL_PRIVATE_H

/*
 * The journal's parts, lowest first (the first seven are declared in files.h):
 *
 *	payload.c   bodies and their digests
 *	hash.c      a digest over fields
 *	files.c     whole files copied, synced, named
 *	lock.c      who owns a journal: the lock file
 *	host.c      which file systems are refused, per operating system
 *	anchor.c    the small file that knows how far the journal got
 *	snapshot.c  a private copy, for opening without writing
 *	schema.c    the tables, and how an older file gets them
 *	setup.c     SQLite: making, opening, settings, closing; disk space kept back
 *	store.c     SQLite: statements, transactions, poison; the rows of actions
 *	event.c     the rows of events, written together
 *	chain.c     digests of rows, the hash chain over events; a request becomes a commit
 *	writer.c    many requests become one commit; the thread behind the callback forms
 *	permit.c, timer.c, decision.c, epoch.c
 *	            rows of their own, chained like actions
 *	timer-row.c, timer-watch.c, linux/clock.c, darwin/clock.c
 *	            rows of timers; due ones in a context; clocks: see timer.h
 *	action.c    handles and their transitions
 *	begin.c     begin and record
 *	begin-async.c
 *	            their callback forms
 *	recovery.c  what a new generation does with what it finds
 *	query.c     looking up
 *	record.c, watch.c
 *	            records read back in their order
 *	prune.c     payloads dropped
 *	export.c, export-rows.c
 *	            everything as NDJSON
 *	backup.c    a whole copy while in use
 *	restore.c, restore-epoch.c, restore-place.c
 *	            a journal made of a backup
 *	verify.c    the chain, the rows and the anchor checked
 *	journal.c   open and close
 *
 * A transaction writes one event for each row that it makes or changes; the last one's sequence number is the
 * journal's.
 */

#include <pthread.h>
#include <sqlite3.h>

#include <orch/journal.h>
#include <orch/permit.h>
#include <orch/timer.h>

#include "files.h"

#define JOURNAL_APPLICATION_ID 0x6f726368 /* "orch" */
/* A backup: no version opens it as a journal. */
#define JOURNAL_BACKUP_ID 0x6f726342 /* "orcB" */
#define JOURNAL_SCHEMA 2
#define JOURNAL_DEFAULT_PAYLOAD_LIMIT (1024u * 1024u)
#define JOURNAL_MAX_PAYLOAD_LIMIT (256u * 1024u * 1024u)
/*
 * Disk space kept back so that what happened can still be written down on a full disk, and how much
 * of it one record takes besides its payload (some pages, each with a frame header).
 */
#define JOURNAL_HEADROOM_BYTES (1024 * 1024)
#define JOURNAL_RECORD_BYTES (32 * 1024)
/* After so many frames the write-ahead log goes back into the database. */
#define JOURNAL_CHECKPOINT_FRAMES 1000
#define FINGERPRINT_MAX 64
#define KIND_MAX 63
#define KEY_MAX 255

/* --- rows
 * ------------------------------------------------------------------------------------------- */

/* What a row of an action keeps; see action_row.stored. */
#define STORED_REQUEST 1u
#define STORED_RESULT 2u
#define STORED_PRUNED 4u /* dropped by orch_journal_prune() */

struct action_row {
	uint64_t id;
	uint64_t sequence; /* of its last event */
	uint32_t format;   /* the schema that its digest is of */
	uint32_t policy;
	uint32_t state;
	uint32_t attempt;
	uint64_t generation;
	int64_t created_at_ms;
	int64_t updated_at_ms;
	uint32_t stored;   /* STORED_*; 0 in format 1 */
	uint64_t permit;   /* id; 0: none */
	uint64_t decision; /* id of the last one; 0: none */
	/* What that one says, loaded with the row; 0 if there is none. */
	uint32_t decided;
	int64_t decided_at_ms;
	char decided_by[KEY_MAX + 1];
	char kind[KIND_MAX + 1];
	char key[KEY_MAX + 1];
	size_t fingerprint_length;
	unsigned char fingerprint[FINGERPRINT_MAX];
	struct payload request;
	struct payload result;
	bool request_changed; /* since it was stored: bodies are only written when they are new */
	bool result_changed;
};

/* Whose row an event made. Stored: never renumbered. */
enum noun {
	NOUN_ACTION = 0, /* subject 0: a generation registered itself */
	NOUN_PERMIT = 1,
	NOUN_TIMER = 2,
	NOUN_DECISION = 3,
	NOUN_EPOCH = 4,
	NOUN_COUNT
};

struct event_row {
	uint64_t sequence;
	int64_t at_ms;
	uint64_t generation;
	enum noun noun;
	uint32_t format;
	uint64_t subject; /* id of the row */
	uint32_t attempt; /* of an action; round of a timer */
	uint32_t state;
	unsigned char digest[DIGEST_SIZE]; /* of the row that it made */
	unsigned char hash[DIGEST_SIZE];
};

/* So many go into one statement. */
#define EVENT_BATCH 16

/* What an update compares before it writes. */
struct expectation {
	uint32_t state;
	uint32_t attempt;
	uint64_t generation;
	uint64_t sequence; /* of the row's last event; 0: any */
};

enum statement {
	STATEMENT_BEGIN,
	STATEMENT_COMMIT,
	STATEMENT_ROLLBACK,
	STATEMENT_ADD_INSTANCE,
	STATEMENT_ADD_ACTION,
	STATEMENT_UPDATE_ACTION,
	STATEMENT_UPDATE_OPEN_ACTION,
	STATEMENT_SET_BODY,
	STATEMENT_DROP_BODY,
	STATEMENT_ACTION_BY_KEY,
	STATEMENT_ACTION_BY_ID,
	STATEMENT_ACTION_SEQUENCE,
	STATEMENT_INSTANCE,
	STATEMENT_OPEN_ACTIONS,
	STATEMENT_COUNT
};

#define STORE_SQL_MAX 64

/* A statement of another file than store.c, found by the address of its text. */
struct cached_sql {
	const char *sql;
	sqlite3_stmt *statement;
};

struct ticket;
struct call;

enum leader { LEADER_NONE, LEADER_CALLER, LEADER_THREAD };

/* The queue of what is to be written, and those who wait for it: see writer.c. */
struct writer {
	pthread_mutex_t mutex; /* the members below */
	struct ticket *first, **end;
	enum leader leader;
	struct call *calls; /* those that were not told yet */
	orch_watch *watches;
	bool has_thread, stops;
	pthread_t thread;
	pthread_cond_t thread_turned;
	pthread_mutex_t report_mutex; /* held while on_record is called */
};

struct orch_journal {
	atomic_uint references;
	atomic_uint holds; /* on the memory alone; all references together are one */
	pid_t pid; /* of the process that opened it */
	bool read_only;
	bool is_backup; /* opened as it is: one file, never written */
	char *path; /* absolute, without symbolic links */
	char *wal_path;
	char *headroom_path;
	off_t headroom; /* bytes that are kept back now */
	struct lock lock;
	struct file_identity file, wal;
	bool wal_known;
	sqlite3 *db;
	sqlite3_stmt *statements[STATEMENT_COUNT];
	struct cached_sql sql[STORE_SQL_MAX];
	bool migrating; /* the open transaction brings the tables up to JOURNAL_SCHEMA */
	int wal_frames;
	struct writer writer;
	/* Recursive; held by whoever uses what is below or SQLite: see store_lock(). */
	pthread_mutex_t mutex;
	pthread_cond_t read;  /* one of `readers` was let in and is done */
	atomic_int readers;   /* who waits for the mutex and does not write */
	bool writer_yields;
	unsigned locked; /* how often: SQLite is opened without locks of its own */
	bool shared;	 /* a caller has the handle, so that others may use it meanwhile */
	atomic_bool poisoned;
	char *poison; /* why, for a person; NULL if there was no memory for it; set before `poisoned` */

	unsigned char id[16];
	uint64_t epoch;
	uint64_t generation;
	_Atomic uint64_t sequence; /* changed under the mutex */
	unsigned char head[DIGEST_SIZE];
	uint64_t draft; /* as `sequence` and `head`, with what the open transaction wrote */
	unsigned char draft_head[DIGEST_SIZE];
	struct event_row events[EVENT_BATCH]; /* of the open transaction, not written yet */
	unsigned events_waiting;
	uint64_t reported; /* on_record knows of it; under writer.report_mutex */
	struct anchor anchor;

	uint64_t payload_limit;
	void (*on_record)(void *userdata, uint64_t sequence);
	void *userdata;
	orch_destroy_fn destroy;

	char boot_id[64];	     /* which boot clock_boot_ms() counts; "": not asked yet */
	int64_t first_boot_ms;	     /* by it, when it was asked first */
	bool timers_anchored;	     /* no timer counts by another boot any more */
	orch_timer_watch *timer_watches;
};

/* --- schema.c
 * --------------------------------------------------------------------------------------- */

/* Makes the tables in an empty database, inside a transaction that is open. An SQLite code. */
int schema_create(sqlite3 *db);
/* Brings the tables from `schema` up to JOURNAL_SCHEMA, inside a transaction that is open. An SQLite code. */
int schema_migrate(sqlite3 *db, int64_t schema);

/* --- setup.c, store.c
 * --------------------------------------------------------------------------------- */

/*
 * ORCH_ENOENT: no such file; ORCH_ECORRUPT; ORCH_ESCHEMA; ORCH_EINVAL: hard links. Reads only. `ret_backup` NULL: a
 * backup is ORCH_ECORRUPT as well.
 */
int32_t store_check_file(const char *path, bool *ret_backup, orch_error **reterr);
/* Makes an empty journal at `path`, whole or not at all. */
int32_t store_create(const char *path, orch_error **reterr);
/* Opens the database at `path`, reads settings back, loads id, epoch, generation and head. */
int32_t store_open(orch_journal *journal, const char *path, orch_error **reterr);
/*
 * Where the tables are of an older schema: opens the transaction that brings them up, and leaves it open for the first
 * record. Sets journal->migrating.
 */
int32_t store_migrate(orch_journal *journal, orch_error **reterr);
/* Ends it without a record. */
int32_t store_end_migration(orch_journal *journal, orch_error **reterr);
/* `checkpoint` false leaves the files' bytes as they are. */
void store_close(orch_journal *journal, bool checkpoint);
/* SQLite makes one when it looks. */
void store_drop_empty_log(const char *wal_path);

/*
 * Several threads may be in calls. Whoever asks SQLite or looks at the handle's changing members does so between
 * these, after store_check(): in a forked child the lock may be held by a thread that is not there. A request's
 * write() runs inside. No callback of the host does. May be nested.
 */
void store_lock(orch_journal *journal);
void store_unlock(orch_journal *journal);
/* The same for who writes one commit after the other: lets in one who waits to read. Not nested. */
void store_lock_to_write(orch_journal *journal);

/* ORCH_EFORKED, ORCH_EPOISONED, ORCH_EINVAL for NULL. */
int32_t store_check(orch_journal *journal, orch_error **reterr);
/* Besides ORCH_ESTATE for a journal opened read-only. */
int32_t store_check_writable(orch_journal *journal, orch_error **reterr);
void store_poison(orch_journal *journal, const char *why);
/* Ends a statement that is not cached; the first thing that went wrong counts. */
int store_finalize(sqlite3_stmt *statement, int result);
/* Turns what SQLite answered into an error. */
int32_t store_fail(orch_journal *journal, int result, const char *what, orch_error **reterr);
/* The cached statement, reset and without bindings. */
int32_t store_statement(orch_journal *journal, enum statement which, sqlite3_stmt **ret_statement,
			orch_error **reterr);

/* The same for SQL that lives elsewhere: `sql` has to be the same static text each time. */
int32_t store_sql(orch_journal *journal, const char *sql, sqlite3_stmt **ret_statement,
		  orch_error **reterr);
/* Runs a statement that gives no rows and resets it. An SQLite code. */
int store_run(sqlite3_stmt *statement);
/* The error for what store_run() answered inside a transaction. Poisons, unless it certainly left the files alone. */
int32_t store_write_failed(orch_journal *journal, int result, const char *what,
			   orch_error **reterr);
/* Binds without copying: what is bound outlives the step, and store_run() takes the bindings off again. */
void store_bind_number(sqlite3_stmt *statement, int index, uint64_t number);
void store_bind_blob(sqlite3_stmt *statement, int index, const void *bytes, size_t length);
void store_bind_text(sqlite3_stmt *statement, int index, const char *text);
/* False: NULL, too long for `size`, or with a NUL in it. */
bool store_load_text(sqlite3_stmt *statement, int column, char *text, size_t size);

/* One transaction: begin, any of the puts, then commit or abort. */
int32_t store_begin(orch_journal *journal, orch_error **reterr);
/*
 * Makes it durable, then moves the anchor. Where nothing was put it only ends the transaction.
 * ORCH_ENOSPC: nothing is recorded and the handle is well; ORCH_EPOISONED: not known what is recorded.
 */
int32_t store_commit(orch_journal *journal, orch_error **reterr);
void store_abort(orch_journal *journal);

/* `expected` NULL inserts and sets row->id. ORCH_ESTATE: another transition was first. */
int32_t store_put_action(orch_journal *journal, struct action_row *row,
			 const struct expectation *expected, orch_error **reterr);
/* The event that follows the draft's last one; moves the draft on. */
int32_t store_put_instance(orch_journal *journal, const struct instance_row *instance,
			   orch_error **reterr);

/* ORCH_ENOENT without an error text if there is none. */
int32_t store_action_by_key(orch_journal *journal, const char *key, struct action_row *ret_row,
			    orch_error **reterr);
int32_t store_action_by_id(orch_journal *journal, uint64_t id, struct action_row *ret_row,
			   orch_error **reterr);
/* The ids that STATEMENT_OPEN_ACTIONS gives; the caller frees. */
int32_t store_ids(orch_journal *journal, enum statement which, const char *kind_prefix,
		  uint64_t **ret_ids, size_t *ret_count, orch_error **reterr);
/* What the index of open actions, which recovery goes by, knows of a state. */
uint64_t store_open_of(uint32_t state);
void action_row_clear(struct action_row *row);

/* Takes the headroom (again). False: the disk has no room for all of it. */
bool store_headroom_take(orch_journal *journal);
/* Gives some of it up: no more than asked, or others would take it. False: there is none left. */
bool store_headroom_release(orch_journal *journal, uint64_t bytes);

/* --- event.c
 * ---------------------------------------------------------------------------------------- */

/*
 * Adds an event to the open transaction and moves the draft on. The rows of several are written together, at the latest
 * by the commit: nothing inside a transaction reads them.
 */
int32_t event_put(orch_journal *journal, const struct event_row *event, orch_error **reterr);
int32_t event_flush(orch_journal *journal, orch_error **reterr);
/* `sequence` UINT64_MAX: the last. ORCH_ENOENT without an error text. */
int32_t event_at(orch_journal *journal, uint64_t sequence, struct event_row *ret_event,
		 orch_error **reterr);

/* --- chain.c
 * ---------------------------------------------------------------------------------------- */

void chain_genesis(const unsigned char id[16], unsigned char hash[DIGEST_SIZE]);
void chain_row_digest(const struct action_row *row, unsigned char digest[DIGEST_SIZE]);
void chain_instance_digest(const struct instance_row *instance, uint32_t format,
			   unsigned char digest[DIGEST_SIZE]);
void chain_event_hash(const unsigned char previous[DIGEST_SIZE], struct event_row *event);
/* SHA-256 of kind and request: the fingerprint that a caller did not give. */
void chain_fingerprint(const char *kind, const void *request, size_t length,
		       unsigned char digest[DIGEST_SIZE]);

/*
 * A request is what one call asks for, as a function that runs inside a transaction and puts its records. It may run
 * again after an abort, and then has to come to the same: what it loads it loads anew. When it fails, what it had put
 * is rolled back.
 */
struct request {
	int32_t (*write)(orch_journal *journal, struct request *request, orch_error **reterr);
	bool completes;		/* tells what happened: on a full disk it may use what is kept back */
	struct payload *result; /* is cut at last where the disk is full; NULL: nothing can be */
	uint64_t bytes;		/* of the bodies that it writes */
};

/*
 * One transaction with this request and nothing else, under the lock. Errors as of store_begin(), its own, and as of
 * store_commit().
 */
int32_t chain_run_alone(orch_journal *journal, struct request *request, orch_error **reterr);

/* The puts; each is a row and its event, inside a transaction. */

/* Stamps the row: sequence, generation, format, what is stored, and `updated_at_ms` = `at_ms`. */
int32_t chain_put_action(orch_journal *journal, struct action_row *row,
			 const struct expectation *expected, int64_t at_ms, orch_error **reterr);
/*
 * The event of another row. The caller fills noun, subject, attempt, state, at_ms and the digest, which is over a row
 * that has `sequence` = journal->draft + 1; the rest is filled in here.
 */
int32_t chain_put_event(orch_journal *journal, struct event_row *event, orch_error **reterr);

/* A generation, inside a transaction. */
int32_t chain_put_instance(orch_journal *journal, const struct instance_row *instance,
			   orch_error **reterr);
/* The record that a new generation writes first. */
int32_t chain_write_instance(orch_journal *journal, const struct instance_row *instance,
			     orch_error **reterr);
/* Compares the anchor with the chain. ORCH_ECORRUPT: the file is older than its anchor. */
int32_t chain_check_anchor(orch_journal *journal, const char *anchor_path, orch_error **reterr);

/* --- writer.c
 * ---------------------------------------------------------------------------------------- */

/* How many requests share a transaction at most. */
#define WRITER_GROUP_MAX 128
/* ... and with how many bytes of bodies: a transaction is held in memory until it is written. */
#define WRITER_GROUP_BYTES (1024 * 1024)

/*
 * One transaction with this request, and with those of others that came at the same time. Errors as of
 * chain_run_alone(). Not under the store's lock: whoever writes for this caller takes it.
 */
int32_t chain_run(orch_journal *journal, struct request *request, orch_error **reterr);

/* A request in the queue. */
struct ticket {
	struct ticket *next;
	struct request *request;
	struct call *call; /* NULL: its caller waits */
	int32_t code;
	orch_error *error;
	uint64_t last; /* sequence number of its last record; 0: it wrote none */
};

/*
 * A request whose caller does not wait. It keeps the journal's memory, and neither the journal nor the context: when
 * the context is gone nobody is told, and when the journal is.
 */
struct call_kind {
	/* Under the writer's lock, before anything else; `alive`: answer() follows. May be NULL. */
	void (*settle)(struct call *call, bool alive);
	/* Calls the host back. The journal is referenced meanwhile. */
	void (*answer)(struct call *call);
	/* Frees all of the call but its memory. */
	void (*clear)(struct call *call);
};

struct call {
	struct ticket ticket;
	struct orch_letter letter;
	const struct call_kind *kind;
	void *userdata;
	orch_destroy_fn destroy;
	orch_journal *journal;
	orch_mailbox *mailbox;
	struct call *next, *previous;
	bool posted;   /* its letter is going to arrive */
	bool canceled; /* before it did: the letter only frees it */
};

/* What every callback form checks first. */
int32_t call_check(orch_journal *journal, orch_ctx *ctx, bool has_fn, orch_error **reterr);
/*
 * Puts it into the queue; the caller has set ticket.request, kind, userdata and destroy. The call belongs to the
 * writer then, and on failure still to the caller. ORCH_ESYS.
 */
int32_t call_submit(struct call *call, orch_journal *journal, orch_ctx *ctx, orch_error **reterr);

void writer_init(orch_journal *journal);
void writer_free(orch_journal *journal);
/* With the last reference: writes what is queued, ends the thread, and tells nobody any more. */
void writer_close(orch_journal *journal);
/* Calls on_record for each record up to `last` that it does not know yet. Holds no other lock meanwhile. */
void writer_report(orch_journal *journal, uint64_t last);

/* --- journal.c
 * --------------------------------------------------------------------------------------- */

/* Keeps the memory of a journal that may be closed meanwhile. */
orch_journal *journal_hold(orch_journal *journal);
void journal_release(orch_journal *journal);
/* A reference, unless the last one is gone already. */
bool journal_try_ref(orch_journal *journal);

/* --- action.c
 * --------------------------------------------------------------------------------------- */

/* Takes the row over (also on failure). NULL: out of memory. */
orch_action *action_new(orch_journal *journal, struct action_row *row);
/* The memory of one, so that action_fill() cannot fail. NULL: out of memory. */
orch_action *action_reserve(void);
/* The same of what was reserved. */
void action_fill(orch_action *action, orch_journal *journal, struct action_row *row);
/* Of the last event that the handle knows of. */
uint64_t action_sequence(const orch_action *action);

/* --- permit.c
 * --------------------------------------------------------------------------------------- */

#define PERMIT_NOTE_MAX 4096

struct permit_row {
	uint64_t id;
	uint64_t sequence; /* of its last event */
	uint32_t state;
	uint64_t epoch; /* in which it was issued */
	int64_t expires_at_ms;
	uint64_t action; /* id of the one that has it; 0: none */
	int64_t created_at_ms;
	int64_t updated_at_ms;
	char name[KEY_MAX + 1];
	char kind[KIND_MAX + 1];
	size_t fingerprint_length; /* 0: any request */
	unsigned char fingerprint[FINGERPRINT_MAX];
	size_t note_length;
	unsigned char note[PERMIT_NOTE_MAX];
};

/* ORCH_ENOENT without an error text. */
int32_t permit_by_name(orch_journal *journal, const char *name, struct permit_row *ret_row,
		       orch_error **reterr);
/* The highest id; 0: there is no permit. */
int32_t permit_last(orch_journal *journal, uint64_t *ret_id, orch_error **reterr);
/* The one with the lowest id above `after` and at most `last`. ORCH_ENOENT without an error text. */
int32_t permit_next(orch_journal *journal, uint64_t after, uint64_t last,
		    struct permit_row *ret_row, orch_error **reterr);
/* The row and its event, inside a transaction. `expected` is the state that is stored; 0 inserts and sets row->id. */
int32_t permit_put(orch_journal *journal, struct permit_row *row, uint32_t expected,
		   orch_error **reterr);
/*
 * Whether `asked` may be begun under a permit, inside a transaction; `action` is its id, 0 for a new one. ORCH_EPERMIT
 * says why not. 0 with a permit that is EXPIRED: it was found so and this was put, and the refusal (permit_lapsed()) is
 * given after the commit.
 */
int32_t permit_ask(orch_journal *journal, const char *name, const struct action_row *asked,
		   uint64_t action, struct permit_row *ret_permit, orch_error **reterr);
/* Gives the permit, as permit_ask() found it, to the action. */
int32_t permit_use(orch_journal *journal, struct permit_row *permit, uint64_t action,
		   orch_error **reterr);
/* ORCH_EPERMIT. */
int32_t permit_lapsed(const char *name, int64_t expires_at_ms, orch_error **reterr);

/* Makes each one VOID that is ISSUED, inside a transaction, and counts them. */
int32_t permit_void_all(orch_journal *journal, uint32_t *ret_count, orch_error **reterr);

/* --- decision.c
 * ------------------------------------------------------------------------------------- */

/* Puts the decision that `row` is about to be given: sets row->decision and what goes with it. */
int32_t decision_put(orch_journal *journal, struct action_row *row, uint32_t decision,
		     const char *by, orch_error **reterr);
/* What the row's last decision says. ORCH_ENOMEM, ORCH_ECORRUPT. */
int32_t decision_load(orch_journal *journal, struct action_row *row, orch_error **reterr);

/* --- permit.c, timer.c, decision.c, epoch.c: what verify.c asks of each
 * ------------------------------------------------ */

/*
 * The digest of row `id` as it is stored, and the sequence number of the event that made it. ORCH_ENOENT without an
 * error text if there is none, ORCH_ECORRUPT if it cannot be read.
 */
typedef int32_t row_digest_fn(orch_journal *journal, uint64_t id, uint64_t *ret_sequence,
			      unsigned char digest[DIGEST_SIZE], orch_error **reterr);
row_digest_fn permit_digest, timer_digest, decision_digest, epoch_digest;

/* --- epoch.c
 * ---------------------------------------------------------------------------------------- */

/* A life of the journal that a restoration started. */
struct epoch_row {
	uint64_t epoch;
	uint64_t sequence;
	uint64_t generation;
	int64_t at_ms;
	uint64_t backup_sequence;	/* the last record of the backup */
	struct anchor_point superseded; /* what the anchor said then; epoch 0: there was none */
};

/* ORCH_ENOENT without an error text if there is none. */
int32_t epoch_load(orch_journal *journal, uint64_t epoch, struct epoch_row *ret_row,
		   orch_error **reterr);
/* Makes it the journal's, inside a transaction. Stamps row->sequence. */
int32_t epoch_put(orch_journal *journal, struct epoch_row *row, orch_error **reterr);
/* ORCH_ECORRUPT: the journal's epoch is not that of its last row. */
int32_t epoch_check(orch_journal *journal, orch_error **reterr);
/* An anchor of an earlier epoch: 0 if it is the point that the restoration superseded, otherwise ORCH_ECORRUPT. */
int32_t epoch_check_anchor(orch_journal *journal, const struct anchor_point *point,
			   const char *anchor_path, orch_error **reterr);

/* --- journal.c
 * -------------------------------------------------------------------------------------- */

/* An empty handle with one reference; NULL: no memory. orch_journal_unref() takes it in any state. */
orch_journal *journal_new(void);
/*
 * The one name of a file: absolute and without symbolic links, because log and lock go by name. The file itself need
 * not exist; its folder does. `what` is for the message.
 */
int32_t journal_resolve_path(const char *path, const char *what, char **ret_path, char **ret_folder,
			     orch_error **reterr);
/* Fills in the names of a journal's files, after the checks of its folder. `anchor_path` may be NULL. */
int32_t journal_locate(orch_journal *journal, const char *path, const char *anchor_path,
		       char **ret_lock_path, orch_error **reterr);
/* How far it got. */
struct anchor_point journal_point(const orch_journal *journal);

/* --- record.c, watch.c
 * ------------------------------------------------------------------------------ */

struct orch_record {
	uint64_t sequence;
	int64_t at_ms;
	uint64_t generation;
	uint32_t type;
	uint32_t state;
	uint32_t attempt;
	uint64_t subject;
	char name[KEY_MAX + 1];
	char kind[KIND_MAX + 1];
};

/* How many are read at once. */
#define RECORD_BATCH 64

/*
 * The records after `after`, at most up to `last`, which was committed, and at most `room`, without a gap; under the
 * lock. ORCH_ECORRUPT, ORCH_ENOMEM, ORCH_ESYS.
 */
int32_t record_read(orch_journal *journal, uint64_t after, uint64_t last, orch_record *records,
		    uint32_t room, uint32_t *ret_count, orch_error **reterr);

/* There is more to tell. Under the writer's lock. */
void watch_wake_all(orch_journal *journal);

/* --- begin.c
 * ---------------------------------------------------------------------------------------- */

/* What was asked for, and what became of it. */
struct begin {
	struct request request;
	struct action_row asked;
	uint32_t outcome;
	struct action_row found; /* what is recorded under the key, where there is something */
	bool is_found;
	char permit[KEY_MAX + 1]; /* "": none is needed */
	int64_t lapsed_at_ms;	  /* the permit was found expired, and only that is recorded; 0: it was not */
};

/* Checks and copies what the caller gives. Nothing to clear on failure. */
int32_t begin_prepare(orch_journal *journal, const struct orch_action_opts *opts,
		      struct begin *begin, orch_error **reterr);
/* Of one that was written: ORCH_EPERMIT where what was written is that its permit has expired. */
int32_t begin_refusal(const struct begin *begin, orch_error **reterr);
/* The row that a handle is made of, taken out of it. */
struct action_row begin_take_row(struct begin *begin);
void begin_clear(struct begin *begin);

struct record {
	struct request request;
	struct action_row row;
	bool is_found;
};

/* As begin_prepare(); action_row_clear() of its row clears it. */
int32_t record_prepare(orch_journal *journal, const char *kind, const char *key,
		       const void *payload, size_t payload_length, struct record *record,
		       orch_error **reterr);

/* 1..255 bytes of UTF-8. */
bool key_is_valid(const char *key);
bool kind_is_valid(const char *kind);

#endif
