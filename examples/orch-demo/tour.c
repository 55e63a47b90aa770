/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tour.h"

#define FOLDERS_MAX 64 /* deep */

/* --- saying ---------------------------------------------------------------------------------------------------- */

void tour_say(const struct tour *tour, const char *format, ...)
{
	if (tour->json)
		return;
	va_list arguments;
	va_start(arguments, format);
	fputs("   ", stdout);
	vprintf(format, arguments);
	putchar('\n');
	va_end(arguments);
	fflush(stdout);
}

void tour_gap(const struct tour *tour)
{
	if (!tour->json)
		putchar('\n');
}

void tour_quote(const struct tour *tour, const char *text)
{
	char *copy = strdup(text), *rest = copy, *line;
	while ((line = strsep(&rest, "\n")))
		if (*line) {
			char *safe = shown(line);
			tour_say(tour, "  | %s", safe);
			free(safe);
		}
	free(copy);
}

void tour_object(const struct tour *tour, json_t *object)
{
	if (tour->json) {
		json_object_set_new(object, "act", json_integer(tour->act));
		char *text = json_dumps(object, JSON_COMPACT);
		puts(text ? text : "{}");
		fflush(stdout);
		free(text);
	}
	json_decref(object);
}

bool tour_expect(struct tour *tour, bool held, const char *format, ...)
{
	va_list arguments;
	char *text = NULL;
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		abort();
	va_end(arguments);
	held ? tour->held++ : tour->failed++;
	tour_say(tour, "%s %s", held ? "[holds] " : "[FAILED]", text);
	tour_object(tour, json_pack("{s:s, s:s, s:b}", "event", "promise", "text", text, "holds", held));
	free(text);
	return held;
}

static void begin_act(struct tour *tour, const char *title)
{
	tour->act++;
	if (!tour->json)
		printf("\n%d. %s\n\n", tour->act, title);
	tour_object(tour, json_pack("{s:s, s:s}", "event", "act", "title", title));
}

/* --- children ----------------------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for `fd` (-1: for the time alone). False: it is not readable in time, or a signal wants the tour to end. */
static bool readable(struct tour *tour, int fd, int64_t due_ms)
{
	struct pollfd fds[2] = {{.fd = tour->signals, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	int64_t left = due_ms - now_ms();
	if (poll(fds, 2, left > 0 ? (int)left : 0) < 0)
		return false;
	if (fds[0].revents)
		tour->interrupted = true;
	return !tour->interrupted && fds[1].revents;
}

bool tour_sleep(struct tour *tour, int ms)
{
	readable(tour, -1, now_ms() + ms);
	return !tour->interrupted;
}

static struct tour_child *free_child(struct tour *tour)
{
	for (size_t i = 0; i < TOUR_CHILDREN; i++)
		if (tour->children[i].pid == 0)
			return &tour->children[i];
	abort(); /* no act has so many at once */
}

static void become(const char *const *argv, int output, bool group)
{
	sigset_t none;
	sigemptyset(&none);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || (group && setpgid(0, 0) < 0))
		_exit(126);
	execv(argv[0], (char *const *)argv);
	_exit(127);
}

struct tour_child *tour_start(struct tour *tour, const char *const *argv, bool group)
{
	struct tour_child *child = free_child(tour);
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0) {
		fail_text(EXIT_ERROR, "pipe: %m");
		return NULL;
	}
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		become(argv, ends[1], group);
	close(ends[1]);
	int pidfd = pid > 0 ? pidfd_open(pid, 0) : -1;
	if (pidfd < 0) {
		fail_text(EXIT_ERROR, "%s can not be started: %m", argv[0]);
		if (pid > 0)
			kill(pid, SIGKILL), waitpid(pid, NULL, 0);
		close(ends[0]);
		return NULL;
	}
	*child = (struct tour_child){.pid = pid, .pidfd = pidfd, .output = ends[0]};
	return child;
}

struct tour_child *tour_start_demo(struct tour *tour, const char *const *arguments)
{
	const char *argv[24] = {"/proc/self/exe"};
	for (size_t i = 0; arguments[i] && i < sizeof(argv) / sizeof(argv[0]) - 2; i++)
		argv[i + 1] = arguments[i];
	return tour_start(tour, argv, false);
}

/* More of its output. False: that was all, or it took too long. */
static bool read_more(struct tour *tour, struct tour_child *child, int64_t due_ms)
{
	if (!readable(tour, child->output, due_ms))
		return false;
	child->text = realloc(child->text, child->length + 65537);
	if (!child->text)
		abort();
	ssize_t got = read(child->output, child->text + child->length, 65536);
	child->length += got > 0 ? (size_t)got : 0;
	child->text[child->length] = '\0';
	return got > 0;
}

char *tour_line(struct tour *tour, struct tour_child *child, int timeout_ms)
{
	int64_t due_ms = now_ms() + timeout_ms;
	char *newline;
	while (!(newline = child->text ? strchr(child->text, '\n') : NULL))
		if (!read_more(tour, child, due_ms))
			return NULL;
	char *line = strndup(child->text, (size_t)(newline - child->text));
	child->length -= (size_t)(newline + 1 - child->text);
	memmove(child->text, newline + 1, child->length + 1);
	return line;
}

bool tour_ended(struct tour *tour, struct tour_child *child, int timeout_ms)
{
	return readable(tour, child->pidfd, now_ms() + timeout_ms);
}

char *tour_output(struct tour *tour, struct tour_child *child, int timeout_ms)
{
	int64_t due_ms = now_ms() + timeout_ms;
	while (read_more(tour, child, due_ms))
		continue;
	return strdup(child->text ? child->text : "");
}

int tour_reap(struct tour_child *child)
{
	int status = 0;
	if (!child || child->pid == 0)
		return -1;
	pidfd_send_signal(child->pidfd, SIGKILL, NULL, 0);
	waitpid(child->pid, &status, 0);
	close(child->pidfd);
	close(child->output);
	free(child->text);
	*child = (struct tour_child){0};
	return status;
}

/* --- sandboxes ------------------------------------------------------------------------------------------------------ */

int tour_inside(orch_sandbox *sandbox, const char *const *argv, char **ret_text, int *ret_status)
{
	struct orch_run_opts opts;
	orch_sandbox_result *result = NULL;
	orch_error *error = NULL;
	size_t length = 0;
	orch_run_opts_init(&opts, sizeof(opts));
	opts.timeout_ms = 20000;
	if (orch_sandbox_run(sandbox, argv, &opts, &result, &error) < 0)
		return fail(argv[0], error);
	const char *text = orch_sandbox_result_output(result, 1, &length);
	*ret_text = strndup(length ? text : "", length);
	*ret_status = orch_sandbox_result_status(result);
	orch_sandbox_result_unref(result);
	return EXIT_FINE;
}

/* --- the whole ----------------------------------------------------------------------------------------------------- */

/* Links are not followed, and what a load closed to us is opened again. */
static void remove_tree(int parent, const char *name, int depth)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
		fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 || depth > FOLDERS_MAX ? NULL : fdopendir(fd);
	struct dirent *entry;
	if (dir && fchmod(fd, 0700) < 0)
		errno = 0; /* then what is in it says so */
	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			remove_tree(fd, entry->d_name, depth + 1);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	if (unlinkat(parent, name, 0) < 0)
		unlinkat(parent, name, AT_REMOVEDIR);
}

static bool make_secret(struct tour *tour)
{
	unsigned char bytes[16];
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(tour->secret + 2 * i, 3, "%02x", bytes[i]);
	return setenv(TOUR_SECRET, tour->secret, 1) == 0;
}

static int prepare(struct tour *tour)
{
	const char *temporary = getenv("TMPDIR");
	char *folder = format_text("%s/orch-tour-XXXXXX", temporary && temporary[0] == '/' ? temporary : "/tmp");
	if (!mkdtemp(folder)) {
		fail_text(EXIT_ERROR, "%s: %m", folder);
		free(folder);
		return EXIT_ERROR;
	}
	tour->folder = folder;
	char *found = find_beside("tour-attempt");
	if (!found)
		found = find_beside("../" DEMO_LIBEXECDIR "/liborch/tour-attempt");
	tour->attempt = found ? realpath(found, NULL) : NULL;
	free(found);
	if (!tour->attempt)
		return fail_text(EXIT_ERROR, "tour-attempt is missing: it is built and installed with orch-demo");
	tour->ctx = demo_ctx();
	/* The anchors of its runs are its own too. */
	if (!tour->ctx || !make_secret(tour) || setenv("XDG_STATE_HOME", folder, 1) < 0)
		return EXIT_ERROR;
	return EXIT_FINE;
}

static void clean_up(struct tour *tour)
{
	for (size_t i = 0; i < TOUR_CHILDREN; i++)
		tour_reap(&tour->children[i]);
	if (tour->stray >= 0) {
		pidfd_send_signal(tour->stray, SIGKILL, NULL, 0);
		close(tour->stray);
	}
	orch_ctx_unref(tour->ctx);
	/* What a coordinator that was killed had started is dying, and may write until then. */
	for (int turn = 0; tour->folder && turn < 100 && access(tour->folder, F_OK) == 0; turn++) {
		struct timespec pause = {.tv_nsec = turn ? 50000000 : 0};
		nanosleep(&pause, NULL);
		remove_tree(AT_FDCWD, tour->folder, 0);
	}
	if (tour->folder && access(tour->folder, F_OK) == 0)
		fail_text(EXIT_ERROR, "%s can not be removed: %m", tour->folder);
	free(tour->folder);
	free(tour->attempt);
}

static int run_acts(struct tour *tour)
{
	static const struct {
		const char *title;
		int (*act)(struct tour *tour);
	} acts[] = {
		{"A sandbox is closed on every channel", tour_escape},
		{"A task is over when everything that it started is dead", tour_daemon},
		{"Nobody's word counts: a liar is found out", tour_liar},
		{"What must not happen twice does not, although the coordinator is killed", tour_twice},
	};
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		begin_act(tour, acts[i].title);
		int code = acts[i].act(tour);
		if (tour->interrupted)
			return EXIT_INTERRUPTED;
		if (code != EXIT_FINE)
			return code;
	}
	return tour->failed ? EXIT_ERROR : EXIT_FINE;
}

static void say_end(struct tour *tour, int code, int64_t ms)
{
	tour->act = 0;
	tour_object(tour, json_pack("{s:s, s:i, s:i, s:i, s:I, s:i}", "event", "end", "held", (int)tour->held, "failed",
				    (int)tour->failed, "not_comparable", (int)tour->incomparable, "ms", (json_int_t)ms,
				    "exit_code", code));
	if (tour->json)
		return;
	printf("\n");
	if (code == EXIT_INTERRUPTED)
		tour_say(tour, "Interrupted. Everything that was started is ended, everything that was made is removed.");
	else if (code != EXIT_FINE && !tour->failed)
		tour_say(tour, "The tour could not go on, and shows nothing.");
	else
		tour_say(tour, "%u promises held, %u failed%s; %lld.%lld s.", tour->held, tour->failed,
			 tour->incomparable ? ", and some could not be compared on this host" : "", (long long)(ms / 1000),
			 (long long)(ms % 1000 / 100));
	if (code == EXIT_FINE)
		tour_say(tour, "All channels of this host: orch-demo doctor. From an idea to a product: orch-demo run --yes.");
}

int command_tour(const struct options *options)
{
	struct tour tour = {.json = options->json, .stray = -1};
	struct utsname host;
	sigset_t mask;
	if (options->idea || options->rest_count)
		return fail_text(EXIT_USAGE, "tour: \"%s\" is one argument too many",
				 options->idea ? options->idea : options->rest[0]);
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	/* Never unblocked again: what interrupts is read, and the exit code tells it. */
	tour.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	uname(&host);
	tour_object(&tour, json_pack("{s:s, s:s, s:s, s:s, s:i}", "event", "tour", "liborch", orch_version(), "system",
				     host.sysname, "kernel", host.release, "uid", (int)getuid()));
	if (!tour.json)
		printf("A tour of liborch %s on this machine (%s %s, uid %d). Each line was tried just now.\n", orch_version(),
		       host.sysname, host.release, (int)getuid());
	int64_t began = now_ms();
	int code = prepare(&tour);
	if (code == EXIT_FINE)
		code = run_acts(&tour);
	clean_up(&tour);
	say_end(&tour, code, now_ms() - began);
	close(tour.signals);
	return code;
}
