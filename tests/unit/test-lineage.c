/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a scope by descent (lib/reaper/darwin/lineage.c), on lists that are made up here: who is one, who is not,
 * and which one can not be found. Nothing of macOS is needed for that, and nothing is said about it.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reaper/darwin/lineage.h"
#include "reaper/scope-private.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static struct process process(pid_t pid, pid_t parent, pid_t session, uint64_t start_us)
{
	return (struct process){
	    .pid = pid, .parent = parent, .group = session, .session = session, .start_us = start_us, .state = 'S'};
}

static struct lineage of_program(pid_t pid, uint64_t start_us)
{
	struct lineage lineage = {0};
	ck_assert_int_eq(lineage_add(&lineage, pid, start_us), 0);
	return lineage;
}

static void absorb(struct lineage *lineage, const struct process *list, size_t count)
{
	ck_assert_int_eq(lineage_absorb(lineage, list, count), 0);
}

static bool has_pid(const struct lineage *lineage, pid_t pid)
{
	for (size_t i = 0; i < lineage->count; i++)
		if (lineage->members[i].pid == pid)
			return true;
	return false;
}

START_TEST(children_are_members_in_any_order)
{
	struct lineage lineage = of_program(100, 10);
	/* In sessions of their own, so that only their parents tell. */
	const struct process list[] = {process(104, 103, 104, 14), process(103, 102, 103, 13),
				       process(102, 100, 102, 12), process(100, 50, 100, 10),
				       process(200, 1, 200, 5),	   process(1, 0, 1, 0)};
	absorb(&lineage, list, COUNT(list));
	ck_assert_uint_eq(lineage.count, 4);
	ck_assert(has_pid(&lineage, 104));
	ck_assert(!has_pid(&lineage, 200) && !has_pid(&lineage, 1));
	ck_assert_uint_eq(lineage_living(&lineage, list, COUNT(list)), 4);
	lineage_free(&lineage);
}
END_TEST

START_TEST(orphans_stay_members)
{
	struct lineage lineage = of_program(100, 10);
	/* Never seen while their parents lived: found by the session. */
	const struct process list[] = {process(300, 1, 100, 20)};
	absorb(&lineage, list, COUNT(list));
	ck_assert(has_pid(&lineage, 300));

	/* Seen once with its parent, then in a session of its own and adopted: it is the same process. */
	struct lineage other = of_program(500, 10);
	const struct process with_parent[] = {process(500, 50, 500, 10), process(501, 500, 501, 11)};
	const struct process adopted[] = {process(501, 1, 501, 11), process(502, 501, 501, 12)};
	absorb(&other, with_parent, COUNT(with_parent));
	absorb(&other, adopted, COUNT(adopted));
	ck_assert(has_pid(&other, 501) && has_pid(&other, 502));
	/* And its session is known from then on, also without it. */
	const struct process last[] = {process(503, 1, 501, 13)};
	absorb(&other, last, COUNT(last));
	ck_assert(has_pid(&other, 503));
	ck_assert_uint_eq(other.count, 1);
	lineage_free(&lineage);
	lineage_free(&other);
}
END_TEST

/* The limit that the certificate names: a session of its own, and the parent gone between two lists. */
START_TEST(double_fork_between_two_lists_is_not_found)
{
	struct lineage lineage = of_program(100, 10);
	const struct process before[] = {process(100, 50, 100, 10)};
	const struct process after[] = {process(100, 50, 100, 10), process(102, 1, 102, 12)};
	absorb(&lineage, before, COUNT(before));
	absorb(&lineage, after, COUNT(after));
	ck_assert(!has_pid(&lineage, 102));
	lineage_free(&lineage);
}
END_TEST

START_TEST(numbers_used_again_are_no_members)
{
	struct lineage lineage = of_program(100, 10);
	const struct process first[] = {process(100, 50, 100, 10), process(101, 100, 100, 11)};
	absorb(&lineage, first, COUNT(first));
	/* 101 has ended, and a stranger got its number. */
	const struct process again[] = {process(100, 50, 100, 10), process(101, 1, 7, 99)};
	absorb(&lineage, again, COUNT(again));
	ck_assert_uint_eq(lineage.count, 1);

	/* The program has ended, its session is empty, and a stranger begins one of that number. */
	const struct process none[] = {process(1, 0, 1, 0)};
	const struct process stranger[] = {process(100, 1, 100, 500), process(600, 100, 100, 501)};
	absorb(&lineage, none, COUNT(none));
	ck_assert_uint_eq(lineage.session_count, 0);
	absorb(&lineage, stranger, COUNT(stranger));
	ck_assert_uint_eq(lineage.count, 0);

	/* The same without an empty list in between: the leader is another. */
	struct lineage unseen = of_program(100, 10);
	absorb(&unseen, stranger, COUNT(stranger));
	ck_assert_uint_eq(unseen.count, 0);
	lineage_free(&lineage);
	lineage_free(&unseen);
}
END_TEST

START_TEST(older_than_its_parent_is_no_child)
{
	struct lineage lineage = of_program(100, 10);
	/* Its parent's number passed to a member after it was listed. */
	const struct process list[] = {process(100, 50, 100, 10), process(90, 100, 3, 5)};
	absorb(&lineage, list, COUNT(list));
	ck_assert(!has_pid(&lineage, 90));
	lineage_free(&lineage);
}
END_TEST

START_TEST(zombies_are_members_and_do_not_live)
{
	struct lineage lineage = of_program(100, 10);
	struct process list[] = {process(100, 50, 100, 10), process(101, 100, 100, 11)};
	list[0].state = 'Z';
	list[0].session = -1; /* getsid() does not find them */
	absorb(&lineage, list, COUNT(list));
	ck_assert_uint_eq(lineage.count, 2);
	ck_assert_uint_eq(lineage_living(&lineage, list, COUNT(list)), 1);
	lineage_free(&lineage);
}
END_TEST

/* --- many random histories, against a model that knows everybody's origin ------------------- */

#define MOST 120
#define PIDS 300 /* few, so that numbers are used again soon */

struct actor {
	struct process process;
	bool alive, ours;
};

static struct actor actors[MOST];
static uint64_t clock_us;

static pid_t free_pid(void)
{
	for (;;) {
		pid_t pid = 2 + (pid_t)(random() % PIDS);
		bool taken = false;
		/* As a kernel does: not while a process, a group or a session has it. */
		for (int i = 0; i < MOST; i++)
			taken |= actors[i].alive && (actors[i].process.pid == pid || actors[i].process.session == pid);
		if (!taken)
			return pid;
	}
}

static struct actor *born(pid_t parent, pid_t session, bool ours)
{
	for (int i = 0; i < MOST; i++) {
		if (actors[i].alive)
			continue;
		pid_t pid = free_pid();
		actors[i] = (struct actor){
		    .process = process(pid, parent, session ? session : pid, ++clock_us), .alive = true, .ours = ours};
		return &actors[i];
	}
	return NULL;
}

static void die(struct actor *actor)
{
	actor->alive = false;
	for (int i = 0; i < MOST; i++)
		if (actors[i].alive && actors[i].process.parent == actor->process.pid)
			actors[i].process.parent = 1;
}

/* One event of a daemon's birth: fork, setsid, fork, exit. */
static bool daemon_goes_on(struct actor *parent)
{
	static struct actor *between;
	static int step;
	if (!parent) {
		step = 0;
		return false;
	}
	if (step > 0 && !between->alive)
		step = 0;
	switch (step) {
	case 0:
		between = born(parent->process.pid, parent->process.session, parent->ours);
		step = between ? 1 : 0;
		break;
	case 1:
		between->process.session = between->process.group = between->process.pid;
		step = 2;
		break;
	case 2:
		born(between->process.pid, between->process.session, between->ours);
		step = 3;
		break;
	default:
		die(between);
		step = 0;
	}
	return step > 0;
}

static void something_happens(void)
{
	static bool daemon;
	struct actor *actor = &actors[random() % MOST];
	if (!actor->alive)
		return;
	if (daemon) {
		daemon = daemon_goes_on(actor);
		return;
	}
	switch (random() % 5) {
	case 0:
	case 1:
		born(actor->process.pid, actor->process.session, actor->ours);
		break;
	case 2:
		if (actor->process.session != actor->process.pid)
			actor->process.session = actor->process.group = actor->process.pid;
		break;
	case 3:
		die(actor);
		break;
	default:
		daemon = daemon_goes_on(actor);
	}
}

/* In a random order. */
static size_t list_of_all(struct process *list)
{
	size_t count = 0;
	for (int i = 0; i < MOST; i++) {
		if (!actors[i].alive)
			continue;
		size_t at = (size_t)random() % (count + 1);
		list[count++] = list[at];
		list[at] = actors[i].process;
	}
	return count;
}

/*
 * With a list after each event nobody is missed; with one after several, some are. A stranger is never taken for a member
 * while lists keep up with the use of numbers.
 */
static unsigned play(unsigned seed, int events_per_list)
{
	struct process list[MOST];
	unsigned missed = 0;
	srandom(seed);
	memset(actors, 0, sizeof(actors));
	daemon_goes_on(NULL);
	clock_us = 1;
	struct actor *program = born(50, 0, true);
	struct lineage lineage = of_program(program->process.pid, program->process.start_us);
	for (int i = 0; i < 20; i++)
		born(1, 0, false);
	for (int round = 0; round < 200; round++) {
		for (int event = 0; event < events_per_list; event++)
			something_happens();
		size_t count = list_of_all(list);
		absorb(&lineage, list, count);
		for (int i = 0; i < MOST; i++) {
			if (!actors[i].alive)
				continue;
			bool member = lineage_has(&lineage, &actors[i].process);
			ck_assert_msg(actors[i].ours || !member, "seed %u: stranger %d is a member", seed,
				      actors[i].process.pid);
			missed += actors[i].ours && !member;
		}
	}
	lineage_free(&lineage);
	return missed;
}

START_TEST(random_histories)
{
	unsigned missed_between = 0;
	for (unsigned seed = 1; seed <= 30; seed++) {
		ck_assert_uint_eq(play(seed, 1), 0);
		missed_between += play(seed, 6);
	}
	/* Or this test would not show why the verdict can not be DEAD. */
	ck_assert_uint_gt(missed_between, 0);
}
END_TEST

/* --- what may be certified ------------------------------------------------------------------ */

START_TEST(never_dead_by_descent)
{
	static const uint32_t by_descent = ORCH_RUNG_SUBREAPER;
	ck_assert_uint_eq(death_verdict(by_descent, ORCH_DEATH_DEAD, WIRE_DEATH_LINEAGE_KILLED),
			  ORCH_DEATH_UNVERIFIABLE);
	ck_assert_uint_eq(death_verdict(by_descent, ORCH_DEATH_DEAD_UNREAPED, WIRE_DEATH_UID_KILLED),
			  ORCH_DEATH_UNVERIFIABLE);
	ck_assert_uint_eq(death_verdict(by_descent, ORCH_DEATH_SURVIVORS, 0), ORCH_DEATH_SURVIVORS);
	/* A uid of its own closes the set; and where nothing ran, nothing lives. */
	ck_assert_uint_eq(death_verdict(by_descent, ORCH_DEATH_DEAD, WIRE_DEATH_UID_EMPTY), ORCH_DEATH_DEAD);
	ck_assert_uint_eq(death_verdict(by_descent, ORCH_DEATH_DEAD, WIRE_DEATH_UNUSED), ORCH_DEATH_DEAD);
	ck_assert_uint_eq(death_verdict(ORCH_RUNG_PIDNS, ORCH_DEATH_DEAD, WIRE_DEATH_INIT_REAPED),
			  ORCH_DEATH_DEAD);
}
END_TEST

static struct wire_packet up(uint16_t flags)
{
	struct wire_packet packet = wire_packet(WIRE_SCOPE_UP, 1, 0);
	packet.message.flags = flags;
	return packet;
}

/* A scope without init's pidfd is one only if it says so. */
START_TEST(scope_up_without_pidfd)
{
	uint8_t frame[WIRE_FRAME_SIZE];
	struct wire_message message;
	struct wire_packet packet = up(WIRE_LINEAGE);
	wire_encode(&packet.message, 0, frame);
	ck_assert_int_eq(wire_decode(frame, sizeof(frame), 0, &message), 0);
	packet = up(0);
	wire_encode(&packet.message, 0, frame);
	ck_assert_int_eq(wire_decode(frame, sizeof(frame), 0, &message), -EPROTO);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lineage");
	TCase *tests = tcase_create("lineage");
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, children_are_members_in_any_order);
	tcase_add_test(tests, orphans_stay_members);
	tcase_add_test(tests, double_fork_between_two_lists_is_not_found);
	tcase_add_test(tests, numbers_used_again_are_no_members);
	tcase_add_test(tests, older_than_its_parent_is_no_child);
	tcase_add_test(tests, zombies_are_members_and_do_not_live);
	tcase_add_test(tests, random_histories);
	tcase_add_test(tests, never_dead_by_descent);
	tcase_add_test(tests, scope_up_without_pidfd);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
