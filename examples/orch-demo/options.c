/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>

#include "demo.h"

enum {
	OPT_IDEA_FILE = 256, OPT_REPO, OPT_BASE, OPT_EXECUTOR, OPT_EXECUTOR_CMD, OPT_PROVIDER, OPT_BASE_URL, OPT_MODEL,
	OPT_KEY_FILE, OPT_MAX_USD, OPT_MAX_TOKENS, OPT_MAX_TIME, OPT_MAX_ATTEMPTS, OPT_JOBS, OPT_ISOLATION, OPT_STATE,
	OPT_ANSWERS, OPT_SCENARIO, OPT_YES, OPT_JSON, OPT_NET, OPT_GRANT, OPT_CLAUDE, OPT_CODEX, OPT_NO_REVIEW,
	OPT_CRASH_AT, OPT_PORT, OPT_JOURNAL, OPT_ANCHOR, OPT_ONLY, OPT_KIND, OPT_LIMIT, OPT_NEWEST, OPT_RECORDS, OPT_REPLACE,
	OPT_BY, OPT_NOTE, OPT_POLICY,
};

static const struct option known[] = {
	{"idea-file", required_argument, NULL, OPT_IDEA_FILE},
	{"repo", required_argument, NULL, OPT_REPO},
	{"base", required_argument, NULL, OPT_BASE},
	{"executor", required_argument, NULL, OPT_EXECUTOR},
	{"executor-cmd", required_argument, NULL, OPT_EXECUTOR_CMD},
	{"provider", required_argument, NULL, OPT_PROVIDER},
	{"base-url", required_argument, NULL, OPT_BASE_URL},
	{"model", required_argument, NULL, OPT_MODEL},
	{"key-file", required_argument, NULL, OPT_KEY_FILE},
	{"max-usd", required_argument, NULL, OPT_MAX_USD},
	{"max-tokens", required_argument, NULL, OPT_MAX_TOKENS},
	{"max-time", required_argument, NULL, OPT_MAX_TIME},
	{"max-attempts", required_argument, NULL, OPT_MAX_ATTEMPTS},
	{"jobs", required_argument, NULL, OPT_JOBS},
	{"isolation", required_argument, NULL, OPT_ISOLATION},
	{"state", required_argument, NULL, OPT_STATE},
	{"answers", required_argument, NULL, OPT_ANSWERS},
	{"scenario", required_argument, NULL, OPT_SCENARIO},
	{"yes", no_argument, NULL, OPT_YES},
	{"json", no_argument, NULL, OPT_JSON},
	{"net", required_argument, NULL, OPT_NET},
	{"grant", required_argument, NULL, OPT_GRANT},
	{"claude", required_argument, NULL, OPT_CLAUDE},
	{"codex", required_argument, NULL, OPT_CODEX},
	{"no-review", no_argument, NULL, OPT_NO_REVIEW},
	{"crash-at-record", required_argument, NULL, OPT_CRASH_AT},
	{"port", required_argument, NULL, OPT_PORT},
	{"journal", required_argument, NULL, OPT_JOURNAL},
	{"anchor", required_argument, NULL, OPT_ANCHOR},
	{"only", required_argument, NULL, OPT_ONLY},
	{"kind", required_argument, NULL, OPT_KIND},
	{"limit", required_argument, NULL, OPT_LIMIT},
	{"newest", no_argument, NULL, OPT_NEWEST},
	{"records", no_argument, NULL, OPT_RECORDS},
	{"replace", no_argument, NULL, OPT_REPLACE},
	{"by", required_argument, NULL, OPT_BY},
	{"note", required_argument, NULL, OPT_NOTE},
	{"policy", required_argument, NULL, OPT_POLICY},
	{NULL, 0, NULL, 0},
};

static bool number(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *ret)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno || *end || end == text || text[0] == '-' || value < low || value > high) {
		fprintf(stderr, "orch-demo: --%s %s: a whole number from %llu to %llu is expected\n", option, text,
			(unsigned long long)low, (unsigned long long)high);
		return false;
	}
	*ret = value;
	return true;
}

static bool money(const char *text, double *ret)
{
	char *end;
	double value = strtod(text, &end);
	if (*end || end == text || !(value > 0 && value < 1e6)) {
		fprintf(stderr, "orch-demo: --max-usd %s: an amount in US dollars above 0 is expected, like 2.50\n",
			text);
		return false;
	}
	*ret = value;
	return true;
}

uint32_t role_number(const char *name, size_t length)
{
	static const char *const names[] = {"planner", "checker", "executor", "reviewer"};
	for (uint32_t i = 0; i < 4; i++)
		if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
			return i + 1;
	return 0;
}

/* "VALUE" for all roles, or "ROLE=VALUE". */
static bool per_role(const char *option, const char *text, struct role_text *ret)
{
	const char *equals = strchr(text, '=');
	if (!equals) {
		ret->all = text;
		return true;
	}
	uint32_t role = role_number(text, (size_t)(equals - text));
	if (!role) {
		fprintf(stderr,
			"orch-demo: --%s %s: no such role; roles are planner, checker, executor, reviewer\n", option,
			text);
		return false;
	}
	ret->role[role] = equals + 1;
	return true;
}

static bool one_of(const char *option, const char *text, const char *const *choices)
{
	for (size_t i = 0; choices[i]; i++)
		if (strcmp(text, choices[i]) == 0)
			return true;
	fprintf(stderr, "orch-demo: --%s %s: expected one of", option, text);
	for (size_t i = 0; choices[i]; i++)
		fprintf(stderr, " %s", choices[i]);
	fputc('\n', stderr);
	return false;
}

const char *option_outside(const struct options *o, const char *const *names)
{
	for (size_t i = 0; known[i].name; i++) {
		const char *const *name = names;
		if (!(o->given >> (known[i].val - OPT_IDEA_FILE) & 1))
			continue;
		while (*name && strcmp(*name, known[i].name) != 0)
			name++;
		if (!*name)
			return known[i].name;
	}
	return NULL;
}

bool options_parse(int argc, char **argv, struct options *o)
{
	static const char *const providers[] = {"synthetic", "anthropic", "openai", NULL};
	static const char *const isolations[] = {"process", "vm", NULL};
	static const char *const nets[] = {"none", NULL};
	static const char *const executors[] = {"mini", "claude", "codex", "command", NULL};
	uint64_t value = 0;

	memset(o, 0, sizeof(*o));
	bool mixed = strcmp(argv[0], "journal") == 0; /* options may stand between its operands */
	size_t operands = 0;
	optind = 1;
	for (;;) {
		int option = getopt_long(argc, argv, "+", known, NULL);
		if (option == -1) {
			/* Options may also follow the idea; what follows "--" is not looked at. */
			bool command_line = optind > 1 && strcmp(argv[optind - 1], "--") == 0;
			if (command_line || optind >= argc)
				break;
			if (o->idea && (!mixed || operands == sizeof(o->operands) / sizeof(o->operands[0])))
				break;
			if (o->idea)
				o->operands[operands++] = argv[optind++];
			else
				o->idea = argv[optind++];
			continue;
		}
		if (option >= OPT_IDEA_FILE)
			o->given |= UINT64_C(1) << (option - OPT_IDEA_FILE);
		switch (option) {
		case OPT_IDEA_FILE: o->idea_file = optarg; break;
		case OPT_REPO: o->repo = optarg; break;
		case OPT_BASE: o->base = optarg; break;
		case OPT_EXECUTOR: {
			const char *equals = strchr(optarg, '=');
			if (!one_of("executor", equals ? equals + 1 : optarg, executors) ||
			    !per_role("executor", optarg, &o->executor))
				return false;
			break;
		}
		case OPT_EXECUTOR_CMD: o->executor_cmd = optarg; break;
		case OPT_PROVIDER:
			if (!one_of("provider", optarg, providers))
				return false;
			o->provider = optarg;
			break;
		case OPT_BASE_URL: o->base_url = optarg; break;
		case OPT_MODEL:
			if (!per_role("model", optarg, &o->model))
				return false;
			break;
		case OPT_KEY_FILE: o->key_file = optarg; break;
		case OPT_MAX_USD:
			if (!money(optarg, &o->max_usd))
				return false;
			break;
		case OPT_MAX_TOKENS:
			if (!number("max-tokens", optarg, 1, UINT64_MAX / 2, &o->max_tokens))
				return false;
			break;
		case OPT_MAX_TIME:
			if (!number("max-time", optarg, 1, 31536000, &o->max_time_s))
				return false;
			break;
		case OPT_MAX_ATTEMPTS:
			if (!number("max-attempts", optarg, 1, 20, &value))
				return false;
			o->max_attempts = (uint32_t)value;
			break;
		case OPT_JOBS:
			if (!number("jobs", optarg, 1, 64, &value))
				return false;
			o->jobs = (uint32_t)value;
			break;
		case OPT_ISOLATION:
			if (!one_of("isolation", optarg, isolations))
				return false;
			o->isolation = optarg;
			break;
		case OPT_STATE: o->state = optarg; break;
		case OPT_ANSWERS: o->answers = optarg; break;
		case OPT_SCENARIO: o->scenario = optarg; break;
		case OPT_YES: o->yes = true; break;
		case OPT_JSON: o->json = true; break;
		case OPT_NET:
			if (!one_of("net", optarg, nets))
				return false;
			o->net = optarg;
			break;
		case OPT_GRANT:
			if (o->grant_count == sizeof(o->grants) / sizeof(o->grants[0]) || !strchr(optarg, '=')) {
				fprintf(stderr, "orch-demo: --grant %s: expected OPERATION=URL, at most 8 times\n",
					optarg);
				return false;
			}
			o->grants[o->grant_count++] = optarg;
			break;
		case OPT_CLAUDE: o->claude = optarg; break;
		case OPT_CODEX: o->codex = optarg; break;
		case OPT_NO_REVIEW: o->no_review = true; break;
		case OPT_CRASH_AT:
			if (!number("crash-at-record", optarg, 1, UINT32_MAX, &o->crash_at))
				return false;
			break;
		case OPT_PORT:
			if (!number("port", optarg, 1, 65535, &value))
				return false;
			o->port = (int)value;
			break;
		case OPT_JOURNAL: o->journal = optarg; break;
		case OPT_ANCHOR: o->anchor = optarg; break;
		case OPT_ONLY: o->only = optarg; break;
		case OPT_KIND: o->kind = optarg; break;
		case OPT_LIMIT:
			if (!number("limit", optarg, 1, UINT32_MAX, &value))
				return false;
			o->limit = (uint32_t)value;
			break;
		case OPT_NEWEST: o->newest = true; break;
		case OPT_RECORDS: o->records = true; break;
		case OPT_REPLACE: o->replace = true; break;
		case OPT_BY: o->by = optarg; break;
		case OPT_NOTE: o->note = optarg; break;
		case OPT_POLICY: o->policy = optarg; break;
		default:
			fprintf(stderr, "orch-demo: see \"orch-demo help\"\n");
			return false;
		}
	}
	while (mixed && optind < argc && operands < sizeof(o->operands) / sizeof(o->operands[0]))
		o->operands[operands++] = argv[optind++]; /* behind "--" */
	o->rest = (const char **)argv + optind;
	o->rest_count = argc - optind;
	return true;
}
