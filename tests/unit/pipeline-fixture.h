/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_PIPELINE_FIXTURE_H
#define TEST_PIPELINE_FIXTURE_H

/*
 * A run whose roles are functions of this program: each attempt leaves the files that a table gives
 * it. The product is a small web server in Python, three requirements, tasks T1 and then T2 and T3
 * at the same time.
 */

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orch.h>

#define OK(call)                                                                                   \
	do {                                                                                       \
		orch_error *error_ = NULL;                                                         \
		orch_error **e = &error_;                                                          \
		int32_t code_ = (call);                                                            \
		ck_assert_msg(code_ == 0, "%s: %s: %s", #call, orch_code_name(code_),              \
			      orch_error_message(error_));                                         \
		(void)e;                                                                           \
	} while (0)

#define REFUSED(code, words, call)                                                                 \
	do {                                                                                       \
		orch_error *error_ = NULL;                                                         \
		orch_error **e = &error_;                                                          \
		int32_t code_ = (call);                                                            \
		ck_assert_msg(code_ == (code), "%s: %s: %s", #call, orch_code_name(code_),         \
			      orch_error_message(error_));                                         \
		ck_assert_msg(strstr(orch_error_message(error_), words) != NULL, "%s",             \
			      orch_error_message(error_));                                         \
		orch_error_free(error_);                                                           \
	} while (0)

#define RUN_TIMEOUT_MS 120000

/* --- what the roles leave -------------------------------------------------------------------- */

/*
 * `when`: ROLE-STAGE[-TASK][.ATTEMPT]; of the rows that fit, only those of the most specific `when`
 * are used. `path` is below the workspace; "!path" removes it; "?" as path makes the attempt fail
 * to finish (it drops the job).
 */
struct answer {
	const char *when, *path, *text;
};

#define SPEC                                                                                       \
	"<spec xmlns=\"urn:orch:spec:1\" name=\"letters\" title=\"Letters\">\n"                    \
	"  <summary>A server of letters.</summary>\n"                                              \
	"  <product "                                                                              \
	"kind=\"http\"><start><arg>python3</arg><arg>-B</arg><arg>app.py</arg></start></"          \
	"product>\n"                                                                               \
	"  <requirement id=\"R1\" title=\"Health\">GET /health answers 200 and "                   \
	"healthy.</requirement>\n"                                                                 \
	"  <requirement id=\"R2\" title=\"A\">GET /a answers 200 and A, and N times A with "       \
	"?n=N.</requirement>\n"                                                                    \
	"  <requirement id=\"R3\" title=\"B\">GET /b answers 200 and B.</requirement>\n"           \
	"</spec>\n"

#define CHECKS                                                                                     \
	"<checks xmlns=\"urn:orch:checks:1\">\n"                                                   \
	"  <check id=\"C1\" requirement=\"R1\" visibility=\"visible\" file=\"checks/c1.py\"/>\n"   \
	"  <check id=\"C2\" requirement=\"R2\" visibility=\"visible\" file=\"checks/c2.py\"/>\n"   \
	"  <check id=\"H2\" requirement=\"R2\" visibility=\"hidden\" "                             \
	"file=\"checks/secret.py\"/>\n"                                                            \
	"  <check id=\"C3\" requirement=\"R3\" visibility=\"visible\" file=\"checks/c3.py\"/>\n"   \
	"</checks>\n"

#define CHECK(path, text)                                                                          \
	"import os, urllib.request\n"                                                              \
	"print('1..1')\n"                                                                          \
	"try:\n"                                                                                   \
	"    got = urllib.request.urlopen(os.environ['PRODUCT_URL'] + '" path                      \
	"', timeout=5).read().decode()\n"                                                          \
	"except Exception as error:\n"                                                             \
	"    got = str(error)\n"                                                                   \
	"print(('ok' if got == '" text "' else 'not ok') + ' 1 - got ' + repr(got))\n"

#define PLAN_HEAD                                                                                  \
	"<plan xmlns=\"urn:orch:plan:1\">\n"                                                       \
	"  <task id=\"T1\" title=\"Server\"><description>The server.</description>"                \
	"<requirement ref=\"R1\"/><write path=\"app.py\"/></task>\n"
#define PLAN_T2                                                                                    \
	"  <task id=\"T2\" title=\"A\"><description>The letter A.</description>"                   \
	"<requirement ref=\"R2\"/><after ref=\"T1\"/><write path=\"parts/a.py\"/></task>\n"
#define PLAN_T3                                                                                    \
	"  <task id=\"T3\" title=\"B\"><description>The letter B.</description>"                   \
	"<requirement ref=\"R3\"/><after ref=\"T1\"/><write path=\"parts/b.py\"/></task>\n"
#define PLAN_TAIL "</plan>\n"

#define APP                                                                                        \
	"import http.server, os, sys, urllib.parse\n"                                              \
	"sys.dont_write_bytecode = True\n"                                                         \
	"class Handler(http.server.BaseHTTPRequestHandler):\n"                                     \
	"    def do_GET(self):\n"                                                                  \
	"        url = urllib.parse.urlsplit(self.path)\n"                                         \
	"        query = dict(urllib.parse.parse_qsl(url.query))\n"                                \
	"        status, text = 404, 'no such letter'\n"                                           \
	"        path = 'parts' + url.path + '.py'\n"                                              \
	"        if url.path == '/health':\n"                                                      \
	"            status, text = 200, 'healthy'\n"                                              \
	"        elif os.path.exists(path):\n"                                                     \
	"            room = {}\n"                                                                  \
	"            exec(open(path).read(), room)\n"                                              \
	"            status, text = 200, room['answer'](query)\n"                                  \
	"        body = text.encode()\n"                                                           \
	"        self.send_response(status)\n"                                                     \
	"        self.send_header('Content-Length', str(len(body)))\n"                             \
	"        self.end_headers()\n"                                                             \
	"        self.wfile.write(body)\n"                                                         \
	"    def log_message(self, *arguments):\n"                                                 \
	"        pass\n"                                                                           \
	"http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), "                          \
	"Handler).serve_forever()\n"

#define PART_A "def answer(query):\n    return 'A' * int(query.get('n', 1))\n"
#define PART_A_SPECIAL "def answer(query):\n    return 'A'\n"
#define PART_B "def answer(query):\n    return 'B'\n"

#define REVIEW_FINE "{\"veto\":false,\"reasons\":[]}\n"
#define NO_QUESTIONS "{\"questions\":[]}\n"

static const struct answer honest[] = {
	{"planner-clarify", "out/questions.json", NO_QUESTIONS},
	{"planner-specify", "out/spec.xml", SPEC},
	{"checker-check", "out/checks.xml", CHECKS},
	{"checker-check", "out/checks/c1.py", CHECK("/health", "healthy")},
	{"checker-check", "out/checks/c2.py", CHECK("/a", "A")},
	{"checker-check", "out/checks/secret.py", CHECK("/a?n=3", "AAA")},
	{"checker-check", "out/checks/c3.py", CHECK("/b", "B")},
	{"planner-plan", "out/plan.xml", PLAN_HEAD PLAN_T2 PLAN_T3 PLAN_TAIL},
	{"executor-execute-T1", "tree/app.py", APP},
	{"executor-execute-T2", "tree/parts/a.py", PART_A},
	{"executor-execute-T3", "tree/parts/b.py", PART_B},
	{"reviewer-review", "out/review.json", REVIEW_FINE},
	{NULL, NULL, NULL},
};

/* --- the host -------------------------------------------------------------------------------- */

struct host {
	char folder[64]; /* of this test */
	char state[80];
	char repo[80];
	const struct answer *answers; /* before those of `honest` */
	struct orch_pipeline_opts opts;
	struct orch_grant_opts grant; /* operation NULL: none */
	orch_ctx *ctx;
	orch_pipeline *pipeline;
	void (*on_job)(struct host *host, orch_job *job, const char *place);
	void (*on_event)(struct host *host, const json_t *event);
	json_t *events;	 /* array */
	json_t *packets; /* object: PLACE -> text */
	json_t *inputs;	 /* object: PLACE -> names in /in */
	unsigned running, most_running;
	uint64_t die_at; /* SIGKILL for this process after so many records; 0: never */
	uint64_t records;
	bool dropped_destroy;
};

static inline int unlink_one(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
	(void)status;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void remove_all(const char *path)
{
	nftw(path, unlink_one, 32, FTW_DEPTH | FTW_PHYS);
}

/* DIR/NAME; freed by the caller. */
static inline char *joined(const char *dir, const char *name)
{
	char *path = NULL;
	ck_assert_int_gt(asprintf(&path, "%s/%s", dir, name), 0);
	return path;
}

static inline void write_text(const char *dir, const char *name, const char *text)
{
	char *path = joined(dir, name);
	for (char *slash = path + strlen(dir) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	FILE *file = fopen(path, "we");
	ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
	fputs(text, file);
	fclose(file);
	free(path);
}

static inline char *read_text(const char *dir, const char *name)
{
	char *path = joined(dir, name);
	FILE *file = fopen(path, "re");
	free(path);
	if (!file)
		return NULL;
	char *text = calloc(1, 1 << 20);
	size_t length = fread(text, 1, (1 << 20) - 1, file);
	text[length] = '\0';
	fclose(file);
	return text;
}

/* How well a row fits, 0: not at all. */
static inline int fits(const char *when, const char *stage, const char *task, const char *attempt)
{
	char place[256];
	snprintf(place, sizeof(place), "%s-%s.%s", stage, task, attempt);
	if (!strcmp(when, place))
		return 4;
	snprintf(place, sizeof(place), "%s-%s", stage, task);
	if (!strcmp(when, place))
		return 3;
	snprintf(place, sizeof(place), "%s.%s", stage, attempt);
	if (!strcmp(when, place))
		return 2;
	return !strcmp(when, stage);
}

static inline int best_fit(const struct answer *rows, const char *stage, const char *task,
			   const char *attempt)
{
	int best = 0;
	for (; rows && rows->when; rows++) {
		int fit = fits(rows->when, stage, task, attempt);
		best = fit > best ? fit : best;
	}
	return best;
}

static inline bool put_answers(const struct answer *rows, int fit, const char *workspace,
			       const char *stage, const char *task, const char *attempt)
{
	for (; rows && rows->when; rows++) {
		if (fits(rows->when, stage, task, attempt) != fit)
			continue;
		if (rows->path[0] == '?')
			return false;
		char *path = joined(workspace, rows->path + 1);
		if (rows->path[0] == '!') {
			remove_all(path);
		} else if (rows->path[0] == '@') {
			remove_all(path);
			ck_assert_int_eq(symlink(rows->text, path), 0);
		} else {
			write_text(workspace, rows->path, rows->text);
		}
		free(path);
	}
	return true;
}

static inline void list_folder(json_t *names, const char *dir, const char *prefix)
{
	DIR *folder = opendir(dir);
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		char *path = NULL, *name = NULL, *inner = NULL;
		if (entry->d_name[0] == '.')
			continue;
		ck_assert_int_gt(asprintf(&path, "%s/%s", dir, entry->d_name), 0);
		ck_assert_int_gt(asprintf(&name, "%s%s", prefix, entry->d_name), 0);
		ck_assert_int_gt(asprintf(&inner, "%s/", name), 0);
		json_array_append_new(names, json_string(name));
		if (entry->d_type == DT_DIR)
			list_folder(names, path, inner);
		free(path);
		free(name);
		free(inner);
	}
	if (folder)
		closedir(folder);
}

static inline void do_job(void *userdata, orch_job *job)
{
	struct host *host = userdata;
	char role[32], stage[32], task[32], attempt[16], place[128], where[192], in_dir[PATH_MAX];
	ck_assert_int_eq(sscanf(orch_job_packet(job),
				"orch-packet/1 run=%*s role=%31s stage=%31s task=%31s attempt=%15s",
				role, stage, task, attempt),
			 4);
	snprintf(place, sizeof(place), "%s-%s", role, stage);
	snprintf(where, sizeof(where), "%s-%s.%s", place, task, attempt);
	json_object_set_new(host->packets, where, json_string(orch_job_packet(job)));
	json_t *names = json_array();
	snprintf(in_dir, sizeof(in_dir), "%s.in", orch_job_workspace(job));
	list_folder(names, in_dir, "");
	json_object_set_new(host->inputs, where, names);
	const struct answer *rows = host->answers;
	int fit = best_fit(rows, place, task, attempt),
	    other = best_fit(honest, place, task, attempt);
	if (other > fit) {
		rows = honest;
		fit = other;
	}
	bool finishes = put_answers(rows, fit, orch_job_workspace(job), place, task, attempt);
	if (host->on_job)
		host->on_job(host, job, where);
	else if (finishes)
		OK(orch_job_finish(job, 0, "all done, all tests pass", e));
}

static inline void on_record(void *userdata, uint64_t sequence)
{
	struct host *host = userdata;
	(void)sequence;
	if (++host->records == host->die_at)
		kill(getpid(), SIGKILL);
}

static inline void on_event(void *userdata, const char *text)
{
	struct host *host = userdata;
	json_t *event = json_loads(text, 0, NULL);
	ck_assert_msg(event != NULL && strchr(text, '\n') == NULL, "not one JSON line: %s", text);
	ck_assert_msg(json_is_integer(json_object_get(event, "time_ms")), "no time: %s", text);
	if (getenv("TEST_VERBOSE"))
		fprintf(stderr, "%s\n", text);
	if (host->on_event)
		host->on_event(host, event);
	json_array_append_new(host->events, event);
}

static inline const char *member(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text ? text : "";
}

static inline void host_init(struct host *host, const struct answer *answers)
{
	memset(host, 0, sizeof(*host));
	strcpy(host->folder, "/tmp/orch-test-pipeline-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(host->folder));
	snprintf(host->state, sizeof(host->state), "%s/state", host->folder);
	snprintf(host->repo, sizeof(host->repo), "%s/repo", host->folder);
	host->answers = answers;
	orch_pipeline_opts_init(&host->opts, sizeof(host->opts));
	orch_grant_opts_init(&host->grant, sizeof(host->grant));
	host->opts.state_dir = host->state;
	host->opts.idea = "A server of letters.";
	host->events = json_array();
	host->packets = json_object();
	host->inputs = json_object();
}

static inline void host_open(struct host *host)
{
	char helper[PATH_MAX];
	static char schemas[PATH_MAX];
	struct orch_ctx_opts ctx;
	struct orch_executor_opts executor;
	snprintf(helper, sizeof(helper), "%s/lib/helper/orch-reaper", getenv("ORCH_BUILD_ROOT"));
	snprintf(schemas, sizeof(schemas), "%s/schemas", getenv("ORCH_SOURCE_ROOT"));
	host->opts.schema_dir = schemas;
	host->opts.on_record = on_record;
	host->opts.on_record_userdata = host;
	orch_ctx_opts_init(&ctx, sizeof(ctx));
	ctx.helper_path = helper;
	OK(orch_ctx_new(&ctx, &host->ctx, e));
	OK(orch_pipeline_new(host->ctx, &host->opts, &host->pipeline, e));
	orch_executor_opts_init(&executor, sizeof(executor));
	executor.kind = ORCH_EXECUTOR_CALLBACK;
	executor.job = do_job;
	executor.userdata = host;
	orch_executor *callback = NULL;
	OK(orch_executor_new(host->ctx, &executor, &callback, e));
	OK(orch_pipeline_set_executor(host->pipeline, 0, callback, e));
	orch_executor_unref(callback);
	if (host->grant.operation)
		OK(orch_pipeline_allow(host->pipeline, &host->grant, e));
	OK(orch_pipeline_on_event(host->pipeline, on_event, host, NULL, e));
}

static inline void host_close(struct host *host)
{
	host->pipeline = orch_pipeline_unref(host->pipeline);
	host->ctx = orch_ctx_unref(host->ctx);
}

static inline void host_end(struct host *host)
{
	host_close(host);
	json_decref(host->events);
	json_decref(host->packets);
	json_decref(host->inputs);
	remove_all(host->folder);
}

static inline uint32_t host_run(struct host *host)
{
	uint32_t state = 0;
	host_open(host);
	OK(orch_pipeline_run(host->pipeline, RUN_TIMEOUT_MS, &state, e));
	return state;
}

static inline json_t *host_report(const struct host *host)
{
	char *path = joined(host->state, "report/report.json");
	json_t *report = json_load_file(path, 0, NULL);
	ck_assert_msg(report != NULL, "%s is missing or no JSON", path);
	free(path);
	return report;
}

/* The last event of a name that has these members ("a=1" style pairs), or NULL. */
static inline const json_t *find_event(const struct host *host, const char *name, const char *key,
				       const char *value)
{
	for (size_t i = json_array_size(host->events); i-- > 0;) {
		const json_t *event = json_array_get(host->events, i);
		if (!strcmp(member(event, "event"), name) &&
		    (!key || !strcmp(member(event, key), value)))
			return event;
	}
	return NULL;
}

static inline const json_t *row_of(const json_t *report, const char *list, const char *key,
				   const char *value)
{
	size_t i;
	json_t *row;
	json_array_foreach(json_object_get(report, list), i, row)
	{
		if (!strcmp(member(row, key), value))
			return row;
	}
	return NULL;
}

/* The states of one task, in order: "READY LEASED ...". */
static inline void task_states(const struct host *host, const char *task, char *text, size_t size)
{
	size_t i;
	json_t *event;
	text[0] = '\0';
	json_array_foreach(host->events, i, event)
	{
		if (strcmp(member(event, "event"), "task") || strcmp(member(event, "task"), task))
			continue;
		size_t length = strlen(text);
		snprintf(text + length, size - length, "%s%s", length ? " " : "",
			 member(event, "state"));
	}
}

static inline void assert_invariants(const json_t *report)
{
	size_t i;
	json_t *row;
	ck_assert_uint_ge(json_array_size(json_object_get(report, "invariants")), 8);
	json_array_foreach(json_object_get(report, "invariants"), i, row)
	{
		ck_assert_msg(json_is_true(json_object_get(row, "holds")), "%s: %s",
			      member(row, "name"), member(row, "detail"));
	}
}

#endif
