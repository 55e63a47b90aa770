/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "demo.h"

static const char *const states[] = {"", "enforced", "partial", "absent"};
static const char *const probes[] = {"", "passed", "failed", "not_run"};

static char *first_line(const char *path)
{
	size_t length = 0;
	FILE *file = fopen(path, "re");
	char *line = NULL;
	if (file && getline(&line, &length, file) > 0)
		line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
	return line;
}

static json_t *host_facts(orch_ctx *ctx)
{
	struct utsname name;
	uname(&name);
	char *namespaces = first_line("/proc/sys/user/max_user_namespaces");
	/* landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION): landlock(7) */
	long landlock = syscall(444, NULL, 0, 1);
	json_t *host = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:s}", "system", name.sysname, "kernel", name.release,
				 "machine", name.machine, "liborch", orch_version(), "uid", (int)getuid(), "landlock_abi",
				 (json_int_t)(landlock < 0 ? 0 : landlock), "max_user_namespaces",
				 namespaces ? namespaces : "unknown");
	free(namespaces);

	static const char *const rungs[] = {"none", "subreaper", "cgroup", "PID namespace",
					    "cgroup + PID namespace"};
	orch_scope *scope = NULL;
	orch_error *error = NULL;
	if (orch_scope_new(ctx, NULL, &scope, &error) == 0 && orch_scope_start_wait(scope, 10000, &error) == 0) {
		json_object_set_new(host, "scope_rung", json_string(rungs[orch_scope_rung(scope)]));
		orch_death *death = NULL;
		if (orch_scope_stop_wait(scope, NULL, &death, NULL) == 0)
			json_object_set_new(host, "scope_death", json_string(orch_death_verdict_name(death)));
		orch_death_unref(death);
	} else {
		json_object_set_new(host, "scope_rung", json_string("none"));
		json_object_set_new(host, "scope_error", json_string(orch_error_message(error)));
	}
	orch_error_free(error);
	orch_scope_unref(scope);
	return host;
}

static json_t *channel_rows(const orch_sandbox_report *report, bool *ret_good)
{
	json_t *rows = json_array();
	for (uint32_t i = 0; i < orch_sandbox_report_count(report); i++) {
		const char *channel, *mechanism, *detail;
		uint32_t state, probe, control;
		if (orch_sandbox_report_row(report, i, &channel, &state, &mechanism, &probe, &control, &detail) < 0)
			continue;
		if (probe == ORCH_PROBE_FAILED || control == ORCH_PROBE_FAILED)
			*ret_good = false;
		json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "channel", channel, "state", states[state],
					"mechanism", mechanism, "probe", probes[probe], "control", probes[control],
					"detail", detail);
		const char *remedy = orch_sandbox_report_remedy(report, i);
		if (remedy)
			json_object_set_new(row, "remedy", json_string(remedy));
		json_array_append_new(rows, row);
	}
	return rows;
}

int command_doctor(const struct options *options)
{
	orch_ctx *ctx = demo_ctx();
	if (!ctx)
		return EXIT_ERROR;
	orch_sandbox_report *report = NULL;
	orch_error *error = NULL;
	int exit_code = EXIT_FINE;
	bool good = true;
	json_t *host = host_facts(ctx);
	json_t *result = json_pack("{s:o}", "host", host);

	if (orch_sandbox_report_run(ctx, NULL, 0, &report, &error) < 0) {
		json_object_set_new(result, "channels", json_array());
		json_object_set_new(result, "error", json_string(orch_error_message(error)));
		exit_code = EXIT_UNENFORCEABLE;
	} else {
		json_object_set_new(result, "channels", channel_rows(report, &good));
		exit_code = good ? EXIT_FINE : EXIT_UNENFORCEABLE;
	}
	if (options->json) {
		char *text = json_dumps(result, JSON_INDENT(2));
		puts(text ? text : "{}");
		free(text);
	} else {
		printf("%s %s, %s; liborch %s; uid %d\n", json_string_value(json_object_get(host, "system")),
		       json_string_value(json_object_get(host, "kernel")),
		       json_string_value(json_object_get(host, "machine")), orch_version(), (int)getuid());
		printf("scopes: %s\n", json_string_value(json_object_get(host, "scope_rung")));
		const char *why = json_string_value(json_object_get(host, "scope_error"));
		if (why)
			printf("        %s\n", why);
		if (report)
			printf("\n%s\n%s\n", orch_sandbox_report_text(report),
			       good ? "Every probe was refused inside, and the same attempt worked outside."
				    : "At least one protection does not hold on this host: what is missing, and what to do, "
				      "is below the rows.");
		else
			printf("\nno sandbox on this host: %s\n", orch_error_message(error));
	}
	json_decref(result);
	orch_error_free(error);
	orch_sandbox_report_unref(report);
	orch_ctx_unref(ctx);
	return exit_code;
}
