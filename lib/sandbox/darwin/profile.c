/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "profile.h"

/* --- what every profile has ---------------------------------------------------------------- */

/*
 * Nothing of the host: no file but devices that hold nothing, no service, no other process, no preference. Of the kernel's
 * variables only what a C library asks for at start; "kern.procargs2" would give away everybody's environment.
 */
static const char base[] =
	"(version 1)\n"
	"(deny default)\n"
	"(allow process-fork)\n"
	"(allow signal (target same-sandbox))\n"
	"(allow process-info* (target same-sandbox))\n"
	"(allow file-read* file-write-data\n"
	"\t(literal \"/dev/null\")\n"
	"\t(literal \"/dev/zero\"))\n"
	"(allow file-read*\n"
	"\t(literal \"/dev/random\")\n"
	"\t(literal \"/dev/urandom\"))\n"
	"(allow sysctl-read\n"
	"\t(sysctl-name \"hw.activecpu\")\n"
	"\t(sysctl-name \"hw.byteorder\")\n"
	"\t(sysctl-name \"hw.cachelinesize\")\n"
	"\t(sysctl-name \"hw.cputype\")\n"
	"\t(sysctl-name \"hw.logicalcpu\")\n"
	"\t(sysctl-name \"hw.logicalcpu_max\")\n"
	"\t(sysctl-name \"hw.machine\")\n"
	"\t(sysctl-name \"hw.memsize\")\n"
	"\t(sysctl-name \"hw.ncpu\")\n"
	"\t(sysctl-name \"hw.pagesize\")\n"
	"\t(sysctl-name \"hw.pagesize_compat\")\n"
	"\t(sysctl-name \"hw.physicalcpu\")\n"
	"\t(sysctl-name \"kern.argmax\")\n"
	"\t(sysctl-name \"kern.maxfilesperproc\")\n"
	"\t(sysctl-name \"kern.osproductversion\")\n"
	"\t(sysctl-name \"kern.osrelease\")\n"
	"\t(sysctl-name \"kern.ostype\")\n"
	"\t(sysctl-name \"kern.osversion\")\n"
	"\t(sysctl-name \"kern.usrstack64\")\n"
	"\t(sysctl-name \"kern.version\"))\n";

/*
 * ORCH_ROOT_TOOLS: programs and libraries, read and run. The shared libraries' cache is on a volume of its own since macOS
 * 13; the folder "/" itself has to be readable for path look-up since macOS 26.
 */
static const char tools[] =
	"(allow file-read-data (literal \"/\"))\n"
	"(allow file-read-metadata\n"
	"\t(literal \"/\")\n"
	"\t(literal \"/etc\")\n"
	"\t(literal \"/private\")\n"
	"\t(literal \"/private/etc\")\n"
	"\t(literal \"/private/var\")\n"
	"\t(literal \"/var\"))\n"
	"(allow file-read* process-exec* file-map-executable\n"
	"\t(subpath \"/usr\")\n"
	"\t(subpath \"/bin\")\n"
	"\t(subpath \"/sbin\")\n"
	"\t(subpath \"/Library/Apple/usr\")\n"
	"\t(subpath \"/Library/Developer/CommandLineTools\")\n"
	"\t(subpath \"/System/Library\")\n"
	"\t(subpath \"/System/Cryptexes\")\n"
	"\t(subpath \"/System/Volumes/Preboot/Cryptexes\"))\n"
	"(allow file-read*\n"
	"\t(literal \"/private/etc/group\")\n"
	"\t(literal \"/private/etc/hosts\")\n"
	"\t(literal \"/private/etc/passwd\")\n"
	"\t(literal \"/private/etc/shells\")\n"
	"\t(subpath \"/private/var/db/dyld\"))\n"
	"(allow file-ioctl (literal \"/dev/dtracehelper\"))\n"
	"(allow file-read* file-write-data (literal \"/dev/dtracehelper\"))\n";

/* --- strings ------------------------------------------------------------------------------- */

/* Length of the UTF-8 sequence at `text`, 0: none (RFC 3629: no overlong form, no surrogate, nothing past 10FFFF). */
static size_t utf8_length(const unsigned char *text)
{
	size_t length = text[0] < 0x80	 ? 1
			: text[0] < 0xc2 ? 0
			: text[0] < 0xe0 ? 2
			: text[0] < 0xf0 ? 3
			: text[0] < 0xf5 ? 4
					 : 0;

	for (size_t i = 1; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return length;
}

static bool parts_are_clean(const char *path)
{
	if (path[0] != '/')
		return false;
	if (path[1] == '\0')
		return true;
	for (const char *part = path; *part;) {
		size_t length = strcspn(++part, "/");

		if (length == 0 || (length <= 2 && strncmp(part, "..", length) == 0))
			return false;
		part += length;
	}
	return true;
}

static bool can_be_written(const char *path)
{
	const unsigned char *text = (const unsigned char *)path;

	if (!parts_are_clean(path))
		return false;
	while (*text) {
		size_t length = utf8_length(text);

		if (length == 0 || *text == 0x7f || (*text < 0x20 && !strchr("\n\t\r", *text)))
			return false;
		text += length;
	}
	return true;
}

/* A string of Scheme. Only what can_be_written() lets through; a raw newline would be one too, but is hard to read. */
static void add_string(struct orch_buf *text, const char *value, size_t length)
{
	orch_buf_puts(text, "\"");
	for (size_t i = 0; i < length; i++)
		switch (value[i]) {
		case '"':
		case '\\':
			orch_buf_printf(text, "\\%c", value[i]);
			break;
		case '\n':
			orch_buf_puts(text, "\\n");
			break;
		case '\t':
			orch_buf_puts(text, "\\t");
			break;
		case '\r':
			orch_buf_puts(text, "\\r");
			break;
		default:
			orch_buf_add(text, &value[i], 1);
		}
	orch_buf_puts(text, "\"");
}

/* --- paths --------------------------------------------------------------------------------- */

static size_t depth(const char *path)
{
	size_t count = 0;

	for (; *path; path++)
		count += *path == '/' && path[1] != '\0';
	return count;
}

static int by_depth(const void *a, const void *b)
{
	const struct profile_path *one = *(const struct profile_path *const *)a;
	const struct profile_path *other = *(const struct profile_path *const *)b;
	size_t one_depth = depth(one->path), other_depth = depth(other->path);

	if (one_depth != other_depth)
		return one_depth > other_depth ? 1 : -1;
	/* Of two rules for the same path the later one counts, as it was given: qsort() keeps no order. */
	return one < other ? -1 : one > other;
}

static void add_rule(struct orch_buf *text, const char *rule, const char *path)
{
	orch_buf_printf(text, "(%s (subpath ", rule);
	add_string(text, path, strlen(path));
	orch_buf_puts(text, "))\n");
}

/* Whoever may use a path may see that the folders above it are there: getcwd() and realpath() ask for no more. */
static void add_ancestors(struct orch_buf *text, const char *path)
{
	orch_buf_puts(text, "(allow file-read-metadata\n\t(literal \"/\")");
	for (size_t i = 1; path[i]; i++)
		if (path[i] == '/') {
			orch_buf_puts(text, "\n\t(literal ");
			add_string(text, path, i);
			orch_buf_puts(text, ")");
		}
	orch_buf_puts(text, ")\n");
}

/* Everything is taken away before the path's own rights are given, so that a deeper path may have fewer than one above. */
static void add_path(struct orch_buf *text, const struct profile_path *path)
{
	uint32_t access = path->access;

	if (access & ORCH_PATH_OWN)
		access |= ORCH_PATH_READ | ORCH_PATH_WRITE | ORCH_PATH_EXEC;
	add_rule(text, "deny file-read* file-write* process-exec* file-map-executable", path->path);
	if (access & ORCH_PATH_READ)
		add_rule(text, "allow file-read*", path->path);
	if (access & ORCH_PATH_WRITE)
		add_rule(text, "allow file-write*", path->path);
	if (access & ORCH_PATH_EXEC)
		add_rule(text, "allow process-exec* file-map-executable", path->path);
}

int32_t orch_profile_write(const struct profile_policy *policy, struct orch_buf *text, size_t *ret_path)
{
	for (size_t i = 0; i < policy->path_count; i++)
		if (!can_be_written(policy->paths[i].path)) {
			*ret_path = i;
			return ORCH_EINVAL;
		}
	_cleanup_free_ const struct profile_path **sorted = calloc(policy->path_count + 1, sizeof(*sorted));

	if (!sorted) {
		text->failed = true;
		return 0;
	}
	for (size_t i = 0; i < policy->path_count; i++)
		sorted[i] = &policy->paths[i];
	qsort(sorted, policy->path_count, sizeof(*sorted), by_depth);
	orch_buf_puts(text, base);
	if (policy->root == ORCH_ROOT_TOOLS)
		orch_buf_puts(text, tools);
	/* First, so that a path's own rules come after what others need of it. */
	for (size_t i = 0; i < policy->path_count; i++)
		if (sorted[i]->access)
			add_ancestors(text, sorted[i]->path);
	for (size_t i = 0; i < policy->path_count; i++)
		add_path(text, sorted[i]);
	if (policy->broker_port)
		orch_buf_printf(text, "(allow network-outbound (remote tcp \"localhost:%u\"))\n", policy->broker_port);
	return 0;
}

/* --- gaps ---------------------------------------------------------------------------------- */

static void add_gap(struct orch_buf *text, bool condition, const char *gap)
{
	if (!condition)
		return;
	if (text->length)
		orch_buf_puts(text, "; ");
	orch_buf_puts(text, gap);
}

void orch_profile_gaps(const struct profile_wishes *wishes, struct orch_buf *text)
{
	add_gap(text, wishes->least_rung > ORCH_RUNG_SUBREAPER,
		"least_rung: no PID namespaces (accept ORCH_RUNG_SUBREAPER)");
	add_gap(text, wishes->landlock == ORCH_PROTECT_REQUIRED,
		"protection landlock: Seatbelt stands alone (set it to degradable)");
	add_gap(text, wishes->seccomp == ORCH_PROTECT_REQUIRED,
		"protection seccomp: system calls are not filtered (set it to degradable)");
	add_gap(text, wishes->memory == ORCH_PROTECT_REQUIRED && wishes->max_memory_mib > 0,
		"protection memory: nothing caps it (set it to degradable)");
	add_gap(text, wishes->net == ORCH_NET_BROKER,
		"ORCH_NET_BROKER: without a network namespace every program of this host could pose as this sandbox "
		"(use ORCH_NET_NONE)");
	if (wishes->moved) {
		add_gap(text, true, "inner path ");
		orch_buf_printf(text, "%s: files can not be shown at another place (give the host path)", wishes->moved);
	}
	add_gap(text, wishes->own_as_root,
		"ORCH_PATH_OWN as root: files are not handed over here (change their owner to orch_sandbox_host_uid() and "
		"give read, write, execute)");
}
