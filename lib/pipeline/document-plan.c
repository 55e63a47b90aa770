/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "document-private.h"

#define FORM_PLAN "<plan xmlns=\"urn:orch:plan:1\"> with one or more <task>"
#define FORM_TASK                                                                                  \
	"<task id=\"T1\" title=\"...\"><description>text</description> and then <requirement "     \
	"ref=\"R1\"/>, "                                                                           \
	"<write path=\"dir/\"/>, <after ref=\"T2\"/>, <operation type=\"...\" key=\"...\"/>"
#define FORM_DESCRIPTION "<description>text</description>"

static const struct shape plan_shapes[] = {
    {"plan", NULL, FORM_PLAN, "task+", false, {{NULL}}},
    {"task",
     "plan",
     FORM_TASK,
     "description *",
     false,
     {{"id", ATTRIBUTE_ID, true, NULL}, {"title", ATTRIBUTE_TITLE, true, NULL}}},
    {"description", "task", FORM_DESCRIPTION, NULL, true, {{NULL}}},
    {"requirement",
     "task",
     "<requirement ref=\"R1\"/>",
     NULL,
     false,
     {{"ref", ATTRIBUTE_ID, true, NULL}}},
    {"after", "task", "<after ref=\"T1\"/>", NULL, false, {{"ref", ATTRIBUTE_ID, true, NULL}}},
    {"write",
     "task",
     "<write path=\"dir/\"/>",
     NULL,
     false,
     {{"path", ATTRIBUTE_WRITE_PATH, true, NULL}}},
    {"operation",
     "task",
     "<operation type=\"notify.send\" key=\"announce\"/>",
     NULL,
     false,
     {{"type", ATTRIBUTE_NAME, true, NULL}, {"key", ATTRIBUTE_NAME, true, NULL}}},
};

struct planner {
	struct plan *plan;
	long lines[DOCUMENT_TASKS_MAX];
	const struct spec *spec;
	const struct checks *checks;
	bool (*operation_allowed)(void *userdata, const char *type);
	void *userdata;
	struct faults *faults;
	/* before[a][b]: task a can only run after task b */
	bool before[DOCUMENT_TASKS_MAX][DOCUMENT_TASKS_MAX];
};

/* --- reading --------------------------------------------------------------------------------- */

static bool read_list(xmlNode *task, const char *element, const char *attribute, char ***list)
{
	size_t count = 0;
	*list = calloc(1, sizeof(**list));
	if (!*list)
		return false;
	for (xmlNode *node = xml_first(task, element); node; node = xml_next(node, element)) {
		_cleanup_free_ char *value = xml_attribute(node, attribute);
		if (!value || !list_add(list, &count, value))
			return false;
	}
	return true;
}

static bool read_operations(xmlNode *node, struct task_plan *task)
{
	task->operations = calloc(xml_count(node, "operation") + 1, sizeof(*task->operations));
	if (!task->operations)
		return false;
	for (xmlNode *item = xml_first(node, "operation"); item;
	     item = xml_next(item, "operation")) {
		struct task_operation *operation = &task->operations[task->operation_count++];
		operation->type = xml_attribute(item, "type");
		operation->key = xml_attribute(item, "key");
		if (!operation->type || !operation->key)
			return false;
	}
	return true;
}

static bool read_tasks(struct planner *planner, xmlNode *root)
{
	struct plan *plan = planner->plan;
	size_t count = xml_count(root, "task");
	plan->tasks = calloc(count, sizeof(*plan->tasks));
	if (!plan->tasks)
		return false;
	if (count > DOCUMENT_TASKS_MAX) {
		fault_add(planner->faults, xmlGetLineNo(root), "%zu tasks: at most %d are allowed",
			  count, DOCUMENT_TASKS_MAX);
		return true;
	}
	for (xmlNode *node = xml_first(root, "task"); node; node = xml_next(node, "task")) {
		planner->lines[plan->count] = xmlGetLineNo(node);
		struct task_plan *task = &plan->tasks[plan->count++];
		task->id = xml_attribute(node, "id");
		task->title = xml_attribute(node, "title");
		task->description = xml_text(xml_first(node, "description"), true);
		if (!task->id || !task->title || !task->description ||
		    !read_list(node, "requirement", "ref", &task->requirements) ||
		    !read_list(node, "after", "ref", &task->after) ||
		    !read_list(node, "write", "path", &task->writes) ||
		    !read_operations(node, task))
			return false;
	}
	return true;
}

/* --- judging --------------------------------------------------------------------------------- */

static ssize_t find_task(const struct plan *plan, size_t limit, const char *id)
{
	for (size_t i = 0; i < limit; i++)
		if (!strcmp(plan->tasks[i].id, id))
			return (ssize_t)i;
	return -1;
}

static bool listed(char *const *list, const char *text)
{
	for (; list && *list; list++)
		if (!strcmp(*list, text))
			return true;
	return false;
}

static bool spec_has(const struct spec *spec, const char *id)
{
	for (size_t i = 0; i < spec->requirement_count; i++)
		if (!strcmp(spec->requirements[i].id, id))
			return true;
	return false;
}

static void judge_operations(struct planner *planner, size_t index)
{
	const struct task_plan *task = &planner->plan->tasks[index];
	long line = planner->lines[index];
	for (size_t o = 0; o < task->operation_count; o++) {
		const struct task_operation *operation = &task->operations[o];
		if (!planner->operation_allowed ||
		    !planner->operation_allowed(planner->userdata, operation->type))
			fault_add(planner->faults, line,
				  "task \"%s\" wants the operation \"%s\", which the user did not "
				  "allow for this run",
				  task->id, operation->type);
		/* The journal knows an operation by its key: two with one key would be one. */
		for (size_t t = 0; t <= index; t++) {
			const struct task_plan *other = &planner->plan->tasks[t];
			size_t end = t == index ? o : other->operation_count;
			for (size_t p = 0; p < end; p++)
				if (!strcmp(other->operations[p].key, operation->key) &&
				    !strcmp(other->operations[p].type, operation->type))
					fault_add(planner->faults, line,
						  "tasks \"%s\" and \"%s\" use the operation key "
						  "\"%s\": give each its own",
						  other->id, task->id, operation->key);
		}
	}
}

static void judge_task(struct planner *planner, size_t index)
{
	const struct plan *plan = planner->plan;
	const struct task_plan *task = &plan->tasks[index];
	struct faults *faults = planner->faults;
	long line = planner->lines[index];

	if (find_task(plan, index, task->id) >= 0)
		fault_add(faults, line, "the task id \"%s\" is used twice: give each its own",
			  task->id);
	if (!*task->requirements)
		fault_add(faults, line,
			  "task \"%s\" has no <requirement ref=\"...\"/>: what is it verified by?",
			  task->id);
	if (!*task->writes)
		fault_add(faults, line,
			  "task \"%s\" has no <write path=\"...\"/>: say which files it may change",
			  task->id);
	size_t writes = 0;
	while (task->writes[writes])
		writes++;
	if (writes > DOCUMENT_WRITES_MAX)
		fault_add(faults, line,
			  "task \"%s\" has %zu write paths: at most %d; name a folder instead",
			  task->id, writes, DOCUMENT_WRITES_MAX);
	for (char **ref = task->requirements; *ref; ref++) {
		if (!spec_has(planner->spec, *ref))
			fault_add(faults, line,
				  "task \"%s\" is for the requirement \"%s\", which the "
				  "specification does not have",
				  task->id, *ref);
		if (listed(ref + 1, *ref))
			fault_add(faults, line, "task \"%s\" names the requirement \"%s\" twice",
				  task->id, *ref);
	}
	for (char **ref = task->after; *ref; ref++) {
		ssize_t other = find_task(plan, plan->count, *ref);
		if (other < 0)
			fault_add(faults, line,
				  "task \"%s\" comes after \"%s\", which is not in the plan",
				  task->id, *ref);
		else if ((size_t)other == index)
			fault_add(faults, line, "task \"%s\" comes after itself", task->id);
		else
			planner->before[index][other] = true;
	}
	judge_operations(planner, index);
}

/* A task that leads back to itself, step by step. */
static void describe_cycle(struct planner *planner, size_t start)
{
	const struct plan *plan = planner->plan;
	_cleanup_buf_ struct orch_buf way = {0};
	size_t at = start;
	for (size_t steps = 0; steps <= plan->count; steps++) {
		orch_buf_printf(&way, "%s%s", steps ? " after " : "", plan->tasks[at].id);
		if (steps && at == start)
			break;
		for (char **ref = plan->tasks[at].after; *ref; ref++) {
			ssize_t next = find_task(plan, plan->count, *ref);
			if (next >= 0 && ((size_t)next == start || planner->before[next][start])) {
				at = (size_t)next;
				break;
			}
		}
	}
	fault_add(planner->faults, planner->lines[start],
		  "the tasks wait for each other in a circle: %s", way.data ? way.data : "");
}

static bool judge_order(struct planner *planner)
{
	size_t count = planner->plan->count;
	for (size_t via = 0; via < count; via++)
		for (size_t a = 0; a < count; a++)
			for (size_t b = 0; planner->before[a][via] && b < count; b++)
				planner->before[a][b] |= planner->before[via][b];
	for (size_t a = 0; a < count; a++)
		if (planner->before[a][a]) {
			describe_cycle(planner, a);
			return false;
		}
	return true;
}

static bool paths_overlap(const char *one, const char *other)
{
	if (!strcmp(one, ".") || !strcmp(other, "."))
		return true;
	size_t a = strlen(one), b = strlen(other);
	/* "x" and "x/" name the same place: the one makes the other impossible. */
	a -= one[a - 1] == '/';
	b -= other[b - 1] == '/';
	size_t shared = a < b ? a : b;
	return !strncmp(one, other, shared) && (a == b || (a < b ? other : one)[shared] == '/');
}

static void judge_overlap(struct planner *planner)
{
	const struct plan *plan = planner->plan;
	for (size_t a = 0; a < plan->count; a++)
		for (size_t b = a + 1; b < plan->count; b++) {
			const struct task_plan *one = &plan->tasks[a], *other = &plan->tasks[b];
			if (planner->before[a][b] || planner->before[b][a])
				continue;
			for (char **p = one->writes; *p; p++)
				for (char **q = other->writes; *q; q++)
					if (paths_overlap(*p, *q))
						fault_add(
						    planner->faults, planner->lines[b],
						    "tasks \"%s\" and \"%s\" may run at the same "
						    "time, and both may write "
						    "(\"%s\", \"%s\"): make the paths disjoint, or "
						    "put <after ref=\"%s\"/> into \"%s\"",
						    one->id, other->id, *p, *q, one->id, other->id);
		}
}

static void judge_coverage(struct planner *planner)
{
	for (size_t i = 0; i < planner->spec->requirement_count; i++) {
		const char *id = planner->spec->requirements[i].id;
		size_t t = 0, c = 0;
		while (t < planner->plan->count &&
		       !listed(planner->plan->tasks[t].requirements, id))
			t++;
		if (t == planner->plan->count)
			fault_add(planner->faults, 1,
				  "requirement \"%s\" is in no task: add <requirement ref=\"%s\"/> "
				  "to one",
				  id, id);
		while (c < planner->checks->count &&
		       strcmp(planner->checks->checks[c].requirement, id))
			c++;
		if (c == planner->checks->count)
			fault_add(planner->faults, 1,
				  "requirement \"%s\" has no check: nothing could verify it", id);
	}
}

int32_t plan_parse(const char *schema_dir, const char *name, const void *bytes, size_t length,
		   const struct spec *spec, const struct checks *checks,
		   bool (*operation_allowed)(void *userdata, const char *type), void *userdata,
		   struct plan **ret_plan, orch_error **reterr)
{
	struct faults faults = {.document = name};
	_cleanup_xml_ xmlDoc *document = NULL;
	_cleanup_free_ struct planner *planner = calloc(1, sizeof(*planner));
	struct plan *plan = calloc(1, sizeof(*plan));
	int32_t code = 0;

	if (!planner || !plan) {
		plan_free(plan);
		return orch_fail_memory(reterr);
	}
	*planner = (struct planner){.plan = plan,
				    .spec = spec,
				    .checks = checks,
				    .operation_allowed = operation_allowed,
				    .userdata = userdata,
				    .faults = &faults};
	code = document_check_size(name, bytes, length, reterr);
	if (!code)
		code = xml_load(schema_dir, "plan.rng", "urn:orch:plan:1", plan_shapes,
				sizeof(plan_shapes) / sizeof(*plan_shapes), bytes, length, &faults,
				&document, reterr);
	if (document && !read_tasks(planner, xmlDocGetRootElement(document)))
		code = orch_fail_memory(reterr);
	if (document && !code && !faults.count) {
		for (size_t i = 0; i < plan->count; i++)
			judge_task(planner, i);
		judge_coverage(planner);
		if (judge_order(planner) && !faults.count)
			judge_overlap(planner);
	}
	int32_t faulty = faults_close(&faults, code < 0 ? NULL : reterr);
	if (code < 0 || faulty < 0) {
		plan_free(plan);
		return code < 0 ? code : faulty;
	}
	*ret_plan = plan;
	return 0;
}
