/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <orch/error.h>

#include "../sandbox/spec.h"
#include "helper.h"

/* Slack for entries of the confinement's own environment. */
#define ENVIRONMENT_MORE 256

static const char *const minimal_environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin",
						  "LANG=C.UTF-8", NULL};

struct strings {
	const char *cwd;
	char **argv;
	char **envp;
};

static _Noreturn void give_up(const struct program *program, const struct setup_error *error)
{
	ssize_t ignored = write(program->error_fd, error, sizeof(*error));
	(void)ignored;
	_exit(127);
}

static _Noreturn void give_up_sys(const struct program *program, const char *step, const char *what)
{
	struct setup_error error;
	setup_fail(&error, ORCH_ESPAWN, errno, step, "%s", what);
	give_up(program, &error);
}

/* The memfd holds cwd, argv and envp one after the other, each with its NUL. */
static void read_strings(const struct program *program, struct strings *strings)
{
	const struct wire_message *message = &program->request->message;
	int fd = program->request->fds[0];
	uint64_t argc = message->number[0], envc = message->number[1];
	struct stat status;
	if (fstat(fd, &status) < 0 || status.st_size <= 0 ||
	    status.st_size > WIRE_STRINGS_MAX + PATH_MAX || argc > (uint64_t)status.st_size ||
	    envc > (uint64_t)status.st_size)
		give_up_sys(program, "strings", "the program's arguments could not be read");
	size_t size = (size_t)status.st_size;
	char *text = malloc(size + 1);
	strings->argv = calloc(argc + 1, sizeof(char *));
	strings->envp = calloc(envc + ENVIRONMENT_MORE, sizeof(char *));
	if (!text || !strings->argv || !strings->envp || pread(fd, text, size, 0) != (ssize_t)size)
		give_up_sys(program, "strings", "the program's arguments could not be read");
	text[size] = '\0';
	char *next = text;
	strings->cwd = next;
	next += strlen(next) + 1;
	for (uint64_t i = 0; i < argc + envc && next < text + size; i++) {
		if (i < argc)
			strings->argv[i] = next;
		else
			strings->envp[i - argc] = next;
		next += strlen(next) + 1;
	}
}

static size_t name_length(const char *entry)
{
	return strcspn(entry, "=");
}

/* Entries that `envp` does not name yet are added. */
static void add_defaults(char **envp, const char *const *defaults)
{
	size_t count = 0, added = 0;
	while (envp[count])
		count++;
	for (; *defaults && added < ENVIRONMENT_MORE - 1; defaults++) {
		size_t length = name_length(*defaults), i = 0;
		while (i < count &&
		       (name_length(envp[i]) != length || memcmp(envp[i], *defaults, length) != 0))
			i++;
		if (i == count)
			envp[count + added++] = (char *)*defaults;
	}
}

static void choose_environment(const struct program *program, struct strings *strings)
{
	bool given = program->request->message.flags & WIRE_ENVIRONMENT;
#ifdef ORCH_HAVE_CONFINE
	if (program->confine) {
		add_defaults(strings->envp, confine_environment(program->confine));
		return;
	}
#endif
	if (!given)
		add_defaults(strings->envp, minimal_environment);
}

static void choose_cwd(const struct program *program, struct strings *strings)
{
	if (program->request->message.flags & WIRE_CWD)
		return;
	strings->cwd = "/";
#ifdef ORCH_HAVE_CONFINE
	if (program->confine)
		strings->cwd = confine_cwd(program->confine);
#endif
}

/* No signal is ignored (main.c), and exec makes the handled ones default again: signal(7). */
static void unblock_signals(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* errno of the attempt that says most: a file that is there and can not be run beats one that is
 * missing. */
static int execute(char **argv, char **envp)
{
	const char *path = "/usr/local/bin:/usr/bin:/bin";
	int error = ENOENT;
	if (strchr(argv[0], '/')) {
		execve(argv[0], argv, envp);
		return errno;
	}
	for (char **entry = envp; *entry; entry++)
		if (strncmp(*entry, "PATH=", 5) == 0)
			path = *entry + 5;
	while (*path && *argv[0]) {
		size_t length = strcspn(path, ":");
		char file[PATH_MAX];
		int written = snprintf(file, sizeof(file), "%.*s/%s", length ? (int)length : 1,
				       length ? path : ".", argv[0]);
		if (written > 0 && (size_t)written < sizeof(file)) {
			execve(file, argv, envp);
			if (errno != ENOENT && errno != ENOTDIR)
				error = errno;
		}
		path += length + (path[length] == ':');
	}
	return error;
}

/* Init has 0..2 open, so nothing that is needed sits there. All else is closed at exec or before a
 * probe. */
static void place_stdio(const struct program *program)
{
	for (int i = 0; i < 3; i++)
		if (dup2(program->request->fds[1 + i], i) < 0)
			give_up_sys(program, "stdio",
				    "the standard streams could not be put in place");
}

/* Only what the host made for this program: a terminal that it merely passes on may be its own. */
static void take_terminal(const struct program *program)
{
	for (int i = 0; i < 3; i++)
		if (program->request->message.flags & WIRE_TERMINAL << i) {
			if (ioctl(i, TIOCSCTTY, 0) < 0)
				give_up_sys(program, "pty", "the terminal could not become that of the program's session");
			return;
		}
}

static _Noreturn void run_probe(const struct program *program)
{
#ifdef ORCH_HAVE_CONFINE
	if (program->confine) {
		char name[WIRE_TEXT_MAX];
		wire_copy(name, sizeof(name), program->request->message.text);
		close_others(NULL, 0);
		_exit(confine_probe(name));
	}
#endif
	struct setup_error error;
	setup_fail(&error, ORCH_ENOTSUP, 0, "probe", "probes run in sandboxes only");
	give_up(program, &error);
}

static bool leaves_out(const struct program *program, uint64_t protection)
{
#ifdef ORCH_HAVE_CONFINE
	return confine_leaves_out(program->confine, protection);
#else
	(void)program, (void)protection;
	return false;
#endif
}

void program_run(const struct program *program)
{
	struct strings strings;
	struct setup_error error;

	if (!leaves_out(program, ORCH_SPEC_WITHOUT_SESSION))
		setsid();
	unblock_signals();
	place_stdio(program);
	take_terminal(program);
	read_strings(program, &strings);
	choose_environment(program, &strings);
	choose_cwd(program, &strings);
	if (chdir(strings.cwd) < 0) {
		setup_fail(&error, ORCH_ESPAWN, errno, "cwd",
			   "working directory %.200s can not be entered", strings.cwd);
		give_up(program, &error);
	}
#ifdef ORCH_HAVE_CONFINE
	error.code = ORCH_ESPAWN;
	if (program->confine && confine_program(program->confine, &error) < 0)
		give_up(program, &error);
#endif
	if (program->request->message.flags & WIRE_PROBE)
		run_probe(program);
	if (!leaves_out(program, ORCH_SPEC_WITHOUT_CLOSING))
		close_others_at_exec();
	errno = execute(strings.argv, strings.envp);
	setup_fail(&error, ORCH_ESPAWN, errno, "exec",
		   strchr(strings.argv[0], '/') ? "%.200s could not be executed"
						: "%.200s was not found in PATH",
		   strings.argv[0]);
	give_up(program, &error);
}
