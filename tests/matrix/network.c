/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets to what listens outside, and objects of interprocess communication that were made there. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "matrix.h"

static int connect_ip6(void)
{
	struct sockaddr_in6 address = {
		.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)place.tcp6), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? UNTRIED : tried(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
}

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* a: the protocol, or 6 for version 6 of IP; b: the first bytes go with the SYN. */
int attempt_tcp(const struct row *row)
{
	struct sockaddr_in address = loopback(place.tcp);

	if (row->a == 6)
		return connect_ip6();
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, (int)row->a);

	if (fd < 0)
		return DENIED;
	if (row->b)
		return tried(sendto(fd, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&address,
				    sizeof(address)) >= 0);
	return tried(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
}

int attempt_udp(const struct row *row)
{
	struct sockaddr_in address = loopback(place.udp);
	struct timeval wait = {.tv_sec = 3};
	char byte;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)row;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0)
		return UNTRIED;
	return tried(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && send(fd, "x", 1, 0) == 1 &&
		     recv(fd, &byte, 1, 0) == 1);
}

/* a: the type; a path, or without one the abstract name of that type. */
int attempt_unix(const struct row *row)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(address);
	int fd = socket(AF_UNIX, (int)row->a | SOCK_CLOEXEC, 0);

	if (row->text)
		snprintf(address.sun_path, sizeof(address.sun_path), "%s", expand(row->text));
	else
		length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				     (size_t)snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s-%ld",
						      place_name(), row->a));
	return tried(connect(fd, (struct sockaddr *)&address, length) == 0);
}

/* a: family, with what the kernel drops of it; b: type and protocol. */
int attempt_socket(const struct row *row)
{
	return tried(syscall(SYS_socket, row->a, row->b >> 16 | SOCK_CLOEXEC, row->b & 0xffff) >= 0);
}

/* By a netlink dump: another one than loopback. */
int attempt_interfaces(const struct row *row)
{
	struct if_nameindex *all = if_nameindex();
	bool more = false;

	(void)row;
	for (size_t i = 0; all && all[i].if_index; i++)
		more = more || strcmp(all[i].if_name, "lo") != 0;
	errno = all ? ENODEV : errno;
	if_freenameindex(all);
	return tried(more);
}

/* The host's name. */
int attempt_hostname(const struct row *row)
{
	struct utsname name;

	(void)row;
	errno = ENOENT;
	return tried(uname(&name) == 0 && strcmp(name.nodename, place.hostname) == 0);
}

/* By its key: numbers are given again. */
int attempt_sysv(const struct row *row)
{
	switch (row->a) {
	case 0:
		return tried(shmget(place.key, 0, 0) >= 0);
	case 1:
		return tried(msgget(place.key, 0) >= 0);
	default:
		return tried(semget(place.key, 0, 0) >= 0);
	}
}

int attempt_queue(const struct row *row)
{
	char name[128];

	(void)row;
	snprintf(name, sizeof(name), "/%s", place_name());
	return tried(mq_open(name, O_RDONLY | O_CLOEXEC) >= 0);
}

int attempt_shm(const struct row *row)
{
	char name[128];

	(void)row;
	snprintf(name, sizeof(name), "/%s", place_name());
	return tried(shm_open(name, O_RDONLY | O_CLOEXEC, 0) >= 0);
}
