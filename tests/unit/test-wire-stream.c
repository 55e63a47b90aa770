/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire over a byte stream (lib/reaper/darwin/wire-socket.c), as macOS needs it, on a stream socket of this system:
 * frames in pieces, descriptors with their own frame, ends in the middle. The library's other form is not linked here.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reaper/wire.h"

static int ends[2];
static struct wire_inbox inbox;

static void make_pair(void)
{
	memset(&inbox, 0, sizeof(inbox));
	ck_assert_int_eq(wire_pair(ends), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert(fcntl(ends[i], F_GETFD) & FD_CLOEXEC);
		ck_assert(fcntl(ends[i], F_GETFL) & O_NONBLOCK);
		ck_assert(wire_is_end(ends[i]));
	}
}

static void close_pair(void)
{
	wire_inbox_clear(&inbox);
	close(ends[0]);
	close(ends[1]);
}

static unsigned open_fds(void)
{
	unsigned count = 0;
	DIR *folder = opendir("/dev/fd");
	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static struct wire_packet numbered(enum wire_type type, uint32_t subject)
{
	struct wire_packet packet = wire_packet(type, 1, subject);
	packet.message.number[0] = subject * 1000003ull;
	snprintf(packet.message.text, WIRE_TEXT_MAX, "message %u", subject);
	return packet;
}

static void assert_numbered(const struct wire_packet *packet, enum wire_type type, uint32_t subject)
{
	char text[64];
	snprintf(text, sizeof(text), "message %u", subject);
	ck_assert_uint_eq(packet->message.type, type);
	ck_assert_uint_eq(packet->message.subject, subject);
	ck_assert_uint_eq(packet->message.number[0], subject * 1000003ull);
	ck_assert_str_eq(packet->message.text, text);
}

/* A descriptor that can be recognised: an empty file at this position. */
static int marked(off_t position)
{
	char path[] = "/tmp/orch-wire-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	unlink(path);
	ck_assert_int_eq(lseek(fd, position, SEEK_SET), position);
	return fd;
}

START_TEST(messages_and_their_descriptors)
{
	make_pair();
	unsigned before = open_fds();
	for (uint32_t i = 0; i < 4; i++) {
		/* Every other one has four of them. */
		struct wire_packet packet = numbered(i % 2 ? WIRE_SPAWN : WIRE_SIGNAL, i);
		for (int j = 0; i % 2 && j < 4; j++)
			packet.fds[packet.fd_count++] = marked((off_t)(100 * i + (unsigned)j));
		ck_assert_int_eq(wire_send(ends[0], &packet), 0);
		wire_packet_close(&packet);
	}
	for (uint32_t i = 0; i < 4; i++) {
		struct wire_packet packet;
		ck_assert_int_eq(wire_receive(ends[1], &inbox, &packet), 0);
		assert_numbered(&packet, i % 2 ? WIRE_SPAWN : WIRE_SIGNAL, i);
		ck_assert_uint_eq(packet.fd_count, i % 2 ? 4 : 0);
		for (uint32_t j = 0; j < packet.fd_count; j++) {
			ck_assert_int_eq(lseek(packet.fds[j], 0, SEEK_CUR), (off_t)(100 * i + j));
			ck_assert(fcntl(packet.fds[j], F_GETFD) & FD_CLOEXEC);
		}
		wire_packet_close(&packet);
	}
	struct wire_packet none;
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &none), -EAGAIN);
	ck_assert_uint_eq(open_fds(), before);
	close_pair();
}
END_TEST

/* A socket that takes few of them: the rest goes later, and nothing goes twice. */
START_TEST(queue_goes_on)
{
	make_pair();
	int little = 1;
	ck_assert_int_eq(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)), 0);
	struct wire_queue queue = {0};
	unsigned before = open_fds();
	for (uint32_t i = 0; i < 50; i++) {
		struct wire_packet packet = numbered(i % 5 ? WIRE_SIGNAL : WIRE_SPAWN, i);
		for (int j = 0; i % 5 == 0 && j < 4; j++)
			packet.fds[packet.fd_count++] = marked((off_t)(100 * i + (unsigned)j));
		ck_assert_int_eq(wire_queue_add(&queue, &packet), 0);
	}
	uint32_t next = 0;
	unsigned waits = 0;
	while (next < 50) {
		int error = wire_queue_flush(&queue, ends[0]);
		ck_assert(error == 0 || error == -EAGAIN);
		waits += error == -EAGAIN;
		struct wire_packet packet;
		while ((error = wire_receive(ends[1], &inbox, &packet)) == 0) {
			assert_numbered(&packet, next % 5 ? WIRE_SIGNAL : WIRE_SPAWN, next);
			ck_assert_uint_eq(packet.fd_count, next % 5 ? 0 : 4);
			for (uint32_t j = 0; j < packet.fd_count; j++)
				ck_assert_int_eq(lseek(packet.fds[j], 0, SEEK_CUR), (off_t)(100 * next + j));
			wire_packet_close(&packet);
			next++;
		}
		ck_assert_int_eq(error, -EAGAIN);
	}
	ck_assert_uint_gt(waits, 0);
	ck_assert_uint_eq(queue.length, 0);
	ck_assert_uint_eq(open_fds(), before);
	close_pair();
}
END_TEST

/* Byte by byte, which is as bad as it gets. */
START_TEST(frames_in_pieces)
{
	make_pair();
	struct wire_packet packet = numbered(WIRE_STOP, 7), got;
	uint8_t frame[WIRE_FRAME_SIZE];
	wire_encode(&packet.message, 0, frame);
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < sizeof(frame); i++) {
			ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), -EAGAIN);
			ck_assert_int_eq(send(ends[0], &frame[i], 1, 0), 1);
			if (i + 1 == sizeof(frame)) {
				ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), 0);
				assert_numbered(&got, WIRE_STOP, 7);
			}
		}
	close_pair();
}
END_TEST

/* Half a frame, and then the rest with the next one behind it. */
START_TEST(no_byte_of_the_next_frame)
{
	make_pair();
	struct wire_packet got;
	uint8_t frames[2 * WIRE_FRAME_SIZE];
	size_t half = WIRE_FRAME_SIZE / 2;
	for (uint32_t i = 0; i < 2; i++) {
		struct wire_packet packet = numbered(WIRE_STOP, i);
		wire_encode(&packet.message, 0, frames + i * WIRE_FRAME_SIZE);
	}
	ck_assert_int_eq(send(ends[0], frames, half, 0), (ssize_t)half);
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), -EAGAIN);
	ck_assert_int_eq(send(ends[0], frames + half, sizeof(frames) - half, 0), (ssize_t)(sizeof(frames) - half));
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), 0);
		assert_numbered(&got, WIRE_STOP, i);
	}
	close_pair();
}
END_TEST

/* A frame of which a part has gone: its descriptor went with the first byte, and does not go again. */
START_TEST(descriptors_go_once)
{
	make_pair();
	struct wire_packet packet = numbered(WIRE_SCOPE_UP, 3), got;
	uint8_t frame[WIRE_FRAME_SIZE];
	packet.fds[packet.fd_count++] = marked(33);
	wire_encode(&packet.message, packet.fd_count, frame);
	struct iovec part = {.iov_base = frame, .iov_len = 100};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
	*CMSG_FIRSTHDR(&header) = (struct cmsghdr){
	    .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)), packet.fds, sizeof(int));
	size_t sent = 100;
	ck_assert_int_eq(sendmsg(ends[0], &header, 0), 100);
	ck_assert_int_eq(wire_send_some(ends[0], &packet, &sent), 0);
	ck_assert_uint_eq(sent, WIRE_FRAME_SIZE);
	wire_packet_close(&packet);
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), 0);
	ck_assert_uint_eq(got.fd_count, 1);
	ck_assert_int_eq(lseek(got.fds[0], 0, SEEK_CUR), 33);
	wire_packet_close(&got);
	close_pair();
}
END_TEST

START_TEST(ends_in_the_middle)
{
	make_pair();
	struct wire_packet packet = numbered(WIRE_READY, 1), got;
	uint8_t frame[WIRE_FRAME_SIZE];
	wire_encode(&packet.message, 0, frame);
	ck_assert_int_eq(send(ends[0], frame, sizeof(frame) - 1, 0), (ssize_t)sizeof(frame) - 1);
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), -EAGAIN);
	shutdown(ends[0], SHUT_WR);
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), -EPIPE);
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), -EPIPE);
	close_pair();

	/* A peer that is gone: an error, and no SIGPIPE. */
	make_pair();
	close(ends[1]);
	ends[1] = -1;
	ck_assert_int_eq(wire_send(ends[0], &packet), -EPIPE);
	ck_assert_int_eq(wire_receive(ends[0], &inbox, &got), -EPIPE);
	close_pair();
}
END_TEST

START_TEST(what_is_no_frame)
{
	make_pair();
	unsigned before = open_fds();
	struct wire_packet packet = numbered(WIRE_SPAWN, 1), got;
	uint8_t frame[WIRE_FRAME_SIZE] = "GET / HTTP/1.1\r\n";
	ck_assert_int_eq(send(ends[0], frame, sizeof(frame), 0), (ssize_t)sizeof(frame));
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), -EPROTO);
	/* Of a type that must have four of them, with two: refused, and the two are closed. */
	packet.fds[packet.fd_count++] = marked(0);
	packet.fds[packet.fd_count++] = marked(0);
	ck_assert_int_eq(wire_send(ends[0], &packet), 0);
	wire_packet_close(&packet);
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), -EPROTO);
	ck_assert_uint_eq(open_fds(), before);
	int pipe_ends[2];
	ck_assert_int_eq(pipe(pipe_ends), 0);
	ck_assert(!wire_is_end(pipe_ends[0]) && !wire_is_end(-1));
	close(pipe_ends[0]);
	close(pipe_ends[1]);
	close_pair();
}
END_TEST

/* The message is there, its descriptors are not; the next one is whole again. */
START_TEST(no_room_for_descriptors)
{
	make_pair();
	struct wire_packet packet = numbered(WIRE_SPAWN, 1), got;
	for (int i = 0; i < 4; i++)
		packet.fds[packet.fd_count++] = marked(i);
	ck_assert_int_eq(wire_send(ends[0], &packet), 0);
	ck_assert_int_eq(wire_send(ends[0], &packet), 0);
	wire_packet_close(&packet);
	unsigned before = open_fds();
	struct rlimit limit, none;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = (rlim_t)ends[1] + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	int error = wire_receive(ends[1], &inbox, &got);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(error, -EMFILE);
	assert_numbered(&got, WIRE_SPAWN, 1);
	ck_assert_uint_eq(open_fds(), before);
	ck_assert_int_eq(wire_receive(ends[1], &inbox, &got), 0);
	ck_assert_uint_eq(got.fd_count, 4);
	wire_packet_close(&got);
	close_pair();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire-stream");
	TCase *tests = tcase_create("wire-stream");
	tcase_set_timeout(tests, 30);
	tcase_add_test(tests, messages_and_their_descriptors);
	tcase_add_test(tests, queue_goes_on);
	tcase_add_test(tests, frames_in_pieces);
	tcase_add_test(tests, no_byte_of_the_next_frame);
	tcase_add_test(tests, descriptors_go_once);
	tcase_add_test(tests, ends_in_the_middle);
	tcase_add_test(tests, what_is_no_frame);
	tcase_add_test(tests, no_room_for_descriptors);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
