/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "core/core-private.h"

static int destroyed;

static void count_destroy(void *userdata)
{
	(void)userdata;
	destroyed++;
}

static void ignore_log(void *userdata, uint32_t level, const char *message)
{
	(void)userdata, (void)level, (void)message;
}

static orch_ctx *new_ctx(void)
{
	orch_ctx *ctx = NULL;
	ck_assert_int_eq(orch_ctx_new(NULL, &ctx, NULL), 0);
	return ctx;
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	return poll(&entry, 1, timeout_ms) == 1;
}

START_TEST(codes_have_names_and_texts)
{
	ck_assert_str_eq(orch_code_name(ORCH_EINVAL), "ORCH_EINVAL");
	ck_assert_str_eq(orch_code_name(-9999), "ORCH_E?");
	ck_assert_str_eq(orch_code_text(ORCH_EFORKED), "handle belongs to the parent of this process");
	ck_assert_int_eq(orch_error_code(NULL), 0);
	ck_assert_str_eq(orch_error_message(NULL), "");
	ck_assert_ptr_null(orch_error_free(NULL));
}
END_TEST

START_TEST(an_error_says_what_happened_to_what)
{
	orch_error *error = NULL;
	ck_assert_int_eq(orch_fail(&error, ORCH_ESYS, ENOENT, "mount.proc", "%s can not be opened", "/x"),
			 ORCH_ESYS);
	ck_assert_int_eq(orch_error_code(error), ORCH_ESYS);
	ck_assert_int_eq(orch_error_errno(error), ENOENT);
	ck_assert_str_eq(orch_error_step(error), "mount.proc");
	ck_assert_str_eq(orch_error_message(error), "/x can not be opened: No such file or directory");
	orch_error *copy = orch_error_copy(error);
	ck_assert_str_eq(orch_error_message(copy), orch_error_message(error));
	orch_error_free(error);
	orch_error_free(copy);
	ck_assert_int_eq(orch_fail(NULL, ORCH_EBUSY, 0, NULL, "no receiver"), ORCH_EBUSY);
}
END_TEST

START_TEST(options_newer_than_the_library_are_refused)
{
	struct {
		struct orch_ctx_opts opts;
		uint64_t newer;
	} future = {.newer = 0};
	orch_ctx *ctx = NULL;
	orch_error *error = NULL;

	orch_ctx_opts_init(&future.opts, sizeof(future.opts));
	future.opts.size = sizeof(future);
	future.opts.log_destroy = count_destroy;
	destroyed = 0;
	ck_assert_int_eq(orch_ctx_new(&future.opts, &ctx, &error), 0);
	ctx = orch_ctx_unref(ctx);
	ck_assert_int_eq(destroyed, 1);

	future.newer = 1;
	ck_assert_int_eq(orch_ctx_new(&future.opts, &ctx, &error), ORCH_E2BIG);
	ck_assert_ptr_null(ctx);
	ck_assert_int_eq(orch_error_code(error), ORCH_E2BIG);
	error = orch_error_free(error);

	future.opts.size = 0;
	ck_assert_int_eq(orch_ctx_new(&future.opts, &ctx, &error), ORCH_EINVAL);
	orch_error_free(error);
}
END_TEST

START_TEST(destroy_runs_once_also_when_registration_fails)
{
	struct orch_ctx_opts opts;
	orch_ctx *ctx = NULL;
	destroyed = 0;
	orch_ctx_opts_init(&opts, sizeof(opts));
	opts.helper_path = "relative";
	opts.log = ignore_log;
	opts.log_destroy = count_destroy;
	ck_assert_int_eq(orch_ctx_new(&opts, &ctx, NULL), ORCH_EINVAL);
	ck_assert_int_eq(destroyed, 1);
	ck_assert_ptr_null(ctx);
}
END_TEST

struct fired {
	orch_ctx *ctx;
	int count;
	int32_t inner;
};

static void quit_once(void *userdata)
{
	struct fired *fired = userdata;
	fired->count++;
	fired->inner = orch_ctx_run(fired->ctx, 0, NULL);
	orch_ctx_quit(fired->ctx);
}

START_TEST(run_ends_by_quit_or_timeout_and_refuses_to_nest)
{
	orch_ctx *ctx = new_ctx();
	struct fired fired = {.ctx = ctx};
	orch_source *timer = NULL;
	ck_assert_int_eq(orch_ctx_run(ctx, 10, NULL), ORCH_ETIMEDOUT);
	ck_assert_int_eq(orch_source_timer(ctx, 5, quit_once, &fired, &timer, NULL), 0);
	ck_assert_int_eq(orch_ctx_run(ctx, 5000, NULL), 0);
	ck_assert_int_eq(fired.count, 1);
	ck_assert_int_eq(fired.inner, ORCH_EDEADLK);
	/* A one-shot timer fires once. */
	ck_assert_int_eq(orch_ctx_run(ctx, 20, NULL), ORCH_ETIMEDOUT);
	ck_assert_int_eq(fired.count, 1);
	orch_source_remove(timer);
	orch_ctx_unref(ctx);
}
END_TEST

static void count_io(void *userdata, uint32_t events)
{
	if (events & ORCH_IO_READ)
		++*(int *)userdata;
}

static void count_timer(void *userdata)
{
	++*(int *)userdata;
}

START_TEST(the_fd_is_readable_exactly_while_there_is_work)
{
	orch_ctx *ctx = new_ctx();
	int pair[2], reads = 0, timers = 0;
	orch_source *io = NULL, *timer = NULL;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	int fd = orch_ctx_fd(ctx);
	ck_assert_int_ge(fd, 0);
	ck_assert(!readable(fd, 0));

	ck_assert_int_eq(orch_source_io(ctx, pair[0], ORCH_IO_READ, count_io, &reads, &io, NULL), 0);
	ck_assert(!readable(fd, 0));
	ck_assert_int_eq(write(pair[1], "x", 1), 1);
	ck_assert(readable(fd, 1000));
	ck_assert_int_eq(orch_ctx_process(ctx, NULL), 0);
	ck_assert_int_eq(reads, 1);

	/* Paused and hung up: a foreign loop must not spin on it. */
	orch_source_io_set(io, 0);
	close(pair[1]);
	ck_assert(!readable(fd, 20));
	orch_source_io_set(io, ORCH_IO_READ);
	ck_assert(readable(fd, 1000));
	orch_source_io_set(io, 0);

	ck_assert_int_eq(orch_source_timer(ctx, 30, count_timer, &timers, &timer, NULL), 0);
	ck_assert(!readable(fd, 0));
	ck_assert(readable(fd, 2000));
	for (int i = 0; i < 10 && !timers; i++) {
		ck_assert_int_eq(orch_ctx_process(ctx, NULL), 0);
		if (!timers)
			readable(fd, 100);
	}
	ck_assert_int_eq(timers, 1);
	ck_assert(!readable(fd, 20));

	orch_source_remove(io);
	orch_source_remove(timer);
	close(pair[0]);
	orch_ctx_unref(ctx);
}
END_TEST

static void *wake_up(void *userdata)
{
	usleep(20000);
	orch_ctx_wakeup(userdata);
	return NULL;
}

START_TEST(another_thread_wakes_the_owner)
{
	orch_ctx *ctx = new_ctx();
	pthread_t thread;
	ck_assert(!readable(orch_ctx_fd(ctx), 0));
	ck_assert_int_eq(pthread_create(&thread, NULL, wake_up, ctx), 0);
	ck_assert(readable(orch_ctx_fd(ctx), 5000));
	pthread_join(thread, NULL);
	ck_assert_int_eq(orch_ctx_process(ctx, NULL), 0);
	ck_assert(!readable(orch_ctx_fd(ctx), 0));
	orch_ctx_unref(ctx);
}
END_TEST

static pthread_t destroyed_by;

static void note_thread(void *object)
{
	++*(int *)object;
	destroyed_by = pthread_self();
}

struct foreign {
	orch_ctx *ctx;
	int destroyed;
	int32_t run;
};

static void *drop_elsewhere(void *userdata)
{
	struct foreign *foreign = userdata;
	orch_ctx_destroy_later(foreign->ctx, note_thread, &foreign->destroyed);
	foreign->run = orch_ctx_run(foreign->ctx, 0, NULL);
	return NULL;
}

static void start_foreign(void *userdata)
{
	struct foreign *foreign = userdata;
	pthread_t thread;
	pthread_create(&thread, NULL, drop_elsewhere, foreign);
	pthread_join(thread, NULL);
	ck_assert_int_eq(foreign->destroyed, 0);
}

START_TEST(a_foreign_thread_queues_destruction_and_may_not_run)
{
	orch_ctx *ctx = new_ctx();
	struct foreign foreign = {.ctx = ctx};
	orch_source *timer = NULL;
	ck_assert_int_eq(orch_source_timer(ctx, 0, start_foreign, &foreign, &timer, NULL), 0);
	ck_assert_int_eq(orch_ctx_run(ctx, 50, NULL), ORCH_ETIMEDOUT);
	ck_assert_int_eq(foreign.destroyed, 1);
	ck_assert_int_eq(foreign.run, ORCH_EBUSY);
	ck_assert(pthread_equal(destroyed_by, pthread_self()));
	orch_source_remove(timer);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(a_forked_child_is_refused_and_the_parent_goes_on)
{
	orch_ctx *ctx = new_ctx();
	int timers = 0;
	orch_source *timer = NULL;
	ck_assert_int_eq(orch_source_timer(ctx, 100, count_timer, &timers, &timer, NULL), 0);
	pid_t child = fork();
	if (child == 0) {
		int ok = orch_ctx_run(ctx, 0, NULL) == ORCH_EFORKED;
		ok = ok && orch_ctx_process(ctx, NULL) == ORCH_EFORKED;
		ok = ok && orch_ctx_fd(ctx) == ORCH_EFORKED;
		orch_source_remove(timer);
		orch_ctx_unref(ctx);
		_exit(ok ? 0 : 1);
	}
	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	/* The child's unref must not have taken anything out of the shared epoll sets. */
	ck_assert(readable(orch_ctx_fd(ctx), 2000));
	ck_assert_int_eq(orch_ctx_run(ctx, 150, NULL), ORCH_ETIMEDOUT);
	ck_assert_int_eq(timers, 1);
	orch_source_remove(timer);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(the_context_takes_nothing_of_the_host)
{
	struct sigaction before[NSIG], after;
	bool had[64];
	for (int fd = 3; fd < 64; fd++)
		had[fd] = fcntl(fd, F_GETFD) >= 0;
	for (int i = 1; i < NSIG; i++)
		sigaction(i, NULL, &before[i]);
	orch_ctx *ctx = new_ctx();
	pid_t child = fork();
	if (child == 0)
		_exit(7);
	/* The default loop of libev would reap this child. */
	ck_assert_int_eq(orch_ctx_run(ctx, 100, NULL), ORCH_ETIMEDOUT);
	int status = 0;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	for (int i = 1; i < NSIG; i++) {
		if (sigaction(i, NULL, &after) == 0)
			ck_assert_ptr_eq(after.sa_handler, before[i].sa_handler);
	}
	int opened = 0;
	for (int fd = 3; fd < 64; fd++) {
		int flags = fcntl(fd, F_GETFD);
		if (flags < 0 || had[fd])
			continue;
		opened++;
		ck_assert_msg(flags & FD_CLOEXEC, "fd %d is not close-on-exec", fd);
	}
	ck_assert_int_gt(opened, 0);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(byte_strings_grow_shift_and_stay_terminated)
{
	struct orch_buf buf = {0};
	for (int i = 0; i < 1000; i++)
		orch_buf_printf(&buf, "%d,", i);
	ck_assert_int_eq(buf.data[buf.length], '\0');
	ck_assert_str_eq(buf.data + buf.length - 4, "999,");
	orch_buf_shift(&buf, 2);
	ck_assert_int_eq(strncmp(buf.data, "1,2,", 4), 0);
	orch_buf_shift(&buf, buf.length + 10);
	ck_assert_uint_eq(buf.length, 0);
	orch_buf_free(&buf);
}
END_TEST

struct note {
	struct orch_letter letter;
	int arrived; /* 1: in a turn; -1: in vain */
	int place;
	pthread_t thread;
};

static int notes_arrived;

static void note_arrives(struct orch_letter *letter, bool open)
{
	struct note *note = (struct note *)letter;
	ck_assert_int_eq(note->arrived, 0);
	note->arrived = open ? 1 : -1;
	note->place = notes_arrived++;
	note->thread = pthread_self();
}

struct sender {
	orch_mailbox *mailbox;
	struct note *notes;
	int count, posted;
};

static void *send_notes(void *userdata)
{
	struct sender *sender = userdata;
	for (int i = 0; i < sender->count; i++) {
		sender->notes[i].letter.arrive = note_arrives;
		sender->posted += orch_mailbox_post(sender->mailbox, &sender->notes[i].letter);
	}
	ck_assert(!orch_mailbox_is_mine(sender->mailbox));
	return NULL;
}

static void send_from_a_thread(struct sender *sender)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, send_notes, sender), 0);
	pthread_join(thread, NULL);
}

START_TEST(letters_of_other_threads_arrive_in_a_turn)
{
	orch_ctx *ctx = new_ctx();
	struct note notes[3] = {0};
	struct sender sender = {orch_ctx_mailbox(ctx), notes, 3, 0};
	notes_arrived = 0;
	ck_assert(orch_mailbox_is_mine(sender.mailbox));
	ck_assert(!readable(orch_ctx_fd(ctx), 0));
	send_from_a_thread(&sender);
	ck_assert_int_eq(sender.posted, 3);
	ck_assert_int_eq(notes_arrived, 0);
	ck_assert(readable(orch_ctx_fd(ctx), 1000));
	ck_assert_int_eq(orch_ctx_process(ctx, NULL), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(notes[i].arrived, 1);
		ck_assert_int_eq(notes[i].place, i);
		ck_assert(pthread_equal(notes[i].thread, pthread_self()));
		notes[i].arrived = 0; /* it can be posted again */
	}
	ck_assert(!readable(orch_ctx_fd(ctx), 0));
	send_from_a_thread(&sender);
	ck_assert_int_eq(orch_ctx_process(ctx, NULL), 0);
	ck_assert_int_eq(notes_arrived, 6);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(letters_arrive_in_vain_when_the_context_goes)
{
	orch_ctx *ctx = new_ctx();
	struct note notes[2] = {0}, late = {0};
	struct sender sender = {orch_mailbox_ref(orch_ctx_mailbox(ctx)), notes, 2, 0};
	notes_arrived = 0;
	send_from_a_thread(&sender);
	orch_ctx_unref(ctx);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(notes[i].arrived, -1);
	sender.notes = &late;
	sender.count = 1;
	sender.posted = 0;
	send_from_a_thread(&sender);
	ck_assert_int_eq(sender.posted, 0);
	ck_assert_int_eq(late.arrived, 0);
	ck_assert(!orch_mailbox_is_mine(sender.mailbox));
	orch_mailbox_unref(sender.mailbox);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core");
	TCase *tests = tcase_create("core");
	tcase_set_timeout(tests, 30);
	tcase_add_test(tests, codes_have_names_and_texts);
	tcase_add_test(tests, an_error_says_what_happened_to_what);
	tcase_add_test(tests, options_newer_than_the_library_are_refused);
	tcase_add_test(tests, destroy_runs_once_also_when_registration_fails);
	tcase_add_test(tests, run_ends_by_quit_or_timeout_and_refuses_to_nest);
	tcase_add_test(tests, the_fd_is_readable_exactly_while_there_is_work);
	tcase_add_test(tests, another_thread_wakes_the_owner);
	tcase_add_test(tests, a_foreign_thread_queues_destruction_and_may_not_run);
	tcase_add_test(tests, a_forked_child_is_refused_and_the_parent_goes_on);
	tcase_add_test(tests, the_context_takes_nothing_of_the_host);
	tcase_add_test(tests, byte_strings_grow_shift_and_stay_terminated);
	tcase_add_test(tests, letters_of_other_threads_arrive_in_a_turn);
	tcase_add_test(tests, letters_arrive_in_vain_when_the_context_goes);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
