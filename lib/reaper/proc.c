/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>

#include "../core/os.h"
#include "stream-private.h"

#ifndef SIGRTMAX /* no real-time signals */
#define SIGRTMAX (NSIG - 1)
#endif

/* --- life ------------------------------------------------------------------------------ */

static void proc_free(struct orch_proc *proc)
{
	orch_error_free(proc->error);
	free(proc);
}

orch_proc *orch_proc_ref(orch_proc *proc)
{
	if (proc && atomic_fetch_add(&proc->references, 1) == 0) {
		/* In its event callback, when the host kept no handle. */
		proc->released = false;
		orch_ctx_ref(proc->ctx);
	}
	return proc;
}

static void proc_release(void *object)
{
	struct orch_proc *proc = object;
	orch_ctx *ctx = proc->ctx;
	if (atomic_load(&proc->references) == 0) {
		proc->released = true;
		if (!proc->attached)
			proc_free(proc);
	}
	orch_ctx_unref(ctx);
}

orch_proc *orch_proc_unref(orch_proc *proc)
{
	if (proc && atomic_fetch_sub(&proc->references, 1) == 1)
		orch_ctx_destroy_later(proc->ctx, proc_release, proc);
	return NULL;
}

static void drop_callback(struct orch_proc *proc)
{
	orch_destroy_fn destroy = proc->destroy;
	proc->destroy = NULL;
	proc->event = NULL;
	if (destroy)
		destroy(proc->userdata);
}

void proc_abandon(struct orch_proc *proc)
{
	struct orch_proc **link = &proc->scope->procs;
	while (*link != proc)
		link = &(*link)->next;
	*link = proc->next;
	proc->ended = true;
	drop_callback(proc);
	proc->scope = NULL;
	proc->attached = false;
	if (proc->released)
		proc_free(proc);
}

struct orch_proc *proc_find(struct orch_scope *scope, uint32_t subject)
{
	for (struct orch_proc *proc = scope->procs; proc; proc = proc->next)
		if (proc->subject == subject)
			return proc;
	return NULL;
}

void proc_started(struct orch_proc *proc, int32_t pid)
{
	if (proc->started)
		return;
	proc->started = true;
	proc->pid = pid;
	if (proc->event)
		proc->event(proc->userdata, proc, ORCH_PROC_STARTED);
}

static void proc_end(struct orch_proc *proc, uint32_t event)
{
	/* Once the scope is over it may have run, and its start not have been heard of: the helper died. */
	streams_program_over(proc->scope, proc->subject, proc->started || proc->scope->certified_us);
	proc->ended = true;
	if (proc->event)
		proc->event(proc->userdata, proc, event);
	proc_abandon(proc);
}

void proc_failed(struct orch_proc *proc, uint32_t reason, const orch_error *error)
{
	proc->reason = reason;
	proc->error = orch_error_copy(error);
	proc_end(proc, ORCH_PROC_FAILED);
}

void proc_exited(struct orch_proc *proc, uint32_t reason, int32_t exit_code, int32_t term_signal)
{
	proc->reason = reason;
	proc->exit_code = term_signal ? -1 : exit_code;
	proc->term_signal = term_signal;
	proc_end(proc, ORCH_PROC_EXITED);
}

/* --- spawning -------------------------------------------------------------------------- */

void orch_proc_opts_init(struct orch_proc_opts *opts, uint32_t size)
{
	const struct orch_proc_opts defaults = {.stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1};
	orch_opts_init(opts, size, &defaults, sizeof(defaults));
}

static int32_t check_opts(const struct orch_proc_opts *opts, const char *probe, orch_error **reterr)
{
	if (opts->flags & ~ORCH_PROC_LEADER)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_proc_opts.flags: unknown flag 0x%x",
				 opts->flags & ~ORCH_PROC_LEADER);
	if (!probe && (!opts->argv || !opts->argv[0] || !opts->argv[0][0]))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_proc_opts.argv names no program");
	if (opts->cwd && opts->cwd[0] != '/')
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "orch_proc_opts.cwd %s must be absolute", opts->cwd);
	if (opts->cwd && strlen(opts->cwd) >= PATH_MAX)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_proc_opts.cwd is too long");
	for (const char *const *entry = opts->envp; entry && *entry; entry++)
		if (!strchr(*entry, '=') || **entry == '=')
			return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
					 "orch_proc_opts.envp: \"%s\" is not NAME=value", *entry);
	return 0;
}

static uint64_t add_strings(struct orch_buf *buf, const char *const *strings)
{
	uint64_t count = 0;
	for (; strings && strings[count] && buf->length <= WIRE_STRINGS_MAX + PATH_MAX; count++)
		orch_buf_add(buf, strings[count], strlen(strings[count]) + 1);
	return count;
}

/* cwd, argv, envp in a memfd that nobody can change any more. */
static int32_t make_strings(const struct orch_proc_opts *opts, struct wire_packet *packet,
			    orch_error **reterr)
{
	_cleanup_buf_ struct orch_buf buf = {0};
	const char *cwd = opts->cwd ? opts->cwd : "";
	orch_buf_add(&buf, cwd, strlen(cwd) + 1);
	size_t before = buf.length;
	packet->message.number[0] = add_strings(&buf, opts->argv);
	packet->message.number[1] = add_strings(&buf, opts->envp);
	if (buf.failed)
		return orch_fail_memory(reterr);
	if (buf.length - before > WIRE_STRINGS_MAX)
		return orch_fail(reterr, ORCH_ETOOBIG, 0, NULL, "argv and envp exceed 1 MiB");

	int fd = orch_sealed_file("orch-strings", buf.data, buf.length);
	if (fd < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "memfd",
				 "argv and envp could not be put into a memory file");
	packet->fds[packet->fd_count++] = fd;
	return 0;
}

/* `null_fd`: /dev/null, once it was needed. */
static int32_t add_fd(struct wire_packet *packet, int32_t fd, int *null_fd, const char *name, orch_error **reterr)
{
	if (fd < 0 && *null_fd < 0)
		*null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	else if (fd < 0)
		fd = *null_fd;
	int copy = fd < 0 ? *null_fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0 && errno == EBADF)
		return orch_fail(reterr, ORCH_EINVAL, errno, NULL,
				 "orch_proc_opts.%s %d is not open", name, fd);
	if (copy < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "stdio", "orch_proc_opts.%s %d", name,
				 fd);
	packet->fds[packet->fd_count++] = copy;
	return 0;
}

static int32_t add_stdio(const orch_scope *scope, const struct orch_proc_opts *opts, struct wire_packet *packet,
			 orch_error **reterr)
{
	static const char *const names[] = {"stdin_fd", "stdout_fd", "stderr_fd"};
	static const char *const stream_names[] = {"stdin_stream", "stdout_stream", "stderr_stream"};
	const int32_t fds[] = {opts->stdin_fd, opts->stdout_fd, opts->stderr_fd};
	orch_stream *const streams[] = {opts->stdin_stream, opts->stdout_stream, opts->stderr_stream};
	int32_t code = 0;
	int null_fd = -1;
	for (int i = 0; i < 3 && code == 0; i++) {
		if (streams[i] && fds[i] >= 0)
			return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
					 "orch_proc_opts.%s and .%s are both given", names[i], stream_names[i]);
		if (streams[i])
			code = stream_check_use(streams[i], scope->ctx, i, stream_names[i], reterr);
		if (code == 0 && streams[i])
			stream_hand_to(streams[i], scope->load_uid);
		if (code == 0)
			code = add_fd(packet, streams[i] ? streams[i]->program_fd : fds[i], &null_fd,
				      streams[i] ? stream_names[i] : names[i], reterr);
		if (code == 0 && streams[i] && streams[i]->kind == ORCH_STREAM_PTY)
			packet->message.flags |= WIRE_TERMINAL << i;
	}
	return code;
}

static void attach_streams(const struct orch_proc *proc, const struct orch_proc_opts *opts)
{
	orch_stream *const streams[] = {opts->stdin_stream, opts->stdout_stream, opts->stderr_stream};
	for (int i = 0; i < 3; i++)
		if (streams[i])
			stream_attach(streams[i], proc->scope, proc->subject);
}

static int32_t make_packet(const orch_scope *scope, const struct orch_proc_opts *opts, const char *probe,
			   struct wire_packet *packet, orch_error **reterr)
{
	int32_t code = check_opts(opts, probe, reterr);
	if (code == 0)
		code = make_strings(opts, packet, reterr);
	if (code == 0)
		code = add_stdio(scope, opts, packet, reterr);
	if (opts->flags & ORCH_PROC_LEADER)
		packet->message.flags |= WIRE_LEADER;
	if (opts->envp)
		packet->message.flags |= WIRE_ENVIRONMENT;
	if (opts->cwd)
		packet->message.flags |= WIRE_CWD;
	if (probe) {
		packet->message.flags |= WIRE_PROBE;
		wire_copy(packet->message.text, WIRE_TEXT_MAX, probe);
	}
	return code;
}

static int32_t spawn(orch_scope *scope, const char *probe, const struct orch_proc_opts *known,
		     orch_proc **ret_proc, orch_error **reterr)
{
	struct wire_packet packet = wire_packet(WIRE_SPAWN, scope->id, 0);
	int32_t code = scope_check_open(scope, reterr);
	if (code == 0)
		code = make_packet(scope, known, probe, &packet, reterr);
	struct orch_proc *proc = code == 0 ? calloc(1, sizeof(*proc)) : NULL;
	if (code == 0 && !proc)
		code = orch_fail_memory(reterr);
	if (code < 0) {
		wire_packet_close(&packet);
		return code;
	}
	packet.message.subject = ++scope->last_subject;
	code = scope_send(scope, &packet, reterr);
	if (code < 0) {
		free(proc);
		return code;
	}
	proc->subject = packet.message.subject;
	proc->ctx = scope->ctx;
	proc->scope = scope;
	proc->exit_code = -1;
	proc->event = known->event;
	proc->userdata = known->userdata;
	proc->destroy = known->destroy;
	proc->attached = true;
	proc->next = scope->procs;
	scope->procs = proc;
	attach_streams(proc, known);
	if (ret_proc) {
		atomic_init(&proc->references, 1);
		orch_ctx_ref(proc->ctx);
		*ret_proc = proc;
	} else {
		atomic_init(&proc->references, 0);
		proc->released = true;
	}
	return 0;
}

static int32_t spawn_checked(orch_scope *scope, const char *probe,
			     const struct orch_proc_opts *opts, orch_proc **ret_proc,
			     orch_error **reterr)
{
	struct orch_proc_opts known;
	int32_t code = orch_opts_read(opts, &known, sizeof(known), "orch_proc_opts", reterr);
	if (code == 0 && !opts)
		code = orch_fail(reterr, ORCH_EINVAL, 0, NULL, "orch_proc_opts is NULL");
	if (code == 0)
		code = scope_check(scope, reterr);
	if (code == 0)
		code = spawn(scope, probe, &known, ret_proc, reterr);
	/* Also when the structure is newer than this library: its head is what we know. */
	if (code < 0 && opts &&
	    opts->size >= offsetof(struct orch_proc_opts, destroy) + sizeof(opts->destroy) &&
	    opts->destroy)
		opts->destroy(opts->userdata);
	return code;
}

int32_t orch_scope_spawn(orch_scope *scope, const struct orch_proc_opts *opts, orch_proc **ret_proc,
			 orch_error **reterr)
{
	return spawn_checked(scope, NULL, opts, ret_proc, reterr);
}

int32_t orch_scope_spawn_probe(orch_scope *scope, const char *probe,
			       const struct orch_proc_opts *opts, orch_proc **ret_proc,
			       orch_error **reterr)
{
	return spawn_checked(scope, probe, opts, ret_proc, reterr);
}

/* --- the rest -------------------------------------------------------------------------- */

int32_t orch_proc_signal(orch_proc *proc, int32_t signal, orch_error **reterr)
{
	if (!proc)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the proc is NULL");
	int32_t code = orch_ctx_check(proc->ctx, reterr);
	if (code < 0)
		return code;
	if (signal < 1 || signal > SIGRTMAX)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "%d is not a signal", signal);
	if (proc->ended || !proc->scope)
		return orch_fail(reterr, ORCH_ESTATE, 0, NULL, "the program has ended");
	code = scope_check_open(proc->scope, reterr);
	if (code < 0)
		return code;
	struct wire_packet packet = wire_packet(WIRE_SIGNAL, proc->scope->id, proc->subject);
	packet.message.value = signal;
	return scope_send(proc->scope, &packet, reterr);
}

static bool is_ended(void *userdata)
{
	return ((struct orch_proc *)userdata)->ended;
}

int32_t orch_proc_wait(orch_proc *proc, int64_t timeout_ms, int32_t *ret_status,
		       orch_error **reterr)
{
	if (!proc)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the proc is NULL");
	orch_proc_ref(proc);
	orch_ctx *ctx = orch_ctx_ref(proc->ctx);
	int32_t code = orch_ctx_wait(ctx, timeout_ms, is_ended, proc, reterr);
	if (code == 0 && proc->error)
		code = fail_copy(reterr, proc->error);
	else if (code == 0 && ret_status)
		*ret_status = proc->term_signal ? 256 + proc->term_signal : proc->exit_code;
	orch_proc_unref(proc);
	orch_ctx_unref(ctx);
	return code;
}

int32_t orch_proc_pid(const orch_proc *proc)
{
	return proc ? proc->pid : 0;
}

int32_t orch_proc_exit_code(const orch_proc *proc)
{
	return proc ? proc->exit_code : -1;
}

int32_t orch_proc_term_signal(const orch_proc *proc)
{
	return proc ? proc->term_signal : 0;
}

uint32_t orch_proc_reason(const orch_proc *proc)
{
	return proc ? proc->reason : 0;
}

const orch_error *orch_proc_error(const orch_proc *proc)
{
	return proc ? proc->error : NULL;
}
