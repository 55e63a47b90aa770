/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "demo.h"

static const char usage[] =
	"usage: orch-demo COMMAND [OPTIONS]\n"
	"\n"
	"  exec -- CMD...                run CMD in a sandbox, stop it, print the death certificate\n"
	"      --net none --policy FILE --json\n"
	"  doctor                        what this host really enforces, proved by live probes\n"
	"  tour                          what is promised, tried here: escapes, a daemon, a liar, a coordinator killed\n"
	"  run [IDEA]                    from an idea to a verified product\n"
	"      --idea-file F --repo DIR [--base REV] --executor [ROLE=]mini|claude|codex|command\n"
	"      --executor-cmd CMD --provider synthetic|anthropic|openai --base-url URL --model [ROLE=]NAME\n"
	"      --key-file F --max-usd N --max-tokens N --max-time S --max-attempts N --jobs N\n"
	"      --isolation process --state DIR --answers F --scenario NAME|DIR --grant OP=URL\n"
	"      --claude PATH --codex PATH --no-review --yes --json\n"
	"  resume                        go on with a run that was killed or that waits for answers\n"
	"  status | answer | stop        talk to the running instance, or read its journal\n"
	"  report                        print the report of a run, and where it is\n"
	"  serve [--port N]              show the delivered product to a browser, from a fresh sandbox\n"
	"  journal                       what is recorded, of a run or with --journal FILE [--anchor FILE] of any program\n"
	"      list [--only STATE,...] [--kind PREFIX] [--limit N] [--newest]\n"
	"      show KEY | verify | export [--records] | backup FILE | restore FILE [--replace]\n"
	"      decide KEY applied|not-applied|abandon --by NAME [--note TEXT]\n"
	"\n"
	"The commands after \"run\" take --state DIR (default: the newest run) and --json.\n"
	"Roles: planner checker executor reviewer. Exit codes: see orch-demo(1).\n";

static int exit_code_of(int32_t code)
{
	switch (code) {
	case ORCH_EUNENFORCEABLE: return EXIT_UNENFORCEABLE;
	case ORCH_ELOCKED:
	case ORCH_EBUSY: return EXIT_BUSY;
	case ORCH_ENOENT: return EXIT_NOTHING;
	case ORCH_EINVAL:
	case ORCH_EPARSE:
	case ORCH_EEXIST: return EXIT_USAGE;
	case ORCH_EUPSTREAM: return EXIT_PROVIDER;
	case ORCH_ENEEDHUMAN: return EXIT_NEEDS_HUMAN;
	default: return EXIT_ERROR;
	}
}

int fail(const char *what, orch_error *error)
{
	int code = exit_code_of(orch_error_code(error));
	fprintf(stderr, "orch-demo: %s: %s [%s]\n", what, orch_error_message(error),
		orch_code_name(orch_error_code(error)));
	orch_error_free(error);
	return code;
}

int fail_text(int exit_code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("orch-demo: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	return exit_code;
}

char *format_text(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *text = NULL;
	if (vasprintf(&text, format, arguments) < 0)
		abort();
	va_end(arguments);
	return text;
}

char *read_file(const char *path, size_t limit, size_t *ret_length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	struct stat status;
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || (uint64_t)status.st_size > limit) {
		close(fd);
		errno = EFBIG;
		return NULL;
	}
	char *text = calloc(1, (size_t)status.st_size + 1);
	size_t length = 0;
	ssize_t got = 1;
	while (text && length < (size_t)status.st_size &&
	       (got = read(fd, text + length, (size_t)status.st_size - length)) > 0)
		length += (size_t)got;
	close(fd);
	if (got < 0) {
		free(text);
		return NULL;
	}
	if (ret_length)
		*ret_length = length;
	return text;
}

bool write_file(const char *path, const char *text)
{
	char *temporary = format_text("%s.new", path);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t length = strlen(text), done = 0;
	while (fd >= 0 && done < length) {
		ssize_t put = write(fd, text + done, length - done);
		if (put <= 0)
			break;
		done += (size_t)put;
	}
	bool good = fd >= 0 && done == length && fsync(fd) == 0;
	if (fd >= 0)
		close(fd);
	good = good && rename(temporary, path) == 0;
	if (!good)
		unlink(temporary);
	free(temporary);
	return good;
}

char *find_beside(const char *name)
{
	char self[4096];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (length <= 0)
		return NULL;
	self[length] = '\0';
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	char *path = format_text("%s/%s", self, name);
	if (access(path, F_OK) == 0)
		return path;
	free(path);
	return NULL;
}

char *data_path(const char *in_source_tree, const char *installed)
{
	/* In the build tree the provider's folder is next to ours. */
	char *neighbour = find_beside("../synth-provider/synth-provider");
	/* Installed, possibly under another prefix than the one it was configured for. */
	char *beside = format_text("../" DEMO_DATADIR "/liborch/%s", installed);
	char *path = neighbour ? format_text("%s/%s", DEMO_SOURCE_DIR, in_source_tree) : find_beside(beside);
	if (!path)
		path = format_text("%s/%s", DEMO_DATA_DIR, installed);
	free(neighbour), free(beside);
	return path;
}

static void log_line(void *userdata, uint32_t level, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s%s\n", level <= ORCH_LOG_WARNING ? "orch-demo: " : "", message);
}

orch_ctx *demo_ctx(void)
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	orch_error *error = NULL;
	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.log = log_line;
	opts.log_level = ORCH_LOG_WARNING;
	if (orch_ctx_new(&opts, &ctx, &error) < 0) {
		fail("the event loop", error);
		return NULL;
	}
	return ctx;
}

int main(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		fputs(usage, argc < 2 ? stderr : stdout);
		return argc < 2 ? EXIT_USAGE : EXIT_FINE;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("orch-demo, liborch %s\n", orch_version());
		return EXIT_FINE;
	}
	/* A closed pipe is an error of write(2) here, not the end of the run. */
	signal(SIGPIPE, SIG_IGN);

	const char *command = argv[1];
	struct options options;
	if (!options_parse(argc - 1, argv + 1, &options))
		return EXIT_USAGE;
	if (strcmp(command, "exec") == 0)
		return command_exec(&options);
	if (options.policy)
		return fail_text(EXIT_USAGE, "%s: --policy is an option of exec", command);
	if (strcmp(command, "doctor") == 0)
		return command_doctor(&options);
	if (strcmp(command, "tour") == 0)
		return command_tour(&options);
	if (strcmp(command, "run") == 0)
		return command_run(&options, false);
	if (strcmp(command, "resume") == 0)
		return command_run(&options, true);
	if (strcmp(command, "status") == 0)
		return command_status(&options);
	if (strcmp(command, "answer") == 0)
		return command_answer(&options);
	if (strcmp(command, "stop") == 0)
		return command_stop(&options);
	if (strcmp(command, "report") == 0)
		return command_report(&options);
	if (strcmp(command, "serve") == 0)
		return command_serve(&options);
	if (strcmp(command, "journal") == 0)
		return command_journal(&options);
	fprintf(stderr, "orch-demo: \"%s\" is no command\n\n%s", command, usage);
	return EXIT_USAGE;
}
