/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options structs of older and newer programs, each at the end of a page, so that a byte read or
 * written too much ends the test:
 *
 *   init writes the struct that the program has, and not more; a struct of size and flags alone (the shortest there is) is
 *   taken for what it is; one with a tail that is zero gives what the known one gives; a tail that is
 *   not zero gives ORCH_E2BIG, outputs stay, and the destroy function runs once.
 */
#include <ftw.h>
#include <orch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static orch_ctx *ctx;
static orch_scope *scope;
static orch_sandbox *sandbox;
static orch_journal *journal;
static orch_broker *broker;
static orch_principal *principal;
static orch_executor *executor;
static char folder[] = "/tmp/orch-options-XXXXXX";
static int destroyed;
static void *const UNTOUCHED = &destroyed;

/* The call stored nothing, or what it made is released. */
#define ENDED(code, made, release)                                                                 \
	((code) == 0 ? (void)release(made)                                                         \
		     : (void)((void *)(made) == UNTOUCHED ||                                       \
			      (fprintf(stderr, "%s: the output was touched\n", __func__), abort(), 0)))

static int32_t call_ctx(const void *opts, orch_error **reterr)
{
	orch_ctx *made = UNTOUCHED;
	int32_t code = orch_ctx_new(opts, &made, reterr);
	ENDED(code, made, orch_ctx_unref);
	return code;
}

static int32_t call_scope(const void *opts, orch_error **reterr)
{
	orch_scope *made = UNTOUCHED;
	int32_t code = orch_scope_new(ctx, opts, &made, reterr);
	ENDED(code, made, orch_scope_unref);
	return code;
}

static int32_t call_proc(const void *opts, orch_error **reterr)
{
	orch_proc *made = UNTOUCHED;
	int32_t code = orch_scope_spawn(scope, opts, &made, reterr);
	ENDED(code, made, orch_proc_unref);
	return code;
}

static int32_t call_stream(const void *opts, orch_error **reterr)
{
	orch_stream *made = UNTOUCHED;
	int32_t code = orch_stream_new(ctx, opts, &made, reterr);
	ENDED(code, made, orch_stream_unref);
	return code;
}

static int32_t call_stop(const void *opts, orch_error **reterr)
{
	orch_scope *own = NULL;
	orch_death *made = UNTOUCHED;
	int32_t code = orch_scope_new(ctx, NULL, &own, reterr);
	if (code < 0)
		return code;
	code = orch_scope_stop_wait(own, opts, &made, reterr);
	ENDED(code, made, orch_death_unref);
	orch_scope_unref(own);
	return code;
}

static int32_t call_sandbox(const void *opts, orch_error **reterr)
{
	orch_sandbox *made = UNTOUCHED;
	int32_t code = orch_sandbox_new(ctx, opts, &made, reterr);
	ENDED(code, made, orch_sandbox_unref);
	return code;
}

static int32_t call_run(const void *opts, orch_error **reterr)
{
	const char *const nothing[] = {NULL};
	orch_sandbox_result *made = UNTOUCHED;
	int32_t code = orch_sandbox_run(sandbox, nothing, opts, &made, reterr);
	ENDED(code, made, orch_sandbox_result_unref);
	return code;
}

static int32_t call_journal(const void *opts, orch_error **reterr)
{
	orch_journal *made = UNTOUCHED;
	int32_t code = orch_journal_open(opts, &made, reterr);
	ENDED(code, made, orch_journal_unref);
	return code;
}

static int32_t call_action(const void *opts, orch_error **reterr)
{
	orch_action *made = UNTOUCHED;
	uint32_t outcome = 0;
	int32_t code = orch_journal_begin(journal, opts, &outcome, &made, reterr);
	ENDED(code, made, orch_action_unref);
	return code;
}

static int32_t ignore(void *userdata, orch_action *action)
{
	(void)userdata;
	(void)action;
	return 0;
}

static int32_t call_query(const void *opts, orch_error **reterr)
{
	return orch_journal_query(journal, opts, ignore, NULL, reterr);
}

static int32_t call_recover(const void *opts, orch_error **reterr)
{
	orch_recovery *made = UNTOUCHED;
	int32_t code = orch_journal_recover(journal, opts, &made, reterr);
	ENDED(code, made, orch_recovery_unref);
	return code;
}

static int32_t call_restore(const void *opts, orch_error **reterr)
{
	orch_restoration *made = UNTOUCHED;
	int32_t code = orch_journal_restore(opts, &made, reterr);
	ENDED(code, made, orch_restoration_unref);
	return code;
}

static int32_t call_permit(const void *opts, orch_error **reterr)
{
	orch_permit *made = UNTOUCHED;
	int32_t code = orch_permit_issue(journal, opts, &made, reterr);
	ENDED(code, made, orch_permit_unref);
	return code;
}

static int32_t call_timer(const void *opts, orch_error **reterr)
{
	orch_timer *made = UNTOUCHED;
	int32_t code = orch_timer_set(journal, opts, &made, reterr);
	ENDED(code, made, orch_timer_unref);
	return code;
}

static int32_t call_broker(const void *opts, orch_error **reterr)
{
	orch_broker *made = UNTOUCHED;
	int32_t code = orch_broker_new(ctx, opts, &made, reterr);
	ENDED(code, made, orch_broker_unref);
	return code;
}

static int32_t call_upstream(const void *opts, orch_error **reterr)
{
	return orch_broker_set_upstream(broker, "ai.openai", opts, reterr);
}

static int32_t call_principal(const void *opts, orch_error **reterr)
{
	orch_principal *made = UNTOUCHED;
	int32_t code = orch_principal_new(broker, opts, &made, reterr);
	ENDED(code, made, orch_principal_unref);
	return code;
}

static int32_t call_grant(const void *opts, orch_error **reterr)
{
	return orch_principal_grant(principal, opts, reterr);
}

static int32_t call_executor(const void *opts, orch_error **reterr)
{
	orch_executor *made = UNTOUCHED;
	int32_t code = orch_executor_new(ctx, opts, &made, reterr);
	ENDED(code, made, orch_executor_unref);
	return code;
}

static int32_t call_job(const void *opts, orch_error **reterr)
{
	orch_job *made = UNTOUCHED;
	int32_t code = orch_executor_run(executor, sandbox, opts, &made, reterr);
	ENDED(code, made, orch_job_unref);
	return code;
}

static int32_t call_pipeline(const void *opts, orch_error **reterr)
{
	orch_pipeline *made = UNTOUCHED;
	int32_t code = orch_pipeline_new(ctx, opts, &made, reterr);
	ENDED(code, made, orch_pipeline_unref);
	return code;
}

static void destroy(void *userdata)
{
	(*(int *)userdata)++;
}

#define NO_DESTROY 0, 0
#define DESTROY(noun, userdata, field)                                                             \
	offsetof(struct orch_##noun##_opts, userdata), offsetof(struct orch_##noun##_opts, field)
#define ROW(noun, ...)                                                                             \
	{"orch_" #noun "_opts", sizeof(struct orch_##noun##_opts),                                  \
	 (void (*)(void *, uint32_t))orch_##noun##_opts_init, call_##noun, __VA_ARGS__}

static const struct row {
	const char *name;
	size_t size;
	void (*init)(void *opts, uint32_t size);
	int32_t (*call)(const void *opts, orch_error **reterr);
	size_t userdata, destroy;
} rows[] = {
	ROW(ctx, DESTROY(ctx, log_userdata, log_destroy)),
	ROW(scope, NO_DESTROY),
	ROW(proc, DESTROY(proc, userdata, destroy)),
	ROW(stream, DESTROY(stream, userdata, destroy)),
	ROW(stop, NO_DESTROY),
	ROW(sandbox, NO_DESTROY),
	ROW(run, NO_DESTROY),
	ROW(journal, DESTROY(journal, userdata, destroy)),
	ROW(action, NO_DESTROY),
	ROW(query, NO_DESTROY),
	ROW(recover, NO_DESTROY),
	ROW(restore, NO_DESTROY),
	ROW(permit, NO_DESTROY),
	ROW(timer, NO_DESTROY),
	ROW(broker, NO_DESTROY),
	ROW(upstream, NO_DESTROY),
	ROW(principal, NO_DESTROY),
	ROW(grant, NO_DESTROY),
	ROW(executor, DESTROY(executor, userdata, destroy)),
	ROW(job, DESTROY(job, userdata, destroy)),
	ROW(pipeline, DESTROY(pipeline, on_record_userdata, on_record_destroy)),
};

/* `size` bytes whose end is the end of what may be touched; never freed: the program is short. */
static unsigned char *guarded(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) < 0)
		abort();
	return pages + page - size;
}

static int32_t called(const struct row *row, const void *opts, char *message, size_t length)
{
	orch_error *error = NULL;
	int32_t code = row->call(opts, &error);
	snprintf(message, length, "%s", orch_error_message(error));
	orch_error_free(error);
	return code;
}

static unsigned char *prepared(const struct row *row, size_t size, int tail)
{
	unsigned char *opts = guarded(size);
	unsigned char *known = guarded(row->size);
	row->init(known, (uint32_t)row->size);
	memcpy(opts, known, size < row->size ? size : row->size);
	if (size > row->size)
		memset(opts + row->size, tail, size - row->size);
	*(uint32_t *)opts = (uint32_t)size;
	if (row->destroy && size >= row->size) {
		void *userdata = &destroyed;
		orch_destroy_fn fn = destroy;
		memcpy(opts + row->userdata, &userdata, sizeof(userdata));
		memcpy(opts + row->destroy, &fn, sizeof(fn));
	}
	destroyed = 0;
	return opts;
}

static int judge(const struct row *row)
{
	char message[512], other[512];
	int bad = 0;
	/* Of an older program, of this one, of a newer one; a byte written too much is a fault. */
	const size_t sizes[] = {2 * sizeof(uint32_t), row->size, row->size + 64};
	for (int i = 0; i < 3; i++) {
		unsigned char *filled = guarded(sizes[i]);
		memset(filled, 0xaa, sizes[i]);
		row->init(filled, (uint32_t)sizes[i]);
		if (*(uint32_t *)filled != sizes[i])
			bad += printf("%s: init sets size %u, the program has %zu\n", row->name,
				      *(uint32_t *)filled, sizes[i]);
		for (size_t at = row->size; at < sizes[i]; at++)
			if (filled[at])
				bad += printf("%s: init leaves byte %zu of a newer struct\n", row->name, at);
	}

	int32_t exact = called(row, prepared(row, row->size, 0), message, sizeof(message));
	if (exact == ORCH_E2BIG)
		bad += printf("%s: its own struct gives ORCH_E2BIG: %s\n", row->name, message);
	if (row->destroy && destroyed != 1)
		bad += printf("%s: destroy ran %d times (code %d)\n", row->name, destroyed, (int)exact);

	int32_t zeros = called(row, prepared(row, row->size + 64, 0), other, sizeof(other));
	if (zeros != exact)
		bad += printf("%s: a newer struct with defaults gives %d (%s), its own gives %d (%s)\n", row->name, (int)zeros,
			      other, (int)exact, message);

	int32_t newer = called(row, prepared(row, row->size + 64, 1), message, sizeof(message));
	if (newer != ORCH_E2BIG || !strstr(message, row->name))
		bad += printf("%s: a newer struct with a value gives %d (%s) instead of ORCH_E2BIG\n", row->name, (int)newer,
			      message);
	if (row->destroy && destroyed != 1)
		bad += printf("%s: destroy ran %d times after ORCH_E2BIG\n", row->name, destroyed);

	int32_t shortest = called(row, prepared(row, 2 * sizeof(uint32_t), 0), message, sizeof(message));
	if (shortest == ORCH_E2BIG || strstr(message, "call orch_"))
		bad += printf("%s: an older struct is refused: %d (%s)\n", row->name, (int)shortest, message);
	int32_t none = called(row, prepared(row, sizeof(uint32_t), 0), message, sizeof(message));
	if (none != ORCH_EINVAL || !strstr(message, "_init()"))
		bad += printf("%s: a struct that was not initialised gives %d (%s)\n", row->name, (int)none, message);
	return bad;
}

static void job(void *userdata, orch_job *job)
{
	(void)userdata;
	(void)job;
}

static bool made(int32_t code, orch_error *error, const char *what)
{
	if (code < 0)
		fprintf(stderr, "%s: %s\n", what, orch_error_message(error));
	orch_error_free(error);
	return code == 0;
}

static bool begin(void)
{
	char path[64];
	orch_error *error = NULL;
	struct orch_journal_opts journal_opts;
	struct orch_broker_opts broker_opts;
	struct orch_principal_opts principal_opts;
	struct orch_executor_opts executor_opts;

	if (!mkdtemp(folder))
		return false;
	snprintf(path, sizeof(path), "%s/journal", folder);
	orch_journal_opts_init(&journal_opts, sizeof(journal_opts));
	journal_opts.path = path;
	orch_broker_opts_init(&broker_opts, sizeof(broker_opts));
	orch_principal_opts_init(&principal_opts, sizeof(principal_opts));
	principal_opts.name = "options";
	orch_executor_opts_init(&executor_opts, sizeof(executor_opts));
	executor_opts.kind = ORCH_EXECUTOR_CALLBACK;
	executor_opts.job = job;
	if (!made(orch_ctx_new(NULL, &ctx, &error), error, "context") ||
	    !made(orch_scope_new(ctx, NULL, &scope, &error), error, "scope") ||
	    !made(orch_sandbox_new(ctx, NULL, &sandbox, &error), error, "sandbox") ||
	    !made(orch_journal_open(&journal_opts, &journal, &error), error, "journal"))
		return false;
	broker_opts.journal = journal;
	return made(orch_broker_new(ctx, &broker_opts, &broker, &error), error, "broker") &&
	       made(orch_principal_new(broker, &principal_opts, &principal, &error), error, "principal") &&
	       made(orch_executor_new(ctx, &executor_opts, &executor, &error), error, "executor");
}

static int drop(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

int main(void)
{
	int bad = 1;
	if (begin()) {
		bad = 0;
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
			bad += judge(&rows[i]) != 0;
	}
	orch_executor_unref(executor);
	orch_principal_unref(principal);
	orch_broker_unref(broker);
	orch_journal_unref(journal);
	orch_sandbox_unref(sandbox);
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	nftw(folder, drop, 8, FTW_DEPTH | FTW_PHYS);
	printf("%zu options structs, %d of them wrong\n", sizeof(rows) / sizeof(rows[0]), bad);
	return bad != 0;
}
