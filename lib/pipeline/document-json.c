/* SPDX-License-Identifier: Apache-2.0 */
#include "document-private.h"

/*
 * jansson tells the line of a syntax error only. This one finds where the `index`-th value that is
 * an object at nesting `depth` starts, in text that is known to be well-formed.
 */
static long line_of_object(const char *text, size_t length, size_t depth, size_t index)
{
	long line = 1;
	size_t level = 0, seen = 0;
	bool quoted = false;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];
		if (c == '\n')
			line++;
		if (quoted) {
			if (c == '\\')
				i++;
			quoted = c != '"';
		} else if (c == '"') {
			quoted = true;
		} else if (c == '{' || c == '[') {
			if (++level == depth && c == '{' && seen++ == index)
				return line;
		} else if (c == '}' || c == ']') {
			level--;
		}
	}
	return 1;
}

static int32_t load(const char *name, const void *bytes, size_t length, const char *form,
		    struct faults *faults, json_t **ret_root, orch_error **reterr)
{
	json_error_t error;
	int32_t code = document_check_size(name, bytes, length, reterr);
	if (code < 0)
		return code;
	json_t *root = json_loadb(length ? bytes : "", length, JSON_REJECT_DUPLICATES, &error);
	if (root && json_is_object(root)) {
		*ret_root = root;
		return 0;
	}
	if (!root && json_error_code(&error) == json_error_out_of_memory)
		return orch_fail_memory(reterr);
	fault_add(faults, root || error.line < 1 ? 1 : error.line, "%s%s: expected %s",
		  root ? "" : "not well-formed JSON: ", root ? "not an object" : error.text, form);
	json_decref(root);
	return 0;
}

static void check_members(const json_t *object, const char *const *known, long line,
			  const char *what, struct faults *faults)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)object, key, value)
	{
		const char *const *name = known;
		while (*name && strcmp(*name, key))
			name++;
		if (!*name)
			fault_add(faults, line, "%s has an unknown member \"%.100s\"", what, key);
	}
}

/* Takes the reference. */
static void json_cleanup(json_t **json)
{
	json_decref(*json);
}
#define _cleanup_json_ __attribute__((cleanup(json_cleanup)))

/* --- questions ------------------------------------------------------------------------------- */

#define FORM_QUESTIONS                                                                             \
	"{\"questions\":[{\"id\":\"Q1\",\"text\":\"...\",\"recommended\":\"...\",\"options\":[\"." \
	"..\"],"                                                                                   \
	"\"kind\":\"choice|text|credentials|money|irreversible\"}]}"

static bool kind_known(const char *kind)
{
	return !strcmp(kind, "choice") || !strcmp(kind, "text") || !strcmp(kind, "credentials") ||
	       !strcmp(kind, "money") || !strcmp(kind, "irreversible");
}

/* False without memory. An absent member gives an empty string and, if required, a fault. */
static bool take_text(const json_t *object, const char *member, bool required, const char *id,
		      long line, struct faults *faults, char **ret_text)
{
	const json_t *value = json_object_get(object, member);
	const char *text = json_string_value(value);
	*ret_text = text_trimmed(text ? text : "");
	if (!*ret_text)
		return false;
	if (value && !text)
		fault_add(faults, line, "question %s: \"%s\" is not a string", id, member);
	else if (required && !**ret_text)
		fault_add(faults, line, "question %s: \"%s\" is missing or empty: expected %s", id,
			  member, FORM_QUESTIONS);
	return true;
}

static bool read_options(const json_t *object, struct question *question, long line,
			 struct faults *faults)
{
	const json_t *options = json_object_get(object, "options");
	size_t count = 0, index;
	json_t *option;
	question->options = calloc(1, sizeof(*question->options));
	if (!question->options)
		return false;
	if (options && !json_is_array(options))
		fault_add(faults, line, "question %s: \"options\" is not a list", question->id);
	json_array_foreach(options, index, option)
	{
		const char *text = json_string_value(option);
		if (!text || !*text)
			fault_add(faults, line,
				  "question %s: option %zu is not a string with text in it",
				  question->id, index + 1);
		else if (!list_add(&question->options, &count, text))
			return false;
	}
	if (!strcmp(question->kind, "choice") && count < 2)
		fault_add(faults, line, "question %s: a choice needs at least two options",
			  question->id);
	bool found = !count || !*question->recommended;
	for (size_t i = 0; i < count && !found; i++)
		found = !strcmp(question->options[i], question->recommended);
	if (!found)
		fault_add(faults, line,
			  "question %s: the recommended answer \"%.100s\" is not among its options",
			  question->id, question->recommended);
	return true;
}

static bool read_question(const json_t *object, struct questions *questions, long line,
			  struct faults *faults)
{
	static const char *const members[] = {"id", "text", "recommended", "options", "kind", NULL};
	struct question *question = &questions->questions[questions->count++];
	const char *id = json_string_value(json_object_get(object, "id"));
	const json_t *kind = json_object_get(object, "kind");
	const char *kind_text = json_string_value(kind);

	if (!json_is_object(object)) {
		fault_add(faults, line, "question %zu is not an object: expected %s",
			  questions->count, FORM_QUESTIONS);
		return true;
	}
	if (!id || !is_id(id))
		fault_add(faults, line, "question %zu: its \"id\" is %s%.100s%s: expected %s",
			  questions->count, id ? "\"" : "missing", id ? id : "", id ? "\"" : "",
			  ID_EXPECTED);
	for (size_t i = 0; id && i + 1 < questions->count; i++)
		if (questions->questions[i].id && !strcmp(questions->questions[i].id, id))
			fault_add(faults, line, "the question id \"%.100s\" is used twice", id);
	check_members(object, members, line, "a question", faults);
	if (!kind)
		kind_text = json_array_size(json_object_get(object, "options")) ? "choice" : "text";
	if (!kind_text || !kind_known(kind_text)) {
		fault_add(faults, line,
			  "question %s: its kind is \"%.100s\": expected choice, text, "
			  "credentials, money or irreversible",
			  id ? id : "", kind_text ? kind_text : "");
		kind_text = "text";
	}
	question->needs_person = strcmp(kind_text, "choice") && strcmp(kind_text, "text");
	question->id = strdup(id ? id : "");
	question->kind = strdup(kind_text);
	return question->id && question->kind &&
	       take_text(object, "text", true, question->id, line, faults, &question->text) &&
	       take_text(object, "recommended", !question->needs_person, question->id, line, faults,
			 &question->recommended) &&
	       read_options(object, question, line, faults);
}

int32_t questions_parse(const char *name, const void *bytes, size_t length,
			struct questions **ret_questions, orch_error **reterr)
{
	static const char *const members[] = {"questions", NULL};
	struct faults faults = {.document = name};
	_cleanup_json_ json_t *root = NULL;
	struct questions *questions = NULL;
	size_t index, objects = 0;
	json_t *item;

	int32_t code = load(name, bytes, length, FORM_QUESTIONS, &faults, &root, reterr);
	if (root) {
		const json_t *list = json_object_get(root, "questions");
		check_members(root, members, 1, "the document", &faults);
		if (!json_is_array(list))
			fault_add(&faults, 1, "\"questions\" is not a list: expected %s",
				  FORM_QUESTIONS);
		else if (json_array_size(list) > QUESTION_LIMIT)
			fault_add(&faults, 1,
				  "%zu questions: at most %d are allowed; keep the most important",
				  json_array_size(list), QUESTION_LIMIT);
		questions = calloc(1, sizeof(*questions));
		if (questions)
			questions->questions =
			    calloc(json_array_size(list) + 1, sizeof(*questions->questions));
		if (!questions || !questions->questions)
			code = orch_fail_memory(reterr);
		for (index = 0; !code && index < json_array_size(list); index++) {
			item = json_array_get(list, index);
			/* A line can only be told while no other object of that depth is in the
			 * way. */
			long line = json_object_size(root) == 1 && json_is_object(item)
					? line_of_object(bytes, length, 3, objects++)
					: 1;
			if (!read_question(item, questions, line, &faults))
				code = orch_fail_memory(reterr);
		}
	}
	int32_t faulty = faults_close(&faults, code < 0 ? NULL : reterr);
	if (code < 0 || faulty < 0) {
		questions_free(questions);
		return code < 0 ? code : faulty;
	}
	*ret_questions = questions;
	return 0;
}

/* --- answers --------------------------------------------------------------------------------- */

#define FORM_ANSWERS "{\"answers\":{\"Q1\":\"...\"}}"

static bool question_known(const struct questions *questions, const char *id)
{
	for (size_t i = 0; i < questions->count; i++)
		if (!strcmp(questions->questions[i].id, id))
			return true;
	return false;
}

static int32_t fail_unknown(const char *name, const struct questions *questions, const char *id,
			    orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf known = {0};
	for (size_t i = 0; i < questions->count; i++)
		orch_buf_printf(&known, "%s%s", i ? ", " : "", questions->questions[i].id);
	return orch_fail(reterr, ORCH_ENOENT, 0, NULL,
			 "%s: there is no question \"%.100s\": the questions are %s", name, id,
			 known.length ? known.data : "none");
}

int32_t answers_parse(const char *name, const void *bytes, size_t length,
		      const struct questions *questions, json_t **ret_answers, orch_error **reterr)
{
	static const char *const members[] = {"answers", NULL};
	struct faults faults = {.document = name};
	_cleanup_json_ json_t *root = NULL, *answers = json_object();
	const char *id, *unknown = NULL;
	json_t *value;

	if (!answers)
		return orch_fail_memory(reterr);
	int32_t code = load(name, bytes, length, FORM_ANSWERS, &faults, &root, reterr);
	if (root) {
		json_t *given = json_object_get(root, "answers");
		check_members(root, members, 1, "the document", &faults);
		if (!json_is_object(given))
			fault_add(&faults, 1, "\"answers\" is not an object: expected %s",
				  FORM_ANSWERS);
		json_object_foreach(given, id, value)
		{
			const char *text = json_string_value(value);
			if (questions && !question_known(questions, id) && !unknown)
				unknown = id;
			if (!text)
				fault_add(&faults, 1, "the answer to \"%.100s\" is not a string",
					  id);
			else if (text[strspn(text, " \t\r\n")] &&
				 json_object_set(answers, id, value) < 0)
				code = orch_fail_memory(reterr);
		}
	}
	int32_t faulty = faults_close(&faults, code < 0 ? NULL : reterr);
	if (code < 0 || faulty < 0)
		return code < 0 ? code : faulty;
	if (unknown)
		return fail_unknown(name, questions, unknown, reterr);
	*ret_answers = ORCH_STEAL(answers);
	return 0;
}

/* --- review ---------------------------------------------------------------------------------- */

#define FORM_REVIEW "{\"veto\":true|false,\"reasons\":[\"...\"]}"

int32_t review_parse(const char *name, const void *bytes, size_t length, bool *ret_veto,
		     char **ret_reasons, orch_error **reterr)
{
	static const char *const members[] = {"veto", "reasons", NULL};
	struct faults faults = {.document = name};
	_cleanup_json_ json_t *root = NULL;
	_cleanup_buf_ struct orch_buf text = {0};
	bool veto = false;
	size_t index;
	json_t *item;

	int32_t code = load(name, bytes, length, FORM_REVIEW, &faults, &root, reterr);
	if (root) {
		const json_t *verdict = json_object_get(root, "veto");
		const json_t *reasons = json_object_get(root, "reasons");
		check_members(root, members, 1, "the document", &faults);
		veto = json_is_true(verdict);
		if (!json_is_boolean(verdict))
			fault_add(&faults, 1, "\"veto\" is not true or false: expected %s",
				  FORM_REVIEW);
		if (reasons && !json_is_array(reasons))
			fault_add(&faults, 1, "\"reasons\" is not a list: expected %s",
				  FORM_REVIEW);
		json_array_foreach(reasons, index, item)
		{
			if (!json_is_string(item))
				fault_add(&faults, 1, "reason %zu is not a string", index + 1);
			else if (*json_string_value(item))
				orch_buf_printf(&text, "%s%s", text.length ? "\n" : "",
						json_string_value(item));
		}
		if (veto && !text.length)
			fault_add(&faults, 1, "a veto needs at least one reason: expected %s",
				  FORM_REVIEW);
	}
	int32_t faulty = faults_close(&faults, code < 0 ? NULL : reterr);
	if (code < 0 || faulty < 0)
		return code < 0 ? code : faulty;
	if (!text.data)
		orch_buf_puts(&text, "");
	char *reasons = text.failed ? NULL : strdup(text.data ? text.data : "");
	if (!reasons)
		return orch_fail_memory(reterr);
	*ret_veto = veto;
	*ret_reasons = reasons;
	return 0;
}
