/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <orch.h>

#include "table.h"

#define COLUMNS 24
#define ROWS 128
#define AT_ONCE 6

struct entry {
	char text[48];
	unsigned rounds, seen, left, verdicts[5];
	bool hurt;
};

static struct row {
	char name[96];
	struct entry entries[COLUMNS];
} ends[ROWS], tries[ROWS];
static char titles[COLUMNS][64];
static bool refused[COLUMNS];
static unsigned columns;

static struct entry *find(struct row *rows, const char *name, unsigned column)
{
	for (unsigned i = 0; i < ROWS; i++) {
		if (!rows[i].name[0])
			snprintf(rows[i].name, sizeof(rows[i].name), "%s", name);
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i].entries[column];
	}
	return &rows[ROWS - 1].entries[column];
}

void table_column(unsigned column, const char *title)
{
	snprintf(titles[column], sizeof(titles[column]), "%s", title);
	if (column >= columns)
		columns = column + 1;
}

void table_refused(unsigned column)
{
	refused[column] = true;
}

const char *table_verdict(unsigned verdict)
{
	static const char *const names[] = {"none", "DEAD", "DEAD_UNREAPED", "SURVIVORS", "UNVERIFIABLE"};
	return names[verdict < 5 ? verdict : 0];
}

void table_end(unsigned column, const char *mode, unsigned verdict, unsigned seen, unsigned left)
{
	struct entry *entry = find(ends, mode, column);
	entry->rounds++;
	entry->seen += seen;
	entry->left += left;
	entry->verdicts[verdict < 5 ? verdict : 0]++;
}

void table_mark(unsigned column, const char *mode, const char *remark)
{
	(void)remark;
	find(ends, mode, column)->hurt = true;
}

void table_try(const char *name, unsigned column, const char *result, bool controlled)
{
	struct entry *entry = find(tries, name, column);
	snprintf(entry->text, sizeof(entry->text), "%s%s", result, controlled ? "" : " (nobody can)");
}

const char *table_try_result(const char *name, unsigned column)
{
	return find(tries, name, column)->text;
}

/* D, Z (unreaped), S(urvivors), U(nverifiable), - (none): one letter for each kind that came. */
static void end_text(const struct entry *entry, char *text, size_t size)
{
	static const char letters[] = "-DZSU";
	char verdicts[8];
	unsigned length = 0;
	for (unsigned i = 0; i < 5; i++)
		if (entry->verdicts[i])
			verdicts[length++] = letters[i];
	verdicts[length] = '\0';
	snprintf(text, size, "%s %u>%u%s", verdicts, entry->seen, entry->left, entry->hurt ? " h" : "");
}

static void print_rows(const struct row *rows, bool verdicts, const unsigned *shown, unsigned count)
{
	printf("\n%-46s", verdicts ? "load" : "attempt");
	for (unsigned i = 0; i < count; i++)
		printf(" %-23s", titles[shown[i]]);
	printf("\n");
	for (unsigned i = 0; i < ROWS && rows[i].name[0]; i++) {
		bool any = false;
		char line[512];
		int length = snprintf(line, sizeof(line), "%-46s", rows[i].name);
		for (unsigned j = 0; j < count; j++) {
			const struct entry *entry = &rows[i].entries[shown[j]];
			char text[64] = ".";
			if (verdicts && entry->rounds)
				end_text(entry, text, sizeof(text));
			else if (!verdicts && entry->text[0])
				snprintf(text, sizeof(text), "%s", entry->text);
			any |= strcmp(text, ".") != 0;
			length += snprintf(line + length, sizeof(line) - (size_t)length, " %-23s", text);
		}
		if (any)
			printf("%s\n", line);
	}
}

static void print_columns(const struct row *rows, bool verdicts)
{
	unsigned shown[COLUMNS], count = 0;
	for (unsigned i = 0; i < columns; i++)
		if (!refused[i])
			shown[count++] = i;
	for (unsigned from = 0; from < count; from += AT_ONCE)
		print_rows(rows, verdicts, shown + from, count - from < AT_ONCE ? count - from : AT_ONCE);
}

void table_print(void)
{
	printf("\nEnds: verdict (D dead, Z unreaped, S survivors, U unverifiable, - none), processes seen before the stop > "
	       "left after the certificate; h: the helper was hurt.\n");
	print_columns(ends, true);
	printf("\nAttempts: allowed, or the refusal; \"nobody can\": this user can not do it to a process of his own.\n");
	print_columns(tries, false);
	for (unsigned i = 0; i < columns; i++)
		if (refused[i])
			printf("\nnot run, see above: %s", titles[i]);
	printf("\n");
	fflush(stdout);
}
