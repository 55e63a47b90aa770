/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <orch/version.h>

#include "bench.h"

/* --- rows --- */

static int by_size(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

double bench_median(const double *values, unsigned count)
{
	double *sorted = count ? malloc(count * sizeof(*sorted)) : NULL;
	if (!sorted)
		return NAN;
	memcpy(sorted, values, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_size);
	double median = count % 2 ? sorted[count / 2]
				  : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
	free(sorted);
	return median;
}

static void spread(const double *values, unsigned count, double *ret_low, double *ret_high)
{
	*ret_low = *ret_high = values[0];
	for (unsigned i = 1; i < count; i++) {
		*ret_low = fmin(*ret_low, values[i]);
		*ret_high = fmax(*ret_high, values[i]);
	}
}

static struct bench_result *next(struct bench_report *report, const char *name, const char *unit)
{
	if (report->count == BENCH_MAX_RESULTS)
		abort();
	struct bench_result *result = &report->results[report->count++];
	*result = (struct bench_result){.name = name, .unit = unit};
	return result;
}

struct bench_result *bench_add(struct bench_report *report, const char *name, const char *unit,
			       const struct bench_series *own, const char *peer_name,
			       const struct bench_series *peer)
{
	struct bench_result *result = next(report, name, unit);
	result->pairs = own->count;
	result->value = bench_median(own->values, own->count);
	spread(own->values, own->count, &result->low, &result->high);
	result->batch = bench_median(own->batch, own->count);
	result->sync_us = bench_median(own->sync_us, own->count);
	if (peer) {
		double ratios[BENCH_MAX_PAIRS];
		for (unsigned i = 0; i < own->count; i++)
			ratios[i] = own->values[i] / peer->values[i];
		result->peer = peer_name;
		result->against = bench_median(peer->values, peer->count);
		result->ratio = bench_median(ratios, own->count);
		spread(ratios, own->count, &result->ratio_low, &result->ratio_high);
	}
	return result;
}

struct bench_result *bench_add_missing(struct bench_report *report, const char *name,
				       const char *unit, const char *why)
{
	struct bench_result *result = next(report, name, unit);
	result->missing = why;
	return result;
}

void bench_goal(struct bench_result *result, enum bench_goal kind, double goal)
{
	result->goal_kind = kind;
	result->goal = goal;
}

void bench_note(struct bench_report *report, const char *text)
{
	if (report->notes_count < sizeof(report->notes) / sizeof(report->notes[0]))
		report->notes[report->notes_count++] = text;
}

static bool holds(const struct bench_result *result)
{
	switch (result->goal_kind) {
	case BENCH_GOAL_RATIO_AT_LEAST:
		return result->ratio >= result->goal;
	case BENCH_GOAL_RATIO_AT_MOST:
		return result->ratio <= result->goal;
	case BENCH_GOAL_VALUE_AT_MOST:
		return result->value <= result->goal;
	default:
		return false;
	}
}

/* --- the machine --- */

struct machine {
	struct utsname system;
	char cpu[128], file_system[64];
	long cores;
	double memory_mib, load;
};

/* The file system by the device's number in mountinfo: proc_pid_mountinfo(5). */
static void read_file_system(const char *dir, char *text, size_t size)
{
	struct stat status;
	unsigned found_major, found_minor;
	snprintf(text, size, "unknown");
	FILE *file = stat(dir, &status) == 0 ? fopen("/proc/self/mountinfo", "re") : NULL;
	if (!file)
		return;
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, file) > 0) {
		const char *type = strstr(line, " - ");
		if (type &&
		    sscanf(line, "%*u %*u %u:%u", &found_major, &found_minor) == 2 &&
		    makedev(found_major, found_minor) == status.st_dev)
			snprintf(text, size, "%.*s", (int)strcspn(type + 3, " \n"), type + 3);
	}
	free(line);
	fclose(file);
}

static void read_cpu(char *text, size_t size)
{
	snprintf(text, size, "unknown");
	FILE *file = fopen("/proc/cpuinfo", "re");
	if (!file)
		return;
	char line[256];
	while (fgets(line, sizeof(line), file)) {
		const char *name = strchr(line, ':');
		if (strncmp(line, "model name", 10) == 0 && name && name[1]) {
			snprintf(text, size, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
			break;
		}
	}
	fclose(file);
}

static void read_machine(const char *dir, struct machine *machine)
{
	memset(machine, 0, sizeof(*machine));
	uname(&machine->system);
	read_cpu(machine->cpu, sizeof(machine->cpu));
	read_file_system(dir, machine->file_system, sizeof(machine->file_system));
	machine->cores = sysconf(_SC_NPROCESSORS_ONLN);
	machine->memory_mib =
		(double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 1048576;
	if (getloadavg(&machine->load, 1) != 1)
		machine->load = -1;
}

/* --- JSON --- */

static void json_text(const char *text)
{
	if (!text) {
		fputs("null", stdout);
		return;
	}
	putchar('"');
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			printf("\\%c", *c);
		else if (*c < 0x20 || *c > 0x7e) /* paths are bytes: each as its number */
			printf("\\u%04x", *c);
		else
			putchar(*c);
	}
	putchar('"');
}

static void json_pair(const char *before, const char *text)
{
	fputs(before, stdout);
	json_text(text);
}

static void json_number(const char *before, bool known, double number)
{
	fputs(before, stdout);
	if (known && isfinite(number))
		printf("%.12g", number); /* so that `holds` can be computed again */
	else
		fputs("null", stdout);
}

static void json_goal(const struct bench_result *result)
{
	if (result->goal_kind == BENCH_GOAL_NONE) {
		fputs(",\"goal\":null,\"holds\":null", stdout);
		return;
	}
	printf(",\"goal\":{\"of\":\"%s\",\"%s\":%g},\"holds\":%s",
	       result->goal_kind == BENCH_GOAL_VALUE_AT_MOST ? "value" : "ratio",
	       result->goal_kind == BENCH_GOAL_RATIO_AT_LEAST ? "at_least" : "at_most",
	       result->goal,
	       result->missing   ? "null"
	       : holds(result) ? "true"
			       : "false");
}

static void json_row(const struct bench_result *result)
{
	bool known = !result->missing, paired = known && result->peer;
	json_pair("{\"name\":", result->name);
	json_number(",\"value\":", known, result->value);
	json_pair(",\"unit\":", result->unit);
	json_number(",\"against\":", paired, result->against);
	json_number(",\"ratio\":", paired, result->ratio);
	json_goal(result);
	json_pair(",\"peer\":", result->peer);
	json_number(",\"low\":", known, result->low);
	json_number(",\"high\":", known, result->high);
	json_number(",\"ratio_low\":", paired, result->ratio_low);
	json_number(",\"ratio_high\":", paired, result->ratio_high);
	printf(",\"pairs\":%u", result->pairs);
	json_number(",\"records_per_sync\":", result->batch > 0, result->batch);
	json_number(",\"sync_us\":", result->sync_us > 0, result->sync_us);
	json_pair(",\"missing\":", result->missing);
	putchar('}');
}

static void print_json(const struct bench_report *report, const struct bench_options *options,
		       const struct machine *machine)
{
	json_pair("{\"what\":", report->what);
	json_pair(",\"version\":", ORCH_VERSION_STRING);
	json_pair(",\"machine\":{\"system\":", machine->system.sysname);
	json_pair(",\"release\":", machine->system.release);
	json_pair(",\"architecture\":", machine->system.machine);
	json_pair(",\"cpu\":", machine->cpu);
	printf(",\"cores\":%ld,\"memory_mib\":%.0f,\"load\":%.2f", machine->cores,
	       machine->memory_mib, machine->load);
	json_pair(",\"dir\":", options->dir);
	json_pair(",\"file_system\":", machine->file_system);
	printf("},\"options\":{\"seconds\":%g,\"pairs\":%u,\"actions\":%llu,\"processes\":%u,"
	       "\"spawns\":%llu,\"dirty_mib\":%u,\"files\":%u},\"results\":[",
	       options->seconds, options->pairs, (unsigned long long)options->actions,
	       options->processes, (unsigned long long)options->spawns, options->dirty_mib, options->files);
	for (unsigned i = 0; i < report->count; i++) {
		if (i)
			putchar(',');
		json_row(&report->results[i]);
	}
	fputs("],\"notes\":[", stdout);
	for (unsigned i = 0; i < report->notes_count; i++)
		json_pair(i ? "," : "", report->notes[i]);
	puts("]}");
}

/* --- the table --- */

static void print_row(const struct bench_result *result)
{
	if (result->missing) {
		printf("%-22s %s\n", result->name, result->missing);
		return;
	}
	char value[32], range[40], other[64] = "", ratio[48] = "", goal[48] = "";
	int digits = result->value >= 100 ? 0 : 2;
	snprintf(value, sizeof(value), "%.*f %s", digits, result->value, result->unit);
	snprintf(range, sizeof(range), "%.*f..%.*f", digits, result->low, digits, result->high);
	if (result->peer) {
		snprintf(other, sizeof(other), "%.*f %s", result->against >= 100 ? 0 : 2,
			 result->against, result->peer);
		snprintf(ratio, sizeof(ratio), "%.2f (%.2f..%.2f)", result->ratio,
			 result->ratio_low, result->ratio_high);
	}
	if (result->goal_kind != BENCH_GOAL_NONE)
		snprintf(goal, sizeof(goal), "%s %g: %s",
			 result->goal_kind == BENCH_GOAL_RATIO_AT_LEAST ? "at least" : "at most",
			 result->goal, holds(result) ? "holds" : "DOES NOT HOLD");
	printf("%-22s %-22s %-19s %-30s %-20s %s", result->name, value, range, other, ratio, goal);
	if (result->batch > 0)
		printf("  [%.2f records per sync of %.0f us]", result->batch, result->sync_us);
	putchar('\n');
}

static void print_table(const struct bench_report *report, const struct bench_options *options,
			const struct machine *machine)
{
	printf("%s: liborch %s, %s %s %s, %ld x %s, load %.2f, %s on %s\n\n", report->what,
	       ORCH_VERSION_STRING, machine->system.sysname, machine->system.release,
	       machine->system.machine, machine->cores, machine->cpu, machine->load, options->dir,
	       machine->file_system);
	printf("%-22s %-22s %-19s %-30s %-20s %s\n", "NAME", "MEDIAN", "SPREAD", "AGAINST", "RATIO",
	       "GOAL");
	for (unsigned i = 0; i < report->count; i++)
		print_row(&report->results[i]);
	if (report->notes_count)
		putchar('\n');
	for (unsigned i = 0; i < report->notes_count; i++)
		printf("%s\n", report->notes[i]);
}

void bench_print(const struct bench_report *report, const struct bench_options *options)
{
	struct machine machine;
	read_machine(options->dir, &machine);
	if (options->json)
		print_json(report, options, &machine);
	else
		print_table(report, options, &machine);
}
