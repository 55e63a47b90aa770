/* SPDX-License-Identifier: Apache-2.0 */
/* How programs inside talk to each other: sockets, shared memory, semaphores, queues. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "own.h"

static struct sockaddr_un unix_address(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	return address;
}

/* A server at a path, as agents of keys and languages have it: it is told who calls. */
static bool own_server(void)
{
	struct sockaddr_un address = unix_address(own_path("%T/server"));
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int caller = -1;
	bool works = bind(server, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		     listen(server, 4) == 0 &&
		     connect(client, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		     (caller = accept4(server, NULL, NULL, SOCK_CLOEXEC)) >= 0 &&
		     getsockopt(caller, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
		     peer.pid == getpid() && peer.uid == getuid();

	return unlink(address.sun_path) == 0 && works;
}

static bool own_datagram(void)
{
	struct sockaddr_un here = unix_address(own_path("%T/here")),
			   there = unix_address(own_path("%T/there")), from;
	socklen_t size = sizeof(from);
	char byte = 0;
	int one = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0),
	    other = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool works = bind(one, (struct sockaddr *)&here, sizeof(here)) == 0 &&
		     bind(other, (struct sockaddr *)&there, sizeof(there)) == 0 &&
		     sendto(one, "q", 1, 0, (struct sockaddr *)&there, sizeof(there)) == 1 &&
		     recvfrom(other, &byte, 1, 0, (struct sockaddr *)&from, &size) == 1 &&
		     byte == 'q' && sendto(other, "a", 1, 0, (struct sockaddr *)&from, size) == 1 &&
		     recv(one, &byte, 1, 0) == 1 && byte == 'a';

	return unlink(here.sun_path) == 0 && unlink(there.sun_path) == 0 && works;
}

/* A listener on each address of this machine, as servers under development have it. The port is the
 * kernel's choice. */
static int listener(in_addr_t at, int option, struct sockaddr_in *address)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(*address);

	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(at);
	return fd >= 0 && setsockopt(fd, SOL_SOCKET, option, &one, sizeof(one)) == 0 &&
			       bind(fd, (struct sockaddr *)address, size) == 0 &&
			       listen(fd, 8) == 0 &&
			       getsockname(fd, (struct sockaddr *)address, &size) == 0
		       ? fd
		       : -1;
}

static bool asks(void *argument)
{
	struct sockaddr_in *address = argument;
	char text[8] = "";
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return connect(fd, (struct sockaddr *)address, sizeof(*address)) == 0 &&
	       send(fd, "ask", 3, 0) == 3 && shutdown(fd, SHUT_WR) == 0 &&
	       recv(fd, text, sizeof(text), MSG_WAITALL) == 6 && strcmp(text, "answer") == 0;
}

static bool own_any_address(void)
{
	struct sockaddr_in address = {0};
	char text[8];
	int server = listener(INADDR_ANY, SO_REUSEADDR, &address);
	pid_t child = server < 0 ? -1 : fork();

	if (child == 0)
		_exit(asks(&address) ? 0 : 1);
	struct pollfd ready = {.fd = server, .events = POLLIN};
	int caller = poll(&ready, 1, 120000) == 1 ? accept4(server, NULL, NULL, SOCK_CLOEXEC) : -1;
	/* The end of what is asked is seen, and can be answered. */
	bool heard = recv(caller, text, sizeof(text), MSG_WAITALL) == 3 &&
		     send(caller, "answer", 6, MSG_NOSIGNAL) == 6;

	if (caller >= 0)
		close(caller);
	return ends_well(child) && heard;
}

static bool own_shared_port(void)
{
	struct sockaddr_in address = {0};

	return listener(INADDR_LOOPBACK, SO_REUSEPORT, &address) >= 0 &&
	       listener(INADDR_LOOPBACK, SO_REUSEPORT, &address) >= 0;
}

static bool own_udp6(void)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	socklen_t size = sizeof(address);
	char byte = 0;
	int server = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0),
	    client = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return bind(server, (struct sockaddr *)&address, size) == 0 &&
	       getsockname(server, (struct sockaddr *)&address, &size) == 0 &&
	       connect(client, (struct sockaddr *)&address, size) == 0 &&
	       send(client, "x", 1, 0) == 1 && recv(server, &byte, 1, 0) == 1 && byte == 'x';
}

static bool own_loopback(void)
{
	struct ifreq request = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return if_nametoindex("lo") > 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0 &&
	       request.ifr_flags & IFF_UP && ioctl(fd, SIOCGIFADDR, &request) == 0;
}

/* --- memory and who may use it ------------------------------------------------------------ */

static bool puts_seven(void *argument)
{
	int fd = shm_open(argument, O_RDWR | O_CLOEXEC, 0);
	int *at = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at != MAP_FAILED && (*at = 7) == 7;
}

static bool own_posix_shm(void)
{
	char name[64];

	snprintf(name, sizeof(name), "/own-shm-%d", (int)getpid());
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int *at = fd < 0 || ftruncate(fd, 4096) < 0
			  ? MAP_FAILED
			  : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	bool works = at != MAP_FAILED && in_child(puts_seven, name) && *at == 7;

	return shm_unlink(name) == 0 && works;
}

static bool posts(void *argument)
{
	sem_t *sem = sem_open(argument, 0);

	return sem != SEM_FAILED && sem_post(sem) == 0;
}

static bool own_named_semaphore(void)
{
	char name[64];

	snprintf(name, sizeof(name), "/own-sem-%d", (int)getpid());
	sem_t *sem = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
	bool works = sem != SEM_FAILED && in_child(posts, name) && sem_trywait(sem) == 0;

	return sem_unlink(name) == 0 && works;
}

static bool locks(void *argument)
{
	pthread_mutex_t *mutex = argument;

	return pthread_mutex_trylock(mutex) == EBUSY;
}

/* Of two processes. */
static bool own_mutex(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutex_t *mutex =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return mutex != MAP_FAILED && pthread_mutexattr_init(&attributes) == 0 &&
	       pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
	       pthread_mutex_init(mutex, &attributes) == 0 && pthread_mutex_lock(mutex) == 0 &&
	       in_child(locks, mutex) && pthread_mutex_unlock(mutex) == 0;
}

static bool finds_by_key(void *argument)
{
	int id = shmget(*(key_t *)argument, 0, 0);
	int *at = id < 0 ? (void *)-1 : shmat(id, NULL, 0);

	return at != (void *)-1 && (*at = 9) == 9;
}

static bool own_shm_key(void)
{
	key_t key = (key_t)(0x4f000000 | getpid());
	int id = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600);
	const int *at = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
	bool works = at != (void *)-1 && in_child(finds_by_key, &key) && *at == 9;

	return shmctl(id, IPC_RMID, NULL) == 0 && works;
}

static bool raises(void *argument)
{
	struct sembuf up = {.sem_op = 2};

	return semop(*(int *)argument, &up, 1) == 0;
}

static bool own_sem_operation(void)
{
	struct sembuf down = {.sem_op = -1, .sem_flg = IPC_NOWAIT};
	int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
	bool works = id >= 0 && semop(id, &down, 1) < 0 && errno == EAGAIN &&
		     in_child(raises, &id) && semop(id, &down, 1) == 0 &&
		     semctl(id, 0, GETVAL) == 1;

	return semctl(id, 0, IPC_RMID) == 0 && works;
}

static bool own_message(void)
{
	struct {
		long type;
		char text[8];
	} sent = {3, "message"}, got = {0};
	int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
	bool works =
		id >= 0 && msgsnd(id, &sent, sizeof(sent.text), 0) == 0 &&
		msgrcv(id, &got, sizeof(got.text), 3, IPC_NOWAIT) == (ssize_t)sizeof(got.text) &&
		strcmp(got.text, "message") == 0;

	return msgctl(id, IPC_RMID, NULL) == 0 && works;
}

static bool own_queue_message(void)
{
	struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 8};
	char name[64], text[8] = "";
	unsigned priority = 0;

	snprintf(name, sizeof(name), "/own-mq-%d", (int)getpid());
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &attributes);
	bool works = queue >= 0 && mq_send(queue, "first", 6, 1) == 0 &&
		     mq_send(queue, "urgent", 7, 5) == 0 &&
		     mq_receive(queue, text, sizeof(text), &priority) == 7 && priority == 5 &&
		     strcmp(text, "urgent") == 0;
	int err = errno;

	mq_unlink(name);
	errno = err;
	return works;
}

int attempt_own_ipc(const struct row *row)
{
	static const struct own all[] = {
		{"own.unix.server", own_server},
		{"own.unix.datagram", own_datagram},
		{"own.tcp.any", own_any_address},
		{"own.tcp.port", own_shared_port},
		{"own.udp6", own_udp6},
		{"own.loopback", own_loopback},
		{"own.shm.posix", own_posix_shm},
		{"own.sem.named", own_named_semaphore},
		{"own.mutex", own_mutex},
		{"own.shm.key", own_shm_key},
		{"own.sem.operation", own_sem_operation},
		{"own.msg.message", own_message},
		{"own.queue.message", own_queue_message},
	};

	return attempt_one_of(all, sizeof(all) / sizeof(all[0]), row);
}
